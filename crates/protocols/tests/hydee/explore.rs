//! Random schedules of random programs: any possible event may come next. Processes fail, including the
//! recovery process, even during recoveries and in several clusters at once. Checkpoints are taken at any
//! time.

use std::collections::BTreeSet;

use faultline_checker::Verdict;
use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Application as _, Claim, ClusterId, Digest, ProcessId, Span};
use faultline_protocols::hydee::{Config, Defect, Defects, Hydee};
use faultline_protocols::placement::{Placement, ReplicateTo};
use faultline_workloads::Workload;
use faultline_workloads::exchange::{self, Class};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use crate::harness::Federation as AnyFederation;

type Federation = AnyFederation<Hydee, Workload>;

const CHECKPOINT_EVERY: Span = Span::from_secs(3_600);
const RETRY: Span = Span::from_secs(1);

pub(crate) struct Schedule {
    dice: ChaCha8Rng,
    federation: Federation,
    expected: Vec<(ProcessId, Digest)>,
    ranks: Vec<ProcessId>,
    /// Percentage of failures in which the storage is lost.
    lost_percent: u32,
    /// The process that has lost its storage, and the number of `Protected` claims that it had made before.
    /// No other process loses its storage until this process makes another such claim.
    lost_storage: Option<(ProcessId, usize)>,
    /// Number of faults that may still be injected.
    failures_left: u32,
}

impl Schedule {
    fn new(seed: u64, defects: Defects) -> Schedule {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let shapes: &[&[u32]] =
            &[&[1, 1], &[1, 2], &[2, 1], &[2, 2], &[1, 1, 1], &[2, 2, 2], &[1, 2, 1], &[3, 3]];
        let clusters = pick(&mut dice, shapes);
        let classes: &[&[Class]] = &[
            &[Class::Named],
            &[Class::Gathered],
            &[Class::Polled],
            &[Class::Named, Class::Gathered, Class::Polled],
        ];
        let program = exchange::Config {
            pattern: dice.random_range(0..1_000_000),
            exchanges: pick(&mut dice, &[20, 60, 150]),
            step_cost: Span::from_millis(1),
            classes: pick(&mut dice, classes).to_vec(),
        };
        let config = Config {
            checkpoint_every: vec![Some(CHECKPOINT_EVERY); clusters.len()].into(),
            placement: Placement {
                replicas: 1,
                to: pick(
                    &mut dice,
                    &[ReplicateTo::OtherCluster, ReplicateTo::SameCluster, ReplicateTo::SharedStorage],
                ),
            },
            // Of the schedules that `defects` lists, only those for segments and spilled messages have a log limit.
            log_memory: matches!(seed % 9, 4 | 7).then_some(seed % 5 * 24),
            retry_every: RETRY,
            defects,
        };
        let application = faultline_workloads::Config::Exchange(program.clone());
        let mut federation = Federation::with_application(clusters, config, application);
        if dice.random() {
            federation.let_output_survive();
        }
        let is_rank = |it: &ProcessId| federation.cluster_of(*it) != ClusterId::OUTSIDE;
        let ranks = federation.processes().filter(is_rank).collect();
        let expected = exchange::reference(&program, federation.membership());
        Schedule {
            federation,
            expected,
            ranks,
            lost_percent: pick(&mut dice, &[0, 0, 30]),
            lost_storage: None,
            failures_left: pick(&mut dice, &[1, 3, 6, 12]),
            dice,
        }
    }

    /// Performs one random step.
    fn step(&mut self) {
        let all: Vec<ProcessId> = self.federation.processes().collect();
        let process = pick(&mut self.dice, &all);
        let lives = self.federation.lives(process);
        match self.dice.random_range(0..1000) {
            0..150 if lives && self.federation.can_act(process) => self.federation.compute(process),
            150..180 if lives => self.federation.wake(process, CHECKPOINT_EVERY),
            180..190 if lives => self.kill(process),
            190..193 if lives => self.kill_cluster(process),
            200..260 if !lives => self.federation.advance_return(process),
            _ => {
                self.federation.step_any(|count| self.dice.random_range(0..count));
            }
        }
    }

    fn kill(&mut self, process: ProcessId) {
        if self.failures_left == 0 {
            return;
        }
        self.failures_left -= 1;
        let protected = |federation: &Federation, it| {
            federation.claims(it).filter(|claim| matches!(claim, Claim::Protected)).count()
        };
        if self.lost_storage.is_some_and(|(victim, before)| protected(&self.federation, victim) > before) {
            self.lost_storage = None;
        }
        let may_lose = self.lost_storage.is_none_or(|(victim, _)| victim == process);
        let is_lost = may_lose && self.dice.random_range(0..100) < self.lost_percent;
        if is_lost {
            self.lost_storage = Some((process, protected(&self.federation, process)));
        }
        self.federation.kill(process, if is_lost { Lost } else { Kept });
    }

