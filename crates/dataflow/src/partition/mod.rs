//! A process that runs partitions of a planned program, together with its protocol.
//!
//! Each rank that is present from the start begins with the partition of the same name, and may also run those of ranks
//! that join later. It takes over the partitions of ranks that fail permanently or leave. It cedes its own partition
//! before it leaves, and the partitions of other ranks once these ranks have joined, as its protocol decides. It runs
//! the tasks of its partitions in the order of the plan, sends the values that other partitions read, and records facts
//! about both.
//!
//! | module | contents |
//! | --- | --- |
//! | `share` | the tasks that a partition has executed, and the values that it needs |
//! | `rerun` | tasks that are re-executed for others |
//! | `help` | tasks that another process re-executes in place of this one |
//! | `protocol` | the interface to protocols |
//! | `host` | the process as its protocol sees it |

mod help;
mod host;
mod protocol;
mod rerun;
mod share;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::process::{Gauges, In, Packet};
use faultline_core::{
    Action, Boot, Chunk, Digest, Event, Fact, FactKind, FactKinds, FactNo, Incarnation, JobNo, Life,
    LifeStart, Membership, MessageId, Out, Payload, PlannedTask, Position, Process, ProcessId, Progress,
    Role, Span, Stamp, TaskId, Time, To, Witness,
};
use serde::{Deserialize, Serialize};

use crate::partition_map::PartitionMap;
use crate::plan::{Plan, TaskNo, Value};
use crate::program::{Call, Mode, Program, TaskOutcome};
use crate::storage::StorageInput;
use crate::task_process::TaskJob;
pub use help::HelpNo;
use help::{Help, Helping};
use host::ProtocolHost;
pub use protocol::{Delivery, PartitionHost, PartitionInput, PartitionProtocol, RerunOptions};
use rerun::Rerun;
pub use share::Executed;
use share::Share;

/// The configuration of every process that runs partitions.
#[derive(Clone, Debug)]
pub struct PartitionConfig<P: PartitionProtocol, G: Program> {
    /// Parameters of the protocol.
    pub protocol: Arc<P::Config>,
    /// The program to compute.
    pub program: Arc<G>,
    /// The program's plan, with one partition for each rank.
    pub plan: Arc<Plan>,
    /// The process that runs each partition when the program starts.
    pub initial_map: PartitionMap,
    /// The window: a partition executes only tasks that are fewer than this many steps after its first incomplete
    /// step. At least 1.
    pub window: u32,
    /// Speed of each process, as a percentage: a task that costs 1 s takes 4 s at 25 %.
    pub speeds: Arc<[u32]>,
    /// The maximum number of tasks that each process runs at the same time.
    pub cores: Arc<[u32]>,
}

/// One process of a planned program: a protocol around the partitions that run here.
#[derive(Clone, Debug)]
pub struct Partition<P: PartitionProtocol, G: Program> {
    protocol: P,
    inner: Inner<P, G>,
}

/// The state of the process, except for the protocol.
#[derive(Clone, Debug)]
struct Inner<P: PartitionProtocol, G: Program> {
    me: ProcessId,
    life: Life,
    membership: Arc<Membership>,
    /// The processes to which messages for partitions are sent. The map changes on a recovery, not when the
    /// membership changes. A process that has restarted does not know the map until its first recovery; until
    /// then, it assumes that each partition runs on the process of the same name.
    partition_map: PartitionMap,
    initial_map: PartitionMap,
    program: Arc<G>,
    plan: Arc<Plan>,
    window: u32,
    /// Number of complete steps for which values stay in memory after they are sent or received.
    recent_steps: u32,
    speed: u32,
    cores: usize,
    /// Whether the application has begun. Messages sent before that may not reach their receivers.
    has_begun: bool,
    /// The partitions that run here.
    running: BTreeMap<ProcessId, Running>,
    jobs: Vec<Executing>,
    next_job: JobNo,
    help: Help,
    /// The result of the program, once it is known.
    over: Option<Digest>,
    /// Whether the end of all partitions that run here was recorded.
    has_finished: bool,
    /// Number of tasks whose outcomes were applied to shares in this life.
    ran: u64,
    /// Inputs that the protocol has not handled yet.
    unseen: VecDeque<PartitionInput<P>>,
    /// The kinds of facts that are recorded.
    taken: FactKinds,
    /// The number of facts in this life, recorded or not.
    facts: u64,
}

