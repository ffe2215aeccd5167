//! Checks the times, causes and consequences of injected faults against the plan.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::{Change, FlipTarget};
use faultline_core::{
    EndedBy, Fact, FactKind, Fault, FaultNo, Life, PlannedFault, ProcessId, Source, Span, StorageFate, Time,
    Trigger, WatchNo,
};

use faultline_history::{Contradiction, History};

/// How much earlier than planned a fault may be reported on real processes, where the supervisor reads its
/// clock again for each fact.
const EARLY: Span = Span::from_secs(1);

/// Checks that each injected fault was due. A fault with a planned time is injected at that time: exactly in virtual
/// time, approximately on real processes. A fault that waits for facts is injected after as many of them as the plan
/// requires; on real processes, whose clocks differ, the facts may have any time. A fault that strikes the node that last
/// logged a line strikes one that logged a line for this watch.
pub(super) fn are_due(history: &History<'_>, late: Span, found: &mut Vec<Contradiction>) {
    let (context, supervision) = (history.context, &history.supervision);
    let Some(begun) = supervision.begun else { return };
    let is_paused = supervision.changes.iter().any(|(_, it)| matches!(it, Change::Pause(_)));
    let is_known = history.trace.flaws.iter().all(|it| it.stream.is_none());
    for &(no, fault, at, _) in &supervision.injected {
        let Some(planned) = context.plan.iter().find(|it| it.no == no) else { continue };
        if let Some(watch) = planned.reported
            && is_known
            && context.recorded.contains(FactKind::Logged)
            && !has_logged(history, fault, watch)
        {
            found.push(Contradiction::StruckAnotherNode(no));
        }
        match planned.trigger {
            Trigger::At(due) => {
                let due = begun + due.since(Time::ZERO);
                let (early, late) =
                    if context.common_clock { (Span::ZERO, Span::ZERO) } else { (EARLY, late) };
                if at + early < due || at > due + late && !is_paused {
                    found.push(Contradiction::InjectedAtOtherTime(no));
                }
            }
            Trigger::When { fact, occurrence, .. } => {
                let is_known = is_known && (context.common_clock || context.recorded.contains(fact));
                let upto = if context.common_clock { at } else { Time::NEVER };
                if is_known && count(history, planned, upto) < u64::from(occurrence) {
                    found.push(Contradiction::InjectedWithoutCause(no));
                }
            }
        }
    }
}

/// Returns whether a target of a fault, or a node of the cluster that it isolates, has logged a line for a watch.
fn has_logged(history: &History<'_>, fault: &Fault, watch: WatchNo) -> bool {
    let target = match fault {
        Fault::Partition { from, .. } => Some((*from).into()),
        _ => fault.target(),
    };
    let targets = target.map(|it| it.processes(&history.context.clusters)).unwrap_or_default();
    let mut facts = targets.iter().flat_map(|it| history.trace.lives(*it)).flat_map(|it| it.1);
    facts.any(|(_, fact)| fact.source() == Some(Source::Watch(watch)))
}

/// Counts the facts that match a fault's trigger, up to a given time.
fn count(history: &History<'_>, planned: &PlannedFault, upto: Time) -> u64 {
    let matches = |process: ProcessId, fact: &Fact| {
        let cluster = history.context.clusters.iter().position(|it| it.contains(&process));
        let cluster =
            cluster.map_or(faultline_core::ClusterId::OUTSIDE, |it| faultline_core::ClusterId(it as u16));
        planned.trigger.matches(fact, process, cluster)
    };
    let streams = history.trace.streams.iter().filter(|((process, _), _)| *process != ProcessId::SUPERVISOR);
    let count = |(process, facts): (ProcessId, &[(Time, Fact)])| {
        facts.iter().take_while(|(at, _)| *at <= upto).filter(|(_, fact)| matches(process, fact)).count()
            as u64
    };
    streams.map(|((process, _), facts)| count((*process, facts))).sum()
}

