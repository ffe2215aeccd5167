//! Places with agents: tracks the life at each place, and the orders to its agent.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use faultline_core::{Boot, EndedBy, Life, ProcessId, Span, StorageFate};
use faultline_shaper::Kernel;
use faultline_trace::Bundle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::warn;

use super::agents;
use super::messages::{Assignment, OrderNo, Ready, ToAgent, ToPlace};
use super::orders::{Answer, PATIENCE};
use super::place_registry::{AgentPlace, PlaceRegistry, Wanted};
use crate::clock::{AgentClock, Clock, monotonic};
use crate::supervise::Names;
use crate::supervise::places::{GRACE_PERIOD, HostEvent, PlaceBackend, Seen};
use crate::supervise::{Journal, JournalContents, JournalEntry, PlaceContext, RunError};

/// Longest time to wait, at the end of the run, for agents with facts of lives that a previous supervisor started.
const COLLECTED: Duration = Duration::from_secs(30);
/// Time between two checks while waiting at the end of the run.
const LOOK: Duration = Duration::from_millis(50);

/// Lives whose facts may not all have arrived. Each has the UID of the place that can still send them, or `None` if
/// facts that arrived could not be written.
type IncompleteLives = BTreeMap<Life, Option<String>>;
/// The incomplete lives of each process.
pub(super) type Incomplete = BTreeMap<ProcessId, IncompleteLives>;

/// Returns the lives whose facts the predecessor of this program had not received completely.
pub(super) fn incomplete(past: &JournalContents) -> io::Result<Incomplete> {
    let mut incomplete = Incomplete::new();
    for entry in past.entries()? {
        match entry? {
            JournalEntry::Launched { process, life, uid } => {
                incomplete.entry(process).or_default().insert(life, Some(uid));
            }
            JournalEntry::Complete { process, life } => {
                incomplete.entry(process).or_default().remove(&life);
            }
            _ => {}
        }
    }
    Ok(incomplete)
}

/// The places of all processes.
pub(super) struct Remote {
    shared: Rc<Shared>,
    /// Tasks that end lives. Each order has its own task, so that an agent that does not respond delays no other order.
    kills: JoinSet<()>,
}

/// State shared by the host and the tasks that communicate with agents, all on one thread.
pub(super) struct Shared {
    run: String,
    names: Names,
    pub(super) bundle: Bundle,
    pub(super) place_context: PlaceContext,
    pub(super) place_registry: PlaceRegistry,
    entries: RefCell<Vec<PlaceEntry>>,
    journal: Journal,
    /// Whether a predecessor of this program launched lives.
    recalled: Cell<bool>,
    /// Time for which a silent agent keeps its place.
    pub(super) replace_after: Duration,
}

/// State of one process.
#[derive(Default)]
pub(super) struct PlaceEntry {
    pub(super) place: Option<AgentPlace>,
    /// The task that maintains the connection to the place's agent.
    caller: Option<AbortHandle>,
    /// The agent, once it is ready.
    pub(super) agent: Option<Agent>,
    /// The hosted life. There is at most one, and a life that was removed from here is never hosted again.
    pub(super) life: Option<Life>,
    /// The clock and the features of traffic control that the last launched life uses. The agent may be disconnected
    /// when the life asks for them.
    launched: Option<(AgentClock, Option<Kernel>)>,
    /// The newest life that has connected to the supervisor.
    introduced: Life,
    /// Whether the hosted life is to be paused, if it was ever paused.
    paused: Option<bool>,
    /// The life that waits for an agent, and for the completion of earlier orders.
    pub(super) wanted: Option<(Life, Boot)>,
    /// Number of incomplete orders to end lives at this place.
    pub(super) ending: u32,
    /// Number of messages received from the agent.
    pub(super) heard: u64,
    /// Whether the storage must still be removed, because neither an agent has confirmed its removal nor a life has
    /// been launched without it.
    wipes: bool,
    /// The newest life ever requested.
    newest: Life,
    incomplete: IncompleteLives,
    pub(super) orders: OrderNo,
    /// Orders whose response is pending, each with its time by this machine's monotonic clock.
    pub(super) waiting: BTreeMap<OrderNo, (u64, oneshot::Sender<Answer>)>,
}

/// An agent that is ready.
pub(super) struct Agent {
    pub(super) words: mpsc::UnboundedSender<ToAgent>,
    /// The run's clock as the agent reads it.
    pub(super) clock: AgentClock,
    /// Address of this machine from the agent's point of view.
    here: IpAddr,
    holds_storage: bool,
    /// Features of traffic control that are in use at the agent's place.
    kernel: Option<Kernel>,
}

