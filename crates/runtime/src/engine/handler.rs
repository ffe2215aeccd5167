//! A process, and the effects of its actions. Independent of threads: the handler belongs to whichever thread has an
//! event for the process.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use faultline_core::fault::Handled;
use faultline_core::process::{ActionOf, In, Out, PacketOf};
use faultline_core::{
    Action, Event, Fact, FactKind, JobNo, LifeStart, Membership, Observation, Process, ProcessId, Time, To,
    Trigger,
};
use faultline_supervisor::panics::handles;
use faultline_trace::FactsWriter;
use faultline_trace::inputs::InputsWriter;
use tokio::sync::mpsc;

use super::EngineError;
use crate::clock::Clock;
use crate::codec::encode_packet;
use crate::control::ToSupervisor;
use crate::frame::{Body, FrameKind};
use crate::metrics::counts::Meter;
use crate::storage::{Request, Storage};
use crate::transport::Identity;

/// Facts that the node reports to the supervisor.
pub(crate) struct ReportedFacts {
    pub(crate) follows: Vec<FactKind>,
    /// Triggers at which the process halts.
    pub(crate) watches: Vec<Trigger>,
}

/// Handles the events of one process, and performs the resulting actions in order.
pub(super) struct EventHandler<P: Process> {
    pub(super) me: Identity,
    pub(super) clock: Clock,
    /// `None` until the first membership arrives.
    pub(super) process: Option<P>,
    pub(super) membership: Option<Arc<Membership>>,
    pub(super) attention: ReportedFacts,
    pub(super) meter: Meter,
    pub(super) storage: Storage<P>,
    pub(super) supervisor: mpsc::UnboundedSender<ToSupervisor>,
    pub(super) facts: FactsWriter<File>,
    /// Records the inputs of the process, if requested.
    pub(super) inputs: Option<InputsWriter<File>>,
    /// Packets to send, in order. All facts recorded before them have been written. Only the node's main thread can
    /// send them.
    pub(super) packets: Vec<OutgoingPacket>,
    /// Jobs that are ready to run.
    pub(super) jobs: Vec<(JobNo, P::Job)>,
    /// The time for which the alarm of the main thread is set.
    pub(super) alarm: Option<Time>,
    halted: Option<Halted<P>>,
    /// A buffer for actions, which is empty between two events.
    actions: Out<P>,
    /// Effects that wait for their facts to be written.
    effects: Vec<Effect<P>>,
    /// Packets from the process to itself.
    own: VecDeque<PacketOf<P>>,
}

/// A packet to another process.
pub(super) struct OutgoingPacket {
    pub(super) to: ProcessId,
    pub(super) kind: FrameKind,
    pub(super) charge: u64,
    pub(super) body: Body,
}

/// A process that was halted between two actions.
struct Halted<P: Process> {
    /// The time of the event to which the process responded.
    at: Time,
    /// The actions of the response that remain to be performed.
    rest: Out<P>,
}

/// An effect outside the process.
enum Effect<P: Process> {
    Send(OutgoingPacket),
    Ask(Request<P>),
    Compute(JobNo, P::Job),
    Report(ToSupervisor),
}

