//! Message-passing programs: explicit steps with named receives, gathers, and polls with a fence.
//!
//! A [`Program`] says what it does next, one [`Step`] at a time, and is told what came of it. What it can say is what a
//! protocol that repeats executions can protect: the messages that a step consumes do not depend on the order of their
//! arrival, and neither does what the program is told before its next send. There is no way to take "whichever comes
//! first" and to send because of it: a gather waits for all of its messages and gives them in the order of their senders,
//! and a poll says whether something is there, but only its fence consumes it. A program that sends between the two is
//! ended by an assertion.
//!
//! [`Performer`] makes an application of a program: it keeps what has arrived, and says what is consumed and when.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::{Chunk, Outbox, Payload, ProcessId, Span};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Sends a value.
    Send { to: ProcessId, tag: u8, value: u64 },
    /// Waits for the next message of this tag from this rank.
    Receive { from: ProcessId, tag: u8 },
    /// Waits for so many messages of this tag, from anybody.
    Gather { tag: u8, count: u32 },
    /// Looks whether a message of this tag has arrived.
    Poll { tag: u8 },
    /// Waits for the messages that were looked for; between the first poll and this nothing may be sent.
    Fence { tag: u8, count: u32 },
    /// Computes for so long.
    Compute(Span),
    /// Has finished.
    Finish,
}

/// One rank of a message-passing program: state that can be saved, and steps.
pub(crate) trait Program: Clone + Debug + Serialize + DeserializeOwned {
    /// What it does next; asked again when that is done.
    fn step(&mut self) -> Step;
    /// What a poll has found.
    fn polled(&mut self, found: bool);
    /// What a receive, a gather or a fence has brought, in the order of the senders.
    fn received(&mut self, values: &[(ProcessId, u64)]);
}

/// A program as an application.
#[derive(Clone, Debug)]
pub(crate) struct Performer<P> {
    initial: P,
    state: State<P>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct State<P> {
    program: P,
    /// The step that is being done; `None` before the first.
    step: Option<Step>,
    /// Messages that have arrived from each rank.
    arrived: BTreeMap<ProcessId, u32>,
    /// Those that have not been consumed, in the order of arrival.
    mailbox: Vec<Message>,
    /// Something was polled, and its fence is yet to come.
    has_polled: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Message {
    from: ProcessId,
    number: u32,
    tag: u8,
    value: u64,
}

impl<P: Program> Performer<P> {
    pub(crate) fn new(program: P) -> Performer<P> {
        Performer { state: State::of(program.clone()), initial: program }
    }

    pub(crate) fn program(&self) -> &P {
        &self.state.program
    }

    pub(crate) fn program_mut(&mut self) -> &mut P {
        &mut self.state.program
    }

    /// Messages that have arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.state.arrived.values().map(|&it| u64::from(it)).sum()
    }

    pub(crate) fn has_finished(&self) -> bool {
        self.state.step == Some(Step::Finish)
    }

    pub(crate) fn deliver(&mut self, from: ProcessId, payload: &Payload, out: &mut Outbox) {
        let arrived = self.state.arrived.entry(from).or_default();
        let number = *arrived;
        *arrived += 1;
        // Nobody sends anything else; and if something else came, the result would show it.
        let (tag, value) = match *payload.bytes() {
            [tag, ref value @ ..] => (tag, value.try_into().map_or(0, u64::from_le_bytes)),
            [] => (0, 0),
        };
        self.state.mailbox.push(Message { from, number, tag, value });
        self.go_on(out);
    }

    /// How long the computation takes that the program is at.
    pub(crate) fn next_job(&self) -> Option<Span> {
        match self.state.step {
            None => Some(Span::ZERO),
            Some(Step::Compute(span)) => Some(span),
            Some(_) => None,
        }
    }

    pub(crate) fn computed(&mut self, out: &mut Outbox) {
        self.state.step = Some(self.state.program.step());
        self.go_on(out);
    }

    /// Does as many steps as are possible without waiting.
    fn go_on(&mut self, out: &mut Outbox) {
        while let Some(step) = self.state.step {
            if !self.state.perform(step, out) {
                return;
            }
            self.state.step = Some(self.state.program.step());
        }
    }

    pub(crate) fn snapshot(&self) -> Arc<[Chunk]> {
        let state = postcard::to_allocvec(&self.state).expect("numbers can be encoded");
        [Chunk::Bytes(state.into())].into()
    }

    pub(crate) fn restore(&mut self, chunks: Option<&[Chunk]>) {
        self.state = match chunks {
            None => State::of(self.initial.clone()),
            Some([Chunk::Bytes(bytes)]) => {
                postcard::from_bytes(bytes).expect("a snapshot of this application")
            }
            Some(_) => panic!("a snapshot of this application has one chunk"),
        };
    }
}

impl<P: Program> State<P> {
    fn of(program: P) -> State<P> {
        State { program, step: None, arrived: BTreeMap::new(), mailbox: Vec::new(), has_polled: false }
    }

    /// Does a step; false when it has to wait.
    fn perform(&mut self, step: Step, out: &mut Outbox) -> bool {
        match step {
            Step::Compute(_) | Step::Finish => false,
            Step::Send { to, tag, value } => {
                assert!(!self.has_polled, "a program sends nothing between a poll and its fence");
                let mut bytes = [tag; 9];
                bytes[1..].copy_from_slice(&value.to_le_bytes());
                out.send(to, Payload::from_slice(&bytes));
                true
            }
            Step::Receive { from, tag } => self.consume(1, |it| it.from == from && it.tag == tag, out),
            Step::Gather { tag, count } => self.consume(count as usize, |it| it.tag == tag, out),
            Step::Poll { tag } => {
                let found = self.mailbox.iter().any(|it| it.tag == tag);
                self.has_polled = true;
                self.program.polled(found);
                true
            }
            Step::Fence { tag, count } => {
                let is_over = self.consume(count as usize, |it| it.tag == tag, out);
                self.has_polled &= !is_over;
                is_over
            }
        }
    }

    /// Consumes the first `count` messages that match, if they have arrived.
    fn consume(&mut self, count: usize, matches: impl Fn(&Message) -> bool, out: &mut Outbox) -> bool {
        let places: Vec<usize> =
            (0..self.mailbox.len()).filter(|&place| matches(&self.mailbox[place])).take(count).collect();
        if places.len() < count {
            return false;
        }
        let mut taken: Vec<Message> = places.iter().rev().map(|&place| self.mailbox.remove(place)).collect();
        taken.sort_by_key(|it| (it.from, it.number));
        for message in &taken {
            out.consume(message.from, message.number);
        }
        let values: Vec<(ProcessId, u64)> = taken.iter().map(|it| (it.from, it.value)).collect();
        self.program.received(&values);
        true
    }
}
