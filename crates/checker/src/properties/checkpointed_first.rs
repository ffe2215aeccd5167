//! Processes exchange only durable data: a task is sent only after a checkpoint that contains its theft, a result only
//! after one in which the task is complete, and a receipt only after one that contains the result. This property is
//! judged for protocols that promise it.
//!
//! A checkpoint, or a segment of a log, counts once its owner has reported that it is durable in the owner's storage,
//! and as many replicas as the federation requests are durable. A restored or absorbed state was already durable.

use std::collections::BTreeMap;

use faultline_core::{Fact, FactKind, Life, ProcessId, Promise, TaskId, Theft, TheftStep, Time};

use super::copies;
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use crate::words::theft_name;
use faultline_history::{CheckpointName, Context, History, Point, Step};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    SentBeforeDurable { process: ProcessId, step: TheftStep, task: TaskId, theft: Theft },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::SentBeforeDurable { process: by, step, task, theft } = *self;

        let (what, contained) = match step {
            TheftStep::Shipped => ("sent", "the theft"),
            TheftStep::Returned => ("returned the result of", "the result"),
            _ => ("acknowledged the result of", "the result"),
        };
        format!(
            "{} {what} {} before a checkpoint that contains {contained} was durable ({})",
            names.process(by),
            names.task(task),
            theft_name(theft, names)
        )
    }
}

pub(super) const RULE: Rule = Rule::new(
    Property::CheckpointedFirst,
    "stolen tasks and results were durable before they were sent",
    check,
)
.promised(Promise::CheckpointedFirst)
.needs(&[FactKind::Lent, FactKind::Durable]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(tasks) = &history.tasks else { return };
    let durable = Durable::of(history);
    for (theft, steps) in &tasks.thefts {
        for sent in steps {
            let needed = match sent.step {
                TheftStep::Shipped => TheftStep::Lent,
                TheftStep::Returned => TheftStep::Done,
                TheftStep::Receipted => TheftStep::Merged,
                _ => continue,
            };
            // If the process has not taken the step `needed`, nothing has to be durable.
            let is_past = |it: &&Step| it.step == needed && history.holds(sent.at, it.at);
            let Some(cause) = steps.iter().rfind(is_past) else { continue };
            finding.instances += 1;
            if !durable.holds(history, sent.at, cause.at) {
                let (process, task) = (history.process_of(sent.at), cause.task);
                finding.violated(
                    [history.source(cause.at), history.source(sent.at)],
                    Breach::SentBeforeDurable { process, step: sent.step, task, theft: *theft },
                );
            }
        }
    }
}

/// By life: the process's own checkpoints that became durable.
struct Durable(BTreeMap<(ProcessId, Life), Vec<OwnCopy>>);

/// A checkpoint in the storage of its owner.
struct OwnCopy {
    /// The number of the fact that reports it as durable.
    fact: u32,
    /// The time from which enough replicas were durable as well.
    replicated: Time,
    cut: Point,
}

impl Durable {
    fn of(history: &History<'_>) -> Durable {
        let mut cuts = BTreeMap::new();
        for witnessed in &history.witnessed {
            if let Some(name) = witnessed.part
                && let Some(cut) = history.cut_of(name.owner, &witnessed.witness)
            {
                cuts.entry(name).or_insert(cut);
            }
        }
        let mut replicated = BTreeMap::new();
        for group in &history.groups {
            let of_owner = copies::replicated(history, group);
            replicated.extend(of_owner.into_iter().map(|(name, at)| ((group.members[0], name), at)));
        }
        let mut all: BTreeMap<_, Vec<OwnCopy>> = BTreeMap::new();
        for (&(process, life), stream) in &history.trace.streams {
            for (number, (_, fact)) in (0..).zip(stream) {
                if let Fact::Durable(name) = fact
                    && name.owner == process
                    && let Some(cut) = cuts.get(name)
                {
                    let replicated = replicated.get(&(process, CheckpointName::from(*name)));
                    let replicated = replicated.copied().unwrap_or_default();
                    all.entry((process, life)).or_default().push(OwnCopy {
                        fact: number,
                        replicated,
                        cut: *cut,
                    });
                }
            }
        }
        Durable(all)
    }

