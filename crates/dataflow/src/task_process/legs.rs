//! Sends and handles the messages of thefts.

use alloc::vec::Vec;

use faultline_core::process::Packet;
use faultline_core::{Action, MessageId, Out, Payload, ProcessId, Role, Theft, TheftStep, Time, To};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Inner, Mark, TaskProcess, TaskProcessMessage};
use crate::graph::{Effects, GraphEvent, StolenResult, StolenTask};
use crate::program::Program;
use crate::recovery::{Leg, TaskInput, TaskProtocol, successor};

impl<P: TaskProtocol, G: Program> Inner<P, G> {
    /// Returns whether `process` is this process, or a process that this one has absorbed.
    pub(super) fn is_mine(&self, process: ProcessId) -> bool {
        process == self.me || self.graph.absorbed().contains(&process)
    }

    /// Handles a leg with content. A held process drops the leg, since its state may yet be replaced.
    pub(super) fn arrived(
        &mut self,
        from: ProcessId,
        Mark { theft, leg }: Mark,
        bytes: &[u8],
        out: &mut Out<TaskProcess<P, G>>,
    ) {
        if self.held {
            return;
        }
        match leg {
            Leg::Task => self.take(from, theft, decode(bytes), out),
            Leg::Result if self.is_mine(theft.victim) || self.graph.lent(theft).is_some() => {
                self.merge(from, theft, decode(bytes), out);
            }
            _ => {}
        }
    }

    /// Handles a message without content. Returns it if it belongs to the protocol.
    pub(super) fn handle_control(
        &mut self,
        from: ProcessId,
        word: TaskProcessMessage<P::Control>,
        now: Time,
        out: &mut Out<TaskProcess<P, G>>,
    ) -> Option<TaskInput<P>> {
        match word {
            TaskProcessMessage::Leg(theft, Leg::Ask) if !self.held => self.asked(theft, out),
            TaskProcessMessage::Leg(theft, Leg::Receipt) if !self.held => self.forget(theft, out),
            TaskProcessMessage::Leg(..) => {}
            TaskProcessMessage::Nothing(theft) => self.thief.refused(theft, now),
            TaskProcessMessage::Over(digest) if self.is_rank => {
                // The process that announced the end may have failed before all others learned of it.
                if self.over.is_none() && self.has_seen_a_failure() {
                    self.broadcast(&TaskProcessMessage::Over(digest), out);
                }
                self.end(digest, Effects::default(), out);
            }
            TaskProcessMessage::Over(_) => {}
            TaskProcessMessage::Hint(hint) => self.note_hint(hint, false, out),
            TaskProcessMessage::Protocol(message) => return Some(TaskInput::Control { from, message }),
        }
        None
    }

    /// Returns whether a process has failed, as far as this process knows.
    fn has_seen_a_failure(&self) -> bool {
        let mut ranks = self.membership.with_role(Role::RANK).map(|it| self.membership.member(it));
        ranks.any(|it| it.gone || it.lives() > 1 || it.lives() == 1 && !it.up)
    }

    fn asked(&mut self, theft: Theft, out: &mut Out<TaskProcess<P, G>>) {
        let thief = self.membership.member(theft.thief);
        if self.over.is_some() || thief.gone || thief.life > theft.life {
            // No answer is needed: the thief learns that the program is over, or no longer waits for an answer.
        } else if self.graph.lent(theft).is_some() {
            self.unseen.push_back(TaskInput::Due(theft, Leg::Task));
        } else if let Some((of, task)) = self.graph.lend(theft) {
            self.step(theft, task, TheftStep::Lent, out);
            self.record_event(|| GraphEvent::Lent(theft, of, task));
            self.unseen.push_back(TaskInput::Due(theft, Leg::Task));
        } else {
            self.send_control(theft.thief, TaskProcessMessage::Nothing(theft), out);
        }
    }

    fn take(&mut self, from: ProcessId, theft: Theft, loan: StolenTask, out: &mut Out<TaskProcess<P, G>>) {
        if self.thief.asking() != Some(theft) {
            if self.graph.owed(theft).is_none() {
                self.unseen.push_back(TaskInput::Unwanted(theft, Leg::Task, from));
            }
            return;
        }
        self.thief.stop();
        let (task, event) = (loan.call.id, self.logs.then(|| GraphEvent::Taken(theft, loan.clone())));
        if self.graph.take(theft, loan) {
            self.step(theft, task, TheftStep::Taken, out);
            self.events.extend(event);
        }
    }

    fn merge(
        &mut self,
        from: ProcessId,
        theft: Theft,
        payment: StolenResult,
        out: &mut Out<TaskProcess<P, G>>,
    ) {
        // Inserted even if the result was merged before, so that its receipt can be sent again.
        self.merged.insert(theft, payment.task);
        let event = self.logs.then(|| GraphEvent::Merged(theft, payment.clone()));
        let Some((task, of)) = self.graph.merge(theft, payment) else {
            return self.unseen.push_back(TaskInput::Unwanted(theft, Leg::Result, from));
        };
        self.step(theft, task, TheftStep::Merged, out);
        self.events.extend(event);
        self.unseen.push_back(TaskInput::Due(theft, Leg::Receipt));
        self.check_done(of, out);
    }

    pub(super) fn forget(&mut self, theft: Theft, out: &mut Out<TaskProcess<P, G>>) {
        if theft != Theft::NONE
            && let Some(task) = self.graph.forget(theft)
        {
            self.step(theft, task, TheftStep::Forgotten, out);
            self.record_event(|| GraphEvent::Forgotten(theft));
        }
    }

