//! Hosts one process: passes it events one at a time, and performs its actions in order.
//!
//! Events that are available together are handled as a batch. The external effects of a batch (packets,
//! storage, jobs, reports) take place after its facts have been handed to the operating system, so that a
//! kill loses no fact that had an effect.
//!
//! While the main thread waits for an input, the threads that run jobs handle the results of these jobs ([`jobs`]).

mod handler;
mod jobs;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use faultline_core::process::In;
use faultline_core::{Boot, Event, FactKinds, LifeStart, Membership, Observation, Process};
use faultline_trace::FactsWriter;
use faultline_trace::inputs::InputsWriter;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use crate::clock::{Alarm, Clock};
use crate::codec::decode_packet;
use crate::control::{Directory, ToNode, ToSupervisor};
use crate::metrics::exposition::Exposition;
use crate::node::measure::Echoes;
use crate::node::shaping::{Shaping, ShapingError};
use crate::storage::{Request, Storage, StoreError};
use crate::system::Instruction;
use crate::transport::{Identity, Incoming, Transport};
pub(crate) use handler::ReportedFacts;
use handler::{EventHandler, OutgoingPacket};
use jobs::JobRunner;

/// Largest number of events in a batch.
const BATCH: usize = 64;

/// The reason why a node cannot continue. Unless the supervisor has disconnected, the node exits as if it had crashed.
#[derive(Debug, Error)]
pub(crate) enum EngineError {
    #[error("cannot write facts: {0}")]
    Facts(io::Error),
    #[error("cannot record the inputs of the process: {0}")]
    Inputs(io::Error),
    #[error("cannot write the storage journal: {0}")]
    Journal(io::Error),
    #[error("{0}")]
    Storage(StoreError),
    #[error("the timer failed: {0}")]
    Alarm(io::Error),
    #[error("{0}")]
    Links(ShapingError),
    #[error("lost the commands of this node: {0}")]
    Commands(io::Error),
    #[error("the supervisor closed the connection")]
    HungUp,
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
    /// The node cannot continue.
    Broken(EngineError),
    /// A thread that ran jobs has handled an event, and the effects need the main thread.
    Settle,
    /// A thread that ran jobs has panicked.
    Panicked,
    /// A packet from another process.
    Packet(Incoming),
    /// The command or a client of the node was observed. The sender, if any, is told once the fact has been handed to the
    /// operating system.
    Observed(Observation, Option<oneshot::Sender<()>>),
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
    /// Instructs the runner of the node's commands, if it is one of a system.
    pub(crate) commands: Option<mpsc::UnboundedSender<Instruction>>,
    pub(crate) exposition: Arc<Exposition>,
}

/// The host of one process, on the node's main thread.
pub(crate) struct Engine<P: Process> {
    me: Identity,
    clock: Clock,
    inputs_of_process: ProcessInputs<P>,
    inbox: mpsc::UnboundedReceiver<Stimulus<P>>,
    alarm: Alarm,
    transport: Rc<Transport>,
    shaping: Shaping,
    measure: mpsc::UnboundedSender<Echoes>,
    exposition: Arc<Exposition>,
    jobs: Arc<JobRunner<P>>,
    commands: Option<mpsc::UnboundedSender<Instruction>>,
    /// Inputs that arrived while the process was halted or had not started.
    postponed: VecDeque<Stimulus<P>>,
    /// Told once the facts of the batch have been handed to the operating system.
    acknowledged: Vec<oneshot::Sender<()>>,
}

