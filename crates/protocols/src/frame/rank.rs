//! A process that runs the application: its inputs, messages of the protocol, and failures.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Gauges, Host, Input, Membership, MessageId, Payload, Position, ProcessId, Time, To};

use super::resuming::Released;
use super::rules::RankRules;
use super::{Control, Delivering, LoggingProtocol, Resuming, Rules};
use crate::machines::group::{self, Group};
use crate::machines::logs::{AppAction, Logs, Saved, Stamp};
use crate::machines::{Coordinator, DrainRules, Draining, Schedule};

/// A process that runs the application.
#[derive(Clone, Debug)]
pub(crate) struct Rank<P: LoggingProtocol> {
    config: Arc<P::Config>,
    pub(super) rules: RankRules,
    pub(super) drain_rules: DrainRules,
    /// The group, the checkpoints that it keeps, and its recovery.
    pub(crate) group: Group<P>,
    /// Current incarnation, and SN of the last committed or restored checkpoint.
    pub(super) position: Position,
    pub(super) logs: Logs<P>,
    pub(super) channels: P::Channels,
    pub(crate) deliveries: P::Deliveries,
    /// This process's part of the checkpoint in progress.
    pub(super) part: Option<Box<Draining<P>>>,
    /// Actions of the application that have not taken effect: the first has to wait, or all wait for the end of a
    /// checkpoint.
    pub(super) actions: VecDeque<AppAction>,
    /// Messages that cannot be received yet.
    pub(super) waiting: VecDeque<Arrival<P::Tag>>,
    /// Messages from processes that learned of a failure, or recovered from it, before this process did.
    early: Vec<(ProcessId, P::Control)>,
    pub(super) coordinator: Option<Box<Coordinator>>,
}

/// A message from the network.
#[derive(Clone, Debug)]
pub(super) struct Arrival<T> {
    pub(super) id: MessageId,
    pub(super) stamp: Stamp<T>,
    pub(super) payload: Payload,
}

impl<P: LoggingProtocol> Rank<P> {
    pub(super) fn start(
        membership: group::GroupParameters,
        config: Arc<P::Config>,
        rules: Rules,
        now: Time,
        host: &mut dyn Host<P>,
    ) -> Rank<P> {
        let group = Group::new(membership, host);
        let cluster = group.view.membership.cluster_of(group.me);
        let every = config.checkpoint_every[cluster.index()];
        let coordinator = || Box::new(Coordinator::new(Schedule::new(every, None, now)));
        let mut this = Rank {
            rules: rules.rank,
            drain_rules: rules.draining,
            position: Position::default(),
            logs: Logs::new(config.log_memory, rules.logs),
            channels: P::Channels::new(&group.view, &rules),
            deliveries: P::Deliveries::new(config.defects, &group.view),
            part: None,
            actions: VecDeque::new(),
            waiting: VecDeque::new(),
            early: Vec::new(),
            coordinator: group.coordinates().then(coordinator),
            config,
            group,
        };
        this.watch_members(now, host);
        this.channels.exchange(&this.group, &mut this.logs, host);
        this.deliveries.membership_changed(None, &this.group, host);
        this
    }

    pub(super) fn is_running(&self) -> bool {
        self.part.is_none() && !self.group.is_recovering()
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
        let next = self.coordinator.as_ref().and_then(|it| it.next_deadline());
        let checkpoint = next.filter(|_| self.is_running());
        [checkpoint, self.group.store.writes.next_deadline()].into_iter().flatten().min()
    }

    pub(super) fn handle(&mut self, input: Input<P>, now: Time, host: &mut dyn Host<P>) {
        match input {
            Input::Sent { id, payload } => self.acted(AppAction::Sent(id, payload), host),
            Input::Consumed(id) => {
                if P::Channels::COUNTS_CONSUMED {
                    self.acted(AppAction::Consumed(id), host);
                }
            }
            Input::Received { id, stamp, payload } => {
                self.arrived(Arrival { id, stamp, payload }, host);
                self.repeat_waiting(host);
                self.maybe_write(now, host);
            }
            Input::Control { from, message } => self.handle_message(from, message, now, host),
            Input::Snapshot(snapshot) => self.snapshot_taken(snapshot, now, host),
            Input::Membership(membership) => self.membership_changed(membership, now, host),
            Input::Rested => {
                self.deliveries.rested();
                self.replay(now, host);
            }
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
            Input::Left | Input::Recorded { .. } => {}
            other => self.storage(other, now, host),
        }
    }

    // ---- Messages of the protocol.

    /// Sends a message to any process, which may be this one.
    pub(super) fn send_to(
        &mut self,
        receiver: ProcessId,
        message: P::Control,
        now: Time,
        host: &mut dyn Host<P>,
    ) {
        if receiver == self.group.me {
            self.handle_message(receiver, message, now, host);
        } else {
            host.control(To::One(receiver), message);
        }
    }

