//! The emulated links had the requested delays; otherwise the run does not show what it was meant to show.

use std::cmp::Reverse;

use faultline_core::fault::Change;
use faultline_core::{ClusterId, Fault, Span, Time};
use faultline_trace::manifest::LinkEntry;

use crate::finding::Findings;
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use crate::words::{self, idle_machine};
use faultline_history::History;

/// If a changed link was in force without a disturbance for longer than this and the time of a round trip, it must have
/// been measured: at least the echoes during the run, one every 200 ms, are then enough.
const MEASURED_WITHIN: Span = Span::from_secs(10);

/// The remedy if nothing delays the packets between the programs of a system.
const NOT_EMULATED: &str = "nothing emulated it: use traffic control on a kernel with netem (`faultline doctor --tc`), or the \
                            preset `none`";

pub(super) const RULE: Rule =
    Rule::new(Property::LinksAsRequested, "every link had the requested delay", check)
        .with(&[Aspect::NeedsNoOtherFact, Aspect::NeverImported]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let context = history.context;
    let name = |it: &LinkEntry| words::link(it.from, it.to, context);
    // Only the first reason is reported.
    let mut links: Vec<_> = context.links.iter().filter(|it| it.is_judged()).collect();
    links
        .sort_by_key(|link| Reverse(link.measured.map(|it| it.latency.0.abs_diff(link.requested.latency.0))));
    for link in &links {
        let (Some(as_requested), Some(measured)) = (link.as_requested(), link.measured) else { continue };
        finding.instances += 1;
        if !as_requested {
            let (name, asked) = (name(link), link.requested.latency);
            let reason = format!("{name} has a latency of {} instead of {asked}", measured.latency);
            // A busy machine only delays packets, and only the kernel emulates the links of a system.
            let is_emulated = context.system.is_none() || measured.latency > link.requested.latency;
            finding.unjudged(reason, if is_emulated { idle_machine(context) } else { NOT_EMULATED });
        }
    }
    let mut observed: Vec<_> = links.into_iter().filter_map(|it| Some((it.percent_outside()?, it))).collect();
    observed.sort_by_key(|&(percent, _)| Reverse(percent));
    if let Some((percent @ 1.., link)) = observed.first().copied() {
        let (tolerance, asked) = (link.tolerance_observed(), link.requested.latency);
        let mean = link.observed.map_or(asked, |it| it.mean);
        let text = format!(
            "for {percent} % of the echoes during the run, the delay of {} was off by more than {tolerance}: {mean} \
             on average instead of {asked}",
            name(link)
        );
        match percent > LinkEntry::MOST_PERCENT_OUTSIDE {
            true => finding.unjudged(text, idle_machine(context)),
            false => finding.remark(text),
        }
    }
    for (index, link) in context.links.iter().enumerate() {
        let Some(since) = link.since.filter(|_| is_unmeasured(history, index)) else { continue };
        let since = since.as_secs_f64();
        let reason = format!("{} was not measured after its change at {since:.2} s", name(link));
        finding.unjudged(reason, idle_machine(context));
    }
}

/// Returns whether a changed link was not measured, although there was enough time. The record of a run that was cut
/// short does not state the results.
fn is_unmeasured(history: &History<'_>, index: usize) -> bool {
    let (context, link) = (history.context, &history.context.links[index]);
    let (from, to) = (link.from, link.to);
    let Some(since) = link.since else { return false };
    let is_measured = link.measured.is_some() || link.percent_outside().is_some();
    if is_measured || context.outcome.is_none() || !context.measures_link(from, to) {
        return false;
    }
    let delay = |it: &LinkEntry| it.requested.latency + it.requested.jitter;
    let back = context.links.iter().filter(|it| (it.from, it.to) == (to, from)).map(delay).max();
    let next = context.links[index + 1..].iter().find(|it| (it.from, it.to) == (from, to));
    let until = next.and_then(|it| it.since).unwrap_or(context.end);
    longest_calm(history, (from, to), since, until) > MEASURED_WITHIN + delay(link) + back.unwrap_or_default()
}

/// Returns the longest time between `since` and `until` during which nothing delayed echoes between two clusters, or
/// their responses.
fn longest_calm(history: &History<'_>, clusters: (ClusterId, ClusterId), since: Time, until: Time) -> Span {
    let (mut calm_since, mut longest) = (since, Span::ZERO);
    for (begin, end) in disturbances(history, clusters) {
        longest = longest.max(begin.min(until).since(calm_since));
        calm_since = calm_since.max(end);
    }
    longest.max(until.since(calm_since))
}

