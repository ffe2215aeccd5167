//! The membership as this protocol reads it: failures number everything (R1).
//!
//! The supervisor numbers lives durably and in the same order for all processes. A process that knows a membership
//! therefore knows how often each cluster has failed, which is the cluster's incarnation, and how many failures there
//! were in all, which numbers the recovery rounds. No agreement is needed, and no number is used twice.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{ClusterId, Incarnation, Member, Membership, ProcessId, Role, Scope};

use super::config::{Config, Defect};

/// A membership, with the numbers derived from it.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) membership: Arc<Membership>,
    scope: Scope,
    /// Failures of its members, by cluster.
    incarnations: Vec<Incarnation>,
    /// Number of the recovery round: failures of ranks and of the recovery process. 0 before the first.
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

    /// Returns how often `cluster` has failed.
    pub(super) fn incarnation(&self, cluster: ClusterId) -> Incarnation {
        self.incarnations[cluster.index()]
    }

    /// Returns the failures of all clusters, indexed by cluster.
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

    /// Returns whether `process` runs in a different life than under `old`.
    pub(super) fn began_new_life(&self, process: ProcessId, old: &View) -> bool {
        let (new, old) = (self.membership.member(process), old.membership.member(process));
        new.up && !(old.up && old.life == new.life)
    }
}

/// Returns how often a process has failed, as far as is known. A life that is down has ended.
fn deaths(member: &Member) -> u32 {
    (member.life.0 + u32::from(!member.up)).saturating_sub(1)
}
