//! A process that runs the application: its messages and checkpoints.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Cause, Claim, Gauges, Input, Life, LifeStart, Membership, MessageId, Payload, Position,
    ProcessId, Role, Snapshot, Time, To, Vectors,
};

use super::alert::Alerts;
use super::collection::Collecting;
use super::message::{Control, Epoch, Head, Saved, Stamp};
use super::recovery::Recovery;
use super::store::{Event, Store};
use super::{Config, Image, Independent, ProtocolHost, Rule, group_of};
use crate::machines::{
    Checkpoint, Delivered, Log, LogEntry, Received, Replication, Requires, Schedule, raise,
};

#[derive(Clone, Debug)]
pub(super) struct Rank {
    pub(super) me: ProcessId,
    /// Whether all others have handled the last rollback of this process (I7).
    pub(super) is_settled: bool,
    /// The current interval, which begins with the last checkpoint.
    pub(super) position: Position,
    pub(super) phase: Phase,
    pub(super) config: Arc<Config>,
    pub(super) membership: Arc<Membership>,
    pub(super) store: Store,
    /// The intervals on which the current state depends (I2).
    pub(super) delivered: Delivered,
    pub(super) received: Arc<Received>,
    pub(super) log: Arc<Log<Stamp>>,
    /// Messages that cannot be delivered yet.
    pub(super) waiting: VecDeque<Arrival>,
    /// Checkpoints that can be restored, ascending, with the intervals on which they depend.
    pub(super) kept: Vec<(Checkpoint, Delivered)>,
    /// Checkpoints with unconfirmed replicas, each with a holder that has not confirmed its replica.
    pub(super) unconfirmed: BTreeSet<(Checkpoint, ProcessId)>,
    pub(super) holders: Arc<[ProcessId]>,
    pub(super) schedule: Schedule,
    /// Number of checkpoints begun since the last rollback.
    pub(super) attempts: u32,
    pub(super) epoch: Epoch,
    pub(super) alerts: Alerts,
    /// State of the collections; `None` except on the lowest-numbered rank, which initiates them.
    pub(super) collecting: Option<Collecting>,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// The application runs, unless the first checkpoint is still missing.
    Running,
    Checkpointing(Box<Part>),
    Recovering(Box<Recovery>),
}

/// The checkpoint in progress.
#[derive(Clone, Debug)]
pub(super) struct Part {
    checkpoint: Checkpoint,
    since: Time,
    /// The image, once the application has returned its state.
    written: Option<Replication<Independent>>,
    is_durable: bool,
    /// Messages that the application sent after it had returned its state.
    unsent: Vec<(MessageId, Payload)>,
}

/// A message from the network.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    id: MessageId,
    /// The interval in which the message was sent.
    sent_at: Position,
    payload: Payload,
}

impl Rank {
    pub(super) fn start(start: LifeStart<Config>, store: Store, now: Time, host: &mut ProtocolHost) -> Rank {
        let LifeStart { me, life, membership, config, .. } = start;
        let cluster = membership.cluster_of(me);
        let every = config.checkpoint_every[cluster.index()];
        let is_initiator = membership.with_role(Role::RANK).next() == Some(me);
        let mut this = Rank {
            me,
            is_settled: true,
            position: Position::default(),
            phase: Phase::Running,
            store,
            delivered: Delivered::from([]),
            received: Arc::default(),
            log: Arc::default(),
            waiting: VecDeque::new(),
            kept: Vec::new(),
            unconfirmed: BTreeSet::new(),
            holders: config.placement.holders(&membership, me).into(),
            schedule: Schedule::new(every, None, now),
            attempts: 0,
            epoch: Epoch { life: life.0, attempt: 0 },
            alerts: Alerts::default(),
            collecting: config
                .collect_every
                .filter(|_| is_initiator)
                .map(|every| Collecting::new(now + every)),
            config,
            membership,
        };
        if life == Life(1) {
            this.begin_checkpoint(now, host);
        } else {
            this.recover(this.epoch, Cause::Failure, now, host);
        }
        this
    }

    #[inline]
    pub(super) fn obeys(&self, rule: Rule) -> bool {
        self.config.defects.obeys(rule)
    }

    #[inline]
    pub(super) fn is_recovering(&self) -> bool {
        matches!(self.phase, Phase::Recovering(_))
    }

    /// Returns whether the supervisor knows that this process may have acted.
    pub(super) fn has_started(&self) -> bool {
        self.membership.member(self.me).started || !self.obeys(Rule::StartGate)
    }

