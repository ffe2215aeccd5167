//! Taking a checkpoint inside a cluster (section 3.1), with a second round that drains the channels.
//!
//! Coordinator: Request -> Saved from all -> Drain -> Drained from all -> Commit. A member is frozen from the request
//! to the commit. It does not send Drained until its part is durable, both in its own storage and at its holders, so a
//! commit requires nothing further.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Claim, GroupId, ImageName, MessageId, Payload, Position, ProcessId, Snapshot, Time, Vectors,
};

use super::config::Rule;
use super::delivery::Early;
use super::message::{Control, Head, Log, RestorableCheckpoint, Saved};
use super::{Hc3i, Image, Phase, ProtocolHost, merge_vectors, placement};
use crate::machines::{Received, Replication, Requires};

/// A member's part of the checkpoint in progress.
#[derive(Clone, Debug)]
pub(super) struct Part {
    position: Position,
    attempt: Attempt,
    forced: bool,
    since: Time,
    /// The saved state, once the application has returned it.
    saved: Option<Cut>,
    /// Total number of messages that must have arrived from within the cluster; `None` until the coordinator
    /// has counted them.
    expected: Option<u64>,
    /// Messages that members sent before their cuts, and that arrived here after the request.
    late: Vec<(MessageId, Payload)>,
    /// The part while it is being made durable, after all messages in transit to this member have arrived.
    written: Option<Replication<Hc3i>>,
}

/// Everything that a part contains besides late messages, as of a single instant.
#[derive(Clone, Debug)]
struct Cut {
    snapshot: Snapshot,
    head: Arc<Head>,
    log: Arc<Log>,
    received: Arc<Received>,
    /// Whether the application had left the program.
    left: bool,
}

impl Part {
    /// Returns whether sends still belong to the state being saved.
    pub(super) fn is_before_cut(&self) -> bool {
        self.saved.is_none()
    }

    /// Adds a message that the checkpoint must contain, because the part of its sender, another member,
    /// contains the send.
    pub(super) fn add_late(&mut self, id: MessageId, payload: Payload) {
        self.late.push((id, payload));
    }

    /// Returns the member's claim that it discards the checkpoint.
    pub(super) fn aborted(&self) -> Claim {
        Claim::Aborted { position: self.position, attempt: self.attempt }
    }

    /// Moves the part to another position. Used only by the defect under which a rollback does not discard the
    /// checkpoint.
    pub(super) fn move_to(&mut self, position: Position) {
        self.position = position;
    }

    fn name(&self, owner: ProcessId) -> ImageName {
        ImageName {
            owner,
            incarnation: self.position.incarnation,
            sn: self.position.sn,
            attempt: self.attempt,
        }
    }

    fn is(&self, position: Position, attempt: Attempt) -> bool {
        self.position == position && self.attempt == attempt
    }
}

/// The members' answers that the coordinator collects.
#[derive(Clone, Debug)]
pub(super) struct Gathering {
    position: Position,
    attempt: Attempt,
    /// Members that have not yet answered in this round.
    awaited: BTreeSet<ProcessId>,
    expected: Vec<u64>,
    vectors: Vectors,
    /// Whether all parts are durable, but the cluster's start has not been recorded yet.
    awaits_start: bool,
}

impl Gathering {
    /// Moves the checkpoint to another position. Used only by the defect under which a rollback does not discard the
    /// checkpoint.
    pub(super) fn move_to(&mut self, position: Position) {
        self.position = position;
    }

    fn is(&self, position: Position, attempt: Attempt) -> bool {
        self.position == position && self.attempt == attempt
    }
}

