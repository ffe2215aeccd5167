//! Information about a run beyond its facts.

use std::collections::BTreeSet;

use faultline_core::fault::{FaultAccount, Outcome};
use faultline_core::{
    ClusterId, Digest, FactKind, FactKinds, FaultNo, GroupId, MessageId, PlannedFault, ProcessId, Promise,
    Promises, Role, Scope, Span, TaskId, Time,
};
use faultline_trace::RunNames;
use faultline_trace::expectation::{Expectation, SystemEntry};
use faultline_trace::manifest::{
    BackendKind, Bounds, Copies, EffectEntry, LinkEntry, Manifest, Pressure, ReplicaHolders,
};

/// Information about a run beyond its facts. It comes only from the run's manifest, so runs with equal
/// manifests are interpreted and judged in the same way everywhere.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Context {
    /// The protocol's promises.
    pub promises: Promises,
    /// The ranks of each cluster, ascending.
    pub clusters: Vec<Vec<ProcessId>>,
    /// The clusters that the federation lets leave before the end.
    pub leaving: Vec<ClusterId>,
    /// The display names of processes, clusters and groups.
    pub names: RunNames,
    /// The number of planned faults.
    pub planned_faults: usize,
    /// The planned faults, including those added during the run. Empty if only their number is known.
    pub plan: Vec<PlannedFault>,
    /// The planned faults that need not occur, because their times were drawn or taken from a failure trace.
    pub drawn: BTreeSet<FaultNo>,
    /// Whether the federation has random faults, of which the seed may draw none before the end.
    pub has_random_faults: bool,
    /// The outcome of each fault according to the record; `None` if the record does not state the outcomes.
    pub faults: Option<Vec<FaultAccount>>,
    /// Whether the driver measures every link before the application begins.
    pub measures_links: bool,
    /// Whether the processes ran in pods.
    pub in_pods: bool,
    /// How the run ended; `None` if it was cut short.
    pub outcome: Option<Outcome>,
    /// The end of the run, by the supervisor's clock.
    pub end: Time,
    /// The ranks whose application waited for a message when the deadline was exceeded; empty if unknown.
    pub waiting: Vec<ProcessId>,
    /// Results of the same federation without faults, if they are known; empty if the application is a program that
    /// computed other results when they were computed again.
    pub expected: Option<Vec<(ProcessId, Digest)>>,
    /// What the federation expects of the run.
    pub expectations: Vec<Expectation>,
    /// The user's own system; `None` for all other applications.
    pub system: Option<SystemEntry>,
    /// The bounds on the work that a rollback may lose.
    pub bounds: Option<Bounds>,
    /// The replicas that the federation requests for each part of a checkpoint; `None` if unknown.
    pub copies: Option<Copies>,
    /// The processes that only store replicas.
    pub servers: Vec<ProcessId>,
    /// Whether a node's storage is lost when the node's process fails.
    pub volatile_storage: bool,
    /// The kinds of facts at which processes halt until the supervisor releases them, because a planned fault waits
    /// for such a fact.
    pub halting: BTreeSet<FactKind>,
    /// The times at which faults took effect; empty in virtual time.
    pub effects: Vec<EffectEntry>,
    /// How busy the processors of this machine were; `None` if this is unknown, as on other backends.
    pub pressure: Option<Pressure>,
    /// The number of spare nodes.
    pub spares: u32,
    /// The time within which the failures caused by one fault count as simultaneous.
    pub at_once_within: Span,
    /// Links as requested and as measured.
    pub links: Vec<LinkEntry>,
    /// Whether all processes read the same clock. Times of different processes can be compared only if they do.
    pub common_clock: bool,
    /// How long a run that exceeded its deadline must have been quiet before its end to be judged as if it had
    /// completed: no application message was sent or delivered, no task ran or was stolen, no state was restored, and
    /// no fault was in effect. By then, every message that can arrive has arrived, unless the links need longer for
    /// everything in transit ([`crate::History::transit_time`]). In virtual time, the value is half the duration of the run,
    /// but at least ten seconds more than the longest task takes. On real processes it is `None`, because a busy machine
    /// can delay messages indefinitely.
    pub settled_after: Option<Span>,
    /// An upper bound on the time that one task takes; zero if it is unknown, or if processes run no tasks.
    pub longest_task: Span,
    /// The kinds of facts that the run contains whenever they happened: all of them, unless the run was imported.
    pub recorded: FactKinds,
    /// For an imported run, the number of lines that are not facts; `None` for all other runs.
    pub unmatched: Option<u64>,
}

