//! BCS, the index-based protocol of Briatico, Ciuffoletti and Simoncini (*A Distributed Domino-Effect Free Recovery
//! Algorithm*, SRDS 1984): communication-induced checkpoints, without any coordination in the absence of failures.
//!
//! * Every checkpoint has an index, and so does every process: that of its newest checkpoint.
//! * A process may take a *basic* checkpoint at any time, with the next index.
//! * A message carries its sender's index. If that is greater than the receiver's, the receiver first takes a *forced*
//!   checkpoint with the index of the message, and then delivers it.
//! * Choose any index *n*, and take each process's first checkpoint whose index is *n* or greater; if a process has
//!   none, take its current state. These checkpoints and states are consistent with each other.
//!
//! After a failure, *n* is the index of the failed process's newest checkpoint ([`line`]). The paper leaves messages in
//! transit to the channels. Here, a sender keeps the messages that it has sent, including in its checkpoints, and
//! re-sends them after each recovery. The receiver drops those that it has delivered ([`delivered`]). Each checkpoint
//! exists only in the storage of its process, so the protocol does not survive the loss of that storage.

pub mod delivered;
mod line;
mod parameters;
mod recovery;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use faultline::core::process::To;
use faultline::core::{
    Affected, Attempt, Boot, Claim, Gauges, Host, Image, ImageName, Incarnation, Input, LifeStart,
    Membership, MessageId, Payload, Position, ProcessId, Promise, Promises, Protocol, ProtocolTypes, Role,
    Scope, Sn, Snapshot, Span, Stamp, Time, Vectors,
};
use serde::{Deserialize, Serialize};

use delivered::Delivered;
use line::Line;
pub use parameters::{Defect, Parameters};

/// The data that every message carries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// Number of failures that the sender knew of.
    epoch: u32,
    /// Incarnation and index of the sender.
    position: Position,
}

impl Stamp for Index {
    fn position(&self) -> Position {
        self.position
    }
}

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The sender permits lines up to this index.
    Report { epoch: u32, permits: Sn },
    /// The sender has what it needs to restore the line with this index.
    Prepared { epoch: u32, index: Sn },
    /// The sender's checkpoint with this index is durable.
    Stable { epoch: u32, index: Sn },
    /// The sender will never undo the delivery of the receiver's messages with numbers smaller than `below`.
    Settled { epoch: u32, below: u32 },
}

/// The header of a checkpoint, which listings of the storage return.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Whether a message forced the checkpoint.
    forced: bool,
}

/// The protocol's part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    log: Vec<Logged>,
    delivered: Delivered,
}

/// A message that may have to be sent again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Logged {
    id: MessageId,
    payload: Payload,
}

/// A message that waits until a checkpoint has been taken, or until a recovery has ended.
#[derive(Clone, Debug)]
struct Waiting {
    id: MessageId,
    stamp: Index,
    payload: Payload,
}

/// A checkpoint that waits for the application's state.
#[derive(Clone, Copy, Debug)]
struct Taking {
    index: Sn,
    forced: bool,
    since: Time,
}

/// A checkpoint that is not durable yet.
#[derive(Clone, Debug)]
struct Unsaved {
    part: Part,
    /// Time during which the application was held for this checkpoint.
    frozen: Span,
}

/// The current activity of a process.
#[derive(Clone, Debug)]
enum Phase {
    /// The process looks for its newest checkpoint, or takes its first one.
    Starting,
    /// Some processes are down, or have not reported.
    Reporting,
    /// The checkpoint for the line with this index is being written or read.
    Fetching(Sn),
    /// The decision to roll back to this checkpoint, for the line with this index, is being recorded.
    Recording(Sn, Part),
    /// The line with this index can be restored; `None` if the current state is part of it.
    Prepared(Sn, Option<Part>),
    /// The application runs.
    Running,
    /// No checkpoint of this process can be restored.
    GivenUp,
}

type Part = Arc<Image<Head, Saved>>;

