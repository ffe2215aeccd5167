//! The space-time diagram of a run as plain data: one lane per process, with time running from left to right. [`svg`]
//! draws it as a static picture, and the page's script as an interactive one. Both only draw the data. [`pack`] bounds the
//! size of the data in a page.

pub mod pack;
pub mod svg;
pub(crate) mod thumbnail;

use std::collections::BTreeMap;

use faultline_core::{Fact, Position, ProcessId, StorageFate, Time};
use faultline_trace::describe::describe;
use faultline_trace::duration::lasted;
use faultline_trace::fault::describe_fault;
use serde::Serialize;

use crate::names::{DisplayNames, RollbackUnit, checkpoint};
use crate::timeline::{
    Failure, MessagePath, TheftContent, TheftPath, Timeline, TimelineCheckpoint, TimelineRollback,
};

/// A diagram. Times are in microseconds since the application started; lanes are indices into `lanes`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagram {
    /// The earliest time shown.
    pub begin: i64,
    /// The latest time shown.
    pub end: i64,
    /// The clusters, from top to bottom.
    pub clusters: Vec<ClusterLanes>,
    /// The names of the processes, one per lane, from top to bottom.
    pub lanes: Vec<String>,
    /// Messages, stolen tasks and their results, by time of sending.
    pub messages: Vec<MessageLine>,
    /// Committed checkpoints, by the time of their first saved state.
    pub checkpoints: Vec<CheckpointMark>,
    /// Periods in which a process had no life.
    pub outages: Vec<Outage>,
    /// Flipped bits.
    pub flips: Vec<FlippedBit>,
    /// Recoveries, from the restart or the start of the recovery until the process resumed.
    pub recoveries: Vec<Stretch>,
    /// Periods that a rollback undid, or whose work was lost with a process that never returned.
    pub undone: Vec<Stretch>,
    /// Rollbacks to checkpoints.
    pub rollbacks: Vec<RollbackMark>,
    /// Recovery lines, one per set of rollbacks with a common cause: the lane and the time of each state that these
    /// rollbacks restored.
    pub recovery_lines: Vec<Vec<(usize, i64)>>,
    /// Injected faults.
    pub faults: Vec<Injected>,
    /// Periods in which no packet passed from one cluster to another: the clusters, as indices, and the period.
    pub cuts: Vec<(usize, usize, i64, i64)>,
}

/// The lanes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterLanes {
    /// The name of the cluster.
    pub name: String,
    /// The first lane of the cluster.
    pub first: usize,
    /// The number of lanes.
    pub lanes: usize,
}

/// The outcome of one transmission of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Delivered and not undone.
    Delivered,
    /// Delivered, but a rollback undid its send or its delivery; or never arrived, and a rollback undid its send.
    Undone,
    /// Re-sent from a log, and delivered.
    Resent,
    /// Dropped on arrival, because a rollback had undone its send.
    Stale,
    /// Never arrived, although no rollback undid its send.
    Lost,
}

/// The content of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// A message of the application.
    Message,
    /// A stolen task.
    Task,
    /// The result of a stolen task.
    Result,
}

/// One transmission of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLine {
    /// The lane of the sender.
    pub from: usize,
    /// The lane of the receiver.
    pub to: usize,
    /// The time at which the message was passed to the network.
    pub sent: i64,
    /// The time at which the message was delivered or dropped.
    pub arrived: Option<i64>,
    /// The outcome of the transmission.
    pub fate: Fate,
    /// Whether the message crosses from one cluster to another.
    pub between: bool,
    /// The number of the message in its channel; for a theft, the number of the theft in its thief's life.
    pub number: u32,
    /// The incarnation of the sender at the first send; for a theft, the incarnation of the thief.
    pub incarnation: u32,
    /// The content of the transmission.
    pub content: Content,
}

/// The reason why a checkpoint was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Before the application's first event.
    Initial,
    /// Requested by the timer.
    Unforced,
    /// Forced by a message from another group, or by a theft.
    Forced,
}

/// A committed checkpoint of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointMark {
    /// The members' lanes, ascending, and the times at which their states were saved. Never empty.
    pub members: Vec<(usize, i64)>,
    /// The time at which the last member committed the checkpoint.
    pub committed: i64,
    /// The reason why the checkpoint was taken.
    pub kind: Kind,
    /// The incarnation and the number of the checkpoint.
    pub position: Position,
    /// Whether a rollback to an older checkpoint undid this checkpoint.
    pub undone: bool,
}

