//! Measures the constants of the models by runs of the federation itself, in virtual time.

use faultline_api::Federation;
use faultline_api::mtbf::mean_between_faults;
use faultline_api::plan;
use faultline_api::quantity::Duration;
use faultline_api::resource::{Crash, Family, Fate, FaultSpec, ProtocolSpec, SharedOptions};
use faultline_core::{Claim, ClusterId, Span, Trigger};
use faultline_history::{History, Outage};
use serde::Serialize;

use super::formulas::Constants;
use super::{Lab, ModelError};
use crate::compare::protocols::under;
use crate::compare::{Made, Run, UNPROTECTED, without_faults};
use crate::measures::Spread;

/// The number of moments of a checkpoint period at which a process crashes.
const PHASES: u32 = 8;
/// The maximum number of processes that crash, each in another cluster.
const VICTIMS: usize = 4;
/// The number of seeds whose plans show how the times between faults vary.
const PLANS: u64 = 64;

/// The measured constants, and what shows whether the models apply.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Calibration {
    /// The constants.
    #[serde(flatten)]
    pub constants: Constants,
    /// The interval of the file, in seconds.
    pub every: f64,
    /// The coefficient of determination of the line from which K and σ are taken.
    pub determination: f64,
    /// The mean phases of K, in seconds.
    pub phases: Phases,
    /// The share of the processes that one failure rolls back.
    pub rolled_back: Spread,
    /// The variation of the times between faults: standard deviation divided by the mean; 1 if exponential.
    pub variation: f64,
    /// The number of crashes, and of those from which the run recovered.
    pub crashes: [usize; 2],
    /// Whether a run had a violation.
    pub failed: bool,
}

/// The mean phases of a recovery, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Phases {
    /// Until the failure was detected.
    pub detection: f64,
    /// Until the failed process was restarted.
    pub replacement: f64,
    /// Until states were restored.
    pub restore: f64,
    /// Until the processes resumed.
    pub rejoining: f64,
}

/// Measures the constants of `federation`, whose protocol has the checkpoint interval `every`.
pub(super) fn calibrate(
    lab: &mut Lab<'_>,
    federation: &Federation,
    every: f64,
) -> Result<Calibration, ModelError> {
    let calm = without_faults(federation);
    let unprotected = under(&calm, UNPROTECTED).expect("every federation can run without a protocol");
    let seconds = |it: f64| format!("{it}s");
    let settings =
        [unprotected, lab.with_interval(&calm, "never")?, lab.with_interval(&calm, &seconds(2.0 * every))?];
    let runs = lab.runs(settings.map(|it| (it, lab.seed)).into())?;
    let [native, never, twice] = &runs[..] else { return Err(ModelError::Interrupted) };
    let (once, commits) = lab.measured(&calm, commits)?;
    for run in [native, never, twice, &once] {
        if !run.completed {
            return Err(incomplete(run));
        }
    }
    let [first, second] = [&once, twice].map(|it| period(it, never));
    let Some((period, checkpoint)) = first else { return Err(no_checkpoint(every, once.costs.seconds)) };
    let growth = second.map_or(0.0, |(longer, delay)| (delay - checkpoint) / (longer - period));
    let growth = growth.clamp(-0.5, 0.5);
    let crashes = crashes(federation, &calm, &commits, once.costs.seconds)?;
    let count = crashes.len();
    let (since, federations): (Vec<f64>, Vec<_>) = crashes.into_iter().unzip();
    let runs = lab.runs(federations.into_iter().map(|it| (it, lab.seed)).collect())?;
    let failed = runs.iter().chain([native, never, twice, &once]).any(Run::has_failed);
    let recovered: Vec<(f64, &Run)> = since.into_iter().zip(&runs).filter(|(_, it)| it.completed).collect();
    // A run may take one checkpoint more or less than without the crash, which is not a delay by the crash.
    let calm = once.costs.seconds - checkpoint * once.checkpoints_per_process();
    let delay = |it: &Run| it.costs.seconds - checkpoint * it.checkpoints_per_process() - calm;
    let points: Vec<(f64, f64)> = recovered.iter().map(|(since, it)| (*since, delay(it))).collect();
    let (failure, repeated, determination) = line(&points).ok_or_else(|| unrecovered(count))?;
    let outages: Vec<&Outage> = recovered.iter().filter_map(|(_, it)| it.costs.outages.first()).collect();
    let mean = |of: fn(&Outage) -> f64| Spread::of(outages.iter().map(|it| of(it))).mean;
    let ranks = f64::from(federation.spec.clusters.iter().map(|it| it.nodes).sum::<u32>());
    let mtbf = mean_between_faults(&federation.spec).ok_or(ModelError::NoFaults)?;
    Ok(Calibration {
        constants: Constants {
            mtbf,
            work: native.costs.seconds,
            speed: native.costs.seconds / never.costs.seconds,
            checkpoint,
            checkpoint_fixed: (checkpoint - growth * period).max(0.0),
            checkpoint_growth: growth,
            failure: failure.max(0.0),
            repeated,
        },
        every,
        determination,
        phases: Phases {
            detection: mean(|it| it.detecting_seconds),
            replacement: mean(|it| it.replacing_seconds),
            restore: mean(|it| it.restoring_seconds),
            rejoining: mean(|it| it.rejoining_seconds),
        },
        rolled_back: Spread::of(outages.iter().map(|it| it.rolled_back as f64 / ranks)),
        variation: variation(federation, lab.seed),
        crashes: [count, recovered.len()],
        failed,
    })
}

