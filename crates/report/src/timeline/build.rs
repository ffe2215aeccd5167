//! Builds a timeline from a history: the same events, timed by the clocks of their processes, for the units that
//! reports show as rolling back.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{
    Attempt, Cause, Claim, Incarnation, MessageId, Position, ProcessId, Span, Theft, TheftStep, Time,
};
use faultline_history::availability::{probes, unnoticed};
use faultline_history::expected::{CommandStop, Exit, assess, exits, log_of, stops, took_effect};
use faultline_history::lost::{FactPosition, Returns, instant, ran};
use faultline_history::outages::outages;
use faultline_history::recoveries::Recoveries;
use faultline_history::redundant::redundant;
use faultline_history::{GroupId, History, Ledger, Point};
use faultline_trace::duration::lasted;

use super::{
    CommandExit, Failure, Injection, MessagePath, StoppedCommand, Takeover, Tasks, TheftContent, TheftPath,
    Timeline, TimelineCheckpoint, TimelineRollback, UndonePeriod,
};
use crate::histories::HistorySummary;
use crate::names::{DisplayNames, RollbackUnit};

/// Identifies a rollback by its unit and the incarnation that it started.
type Key = (RollbackUnit, Incarnation);

pub(super) fn build(history: &History<'_>, names: &DisplayNames) -> Timeline {
    let mut timeline = supervised(history);
    timeline.end = history.end();
    timeline.ledger = Ledger::of(history);
    timeline.outages = outages(history, &timeline.ledger);
    timeline.probes = probes(history);
    timeline.histories = history.clients().iter().map(|it| HistorySummary::of(it, history)).collect();
    timeline.exits = command_exits(history);
    timeline.stops = stopped_commands(history);
    timeline.took_effect = took_effect(history);
    timeline.redundant = redundant(history);
    if history.context.system.is_some() {
        timeline.unnoticed = unnoticed(history, &timeline.probes).into_iter().collect();
        timeline.unnoticed.retain(|it| timeline.took_effect.contains(it));
    }
    timeline.expectations = assess(history);
    timeline.checkpoints = checkpoints(history, names);
    timeline.tasks = tasks(history);
    timeline.incomplete = history.incomplete();
    timeline.is_cut_short = history.context.outcome.is_none();
    take_over(&mut timeline, history);
    if history.planned.is_some() {
        timeline.recoveries = Recoveries::of(history).all().map(|(epoch, it)| (epoch, it.clone())).collect();
    }
    roll_back(&mut timeline, history, names);
    move_messages(&mut timeline, history, names);
    timeline
}

fn command_exits(history: &History<'_>) -> Vec<CommandExit> {
    let exit = |it: Exit<'_>| CommandExit {
        at: it.at,
        process: it.source.process,
        life: it.source.life,
        ending: it.ending.to_string(),
        said: it.said,
        log: log_of(history, it.source.process, it.source.life),
    };
    let mut all: Vec<CommandExit> = exits(history).into_iter().map(exit).collect();
    all.sort_by_key(|it| it.at);
    all
}

fn stopped_commands(history: &History<'_>) -> Vec<StoppedCommand> {
    let stop = |it: CommandStop<'_>| StoppedCommand {
        at: it.at,
        process: it.process,
        life: it.life,
        how: match it.killed {
            false => format!("ended {} after SIGTERM: {}", lasted(it.latency), it.ending),
            true => {
                format!("did not end, and was killed {} after SIGTERM: {}", lasted(it.latency), it.ending)
            }
        },
        said: it.said,
        log: log_of(history, it.process, it.life),
    };
    let mut all: Vec<StoppedCommand> = stops(history).into_iter().map(stop).collect();
    all.sort_by_key(|it| it.at);
    all
}

