//! Passes reports to the supervisor and carries out its orders.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use faultline_callers::UntrustedConnections;
use faultline_core::fault::{LinkProperties, MemoryContent, MemoryPart, MemoryUse, Outcome, StorageFault};
use faultline_core::{
    Boot, ClusterId, EndedBy, Fact, FactKind, FaultNo, Life, Membership, Presence, ProcessId, Span,
    StorageFate, Time, Trigger,
};
use faultline_supervisor::{MemoryBound, Order, Report, Supervisor};
use faultline_trace::manifest::{Effect, LinkEntry, LinkMeasured};
use faultline_trace::{Bundle, Extent, FactsWriter, Stream};
use nix::errno::Errno;
use nix::sys::statvfs::statvfs;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use super::effects::{Effects, Target};
use super::journal::{self, Journal, JournalContents};
use super::measuring::Measuring;
use super::places::{HostEvent, HostEvents, PlaceBackend, Seen};
use super::totals::Totals;
use super::{Observer, RunError, RunOptions, RunOutcome, UnexpectedEnd};
use crate::clock::{Alarm, Clock};
use crate::control::{self, Directory, DirectoryEntry, Introduction, Setup, ToNode, ToSupervisor};
use crate::exits::panic_at_end;
use crate::metrics::Sum;
use crate::metrics::exposition::serve;
use crate::secret::{Ends, Keys, Secret, WrappedKeys};

/// Minimum number of heartbeats that a node sends within the detection time.
const HEARTBEATS: u64 = 5;
/// Longest interval between heartbeats, which also report the node's progress.
const HEARTBEAT_AT_LEAST_EVERY: Span = Span::from_millis(250);
/// Longest time for which a late host handles messages before it handles a deadline.
const CAUGHT_UP: Span = Span::from_millis(500);
/// Interval between two status reports to the observer.
const STATUS_EVERY: Duration = Duration::from_millis(100);

/// The memory limit divided by this number is reserved for facts that no heartbeat has reported yet.
const RESERVE: u64 = 8;
/// Number of unexpected exits of one process after which the run fails.
const MOST_COLLAPSES: usize = 10;
/// Free space below which a disk counts as full, in bytes.
const LEAST_ROOM: u64 = 64 << 10;

/// The parts of the host that places need.
pub(crate) struct PlaceContext {
    pub(crate) clock: Clock,
    pub(crate) keys: Keys,
    /// Description of the run, for its processes.
    pub(crate) description: Arc<[u8]>,
    /// Address on which the supervisor listens for nodes.
    pub(crate) control: SocketAddr,
    pub(crate) host_events: HostEvents,
}

/// The parts of the host's state that outlive this program, if any.
pub(crate) struct Memory {
    pub(crate) journal: Journal,
    pub(crate) clock: Clock,
    /// The journal of a predecessor.
    pub(crate) past: Option<JournalContents>,
}

/// Carries out the supervisor's orders.
struct Host<'a, P> {
    options: RunOptions,
    extent: Extent,
    observer: &'a mut dyn Observer,
    clock: Clock,
    journal: Journal,
    facts: FactsWriter<File>,
    /// Time of the supervisor's last fact.
    recorded_at: Time,
    keys: Keys,
    places: P,
    host_events: HostEvents,
    /// Nodes that have introduced themselves, by life.
    nodes: BTreeMap<(ProcessId, Life), Node>,
    /// How the newest life of each process begins.
    boots: BTreeMap<ProcessId, Boot>,
    /// Processes that have opened their storage in some life.
    registered: BTreeSet<ProcessId>,
    membership: Arc<Membership>,
    measuring: Measuring,
    /// Whether the links have been measured.
    begun: bool,
    follows: Vec<FactKind>,
    heartbeat_every: Span,
    watches: Vec<Trigger>,
    /// Whether to measure links once all orders have taken effect.
    measures_again: bool,
    /// Processes to release once all orders have taken effect.
    halted: Vec<(ProcessId, Life)>,
    changed: BTreeMap<(ClusterId, ClusterId), LinkProperties>,
    cut: Vec<(ClusterId, ClusterId)>,
    storage_faults: BTreeMap<ProcessId, StorageFault>,
    collapsed: Vec<UnexpectedEnd>,
    effects: Effects,
    /// The reason why the run cannot continue, once it is known.
    hopeless: Option<RunError>,
    totals: Totals,
}

/// Progress of replaying a predecessor's journal.
struct JournalReplay {
    /// Facts of the predecessor that the replay has not reached yet.
    recorded: std::vec::IntoIter<(Time, Fact)>,
    /// Processes whose storage was to be removed and that have not been launched since.
    wiped: BTreeSet<ProcessId>,
    outcome: Option<Outcome>,
}

struct Node {
    orders: mpsc::UnboundedSender<ToNode>,
    /// The task that reads the node's messages, and owns this half of the connection.
    reader: AbortHandle,
    /// Address of the node, once it listens.
    address: Option<SocketAddr>,
    /// Faults that were in force when the node started. The node has applied them once it listens.
    at_start: BTreeSet<FaultNo>,
    /// For each order that the node has not confirmed yet, the fault that the order puts into effect at this node, if
    /// any.
    outstanding: VecDeque<Option<FaultNo>>,
}

