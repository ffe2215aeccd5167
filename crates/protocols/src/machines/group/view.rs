//! The membership as seen by protocols that derive their numbers from failures.
//!
//! The supervisor assigns durable numbers to lives, and all processes learn these numbers in the same order. A process
//! that knows a membership therefore knows how many failures the members of each group have had, which is the group's
//! incarnation, and how many failures have occurred in total. No agreement is needed, and no number is used twice.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{GroupId, Incarnation, Member, Membership, ProcessId, Role, Scope};

/// A membership, with the numbers derived from it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) membership: Arc<Membership>,
    scope: Scope,
    /// The role, outside the groups, whose failures the epoch counts.
    counted: Option<Role>,
    /// Number of failures of each group's members, indexed by group.
    incarnations: Vec<Incarnation>,
    /// Number of failures of ranks and of processes of the counted role.
    pub(crate) epoch: u64,
}

impl View {
    /// Derives the numbers from a membership. The epoch also counts failures of `counted`, a role outside the groups.
    pub(crate) fn new(scope: Scope, counted: Option<Role>, membership: Arc<Membership>) -> View {
        let mut incarnations = vec![Incarnation(0); scope.groups(&membership)];
        for rank in membership.with_role(Role::RANK) {
            incarnations[scope.group_of(&membership, rank).place()].0 += failures(membership.member(rank));
        }
        let of_ranks: u64 = incarnations.iter().map(|it| u64::from(it.0)).sum();
        let others = counted.into_iter().flat_map(|role| membership.with_role(role));
        let of_others: u64 = others.map(|it| u64::from(failures(membership.member(it)))).sum();
        View { membership, scope, counted, incarnations, epoch: of_ranks + of_others }
    }

    /// Derives the numbers from a later membership.
    pub(crate) fn after(&self, membership: Arc<Membership>) -> View {
        View::new(self.scope, self.counted, membership)
    }

    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the number of failures of the members of `group`.
    pub(crate) fn incarnation(&self, group: GroupId) -> Incarnation {
        self.incarnations[group.place()]
    }

    /// Returns the number of failures of each group's members, indexed by group.
    pub(crate) fn incarnations(&self) -> &[Incarnation] {
        &self.incarnations
    }

    pub(crate) fn group_of(&self, process: ProcessId) -> GroupId {
        self.scope.group_of(&self.membership, process)
    }

    pub(crate) fn members_of(&self, group: GroupId) -> Arc<[ProcessId]> {
        self.scope.members(&self.membership, group)
    }

    pub(crate) fn is_up(&self, process: ProcessId) -> bool {
        self.membership.member(process).up
    }

    pub(crate) fn ranks(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.membership.with_role(Role::RANK)
    }

    /// Returns whether `process` is up, in a life that it had not begun in `old`.
    pub(crate) fn began_new_life(&self, process: ProcessId, old: &View) -> bool {
        let (new, old) = (self.membership.member(process), old.membership.member(process));
        new.up && !(old.up && old.life == new.life)
    }
}

/// Returns how often a process has failed, as far as the membership shows. If the process is down, counts the
/// end of its current life, too.
fn failures(member: &Member) -> u32 {
    (member.life.0 + u32::from(!member.up)).saturating_sub(1)
}