impl Remote {
    pub(super) fn new(
        (run, run_dir): (String, PathBuf),
        names: Names,
        place_context: PlaceContext,
        place_registry: PlaceRegistry,
        replace_after: Duration,
        (journal, mut incomplete): (Journal, Incomplete),
    ) -> Remote {
        let processes = (0..names.processes.len() as u32).map(ProcessId);
        let entry = |process| PlaceEntry {
            incomplete: incomplete.remove(&process).unwrap_or_default(),
            ..PlaceEntry::default()
        };
        let entries = RefCell::new(processes.map(entry).collect());
        let recalled = Cell::new(false);
        let shared = Rc::new(Shared {
            run,
            names,
            bundle: Bundle::open(run_dir),
            place_context,
            place_registry,
            entries,
            journal,
            recalled,
            replace_after,
        });
        tokio::task::spawn_local(shared.clone().follow());
        Remote { shared, kills: JoinSet::new() }
    }
}

impl PlaceBackend for Remote {
    fn launch(&mut self, process: ProcessId, life: Life, boot: Boot) -> Result<(), RunError> {
        self.shared.with(process, |entry| {
            entry.wanted = Some((life, boot));
            entry.newest = life;
        });
        self.shared.try_launch(process);
        tokio::task::spawn_local(self.shared.clone().replace_if_silent(process, life));
        Ok(())
    }

    fn introduced(&mut self, process: ProcessId, life: Life) {
        self.shared.with(process, |entry| {
            entry.introduced = life;
            // Its agent has removed the storage, and it has not stored anything yet.
            entry.wipes = false;
        });
    }

    fn hosts(&self, process: ProcessId, life: Life) -> bool {
        self.shared.with(process, |entry| entry.life == Some(life))
    }

    fn kernel(&self, process: ProcessId) -> Option<Kernel> {
        self.shared.with(process, |entry| entry.launched.and_then(|it| it.1))
    }

    fn clock(&self, process: ProcessId) -> Clock {
        let clock = self.shared.place_context.clock;
        self.shared.with(process, |entry| entry.launched.map_or(clock, |it| it.0.clock))
    }

    fn clock_error(&self, process: ProcessId) -> Span {
        self.shared.with(process, |entry| entry.launched.map_or(Span::ZERO, |it| it.0.error()))
    }

    async fn kill(&mut self, lives: &[(ProcessId, Life)], storage: StorageFate) -> Result<(), RunError> {
        // Drop the results of completed tasks.
        while self.kills.try_join_next().is_some() {}
        let kill = self.shared.arm(lives, storage == StorageFate::Lost);
        self.kills.spawn_local(self.shared.clone().carry_out(kill));
        Ok(())
    }

    fn recall(&mut self, process: ProcessId, newest: Life, wiped: bool) {
        self.shared.recalled.set(true);
        self.shared.with(process, |entry| {
            entry.newest = newest;
            entry.wipes = wiped;
        });
    }

    fn never_started(&mut self, process: ProcessId, life: Life) {
        self.shared.complete(process, |it, _| *it == life);
    }

    /// Does not wait for the agent's response, because an agent carries out its orders in sequence.
    async fn pause(&mut self, process: ProcessId, life: Life, paused: bool) -> Result<(), RunError> {
        let shared = self.shared.clone();
        let answer = move |at| {
            if paused {
                let seen = shared.seen(process, life, at, None);
                shared.place_context.host_events.put(HostEvent::Paused(seen));
            }
        };
        if !self.hosts(process, life) {
            answer(None);
            return Ok(());
        }
        self.shared.with(process, |entry| entry.paused = Some(paused));
        let order = self.shared.order(process, |order| ToAgent::Pause { order, life, paused });
        let shared = self.shared.clone();
        tokio::task::spawn_local(async move {
            match shared.answered(order, Instant::now() + PATIENCE).await {
                Some((_, Answer::Paused { at, problem: None })) => answer(at),
                other => {
                    warn!(%process, ?other, "the agent could not pause or resume the process");
                    answer(None);
                }
            }
        });
        Ok(())
    }

