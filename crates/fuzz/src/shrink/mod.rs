//! The smallest scenario that violates a property: delta debugging.
//!
//! From the smaller federations that `candidates` names the first is kept that still violates the property, under its
//! own seed or one of a few others (whatever is changed, the draws of a run fall differently), until none does. Every
//! candidate is smaller, and the number of trials is bounded, so that this ends; nothing is random, so that it ends the
//! same way each time.

mod candidates;

use faultline_catalog::SetupError;
use faultline_checker::Property;

use crate::scenario::Scenario;
use crate::trial::{Trial, run};

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Seeds under which each candidate is tried.
    pub seeds: u64,
    /// Trials in all.
    pub trials: u64,
    /// Seeds among which the shortest trace of the smallest federation is looked for.
    pub last: u64,
}

impl Default for Steps {
    /// Some seconds on one core.
    fn default() -> Steps {
        Steps { seeds: 12, trials: 6_000, last: 300 }
    }
}

/// The smallest scenario that was found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// It, with what comes of it.
    pub trial: Trial,
    /// How many trials it took.
    pub trials: u64,
}

/// Shrinks a scenario that violates `property`; `progress` is told of each smaller one, with the trials made so far.
///
/// Fails as [`run`] does. Panics when the scenario does not violate the property.
pub fn shrink(
    scenario: &Scenario,
    property: Property,
    steps: Steps,
    mut progress: impl FnMut(u64, &Trial),
) -> Result<Shrunk, SetupError> {
    let mut search = Search { property, steps, trials: 0 };
    let mut best = run(scenario.clone())?;
    assert!(best.violated().any(|it| it == property), "the scenario violates {property:?}");
    'smaller: loop {
        for federation in candidates::of(&best.scenario.federation) {
            if search.trials >= steps.trials {
                break 'smaller;
            }
            if !faultline_api::validate(&federation).is_empty() {
                continue;
            }
            let smaller = Scenario { federation, ..best.scenario.clone() };
            if let Some(trial) = search.any(&smaller)? {
                best = trial;
                progress(search.trials, &best);
                continue 'smaller;
            }
        }
        break;
    }
    let shortest = search.shortest(best)?;
    progress(search.trials, &shortest);
    Ok(Shrunk { trial: shortest, trials: search.trials })
}

struct Search {
    property: Property,
    steps: Steps,
    trials: u64,
}

impl Search {
    /// The first trial of the scenario, under its own seed and then others, that violates the property.
    fn any(&mut self, scenario: &Scenario) -> Result<Option<Trial>, SetupError> {
        let others = (0..self.steps.seeds).filter(|&it| it != scenario.seed);
        for seed in std::iter::once(scenario.seed).chain(others) {
            if let Some(trial) = self.violating(Scenario { seed, ..scenario.clone() })? {
                return Ok(Some(trial));
            }
        }
        Ok(None)
    }

    /// The seed under which the fewest facts are stated before the property is violated.
    fn shortest(&mut self, best: Trial) -> Result<Trial, SetupError> {
        let scenario = best.scenario.clone();
        let mut shortest = best;
        for seed in 0..self.steps.last {
            if let Some(trial) = self.violating(Scenario { seed, ..scenario.clone() })?
                && trial.trace.len() < shortest.trace.len()
            {
                shortest = trial;
            }
        }
        Ok(shortest)
    }

    fn violating(&mut self, scenario: Scenario) -> Result<Option<Trial>, SetupError> {
        self.trials += 1;
        let trial = run(scenario)?;
        let violates = trial.violated().any(|it| it == self.property);
        Ok(violates.then_some(trial))
    }
}
