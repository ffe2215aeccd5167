//! The events of a run, timed by the clocks of its processes: checkpoints, failures, rollbacks with the work that they
//! undid, and the path of every message. A view of the run's [`History`] for readers. It does not judge: the checker
//! decides whether the run was correct.
//!
//! Facts of different processes are related by identity (of a message, a checkpoint, an incarnation). Times are for
//! display. Apart from that, they only determine to which rollback a failure or a re-sent message belongs.

mod build;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faultline_core::fact::Flipped;
use faultline_core::fault::Change;
use faultline_core::{
    Cause, ClusterId, EndedBy, Fault, FaultNo, ImageName, Incarnation, Life, MessageId, PlannedFault,
    Position, ProcessId, Sn, Span, StorageFate, Target, Theft, Time,
};
use faultline_history::availability::ProbeHistory;
use faultline_history::expected::Assessment;
use faultline_history::recoveries::RecoveryCost;
use faultline_history::{Context, History, Ledger, Outage};
use faultline_history::{GroupId, lost};
use faultline_trace::{Manifest, Trace};

use crate::histories::HistorySummary;
use crate::names::{DisplayNames, RollbackUnit};

/// The events of a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The start of the application. Times are shown relative to it.
    pub origin: Time,
    /// The time of the last fact.
    pub end: Time,
    /// Every committed checkpoint, by unit and position.
    pub checkpoints: BTreeMap<(RollbackUnit, Position), TimelineCheckpoint>,
    /// Ends of lives, in the supervisor's order.
    pub failures: Vec<Failure>,
    /// Injected faults, in the order of injection.
    pub injections: Vec<Injection>,
    /// Processes that resumed after they were paused, and when.
    pub resumed: Vec<(Time, ProcessId)>,
    /// Changes by the user during the run, in order.
    pub changes: Vec<(Time, Change)>,
    /// Clusters that joined, and when.
    pub joined: Vec<(Time, ClusterId)>,
    /// Clusters whose departure was announced, and when.
    pub leaving: Vec<(Time, ClusterId)>,
    /// Clusters that left permanently, and when.
    pub left: Vec<(Time, ClusterId)>,
    /// Rollbacks of units, in the order in which they ended.
    pub rollbacks: Vec<TimelineRollback>,
    /// Every message with its transmissions, by identity.
    pub messages: BTreeMap<MessageId, MessagePath>,
    /// The sender and the receiver of each message whose endpoints are not the ranks in its identity, because
    /// a rank's partition had moved.
    pub moved_endpoints: BTreeMap<MessageId, (ProcessId, ProcessId)>,
    /// Every stolen task and every result that was sent.
    pub thefts: BTreeMap<(Theft, TheftContent), TheftPath>,
    /// Every period that a rollback undid in the history of a process.
    pub undone: Vec<UndonePeriod>,
    /// Every period of a permanently failed process after the state from which others continued.
    pub lost_permanently: Vec<(ProcessId, lost::Undone)>,
    /// Periods in which the user paused the federation.
    pub pauses: lost::Pauses,
    /// The parts of which a read found no intact copy: the time, the process with the storage, and the part.
    pub damaged: Vec<(Time, ProcessId, ImageName)>,
    /// The faults that flipped a bit: the time, the process and what contained the bit.
    pub flipped: BTreeMap<FaultNo, (Time, ProcessId, Flipped)>,
    /// Work that other processes took over, in chronological order.
    pub taken_over: Vec<Takeover>,
    /// Task counts; `None` if processes exchange messages.
    pub tasks: Option<Tasks>,
    /// The cost of each recovery, if tasks are assigned in advance.
    pub recoveries: Vec<(Incarnation, RecoveryCost)>,
    /// Where the time of every process went.
    pub ledger: Ledger,
    /// What failures and the recoveries from them cost.
    pub outages: Vec<Outage>,
    /// The samples of each probe of a user's own system.
    pub probes: Vec<ProbeHistory>,
    /// The histories of clients of a user's own system.
    pub histories: Vec<HistorySummary>,
    /// Commands of a user's own system that ended by themselves, in chronological order.
    pub exits: Vec<CommandExit>,
    /// Commands of a user's own system that ended because a fault had told them to, in chronological order.
    pub stops: Vec<StoppedCommand>,
    /// The faults that took effect.
    pub took_effect: BTreeSet<FaultNo>,
    /// The faults of a system that changed nothing, and why.
    pub redundant: BTreeMap<FaultNo, &'static str>,
    /// For a user's own system, the faults that took effect, but that no probe, watch or command noticed.
    pub unnoticed: BTreeSet<FaultNo>,
    /// What the federation expects, compared with the run.
    pub expectations: Vec<Assessment>,
    /// Processes whose times and counts are unknown, because their facts are incomplete.
    pub incomplete: BTreeSet<ProcessId>,
    /// Whether the run was cut short, so facts of any process may be missing at the end.
    pub is_cut_short: bool,
    /// Groups that could not be recovered, with the parts that were missing.
    pub unrecoverable: Vec<(GroupId, Missing)>,
}

