//! Measures the coverage of many trials: the faults injected, the states of the protocol in which they struck, and
//! their effects.
//!
//! The measurements are derived only from facts, and therefore in the same way for every protocol with the same claims.
//! All processes of a simulation share one clock, so the facts of a run are totally ordered.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use faultline_api::resource::{Family, ProtocolSpec, SharedOptions};
use faultline_checker::{Judgement, Property, Verdict};
use faultline_core::fault::Outcome;
use faultline_core::{Cause, Claim, ClusterId, Fact, FactKind, Fault, ProcessId, Scope, StorageFate, Time};
use faultline_trace::Manifest;
use serde::{Deserialize, Serialize};

use crate::directed::{MomentCoverage, MomentShares};
use crate::scenario::Scenario;
use crate::trial::{Repetition, Trial, is_out_of_memory};

/// The state of a cluster according to the claims of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The cluster has no checkpoint yet.
    Starting,
    /// The application is running.
    Working,
    /// The cluster is taking a checkpoint.
    Checkpointing,
    /// One of the cluster's processes has failed, and no recovery has started.
    Down,
    /// The cluster is recovering.
    Recovering,
}

impl State {
    /// All states, in the order of a run.
    pub const ALL: [State; 5] =
        [State::Starting, State::Working, State::Checkpointing, State::Down, State::Recovering];
}

/// A name in the coverage: a constant, or read from the state of an interrupted search.
pub type CoverageName = Cow<'static, str>;

/// The outcome of a run that reached the limit of events.
pub(crate) const INTERRUPTED: &str = "interrupted";
/// The outcome of a run in which all replicas of a part were lost.
pub(crate) const UNRECOVERABLE: &str = "unrecoverable";
/// The outcome of a run that reached the memory limit of the program.
const OUT_OF_MEMORY: &str = "out of memory";

/// The results of a trial, excluding its trace.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The seed of the scenario.
    pub seed: u64,
    /// The checker's verdict.
    pub verdict: Verdict,
    /// The violated properties.
    pub violated: Vec<Property>,
    /// The properties that should have been judged but could not be.
    pub unjudged: Vec<Property>,
    /// The properties of which the run contained instances.
    pub exercised: Vec<Property>,
    /// The comparison of a second run with the first; `None` if there was no second run, or if either run reached the
    /// memory limit.
    pub repetition: Option<Repetition>,
    /// The contents of the memory, as a sentence, if the run reached the memory limit of the program.
    pub filled_memory: Option<String>,
    /// The scenario, if it was directed by the coverage of the search and its seed alone therefore does not determine
    /// it.
    pub directed: Option<Box<Scenario>>,
    moments: MomentCoverage,
    outcome: &'static str,
    protocol: CoverageName,
    /// The number of simulator events.
    events: u64,
    salted: bool,
    cascading: bool,
    failed_in_recovery: bool,
    stated: BTreeMap<FactKind, u64>,
    hits: Vec<(CoverageName, State)>,
}

/// Returns the first violation that counts as detecting a defect of this protocol. Waste does not count. A different
/// result counts only for task-based programs, and only if no other violation counts: in many other scenarios, the
/// application has no reference result.
pub(crate) fn decisive_violation(
    protocol: &str,
    violated: impl Iterator<Item = Property> + Clone,
) -> Option<Property> {
    let of_tasks = || {
        let options = ProtocolSpec::named(protocol, SharedOptions::default());
        options.and_then(|it| it.family()) == Some(Family::Tasks)
    };
    let is_result = |it: &Property| *it == Property::SameResult;
    violated
        .clone()
        .find(|it| !is_result(it) && !it.is_of_economy())
        .or_else(|| violated.clone().find(is_result).filter(|_| of_tasks()))
}