/// A partition that runs here.
#[derive(Clone, Debug)]
struct Running {
    share: Share,
    rerun: Option<Rerun>,
    held: bool,
    /// Outcomes of tasks that ended while the partition was held.
    waiting: Vec<(Executing, Vec<Option<Chunk>>)>,
}

/// A job in progress.
#[derive(Clone, Copy, Debug)]
struct Executing {
    job: JobNo,
    partition: ProcessId,
    task: TaskNo,
    cost: Span,
    is_again: bool,
}

impl Stamp for Value {
    fn position(&self) -> Position {
        Position::default()
    }
}

/// A message from one process to another that does not carry a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PartitionMessage<C> {
    /// The program has ended with this result.
    Over(Digest),
    /// Asks the receiver to execute this task for the sender.
    Help(HelpNo, Call),
    /// The outcome of the task that the sender was asked to execute.
    Helped(HelpNo, TaskOutcome),
    /// A message of the protocol.
    Protocol {
        /// The sending partition, or the sending process if it runs none.
        from: ProcessId,
        /// The receiving partition, or the receiving process if it runs none.
        to: ProcessId,
        /// The message.
        message: C,
    },
}

impl<P: PartitionProtocol, G: Program> Process for Partition<P, G> {
    type Stamp = Value;
    type Control = PartitionMessage<P::Control>;
    type Head = P::Head;
    type Saved = P::Saved;
    type Job = TaskJob<G>;
    type Config = PartitionConfig<P, G>;
    const FIFO: bool = P::FIFO;

    fn start(start: LifeStart<Self::Config>, now: Time, out: &mut Out<Self>) -> Self {
        let LifeStart { me, life, boot, membership, config, record, seed, facts } = start;
        let mut inner = Inner {
            me,
            life,
            membership: membership.clone(),
            partition_map: PartitionMap::default(),
            initial_map: config.initial_map.clone(),
            program: config.program.clone(),
            plan: config.plan.clone(),
            window: config.window.max(1),
            recent_steps: if P::keeps_recent_values(&config.protocol) { config.window.max(1) } else { 0 },
            speed: config.speeds.get(me.index()).copied().unwrap_or(100).max(1),
            cores: config.cores.get(me.index()).copied().unwrap_or(1).max(1) as usize,
            has_begun: boot != Boot::Fresh || membership.member(me).up,
            running: BTreeMap::new(),
            jobs: Vec::new(),
            next_job: JobNo(0),
            help: Help::default(),
            over: None,
            has_finished: false,
            ran: 0,
            unseen: VecDeque::new(),
            taken: facts,
            facts: 0,
        };
        if boot == Boot::Fresh {
            inner.partition_map = config.initial_map.clone();
            for partition in membership.with_role(Role::RANK) {
                if inner.partition_map.host_of(partition) == me {
                    inner.run_initial(partition, out);
                }
            }
        }
        let config = config.protocol.clone();
        let start = LifeStart { me, life, boot, membership, config, record, seed, facts };
        let protocol = P::start(start, now, &mut ProtocolHost { inner: &mut inner, out });
        let mut process = Partition { protocol, inner };
        process.settle(now, out);
        process
    }

