//! Who is where, in which life. Published by the supervisor, the same for everyone.

use alloc::sync::Arc;
use serde::{Deserialize, Serialize};

use crate::fact::FactKinds;
use crate::id::{ClusterId, Life, MembershipVersion, NodeId, ProcessId, Role};

/// One process as the supervisor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The cluster, or [`ClusterId::OUTSIDE`].
    pub cluster: ClusterId,
    /// What the process is for.
    pub role: Role,
    /// Where it runs.
    pub node: NodeId,
    /// Its newest life; 0 before the first.
    pub life: Life,
    /// Whether that life is running. False from the detection of a failure until the next life has registered.
    pub up: bool,
    /// Whether the supervisor has durably recorded that those for whom this process asked were allowed to act
    /// (see [`crate::process::Action::Started`]). A failure before that starts again from the configuration.
    pub started: bool,
    /// Whether it never lives again. True from the detection of its failure on, or, where it had failed already, from the
    /// fault that says so.
    pub gone: bool,
}

/// One cluster as the supervisor sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its processes, ascending.
    pub processes: Arc<[ProcessId]>,
    /// Whether it is there.
    pub presence: Presence,
}

impl Cluster {
    /// A cluster that is there from the beginning to the end.
    pub fn new(processes: Arc<[ProcessId]>) -> Cluster {
        Cluster { processes, presence: Presence::Permanent }
    }
}

/// Whether a cluster is there. Ordered: none ever goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Presence {
    /// From the beginning to the end.
    #[default]
    Permanent,
    /// It joins later: nobody of it lives yet.
    Awaited,
    /// It has joined, or will leave, or both.
    Present,
    /// It has left: none of its processes lives again, and its storage is gone.
    Left,
}

impl Presence {
    /// Whether it has joined and not left.
    pub fn is_there(self) -> bool {
        matches!(self, Presence::Permanent | Presence::Present)
    }
}

/// A versioned view of the federation. Shared: a new version is a new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Greater is newer.
    pub version: MembershipVersion,
    /// Indexed by [`ProcessId`].
    pub members: Arc<[Member]>,
    /// Indexed by [`ClusterId`].
    pub clusters: Arc<[Cluster]>,
}

impl Membership {
    /// The entry of `process`. Panics when there is no such process.
    pub fn member(&self, process: ProcessId) -> &Member {
        &self.members[process.index()]
    }

    /// The cluster of `process`, [`ClusterId::OUTSIDE`] for one that stands in none.
    pub fn cluster_of(&self, process: ProcessId) -> ClusterId {
        self.member(process).cluster
    }

    /// Whether the cluster of `process` is there; what stands outside every cluster always is.
    pub fn is_present(&self, process: ProcessId) -> bool {
        self.presence(self.cluster_of(process)).is_there()
    }

    /// Whether `cluster` is there; [`ClusterId::OUTSIDE`] always is.
    pub fn presence(&self, cluster: ClusterId) -> Presence {
        self.clusters.get(cluster.index()).map_or(Presence::Permanent, |it| it.presence)
    }

    /// The processes of `cluster`, ascending.
    pub fn processes_of(&self, cluster: ClusterId) -> &Arc<[ProcessId]> {
        &self.clusters[cluster.index()].processes
    }

    /// Every process of `role`, ascending.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = ProcessId> + '_ {
        self.members
            .iter()
            .enumerate()
            .filter(move |(_, member)| member.role == role)
            .map(|(index, _)| ProcessId(index as u32))
    }
}

/// Which ranks take checkpoints together, and go back together: a *group*. Groups are numbered like clusters; the processes
/// outside every cluster stand in no group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// Each rank by itself.
    Process,
    /// The ranks of a cluster.
    #[default]
    Cluster,
    /// All ranks.
    Federation,
}

impl Scope {
    /// The group of a process: [`ClusterId::OUTSIDE`] for one that stands in none. Ranks come before all others.
    #[inline]
    pub fn group_of(self, membership: &Membership, process: ProcessId) -> ClusterId {
        match self {
            Scope::Cluster => membership.cluster_of(process),
            _ if membership.member(process).role != Role::RANK => ClusterId::OUTSIDE,
            Scope::Process => ClusterId(u16::try_from(process.0).expect("a federation has fewer ranks")),
            Scope::Federation => ClusterId(0),
        }
    }

    /// How many groups there are.
    pub fn groups(self, membership: &Membership) -> usize {
        match self {
            Scope::Process => membership.with_role(Role::RANK).count(),
            Scope::Cluster => membership.clusters.len(),
            Scope::Federation => 1,
        }
    }

    /// The members of a group, ascending.
    pub fn members(self, membership: &Membership, group: ClusterId) -> Arc<[ProcessId]> {
        match self {
            Scope::Process => Arc::from([ProcessId(group.0.into())]),
            Scope::Cluster => membership.processes_of(group).clone(),
            Scope::Federation => membership.with_role(Role::RANK).collect(),
        }
    }
}

/// How a life begins, decided by the supervisor from the life number and what it knows of the storage; never by
/// finding an empty disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Boot {
    /// The first life.
    Fresh,
    /// The storage of the previous life was kept.
    Restarted,
    /// The storage was lost. Sticky until the process has reported [`crate::process::Action::Held`].
    Replaced,
}

/// What a process is told at its start.
#[derive(Clone, Debug)]
pub struct Birth<C> {
    /// Its identity.
    pub me: ProcessId,
    /// This life.
    pub life: Life,
    /// How the life begins.
    pub boot: Boot,
    /// The membership as of now; `me` is up in it.
    pub membership: Arc<Membership>,
    /// The configuration, equal for all processes.
    pub config: Arc<C>,
    /// The last durable [`crate::process::Action::Record`], unless the storage was lost.
    pub record: Option<Arc<[u8]>>,
    /// Seed of this process's own random choices.
    pub seed: u64,
    /// The kinds of fact that somebody takes. A process counts the others, and need not state them.
    pub facts: FactKinds,
}