    fn kill_cluster(&mut self, process: ProcessId) {
        if self.failures_left == 0 {
            return;
        }
        self.failures_left -= 1;
        let cluster = self.federation.cluster_of(process);
        for process in Vec::from_iter(self.federation.processes()) {
            if self.federation.cluster_of(process) == cluster && self.federation.lives(process) {
                self.federation.kill(process, Kept);
            }
        }
    }

    /// Starts all processes, and lets the program finish if it can.
    fn run_until_quiescent(&mut self) {
        for process in self.federation.processes() {
            while !self.federation.lives(process) {
                self.federation.advance_return(process);
            }
        }
        loop {
            self.federation.settle();
            self.federation.pass(RETRY);
            let acts = |it: &ProcessId| self.federation.can_act(*it);
            let Some(process) = self.ranks.iter().copied().find(acts) else { return };
            self.federation.compute(process);
        }
    }

    /// Returns the problems found at the end of the schedule.
    pub(crate) fn problems(&self) -> Vec<String> {
        let judgement = self.federation.judge();
        let mut problems: Vec<String> = Vec::new();
        let mut waits = BTreeSet::new();
        for &(rank, expected) in &self.expected {
            match self.federation.application(rank).result() {
                None => {
                    waits.insert(rank.0);
                }
                Some(result) if result != expected => {
                    problems.push(format!("{rank} computed a wrong result"))
                }
                Some(_) => {}
            }
        }
        let given_up = self
            .ranks
            .iter()
            .any(|&it| self.federation.claims(it).any(|claim| matches!(claim, Claim::Unrecoverable { .. })));
        if !waits.is_empty() && !given_up {
            problems.push(format!("{waits:?} wait forever"));
        }
        if judgement.verdict == Verdict::Fail {
            problems.extend(judgement.reasons);
        }
        problems
    }
}

fn pick<T: Copy>(dice: &mut ChaCha8Rng, from: &[T]) -> T {
    from[dice.random_range(0..from.len())]
}

pub(crate) fn run(seed: u64, defects: Defects) -> Schedule {
    let mut schedule = Schedule::new(seed, defects);
    let steps = pick(&mut schedule.dice, &[300, 900, 2500]);
    (0..steps).for_each(|_| schedule.step());
    schedule.run_until_quiescent();
    schedule
}

/// Returns whether the schedule reveals the defect. A panic in the protocol counts as well.
pub(crate) fn is_found(defect: Defect, seed: u64) -> bool {
    let outcome = std::panic::catch_unwind(|| run(seed, Defects::only(defect)).problems());
    outcome.map_or(true, |problems| !problems.is_empty())
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |it| it.parse().expect("the variable is a number"))
}

/// Tries `EXPLORE_COUNT` seeds (default 300) from `EXPLORE_FROM` (default 0). If any of them fail, the events of the
/// first failed schedule are printed.
#[test]
fn random_schedules_are_clean() {
    let (from, count) = (setting("EXPLORE_FROM", 0), setting("EXPLORE_COUNT", 300));
    let mut failed = Vec::new();
    let mut first = None;
    for seed in from..from + count {
        let schedule = run(seed, Defects::default());
        let problems = schedule.problems();
        if !problems.is_empty() {
            failed.push((seed, problems));
            first.get_or_insert(schedule);
        }
    }
    assert!(failed.is_empty(), "{} of {count}: {failed:#?}", failed.len());
}

/// Prints how often random schedules reveal each defect, and the first seed that reveals it. `defects` lists seeds that
/// must reveal them.
#[test]
#[ignore = "takes a while; prints seeds for `REVEALED_BY`"]
fn how_often_each_defect_is_found() {
    let count = setting("EXPLORE_COUNT", 200);
    let named = std::env::var("EXPLORE_DEFECTS").unwrap_or_default();
    let is_asked_for = |it: &&Defect| named.is_empty() || named.contains(&format!("{it:?}"));
    for &defect in Defect::ALL.iter().filter(is_asked_for) {
        let found: Vec<u64> = (0..count).filter(|&seed| is_found(defect, seed)).collect();
        println!("{defect:?}: {} of {count}, first by {:?}", found.len(), found.first());
    }
}
