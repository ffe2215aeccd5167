//! One process with its storage, and the effects of events on it.
//!
//! The effect of an event on a process depends only on the state of this process. [`Tables`](crate::tables::Tables)
//! therefore computes the effect once for each pair of a process's state and an event, and looks it up in all
//! interleavings with steps of other processes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use faultline_catalog::Hosted;
use faultline_core::application::Job as _;
use faultline_core::fault::{Handled, Outcome};
use faultline_core::process::{ActionOf, ImageOf, In, PacketOf};
use faultline_core::{
    Action, Boot, Event, Fact, FactKinds, ImageName, JobNo, Life, LifeStart, Membership, ProcessId, Role,
    StorageFate, Time, To,
};
use faultline_session::panics::{caught, handles};

use crate::key::{Key, key_of, key_of_all};

/// A process with its storage and its view of the membership.
#[derive(Clone)]
pub(crate) struct Local<N: Hosted> {
    /// The key of all other fields. Immutable values, such as images and memberships, have their own keys, so that they
    /// are not formatted again after each event.
    pub(crate) key: Key,
    pub(crate) me: ProcessId,
    pub(crate) life: Life,
    /// `None` if no life of the process is running.
    node: Option<N>,
    pub(crate) view: Arc<Membership>,
    view_key: Key,
    /// Whether the storage was lost, and is not yet complete again.
    replaced: bool,
    clock: Time,
    images: BTreeMap<ImageName, (Key, Arc<ImageOf<N>>)>,
    record: Option<Arc<[u8]>>,
    /// Pending operations of the storage with their keys, in order.
    under_way: VecDeque<(Key, Operation<N>)>,
    /// The key of all facts that the process has reported. Two states count as the same only if all processes
    /// have reported the same facts, so one judgement of a complete run covers all interleavings that lead to
    /// it.
    pub(crate) facts_key: Key,
    /// Whether the application has finished in this state. Always `true` for a process without an application.
    pub(crate) has_finished: bool,
}

#[derive(Clone, Debug)]
enum Operation<N: Hosted> {
    Persist(Arc<ImageOf<N>>),
    Read(ImageName),
    List,
    Delete(ImageName),
    Record { version: u64, bytes: Arc<[u8]> },
}

/// An event that a process handles.
#[derive(Clone, Debug)]
pub(crate) enum ExploredEvent<N: Hosted> {
    /// The next life begins with this membership.
    Begin(Arc<Membership>),
    /// The life ends.
    End(StorageFate),
    /// A packet arrives.
    Arrive(ProcessId, Arc<PacketOf<N>>),
    /// The oldest operation of the storage completes.
    Stored,
    /// A computation ends.
    Computed(JobNo, N::Job),
    /// A membership arrives.
    Told(Arc<Membership>),
    /// The next deadline expires.
    Ring,
    /// The supervisor learns that the storage is complete again.
    Refilled,
}

/// A request that a process makes while it handles an event.
#[derive(Clone, Debug)]
pub(crate) enum Request<N: Hosted> {
    Send { to: ProcessId, to_life: Life, packet: Arc<PacketOf<N>>, key: Key },
    Store,
    Compute(JobNo, N::Job),
    Started,
    Held,
}

/// The reaction of a process to an event.
pub(crate) struct Reaction<N: Hosted> {
    pub(crate) local: Local<N>,
    pub(crate) requests: Vec<Request<N>>,
    /// The facts that the process reports.
    pub(crate) facts: Vec<Fact>,
    /// How the event ends the run, if it does.
    pub(crate) ends: Option<Outcome>,
}

/// The largest number of expired deadlines of a process that are handled together with one event. A process with more
/// makes no progress.
const MOST_AT_ONCE: u64 = 1000;

