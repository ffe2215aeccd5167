//! A state of the federation, the choices that it offers, and the state that follows a choice.

use std::sync::Arc;

use faultline_core::fault::Outcome;
use faultline_core::{Fact, Life, Membership, ProcessId, Role, StorageFate, Time};

use crate::bounds::Bounds;
use crate::key::{Key, key_of_all, key_of_words};
use crate::tables::{Body, Lane, LocalEntry, LocalEvent, Return, Step, SupervisorEvent, Tables};

/// A state of the federation. The supervisor, processes and steps are represented by their numbers in the
/// [`Tables`].
#[derive(Default)]
pub(crate) struct State {
    supervisor: u32,
    locals: Vec<u32>,
    /// Pending steps in the order in which they were requested, except overtaken ones.
    pending: Vec<u32>,
    /// Pending steps that other steps have overtaken. They may happen at any time.
    overtaken: Vec<u32>,
    pub(crate) left: Left,
    has_ended: bool,
}

/// The failures, timers and overtakings that the bounds still permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// A choice that a state offers.
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

/// The fate of packets that a failed process had sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// The packets arrive, unless their receiver learns of the failure first.
    Survives,
    /// They are lost.
    Lost,
}

/// The choices that a state offers.
#[derive(Default)]
pub(crate) struct Choices {
    /// The positions of the first pending steps that can happen, as many as can be chosen.
    possible: Vec<u16>,
    pub(crate) all: Vec<Choice>,
    lanes: Vec<Lane>,
}

/// Receives the facts that processes report, step by step.
pub(crate) trait Witness {
    fn states(&mut self, process: ProcessId, life: Life, facts: &[Fact]);
    /// Called at the beginning of a step, with its description.
    fn steps(&mut self, text: impl FnOnce() -> String);
    /// Called if the run ends.
    fn ends(&mut self, outcome: &Outcome);
}

/// Discards everything.
impl Witness for () {
    fn states(&mut self, _: ProcessId, _: Life, _: &[Fact]) {}
    fn steps(&mut self, _: impl FnOnce() -> String) {}
    fn ends(&mut self, _: &Outcome) {}
}

impl State {
    /// Creates the state after the start: every first life has begun, and all resulting steps have happened,
    /// except those of the application.
    pub(crate) fn begun(
        mut membership: Membership,
        bounds: &Bounds,
        tables: &Tables,
        sink: &mut impl Witness,
    ) -> State {
        for member in Arc::make_mut(&mut membership.members) {
            (member.life, member.up) = (Life(1), true);
        }
        membership.version = membership.version.next();
        let processes = membership.members.len() as u32;
        let view = Arc::new(membership.clone());
        let mut state = State {
            locals: (0..processes).map(|it| tables.create(ProcessId(it), view.clone())).collect(),
            supervisor: tables.first_supervisor(membership),
            left: Left { crashes: bounds.crashes, timers: bounds.timers, overtakings: bounds.overtakings },
            ..State::default()
        };
        // As under a supervisor, the application begins once all processes have started.
        for process in (0..processes).map(ProcessId) {
            let boot = state.local(process, tables).next_boot;
            state.supervise(SupervisorEvent::Starts(process, boot), tables, sink);
        }
        state.supervise(SupervisorEvent::Begins, tables, sink);
        let membership = tables.supervisors.get(state.supervisor).membership;
        for process in (0..processes).map(ProcessId) {
            state.event(process, LocalEvent::Begins(membership), tables, sink);
        }
        let mut choices = Choices::default();
        loop {
            state.find_possible(usize::MAX, tables, &mut choices);
            let is_computation =
                |it: &u16| matches!(tables.steps.get(state.pending[*it as usize]).body, Body::Compute(..));
            let Some(place) = choices.possible.iter().copied().find(|it| !is_computation(it)) else {
                return state;
            };
            let pending = state.pending.remove(place as usize);
            state.happen(pending, tables, sink);
        }
    }

    /// Makes this state equal to another one.
    pub(crate) fn copy_from(&mut self, other: &State) {
        let State { supervisor, locals, pending, overtaken, left, has_ended } = other;
        (self.supervisor, self.left, self.has_ended) = (*supervisor, *left, *has_ended);
        self.locals.clone_from(locals);
        self.pending.clone_from(pending);
        self.overtaken.clone_from(overtaken);
    }

