//! Taking a checkpoint of a cluster, and telling other clusters what they no longer need to keep for it (R7, R8).
//!
//! Coordinator: Prepare -> Frozen from all -> Expect -> Drained from all -> Commit. A member is frozen from the first
//! to the last. It sends Drained only once its part is durable, both here and at its holders. A recovery therefore
//! finds every committed checkpoint complete, and may treat a complete checkpoint as committed.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Claim, ImageName, Incarnation, Position, ProcessId, Snapshot, Time, To, Vectors,
};

use super::config::Defect;
use super::delivery::Arrival;
use super::message::{Control, Covered, Head, Late, Saved, Stamp};
use super::{Hydee, Image, ProtocolHost, Rank, RankState};
use crate::machines::group::Group;
use crate::machines::{Checkpoint, Replication, Requires};

/// A member's part of the checkpoint in progress.
#[derive(Clone, Debug)]
pub(super) struct Part {
    checkpoint: Checkpoint,
    since: Time,
    /// The saved state, once the application has returned it.
    cut: Option<(Snapshot, Saved, Arc<Head>)>,
    /// Number of messages from each member that belong to the part, once the coordinator has counted them.
    expected: Option<Arc<[(ProcessId, u32)]>>,
    /// Messages from the cluster that arrived after the request.
    late: Vec<Late>,
    /// The part while it is made durable, after all messages in transit to it have arrived.
    written: Option<Replication<Hydee>>,
}

impl Part {
    /// Returns whether the application's current actions are outside the part.
    pub(super) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Adds a message from the cluster that the checkpoint must contain because its sender's part contains the send.
    pub(super) fn add_late(&mut self, late: Late) {
        self.late.push(late);
    }

    /// Returns the member's claim that it discards the checkpoint.
    pub(super) fn aborted(&self) -> Claim {
        let Checkpoint { position, attempt } = self.checkpoint;
        Claim::Aborted { position, attempt }
    }
}

/// The members' answers that the coordinator collects.
#[derive(Clone, Debug)]
pub(super) struct Gathering {
    checkpoint: Checkpoint,
    /// Members that have not yet answered in this round.
    awaited: BTreeSet<ProcessId>,
    /// By receiver: the number of messages that each member had sent to it.
    sent: BTreeMap<ProcessId, Vec<(ProcessId, u32)>>,
    is_expected: bool,
    /// Whether all parts are durable, but the cluster's start has not been recorded yet.
    awaits_start: bool,
}

impl Rank {
    /// Coordinator: begins a checkpoint unless something prevents it.
    pub(super) fn begin_checkpoint(&mut self, now: Time, host: &mut ProtocolHost) {
        if !matches!(self.state, RankState::Running) || !self.group.all_members_up() {
            return;
        }
        let position = Position { sn: self.position.sn.next(), ..self.position };
        let awaited = self.group.members.iter().copied().collect();
        let Some(lead) = self.lead() else { return };
        lead.attempts += 1;
        lead.checkpoint_at = None;
        let checkpoint = Checkpoint { position, attempt: Attempt(lead.attempts) };
        lead.gathering = Some(Gathering {
            checkpoint,
            awaited,
            sent: BTreeMap::new(),
            is_expected: false,
            awaits_start: false,
        });
        host.claim(Claim::CheckpointRequested { position, attempt: checkpoint.attempt, forced: false });
        self.group.broadcast(Control::Prepare(checkpoint), host);
        self.prepare(checkpoint, now, host);
    }

    /// Member: freezes, and requests the application's state.
    pub(super) fn prepare(&mut self, checkpoint: Checkpoint, now: Time, host: &mut ProtocolHost) {
        let next = Position { sn: self.position.sn.next(), ..self.position };
        if checkpoint.position != next || !matches!(self.state, RankState::Running) {
            return;
        }
        self.state = RankState::Checkpointing(Box::new(Part {
            checkpoint,
            since: now,
            cut: None,
            expected: None,
            late: Vec::new(),
            written: None,
        }));
        host.request_snapshot();
        self.replay_waiting(host);
    }

    /// Member: receives the application's state, after all its earlier actions.
    pub(super) fn snapshot_taken(&mut self, snapshot: Snapshot, now: Time, host: &mut ProtocolHost) {
        let saved = Saved {
            phase: self.phase,
            channels: self.channels.clone(),
            app_actions: self.app_actions.clone(),
            late: Vec::new(),
        };
        let head = Arc::new(self.head_of_log());
        let members = self.group.members.clone();
        let sent = |&it: &ProcessId| Some((it, self.channels.get(&it)?.sent));
        let sent = members.iter().filter_map(sent).collect();
        let RankState::Checkpointing(part) = &mut self.state else {
            return;
        };
        part.cut = Some((snapshot, saved, head));
        let checkpoint = part.checkpoint;
        self.tell(self.group.coordinator(), Control::Frozen { checkpoint, sent }, now, host);
    }

