//! Sender-based message logging of Johnson and Zwaenepoel (*Sender-Based Message Logging*, FTCS 1987): messages are
//! logged in the memory of their senders, and only the process that failed rolls back.
//!
//! * A receiver gives each delivery a *receive sequence number* (RSN) and returns it to the sender, which enters it
//!   into its log and confirms it.
//! * A process sends nothing until the RSNs of all its deliveries are confirmed, because its messages may depend on the
//!   order of these deliveries. Until then, it continues to compute.
//! * Each process takes checkpoints on its own. Its log is part of them.
//! * A process that failed restores its newest checkpoint, asks all others for the messages that they have since sent
//!   to it, and delivers them in the order of their RSNs. Those without an RSN follow in any order, because no earlier
//!   send depended on them. Receivers drop the messages that it sends during its re-execution, and return their RSNs
//!   again.
//!
//! A process that fails loses its log, and its re-execution refills the log. If another process needs the log before
//! that, the protocol gives up: it survives one failure at a time. It protects programs that act identically after the
//! same messages in the same order.

mod parameters;
mod recovery;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use faultline::core::process::To;
use faultline::core::{
    Attempt, Boot, Claim, FaultModel, Gauges, Host, Image, ImageName, Incarnation, Input, LifeStart,
    Membership, MessageId, Payload, Position, ProcessId, Promise, Promises, Protocol, ProtocolTypes, Role,
    Scope, Sn, Snapshot, Span, Stamp, Time, Vectors,
};
use serde::{Deserialize, Serialize};

pub use parameters::{Defect, Parameters};
use recovery::Replies;

/// A receive sequence number, from 1.
type Rsn = u64;

/// How long a process waits before it retries a failed write.
const RETRY_WRITE_AFTER: Span = Span::from_millis(100);

/// The data that the protocol adds to a message: none, because a message's number identifies it in every execution.
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
    /// A checkpoint of the sender contains the delivery of the receiver's messages with numbers smaller than `below`.
    Settled { below: u32 },
    /// The sender has failed, and has restored the delivery of the receiver's messages with numbers smaller than
    /// `below`.
    Recover { below: u32 },
    /// Answers `Recover`: all logged messages that the sender has sent to the receiver, whether the sender's log is
    /// complete, and the number of the receiver's first message that the sender has not delivered.
    Log { log: Vec<Logged>, is_complete: bool, next: u32 },
}

/// The protocol's part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    log: Vec<Logged>,
    rsn: Rsn,
    /// The number of the next message from each sender.
    next: BTreeMap<ProcessId, u32>,
    /// The number of the next message to each receiver.
    sent: BTreeMap<ProcessId, u32>,
}

/// A message in the log of its sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    id: MessageId,
    payload: Payload,
    /// The message's place in the receiver's order, once known.
    rsn: Option<Rsn>,
    /// Whether the message has been sent. Otherwise, it waits for confirmations.
    is_sent: bool,
}

/// The current activity of a process.
#[derive(Clone, Debug)]
enum Phase {
    /// Takes its first checkpoint, or looks for its newest one.
    Starting,
    /// Waits for the logs of the others.
    Recovering(Replies),
    /// Delivers these messages again, in this order, each only when the application can do nothing more
    /// without it. Otherwise, the application could receive the answer to a message before it has sent that
    /// message again.
    Replaying(VecDeque<Logged>),
    /// Runs the application.
    Running,
    /// Has given up, because more data was lost than the protocol can recover.
    GivenUp,
}

/// A checkpoint that is being written.
#[derive(Clone, Debug)]
struct Writing {
    rsn: Rsn,
    next: BTreeMap<ProcessId, u32>,
    /// Time during which the application was held for this checkpoint.
    frozen: Span,
}

/// One process.
#[derive(Clone, Debug)]
pub struct SenderBased {
    config: Arc<Parameters>,
    me: ProcessId,
    membership: Arc<Membership>,
    /// The number of earlier lives.
    incarnation: Incarnation,
    phase: Phase,
    next_checkpoint: Time,
    /// Time at which the checkpoint that is being taken was requested.
    taking: Option<Time>,
    writing: Option<Writing>,
    /// The number of the attempt at the next checkpoint.
    attempt: Attempt,
    /// The newest durable checkpoint.
    stored: Option<ImageName>,
    /// Messages of this process whose delivery is not known to be part of a checkpoint of their receiver.
    log: Vec<Logged>,
    /// The number of the next message to each receiver.
    sent: BTreeMap<ProcessId, u32>,
    /// The RSN of the last message that was delivered.
    rsn: Rsn,
    /// The number of the next message from each sender.
    next: BTreeMap<ProcessId, u32>,
    /// RSNs of deliveries that the newest checkpoint does not contain, for senders that have to learn these RSNs again.
    numbered: BTreeMap<(ProcessId, u32), Rsn>,
    /// RSNs that the senders of the delivered messages have not confirmed.
    unconfirmed: BTreeSet<Rsn>,
    /// Messages that wait until the application is running and is not held.
    waiting: Vec<(MessageId, Payload)>,
    /// After a failure: for each receiver, the number below which this process has yet to learn the RSNs again. Until
    /// the map is empty, this process's log is incomplete.
    owed: BTreeMap<ProcessId, u32>,
    /// Requests that arrived before this process could answer.
    asked: Vec<(ProcessId, u32)>,
}

