//! Random faults of a federation.

use faultline_api::quantity::{Bandwidth, Duration};
use faultline_api::resource::{
    ANY, BadStorage, ClusterSpec, Crash, Fate, FaultSpec, LinkChange, LoseCluster, Partition, Pause,
    SlowStorage, When,
};
use faultline_core::{FactKind, Span};

use crate::chance::{Chance, short};

/// The kinds of fault that a scenario may contain. Each scenario omits some of them (swarm testing).
pub(super) struct Faults<'a> {
    clusters: &'a [ClusterSpec],
    /// Names of the processes outside every cluster.
    outside: Vec<String>,
    length: Span,
    /// The approximate time from a failure to the next life.
    outage: Span,
    kinds: Vec<Kind>,
    /// Facts that faults may wait for.
    moments: Vec<FactKind>,
    /// The percentage of crashed processes that never return. If it is 0, nothing is drawn.
    never_return: u64,
    storage_lost: bool,
    by_fact: bool,
    in_bursts: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Crash,
    /// The crash of a process outside the clusters.
    CrashOutside,
    Pause,
    LoseCluster,
    Partition,
    Link,
    Storage,
}

/// Facts that a fault may wait for. When they are reported, a protocol is in the middle of an operation.
const MOMENTS: &[FactKind] = &[
    FactKind::CheckpointRequested,
    FactKind::CheckpointRequested,
    FactKind::CheckpointCommitted,
    FactKind::Saved,
    FactKind::Durable,
    FactKind::RecoveryStarted,
    FactKind::RecoveryStarted,
    FactKind::Restored,
    FactKind::Restored,
    FactKind::RolledBack,
    FactKind::RolledBack,
    FactKind::Alerted,
    FactKind::Forcing,
    FactKind::Resent,
    FactKind::Collected,
    FactKind::Delivered,
    FactKind::Orphaned,
];

/// Facts for task-based programs: every step of a theft, and of a recovery.
const MOMENTS_OF_TASKS: &[FactKind] = &[
    FactKind::Ran,
    FactKind::Lent,
    FactKind::Lent,
    FactKind::Shipped,
    FactKind::Shipped,
    FactKind::Taken,
    FactKind::Taken,
    FactKind::Done,
    FactKind::Done,
    FactKind::Returned,
    FactKind::Returned,
    FactKind::Merged,
    FactKind::Merged,
    FactKind::Receipted,
    FactKind::Receipted,
    FactKind::Forgotten,
    FactKind::Saved,
    FactKind::Durable,
    FactKind::CheckpointCommitted,
    FactKind::Restored,
    FactKind::RolledBack,
    FactKind::Absorbed,
    FactKind::Voided,
    FactKind::Finished,
];

/// Facts about checkpoints. Under a protocol that takes no checkpoints, they are never reported.
pub(super) const OF_CHECKPOINTS: &[FactKind] =
    &[FactKind::Saved, FactKind::Durable, FactKind::CheckpointCommitted];

/// Facts for tasks that are assigned in advance: every step of a checkpoint, and of a recovery.
const MOMENTS_OF_PLANS: &[FactKind] = &[
    FactKind::Ran,
    FactKind::Transmitted,
    FactKind::Delivered,
    FactKind::CheckpointRequested,
    FactKind::CheckpointMessage,
    FactKind::CheckpointMessage,
    FactKind::Saved,
    FactKind::Saved,
    FactKind::Durable,
    FactKind::CheckpointCommitted,
    FactKind::CheckpointAborted,
    FactKind::RecoveryStarted,
    FactKind::RecoveryJoined,
    FactKind::RecoveryJoined,
    FactKind::Drained,
    FactKind::Rerun,
    FactKind::Rerun,
    FactKind::Restored,
    FactKind::RolledBack,
    FactKind::Absorbed,
    FactKind::Finished,
];