impl<N: Hosted> Local<N> {
    /// Creates a process before its first life.
    pub(crate) fn new(me: ProcessId, view: Arc<Membership>) -> Local<N> {
        let is_rank = view.member(me).role == Role::RANK;
        let mut local = Local {
            key: 0,
            me,
            life: Life(0),
            node: None,
            view_key: key_of(&view),
            view,
            replaced: false,
            clock: Time::ZERO,
            images: BTreeMap::new(),
            record: None,
            under_way: VecDeque::new(),
            facts_key: 0,
            has_finished: !is_rank,
        };
        local.rekey();
        local
    }

    pub(crate) fn lives(&self) -> bool {
        self.node.is_some()
    }

    /// Returns how the next life begins.
    pub(crate) fn next_boot(&self) -> Boot {
        boot(self.life.next(), self.replaced)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.node.as_ref().and_then(N::next_deadline)
    }

    /// Handles an event. The run ends if the code of the process panics.
    pub(crate) fn handle(self, config: &Arc<N::Config>, happening: ExploredEvent<N>) -> Reaction<N> {
        let local = self.clone();
        caught(|| local.react(config, happening)).unwrap_or_else(|panic| {
            let ends = Some(Outcome::Panicked(panic));
            Reaction { local: self, requests: Vec::new(), facts: Vec::new(), ends }
        })
    }

    fn react(self, config: &Arc<N::Config>, happening: ExploredEvent<N>) -> Reaction<N> {
        let mut local = self;
        let me = local.me;
        let mut actions = Vec::new();
        let event = local.input(config, happening, &mut actions);
        let mut ends = local.feed(event, &mut actions);
        let (mut requests, mut facts) = (Vec::new(), Vec::new());
        for action in actions {
            let mut store = |operation| {
                local.under_way.push_back((key_of(&operation), operation));
                Request::Store
            };
            let request = match action {
                Action::Fact(fact) => {
                    if let Fact::Claim(claim) = &fact {
                        ends = ends.or_else(|| Outcome::of_claim(claim));
                    }
                    match &fact {
                        Fact::Finished(_) => local.has_finished = true,
                        Fact::Restored(_) => local.has_finished = false,
                        _ => {}
                    }
                    facts.push(fact);
                    continue;
                }
                Action::Send { to, packet } => {
                    let packet = Arc::new(packet);
                    let key = key_of(&packet);
                    let receivers = match to {
                        To::One(to) => vec![to],
                        To::Cluster(cluster) => local.view.processes_of(cluster).to_vec(),
                    };
                    let is_single = matches!(to, To::One(_));
                    requests.extend(receivers.into_iter().filter(|&to| is_single || to != me).map(|to| {
                        let to_life = local.view.member(to).life;
                        Request::Send { to, to_life, packet: packet.clone(), key }
                    }));
                    continue;
                }
                Action::Persist(image) => store(Operation::Persist(image)),
                Action::Read(name) => store(Operation::Read(name)),
                Action::List => store(Operation::List),
                Action::Delete(name) => store(Operation::Delete(name)),
                Action::Record { version, bytes } => store(Operation::Record { version, bytes }),
                Action::Started => Request::Started,
                Action::Held => Request::Held,
                Action::Compute(no, job) => Request::Compute(no, job),
            };
            requests.push(request);
        }
        if !facts.is_empty() {
            local.facts_key = key_of_all([local.facts_key, local.life.0.into(), key_of(&facts)]);
        }
        local.rekey();
        Reaction { local, requests, facts, ends }
    }

