//! The driver: delivers events to processes and performs their actions, according to the contract of
//! `faultline_core::process`. It depends on neither a protocol nor an application, so the tests of the contract can run
//! on it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use faultline_core::application::Job as _;
use faultline_core::fault::StorageFault;
use faultline_core::process::{ActionOf, In, PacketOf};
use faultline_core::{
    Action, Boot, Claim, ClusterId, EndedBy, Event, Fact, FactKinds, FactNo, Fault, FaultNo, ImageName,
    JobNo, Life, LifeStart, Member, Membership, MessageId, Process, ProcessId, Span, StorageFate, Time, To,
};
use faultline_trace::{Record, Sink, Trace};

use super::network::{Flight, Hold, Network};
use super::storage::{Operation, Storage};
use super::transcript::Entry;

/// Maximum number of steps of one [`Hosts::settle`]. Only a scenario that never becomes quiescent reaches it.
const MAX_STEPS: usize = 100_000;

/// Processes whose environment the test controls.
pub(crate) struct Hosts<N: Process> {
    pub(super) config: Arc<N::Config>,
    pub(super) membership: Membership,
    pub(super) hosted: Vec<Hosted<N>>,
    network: Network<N>,
    /// Requests from processes to the supervisor.
    notes: VecDeque<Note>,
    notes_held: bool,
    output_survives: bool,
    /// Selects the packets that arrive twice.
    twice: Option<fn(&Flight<N>) -> bool>,
    faults: u32,
    /// Number of facts recorded so far. Serves as each fact's time, and thus orders the facts of different processes.
    pub(super) steps: u64,
    pub(super) trace: Trace,
    pub(super) log: Vec<Entry<N>>,
    /// Contents of the messages that processes sent at the command of the test.
    pub(super) texts: BTreeMap<MessageId, String>,
}

/// A process with its storage, its clock and its view of the membership.
pub(super) struct Hosted<N: Process> {
    life: Life,
    /// `None` while the process is down.
    pub(super) node: Option<N>,
    /// The membership that the process knows.
    pub(super) view: Arc<Membership>,
    /// Memberships that the process will receive, in order.
    news: VecDeque<Arc<Membership>>,
    withheld: bool,
    replaced: bool,
    clock: Time,
    /// The jobs that are being computed, in the order of the requests.
    pub(super) jobs: Vec<Computation<N>>,
    facts: u64,
    storage: Storage<N>,
}

/// A job that is being computed.
pub(super) struct Computation<N: Process> {
    pub(super) no: JobNo,
    job: N::Job,
    /// Time on the process's clock at which [`Hosts::advance`] completes the job. A test may also complete the job at
    /// any other time.
    done_at: Time,
}

impl<N: Process> Hosted<N> {
    /// Creates the process in its first life, before that life has begun.
    fn new(view: Arc<Membership>) -> Hosted<N> {
        Hosted {
            life: Life(1),
            node: None,
            view,
            news: VecDeque::new(),
            withheld: false,
            replaced: false,
            clock: Time::ZERO,
            jobs: Vec::new(),
            facts: 0,
            storage: Storage::new(),
        }
    }

    fn has_news(&self) -> bool {
        self.node.is_some() && !self.withheld && !self.news.is_empty()
    }

    fn can_complete(&self) -> bool {
        self.node.is_some() && self.storage.is_ready()
    }
}

/// A request from a life to the supervisor, which ignores requests from lives that have ended.
enum Note {
    Started(ProcessId, Life),
    Held(ProcessId, Life),
}

impl<N: Process> Hosts<N> {
    /// Begins the first life of every process that is up in `membership`.
    pub(crate) fn start(membership: Membership, config: N::Config) -> Hosts<N> {
        let view = Arc::new(membership.clone());
        let mut hosts = Hosts {
            network: Network::new(N::is_fifo(&config)),
            config: Arc::new(config),
            hosted: membership.members.iter().map(|_| Hosted::new(view.clone())).collect(),
            membership,
            notes: VecDeque::new(),
            notes_held: false,
            output_survives: false,
            twice: None,
            faults: 0,
            steps: 0,
            trace: Trace::default(),
            log: Vec::new(),
            texts: BTreeMap::new(),
        };
        hosts.state_supervisor(Fact::Begun);
        for process in hosts.processes() {
            if view.member(process).up {
                hosts.begin_life(process, Boot::Fresh);
            }
        }
        hosts
    }