impl<'a> Faults<'a> {
    /// Returns the same kinds of fault, changed to wait for facts about tasks that are assigned in advance.
    pub(super) fn of_plans(self) -> Faults<'a> {
        Faults { moments: MOMENTS_OF_PLANS.to_vec(), ..self }
    }

    /// Returns the same kinds of fault, none of which waits for a fact about checkpoints.
    pub(super) fn without_checkpoints(mut self) -> Faults<'a> {
        self.moments.retain(|it| !OF_CHECKPOINTS.contains(it));
        self
    }

    /// Draws the kinds of fault for a task-based program. `never_return` is the percentage of crashed processes that
    /// never return.
    pub(super) fn of_tasks(
        chance: &mut Chance,
        clusters: &'a [ClusterSpec],
        outside: Vec<String>,
        length: Span,
        outage: Span,
        never_return: u64,
    ) -> Faults<'a> {
        let faults = Faults::new(chance, clusters, outside, length, outage);
        Faults { moments: MOMENTS_OF_TASKS.to_vec(), never_return, ..faults }
    }

    pub(super) fn new(
        chance: &mut Chance,
        clusters: &'a [ClusterSpec],
        outside: Vec<String>,
        length: Span,
        outage: Span,
    ) -> Faults<'a> {
        let mut kinds = Vec::new();
        for (kind, percent) in [
            (Kind::Crash, 90),
            (Kind::Crash, 60),
            (Kind::CrashOutside, 30),
            (Kind::Pause, 30),
            (Kind::LoseCluster, 35),
            (Kind::Partition, 35),
            (Kind::Link, 20),
            (Kind::Storage, 30),
        ] {
            let is_possible = match kind {
                Kind::Partition => clusters.len() > 1,
                Kind::CrashOutside => !outside.is_empty(),
                _ => true,
            };
            if chance.percent(percent) && is_possible {
                kinds.push(kind);
            }
        }
        if kinds.is_empty() {
            kinds.push(Kind::Crash);
        }
        let (storage_lost, by_fact, in_bursts) = (chance.percent(50), chance.percent(60), chance.percent(50));
        Faults {
            clusters,
            outside,
            length,
            outage,
            kinds,
            moments: MOMENTS.to_vec(),
            never_return: 0,
            storage_lost,
            by_fact,
            in_bursts,
        }
    }

    pub(super) fn list(&self, chance: &mut Chance) -> Vec<FaultSpec> {
        let count = if chance.percent(4) { 0 } else { chance.pick(&[1, 2, 2, 3, 3, 4, 4, 5, 6, 6]) };
        let mut last = None;
        (0..count)
            .map(|number| {
                // Most scenarios contain a crash in addition to other faults.
                let kind =
                    if number == 0 && chance.percent(90) { Kind::Crash } else { chance.pick(&self.kinds) };
                let fault = self.fault(kind, chance);
                // A fault in a burst strikes while the system recovers from the previous one.
                let soon = last.filter(|_| self.in_bursts && chance.percent(60));
                let at = match soon {
                    Some(before) => before + Span(chance.between(0, self.outage.0 * 3 / 2)),
                    None => Span(chance.between(self.length.0 / 20, self.length.0)),
                };
                let when =
                    (soon.is_none() && self.by_fact && chance.percent(60)).then(|| self.moment(chance));
                last = when.is_none().then_some(at);
                FaultSpec { at: when.is_none().then(|| Duration(short(at))), when, ..fault }
            })
            .collect()
    }

    /// If there are faults, but none at a fixed time while the application computes, adds a crash at such a time. The
    /// other faults may come too late or wait for a fact that is never reported, and a run without an effective fault
    /// shows nothing.
    pub(super) fn with_one_at_a_time(
        &self,
        chance: &mut Chance,
        mut faults: Vec<FaultSpec>,
    ) -> Vec<FaultSpec> {
        let starts_in_time = |it: &FaultSpec| it.at.is_some_and(|it| it.0 <= self.length);
        if !faults.is_empty() && !faults.iter().any(starts_in_time) {
            let at = Some(Duration(short(Span(chance.between(self.length.0 / 20, self.length.0)))));
            faults.push(FaultSpec { at, ..self.fault(Kind::Crash, chance) });
        }
        faults
    }

    fn moment(&self, chance: &mut Chance) -> When {
        let cluster = if chance.percent(50) { self.cluster(chance) } else { ANY.to_owned() };
        let fact = chance.pick(&self.moments);
        let often = matches!(
            fact,
            FactKind::Delivered
                | FactKind::Saved
                | FactKind::Durable
                | FactKind::Forcing
                | FactKind::Ran
                | FactKind::Transmitted
                | FactKind::CheckpointMessage
                | FactKind::Drained
        );
        let occurrence = Some(chance.between(1, if often { 60 } else { 8 }) as u32);
        When { fact, of: None, cluster, node: None, occurrence }
    }

    fn cluster(&self, chance: &mut Chance) -> String {
        chance.pick(self.clusters).name
    }

    fn other(&self, chance: &mut Chance, than: &str) -> String {
        let others: Vec<&ClusterSpec> = self.clusters.iter().filter(|it| it.name != than).collect();
        chance.pick(&others).name.clone()
    }

    /// Draws a cluster and one of its nodes. All nodes of the federation are equally likely.
    fn node(&self, chance: &mut Chance) -> (String, Option<u32>) {
        let all = self.clusters.iter().flat_map(|it| (0..it.nodes).map(|node| (it.name.clone(), Some(node))));
        chance.pick(&all.collect::<Vec<_>>())
    }

    fn fate(&self, chance: &mut Chance) -> Option<Fate> {
        (self.storage_lost && chance.percent(50)).then_some(Fate::Lost)
    }

    /// Draws whether a crashed process returns; `None` means that it does.
    fn returns(&self, chance: &mut Chance) -> Option<bool> {
        (self.never_return > 0 && chance.percent(self.never_return)).then_some(false)
    }

    /// Draws the effect of a fault. The caller draws its time.
    fn fault(&self, kind: Kind, chance: &mut Chance) -> FaultSpec {
        match kind {
            Kind::Crash => {
                let (cluster, node) = self.node(chance);
                let (storage, returns) = (self.fate(chance), self.returns(chance));
                Crash { storage, returns, ..Crash::new(cluster, node) }.into()
            }
            Kind::CrashOutside => {
                let process = chance.pick(&self.outside);
                Crash { storage: self.fate(chance), ..Crash::of_process(process) }.into()
            }
            Kind::Pause => {
                let (cluster, node) = self.node(chance);
                let span = Some(Duration(short(Span(chance.between(self.outage.0 / 8, self.outage.0 * 2)))));
                let pause = Some(Pause { process: None, reported: None, cluster, node, span });
                FaultSpec { pause, ..FaultSpec::default() }
            }
            Kind::LoseCluster => {
                let (cluster, storage) = (self.cluster(chance), self.fate(chance));
                let returns = self.returns(chance);
                LoseCluster { storage, returns, ..LoseCluster::new(cluster) }.into()
            }
            Kind::Partition => {
                let from = self.cluster(chance);
                let to = self.other(chance, &from);
                let (one_way, span) = (chance.percent(50), Some(brief(chance)));
                let partition = Partition { one_way, ..Partition::between(from, to, span) };
                FaultSpec { partition: Some(partition), ..FaultSpec::default() }
            }
            Kind::Link => {
                let (from, to) = (self.cluster(chance), self.cluster(chance));
                let change = LinkChange {
                    from,
                    to,
                    preset: None,
                    latency: Some(chance.duration(Span::from_micros(50), Span::from_millis(200))),
                    jitter: Some(Duration(Span::ZERO)),
                    bandwidth: Some(Bandwidth::UNLIMITED),
                    loss: None,
                    span: Some(brief(chance)),
                };
                FaultSpec { link: Some(change), ..FaultSpec::default() }
            }
            Kind::Storage => self.of_storage(chance),
        }
    }

    fn of_storage(&self, chance: &mut Chance) -> FaultSpec {
        let (cluster, node) = self.node(chance);
        let span = Some(brief(chance));
        let mut fault = FaultSpec::default();
        match chance.between(0, 2) {
            0 => {
                let by = brief(chance);
                fault.slow_storage = Some(SlowStorage { process: None, cluster, node, by, span });
            }
            1 => fault.full_storage = Some(BadStorage { process: None, cluster, node, span }),
            _ => fault.corrupt_storage = Some(BadStorage { process: None, cluster, node, span }),
        }
        fault
    }
}

/// Draws the duration of a disturbance.
fn brief(chance: &mut Chance) -> Duration {
    chance.duration(Span::from_millis(1), Span::from_millis(500))
}