    /// Returns whether the fact `what` is in a state of the process that was durable at `at`.
    fn holds(&self, history: &History<'_>, at: Point, what: Point) -> bool {
        let segment = history.segment(at.segment);
        let own = self.0.get(&(segment.process, segment.life)).map_or(&[][..], Vec::as_slice);
        let (before, now) = (own.partition_point(|it| it.fact < at.fact), history.time(at));
        if own[..before].iter().any(|it| it.replicated <= now && history.holds(it.cut, what)) {
            return true;
        }
        if segment.parent.is_some_and(|restored| history.holds(restored, what)) {
            return true;
        }
        // States that were absorbed in this segment, or before it.
        !history.contains(at, what) && history.holds(at, what)
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::TheftStep::{Done, Merged, Receipted, Returned, Shipped, Taken};
    use faultline_core::{Promise, Span, TaskId};

    use super::*;
    use crate::testing::check_alone;
    use crate::testing::tasks::{TaskRun, theft};
    use faultline_trace::manifest::{Copies, ReplicaHolders};

    const TASK: TaskId = TaskId::MAIN.child(0);

    /// A theft in which the steps in `careful` wait for durable checkpoints.
    fn run(careful: &[TheftStep]) -> TaskRun {
        run_with_replicas(careful, &[])
    }

    /// A theft in which the steps in `careful` wait for durable checkpoints, and those in `replicated` for replicas of
    /// these as well.
    fn run_with_replicas(careful: &[TheftStep], replicated: &[TheftStep]) -> TaskRun {
        let mut run = TaskRun::promising(2, &[Promise::CheckpointedFirst]);
        run.begin(0, 1);
        run.lend(0, theft(0, 1), TASK);
        let mut sn = 0;
        let mut send = |run: &mut TaskRun, process, step| {
            if careful.contains(&step) {
                sn += 1;
                let (name, _) = run.save(process, sn);
                let keeps = |run: &mut TaskRun| {
                    run.0.wait(Span::from_millis(1));
                    run.0.durable(1 - process, name);
                };
                if replicated.contains(&step) {
                    keeps(run);
                }
                run.step(process, theft(0, 1), TASK, step);
                if !replicated.contains(&step) {
                    keeps(run);
                }
                return;
            }
            run.step(process, theft(0, 1), TASK, step);
        };
        send(&mut run, 0, Shipped);
        run.step(1, theft(0, 1), TASK, Taken);
        run.ran(1, TASK, 0);
        run.step(1, theft(0, 1), TASK, Done);
        send(&mut run, 1, Returned);
        run.step(0, theft(0, 1), TASK, Merged);
        send(&mut run, 0, Receipted);
        run
    }

    #[test]
    fn each_step_waits_for_its_checkpoint() {
        let finding = check_alone(&RULE, &run(&[Shipped, Returned, Receipted]).0);
        assert_eq!((finding.instances, finding.violation_count()), (3, 0), "{finding:?}");
        for (careful, process, step) in [
            ([Returned, Receipted], 0, Shipped),
            ([Shipped, Receipted], 1, Returned),
            ([Shipped, Returned], 0, Receipted),
        ] {
            let finding = check_alone(&RULE, &run(&careful).0);
            assert_eq!(finding.violation_count(), 1, "{finding:?}");
            let expected = (ProcessId(process), step);
            assert!(
                matches!(finding.wrong::<Breach>()[0], Breach::SentBeforeDurable { process, step, .. } if (process, step) == expected),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn each_step_waits_for_the_replicas_of_its_checkpoint() {
        let found = |replicated: &[TheftStep], common_clock: bool| {
            let mut run = run_with_replicas(&[Shipped, Returned, Receipted], replicated);
            run.0.context.common_clock = common_clock;
            run.0.context.copies = Some(Copies { replicas: 1, kept_by: ReplicaHolders::OtherCluster });
            check_alone(&RULE, &run.0).wrong::<Breach>()
        };
        assert_eq!(found(&[Shipped, Returned, Receipted], true), []);
        let wrong = found(&[Shipped, Receipted], true);
        assert!(matches!(wrong[..], [Breach::SentBeforeDurable { step: Returned, .. }]), "{wrong:?}");
        assert_eq!(found(&[], false), [], "clocks do not order the facts");
    }

    #[test]
    fn a_replica_that_never_becomes_durable_is_missed_without_a_common_clock() {
        let mut run = run(&[Shipped, Returned, Receipted]);
        run.0.context.copies = Some(Copies { replicas: 1, kept_by: ReplicaHolders::OtherCluster });
        let is_replica = |process: ProcessId, fact: &Fact| match fact {
            Fact::Durable(name) => name.owner != process,
            _ => false,
        };
        for (&(process, _), stream) in &mut run.0.trace.streams {
            stream.retain(|(_, fact)| !is_replica(process, fact));
        }
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 3);
        run.0.lose_evidence(1);
        assert!(check_alone(&RULE, &run.0).violation_count() < 3, "the facts of p1 are incomplete");
    }

    #[test]
    fn a_restored_state_is_durable() {
        let mut run = run(&[Shipped, Returned, Receipted]);
        let saved = run.save(0, 9);
        run.0.kill(0, false);
        run.restore(0, Some(saved));
        run.step(0, theft(0, 1), TASK, Receipted);
        let finding = check_alone(&RULE, &run.0);
        assert_eq!((finding.instances, finding.violation_count()), (4, 0), "{finding:?}");
    }

    #[test]
    fn a_protocol_that_promises_nothing_is_not_judged() {
        let mut run = run(&[]);
        run.0.withdraw(Promise::CheckpointedFirst);
        assert_eq!(check_alone(&RULE, &run.0).instances, 0);
    }
}
