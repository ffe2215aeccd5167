//! A process that performs its script, and reports the actions of its driver.

use std::collections::VecDeque;
use std::sync::Arc;

use faultline_core::application::Job;
use faultline_core::process::{In, Out};
use faultline_core::{
    Action, Attempt, Chunk, Claim, ClusterId, Digest, Event, Fact, FactNo, Gauges, Image, ImageName,
    Incarnation, JobNo, Life, LifeStart, Membership, MessageId, Packet, Payload, Position, Process,
    ProcessId, Progress, Sn, Snapshot, Span, Time, To, Witness,
};
use serde::{Deserialize, Serialize};

use crate::observation::Observation;

/// Actions of the probes in a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Actions at given times. Steps of one process that are due at the same time are handled as one event.
    pub steps: Vec<Step>,
    /// Actions of a process on the arrival of each message, after the message has been observed.
    pub on_message: Vec<(ProcessId, Vec<Act>)>,
    /// Whether the run ends only after every message has arrived. Not usable if a process fails.
    pub all_arrives: bool,
}

/// Actions at a given time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The process that acts.
    pub process: ProcessId,
    /// The life that acts; `None` means every life.
    pub life: Option<Life>,
    /// Time since the start of that life.
    pub after: Span,
    /// The actions, in order.
    pub acts: Vec<Act>,
}

/// An action of a probe. The script numbers the images and jobs of a life; messages are numbered consecutively for each
/// pair of lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Sends this many messages to a process, alternating between protocol and application messages.
    Send(ProcessId, u32),
    /// Sends a message to every other process of a cluster. The message has the number of the next message to
    /// the lowest-numbered receiver.
    Broadcast(ClusterId),
    /// Sends the image with this number and length to a process.
    SendImage(ProcessId, u32, u32),
    /// Writes the image with this number and length.
    Persist(u32, u32),
    /// Reads the image that this life created with this number.
    Read(Life, u32),
    /// Removes the image that this life created with this number.
    Delete(Life, u32),
    /// Lists the images in storage.
    List,
    /// Writes a record with this version.
    Record(u32),
    /// Runs a job with this number and cost.
    Compute(u32, Span),
    /// Reports that the storage is complete again.
    Held,
    /// Asks the supervisor to record that the probe may act.
    Started,
    /// Postpones all following actions, including those of later steps, until all requests have been answered.
    Settle,
    /// Makes the claim [`Claim::Protected`], which serves as a trigger for faults.
    Mark,
    /// Reports that the probe has finished.
    Finish,
}

/// A probe. `FIFO` states whether packets between two lives must arrive in the order in which they were sent.
#[derive(Clone, Debug)]
pub struct Probe<const FIFO: bool> {
    me: ProcessId,
    life: Life,
    began: Time,
    script: Arc<Script>,
    membership: Arc<Membership>,
    /// Indices of the remaining steps of this life in the script; the next one is last.
    remaining_steps: Vec<usize>,
    /// Next message number for each receiving life.
    numbers: Vec<((ProcessId, Life), u32)>,
    /// Actions held back by an [`Act::Settle`].
    pending_acts: VecDeque<Act>,
    /// Number of pending responses.
    asked: u32,
    /// Number of messages and images that the probe has sent.
    sent: u64,
    received: u64,
    /// The values of `sent` and `received` when the probe last reported that it had finished.
    finished_at: Option<(u64, u64)>,
    facts: u64,
    total: u64,
}

/// The stamp of a probe's message: the life that sent the message, and the life for which it is intended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    from: Life,
    to: Life,
}

impl faultline_core::Stamp for Stamp {
    fn position(&self) -> Position {
        Position::new(self.from.0, self.to.0)
    }
}

/// A protocol message of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    stamp: Stamp,
    number: u32,
    filler: Vec<u8>,
}

/// Header of a probe's image: the length of the application state in the image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head(u32);

/// A job that only takes time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    by: Life,
    number: u32,
    cost: Span,
}

impl Job for Work {
    /// The life that requested the job, and the number of the job.
    type Output = (Life, u32);

    fn cost(&self) -> Span {
        self.cost
    }

    fn run(self) -> (Life, u32) {
        (self.by, self.number)
    }
}