/// Performs a run, or resumes the run in `memory`. Nodes connect to `listener`, and prove that they know
/// their keys. `settle` creates their places.
pub(crate) async fn host<P: PlaceBackend>(
    options: RunOptions,
    keys: Keys,
    listener: std::net::TcpListener,
    sum: Sum,
    memory: Memory,
    settle: impl FnOnce(PlaceContext) -> P,
    observer: &mut dyn Observer,
) -> Result<RunOutcome, RunError> {
    listener.set_nonblocking(true).map_err(RunError::Listen)?;
    let listener = TcpListener::from_std(listener).map_err(RunError::Listen)?;
    let control = listener.local_addr().map_err(RunError::Listen)?;
    let Memory { journal, clock, past } = memory;
    let bundle = Bundle::open(&options.run_dir);
    let (facts, recorded) = match past {
        None => {
            (bundle.facts_writer(ProcessId::SUPERVISOR, Life(0)).map_err(RunError::Facts)?, Stream::new())
        }
        Some(_) => bundle.facts_appender(ProcessId::SUPERVISOR, Life(0)).map_err(RunError::Facts)?,
    };
    let (host_events, mut happened) = HostEvents::new(clock);
    let connections = UntrustedConnections::besides(options.membership.members.len());
    tokio::task::spawn_local(listen(listener, connections, keys.clone(), host_events.clone()));

    let totals = Totals::new(&options, sum);
    let serve = |it: &Arc<std::net::TcpListener>| serve(totals.exposition(), it.try_clone()?);
    let _metrics = options.metrics.as_ref().map(serve).transpose().map_err(RunError::Metrics)?;

    let mut orders = Vec::new();
    let mut supervisor = Supervisor::new(options.supervisor.clone(), options.membership.clone(), &mut orders);
    supervisor.await_exits();
    supervisor.expect_heartbeats();
    let places = settle(PlaceContext {
        clock,
        keys: keys.clone(),
        description: options.description.clone(),
        control,
        host_events: host_events.clone(),
    });
    let mut host = Host {
        extent: Extent { processes: options.names.processes.len(), clusters: options.names.clusters.0.len() },
        observer,
        clock,
        journal,
        facts,
        recorded_at: Time::ZERO,
        keys,
        places,
        host_events,
        nodes: BTreeMap::new(),
        boots: BTreeMap::new(),
        registered: BTreeSet::new(),
        membership: Arc::new(options.membership.clone()),
        measuring: Measuring::new(&options.membership, &options.links),
        begun: false,
        follows: FactKind::OF_PROCESSES.into_iter().filter(|&kind| supervisor.follows(kind)).collect(),
        heartbeat_every: Span(options.supervisor.detect_after.0 / HEARTBEATS).min(HEARTBEAT_AT_LEAST_EVERY),
        watches: Vec::new(),
        measures_again: false,
        halted: Vec::new(),
        changed: BTreeMap::new(),
        cut: Vec::new(),
        storage_faults: BTreeMap::new(),
        collapsed: Vec::new(),
        effects: Effects::default(),
        hopeless: None,
        totals,
        options,
    };
    let ended = match past {
        Some(past) => host.recall(past, recorded, &mut supervisor, &mut orders)?,
        None => None,
    };
    let outcome = match ended {
        Some(outcome) => Ok(outcome),
        None => host.attend(&mut supervisor, orders, &mut happened).await,
    };
    if matches!(outcome, Err(RunError::Left)) {
        // Processes end with their supervisor, and begin new lives under the next.
        return Err(RunError::Left);
    }
    let duration = host.clock.now().since(Time::ZERO);
    // No process is left behind, even after an error. Processes that detect the disconnection seal their
    // facts.
    let told: Vec<_> = std::mem::take(&mut host.nodes).into_keys().collect();
    let buried = host.places.end(&told).await;
    while let Ok((_, host_event)) = happened.try_recv() {
        match host_event {
            HostEvent::Stopped(seen) => host.stopped(&seen),
            HostEvent::Paused(seen) => host.paused(seen),
            _ => {}
        }
    }
    let outcome = outcome.map_err(|error| match error {
        RunError::DiskFull(_) => error,
        error if is_full(&host.options.run_dir) => RunError::DiskFull(error.to_string()),
        error => error,
    })?;
    buried?;
    host.seal(&supervisor)?;
    Ok(RunOutcome {
        outcome,
        added: supervisor.plan().split_off(host.options.supervisor.plan.len()),
        faults: supervisor.faults(),
        effects: host.effects.into_entries(),
        links: host.measuring.history(),
        duration,
        collapsed: host.collapsed,
    })
}

