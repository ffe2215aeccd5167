//! A process that runs the application: its cut, its markers, and the states of the channels to it (C1 to C5).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use faultline_core::{Host, Image, Position, ProcessId, Snapshot, Time};

use super::{ChandyLamport, Control, Defects, Rank, Rule};
use crate::global::{Arrival, Early, Member};
use crate::machines::group::{Group, Resumed};
use crate::machines::{Checkpoint, InTransit, Replication, Requires};

/// A process that records the messages in transit to it while a checkpoint is being taken.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    defects: Defects,
    /// Current incarnation, and SN of the last committed or restored checkpoint.
    position: Position,
    /// This process's part of the checkpoint in progress.
    part: Option<Box<Part>>,
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

impl Recording {
    pub(super) fn new(defects: Defects) -> Recording {
        Recording { defects, position: Position::default(), part: None }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.defects.obeys(rule)
    }

    /// Returns the interval in which this process receives: the one after its last cut.
    fn interval(&self) -> Position {
        match &self.part {
            Some(part) if part.saved.is_some() => part.checkpoint.position,
            _ => self.position,
        }
    }

    /// Returns the interval in which this process sends. A message that precedes its markers, though it follows its
    /// cut, belongs to the interval before the cut.
    pub(super) fn interval_of_sends(&self) -> Position {
        match &self.part {
            Some(part) if part.owes_markers => self.position,
            _ => self.interval(),
        }
    }
}

impl Member<ChandyLamport> for Recording {
    fn position(&self) -> Position {
        self.position
    }

    fn is_checkpointing(&self) -> bool {
        self.part.is_some()
    }

    fn written(&mut self) -> Option<&mut Replication<ChandyLamport>> {
        self.part.as_mut()?.written.as_mut()
    }

    fn commit(
        &mut self,
        _: &Group<ChandyLamport>,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<ChandyLamport>,
    ) -> bool {
        let Some(part) = self.part.take_if(|part| part.checkpoint == checkpoint) else { return false };
        let is_written = part.written.is_some() || !self.defects.is_empty();
        assert!(is_written, "a checkpoint is committed once all parts are durable");
        self.position = checkpoint.position;
        host.claim(checkpoint.committed(part.resumed.unwrap_or(now).since(part.since)));
        if part.resumed.is_none() {
            host.release();
        }
        true
    }

    fn freeze(&mut self, is_recovering: bool, host: &mut dyn Host<ChandyLamport>) {
        if let Some(part) = self.part.take() {
            host.claim(part.checkpoint.aborted());
        }
        if !is_recovering {
            host.hold();
        }
    }

    fn restore(
        &mut self,
        _: &Group<ChandyLamport>,
        resumed: &Resumed<ChandyLamport>,
        host: &mut dyn Host<ChandyLamport>,
    ) {
        let (position, rolled_back) = resumed.restore(host);
        self.position = position;
        host.claim(rolled_back);
        // No process may act before the first checkpoint is committed.
        if resumed.target.is_some() {
            host.release();
        }
    }
}

impl Rank {
    // ---- Messages of the application.

    pub(super) fn receive(&mut self, message: Arrival, host: &mut dyn Host<ChandyLamport>) {
        let (id, interval, payload) = message;
        let here = self.member.interval();
        if interval.0.incarnation < here.incarnation && self.member.obeys(Rule::DropsOld) {
            host.drop_stale(id);
            return;
        }
        if self.group.is_recovering() || interval.0.incarnation > here.incarnation {
            self.early.push(Early::Application((id, interval, payload)));
            return;
        }
        let waits = match &self.member.part {
            Some(part) => {
                let of_part = part.checkpoint.position;
                interval.0 > of_part || interval.0 == of_part && part.resumed.is_none()
            }
            // The message follows a marker, so this process has a part unless the rule is omitted (C2).
            None => interval.0 > here && self.member.obeys(Rule::SavesAtMarker),
        };
        if waits {
            self.early.push(Early::Application((id, interval, payload)));
            return;
        }
        let stops = self.member.obeys(Rule::StopsAtMarker);
        let delivers = self.member.obeys(Rule::DeliversRecorded);
        let drops_old = self.member.obeys(Rule::DropsOld);
        match &mut self.member.part {
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

    /// Begins to save the state of this process.
    pub(super) fn save(&mut self, checkpoint: Checkpoint, now: Time, host: &mut dyn Host<ChandyLamport>) {
        let me = self.group.me;
        self.member.part = Some(Box::new(Part {
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
    pub(super) fn cut(&mut self, snapshot: Snapshot, now: Time, host: &mut dyn Host<ChandyLamport>) {
        let is_first = self.member.position.sn.0 == 0;
        let owes_markers = !self.member.obeys(Rule::MarkersFirst) && !is_first;
        let delivers = self.member.obeys(Rule::DeliversRecorded);
        let Some(part) = &mut self.member.part else { return };
        part.saved = Some(snapshot);
        part.owes_markers = owes_markers;
        if !owes_markers {
            self.send_markers(host);
        }
        // No process may act before the first checkpoint is committed.
        if !is_first && let Some(part) = &mut self.member.part {
            part.resumed = Some(now);
            host.release();
            if delivers {
                for (id, payload) in part.channels.clone() {
                    host.deliver(id, payload);
                }
            }
        }
        self.receive_early(now, host);
        self.maybe_write(host);
    }

    /// Sends the markers if this process has put them off.
    pub(super) fn send_owed_markers(&mut self, host: &mut dyn Host<ChandyLamport>) {
        if let Some(part) = self.member.part.as_mut().filter(|part| part.owes_markers) {
            part.owes_markers = false;
            self.send_markers(host);
        }
    }

    fn send_markers(&self, host: &mut dyn Host<ChandyLamport>) {
        if let Some(part) = &self.member.part {
            self.group.broadcast(Control::Marker(part.checkpoint), host);
        }
    }

    /// Handles a marker, which completes the state of its channel. The first marker makes this process save
    /// its own state.
    pub(super) fn marked(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<ChandyLamport>,
    ) {
        let next = Position { sn: self.member.position.sn.next(), ..self.member.position };
        if self.group.is_recovering() || checkpoint.position < next {
            return; // A rollback has invalidated the checkpoint.
        }
        if checkpoint.position > next {
            // The sender knows that the checkpoint in progress is committed.
            self.early.push(Early::Control(from, Control::Marker(checkpoint)));
            return;
        }
        if self.member.part.is_none() {
            if from != self.group.coordinator() && !self.member.obeys(Rule::SavesAtMarker) {
                self.early.push(Early::Control(from, Control::Marker(checkpoint)));
                return;
            }
            self.save(checkpoint, now, host);
        }
        if let Some(part) = &mut self.member.part {
            let was_open = part.open.remove(&from);
            assert!(was_open, "there is one marker on each channel");
        }
        self.maybe_write(host);
    }

    /// Writes this process's part once the states of all channels are complete.
    fn maybe_write(&mut self, host: &mut dyn Host<ChandyLamport>) {
        let records = self.member.obeys(Rule::RecordsChannels);
        let is_safe = self.member.obeys(Rule::DurableFirst);
        let Some(part) = &mut self.member.part else { return };
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
    }
}
