//! A process that runs the application. The lowest-numbered one also coordinates checkpoints (K1 to K5).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Host, Input, Membership, Position, ProcessId, Time};

use super::leaders::Leader;
use super::{Config, Control, Coordinated, Rule};
use crate::machines::group::{self, Group};
use crate::machines::{self, Checkpoint, Coordinator, Frozen, FrozenRules, Requires};

#[derive(Clone, Debug)]
pub(super) struct Rank {
    pub(super) config: Arc<Config>,
    pub(super) group: Group<Coordinated>,
    pub(super) member: Frozen<Coordinated>,
    /// State of the process that begins and commits checkpoints.
    coordinator: Option<Box<Coordinator>>,
    /// State of the leader of a cluster, in the hierarchical variant.
    pub(super) leader: Option<Leader>,
    /// Messages from processes that learned of a failure, or recovered from it, before this process did.
    early: Vec<(ProcessId, Control)>,
}

impl Rank {
    pub(super) fn start(
        membership: group::GroupParameters,
        config: Arc<Config>,
        now: Time,
        host: &mut dyn Host<Coordinated>,
    ) -> Rank {
        let group = Group::new(membership, host);
        let defects = config.options.defects;
        let is_safe = defects.obeys(Rule::DurableFirst);
        let member = Frozen::new(FrozenRules {
            drains: defects.obeys(Rule::Drains),
            drops_old: defects.obeys(Rule::DropsOld),
            keeps_early: defects.obeys(Rule::KeepsEarly),
            is_sound: defects.is_empty(),
            requires: Requires { own: is_safe, replicas: is_safe },
        });
        let schedule = config.options.schedule(now);
        let coordinator = || Box::new(Coordinator::new(schedule));
        let mut this = Rank {
            coordinator: group.coordinates().then(coordinator),
            leader: Leader::of(&config, &group),
            config,
            group,
            member,
            early: Vec::new(),
        };
        this.membership_changed(this.group.view.membership.clone(), now, host);
        this
    }

    pub(super) fn position(&self) -> Position {
        self.member.position()
    }

    pub(super) fn has_checkpoint(&self) -> bool {
        self.group.kept.is_some()
    }

    pub(super) fn handle(&mut self, input: Input<Coordinated>, now: Time, host: &mut dyn Host<Coordinated>) {
        let retry_every = self.config.options.retry_every;
        match input {
            Input::Sent { .. } if self.group.is_recovering() => {} // The sender's state is about to be replaced.
            Input::Sent { id, payload } => self.member.sent(id, payload, host),
            Input::Received { id, stamp, payload } => {
                self.member.arrived(&self.group, id, stamp, payload, host);
            }
            Input::Control { from, message } => self.handle_message(from, message, now, host),
            Input::Snapshot(snapshot) => {
                if let Some((checkpoint, sent)) = self.member.saved(snapshot) {
                    self.answer(Control::Saved { checkpoint, sent }, now, host);
                }
            }
            Input::Membership(membership) => self.membership_changed(membership, now, host),
            Input::Persisted(name) => {
                self.member.durable(name);
                self.group.storage(input, now, retry_every, host);
            }
            Input::Timeout => {
                if self.coordinator.as_ref().is_some_and(|it| it.is_due(now)) {
                    self.begin_checkpoint(now, host);
                }
                self.group.storage(input, now, retry_every, host);
            }
            other => self.group.storage(other, now, retry_every, host),
        }
        self.member.maybe_write(&mut self.group, host);
        if let Some(checkpoint) = self.member.completes() {
            self.answer(Control::Drained(checkpoint), now, host);
        }
        self.maybe_resume(now, host);
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let is_idle = !self.member.is_checkpointing() && !self.group.is_recovering();
        let checkpoint = self.coordinator.as_ref().and_then(|it| it.next_deadline()).filter(|_| is_idle);
        [checkpoint, self.group.store.writes.next_deadline()].into_iter().flatten().min()
    }

    /// Handles a message from another process, or from this one in another role.
    pub(super) fn handle_message(
        &mut self,
        from: ProcessId,
        message: Control,
        now: Time,
        host: &mut dyn Host<Coordinated>,
    ) {
        let is_early = match &message {
            Control::Request(checkpoint)
            | Control::Saved { checkpoint, .. }
            | Control::Drain { checkpoint, .. }
            | Control::Drained(checkpoint)
            | Control::Commit { checkpoint, .. } => {
                checkpoint.position.incarnation > self.position().incarnation
            }
            Control::Group(message) => self.group.is_early(message),
        };
        if is_early {
            self.early.push((from, message));
            return;
        }
        self.pass_on(from, &message, host);
        match message {
            Control::Request(checkpoint) => self.member.request(&self.group, checkpoint, now, host),
            Control::Saved { checkpoint, sent } => self.saved(from, checkpoint, &sent, now, host),
            Control::Drain { checkpoint, sent } => self.member.expect(self.group.me, checkpoint, &sent),
            Control::Drained(checkpoint) => self.drained(from, checkpoint, now, host),
            Control::Commit { checkpoint, collects } => self.commit(checkpoint, collects, now, host),
            Control::Group(message) => {
                if let group::GroupMessage::Stored(name) = message {
                    self.member.confirmed(from, name);
                }
                self.group.handle(from, message, host);
            }
        }
    }

