//! Sending and receiving (section III-A, Algorithm 1; R3 to R6).

use faultline_core::{MessageId, Payload, ProcessId};

use super::rank::{Arrival, ProtocolHost, Rank};
use super::{Defect, Late, Rule, Stamp};
use crate::machines::logs::{Content, Logged};
use crate::machines::phases::AppAction;

impl Rank {
    // ---- Sending (R3, R4).

    /// Handles an action of the application.
    pub(super) fn done(&mut self, action: AppAction, host: &mut ProtocolHost) {
        if self.group.is_recovering() {
            return; // The state in which the application acted is about to be replaced.
        }
        self.app_actions.push_back(action);
        if !self.part.as_ref().is_some_and(|part| part.is_cut()) {
            self.act(host);
        }
    }

    /// Lets the application's actions take effect, in order. The first send that has to wait for its phase holds back
    /// the application and all later actions (R3).
    pub(super) fn act(&mut self, host: &mut ProtocolHost) {
        while let Some(action) = self.app_actions.pop_front() {
            match action {
                AppAction::Sent(id, payload) if self.rounds.admits(self.phases.phase()) => {
                    self.send(id, payload, host);
                }
                AppAction::Sent(..) => {
                    self.app_actions.push_front(action);
                    host.hold();
                    return;
                }
                AppAction::Consumed(id) => self.phases.consumed(id),
            }
        }
    }

    /// Sends a message: directly inside the cluster, or through the channel's log if the receiver is in another
    /// cluster. If the receiver already has the message, the message is a re-sent orphan, and the recovery process is
    /// informed.
    pub(super) fn send(&mut self, id: MessageId, payload: Payload, host: &mut ProtocolHost) {
        let cluster = self.group.view.group_of(id.to);
        let phase = self.phases.phase();
        if cluster == self.group.number {
            self.logs.sent_inside(id);
            let to = self.group.view.incarnation(cluster);
            host.transmit(id, Stamp { position: self.position, to, tag: phase }, payload);
            return;
        }
        if self.logs.sent(id, phase, payload, true, host) {
            if self.has(Defect::SuppressedAndSent) {
                self.transmit_logged(id, host);
            }
            self.rounds.replayed(&self.group.view, id, phase, host);
        } else {
            self.pump(id.to, host);
        }
        self.logs.maybe_spill(&mut self.group, host);
    }

    /// Transmits a suppressed message. Used only by a defect.
    pub(super) fn transmit_logged(&self, id: MessageId, host: &mut ProtocolHost) {
        let to = self.group.view.incarnation(self.group.view.group_of(id.to));
        let logged = self.logs.channels.get(&id.to).and_then(|it| it.log.get(&id.number));
        if let Some(Logged { tag, content: Content::Here(payload) }) = logged {
            host.transmit(id, Stamp { position: self.position, to, tag: *tag }, payload.clone());
        }
    }

    /// Passes a channel's logged messages to the network, in order, up to the first whose phase does not permit it
    /// (R4).
    pub(super) fn pump(&mut self, to: ProcessId, host: &mut ProtocolHost) {
        let admits = |phase| self.rounds.admits(phase);
        self.logs.pump(&mut self.group, to, self.position, admits, host);
    }

    /// Lets the application resume, unless a checkpoint or a recovery is in progress, or a send has to wait for its
    /// phase.
    pub(super) fn proceed(&mut self, host: &mut ProtocolHost) {
        // No process may act before the first checkpoint is committed.
        if !self.is_running() || self.position.sn.0 == 0 {
            return;
        }
        self.act(host);
        if self.app_actions.is_empty() {
            host.release();
            self.replay_waiting(host);
        }
    }

    // ---- Receiving (R5, R6).

    /// Handles a message from the network. A message from an older incarnation of the sender's cluster, or to an older
    /// incarnation of the receiver's cluster, is dropped, since it will be re-sent. Messages from or to newer
    /// incarnations wait.
    pub(super) fn arrived(&mut self, arrival: Arrival, host: &mut ProtocolHost) {
        let Arrival { id, stamp: Stamp { position, to, .. }, .. } = arrival;
        let cluster = self.group.view.group_of(id.from);
        let is_inside = cluster == self.group.number;
        let theirs = self.group.view.incarnation(cluster);
        let ours = self.group.view.incarnation(self.group.number);
        if (position.incarnation < theirs || to < ours) && self.obeys(Rule::DropsOlderLives) {
            if position.incarnation < theirs {
                host.drop_stale(id);
            }
            return;
        }
        let is_early = position.incarnation > theirs
            || to > ours
            || self.position.sn.0 == 0
            || is_inside && position.sn > self.position.sn;
        let drops_duplicates = self.obeys(Rule::DropsDuplicates);
        let drops_arrivals = self.has(Defect::ArrivalsDroppedWhileRestoring);
        match &mut self.part {
            _ if self.group.is_recovering() && drops_arrivals => {}
            _ if is_early || self.group.is_recovering() => self.waiting.push_back(arrival),
            Some(part) if is_inside => {
                part.add_late(Late { id, phase: arrival.stamp.tag, payload: arrival.payload });
            }
            Some(_) => self.waiting.push_back(arrival),
            None if !self.app_actions.is_empty() => self.waiting.push_back(arrival),
            // The message has already been received.
            None if id.number < self.logs.received(id.from) && drops_duplicates => {}
            None => self.receive(arrival, is_inside, host),
        }
    }

    pub(super) fn receive(&mut self, arrival: Arrival, is_inside: bool, host: &mut ProtocolHost) {
        let Arrival { id, stamp: Stamp { tag: phase, .. }, payload } = arrival;
        self.logs.receive(id);
        self.phases.received(id, phase, is_inside, self.config.phase_rules());
        if !self.obeys(Rule::CollectsAtCheckpoint) && !is_inside {
            self.logs.tell_present(&self.group, id.from, host);
        }
        host.deliver(id, payload);
    }

    /// Retries the messages that could not be received before.
    pub(super) fn replay_waiting(&mut self, host: &mut ProtocolHost) {
        for arrival in core::mem::take(&mut self.waiting) {
            self.arrived(arrival, host);
        }
    }
}
