//! Counts of events and packets in a simulation.

use std::ops::{AddAssign, Sub};

use faultline_core::process::PacketOf;
use faultline_core::{Packet, Process};

/// Number and size of packets of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of packets sent, one per receiver.
    pub packets: u64,
    /// Total number of bytes that links charge for.
    pub bytes: u64,
}

impl AddAssign<u64> for Traffic {
    /// Adds one packet of this many bytes.
    fn add_assign(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}

impl Sub for Traffic {
    type Output = Traffic;
    fn sub(self, part: Traffic) -> Traffic {
        Traffic { packets: self.packets - part.packets, bytes: self.bytes - part.bytes }
    }
}

/// Counts of events and packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of events taken from the queue.
    pub events: u64,
    /// Application messages, including re-sends.
    pub application: Traffic,
    /// Protocol messages.
    pub control: Traffic,
    /// Parts of checkpoints.
    pub images: Traffic,
    /// The packets of all three kinds that were sent between clusters.
    pub between_clusters: Traffic,
    /// Number of packets dropped because their sender's or receiver's life had ended.
    pub stale: u64,
    /// Number of packets in transit that were lost with their sender.
    pub lost_in_flight: u64,
    /// Protocol messages by kind, within and between clusters, in the order of their first appearance.
    kinds: Vec<(&'static str, [Traffic; 2])>,
    /// The application messages that were sent between clusters. The next field counts the images.
    application_between: Traffic,
    images_between: Traffic,
}

impl Stats {
    /// Iterates over traffic by kind (`application`, `image`, or the protocol's name for a message), within
    /// and between clusters.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, [Traffic; 2])> + '_ {
        let packets = [
            ("application", [self.application - self.application_between, self.application_between]),
            ("image", [self.images - self.images_between, self.images_between]),
        ];
        let sent = packets.into_iter().filter(|(_, by_place)| by_place.iter().any(|it| it.packets > 0));
        sent.chain(self.kinds.iter().copied())
    }

    /// Counts a packet that is sent.
    #[inline]
    pub(crate) fn sent<P: Process>(&mut self, packet: &PacketOf<P>, bytes: u64, between: bool) {
        match packet {
            Packet::Application { .. } => self.application += bytes,
            Packet::Control(message) => {
                self.control += bytes;
                self.kind(P::control_kind(message))[usize::from(between)] += bytes;
            }
            Packet::Image(_) => self.images += bytes,
        }
        if between {
            self.between_clusters += bytes;
            match packet {
                Packet::Application { .. } => self.application_between += bytes,
                Packet::Control(_) => {}
                Packet::Image(_) => self.images_between += bytes,
            }
        }
    }

    fn kind(&mut self, kind: &'static str) -> &mut [Traffic; 2] {
        // There are few kinds, and the same name usually has the same address.
        let known = self.kinds.iter().position(|(it, _)| std::ptr::eq(*it, kind) || *it == kind);
        let place = known.unwrap_or_else(|| {
            self.kinds.push((kind, Default::default()));
            self.kinds.len() - 1
        });
        &mut self.kinds[place].1
    }
}
