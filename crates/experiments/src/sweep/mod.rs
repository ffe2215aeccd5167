//! Runs one federation with many parameter settings, and finds the best one.
//!
//! Every setting runs with the same seeds, so that two settings can be compared seed by seed. All runs are in virtual
//! time, and each is judged. This module writes no files: the caller stores every completed run, and can pass stored
//! runs in again to continue.
//!
//! | module | contents |
//! | --- | --- |
//! | [`parameter`] | a parameter: a field of the file, and its values |
//! | [`best`] | the setting with the best value of a quantity, and how certain this is |
//! | [`text`] | the sweep as text, JSON and CSV |
//! | [`page`] | the sweep as one page, with pictures |

pub mod best;
pub mod page;
pub mod parameter;
pub mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::mtbf::with_mean_between_faults;
use faultline_api::parse::parse_unchecked;
use faultline_api::quantity::Duration;
use faultline_api::{Federation, validate};
use faultline_catalog::SetupError;
use faultline_checker::Verdict;
use faultline_core::Span;
use faultline_core::fault::Outcome;
use faultline_session::Recording;
use faultline_sim::in_order;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::compare::estimate::Estimate;
use crate::compare::quantity::{QUANTITIES, Quantity, Unit};
use crate::compare::{Made, Run};
use crate::part::Part;
use crate::simulate::consecutive;
use crate::verdict_counts::{Ending, VerdictCounts};
pub use page::Links;
pub use parameter::{Parameter, ParameterError, PlaceError};

/// The parameter that scales all random faults of the file, instead of setting a field.
pub const MTBF: &str = "mtbf";
/// The maximum number of settings of one sweep.
pub const MOST_SETTINGS: usize = 4096;

/// The quantities of [`QUANTITIES`] that a sweep also measures. None of them needs an unprotected run as a reference.
const SHARED: [&str; 9] = [
    "ettrPercent",
    "rolledBackPercent",
    "recoverySeconds",
    "outages",
    "checkpointsPerProcess",
    "forcedPerProcess",
    "checkpointBytes",
    "loggedBytes",
    "tasksRunAgainPercent",
];

/// The quantities that only a sweep measures.
pub(crate) const OWN: [Quantity; 2] = [
    Quantity {
        name: "seconds",
        title: "time to completion",
        unit: Unit::Seconds,
        faulty: true,
        drawn: true,
        family: None,
        of: |run, _| run.completed.then_some(run.costs.seconds),
    },
    Quantity {
        name: "lostWork",
        title: "lost work, all processes",
        unit: Unit::Seconds,
        faulty: true,
        drawn: true,
        family: None,
        of: |run, _| {
            run.completed.then(|| run.costs.outages.iter().map(|it| it.lost_work_seconds).sum::<f64>() + 0.0)
        },
    },
];

/// Returns all quantities that a sweep measures.
///
/// # Panics
///
/// Panics if a shared quantity does not exist, which would be a bug.
pub fn quantities() -> impl Iterator<Item = &'static Quantity> {
    let shared =
        SHARED.iter().map(|name| QUANTITIES.iter().find(|it| it.name == *name).expect("the quantity exists"));
    OWN.iter().chain(shared)
}

/// The reason why a sweep cannot start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SweepError {
    /// No parameter varies.
    #[error("there is nothing to vary")]
    Nothing,
    /// Two parameters vary the same field.
    #[error("`{0}` is set twice")]
    Twice(String),
    /// Two settings are the same federation.
    #[error("`{0}` and `{1}` are the same setting")]
    Same(String, String),
    /// There are more settings than [`MOST_SETTINGS`].
    #[error("{0} settings exceed the maximum of {MOST_SETTINGS}")]
    Settings(usize),
    /// A value cannot be set in the file.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// With these values, the file is not a valid federation.
    #[error("{setting}: {why}")]
    Invalid {
        /// The values, formatted as in a report.
        setting: String,
        /// The problem.
        why: String,
        /// The suggested fix.
        help: String,
    },
}

impl SweepError {
    /// Returns the suggested fix.
    pub fn help(&self) -> &str {
        match self {
            SweepError::Nothing => "specify a field with `--set PATH=VALUES`",
            SweepError::Twice(_) => "put all of its values after one `--set`",
            SweepError::Same(..) => "remove one of the values",
            SweepError::Settings(_) => {
                "omit some values, or draw a random sample of N settings with `--sample N`"
            }
            SweepError::Place(_) => {
                "specify a field of the file below `spec`, as in `links.between.latency`; `faultline schema` lists the fields"
            }
            SweepError::Invalid { help, .. } => help,
        }
    }
}