/// A command of a user's own system that ended by itself.
#[derive(Clone, Debug)]
pub struct CommandExit {
    /// The time at which the command ended.
    pub at: Time,
    /// The process whose command it was.
    pub process: ProcessId,
    /// The life of the process.
    pub life: Life,
    /// How the command ended.
    pub ending: String,
    /// What the command wrote last, as one line; `None` if it wrote nothing.
    pub said: Option<String>,
    /// The file with the command's output, in the directory of the record.
    pub log: String,
}

/// A command of a user's own system that ended because a fault had told it to.
#[derive(Clone, Debug)]
pub struct StoppedCommand {
    /// The time at which all processes of the command had ended.
    pub at: Time,
    /// The process whose command it was.
    pub process: ProcessId,
    /// The life of the process.
    pub life: Life,
    /// How the command ended, and when, as the end of a sentence: `ended 120 ms after SIGTERM: exit status 0`.
    pub how: String,
    /// What the command wrote last, as one line; `None` if it wrote nothing.
    pub said: Option<String>,
    /// The file with the command's output, in the directory of the record.
    pub log: String,
}

/// Work that another process took over because a process failed permanently or a partition moved.
#[derive(Clone, Copy, Debug)]
pub struct Takeover {
    /// The time at which the work was taken over.
    pub at: Time,
    /// The process that took the work over.
    pub by: ProcessId,
    /// The process whose work, or whose partition, was taken over.
    pub of: ProcessId,
    /// The process that had done the work before; `None` if there was none, because the cluster joined later.
    pub from: Option<ProcessId>,
    /// The checkpoint from which `by` continued, with the time at which the earlier process was in that
    /// state; `None` if there was none.
    pub checkpoint: Option<(Position, Time)>,
    /// The number of tasks that the earlier process had run since the checkpoint, and their total duration.
    pub tasks: (u64, Span),
}

/// Task counts of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// The number of different tasks that were run.
    pub tasks: u64,
    /// The number of re-executions of tasks, in failed processes and in others.
    pub again: u64,
    /// The number of re-executions in processes that kept their states, because others had lost values.
    pub rerun: u64,
    /// The number of stolen tasks whose result was used; `None` if no task was stolen, or if tasks are assigned in
    /// advance.
    pub stolen: Option<u64>,
}

/// The missing parts of checkpoints, and the processes asked for each.
pub type Missing = Arc<[(ImageName, Vec<ProcessId>)]>;

/// A checkpoint of a unit.
#[derive(Clone, Debug)]
pub struct TimelineCheckpoint {
    /// Whether a message from another group or a theft, rather than the timer, caused the checkpoint.
    pub forced: bool,
    /// The time at which each process committed the checkpoint.
    pub committed: BTreeMap<ProcessId, Time>,
    /// The time at which each process was in the saved state. The image reaches the storage later.
    pub saved: BTreeMap<ProcessId, Time>,
    /// The longest time for which the checkpoint froze an application.
    pub frozen: Span,
}

impl TimelineCheckpoint {
    /// Returns the time at which the last process committed the checkpoint.
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
    /// The time at which the life ended.
    pub at: Time,
    /// The fate of the process's storage.
    pub storage: StorageFate,
    /// The time at which the supervisor announced the failure.
    pub detected: Option<Time>,
    /// The time at which the process moved to a spare node.
    pub moved: Option<Time>,
    /// The time at which the next life was started.
    pub restarted: Option<Time>,
    /// The cause of the end; `None` if the life ended by itself.
    pub by: Option<EndedBy>,
}

