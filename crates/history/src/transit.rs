//! The time that links need for what may still be in transit.

use std::collections::BTreeMap;

use faultline_core::fault::{Change, LinkProperties};
use faultline_core::{Fact, Fault, ProcessId, Span};

use crate::{History, Message, Point};

impl History<'_> {
    /// Returns the longest delay of a packet on any link, without the time for the packets before it.
    pub fn slowest_delay(&self) -> Span {
        self.links().map(|it| it.latency + it.jitter).max().unwrap_or_default()
    }

    /// Returns the time that the slowest link takes for this many bytes; zero if no link has a limited bandwidth.
    pub fn transfer_time(&self, bytes: u128) -> Span {
        let Some(slowest) = self.links().map(|it| it.bandwidth).filter(|it| *it > 0).min() else {
            return Span::ZERO;
        };
        let nanos = bytes * 1_000_000_000 / u128::from(slowest);
        Span(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the size in bytes of all messages that were sent, but not delivered in a state that survives.
    pub fn undelivered_bytes(&self) -> u128 {
        let is_delivered = |it: &Message| it.delivered().iter().any(|&at| self.survives(at));
        let sent = self.messages.iter().filter(|it| !is_delivered(it)).filter_map(|it| it.sent().first());
        let bytes = |at: Point| match self.fact(at) {
            Fact::Sent { bytes, .. } => u128::from(*bytes),
            _ => 0,
        };
        sent.map(bytes).sum()
    }

    /// Returns an upper bound on the size in bytes of everything that may be in transit at the end of the run, if it does
    /// not grow without limit: the messages that were not delivered, and the replicas of one part of a checkpoint of each
    /// process.
    pub fn bytes_in_transit(&self) -> u128 {
        let mut largest: BTreeMap<ProcessId, u64> = BTreeMap::new();
        for it in self.witnessed.iter().filter(|it| it.part.is_some()) {
            let largest = largest.entry(it.owner).or_default();
            *largest = it.bytes.max(*largest);
        }
        let replicas = self.context.copies.map_or(0, |it| it.replicas);
        let parts: u128 = largest.into_values().map(u128::from).sum();
        self.undelivered_bytes() + parts * u128::from(replicas)
    }

    /// Returns the properties that the links have had.
    fn links(&self) -> impl Iterator<Item = LinkProperties> {
        let requested = self.context.links.iter().map(|it| it.requested);
        let injected = self.supervision.injected.iter().filter_map(|(_, fault, ..)| match fault {
            Fault::Link { properties, .. } => *properties,
            _ => None,
        });
        let changed = self.supervision.changes.iter().filter_map(|(_, change)| match change {
            Change::Link { properties, .. } => Some(*properties),
            _ => None,
        });
        requested.chain(injected).chain(changed)
    }
}
