//! Sending and receiving application messages (sections 3.2 and 3.3).
//!
//! Inside a cluster, messages are counted. Each belongs to the incarnation and the checkpoint interval in which it
//! was sent. Between clusters, messages are logged, stamped, delivered only after the checkpoint that they force, and
//! acknowledged.

use alloc::sync::Arc;

use faultline_core::{
    Attempt, Claim, GroupId, Incarnation, MessageId, Payload, Position, ProcessId, Time, To,
};

use super::config::{Forcing, Piggyback, Rule};
use super::message::{Control, LogEntry, Stamp};
use super::{Hc3i, Phase, ProtocolHost};
use crate::machines::raise;

/// A message from another cluster that cannot be delivered yet.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) id: MessageId,
    pub(super) stamp: Stamp,
    payload: Payload,
    /// Position of this process when it last requested a checkpoint because of the message.
    asked: Option<Position>,
}

/// Input from inside the cluster that arrived before this process reached the sender's position.
#[derive(Clone, Debug)]
pub(super) enum Early {
    Application { id: MessageId, stamp: Stamp, payload: Payload },
    Request { from: ProcessId, position: Position, attempt: Attempt, forced: bool },
    Force { from: ProcessId, position: Position },
    Settled { incarnation: Incarnation },
}

impl Hc3i {
    /// Handles a message that the application sent.
    #[inline]
    pub(super) fn sent(&mut self, id: MessageId, payload: Payload, host: &mut ProtocolHost) {
        match &self.phase {
            // The state that sent the message is about to be replaced.
            Phase::Recovering(_) | Phase::Serving => {}
            Phase::Checkpointing(part) if !part.is_before_cut() => self.unsent.push((id, payload)),
            Phase::Running | Phase::Checkpointing(_) => self.send(id, payload, self.position, host),
        }
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        id: MessageId,
        payload: Payload,
        position: Position,
        host: &mut ProtocolHost,
    ) {
        let mut stamp = Stamp { position, ddv: None };
        if self.cluster_of(id.to) == self.cluster {
            *self.sent_within.get_mut(id.to) += 1;
        } else {
            if self.config.piggyback == Piggyback::Ddv {
                stamp.ddv = Some(Arc::new(self.whole(&self.ddv)));
            }
            Arc::make_mut(&mut self.log).push(LogEntry {
                id,
                stamp: stamp.clone(),
                payload: payload.clone(),
                acknowledged: None,
            });
        }
        host.transmit(id, stamp, payload);
    }

    /// Handles a message from the network.
    #[inline]
    pub(super) fn arrived(
        &mut self,
        id: MessageId,
        stamp: Stamp,
        payload: Payload,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let cluster = self.cluster_of(id.from);
        if cluster == self.cluster {
            self.arrived_within(id, stamp, payload, now, host);
        } else {
            self.arrived_between(cluster, Arrival { id, stamp, payload, asked: None }, now, host);
        }
    }

    #[inline]
    fn arrived_within(
        &mut self,
        id: MessageId,
        stamp: Stamp,
        payload: Payload,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let Position { incarnation, sn } = stamp.position;
        if incarnation < self.position.incarnation && self.obeys(Rule::DropsOldWithin) {
            host.drop_stale(id);
            return;
        }
        let future = incarnation > self.position.incarnation || sn > self.position.sn;
        let keeps_future = self.obeys(Rule::KeepsFuture);
        let is_drained = sn >= self.position.sn || matches!(self.phase, Phase::Recovering(_));
        assert!(
            is_drained || future || !self.is_sound(),
            "{id:?} of SN {sn:?} arrives at {:?}: a checkpoint waits for what was sent before it",
            self.position
        );
        match &mut self.phase {
            Phase::Recovering(_) => self.early.push(Early::Application { id, stamp, payload }),
            _ if future && !keeps_future => {}
            Phase::Running if !future => {
                self.received_within += 1;
                host.deliver(id, payload);
            }
            Phase::Checkpointing(part) if !future => {
                self.received_within += 1;
                part.add_late(id, payload);
                self.maybe_write(now, host);
            }
            _ => self.early.push(Early::Application { id, stamp, payload }),
        }
    }

