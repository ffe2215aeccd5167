//! Rollback-recovery protocols for programs of tasks, as their places see them.
//!
//! A theft consists of four messages, its *legs*. The place offers each leg once the graph has it, the protocol passes it
//! when it may, and may pass it again. This gate, and what is done when a process fails, is all that protocols differ in.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::process::Gauges;
use faultline_core::{
    Birth, Image, ImageName, Machine, Membership, Presence, ProcessId, Promises, Role, Scope, Snapshot,
    Speaks, TaskId, Theft, Time,
};
use serde::{Deserialize, Serialize};

use crate::graph::GraphEvent;

/// One message of a theft. The task and the result have content, and are charged for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Leg {
    /// The thief asks the victim for a task.
    Ask,
    /// The victim sends a task.
    Task,
    /// The thief sends its result.
    Result,
    /// The victim says that it does not need the result again.
    Receipt,
}

/// A protocol for programs of tasks, one instance per process. It acts on its place through a [`Host`].
pub trait Recovery: Speaks {
    /// Parameters, equal for all processes.
    type Config: Clone + Debug;
    /// Whether it needs packets between two lives in the order of sending.
    const FIFO: bool;

    /// What it promises with these parameters. By default nothing, and that each process rolls back by itself.
    fn promises(_config: &Self::Config) -> Promises {
        Promises::of_scope(Scope::Process)
    }
    /// Processes it needs beside the ranks; they stand outside every cluster and run no tasks.
    fn extra_processes(config: &Self::Config) -> Vec<Role>;
    /// Whether it logs what changes the graph ([`Host::log`]).
    fn logs(_config: &Self::Config) -> bool {
        false
    }
    /// Begins a life. Nothing is run, lent or taken until [`Host::release`].
    fn start(birth: Birth<Self::Config>, now: Time, host: &mut dyn Host<Self>) -> Self;
    /// Handles one input.
    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut dyn Host<Self>);
    /// The theft under which another process, or this one, holds a finished result of `task`. Asked for before a task begins;
    /// such a task is not run but lent under that theft, and [`Input::Due`] says so for [`Leg::Task`].
    fn orphan(&self, _task: TaskId) -> Option<Theft> {
        None
    }
    /// When [`Input::Timeout`] is wanted.
    fn next_deadline(&self) -> Option<Time>;
    /// Values for a live view; the place fills in the progress.
    fn gauges(&self) -> Gauges;
    /// What a message of the protocol is called, where messages are counted by kind.
    fn control_kind(_message: &Self::Control) -> &'static str {
        "control"
    }
}

/// What happens to a protocol for programs of tasks.
#[derive(Clone, Debug)]
pub enum Input<P: Recovery> {
    /// As far as the graph is concerned this leg may go: [`Host::pass`] lets it.
    Due(Theft, Leg),
    /// A task arrived that this place does not ask for any more, or a result of what it has not lent.
    Unwanted(Theft, Leg),
    /// The graph has changed: [`Host::log`] returns how. Only for a protocol that [logs](Recovery::logs), once for all
    /// events since the log was last taken.
    Changed,
    /// A protocol message arrived.
    Control {
        /// Sender.
        from: ProcessId,
        /// Content.
        message: P::Control,
    },
    /// An image arrived.
    Image {
        /// Sender.
        from: ProcessId,
        /// The image.
        image: Arc<Image<P::Head, P::Saved>>,
    },
    /// An image is durable here.
    Persisted(ImageName),
    /// An image could not be written here.
    PersistFailed(ImageName),
    /// Answer to [`Machine::read`].
    Read {
        /// What was asked for.
        name: ImageName,
        /// It, when it is there and intact.
        image: Option<Arc<Image<P::Head, P::Saved>>>,
    },
    /// Answer to [`Machine::list`].
    Listed(Vec<(ImageName, Arc<P::Head>)>),
    /// A record is durable.
    Recorded {
        /// Which.
        version: u64,
    },
    /// The membership changed. The place has stopped asking processes that failed.
    Membership(Arc<Membership>),
    /// The deadline has passed, perhaps.
    Timeout,
}

