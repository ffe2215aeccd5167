//! Turns a program into an application. Steps that need neither time nor other ranks are done immediately; the others
//! are done once their time has passed or their messages have arrived.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::replace;

use faultline_core::{
    Application, Breakage, Chunk, Digest, Incarnation, Job, Life, Membership, Outbox, Payload, ProcessId,
    Progress, Role, Span,
};
use serde::{Deserialize, Serialize};

use super::collective::{Collective, Then};
use super::mailbox::Mailbox;
use super::{Message, Program, RankInfo, Step, digest_of, seal, sequential};

/// Runs one rank of a program as an application.
#[derive(Clone, Debug)]
pub struct Performer<P: Program> {
    program: P,
    place: RankInfo,
    /// Processes by rank.
    ranks: Arc<[ProcessId]>,
    state: State<P::State>,
}

/// The part of a rank that a snapshot contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State<S> {
    program: S,
    at: At,
    mailbox: Mailbox,
}

/// Current activity of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum At {
    /// The rank has not begun.
    Start,
    Computing(Span),
    /// The rank computes in pieces until the messages have arrived. `left` pieces remain, including the
    /// current one.
    Polling {
        from: Vec<u32>,
        piece: Span,
        left: u32,
    },
    /// The rank waits for the next message from each of these ranks, on behalf of the program or of a collective.
    Waiting {
        from: Vec<u32>,
        collective: Option<Collective>,
    },
    /// The rank is choosing its next step. Never part of a snapshot.
    Deciding,
    Finished,
    /// The program can no longer act.
    Halted,
}

/// A computation that exists only as modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Computation(pub Span);

impl Job for Computation {
    type Output = ();

    fn cost(&self) -> Span {
        self.0
    }

    fn run(self) {}
}

impl<P: Program> Performer<P> {
    /// Performs steps until one needs time or other ranks.
    fn proceed(&mut self, out: &mut Outbox) {
        loop {
            match &self.state.at {
                At::Deciding => self.decide(out),
                At::Waiting { .. } if self.state.mailbox.is_complete() => self.take(out),
                _ => return,
            }
        }
    }

    /// Begins the next step.
    fn decide(&mut self, out: &mut Outbox) {
        match self.program.next(&mut self.state.program) {
            Step::Compute(Span::ZERO) => {}
            Step::Compute(span) => self.state.at = At::Computing(span),
            Step::Send { to, content } => self.send(to, content, out),
            Step::Receive { from } => self.wait(vec![from], None),
            Step::Gather { from } => self.wait(from, None),
            Step::Poll { from, piece, pieces } => {
                self.wait(from, None);
                self.poll(piece, pieces);
            }
            Step::Barrier => self.continue_collective(Collective::Barrier { distance: 1 }, Vec::new(), out),
            Step::Broadcast { root, content } => {
                let content = (root == self.place.me).then_some(content);
                self.continue_collective(
                    Collective::Broadcast { root, content, has_begun: false },
                    Vec::new(),
                    out,
                );
            }
            Step::Reduce { root, part, operation } => {
                let collective = Collective::Reduce { root, part, operation, has_begun: false };
                self.continue_collective(collective, Vec::new(), out);
            }
            Step::AllToAll { contents } => {
                self.continue_collective(
                    Collective::AllToAll { contents, has_begun: false },
                    Vec::new(),
                    out,
                );
            }
            Step::Finish => self.state.at = At::Finished,
            Step::Halt => self.state.at = At::Halted,
        }
    }

    fn send(&mut self, to: u32, content: Vec<u8>, out: &mut Outbox) {
        let number = self.state.mailbox.number(to);
        out.send(self.other(to), seal(content, number));
    }

    fn wait(&mut self, from: Vec<u32>, collective: Option<Collective>) {
        from.iter().for_each(|&it| _ = self.other(it));
        self.state.mailbox.await_from(&from);
        self.state.at = At::Waiting { from, collective };
    }

    /// Computes another piece, unless none is left or all messages have arrived.
    fn poll(&mut self, piece: Span, left: u32) {
        let At::Waiting { from, .. } = &mut self.state.at else { panic!("only a waiting rank polls") };
        if left > 0 && !self.state.mailbox.is_complete() {
            self.state.at = At::Polling { from: core::mem::take(from), piece, left };
        }
    }

