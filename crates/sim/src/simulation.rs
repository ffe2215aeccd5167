//! The event loop: takes the next event, and passes it to its process.
//!
//! The process's actions are performed in `acting.rs`; the supervisor's side is in `supervising.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use faultline_core::application::Job;
use faultline_core::application::Wire;
use faultline_core::fault::{Handled, MemoryUse, Panic};
use faultline_core::process::{ActionOf, In, PacketOf};
use faultline_core::{
    ClusterId, Event, FactKind, FactKinds, Image, Life, LifeStart, Membership, MembershipVersion, Packet,
    Process, ProcessId, Time, Trigger,
};
use faultline_supervisor::panics::{handled_last, handles};
use faultline_supervisor::{FaultAccount, Order, Outcome, Report, Status, Supervisor, process_seed};
use faultline_trace::Sink;
use faultline_trace::inputs::InputObserver;

use crate::chance::RandomStream;
use crate::config::{Chance, Config, Control, StorageCosts};
use crate::defect::{Defect, Defects};
use crate::handling::Processors;
use crate::instant::Instant;
use crate::network::{Network, Route};
use crate::queue::Queue;
use crate::sim_process::{Due, Flight, Input, ProcessSlot, SimProcess};
use crate::stats::Stats;
use crate::storage::Storage;

/// A federation in virtual time.
pub struct Simulation<'s, P: Process, S> {
    pub(crate) process_config: Arc<P::Config>,
    pub(crate) storage_costs: StorageCosts,
    pub(crate) control: Control,
    pub(crate) chance: Chance,
    seed: u64,
    pub(crate) paranoid: bool,
    defects: Defects,
    /// Clusters and their processes. Never changes.
    pub(crate) federation: Membership,

    pub(crate) now: Time,
    instant: Instant,
    pub(crate) queue: Queue<SimEvent<P>>,
    /// Indexed by process, like the next two fields.
    pub(crate) sim_processes: Vec<SimProcess<P>>,
    pub(crate) storages: Vec<Storage<P>>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) network: Network,
    /// Present if handling packets takes time.
    pub(crate) processors: Option<Processors>,
    /// Packets that wait for their link to heal, by link.
    pub(crate) held: BTreeMap<usize, VecDeque<Flight<P>>>,
    /// The times until which packets from killed lives still arrive.
    pub(crate) echoes: BTreeMap<(ProcessId, Life), Time>,
    pub(crate) control_random: RandomStream,
    pub(crate) failure_random: RandomStream,

    pub(crate) supervisor: Supervisor,
    pub(crate) supervisor_facts: u64,
    pub(crate) supervisor_timer: Time,
    pub(crate) has_plan: bool,
    /// Number of first lives that have not registered yet.
    pub(crate) unregistered: usize,
    pub(crate) triggers: Arc<[Trigger]>,
    /// Kinds of facts that are reported to the supervisor: those that it follows, and those that faults wait for.
    pub(crate) followed_kinds: FactKinds,
    pub(crate) outcome: Option<Outcome>,

    pub(crate) stats: Stats,
    pub(crate) sink: &'s mut S,
    pub(crate) recorder: Option<&'s mut dyn InputObserver<P>>,
    /// Reused from event to event, to avoid allocations.
    actions: Vec<ActionOf<P>>,
    pub(crate) orders: Vec<Order>,
}

/// Data about a process that every sender needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) cluster: ClusterId,
    /// The newest life that was announced.
    pub(crate) life: Life,
    /// Version of the membership that announced the newest life.
    pub(crate) since: MembershipVersion,
}

impl Address {
    fn new(cluster: ClusterId) -> Address {
        Address { cluster, life: Life(0), since: MembershipVersion(0) }
    }
}

/// An event in the queue. The size of the tag is that of the tags in [`faultline_core::process`].
#[repr(u64)]
pub(crate) enum SimEvent<P: Process> {
    /// A packet reaches its receiver's node.
    Arrival(Flight<P>),
    /// The receiver has finished handling a packet.
    Handled(Flight<P>),
    /// An input for one life of a process.
    Due(ProcessId, Life, Due),
    Timer(ProcessId),
    Report(Box<Report>),
    SupervisorTimer,
}

impl<P: Process> SimEvent<P> {
    /// Returns whether an application message arrives, or a result of the application's computation.
    #[inline(always)]
    fn is_of_application(&self) -> bool {
        match self {
            SimEvent::Arrival(flight) | SimEvent::Handled(flight) => {
                matches!(flight.packet, Packet::Application { .. })
            }
            SimEvent::Due(_, _, due) => matches!(due, Due::Computed(_)),
            _ => false,
        }
    }
}