    /// Coordinator: counts what is in transit inside the cluster.
    pub(super) fn frozen(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        sent: &[(ProcessId, u32)],
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let members = self.group.members.clone();
        let Some(gathering) = self.gathering(checkpoint).filter(|it| !it.is_expected) else {
            return;
        };
        if !gathering.awaited.remove(&from) {
            return;
        }
        for &(receiver, count) in sent {
            gathering.sent.entry(receiver).or_default().push((from, count));
        }
        if gathering.awaited.is_empty() {
            gathering.awaited.extend(members.iter().copied());
            gathering.is_expected = true;
            let mut sent = core::mem::take(&mut gathering.sent);
            for &member in members.iter() {
                let received = sent.remove(&member).unwrap_or_default().into();
                self.tell(member, Control::Expect { checkpoint, received }, now, host);
            }
        }
    }

    fn gathering(&mut self, checkpoint: Checkpoint) -> Option<&mut Gathering> {
        self.lead()?.gathering.as_mut().filter(|it| it.checkpoint == checkpoint)
    }

    /// Member: learns how many messages the part has to wait for.
    pub(super) fn expect(
        &mut self,
        checkpoint: Checkpoint,
        received: Arc<[(ProcessId, u32)]>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if let RankState::Checkpointing(part) = &mut self.state
            && part.checkpoint == checkpoint
        {
            part.expected = Some(received);
            self.maybe_write(now, host);
        }
    }

    /// Member: writes its part, here and at its holders, once nothing is in transit to it.
    pub(super) fn maybe_write(&mut self, now: Time, host: &mut ProtocolHost) {
        let requires = Requires {
            own: !self.has(Defect::CommitsBeforeDurable),
            replicas: !self.has(Defect::CommitsBeforeCopies),
        };
        let drops_late = self.has(Defect::NoDrain);
        let is_drained = |part: &Part| {
            let Some(expected) = &part.expected else { return false };
            let received = |from: &ProcessId| self.channels.get(from).map_or(0, |it| it.received);
            let late = |from| part.late.iter().filter(|it| it.id.from == from).count() as u32;
            expected.iter().all(|&(from, count)| received(&from) + late(from) >= count)
                || drops_late
                || self.has(Defect::OneRound)
        };
        let RankState::Checkpointing(part) = &self.state else {
            return;
        };
        if part.written.is_some() || part.cut.is_none() || !is_drained(part) {
            return;
        }
        let RankState::Checkpointing(part) = &mut self.state else {
            return;
        };
        let Some((snapshot, saved, head)) = part.cut.clone() else {
            return;
        };
        let late = if drops_late { Vec::new() } else { part.late.clone() };
        let image = Arc::new(Image {
            name: part.checkpoint.part(self.group.me),
            head,
            saved: Arc::new(Saved { late, ..saved }),
            snapshot,
        });
        let Group { store, holders, .. } = &mut self.group;
        let written = Replication::begin(image, holders, requires, &mut store.writes, host);
        part.written = Some(written);
        self.maybe_drained(now, host);
    }

    /// Member: a write to its own storage is durable.
    pub(super) fn own_part_durable(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        if let Some(written) = self.part_written() {
            written.durable(name);
            self.maybe_drained(now, host);
        }
    }

    /// Member: a holder confirms its replica.
    pub(super) fn copy_stored(
        &mut self,
        from: ProcessId,
        name: ImageName,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if let Some(written) = self.part_written() {
            written.confirmed(from, name);
            self.maybe_drained(now, host);
        }
    }

    /// Member: a holder began a new life. Its replica of the part being written may not have arrived, or may be lost.
    pub(super) fn repeat_copy(&mut self, holder: ProcessId, host: &mut ProtocolHost) {
        if let Some(written) = self.part_written() {
            written.repeat(holder, host);
        }
    }

    /// Member: sends its part again to the holders that have not confirmed it.
    pub(super) fn repeat_copies(&mut self, host: &mut ProtocolHost) {
        if let Some(written) = self.part_written() {
            written.repeat_to_awaited(host);
        }
    }

    /// Returns the part of the checkpoint in progress that this process is making durable.
    fn part_written(&mut self) -> Option<&mut Replication<Hydee>> {
        match &mut self.state {
            RankState::Checkpointing(part) => part.written.as_mut(),
            _ => None,
        }
    }

    fn maybe_drained(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(written) = self.part_written() else {
            return;
        };
        if !written.completes() {
            return;
        }
        let checkpoint = written.image().name.into();
        if self.has(Defect::CollectsBeforeCommit) {
            self.tell_settled(host);
        }
        self.tell(self.group.coordinator(), Control::Drained(checkpoint), now, host);
    }

    /// Coordinator: commits once every part is durable.
    pub(super) fn drained(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let Some(gathering) = self.gathering(checkpoint) else {
            return;
        };
        if !gathering.awaited.remove(&from) || !gathering.awaited.is_empty() {
            return;
        }
        gathering.awaits_start = true;
        if self.group.has_started() {
            self.commit_gathered(now, host);
        } else {
            host.started();
        }
    }

