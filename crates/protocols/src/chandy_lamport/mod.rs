//! Chandy and Lamport's snapshot: checkpoints of the whole federation, taken without pausing the whole federation.
//!
//! Chandy, Lamport: *Distributed Snapshots: Determining Global States of Distributed Systems* (ACM TOCS 1985). Channels
//! are FIFO. A process that has saved its state (its *cut*) sends a *marker* on every channel before any other message.
//! A marker separates the messages that the sender's saved state contains from later ones:
//!
//! * a process that receives its first marker saves its state before it receives anything that follows the marker;
//! * messages that it receives on another channel between its own cut and that channel's marker were in
//!   transit: they are the state of the channel.
//!
//! The coordinator commits a checkpoint once all parts are durable. After a failure, the processes agree on the
//! checkpoint to restore, as in all protocols that use [`group`]. The rules C1 to C5 are listed in `docs/baselines.md`.

mod rank;

use faultline_core::{Host, Input, MessageId, Payload, ProcessId, Snapshot, Time, To};
use serde::{Deserialize, Serialize};

use crate::global::{self, Arrival, GlobalProtocol, Member, Subject, global_protocol};
use crate::machines::group::{Group, GroupMessage, Resumed};
use crate::machines::{Checkpoint, Interval, Options, rules};
use rank::Recording;

/// Parameters of the protocol.
pub type Config = Options<Defects>;

rules! {
    /// After a process has saved its state, it sends the markers before any other message (C1).
    MarkersFirst, without
        /// A process sends one more message between its cut and its markers (C1).
        SendsBeforeMarkers;
    /// Messages that follow a channel's marker are received only after the receiver has saved its state (C2).
    SavesAtMarker, without
        /// A message that follows a marker is delivered before the receiver's own cut (C2).
        DeliversBehindMarker;
    /// Messages received on a channel between the receiver's own cut and the channel's marker belong to the
    /// checkpoint (C3).
    RecordsChannels, without
        /// Channels are not recorded (C3).
        NoDrain;
    /// Nothing that follows a channel's marker belongs to the checkpoint (C3).
    StopsAtMarker, without
        /// Messages that follow a channel's marker are recorded as well (C3).
        RecordsBehindMarker;
    /// Recorded messages are also delivered (C3).
    DeliversRecorded, without
        /// A message in transit is recorded, but delivered only after a rollback (C3).
        LateOnlyRecorded;
    /// A checkpoint is committed only after every part is durable, at its process and at its holders (C4).
    DurableFirst, without
        /// A part counts as durable before it is (C4).
        CommitBeforeCopies;
    /// Messages from before a rollback are dropped (C5).
    DropsOld, without
        /// Messages from before a rollback are delivered (C5).
        OldWithinAccepted;
    /// The newest complete checkpoint is restored (C5).
    RestoresNewest, without
        /// The oldest complete checkpoint is restored (C5).
        RestartBefore;
}

/// Messages between processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    /// The sender has saved its state for this checkpoint. All its earlier messages on the channel precede
    /// the marker.
    Marker(Checkpoint),
    /// From a member to the coordinator: its part is durable, at the member and at its holders.
    Durable(Checkpoint),
    /// From the coordinator: all parts are durable, and the checkpoint is committed.
    Commit {
        /// The checkpoint.
        checkpoint: Checkpoint,
        /// Whether all older checkpoints are removed.
        collects: bool,
    },
    /// A message of the sub-machine that keeps and restores checkpoints.
    Group(GroupMessage),
}

global_protocol! {
    /// One process under Chandy and Lamport's snapshot.
    ChandyLamport
}

type Rank = global::Rank<ChandyLamport>;

impl GlobalProtocol for ChandyLamport {
    type Defects = Defects;
    type Member = Recording;

    fn options(config: &Config) -> &Options<Defects> {
        config
    }

    fn restores_newest(config: &Config) -> bool {
        config.defects.obeys(Rule::RestoresNewest)
    }

    fn member(config: &Config, _: &Group<Self>) -> Recording {
        Recording::new(config.defects)
    }

    fn subject(message: &Control) -> Subject<'_> {
        match message {
            Control::Marker(checkpoint)
            | Control::Durable(checkpoint)
            | Control::Commit { checkpoint, .. } => Subject::Checkpoint(*checkpoint),
            Control::Group(message) => Subject::Group(message),
        }
    }

    fn precede(rank: &mut Rank, input: &Input<Self>, host: &mut dyn Host<Self>) {
        if !matches!(input, Input::Sent { .. }) {
            rank.send_owed_markers(host);
        }
    }

    fn sent(rank: &mut Rank, id: MessageId, payload: Payload, host: &mut dyn Host<Self>) {
        host.transmit(id, Interval(rank.member.interval_of_sends()), payload);
        rank.send_owed_markers(host);
    }

    fn arrived(rank: &mut Rank, message: Arrival, host: &mut dyn Host<Self>) {
        rank.receive(message, host);
    }

    fn begin(rank: &mut Rank, now: Time, host: &mut dyn Host<Self>) {
        let Some(coordinator) = &mut rank.coordinator else { return };
        let checkpoint = coordinator.begin_parts(rank.member.position(), rank.group.members.clone(), host);
        rank.save(checkpoint, now, host);
    }

    fn saved(rank: &mut Rank, snapshot: Snapshot, now: Time, host: &mut dyn Host<Self>) {
        rank.cut(snapshot, now, host);
    }

    fn handle_control(
        rank: &mut Rank,
        from: ProcessId,
        message: Control,
        now: Time,
        host: &mut dyn Host<Self>,
    ) {
        match message {
            Control::Marker(checkpoint) => rank.marked(from, checkpoint, now, host),
            Control::Durable(checkpoint) => rank.parts_durable(from, checkpoint, now, host),
            Control::Commit { checkpoint, collects } => rank.commit(checkpoint, collects, now, host),
            Control::Group(_) => {}
        }
    }

    fn part_durable(rank: &mut Rank, checkpoint: Checkpoint, now: Time, host: &mut dyn Host<Self>) {
        match rank.group.coordinates() {
            true => rank.parts_durable(rank.group.me, checkpoint, now, host),
            false => host.control(To::One(rank.group.coordinator()), Control::Durable(checkpoint)),
        }
    }

    fn announce(
        rank: &mut Rank,
        checkpoint: Checkpoint,
        collects: bool,
        now: Time,
        host: &mut dyn Host<Self>,
    ) {
        rank.group.broadcast(Control::Commit { checkpoint, collects }, host);
        rank.commit(checkpoint, collects, now, host);
    }

    fn resumed(_: &mut Rank, resumed: &Resumed<Self>, host: &mut dyn Host<Self>) {
        for (id, payload) in resumed.saved() {
            host.deliver(id, payload);
        }
    }
}