    fn handle(&mut self, event: In<Self>, now: Time, out: &mut Out<Self>) {
        let input = match event {
            Event::Packet { packet: Packet::Application { id, stamp, payload }, .. } => {
                let content = postcard::from_bytes(payload.bytes()).expect("processes run the same program");
                Some(PartitionInput::Arrived(Delivery { id, value: stamp, content }))
            }
            Event::Packet { packet: Packet::Control(PartitionMessage::Over(digest)), .. } => {
                self.inner.end(digest);
                None
            }
            Event::Packet { from, packet: Packet::Control(PartitionMessage::Help(no, call)) } => {
                self.inner.help.asked(from, no, call);
                None
            }
            Event::Packet { packet: Packet::Control(PartitionMessage::Helped(no, outcome)), .. } => {
                self.inner.helped(no, outcome, out);
                None
            }
            Event::Packet {
                packet: Packet::Control(PartitionMessage::Protocol { from, to, message }),
                ..
            } => Some(PartitionInput::Control { from, to, message }),
            Event::Membership(membership) => {
                self.inner.membership_changed(&membership, out);
                Some(PartitionInput::Membership(membership))
            }
            Event::Computed(no, outcome) => {
                self.inner.computed(no, outcome, out);
                None
            }
            // No task-based program supports flipped bits.
            Event::Flip(_) => None,
            Event::Timeout => {
                self.protocol.next_deadline().filter(|it| *it <= now).map(|_| PartitionInput::Timeout)
            }
            event => {
                let process = &mut ProtocolHost { inner: &mut self.inner, out };
                StorageInput::of(event, process).map(PartitionInput::Storage)
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
        self.protocol.next_deadline()
    }

    fn gauges(&self) -> Gauges {
        Gauges { progress: Progress { done: self.inner.ran, total: 0 }, ..self.protocol.gauges() }
    }

    fn control_kind(message: &PartitionMessage<P::Control>) -> &'static str {
        match message {
            PartitionMessage::Over(_) => "over",
            PartitionMessage::Help(..) => "help",
            PartitionMessage::Helped(..) => "helped",
            PartitionMessage::Protocol { message, .. } => P::control_kind(message),
        }
    }
}

impl<P: PartitionProtocol, G: Program> Partition<P, G> {
    /// Returns the protocol, for tests.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Returns the tasks that a partition running here has executed, for tests.
    pub fn executed(&self, partition: ProcessId) -> Option<&Executed> {
        self.inner.running.get(&partition).map(|it| it.share.executed())
    }

    /// Returns the values that a partition running here has in memory, for tests.
    pub fn values(&self, partition: ProcessId) -> impl Iterator<Item = Value> {
        self.inner.running.get(&partition).into_iter().flat_map(|it| it.share.in_memory().map(|it| *it.0))
    }

    /// Returns the tasks that a partition running here has re-executed since the last recovery or still has
    /// to re-execute, and whether all of them have ended, for tests.
    pub fn executed_again(&self, partition: ProcessId) -> Option<(BTreeSet<TaskNo>, bool)> {
        self.inner.running.get(&partition)?.rerun.as_ref().map(Rerun::tasks)
    }

    fn feed(&mut self, input: PartitionInput<P>, now: Time, out: &mut Out<Self>) {
        self.protocol.handle(input, now, &mut ProtocolHost { inner: &mut self.inner, out });
    }

    /// Passes all inputs to the protocol, starts jobs, and records the end if it has been reached.
    fn settle(&mut self, now: Time, out: &mut Out<Self>) {
        while let Some(input) = self.inner.unseen.pop_front() {
            self.feed(input, now, out);
        }
        self.inner.compute(out);
        self.inner.finish(out);
    }
}

impl<P: PartitionProtocol, G: Program> Inner<P, G> {
    fn fact(&mut self, kind: FactKind, make: impl FnOnce() -> Fact, out: &mut Out<Partition<P, G>>) {
        self.facts += 1;
        if self.taken.contains(kind) {
            out.push(Action::Fact(make()));
        }
    }

    fn send_control(
        &mut self,
        to: ProcessId,
        word: PartitionMessage<P::Control>,
        out: &mut Out<Partition<P, G>>,
    ) {
        out.push(Action::Send { to: To::One(to), packet: Packet::Control(word) });
    }

    /// Tells every other running rank the result.
    fn announce_end(&mut self, digest: Digest, out: &mut Out<Partition<P, G>>) {
        let membership = self.membership.clone();
        for it in membership.with_role(Role::RANK) {
            if it != self.me && membership.member(it).up {
                self.send_control(it, PartitionMessage::Over(digest), out);
            }
        }
    }

    fn run(&mut self, partition: ProcessId, mut share: Share) {
        share.keep_recent(self.recent_steps);
        self.stop(partition);
        let running = Running { share, rerun: None, held: true, waiting: Vec::new() };
        self.running.insert(partition, running);
    }

    /// Runs a partition from its initial state, in which no task of the program has been executed.
    fn run_initial(&mut self, partition: ProcessId, out: &mut Out<Partition<P, G>>) {
        self.run(partition, Share::new(partition, &self.plan, self.window));
        if partition != self.me {
            let absorbed = (partition, None, Witness::default(), Incarnation::default());
            self.fact(FactKind::Absorbed, || Fact::Absorbed(Box::new(absorbed)), out);
        }
    }