    pub(super) fn void(&mut self, theft: Theft, out: &mut Out<TaskProcess<P, G>>) {
        if let Some(task) = self.graph.void(theft) {
            self.step(theft, task, TheftStep::Voided, out);
            self.record_event(|| GraphEvent::Voided(theft));
        }
    }

    /// Sends a leg, or performs its effect immediately if this process is the receiver.
    pub(super) fn pass(&mut self, theft: Theft, leg: Leg, out: &mut Out<TaskProcess<P, G>>) {
        match leg {
            Leg::Ask => {
                if self.thief.asking() == Some(theft) {
                    self.send_control(theft.victim, TaskProcessMessage::Leg(theft, leg), out);
                }
            }
            Leg::Task => {
                if let Some(loan) = self.graph.loan(theft).filter(|_| !self.is_mine(theft.thief)) {
                    let task = loan.call.id;
                    self.step(theft, task, TheftStep::Shipped, out);
                    self.send(successor(&self.membership, theft.thief), theft, leg, &loan, out);
                }
            }
            Leg::Result => self.pay(theft, out),
            Leg::Receipt => {
                let Some(task) = self.merged.remove(&theft) else { return };
                if !self.is_mine(theft.thief) {
                    self.step(theft, task, TheftStep::Receipted, out);
                    self.send_control(
                        successor(&self.membership, theft.thief),
                        TaskProcessMessage::Leg(theft, leg),
                        out,
                    );
                }
            }
        }
    }

    /// Sends the result of a theft to the process that expects it. The result of the program itself ends the program.
    fn pay(&mut self, theft: Theft, out: &mut Out<TaskProcess<P, G>>) {
        let Some(payment) = self.graph.payment(theft) else { return };
        if theft == Theft::NONE {
            let value = payment.written.first().map(|(_, chunk)| chunk.clone());
            let value = value.unwrap_or(faultline_core::Chunk::Bytes([].into()));
            let digest = self.program.digest(&value);
            self.broadcast(&TaskProcessMessage::Over(digest), out);
            self.end(digest, payment.effects, out);
        } else {
            let successor = successor(&self.membership, theft.victim);
            let victim = if self.is_mine(theft.victim) { self.me } else { successor };
            if victim == self.me && !self.is_mine(theft.victim) {
                // The result is delivered once this process has absorbed the victim; until then, this process does not
                // hold the loan.
                return;
            }
            self.pay_to(victim, theft, payment, out);
        }
    }

    /// Sends a result to the process that now holds the stolen task.
    pub(super) fn pay_orphan(&mut self, theft: Theft, to: ProcessId, out: &mut Out<TaskProcess<P, G>>) {
        if let Some(payment) = self.graph.payment(theft) {
            self.pay_to(to, theft, payment, out);
        }
    }

    fn pay_to(
        &mut self,
        to: ProcessId,
        theft: Theft,
        payment: StolenResult,
        out: &mut Out<TaskProcess<P, G>>,
    ) {
        if to == self.me {
            // This process is on both sides of the theft: one step merges the result and drops the debt.
            self.merge(self.me, theft, payment, out);
            self.forget(theft, out);
        } else {
            let task = self.graph.owed(theft);
            self.step(theft, task.expect("only owed results are sent"), TheftStep::Returned, out);
            self.send(to, theft, Leg::Result, &payment, out);
        }
    }

    fn send(
        &mut self,
        to: ProcessId,
        theft: Theft,
        leg: Leg,
        content: &impl Serialize,
        out: &mut Out<TaskProcess<P, G>>,
    ) {
        let incarnation = faultline_core::Incarnation(theft.life.0);
        let id = MessageId { from: self.me, to, incarnation, number: theft.number };
        let bytes = postcard::to_allocvec(content).expect("a leg can be encoded");
        let packet =
            Packet::Application { id, stamp: Mark { theft, leg }, payload: Payload::from_slice(&bytes) };
        out.push(Action::Send { to: To::One(to), packet });
    }

    /// Resolves thefts whose victim and thief may both be this process after an absorption: takes back a lent
    /// task that this process does not have, drops a result for which it has lent no task, and merges a result owed to
    /// itself. If a process was absorbed in its initial state (`as_it_began`), it has lent no tasks, and results owed
    /// to it are kept.
    pub(super) fn reconcile_own(&mut self, as_it_began: bool, out: &mut Out<TaskProcess<P, G>>) {
        let loans: Vec<Theft> = self.graph.loans().filter(|it| self.is_mine(it.thief)).collect();
        for theft in loans.into_iter().filter(|it| self.graph.owed(*it).is_none()).collect::<Vec<_>>() {
            if self.thief.asking() == Some(theft) {
                self.thief.stop();
            }
            self.void(theft, out);
        }
        if as_it_began {
            return;
        }
        let debts: Vec<(Theft, bool)> =
            self.graph.debts().filter(|(it, _)| *it != Theft::NONE && self.is_mine(it.victim)).collect();
        for (theft, is_done) in debts {
            if self.graph.lent(theft).is_none() {
                self.forget(theft, out);
            } else if is_done {
                self.unseen.push_back(TaskInput::Due(theft, Leg::Result));
            }
        }
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> T {
    postcard::from_bytes(bytes).expect("processes run the same program")
}
