//! A process's side of pessimistic message logging (M1 to M6 of `docs/baselines.md`).
//!
//! Elnozahy, Alvisi, Wang, Johnson: *A Survey of Rollback-Recovery Protocols in Message-Passing Systems*
//! (2002), section 4.2; Bouteiller, Cappello, Herault, Krawezik, Lemarinier, Magniette: *MPICH-V2: a Fault
//! Tolerant MPI for Volatile Nodes based on Pessimistic Sender Based Message Logging* (2003). A process's
//! actions depend only on the order in which messages are delivered to it. The process reports each delivery
//! to an event logger, and sends nothing that depends on a delivery until the logger has confirmed it as
//! stable. After a failure, the same messages can therefore be delivered in the same order again, up to the
//! last delivery of which any other process has seen the consequences. The messages are in their senders'
//! logs, and the channels resume pair by pair.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faultline_core::{ImageName, MessageId, Time, To};

use super::config::{Defect, Recovery};
use super::message::{Control, Determinant, Recalled};
use super::{ProtocolHost, Rank, RankState};
use crate::machines::group::View;

/// A process's knowledge of the order of its deliveries. Deliveries are numbered from 0, over all channels.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryOrder {
    /// Number of deliveries in the current state.
    pub(super) delivered: u64,
    /// Number of messages that the application has sent in the current state.
    pub(super) sent: u64,
    /// The first delivery that no committed checkpoint contains.
    first: u64,
    /// Deliveries from `first` on, including those to be repeated.
    known: VecDeque<Determinant>,
    /// Deliveries before this one are in the event logger's storage, or in a committed checkpoint.
    stable: u64,
    /// Whether this process rolled back and does not know yet what to repeat.
    is_asking: bool,
    /// Whether it rolled back and has not yet repeated everything that it had done without another message.
    is_behind: bool,
}

impl DeliveryOrder {
    /// Returns the delivery to repeat next.
    fn next(&self) -> Option<&Determinant> {
        self.known.get(usize::try_from(self.delivered.checked_sub(self.first)?).ok()?)
    }
}

/// How to treat a message that has arrived.
pub(super) enum DeliveryDecision {
    /// Deliver it; the delivery is new.
    New,
    /// Deliver it; it is the next delivery to repeat.
    Repeated,
    /// Keep it; other deliveries must be repeated first.
    Later,
}

impl Rank {
    pub(super) fn logs_order(&self) -> bool {
        self.config.recovery == Recovery::Determinants
    }

    /// Returns whether there are known deliveries to repeat.
    pub(super) fn repeats_deliveries(&self) -> bool {
        self.order.next().is_some()
    }

    /// Returns whether the deliveries to repeat are still unknown.
    pub(super) fn asks_for_order(&self) -> bool {
        self.order.is_asking
    }

    /// Returns whether everything that could be sent now depends only on stable deliveries (M2).
    pub(super) fn order_is_stable(&self) -> bool {
        !self.logs_order() || self.order.stable >= self.order.delivered || self.has(Defect::SendsBeforeStable)
    }

    /// Returns whether a message may be delivered now (M4).
    pub(super) fn decide_delivery(&self, id: MessageId) -> DeliveryDecision {
        if !self.logs_order() {
            return DeliveryDecision::New;
        }
        if self.order.is_asking {
            return DeliveryDecision::Later;
        }
        match self.order.next() {
            None if self.order.is_behind && !self.has(Defect::RepeatsBeforeSends) => DeliveryDecision::Later,
            None => DeliveryDecision::New,
            Some(_) if self.has(Defect::RepeatsAsItComes) => DeliveryDecision::Repeated,
            Some(next) => {
                let is_it = (next.from, next.number) == (id.from, id.number);
                let has_sent = self.order.sent >= next.sent || self.has(Defect::RepeatsBeforeSends);
                if is_it && has_sent { DeliveryDecision::Repeated } else { DeliveryDecision::Later }
            }
        }
    }

    /// Reports a new delivery to the event logger (M1). Called immediately before the delivery.
    pub(super) fn note_delivery(
        &mut self,
        id: MessageId,
        decision: &DeliveryDecision,
        host: &mut ProtocolHost,
    ) {
        if !self.logs_order() {
            return;
        }
        let first = self.order.delivered;
        self.order.delivered += 1;
        if matches!(decision, DeliveryDecision::New) {
            let determinant = Determinant { from: id.from, number: id.number, sent: self.order.sent };
            self.order.known.push_back(determinant);
            self.tell_logger(Control::Log { first, determinants: [determinant].into() }, host);
        }
        self.rest_after_last(host);
    }

