//! The `local` backend, which runs each process of the federation as a separate process of this program, and the entry
//! point of those processes.

use std::ffi::OsString;
use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use faultline_api::quantity::Loss;
use faultline_catalog::Hosted;
use faultline_core::fault::LinkProperties;
use faultline_core::{Fact, Fault, Life, PlannedFault, ProcessId, Time};
use faultline_launch::{HostError, ended, run_options};
use faultline_runtime::metrics::RunInfo;
use faultline_runtime::supervise::UnexpectedEnd;
use faultline_runtime::{Observer, RunError, RunOptions, RunOutcome, local};
use faultline_session::{Backend, ComputeExpected, PreparedRun, RunEnd};
use faultline_shaper::Kernel;
use faultline_supervisor::Status;
use faultline_tc::namespace::MOST_PROCESSES;
use faultline_trace::manifest::{BackendKind, Expected, LinkEntry};
use faultline_trace::{Hash, Manifest, Trace, printable};

use crate::command_error::{CommandError, limit_in};
use crate::interrupt;
use crate::live::{Live, View};
use crate::log;
use crate::machine::{self, CheckState, Finding};
use crate::view::RunPage;

/// The maximum number of nodes whose unexpected ends are reported individually.
const MAX_REPORTED: usize = 3;

/// Runs federations on real processes. If `kernel` is set, the processes are in network namespaces, where the kernel
/// emulates the links.
pub(crate) struct Processes<'a> {
    pub(crate) kernel: Option<Kernel>,
    pub(crate) metrics: Option<Arc<TcpListener>>,
    pub(crate) page: Option<Arc<RunPage>>,
    pub(crate) view: View<'a>,
    pub(crate) interrupted: &'a Arc<AtomicBool>,
    /// Lines about nodes that ended unexpectedly, to be printed once the run has been recorded.
    pub(crate) notes: Vec<String>,
}

impl Backend for Processes<'_> {
    type Error = CommandError;

    fn kind(&self) -> BackendKind {
        BackendKind::Local
    }

    fn run<N: Hosted>(&mut self, begun: PreparedRun<'_, N>) -> Result<(RunEnd, Option<Trace>), CommandError> {
        let PreparedRun { manifest, bundle, .. } = begun;
        let dir = bundle.dir();
        let metrics = self.metrics.clone();
        let info = Some(RunInfo::of(manifest));
        let mut options =
            RunOptions { metrics, info, interrupted: self.interrupted.clone(), ..run_options(&begun) };
        let mut live = self.view.live(manifest).detached();
        if let Some(page) = &self.page {
            options.change_queue = page.change_queue.clone();
            page.follow(bundle).map_err(|error| CommandError::of_machine(&error))?;
            live.page = Some(page.clone());
        }
        let run = self.carry_out(options, dir, &mut live);
        live.finish();
        let (ended, collapsed) = ended(run?);
        let ended = RunEnd { program: program_digest(), ..ended };
        if !self.view.output.quiet {
            self.notes = describe_collapsed(&collapsed, manifest, dir);
        }
        Ok((ended, None))
    }

    fn expected(&mut self, compute: ComputeExpected) -> Option<Option<Expected>> {
        interrupt::unless_interrupted(self.interrupted, compute)
    }
}

