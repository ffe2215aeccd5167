//! What happened, put together from the facts of all lives: checkpoints, failures, rollbacks with what they undid, and
//! the way of every message. Tells, does not judge: whether it was right is the checker's business.
//!
//! Facts of different processes are related by identity (of a message, a checkpoint, an incarnation), never by time;
//! times are for showing.

mod build;

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_checker::lost::{self, Place};
use faultline_checker::recoveries::Recovery;
use faultline_core::fault::Change;
use faultline_core::{
    Cause, ClusterId, EndedBy, Fault, FaultNo, ImageName, Incarnation, Life, MessageId, Position, ProcessId,
    Sn, Span, StorageFate, Theft, Time,
};
use faultline_trace::Trace;

use crate::cast::Cast;

/// What happened in a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// When the application was allowed to begin: instants are shown relative to this.
    pub origin: Time,
    /// When the last fact was stated.
    pub end: Time,
    /// Every committed checkpoint, by group and position.
    pub checkpoints: BTreeMap<(ClusterId, Position), Checkpoint>,
    /// Ends of lives, in the supervisor's order.
    pub failures: Vec<Failure>,
    /// What the injector did, in its order.
    pub injections: Vec<Injection>,
    /// What the user changed while the run went on, in order.
    pub changes: Vec<(Time, Change)>,
    /// Clusters that joined, and when.
    pub joined: Vec<(Time, ClusterId)>,
    /// Clusters that left for good, and when.
    pub left: Vec<(Time, ClusterId)>,
    /// Rollbacks of groups, in the order in which they ended.
    pub rollbacks: Vec<Rollback>,
    /// Every message with its way, by identity.
    pub messages: BTreeMap<MessageId, Message>,
    /// Every stolen task on its way to its thief, and every result on its way back.
    pub thefts: BTreeMap<(Theft, Carried), Crossing>,
    /// Every stretch of a process's life that a rollback undid.
    pub undone: Vec<Undone>,
    /// When the user had everybody stand still.
    pub stands: lost::Stands,
    /// Where processes that never return left their work, in the order in which it was taken over.
    pub taken_over: Vec<TakenOver>,
    /// What became of the tasks; `None` where processes exchange messages.
    pub tasks: Option<Tasks>,
    /// Where tasks are assigned in advance, what each recovery cost.
    pub recoveries: Vec<(Incarnation, Recovery)>,
    /// Clusters that could not be recovered, and which parts were missing where.
    pub unrecoverable: Vec<(ClusterId, Missing)>,
}

/// The work of a process that never returns, taken over by another one.
#[derive(Clone, Copy, Debug)]
pub struct TakenOver {
    /// When.
    pub at: Time,
    /// By this process.
    pub by: ProcessId,
    /// From this one.
    pub of: ProcessId,
    /// The checkpoint, with the time at which the process was in that state; `None` when there was none.
    pub from: Option<(Position, Time)>,
}

/// What became of the tasks of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// Different tasks that were run.
    pub tasks: u64,
    /// Runs of tasks beyond the first of each.
    pub again: u64,
    /// Stolen tasks whose result was used; `None` where tasks are assigned in advance.
    pub stolen: Option<u64>,
}

/// The parts of checkpoints that are missing, and who was asked for each.
pub type Missing = Arc<[(ImageName, Vec<ProcessId>)]>;

/// A cluster's checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// By a message from another cluster, rather than by the timer.
    pub forced: bool,
    /// When each process committed it.
    pub committed: BTreeMap<ProcessId, Time>,
    /// When each process was in the state that it holds; the image reaches the storage later.
    pub saved: BTreeMap<ProcessId, Time>,
    /// The longest that an application was frozen for it.
    pub frozen: Span,
}

impl Checkpoint {
    /// When its last process committed it.
    pub fn at(&self) -> Time {
        self.committed.values().copied().max().unwrap_or(Time::ZERO)
    }
}

/// The end of a life.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Whose.
    pub process: ProcessId,
    /// The life that ended.
    pub life: Life,
    /// When.
    pub at: Time,
    /// What became of its storage.
    pub storage: StorageFate,
    /// When the supervisor announced it.
    pub detected: Option<Time>,
    /// When the next life was started.
    pub restarted: Option<Time>,
    /// What ended it; none when the supervisor found it ended.
    pub by: Option<EndedBy>,
}

