//! The spread of failures: one process fails, at several positions, under HydEE and under global checkpoints.

use faultline_clustering::patterns::Pattern;
use faultline_core::{ClusterId, Span};

use crate::compare::Costs;
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Finding, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};
use crate::simulate::simulate;
use faultline_report::chart::{Chart, Series};

use super::phases::Phases;
use super::{COMPUTING_MS, GLOBAL, HYDEE, Kernel};

/// The cluster of the failed process, and the time of the failure in milliseconds: soon after a checkpoint, halfway
/// between two, and shortly before one.
const POSITIONS: [(Position, u32); 3] =
    [(Position::First, 1_200), (Position::Middle, 1_500), (Position::Last, 1_800)];

/// Only the position halfway between two checkpoints.
const BETWEEN: [(Position, u32); 1] = [POSITIONS[1]];

#[derive(Clone, Copy)]
enum Position {
    First,
    Middle,
    Last,
}

/// The cost of one failure, over all runs.
pub(super) struct Effect {
    runs: usize,
    /// The number of processes that rolled back.
    pub(super) rolled_back: Spread,
    /// Seconds until the last rolled-back process resumed.
    pub(super) recovery: Spread,
    /// Process-seconds of lost work.
    pub(super) undone: Spread,
    /// Additional seconds of a run with the failure, compared with the failure-free run that has the same seed or
    /// belongs to the same turn.
    pub(super) longer: Spread,
}

impl Effect {
    pub(super) fn of(failed: &[Costs], calm: &[Costs]) -> Effect {
        let outages = || failed.iter().flat_map(|it| &it.outages);
        let pairs = failed.iter().zip(calm);
        Effect {
            runs: failed.len(),
            rolled_back: Spread::of(outages().map(|it| it.rolled_back as f64)),
            recovery: Spread::of(outages().filter_map(|it| it.recovery_seconds)),
            undone: Spread::of(outages().map(|it| it.lost_work_seconds)),
            longer: Spread::of(pairs.map(|(failed, calm)| failed.seconds - calm.seconds)),
        }
    }

    /// Returns the additional time of the run in process-seconds, given the number of processes.
    fn process_seconds(&self, processes: usize) -> f64 {
        self.longer.mean * processes as f64
    }

    /// Returns whether exactly this many processes rolled back in every run.
    pub(super) fn always(&self, processes: usize) -> bool {
        let Spread { runs, least, most, .. } = self.rolled_back;
        runs == self.runs && [least, most] == [processes as f64; 2]
    }
}

/// One failure under both protocols.
struct Failure {
    processes: usize,
    hydee: Effect,
    global: Effect,
}

/// Formats the crash of a cluster's first process, as in a federation file.
fn crash(cluster: usize, at_ms: u32) -> String {
    format!("[{{ at: {at_ms}ms, crash: {{ cluster: c{cluster}, node: 0 }} }}]")
}

/// Returns the numbers of processes to simulate, and the positions of the failure for each number.
fn sizes(quick: bool) -> &'static [(usize, &'static [(Position, u32)])] {
    if quick { &[(64, &POSITIONS)] } else { &[(256, &POSITIONS), (1024, &BETWEEN)] }
}

/// Returns the numbers of iterations of the kernels whose recoveries have many phases.
fn iterations(quick: bool) -> &'static [u32] {
    if quick { &[5, 20] } else { &[5, 10, 20, 40, 80] }
}

/// The kernels whose recoveries have many phases.
const DEEP: [Pattern; 2] = [Pattern::Bt, Pattern::Lu];
const PROTOCOLS: [(&str, &str); 3] =
    [("HydEE", HYDEE), ("SPBC", "{ spbc: { checkpointEvery: 1s, replicas: 0 } }"), ("global", GLOBAL)];

/// Returns the number of settings.
pub(super) fn settings(quick: bool) -> usize {
    let contained = sizes(quick).iter().map(|(_, positions)| Pattern::ALL.len() * (2 + 2 * positions.len()));
    contained.sum::<usize>() + DEEP.len() * iterations(quick).len() * PROTOCOLS.len() * 2
}

