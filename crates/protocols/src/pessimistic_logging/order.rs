//! The order of a process's deliveries, as the process knows it (M1, M4).

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use faultline_core::MessageId;

use super::{Defects, Determinant, Rule};
use crate::frame::Decision;

/// A process's knowledge of the order of its deliveries. Deliveries are numbered from 0, across all channels.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryOrder {
    /// Number of deliveries in the current state.
    delivered: u64,
    /// Number of messages that the application has sent in the current state.
    sent: u64,
    /// The first delivery that no committed checkpoint contains.
    first: u64,
    /// Deliveries, starting with `first`, including those to be repeated.
    known: VecDeque<Determinant>,
    /// Deliveries before this one are in the event logger's storage, or in a committed checkpoint.
    stable: u64,
    /// Whether this process rolled back and has yet to learn what to repeat.
    is_asking: bool,
    /// Whether this process rolled back and has yet to repeat actions that need no further message.
    is_behind: bool,
    rules: Defects,
}

impl DeliveryOrder {
    /// Creates the order of a process that has received no messages.
    pub(super) fn new(rules: Defects) -> DeliveryOrder {
        DeliveryOrder { rules, ..DeliveryOrder::default() }
    }

    /// Restarts at a checkpoint with this many deliveries and sends. If the process has acted before, it has to
    /// ask for the deliveries that followed (M3).
    pub(super) fn restore(&mut self, delivered: u64, sent: u64, has_acted: bool) {
        *self = DeliveryOrder {
            delivered,
            sent,
            first: delivered,
            known: VecDeque::new(),
            stable: delivered,
            is_asking: has_acted,
            is_behind: has_acted,
            rules: self.rules,
        };
    }

    /// Returns the delivery to repeat next.
    fn next(&self) -> Option<&Determinant> {
        self.known.get(usize::try_from(self.delivered.checked_sub(self.first)?).ok()?)
    }

    /// Returns whether the deliveries to repeat are still unknown.
    pub(super) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Returns whether there are known deliveries to repeat.
    pub(super) fn repeats(&self) -> bool {
        self.next().is_some()
    }

    /// Returns whether all known deliveries have been repeated, but possibly not all actions that followed them. A
    /// later message may be a consequence of such an action. It therefore waits until this process has done everything
    /// that needs no further message (M4).
    pub(super) fn needs_rest(&self) -> bool {
        self.is_behind && !self.is_asking && self.next().is_none()
    }

    /// Records that this process has repeated everything that other processes may have seen.
    pub(super) fn rested(&mut self) {
        self.is_behind = false;
    }

    /// Returns whether everything that could be sent now depends only on stable deliveries (M2).
    pub(super) fn is_stable(&self) -> bool {
        self.stable >= self.delivered || !self.rules.obeys(Rule::WaitsForStable)
    }

    /// Counts a message that the application sent.
    pub(super) fn sent(&mut self) {
        self.sent += 1;
    }

    /// Returns whether a message may be delivered now (M4).
    pub(super) fn decide(&self, id: MessageId) -> Decision {
        let after_sends = self.rules.obeys(Rule::RepeatsAfterSends);
        match self.next() {
            _ if self.is_asking => Decision::Later,
            None if self.is_behind && after_sends => Decision::Later,
            None => Decision::New,
            Some(_) if !self.rules.obeys(Rule::RepeatsInOrder) => Decision::Repeated,
            Some(next) => {
                let is_it = (next.from, next.number) == (id.from, id.number);
                let has_sent = self.sent >= next.sent || !after_sends;
                if is_it && has_sent { Decision::Repeated } else { Decision::Later }
            }
        }
    }

    /// Counts a delivery. If it is new, returns its number and determinant, which the event logger must learn (M1).
    pub(super) fn deliver(&mut self, id: MessageId, decision: Decision) -> Option<(u64, Determinant)> {
        assert_ne!(decision, Decision::Later, "{id} has to wait");
        let number = self.delivered;
        self.delivered += 1;
        if decision == Decision::Repeated {
            return None;
        }
        let determinant = Determinant { from: id.from, number: id.number, sent: self.sent };
        self.known.push_back(determinant);
        Some((number, determinant))
    }

