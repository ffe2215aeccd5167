//! Sending, receiving, and phases (section III-A, Algorithm 1; R3 to R6).

use alloc::vec::Vec;
use faultline_core::{Claim, ClusterId, Incarnation, MessageId, Payload, ProcessId, To};

use super::channel::{Content, Logged};
use super::config::{Defect, Recovery};
use super::determinants::DeliveryDecision;
use super::message::{AppAction, Control, Late, Orphan, Phase, Stamp};
use super::pairs::Pair;
use super::{ProtocolHost, Rank, RankState};

/// A message from the network.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) id: MessageId,
    pub(super) stamp: Stamp,
    pub(super) payload: Payload,
}

/// The state of a channel to another cluster on the network. Does not survive its process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WireState {
    /// Number of the next message for the network. The receiver has all messages before it.
    pub(super) next: u32,
    /// Messages with a smaller number are re-sends.
    pub(super) fresh: u32,
    /// If pairs of processes recover separately: the incarnations of both ends. `is_told` says whether this end
    /// has reported the channel's state to the other.
    pub(super) pair: Pair,
    pub(super) is_told: bool,
    /// First message that the receiver may or may not have. This one and all later ones are only logged.
    pub(super) undecided: Option<u32>,
}

/// Which messages may be sent during a recovery (R3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// No recovery round is in progress.
    Open,
    /// A round is in progress, and no orphan with a smaller phase is outstanding.
    UpTo(Phase),
    /// A round is in progress, and no level has been announced.
    Closed,
}

impl Gate {
    fn admits(self, phase: Phase) -> bool {
        match self {
            Gate::Open => true,
            Gate::UpTo(level) => phase <= level,
            Gate::Closed => false,
        }
    }
}

/// Fate of an arriving message.
enum Fate {
    /// The sender's or the receiver's cluster has failed since the send. The message will be re-sent.
    Stale(Incarnation),
    Duplicate,
    /// Cannot be received yet.
    Waits,
    /// Belongs to the checkpoint in progress.
    Late,
    Received,
}

impl Rank {
    /// Handles an action of the application.
    pub(super) fn done(&mut self, app_action: AppAction, host: &mut ProtocolHost) {
        if matches!(self.state, RankState::Restoring) {
            return; // The state that acted is about to be replaced.
        }
        self.order.sent += u64::from(matches!(app_action, AppAction::Sent(..)));
        self.app_actions.push_back(app_action);
        if !matches!(&self.state, RankState::Checkpointing(part) if part.is_cut()) {
            self.act(host);
        }
        self.repeat_waiting(host);
    }

    /// Lets the application's actions take effect, in order. The first send that has to wait for its phase holds back
    /// everything after it, and the application (R3).
    pub(super) fn act(&mut self, host: &mut ProtocolHost) {
        while let Some(app_action) = self.app_actions.pop_front() {
            match app_action {
                AppAction::Sent(id, payload) if self.may_send() => self.send(id, payload, host),
                AppAction::Sent(id, payload) => {
                    self.app_actions.push_front(AppAction::Sent(id, payload));
                    host.hold();
                    return;
                }
                AppAction::Consumed(id) => self.fold(id),
            }
        }
    }

    /// Lets the application resume unless something prevents it.
    pub(super) fn proceed(&mut self, host: &mut ProtocolHost) {
        if !matches!(self.state, RankState::Running) || self.position.sn.0 == 0 || self.asks_for_order() {
            return;
        }
        self.act(host);
        if self.app_actions.is_empty() {
            host.release();
            self.replay_waiting(host);
        }
    }

    fn may_send(&self) -> bool {
        (self.gate.admits(self.phase) || self.has(Defect::NoGate)) && self.order_is_stable()
    }

    /// Raises the phase when the application consumes a message, not when the message arrives (R6).
    fn fold(&mut self, id: MessageId) {
        let contribution = self.channels.get_mut(&id.from).and_then(|it| it.unfolded.remove(&id.number));
        self.phase = self.phase.max(contribution.unwrap_or(0));
    }

