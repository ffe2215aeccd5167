//! The cost of one run, computed from the facts in the order of virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_checker::recoveries::Recoveries;
use faultline_core::{
    Claim, ClusterId, Fact, FaultNo, ImageName, Position, ProcessId, Span, TaskId, TheftStep, Time,
};
use faultline_session::{Moment, Observer};
use faultline_trace::{Manifest, Record, Trace};
use serde::{Deserialize, Serialize};

/// What one run cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Costs {
    /// Seconds from the start of the application to the end of the run.
    pub seconds: f64,
    /// Committed checkpoints of all processes, without the initial one.
    pub checkpoints: u64,
    /// Checkpoints that a message forced.
    pub forced: u64,
    /// Bytes of application state passed to the storages, including replicas.
    pub checkpoint_bytes: u64,
    /// The number of messages that the application sent.
    pub messages: u64,
    /// Bytes of content of all messages that the application sent.
    pub sent_bytes: u64,
    /// Bytes of content sent from one cluster to another.
    pub between_bytes: u64,
    /// Bytes of content of logged messages that were moved from the memory of their senders to storage.
    pub spilled_bytes: u64,
    /// Costs of a program of tasks; absent where processes exchange messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCosts>,
    /// The number of faults that took effect.
    pub faults: usize,
    /// Outages in the order of their first failures.
    pub outages: Vec<Outage>,
}

/// The cost of a run of a program of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskCosts {
    /// The number of different tasks that were run.
    pub tasks: u64,
    /// Runs of tasks beyond the first run of each.
    pub again: u64,
    /// What these took, in seconds.
    pub again_seconds: f64,
    /// Stolen tasks whose result was used.
    pub thefts: u64,
    /// Tasks that processes which did not fail executed again for those that did.
    pub rerun: u64,
    /// Tasks that these processes would have executed again if all had rolled back.
    pub global: u64,
    /// Processes that did not fail, in all recoveries together.
    pub live: u64,
    /// Of these, those that executed nothing again.
    pub idle: u64,
    /// Messages that coordinated checkpoints.
    pub coordination: u64,
    /// Checkpoints that they coordinated.
    pub coordinated: u64,
}

/// From a failure until all processes have resumed, with all that fails meanwhile, and the rollbacks that follow from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outage {
    /// The number of failed processes.
    pub died: usize,
    /// The number of processes that rolled back.
    pub went_back: usize,
    /// Lost work in seconds, summed over all processes.
    pub lost_seconds: f64,
    /// Seconds from the first failure until the last rolled-back process has resumed; absent if one never
    /// did.
    pub recovery_seconds: Option<f64>,
}

impl Costs {
    /// Computes the cost of a recorded run, by the clocks of its processes.
    pub(crate) fn of(manifest: &Manifest, trace: &Trace) -> Costs {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let mut records: Vec<Record> = trace.records().collect();
        records.sort_by_key(|it| it.at);
        let mut books = CostCounter::new(&NEVER);
        books.begins(manifest);
        records.iter().for_each(|it| books.note(it));
        books.close()
    }
}

/// Computes the cost of one run from its facts.
pub(crate) struct CostCounter<'a> {
    interrupted: &'a AtomicBool,
    /// Clusters by process; [`ClusterId::OUTSIDE`] or beyond the end if the process is not a rank.
    cluster_of: Vec<ClusterId>,
    ranks: Vec<Rank>,
    begun: Option<Time>,
    last: Time,
    costs: Costs,
    /// Faults that were injected and had an effect.
    faults: BTreeSet<FaultNo>,
    outages: Vec<Open>,
    /// Tasks that were run.
    ran: BTreeSet<TaskId>,
    /// Where tasks are assigned in advance, what recoveries cost.
    recoveries: Recoveries,
    /// Checkpoints that messages coordinated.
    coordinated: BTreeSet<Position>,
}

/// The work of one process: time in which its application was neither down nor in recovery.
#[derive(Clone, Debug, Default)]
struct Rank {
    done: Span,
    since: Option<Time>,
    /// The work done when a part of a checkpoint was saved.
    saved: BTreeMap<ImageName, Span>,
}

/// An outage that may be in progress.
#[derive(Clone, Debug)]
struct Open {
    at: Time,
    died: BTreeSet<ProcessId>,
    went_back: BTreeSet<ProcessId>,
    /// Processes that have not resumed yet.
    awaited: BTreeSet<ProcessId>,
    lost: Span,
    went_on: Time,
}

