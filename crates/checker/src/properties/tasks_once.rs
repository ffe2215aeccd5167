//! Every task of a program contributes to the result exactly once: no process runs, lends or returns a task that it
//! does not have, and the process that ends the program has used the outcome of every task that was spawned.

use faultline_core::fault::Outcome;
use faultline_core::{FactKind, ProcessId, TaskId, Theft, TheftStep};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use crate::words::theft_name;
use faultline_history::{Context, History, ImpossibleFact, Tasks};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    ImpossibleFact {
        process: ProcessId,
        what: ImpossibleFact,
    },
    WrongResultOfTasks {
        process: ProcessId,
    },
    OtherTasksThanSpawned {
        process: ProcessId,
    },
    Stalled {
        /// The first lent task whose result never arrived, if any.
        lent: Option<(Theft, TaskId)>,
    },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::ImpossibleFact { process: by, what } => {
                format!("{} {}", names.process(by), impossible(what, names))
            }
            Breach::WrongResultOfTasks { process: by } => {
                format!("the tasks in the result of {} do not match the facts", names.process(by))
            }
            Breach::OtherTasksThanSpawned { process: by } => {
                format!(
                    "the tasks in the result of {} are not the tasks that were spawned",
                    names.process(by)
                )
            }
            Breach::Stalled { lent } => {
                let stalled =
                    "the program stalled: no task was run or stolen for a long time before the deadline";
                match lent {
                    Some((theft, task)) => format!(
                        "{stalled}, and the result of {} never arrived ({})",
                        names.task(task),
                        theft_name(theft, names)
                    ),
                    None => stalled.to_owned(),
                }
            }
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::TasksOnce, "every task ran exactly once", check).needs(&[FactKind::Ran]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(tasks) = &history.tasks else { return };
    finding.instances = tasks.moves;
    for (at, what) in &tasks.impossible {
        finding.violated(
            [history.source(*at)],
            Breach::ImpossibleFact { process: history.process_of(*at), what: *what },
        );
    }
    for end in &tasks.ends {
        finding.instances += 1;
        let process = history.process_of(end.at);
        match end.found {
            None => {
                let is_incomplete = !history.trace.flaws.is_empty();
                let why = match is_incomplete {
                    true => "facts are missing",
                    false => "executions of a task spawned different tasks",
                };
                let result = format!("the result of {}", history.context.process(process));
                finding.remark(format!("{why}, so the tasks in {result} could not be checked"));
            }
            Some(found) if found != end.reported => {
                finding.violated([history.source(end.at)], Breach::WrongResultOfTasks { process });
            }
            Some(found) if found.sent != found.delivered => {
                finding.violated([history.source(end.at)], Breach::OtherTasksThanSpawned { process });
            }
            Some(_) => {}
        }
    }
    if history.context.outcome == Some(Outcome::Deadline) && history.is_settled && !awaits_process(history) {
        finding.violated([], Breach::Stalled { lent: never_returned(history, tasks) });
    }
    if tasks.ends.is_empty() && history.context.outcome == Some(Outcome::Completed) {
        let reason = "no process reported a result that contains tasks";
        finding.inconclusive(reason, "keep at least one process until the end of the program");
    }
}

/// Returns whether a process had yet to start, for the first time or again, when the run ended. A program may wait for
/// such a process.
fn awaits_process(history: &History<'_>) -> bool {
    let supervision = &history.supervision;
    let gone = supervision.gone(&history.context.clusters);
    let is_down = |process: ProcessId| {
        let ended =
            supervision.newest_life(process).is_some_and(|it| supervision.end_of(process, it).is_some());
        ended || history.processes[process.index()].segments.is_empty()
    };
    let mut members = history.context.clusters.iter().flatten();
    members.any(|&it| !gone.contains(&it) && !history.has_left(it) && is_down(it))
}

/// Returns the first theft whose task is still lent at the end of the run, and the task.
fn never_returned(history: &History<'_>, tasks: &Tasks) -> Option<(Theft, TaskId)> {
    tasks.thefts.iter().find_map(|(theft, steps)| {
        let surviving = |steps_of: &[TheftStep]| {
            steps.iter().find(|it| steps_of.contains(&it.step) && history.survives(it.at))
        };
        let ended = surviving(&[TheftStep::Merged, TheftStep::Voided]);
        surviving(&[TheftStep::Lent]).filter(|_| ended.is_none()).map(|it| (*theft, it.task))
    })
}