    /// Sends or logs a message of the application, or makes it wait for its phase (R3).
    fn send(&mut self, id: MessageId, payload: Payload, host: &mut ProtocolHost) {
        let cluster = self.group.view.group_of(id.to);
        let phase = self.phase;
        let channel = self.channels.entry(id.to).or_default();
        channel.sent = id.number + 1;
        if cluster == self.group.number {
            host.transmit(id, self.stamp(cluster, phase), payload);
            return;
        }
        let wire = self.wires.entry(id.to).or_default();
        let last_again = self.config.defects.has(Defect::LastReceivedResent);
        let is_known = wire.undecided.is_none() || self.config.defects.has(Defect::SendsBeforeMeeting);
        let is_had = if last_again { id.number + 1 < wire.next } else { id.number < wire.next };
        let is_had = is_had && !self.config.defects.has(Defect::RepeatedSentAgain);
        let is_suppressed = is_known && is_had;
        if is_known && !is_suppressed {
            wire.next = wire.next.min(id.number);
        }
        let is_needed = id.number >= channel.settled.received;
        let is_logged = !(is_suppressed && self.config.defects.has(Defect::SuppressedNotLogged));
        if is_needed && is_logged {
            let entry = Logged { phase, content: Content::Here(payload) };
            self.log.add(&entry);
            channel.log.insert(id.number, entry);
            if self.config.log_memory.is_some() {
                self.spill.logged(id.to, id.number);
            }
        }
        if is_suppressed {
            host.suppress(id);
            if self.has(Defect::SuppressedAndSent)
                && let Some(Logged { phase, content: Content::Here(payload) }) =
                    self.channels.get(&id.to).and_then(|it| it.log.get(&id.number))
            {
                host.transmit(id, self.stamp(cluster, *phase), payload.clone());
            }
            let orphan = Orphan { id, phase };
            self.tell_recovery_process(Control::Replayed { epoch: self.group.view.epoch, orphan }, host);
        } else {
            self.pump(id.to, host);
        }
        self.maybe_spill(host);
    }

    fn stamp(&self, to: ClusterId, phase: Phase) -> Stamp {
        Stamp { position: self.position, to: self.group.view.incarnation(to), phase }
    }

    /// Passes a channel's logged messages to the network, in order, as far as their phases permit (R4).
    pub(super) fn pump(&mut self, to: ProcessId, host: &mut ProtocolHost) {
        let no_gate = self.has(Defect::NoGate);
        let waits = !self.has(Defect::SendsBeforeMeeting);
        let (Some(channel), Some(wire)) = (self.channels.get(&to), self.wires.get(&to).copied()) else {
            return;
        };
        if waits && wire.undecided.is_some() {
            return;
        }
        let cluster = self.group.view.group_of(to);
        let mut next = wire.next;
        let mut lacking = None;
        for (&number, entry) in channel.log.range(wire.next..) {
            if !self.gate.admits(entry.phase) && !no_gate {
                break;
            }
            let payload = match &entry.content {
                Content::Here(payload) => payload.clone(),
                Content::Spilled { .. } if self.config.defects.has(Defect::SpilledNotSent) => continue,
                Content::Spilled { segment, .. } => match self.spill.fetched(*segment, to, number) {
                    Some(payload) => payload,
                    None => {
                        lacking = Some(*segment);
                        break;
                    }
                },
            };
            let id = MessageId { from: self.group.me, to, incarnation: Incarnation(0), number };
            if number < wire.fresh {
                host.claim(Claim::Resent { id });
            }
            host.transmit(id, self.stamp(cluster, entry.phase), payload);
            next = number + 1;
        }
        self.wires.entry(to).or_default().next = next;
        if let Some(segment) = lacking {
            self.want_segment(segment, to, host);
        }
    }

    pub(super) fn pump_all(&mut self, host: &mut ProtocolHost) {
        for to in Vec::from_iter(self.wires.keys().copied()) {
            self.pump(to, host);
        }
    }