/// The outcome of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// How the run ended, before it has been judged.
    pub outcome: Outcome,
    /// Virtual time at which the run ended.
    pub ended: Time,
    /// Counts of events and packets.
    pub stats: Stats,
    /// The state of each fault of the plan.
    pub faults: Vec<FaultAccount>,
    /// If the run exceeded its deadline: the processes whose application waited for a message.
    pub waiting: Vec<ProcessId>,
}

/// Simulates a federation from its launch to its end, and passes the facts to `sink`.
pub fn run<P: Process>(config: Config<P::Config>, sink: &mut impl Sink) -> Run {
    Simulation::<P, _>::new(config, sink).run()
}

impl<'s, P: Process, S: Sink> Simulation<'s, P, S> {
    /// Launches a federation, without processing any events yet.
    pub fn new(config: Config<P::Config>, sink: &'s mut S) -> Simulation<'s, P, S> {
        let Config {
            process,
            membership,
            links,
            storage,
            handling,
            supervisor,
            seed,
            chance,
            control,
            paranoid,
            defects,
        } = config;
        let processes = membership.members.len();
        let has_plan = !supervisor.plan.is_empty();
        let is_fifo = P::is_fifo(&process);
        let mut orders = Vec::new();
        let supervisor = Supervisor::new(supervisor, membership.clone(), &mut orders);
        let followed_kinds =
            FactKind::OF_PROCESSES.into_iter().filter(|&kind| supervisor.follows(kind)).collect();
        let mut simulation = Simulation {
            process_config: process,
            storage_costs: storage,
            control,
            chance,
            seed,
            paranoid,
            defects,
            now: Time::ZERO,
            instant: Instant::default(),
            queue: Queue::new(),
            sim_processes: (0..processes).map(|_| SimProcess::new()).collect(),
            storages: (0..processes).map(|_| Storage::new()).collect(),
            addresses: membership.members.iter().map(|member| Address::new(member.cluster)).collect(),
            network: Network::new(links, processes, is_fifo, chance, RandomStream::new(seed, 0)),
            processors: handling.map(|it| Processors::new(it, processes)),
            held: BTreeMap::new(),
            echoes: BTreeMap::new(),
            control_random: RandomStream::new(seed, 1),
            failure_random: RandomStream::new(seed, 2),
            federation: membership,
            supervisor,
            supervisor_facts: 0,
            supervisor_timer: Time::NEVER,
            has_plan,
            unregistered: processes,
            triggers: Arc::new([]),
            followed_kinds,
            outcome: None,
            stats: Stats::default(),
            sink,
            recorder: None,
            actions: Vec::new(),
            orders,
        };
        simulation.perform_orders();
        simulation.set_supervisor_timer();
        simulation
    }

    /// Passes all further inputs and actions of processes to `recorder`, too.
    pub fn record(&mut self, recorder: &'s mut dyn InputObserver<P>) {
        self.recorder = Some(recorder);
    }

    /// Runs the simulation to its end.
    ///
    /// # Panics
    ///
    /// Panics if the run ends without an outcome, which only a bug can cause: the supervisor's deadline ends
    /// every run.
    pub fn run(mut self) -> Run {
        while self.step() {}
        let outcome = self.outcome.clone().expect("the supervisor's deadline ends every run");
        let waiting = match outcome {
            Outcome::Deadline => self.waiting().collect(),
            _ => Vec::new(),
        };
        Run { outcome, ended: self.now, stats: self.stats, faults: self.supervisor.faults(), waiting }
    }

    /// Iterates over the processes whose application waits for a message.
    fn waiting(&self) -> impl Iterator<Item = ProcessId> {
        let all = (0..).map(ProcessId).zip(&self.sim_processes);
        let waits = |it: &SimProcess<P>| it.alive && it.process.as_ref().is_some_and(P::waits);
        all.filter(move |(_, it)| waits(it)).map(|(process, _)| process)
    }

    /// Processes the next event. Returns `false` once the run is over.
    ///
    /// # Panics
    ///
    /// Panics if no event is left before the run is over, which only a bug can cause.
    #[inline]
    pub fn step(&mut self) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        let (at, happening) = self.queue.pop().expect("events are pending until the run is over");
        debug_assert!(at >= self.now);
        if at > self.now {
            self.instant = Instant { before: self.stats.events, ..Instant::default() };
        }
        self.now = at;
        self.stats.events += 1;
        self.instant.count(happening.is_of_application());
        if self.instant.others > Instant::MOST || self.instant.of_application > Instant::MOST {
            self.end_if_endless();
        }
        match happening {
            SimEvent::Arrival(flight) if self.processors.is_some() => self.handle(flight),
            SimEvent::Arrival(flight) | SimEvent::Handled(flight) => self.arrive(flight),
            SimEvent::Due(process, life, due) => {
                let sim_process = &self.sim_processes[process.index()];
                if sim_process.alive && sim_process.life == life {
                    self.offer(process, Input::Due(due));
                }
            }
            SimEvent::Timer(process) => self.fire_timer(process),
            SimEvent::Report(report) => self.report(*report),
            SimEvent::SupervisorTimer => self.fire_supervisor_timer(),
        }
        true
    }

