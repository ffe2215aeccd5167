//! Hosts one process: passes it events one at a time, and performs its actions in order.
//!
//! Events that are available together are handled as a batch. The external effects of a batch (packets,
//! storage, jobs, reports) take place after its facts have been handed to the operating system, so that a
//! kill loses no fact that had an effect.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use faultline_core::process::{ActionOf, In, Out, PacketOf};
use faultline_core::{
    Action, Boot, Event, Fact, FactKind, FactKinds, Job, JobNo, LifeStart, Membership, Process, ProcessId,
    Time, To, Trigger,
};
use faultline_trace::FactsWriter;
use faultline_trace::inputs::InputsWriter;
use thiserror::Error;
use tokio::sync::mpsc;
use tracing::warn;

use crate::clock::{Alarm, Clock, pause};
use crate::codec::{decode_packet, encode_packet};
use crate::control::{Directory, ToNode, ToSupervisor};
use crate::frame::{Body, FrameKind};
use crate::metrics::counts::Meter;
use crate::metrics::exposition::Exposition;
use crate::node::{Echoes, Shaping, ShapingError};
use crate::storage::{Request, Storage, StoreError};
use crate::transport::{Identity, Incoming, Transport};

/// Largest number of events in a batch.
const BATCH: usize = 64;

/// The reason why a node cannot continue. Unless the supervisor has disconnected, the node exits as if it had crashed.
#[derive(Debug, Error)]
pub(crate) enum EngineError {
    #[error("cannot write facts: {0}")]
    Facts(io::Error),
    #[error("cannot record the inputs of the process: {0}")]
    Inputs(io::Error),
    #[error("cannot write the journal of the storage: {0}")]
    Journal(io::Error),
    #[error("{0}")]
    Storage(StoreError),
    #[error("the timer failed: {0}")]
    Alarm(io::Error),
    #[error("{0}")]
    Links(ShapingError),
    #[error("the supervisor closed the connection")]
    HungUp,
}

/// Facts that the node reports to the supervisor.
pub(crate) struct ReportedFacts {
    pub(crate) follows: Vec<FactKind>,
    /// Triggers at which the process halts.
    pub(crate) watches: Vec<Trigger>,
}

/// The inputs for a new process, except the membership.
pub(crate) struct ProcessInputs<P: Process> {
    pub(crate) config: Arc<P::Config>,
    pub(crate) boot: Boot,
    pub(crate) seed: u64,
    pub(crate) record: Option<Arc<[u8]>>,
}

/// An input of the engine, other than its alarm.
pub(crate) enum Stimulus<P: Process> {
    /// An order from the supervisor.
    Order(ToNode),
    /// The supervisor has disconnected.
    HungUp,
    /// Updates the values on the metrics page and in heartbeats.
    Show,
    /// A storage action or a job has completed.
    Event(In<P>),
    /// The storage cannot continue.
    Broken(StoreError),
    /// A packet from another process.
    Packet(Incoming),
}

/// The parts of the node on which the engine acts.
pub(crate) struct EngineOutputs<P: Process> {
    pub(crate) transport: Rc<Transport>,
    pub(crate) shaping: Shaping,
    pub(crate) storage: Storage<P>,
    /// Receives the results of jobs.
    pub(crate) inbox: mpsc::UnboundedSender<Stimulus<P>>,
    pub(crate) supervisor: mpsc::UnboundedSender<ToSupervisor>,
    pub(crate) measure: mpsc::UnboundedSender<Echoes>,
    pub(crate) facts: FactsWriter<File>,
    /// Records the inputs of the process, if requested.
    pub(crate) inputs: Option<InputsWriter<File>>,
    pub(crate) exposition: Arc<Exposition>,
}

/// The host of one process.
pub(crate) struct Engine<P: Process> {
    me: Identity,
    clock: Clock,
    inputs_of_process: ProcessInputs<P>,
    process: Option<P>,
    membership: Option<Arc<Membership>>,
    attention: ReportedFacts,
    meter: Meter,
    inbox: mpsc::UnboundedReceiver<Stimulus<P>>,
    alarm: Alarm,
    outlets: EngineOutputs<P>,
    /// Actions of the process that have not been performed yet, in order.
    actions: Out<P>,
    /// Effects that wait for their facts to be written.
    outward: Vec<Outward<P>>,
    /// Packets from the process to itself.
    own: VecDeque<PacketOf<P>>,
    /// Inputs that arrived while the process was halted or had not started.
    postponed: VecDeque<Stimulus<P>>,
}

/// An effect outside the engine.
enum Outward<P: Process> {
    Parcel { to: ProcessId, kind: FrameKind, charge: u64, body: Body },
    Ask(Request<P>),
    Compute(JobNo, P::Job),
    Report(ToSupervisor),
}

