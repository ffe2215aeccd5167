//! What a process observes about the command that it runs for its node, in a federation whose nodes are a user's own
//! system. Probes, watches and checks are numbered in the manifest, which contains their names.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::fact::FactKind;
use crate::id::{CheckNo, HistoryNo, ProbeNo, WatchNo};
use crate::operation::{Call, Completion};
use crate::time::Span;

/// One observation. The fact's time is that of the observation's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Observation {
    /// The command of this life is ready.
    Ready,
    /// The command wrote a line that matches a watch.
    Logged {
        /// The watch.
        watch: WatchNo,
        /// The line, possibly shortened.
        line: Arc<str>,
        /// The number of the line in the log of this life, from 1; 0 if it is unknown.
        log_line: u32,
        /// Whether the command wrote it to standard error. Lines of both streams have no order if they are close.
        is_error: bool,
        /// What the named groups of the watch matched. A value that is longer than [`MOST_OF_GROUP`] bytes is replaced
        /// with its beginning and a hash of the whole.
        groups: BTreeMap<Arc<str>, Arc<str>>,
    },
    /// Lines were left out that match a watch, or may match: they come too often, so those of the next second, at most,
    /// follow no more, or one was too long.
    LeftOut {
        /// The watch.
        watch: WatchNo,
    },
    /// A sample of a probe ended.
    Probed {
        /// The probe.
        probe: ProbeNo,
        /// The number of the sample among those of this probe in this life, from 0.
        sample: u32,
        /// The time from the sample's start to its end.
        latency: Span,
        /// How the sample ended.
        ending: Ending,
        /// What the command wrote last, if the sample did not succeed; shortened to [`MOST_SAID_BY_PROBE`] bytes.
        said: Arc<str>,
    },
    /// The command ended by itself.
    Exited {
        /// How the command ended.
        ending: Ending,
        /// What the command wrote last; shortened to [`MOST_SAID_BY_PROBE`] bytes.
        said: Arc<str>,
    },
    /// The command was told to end by a fault, and has ended, with everything that it had started.
    Stopped {
        /// How the command ended.
        ending: Ending,
        /// The time from SIGTERM until all its processes had ended.
        latency: Span,
        /// Whether some of its processes did not end in time, and were killed.
        killed: bool,
        /// What the command wrote last; shortened to [`MOST_SAID_BY_PROBE`] bytes.
        said: Arc<str>,
    },
    /// A check ended.
    Checked {
        /// The check.
        check: CheckNo,
        /// The time from the check's start to its end.
        latency: Span,
        /// How the check ended.
        ending: Ending,
        /// What the command wrote last; shortened to [`MOST_SAID_BY_CHECK`] bytes.
        said: Arc<str>,
    },
    /// A client is about to be asked to carry out an operation. Recorded before it is asked.
    Invoked {
        /// The history.
        history: HistoryNo,
        /// The client, from 0.
        client: u16,
        /// The session of the client in this life, from 1. A new one begins when the effect of an operation is unknown.
        session: u32,
        /// The number of the operation: that of its arrival or, from [`FINAL`](crate::operation::FINAL) on, its number
        /// in the final phase.
        operation: u64,
        /// What the client is asked to do.
        call: Call,
    },
    /// An operation ended. Recorded after the client has answered, or after its time.
    Concluded {
        /// The history.
        history: HistoryNo,
        /// The number of the operation that this life invoked.
        operation: u64,
        /// How the operation ended.
        completion: Completion,
    },
}

/// The maximum number of bytes that an observation quotes of what a command of a probe, or of a node, wrote last.
pub const MOST_SAID_BY_PROBE: usize = 200;
/// The maximum number of bytes that an observation quotes of what a check wrote last.
pub const MOST_SAID_BY_CHECK: usize = 500;
/// The maximum number of named groups of a watch.
pub const MOST_GROUPS: usize = 8;
/// The maximum number of bytes that an observation contains of what a named group of a watch matched.
pub const MOST_OF_GROUP: usize = 64;
/// The maximum number of bytes of the name of a group of a watch.
pub const MOST_OF_GROUP_NAME: usize = 40;
/// The exit status of a command that cannot tell whether the system works (`EX_TEMPFAIL` of `sysexits.h`).
pub const CANNOT_TELL: u8 = 75;

