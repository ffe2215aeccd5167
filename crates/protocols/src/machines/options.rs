//! Parameters that several protocols share.

use alloc::sync::Arc;

use faultline_core::{LifeStart, Membership, Promise, Promises, Role, Scope, Span, Time};

use super::Schedule;
use super::group::{self, Rules, View};
use crate::placement::Placement;

/// Parameters of a protocol that takes checkpoints of the whole federation. All processes have the same
/// values. `D` is the set of enabled defects.
#[derive(Clone, Debug)]
pub struct Options<D> {
    /// Delay between checkpoints; `None` for an infinite delay.
    pub checkpoint_every: Option<Span>,
    /// Delay after which the next checkpoint removes all older ones; `None` keeps all checkpoints.
    pub collect_every: Option<Span>,
    /// Placement of the replicas of each part of a checkpoint.
    pub placement: Placement,
    /// Delay before a failed write is repeated.
    pub retry_every: Span,
    /// Enabled defects, for tests.
    pub defects: D,
}

impl<D> Options<D> {
    /// Returns the roles of the processes that are needed in addition to the ranks.
    pub(crate) fn extra_processes(&self) -> alloc::vec::Vec<Role> {
        self.placement.server().into_iter().collect()
    }

    /// Returns the parameters of the group that consists of the whole federation. `C` is the configuration of the
    /// protocol, of which these options are a part.
    pub(crate) fn membership<C>(&self, start: &LifeStart<C>, rules: Rules) -> group::GroupParameters {
        group::GroupParameters {
            me: start.me,
            boot: start.boot,
            view: view(start.membership.clone()),
            placement: self.placement,
            rules,
        }
    }

    /// Returns the timers of a coordinator that begins its life now.
    pub(crate) fn schedule(&self, now: Time) -> Schedule {
        Schedule::new(self.checkpoint_every, self.collect_every, now)
    }
}

/// Parameters of a protocol that logs the messages between groups. All processes have the same values. `D` is
/// the set of enabled defects.
#[derive(Clone, Debug)]
pub struct LoggingOptions<D> {
    /// Delay between checkpoints of a group, one entry per cluster of the federation; `None` for an infinite
    /// delay.
    pub checkpoint_every: Arc<[Option<Span>]>,
    /// Placement of the replicas of each part of a checkpoint.
    pub placement: Placement,
    /// Total payload of the logged messages in memory, in bytes, above which a process moves the oldest of them to
    /// stable storage (HydEE's R15); `None` keeps the whole log in memory.
    pub log_memory: Option<u64>,
    /// Delay before a failed write is repeated.
    pub retry_every: Span,
    /// Enabled defects, for tests.
    pub defects: D,
}

/// Returns the view of a membership for a protocol that rolls back the whole federation.
fn view(membership: Arc<Membership>) -> View {
    View::new(Scope::Federation, None, membership)
}

/// Returns the promises of a protocol that takes checkpoints of the whole federation, and restores the newest one.
pub(crate) fn promises() -> Promises {
    Promises::of_scope(Scope::Federation).with(&[
        Promise::Checkpoints,
        Promise::DenseNumbering,
        Promise::MaximalLine,
        Promise::DurableRestore,
        Promise::Refill,
        Promise::Progress,
    ])
}
