//! A process that runs the tasks of a graph, together with its protocol.
//!
//! The process runs, steals and lends tasks, and records facts about them. It does not depend on any particular
//! protocol.

mod host;
mod legs;
mod steal;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::process::{Gauges, In, Packet};
use faultline_core::{
    Action, Boot, Chunk, Digest, Event, Fact, FactKind, FactKinds, FactNo, Image, Job, JobNo, Life,
    LifeStart, Membership, Out, Position, Process, ProcessId, Progress, Role, Span, Stamp, TaskId, Theft,
    TheftStep, Time, To, Witness,
};
use serde::{Deserialize, Serialize};

use crate::graph::{Effects, Graph, GraphEvent};
use crate::program::{Call, Frame, Program, TaskOutcome};
use crate::recovery::{Leg, TaskInput, TaskProtocol, root};
use crate::storage::StorageInput;
use host::ProtocolHost;
pub use steal::Stealing;
use steal::Thief;

/// The configuration of every process.
#[derive(Clone, Debug)]
pub struct TaskProcessConfig<P: TaskProtocol, G: Program> {
    /// Parameters of the protocol.
    pub protocol: Arc<P::Config>,
    /// The program that the processes execute.
    pub program: Arc<G>,
    /// How idle processes steal work.
    pub stealing: Stealing,
    /// Speed of each process, as a percentage: a task that costs 1 s takes 4 s at 25 %.
    pub speeds: Arc<[u32]>,
    /// The maximum number of tasks that run at the same time in each process.
    pub cores: Arc<[u32]>,
}

/// A process that runs the tasks of a graph, together with its protocol.
#[derive(Clone, Debug)]
pub struct TaskProcess<P: TaskProtocol, G: Program> {
    protocol: P,
    inner: Inner<P, G>,
}

/// The state of a process, except for the protocol.
#[derive(Clone, Debug)]
struct Inner<P: TaskProtocol, G: Program> {
    me: ProcessId,
    life: Life,
    is_rank: bool,
    membership: Arc<Membership>,
    program: Arc<G>,
    speed: u32,
    cores: usize,
    graph: Graph,
    held: bool,
    jobs: Vec<Running>,
    next_job: JobNo,
    thief: Thief,
    /// The result of the program, once it is known.
    over: Option<Digest>,
    /// Whether the result was recorded in the current state.
    is_end_reported: bool,
    /// The smallest number that any task is known to have published.
    hint: u64,
    /// The stolen task of each theft whose result has arrived, but whose receipt has not been sent. Receipts
    /// are sent only for these thefts.
    merged: BTreeMap<Theft, TaskId>,
    /// The number of tasks whose outcomes were applied in this life.
    ran: u64,
    /// Inputs that the protocol has not handled yet.
    unseen: VecDeque<TaskInput<P>>,
    logs: bool,
    /// Events that changed the graph since the last segment of the log. Always empty for a protocol without a log.
    events: Vec<GraphEvent>,
    /// Whether the protocol has been told that there are events.
    is_told: bool,
    /// The kinds of facts that are recorded.
    taken: FactKinds,
    /// The number of facts in this life, recorded or not.
    facts: u64,
}

/// A job in progress.
#[derive(Clone, Copy, Debug)]
struct Running {
    job: JobNo,
    theft: Theft,
    task: TaskId,
    cost: Span,
    hint: u64,
}

/// The header of a leg with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The theft to which the leg belongs.
    pub theft: Theft,
    /// The role of the message in its theft.
    pub leg: Leg,
}

impl Stamp for Mark {
    fn position(&self) -> Position {
        Position::default()
    }
}

/// A message between processes that carries neither a task nor a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TaskProcessMessage<C> {
    /// A leg without content.
    Leg(Theft, Leg),
    /// The victim has no task for the thief.
    Nothing(Theft),
    /// The program has ended with this result.
    Over(Digest),
    /// A number that a task published.
    Hint(u64),
    /// A message of the protocol.
    Protocol(C),
}

/// One task, run by a worker.
#[derive(Clone, Debug)]
pub struct TaskJob<G> {
    program: Arc<G>,
    call: Call,
    cost: Span,
    hint: u64,
}

impl<G> TaskJob<G> {
    pub(crate) fn new(program: Arc<G>, call: Call, cost: Span, hint: u64) -> TaskJob<G> {
        TaskJob { program, call, cost, hint }
    }
}

