//! A process's share of a program: the tasks that have not ended, and the values that they use. A process
//! runs the tasks of its graph, takes checkpoints of the graph, and lends individual tasks to other processes.
//!
//! A graph consists of *parts*: the program itself, and one part for each stolen task that the process works
//! on. Parts share nothing. The same task may therefore occur in two of them after an absorption, and a part
//! can be dropped as a whole.
//!
//! | module | contents |
//! | --- | --- |
//! | `part` | the tasks and values that result from one theft |
//! | `save` | a graph as chunks of bytes |

mod part;
mod save;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use faultline_core::{Chunk, ProcessId, TaskId, Theft, Version};
use serde::{Deserialize, Serialize};

use crate::program::{Call, TaskOutcome};
use part::{Part, Vertex};

/// A process's share of a program: its tasks, and the values that they use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Parts by theft; the key of the program itself is [`Theft::NONE`].
    parts: BTreeMap<Theft, Part>,
    /// Tasks that are ready to run: the process takes the last one, and a thief takes the first one.
    ready: VecDeque<(Theft, TaskId)>,
    /// Tasks lent to other processes, by theft, each with the part to which it belongs.
    loans: BTreeMap<Theft, (Theft, Vertex)>,
    /// Permanently failed processes whose graphs became part of this one.
    absorbed: BTreeSet<ProcessId>,
}

/// Multiset hashes of the tasks whose effects a state contains, in the form that a witness uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    /// Wrapping sum over the tasks spawned.
    pub spawned: u64,
    /// Wrapping sum over the tasks run.
    pub ran: u64,
}

impl Effects {
    pub(crate) fn add(&mut self, other: Effects) {
        self.spawned = self.spawned.wrapping_add(other.spawned);
        self.ran = self.ran.wrapping_add(other.ran);
    }
}

/// A task in transit to a thief, with its inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StolenTask {
    /// The lent task, with its inputs.
    pub call: Call,
}

/// The result of a stolen task, returned to the victim once the task and all of its descendants have ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StolenResult {
    /// The stolen task.
    pub task: TaskId,
    /// The values that the task and its descendants wrote, by the index of the stolen task's access.
    pub written: Vec<(u32, Chunk)>,
    /// Hashes of the tasks whose effects this result contains.
    pub effects: Effects,
}

/// An event that changes a graph. A graph equals its initial state with these events applied, so a log of the events is
/// equivalent to a copy of the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GraphEvent {
    /// The outcome of a task was applied.
    Ran {
        /// The part to which the task belongs.
        theft: Theft,
        /// The name of the task.
        task: TaskId,
        /// The [hint](crate::Frame::hint) that the task was given. Together with the task's inputs, it
        /// determines the outcome.
        hint: u64,
        /// Everything that the task did, in one record, so that a log never contains only a part of it.
        outcome: TaskOutcome,
    },
    /// A task of the second theft's part was lent under the first theft.
    Lent(Theft, Theft, TaskId),
    /// A lent task was taken back.
    Voided(Theft),
    /// A stolen task arrived.
    Taken(Theft, StolenTask),
    /// The result of a lent task arrived.
    Merged(Theft, StolenResult),
    /// The part of a theft was dropped, because its result is no longer needed.
    Forgotten(Theft),
}

impl Graph {
    /// Returns the graph of a program whose first task had this outcome, and whose result will be this version.
    pub fn begin(outcome: TaskOutcome, result: Version) -> Graph {
        let mut graph = Graph::default();
        graph.parts.insert(Theft::NONE, Part::begin(result));
        graph.settle(Theft::NONE, |part| part.outcome(&[], outcome));
        graph
    }

    /// Starts the newest ready task, and returns it with its inputs.
    ///
    /// # Panics
    ///
    /// Panics if the graph is inconsistent.
    pub fn execute(&mut self) -> Option<(Theft, Call)> {
        let (theft, task) = self.ready.pop_back()?;
        let part = self.parts.get_mut(&theft).expect("a ready task belongs to a part");
        Some((theft, part.execute(task)))
    }