/// Returns a timeline that contains only the events of the supervisor.
fn supervised(history: &History<'_>) -> Timeline {
    let supervision = &history.supervision;
    let failures = supervision.ends.iter().map(|it| Failure {
        process: it.process,
        life: it.life,
        at: it.at,
        storage: it.storage,
        detected: it.detected,
        moved: it.moved,
        restarted: it.restarted,
        by: it.by,
    });
    let injected = supervision.injected.iter();
    let damaged = history.damaged.iter();
    let damaged = damaged.map(|&(at, name)| (history.time(at), history.segment(at.segment).host, name));
    let flipped = history.flipped_by().into_iter();
    Timeline {
        damaged: damaged.collect(),
        flipped: flipped
            .map(|(no, (at, it))| (no, (history.time(at), history.segment(at.segment).host, it)))
            .collect(),
        origin: supervision.begun.unwrap_or_default(),
        failures: failures.collect(),
        injections: injected.map(|&(no, fault, at, _)| Injection { no, at, fault: fault.clone() }).collect(),
        changes: supervision.changes.iter().map(|&(at, change)| (at, change.clone())).collect(),
        resumed: supervision.resumed.iter().map(|&(at, process, _)| (at, process)).collect(),
        joined: supervision.joined.clone(),
        leaving: supervision.leaving.clone(),
        left: supervision.left.clone(),
        ..Timeline::default()
    }
}

fn checkpoints(
    history: &History<'_>,
    names: &DisplayNames,
) -> BTreeMap<(RollbackUnit, Position), TimelineCheckpoint> {
    let mut checkpoints: BTreeMap<(RollbackUnit, Position), TimelineCheckpoint> = BTreeMap::new();
    for group in &history.groups {
        for (name, checkpoint) in &group.checkpoints {
            for commit in &checkpoint.commits {
                let Some(unit) = names.unit_of(commit.process) else { continue };
                let key = (unit, name.position);
                let (forced, frozen) = (commit.forced, Span::ZERO);
                let new = || TimelineCheckpoint {
                    forced,
                    committed: BTreeMap::new(),
                    saved: BTreeMap::new(),
                    frozen,
                };
                let of_unit = checkpoints.entry(key).or_insert_with(new);
                of_unit.committed.insert(commit.process, commit.time);
                of_unit.frozen = of_unit.frozen.max(commit.frozen);
            }
        }
    }
    for group in &history.groups {
        for (name, checkpoint) in &group.checkpoints {
            for (&member, part) in group.members.iter().zip(&checkpoint.parts) {
                let Some((witness, _)) = part.witness else { continue };
                let Some(unit) = names.unit_of(member) else { continue };
                if let Some(it) = checkpoints.get_mut(&(unit, name.position)) {
                    let at = instant(history.trace, member, (witness.life, witness.upto.index()));
                    it.saved.insert(member, at);
                }
            }
        }
    }
    checkpoints
}

/// Returns the task counts of a program; `None` if processes exchange messages.
fn tasks(history: &History<'_>) -> Option<Tasks> {
    if let Some(planned) = &history.planned {
        let runs = planned.tasks.values().map(|it| it.ran.len() as u64).filter(|runs| *runs > 0);
        let (tasks, all) = runs.fold((0, 0), |(tasks, all), runs| (tasks + 1, all + runs));
        let rerun = planned.reruns.len() as u64;
        return Some(Tasks { tasks, again: all - tasks + rerun, rerun, stolen: None });
    }
    let stolen = history.tasks.as_ref()?;
    let different: BTreeSet<_> = stolen.ran.iter().collect();
    let merged = stolen.thefts.values().flatten().filter(|it| it.step == TheftStep::Merged);
    Some(Tasks {
        tasks: different.len() as u64,
        again: (stolen.ran.len() - different.len()) as u64,
        rerun: 0,
        stolen: (!stolen.thefts.is_empty()).then(|| merged.count() as u64),
    })
}

/// Adds the work that other processes took over, and the work that was lost.
fn take_over(timeline: &mut Timeline, history: &History<'_>) {
    for it in Returns::new(history).successions() {
        let facts = it.undone.iter().flat_map(|stretch| stretch.facts(history.trace, it.of));
        let (own, elsewhere) = (ran(facts.map(|(_, fact)| fact)), it.elsewhere);
        let tasks = (own.0 + elsewhere.0, own.1 + elsewhere.1);
        if let (Some(at), Some(by)) = (it.at, it.by) {
            let checkpoint = it.image.map(|image| (image.position(), it.to));
            timeline.taken_over.push(Takeover { at, by, of: it.of, from: it.from, checkpoint, tasks });
        }
        timeline.lost_permanently.extend(it.undone.into_iter().map(|stretch| (it.of, stretch)));
    }
}