impl<G> PartialEq for TaskJob<G> {
    fn eq(&self, other: &TaskJob<G>) -> bool {
        (&self.call, self.cost, self.hint) == (&other.call, other.cost, other.hint)
    }
}

impl<G: Program> Job for TaskJob<G> {
    type Output = TaskOutcome;

    fn cost(&self) -> Span {
        self.cost
    }

    fn run(self) -> TaskOutcome {
        let mut frame = Frame::of(&self.call, self.hint);
        self.program.run(&self.call, &mut frame);
        frame.finish()
    }
}

impl<P: TaskProtocol, G: Program> Process for TaskProcess<P, G> {
    type Stamp = Mark;
    type Control = TaskProcessMessage<P::Control>;
    type Head = P::Head;
    type Saved = P::Saved;
    type Job = TaskJob<G>;
    type Config = TaskProcessConfig<P, G>;
    const FIFO: bool = P::FIFO;

    fn start(start: LifeStart<Self::Config>, now: Time, out: &mut Out<Self>) -> Self {
        let LifeStart { me, life, boot, membership, config, record, seed, facts } = start;
        let of = |all: &Arc<[u32]>| all.get(me.index()).copied().unwrap_or(1).max(1);
        let mut inner = Inner {
            me,
            life,
            is_rank: membership.member(me).role == Role::RANK,
            membership: membership.clone(),
            program: config.program.clone(),
            speed: config.speeds.get(me.index()).copied().unwrap_or(100).max(1),
            cores: of(&config.cores) as usize,
            graph: Graph::default(),
            held: true,
            jobs: Vec::new(),
            next_job: JobNo(0),
            thief: Thief::new(config.stealing, seed ^ u64::from(life.0)),
            over: None,
            is_end_reported: false,
            hint: u64::MAX,
            merged: BTreeMap::new(),
            ran: 0,
            unseen: VecDeque::new(),
            logs: P::logs(&config.protocol),
            events: Vec::new(),
            is_told: false,
            taken: facts,
            facts: 0,
        };
        if boot == Boot::Fresh && me == root(&membership) {
            inner.graph = inner.first(out);
        }
        let config = config.protocol.clone();
        let start = LifeStart { me, life, boot, membership, config, record, seed, facts };
        let protocol = P::start(start, now, &mut ProtocolHost { inner: &mut inner, out });
        let mut place = TaskProcess { protocol, inner };
        place.settle(now, out);
        place
    }

    fn handle(&mut self, event: In<Self>, now: Time, out: &mut Out<Self>) {
        let input = match event {
            Event::Packet { from, packet: Packet::Application { stamp, payload, .. } } => {
                self.inner.arrived(from, stamp, payload.bytes(), out);
                None
            }
            Event::Packet { from, packet: Packet::Control(word) } => {
                self.inner.handle_control(from, word, now, out)
            }
            Event::Membership(membership) => {
                self.inner.membership_changed(&membership, out);
                Some(TaskInput::Membership(membership))
            }
            Event::Computed(no, outcome) => {
                self.inner.computed(no, outcome, out);
                None
            }
            // No task-based program supports flipped bits.
            Event::Flip(_) => None,
            Event::Timeout => {
                self.protocol.next_deadline().filter(|it| *it <= now).map(|_| TaskInput::Timeout)
            }
            event => {
                let process = &mut ProtocolHost { inner: &mut self.inner, out };
                StorageInput::of(event, process).map(TaskInput::Storage)
            }
        };
        if let Some(input) = input {
            self.feed(input, now, out);
        }
        self.settle(now, out);
    }

    fn saved_len(saved: &P::Saved) -> u64 {
        P::saved_len(saved)
    }

    fn next_deadline(&self) -> Option<Time> {
        let request = self.inner.is_idle().then(|| self.inner.thief.next_request()).flatten();
        self.protocol.next_deadline().into_iter().chain(request).min()
    }

    fn gauges(&self) -> Gauges {
        Gauges { progress: Progress { done: self.inner.ran, total: 0 }, ..self.protocol.gauges() }
    }

    fn control_kind(message: &TaskProcessMessage<P::Control>) -> &'static str {
        match message {
            TaskProcessMessage::Leg(_, Leg::Ask) => "ask",
            TaskProcessMessage::Leg(..) => "receipt",
            TaskProcessMessage::Nothing(_) => "nothing to steal",
            TaskProcessMessage::Over(_) => "over",
            TaskProcessMessage::Hint(_) => "hint",
            TaskProcessMessage::Protocol(message) => P::control_kind(message),
        }
    }
}

