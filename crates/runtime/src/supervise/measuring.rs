//! Tracks the measurements of links: which process measures each link, the results, and the observed delays.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Membership, ProcessId, Span, Time};
use faultline_trace::manifest::{LinkEntry, LinkMeasured, LinkObserved};

use crate::control::{Measurement, ObservedEcho, ObservedLink};
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
    /// Ascending by sending and receiving cluster.
    links: Vec<Link>,
    /// Entries of links whose requested properties have since changed.
    past: Vec<LinkEntry>,
    /// Processes that are not running: they have not started, have ended or are paused. They answer no echo.
    stopped: BTreeSet<ProcessId>,
}

/// Time after a fault during which echoes may still queue behind packets that the fault held back.
const SETTLES: Span = Span::from_secs(1);

#[derive(Debug)]
struct Link {
    entry: LinkEntry,
    /// Only echoes sent at or after this time count. A fault may have delayed earlier ones.
    settled: Time,
    /// Sum of the delays of all answered echoes that count.
    sum: Span,
    /// Echoes that count and have not been answered: the time at which each was sent, and the delay when it was
    /// reported. They are late, or their responses are.
    unanswered: BTreeMap<Time, Span>,
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
        let stopped = (0..membership.members.len() as u32).map(ProcessId).collect();
        for &from in &clusters {
            for &to in &clusters {
                let first = processes(from).next().expect("the cluster contains a process");
                let second = processes(to).find(|&process| process != first);
                let requested = links.between(from, to);
                all.push(Link {
                    entry: LinkEntry { from, to, requested, measured: None, observed: None, since: None },
                    settled: Time::ZERO,
                    sum: Span::ZERO,
                    unanswered: BTreeMap::new(),
                    ends: second.map(|second| (first, second)),
                });
            }
        }
        Measuring { links: all, past: Vec::new(), stopped }
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
            let before = link.entry();
            (link.entry, link.sum) = (entry, Span::ZERO);
            link.unanswered.clear();
            link.settled = since.map_or(Time::ZERO, |it| it + SETTLES);
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

    /// Returns the links that a process observes.
    pub(super) fn observed_by(&self, process: ProcessId) -> Vec<ObservedLink> {
        let of_process = |link: &Link| {
            let (_, to) = link.ends.filter(|(by, _)| *by == process)?;
            let (there, back) = (&link.entry, &self.reverse(link).entry);
            let requested = there.requested.latency;
            let answered_within =
                there.tolerance_observed() + back.requested.latency + back.tolerance_observed();
            Some(ObservedLink { to, requested, answered_within })
        };
        self.links.iter().filter_map(of_process).collect()
    }

    /// Returns the link in the opposite direction.
    fn reverse(&self, link: &Link) -> &Link {
        let pair = (link.entry.to, link.entry.from);
        let place = self.links.binary_search_by_key(&pair, |it| (it.entry.from, it.entry.to));
        &self.links[place.expect("all pairs of clusters have links")]
    }

    /// Returns the processes that observe links.
    pub(super) fn observers(&self) -> BTreeSet<ProcessId> {
        self.links.iter().filter_map(|link| Some(link.ends?.0)).collect()
    }

    /// Records that a fault on this link begins or ends now.
    pub(super) fn disturb_link(&mut self, from: ClusterId, to: ClusterId, now: Time) {
        self.disturb(|link| (link.entry.from, link.entry.to) == (from, to), now);
    }

    /// Records that a process is killed, ends or is paused now. Until [it runs](Measuring::process_runs), no report
    /// about a link measured from or to it counts.
    pub(super) fn process_stops(&mut self, process: ProcessId) {
        self.stopped.insert(process);
    }

    /// Records that a process starts, joins or resumes now, so that it answers echoes again.
    pub(super) fn process_runs(&mut self, process: ProcessId, now: Time) {
        self.stopped.remove(&process);
        self.disturb(|link| link.ends.is_some_and(|(by, to)| by == process || to == process), now);
    }

    fn disturb(&mut self, is_concerned: impl Fn(&Link) -> bool, now: Time) {
        self.links.iter_mut().filter(|link| is_concerned(link)).for_each(|link| link.settled = now + SETTLES);
    }