    /// Records that all deliveries before this one are in the event logger's storage.
    pub(super) fn stable_before(&mut self, delivery: u64) {
        self.stable = self.stable.max(delivery);
    }

    /// Removes deliveries that a committed checkpoint contains: no process needs their order again (M5).
    pub(super) fn saved(&mut self, delivered: u64) {
        let superfluous = delivered.saturating_sub(self.first).min(self.known.len() as u64);
        self.known.drain(..superfluous as usize);
        self.first = self.first.max(delivered);
        self.stable = self.stable.max(delivered);
    }

    /// Returns the number of the first delivery to repeat.
    pub(super) fn first_to_repeat(&self) -> u64 {
        self.delivered
    }

    /// Returns all deliveries that no checkpoint contains, and the number of the first.
    pub(super) fn known(&self) -> (u64, Arc<[Determinant]>) {
        (self.first, self.known.iter().copied().collect())
    }

    /// Learns the deliveries to repeat. Returns `false` if the answer belongs to an outdated request.
    pub(super) fn recalled(&mut self, first: u64, determinants: &[Determinant]) -> bool {
        if first != self.first {
            return false;
        }
        self.stable = first + determinants.len() as u64;
        self.known = determinants.iter().copied().collect();
        self.is_asking = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::{Incarnation, ProcessId};

    use super::*;

    fn message(from: u32, number: u32) -> MessageId {
        MessageId { from: ProcessId(from), to: ProcessId(0), incarnation: Incarnation(0), number }
    }

    #[test]
    fn nothing_is_sent_before_the_preceding_deliveries_are_stable() {
        let mut order = DeliveryOrder::new(Defects::default());
        assert!(order.is_stable());
        let (number, determinant) = order.deliver(message(1, 0), Decision::New).unwrap();
        assert_eq!((number, determinant.sent), (0, 0));
        assert!(!order.is_stable());
        order.stable_before(1);
        assert!(order.is_stable());
    }

    #[test]
    fn deliveries_are_repeated_in_order_and_after_the_sends_that_preceded_them() {
        let mut order = DeliveryOrder::new(Defects::default());
        order.restore(1, 0, true);
        assert_eq!(order.decide(message(1, 1)), Decision::Later, "the deliveries to repeat are unknown");
        let of = |from, number, sent| Determinant { from: ProcessId(from), number, sent };
        assert!(!order.recalled(0, &[]), "an answer to an older request");
        assert!(order.recalled(1, &[of(2, 0, 0), of(1, 1, 1)]));
        assert_eq!(order.decide(message(1, 1)), Decision::Later);
        assert_eq!(order.decide(message(2, 0)), Decision::Repeated);
        assert_eq!(order.deliver(message(2, 0), Decision::Repeated), None, "the logger knows the delivery");
        assert_eq!(order.decide(message(1, 1)), Decision::Later, "the receiver had sent a message before");
        order.sent();
        assert_eq!(order.decide(message(1, 1)), Decision::Repeated);
        order.deliver(message(1, 1), Decision::Repeated);
        assert!(order.needs_rest());
        assert_eq!(order.decide(message(1, 2)), Decision::Later);
        order.rested();
        assert_eq!(order.decide(message(1, 2)), Decision::New);
    }

    #[test]
    fn a_checkpoint_removes_the_deliveries_that_it_contains() {
        let mut order = DeliveryOrder::new(Defects::default());
        for number in 0..3 {
            assert!(order.deliver(message(1, number), Decision::New).is_some());
        }
        order.saved(2);
        let (first, known) = order.known();
        assert_eq!((first, known.len(), known[0].number), (2, 1, 2));
    }
}