/// The coverage of many trials. Can be saved, so that an interrupted search can continue with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    runs: u64,
    repeated: u64,
    /// The number of runs by their rounded number of simulator events.
    events: BTreeMap<u64, u64>,
    salted: u64,
    cascading: u64,
    failed_in_recovery: u64,
    verdicts: BTreeMap<Verdict, BTreeMap<CoverageName, u64>>,
    unjudged: BTreeMap<Property, u64>,
    /// The number of runs that contained instances of a property.
    #[serde(default)]
    exercised: BTreeMap<Property, u64>,
    protocols: BTreeMap<CoverageName, u64>,
    outcomes: BTreeMap<CoverageName, BTreeMap<CoverageName, u64>>,
    /// The number of runs whose verdict is unknown, by protocol.
    #[serde(default)]
    unknown: BTreeMap<CoverageName, u64>,
    stated: BTreeMap<FactKind, (u64, u64)>,
    hits: BTreeMap<CoverageName, BTreeMap<State, u64>>,
    /// The number of directed schedules.
    #[serde(default)]
    directed: u64,
    #[serde(default)]
    moments: MomentCoverage,
    /// The moments of the current stretch of [`STRETCH`] schedules.
    #[serde(default)]
    recent: MomentCoverage,
    /// The moments of the complete blocks of [`BLOCK`] schedules in the current stretch.
    #[serde(default)]
    steering: MomentCoverage,
}

/// The number of schedules in a block. The schedules of a block are directed by the coverage of the blocks before it,
/// so the number of schedules that run in parallel does not affect them.
pub const BLOCK: u64 = 64;

/// The number of schedules in a stretch. The schedules of a stretch do not depend on those of other stretches, so several
/// machines can run them.
pub const STRETCH: u64 = 128 * BLOCK;

/// A summary of a [`Coverage`]. Shares are percentages of the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shares {
    /// The number of runs.
    pub runs: u64,
    /// The number of runs that were repeated with an equal trace.
    pub repeated: u64,
    /// The median number of simulator events in a run, rounded down to two digits.
    pub median_events: u64,
    /// The share of runs with the salted application, whose re-execution sends different messages.
    pub salted: f64,
    /// The share of runs in which the rollback of one cluster caused that of another.
    pub cascading: f64,
    /// The share of runs in which a process failed during a recovery.
    pub failed_in_recovery: f64,
    /// The number of runs by verdict and outcome.
    pub verdicts: BTreeMap<Verdict, BTreeMap<CoverageName, u64>>,
    /// The number of runs whose verdict is unknown, by the property that could not be judged. A run may count under
    /// several.
    pub unjudged: BTreeMap<Property, u64>,
    /// The number of runs that contained instances of a property.
    pub exercised: BTreeMap<Property, u64>,
    /// The number of runs by protocol.
    pub protocols: BTreeMap<CoverageName, u64>,
    /// The number of runs by protocol and outcome.
    pub outcomes: BTreeMap<CoverageName, BTreeMap<CoverageName, u64>>,
    /// The number of runs whose verdict is unknown, by protocol.
    pub unknown: BTreeMap<CoverageName, u64>,
    /// For each kind of fact: the number of runs that contain it, and the total number of such facts.
    pub stated: BTreeMap<FactKind, (u64, u64)>,
    /// The number of injected faults, by kind and by the state of the cluster that they struck.
    pub hits: BTreeMap<CoverageName, BTreeMap<State, u64>>,
    /// The number of directed schedules.
    pub directed: u64,
    /// The kinds of moments between a write and its announcement: those that occurred, and those at which the process
    /// failed.
    pub writes: MomentShares,
    /// The kinds of moments of recoveries: those that occurred, and those at which the process failed.
    pub recoveries: MomentShares,
}

impl Observed {
    /// Returns the first violation that counts as detecting a defect.
    pub fn decisive_violation(&self) -> Option<Property> {
        decisive_violation(&self.protocol, self.violated.iter().copied())
    }

