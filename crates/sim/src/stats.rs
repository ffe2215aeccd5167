//! What a simulation counts.

use std::ops::AddAssign;

use faultline_core::Packet;

/// Packets of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many were sent; one for each receiver.
    pub packets: u64,
    /// Their length on the wire.
    pub bytes: u64,
}

impl AddAssign<u64> for Traffic {
    /// One more packet, of this many bytes.
    fn add_assign(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}

/// What a simulation counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events taken from the queue.
    pub events: u64,
    /// Application messages, first sends and others.
    pub application: Traffic,
    /// Protocol messages.
    pub control: Traffic,
    /// Parts of checkpoints.
    pub images: Traffic,
    /// Of all these, between clusters.
    pub between_clusters: Traffic,
    /// Packets dropped because their sender's or their receiver's life was over.
    pub stale: u64,
    /// Packets that died with their sender.
    pub lost_in_flight: u64,
}

impl Stats {
    /// Counts a packet that is sent.
    pub(crate) fn sent<S, M, H, V>(&mut self, packet: &Packet<S, M, H, V>, bytes: u64, between: bool) {
        let kind = match packet {
            Packet::Application { .. } => &mut self.application,
            Packet::Control(_) => &mut self.control,
            Packet::Image(_) => &mut self.images,
        };
        *kind += bytes;
        if between {
            self.between_clusters += bytes;
        }
    }
}