    /// Applies the checks listed in `docs/hc3i.md` ("Messages"), in order.
    fn arrived_between(
        &mut self,
        cluster: GroupId,
        mut arrival: Arrival,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let Arrival { id, stamp: Stamp { position, .. }, .. } = arrival;
        let stale = self.is_undone(cluster, position) && self.obeys(Rule::DropsStale);
        let older = position.incarnation < self.history.known(cluster);
        if stale || older && !self.obeys(Rule::KeepsOlderIncarnations) {
            host.drop_stale(id);
            return;
        }
        let settled = self.settled || !self.obeys(Rule::WaitsForSettled);
        if position.incarnation > self.history.known(cluster) || !settled {
            self.waiting.push_back(arrival);
            return;
        }
        if !matches!(self.phase, Phase::Running) || self.position.sn.0 == 0 {
            let recovering = matches!(self.phase, Phase::Recovering(_));
            if !recovering || self.obeys(Rule::KeepsArrivals) {
                self.waiting.push_back(arrival);
            }
            return;
        }
        if let Some(position) = self.received.position(id) {
            host.control(To::One(id.from), Control::Acknowledge { id, position });
            return;
        }
        let forces = match self.config.forcing {
            Forcing::News => position > self.dependency(cluster),
            Forcing::EveryMessage => arrival.asked.is_none_or(|asked| !self.has_saved_since(asked)),
        };
        if forces && self.obeys(Rule::Forces) {
            host.claim(Claim::Forcing { id });
            arrival.asked = Some(self.position);
            self.waiting.push_back(arrival);
            self.ask_for_checkpoint(now, host);
            return;
        }
        host.deliver(id, arrival.payload);
        Arc::make_mut(&mut self.received).insert(id, self.position);
        raise(&mut self.delivered, cluster, position);
        host.control(To::One(id.from), Control::Acknowledge { id, position: self.position });
    }

    /// Returns whether a checkpoint was taken after `position` without a rollback in between.
    fn has_saved_since(&self, position: Position) -> bool {
        self.position.incarnation == position.incarnation && self.position.sn > position.sn
    }

    fn ask_for_checkpoint(&mut self, now: Time, host: &mut ProtocolHost) {
        if self.asked_at != Some(self.position) {
            self.asked_at = Some(self.position);
            self.send_to_coordinator(Control::Force { position: self.position }, now, host);
        }
    }

    /// Handles a receiver's acknowledgement. Ignores it if the delivery has been undone since.
    pub(super) fn acknowledged(&mut self, id: MessageId, position: Position) {
        if !self.is_undone(self.cluster_of(id.to), position) {
            Arc::make_mut(&mut self.log).acknowledge(id, position);
        }
    }

    /// Retries all input that had to wait until this process reached the sender's position.
    pub(super) fn replay(&mut self, now: Time, host: &mut ProtocolHost) {
        for early in core::mem::take(&mut self.early) {
            match early {
                Early::Application { id, stamp, payload } => {
                    self.arrived_within(id, stamp, payload, now, host)
                }
                Early::Request { from, position, attempt, forced } => {
                    self.checkpoint_requested(from, position, attempt, forced, now, host);
                }
                Early::Force { from, position } => self.checkpoint_forced(from, position, now, host),
                Early::Settled { incarnation } => self.settle(incarnation, now, host),
            }
        }
        if !self.obeys(Rule::RepeatsForce) {
            self.asked_at = Some(self.position);
        }
        self.replay_waiting(now, host);
    }

    /// Retries the queued messages from other clusters.
    pub(super) fn replay_waiting(&mut self, now: Time, host: &mut ProtocolHost) {
        for arrival in core::mem::take(&mut self.waiting) {
            let cluster = self.cluster_of(arrival.id.from);
            self.arrived_between(cluster, arrival, now, host);
        }
    }

    /// Re-sends the logged messages for which `wanted` returns `true`, with their original identity and stamp.
    pub(super) fn resend(&mut self, wanted: impl Fn(&Hc3i, &LogEntry) -> bool, host: &mut ProtocolHost) {
        let mut log = core::mem::take(&mut self.log);
        let chosen = Arc::make_mut(&mut log).take_back(|entry| wanted(self, entry));
        self.log = log;
        for LogEntry { id, stamp, payload, .. } in chosen {
            host.claim(Claim::Resent { id });
            host.transmit(id, stamp, payload);
        }
    }

    /// Returns whether a logged message must be re-sent: it was never acknowledged, or the acknowledged delivery was
    /// undone because it happened at or after the restored SN.
    pub(super) fn is_owed(&self, entry: &LogEntry) -> bool {
        let cluster = self.cluster_of(entry.id.to);
        entry.acknowledged.is_none_or(|position| {
            if self.obeys(Rule::ResendsAtRestored) {
                self.is_undone(cluster, position)
            } else {
                self.history.undid_checkpoint(cluster, position)
            }
        })
    }
}
