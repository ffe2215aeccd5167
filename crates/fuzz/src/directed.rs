//! Directed schedules: a random federation with one failure, and a second fault at a moment chosen from a
//! first run of the federation.
//!
//! A process reports `durable` before it announces the write: a crash at that fact falls between a durable write and
//! its announcement. All such moments of a run are candidates, and so are all moments of the recovery from the first
//! failure. Equal moments, such as all those at which the first process of a cluster makes its own part durable outside
//! recoveries, count as one, and the search tries one of them. It prefers the moments that it has tried least so far.

use std::collections::BTreeMap;

use faultline_api::quantity::{Duration, Size};
use faultline_api::resource::{ApplicationSpec, Crash, Fate, FaultSpec, Heat, LoseCluster, When};
use faultline_api::validate;
use faultline_catalog::{Defect, SetupError};
use faultline_core::{Claim, ClusterId, Fact, FactKind, Life, ProcessId, Role, Span, Time};
use faultline_trace::Manifest;
use serde::{Deserialize, Serialize};

use crate::chance::Chance;
use crate::coverage::CoverageName;
use crate::scenario::{ProtocolName, Scenario};
use crate::trial::{Trial, run};

/// A kind of moment, and the fault that is injected at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Signature {
    moment: Moment,
    strike: SecondFault,
}

/// Moments that count as equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    /// The fact at which the fault strikes.
    fact: FactKind,
    /// Whether the process that reports the fact is the first one of its cluster.
    coordinates: bool,
    /// For a fact about a part: whether the part belongs to the process that reports the fact.
    is_own: bool,
    /// Whether the cluster of the process that reports the fact is recovering, and whether any cluster is.
    recovers: (bool, bool),
}

/// A fact that triggers a fault: the process that reports it, and how many facts of this kind the process has
/// reported by then.
type ReportedFact = (ProcessId, u32);

/// A second fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SecondFault {
    /// The process that reports the fact fails.
    Itself(Storage),
    /// Another process fails, in the same cluster as the process that reports the fact.
    SameCluster(Storage),
    /// A process of another cluster fails.
    OtherCluster(Storage),
    /// The cluster of the process that reports the fact is lost.
    Cluster(Storage),
    /// The process that reports the fact fails with its whole cluster. This process's storage has this fate;
    /// the storage of the others has the opposite fate.
    OppositeFates(Storage),
    /// A process outside the clusters fails.
    Outside(Storage),
    /// The process that reports the fact fails, as does a process outside the clusters. The storage of the latter has
    /// this fate; the storage of the former is kept.
    WithOutside(Storage),
}

impl SecondFault {
    /// Returns whether the process that reports the fact is among those that fail.
    fn strikes_itself(self) -> bool {
        !matches!(self, SecondFault::SameCluster(_) | SecondFault::OtherCluster(_) | SecondFault::Outside(_))
    }
}

/// The fate of the storage of a failed process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Storage {
    Kept,
    Lost,
}

const SECOND_FAULTS: [SecondFault; 14] = [
    SecondFault::Itself(Storage::Kept),
    SecondFault::Itself(Storage::Lost),
    SecondFault::SameCluster(Storage::Kept),
    SecondFault::SameCluster(Storage::Lost),
    SecondFault::OtherCluster(Storage::Kept),
    SecondFault::OtherCluster(Storage::Lost),
    SecondFault::Cluster(Storage::Kept),
    SecondFault::Cluster(Storage::Lost),
    SecondFault::OppositeFates(Storage::Kept),
    SecondFault::OppositeFates(Storage::Lost),
    SecondFault::Outside(Storage::Kept),
    SecondFault::Outside(Storage::Lost),
    SecondFault::WithOutside(Storage::Kept),
    SecondFault::WithOutside(Storage::Lost),
];

impl Moment {
    /// Returns the moment in words.
    fn name(self) -> String {
        let fact = match serde_json::to_value(self.fact) {
            Ok(serde_json::Value::String(name)) => name,
            other => unreachable!("a name, not {other:?}"),
        };
        let part = if self.is_own { "" } else { ", replica" };
        let process = if self.coordinates { ", first process" } else { "" };
        let state = match self.recovers {
            (true, _) => ", recovering",
            (false, true) => ", while another cluster recovers",
            (false, false) => "",
        };
        format!("{fact}{part}{process}{state}")
    }
}

/// For each kind of moment, the number of runs of a search in which it occurred, and the number of runs in which a
/// process failed at it, before the process could announce its write or continue its recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MomentCoverage(BTreeMap<CoverageName, (u64, u64)>);

/// How many kinds of moments occurred in a search, and at how many of them a process failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MomentShares {
    /// The number of kinds of moments that occurred.
    pub seen: u64,
    /// The number of kinds of moments at which a process failed.
    pub struck: u64,
}

