//! What a simulation counts.

use std::ops::AddAssign;

use faultline_core::process::PacketOf;
use faultline_core::{Packet, Process};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Packets by kind, inside clusters and between them, in the order of their first appearance.
    kinds: Vec<(&'static str, [Traffic; 2])>,
}

impl Stats {
    /// Packets by kind (`application`, `image`, or what the protocol calls its messages), inside clusters and between
    /// them.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, [Traffic; 2])> + '_ {
        self.kinds.iter().copied()
    }

    /// Counts a packet that is sent.
    pub(crate) fn sent<P: Process>(&mut self, packet: &PacketOf<P>, bytes: u64, between: bool) {
        let (kind, all) = match packet {
            Packet::Application { .. } => ("application", &mut self.application),
            Packet::Control(message) => (P::control_kind(message), &mut self.control),
            Packet::Image(_) => ("image", &mut self.images),
        };
        *all += bytes;
        if between {
            self.between_clusters += bytes;
        }
        self.kind(kind)[usize::from(between)] += bytes;
    }

    fn kind(&mut self, kind: &'static str) -> &mut [Traffic; 2] {
        // There are few, and the same word is mostly the same place in memory.
        let known = self.kinds.iter().position(|(it, _)| std::ptr::eq(*it, kind) || *it == kind);
        let place = known.unwrap_or_else(|| {
            self.kinds.push((kind, Default::default()));
            self.kinds.len() - 1
        });
        &mut self.kinds[place].1
    }
}
