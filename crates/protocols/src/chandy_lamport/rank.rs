//! A process that runs the application: its cut, its markers, and the states of the channels to it (C1 to C5).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Claim, Host, Image, Input, Membership, MessageId, Payload, Position, ProcessId, Snapshot, Time,
    To,
};

use super::{ChandyLamport, Config, Control, Rule};
use crate::machines::group::{self, Group};
use crate::machines::{self, Checkpoint, InTransit, Interval, Replication, Requires, Schedule};

/// Every checkpoint ends in a commit or a rollback, so none is attempted twice.
const ATTEMPT: Attempt = Attempt(1);

#[derive(Clone, Debug)]
pub(super) struct Rank {
    config: Arc<Config>,
    group: Group<ChandyLamport>,
    /// Current incarnation, and SN of the last committed or restored checkpoint.
    position: Position,
    /// This process's part of the checkpoint in progress.
    part: Option<Box<Part>>,
    /// Input that cannot be handled yet, in the order of arrival.
    early: Vec<Early>,
    coordinator: Option<Coordinator>,
}

/// A process's part of the checkpoint in progress: its own state, and the states of the channels to it.
#[derive(Clone, Debug)]
struct Part {
    checkpoint: Checkpoint,
    since: Time,
    /// The state of the application, once it has been saved.
    saved: Option<Snapshot>,
    /// Time at which the application resumed; `None` until then. Never set for the first checkpoint, because the
    /// application waits for its commit.
    resumed: Option<Time>,
    /// Channels whose marker has not arrived, by sender.
    open: BTreeSet<ProcessId>,
    /// Messages that were in transit.
    channels: InTransit,
    /// Whether the markers still have to be sent. Used only by a defect.
    owes_markers: bool,
    written: Option<Replication<ChandyLamport>>,
}

#[derive(Clone, Debug)]
enum Early {
    Application(MessageId, Interval, Payload),
    Control(ProcessId, Control),
}

/// State of the process that begins and commits checkpoints.
#[derive(Clone, Debug)]
struct Coordinator {
    /// Members whose parts of the checkpoint in progress are not durable yet.
    awaited: BTreeSet<ProcessId>,
    schedule: Schedule,
}

impl Rank {
    pub(super) fn start(
        membership: group::GroupParameters,
        config: Arc<Config>,
        now: Time,
        host: &mut dyn Host<ChandyLamport>,
    ) -> Rank {
        let group = Group::new(membership, host);
        let schedule = config.schedule(now);
        let mut this = Rank {
            config,
            coordinator: group.coordinates().then(|| Coordinator { awaited: BTreeSet::new(), schedule }),
            group,
            position: Position::default(),
            part: None,
            early: Vec::new(),
        };
        this.membership_changed(this.group.view.membership.clone(), now, host);
        this
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.config.defects.obeys(rule)
    }

    pub(super) fn handle(
        &mut self,
        input: Input<ChandyLamport>,
        now: Time,
        host: &mut dyn Host<ChandyLamport>,
    ) {
        if let Some(part) = self.part.as_mut().filter(|part| part.owes_markers)
            && !matches!(input, Input::Sent { .. })
        {
            part.owes_markers = false;
            self.send_markers(host);
        }
        match input {
            Input::Sent { id, payload } => self.sent(id, payload, host),
            Input::Received { id, stamp, payload } => self.arrived(id, stamp, payload, host),
            Input::Control { from, message } => self.handle_message(from, message, now, host),
            Input::Snapshot(snapshot) => self.saved(snapshot, now, host),
            Input::Membership(membership) => self.membership_changed(membership, now, host),
            Input::Persisted(name) => {
                if let Some(written) = self.written() {
                    written.durable(name);
                }
                self.group.storage(input, now, self.config.retry_every, host);
            }
            Input::Timeout => {
                if self.coordinator.as_ref().is_some_and(|it| it.schedule.is_due(now)) {
                    self.begin_checkpoint(now, host);
                }
                self.group.storage(input, now, self.config.retry_every, host);
            }
            Input::Consumed(_) | Input::Rested | Input::Left | Input::Recorded { .. } => {}
            other => self.group.storage(other, now, self.config.retry_every, host),
        }
        self.part_completes(now, host);
        self.maybe_resume(now, host);
    }

    pub(super) fn has_checkpoint(&self) -> bool {
        self.group.kept.is_some()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let is_idle = self.part.is_none() && !self.group.is_recovering();
        let checkpoint = self.coordinator.as_ref().and_then(|it| it.schedule.next()).filter(|_| is_idle);
        [checkpoint, self.group.store.writes.next_deadline()].into_iter().flatten().min()
    }