impl MomentCoverage {
    /// Returns the largest number of times that a kind of moment occurred, or that a process failed at it.
    pub(crate) fn most(&self) -> u64 {
        self.0.values().map(|(seen, struck)| *seen.max(struck)).max().unwrap_or(0)
    }

    /// Adds the moments of a run.
    pub(crate) fn add(&mut self, other: &MomentCoverage) {
        for (name, (seen, struck)) in &other.0 {
            let entry = self.0.entry(name.clone()).or_default();
            *entry = (entry.0 + seen, entry.1 + struck);
        }
    }

    /// Counts the kinds of moments between a write and its announcement and, separately, those of recoveries.
    pub fn shares(&self) -> [MomentShares; 2] {
        let plain = |&fact| Moment { fact, coordinates: false, is_own: true, recovers: (false, false) };
        let writes: Vec<String> = OF_WRITES.iter().map(|it| plain(it).name()).collect();
        let mut shares = [MomentShares::default(); 2];
        for (name, (_, struck)) in &self.0 {
            let fact = name.split(',').next().unwrap_or_default();
            let share = &mut shares[usize::from(!writes.iter().any(|it| it == fact))];
            share.seen += 1;
            share.struck += u64::from(*struck > 0);
        }
        shares
    }

    /// Returns the number of runs in which a process failed at this kind of moment.
    fn struck(&self, moment: Moment) -> u64 {
        self.0.get(moment.name().as_str()).map_or(0, |it| it.1)
    }

    /// Returns the moments of one run.
    pub(crate) fn of(trial: &Trial) -> MomentCoverage {
        let mut coverage = MomentCoverage::default();
        let mut last: BTreeMap<(ProcessId, Life), Moment> = BTreeMap::new();
        each_moment(trial, |process, life, moment, _| {
            match moment {
                Some(moment) => {
                    coverage.0.entry(moment.name().into()).or_insert((1, 0));
                    last.insert((process, life), moment);
                }
                // The process has continued.
                None => drop(last.remove(&(process, life))),
            }
        });
        for (_, fact) in trial.trace.supervisor() {
            if let Fact::Failed { process, life, .. } = fact
                && let Some(moment) = last.get(&(*process, *life))
                && let Some(entry) = coverage.0.get_mut(moment.name().as_str())
            {
                entry.1 = 1;
            }
        }
        coverage
    }
}

/// Returns whether the schedule of a seed is directed. One seed in eight has a directed schedule; the others
/// have random ones.
pub fn is_directed(seed: u64) -> bool {
    seed % 8 == 7
}

/// Returns the directed schedule of a seed. A first run of [`Directions::base`] shows which moments occur. A fault then
/// strikes at one of the moments at which processes have failed least often according to `coverage`. Returns the base
/// if no fault can be added to it.
///
/// # Errors
///
/// Returns an error if the federation cannot be set up.
pub fn directed_scenario(
    seed: u64,
    protocol: Option<ProtocolName>,
    coverage: &MomentCoverage,
) -> Result<Scenario, SetupError> {
    let drawn = || Scenario::new(seed, None, None).federation.spec.protocol.name().parse().ok();
    let Some(protocol) = protocol.or_else(drawn) else { return Ok(Scenario::new(seed, None, None)) };
    let base = run(Directions::base(seed, protocol, None))?;
    let mut chance = Chance::new(!seed);
    let all = moments(&base);
    let mut least: Vec<(u64, u64, Moment)> =
        all.keys().map(|&it| (coverage.struck(it), chance.between(0, u64::MAX), it)).collect();
    least.sort_unstable();
    for (_, _, moment) in least {
        let stated = chance.pick(&all[&moment]);
        // Between a write and its announcement, the process itself must fail.
        let is_write = OF_WRITES.contains(&moment.fact);
        let strikes: Vec<SecondFault> =
            SECOND_FAULTS.into_iter().filter(|it| it.strikes_itself() || !is_write).collect();
        let strike = chance.pick(&strikes);
        if let Some(scenario) = with_strike(&base, moment.fact, stated, strike, &mut chance) {
            return Ok(scenario);
        }
    }
    Ok(base.scenario)
}

/// How often each kind of second fault was tried.
#[derive(Clone, Debug, Default)]
pub struct Directions {
    tried: BTreeMap<Signature, u64>,
}

impl Directions {
    /// Returns the number of different kinds tried.
    pub fn kinds(&self) -> usize {
        self.tried.len()
    }

