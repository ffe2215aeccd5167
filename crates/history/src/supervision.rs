//! The supervisor's actions in the order of its facts: starts and ends of lives, injected faults, and changes.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::{Change, StorageFault};
use faultline_core::{ClusterId, EndedBy, Fact, Fault, FaultNo, Life, ProcessId, StorageFate, Time};

/// The end of a life, as the supervisor knows it.
#[derive(Clone, Copy, Debug)]
pub struct LifeEnd {
    /// The process whose life ended.
    pub process: ProcessId,
    /// The life that ended.
    pub life: Life,
    /// The time, by the supervisor's clock.
    pub at: Time,
    /// The supervisor's first fact that states the end.
    pub fact: usize,
    /// Whether the supervisor ended the life, by an injected fault or to fence it.
    pub is_ordered: bool,
    /// The fate of the storage of the process's node, as the supervisor reported it.
    pub storage: StorageFate,
    /// The cause of the end; `None` if the supervisor only detected the end.
    pub by: Option<EndedBy>,
    /// The time at which the supervisor detected and announced the end.
    pub detected: Option<Time>,
    /// The time at which the process moved to a spare node.
    pub moved: Option<Time>,
    /// The time at which the next life was started.
    pub restarted: Option<Time>,
}

impl LifeEnd {
    /// Creates an end that the supervisor neither ordered nor detected.
    fn new(process: ProcessId, life: Life, at: Time, fact: usize) -> LifeEnd {
        LifeEnd {
            process,
            life,
            at,
            fact,
            is_ordered: false,
            storage: StorageFate::Kept,
            by: None,
            detected: None,
            moved: None,
            restarted: None,
        }
    }
}

