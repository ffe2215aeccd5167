//! An application that receives messages in the order in which they arrive.

use std::collections::VecDeque;
use std::mem::replace;
use std::sync::Arc;

use faultline_core::{
    Application, Breakage, Chunk, Digest, Incarnation, Life, Membership, Outbox, Payload, ProcessId,
    Progress, Role, Span,
};
use faultline_workloads::messaging::{Computation, Program, RankInfo, Step, digest_of};
use serde::{Deserialize, Serialize};

use crate::application::{ApplicationConfig, ProgramRank, RankState};

/// One rank of a program with `receives: any`. It handles one event at a time: messages that arrive while it computes
/// wait.
#[derive(Clone, Debug)]
pub struct Actor {
    program: ProgramRank,
    ranks: Arc<[ProcessId]>,
    state: State,
}

/// The part of a rank that a snapshot contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    program: RankState,
    at: At,
    /// Messages that have arrived but have not been handed over, with their senders.
    waiting: VecDeque<(u32, Payload)>,
    /// The number of messages handed over from each rank.
    received: Vec<u32>,
    arrived: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum At {
    /// The rank has not begun.
    Start,
    Computing(Span),
    /// The rank performs the steps of its last reply, and then waits for messages.
    Ready,
    Finished,
    /// The program can no longer act.
    Halted,
}

impl Actor {
    /// Performs steps and hands over messages, until the rank computes or no message is left.
    fn proceed(&mut self, out: &mut Outbox) {
        while self.state.at == At::Ready {
            match self.program.pending(&mut self.state.program) {
                Some(Step::Send { to, content }) => {
                    out.send(self.ranks[to as usize], Payload::from_slice(&content));
                }
                Some(Step::Compute(Span::ZERO)) => {}
                Some(Step::Compute(span)) => self.state.at = At::Computing(span),
                Some(Step::Finish) => self.state.at = At::Finished,
                Some(_) => self.state.at = At::Halted,
                None => match self.state.waiting.pop_front() {
                    Some((from, payload)) => self.hand_over(from, &payload, out),
                    None => return,
                },
            }
        }
    }

    fn hand_over(&mut self, from: u32, payload: &Payload, out: &mut Outbox) {
        let number = &mut self.state.received[from as usize];
        out.consume(self.ranks[from as usize], *number);
        *number += 1;
        let content = String::from_utf8_lossy(payload.bytes()).into_owned();
        self.program.advance(&mut self.state.program, "message", |event| {
            Ok(event.number("from", from.into()).json("content", &content))
        });
    }

    fn initial(program: &ProgramRank, ranks: usize) -> State {
        State {
            program: program.begin(),
            at: At::Start,
            waiting: VecDeque::new(),
            received: vec![0; ranks],
            arrived: 0,
        }
    }
}

impl Application for Actor {
    type Job = Computation;
    type Config = ApplicationConfig;

    fn new(config: &Arc<ApplicationConfig>, me: ProcessId, membership: &Membership, _: u64) -> Actor {
        let ranks: Arc<[ProcessId]> = membership.with_role(Role::RANK).collect();
        let me = ranks.binary_search(&me).expect("only ranks run a program") as u32;
        let program = ProgramRank::new(config, RankInfo { me, ranks: ranks.len() as u32 });
        Actor { state: Actor::initial(&program, ranks.len()), program, ranks }
    }

    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox) {
        let from = self.ranks.binary_search(&from).expect("the sender is a rank");
        self.state.arrived += 1;
        self.state.waiting.push_back((from as u32, payload));
        self.proceed(out);
    }

    fn computed(&mut self, (): (), out: &mut Outbox) {
        if !matches!(replace(&mut self.state.at, At::Ready), At::Start | At::Computing(_)) {
            panic!("only a computing rank completes a computation");
        }
        if self.state.program.pending.is_empty() {
            self.program.advance(&mut self.state.program, "next", Ok);
        }
        self.proceed(out);
    }

    fn next_job(&mut self) -> Option<Computation> {
        match self.state.at {
            At::Start => Some(Computation(Span::ZERO)),
            At::Computing(span) => Some(Computation(span)),
            At::Ready | At::Finished | At::Halted => None,
        }
    }

    fn snapshot(&self) -> Option<Arc<[Chunk]>> {
        let state = postcard::to_allocvec(&self.state).expect("the state can be encoded");
        let bulk = Some(self.program.bulk()).filter(|it| *it > 0).map(Chunk::Virtual);
        Some([Chunk::Bytes(state.into())].into_iter().chain(bulk).collect())
    }

    /// Restores a snapshot.
    ///
    /// # Panics
    ///
    /// Panics if `chunks` are not a snapshot of the same rank of the same program.
    fn restore(&mut self, chunks: Option<&[Chunk]>, _: Incarnation) {
        self.state = match chunks {
            None => Actor::initial(&self.program, self.ranks.len()),
            Some([Chunk::Bytes(bytes), ..]) => {
                postcard::from_bytes(bytes).expect("the bytes are a snapshot of this program")
            }
            Some(_) => panic!("a snapshot of a program begins with its state"),
        };
    }

    fn result(&self) -> Option<Digest> {
        let State { program, at, arrived, .. } = &self.state;
        (*at == At::Finished).then(|| digest_of(&self.program.result(program), *arrived))
    }

    fn progress(&self) -> Progress {
        self.program.progress(&self.state.program)
    }

    fn failure(&mut self, process: ProcessId, life: Life) -> Option<Arc<Breakage>> {
        self.program.failure(process, life)
    }
}
