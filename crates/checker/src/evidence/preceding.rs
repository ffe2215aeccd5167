//! Facts that require an earlier fact under every protocol, because the code that hosts the protocol reports
//! both.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{Fact, FactKind, ImageName, ProcessId, Promise, TaskId, TheftStep};
use faultline_history::{Contradiction, History};

use crate::properties::witness_agrees;

/// Checks that each report of a part as durable was preceded by a save of the part in the same life. Each save counts
/// for one report.
pub(super) fn writes(history: &History<'_>, found: &mut Vec<Contradiction>) {
    if !history.context.recorded.contains(FactKind::Saved) {
        return;
    }
    for (&(process, life), stream) in &history.trace.streams {
        let mut awaited: BTreeMap<ImageName, u32> = BTreeMap::new();
        for (_, fact) in stream {
            match fact {
                Fact::Saved(saved) => *awaited.entry(saved.0).or_default() += 1,
                Fact::Durable(name) => match awaited.get_mut(name) {
                    Some(writes) if *writes > 0 => *writes -= 1,
                    _ if history.trace.has_gap(process, life) => {}
                    _ => found.push(Contradiction::NeverSaved { process, life, part: *name }),
                },
                _ => {}
            }
        }
    }
}

/// Checks that each delivered message was transmitted. A protocol may have invented a message that was neither sent nor
/// transmitted. If such a message is in the final state of its receiver, `noGhost` judges it, and the record has a gap
/// only if the witnesses of the sender show that facts about its sends are missing.
pub(super) fn transmissions(history: &History<'_>, found: &mut Vec<Contradiction>) {
    if !history.context.recorded.contains(FactKind::Transmitted) {
        return;
    }
    // The witnesses of an imported run are derived from its facts.
    let has_witnesses = history.context.unmatched.is_none();
    for message in history.messages.iter().filter(|it| it.stamp().is_none()) {
        let from = message.id.from;
        if message.delivered().is_empty() || history.trace.has_gap_of(from) {
            continue;
        }
        let is_ghost =
            message.sent().is_empty() && message.delivered().iter().any(|at| history.survives(*at));
        if !is_ghost || has_witnesses && witness_agrees::contradicts_sends(history, from) {
            found.push(Contradiction::NeverTransmitted(message.id));
        }
    }
}

/// Checks that the steps of a theft name a task that the victim lent, that the task was sent if the thief
/// received it, and that the result was sent if another process merged it. A process that has absorbed the
/// thief has the result itself.
pub(super) fn thefts(history: &History<'_>, found: &mut Vec<Contradiction>) {
    let (mut steps, mut merged) = (BTreeSet::new(), BTreeSet::new());
    let (mut lent, mut others) = (BTreeSet::new(), BTreeSet::new());
    let mut absorbed: BTreeSet<(ProcessId, ProcessId)> = BTreeSet::new();
    for (&(process, _), stream) in &history.trace.streams {
        for (_, fact) in stream {
            match fact {
                Fact::Theft { theft, task, step } => {
                    let tasks = if *step == TheftStep::Lent { &mut lent } else { &mut others };
                    tasks.insert((*theft, *task));
                    steps.insert((*step, *theft));
                    if *step == TheftStep::Merged {
                        merged.insert((*theft, process));
                    }
                }
                Fact::Absorbed(of) => drop(absorbed.insert((process, of.0))),
                _ => {}
            }
        }
    }
    // A process that absorbs another one also absorbs the processes that the other one had absorbed.
    loop {
        let pairs = absorbed.iter().flat_map(|&(by, of)| {
            let further = absorbed.range((of, ProcessId(0))..=(of, ProcessId(u32::MAX)));
            further.map(move |&(_, further)| (by, further))
        });
        let more: Vec<_> = pairs.filter(|it| !absorbed.contains(it)).collect();
        if more.is_empty() {
            break;
        }
        absorbed.extend(more);
    }
    let is_known = |process: ProcessId| !history.trace.has_gap_of(process);
    let unknown = others.difference(&lent).filter(|(theft, _)| is_known(theft.victim));
    found.extend(unknown.map(|(theft, _)| Contradiction::NeverLent(*theft)));
    let taken = steps.iter().filter(|(step, _)| *step == TheftStep::Taken).map(|(_, theft)| *theft);
    let unsent = taken.filter(|it| !steps.contains(&(TheftStep::Shipped, *it)) && is_known(it.victim));
    found.extend(unsent.map(Contradiction::NeverShipped));
    let unsent = merged.iter().filter(|(theft, by)| {
        !steps.contains(&(TheftStep::Returned, *theft))
            && *by != theft.thief
            && !absorbed.contains(&(*by, theft.thief))
            && is_known(theft.thief)
    });
    found.extend(unsent.map(|(theft, _)| Contradiction::NeverReturned(*theft)));
}