/// Adds the rollbacks of the units, and the work that they undid.
fn roll_back(timeline: &mut Timeline, history: &History<'_>, names: &DisplayNames) {
    let returns = Returns::new(history);
    let mut rollbacks: BTreeMap<Key, TimelineRollback> = BTreeMap::new();
    let mut undone: Vec<(UndonePeriod, Key)> = Vec::new();
    let mut restored: BTreeMap<Key, (Position, Attempt)> = BTreeMap::new();
    for unit in names.units() {
        for process in names.members(unit) {
            for it in returns.of(process) {
                let key = (unit, it.incarnation);
                let rollback =
                    rollbacks.entry(key).or_insert_with(|| TimelineRollback::new(unit, it.incarnation));
                rollback.checkpoint = it.image.map(|image| image.position());
                if let Some(image) = it.image {
                    restored.insert(key, (image.position(), image.attempt));
                }
                let member = rollback.members.entry(process).or_default();
                member.restored = instant(history.trace, process, it.at);
                member.saved = it.to;
                member.lost = member.lost + it.lost();
                let facts = it.undone.iter().flat_map(|stretch| stretch.facts(history.trace, process));
                let (tasks, cost) = ran(facts.map(|(_, fact)| fact));
                member.tasks = (member.tasks.0 + tasks, member.tasks.1 + cost);
                undone.extend(
                    it.undone.into_iter().map(|stretch| (UndonePeriod { process, stretch, by: 0 }, key)),
                );
            }
        }
    }
    timeline.pauses = returns.pauses().clone();

    // Attempts at checkpoints that a process of the unit discarded.
    let mut was_discarded: BTreeSet<(RollbackUnit, Position, Attempt)> = BTreeSet::new();
    // The time at which each unit first learned that another group had rolled back to a position.
    let mut alerts: BTreeMap<(RollbackUnit, GroupId, Position), Time> = BTreeMap::new();
    for claimed in &history.claims {
        let process = history.segment(claimed.at.segment).host;
        let (Some(unit), at) = (names.unit_of(process), claimed.time) else { continue };
        match claimed.claim {
            Claim::RolledBack { to, cause, .. } => {
                if let Some(rollback) = rollbacks.get_mut(&(unit, to.incarnation)) {
                    rollback.cause = Some(*cause);
                    rollback.members.entry(process).or_default().resumed = Some(at);
                }
            }
            Claim::Alerted { from, position } => {
                let first = alerts.entry((unit, *from, *position)).or_insert(at);
                *first = at.min(*first);
            }
            Claim::Aborted { position, attempt } => {
                was_discarded.insert((unit, *position, *attempt));
            }
            Claim::Unrecoverable { group: of, missing }
                if timeline.unrecoverable.iter().all(|(it, _)| it != of) =>
            {
                let lost = missing.iter().map(|(name, asked)| (history.newest_lost(*name), asked.clone()));
                timeline.unrecoverable.push((*of, lost.collect()));
            }
            _ => {}
        }
    }

    let mut keyed: Vec<_> = rollbacks.into_iter().collect();
    for (key, rollback) in &mut keyed {
        rollback.was_discarded = restored.get(key).is_some_and(|&(position, attempt)| {
            was_discarded.contains(&(key.0, position, attempt))
                && !timeline.checkpoints.contains_key(&(key.0, position))
        });
        let ended = rollback.members.values().map(|it| it.resumed.unwrap_or(it.restored)).max();
        rollback.ended = ended.unwrap_or_default();
        rollback.complete = rollback.members.len() == names.members(rollback.unit).len()
            && rollback.members.values().all(|it| it.resumed.is_some());
    }
    keyed.sort_by_key(|((unit, incarnation), rollback)| (rollback.ended, *unit, *incarnation));
    let places: BTreeMap<Key, usize> =
        keyed.iter().enumerate().map(|(place, (key, _))| (*key, place)).collect();
    timeline.rollbacks = keyed.into_iter().map(|(_, rollback)| rollback).collect();
    timeline.undone =
        undone.into_iter().map(|(undone, key)| UndonePeriod { by: places[&key], ..undone }).collect();
    relate(timeline, names, &places, &alerts);
}

