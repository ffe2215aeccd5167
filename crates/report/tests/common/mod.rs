//! A plausible, made-up run: two coupled clusters under a protocol similar to HC3I, one crash, then the loss of a
//! cluster. The generator knows the state of all processes, so it is not a protocol. Its facts only have to be as
//! consistent as those of a real run.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use faultline_core::fault::{FaultState, LinkProperties, Outcome};
use faultline_core::{
    Attempt, Boot, Cause, Claim, ClusterId, Digest, EndedBy, Fact, FactNo, Fault, FaultNo, GroupId,
    ImageName, Incarnation, Life, MessageId, PlannedFault, Position, ProcessId, Promise, Promises, Role,
    Scope, Sn, Span, StorageFate, Time, Trigger, Vectors, Witness,
};
use faultline_trace::manifest::{
    BackendKind, Bounds, ClusterEntry, Expected, FORMAT, LinkEntry, LinkMeasured, ProcessEntry,
};
use faultline_trace::{Manifest, Record, Sink, Trace};

const ORIGIN: Time = Time(400_000_000);
const STEP: Span = Span::from_millis(50);
const STEPS: u32 = 160;
const FEEDBACK_EVERY: u32 = 20;
const CHECKPOINT_EVERY: Span = Span::from_secs(1);

/// Returns the manifest and the facts of the run.
pub(crate) fn run(nodes: u32) -> (Manifest, Trace) {
    let mut world = World::new(nodes);
    world.play();
    (manifest(nodes), world.trace)
}

fn manifest(nodes: u32) -> Manifest {
    let names = ["paris", "rennes"];
    let link = |from: u16, to: u16, us: u64, measured: u64| LinkEntry {
        from: ClusterId(from),
        to: ClusterId(to),
        requested: LinkProperties {
            latency: Span::from_micros(us),
            jitter: Span::from_micros(us / 40),
            bandwidth: 12_500_000,
            loss_ppm: 0,
        },
        measured: Some(LinkMeasured {
            latency: Span::from_micros(measured),
            jitter: Span::from_micros(us / 35),
            samples: 40,
            rounds: 1,
            uncertainty: Span::ZERO,
        }),
        observed: None,
        since: None,
    };
    let processes = names.iter().enumerate().flat_map(|(cluster, name)| {
        (0..nodes).map(move |index| ProcessEntry {
            name: format!("{name}-{index}"),
            role: Role::RANK,
            cluster: ClusterId(cluster as u16),
        })
    });
    Manifest {
        format: FORMAT,
        tool: "0.1.0".into(),
        program: None,
        name: "quick-start".into(),
        backend: BackendKind::Local,
        seed: 7,
        federation: "apiVersion: faultline.dev/v1alpha1\nkind: Federation\nmetadata:\n  name: quick-start\n"
            .into(),
        protocol: "hc3i".into(),
        promises: Promises::of_scope(Scope::Cluster).with(&[Promise::Checkpoints, Promise::MaximalLine]),
        leaving: Vec::new(),
        clusters: names.iter().map(|name| ClusterEntry { name: (*name).into(), nodes }).collect(),
        processes: processes.collect(),
        bounds: Some(Bounds {
            checkpoint_every: vec![Some(CHECKPOINT_EVERY); 2],
            detect_after: Span::from_millis(500),
            collect_every: None,
            delivered_within: None,
        }),
        copies: None,
        volatile_storage: false,
        longest_task: None,
        drawn: Vec::new(),
        has_random_faults: false,
        effects: vec![],
        pressure: None,
        environment: Default::default(),
        spares: 0,
        at_once_within: Span::from_millis(50),
        events: None,
        expectations: Vec::new(),
        system: None,
        plan: vec![
            PlannedFault {
                no: FaultNo(0),
                trigger: Trigger::At(Time(2_350_000_000)),
                fault: Fault::crash(ProcessId(1)),
                reported: None,
                cause: None,
            },
            PlannedFault {
                no: FaultNo(1),
                trigger: Trigger::At(Time(5_200_000_000)),
                fault: Fault::kill(ClusterId(1), StorageFate::Lost),
                reported: None,
                cause: None,
            },
            PlannedFault {
                no: FaultNo(2),
                trigger: Trigger::At(Time(30_000_000_000)),
                fault: Fault::crash(ProcessId(0)),
                reported: None,
                cause: None,
            },
        ],
        faults: vec![
            (FaultNo(0), FaultState::Effective),
            (FaultNo(1), FaultState::Effective),
            (FaultNo(2), FaultState::Ineffective("the run had ended before it was due".into())),
        ],
        links: vec![link(0, 0, 80, 121), link(0, 1, 8000, 8094), link(1, 0, 5000, 5061), link(1, 1, 80, 117)],
        expected: Some(Expected {
            source: "the sequential reference".into(),
            digests: (0..2 * nodes).map(|it| (ProcessId(it), digest(ProcessId(it)))).collect(),
        }),
        outcome: Some(Outcome::Completed),
        waiting: Vec::new(),
        started_unix_ms: 1_763_622_000_000,
        duration: Span::from_millis(10_730),
        facts: Vec::new(),
    }
}

