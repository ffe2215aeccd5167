//! Shrinks a scenario that violates a property, by delta debugging.
//!
//! Repeatedly replaces the federation with the first of its `candidates` that still violates the property, under its
//! own seed or one of a few others, because any change shifts the random draws of a run. Once no candidate violates the
//! property, searches for the seed with the shortest trace, and then for the earliest deadline: what follows the violation,
//! such as checkpoints that are taken periodically, shows nothing. Every candidate is smaller and the number of trials is
//! limited, so the search terminates. It makes no random choices, so it always gives the same result.

mod candidates;

use std::ops::ControlFlow;

use faultline_api::quantity::Duration;
use faultline_catalog::SetupError;
use faultline_checker::Property;
use faultline_core::Span;

use crate::chance::short;
use crate::scenario::Scenario;
use crate::trial::{Trial, run, run_until_stopped};

/// The effort of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The exclusive upper bound of the seeds with which each candidate is tried, in addition to the scenario's own
    /// seed.
    pub seeds: u64,
    /// The number of trials after which no further candidate is tried.
    pub trials: u64,
    /// The number of simulator events, in all trials together, after which no further candidate is tried. Without this
    /// limit, shrinking a run that never ends would take hours.
    pub events: u64,
    /// The number of seeds with which the smallest federation is run at the end, to find the shortest trace.
    pub last: u64,
}

impl Default for Steps {
    /// Returns limits within which shrinking takes a few seconds on one core.
    fn default() -> Steps {
        Steps { seeds: 12, trials: 6_000, events: 100_000_000, last: 300 }
    }
}

/// The smallest scenario found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The scenario and its run.
    pub trial: Trial,
    /// The number of trials that the search took.
    pub trials: u64,
    /// Whether the caller ended the search early. A smaller scenario may exist.
    pub is_interrupted: bool,
}

/// Shrinks a scenario that violates `property`. Calls `progress` before each trial, with the number of trials and the
/// smallest scenario so far. If `progress` returns `Break`, the search ends with this scenario.
///
/// # Errors
///
/// Returns an error if a federation cannot be set up.
///
/// # Panics
///
/// Panics if the scenario does not violate the property.
pub fn shrink(
    scenario: &Scenario,
    property: Property,
    steps: Steps,
    progress: impl FnMut(u64, &Trial) -> ControlFlow<()>,
) -> Result<Shrunk, SetupError> {
    shrink_by(&run_until_stopped, run(scenario.clone())?, property, steps, progress)
}

/// Works like [`shrink`] for the scenario of this trial, but executes other scenarios with `run`.
pub(crate) fn shrink_by(
    run: &dyn Fn(Scenario) -> Result<Trial, SetupError>,
    best: Trial,
    property: Property,
    steps: Steps,
    mut progress: impl FnMut(u64, &Trial) -> ControlFlow<()>,
) -> Result<Shrunk, SetupError> {
    assert!(best.violated().any(|it| it == property), "the scenario violates {property:?}");
    let progress = &mut progress;
    let mut search = Search { run, property, steps, trials: 0, events: 0, best, progress };
    let outcome = search.smallest().and_then(|()| search.shortest()).and_then(|()| search.earliest());
    let is_interrupted = match outcome {
        Ok(()) => false,
        Err(Ended::Interrupted) => true,
        Err(Ended::Failed(error)) => return Err(error),
    };
    Ok(Shrunk { trial: search.best, trials: search.trials, is_interrupted })
}

struct Search<'a> {
    run: &'a dyn Fn(Scenario) -> Result<Trial, SetupError>,
    property: Property,
    steps: Steps,
    trials: u64,
    /// The number of simulator events in these trials.
    events: u64,
    best: Trial,
    progress: &'a mut dyn FnMut(u64, &Trial) -> ControlFlow<()>,
}

/// The maximum number of earlier deadlines that are tried.
const DEADLINES: u32 = 8;

/// The reason why a search ended early.
enum Ended {
    Interrupted,
    Failed(SetupError),
}

impl Search<'_> {
    /// Replaces the best scenario with smaller ones, until none of its candidates violates the property or no trials
    /// are left.
    fn smallest(&mut self) -> Result<(), Ended> {
        'smaller: loop {
            for federation in candidates::of(&self.best.scenario.federation) {
                if self.trials >= self.steps.trials || self.events >= self.steps.events {
                    return Ok(());
                }
                if !faultline_api::validate(&federation).is_empty() {
                    continue;
                }
                let smaller = Scenario { federation, ..self.best.scenario.clone() };
                if let Some(trial) = self.any(&smaller)? {
                    self.best = trial;
                    continue 'smaller;
                }
            }
            return Ok(());
        }
    }

    /// Tries the scenario with its own seed first, and then with others. Returns the first trial that
    /// violates the property.
    fn any(&mut self, scenario: &Scenario) -> Result<Option<Trial>, Ended> {
        let others = (0..self.steps.seeds).filter(|&it| it != scenario.seed);
        for seed in std::iter::once(scenario.seed).chain(others) {
            if let Some(trial) = self.violating(Scenario { seed, ..scenario.clone() })? {
                return Ok(Some(trial));
            }
        }
        Ok(None)
    }

    /// Finds the seed of the violating run with the fewest facts.
    fn shortest(&mut self) -> Result<(), Ended> {
        let scenario = self.best.scenario.clone();
        for seed in 0..self.steps.last {
            if self.events >= self.steps.events + self.steps.events / 10 {
                break;
            }
            if let Some(trial) = self.violating(Scenario { seed, ..scenario.clone() })?
                && trial.trace.len() < self.best.trace.len()
            {
                self.best = trial;
            }
        }
        Ok(())
    }

    /// Finds an early deadline with which the run still violates the property. A run that would be only slightly shorter
    /// keeps its natural end.
    fn earliest(&mut self) -> Result<(), Ended> {
        let scenario = self.best.scenario.clone();
        let (mut too_early, mut enough) = (Span::ZERO, self.best.manifest.duration);
        let mut shortened: Option<Trial> = None;
        for _ in 0..DEADLINES {
            let deadline = short(Span(too_early.0.midpoint(enough.0)));
            if deadline <= too_early || deadline >= enough {
                break;
            }
            let mut earlier = scenario.clone();
            earlier.federation.spec.deadline = Some(Duration(deadline));
            let is_valid = faultline_api::validate(&earlier.federation).is_empty();
            match if is_valid { self.violating(earlier)? } else { None } {
                Some(trial) => (enough, shortened) = (deadline, Some(trial)),
                None => too_early = deadline,
            }
        }
        let is_worthwhile = |it: &Trial| it.trace.len() < self.best.trace.len() / 10 * 9;
        if let Some(trial) = shortened.filter(is_worthwhile) {
            self.best = trial;
        }
        Ok(())
    }

    fn violating(&mut self, scenario: Scenario) -> Result<Option<Trial>, Ended> {
        if (self.progress)(self.trials, &self.best).is_break() {
            return Err(Ended::Interrupted);
        }
        self.trials += 1;
        let trial = (self.run)(scenario).map_err(Ended::Failed)?;
        self.events += trial.stats.events;
        let violates = trial.violated().any(|it| it == self.property);
        Ok(violates.then_some(trial))
    }
}
