//! A state of the federation, the choices that it offers, and the state that follows a choice.

use std::sync::Arc;

use faultline_catalog::Hosted;
use faultline_core::fault::Outcome;
use faultline_core::process::{Packet, PacketOf};
use faultline_core::{
    EndedBy, Fact, Fault, FaultNo, JobNo, Life, Membership, ProcessId, Role, StorageFate, Time,
};

use crate::bounds::Bounds;
use crate::key::{Key, key_of, key_of_all};
use crate::local::{Effect, Effects, ExploredEvent, Local, Request};

/// A state of the federation. Similar states share most of their data.
#[derive(Clone)]
pub(crate) struct State<N: Hosted> {
    locals: Vec<Arc<Local<N>>>,
    membership: Arc<Membership>,
    membership_key: Key,
    /// Pending steps in the order in which they were requested, except overtaken ones.
    pending: Vec<Pending<N>>,
    /// Pending steps that other steps have overtaken. They may happen at any time.
    overtaken: Vec<Pending<N>>,
    /// Whether packets of one channel arrive in order.
    is_fifo: bool,
    pub(crate) left: Left,
    /// The key of all facts that the supervisor has reported.
    facts_key: Key,
    /// How the run has ended; `None` while it can continue.
    pub(crate) ended: Option<Outcome>,
}

/// The failures, timers and overtakings that the bounds still permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    crashes: u32,
    timers: u32,
    /// Overtakings that the bounds still permit; `None` means unlimited.
    overtakings: Option<u32>,
}

impl Left {
    /// Returns whether no further step can be overtaken.
    pub(crate) fn is_used_up(self) -> bool {
        self.overtakings == Some(0)
    }
}

/// A pending step.
#[derive(Clone)]
struct Pending<N: Hosted> {
    key: Key,
    body: Arc<Body<N>>,
}

enum Body<N: Hosted> {
    /// A packet arrives.
    Packet { from: ProcessId, from_life: Life, to: ProcessId, to_life: Life, packet: Arc<PacketOf<N>> },
    /// The oldest storage operation of a process completes.
    Store(ProcessId, Life),
    /// A computation ends.
    Compute(ProcessId, Life, JobNo, N::Job),
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
enum Lane {
    Channel(ProcessId, ProcessId),
    Storage(ProcessId),
    Membership(ProcessId),
    /// The lane of steps that may overtake any other step, and be overtaken by any.
    Own,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The step at this position among the pending steps that can happen. Those before it are overtaken.
    Next(u16),
    /// The overtaken step at this position.
    Overtaken(u16),
    /// A process fails.
    Crash { process: ProcessId, storage: StorageFate, output: Output, returns: Return },
    /// The next deadline of a process expires.
    Ring(ProcessId),
}

/// Whether a failed process has another life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Return {
    /// The supervisor restarts it.
    Returns,
    /// It never returns, and other processes take over its work.
    Gone,
}

/// The fate of packets that a failed process had sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// They arrive, unless their receiver learns of the failure first.
    Survives,
    /// They are lost.
    Lost,
}

/// Receives the facts that processes state, step by step.
pub(crate) trait Witnesses<N: Hosted> {
    fn states(&mut self, process: ProcessId, life: Life, facts: &[Fact]);
    /// Called at the beginning of a step, with its description.
    fn steps(&mut self, text: impl FnOnce() -> String);
}

/// Discards everything.
impl<N: Hosted> Witnesses<N> for () {
    fn states(&mut self, _: ProcessId, _: Life, _: &[Fact]) {}
    fn steps(&mut self, _: impl FnOnce() -> String) {}
}