    /// Discards the state of a partition, and its jobs. The end of the remaining partitions will be recorded again.
    fn stop(&mut self, partition: ProcessId) {
        self.jobs.retain(|it| it.partition != partition);
        self.help.forget(partition);
        self.has_finished = false;
        self.running.remove(&partition);
    }

    fn witness(&self, sent: u64, delivered: u64) -> Witness {
        Witness { life: self.life, upto: FactNo(self.facts), sent, delivered }
    }

    /// Begins jobs: first executions take precedence over re-executions, and both over tasks requested by
    /// other processes.
    fn compute(&mut self, out: &mut Out<Partition<P, G>>) {
        if !self.has_begun {
            return;
        }
        while self.jobs.len() + self.help.executing() < self.cores {
            let open = |it: &&mut Running| !it.held;
            let first = self
                .running
                .iter_mut()
                .filter(|(_, it)| open(it))
                .find_map(|(partition, it)| Some((*partition, it.share.next()?, false)));
            let next = first.or_else(|| {
                self.running
                    .iter_mut()
                    .filter(|(_, it)| open(it))
                    .find_map(|(partition, it)| Some((*partition, it.rerun.as_mut()?.next()?, true)))
            });
            let Some((partition, task, is_again)) = next else { break };
            let call = self.call(partition, task, is_again);
            let (job, cost) = self.begin(call, out);
            self.jobs.push(Executing { job, partition, task, cost, is_again });
        }
        self.help_others(out);
        self.ask_for_help(out);
    }

    fn call(&self, partition: ProcessId, task: TaskNo, is_again: bool) -> Call {
        let running = &self.running[&partition];
        self.plan.call(task, |value| match &running.rerun {
            Some(rerun) if is_again => rerun.value(value).cloned().flatten(),
            _ => running.share.value(value).cloned().flatten(),
        })
    }

    fn cost(&self, call: &Call) -> Span {
        Span(self.program.cost(call).0.saturating_mul(100) / u64::from(self.speed))
    }

    fn begin(&mut self, call: Call, out: &mut Out<Partition<P, G>>) -> (JobNo, Span) {
        let (job, cost) = (self.next_job, self.cost(&call));
        self.next_job = job.next();
        out.push(Action::Compute(job, TaskJob::new(self.program.clone(), call, cost, u64::MAX)));
        (job, cost)
    }

    fn computed(&mut self, no: JobNo, outcome: TaskOutcome, out: &mut Out<Partition<P, G>>) {
        if let Some(Helping { by, no, .. }) = self.help.done(no) {
            return self.send_control(by, PartitionMessage::Helped(no, outcome), out);
        }
        let Some(index) = self.jobs.iter().position(|it| it.job == no) else { return };
        let executing = self.jobs.swap_remove(index);
        self.done(executing, outcome, out);
    }

    fn done(&mut self, executing: Executing, outcome: TaskOutcome, out: &mut Out<Partition<P, G>>) {
        let name = self.plan.name(executing.task);
        assert!(outcome.spawned.is_empty(), "task {name} of a planned program spawns others");
        let wrote = by_output(self.plan.accesses(executing.task), outcome);
        let running = self.running.get_mut(&executing.partition).expect("a partition with a job runs here");
        if running.held {
            running.waiting.push((executing, wrote));
        } else {
            self.apply(executing, wrote, out);
        }
    }

    /// Applies the values that a task wrote, and sends them.
    fn apply(&mut self, done: Executing, wrote: Vec<Option<Chunk>>, out: &mut Out<Partition<P, G>>) {
        let Executing { partition, task, cost, is_again, .. } = done;
        let plan = self.plan.clone();
        let running = self.running.get_mut(&partition).expect("the partition runs here");
        let name = plan.name(task);
        let cost_us = u32::try_from(cost.0 / 1000).unwrap_or(u32::MAX);
        if is_again {
            let Some(rerun) = &mut running.rerun else { return };
            let Some(owed) = rerun.execute(&plan, task, &wrote) else { return };
            let (epoch, by) = rerun.demander(task);
            self.state_planned(task, partition, out);
            self.fact(FactKind::Rerun, || Fact::Rerun { task: name, by, epoch, cost_us }, out);
            for (value, by) in owed {
                for id in plan.messages(value).filter(|id| by.contains(&id.to)) {
                    self.transmit(id, value, wrote[value.output as usize].clone(), out);
                }
            }
            return;
        }
        if !running.share.execute(&plan, self.window, task, &wrote) {
            return;
        }
        self.ran += 1;
        self.state_planned(task, partition, out);
        self.fact(FactKind::Ran, || Fact::Ran { task: name, spawned: 0, cost_us }, out);
        for (value, content) in plan.outputs(task).zip(&wrote) {
            for id in plan.messages(value) {
                let share = &mut self.running.get_mut(&partition).expect("the partition runs here").share;
                share.sent = share.sent.wrapping_add(id.mix());
                let bytes = content.as_ref().map_or(0, Chunk::len) as u32;
                self.fact(FactKind::Sent, || Fact::Sent { id, bytes }, out);
                self.transmit(id, value, content.clone(), out);
            }
        }
        if plan.result().task == task {
            self.announce_result(partition, out);
        }
    }

