//! One scenario, run and judged.

use std::cell::Cell;
use std::time::UNIX_EPOCH;

use faultline_catalog::{Setup, SetupError, Visitor, manifest, with_valid};
use faultline_checker::{Context, Judgement, Property, judge};
use faultline_core::{Node, Span, Time};
use faultline_sim::{Run, Simulation};
use faultline_trace::manifest::Backend;
use faultline_trace::{Manifest, Recorder, Trace};
use faultline_workloads::Workload;

use crate::scenario::Scenario;

/// A scenario with what came of it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The scenario.
    pub scenario: Scenario,
    /// How the run ended.
    pub run: Run,
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
    static UNDER_WAY: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The seed that this thread is running: what a panic handler wants to say.
pub fn seed_under_way() -> Option<u32> {
    UNDER_WAY.get()
}

/// Runs a scenario on the simulator, and has the checker judge it. The federation must be valid.
pub fn run(scenario: Scenario) -> Result<Trial, SetupError> {
    UNDER_WAY.set(Some(scenario.seed));
    let Played { run, manifest, trace } = played(&scenario)?;
    let judgement = judged(&scenario, &manifest, &trace);
    UNDER_WAY.set(None);
    Ok(Trial { scenario, run, manifest, trace, judgement })
}

/// Whether a second run of the same scenario is the same to the last fact.
pub fn repeats(trial: &Trial) -> Result<bool, SetupError> {
    UNDER_WAY.set(Some(trial.scenario.seed));
    let second = played(&trial.scenario)?;
    UNDER_WAY.set(None);
    Ok(second.trace == trial.trace && second.run == trial.run)
}

pub(crate) fn judged(scenario: &Scenario, manifest: &Manifest, trace: &Trace) -> Judgement {
    let context = Context {
        settled_after: Some(Span(scenario.federation.spec.deadline().0 / 2)),
        ..Context::from_manifest(manifest)
    };
    judge(trace, &context)
}

/// What came of a scenario, before it is judged.
pub(crate) struct Played {
    pub(crate) run: Run,
    pub(crate) manifest: Manifest,
    pub(crate) trace: Trace,
}

fn played(scenario: &Scenario) -> Result<Played, SetupError> {
    let Scenario { federation, seed, defect } = scenario;
    with_valid(federation, Some((*seed).into()), *defect, Play(scenario))
}

struct Play<'a>(&'a Scenario);

impl Visitor for Play<'_> {
    type Output = Played;

    fn visit<P>(self, setup: Setup<P>) -> Played
    where
        P: faultline_core::Protocol + Send + Sync + 'static,
        P::Config: Send + Sync,
    {
        play(self.0, &setup)
    }
}

/// Runs a scenario whose federation has been set up.
pub(crate) fn play<P>(scenario: &Scenario, setup: &Setup<P>) -> Played
where
    P: faultline_core::Protocol + Send + Sync + 'static,
    P::Config: Send + Sync,
{
    let mut manifest = manifest::draft(&scenario.federation, "", setup, Backend::Simulate, UNIX_EPOCH);
    manifest.expected = manifest::expected(setup);
    let mut facts = Recorder::default();
    let mut simulation = Simulation::<Node<P, Workload>, _>::new(setup.simulation(), &mut facts);
    while simulation.stats().events < MOST_EVENTS && simulation.step() {}
    if simulation.outcome().is_none() {
        simulation.interrupt();
    }
    let run = simulation.run();
    manifest.outcome = Some(run.outcome.clone());
    manifest.faults.clone_from(&run.faults);
    manifest.duration = run.ended.since(Time::ZERO);
    Played { run, manifest, trace: facts.finish() }
}