    /// Extracts the results of a trial.
    pub fn new(trial: &Trial, repetition: Option<Repetition>) -> Observed {
        let mut stated = BTreeMap::new();
        for (_, fact) in trial.trace.streams.values().flatten() {
            *stated.entry(fact.kind()).or_default() += 1;
        }
        let mut story = ClusterStates::new(&trial.manifest);
        story.read(trial);
        Observed {
            seed: trial.scenario.seed,
            verdict: trial.judgement.verdict,
            violated: trial.violated().collect(),
            unjudged: trial.judgement.unjudged().collect(),
            exercised: exercised(&trial.judgement),
            repetition,
            filled_memory: is_out_of_memory(&trial.manifest)
                .then(|| {
                    // The remedy follows; it does not apply to random federations.
                    let reason = trial.judgement.reasons.first()?;
                    Some(reason.split_once("; ").map_or(reason.as_str(), |(what, _)| what).to_owned())
                })
                .flatten(),
            directed: None,
            moments: MomentCoverage::of(trial),
            outcome: match trial.manifest.outcome {
                Some(Outcome::Completed) => "completed",
                Some(Outcome::Deadline) if recurs(&trial.judgement) => "livelock",
                Some(Outcome::Deadline) => "deadline",
                Some(Outcome::Interrupted) | None => INTERRUPTED,
                Some(Outcome::Unrecoverable { .. }) => UNRECOVERABLE,
                Some(Outcome::NotRepeated { .. }) => "not repeated",
                Some(Outcome::Panicked(_)) => "panicked",
                Some(Outcome::Broken(_)) => "broken",
                Some(Outcome::Stalled { .. }) => "stalled",
                Some(Outcome::ExitsAgain { .. }) => "exits again",
                Some(Outcome::OutOfMemory(_)) => OUT_OF_MEMORY,
            },
            protocol: trial.scenario.federation.spec.protocol.name().to_owned().into(),
            events: trial.stats.events,
            salted: trial.scenario.is_salted(),
            cascading: story.cascading,
            failed_in_recovery: story.failed_in_recovery,
            stated,
            hits: story.hits,
        }
    }

    /// Records the scenario, because its seed alone does not determine it.
    #[must_use]
    pub fn of_directed(self, scenario: Scenario) -> Observed {
        Observed { directed: Some(Box::new(scenario)), ..self }
    }

    /// Returns whether the run reached the memory limit of the program.
    pub fn is_out_of_memory(&self) -> bool {
        self.outcome == OUT_OF_MEMORY
    }

    /// Returns whether the trial shows no problem.
    pub fn is_clean(&self) -> bool {
        self.violated.is_empty() && !matches!(self.repetition, Some(Repetition::Different(_)))
    }
}

/// Returns the properties of which a run contained instances.
pub fn exercised(judgement: &Judgement) -> Vec<Property> {
    judgement.findings.iter().filter(|it| it.instances > 0).map(|it| it.property).collect()
}

impl Coverage {
    /// Returns whether the numbers can be those of a search: each trial counts once everywhere, and no number exceeds what
    /// this many trials can reach. Unless the search `ignores_failures`, the first one would have ended it.
    pub fn is_consistent(&self, ignores_failures: bool) -> bool {
        const MOST_TRIALS: u64 = 1 << 40;
        let runs = self.runs;
        let is_sum = |counts: Vec<u64>| {
            counts.into_iter().try_fold(0_u64, u64::checked_add).is_some_and(|sum| sum == runs)
        };
        let has_failed = self.verdicts.contains_key(&Verdict::Fail);
        let partial = [self.repeated, self.salted, self.cascading, self.failed_in_recovery, self.directed];
        let unjudged = self.unjudged.values().chain(self.unknown.values()).chain(self.exercised.values());
        let facts = self.stated.values();
        runs < MOST_TRIALS
            && is_sum(self.events.values().copied().collect())
            && (ignores_failures || !has_failed)
            && is_sum(self.verdicts.values().flat_map(BTreeMap::values).copied().collect())
            && is_sum(self.outcomes.values().flat_map(BTreeMap::values).copied().collect())
            && is_sum(self.protocols.values().copied().collect())
            && partial.iter().chain(unjudged).all(|it| *it <= runs)
            && facts.clone().all(|(of, times)| *of <= runs && of <= times && *times < MOST_TRIALS << 16)
            && self.moments.most().max(self.steering.most()) < MOST_TRIALS << 16
            && self.hits.values().flat_map(BTreeMap::values).all(|it| *it < MOST_TRIALS)
    }