    /// Ends the program if the share of this partition contains the result.
    fn announce_result(&mut self, partition: ProcessId, out: &mut Out<Partition<P, G>>) {
        let Some(content) = self.running[&partition].share.value(self.plan.result()) else { return };
        let digest = self.program.digest(content.as_ref().unwrap_or(&Chunk::Bytes([].into())));
        self.end(digest);
        self.announce_end(digest, out);
    }

    /// Records the partition of a task, and the tasks on which it depends.
    fn state_planned(&mut self, task: TaskNo, partition: ProcessId, out: &mut Out<Partition<P, G>>) {
        let plan = self.plan.clone();
        let planned = || {
            let sources: BTreeSet<TaskId> = plan.sources(task).map(|it| plan.name(it.task)).collect();
            let sources = sources.into_iter().collect();
            Fact::Planned(Box::new(PlannedTask { task: plan.name(task), partition, sources }))
        };
        self.fact(FactKind::Planned, planned, out);
    }

    fn transmit(
        &mut self,
        id: MessageId,
        value: Value,
        content: Option<Chunk>,
        out: &mut Out<Partition<P, G>>,
    ) {
        self.fact(FactKind::Transmitted, || Fact::Transmitted { id, position: Position::default() }, out);
        let to = self.partition_map.host_of(id.to);
        if to == self.me {
            return self.unseen.push_back(PartitionInput::Arrived(Delivery { id, value, content }));
        }
        let bytes = postcard::to_allocvec(&content).expect("a value can be encoded");
        let packet = Packet::Application { id, stamp: value, payload: Payload::from_slice(&bytes) };
        out.push(Action::Send { to: To::One(to), packet });
    }

    fn membership_changed(&mut self, membership: &Arc<Membership>, out: &mut Out<Partition<P, G>>) {
        self.membership = membership.clone();
        self.has_begun |= membership.member(self.me).up;
        // The process that found the result may have failed before all others learned of it.
        if let Some(digest) = self.over {
            self.announce_end(digest, out);
        }
    }

    fn end(&mut self, digest: Digest) {
        self.over = Some(digest);
    }

    /// Records the end once, when the result is known and all partitions that run here have finished. A process whose
    /// own partition runs elsewhere may run none.
    fn finish(&mut self, out: &mut Out<Partition<P, G>>) {
        let Some(digest) = self.over.filter(|_| !self.has_finished) else { return };
        let is_complete = |it: &Running| it.share.is_complete(&self.plan);
        let is_missing =
            !self.running.contains_key(&self.me) && self.partition_map.host_of(self.me) == self.me;
        if is_missing || !self.running.values().all(is_complete) {
            return;
        }
        self.has_finished = true;
        let (mut sent, mut received) = (0u64, 0u64);
        for Running { share, .. } in self.running.values() {
            (sent, received) = (sent.wrapping_add(share.sent), received.wrapping_add(share.received));
        }
        let witness = self.witness(sent, received);
        self.fact(FactKind::Finished, || Fact::Finished(Box::new((witness, digest))), out);
    }
}

/// Returns the values that a task wrote, one for each of its accesses that is not a read.
fn by_output(accesses: &[crate::program::Access], outcome: TaskOutcome) -> Vec<Option<Chunk>> {
    let mut by_access = vec![None; accesses.len()];
    for (index, chunk) in outcome.written {
        by_access[index as usize] = Some(chunk);
    }
    let outputs = accesses.iter().zip(by_access).filter(|(access, _)| access.mode != Mode::Read);
    outputs.map(|(_, chunk)| chunk).collect()
}