impl<N: Hosted> Pending<N> {
    fn new(body: Body<N>, content: Key) -> Pending<N> {
        let key = match &body {
            Body::Packet { from, from_life, to, to_life, .. } => {
                key_of(&(0, from, from_life, to, to_life, content))
            }
            Body::Store(process, life) => key_of(&(1, process, life)),
            Body::Compute(process, life, no, job) => key_of(&(2, process, life, no, job)),
            Body::Tell(process, life, _) => key_of(&(3, process, life, content)),
            Body::Start(process, life) => key_of(&(4, process, life)),
            Body::Refill(process, life) => key_of(&(5, process, life)),
            Body::Detect(process, life, returns) => key_of(&(6, process, life, returns)),
            Body::Restart(process) => key_of(&(7, process)),
        };
        Pending { key, body: Arc::new(body) }
    }

    fn lane(&self, is_fifo: bool) -> Lane {
        match &*self.body {
            Body::Packet { from, to, .. } if is_fifo => Lane::Channel(*from, *to),
            Body::Store(process, _) => Lane::Storage(*process),
            Body::Tell(process, ..) => Lane::Membership(*process),
            _ => Lane::Own,
        }
    }
}

impl<N: Hosted> State<N> {
    /// Creates the state after the start: every first life has begun, and all resulting steps have happened,
    /// except those of the application.
    pub(crate) fn begun(
        membership: Membership,
        bounds: &Bounds,
        effects: &mut Effects<N>,
        sink: &mut impl Witnesses<N>,
    ) -> State<N> {
        let mut membership = membership;
        let processes = membership.members.len() as u32;
        for member in Arc::make_mut(&mut membership.members) {
            (member.life, member.up) = (Life(1), true);
        }
        membership.version = membership.version.next();
        let membership = Arc::new(membership);
        let mut state = State {
            locals: (0..processes)
                .map(|it| Arc::new(Local::new(ProcessId(it), membership.clone())))
                .collect(),
            membership: membership.clone(),
            membership_key: key_of(&membership),
            pending: Vec::new(),
            overtaken: Vec::new(),
            is_fifo: effects.is_fifo(),
            left: Left { crashes: bounds.crashes, timers: bounds.timers, overtakings: bounds.overtakings },
            facts_key: 0,
            ended: None,
        };
        state.supervisor(Fact::Begun, sink);
        for process in (0..processes).map(ProcessId) {
            state.begin(process, Life(1), membership.clone(), effects, sink);
        }
        while let Some(place) = state
            .pending
            .iter()
            .enumerate()
            .position(|(place, it)| !matches!(&*it.body, Body::Compute(..)) && state.can_happen(place))
        {
            let pending = state.pending.remove(place);
            state.happen(&pending, effects, sink);
        }
        state
    }

    /// Returns the key of the state. States with the same key have the same possible futures, and in all of
    /// them the same facts have been reported.
    pub(crate) fn key(&self) -> Key {
        let left = self.left;
        let overtakings = left.overtakings.map_or(u128::MAX, u128::from);
        let budgets = [left.crashes.into(), left.timers.into(), overtakings];
        let supervisor = [self.membership_key, self.facts_key];
        let locals = self.locals.iter().map(|it| it.key);
        let counted = |pending: &[Pending<N>]| pending.len() as u128;
        let mut overtaken: Vec<Key> = self.overtaken.iter().map(|it| it.key).collect();
        overtaken.sort_unstable();
        let mut pending: Vec<Key> = self.pending.iter().map(|it| it.key).collect();
        if left.overtakings.is_none() {
            // If every order is explored, the order of requests is irrelevant, except on ordered channels.
            if self.is_fifo {
                for place in 0..self.pending.len() {
                    let lane = self.pending[place].lane(self.is_fifo);
                    let earlier = self.pending[..place]
                        .iter()
                        .filter(|it| it.lane(self.is_fifo) == lane && lane != Lane::Own);
                    pending[place] = pending[place].wrapping_add(earlier.count() as u128);
                }
            }
            pending.sort_unstable();
        }
        let counts = [counted(&self.pending), counted(&self.overtaken)];
        let steps = pending.into_iter().chain(overtaken);
        key_of_all(budgets.into_iter().chain(supervisor).chain(counts).chain(locals).chain(steps))
    }

