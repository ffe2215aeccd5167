//! Passes reports to the supervisor and carries out its orders.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use faultline_callers::UntrustedConnections;
use faultline_core::fault::{Impairments, LinkProperties, MemoryContent, MemoryPart, MemoryUse, Outcome};
use faultline_core::{ClusterId, Fact, FaultNo, Life, Membership, ProcessId, Span, Time};
use faultline_supervisor::{MemoryBound, Order, Report, Supervisor};
use faultline_trace::manifest::{Effect, LinkEntry};
use faultline_trace::{Bundle, Extent, Stream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::effects::{Affected, Effects};
use super::journal::{Journal, JournalContents, JournalEntry};
use super::link_state::LinkState;
use super::nodes::{Nodes, listen};
use super::places::{HostEvent, HostEvents, PlaceBackend, Seen};
use super::recorder::Recorder;
use super::totals::Totals;
use super::unexpected_ends::{UnexpectedEnds, is_full};
use super::{Observer, RunError, RunOptions, RunOutcome};
use crate::clock::{Alarm, Clock};
use crate::control::Setup;
use crate::control::{Introduction, ToNode, ToSupervisor};
use crate::metrics::Sum;
use crate::metrics::exposition::serve;
use crate::secret::Keys;

/// Longest time for which a late host handles messages before it handles a deadline.
const CAUGHT_UP: Span = Span::from_millis(500);
/// Interval between two status reports to the observer.
const STATUS_EVERY: Duration = Duration::from_millis(100);

/// The memory limit divided by this number is reserved for facts that no heartbeat has reported yet.
const RESERVE: u64 = 8;
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
pub(super) struct Host<'a, P> {
    options: RunOptions,
    extent: Extent,
    pub(super) recorder: Recorder<'a>,
    pub(super) clock: Clock,
    pub(super) journal: Journal,
    keys: Keys,
    pub(super) places: P,
    host_events: HostEvents,
    pub(super) nodes: Nodes,
    pub(super) links: LinkState,
    pub(super) membership: Arc<Membership>,
    pub(super) effects: Effects,
    unexpected_ends: UnexpectedEnds,
}

/// Performs a run, or resumes the run in `memory`. Nodes connect to `listener`, and prove that they know
/// their keys. `settle` creates their places.
pub(crate) async fn host<P: PlaceBackend>(
    options: RunOptions,
    keys: Keys,
    listener: std::net::TcpListener,
    sum: Sum,
    memory: Memory,
    settle: impl FnOnce(PlaceContext) -> Result<P, RunError>,
    observer: &mut dyn Observer,
) -> Result<RunOutcome, RunError> {
    listener.set_nonblocking(true).map_err(RunError::Listen)?;
    let listener = TcpListener::from_std(listener).map_err(RunError::Listen)?;
    let control = listener.local_addr().map_err(RunError::Listen)?;
    let Memory { journal, clock, past } = memory;
    let bundle = Bundle::open(&options.run_dir);
    let facts = match past {
        None => bundle.facts_writer(ProcessId::SUPERVISOR, Life(0)).map(|it| (it, Stream::new())),
        Some(_) => bundle.facts_appender(ProcessId::SUPERVISOR, Life(0)),
    };
    let (facts, recorded) = facts.map_err(RunError::Facts)?;
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
    })?;
    let mut host = Host {
        extent: Extent { processes: options.names.processes.len(), clusters: options.names.clusters.0.len() },
        recorder: Recorder::new(observer, totals, facts),
        clock,
        journal,
        keys,
        places,
        host_events,
        nodes: Nodes::new(&options, &supervisor),
        links: LinkState::new(&options),
        membership: Arc::new(options.membership.clone()),
        effects: Effects::default(),
        unexpected_ends: UnexpectedEnds::default(),
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
    // No process is left behind, even after an error.
    let places_ended = host.end_places(&mut happened).await;
    let outcome = outcome.map_err(|error| match error {
        RunError::DiskFull(_) => error,
        error if is_full(&host.options.run_dir) => RunError::DiskFull(error.to_string()),
        error => error,
    })?;
    places_ended?;
    host.seal(&supervisor)?;
    Ok(host.into_outcome(outcome, duration, &supervisor))
}

