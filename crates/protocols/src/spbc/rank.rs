//! A process that runs the application: messages (S1, R5), checkpoints (R7) and rollbacks (S3 to S5).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Gauges, Host, Input, Membership, MessageId, Payload, Position, ProcessId, Scope, Snapshot, Time, To,
};

use super::{Config, Control, Defect, Rule, Spbc, Stamp};
use crate::machines::group::{self, Group, Resumed, View};
use crate::machines::logs::{LogRules, Logs, Saved};
use crate::machines::{
    Checkpoint, Coordinator, DrainRules, Draining, InTransit, PairRules, Pairs, Requires, Schedule,
};

/// The host, as this protocol sees it.
type ProtocolHost<'a> = dyn Host<Spbc> + 'a;

type Part = Draining<Spbc, (MessageId, Payload)>;

#[derive(Clone, Debug)]
pub(super) struct Rank {
    config: Arc<Config>,
    /// The cluster, the checkpoints that it keeps, and its recovery.
    group: Group<Spbc>,
    /// Current incarnation, and SN of the last committed or restored checkpoint.
    position: Position,
    logs: Logs<Spbc>,
    pairs: Pairs,
    /// This process's part of the checkpoint in progress.
    part: Option<Box<Part>>,
    /// Messages that the application sent after its state was saved.
    unsent: Vec<(MessageId, Payload)>,
    /// Messages that cannot be received yet.
    waiting: VecDeque<Arrival>,
    /// Messages from processes that learned of a failure, or recovered from it, before this process did.
    early: Vec<(ProcessId, Control)>,
    coordinator: Option<Box<Coordinator>>,
}

/// A message from the network.
#[derive(Clone, Debug)]
struct Arrival {
    id: MessageId,
    stamp: Stamp,
    payload: Payload,
}

impl Rank {
    pub(super) fn start(
        membership: group::GroupParameters,
        config: Arc<Config>,
        now: Time,
        host: &mut ProtocolHost,
    ) -> Rank {
        let group = Group::new(membership, host);
        let obeys = |rule| config.defects.obeys(rule);
        let is_unchanged = |mutation| !config.defects.has(mutation);
        let log_rules = LogRules {
            saves_log: obeys(Rule::SavesLog),
            logs_suppressed: obeys(Rule::LogsSuppressed),
            collects: is_unchanged(Defect::NeverCollects),
            collects_exactly: is_unchanged(Defect::CollectsOneTooMany),
            suppresses_last: is_unchanged(Defect::LastReceivedResent),
            keeps_in_transit: is_unchanged(Defect::InTransitSentAgain),
            drops_older: is_unchanged(Defect::OlderSettledCounts),
            is_sound: config.defects.is_empty(),
            ..LogRules::ALL
        };
        let pair_rules = PairRules {
            waits: obeys(Rule::MeetsFirst),
            drops_older: obeys(Rule::DropsOlderMeeting),
            tells_new_peers: is_unchanged(Defect::PeersFailureIgnored),
        };
        let cluster = group.view.membership.cluster_of(group.me);
        let schedule = Schedule::new(config.checkpoint_every[cluster.index()], None, now);
        let coordinator = || Box::new(Coordinator::new(schedule));
        let mut this = Rank {
            position: Position::default(),
            logs: Logs::new(config.log_memory, log_rules),
            pairs: Pairs::new(pair_rules),
            part: None,
            unsent: Vec::new(),
            waiting: VecDeque::new(),
            early: Vec::new(),
            coordinator: group.coordinates().then(coordinator),
            config,
            group,
        };
        this.watch_members(now, host);
        this.pairs.report(&this.group, &this.logs, host);
        this
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.config.defects.obeys(rule)
    }

    fn is_mutated(&self, mutation: Defect) -> bool {
        self.config.defects.has(mutation)
    }

