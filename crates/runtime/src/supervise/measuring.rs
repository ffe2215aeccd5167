//! Tracks the measurements of links: which process measures each link, the results, and the observed delays.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Member, Membership, ProcessId, Span, Time};
use faultline_shaper::retransmission;
use faultline_trace::manifest::{LinkEntry, LinkMeasured, LinkObserved};

use crate::control::{Measurement, ObservedEcho, ObservedLink};
use crate::links::Links;

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

/// Number of consecutive losses of a response that do not make it overdue.
const LOSSES: u64 = 10;

#[derive(Debug)]
struct Link {
    entry: LinkEntry,
    /// Time of the last event that may have delayed echoes: a fault of the link, a restart or pause of a process at
    /// either end, or a change of the requested properties. Measurements that began earlier do not count.
    disturbed: Time,
    /// Sum of the delays of all answered echoes that count.
    sum: Span,
    /// Echoes that count and have not been answered: the time at which each was sent, and the delay when it was
    /// reported. They are late, or their responses are.
    unanswered: BTreeMap<Time, Span>,
    /// The measuring process and the process at the other end; `None` for a cluster with a single process. A process
    /// that has failed permanently is replaced by another of its cluster, if there is one.
    ends: Option<(ProcessId, ProcessId)>,
}

impl Measuring {
    /// Creates an entry for every ordered pair of clusters with processes.
    pub(super) fn new(membership: &Membership, links: &Links) -> Measuring {
        let mut clusters: Vec<ClusterId> = membership.members.iter().map(|member| member.cluster).collect();
        clusters.sort_unstable();
        clusters.dedup();
        let mut all = Vec::new();
        let stopped = (0..membership.members.len() as u32).map(ProcessId).collect();
        for &from in &clusters {
            for &to in &clusters {
                let requested = links.between(from, to);
                all.push(Link {
                    entry: LinkEntry { from, to, requested, measured: None, observed: None, since: None },
                    disturbed: Time::ZERO,
                    sum: Span::ZERO,
                    unanswered: BTreeMap::new(),
                    ends: ends(membership, from, to),
                });
            }
        }
        Measuring { links: all, past: Vec::new(), stopped }
    }

    /// Replaces processes at the ends of links that have failed permanently. Returns the processes whose
    /// [observed links](Measuring::observed_by) change.
    pub(super) fn replace_gone(&mut self, membership: &Membership, now: Time) -> BTreeSet<ProcessId> {
        let mut changed = BTreeSet::new();
        for link in &mut self.links {
            let remaining = ends(membership, link.entry.from, link.entry.to);
            if let Some((by, _)) = remaining.filter(|_| remaining != link.ends) {
                (link.ends, link.disturbed) = (remaining, now);
                changed.insert(by);
            }
        }
        changed
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
            link.disturbed = since.unwrap_or_default();
            self.past.extend(Some(before).filter(|_| since.is_some()));
        }
    }

    /// Returns the missing measurements, grouped by the process that performs them. Omits links that cannot be measured
    /// at present: those for which `is_disturbed` returns `true`, and those with a process that is not running.
    pub(super) fn undone(
        &self,
        is_disturbed: impl Fn(ClusterId, ClusterId) -> bool,
    ) -> BTreeMap<ProcessId, Vec<Measurement>> {
        let mut undone: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for link in self.links.iter().filter(|link| link.entry.measured.is_none()) {
            let Some((by, to)) = link.ends.filter(|it| self.are_running(*it)) else { continue };
            if !is_disturbed(link.entry.from, link.entry.to) {
                undone.entry(by).or_default().push(link.measurement(to));
            }
        }
        undone
    }

    /// Returns whether the result of a measurement whose last round began at `began` counts, for a link with this
    /// requested latency. It does not if it is for an earlier request, or if a fault, for which `is_disturbed` returns
    /// `true`, or a process that stopped may have delayed the echoes.
    pub(super) fn counts(
        &self,
        ends: (ProcessId, ProcessId),
        requested: Span,
        began: Time,
        is_disturbed: impl Fn(ClusterId, ClusterId) -> bool,
    ) -> bool {
        let counts_for = |link: &Link| {
            let entry = &link.entry;
            entry.requested.latency == requested
                && began >= link.disturbed
                && !is_disturbed(entry.from, entry.to)
        };
        self.are_running(ends) && self.links.iter().any(|it| it.ends == Some(ends) && counts_for(it))
    }

    /// Records a result that [counts](Measuring::counts).
    pub(super) fn measured(&mut self, ends: (ProcessId, ProcessId), requested: Span, result: LinkMeasured) {
        let entries =
            self.links.iter_mut().filter(|link| link.ends == Some(ends)).map(|link| &mut link.entry);
        for entry in entries.filter(|it| it.requested.latency == requested) {
            entry.measured = Some(result);
        }
    }

    /// Returns the links that a process observes.
    pub(super) fn observed_by(&self, process: ProcessId) -> Vec<ObservedLink> {
        let of_process = |link: &Link| {
            let (_, to) = link.ends.filter(|(by, _)| *by == process)?;
            let (there, back) = (&link.entry, &self.reverse(link).entry);
            let requested = there.requested.latency;
            let losses = if back.requested.loss_ppm > 0 { LOSSES } else { 0 };
            let answered_within = there.tolerance_observed()
                + back.requested.latency
                + back.tolerance_observed()
                + retransmission(back.requested) * losses;
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
        self.links.iter_mut().filter(|link| is_concerned(link)).for_each(|link| link.disturbed = now);
    }

    fn are_running(&self, (by, to): (ProcessId, ProcessId)) -> bool {
        ![by, to].iter().any(|it| self.stopped.contains(it))
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
            echo.sent >= link.disturbed + SETTLES && !is_disturbed(link.entry.from, link.entry.to)
        };
        let counts = |echo: &ObservedEcho| {
            let is_back_settled = echo.is_answered || is_settled(self.reverse(link), echo);
            self.are_running((by, to)) && is_settled(link, echo) && is_back_settled
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
        Measurement { to, requested: self.entry.requested, tolerance: self.entry.tolerance() }
    }
}