/// Returns the mean period of a run and its delay per checkpoint; `None` if the run took no checkpoint.
fn period(run: &Run, never: &Run) -> Option<(f64, f64)> {
    let checkpoints = run.checkpoints_per_process();
    let delay = (run.costs.seconds - never.costs.seconds) / checkpoints;
    (checkpoints > 0.0).then(|| (run.costs.seconds / checkpoints, delay.max(0.0)))
}

/// Returns when each process committed checkpoints, in seconds since the application started.
fn commits(history: &History<'_>) -> Vec<Vec<f64>> {
    let begun = history.supervision.begun.unwrap_or_default();
    let mut all = vec![Vec::new(); history.processes.len()];
    for it in &history.claims {
        if let Claim::Committed { position, .. } = it.claim
            && position.sn.0 > 1
        {
            let process = history.segment(it.at.segment).host;
            all[process.index()].push(it.time.since(begun).as_secs_f64());
        }
    }
    all
}

/// Returns federations with a single crash, each with the work of its victim since the last commit. The crashes are in
/// the middle of the run, spread over one period of each victim.
fn crashes(
    federation: &Federation,
    calm: &Federation,
    commits: &[Vec<f64>],
    ends: f64,
) -> Result<Vec<(f64, Federation)>, ModelError> {
    let storage = federation.spec.faults.iter().find_map(|it| it.crash.as_ref()?.storage);
    let names = faultline_api::Names::of(&calm.spec);
    let mut all = Vec::new();
    for (index, cluster) in calm.spec.clusters.iter().enumerate().take(VICTIMS) {
        let node = index as u32 % cluster.nodes;
        let victim = names.node(ClusterId(index as u16), node).expect("the cluster has this node");
        let own = &commits[victim.index()];
        let middle = own.len() / 2;
        let Some(&last) = own.get(middle) else { return Err(no_checkpoint(0.0, ends)) };
        let length = own.get(middle + 1).copied().unwrap_or(ends) - last;
        for phase in 0..PHASES {
            let since = length * (f64::from(phase) + 0.5) / f64::from(PHASES);
            all.push((since, with_crash(calm, &cluster.name, node, storage, last + since)));
        }
    }
    Ok(all)
}

fn with_crash(calm: &Federation, cluster: &str, node: u32, storage: Option<Fate>, at: f64) -> Federation {
    let crash = Crash { storage, ..Crash::new(cluster, Some(node)) };
    let mut other = calm.clone();
    other.spec.faults.push(FaultSpec { at: Some(Duration(Span((at * 1e9) as u64))), ..crash.into() });
    // The crash must take effect however late it is.
    other.spec.simulator.get_or_insert_default().least_work_left = Some(0);
    other
}