    async fn end(&mut self, told: &[(ProcessId, Life)]) -> Result<(), RunError> {
        let until = Instant::now() + GRACE_PERIOD;
        while Instant::now() < until && told.iter().any(|&(process, life)| self.hosts(process, life)) {
            tokio::time::sleep(LOOK).await;
        }
        let entries = self.shared.entries.borrow().iter().map(|entry| entry.life).collect::<Vec<_>>();
        let processes = (0..).map(ProcessId).zip(entries);
        let alive: Vec<_> = processes.filter_map(|(process, life)| Some((process, life?))).collect();
        self.kill(&alive, StorageFate::Kept).await?;
        while self.kills.join_next().await.is_some() {}
        let until = Instant::now() + COLLECTED;
        while self.shared.recalled.get() && Instant::now() < until && !self.shared.is_complete() {
            tokio::time::sleep(LOOK).await;
        }
        for index in 0..self.shared.names.processes.len() {
            let process = ProcessId(index as u32);
            let incomplete = self.shared.with(process, |entry| {
                entry.caller.take().inspect(AbortHandle::abort);
                std::mem::take(&mut entry.incomplete)
            });
            for life in incomplete.into_keys() {
                warn!(%process, %life, "facts of this life may be missing");
                self.shared.bundle.seal(process, life, true).map_err(RunError::Facts)?;
            }
        }
        Ok(())
    }
}

impl Shared {
    pub(super) fn with<T>(&self, process: ProcessId, act: impl FnOnce(&mut PlaceEntry) -> T) -> T {
        act(&mut self.entries.borrow_mut()[process.index()])
    }

    /// Returns whether all facts of all lives have arrived.
    fn is_complete(&self) -> bool {
        self.entries.borrow().iter().all(|entry| entry.incomplete.is_empty())
    }

    /// Writes an entry to the journal.
    fn note(&self, entry: &JournalEntry) {
        self.journal.write(entry);
        if let Err(error) = self.journal.flush() {
            warn!(%error, "cannot write the journal yet; a supervisor that restarts before the next write lacks this entry");
        }
    }

    /// Applies each change of a place that the registry announces.
    async fn follow(self: Rc<Self>) {
        let mut changes = self.place_registry.changes();
        while changes.changed().await.is_ok() {
            let registry_state = self.place_registry.state();
            for index in 0..self.names.processes.len() {
                let process = ProcessId(index as u32);
                let place = registry_state.places.get(&process);
                if self.with(process, |entry| entry.place.as_ref() != place) {
                    self.move_to(process, place.cloned());
                }
            }
        }
    }

    /// Changes or removes the place of a process. The life at the previous place, if any, is lost.
    fn move_to(self: &Rc<Self>, process: ProcessId, place: Option<AgentPlace>) {
        let (caller, agent, life) = self.with(process, |entry| {
            entry.place.clone_from(&place);
            // Responses from the old agent must not be mistaken for responses from the new one.
            entry.waiting.clear();
            (entry.caller.take(), entry.agent.take(), entry.life.take())
        });
        self.place_registry.note(process, false, None);
        if let Some(life) = life {
            // The life is no longer accepted. If the old agent still receives orders, it also ends the
            // process.
            if let Some(agent) = agent {
                drop(agent.words.send(ToAgent::Arm { order: 0, life }));
                drop(agent.words.send(ToAgent::Fire { order: 0, wipe: false, at: None }));
            }
            self.place_lost(process, life);
        }
        if let Some(caller) = caller {
            let patience = if life.is_some() { PATIENCE } else { Duration::ZERO };
            // Facts written before the fence may still arrive.
            tokio::task::spawn_local(async move {
                tokio::time::sleep(patience).await;
                caller.abort();
            });
        }
        if let Some(place) = place {
            let task = tokio::task::spawn_local(agents::keep(self.clone(), process, place));
            self.with(process, |entry| entry.caller = Some(task.abort_handle()));
        }
    }

    /// Returns whether `place` is still the place of `process`.
    pub(super) fn is_at(&self, process: ProcessId, place: &AgentPlace) -> bool {
        self.with(process, |entry| entry.place.as_ref() == Some(place))
    }

    /// Returns the first message to an agent of `process`.
    pub(super) fn assignment_of(&self, process: ProcessId) -> Assignment {
        let (life, newest) = self.with(process, |entry| (entry.life, entry.newest));
        let lives = (1..=newest.0).map(Life);
        let arrived = |life| {
            let file = std::fs::metadata(self.bundle.facts_path(process, life)).ok()?;
            Some((life, file.len()))
        };
        Assignment {
            run: self.run.clone(),
            process,
            name: self.names.processes[process.index()].clone(),
            cluster_names: self.names.clusters.clone(),
            description: self.place_context.description.to_vec(),
            life,
            newest,
            arrived: lives.filter_map(arrived).collect(),
        }
    }

