//! Builds small traces for tests, one action at a time. Every action is reported as the composite of protocol and
//! application would report it.

#![expect(
    missing_docs,
    clippy::missing_panics_doc,
    reason = "only tests call these functions, and a test may panic"
)]

pub mod clients;
pub mod planned;
pub mod tasks;

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_core::fault::StorageFault;
use faultline_core::{
    Attempt, Boot, Cause, Claim, Digest, EndedBy, Fact, FactNo, Fault, FaultNo, GroupId, ImageName,
    Incarnation, Life, MessageId, Position, ProcessId, Promise, Promises, Scope, Sn, Span, StorageFate, Time,
    Vectors, Witness,
};
use faultline_trace::{Manifest, Record, Sink, Trace};

use crate::context::Context;
use crate::history::History;

pub fn p(process: u32) -> ProcessId {
    ProcessId(process)
}

pub fn position(incarnation: u32, sn: u32) -> Position {
    Position::new(incarnation, sn)
}

/// A completed run (according to its context) under a protocol in which messages between clusters force checkpoints.
pub struct Run {
    pub trace: Trace,
    pub context: Context,
    now: Time,
    states: BTreeMap<u32, ProcessState>,
    /// Checkpoints by process, incarnation and SN.
    checkpoints: BTreeMap<(u32, u32, u32), Saved>,
}

#[derive(Clone, Default)]
struct Saved {
    witness: Witness,
    channels: BTreeMap<u32, u32>,
    vectors: Arc<Vectors>,
}

#[derive(Clone, Default)]
struct ProcessState {
    life: Life,
    facts: u64,
    sent: u64,
    delivered: u64,
    channels: BTreeMap<u32, u32>,
    position: Position,
}

/// Returns the context of a completed run whose clusters contain these ranks and whose processes read different clocks.
fn bare(promises: Promises, clusters: Vec<Vec<ProcessId>>) -> Context {
    let mut context = Context::from_manifest(&Manifest::bare(promises, &[]));
    context.clusters = clusters;
    context.faults = None;
    context.common_clock = false;
    context.settled_after = None;
    context
}

impl Run {
    /// A vector entry that covers every position that a received message can carry.
    pub const COVERS_ALL: Position = Position::new(u32::MAX, 0);

    pub fn new(clusters: &[&[u32]]) -> Run {
        let ids = clusters.iter().map(|it| it.iter().map(|&it| p(it)).collect()).collect();
        let promises = Promises::of_scope(Scope::Cluster).with(&[
            Promise::Checkpoints,
            Promise::DenseNumbering,
            Promise::MaximalLine,
            Promise::ForcedBeforeDelivery,
            Promise::Progress,
        ]);
        let mut run = Run {
            trace: Trace::default(),
            context: bare(promises, ids),
            now: Time::ZERO,
            states: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
        };
        for &process in clusters.iter().copied().flatten() {
            run.states.insert(process, ProcessState { life: Life(1), ..ProcessState::default() });
            run.supervisor(Fact::LifeStarted { process: p(process), life: Life(1), boot: Boot::Fresh });
        }
        run
    }

    /// Creates a run under a protocol that promises repetition and also makes these promises.
    pub fn repeating(promises: &[Promise], clusters: &[&[u32]]) -> Run {
        let mut run = Run::new(clusters);
        run.context.promises = run.context.promises.with(&[Promise::Repetition]).with(promises);
        run
    }

    /// Withdraws a promise of the protocol.
    pub fn withdraw(&mut self, promise: Promise) {
        self.context.promises = self.context.promises.without(promise);
    }

