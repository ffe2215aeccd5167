//! Kernel features for link emulation, and the properties that the node must emulate itself.

use faultline_core::Span;
use faultline_core::fault::LinkProperties;
use serde::{Deserialize, Serialize};

/// Link-emulation features of the running kernel. All of them require packets to be distinguishable by address
/// (`u32`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Rates and classes (`sch_htb`), their queues (`sch_fifo`), and filters that assign packets to classes by address
    /// (`cls_u32`).
    pub htb: bool,
    /// Delay, jitter and loss (`sch_netem`).
    pub netem: bool,
    /// Shaping of incoming packets (`ifb`, `sch_ingress`, `act_mirred`).
    pub ifb: bool,
}

/// The place at which packets are delayed and lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapingSide {
    /// At the receiver. The sender's transport then observes a loss as such, rather than as a full queue on its own
    /// side.
    Receiver,
    /// At the sender, if incoming packets cannot be distinguished or shaped.
    Sender,
    /// In the node's own delay line.
    Node,
}

impl Kernel {
    /// Returns where packets are delayed and lost on this kernel, provided that their addresses identify the senders.
    pub const fn delays_at(self) -> ShapingSide {
        match self {
            Kernel { netem: false, .. } => ShapingSide::Node,
            Kernel { ifb: true, .. } => ShapingSide::Receiver,
            Kernel { ifb: false, .. } => ShapingSide::Sender,
        }
    }

    /// Returns the properties of a link that a node must emulate itself. The kernel must have `htb`.
    pub const fn left_for_node(self, link: LinkProperties) -> LinkProperties {
        if self.netem {
            LinkProperties { latency: Span::ZERO, jitter: Span::ZERO, bandwidth: 0, loss_ppm: 0 }
        } else {
            LinkProperties { bandwidth: 0, ..link }
        }
    }
}
