//! What a kernel can be told to do to packets, and what is left for the node to emulate.

use faultline_core::Span;
use faultline_core::fault::LinkProperties;
use serde::{Deserialize, Serialize};

/// What the running kernel can do for links. All of it needs packets to be told apart by address (`u32`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Rates and classes (`sch_htb`).
    pub htb: bool,
    /// Delay, jitter and loss (`sch_netem`).
    pub netem: bool,
    /// Shaping what arrives (`ifb`, `sch_ingress`, `act_mirred`).
    pub ifb: bool,
}

/// Where packets are delayed and lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where they arrive: the sender's transport takes a loss for a loss, and not for a full queue of its own.
    Receiver,
    /// Where they leave: what arrives cannot be told apart, or not be shaped.
    Sender,
    /// In the node's own delay line.
    Node,
}

impl Kernel {
    /// Where packets are delayed and lost under this kernel, when addresses tell senders apart.
    pub const fn delays_at(self) -> Place {
        match self {
            Kernel { netem: false, .. } => Place::Node,
            Kernel { ifb: true, .. } => Place::Receiver,
            Kernel { ifb: false, .. } => Place::Sender,
        }
    }

    /// What of a link a node has to emulate itself.
    pub const fn left_for_node(self, link: LinkProperties) -> LinkProperties {
        if self.netem {
            LinkProperties { latency: Span::ZERO, jitter: Span::ZERO, bandwidth: 0, loss_ppm: 0 }
        } else {
            LinkProperties { bandwidth: 0, ..link }
        }
    }
}