impl Context {
    /// Derives the context from the manifest of a run, whether or not the run was recorded.
    pub fn from_manifest(manifest: &Manifest) -> Context {
        let mut clusters = vec![Vec::new(); manifest.clusters.len()];
        for (index, process) in manifest.processes.iter().enumerate() {
            if let Some(members) = clusters.get_mut(process.cluster.index()) {
                members.push(ProcessId(index as u32));
            }
        }
        let slowest = manifest.plan.iter().filter_map(|it| it.fault.slows()).max().unwrap_or(100);
        let longest_task = manifest.longest_task.unwrap_or_default().percent(slowest);
        Context {
            promises: manifest.promises,
            clusters,
            leaving: manifest.leaving.clone(),
            names: manifest.names(),
            planned_faults: manifest.plan.len(),
            plan: manifest.plan.clone(),
            drawn: manifest.drawn.iter().copied().collect(),
            has_random_faults: manifest.has_random_faults,
            faults: Some(manifest.faults.clone()),
            measures_links: matches!(manifest.backend, BackendKind::Local | BackendKind::Kubernetes),
            in_pods: manifest.backend == BackendKind::Kubernetes,
            outcome: manifest.outcome.clone(),
            end: Time::ZERO + manifest.duration,
            waiting: manifest.waiting.clone(),
            expected: manifest.expected.as_ref().map(|it| it.digests.clone()),
            expectations: manifest.expectations.clone(),
            system: manifest.system.clone(),
            bounds: manifest.bounds.clone(),
            copies: manifest.copies,
            servers: manifest.with_role(Role::STORAGE_SERVER).collect(),
            volatile_storage: manifest.volatile_storage,
            halting: manifest.plan.iter().filter_map(|it| it.trigger.fact()).collect(),
            effects: manifest.effects.clone(),
            pressure: manifest.pressure.clone(),
            spares: manifest.spares,
            at_once_within: manifest.at_once_within,
            links: manifest.links.clone(),
            common_clock: manifest.backend == BackendKind::Simulate,
            settled_after: (manifest.backend == BackendKind::Simulate)
                .then(|| Span(manifest.duration.0 / 2).max(Span::from_secs(10) + longest_task)),
            longest_task,
            recorded: match manifest.events.as_ref().and_then(|it| it.records.as_ref()) {
                Some(kinds) => kinds.iter().copied().collect(),
                // Faultline sees neither the messages nor the states of a system's programs.
                None if manifest.system.is_some() => {
                    let of = |kinds: &[FactKind]| kinds.iter().copied().collect();
                    FactKinds::ALL.except(of(&FactKind::OF_PROCESSES)).union(of(&FactKind::OF_SYSTEMS))
                }
                None => FactKinds::ALL,
            },
            unmatched: manifest.events.as_ref().map(|it| it.unmatched),
        }
    }

    /// Returns whether the supervisor's facts are derived from those of the processes. They then do not show whether a
    /// process that failed was to return.
    pub fn derives_supervision(&self) -> bool {
        !self.recorded.contains(FactKind::LifeStarted)
    }

    /// Returns whether the driver measures the link from one cluster to another, or inside one: whether it measures
    /// links, and the link connects two processes.
    pub fn measures_link(&self, from: ClusterId, to: ClusterId) -> bool {
        let size = |cluster: ClusterId| self.clusters.get(cluster.index()).map_or(0, Vec::len);
        let connects_two = if from == to { size(from) > 1 } else { size(from).min(size(to)) > 0 };
        self.measures_links && connects_two
    }

    /// Returns the display name of `process` for a sentence.
    pub fn process(&self, process: ProcessId) -> String {
        self.names.process_in_sentence(process)
    }

    /// Returns the display name of `cluster`. Processes outside all clusters belong to `outside`.
    pub fn cluster(&self, cluster: ClusterId) -> String {
        self.names.cluster(cluster)
    }

    /// Returns the display name of a message for a sentence.
    pub fn message(&self, id: MessageId) -> String {
        self.names.message_in_sentence(id)
    }

    /// Returns how many of the requested replicas of a part of `owner` exist if `holders` have copies of it. Ignores
    /// the owner's own copy and copies at processes that are not meant to hold any. Returns `None` if the requested
    /// replicas are unknown.
    pub fn copies_at(&self, owner: ProcessId, holders: impl Iterator<Item = ProcessId>) -> Option<usize> {
        let cluster = |process: ProcessId| self.clusters.iter().position(|it| it.contains(&process));
        let own = cluster(owner);
        let holders = holders.filter(|&it| it != owner);
        // If replicas belong in other clusters, processes of one cluster count once.
        let places: BTreeSet<usize> = match self.copies?.kept_by {
            ReplicaHolders::SameCluster => {
                holders.filter(|&it| cluster(it) == own).map(ProcessId::index).collect()
            }
            ReplicaHolders::OtherCluster => {
                holders.filter_map(cluster).filter(|&it| Some(it) != own).collect()
            }
            ReplicaHolders::SharedStorage => {
                holders.filter(|it| self.servers.contains(it)).map(ProcessId::index).collect()
            }
        };
        Some(places.len())
    }

    /// Returns the members of each group, by group.
    pub fn groups(&self) -> Vec<Vec<ProcessId>> {
        let mut all: Vec<ProcessId> = self.clusters.concat();
        all.sort_unstable();
        match self.promises.scope {
            Scope::Process => all.into_iter().map(|it| vec![it]).collect(),
            Scope::Cluster => self.clusters.clone(),
            Scope::Federation => vec![all],
        }
    }

    /// Returns whether a re-execution repeats the messages of the original execution. A message whose send was undone
    /// then remains valid.
    pub fn repeats(&self) -> bool {
        self.promises.include(Promise::Repetition)
    }

    /// Returns the display name of a task.
    pub fn task(&self, task: TaskId) -> String {
        self.names.task(task)
    }

    /// Returns the display name of a group.
    pub fn group(&self, group: GroupId) -> String {
        self.names.group_of(self.promises.scope, group)
    }
}