    pub(super) fn others(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.membership.with_role(Role::RANK).filter(|&it| it != self.me)
    }

    pub(super) fn gauges(&self) -> Gauges {
        Gauges {
            log_messages: self.log.len(),
            log_bytes: self.log.bytes(),
            checkpoints: self.kept.len() as u32,
            ..Gauges::default()
        }
    }

    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let checkpoint = self.schedule.next().filter(|_| matches!(self.phase, Phase::Running));
        let collection = self.collecting.as_ref().map(|it| it.at);
        let times = [checkpoint, self.alerts.next_deadline(), self.store.writes.next_deadline(), collection];
        times.into_iter().flatten().min()
    }

    #[inline]
    pub(super) fn handle(&mut self, input: Input<Independent>, now: Time, host: &mut ProtocolHost) {
        match input {
            Input::Sent { id, payload } => self.sent(id, payload, host),
            Input::Received { id, stamp: Stamp(sent_at), payload } => {
                self.arrived(Arrival { id, sent_at, payload }, host);
            }
            Input::Control { from, message: Control::Acknowledge { id, at } } => {
                self.acknowledged(from, id, at);
            }
            other => self.handle_rarer(other, now, host),
        }
    }

    #[inline(never)]
    fn handle_rarer(&mut self, input: Input<Independent>, now: Time, host: &mut ProtocolHost) {
        match input {
            Input::Control { from, message } => self.handle_message(from, message, now, host),
            Input::Snapshot(snapshot) => self.snapshot_taken(snapshot, now, host),
            Input::Membership(membership) => self.membership_changed(membership, now, host),
            Input::Image { ref image, .. } if image.name.owner == self.me => {
                self.own_arrived(image.clone(), host);
            }
            Input::Timeout => {
                if self.schedule.is_due(now) {
                    self.begin_checkpoint(now, host);
                }
                self.send_due_alerts(now, host);
                self.maybe_ask(now, host);
                self.store_input(Input::Timeout, now, host);
            }
            other => self.store_input(other, now, host),
        }
    }

    fn handle_message(&mut self, from: ProcessId, message: Control, now: Time, host: &mut ProtocolHost) {
        match message {
            Control::Acknowledge { id, at } => self.acknowledged(from, id, at),
            Control::Noted(incarnation) => self.noted(from, incarnation, now, host),
            Control::Stored(name) => self.stored(from, name.into(), now, host),
            Control::Refused(name) if name.owner == self.me => self.lost(name, now, host),
            Control::Report { epoch, past, parts } => self.reported(from, epoch, &past, parts, now, host),
            Control::Alert(past) => self.alerted(from, &past, now, host),
            Control::Confirm { incarnation, history } => {
                self.confirmed(from, incarnation, &history, now, host);
            }
            Control::Ask(round) => self.asked(from, round, host),
            Control::Stock { round, inventory } => self.stock_arrived(from, round, inventory, host),
            Control::Collect { round, incarnations, line } => {
                self.collect(round, &incarnations, &line, host);
            }
            Control::Hold { .. } | Control::Inquire(_) | Control::Fetch(_) | Control::Refused(_) => {
                let events = self.store.handle_message(from, message, host);
                self.handle_events(events, now, host);
            }
        }
    }

    fn store_input(&mut self, input: Input<Independent>, now: Time, host: &mut ProtocolHost) {
        let events = self.store.handle(input, now + self.config.retry_every, now, host);
        self.handle_events(events, now, host);
    }

    pub(super) fn handle_events(&mut self, events: Vec<Event>, now: Time, host: &mut ProtocolHost) {
        for event in events {
            match event {
                Event::Durable(name) => {
                    if let Some(written) = self.written() {
                        written.durable(name);
                    }
                    self.maybe_commit(now, host);
                    self.own_durable(name, now, host);
                }
                Event::Read(image) => self.own_read(image, now, host),
                Event::Lost(name) => self.lost(name, now, host),
                Event::Listed(epoch, parts) => {
                    let past = self.store.history.of(group_of(self.me));
                    self.reported(self.me, epoch, &past, parts, now, host);
                }
                Event::Recorded(waiter) => self.recorded(waiter, now, host),
            }
        }
    }

    fn membership_changed(&mut self, membership: Arc<Membership>, now: Time, host: &mut ProtocolHost) {
        let old = core::mem::replace(&mut self.membership, membership);
        let is_reborn = |this: &Rank, process: ProcessId| {
            let (new, old) = (this.membership.member(process), old.member(process));
            new.up && !(old.up && old.life == new.life)
        };
        self.maybe_commit(now, host);
        self.advance(now, host);
        let reborn: Vec<ProcessId> = self.holders.iter().copied().filter(|&it| is_reborn(self, it)).collect();
        if self.is_recovering() {
            if !reborn.is_empty() {
                self.recover_again(now, host); // The holder's answer may be lost.
            }
            return;
        }
        for holder in reborn {
            self.send_list(holder, host);
            if let Some(written) = self.written() {
                written.repeat(holder, host);
            }
        }
        // Messages that were in transit to the previous life of a receiver are lost.
        let receivers: Vec<ProcessId> = self.log.receivers().filter(|&it| is_reborn(self, it)).collect();
        if !receivers.is_empty() {
            self.resend(|this, entry| receivers.contains(&entry.id.to) && this.is_owed(entry), host);
        }
    }

    // ---- Messages (I1, I2, I5).

    /// Handles a message that the application sent. Ignores the message during a recovery, which is about to replace
    /// the state that sent it.
    #[inline]
    fn sent(&mut self, id: MessageId, payload: Payload, host: &mut ProtocolHost) {
        match &mut self.phase {
            Phase::Recovering(_) => return,
            Phase::Checkpointing(part) if part.written.is_some() => {
                part.unsent.push((id, payload)); // The message belongs to the next interval.
                return;
            }
            Phase::Running | Phase::Checkpointing(_) => {}
        }
        let stamp = Stamp(self.position);
        let entry = LogEntry { id, stamp, payload: payload.clone(), acknowledged: None };
        Arc::make_mut(&mut self.log).push(entry);
        host.transmit(id, stamp, payload);
    }

    /// Handles a message from the network. A message from an unknown incarnation of its sender waits until the sender's
    /// alert arrives.
    #[inline]
    fn arrived(&mut self, arrival: Arrival, host: &mut ProtocolHost) {
        let Arrival { id, sent_at, .. } = arrival;
        let from = group_of(id.from);
        let known = self.store.history.known(from);
        let is_stale = self.is_undone(id.from, sent_at) && self.obeys(Rule::DropsStale);
        let is_older = sent_at.incarnation < known && !self.obeys(Rule::KeepsOlderIncarnations);
        if is_stale || is_older {
            host.drop_stale(id);
            return;
        }
        let is_settled = self.is_settled || id.from == self.me;
        let is_running = matches!(self.phase, Phase::Running) && self.position.sn.0 > 0;
        if sent_at.incarnation > known || !is_settled || !is_running {
            self.waiting.push_back(arrival);
            return;
        }
        let earlier = self.received.position(id);
        if earlier.is_none() {
            host.deliver(id, arrival.payload);
            Arc::make_mut(&mut self.received).insert(id, self.position);
            raise(&mut self.delivered, from, sent_at);
        }
        let at = earlier.unwrap_or(self.position);
        if id.from == self.me {
            self.acknowledged(self.me, id, at);
        } else {
            host.control(To::One(id.from), Control::Acknowledge { id, at });
        }
    }

    /// Retries the messages that had to wait.
    pub(super) fn replay_waiting(&mut self, host: &mut ProtocolHost) {
        for arrival in core::mem::take(&mut self.waiting) {
            self.arrived(arrival, host);
        }
    }

    /// Handles an acknowledgement. Ignores it if the delivery has been undone since.
    #[inline]
    fn acknowledged(&mut self, from: ProcessId, id: MessageId, at: Position) {
        if !self.is_undone(from, at) {
            Arc::make_mut(&mut self.log).acknowledge(id, at);
        }
    }

    /// Returns whether a rollback undid an event of `process` in the interval `at`.
    #[inline]
    pub(super) fn is_undone(&self, process: ProcessId, at: Position) -> bool {
        self.store.history.undid_after(group_of(process), at)
    }

    /// Returns whether the receiver of a logged message lacks it: the message was never acknowledged, or the
    /// acknowledged delivery was undone.
    pub(super) fn is_owed(&self, entry: &LogEntry<Stamp>) -> bool {
        entry.acknowledged.is_none_or(|at| self.is_undone(entry.id.to, at))
    }

    /// Re-sends the logged messages for which `is_wanted` returns `true`, with their original identity and stamp.
    pub(super) fn resend(
        &mut self,
        is_wanted: impl Fn(&Rank, &LogEntry<Stamp>) -> bool,
        host: &mut ProtocolHost,
    ) {
        let mut log = core::mem::take(&mut self.log);
        let wanted = Arc::make_mut(&mut log).take_back(|entry| is_wanted(self, entry));
        self.log = log;
        for LogEntry { id, stamp, payload, .. } in wanted {
            host.claim(Claim::Resent { id });
            host.transmit(id, stamp, payload);
        }
    }

    // ---- Checkpoints (I3).

    /// Pauses the application, and requests its state, unless a checkpoint or a recovery is in progress.
    pub(super) fn begin_checkpoint(&mut self, now: Time, host: &mut ProtocolHost) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        self.attempts += 1;
        self.schedule.stop();
        let position = Position { sn: self.position.sn.next(), ..self.position };
        let checkpoint = Checkpoint { position, attempt: Attempt(self.attempts) };
        host.claim(Claim::CheckpointRequested { position, attempt: checkpoint.attempt, forced: false });
        let part = Part { checkpoint, since: now, written: None, is_durable: false, unsent: Vec::new() };
        self.phase = Phase::Checkpointing(Box::new(part));
        host.request_snapshot();
    }

    /// Handles the snapshot, which follows all earlier sends of the application: makes the checkpoint durable.
    fn snapshot_taken(&mut self, snapshot: Snapshot, now: Time, host: &mut ProtocolHost) {
        let Phase::Checkpointing(part) = &mut self.phase else { return };
        let past = self.store.history.of(group_of(self.me));
        let head = Head { delivered: self.delivered.clone(), past };
        let saved = Saved { log: self.log.clone(), received: self.received.clone() };
        let name = part.checkpoint.part(self.me);
        let image = Image { name, head: Arc::new(head), saved: Arc::new(saved), snapshot };
        let requires = Requires { own: true, replicas: self.config.defects.obeys(Rule::DurableFirst) };
        let writes = &mut self.store.writes;
        part.written = Some(Replication::begin(Arc::new(image), &self.holders, requires, writes, host));
        self.maybe_commit(now, host);
    }

    /// Handles a holder's confirmation of a replica.
    fn stored(&mut self, from: ProcessId, checkpoint: Checkpoint, now: Time, host: &mut ProtocolHost) {
        let name = checkpoint.part(self.me);
        if let Some(written) = self.written() {
            written.confirmed(from, name);
        }
        self.unconfirmed.remove(&(checkpoint, from));
        self.maybe_commit(now, host);
        self.advance(now, host);
    }

    /// Returns the checkpoint in progress that is being made durable.
    fn written(&mut self) -> Option<&mut Replication<Independent>> {
        match &mut self.phase {
            Phase::Checkpointing(part) => part.written.as_mut(),
            _ => None,
        }
    }

    /// Commits the checkpoint once it is durable locally and at its holders. Before the first commit, the supervisor
    /// must have recorded that the process may act.
    fn maybe_commit(&mut self, now: Time, host: &mut ProtocolHost) {
        let has_started = self.has_started();
        let Phase::Checkpointing(part) = &mut self.phase else { return };
        if part.written.as_mut().is_some_and(Replication::completes) {
            part.is_durable = true;
            if !has_started {
                host.started();
            }
        }
        if part.is_durable && has_started {
            self.commit(now, host);
        }
    }

    fn commit(&mut self, now: Time, host: &mut ProtocolHost) {
        let Phase::Checkpointing(part) = core::mem::replace(&mut self.phase, Phase::Running) else { return };
        let Part { checkpoint, since, written, unsent, .. } = *part;
        let Checkpoint { position, attempt } = checkpoint;
        let delivered =
            written.expect("a durable checkpoint has been written").image().head.delivered.clone();
        assert!(
            position > self.position && self.kept.last().is_none_or(|(it, _)| *it < checkpoint),
            "checkpoint {checkpoint:?} is newer than those before it"
        );
        self.position = position;
        self.kept.push((checkpoint, delivered.clone()));
        let frozen = now.since(since);
        host.claim(Claim::Committed {
            position,
            attempt,
            forced: false,
            frozen,
            vectors: vectors(delivered),
        });
        host.release();
        unsent.into_iter().for_each(|(id, payload)| self.sent(id, payload, host));
        self.schedule.restart(now);
        self.replay_waiting(host);
    }

    /// Returns the claim that the checkpoint in progress is discarded; `None` if no checkpoint is in progress.
    pub(super) fn aborted(&self) -> Option<Claim> {
        let Phase::Checkpointing(part) = &self.phase else { return None };
        Some(part.checkpoint.aborted())
    }
}

/// Returns vectors for a claim, with an empty DDV.
pub(super) fn vectors(delivered: Delivered) -> Arc<Vectors> {
    Arc::new(Vectors { ddv: Arc::default(), delivered })
}
