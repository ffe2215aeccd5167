//! One scenario, run and judged.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use faultline_catalog::{SetupError, with_exchanged_executions};
use faultline_checker::{Finding, Judgement, Property, Strictness};
use faultline_core::fault::Outcome;
use faultline_session::{Recording, Session, SimulationObserver, Simulator, UnjudgedRecording};
use faultline_sim::Stats;
use faultline_trace::{Manifest, Trace};

use crate::coverage::decisive_violation;
use crate::exchange::{Exchange, with_exchange};
use crate::scenario::Scenario;

/// A scenario and its run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The scenario.
    pub scenario: Scenario,
    /// The simulator's counters.
    pub stats: Stats,
    /// The record of the run without the facts.
    pub manifest: Manifest,
    /// The facts of the run.
    pub trace: Trace,
    /// The checker's judgement.
    pub judgement: Judgement,
    pub(crate) exchange: Arc<Exchange>,
}

impl Trial {
    /// Returns the violated properties.
    pub fn violated(&self) -> impl Iterator<Item = Property> + Clone {
        violated(&self.judgement)
    }

    /// Returns the first violation that counts as detecting a defect. Waste does not count. A different result counts
    /// only for task-based programs, which have a reference result.
    pub fn decisive_violation(&self) -> Option<Property> {
        decisive_violation(self.scenario.federation.spec.protocol.name(), self.violated())
    }
}

/// Returns the properties that a simulated run violates. No fact of such a run can be lost or changed, so facts that
/// contradict each other are a violation, too. No protocol can cause them, so it is a violation by Faultline itself. Unless
/// facts contradict each other, a doubtful violation is one that a flipped bit may explain, and does not count.
pub(crate) fn violated(judgement: &Judgement) -> impl Iterator<Item = Property> + Clone + '_ {
    let contradicts = judgement.of(Property::RecordComplete).unknown.is_some();
    let counts = move |it: &&Finding| it.violation_count() > 0 && (contradicts || !it.is_doubtful);
    let counted = judgement.findings.iter().filter(counts);
    counted.map(|it| it.property).chain(contradicts.then_some(Property::RecordComplete))
}

/// The maximum number of events of a run. Without a limit, two processes of a defective protocol could answer each
/// other endlessly.
const MOST_EVENTS: u64 = 2_000_000;

thread_local! {
    static UNDER_WAY: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Returns the seed of this thread's current run, for a panic handler; `None` if the thread is not performing
/// a run.
pub fn seed_under_way() -> Option<u64> {
    UNDER_WAY.get()
}

/// Calls `work`, during which [`seed_under_way`] returns `seed`.
fn with_seed<T>(seed: u64, work: impl FnOnce() -> T) -> T {
    UNDER_WAY.set(Some(seed));
    let result = work();
    UNDER_WAY.set(None);
    result
}

static STOPPED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Sets the flag that interrupts the runs of [`run_until_stopped`]. Only the first call has an effect.
pub fn stop_when(flag: Arc<AtomicBool>) {
    drop(STOPPED.set(flag));
}

/// Interrupts a schedule once the flag of [`stop_when`] is set.
struct Stop;

impl SimulationObserver for Stop {
    fn is_interrupted(&self) -> bool {
        STOPPED.get().is_some_and(|it| it.load(Ordering::Relaxed))
    }
}

/// Runs a scenario on the simulator, and judges it. Under the built-in protocols, waste violates a property. Under a
/// protocol from another crate, waste is only a remark, because such a protocol may accept it. The federation must be
/// valid.
///
/// # Errors
///
/// Returns an error if the federation cannot be set up.
pub fn run(scenario: Scenario) -> Result<Trial, SetupError> {
    run_observed(scenario, &mut ())
}

/// Works like [`run`], but interrupts the run once the flag of [`stop_when`] is set.
///
/// # Errors
///
/// Returns an error if the federation cannot be set up.
pub fn run_until_stopped(scenario: Scenario) -> Result<Trial, SetupError> {
    run_observed(scenario, &mut Stop)
}

fn run_observed(scenario: Scenario, observer: &mut dyn SimulationObserver) -> Result<Trial, SetupError> {
    let is_of_user = scenario.federation.spec.protocol.is_of_user();
    let strictness = if is_of_user { Strictness::Lenient } else { Strictness::Strict };
    let judged = || played(&scenario, observer).map(|it| (it.stats, it.run.judge_as(strictness)));
    let (exchange, judged) = with_exchange(&scenario.federation, || with_seed(scenario.seed, judged));
    let (stats, Recording { manifest, trace, judgement }) = judged?;
    Ok(Trial { scenario, stats, manifest, trace, judgement, exchange: exchange.into() })
}

/// The result of running a schedule for the second time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// The second run was identical to the first.
    Equal,
    /// The second run differed. The sentence names the first reply of a program that differed, if there is one.
    Different(Option<String>),
}

