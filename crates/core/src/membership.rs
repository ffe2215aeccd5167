//! Membership: which process runs where, and in which life. The supervisor publishes the same view to all processes.

use alloc::sync::Arc;
use serde::{Deserialize, Serialize};

use crate::fact::FactKinds;
use crate::id::{ClusterId, GroupId, Life, MembershipVersion, NodeId, ProcessId, Role};

/// The supervisor's entry for one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The process's cluster, or [`ClusterId::OUTSIDE`].
    pub cluster: ClusterId,
    /// The purpose of the process.
    pub role: Role,
    /// The node on which the process runs.
    pub node: NodeId,
    /// The newest life; 0 before the first.
    pub life: Life,
    /// Whether that life is running. `false` from the detection of a failure until the next life has registered.
    pub up: bool,
    /// Whether the supervisor has durably recorded that this process, and the processes on whose behalf it
    /// asked, may act (see [`crate::process::Action::Started`]). After a failure before that point, they
    /// start from their initial state.
    pub started: bool,
    /// Whether the process will never start another life. Set when its failure is detected, or, if it had
    /// already failed, when the fault that makes the failure permanent is injected.
    pub gone: bool,
    /// Number of lives that ended before the process's cluster joined. None of them acted, so these ends are not
    /// failures. 0 for a process that is present from the start.
    pub idle_lives: u32,
}

impl Member {
    /// Returns how many lives of the process could act, including the newest. If there is more than one, the process
    /// has failed at least once.
    pub fn lives(&self) -> u32 {
        self.life.0.saturating_sub(self.idle_lives)
    }
}

/// The supervisor's entry for one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Processes of the cluster, ascending.
    pub processes: Arc<[ProcessId]>,
    /// Whether the cluster takes part in the federation at present.
    pub presence: Presence,
}

impl Cluster {
    /// Creates a cluster that is present from the start to the end of the run.
    pub fn new(processes: Arc<[ProcessId]>) -> Cluster {
        Cluster { processes, presence: Presence::Permanent }
    }
}

/// Presence of a cluster in the federation. The variants are ordered: a cluster's presence only ever increases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Presence {
    /// Present from the start to the end of the run.
    #[default]
    Permanent,
    /// Will join later. None of its processes has started yet.
    Awaited,
    /// Currently present: the cluster has joined, will leave, or both.
    Present,
    /// Present, but about to leave: its processes run until other processes have taken over their work.
    Leaving,
    /// Has left. None of its processes starts again, and their storage has been released.
    Left,
}

impl Presence {
    /// Returns whether the cluster is part of the federation at present.
    pub fn is_present(self) -> bool {
        matches!(self, Presence::Permanent | Presence::Present | Presence::Leaving)
    }
}

/// A versioned view of the federation. Immutable and shared: a new version is a new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Version of this view. Greater versions are newer.
    pub version: MembershipVersion,
    /// One entry per process, indexed by [`ProcessId`].
    pub members: Arc<[Member]>,
    /// One entry per cluster, indexed by [`ClusterId`].
    pub clusters: Arc<[Cluster]>,
}

impl Membership {
    /// Returns the entry of `process`.
    ///
    /// # Panics
    ///
    /// Panics if there is no such process.
    pub fn member(&self, process: ProcessId) -> &Member {
        &self.members[process.index()]
    }

    /// Returns the cluster of `process`, or [`ClusterId::OUTSIDE`] if it belongs to none.
    pub fn cluster_of(&self, process: ProcessId) -> ClusterId {
        self.member(process).cluster
    }

    /// Returns whether the cluster of `process` is present. A process outside all clusters always is.
    pub fn is_present(&self, process: ProcessId) -> bool {
        self.presence(self.cluster_of(process)).is_present()
    }

    /// Returns whether work and replicas may be given to `process`: it may have failed, but will return, and its
    /// cluster is present and not about to leave.
    pub fn is_staying(&self, process: ProcessId) -> bool {
        let presence = self.presence(self.cluster_of(process));
        !self.member(process).gone && presence.is_present() && presence != Presence::Leaving
    }