fn digest(process: ProcessId) -> Digest {
    Digest(process.0.wrapping_mul(0x9E37_79B9).to_be_bytes().repeat(4).try_into().unwrap())
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Step { cluster: usize, incarnation: u32 },
    Arrive { id: MessageId, position: Position },
    Checkpoint { cluster: usize, incarnation: u32 },
    Crash,
    LoseCluster,
    Recover { cluster: usize, to: u32, alert: Option<(GroupId, Position)> },
}

#[derive(Clone)]
struct Saved {
    sn: u32,
    incarnation: u32,
    step: u32,
    heard: Position,
    images: Vec<ImageName>,
    witnesses: Vec<Witness>,
    channels: Vec<BTreeMap<ProcessId, u32>>,
    log: usize,
}

#[derive(Clone, Default)]
struct Cluster {
    sn: u32,
    incarnation: u32,
    step: u32,
    /// The greatest position received from the other cluster.
    heard: Position,
    saved: Vec<Saved>,
    down: bool,
    channels: Vec<BTreeMap<ProcessId, u32>>,
    log: Vec<(MessageId, Position, Option<Position>)>,
}

struct World {
    nodes: u32,
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    posted: u64,
    clusters: Vec<Cluster>,
    lives: Vec<Life>,
    trace: Trace,
}

impl World {
    fn new(nodes: u32) -> Self {
        let cluster = Cluster { channels: vec![BTreeMap::new(); nodes as usize], ..Cluster::default() };
        World {
            nodes,
            now: Time(0),
            queue: BinaryHeap::new(),
            posted: 0,
            clusters: vec![cluster; 2],
            lives: vec![Life(1); 2 * nodes as usize],
            trace: Trace::default(),
        }
    }

    fn member(&self, cluster: usize, index: usize) -> ProcessId {
        ProcessId(cluster as u32 * self.nodes + index as u32)
    }

    fn cluster_of(&self, process: ProcessId) -> usize {
        (process.0 / self.nodes) as usize
    }

    fn state(&mut self, process: ProcessId, after: Span, fact: Fact) {
        let life = if process == ProcessId::SUPERVISOR { Life(0) } else { self.lives[process.index()] };
        let number = FactNo(self.trace.streams.get(&(process, life)).map_or(0, Vec::len) as u64);
        self.trace.record(Record { process, life, number, at: self.now + after, fact });
    }

    fn claim(&mut self, process: ProcessId, after: Span, claim: Claim) {
        self.state(process, after, Fact::Claim(Box::new(claim)));
    }

    fn supervise(&mut self, after: Span, fact: Fact) {
        self.state(ProcessId::SUPERVISOR, after, fact);
    }

    fn post(&mut self, after: Span, event: Event) {
        self.posted += 1;
        self.queue.push(Reverse((self.now + after, self.posted, event)));
    }

