//! The interface between processes and rollback-recovery protocols for task-based programs.
//!
//! A theft consists of four messages, called *legs* ([`Leg`]). When a leg is ready to be sent, the process announces it
//! to the protocol ([`TaskInput::Due`]). The protocol decides when to send it, and may send it again. Protocols differ
//! only in these decisions and in how they handle failures.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::process::Gauges;
use faultline_core::{
    Image, LifeStart, Machine, Membership, Presence, ProcessId, Promises, ProtocolTypes, Role, Scope,
    Snapshot, TaskId, Theft, Time,
};
use serde::{Deserialize, Serialize};

use crate::graph::GraphEvent;
use crate::storage::StorageInput;

/// One message of a theft. [`Leg::Task`] and [`Leg::Result`] carry content, which counts towards their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Leg {
    /// The thief asks the victim for a task.
    Ask,
    /// The victim sends a task.
    Task,
    /// The thief sends its result.
    Result,
    /// The victim states that it no longer needs the result.
    Receipt,
}

/// A protocol for task-based programs, one instance per process. It acts on its process through a [`TaskHost`].
pub trait TaskProtocol: ProtocolTypes {
    /// Parameters, which are the same for all processes.
    type Config: Clone + Debug;
    /// Whether the protocol requires that packets between two lives arrive in the order in which they were sent.
    const FIFO: bool;

    /// Returns the protocol's promises with these parameters. By default, it promises nothing beyond the guarantees of
    /// every protocol, and each process rolls back alone.
    fn promises(_config: &Self::Config) -> Promises {
        Promises::of_scope(Scope::Process)
    }
    /// Returns the roles of the processes that the protocol needs besides the ranks. These processes belong
    /// to no cluster and run no tasks.
    fn extra_processes(config: &Self::Config) -> Vec<Role>;
    /// Returns whether the protocol logs changes to the graph ([`TaskHost::log`]).
    fn logs(_config: &Self::Config) -> bool {
        false
    }
    /// Starts a life. Nothing is run, lent or taken until [`TaskHost::release`].
    fn start(start: LifeStart<Self::Config>, now: Time, host: &mut dyn TaskHost<Self>) -> Self;
    /// Handles one input.
    fn handle(&mut self, input: TaskInput<Self>, now: Time, host: &mut dyn TaskHost<Self>);
    /// Returns the theft under which this process or another one works on `task` or has its result. The process calls
    /// this before it starts a task. If there is such a theft, the process lends the task under it instead of running
    /// the task, and [`TaskInput::Due`] announces this with [`Leg::Task`].
    fn orphan(&self, _task: TaskId) -> Option<Theft> {
        None
    }
    /// Returns the time at which the protocol next requires [`TaskInput::Timeout`]; `None` if it requires none.
    fn next_deadline(&self) -> Option<Time>;
    /// Returns values for a live view, except for the progress, which the process adds.
    fn gauges(&self) -> Gauges;
    /// Returns the name under which a protocol message is counted.
    fn control_kind(_message: &Self::Control) -> &'static str {
        "control"
    }
}

/// An input to a protocol for task-based programs.
#[derive(Clone, Debug)]
pub enum TaskInput<P: TaskProtocol> {
    /// This message of the theft is ready to be sent. The protocol sends it with [`TaskHost::pass`].
    Due(Theft, Leg),
    /// A task arrived that this process no longer requests, or a result of a task that it has not lent. The last field
    /// is the sender.
    Unwanted(Theft, Leg, ProcessId),
    /// The graph has changed; [`TaskHost::log`] returns the changes. Sent only to a protocol that
    /// [logs](TaskProtocol::logs). One such input covers all events since the last segment of the log.
    Changed,
    /// A protocol message arrived.
    Control {
        /// The process that sent the message.
        from: ProcessId,
        /// The protocol's message.
        message: P::Control,
    },
    /// An image arrived, or an operation of the storage has ended.
    Storage(StorageInput<P>),
    /// The membership changed. The process has cancelled its requests to processes that failed.
    Membership(Arc<Membership>),
    /// The protocol's deadline has passed.
    Timeout,
}

