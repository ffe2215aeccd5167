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

use alloc::boxed::Box;
use alloc::vec::Vec;

use faultline_core::{Gauges, Host, Input, LifeStart, Promises, Protocol, ProtocolTypes, Role, Time};
use serde::{Deserialize, Serialize};

use crate::machines::group::{self, Grouped};
use crate::machines::{self, Checkpoint, InTransit, Interval, Options, bytes_of, rules};
use rank::Rank;

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
    Group(group::GroupMessage),
}

impl From<group::GroupMessage> for Control {
    fn from(message: group::GroupMessage) -> Control {
        Control::Group(message)
    }
}

/// One process under Chandy and Lamport's snapshot.
#[derive(Clone, Debug)]
pub struct ChandyLamport(Process);

#[derive(Clone, Debug)]
enum Process {
    Rank(Box<Rank>),
    Server(Box<group::Server<ChandyLamport>>),
}

impl ProtocolTypes for ChandyLamport {
    type Control = Control;
    type Head = ();
    type Saved = InTransit;

    fn saved_len(saved: &InTransit) -> u64 {
        bytes_of(saved)
    }
}

impl Grouped for ChandyLamport {}

fn group_rules(defects: Defects) -> group::Rules {
    group::Rules { restores_newest: defects.obeys(Rule::RestoresNewest), ..group::Rules::ALL }
}

impl Protocol for ChandyLamport {
    type Config = Config;
    type Stamp = Interval;
    const FIFO: bool = true;

    fn promises(_: &Config) -> Promises {
        machines::promises()
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        config.extra_processes()
    }

    fn start(start: LifeStart<Config>, now: Time, host: &mut dyn Host<Self>) -> Self {
        let options = &start.config;
        let membership = options.membership(&start, group_rules(options.defects));
        let retry_every = options.retry_every;
        ChandyLamport(match start.membership.member(start.me).role {
            Role::RANK => Process::Rank(Box::new(Rank::start(membership, start.config, now, host))),
            _ => Process::Server(Box::new(group::Server::new(membership, retry_every, host))),
        })
    }

    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut dyn Host<Self>) {
        match &mut self.0 {
            Process::Rank(rank) => rank.handle(input, now, host),
            Process::Server(server) => match input {
                Input::Control { from, message: Control::Group(message) } => {
                    server.handle_message(from, message, host)
                }
                other => server.handle(other, now, host),
            },
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        match &self.0 {
            Process::Rank(rank) => rank.next_deadline(),
            Process::Server(server) => server.next_deadline(),
        }
    }

    fn gauges(&self) -> Gauges {
        match &self.0 {
            Process::Rank(rank) => {
                Gauges { checkpoints: u32::from(rank.has_checkpoint()), ..Gauges::default() }
            }
            Process::Server(_) => Gauges::default(),
        }
    }
}
