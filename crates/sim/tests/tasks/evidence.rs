//! Evidence about thefts and stable storage, derived from the facts. Shares no rule with the protocols.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{Fact, FactNo, ImageName, Life, ProcessId, TaskId, Theft, TheftStep, Witness};
use faultline_trace::Record;

/// Returns the steps of thefts whose messages were sent before the sender's state was durable: a task before a state in
/// which it is lent, a result before a state in which the task is done, a receipt before a state in which the result is
/// merged.
pub(crate) fn sent_too_early(facts: &[Record]) -> Vec<(ProcessId, Theft, TheftStep)> {
    let mut saved: BTreeMap<ImageName, Witness> = BTreeMap::new();
    let mut durable: BTreeMap<(ProcessId, Life), FactNo> = BTreeMap::new();
    let mut causes: BTreeMap<(ProcessId, Theft, TheftStep), (Life, FactNo)> = BTreeMap::new();
    let mut early = Vec::new();
    for Record { process, life, number, fact, .. } in facts {
        match fact {
            Fact::Saved(it) => drop(saved.insert(it.0, it.1)),
            Fact::Durable(name) if name.owner == *process => {
                let upto = durable.entry((*process, saved[name].life)).or_default();
                *upto = saved[name].upto.max(*upto);
            }
            Fact::Theft { theft, step, .. } => {
                let cause = match step {
                    TheftStep::Shipped => TheftStep::Lent,
                    TheftStep::Returned => TheftStep::Done,
                    TheftStep::Receipted => TheftStep::Merged,
                    _ => {
                        causes.insert((*process, *theft, *step), (*life, *number));
                        continue;
                    }
                };
                // Steps of an earlier life were restored, and are therefore durable.
                let cause = causes.get(&(*process, *theft, cause)).filter(|it| it.0 == *life);
                let upto = durable.get(&(*process, *life)).copied().unwrap_or_default();
                if cause.is_some_and(|(_, cause)| *cause >= upto) {
                    early.push((*process, *theft, *step));
                }
            }
            _ => {}
        }
    }
    early
}

/// Returns the thefts whose steps name different tasks, along with those tasks.
pub(crate) fn named_differently(facts: &[Record]) -> Vec<(Theft, BTreeSet<TaskId>)> {
    let mut tasks: BTreeMap<Theft, BTreeSet<TaskId>> = BTreeMap::new();
    for record in facts {
        if let Fact::Theft { theft, task, .. } = record.fact {
            tasks.entry(theft).or_default().insert(task);
        }
    }
    tasks.into_iter().filter(|(_, tasks)| tasks.len() > 1).collect()
}

/// Returns the tasks that count as executed more than once in the final states, because they had two owners.
/// Returns `None` if all copies of a process's state were lost, because running tasks again is then correct.
pub(crate) fn owned_twice(facts: &[Record]) -> Option<Vec<(TaskId, Vec<ProcessId>)>> {
    let mut lives: BTreeMap<(ProcessId, Life), Stream> = BTreeMap::new();
    let mut newest: BTreeMap<ProcessId, Life> = BTreeMap::new();
    let mut has_saved: BTreeSet<ProcessId> = BTreeSet::new();
    let mut absorbed: BTreeSet<ProcessId> = BTreeSet::new();
    for Record { process, life, number, fact, .. } in facts {
        let stream = lives.entry((*process, *life)).or_default();
        match fact {
            Fact::Ran { task, .. } if *task != TaskId::MAIN => stream.ran.push((*number, *task)),
            Fact::Durable(name) => drop(has_saved.insert(name.owner)),
            Fact::Restored(it) if it.0.is_none() && has_saved.contains(process) => return None,
            Fact::Restored(it) => stream.contains.push((*number, *process, it.2)),
            Fact::Absorbed(it) if it.1.is_none() && has_saved.contains(&it.0) => return None,
            Fact::Absorbed(it) => {
                absorbed.insert(it.0);
                stream.contains.push((*number, it.0, it.2));
            }
            _ => continue,
        }
        newest.insert(*process, *life);
    }
    let mut executions: BTreeMap<TaskId, Vec<ProcessId>> = BTreeMap::new();
    for (process, life) in newest.into_iter().filter(|(it, _)| !absorbed.contains(it)) {
        count(&lives, process, life, FactNo(u64::MAX), &mut executions);
    }
    Some(executions.into_iter().filter(|(_, at)| at.len() > 1).collect())
}

/// The tasks that a life ran, and the states that it restored or absorbed.
#[derive(Default)]
struct Stream {
    ran: Vec<(FactNo, TaskId)>,
    contains: Vec<(FactNo, ProcessId, Witness)>,
}

/// Counts the executions that a state contains.
fn count(
    lives: &BTreeMap<(ProcessId, Life), Stream>,
    process: ProcessId,
    life: Life,
    upto: FactNo,
    executions: &mut BTreeMap<TaskId, Vec<ProcessId>>,
) {
    let Some(stream) = lives.get(&(process, life)) else { return };
    for (_, task) in stream.ran.iter().filter(|(number, _)| *number < upto) {
        executions.entry(*task).or_default().push(process);
    }
    for (number, of, witness) in &stream.contains {
        if *number < upto && *witness != Witness::default() {
            count(lives, *of, witness.life, witness.upto, executions);
        }
    }
}