    /// Counts echoes over a link with this requested latency. Ignores echoes that a fault may have delayed. A fault in
    /// the opposite direction delays responses, so it affects only unanswered echoes. Returns the link's results;
    /// `None` if there is no such link.
    pub(super) fn observed(
        &mut self,
        (by, to): (ProcessId, ProcessId),
        requested: Span,
        echoes: &[ObservedEcho],
        is_disturbed: impl Fn(ClusterId, ClusterId) -> bool,
    ) -> Option<LinkEntry> {
        let is_it = |link: &Link| link.ends == Some((by, to)) && link.entry.requested.latency == requested;
        let index = self.links.iter().position(is_it)?;
        let link = &self.links[index];
        let is_settled = |link: &Link, echo: &ObservedEcho| {
            echo.sent >= link.settled && !is_disturbed(link.entry.from, link.entry.to)
        };
        let counts = |echo: &ObservedEcho| {
            let are_running = ![by, to].iter().any(|it| self.stopped.contains(it));
            let is_back_settled = echo.is_answered || is_settled(self.reverse(link), echo);
            are_running && is_settled(link, echo) && is_back_settled
        };
        let counted: Vec<bool> = echoes.iter().map(counts).collect();
        let link = &mut self.links[index];
        for (echo, counts) in echoes.iter().zip(counted) {
            // If a fault began after the echo was overdue, the response shows only whether the echo had been in time.
            if echo.is_answered && (counts || !link.entry.is_outside(echo.delay)) {
                link.unanswered.remove(&echo.sent);
            }
            match (counts, echo.is_answered) {
                (true, true) => count(&mut link.entry, &mut link.sum, echo.delay),
                (true, false) => drop(link.unanswered.insert(echo.sent, echo.delay)),
                (false, _) => {}
            }
        }
        Some(link.entry())
    }

    /// Restores the results that [`Measuring::observed`] returned for a link. Echoes that were unanswered then remain
    /// so: the process that sent them has ended.
    pub(super) fn recall(&mut self, from: ClusterId, to: ClusterId, observed: LinkObserved) {
        for link in self.links.iter_mut().filter(|link| (link.entry.from, link.entry.to) == (from, to)) {
            link.entry.observed = Some(observed);
            link.sum = observed.mean * observed.echoes.into();
            link.unanswered.clear();
        }
    }

    /// Returns whether all links have been measured.
    pub(super) fn is_done(&self) -> bool {
        self.links.iter().all(|link| link.ends.is_none() || link.entry.measured.is_some())
    }

    /// Returns the current requests with their results.
    pub(super) fn entries(&self) -> Vec<LinkEntry> {
        self.links.iter().map(Link::entry).collect()
    }

    /// Returns all requests with their results, including earlier requests, in order.
    pub(super) fn history(&self) -> Vec<LinkEntry> {
        let mut all: Vec<LinkEntry> = self.past.iter().cloned().chain(self.entries()).collect();
        all.sort_by_key(|entry| entry.since);
        all
    }
}