impl<P: Process + Send + 'static> Engine<P> {
    /// Creates an engine whose process starts with the first membership.
    pub(crate) fn new(
        me: Identity,
        clock: Clock,
        inputs_of_process: ProcessInputs<P>,
        attention: ReportedFacts,
        inbox: mpsc::UnboundedReceiver<Stimulus<P>>,
        alarm: Alarm,
        outputs: EngineOutputs<P>,
    ) -> Engine<P> {
        let EngineOutputs { transport, shaping, storage, measure, exposition, .. } = outputs;
        let EngineOutputs { supervisor, facts, inputs, inbox: to_inbox, commands, .. } = outputs;
        let handler = EventHandler::new(me, clock, attention, storage, supervisor, facts, inputs);
        let jobs = JobRunner::new(clock, Handle::current(), to_inbox, handler);
        let postponed = VecDeque::new();
        Engine {
            me,
            clock,
            inputs_of_process,
            inbox,
            alarm,
            transport,
            shaping,
            measure,
            exposition,
            jobs,
            commands,
            postponed,
            acknowledged: Vec::new(),
        }
    }

    /// Sets the percentage of their time that computations take if they begin from now on.
    pub(crate) fn set_percent(&self, percent: u32) {
        self.jobs.set_percent(percent);
    }

    /// Runs until the supervisor disconnects or an error occurs.
    pub(crate) async fn run(mut self) -> EngineError {
        loop {
            if let Err(end) = self.turn().await {
                return end;
            }
        }
    }

    /// Waits for an input, then handles a batch of available inputs.
    async fn turn(&mut self) -> Result<(), EngineError> {
        let first = tokio::select! {
            biased;
            Some(stimulus) = self.inbox.recv() => Some(stimulus),
            rung = self.alarm.elapsed(), if self.alarm.is_set() => {
                rung.map_err(EngineError::Alarm)?;
                None
            }
        };
        let Some(mut handler) = self.jobs.take() else {
            // The error that ended the handler is in the inbox.
            return match first {
                Some(Stimulus::Broken(error)) => Err(error),
                _ => Ok(()),
            };
        };
        match self.handle_batch(&mut handler, first).await {
            Ok(()) => {
                self.jobs.give_back(handler);
                Ok(())
            }
            Err(EngineError::HungUp) => Err(handler.conclude().err().unwrap_or(EngineError::HungUp)),
            Err(end) => Err(end),
        }
    }

    async fn handle_batch(
        &mut self,
        handler: &mut EventHandler<P>,
        first: Option<Stimulus<P>>,
    ) -> Result<(), EngineError> {
        if let Some(stimulus) = first {
            self.take(handler, stimulus).await?;
        }
        for _ in 1..BATCH {
            let Ok(stimulus) = self.inbox.try_recv() else { break };
            self.take(handler, stimulus).await?;
        }
        if handler.deadline().is_some_and(|at| at <= self.clock.now()) {
            handler.handle(Event::Timeout)?;
        }
        self.settle(handler)?;
        handler.alarm = handler.deadline();
        self.alarm.set(handler.alarm).map_err(EngineError::Alarm)
    }

    /// Handles one input, and then postponed inputs.
    async fn take(
        &mut self,
        handler: &mut EventHandler<P>,
        stimulus: Stimulus<P>,
    ) -> Result<(), EngineError> {
        self.take_one(handler, stimulus).await?;
        while handler.process.is_some()
            && !handler.is_halted()
            && let Some(stimulus) = self.postponed.pop_front()
        {
            self.take_one(handler, stimulus).await?;
        }
        Ok(())
    }

    async fn take_one(
        &mut self,
        handler: &mut EventHandler<P>,
        stimulus: Stimulus<P>,
    ) -> Result<(), EngineError> {
        match stimulus {
            Stimulus::Order(ToNode::Go) => handler.resume(),
            Stimulus::Order(ToNode::Announce(..))
            | Stimulus::Event(_)
            | Stimulus::Packet(_)
            | Stimulus::Observed(..)
                if handler.is_halted() =>
            {
                self.postponed.push_back(stimulus);
                Ok(())
            }
            Stimulus::Packet(_) if handler.process.is_none() => {
                self.postponed.push_back(stimulus);
                Ok(())
            }
            Stimulus::Order(order) => {
                // First perform the actions that preceded the order. Otherwise, a message to a life that has since
                // ended could reach the next life, and a newly cut link could hold a message that was sent before the
                // cut.
                self.settle(handler)?;
                self.obey(handler, order).await
            }
            Stimulus::HungUp => Err(EngineError::HungUp),
            Stimulus::Broken(error) => Err(error),
            Stimulus::Show => {
                self.show(handler);
                Ok(())
            }
            // The batch ends with `settle`.
            Stimulus::Settle => Ok(()),
            Stimulus::Panicked => panic!("a thread that ran jobs has panicked"),
            Stimulus::Packet(Incoming { from, life, kind, body }) => {
                if !self.transport.is_up(from, life) {
                    return Ok(());
                }
                match decode_packet::<P>(kind, &body) {
                    Ok(packet) => handler.handle(Event::Packet { from, packet }),
                    Err(error) => {
                        warn!(%from, %error, "dropped a packet");
                        Ok(())
                    }
                }
            }
            Stimulus::Event(event) => handler.handle(event),
            Stimulus::Observed(observation, acknowledge) => {
                self.acknowledged.extend(acknowledge);
                handler.observed(observation)
            }
        }
    }

    async fn obey(&mut self, handler: &mut EventHandler<P>, order: ToNode) -> Result<(), EngineError> {
        let mut has_effect = true;
        match order {
            ToNode::Announce(membership, directory) => {
                return self.announce(handler, membership, &directory).await;
            }
            ToNode::Directory(directory) => return self.meet(&directory).await,
            ToNode::Measure(links, again_for) => {
                let order = Echoes::Measure(links, again_for);
                self.measure.send(order).expect("the measuring task does not end");
                return Ok(());
            }
            ToNode::Observe(links) => {
                self.measure.send(Echoes::Observe(links)).expect("the measuring task does not end");
                return Ok(());
            }
            ToNode::Prepare => {
                self.instruct(Instruction::Prepare);
                return Ok(());
            }
            ToNode::SetUp => {
                self.instruct(Instruction::SetUp);
                return Ok(());
            }
            ToNode::Check(check) => {
                self.instruct(Instruction::Check(check));
                return Ok(());
            }
            ToNode::Stop(within) => {
                self.instruct(Instruction::StopCommand(within));
                return Ok(());
            }
            ToNode::Watch(triggers) => {
                handler.attention.watches = triggers;
                return Ok(());
            }
            ToNode::Link { from, to, properties } => {
                self.shaping.note(from, to, properties);
                self.shaping.apply().await.map_err(EngineError::Links)?;
                self.transport.set_link(from, to, properties.map(|it| self.shaping.left_of(it)));
                has_effect = properties.is_none_or(|it| self.shaping.emulates(it));
            }
            ToNode::Relink { from, to, properties } => {
                self.shaping.ask(from, to, properties);
                self.shaping.apply().await.map_err(EngineError::Links)?;
                self.transport.ask_link(from, to, self.shaping.left_of(properties));
                if from == self.me.cluster {
                    self.exposition.update(|page| page.ask(from, to, properties));
                }
            }
            ToNode::Cut { from, to, cut } => {
                if self.shaping.cut(from, to, cut) {
                    self.shaping.apply().await.map_err(EngineError::Links)?;
                }
                self.transport.cut(from, to, cut);
                has_effect = !cut || self.shaping.drops();
            }
            ToNode::Split { of, nodes, cut } => {
                self.shaping.split(of, nodes, cut);
                self.shaping.apply().await.map_err(EngineError::Links)?;
                has_effect = !cut || self.shaping.drops();
            }
            ToNode::Impair(in_force) => {
                handler.storage.ask(Request::Misbehave(in_force.storage()));
                self.jobs.set_percent(in_force.percent());
            }
            ToNode::Flip(flip) => handler.handle(Event::Flip(flip))?,
            ToNode::Setup(_) | ToNode::Go => unreachable!("handled by the caller"),
        }
        // The task that writes to the supervisor ends only with the node.
        let at = has_effect.then(|| self.clock.now());
        drop(handler.supervisor.send(ToSupervisor::InForce(at)));
        Ok(())
    }

    async fn announce(
        &mut self,
        handler: &mut EventHandler<P>,
        membership: Membership,
        directory: &Directory,
    ) -> Result<(), EngineError> {
        if handler.membership.as_ref().is_some_and(|known| known.version >= membership.version) {
            return Ok(());
        }
        self.meet(directory).await?;
        let membership = Arc::new(membership);
        handler.membership = Some(membership.clone());
        if handler.process.is_some() {
            return handler.handle(Event::Membership(membership));
        }
        self.instruct(Instruction::Begin);
        handler.start(LifeStart {
            me: self.me.process,
            life: self.me.life,
            boot: self.inputs_of_process.boot,
            membership,
            config: self.inputs_of_process.config.clone(),
            record: self.inputs_of_process.record.take(),
            seed: self.inputs_of_process.seed,
            facts: FactKinds::ALL,
        })
    }

    /// Instructs the runner of the node's commands, if there is one.
    fn instruct(&self, instruction: Instruction) {
        if let Some(commands) = &self.commands {
            // If the runner has been lost, the node is about to exit.
            let _ = commands.send(instruction);
        }
    }

    /// Applies a new directory. No packet is sent before the properties of the links to all peers are in effect.
    async fn meet(&mut self, directory: &Directory) -> Result<(), EngineError> {
        if self.shaping.meet(directory) {
            self.shaping.apply().await.map_err(EngineError::Links)?;
        }
        self.transport.update(directory);
        Ok(())
    }

    /// Writes the facts of the batch, then performs its effects.
    fn settle(&mut self, handler: &mut EventHandler<P>) -> Result<(), EngineError> {
        handler.settle()?;
        // The receiver may have been given up.
        self.acknowledged.drain(..).for_each(|it| {
            let _ = it.send(());
        });
        for OutgoingPacket { to, kind, charge, body } in handler.packets.drain(..) {
            self.transport.send(to, kind, charge, body);
        }
        handler.jobs.drain(..).for_each(|(no, job)| self.jobs.start(no, job));
        Ok(())
    }

    /// Updates the values on the metrics page and in heartbeats.
    fn show(&mut self, handler: &EventHandler<P>) {
        let gauges = handler.process.as_ref().map(P::gauges).unwrap_or_default();
        let (counts, cluster) = (&handler.meter.counts, self.me.cluster);
        self.exposition.update(|page| {
            let values = page.values.entry(cluster).or_default();
            values.counts.clone_from(counts);
            values.gauges = gauges;
            page.delays = self.transport.delays();
        });
    }
}