    /// Handles an agent's report that it is ready.
    pub(super) fn ready(
        &self,
        process: ProcessId,
        place: &AgentPlace,
        ready: &Ready,
        words: mpsc::UnboundedSender<ToAgent>,
        clock: AgentClock,
        here: IpAddr,
    ) {
        self.arrived(process, place, ready.life);
        if !self.is_at(process, place) {
            return;
        }
        // Without HTB there are no classes, so traffic control cannot be used.
        let kernel = ready.abilities.as_ref().map(|it| it.kernel).filter(|it| it.htb);
        let agent = Agent { words, clock, here, holds_storage: ready.holds_storage, kernel };
        let ended = self.with(process, |entry| {
            entry.agent = Some(agent);
            entry.heard += 1;
            entry.life.take_if(|life| Some(*life) != ready.life)
        });
        // An order to pause or resume may have been lost with the connection.
        if let (Some(life), Some(paused)) = self.with(process, |entry| (entry.life, entry.paused)) {
            drop(self.order(process, |order| ToAgent::Pause { order, life, paused }));
        }
        self.place_registry.found(process, ready.abilities.clone());
        self.place_registry.note(process, true, None);
        if let Some(life) = ended {
            let unexpected_end = Some(("its agent was restarted".to_owned(), String::new()));
            self.place_context.host_events.put(HostEvent::Ended { process, life, unexpected_end });
        }
        self.try_launch(process);
    }

    /// Handles the loss of the connection to an agent. The hosted life may continue.
    pub(super) fn unready(&self, process: ProcessId, place: &AgentPlace, problem: String) {
        if self.is_at(process, place) {
            self.with(process, |entry| {
                entry.agent = None;
                entry.waiting.clear();
            });
            self.place_registry.note(process, false, Some(problem));
        }
    }

    /// Launches the waiting life if an agent is ready.
    pub(super) fn try_launch(&self, process: ProcessId) {
        let control = self.place_context.control;
        let lost = self.with(process, |entry| {
            let agent = entry.agent.as_mut().filter(|_| entry.ending == 0)?;
            let (life, boot) = entry.wanted.take()?;
            if boot == Boot::Restarted && !agent.holds_storage {
                // The storage of the process was lost with the previous place.
                return Some(life);
            }
            let here = if control.ip().is_unspecified() { agent.here } else { control.ip() };
            let supervisor = SocketAddr::new(here, control.port());
            let keeps_storage = boot != Boot::Fresh && !entry.wipes;
            let uid = entry.place.as_ref().map(|place| place.uid.clone()).expect("an agent is at a place");
            self.note(&JournalEntry::Launched { process, life, uid: uid.clone() });
            // If the agent has just disconnected, the next connection will find that the life is not running.
            drop(agent.words.send(ToAgent::Launch { life, keeps_storage, supervisor }));
            agent.holds_storage = true;
            entry.life = Some(life);
            entry.launched = Some((agent.clock, agent.kernel));
            entry.paused = None;
            entry.incomplete.insert(life, Some(uid));
            None
        });
        if let Some(life) = lost {
            let (storage, by) = (StorageFate::Lost, EndedBy::StorageLost);
            self.place_context.host_events.put(HostEvent::Lost { process, life, storage, by });
        }
    }

    /// Asks the provider to replace the place of a life that has been launched or waits to be launched, if the agent
    /// stays silent: the failure of such a life is not detected otherwise, because only connected lives send heartbeats.
    async fn replace_if_silent(self: Rc<Self>, process: ProcessId, life: Life) {
        let waits = |entry: &PlaceEntry| entry.newest == life && entry.introduced < life;
        while self.with(process, |entry| waits(entry)) {
            let (place, heard) = self.with(process, |entry| {
                // A living agent answers.
                let agent = entry.agent.as_ref();
                agent.inspect(|it| drop(it.words.send(ToAgent::Clock)));
                (entry.place.clone(), entry.heard)
            });
            let patience = if self.replace_after.is_zero() { PATIENCE } else { self.replace_after };
            tokio::time::sleep(patience).await;
            let is_silent = self.with(process, |entry| {
                waits(entry) && heard > 0 && entry.heard == heard && entry.place == place
            });
            if let Some(place) = place.filter(|_| is_silent) {
                warn!(%process, %life, "the agent is silent; asking for another place");
                self.place_registry.ask(Wanted::Removal, process, place.uid);
            }
        }
    }

