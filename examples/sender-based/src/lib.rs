//! Sender-based message logging of Johnson and Zwaenepoel (FTCS 1987): messages are logged in the memory of their senders,
//! and only the process that failed rolls back.
//!
//! * A receiver numbers what it delivers (the *receive sequence number*, RSN) and tells the sender, who enters the number
//!   into its log and confirms it.
//! * A process sends nothing until the RSNs of everything that it has delivered are confirmed: what it sends may depend on
//!   that order. Until then, it computes on.
//! * A process takes checkpoints by itself. Its log is part of them.
//! * A process that failed restores its newest checkpoint, asks all others for the messages that they had sent to it since,
//!   and delivers them in the order of their RSNs; those without one in any order. What it sends meanwhile, the others have
//!   already, and drop.
//!
//! A failure loses the log of the process that fails. It fills again while the process executes again and the receivers
//! repeat their RSNs. If another process fails before that, order or messages may be lost, and the protocol gives up: it
//! survives one failure at a time. It protects programs that act identically after the same messages in the same order.

mod parameters;
mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faultline::core::process::To;
use faultline::core::{
    Attempt, Birth, Boot, Claim, FaultModel, Gauges, Host, Image, ImageName, Incarnation, Input, Life,
    Membership, MessageId, Payload, Position, ProcessId, Promise, Promises, Protocol, Role, Scope, Sn,
    Snapshot, Span, Speaks, Stamp, Time, Vectors,
};
use serde::{Deserialize, Serialize};

pub use parameters::{Defect, Parameters};
use recovery::Replies;

/// A receive sequence number, from 1.
type Rsn = u64;

/// Messages carry nothing: their numbers identify them in every execution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Nothing;

impl Stamp for Nothing {
    fn position(&self) -> Position {
        Position::default()
    }
}

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The sender has delivered the receiver's message `number` as its `rsn`-th message.
    Delivered { number: u32, rsn: Rsn },
    /// The sender has entered an RSN into its log.
    Entered { rsn: Rsn },
    /// The sender will never need the receiver's messages with smaller numbers again.
    Settled { below: u32 },
    /// The sender has failed, and has delivered the receiver's messages with smaller numbers.
    Recover { below: u32 },
    /// Answers `Recover`: all messages for its receiver, the receiver's messages that the sender has delivered since its
    /// checkpoint, and the number of the next one.
    Messages { log: Vec<Logged>, is_complete: bool, numbered: Vec<(u32, Rsn)>, next: u32 },
}

/// The protocol's part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    log: Vec<Logged>,
    rsn: Rsn,
    /// The number of the next message of each sender.
    next: BTreeMap<ProcessId, u32>,
    /// The number of the next message to each receiver.
    sent: BTreeMap<ProcessId, u32>,
}

/// A message in the log of its sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    id: MessageId,
    payload: Payload,
    /// Its place in the receiver's order, once that is known.
    rsn: Option<Rsn>,
    /// Whether it has been sent, and does not wait for confirmations.
    is_sent: bool,
}

/// What a process is doing.
#[derive(Clone, Debug)]
enum Phase {
    /// Takes its first checkpoint, or looks for its newest one.
    Starting,
    /// Waits for the logs of the others.
    Recovering(Replies),
    /// The application runs.
    Running,
    /// More has been lost than the protocol survives.
    GivenUp,
}

/// One process.
#[derive(Clone, Debug)]
pub struct SenderBased {
    config: Arc<Parameters>,
    me: ProcessId,
    life: Life,
    membership: Arc<Membership>,
    incarnation: Incarnation,
    sn: Sn,
    phase: Phase,
    /// When the checkpoint that is being taken was requested.
    taking: Option<Time>,
    frozen: Span,
    next_checkpoint: Time,
    log: Vec<Logged>,
    /// The RSN of the last message that was delivered.
    rsn: Rsn,
    /// The number of the next message of each sender.
    next: BTreeMap<ProcessId, u32>,
    /// RSNs of messages since the newest durable checkpoint, for senders that have to learn them again.
    numbered: BTreeMap<(ProcessId, u32), Rsn>,
    /// RSNs that their senders have not confirmed.
    unconfirmed: BTreeSet<Rsn>,
    /// The number of the next message to each receiver.
    sent: BTreeMap<ProcessId, u32>,
    /// What the re-execution has not sent again yet: the number of the first message that a receiver does not have. Until
    /// there is nothing of it, this log is incomplete.
    owed: BTreeMap<ProcessId, u32>,
    /// RSNs of messages that the re-execution has not sent again yet.
    known: BTreeMap<(ProcessId, u32), Rsn>,
    waiting: Vec<(MessageId, Payload)>,
    /// Requests that arrived before this process could answer.
    asked: Vec<(ProcessId, u32)>,
    /// The checkpoint that is being written, with the RSN and the messages that it contains.
    writing: Option<(ImageName, Rsn, BTreeMap<ProcessId, u32>)>,
    stored: Option<ImageName>,
}

impl Speaks for SenderBased {
    type Control = Message;
    type Head = ();
    type Saved = Saved;
}