    /// Coordinator: the membership changed, possibly because the cluster's start is now on record.
    pub(super) fn start_recorded(&mut self, now: Time, host: &mut ProtocolHost) {
        let has_started = self.group.has_started();
        if self.lead().and_then(|it| it.gathering.as_ref()).is_some_and(|it| it.awaits_start && has_started) {
            self.commit_gathered(now, host);
        }
    }

    fn commit_gathered(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(gathering) = self.lead().and_then(|it| it.gathering.take()) else {
            return;
        };
        self.group.broadcast(Control::Commit(gathering.checkpoint), host);
        self.commit(gathering.checkpoint, now, host);
    }

    /// Member: the checkpoint is committed, and the application resumes. Earlier checkpoints are no longer needed.
    pub(super) fn commit(&mut self, checkpoint: Checkpoint, now: Time, host: &mut ProtocolHost) {
        match &self.state {
            RankState::Checkpointing(part) if part.checkpoint == checkpoint => {}
            _ => return,
        }
        if !self.has(Defect::CollectsBeforeCommit) {
            self.tell_settled(host);
        }
        let RankState::Checkpointing(part) = core::mem::replace(&mut self.state, RankState::Running) else {
            return;
        };
        let Checkpoint { position, attempt } = checkpoint;
        self.position = position;
        if let Some((_, saved, _)) = &part.cut {
            let delivered = saved.channels.values().map(|it| u64::from(it.received)).sum();
            self.order_is_saved(delivered, checkpoint.part(self.group.me), host);
        }
        let vectors = Arc::new(Vectors::default());
        let frozen = now.since(part.since);
        host.claim(Claim::Committed { position, attempt, forced: false, frozen, vectors });
        let log = core::mem::take(&mut self.collected);
        host.claim(Claim::Collected { round: position.sn.0, below: position.sn, kept: 1, log });
        self.group.keep(Some(checkpoint), host);
        self.group.tell_holders(host);
        if !self.has(Defect::LateNotReceived) {
            self.receive_late(part.late);
        }
        self.proceed(host);
        if !self.has(Defect::TimerNotRestarted) {
            self.restart_timer(now);
        }
        self.replay(now, host);
    }

    /// Receives the messages that were in transit, ahead of all that wait.
    pub(super) fn receive_late(&mut self, late: Vec<Late>) {
        let to = self.position.incarnation;
        let position = self.position;
        for Late { id, phase, payload } in late.into_iter().rev() {
            self.waiting.push_front(Arrival { id, stamp: Stamp { position, to, phase }, payload });
        }
    }

    /// Tells every peer in another cluster which part of its channels the checkpoint contains (R8).
    fn tell_settled(&mut self, host: &mut ProtocolHost) {
        let RankState::Checkpointing(part) = &self.state else {
            return;
        };
        let Some((_, saved, _)) = &part.cut else {
            return;
        };
        let is_outside = |peer: &ProcessId| self.group.view.group_of(*peer) != self.group.number;
        let committed: BTreeMap<ProcessId, Covered> = saved
            .channels
            .iter()
            .filter(|(peer, _)| is_outside(peer))
            .map(|(&peer, channel)| (peer, channel.covered()))
            .filter(|_| !self.has(Defect::NeverCollects))
            .map(|(peer, mut covered)| {
                covered.received += u32::from(self.has(Defect::CollectsOneTooMany));
                (peer, covered)
            })
            .collect();
        let from = self.position.incarnation;
        for (&peer, &covered) in &committed {
            let to = self.group.view.incarnation(self.group.view.group_of(peer));
            host.control(To::One(peer), Control::Settled { from, to, covered });
        }
        self.committed = committed;
    }

    /// Handles a peer's report of the part of the shared channels that its checkpoint contains (R8).
    pub(super) fn settled(
        &mut self,
        peer: ProcessId,
        theirs: Incarnation,
        ours: Incarnation,
        covered: Covered,
    ) {
        // From an older life; the next round reports the state of the channels.
        if theirs < self.group.view.incarnation(self.group.view.group_of(peer))
            || ours < self.position.incarnation
        {
            return;
        }
        self.settle(peer, covered);
    }

    pub(super) fn settle(&mut self, peer: ProcessId, covered: Covered) {
        let gone = self.channels.entry(peer).or_default().settle(covered);
        self.log.subtract(gone);
        self.collected += gone.messages as u32;
        let wire = self.wires.entry(peer).or_default();
        wire.next = wire.next.max(covered.received);
    }

    /// Coordinator: restarts the delay until the next checkpoint.
    pub(super) fn restart_timer(&mut self, now: Time) {
        let every =
            self.config.checkpoint_every[self.group.view.membership.cluster_of(self.group.me).index()];
        if let Some(lead) = self.lead() {
            lead.checkpoint_at = every.map(|every| now + every);
        }
    }
}
