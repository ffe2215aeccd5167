//! The run completed. If the supervisor reports this, every rank that has not left or failed permanently must
//! be alive and, unless it runs tasks, must have a result in its last state.

use faultline_core::fault::Outcome;
use faultline_core::{Claim, Fact, FactNo, ImageName, Life, PhaseClaim, ProcessId};

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
                owner: name.owner,
                position: name.position(),
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
        None => finding.unjudged(Gap::CutShort),
    }
    finding
}

/// Checks that, when the supervisor reports that the run has completed, every rank that has not left or failed
/// permanently is alive and, unless it runs tasks, has reported a result in its last state.
fn check_ranks(history: &History<'_>, finding: &mut Findings) {
    let supervisor = history.trace.supervisor();
    let Some(completed) = supervisor.iter().position(|(_, fact)| *fact == Fact::Completed) else { return };
    let source = Source { process: ProcessId::SUPERVISOR, life: Life(0), number: FactNo(completed as u64) };
    let gone = history.supervision.gone(&history.context.clusters);
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
        if is_down || !is_of_tasks && !has_finished() {
            finding.violated([source], Breach::CompletedWithout { process, is_down });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::fault::{MemoryContent, MemoryPart, MemoryUse};
    use faultline_core::{Digest, EndedBy, GroupId, Span, StorageFate};
    use faultline_trace::manifest::Bounds;

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
    fn a_run_out_of_memory_lists_its_largest_parts_and_remedies() {
        let mut run = Run::new(&[&[0]]);
        let part =
            |content, count: u64, mebibytes: u64| MemoryPart { content, count, bytes: mebibytes << 20 };
        let parts = vec![
            part(MemoryContent::JudgedFacts, 7, 3),
            part(MemoryContent::Checkpoints, 12, 40),
            part(MemoryContent::Queue, 0, 0),
        ];
        let used = MemoryUse { bound: 64 << 20, used: 65 << 20, parts };
        run.context.bounds = Some(bounds(Some(Span::from_secs(1)), Some(Span::from_secs(9))));
        run.context.outcome = Some(Outcome::OutOfMemory(used.into()));
        let finding = check_alone(check, &run);
        assert_eq!(finding.violation_count(), 0);
        let gap = finding.open.unwrap();
        let contents = "reached its memory limit, 64 MiB, with 40 MiB for 12 parts of checkpoints, 3 MiB for 7 facts \
                        and their judgement; collect checkpoints more often (`collectEvery`) or take fewer \
                        (`checkpointEvery`)";
        // In virtual time, and with real processes on one machine, the program itself reaches its limit.
        for measures_links in [false, true] {
            run.context.measures_links = measures_links;
            let sentence = gap.sentence(&run.context);
            assert_eq!(sentence, format!("the program {contents}, or raise `--memory`"));
        }
        run.context.in_pods = true;
        let sentence = gap.sentence(&run.context);
        let fixed = "the limit of a supervisor in a pod is fixed";
        assert_eq!(sentence, format!("the supervisor {contents} ({fixed})"));
    }

    fn bounds(checkpoint_every: Option<Span>, collect_every: Option<Span>) -> Bounds {
        Bounds {
            checkpoint_every: vec![checkpoint_every],
            detect_after: Span::from_millis(500),
            collect_every,
            delivered_within: None,
        }
    }

    #[test]
    fn the_remedy_for_full_memory_fits_the_timers_and_the_largest_part() {
        let second = Some(Span::from_secs(1));
        let remedy = |content, count, bounds: Option<Bounds>, used: u64| {
            let mut run = Run::new(&[&[0]]);
            let parts = vec![MemoryPart { content, count, bytes: 40 << 20 }];
            run.context.bounds = bounds;
            run.context.outcome =
                Some(Outcome::OutOfMemory(MemoryUse { bound: 64 << 20, used: used << 20, parts }.into()));
            check_alone(check, &run).open.unwrap().sentence(&run.context)
        };
        let (checkpoints, logs) = (MemoryContent::Checkpoints, MemoryContent::Logs);
        for (content, count, every, collect, expected) in [
            (
                checkpoints,
                12,
                second,
                second,
                "; collect checkpoints more often (`collectEvery`) or take fewer",
            ),
            (checkpoints, 12, None, second, "; collect checkpoints more often (`collectEvery`), or raise"),
            (checkpoints, 1, None, second, "; use smaller states or fewer `replicas`, or raise"),
            (logs, 12, second, second, "; take and collect checkpoints more often"),
            (
                logs,
                12,
                second,
                Some(Span::ZERO),
                "; take checkpoints more often (`checkpointEvery`), or raise",
            ),
            (logs, 12, None, second, "; take checkpoints (`checkpointEvery`), because"),
        ] {
            let said = remedy(content, count, Some(bounds(every, collect)), 41);
            assert!(said.contains(expected), "{said}");
            assert!(said.contains("1 MiB for everything else"), "{said}");
        }
        let said = remedy(checkpoints, 12, None, 90);
        let expected = "with 50 MiB for everything else, such as the states of processes, 40 MiB for 12 parts of \
                        checkpoints; use smaller states or fewer processes, or raise `--memory`";
        assert!(said.ends_with(expected), "{said}");
    }

    #[test]
    fn an_unrecoverable_cluster_names_the_processes_that_were_asked() {
        let mut run = Run::new(&[&[0], &[1]]);
        let missing = [(run.image(0, 0, 3), vec![p(0), p(1)])].into();
        run.context.outcome = Some(Outcome::Unrecoverable { group: GroupId(0), missing });
        let reason = check_alone(check, &run).open.unwrap().sentence(&run.context);
        assert!(reason.contains("p0's part of checkpoint 3 (not found at p0, p1)"), "{reason}");
    }
}