impl<P: Process + 'static> Engine<P> {
    /// Creates an engine whose process starts with the first membership.
    pub(crate) fn new(
        me: Identity,
        clock: Clock,
        inputs_of_process: ProcessInputs<P>,
        attention: ReportedFacts,
        inbox: mpsc::UnboundedReceiver<Stimulus<P>>,
        alarm: Alarm,
        outlets: EngineOutputs<P>,
    ) -> Engine<P> {
        Engine {
            me,
            clock,
            inputs_of_process,
            process: None,
            membership: None,
            attention,
            meter: Meter::default(),
            inbox,
            alarm,
            outlets,
            actions: Vec::new(),
            outward: Vec::new(),
            own: VecDeque::new(),
            postponed: VecDeque::new(),
        }
    }

    /// Runs until the supervisor disconnects or an error occurs.
    pub(crate) async fn run(mut self) -> EngineError {
        loop {
            match self.turn().await {
                Ok(()) => {}
                Err(EngineError::HungUp) => return self.conclude().err().unwrap_or(EngineError::HungUp),
                Err(end) => return end,
            }
        }
    }

    /// Ends the streams of facts and inputs. Effects that have not taken place yet are discarded.
    fn conclude(&mut self) -> Result<(), EngineError> {
        if let Some(inputs) = &mut self.outlets.inputs {
            inputs.flush().map_err(EngineError::Inputs)?;
        }
        self.outlets.facts.seal().map_err(EngineError::Facts)
    }

    /// Waits for an input, then handles all inputs that are available.
    async fn turn(&mut self) -> Result<(), EngineError> {
        tokio::select! {
            biased;
            Some(stimulus) = self.inbox.recv() => self.take(stimulus).await?,
            rung = self.alarm.elapsed(), if self.alarm.is_set() => rung.map_err(EngineError::Alarm)?,
        }
        for _ in 1..BATCH {
            let Ok(stimulus) = self.inbox.try_recv() else { break };
            self.take(stimulus).await?;
        }
        let mut deadline = self.deadline();
        if deadline.is_some_and(|at| at <= self.clock.now()) {
            self.handle(Event::Timeout).await?;
            self.catch_up().await?;
            deadline = self.deadline();
        }
        self.settle()?;
        self.alarm.set(deadline).map_err(EngineError::Alarm)
    }

    fn deadline(&self) -> Option<Time> {
        self.process.as_ref().and_then(Process::next_deadline)
    }

    /// Handles one input, then packets from the process to itself, and then postponed inputs.
    async fn take(&mut self, stimulus: Stimulus<P>) -> Result<(), EngineError> {
        self.take_one(stimulus).await?;
        self.catch_up().await
    }

    async fn catch_up(&mut self) -> Result<(), EngineError> {
        loop {
            if let Some(packet) = self.own.pop_front() {
                self.handle(Event::Packet { from: self.me.process, packet }).await?;
            } else if let Some(stimulus) = self.next_postponed() {
                self.take_one(stimulus).await?;
            } else {
                return Ok(());
            }
        }
    }

    fn next_postponed(&mut self) -> Option<Stimulus<P>> {
        self.process.as_ref()?;
        self.postponed.pop_front()
    }

    async fn take_one(&mut self, stimulus: Stimulus<P>) -> Result<(), EngineError> {
        match stimulus {
            Stimulus::Order(order) => {
                // Actions before the order were based on the earlier state. Otherwise, a message to a life that has
                // since ended could reach the next life, and a newly cut link could hold a message that was sent
                // before the cut.
                self.settle()?;
                self.obey(order).await
            }
            Stimulus::HungUp => Err(EngineError::HungUp),
            Stimulus::Broken(error) => Err(EngineError::Storage(error)),
            Stimulus::Show => {
                self.show();
                Ok(())
            }
            Stimulus::Packet(_) if self.process.is_none() => {
                self.postponed.push_back(stimulus);
                Ok(())
            }
            Stimulus::Packet(Incoming { from, life, kind, body }) => {
                if !self.outlets.transport.is_up(from, life) {
                    return Ok(());
                }
                match decode_packet::<P>(kind, &body) {
                    Ok(packet) => self.handle(Event::Packet { from, packet }).await,
                    Err(error) => {
                        warn!(%from, %error, "dropped a packet");
                        Ok(())
                    }
                }
            }
            Stimulus::Event(event) => {
                match &event {
                    Event::Persisted(name) => self.outlets.storage.journal.image(*name),
                    Event::Recorded { version } => {
                        self.outlets.storage.journal.record(*version);
                        self.outward.push(Outward::Ask(Request::Reported { version: *version }));
                    }
                    _ => {}
                }
                self.handle(event).await
            }
        }
    }

    async fn obey(&mut self, order: ToNode) -> Result<(), EngineError> {
        match order {
            ToNode::Announce(membership, directory) => {
                if self.membership.as_ref().is_some_and(|known| known.version >= membership.version) {
                    return Ok(());
                }
                self.meet(&directory).await?;
                let membership = Arc::new(membership);
                self.membership = Some(membership.clone());
                if self.process.is_some() {
                    return self.handle(Event::Membership(membership)).await;
                }
                let start = LifeStart {
                    me: self.me.process,
                    life: self.me.life,
                    boot: self.inputs_of_process.boot,
                    membership,
                    config: self.inputs_of_process.config.clone(),
                    record: self.inputs_of_process.record.take(),
                    seed: self.inputs_of_process.seed,
                    facts: FactKinds::ALL,
                };
                let now = self.clock.now();
                if let Some(inputs) = &mut self.outlets.inputs {
                    inputs.start::<P>(now, &start).map_err(EngineError::Inputs)?;
                }
                self.process = Some(P::start(start, now, &mut self.actions));
                self.perform(now).await
            }
            other => self.obey_at_once(other).await,
        }
    }

    /// Applies a new directory. No packet is sent before the links to all peers are in effect.
    async fn meet(&mut self, directory: &Directory) -> Result<(), EngineError> {
        let EngineOutputs { transport, shaping, .. } = &mut self.outlets;
        if shaping.meet(directory) {
            shaping.apply().await.map_err(EngineError::Links)?;
        }
        transport.update(directory);
        Ok(())
    }

    /// Performs an order that does not concern the process itself, even while the process is halted.
    async fn obey_at_once(&mut self, order: ToNode) -> Result<(), EngineError> {
        if let ToNode::Directory(directory) = order {
            return self.meet(&directory).await;
        }
        let EngineOutputs { transport, shaping, storage, measure, supervisor, exposition, .. } =
            &mut self.outlets;
        match order {
            ToNode::Measure(links, again_for) => {
                let order = Echoes::Measure(links, again_for);
                measure.send(order).expect("the measuring task does not end");
                return Ok(());
            }
            ToNode::Observe(links) => {
                measure.send(Echoes::Observe(links)).expect("the measuring task does not end");
                return Ok(());
            }
            ToNode::Watch(triggers) => {
                self.attention.watches = triggers;
                return Ok(());
            }
            ToNode::Link { from, to, properties } => {
                shaping.note(from, to, properties);
                shaping.apply().await.map_err(EngineError::Links)?;
                transport.set_link(from, to, properties.map(|it| shaping.left_of(it)));
            }
            ToNode::Relink { from, to, properties } => {
                shaping.ask(from, to, properties);
                shaping.apply().await.map_err(EngineError::Links)?;
                transport.ask_link(from, to, shaping.left_of(properties));
                if from == self.me.cluster {
                    exposition.update(|page| page.ask(from, to, properties));
                }
            }
            ToNode::Cut { from, to, cut } => transport.cut(from, to, cut),
            ToNode::Storage(fault) => storage.ask(Request::Misbehave(fault)),
            // The process is not halted, or is no longer halted.
            ToNode::Go => return Ok(()),
            ToNode::Setup(_) | ToNode::Announce(..) | ToNode::Directory(_) => {
                unreachable!("handled by the caller")
            }
        }
        // The task that writes to the supervisor ends only with the node.
        drop(supervisor.send(ToSupervisor::InForce(self.clock.now())));
        Ok(())
    }

    async fn handle(&mut self, event: In<P>) -> Result<(), EngineError> {
        let now = self.clock.now();
        let Some(process) = &mut self.process else {
            // A timer that is no longer set, or an unsolicited response.
            return Ok(());
        };
        if let Some(inputs) = &mut self.outlets.inputs {
            inputs.event::<P>(now, &event).map_err(EngineError::Inputs)?;
        }
        process.handle(event, now, &mut self.actions);
        self.perform(now).await
    }

    async fn perform(&mut self, now: Time) -> Result<(), EngineError> {
        let mut actions = std::mem::take(&mut self.actions);
        if let Some(inputs) = &mut self.outlets.inputs {
            inputs.actions::<P>(now, &actions).map_err(EngineError::Inputs)?;
        }
        for action in actions.drain(..) {
            match action {
                Action::Fact(fact) => self.record(now, fact).await?,
                other => self.prepare(other),
            }
        }
        self.actions = actions;
        Ok(())
    }

    async fn record(&mut self, now: Time, fact: Fact) -> Result<(), EngineError> {
        self.outlets.facts.write(now, &fact).map_err(EngineError::Facts)?;
        self.meter.count(now, &fact);
        let kind = fact.kind();
        let halted =
            self.attention.watches.iter().any(|watch| watch.matches(kind, self.me.process, self.me.cluster));
        if halted || self.attention.follows.contains(&kind) {
            self.outward.push(Outward::Report(ToSupervisor::Fact { fact, halted }));
        }
        if halted { self.halt().await } else { Ok(()) }
    }

    /// Halts the process between two actions until the supervisor releases it.
    async fn halt(&mut self) -> Result<(), EngineError> {
        self.settle()?;
        loop {
            let stimulus = self.inbox.recv().await.expect("the engine itself holds a sender");
            match stimulus {
                Stimulus::Order(ToNode::Go) => return Ok(()),
                Stimulus::Order(ToNode::Announce(..)) | Stimulus::Event(_) | Stimulus::Packet(_) => {
                    self.postponed.push_back(stimulus);
                }
                Stimulus::Order(other) => self.obey_at_once(other).await?,
                Stimulus::HungUp => return Err(EngineError::HungUp),
                Stimulus::Broken(error) => return Err(EngineError::Storage(error)),
                Stimulus::Show => self.show(),
            }
        }
    }

    fn prepare(&mut self, action: ActionOf<P>) {
        self.outward.push(match action {
            Action::Send { to, packet } => return self.address(to, packet),
            Action::Persist(image) => Outward::Ask(Request::Persist(image)),
            Action::Read(name) => Outward::Ask(Request::Read(name)),
            Action::List => Outward::Ask(Request::List),
            Action::Delete(name) => Outward::Ask(Request::Delete(name)),
            Action::Record { version, bytes } => Outward::Ask(Request::Record { version, bytes }),
            Action::Started => Outward::Report(ToSupervisor::Started),
            Action::Held => Outward::Report(ToSupervisor::Held),
            Action::Compute(no, job) => Outward::Compute(no, job),
            Action::Fact(_) => unreachable!("handled by `record`"),
        });
    }

    /// Encodes a packet once, however many receivers it has.
    fn address(&mut self, to: To, packet: PacketOf<P>) {
        let me = self.me.process;
        if to == To::One(me) {
            return self.own.push_back(packet);
        }
        let charge = packet.wire_len();
        let (kind, body) = encode_packet::<P>(&packet);
        match to {
            To::One(to) => self.outward.push(Outward::Parcel { to, kind, charge, body }),
            To::Cluster(cluster) => {
                let membership = self.membership.as_ref().expect("a process starts with a membership");
                let others = membership.processes_of(cluster).iter().filter(|&&to| to != me);
                self.outward.extend(others.map(|&to| Outward::Parcel {
                    to,
                    kind,
                    charge,
                    body: body.clone(),
                }));
            }
        }
    }

    /// Writes the facts of the batch, then performs its effects.
    fn settle(&mut self) -> Result<(), EngineError> {
        let outlets = &mut self.outlets;
        outlets.storage.journal.flush().map_err(EngineError::Journal)?;
        // Inputs are written before facts, so that the record has the inputs that led to every recorded fact.
        if let Some(inputs) = &mut outlets.inputs {
            inputs.flush().map_err(EngineError::Inputs)?;
        }
        outlets.facts.flush().map_err(EngineError::Facts)?;
        for outward in self.outward.drain(..) {
            match outward {
                Outward::Parcel { to, kind, charge, body } => outlets.transport.send(to, kind, charge, body),
                Outward::Ask(request) => outlets.storage.ask(request),
                Outward::Compute(no, job) => compute::<P>(self.clock, no, job, outlets.inbox.clone()),
                // The task that writes to the supervisor ends only with the node.
                Outward::Report(report) => drop(outlets.supervisor.send(report)),
            }
        }
        Ok(())
    }

    /// Updates the values on the metrics page and in heartbeats.
    fn show(&mut self) {
        let gauges = self.process.as_ref().map(P::gauges).unwrap_or_default();
        let transport = &self.outlets.transport;
        let (counts, cluster) = (&self.meter.counts, self.me.cluster);
        self.outlets.exposition.update(|page| {
            let values = page.values.entry(cluster).or_default();
            values.counts.clone_from(counts);
            values.gauges = gauges;
            page.delays = transport.delays();
        });
    }
}

/// Runs a job in parallel with the process. The job takes at least its stated time.
fn compute<P: Process + 'static>(
    clock: Clock,
    no: JobNo,
    job: P::Job,
    done: mpsc::UnboundedSender<Stimulus<P>>,
) {
    tokio::task::spawn_blocking(move || {
        let end = clock.now() + job.cost();
        let output = job.run();
        pause(end.since(clock.now()));
        // The receiver is closed only if the node exits.
        drop(done.send(Stimulus::Event(Event::Computed(no, output))));
    });
}
