//! The driver: delivers events to processes and performs their actions, according to the contract of
//! `faultline_core::process`.

use std::collections::VecDeque;
use std::sync::Arc;

use faultline_core::process::ActionOf;
use faultline_core::{
    Action, Application, Boot, Event, Fact, FactKinds, FactNo, Fault, FaultNo, JobNo, Life, LifeStart,
    Member, Membership, Node, Process, ProcessId, Protocol, Time, To,
};
use faultline_trace::{Record, Sink};

use super::federation::Federation;
use super::network::{Flight, PacketOf};
use super::storage::{Operation, Storage};
use super::transcript::Entry;

/// A process with its storage, its clock and its view of the membership.
pub(super) struct TestProcess<P: Protocol, A: Application> {
    pub(super) life: Life,
    /// `None` between two lives.
    pub(super) node: Option<Node<P, A>>,
    /// The membership that the process knows.
    pub(super) view: Arc<Membership>,
    /// Memberships that the process will receive, in order.
    pub(super) news: VecDeque<Arc<Membership>>,
    pub(super) withheld: bool,
    pub(super) replaced: bool,
    pub(super) clock: Time,
    /// The job that is being computed.
    pub(super) job: Option<(JobNo, A::Job)>,
    pub(super) facts: u64,
    pub(super) storage: Storage<P>,
}

impl<P: Protocol, A: Application> TestProcess<P, A> {
    /// Creates the process in its first life, before it has begun.
    pub(super) fn new(view: Arc<Membership>) -> TestProcess<P, A> {
        TestProcess {
            life: Life(1),
            node: None,
            view,
            news: VecDeque::new(),
            withheld: false,
            replaced: false,
            clock: Time::ZERO,
            job: None,
            facts: 0,
            storage: Storage::new(),
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.node.is_some() && !self.withheld && !self.news.is_empty()
    }

    pub(super) fn can_complete(&self) -> bool {
        self.node.is_some() && self.storage.is_ready()
    }
}

/// A request from a life to the supervisor, which ignores requests from lives that have ended.
pub(super) enum Note {
    Started(ProcessId, Life),
    Held(ProcessId, Life),
}

impl<P: Protocol, A: Application> Federation<P, A> {
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
        hosted_process.node = Some(Node::start(start, hosted_process.clock, &mut actions));
        self.perform(process, actions);
    }

    pub(super) fn perform(&mut self, process: ProcessId, actions: Vec<ActionOf<Node<P, A>>>) {
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
                Action::Compute(no, job) => self.hosted[process.index()].job = Some((no, job)),
                Action::Fact(fact) => self.state(process, fact),
            }
        }
    }

    fn transmit(&mut self, from: ProcessId, to: ProcessId, packet: PacketOf<P>) {
        let hosted_process = &self.hosted[from.index()];
        let to_life = hosted_process.view.member(to).life;
        self.network.send(Flight { from, from_life: hosted_process.life, to, to_life, packet });
    }

    pub(super) fn deliver_next(&mut self) -> bool {
        let Some(&place) = self.network.free(|flight| self.can_arrive(flight)).first() else { return false };
        let flight = self.network.remove(place);
        self.deliver(flight);
        true
    }

    /// Returns whether a packet can arrive. A packet from a life that its receiver does not know yet has to
    /// wait.
    pub(super) fn can_arrive(&self, flight: &Flight<P>) -> bool {
        let receiver = &self.hosted[flight.to.index()];
        receiver.node.is_none() || flight.from_life <= receiver.view.member(flight.from).life
    }

    /// Delivers a packet. Packets from or to an older life are lost.
    pub(super) fn deliver(&mut self, flight: Flight<P>) {
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

    pub(super) fn complete_operation(&mut self) -> bool {
        let Some(place) = self.hosted.iter().position(TestProcess::can_complete) else { return false };
        self.complete(place);
        true
    }

    pub(super) fn complete(&mut self, place: usize) {
        if let Some(event) = self.hosted[place].storage.complete::<A>() {
            self.feed(ProcessId(place as u32), event);
        }
    }

    pub(super) fn deliver_membership(&mut self) -> bool {
        let Some(place) = self.hosted.iter().position(TestProcess::has_news) else { return false };
        self.tell(place);
        true
    }

    pub(super) fn tell(&mut self, place: usize) {
        let membership = self.hosted[place].news.pop_front().expect("a membership is waiting");
        self.hosted[place].view = membership.clone();
        self.feed(ProcessId(place as u32), Event::Membership(membership));
    }

    pub(super) fn fire_due_timer(&mut self) -> bool {
        let is_due =
            |it: &ProcessId| self.deadline(*it).is_some_and(|at| at <= self.hosted[it.index()].clock);
        let Some(process) = self.processes().find(is_due) else { return false };
        self.feed(process, Event::Timeout);
        true
    }

    pub(super) fn take_note(&mut self) -> bool {
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

    pub(super) fn inject(&mut self, fault: Fault) {
        let no = FaultNo(self.faults);
        self.faults += 1;
        self.state_supervisor(Fact::Injecting { no, fault: Box::new(fault) });
    }

    fn state(&mut self, process: ProcessId, fact: Fact) {
        let hosted_process = &mut self.hosted[process.index()];
        if matches!(fact, Fact::Restored(_)) {
            hosted_process.job = None; // The restore voids the job.
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