impl Protocol for SenderBased {
    type Config = Parameters;
    type Stamp = Nothing;
    const FIFO: bool = true;
    const REPEATS: bool = true;

    fn promises(_: &Parameters) -> Promises {
        Promises::of_scope(Scope::Process).surviving(FaultModel::Volatile { failures: 1 }).with(&[
            Promise::Checkpoints,
            Promise::DenseNumbering,
            Promise::Containment,
            Promise::RepeatedOrder,
            Promise::Progress,
        ])
    }

    fn extra_processes(_: &Parameters) -> Vec<Role> {
        Vec::new()
    }

    fn start(birth: Birth<Parameters>, _: Time, host: &mut dyn Host<SenderBased>) -> SenderBased {
        let Birth { me, life, boot, membership, config, .. } = birth;
        let this = SenderBased {
            config,
            me,
            life,
            membership,
            incarnation: Incarnation(life.0 - 1),
            sn: Sn(0),
            phase: Phase::Starting,
            taking: None,
            frozen: Span::ZERO,
            next_checkpoint: Time::NEVER,
            log: Vec::new(),
            rsn: 0,
            next: BTreeMap::new(),
            numbered: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            sent: BTreeMap::new(),
            owed: BTreeMap::new(),
            known: BTreeMap::new(),
            waiting: Vec::new(),
            asked: Vec::new(),
            writing: None,
            stored: None,
        };
        match boot {
            Boot::Fresh => host.request_snapshot(),
            Boot::Restarted | Boot::Replaced => host.list(),
        }
        this
    }

    fn handle(&mut self, input: Input<SenderBased>, now: Time, host: &mut dyn Host<SenderBased>) {
        match input {
            Input::Sent { id, payload } => self.sent(id, payload, host),
            Input::Received { id, payload, .. } => self.received(id, payload, host),
            Input::Control { from, message } => self.told(from, message, now, host),
            Input::Snapshot(snapshot) => self.snapshot(snapshot, now, host),
            Input::Persisted(name) => self.persisted(name, now, host),
            // The next checkpoint tries again. Until the first one is durable, nothing has happened.
            Input::PersistFailed(_) => {
                self.writing = None;
                if self.stored.is_none() {
                    host.request_snapshot();
                }
            }
            Input::Listed(images) => {
                self.listed(images.into_iter().map(|(name, _)| name).max_by_key(|it| it.sn), host)
            }
            Input::Read { name, image } => self.read(name, image, host),
            Input::Membership(membership) => {
                self.membership = membership;
                self.begin(now, host);
                self.ask(host);
                self.go_on(now, host);
            }
            Input::Timeout => self.timeout(now, host),
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let may_take =
            matches!(self.phase, Phase::Running) && self.taking.is_none() && self.writing.is_none();
        (may_take && self.next_checkpoint < Time::NEVER).then_some(self.next_checkpoint)
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            log_messages: self.log.len() as u64,
            log_bytes: self.log.iter().map(|it| it.payload.len() as u64).sum(),
            checkpoints: u32::from(self.stored.is_some()),
            ..Gauges::default()
        }
    }

    fn control_kind(message: &Message) -> &'static str {
        match message {
            Message::Delivered { .. } => "delivered",
            Message::Entered { .. } => "entered",
            Message::Settled { .. } => "settled",
            Message::Recover { .. } => "recover",
            Message::Messages { .. } => "messages",
        }
    }
}

impl SenderBased {
    fn has(&self, defect: Defect) -> bool {
        self.config.defect == Some(defect)
    }

    fn others(&self) -> Vec<ProcessId> {
        self.membership.with_role(Role::RANK).filter(|&it| it != self.me).collect()
    }

    fn is_started(&self) -> bool {
        self.membership.member(self.me).started
    }

    /// Lets the application run for the first time, once its first checkpoint is durable and that has been recorded.
    fn begin(&mut self, now: Time, host: &mut dyn Host<SenderBased>) {
        if matches!(self.phase, Phase::Starting)
            && self.sn > Sn(0)
            && self.is_started()
            && self.incarnation.0 == 0
        {
            self.run(now, host);
        }
    }

    fn run(&mut self, now: Time, host: &mut dyn Host<SenderBased>) {
        self.phase = Phase::Running;
        self.schedule(now);
        host.release();
        for (from, below) in std::mem::take(&mut self.asked) {
            self.answer(from, below, host);
        }
        for (id, payload) in std::mem::take(&mut self.waiting) {
            self.received(id, payload, host);
        }
    }

    fn schedule(&mut self, now: Time) {
        self.next_checkpoint = self.config.checkpoint_every.0.map_or(Time::NEVER, |every| now + every);
    }

    fn sent(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<SenderBased>) {
        let rsn = self.known.remove(&(id.to, id.number));
        self.log.push(Logged { id, payload, rsn, is_sent: false });
        self.sent.insert(id.to, id.number + 1);
        self.owed.retain(|to, next| *to != id.to || id.number + 1 < *next);
        self.send(host);
    }