    /// Returns the interval in which this process sends and receives: the one after its last cut.
    fn interval(&self) -> Position {
        match &self.part {
            Some(part) if part.saved.is_some() => part.checkpoint.position,
            _ => self.position,
        }
    }

    // ---- Messages of the application.

    fn sent(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<ChandyLamport>) {
        if self.group.is_recovering() {
            return; // The state that sent the message is about to be replaced.
        }
        if let Some(part) = self.part.as_mut().filter(|part| part.owes_markers) {
            part.owes_markers = false;
            host.transmit(id, Interval(self.position), payload);
            self.send_markers(host);
        } else {
            host.transmit(id, Interval(self.interval()), payload);
        }
    }

    fn arrived(
        &mut self,
        id: MessageId,
        interval: Interval,
        payload: Payload,
        host: &mut dyn Host<ChandyLamport>,
    ) {
        let here = self.interval();
        if interval.0.incarnation < here.incarnation && self.obeys(Rule::DropsOld) {
            host.drop_stale(id);
            return;
        }
        if self.group.is_recovering() || interval.0.incarnation > here.incarnation {
            self.early.push(Early::Application(id, interval, payload));
            return;
        }
        let waits = match &self.part {
            Some(part) => {
                let of_part = part.checkpoint.position;
                interval.0 > of_part || interval.0 == of_part && part.resumed.is_none()
            }
            // The message follows a marker, so this process has a part unless the rule is omitted (C2).
            None => interval.0 > here && self.obeys(Rule::SavesAtMarker),
        };
        if waits {
            self.early.push(Early::Application(id, interval, payload));
            return;
        }
        let stops = self.obeys(Rule::StopsAtMarker);
        let delivers = self.obeys(Rule::DeliversRecorded);
        let drops_old = self.obeys(Rule::DropsOld);
        match &mut self.part {
            // The message precedes its channel's marker, and this process's state is saved, or about to be (C3).
            Some(part) if interval.0 < part.checkpoint.position => {
                let is_open = part.open.contains(&id.from);
                assert!(is_open || !drops_old, "{id:?} of {interval:?} follows the marker of its channel");
                part.channels.push((id, payload.clone()));
                if part.resumed.is_some() && delivers {
                    host.deliver(id, payload);
                }
            }
            Some(part) => {
                if !stops && part.written.is_none() {
                    part.channels.push((id, payload.clone()));
                }
                host.deliver(id, payload);
            }
            None => host.deliver(id, payload),
        }
    }

    // ---- Checkpoints.

    /// Begins a checkpoint, unless one is in progress, the federation is recovering, or a member is down. Has an effect
    /// only on the coordinator.
    fn begin_checkpoint(&mut self, now: Time, host: &mut dyn Host<ChandyLamport>) {
        let is_idle = self.part.is_none() && !self.group.is_recovering();
        let Some(coordinator) = self.coordinator.as_mut().filter(|_| is_idle) else { return };
        if !self.group.all_members_up() {
            return;
        }
        let position = Position { sn: self.position.sn.next(), ..self.position };
        coordinator.schedule.stop();
        coordinator.awaited = self.group.members.iter().copied().collect();
        host.claim(Claim::CheckpointRequested { position, attempt: ATTEMPT, forced: false });
        self.save(Checkpoint { position, attempt: ATTEMPT }, now, host);
    }

    /// Begins to save the state of this process.
    fn save(&mut self, checkpoint: Checkpoint, now: Time, host: &mut dyn Host<ChandyLamport>) {
        let me = self.group.me;
        self.part = Some(Box::new(Part {
            checkpoint,
            since: now,
            saved: None,
            resumed: None,
            open: self.group.members.iter().copied().filter(|&it| it != me).collect(),
            channels: InTransit::new(),
            owes_markers: false,
            written: None,
        }));
        host.request_snapshot();
    }

    /// Handles the snapshot, which follows all earlier sends: sends the markers, and lets the application resume.
    fn saved(&mut self, snapshot: Snapshot, now: Time, host: &mut dyn Host<ChandyLamport>) {
        let is_first = self.position.sn.0 == 0;
        let owes_markers = !self.obeys(Rule::MarkersFirst) && !is_first;
        let delivers = self.obeys(Rule::DeliversRecorded);
        let Some(part) = &mut self.part else { return };
        part.saved = Some(snapshot);
        part.owes_markers = owes_markers;
        if !owes_markers {
            self.send_markers(host);
        }
        // No process may act before the first checkpoint is committed.
        if !is_first && let Some(part) = &mut self.part {
            part.resumed = Some(now);
            host.release();
            if delivers {
                for (id, payload) in part.channels.clone() {
                    host.deliver(id, payload);
                }
            }
        }
        self.receive_early(now, host);
        self.maybe_write(now, host);
    }