impl Link {
    /// Returns the request with its results so far, including echoes that are still unanswered.
    fn entry(&self) -> LinkEntry {
        let (mut entry, mut sum) = (self.entry.clone(), self.sum);
        self.unanswered.values().for_each(|delay| count(&mut entry, &mut sum, *delay));
        entry
    }

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

/// Adds an echo to the results of a link. `sum` is the sum of all delays.
fn count(entry: &mut LinkEntry, sum: &mut Span, delay: Span) {
    let is_outside = entry.is_outside(delay);
    let observed = entry.observed.get_or_insert_default();
    observed.outside += u32::from(is_outside);
    observed.echoes += 1;
    *sum = *sum + delay;
    observed.mean = Span(sum.0 / u64::from(observed.echoes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Cluster, Life, Member, MembershipVersion, NodeId, Role};

    const ENDS: (ProcessId, ProcessId) = (ProcessId(0), ProcessId(1));
    const ASKED: Span = Span::from_millis(8);
    /// A time at which the effects of the start have passed.
    const SETTLED: Time = Time(SETTLES.0);

    /// Returns the measurements of two clusters with one running process each.
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
        measuring.process_runs(ENDS.0, Time::ZERO);
        measuring.process_runs(ENDS.1, Time::ZERO);
        measuring
    }

    fn observed(measuring: &Measuring) -> Option<LinkObserved> {
        let entries = measuring.entries();
        entries.iter().find(|it| (it.from, it.to) == (ClusterId(0), ClusterId(1))).unwrap().observed
    }

    /// Reports echoes that were sent at `sent` over the link with these delays.
    fn report(measuring: &mut Measuring, sent: Time, delays: &[Span], is_answered: bool, is_disturbed: bool) {
        let echo = |&delay| ObservedEcho { sent, delay, is_answered };
        let echoes: Vec<_> = delays.iter().map(echo).collect();
        measuring.observed(ENDS, ASKED, &echoes, |_, _| is_disturbed);
    }

    #[test]
    fn echoes_outside_the_tolerance_are_counted() {
        let mut measuring = measuring();
        let answered_within = Span::from_micros(1_000 + 1_000);
        let link = ObservedLink { to: ProcessId(1), requested: ASKED, answered_within };
        assert_eq!(measuring.observed_by(ProcessId(0)), [link]);
        let delays = [ASKED, Span::from_micros(9_000), Span::from_micros(9_001), Span::from_millis(3)];
        report(&mut measuring, SETTLED, &delays, true, false);
        let LinkObserved { echoes, outside, mean } = observed(&measuring).unwrap();
        assert_eq!((echoes, outside, mean), (4, 2, Span(7_250_250)));
        let echo = ObservedEcho { sent: SETTLED, delay: ASKED, is_answered: true };
        measuring.observed(ENDS, Span::from_millis(7), &[echo], |_, _| false);
        assert_eq!(observed(&measuring).unwrap().echoes, 4, "echoes of an earlier request do not count");
    }

    #[test]
    fn unanswered_echoes_count_until_they_are_answered() {
        let mut measuring = measuring();
        let late = Span::from_secs(2);
        let sent = |index| SETTLED + Span::from_millis(200) * index;
        for index in 0..300 {
            report(&mut measuring, sent(index), &[late], false, false);
        }
        let all = LinkObserved { echoes: 300, outside: 300, mean: late };
        assert_eq!(observed(&measuring), Some(all));
        for index in 0..299 {
            report(&mut measuring, sent(index), &[late * 2], true, false);
        }
        let mean = Span((2 * 299 + 1) * late.0 / 300);
        assert_eq!(observed(&measuring), Some(LinkObserved { mean, ..all }));
        let requested = LinkProperties { latency: ASKED * 2, ..LinkProperties::default() };
        measuring.ask(ClusterId(0), ClusterId(1), requested, Some(sent(300)));
        assert_eq!(observed(&measuring), None);
        assert!(measuring.history().iter().any(|it| it.observed == Some(LinkObserved { mean, ..all })));
    }

    /// A resumed supervisor obtains the results from the journal.
    #[test]
    fn recalled_echoes_count_with_those_that_follow() {
        let late = Span::from_secs(2);
        let mut before = measuring();
        report(&mut before, SETTLED, &[ASKED, late], true, false);
        let echo = ObservedEcho { sent: SETTLED, delay: late, is_answered: false };
        let entry = before.observed(ENDS, ASKED, &[echo], |_, _| false).unwrap();
        let mut resumed = measuring();
        resumed.recall(entry.from, entry.to, entry.observed.unwrap());
        assert_eq!(observed(&resumed), observed(&before));
        report(&mut resumed, SETTLED, &[ASKED], true, false);
        let LinkObserved { echoes, outside, mean } = observed(&resumed).unwrap();
        assert_eq!((echoes, outside, mean), (4, 2, Span::from_millis(1_004)));
    }

    #[test]
    fn echoes_that_a_fault_may_have_delayed_do_not_count() {
        let mut measuring = measuring();
        let at = Time::ZERO + Span::from_secs(5);
        let late = [Span::from_secs(1)];
        for is_answered in [true, false] {
            report(&mut measuring, at, &late, is_answered, true);
        }
        for disturb in [
            |it: &mut Measuring, at| it.disturb_link(ClusterId(0), ClusterId(1), at),
            |it: &mut Measuring, at| it.process_runs(ProcessId(0), at),
            |it: &mut Measuring, at| it.process_runs(ProcessId(1), at),
        ] {
            disturb(&mut measuring, at);
            for is_answered in [true, false] {
                report(&mut measuring, at, &late, is_answered, false);
            }
            assert_eq!(observed(&measuring), None);
        }
        report(&mut measuring, at + SETTLES, &late, true, false);
        assert_eq!(observed(&measuring).unwrap().outside, 1);
    }

    #[test]
    fn a_fault_does_not_excuse_an_echo_that_was_already_overdue() {
        for (delay, is_late) in [(ASKED, false), (Span::from_secs(60), true)] {
            let mut measuring = measuring();
            report(&mut measuring, SETTLED, &[Span::from_secs(2)], false, false);
            report(&mut measuring, SETTLED, &[delay], true, true);
            assert_eq!(observed(&measuring).is_some_and(|it| it.outside == 1), is_late);
        }
    }

    #[test]
    fn no_echo_counts_while_a_process_at_either_end_does_not_run() {
        for process in [ProcessId(0), ProcessId(1)] {
            let mut measuring = measuring();
            measuring.process_stops(process);
            for (seconds, is_answered) in [(5, true), (50, false), (500, false)] {
                let sent = Time::ZERO + Span::from_secs(seconds);
                report(&mut measuring, sent, &[Span::from_secs(2)], is_answered, false);
            }
            assert_eq!(observed(&measuring), None);
        }
    }

    #[test]
    fn a_fault_in_the_opposite_direction_excuses_only_a_missing_response() {
        let (there, back) = (ClusterId(0), ClusterId(1));
        let late = Span::from_secs(2);
        for (is_answered, counts) in [(true, true), (false, false)] {
            let echo = ObservedEcho { sent: SETTLED, delay: late, is_answered };
            let mut cut = measuring();
            cut.observed(ENDS, ASKED, &[echo], |from, to| (from, to) == (back, there));
            assert_eq!(observed(&cut).is_some(), counts);
            let mut healed = measuring();
            healed.disturb_link(back, there, SETTLED);
            healed.observed(ENDS, ASKED, &[echo], |_, _| false);
            assert_eq!(observed(&healed).is_some(), counts);
        }
    }
}