    /// Returns the scenario of a seed, with all faults removed except the first crash at a planned time. In at most one
    /// scenario in three, a heat solver whose steps take longer than recoveries replaces the application.
    pub fn base(seed: u64, protocol: ProtocolName, defect: Option<Defect>) -> Scenario {
        let mut scenario = Scenario::new(seed, Some(protocol), defect);
        let spec = &mut scenario.federation.spec;
        if let ApplicationSpec::Heat(_) | ApplicationSpec::Salted(_) | ApplicationSpec::Exchange(_) =
            spec.application
            && seed % 3 == 2
        {
            let step_time = Some(Duration(Span::from_millis(500)));
            spec.application = ApplicationSpec::Heat(Heat {
                rows: Some(2),
                columns: Some(4),
                steps: Some(12),
                step_time,
                feedback_every: Some(1),
                state: Some(Size(64)),
            });
            spec.deadline = Some(Duration(Span::from_secs(120)));
        }
        let faults = &mut spec.faults;
        faults.retain(|it| it.crash.is_some() && it.at.is_some());
        faults.truncate(1);
        scenario
    }

    /// Returns up to `count` scenarios that add a second fault to a trial of [`Directions::base`], at moments of the
    /// kinds that were tried least.
    pub fn follow(&mut self, trial: &Trial, count: usize) -> Vec<Scenario> {
        let mut chance = Chance::new(!trial.scenario.seed);
        let moments = moments(trial);
        let mut least: Vec<(u64, u64, Signature)> = Vec::new();
        for &moment in moments.keys() {
            for strike in SECOND_FAULTS {
                let signature = Signature { moment, strike };
                let tried = self.tried.get(&signature).copied().unwrap_or(0);
                least.push((tried, chance.between(0, u64::MAX), signature));
            }
        }
        least.sort_unstable();
        let mut chosen = Vec::new();
        for (_, _, signature) in least {
            if chosen.len() == count {
                break;
            }
            let stated = chance.pick(&moments[&signature.moment]);
            let Signature { moment, strike } = signature;
            if let Some(scenario) = with_strike(trial, moment.fact, stated, strike, &mut chance) {
                *self.tried.entry(signature).or_default() += 1;
                chosen.push(scenario);
            }
        }
        chosen
    }
}

/// Adds a fault that strikes at this fact to the scenario of a trial. Returns `None` if the result is not a valid
/// federation, or if the federation has no process that the fault could strike.
fn with_strike(
    trial: &Trial,
    fact: FactKind,
    (process, occurrence): ReportedFact,
    strike: SecondFault,
    chance: &mut Chance,
) -> Option<Scenario> {
    let struck = struck(trial, process, strike, chance);
    let when = when(trial, fact, process, occurrence);
    let mut scenario = trial.scenario.clone();
    let faults = struck.iter().map(|it| FaultSpec { when: Some(when.clone()), ..it.clone() });
    scenario.federation.spec.faults.extend(faults);
    (!struck.is_empty() && validate(&scenario.federation).is_empty()).then_some(scenario)
}

/// Facts that a process reports just before or after it makes data durable, or when it announces this.
const OF_WRITES: &[FactKind] =
    &[FactKind::Saved, FactKind::Durable, FactKind::CheckpointCommitted, FactKind::Finished];

/// Facts about recoveries, in addition to [`OF_WRITES`]. Other clusters report some of them in response to the
/// recovery.
const OF_RECOVERIES: &[FactKind] = &[
    FactKind::RecoveryStarted,
    FactKind::Restored,
    FactKind::RolledBack,
    FactKind::Alerted,
    FactKind::Resent,
    FactKind::Orphaned,
    FactKind::Suppressed,
    FactKind::Removed,
    FactKind::Protected,
    FactKind::CheckpointRequested,
    FactKind::Collected,
];

/// Returns the relevant facts of a run, by moment.
fn moments(trial: &Trial) -> BTreeMap<Moment, Vec<ReportedFact>> {
    let mut moments: BTreeMap<Moment, Vec<ReportedFact>> = BTreeMap::new();
    each_moment(trial, |process, _, moment, occurrence| {
        if let Some(moment) = moment {
            moments.entry(moment).or_default().push((process, occurrence));
        }
    });
    moments
}

