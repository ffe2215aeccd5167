//! The history of a task-based program: the tasks that each process had, had lent, or owed at every cut, derived from
//! the facts.
//!
//! A process has *parts*: the program itself, and one for each task that it stole. A task that runs leaves
//! its part, and the tasks that it spawned enter the part. A stolen task leaves the victim's part, and its
//! result accounts for all tasks that descend from it. This module shares nothing with the runtime except the
//! naming of tasks ([`TaskId::child`]).
//!
//! A cursor follows each stream. If a state depends on that of another process (because of a result or an absorbed
//! state), the cursor waits until the cursor of the other process has reached it. The pass is therefore linear in the
//! number of facts.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{Fact, ImageName, Life, ProcessId, Promise, TaskId, Theft, TheftStep, Witness};
use faultline_trace::Stream;

use crate::groups::{Checkpoint, CheckpointName};
use crate::history::History;
use crate::segments::{Point, SegmentNo, Sums};

/// The history of a task-based program.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    /// Every step of every theft, in the order of processes and lives.
    pub thefts: BTreeMap<Theft, Vec<Step>>,
    /// Every absorption of a permanently failed process's state, in the order of processes and lives.
    pub absorptions: Vec<Absorption>,
    /// Facts that are impossible given the tasks that their process had, each with the reason.
    pub impossible: Vec<(Point, ImpossibleFact)>,
    /// Every end of the program, as reported by the process that ended it.
    pub ends: Vec<End>,
    /// The total number of tasks run and results merged.
    pub moves: u64,
    /// Every task that was run, once for each execution.
    pub ran: Vec<TaskId>,
    /// The contents of each cut that a witness names; `None` if unknown.
    contained: BTreeMap<Cut, Option<Sums>>,
}

/// One step of a theft.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The fact that states the step.
    pub at: Point,
    /// The kind of step.
    pub step: TheftStep,
    /// The stolen task.
    pub task: TaskId,
}

/// The absorption of a permanently failed process's state.
#[derive(Clone, Copy, Debug)]
pub struct Absorption {
    /// The fact that states the absorption.
    pub at: Point,
    /// The process whose state was absorbed.
    pub of: ProcessId,
    /// The absorbed image; `None` if the initial state of the process, or nothing, was absorbed.
    pub image: Option<ImageName>,
    /// The self-reported contents of the state.
    pub witness: Witness,
}

/// The reason why a fact is impossible, given the tasks that its process had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the comment on each variant explains its fields")]
pub enum ImpossibleFact {
    /// The process ran a task that it did not have.
    Ran { task: TaskId },
    /// The process lent a task that it did not have.
    Lent { task: TaskId },
    /// The process sent a task that it had not lent.
    Sent { task: TaskId, theft: Theft },
    /// The process received a task twice for one theft.
    TookTwice { task: TaskId, theft: Theft },
    /// The process used the result of a task that it had not lent.
    Merged { task: TaskId, theft: Theft },
    /// The process took back a task that it had not lent.
    TookBack { task: TaskId },
    /// The process dropped a task that it did not have.
    Dropped { task: TaskId },
    /// The process completed or returned a task for which it owed nothing.
    OwedNothing { task: TaskId, theft: Theft },
    /// The process completed or returned a stolen task although some of its tasks had not ended.
    Unfinished { task: TaskId, theft: Theft, returned: bool, left: u64 },
    /// The process ended the program although some of its tasks had not ended.
    EndedEarly { left: u64 },
    /// The process ended the program without working on it.
    EndedNothing,
    /// The process absorbed a state of which it already had a part.
    AbsorbedTwice { of: ProcessId, theft: Theft },
}

/// An end of the program.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The fact that states the end.
    pub at: Point,
    /// The self-reported contents of the result.
    pub reported: Sums,
    /// The contents according to the facts; `None` if unknown.
    pub found: Option<Sums>,
}

/// A cut as witnesses name it: a process, one of its lives, and the number of facts of that life before the cut.
type Cut = (ProcessId, Life, u64);