impl Failure {
    /// Returns the planned fault that ended the life.
    pub fn fault(&self) -> Option<FaultNo> {
        self.by.and_then(EndedBy::fault)
    }
}

/// One injected fault.
#[derive(Clone, Debug)]
pub struct Injection {
    /// The number of the fault in the plan.
    pub no: FaultNo,
    /// The time at which the fault was injected.
    pub at: Time,
    /// The fault.
    pub fault: Fault,
}

/// The rollback of a unit to one checkpoint.
#[derive(Clone, Debug)]
pub struct TimelineRollback {
    /// The unit.
    pub unit: RollbackUnit,
    /// The incarnation that the rollback started.
    pub incarnation: Incarnation,
    /// The restored checkpoint, with the incarnation in which it was taken; `None` is the initial state.
    pub checkpoint: Option<Position>,
    /// Whether the attempt at that checkpoint had been discarded before all of its parts were known to be
    /// durable. The parts were durable nevertheless; otherwise, the checkpoint could not have been restored.
    pub was_discarded: bool,
    /// The self-reported cause; `None` if the protocol did not state one.
    pub cause: Option<Cause>,
    /// The members that rolled back.
    pub members: BTreeMap<ProcessId, RestoredMember>,
    /// The failures of the unit that this rollback handles, as indices into [`Timeline::failures`].
    pub failures: Vec<usize>,
    /// The time at which the first failure happened, or the alert arrived.
    pub began: Time,
    /// The time at which the last member resumed.
    pub ended: Time,
    /// The rollback of another unit that caused or included this one, as an index into [`Timeline::rollbacks`].
    pub because_of: Option<usize>,
    /// The number of messages that other units re-sent to this unit after the rollback began.
    pub resent: u64,
    /// Whether the protocol reported that every member resumed.
    pub complete: bool,
}

impl TimelineRollback {
    /// Returns the checkpoint's number; 0 is the initial state.
    pub fn sn(&self) -> Sn {
        self.checkpoint.map_or(Sn(0), |it| it.sn)
    }

    /// Returns the lost work of all members.
    pub fn lost(&self) -> Span {
        self.members.values().fold(Span::ZERO, |sum, member| sum + member.lost)
    }
}

/// The rollback of one member of a unit.
#[derive(Clone, Debug, Default)]
pub struct RestoredMember {
    /// The time at which the process's state was restored.
    pub restored: Time,
    /// The time at which the process resumed; `None` if it did not report that.
    pub resumed: Option<Time>,
    /// The time at which the process was last in the state that it restored; `None` if the facts of that state are
    /// missing.
    pub saved: Option<Time>,
    /// The process's lost work, as defined in [`lost`].
    pub lost: Span,
    /// The number of tasks that the process had run after [`saved`](Self::saved), and their total duration.
    pub tasks: (u64, Span),
}

/// A period of a process that a rollback undid.
#[derive(Clone, Debug)]
pub struct UndonePeriod {
    /// The process.
    pub process: ProcessId,
    /// The period, with its times.
    pub stretch: lost::Undone,
    /// The rollback, as an index into [`Timeline::rollbacks`].
    pub by: usize,
}

/// The path of one message.
#[derive(Clone, Debug, Default)]
pub struct MessagePath {
    /// The time at which the application last sent the message.
    pub sent: Option<Time>,
    /// The rollback that undid the send.
    pub send_undone: Option<usize>,
    /// The times at which the message was passed to the network. Each flag tells whether the transmission was a re-send
    /// from a log.
    pub transmitted: Vec<(Time, bool)>,
    /// The times at which the message was delivered, each with the rollback, if any, that undid the delivery.
    pub delivered: Vec<(Time, Option<usize>)>,
    /// The times at which the message was dropped because its send had been undone.
    pub stale: Vec<Time>,
}

/// The content that a theft sends from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TheftContent {
    /// A stolen task, sent to its thief.
    Task,
    /// The result of a stolen task, sent to the victim.
    Result,
}

