//! Builds a history: process by process, then the rollbacks of groups from the actions of their members.

use std::collections::{BTreeMap, BTreeSet};

use faultline_checker::lost::{FactPosition, Return, Returns, instant};
use faultline_checker::recoveries::{Recoveries, Recovery};
use faultline_core::{
    Attempt, Cause, Claim, ClusterId, Fact, ImageName, Incarnation, Life, Position, ProcessId, Span,
    StorageFate, TaskId, Theft, TheftStep, Time,
};
use faultline_trace::Trace;

use super::{
    Carried, Checkpoint, Crossing, Failure, History, Injection, Message, Rollback, TakenOver, Undone,
};
use crate::cast::Cast;

/// Builds the history from `trace` and `cast`.
pub(super) fn build(trace: &Trace, cast: &Cast) -> History {
    let mut history = History::default();
    history.read_supervisor(trace);
    let mut builder = Builder::default();
    let returns = Returns::new(trace);
    for group in cast.groups() {
        for process in cast.members(group) {
            builder.read_returns(trace, group, process, returns.of(process));
            builder.read_process(trace, group, process, &mut history);
        }
    }
    let last = trace.streams.values().filter_map(|stream| stream.last()).map(|(at, _)| *at).max();
    if builder.is_planned {
        history.recoveries = recoveries(trace);
    }
    history.pauses = returns.pauses().clone();
    history.end = last.unwrap_or(history.origin);
    builder.finish(&mut history, cast);
    history
}

/// What each recovery cost, from all facts in the order of time.
fn recoveries(trace: &Trace) -> Vec<(Incarnation, Recovery)> {
    let streams = trace.streams.iter().filter(|((process, _), _)| *process != ProcessId::SUPERVISOR);
    let mut facts: Vec<(Time, ProcessId, &Fact)> = streams
        .flat_map(|(&(process, _), stream)| stream.iter().map(move |(at, fact)| (*at, process, fact)))
        .collect();
    facts.sort_by_key(|it| it.0);
    let mut recoveries = Recoveries::default();
    facts.into_iter().for_each(|(at, process, fact)| recoveries.note(process, at, fact));
    recoveries.all().map(|(epoch, it)| (epoch, it.clone())).collect()
}

impl History {
    fn read_supervisor(&mut self, trace: &Trace) {
        for (at, fact) in trace.supervisor() {
            match fact {
                Fact::Begun => self.origin = *at,
                Fact::Injecting { no, fault } => {
                    self.injections.push(Injection { no: *no, at: *at, fault: (**fault).clone() });
                }
                Fact::Joined(cluster) => self.joined.push((*at, *cluster)),
                Fact::Left(cluster) => self.left.push((*at, *cluster)),
                Fact::Changed(change) => self.changes.push((*at, (**change).clone())),
                Fact::Failed { process, life, storage, by } => {
                    self.failures.push(Failure {
                        process: *process,
                        life: *life,
                        at: *at,
                        storage: *storage,
                        detected: None,
                        restarted: None,
                        by: Some(*by),
                    });
                }
                Fact::Detected { process, life } => match self.failure_of(*process, *life) {
                    Some(failure) => failure.detected = Some(*at),
                    None => self.failures.push(Failure {
                        process: *process,
                        life: *life,
                        at: *at,
                        storage: StorageFate::Kept,
                        detected: Some(*at),
                        restarted: None,
                        by: None,
                    }),
                },
                Fact::LifeStarted { process, life, .. } if life.0 > 1 => {
                    if let Some(failure) = self.failure_of(*process, Life(life.0 - 1)) {
                        failure.restarted = Some(*at);
                    }
                }
                _ => {}
            }
        }
    }

    /// A process has sent or received a stolen task or its result.
    fn cross(&mut self, theft: Theft, step: TheftStep, process: ProcessId, at: Time, place: FactPosition) {
        let (carried, is_sent) = match step {
            TheftStep::Shipped => (Carried::Task, true),
            TheftStep::Taken => (Carried::Task, false),
            TheftStep::Returned => (Carried::Result, true),
            TheftStep::Merged => (Carried::Result, false),
            _ => return,
        };
        let Crossing { from, to, way } = self.thefts.entry((theft, carried)).or_default();
        if is_sent {
            *from = Some(process);
            way.sent_place = Some(place);
            way.transmit(at, false);
        } else {
            *to = Some(process);
            way.delivered.push((at, None));
            way.delivered_places.push(place);
        }
    }

    fn failure_of(&mut self, process: ProcessId, life: Life) -> Option<&mut Failure> {
        self.failures.iter_mut().rev().find(|it| it.process == process && it.life == life)
    }
}

