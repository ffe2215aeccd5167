//! What happened in a run, by the clocks of its processes: checkpoints, failures, rollbacks with what they undid, and the
//! path of every message. A view of the run's [`History`] for people. Reports without judging: the checker decides
//! whether it was correct.
//!
//! Facts of different processes are related by identity (of a message, a checkpoint, an incarnation), never
//! by time; times are only for display.

mod build;

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_core::fault::Change;
use faultline_core::{
    Cause, ClusterId, EndedBy, Fault, FaultNo, ImageName, Incarnation, Life, MessageId, Position, ProcessId,
    Sn, Span, StorageFate, Theft, Time,
};
use faultline_history::recoveries::Recovery;
use faultline_history::{Context, History};
use faultline_history::{GroupId, lost};
use faultline_trace::{Manifest, Trace};

use crate::cast::Cast;

/// What happened in a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// When the application started: instants are shown relative to this.
    pub origin: Time,
    /// When the last fact was stated.
    pub end: Time,
    /// Every committed checkpoint, by group and position.
    pub checkpoints: BTreeMap<(GroupId, Position), Checkpoint>,
    /// Ends of lives, in the supervisor's order.
    pub failures: Vec<Failure>,
    /// Injected faults, in the order of injection.
    pub injections: Vec<Injection>,
    /// Changes that the user made during the run, in order.
    pub changes: Vec<(Time, Change)>,
    /// Clusters that joined, and when.
    pub joined: Vec<(Time, ClusterId)>,
    /// Clusters that left for good, and when.
    pub left: Vec<(Time, ClusterId)>,
    /// Rollbacks of groups, in the order in which they ended.
    pub rollbacks: Vec<Rollback>,
    /// Every message with its transmissions, by identity.
    pub messages: BTreeMap<MessageId, Message>,
    /// Every stolen task on its way to its thief, and every result on its way back.
    pub thefts: BTreeMap<(Theft, Carried), Crossing>,
    /// Every stretch of a process's life that a rollback undid.
    pub undone: Vec<Undone>,
    /// When the user paused the federation.
    pub pauses: lost::Pauses,
    /// The work of permanently failed processes, in the order in which other processes took it over.
    pub taken_over: Vec<TakenOver>,
    /// Numbers of tasks; `None` where processes exchange messages.
    pub tasks: Option<Tasks>,
    /// Where tasks are assigned in advance, what each recovery cost.
    pub recoveries: Vec<(Incarnation, Recovery)>,
    /// Clusters that could not be recovered, and which parts were missing where.
    pub unrecoverable: Vec<(GroupId, Missing)>,
}

/// The work of a permanently failed process, taken over by another one.
#[derive(Clone, Copy, Debug)]
pub struct TakenOver {
    /// When it was taken over.
    pub at: Time,
    /// The process that took it over.
    pub by: ProcessId,
    /// The failed process.
    pub of: ProcessId,
    /// The checkpoint, with the time at which the process was in that state; `None` if there was none.
    pub from: Option<(Position, Time)>,
}

/// Numbers of tasks of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// The number of different tasks that were run.
    pub tasks: u64,
    /// Runs of tasks beyond the first run of each.
    pub again: u64,
    /// Stolen tasks whose result was used; `None` where tasks are assigned in advance.
    pub stolen: Option<u64>,
}

/// The missing parts of checkpoints, and the processes asked for each.
pub type Missing = Arc<[(ImageName, Vec<ProcessId>)]>;

/// A cluster's checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Whether a message from another cluster forced it, rather than the timer.
    pub forced: bool,
    /// When each process committed it.
    pub committed: BTreeMap<ProcessId, Time>,
    /// When each process was in the state that it contains; the image reaches the storage later.
    pub saved: BTreeMap<ProcessId, Time>,
    /// The longest time for which it paused an application.
    pub frozen: Span,
}

impl Checkpoint {
    /// Returns when its last process committed it.
    pub fn at(&self) -> Time {
        self.committed.values().copied().max().unwrap_or(Time::ZERO)
    }
}

/// The end of a life.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The process.
    pub process: ProcessId,
    /// The life that ended.
    pub life: Life,
    /// When it ended.
    pub at: Time,
    /// The fate of its storage.
    pub storage: StorageFate,
    /// When the supervisor announced it.
    pub detected: Option<Time>,
    /// When the next life was started.
    pub restarted: Option<Time>,
    /// What ended it; `None` if the supervisor found it ended.
    pub by: Option<EndedBy>,
}

impl Failure {
    /// Returns the fault of the plan that ended it.
    pub fn fault(&self) -> Option<FaultNo> {
        self.by.and_then(EndedBy::fault)
    }
}

/// One injected fault.
#[derive(Clone, Debug)]
pub struct Injection {
    /// Its number in the plan.
    pub no: FaultNo,
    /// When it was injected.
    pub at: Time,
    /// The fault.
    pub fault: Fault,
}