    /// Requests a rest after the last delivery to repeat. A later message may be a consequence of what this process
    /// did after that delivery and has yet to repeat, so it waits until everything is done that needs no further
    /// message (M4).
    fn rest_after_last(&self, host: &mut ProtocolHost) {
        if self.order.is_behind && self.order.next().is_none() {
            host.request_rest();
        }
    }

    /// Handles the end of the repetition: this process has repeated everything that other processes can have seen.
    pub(super) fn caught_up(&mut self, now: Time, host: &mut ProtocolHost) {
        self.order.is_behind = false;
        self.replay(now, host);
        self.maybe_write(now, host);
    }

    fn tell_logger(&self, message: Control, host: &mut ProtocolHost) {
        let logger = self.logger.expect("a federation that logs deliveries has a logger");
        host.control(To::One(logger), message);
    }

    /// Handles the event logger's confirmation that everything before delivery `upto` is stable.
    pub(super) fn logged(&mut self, upto: u64, host: &mut ProtocolHost) {
        self.order.stable = self.order.stable.max(upto);
        if self.has(Defect::ForgetsBeforeCheckpoint) {
            self.tell_logger(Control::Forget { below: upto, by: None }, host);
        }
        self.proceed(host);
    }

    /// Removes deliveries that a committed checkpoint contains: no process needs their order again (M5).
    pub(super) fn order_is_saved(&mut self, delivered: u64, by: ImageName, host: &mut ProtocolHost) {
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

    /// Asks for the order of deliveries after a rollback to a checkpoint, or to the initial state (M3).
    pub(super) fn recall_order(&mut self, has_acted: bool, host: &mut ProtocolHost) {
        if !self.logs_order() {
            return;
        }
        let delivered = self.channels.values().map(|it| u64::from(it.received)).sum();
        let transmitted: u64 = self.channels.values().map(|it| u64::from(it.sent)).sum();
        self.order = DeliveryOrder {
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

    /// Returns the number of the application's sends that wait.
    fn sends_waiting(&self) -> u64 {
        self.app_actions.iter().filter(|it| matches!(it, super::AppAction::Sent(..))).count() as u64
    }

    /// Reports to the event logger at the start of a life: it may have lost its storage before (M6).
    pub(super) fn greet_logger(&mut self, host: &mut ProtocolHost) {
        let is_up = self.logger.is_some_and(|it| self.group.view.is_up(it));
        if is_up && !matches!(self.state, RankState::Restoring) && !self.has(Defect::NotToldAgain) {
            self.speak_to_logger(host);
        }
    }

    /// Reports to a new life of the event logger, which may have lost what the previous one knew (M6).
    pub(super) fn watch_logger(&mut self, old: &View, host: &mut ProtocolHost) {
        let is_new = self.logger.is_some_and(|it| self.group.view.began_new_life(it, old));
        if is_new && !matches!(self.state, RankState::Restoring) && !self.has(Defect::NotToldAgain) {
            self.speak_to_logger(host);
        }
    }

    /// Asks for the deliveries to repeat, or reports all known ones.
    fn speak_to_logger(&self, host: &mut ProtocolHost) {
        let DeliveryOrder { first, delivered, ref known, is_asking, .. } = self.order;
        let message = match is_asking {
            true => Control::Recall { first: delivered },
            false => Control::Know { first, determinants: known.iter().copied().collect() },
        };
        self.tell_logger(message, host);
    }

    /// Handles the event logger's answer: the deliveries to repeat, or that they are lost.
    pub(super) fn recalled(&mut self, recalled: Recalled, now: Time, host: &mut ProtocolHost) {
        if !self.order.is_asking || matches!(self.state, RankState::Restoring) {
            return;
        }
        let logger = self.logger.expect("it has just answered");
        match recalled {
            Recalled::Order { first, determinants } if first == self.order.first => {
                self.order.stable = first + determinants.len() as u64;
                self.order.known = determinants.iter().copied().collect();
                self.order.is_asking = false;
                self.rest_after_last(host);
                self.proceed(host);
                self.replay(now, host);
            }
            // Answers an outdated question.
            Recalled::Order { .. } => {}
            Recalled::Lost => {
                let log = ImageName { owner: logger, ..self.position_as_part() };
                self.group.unrecoverable(&[(log, Vec::from([logger]))], host);
            }
            Recalled::Forgotten { by } => {
                let holders = self.group.holders.iter().copied();
                let asked = core::iter::once(self.group.me).chain(holders).collect();
                self.group.unrecoverable(&[(by.unwrap_or_else(|| self.position_as_part()), asked)], host);
            }
        }
    }

    fn position_as_part(&self) -> ImageName {
        let kept = self.group.kept.expect("a process that asks has restored something");
        kept.part(self.group.me)
    }
}
