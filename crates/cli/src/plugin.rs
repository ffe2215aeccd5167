//! The Kubernetes backend. It is a separate program, `kubectl-faultline`, so that this one needs no
//! Kubernetes client. `kubectl-faultline` replaces this process, and takes over its terminal, signals and
//! exit status, except for campaigns, whose results this process uses.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use faultline_api::quantity::Size;
use faultline_console::campaign::WorkerArguments;
use miette::miette;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::arguments::{DoctorArguments, FetchArguments, KubernetesArguments, OutputArguments, RunArguments};
use crate::campaign::Divisible;
use crate::command_error::{CommandError, Exit};

/// The interval between two checks of a campaign.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The name of the separate program. The command `kubectl faultline` also finds the program by this name.
const PROGRAM: &str = "kubectl-faultline";

/// Executes `faultline run --backend kubernetes`.
pub(crate) fn run(arguments: &RunArguments, memory: Option<Size>) -> Result<Exit, CommandError> {
    let RunArguments {
        file,
        backend: _,
        fresh_programs: _,
        links: _,
        seed,
        repeat,
        keep: _,
        timeout,
        out,
        junit,
        record: _,
        metrics: _,
        view,
        strict: _,
        output: OutputArguments { format, quiet, verbose },
        cluster,
    } = arguments;
    let mut line = PluginCommand::of("run");
    line.option("--seed", seed.map(|it| it.to_string()));
    line.option("--repeat", Some(repeat.to_string()));
    line.option("--timeout", timeout.map(|it| it.to_string()));
    line.option("--out", out.as_ref());
    line.option("--junit", junit.as_ref());
    line.option("--view", view.flatten().map(|it| it.to_string()));
    line.flag("--view", view.is_some_and(|it| it.is_none()).into());
    line.option("--memory", memory.map(|it| it.to_string()));
    line.option("--format", Some(format.as_str()));
    line.flag("--quiet", (*quiet).into());
    line.flag("--verbose", *verbose);
    line.cluster(cluster);
    line.positional(file.as_ref());
    line.call()
}

/// Executes `faultline fetch`.
pub(crate) fn fetch(arguments: &FetchArguments) -> Result<Exit, CommandError> {
    let FetchArguments { federation, out, cluster } = arguments;
    let mut line = PluginCommand::of("fetch");
    line.option("--out", out.as_ref());
    line.cluster(cluster);
    line.positional(Some(federation));
    line.call()
}

/// Executes `faultline doctor --backend kubernetes`.
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<Exit, CommandError> {
    let DoctorArguments { backend: _, nodes, tc, image, format, cluster } = arguments;
    let mut line = PluginCommand::of("doctor");
    line.option("--nodes", nodes.map(|it| it.to_string()));
    line.option("--format", Some(format.as_str()));
    line.flag("--tc", (*tc).into());
    line.option("--image", image.as_ref());
    line.cluster(cluster);
    line.call()
}

/// Lets pods perform the parts of the campaign that `dir` describes, and writes their results to `dir`.
pub(crate) fn campaign(
    dir: &Path,
    workers: &WorkerArguments,
    runs: &Divisible<'_>,
    interrupted: &AtomicBool,
) -> Result<(), CommandError> {
    let WorkerArguments { workers, count: _, image, worker_cpu, worker_memory, queue, cluster } = workers;
    let mut line = PluginCommand::of("campaign");
    line.0.push("perform".into());
    line.option("--workers", workers.map(|it| it.to_string()));
    line.option("--image", image.as_ref());
    line.option("--worker-cpu", worker_cpu.as_ref());
    line.option("--worker-memory", worker_memory.map(|it| it.to_string()));
    line.option("--queue", queue.as_ref());
    line.flag("--quiet", runs.quiet.into());
    line.flag("--first-found", runs.first_found.into());
    line.cluster(cluster);
    line.positional(Some(dir));
    let mut program = line.command();
    // In the group of this process, it would receive an interrupt of the terminal twice.
    let mut child = program.process_group(0).spawn().map_err(|error| not_started(&program, &error))?;
    let mut is_told = false;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(CommandError::of_machine(&error)),
        }
        if interrupted.load(Ordering::Relaxed) && !is_told {
            is_told = true;
            // Fails if it has just ended.
            let _ended = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT);
        }
        sleep(LOOK_EVERY);
    };
    let exit = match status.code() {
        Some(0) => return Ok(()),
        Some(code) if code == Exit::BadInput as i32 => Exit::BadInput,
        _ => Exit::Unknown,
    };
    if is_told {
        // The other program has said what becomes of the campaign.
        return Err(CommandError::reported(exit));
    }
    let report = miette!(
        help = "to continue, run the same command, and add `--resume` unless it is a search; the results so far are kept",
        "the pods have not performed all runs"
    );
    Err(CommandError { exit, report })
}

/// A command line of `kubectl-faultline`.
struct PluginCommand(Vec<OsString>);

impl PluginCommand {
    fn of(command: &str) -> PluginCommand {
        PluginCommand(vec![command.into()])
    }

    /// Adds an option with its value in one argument, so that no value can be mistaken for an option.
    fn option(&mut self, name: &str, value: Option<impl AsRef<OsStr>>) {
        if let Some(value) = value {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            self.0.push(word);
        }
    }

    fn flag(&mut self, name: &str, times: u8) {
        self.0.extend((0..times).map(|_| name.into()));
    }

    fn cluster(&mut self, KubernetesArguments { namespace, context }: &KubernetesArguments) {
        self.option("--namespace", namespace.as_ref());
        self.option("--context", context.as_ref());
    }

    fn positional(&mut self, value: Option<impl AsRef<OsStr>>) {
        if let Some(value) = value {
            self.0.extend(["--".into(), value.as_ref().to_owned()]);
        }
    }

    /// Returns a command that starts `kubectl-faultline`: the one next to this executable or, if there is none, the first
    /// one on the PATH.
    fn command(self) -> Command {
        let adjacent = std::env::current_exe().ok().map(|it| it.with_file_name(PROGRAM));
        let program = adjacent.filter(|it| it.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
        let mut command = Command::new(program);
        command.args(self.0);
        command
    }

    /// Replaces this process with `kubectl-faultline`.
    fn call(self) -> Result<Exit, CommandError> {
        let mut command = self.command();
        let error = command.exec();
        Err(not_started(&command, &error))
    }
}

fn not_started(command: &Command, error: &io::Error) -> CommandError {
    if error.kind() == ErrorKind::NotFound {
        CommandError::input(miette!(
            help = "install it with `cargo install --locked --path crates/kubectl`, or copy it from a release archive \
                    (`cargo xtask dist`) next to `faultline` or to a directory on your PATH; see docs/kubernetes.md",
            "the Kubernetes backend is a separate program, `{PROGRAM}`, which is not installed"
        ))
    } else {
        CommandError::machine(format!("cannot start {}: {error}", command.get_program().display()))
    }
}