    fn send_markers(&self, host: &mut dyn Host<ChandyLamport>) {
        if let Some(part) = &self.part {
            self.group.broadcast(Control::Marker(part.checkpoint), host);
        }
    }

    /// Handles a marker, which completes the state of its channel. The first marker makes this process save
    /// its own state.
    fn marked(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<ChandyLamport>,
    ) {
        let next = Position { sn: self.position.sn.next(), ..self.position };
        if self.group.is_recovering() || checkpoint.position < next {
            return; // A rollback has invalidated the checkpoint.
        }
        if checkpoint.position > next {
            // The sender knows that the checkpoint in progress is committed.
            self.early.push(Early::Control(from, Control::Marker(checkpoint)));
            return;
        }
        if self.part.is_none() {
            if from != self.group.coordinator() && !self.obeys(Rule::SavesAtMarker) {
                self.early.push(Early::Control(from, Control::Marker(checkpoint)));
                return;
            }
            self.save(checkpoint, now, host);
        }
        if let Some(part) = &mut self.part {
            let was_open = part.open.remove(&from);
            assert!(was_open, "there is one marker on each channel");
        }
        self.maybe_write(now, host);
    }

    /// Writes this process's part once the states of all channels are complete.
    fn maybe_write(&mut self, now: Time, host: &mut dyn Host<ChandyLamport>) {
        let records = self.obeys(Rule::RecordsChannels);
        let is_safe = self.obeys(Rule::DurableFirst);
        let Some(part) = &mut self.part else { return };
        let Some(snapshot) = part.saved.as_ref().filter(|_| part.written.is_none()) else { return };
        if !part.open.is_empty() && records {
            return;
        }
        let channels = if records { part.channels.clone() } else { InTransit::new() };
        let image = Image {
            name: part.checkpoint.part(self.group.me),
            head: Arc::new(()),
            saved: Arc::new(channels),
            snapshot: snapshot.clone(),
        };
        let Group { holders, store, .. } = &mut self.group;
        let requires = Requires { own: is_safe, replicas: is_safe };
        part.written = Some(Replication::begin(image.into(), holders, requires, &mut store.writes, host));
        self.part_completes(now, host);
    }

    fn written(&mut self) -> Option<&mut Replication<ChandyLamport>> {
        self.part.as_mut()?.written.as_mut()
    }

    /// Informs the coordinator as soon as this process's part is durable, locally and at its holders.
    fn part_completes(&mut self, now: Time, host: &mut dyn Host<ChandyLamport>) {
        if let Some(part) = &mut self.part
            && let Some(written) = &mut part.written
            && written.completes()
        {
            let checkpoint = part.checkpoint;
            self.send_to_coordinator(Control::Durable(checkpoint), now, host);
        }
    }

    /// Records that a part is durable, and commits the checkpoint once all parts are. Runs on the coordinator.
    fn durable(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<ChandyLamport>,
    ) {
        let is_current = self.part.as_ref().is_some_and(|part| part.checkpoint == checkpoint);
        if let Some(coordinator) = self.coordinator.as_mut().filter(|_| is_current) {
            coordinator.awaited.remove(&from);
            self.maybe_commit(now, host);
        }
    }

    /// Commits the checkpoint once all parts are durable. Before the first commit, the supervisor must have recorded
    /// that the federation may have acted. Has an effect only on the coordinator.
    fn maybe_commit(&mut self, now: Time, host: &mut dyn Host<ChandyLamport>) {
        let Some(checkpoint) = self.part.as_ref().map(|part| part.checkpoint) else { return };
        let Some(coordinator) = self.coordinator.as_mut().filter(|it| it.awaited.is_empty()) else { return };
        if !self.group.has_started() {
            host.started();
            return;
        }
        let collects = coordinator.schedule.collects(now);
        self.group.broadcast(Control::Commit { checkpoint, collects }, host);
        self.commit(checkpoint, collects, now, host);
    }