/// The supervisor's actions, from its own facts.
#[derive(Debug, Default)]
pub struct Supervision<'a> {
    /// Every start of a life: the process, the life, and the supervisor's fact.
    pub starts: Vec<(ProcessId, Life, usize)>,
    /// Every end of a life, in the order of the first fact about it, except [those before the process's cluster
    /// joined](Supervision::ends_before_joining).
    pub ends: Vec<LifeEnd>,
    /// Ends of the lives of processes whose clusters joined later. They are not failures: the processes had
    /// not started, so there was nothing to lose.
    pub ends_before_joining: Vec<LifeEnd>,
    /// Every injected fault, with its time and the supervisor's fact.
    pub injected: Vec<(FaultNo, &'a Fault, Time, usize)>,
    /// Every fault that had no effect, and the reason.
    pub ineffective: Vec<(FaultNo, &'a str)>,
    /// Every life that resumed after its pauses, and when.
    pub resumed: Vec<(Time, ProcessId, Life)>,
    /// Every cluster that joined, and when.
    pub joined: Vec<(Time, ClusterId)>,
    /// Every cluster whose departure was announced, and when.
    pub leaving: Vec<(Time, ClusterId)>,
    /// Every cluster that has left permanently, and when.
    pub left: Vec<(Time, ClusterId)>,
    /// The lives that each fault ended, including those that had already ended.
    ended: BTreeMap<FaultNo, BTreeSet<(ProcessId, Life)>>,
    /// Changes that the user made during the run, in order.
    pub changes: Vec<(Time, &'a Change)>,
    /// The time at which the application began.
    pub begun: Option<Time>,
    /// For each process whose cluster joined during the run, the supervisor's fact that states this.
    joins: BTreeMap<ProcessId, usize>,
    /// The newest life of each process.
    newest: BTreeMap<ProcessId, Life>,
    /// For each process, the supervisor's facts at which the process's storage lost or corrupted data,
    /// ascending. Each comes with the life that ended then, or whose storage corrupted data.
    losses: BTreeMap<ProcessId, Vec<(Life, usize)>>,
    /// For each process, every loss of its storage: the newest life, the time, and the supervisor's fact.
    storage_losses: BTreeMap<ProcessId, Vec<(Life, Time, usize)>>,
}

impl<'a> Supervision<'a> {
    /// Interprets the supervisor's facts. `clusters` lists the ranks of each cluster.
    pub(super) fn new(
        facts: &'a [(Time, Fact)],
        volatile_storage: bool,
        clusters: &[Vec<ProcessId>],
    ) -> Supervision<'a> {
        let mut this = Supervision { joins: joins(facts, clusters), ..Supervision::default() };
        // The time, by the supervisor's clock, until which each process's storage corrupts the data that is read; the
        // maximum time if it does so permanently.
        let mut spoils: BTreeMap<ProcessId, Time> = BTreeMap::new();
        for (number, (at, fact)) in facts.iter().enumerate() {
            match fact {
                Fact::LifeStarted { process, life, .. } => {
                    this.starts.push((*process, *life, number));
                    this.newest.insert(*process, *life);
                    let before = Life(life.0.saturating_sub(1));
                    let ended =
                        this.ends.iter_mut().rev().find(|it| (it.process, it.life) == (*process, before));
                    if let Some(end) = ended {
                        end.restarted = Some(*at);
                    }
                    if spoils.get(process).is_some_and(|until| at <= until) {
                        this.losses.entry(*process).or_default().push((*life, number));
                    }
                }
                Fact::Failed { process, life, storage, by } => {
                    if let Some(no) = by.fault() {
                        this.ended.entry(no).or_default().insert((*process, *life));
                    }
                    if volatile_storage || *storage == StorageFate::Lost {
                        this.lose_storage(*process, *life, *at, number);
                    }
                    this.end(LifeEnd {
                        is_ordered: true,
                        storage: *storage,
                        by: Some(*by),
                        moved: (*by == EndedBy::Moved).then_some(*at),
                        ..LifeEnd::new(*process, *life, *at, number)
                    });
                }
                Fact::Detected { process, life } => {
                    if volatile_storage {
                        this.lose_storage(*process, *life, *at, number);
                    }
                    this.end(LifeEnd { detected: Some(*at), ..LifeEnd::new(*process, *life, *at, number) });
                }
                Fact::Injecting { no, fault } => {
                    this.injected.push((*no, fault, *at, number));
                    let corrupted = match fault.impairs_storage() {
                        Some((process, StorageFault::Corrupt)) => Some((process, fault.until(*at))),
                        // The part may be found damaged at any later time.
                        _ => fault.flips_copy().map(|process| (process, Time::NEVER)),
                    };
                    if let Some((process, until)) = corrupted {
                        spoils.entry(process).and_modify(|it| *it = until.max(*it)).or_insert(until);
                        let life = this.newest.get(&process).copied().unwrap_or_default();
                        this.losses.entry(process).or_default().push((life, number));
                    }
                }
                Fact::Ineffective { no, reason } => this.ineffective.push((*no, reason)),
                Fact::Resumed { process, life } => this.resumed.push((*at, *process, *life)),
                Fact::Joined(cluster) => this.joined.push((*at, *cluster)),
                Fact::Leaving(cluster) => this.leaving.push((*at, *cluster)),
                Fact::Left(cluster) => this.left.push((*at, *cluster)),
                Fact::Changed(change) => this.changes.push((*at, change)),
                Fact::Begun => this.begun = Some(*at),
                _ => {}
            }
        }
        this
    }

    /// Records that a process lost its storage, which may happen again after its life has ended.
    fn lose_storage(&mut self, process: ProcessId, life: Life, at: Time, fact: usize) {
        self.losses.entry(process).or_default().push((life, fact));
        self.storage_losses.entry(process).or_default().push((life, at, fact));
    }

    fn end(&mut self, end: LifeEnd) {
        let has_joined = self.joins.get(&end.process).is_none_or(|joined| *joined < end.fact);
        let ends = if has_joined { &mut self.ends } else { &mut self.ends_before_joining };
        let known = ends.iter_mut().rev().find(|it| (it.process, it.life) == (end.process, end.life));
        match known {
            None => ends.push(end),
            Some(known) => {
                known.detected = known.detected.or(end.detected);
                known.moved = known.moved.or(end.moved);
            }
        }
    }

    /// Returns the lives that a fault ended.
    pub fn ended_by(&self, no: FaultNo) -> &BTreeSet<(ProcessId, Life)> {
        static NONE: BTreeSet<(ProcessId, Life)> = BTreeSet::new();
        self.ended.get(&no).unwrap_or(&NONE)
    }

    /// Returns the processes that have failed permanently, according to the injected faults. `clusters` lists the ranks
    /// of each cluster.
    pub fn gone(&self, clusters: &[Vec<ProcessId>]) -> BTreeSet<ProcessId> {
        let has_effect = |no| !self.ineffective.iter().any(|(it, _)| *it == no);
        let effective = self.injected.iter().filter(|it| it.1.is_permanent() && has_effect(it.0));
        effective.filter_map(|it| it.1.kills()).flat_map(|it| it.processes(clusters)).collect()
    }

    /// Returns the processes that have failed permanently or whose cluster was about to leave. Other processes take
    /// over their work. `clusters` lists the ranks of each cluster.
    pub fn departing(&self, clusters: &[Vec<ProcessId>]) -> BTreeSet<ProcessId> {
        let leaving = self.leaving.iter().filter_map(|(_, cluster)| clusters.get(cluster.index()));
        let mut departing = self.gone(clusters);
        departing.extend(leaving.flatten());
        departing
    }

    /// Returns the processes whose cluster joined during the run. `clusters` lists the ranks of each cluster.
    pub fn joining(&self, clusters: &[Vec<ProcessId>]) -> BTreeSet<ProcessId> {
        let joined = self.joined.iter().filter_map(|(_, cluster)| clusters.get(cluster.index()));
        joined.flatten().copied().collect()
    }

    /// Returns the newest life of `process` that was started.
    pub fn newest_life(&self, process: ProcessId) -> Option<Life> {
        self.newest.get(&process).copied()
    }

    /// Returns the end of a life.
    pub fn end_of(&self, process: ProcessId, life: Life) -> Option<&LifeEnd> {
        let ends = self.ends_before_joining.iter().chain(&self.ends);
        ends.rev().find(|it| (it.process, it.life) == (process, life))
    }

    /// Returns the number of the supervisor's first fact about the end of a life; `usize::MAX` if the life never ended.
    /// Everything that the life did happened before this fact.
    pub fn end_of_life(&self, process: ProcessId, life: Life) -> usize {
        self.end_of(process, life).map_or(usize::MAX, |end| end.fact)
    }

    /// Returns every loss of the storage of `process`, in the supervisor's order: the newest life, the time by the
    /// supervisor's clock, and the number of the supervisor's fact. The life may have ended earlier.
    pub fn storage_losses(&self, process: ProcessId) -> &[(Life, Time, usize)] {
        self.storage_losses.get(&process).map_or(&[], Vec::as_slice)
    }

    /// Returns whether something that `process` had stored in `life` may have been lost or corrupted before the
    /// supervisor's fact `before`.
    pub fn may_have_lost(&self, process: ProcessId, life: Life, before: usize) -> bool {
        self.losses
            .get(&process)
            .is_some_and(|losses| losses.iter().any(|&(in_life, fact)| in_life >= life && fact < before))
    }
}

/// Returns, for each process whose cluster joined during the run, the number of the fact that states this.
fn joins(facts: &[(Time, Fact)], clusters: &[Vec<ProcessId>]) -> BTreeMap<ProcessId, usize> {
    let mut joins = BTreeMap::new();
    for (number, (_, fact)) in facts.iter().enumerate() {
        let Fact::Joined(cluster) = fact else { continue };
        let processes = clusters.get(cluster.index()).into_iter().flatten();
        joins.extend(processes.map(|it| (*it, number)));
    }
    joins
}