/// Relates rollbacks to the failures that they handle, and to the rollbacks that caused them.
fn relate(
    timeline: &mut Timeline,
    names: &DisplayNames,
    places: &BTreeMap<Key, usize>,
    alerts: &BTreeMap<(RollbackUnit, GroupId, Position), Time>,
) {
    let mut answered = vec![false; timeline.failures.len()];
    for rollback in &mut timeline.rollbacks {
        for (place, failure) in timeline.failures.iter().enumerate() {
            let of_it = names.unit_of(failure.process) == Some(rollback.unit);
            if of_it && failure.at <= rollback.ended && !answered[place] {
                answered[place] = true;
                rollback.failures.push(place);
            }
        }
        let first_restored = rollback.members.values().map(|it| it.restored).min().unwrap_or(rollback.ended);
        let failed = rollback.failures.iter().map(|&it| timeline.failures[it].at).min();
        let alerted = match rollback.cause {
            Some(Cause::Alert { from, position }) => {
                let units = names.units_of(from);
                rollback.because_of =
                    units.iter().find_map(|it| places.get(&(*it, position.incarnation)).copied());
                alerts.get(&(rollback.unit, from, position)).copied()
            }
            Some(Cause::Failure) | None => None,
        };
        rollback.began = failed.into_iter().chain(alerted).min().unwrap_or(first_restored);
    }
    // Clusters that take checkpoints together also roll back together; the rollback of the cluster that failed is the
    // cause.
    for place in 0..timeline.rollbacks.len() {
        let this = &timeline.rollbacks[place];
        if this.failures.is_empty() && this.cause == Some(Cause::Failure) {
            let with = |it: &TimelineRollback| it.incarnation == this.incarnation && !it.failures.is_empty();
            if let Some(leader) = timeline.rollbacks.iter().position(with) {
                let began = timeline.rollbacks[leader].began;
                let this = &mut timeline.rollbacks[place];
                (this.because_of, this.began) = (Some(leader), began);
            }
        }
    }
}

/// Adds the path of every message, stolen task and result.
fn move_messages(timeline: &mut Timeline, history: &History<'_>, names: &DisplayNames) {
    let undoers = Undoers::new(history, &timeline.undone);
    let messages = message_paths(history, &undoers);
    let thefts = theft_paths(history, &undoers);
    for message in history.messages.iter() {
        let endpoints = history.endpoints(message);
        if endpoints != (message.id.from, message.id.to) {
            timeline.moved_endpoints.insert(message.id, endpoints);
        }
    }
    for (id, message) in &messages {
        for &(at, again) in message.transmitted.iter().filter(|_| names.leaves_unit(*id)) {
            let of = names.unit_of(id.to);
            let last = timeline.rollbacks.iter_mut().rev().find(|it| Some(it.unit) == of && it.began <= at);
            if let Some(rollback) = last.filter(|_| again) {
                rollback.resent += 1;
            }
        }
    }
    (timeline.messages, timeline.thefts) = (messages, thefts);
}

/// Finds the rollbacks that undid the steps of messages.
struct Undoers<'a> {
    history: &'a History<'a>,
    undone_of: BTreeMap<ProcessId, Vec<&'a UndonePeriod>>,
}

impl<'a> Undoers<'a> {
    fn new(history: &'a History<'a>, undone: &'a [UndonePeriod]) -> Self {
        let mut undone_of: BTreeMap<ProcessId, Vec<&UndonePeriod>> = BTreeMap::new();
        for it in undone {
            undone_of.entry(it.process).or_default().push(it);
        }
        Undoers { history, undone_of }
    }

    /// Returns the rollback that undid this step, if any.
    fn of(&self, at: Point) -> Option<usize> {
        let segment = self.history.segment(at.segment);
        let place: FactPosition = (segment.life, at.fact as usize);
        let all = self.undone_of.get(&segment.host)?;
        all.iter().find(|it| (it.stretch.from..it.stretch.upto).contains(&place)).map(|it| it.by)
    }
}