impl<const FIFO: bool> Process for Probe<FIFO> {
    type Stamp = Stamp;
    type Control = Message;
    type Head = Head;
    type Saved = Vec<u8>;
    type Job = Work;
    type Config = Script;
    const FIFO: bool = FIFO;

    fn start(start: LifeStart<Script>, now: Time, out: &mut Out<Self>) -> Self {
        let LifeStart { me, life, boot, membership, config: script, record, .. } = start;
        let mut remaining_steps: Vec<usize> = (0..script.steps.len())
            .filter(|&index| {
                let step = &script.steps[index];
                step.process == me && step.life.is_none_or(|it| it == life)
            })
            .collect();
        remaining_steps.sort_by_key(|&index| std::cmp::Reverse((script.steps[index].after, index)));
        let total = remaining_steps.len() as u64;
        let empty = Membership { members: Arc::new([]), ..(*membership).clone() };
        let mut probe = Probe {
            me,
            life,
            began: now,
            script,
            membership: Arc::new(empty),
            remaining_steps,
            numbers: Vec::new(),
            pending_acts: VecDeque::new(),
            asked: 0,
            sent: 0,
            received: 0,
            finished_at: None,
            facts: 0,
            total,
        };
        let record = record.map_or(0, |bytes| u32::from_le_bytes(bytes[..].try_into().unwrap_or([0xFF; 4])));
        probe.observe(Observation::Started { boot, record }, out);
        probe.membership_changed(membership, out);
        probe.step(now, out);
        probe
    }

    fn handle(&mut self, event: In<Self>, now: Time, out: &mut Out<Self>) {
        if is_answer::<Self>(&event) {
            self.asked = self.asked.checked_sub(1).expect("the response belongs to a request of this life");
        }
        match event {
            Event::Packet { from, packet: Packet::Control(Message { stamp, number, filler }) } => {
                assert_eq!(filler, pattern(number, number % 50), "a message arrives unchanged");
                self.receive(from, stamp, number, out);
            }
            Event::Packet { from, packet: Packet::Application { id, stamp, payload } } => {
                let expected = Payload::from_slice(&pattern(id.number, id.number % 50));
                assert_eq!(payload, expected, "a payload arrives unchanged");
                assert_eq!((id.from, id.to), (from, self.me));
                self.receive(from, stamp, id.number, out);
            }
            Event::Packet { from, packet: Packet::Image(image) } => {
                assert!(is_intact(&image) && image.name.owner == from, "an image arrives unchanged");
                let (by, number) = made(image.name);
                self.received += 1;
                self.observe(Observation::ReceivedImage { from, by, number }, out);
            }
            Event::Persisted(name) => {
                let (by, number) = made(name);
                self.observe(Observation::Persisted { by, number }, out);
            }
            Event::PersistFailed(name) => {
                let (by, number) = made(name);
                self.observe(Observation::PersistFailed { by, number }, out);
            }
            Event::Read { name, image } => {
                let (by, number) = made(name);
                let intact = image.is_some_and(|image| image.name == name && is_intact(&image));
                self.observe(Observation::Read { by, number, intact }, out);
            }
            Event::Listed(images) => {
                self.observe(Observation::Listed { images: images.len() as u32 }, out);
                for (name, _) in images {
                    let (by, number) = made(name);
                    self.observe(Observation::Found { by, number }, out);
                }
            }
            Event::Recorded { version } => {
                self.observe(Observation::Recorded { version: version as u32 }, out);
            }
            Event::Membership(membership) => self.membership_changed(membership, out),
            Event::Computed(no, (by, number)) => {
                assert_eq!(no, JobNo(number));
                self.observe(Observation::Computed { by, number }, out);
            }
            Event::Timeout | Event::Flip(_) => {}
        }
        self.proceed(out);
        self.step(now, out);
        if self.script.all_arrives && self.finished_at.is_some_and(|it| it != (self.sent, self.received)) {
            self.finish(out);
        }
    }

    fn saved_len(saved: &Vec<u8>) -> u64 {
        saved.len() as u64
    }

    fn next_deadline(&self) -> Option<Time> {
        self.remaining_steps.last().map(|&index| self.due(index))
    }

    fn gauges(&self) -> Gauges {
        let done = self.total - self.remaining_steps.len() as u64;
        Gauges { progress: Progress { done, total: self.total }, ..Gauges::default() }
    }
}

