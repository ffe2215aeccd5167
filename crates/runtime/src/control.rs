//! Messages between a node and its supervisor. Each life has its own connection.

use std::io;
use std::net::SocketAddr;

use faultline_core::fault::{Flip, Impairments, LinkProperties};
use faultline_core::{
    Boot, CheckNo, ClusterId, Fact, FactKind, FaultNo, Gauges, Life, Membership, ProcessId, Span, Time,
    Trigger,
};
use faultline_shaper::Kernel;
use faultline_trace::manifest::LinkMeasured;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::clock::Clock;
use crate::links::Links;
use crate::metrics::{ClusterNames, Counts, Delays};
use crate::secret::WrappedKeys;
use crate::storage::StorageOptions;

/// Limit on the length of a control message, in bytes. The longest messages are memberships; a longer message
/// indicates a bug.
const LONGEST: u32 = 64 << 20;

/// The first message of a node after the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) process: ProcessId,
    pub(crate) life: Life,
}

/// The supervisor's response: everything that a node needs before it listens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) clock: Clock,
    pub(crate) boot: Boot,
    /// Seed of the run.
    pub(crate) seed: u64,
    /// Name of the process, and of the node's own directory in the run's directory.
    pub(crate) name: String,
    pub(crate) cluster_names: ClusterNames,
    pub(crate) cluster: ClusterId,
    pub(crate) links: Links,
    /// Traffic-control features in use; `None` without traffic control. With traffic control, the node has
    /// its own network namespace or a shaper.
    pub(crate) kernel: Option<Kernel>,
    /// Cluster of each process, indexed by process.
    pub(crate) clusters: Vec<ClusterId>,
    pub(crate) storage: StorageOptions,
    /// Whether an earlier life has opened the storage, which was not ordered to be removed since then.
    pub(crate) has_storage: bool,
    /// Keys that the process shares with each of the other processes, indexed by process.
    pub(crate) keys: WrappedKeys,
    /// Kinds of facts to report.
    pub(crate) follows: Vec<FactKind>,
    pub(crate) heartbeat_every: Span,
    /// Current properties of the links whose properties differ from [`Setup::links`].
    pub(crate) changed: Vec<(ClusterId, ClusterId, LinkProperties)>,
    pub(crate) cut: Vec<(ClusterId, ClusterId)>,
    /// The partitions within clusters: the fault, and the nodes on one side.
    pub(crate) splits: Vec<(FaultNo, Vec<ProcessId>)>,
    /// Triggers that wait for facts.
    pub(crate) watches: Vec<Trigger>,
    /// What is wrong with the node.
    pub(crate) impaired: Impairments,
    /// In a system, the number of the fault in the list whose command the node runs, if it is not its own.
    pub(crate) command: Option<u16>,
}

/// Address and life of each process, indexed by process; `None` for a process that is not up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Directory {
    pub(crate) entries: Vec<Option<DirectoryEntry>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirectoryEntry {
    pub(crate) life: Life,
    pub(crate) cluster: ClusterId,
    pub(crate) address: SocketAddr,
}

/// A link to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// The process at the other end.
    pub(crate) to: ProcessId,
    /// Requested properties.
    pub(crate) requested: LinkProperties,
    /// Largest deviation from the requested latency for which no further round is necessary, not counting what can be
    /// due to chance.
    pub(crate) tolerance: Span,
}

/// A link to observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObservedLink {
    /// The process at the other end.
    pub(crate) to: ProcessId,
    /// Requested latency.
    pub(crate) requested: Span,
    /// Time from the expected arrival of an echo within which the response arrives if both directions are as requested.
    pub(crate) answered_within: Span,
}

/// An echo over an observed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObservedEcho {
    pub(crate) sent: Time,
    /// The requested latency plus the deviation of the echo from its expected time of arrival. The expected time
    /// includes the jitter and the delays due to bandwidth and losses that the node emulates. For an unanswered echo, the delay so far.
    pub(crate) delay: Span,
    /// Whether the response has arrived. An unanswered echo is reported again if it is answered later.
    pub(crate) is_answered: bool,
}

/// A message from the supervisor to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToNode {
    Setup(Box<Setup>),
    /// Permits connections before any process has started, so that the links can be measured.
    Directory(Directory),
    /// Measures links by echo, one at a time, except that a link without responses does not delay the others. Until the
    /// given time has passed, repeats the measurement of links that are not as requested. Replaces an earlier order of
    /// this kind.
    Measure(Vec<Measurement>, Span),
    /// Observes exactly these links by echo while the application runs. Replaces an earlier order of this kind.
    Observe(Vec<ObservedLink>),
    /// The membership, with the addresses of its processes. The first announcement starts the process.
    Announce(Membership, Directory),
    Watch(Vec<Trigger>),
    /// Starts the command of the node of a system.
    Prepare,
    /// Sets the system up. Answered by [`ToSupervisor::SetUp`].
    SetUp,
    /// Carries out a check of the system.
    Check(CheckNo),
    /// Asks the command of the node to end. What remains of it after this time is killed. The node observes its end.
    Stop(Span),
    Go,
    Link {
        from: ClusterId,
        to: ClusterId,
        properties: Option<LinkProperties>,
    },
    /// Changes the requested properties of a link.
    Relink {
        from: ClusterId,
        to: ClusterId,
        properties: LinkProperties,
    },
    Cut {
        from: ClusterId,
        to: ClusterId,
        cut: bool,
    },
    /// Cuts some nodes of a cluster off from its others, or ends this.
    Split {
        of: FaultNo,
        nodes: Vec<ProcessId>,
        cut: bool,
    },
    /// Impairs the node. Replaces earlier orders.
    Impair(Impairments),
    /// Flips a bit at the process.
    Flip(Flip),
}

/// A message from a node to the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToSupervisor {
    /// The node listens at this address.
    Registered(SocketAddr),
    Heartbeat(Gauges, Counts, Delays),
    /// Measured properties of the link to a process.
    Measured {
        to: ProcessId,
        /// Requested latency.
        requested: Span,
        /// Time at which the last round began.
        began: Time,
        link: LinkMeasured,
    },
    /// Echoes over the link to a process. The requested latency of the link was `requested`.
    Observed {
        to: ProcessId,
        requested: Span,
        echoes: Vec<ObservedEcho>,
    },
    Fact {
        fact: Fact,
        halted: bool,
    },
    Started,
    Held,
    /// The node has set the system up.
    SetUp,
    /// The node of a system cannot become ready, or cannot set the system up. The text is a predicate.
    NotReady(String),
    /// An order concerning links or the node took effect at this time, by the run's clock; `None` if it has no effect, because
    /// nothing emulates the link for the programs of a system. The node answers
    /// each such order with this message.
    InForce(Option<Time>),
}

/// Writes one message.
pub(crate) async fn send<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    stream.write_all(&encoded(message)).await
}

/// Returns a message with its length, as it is sent.
pub(crate) fn encoded<T: Serialize>(message: &T) -> Vec<u8> {
    let mut bytes = postcard::to_extend(message, vec![0; 4]).expect("a control message can be encoded");
    let length = u32::try_from(bytes.len() - 4).expect("a control message is below 4 GiB");
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Reads one message. Not cancel-safe.
pub(crate) async fn receive<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    receive_at_most(stream, LONGEST).await
}

/// Reads one message of at most `longest` bytes. Not cancel-safe.
pub(crate) async fn receive_at_most<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    longest: u32,
) -> io::Result<T> {
    let length = stream.read_u32_le().await?;
    if length > longest {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message is too long: {length} bytes"),
        ));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await?;
    postcard::from_bytes(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