    /// Receives the awaited messages.
    fn take(&mut self, out: &mut Outbox) {
        let at = replace(&mut self.state.at, At::Deciding);
        let At::Waiting { from, collective } = at else { panic!("only a waiting rank receives") };
        let taken = self.state.mailbox.take(&from).into_iter();
        let received: Vec<Message> = taken
            .map(|(number, message)| {
                out.consume(self.other(message.from), number);
                message
            })
            .collect();
        match collective {
            None => self.program.received(&mut self.state.program, received),
            Some(collective) => self.continue_collective(collective, received, out),
        }
    }

    /// Continues a collective with the messages that it waited for.
    fn continue_collective(&mut self, mut collective: Collective, received: Vec<Message>, out: &mut Outbox) {
        let stage = match collective.stage(self.place, received) {
            Ok(stage) => stage,
            Err(why) => {
                self.state.at = At::Deciding;
                return self.program.mismatch(&mut self.state.program, why);
            }
        };
        for (to, content) in stage.sends {
            self.send(to, content, out);
        }
        match stage.then {
            Then::Await(from) => self.wait(from, Some(collective)),
            Then::Over(brought) => {
                self.state.at = At::Deciding;
                if let Some(brought) = brought {
                    self.program.received(&mut self.state.program, brought);
                }
            }
        }
    }

    fn other(&self, rank: u32) -> ProcessId {
        let RankInfo { me, ranks } = self.place;
        assert!(rank < ranks, "rank {rank} does not exist: there are {ranks} ranks");
        assert_ne!(rank, me, "a rank cannot send to itself or receive from itself");
        self.ranks[rank as usize]
    }

    fn initial(program: &P) -> State<P::State> {
        State { program: program.begin(), at: At::Start, mailbox: Mailbox::default() }
    }
}

impl<P: Program> Application for Performer<P> {
    type Job = Computation;
    type Config = P::Config;

    fn new(config: &Arc<P::Config>, me: ProcessId, membership: &Membership, _: u64) -> Performer<P> {
        let ranks: Arc<[ProcessId]> = membership.with_role(Role::RANK).collect();
        let number = ranks.binary_search(&me).expect("only ranks run a program");
        let place = RankInfo { me: number as u32, ranks: ranks.len() as u32 };
        let program = P::new(config, place);
        Performer { state: Performer::initial(&program), program, place, ranks }
    }

    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox) {
        let from = self.ranks.binary_search(&from).expect("the sender is a rank");
        self.state.mailbox.arrive(from as u32, payload);
        self.proceed(out);
    }

    fn computed(&mut self, (): (), out: &mut Outbox) {
        match replace(&mut self.state.at, At::Deciding) {
            At::Start | At::Computing(_) => {}
            At::Polling { from, piece, left } => {
                self.state.at = At::Waiting { from, collective: None };
                self.poll(piece, left - 1);
            }
            other => panic!("a rank in state {other:?} computes nothing"),
        }
        self.proceed(out);
    }

    fn next_job(&mut self) -> Option<Computation> {
        match self.state.at {
            At::Start => Some(Computation(Span::ZERO)),
            At::Computing(span) | At::Polling { piece: span, .. } => Some(Computation(span)),
            At::Waiting { .. } | At::Deciding | At::Finished | At::Halted => None,
        }
    }

    /// Never returns `None`.
    fn snapshot(&self) -> Option<Arc<[Chunk]>> {
        let state = postcard::to_allocvec(&self.state).expect("a program's state can be encoded");
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
            None => Performer::initial(&self.program),
            Some([Chunk::Bytes(bytes), ..]) => {
                postcard::from_bytes(bytes).expect("the bytes are a snapshot of this program")
            }
            Some(_) => panic!("a snapshot of a program begins with its state"),
        };
    }

    fn result(&self) -> Option<Digest> {
        let State { program, at, mailbox } = &self.state;
        matches!(at, At::Finished).then(|| digest_of(&self.program.result(program), mailbox.arrived()))
    }

    fn progress(&self) -> Progress {
        self.program.progress(&self.state.program)
    }

    fn flip(&mut self, bit: u64) -> bool {
        self.program.flip(&mut self.state.program, bit)
    }

    fn failure(&mut self, process: ProcessId, life: Life) -> Option<Arc<Breakage>> {
        self.program.failure(process, life)
    }

    fn reference(
        config: &Arc<P::Config>,
        membership: &Membership,
        _: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>> {
        sequential::<P>(config, membership)
    }
}