    /// Appends the state to a list of numbers.
    pub(crate) fn write(&self, words: &mut Vec<u32>) {
        let Left { crashes, timers, overtakings } = self.left;
        let overtakings = overtakings.map_or(u32::MAX, |it| it.min(u32::MAX - 1));
        let counts = [self.locals.len() as u32, self.pending.len() as u32];
        words.extend([self.supervisor, crashes, timers, overtakings, self.has_ended.into()]);
        words.extend(counts);
        words.extend_from_slice(&self.locals);
        words.extend_from_slice(&self.pending);
        words.extend_from_slice(&self.overtaken);
    }

    /// Replaces this state with the one that `words` encodes.
    pub(crate) fn read(&mut self, words: &[u32]) {
        let &[supervisor, crashes, timers, overtakings, has_ended, locals, pending, ref rest @ ..] = words
        else {
            unreachable!("a written state has a head");
        };
        let overtakings = (overtakings != u32::MAX).then_some(overtakings);
        (self.supervisor, self.has_ended) = (supervisor, has_ended != 0);
        self.left = Left { crashes, timers, overtakings };
        let (locals, rest) = rest.split_at(locals as usize);
        let (pending, overtaken) = rest.split_at(pending as usize);
        for (into, from) in
            [(&mut self.locals, locals), (&mut self.pending, pending), (&mut self.overtaken, overtaken)]
        {
            into.clear();
            into.extend_from_slice(from);
        }
    }

    /// Returns the states of the processes in the state that `words` encodes.
    pub(crate) fn locals(words: &[u32]) -> &[u32] {
        let &[_, _, _, _, _, locals, _, ref rest @ ..] = words else {
            unreachable!("a written state has a head");
        };
        &rest[..locals as usize]
    }

    /// Returns the key of the state. States with the same key have the same possible futures, and in all of
    /// them the same facts have been reported. `words` is a buffer.
    pub(crate) fn key(&self, tables: &Tables, words: &mut Vec<u32>) -> Key {
        words.clear();
        self.write(words);
        let (steps, overtaken) =
            (words.len() - self.overtaken.len() - self.pending.len(), self.overtaken.len());
        let end = words.len() - overtaken;
        words[end..].sort_unstable();
        if self.left.overtakings.is_none() {
            // If every order is explored, the order of requests is irrelevant, except on ordered channels.
            words[steps..end].sort_unstable();
            if tables.is_fifo {
                let lane = |it: u32| tables.steps.get(it).lane;
                for (place, &step) in self.pending.iter().enumerate() {
                    if let channel @ Lane::Channel(..) = lane(step) {
                        let earlier = self.pending[..place].iter().filter(|it| lane(**it) == channel);
                        words.extend([step, earlier.count() as u32]);
                    }
                }
                let (_, places) = words.split_at_mut(end + overtaken);
                places.as_chunks_mut::<2>().0.sort_unstable();
            }
        }
        key_of_words(words)
    }

    /// Returns the key of the complete run that [`State::complete`] derives from a quiet state. It covers the facts
    /// reported so far and everything on which the rest of the run depends: nothing if the run has ended; otherwise,
    /// the states of all processes and of the supervisor, and the pending steps. The remaining bounds are irrelevant.
    pub(crate) fn completion(&self, tables: &Tables) -> Key {
        if self.has_ended {
            return self.facts_key(tables);
        }
        let mut words = vec![self.supervisor, self.pending.len() as u32];
        for part in [&self.locals, &self.pending, &self.overtaken] {
            words.extend_from_slice(part);
        }
        key_of_words(&words)
    }

    /// Returns the key of all facts reported so far.
    pub(crate) fn facts_key(&self, tables: &Tables) -> Key {
        let supervisor = tables.supervisors.get(self.supervisor).facts_key;
        key_of_all(self.entries(tables).map(|it| it.facts_key).chain([supervisor]))
    }

    /// Iterates over the next deadlines of all processes.
    #[cfg(test)]
    pub(crate) fn deadlines(&self, tables: &Tables) -> impl Iterator<Item = Option<Time>> {
        self.entries(tables).map(|it| it.deadline)
    }

