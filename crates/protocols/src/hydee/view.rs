//! The membership as this protocol reads it: deaths number everything (R1).
//!
//! The supervisor numbers lives durably and in one order for everybody. So whoever knows a membership knows how often each
//! cluster has failed, which is the cluster's incarnation, and how often anybody has, which numbers the rounds of recovery;
//! nothing has to be agreed upon, and nothing can be used twice.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{ClusterId, Incarnation, Member, Membership, ProcessId, Role, Scope};

use super::config::{Config, Defect};

/// A membership with what follows from it.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) membership: Arc<Membership>,
    scope: Scope,
    /// By cluster: deaths of its members.
    incarnations: Vec<Incarnation>,
    /// Number of the round of recovery: deaths of ranks and of the recovery process. 0 before the first.
    pub(super) epoch: u64,
}

impl View {
    pub(super) fn new(config: &Config, membership: Arc<Membership>) -> View {
        let scope = config.scope;
        let mut incarnations = vec![Incarnation(0); scope.groups(&membership)];
        for rank in membership.with_role(Role::RANK) {
            incarnations[scope.group_of(&membership, rank).index()].0 += deaths(membership.member(rank));
        }
        let of_director: u32 = match config.defects.has(Defect::ReplacedWithoutRound) {
            true => 0,
            false => {
                membership.with_role(Role::RECOVERY_PROCESS).map(|it| deaths(membership.member(it))).sum()
            }
        };
        let of_ranks: u64 = incarnations.iter().map(|it| u64::from(it.0)).sum();
        let epoch = of_ranks + u64::from(of_director);
        View { membership, scope, incarnations, epoch }
    }

    /// How often `cluster` has failed.
    pub(super) fn incarnation(&self, cluster: ClusterId) -> Incarnation {
        self.incarnations[cluster.index()]
    }

    /// All of them.
    pub(super) fn incarnations(&self) -> &[Incarnation] {
        &self.incarnations
    }

    pub(super) fn cluster_of(&self, process: ProcessId) -> ClusterId {
        self.scope.group_of(&self.membership, process)
    }

    pub(super) fn members_of(&self, cluster: ClusterId) -> Arc<[ProcessId]> {
        self.scope.members(&self.membership, cluster)
    }

    pub(super) fn is_up(&self, process: ProcessId) -> bool {
        self.membership.member(process).up
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.membership.with_role(Role::RANK)
    }

    /// Whether `process` runs in another life than it did under `old`.
    pub(super) fn began_new_life(&self, process: ProcessId, old: &View) -> bool {
        let (new, old) = (self.membership.member(process), old.membership.member(process));
        new.up && !(old.up && old.life == new.life)
    }
}

/// How often a process has died, as far as is known: a life that is down is over.
fn deaths(member: &Member) -> u32 {
    (member.life.0 + u32::from(!member.up)).saturating_sub(1)
}
