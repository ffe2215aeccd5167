//! A sweep as text, as JSON, and as CSV with a line for every run.

use std::fmt::Write;
use std::iter;

use faultline_report::explain::count;
use faultline_report::table::{split, wrapped};
use serde::Serialize;
use serde_json::{Value, json};

use super::best::{Best, best};
use super::{Measured, Sweep};
use crate::compare::estimate::FEW;
use crate::compare::quantity::Quantity;
use crate::text::comma_separated;
use crate::verdict_counts::VerdictCounts;

/// The maximum number of settings that are named individually. Further settings are only counted.
const NAMED: usize = 4;
/// The maximum number of reasons listed for runs that did not pass.
const REASONS: usize = 3;

/// Describes which parameters vary, and how many runs were performed.
pub fn scope(sweep: &Sweep) -> String {
    let Sweep { plan, seeds, runs } = sweep;
    let varied: Vec<String> = plan
        .parameters
        .iter()
        .map(|it| format!("{} ({})", it.path, count(it.values.len() as u64, "value")))
        .collect();
    let with = match seeds {
        (first, 1) => format!("seed {first}"),
        (first, number) => format!("seeds {first} to {}", first.saturating_add(u64::from(*number)) - 1),
    };
    format!(
        "{}; {} of {} with {with}, in virtual time",
        varied.join(" x "),
        runs.len(),
        count(plan.settings.len() as u64 * u64::from(seeds.1), "run")
    )
}

/// Formats the sweep as a table with a row for each setting, followed by the setting with the best value of
/// `quantity`.
pub fn text(sweep: &Sweep, quantity: &Quantity) -> String {
    let drawn = sweep.varying();
    let parameters = sweep.plan.parameters.iter().map(|it| it.short());
    let titles: Vec<&str> = parameters.chain(["verdicts"]).chain(drawn.iter().map(|it| it.title)).collect();
    let row = |setting: usize| {
        let values = sweep.plan.values(setting).into_iter().map(str::to_owned);
        let verdicts = std::iter::once(verdicts(sweep, setting));
        values.chain(verdicts).chain(drawn.iter().map(|it| cell(sweep, setting, it))).collect()
    };
    let rows: Vec<Vec<String>> = (0..sweep.plan.settings.len()).map(row).collect();
    let table = split(sweep.plan.parameters.len(), &titles, &rows);
    let mut text = wrapped("", &format!("{}: {}", sweep.plan.name, scope(sweep)));
    write!(text, "\n{table}\n").expect("a string accepts every write");
    text.extend(conclusions(sweep, quantity).into_iter().chain(reasons(sweep)).map(|it| wrapped("", &it)));
    text
}

/// Formats a quantity at a setting, with its interval if there are enough runs for one.
pub(super) fn cell(sweep: &Sweep, setting: usize, quantity: &Quantity) -> String {
    sweep.estimate(setting, quantity).map_or_else(|| "-".to_owned(), |it| quantity.unit.text(&it))
}

/// Formats the verdicts of a setting's runs.
pub(super) fn verdicts(sweep: &Sweep, setting: usize) -> String {
    sweep.counts(setting).verdicts().unwrap_or_else(|| "not run".to_owned())
}