/// One process.
#[derive(Clone, Debug)]
pub struct Bcs {
    config: Arc<Parameters>,
    me: ProcessId,
    membership: Arc<Membership>,
    /// The number of failures that the membership shows. Never decreases.
    epoch: u32,
    /// The epoch of this process's most recent restore.
    incarnation: Incarnation,
    index: Sn,
    phase: Phase,
    line: Line,
    /// The newest checkpoint to which this process may roll back; no line may be newer. `None` while its current state
    /// may be part of any line.
    bound: Option<Sn>,
    /// Whether this life has acted.
    has_run: bool,
    /// Whether the storage of an earlier life was lost.
    is_replaced: bool,
    taking: Option<Taking>,
    next_checkpoint: Time,
    log: Vec<Logged>,
    delivered: Delivered,
    waiting: Vec<Waiting>,
    /// Messages of epochs that this process has not reached yet.
    early: Vec<(ProcessId, Message)>,
    /// Checkpoints that are durable and have not been undone or collected, by index.
    stored: BTreeMap<Sn, ImageName>,
    /// Deliveries contained in each stored checkpoint that this life has taken or restored.
    contents: BTreeMap<Sn, Delivered>,
    /// Checkpoints that are not durable yet, in order. Only the first is being written: a gap would make the line of a
    /// missing index inconsistent.
    unsaved: VecDeque<Unsaved>,
    write_again: Time,
    /// Rollbacks of this process: the epoch of each, and the index of the checkpoint to which it rolls back. Each
    /// undoes the checkpoints of earlier incarnations that have greater indices. Durable.
    rollbacks: Vec<(u32, Sn)>,
    record: u64,
    /// The index of the newest durable checkpoint of each process that has resumed in this epoch.
    stable: BTreeMap<ProcessId, Sn>,
    collections: u32,
}

impl ProtocolTypes for Bcs {
    type Control = Message;
    type Head = Head;
    type Saved = Saved;
}

impl Protocol for Bcs {
    type Config = Parameters;
    type Stamp = Index;
    const FIFO: bool = false;

    // Indices may jump, and newer checkpoints than those of the line may be consistent, so neither `DenseNumbering` nor
    // `MaximalLine` is promised. Even a process that does not depend on anything undone rolls back to the line.
    fn promises(_: &Parameters) -> Promises {
        let promises = Promises::of_scope(Scope::Process).affecting(Affected::Line);
        promises.with(&[Promise::Checkpoints, Promise::Progress])
    }

    fn extra_processes(_: &Parameters) -> Vec<Role> {
        Vec::new()
    }

    fn start(start: LifeStart<Parameters>, now: Time, host: &mut dyn Host<Bcs>) -> Bcs {
        let LifeStart { me, boot, membership, config, record, .. } = start;
        let rollbacks =
            record.map_or(Vec::new(), |it| postcard::from_bytes(&it).expect("a list of rollbacks"));
        let mut this = Bcs {
            next_checkpoint: Time::NEVER,
            config,
            me,
            epoch: epoch_of(&membership),
            incarnation: Incarnation(0),
            membership,
            index: Sn(0),
            phase: Phase::Starting,
            line: Line::default(),
            bound: None,
            has_run: false,
            is_replaced: boot == Boot::Replaced,
            taking: None,
            log: Vec::new(),
            delivered: Delivered::default(),
            waiting: Vec::new(),
            early: Vec::new(),
            stored: BTreeMap::new(),
            contents: BTreeMap::new(),
            unsaved: VecDeque::new(),
            write_again: Time::NEVER,
            rollbacks,
            record: 0,
            stable: BTreeMap::new(),
            collections: 0,
        };
        match boot {
            Boot::Fresh => this.take(Sn(1), false, now, host),
            Boot::Restarted | Boot::Replaced => host.list(),
        }
        this
    }

    fn handle(&mut self, input: Input<Bcs>, now: Time, host: &mut dyn Host<Bcs>) {
        match input {
            Input::Sent { id, payload } => self.sent(id, payload, host),
            Input::Received { id, stamp, payload } => {
                self.received(Waiting { id, stamp, payload }, now, host)
            }
            Input::Control { from, message } => self.handle_message(from, message, host),
            Input::Snapshot(snapshot) => self.snapshot(snapshot, now, host),
            Input::Persisted(name) => self.persisted(name, host),
            Input::PersistFailed(name) if self.is_being_written(name) => {
                self.write_again = now + Span::from_millis(100);
            }
            Input::Listed(images) => self.listed(images.into_iter().map(|(name, _)| name), now, host),
            Input::Read { name, image } => self.read(name, image, host),
            Input::Recorded { version } if version == self.record => self.recorded(host),
            Input::Membership(membership) => self.membership(membership, host),
            Input::Timeout => self.timeout(now, host),
            _ => {}
        }
        self.proceed(now, host);
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.has(Defect::TimeoutInThePast) && self.may_take() {
            return Some(Time::ZERO);
        }
        let checkpoint = if self.may_take() { self.next_checkpoint } else { Time::NEVER };
        let next = checkpoint.min(self.write_again);
        (next < Time::NEVER).then_some(next)
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            log_messages: self.log.len() as u64,
            log_bytes: self.log.iter().map(|it| it.payload.len() as u64).sum(),
            checkpoints: self.stored.len() as u32,
            ..Gauges::default()
        }
    }

    fn control_kind(message: &Message) -> &'static str {
        match message {
            Message::Report { .. } => "report",
            Message::Prepared { .. } => "prepared",
            Message::Stable { .. } => "stable",
            Message::Settled { .. } => "settled",
        }
    }
}