/// Runs the scenario of a trial again, and compares the second run with the first; `None` if one of the two reached the
/// memory limit, because the memory use of the rest of the program affects when this happens.
///
/// # Errors
///
/// Returns an error if the federation cannot be set up.
pub fn repeats(trial: &Trial) -> Result<Option<Repetition>, SetupError> {
    if is_out_of_memory(&trial.manifest) {
        return Ok(None);
    }
    // An execution that serves several lives may remember an earlier one.
    let again = || with_exchanged_executions(|| played(&trial.scenario, &mut Stop));
    let again = || with_seed(trial.scenario.seed, again);
    let (exchange, played) = with_exchange(&trial.scenario.federation, again);
    let UnjudgedRun { stats, run } = played?;
    let is_equal =
        run.trace.streams == trial.trace.streams && run.manifest == trial.manifest && stats == trial.stats;
    let differing_reply = trial.exchange.first_difference(&exchange);
    let repetition = match is_equal && differing_reply.is_none() {
        true => Repetition::Equal,
        false => Repetition::Different(differing_reply),
    };
    Ok((!is_out_of_memory(&run.manifest)).then_some(repetition))
}

/// Returns whether a run ended because the program reached its memory limit.
pub(crate) fn is_out_of_memory(manifest: &Manifest) -> bool {
    matches!(manifest.outcome, Some(Outcome::OutOfMemory(_)))
}

/// The result of a scenario before judgement.
#[derive(PartialEq)]
pub(crate) struct UnjudgedRun {
    pub(crate) stats: Stats,
    pub(crate) run: UnjudgedRecording,
}

pub(crate) fn played(
    scenario: &Scenario,
    observer: &mut dyn SimulationObserver,
) -> Result<UnjudgedRun, SetupError> {
    let session = session(scenario).trusted(scenario.defect);
    let mut simulator = simulator(observer);
    let run = session.simulate(&mut simulator)?;
    Ok(UnjudgedRun { stats: simulator.stats().clone(), run })
}

/// Returns the session of a scenario.
pub(crate) fn session(scenario: &Scenario) -> Session<'_> {
    Session::new(&scenario.federation).seed(scenario.seed).needing_no_faults()
}

/// Returns a simulator that limits the number of events.
pub(crate) fn simulator(observer: &mut dyn SimulationObserver) -> Simulator<'_> {
    Simulator::new(observer).at_most(MOST_EVENTS)
}

#[cfg(test)]
mod tests {
    use faultline_core::{Life, ProcessId};

    use super::*;

    #[test]
    fn facts_that_contradict_each_other_are_a_violation() {
        let scenario = Scenario::new(1, Some("hc3i".parse().expect("it is a protocol")), None);
        let run = played(&scenario, &mut ()).expect("the federation is valid").run;
        let judged = |run: UnjudgedRecording| violated(&run.judge().judgement).collect::<Vec<_>>();
        assert_eq!(judged(run.clone()), []);
        let mut without = run;
        without.trace.streams.remove(&(ProcessId(0), Life(1))).expect("the process has reported facts");
        assert_eq!(judged(without), [Property::RecordComplete]);
    }
}