    fn play(&mut self) {
        for process in 0..2 * self.nodes {
            self.supervise(
                Span::from_millis(u64::from(process)),
                Fact::LifeStarted { process: ProcessId(process), life: Life(1), boot: Boot::Fresh },
            );
        }
        self.now = Time(300_000_000);
        for cluster in 0..2 {
            self.checkpoint(cluster, false);
        }
        self.now = ORIGIN;
        self.supervise(Span::ZERO, Fact::Begun);
        for cluster in 0..2 {
            self.post(Span::from_millis(3 * cluster as u64), Event::Step { cluster, incarnation: 0 });
            let first = CHECKPOINT_EVERY + Span::from_millis(220 * cluster as u64);
            self.post(first, Event::Checkpoint { cluster, incarnation: 0 });
        }
        self.post(Span::from_millis(2_350), Event::Crash);
        self.post(Span::from_millis(5_200), Event::LoseCluster);
        while let Some(Reverse((at, _, event))) = self.queue.pop() {
            self.now = at;
            self.happen(event);
        }
        for process in 0..2 * self.nodes {
            let process = ProcessId(process);
            self.state(process, Span::ZERO, Fact::Finished(Box::new((Witness::default(), digest(process)))));
        }
        self.supervise(Span::from_millis(20), Fact::Completed);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step { cluster, incarnation } => {
                let it = &self.clusters[cluster];
                if it.incarnation == incarnation && !it.down && it.step < STEPS {
                    self.step(cluster);
                    self.post(STEP, Event::Step { cluster, incarnation });
                }
            }
            Event::Arrive { id, position } => self.arrive(id, position),
            Event::Checkpoint { cluster, incarnation } => {
                let it = &self.clusters[cluster];
                if it.incarnation == incarnation && !it.down && it.step < STEPS {
                    self.checkpoint(cluster, false);
                    self.post(CHECKPOINT_EVERY, Event::Checkpoint { cluster, incarnation });
                }
            }
            Event::Crash => {
                let fault = Fault::crash(ProcessId(1));
                self.supervise(Span::ZERO, Fact::Injecting { no: FaultNo(0), fault: Box::new(fault) });
                self.fail(0, &[ProcessId(1)], StorageFate::Kept, FaultNo(0));
            }
            Event::LoseCluster => {
                let fault = Fault::kill(ClusterId(1), StorageFate::Lost);
                self.supervise(Span::ZERO, Fact::Injecting { no: FaultNo(1), fault: Box::new(fault) });
                let all: Vec<_> = (0..self.nodes as usize).map(|it| self.member(1, it)).collect();
                self.fail(1, &all, StorageFate::Lost, FaultNo(1));
            }
            Event::Recover { cluster, to, alert } => self.recover(cluster, to as usize, alert),
        }
    }

    fn step(&mut self, cluster: usize) {
        self.clusters[cluster].step += 1;
        let step = self.clusters[cluster].step;
        for index in 0..self.nodes as usize {
            let me = self.member(cluster, index);
            let next = self.member(cluster, (index + 1) % self.nodes as usize);
            self.send(me, next, Span::from_micros(30 + 400 * index as u64));
            let partner = self.member(1 - cluster, index);
            let every = if cluster == 0 { 3 } else { FEEDBACK_EVERY };
            if step.is_multiple_of(every) {
                self.send(me, partner, Span::from_micros(700 + 400 * index as u64));
            }
        }
    }

    fn send(&mut self, from: ProcessId, to: ProcessId, after: Span) {
        let cluster = self.cluster_of(from);
        let index = (from.0 % self.nodes) as usize;
        let it = &mut self.clusters[cluster];
        let number = it.channels[index].entry(to).or_default();
        let id = MessageId { from, to, incarnation: Incarnation(it.incarnation), number: *number };
        *number += 1;
        let position = Position::new(it.incarnation, it.sn);
        self.state(from, after, Fact::Sent { id, bytes: 8 });
        if self.cluster_of(to) != cluster {
            self.clusters[cluster].log.push((id, position, None));
        }
        self.transmit(id, position, after);
    }

    fn transmit(&mut self, id: MessageId, position: Position, after: Span) {
        self.state(id.from, after, Fact::Transmitted { id, position });
        let micros = match (self.cluster_of(id.from), self.cluster_of(id.to)) {
            (a, b) if a == b => 90,
            (0, _) => 8000,
            _ => 5000,
        };
        let jitter = id.mix() % 400;
        self.post(after + Span::from_micros(micros + jitter), Event::Arrive { id, position });
    }

    fn arrive(&mut self, id: MessageId, position: Position) {
        let (from, to) = (self.cluster_of(id.from), self.cluster_of(id.to));
        if self.clusters[to].down || self.clusters[from].down && from == to {
            return;
        }
        if from != to {
            let known = self.clusters[from].incarnation;
            let restored = self.clusters[from].saved.last().map_or(0, |it| it.sn);
            if id.incarnation.0 < known && position.sn.0 > restored && !self.survives(from, id) {
                return self.state(id.to, Span::ZERO, Fact::DroppedStale(id));
            }
            if position > self.clusters[to].heard {
                self.claim(id.to, Span::ZERO, Claim::Forcing { id });
                self.clusters[to].heard = position;
                self.checkpoint(to, true);
            }
            let at = Position::new(self.clusters[to].incarnation, self.clusters[to].sn);
            if let Some(entry) = self.clusters[from].log.iter_mut().find(|it| it.0 == id) {
                entry.2 = Some(at);
            }
            self.now += Span::from_millis(14);
            self.state(id.to, Span::ZERO, Fact::Delivered(id));
            self.now = Time(self.now.0 - 14_000_000);
            return;
        }
        if id.incarnation.0 == self.clusters[to].incarnation {
            self.state(id.to, Span::ZERO, Fact::Delivered(id));
        }
    }

    fn survives(&self, cluster: usize, id: MessageId) -> bool {
        self.clusters[cluster].log.iter().any(|it| it.0 == id)
    }

    fn checkpoint(&mut self, cluster: usize, forced: bool) {
        let it = &mut self.clusters[cluster];
        it.sn += 1;
        let position = Position::new(it.incarnation, it.sn);
        let mut saved = Saved {
            sn: it.sn,
            incarnation: it.incarnation,
            step: it.step,
            heard: it.heard,
            images: Vec::new(),
            witnesses: Vec::new(),
            channels: it.channels.clone(),
            log: it.log.len(),
        };
        let coordinator = self.member(cluster, 0);
        self.claim(
            coordinator,
            Span::ZERO,
            Claim::CheckpointRequested { position, attempt: Attempt(1), forced },
        );
        for index in 0..self.nodes as usize {
            let me = self.member(cluster, index);
            let name = ImageName {
                owner: me,
                incarnation: position.incarnation,
                sn: position.sn,
                attempt: Attempt(1),
            };
            let life = self.lives[me.index()];
            let upto = FactNo(self.trace.streams.get(&(me, life)).map_or(0, Vec::len) as u64);
            let witness = Witness { life, upto, sent: 0, delivered: 0 };
            saved.images.push(name);
            saved.witnesses.push(witness);
            self.state(me, Span::from_micros(300), Fact::Saved(Box::new((name, witness, 0))));
            self.state(me, Span::from_millis(9), Fact::Durable(name));
            let claim = Claim::Committed {
                position,
                attempt: Attempt(1),
                forced,
                frozen: Span::from_millis(9),
                vectors: Arc::new(Vectors::default()),
            };
            self.claim(me, Span::from_micros(12_000 + 150 * index as u64), claim);
        }
        self.clusters[cluster].saved.push(saved);
    }

    fn fail(&mut self, cluster: usize, who: &[ProcessId], storage: StorageFate, fault: FaultNo) {
        let by = EndedBy::Fault(fault);
        self.clusters[cluster].down = true;
        for &process in who {
            let life = self.lives[process.index()];
            self.supervise(Span::from_micros(40), Fact::Failed { process, life, storage, by });
            self.supervise(Span::from_millis(12), Fact::Detected { process, life });
            let next = life.next();
            let boot = if storage == StorageFate::Lost { Boot::Replaced } else { Boot::Restarted };
            self.supervise(Span::from_millis(212), Fact::LifeStarted { process, life: next, boot });
        }
        for &process in who {
            let next = self.lives[process.index()].next();
            self.lives[process.index()] = next;
        }
        for index in 0..self.nodes as usize {
            let me = self.member(cluster, index);
            let after = if who.contains(&me) { 215 } else { 13 };
            self.claim(me, Span::from_millis(after), Claim::RecoveryStarted { lives: 9, round: 0 });
        }
        let to = self.clusters[cluster].saved.len() as u32 - 1;
        let span = if storage == StorageFate::Lost { 690 } else { 265 };
        self.post(Span::from_millis(span), Event::Recover { cluster, to, alert: None });
    }

    fn recover(&mut self, cluster: usize, to: usize, alert: Option<(GroupId, Position)>) {
        let undone = Position::new(self.clusters[cluster].incarnation, self.clusters[cluster].sn);
        let incarnation = self.clusters[cluster].incarnation + 1;
        let it = &mut self.clusters[cluster];
        it.saved.truncate(to + 1);
        let saved = it.saved[to].clone();
        it.log.truncate(saved.log);
        it.sn = saved.sn;
        it.incarnation = incarnation;
        it.step = saved.step;
        it.heard = saved.heard;
        it.channels = saved.channels.clone();
        it.down = false;
        let restored = Position::new(incarnation, saved.sn);
        let cause = match alert {
            None => Cause::Failure,
            Some((from, position)) => Cause::Alert { from, position },
        };
        for index in 0..self.nodes as usize {
            let me = self.member(cluster, index);
            if let Some((from, position)) = alert {
                self.claim(me, Span::ZERO, Claim::Alerted { from, position });
                self.claim(me, Span::ZERO, Claim::RecoveryStarted { lives: 9, round: 0 });
            }
            let fact = (Some(saved.images[index]), Incarnation(incarnation), saved.witnesses[index]);
            self.state(me, Span::from_micros(2_000 + 200 * index as u64), Fact::Restored(Box::new(fact)));
            let claim = Claim::RolledBack {
                to: restored,
                checkpoint: Position::new(saved.incarnation, saved.sn),
                cause,
                vectors: Arc::new(Vectors::default()),
            };
            self.claim(me, Span::from_micros(5_000 + 200 * index as u64), claim);
        }
        // The other cluster is alerted, re-sends what is needed, and rolls back if necessary.
        let other = 1 - cluster;
        let from = GroupId(cluster as u16);
        let heard = self.clusters[other].heard;
        if heard.sn >= Sn(saved.sn) && heard <= undone && heard.incarnation < Incarnation(incarnation) {
            let to = self.clusters[other].saved.iter().position(|it| it.heard.sn >= Sn(saved.sn));
            if let Some(to) = to {
                self.clusters[other].down = true;
                self.post(
                    Span::from_millis(11),
                    Event::Recover { cluster: other, to: to as u32, alert: Some((from, restored)) },
                );
            }
        }
        let again: Vec<_> = self.clusters[other]
            .log
            .iter()
            .filter(|(_, _, ack)| ack.is_none_or(|it| it.sn >= Sn(saved.sn)))
            .map(|&(id, position, _)| (id, position))
            .collect();
        if !self.clusters[other].down {
            for (number, (id, position)) in again.into_iter().enumerate() {
                let after = Span::from_micros(12_000 + 300 * number as u64);
                self.claim(id.from, after, Claim::Resent { id });
                self.transmit(id, position, after);
            }
        }
        self.post(Span::from_millis(30), Event::Step { cluster, incarnation });
        self.post(CHECKPOINT_EVERY, Event::Checkpoint { cluster, incarnation });
    }
}