impl Hc3i {
    /// Begins a checkpoint, unless one is in progress, the cluster is recovering, or a member is down. Runs on the
    /// coordinator.
    pub(super) fn begin_checkpoint(&mut self, forced: bool, now: Time, host: &mut ProtocolHost) {
        if !matches!(self.phase, Phase::Running) || !self.all_members_up() {
            return;
        }
        let position = Position { sn: self.position.sn.next(), ..self.position };
        let members = self.members.clone();
        let awaited = members.iter().copied().collect();
        let ddv = self.ddv.clone();
        let coordination = self.coordination();
        coordination.attempts += 1;
        coordination.checkpoint_at = None;
        coordination.leaving.checkpoint_begins(members.len());
        let attempt = Attempt(coordination.attempts);
        coordination.gathering = Some(Gathering {
            position,
            attempt,
            awaited,
            expected: vec![0; members.len()],
            vectors: Vectors { ddv, delivered: Arc::from([]) },
            awaits_start: false,
        });
        host.claim(Claim::CheckpointRequested { position, attempt, forced });
        self.broadcast(Control::Request { position, attempt, forced }, host);
        self.checkpoint_requested(self.me, position, attempt, forced, now, host);
    }

    /// Handles a member's request for a forced checkpoint: the member holds back a message until the checkpoint is
    /// committed (section 3.2). The coordinator keeps no record of the request, because the member repeats it after
    /// every commit.
    pub(super) fn checkpoint_forced(
        &mut self,
        from: ProcessId,
        position: Position,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if position > self.position {
            self.early.push(Early::Force { from, position });
        } else if position == self.position && self.position.sn.0 > 0 {
            self.begin_checkpoint(true, now, host);
        }
    }

    /// Freezes this member, and requests the application's state.
    pub(super) fn checkpoint_requested(
        &mut self,
        from: ProcessId,
        position: Position,
        attempt: Attempt,
        forced: bool,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let next = Position { sn: self.position.sn.next(), ..self.position };
        if position < next {
            return;
        }
        if position > next || !matches!(self.phase, Phase::Running) {
            self.early.push(Early::Request { from, position, attempt, forced });
            return;
        }
        self.phase = Phase::Checkpointing(alloc::boxed::Box::new(Part {
            position,
            attempt,
            forced,
            since: now,
            saved: None,
            expected: None,
            late: Vec::new(),
            written: None,
        }));
        host.request_snapshot();
    }

    /// Handles the snapshot. By now, the protocol has received every message that the application sent before it.
    pub(super) fn snapshot_taken(&mut self, snapshot: Snapshot, now: Time, host: &mut ProtocolHost) {
        let past = match self.obeys(Rule::SavesPast) {
            true => self.history.of(self.cluster),
            false => Arc::default(),
        };
        let vectors = Vectors { ddv: self.raised_ddv(), delivered: self.delivered.clone() };
        let head = Arc::new(Head { vectors, past });
        let Phase::Checkpointing(part) = &mut self.phase else {
            return;
        };
        let (log, received) = (self.log.clone(), self.received.clone());
        part.saved = Some(Cut { snapshot, head, log, received, left: self.left });
        let (position, attempt) = (part.position, part.attempt);
        let sent = self.sent_within.iter().map(|(to, count)| (to, u64::from(count))).collect();
        self.send_to_coordinator(Control::Saved { position, attempt, sent }, now, host);
    }

    /// Returns the DDV, raised by the queued messages that will be delivered after the commit.
    fn raised_ddv(&self) -> Arc<[Position]> {
        if !self.obeys(Rule::MergesRaises) || self.waiting.is_empty() {
            return self.ddv.clone();
        }
        let mut ddv = self.whole(&self.ddv);
        let mut raise = |cluster: GroupId, position: Position| {
            let stands =
                !self.is_undone(cluster, position) && position.incarnation <= self.history.known(cluster);
            if stands {
                ddv[cluster.place()] = ddv[cluster.place()].max(position);
            }
            stands
        };
        for arrival in &self.waiting {
            let stands = raise(self.cluster_of(arrival.id.from), arrival.stamp.position);
            // This checkpoint also serves as the one that the sender's dependencies would force: it is taken before any
            // message that depends on them is delivered here.
            for (cluster, &position) in self.clusters().zip(arrival.stamp.ddv.iter().flat_map(|it| it.iter()))
            {
                if stands && cluster != self.cluster {
                    raise(cluster, position);
                }
            }
        }
        ddv.into()
    }

