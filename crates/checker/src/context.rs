//! What a checker has to know of a run that no fact states.

use std::collections::BTreeSet;

use faultline_core::fault::{FaultAccount, Outcome};
use faultline_core::{
    ClusterId, Digest, FactKind, MessageId, PlannedFault, ProcessId, Promise, Promises, Role, Scope, Span,
    Time,
};
use faultline_trace::manifest::{Backend, Bounds, Copies, EffectEntry, Keepers, LinkEntry, Manifest};

use crate::judgement::Property;

/// What a checker has to know of a run that no fact states. It is what the run's manifest says, and comes from nowhere
/// else: the same manifest is judged the same wherever it is judged.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Context {
    /// What the protocol promises.
    pub promises: Promises,
    /// The ranks of each cluster, ascending.
    pub clusters: Vec<Vec<ProcessId>>,
    /// What people call the processes; those that are missing are called by their number.
    pub process_names: Vec<String>,
    /// What people call the clusters; those that are missing are called by their number.
    pub cluster_names: Vec<String>,
    /// How many faults were planned.
    pub planned_faults: usize,
    /// The faults that were planned, with those that were added; empty when only their number is known.
    pub plan: Vec<PlannedFault>,
    /// What the record says became of each fault; `None` when it says nothing.
    pub faults: Option<Vec<FaultAccount>>,
    /// The driver measures every link before the application begins.
    pub measures_links: bool,
    /// How the run ended; `None` when it was cut short.
    pub outcome: Option<Outcome>,
    /// When it ended, by the supervisor's clock.
    pub end: Time,
    /// Results of the same federation without faults, when they are known.
    pub expected: Option<Vec<(ProcessId, Digest)>>,
    /// What bounds the work that a rollback may lose.
    pub bounds: Option<Bounds>,
    /// The copies of each part of a checkpoint that the federation asks for; `None` when that is not known.
    pub copies: Option<Copies>,
    /// The processes that are there to keep copies.
    pub servers: Vec<ProcessId>,
    /// Whether a node's storage dies with the node's process.
    pub volatile_storage: bool,
    /// Facts at which processes were halted until the supervisor let them go on, because a fault waited for them.
    pub halting: BTreeSet<FactKind>,
    /// When faults took effect; empty in virtual time.
    pub effects: Vec<EffectEntry>,
    /// Within this span, the deaths that one fault causes count as simultaneous.
    pub at_once_within: Span,
    /// Links as asked for and as measured.
    pub links: Vec<LinkEntry>,
    /// All processes read the same clock, so that times of different processes can be compared.
    pub common_clock: bool,
    /// A run that was ended by its deadline is judged as one that completed when no application message has moved for
    /// this long: by then every message that can arrive has arrived. Half the run in virtual time, and at least ten seconds;
    /// on real processes nobody knows what a busy machine holds up, and no such run is.
    pub settled_after: Option<Span>,
}

impl Context {
    /// A federation of clusters with these ranks that completed, to be adapted.
    #[cfg(test)]
    pub(crate) fn new(promises: Promises, clusters: Vec<Vec<ProcessId>>) -> Context {
        Context {
            promises,
            clusters,
            process_names: Vec::new(),
            cluster_names: Vec::new(),
            planned_faults: 0,
            plan: Vec::new(),
            faults: None,
            measures_links: false,
            outcome: Some(Outcome::Completed),
            end: Time::ZERO,
            expected: None,
            bounds: None,
            copies: None,
            servers: Vec::new(),
            volatile_storage: false,
            halting: BTreeSet::new(),
            effects: Vec::new(),
            at_once_within: Span::from_millis(50),
            links: Vec::new(),
            common_clock: false,
            settled_after: None,
        }
    }