fn message_paths(history: &History<'_>, undoers: &Undoers<'_>) -> BTreeMap<MessageId, MessagePath> {
    let again = |of: &[(MessageId, Point)]| {
        let mut by_id: BTreeMap<_, Vec<Point>> = BTreeMap::new();
        of.iter().for_each(|&(id, at)| by_id.entry(id).or_default().push(at));
        by_id
    };
    let (retransmitted, resent) = (again(&history.retransmitted), again(&history.resent));
    let mut messages: BTreeMap<_, MessagePath> = BTreeMap::new();
    for message in history.messages.iter() {
        let sent = message.sent().iter().last().copied();
        let mut way = MessagePath {
            sent: sent.map(|at| history.time(at)),
            send_undone: sent.and_then(|at| undoers.of(at)),
            delivered: message.delivered().iter().map(|&at| (history.time(at), undoers.of(at))).collect(),
            ..MessagePath::default()
        };
        let (more, claimed) = (retransmitted.get(&message.id), resent.get(&message.id));
        if more.is_none() && claimed.is_none() {
            way.transmitted.extend(message.stamp().map(|(_, at)| (history.time(at), false)));
        } else {
            let first = message.stamp().into_iter().map(|(_, at)| (at, false));
            let more = more.into_iter().flatten().map(|&at| (at, false));
            let claimed = claimed.into_iter().flatten().map(|&at| (at, true));
            let mut all: Vec<(Point, bool)> = first.chain(more).chain(claimed).collect();
            all.sort_unstable();
            all.into_iter().for_each(|(at, again)| way.transmit(history.time(at), again));
        }
        messages.insert(message.id, way);
    }
    for &(id, at) in &history.stale {
        messages.entry(id).or_default().stale.push(history.time(at));
    }
    for &(id, at) in &history.resent {
        // This may be the only fact about the message.
        let way = messages.entry(id).or_default();
        if way.transmitted.is_empty() {
            way.transmit(history.time(at), true);
        }
    }
    messages
}

fn theft_paths(history: &History<'_>, undoers: &Undoers<'_>) -> BTreeMap<(Theft, TheftContent), TheftPath> {
    let mut thefts: BTreeMap<(Theft, TheftContent), TheftPath> = BTreeMap::new();
    for (&theft, steps) in history.tasks.iter().flat_map(|it| &it.thefts) {
        for step in steps {
            let (carried, is_sent) = match step.step {
                TheftStep::Shipped => (TheftContent::Task, true),
                TheftStep::Taken => (TheftContent::Task, false),
                TheftStep::Returned => (TheftContent::Result, true),
                TheftStep::Merged => (TheftContent::Result, false),
                _ => continue,
            };
            let TheftPath { from, to, way } = thefts.entry((theft, carried)).or_default();
            let (process, at) = (history.segment(step.at.segment).host, history.time(step.at));
            if is_sent {
                *from = Some(process);
                way.send_undone = undoers.of(step.at);
                way.transmit(at, false);
            } else {
                *to = Some(process);
                way.delivered.push((at, undoers.of(step.at)));
            }
        }
    }
    thefts
}

impl TimelineRollback {
    fn new(unit: RollbackUnit, incarnation: Incarnation) -> Self {
        TimelineRollback {
            unit,
            incarnation,
            checkpoint: None,
            was_discarded: false,
            cause: None,
            members: BTreeMap::new(),
            failures: Vec::new(),
            began: Time::ZERO,
            ended: Time::ZERO,
            because_of: None,
            resent: 0,
            complete: false,
        }
    }
}

impl MessagePath {
    /// Records a transmission. A re-send is reported twice, by the protocol's claim and by the fact of the
    /// transmission; if the two follow each other closely, they are recorded once.
    fn transmit(&mut self, at: Time, again: bool) {
        const TOGETHER: Span = Span::from_millis(1);
        match self.transmitted.last_mut() {
            Some((last, known)) if at.since(*last) <= TOGETHER && *known != again => *known = true,
            _ => self.transmitted.push((at, again)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_history::testing::planned::Partitions;

    #[test]
    fn executions_in_other_processes_than_the_failed_one_count() {
        let mut run = Partitions::new(2);
        let slot = run.checkpoint(0, 1);
        run.executed(0, 1, &[], &[]);
        run.executed(0, 2, &[], &[1]);
        run.executed(1, 3, &[], &[]);
        run.0.kill(1, false);
        run.restored(1, 5, slot);
        run.joined(1, 5, slot);
        run.joined(0, 5, slot);
        run.rerun(0, 1, 1, 5);
        run.rerun(0, 2, 1, 5);
        run.executed(1, 3, &[], &[]);
        // Each partition has also executed a task before the checkpoint.
        let expected = Tasks { tasks: 5, again: 3, rerun: 2, stolen: None };
        assert_eq!(tasks(&run.0.history()), Some(expected));
    }
}