/// Returns the process that measures a link, and the process at the other end. Chooses the first processes of their
/// clusters that have not failed permanently. Returns `None` if there are no two such processes.
fn ends(membership: &Membership, from: ClusterId, to: ClusterId) -> Option<(ProcessId, ProcessId)> {
    let processes = |cluster| {
        let of = move |(index, member): (usize, &Member)| {
            (member.cluster == cluster && !member.gone).then_some(ProcessId(index as u32))
        };
        membership.members.iter().enumerate().filter_map(of)
    };
    let first = processes(from).next()?;
    let second = processes(to).find(|&process| process != first)?;
    Some((first, second))
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
    use std::sync::Arc;

    use super::*;
    use faultline_core::{Cluster, Life, MembershipVersion, NodeId, Role};

    const ENDS: (ProcessId, ProcessId) = (ProcessId(0), ProcessId(1));
    const ASKED: Span = Span::from_millis(8);
    /// A time at which the effects of the start have passed.
    const SETTLED: Time = Time(SETTLES.0);

    /// Returns two clusters with this number of processes each.
    fn membership(size: u32) -> Membership {
        let member = |process: u32| Member {
            cluster: ClusterId((process / size) as u16),
            role: Role::RANK,
            node: NodeId(process),
            life: Life(0),
            up: false,
            started: false,
            gone: false,
            idle_lives: 0,
        };
        let cluster = |number| Cluster::new((number * size..(number + 1) * size).map(ProcessId).collect());
        Membership {
            version: MembershipVersion(0),
            members: (0..2 * size).map(member).collect(),
            clusters: (0..2).map(cluster).collect(),
        }
    }

    /// Returns the measurements of these clusters, all of whose processes run.
    fn measuring_in(membership: &Membership) -> Measuring {
        let mut measuring = Measuring::new(membership, &Links::default());
        let requested = LinkProperties { latency: ASKED, ..LinkProperties::default() };
        measuring.ask(ClusterId(0), ClusterId(1), requested, None);
        let processes = (0..membership.members.len() as u32).map(ProcessId);
        processes.for_each(|it| measuring.process_runs(it, Time::ZERO));
        measuring
    }

    /// Returns the measurements of two clusters with one running process each.
    fn measuring() -> Measuring {
        measuring_in(&membership(1))
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
    fn only_links_between_running_processes_are_measured() {
        for process in [ENDS.0, ENDS.1] {
            let mut measuring = measuring();
            let undone = |it: &Measuring| it.undone(|_, _| false).into_values().flatten().count();
            assert_eq!(undone(&measuring), 2);
            measuring.process_stops(process);
            assert_eq!(undone(&measuring), 0);
            measuring.process_runs(process, SETTLED);
            assert_eq!(undone(&measuring), 2);
        }
    }

    #[test]
    fn a_measurement_that_a_fault_or_a_stop_interrupts_does_not_count() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let counts = |it: &Measuring, began| it.counts(ENDS, ASKED, began, |_, _| false);
        for process in [ENDS.0, ENDS.1] {
            let mut measuring = measuring();
            assert!(counts(&measuring, at(5)));
            assert!(!measuring.counts(ENDS, ASKED * 2, at(5), |_, _| false), "it is for an earlier request");
            assert!(!measuring.counts(ENDS, ASKED, at(5), |_, _| true), "a fault is in force");
            measuring.process_stops(process);
            assert!(!counts(&measuring, at(5)));
            measuring.process_runs(process, at(7));
            assert_eq!([5, 7].map(|it| counts(&measuring, at(it))), [false, true]);
            measuring.disturb_link(ClusterId(0), ClusterId(1), at(9));
            assert_eq!([7, 9].map(|it| counts(&measuring, at(it))), [false, true]);
        }
    }

    #[test]
    fn another_process_replaces_one_that_has_failed_permanently() {
        let mut membership = membership(2);
        let mut measuring = measuring_in(&membership);
        let [gone, next, other] = [0, 1, 2].map(ProcessId);
        let to = |it: &Measuring, by| it.observed_by(by).iter().map(|it| it.to).collect::<Vec<_>>();
        assert_eq!(to(&measuring, gone), [next, other]);
        assert!(measuring.replace_gone(&membership, SETTLED).is_empty());
        Arc::make_mut(&mut membership.members)[gone.index()].gone = true;
        measuring.process_stops(gone);
        assert_eq!(measuring.replace_gone(&membership, SETTLED), [next, other].into());
        assert_eq!((to(&measuring, next), to(&measuring, other)), (vec![other], vec![next, ProcessId(3)]));
        assert!(measuring.replace_gone(&membership, SETTLED).is_empty());
        let sent = SETTLED + SETTLES;
        let echoes = [SETTLED, sent].map(|sent| ObservedEcho { sent, delay: ASKED, is_answered: true });
        for by in [gone, next] {
            measuring.observed((by, other), ASKED, &echoes, |_, _| false);
        }
        assert_eq!(
            observed(&measuring).unwrap().echoes,
            1,
            "only the replacement counts, once it has settled"
        );
        assert!(measuring.counts((next, other), ASKED, SETTLED, |_, _| false));
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
