//! The supervisor's real side, wherever the processes are.
//!
//! The state machine of `faultline-supervisor` decides. The host ([`host`]) brings it its reports and performs its
//! orders; what only the places of the processes can do, it asks of them ([`places`]). It tells the processes who is
//! where, has the links measured, sums up metrics, and writes the supervisor's facts into the bundle.

mod host;
mod journal;
mod measuring;
pub(crate) mod places;
mod totals;
mod wishes;

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use faultline_core::fault::{FaultAccount, Outcome};
use faultline_core::{Fact, Life, Membership, PlannedFault, ProcessId, Span, Time};
use faultline_supervisor::{Config, Status};
use faultline_tc::namespace::NamespaceError;
use faultline_trace::BundleError;
use faultline_trace::manifest::LinkEntry;
use thiserror::Error;
use tokio::runtime::{Builder, LocalOptions};

use crate::links::Links;
use crate::metrics::ClusterNames;
use crate::storage::StorageOptions;
pub(crate) use host::{Ground, Memory, host};
pub use journal::Past;
pub(crate) use journal::{Entry, Journal};
pub use places::Death;
pub use wishes::Wishes;

/// What a run is made of, wherever its processes are.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The run's directory, in which a bundle has been created already.
    pub run_dir: PathBuf,
    /// Of the supervisor.
    pub supervisor: Config,
    /// The processes; nobody is up and every life is 0.
    pub membership: Membership,
    /// For directories and for people.
    pub names: Names,
    /// Decides every random choice of processes and links.
    pub seed: u64,
    /// The links.
    pub links: Links,
    /// The storage of each node.
    pub storage: StorageOptions,
    /// For so long links that are not as asked for are measured again before the run begins.
    pub measure_again_for: Span,
    /// Where the sum of all metrics is served while the run lasts: a port that is taken already, so that one which is not
    /// free is noticed before anything of the run is there.
    pub metrics: Option<Arc<TcpListener>>,
    /// Ends the run in good order once it is raised ([`crate::interrupt::flag`]).
    pub interrupted: Arc<AtomicBool>,
    /// What is to be changed while the run goes on.
    pub wishes: Wishes,
}

/// What those that run are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Indexed by process.
    pub processes: Vec<String>,
    /// The clusters.
    pub clusters: ClusterNames,
}

/// What a process has said last, or what its end looks like.
fn last_of(status: &str, last_words: &str) -> String {
    match last_words.trim() {
        "" if status.contains("SIGKILL") => {
            ": the kernel kills so what needs more memory than it may have (on Kubernetes, `spec.kubernetes.resources`)"
                .to_owned()
        }
        "" => String::new(),
        words => format!(": {words}"),
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// How it ended.
    pub outcome: Outcome,
    /// The faults that were added to the plan.
    pub added: Vec<PlannedFault>,
    /// What became of the plan.
    pub faults: Vec<FaultAccount>,
    /// Requested and measured links, with those that were changed meanwhile.
    pub links: Vec<LinkEntry>,
    /// From the start to the end.
    pub duration: Span,
    /// Lives that ended by themselves, with the status and the end of what they had to say. None is expected to.
    pub collapsed: Vec<Collapse>,
}

/// A life that ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collapse {
    /// The process.
    pub process: ProcessId,
    /// The life.
    pub life: Life,
    /// As the operating system says.
    pub status: String,
    /// Last lines of its log.
    pub last_words: String,
}

/// Follows a run as it goes on.
pub trait Observer {
    /// A fact of the supervisor, or one of a process that the supervisor follows. The supervisor's life is 0.
    fn stated(&mut self, at: Time, process: ProcessId, life: Life, fact: &Fact);
    /// How things are, ten times a second.
    fn status(&mut self, now: Time, status: &Status);
    /// The links have been measured.
    fn measured(&mut self, links: &[LinkEntry]);
    /// Lives were killed by one order.
    fn died(&mut self, deaths: &[Death]) {
        let _ = deaths;
    }
    /// Another start of the program has taken the run up. Before this everything is told that its predecessors told, in the
    /// same order.
    fn resumed(&mut self, at: Time) {
        let _ = at;
    }
}

/// Watches nothing.
impl Observer for () {
    fn stated(&mut self, _: Time, _: ProcessId, _: Life, _: &Fact) {}
    fn status(&mut self, _: Time, _: &Status) {}
    fn measured(&mut self, _: &[LinkEntry]) {}
}

/// Why a run could not be carried out.
#[derive(Debug, Error)]
pub enum RunError {
    /// The asynchronous runtime did not start.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// No random bytes for the secret.
    #[error("cannot make the run's secret: {0}")]
    Secret(getrandom::Error),
    /// The control port.
    #[error("cannot listen for the nodes: {0}")]
    Listen(io::Error),
    /// The network namespace for the nodes.
    #[error("{0}")]
    Namespace(NamespaceError),
    /// The port for metrics.
    #[error("cannot serve metrics: {0}")]
    Metrics(io::Error),
    /// The timer.
    #[error("the timer failed: {0}")]
    Alarm(io::Error),
    /// A file of facts.
    #[error("{0}")]
    Facts(BundleError),
    /// No room for what is recorded and stored.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// A process does not live long enough to get anywhere.
    #[error("{name} ended by itself {times} times, at last with {status}{}", last_of(status, last_words))]
    Collapses {
        /// Which.
        name: String,
        /// How often.
        times: usize,
        /// As the operating system says.
        status: String,
        /// Last lines of its log.
        last_words: String,
    },
    /// The supervisor's facts, or what it was told, cannot be written.
    #[error("cannot write the supervisor's facts: {0}")]
    Record(io::Error),
    /// The journal tells of something else than the record.
    #[error("the journal of the run does not go with its record")]
    Journal,
    /// The program was told to end, and another start of it can take the run up.
    #[error("told to end; the run is to be taken up")]
    Left,
    /// A node's directory.
    #[error("cannot use {}: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A node cannot be started.
    #[error("cannot start {}: {source}", program.display())]
    Launch {
        /// The program.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// A signal cannot be sent to a node.
    #[error("cannot signal {process}: {source}")]
    Signal {
        /// The process.
        process: ProcessId,
        /// Why.
        source: nix::Error,
    },
}

/// Runs a host on the calling thread: children die with the thread that started them, and this one waits for them all.
pub(crate) fn block_on<T>(host: impl Future<Output = Result<T, RunError>>) -> Result<T, RunError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(RunError::Runtime)?;
    runtime.block_on(host)
}

/// Any port of this machine that nobody else reaches.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
