//! Sending and receiving messages of the application (HydEE, section III-A, Algorithm 1; R3 to R6, S1, M2, M4).

use faultline_core::{Host, MessageId, Payload, ProcessId};

use super::rank::Arrival;
use super::{Decision, Delivering, LoggingProtocol, Rank, Resuming};
use crate::machines::logs::{AppAction, Late, Stamp};

/// The fate of a message from the network.
enum Fate {
    /// A rollback of the sender's group has undone the send. The message will be sent again.
    Undone,
    /// The message will be sent again, or was already received.
    Dropped,
    Waits,
    /// The message belongs to the checkpoint in progress.
    Late,
    Delivered {
        decision: Decision,
        /// Whether the message is from this process's group.
        is_inside: bool,
    },
}

impl<P: LoggingProtocol> Rank<P> {
    // ---- Sending (R3, R4, M2).

    /// Handles an action of the application.
    pub(super) fn acted(&mut self, action: AppAction, host: &mut dyn Host<P>) {
        if self.group.is_recovering() {
            return; // The state in which the application acted is about to be replaced.
        }
        if let AppAction::Sent(..) = action {
            self.deliveries.sent();
        }
        let is_cut = self.part.as_ref().is_some_and(|part| part.is_cut());
        if !is_cut && self.actions.is_empty() {
            self.perform(action, host);
        } else {
            self.actions.push_back(action);
            if !is_cut {
                self.act(host);
            }
        }
        self.repeat_waiting(host);
    }

    /// Lets the application's actions take effect, in order. The first send that has to wait holds back the application
    /// and all later actions.
    fn act(&mut self, host: &mut dyn Host<P>) {
        while let Some(action) = self.actions.pop_front() {
            if !self.perform(action, host) {
                return;
            }
        }
    }

    /// Lets the next action of the application take effect. Returns `false` if it is a send that has to wait, for its
    /// phase (R3) or until earlier deliveries are stable (M2).
    fn perform(&mut self, action: AppAction, host: &mut dyn Host<P>) -> bool {
        match action {
            AppAction::Sent(id, payload)
                if self.channels.admits(self.channels.tag()) && self.deliveries.is_stable() =>
            {
                self.send(id, payload, host);
            }
            AppAction::Sent(..) => {
                self.actions.push_front(action);
                host.wait();
                return false;
            }
            AppAction::Consumed(id) => self.channels.consumed(id),
        }
        true
    }

    /// Sends a message: directly inside the group, or through the channel's log if the receiver is in another group.
    fn send(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<P>) {
        let receiver = self.group.view.group_of(id.to);
        let tag = self.channels.tag();
        if receiver == self.group.number {
            self.logs.sent_inside(id);
            let to = self.group.view.incarnation(receiver);
            host.transmit(id, Stamp { position: self.position, to, tag }, payload);
            return;
        }
        if self.logs.sent(id, tag, payload, self.channels.is_decided(id.to), host) {
            self.channels.suppressed(&self.group.view, id, host);
        } else {
            self.pump(id.to, host);
        }
        self.logs.maybe_spill(&mut self.group, host);
    }

    /// Passes a channel's logged messages to the network, in order, once it is known which of them the peer lacks (S3,
    /// S4), up to the first whose phase does not permit it (R4).
    pub(super) fn pump(&mut self, to: ProcessId, host: &mut dyn Host<P>) {
        if self.channels.is_decided(to) {
            let admits = |tag| self.channels.admits(tag);
            self.logs.pump(&mut self.group, to, self.position, admits, host);
        }
    }

    /// Lets the application resume, unless a checkpoint or a recovery is in progress, the deliveries to repeat are
    /// unknown, or a send has to wait.
    pub(crate) fn proceed(&mut self, host: &mut dyn Host<P>) {
        // No process may act before the first checkpoint is committed.
        if !self.is_running() || self.position.sn.0 == 0 || self.deliveries.is_asking() {
            return;
        }
        self.act(host);
        if self.actions.is_empty() {
            host.release();
            self.replay_waiting(host);
        }
    }