    /// Applies what happens to this entry. Returns the event for the process, if any. A life that begins appends its first
    /// actions.
    fn input(
        &mut self,
        config: &Arc<N::Config>,
        happening: ExploredEvent<N>,
        actions: &mut Vec<ActionOf<N>>,
    ) -> Option<In<N>> {
        match happening {
            ExploredEvent::Begin(view) => {
                let life = self.life.next();
                self.life = life;
                self.learn(view);
                let start = LifeStart {
                    me: self.me,
                    life,
                    boot: boot(life, self.replaced),
                    membership: self.view.clone(),
                    config: config.clone(),
                    record: self.record.clone(),
                    seed: 0,
                    facts: FactKinds::ALL,
                };
                handles(self.me, life, self.clock, Handled::Start);
                self.node = Some(N::start(start, self.clock, actions));
                None
            }
            ExploredEvent::End(fate) => {
                self.end(fate);
                None
            }
            ExploredEvent::Refilled => {
                self.replaced = false;
                None
            }
            ExploredEvent::Arrive(from, packet) => Some(Event::Packet { from, packet: (*packet).clone() }),
            ExploredEvent::Stored => self.complete(),
            ExploredEvent::Computed(no, job) => {
                handles(self.me, self.life, self.clock, Handled::Job(no));
                Some(Event::Computed(no, job.run()))
            }
            ExploredEvent::Told(view) => {
                self.learn(view.clone());
                Some(Event::Membership(view))
            }
            ExploredEvent::Ring => {
                self.clock = self.clock.max(self.deadline().unwrap_or(self.clock));
                Some(Event::Timeout)
            }
        }
    }

    /// Passes an event to the process, and then the deadlines that expire at the same time: all of them belong to the same
    /// event. Returns the outcome if the process acts without end.
    fn feed(&mut self, event: Option<In<N>>, actions: &mut Vec<ActionOf<N>>) -> Option<Outcome> {
        let me = self.me;
        if let Some(node) = &mut self.node {
            if let Some(event) = event {
                handles(me, self.life, self.clock, event.handled());
                node.handle(event, self.clock, actions);
            }
            let mut events = 0;
            while node.next_deadline().is_some_and(|at| at <= self.clock) {
                if events == MOST_AT_ONCE {
                    return Some(Outcome::Stalled { process: me, handled: Handled::Timeout, events });
                }
                handles(me, self.life, self.clock, Handled::Timeout);
                node.handle(Event::Timeout, self.clock, actions);
                events += 1;
            }
        }
        None
    }

    fn learn(&mut self, view: Arc<Membership>) {
        (self.view_key, self.view) = (key_of(&view), view);
    }

    fn rekey(&mut self) {
        let Local {
            key: _,
            me,
            life,
            node,
            view: _,
            view_key,
            replaced,
            clock,
            images,
            record,
            under_way,
            facts_key,
            has_finished,
        } = &*self;
        let rest = key_of(&(me, life, node, replaced, clock, record, has_finished));
        let counts = [images.len() as Key, under_way.len() as Key];
        let stored = images.values().map(|(key, _)| *key);
        let operations = under_way.iter().map(|(key, _)| *key);
        self.key = key_of_all(
            [rest, *view_key, *facts_key].into_iter().chain(counts).chain(stored).chain(operations),
        );
    }

    fn end(&mut self, fate: StorageFate) {
        self.node = None;
        self.has_finished &= self.view.member(self.me).role != Role::RANK;
        self.under_way.clear();
        if fate == StorageFate::Lost {
            self.images.clear();
            self.record = None;
            self.replaced = true;
        }
    }

    /// Completes the oldest operation of the storage.
    fn complete(&mut self) -> Option<In<N>> {
        let (key, operation) = self.under_way.pop_front()?;
        match operation {
            Operation::Persist(image) => {
                let name = image.name;
                self.images.insert(name, (key, image));
                Some(Event::Persisted(name))
            }
            Operation::Read(name) => {
                Some(Event::Read { name, image: self.images.get(&name).map(|(_, it)| it.clone()) })
            }
            Operation::List => {
                let heads = self.images.iter().map(|(&name, (_, image))| (name, image.head.clone()));
                Some(Event::Listed(heads.collect()))
            }
            Operation::Delete(name) => {
                self.images.remove(&name);
                None
            }
            Operation::Record { version, bytes } => {
                self.record = Some(bytes);
                Some(Event::Recorded { version })
            }
        }
    }
}

fn boot(life: Life, replaced: bool) -> Boot {
    match (life, replaced) {
        (Life(1), _) => Boot::Fresh,
        (_, true) => Boot::Replaced,
        (_, false) => Boot::Restarted,
    }
}