impl ProtocolTypes for SenderBased {
    type Control = Message;
    type Head = ();
    type Saved = Saved;

    fn saved_len(saved: &Saved) -> u64 {
        saved.log.iter().map(|it| it.payload.len() as u64).sum()
    }
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

    fn start(start: LifeStart<Parameters>, _: Time, host: &mut dyn Host<SenderBased>) -> SenderBased {
        let LifeStart { me, life, boot, membership, config, .. } = start;
        match boot {
            Boot::Fresh => host.request_snapshot(),
            Boot::Restarted | Boot::Replaced => host.list(),
        }
        SenderBased {
            config,
            me,
            membership,
            incarnation: Incarnation(life.0 - 1),
            phase: Phase::Starting,
            next_checkpoint: Time::NEVER,
            taking: None,
            writing: None,
            attempt: Attempt(1),
            stored: None,
            log: Vec::new(),
            sent: BTreeMap::new(),
            rsn: 0,
            next: BTreeMap::new(),
            numbered: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            waiting: Vec::new(),
            owed: BTreeMap::new(),
            asked: Vec::new(),
        }
    }

    fn handle(&mut self, input: Input<SenderBased>, now: Time, host: &mut dyn Host<SenderBased>) {
        match input {
            Input::Sent { id, payload } => self.sent(id, payload, host),
            Input::Received { id, payload, .. } => self.received(id, payload, host),
            Input::Control { from, message } => self.handle_message(from, message, host),
            Input::Snapshot(snapshot) => self.snapshot(snapshot, now, host),
            Input::Persisted(name) => self.persisted(name, host),
            Input::PersistFailed(name) => self.not_persisted(name, now, host),
            Input::Listed(images) => {
                self.listed(images.into_iter().map(|(name, _)| name).max_by_key(|it| it.sn), host)
            }
            Input::Read { name, image } => self.read(name, image, host),
            Input::Membership(membership) => {
                self.membership = membership;
                self.ask(host);
            }
            Input::Rested => self.replay(host),
            Input::Timeout => self.timeout(now, host),
            _ => {}
        }
        self.proceed(now, host);
    }

    fn next_deadline(&self) -> Option<Time> {
        let is_first = matches!(self.phase, Phase::Starting) && self.stored.is_none();
        let is_idle = self.taking.is_none() && self.writing.is_none();
        let may_take = is_idle && (is_first || self.is_acting());
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
            Message::Log { .. } => "log",
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

    /// Returns whether the application runs, including during a re-execution.
    fn is_acting(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Replaying(_))
    }

    fn is_started(&self) -> bool {
        self.membership.member(self.me).started
    }

    // --- messages ---------------------------------------------------------------------------------------------------

    fn sent(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<SenderBased>) {
        self.log.push(Logged { id, payload, rsn: None, is_sent: false });
        self.sent.insert(id.to, id.number + 1);
        self.send(host);
    }