    /// Returns whether `process` takes no part in the federation at present: it has failed permanently, or its cluster
    /// has not joined yet or has left.
    pub fn is_absent(&self, process: ProcessId) -> bool {
        self.member(process).gone || !self.is_present(process)
    }

    /// Returns the presence of `cluster`. [`ClusterId::OUTSIDE`] is permanent.
    pub fn presence(&self, cluster: ClusterId) -> Presence {
        self.clusters.get(cluster.index()).map_or(Presence::Permanent, |it| it.presence)
    }

    /// Returns the processes of `cluster`, ascending.
    pub fn processes_of(&self, cluster: ClusterId) -> &Arc<[ProcessId]> {
        &self.clusters[cluster.index()].processes
    }

    /// Iterates over all processes with `role`, ascending.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = ProcessId> + '_ {
        self.members
            .iter()
            .enumerate()
            .filter(move |(_, member)| member.role == role)
            .map(|(index, _)| ProcessId(index as u32))
    }
}

/// Which ranks form a *group*: the unit that takes checkpoints and rolls back as a whole. Groups are numbered from 0,
/// in the order of the ranks or clusters that they consist of. Processes outside all clusters belong to no group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// Each rank is a group.
    Process,
    /// The ranks of each cluster form a group.
    #[default]
    Cluster,
    /// All ranks form one group.
    Federation,
}

impl Scope {
    /// Returns the group of a process, or [`GroupId::OUTSIDE`] if it belongs to none. Assumes that ranks are numbered
    /// before all other processes.
    ///
    /// # Panics
    ///
    /// Panics if there are more ranks than a [`GroupId`] can number.
    #[inline]
    pub fn group_of(self, membership: &Membership, process: ProcessId) -> GroupId {
        match self {
            Scope::Cluster => GroupId(membership.cluster_of(process).0),
            _ if membership.member(process).role != Role::RANK => GroupId::OUTSIDE,
            Scope::Process => GroupId(u16::try_from(process.0).expect("ranks fit a `GroupId`")),
            Scope::Federation => GroupId(0),
        }
    }

    /// Returns the number of groups.
    pub fn groups(self, membership: &Membership) -> usize {
        match self {
            Scope::Process => membership.with_role(Role::RANK).count(),
            Scope::Cluster => membership.clusters.len(),
            Scope::Federation => 1,
        }
    }

    /// Returns the members of a group, ascending.
    pub fn members(self, membership: &Membership, group: GroupId) -> Arc<[ProcessId]> {
        match self {
            Scope::Process => Arc::from([ProcessId(group.0.into())]),
            Scope::Cluster => membership.processes_of(ClusterId(group.0)).clone(),
            Scope::Federation => membership.with_role(Role::RANK).collect(),
        }
    }
}

/// How a life begins. The supervisor decides this from the number of the life and from its knowledge of the storage,
/// never from an empty disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Boot {
    /// The first life, or one that begins before the process's cluster has joined: no earlier life has stored anything.
    Fresh,
    /// The storage of the previous life is intact.
    Restarted,
    /// The storage was lost. Also applies to further lives until the process has reported
    /// [`crate::process::Action::Held`].
    Replaced,
}

/// Information that the driver gives a process when a life begins.
#[derive(Clone, Debug)]
pub struct LifeStart<C> {
    /// Identity of the process.
    pub me: ProcessId,
    /// Number of the new life.
    pub life: Life,
    /// How the life begins.
    pub boot: Boot,
    /// The current membership, in which `me` is up.
    pub membership: Arc<Membership>,
    /// Configuration, the same for all processes.
    pub config: Arc<C>,
    /// The last durable [`crate::process::Action::Record`]; `None` if there is none or the storage was lost.
    pub record: Option<Arc<[u8]>>,
    /// Seed of the process's own random choices.
    pub seed: u64,
    /// The kinds of facts that the driver accepts. The process numbers the other facts as well, but need not report
    /// them.
    pub facts: FactKinds,
}
