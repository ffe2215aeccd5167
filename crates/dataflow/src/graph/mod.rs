//! What one place has of a program: the tasks that have not ended, and the values that they use. It is what a place computes
//! on, what it saves, and (cut to one task) what it gives away.
//!
//! A graph consists of *parts*: the program itself, and one for each theft that the place works for. Parts share nothing, so
//! that the same task may occur in two of them after an absorption, and a part can be dropped as a whole.
//!
//! | module | holds |
//! | --- | --- |
//! | `part` | the tasks and values that come of one theft |
//! | `save` | a graph as chunks of bytes |

mod part;
mod save;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use faultline_core::{Chunk, ProcessId, TaskId, Theft, Version};
use serde::{Deserialize, Serialize};

use crate::program::{Call, Outcome};
use part::{Part, Vertex};

/// What one place has of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// By the theft that it is worked on for; the program itself is [`Theft::NONE`].
    parts: BTreeMap<Theft, Part>,
    /// Tasks that may run: the place takes the last, thieves the first.
    ready: VecDeque<(Theft, TaskId)>,
    /// Tasks that others have taken, and the parts that they belong to.
    loans: BTreeMap<Theft, (Theft, Vertex)>,
    /// Processes that are gone, whose graphs became part of this one.
    absorbed: BTreeSet<ProcessId>,
}

/// Multiset hashes of the tasks that a state contains, as a witness holds them.
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

/// A task on its way to a thief, with its inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loan {
    /// The task.
    pub call: Call,
}

/// What is owed for a stolen task once all tasks that came of it have ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Payment {
    /// What the task and its descendants wrote, by the index of the stolen task's access.
    pub written: Vec<(u32, Chunk)>,
    /// The tasks that this contains.
    pub effects: Effects,
}

/// What changes a graph. A graph is its first state and the fold of these, so that a log of them is as good as a copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GraphEvent {
    /// The outcome of a task of a part was applied.
    Ran {
        /// The part.
        theft: Theft,
        /// The task.
        task: TaskId,
        /// The [hint](crate::Frame::hint) that it was given: with the task's inputs, everything that its outcome depends on.
        hint: u64,
        /// What it did, in one record: a log cannot hold a part of it.
        outcome: Outcome,
    },
    /// A task of a part (the second theft) was lent.
    Lent(Theft, Theft, TaskId),
    /// A lent task was taken back.
    Voided(Theft),
    /// A stolen task arrived.
    Taken(Theft, Loan),
    /// The result of a lent task arrived.
    Merged(Theft, Payment),
    /// What was owed is not wanted any more.
    Forgotten(Theft),
}

impl Graph {
    /// The graph of a program whose first task has done this, and whose result is to be this version.
    pub fn begin(outcome: Outcome, result: Version) -> Graph {
        let mut graph = Graph::default();
        graph.parts.insert(Theft::NONE, Part::begin(result));
        graph.settle(Theft::NONE, |part| part.outcome(&[], outcome));
        graph
    }

    /// The newest task that may run, with its inputs. From now on it executes.
    pub fn execute(&mut self) -> Option<(Theft, Call)> {
        let (theft, task) = self.ready.pop_back()?;
        let part = self.parts.get_mut(&theft).expect("a ready task belongs to a part");
        Some((theft, part.execute(task)))
    }

    /// Whether a task may run.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Applies what an executing task has done, in one step. False when the task is not wanted any more.
    pub fn apply(&mut self, theft: Theft, task: TaskId, outcome: Outcome) -> bool {
        let Some(call) = self.parts.get_mut(&theft).and_then(|part| part.end(task)) else { return false };
        self.settle(theft, |part| {
            part.ran(task);
            part.outcome(&call.accesses, outcome)
        });
        true
    }

    /// Sets the oldest task that may run aside for a thief: the part that it belongs to, and it.
    pub fn lend(&mut self, theft: Theft) -> Option<(Theft, TaskId)> {
        let (of, task) = self.ready.pop_front()?;
        let part = self.parts.get_mut(&of).expect("a ready task belongs to a part");
        self.loans.insert(theft, (of, part.lend(task)));
        Some((of, task))
    }

    /// Sets a task that executes aside as lent under a theft. False when another task is lent under it.
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

    /// What a thief is sent.
    pub fn loan(&self, theft: Theft) -> Option<Loan> {
        let (of, vertex) = self.loans.get(&theft)?;
        Some(Loan { call: self.parts[of].with_inputs(vertex) })
    }

    /// The task that is lent under this theft.
    pub fn lent(&self, theft: Theft) -> Option<TaskId> {
        self.loans.get(&theft).map(|(_, vertex)| vertex.task())
    }

    /// The task that was stolen in this theft, which is worked on here.
    pub fn owed(&self, theft: Theft) -> Option<TaskId> {
        self.parts.get(&theft).map(|part| part.root)
    }