    /// Returns whether a task is ready to run.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Applies the outcome of an executing task in one step. Returns `false` if the task is no longer wanted.
    pub fn apply(&mut self, theft: Theft, task: TaskId, outcome: TaskOutcome) -> bool {
        let Some(call) = self.parts.get_mut(&theft).and_then(|part| part.end(task)) else { return false };
        self.settle(theft, |part| {
            part.ran(task);
            part.outcome(&call.accesses, outcome)
        });
        true
    }

    /// Sets the oldest ready task aside for a thief. Returns the part to which the task belongs, and the
    /// task.
    ///
    /// # Panics
    ///
    /// Panics if the graph is inconsistent.
    pub fn lend(&mut self, theft: Theft) -> Option<(Theft, TaskId)> {
        let (of, task) = self.ready.pop_front()?;
        let part = self.parts.get_mut(&of).expect("a ready task belongs to a part");
        self.loans.insert(theft, (of, part.lend(task)));
        Some((of, task))
    }

    /// Lends an executing task under a theft. Returns `false` if another task is already lent under it.
    ///
    /// # Panics
    ///
    /// Panics if the part `of` does not exist or does not contain the task.
    pub fn lend_again(&mut self, theft: Theft, of: Theft, task: TaskId) -> bool {
        if self.loans.contains_key(&theft) {
            return false;
        }
        let part = self.parts.get_mut(&of).expect("a task that executes belongs to a part");
        let mut vertex = part.lend(task);
        vertex.is_executing = false;
        self.loans.insert(theft, (of, vertex));
        true
    }

    /// Returns the lent task with its inputs, as the victim sends it to the thief.
    pub fn loan(&self, theft: Theft) -> Option<StolenTask> {
        let (of, vertex) = self.loans.get(&theft)?;
        Some(StolenTask { call: self.parts[of].with_inputs(vertex) })
    }

    /// Returns the task that is lent under this theft.
    pub fn lent(&self, theft: Theft) -> Option<TaskId> {
        self.loans.get(&theft).map(|(_, vertex)| vertex.task())
    }

    /// Returns the task that was stolen in this theft, if this process works on it.
    pub fn owed(&self, theft: Theft) -> Option<TaskId> {
        self.parts.get(&theft).map(|part| part.root)
    }

    /// Returns whether the stolen task has run or is running here. If not, it is waiting or was lent in turn.
    pub fn has_begun(&self, theft: Theft) -> bool {
        let Some(part) = self.parts.get(&theft) else { return false };
        let waits = part.tasks.get(&part.root).is_some_and(|it| !it.is_executing);
        !waits && !self.loans.values().any(|(of, vertex)| *of == theft && vertex.task() == part.root)
    }

