//! At most one life of a process acts at a time: lives are numbered in ascending order, a life starts only
//! after the previous one has ended (fencing) and its end has been detected, a life that follows the loss of the
//! process's storage starts as replaced, and only lives that were started report facts. (A process whose cluster has
//! not joined reports no facts. It has stored nothing, so its next life may start fresh.) If all processes read the
//! same clock, the last fact of a life also precedes the start of the next, and no process sends or receives anything
//! before the application starts: until then, a protocol may be unable to survive a failure.

use faultline_core::{Boot, Fact, FactNo, Life, ProcessId, Time};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Context, History, Source};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    ActedBeforeBeginning { process: ProcessId, life: Life },
    StartedAfterNewer { process: ProcessId, older: Life, newer: Life },
    StartedBeforeEnd { process: ProcessId, older: Life, newer: Life },
    ActedAfterNext { process: ProcessId, older: Life, newer: Life, at: Time },
    StartedUndetected { process: ProcessId, older: Life, newer: Life },
    StartedOnLostStorage { process: ProcessId, life: Life },
    NeverStarted { process: ProcessId, life: Life },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::ActedBeforeBeginning { process: by, life } => {
                format!(
                    "{life} of {} sent or received something before the application started",
                    names.process(by)
                )
            }
            Breach::StartedAfterNewer { process: of, older, newer } => {
                format!("{newer} of {} was started after {older}", names.process(of))
            }
            Breach::StartedBeforeEnd { process: of, older, newer } => {
                format!("{newer} of {} was started before {older} had ended", names.process(of))
            }
            Breach::ActedAfterNext { process: of, older, newer, at } => {
                format!("{older} of {} still acted at {at}, after {newer} was started", names.process(of))
            }
            Breach::StartedUndetected { process: of, older, newer } => {
                format!(
                    "{newer} of {} was started before the failure of {older} was detected",
                    names.process(of)
                )
            }
            Breach::StartedOnLostStorage { process: of, life } => {
                format!("{life} of {} was started as if its storage had not been lost", names.process(of))
            }
            Breach::NeverStarted { process: of, life } => {
                format!("{life} of {} reported facts, but was never started", names.process(of))
            }
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::OneLife, "at most one life of each process acted at a time", check);

fn check(history: &History<'_>, finding: &mut Findings) {
    let (context, supervision) = (history.context, &history.supervision);
    if history.trace.supervisor().is_empty() {
        finding.lacks_facts("the supervisor's facts are missing");
        return;
    }
    let mut starts = supervision.starts.clone();
    // The sort is stable: the starts of one process stay in the supervisor's order.
    starts.sort_by_key(|&(process, ..)| process);
    for pair in starts.windows(2) {
        let [(process, older, _), (same, newer, started)] = [pair[0], pair[1]];
        if process != same {
            continue;
        }
        finding.instances += 1;
        if newer <= older {
            finding.violated([word(started)], Breach::StartedAfterNewer { process, older, newer });
        }
        let end = supervision.end_of(process, older);
        if end.is_none_or(|end| end.fact > started) {
            finding.violated([word(started)], Breach::StartedBeforeEnd { process, older, newer });
        }
        if end.is_some_and(|end| end.detected.is_none()) {
            finding.violated([word(started)], Breach::StartedUndetected { process, older, newer });
        }
        let boot = match history.trace.supervisor()[started].1 {
            Fact::LifeStarted { boot, .. } => Some(boot),
            _ => None,
        };
        let mut earlier = history.trace.streams.range((process, Life(0))..=(process, older));
        let is_known_lost = match boot {
            Some(Boot::Replaced) => true,
            Some(Boot::Fresh) => earlier.all(|(_, stream)| stream.is_empty()),
            Some(Boot::Restarted) | None => false,
        };
        let mut losses = supervision.storage_losses(process).iter();
        if losses.any(|&(life, _, fact)| life == older && fact < started) && !is_known_lost {
            finding.violated([word(started)], Breach::StartedOnLostStorage { process, life: newer });
        }
        let last = history.trace.streams.get(&(process, older)).and_then(|stream| stream.last());
        if let Some((said, _)) = last.filter(|_| context.common_clock)
            && *said > history.trace.supervisor()[started].0
        {
            finding.violated([word(started)], Breach::ActedAfterNext { process, older, newer, at: *said });
        }
    }
    starts.sort_unstable_by_key(|&(process, life, _)| (process, life));
    for &(process, life) in
        history.trace.streams.keys().filter(|(process, _)| *process != ProcessId::SUPERVISOR)
    {
        finding.instances += 1;
        if starts.binary_search_by_key(&(process, life), |&(process, life, _)| (process, life)).is_err() {
            finding.violated(
                [Source { process, life, number: FactNo(0) }],
                Breach::NeverStarted { process, life },
            );
        }
    }
    if let Some(begun) = supervision.begun.filter(|_| context.common_clock) {
        for (&(process, life), stream) in &history.trace.streams {
            let mut numbered = stream.iter().zip(0..);
            let first = numbered.find(|((_, fact), _)| is_of_application(fact));
            if let Some((_, number)) = first.filter(|((at, _), _)| *at < begun) {
                let source = Source { process, life, number: FactNo(number) };
                finding.violated([source], Breach::ActedBeforeBeginning { process, life });
            }
        }
    }
}