    /// Processes all events up to `until`. Returns `false` once the run is over.
    pub fn run_until(&mut self, until: Time) -> bool {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            if !self.step() {
                return false;
            }
        }
        self.outcome.is_none()
    }

    /// Ends the run as interrupted.
    pub fn interrupt(&mut self) {
        self.report(Report::Interrupted);
    }

    /// Ends the run because the code of a process panicked.
    pub fn panicked(&mut self, panic: Arc<Panic>) {
        self.report(Report::Ended(Outcome::Panicked(panic)));
    }

    /// Ends the run if virtual time does not advance.
    #[cold]
    fn end_if_endless(&mut self) {
        if self.instant.is_endless(self.sim_processes.len()) {
            // Only processes can cause events without end.
            let last = handled_last().map(|(process, _, _, handled)| (process, handled));
            let (process, handled) = last.unwrap_or((ProcessId(0), Handled::Start));
            let events = self.instant.events();
            self.report(Report::Ended(Outcome::Stalled { process, handled, events }));
        }
    }

    /// Ends the run because the program reached its memory limit.
    pub fn exhaust(&mut self, used: MemoryUse) {
        self.report(Report::OutOfMemory(Arc::new(used)));
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns how the run ended; `None` while it is in progress.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the current status of the federation, for a live view.
    pub fn status(&mut self) -> Status {
        self.refresh_gauges();
        self.supervisor.status()
    }

    /// Returns a process, or `None` between two lives. For tests.
    pub fn process(&self, process: ProcessId) -> Option<&P> {
        self.sim_processes[process.index()].process.as_ref()
    }

    /// Iterates over the images in a process's storage. For tests.
    pub fn images(&self, process: ProcessId) -> impl Iterator<Item = &Arc<Image<P::Head, P::Saved>>> {
        self.storages[process.index()].images()
    }

    // Packets

    #[inline(always)]
    pub(crate) fn send(&mut self, from: ProcessId, to: ProcessId, mut packet: PacketOf<P>) {
        if self.paranoid {
            packet = through_bytes(&packet);
        }
        let bytes = packet.wire_len(P::saved_len);
        let route = self.route(from, to);
        let sim_process = &self.sim_processes[from.index()];
        let (from_life, to_life) = (sim_process.life, self.known_life(sim_process, to));
        self.stats.sent::<P>(&packet, bytes, route.is_between());
        let sent = match &mut self.processors {
            Some(processors) => {
                processors.handle(from, route.is_between(), bytes, sim_process.percent, self.now)
            }
            None => self.now,
        };
        match self.network.arrival(route, bytes, sent, self.now) {
            Some(at) => {
                self.queue.push(at, || SimEvent::Arrival(Flight { from, from_life, to, to_life, packet }));
            }
            None => self.hold(route, Flight { from, from_life, to, to_life, packet }),
        }
    }

    /// Sends a packet that was held while its link was cut.
    pub(crate) fn carry(&mut self, flight: Flight<P>) {
        let route = self.route(flight.from, flight.to);
        match self.network.arrival(route, flight.packet.wire_len(P::saved_len), self.now, self.now) {
            Some(at) => self.queue.push(at, || SimEvent::Arrival(flight)),
            None => self.hold(route, flight),
        }
    }

    /// Holds a packet until its link heals.
    #[cold]
    fn hold(&mut self, route: Route, flight: Flight<P>) {
        let link = self.network.link(route.from_cluster, route.to_cluster);
        self.held.entry(link).or_default().push_back(flight);
    }

    #[inline]
    fn route(&self, from: ProcessId, to: ProcessId) -> Route {
        let cluster = |process: ProcessId| self.addresses[process.index()].cluster;
        Route { from, from_cluster: cluster(from), to, to_cluster: cluster(to) }
    }

    /// Delays a packet until its receiver has handled it. A packet for a life that has ended occupies no process.
    #[cold]
    fn handle(&mut self, flight: Flight<P>) {
        let route = self.route(flight.from, flight.to);
        let receiver = &self.sim_processes[flight.to.index()];
        let is_served = receiver.alive && receiver.life == flight.to_life;
        let Some(processors) = self.processors.as_mut().filter(|_| is_served) else {
            return self.arrive(flight);
        };
        let bytes = flight.packet.wire_len(P::saved_len);
        let at = processors.handle(flight.to, route.is_between(), bytes, receiver.percent, self.now);
        self.queue.push(at, || SimEvent::Handled(flight));
    }

    #[inline(always)]
    fn arrive(&mut self, flight: Flight<P>) {
        let receiver = &self.sim_processes[flight.to.index()];
        let is_meant = receiver.life == flight.to_life
            || self.defects.has(Defect::OldReceiversServed) && receiver.process.as_ref().is_some();
        if !receiver.alive || !is_meant {
            self.stats.stale += 1;
            return;
        }
        if self.is_lost_with_its_sender(&flight) {
            self.stats.lost_in_flight += 1;
            return;
        }
        let to = flight.to;
        if receiver.is_stopped() {
            self.offer(to, Input::Packet(flight));
        } else {
            // Same as `offer`, but without copying the packet: this is the most frequent event.
            self.receive(to, flight);
            self.set_timer(to);
        }
    }

    /// Returns whether a packet was lost in transit because its sender failed.
    #[inline]
    fn is_lost_with_its_sender(&self, flight: &Flight<P>) -> bool {
        if self.echoes.is_empty() {
            return false;
        }
        let sender = &self.sim_processes[flight.from.index()];
        let over = !sender.alive || sender.life != flight.from_life;
        over && self.echoes.get(&(flight.from, flight.from_life)).is_some_and(|until| self.now > *until)
    }

    /// Returns the newest life of `other` that the process in `sim_process` knows.
    #[inline]
    fn known_life(&self, sim_process: &SimProcess<P>, other: ProcessId) -> Life {
        let Address { life, since, .. } = self.addresses[other.index()];
        if sim_process.view_version >= since {
            return life;
        }
        sim_process.view.as_ref().map_or(Life(0), |view| view.member(other).life)
    }

    // Inputs

    /// Passes `input` to a process, or queues it while the process is stopped.
    pub(crate) fn offer(&mut self, process: ProcessId, input: Input<P>) {
        let sim_process = &mut self.sim_processes[process.index()];
        if sim_process.is_stopped() {
            sim_process.backlog().waiting.push_back(input);
        } else {
            self.give(process, input);
            self.set_timer(process);
        }
    }

    /// Resumes a process: performs its remaining actions, and passes the queued inputs to it.
    pub(crate) fn proceed(&mut self, process: ProcessId) {
        while !self.sim_processes[process.index()].is_stopped() {
            let Some(backlog) = self.sim_processes[process.index()].existing_backlog() else { break };
            if !backlog.rest.is_empty() {
                let mut rest = mem::take(&mut backlog.rest);
                self.perform(process, &mut rest);
            } else if let Some(input) = backlog.waiting.pop_front() {
                self.give(process, input);
            } else {
                break;
            }
        }
        self.set_timer(process);
    }

    fn give(&mut self, process: ProcessId, input: Input<P>) {
        match input {
            Input::Packet(flight) => self.receive(process, flight),
            Input::Due(Due::Stored) => {
                if let Some(event) = self.storages[process.index()].complete() {
                    self.feed(process, event);
                }
            }
            Input::Due(Due::Computed(no)) => {
                let jobs = &mut self.sim_processes[process.index()].jobs;
                let index = jobs.iter().position(|&(it, _)| it == no).expect("a job returns only once");
                let (_, job) = jobs.swap_remove(index);
                handles(process, self.sim_processes[process.index()].life, self.now, Handled::Job(no));
                self.feed(process, Event::Computed(no, job.run()));
            }
            Input::Due(Due::Membership) => self.meet(process),
            Input::Due(Due::Flip(flip)) => {
                // A life that has not started has nothing yet.
                if self.process(process).is_some() {
                    self.feed(process, Event::Flip(flip));
                }
            }
        }
    }

    #[inline(always)]
    fn receive(&mut self, process: ProcessId, flight: Flight<P>) {
        let sim_process = &self.sim_processes[process.index()];
        let known = self.known_life(sim_process, flight.from);
        // A life that has not started knows no other life, so every packet is early.
        if flight.from_life > known {
            self.sim_processes[process.index()].backlog().early.push_back(flight);
        } else if flight.from_life < known && !self.defects.has(Defect::OldSendersHeard) {
            self.stats.stale += 1;
        } else {
            self.feed(process, Event::Packet { from: flight.from, packet: flight.packet });
        }
    }

    /// Starts a life with its first membership, or passes it a newer one.
    fn meet(&mut self, process: ProcessId) {
        let facts = self.taken_kinds();
        let sim_process = &mut self.sim_processes[process.index()];
        let membership = sim_process.coming.take().expect("a membership is in transit");
        sim_process.view_version = membership.version;
        sim_process.view = Some(membership.clone());
        if sim_process.process.as_ref().is_some() {
            self.feed(process, Event::Membership(membership));
        } else {
            let start = LifeStart {
                me: process,
                life: sim_process.life,
                boot: sim_process.boot,
                membership,
                config: self.process_config.clone(),
                record: self.storages[process.index()].record(),
                seed: process_seed(self.seed, process),
                facts,
            };
            let mut actions = mem::take(&mut self.actions);
            let life = sim_process.life;
            handles(process, life, self.now, Handled::Start);
            if let Some(recorder) = &mut self.recorder {
                recorder.started(self.now, &start);
            }
            sim_process.process = ProcessSlot::Taken(P::start(start, self.now, &mut actions));
            if let Some(recorder) = &mut self.recorder {
                recorder.did(process, life, self.now, &actions);
            }
            self.perform(process, &mut actions);
            self.actions = actions;
        }
        if let Some(backlog) = self.sim_processes[process.index()].existing_backlog() {
            for flight in mem::take(&mut backlog.early) {
                self.offer(process, Input::Packet(flight));
            }
        }
    }

    /// Passes an event to a process, and performs the process's actions.
    #[inline(always)]
    fn feed(&mut self, process: ProcessId, event: In<P>) {
        handles(process, self.sim_processes[process.index()].life, self.now, event.handled());
        if self.recorder.is_some() {
            return self.feed_recorded(process, event);
        }
        let (now, mut actions) = (self.now, mem::take(&mut self.actions));
        self.started(process).handle(event, now, &mut actions);
        self.perform(process, &mut actions);
        self.actions = actions;
    }

    /// Same as `feed`, but records the event and the actions. Separate, because the compiler copies an event once more
    /// if a reference to it is passed on.
    #[cold]
    #[inline(never)]
    fn feed_recorded(&mut self, process: ProcessId, event: In<P>) {
        let mut actions = mem::take(&mut self.actions);
        let life = self.sim_processes[process.index()].life;
        if let Some(recorder) = &mut self.recorder {
            recorder.given(process, life, self.now, &event);
        }
        let now = self.now;
        self.started(process).handle(event, now, &mut actions);
        if let Some(recorder) = &mut self.recorder {
            recorder.did(process, life, self.now, &actions);
        }
        self.perform(process, &mut actions);
        self.actions = actions;
    }

    /// Returns a process whose life has started.
    #[inline(always)]
    fn started(&mut self, process: ProcessId) -> &mut P {
        self.sim_processes[process.index()].process.as_mut().expect("only a started life handles inputs")
    }

    // Timers

    #[inline]
    fn set_timer(&mut self, process: ProcessId) {
        let sim_process = &mut self.sim_processes[process.index()];
        let deadline = sim_process.process.as_ref().and_then(P::next_deadline);
        if let Some(deadline) = deadline.filter(|it| *it < sim_process.timer) {
            sim_process.timer = deadline.max(self.now);
            self.queue.push(sim_process.timer, || SimEvent::Timer(process));
        }
    }

    fn fire_timer(&mut self, process: ProcessId) {
        let sim_process = &mut self.sim_processes[process.index()];
        if sim_process.timer != self.now {
            return;
        }
        sim_process.timer = Time::NEVER;
        if sim_process.is_stopped() {
            return;
        }
        if sim_process
            .process
            .as_ref()
            .and_then(P::next_deadline)
            .is_some_and(|deadline| deadline <= self.now)
        {
            self.feed(process, Event::Timeout);
        }
        self.set_timer(process);
    }
}

/// Encodes and decodes `value`, as if it were sent to another process.
pub(crate) fn through_bytes<T: Wire>(value: &T) -> T {
    let bytes = postcard::to_allocvec(value).expect("a value on the network can be encoded");
    let back = postcard::from_bytes(&bytes).expect("an encoded value can be decoded");
    assert_eq!(&back, value, "a value survives its encoding");
    back
}