impl<const FIFO: bool> Probe<FIFO> {
    fn due(&self, index: usize) -> Time {
        self.began + self.script.steps[index].after
    }

    fn state(&mut self, fact: Fact, out: &mut Out<Self>) {
        self.facts += 1;
        out.push(Action::Fact(fact));
    }

    fn observe(&mut self, observation: Observation, out: &mut Out<Self>) {
        self.state(observation.to_fact(), out);
    }

    fn membership_changed(&mut self, membership: Arc<Membership>, out: &mut Out<Self>) {
        self.observe(Observation::Membership { version: membership.version.0 as u32 }, out);
        let before = std::mem::replace(&mut self.membership, membership.clone());
        for (index, member) in membership.members.iter().enumerate() {
            if before.members.get(index).is_none_or(|it| (it.life, it.up) != (member.life, member.up)) {
                let process = ProcessId(index as u32);
                self.observe(Observation::Peer { process, life: member.life, up: member.up }, out);
            }
        }
    }

    fn receive(&mut self, from: ProcessId, stamp: Stamp, number: u32, out: &mut Out<Self>) {
        self.received += 1;
        self.observe(Observation::Received { from, from_life: stamp.from, for_life: stamp.to, number }, out);
        let script = self.script.clone();
        for (process, acts) in &script.on_message {
            if *process == self.me {
                self.act(acts, out);
            }
        }
    }

    /// Performs the steps that are due.
    fn step(&mut self, now: Time, out: &mut Out<Self>) {
        let script = self.script.clone();
        while let Some(index) =
            self.remaining_steps.pop_if(|&mut index| self.began + script.steps[index].after <= now)
        {
            let late = (now.since(self.due(index)).0 / 1000) as u32;
            self.observe(Observation::Stepped { step: index as u32, late }, out);
            self.act(&script.steps[index].acts, out);
        }
    }

    fn act(&mut self, acts: &[Act], out: &mut Out<Self>) {
        self.pending_acts.extend(acts.iter().cloned());
        self.proceed(out);
    }

    /// Performs actions up to the first one that waits for responses.
    fn proceed(&mut self, out: &mut Out<Self>) {
        while self.asked == 0 || self.pending_acts.front() != Some(&Act::Settle) {
            let Some(act) = self.pending_acts.pop_front() else { return };
            self.perform(act, out);
        }
    }

    fn perform(&mut self, act: Act, out: &mut Out<Self>) {
        self.asked += u32::from(is_question(&act));
        match act {
            Act::Send(to, messages) => {
                for _ in 0..messages {
                    let packet = self.next_message(to);
                    out.push(Action::Send { to: To::One(to), packet });
                }
            }
            Act::Broadcast(cluster) => {
                let peers = self.membership.processes_of(cluster).clone();
                self.sent += peers.len() as u64 - 1;
                let others: Vec<ProcessId> = peers.iter().copied().filter(|it| *it != self.me).collect();
                let stamp = Stamp { from: self.life, to: self.membership.member(others[0]).life };
                let number = self.next_number(others[0]);
                for &other in &others[1..] {
                    assert_eq!(
                        self.next_number(other),
                        number,
                        "all receivers have received the same number of messages"
                    );
                    assert_eq!(
                        self.membership.member(other).life,
                        stamp.to,
                        "all receivers are in the same life"
                    );
                }
                let filler = pattern(number, number % 50);
                let packet = Packet::Control(Message { stamp, number, filler });
                out.push(Action::Send { to: To::Cluster(cluster), packet });
            }
            Act::SendImage(to, number, len) => {
                self.sent += 1;
                let packet = Packet::Image(Arc::new(self.image(number, len)));
                out.push(Action::Send { to: To::One(to), packet });
            }
            Act::Persist(number, len) => {
                let image = self.image(number, len);
                self.state(Fact::Saved(Box::new((image.name, Witness::default(), 0))), out);
                out.push(Action::Persist(Arc::new(image)));
            }
            Act::Read(by, number) => out.push(Action::Read(name(self.me, by, number))),
            Act::Delete(by, number) => out.push(Action::Delete(name(self.me, by, number))),
            Act::List => out.push(Action::List),
            Act::Record(version) => {
                let bytes = version.to_le_bytes().as_slice().into();
                out.push(Action::Record { version: u64::from(version), bytes });
            }
            Act::Compute(number, cost) => {
                out.push(Action::Compute(JobNo(number), Work { by: self.life, number, cost }));
            }
            Act::Held => out.push(Action::Held),
            Act::Started => out.push(Action::Started),
            Act::Settle => {}
            Act::Mark => self.state(Fact::Claim(Box::new(Claim::Protected)), out),
            Act::Finish => self.finish(out),
        }
    }