impl CheckpointMark {
    /// Returns the times at which the first and the last state were saved.
    pub fn period(&self) -> (i64, i64) {
        let times = || self.members.iter().map(|it| it.1);
        (times().min().unwrap_or(self.committed), times().max().unwrap_or(self.committed))
    }
}

/// A period in which a process had no life.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outage {
    /// The lane of the process.
    pub lane: usize,
    /// The end of the life.
    pub from: i64,
    /// The start of the next life; the time of the last fact if no life followed.
    pub upto: i64,
    /// The description of the failure.
    pub text: String,
}

/// A bit that a fault flipped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlippedBit {
    /// The lane of the process.
    pub lane: usize,
    /// The time at which the message was delivered, the part was stored, or the state changed.
    pub at: i64,
    /// The description of what contained the bit.
    pub text: String,
}

/// A period on a lane. Serialised as an array, to save space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "(usize, i64, i64)")]
pub struct Stretch {
    /// The lane on which the period is drawn.
    pub lane: usize,
    /// The start of the period.
    pub from: i64,
    /// The end of the period.
    pub upto: i64,
}

impl From<Stretch> for (usize, i64, i64) {
    fn from(Stretch { lane, from, upto }: Stretch) -> Self {
        (lane, from, upto)
    }
}

/// A rollback of a unit to a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RollbackMark {
    /// The description of the rollback.
    pub text: String,
    /// For each member: its lane, the time of the restore, and the time at which the restored state had been saved.
    pub members: Vec<(usize, i64, i64)>,
}

/// One injected fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Injected {
    /// The time of the injection.
    pub at: i64,
    /// The description of the fault.
    pub text: String,
    /// The number of the fault in the plan.
    pub no: u32,
}

impl Diagram {
    /// Creates a diagram of processes about which nothing is known yet.
    pub fn empty(names: &DisplayNames) -> Self {
        let (clusters, lane_of) = lanes(names);
        Diagram { end: 1, clusters, lanes: names_of(&lane_of, names), ..Diagram::default() }
    }

    /// Creates the diagram of a timeline.
    pub fn new(timeline: &Timeline, names: &DisplayNames) -> Self {
        let (clusters, lane_of) = lanes(names);
        let micros = |at: Time| (at.0 as i64 - timeline.origin.0 as i64) / 1000;
        let lanes = names_of(&lane_of, names);
        let messages = lines(timeline, names, &lane_of, micros);
        let checkpoints = marks(timeline, &lane_of, micros);
        let first = checkpoints.first().map(|it| it.period().0).unwrap_or(0).min(0);
        let recoveries = timeline.rollbacks.iter().flat_map(|rollback| {
            rollback.members.iter().filter_map(|(process, member)| {
                let lane = *lane_of.get(process)?;
                let down = rollback.failures.iter().map(|&it| &timeline.failures[it]);
                let restarted = down.filter(|it| it.process == *process).filter_map(|it| it.restarted).max();
                let from = micros(restarted.unwrap_or(rollback.began).min(member.restored));
                Some(Stretch { lane, from, upto: micros(member.resumed.unwrap_or(member.restored)) })
            })
        });
        let undone = timeline.undone.iter().map(|it| (it.process, it.stretch));
        let undone = undone.chain(timeline.lost_permanently.iter().copied());
        let undone = undone.filter(|(_, it)| it.began < it.ended).filter_map(|(process, it)| {
            let lane = *lane_of.get(&process)?;
            Some(Stretch { lane, from: micros(it.began), upto: micros(it.ended) })
        });
        let faults = timeline.injections.iter().map(|it| Injected {
            at: micros(it.at),
            text: describe_fault(&it.fault, names.names()),
            no: it.no.0,
        });
        let flips = timeline.flipped.iter().filter_map(|(no, &(at, process, flipped))| {
            let lane = *lane_of.get(&process)?;
            let text = describe(process, &Fact::Flipped(flipped), names.names()).to_string();
            Some(FlippedBit { lane, at: micros(at), text: format!("{no}: {} {text}", lanes[lane]) })
        });
        let cuts = timeline.injections.iter().flat_map(|it| {
            let period = (micros(it.at), micros(it.fault.until(it.at)));
            let cuts = it.fault.cuts().into_iter();
            cuts.map(move |(from, to)| (from.index(), to.index(), period.0, period.1))
        });
        Diagram {
            begin: first,
            cuts: cuts.collect(),
            end: micros(timeline.end).max(1),
            outages: outages(timeline, &lane_of, &lanes, micros),
            flips: flips.collect(),
            recoveries: recoveries.collect(),
            undone: undone.collect(),
            rollbacks: rollbacks(timeline, names, &lane_of, micros),
            recovery_lines: recovery_lines(timeline, &lane_of, micros),
            faults: faults.collect(),
            messages,
            checkpoints,
            clusters,
            lanes,
        }
    }
}

