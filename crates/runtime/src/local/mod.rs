//! The local backend: the supervisor's real side, with one child process per process of the federation.
//!
//! The state machine of `faultline-supervisor` decides; this module performs: it starts children, kills and stops
//! them by signal, wipes their storage, tells them who is where, and writes the supervisor's facts into the bundle.

mod children;
mod host;
mod measuring;
mod totals;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use faultline_core::fault::{FaultAccount, Outcome};
use faultline_core::{Fact, Life, Membership, ProcessId, Span, Time};
use faultline_supervisor::{Config, Status};
use faultline_trace::BundleError;
use faultline_trace::manifest::LinkEntry;
use thiserror::Error;
use tokio::runtime::{Builder, LocalOptions as RuntimeOptions};

use crate::links::Links;
use crate::storage::StorageOptions;

/// What a local run is made of.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Program and first arguments that start a node; [`crate::NodeOptions::to_args`] follow.
    pub command: Vec<OsString>,
    /// The run's directory, in which a bundle has been created already.
    pub run_dir: PathBuf,
    /// Of the supervisor.
    pub supervisor: Config,
    /// The processes; nobody is up and every life is 0.
    pub membership: Membership,
    /// Names of the processes, for directories; indexed by process.
    pub names: Vec<String>,
    /// Decides every random choice of processes and links.
    pub seed: u64,
    /// The links.
    pub links: Links,
    /// The storage of each node.
    pub storage: StorageOptions,
    /// Where the sum of all metrics is served while the run lasts.
    pub metrics: Option<SocketAddr>,
}

/// How a local run went.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalOutcome {
    /// How it ended.
    pub outcome: Outcome,
    /// What became of the plan.
    pub faults: Vec<FaultAccount>,
    /// Requested and measured links.
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
}

/// Watches nothing.
impl Observer for () {
    fn stated(&mut self, _: Time, _: ProcessId, _: Life, _: &Fact) {}
    fn status(&mut self, _: Time, _: &Status) {}
    fn measured(&mut self, _: &[LinkEntry]) {}
}

/// Why a run could not be carried out.
#[derive(Debug, Error)]
pub enum LocalError {
    /// The asynchronous runtime did not start.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// No random bytes for the secret.
    #[error("cannot make the run's secret: {0}")]
    Secret(getrandom::Error),
    /// The control port.
    #[error("cannot listen for the nodes: {0}")]
    Listen(io::Error),
    /// The port for metrics.
    #[error("cannot serve metrics on {address}: {source}")]
    Metrics {
        /// As asked for.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// The timer.
    #[error("the timer failed: {0}")]
    Alarm(io::Error),
    /// The file of the supervisor's facts.
    #[error("{0}")]
    Facts(BundleError),
    /// The supervisor's facts cannot be written.
    #[error("cannot write the supervisor's facts: {0}")]
    Record(io::Error),
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

/// Carries out a run. Returns when every child is gone, whatever happened. Interrupt and termination signals end the
/// run in good order.
pub fn run(options: LocalOptions, observer: &mut dyn Observer) -> Result<LocalOutcome, LocalError> {
    assert!(!options.command.is_empty(), "a command starts with a program");
    assert_eq!(options.names.len(), options.membership.members.len(), "every process has a name");
    // Children die with the thread that started them; this one waits for them all.
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(RuntimeOptions::default())
        .map_err(LocalError::Runtime)?;
    runtime.block_on(host::host(options, observer))
}