/// Returns sentences about the setting with the best value of `quantity`.
pub(super) fn conclusions(sweep: &Sweep, quantity: &Quantity) -> Vec<String> {
    let Some(Best { setting, mean, ties, next, excluded }) = best(sweep, quantity) else {
        return vec![format!(
            "There is no best setting for {}: no setting has runs that all completed and passed.",
            quantity.title
        )];
    };
    let words = |setting: usize| sweep.plan.words(setting);
    let named = |settings: &[usize]| {
        let some: Vec<String> = settings.iter().take(NAMED).map(|&it| words(it)).collect();
        let more = settings.len().saturating_sub(NAMED);
        if more == 0 { some.join(", ") } else { format!("{}, and {more} more", some.join(", ")) }
    };
    let extreme = if quantity.rises() { "Highest" } else { "Lowest" };
    let mut told =
        vec![format!("{extreme} {}: {} ({}).", quantity.title, words(setting), quantity.unit.brief(mean))];
    let are_few = sweep.seeds.1 < FEW as u32;
    let hardly_varies = !are_few && hardly_varies(sweep, quantity);
    if !ties.is_empty() {
        let remedy = if hardly_varies { "" } else { "; add seeds to decide" };
        told.push(format!("These seeds cannot distinguish it from {}{remedy}.", named(&ties)));
    }
    if let Some((other, difference)) = next {
        told.push(format!(
            "Of the settings that are worse with 95 % confidence, the best is {}: it is worse by {}, compared seed by \
             seed.",
            words(other),
            quantity.unit.text(&difference)
        ));
    }
    if are_few {
        told.push(format!(
            "With fewer than {FEW} seeds, there are no confidence intervals: brackets show the range of the runs, and \
             every other setting counts as indistinguishable. Use `--seeds {FEW}` or more."
        ));
    } else if hardly_varies {
        told.push(format!(
            "At every setting, {} hardly differs between seeds, so the intervals show little. Seeds matter only if \
             something in the file is random, such as faults (`mtbf`), jitter or traffic.",
            quantity.title
        ));
    }
    if !excluded.is_empty() {
        let why = "they have no runs, or a run that did not complete or did not pass";
        told.push(format!("Left out, because {why}: {}.", named(&excluded)));
    }
    told
}

/// Returns whether, at each setting, the values of a quantity differ by at most 0.1 % between seeds.
fn hardly_varies(sweep: &Sweep, quantity: &Quantity) -> bool {
    const HARDLY: f64 = 1e-3;
    let mut estimates =
        (0..sweep.plan.settings.len()).filter_map(|setting| sweep.estimate(setting, quantity));
    estimates.all(|it| it.spread.most - it.spread.least <= HARDLY * it.mean().abs())
}

/// Returns the first few distinct reasons why runs did not pass.
pub(super) fn reasons(sweep: &Sweep) -> Vec<String> {
    let mut seen = Vec::new();
    for run in &sweep.runs {
        for reason in &run.reasons {
            if seen.len() < REASONS && !seen.iter().any(|(_, known)| *known == reason) {
                seen.push((run, reason));
            }
        }
    }
    let told = |(run, reason): (&Measured, &String)| {
        format!("{}, seed {}: {reason}", sweep.plan.words(run.setting), run.seed)
    };
    seen.into_iter().map(told).collect()
}

/// Formats the runs as CSV, with one line for each run.
///
/// # Panics
///
/// Panics if a verdict cannot be written as JSON, which would be a bug.
pub fn csv(sweep: &Sweep) -> String {
    let quantities: Vec<&Quantity> = super::quantities().collect();
    let parameters = sweep.plan.parameters.iter().map(|it| it.path.as_str());
    let head = parameters.chain(["seed", "completed", "verdict"]).chain(quantities.iter().map(|it| it.name));
    let rows = sweep.runs.iter().map(|run| {
        let mut row: Vec<String> = sweep.plan.values(run.setting).into_iter().map(str::to_owned).collect();
        let verdict = serde_json::to_value(run.verdict).expect("a verdict has a JSON form");
        row.extend([
            run.seed.to_string(),
            run.completed.to_string(),
            verdict.as_str().expect("a verdict is a word").to_owned(),
        ]);
        let value = |it: &&Quantity| run.values.get(it.name).map(f64::to_string).unwrap_or_default();
        row.extend(quantities.iter().map(value));
        row
    });
    comma_separated(iter::once(head.map(str::to_owned).collect()).chain(rows))
}