    /// Sends what waits, unless the order in which this process has delivered messages could still be lost.
    fn send(&mut self, host: &mut dyn Host<SenderBased>) {
        if !self.unconfirmed.is_empty() && !self.has(Defect::SendsAtOnce) {
            return;
        }
        for logged in self.log.iter_mut().filter(|it| !it.is_sent) {
            logged.is_sent = true;
            host.transmit(logged.id, Nothing, logged.payload.clone());
        }
    }

    fn received(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<SenderBased>) {
        if !matches!(self.phase, Phase::Running) || self.taking.is_some() {
            return self.waiting.push((id, payload));
        }
        let next = *self.next.entry(id.from).or_default();
        if id.number < next && !self.has(Defect::DuplicatesAccepted) {
            // Its sender executes again, and has to learn the order again.
            match self.numbered.get(&(id.from, id.number)) {
                Some(&rsn) => host.control(To::One(id.from), Message::Delivered { number: id.number, rsn }),
                None => host.control(To::One(id.from), Message::Settled { below: id.number + 1 }),
            }
            return;
        }
        self.deliver(id, payload, host);
        let (number, rsn) = (id.number, self.rsn);
        self.unconfirmed.insert(rsn);
        host.control(To::One(id.from), Message::Delivered { number, rsn });
    }

    fn deliver(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<SenderBased>) {
        self.rsn += 1;
        self.next.insert(id.from, id.number + 1);
        self.numbered.insert((id.from, id.number), self.rsn);
        host.deliver(id, payload);
    }

    fn told(&mut self, from: ProcessId, message: Message, now: Time, host: &mut dyn Host<SenderBased>) {
        match message {
            Message::Delivered { number, rsn } => {
                let is_it = |it: &&mut Logged| it.id.to == from && it.id.number == number;
                if let Some(logged) = self.log.iter_mut().find(is_it) {
                    logged.rsn = Some(rsn);
                    host.control(To::One(from), Message::Entered { rsn });
                }
            }
            Message::Entered { rsn } => {
                self.unconfirmed.remove(&rsn);
                self.send(host);
            }
            Message::Settled { below } => self.remove(from, below),
            Message::Recover { below } if matches!(self.phase, Phase::Starting) => {
                self.asked.push((from, below))
            }
            Message::Recover { below } => self.answer(from, below, host),
            Message::Messages { log, is_complete, numbered, next } => {
                if let Phase::Recovering(replies) = &mut self.phase {
                    replies.insert(from, log, is_complete);
                    self.learn(from, numbered, next, host);
                    self.go_on(now, host);
                }
            }
        }
    }

    fn remove(&mut self, to: ProcessId, below: u32) {
        self.log.retain(|it| it.id.to != to || it.id.number >= below);
    }

    fn timeout(&mut self, now: Time, host: &mut dyn Host<SenderBased>) {
        if self.next_deadline().is_some_and(|it| now >= it) {
            let position = Position { incarnation: self.incarnation, sn: self.sn.next() };
            host.claim(Claim::CheckpointRequested { position, attempt: self.attempt(), forced: false });
            self.taking = Some(now);
            host.request_snapshot();
        }
    }

    fn attempt(&self) -> Attempt {
        Attempt(self.life.0)
    }

    fn snapshot(&mut self, snapshot: Snapshot, now: Time, host: &mut dyn Host<SenderBased>) {
        let (owner, incarnation, sn, attempt) = (self.me, self.incarnation, self.sn.next(), self.attempt());
        let name = ImageName { owner, incarnation, sn, attempt };
        let log = if self.has(Defect::LogNotSaved) { Vec::new() } else { self.log.clone() };
        let saved = Arc::new(Saved { log, rsn: self.rsn, next: self.next.clone(), sent: self.sent.clone() });
        host.persist(Arc::new(Image { name, head: Arc::new(()), saved, snapshot }));
        self.writing = Some((name, self.rsn, self.next.clone()));
        if let Some(since) = self.taking.take() {
            self.frozen = now.since(since);
            host.release();
            for (id, payload) in std::mem::take(&mut self.waiting) {
                self.received(id, payload, host);
            }
        }
        self.schedule(now);
    }

    fn persisted(&mut self, name: ImageName, now: Time, host: &mut dyn Host<SenderBased>) {
        let Some((written, rsn, next)) = self.writing.take() else { return };
        debug_assert_eq!(written, name, "one checkpoint is written at a time");
        let (position, attempt, vectors) = (name.position(), name.attempt, Arc::new(Vectors::default()));
        host.claim(Claim::Committed { position, attempt, forced: false, frozen: self.frozen, vectors });
        self.sn = name.sn;
        if let Some(old) = self.stored.replace(name) {
            host.delete(old);
        }
        // Nothing before the checkpoint is ever delivered again.
        self.numbered.retain(|_, it| *it > rsn);
        self.unconfirmed.retain(|it| *it > rsn);
        for (sender, below) in next {
            host.control(To::One(sender), Message::Settled { below });
        }
        self.send(host);
        if !self.is_started() {
            host.started();
        }
        self.begin(now, host);
    }
}