impl Tasks {
    pub(super) fn is_empty(&self) -> bool {
        self.thefts.is_empty() && self.moves == 0
    }

    /// Returns the contents of the state that `witness` names; `None` if unknown.
    pub fn contained(&self, owner: ProcessId, witness: &Witness) -> Option<Sums> {
        self.contained.get(&(owner, witness.life, witness.upto.0)).copied().flatten()
    }

    /// Returns the steps of one kind in a theft.
    pub fn steps(&self, theft: Theft, step: TheftStep) -> impl Iterator<Item = Step> + '_ {
        self.thefts.get(&theft).into_iter().flatten().copied().filter(move |it| it.step == step)
    }
}

/// The tasks that a process has.
#[derive(Clone, Debug, Default)]
struct TaskState {
    parts: BTreeMap<Theft, Part>,
    /// Lent tasks, with the part to which each belongs.
    loans: BTreeMap<Theft, (Theft, TaskId)>,
    /// Whether the contents are unknown because facts are missing.
    is_unknown: bool,
    /// Whether two parts had the same task when it was run or lent. No fact states to which part the task belonged, so
    /// the change may have been recorded in the wrong part.
    is_mixed: bool,
}

/// The tasks that result from one theft, or from the program itself.
#[derive(Clone, Debug, Default)]
struct Part {
    /// Tasks that have neither run nor been lent.
    open: BTreeSet<TaskId>,
    lent: u32,
    /// The tasks spawned and run.
    sums: Sums,
    /// Whether the sums are unknown, because executions of some task in the part differ.
    is_vague: bool,
}

impl Part {
    fn is_done(&self) -> bool {
        self.open.is_empty() && self.lent == 0
    }

    fn spawn(&mut self, task: TaskId, children: u32) {
        for child in (0..children).map(|index| task.child(index)) {
            self.sums.sent = self.sums.sent.wrapping_add(child.0);
            self.open.insert(child);
        }
    }
}

impl TaskState {
    fn sums(&self) -> Option<Sums> {
        let is_known = !self.is_unknown && self.parts.values().all(|it| !it.is_vague);
        let add = |sum: Sums, it: &Part| sum.plus(it.sums);
        is_known.then(|| self.parts.values().fold(Sums::default(), add))
    }

    /// Returns the part in which a task may run; the first, if there are several.
    fn part_with(&mut self, task: TaskId) -> Option<(Theft, &mut Part)> {
        let mut with = self.parts.iter_mut().filter(|(_, part)| part.open.contains(&task));
        let first = with.next();
        self.is_mixed |= with.next().is_some();
        first.map(|(theft, part)| (*theft, part))
    }
}

/// The position of the pass within the facts of one process.
struct Cursor<'a> {
    process: ProcessId,
    lives: Vec<(Life, &'a Stream)>,
    life: usize,
    fact: u32,
    segment: u32,
    state: TaskState,
}

struct Pass<'h, 'a> {
    history: &'h History<'a>,
    tasks: Tasks,
    has_lost_states: bool,
    /// Cuts at which the state is needed.
    wanted: BTreeSet<Cut>,
    states: BTreeMap<Cut, TaskState>,
    /// The contents of results; more than one entry if executions differ.
    results: BTreeMap<Theft, Vec<Sums>>,
    /// Thefts whose results were found to differ.
    differing: BTreeSet<Theft>,
}