    /// Adds up the messages that the members have sent inside the cluster and, once all members have saved their
    /// states, begins the second round. Runs on the coordinator.
    pub(super) fn saved(
        &mut self,
        from: ProcessId,
        position: Position,
        attempt: Attempt,
        sent: &[(ProcessId, u64)],
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let members = self.members.clone();
        let Some(gathering) = self.coordination().gathering.as_mut().filter(|it| it.is(position, attempt))
        else {
            return;
        };
        let have_all_saved = gathering.expected.is_empty();
        if have_all_saved || !gathering.awaited.remove(&from) {
            return;
        }
        for &(receiver, count) in sent {
            let place = members.binary_search(&receiver).expect("only messages to members are counted");
            gathering.expected[place] += count;
        }
        if gathering.awaited.is_empty() {
            let expected: Arc<[u64]> = core::mem::take(&mut gathering.expected).into();
            gathering.awaited = members.iter().copied().collect();
            self.broadcast(Control::Drain { position, attempt, expected: expected.clone() }, host);
            self.drain(position, attempt, &expected, now, host);
        }
    }

    /// Records how many messages must have arrived before this member writes its part.
    pub(super) fn drain(
        &mut self,
        position: Position,
        attempt: Attempt,
        expected: &[u64],
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let place = self.members.binary_search(&self.me).expect("only members receive this message");
        if let Phase::Checkpointing(part) = &mut self.phase
            && part.is(position, attempt)
        {
            part.expected = Some(expected[place]);
            self.maybe_write(now, host);
        }
    }

    /// Writes this process's part to its own storage and to its holders, once no message from the cluster is in transit
    /// to this process.
    pub(super) fn maybe_write(&mut self, now: Time, host: &mut ProtocolHost) {
        let drains = self.obeys(Rule::Drains);
        let is_safe = self.obeys(Rule::DurableFirst);
        let is_sound = self.is_sound();
        let Phase::Checkpointing(part) = &mut self.phase else {
            return;
        };
        let (Some(cut), Some(expected), None) = (&part.saved, part.expected, &part.written) else {
            return;
        };
        if drains && self.received_within < expected {
            return;
        }
        assert!(
            self.received_within <= expected || !is_sound,
            "no member sends between its cut and the commit"
        );
        let late = if drains { part.late.clone() } else { Vec::new() };
        let saved = Saved { log: cut.log.clone(), received: cut.received.clone(), late };
        let image = Arc::new(Image {
            name: part.name(self.me),
            head: cut.head.clone(),
            saved: Arc::new(saved),
            snapshot: cut.snapshot.clone(),
        });
        let holders = placement::holders(&self.config, &self.membership, self.me);
        let requires = Requires { own: is_safe, replicas: is_safe };
        let writes = &mut self.copies.writes;
        part.written = Some(Replication::begin(image, &holders, requires, writes, host));
        self.maybe_drained(now, host);
    }

    /// Handles the completion of a write to this process's storage.
    pub(super) fn own_part_durable(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        if let Some(written) = self.part_written() {
            written.durable(name);
            self.maybe_drained(now, host);
        }
    }

    /// Handles a holder's confirmation of its replica.
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

    /// Handles the new life of a holder: its replica of the part being written may not have arrived, or may be lost.
    pub(super) fn repeat_copy(&mut self, holder: ProcessId, host: &mut ProtocolHost) {
        if let Some(written) = self.part_written().filter(|it| !it.is_complete()) {
            written.repeat(holder, host);
        }
    }

    /// Returns this process's part of the checkpoint in progress if the coordinator may have committed the checkpoint
    /// already. A holder that has lost its storage lacks this part, too.
    pub(super) fn part_in_doubt(&self) -> Option<ImageName> {
        let Phase::Checkpointing(part) = &self.phase else { return None };
        part.written.as_ref().filter(|it| it.is_complete()).map(|it| it.image().name)
    }

    /// Returns the part of the checkpoint in progress that this process is making durable.
    fn part_written(&mut self) -> Option<&mut Replication<Hc3i>> {
        match &mut self.phase {
            Phase::Checkpointing(part) => part.written.as_mut(),
            _ => None,
        }
    }

    fn maybe_drained(&mut self, now: Time, host: &mut ProtocolHost) {
        if let Phase::Checkpointing(part) = &mut self.phase
            && let Some(written) = &mut part.written
            && written.completes()
        {
            let (position, attempt) = (part.position, part.attempt);
            let head = written.image().head.clone();
            self.send_to_coordinator(Control::Drained { position, attempt, head }, now, host);
        }
    }