    /// Sends the messages that wait, unless the order in which this process has delivered messages could still be lost.
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
        let next = self.next.get(&id.from).copied().unwrap_or_default();
        if id.number < next && !self.has(Defect::DuplicatesAccepted) {
            // The sender is re-executing, and must learn the order again.
            let answer = match self.numbered.get(&(id.from, id.number)) {
                Some(&rsn) => Message::Delivered { number: id.number, rsn },
                None => Message::Settled { below: id.number + 1 },
            };
            return host.control(To::One(id.from), answer);
        }
        self.deliver(id, payload, host);
        self.unconfirmed.insert(self.rsn);
        host.control(To::One(id.from), Message::Delivered { number: id.number, rsn: self.rsn });
    }

    fn deliver(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<SenderBased>) {
        self.rsn += 1;
        self.next.insert(id.from, id.number + 1);
        self.numbered.insert((id.from, id.number), self.rsn);
        host.deliver(id, payload);
    }

    fn handle_message(&mut self, from: ProcessId, message: Message, host: &mut dyn Host<SenderBased>) {
        match message {
            Message::Delivered { number, rsn } => {
                let is_it = |it: &&mut Logged| it.id.to == from && it.id.number == number;
                // If the re-execution has not sent this message yet, the receiver returns the RSN again later.
                if let Some(logged) = self.log.iter_mut().find(is_it) {
                    logged.rsn = Some(rsn);
                    self.learned(from, number + 1);
                    host.control(To::One(from), Message::Entered { rsn });
                }
            }
            Message::Entered { rsn } => {
                self.unconfirmed.remove(&rsn);
                self.send(host);
            }
            Message::Settled { below } => {
                self.settled(from, below);
                self.learned(from, below);
            }
            Message::Recover { below } if matches!(self.phase, Phase::Starting) => {
                self.asked.push((from, below));
            }
            Message::Recover { below } => self.answer(from, below, host),
            Message::Log { log, is_complete, next } => {
                if let Phase::Recovering(replies) = &mut self.phase {
                    replies.insert(from, log, is_complete, next);
                }
            }
        }
    }

    /// Removes messages whose delivery is part of a checkpoint of their receiver.
    fn settled(&mut self, to: ProcessId, below: u32) {
        self.log.retain(|it| it.id.to != to || it.id.number >= below);
    }

    // --- checkpoints ------------------------------------------------------------------------------------------------

    fn timeout(&mut self, now: Time, host: &mut dyn Host<SenderBased>) {
        if self.next_deadline().is_some_and(|it| now >= it) {
            self.next_checkpoint = Time::NEVER;
            let position = self.next_name().position();
            host.claim(Claim::CheckpointRequested { position, attempt: self.attempt, forced: false });
            self.taking = Some(now);
            host.request_snapshot();
        }
    }

    fn next_name(&self) -> ImageName {
        let (owner, incarnation, attempt) = (self.me, self.incarnation, self.attempt);
        ImageName { owner, incarnation, sn: self.stored.map_or(Sn(0), |it| it.sn).next(), attempt }
    }

    fn snapshot(&mut self, snapshot: Snapshot, now: Time, host: &mut dyn Host<SenderBased>) {
        let log = if self.has(Defect::LogNotSaved) { Vec::new() } else { self.log.clone() };
        let (name, rsn, next) = (self.next_name(), self.rsn, self.next.clone());
        let saved = Arc::new(Saved { log, rsn, next: next.clone(), sent: self.sent.clone() });
        host.persist(Arc::new(Image { name, head: Arc::new(()), saved, snapshot }));
        let frozen = self.taking.take().map_or(Span::ZERO, |since| now.since(since));
        self.writing = Some(Writing { rsn, next, frozen });
        self.schedule(now);
        if self.is_acting() {
            host.release();
            self.receive_waiting(host);
        }
    }

    fn schedule(&mut self, now: Time) {
        self.next_checkpoint = self.config.checkpoint_every.0.map_or(Time::NEVER, |every| now + every);
    }

    fn receive_waiting(&mut self, host: &mut dyn Host<SenderBased>) {
        for (id, payload) in std::mem::take(&mut self.waiting) {
            self.received(id, payload, host);
        }
    }

    fn persisted(&mut self, name: ImageName, host: &mut dyn Host<SenderBased>) {
        let Some(Writing { rsn, next, frozen }) = self.writing.take() else { return };
        let (position, attempt, vectors) = (name.position(), name.attempt, Arc::new(Vectors::default()));
        host.claim(Claim::Committed { position, attempt, forced: false, frozen, vectors });
        match self.stored.replace(name) {
            Some(old) => host.delete(old),
            None => {
                host.held();
                host.started();
            }
        }
        // Nothing that the checkpoint contains is ever delivered again.
        self.numbered.retain(|_, it| *it > rsn);
        self.unconfirmed.retain(|it| *it > rsn);
        for (sender, below) in next {
            host.control(To::One(sender), Message::Settled { below });
        }
        self.send(host);
    }

    /// Tries again later. Until the first checkpoint is durable, the application does not begin.
    fn not_persisted(&mut self, name: ImageName, now: Time, host: &mut dyn Host<SenderBased>) {
        self.writing = None;
        self.attempt = self.attempt.next();
        self.next_checkpoint = now + RETRY_WRITE_AFTER;
        host.claim(Claim::Aborted { position: name.position(), attempt: name.attempt });
    }
}
