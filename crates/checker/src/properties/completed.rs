//! The run completed. If the supervisor reports this, every rank that has not left or failed permanently must
//! be alive and, unless it runs tasks, must have a result in its last state.

use std::sync::Arc;

use faultline_core::fault::Outcome;
use faultline_core::{Breakage, Claim, Fact, FactKind, FactNo, ImageName, Life, PhaseClaim, ProcessId};

use crate::finding::{Breach, Findings, Gap, MissingPart};
use crate::judgement::Property;
use faultline_history::{History, Source};

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::Completed);
    let context = history.context;
    finding.instances = 1;
    match &context.outcome {
        Some(Outcome::Completed) => check_ranks(history, &mut finding),
        Some(Outcome::Deadline) => {
            finding.unjudged(Gap::DeadlineExceeded { begun: history.supervision.begun.is_some() });
        }
        Some(Outcome::Interrupted) => finding.unjudged(Gap::Interrupted),
        Some(Outcome::Unrecoverable { group, missing }) => {
            let part = |(name, asked): &(ImageName, Vec<ProcessId>)| MissingPart {
                name: history.newest_lost(*name),
                is_log: history.member(name.owner).is_none(),
                asked: asked.clone(),
            };
            let missing = missing.iter().map(part).collect();
            finding.unjudged(Gap::Unrecoverable { group: *group, missing });
        }
        Some(Outcome::NotRepeated { id }) => {
            let is_it = |claim: &Claim| matches!(claim, Claim::Phase(PhaseClaim::NotRepeated { id: of, .. }) if of == id);
            match history.claims.iter().find(|it| is_it(it.claim)) {
                Some(claimed) => {
                    finding.violated([history.source(claimed.at)], Breach::NotDeterministic { message: *id });
                }
                None => finding.unjudged(Gap::NotDeterministic { message: *id }),
            }
        }
        Some(Outcome::OutOfMemory(used)) => finding.unjudged(Gap::OutOfMemory(used.clone())),
        Some(Outcome::Broken(breakage)) => check_program(history, &mut finding, breakage),
        // Properties of their own report these violations.
        Some(Outcome::Panicked(_) | Outcome::Stalled { .. }) => {}
        None => finding.unjudged(Gap::CutShort),
    }
    finding
}

/// Reports a program that can no longer act as a protocol. If the machine may be the cause, nothing is judged.
fn check_program(history: &History<'_>, finding: &mut Findings, breakage: &Arc<Breakage>) {
    let is_it = |claim: &Claim| matches!(claim, Claim::Broke(of) if of == breakage);
    match history.claims.iter().find(|it| is_it(it.claim)) {
        Some(claimed) if breakage.kind.is_violation() => {
            finding.violated([history.source(claimed.at)], Breach::Broke(breakage.clone()));
        }
        _ => finding.unjudged(Gap::Broke(breakage.clone())),
    }
}