    pub(super) fn gauges(&self) -> Gauges {
        let size = self.logs.size();
        Gauges {
            log_messages: size.messages,
            log_bytes: size.bytes,
            log_bytes_spilled: size.spilled,
            checkpoints: u32::from(self.group.kept.is_some()),
            ..Gauges::default()
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let is_running = self.part.is_none() && !self.group.is_recovering();
        let checkpoint = self.coordinator.as_ref().and_then(|it| it.next_deadline()).filter(|_| is_running);
        [checkpoint, self.group.store.writes.next_deadline()].into_iter().flatten().min()
    }

    pub(super) fn handle(&mut self, input: Input<Spbc>, now: Time, host: &mut ProtocolHost) {
        match input {
            Input::Sent { id, payload } => self.sent(id, payload, host),
            Input::Received { id, stamp, payload } => {
                self.arrived(Arrival { id, stamp, payload }, host);
                self.maybe_write(now, host);
            }
            Input::Control { from, message } => self.handle_message(from, message, now, host),
            Input::Snapshot(snapshot) => self.snapshot_taken(snapshot, now, host),
            Input::Membership(membership) => self.membership_changed(membership, now, host),
            Input::Timeout => {
                if self.coordinator.as_ref().is_some_and(|it| it.is_due(now)) {
                    self.begin_checkpoint(now, host);
                }
                self.storage(Input::Timeout, now, host);
            }
            Input::Persisted(name) => {
                self.storage(input, now, host);
                if let Some(part) = &mut self.part {
                    part.durable(name);
                }
                self.part_completes(now, host);
            }
            // A channel-deterministic program does not depend on when it consumes a message (S1).
            Input::Consumed(_) | Input::Rested | Input::Left | Input::Recorded { .. } => {}
            other => self.storage(other, now, host),
        }
    }

    // ---- Messages of the application (S1, R5).

    fn sent(&mut self, id: MessageId, payload: Payload, host: &mut ProtocolHost) {
        if self.group.is_recovering() {
            return; // The state that sent the message is about to be replaced.
        }
        if self.part.as_ref().is_some_and(|part| part.is_cut()) {
            self.unsent.push((id, payload));
        } else {
            self.send(id, payload, host);
        }
    }

    /// Sends a message. A message within the cluster is sent directly; one to another cluster passes through
    /// the log of its channel.
    fn send(&mut self, id: MessageId, payload: Payload, host: &mut ProtocolHost) {
        let cluster = self.group.view.group_of(id.to);
        if cluster == self.group.number {
            self.logs.sent_inside(id);
            let to = self.group.view.incarnation(cluster);
            host.transmit(id, Stamp { position: self.position, to, tag: () }, payload);
            return;
        }
        let is_suppressed = self.logs.sent(id, (), payload, self.pairs.is_decided(id.to), host);
        if !is_suppressed {
            self.pump(id.to, host);
        }
        self.logs.maybe_spill(&mut self.group, host);
    }

    /// Passes a channel's logged messages to the network, once it is known which of them the peer lacks (S3, S4).
    fn pump(&mut self, to: ProcessId, host: &mut ProtocolHost) {
        if self.pairs.is_decided(to) {
            self.logs.pump(&mut self.group, to, self.position, |()| true, host);
        }
    }

    /// Handles a message from the network. A message from an older incarnation of the sender's cluster, or to an older
    /// incarnation of the receiver's cluster, is dropped, since it will be sent again. Messages from or to newer
    /// incarnations wait.
    fn arrived(&mut self, arrival: Arrival, host: &mut ProtocolHost) {
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
        if self.group.is_recovering() && self.is_mutated(Defect::ArrivalsDroppedWhileRestoring) {
            return;
        }
        match &mut self.part {
            _ if is_early || self.group.is_recovering() => self.waiting.push_back(arrival),
            Some(part) if is_inside => part.add_late((id, arrival.payload)),
            Some(_) => self.waiting.push_back(arrival),
            None if id.number < self.logs.received(id.from) => {} // The message was received before.
            None => self.receive(id, arrival.payload, host),
        }
    }

    fn receive(&mut self, id: MessageId, payload: Payload, host: &mut ProtocolHost) {
        self.logs.receive(id);
        if !self.obeys(Rule::CollectsAtCheckpoint) && self.group.view.group_of(id.from) != self.group.number {
            self.logs.tell_present(&self.group, id.from, host);
        }
        host.deliver(id, payload);
    }

    /// Retries the messages that previously could not be received.
    fn replay_waiting(&mut self, host: &mut ProtocolHost) {
        for arrival in core::mem::take(&mut self.waiting) {
            self.arrived(arrival, host);
        }
    }

    /// Resumes the application: transmits the messages that it sent in the meantime, and receives those that had to
    /// wait.
    fn resume(&mut self, host: &mut ProtocolHost) {
        if self.position.sn.0 == 0 {
            return; // No process may act before the first checkpoint is committed.
        }
        let is_sent = !self.is_mutated(Defect::UnsentDropped);
        for (id, payload) in core::mem::take(&mut self.unsent).into_iter().filter(|_| is_sent) {
            self.send(id, payload, host);
        }
        host.release();
        self.replay_waiting(host);
    }

    // ---- Checkpoints of the cluster (R7).

    /// Begins a checkpoint, unless one is in progress, the cluster is recovering, or a member is down. Has an effect
    /// only on the coordinator.
    fn begin_checkpoint(&mut self, now: Time, host: &mut ProtocolHost) {
        let is_running = self.part.is_none() && !self.group.is_recovering();
        let Some(coordinator) = self.coordinator.as_mut().filter(|_| is_running) else { return };
        if self.group.all_members_up() {
            let spared = usize::from(self.config.defects.has(Defect::OneAnswerNotAwaited));
            let awaited = (self.group.members.len() - spared).max(1);
            let checkpoint = coordinator.begin(self.position, self.group.members[..awaited].into(), host);
            self.group.broadcast(Control::Request(checkpoint), host);
            self.request(checkpoint, now, host);
        }
    }

    /// Freezes the application, and requests its state. Ignores a request that a rollback has invalidated.
    fn request(&mut self, checkpoint: Checkpoint, now: Time, host: &mut ProtocolHost) {
        let next = Position { sn: self.position.sn.next(), ..self.position };
        if checkpoint.position == next && !self.group.is_recovering() {
            assert!(self.part.is_none(), "the previous checkpoint is committed or discarded");
            self.part = Some(Box::new(Part::begin(checkpoint, now, host)));
        }
    }

    /// Handles the snapshot, which follows all earlier sends of the application.
    fn snapshot_taken(&mut self, snapshot: Snapshot, now: Time, host: &mut ProtocolHost) {
        let Some(part) = &mut self.part else { return };
        let saved = self.logs.saved(InTransit::new());
        part.cut(snapshot, saved, self.logs.head());
        let checkpoint = part.checkpoint();
        let members = self.group.members.iter();
        let sent = members.map(|&it| (it, u64::from(self.logs.present(it).sent))).collect();
        self.send_to(self.group.coordinator(), Control::Saved { checkpoint, sent }, now, host);
    }

    /// Adds up the messages that the members have sent inside the cluster and, once all members have saved their
    /// states, tells each of them how many to wait for. Runs on the coordinator.
    fn saved(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        sent: &[(ProcessId, u64)],
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let counts = self.coordinator.as_mut().and_then(|it| it.saved(from, checkpoint, sent));
        for &(member, expected) in counts.iter().flat_map(|it| it.iter()) {
            self.send_to(member, Control::Drain { checkpoint, expected }, now, host);
        }
    }

    /// Writes this process's part, locally and at its holders, once no message from the cluster is in transit to this
    /// process.
    fn maybe_write(&mut self, now: Time, host: &mut ProtocolHost) {
        let rules = self.drain_rules();
        let Some(part) = &mut self.part else { return };
        let received = self.group.members.iter().map(|&it| u64::from(self.logs.received(it))).sum();
        let whole = |saved: Saved<(), InTransit>, own| Saved { own, ..saved };
        part.maybe_write(&mut self.group, received, rules, whole, host);
        self.part_completes(now, host);
    }

    fn drain_rules(&self) -> DrainRules {
        let is_sound = self.config.defects.is_empty();
        let requires = Requires { own: true, replicas: !self.is_mutated(Defect::CommitsBeforeCopies) };
        DrainRules { drains: true, waits: true, requires, is_sound }
    }

    /// Tells the coordinator once this process's part is durable, locally and at its holders.
    fn part_completes(&mut self, now: Time, host: &mut ProtocolHost) {
        if let Some(part) = &mut self.part
            && part.completes()
        {
            let checkpoint = part.checkpoint();
            self.send_to(self.group.coordinator(), Control::Drained(checkpoint), now, host);
        }
    }

    /// Commits the checkpoint once every part is durable. Before the first commit, the supervisor must have recorded
    /// that the cluster may have acted. Runs on the coordinator.
    fn drained(&mut self, from: ProcessId, checkpoint: Checkpoint, now: Time, host: &mut ProtocolHost) {
        if self.coordinator.as_mut().is_some_and(|it| it.drained(from, checkpoint)) {
            match self.group.has_started() {
                true => self.commit_gathered(now, host),
                false => host.started(),
            }
        }
    }

    fn commit_gathered(&mut self, now: Time, host: &mut ProtocolHost) {
        if let Some((checkpoint, _)) = self.coordinator.as_mut().and_then(|it| it.commit(now)) {
            self.group.broadcast(Control::Commit(checkpoint), host);
            self.commit(checkpoint, now, host);
        }
    }

    /// Handles the commit: the application resumes. Peers in other clusters learn which messages the checkpoint
    /// contains, and remove these messages from their logs (R8). Earlier checkpoints are no longer needed.
    fn commit(&mut self, checkpoint: Checkpoint, now: Time, host: &mut ProtocolHost) {
        let Some(part) = self.part.take_if(|part| part.checkpoint() == checkpoint) else { return };
        if let Some(saved) = part.saved() {
            self.logs.commit(&self.group, &saved.channels, host);
        }
        self.position = checkpoint.position;
        let (committed, mut late) = part.commit(self.drain_rules(), now);
        if self.is_mutated(Defect::LateNotReceived) {
            late.clear();
        }
        host.claim(committed);
        self.group.collect(Some(checkpoint), self.logs.take_collected(), host);
        self.receive_late(late);
        self.resume(host);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.committed(now);
        }
        self.replay(now, host);
    }