    /// Returns the report that a life stopped. `at` and `exited` are the readings of the monotonic clock at its place
    /// when it stopped and when it had exited, if known.
    pub(super) fn seen(&self, process: ProcessId, life: Life, at: Option<u64>, exited: Option<u64>) -> Seen {
        let clock = self.with(process, |entry| entry.agent.as_ref().map(|agent| agent.clock));
        let error = clock.map_or(Span::ZERO, AgentClock::error);
        let [at, exited] = [at, exited].map(|it| it.zip(clock).map(|(at, it)| it.clock.at(at)));
        Seen { process, life, at, exited, error, is_idle: false }
    }

    /// Reports that a life was lost with its place.
    fn place_lost(&self, process: ProcessId, life: Life) {
        let (storage, by) = (StorageFate::Kept, EndedBy::PlaceLost);
        self.place_context.host_events.put(HostEvent::Lost { process, life, storage, by });
    }

    /// Reports that a life was ended as ordered, had already ended, or was fenced. If `wipes` is set, its stored
    /// data must still be removed.
    pub(super) fn ended(&self, process: ProcessId, life: Life, wipes: bool) {
        self.with(process, |entry| {
            entry.life.take_if(|it| *it == life);
            entry.wipes |= wipes;
            entry.ending -= 1;
        });
        self.place_context.host_events.put(HostEvent::Ended { process, life, unexpected_end: None });
        self.try_launch(process);
    }

    /// Handles a message from the agent at `place`.
    pub(super) fn said(&self, process: ProcessId, place: &AgentPlace, words: ToPlace) {
        let is_current = self.is_at(process, place);
        if is_current {
            self.with(process, |entry| entry.heard += 1);
        }
        match words {
            ToPlace::Facts { life, offset, bytes } => {
                if let Err(error) = self.bundle.write_facts_at(process, life, offset, &bytes) {
                    warn!(%error, "cannot write facts");
                    self.with(process, |entry| entry.incomplete.insert(life, None));
                }
            }
            ToPlace::Log { life, offset, bytes } => {
                let is_known = self.with(process, |entry| life <= entry.newest);
                let name = &self.names.processes[process.index()];
                if is_known && let Err(error) = self.bundle.write_log_at(name, life, offset, &bytes) {
                    warn!(%error, "cannot write the log of a command");
                }
            }
            ToPlace::Sent { upto } => self.complete(process, |life, uid| *uid == place.uid && *life <= upto),
            ToPlace::Armed { order, clock } if is_current => {
                let arrived = monotonic();
                self.answer(process, order, |asked| Answer::Armed { asked, shown: clock, arrived });
            }
            ToPlace::Paused { order, at, problem } if is_current => {
                self.answer(process, order, |_| Answer::Paused { at, problem });
            }
            ToPlace::Done { order, killed, problem } => {
                if is_current {
                    self.answer(process, order, |_| Answer::Done { killed, problem });
                } else if problem.is_none() {
                    self.arrived(process, place, None);
                }
            }
            ToPlace::Ended { life, status, last_output } if is_current => {
                self.complete(process, |it, _| *it == life);
                let hosted = self.with(process, |entry| entry.life.take_if(|it| *it == life));
                if hosted.is_some() {
                    let unexpected_end = Some((status, last_output));
                    self.place_context.host_events.put(HostEvent::Ended { process, life, unexpected_end });
                }
            }
            ToPlace::Leaving => {
                self.arrived(process, place, None);
                if is_current {
                    // No further life can be launched at this place.
                    let life = self.with(process, |entry| {
                        entry.agent = None;
                        entry.life.take()
                    });
                    life.inspect(|&life| self.place_lost(process, life));
                }
            }
            // A late or unsolicited response.
            _ => {}
        }
    }

    /// Records that all facts of the lives at `place` have arrived, except those of a running life.
    fn arrived(&self, process: ProcessId, place: &AgentPlace, running: Option<Life>) {
        self.complete(process, |life, uid| *uid == place.uid && Some(*life) != running);
    }

    /// Records that all facts of the lives for which `is_complete` returns `true` have arrived. A life whose facts
    /// could not be written remains incomplete.
    fn complete(&self, process: ProcessId, is_complete: impl Fn(&Life, &String) -> bool) {
        let complete: Vec<Life> = self.with(process, |entry| {
            let is_written = |(life, uid): &(&Life, &Option<String>)| {
                uid.as_ref().is_some_and(|uid| is_complete(life, uid))
            };
            let lives: Vec<Life> = entry.incomplete.iter().filter(is_written).map(|it| *it.0).collect();
            lives.iter().for_each(|it| drop(entry.incomplete.remove(it)));
            lives
        });
        for life in complete {
            self.note(&JournalEntry::Complete { process, life });
        }
    }
}

#[cfg(test)]
mod tests;