    /// Adds a trial.
    pub fn add(&mut self, trial: &Observed) {
        self.runs += 1;
        self.repeated += u64::from(trial.repetition == Some(Repetition::Equal));
        *self.events.entry(rounded(trial.events)).or_default() += 1;
        self.salted += u64::from(trial.salted);
        self.cascading += u64::from(trial.cascading);
        self.failed_in_recovery += u64::from(trial.failed_in_recovery);
        *self.verdicts.entry(trial.verdict).or_default().entry(trial.outcome.into()).or_default() += 1;
        if trial.verdict == Verdict::Unknown {
            trial.unjudged.iter().for_each(|it| *self.unjudged.entry(*it).or_default() += 1);
            *self.unknown.entry(trial.protocol.clone()).or_default() += 1;
        }
        trial.exercised.iter().for_each(|it| *self.exercised.entry(*it).or_default() += 1);
        *self.protocols.entry(trial.protocol.clone()).or_default() += 1;
        *self.outcomes.entry(trial.protocol.clone()).or_default().entry(trial.outcome.into()).or_default() +=
            1;
        for (&kind, &count) in &trial.stated {
            let (runs, times) = self.stated.entry(kind).or_default();
            (*runs, *times) = (*runs + 1, *times + count);
        }
        for (fault, state) in &trial.hits {
            *self.hits.entry(fault.clone()).or_default().entry(*state).or_default() += 1;
        }
        self.directed += u64::from(trial.directed.is_some());
        self.moments.add(&trial.moments);
        self.recent.add(&trial.moments);
        if self.runs.is_multiple_of(STRETCH) {
            (self.recent, self.steering) = Default::default();
        } else if self.runs.is_multiple_of(BLOCK) {
            self.steering = self.recent.clone();
        }
    }

    /// Adds the coverage of the trials that follow those of this one, which are complete stretches.
    pub fn append(&mut self, other: &Coverage) {
        fn add<K: Ord + Clone>(all: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
            more.iter().for_each(|(key, count)| *all.entry(key.clone()).or_default() += count);
        }
        fn add_all<K: Ord + Clone, L: Ord + Clone>(
            all: &mut BTreeMap<K, BTreeMap<L, u64>>,
            more: &BTreeMap<K, BTreeMap<L, u64>>,
        ) {
            more.iter().for_each(|(key, counts)| add(all.entry(key.clone()).or_default(), counts));
        }
        self.runs += other.runs;
        self.repeated += other.repeated;
        self.salted += other.salted;
        self.cascading += other.cascading;
        self.failed_in_recovery += other.failed_in_recovery;
        self.directed += other.directed;
        add(&mut self.events, &other.events);
        add(&mut self.unjudged, &other.unjudged);
        add(&mut self.exercised, &other.exercised);
        add(&mut self.protocols, &other.protocols);
        add(&mut self.unknown, &other.unknown);
        add_all(&mut self.verdicts, &other.verdicts);
        add_all(&mut self.outcomes, &other.outcomes);
        add_all(&mut self.hits, &other.hits);
        for (&kind, (runs, times)) in &other.stated {
            let of_kind = self.stated.entry(kind).or_default();
            *of_kind = (of_kind.0 + runs, of_kind.1 + times);
        }
        self.moments.add(&other.moments);
        (self.recent, self.steering) = (other.recent.clone(), other.steering.clone());
    }

