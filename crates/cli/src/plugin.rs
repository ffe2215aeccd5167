//! The Kubernetes backend. It is a separate program, `kubectl-faultline`, so that this one needs no
//! Kubernetes client. `kubectl-faultline` replaces this process, and takes over its terminal, signals and
//! exit status.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use faultline_api::quantity::Size;
use miette::miette;

use crate::arguments::{DoctorArguments, FetchArguments, KubernetesArguments, OutputArguments, RunArguments};
use crate::command_error::{CommandError, Exit};

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
        record: _,
        metrics: _,
        view: _,
        strict: _,
        output: OutputArguments { format, quiet, verbose },
        cluster,
    } = arguments;
    let mut line = PluginCommand::of("run");
    line.option("--seed", seed.map(|it| it.to_string()));
    line.option("--repeat", Some(repeat.to_string()));
    line.option("--timeout", timeout.map(|it| it.to_string()));
    line.option("--out", out.as_ref());
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

    /// Replaces this process with `kubectl-faultline`: the one next to this executable or, if there is none,
    /// the first one on the PATH.
    fn call(self) -> Result<Exit, CommandError> {
        let adjacent = std::env::current_exe().ok().map(|it| it.with_file_name(PROGRAM));
        let program = adjacent.filter(|it| it.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
        let error = Command::new(&program).args(self.0).exec();
        Err(if error.kind() == ErrorKind::NotFound {
            CommandError::input(miette!(
                help = "install it with `cargo install --locked --path crates/kubectl`, or copy it from a release archive \
                        (`cargo xtask dist`) next to `faultline` or to a directory on your PATH; see docs/kubernetes.md",
                "the Kubernetes backend is a separate program, `{PROGRAM}`, which is not installed"
            ))
        } else {
            CommandError::machine(format!("cannot start {}: {error}", program.display()))
        })
    }
}