/// Visits the facts of all ranks in order. Passes the process, its life, and the moment (`None` if the fact is not
/// relevant) to `visit`, together with the number of facts of this kind that the process has reported so far.
fn each_moment(trial: &Trial, mut visit: impl FnMut(ProcessId, Life, Option<Moment>, u32)) {
    let manifest = &trial.manifest;
    let mut facts: Vec<(Time, ProcessId, Life, &Fact)> = Vec::new();
    for (&(process, life), stream) in &trial.trace.streams {
        facts.extend(stream.iter().map(|(at, fact)| (*at, process, life, fact)));
    }
    facts.sort_by_key(|&(at, ..)| at);
    let mut recovering = vec![false; manifest.clusters.len()];
    let (mut has_begun, mut has_failed) = (false, false);
    let mut occurrences: BTreeMap<(ProcessId, FactKind), u32> = BTreeMap::new();
    for (_, process, life, fact) in facts {
        has_begun |= *fact == Fact::Begun;
        if let Fact::Failed { process, .. } = fact {
            has_failed = true;
            let cluster = manifest.processes[process.index()].cluster.index();
            recovering.get_mut(cluster).into_iter().for_each(|it| *it = true);
        }
        let Some(entry) = manifest.processes.get(process.index()).filter(|it| it.role == Role::RANK) else {
            continue;
        };
        let (kind, cluster) = (fact.kind(), entry.cluster.index());
        let occurrence = occurrences.entry((process, kind)).or_default();
        *occurrence += 1;
        let matters = has_begun && (OF_WRITES.contains(&kind) || has_failed && OF_RECOVERIES.contains(&kind));
        let moment = matters.then(|| {
            let is_own = match fact {
                Fact::Saved(saved) => saved.0.owner == process,
                Fact::Durable(name) | Fact::Removed(name) => name.owner == process,
                _ => true,
            };
            let coordinates = node(manifest, process) == 0;
            let recovers = (recovering[cluster], recovering.contains(&true));
            Moment { fact: kind, coordinates, is_own, recovers }
        });
        visit(process, life, moment, *occurrence);
        if matches!(fact, Fact::Claim(claim) if matches!(**claim, Claim::RolledBack { .. })) {
            recovering[cluster] = false;
        }
    }
}

/// Returns the index of a rank in its cluster.
fn node(manifest: &Manifest, process: ProcessId) -> u32 {
    let cluster = manifest.processes[process.index()].cluster;
    let first = manifest.processes.iter().position(|it| it.cluster == cluster).unwrap_or(0);
    (process.index() - first) as u32
}

fn when(trial: &Trial, fact: FactKind, process: ProcessId, occurrence: u32) -> When {
    let manifest = &trial.manifest;
    let cluster = manifest.clusters[manifest.processes[process.index()].cluster.index()].name.clone();
    When { fact, of: None, cluster, node: Some(node(manifest, process)), occurrence: Some(occurrence) }
}

/// Returns the faults of a kind that strike when `process` reports a fact; none if there is no process to strike.
fn struck(trial: &Trial, process: ProcessId, strike: SecondFault, chance: &mut Chance) -> Vec<FaultSpec> {
    let manifest = &trial.manifest;
    let cluster = |of: ProcessId| manifest.processes[of.index()].cluster;
    let name = |of: ProcessId| manifest.clusters[cluster(of).index()].name.clone();
    let fate = |storage| (storage == Storage::Lost).then_some(Fate::Lost);
    let crash = |target: ProcessId, storage| {
        let node = Some(node(manifest, target));
        FaultSpec::from(Crash { storage: fate(storage), ..Crash::new(name(target), node) })
    };
    let outside = |chance: &mut Chance, storage| {
        let all = manifest.processes.iter().filter(|it| it.cluster == ClusterId::OUTSIDE);
        let names: Vec<String> = all.map(|it| it.name.clone()).collect();
        (!names.is_empty()).then(|| {
            FaultSpec::from(Crash { storage: fate(storage), ..Crash::of_process(chance.pick(&names)) })
        })
    };
    let ranks = manifest.with_role(Role::RANK).filter(|&it| it != process);
    let (same_cluster, other_clusters): (Vec<ProcessId>, Vec<ProcessId>) =
        ranks.partition(|&it| cluster(it) == cluster(process));
    let any = |chance: &mut Chance, of: &[ProcessId], storage| match of {
        [] => Vec::new(),
        of => vec![crash(chance.pick(of), storage)],
    };
    match strike {
        SecondFault::Itself(storage) => vec![crash(process, storage)],
        SecondFault::SameCluster(storage) => any(chance, &same_cluster, storage),
        SecondFault::OtherCluster(storage) => any(chance, &other_clusters, storage),
        SecondFault::Cluster(storage) => {
            let lost = LoseCluster { storage: fate(storage), ..LoseCluster::new(name(process)) };
            vec![lost.into()]
        }
        SecondFault::Outside(storage) => outside(chance, storage).into_iter().collect(),
        SecondFault::WithOutside(storage) => {
            let itself = crash(process, Storage::Kept);
            outside(chance, storage).into_iter().flat_map(|it| [itself.clone(), it]).collect()
        }
        SecondFault::OppositeFates(_) if same_cluster.is_empty() => Vec::new(),
        SecondFault::OppositeFates(own) => {
            let other = if own == Storage::Kept { Storage::Lost } else { Storage::Kept };
            let others = same_cluster.iter().map(|&it| crash(it, other));
            others.chain([crash(process, own)]).collect()
        }
    }
}