    // Events

    /// Handles everything that is in transit, pending or due, except what is held, until nothing is left.
    /// Time does not advance.
    pub(crate) fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            if !self.step() {
                return;
            }
        }
        panic!("the federation does not become quiescent");
    }

    /// Performs one step. Returns `false` if no step is possible.
    pub(crate) fn step(&mut self) -> bool {
        self.take_note()
            || self.deliver_membership()
            || self.complete_operation()
            || self.deliver_next()
            || self.fire_due_timer()
    }

    /// Performs the step that `pick` chooses: `pick` receives the number of possible steps and returns the index of one
    /// of them. Returns `false` if no step is possible. Used for random schedules: notes, memberships, storage
    /// operations and packets have equal priority, and a timer fires only if none of these steps is possible.
    pub(crate) fn step_any(&mut self, pick: impl FnOnce(usize) -> usize) -> bool {
        let hosted = || self.processes().map(ProcessId::index);
        let told: Vec<usize> = hosted().filter(|&it| self.hosted[it].has_news()).collect();
        let storing: Vec<usize> = hosted().filter(|&it| self.hosted[it].can_complete()).collect();
        let notes = usize::from(!self.notes.is_empty() && !self.notes_held);
        let flying = self.network.free(|flight| self.can_arrive(flight));
        let count = notes + told.len() + storing.len() + flying.len();
        if count == 0 {
            return self.fire_due_timer();
        }
        match pick(count) {
            place if place < notes => {
                self.take_note();
            }
            place if place < notes + told.len() => self.tell(told[place - notes]),
            place if place < count - flying.len() => self.complete(storing[place - notes - told.len()]),
            place => {
                let flight = self.network.remove(flying[place + flying.len() - count]);
                self.deliver(flight);
            }
        }
        true
    }

    /// Advances the time of each process by `span`, one process after another. Handles each deadline within that time,
    /// in order, with all its consequences.
    pub(crate) fn pass(&mut self, span: Span) {
        for process in self.processes() {
            let until = self.hosted[process.index()].clock + span;
            while self.deadline(process).is_some_and(|at| at <= until) {
                self.fire_timer(process);
                self.settle();
            }
            self.hosted[process.index()].clock = until;
        }
    }

    /// Advances the time of one process to its next deadline. Panics if it has none.
    pub(crate) fn fire_timer(&mut self, process: ProcessId) {
        let deadline = self.deadline(process).expect("the process has no deadline");
        let hosted_process = &mut self.hosted[process.index()];
        hosted_process.clock = hosted_process.clock.max(deadline);
        self.feed(process, Event::Timeout);
    }

    /// Advances the time of one process by `span`, and wakes it once, at the end.
    pub(crate) fn wake(&mut self, process: ProcessId, span: Span) {
        self.hosted[process.index()].clock += span;
        self.feed(process, Event::Timeout);
    }

    /// Returns the earliest time at which a process has a deadline or completes a job; `None` if there is none.
    pub(crate) fn next_time(&self) -> Option<Time> {
        let deadlines = self.processes().filter_map(|it| self.deadline(it));
        let jobs = self.hosted.iter().flat_map(|it| &it.jobs).map(|it| it.done_at);
        deadlines.chain(jobs).min()
    }

    /// Advances the time of all processes to `now`, and completes the jobs that are done by then.
    pub(crate) fn advance(&mut self, now: Time) {
        for process in self.processes() {
            self.hosted[process.index()].clock = now;
            let is_done = |it: &Computation<N>| it.done_at <= now;
            while let Some(place) = self.hosted[process.index()].jobs.iter().position(is_done) {
                let Computation { no, job, .. } = self.hosted[process.index()].jobs.remove(place);
                self.feed(process, Event::Computed(no, job.run()));
            }
        }
    }

    pub(crate) fn lives(&self, process: ProcessId) -> bool {
        self.hosted[process.index()].node.is_some()
    }

    /// Returns the next deadline of `process`; `None` if it has none or is down.
    pub(crate) fn deadline(&self, process: ProcessId) -> Option<Time> {
        self.hosted[process.index()].node.as_ref().and_then(N::next_deadline)
    }

    /// Delivers any event to a process. Panics if the process is down.
    pub(crate) fn feed(&mut self, process: ProcessId, event: In<N>) {
        let hosted_process = &mut self.hosted[process.index()];
        let mut actions = Vec::new();
        let node = hosted_process.node.as_mut().expect("only a live process receives events");
        node.handle(event, hosted_process.clock, &mut actions);
        self.perform(process, actions);
    }

    // The application

    /// Returns whether the application of `process` has a computation in progress, which the test can complete.
    pub(crate) fn can_act(&self, process: ProcessId) -> bool {
        !self.hosted[process.index()].jobs.is_empty()
    }

    /// Completes the newest computation of `process`. Panics if there is none.
    pub(crate) fn compute(&mut self, process: ProcessId) {
        let Computation { no, job, .. } =
            self.hosted[process.index()].jobs.pop().expect("something is being computed");
        self.feed(process, Event::Computed(no, job.run()));
    }

    // The network

    /// Holds matching packets.
    pub(crate) fn hold(&mut self, which: impl Fn(&Flight<N>) -> bool + 'static) -> Hold {
        self.network.hold(which)
    }

    /// Ends a hold.
    pub(crate) fn release(&mut self, hold: Hold) {
        self.network.release(hold);
    }

    /// Delivers exactly the matching packets that are in transit now, held or not. Returns their number.
    pub(crate) fn let_through(&mut self, which: impl Fn(&Flight<N>) -> bool) -> usize {
        let mut delivered = Vec::new();
        while let Some(flight) = self.network.take(&which) {
            delivered.push(flight);
        }
        let count = delivered.len();
        for flight in delivered {
            assert!(self.can_arrive(&flight), "{} does not know its sender's life yet", flight.to);
            self.deliver(flight);
        }
        count
    }

    /// Returns the number of matching packets in transit.
    pub(crate) fn in_transit(&self, which: impl Fn(&Flight<N>) -> bool) -> usize {
        self.network.flights().iter().filter(|flight| which(flight)).count()
    }

    /// Keeps the packets that a process sent before its failure: they can still arrive as long as their receiver does
    /// not know the sender's next life.
    pub(crate) fn let_output_survive(&mut self) {
        self.output_survives = true;
    }

    /// Lets packets overtake each other on channels that the process requires to be FIFO, which no real
    /// driver does.
    pub(crate) fn let_packets_overtake(&mut self) {
        self.network.let_overtake();
    }

    /// Makes matching packets arrive twice, which no real driver does.
    pub(crate) fn duplicate(&mut self, which: fn(&Flight<N>) -> bool) {
        self.twice = Some(which);
    }

    // Storage

    /// Sets whether storage operations of `process` are held back instead of completing.
    pub(crate) fn hold_storage(&mut self, process: ProcessId, held: bool) {
        self.hosted[process.index()].storage.held = held;
    }

    /// Sets whether writes of images fail at `process`, because its storage is full.
    pub(crate) fn fail_writes(&mut self, process: ProcessId, full: bool) {
        if full {
            self.inject(Fault::storage(process, StorageFault::Full, None));
        }
        self.hosted[process.index()].storage.full = full;
    }

    /// Corrupts all images in the storage of `process`: they are still listed, but cannot be read.
    pub(crate) fn corrupt(&mut self, process: ProcessId) {
        self.inject(Fault::storage(process, StorageFault::Corrupt, None));
        let storage = &mut self.hosted[process.index()].storage;
        storage.corrupt = storage.images.keys().copied().collect();
    }

    /// Ends all malfunctions of the storage of `process`.
    pub(crate) fn repair_storage(&mut self, process: ProcessId) {
        let storage = &mut self.hosted[process.index()].storage;
        storage.full = false;
        storage.corrupt.clear();
    }

    /// Returns the images in the storage of `process` in ascending order.
    pub(crate) fn images(&self, process: ProcessId) -> Vec<ImageName> {
        self.hosted[process.index()].storage.images.keys().copied().collect()
    }

    // Lives

    /// Kills `process`. No other process is informed.
    pub(crate) fn kill(&mut self, process: ProcessId, storage: StorageFate) {
        self.kill_by(EndedBy::Silence, process, storage);
    }

    /// Same as [`Hosts::kill`], with the given cause.
    pub(crate) fn kill_by(&mut self, by: EndedBy, process: ProcessId, storage: StorageFate) {
        let life = self.hosted[process.index()].life;
        self.state_supervisor(Fact::Failed { process, life, storage, by });
        self.end_life(process, storage);
    }

    pub(super) fn end_life(&mut self, process: ProcessId, storage: StorageFate) {
        let hosted_process = &mut self.hosted[process.index()];
        hosted_process.node = None;
        hosted_process.jobs.clear();
        hosted_process.news.clear();
        hosted_process.replaced |= storage == StorageFate::Lost;
        hosted_process.storage.crash(storage);
        if !self.output_survives {
            self.network.drop_all(|flight| flight.from == process);
        }
    }

    /// Informs all processes that `process` is down.
    pub(crate) fn detect(&mut self, process: ProcessId) {
        let life = self.hosted[process.index()].life;
        self.state_supervisor(Fact::Detected { process, life });
        self.member(process).up = false;
        self.announce();
    }

    /// Begins the next life of `process`, and informs all processes.
    pub(crate) fn restart(&mut self, process: ProcessId) {
        let hosted_process = &mut self.hosted[process.index()];
        assert!(hosted_process.node.is_none(), "{process} is still alive");
        hosted_process.life = hosted_process.life.next();
        hosted_process.facts = 0;
        hosted_process.withheld = false;
        let (life, replaced) = (hosted_process.life, hosted_process.replaced);
        let member = self.member(process);
        (member.life, member.up) = (life, true);
        self.announce();
        self.hosted[process.index()].view = Arc::new(self.membership.clone());
        self.begin_life(process, if replaced { Boot::Replaced } else { Boot::Restarted });
    }

    /// Performs the next step toward bringing a failed `process` back: informs all processes of its failure, or begins
    /// its next life.
    pub(crate) fn advance_return(&mut self, process: ProcessId) {
        if self.member(process).up { self.detect(process) } else { self.restart(process) }
    }

    /// Kills `process`, informs all processes, and begins its next life. Nothing else happens in between.
    pub(crate) fn crash(&mut self, process: ProcessId, storage: StorageFate) {
        self.kill(process, storage);
        self.detect(process);
        self.restart(process);
    }

    /// Crashes all processes of these clusters simultaneously.
    pub(crate) fn lose(&mut self, clusters: &[ClusterId], storage: StorageFate) {
        let lost = |it: &ProcessId| clusters.contains(&self.membership.cluster_of(*it));
        let processes: Vec<ProcessId> = self.processes().filter(lost).collect();
        processes.iter().for_each(|&process| self.kill(process, storage));
        processes.iter().for_each(|&process| self.detect(process));
        processes.iter().for_each(|&process| self.restart(process));
    }

    /// Sets whether memberships are withheld from `process`. Once they are no longer withheld, it receives all that it
    /// has missed.
    pub(crate) fn withhold_membership(&mut self, process: ProcessId, withheld: bool) {
        self.hosted[process.index()].withheld = withheld;
    }

    /// Sets whether requests to the supervisor wait. While they wait, the supervisor does not record that a
    /// process has started.
    pub(crate) fn withhold_notes(&mut self, withheld: bool) {
        self.notes_held = withheld;
    }

    // Observations

    /// Returns all facts so far.
    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns everything that happened, in order.
    pub(crate) fn log(&self) -> &[Entry<N>] {
        &self.log
    }

    /// Returns the content of a message.
    pub(crate) fn text(&self, id: MessageId) -> &str {
        self.texts.get(&id).map_or("", String::as_str)
    }

    /// Returns the claims of `process`, in order.
    pub(crate) fn claims(&self, process: ProcessId) -> impl Iterator<Item = &Claim> {
        self.log.iter().filter_map(move |entry| match entry {
            Entry::Fact { process: by, fact: Fact::Claim(claim) } if *by == process => Some(&**claim),
            _ => None,
        })
    }

    /// Returns the contents of all re-sent messages, one sender after another, in the order of re-sending.
    pub(crate) fn resent(&self) -> Vec<&str> {
        self.processes()
            .flat_map(|process| self.claims(process))
            .filter_map(|claim| match claim {
                Claim::Resent { id } => Some(self.text(*id)),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = ProcessId> + use<N> {
        (0..self.hosted.len() as u32).map(ProcessId)
    }

    /// Returns the membership as the supervisor knows it.
    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    pub(crate) fn cluster_of(&self, process: ProcessId) -> ClusterId {
        self.membership.cluster_of(process)
    }

    pub(crate) fn members(&self, cluster: ClusterId) -> Arc<[ProcessId]> {
        self.membership.processes_of(cluster).clone()
    }

    /// Returns the membership as `process` knows it.
    pub(crate) fn view(&self, process: ProcessId) -> Arc<Membership> {
        self.hosted[process.index()].view.clone()
    }

    // Performing

    pub(super) fn begin_life(&mut self, process: ProcessId, boot: Boot) {
        let life = self.hosted[process.index()].life;
        self.state_supervisor(Fact::LifeStarted { process, life, boot });
        let hosted_process = &mut self.hosted[process.index()];
        let start = LifeStart {
            me: process,
            life,
            boot,
            membership: hosted_process.view.clone(),
            config: self.config.clone(),
            record: hosted_process.storage.record.clone(),
            seed: 0,
            facts: FactKinds::ALL,
        };
        let mut actions = Vec::new();
        hosted_process.node = Some(N::start(start, hosted_process.clock, &mut actions));
        self.perform(process, actions);
    }

    fn perform(&mut self, process: ProcessId, actions: Vec<ActionOf<N>>) {
        let life = self.hosted[process.index()].life;
        for action in actions {
            let storage = &mut self.hosted[process.index()].storage;
            match action {
                Action::Send { to: To::One(to), packet } => self.transmit(process, to, packet),
                Action::Send { to: To::Cluster(cluster), packet } => {
                    for &to in self.members(cluster).iter().filter(|&&to| to != process) {
                        self.transmit(process, to, packet.clone());
                    }
                }
                Action::Persist(image) => storage.submit(Operation::Persist(image)),
                Action::Read(name) => storage.submit(Operation::Read(name)),
                Action::List => storage.submit(Operation::List),
                Action::Delete(name) => storage.submit(Operation::Delete(name)),
                Action::Record { version, bytes } => storage.submit(Operation::Record { version, bytes }),
                Action::Started => self.notes.push_back(Note::Started(process, life)),
                Action::Held => self.notes.push_back(Note::Held(process, life)),
                Action::Compute(no, job) => {
                    let hosted_process = &mut self.hosted[process.index()];
                    let done_at = hosted_process.clock + job.cost();
                    hosted_process.jobs.push(Computation { no, job, done_at });
                }
                Action::Fact(fact) => self.state(process, fact),
            }
        }
    }

    fn transmit(&mut self, from: ProcessId, to: ProcessId, packet: PacketOf<N>) {
        let hosted_process = &self.hosted[from.index()];
        let to_life = hosted_process.view.member(to).life;
        self.network.send(Flight { from, from_life: hosted_process.life, to, to_life, packet });
    }

    fn deliver_next(&mut self) -> bool {
        let Some(&place) = self.network.free(|flight| self.can_arrive(flight)).first() else { return false };
        let flight = self.network.remove(place);
        self.deliver(flight);
        true
    }

    /// Returns whether a packet can arrive. A packet waits until its receiver knows the life that sent it.
    fn can_arrive(&self, flight: &Flight<N>) -> bool {
        let receiver = &self.hosted[flight.to.index()];
        receiver.node.is_none() || flight.from_life <= receiver.view.member(flight.from).life
    }

    /// Delivers a packet. Packets from or to an older life are lost.
    fn deliver(&mut self, flight: Flight<N>) {
        let receiver = &self.hosted[flight.to.index()];
        let known = receiver.view.member(flight.from).life;
        if receiver.node.is_some() && flight.to_life == receiver.life && flight.from_life == known {
            let event = Event::Packet { from: flight.from, packet: flight.packet.clone() };
            let to = flight.to;
            if self.twice.is_some_and(|which| which(&flight)) {
                self.feed(to, event.clone());
            }
            self.log.push(Entry::Arrival(flight));
            self.feed(to, event);
        }
    }

    fn complete_operation(&mut self) -> bool {
        let Some(place) = self.hosted.iter().position(Hosted::can_complete) else { return false };
        self.complete(place);
        true
    }

    fn complete(&mut self, place: usize) {
        if let Some(event) = self.hosted[place].storage.complete() {
            self.feed(ProcessId(place as u32), event);
        }
    }

    fn deliver_membership(&mut self) -> bool {
        let Some(place) = self.hosted.iter().position(Hosted::has_news) else { return false };
        self.tell(place);
        true
    }

    fn tell(&mut self, place: usize) {
        let membership = self.hosted[place].news.pop_front().expect("a membership is waiting");
        self.hosted[place].view = membership.clone();
        self.feed(ProcessId(place as u32), Event::Membership(membership));
    }

    fn fire_due_timer(&mut self) -> bool {
        let is_due =
            |it: &ProcessId| self.deadline(*it).is_some_and(|at| at <= self.hosted[it.index()].clock);
        let Some(process) = self.processes().find(is_due) else { return false };
        self.feed(process, Event::Timeout);
        true
    }

    fn take_note(&mut self) -> bool {
        if self.notes_held {
            return false;
        }
        let Some(note) = self.notes.pop_front() else { return false };
        let (Note::Started(process, life) | Note::Held(process, life)) = note;
        let hosted_process = &mut self.hosted[process.index()];
        if hosted_process.node.is_none() || hosted_process.life != life {
            return true;
        }
        match note {
            Note::Held(..) => hosted_process.replaced = false,
            Note::Started(..) => {
                Arc::make_mut(&mut self.membership.members)[process.index()].started = true;
                self.announce();
            }
        }
        true
    }

    pub(super) fn member(&mut self, process: ProcessId) -> &mut Member {
        &mut Arc::make_mut(&mut self.membership.members)[process.index()]
    }

    pub(super) fn announce(&mut self) {
        self.membership.version = self.membership.version.next();
        let membership = Arc::new(self.membership.clone());
        for hosted_process in self.hosted.iter_mut().filter(|hosted_process| hosted_process.node.is_some()) {
            hosted_process.news.push_back(membership.clone());
        }
    }

    fn inject(&mut self, fault: Fault) {
        let no = FaultNo(self.faults);
        self.faults += 1;
        self.state_supervisor(Fact::Injecting { no, fault: Box::new(fault) });
    }

    fn state(&mut self, process: ProcessId, fact: Fact) {
        let hosted_process = &mut self.hosted[process.index()];
        if matches!(fact, Fact::Restored(_)) {
            hosted_process.jobs.clear(); // The restore voids the jobs.
        }
        let (life, number) = (hosted_process.life, FactNo(hosted_process.facts));
        hosted_process.facts += 1;
        self.record(process, life, number, fact);
    }

    pub(super) fn state_supervisor(&mut self, fact: Fact) {
        let number = FactNo(self.trace.supervisor().len() as u64);
        self.record(ProcessId::SUPERVISOR, Life(0), number, fact);
    }

    fn record(&mut self, process: ProcessId, life: Life, number: FactNo, fact: Fact) {
        self.steps += 1;
        self.trace.record(Record { process, life, number, at: Time(self.steps), fact: fact.clone() });
        self.log.push(Entry::Fact { process, fact });
    }
}

/// Prints all events if a test fails.
impl<N: Process> Drop for Hosts<N> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.transcript());
        }
    }
}
