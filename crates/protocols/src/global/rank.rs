//! A process that runs the application. The lowest-numbered one also coordinates checkpoints.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Host, Input, Membership, ProcessId, Time};

use super::{Arrival, GlobalProtocol, Member, Subject};
use crate::machines::group::{Group, GroupMessage, GroupParameters};
use crate::machines::{Checkpoint, Coordinator};

#[derive(Clone, Debug)]
pub(crate) struct Rank<P: GlobalProtocol> {
    pub(crate) config: Arc<P::Config>,
    pub(crate) group: Group<P>,
    pub(crate) member: P::Member,
    /// State of the process that begins and commits checkpoints.
    pub(crate) coordinator: Option<Box<Coordinator>>,
    /// Input that cannot be handled yet, in the order of arrival.
    pub(crate) early: Vec<Early<P>>,
}

/// Input from a process that learned of a failure, recovered from it, or began a checkpoint before this process did.
#[derive(Clone, Debug)]
pub(crate) enum Early<P: GlobalProtocol> {
    Application(Arrival),
    Control(ProcessId, P::Control),
}

impl<P: GlobalProtocol> Rank<P> {
    pub(super) fn start(
        membership: GroupParameters,
        config: Arc<P::Config>,
        now: Time,
        host: &mut dyn Host<P>,
    ) -> Rank<P> {
        let group = Group::new(membership, host);
        let schedule = P::options(&config).schedule(now);
        let coordinator = || Box::new(Coordinator::new(schedule));
        let mut this = Rank {
            coordinator: group.coordinates().then(coordinator),
            member: P::member(&config, &group),
            config,
            group,
            early: Vec::new(),
        };
        this.membership_changed(this.group.view.membership.clone(), now, host);
        this
    }

    pub(super) fn handle(&mut self, input: Input<P>, now: Time, host: &mut dyn Host<P>) {
        P::precede(self, &input, host);
        let retry_every = P::options(&self.config).retry_every;
        match input {
            Input::Sent { .. } if self.group.is_recovering() => {} // The sender's state is about to be replaced.
            Input::Sent { id, payload } => P::sent(self, id, payload, host),
            Input::Received { id, stamp, payload } => P::arrived(self, (id, stamp, payload), host),
            Input::Control { from, message } => self.handle_message(from, message, now, host),
            Input::Snapshot(snapshot) => P::saved(self, snapshot, now, host),
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
        P::maybe_write(self, host);
        if let Some(checkpoint) = self.member.completes() {
            P::part_durable(self, checkpoint, now, host);
        }
        self.maybe_resume(now, host);
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let checkpoint = self.coordinator.as_ref().and_then(|it| it.next_deadline());
        let checkpoint = checkpoint.filter(|_| self.is_idle());
        [checkpoint, self.group.store.writes.next_deadline()].into_iter().flatten().min()
    }

    fn is_idle(&self) -> bool {
        !self.member.is_checkpointing() && !self.group.is_recovering()
    }

    /// Handles a message from another process, or from this one in another role.
    pub(crate) fn handle_message(
        &mut self,
        from: ProcessId,
        message: P::Control,
        now: Time,
        host: &mut dyn Host<P>,
    ) {
        let is_early = match P::subject(&message) {
            Subject::Checkpoint(it) => it.position.incarnation > self.member.position().incarnation,
            Subject::Group(message) => self.group.is_early(message),
        };
        if is_early {
            self.early.push(Early::Control(from, message));
        } else if let Subject::Group(message) = P::subject(&message) {
            if let (GroupMessage::Stored(name), Some(written)) = (message, self.member.written()) {
                written.confirmed(from, *name);
            }
            self.group.handle(from, message.clone(), host);
        } else {
            P::handle_control(self, from, message, now, host);
        }
    }

    /// Handles the early input in order, and keeps the input that is still early.
    pub(crate) fn receive_early(&mut self, now: Time, host: &mut dyn Host<P>) {
        for early in core::mem::take(&mut self.early) {
            match early {
                Early::Application(message) => P::arrived(self, message, host),
                Early::Control(from, message) => self.handle_message(from, message, now, host),
            }
        }
    }

    // ---- Checkpoints.

    /// Begins a checkpoint, unless one is in progress, the federation is recovering, or a process is down. Has an
    /// effect only on the coordinator.
    fn begin_checkpoint(&mut self, now: Time, host: &mut dyn Host<P>) {
        if self.coordinator.is_some() && self.is_idle() && self.group.all_members_up() {
            P::begin(self, now, host);
        }
    }

    /// Handles the report that the parts of a process, or of all processes for which it answers, are durable. Commits
    /// the checkpoint once every part is. Before the first commit, the supervisor must have recorded that the
    /// federation may have acted. Runs on the coordinator.
    pub(crate) fn parts_durable(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<P>,
    ) {
        if self.coordinator.as_mut().is_some_and(|it| it.drained(from, checkpoint)) {
            match self.group.has_started() {
                true => self.commit_gathered(now, host),
                false => host.started(),
            }
        }
    }

    fn commit_gathered(&mut self, now: Time, host: &mut dyn Host<P>) {
        if let Some((checkpoint, collects)) = self.coordinator.as_mut().and_then(|it| it.commit(now)) {
            P::announce(self, checkpoint, collects, now, host);
        }
    }

    /// Handles the commit of the checkpoint: the application resumes.
    pub(crate) fn commit(
        &mut self,
        checkpoint: Checkpoint,
        collects: bool,
        now: Time,
        host: &mut dyn Host<P>,
    ) {
        if self.member.commit(&self.group, checkpoint, now, host) {
            self.group.kept = Some(checkpoint);
            if collects {
                self.group.collect(Some(checkpoint), 0, host);
            }
            if let Some(coordinator) = &mut self.coordinator {
                coordinator.committed(now);
            }
            self.receive_early(now, host);
        }
    }

    // ---- Failures.

    fn membership_changed(&mut self, membership: Arc<Membership>, now: Time, host: &mut dyn Host<P>) {
        let new = self.group.view.after(membership);
        let old = core::mem::replace(&mut self.group.view, new);
        if self.group.has_started() {
            self.commit_gathered(now, host);
        }
        if self.group.must_freeze() {
            self.freeze(host);
        }
        self.group.watch_members(host);
        self.maybe_resume(now, host);
        for holder in self.group.restarted_holders(&old) {
            if let Some(written) = self.member.written() {
                written.repeat(holder, host);
            }
            self.group.update_holder(holder, host);
        }
        self.group.watch_outside_holders(&old, host);
        self.receive_early(now, host);
        self.begin_first(now, host);
    }

    /// Handles the failure of a process: discards the checkpoint in progress, and holds the application.
    fn freeze(&mut self, host: &mut dyn Host<P>) {
        self.member.freeze(self.group.is_recovering(), host);
        self.group.freeze();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.discard();
        }
    }

    /// Installs this process's part and resumes, once all processes have their parts of the checkpoint to restore.
    fn maybe_resume(&mut self, now: Time, host: &mut dyn Host<P>) {
        let Some(resumed) = self.group.take_resumed() else { return };
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.resumed(now);
        }
        self.member.restore(&self.group, &resumed, host);
        self.group.collect(resumed.target, 0, host);
        self.group.store.has_own(host);
        P::resumed(self, &resumed, host);
        self.receive_early(now, host);
        self.begin_first(now, host);
    }

    /// Begins the first checkpoint, before which no process may act.
    fn begin_first(&mut self, now: Time, host: &mut dyn Host<P>) {
        if self.member.position().sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }
}
