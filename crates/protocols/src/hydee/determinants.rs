//! A process's side of pessimistic message logging (M1 to M6 of `docs/baselines.md`).
//!
//! Elnozahy, Alvisi, Wang, Johnson: *A Survey of Rollback-Recovery Protocols in Message-Passing Systems* (2002), section 4.2;
//! Bouteiller, Cappello, Herault, Krawezik, Lemarinier, Magniette: *MPICH-V2: a Fault Tolerant MPI for Volatile Nodes based on
//! Pessimistic Sender Based Message Logging* (2003). What a process does depends on the order in which it is delivered
//! messages, and on nothing else that is not repeated. That order goes to an event logger, delivery by delivery, and nothing is
//! sent that depends on a delivery of which the logger has not said that it is stable. So whoever fails can be delivered the
//! same messages in the same order again, as far as anybody has seen of it; the messages are in their senders' logs, and the
//! channels are taken up again pair by pair.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Claim, ImageName, MessageId, ProcessId, Time, To};

use super::config::{Defect, Recovery};
use super::message::{Control, Determinant, Recalled};
use super::view::View;
use super::{Desk, Rank, State};

/// What a process knows of the order of its deliveries. Deliveries are numbered from 0, over all channels.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// Deliveries in the present state.
    pub(super) delivered: u64,
    /// Messages that the application has sent in the present state.
    pub(super) sent: u64,
    /// The first delivery that no committed checkpoint holds.
    first: u64,
    /// From there on, also those that are to be repeated.
    known: VecDeque<Determinant>,
    /// Deliveries before this one are held by the event logger's storage, or by a committed checkpoint.
    stable: u64,
    /// This process went back, and does not know yet what it has to repeat.
    is_asking: bool,
    /// It went back, and has not done again everything that it had done without another message.
    is_behind: bool,
}

impl Order {
    /// The delivery that has to be repeated next.
    fn next(&self) -> Option<&Determinant> {
        self.known.get(usize::try_from(self.delivered.checked_sub(self.first)?).ok()?)
    }
}

/// What may be done with a message that has arrived.
pub(super) enum Turn {
    /// It is a new delivery.
    New,
    /// It is the one that has to be repeated now.
    Repeated,
    /// Others have to be repeated before.
    Later,
}

impl Rank {
    pub(super) fn logs_order(&self) -> bool {
        self.config.recovery == Recovery::Determinants
    }

    /// Whether deliveries are known that have to be made again.
    pub(super) fn repeats_deliveries(&self) -> bool {
        self.order.next().is_some()
    }

    /// Whether it is unknown what has to be repeated.
    pub(super) fn asks_for_order(&self) -> bool {
        self.order.is_asking
    }

    /// Whether nothing that could be sent now depends on a delivery that might be forgotten (M2).
    pub(super) fn order_is_stable(&self) -> bool {
        !self.logs_order() || self.order.stable >= self.order.delivered || self.has(Defect::SendsBeforeStable)
    }

    /// Whether a message may be delivered now (M4).
    pub(super) fn turn_of(&self, id: MessageId) -> Turn {
        if !self.logs_order() {
            return Turn::New;
        }
        if self.order.is_asking {
            return Turn::Later;
        }
        match self.order.next() {
            None if self.order.is_behind && !self.has(Defect::RepeatsBeforeSends) => Turn::Later,
            None => Turn::New,
            Some(_) if self.has(Defect::RepeatsAsItComes) => Turn::Repeated,
            Some(next) => {
                let is_it = (next.from, next.number) == (id.from, id.number);
                let has_sent = self.order.sent >= next.sent || self.has(Defect::RepeatsBeforeSends);
                if is_it && has_sent { Turn::Repeated } else { Turn::Later }
            }
        }
    }

    /// A message is about to be delivered: a new delivery is told the event logger (M1).
    pub(super) fn note_delivery(&mut self, id: MessageId, turn: &Turn, host: &mut Desk) {
        if !self.logs_order() {
            return;
        }
        let first = self.order.delivered;
        self.order.delivered += 1;
        if matches!(turn, Turn::New) {
            let determinant = Determinant { from: id.from, number: id.number, sent: self.order.sent };
            self.order.known.push_back(determinant);
            self.tell_logger(Control::Log { first, determinants: [determinant].into() }, host);
        }
        self.rest_after_last(host);
    }

    /// What comes after the last delivery that has to be repeated may be there because of what this process did after that and
    /// has yet to do again: it waits until everything is done that can be done without it (M4).
    fn rest_after_last(&self, host: &mut Desk) {
        if self.order.is_behind && self.order.next().is_none() {
            host.request_rest();
        }
    }

    /// Everything that this process had done before it went back, and that others can have seen, it has done again.
    pub(super) fn caught_up(&mut self, now: Time, host: &mut Desk) {
        self.order.is_behind = false;
        self.replay(now, host);
        self.maybe_write(now, host);
    }