    /// Puts the messages that were in transit ahead of all waiting messages.
    fn receive_late(&mut self, late: InTransit) {
        let stamp = Stamp { position: self.position, to: self.position.incarnation, tag: () };
        for (id, payload) in late.into_iter().rev() {
            self.waiting.push_front(Arrival { id, stamp, payload });
        }
    }

    // ---- Messages of the protocol.

    /// Sends a message to any process, which may be this one.
    fn send_to(&mut self, receiver: ProcessId, message: Control, now: Time, host: &mut ProtocolHost) {
        if receiver == self.group.me {
            self.handle_message(receiver, message, now, host);
        } else {
            host.control(To::One(receiver), message);
        }
    }

    fn handle_message(&mut self, from: ProcessId, message: Control, now: Time, host: &mut ProtocolHost) {
        if self.is_early(from, &message) {
            self.early.push((from, message));
            return;
        }
        match message {
            Control::Request(checkpoint) => self.request(checkpoint, now, host),
            Control::Saved { checkpoint, sent } => self.saved(from, checkpoint, &sent, now, host),
            Control::Drain { checkpoint, expected } => {
                if let Some(part) = self.part.as_mut().filter(|part| part.checkpoint() == checkpoint) {
                    part.expect(expected);
                    self.maybe_write(now, host);
                }
            }
            Control::Drained(checkpoint) => self.drained(from, checkpoint, now, host),
            Control::Commit(checkpoint) => self.commit(checkpoint, now, host),
            Control::Settled(settled) => {
                self.logs.settled(&self.group, from, settled);
            }
            Control::ChannelReport(report) => {
                if self.pairs.reported(&self.group, &mut self.logs, from, report, host) {
                    self.pump(from, host);
                }
            }
            Control::Group(message) => {
                if let group::GroupMessage::Stored(name) = message {
                    if let Some(part) = &mut self.part {
                        part.confirmed(from, name);
                    }
                    self.part_completes(now, host);
                }
                self.logs.handle_group_message(&mut self.group, from, message, host);
                self.maybe_resume(now, host);
            }
        }
    }

