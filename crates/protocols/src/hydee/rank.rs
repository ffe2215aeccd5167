//! A process that runs the application: its state, its part in rounds, and failures (R1, R9 to R13).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Gauges, Host, Input, Membership, MessageId, Payload, Position, ProcessId, Role, Scope, Span, Time, To,
};

use super::{Config, Control, Defect, Hydee, Late, ProtocolState, Rule, Stamp};
use crate::machines::group::{self, Group, Resumed};
use crate::machines::logs::{Logs, Saved};
use crate::machines::phases::{self, AppAction, Phases, Rounds};
use crate::machines::{Coordinator, Draining, Schedule};

/// The host, as this protocol sees it.
pub(super) type ProtocolHost<'a> = dyn Host<Hydee> + 'a;

pub(super) type Part = Draining<Hydee, Late>;

#[derive(Clone, Debug)]
pub(super) struct Rank {
    pub(super) config: Arc<Config>,
    /// The cluster, the checkpoints that it keeps, and its recovery.
    pub(super) group: Group<Hydee>,
    /// Current incarnation, and SN of the last committed or restored checkpoint.
    pub(super) position: Position,
    pub(super) logs: Logs<Hydee>,
    pub(super) phases: Phases,
    pub(super) rounds: Rounds,
    /// This process's part of the checkpoint in progress.
    pub(super) part: Option<Box<Part>>,
    /// Actions of the application that have not taken effect: the first waits for its phase, or all wait for the end
    /// of a checkpoint.
    pub(super) app_actions: VecDeque<AppAction>,
    /// Messages that cannot be received yet.
    pub(super) waiting: VecDeque<Arrival>,
    /// Messages from processes that learned of a failure, or recovered from it, before this process did.
    pub(super) early: Vec<(ProcessId, Control)>,
    pub(super) coordinator: Option<Box<Coordinator>>,
}

/// A message from the network.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) id: MessageId,
    pub(super) stamp: Stamp,
    pub(super) payload: Payload,
}

impl Rank {
    pub(super) fn start(
        membership: group::GroupParameters,
        config: Arc<Config>,
        now: Time,
        host: &mut ProtocolHost,
    ) -> Rank {
        let group = Group::new(membership, host);
        let recovery_process = group.view.membership.with_role(Role::RECOVERY_PROCESS).next();
        let recovery_process = recovery_process.expect("the federation has a recovery process");
        let cluster = group.view.membership.cluster_of(group.me);
        let every = config.checkpoint_every[cluster.index()];
        let is_halved = config.defects.has(Defect::CheckpointsTwiceAsOften);
        let schedule = Schedule::new(every.map(|it| if is_halved { Span(it.0 / 2) } else { it }), None, now);
        let coordinator = || Box::new(Coordinator::new(schedule));
        let mut this = Rank {
            position: Position::default(),
            logs: Logs::new(config.log_memory, config.log_rules()),
            phases: Phases::default(),
            rounds: Rounds::new(&group.view, recovery_process, config.round_rules()),
            part: None,
            app_actions: VecDeque::new(),
            waiting: VecDeque::new(),
            early: Vec::new(),
            coordinator: group.coordinates().then(coordinator),
            config,
            group,
        };
        this.watch_members(now, host);
        this
    }

    pub(super) fn obeys(&self, rule: Rule) -> bool {
        self.config.defects.obeys(rule)
    }