pub(super) fn containment(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let sizes = sizes(runner.is_quick());
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    let mut contained = true;
    for (&(processes, positions), pattern) in
        sizes.iter().flat_map(|size| Pattern::ALL.map(|pattern| (size, pattern)))
    {
        let kernel = Kernel::new(pattern, processes, runner.is_quick());
        let what = |way: &str| format!("{} on {processes} processes, {way}", pattern.name());
        let calm = [
            runner.costs(&what("HydEE without failure"), &kernel.federation(HYDEE, "[]"))?,
            runner.costs(&what("global without failure"), &kernel.federation(GLOBAL, "[]"))?,
        ];
        let clusters: Vec<usize> = kernel.clusters().iter().map(Vec::len).collect();
        for &(position, at) in positions {
            let cluster = match position {
                Position::First => 0,
                Position::Middle => clusters.len() / 2,
                Position::Last => clusters.len() - 1,
            };
            let fault = crash(cluster, at);
            let hydee = runner.costs(&what("HydEE, a failure"), &kernel.federation(HYDEE, &fault))?;
            let global = runner.costs(&what("global, a failure"), &kernel.federation(GLOBAL, &fault))?;
            let (hydee, global) = (Effect::of(&hydee, &calm[0]), Effect::of(&global, &calm[1]));
            contained &= hydee.always(clusters[cluster]);
            let mut row = vec![
                Cell::from(pattern.name()),
                (processes as f64).into(),
                Cell::Word(format!("{} of {}", cluster + 1, clusters.len())),
                f64::from(at % 1_000 / 10).into(),
            ];
            for it in [&hydee, &global] {
                let percent = 100.0 * it.rolled_back.mean / processes as f64;
                let longer = it.process_seconds(processes);
                row.extend([percent, it.recovery.mean, it.undone.mean, longer].map(Cell::from));
            }
            rows.push(row);
            failures.push(Failure { processes, hydee, global });
        }
    }
    let contained = Section::new("containment", "Spread of failures", "V-B, table I")
        .text(
            "One process fails, in the first, the middle or the last cluster, and early, halfway or late \
             between two checkpoints (one per second). The same failures happen under global coordinated \
             checkpoints. The paper computes from its clusters which processes roll back, without running \
             any failure.",
        )
        .findings(findings(&failures, contained))
        .table(
            "containment",
            "By kernel and position: HydEE, then global checkpoints",
            vec![
                "kernel",
                "processes",
                "cluster",
                "% of the interval",
                "rolled back, %",
                "recovered in, s",
                "undone, process-s",
                "longer, process-s",
                "global checkpoints: rolled back, %",
                "recovered in, s",
                "undone, process-s",
                "longer, process-s",
            ],
            rows,
        );
    Ok(vec![contained, depth(runner)?])
}

/// Compares the failures under both protocols. `contained` states whether only the failed cluster ever rolled back.
fn findings(failures: &[Failure], contained: bool) -> Vec<Finding> {
    let mean = |of: &dyn Fn(&Failure) -> f64| Spread::of(failures.iter().map(of)).mean;
    let share = |hydee: f64, global: f64| if global > 0.0 { 100.0 * hydee / global } else { 0.0 };
    let (recovers, recovers_globally) =
        (mean(&|it| it.hydee.recovery.mean), mean(&|it| it.global.recovery.mean));
    let no_slower = failures.iter().filter(|it| it.hydee.recovery.mean <= it.global.recovery.mean).count();
    vec![
        Finding::new(
            "only the failed cluster rolls back",
            "one failure rolls back one cluster",
            if contained { "in every run" } else { "not in every run" },
            Grade::value(contained),
            "Counts the processes that restored a state, as observed by the driver rather than as reported \
             by the protocol.",
        ),
        Finding::new(
            "re-executed work",
            "containment saves energy (no numbers)",
            format!(
                "{} % of that under global checkpoints",
                short(share(mean(&|it| it.hydee.undone.mean), mean(&|it| it.global.undone.mean)))
            ),
            Grade::direction(mean(&|it| it.hydee.undone.mean) < mean(&|it| it.global.undone.mean)),
            "In process-seconds, over all kernels and positions. Processes that do not roll back wait for \
             those that do, if they depend on them.",
        ),
        Finding::new(
            "time to recover",
            String::new(),
            format!("{} s, global checkpoints {} s", short(recovers), short(recovers_globally)),
            Grade::NotStated,
            format!(
                "From the failure until the last rolled-back process resumes, including detection and \
                 restart, which take the same time under both protocols. In {no_slower} of {} settings, \
                 HydEE is no slower.",
                failures.len()
            ),
        ),
        Finding::new(
            "total cost of the failure, in process-seconds",
            String::new(),
            format!(
                "{} with HydEE, {} with global checkpoints",
                short(mean(&|it| it.hydee.process_seconds(it.processes))),
                short(mean(&|it| it.global.process_seconds(it.processes)))
            ),
            Grade::NotStated,
            "The additional time of the run, multiplied by the number of processes. In kernels where all \
             processes depend on each other, all soon wait for the failed cluster, so containment saves work \
             and energy rather than time.",
        ),
    ]
}