    /// Handles a message from the network (R5).
    pub(super) fn arrived(&mut self, arrival: Arrival, host: &mut ProtocolHost) {
        match self.fate_of(&arrival) {
            Fate::Stale(known) if arrival.stamp.position.incarnation < known => host.drop_stale(arrival.id),
            Fate::Stale(_) | Fate::Duplicate => {}
            Fate::Waits
                if self.has(Defect::ArrivalsDroppedWhileRestoring)
                    && matches!(self.state, RankState::Restoring) => {}
            Fate::Waits => self.waiting.push_back(arrival),
            Fate::Late => {
                if let RankState::Checkpointing(part) = &mut self.state {
                    let Arrival { id, stamp: Stamp { phase, .. }, payload } = arrival;
                    part.add_late(Late { id, phase, payload });
                }
            }
            Fate::Received => self.receive(arrival, host),
        }
    }

    fn fate_of(&self, arrival: &Arrival) -> Fate {
        let Arrival { id, stamp: Stamp { position, to, .. }, .. } = arrival;
        let cluster = self.group.view.group_of(id.from);
        let is_inside = cluster == self.group.number;
        let (theirs, ours) =
            (self.group.view.incarnation(cluster), self.group.view.incarnation(self.group.number));
        if (position.incarnation < theirs || *to < ours) && !self.has(Defect::NoLifeCheck) {
            return Fate::Stale(theirs);
        }
        let is_early = position.incarnation > theirs || *to > ours || self.position.sn.0 == 0;
        if is_early || is_inside && position.sn > self.position.sn {
            return Fate::Waits;
        }
        match &self.state {
            RankState::Restoring => Fate::Waits,
            RankState::Checkpointing(_) if is_inside => Fate::Late,
            RankState::Checkpointing(_) => Fate::Waits,
            RankState::Running if !self.app_actions.is_empty() => Fate::Waits,
            RankState::Running => {
                let received = self.channels.get(&id.from).map_or(0, |it| it.received);
                let checks = !self.has(Defect::NoDuplicateCheck) && !self.has(Defect::RepeatedSentAgain);
                if id.number < received && checks {
                    Fate::Duplicate
                } else if matches!(self.decide_delivery(*id), DeliveryDecision::Later) {
                    Fate::Waits
                } else {
                    Fate::Received
                }
            }
        }
    }

    fn receive(&mut self, arrival: Arrival, host: &mut ProtocolHost) {
        let Arrival { id, stamp: Stamp { phase, .. }, payload } = arrival;
        self.note_delivery(id, &self.decide_delivery(id), host);
        let is_inside = self.group.view.group_of(id.from) == self.group.number;
        let low = self.has(Defect::PhaseOneTooLow);
        let channel = self.channels.entry(id.from).or_default();
        channel.received = channel.received.max(id.number + 1);
        let contribution = if is_inside || low { phase } else { phase + 1 };
        if self.config.recovery == Recovery::Phases {
            if !is_inside {
                channel.receipts.insert(id.number, phase);
            }
            if self.config.defects.has(Defect::FoldsAtArrival) {
                self.phase = self.phase.max(contribution);
            } else {
                channel.unfolded.insert(id.number, contribution);
            }
        }
        let present = channel.covered();
        if !is_inside && self.has(Defect::CollectsAtPresent) {
            let to = self.group.view.incarnation(self.group.view.group_of(id.from));
            let settled = Control::Settled { from: self.position.incarnation, to, covered: present };
            host.control(To::One(id.from), settled);
        }
        host.deliver(id, payload);
    }

    /// Reconsiders the messages that could not be received.
    pub(super) fn replay_waiting(&mut self, host: &mut ProtocolHost) {
        for arrival in core::mem::take(&mut self.waiting) {
            self.arrived(arrival, host);
        }
        self.repeat_waiting(host);
    }

    /// Repeats deliveries. A message that arrived earlier may have waited for one that arrived later, or for a send
    /// in the meantime.
    pub(super) fn repeat_waiting(&mut self, host: &mut ProtocolHost) {
        while self.repeats_deliveries() {
            let is_next = |it: &Arrival| matches!(self.fate_of(it), Fate::Received);
            let next = self.waiting.iter().position(is_next);
            let Some(arrival) = next.and_then(|it| self.waiting.remove(it)) else { return };
            self.receive(arrival, host);
        }
    }
}