type Lanes = BTreeMap<ProcessId, usize>;

/// Assigns a lane to every process of a cluster.
fn lanes(names: &DisplayNames) -> (Vec<ClusterLanes>, Lanes) {
    let (mut clusters, mut lane_of) = (Vec::new(), Lanes::new());
    for cluster in names.clusters() {
        let (first, processes) = (lane_of.len(), names.processes(cluster));
        clusters.push(ClusterLanes { name: names.cluster(cluster), first, lanes: processes.len() });
        lane_of.extend(processes.iter().zip(first..).map(|(&process, lane)| (process, lane)));
    }
    (clusters, lane_of)
}

/// Returns the name of the process on each lane.
fn names_of(lane_of: &Lanes, names: &DisplayNames) -> Vec<String> {
    let mut lanes = vec![String::new(); lane_of.len()];
    for (&process, &lane) in lane_of {
        lanes[lane] = names.process(process);
    }
    lanes
}

fn outages(
    timeline: &Timeline,
    lane_of: &Lanes,
    lanes: &[String],
    micros: impl Fn(Time) -> i64,
) -> Vec<Outage> {
    let outage = |failure: &Failure| {
        let lane = *lane_of.get(&failure.process)?;
        let from = micros(failure.at);
        let upto = failure.restarted.map_or(micros(timeline.end), &micros);
        let detected = failure.detected.map_or_else(
            || "never announced".to_owned(),
            |at| format!("announced after {}", lasted(at.since(failure.at))),
        );
        let storage = if failure.storage == StorageFate::Lost { ", storage lost" } else { "" };
        let next = failure.restarted.map_or_else(
            || "no later life".to_owned(),
            |at| format!("next life after {}", lasted(at.since(failure.at))),
        );
        let text = format!("{} failed ({}{storage}), {detected}, {next}", lanes[lane], failure.life);
        Some(Outage { lane, from, upto, text })
    };
    timeline.failures.iter().filter_map(outage).collect()
}

fn rollbacks(
    timeline: &Timeline,
    names: &DisplayNames,
    lane_of: &Lanes,
    micros: impl Fn(Time) -> i64,
) -> Vec<RollbackMark> {
    let mark = |rollback: &TimelineRollback| RollbackMark {
        text: format!(
            "{} rolled back to {} ({} of work lost)",
            names.unit(rollback.unit),
            rollback.checkpoint.map_or_else(
                || "its initial state".to_owned(),
                |it| format!("checkpoint {}", checkpoint(it))
            ),
            lasted(rollback.lost()),
        ),
        members: rollback
            .members
            .iter()
            .filter_map(|(process, it)| {
                Some((*lane_of.get(process)?, micros(it.restored), micros(it.saved?)))
            })
            .collect(),
    };
    timeline.rollbacks.iter().map(mark).collect()
}

fn lines(
    timeline: &Timeline,
    names: &DisplayNames,
    lane_of: &Lanes,
    micros: impl Fn(Time) -> i64,
) -> Vec<MessageLine> {
    let mut lines = Vec::new();
    let mut add =
        |ends: (ProcessId, ProcessId), may_stay: bool, way: &MessagePath, (number, incarnation, content)| {
            let between = names.cluster_of(ends.0) != names.cluster_of(ends.1);
            let (Some(&from), Some(&to)) = (lane_of.get(&ends.0), lane_of.get(&ends.1)) else { return };
            if from == to && !may_stay {
                return;
            }
            lines.extend(ways(way).into_iter().map(|(sent, arrived, fate)| {
                let (sent, arrived) = (micros(sent), arrived.map(&micros));
                MessageLine { from, to, sent, arrived, fate, between, number, incarnation, content }
            }));
        };
    for (id, message) in &timeline.messages {
        // Both partitions may run on the same process.
        let may_stay = id.from == id.to;
        add(timeline.endpoints(id), may_stay, message, (id.number, id.incarnation.0, Content::Message));
    }
    for (&(theft, carried), TheftPath { from, to, way }) in &timeline.thefts {
        let (sender, receiver, content) = match carried {
            TheftContent::Task => (theft.victim, theft.thief, Content::Task),
            TheftContent::Result => (theft.thief, theft.victim, Content::Result),
        };
        let ends = (from.unwrap_or(sender), to.unwrap_or(receiver));
        // A process that took over the work of another one may be both victim and thief.
        add(ends, false, way, (theft.number, theft.life.incarnation().0, content));
    }
    lines.sort_by_key(|it| (it.sent, it.from, it.to, it.number));
    lines
}