    /// All thefts under which tasks are lent.
    pub fn loans(&self) -> impl Iterator<Item = Theft> + '_ {
        self.loans.keys().copied()
    }

    /// All thefts that are worked for here, and whether everything that is owed is there.
    pub fn debts(&self) -> impl Iterator<Item = (Theft, bool)> + '_ {
        self.parts.iter().map(|(theft, part)| (*theft, part.is_done()))
    }

    /// Begins to work for a theft. False when it does so already.
    pub fn take(&mut self, theft: Theft, loan: Loan) -> bool {
        if self.parts.contains_key(&theft) {
            return false;
        }
        let task = loan.call.id;
        self.parts.insert(theft, Part::stolen(loan.call));
        self.ready.push_back((theft, task));
        true
    }

    /// What is owed, once everything of it is there.
    pub fn payment(&self, theft: Theft) -> Option<Payment> {
        self.parts.get(&theft).filter(|part| part.is_done()).map(Part::payment)
    }

    /// Applies the result of a lent task: the task, and the part that it belongs to.
    pub fn merge(&mut self, theft: Theft, payment: Payment) -> Option<(TaskId, Theft)> {
        let (of, vertex) = self.loans.remove(&theft)?;
        let task = vertex.task();
        self.settle(of, |part| {
            part.effects.add(payment.effects);
            part.returned();
            let outcome = Outcome { written: payment.written, ..Outcome::default() };
            part.outcome(&vertex.call.accesses, outcome)
        });
        Some((task, of))
    }

    /// Takes a lent task back: it may run, or be lent again.
    pub fn void(&mut self, theft: Theft) -> Option<TaskId> {
        let (of, vertex) = self.loans.remove(&theft)?;
        let task = vertex.task();
        self.parts.get_mut(&of).expect("a lent task belongs to a part").give_back(vertex);
        self.ready.push_front((of, task));
        Some(task)
    }

    /// Drops a part, with all that was lent of it.
    pub fn forget(&mut self, theft: Theft) -> Option<TaskId> {
        let part = self.parts.remove(&theft)?;
        if !part.is_done() {
            self.ready.retain(|(of, _)| *of != theft);
            self.loans.retain(|_, (of, _)| *of != theft);
        }
        Some(part.root)
    }

    /// Whether everything that is owed under this theft is there.
    pub fn is_done(&self, theft: Theft) -> bool {
        self.parts.get(&theft).is_some_and(Part::is_done)
    }

    /// The graph of a process that is gone becomes part of this one.
    pub fn absorb(&mut self, of: ProcessId, other: Graph) {
        self.absorbed.insert(of);
        self.absorbed.extend(other.absorbed);
        for (theft, part) in other.parts {
            let before = self.parts.insert(theft, part);
            assert!(before.is_none(), "theft {theft} was worked for in two graphs");
        }
        for (theft, loan) in other.loans {
            let before = self.loans.insert(theft, loan);
            assert!(before.is_none(), "a task was lent in two graphs as {theft}");
        }
        other.ready.into_iter().rev().for_each(|it| self.ready.push_front(it));
    }

    /// The processes whose graphs became part of this one.
    pub fn absorbed(&self) -> &BTreeSet<ProcessId> {
        &self.absorbed
    }

    /// Repeats an event that changed a graph equal to this one.
    ///
    /// # Panics
    ///
    /// If the event is impossible here, so that the graphs were not equal.
    pub fn redo(&mut self, event: GraphEvent) {
        let is_possible = match event {
            GraphEvent::Ran { theft, task, outcome, .. } => {
                self.pick(theft, task) && self.apply(theft, task, outcome)
            }
            GraphEvent::Lent(theft, of, task) => {
                let found = self.pick(of, task);
                self.ready.push_front((of, task));
                found && self.lend(theft).is_some()
            }
            GraphEvent::Voided(theft) => self.void(theft).is_some(),
            GraphEvent::Taken(theft, loan) => self.take(theft, loan),
            GraphEvent::Merged(theft, payment) => self.merge(theft, payment).is_some(),
            GraphEvent::Forgotten(theft) => self.forget(theft).is_some(),
        };
        assert!(is_possible, "a log of events does not fit its graph");
    }

    /// The tasks that this state contains.
    pub fn effects(&self) -> Effects {
        let mut sum = Effects::default();
        self.parts.values().for_each(|part| sum.add(part.effects));
        sum
    }

    /// The tasks that a part contains.
    pub fn effects_of(&self, theft: Theft) -> Effects {
        self.parts.get(&theft).map(|part| part.effects).unwrap_or_default()
    }

    /// Takes a task out of those that may run.
    fn pick(&mut self, theft: Theft, task: TaskId) -> bool {
        let place = self.ready.iter().rposition(|it| *it == (theft, task));
        place.and_then(|place| self.ready.remove(place)).is_some()
    }

    /// Changes a part; tasks that may run now are the next ones, in their order.
    fn settle(&mut self, theft: Theft, change: impl FnOnce(&mut Part) -> Vec<TaskId>) {
        let part = self.parts.get_mut(&theft).expect("only a part that is there changes");
        self.ready.extend(change(part).into_iter().rev().map(|task| (theft, task)));
    }
}

#[cfg(test)]
mod tests;
