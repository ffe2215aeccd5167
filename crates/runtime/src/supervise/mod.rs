//! The host of the supervisor, wherever the processes run.
//!
//! The state machine of `faultline-supervisor` decides. The host ([`mod@host`]) passes reports to it, carries out its
//! orders, and delegates the starting and ending of processes to places ([`places`]). The host announces the membership
//! to the processes, has links measured, adds up metrics, and writes the supervisor's facts to the bundle.

mod change_queue;
mod effects;
mod host;
mod incidents;
mod journal;
mod link_state;
mod measuring;
mod nodes;
pub(crate) mod places;
mod recorder;
mod replay;
mod totals;
mod unexpected_ends;

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use faultline_core::fault::{FaultAccount, Outcome};
use faultline_core::{Fact, Life, Membership, PlannedFault, ProcessId, Span, Time};
use faultline_supervisor::{Config, MemoryBound, Status};
use faultline_tc::namespace::NamespaceError;
use faultline_trace::BundleError;
use faultline_trace::manifest::{EffectEntry, LinkEntry, Pressure};
use thiserror::Error;
use tokio::runtime::{Builder, LocalOptions};

use crate::links::Links;
use crate::metrics::{ClusterNames, RunInfo};
use crate::storage::StorageOptions;
pub use change_queue::ChangeQueue;
pub(crate) use host::{Memory, PlaceContext, host};
pub use journal::JournalContents;
pub(crate) use journal::{Journal, JournalEntry};

/// Options of a run, wherever its processes are.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Directory of the run, in which a bundle has already been created.
    pub run_dir: PathBuf,
    /// Description of the run, which each process receives when it starts. Its format is up to the program.
    pub description: Arc<[u8]>,
    /// Configuration of the supervisor.
    pub supervisor: Config,
    /// The initial membership: no process is up, and every life is 0.
    pub membership: Membership,
    /// Names for directories and for display.
    pub names: Names,
    /// The labels of the run in metrics, if there are metrics.
    pub info: Option<RunInfo>,
    /// Seed of all random choices of processes and links.
    pub seed: u64,
    /// Requested properties of the links.
    pub links: Links,
    /// Options of each node's storage.
    pub storage: StorageOptions,
    /// Time for which the measurement of a link is repeated while its latency is outside the tolerance.
    pub measure_again_for: Span,
    /// Listener that serves the sum of all metrics during the run. It is opened in advance, so that a port in
    /// use is detected before the run creates anything.
    pub metrics: Option<Arc<TcpListener>>,
    /// Flag that ends the run once it is set ([`crate::interrupt::flag`]). If the run has a journal, a
    /// restarted program can then resume it; otherwise, the run ends normally.
    pub interrupted: Arc<AtomicBool>,
    /// Memory limit, if any. A run that reaches it ends with [`Outcome::OutOfMemory`].
    pub memory: Option<MemoryBound>,
    /// Memory that judging the run takes per fact, in bytes. A run ends with [`Outcome::OutOfMemory`] if
    /// judging more facts would exceed the limit. 0 if this program does not judge the run.
    pub fact_bytes: u64,
    /// Changes requested during the run.
    pub change_queue: ChangeQueue,
}

/// Names of processes and clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names of the processes, indexed by process.
    pub processes: Vec<String>,
    /// Names of the clusters.
    pub clusters: ClusterNames,
}

/// Returns the end of an error message: the last lines that a process printed, or the likely cause if it was
/// killed without printing any.
fn last_of(status: &str, last_output: &str) -> String {
    match last_output.trim() {
        "" if status.contains("SIGKILL") => {
            ": the kernel kills processes that exceed their memory limit (on Kubernetes, \
             `spec.kubernetes.resources`)"
                .to_owned()
        }
        "" => String::new(),
        words => format!(": {words}"),
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// Outcome of the run.
    pub outcome: Outcome,
    /// Faults that were added to the plan.
    pub added: Vec<PlannedFault>,
    /// State of each fault in the plan at the end.
    pub faults: Vec<FaultAccount>,
    /// Times at which the faults took effect.
    pub effects: Vec<EffectEntry>,
    /// How busy the processors of this machine were; `None` unless all processes ran on it.
    pub pressure: Option<Pressure>,
    /// Requested and measured properties of links, including those changed during the run.
    pub links: Vec<LinkEntry>,
    /// Duration of the run, from its start to its end.
    pub duration: Span,
    /// Lives that ended unexpectedly.
    pub collapsed: Vec<UnexpectedEnd>,
}

/// A life that ended unexpectedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnexpectedEnd {
    /// The process that ended.
    pub process: ProcessId,
    /// Number of the process's life.
    pub life: Life,
    /// Exit status, as the operating system reports it.
    pub status: String,
    /// Last lines of the process's log.
    pub last_output: String,
}

