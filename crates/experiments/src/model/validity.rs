//! The reasons why a model may be wrong for a federation.

use faultline_api::Federation;

use super::calibrate::Calibration;
use super::formulas::{Model, period};

/// The waste per failure, as a share of the time between failures, above which formulas of first order overestimate the
/// waste by more than 1.4 percentage points.
const FIRST_ORDER: f64 = 0.15;
/// The range of the variation of times between failures that may be exponential.
const EXPONENTIAL: std::ops::RangeInclusive<f64> = 0.85..=1.15;
/// The deviation from 1 of the repeated work that still counts as a global rollback.
const GLOBAL: f64 = 0.1;

/// Returns why a model is out of its range; `None` if it applies.
pub fn why_not(model: Model, it: &Calibration) -> Option<String> {
    let constants = &it.constants;
    let best = model.best(constants);
    let span = period(constants, best);
    let waste = (constants.failure + constants.repeated * span / 2.0) / constants.mtbf;
    let is_exponential = EXPONENTIAL.contains(&it.variation);
    let bursts = || {
        format!(
            "it assumes exponential times between failures (variation 1; here {:.2}): with the same mean, bursts cost less, \
             and regular failures more",
            it.variation
        )
    };
    let first_order = || {
        format!(
            "a failure wastes {:.0} % of the time between failures on average; above {:.0} %, a formula of first order \
             overestimates the waste",
            100.0 * waste,
            100.0 * FIRST_ORDER
        )
    };
    let is_global = (constants.repeated - 1.0).abs() <= GLOBAL && it.rolled_back.mean >= 1.0 - 1e-9;
    match model {
        Model::Exact if !is_global => Some(format!(
            "it assumes that every failure rolls back all processes, which repeat all work since the last commit (here {:.0} % \
             of them, and {:.2} s per second)",
            100.0 * it.rolled_back.mean,
            constants.repeated
        )),
        Model::Exact | Model::Daly if !is_exponential => Some(bursts()),
        Model::Exact => None,
        Model::Young if constants.checkpoint > 0.1 * constants.mtbf => Some(format!(
            "it assumes that a checkpoint takes much less time than there is between failures (here {:.0} %)",
            100.0 * constants.checkpoint / constants.mtbf
        )),
        Model::Saxena if span < it.phases.detection => Some(format!(
            "it assumes that failures are detected within a period (here {:.1} s, and {span:.1} s)",
            it.phases.detection
        )),
        Model::Hierarchical if it.rolled_back.deviation > 0.5 * it.rolled_back.mean => Some(format!(
            "the share of processes rolled back varies too much ({:.0} % on average, deviation {:.0} %)",
            100.0 * it.rolled_back.mean,
            100.0 * it.rolled_back.deviation
        )),
        Model::Young | Model::Daly | Model::Saxena | Model::Hierarchical => {
            (waste > FIRST_ORDER).then(first_order)
        }
    }
}

/// Returns a note if a model yields a goodput of more than 100 % with one of the intervals: constants that are measured over
/// a short range, such as a negative growth of the delay, do not hold beyond it.
pub(super) fn note_on_excess(it: &Calibration, intervals: impl Iterator<Item = f64>) -> Option<String> {
    let all: Vec<f64> = intervals.collect();
    let exceeds = |model: &Model| all.iter().any(|every| model.exceeds_one(&it.constants, *every));
    let names: Vec<&str> = Model::ALL.iter().filter(|model| exceeds(model)).map(|it| it.name()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the formulas of {} yield a goodput of more than 100 % at some intervals, shown as 100 %: the measured constants \
             do not hold so far from the intervals of the measurement",
            names.join(", ")
        )
    })
}

/// Returns the reasons why all models may be wrong for a federation.
pub(super) fn notes(federation: &Federation, it: &Calibration) -> Vec<String> {
    let mut notes = Vec::new();
    let spec = &federation.spec;
    let is_random = |it: &&faultline_api::resource::FaultSpec| it.mtbf.is_some() || it.trace.is_some();
    let others = spec.faults.iter().filter(is_random).filter(|it| it.crash.is_none()).count();
    if others > 0 {
        notes.push(format!(
            "{others} of the random faults are no crashes of single processes, but the models take them for such"
        ));
    }
    if !spec.faults.iter().all(|it| is_random(&it)) {
        notes.push("the models ignore faults at fixed times or events".to_owned());
    }
    if spec.faults.iter().any(|it| it.repair().is_some() || it.trace.is_some() && it.crash.is_some()) {
        notes.push(
            "the models ignore that nodes are repaired, and that processes may wait for a node".to_owned(),
        );
    }
    if spec.clusters.iter().any(|it| !it.is_permanent()) {
        notes.push("the models ignore that clusters join and leave".to_owned());
    }
    if it.determination < 0.9 {
        notes.push(format!(
            "the delay of a run by a crash is not linear in the work since the last commit (R² {:.2}), so K and σ are rough",
            it.determination
        ));
    }
    let [crashes, recovered] = it.crashes;
    if recovered < crashes {
        notes.push(format!(
            "the protocol did not recover from {} of {crashes} crashes, which no model describes",
            crashes - recovered
        ));
    }
    notes
}