impl<P: Process + 'static> EventHandler<P> {
    /// Creates a handler whose process has not started.
    pub(super) fn new(
        me: Identity,
        clock: Clock,
        attention: ReportedFacts,
        storage: Storage<P>,
        supervisor: mpsc::UnboundedSender<ToSupervisor>,
        facts: FactsWriter<File>,
        inputs: Option<InputsWriter<File>>,
    ) -> EventHandler<P> {
        EventHandler {
            me,
            clock,
            process: None,
            membership: None,
            attention,
            meter: Meter::default(),
            storage,
            supervisor,
            facts,
            inputs,
            packets: Vec::new(),
            jobs: Vec::new(),
            alarm: None,
            halted: None,
            actions: Vec::new(),
            effects: Vec::new(),
            own: VecDeque::new(),
        }
    }

    pub(super) fn start(&mut self, start: LifeStart<P::Config>) -> Result<(), EngineError> {
        let now = self.clock.now();
        if let Some(inputs) = &mut self.inputs {
            inputs.start::<P>(now, &start).map_err(EngineError::Inputs)?;
        }
        let mut actions = std::mem::take(&mut self.actions);
        handles(self.me.process, self.me.life, now, Handled::Start);
        self.process = Some(P::start(start, now, &mut actions));
        self.perform(now, actions)?;
        self.handle_own()
    }

    /// Handles an event, and then the packets from the process to itself. Does nothing before the process has started.
    pub(super) fn handle(&mut self, event: In<P>) -> Result<(), EngineError> {
        match &event {
            Event::Persisted(name) => self.storage.journal.image(*name),
            Event::Recorded { version } => {
                self.storage.journal.record(*version);
                self.effects.push(Effect::Ask(Request::Reported { version: *version }));
            }
            _ => {}
        }
        self.handle_one(event)?;
        self.handle_own()
    }

    /// Records an observation of the node's command.
    pub(super) fn observed(&mut self, observation: Observation) -> Result<(), EngineError> {
        let at = self.clock.now();
        if self.record(at, Fact::Observed(Box::new(observation)))? {
            self.halted = Some(Halted { at, rest: Vec::new() });
            return self.settle();
        }
        Ok(())
    }

    fn handle_own(&mut self) -> Result<(), EngineError> {
        while self.halted.is_none()
            && let Some(packet) = self.own.pop_front()
        {
            self.handle_one(Event::Packet { from: self.me.process, packet })?;
        }
        Ok(())
    }

    fn handle_one(&mut self, event: In<P>) -> Result<(), EngineError> {
        let now = self.clock.now();
        let Some(process) = &mut self.process else {
            // No event is expected before the process has started.
            return Ok(());
        };
        if let Some(inputs) = &mut self.inputs {
            inputs.event::<P>(now, &event).map_err(EngineError::Inputs)?;
        }
        let mut actions = std::mem::take(&mut self.actions);
        handles(self.me.process, self.me.life, now, event.handled());
        process.handle(event, now, &mut actions);
        self.perform(now, actions)
    }

    fn perform(&mut self, now: Time, actions: Out<P>) -> Result<(), EngineError> {
        if let Some(inputs) = &mut self.inputs {
            inputs.actions::<P>(now, &actions).map_err(EngineError::Inputs)?;
        }
        self.perform_until_halted(now, actions)
    }

    /// Performs the actions. If the process has to halt at one of them, performs the effects up to this action, and
    /// keeps the remaining actions.
    fn perform_until_halted(&mut self, at: Time, mut actions: Out<P>) -> Result<(), EngineError> {
        let mut remaining = actions.drain(..);
        while let Some(action) = remaining.next() {
            match action {
                Action::Fact(fact) => {
                    if self.record(at, fact)? {
                        self.halted = Some(Halted { at, rest: remaining.collect() });
                        return self.settle();
                    }
                }
                other => self.prepare(other),
            }
        }
        drop(remaining);
        self.actions = actions;
        Ok(())
    }

    /// Records a fact. Returns whether the process has to halt at it.
    fn record(&mut self, now: Time, fact: Fact) -> Result<bool, EngineError> {
        self.facts.write(now, &fact).map_err(EngineError::Facts)?;
        self.meter.count(now, &fact);
        let halted =
            self.attention.watches.iter().any(|watch| watch.matches(&fact, self.me.process, self.me.cluster));
        if halted || self.attention.follows.contains(&fact.kind()) {
            self.effects.push(Effect::Report(ToSupervisor::Fact { fact, halted }));
        }
        Ok(halted)
    }

    /// Returns whether the process is halted between two actions, until the supervisor releases it.
    pub(super) fn is_halted(&self) -> bool {
        self.halted.is_some()
    }

    /// Performs the remaining actions of a halted process. The process may halt again.
    pub(super) fn resume(&mut self) -> Result<(), EngineError> {
        if let Some(Halted { at, rest }) = self.halted.take() {
            self.perform_until_halted(at, rest)?;
        }
        self.handle_own()
    }

    fn prepare(&mut self, action: ActionOf<P>) {
        self.effects.push(match action {
            Action::Send { to, packet } => return self.address(to, packet),
            Action::Persist(image) => Effect::Ask(Request::Persist(image)),
            Action::Read(name) => Effect::Ask(Request::Read(name)),
            Action::List => Effect::Ask(Request::List),
            Action::Delete(name) => Effect::Ask(Request::Delete(name)),
            Action::Record { version, bytes } => Effect::Ask(Request::Record { version, bytes }),
            Action::Started => Effect::Report(ToSupervisor::Started),
            Action::Held => Effect::Report(ToSupervisor::Held),
            Action::Compute(no, job) => Effect::Compute(no, job),
            Action::Fact(_) => unreachable!("handled by `record`"),
        });
    }

    /// Prepares to send a packet. Encodes it only once, however many receivers it has.
    fn address(&mut self, to: To, packet: PacketOf<P>) {
        let me = self.me.process;
        if to == To::One(me) {
            return self.own.push_back(packet);
        }
        let charge = packet.wire_len(P::saved_len);
        let (kind, body) = encode_packet::<P>(&packet);
        match to {
            To::One(to) => self.effects.push(Effect::Send(OutgoingPacket { to, kind, charge, body })),
            To::Cluster(cluster) => {
                let membership = self.membership.as_ref().expect("a process starts with a membership");
                let others = membership.processes_of(cluster).iter().filter(|&&to| to != me);
                self.effects.extend(
                    others.map(|&to| Effect::Send(OutgoingPacket { to, kind, charge, body: body.clone() })),
                );
            }
        }
    }

    /// Writes the facts of the handled events, then performs the effects of these events. Packets and jobs remain in
    /// [`packets`](Self::packets) and [`jobs`](Self::jobs).
    pub(super) fn settle(&mut self) -> Result<(), EngineError> {
        self.storage.journal.flush().map_err(EngineError::Journal)?;
        // Inputs are written before facts, so that the record has the inputs that led to every recorded fact.
        if let Some(inputs) = &mut self.inputs {
            inputs.flush().map_err(EngineError::Inputs)?;
        }
        self.facts.flush().map_err(EngineError::Facts)?;
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Send(packet) => self.packets.push(packet),
                Effect::Ask(request) => self.storage.ask(request),
                Effect::Compute(no, job) => self.jobs.push((no, job)),
                // The task that writes to the supervisor ends only with the node.
                Effect::Report(report) => drop(self.supervisor.send(report)),
            }
        }
        Ok(())
    }

    /// Returns the time of the next timeout of the process; `None` while the process is halted.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.process.as_ref().filter(|_| self.halted.is_none()).and_then(Process::next_deadline)
    }

    /// Returns whether the handled events, once settled, require action by the main thread.
    pub(super) fn needs_main_thread(&self) -> bool {
        let rings_late = self.deadline().is_some_and(|at| self.alarm.is_none_or(|alarm| at < alarm));
        !self.packets.is_empty() || self.is_halted() || rings_late
    }

    /// Ends the streams of facts and inputs. Effects that have not taken place yet are discarded.
    pub(super) fn conclude(&mut self) -> Result<(), EngineError> {
        if let Some(inputs) = &mut self.inputs {
            inputs.flush().map_err(EngineError::Inputs)?;
        }
        self.facts.seal().map_err(EngineError::Facts)
    }
}
