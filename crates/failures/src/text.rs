//! The statistics of a failure trace as text of at most 100 columns.

use std::fmt::Write;

use crate::Statistics;
use crate::error::shortened;
use crate::statistics::{Cause, Gaps, Groups, Repair};
use crate::weibull::Weibull;

/// The maximum number of causes that are shown, and of characters of a name.
const CAUSES: usize = 20;
const NAME: usize = 40;

/// Formats the statistics. `name` is the name of the file.
pub fn text(name: &str, it: &Statistics) -> String {
    let mut text = format!(
        "{}: {}, {} on {} of {}, over {}\n\n",
        shortened(name, NAME),
        it.format,
        count(it.faults, "fault"),
        it.nodes_hit,
        count(it.nodes, "node"),
        duration(it.span_seconds)
    );
    for (label, value) in rows(it) {
        writeln!(text, " {label:<21}{value}").expect("writing to a string never fails");
    }
    text.push('\n');
    text.push_str(&causes(&it.causes));
    text
}

/// Returns the lines about faults, gaps, groups, repairs and skipped records: a label and a value for each.
pub fn rows(it: &Statistics) -> Vec<(&'static str, String)> {
    let mean = it.per_node.mean_seconds.map(|it| format!("one fault in {}", duration(it)));
    let per_node = format!(
        "{}; at most {} on one node; half of the faults on {}",
        mean.unwrap_or_else(|| "the time between faults is unknown".to_owned()),
        it.per_node.most,
        count(it.per_node.half_on, "node")
    );
    let instants = match it.instants.several {
        0 => "no two faults".to_owned(),
        several => format!("{} with several faults, at most {}", count(several, "instant"), it.instants.most),
    };
    let mut rows = vec![
        ("time between faults", gaps(&it.gaps)),
        ("Weibull fit", fit(it.weibull.as_ref())),
        ("per node", per_node),
        ("at the same instant", instants),
    ];
    if let Some(Groups { groups, several, largest, .. }) = it.groups.last() {
        let have = if *several == 1 { "has" } else { "have" };
        let of = format!("{several} of {} {have} several faults", count(*groups, "group"));
        rows.push(("within 1 h", format!("{of}; the largest has {largest}")));
    }
    let down = match &it.down_at_once {
        Some(down) => {
            format!("mean {:.2}; at most {} for 99 % of the time; at most {}", down.mean, down.p99, down.most)
        }
        None => "unknown: the trace has no duration".to_owned(),
    };
    rows.extend([("repair", repair(&it.repair)), ("nodes down at once", down)]);
    rows.extend(it.skipped.iter().map(|it| ("skipped records", it.to_string())));
    rows
}

fn maybe(seconds: Option<f64>) -> String {
    seconds.map_or("-".to_owned(), duration)
}

fn gaps(gaps: &Gaps) -> String {
    let Some(mean) = gaps.mean_seconds else { return "unknown: there is only one fault".to_owned() };
    format!(
        "mean {}, median {}, variation {} (1 if exponential); {} of {} 0",
        duration(mean),
        maybe(gaps.median_seconds),
        gaps.variation.map_or("-".to_owned(), |it| format!("{it:.2}")),
        gaps.zero,
        are(gaps.count, gaps.zero, "gap")
    )
}

fn fit(weibull: Option<&Weibull>) -> String {
    let Some(fit) = weibull else { return "none: fewer than two gaps above 0 differ".to_owned() };
    format!(
        "shape {:.2}, scale {} (largest deviation {:.2}; exponential {:.2}), from the gaps above 0",
        fit.shape,
        duration(fit.scale_seconds),
        fit.deviation,
        fit.exponential_deviation
    )
}

fn repair(repair: &Repair) -> String {
    let Some(mean) = repair.mean_seconds else { return format!("{} unknown", repair.unknown) };
    format!(
        "mean {}, median {}, 90 % within {}, longest {}; {} unknown",
        duration(mean),
        maybe(repair.median_seconds),
        maybe(repair.p90_seconds),
        maybe(repair.longest_seconds),
        repair.unknown
    )
}

fn causes(causes: &[Cause]) -> String {
    let names: Vec<String> = causes.iter().take(CAUSES).map(|it| shortened(&it.cause, NAME)).collect();
    let width = names.iter().map(|it| it.chars().count()).max().unwrap_or(0).max("cause".len()) + 2;
    let mut text = format!(" {:width$}faults  share    median repair\n", "cause");
    for (name, it) in names.iter().zip(causes) {
        let median = it.median_repair_seconds.map_or("-".to_owned(), duration);
        let share = format!("{:.1} %", it.percent);
        writeln!(text, " {name:width$}{:<8}{share:<9}{median}", it.faults)
            .expect("writing to a string never fails");
    }
    if causes.len() > CAUSES {
        let more = count(causes.len() - CAUSES, "more cause");
        writeln!(text, " ({more}: see `--format json`)").expect("writing to a string never fails");
    }
    text
}

/// Formats a duration with three significant digits, in the unit that suits it.
pub fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        ..120.0 => (seconds, "s"),
        ..7200.0 => (seconds / 60.0, "min"),
        ..172_800.0 => (seconds / 3600.0, "h"),
        _ => (seconds / 86_400.0, "d"),
    };
    match value {
        0.0 => format!("0 {unit}"),
        ..9.995 => format!("{value:.2} {unit}"),
        ..99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns the number of things, and the verb for those of them that are meant.
fn are(number: usize, meant: usize, what: &str) -> String {
    format!("{} {}", count(number, what), if meant == 1 || number == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_significant_digits() {
        let durations =
            [(0.0, "0 s"), (5.0, "5.00 s"), (119.0, "119 s"), (120.0, "2.00 min"), (5999.0, "100 min")];
        let longer = [(54_000.0, "15.0 h"), (162_000.0, "45.0 h"), (172_800.0, "2.00 d"), (1e8, "1157 d")];
        for (seconds, text) in durations.into_iter().chain(longer) {
            assert_eq!(duration(seconds), text);
        }
    }
}