impl Bcs {
    fn has(&self, defect: Defect) -> bool {
        self.config.defect == Some(defect)
    }

    fn name(&self, index: Sn) -> ImageName {
        let (owner, incarnation, attempt) = (self.me, self.incarnation, Attempt(1));
        ImageName { owner, incarnation, sn: index, attempt }
    }

    fn is_started(&self) -> bool {
        self.membership.member(self.me).started
    }

    fn ranks(&self) -> Vec<ProcessId> {
        self.membership.with_role(Role::RANK).collect()
    }

    fn broadcast(&self, message: &Message, host: &mut dyn Host<Bcs>) {
        for rank in self.ranks().into_iter().filter(|&it| it != self.me) {
            host.control(To::One(rank), message.clone());
        }
    }

    // --- failure-free operation -------------------------------------------------------------------------------------

    fn sent(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<Bcs>) {
        self.log.push(Logged { id, payload: payload.clone() });
        // Messages that the application sends during a recovery, before it is restored, are transmitted after the
        // recovery or undone.
        if matches!(self.phase, Phase::Running) {
            host.transmit(id, self.stamp(), payload);
        }
    }

    fn stamp(&self) -> Index {
        let position = Position { incarnation: self.incarnation, sn: self.index };
        Index { epoch: self.epoch, position }
    }

    fn received(&mut self, message: Waiting, now: Time, host: &mut dyn Host<Bcs>) {
        if message.stamp.epoch < self.epoch && !self.has(Defect::StaleAccepted) {
            return; // unless its send was undone, its sender re-sends it
        }
        let is_ahead = message.stamp.epoch > self.epoch || !matches!(self.phase, Phase::Running);
        if (is_ahead || self.taking.is_some()) && !self.has(Defect::DeliversWhileHeld) {
            self.waiting.push(message);
        } else {
            self.arrived(message, now, host);
        }
    }

    fn arrived(&mut self, message: Waiting, now: Time, host: &mut dyn Host<Bcs>) {
        let Waiting { id, stamp, payload } = message;
        if self.delivered.contains(id) && !self.has(Defect::DuplicatesAccepted) {
            return;
        }
        let index = stamp.position.sn;
        if index > self.index && !self.has(Defect::NoForcing) {
            host.claim(Claim::Forcing { id });
            self.take(index, true, now, host);
            self.waiting.push(Waiting { id, stamp, payload });
        } else {
            self.delivered.insert(id);
            host.deliver(id, payload);
        }
    }

    /// Delivers the messages that waited, until one of them forces a checkpoint.
    fn deliver_waiting(&mut self, now: Time, host: &mut dyn Host<Bcs>) {
        for message in std::mem::take(&mut self.waiting) {
            self.received(message, now, host);
        }
    }

    /// Takes a checkpoint. The application is held until its state has been copied; writing it takes longer.
    fn take(&mut self, index: Sn, forced: bool, now: Time, host: &mut dyn Host<Bcs>) {
        let position = self.name(index).position();
        host.claim(Claim::CheckpointRequested { position, attempt: Attempt(1), forced });
        self.taking = Some(Taking { index, forced, since: now });
        host.request_snapshot();
    }

    fn snapshot(&mut self, snapshot: Snapshot, now: Time, host: &mut dyn Host<Bcs>) {
        let Taking { index, forced, since } = self.taking.take().expect("a snapshot was requested");
        let log = if self.has(Defect::LogNotSaved) { Vec::new() } else { self.log.clone() };
        let part = Arc::new(Image {
            name: self.name(index),
            head: Arc::new(Head { forced }),
            saved: Arc::new(Saved { log, delivered: self.delivered.clone() }),
            snapshot,
        });
        self.index = index;
        self.schedule(now);
        if self.unsaved.is_empty() {
            host.persist(part.clone());
        }
        self.unsaved.push_back(Unsaved { part, frozen: now.since(since) });
        if matches!(self.phase, Phase::Running) {
            host.release();
            self.deliver_waiting(now, host);
        }
    }