/// How a command, a request or an attempt to connect ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// The command exited with this status.
    Exit(u8),
    /// This signal ended the command.
    Signal(u8),
    /// The reply to the HTTP request has this status.
    Http(u16),
    /// The connection was opened.
    Opened,
    /// There was no result in time.
    TimedOut,
    /// The request or the connection failed, for this reason: for example, the connection was refused.
    Failed(Arc<str>),
    /// It could not be carried out at all, for this reason, so it says nothing about the system: for example, the command
    /// does not exist.
    Impossible(Arc<str>),
}

/// A watch, a probe or a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A watch.
    Watch(WatchNo),
    /// A probe.
    Probe(ProbeNo),
    /// A history of clients.
    History(HistoryNo),
}

/// The lines of a watch that an assertion considers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LinesOf {
    /// Those of one life of a process.
    Life,
    /// Those of a process, in all its lives.
    #[default]
    Node,
    /// Those of all processes.
    Run,
}

/// The samples that a limit of latency is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LatencyOf {
    /// Half of them.
    P50,
    /// 99 % of them.
    P99,
    /// All of them.
    Max,
}

impl LatencyOf {
    /// Returns the name of the limit in a federation file.
    pub const fn name(self) -> &'static str {
        match self {
            LatencyOf::P50 => "p50",
            LatencyOf::P99 => "p99",
            LatencyOf::Max => "max",
        }
    }
}

impl Observation {
    /// Returns the watch, the probe or the history whose line, sample or operation this is.
    pub const fn source(&self) -> Option<Source> {
        match *self {
            Observation::Logged { watch, .. } => Some(Source::Watch(watch)),
            Observation::Probed { probe, .. } => Some(Source::Probe(probe)),
            Observation::Invoked { history, .. } | Observation::Concluded { history, .. } => {
                Some(Source::History(history))
            }
            _ => None,
        }
    }

    /// Returns the kind of fact that reports this observation.
    pub const fn kind(&self) -> FactKind {
        match self {
            Observation::Ready => FactKind::Ready,
            Observation::Logged { .. } => FactKind::Logged,
            Observation::LeftOut { .. } => FactKind::LinesLeftOut,
            Observation::Probed { ending, .. } if ending.is_success() => FactKind::ProbeSucceeded,
            Observation::Probed { ending, .. } if ending.is_unknown() => FactKind::ProbeUnknown,
            Observation::Probed { .. } => FactKind::ProbeFailed,
            Observation::Exited { .. } => FactKind::Exited,
            Observation::Stopped { .. } => FactKind::Stopped,
            Observation::Checked { .. } => FactKind::Checked,
            Observation::Invoked { .. } => FactKind::Invoked,
            Observation::Concluded { .. } => FactKind::Concluded,
        }
    }
}

impl Ending {
    /// Returns whether a probe or a check that ends in this way has succeeded.
    pub const fn is_success(&self) -> bool {
        matches!(self, Ending::Exit(0) | Ending::Http(200..=399) | Ending::Opened)
    }

    /// Returns whether a probe or a check that ends in this way does not show whether the system works.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Ending::Exit(CANNOT_TELL) | Ending::Impossible(_))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exit(CANNOT_TELL) => write!(f, "exit status {CANNOT_TELL} (cannot tell)"),
            Ending::Exit(status) => write!(f, "exit status {status}"),
            Ending::Signal(signal) => write!(f, "killed by signal {signal}"),
            Ending::Http(status) => write!(f, "HTTP status {status}"),
            Ending::Opened => f.write_str("connection opened"),
            Ending::TimedOut => f.write_str("no result in time"),
            Ending::Failed(reason) | Ending::Impossible(reason) => f.write_str(reason),
        }
    }
}