impl Processes<'_> {
    /// Refuses what this machine cannot do to the programs of a system, and says what it does not emulate for them.
    fn check_system(&self, options: &RunOptions, live: &mut Live) -> Result<(), CommandError> {
        let fault = |it: &PlannedFault| match &it.fault {
            Fault::Link { .. } => Some("link"),
            Fault::Partition { .. } | Fault::Split { .. } => Some("partition"),
            _ => None,
        };
        if let Some(name) = options.supervisor.plan.iter().find_map(fault).filter(|_| self.kernel.is_none()) {
            return Err(CommandError::input(miette::miette!(
                help = "add `--links tc`, or remove the fault",
                "`{name}` needs emulated links, and without traffic control, the links between the programs of a system \
                 are not emulated"
            )));
        }
        if let Some(kernel) = self.kernel {
            self.check_link_faults(options, kernel)?;
        }
        let is_emulated = |it: &LinkProperties| match self.kernel {
            None => *it == LinkProperties::default(),
            Some(kernel) => kernel.left_for_node(*it) == LinkProperties::default(),
        };
        if !options.links.requested.values().all(is_emulated) && !self.view.output.quiet {
            let (what, remedy) = match self.kernel {
                None => ("properties", "add `--links tc`"),
                Some(_) => (
                    "delay and loss, which this kernel does not emulate (sch_netem)",
                    "see `faultline doctor --tc`",
                ),
            };
            live.warn(&format!(
                "the links between the programs of this system do not have the requested {what}; {remedy}, or \
                 `linksAsRequested` will be `unknown`"
            ));
        }
        Ok(())
    }

    /// Refuses faults that change the delay or the loss of a link of a system, if this kernel does not emulate them.
    fn check_link_faults(&self, options: &RunOptions, kernel: Kernel) -> Result<(), CommandError> {
        let is_delayed = |it: LinkProperties| (it.latency, it.jitter, it.loss_ppm);
        let is_without_effect = |it: &PlannedFault| match it.fault {
            Fault::Link { from, to, properties: Some(changed), .. } => {
                let base = options.links.between(from, to);
                kernel.left_for_node(changed) != LinkProperties::default()
                    && is_delayed(changed) != is_delayed(base)
            }
            _ => false,
        };
        let Some(fault) = options.supervisor.plan.iter().find(|it| is_without_effect(it)) else {
            return Ok(());
        };
        Err(CommandError::input(miette::miette!(
            help = "run it where `faultline doctor --tc` finds sch_netem, or change only `bandwidth`, or use `partition`",
            "fault {} changes the delay or the loss of a link, but this kernel does not emulate them (sch_netem), so the fault \
             would have no effect on the programs of a system",
            fault.no.0
        )))
    }

    fn carry_out(
        &self,
        options: RunOptions,
        dir: &Path,
        live: &mut Live,
    ) -> Result<RunOutcome, CommandError> {
        let busy = machine::load().filter(|it| it.state != CheckState::Ok);
        if let Some(Finding { detail, .. }) = busy.filter(|_| !self.view.output.quiet) {
            let what = match options.supervisor.system {
                None => "slow processes may be declared failed",
                Some(_) => "the system may be slower than usual",
            };
            live.warn(&format!("this machine is busy (load {detail}): {what}"));
        }
        if options.supervisor.system.is_some() {
            self.check_system(&options, live)?;
        }
        let nodes = options.names.processes.len();
        if self.kernel.is_some() && nodes > MOST_PROCESSES as usize {
            return Err(CommandError::input(miette::miette!(
                help = "omit `--links tc` to emulate links in the nodes",
                "traffic control supports at most {MOST_PROCESSES} processes (found {nodes})"
            )));
        }
        let mut losses = options.links.requested.values().map(|it| Loss { ppm: it.loss_ppm });
        if self.kernel.is_some_and(|it| it.netem)
            && let Some(reason) = losses.find_map(Loss::unconfirmed_by_kernel)
        {
            let most = Loss::MOST_BY_KERNEL;
            return Err(CommandError::input(miette::miette!(
                help = format!("write at most {most}, or omit `--links tc` to emulate links in the nodes"),
                "{reason}"
            )));
        }
        log::record_in(dir).map_err(|error| CommandError::of_machine(&error))?;
        let command = node_command();
        match self.kernel {
            None => local::run(command, options, live),
            Some(kernel) => local::run_in_namespaces(command, options, kernel, live),
        }
        .map_err(|error| match &error {
            RunError::DiskFull(_) => CommandError::machine_with(
                format!("{error}; the record in {} is incomplete", dir.display()),
                "free some space on that disk, or specify a directory on another disk with `--out`",
            ),
            RunError::Collapses { last_output, .. } => {
                let logs = format!("the logs of all processes are in {}", dir.join("nodes").display());
                let remedy = limit_in(last_output).map(|it| format!("{it}; {logs}"));
                CommandError::machine_with(&error, remedy.unwrap_or(logs))
            }
            RunError::NotReady { .. } => {
                let logs = format!("the output of all commands is in {}", dir.join("logs").display());
                CommandError::input(miette::miette!(help = logs, "{error}"))
            }
            _ => CommandError::of_machine(&error),
        })
    }
}

/// Returns the command that starts a node or a guard, without the arguments that say which.
pub(crate) fn node_command() -> Vec<OsString> {
    vec![local::THIS_PROGRAM.into(), "node".into()]
}

/// Returns the digest of the program that this process executes; `None` if it cannot be read.
fn program_digest() -> Option<Hash> {
    static DIGEST: OnceLock<Option<Hash>> = OnceLock::new();
    *DIGEST.get_or_init(|| Hash::of(File::open(local::THIS_PROGRAM).ok()?).ok())
}

/// Describes the first nodes that ended unexpectedly, with their last output.
fn describe_collapsed(collapsed: &[UnexpectedEnd], manifest: &Manifest, dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for it in collapsed.iter().take(MAX_REPORTED) {
        let name = &manifest.processes[it.process.index()].name;
        lines.push(format!("{name}, {}, ended unexpectedly: {}", it.life, it.status));
        lines.extend(it.last_output.lines().map(|line| format!("  {}", printable(line))));
    }
    if collapsed.len() > MAX_REPORTED {
        let more = collapsed.len() - MAX_REPORTED;
        lines.push(format!("and {more} more; see {}", dir.join(log::FILE).display()));
    }
    lines
}

impl Observer for Live {
    fn recorded(&mut self, at: Time, process: ProcessId, _: Life, fact: &Fact) {
        if let Some(page) = self.page.as_ref().filter(|_| process == ProcessId::SUPERVISOR) {
            page.recorded(at, fact);
        }
        Live::recorded(self, at, process, fact);
    }

    fn status(&mut self, now: Time, status: &Status) {
        if let Some(page) = &self.page {
            page.status(now, status);
        }
        Live::status(self, now, status);
    }

    fn measured(&mut self, links: &[LinkEntry]) {
        Live::measured(self, links);
    }
}

/// `faultline node`: runs the process that the arguments identify, as the run's bundle describes it.
pub(crate) fn node(arguments: Vec<OsString>) -> Result<(), CommandError> {
    faultline_launch::node(arguments).map_err(|error| match error {
        HostError::Arguments(_) => CommandError::input(miette::miette!("{error}")),
        HostError::Federation(rejected) => CommandError::input(*rejected),
        error => CommandError::machine(error),
    })
}