/// The path of a stolen task or its result. If a process never returns, its successor sends and receives in its
/// place.
#[derive(Clone, Debug, Default)]
pub struct TheftPath {
    /// The last process that sent the task or the result.
    pub from: Option<ProcessId>,
    /// The last process that received the task or the result.
    pub to: Option<ProcessId>,
    /// The path, recorded like that of a message.
    pub way: MessagePath,
}

impl Timeline {
    /// Builds the timeline of a recorded run.
    pub fn new(trace: &Trace, manifest: &Manifest) -> Timeline {
        let context = Context::from_manifest(manifest);
        Timeline::of(&History::new(trace, &context), &DisplayNames::new(manifest))
    }

    /// Builds the timeline of a history.
    pub fn of(history: &History<'_>, names: &DisplayNames) -> Timeline {
        build::build(history, names)
    }

    /// Returns the faults that were added during the run, and when.
    pub fn added_faults(&self) -> impl Iterator<Item = (Time, &PlannedFault)> {
        self.changes.iter().filter_map(|(at, change)| match change {
            Change::Fault(planned) => Some((*at, planned)),
            _ => None,
        })
    }

    /// Returns whether facts of the supervisor may be missing.
    pub fn lacks_supervisor(&self) -> bool {
        self.is_cut_short || self.incomplete.contains(&ProcessId::SUPERVISOR)
    }

    /// Returns the processes that sent and received a message.
    pub fn endpoints(&self, id: &MessageId) -> (ProcessId, ProcessId) {
        self.moved_endpoints.get(id).copied().unwrap_or((id.from, id.to))
    }

    /// Returns a time in seconds since the start of the application; negative before it.
    pub fn seconds(&self, at: Time) -> f64 {
        (at.0 as f64 - self.origin.0 as f64) / 1e9
    }

    /// Returns the lost work of the permanently failed processes for which `is_counted` returns `true`.
    pub fn lost_permanently(&self, is_counted: impl Fn(ProcessId) -> bool) -> Span {
        let counted = self.lost_permanently.iter().filter(|(of, _)| is_counted(*of));
        counted.fold(Span::ZERO, |sum, (_, it)| sum + it.lost())
    }

    /// Returns the permanently failed processes, and when they failed.
    pub fn permanent_failures(&self, names: &DisplayNames) -> BTreeMap<ProcessId, Time> {
        let mut gone = BTreeMap::new();
        for it in &self.injections {
            let killed: &[ProcessId] = match it.fault.kills().filter(|_| it.fault.is_permanent()) {
                Some(Target::Process(process)) => &[process],
                Some(target @ (Target::Cluster(cluster) | Target::Rack { cluster, .. })) => {
                    target.among(names.processes(cluster))
                }
                None => &[],
            };
            for process in killed {
                gone.entry(*process).or_insert(it.at);
            }
        }
        gone
    }

    /// Returns the duration between two times, without the periods in which the user paused the federation.
    pub fn lasted(&self, from: Time, upto: Time) -> Span {
        Span(upto.since(from).0 - self.pauses.within(from, upto).0)
    }

    /// Returns the messages between units that `unit` had delivered and whose sends were undone by rollback
    /// `by`, ordered by identity.
    pub fn orphans_at(&self, by: usize, unit: RollbackUnit, names: &DisplayNames) -> Vec<MessageId> {
        self.messages
            .iter()
            .filter(|(id, message)| {
                message.send_undone == Some(by)
                    && names.unit_of(id.to) == Some(unit)
                    && names.leaves_unit(**id)
                    && !message.delivered.is_empty()
            })
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns the number of the unit's committed checkpoints that `rollback` undid, except those that earlier
    /// rollbacks had undone.
    pub fn depth(&self, rollback: &TimelineRollback) -> u64 {
        let beyond = |it: &TimelineRollback, position: Position| {
            it.unit == rollback.unit
                && position.incarnation < it.incarnation
                && it.checkpoint.is_none_or(|restored| position > restored)
        };
        let earlier = |position| {
            self.rollbacks.iter().any(|it| it.incarnation < rollback.incarnation && beyond(it, position))
        };
        let of_it = self.checkpoints.keys().filter(|(unit, _)| *unit == rollback.unit);
        of_it.filter(|(_, position)| beyond(rollback, *position) && !earlier(*position)).count() as u64
    }
}