/// A sweep before its runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The federation's name.
    pub name: String,
    /// The parameters that vary.
    pub parameters: Vec<Parameter>,
    /// The settings, numbered from 0 in the order of the grid: the last parameter changes fastest.
    pub settings: Vec<Setting>,
}

/// One combination of parameter values.
#[derive(Clone, Debug)]
pub struct Setting {
    /// For each parameter, the index of its value.
    pub choice: Vec<usize>,
    /// The federation with these values.
    pub federation: Federation,
}

/// The result of one run, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Measured {
    /// The index of the setting.
    pub setting: usize,
    /// The seed.
    pub seed: u64,
    /// Whether the application finished.
    pub completed: bool,
    /// The checker's verdict.
    pub verdict: Verdict,
    /// Whether the verdict is unknown only because no random fault took effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_fault: bool,
    /// The reasons why the run did not pass; empty if it did, or if only the lack of a fault prevented it
    /// (`without_fault`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The values, by the name of the quantity. A quantity that the run does not have is missing.
    pub values: BTreeMap<String, f64>,
    /// Whether the run ended because the program reached its memory limit. Such a run should not be stored.
    #[serde(skip)]
    pub out_of_memory: bool,
}

/// The runs of each setting.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The first of the consecutive seeds.
    pub first: u64,
    /// The number of seeds.
    pub count: u32,
    /// Perform only this part of the runs. Runs with the first seed belong to no part, because they are recorded.
    pub part: Option<Part>,
}

impl Seeds {
    /// Returns the seeds of a setting's runs, or of those that belong to the part.
    fn of_setting(self, setting: usize) -> impl Iterator<Item = u64> {
        let Seeds { first, count, part } = self;
        let index = move |seed| setting as u64 * u64::from(count) + (seed - first);
        let is_in_part = move |seed: u64| part.is_none_or(|it| seed != first && it.contains(index(seed)));
        consecutive(first, count).filter(move |seed| is_in_part(*seed))
    }

    /// Returns the number of runs of all settings.
    pub fn runs(self, settings: usize) -> u64 {
        (0..settings).map(|it| self.of_setting(it).count() as u64).sum()
    }
}

/// A sweep with its completed runs.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The plan.
    pub plan: Plan,
    /// The first seed, and the number of consecutive seeds of every setting.
    pub seeds: (u64, u32),
    /// The runs, in the order of settings and seeds.
    pub runs: Vec<Measured>,
}

impl Plan {
    /// Plans all settings of the grid or, if `sample` contains a number and a seed, that many random ones.
    ///
    /// # Errors
    ///
    /// Returns an error if no parameter varies, if two parameters vary the same field, if there are too many settings,
    /// if a value cannot be set in the federation, if a setting is not a valid federation, or if two settings are the
    /// same federation.
    pub fn new(
        federation: &Federation,
        parameters: Vec<Parameter>,
        sample: Option<(usize, u64)>,
    ) -> Result<Plan, SweepError> {
        if parameters.is_empty() {
            return Err(SweepError::Nothing);
        }
        let mut paths = BTreeSet::new();
        if let Some(twice) = parameters.iter().find(|it| !paths.insert(&it.path)) {
            return Err(SweepError::Twice(twice.path.clone()));
        }
        let total = parameters.iter().fold(1_usize, |product, it| product.saturating_mul(it.values.len()));
        let chosen: Vec<usize> = match sample {
            Some((count, seed)) if count < total => drawn(count, total, seed),
            _ => (0..total.min(MOST_SETTINGS + 1)).collect(),
        };
        if chosen.len() > MOST_SETTINGS {
            return Err(SweepError::Settings(total));
        }
        let document = parameter::document(federation);
        let setting = |number: usize| {
            let choice = choice(&parameters, number);
            let federation = with(&document, &parameters, &choice)?;
            Ok(Setting { choice, federation })
        };
        let settings = chosen.into_iter().map(setting).collect::<Result<Vec<Setting>, SweepError>>()?;
        refuse_same(&parameters, &settings)?;
        let name = federation.metadata.name.clone().unwrap_or_else(|| "federation".to_owned());
        Ok(Plan { name, parameters, settings })
    }

    /// Returns the values of a setting, as they were written.
    pub fn values(&self, setting: usize) -> Vec<&str> {
        let choice = &self.settings[setting].choice;
        self.parameters.iter().zip(choice).map(|(it, &index)| it.values[index].0.as_str()).collect()
    }

    /// Formats a setting: `checkpointEvery=1s latency=5ms`.
    pub fn words(&self, setting: usize) -> String {
        words(&self.parameters, &self.settings[setting].choice)
    }
}