    /// What the manifest of a run says, whether the run was recorded or not.
    pub fn from_manifest(manifest: &Manifest) -> Context {
        let mut clusters = vec![Vec::new(); manifest.clusters.len()];
        for (index, process) in manifest.processes.iter().enumerate() {
            if let Some(members) = clusters.get_mut(process.cluster.index()) {
                members.push(ProcessId(index as u32));
            }
        }
        Context {
            promises: manifest.promises,
            clusters,
            process_names: manifest.processes.iter().map(|it| it.name.clone()).collect(),
            cluster_names: manifest.clusters.iter().map(|it| it.name.clone()).collect(),
            planned_faults: manifest.plan.len(),
            plan: manifest.plan.clone(),
            faults: Some(manifest.faults.clone()),
            measures_links: manifest.backend != Backend::Simulate,
            outcome: manifest.outcome.clone(),
            end: Time::ZERO + manifest.duration,
            expected: manifest.expected.as_ref().map(|it| it.digests.clone()),
            bounds: manifest.bounds.clone(),
            copies: manifest.copies,
            servers: manifest.with_role(Role::STORAGE_SERVER).collect(),
            volatile_storage: manifest.volatile_storage,
            halting: manifest.plan.iter().filter_map(|it| it.trigger.fact()).collect(),
            effects: manifest.effects.clone(),
            at_once_within: manifest.at_once_within,
            links: manifest.links.clone(),
            common_clock: manifest.backend == Backend::Simulate,
            settled_after: (manifest.backend == Backend::Simulate)
                .then(|| Span(manifest.duration.0 / 2).max(Span::from_secs(10))),
        }
    }

    /// What people call `process`.
    pub fn process(&self, process: ProcessId) -> String {
        if process == ProcessId::SUPERVISOR {
            return "the supervisor".into();
        }
        self.process_names.get(process.index()).cloned().unwrap_or_else(|| process.to_string())
    }

    /// What people call `cluster`; `outside` is where processes are that belong to none.
    pub fn cluster(&self, cluster: ClusterId) -> String {
        if cluster == ClusterId::OUTSIDE {
            return "outside".into();
        }
        self.cluster_names.get(cluster.index()).cloned().unwrap_or_else(|| cluster.to_string())
    }

    /// What people call a message.
    pub fn message(&self, id: MessageId) -> String {
        let name = format!("message {} from {} to {}", id.number, self.process(id.from), self.process(id.to));
        match id.incarnation.0 {
            0 => name,
            incarnation => format!("{name} (of incarnation {incarnation})"),
        }
    }

    /// Whether a property is judged: every protocol owes it, or this one promises it.
    pub fn is_judged(&self, property: Property) -> bool {
        property.promise().is_none_or(|it| self.promises.include(it))
    }

    /// How many copies of a part of `owner` these processes can hold, by what the federation asks for. The owner's own does
    /// not count, and neither does that of a process that is not to keep any. `None` when nothing is known of copies.
    pub(crate) fn copies_at(
        &self,
        owner: ProcessId,
        holders: impl Iterator<Item = ProcessId>,
    ) -> Option<usize> {
        let cluster = |process: ProcessId| self.clusters.iter().position(|it| it.contains(&process));
        let own = cluster(owner);
        let holders = holders.filter(|&it| it != owner);
        // Equal places count once.
        let places: BTreeSet<usize> = match self.copies?.kept_by {
            Keepers::SameCluster => holders.filter(|&it| cluster(it) == own).map(ProcessId::index).collect(),
            Keepers::OtherCluster => holders.filter_map(cluster).filter(|&it| Some(it) != own).collect(),
            Keepers::SharedStorage => {
                holders.filter(|it| self.servers.contains(it)).map(ProcessId::index).collect()
            }
        };
        Some(places.len())
    }

    /// The processes that take checkpoints together.
    pub(crate) fn groups(&self) -> Vec<Vec<ProcessId>> {
        let mut all: Vec<ProcessId> = self.clusters.concat();
        all.sort_unstable();
        match self.promises.scope {
            Scope::Process => all.into_iter().map(|it| vec![it]).collect(),
            Scope::Cluster => self.clusters.clone(),
            Scope::Federation => vec![all],
        }
    }

    /// Whether a re-execution repeats the messages of the execution, so that one whose send was undone is not undone.
    pub(crate) fn repeats(&self) -> bool {
        self.promises.include(Promise::Repetition)
    }

    /// What people call a group.
    pub fn group(&self, group: usize) -> String {
        match self.promises.scope {
            Scope::Process => self.process(ProcessId(group as u32)),
            Scope::Cluster => self.cluster(ClusterId(group as u16)),
            Scope::Federation => "the federation".into(),
        }
    }
}
