//! One scenario, run and judged.

use std::cell::Cell;

use faultline_catalog::SetupError;
use faultline_checker::{Judgement, Property};
use faultline_session::{Recording, Session, Simulator, Unjudged};
use faultline_sim::Stats;
use faultline_trace::{Manifest, Trace};

use crate::scenario::Scenario;

/// A scenario with what came of it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The scenario.
    pub scenario: Scenario,
    /// What the simulator counted.
    pub stats: Stats,
    /// What a record of it would say beside the facts.
    pub manifest: Manifest,
    /// Its facts.
    pub trace: Trace,
    /// What the checker says.
    pub judgement: Judgement,
}

impl Trial {
    /// The properties that were violated.
    pub fn violated(&self) -> impl Iterator<Item = Property> {
        self.judgement.violated()
    }
}

/// A run that takes more is ended: two processes of a protocol that is wrong on purpose can answer each other for ever.
const MOST_EVENTS: u64 = 2_000_000;

thread_local! {
    static UNDER_WAY: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The seed that this thread is running: what a panic handler wants to say.
pub fn seed_under_way() -> Option<u64> {
    UNDER_WAY.get()
}

/// Runs a scenario on the simulator, and has the checker judge it. The federation must be valid.
pub fn run(scenario: Scenario) -> Result<Trial, SetupError> {
    UNDER_WAY.set(Some(scenario.seed));
    let Played { stats, run } = played(&scenario)?;
    let Recording { manifest, trace, judgement } = run.judge();
    UNDER_WAY.set(None);
    Ok(Trial { scenario, stats, manifest, trace, judgement })
}

/// Whether a second run of the same scenario is the same to the last fact.
pub fn repeats(trial: &Trial) -> Result<bool, SetupError> {
    UNDER_WAY.set(Some(trial.scenario.seed));
    let Played { stats, run } = played(&trial.scenario)?;
    UNDER_WAY.set(None);
    Ok(run.trace == trial.trace && run.manifest == trial.manifest && stats == trial.stats)
}

/// What came of a scenario, before it is judged.
#[derive(PartialEq)]
pub(crate) struct Played {
    pub(crate) stats: Stats,
    pub(crate) run: Unjudged,
}

fn played(scenario: &Scenario) -> Result<Played, SetupError> {
    let session = session(scenario).trusted(scenario.defect);
    let mut nobody = ();
    let mut simulator = simulator(&mut nobody);
    let run = session.simulate(&mut simulator)?;
    Ok(Played { stats: simulator.stats().clone(), run })
}

/// The session of a scenario.
pub(crate) fn session(scenario: &Scenario) -> Session<'_> {
    Session::new(&scenario.federation).seed(scenario.seed)
}

/// A simulator that ends what does not end by itself.
pub(crate) fn simulator(nobody: &mut ()) -> Simulator<'_> {
    Simulator::new(nobody).at_most(MOST_EVENTS)
}