/// Fails if two settings are the same federation, because two values have the same meaning (`1s` and `1000ms`).
fn refuse_same(parameters: &[Parameter], settings: &[Setting]) -> Result<(), SweepError> {
    let mut known: BTreeMap<String, &[usize]> = BTreeMap::new();
    for Setting { choice, federation } in settings {
        let Some(other) = known.insert(parameter::document(federation).to_string(), choice) else { continue };
        let (one, two): (Vec<String>, Vec<String>) = parameters
            .iter()
            .zip(other.iter().zip(choice))
            .filter(|(_, (one, two))| one != two)
            .map(|(it, (&one, &two))| (word((it, &one)), word((it, &two))))
            .unzip();
        return Err(SweepError::Same(one.join(" "), two.join(" ")));
    }
    Ok(())
}

fn word((parameter, &index): (&Parameter, &usize)) -> String {
    format!("{}={}", parameter.short(), parameter.values[index].0)
}

fn words(parameters: &[Parameter], choice: &[usize]) -> String {
    parameters.iter().zip(choice).map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the index of each parameter's value in the setting with this number.
fn choice(parameters: &[Parameter], number: usize) -> Vec<usize> {
    let mut rest = number;
    let mut choice: Vec<usize> = parameters
        .iter()
        .rev()
        .map(|it| {
            let index = rest % it.values.len();
            rest /= it.values.len();
            index
        })
        .collect();
    choice.reverse();
    choice
}

fn with(document: &Value, parameters: &[Parameter], choice: &[usize]) -> Result<Federation, SweepError> {
    let mut document = document.clone();
    for (parameter, &index) in parameters.iter().zip(choice).filter(|(it, _)| it.path != MTBF) {
        parameter::place(&mut document, &parameter.path, &parameter.values[index].1)?;
    }
    let invalid =
        |why, help: &str| SweepError::Invalid { setting: words(parameters, choice), why, help: help.into() };
    // JSON is YAML, so the parser of federation files reads the values, too. The place in this text means nothing to users.
    let parsed = parse_unchecked("", document.to_string().as_bytes());
    let federation = parsed.map_err(|rejected| {
        let error = &rejected.errors()[0];
        let place = format!(":{}:{}: ", error.line, error.column);
        invalid(error.message.trim_start_matches(&place).to_owned(), &error.help)
    })?;
    let mtbf = parameters.iter().zip(choice).find(|(it, _)| it.path == MTBF);
    let federation = match mtbf {
        None => federation.value,
        Some((parameter, &index)) => {
            let mean = parameter.values[index].0.parse().ok().filter(|it: &Duration| it.0 > Span::ZERO);
            let mean = mean.ok_or_else(|| {
                let why = "the mean time between faults must be a duration above 0".to_owned();
                invalid(why, "write values such as `mtbf=5m..24h/8`")
            })?;
            with_mean_between_faults(&federation.value, mean).ok_or_else(|| {
                let why = "the file has no random faults whose mean time could vary".to_owned();
                invalid(why, "add one, such as `faults: [{ mtbf: { exponential: 5m }, crash: {} }]`")
            })?
        }
    };
    match validate(&federation).into_iter().next() {
        Some(it) => Err(invalid(format!("{}: {}", it.path, it.message), &it.help)),
        None => Ok(federation),
    }
}

/// Draws `count` different numbers below `total`, in ascending order. All subsets are equally likely (Floyd's
/// algorithm).
fn drawn(count: usize, total: usize, seed: u64) -> Vec<usize> {
    use rand::{RngExt, SeedableRng};
    let mut chance = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut chosen = BTreeSet::new();
    for last in total - count..total {
        let draw = chance.random_range(0..=last as u64) as usize;
        if !chosen.insert(draw) {
            chosen.insert(last);
        }
    }
    chosen.into_iter().collect()
}

impl Sweep {
    /// Performs the runs that are not in `runs`, the stored runs of an earlier part of this sweep. Calls `each` with
    /// every new run when it completes, in the order of settings and seeds. Once `interrupted` is set, no further
    /// runs start, and the sweep contains the completed ones.
    ///
    /// For each setting, also calls `record` with the setting's index and the recording of its run with the first seed,
    /// before calling `each` with that run. Does not call `record` for runs that are in `runs` or were interrupted.
    /// `record` is called from several threads, in any order.
    ///
    /// The result of a [part](Seeds::part) contains only the runs of this part.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting cannot be set up.
    pub fn run(
        plan: Plan,
        seeds: Seeds,
        mut runs: Vec<Measured>,
        jobs: NonZero<usize>,
        interrupted: &AtomicBool,
        record: impl Fn(usize, Recording) + Sync,
        mut each: impl FnMut(&Measured),
    ) -> Result<Sweep, SetupError> {
        let Seeds { first, count, .. } = seeds;
        let wanted = |it: &Measured| {
            it.setting < plan.settings.len() && it.seed >= first && it.seed - first < u64::from(count)
        };
        runs.retain(wanted);
        let made: BTreeSet<(usize, u64)> = runs.iter().map(|it| (it.setting, it.seed)).collect();
        let all = (0..plan.settings.len())
            .flat_map(|setting| seeds.of_setting(setting).map(move |seed| (setting, seed)))
            .filter(|it| !made.contains(it));
        let work = |(setting, seed): (usize, u64)| {
            let federation = &plan.settings[setting].federation;
            let (made, recording) = Made::recorded(federation, seed, interrupted)?;
            if seed == first && recording.manifest.outcome != Some(Outcome::Interrupted) {
                record(setting, recording);
            }
            Ok(Measured::of(setting, Run::of(federation, seed, made.into())))
        };
        let flow = in_order(jobs, all, work, |run| match run {
            _ if interrupted.load(Ordering::Relaxed) => ControlFlow::Break(None),
            Ok(run) => {
                each(&run);
                runs.push(run);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Some(error)),
        });
        if let ControlFlow::Break(Some(error)) = flow {
            return Err(error);
        }
        runs.sort_by_key(|it| (it.setting, it.seed));
        Ok(Sweep { plan, seeds: (first, count), runs })
    }

    /// Returns the number of missing runs.
    pub fn missing(&self) -> usize {
        self.plan.settings.len() * self.seeds.1 as usize - self.runs.len()
    }

    /// Returns whether any run had a violation.
    pub fn has_failed(&self) -> bool {
        self.runs.iter().any(|it| it.verdict == Verdict::Fail)
    }

    /// Returns the number of runs that ended because the program reached its memory limit.
    pub fn out_of_memory(&self) -> usize {
        self.runs.iter().filter(|it| it.out_of_memory).count()
    }

    /// Returns the runs of a setting.
    pub fn of(&self, setting: usize) -> impl Iterator<Item = &Measured> {
        self.runs.iter().filter(move |it| it.setting == setting)
    }

    /// Counts how the runs of a setting ended.
    pub(crate) fn counts(&self, setting: usize) -> VerdictCounts {
        VerdictCounts::of(self.of(setting).map(|it| {
            let Measured { seed, completed, verdict, without_fault, .. } = *it;
            (seed, Ending { completed, verdict, without_fault }, &it.reasons[..])
        }))
    }

    /// Estimates a quantity at a setting. Returns `None` if no run has it.
    pub fn estimate(&self, setting: usize, quantity: &Quantity) -> Option<Estimate> {
        Estimate::of(self.of(setting).filter_map(|it| it.values.get(quantity.name).copied()))
    }

    /// Returns the quantities that differ between runs.
    pub fn varying(&self) -> Vec<&'static Quantity> {
        let varies = |quantity: &&Quantity| {
            let mut values = self.runs.iter().filter_map(|it| it.values.get(quantity.name));
            let first = values.next();
            values.any(|it| Some(it) != first)
        };
        quantities().filter(varies).collect()
    }
}

