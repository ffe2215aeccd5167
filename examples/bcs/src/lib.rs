//! BCS, the index-based protocol of Briatico, Ciuffoletti and Simoncini (*A Distributed Domino-Effect Free Recovery
//! Algorithm*, SRDS 1984): communication-induced checkpoints without any coordination while nothing fails.
//!
//! * Every checkpoint has an index, and so does every process: that of its newest checkpoint.
//! * A process takes a *basic* checkpoint when it likes, with the next index.
//! * A message carries its sender's index. If that is greater than the receiver's, the receiver first takes a *forced*
//!   checkpoint with the index of the message, and then delivers it.
//! * The first checkpoints with an index of at least *n*, one of each process, are consistent; a process that has none
//!   contributes its current state.
//!
//! After a failure, *n* is the index of the failed process's newest checkpoint ([`line`]). The paper leaves messages in
//! transit to the channels. Here, a sender keeps what it has sent, in its checkpoints too, and sends it again after each
//! recovery; the receiver recognises what it has ([`delivered`]). Checkpoints are stored by their process alone, so that the
//! loss of a storage is not survived.

pub mod delivered;
mod line;
mod parameters;
mod recovery;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use faultline::core::process::To;
use faultline::core::{
    Attempt, Birth, Boot, Claim, Gauges, Host, Image, ImageName, Incarnation, Input, Life, Membership,
    MessageId, Payload, Position, ProcessId, Promise, Promises, Protocol, Role, Scope, Sn, Snapshot, Span,
    Speaks, Stamp, Time, Vectors,
};
use serde::{Deserialize, Serialize};

use delivered::Delivered;
use line::Line;
pub use parameters::{Defect, Parameters};

/// The data that every message carries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// Number of failures of which the sender knew.
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
    /// The sender permits the line of this index at most.
    Report { epoch: u32, permits: Sn },
    /// The sender has what it needs to restore the line of this index.
    Prepared { epoch: u32, index: Sn },
    /// The sender's checkpoint with this index is durable.
    Stable { epoch: u32, index: Sn },
    /// The sender will never undo the delivery of the receiver's messages with smaller numbers.
    Settled { epoch: u32, below: u32 },
}

/// What a listing of the storage returns of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Whether a message forced it.
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

/// A message that waits: for the checkpoint that it forces, or for the end of a recovery.
#[derive(Clone, Debug)]
struct Waiting {
    id: MessageId,
    stamp: Index,
    payload: Payload,
}

/// A checkpoint that is being taken.
#[derive(Clone, Copy, Debug)]
struct Taking {
    index: Sn,
    forced: bool,
    since: Time,
}

/// What a process is doing.
#[derive(Clone, Debug)]
enum Phase {
    /// Looks for its newest checkpoint, or takes its first one.
    Starting,
    /// Some processes are down or have not reported, or the line has not been prepared.
    Reporting,
    /// The checkpoint for the line of this index is being read.
    Reading(Sn),
    /// The line of this index can be restored; `None` if the current state is part of it.
    Prepared(Sn, Option<Part>),
    /// The rollback is being recorded.
    Recording(Claim),
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
    life: Life,
    membership: Arc<Membership>,
    /// The number of failures that the membership shows. Never decreases.
    epoch: u32,
    /// The epoch in which this process restored last.
    incarnation: Incarnation,
    index: Sn,
    phase: Phase,
    line: Line,
    /// The index of the checkpoint whose state this process has or may have to take, until it acts again: no line may be
    /// newer. `None` if the current state may be part of any line.
    bound: Option<Sn>,
    /// Whether this life has acted.
    has_run: bool,
    /// Whether the storage of an earlier life was lost.
    is_replaced: bool,
    taking: Option<Taking>,
    /// When the application was held for the checkpoint that is being written, by index.
    frozen: BTreeMap<Sn, (Span, bool)>,
    next_checkpoint: Time,
    log: Vec<Logged>,
    delivered: Delivered,
    waiting: Vec<Waiting>,
    /// Messages of epochs that this process has not reached yet.
    early: Vec<(ProcessId, Message)>,
    /// Checkpoints that are durable and have not been undone or collected, by index.
    stored: BTreeMap<Sn, ImageName>,
    /// What each stored checkpoint has delivered, as far as it was taken in this life.
    contents: BTreeMap<Sn, Delivered>,
    /// Checkpoints that are not durable yet, in order. Only the first is being written: a gap would make the line of a
    /// missing index inconsistent.
    unsaved: VecDeque<Part>,
    write_again: Time,
    /// Rollbacks of this process: from each epoch on, greater indices of earlier incarnations are undone. Durable.
    rollbacks: Vec<(u32, Sn)>,
    record: u64,
    /// The newest durable index of each process.
    stable: BTreeMap<ProcessId, Sn>,
    collections: u32,
}