/// Observes a run while it is in progress.
pub trait Observer {
    /// Called for each fact that the supervisor records or receives from a process. The supervisor's life is 0.
    fn recorded(&mut self, at: Time, process: ProcessId, life: Life, fact: &Fact);
    /// Called with the current status, ten times per second.
    fn status(&mut self, now: Time, status: &Status);
    /// Called once all links have been measured, and again once links that changed have been measured.
    fn measured(&mut self, links: &[LinkEntry]);
    /// Called when a fault has taken effect, and again if it takes effect on further processes.
    fn took_effect(&mut self, effect: &EffectEntry) {
        let _ = effect;
    }
    /// Called when a restarted program has resumed the run. Before this call, the calls of its predecessors
    /// are repeated in the same order.
    fn resumed(&mut self, at: Time) {
        let _ = at;
    }
}

/// An observer that ignores everything.
impl Observer for () {
    fn recorded(&mut self, _: Time, _: ProcessId, _: Life, _: &Fact) {}
    fn status(&mut self, _: Time, _: &Status) {}
    fn measured(&mut self, _: &[LinkEntry]) {}
}

/// The reason why a run could not be performed.
#[derive(Debug, Error)]
pub enum RunError {
    /// The asynchronous runtime did not start.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] io::Error),
    /// The operating system provided no random bytes for the keys.
    #[error("cannot generate the keys of the run: {0}")]
    Secret(getrandom::Error),
    /// The control port could not be opened.
    #[error("cannot listen for the nodes: {0}")]
    Listen(#[source] io::Error),
    /// The network namespaces of the nodes could not be created.
    #[error("{0}")]
    Namespace(#[source] NamespaceError),
    /// The metrics page cannot be served.
    #[error("cannot serve metrics: {0}")]
    Metrics(#[source] io::Error),
    /// The timer failed.
    #[error("the timer failed: {0}")]
    Alarm(#[source] io::Error),
    /// A facts file could not be written.
    #[error("{0}")]
    Facts(#[source] BundleError),
    /// There is no space left for the record or the storage.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// A process ended unexpectedly several times.
    #[error(
        "{name} ended unexpectedly {times} times (the last time: {status}){}",
        last_of(status, last_output)
    )]
    Collapses {
        /// Name of the process.
        name: String,
        /// Number of the process's unexpected exits.
        times: usize,
        /// Exit status, as the operating system reports it.
        status: String,
        /// Last lines of the process's log.
        last_output: String,
    },
    /// The supervisor's facts or its journal cannot be written.
    #[error("cannot write the supervisor's facts or its journal: {0}")]
    Record(#[source] io::Error),
    /// The journal of a predecessor cannot be read.
    #[error("cannot read the journal of the previous supervisor: {0}")]
    Past(#[source] io::Error),
    /// The journal contradicts the record.
    #[error("the journal does not match the run's record")]
    Journal,
    /// The program was asked to end. A restarted program can resume the run.
    #[error("terminated; the run can be resumed")]
    Left,
    /// The directory of a node could not be created or changed.
    #[error("cannot use {}: {source}", path.display())]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// A node could not be started.
    #[error("cannot start {}: {source}", program.display())]
    Launch {
        /// The program that could not be started.
        program: OsString,
        /// Cause of the failure.
        source: io::Error,
    },
    /// A node of a system cannot become ready, or cannot set the system up.
    #[error("{name} {what}")]
    NotReady {
        /// Name of the process.
        name: String,
        /// What happened, as a predicate.
        what: String,
    },
    /// A signal could not be sent to a node.
    #[error("cannot signal {process}: {source}")]
    Signal {
        /// The process that should receive the signal.
        process: ProcessId,
        /// Cause of the failure.
        source: nix::Error,
    },
}

/// Runs a host on the calling thread. Children end with the thread that started them, and the host waits for
/// all of them.
pub(crate) fn block_on<T>(host: impl Future<Output = Result<T, RunError>>) -> Result<T, RunError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(RunError::Runtime)?;
    runtime.block_on(host)
}

/// Any free port on the loopback interface, which other machines cannot reach.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