    /// Returns whether the sender learned of a failure before this process did, or is further along in its recovery.
    fn is_early(&self, from: ProcessId, message: &Control) -> bool {
        match message {
            Control::Request(checkpoint)
            | Control::Saved { checkpoint, .. }
            | Control::Drain { checkpoint, .. }
            | Control::Drained(checkpoint)
            | Control::Commit(checkpoint) => checkpoint.position.incarnation > self.position.incarnation,
            Control::Settled(settled) => settled.to > self.position.incarnation,
            Control::ChannelReport(report) => {
                Pairs::is_early(&self.group, from, report) && !self.is_mutated(Defect::EarlyMeetingHandled)
            }
            Control::Group(message) => self.group.is_early(message),
        }
    }

    /// Retries all input that had to wait until this process learned of a failure or recovered from one.
    fn replay(&mut self, now: Time, host: &mut ProtocolHost) {
        for (from, message) in core::mem::take(&mut self.early) {
            self.handle_message(from, message, now, host);
        }
        self.replay_waiting(host);
    }

    /// Handles an input that concerns the storage: channels that waited for a segment of the log continue.
    fn storage(&mut self, input: Input<Spbc>, now: Time, host: &mut ProtocolHost) {
        let retry_every = self.config.retry_every;
        let stored = self.logs.storage(&mut self.group, input, now, retry_every, host);
        if stored.repeats_part
            && let Some(part) = &self.part
        {
            part.repeat_to_awaited(host);
        }
        if !stored.peers.is_empty() {
            stored.peers.into_iter().for_each(|peer| self.pump(peer, host));
            self.logs.release_segments();
        }
        self.maybe_resume(now, host);
    }