impl Speaks for Bcs {
    type Control = Message;
    type Head = Head;
    type Saved = Saved;
}

impl Protocol for Bcs {
    type Config = Parameters;
    type Stamp = Index;
    const FIFO: bool = false;

    // An index may jump, and the line need not be the newest one: neither is promised. Processes whose state depends on
    // nothing that was undone go back with the others.
    fn promises(_: &Parameters) -> Promises {
        Promises::of_scope(Scope::Process).with(&[Promise::Checkpoints, Promise::Progress])
    }

    fn extra_processes(_: &Parameters) -> Vec<Role> {
        Vec::new()
    }

    fn start(birth: Birth<Parameters>, now: Time, host: &mut dyn Host<Bcs>) -> Bcs {
        let Birth { me, life, boot, membership, config, record, .. } = birth;
        let rollbacks = record.map_or(Vec::new(), |it| postcard::from_bytes(&it).expect("it is ours"));
        let mut this = Bcs {
            next_checkpoint: config.checkpoint_every.0.map_or(Time::NEVER, |every| now + every),
            config,
            me,
            life,
            epoch: epoch_of(&membership),
            membership,
            incarnation: Incarnation(0),
            index: Sn(0),
            phase: Phase::Starting,
            line: Line::default(),
            bound: None,
            has_run: false,
            is_replaced: boot == Boot::Replaced,
            taking: None,
            frozen: BTreeMap::new(),
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
            Input::Control { from, message } => self.told(from, message, host),
            Input::Snapshot(snapshot) => self.snapshot(snapshot, now, host),
            Input::Persisted(name) => self.persisted(name, host),
            Input::PersistFailed(name) if self.is_first_unsaved(name) => {
                self.write_again = now + Span::from_millis(100);
            }
            Input::Listed(images) => self.listed(images.into_iter().map(|(name, _)| name), now, host),
            Input::Read { name, image } => self.read(name, image, host),
            Input::Recorded { version } if version == self.record => self.recorded(now, host),
            Input::Membership(membership) => self.membership(membership, host),
            Input::Timeout => self.timeout(now, host),
            _ => {}
        }
        self.proceed(now, host);
    }

