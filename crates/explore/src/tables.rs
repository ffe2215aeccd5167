//! Tables of all states of processes and of the supervisor, of all steps, and of their effects.
//!
//! Every distinct value has a number, so a state of the federation is a short list of numbers. Two values are the same
//! if they have the same key. The numbers depend on the order in which threads find the values, so no result may depend
//! on them. The tables contain what the search needs in every step; [`Processes`] contains the rest.

use std::sync::Arc;

use faultline_core::fault::Outcome;
use faultline_core::{
    Boot, EndedBy, Fact, Fault, FaultNo, Life, Member, Membership, ProcessId, StorageFate, Time,
};

use crate::interned::{Chains, Interned};
use crate::key::{Key, key_of, key_of_all};

pub(crate) struct Tables {
    processes: Box<dyn Processes>,
    pub(crate) locals: Interned<LocalEntry>,
    pub(crate) steps: Interned<Step>,
    pub(crate) memberships: Interned<MembershipEntry>,
    pub(crate) supervisors: Interned<SupervisorEntry>,
    /// Whether packets of one channel arrive in order.
    pub(crate) is_fifo: bool,
}

/// The processes of a federation: the contents of their states and of the steps.
pub(crate) trait Processes: Send + Sync {
    /// Returns whether packets of one channel arrive in order.
    fn is_fifo(&self) -> bool;
    /// Returns the number of the state of a process before its first life.
    fn create(&self, me: ProcessId, view: Arc<Membership>, tables: &Tables) -> u32;
    /// Computes the effect of an event on a process.
    fn handle(&self, local: u32, event: LocalEvent, tables: &Tables) -> Effect;
    /// Returns the number of process states whose contents are kept.
    fn contents(&self) -> usize;
    /// Drops the contents of all process states for which `is_needed` returns `false`.
    fn retain(&self, is_needed: &dyn Fn(u32) -> bool);
    /// Describes the packet that arrives in a step.
    fn packet(&self, step: u32) -> String;
}

/// The state of a process.
pub(crate) struct LocalEntry {
    pub(crate) life: Life,
    pub(crate) lives: bool,
    pub(crate) deadline: Option<Time>,
    pub(crate) next_boot: Boot,
    pub(crate) has_finished: bool,
    pub(crate) facts_key: Key,
    pub(crate) view: Arc<Membership>,
    /// A state of the process and an event that led to this state; `None` before the first life.
    pub(crate) origin: Option<(u32, LocalEvent)>,
    pub(crate) effects: Chains<Effect>,
}

/// An event of a process.
#[derive(Clone, Copy)]
pub(crate) enum LocalEvent {
    /// The oldest operation of the storage completes.
    Stores,
    /// The supervisor learns that the storage is complete again.
    Refills,
    /// The next deadline expires.
    Rings,
    /// The process fails.
    Ends(StorageFate, Return),
    /// The next life begins with the membership that has this number.
    Begins(u32),
    /// The step with this number happens: a packet arrives, a computation ends, or a membership arrives.
    Happens(u32),
}

/// The effects of an event on a process.
pub(crate) struct Effect {
    pub(crate) local: u32,
    /// The steps that the event requests, by number.
    pub(crate) requests: Box<[u32]>,
    /// The facts that the process reports.
    pub(crate) facts: Box<[Fact]>,
    /// How the event ends the run, if it does.
    pub(crate) ends: Option<Box<Outcome>>,
}

/// A pending step.
pub(crate) struct Step {
    pub(crate) body: Body,
    pub(crate) lane: Lane,
}

pub(crate) enum Body {
    /// A packet arrives.
    Packet { from: ProcessId, from_life: Life, to: ProcessId, to_life: Life },
    /// The oldest storage operation of a process completes.
    Store(ProcessId, Life),
    /// A computation ends.
    Compute(ProcessId, Life),
    /// A membership reaches a process.
    Tell(ProcessId, Life, Arc<Membership>),
    /// The supervisor records that a process has started.
    Start(ProcessId, Life),
    /// The supervisor learns that the storage of a process is complete again.
    Refill(ProcessId, Life),
    /// The supervisor detects the end of a life.
    Detect(ProcessId, Life, Return),
    /// The supervisor starts the next life.
    Restart(ProcessId),
}

/// Steps in the same lane happen in the order in which they were requested, except in [`Lane::Own`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Channel(ProcessId, ProcessId),
    Storage(ProcessId),
    Membership(ProcessId),
    /// The lane of steps that may overtake any other step, and be overtaken by any.
    Own,
}

/// Whether a failed process has another life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Return {
    /// The supervisor restarts the process.
    Returns,
    /// The process never returns, and other processes take over its work.
    Gone,
}