/// Checks that each process ended by a fault lost its storage if and only if the plan says so or the storage is
/// volatile, and that any other process lost it if and only if this caused its end. In virtual time, a process must have
/// failed exactly when the fault was injected.
pub(super) fn fates(history: &History<'_>, found: &mut Vec<Contradiction>) {
    for (at, fact) in history.trace.supervisor() {
        let Fact::Failed { process, life, storage, by } = *fact else { continue };
        let EndedBy::Fault(no) = by else {
            let is_lost = storage == StorageFate::Lost;
            let loses = matches!(by, EndedBy::StorageLost | EndedBy::Moved);
            if !history.context.volatile_storage && is_lost != loses {
                found.push(Contradiction::FateWithoutCause(process, life));
            }
            continue;
        };
        let fault = history.supervision.injected.iter().find(|(it, ..)| *it == no);
        let kill = fault.and_then(|(_, fault, at, _)| Some((fault.storage_fate()?, at)));
        let Some((planned, injected)) = kill else { continue };
        if history.context.common_clock && at != injected {
            found.push(Contradiction::EndedAtOtherTime { fault: no, process, life });
        }
        let expected = if history.context.volatile_storage { StorageFate::Lost } else { planned };
        if storage != expected {
            found.push(Contradiction::OtherFate { fault: no, process, life });
        }
    }
}

/// Checks that each loss of a cluster or rack ended all its processes: all of them if their storage was lost, and
/// otherwise those that were running.
pub(super) fn losses(history: &History<'_>, found: &mut Vec<Contradiction>) {
    let mut running = BTreeSet::new();
    for (_, fact) in history.trace.supervisor() {
        match fact {
            Fact::LifeStarted { process, .. } => {
                running.insert(*process);
            }
            Fact::Failed { process, .. } | Fact::Detected { process, .. } => {
                running.remove(process);
            }
            Fact::Left(cluster) => {
                let members = history.context.clusters.get(cluster.index());
                running.retain(|it| !members.is_some_and(|members| members.contains(it)));
            }
            Fact::Injecting { no, fault } => {
                let Fault::Kill { target, storage, .. } = **fault else { continue };
                if !target.is_at_once() {
                    continue;
                }
                let members = target.processes(&history.context.clusters);
                let ended = history.supervision.ended_by(*no);
                let is_target = |it: &&ProcessId| storage == StorageFate::Lost || running.contains(*it);
                for &process in
                    members.iter().filter(is_target).filter(|it| !ended.iter().any(|(of, _)| of == *it))
                {
                    found.push(Contradiction::NotLost { fault: *no, process });
                }
            }
            _ => {}
        }
    }
}

/// Checks that a process reported at most as many flipped bits as faults flipped there: in messages, in copies and in its
/// state. Otherwise, a forger could excuse every violation.
pub(super) fn flips(history: &History<'_>, found: &mut Vec<Contradiction>) {
    let mut due: BTreeMap<(ProcessId, FlipTarget), usize> = BTreeMap::new();
    for flip in history.supervision.injected.iter().filter_map(|(_, fault, ..)| fault.flips()) {
        *due.entry(flip).or_default() += 1;
    }
    for &(at, flipped) in &history.flips {
        let segment = history.segment(at.segment);
        match due.get_mut(&(segment.host, flipped.target())) {
            Some(left) if *left > 0 => *left -= 1,
            _ => found.push(Contradiction::FlippedByNoFault(segment.host, segment.life)),
        }
    }
}

/// A life that faults have paused.
struct Paused {
    life: Life,
    since: Time,
    /// When the last of its pauses ends.
    until: Time,
}

/// The time within which the supervisor of real processes records what it has decided. A pause lasts from the decision, so
/// it may end this much earlier than its injection was recorded to begin it.
const RECORDED_WITHIN: Span = Span::from_millis(200);

