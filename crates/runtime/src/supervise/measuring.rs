//! Which links are measured, by whom, and how far that is.

use std::collections::BTreeMap;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Membership, ProcessId, Span, Time};
use faultline_trace::manifest::{LinkEntry, LinkMeasured};

use crate::control::Measurement;
use crate::links::Links;

/// Echoes where every one takes as long.
const SAMPLES: u64 = 51;
/// Echoes at the most, however much jitter spreads them.
const MOST_SAMPLES: u64 = 1001;
/// How many of its standard deviations the median of the echoes may be off before the link counts as wrong.
const CERTAINTY: u64 = 5;
/// Between two echoes, at least: a program that keeps a core busy for some milliseconds delays few of them.
const APART: Span = Span::from_millis(2);

/// The links of a federation while they are measured: one pair of processes for each ordered pair of clusters.
#[derive(Debug)]
pub(super) struct Measuring {
    links: Vec<Link>,
    /// What was asked for before it was changed.
    past: Vec<LinkEntry>,
}

#[derive(Debug)]
struct Link {
    entry: LinkEntry,
    /// Who measures, and the process at the other end; `None` for a cluster of one process.
    ends: Option<(ProcessId, ProcessId)>,
}

impl Measuring {
    /// Every ordered pair of clusters that has processes.
    pub(super) fn new(membership: &Membership, links: &Links) -> Measuring {
        let mut clusters: Vec<ClusterId> = membership.members.iter().map(|member| member.cluster).collect();
        clusters.sort_unstable();
        clusters.dedup();
        let processes = |cluster| {
            let of = move |(index, member): (usize, &faultline_core::Member)| {
                (member.cluster == cluster).then_some(ProcessId(index as u32))
            };
            membership.members.iter().enumerate().filter_map(of)
        };
        let mut all = Vec::new();
        for &from in &clusters {
            for &to in &clusters {
                let first = processes(from).next().expect("the cluster of a process has one");
                let second = processes(to).find(|&process| process != first);
                let requested = links.between(from, to);
                all.push(Link {
                    entry: LinkEntry { from, to, requested, measured: None, since: None },
                    ends: second.map(|second| (first, second)),
                });
            }
        }
        Measuring { links: all, past: Vec::new() }
    }

    /// Something else is asked of a link, and is to be measured: since when, if its application has begun.
    pub(super) fn ask(
        &mut self,
        from: ClusterId,
        to: ClusterId,
        requested: LinkProperties,
        since: Option<Time>,
    ) {
        for link in self.links.iter_mut().filter(|link| (link.entry.from, link.entry.to) == (from, to)) {
            let entry = LinkEntry { from, to, requested, measured: None, since };
            let before = std::mem::replace(&mut link.entry, entry);
            self.past.extend(Some(before).filter(|_| since.is_some()));
        }
    }

    /// What is not measured yet, by the process that is to do so; but for links of which `is_disturbed` says that they are
    /// not as asked for now.
    pub(super) fn undone(
        &self,
        is_disturbed: impl Fn(ClusterId, ClusterId) -> bool,
    ) -> BTreeMap<ProcessId, Vec<Measurement>> {
        let mut undone: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for link in self.links.iter().filter(|link| link.entry.measured.is_none()) {
            let Some((by, to)) = link.ends else { continue };
            if !is_disturbed(link.entry.from, link.entry.to) {
                undone.entry(by).or_default().push(link.measurement(to));
            }
        }
        undone
    }

    /// Takes a result for a link of which this latency was asked. One for what was asked before is void.
    pub(super) fn measured(
        &mut self,
        by: ProcessId,
        to: ProcessId,
        requested: Span,
        result: LinkMeasured,
        is_disturbed: impl Fn(ClusterId, ClusterId) -> bool,
    ) {
        let entries = self.links.iter_mut().filter(|link| link.ends == Some((by, to)));
        for entry in entries.map(|link| &mut link.entry) {
            if entry.requested.latency == requested && !is_disturbed(entry.from, entry.to) {
                entry.measured = Some(result);
            }
        }
    }

    /// Whether nothing is left to be measured.
    pub(super) fn is_done(&self) -> bool {
        self.links.iter().all(|link| link.ends.is_none() || link.entry.measured.is_some())
    }

    /// What is asked for now and what was found.
    pub(super) fn entries(&self) -> Vec<LinkEntry> {
        self.links.iter().map(|link| link.entry.clone()).collect()
    }

    /// The same with what was asked for before, in the order of being asked.
    pub(super) fn history(&self) -> Vec<LinkEntry> {
        let mut all: Vec<LinkEntry> = self.past.iter().cloned().chain(self.entries()).collect();
        all.sort_by_key(|entry| entry.since);
        all
    }
}

impl Link {
    fn measurement(&self, to: ProcessId) -> Measurement {
        let (requested, tolerance) = (self.entry.requested, self.entry.tolerance());
        // The median of n draws from a uniform distribution of half-width j deviates by j / sqrt(n).
        let spread = CERTAINTY * requested.jitter.0 / tolerance.0;
        let samples = spread.saturating_mul(spread).clamp(SAMPLES, MOST_SAMPLES) as u32;
        // Far enough apart that none has to wait for the one before.
        let apart = APART.max(requested.jitter * 2);
        Measurement { to, samples, apart, requested: requested.latency, tolerance }
    }
}
