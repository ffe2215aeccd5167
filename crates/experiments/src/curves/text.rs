//! The curves as text for a terminal, and as one JSON object.

use faultline_report::explain::count;
use faultline_report::table::{split, wrapped};
use serde_json::{Map, Value, json};

use super::crossing::{Best, ENOUGH, RESAMPLES, best};
use super::{Curve, Curves, Point};
use crate::compare::quantity::Unit;
use crate::sweep::parameter::Numbers;

/// The maximum number of reasons listed for the runs of one protocol that did not pass.
const REASONS: usize = 3;

/// Formats the goodput of each protocol at each value, followed by the break-even values.
pub fn text(it: &Curves) -> String {
    let mut text = wrapped("", &format!("{}: {}", it.plan.name, scope(it)));
    text += &wrapped("", &format!("Goodput over {}:", it.plan.parameters[0].path));
    text.push('\n');
    let parameter = it.plan.parameters[0].short();
    let protocols = it.curves.iter().map(|curve| curve.protocol.as_str());
    let titles: Vec<&str> = [parameter].into_iter().chain(protocols).chain(["best"]).collect();
    let row = |(setting, value): (usize, &str)| {
        let cells = it.curves.iter().map(|curve| cell(&curve.points[setting]));
        [value.to_owned()].into_iter().chain(cells).chain([best_at(it, setting)]).collect::<Vec<_>>()
    };
    let mut rows: Vec<Vec<String>> = it.values().into_iter().enumerate().map(row).collect();
    if it.curves.iter().any(|curve| curve.calm.is_some()) {
        let calm = it.curves.iter().map(|curve| curve.calm.as_ref().map_or_else(|| "-".to_owned(), cell));
        rows.push(["no faults".to_owned()].into_iter().chain(calm).chain([String::new()]).collect());
    }
    text += &split(1, &titles, &rows);
    text.push('\n');
    text.extend(conclusions(it).iter().map(|line| wrapped("", line)));
    if it.missing > 0 {
        text += &format!("Missing because the work was interrupted: {}.\n", count(it.missing, "run"));
    }
    let remarks = remarks(it);
    if !remarks.is_empty() {
        text.push('\n');
    }
    text.extend(remarks.iter().map(|line| wrapped("note: ", line)));
    text
}

/// Describes what was run.
pub(super) fn scope(it: &Curves) -> String {
    let last = it.first_seed + u64::from(it.seeds.saturating_sub(1));
    let seeds =
        if it.seeds == 1 { format!("seed {last}") } else { format!("seeds {} to {last}", it.first_seed) };
    format!(
        "{} on {} in {}, {seeds}, in virtual time",
        it.application,
        count(it.ranks.into(), "process"),
        count(it.clusters as u64, "cluster")
    )
}

/// Formats the goodput of a point. A star marks points some of whose runs did not complete.
pub(super) fn cell(point: &Point) -> String {
    let unfinished = if point.counts.completed < point.counts.runs { "*" } else { "" };
    point.estimate().map_or_else(|| "-".to_owned(), |it| format!("{}{unfinished}", Unit::Percent.text(it)))
}

/// Names the best protocol at a value, and those from which the seeds cannot distinguish it.
pub(super) fn best_at(it: &Curves, setting: usize) -> String {
    let Some(Best { curve, ties }) = best(&it.curves, setting) else { return "-".to_owned() };
    let name = |it: &Curve| it.protocol.clone();
    let ties: Vec<String> = ties.into_iter().map(|tie| name(&it.curves[tie])).collect();
    let best = name(&it.curves[curve]);
    if ties.is_empty() { best } else { format!("{best} (or {})", ties.join(", ")) }
}

/// Returns a sentence for each break-even value; otherwise, a sentence that names the best protocol.
pub(super) fn conclusions(it: &Curves) -> Vec<String> {
    let name = |curve: usize| it.curves[curve].protocol.as_str();
    let mut told = Vec::new();
    let Some(numbers) = Numbers::of(&it.plan.parameters[0]) else { return told };
    for crossing in &it.crossings {
        let (below, above) = (name(crossing.below), name(crossing.above));
        let values = it.values();
        told.push(if crossing.is_decided() {
            let interval = crossing
                .interval
                .map(|(low, high)| format!(" ({} to {})", numbers.text(low), numbers.text(high)));
            format!(
                "Below {} {}{}, {below} has the higher goodput; above it, {above}.",
                it.named(),
                numbers.text(crossing.value),
                interval.unwrap_or_default()
            )
        } else {
            format!(
                "These seeds do not decide between {below} and {above} from {} to {}.",
                values[crossing.after],
                values[crossing.after + 1]
            )
        });
    }
    let settings = 0..it.plan.settings.len();
    let winners: Vec<Best> = settings.filter_map(|setting| best(&it.curves, setting)).collect();
    if let Some(first) = winners.first().filter(|first| winners.iter().all(|it| it.curve == first.curve)) {
        told.push(undisputed(name(first.curve), &winners, name));
    }
    if !it.crossings.is_empty() && it.seeds < ENOUGH as u32 {
        told.push(format!(
            "With fewer than {ENOUGH} seeds, break-even values have no interval. Use `--seeds {ENOUGH}` or more."
        ));
    }
    told
}