pub(crate) struct MembershipEntry {
    pub(crate) membership: Arc<Membership>,
    key: Key,
    /// For each process, the step that tells it about this membership.
    pub(crate) tells: Box<[u32]>,
}

/// The state of the supervisor.
pub(crate) struct SupervisorEntry {
    /// The number of the supervisor's membership.
    pub(crate) membership: u32,
    /// The key of all facts that the supervisor has reported.
    pub(crate) facts_key: Key,
    effects: Chains<SupervisorEffect>,
}

/// An event of the supervisor.
#[derive(Clone, Copy)]
pub(crate) enum SupervisorEvent {
    /// The run begins.
    Begins,
    /// A first life begins.
    Starts(ProcessId, Boot),
    /// A process fails.
    Fails(ProcessId, StorageFate, Return),
    /// The supervisor records that a process has started.
    Records(ProcessId),
    /// The supervisor detects the end of the current life of a process.
    Detects(ProcessId, Return),
    /// The supervisor starts the next life of a process.
    Restarts(ProcessId, Boot),
}

/// The effects of an event on the supervisor.
pub(crate) struct SupervisorEffect {
    pub(crate) supervisor: u32,
    pub(crate) facts: Box<[Fact]>,
    /// Whether the membership has changed and is announced to all living processes.
    pub(crate) announces: bool,
    /// The step that the event requests.
    pub(crate) request: Option<u32>,
}

impl LocalEvent {
    fn code(self) -> u64 {
        match self {
            LocalEvent::Stores => 0,
            LocalEvent::Refills => 1,
            LocalEvent::Rings => 2,
            LocalEvent::Ends(StorageFate::Kept, Return::Returns) => 3,
            LocalEvent::Ends(StorageFate::Lost, Return::Returns) => 4,
            LocalEvent::Ends(StorageFate::Kept, Return::Gone) => 5,
            LocalEvent::Ends(StorageFate::Lost, Return::Gone) => 6,
            LocalEvent::Begins(membership) => 1 << 32 | u64::from(membership),
            LocalEvent::Happens(step) => 2 << 32 | u64::from(step),
        }
    }
}

impl SupervisorEvent {
    fn code(self) -> u64 {
        let (kind, process, rest) = match self {
            SupervisorEvent::Begins => (0, ProcessId(0), 0),
            SupervisorEvent::Starts(process, boot) => (1, process, boot as u64),
            SupervisorEvent::Fails(process, fate, returns) => {
                (2, process, (fate as u64) << 1 | returns as u64)
            }
            SupervisorEvent::Records(process) => (3, process, 0),
            SupervisorEvent::Detects(process, returns) => (4, process, returns as u64),
            SupervisorEvent::Restarts(process, boot) => (5, process, boot as u64),
        };
        kind << 36 | rest << 32 | u64::from(process.0)
    }
}

impl Body {
    /// Returns the key of the step. `content` is the key of a packet, a job or a membership.
    fn key(&self, content: Key) -> Key {
        match self {
            Body::Packet { from, from_life, to, to_life, .. } => {
                key_of(&(0, from, from_life, to, to_life, content))
            }
            Body::Store(process, life) => key_of(&(1, process, life)),
            Body::Compute(process, life) => key_of(&(2, process, life, content)),
            Body::Tell(process, life, _) => key_of(&(3, process, life, content)),
            Body::Start(process, life) => key_of(&(4, process, life)),
            Body::Refill(process, life) => key_of(&(5, process, life)),
            Body::Detect(process, life, returns) => key_of(&(6, process, life, returns)),
            Body::Restart(process) => key_of(&(7, process)),
        }
    }

    fn lane(&self, is_fifo: bool) -> Lane {
        match self {
            Body::Packet { from, to, .. } if is_fifo => Lane::Channel(*from, *to),
            Body::Store(process, _) => Lane::Storage(*process),
            Body::Tell(process, ..) => Lane::Membership(*process),
            _ => Lane::Own,
        }
    }
}

impl Tables {
    pub(crate) fn new(processes: impl Processes + 'static) -> Tables {
        Tables {
            is_fifo: processes.is_fifo(),
            processes: Box::new(processes),
            locals: Interned::new(),
            steps: Interned::new(),
            memberships: Interned::new(),
            supervisors: Interned::new(),
        }
    }

    /// Returns the number of the state of a process before its first life.
    pub(crate) fn create(&self, me: ProcessId, view: Arc<Membership>) -> u32 {
        self.processes.create(me, view, self)
    }

    /// Describes the packet that arrives in a step.
    pub(crate) fn packet(&self, step: u32) -> String {
        self.processes.packet(step)
    }