/// Formats every setting with its estimates, and the best setting, as JSON.
///
/// # Panics
///
/// Panics if a number cannot be written as JSON, which would be a bug.
pub fn json(sweep: &Sweep, quantity: &Quantity) -> String {
    #[derive(Serialize)]
    struct SettingObject {
        setting: usize,
        values: serde_json::Map<String, Value>,
        #[serde(flatten)]
        tally: VerdictCounts,
        quantities: serde_json::Map<String, Value>,
    }

    let setting = |number: usize| {
        let values: serde_json::Map<String, Value> = sweep
            .plan
            .parameters
            .iter()
            .zip(sweep.plan.values(number))
            .map(|(it, value)| (it.path.clone(), value.into()))
            .collect();
        let estimates: serde_json::Map<String, Value> = super::quantities()
            .filter_map(|it| Some((it.name.to_owned(), json!(sweep.estimate(number, it)?))))
            .collect();
        SettingObject { setting: number + 1, values, tally: sweep.counts(number), quantities: estimates }
    };
    let best = best(sweep, quantity).map(|it| {
        json!({
            "quantity": quantity.name,
            "setting": it.setting + 1,
            "mean": it.mean,
            "ties": it.ties.iter().map(|it| it + 1).collect::<Vec<_>>(),
            "nearestWorse": it.next.map(|(other, difference)| json!({ "setting": other + 1, "difference": difference })),
            "excluded": it.excluded.iter().map(|it| it + 1).collect::<Vec<_>>(),
        })
    });
    let document = json!({
        "name": sweep.plan.name,
        "firstSeed": sweep.seeds.0,
        "seeds": sweep.seeds.1,
        "missing": sweep.missing(),
        "settings": (0..sweep.plan.settings.len()).map(setting).collect::<Vec<_>>(),
        "best": best,
    });
    let mut text = serde_json::to_string_pretty(&document).expect("a sweep has a JSON form");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use faultline_checker::Verdict;

    use super::super::{Plan, quantities};
    use super::*;

    /// Returns the conclusions about two settings, each with this number of seeds. Runs of the second setting take
    /// `apart` seconds longer; each run takes `step` seconds longer than the run with the preceding seed.
    fn said(seeds: u32, step: f64, apart: f64) -> String {
        said_of("seconds", seeds, step, apart)
    }

    fn said_of(quantity: &str, seeds: u32, step: f64, apart: f64) -> String {
        let sample = faultline_api::samples::sample("quickstart").expect("the sample exists").text;
        let federation = faultline_api::parse("quickstart", sample.as_bytes()).expect("the sample is valid");
        let parameter = "protocol.hc3i.checkpointEvery=1s,2s".parse().expect("valid");
        let plan = Plan::new(&federation, vec![parameter], None).expect("both settings are valid");
        let run = |setting: usize, seed: u32| Measured {
            setting,
            seed: seed.into(),
            completed: true,
            verdict: Verdict::Pass,
            without_fault: false,
            reasons: Vec::new(),
            values: BTreeMap::from(
                ["seconds", "ettrPercent"]
                    .map(|it| (it.to_owned(), 100.0 + setting as f64 * apart + f64::from(seed) * step)),
            ),
            out_of_memory: false,
        };
        let runs = (0..2).flat_map(|setting| (0..seeds).map(move |seed| run(setting, seed))).collect();
        let sweep = Sweep { plan, seeds: (0, seeds), runs };
        let quantity = quantities().find(|it| it.name == quantity).expect("the quantity exists");
        conclusions(&sweep, quantity).join("\n")
    }

    #[test]
    fn the_best_setting_has_the_lowest_costs_or_the_highest_benefit() {
        for (quantity, best, worse) in [
            (
                "seconds",
                "Lowest time to completion: checkpointEvery=1s",
                "checkpointEvery=2s: it is worse by 10 s",
            ),
            (
                "ettrPercent",
                "Highest effective training time ratio: checkpointEvery=2s",
                "checkpointEvery=1s: it is worse by 10 %",
            ),
        ] {
            let said = said_of(quantity, 5, 1.0, 10.0);
            assert!(said.starts_with(best) && said.contains(worse), "{said}");
        }
    }

    #[test]
    fn too_few_seeds_and_seeds_without_effect_are_pointed_out() {
        let (few, same) = ("With fewer than 5 seeds", "time to completion hardly differs between seeds");
        for (seeds, step, has_few, is_same) in
            [(4, 1.0, true, false), (5, 1.0, false, false), (5, 0.0, false, true), (5, 0.01, false, true)]
        {
            let said = said(seeds, step, 1.0);
            assert_eq!((said.contains(few), said.contains(same)), (has_few, is_same), "{said}");
        }
        assert!(said(4, 1.0, 0.0).contains("; add seeds to decide."));
        assert!(said(5, 0.0, 0.0).contains("cannot distinguish it from checkpointEvery=2s.\n"));
    }
}