/// Follows every stream. `tasks` contains the thefts and absorptions.
pub(super) fn follow(history: &History<'_>, tasks: Tasks) -> Tasks {
    let of_witness = |owner: ProcessId, it: &Witness| (owner, it.life, it.upto.0);
    let stated = history.witnessed.iter().map(|it| of_witness(it.owner, &it.witness));
    let wanted: BTreeSet<Cut> = stated.collect();
    let mut differing = BTreeSet::new();
    let has_lost_states = has_lost_states(history, &tasks);
    loop {
        let mut pass = Pass {
            history,
            tasks: tasks.clone(),
            has_lost_states,
            wanted: wanted.clone(),
            states: BTreeMap::new(),
            results: BTreeMap::new(),
            differing: differing.clone(),
        };
        pass.run();
        let all = pass.results.iter().filter(|(_, found)| found.len() > 1);
        let found: BTreeSet<Theft> = all.map(|(theft, _)| *theft).collect();
        // Repeats the pass if it found further results that differ: no fact states which of them was merged.
        if found.is_subset(&differing) {
            let sums = |state: &TaskState| state.sums().filter(|_| !pass.is_mixed(state));
            let contained = pass.states.iter().map(|(cut, state)| (*cut, sums(state))).collect();
            pass.tasks.contained = contained;
            return pass.tasks;
        }
        differing.extend(found);
    }
}

/// Returns whether a process continued from a state older than one that had been durable, or whether another process
/// absorbed such a state.
fn has_lost_states(history: &History<'_>, tasks: &Tasks) -> bool {
    let is_newest = |process: ProcessId, life: Life, from: Option<CheckpointName>| {
        let Some((group, place)) = history.member(process) else { return true };
        let is_durable = |checkpoint: &Checkpoint<'_>| !checkpoint.parts[place].copies.is_empty();
        let all = history.groups[group].checkpoints.iter();
        let mut durable =
            all.filter(|(name, it)| name.position.incarnation < life.incarnation() && is_durable(it));
        durable.all(|(name, _)| Some(*name) <= from)
    };
    let mut restores =
        history.groups.iter().flat_map(|it| it.rollbacks.values()).flat_map(|it| it.restores());
    let has_restored_newest = restores.all(|it| {
        let point = history.source(it.at);
        is_newest(point.process, point.life, it.checkpoint)
    });
    let mut absorbed = tasks.absorptions.iter();
    let end = Life(u32::MAX);
    !has_restored_newest || !absorbed.all(|it| is_newest(it.of, end, it.image.map(CheckpointName::from)))
}