/// Returns the number of phases of the recovery from a failure of this cluster at this time.
fn phases(kernel: &Kernel, cluster: usize, failure: Span) -> f64 {
    let mut phases = Phases::new(Span::from_secs(1), failure);
    simulate(&kernel.federation(HYDEE, "[]"), 1, &mut phases).expect("the kernel can be set up under HydEE");
    f64::from(phases.depth(ClusterId(cluster as u16)))
}

/// Additional times of runs with a failure, by the depth of the recovery.
struct Depths {
    rows: Vec<Vec<Cell>>,
    series: Vec<Series>,
    /// Ratios of the additional time to that under global checkpoints, for HydEE and SPBC.
    times: [Vec<f64>; 2],
}

fn depths(runner: &mut ExperimentRunner<'_, '_>, processes: usize) -> Result<Depths, Interrupted> {
    let (_, at) = POSITIONS[2];
    let iterations = iterations(runner.is_quick());
    let mut rows = Vec::new();
    let mut series = Vec::new();
    let mut times: [Vec<f64>; 2] = Default::default();
    for pattern in DEEP {
        let mut kernel = Kernel::new(pattern, processes, runner.is_quick());
        let cluster = kernel.clusters().len() - 1;
        let fault = crash(cluster, at);
        let mut lines: [Vec<(f64, Spread)>; PROTOCOLS.len()] = Default::default();
        for &iterations in iterations {
            kernel.iterations = iterations;
            let depth = phases(&kernel, cluster, Span::from_millis(at.into()));
            let mut row = vec![pattern.name().into(), f64::from(iterations).into(), depth.into()];
            for ((name, protocol), line) in PROTOCOLS.iter().zip(&mut lines) {
                let what = format!("{} in {iterations} iterations, {name}", pattern.name());
                let calm = runner.costs(&what, &kernel.federation(protocol, "[]"))?;
                let failed = runner.costs(&what, &kernel.federation(protocol, &fault))?;
                let longer = Effect::of(&failed, &calm).longer;
                line.push((depth, longer));
                row.push(Cell::from(longer));
            }
            rows.push(row);
        }
        for (times, line) in times.iter_mut().zip(&lines) {
            times.extend(line.iter().zip(&lines[2]).map(|(here, global)| here.1.mean / global.1.mean));
        }
        let named = PROTOCOLS.iter().zip(lines);
        series.extend(
            named.map(|((name, _), points)| Series { name: format!("{}, {name}", pattern.name()), points }),
        );
    }
    Ok(Depths { rows, series, times })
}

/// Measures how the duration of a recovery grows with the number of phases.
fn depth(runner: &mut ExperimentRunner<'_, '_>) -> Result<Section, Interrupted> {
    const PROCESSES: usize = 64;
    /// The largest ratio of the additional time to that under global checkpoints that still counts as no slower.
    const NO_SLOWER: f64 = 1.05;
    let Depths { rows, series, times } = depths(runner, PROCESSES)?;
    let [hydee, spbc] = times.map(Spread::of);
    let range = |it: &Spread| format!("{} to {} times", short(it.least), short(it.most));
    Ok(Section::new("depth", "Depth of a recovery", "III-D")
        .text(format!(
            "HydEE lets processes re-send phase by phase, so that no message overtakes one that it depends \
             on. The same {} seconds of computation on {PROCESSES} processes are divided into more and more \
             iterations. This results in longer chains of messages between clusters, and in more phases in \
             the work that a failure undoes. A process of the last cluster fails 0.8 s after a checkpoint.",
            COMPUTING_MS / 1_000
        ))
        .finding(
            "additional time of a run with a failure",
            "recovering some processes is faster than recovering all (introduction); not evaluated",
            format!("{} that under global checkpoints", range(&hydee)),
            match hydee.mean {
                _ if hydee.most > NO_SLOWER => Grade::Differs,
                mean if mean < 2.0 - NO_SLOWER => Grade::DirectionAgrees(None),
                _ => Grade::Inseparable,
            },
            "The failed cluster re-executes phase by phase: processes that were in different phases at the \
             same time wait for each other.",
        )
        .finding(
            "the same without phases",
            String::new(),
            format!("{} under SPBC", range(&spbc)),
            Grade::NotStated,
            "SPBC (Ropars and others, 2013) orders re-sent messages only by channel, which every \
             send-deterministic program allows.",
        )
        .figure(
            "depth",
            "Additional time compared with the run without the failure. Detection and restart take 0.2 s of \
             it.",
            Chart::new(
                "additional time of a run with a failure, by the depth of the recovery in phases",
                "phases from the checkpoint to the failure",
                "additional time, s",
                series,
            ),
        )
        .table(
            "depth",
            "Additional seconds of a run with a failure",
            vec!["kernel", "iterations", "phases", "HydEE, s", "SPBC, s", "global checkpoints, s"],
            rows,
        ))
}