fn is_of_application(fact: &Fact) -> bool {
    matches!(fact, Fact::Sent { .. } | Fact::Delivered(_) | Fact::Theft { .. })
}

fn word(fact: usize) -> Source {
    Source { process: ProcessId::SUPERVISOR, life: Life(0), number: FactNo(fact as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::{EndedBy, StorageFate, Time};

    fn start(run: &mut Run, life: u32) {
        run.supervisor(Fact::LifeStarted { process: p(0), life: Life(life), boot: Boot::Restarted });
    }

    #[test]
    fn one_life_after_another_is_allowed() {
        let mut run = Run::new(&[&[0]]);
        run.send(0, 0);
        run.kill(0, false);
        run.send(0, 0);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (3, 0));
    }

    #[test]
    fn two_lives_at_a_time_are_found() {
        let mut run = Run::new(&[&[0]]);
        start(&mut run, 2);
        finds!(check_alone(&RULE, &run), Breach::StartedBeforeEnd { older: Life(1), .. });
    }

    #[test]
    fn a_life_after_one_whose_end_was_not_detected_is_found() {
        let mut run = Run::new(&[&[0]]);
        let (process, by) = (p(0), EndedBy::Silence);
        run.supervisor(Fact::Failed { process, life: Life(1), storage: StorageFate::Kept, by });
        start(&mut run, 2);
        finds!(check_alone(&RULE, &run), Breach::StartedUndetected { older: Life(1), .. });
    }

    #[test]
    fn a_life_that_does_not_know_that_its_storage_was_lost_is_found() {
        let mut run = Run::new(&[&[0]]);
        let (process, by) = (p(0), EndedBy::Silence);
        run.kill(0, true);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.supervisor(Fact::Failed { process, life: Life(2), storage: StorageFate::Lost, by });
        run.supervisor(Fact::Detected { process, life: Life(2) });
        start(&mut run, 3);
        finds!(check_alone(&RULE, &run), Breach::StartedOnLostStorage { life: Life(3), .. });
    }

    #[test]
    fn a_life_that_does_not_know_that_its_storage_was_lost_after_a_failure_is_found() {
        let restarted = |boot: Boot| {
            let mut run = Run::new(&[&[0]]);
            let (process, life, by) = (p(0), Life(1), EndedBy::Silence);
            run.supervisor(Fact::Failed { process, life, storage: StorageFate::Kept, by });
            run.supervisor(Fact::Detected { process, life });
            let by = EndedBy::Fault(faultline_core::FaultNo(0));
            run.supervisor(Fact::Failed { process, life, storage: StorageFate::Lost, by });
            run.supervisor(Fact::LifeStarted { process, life: Life(2), boot });
            check_alone(&RULE, &run)
        };
        assert_eq!(restarted(Boot::Replaced).violation_count(), 0);
        finds!(restarted(Boot::Restarted), Breach::StartedOnLostStorage { life: Life(2), .. });
    }

    #[test]
    fn only_a_process_without_facts_may_start_fresh_after_its_storage_was_lost() {
        let restarted_fresh = |has_acted: bool| {
            let mut run = Run::new(&[&[0], &[1]]);
            if has_acted {
                run.send(0, 1);
            }
            let (process, by) = (p(0), EndedBy::StorageLost);
            run.supervisor(Fact::Failed { process, life: Life(1), storage: StorageFate::Lost, by });
            run.supervisor(Fact::Detected { process, life: Life(1) });
            run.supervisor(Fact::LifeStarted { process, life: Life(2), boot: Boot::Fresh });
            check_alone(&RULE, &run)
        };
        assert_eq!(restarted_fresh(false).violation_count(), 0, "its cluster has not joined");
        finds!(restarted_fresh(true), Breach::StartedOnLostStorage { life: Life(2), .. });
    }

    #[test]
    fn a_life_that_was_never_started_is_found() {
        let mut run = Run::new(&[&[0]]);
        run.trace.streams.insert((p(0), Life(9)), vec![(Time(0), Fact::Begun)]);
        finds!(check_alone(&RULE, &run), Breach::NeverStarted { .. });
    }

    #[test]
    fn without_the_supervisor_it_is_unknown() {
        let mut run = Run::new(&[&[0]]);
        run.trace.streams.clear();
        assert!(check_alone(&RULE, &run).open.is_some());
    }

    #[test]
    fn a_fenced_life_that_continues_is_found_by_a_common_clock() {
        let mut run = Run::new(&[&[0]]);
        run.kill(0, false);
        run.trace.streams.insert((p(0), Life(1)), vec![(Time(u64::MAX), Fact::Begun)]);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.context.common_clock = true;
        finds!(check_alone(&RULE, &run), Breach::ActedAfterNext { .. });
    }

    #[test]
    fn a_process_that_acts_before_the_application_begins_is_found() {
        let acted = |is_early: bool| {
            let mut run = Run::new(&[&[0], &[1]]);
            run.context.common_clock = true;
            let begun = Fact::Begun;
            if is_early {
                run.send(0, 1);
                run.wait(faultline_core::Span(1));
            }
            run.supervisor(begun);
            run.send(0, 1);
            check_alone(&RULE, &run)
        };
        assert_eq!(acted(false).violation_count(), 0);
        finds!(acted(true), Breach::ActedBeforeBeginning { process: ProcessId(0), life: Life(1) });
    }
}