    /// Returns the number of process states whose contents are kept.
    pub(crate) fn contents(&self) -> usize {
        self.processes.contents()
    }

    /// Drops the contents of process states that are not needed and have an origin, from which they are recomputed on
    /// demand.
    pub(crate) fn retain(&self, is_needed: impl Fn(u32) -> bool) {
        self.processes.retain(&|it| is_needed(it) || self.locals.get(it).origin.is_none());
    }

    /// Returns the effect of an event on a process.
    pub(crate) fn effect(&self, local: u32, event: LocalEvent) -> &Effect {
        let (effects, code) = (&self.locals.get(local).effects, event.code());
        effects.get(code).unwrap_or_else(|| effects.add(code, self.processes.handle(local, event, self)))
    }

    /// Returns the number of a step. `content` is the key of a packet, a job or a membership.
    pub(crate) fn step(&self, body: Body, content: Key) -> u32 {
        self.steps.intern(body.key(content), || Step { lane: body.lane(self.is_fifo), body })
    }

    fn membership(&self, membership: Arc<Membership>) -> u32 {
        let key = key_of(&membership);
        let tells = (0..)
            .map(ProcessId)
            .zip(&*membership.members)
            .map(|(process, member)| self.step(Body::Tell(process, member.life, membership.clone()), key));
        let tells = tells.collect();
        self.memberships.intern(key, || MembershipEntry { membership: membership.clone(), key, tells })
    }

    fn supervisor(&self, membership: u32, facts_key: Key) -> u32 {
        let key = key_of_all([self.memberships.get(membership).key, facts_key]);
        self.supervisors.intern(key, || SupervisorEntry { membership, facts_key, effects: Chains::new() })
    }

    /// Returns the number of the supervisor's state before the run.
    pub(crate) fn first_supervisor(&self, membership: Membership) -> u32 {
        self.supervisor(self.membership(Arc::new(membership)), 0)
    }

    /// Returns the effect of an event on the supervisor.
    pub(crate) fn supervisor_effect(&self, supervisor: u32, event: SupervisorEvent) -> &SupervisorEffect {
        let (entry, code) = (self.supervisors.get(supervisor), event.code());
        entry.effects.get(code).unwrap_or_else(|| entry.effects.add(code, self.supervise(entry, event)))
    }

    fn supervise(&self, entry: &SupervisorEntry, event: SupervisorEvent) -> SupervisorEffect {
        let old = &self.memberships.get(entry.membership).membership;
        let life = |process: ProcessId| old.member(process).life;
        let mut membership = (**old).clone();
        let mut change = |process: ProcessId, change: &dyn Fn(&mut Member)| {
            membership.version = membership.version.next();
            change(&mut Arc::make_mut(&mut membership.members)[process.index()]);
        };
        let (mut facts, mut request) = (Vec::new(), None);
        match event {
            SupervisorEvent::Begins => facts.push(Fact::Begun),
            SupervisorEvent::Starts(process, boot) => {
                facts.push(Fact::LifeStarted { process, life: life(process), boot });
            }
            SupervisorEvent::Fails(process, storage, returns) => {
                let mut by =
                    if storage == StorageFate::Lost { EndedBy::StorageLost } else { EndedBy::Silence };
                if returns == Return::Gone {
                    // Only the fault that ended a process shows that it does not return.
                    let no = FaultNo(process.0);
                    let fault = Fault::kill_permanently(process, storage);
                    by = EndedBy::Fault(no);
                    facts.push(Fact::Injecting { no, fault: Box::new(fault) });
                }
                facts.push(Fact::Failed { process, life: life(process), storage, by });
            }
            SupervisorEvent::Records(process) => change(process, &|it| it.started = true),
            SupervisorEvent::Detects(process, returns) => {
                facts.push(Fact::Detected { process, life: life(process) });
                change(process, &|it| (it.up, it.gone) = (false, returns == Return::Gone));
                if returns == Return::Returns {
                    request = Some(self.step(Body::Restart(process), 0));
                }
            }
            SupervisorEvent::Restarts(process, boot) => {
                facts.push(Fact::LifeStarted { process, life: life(process).next(), boot });
                change(process, &|it| (it.life, it.up) = (it.life.next(), true));
            }
        }
        let announces = membership.version != old.version;
        let membership = if announces { self.membership(Arc::new(membership)) } else { entry.membership };
        let facts_key =
            facts.iter().fold(entry.facts_key, |facts_key, fact| key_of_all([facts_key, key_of(fact)]));
        let supervisor = self.supervisor(membership, facts_key);
        SupervisorEffect { supervisor, facts: facts.into(), announces, request }
    }
}