    pub(super) fn has(&self, mutation: Defect) -> bool {
        self.config.defects.has(mutation)
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

    pub(super) fn handle(&mut self, input: Input<Hydee>, now: Time, host: &mut ProtocolHost) {
        match input {
            Input::Sent { id, payload } => self.done(AppAction::Sent(id, payload), host),
            Input::Consumed(id) => self.done(AppAction::Consumed(id), host),
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
            Input::Rested | Input::Left | Input::Recorded { .. } => {}
            other => self.storage(other, now, host),
        }
    }

    // ---- Messages of the protocol.

    /// Sends a message to any process, which may be this one.
    pub(super) fn send_to(
        &mut self,
        receiver: ProcessId,
        message: Control,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if receiver == self.group.me {
            self.handle_message(receiver, message, now, host);
        } else {
            host.control(To::One(receiver), message);
        }
    }

    fn handle_message(&mut self, from: ProcessId, message: Control, now: Time, host: &mut ProtocolHost) {
        if self.is_early(&message) {
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
            Control::Settled(settled) => self.settled(from, settled),
            Control::Round(message) => self.handle_round_message(from, message, now, host),
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
    fn is_early(&self, message: &Control) -> bool {
        match message {
            Control::Request(checkpoint)
            | Control::Saved { checkpoint, .. }
            | Control::Drain { checkpoint, .. }
            | Control::Drained(checkpoint)
            | Control::Commit(checkpoint) => checkpoint.position.incarnation > self.position.incarnation,
            // A message about the restored state waits until that state is restored (R8).
            Control::Settled(settled) => settled.to > self.position.incarnation,
            Control::Round(message) => Rounds::is_early(&self.group.view, message),
            Control::Group(message) => self.group.is_early(message),
        }
    }

    /// Retries all input that had to wait until this process learned of a failure or recovered from one.
    pub(super) fn replay(&mut self, now: Time, host: &mut ProtocolHost) {
        for (from, message) in core::mem::take(&mut self.early) {
            self.handle_message(from, message, now, host);
        }
        self.replay_waiting(host);
    }

    /// Handles an input that concerns the storage: channels that were waiting for a segment of the log continue.
    fn storage(&mut self, input: Input<Hydee>, now: Time, host: &mut ProtocolHost) {
        let retry_every = self.config.retry_every;
        let stored = self.logs.storage(&mut self.group, input, now, retry_every, host);
        if stored.repeats_part
            && let Some(part) = &self.part
        {
            part.repeat_to_awaited(host);
        }
        if !stored.peers.is_empty() {
            stored.peers.into_iter().for_each(|peer| self.pump(peer, host));
            if self.rounds.is_open() {
                self.logs.release_segments();
            }
        }
        self.maybe_resume(now, host);
    }

    // ---- Rounds (R9 to R13).

    fn handle_round_message(
        &mut self,
        from: ProcessId,
        message: phases::RoundMessage,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let Rank { group, logs, phases, rounds, .. } = self;
        match message {
            phases::RoundMessage::Begin { epoch, failed, .. } => {
                rounds.begin(epoch, failed, group, logs, phases, host);
            }
            phases::RoundMessage::Sync { epoch, present, committed } => {
                rounds.synchronised(from, epoch, (present, committed), group, logs, phases, host);
            }
            phases::RoundMessage::Level { epoch, level } => {
                if rounds.level(epoch, level, &group.view) && !group.is_recovering() {
                    self.logs.peers().into_iter().for_each(|peer| self.pump(peer, host));
                    self.proceed(host);
                    self.maybe_write(now, host);
                }
            }
            phases::RoundMessage::Report { .. } | phases::RoundMessage::Replayed { .. } => {
                unreachable!("the recovery process handles these")
            }
        }
    }

    // ---- Failures (R1, R9).

    fn membership_changed(&mut self, membership: Arc<Membership>, now: Time, host: &mut ProtocolHost) {
        let view = phases::view(Scope::Cluster, self.obeys(Rule::ReplacedBeginsRound), membership);
        let old = core::mem::replace(&mut self.group.view, view);
        if self.group.view.epoch > old.epoch {
            self.rounds.await_next();
        }
        self.watch_members(now, host);
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
            self.app_actions.clear();
            host.hold();
        }
        self.group.freeze();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.discard();
        }
    }

    /// Installs this process's part and resumes, once every member has its part of the checkpoint being
    /// restored.
    fn maybe_resume(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(resumed) = self.group.take_resumed() else { return };
        self.install(&resumed, host);
        self.group.collect(resumed.target, self.logs.take_collected(), host);
        self.group.store.has_own(host);
        self.proceed(host);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.resumed(now);
        }
        self.rounds.synchronise(&self.group, &mut self.logs, &mut self.phases, host);
        self.replay(now, host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    fn install(&mut self, resumed: &Resumed<Hydee>, host: &mut ProtocolHost) {
        let (position, rolled_back) = resumed.restore(host);
        self.position = position;
        let Saved { channels, collected, own } = resumed.saved();
        let ProtocolState { phases, app_actions, late } = own;
        (self.phases, self.app_actions) = (phases, app_actions);
        self.logs.restore(&self.group, channels, collected);
        host.claim(rolled_back);
        self.receive_late(late);
    }
}
