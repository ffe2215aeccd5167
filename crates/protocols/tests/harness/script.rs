//! The application of a test: it sends what the test commands, and its state is the list of what it sent and
//! received.

use std::sync::Arc;

use faultline_core::application::Job;
use faultline_core::{
    Application, Chunk, Digest, Incarnation, Membership, Outbox, Payload, ProcessId, Progress, Span,
};
use serde::{Deserialize, Serialize};

/// A rank that waits for commands from the test. Its only job is to wait for the next one.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Everything that the rank has done.
    pub(crate) done: Vec<AppAction>,
}

/// An action of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum AppAction {
    /// The rank sent this message.
    Sent(ProcessId, String),
    /// The rank received this message.
    Received(ProcessId, String),
    /// The rank left the program.
    Left,
}

/// Text of the command to leave the program. Any other text is sent as a message.
pub(crate) const LEAVE: &str = "(leave)";

/// The job of waiting for a command. The test completes the job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wait;

/// The command to send a message to a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Send {
    /// The process that receives the message.
    pub(crate) to: ProcessId,
    /// Content of the message.
    pub(crate) text: String,
}

impl Job for Wait {
    type Output = Send;

    fn cost(&self) -> Span {
        Span::ZERO
    }

    fn run(self) -> Send {
        unreachable!("the test commands the application")
    }
}

impl Application for Script {
    type Job = Wait;
    type Config = ();

    fn new(_: &Arc<()>, _: ProcessId, _: &Membership, _: u64) -> Script {
        Script { done: Vec::new() }
    }

    fn deliver(&mut self, from: ProcessId, payload: Payload, _: &mut Outbox) {
        self.done.push(AppAction::Received(from, text_of(&payload)));
    }

    fn computed(&mut self, order: Send, out: &mut Outbox) {
        if order.text == LEAVE {
            return self.done.push(AppAction::Left);
        }
        out.send(order.to, Payload::from_slice(order.text.as_bytes()));
        self.done.push(AppAction::Sent(order.to, order.text));
    }

    fn next_job(&mut self) -> Option<Wait> {
        Some(Wait)
    }

    fn snapshot(&self) -> Option<Arc<[Chunk]>> {
        let bytes = postcard::to_allocvec(&self.done).expect("actions can be encoded");
        Some([Chunk::Bytes(bytes.into())].into())
    }

    fn restore(&mut self, chunks: Option<&[Chunk]>, _: Incarnation) {
        self.done = match chunks {
            Some([Chunk::Bytes(bytes)]) => {
                postcard::from_bytes(bytes).expect("the bytes are an encoded state")
            }
            Some(other) => panic!("not a state of this application: {other:?}"),
            None => Vec::new(),
        };
    }

    fn result(&self) -> Option<Digest> {
        None
    }

    fn has_left(&self) -> bool {
        self.done.contains(&AppAction::Left)
    }

    fn progress(&self) -> Progress {
        Progress { done: self.done.len() as u64, total: 0 }
    }
}

/// Returns the content of a message.
pub(crate) fn text_of(payload: &Payload) -> String {
    String::from_utf8(payload.bytes().to_vec()).expect("a test's messages are text")
}