    fn handle_message(&mut self, from: ProcessId, message: P::Control, now: Time, host: &mut dyn Host<P>) {
        if self.is_early(from, &message) {
            self.early.push((from, message));
            return;
        }
        match message {
            Control::Request(checkpoint) => self.request(checkpoint, now, host),
            Control::Saved { checkpoint, sent } => self.saved(from, checkpoint, &sent, now, host),
            Control::Drain { checkpoint, expected } => self.drain(checkpoint, expected, now, host),
            Control::Drained(checkpoint) => self.drained(from, checkpoint, now, host),
            Control::Commit(checkpoint) => self.commit(checkpoint, now, host),
            // A peer's checkpoint contains these messages (R8).
            Control::Settled(settled) => {
                if self.logs.settled(&self.group, from, settled).is_some() {
                    self.channels.settled(from, self.logs.channels[&from].settled.sent);
                }
            }
            Control::Resume(message) => self.resume(from, message, now, host),
            Control::Order(message) => P::Deliveries::handle(self, message, now, host),
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
    fn is_early(&self, from: ProcessId, message: &P::Control) -> bool {
        match message {
            Control::Request(checkpoint)
            | Control::Saved { checkpoint, .. }
            | Control::Drain { checkpoint, .. }
            | Control::Drained(checkpoint)
            | Control::Commit(checkpoint) => checkpoint.position.incarnation > self.position.incarnation,
            // A message about the restored state waits until that state is restored (R8).
            Control::Settled(settled) => settled.to > self.position.incarnation,
            Control::Resume(message) => self.channels.is_early(&self.group, from, message),
            Control::Order(_) => false,
            Control::Group(message) => self.group.is_early(message),
        }
    }

    /// Handles a message with which channels resume (R9 to R13, S3).
    fn resume(
        &mut self,
        from: ProcessId,
        message: <P::Channels as Resuming>::Message,
        now: Time,
        host: &mut dyn Host<P>,
    ) {
        match self.channels.handle(from, message, &self.group, &mut self.logs, host) {
            Released::None => {}
            Released::One => self.pump(from, host),
            Released::All => {
                self.logs.peers().into_iter().for_each(|peer| self.pump(peer, host));
                self.proceed(host);
                self.maybe_write(now, host);
            }
        }
    }

    /// Retries all input that had to wait until this process learned of a failure or recovered from one.
    pub(crate) fn replay(&mut self, now: Time, host: &mut dyn Host<P>) {
        for (from, message) in core::mem::take(&mut self.early) {
            self.handle_message(from, message, now, host);
        }
        self.replay_waiting(host);
    }

    /// Handles an input that concerns the storage: channels that were waiting for a segment of the log continue.
    fn storage(&mut self, input: Input<P>, now: Time, host: &mut dyn Host<P>) {
        let retry_every = self.config.retry_every;
        let stored = self.logs.storage(&mut self.group, input, now, retry_every, host);
        if stored.repeats_part
            && let Some(part) = &self.part
        {
            part.repeat_to_awaited(host);
        }
        if !stored.peers.is_empty() {
            stored.peers.into_iter().for_each(|peer| self.pump(peer, host));
            if self.channels.is_open() {
                self.logs.release_segments();
            }
        }
        self.maybe_resume(now, host);
    }

    // ---- Failures (R1, R9, S3 to S5, M3).

    fn membership_changed(&mut self, membership: Arc<Membership>, now: Time, host: &mut dyn Host<P>) {
        let view = self.group.view.after(membership);
        let old = core::mem::replace(&mut self.group.view, view);
        if self.group.view.epoch > old.epoch {
            self.channels.failed();
        }
        self.watch_members(now, host);
        self.channels.exchange(&self.group, &mut self.logs, host);
        for holder in self.group.restarted_holders(&old) {
            if let Some(part) = &mut self.part {
                part.repeat(holder, host);
            }
            self.logs.repeat_segments(self.group.me, holder, host);
            self.group.update_holder(holder, host);
        }
        self.group.watch_outside_holders(&old, host);
        self.deliveries.membership_changed(Some(&old), &self.group, host);
        self.replay(now, host);
        self.maybe_write(now, host);
    }

    /// Watches this process's group: a failure freezes it, and once all members are up again, the coordinator begins to
    /// restore it.
    fn watch_members(&mut self, now: Time, host: &mut dyn Host<P>) {
        if self.group.has_started() {
            self.maybe_commit(now, host);
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
    fn freeze(&mut self, host: &mut dyn Host<P>) {
        if let Some(part) = self.part.take() {
            host.claim(part.aborted());
        }
        if !self.group.is_recovering() {
            self.actions.clear();
            host.hold();
        }
        self.group.freeze();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.discard();
        }
    }

    /// Installs this process's part and resumes, once every member has its part of the checkpoint being restored.
    fn maybe_resume(&mut self, now: Time, host: &mut dyn Host<P>) {
        let Some(resumed) = self.group.take_resumed() else { return };
        self.install(&resumed, host);
        self.group.collect(resumed.target, self.logs.take_collected(), host);
        self.group.store.has_own(host);
        self.proceed(host);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.resumed(now);
        }
        self.channels.exchange(&self.group, &mut self.logs, host);
        self.replay(now, host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    fn install(&mut self, resumed: &group::Resumed<P>, host: &mut dyn Host<P>) {
        let (position, rolled_back) = resumed.restore(host);
        assert!(position > self.position, "{position:?} begins a new incarnation after {:?}", self.position);
        self.position = position;
        let Saved { channels, collected, state, actions, late } = resumed.saved();
        self.actions = actions;
        self.logs.restore(&self.group, channels, collected);
        self.channels.restore(state, &self.logs);
        let has_acted = resumed.target.is_some();
        self.deliveries.restored(&self.logs, self.actions.len(), has_acted, host);
        host.claim(rolled_back);
        self.receive_late(late);
    }
}