impl Measured {
    /// Returns whether the run completed, and passed or had no fault.
    pub fn is_sound(&self) -> bool {
        self.completed && (self.verdict == Verdict::Pass || self.without_fault)
    }

    fn of(setting: usize, run: Run) -> Measured {
        let values = quantities().filter_map(|it| Some((it.name.to_owned(), (it.of)(&run, None)?))).collect();
        let Run { seed, completed, out_of_memory, verdict, without_fault, reasons, .. } = run;
        Measured { setting, seed, completed, verdict, without_fault, reasons, values, out_of_memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_changes_its_last_parameter_first_and_a_sample_repeats() {
        let parameters: Vec<Parameter> =
            ["a=1,2,3", "b=x,y"].map(|it| it.parse().expect("valid")).into_iter().collect();
        let all: Vec<Vec<usize>> = (0..6).map(|it| choice(&parameters, it)).collect();
        assert_eq!(all[..3], [vec![0, 0], vec![0, 1], vec![1, 0]]);
        assert_eq!(all[5], [2, 1]);
        let sample = drawn(10, 1000, 7);
        assert_eq!(sample.len(), 10);
        assert_eq!(sample, drawn(10, 1000, 7));
        assert_ne!(sample, drawn(10, 1000, 8));
        assert_eq!(drawn(5, 5, 1), [0, 1, 2, 3, 4]);
    }
}