impl Rollback {
    fn new(group: ClusterId, incarnation: Incarnation) -> Self {
        Rollback {
            group,
            incarnation,
            checkpoint: None,
            given_up: false,
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

impl Message {
    /// Handles a transmission. The protocol and the composite both state a re-send, one after the other.
    fn transmit(&mut self, at: Time, again: bool) {
        const TOGETHER: Span = Span::from_millis(1);
        match self.transmitted.last_mut() {
            Some((last, known)) if at.since(*last) <= TOGETHER && *known != again => *known = true,
            _ => self.transmitted.push((at, again)),
        }
    }
}

/// What is collected from each process before rollbacks can be built.
#[derive(Default)]
struct Builder {
    /// Rollbacks by group and new incarnation.
    rollbacks: BTreeMap<(ClusterId, Incarnation), Rollback>,
    /// Undone stretches with the rollback's key.
    undone: Vec<(Undone, (ClusterId, Incarnation))>,
    /// The restored checkpoint and attempt, by group and new incarnation.
    restored: BTreeMap<(ClusterId, Incarnation), (Position, Attempt)>,
    /// Attempts at checkpoints that a process of the group discarded.
    given_up: BTreeSet<(ClusterId, Position, Attempt)>,
    /// Tasks that were run.
    ran: BTreeSet<TaskId>,
    /// Tasks are assigned in advance.
    is_planned: bool,
    /// When each group first heard of another's return to a position.
    alerts: BTreeMap<(ClusterId, ClusterId, Position), Time>,
}

impl Builder {
    fn read_process(&mut self, trace: &Trace, group: ClusterId, process: ProcessId, history: &mut History) {
        let mut saved: BTreeMap<ImageName, Time> = BTreeMap::new();
        for (life, stream) in trace.lives(process) {
            for (index, &(at, ref fact)) in stream.iter().enumerate() {
                let place = (life, index);
                match fact {
                    Fact::Sent { id, .. } => {
                        let message = history.messages.entry(*id).or_default();
                        message.sent = Some(at);
                        message.sent_place = Some(place);
                    }
                    Fact::Transmitted { id, .. } => {
                        history.messages.entry(*id).or_default().transmit(at, false);
                    }
                    Fact::Delivered(id) => {
                        let message = history.messages.entry(*id).or_default();
                        message.delivered.push((at, None));
                        message.delivered_places.push(place);
                    }
                    Fact::Ran { task, .. } => {
                        let tasks = history.tasks.get_or_insert_default();
                        match self.ran.insert(*task) {
                            true => tasks.tasks += 1,
                            false => tasks.again += 1,
                        }
                    }
                    Fact::Planned(_) => self.is_planned = true,
                    Fact::Theft { theft, step, .. } => {
                        history.cross(*theft, *step, process, at, place);
                        let stolen = history.tasks.get_or_insert_default().stolen.get_or_insert_default();
                        *stolen += u64::from(*step == TheftStep::Merged);
                    }
                    Fact::Absorbed(absorbed) => {
                        let (of, image, witness) = **absorbed;
                        let cut = (witness.life, witness.upto.index());
                        let from = image.map(|it| (it.position(), instant(trace, of, cut)));
                        history.taken_over.push(TakenOver { at, by: process, of, from });
                    }
                    Fact::DroppedStale(id) => history.messages.entry(*id).or_default().stale.push(at),
                    Fact::Saved(it) if it.0.owner == process => {
                        saved.insert(it.0, instant(trace, process, (it.1.life, it.1.upto.index())));
                    }
                    Fact::Claim(claim) => match &**claim {
                        Claim::RolledBack { to, cause, .. } => {
                            if let Some(rollback) = self.rollbacks.get_mut(&(group, to.incarnation)) {
                                rollback.cause = Some(*cause);
                                rollback.members.entry(process).or_default().resumed = Some(at);
                            }
                        }
                        Claim::Alerted { from, position } => {
                            let first = self.alerts.entry((group, *from, *position)).or_insert(at);
                            *first = at.min(*first);
                        }
                        Claim::Resent { id } => history.messages.entry(*id).or_default().transmit(at, true),
                        Claim::Aborted { position, attempt } => {
                            self.given_up.insert((group, *position, *attempt));
                        }
                        Claim::Committed { position, forced, frozen, .. } => {
                            let checkpoint =
                                history.checkpoints.entry((group, *position)).or_insert_with(|| Checkpoint {
                                    forced: *forced,
                                    committed: BTreeMap::new(),
                                    saved: BTreeMap::new(),
                                    frozen: Span::ZERO,
                                });
                            checkpoint.committed.insert(process, at);
                            checkpoint.frozen = checkpoint.frozen.max(*frozen);
                        }
                        Claim::Unrecoverable { cluster: group, missing }
                            if history.unrecoverable.iter().all(|(it, _)| it != group) =>
                        {
                            history.unrecoverable.push((*group, missing.clone()));
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
        }
        for (image, at) in saved {
            if let Some(checkpoint) = history.checkpoints.get_mut(&(group, image.position())) {
                checkpoint.saved.insert(process, at);
            }
        }
    }

    fn read_returns(&mut self, trace: &Trace, group: ClusterId, process: ProcessId, returns: Vec<Return>) {
        for it in returns {
            let key = (group, it.incarnation);
            let rollback = self.rollbacks.entry(key).or_insert_with(|| Rollback::new(group, it.incarnation));
            rollback.checkpoint = it.image.map(|image| image.position());
            if let Some(image) = it.image {
                self.restored.insert(key, (image.position(), image.attempt));
            }
            let member = rollback.members.entry(process).or_default();
            member.restored = instant(trace, process, it.at);
            member.saved = it.to;
            member.lost = member.lost + it.lost();
            for (_, fact) in it.undone.iter().flat_map(|stretch| stretch.facts(trace, process)) {
                if let Fact::Ran { cost_us, .. } = fact {
                    let (tasks, cost) = member.tasks;
                    member.tasks = (tasks + 1, cost + Span::from_micros((*cost_us).into()));
                }
            }
            self.undone
                .extend(it.undone.into_iter().map(|stretch| (Undone { process, stretch, by: 0 }, key)));
        }
    }

    fn finish(self, history: &mut History, cast: &Cast) {
        let mut keyed: Vec<_> = self.rollbacks.into_iter().collect();
        for (key, rollback) in &mut keyed {
            rollback.given_up = self.restored.get(key).is_some_and(|&(position, attempt)| {
                self.given_up.contains(&(key.0, position, attempt))
                    && !history.checkpoints.contains_key(&(key.0, position))
            });
            rollback.ended = rollback
                .members
                .values()
                .map(|it| it.resumed.unwrap_or(it.restored))
                .max()
                .unwrap_or_default();
            rollback.complete = rollback.members.len() == cast.members(rollback.group).len()
                && rollback.members.values().all(|it| it.resumed.is_some());
        }
        keyed.sort_by_key(|((group, incarnation), rollback)| (rollback.ended, *group, *incarnation));
        history.taken_over.sort_by_key(|it| (it.at, it.of));
        let places: BTreeMap<_, _> =
            keyed.iter().enumerate().map(|(place, (key, _))| (*key, place)).collect();
        history.rollbacks = keyed.into_iter().map(|(_, rollback)| rollback).collect();
        history.undone =
            self.undone.into_iter().map(|(undone, key)| Undone { by: places[&key], ..undone }).collect();

        let mut answered = vec![false; history.failures.len()];
        for rollback in &mut history.rollbacks {
            for (place, failure) in history.failures.iter().enumerate() {
                let of_it = cast.group_of(failure.process) == rollback.group;
                if of_it && failure.at <= rollback.ended && !answered[place] {
                    answered[place] = true;
                    rollback.failures.push(place);
                }
            }
            let first_restored =
                rollback.members.values().map(|it| it.restored).min().unwrap_or(rollback.ended);
            let failed = rollback.failures.iter().map(|&it| history.failures[it].at).min();
            let alerted = match rollback.cause {
                Some(Cause::Alert { from, position }) => {
                    rollback.because_of = places.get(&(from, position.incarnation)).copied();
                    self.alerts.get(&(rollback.group, from, position)).copied()
                }
                Some(Cause::Failure) | None => None,
            };
            rollback.began = failed.into_iter().chain(alerted).min().unwrap_or(first_restored);
        }
        // Clusters that take checkpoints together also roll back together: with the one that failed.
        for place in 0..history.rollbacks.len() {
            let this = &history.rollbacks[place];
            if this.failures.is_empty() && this.cause == Some(Cause::Failure) {
                let with = |it: &Rollback| it.incarnation == this.incarnation && !it.failures.is_empty();
                if let Some(leader) = history.rollbacks.iter().position(with) {
                    let began = history.rollbacks[leader].began;
                    let this = &mut history.rollbacks[place];
                    (this.because_of, this.began) = (Some(leader), began);
                }
            }
        }

        let mut undone_of: BTreeMap<ProcessId, Vec<&Undone>> = BTreeMap::new();
        for undone in &history.undone {
            undone_of.entry(undone.process).or_default().push(undone);
        }
        let undoer = |process: ProcessId, place: FactPosition| {
            undone_of
                .get(&process)?
                .iter()
                .find(|it| (it.stretch.from..it.stretch.upto).contains(&place))
                .map(|it| it.by)
        };
        for Crossing { from, to, way } in history.thefts.values_mut() {
            way.send_undone = from.zip(way.sent_place).and_then(|(from, place)| undoer(from, place));
            let Some(to) = *to else { continue };
            for (place, (_, undone)) in way.delivered_places.iter().zip(&mut way.delivered) {
                *undone = undoer(to, *place);
            }
        }
        for (id, message) in &mut history.messages {
            message.send_undone = message.sent_place.and_then(|place| undoer(id.from, place));
            for (place, (_, undone)) in message.delivered_places.iter().zip(&mut message.delivered) {
                *undone = undoer(id.to, *place);
            }
            for &(at, again) in message.transmitted.iter().filter(|_| cast.leaves_group(*id)) {
                let of = cast.group_of(id.to);
                let last = history.rollbacks.iter_mut().rev().find(|it| it.group == of && it.began <= at);
                if let Some(rollback) = last.filter(|_| again) {
                    rollback.resent += 1;
                }
            }
        }
    }
}