impl<P: PlaceBackend> Host<'_, P> {
    async fn attend(
        &mut self,
        supervisor: &mut Supervisor,
        mut orders: Vec<Order>,
        happened: &mut mpsc::UnboundedReceiver<(Time, HostEvent)>,
    ) -> Result<Outcome, RunError> {
        let mut alarm = Alarm::new(self.clock).map_err(RunError::Alarm)?;
        let mut status = tokio::time::interval(STATUS_EVERY);
        // Changes that have already been requested take effect before any process starts.
        self.apply_reports(supervisor, self.wished(), &mut orders);
        loop {
            self.journal.flush()?;
            for order in orders.drain(..) {
                if let Some(outcome) = self.perform(order, supervisor).await? {
                    let (now, status) = (self.clock.now(), supervisor.status());
                    self.totals.publish(now, &status, &self.membership);
                    self.observer.status(now, &status);
                    return Ok(outcome);
                }
            }
            alarm.set(supervisor.next_deadline()).map_err(RunError::Alarm)?;
            let reports = tokio::select! {
                // Messages come last: if nodes send them faster than they can be handled, deadlines, limits and
                // interrupts still count.
                biased;
                _ = status.tick() => {
                    let (now, status) = (self.clock.now(), supervisor.status());
                    self.totals.publish(now, &status, &self.membership);
                    self.observer.status(now, &status);
                    let mut reports = self.wished();
                    if self.options.interrupted.load(Ordering::Relaxed) {
                        if self.journal.is_kept() {
                            return Err(RunError::Left);
                        }
                        reports.push((self.clock.now(), Report::Interrupted));
                    }
                    if let Some(used) = self.out_of_memory() {
                        reports.push((self.clock.now(), Report::OutOfMemory(Arc::new(used))));
                    }
                    reports
                }
                rung = alarm.elapsed() => {
                    rung.map_err(RunError::Alarm)?;
                    self.catch_up(happened).await
                }
                Some((at, host_event)) = happened.recv() => dated(at, self.understand(at, host_event)),
            };
            if let Some(error) = self.hopeless.take() {
                return Err(error);
            }
            self.apply_reports(supervisor, reports, &mut orders);
        }
    }

    /// Returns the program's memory use if it has reached the limit, or if judging the run would bring it
    /// close to the limit; `None` otherwise.
    fn out_of_memory(&self) -> Option<MemoryUse> {
        let MemoryBound { bytes: bound, used } = self.options.memory?;
        let used = used();
        let count = self.totals.facts();
        let bytes = count * self.options.fact_bytes;
        let facts = MemoryPart { content: MemoryContent::JudgedFacts, count, bytes };
        let is_reached = used >= bound || bytes >= bound - bound / RESERVE;
        is_reached.then(|| MemoryUse { bound, used, parts: vec![facts, self.totals.logs()] })
    }

    /// Writes reports to the journal, and passes them to the state machine. The journal must be flushed before the
    /// resulting orders are carried out.
    fn apply_reports(
        &self,
        supervisor: &mut Supervisor,
        reports: Vec<(Time, Report)>,
        orders: &mut Vec<Order>,
    ) {
        if reports.is_empty() {
            return;
        }
        let entry = journal::JournalEntry::Heard(reports);
        self.journal.write(&entry);
        if let journal::JournalEntry::Heard(reports) = entry {
            for (at, report) in reports {
                supervisor.handle(report, at, orders);
            }
        }
    }

    /// Returns the changes that the user has requested since the last call.
    fn wished(&self) -> Vec<(Time, Report)> {
        let (changes, note) = self.options.change_queue.take();
        if let Some(note) = note {
            self.journal.write(&journal::JournalEntry::Noted(note));
        }
        dated(self.clock.now(), changes.into_iter().map(Report::Changed).collect())
    }

    /// Replays a predecessor's reports to the state machine, and records the resulting orders. Then declares all
    /// lives failed, because a process exits when it loses its connection to the supervisor. If the run was already
    /// over, returns its outcome instead.
    fn recall(
        &mut self,
        past: JournalContents,
        recorded: Stream,
        supervisor: &mut Supervisor,
        orders: &mut Vec<Order>,
    ) -> Result<Option<Outcome>, RunError> {
        let last = past.last;
        let mut memory =
            JournalReplay { recorded: recorded.into_iter(), wiped: BTreeSet::new(), outcome: None };
        self.remember(&mut memory, Time::ZERO, supervisor, orders)?;
        for entry in past.entries().map_err(RunError::Past)? {
            match entry.map_err(RunError::Past)? {
                journal::JournalEntry::Heard(reports) => {
                    let mut now = Time::ZERO;
                    for (at, report) in reports {
                        match &report {
                            Report::Fact { process, life, fact, .. } => {
                                self.totals.recorded(at, *process, *life, fact);
                                self.observer.recorded(at, *process, *life, fact);
                            }
                            // Its agent has removed the storage if necessary.
                            Report::Registered { process, .. } => {
                                memory.wiped.remove(process);
                                self.registered.insert(*process);
                            }
                            Report::LinksMeasured => {
                                self.begun = true;
                                self.observer.measured(&self.measuring.entries());
                            }
                            _ => {}
                        }
                        supervisor.handle(report, at, orders);
                        now = at;
                    }
                    self.remember(&mut memory, now, supervisor, orders)?;
                }
                journal::JournalEntry::Measured { by, to, requested, link } => {
                    self.note_measured(by, to, requested, link)
                }
                journal::JournalEntry::Echoes { from, to, observed } => {
                    self.measuring.recall(from, to, observed);
                }
                journal::JournalEntry::Stopped(seen) => self.stopped(&seen),
                journal::JournalEntry::Paused(seen) => self.paused(seen),
                journal::JournalEntry::InForce { no, effect } => self.effects.applied(no, effect),
                journal::JournalEntry::Observed(no) => self.observe_effects_of(no),
                journal::JournalEntry::Resumed(at) => self.observer.resumed(at),
                journal::JournalEntry::Run { .. }
                | journal::JournalEntry::Launched { .. }
                | journal::JournalEntry::Complete { .. }
                | journal::JournalEntry::Noted(_) => {}
            }
        }
        if memory.recorded.next().is_some() {
            return Err(RunError::Journal);
        }
        for (process, life) in supervisor.newest() {
            self.places.recall(process, life, memory.wiped.contains(&process));
            self.note_unless_started(process, life);
        }
        if memory.outcome.is_none() {
            self.observe_effects();
            let now = self.clock.now();
            self.journal.write(&journal::JournalEntry::Resumed(now));
            self.observer.resumed(now);
            // The lives are reported lost as of the last report, so events that have become due since then find no
            // process alive.
            let (storage, by) = (StorageFate::Kept, EndedBy::SupervisorRestarted);
            let lost = |(process, life)| Report::Lost { process, life, storage, by };
            let lost = supervisor.newest().map(lost).collect();
            self.apply_reports(supervisor, dated(last, lost), orders);
        }
        Ok(memory.outcome)
    }

    /// Records orders that have already been carried out, or would have no effect. Also records the facts that the
    /// predecessor did not record before it exited.
    fn remember(
        &mut self,
        memory: &mut JournalReplay,
        at: Time,
        supervisor: &Supervisor,
        orders: &mut Vec<Order>,
    ) -> Result<(), RunError> {
        for order in orders.drain(..) {
            match order {
                Order::Record(fact) => match memory.recorded.next() {
                    None => self.record(at, &fact, supervisor)?,
                    Some((at, recorded)) if recorded == fact => {
                        self.recorded_at = at;
                        self.effects.recorded(&fact, |no| supervisor.due(no));
                        self.totals.recorded(at, ProcessId::SUPERVISOR, Life(0), &fact);
                        self.observer.recorded(at, ProcessId::SUPERVISOR, Life(0), &fact);
                    }
                    Some(_) => return Err(RunError::Journal),
                },
                Order::Kill { lives, storage: StorageFate::Lost } => {
                    memory.wiped.extend(lives.into_iter().map(|it| it.0));
                }
                Order::Announce(membership) => {
                    self.measuring.replace_gone(&membership, at);
                    self.membership = membership;
                }
                Order::Launch { process, boot, .. } => drop(self.boots.insert(process, boot)),
                Order::Watch(triggers) => self.watches = triggers.to_vec(),
                Order::Link { from, to, properties, of } => self.note_link(from, to, properties, of),
                Order::Relink { from, to, properties } => {
                    let since = self.begun.then_some(at);
                    self.note_relink(from, to, properties, since);
                }
                Order::Cut { from, to, cut } => self.note_cut(from, to, cut),
                Order::Storage { process, how, of } => self.note_storage(process, how, of),
                Order::Pause { process, life, paused: true } => self.effects.pausing(process, life),
                Order::Kill { .. } | Order::Go { .. } | Order::Pause { .. } => {}
                Order::End(outcome) => memory.outcome = Some(outcome),
            }
        }
        Ok(())
    }

    fn note_link(
        &mut self,
        from: ClusterId,
        to: ClusterId,
        properties: Option<LinkProperties>,
        of: Option<FaultNo>,
    ) {
        self.effects.changing(Target::Link(from, to), of.filter(|_| properties.is_some()));
        if let Some(now) = properties.or_else(|| self.options.links.requested.get(&(from, to)).copied()) {
            self.totals.ask(from, to, now);
        }
        match properties {
            Some(properties) => drop(self.changed.insert((from, to), properties)),
            None => drop(self.changed.remove(&(from, to))),
        }
    }

    fn note_relink(
        &mut self,
        from: ClusterId,
        to: ClusterId,
        properties: LinkProperties,
        since: Option<Time>,
    ) {
        self.options.links.requested.insert((from, to), properties);
        self.totals.ask(from, to, properties);
        self.measuring.ask(from, to, properties, since);
    }

    fn note_cut(&mut self, from: ClusterId, to: ClusterId, cut: bool) {
        self.effects.cutting(from, to, cut);
        self.cut.retain(|pair| *pair != (from, to));
        if cut {
            self.cut.push((from, to));
        }
    }

    fn note_storage(&mut self, process: ProcessId, how: Option<StorageFault>, of: Option<FaultNo>) {
        self.effects.changing(Target::Storage(process), of);
        match how {
            Some(how) => drop(self.storage_faults.insert(process, how)),
            None => drop(self.storage_faults.remove(&process)),
        }
    }

    fn note_measured(&mut self, by: ProcessId, to: ProcessId, requested: Span, link: LinkMeasured) {
        self.measuring.measured((by, to), requested, link);
        if self.begun && self.measuring.is_done() {
            self.observer.measured(&self.measuring.entries());
        }
    }

    /// Handles the alarm for the supervisor's next deadline. If the host is late, it first handles messages that nodes
    /// have sent in the meantime, before any node is declared failed, but for no longer than [`CAUGHT_UP`].
    async fn catch_up(
        &mut self,
        happened: &mut mpsc::UnboundedReceiver<(Time, HostEvent)>,
    ) -> Vec<(Time, Report)> {
        let (mut reports, begun) = (Vec::new(), self.clock.now());
        loop {
            // Let the tasks that read from nodes run.
            tokio::task::yield_now().await;
            if happened.is_empty() || self.clock.now().since(begun) > CAUGHT_UP {
                break;
            }
            // Messages that arrive in the meantime wait for the next turn.
            for _ in 0..happened.len() {
                let Ok((at, host_event)) = happened.try_recv() else { break };
                reports.extend(dated(at, self.understand(at, host_event)));
            }
        }
        reports.push((self.clock.now(), Report::Timeout));
        reports
    }

    /// Translates an event into reports to the supervisor.
    fn understand(&mut self, at: Time, host_event: HostEvent) -> Vec<Report> {
        match host_event {
            HostEvent::Introduced { introduction, stream } => {
                self.introduced(introduction, stream);
                vec![]
            }
            HostEvent::Ended { process, life, unexpected_end } => {
                self.removed(process, life);
                let mut reports = vec![Report::Exited { process, life }];
                if let Some((status, last_output)) = unexpected_end {
                    warn!(%process, %life, status, "a node ended unexpectedly");
                    let (panic, last_output) = panic_at_end(&last_output);
                    let panic = panic.filter(|it| (it.process, it.life) == (process, life));
                    match panic {
                        Some(panic) => reports.push(Report::Ended(Outcome::Panicked(Arc::new(panic)))),
                        None => self.check_repeated_failures(process, &status, last_output),
                    }
                    let last_output = last_output.to_owned();
                    self.collapsed.push(UnexpectedEnd { process, life, status, last_output });
                }
                reports
            }
            HostEvent::Stopped(seen) => {
                self.stopped(&seen);
                self.journal.write(&journal::JournalEntry::Stopped(seen));
                vec![]
            }
            HostEvent::Paused(seen) => {
                self.paused(seen);
                self.journal.write(&journal::JournalEntry::Paused(seen));
                vec![]
            }
            HostEvent::Lost { process, life, storage, by } => {
                // This closes the connection, which ends the process if it is still running.
                self.note_unless_started(process, life);
                self.removed(process, life);
                vec![Report::Lost { process, life, storage, by }]
            }
            HostEvent::Said { process, life, message } => self.said(at, process, life, message),
        }
    }

    /// Removes a node whose life has ended, and closes its connection. Orders no longer wait for it.
    fn removed(&mut self, process: ProcessId, life: Life) {
        if let Some(node) = self.nodes.remove(&(process, life)) {
            node.reader.abort();
        }
        self.measuring.process_stops(process);
        self.observe_effects();
        self.release_halted();
    }

    /// Notifies the places if `life` ended before its process started. A process starts once it receives its
    /// first membership.
    fn note_unless_started(&mut self, process: ProcessId, life: Life) {
        if self.membership.member(process).life < life {
            self.places.never_started(process, life);
        }
    }

    /// Records that lives have stopped because they were killed.
    fn stopped(&mut self, seen: &[Seen]) {
        if let Some(effect) = self.effects.stopped(seen) {
            self.totals.took_effect(effect);
            self.observer.took_effect(effect);
        }
    }

    /// Records the answer to an order to pause a life.
    fn paused(&mut self, seen: Seen) {
        if let Some(effect) = self.effects.paused(seen) {
            self.totals.took_effect(effect);
            self.observer.took_effect(effect);
        }
    }

    /// Records that a process has applied a fault.
    fn applied(&mut self, no: FaultNo, effect: Effect) {
        self.journal.write(&journal::JournalEntry::InForce { no, effect });
        self.effects.applied(no, effect);
    }

    /// Informs the observer of faults that all nodes concerned have applied.
    fn observe_effects(&mut self) {
        let nodes = &self.nodes;
        let is_awaited = |no| nodes.values().any(|it| it.outstanding.contains(&Some(no)));
        for no in self.effects.unobserved(|no| !is_awaited(no)) {
            self.journal.write(&journal::JournalEntry::Observed(no));
            self.observe_effects_of(no);
        }
    }

    fn observe_effects_of(&mut self, no: FaultNo) {
        if let Some(effect) = self.effects.observed(no) {
            self.totals.took_effect(effect);
            self.observer.took_effect(effect);
        }
    }

    /// Ends the run if restarting a process that ended unexpectedly would be futile: if the disk is full, or if the
    /// process has ended too often.
    fn check_repeated_failures(&mut self, process: ProcessId, status: &str, last_output: &str) {
        let times = 1 + self.collapsed.iter().filter(|it| it.process == process).count();
        let name = self.options.names.processes[process.index()].clone();
        if is_full(&self.options.run_dir) || tells_of_full_disk(last_output) {
            self.hopeless = Some(RunError::DiskFull(format!("{name} ended unexpectedly")));
        } else if times >= MOST_COLLAPSES {
            let (status, last_output) = (status.to_owned(), last_output.to_owned());
            self.hopeless = Some(RunError::Collapses { name, times, status, last_output });
        }
    }

    /// Handles a node's message. The node has proved which process it is, but its program may be hostile. Hence the message
    /// must not speak for the supervisor, or name processes or clusters that do not exist.
    fn said(&mut self, at: Time, process: ProcessId, life: Life, message: ToSupervisor) -> Vec<Report> {
        // A process that has failed in the meantime may have been replaced. Its facts are in its record.
        let Some(node) = self.nodes.get_mut(&(process, life)) else { return vec![] };
        match message {
            ToSupervisor::Registered(address) => {
                node.address = Some(address);
                self.registered.insert(process);
                for no in std::mem::take(&mut node.at_start) {
                    // Further processes that start say nothing about how long the fault took to take effect.
                    if !self.effects.is_applied(no) {
                        self.applied(
                            no,
                            Effect { process, life, at: Some(at), exited: None, error: Span::ZERO },
                        );
                    }
                }
                self.observe_effects();
                self.process_runs(process, at);
                if self.begun {
                    self.observe_links(process);
                }
                let registered = Report::Registered { process, life };
                [registered].into_iter().chain(self.measure()).collect()
            }
            ToSupervisor::Measured { to, requested, began, link } => {
                let is_disturbed = disturbed(&self.changed, &self.cut);
                if self.measuring.counts((process, to), requested, began, is_disturbed) {
                    self.journal.write(&journal::JournalEntry::Measured { by: process, to, requested, link });
                    self.note_measured(process, to, requested, link);
                } else {
                    // Something may have delayed the echoes since the measurement was requested.
                    self.measure_later();
                }
                self.links_measured().into_iter().collect()
            }
            ToSupervisor::Observed { to, requested, echoes } => {
                let is_disturbed = disturbed(&self.changed, &self.cut);
                let counted = self.measuring.observed((process, to), requested, &echoes, is_disturbed);
                if let Some(LinkEntry { from, to, observed: Some(observed), .. }) = counted {
                    self.journal.write(&journal::JournalEntry::Echoes { from, to, observed });
                }
                vec![]
            }
            ToSupervisor::Heartbeat(gauges, counts, mut delays) => {
                let cluster = self.membership.cluster_of(process);
                delays.retain(|&(from, to), _| {
                    [from, to].contains(&cluster) && [from, to].iter().all(|it| self.extent.has_cluster(*it))
                });
                self.totals.heard(at, process, life, gauges, counts, delays);
                vec![Report::Heartbeat { process, life, gauges }]
            }
            ToSupervisor::Fact { fact, .. } if !self.extent.allows_of_process(&fact) => {
                debug!(%process, %life, ?fact, "a process has reported a fact that it cannot know");
                vec![]
            }
            ToSupervisor::Fact { fact, halted } => {
                self.totals.recorded(at, process, life, &fact);
                self.observer.recorded(at, process, life, &fact);
                vec![Report::Fact { process, life, fact, halted }]
            }
            ToSupervisor::Started => vec![Report::Started { process, life }],
            ToSupervisor::Held => vec![Report::Held { process, life }],
            ToSupervisor::InForce(at) => {
                if let Some(Some(no)) = node.outstanding.pop_front() {
                    let error = self.places.clock_error(process);
                    self.applied(no, Effect { process, life, at: Some(at), exited: None, error });
                }
                self.observe_effects();
                self.release_halted();
                vec![]
            }
        }
    }

    fn introduced(&mut self, introduction: Introduction, stream: TcpStream) {
        let Introduction { process, life } = introduction;
        if !self.places.hosts(process, life) || self.nodes.contains_key(&(process, life)) {
            return warn!(%process, %life, "closed a connection from an unexpected life");
        }
        let keys = match self.keys.wrapped_pairs(process) {
            Ok(keys) => keys,
            // The disconnected node exits and is restarted.
            Err(error) => return warn!(%process, %error, "cannot send a node its keys"),
        };
        self.places.introduced(process, life);
        let (mut read, write) = stream.into_split();
        let (orders, inbox) = mpsc::unbounded_channel();
        let setup = ToNode::Setup(Box::new(self.setup(process, keys)));
        orders.send(setup).expect("the receiver exists");
        tokio::task::spawn_local(speak(write, inbox));
        let host_events = self.host_events.clone();
        let reader = tokio::task::spawn_local(async move {
            loop {
                match control::receive(&mut read).await {
                    Ok(message) => host_events.put(HostEvent::Said { process, life, message }),
                    Err(error) => return debug!(%process, %life, %error, "a node closed its connection"),
                }
            }
        });
        let at_start = self.effects.at_start(process, self.membership.cluster_of(process));
        let outstanding = VecDeque::new();
        let node = Node { orders, reader: reader.abort_handle(), address: None, at_start, outstanding };
        self.nodes.insert((process, life), node);
    }

    /// Records that a process runs, and so answers echoes, unless its cluster has not joined yet.
    fn process_runs(&mut self, process: ProcessId, now: Time) {
        let presence = self.membership.presence(self.membership.cluster_of(process));
        if !self.begun || presence != Presence::Awaited {
            self.measuring.process_runs(process, now);
        }
    }

    fn setup(&self, process: ProcessId, keys: WrappedKeys) -> Setup {
        let member = self.options.membership.member(process);
        Setup {
            clock: self.places.clock(process),
            boot: self.boots[&process],
            seed: self.options.seed,
            name: self.options.names.processes[process.index()].clone(),
            cluster_names: self.options.names.clusters.clone(),
            cluster: member.cluster,
            links: self.options.links.clone(),
            kernel: self.places.kernel(process),
            clusters: self.options.membership.members.iter().map(|member| member.cluster).collect(),
            storage: self.options.storage,
            has_storage: self.boots[&process] == Boot::Restarted && self.registered.contains(&process),
            keys,
            follows: self.follows.clone(),
            heartbeat_every: self.heartbeat_every,
            changed: self.changed.iter().map(|(&(from, to), &properties)| (from, to, properties)).collect(),
            cut: self.cut.clone(),
            watches: self.watches.clone(),
            storage_fault: self.storage_faults.get(&process).copied(),
        }
    }

    /// Measures the links once all nodes listen. If a node was restarted in the meantime, requests the missing
    /// measurements again.
    fn measure(&mut self) -> Option<Report> {
        let processes = (0..self.membership.members.len() as u32).map(ProcessId);
        let directory = Directory { entries: processes.map(|process| self.entry(process, None)).collect() };
        if self.begun || !directory.entries.iter().all(Option::is_some) {
            return None;
        }
        self.send_to_all(&ToNode::Directory(directory));
        self.measure_undone();
        self.links_measured()
    }

    /// Requests missing measurements, except for links that a fault currently affects.
    fn measure_undone(&self) {
        for (by, links) in self.measuring.undone(disturbed(&self.changed, &self.cut)) {
            self.send_to_process(by, ToNode::Measure(links, self.options.measure_again_for));
        }
    }

    /// Requests missing measurements once all orders have taken effect.
    fn measure_later(&mut self) {
        self.measures_again = !self.measuring.is_done();
        self.release_halted();
    }

    /// Returns the report that all links have been measured. `None` if they have not been, or if the report
    /// has already been returned.
    fn links_measured(&mut self) -> Option<Report> {
        if self.begun || !self.measuring.is_done() {
            return None;
        }
        self.begun = true;
        self.observer.measured(&self.measuring.entries());
        for process in self.measuring.observers() {
            self.observe_links(process);
        }
        Some(Report::LinksMeasured)
    }

    /// Discards echoes to and from clusters that join with the new membership, if the echoes were sent before these
    /// clusters joined. If a process of an awaited cluster starts while the application runs, it answers no call before
    /// it knows its peers, so the echoes wait until the cluster joins.
    fn disturb_joining(&mut self, before: &Membership) {
        let now = self.clock.now();
        for (process, member) in (0..).map(ProcessId).zip(before.members.iter()) {
            let presence = |it: &Membership| it.presence(member.cluster);
            if presence(before) == Presence::Awaited && presence(&self.membership) != Presence::Awaited {
                self.measuring.process_runs(process, now);
            }
        }
    }

    /// Orders a process to observe its links while the application runs.
    fn observe_links(&self, process: ProcessId) {
        let links = self.measuring.observed_by(process);
        if !links.is_empty() {
            self.send_to_process(process, ToNode::Observe(links));
        }
    }

    async fn perform(&mut self, order: Order, supervisor: &Supervisor) -> Result<Option<Outcome>, RunError> {
        debug!(?order, "performing");
        match order {
            Order::Launch { process, life, boot } => {
                self.boots.insert(process, boot);
                self.places.launch(process, life, boot)?;
            }
            Order::Announce(membership) => {
                let before = std::mem::replace(&mut self.membership, membership.clone());
                self.disturb_joining(&before);
                for process in self.measuring.replace_gone(&membership, self.clock.now()) {
                    self.observe_links(process);
                }
                let entries = (0..).map(ProcessId).zip(membership.members.iter()).map(|(process, member)| {
                    match membership.presence(member.cluster) {
                        // The process already listens, and keeps the connections over which it measured
                        // links.
                        Presence::Awaited => self.entry(process, None),
                        _ => member.up.then(|| self.entry(process, Some(member.life))).flatten(),
                    }
                });
                let directory = Directory { entries: entries.collect() };
                for (index, member) in membership.members.iter().enumerate().filter(|(_, member)| member.up) {
                    let announcement = ToNode::Announce((*membership).clone(), directory.clone());
                    self.send_to_life(ProcessId(index as u32), member.life, announcement);
                }
                // The process at the other end of a measurement may have failed.
                self.measure_later();
            }
            Order::Watch(triggers) => {
                self.watches = triggers.to_vec();
                // A process that learns late that a trigger was removed halts one more time than necessary, and is then
                // released.
                self.send_to_all(&ToNode::Watch(triggers.to_vec()));
            }
            Order::Go { process, life } => {
                self.halted.push((process, life));
                self.release_halted();
            }
            Order::Kill { lives, storage } => {
                lives.iter().for_each(|&(process, _)| self.measuring.process_stops(process));
                self.places.kill(&lives, storage).await?;
            }
            Order::Pause { process, life, paused } => {
                match paused {
                    true => {
                        self.effects.pausing(process, life);
                        self.measuring.process_stops(process);
                    }
                    false => self.process_runs(process, self.clock.now()),
                }
                self.places.pause(process, life, paused).await?;
                if !paused {
                    self.measure_later();
                }
            }
            Order::Link { from, to, properties, of } => {
                self.note_link(from, to, properties, of);
                self.measuring.disturb_link(from, to, self.clock.now());
                // A fault that is in force again, after the end of a later one, took effect when it was injected.
                let begins = properties.is_some() && of == self.effects.injecting();
                self.order_all(&ToNode::Link { from, to, properties }, begins.then_some(from));
                self.measure_later();
            }
            Order::Relink { from, to, properties } => {
                let since = self.begun.then(|| self.clock.now());
                self.note_relink(from, to, properties, since);
                self.order_all(&ToNode::Relink { from, to, properties }, None);
                if self.begun {
                    for process in self.measuring.observers() {
                        self.observe_links(process);
                    }
                }
                self.measure_later();
            }
            Order::Cut { from, to, cut } => {
                self.note_cut(from, to, cut);
                self.measuring.disturb_link(from, to, self.clock.now());
                self.order_all(&ToNode::Cut { from, to, cut }, cut.then_some(from));
                self.measure_later();
            }
            Order::Storage { process, how, of } => {
                self.note_storage(process, how, of);
                let begins = how.is_some() && of == self.effects.injecting();
                self.order(|it| it == process, |_| begins, &ToNode::Storage(how));
            }
            Order::Record(fact) => self.record(self.clock.now(), &fact, supervisor)?,
            Order::End(outcome) => return Ok(Some(outcome)),
        }
        Ok(None)
    }

    /// Seals the facts of the supervisor, and of every life that has not sealed its own.
    fn seal(&mut self, supervisor: &Supervisor) -> Result<(), RunError> {
        let bundle = Bundle::open(&self.options.run_dir);
        for (process, newest) in supervisor.newest() {
            for life in (1..=newest.0).map(Life) {
                bundle.seal(process, life, false).map_err(RunError::Facts)?;
            }
        }
        self.facts.seal().map_err(RunError::Record)
    }

    /// Records a fact of the supervisor, with a time no earlier than that of its last fact.
    fn record(&mut self, at: Time, fact: &Fact, supervisor: &Supervisor) -> Result<(), RunError> {
        self.effects.recorded(fact, |no| supervisor.due(no));
        let now = at.max(self.recorded_at);
        self.recorded_at = now;
        self.totals.recorded(now, ProcessId::SUPERVISOR, Life(0), fact);
        self.facts.write(now, fact).and_then(|()| self.facts.flush()).map_err(RunError::Record)?;
        self.observer.recorded(now, ProcessId::SUPERVISOR, Life(0), fact);
        Ok(())
    }

    /// Returns the directory entry of a process in `life`, or in its newest life if `life` is `None`.
    fn entry(&self, process: ProcessId, life: Option<Life>) -> Option<DirectoryEntry> {
        let mut lives = self.nodes.range((process, Life(0))..=(process, Life(u32::MAX))).rev();
        let (&(_, life), node) = lives.find(|&(&(_, it), _)| life.is_none_or(|life| it == life))?;
        let cluster = self.membership.cluster_of(process);
        node.address.map(|address| DirectoryEntry { life, cluster, address })
    }

    fn send_to_life(&self, process: ProcessId, life: Life, message: ToNode) {
        if let Some(node) = self.nodes.get(&(process, life)) {
            // If the node has ended, its exit is reported elsewhere.
            drop(node.orders.send(message));
        }
    }

    fn send_to_process(&self, process: ProcessId, message: ToNode) {
        for node in self.nodes.range((process, Life(0))..=(process, Life(u32::MAX))) {
            drop(node.1.orders.send(message.clone()));
        }
    }

    /// Sends every node an order that must take effect before a halted process resumes. If the order belongs
    /// to a fault, the fault takes effect at the nodes of the cluster `at`, which send the packets concerned.
    fn order_all(&mut self, order: &ToNode, at: Option<ClusterId>) {
        let membership = self.membership.clone();
        self.order(|_| true, |process| Some(membership.cluster_of(process)) == at, order);
    }

    fn order(
        &mut self,
        of: impl Fn(ProcessId) -> bool,
        is_target: impl Fn(ProcessId) -> bool,
        order: &ToNode,
    ) {
        let fault = self.effects.injecting();
        for (&(process, _), node) in self.nodes.iter_mut().filter(|((process, _), _)| of(*process)) {
            if node.orders.send(order.clone()).is_ok() {
                node.outstanding.push_back(fault.filter(|_| is_target(process)));
            }
        }
    }

    /// Releases halted processes once all orders are in effect. Waits until paused processes resume or fail, because
    /// they may handle earlier messages before they apply the orders.
    fn release_halted(&mut self) {
        if self.nodes.values().all(|node| node.outstanding.is_empty()) {
            for (process, life) in std::mem::take(&mut self.halted) {
                self.send_to_life(process, life, ToNode::Go);
            }
            if std::mem::take(&mut self.measures_again) {
                self.measure_undone();
            }
        }
    }

    fn send_to_all(&self, message: &ToNode) {
        for node in self.nodes.values() {
            drop(node.orders.send(message.clone()));
        }
    }
}

