//! Faults of a system that were injected, but changed nothing: what they were to strike was so already.

use std::collections::BTreeMap;

use faultline_core::{ClusterId, EndedBy, Fault, FaultNo, ProcessId, Span, StorageFate, Time};
use faultline_trace::manifest::EffectEntry;

use crate::history::History;

/// What a fault holds in a state for a while.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    /// A paused process.
    Paused(ProcessId),
    /// A cut link.
    Cut(ClusterId, ClusterId),
}

/// The remedy for such a fault.
pub const REMEDY: &str = "plan it for a time at which it changes something, or remove it";

/// Returns the faults of a system that changed nothing, each with the reason as a predicate:
///
/// * The command of each process that it was to kill or pause had ended, and the storage is kept.
/// * Everything that it paused or cut was paused or cut by other faults for all the time, or was killed or healed at
///   once. A fiftieth of the planned time counts as nothing.
///
/// Of two equal faults, the second one changed nothing. Faults of other applications always change something.
pub fn redundant(history: &History<'_>) -> BTreeMap<FaultNo, &'static str> {
    if history.context.system.is_none() {
        return BTreeMap::new();
    }
    let mut redundant = BTreeMap::new();
    let mut held: BTreeMap<Held, Vec<(Time, Time)>> = BTreeMap::new();
    for &(no, fault, injected, _) in &history.supervision.injected {
        // A busy machine applies it later.
        let effect = history.context.effects.iter().find(|it| it.no == no);
        let at =
            effect.and_then(|it| it.on.iter().filter_map(|it| it.at).min()).unwrap_or(injected).max(injected);
        if found_no_command(effect, fault) {
            redundant.insert(no, "found no running command of its target");
            continue;
        }
        let holds: Vec<(Held, Time)> = match fault.pauses() {
            Some(process) => {
                vec![(Held::Paused(process), resumed(history, (no, process), at, fault.until(at)))]
            }
            None => fault.cuts().iter().map(|it| (Held::Cut(it.0, it.1), fault.until(at))).collect(),
        };
        let mut is_redundant = !holds.is_empty();
        let moment = Span(fault.until(at).since(at).0 / 50).max(Span::from_millis(1));
        for (what, until) in holds {
            let periods = held.entry(what).or_default();
            is_redundant &= is_covered(periods, at, until, moment);
            periods.push((at, until));
        }
        if is_redundant {
            let reason = match fault.pauses() {
                Some(_) => "changed nothing: its target was paused already, or was killed at once",
                None => "changed nothing: other faults cut the same links meanwhile, or it lasted no time",
            };
            redundant.insert(no, reason);
        }
    }
    redundant
}

fn found_no_command(effect: Option<&EffectEntry>, fault: &Fault) -> bool {
    // A command that is told to end has ended before its life does.
    if fault.storage_fate() == Some(StorageFate::Lost) || fault.is_stop() {
        return false;
    }
    effect.is_some_and(|it| !it.idle.is_empty() && it.on.iter().all(|on| it.idle.contains(&on.process)))
}

/// Returns when a pause of a process that a fault began at `at` ended: as planned, or with the life. A busy machine kills a
/// process later than planned.
fn resumed(history: &History<'_>, (no, process): (FaultNo, ProcessId), at: Time, planned: Time) -> Time {
    let due = |no: FaultNo| history.context.effects.iter().find(|it| it.no == no).map(|it| it.due);
    let ends = history.supervision.ends.iter().filter(|it| it.process == process && it.at >= at);
    let Some(end) = ends.min_by_key(|it| it.at) else { return planned };
    let killed_by = end.by.and_then(EndedBy::fault).filter(|it| *it != no);
    let is_at_once = killed_by.and_then(due).is_some_and(|it| due(no) == Some(it));
    if is_at_once { at } else { end.at.min(planned) }
}

/// Returns whether periods cover all time from `from` to `until`, but for a moment.
fn is_covered(periods: &[(Time, Time)], mut from: Time, until: Time, moment: Span) -> bool {
    while from + moment < until {
        let later = periods.iter().filter(|it| it.0 <= from && it.1 > from).map(|it| it.1).max();
        match later {
            Some(later) => from = later,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use faultline_core::{Fact, Life};
    use faultline_trace::expectation::SystemEntry;
    use faultline_trace::manifest::Effect;

    use super::*;
    use crate::testing::{Run, p};

    fn run() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.system = Some(SystemEntry::default());
        run.supervisor(Fact::Begun);
        run
    }

    fn seconds(seconds: u64) -> Span {
        Span::from_secs(seconds)
    }

    fn inject(run: &mut Run, no: u32, fault: Fault) {
        run.supervisor(Fact::Injecting { no: FaultNo(no), fault: Box::new(fault) });
    }

    fn found(run: &Run) -> Vec<u32> {
        redundant(&run.history()).keys().map(|it| it.0).collect()
    }

    fn cut(from: u16, to: u16, span: u64) -> Fault {
        let (from, to) = (ClusterId(from), vec![ClusterId(to)]);
        Fault::Partition { from, to, both: true, span: seconds(span) }
    }

    #[test]
    fn a_pause_within_a_pause_and_a_cut_within_a_cut_change_nothing() {
        let mut run = run();
        inject(&mut run, 0, Fault::pause(p(0), seconds(5)));
        inject(&mut run, 1, cut(0, 1, 5));
        run.wait(seconds(1));
        inject(&mut run, 2, Fault::pause(p(0), seconds(3)));
        inject(&mut run, 3, Fault::pause(p(1), seconds(3)));
        inject(&mut run, 4, cut(1, 0, 3));
        run.wait(seconds(1));
        inject(&mut run, 5, Fault::pause(p(0), seconds(9)));
        inject(&mut run, 6, cut(1, 0, 9));
        assert_eq!(found(&run), [2, 4]);
        run.context.system = None;
        assert_eq!(found(&run), [0; 0]);
    }

    #[test]
    fn a_pause_of_a_process_that_is_killed_at_once_changes_nothing() {
        let killed_after = |millis, due: [u64; 2]| {
            let mut run = run();
            inject(&mut run, 0, Fault::pause(p(0), seconds(5)));
            run.wait(Span::from_millis(millis));
            inject(&mut run, 1, Fault::crash(p(0)));
            let (by, storage) = (EndedBy::Fault(FaultNo(1)), StorageFate::Kept);
            run.supervisor(Fact::Failed { process: p(0), life: Life(1), storage, by });
            let entry = |(no, due): (u32, u64)| EffectEntry {
                no: FaultNo(no),
                due: Time(due),
                on: vec![],
                idle: vec![],
            };
            run.context.effects = (0..).zip(due).map(entry).collect();
            found(&run)
        };
        assert_eq!((killed_after(20, [1, 2]), killed_after(300, [1, 1])), (vec![0], vec![0]));
        assert_eq!(killed_after(300, [1, 2]), [0; 0]);
    }

    #[test]
    fn a_fault_that_found_no_command_changed_nothing_unless_storage_is_lost() {
        for (storage, expected) in [(StorageFate::Kept, vec![0]), (StorageFate::Lost, vec![])] {
            let mut run = run();
            inject(&mut run, 0, Fault::kill(ClusterId(0), storage));
            let on = Effect {
                process: p(0),
                life: Life(1),
                at: Some(Time(1)),
                exited: None,
                slowed: None,
                error: Span::ZERO,
            };
            let entry = EffectEntry { no: FaultNo(0), due: Time(0), on: vec![on], idle: vec![p(0)] };
            run.context.effects = vec![entry.clone()];
            assert_eq!(found(&run), expected);
            // Another process of the cluster was killed.
            let on = vec![on, Effect { process: p(1), ..on }];
            run.context.effects = vec![EffectEntry { on, ..entry }];
            assert_eq!(found(&run), [0; 0]);
        }
    }
}
