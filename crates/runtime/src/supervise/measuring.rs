//! Keeps track of which links are measured, by which process, and with which progress.

use std::collections::BTreeMap;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Membership, ProcessId, Span, Time};
use faultline_trace::manifest::{LinkEntry, LinkMeasured};

use crate::control::Measurement;
use crate::links::Links;

/// Number of echoes if all take equally long.
const SAMPLES: u64 = 51;
/// Largest number of echoes, however much jitter spreads them.
const MOST_SAMPLES: u64 = 1001;
/// Number of standard deviations by which the median of the echoes may deviate before the link counts as wrong.
const CERTAINTY: u64 = 5;
/// Minimum time between two echoes: a program that keeps a core busy for a few milliseconds then delays few of them.
const APART: Span = Span::from_millis(2);

/// The links of a federation during measurement: one pair of processes per ordered pair of clusters.
#[derive(Debug)]
pub(super) struct Measuring {
    links: Vec<Link>,
    /// Links before their requested properties changed.
    past: Vec<LinkEntry>,
}

#[derive(Debug)]
struct Link {
    entry: LinkEntry,
    /// The measuring process and the process at the other end; `None` for a cluster with a single process.
    ends: Option<(ProcessId, ProcessId)>,
}

impl Measuring {
    /// Creates an entry for every ordered pair of clusters with processes.
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

    /// Changes the requested properties of a link, which must then be measured. `since` is set if the application has
    /// begun.
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

    /// Returns the missing measurements by measuring process, except for links that `is_disturbed` says do not have
    /// their requested properties at present.
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

    /// Records a result for a link with this requested latency. A result for an earlier request is ignored.
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

    /// Returns whether all links have been measured.
    pub(super) fn is_done(&self) -> bool {
        self.links.iter().all(|link| link.ends.is_none() || link.entry.measured.is_some())
    }

    /// Returns the current requests with their results.
    pub(super) fn entries(&self) -> Vec<LinkEntry> {
        self.links.iter().map(|link| link.entry.clone()).collect()
    }

    /// Returns all requests with their results, including earlier requests, in order.
    pub(super) fn history(&self) -> Vec<LinkEntry> {
        let mut all: Vec<LinkEntry> = self.past.iter().cloned().chain(self.entries()).collect();
        all.sort_by_key(|entry| entry.since);
        all
    }
}

impl Link {
    fn measurement(&self, to: ProcessId) -> Measurement {
        let (requested, tolerance) = (self.entry.requested, self.entry.tolerance());
        // The median of n draws from a uniform distribution with half-width j deviates by j / sqrt(n).
        let spread = CERTAINTY * requested.jitter.0 / tolerance.0;
        let samples = spread.saturating_mul(spread).clamp(SAMPLES, MOST_SAMPLES) as u32;
        // Far enough apart that no echo has to wait for the previous one.
        let apart = APART.max(requested.jitter * 2);
        Measurement { to, samples, apart, requested: requested.latency, tolerance }
    }
}
