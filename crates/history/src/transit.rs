//! The time that links and storage need for data that may still be in transit at the end of a run.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::{Change, LinkProperties, StorageFault};
use faultline_core::{Fact, Fault, ImageName, ProcessId, Span, Time};

use crate::history::History;
use crate::messages::Message;

impl History<'_> {
    /// Returns the time that the slowest link takes for this many bytes; zero if no link has a limited bandwidth.
    pub fn transfer_time(&self, bytes: u128) -> Span {
        let bandwidths = self.links().map(|it| it.bandwidth).filter(|it| *it > 0);
        let Some(slowest) = bandwidths.min() else { return Span::ZERO };
        let nanos = bytes.saturating_mul(1_000_000_000) / u128::from(slowest);
        Span(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns an upper bound on the time that the slowest link needs to carry all data in transit: the messages whose
    /// delivery does not survive, and the parts of checkpoints saved since the first of these messages was sent or since
    /// `calm`, whichever is earlier.
    pub fn transit_time(&self, calm: Time) -> Span {
        let is_delivered = |it: &Message| it.delivered().iter().any(|&at| self.survives(at));
        let (mut since, mut bytes) = (calm, 0u128);
        for sent in self.messages.iter().filter(|it| !is_delivered(it)).filter_map(|it| it.sent().first()) {
            since = since.min(self.time(sent));
            if let Fact::Sent { bytes: length, .. } = self.fact(sent) {
                bytes += u128::from(*length);
            }
        }
        let parts = self.witnessed.iter().filter(|it| it.part.is_some() && self.time(it.at) >= since);
        bytes += parts.map(|it| u128::from(it.bytes)).sum::<u128>();
        self.transfer_time(bytes)
    }

    /// Returns the longest time that a message may take regardless of its length: 100 times the delay of the slowest
    /// link, because lost packets are sent again.
    pub fn longest_delay(&self) -> Span {
        self.links().map(|it| it.latency + it.jitter).max().unwrap_or_default() * 100
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

    /// Returns the longest time that a storage took for a write; `None` if a storage has yet to complete one at the end
    /// of the run. Writes that may have failed because a storage was full do not count.
    pub fn slowest_write(&self) -> Option<Span> {
        let impaired = self.supervision.injected.iter().filter_map(|it| it.1.impairs_storage());
        let full: BTreeSet<ProcessId> =
            impaired.filter(|it| it.1 == StorageFault::Full).map(|it| it.0).collect();
        let mut slowest = Span::ZERO;
        for (&(process, life), stream) in &self.trace.streams {
            let mut begun: BTreeMap<ImageName, Time> = BTreeMap::new();
            for (at, fact) in stream {
                match fact {
                    Fact::Saved(saved) => drop(begun.insert(saved.0, *at)),
                    Fact::Durable(name) => {
                        // Storage operations are performed in order.
                        let Some(since) = begun.remove(name) else { continue };
                        begun.retain(|_, it| *it > since);
                        slowest = slowest.max(at.since(since));
                    }
                    Fact::Removed(name) => drop(begun.remove(name)),
                    _ => {}
                }
            }
            let is_newest = self.supervision.newest_life(process) == Some(life);
            if is_newest && self.is_present(process) && !begun.is_empty() && !full.contains(&process) {
                return None;
            }
        }
        Some(slowest)
    }
}