    fn tell_logger(&self, message: Control, host: &mut Desk) {
        let logger = self.logger.expect("the order of deliveries is logged by somebody");
        host.control(To::One(logger), message);
    }

    /// The event logger has everything before delivery `upto`.
    pub(super) fn logged(&mut self, upto: u64, host: &mut Desk) {
        self.order.stable = self.order.stable.max(upto);
        if self.has(Defect::ForgetsBeforeCheckpoint) {
            self.tell_logger(Control::Forget { below: upto, by: None }, host);
        }
        self.go_on(host);
    }

    /// A committed checkpoint holds this many deliveries: nobody needs their order again (M5).
    pub(super) fn order_is_saved(&mut self, delivered: u64, by: ImageName, host: &mut Desk) {
        if !self.logs_order() {
            return;
        }
        let order = &mut self.order;
        let superfluous = delivered.saturating_sub(order.first).min(order.known.len() as u64);
        order.known.drain(..superfluous as usize);
        order.first = order.first.max(delivered);
        order.stable = order.stable.max(delivered);
        self.tell_logger(Control::Forget { below: delivered, by: Some(by) }, host);
    }

    /// This process went back to a checkpoint that holds so many deliveries, or to the beginning (M3).
    pub(super) fn recall_order(&mut self, has_acted: bool, host: &mut Desk) {
        if !self.logs_order() {
            return;
        }
        let delivered = self.channels.values().map(|it| u64::from(it.received)).sum();
        let transmitted: u64 = self.channels.values().map(|it| u64::from(it.sent)).sum();
        self.order = Order {
            delivered,
            sent: transmitted + self.sends_waiting(),
            first: delivered,
            known: VecDeque::new(),
            stable: delivered,
            is_asking: has_acted,
            is_behind: has_acted,
        };
        self.speak_to_logger(host);
    }

    /// Messages that the application has sent and that wait.
    fn sends_waiting(&self) -> u64 {
        self.deeds.iter().filter(|it| matches!(it, super::Deed::Sent(..))).count() as u64
    }

    /// The event logger may have lost its storage before this process heard of it for the first time (M6).
    pub(super) fn greet_logger(&mut self, host: &mut Desk) {
        let is_up = self.logger.is_some_and(|it| self.view.is_up(it));
        if is_up && !matches!(self.state, State::Restoring(_)) && !self.has(Defect::NotToldAgain) {
            self.speak_to_logger(host);
        }
    }

    /// The event logger began a new life, which may have lost what was told to the one before (M6).
    pub(super) fn watch_logger(&mut self, old: &View, host: &mut Desk) {
        let is_new = self.logger.is_some_and(|it| self.view.began_new_life(it, old));
        if is_new && !matches!(self.state, State::Restoring(_)) && !self.has(Defect::NotToldAgain) {
            self.speak_to_logger(host);
        }
    }

    /// Asks for what has to be repeated, or says everything that is known.
    fn speak_to_logger(&self, host: &mut Desk) {
        let Order { first, delivered, ref known, is_asking, .. } = self.order;
        let message = match is_asking {
            true => Control::Recall { first: delivered },
            false => Control::Know { first, determinants: known.iter().copied().collect() },
        };
        self.tell_logger(message, host);
    }

    /// What has to be repeated is known, or lost.
    pub(super) fn recalled(&mut self, recalled: Recalled, now: Time, host: &mut Desk) {
        if !self.order.is_asking || matches!(self.state, State::Restoring(_)) {
            return;
        }
        let logger = self.logger.expect("it has just answered");
        match recalled {
            Recalled::Order { first, determinants } if first == self.order.first => {
                self.order.stable = first + determinants.len() as u64;
                self.order.known = determinants.iter().copied().collect();
                self.order.is_asking = false;
                self.rest_after_last(host);
                self.go_on(host);
                self.replay(now, host);
            }
            // Of an older question.
            Recalled::Order { .. } => {}
            Recalled::Lost => {
                let log = ImageName { owner: logger, ..self.position_as_part() };
                self.give_up_for([(log, Vec::from([logger]))].into(), host);
            }
            Recalled::Forgotten { by } => {
                let holders = self.config.placement.holders(&self.view.membership, self.me);
                let asked = core::iter::once(self.me).chain(holders).collect();
                self.give_up_for([(by.unwrap_or_else(|| self.position_as_part()), asked)].into(), host);
            }
        }
    }

    fn position_as_part(&self) -> ImageName {
        let kept = self.kept.expect("who asks has restored something");
        kept.part(self.me)
    }

    fn give_up_for(&self, missing: Arc<[(ImageName, Vec<ProcessId>)]>, host: &mut Desk) {
        host.claim(Claim::Unrecoverable { cluster: self.cluster, missing });
    }
}