    // ---- Receiving (R5, R6, M4).

    /// Handles a message from the network.
    pub(super) fn arrived(&mut self, arrival: Arrival<P::Tag>, host: &mut dyn Host<P>) {
        match self.fate_of(&arrival) {
            Fate::Undone => host.drop_stale(arrival.id),
            Fate::Dropped => {}
            Fate::Waits => self.waiting.push_back(arrival),
            Fate::Late => {
                let Arrival { id, stamp, payload } = arrival;
                let part = self.part.as_mut().expect("a checkpoint is in progress");
                part.add_late(Late { id, tag: stamp.tag, payload });
            }
            Fate::Delivered { decision, is_inside } => self.deliver(arrival, decision, is_inside, host),
        }
    }

    /// Returns what happens to a message from the network. A message from an older incarnation of the sender's group,
    /// or to an older incarnation of the receiver's group, is dropped, since it will be sent again. Messages from or to
    /// newer incarnations wait.
    fn fate_of(&self, arrival: &Arrival<P::Tag>) -> Fate {
        let &Arrival { id, stamp: Stamp { position, to, .. }, .. } = arrival;
        let sender = self.group.view.group_of(id.from);
        let is_inside = sender == self.group.number;
        let theirs = self.group.view.incarnation(sender);
        let ours = self.group.view.incarnation(self.group.number);
        if position.incarnation < theirs && self.rules.drops_undone {
            return Fate::Undone;
        }
        if to < ours && self.rules.drops_lost {
            return Fate::Dropped;
        }
        let is_recovering = self.group.is_recovering();
        let is_early = position.incarnation > theirs
            || to > ours
            || self.position.sn.0 == 0
            || is_inside && position.sn > self.position.sn;
        if is_early || is_recovering {
            return Fate::Waits;
        }
        if self.part.is_some() {
            return if is_inside { Fate::Late } else { Fate::Waits };
        }
        if !self.actions.is_empty() {
            return Fate::Waits;
        }
        if id.number < self.logs.received(id.from) && self.rules.drops_duplicates {
            return Fate::Dropped;
        }
        match self.deliveries.decide(id) {
            Decision::Later => Fate::Waits,
            decision => Fate::Delivered { decision, is_inside },
        }
    }

    fn deliver(
        &mut self,
        arrival: Arrival<P::Tag>,
        decision: Decision,
        is_inside: bool,
        host: &mut dyn Host<P>,
    ) {
        let Arrival { id, stamp: Stamp { tag, .. }, payload } = arrival;
        self.deliveries.delivered(id, decision, host);
        self.logs.receive(id);
        self.channels.received(id, tag, is_inside);
        if !self.rules.collects_at_checkpoint && !is_inside {
            self.logs.tell_present(&self.group, id.from, host);
        }
        host.deliver(id, payload);
    }

    /// Retries the messages that could not be received before.
    pub(super) fn replay_waiting(&mut self, host: &mut dyn Host<P>) {
        for arrival in core::mem::take(&mut self.waiting) {
            self.arrived(arrival, host);
        }
        self.repeat_waiting(host);
    }

    /// Repeats deliveries (M4). A message that arrived earlier may have waited for one that arrived later, or for a
    /// send in between.
    pub(super) fn repeat_waiting(&mut self, host: &mut dyn Host<P>) {
        while self.deliveries.repeats() {
            let due = |(index, it): (usize, &Arrival<P::Tag>)| match self.fate_of(it) {
                Fate::Delivered { decision, is_inside } => Some((index, decision, is_inside)),
                _ => None,
            };
            let due = self.waiting.iter().enumerate().find_map(due);
            let Some((index, decision, is_inside)) = due else { return };
            let Some(arrival) = self.waiting.remove(index) else { return };
            self.deliver(arrival, decision, is_inside, host);
        }
    }
}