/// Returns a predicate for links that a fault has changed or cut.
fn disturbed<'a>(
    changed: &'a BTreeMap<(ClusterId, ClusterId), LinkProperties>,
    cut: &'a [(ClusterId, ClusterId)],
) -> impl Fn(ClusterId, ClusterId) -> bool + 'a {
    |from, to| changed.contains_key(&(from, to)) || cut.contains(&(from, to))
}

/// Returns whether the disk on which a run is recorded is full.
fn is_full(dir: &Path) -> bool {
    statvfs(dir).is_ok_and(|it| it.blocks_available() * it.fragment_size() < LEAST_ROOM)
}

/// Returns whether the last lines of a process's output report a full disk, even if the message is wrapped across
/// lines.
fn tells_of_full_disk(last_output: &str) -> bool {
    let words = last_output.split(|it: char| !it.is_alphanumeric()).filter(|it| !it.is_empty());
    words.collect::<Vec<_>>().join(" ").contains(Errno::ENOSPC.desc())
}

/// Assigns the time of the event to its reports, even if the host has been busy since then.
fn dated(at: Time, reports: Vec<Report>) -> Vec<(Time, Report)> {
    reports.into_iter().map(|report| (at, report)).collect()
}

/// Sends messages to a node until it disconnects.
async fn speak(mut write: OwnedWriteHalf, mut orders: mpsc::UnboundedReceiver<ToNode>) {
    while let Some(order) = orders.recv().await {
        if let Err(error) = control::send(&mut write, &order).await {
            return debug!(%error, "a node closed its connection");
        }
    }
}