    /// Returns whether the run has ended, or no pending step can happen.
    pub(crate) fn is_quiet(&self, tables: &Tables, choices: &mut Choices) -> bool {
        self.has_ended
            || self.next(tables, choices).is_none()
                && !self.overtaken.iter().any(|it| self.can_arrive(*it, tables))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns whether every process that has not failed permanently is running and, if it is a rank, has finished.
    pub(crate) fn has_finished(&self, tables: &Tables) -> bool {
        let membership = self.membership(tables);
        let is_gone = |process: ProcessId| membership.member(process).gone;
        let mut all = (0..).map(ProcessId).zip(self.entries(tables));
        all.all(|(process, it)| is_gone(process) || it.lives && it.has_finished)
    }

    /// Returns whether a process can fail permanently: it is a rank, and another rank remains.
    fn may_go(&self, process: ProcessId, tables: &Tables) -> bool {
        let membership = self.membership(tables);
        let is_rank = |it: ProcessId| membership.member(it).role == Role::RANK;
        let is_undetected = |it: ProcessId| {
            let steps = self.pending.iter().chain(&self.overtaken);
            steps.into_iter().any(
                |step| matches!(tables.steps.get(*step).body, Body::Detect(of, _, Return::Gone) if of == it),
            )
        };
        let remains = |it: ProcessId| is_rank(it) && !membership.member(it).gone && !is_undetected(it);
        let mut others = (0..self.locals.len() as u32).map(ProcessId).filter(|&it| it != process);
        is_rank(process) && others.any(remains)
    }

    /// Finds the choices that the state offers.
    pub(crate) fn find_choices(&self, bounds: &Bounds, tables: &Tables, choices: &mut Choices) {
        choices.all.clear();
        if self.has_ended {
            return;
        }
        let most = self.left.overtakings.map_or(usize::MAX, |it| it as usize + 1);
        self.find_possible(most, tables, choices);
        let all = &mut choices.all;
        all.extend((0..choices.possible.len()).map(|it| Choice::Next(position(it))));
        let overtaken = (0..self.overtaken.len()).filter(|&it| self.can_arrive(self.overtaken[it], tables));
        all.extend(overtaken.map(|it| Choice::Overtaken(position(it))));
        let living = || (0..).map(ProcessId).zip(self.entries(tables)).filter(|(_, it)| it.lives);
        if self.left.timers > 0 {
            let waiting = living().filter(|(_, it)| it.deadline.is_some());
            all.extend(waiting.map(|(process, _)| Choice::Ring(process)));
        }
        if self.left.crashes > 0 {
            for (process, _) in living() {
                for &storage in bounds.storage.fates() {
                    for output in [Output::Survives, Output::Lost] {
                        all.push(Choice::Crash { process, storage, output, returns: Return::Returns });
                    }
                }
                if bounds.permanent && self.may_go(process, tables) {
                    // No process reads the storage of a process that never returns.
                    for output in [Output::Survives, Output::Lost] {
                        let (storage, returns) = (StorageFate::Lost, Return::Gone);
                        all.push(Choice::Crash { process, storage, output, returns });
                    }
                }
            }
        }
    }

    /// Returns the number of the pending step at a position among those that can happen.
    pub(crate) fn step(&self, place: u16, choices: &Choices) -> u32 {
        self.pending[choices.possible[place as usize] as usize]
    }

    /// Performs one of the choices that were found.
    pub(crate) fn perform(
        &mut self,
        choice: Choice,
        choices: &Choices,
        tables: &Tables,
        sink: &mut impl Witness,
    ) {
        match choice {
            Choice::Next(place) => {
                let (earlier, chosen) = choices.possible.split_at(place as usize);
                let pending = self.pending.remove(chosen[0] as usize);
                if let Some(left) = &mut self.left.overtakings {
                    *left -= u32::from(place);
                    for &earlier in earlier.iter().rev() {
                        self.overtaken.push(self.pending.remove(earlier as usize));
                    }
                }
                self.happen(pending, tables, sink);
            }
            Choice::Overtaken(place) => {
                let pending = self.overtaken.remove(place as usize);
                self.happen(pending, tables, sink);
            }
            Choice::Crash { process, storage, output, returns } => {
                self.left.crashes -= 1;
                self.crash(process, (storage, output, returns), tables, sink);
            }
            Choice::Ring(process) => {
                self.left.timers -= 1;
                self.fire_timer(process, tables, sink);
            }
        }
    }

    /// Completes the run from a quiet state: deadlines expire in order, and all resulting steps happen, until
    /// every rank has finished or the run has ended in another way. Returns whether one of these happens.
    pub(crate) fn complete(&mut self, tables: &Tables, sink: &mut impl Witness) -> bool {
        let mut choices = Choices::default();
        for _ in 0..MOST_ROUNDS {
            if self.has_ended || self.has_finished(tables) {
                return true;
            }
            let due = |(process, local): (u32, &LocalEntry)| Some((local.deadline?, ProcessId(process)));
            let mut due: Vec<(Time, ProcessId)> = (0..).zip(self.entries(tables)).filter_map(due).collect();
            due.sort_unstable();
            for (_, process) in due {
                self.fire_timer(process, tables, sink);
                let mut steps = 0;
                while let Some(place) = self.next(tables, &mut choices)
                    && !self.has_ended
                {
                    let pending = self.pending.remove(place);
                    self.happen(pending, tables, sink);
                    steps += 1;
                    if steps > MOST_STEPS {
                        return false;
                    }
                }
            }
        }
        self.has_ended || self.has_finished(tables)
    }

    /// Returns the position of the next pending step if nothing is overtaken.
    fn next(&self, tables: &Tables, choices: &mut Choices) -> Option<usize> {
        self.find_possible(1, tables, choices);
        choices.possible.first().map(|it| *it as usize)
    }

    /// Finds the first pending steps that can happen, at most `most`.
    fn find_possible(&self, most: usize, tables: &Tables, choices: &mut Choices) {
        let Choices { possible, lanes, .. } = choices;
        possible.clear();
        lanes.clear();
        lanes
            .extend(self.overtaken.iter().map(|it| tables.steps.get(*it).lane).filter(|it| *it != Lane::Own));
        for (place, &pending) in self.pending.iter().enumerate() {
            if possible.len() >= most {
                return;
            }
            let lane = tables.steps.get(pending).lane;
            let waits = lane != Lane::Own && lanes.contains(&lane);
            if !waits && self.can_arrive(pending, tables) {
                possible.push(position(place));
            }
            if lane != Lane::Own && !waits {
                lanes.push(lane);
            }
        }
    }

    /// Returns whether a packet can arrive. A packet from a life that its receiver does not know yet must
    /// wait.
    fn can_arrive(&self, step: u32, tables: &Tables) -> bool {
        match &tables.steps.get(step).body {
            Body::Packet { from, from_life, to, .. } => {
                *from_life <= self.local(*to, tables).view.member(*from).life
            }
            _ => true,
        }
    }

    /// Removes steps that can no longer have an effect because the lives that they belong to have ended.
    fn prune(&mut self, tables: &Tables) {
        let State { locals, pending, overtaken, .. } = self;
        let local = |process: ProcessId| tables.locals.get(locals[process.index()]);
        let lives = |process: ProcessId, life: Life| {
            let local = local(process);
            local.lives && local.life == life
        };
        let can_happen = |it: &u32| match &tables.steps.get(*it).body {
            Body::Packet { from, from_life, to, to_life, .. } => {
                lives(*to, *to_life) && *from_life >= local(*to).view.member(*from).life
            }
            Body::Store(process, life)
            | Body::Compute(process, life, ..)
            | Body::Tell(process, life, _)
            | Body::Start(process, life)
            | Body::Refill(process, life) => lives(*process, *life),
            Body::Detect(..) | Body::Restart(_) => true,
        };
        pending.retain(can_happen);
        overtaken.retain(can_happen);
    }

    fn happen(&mut self, number: u32, tables: &Tables, sink: &mut impl Witness) {
        let step: &Step = tables.steps.get(number);
        match &step.body {
            Body::Packet { from, to, .. } => {
                sink.steps(|| format!("{to} receives from {from}: {}", tables.packet(number)));
                self.event(*to, LocalEvent::Happens(number), tables, sink);
            }
            Body::Store(process, _) => {
                sink.steps(|| format!("the storage of {process} completes an operation"));
                self.event(*process, LocalEvent::Stores, tables, sink);
            }
            Body::Compute(process, ..) => {
                sink.steps(|| format!("{process} computes"));
                self.event(*process, LocalEvent::Happens(number), tables, sink);
            }
            Body::Tell(process, _, view) => {
                sink.steps(|| format!("{process} learns of membership {}", view.version.0));
                self.event(*process, LocalEvent::Happens(number), tables, sink);
                self.prune(tables);
            }
            Body::Start(process, _) => {
                sink.steps(|| format!("the supervisor records the start of {process}"));
                self.supervise(SupervisorEvent::Records(*process), tables, sink);
            }
            Body::Refill(process, _) => {
                sink.steps(|| format!("the supervisor learns that the storage of {process} is complete"));
                self.event(*process, LocalEvent::Refills, tables, sink);
            }
            Body::Detect(process, _, returns) => {
                sink.steps(|| format!("the supervisor detects the failure of {process}"));
                self.supervise(SupervisorEvent::Detects(*process, *returns), tables, sink);
            }
            Body::Restart(process) => {
                sink.steps(|| format!("the supervisor restarts {process}"));
                let boot = self.local(*process, tables).next_boot;
                self.supervise(SupervisorEvent::Restarts(*process, boot), tables, sink);
                let membership = tables.supervisors.get(self.supervisor).membership;
                self.event(*process, LocalEvent::Begins(membership), tables, sink);
            }
        }
    }

    fn crash(
        &mut self,
        process: ProcessId,
        (storage, output, returns): (StorageFate, Output, Return),
        tables: &Tables,
        sink: &mut impl Witness,
    ) {
        sink.steps(|| {
            let storage = match (returns, storage) {
                (Return::Gone, _) => ", and never returns",
                (_, StorageFate::Lost) => ", and loses its storage",
                (_, StorageFate::Kept) => "",
            };
            let output = if output == Output::Lost { "; its messages in transit are lost" } else { "" };
            format!("{process} fails{storage}{output}")
        });
        self.supervise(SupervisorEvent::Fails(process, storage, returns), tables, sink);
        self.event(process, LocalEvent::Ends(storage, returns), tables, sink);
        if output == Output::Lost {
            let is_others = |it: &u32| !matches!(&tables.steps.get(*it).body, Body::Packet { from, .. } if *from == process);
            self.pending.retain(is_others);
            self.overtaken.retain(is_others);
        }
        self.prune(tables);
    }

    fn fire_timer(&mut self, process: ProcessId, tables: &Tables, sink: &mut impl Witness) {
        sink.steps(|| format!("a deadline of {process} expires"));
        self.event(process, LocalEvent::Rings, tables, sink);
    }

    /// Applies an event to the supervisor, and enqueues the resulting request and announcements.
    fn supervise(&mut self, event: SupervisorEvent, tables: &Tables, sink: &mut impl Witness) {
        let effect = tables.supervisor_effect(self.supervisor, event);
        self.supervisor = effect.supervisor;
        for fact in &effect.facts {
            sink.states(ProcessId::SUPERVISOR, Life(0), std::slice::from_ref(fact));
        }
        if effect.announces {
            let membership = tables.supervisors.get(self.supervisor).membership;
            let tells = &tables.memberships.get(membership).tells;
            let State { locals, pending, .. } = self;
            let told = locals.iter().zip(tells).filter(|(local, _)| tables.locals.get(**local).lives);
            pending.extend(told.map(|(_, tell)| tell));
        }
        self.pending.extend(effect.request);
    }

    /// Applies an event to a process, and enqueues the resulting requests.
    fn event(&mut self, process: ProcessId, event: LocalEvent, tables: &Tables, sink: &mut impl Witness) {
        let effect = tables.effect(self.locals[process.index()], event);
        self.locals[process.index()] = effect.local;
        sink.states(process, self.local(process, tables).life, &effect.facts);
        if let Some(outcome) = &effect.ends {
            self.has_ended = true;
            sink.ends(outcome);
        }
        for &request in &effect.requests {
            if let Body::Packet { to, to_life, .. } = &tables.steps.get(request).body {
                let receiver = self.local(*to, tables);
                if *to_life < receiver.life || !receiver.lives && *to_life == receiver.life {
                    continue;
                }
            }
            self.pending.push(request);
        }
    }

    fn membership<'a>(&self, tables: &'a Tables) -> &'a Membership {
        let membership = tables.supervisors.get(self.supervisor).membership;
        &tables.memberships.get(membership).membership
    }

    fn local<'a>(&self, process: ProcessId, tables: &'a Tables) -> &'a LocalEntry {
        tables.locals.get(self.locals[process.index()])
    }

    fn entries<'a>(&self, tables: &'a Tables) -> impl Iterator<Item = &'a LocalEntry> {
        self.locals.iter().map(|it| tables.locals.get(*it))
    }
}

/// Converts the position of a pending step to the type that [`Choice`] uses.
fn position(place: usize) -> u16 {
    u16::try_from(place).expect("fewer than 65,536 steps are pending")
}

/// The number of rounds of deadlines after which a quiet federation counts as one that never finishes.
const MOST_ROUNDS: usize = 12;
/// The largest number of steps between two deadlines.
const MOST_STEPS: usize = 20_000;
