//! A process that runs the application: sending (M2), receiving (M1, M4), checkpoints (M5) and rollbacks (M3).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Gauges, Host, ImageName, Incarnation, Input, Membership, MessageId, Payload, Position, ProcessId, Role,
    Scope, Snapshot, Time, To,
};

use super::order::{Decision, DeliveryOrder};
use super::{Config, Control, Defect, PessimisticLogging, Recalled, Rule, Stamp, Unsent};
use crate::machines::group::{self, Group, Resumed, View};
use crate::machines::logs::{Channel, LogRules, Logs, Saved};
use crate::machines::{PairRules, Pairs, Requires, Schedule, Solo};

/// The host, as this protocol sees it.
type ProtocolHost<'a> = dyn Host<PessimisticLogging> + 'a;

#[derive(Clone, Debug)]
pub(super) struct Rank {
    config: Arc<Config>,
    /// The process as a group of one, the checkpoints that it keeps, and its recovery.
    group: Group<PessimisticLogging>,
    /// Current incarnation, and SN of the last committed or restored checkpoint.
    position: Position,
    logs: Logs<PessimisticLogging>,
    pairs: Pairs,
    checkpoints: Solo<PessimisticLogging>,
    order: DeliveryOrder,
    logger: ProcessId,
    /// Messages that the application sent and that wait for a commit, or for the deliveries before them to become
    /// stable.
    unsent: Unsent,
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

/// The fate of a message from the network.
enum Fate {
    /// The sender or the receiver has failed since the send. The message will be sent again.
    Stale,
    /// The message has already been received.
    Duplicate,
    Waits,
    Received(Decision),
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
            suppresses: obeys(Rule::SuppressesRepeated),
            saves_log: obeys(Rule::SavesLog),
            logs_suppressed: obeys(Rule::LogsSuppressed),
            drops_older: is_unchanged(Defect::OlderSettledCounts),
            is_sound: config.defects.is_empty(),
            ..LogRules::ALL
        };
        let pair_rules = PairRules {
            waits: obeys(Rule::MeetsFirst),
            drops_older: obeys(Rule::DropsOlderMeeting),
            tells_new_peers: is_unchanged(Defect::PeersFailureIgnored),
        };
        let requires = Requires { own: is_unchanged(Defect::CommitsBeforeDurable), replicas: true };
        let cluster = group.view.membership.cluster_of(group.me);
        let schedule = Schedule::new(config.checkpoint_every[cluster.index()], None, now);
        let logger = group.view.membership.with_role(Role::EVENT_LOGGER).next();
        let mut this = Rank {
            position: Position::default(),
            logs: Logs::new(config.log_memory, log_rules),
            pairs: Pairs::new(pair_rules),
            checkpoints: Solo::new(schedule, requires),
            order: DeliveryOrder::new(config.defects),
            logger: logger.expect("the federation has an event logger"),
            unsent: Unsent::new(),
            waiting: VecDeque::new(),
            early: Vec::new(),
            config,
            group,
        };
        this.watch_own_failures(now, host);
        this.pairs.report(&this.group, &this.logs, host);
        // The logger may have lost its storage before this life began.
        this.report_to_logger(this.group.view.is_up(this.logger), host);
        this
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.config.defects.obeys(rule)
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