    // ---- Failures (S3 to S5).

    fn membership_changed(&mut self, membership: Arc<Membership>, now: Time, host: &mut ProtocolHost) {
        let view = View::new(Scope::Cluster, None, membership);
        let old = core::mem::replace(&mut self.group.view, view);
        self.watch_members(now, host);
        self.pairs.report(&self.group, &self.logs, host);
        for holder in self.group.restarted_holders(&old) {
            if let Some(part) = &mut self.part {
                part.repeat(holder, host);
            }
            self.logs.repeat_segments(self.group.me, holder, host);
            self.group.update_holder(holder, host);
        }
        self.group.watch_outside_holders(&old, host);
        self.replay(now, host);
        self.maybe_write(now, host);
    }

    /// Watches this process's cluster: a failure freezes it, and once all members are up again, the coordinator begins
    /// to restore it.
    fn watch_members(&mut self, now: Time, host: &mut ProtocolHost) {
        if self.group.has_started() {
            self.commit_gathered(now, host);
        }
        if self.group.must_freeze() {
            self.freeze(host);
        }
        self.group.watch_members(host);
        self.maybe_resume(now, host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    /// Handles the failure of a member: discards the checkpoint in progress, and holds the application.
    fn freeze(&mut self, host: &mut ProtocolHost) {
        if let Some(part) = self.part.take() {
            host.claim(part.aborted());
        }
        if !self.group.is_recovering() {
            self.unsent.clear();
            host.hold();
        }
        self.group.freeze();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.discard();
        }
    }

    /// Installs this process's part and resumes, once all members have their parts of the checkpoint to
    /// restore.
    fn maybe_resume(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(resumed) = self.group.take_resumed() else { return };
        self.install(&resumed, host);
        self.group.collect(resumed.target, self.logs.take_collected(), host);
        self.group.store.has_own(host);
        self.resume(host);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.resumed(now);
        }
        self.pairs.report(&self.group, &self.logs, host);
        self.replay(now, host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    fn install(&mut self, resumed: &Resumed<Spbc>, host: &mut ProtocolHost) {
        let (position, rolled_back) = resumed.restore(host);
        self.position = position;
        let Saved { channels, collected, own: late } = resumed.saved();
        self.logs.restore(&self.group, channels, collected);
        self.pairs.restore(&self.logs);
        host.claim(rolled_back);
        self.receive_late(late);
    }
}