impl<'a> Pass<'_, 'a> {
    fn run(&mut self) {
        let mut cursors: Vec<Cursor<'a>> = Vec::new();
        for (index, process) in self.history.processes.iter().enumerate() {
            let id = ProcessId(index as u32);
            let lives = self.history.trace.lives(id).filter(|(_, stream)| !stream.is_empty());
            let state = TaskState::default();
            let lives = lives.collect();
            let segment = process.segments.start;
            cursors.push(Cursor { process: id, lives, life: 0, fact: 0, segment, state });
        }
        loop {
            let mut has_moved = false;
            cursors.retain_mut(|cursor| {
                let before = (cursor.life, cursor.fact);
                let continues = self.advance(cursor, false);
                has_moved |= before != (cursor.life, cursor.fact);
                continues
            });
            if cursors.is_empty() {
                return;
            }
            // The facts for which all cursors wait are missing.
            if !has_moved {
                let continues = self.advance(&mut cursors[0], true);
                if !continues {
                    cursors.remove(0);
                }
            }
        }
    }

    /// Advances a cursor as far as possible, and returns whether any facts remain. If `is_missing` is true, the fact
    /// for which the cursor waits is missing from the trace.
    fn advance(&mut self, cursor: &mut Cursor<'a>, mut is_missing: bool) -> bool {
        while let Some(&(life, stream)) = cursor.lives.get(cursor.life) {
            loop {
                let cut = (cursor.process, life, u64::from(cursor.fact));
                if self.wanted.contains(&cut) && !self.states.contains_key(&cut) {
                    self.states.insert(cut, cursor.state.clone());
                }
                let Some((_, fact)) = stream.get(cursor.fact as usize) else { break };
                let at = self.point(cursor, life);
                if !self.apply(cursor, at, fact, is_missing) {
                    return true;
                }
                is_missing = false;
                cursor.fact += 1;
            }
            (cursor.life, cursor.fact) = (cursor.life + 1, 0);
            cursor.state = TaskState::default();
        }
        false
    }

    fn point(&self, cursor: &mut Cursor<'a>, life: Life) -> Point {
        let own = self.history.processes[cursor.process.index()].segments.end;
        let begins = |no: u32| {
            let next = &self.history.segments[no as usize];
            (next.life, next.begin) <= (life, cursor.fact)
        };
        while cursor.segment + 1 < own && begins(cursor.segment + 1) {
            cursor.segment += 1;
        }
        Point { segment: SegmentNo(cursor.segment), fact: cursor.fact }
    }

    /// Applies a fact to the state. Returns `false` if the cursor must wait for another process's cursor.
    fn apply(&mut self, cursor: &mut Cursor<'a>, at: Point, fact: &Fact, is_missing: bool) -> bool {
        let state = &mut cursor.state;
        match fact {
            Fact::Ran { task, spawned, .. } => {
                self.tasks.moves += 1;
                if *task == TaskId::MAIN {
                    state.parts.entry(Theft::NONE).or_default().spawn(*task, *spawned);
                } else if let Some((_, part)) = state.part_with(*task) {
                    part.open.remove(task);
                    part.sums.delivered = part.sums.delivered.wrapping_add(task.0);
                    part.spawn(*task, *spawned);
                } else {
                    self.impossible(state, at, ImpossibleFact::Ran { task: *task });
                }
            }
            Fact::Theft { theft, task, step } => {
                return self.step(state, at, *theft, *task, *step, is_missing);
            }
            Fact::Restored(restored) => {
                let (name, _, witness) = &**restored;
                *state = match name {
                    None => TaskState::default(),
                    Some(_) => self.state_of(cursor.process, witness).unwrap_or_else(TaskState::unknown),
                };
            }
            Fact::Absorbed(absorbed) => {
                let (of, name, witness, _) = &**absorbed;
                if name.is_none() {
                    return true;
                }
                let Some(other) = self.state_of(*of, witness) else {
                    state.is_unknown |= is_missing;
                    return is_missing;
                };
                let twice = other.parts.keys().find(|it| state.parts.contains_key(it)).copied();
                state.parts.extend(other.parts);
                state.loans.extend(other.loans);
                state.is_unknown |= other.is_unknown;
                if let Some(theft) = twice {
                    let of = *of;
                    self.impossible(state, at, ImpossibleFact::AbsorbedTwice { of, theft });
                }
            }
            Fact::Finished(finished) => {
                let Witness { sent, delivered, .. } = finished.0;
                let reported = Sums { sent, delivered };
                match state.parts.get(&Theft::NONE) {
                    _ if reported == Sums::default() || state.is_unknown => {}
                    Some(part) if part.is_done() => {
                        let found = (!part.is_vague).then_some(part.sums);
                        self.tasks.ends.push(End { at, reported, found });
                    }
                    Some(_) if self.is_mixed(state) => {
                        self.tasks.ends.push(End { at, reported, found: None })
                    }
                    Some(part) => {
                        let left = part.open.len() as u64 + u64::from(part.lent);
                        self.impossible(state, at, ImpossibleFact::EndedEarly { left });
                    }
                    None => self.impossible(state, at, ImpossibleFact::EndedNothing),
                }
            }
            _ => {}
        }
        true
    }

    fn step(
        &mut self,
        state: &mut TaskState,
        at: Point,
        theft: Theft,
        task: TaskId,
        step: TheftStep,
        is_missing: bool,
    ) -> bool {
        match step {
            TheftStep::Lent => match state.part_with(task) {
                Some((of, part)) => {
                    part.open.remove(&task);
                    part.lent += 1;
                    state.loans.insert(theft, (of, task));
                }
                None => self.impossible(state, at, ImpossibleFact::Lent { task }),
            },
            TheftStep::Shipped => {
                if !state.loans.contains_key(&theft) {
                    self.impossible(state, at, ImpossibleFact::Sent { task, theft });
                }
            }
            TheftStep::Taken => {
                let part = Part { open: [task].into(), ..Part::default() };
                if state.parts.insert(theft, part).is_some() {
                    self.impossible(state, at, ImpossibleFact::TookTwice { task, theft });
                }
            }
            TheftStep::Done | TheftStep::Returned => self.ended(state, at, theft, task, step),
            TheftStep::Merged => {
                let Some((of, _)) = state.loans.get(&theft).copied() else {
                    self.impossible(state, at, ImpossibleFact::Merged { task, theft });
                    return true;
                };
                // After an absorption, both sides of the theft may be in this process.
                let own = state.parts.get(&theft).filter(|it| it.is_done() && !it.is_vague).map(|it| it.sums);
                let found = own.or_else(|| self.results.get(&theft).and_then(|it| it.first()).copied());
                if found.is_none() && !is_missing {
                    return false;
                }
                state.loans.remove(&theft);
                self.tasks.moves += 1;
                let is_vague = found.is_none() || self.differing.contains(&theft);
                if let Some(part) = state.parts.get_mut(&of) {
                    part.lent = part.lent.saturating_sub(1);
                    part.sums = part.sums.plus(found.unwrap_or_default());
                    part.is_vague |= is_vague;
                }
            }
            TheftStep::Voided => match state.loans.remove(&theft) {
                Some((of, task)) => {
                    if let Some(part) = state.parts.get_mut(&of) {
                        part.lent = part.lent.saturating_sub(1);
                        part.open.insert(task);
                    }
                }
                None => self.impossible(state, at, ImpossibleFact::TookBack { task }),
            },
            TheftStep::Forgotten => match state.parts.remove(&theft) {
                Some(part) if part.is_done() => {}
                Some(_) => state.loans.retain(|_, (of, _)| *of != theft),
                None => self.impossible(state, at, ImpossibleFact::Dropped { task }),
            },
            TheftStep::Receipted => {}
        }
        true
    }

    /// Handles a fact that reports a stolen task as complete or returned.
    fn ended(&mut self, state: &TaskState, at: Point, theft: Theft, task: TaskId, step: TheftStep) {
        let Some(part) = state.parts.get(&theft) else {
            return self.impossible(state, at, ImpossibleFact::OwedNothing { task, theft });
        };
        let (is_done, is_mixed) = (part.is_done(), self.is_mixed(state));
        if is_done || is_mixed {
            let is_vague = part.is_vague || !is_done;
            let found = self.results.entry(theft).or_default();
            if is_vague {
                self.differing.insert(theft);
            }
            if found.is_empty() || !is_vague && !found.contains(&part.sums) {
                found.push(part.sums);
            }
            return;
        }
        let left = part.open.len() as u64 + u64::from(part.lent);
        let returned = step != TheftStep::Done;
        self.impossible(state, at, ImpossibleFact::Unfinished { task, theft, returned, left });
    }

    /// Returns whether the parts of a state cannot be told apart. Under a protocol that stores nothing, tasks
    /// that a failed process had stolen run again, possibly in parallel with the first execution. If tasks are lent
    /// only after they have become durable, a process has a task twice only if durable states were lost.
    fn is_mixed(&self, state: &TaskState) -> bool {
        let is_first = self.history.context.promises.include(Promise::CheckpointedFirst);
        state.is_mixed && (!is_first || self.has_lost_states)
    }

    fn state_of(&self, owner: ProcessId, witness: &Witness) -> Option<TaskState> {
        self.states.get(&(owner, witness.life, witness.upto.0)).cloned()
    }

    fn impossible(&mut self, state: &TaskState, at: Point, what: ImpossibleFact) {
        if !state.is_unknown && !self.is_mixed(state) {
            self.tasks.impossible.push((at, what));
        }
    }
}

impl TaskState {
    fn unknown() -> TaskState {
        TaskState { is_unknown: true, ..TaskState::default() }
    }
}