/// Checks that each execution of a planned task immediately follows the fact about its plan, that the tasks whose
/// values it read were executed as well, and that a life that sends messages of a planned program has executed a task.
pub(super) fn executions(history: &History<'_>, found: &mut Vec<Contradiction>) {
    let is_planned = history.planned.is_some() || history.context.promises.include(Promise::StrictlyRequired);
    if !is_planned {
        return;
    }
    let mut executed: BTreeSet<TaskId> = BTreeSet::new();
    let mut plans = Vec::new();
    for (&(process, life), stream) in &history.trace.streams {
        let has_gap = history.trace.has_gap(process, life);
        let (mut is_apart, mut has_sent, mut has_executed) = (false, false, false);
        let mut planned: Option<TaskId> = None;
        for (_, fact) in stream {
            let executes = match fact {
                Fact::Ran { task, .. } | Fact::Rerun { task, .. } => Some(*task),
                Fact::Sent { .. } if !has_executed => {
                    has_sent = true;
                    None
                }
                _ => None,
            };
            has_executed |= executes.is_some();
            executed.extend(executes);
            is_apart |= planned.take() != executes;
            if let Fact::Planned(plan) = fact {
                planned = Some(plan.task);
                plans.push(plan);
            }
        }
        if is_apart && !has_gap {
            found.push(Contradiction::PlanApart(process, life));
        }
        if has_sent && !has_gap {
            found.push(Contradiction::SentWithoutTask(process, life));
        }
    }
    if history.trace.flaws.iter().any(|it| it.stream.is_some()) {
        return;
    }
    for plan in plans {
        let missing = plan.sources.iter().find(|it| !executed.contains(it));
        found.extend(missing.map(|&source| Contradiction::NeverExecuted { task: plan.task, source }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned::Partitions;
    use crate::testing::{Run, p, position};
    use faultline_core::{Life, Theft};
    use faultline_trace::Stream;

    #[test]
    fn a_durable_part_that_was_never_saved_is_found() {
        let found = |reports: usize| {
            let mut run = Run::new(&[&[0], &[1]]);
            run.commit_all(0, &[0]);
            let stream = &run.trace.streams[&(crate::testing::p(0), faultline_core::Life(1))];
            let durable = stream.iter().find(|(_, fact)| matches!(fact, Fact::Durable(_))).unwrap().1.clone();
            (0..reports).for_each(|_| run.state(0, durable.clone()));
            let mut found = Vec::new();
            writes(&run.history(), &mut found);
            found.len()
        };
        assert_eq!((found(0), found(1)), (0, 1));
    }

    /// Returns the contradictions of a theft with these steps. The flag of each indicates whether the victim,
    /// rather than the thief, reports the step.
    fn theft(steps: &[(bool, TheftStep)], absorbs: bool) -> Vec<Contradiction> {
        let mut run = Run::new(&[&[0], &[1]]);
        let (victim, thief) = (p(0), p(1));
        let theft = Theft { victim, thief, life: Life(1), number: 1 };
        if absorbs {
            run.state(0, Fact::Absorbed(Box::new((thief, None, Default::default(), Default::default()))));
        }
        for &(is_victim, step) in steps {
            run.state(u32::from(!is_victim), Fact::Theft { theft, task: TaskId(7), step });
        }
        let mut found = Vec::new();
        thefts(&run.history(), &mut found);
        found
    }

    #[test]
    fn a_task_or_a_result_that_was_never_sent_is_found() {
        use TheftStep::{Lent, Merged, Returned, Shipped, Taken};
        let all = [(true, Lent), (true, Shipped), (false, Taken), (false, Returned), (true, Merged)];
        assert_eq!(theft(&all, false), []);
        assert!(matches!(theft(&all[1..], false)[..], [Contradiction::NeverLent(_)]));
        let taken = [all[0], all[2], all[3], all[4]];
        assert!(matches!(theft(&taken, false)[..], [Contradiction::NeverShipped(_)]));
        let merged = [all[0], all[1], all[2], all[4]];
        assert!(matches!(theft(&merged, false)[..], [Contradiction::NeverReturned(_)]));
        assert_eq!(theft(&merged, true), [], "the victim has absorbed the thief");
    }

    /// Returns the contradictions of a run whose facts of p0 are modified by `change`. In the unmodified run,
    /// p0 executes task 1 and sends a message, and p1 executes task 2, which reads the values of task 1.
    fn executed(change: impl Fn(&mut Stream)) -> Vec<Contradiction> {
        let mut run = Partitions::new(2);
        run.executed(0, 1, &[], &[1]);
        run.executed(1, 2, &[1], &[]);
        change(run.0.trace.streams.get_mut(&(p(0), Life(1))).unwrap());
        let mut found = Vec::new();
        executions(&run.0.history(), &mut found);
        found
    }

    #[test]
    fn an_execution_that_is_missing_is_found() {
        let executes = |fact: &Fact| matches!(fact, Fact::Ran { .. } | Fact::Planned(_));
        let apart = Contradiction::PlanApart(p(0), Life(1));
        assert_eq!(executed(|_| {}), []);
        let found = executed(|it| it.retain(|(_, fact)| !matches!(fact, Fact::Planned(_))));
        assert_eq!(found, std::slice::from_ref(&apart));
        let found = executed(|it| it.retain(|(_, fact)| !matches!(fact, Fact::Ran { .. })));
        assert!(found.contains(&apart), "{found:?}");
        let found = executed(|it| it.retain(|(_, fact)| !executes(fact)));
        let read = Contradiction::NeverExecuted { task: TaskId(2), source: TaskId(1) };
        assert_eq!(found, [Contradiction::SentWithoutTask(p(0), Life(1)), read]);
    }

    #[test]
    fn a_delivered_message_that_was_never_transmitted_is_found() {
        let found = |is_transmitted: bool| {
            let mut run = Run::new(&[&[0], &[1]]);
            let id = run.send(0, 1);
            if is_transmitted {
                run.transmit(id, position(0, 0));
            }
            run.deliver(id);
            let mut found = Vec::new();
            transmissions(&run.history(), &mut found);
            found
        };
        assert_eq!(found(true), []);
        assert!(matches!(found(false)[..], [Contradiction::NeverTransmitted(_)]));
    }

    #[test]
    fn a_message_that_was_neither_sent_nor_transmitted_is_evidence_against_the_protocol() {
        let found = |removes: bool| {
            let mut run = Run::new(&[&[0], &[1]]);
            let id = run.send(0, 1);
            run.deliver(id);
            run.commit_all(0, &[0]);
            let invented = run.message(0, 1, 0, 7);
            run.deliver(invented);
            if removes {
                // The witness of the checkpoint shows that facts are missing.
                run.trace.streams.get_mut(&(p(0), Life(1))).unwrap().remove(0);
            } else {
                run.trace.streams.get_mut(&(p(1), Life(1))).unwrap().remove(0);
            }
            let mut found = Vec::new();
            transmissions(&run.history(), &mut found);
            found.len()
        };
        assert_eq!((found(false), found(true)), (0, 2));
    }

    #[test]
    fn a_message_that_was_never_sent_is_a_gap_if_its_delivery_was_undone() {
        let found = |is_undone: bool| {
            let mut run = Run::new(&[&[0], &[1]]);
            run.commit_all(1, &[1]);
            let invented = run.message(0, 1, 0, 7);
            run.deliver(invented);
            if is_undone {
                run.restore(1, 1, Some((0, 1)));
            }
            let mut found = Vec::new();
            transmissions(&run.history(), &mut found);
            found.len()
        };
        assert_eq!((found(false), found(true)), (0, 1), "`noGhost` does not judge it");
    }
}