    fn commit(
        &mut self,
        checkpoint: Checkpoint,
        collects: bool,
        now: Time,
        host: &mut dyn Host<ChandyLamport>,
    ) {
        let Some(part) = self.part.take_if(|part| part.checkpoint == checkpoint) else { return };
        let is_written = part.written.is_some() || !self.config.defects.is_empty();
        assert!(is_written, "a checkpoint is committed once all parts are durable");
        let Checkpoint { position, attempt } = checkpoint;
        self.position = position;
        let (frozen, vectors) = (part.resumed.unwrap_or(now).since(part.since), Arc::default());
        host.claim(Claim::Committed { position, attempt, forced: false, frozen, vectors });
        self.group.kept = Some(checkpoint);
        if collects {
            self.group.collect(Some(checkpoint), 0, host);
        }
        if part.resumed.is_none() {
            host.release();
        }
        self.restart_timer(now);
        self.receive_early(now, host);
    }

    fn restart_timer(&mut self, now: Time) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.schedule.restart(now);
        }
    }

    // ---- Messages of the protocol.

    fn send_to_coordinator(&mut self, message: Control, now: Time, host: &mut dyn Host<ChandyLamport>) {
        if self.coordinator.is_some() {
            self.handle_message(self.group.me, message, now, host);
        } else {
            host.control(To::One(self.group.coordinator()), message);
        }
    }

    fn handle_message(
        &mut self,
        from: ProcessId,
        message: Control,
        now: Time,
        host: &mut dyn Host<ChandyLamport>,
    ) {
        let is_early = match &message {
            Control::Marker(checkpoint)
            | Control::Durable(checkpoint)
            | Control::Commit { checkpoint, .. } => {
                checkpoint.position.incarnation > self.position.incarnation
            }
            Control::Group(message) => self.group.is_early(message),
        };
        if is_early {
            self.early.push(Early::Control(from, message));
            return;
        }
        match message {
            Control::Marker(checkpoint) => self.marked(from, checkpoint, now, host),
            Control::Durable(checkpoint) => self.durable(from, checkpoint, now, host),
            Control::Commit { checkpoint, collects } => self.commit(checkpoint, collects, now, host),
            Control::Group(message) => {
                if let group::GroupMessage::Stored(name) = message
                    && let Some(written) = self.written()
                {
                    written.confirmed(from, name);
                }
                self.group.handle(from, message, host);
            }
        }
    }

    /// Handles the early input in order, and keeps the input that is still early.
    fn receive_early(&mut self, now: Time, host: &mut dyn Host<ChandyLamport>) {
        for early in core::mem::take(&mut self.early) {
            match early {
                Early::Application(id, interval, payload) => self.arrived(id, interval, payload, host),
                Early::Control(from, message) => self.handle_message(from, message, now, host),
            }
        }
    }

    // ---- Failures.

    fn membership_changed(
        &mut self,
        membership: Arc<Membership>,
        now: Time,
        host: &mut dyn Host<ChandyLamport>,
    ) {
        let old = core::mem::replace(&mut self.group.view, machines::view(membership));
        if self.group.has_started() {
            self.maybe_commit(now, host);
        }
        if self.group.must_freeze() {
            self.freeze(host);
        }
        self.group.watch_members(host);
        self.maybe_resume(now, host);
        for holder in self.group.restarted_holders(&old) {
            if let Some(written) = self.written() {
                written.repeat(holder, host);
            }
            self.group.update_holder(holder, host);
        }
        self.group.watch_outside_holders(&old, host);
        self.receive_early(now, host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    /// Handles the failure of a member: discards the checkpoint in progress, and holds the application.
    fn freeze(&mut self, host: &mut dyn Host<ChandyLamport>) {
        if let Some(part) = self.part.take() {
            let Checkpoint { position, attempt } = part.checkpoint;
            host.claim(Claim::Aborted { position, attempt });
        }
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.schedule.stop();
        }
        if !self.group.is_recovering() {
            host.hold();
        }
        self.group.freeze();
    }

    /// Installs this process's part and resumes, once all processes have their parts of the checkpoint to
    /// restore (C5).
    fn maybe_resume(&mut self, now: Time, host: &mut dyn Host<ChandyLamport>) {
        let Some(resumed) = self.group.take_resumed() else { return };
        let (position, rolled_back) = resumed.restore(host);
        self.position = position;
        host.claim(rolled_back);
        self.group.collect(resumed.target, 0, host);
        self.group.store.has_own(host);
        if let Some(image) = resumed.image {
            host.release();
            for (id, payload) in image.saved.iter() {
                host.deliver(*id, payload.clone());
            }
        }
        self.restart_timer(now);
        self.receive_early(now, host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }
}
