//! The models as text for a terminal, and as one JSON object.

use faultline_failures::text::duration;
use faultline_report::explain::count;
use faultline_report::table::{split, wrapped};
use serde_json::{Value, json};

use super::formulas::Model;
use super::validity::why_not;
use super::{Models, NEARLY};
use crate::compare::quantity::Unit;

/// Formats the measured constants, a table of the models, and the measurements.
pub fn text(it: &Models) -> String {
    let mut text = wrapped("", &format!("{}: {}", it.name, scope(it)));
    text += &wrapped(" measured: ", &constants(it));
    text.push('\n');
    let file = duration(it.calibration.every);
    let at_file = format!("goodput at {file} (the file)");
    let titles = ["model", "best checkpointEvery", "goodput there", &at_file, "formula"];
    let rows: Vec<Vec<String>> = Model::ALL.map(|model| row(it, model)).into();
    text += &split(1, &titles, &rows);
    let why: Vec<String> = Model::ALL
        .iter()
        .filter_map(|&model| Some(format!("* {}: {}.\n", model.name(), why_not(model, &it.calibration)?)))
        .collect();
    if !why.is_empty() {
        text.push('\n');
        text.extend(why.iter().map(|it| wrapped("", it.trim_end())));
    }
    if !it.simulated.is_empty() {
        text.push('\n');
        text += &simulated(it);
    }
    text.push('\n');
    text += &wrapped("", &advice(it));
    text.extend(it.notes.iter().map(|line| wrapped("note: ", line)));
    text
}

/// Describes the federation.
pub(super) fn scope(it: &Models) -> String {
    let protocol = it.path.split('.').nth(1).unwrap_or_default();
    let kind =
        if (0.85..=1.15).contains(&it.calibration.variation) { "exponential" } else { "not exponential" };
    format!(
        "{protocol}, {}, one fault in {} ({kind})",
        count(it.ranks.into(), "process"),
        duration(it.calibration.constants.mtbf)
    )
}

/// Formats the measured constants.
pub(super) fn constants(it: &Models) -> String {
    let calibration = &it.calibration;
    let constants = &calibration.constants;
    let phases = &calibration.phases;
    let known = [
        ("detection", phases.detection),
        ("replacement", phases.replacement),
        ("restore", phases.restore),
        ("rejoining", phases.rejoining),
    ];
    let rest = constants.failure - known.iter().map(|it| it.1).sum::<f64>();
    let parts: Vec<String> = known
        .into_iter()
        .chain([("rest", rest)])
        .filter(|it| it.1.abs() >= 0.005)
        .map(|(name, seconds)| format!("{name} {seconds:.2}"))
        .collect();
    format!(
        "T₀ {}; λ {:.3}; C {:.2} s, β {:.3}; K {:.2} s ({}), σ {:.2}, R² {:.2}; {:.0} % roll back",
        duration(constants.work),
        constants.speed,
        constants.checkpoint,
        constants.checkpoint_growth,
        constants.failure,
        parts.join(", "),
        constants.repeated,
        calibration.determination,
        100.0 * calibration.rolled_back.mean
    )
}

fn row(it: &Models, model: Model) -> Vec<String> {
    let constants = &it.calibration.constants;
    let best = model.best(constants);
    let percent = |every: f64| format!("{:.1} %", 100.0 * model.goodput(constants, every));
    let mark = if why_not(model, &it.calibration).is_some() { "*" } else { "" };
    vec![
        format!("{}{mark}", model.name()),
        duration(best),
        percent(best),
        percent(it.calibration.every),
        if model.is_first_order() { "first order" } else { "own" }.to_owned(),
    ]
}

fn simulated(it: &Models) -> String {
    let titles: Vec<&str> = ["checkpointEvery", "simulated goodput"]
        .into_iter()
        .chain(Model::ALL[2..].iter().map(|it| it.name()))
        .collect();
    let constants = &it.calibration.constants;
    let row = |(every, goodput): &(f64, _)| {
        let model = |model: &Model| format!("{:.1} %", 100.0 * model.goodput(constants, *every));
        let mut cells = vec![format!("{every}s"), Unit::Percent.text(goodput)];
        cells.extend(Model::ALL[2..].iter().map(model));
        cells
    };
    let rows: Vec<Vec<String>> = it.simulated.iter().map(row).collect();
    split(1, &titles, &rows)
}

/// Returns a sentence with the recommended interval.
pub fn advice(it: &Models) -> String {
    let (low, high) = it.advice.range;
    let doubt = match why_not(it.advice.model, &it.calibration) {
        Some(_) => ", which is out of its range: confirm it with `--check`",
        None => "",
    };
    format!(
        "Best: {} ({}). From {} to {}, goodput is at most {} percentage points lower, according to the {} model{doubt}.",
        setting(it),
        duration(it.advice.best),
        duration(low),
        duration(high),
        100.0 * NEARLY,
        it.advice.model.name()
    )
}

/// Formats the recommended interval as an option of `faultline sweep --set`.
pub fn setting(it: &Models) -> String {
    format!("{}={}s", it.path, rounded(it.advice.best))
}

/// Rounds a number to two significant digits, so that a file shows no false precision.
pub(super) fn rounded(seconds: f64) -> f64 {
    let unit = 10_f64.powf(seconds.abs().max(1e-9).log10().floor() - 1.0);
    if unit >= 1.0 {
        (seconds / unit).round() * unit
    } else {
        (seconds / unit).round() / (1.0 / unit).round()
    }
}

/// Formats the models as one JSON object.
///
/// # Panics
///
/// Panics if a number cannot be written as JSON, which would be a bug.
pub fn json(it: &Models) -> String {
    let calibration = &it.calibration;
    let model = |model: Model| {
        let best = model.best(&calibration.constants);
        let why = why_not(model, calibration);
        json!({
            "name": model.name(),
            "best": best,
            "goodputAtBest": model.goodput(&calibration.constants, best),
            "goodputAtFile": model.goodput(&calibration.constants, calibration.every),
            "valid": why.is_none(),
            "why": why,
        })
    };
    let simulated = |(every, goodput): &(f64, _)| json!({ "every": every, "goodputPercent": goodput });
    let (low, high) = it.advice.range;
    let document = json!({
        "name": it.name,
        "constants": calibration,
        "models": Model::ALL.map(model),
        "simulated": it.simulated.iter().map(simulated).collect::<Vec<Value>>(),
        "advice": { "path": it.path, "value": it.advice.best, "low": low, "high": high, "model": it.advice.model.name() },
        "notes": it.notes,
    });
    serde_json::to_string_pretty(&document).expect("numbers and words have a JSON form") + "\n"
}