/// Returns the sentence about an impossible fact of a task-based program, without its subject.
fn impossible(what: ImpossibleFact, names: &Context) -> String {
    let named = |theft| theft_name(theft, names);
    let name = |task| names.task(task);
    match what {
        ImpossibleFact::Ran { task } => format!("ran {}, which it did not have", name(task)),
        ImpossibleFact::Lent { task } => format!("lent {}, which it did not have", name(task)),
        ImpossibleFact::Sent { task, theft } => {
            format!("sent {}, which it had not lent ({})", name(task), named(theft))
        }
        ImpossibleFact::TookTwice { task, theft } => {
            format!("received {} twice for one theft ({})", name(task), named(theft))
        }
        ImpossibleFact::Merged { task, theft } => {
            format!("used the result of {}, which it had not lent ({})", name(task), named(theft))
        }
        ImpossibleFact::TookBack { task } => format!("took back {}, which it had not lent", name(task)),
        ImpossibleFact::Dropped { task } => format!("dropped {}, which it did not have", name(task)),
        ImpossibleFact::OwedNothing { task, theft } => {
            format!("completed or returned {}, for which it owed nothing ({})", name(task), named(theft))
        }
        ImpossibleFact::Unfinished { task, theft, returned, left } => {
            let what = if returned { "returned" } else { "completed" };
            format!(
                "{what} stolen {} although {left} of its tasks had not ended ({})",
                name(task),
                named(theft)
            )
        }
        ImpossibleFact::EndedEarly { left } => {
            format!("ended the program although {left} of its tasks had not ended")
        }
        ImpossibleFact::EndedNothing => "ended the program, which it did not own".into(),
        ImpossibleFact::AbsorbedTwice { of, theft } => format!(
            "took over the state of {}, part of which ({}) it already had",
            names.process(of),
            named(theft)
        ),
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::fault::{EndedBy, StorageFate};
    use faultline_core::{Digest, Fact, Life, Promise, TaskId, TheftStep, Witness};

    use super::*;
    use crate::testing::check_alone;
    use crate::testing::finds;
    use crate::testing::tasks::{TaskRun, theft};
    use faultline_history::ImpossibleFact;

    /// p0 spawns two tasks, runs one and lends the other to p1.
    fn run() -> TaskRun {
        let mut run = TaskRun::new(2);
        let [first, second] = run.begin(0, 2)[..] else { panic!("the first task spawns two") };
        run.ran(0, first, 0);
        run.lend(0, theft(0, 1), second);
        run.step(1, theft(0, 1), second, TheftStep::Taken);
        run.ran(1, second, 1);
        run.ran(1, second.child(0), 0);
        run.step(1, theft(0, 1), second, TheftStep::Done);
        run.step(1, theft(0, 1), second, TheftStep::Returned);
        run
    }

    fn ended(mut run: TaskRun) -> Findings {
        let second = TaskId::MAIN.child(1);
        run.step(0, theft(0, 1), second, TheftStep::Merged);
        let sums = run.sums(&[TaskId::MAIN.child(0), second, second.child(0)]);
        run.finish(0, sums, sums);
        run.finish(1, 0, 0);
        check_alone(&RULE, &run.0)
    }

    #[test]
    fn a_stolen_task_counts_with_all_its_descendants() {
        let finding = ended(run());
        assert_eq!((finding.violation_count(), finding.gap()), (0, String::new()), "{finding:?}");
        assert!(finding.instances >= 5, "{finding:?}");
    }

    #[test]
    fn a_task_that_runs_twice_is_found() {
        let mut run = run();
        run.ran(0, TaskId::MAIN.child(0), 0);
        finds!(ended(run), Breach::ImpossibleFact { what: ImpossibleFact::Ran { .. }, .. });
    }

    /// A process has stolen the same task from two others, and completes the second theft first. If `lends` is set, it
    /// instead completes only the first theft, after it has lent a task that may belong to either.
    fn stolen_twice(promises: &[Promise], lends: bool) -> Findings {
        let mut run = TaskRun::promising(3, promises);
        let task = run.begin(0, 1)[0];
        let [first, second] = [theft(0, 1), theft(2, 1)];
        run.lend(0, first, task);
        run.step(1, first, task, TheftStep::Taken);
        run.step(1, second, task, TheftStep::Taken);
        run.ran(1, task, 1);
        if lends {
            run.ran(1, task, 1);
            run.lend(1, theft(1, 2), task.child(0));
        }
        run.ran(1, task.child(0), 0);
        run.step(1, if lends { first } else { second }, task, TheftStep::Done);
        if !lends {
            run.ran(1, task, 1);
            run.ran(1, task.child(0), 0);
            run.step(1, first, task, TheftStep::Done);
        }
        check_alone(&RULE, &run.0)
    }

    #[test]
    fn an_execution_of_a_task_in_two_parts_may_belong_to_either() {
        for lends in [false, true] {
            let finding = stolen_twice(&[], lends);
            assert_eq!(finding.violation_count(), 0, "{lends}: {finding:?}");
            // If a process sends a stolen task only after the theft is durable, no process has a task twice.
            assert!(stolen_twice(&[Promise::CheckpointedFirst], lends).violation_count() > 0, "{lends}");
        }
    }

    #[test]
    fn a_result_that_is_used_twice_is_found() {
        let mut run = run();
        run.step(0, theft(0, 1), TaskId::MAIN.child(1), TheftStep::Merged);
        finds!(ended(run), Breach::ImpossibleFact { what: ImpossibleFact::Merged { .. }, .. });
    }

    #[test]
    fn a_result_that_comes_before_its_tasks_have_ended_is_found() {
        let mut run = run();
        run.step(1, theft(1, 0), TaskId::MAIN, TheftStep::Taken);
        run.step(1, theft(1, 0), TaskId::MAIN, TheftStep::Returned);
        finds!(ended(run), Breach::ImpossibleFact { what: ImpossibleFact::Unfinished { left: 1, .. }, .. });
    }

    #[test]
    fn an_end_with_tasks_left_is_found() {
        let mut run = run();
        run.finish(0, 1, 1);
        finds!(
            check_alone(&RULE, &run.0),
            Breach::ImpossibleFact { what: ImpossibleFact::EndedEarly { .. }, .. }
        );
    }

    #[test]
    fn a_result_that_claims_other_tasks_is_found() {
        let mut run = TaskRun::new(1);
        let only = run.begin(0, 1)[0];
        run.ran(0, only, 0);
        run.finish(0, only.0, only.0 + 1);
        finds!(check_alone(&RULE, &run.0), Breach::WrongResultOfTasks { .. });
    }

    #[test]
    fn a_state_that_is_absorbed_twice_is_found() {
        let mut run = run();
        let saved = run.save(1, 1);
        run.absorb(0, 1, Some(saved));
        run.absorb(0, 1, Some(saved));
        finds!(
            check_alone(&RULE, &run.0),
            Breach::ImpossibleFact { what: ImpossibleFact::AbsorbedTwice { .. }, .. }
        );
    }

    #[test]
    fn a_stalled_program_is_found() {
        let mut run = run();
        run.0.context.outcome = Some(Outcome::Deadline);
        run.0.context.settled_after = Some(faultline_core::Span::from_secs(10));
        run.0.context.end = faultline_core::Time::ZERO + faultline_core::Span::from_secs(9);
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 0);
        run.0.context.end = faultline_core::Time::ZERO + faultline_core::Span::from_secs(11);
        finds!(check_alone(&RULE, &run.0), Breach::Stalled { lent: Some(_) });
    }

    #[test]
    fn a_program_that_waits_for_a_process_has_not_stalled() {
        let mut run = run();
        run.0.context.outcome = Some(Outcome::Deadline);
        run.0.context.settled_after = Some(faultline_core::Span::from_secs(10));
        run.0.context.end = faultline_core::Time::ZERO + faultline_core::Span::from_secs(20);
        let (process, life) = (ProcessId(1), Life(1));
        let (storage, by) = (StorageFate::Kept, EndedBy::Silence);
        run.0.supervisor(Fact::Failed { process, life, storage, by });
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 0);
    }

    #[test]
    fn a_program_without_a_recorded_end_is_unknown() {
        let mut run = run();
        run.0.state(0, Fact::Finished(Box::new((Witness::default(), Digest([1; 16])))));
        assert!(check_alone(&RULE, &run.0).open.is_some());
    }
}