impl Failure {
    /// The fault of the plan that did it.
    pub fn fault(&self) -> Option<FaultNo> {
        self.by.and_then(EndedBy::fault)
    }
}

/// One act of the injector.
#[derive(Clone, Debug)]
pub struct Injection {
    /// In the plan.
    pub no: FaultNo,
    /// When.
    pub at: Time,
    /// What was done.
    pub fault: Fault,
}

/// The return of a group, which is a cluster or a process, to one checkpoint.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// The group.
    pub group: ClusterId,
    /// The incarnation that it began.
    pub incarnation: Incarnation,
    /// The checkpoint, under the incarnation that took it; `None` is the initial state.
    pub checkpoint: Option<Position>,
    /// The try at that checkpoint had been given up before all of it was known to be durable. It was, or it could not have
    /// been restored.
    pub given_up: bool,
    /// Why, in the words of the protocol; `None` when it never said.
    pub cause: Option<Cause>,
    /// Its processes.
    pub members: BTreeMap<ProcessId, Returned>,
    /// The failures of the cluster that it answers, as places in [`History::failures`].
    pub failures: Vec<usize>,
    /// When the first failure happened, or the alert arrived.
    pub began: Time,
    /// When the last member went on.
    pub ended: Time,
    /// The rollback of another cluster that caused this one, or that this one was part of, as a place in
    /// [`History::rollbacks`].
    pub because_of: Option<usize>,
    /// Messages from other clusters sent again to this one afterwards.
    pub resent: u64,
    /// The protocol said of every member that it goes on.
    pub complete: bool,
}

impl Rollback {
    /// The checkpoint's number; 0 is the initial state.
    pub fn sn(&self) -> Sn {
        self.checkpoint.map_or(Sn(0), |it| it.sn)
    }

    /// Work lost, over all members.
    pub fn lost(&self) -> Span {
        self.members.values().fold(Span::ZERO, |sum, member| sum + member.lost)
    }
}

/// A process's part in a rollback.
#[derive(Clone, Debug, Default)]
pub struct Returned {
    /// When its state was replaced.
    pub restored: Time,
    /// When it went on, if it said so.
    pub resumed: Option<Time>,
    /// When it had been in the state that it restored.
    pub saved: Time,
    /// Its lost work, as [`lost`] defines it.
    pub lost: Span,
    /// Tasks that it had run since, and what they had taken.
    pub tasks: (u64, Span),
}

/// A stretch of a process's execution that a rollback undid.
#[derive(Clone, Debug)]
pub struct Undone {
    /// Whose.
    pub process: ProcessId,
    /// From where to where, and when.
    pub stretch: lost::Undone,
    /// By which rollback, as a place in [`History::rollbacks`].
    pub by: usize,
}

/// The way of one message.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// When the application sent it.
    pub sent: Option<Time>,
    /// The rollback that undid the sending.
    pub send_undone: Option<usize>,
    /// When it was given to the network, and whether that was a repetition from a log.
    pub transmitted: Vec<(Time, bool)>,
    /// When it was delivered, and the rollback that undid this.
    pub delivered: Vec<(Time, Option<usize>)>,
    /// When it was dropped because its sending had been undone.
    pub stale: Vec<Time>,
    sent_place: Option<Place>,
    delivered_places: Vec<Place>,
}

/// What a theft sends from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carried {
    /// A stolen task, to its thief.
    Task,
    /// What came of it, to its victim.
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

impl History {
    /// Puts together what `trace` holds about `cast`.
    pub fn new(trace: &Trace, cast: &Cast) -> Self {
        build::build(trace, cast)
    }

    /// An instant relative to the beginning, in seconds; negative before it.
    pub fn seconds(&self, at: Time) -> f64 {
        (at.0 as f64 - self.origin.0 as f64) / 1e9
    }

    /// Processes that never live again, and since when.
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

    /// From one instant to another, but for the time in which the user had everybody stand still.
    pub fn lasted(&self, from: Time, upto: Time) -> Span {
        Span(upto.since(from).0 - self.stands.within(from, upto).0)
    }

    /// The messages between groups that rollback `by` undid at the sender and that
    /// `group` had delivered, by identity.
    pub fn orphans_at(&self, by: usize, group: ClusterId, cast: &Cast) -> Vec<MessageId> {
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

    /// How many committed checkpoints of its cluster a rollback undid that none had undone before.
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