/// The place as its protocol sees it.
pub trait Host<P: Recovery>: Machine<P> {
    /// Gives a leg to the network, for the first time or again; between two processes that this place both answers for the
    /// result is merged here. Does nothing when the graph has nothing for the leg.
    fn pass(&mut self, theft: Theft, leg: Leg);
    /// Sends the result of a theft to a process other than its victim: one that has the stolen task now, and has
    /// [lent](Recovery::orphan) it again under the same theft.
    fn pass_orphan(&mut self, theft: Theft, to: ProcessId);
    /// Whether a task is lent under this theft.
    fn is_lent(&self, theft: Theft) -> bool;
    /// Whether this place works for the theft, and if so, whether everything that it owes is there.
    fn debt(&self, theft: Theft) -> Option<bool>;
    /// The stolen task, if this place works for the theft.
    fn owed(&self, theft: Theft) -> Option<TaskId>;
    /// The theft that this place asks for.
    fn asking(&self) -> Option<Theft>;
    /// Stops asking; the place asks another one.
    fn stop_asking(&mut self);
    /// All thefts under which tasks are lent.
    fn loans(&self) -> Vec<Theft>;
    /// All thefts that this place works for, the program itself included, and whether everything that is owed is there.
    fn debts(&self) -> Vec<(Theft, bool)>;
    /// The task was lost with its thief: it may run here, or be lent again.
    fn void(&mut self, theft: Theft);
    /// What is owed is not wanted, nor what is still done for it.
    fn forget(&mut self, theft: Theft);
    /// The state now; tasks that execute count as not begun. A log that is taken afterwards begins here.
    fn snapshot(&mut self) -> Snapshot;
    /// A segment of the log: the events for which `is_logged` holds, since the last segment or [`snapshot`](Host::snapshot).
    /// Its witness is that of the state after them. `None` if there were no events at all.
    fn log(&mut self, is_logged: fn(&GraphEvent) -> bool) -> Option<Snapshot>;
    /// Replaces the graph by an image's, or by the initial one. Jobs that are out are void. Nothing is run, lent or taken
    /// until [`Host::release`].
    fn restore(&mut self, from: Option<&Image<P::Head, P::Saved>>);
    /// The same, followed by the events of these segments of the log, in this order. The state restored is named after the
    /// last segment.
    ///
    /// # Panics
    ///
    /// If the segments do not follow the image: a log with a hole cannot be replayed.
    fn restore_log(&mut self, from: &Image<P::Head, P::Saved>, log: &[Arc<Image<P::Head, P::Saved>>]);
    /// The graph of a process that is gone becomes part of this one's.
    fn absorb(&mut self, of: ProcessId, what: Estate<'_, P>);
    /// Whether this process answers for that one: itself, and those that it absorbed.
    fn is_mine(&self, process: ProcessId) -> bool;
    /// Whether the program itself is worked on here.
    fn has_root(&self) -> bool;
    /// Whether the program has ended, as far as this place knows.
    fn is_over(&self) -> bool;
    /// No job begins, no outcome is applied, nothing is lent or taken.
    fn hold(&mut self);
    /// Ends [`Host::hold`].
    fn release(&mut self);
}

/// What is left of a process that is gone.
#[derive(Clone, Copy, Debug)]
pub enum Estate<'a, P: Recovery> {
    /// Its newest image.
    Image(&'a Image<P::Head, P::Saved>),
    /// Its newest image, and the segments of its log that follow it.
    Log(&'a Image<P::Head, P::Saved>, &'a [Arc<Image<P::Head, P::Saved>>]),
    /// What it began with: it had never acted, or nothing that it did is kept. No task that is worked on here is owed to it.
    Beginning,
    /// Nothing: its images are lost.
    Nothing,
}

/// The process that answers for `process`: itself, or the next rank that is not gone. A function of the membership alone, so
/// that all agree, also when the next one is gone in turn. Ranks that are there from the beginning come first: a cluster that
/// joins later takes nothing over from a process that has absorbed it.
pub fn heir(membership: &Membership, process: ProcessId) -> ProcessId {
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

/// The process that begins with the program itself: the first rank that is there from the beginning.
pub fn root(membership: &Membership) -> ProcessId {
    let mut ranks = membership.with_role(Role::RANK);
    let is_there = |it: &ProcessId| membership.presence(membership.cluster_of(*it)) == Presence::Permanent;
    ranks.find(is_there).unwrap_or(ProcessId(0))
}
