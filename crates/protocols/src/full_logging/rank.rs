//! A process that runs the application: sending (R3, R4), receiving (R5, R6), checkpoints (R7, R8) and rollbacks (R9).

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Gauges, Host, Input, Membership, MessageId, Payload, Position, ProcessId, Role, Scope, Snapshot, Time,
};

use super::{Config, Control, FullLogging, ProtocolState, Rule, Stamp};
use crate::machines::group::{self, Group, Resumed};
use crate::machines::logs::{LogRules, Logs, Saved};
use crate::machines::phases::{self, AppAction, PhaseRules, Phases, RoundRules, Rounds};
use crate::machines::{Requires, Schedule, Solo};

/// The host, as this protocol sees it.
type ProtocolHost<'a> = dyn Host<FullLogging> + 'a;

#[derive(Clone, Debug)]
pub(super) struct Rank {
    config: Arc<Config>,
    /// The process as a group of one, the checkpoints that it keeps, and its recovery.
    group: Group<FullLogging>,
    /// Current incarnation, and SN of the last committed or restored checkpoint.
    position: Position,
    logs: Logs<FullLogging>,
    phases: Phases,
    rounds: Rounds,
    checkpoints: Solo<FullLogging>,
    /// Actions of the application that have not taken effect: the first waits for its phase, or all wait for the end
    /// of a checkpoint.
    app_actions: VecDeque<AppAction>,
    /// Messages that cannot be received yet.
    waiting: VecDeque<Arrival>,
    /// Messages that wait until this process has learned of a failure, or has recovered from its own.
    early: Vec<(ProcessId, Control)>,
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
        let recovery_process = group.view.membership.with_role(Role::RECOVERY_PROCESS).next();
        let recovery_process = recovery_process.expect("the federation has a recovery process");
        let cluster = group.view.membership.cluster_of(group.me);
        let schedule = Schedule::new(config.checkpoint_every[cluster.index()], None, now);
        let obeys = |rule| config.defects.obeys(rule);
        let log_rules = LogRules {
            saves_log: obeys(Rule::SavesLog),
            logs_suppressed: obeys(Rule::LogsSuppressed),
            collects: obeys(Rule::Collects),
            collects_exactly: obeys(Rule::CollectsExactly),
            is_sound: config.defects.is_empty(),
            ..LogRules::ALL
        };
        let round_rules = RoundRules {
            drops_older_sync: obeys(Rule::DropsOlderSync),
            drops_older_levels: obeys(Rule::DropsOlderLevels),
            reports_all: obeys(Rule::ReportsAllOrphans),
            ..RoundRules::ALL
        };
        let requires = Requires { own: true, replicas: obeys(Rule::CopiesFirst) };
        let mut this = Rank {
            position: Position::default(),
            logs: Logs::new(config.log_memory, log_rules),
            phases: Phases::default(),
            rounds: Rounds::new(&group.view, recovery_process, round_rules),
            checkpoints: Solo::new(schedule, requires),
            app_actions: VecDeque::new(),
            waiting: VecDeque::new(),
            early: Vec::new(),
            config,
            group,
        };
        this.watch_own_failures(now, host);
        this
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.config.defects.obeys(rule)
    }

    fn is_running(&self) -> bool {
        !self.checkpoints.is_checkpointing() && !self.group.is_recovering()
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
        let checkpoint = self.checkpoints.next_deadline().filter(|_| !self.group.is_recovering());
        [checkpoint, self.group.store.writes.next_deadline()].into_iter().flatten().min()
    }

    pub(super) fn handle(&mut self, input: Input<FullLogging>, now: Time, host: &mut ProtocolHost) {
        match input {
            Input::Sent { id, payload } => self.done(AppAction::Sent(id, payload), host),
            Input::Consumed(id) => self.done(AppAction::Consumed(id), host),
            Input::Received { id, stamp, payload } => {
                self.arrived(Arrival { id, stamp, payload }, host);
            }
            Input::Control { from, message } => self.handle_message(from, message, now, host),
            Input::Snapshot(snapshot) => self.snapshot_taken(snapshot, host),
            Input::Membership(membership) => self.membership_changed(membership, now, host),
            Input::Timeout => {
                if self.checkpoints.is_due(now) {
                    self.begin_checkpoint(now, host);
                }
                self.storage(Input::Timeout, now, host);
            }
            Input::Persisted(name) => {
                self.storage(input, now, host);
                self.checkpoints.durable(name);
                self.checkpoint_completes(now, host);
            }
            Input::Rested | Input::Left | Input::Recorded { .. } => {}
            other => self.storage(other, now, host),
        }
    }

    // ---- Sending (R3, R4).

    /// Handles an action of the application.
    fn done(&mut self, action: AppAction, host: &mut ProtocolHost) {
        if self.group.is_recovering() {
            return; // The state that acted is about to be replaced.
        }
        self.app_actions.push_back(action);
        if !self.checkpoints.is_cut() {
            self.act(host);
        }
    }

    /// Lets the application's actions take effect, in order. The first send that has to wait for its phase holds back
    /// the application and all later actions (R3).
    fn act(&mut self, host: &mut ProtocolHost) {
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

    /// Sends a message through the log of its channel. If the receiver already has the message, the message is a
    /// re-sent orphan, and the recovery process is informed.
    fn send(&mut self, id: MessageId, payload: Payload, host: &mut ProtocolHost) {
        assert!(self.position.sn.0 > 0, "no process acts before its first checkpoint is committed");
        let phase = self.phases.phase();
        if self.logs.sent(id, phase, payload, true, host) {
            self.rounds.replayed(&self.group.view, id, phase, host);
        } else {
            self.pump(id.to, host);
        }
        self.logs.maybe_spill(&mut self.group, host);
    }

    /// Passes a channel's logged messages to the network, in order, up to the first whose phase does not permit it
    /// (R4).
    fn pump(&mut self, to: ProcessId, host: &mut ProtocolHost) {
        let admits = |phase| self.rounds.admits(phase);
        self.logs.pump(&mut self.group, to, self.position, admits, host);
    }

    /// Lets the application resume, unless a checkpoint or a recovery is in progress, or a send has to wait for its
    /// phase.
    fn proceed(&mut self, host: &mut ProtocolHost) {
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

    /// Handles a message from the network. A message from an older incarnation of the sender, or to an older
    /// incarnation of the receiver, is dropped, since it will be re-sent. Messages from or to newer incarnations wait.
    fn arrived(&mut self, arrival: Arrival, host: &mut ProtocolHost) {
        let Arrival { id, stamp: Stamp { position, to, .. }, .. } = arrival;
        let theirs = self.group.view.incarnation(self.group.view.group_of(id.from));
        let ours = self.group.view.incarnation(self.group.number);
        if position.incarnation < theirs && self.obeys(Rule::DropsOlderLives) {
            host.drop_stale(id);
            return;
        }
        if to < ours {
            return;
        }
        let is_early = position.incarnation > theirs || to > ours || self.position.sn.0 == 0;
        if is_early || !self.is_running() || !self.app_actions.is_empty() {
            self.waiting.push_back(arrival);
        } else if id.number >= self.logs.received(id.from) {
            self.receive(arrival, host);
        } // Otherwise, the message was received before.
    }

    fn receive(&mut self, arrival: Arrival, host: &mut ProtocolHost) {
        let Arrival { id, stamp: Stamp { tag: phase, .. }, payload } = arrival;
        self.logs.receive(id);
        let counts_up = self.obeys(Rule::CountsUp);
        self.phases.received(id, phase, false, PhaseRules { counts_up, ..PhaseRules::ALL });
        host.deliver(id, payload);
    }

    /// Retries the messages that could not be received before.
    fn replay_waiting(&mut self, host: &mut ProtocolHost) {
        for arrival in core::mem::take(&mut self.waiting) {
            self.arrived(arrival, host);
        }
    }

    // ---- Checkpoints (R7, R8).

    /// Begins a checkpoint, unless one is in progress or the process is recovering.
    fn begin_checkpoint(&mut self, now: Time, host: &mut ProtocolHost) {
        if self.is_running() && self.group.all_members_up() {
            self.checkpoints.begin(self.position, now, host);
        }
    }

    /// Handles the snapshot, which follows all earlier actions of the application.
    fn snapshot_taken(&mut self, snapshot: Snapshot, host: &mut ProtocolHost) {
        if !self.obeys(Rule::SavesActions) {
            self.app_actions.clear();
        }
        let own = ProtocolState { phases: self.phases.clone(), app_actions: self.app_actions.clone() };
        let saved = self.logs.saved(own);
        self.checkpoints.cut(&mut self.group, snapshot, saved, self.logs.head(), host);
    }

    /// Commits the checkpoint once it is durable, at this process and at the holders. Before the first commit, the
    /// supervisor must have recorded that the process may have acted.
    fn checkpoint_completes(&mut self, now: Time, host: &mut ProtocolHost) {
        if self.checkpoints.completes() {
            match self.group.has_started() {
                true => self.maybe_commit(now, host),
                false => host.started(),
            }
        }
    }

    /// Handles the commit: the application resumes. The peers learn which messages the checkpoint contains, and remove
    /// these messages from their logs (R8). Earlier checkpoints are no longer needed.
    fn maybe_commit(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some((checkpoint, saved, committed)) = self.checkpoints.commit(now) else { return };
        let next = Position { sn: self.position.sn.next(), ..self.position };
        assert_eq!(checkpoint.position, next, "a checkpoint is committed unless a rollback has discarded it");
        self.position = checkpoint.position;
        self.logs.commit(&self.group, &saved.channels, host);
        host.claim(committed);
        self.group.collect(Some(checkpoint), self.logs.take_collected(), host);
        self.proceed(host);
        self.checkpoints.restart_timer(now);
        self.replay(now, host);
    }

    // ---- Messages of the protocol.

    fn handle_message(&mut self, from: ProcessId, message: Control, now: Time, host: &mut ProtocolHost) {
        let is_early = match &message {
            // A message about the restored state waits until the state is restored (R8).
            Control::Settled(settled) => settled.to > self.position.incarnation,
            Control::Round(message) => Rounds::is_early(&self.group.view, message),
            Control::Group(message) => self.group.is_early(message),
        };
        if is_early {
            self.early.push((from, message));
            return;
        }
        match message {
            Control::Settled(settled) => {
                if self.logs.settled(&self.group, from, settled).is_some() {
                    self.phases.settled(from, self.logs.channels[&from].settled.sent);
                }
            }
            Control::Round(message) => self.handle_round_message(from, message, host),
            Control::Group(message) => {
                if let group::GroupMessage::Stored(name) = message {
                    self.checkpoints.confirmed(from, name);
                    self.checkpoint_completes(now, host);
                }
                self.logs.handle_group_message(&mut self.group, from, message, host);
                self.maybe_resume(now, host);
            }
        }
    }

    /// Retries all input that had to wait until this process learned of a failure or recovered from one.
    fn replay(&mut self, now: Time, host: &mut ProtocolHost) {
        for (from, message) in core::mem::take(&mut self.early) {
            self.handle_message(from, message, now, host);
        }
        self.replay_waiting(host);
    }

    /// Handles an input that concerns the storage: channels that were waiting for a segment of the log continue.
    fn storage(&mut self, input: Input<FullLogging>, now: Time, host: &mut ProtocolHost) {
        let retry_every = self.config.retry_every;
        let stored = self.logs.storage(&mut self.group, input, now, retry_every, host);
        if stored.repeats_part {
            self.checkpoints.repeat_to_awaited(host);
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
                }
            }
            phases::RoundMessage::Report { .. } | phases::RoundMessage::Replayed { .. } => {
                unreachable!("the recovery process handles these")
            }
        }
    }

    // ---- Failures (R1, R9).

    fn membership_changed(&mut self, membership: Arc<Membership>, now: Time, host: &mut ProtocolHost) {
        let view = phases::view(Scope::Process, true, membership);
        let old = core::mem::replace(&mut self.group.view, view);
        if self.group.view.epoch > old.epoch {
            self.rounds.await_next();
        }
        self.watch_own_failures(now, host);
        for holder in self.group.restarted_holders(&old) {
            self.checkpoints.repeat(holder, host);
            self.logs.repeat_segments(self.group.me, holder, host);
            self.group.update_holder(holder, host);
        }
        self.group.watch_outside_holders(&old, host);
        self.replay(now, host);
    }

    /// Handles failures of this process: a new life restores the newest checkpoint of the earlier lives.
    fn watch_own_failures(&mut self, now: Time, host: &mut ProtocolHost) {
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

    fn freeze(&mut self, host: &mut ProtocolHost) {
        self.checkpoints.discard(host);
        if !self.group.is_recovering() {
            self.app_actions.clear();
            host.hold();
        }
        self.group.freeze();
    }

    /// Installs the restored checkpoint once the holders have it, and resumes.
    fn maybe_resume(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(resumed) = self.group.take_resumed() else { return };
        self.install(&resumed, host);
        self.group.collect(resumed.target, self.logs.take_collected(), host);
        self.group.store.has_own(host);
        self.checkpoints.restored();
        self.proceed(host);
        self.checkpoints.restart_timer(now);
        self.rounds.synchronise(&self.group, &mut self.logs, &mut self.phases, host);
        self.replay(now, host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    fn install(&mut self, resumed: &Resumed<FullLogging>, host: &mut ProtocolHost) {
        let (position, rolled_back) = resumed.restore(host);
        assert!(position > self.position, "{position:?} begins a new incarnation after {:?}", self.position);
        self.position = position;
        let Saved { channels, collected, own } = resumed.saved();
        self.app_actions = own.app_actions;
        if self.obeys(Rule::SavesPhase) {
            self.phases = own.phases;
        }
        self.logs.restore(&self.group, channels, collected);
        host.claim(rolled_back);
    }
}