/// Fits a line by least squares. Returns its value at 0, its slope, and its coefficient of determination.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64, f64)> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|it| of(it.0 - x, it.1 - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    if points.len() < 3 || xx <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    let determination = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
    Some((y - slope * x, slope, determination))
}

/// Returns the variation of the times between planned faults.
fn variation(federation: &Federation, first: u64) -> f64 {
    let mut gaps = Vec::new();
    for seed in (0..PLANS).map(|it| first.wrapping_add(it)) {
        let mut times: Vec<f64> = plan(federation, seed)
            .into_iter()
            .filter_map(|it| match it.trigger {
                Trigger::At(at) if it.fault.kills().is_some() => Some(at.as_secs_f64()),
                _ => None,
            })
            .collect();
        times.sort_by(f64::total_cmp);
        gaps.extend(times.windows(2).map(|it| it[1] - it[0]));
    }
    let spread = Spread::of(gaps);
    if spread.mean > 0.0 { spread.deviation / spread.mean } else { 1.0 }
}

fn incomplete(run: &Run) -> ModelError {
    let why = run.reasons.first().map_or_else(String::new, |it| format!(": {it}"));
    ModelError::Unfit {
        message: format!("a run without faults did not complete{why}"),
        help: "raise the `deadline`".to_owned(),
    }
}

fn no_checkpoint(every: f64, seconds: f64) -> ModelError {
    ModelError::Unfit {
        message: format!(
            "the run without faults takes {seconds:.1} s, and no checkpoint after {every} s of work"
        ),
        help: "write a shorter `checkpointEvery`, or give the application more work".to_owned(),
    }
}

fn unrecovered(crashes: usize) -> ModelError {
    ModelError::Unfit {
        message: format!("fewer than 3 of {crashes} runs with one crash completed"),
        help: "choose `replicas` and the `storage` of the crashes so that the protocol can recover"
            .to_owned(),
    }
}

/// Returns the names of the protocols whose checkpoints have a period.
pub(super) fn periodic() -> Vec<&'static str> {
    let all = ProtocolSpec::compared(Family::Messages);
    let has_period = |name: &&'static str| {
        let named = ProtocolSpec::named(name, SharedOptions::default());
        named.is_some_and(|it| it.checkpointing().is_some())
    };
    all.into_iter().filter(has_period).collect()
}

impl Run {
    fn has_failed(&self) -> bool {
        self.verdict == faultline_checker::Verdict::Fail
    }

    /// Returns how many checkpoints each process committed, on average, excluding the initial one.
    fn checkpoints_per_process(&self) -> f64 {
        self.costs.checkpoints as f64 / f64::from(self.ranks)
    }
}

impl Lab<'_> {
    /// Runs a federation without faults, and reads more from its history.
    fn measured<T>(
        &mut self,
        federation: &Federation,
        read: impl FnOnce(&History<'_>) -> T,
    ) -> Result<(Run, T), ModelError> {
        let (made, read) = Made::measured(federation, self.seed, self.interrupted, read)?;
        self.step();
        Ok((Run::of(federation, self.seed, made.into()), read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fitted_by_least_squares() {
        let points = [(10.0, 19.1), (30.0, 39.1), (55.0, 64.1)];
        let (value, slope, determination) = line(&points).expect("three points");
        assert!((value - 9.1).abs() < 1e-9 && (slope - 1.0).abs() < 1e-9 && determination > 0.999_999);
        assert_eq!(line(&points[..2]), None);
        assert_eq!(line(&[(1.0, 1.0); 3]), None);
    }

    #[test]
    fn protocols_with_a_period_are_named() {
        let all = periodic();
        assert!(all.contains(&"coordinated") && all.contains(&"hydee"), "{all:?}");
        assert!(!all.contains(&"none") && !all.contains(&"tic"), "{all:?}");
    }
}