impl<P: TaskProtocol, G: Program> TaskProcess<P, G> {
    /// Returns the protocol, for tests.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Returns the graph, for tests.
    pub fn graph(&self) -> &Graph {
        &self.inner.graph
    }

    fn feed(&mut self, input: TaskInput<P>, now: Time, out: &mut Out<Self>) {
        self.protocol.handle(input, now, &mut ProtocolHost { inner: &mut self.inner, out });
    }

    /// Passes all inputs to the protocol, then starts jobs and asks for work.
    fn settle(&mut self, now: Time, out: &mut Out<Self>) {
        loop {
            while let Some(input) = self.inner.unseen.pop_front() {
                self.feed(input, now, out);
            }
            if !self.inner.events.is_empty() && !self.inner.is_told {
                self.inner.is_told = true;
                self.feed(TaskInput::Changed, now, out);
                continue;
            }
            self.inner.compute(&self.protocol, out);
            if !self.inner.unseen.is_empty() || !self.inner.events.is_empty() && !self.inner.is_told {
                continue;
            }
            if !self.inner.is_idle() {
                return;
            }
            let Inner { me, life, membership, thief, unseen, .. } = &mut self.inner;
            let Some(theft) = thief.ask(*me, *life, membership, now) else { return };
            unseen.push_back(TaskInput::Due(theft, Leg::Ask));
        }
    }
}

impl<P: TaskProtocol, G: Program> Inner<P, G> {
    fn fact(&mut self, kind: FactKind, make: impl FnOnce() -> Fact, out: &mut Out<TaskProcess<P, G>>) {
        self.facts += 1;
        if self.taken.contains(kind) {
            out.push(Action::Fact(make()));
        }
    }

    fn step(&mut self, theft: Theft, task: TaskId, step: TheftStep, out: &mut Out<TaskProcess<P, G>>) {
        self.fact(step.kind(), || Fact::Theft { theft, task, step }, out);
    }

    fn record_event(&mut self, event: impl FnOnce() -> GraphEvent) {
        if self.logs {
            self.events.push(event());
        }
    }

    /// Returns the graph of an image, updated by the log that follows it, up to the first event that is
    /// impossible in the graph. If there is such an event, the facts show that the state differs from the
    /// recorded one. Also restores the hint from the log.
    fn replay(&mut self, image: &Image<P::Head, P::Saved>, log: &[Arc<Image<P::Head, P::Saved>>]) -> Graph {
        let mut graph = Graph::load(&image.snapshot.application);
        for event in log.iter().flat_map(|it| events(&it.snapshot.application)) {
            if let GraphEvent::Ran { hint, outcome, .. } = &event {
                self.hint = self.hint.min(*hint).min(outcome.told.unwrap_or(u64::MAX));
            }
            if !graph.redo(event) {
                break;
            }
        }
        graph
    }

    fn send_control(
        &mut self,
        to: ProcessId,
        word: TaskProcessMessage<P::Control>,
        out: &mut Out<TaskProcess<P, G>>,
    ) {
        out.push(Action::Send { to: To::One(to), packet: Packet::Control(word) });
    }

    /// Sends a message to every other running rank.
    fn broadcast(&mut self, word: &TaskProcessMessage<P::Control>, out: &mut Out<TaskProcess<P, G>>) {
        let membership = self.membership.clone();
        for it in membership.with_role(Role::RANK) {
            if it != self.me && membership.member(it).up {
                self.send_control(it, word.clone(), out);
            }
        }
    }

    /// Runs the program's first task, and returns the graph with which the program starts.
    fn first(&mut self, out: &mut Out<TaskProcess<P, G>>) -> Graph {
        let mut frame = Frame::main();
        let result = self.program.main(&mut frame);
        let (outcome, result) = frame.finish_main(result);
        let spawned = outcome.spawned.len() as u32;
        self.fact(FactKind::Ran, || Fact::Ran { task: TaskId::MAIN, spawned, cost_us: 0 }, out);
        Graph::begin(outcome, result)
    }

    fn witness(&self, effects: Effects) -> Witness {
        let Effects { spawned, ran } = effects;
        Witness { life: self.life, upto: FactNo(self.facts), sent: spawned, delivered: ran }
    }

    /// Returns whether this process could run a task but has none that is ready.
    fn is_idle(&self) -> bool {
        let may_work = self.is_rank && !self.held && self.over.is_none();
        may_work && !self.graph.is_ready() && self.jobs.len() < self.cores
    }