    /// Returns all thefts under which tasks are lent.
    pub fn loans(&self) -> impl Iterator<Item = Theft> + '_ {
        self.loans.keys().copied()
    }

    /// Returns all thefts whose tasks this process works on, and [`Theft::NONE`] if it works on the program
    /// itself. The flag of each indicates whether its result is complete.
    pub fn debts(&self) -> impl Iterator<Item = (Theft, bool)> + '_ {
        self.parts.iter().map(|(theft, part)| (*theft, part.is_done()))
    }

    /// Starts to work on the task of a theft. Returns `false` if the process is already working on it.
    pub fn take(&mut self, theft: Theft, loan: StolenTask) -> bool {
        if self.parts.contains_key(&theft) {
            return false;
        }
        let task = loan.call.id;
        self.parts.insert(theft, Part::stolen(loan.call));
        self.ready.push_back((theft, task));
        true
    }

    /// Returns the result that is owed for a theft; `None` if it is not complete.
    pub fn payment(&self, theft: Theft) -> Option<StolenResult> {
        self.parts.get(&theft).filter(|part| part.is_done()).map(Part::payment)
    }

    /// Applies the result of a lent task. Returns the task and the part to which it belongs.
    pub fn merge(&mut self, theft: Theft, payment: StolenResult) -> Option<(TaskId, Theft)> {
        let (of, vertex) = self.loans.remove(&theft)?;
        let task = vertex.task();
        self.settle(of, |part| {
            part.effects.add(payment.effects);
            part.returned();
            let outcome = TaskOutcome { written: payment.written, ..TaskOutcome::default() };
            part.outcome(&vertex.call.accesses, outcome)
        });
        Some((task, of))
    }

    /// Takes a lent task back, so that it can run here or be lent again.
    ///
    /// # Panics
    ///
    /// Panics if the graph is inconsistent.
    pub fn void(&mut self, theft: Theft) -> Option<TaskId> {
        let (of, vertex) = self.loans.remove(&theft)?;
        let task = vertex.task();
        self.parts.get_mut(&of).expect("a lent task belongs to a part").give_back(vertex);
        self.ready.push_front((of, task));
        Some(task)
    }

    /// Drops a part and everything that was lent from it.
    pub fn forget(&mut self, theft: Theft) -> Option<TaskId> {
        let part = self.parts.remove(&theft)?;
        if !part.is_done() {
            self.ready.retain(|(of, _)| *of != theft);
            self.loans.retain(|_, (of, _)| *of != theft);
        }
        Some(part.root)
    }

    /// Returns whether the result owed under this theft is complete.
    pub fn is_done(&self, theft: Theft) -> bool {
        self.parts.get(&theft).is_some_and(Part::is_done)
    }

    /// Absorbs the graph of a permanently failed process. If both graphs have the same part, or lend a task
    /// under the same theft, the state of this graph is kept. In that case, the other graph has been absorbed before,
    /// and the recorded facts reveal the repetition.
    pub fn absorb(&mut self, of: ProcessId, other: Graph) {
        let Graph { parts, ready, loans, absorbed } = other;
        self.absorbed.insert(of);
        self.absorbed.extend(absorbed);
        let is_new: BTreeSet<Theft> =
            parts.keys().copied().filter(|theft| !self.parts.contains_key(theft)).collect();
        self.parts.extend(parts.into_iter().filter(|(theft, _)| is_new.contains(theft)));
        for (theft, loan) in loans.into_iter().filter(|(_, (of, _))| is_new.contains(of)) {
            self.loans.entry(theft).or_insert(loan);
        }
        let ready = ready.into_iter().rev().filter(|(theft, _)| is_new.contains(theft));
        ready.for_each(|it| self.ready.push_front(it));
    }

    /// Returns the processes whose graphs became part of this one.
    pub fn absorbed(&self) -> &BTreeSet<ProcessId> {
        &self.absorbed
    }

    /// Replays on this graph an event that changed an equal graph. Returns `false`, and changes nothing, if
    /// the event is impossible here because the graphs were not equal.
    pub fn redo(&mut self, event: GraphEvent) -> bool {
        match event {
            GraphEvent::Ran { theft, task, outcome, .. } => {
                self.pick(theft, task) && self.apply(theft, task, outcome)
            }
            GraphEvent::Lent(theft, of, task) => {
                if self.loans.contains_key(&theft) || !self.pick(of, task) {
                    return false;
                }
                self.ready.push_front((of, task));
                self.lend(theft).is_some()
            }
            GraphEvent::Voided(theft) => self.void(theft).is_some(),
            GraphEvent::Taken(theft, loan) => self.take(theft, loan),
            GraphEvent::Merged(theft, payment) => self.merge(theft, payment).is_some(),
            GraphEvent::Forgotten(theft) => self.forget(theft).is_some(),
        }
    }

    /// Returns hashes of the tasks whose effects this state contains.
    pub fn effects(&self) -> Effects {
        let mut sum = Effects::default();
        self.parts.values().for_each(|part| sum.add(part.effects));
        sum
    }

    /// Removes a task from the ready tasks.
    fn pick(&mut self, theft: Theft, task: TaskId) -> bool {
        let place = self.ready.iter().rposition(|it| *it == (theft, task));
        place.and_then(|place| self.ready.remove(place)).is_some()
    }

    /// Changes a part, and appends, in reverse order, the tasks that became ready. The process therefore runs
    /// the first of them next.
    fn settle(&mut self, theft: Theft, change: impl FnOnce(&mut Part) -> Vec<TaskId>) {
        let part = self.parts.get_mut(&theft).expect("only an existing part changes");
        self.ready.extend(change(part).into_iter().rev().map(|task| (theft, task)));
    }
}

#[cfg(test)]
mod tests;
