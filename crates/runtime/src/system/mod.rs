//! The commands of a system: a [runner](runner::run) starts the command of its node, observes it and ends it. It follows the
//! instructions of the node's process, which [records](Recorder) what the runner tells. The runner is in the same process,
//! or, in a pod, in a container with the system's own image, where an [executor](serve) hosts it.
//!
//! A node's processes are all those whose environment contains the life's identifier ([`faultline_guard`]), so programs that
//! leave their process group do not escape.

mod attempt;
mod clients;
mod commands;
mod executor;
mod http;
mod orphans;
mod output;
mod runner;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use attempt::inherited_environment;
pub use clients::Clients;
pub(crate) use clients::Recording;
pub(crate) use commands::{Commands, Recorder};
pub(crate) use executor::ExecutorClient;
pub use executor::{ExecutorError, Start, serve};
use faultline_core::{Boot, CheckNo, ProbeNo, WatchNo};
use faultline_guard::{MOST_SEARCHES, PAUSE, VARIABLE, signal};
use faultline_supervisor::AfterExit;
pub use faultline_tc::namespace::stable_address_of;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};
pub(crate) use orphans::adopt;
use regex::Regex;
pub(crate) use runner::{Instruction, STOPS_WITHIN};

/// What a node of a system runs in one of its lives.
#[derive(Debug)]
pub struct NodeSystem {
    /// Identifies the processes of the node's commands in this life.
    pub id: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Other commands, one of which the node may run after a restart, by the number of the fault in the list.
    pub later_commands: BTreeMap<u16, Vec<String>>,
    /// Environment variables of all commands of the node.
    pub env: Vec<(String, String)>,
    /// The content of each file in the working directory, by relative path.
    pub files: Vec<(String, String)>,
    /// The working directory.
    pub dir: PathBuf,
    /// The directory with the data of the node, which outlives the life.
    pub data: PathBuf,
    /// The file for the command's output.
    pub log: PathBuf,
    /// The maximum number of bytes of output in this file.
    pub log_bytes: u64,
    /// The attempt that must succeed before the node is ready, if any, and the time within which it must succeed.
    pub ready: (Option<Attempt>, Duration),
    /// The command that sets the system up, if this node runs it, and the time within which it must exit.
    pub set_up: Option<(Attempt, Duration)>,
    /// The probes that this node runs.
    pub probes: Vec<Probe>,
    /// The checks that this node carries out before the run ends, and the time within which each must end.
    pub checks: Vec<(CheckNo, Attempt, Duration)>,
    /// The clients that this node runs.
    pub clients: Vec<Clients>,
    /// The check that is the final phase of the clients.
    pub final_check: Option<CheckNo>,
    /// Regular expressions for lines of output.
    pub watches: Vec<(WatchNo, Regex)>,
    /// What follows the exit of the command.
    pub after_exit: AfterExit,
    /// Whether the command may exit with status 0.
    pub may_finish: bool,
    /// Whether the command runs as long as any process that it has started.
    pub is_daemon: bool,
}

impl NodeSystem {
    /// Lets the commands know how the life begins, and replaces the node's command if a fault states another one.
    pub(crate) fn booted(mut self, boot: Boot, command: Option<u16>) -> NodeSystem {
        if let Some(later) = command.and_then(|it| self.later_commands.remove(&it)) {
            self.command = later;
        }
        let boot = match boot {
            Boot::Fresh => "fresh",
            Boot::Restarted => "restarted",
            Boot::Replaced => "replaced",
        };
        self.env.push(("FAULTLINE_BOOT".to_owned(), boot.to_owned()));
        self
    }
}

/// A probe that a node runs.
pub struct Probe {
    /// Number of the probe.
    pub no: ProbeNo,
    /// Time from the start of a sample to the start of the next one.
    pub every: Duration,
    /// Time after which a sample has failed.
    pub timeout: Duration,
    /// Returns the attempt of a sample, or the reason why there is none.
    pub attempt: Box<dyn Fn(u32) -> Result<Attempt, String>>,
}

/// Returns the identifier that the supervisor has given to the commands of this process; empty if there is none.
pub fn own_id() -> String {
    std::env::var(VARIABLE).unwrap_or_default()
}

/// Kills all processes of the commands of a life that this process started, and those that they start meanwhile.
async fn end_own(id: &str) {
    end_commands(|it| it == id, &[getpid()]).await;
}

/// Kills the processes of commands whose identifier meets a condition, and those that they start meanwhile. Omits `nodes`,
/// the own processes of nodes that have not ended.
pub(crate) async fn end_commands(is_it: impl Fn(&str) -> bool, nodes: &[Pid]) {
    for _ in 0..MOST_SEARCHES {
        if !signal(&is_it, nodes, Signal::SIGKILL) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("no", &self.no).finish_non_exhaustive()
    }
}

/// An attempt that succeeds or fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A command that succeeds if its exit status is 0.
    Exec(Vec<String>),
    /// The address of a page, which must answer with a status from 200 to 399.
    Http(String),
    /// An address, at which a connection must open.
    Tcp(String),
}