    pub fn history(&self) -> History<'_> {
        History::new(&self.trace, &self.context)
    }

    pub fn wait(&mut self, span: Span) {
        self.now += span;
    }

    pub fn state(&mut self, process: u32, fact: Fact) {
        let state = self.states.get_mut(&process).expect("the process is part of the run");
        let (life, number) = (state.life, FactNo(state.facts));
        state.facts += 1;
        self.trace.record(Record { process: p(process), life, number, at: self.now, fact });
    }

    pub fn claim(&mut self, process: u32, claim: Claim) {
        self.state(process, Fact::Claim(Box::new(claim)));
    }

    pub fn supervisor(&mut self, fact: Fact) {
        let number = FactNo(self.trace.supervisor().len() as u64);
        let process = ProcessId::SUPERVISOR;
        self.trace.record(Record { process, life: Life(0), number, at: self.now, fact });
    }

    pub fn message(&self, from: u32, to: u32, incarnation: u32, number: u32) -> MessageId {
        MessageId { from: p(from), to: p(to), incarnation: Incarnation(incarnation), number }
    }

    pub fn send(&mut self, from: u32, to: u32) -> MessageId {
        let state = self.states.get_mut(&from).expect("the process is part of the run");
        let next = state.channels.entry(to).or_default();
        let incarnation = match self.context.repeats() {
            true => Incarnation(0),
            false => state.position.incarnation,
        };
        let id = MessageId { from: p(from), to: p(to), incarnation, number: *next };
        *next += 1;
        self.send_as(id);
        id
    }

    pub fn send_as(&mut self, id: MessageId) {
        let state = self.states.get_mut(&id.from.0).expect("the process is part of the run");
        state.sent = state.sent.wrapping_add(id.mix());
        self.state(id.from.0, Fact::Sent { id, bytes: 8 });
    }

    pub fn transmit(&mut self, id: MessageId, position: Position) {
        self.state(id.from.0, Fact::Transmitted { id, position });
    }

    pub fn consume(&mut self, id: MessageId) {
        self.state(id.to.0, Fact::Consumed(id));
    }

    pub fn deliver(&mut self, id: MessageId) {
        let state = self.states.get_mut(&id.to.0).expect("the process is part of the run");
        state.delivered = state.delivered.wrapping_add(id.mix());
        self.state(id.to.0, Fact::Delivered(id));
    }

    pub fn witness(&self, process: u32) -> Witness {
        let state = &self.states[&process];
        Witness { life: state.life, upto: FactNo(state.facts), sent: state.sent, delivered: state.delivered }
    }

    pub fn image(&self, owner: u32, incarnation: u32, sn: u32) -> ImageName {
        ImageName { owner: p(owner), incarnation: Incarnation(incarnation), sn: Sn(sn), attempt: Attempt(1) }
    }

    pub fn durable(&mut self, holder: u32, name: ImageName) {
        self.state(holder, Fact::Durable(name));
    }

    pub fn position(&self, process: u32) -> Position {
        self.states[&process].position
    }

    pub fn set_position(&mut self, process: u32, position: Position) {
        self.states.get_mut(&process).expect("the process is part of the run").position = position;
    }

    /// Commits the next checkpoint of `cluster`, with a DDV that covers all positions and an empty delivered vector.
    pub fn commit_all(&mut self, cluster: u16, members: &[u32]) {
        let ddv = vec![Self::COVERS_ALL; self.context.clusters.len()];
        self.commit_with(cluster, members, &ddv, &[]);
    }

    pub fn commit_with(
        &mut self,
        _cluster: u16,
        members: &[u32],
        ddv: &[Position],
        delivered: &[(u16, Position)],
    ) {
        let delivered = delivered.iter().map(|&(cluster, at)| (GroupId(cluster), at)).collect();
        let vectors = Arc::new(Vectors { ddv: ddv.into(), delivered });
        for &member in members {
            let Position { incarnation, sn } = self.states[&member].position;
            let position = Position { incarnation, sn: sn.next() };
            let name = self.image(member, incarnation.0, position.sn.0);
            let witness = self.witness(member);
            let channels = self.states[&member].channels.clone();
            self.checkpoints.insert(
                (member, incarnation.0, position.sn.0),
                Saved { witness, channels, vectors: vectors.clone() },
            );
            self.state(member, Fact::Saved(Box::new((name, witness, 0))));
            self.durable(member, name);
        }
        for &member in members {
            let Position { incarnation, sn } = self.states[&member].position;
            let position = Position { incarnation, sn: sn.next() };
            self.set_position(member, position);
            self.claim(
                member,
                Claim::Committed {
                    position,
                    attempt: Attempt(1),
                    forced: false,
                    frozen: Span::ZERO,
                    vectors: vectors.clone(),
                },
            );
        }
    }

    pub fn restore(&mut self, process: u32, incarnation: u32, checkpoint: Option<(u32, u32)>) {
        self.restore_because(process, incarnation, checkpoint, Cause::Failure);
    }

    pub fn restore_because(
        &mut self,
        process: u32,
        incarnation: u32,
        checkpoint: Option<(u32, u32)>,
        cause: Cause,
    ) {
        let saved = checkpoint.map(|(of, sn)| self.checkpoints[&(process, of, sn)].clone());
        let Saved { witness, channels, vectors } = saved.unwrap_or_default();
        let (of, sn) = checkpoint.unwrap_or_default();
        let name = checkpoint.map(|(of, sn)| self.image(process, of, sn));
        let state = self.states.get_mut(&process).expect("the process is part of the run");
        (state.sent, state.delivered, state.channels) = (witness.sent, witness.delivered, channels);
        state.position = position(incarnation, sn);
        self.state(process, Fact::Restored(Box::new((name, Incarnation(incarnation), witness))));
        self.claim(
            process,
            Claim::RolledBack { to: position(incarnation, sn), checkpoint: position(of, sn), cause, vectors },
        );
    }

    /// Ends a life and starts the next.
    pub fn kill(&mut self, process: u32, storage_lost: bool) {
        let life = self.states[&process].life;
        self.next_life(process);
        let storage = if storage_lost { StorageFate::Lost } else { StorageFate::Kept };
        let boot = if storage_lost { Boot::Replaced } else { Boot::Restarted };
        let process = p(process);
        self.supervisor(Fact::Failed { process, life, storage, by: EndedBy::Silence });
        self.supervisor(Fact::Detected { process, life });
        self.supervisor(Fact::LifeStarted { process, life: life.next(), boot });
    }

    /// Makes the process continue as its next life, with an empty state. Reports no fact.
    pub fn next_life(&mut self, process: u32) {
        let state = self.states.get_mut(&process).expect("is part of the run");
        *state = ProcessState { life: state.life.next(), ..ProcessState::default() };
    }

    pub fn inject_crash(&mut self, process: u32) {
        let fault = Fault::crash(p(process));
        self.supervisor(Fact::Injecting { no: FaultNo(0), fault: Box::new(fault) });
    }

    /// Ends this process permanently: reports the injection of a crash, the failure, and its detection.
    pub fn lose_permanently(&mut self, process: u32) {
        let (storage, no) = (StorageFate::Kept, FaultNo(0));
        let (of, life) = (p(process), self.states[&process].life);
        self.supervisor(Fact::Injecting { no, fault: Box::new(Fault::kill_permanently(of, storage)) });
        self.supervisor(Fact::Failed { process: of, life, storage, by: EndedBy::Fault(no) });
        self.supervisor(Fact::Detected { process: of, life });
    }

    /// Makes the storage of `process` corrupt everything that is read from it during `span`.
    pub fn spoil(&mut self, process: u32, span: Span) {
        let fault = Fault::storage(p(process), StorageFault::Corrupt, span);
        self.supervisor(Fact::Injecting { no: FaultNo(0), fault: Box::new(fault) });
    }

    pub fn finish(&mut self, process: u32, digest: Digest) {
        let witness = self.witness(process);
        self.state(process, Fact::Finished(Box::new((witness, digest))));
    }

    /// Drops all further facts of the current life of `process`.
    pub fn lose_evidence(&mut self, process: u32) {
        let state = self.states.get_mut(&process).expect("the process is part of the run");
        state.facts += 1;
        self.state(process, Fact::Begun);
    }
}