/// Checks that each life that faults paused resumed when the last of its pauses ended, unless it ended before: exactly
/// then in virtual time, where it also reported nothing in between, and approximately on real processes. A pause of the
/// whole federation prolongs the others.
pub(super) fn pauses(history: &History<'_>, late: Span, found: &mut Vec<Contradiction>) {
    let (context, supervision) = (history.context, &history.supervision);
    let is_prolonged = supervision.changes.iter().any(|(_, it)| matches!(it, Change::Pause(_)));
    let (early, late) = if context.common_clock { Default::default() } else { (RECORDED_WITHIN, late) };
    let mut newest: BTreeMap<ProcessId, Life> = BTreeMap::new();
    let mut paused: BTreeMap<ProcessId, Paused> = BTreeMap::new();
    for (at, fact) in history.trace.supervisor() {
        match fact {
            Fact::LifeStarted { process, life, .. } => {
                newest.insert(*process, *life);
            }
            Fact::Failed { process, .. } | Fact::Detected { process, .. } => {
                paused.remove(process);
            }
            Fact::Left(cluster) => {
                let members = context.clusters.get(cluster.index());
                paused.retain(|it, _| !members.is_some_and(|members| members.contains(it)));
            }
            Fact::Injecting { fault, .. } => {
                let Some(process) = fault.pauses() else { continue };
                let life = newest.get(&process).copied().unwrap_or_default();
                let until = fault.until(*at);
                let of = paused.entry(process).or_insert(Paused { life, since: *at, until });
                of.until = of.until.max(until);
            }
            Fact::Resumed { process, life } => {
                let is_right = |it: &Paused| {
                    // A short pause must not count as over as soon as it begins.
                    let early = early.min(Span(it.until.since(it.since).0 / 2));
                    let is_over = it.until <= *at + early;
                    it.life == *life && is_over && (*at <= it.until + late || is_prolonged)
                };
                match paused.remove(process).filter(is_right) {
                    None => found.push(Contradiction::ResumedAtOtherTime(*process, *life)),
                    Some(pause) if context.common_clock => {
                        let facts = history.trace.streams.get(&(*process, *life)).into_iter().flatten();
                        let mut facts = facts.skip_while(|(it, _)| *it <= pause.since);
                        if facts.next().is_some_and(|(it, _)| it < at) {
                            found.push(Contradiction::ActedWhilePaused(*process, *life));
                        }
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
    }
    let has_ended = context.outcome.is_some() && !is_prolonged;
    let overdue = paused.iter().filter(|(_, it)| has_ended && it.until + late < context.end);
    found.extend(overdue.map(|(process, it)| Contradiction::NeverResumed(*process, it.life)));
}

/// Checks that no life started while the node of its process was under repair, and that a process whose node was under
/// repair moved to a spare only if there was one: from the start, or because it was repaired. Not judged if a pause of
/// the whole federation prolonged the repairs.
pub(super) fn repairs(history: &History<'_>, late: Span, found: &mut Vec<Contradiction>) {
    let (context, supervision) = (history.context, &history.supervision);
    if supervision.changes.iter().any(|(_, it)| matches!(it, Change::Pause(_))) {
        return;
    }
    let late = if context.common_clock { Span::ZERO } else { late };
    let stops = supervision.injected.iter().filter(|it| it.1.is_stop());
    let stops: BTreeMap<FaultNo, Span> = stops.filter_map(|it| Some((it.0, it.1.repair()?))).collect();
    let repair_after = |no| stops.get(&no).copied();
    let mut running = BTreeSet::new();
    // The time at which the repair of each process's node ends.
    let mut repaired: BTreeMap<ProcessId, Time> = BTreeMap::new();
    // The times at which spares are available.
    let mut spares = vec![Time::ZERO; context.spares as usize];
    for (at, fact) in history.trace.supervisor() {
        match *fact {
            Fact::Injecting { ref fault, .. } => {
                let (Some(target), Some(repair)) = (fault.kills(), fault.repair()) else { continue };
                // The repair begins once the command has ended.
                if fault.is_stop() {
                    continue;
                }
                for process in target.processes(&context.clusters) {
                    let earlier = repaired.get(&process).copied().filter(|it| it > at);
                    if running.contains(&process) || earlier.is_some() {
                        repaired.insert(process, (*at + repair).max(earlier.unwrap_or_default()));
                    }
                }
            }
            Fact::Failed { process, life, by: EndedBy::Moved, .. } => {
                let own = repaired.remove(&process).filter(|it| *it + late >= *at);
                let free = spares.iter().position(|it| *it <= *at + late);
                match own.zip(free) {
                    Some((own, free)) => spares[free] = own,
                    None => found.push(Contradiction::MovedWithoutCause(process, life)),
                }
            }
            Fact::Failed { process, by: EndedBy::Fault(no), .. } if let Some(repair) = repair_after(no) => {
                running.remove(&process);
                let earlier = repaired.get(&process).copied().unwrap_or_default();
                repaired.insert(process, (*at + repair).max(earlier));
            }
            Fact::Failed { process, .. } | Fact::Detected { process, .. } => {
                running.remove(&process);
            }
            Fact::LifeStarted { process, life, .. } => {
                running.insert(process);
                if repaired.get(&process).is_some_and(|it| *it > *at + late) {
                    found.push(Contradiction::StartedDuringRepair(process, life));
                }
            }
            _ => {}
        }
    }
}

/// Checks that a crash or a cluster loss took effect only on lives that it ended.
pub(super) fn effects(history: &History<'_>, found: &mut Vec<Contradiction>) {
    for effect in &history.context.effects {
        let fault = history.supervision.injected.iter().find(|(no, ..)| *no == effect.no);
        if fault.is_some_and(|it| it.1.kills().is_none()) {
            continue;
        }
        let ended = history.supervision.ended_by(effect.no);
        let other = effect.on.iter().find(|it| !ended.contains(&(it.process, it.life)));
        found.extend(other.map(|it| {
            let (fault, process, life) = (effect.no, it.process, it.life);
            Contradiction::EffectElsewhere { fault, process, life }
        }));
    }
}

/// Checks that no user changed a federation in virtual time, that each link that changed was changed by a user, and
/// that each cluster joined and left at most once.
pub(super) fn changes(history: &History<'_>, found: &mut Vec<Contradiction>) {
    let (context, supervision) = (history.context, &history.supervision);
    if !context.measures_links && context.common_clock && !supervision.changes.is_empty() {
        found.push(Contradiction::ChangedInVirtualTime);
    }
    if !context.measures_links && !context.effects.is_empty() {
        found.push(Contradiction::EffectsMeasured);
    }
    for link in context.links.iter().filter(|it| it.since.is_some()) {
        let is_it = |change: &Change| match change {
            Change::Link { from, to, .. } => (*from, *to) == (link.from, link.to),
            _ => false,
        };
        if !supervision.changes.iter().any(|(_, change)| is_it(change)) {
            found.push(Contradiction::LinkNeverChanged { from: link.from, to: link.to });
        }
    }
    for moves in [&supervision.joined, &supervision.leaving, &supervision.left] {
        let mut clusters = BTreeSet::new();
        let again = moves.iter().find(|(_, cluster)| !clusters.insert(*cluster));
        found.extend(again.map(|(_, cluster)| Contradiction::MovedAgain(*cluster)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, p};
    use faultline_core::fault::LinkProperties;
    use faultline_core::{ClusterId, Observation};
    use faultline_trace::manifest::{Effect, EffectEntry, LinkEntry};

    /// Returns a run in which p0 reports the fact `begun` twice, and is killed one second after the start.
    fn run(trigger: Trigger) -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.common_clock = true;
        run.supervisor(Fact::Begun);
        (0..2).for_each(|_| run.state(0, Fact::Begun));
        run.wait(Span::from_secs(1));
        let fault = Fault::crash(p(0));
        run.context.plan =
            vec![PlannedFault { no: FaultNo(0), trigger, fault: fault.clone(), reported: None, cause: None }];
        run.supervisor(Fact::Injecting { no: FaultNo(0), fault: Box::new(fault) });
        let (life, storage, by) = (Life(1), StorageFate::Kept, EndedBy::Fault(FaultNo(0)));
        run.supervisor(Fact::Failed { process: p(0), life, storage, by });
        run
    }

    fn found(run: &Run, late: Span) -> Vec<Contradiction> {
        let (history, mut found) = (run.history(), Vec::new());
        are_due(&history, late, &mut found);
        fates(&history, &mut found);
        changes(&history, &mut found);
        found
    }

    fn at(millis: u64) -> Trigger {
        Trigger::At(Time::ZERO + Span::from_millis(millis))
    }

    #[test]
    fn a_fault_is_injected_when_it_is_due() {
        let late = Span::from_secs(1);
        let wrong = [Contradiction::InjectedAtOtherTime(FaultNo(0))];
        assert_eq!(found(&run(at(1000)), late), []);
        for other in [999, 1001] {
            assert_eq!(found(&run(at(other)), late), wrong, "{other} ms");
        }
        let real = |millis| {
            let mut run = run(at(millis));
            run.context.common_clock = false;
            run
        };
        for near in [10, 1000, 1999] {
            assert_eq!(found(&real(near), late), [], "{near} ms");
        }
        assert_eq!(found(&real(2001), late), wrong, "early");
        let mut run = real(0);
        assert_eq!(found(&run, Span::from_millis(999)), wrong, "late");
        run.supervisor(Fact::Changed(Box::new(Change::Pause(true))));
        run.context.measures_links = true;
        assert_eq!(found(&run, Span::from_millis(999)), [], "paused");
    }

    #[test]
    fn a_fault_that_waits_for_facts_is_injected_after_them() {
        let when = |fact, occurrence| {
            let (cluster, process) = (None, Some(p(0)));
            found(&run(Trigger::When { fact, of: None, cluster, process, occurrence }), Span::ZERO)
        };
        assert_eq!(when(FactKind::Begun, 2), []);
        let wrong = [Contradiction::InjectedWithoutCause(FaultNo(0))];
        assert_eq!(when(FactKind::Begun, 3), wrong);
        assert_eq!(when(FactKind::Sent, 1), wrong);
        let mut run = run(Trigger::When {
            fact: FactKind::Sent,
            of: None,
            cluster: None,
            process: None,
            occurrence: 1,
        });
        run.context.common_clock = false;
        assert_eq!(found(&run, Span::ZERO), wrong, "on real processes");
    }

    #[test]
    fn a_fault_strikes_a_node_that_logged_a_line_for_its_watch() {
        let wrong = [Contradiction::StruckAnotherNode(FaultNo(0))];
        let isolated = |cluster, other| Fault::Partition {
            from: ClusterId(cluster),
            to: vec![ClusterId(other)],
            both: true,
            span: Span::from_secs(1),
        };
        let found = |run: &Run| {
            let mut found = found(run, Span::ZERO);
            found.retain(|it| matches!(it, Contradiction::StruckAnotherNode(_)));
            found
        };
        for fault in [Fault::crash(p(0)), isolated(0, 1)] {
            let mut run = run(at(1000));
            run.context.plan[0].reported = Some(WatchNo(1));
            inject(&mut run, fault);
            assert_eq!(found(&run), wrong);
            for (watch, expected) in [(0, &wrong[..]), (1, &[])] {
                let line = Observation::Logged {
                    watch: WatchNo(watch),
                    line: "I lead".into(),
                    log_line: 0,
                    is_error: false,
                    groups: [].into(),
                };
                run.state(0, Fact::Observed(Box::new(line)));
                assert_eq!(found(&run), expected, "watch {watch}");
            }
            inject(&mut run, isolated(1, 0));
            assert_eq!(found(&run), wrong, "the other cluster has logged nothing");
        }
    }

    /// Replaces the injected fault.
    fn inject(run: &mut Run, other: Fault) {
        for (_, fact) in run.trace.streams.get_mut(&(ProcessId::SUPERVISOR, Life(0))).unwrap() {
            if let Fact::Injecting { fault, .. } = fact {
                **fault = other.clone();
            }
        }
    }

    #[test]
    fn the_storage_has_the_planned_fate() {
        let mut run = run(at(1000));
        let (process, life, fault) = (p(0), Life(1), FaultNo(0));
        let other = |run: &mut Run, to| {
            for (_, fact) in run.trace.streams.get_mut(&(ProcessId::SUPERVISOR, Life(0))).unwrap() {
                if let Fact::Failed { storage, .. } = fact {
                    *storage = to;
                }
            }
            found(run, Span::ZERO)
        };
        let wrong = [Contradiction::OtherFate { fault, process, life }];
        assert_eq!(other(&mut run, StorageFate::Lost), wrong);
        run.context.volatile_storage = true;
        assert_eq!(other(&mut run, StorageFate::Lost), []);
        assert_eq!(other(&mut run, StorageFate::Kept), wrong);
    }

    #[test]
    fn a_process_fails_when_the_fault_is_injected() {
        let mut run = run(at(1000));
        let (process, life, fault) = (p(0), Life(1), FaultNo(0));
        let facts = run.trace.streams.get_mut(&(ProcessId::SUPERVISOR, Life(0))).unwrap();
        let failed = facts.iter_mut().find(|(_, fact)| matches!(fact, Fact::Failed { .. })).unwrap();
        failed.0 += Span(1);
        assert_eq!(found(&run, Span::ZERO), [Contradiction::EndedAtOtherTime { fault, process, life }]);
        run.context.common_clock = false;
        assert_eq!(found(&run, Span::ZERO), []);
    }

    #[test]
    fn no_user_changes_a_simulated_federation() {
        let mut run = run(at(1000));
        run.supervisor(Fact::Changed(Box::new(Change::Pause(true))));
        assert_eq!(found(&run, Span::ZERO), [Contradiction::ChangedInVirtualTime]);
        run.context.measures_links = true;
        assert_eq!(found(&run, Span::ZERO), []);
        let (no, due, on) = (FaultNo(0), Time(0), Vec::new());
        run.context.effects = vec![EffectEntry { no, due, on, idle: Vec::new() }];
        assert_eq!(found(&run, Span::ZERO), []);
        run.context.measures_links = false;
        let wrong = [Contradiction::ChangedInVirtualTime, Contradiction::EffectsMeasured];
        assert_eq!(found(&run, Span::ZERO), wrong);
    }

    #[test]
    fn a_link_changes_only_if_a_user_changed_it() {
        let mut run = run(at(1000));
        run.context.measures_links = true;
        let (from, to, since) = (ClusterId(0), ClusterId(1), Some(Time(1)));
        let requested = LinkProperties { latency: Span(5), ..LinkProperties::default() };
        run.context.links = vec![LinkEntry { from, to, requested, measured: None, observed: None, since }];
        assert_eq!(found(&run, Span::ZERO), [Contradiction::LinkNeverChanged { from, to }]);
        let properties = requested;
        run.supervisor(Fact::Changed(Box::new(Change::Link { from, to, properties })));
        assert_eq!(found(&run, Span::ZERO), []);
    }

    #[test]
    fn a_cluster_loss_ends_every_process_of_its_cluster() {
        let lost = |storage, killed: &[u32]| {
            let mut run = Run::new(&[&[0, 1], &[2]]);
            let (life, by) = (Life(1), EndedBy::Silence);
            run.supervisor(Fact::Failed { process: p(1), life, storage: StorageFate::Kept, by });
            let fault = Fault::kill(ClusterId(0), storage);
            run.supervisor(Fact::Injecting { no: FaultNo(0), fault: Box::new(fault) });
            let by = EndedBy::Fault(FaultNo(0));
            for process in killed.iter().copied().map(p) {
                run.supervisor(Fact::Failed { process, life, storage, by });
            }
            let mut found = Vec::new();
            losses(&run.history(), &mut found);
            found
        };
        let missing = |process| Contradiction::NotLost { fault: FaultNo(0), process: p(process) };
        assert_eq!(lost(StorageFate::Kept, &[0]), [], "the other process had already failed");
        assert_eq!(lost(StorageFate::Kept, &[]), [missing(0)]);
        assert_eq!(lost(StorageFate::Lost, &[0, 1]), []);
        assert_eq!(lost(StorageFate::Lost, &[0]), [missing(1)]);
    }

    /// Returns the contradictions of a run in which p0 is paused for these numbers of seconds, one second apart, and
    /// resumes after `resumed` seconds.
    fn paused(common_clock: bool, spans: &[u64], resumed: Option<u64>, acts: bool) -> Vec<Contradiction> {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.common_clock = common_clock;
        run.context.outcome = Some(faultline_core::fault::Outcome::Deadline);
        let start = run.trace.supervisor().last().unwrap().0;
        let second = |number: u64| start + Span::from_secs(number);
        let process = p(0);
        let life = Life(1);
        for (no, span) in (0..).zip(spans) {
            let fault = Box::new(Fault::pause(process, Span::from_secs(*span)));
            let facts = run.trace.streams.get_mut(&(ProcessId::SUPERVISOR, Life(0))).unwrap();
            facts.push((second(no.into()), Fact::Injecting { no: FaultNo(no), fault }));
        }
        let facts = run.trace.streams.get_mut(&(ProcessId::SUPERVISOR, Life(0))).unwrap();
        facts.extend(resumed.map(|it| (second(it), Fact::Resumed { process, life })));
        if acts {
            let own = run.trace.streams.entry((process, life)).or_default();
            own.push((start + Span::from_millis(1500), Fact::Computed { since: faultline_core::FactNo(0) }));
        }
        run.context.end = second(100);
        let mut found = Vec::new();
        pauses(&run.history(), Span::from_secs(30), &mut found);
        found
    }

    #[test]
    fn a_pause_lasts_as_long_as_planned() {
        let (process, life) = (p(0), Life(1));
        let wrong = [Contradiction::ResumedAtOtherTime(process, life)];
        assert_eq!(paused(true, &[5], Some(5), false), []);
        assert_eq!(paused(true, &[5], Some(4), false), wrong);
        assert_eq!(paused(true, &[5], Some(6), false), wrong);
        assert_eq!(paused(false, &[5], Some(6), false), []);
        assert_eq!(paused(false, &[5], Some(4), false), wrong);
        let late_by = |lasts: u64, millis: u64| {
            let mut run = Run::new(&[&[0], &[1]]);
            run.context.common_clock = false;
            run.context.outcome = Some(faultline_core::fault::Outcome::Deadline);
            let fault = Box::new(Fault::pause(process, Span::from_millis(lasts)));
            run.supervisor(Fact::Injecting { no: FaultNo(0), fault });
            run.wait(Span::from_millis(lasts - millis));
            run.supervisor(Fact::Resumed { process, life });
            let mut found = Vec::new();
            pauses(&run.history(), Span::from_secs(30), &mut found);
            found
        };
        assert_eq!(late_by(1000, 150), [], "the injection was recorded late");
        assert_eq!(late_by(1000, 300), wrong);
        assert_eq!(late_by(100, 99), wrong, "a short pause did not take place");
        assert_eq!(paused(false, &[5], Some(50), false), wrong);
        assert_eq!(paused(true, &[], Some(5), false), wrong, "it was not paused");
        assert_eq!(paused(true, &[5], None, false), [Contradiction::NeverResumed(process, life)]);
    }

    #[test]
    fn a_shorter_pause_does_not_end_a_longer_one() {
        let wrong = [Contradiction::ResumedAtOtherTime(p(0), Life(1))];
        assert_eq!(paused(true, &[9, 2], Some(9), false), []);
        assert_eq!(paused(true, &[9, 2], Some(3), false), wrong);
        assert_eq!(paused(true, &[2, 9], Some(10), false), []);
        assert_eq!(paused(true, &[2, 9], Some(2), false), wrong);
    }

    #[test]
    fn a_paused_process_reports_nothing() {
        let wrong = [Contradiction::ActedWhilePaused(p(0), Life(1))];
        assert_eq!(paused(true, &[5], Some(5), true), wrong);
        assert_eq!(paused(false, &[5], Some(5), true), [], "clocks differ");
    }

    #[test]
    fn a_fault_takes_effect_on_lives_that_it_ended() {
        let mut run = run(at(1000));
        let effect = |process, life| Effect {
            process: p(process),
            life: Life(life),
            at: None,
            exited: None,
            slowed: None,
            error: Span(0),
        };
        for (on, other) in [(effect(0, 1), None), (effect(0, 2), Some((0, 2))), (effect(1, 1), Some((1, 1)))]
        {
            run.context.effects =
                vec![EffectEntry { no: FaultNo(0), due: Time(0), on: vec![on], idle: Vec::new() }];
            let mut found = Vec::new();
            effects(&run.history(), &mut found);
            let wrong = other.map(|(process, life)| {
                let (fault, process, life) = (FaultNo(0), p(process), Life(life));
                Contradiction::EffectElsewhere { fault, process, life }
            });
            assert_eq!(found, Vec::from_iter(wrong));
        }
    }

    #[test]
    fn only_the_loss_of_its_storage_ends_a_process_without_storage() {
        for (by, storage, is_right) in [
            (EndedBy::Silence, StorageFate::Kept, true),
            (EndedBy::Silence, StorageFate::Lost, false),
            (EndedBy::StorageLost, StorageFate::Lost, true),
            (EndedBy::StorageLost, StorageFate::Kept, false),
        ] {
            let mut run = Run::new(&[&[0], &[1]]);
            run.supervisor(Fact::Failed { process: p(0), life: Life(1), storage, by });
            let wrong = Contradiction::FateWithoutCause(p(0), Life(1));
            let expected = if is_right { vec![] } else { vec![wrong] };
            assert_eq!(found(&run, Span::ZERO), expected, "{by:?} {storage:?}");
        }
    }

    #[test]
    fn a_process_starts_once_its_node_is_repaired_or_on_a_free_spare() {
        let (process, life) = (p(0), Life(2));
        // p0 is killed after 1 s, with a repair of 5 s. It moves to a spare, or not, and starts again.
        let started = |spares: u32, moved: Option<u64>, at: u64| {
            let mut run = Run::new(&[&[0], &[1]]);
            run.context.common_clock = true;
            run.context.spares = spares;
            run.wait(Span::from_secs(1));
            let fault = Fault::Kill {
                target: p(0).into(),
                storage: StorageFate::Kept,
                returns: true,
                repair: Some(Span::from_secs(5)),
            };
            run.supervisor(Fact::Injecting { no: FaultNo(0), fault: Box::new(fault) });
            let (storage, by) = (StorageFate::Kept, EndedBy::Fault(FaultNo(0)));
            run.supervisor(Fact::Failed { process, life: Life(1), storage, by });
            run.supervisor(Fact::Detected { process, life: Life(1) });
            for number in 0..moved.unwrap_or_default() {
                let (storage, by) = (StorageFate::Lost, EndedBy::Moved);
                run.supervisor(Fact::Failed { process: p(number as u32), life: Life(1), storage, by });
            }
            run.wait(Span::from_secs(at - 1));
            let boot = faultline_core::Boot::Replaced;
            run.supervisor(Fact::LifeStarted { process, life, boot });
            let mut found = Vec::new();
            repairs(&run.history(), Span::ZERO, &mut found);
            found
        };
        let moved = |process| Contradiction::MovedWithoutCause(p(process), Life(1));
        assert_eq!(started(0, None, 6), []);
        assert_eq!(started(0, None, 5), [Contradiction::StartedDuringRepair(process, life)]);
        assert_eq!(started(1, Some(1), 2), []);
        assert_eq!(started(0, Some(1), 6), [moved(0)], "there is no spare");
        assert_eq!(started(2, Some(2), 2), [moved(1)], "the node of p1 is not under repair");
    }

    #[test]
    fn a_cluster_joins_and_leaves_once() {
        let mut run = run(at(1000));
        for fact in [Fact::Joined(ClusterId(1)), Fact::Leaving(ClusterId(1)), Fact::Left(ClusterId(1))] {
            run.supervisor(fact);
        }
        assert_eq!(found(&run, Span::ZERO), []);
        run.supervisor(Fact::Left(ClusterId(1)));
        assert_eq!(found(&run, Span::ZERO), [Contradiction::MovedAgain(ClusterId(1))]);
    }
}