    fn handle_early(&mut self, now: Time, host: &mut dyn Host<Coordinated>) {
        for (from, message) in core::mem::take(&mut self.early) {
            self.handle_message(from, message, now, host);
        }
    }

    /// Begins a checkpoint (K1), unless one is in progress, the federation is recovering, or a process is down. Has an
    /// effect only on the coordinator.
    fn begin_checkpoint(&mut self, now: Time, host: &mut dyn Host<Coordinated>) {
        let is_idle = !self.member.is_checkpointing() && !self.group.is_recovering();
        let (position, answering) = (self.position(), self.answering());
        let Some(coordinator) = self.coordinator.as_mut().filter(|_| is_idle) else { return };
        if self.group.all_members_up() {
            let checkpoint = coordinator.begin(position, answering, host);
            self.command(Control::Request(checkpoint), now, host);
        }
    }

    /// Adds up the reported counts of messages and, once all reports have arrived, tells the processes how many
    /// messages to wait for (K2). Runs on the coordinator.
    pub(super) fn counted(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        sent: &[(ProcessId, u64)],
        now: Time,
        host: &mut dyn Host<Coordinated>,
    ) {
        let counts = self.coordinator.as_mut().and_then(|it| it.saved(from, checkpoint, sent));
        if let Some(sent) = counts {
            self.command(Control::Drain { checkpoint, sent }, now, host);
        }
    }

    /// Commits the checkpoint once every part is durable (K4). Before the first commit, the supervisor must have
    /// recorded that the federation may have acted. Runs on the coordinator.
    pub(super) fn all_drained(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<Coordinated>,
    ) {
        if self.coordinator.as_mut().is_some_and(|it| it.drained(from, checkpoint)) {
            match self.group.has_started() {
                true => self.commit_gathered(now, host),
                false => host.started(),
            }
        }
    }

    fn commit_gathered(&mut self, now: Time, host: &mut dyn Host<Coordinated>) {
        if let Some((checkpoint, collects)) = self.coordinator.as_mut().and_then(|it| it.commit(now)) {
            self.command(Control::Commit { checkpoint, collects }, now, host);
        }
    }

    /// Handles the commit of the checkpoint: the application resumes (K4).
    fn commit(
        &mut self,
        checkpoint: Checkpoint,
        collects: bool,
        now: Time,
        host: &mut dyn Host<Coordinated>,
    ) {
        if self.member.commit(&self.group, checkpoint, now, host) {
            self.group.kept = Some(checkpoint);
            if collects {
                self.group.collect(Some(checkpoint), 0, host);
            }
            if let Some(coordinator) = &mut self.coordinator {
                coordinator.committed(now);
            }
        }
    }

    fn membership_changed(
        &mut self,
        membership: Arc<Membership>,
        now: Time,
        host: &mut dyn Host<Coordinated>,
    ) {
        let old = core::mem::replace(&mut self.group.view, machines::view(membership));
        if self.group.has_started() {
            self.commit_gathered(now, host);
        }
        if self.group.must_freeze() {
            self.freeze(host);
        }
        self.group.watch_members(host);
        self.maybe_resume(now, host);
        for holder in self.group.restarted_holders(&old) {
            self.member.repeat_copy(holder, host);
            self.group.update_holder(holder, host);
        }
        self.group.watch_outside_holders(&old, host);
        self.handle_early(now, host);
        if self.position().sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    /// Handles the failure of a process: discards the checkpoint in progress, and holds the application (K5).
    fn freeze(&mut self, host: &mut dyn Host<Coordinated>) {
        if !self.group.is_recovering() {
            self.member.freeze(host);
        }
        self.group.freeze();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.discard();
        }
        if let Some(leader) = &mut self.leader {
            leader.discard();
        }
    }

    /// Installs this process's part and resumes, once all processes have their parts of the checkpoint to restore (K5).
    fn maybe_resume(&mut self, now: Time, host: &mut dyn Host<Coordinated>) {
        let Some(resumed) = self.group.take_resumed() else { return };
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.resumed(now);
        }
        self.member.restore(&self.group, &resumed, host);
        self.group.collect(resumed.target, 0, host);
        self.group.store.has_own(host);
        self.handle_early(now, host);
        if self.position().sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }
}