    fn finish(&mut self, out: &mut Out<Self>) {
        self.finished_at = Some((self.sent, self.received));
        // The run ends once the sums of both values over all processes are equal.
        let (sent, delivered) = if self.script.all_arrives { (self.sent, self.received) } else { (0, 0) };
        let witness = Witness { life: self.life, upto: FactNo(self.facts), sent, delivered };
        self.state(Fact::Finished(Box::new((witness, Digest([0; 16])))), out);
    }

    fn next_number(&mut self, to: ProcessId) -> u32 {
        let pair = (to, self.membership.member(to).life);
        let index = self.numbers.iter().position(|(it, _)| *it == pair).unwrap_or_else(|| {
            self.numbers.push((pair, 0));
            self.numbers.len() - 1
        });
        let number = self.numbers[index].1;
        self.numbers[index].1 += 1;
        number
    }

    fn next_message(&mut self, to: ProcessId) -> Packet<Stamp, Message, Head, Vec<u8>> {
        self.sent += 1;
        let number = self.next_number(to);
        let stamp = Stamp { from: self.life, to: self.membership.member(to).life };
        let filler = pattern(number, number % 50);
        if number.is_multiple_of(2) {
            Packet::Control(Message { stamp, number, filler })
        } else {
            let id = MessageId { from: self.me, to, incarnation: Incarnation(self.life.0), number };
            Packet::Application { id, stamp, payload: Payload::from_slice(&filler) }
        }
    }

    /// Returns an image of which the application's state and the protocol's part have these lengths in bytes.
    pub fn image_of(state: u32, saved: u32) -> Image<Head, Vec<u8>> {
        Image {
            name: name(ProcessId(0), Life(1), 1),
            head: Arc::new(Head(state)),
            saved: Arc::new(pattern(1, saved)),
            snapshot: Snapshot {
                witness: Witness::default(),
                channels: Arc::new([]),
                application: Arc::new([Chunk::Virtual(state.into())]),
            },
        }
    }

    fn image(&self, number: u32, len: u32) -> Image<Head, Vec<u8>> {
        Image {
            name: name(self.me, self.life, number),
            head: Arc::new(Head(len)),
            saved: Arc::new(pattern(number, 20)),
            snapshot: Snapshot {
                witness: Witness { life: self.life, upto: FactNo(0), sent: 0, delivered: 0 },
                channels: Arc::new([]),
                application: Arc::new([Chunk::Bytes(pattern(number, len).into())]),
            },
        }
    }
}

/// Returns whether the driver answers the action with an event.
fn is_question(act: &Act) -> bool {
    use Act::{Compute, List, Persist, Read, Record};
    matches!(act, Persist(..) | Read(..) | List | Record(_) | Compute(..))
}

fn is_answer<P: Process>(event: &In<P>) -> bool {
    use Event::{Computed, Listed, PersistFailed, Persisted, Read, Recorded};
    matches!(
        event,
        Persisted(_) | PersistFailed(_) | Read { .. } | Listed(_) | Recorded { .. } | Computed(..)
    )
}

/// Returns bytes in which any change can be detected.
fn pattern(number: u32, len: u32) -> Vec<u8> {
    (0..len).map(|index| (number.wrapping_mul(31).wrapping_add(index.wrapping_mul(7)) % 251) as u8).collect()
}

fn name(owner: ProcessId, by: Life, number: u32) -> ImageName {
    ImageName { owner, incarnation: Incarnation(by.0), sn: Sn(number), attempt: Attempt(1) }
}

/// Returns the life that created an image, and the image's number.
fn made(name: ImageName) -> (Life, u32) {
    (Life(name.incarnation.0), name.sn.0)
}

fn is_intact(image: &Image<Head, Vec<u8>>) -> bool {
    let (_, number) = made(image.name);
    let expected = Chunk::Bytes(pattern(number, image.head.0).into());
    *image.saved == pattern(number, 20) && *image.snapshot.application == [expected]
}