/// Checks that, when the supervisor reports that the run has completed, every rank that has not left or failed
/// permanently is alive and, unless it runs tasks, has reported a result in its last state.
fn check_ranks(history: &History<'_>, finding: &mut Findings) {
    let supervisor = history.trace.supervisor();
    let Some(completed) = supervisor.iter().position(|(_, fact)| *fact == Fact::Completed) else { return };
    let source = Source { process: ProcessId::SUPERVISOR, life: Life(0), number: FactNo(completed as u64) };
    let gone = history.supervision.gone(&history.context.clusters);
    let has_results = history.context.recorded.contains(FactKind::Finished);
    let is_of_tasks = history.tasks.is_some() || history.planned.is_some();
    for &process in history.context.clusters.iter().flatten() {
        let Some(newest) = history.supervision.newest_life(process) else { continue };
        if gone.contains(&process) || history.has_left(process) {
            continue;
        }
        let is_down = history.supervision.end_of_life(process, newest) < completed;
        let has_finished = || {
            let last = history.processes[process.index()].segments.end.checked_sub(1);
            history.results.iter().any(|(at, ..)| Some(at.segment.0) == last)
        };
        if is_down && history.context.derives_supervision() {
            continue;
        }
        if is_down || !is_of_tasks && has_results && !has_finished() {
            finding.violated([source], Breach::CompletedWithout { process, is_down });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::fault::MemoryUse;
    use faultline_core::{BreakageKind, Digest, EndedBy, GroupId, StorageFate};

    #[test]
    fn a_program_that_broke_its_contract_violates_and_a_silent_one_is_not_judged() {
        for (kind, is_violation) in [(BreakageKind::Contract, true), (BreakageKind::Silent, false)] {
            let mut run = Run::new(&[&[0], &[1]]);
            let (program, what, log) = ("a.py".into(), "broke its contract".into(), ["Oh".into()].into());
            let breakage = Arc::new(Breakage { process: p(1), life: Life(1), program, kind, what, log });
            run.context.outcome = Some(Outcome::Broken(breakage.clone()));
            assert_eq!(check_alone(check, &run).open, Some(Gap::Broke(breakage.clone())), "no claim");
            run.claim(1, Claim::Broke(breakage.clone()));
            let finding = check_alone(check, &run);
            assert_eq!(finding.violation_count() == 1, is_violation);
            if is_violation {
                let text = finding.wrong()[0].sentence(&run.context);
                assert!(text.ends_with("(a.py, life 1) broke its contract; its log ends with: Oh"), "{text}");
            }
        }
    }

    #[test]
    fn a_program_that_is_not_deterministic_is_refused() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        run.context.outcome = Some(Outcome::NotRepeated { id });
        assert!(check_alone(check, &run).open.is_some(), "no process claimed this outcome");
        run.claim(
            1,
            faultline_core::Claim::Phase(faultline_core::PhaseClaim::NotRepeated {
                id,
                recorded: 2,
                repeated: 1,
            }),
        );
        let finding = check_alone(check, &run);
        assert_eq!(finding.violation_count(), 1);
        finds!(finding, Breach::NotDeterministic { .. });
    }

    /// A run of one rank that has finished. The supervisor has not reported the completion of the run yet.
    fn finished() -> Run {
        let mut run = Run::new(&[&[0]]);
        run.commit_all(0, &[0]);
        run.finish(0, Digest([1; 16]));
        run
    }

    #[test]
    fn a_run_with_a_rank_that_is_down_has_not_completed() {
        let mut run = finished();
        run.supervisor(Fact::Completed);
        assert_eq!(check_alone(check, &run).violation_count(), 0);
        let mut run = finished();
        let (process, by) = (p(0), EndedBy::Silence);
        run.supervisor(Fact::Failed { process, life: Life(1), storage: StorageFate::Kept, by });
        run.supervisor(Fact::Completed);
        finds!(check_alone(check, &run), Breach::CompletedWithout { is_down: true, .. });
    }

    #[test]
    fn a_run_whose_result_was_undone_has_not_completed() {
        let mut run = finished();
        run.restore(0, 1, Some((0, 1)));
        run.supervisor(Fact::Completed);
        finds!(check_alone(check, &run), Breach::CompletedWithout { is_down: false, .. });
    }

    #[test]
    fn only_a_completed_run_passes() {
        let mut run = Run::new(&[&[0]]);
        assert_eq!(check_alone(check, &run).open, None);
        for outcome in [Some(Outcome::Deadline), Some(Outcome::Interrupted), None] {
            run.context.outcome = outcome;
            assert!(check_alone(check, &run).open.is_some());
        }
    }

    #[test]
    fn a_deadline_before_the_start_is_reported_as_such() {
        let mut run = Run::new(&[&[0]]);
        run.context.outcome = Some(Outcome::Deadline);
        let why = |run: &Run| {
            check_alone(check, run).open.expect("a run that exceeded its deadline has not completed")
        };
        assert_eq!(why(&run), Gap::DeadlineExceeded { begun: false });
        run.supervisor(faultline_core::Fact::Begun);
        assert_eq!(why(&run), Gap::DeadlineExceeded { begun: true });
    }

    #[test]
    fn a_run_out_of_memory_is_not_judged() {
        let mut run = Run::new(&[&[0]]);
        let used = Arc::new(MemoryUse { bound: 64 << 20, used: 65 << 20, parts: Vec::new() });
        run.context.outcome = Some(Outcome::OutOfMemory(used.clone()));
        let finding = check_alone(check, &run);
        assert_eq!((finding.violation_count(), finding.open), (0, Some(Gap::OutOfMemory(used))));
    }

    #[test]
    fn an_unrecoverable_cluster_names_the_processes_that_were_asked() {
        let mut run = Run::new(&[&[0], &[1]]);
        let (name, asked) = (run.image(0, 0, 3), vec![p(0), p(1)]);
        run.context.outcome =
            Some(Outcome::Unrecoverable { group: GroupId(0), missing: [(name, asked.clone())].into() });
        let missing = vec![MissingPart { name, is_log: false, asked }];
        let expected = Gap::Unrecoverable { group: GroupId(0), missing };
        assert_eq!(check_alone(check, &run).open, Some(expected));
    }

    #[test]
    fn an_unrecoverable_cluster_names_its_newest_lost_checkpoint() {
        // p1, which has lost everything, no longer knows that checkpoint 2 was committed.
        for (keeps, expected) in [(false, 2), (true, 1)] {
            let mut run = Run::new(&[&[0, 1], &[2]]);
            run.commit_all(0, &[0, 1]);
            run.commit_all(0, &[0, 1]);
            run.kill(1, !keeps);
            let first = run.image(1, 0, 1);
            run.context.outcome =
                Some(Outcome::Unrecoverable { group: GroupId(0), missing: [(first, vec![p(1)])].into() });
            let Some(Gap::Unrecoverable { missing, .. }) = check_alone(check, &run).open else { panic!() };
            assert_eq!(missing[0].name, run.image(1, 0, expected));
        }
    }
}