/// Describes a protocol that has the highest mean goodput at every value.
fn undisputed<'a>(best: &str, winners: &[Best], name: impl Fn(usize) -> &'a str) -> String {
    let tied: Vec<&Best> = winners.iter().filter(|it| !it.ties.is_empty()).collect();
    if tied.is_empty() {
        return format!("{best} has the highest goodput at every value, so there is no break-even value.");
    }
    let mut others: Vec<&str> = tied.iter().flat_map(|it| &it.ties).map(|it| name(*it)).collect();
    others.sort_unstable();
    others.dedup();
    let at = match tied.len() == winners.len() {
        true => "at every value".to_owned(),
        false => format!("at {} of {} values", tied.len(), winners.len()),
    };
    format!(
        "{best} has the highest mean goodput at every value, but {at}, these seeds cannot distinguish it from {}; add \
         seeds to decide.",
        others.join(" or ")
    )
}

/// Returns remarks on what the numbers do not show.
pub(super) fn remarks(it: &Curves) -> Vec<String> {
    let mut remarks = it.notes.clone();
    for curve in &it.curves {
        let mut reasons = 0;
        for (setting, point) in curve.points.iter().enumerate() {
            let place = format!("{} at {}", curve.protocol, it.plan.words(setting));
            let missing = point.counts.runs - point.counts.completed;
            if missing > 0 {
                remarks.push(format!(
                    "{place}: {missing} of {} did not complete; each counts for the work that it did and kept",
                    count(point.counts.runs as u64, "run")
                ));
            }
            if point.without_verdict > 0 {
                remarks.push(format!(
                    "{place}: {} of {} completed without a verdict, so their results may be wrong; their goodput counts",
                    point.without_verdict,
                    count(point.counts.runs as u64, "run")
                ));
            }
            for reason in point.counts.reasons.iter().take(REASONS - reasons) {
                remarks.push(format!("{place}, {reason}"));
                reasons += 1;
            }
        }
    }
    remarks
}

/// Formats the curves as one JSON object.
///
/// # Panics
///
/// Panics if a number cannot be written as JSON, which would be a bug.
pub fn json(it: &Curves) -> String {
    let point = |value: Value, point: &Point| {
        let mut fields = Map::new();
        fields.insert("value".to_owned(), value);
        for (name, estimate) in &point.values {
            fields.insert((*name).to_owned(), json!(estimate));
        }
        fields.insert("verdicts".to_owned(), json!(point.counts));
        fields.insert("unfinished".to_owned(), json!(point.counts.runs - point.counts.completed));
        fields.insert("time".to_owned(), json!(point.time));
        Value::Object(fields)
    };
    let curve = |curve: &Curve| {
        let points = it.values().into_iter().zip(&curve.points).map(|(value, it)| point(json!(value), it));
        let calm = curve.calm.as_ref().map(|it| point(Value::Null, it));
        json!({ "protocol": curve.protocol, "withoutFaults": calm, "points": points.collect::<Vec<_>>() })
    };
    let crossings = it.crossings.iter().map(|found| {
        json!({
            "below": it.curves[found.below].protocol,
            "above": it.curves[found.above].protocol,
            "value": found.value,
            "low": found.interval.map(|it| it.0),
            "high": found.interval.map(|it| it.1),
            "resamples": RESAMPLES,
            "crossing": found.crossing,
            "decided": found.is_decided(),
        })
    });
    let document = json!({
        "name": it.plan.name,
        "application": it.application,
        "processes": it.ranks,
        "clusters": it.clusters,
        "firstSeed": it.first_seed,
        "seeds": it.seeds,
        "missing": it.missing,
        "sweep": { "path": it.plan.parameters[0].path, "values": it.values() },
        "curves": it.curves.iter().map(curve).collect::<Vec<_>>(),
        "breakEven": crossings.collect::<Vec<_>>(),
        "notes": remarks(it),
    });
    serde_json::to_string_pretty(&document).expect("numbers and words have a JSON form") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_that_may_be_as_good_as_another_is_not_called_the_best() {
        let name = |curve: usize| ["hydee", "coordinated"][curve];
        let alone = || Best { curve: 0, ties: Vec::new() };
        let tied = || Best { curve: 0, ties: vec![1] };
        let told = |winners: &[Best]| undisputed("hydee", winners, name);
        assert!(told(&[alone(), alone()]).ends_with("at every value, so there is no break-even value."));
        assert_eq!(
            told(&[alone(), tied(), tied()]),
            "hydee has the highest mean goodput at every value, but at 2 of 3 values, these seeds cannot distinguish it \
             from coordinated; add seeds to decide."
        );
        assert!(told(&[tied()]).contains("but at every value, these seeds"));
    }
}