    /// Commits the checkpoint once every part is durable. Runs on the coordinator.
    pub(super) fn drained(
        &mut self,
        from: ProcessId,
        position: Position,
        attempt: Attempt,
        vectors: &Vectors,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let Some(gathering) = self.coordination().gathering.as_mut().filter(|it| it.is(position, attempt))
        else {
            return;
        };
        if !gathering.awaited.remove(&from) {
            return;
        }
        merge_vectors(&mut gathering.vectors, vectors);
        if gathering.awaited.is_empty() {
            gathering.awaits_start = true;
            if !self.has_started() && self.obeys(Rule::StartGate) {
                host.started();
            } else {
                self.commit_gathered(now, host);
            }
        }
    }

    /// Handles a change of the membership, after which the cluster's start may be on record. Has an effect only on the
    /// coordinator.
    pub(super) fn start_recorded(&mut self, now: Time, host: &mut ProtocolHost) {
        let waits =
            self.coordination.as_ref().and_then(|it| it.gathering.as_ref()).is_some_and(|it| it.awaits_start);
        if !self.coordinates() || !self.has_started() {
            return;
        }
        if waits {
            self.commit_gathered(now, host);
        }
        self.maybe_resume(now, host);
    }

    /// Returns whether the supervisor knows that this cluster may have acted.
    pub(super) fn has_started(&self) -> bool {
        self.membership.member(self.coordinator()).started
    }

    fn commit_gathered(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(gathering) = self.coordination().gathering.take() else {
            return;
        };
        let Gathering { position, attempt, mut vectors, .. } = gathering;
        let mut ddv = self.whole(&vectors.ddv);
        ddv[self.cluster.place()] = position;
        vectors.ddv = ddv.into();
        let vectors = Arc::new(vectors);
        self.broadcast(Control::Commit { position, attempt, vectors: vectors.clone() }, host);
        self.commit(position, attempt, vectors, now, host);
    }

    /// Handles the commit of the checkpoint: the application resumes.
    pub(super) fn commit(
        &mut self,
        position: Position,
        attempt: Attempt,
        vectors: Arc<Vectors>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let part = match core::mem::replace(&mut self.phase, Phase::Running) {
            Phase::Checkpointing(part) if part.is(position, attempt) => part,
            other => {
                self.phase = other;
                return;
            }
        };
        let is_written = part.written.is_some() || !self.is_sound();
        assert!(is_written, "a checkpoint is committed once all parts are durable");
        let is_newest = self.kept.last().is_none_or(|kept| kept.position < position) || !self.is_sound();
        assert!(is_newest, "checkpoints are kept in order");
        self.position = position;
        self.ddv = vectors.ddv.clone();
        self.kept.push(RestorableCheckpoint { position, attempt, vectors: vectors.clone(), covered: true });
        let frozen = now.since(part.since);
        host.claim(Claim::Committed { position, attempt, forced: part.forced, frozen, vectors });
        if part.saved.as_ref().is_some_and(|cut| cut.left) {
            self.left_at = self.left_at.or(Some(position.sn));
        }
        host.release();
        for (id, payload) in part.late {
            host.deliver(id, payload);
        }
        let unsent = core::mem::take(&mut self.unsent);
        for (id, payload) in unsent {
            self.send(id, payload, position, host);
        }
        self.restart_checkpoint_timer(now);
        self.replay(now, host);
        self.take_last_checkpoint(now, host);
        self.report_if_unneeded(now, host);
    }

    /// Restarts the delay until the next unforced checkpoint (section 5.2: a forced checkpoint restarts it). Runs on
    /// the coordinator.
    pub(super) fn restart_checkpoint_timer(&mut self, now: Time) {
        let cluster = self.membership.cluster_of(self.me);
        let every = self.config.checkpoint_every.get(cluster.index()).copied().flatten();
        if let Some(coordination) = &mut self.coordination {
            coordination.checkpoint_at = every.map(|every| now + every);
        }
    }
}