    fn next_deadline(&self) -> Option<Time> {
        let checkpoint = match self.phase {
            Phase::Running if self.taking.is_none() => self.next_checkpoint,
            _ => Time::NEVER,
        };
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

    /// Lives before the first durable checkpoint take it under one name, but for this number.
    fn attempt(&self) -> Attempt {
        Attempt(self.life.0)
    }

    fn is_started(&self) -> bool {
        self.membership.member(self.me).started
    }

    fn ranks(&self) -> Vec<ProcessId> {
        self.membership.with_role(Role::RANK).collect()
    }

    fn tell_all(&self, message: &Message, host: &mut dyn Host<Bcs>) {
        for rank in self.ranks().into_iter().filter(|&it| it != self.me) {
            host.control(To::One(rank), message.clone());
        }
    }

    // --- while nothing fails ----------------------------------------------------------------------------------------

    fn sent(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<Bcs>) {
        self.log.push(Logged { id, payload: payload.clone() });
        // What the application sends during a recovery, before it is restored, is sent at the end, or undone.
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
            return; // if its send was not undone, its sender sends it again
        }
        let is_ahead = message.stamp.epoch > self.epoch || !matches!(self.phase, Phase::Running);
        if is_ahead || self.taking.is_some() {
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
        let position = Position { incarnation: self.incarnation, sn: index };
        let attempt = self.attempt();
        host.claim(Claim::CheckpointRequested { position, attempt, forced });
        self.taking = Some(Taking { index, forced, since: now });
        host.request_snapshot();
    }

    fn snapshot(&mut self, snapshot: Snapshot, now: Time, host: &mut dyn Host<Bcs>) {
        let Taking { index, forced, since } = self.taking.take().expect("a snapshot was requested");
        let (owner, incarnation, attempt) = (self.me, self.incarnation, self.attempt());
        let log = if self.has(Defect::LogNotSaved) { Vec::new() } else { self.log.clone() };
        let image = Arc::new(Image {
            name: ImageName { owner, incarnation, sn: index, attempt },
            head: Arc::new(Head { forced }),
            saved: Arc::new(Saved { log, delivered: self.delivered.clone() }),
            snapshot,
        });
        self.index = index;
        self.next_checkpoint = self.config.checkpoint_every.0.map_or(Time::NEVER, |every| now + every);
        self.frozen.insert(index, (now.since(since), forced));
        self.unsaved.push_back(image.clone());
        if self.unsaved.len() == 1 {
            host.persist(image);
        }
        if matches!(self.phase, Phase::Running) {
            host.release();
            self.deliver_waiting(now, host);
        }
    }

    fn is_first_unsaved(&self, name: ImageName) -> bool {
        self.unsaved.front().is_some_and(|it| it.name == name)
    }

    fn persisted(&mut self, name: ImageName, host: &mut dyn Host<Bcs>) {
        if !self.is_first_unsaved(name) {
            host.delete(name); // a rollback has undone it
            return;
        }
        let image = self.unsaved.pop_front().expect("it has been found");
        self.write_again = Time::NEVER;
        if let Some(next) = self.unsaved.front() {
            host.persist(next.clone());
        }
        let (frozen, forced) = self.frozen.remove(&name.sn).unwrap_or_default();
        let (position, attempt, vectors) = (name.position(), name.attempt, Arc::new(Vectors::default()));
        host.claim(Claim::Committed { position, attempt, forced, frozen, vectors });
        self.stored.insert(name.sn, name);
        self.contents.insert(name.sn, image.saved.delivered.clone());
        if !self.is_started() {
            if self.is_replaced {
                host.held();
            }
            host.started();
        }
        self.stable(self.me, name.sn, host);
        self.tell_all(&Message::Stable { epoch: self.epoch, index: name.sn }, host);
    }

    fn timeout(&mut self, now: Time, host: &mut dyn Host<Bcs>) {
        if now >= self.write_again {
            self.write_again = Time::NEVER;
            if let Some(image) = self.unsaved.front() {
                host.persist(image.clone());
            }
        }
        if matches!(self.phase, Phase::Running) && self.taking.is_none() && now >= self.next_checkpoint {
            self.take(Sn(self.index.0 + 1), false, now, host);
        }
    }

    /// Removes checkpoints and messages that no recovery can need: no line will ever be older than the smallest index that
    /// is newest and durable at its process.
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

/// Returns the number of failures that a membership shows: it is the same before and after a restart.
fn epoch_of(membership: &Membership) -> u32 {
    let failures = |it: &faultline::core::Member| (it.life.0 + u32::from(!it.up)).saturating_sub(1);
    membership.members.iter().map(failures).sum()
}