/// The rollback of a group, which is a cluster or a process, to one checkpoint.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// The group.
    pub group: GroupId,
    /// The incarnation that it started.
    pub incarnation: Incarnation,
    /// The checkpoint, under the incarnation that took it; `None` is the initial state.
    pub checkpoint: Option<Position>,
    /// Whether the attempt at that checkpoint had been discarded before all of it was known to be durable. It
    /// was durable, or it could not have been restored.
    pub given_up: bool,
    /// The self-reported cause; `None` if the protocol did not state one.
    pub cause: Option<Cause>,
    /// The members that rolled back.
    pub members: BTreeMap<ProcessId, Returned>,
    /// The failures of the cluster that this rollback handles, as indices in [`Timeline::failures`].
    pub failures: Vec<usize>,
    /// When the first failure happened, or the alert arrived.
    pub began: Time,
    /// When the last member resumed.
    pub ended: Time,
    /// The rollback of another cluster that caused this one, or of which this one was part, as an index in
    /// [`Timeline::rollbacks`].
    pub because_of: Option<usize>,
    /// Messages from other clusters re-sent to this one afterwards.
    pub resent: u64,
    /// Whether the protocol stated that every member resumes.
    pub complete: bool,
}

impl Rollback {
    /// Returns the checkpoint's number; 0 is the initial state.
    pub fn sn(&self) -> Sn {
        self.checkpoint.map_or(Sn(0), |it| it.sn)
    }

    /// Returns the lost work of all members.
    pub fn lost(&self) -> Span {
        self.members.values().fold(Span::ZERO, |sum, member| sum + member.lost)
    }
}

/// A process's part in a rollback.
#[derive(Clone, Debug, Default)]
pub struct Returned {
    /// When its state was replaced.
    pub restored: Time,
    /// When it resumed, if it stated so.
    pub resumed: Option<Time>,
    /// When it had been in the state that it restored.
    pub saved: Time,
    /// Its lost work, as defined in [`lost`].
    pub lost: Span,
    /// The number of tasks that it had run since, and the time that they had taken.
    pub tasks: (u64, Span),
}

/// A stretch of a process's execution that a rollback undid.
#[derive(Clone, Debug)]
pub struct Undone {
    /// The process.
    pub process: ProcessId,
    /// The stretch, with its times.
    pub stretch: lost::Undone,
    /// The rollback, as an index in [`Timeline::rollbacks`].
    pub by: usize,
}

/// The path of one message.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// When the application sent it.
    pub sent: Option<Time>,
    /// The rollback that undid the send.
    pub send_undone: Option<usize>,
    /// When it was passed to the network, and whether that was a re-send from a log.
    pub transmitted: Vec<(Time, bool)>,
    /// When it was delivered, and the rollback that undid the delivery.
    pub delivered: Vec<(Time, Option<usize>)>,
    /// When it was dropped because its send had been undone.
    pub stale: Vec<Time>,
}

/// What a theft sends from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carried {
    /// A stolen task, to its thief.
    Task,
    /// Its result, to its victim.
    Result,
}

/// The way of a stolen task, or of its result. After a process is gone for good, others send and receive in its place.
#[derive(Clone, Debug, Default)]
pub struct Crossing {
    /// The last process that sent it.
    pub from: Option<ProcessId>,
    /// The last process that received it.
    pub to: Option<ProcessId>,
    /// Its way.
    pub way: Message,
}

impl Timeline {
    /// Builds the timeline of a recorded run.
    pub fn new(trace: &Trace, manifest: &Manifest) -> Timeline {
        let context = Context::from_manifest(manifest);
        Timeline::of(&History::new(trace, &context), &Cast::new(manifest))
    }

    /// Builds the timeline of a history.
    pub fn of(history: &History<'_>, cast: &Cast) -> Timeline {
        build::build(history, cast)
    }

    /// Returns an instant in seconds since the start of the application; negative before it.
    pub fn seconds(&self, at: Time) -> f64 {
        (at.0 as f64 - self.origin.0 as f64) / 1e9
    }

    /// Returns permanently failed processes, and since when they have been down.
    pub fn gone(&self, cast: &Cast) -> BTreeMap<ProcessId, Time> {
        let mut gone = BTreeMap::new();
        for it in &self.injections {
            match it.fault {
                Fault::Crash { process, returns: false, .. } => {
                    gone.entry(process).or_insert(it.at);
                }
                Fault::LoseCluster { cluster, returns: false, .. } => {
                    cast.processes(cluster).iter().for_each(|process| {
                        gone.entry(*process).or_insert(it.at);
                    });
                }
                _ => {}
            }
        }
        gone
    }

    /// Returns the time between two instants, without the time in which the user paused the federation.
    pub fn lasted(&self, from: Time, upto: Time) -> Span {
        Span(upto.since(from).0 - self.pauses.within(from, upto).0)
    }

    /// Returns the messages between groups that rollback `by` undid at the sender and that `group` had
    /// delivered, by identity.
    pub fn orphans_at(&self, by: usize, group: GroupId, cast: &Cast) -> Vec<MessageId> {
        self.messages
            .iter()
            .filter(|(id, message)| {
                message.send_undone == Some(by)
                    && cast.group_of(id.to) == group
                    && cast.leaves_group(**id)
                    && !message.delivered.is_empty()
            })
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns how many committed checkpoints of its cluster a rollback undid that no earlier rollback had
    /// undone.
    pub fn depth(&self, rollback: &Rollback) -> u64 {
        let beyond = |it: &Rollback, position: Position| {
            it.group == rollback.group
                && position.incarnation < it.incarnation
                && it.checkpoint.is_none_or(|restored| position > restored)
        };
        let earlier = |position| {
            self.rollbacks.iter().any(|it| it.incarnation < rollback.incarnation && beyond(it, position))
        };
        let of_it = self.checkpoints.keys().filter(|(group, _)| *group == rollback.group);
        of_it.filter(|(_, position)| beyond(rollback, *position) && !earlier(*position)).count() as u64
    }
}
