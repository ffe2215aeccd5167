//! A federation in memory: ranks, channels, and an adversary that chooses the next event.
//!
//! Messages within a cluster keep their order on each channel; messages between clusters may overtake each
//! other.

#![allow(dead_code, reason = "each test file uses only part of the network")]

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_core::{
    Application, Chunk, Cluster, ClusterId, Digest, Incarnation, Job as _, Life, Member, Membership,
    MembershipVersion, NodeId, Outbox, Payload, ProcessId, Role,
};
use faultline_workloads::{Config, Job, Workload};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Identity of a message: its sender, its receiver and its number.
pub(crate) type Name = (ProcessId, ProcessId, u32);

/// An event of a rank.
#[derive(Clone, Debug)]
pub(crate) enum Happened {
    Delivered(ProcessId, Payload),
    Computed,
}

/// The effect of a defective protocol on an application, once per run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Defect {
    Drop(Name),
    Duplicate(Name),
    /// After the computation with this number, this rank alone is rolled back, to the state before the computation.
    RollBack(ProcessId, u64),
}

pub(crate) struct Network {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) defect: Option<Defect>,
    /// Result of [`Defect::RollBack`]: whether the rank had sent or received anything since that state.
    pub(crate) entangled: Option<bool>,
    /// Whether to replace a rank after each of its events with one restored from its snapshot.
    pub(crate) restore_always: bool,
    /// Number of messages sent on each channel.
    pub(crate) sent: BTreeMap<(ProcessId, ProcessId), u32>,
    /// Number of messages consumed on each channel.
    pub(crate) consumed: BTreeMap<(ProcessId, ProcessId), u32>,
    membership: Membership,
    config: Arc<Config>,
    in_transit: BTreeMap<(ProcessId, ProcessId), Vec<Payload>>,
    chance: ChaCha8Rng,
}

pub(crate) struct Rank {
    pub(crate) application: Workload,
    pub(crate) history: Vec<Happened>,
    job: Option<Job>,
    /// State at the start of the job.
    before: Moment,
    computations: u64,
    sent: usize,
}

#[derive(Clone, Default)]
struct Moment {
    state: Option<Arc<[Chunk]>>,
    happened: usize,
    sent: usize,
}

impl Network {
    /// Creates a federation in which cluster `i` has `clusters[i]` ranks. All random choices derive from `schedule`.
    pub(crate) fn new(config: &Config, clusters: &[usize], schedule: u64) -> Network {
        config.validate(clusters).expect("the test's configuration is valid");
        let config = Arc::new(config.clone());
        let membership = membership(clusters);
        let ranks = (0..membership.members.len() as u32)
            .map(|me| Rank {
                application: Workload::new(&config, ProcessId(me), &membership, seed(ProcessId(me))),
                history: Vec::new(),
                job: None,
                before: Moment::default(),
                computations: 0,
                sent: 0,
            })
            .collect();
        Network {
            ranks,
            defect: None,
            entangled: None,
            restore_always: false,
            sent: BTreeMap::new(),
            consumed: BTreeMap::new(),
            membership,
            config,
            in_transit: BTreeMap::new(),
            chance: ChaCha8Rng::seed_from_u64(schedule),
        }
    }

    /// Runs until no event is possible. Returns the results of the ranks; `None` if a rank has not finished.
    pub(crate) fn run(&mut self) -> Option<Vec<Digest>> {
        while self.step() {}
        self.results()
    }

    pub(crate) fn results(&self) -> Option<Vec<Digest>> {
        self.ranks.iter().map(|rank| rank.application.result()).collect()
    }

    /// Returns all messages that were sent.
    pub(crate) fn messages(&self) -> Vec<Name> {
        self.sent.iter().flat_map(|(&(from, to), &count)| (0..count).map(move |no| (from, to, no))).collect()
    }

    /// Performs one random event. Returns `false` if none is possible.
    pub(crate) fn step(&mut self) -> bool {
        self.ranks.iter_mut().for_each(Rank::start_job);
        let busy: Vec<usize> = (0..self.ranks.len()).filter(|&at| self.ranks[at].job.is_some()).collect();
        let channels: Vec<_> = self.in_transit.keys().copied().collect();
        if busy.is_empty() && channels.is_empty() {
            return false;
        }
        let choice = self.chance.random_range(0..busy.len() + channels.len());
        match busy.get(choice) {
            Some(&at) => self.compute(at),
            None => self.deliver(channels[choice - busy.len()]),
        }
        true
    }