    /// Returns the key of the complete run that [`State::complete`] derives from a quiet state. It consists of the
    /// facts reported so far and of everything on which the rest of the run depends: nothing if the run has ended,
    /// otherwise the states of all processes and of the supervisor. The remaining bounds are irrelevant.
    pub(crate) fn completion(&self) -> Key {
        if self.ended.is_some() {
            return key_of_all(self.locals.iter().map(|it| it.facts_key()).chain([self.facts_key]));
        }
        let steps = self.pending.iter().chain(&self.overtaken).map(|it| it.key);
        let supervisor = [self.membership_key, self.facts_key, self.pending.len() as u128];
        key_of_all(supervisor.into_iter().chain(self.locals.iter().map(|it| it.key)).chain(steps))
    }

    /// Returns the key of all facts reported so far.
    #[cfg(test)]
    pub(crate) fn facts_key(&self) -> Key {
        key_of_all(self.locals.iter().map(|it| it.facts_key()).chain([self.facts_key]))
    }

    /// Iterates over the next deadlines of all processes.
    #[cfg(test)]
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Option<Time>> + '_ {
        self.locals.iter().map(|it| it.deadline())
    }

    /// Returns whether the run has ended, or no pending step can happen.
    pub(crate) fn is_quiet(&self) -> bool {
        self.ended.is_some()
            || self.next().is_none() && !(0..self.overtaken.len()).any(|it| self.can_follow(it))
    }

    /// Returns whether every rank that has not failed permanently has finished.
    pub(crate) fn has_finished(&self) -> bool {
        let is_gone = |process: ProcessId| self.membership.member(process).gone;
        let all = (0..).map(ProcessId).zip(&self.locals);
        all.into_iter().all(|(process, it)| is_gone(process) || it.lives() && it.has_finished())
    }

    /// Returns whether a process can fail permanently: it is a rank, and another one remains.
    fn may_go(&self, process: ProcessId) -> bool {
        let is_rank = |it: ProcessId| self.membership.member(it).role == Role::RANK;
        let is_undetected = |it: ProcessId| {
            let steps = self.pending.iter().chain(&self.overtaken);
            steps
                .into_iter()
                .any(|step| matches!(&*step.body, Body::Detect(of, _, Return::Gone) if *of == it))
        };
        let remains = |it: ProcessId| is_rank(it) && !self.membership.member(it).gone && !is_undetected(it);
        let mut others = (0..self.locals.len() as u32).map(ProcessId).filter(|&it| it != process);
        is_rank(process) && others.any(remains)
    }

    /// Appends the choices that the state offers.
    pub(crate) fn choices(&self, bounds: &Bounds, choices: &mut Vec<Choice>) {
        if self.ended.is_some() {
            return;
        }
        let most = self.left.overtakings.map_or(usize::MAX, |it| it as usize + 1);
        let possible = (0..self.pending.len()).filter(|&it| self.can_happen(it)).take(most).count();
        choices.extend((0..possible).map(|it| Choice::Next(position(it))));
        let overtaken = (0..self.overtaken.len()).filter(|&it| self.can_follow(it));
        choices.extend(overtaken.map(|it| Choice::Overtaken(position(it))));
        let living = || (0..).map(ProcessId).zip(&self.locals).filter(|(_, it)| it.lives());
        if self.left.timers > 0 {
            let waiting = living().filter(|(_, it)| it.deadline().is_some());
            choices.extend(waiting.map(|(process, _)| Choice::Ring(process)));
        }
        if self.left.crashes > 0 {
            for (process, _) in living() {
                for &storage in bounds.storage.fates() {
                    for output in [Output::Survives, Output::Lost] {
                        choices.push(Choice::Crash { process, storage, output, returns: Return::Returns });
                    }
                }
                if bounds.permanent && self.may_go(process) {
                    // No process reads the storage of one that never returns.
                    for output in [Output::Survives, Output::Lost] {
                        let (storage, returns) = (StorageFate::Lost, Return::Gone);
                        choices.push(Choice::Crash { process, storage, output, returns });
                    }
                }
            }
        }
    }

    /// Performs a choice.
    pub(crate) fn perform(
        &self,
        choice: Choice,
        effects: &mut Effects<N>,
        sink: &mut impl Witnesses<N>,
    ) -> State<N> {
        let mut state = self.clone();
        match choice {
            Choice::Next(place) => {
                let possible: Vec<usize> = (0..state.pending.len())
                    .filter(|&it| state.can_happen(it))
                    .take(place as usize + 1)
                    .collect();
                let pending = state.pending.remove(possible[place as usize]);
                if let Some(left) = &mut state.left.overtakings {
                    *left -= u32::from(place);
                    for &earlier in possible[..place as usize].iter().rev() {
                        state.overtaken.push(state.pending.remove(earlier));
                    }
                }
                state.happen(&pending, effects, sink);
            }
            Choice::Overtaken(place) => {
                let pending = state.overtaken.remove(place as usize);
                state.happen(&pending, effects, sink);
            }
            Choice::Crash { process, storage, output, returns } => {
                state.left.crashes -= 1;
                state.crash(process, (storage, output, returns), effects, sink);
            }
            Choice::Ring(process) => {
                state.left.timers -= 1;
                state.fire_timer(process, effects, sink);
            }
        }
        state
    }

    /// Completes the run from a quiet state: deadlines expire in order, and all resulting steps happen, until every
    /// rank has finished. Returns whether the run ends: every rank finishes, or the run ends in another way.
    pub(crate) fn complete(&mut self, effects: &mut Effects<N>, sink: &mut impl Witnesses<N>) -> bool {
        for _ in 0..MOST_ROUNDS {
            if self.ended.is_some() || self.has_finished() {
                return true;
            }
            let due = |(process, local): (u32, &Arc<Local<N>>)| Some((local.deadline()?, ProcessId(process)));
            let mut due: Vec<(Time, ProcessId)> = (0..).zip(&self.locals).filter_map(due).collect();
            due.sort_unstable();
            for (_, process) in due {
                self.fire_timer(process, effects, sink);
                let mut steps = 0;
                while let Some(place) = self.next()
                    && self.ended.is_none()
                {
                    let pending = self.pending.remove(place);
                    self.happen(&pending, effects, sink);
                    steps += 1;
                    if steps > MOST_STEPS {
                        return false;
                    }
                }
            }
        }
        self.ended.is_some() || self.has_finished()
    }

    /// Returns the position of the next pending step if nothing is overtaken.
    fn next(&self) -> Option<usize> {
        (0..self.pending.len()).find(|&it| self.can_happen(it))
    }

    fn can_happen(&self, place: usize) -> bool {
        let pending = &self.pending[place];
        let lane = pending.lane(self.is_fifo);
        let waits = |earlier: &[Pending<N>]| {
            lane != Lane::Own && earlier.iter().any(|it| it.lane(self.is_fifo) == lane)
        };
        self.can_arrive(pending) && !waits(&self.pending[..place]) && !waits(&self.overtaken)
    }

    fn can_follow(&self, place: usize) -> bool {
        self.can_arrive(&self.overtaken[place])
    }

    /// Returns whether a packet can arrive. A packet from a life that its receiver does not know yet must
    /// wait.
    fn can_arrive(&self, pending: &Pending<N>) -> bool {
        match &*pending.body {
            Body::Packet { from, from_life, to, .. } => {
                *from_life <= self.locals[to.index()].view.member(*from).life
            }
            _ => true,
        }
    }

    /// Removes steps of ended lives that can no longer have an effect.
    fn prune(&mut self) {
        let locals = &self.locals;
        let lives = |process: ProcessId, life: Life| {
            let local = &locals[process.index()];
            local.lives() && local.life == life
        };
        let is_void = |it: &Pending<N>| match &*it.body {
            Body::Packet { from, from_life, to, to_life, .. } => {
                !lives(*to, *to_life) || *from_life < locals[to.index()].view.member(*from).life
            }
            Body::Store(process, life)
            | Body::Compute(process, life, ..)
            | Body::Tell(process, life, _)
            | Body::Start(process, life)
            | Body::Refill(process, life) => !lives(*process, *life),
            Body::Detect(..) | Body::Restart(_) => false,
        };
        self.pending.retain(|it| !is_void(it));
        self.overtaken.retain(|it| !is_void(it));
    }

    fn happen(&mut self, pending: &Pending<N>, effects: &mut Effects<N>, sink: &mut impl Witnesses<N>) {
        let key = pending.key;
        match &*pending.body {
            Body::Packet { from, to, packet, .. } => {
                sink.steps(|| format!("{to} receives from {from}: {}", short::<N>(packet)));
                self.event(*to, key, || ExploredEvent::Arrive(*from, packet.clone()), effects, sink);
            }
            Body::Store(process, _) => {
                sink.steps(|| format!("the storage of {process} completes an operation"));
                self.event(*process, STORED, || ExploredEvent::Stored, effects, sink);
            }
            Body::Compute(process, _, no, job) => {
                sink.steps(|| format!("{process} computes"));
                self.event(*process, key, || ExploredEvent::Computed(*no, job.clone()), effects, sink);
            }
            Body::Tell(process, _, view) => {
                sink.steps(|| format!("{process} learns of membership {}", view.version.0));
                self.event(*process, key, || ExploredEvent::Told(view.clone()), effects, sink);
                self.prune();
            }
            Body::Start(process, _) => {
                sink.steps(|| format!("the supervisor records the start of {process}"));
                let mut membership = (*self.membership).clone();
                Arc::make_mut(&mut membership.members)[process.index()].started = true;
                self.announce(membership);
            }
            Body::Refill(process, _) => {
                sink.steps(|| format!("the supervisor learns that the storage of {process} is complete"));
                self.event(*process, REFILLED, || ExploredEvent::Refilled, effects, sink);
            }
            Body::Detect(process, life, returns) => {
                sink.steps(|| format!("the supervisor detects the failure of {process}"));
                self.supervisor(Fact::Detected { process: *process, life: *life }, sink);
                let mut membership = (*self.membership).clone();
                let member = &mut Arc::make_mut(&mut membership.members)[process.index()];
                (member.up, member.gone) = (false, *returns == Return::Gone);
                self.announce(membership);
                if *returns == Return::Returns {
                    self.pending.push(Pending::new(Body::Restart(*process), 0));
                }
            }
            Body::Restart(process) => {
                sink.steps(|| format!("the supervisor restarts {process}"));
                let life = self.locals[process.index()].life.next();
                let mut membership = (*self.membership).clone();
                let member = &mut Arc::make_mut(&mut membership.members)[process.index()];
                (member.life, member.up) = (life, true);
                self.announce(membership);
                let view = self.membership.clone();
                self.begin(*process, life, view, effects, sink);
            }
        }
    }

    fn begin(
        &mut self,
        process: ProcessId,
        life: Life,
        view: Arc<Membership>,
        effects: &mut Effects<N>,
        sink: &mut impl Witnesses<N>,
    ) {
        let boot = self.locals[process.index()].next_boot();
        self.supervisor(Fact::LifeStarted { process, life, boot }, sink);
        let key = key_of(&(8, life, &view));
        self.event(process, key, || ExploredEvent::Begin(life, view.clone()), effects, sink);
    }

    fn crash(
        &mut self,
        process: ProcessId,
        (storage, output, returns): (StorageFate, Output, Return),
        effects: &mut Effects<N>,
        sink: &mut impl Witnesses<N>,
    ) {
        let life = self.locals[process.index()].life;
        sink.steps(|| {
            let storage = match (returns, storage) {
                (Return::Gone, _) => ", and never returns",
                (_, StorageFate::Lost) => ", and loses its storage",
                (_, StorageFate::Kept) => "",
            };
            let output = if output == Output::Lost { "; its messages in transit are lost" } else { "" };
            format!("{process} fails{storage}{output}")
        });
        let mut by = EndedBy::Silence;
        if returns == Return::Gone {
            // Only the fault that ended a process shows that it does not return.
            let (no, fault) = (FaultNo(process.0), Fault::Crash { process, storage, returns: false });
            by = EndedBy::Fault(no);
            self.supervisor(Fact::Injecting { no, fault: Box::new(fault) }, sink);
        }
        self.supervisor(Fact::Failed { process, life, storage, by }, sink);
        self.event(process, key_of(&(9, storage)), || ExploredEvent::End(storage), effects, sink);
        if output == Output::Lost {
            let is_its = |it: &Pending<N>| matches!(&*it.body, Body::Packet { from, .. } if *from == process);
            self.pending.retain(|it| !is_its(it));
            self.overtaken.retain(|it| !is_its(it));
        }
        self.prune();
        self.pending.push(Pending::new(Body::Detect(process, life, returns), 0));
    }

    fn fire_timer(&mut self, process: ProcessId, effects: &mut Effects<N>, sink: &mut impl Witnesses<N>) {
        sink.steps(|| format!("a deadline of {process} expires"));
        self.event(process, RANG, || ExploredEvent::Ring, effects, sink);
    }

    fn announce(&mut self, mut membership: Membership) {
        membership.version = membership.version.next();
        let content = key_of(&membership);
        (self.membership, self.membership_key) = (Arc::new(membership), content);
        for (process, local) in (0..).map(ProcessId).zip(&self.locals) {
            if local.lives() {
                let body = Body::Tell(process, local.life, self.membership.clone());
                self.pending.push(Pending::new(body, content));
            }
        }
    }

    fn supervisor(&mut self, fact: Fact, sink: &mut impl Witnesses<N>) {
        self.facts_key = key_of_all([self.facts_key, key_of(&fact)]);
        sink.states(ProcessId::SUPERVISOR, Life(0), &[fact]);
    }

    /// Performs an event of a process, and enqueues its requests.
    fn event(
        &mut self,
        process: ProcessId,
        key: Key,
        happening: impl FnOnce() -> ExploredEvent<N>,
        effects: &mut Effects<N>,
        sink: &mut impl Witnesses<N>,
    ) {
        let effect = effects.of(&self.locals[process.index()], key, happening);
        let Effect { local, requests, facts, ends } = &*effect;
        let life = local.life;
        self.locals[process.index()] = local.clone();
        sink.states(process, life, facts);
        self.ended = self.ended.take().or_else(|| ends.clone());
        for request in requests {
            let pending = match request {
                Request::Send { to, to_life, packet, key } => {
                    let (to, to_life, packet) = (*to, *to_life, packet.clone());
                    let receiver = &self.locals[to.index()];
                    if to_life < receiver.life || !receiver.lives() && to_life == receiver.life {
                        continue;
                    }
                    let body = Body::Packet { from: process, from_life: life, to, to_life, packet };
                    Pending::new(body, *key)
                }
                Request::Store => Pending::new(Body::Store(process, life), 0),
                Request::Compute(no, job) => Pending::new(Body::Compute(process, life, *no, job.clone()), 0),
                Request::Started => Pending::new(Body::Start(process, life), 0),
                Request::Held => Pending::new(Body::Refill(process, life), 0),
            };
            self.pending.push(pending);
        }
    }
}

/// Converts the position of a pending step to the type of a choice.
fn position(place: usize) -> u16 {
    u16::try_from(place).expect("fewer than 65,536 steps are pending")
}

/// Keys of events without content.
const STORED: Key = 1;
const REFILLED: Key = 2;
const RANG: Key = 3;

/// The number of rounds of deadlines after which a quiet federation counts as one that never finishes.
const MOST_ROUNDS: usize = 12;
/// The largest number of steps between two deadlines.
const MOST_STEPS: usize = 20_000;

/// Returns a short description of a packet.
fn short<N: Hosted>(packet: &PacketOf<N>) -> String {
    const MOST: usize = 160;
    let text = match packet {
        Packet::Application { id, .. } => format!("message {id}"),
        Packet::Control(message) => format!("{message:?}"),
        Packet::Image(image) => format!("the part {}", image.name),
    };
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