/// Returns the transmissions of a message: those with an arrival or, if there are none, all of them.
fn ways(message: &MessagePath) -> Vec<(Time, Option<Time>, Fate)> {
    let mut arrivals: Vec<(Time, Fate)> = message
        .delivered
        .iter()
        .map(|&(at, undone)| {
            let is_final = undone.is_none() && message.send_undone.is_none();
            (at, if is_final { Fate::Delivered } else { Fate::Undone })
        })
        .chain(message.stale.iter().map(|&at| (at, Fate::Stale)))
        .collect();
    arrivals.sort_unstable();
    let mut ways = Vec::new();
    let mut transmissions: Vec<(Time, bool)> = match (&message.transmitted[..], message.sent) {
        ([], Some(sent)) => vec![(sent, false)],
        (known, _) => known.to_vec(),
    };
    for (at, fate) in arrivals {
        let place = transmissions.iter().rposition(|&(sent, _)| sent <= at).unwrap_or(0);
        if place < transmissions.len() {
            let (sent, again) = transmissions.remove(place);
            let fate = if again && fate == Fate::Delivered { Fate::Resent } else { fate };
            ways.push((sent, Some(at), fate));
        }
    }
    let never = if message.send_undone.is_some() { Fate::Undone } else { Fate::Lost };
    // Duplicates that the receiver already had are dropped by the driver or the protocol. They are not lost.
    if ways.is_empty() {
        ways.extend(transmissions.into_iter().map(|(sent, _)| (sent, None, never)));
    }
    ways
}

fn marks(timeline: &Timeline, lane_of: &Lanes, micros: impl Fn(Time) -> i64) -> Vec<CheckpointMark> {
    let undone = |unit: RollbackUnit, position: Position| {
        timeline.rollbacks.iter().any(|it| {
            it.unit == unit
                && position.incarnation < it.incarnation
                && it.checkpoint.is_none_or(|restored| position > restored)
        })
    };
    let mark = |(&(unit, position), it): (&(RollbackUnit, Position), &TimelineCheckpoint)| {
        let kind = match (it.forced, position.sn.0) {
            (true, _) => Kind::Forced,
            (false, 1) => Kind::Initial,
            (false, _) => Kind::Unforced,
        };
        let saved = |(process, &committed): (&ProcessId, &Time)| {
            let saved = it.saved.get(process).copied().unwrap_or(committed);
            Some((*lane_of.get(process)?, micros(saved)))
        };
        let mut members: Vec<_> = it.committed.iter().filter_map(saved).collect();
        members.sort_unstable();
        let mark = CheckpointMark {
            members,
            committed: micros(it.at()),
            kind,
            position,
            undone: undone(unit, position),
        };
        (!mark.members.is_empty()).then_some(mark)
    };
    let mut marks: Vec<_> = timeline.checkpoints.iter().filter_map(mark).collect();
    marks.sort_by_key(|it| (it.period(), it.members[0].0));
    marks
}

/// Returns the recovery lines. Each belongs to a rollback that no other rollback caused, and contains the states
/// restored by this rollback and by all rollbacks that it caused, from top to bottom.
fn recovery_lines(
    timeline: &Timeline,
    lane_of: &Lanes,
    micros: impl Fn(Time) -> i64,
) -> Vec<Vec<(usize, i64)>> {
    let root = |mut place: usize| {
        for _ in 0..timeline.rollbacks.len() {
            place = timeline.rollbacks[place].because_of.unwrap_or(place);
        }
        place
    };
    let mut lines: BTreeMap<usize, Vec<(usize, i64)>> = BTreeMap::new();
    for (place, rollback) in timeline.rollbacks.iter().enumerate() {
        let line = lines.entry(root(place)).or_default();
        for (process, member) in &rollback.members {
            if let (Some(&lane), Some(saved)) = (lane_of.get(process), member.saved) {
                line.retain(|&(it, _)| it != lane);
                line.push((lane, micros(saved)));
            }
        }
    }
    lines
        .into_values()
        .map(|mut line| {
            line.sort_unstable();
            line
        })
        .collect()
}