    fn compute(&mut self, at: usize) {
        let me = ProcessId(at as u32);
        let rank = &mut self.ranks[at];
        let job = rank.job.take().expect("the rank is busy");
        let mut out = Outbox::default();
        rank.application.computed(job.run(), &mut out);
        rank.history.push(Happened::Computed);
        rank.computations += 1;
        let roll_back = self.defect == Some(Defect::RollBack(me, rank.computations));
        self.send(me, out);
        if roll_back {
            self.defect = None;
            self.entangled = Some(self.ranks[at].roll_back());
        }
        self.restore(at);
    }

    fn deliver(&mut self, channel: (ProcessId, ProcessId)) {
        let (from, to) = channel;
        let waiting = self.in_transit.get_mut(&channel).expect("the channel has messages");
        let fifo = self.membership.cluster_of(from) == self.membership.cluster_of(to);
        let at = if fifo { 0 } else { self.chance.random_range(0..waiting.len()) };
        let payload = waiting.remove(at);
        if waiting.is_empty() {
            self.in_transit.remove(&channel);
        }
        let rank = &mut self.ranks[to.index()];
        let mut out = Outbox::default();
        rank.application.deliver(from, payload.clone(), &mut out);
        rank.history.push(Happened::Delivered(from, payload));
        self.send(to, out);
        self.restore(to.index());
    }

    fn send(&mut self, from: ProcessId, out: Outbox) {
        self.ranks[from.index()].sent += out.sends.len();
        for (_, sender, number) in out.consumed {
            let next = self.consumed.entry((sender, from)).or_default();
            *next += u32::from(number == *next);
        }
        for (to, payload) in out.sends {
            let sent = self.sent.entry((from, to)).or_default();
            let name = (from, to, *sent);
            *sent += 1;
            let copies = match self.defect {
                Some(Defect::Drop(it)) if it == name => 0,
                Some(Defect::Duplicate(it)) if it == name => 2,
                _ => 1,
            };
            for _ in 0..copies {
                self.in_transit.entry((from, to)).or_default().push(payload.clone());
            }
        }
    }

    /// Replaces a rank with one restored from its snapshot, if the test requires it. A job in progress is
    /// discarded.
    fn restore(&mut self, at: usize) {
        if self.restore_always {
            let me = ProcessId(at as u32);
            let rank = &mut self.ranks[at];
            let state =
                rank.application.snapshot().expect("every application provides a snapshot immediately");
            rank.application = Workload::new(&self.config, me, &self.membership, seed(me));
            rank.application.restore(Some(&stored(&state)), Incarnation(0));
            rank.job = None;
        }
    }
}

impl Rank {
    fn start_job(&mut self) {
        if self.job.is_none() {
            self.before =
                Moment { state: self.application.snapshot(), happened: self.history.len(), sent: self.sent };
            self.job = self.application.next_job();
        }
    }

    /// Restores the state at the start of the last job. Returns whether the rank had sent or received anything since.
    fn roll_back(&mut self) -> bool {
        let before = self.before.clone();
        self.application.restore(before.state.as_deref(), Incarnation(0));
        self.history.len() > before.happened + 1 || self.sent > before.sent
    }
}

/// Returns the seed of a rank.
pub(crate) fn seed(me: ProcessId) -> u64 {
    1000 + u64::from(me.0)
}

/// Creates the membership of a federation in which cluster `i` has `clusters[i]` ranks.
pub(crate) fn membership(clusters: &[usize]) -> Membership {
    let mut members = Vec::new();
    let clusters = clusters.iter().enumerate().map(|(at, &size)| {
        let first = members.len() as u32;
        let processes: Vec<_> = (first..first + size as u32).map(ProcessId).collect();
        members.extend(processes.iter().map(|process| Member {
            cluster: ClusterId(at as u16),
            role: Role::RANK,
            node: NodeId(process.0),
            life: Life(1),
            up: true,
            started: false,
            gone: false,
            idle_lives: 0,
        }));
        Cluster::new(processes.into())
    });
    let clusters = clusters.collect();
    Membership { version: MembershipVersion(1), members: members.into(), clusters }
}

/// Returns the chunks as storage would: the same bytes at another address.
pub(crate) fn stored(chunks: &[Chunk]) -> Vec<Chunk> {
    let copy = |chunk: &Chunk| match chunk {
        Chunk::Virtual(len) => Chunk::Virtual(*len),
        Chunk::Bytes(bytes) => Chunk::Bytes(bytes.to_vec().into()),
    };
    chunks.iter().map(copy).collect()
}