    /// Returns the median of the numbers of simulator events, or 0 if there are no runs.
    fn median_events(&self) -> u64 {
        let mut up_to = 0;
        let half = |&(_, count): &(&u64, &u64)| {
            up_to += count;
            up_to > self.runs / 2
        };
        self.events.iter().find(half).map_or(0, |(events, _)| *events)
    }

    /// Returns the coverage that directs the schedules of the current block.
    pub fn steering(&self) -> &MomentCoverage {
        &self.steering
    }

    /// Returns the number of trials.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Returns the number of trials that reached the memory limit of the program, and are therefore inconclusive.
    pub fn out_of_memory(&self) -> u64 {
        self.outcomes.values().filter_map(|it| it.get(OUT_OF_MEMORY)).sum()
    }

    /// Returns a summary of the coverage.
    pub fn shares(&self) -> Shares {
        let percent = |count: u64| count as f64 * 100.0 / (self.runs.max(1)) as f64;
        let [writes, recoveries] = self.moments.shares();
        Shares {
            runs: self.runs,
            repeated: self.repeated,
            median_events: self.median_events(),
            salted: percent(self.salted),
            cascading: percent(self.cascading),
            failed_in_recovery: percent(self.failed_in_recovery),
            verdicts: self.verdicts.clone(),
            unjudged: self.unjudged.clone(),
            exercised: self.exercised.clone(),
            protocols: self.protocols.clone(),
            outcomes: self.outcomes.clone(),
            unknown: self.unknown.clone(),
            stated: self.stated.clone(),
            hits: self.hits.clone(),
            directed: self.directed,
            writes,
            recoveries,
        }
    }
}

/// Rounds a number down to two digits, so that the size of a coverage is bounded.
fn rounded(number: u64) -> u64 {
    let unit = 10_u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
    number / unit * unit
}

/// Returns whether rollbacks recurred under a protocol that does not promise that they end.
fn recurs(judgement: &Judgement) -> bool {
    let remarks = |property| !judgement.of(property).remarks.is_empty();
    remarks(Property::RecoveryTerminates) || remarks(Property::Progress)
}

/// The states of the clusters while the facts of a trial are read.
struct ClusterStates<'a> {
    manifest: &'a Manifest,
    states: Vec<State>,
    recovering: BTreeSet<ProcessId>,
    cascading: bool,
    failed_in_recovery: bool,
    hits: Vec<(CoverageName, State)>,
}

