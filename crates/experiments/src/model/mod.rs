//! Published models of checkpointing beside measurements: the goodput that they predict for a federation with random
//! crashes, and the checkpoint interval that they recommend.
//!
//! All constants are measured by runs of the federation itself, in virtual time. Optionally, further runs with the faults
//! of the file measure the goodput around the best interval.
//!
//! | module | contents |
//! | --- | --- |
//! | [`calibrate`] | the constants |
//! | [`formulas`] | the models |
//! | [`validity`] | the reasons why a model may be wrong for a federation |
//! | [`text`] | the models as text and as JSON |
//! | [`page`] | the models as one page, with pictures |

pub mod calibrate;
pub mod formulas;
pub mod page;
pub mod text;
pub mod validity;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::Federation;
use faultline_api::mtbf::mean_between_faults;
use faultline_api::resource::{Family, FaultSpec};
use faultline_catalog::SetupError;
use faultline_checker::Verdict;
use faultline_sim::in_order;
use thiserror::Error;

use crate::compare::estimate::Estimate;
use crate::compare::protocols::under;
use crate::compare::quantity::{GOODPUT, QUANTITIES, Reference};
use crate::compare::{Made, Run, UNPROTECTED, without_faults};
use crate::simulate::consecutive;
use crate::sweep::{Parameter, Plan};
use calibrate::{Calibration, calibrate, periodic};
use formulas::Model;

/// The number of intervals at which the goodput is measured.
const CHECKED: usize = 8;
/// The measured intervals extend from the best one, divided by this factor, to the best one times this factor.
const REACH: f64 = 4.0;
/// The loss of goodput within which an interval is as good as the best one.
const NEARLY: f64 = 0.005;

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The first seed, also of the runs that measure the constants.
    pub seed: u64,
    /// The number of seeds of the check; `None` to omit the check.
    pub check: Option<u32>,
    /// The maximum number of runs in parallel.
    pub jobs: NonZero<usize>,
}

/// The models of a federation.
#[derive(Clone, Debug)]
pub struct Models {
    /// The federation's name.
    pub name: String,
    /// The path of the checkpoint interval below `spec`.
    pub path: String,
    /// The number of ranks.
    pub ranks: u32,
    /// The measured constants.
    pub calibration: Calibration,
    /// Goodput measured with the faults of the file: the interval in seconds, and the goodput in percent.
    pub simulated: Vec<(f64, Estimate)>,
    /// The recommended interval, and the range of intervals that are nearly as good, in seconds.
    pub advice: Advice,
    /// Reasons why all models may be wrong.
    pub notes: Vec<String>,
    /// Whether a run had a violation.
    pub failed: bool,
}

/// The recommended interval.
#[derive(Clone, Copy, Debug)]
pub struct Advice {
    /// The model that recommends it.
    pub model: Model,
    /// The interval, in seconds.
    pub best: f64,
    /// The shortest and the longest interval whose goodput is at most half a percentage point lower.
    pub range: (f64, f64),
}

/// The reason why a federation has no model.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The file has no random faults that end processes.
    #[error("the file has no random faults that end processes")]
    NoFaults,
    /// The work was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The federation does not meet the models' requirements.
    #[error("{message}")]
    Unfit {
        /// The problem.
        message: String,
        /// The suggested fix.
        help: String,
    },
    /// The federation cannot be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl ModelError {
    /// Returns the suggested fix.
    pub fn help(&self) -> &str {
        match self {
            ModelError::NoFaults => "add one, such as `faults: [{ mtbf: { exponential: 5m }, crash: {} }]`",
            ModelError::Interrupted => "run the command again",
            ModelError::Unfit { help, .. } => help,
            ModelError::Setup(_) => "run `faultline validate` on the file",
        }
    }
}

/// Performs runs.
struct Lab<'a> {
    seed: u64,
    jobs: NonZero<usize>,
    interrupted: &'a AtomicBool,
    /// The path of the checkpoint interval.
    path: String,
    /// Receives the number of completed runs, and of all runs.
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

impl Lab<'_> {
    fn step(&mut self) {
        self.done += 1;
        (self.progress)(self.done, self.total);
    }

    /// Runs each federation with its seed.
    fn runs(&mut self, all: Vec<(Federation, u64)>) -> Result<Vec<Run>, ModelError> {
        let interrupted = self.interrupted;
        let work = |(federation, seed): (Federation, u64)| {
            let made = Made::simulated(&federation, seed, interrupted)?;
            Ok(Run::of(&federation, seed, made.into()))
        };
        let mut runs = Vec::new();
        let flow = in_order(self.jobs, all, work, |run: Result<Run, SetupError>| match run {
            _ if interrupted.load(Ordering::Relaxed) => ControlFlow::Break(ModelError::Interrupted),
            Ok(run) => {
                self.step();
                runs.push(run);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error.into()),
        });
        match flow {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(runs),
        }
    }

    /// Returns the federation with another checkpoint interval.
    fn with_interval(&self, federation: &Federation, every: &str) -> Result<Federation, ModelError> {
        let unfit = |message: String, help: &str| ModelError::Unfit { message, help: help.to_owned() };
        let parameter: Parameter = format!("{}={every}", self.path)
            .parse()
            .map_err(|error| unfit(format!("{error}"), "write another `checkpointEvery`"))?;
        let plan = Plan::new(federation, vec![parameter], None)
            .map_err(|error| unfit(error.to_string(), error.help()))?;
        let setting = plan.settings.into_iter().next().expect("a parameter with one value has one setting");
        Ok(setting.federation)
    }
}