    pub(super) fn handle(&mut self, input: Input<PessimisticLogging>, now: Time, host: &mut ProtocolHost) {
        match input {
            Input::Sent { id, payload } => self.sent(id, payload, host),
            Input::Received { id, stamp, payload } => {
                self.arrived(Arrival { id, stamp, payload }, host);
                self.repeat_waiting(host);
            }
            Input::Rested => {
                self.order.rested();
                self.replay(now, host);
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
            // A process's actions depend on its deliveries, not on when it consumes them.
            Input::Consumed(_) | Input::Left | Input::Recorded { .. } => {}
            other => self.storage(other, now, host),
        }
    }

    // ---- Sending (M2).

    fn sent(&mut self, id: MessageId, payload: Payload, host: &mut ProtocolHost) {
        if self.group.is_recovering() {
            return; // The state that sent the message is about to be replaced.
        }
        self.order.sent();
        self.unsent.push_back((id, payload));
        if !self.checkpoints.is_cut() {
            self.send_stable(host);
        }
        self.repeat_waiting(host);
    }

    /// Transmits the application's messages, in order, once the deliveries before them are stable. Until then, no
    /// further messages are delivered to the application.
    fn send_stable(&mut self, host: &mut ProtocolHost) {
        while !self.unsent.is_empty() {
            if !self.order.is_stable() {
                host.hold();
                return;
            }
            if let Some((id, payload)) = self.unsent.pop_front() {
                self.send(id, payload, host);
            }
        }
    }

    fn send(&mut self, id: MessageId, payload: Payload, host: &mut ProtocolHost) {
        let is_suppressed = self.logs.sent(id, (), payload, self.pairs.is_decided(id.to), host);
        if !is_suppressed {
            self.pump(id.to, host);
        }
        self.logs.maybe_spill(&mut self.group, host);
    }

    /// Passes a channel's logged messages to the network, once both ends have exchanged its state (S3, S4).
    fn pump(&mut self, to: ProcessId, host: &mut ProtocolHost) {
        if self.pairs.is_decided(to) {
            self.logs.pump(&mut self.group, to, self.position, |()| true, host);
        }
    }

    /// Lets the application resume, unless a checkpoint or a recovery is in progress, the deliveries to repeat are
    /// unknown, or a send has to wait until earlier deliveries are stable.
    fn proceed(&mut self, host: &mut ProtocolHost) {
        let is_running = !self.checkpoints.is_checkpointing() && !self.group.is_recovering();
        // No process may act before the first checkpoint is committed.
        if !is_running || self.position.sn.0 == 0 || self.order.is_asking() {
            return;
        }
        self.send_stable(host);
        if self.unsent.is_empty() {
            host.release();
            self.replay_waiting(host);
        }
    }

    // ---- Receiving (M1, M4).

    /// Handles a message from the network.
    fn arrived(&mut self, arrival: Arrival, host: &mut ProtocolHost) {
        let Arrival { id, stamp: Stamp { position, .. }, .. } = arrival;
        match self.fate_of(&arrival) {
            Fate::Stale if position.incarnation < self.incarnation_of(id.from) => host.drop_stale(id),
            Fate::Stale | Fate::Duplicate => {}
            Fate::Waits => self.waiting.push_back(arrival),
            Fate::Received(decision) => self.receive(id, arrival.payload, decision, host),
        }
    }

    fn incarnation_of(&self, process: ProcessId) -> Incarnation {
        self.group.view.incarnation(self.group.view.group_of(process))
    }

    fn fate_of(&self, arrival: &Arrival) -> Fate {
        let Arrival { id, stamp: Stamp { position, to, .. }, .. } = arrival;
        let (theirs, ours) = (self.incarnation_of(id.from), self.incarnation_of(self.group.me));
        if position.incarnation < theirs || *to < ours {
            return Fate::Stale;
        }
        let is_early = position.incarnation > theirs || *to > ours || self.position.sn.0 == 0;
        let is_running = !self.checkpoints.is_checkpointing() && !self.group.is_recovering();
        if is_early || !is_running || !self.unsent.is_empty() {
            return Fate::Waits;
        }
        if id.number < self.logs.received(id.from) && self.obeys(Rule::SuppressesRepeated) {
            return Fate::Duplicate;
        }
        match self.order.decide(*id) {
            Decision::Later => Fate::Waits,
            decision => Fate::Received(decision),
        }
    }

    /// Delivers a message, and reports a new delivery to the event logger (M1).
    fn receive(&mut self, id: MessageId, payload: Payload, decision: Decision, host: &mut ProtocolHost) {
        if let Some((first, determinant)) = self.order.deliver(id, decision) {
            let determinants = [determinant].into();
            host.control(To::One(self.logger), Control::Log { first, determinants });
        }
        if self.order.needs_rest() {
            host.request_rest();
        }
        self.logs.receive(id);
        if !self.obeys(Rule::CollectsAtCheckpoint) {
            self.logs.tell_present(&self.group, id.from, host);
        }
        host.deliver(id, payload);
    }

    /// Retries the messages that could not be received before.
    fn replay_waiting(&mut self, host: &mut ProtocolHost) {
        for arrival in core::mem::take(&mut self.waiting) {
            self.arrived(arrival, host);
        }
        self.repeat_waiting(host);
    }

    /// Repeats deliveries. A message that arrived earlier may have waited for one that arrived later, or for a send in
    /// between.
    fn repeat_waiting(&mut self, host: &mut ProtocolHost) {
        while self.order.repeats() {
            let due = |(index, it): (usize, &Arrival)| match self.fate_of(it) {
                Fate::Received(decision) => Some((index, decision)),
                _ => None,
            };
            let Some((index, decision)) = self.waiting.iter().enumerate().find_map(due) else { return };
            let Some(Arrival { id, payload, .. }) = self.waiting.remove(index) else { return };
            self.receive(id, payload, decision, host);
        }
    }

    // ---- Checkpoints (M5).

    /// Begins a checkpoint, unless one is in progress or the process is recovering.
    fn begin_checkpoint(&mut self, now: Time, host: &mut ProtocolHost) {
        let is_running = !self.checkpoints.is_checkpointing() && !self.group.is_recovering();
        if is_running && self.group.all_members_up() {
            self.checkpoints.begin(self.position, now, host);
        }
    }

    /// Handles the snapshot, which follows all earlier sends of the application.
    fn snapshot_taken(&mut self, snapshot: Snapshot, host: &mut ProtocolHost) {
        let is_saved = !self.config.defects.has(Defect::UnsentOutsideCheckpoint);
        let unsent = if is_saved { self.unsent.clone() } else { Unsent::new() };
        let saved = self.logs.saved(unsent);
        self.checkpoints.cut(&mut self.group, snapshot, saved, self.logs.head(), host);
    }

    /// Commits the checkpoint once it is durable, locally and at its holders. Before the first commit, the supervisor
    /// must have recorded that the process may have acted.
    fn checkpoint_completes(&mut self, now: Time, host: &mut ProtocolHost) {
        if self.checkpoints.completes() {
            match self.group.has_started() {
                true => self.maybe_commit(now, host),
                false => host.started(),
            }
        }
    }

    /// Handles the commit: the application resumes. The order of the deliveries in the checkpoint is no longer needed
    /// (M5), and neither are the messages themselves (R8).
    fn maybe_commit(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some((checkpoint, saved, committed)) = self.checkpoints.commit(now) else { return };
        self.position = checkpoint.position;
        self.logs.commit(&self.group, &saved.channels, host);
        let below = delivered(&saved.channels);
        self.order.saved(below);
        let below = below + u64::from(self.config.defects.has(Defect::ForgetsOneTooMany));
        let by = Some(checkpoint.part(self.group.me));
        host.control(To::One(self.logger), Control::Forget { below, by });
        host.claim(committed);
        self.group.collect(Some(checkpoint), self.logs.take_collected(), host);
        self.proceed(host);
        self.checkpoints.restart_timer(now);
        self.replay(now, host);
    }

    // ---- Messages of the protocol.

    fn handle_message(&mut self, from: ProcessId, message: Control, now: Time, host: &mut ProtocolHost) {
        let is_early = match &message {
            Control::Settled(settled) => settled.to > self.position.incarnation,
            Control::ChannelReport(report) => Pairs::is_early(&self.group, from, report),
            Control::Group(message) => self.group.is_early(message),
            _ => false,
        };
        if is_early {
            self.early.push((from, message));
            return;
        }
        match message {
            Control::Settled(settled) => {
                self.logs.settled(&self.group, from, settled);
            }
            Control::ChannelReport(report) => {
                if self.pairs.reported(&self.group, &mut self.logs, from, report, host) {
                    self.pump(from, host);
                }
            }
            Control::Logged { upto } => self.logged(upto, host),
            Control::Recalled(recalled) => self.recalled(recalled, now, host),
            Control::Group(message) => {
                if let group::GroupMessage::Stored(name) = message {
                    self.checkpoints.confirmed(from, name);
                    self.checkpoint_completes(now, host);
                }
                self.logs.handle_group_message(&mut self.group, from, message, host);
                self.maybe_resume(now, host);
            }
            Control::Log { .. } | Control::Know { .. } | Control::Forget { .. } | Control::Recall { .. } => {
                unreachable!("the event logger handles these")
            }
        }
    }

    /// Handles the event logger's confirmation that all deliveries before number `upto` are stable (M2).
    fn logged(&mut self, upto: u64, host: &mut ProtocolHost) {
        self.order.stable_before(upto);
        if !self.obeys(Rule::KeepsUntilCheckpoint) {
            host.control(To::One(self.logger), Control::Forget { below: upto, by: None });
        }
        self.proceed(host);
    }

    /// Asks the event logger for the deliveries to repeat (M3), or reports all known deliveries to it (M6).
    fn contact_logger(&self, host: &mut ProtocolHost) {
        let message = if self.order.is_asking() {
            Control::Recall { first: self.order.first_to_repeat() }
        } else {
            let (first, determinants) = self.order.known();
            Control::Know { first, determinants }
        };
        host.control(To::One(self.logger), message);
    }

    /// Reports to the event logger if it may have lost the reports to its previous life (M6).
    fn report_to_logger(&self, may_lack: bool, host: &mut ProtocolHost) {
        if may_lack && !self.group.is_recovering() && self.obeys(Rule::TellsNewLogger) {
            self.contact_logger(host);
        }
    }

    /// Handles the event logger's answer, which lists the deliveries to repeat or states that they are lost or were
    /// removed.
    fn recalled(&mut self, recalled: Recalled, now: Time, host: &mut ProtocolHost) {
        if !self.order.is_asking() || self.group.is_recovering() {
            return;
        }
        let kept =
            self.group.kept.expect("a process that asks has restored a checkpoint").part(self.group.me);
        match recalled {
            Recalled::Order { first, determinants } => {
                if self.order.recalled(first, &determinants) {
                    if self.order.needs_rest() {
                        host.request_rest();
                    }
                    self.proceed(host);
                    self.replay(now, host);
                }
            }
            Recalled::Lost => {
                let log = ImageName { owner: self.logger, ..kept };
                self.group.unrecoverable(&[(log, Vec::from([self.logger]))], host);
            }
            Recalled::Forgotten { by } => {
                let holders = self.group.holders.iter().copied();
                let asked = core::iter::once(self.group.me).chain(holders).collect();
                self.group.unrecoverable(&[(by.unwrap_or(kept), asked)], host);
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

    /// Handles an input that concerns the storage: channels that waited for a segment of the log continue.
    fn storage(&mut self, input: Input<PessimisticLogging>, now: Time, host: &mut ProtocolHost) {
        let retry_every = self.config.retry_every;
        let stored = self.logs.storage(&mut self.group, input, now, retry_every, host);
        if stored.repeats_part {
            self.checkpoints.repeat_to_awaited(host);
        }
        if !stored.peers.is_empty() {
            stored.peers.into_iter().for_each(|peer| self.pump(peer, host));
            self.logs.release_segments();
        }
        self.maybe_resume(now, host);
    }

    // ---- Failures (M3).

    fn membership_changed(&mut self, membership: Arc<Membership>, now: Time, host: &mut ProtocolHost) {
        let view = View::new(Scope::Process, None, membership);
        let old = core::mem::replace(&mut self.group.view, view);
        self.watch_own_failures(now, host);
        self.pairs.report(&self.group, &self.logs, host);
        for holder in self.group.restarted_holders(&old) {
            self.checkpoints.repeat(holder, host);
            self.logs.repeat_segments(self.group.me, holder, host);
            self.group.update_holder(holder, host);
        }
        self.group.watch_outside_holders(&old, host);
        self.report_to_logger(self.group.view.began_new_life(self.logger, &old), host);
        self.replay(now, host);
    }

    /// Watches this process's own lives: a new life restores the state of the previous one.
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
            self.unsent.clear();
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
        self.pairs.report(&self.group, &self.logs, host);
        self.replay(now, host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    fn install(&mut self, resumed: &Resumed<PessimisticLogging>, host: &mut ProtocolHost) {
        let (position, rolled_back) = resumed.restore(host);
        self.position = position;
        let Saved { channels, collected, own } = resumed.saved();
        let sent = channels.values().map(|it| u64::from(it.sent)).sum::<u64>() + own.len() as u64;
        let sent = if self.config.defects.has(Defect::SentNotRestored) { 0 } else { sent };
        self.order.restore(delivered(&channels), sent, resumed.target.is_some());
        self.unsent = own;
        self.logs.restore(&self.group, channels, collected);
        self.pairs.restore(&self.logs);
        self.contact_logger(host);
        host.claim(rolled_back);
    }
}

/// Returns the number of deliveries that these channels contain.
fn delivered(channels: &BTreeMap<ProcessId, Channel<()>>) -> u64 {
    channels.values().map(|it| u64::from(it.received)).sum()
}