/// Returns when echoes between two clusters, or their responses, may have been delayed: the begin and the end of each
/// disturbance, in the order of their begins. Any process of the clusters may have sent or answered the echoes.
fn disturbances(history: &History<'_>, (from, to): (ClusterId, ClusterId)) -> Vec<(Time, Time)> {
    let (supervision, clusters) = (&history.supervision, &history.context.clusters);
    let is_between = |a, b| (a, b) == (from, to) || (b, a) == (from, to);
    let members = |cluster: ClusterId| clusters.get(cluster.index()).into_iter().flatten().copied();
    let cluster_of = |process| [from, to].into_iter().find(|it| members(*it).any(|it| it == process));
    let mut all = Vec::new();
    // Pauses by the user postpone the ends of faults.
    let (mut paused_since, mut paused) = (None, Span::ZERO);
    for (at, change) in &supervision.changes {
        match change {
            Change::Pause(true) => paused_since = Some(*at),
            Change::Pause(false) => {
                let begin = paused_since.take().unwrap_or_default();
                paused = paused + at.since(begin);
                all.push((begin, *at));
            }
            Change::Link { .. } | Change::Fault(_) => {}
        }
    }
    all.extend(paused_since.map(|begin| (begin, Time::NEVER)));
    for &(_, fault, at, _) in &supervision.injected {
        let disturbs = match *fault {
            Fault::Link { from, to, .. } => is_between(from, to),
            Fault::Split { cluster, .. } => is_between(cluster, cluster),
            Fault::Partition { .. } => fault.cuts().into_iter().any(|(from, to)| is_between(from, to)),
            _ => fault.pauses().is_some_and(|it| cluster_of(it).is_some()),
        };
        if disturbs {
            all.push((at, fault.until(at) + paused));
        }
    }
    let gone = supervision.gone(clusters);
    for end in supervision.ends_before_joining.iter().chain(&supervision.ends) {
        let Some(cluster) = cluster_of(end.process) else { continue };
        let next = history.trace.streams.get(&(end.process, end.life.next())).and_then(|it| it.first());
        // If enough processes remain, another one measures the links of one that has failed permanently.
        let remaining = members(cluster).filter(|it| !gone.contains(it)).count();
        let is_replaced = gone.contains(&end.process) && remaining > usize::from(from == to);
        let replaced = end.detected.filter(|_| is_replaced);
        all.push((end.at, next.map(|it| it.0).or(replaced).unwrap_or(Time::NEVER)));
    }
    let left = supervision.left.iter().filter(|(_, cluster)| [from, to].contains(cluster));
    all.extend(left.map(|(at, _)| (*at, Time::NEVER)));
    let joined = supervision.joined.iter().filter(|(_, cluster)| [from, to].contains(cluster));
    all.extend(joined.map(|(at, _)| (Time::ZERO, *at)));
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::fault::{LinkProperties, Outcome};
    use faultline_core::{Fact, FaultNo, StorageFate};
    use faultline_trace::manifest::{LinkMeasured, LinkObserved};

    #[test]
    fn a_link_that_is_off_for_much_of_the_run_is_not_as_requested() {
        let mut run = Run::new(&[&[0]]);
        let link = |outside| LinkEntry {
            from: ClusterId(0),
            to: ClusterId(1),
            requested: LinkProperties { latency: Span::from_millis(5), ..LinkProperties::default() },
            measured: Some(LinkMeasured {
                latency: Span::from_millis(5),
                jitter: Span::ZERO,
                samples: 1,
                rounds: 1,
                uncertainty: Span::ZERO,
            }),
            observed: Some(LinkObserved { echoes: 50, outside, mean: Span::from_millis(14) }),
            since: None,
        };
        run.context.links = vec![link(0)];
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.gap(), finding.remarks.len()), (String::new(), 0));
        run.context.links = vec![link(0), link(10)];
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.gap(), "");
        assert!(finding.remarks[0].starts_with("for 20 % of the echoes during the run, "), "{finding:?}");
        run.context.links.push(link(11));
        let open = check_alone(&RULE, &run).gap();
        let expected = "14.0 ms on average instead of 5.00 ms; the machine was busy: repeat the run on an idle one, or use \
                        `--backend simulate`";
        assert!(open.starts_with("for 22 % of the echoes") && open.ends_with(expected), "{open}");
        run.context.links = vec![LinkEntry {
            observed: Some(LinkObserved { echoes: 19, outside: 19, mean: Span::ZERO }),
            ..link(0)
        }];
        assert_eq!(check_alone(&RULE, &run).gap(), "", "too few to tell");
    }

    #[test]
    fn a_link_is_judged_only_if_something_is_requested_of_it() {
        let mut run = Run::new(&[&[0]]);
        let latency = Span::from_millis(3);
        let measured =
            LinkMeasured { latency, jitter: Span::ZERO, samples: 1, rounds: 1, uncertainty: Span::ZERO };
        let link = |requested| LinkEntry {
            from: ClusterId(0),
            to: ClusterId(0),
            requested: LinkProperties { latency: requested, ..LinkProperties::default() },
            measured: Some(measured),
            observed: Some(LinkObserved { echoes: 50, outside: 50, mean: latency }),
            since: None,
        };
        for (is_system, requested, is_judged) in
            [(false, Span::ZERO, false), (true, Span::ZERO, false), (true, Span::from_millis(9), true)]
        {
            run.context.system = is_system.then(Default::default);
            run.context.links = vec![link(requested)];
            let gap = check_alone(&RULE, &run).gap();
            assert_eq!(!gap.is_empty(), is_judged, "{is_system}, {requested}");
            assert_eq!(gap.contains("nothing emulated it"), is_system && is_judged, "{gap}");
        }
    }

    /// A run of two clusters with two processes each, in which the link between the clusters changed after 20 s.
    struct Relinked(Run);

    impl Relinked {
        /// `after` happens until the change was in force for `span`. Then the run ends.
        fn new(span: Span, after: impl FnOnce(&mut Run)) -> Relinked {
            let mut run = Run::new(&[&[0, 1], &[2, 3]]);
            run.context.measures_links = true;
            run.context.outcome = Some(Outcome::Completed);
            let (from, to) = (ClusterId(0), ClusterId(1));
            let requested = LinkProperties { latency: Span::from_millis(5), ..LinkProperties::default() };
            let since = Time::ZERO + Span::from_secs(20);
            let measured = Some(LinkMeasured {
                latency: requested.latency,
                jitter: Span::ZERO,
                samples: 1,
                rounds: 1,
                uncertainty: Span::ZERO,
            });
            let first = LinkEntry { from, to, requested, measured, observed: None, since: None };
            let changed = LinkEntry { measured: None, since: Some(since), ..first.clone() };
            run.context.links = vec![first, changed];
            run.context.end = since + span;
            run.wait(Span::from_secs(20));
            after(&mut run);
            Relinked(run)
        }

        fn is_open(&self) -> bool {
            let open = check_alone(&RULE, &self.0).gap();
            assert!(open.is_empty() || open.contains(" was not measured after its change at "), "{open}");
            !open.is_empty()
        }
    }

    fn inject(run: &mut Run, fault: Fault) {
        run.supervisor(Fact::Injecting { no: FaultNo(0), fault: Box::new(fault) });
    }

    #[test]
    fn a_changed_link_that_was_in_force_for_long_must_have_been_measured() {
        let mut long = Relinked::new(Span::from_secs(60), |_| {});
        assert!(long.is_open());
        assert!(!Relinked::new(Span::from_secs(1), |_| {}).is_open(), "there was too little time");
        let entry = &mut long.0.context.links[1];
        entry.observed = Some(LinkObserved { echoes: 19, outside: 0, mean: entry.requested.latency });
        assert!(long.is_open(), "there were too few echoes");
        long.0.context.links[1].observed.as_mut().unwrap().echoes = 20;
        assert!(!long.is_open());
        long.0.context.links[1].observed = None;
        long.0.context.measures_links = false;
        assert!(!long.is_open(), "the run took place in virtual time");
        long.0.context.measures_links = true;
        long.0.context.outcome = None;
        assert!(!long.is_open(), "the results are unknown");
        long.0.context.outcome = Some(Outcome::Completed);
        let next =
            LinkEntry { since: Some(Time::ZERO + Span::from_secs(21)), ..long.0.context.links[0].clone() };
        long.0.context.links.push(next);
        assert!(!long.is_open(), "the next change followed soon, and was measured");
    }

    #[test]
    fn a_changed_link_need_not_be_measured_while_it_is_disturbed() {
        let minute = Span::from_secs(60);
        let slow = |from, to, span| Fault::Link { from, to, properties: None, span };
        let (here, there) = (ClusterId(0), ClusterId(1));
        let long = Some(Span::from_secs(55));
        let span = Span::from_secs(55);
        for (fault, is_open) in [
            (slow(here, there, None), false),
            (slow(here, there, long), false),
            (slow(there, here, long), false),
            (slow(here, here, long), true),
            (slow(here, there, Some(Span::from_secs(5))), true),
            (Fault::Partition { from: there, to: vec![here], both: false, span }, false),
            (Fault::pause(p(2), span), false),
        ] {
            let run = Relinked::new(minute, |run| inject(run, fault.clone()));
            assert_eq!(run.is_open(), is_open, "{fault:?}");
        }
        let pause =
            |run: &mut Run, is_paused| run.supervisor(Fact::Changed(Box::new(Change::Pause(is_paused))));
        assert!(!Relinked::new(minute, |run| pause(run, true)).is_open());
        let postponed = Relinked::new(minute, |run| {
            inject(run, Fault::pause(p(2), Span::from_secs(30)));
            pause(run, true);
            run.wait(Span::from_secs(25));
            pause(run, false);
        });
        assert!(!postponed.is_open(), "the pause by the user postpones the end of the fault");
    }

    #[test]
    fn a_changed_link_need_not_be_measured_while_a_process_at_its_end_is_down_or_absent() {
        let minute = Span::from_secs(60);
        let restarted_after = |seconds| {
            Relinked::new(minute, |run| {
                run.kill(2, false);
                run.wait(Span::from_secs(seconds));
                run.state(2, Fact::Begun);
            })
        };
        assert!(restarted_after(1).is_open());
        assert!(!restarted_after(55).is_open());
        assert!(
            Relinked::new(minute, |run| run.lose_permanently(2)).is_open(),
            "another process measures the link"
        );
        let lost = Relinked::new(minute, |run| {
            let (storage, cluster) = (StorageFate::Kept, ClusterId(1));
            inject(run, Fault::kill_permanently(cluster, storage));
            [2, 3].into_iter().for_each(|it| run.lose_permanently(it));
        });
        assert!(!lost.is_open());
        assert!(!Relinked::new(minute, |run| run.supervisor(Fact::Left(ClusterId(0)))).is_open());
        let joined = Relinked::new(minute, |run| {
            run.wait(Span::from_secs(55));
            run.supervisor(Fact::Joined(ClusterId(0)));
        });
        assert!(!joined.is_open());
    }

    #[test]
    fn percentages_of_echoes_are_rounded_up() {
        let found = |echoes, outside| {
            let mut run = Run::new(&[&[0]]);
            run.context.links = vec![LinkEntry {
                from: ClusterId(0),
                to: ClusterId(1),
                requested: LinkProperties { latency: Span::from_millis(5), ..LinkProperties::default() },
                measured: None,
                observed: Some(LinkObserved { echoes, outside, mean: Span::from_millis(14) }),
                since: None,
            }];
            let finding = check_alone(&RULE, &run);
            (finding.open.is_some(), finding.remarks.len())
        };
        assert_eq!(found(24, 5), (true, 0), "20.83 % is more than 20 %");
        assert_eq!(found(25, 5), (false, 1));
        assert_eq!(found(500, 1), (false, 1), "0.2 % is more than none");
        assert_eq!(found(500, 0), (false, 0));
    }

    #[test]
    fn a_link_far_from_the_request_is_named() {
        let link = |measured| LinkEntry {
            from: ClusterId(0),
            to: ClusterId(1),
            requested: LinkProperties { latency: Span::from_millis(8), ..LinkProperties::default() },
            measured: Some(LinkMeasured {
                latency: measured,
                jitter: Span::ZERO,
                samples: 1,
                rounds: 1,
                uncertainty: Span::ZERO,
            }),
            observed: None,
            since: None,
        };
        let mut run = Run::new(&[&[0]]);
        run.context.links = vec![link(Span::from_millis(8)), link(Span::from_micros(8_300))];
        assert_eq!(check_alone(&RULE, &run).gap(), "");
        run.context.links.push(link(Span::from_millis(9)));
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.instances, 3);
        assert!(finding.gap().contains(" has a latency of 9.00 ms instead of "), "{finding:?}");
        run.context.links.push(link(Span::from_millis(90)));
        let finding = check_alone(&RULE, &run);
        assert!(finding.gap().contains(" has a latency of 90.0 ms instead of "), "{finding:?}");
    }
}
