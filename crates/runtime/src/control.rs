//! What a node and its supervisor say to each other, over one connection per life.

use std::io;
use std::net::SocketAddr;

use faultline_core::fault::{LinkProperties, StorageFault};
use faultline_core::{Boot, ClusterId, Fact, FactKind, Gauges, Life, Membership, ProcessId, Span, Trigger};
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

/// A control message that claims to be longer is a defect: the largest is a membership.
const LONGEST: u32 = 64 << 20;

/// The first words of a node, once the handshake is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) process: ProcessId,
    pub(crate) life: Life,
}

/// The supervisor's answer: everything that a node needs before it listens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) clock: Clock,
    pub(crate) boot: Boot,
    /// Of the run.
    pub(crate) seed: u64,
    /// What the process is called; own directory of the node, below the run's.
    pub(crate) name: String,
    pub(crate) cluster_names: ClusterNames,
    pub(crate) cluster: ClusterId,
    pub(crate) links: Links,
    /// What traffic control does for links, if anything; the node is in a network namespace of its own then, or has a
    /// shaper.
    pub(crate) kernel: Option<Kernel>,
    /// Where every process belongs, indexed by process.
    pub(crate) clusters: Vec<ClusterId>,
    pub(crate) storage: StorageOptions,
    /// Shared with each of the others, indexed by process.
    pub(crate) keys: WrappedKeys,
    /// Kinds of fact that are to be reported.
    pub(crate) follows: Vec<FactKind>,
    pub(crate) heartbeat_every: Span,
    /// What the links are like now, where that is not what [`Setup::links`] says.
    pub(crate) changed: Vec<(ClusterId, ClusterId, LinkProperties)>,
    pub(crate) cut: Vec<(ClusterId, ClusterId)>,
    /// Armed triggers.
    pub(crate) watches: Vec<Trigger>,
    pub(crate) storage_fault: Option<StorageFault>,
}

/// Where each process listens and in which life, indexed by process; `None` for one that is not up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Directory {
    pub(crate) entries: Vec<Option<Entry>>,
}

/// One line of a [`Directory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) life: Life,
    pub(crate) cluster: ClusterId,
    pub(crate) address: SocketAddr,
}

/// A link to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// The process at the other end.
    pub(crate) to: ProcessId,
    /// Echoes in one round.
    pub(crate) samples: u32,
    /// Time between two.
    pub(crate) apart: Span,
    /// What the median is to be like.
    pub(crate) requested: Span,
    /// How far off it may be before another round is measured.
    pub(crate) tolerance: Span,
}

/// From the supervisor to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToNode {
    Setup(Box<Setup>),
    /// Connections may be made, though nothing has started: the links are to be measured.
    Directory(Directory),
    /// Measures links by echo, one after the other, and for so long again those that are not as asked for. Voids an
    /// earlier order of this kind.
    Measure(Vec<Measurement>, Span),
    /// The membership, and where everyone in it listens. The first one starts the process.
    Announce(Membership, Directory),
    Watch(Vec<Trigger>),
    Go,
    Link {
        from: ClusterId,
        to: ClusterId,
        properties: Option<LinkProperties>,
    },
    /// From now on this is what the federation asks of a link.
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
    Storage(Option<StorageFault>),
}

/// From a node to the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToSupervisor {
    /// It listens here.
    Registered(SocketAddr),
    Heartbeat(Gauges, Counts, Delays),
    /// The link to a process, as measured.
    Measured {
        to: ProcessId,
        /// The latency that was asked for.
        requested: Span,
        link: LinkMeasured,
    },
    Stated {
        fact: Fact,
        halted: bool,
    },
    Started,
    Held,
    /// What was ordered of links or storage is in force; one for each such order.
    InForce,
}

/// Writes one message.
pub(crate) async fn send<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let mut bytes =
        postcard::to_extend(message, vec![0; 4]).expect("a control message has a serialised form");
    let length = u32::try_from(bytes.len() - 4).expect("a control message is below 4 GiB");
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&bytes).await
}

/// Reads one message. Not to be cancelled and called again.
pub(crate) async fn receive<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let length = stream.read_u32_le().await?;
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await?;
    postcard::from_bytes(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