impl<'a> CostCounter<'a> {
    /// Creates the bookkeeper of a run that `interrupted` cuts short.
    pub(crate) fn new(interrupted: &'a AtomicBool) -> CostCounter<'a> {
        CostCounter {
            interrupted,
            cluster_of: Vec::new(),
            ranks: Vec::new(),
            begun: None,
            last: Time::ZERO,
            costs: Costs::default(),
            faults: BTreeSet::new(),
            outages: Vec::new(),
            ran: BTreeSet::new(),
            recoveries: Recoveries::default(),
            coordinated: BTreeSet::new(),
        }
    }

    /// What the run cost.
    pub(crate) fn close(mut self) -> Costs {
        if let Some(tasks) = &mut self.costs.tasks {
            for (_, it) in self.recoveries.all() {
                tasks.rerun += it.again;
                tasks.global += it.since;
                tasks.live += it.live.len() as u64;
                tasks.idle += it.live.difference(&it.busy).count() as u64;
            }
            tasks.coordinated = self.coordinated.len() as u64;
        }
        let outage = |it: Open| Outage {
            died: it.died.len(),
            went_back: it.went_back.len(),
            lost_seconds: it.lost.as_secs_f64(),
            recovery_seconds: it.awaited.is_empty().then(|| it.went_on.since(it.at).as_secs_f64()),
        };
        Costs {
            seconds: self.begun.map_or(0.0, |it| self.last.since(it).as_secs_f64()),
            faults: self.faults.len(),
            outages: self.outages.into_iter().map(outage).collect(),
            ..self.costs
        }
    }

    fn note(&mut self, record: &Record) {
        let Record { process, at, ref fact, .. } = *record;
        self.last = at;
        self.recoveries.note(process, at, fact);
        if let Fact::CheckpointMessage { position, .. } = fact {
            self.coordinated.insert(*position);
            self.costs.tasks.get_or_insert_default().coordination += 1;
        }
        match fact {
            Fact::Begun => {
                self.begun = Some(at);
                self.ranks.iter_mut().for_each(|it| it.resume(at));
            }
            Fact::Injecting { no, .. } => drop(self.faults.insert(*no)),
            Fact::Ineffective { no, .. } => drop(self.faults.remove(no)),
            Fact::Failed { process, .. } => self.failed(*process, at),
            _ if process.index() < self.ranks.len() => self.stated(process, at, fact),
            _ => {}
        }
    }

    fn stated(&mut self, process: ProcessId, at: Time, fact: &Fact) {
        let rank = &mut self.ranks[process.index()];
        match fact {
            Fact::Sent { id, bytes } => {
                let bytes = u64::from(*bytes);
                self.costs.messages += 1;
                self.costs.sent_bytes += bytes;
                let cluster = |it: ProcessId| self.cluster_of[it.index()];
                self.costs.between_bytes += if cluster(id.from) == cluster(id.to) { 0 } else { bytes };
            }
            Fact::Ran { task, cost_us, .. } => {
                let is_new = self.ran.insert(*task);
                let tasks = self.costs.tasks.get_or_insert_default();
                if is_new {
                    tasks.tasks += 1;
                } else {
                    tasks.again += 1;
                    tasks.again_seconds += f64::from(*cost_us) / 1e6;
                }
            }
            Fact::Theft { step: TheftStep::Merged, .. } => {
                self.costs.tasks.get_or_insert_default().thefts += 1;
            }
            // Another process takes over the work of one that failed permanently.
            Fact::Absorbed(absorbed) => {
                let (of, image, _) = &**absorbed;
                let Some(gone) = self.ranks.get_mut(of.index()) else { return };
                let lost = gone.go_back(image.as_ref(), at);
                if let Some(outage) = self.outages.last_mut()
                    && outage.awaited.remove(of)
                {
                    outage.lost = outage.lost + lost;
                    outage.went_on = at;
                }
            }
            // A process that receives is at work, whatever its protocol claimed before.
            Fact::Delivered(_) if self.begun.is_some() => rank.resume(at),
            Fact::Saved(saved) => {
                let (name, _, bytes) = **saved;
                self.costs.checkpoint_bytes += bytes;
                if name.owner == process {
                    let done = rank.done_at(at);
                    // A part that was fetched from a copy is saved once more before it is restored.
                    rank.saved.entry(name).or_insert(done);
                }
            }
            Fact::Restored(restored) => {
                let lost = rank.go_back(restored.0.as_ref(), at);
                if let Some(outage) = self.outages.last_mut() {
                    outage.lost = outage.lost + lost;
                    outage.went_back.insert(process);
                    outage.awaited.insert(process);
                }
            }
            Fact::Claim(claim) => match **claim {
                Claim::Committed { position, forced, .. } if position.sn.0 > 1 => {
                    self.costs.checkpoints += 1;
                    self.costs.forced += u64::from(forced);
                }
                Claim::Spilled { bytes, .. } => self.costs.spilled_bytes += bytes,
                Claim::RecoveryStarted { .. } => rank.stop(at),
                Claim::RolledBack { .. } => {
                    rank.resume(at);
                    if let Some(outage) = self.outages.last_mut() {
                        outage.awaited.remove(&process);
                        outage.went_on = at;
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn failed(&mut self, process: ProcessId, at: Time) {
        // The failure of a process that is not a rank undoes no work by itself.
        let Some(rank) = self.ranks.get_mut(process.index()) else { return };
        rank.stop(at);
        if self.outages.last().is_none_or(|it| it.awaited.is_empty()) {
            let (died, went_back, awaited) = Default::default();
            self.outages.push(Open { at, died, went_back, awaited, lost: Span::ZERO, went_on: at });
        }
        let outage = self.outages.last_mut().expect("there is one now");
        outage.died.insert(process);
        outage.awaited.insert(process);
    }
}

impl Rank {
    fn done_at(&self, at: Time) -> Span {
        self.since.map_or(self.done, |since| self.done + at.since(since))
    }

    fn resume(&mut self, at: Time) {
        self.since.get_or_insert(at);
    }

    fn stop(&mut self, at: Time) {
        self.done = self.done_at(at);
        self.since = None;
    }

    /// Returns to a saved state, or to the initial one. Returns the lost work.
    fn go_back(&mut self, to: Option<&ImageName>, at: Time) -> Span {
        self.stop(at);
        let kept = to.and_then(|it| self.saved.get(it)).copied().unwrap_or_default();
        let lost = Span(self.done.0.saturating_sub(kept.0));
        self.done = kept;
        lost
    }
}

impl Observer for CostCounter<'_> {
    fn begins(&mut self, manifest: &Manifest) {
        self.cluster_of = manifest.ranks().map(|(_, it)| it.cluster).collect();
        self.ranks = vec![Rank::default(); self.cluster_of.len()];
    }

    fn stated(&mut self, record: &Record) {
        self.note(record);
    }

    fn continues(&mut self, _: Moment<'_>) -> bool {
        !self.interrupted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{
        Attempt, Cause, EndedBy, FactNo, Fault, Incarnation, Life, MessageId, Position, Sn, StorageFate,
        Witness,
    };

    static NEVER: AtomicBool = AtomicBool::new(false);

    struct Story(CostCounter<'static>);

    impl Story {
        /// Two clusters of two ranks, and a process outside.
        fn new() -> Story {
            let mut books = CostCounter::new(&NEVER);
            books.cluster_of = [0, 0, 1, 1].map(ClusterId).to_vec();
            books.ranks = vec![Rank::default(); 4];
            let mut story = Story(books);
            story.supervisor(100, Fact::Begun);
            story
        }

        fn state(&mut self, process: ProcessId, at: u64, fact: Fact) {
            let (life, number, at) = (Life(1), FactNo(0), Time(at * 1_000_000_000));
            self.0.note(&Record { process, life, number, at, fact });
        }

        fn supervisor(&mut self, at: u64, fact: Fact) {
            self.state(ProcessId::SUPERVISOR, at, fact);
        }

        fn fails(&mut self, process: u32, at: u64) {
            let process = ProcessId(process);
            self.supervisor(
                at,
                Fact::Failed { process, life: Life(1), storage: StorageFate::Kept, by: EndedBy::Silence },
            );
        }

        fn part(owner: u32) -> ImageName {
            ImageName { owner: ProcessId(owner), incarnation: Incarnation(0), sn: Sn(2), attempt: Attempt(1) }
        }

        fn goes_back(&mut self, process: u32, at: u64) {
            let image = Some(Story::part(process));
            let restored = Box::new((image, Incarnation(1), Witness::default()));
            self.state(ProcessId(process), at, Fact::Restored(restored));
        }

        fn continues(&mut self, process: u32, at: u64) {
            let (to, checkpoint) = (Position::new(1, 2), Position::new(0, 2));
            let vectors = Default::default();
            let claim = Claim::RolledBack { to, checkpoint, cause: Cause::Failure, vectors };
            self.state(ProcessId(process), at, Fact::Claim(Box::new(claim)));
        }
    }

    #[test]
    fn an_outage_ends_when_all_processes_have_resumed() {
        let mut story = Story::new();
        for process in 0..2 {
            let saved = Box::new((Story::part(process), Witness::default(), 50));
            story.state(ProcessId(process), 110, Fact::Saved(saved));
        }
        story.fails(0, 115);
        story.fails(1, 116);
        let fetched = Box::new((Story::part(0), Witness::default(), 50));
        story.state(ProcessId(0), 117, Fact::Saved(fetched));
        story.goes_back(0, 118);
        story.goes_back(1, 118);
        story.continues(0, 119);
        story.fails(0, 120);
        story.goes_back(0, 121);
        story.continues(1, 121);
        story.continues(0, 122);
        // The second outage.
        story.fails(2, 130);
        story.supervisor(140, Fact::Completed);
        let costs = story.0.close();
        let [first, second] = &costs.outages[..] else { panic!("{:?}", costs.outages) };
        assert_eq!((first.died, first.went_back, first.recovery_seconds), (2, 2, Some(7.0)));
        assert_eq!(first.lost_seconds, 5.0 + 6.0 + 1.0, "twice for the process that failed twice");
        assert_eq!((second.died, second.went_back, second.recovery_seconds), (1, 0, None));
        assert_eq!((costs.seconds, costs.checkpoint_bytes), (40.0, 150));
    }

    #[test]
    fn an_outage_ends_when_another_process_takes_over_the_work() {
        let mut story = Story::new();
        let saved = Box::new((Story::part(0), Witness::default(), 50));
        story.state(ProcessId(0), 110, Fact::Saved(saved));
        story.fails(0, 115);
        let absorbed = Box::new((ProcessId(0), Some(Story::part(0)), Witness::default()));
        story.state(ProcessId(1), 117, Fact::Absorbed(absorbed));
        let costs = story.0.close();
        let [outage] = &costs.outages[..] else { panic!("{:?}", costs.outages) };
        assert_eq!((outage.died, outage.went_back, outage.recovery_seconds), (1, 0, Some(2.0)));
        assert_eq!(outage.lost_seconds, 5.0);
    }

    #[test]
    fn tasks_that_run_again_are_counted_apart() {
        let mut story = Story::new();
        for task in [1, 2, 1] {
            let ran = Fact::Ran { task: TaskId(task), spawned: 0, cost_us: 250_000 };
            story.state(ProcessId(0), 101, ran);
        }
        let expected = TaskCosts { tasks: 2, again: 1, again_seconds: 0.25, ..TaskCosts::default() };
        assert_eq!(story.0.close().tasks, Some(expected));
    }

    #[test]
    fn only_faults_with_an_effect_count() {
        let mut story = Story::new();
        for no in [0, 1].map(FaultNo) {
            let fault =
                Box::new(Fault::Crash { process: ProcessId(0), storage: StorageFate::Kept, returns: true });
            story.supervisor(101, Fact::Injecting { no, fault });
        }
        story.supervisor(101, Fact::Ineffective { no: FaultNo(1), reason: "it is dead".into() });
        assert_eq!(story.0.close().faults, 1);
    }

    #[test]
    fn bytes_between_clusters_are_counted_apart() {
        let mut story = Story::new();
        for (to, bytes) in [(1, 10), (2, 7)] {
            let id =
                MessageId { from: ProcessId(0), to: ProcessId(to), incarnation: Incarnation(0), number: 0 };
            story.state(ProcessId(0), 101, Fact::Sent { id, bytes });
        }
        let costs = story.0.close();
        assert_eq!((costs.messages, costs.sent_bytes, costs.between_bytes), (2, 17, 7));
    }

    #[test]
    fn a_restore_to_the_initial_state_loses_all_work_and_a_second_one_nothing_more() {
        let mut story = Story::new();
        story.fails(0, 107);
        for at in [108, 109] {
            let restored = Box::new((None, Incarnation(1), Witness::default()));
            story.state(ProcessId(0), at, Fact::Restored(restored));
        }
        story.continues(0, 110);
        assert_eq!(story.0.close().outages[0].lost_seconds, 7.0);
    }
}