impl<P: PlaceBackend> Host<'_, P> {
    fn into_outcome(self, outcome: Outcome, duration: Span, supervisor: &Supervisor) -> RunOutcome {
        RunOutcome {
            outcome,
            added: supervisor.plan().split_off(self.options.supervisor.plan.len()),
            faults: supervisor.faults(),
            effects: self.effects.into_entries(),
            pressure: None,
            links: self.links.measuring.history(),
            duration,
            collapsed: self.unexpected_ends.into_list(),
        }
    }

    /// Ends all places and records the effects that they still report. Processes that detect the disconnection seal
    /// their facts.
    async fn end_places(
        &mut self,
        happened: &mut mpsc::UnboundedReceiver<(Time, HostEvent)>,
    ) -> Result<(), RunError> {
        let told = self.nodes.disconnect();
        let ended = self.places.end(&told).await;
        while let Ok((_, host_event)) = happened.try_recv() {
            match host_event {
                HostEvent::Stopped(seen) => self.stopped(&seen),
                HostEvent::Paused(seen) => self.paused(seen),
                HostEvent::Slowed(no, effect) => self.effects.applied(no, effect),
                _ => {}
            }
        }
        ended
    }

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
                    self.recorder.status(now, &status, &self.membership);
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
                    self.recorder.status(now, &status, &self.membership);
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
            if let Some(error) = self.unexpected_ends.why_hopeless() {
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
        let count = self.recorder.totals.facts();
        let bytes = count * self.options.fact_bytes;
        let facts = MemoryPart { content: MemoryContent::JudgedFacts, count, bytes };
        let is_reached = used >= bound || bytes >= bound - bound / RESERVE;
        is_reached.then(|| MemoryUse { bound, used, parts: vec![facts, self.recorder.totals.logs()] })
    }

    /// Writes reports to the journal, and passes them to the state machine. The journal must be flushed before the
    /// resulting orders are carried out.
    pub(super) fn apply_reports(
        &self,
        supervisor: &mut Supervisor,
        reports: Vec<(Time, Report)>,
        orders: &mut Vec<Order>,
    ) {
        if reports.is_empty() {
            return;
        }
        let entry = JournalEntry::Heard(reports);
        self.journal.write(&entry);
        if let JournalEntry::Heard(reports) = entry {
            for (at, report) in reports {
                supervisor.handle(report, at, orders);
            }
        }
    }

    /// Returns the changes that the user has requested since the last call.
    fn wished(&self) -> Vec<(Time, Report)> {
        let (changes, note) = self.options.change_queue.take();
        if let Some(note) = note {
            self.journal.write(&JournalEntry::Noted(note));
        }
        dated(self.clock.now(), changes.into_iter().map(Report::Changed).collect())
    }

    pub(super) fn note_link(
        &mut self,
        from: ClusterId,
        to: ClusterId,
        properties: Option<LinkProperties>,
        of: Option<FaultNo>,
    ) {
        self.effects.changing(Affected::Link(from, to), of.filter(|_| properties.is_some()));
        if let Some(now) = properties.or_else(|| self.options.links.requested.get(&(from, to)).copied()) {
            self.recorder.totals.ask(from, to, now);
        }
        self.links.change(from, to, properties);
    }

    pub(super) fn note_relink(
        &mut self,
        from: ClusterId,
        to: ClusterId,
        properties: LinkProperties,
        since: Option<Time>,
    ) {
        self.options.links.requested.insert((from, to), properties);
        self.recorder.totals.ask(from, to, properties);
        self.links.measuring.ask(from, to, properties, since);
    }

    pub(super) fn note_cut(&mut self, from: ClusterId, to: ClusterId, cut: bool) {
        self.effects.cutting(from, to, cut);
        self.links.cut(from, to, cut);
    }

    pub(super) fn note_split(&mut self, of: FaultNo, cluster: ClusterId, nodes: &[ProcessId], cut: bool) {
        self.effects.splitting(of, cluster, cut);
        self.links.split(of, cluster, nodes, cut);
    }

    pub(super) fn note_impaired(&mut self, process: ProcessId, in_force: Impairments) {
        self.effects.changing(Affected::Node(process), in_force.faults());
        self.nodes.impaired.insert(process, in_force);
    }

    /// Informs the observer if a measurement while the application runs completes all of them.
    pub(super) fn measured(&mut self) {
        if self.links.begun && self.links.measuring.is_done() {
            self.recorder.observer.measured(&self.links.measuring.entries());
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
                if let Some((status, output)) = unexpected_end {
                    let panic = self.unexpected_ends.ended((process, life), status, &output, &self.options);
                    reports.extend(panic.map(|it| Report::Ended(Outcome::Panicked(Arc::new(it)))));
                }
                reports
            }
            HostEvent::Stopped(seen) => {
                self.stopped(&seen);
                self.journal.write(&JournalEntry::Stopped(seen));
                vec![]
            }
            HostEvent::Paused(seen) => {
                self.paused(seen);
                self.journal.write(&JournalEntry::Paused(seen));
                vec![]
            }
            HostEvent::Slowed(no, effect) => {
                self.applied(no, effect);
                self.observe_effects();
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
        self.nodes.remove(process, life);
        self.links.measuring.process_stops(process);
        self.observe_effects();
        self.release_halted();
    }

    /// Notifies the places if `life` ended before its process started. A process starts once it receives its
    /// first membership.
    pub(super) fn note_unless_started(&mut self, process: ProcessId, life: Life) {
        if self.membership.member(process).life < life {
            self.places.never_started(process, life);
        }
    }

    /// Records that lives have stopped because they were killed.
    pub(super) fn stopped(&mut self, seen: &[Seen]) {
        self.recorder.took_effect(self.effects.stopped(seen));
    }

    /// Records the answer to an order to pause a life.
    pub(super) fn paused(&mut self, seen: Seen) {
        self.recorder.took_effect(self.effects.paused(seen));
    }

    /// Records that a process has applied a fault.
    fn applied(&mut self, no: FaultNo, effect: Effect) {
        self.journal.write(&JournalEntry::InForce { no, effect });
        self.effects.applied(no, effect);
    }

    /// Informs the observer of faults that all nodes concerned have applied.
    pub(super) fn observe_effects(&mut self) {
        for no in self.effects.unobserved(|no| !self.nodes.awaits(no)) {
            self.journal.write(&JournalEntry::Observed(no));
            self.observe_effects_of(no);
        }
    }

    pub(super) fn observe_effects_of(&mut self, no: FaultNo) {
        self.recorder.took_effect(self.effects.observed(no));
    }

    /// Handles a node's message. The node has proved which process it is, but its program may be hostile. Hence the message
    /// must not speak for the supervisor, or name processes or clusters that do not exist.
    fn said(&mut self, at: Time, process: ProcessId, life: Life, message: ToSupervisor) -> Vec<Report> {
        // A process that has failed in the meantime may have been replaced. Its facts are in its record.
        if !self.nodes.contains(process, life) {
            return vec![];
        }
        match message {
            ToSupervisor::Registered(address) => {
                for no in self.nodes.listens(process, life, address) {
                    // Further processes that start say nothing about how long the fault took to take effect.
                    if !self.effects.is_applied(no) {
                        self.applied(
                            no,
                            Effect {
                                process,
                                life,
                                at: Some(at),
                                exited: None,
                                slowed: None,
                                error: Span::ZERO,
                            },
                        );
                    }
                }
                self.observe_effects();
                self.links.process_runs(process, &self.membership, at);
                if self.links.begun {
                    self.links.observe(process, &self.nodes);
                }
                let all_listen = self.links.measure(&self.nodes, &self.membership);
                let measured = if all_listen { self.links_measured() } else { None };
                [Report::Registered { process, life }].into_iter().chain(measured).collect()
            }
            ToSupervisor::Measured { to, requested, began, link } => {
                if self.links.counts((process, to), requested, began, link) {
                    self.journal.write(&JournalEntry::Measured { by: process, to, requested, link });
                    self.measured();
                } else {
                    // Something may have delayed the echoes since the measurement was requested.
                    self.measure_later();
                }
                self.links_measured().into_iter().collect()
            }
            ToSupervisor::Observed { to, requested, echoes } => {
                let counted = self.links.observed((process, to), requested, &echoes);
                if let Some(LinkEntry { from, to, observed: Some(observed), .. }) = counted {
                    self.journal.write(&JournalEntry::Echoes { from, to, observed });
                }
                vec![]
            }
            ToSupervisor::Heartbeat(gauges, counts, mut delays) => {
                let cluster = self.membership.cluster_of(process);
                delays.retain(|&(from, to), _| {
                    [from, to].contains(&cluster) && [from, to].iter().all(|it| self.extent.has_cluster(*it))
                });
                self.recorder.totals.heard(at, process, life, gauges, counts, delays);
                vec![Report::Heartbeat { process, life, gauges }]
            }
            ToSupervisor::Fact { fact, .. } if !self.extent.allows_of_process(&fact) => {
                debug!(%process, %life, ?fact, "a process has reported a fact that it cannot know");
                vec![]
            }
            ToSupervisor::Fact { fact, halted } => {
                self.recorder.reported(at, process, life, &fact);
                vec![Report::Fact { process, life, fact, halted }]
            }
            ToSupervisor::Started => vec![Report::Started { process, life }],
            ToSupervisor::Held => vec![Report::Held { process, life }],
            ToSupervisor::SetUp => vec![Report::SetUp { process, life }],
            ToSupervisor::NotReady(what) => {
                self.not_ready(process, what);
                vec![]
            }
            ToSupervisor::InForce(at) => {
                if let Some(no) = self.nodes.confirmed(process, life) {
                    let error = self.places.clock_error(process);
                    self.applied(no, Effect { process, life, at, exited: None, slowed: None, error });
                }
                self.observe_effects();
                self.release_halted();
                vec![]
            }
        }
    }

    /// Handles the introduction of a node.
    fn introduced(&mut self, introduction: Introduction, stream: TcpStream) {
        let Introduction { process, life } = introduction;
        if !self.places.hosts(process, life) || self.nodes.contains(process, life) {
            return warn!(%process, %life, "closed a connection from an unexpected life");
        }
        let keys = match self.keys.wrapped_pairs(process) {
            Ok(keys) => keys,
            // The disconnected node exits and is restarted.
            Err(error) => return warn!(%process, %error, "cannot send a node its keys"),
        };
        self.places.introduced(process, life);
        let place = (self.places.clock(process), self.places.kernel(process));
        let (changed, cut) = self.links.faults();
        let splits = self.links.splits();
        let setup = Setup { changed, cut, splits, ..self.nodes.setup(process, keys, &self.options, place) };
        let at_start = self.effects.at_start(process, self.membership.cluster_of(process));
        self.nodes.connect(introduction, stream, setup, at_start, self.host_events.clone());
    }

    /// Ends the start of a system, because one of its nodes cannot become ready. Once the application has begun, which is
    /// when the first membership is announced, the node's facts say what happened.
    fn not_ready(&mut self, process: ProcessId, what: String) {
        if self.membership.version == self.options.membership.version {
            let name = self.options.names.processes[process.index()].clone();
            self.unexpected_ends.give_up(RunError::NotReady { name, what });
        }
    }

    /// Requests missing measurements once all orders have taken effect.
    fn measure_later(&mut self) {
        self.links.measure_later();
        self.release_halted();
    }

    /// Returns the report that all links have been measured. `None` if they have not been, or if the report
    /// has already been returned.
    fn links_measured(&mut self) -> Option<Report> {
        let begins = self.links.begin(&self.nodes);
        begins.then(|| {
            self.recorder.observer.measured(&self.links.measuring.entries());
            Report::LinksMeasured
        })
    }

    /// Releases halted processes once all orders are in effect.
    fn release_halted(&mut self) {
        if self.nodes.release_halted() {
            self.links.orders_in_effect(&self.nodes);
        }
    }

    /// Records a fact of the supervisor.
    pub(super) fn record(&mut self, at: Time, fact: &Fact, supervisor: &Supervisor) -> Result<(), RunError> {
        self.effects.recorded(fact, |no| supervisor.due(no));
        self.recorder.record(at, fact)
    }

    async fn perform(&mut self, order: Order, supervisor: &Supervisor) -> Result<Option<Outcome>, RunError> {
        debug!(?order, "performing");
        match order {
            Order::Launch { process, life, boot } => {
                self.nodes.boots.insert(process, boot);
                self.places.launch(process, life, boot)?;
            }
            Order::Prepare { process, life } => self.nodes.send_to_life(process, life, ToNode::Prepare),
            Order::SetUp { process, life } => self.nodes.send_to_life(process, life, ToNode::SetUp),
            Order::Check { process, life, check } => {
                self.nodes.send_to_life(process, life, ToNode::Check(check));
            }
            Order::Stop { process, life, within, command } => {
                if let Some(command) = command {
                    self.nodes.commands.insert(process, command);
                }
                self.nodes.send_to_life(process, life, ToNode::Stop(within));
            }
            Order::Announce(membership) => {
                let before = std::mem::replace(&mut self.membership, membership.clone());
                self.links.members_change(&before, &membership, &self.nodes, self.clock.now());
                self.nodes.announce(&membership);
                // The process at the other end of a measurement may have failed.
                self.measure_later();
            }
            Order::Watch(triggers) => {
                self.nodes.watches = triggers.to_vec();
                // A process that learns late that a trigger was removed halts one more time than necessary, and is then
                // released.
                self.nodes.send_to_all(&ToNode::Watch(triggers.to_vec()));
            }
            Order::Go { process, life } => {
                self.nodes.halted(process, life);
                self.release_halted();
            }
            Order::Kill { lives, storage } => {
                lives.iter().for_each(|&(process, _)| self.links.measuring.process_stops(process));
                self.places.kill(&lives, storage).await?;
            }
            Order::Pause { process, life, paused: true } => {
                self.effects.pausing(process, life);
                self.links.measuring.process_stops(process);
                self.places.pause(process, life, true).await?;
            }
            Order::Pause { process, life, paused: false } => {
                self.links.process_runs(process, &self.membership, self.clock.now());
                self.places.pause(process, life, false).await?;
                self.measure_later();
            }
            Order::Link { from, to, properties, of } => {
                self.note_link(from, to, properties, of);
                self.links.measuring.disturb_link(from, to, self.clock.now());
                // A fault that is in force again, after the end of a later one, took effect when it was injected.
                let begins = properties.is_some() && of == self.effects.injecting();
                self.order_all(&ToNode::Link { from, to, properties }, begins.then_some(from));
                self.measure_later();
            }
            Order::Relink { from, to, properties } => self.relink(from, to, properties),
            Order::Cut { from, to, cut } => {
                self.note_cut(from, to, cut);
                self.links.measuring.disturb_link(from, to, self.clock.now());
                self.order_all(&ToNode::Cut { from, to, cut }, cut.then_some(from));
                self.measure_later();
            }
            Order::Split { of, cluster, nodes, cut } => {
                self.note_split(of, cluster, &nodes, cut);
                self.links.measuring.disturb_link(cluster, cluster, self.clock.now());
                self.order_all(&ToNode::Split { of, nodes, cut }, cut.then_some(cluster));
                self.measure_later();
            }
            Order::Impair { process, in_force, .. } if self.options.supervisor.system.is_some() => {
                self.places.slow(process, in_force.slow());
                self.note_impaired(process, in_force);
            }
            Order::Impair { process, in_force, begins } => {
                self.nodes.order(|it| it == process, |_| begins, &ToNode::Impair(in_force.clone()));
                self.note_impaired(process, in_force);
            }
            Order::Flip { process, flip, of } => {
                self.nodes.order(|it| it == process, |_| Some(of), &ToNode::Flip(flip));
            }
            Order::Record(fact) => self.record(self.clock.now(), &fact, supervisor)?,
            Order::End(outcome) => return Ok(Some(outcome)),
        }
        Ok(None)
    }

    /// Changes the requested properties of a link.
    fn relink(&mut self, from: ClusterId, to: ClusterId, properties: LinkProperties) {
        let since = self.links.begun.then(|| self.clock.now());
        self.note_relink(from, to, properties, since);
        self.order_all(&ToNode::Relink { from, to, properties }, None);
        if self.links.begun {
            self.links.observe_all(&self.nodes);
        }
        self.measure_later();
    }

    /// Sends every node an order that must take effect before a halted process resumes. If the order belongs
    /// to a fault, the fault takes effect at the nodes of the cluster `at`.
    fn order_all(&mut self, order: &ToNode, at: Option<ClusterId>) {
        self.nodes.order_all(order, at, self.effects.injecting(), &self.membership);
    }

    /// Seals the facts of the supervisor, and of every life that has not sealed its own.
    fn seal(&mut self, supervisor: &Supervisor) -> Result<(), RunError> {
        let bundle = Bundle::open(&self.options.run_dir);
        for (process, newest) in supervisor.newest() {
            for life in (1..=newest.0).map(Life) {
                bundle.seal(process, life, false).map_err(RunError::Facts)?;
            }
        }
        self.recorder.seal()
    }
}

/// Assigns the time of the event to its reports, even if the host has been busy since then.
pub(super) fn dated(at: Time, reports: Vec<Report>) -> Vec<(Time, Report)> {
    reports.into_iter().map(|report| (at, report)).collect()
}