/// Accepts connections at the control port from processes that prove that they know their keys.
async fn listen(
    listener: TcpListener,
    connections: UntrustedConnections,
    keys: Keys,
    host_events: HostEvents,
) {
    loop {
        let (mut stream, connection) = connections.accept(&listener).await;
        let (keys, host_events) = (keys.clone(), host_events.clone());
        tokio::task::spawn_local(async move {
            let introduce = async {
                stream.set_nodelay(true)?;
                let key_of =
                    |ends: Ends| keys.of(ends.caller).filter(|_| ends.called == ProcessId::SUPERVISOR);
                let ends = Secret::answer(&mut stream, key_of).await.map_err(std::io::Error::other)?;
                let introduction: Introduction = control::receive(&mut stream).await?;
                if introduction.process != ends.caller {
                    return Err(std::io::Error::other("the node identifies itself as another process"));
                }
                Ok(introduction)
            };
            match connection.met(introduce).await {
                Some(Ok(introduction)) => host_events.put(HostEvent::Introduced { introduction, stream }),
                // Anyone can connect, and as often as they like.
                Some(Err(error)) => debug!(%error, "refused a connection"),
                None => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::{connect_from, run};

    #[test]
    fn strangers_do_not_keep_a_process_from_introducing_itself() {
        const MOST: usize = 4;
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let keys = Keys::generate(1).unwrap();
            let (host_events, mut happened) = HostEvents::new(Clock::start());
            let connections = UntrustedConnections::new(MOST);
            tokio::task::spawn_local(listen(listener, connections, keys.clone(), host_events));
            let mut strangers = Vec::new();
            for _ in 0..2 * MOST {
                strangers.push(connect_from(2, address).await);
            }
            let mut stream = TcpStream::connect(address).await.unwrap();
            let ends = Ends { caller: ProcessId(0), called: ProcessId::SUPERVISOR };
            keys.of(ProcessId(0)).unwrap().dial(&mut stream, ends).await.unwrap();
            let introduction = Introduction { process: ProcessId(0), life: Life(1) };
            control::send(&mut stream, &introduction).await.unwrap();
            let Some((_, HostEvent::Introduced { introduction: heard, .. })) = happened.recv().await else {
                panic!("the process is introduced")
            };
            assert_eq!(heard, introduction);
        });
    }

    #[test]
    fn a_full_disk_is_detected_in_wrapped_lines() {
        let error = std::io::Error::from_raw_os_error(Errno::ENOSPC as i32);
        assert!(tells_of_full_disk(&format!("cannot write the image: {error}")));
        assert!(tells_of_full_disk("  × cannot write facts: No space left on\n  │ device (os error 28)"));
        assert!(!tells_of_full_disk("cannot write facts: no such device"));
    }
}