    fn schedule(&mut self, now: Time) {
        self.next_checkpoint = self.config.checkpoint_every.0.map_or(Time::NEVER, |every| now + every);
    }

    fn is_being_written(&self, name: ImageName) -> bool {
        self.unsaved.front().is_some_and(|it| it.part.name == name)
    }

    fn persisted(&mut self, name: ImageName, host: &mut dyn Host<Bcs>) {
        if !self.is_being_written(name) {
            host.delete(name); // a rollback has undone it
            return;
        }
        let Unsaved { part, frozen } = self.unsaved.pop_front().expect("it is being written");
        self.write_again = Time::NEVER;
        if let Some(next) = self.unsaved.front() {
            host.persist(next.part.clone());
        }
        let (position, attempt, vectors) = (name.position(), name.attempt, Arc::new(Vectors::default()));
        host.claim(Claim::Committed { position, attempt, forced: part.head.forced, frozen, vectors });
        self.stored.insert(name.sn, name);
        self.contents.insert(name.sn, part.saved.delivered.clone());
        if !self.is_started() {
            if self.is_replaced {
                host.held();
            }
            host.started();
        }
        match self.phase {
            Phase::Running => self.announce_stable(host),
            Phase::Fetching(index) if self.first_from(index) == Some(name) => {
                self.decide(index, Some(part), host);
            }
            _ => {}
        }
    }

    /// Returns whether this life has taken a durable checkpoint, or has read one.
    fn has_checkpoint(&self) -> bool {
        self.index > Sn(0) && !self.stored.is_empty()
    }

    /// Returns whether the timer may trigger a checkpoint: while the application runs, or waits for its start.
    fn may_take(&self) -> bool {
        let waits = matches!(self.phase, Phase::Starting) && self.bound.is_none() && self.has_checkpoint();
        self.taking.is_none() && (waits || matches!(self.phase, Phase::Running))
    }

    fn timeout(&mut self, now: Time, host: &mut dyn Host<Bcs>) {
        if now >= self.write_again {
            self.write_again = Time::NEVER;
            if let Some(unsaved) = self.unsaved.front() {
                host.persist(unsaved.part.clone());
            }
        }
        if self.may_take() && now >= self.next_checkpoint {
            self.take(Sn(self.index.0 + 1), false, now, host);
        }
    }

    /// Tells all processes which checkpoint is this process's newest durable one. Only a running process may do this:
    /// before it resumes, the recovery of this epoch may still undo its newest checkpoint.
    fn announce_stable(&mut self, host: &mut dyn Host<Bcs>) {
        let Some((&index, _)) = self.stored.last_key_value() else { return };
        self.stable(self.me, index, host);
        self.broadcast(&Message::Stable { epoch: self.epoch, index }, host);
    }

    /// Removes checkpoints and messages that no recovery can need: no line will ever be older than the oldest of
    /// the processes' newest durable checkpoints.
    fn stable(&mut self, process: ProcessId, index: Sn, host: &mut dyn Host<Bcs>) {
        self.stable.insert(process, index);
        if self.stable.len() < self.ranks().len() {
            return;
        }
        let least = *self.stable.values().min().expect("there are ranks");
        let Some((&oldest, _)) = self.stored.range(least..).next() else { return };
        let newer = self.stored.split_off(&oldest);
        let removed = std::mem::replace(&mut self.stored, newer);
        if removed.is_empty() {
            return;
        }
        removed.values().for_each(|&name| host.delete(name));
        self.contents = self.contents.split_off(&oldest);
        self.collections += 1;
        let (round, kept) = (self.collections, self.stored.len() as u32);
        host.claim(Claim::Collected { round, below: oldest, kept, log: 0 });
        if let Some(delivered) = self.contents.get(&oldest) {
            for (sender, below) in delivered.below() {
                host.control(To::One(sender), Message::Settled { epoch: self.epoch, below });
            }
        }
    }
}

/// Returns the number of failures that a membership shows. The restart of a failed process does not change this number.
fn epoch_of(membership: &Membership) -> u32 {
    let failures = |it: &faultline::core::Member| (it.life.0 + u32::from(!it.up)).saturating_sub(1);
    membership.members.iter().map(failures).sum()
}