    fn compute(&mut self, protocol: &P, out: &mut Out<TaskProcess<P, G>>) {
        while !self.held && self.over.is_none() && self.jobs.len() < self.cores {
            let Some((theft, call)) = self.graph.execute() else { return };
            if let Some(orphan) = protocol.orphan(call.id)
                && self.graph.lend_again(orphan, theft, call.id)
            {
                self.step(orphan, call.id, TheftStep::Lent, out);
                self.record_event(|| GraphEvent::Lent(orphan, theft, call.id));
                self.unseen.push_back(TaskInput::Due(orphan, Leg::Task));
                continue;
            }
            let cost = Span(self.program.cost(&call).0.saturating_mul(100) / u64::from(self.speed));
            let job = self.next_job;
            self.next_job = job.next();
            self.jobs.push(Running { job, theft, task: call.id, cost, hint: self.hint });
            let job_of = TaskJob::new(self.program.clone(), call, cost, self.hint);
            out.push(Action::Compute(job, job_of));
        }
    }

    fn computed(&mut self, no: JobNo, outcome: TaskOutcome, out: &mut Out<TaskProcess<P, G>>) {
        let Some(index) = self.jobs.iter().position(|it| it.job == no) else { return };
        let Running { theft, task, cost, hint, .. } = self.jobs.swap_remove(index);
        let spawned = outcome.spawned.len() as u32;
        self.note_hint(outcome.told.unwrap_or(u64::MAX), true, out);
        let event = self.logs.then(|| GraphEvent::Ran { theft, task, hint, outcome: outcome.clone() });
        if !self.graph.apply(theft, task, outcome) {
            return;
        }
        self.ran += 1;
        let cost_us = u32::try_from(cost.0 / 1000).unwrap_or(u32::MAX);
        self.fact(FactKind::Ran, || Fact::Ran { task, spawned, cost_us }, out);
        self.events.extend(event);
        self.check_done(theft, out);
    }

    /// Announces the result of a theft to the protocol if the result is complete.
    fn check_done(&mut self, theft: Theft, out: &mut Out<TaskProcess<P, G>>) {
        if let Some(task) = self.graph.owed(theft).filter(|_| self.graph.is_done(theft)) {
            if theft != Theft::NONE {
                self.step(theft, task, TheftStep::Done, out);
            }
            self.unseen.push_back(TaskInput::Due(theft, Leg::Result));
        }
    }

    /// Handles a number that a task published in this process or in another one.
    fn note_hint(&mut self, hint: u64, is_own: bool, out: &mut Out<TaskProcess<P, G>>) {
        if hint < self.hint {
            self.hint = hint;
            if is_own {
                self.broadcast(&TaskProcessMessage::Hint(hint), out);
            }
        }
    }

    fn membership_changed(&mut self, membership: &Arc<Membership>, out: &mut Out<TaskProcess<P, G>>) {
        let before = core::mem::replace(&mut self.membership, membership.clone());
        self.thief.membership_changed(membership);
        for (index, (old, new)) in before.members.iter().zip(membership.members.iter()).enumerate() {
            let it = ProcessId(index as u32);
            let is_new = new.up && (!old.up || new.life != old.life) && it != self.me;
            if is_new && new.role == Role::RANK && self.hint < u64::MAX {
                self.send_control(it, TaskProcessMessage::Hint(self.hint), out);
            }
        }
        // A new life does not know of the end, and the process that announced it may have failed before all others
        // learned of it.
        if let Some(digest) = self.over {
            self.broadcast(&TaskProcessMessage::Over(digest), out);
        }
    }

    /// Ends the program. Only the process that completed the result knows its `effects`; others pass the default.
    fn end(&mut self, digest: Digest, effects: Effects, out: &mut Out<TaskProcess<P, G>>) {
        self.over = Some(digest);
        // A held process has not finished yet; it records the end once it is released.
        if !self.held && !core::mem::replace(&mut self.is_end_reported, true) {
            let witness = self.witness(effects);
            self.fact(FactKind::Finished, || Fact::Finished(Box::new((witness, digest))), out);
        }
    }
}

/// Decodes the events of a log segment.
fn events(segment: &[Chunk]) -> Vec<GraphEvent> {
    let [Chunk::Bytes(bytes)] = segment else { panic!("a segment of a log is a single chunk") };
    postcard::from_bytes(bytes).expect("a segment of a log can be decoded")
}