/// The process as its protocol sees it.
pub trait TaskHost<P: TaskProtocol>: Machine<P> {
    /// Sends a message of a theft, for the first time or again. If this process answers for both the thief
    /// and the victim, it merges the result immediately. Does nothing if this process has no such message to send.
    fn pass(&mut self, theft: Theft, leg: Leg);
    /// Sends the result of a theft to a process other than its victim: the process that now has the stolen
    /// task and has [lent](TaskProtocol::orphan) it again under the same theft.
    fn pass_orphan(&mut self, theft: Theft, to: ProcessId);
    /// Returns whether a task is lent under this theft.
    fn is_lent(&self, theft: Theft) -> bool;
    /// Returns whether the result of the theft is complete; `None` if this process does not work on the
    /// stolen task.
    fn debt(&self, theft: Theft) -> Option<bool>;
    /// Returns whether this process has run the stolen task itself, or is running it. Otherwise the task waits, or was
    /// lent in turn.
    fn has_begun(&self, theft: Theft) -> bool;
    /// Returns the task that was stolen in this theft, if this process works on it.
    fn owed(&self, theft: Theft) -> Option<TaskId>;
    /// Returns the theft that this process has requested.
    fn asking(&self) -> Option<Theft>;
    /// Cancels the request; the process sends a new one, to any victim.
    fn stop_asking(&mut self);
    /// Returns all thefts under which tasks are lent.
    fn loans(&self) -> Vec<Theft>;
    /// Returns all thefts whose tasks this process works on, and [`Theft::NONE`] if it works on the program
    /// itself. The flag of each indicates whether its result is complete.
    fn debts(&self) -> Vec<(Theft, bool)>;
    /// Takes back a task that was lost with its thief: it may run here, or be lent again.
    fn void(&mut self, theft: Theft);
    /// Drops a result that is no longer wanted, together with the work in progress for it.
    fn forget(&mut self, theft: Theft);
    /// Returns the current state. Tasks that are running count as not started. The next segment of the log begins at
    /// this state.
    fn snapshot(&mut self) -> Snapshot;
    /// Returns a segment of the log: of the events since the last segment or [`snapshot`](TaskHost::snapshot), those
    /// for which `is_logged` holds. The segment carries the witness of the state after these events. Returns `None` if
    /// there were no events at all.
    fn log(&mut self, is_logged: fn(&GraphEvent) -> bool) -> Option<Snapshot>;
    /// Replaces the graph with an image's graph, or with the initial one, and cancels running jobs. Nothing
    /// is run, lent or taken until [`TaskHost::release`].
    fn restore(&mut self, from: Option<&Image<P::Head, P::Saved>>);
    /// Replaces the graph like [`restore`](TaskHost::restore), and then applies the events of these segments of the
    /// log, in this order. The restored state has the name of the last segment. A log with a gap cannot be replayed
    /// completely: the first event that is impossible in the graph and all events after it are left out, and the
    /// checker detects that the state differs.
    fn restore_log(&mut self, from: &Image<P::Head, P::Saved>, log: &[Arc<Image<P::Head, P::Saved>>]);
    /// Absorbs the graph of a permanently failed process.
    fn absorb(&mut self, of: ProcessId, what: LastState<'_, P>);
    /// Returns whether this process answers for `process`, because `process` is this process or was absorbed
    /// by it.
    fn is_mine(&self, process: ProcessId) -> bool;
    /// Returns whether this process works on the program itself.
    fn has_root(&self) -> bool;
    /// Returns whether this process knows that the program has ended.
    fn is_over(&self) -> bool;
    /// Holds the process: no job starts, no outcome is applied, nothing is lent or taken.
    fn hold(&mut self);
    /// Ends [`TaskHost::hold`].
    fn release(&mut self);
}

/// The remaining state of a permanently failed process.
#[derive(Clone, Copy, Debug)]
pub enum LastState<'a, P: TaskProtocol> {
    /// The process's newest image.
    Image(&'a Image<P::Head, P::Saved>),
    /// The process's newest image, and the segments of its log that follow the image.
    Log(&'a Image<P::Head, P::Saved>, &'a [Arc<Image<P::Head, P::Saved>>]),
    /// The initial state: the failed process never acted, or none of its state was kept. It has lent no tasks, and
    /// results owed to it are kept.
    Beginning,
    /// All images of the process are lost.
    Nothing,
}

/// Returns the process that answers for `process`: itself, or the next rank that has not failed permanently. The result
/// depends on the membership alone, so all processes agree, even if the next rank fails permanently in turn. Ranks that
/// exist from the beginning take precedence: a rank whose cluster joins later never takes over from a process that has
/// already absorbed the failed one.
pub fn successor(membership: &Membership, process: ProcessId) -> ProcessId {
    let all = membership.members.len() as u32;
    let ring = || (0..all).map(|step| ProcessId((process.0 + step) % all));
    let stays = |it: &ProcessId| {
        let member = membership.member(*it);
        member.role == Role::RANK && !member.gone && membership.is_present(*it)
    };
    let is_permanent =
        |it: &ProcessId| membership.presence(membership.cluster_of(*it)) == Presence::Permanent;
    if stays(&process) {
        return process;
    }
    ring().filter(stays).find(is_permanent).or_else(|| ring().find(stays)).unwrap_or(process)
}

/// Returns the process that starts the program: the first rank that exists from the beginning.
pub fn root(membership: &Membership) -> ProcessId {
    let mut ranks = membership.with_role(Role::RANK);
    let is_there = |it: &ProcessId| membership.presence(membership.cluster_of(*it)) == Presence::Permanent;
    ranks.find(is_there).unwrap_or(ProcessId(0))
}

#[cfg(test)]
mod tests {
    use faultline_core::{Cluster, ClusterId, Life, Member, MembershipVersion, NodeId};

    use super::*;

    #[test]
    fn a_process_whose_cluster_has_not_joined_is_no_successor() {
        let presences = [Presence::Permanent, Presence::Awaited, Presence::Present];
        let member = |index: u16| Member {
            cluster: ClusterId(index),
            role: Role::RANK,
            node: NodeId(index.into()),
            life: Life(1),
            up: index == 2,
            started: true,
            gone: index == 0,
            idle_lives: 0,
        };
        let cluster = |(index, presence)| Cluster { presence, ..Cluster::new([ProcessId(index)].into()) };
        let membership = Membership {
            version: MembershipVersion(1),
            members: (0..3).map(member).collect(),
            clusters: (0..).zip(presences).map(cluster).collect(),
        };
        assert_eq!(successor(&membership, ProcessId(0)), ProcessId(2));
    }
}
