//! Tracks the measurements of links: which process measures each link, the results, and the observed delays.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Membership, ProcessId, Span, Time};
use faultline_trace::manifest::{LinkEntry, LinkMeasured};

use crate::control::Measurement;
use crate::links::Links;

/// Number of echoes over a link without jitter.
const SAMPLES: u64 = 51;
/// Largest number of echoes over a link, however large its jitter is.
const MOST_SAMPLES: u64 = 1001;
/// Number of standard deviations of the median that must be within the tolerance.
const CERTAINTY: u64 = 5;
/// Minimum time between two echoes, so that a program that keeps a core busy for a few milliseconds delays
/// only a few of them.
const APART: Span = Span::from_millis(2);

/// The measured links of a federation: one pair of processes per ordered pair of clusters.
#[derive(Debug)]
pub(super) struct Measuring {
    links: Vec<Link>,
    /// Entries of links whose requested properties have since changed.
    past: Vec<LinkEntry>,
}

/// Time after a fault during which echoes may still queue behind packets that the fault held back.
const SETTLES: Span = Span::from_secs(1);

#[derive(Debug)]
struct Link {
    entry: LinkEntry,
    /// Only echoes sent at or after this time count. A fault may have delayed earlier ones.
    settled: Time,
    /// Sum of the delays of all counted echoes.
    sum: Span,
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
                let first = processes(from).next().expect("the cluster contains a process");
                let second = processes(to).find(|&process| process != first);
                let requested = links.between(from, to);
                all.push(Link {
                    entry: LinkEntry { from, to, requested, measured: None, observed: None, since: None },
                    settled: Time::ZERO,
                    sum: Span::ZERO,
                    ends: second.map(|second| (first, second)),
                });
            }
        }
        Measuring { links: all, past: Vec::new() }
    }

    /// Changes the requested properties of a link, which must then be measured again. `since` is the time of
    /// the change if the application has begun.
    pub(super) fn ask(
        &mut self,
        from: ClusterId,
        to: ClusterId,
        requested: LinkProperties,
        since: Option<Time>,
    ) {
        for link in self.links.iter_mut().filter(|link| (link.entry.from, link.entry.to) == (from, to)) {
            let entry = LinkEntry { from, to, requested, measured: None, observed: None, since };
            let before = std::mem::replace(&mut link.entry, entry);
            (link.settled, link.sum) = (since.map_or(Time::ZERO, |it| it + SETTLES), Span::ZERO);
            self.past.extend(Some(before).filter(|_| since.is_some()));
        }
    }

    /// Returns the missing measurements, grouped by the process that performs them. Omits links for which
    /// `is_disturbed` returns `true`.
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

    /// Records a result for a link with this requested latency. A result for an earlier request, or for a link for
    /// which `is_disturbed` returns `true`, is ignored.
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

    /// Returns the links that a process observes, with the requested latency.
    pub(super) fn observed_by(&self, process: ProcessId) -> Vec<(ProcessId, Span)> {
        let of_process = |link: &Link| {
            let (by, to) = link.ends?;
            (by == process).then_some((to, link.entry.requested.latency))
        };
        self.links.iter().filter_map(of_process).collect()
    }

    /// Returns the processes that observe links.
    pub(super) fn observers(&self) -> BTreeSet<ProcessId> {
        self.links.iter().filter_map(|link| Some(link.ends?.0)).collect()
    }

    /// Records that a fault on this link begins or ends now.
    pub(super) fn disturb_link(&mut self, from: ClusterId, to: ClusterId, now: Time) {
        self.disturb(|link| (link.entry.from, link.entry.to) == (from, to), now);
    }

    /// Records that a process starts, joins, pauses, resumes or is killed now, which may delay echoes over all links
    /// measured from or to it.
    pub(super) fn disturb_process(&mut self, process: ProcessId, now: Time) {
        self.disturb(|link| link.ends.is_some_and(|(by, to)| by == process || to == process), now);
    }

    fn disturb(&mut self, is_concerned: impl Fn(&Link) -> bool, now: Time) {
        self.links.iter_mut().filter(|link| is_concerned(link)).for_each(|link| link.settled = now + SETTLES);
    }

    /// Adds delays of echoes that were sent at or after `since` over a link with this requested latency.
    pub(super) fn observed(
        &mut self,
        (by, to): (ProcessId, ProcessId),
        requested: Span,
        since: Time,
        delays: &[Span],
        is_disturbed: impl Fn(ClusterId, ClusterId) -> bool,
    ) {
        for link in self.links.iter_mut().filter(|link| link.ends == Some((by, to))) {
            let entry = &mut link.entry;
            let is_asked = entry.requested.latency == requested && since >= link.settled;
            if !is_asked || is_disturbed(entry.from, entry.to) {
                continue;
            }
            let outside = delays.iter().filter(|it| entry.is_outside(**it)).count();
            let observed = entry.observed.get_or_insert_default();
            observed.outside += outside as u32;
            observed.echoes += delays.len() as u32;
            link.sum = delays.iter().fold(link.sum, |sum, &it| sum + it);
            observed.mean = Span(link.sum.0 / u64::from(observed.echoes.max(1)));
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
        // The median of n samples of a uniform distribution with half-width j has a standard deviation of j /
        // sqrt(n).
        let spread = CERTAINTY * requested.jitter.0 / tolerance.0;
        let samples = spread.saturating_mul(spread).clamp(SAMPLES, MOST_SAMPLES) as u32;
        // Far enough apart that no echo waits for the previous one.
        let apart = APART.max(requested.jitter * 2);
        Measurement { to, samples, apart, requested: requested.latency, tolerance }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Cluster, Life, Member, MembershipVersion, NodeId, Role};
    use faultline_trace::manifest::LinkObserved;

    const ENDS: (ProcessId, ProcessId) = (ProcessId(0), ProcessId(1));
    const ASKED: Span = Span::from_millis(8);

    /// Returns the measurements of two clusters with one process each.
    fn measuring() -> Measuring {
        let member = |process: u32| Member {
            cluster: ClusterId(process as u16),
            role: Role::RANK,
            node: NodeId(process),
            life: Life(0),
            up: false,
            started: false,
            gone: false,
            idle_lives: 0,
        };
        let cluster = |process| Cluster::new([ProcessId(process)].into());
        let membership = Membership {
            version: MembershipVersion(0),
            members: (0..2).map(member).collect(),
            clusters: (0..2).map(cluster).collect(),
        };
        let mut measuring = Measuring::new(&membership, &Links::default());
        let requested = LinkProperties { latency: ASKED, ..LinkProperties::default() };
        measuring.ask(ClusterId(0), ClusterId(1), requested, None);
        measuring
    }

    fn observed(measuring: &Measuring) -> Option<LinkObserved> {
        let entries = measuring.entries();
        entries.iter().find(|it| (it.from, it.to) == (ClusterId(0), ClusterId(1))).unwrap().observed
    }

    #[test]
    fn echoes_outside_the_tolerance_are_counted() {
        let mut measuring = measuring();
        assert_eq!(measuring.observed_by(ProcessId(0)), [(ProcessId(1), ASKED)]);
        let delays = [ASKED, Span::from_micros(9_000), Span::from_micros(9_001), Span::from_millis(3)];
        measuring.observed(ENDS, ASKED, Time::ZERO, &delays, |_, _| false);
        let LinkObserved { echoes, outside, mean } = observed(&measuring).unwrap();
        assert_eq!((echoes, outside, mean), (4, 2, Span(7_250_250)));
        measuring.observed(ENDS, Span::from_millis(7), Time::ZERO, &delays, |_, _| false);
        assert_eq!(observed(&measuring).unwrap().echoes, 4, "echoes of an earlier request do not count");
    }

    #[test]
    fn echoes_that_a_fault_may_have_delayed_do_not_count() {
        let mut measuring = measuring();
        let at = Time::ZERO + Span::from_secs(5);
        let late = [Span::from_secs(1)];
        measuring.observed(ENDS, ASKED, at, &late, |_, _| true);
        for disturb in [
            |it: &mut Measuring, at| it.disturb_link(ClusterId(0), ClusterId(1), at),
            |it: &mut Measuring, at| it.disturb_process(ProcessId(0), at),
            |it: &mut Measuring, at| it.disturb_process(ProcessId(1), at),
        ] {
            disturb(&mut measuring, at);
            measuring.observed(ENDS, ASKED, at, &late, |_, _| false);
            assert_eq!(observed(&measuring), None);
        }
        measuring.observed(ENDS, ASKED, at + SETTLES, &late, |_, _| false);
        assert_eq!(observed(&measuring).unwrap().outside, 1);
    }
}