impl ClusterStates<'_> {
    fn new(manifest: &Manifest) -> ClusterStates<'_> {
        ClusterStates {
            manifest,
            states: vec![State::Starting; manifest.clusters.len()],
            recovering: BTreeSet::new(),
            cascading: false,
            failed_in_recovery: false,
            hits: Vec::new(),
        }
    }

    fn read(&mut self, trial: &Trial) {
        let streams = trial.trace.streams.iter();
        let mut facts: Vec<(Time, ProcessId, &Fact)> = streams
            .flat_map(|(&(process, _), stream)| stream.iter().map(move |(at, fact)| (*at, process, fact)))
            .filter(|(_, _, fact)| {
                matches!(fact, Fact::Claim(_) | Fact::Injecting { .. } | Fact::Failed { .. })
            })
            .collect();
        facts.sort_by_key(|&(at, ..)| at);
        for (_, process, fact) in facts {
            match fact {
                Fact::Claim(claim) => self.claim(process, claim),
                Fact::Injecting { fault, .. } => self.hit(fault),
                Fact::Failed { process, .. } => {
                    self.failed_in_recovery |= !self.recovering.is_empty();
                    self.recovering.remove(process);
                    self.enter(*process, State::Down);
                }
                _ => unreachable!("only these were kept"),
            }
        }
    }

    fn claim(&mut self, process: ProcessId, claim: &Claim) {
        match claim {
            Claim::CheckpointRequested { .. } => self.enter(process, State::Checkpointing),
            Claim::Committed { .. } | Claim::Aborted { .. } if !self.recovering.contains(&process) => {
                self.enter(process, State::Working);
            }
            Claim::RecoveryStarted { .. } => {
                self.recovering.insert(process);
                self.enter(process, State::Recovering);
            }
            Claim::RolledBack { cause, .. } => {
                self.cascading |= matches!(cause, Cause::Alert { .. });
                self.recovering.remove(&process);
                let group = self.group(process);
                let others = self.recovering.iter().any(|&it| self.group(it) == group);
                self.enter(process, if others { State::Recovering } else { State::Working });
            }
            _ => {}
        }
    }

    fn hit(&mut self, fault: &Fault) {
        let cluster = match fault {
            Fault::Link { from, .. } | Fault::Partition { from, .. } => *from,
            Fault::Split { cluster, .. } => *cluster,
            Fault::Kill { target, .. } | Fault::Stop { target, .. } => {
                target.cluster(|it| self.cluster_of(it))
            }
            Fault::Impair { process, .. } => self.cluster_of(*process),
        };
        let is_outside = cluster == ClusterId::OUTSIDE;
        let outside = if is_outside { " outside clusters" } else { "" };
        let is_lost = fault.storage_fate() == Some(StorageFate::Lost);
        let name = format!("{}{outside}{}", fault.kind(), if is_lost { ", storage lost" } else { "" });
        let state = match is_outside {
            true => *self.states.iter().max().expect("there are clusters"),
            false => self.states[self.group_of(cluster)],
        };
        self.hits.push((name.into(), state));
    }

    fn cluster_of(&self, process: ProcessId) -> ClusterId {
        self.manifest.processes[process.index()].cluster
    }

    fn enter(&mut self, process: ProcessId, state: State) {
        if self.cluster_of(process) != ClusterId::OUTSIDE {
            let group = self.group(process);
            self.states[group] = state;
        }
    }

    fn group(&self, process: ProcessId) -> usize {
        self.group_of(self.manifest.processes[process.index()].cluster)
    }

    /// Returns the group of a cluster. Clusters that take checkpoints together are one group.
    fn group_of(&self, cluster: ClusterId) -> usize {
        match self.manifest.promises.scope {
            Scope::Federation => 0,
            _ => cluster.index().min(self.states.len() - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run;

    /// Otherwise, the result of a search would depend on the number of machines.
    #[test]
    fn stretches_add_up_to_the_whole_search() {
        let observed = |seed| {
            let trial = run(Scenario::new(seed, None, None)).expect("a random federation can be set up");
            Observed::new(&trial, (seed == 1).then_some(Repetition::Equal))
        };
        let some: Vec<Observed> = (0..3).map(observed).collect();
        let trials = || some.iter().cycle();
        let mut whole = Coverage::default();
        trials().take(2 * STRETCH as usize + 100).for_each(|it| whole.add(it));
        let mut sum = Coverage::default();
        for (begin, length) in [(0, STRETCH), (STRETCH, STRETCH), (2 * STRETCH, 100)] {
            let mut part = Coverage::default();
            trials().skip(begin as usize).take(length as usize).for_each(|it| part.add(it));
            assert_eq!(
                part.steering == MomentCoverage::default(),
                length == STRETCH,
                "each stretch begins anew"
            );
            sum.append(&part);
        }
        assert!(sum == whole && sum.is_consistent(true), "{sum:#?}");
        let mut events: Vec<u64> = trials().take(whole.runs as usize).map(|it| it.events).collect();
        events.sort_unstable();
        assert_eq!(whole.median_events(), rounded(events[events.len() / 2]));
        assert_eq!([0, 7, 99, 101, 1299, u64::MAX].map(rounded), [0, 7, 99, 100, 1200, 18 * 10_u64.pow(18)]);
        assert_eq!(Coverage::default().median_events(), 0);
    }
}