/// Measures the constants of a federation, and applies the models. Calls `progress` with the number of completed runs and
/// of all runs.
///
/// # Errors
///
/// Returns an error if the federation has no random faults, no checkpoint period or too little work, if it cannot be set
/// up, or if the work is interrupted.
pub fn model(
    federation: &Federation,
    options: &Options,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Models, ModelError> {
    let (path, every) = interval(federation)?;
    mean_between_faults(&federation.spec).ok_or(ModelError::NoFaults)?;
    let ends_processes = |it: &FaultSpec| {
        it.repeated().is_some() && (it.crash.is_some() || it.lose_cluster.is_some() || it.lose_rack.is_some())
    };
    if !federation.spec.faults.iter().any(ends_processes) {
        return Err(ModelError::NoFaults);
    }
    let victims = federation.spec.clusters.len().min(4) as u64;
    let seeds = options.check.map_or(0, u64::from);
    let total = 4 + 8 * victims + seeds * (1 + CHECKED as u64);
    let mut lab = Lab { seed: options.seed, jobs: options.jobs, interrupted, path, progress, done: 0, total };
    let calibration = calibrate(&mut lab, federation, every)?;
    let advice = Advice::of(&calibration);
    let (simulated, violated) = match options.check {
        Some(seeds) => check(&mut lab, federation, &advice, seeds)?,
        None => (Vec::new(), false),
    };
    let intervals = [calibration.every, advice.best].into_iter().chain(simulated.iter().map(|it| it.0));
    let exceeding = validity::note_on_excess(&calibration, intervals);
    Ok(Models {
        name: federation.metadata.name.clone().unwrap_or_else(|| "federation".to_owned()),
        path: lab.path,
        ranks: federation.spec.clusters.iter().map(|it| it.nodes).sum(),
        simulated,
        advice,
        notes: validity::notes(federation, &calibration).into_iter().chain(exceeding).collect(),
        failed: violated || calibration.failed,
        calibration,
    })
}

/// Returns the path of the checkpoint interval below `spec`, and the interval in seconds.
fn interval(federation: &Federation) -> Result<(String, f64), ModelError> {
    let unfit = |message: String, help: String| Err(ModelError::Unfit { message, help });
    let spec = &federation.spec;
    let name = spec.protocol.name();
    let name = name.split('.').next().unwrap_or(name);
    let works = format!("choose one of {}", periodic().join(", "));
    let why = match spec.application.family() {
        Family::Messages => None,
        Family::System => Some("the models describe protocols, and a system has none".to_owned()),
        _ => Some(format!("the models have no formula for {}, whose work is tasks", spec.application.name())),
    };
    if let Some(why) = why {
        return unfit(why, format!("write a program that exchanges messages, and {works}"));
    }
    if !periodic().contains(&name) {
        return unfit(format!("{name} has no checkpoint period that the models could describe"), works);
    }
    let checkpointing = spec.protocol.checkpointing();
    let path = format!("protocol.{name}.checkpointEvery");
    let Some(every) = checkpointing.and_then(|it| it.every) else {
        return unfit(
            format!("`{path}` is `never`"),
            "write the period from which to start, such as `1m`".to_owned(),
        );
    };
    let document = serde_json::to_value(&spec.protocol).unwrap_or_default();
    if document.pointer(&format!("/{name}/checkpointEveryIn")).is_some() {
        return unfit(
            "`checkpointEveryIn` gives clusters different periods, but the models have only one".to_owned(),
            "omit `checkpointEveryIn`".to_owned(),
        );
    }
    Ok((path, every.as_secs_f64()))
}

impl Advice {
    /// Takes the recommendation of the exact model if its assumptions hold, and otherwise that of the hierarchical one.
    fn of(it: &Calibration) -> Advice {
        let is_global = validity::why_not(Model::Exact, it).is_none();
        let model = if is_global { Model::Exact } else { Model::Hierarchical };
        let constants = &it.constants;
        let best = model.best(constants).max(constants.checkpoint * 0.1).max(1e-3);
        let most = model.goodput(constants, best);
        let is_near = |every: &f64| model.goodput(constants, *every) >= most - NEARLY;
        let reach = |ratio: f64| {
            // The exact goodput jumps where the number of periods changes, so the range may have gaps.
            let mut steps = (1..400).rev().map(|step| best * ratio.powi(step));
            steps.find(is_near).unwrap_or(best)
        };
        Advice { model, best, range: (reach(0.99), reach(1.01)) }
    }
}

/// Measures the goodput with intervals around the best one. Also returns whether a run had a violation.
fn check(
    lab: &mut Lab<'_>,
    federation: &Federation,
    advice: &Advice,
    seeds: u32,
) -> Result<(Vec<(f64, Estimate)>, bool), ModelError> {
    let unprotected = under(&without_faults(federation), UNPROTECTED);
    let unprotected = unprotected.expect("every federation can run without a protocol");
    let first = lab.seed;
    let all =
        |federation: &Federation| consecutive(first, seeds).map(|it| (federation.clone(), it)).collect();
    let native: BTreeMap<u64, Reference> =
        lab.runs(all(&unprotected))?.iter().map(|it| (it.seed, Reference::of(it))).collect();
    let goodput = QUANTITIES.iter().find(|it| it.name == GOODPUT).expect("the quantity exists");
    let mut simulated = Vec::new();
    let mut violated = false;
    for step in 0..CHECKED {
        let share = 2.0 * step as f64 / (CHECKED - 1) as f64 - 1.0;
        let every = text::rounded(advice.best * REACH.powf(share));
        let runs = lab.runs(all(&lab.with_interval(federation, &format!("{every}s"))?))?;
        violated |= runs.iter().any(|it| it.verdict == Verdict::Fail);
        let values = runs.iter().filter_map(|it| (goodput.of)(it, native.get(&it.seed).copied()));
        simulated.extend(Estimate::of(values).map(|it| (every, it)));
    }
    Ok((simulated, violated))
}
