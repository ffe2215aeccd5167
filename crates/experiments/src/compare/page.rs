//! A comparison as one self-contained page, and its pictures: the trade-off between the costs with and without faults,
//! and a panel for each quantity, with a bar for each protocol.

use faultline_report::chart::{Bar, Bars, Cost, Length, TradeOff, linked};
use faultline_report::explain::count;
use faultline_trace::manifest::BackendKind;
use maud::{Markup, html};

use super::estimate::FEW;
use super::quantity::{LOST, OVERHEAD, Quantity, Unit};
use super::text::{cell, finished, on, remarks, seeds, verdicts, warning};
use super::{Comparison, Row};
use crate::study::{Study, figure, reasons};

/// The maximum number of protocols named in a heading. With more protocols, the heading gives only their number.
const NAMED: usize = 4;

/// Returns the path of the report of a protocol's run with the first seed, with the faults in the file or without,
/// relative to the page; `None` if there is no report.
pub type Link<'a> = dyn Fn(&str, bool) -> Option<String> + 'a;

/// Renders the page.
pub fn render(it: &Comparison, link: &Link<'_>) -> String {
    let protocols: Vec<&str> = it.rows.iter().map(|row| row.protocol.as_str()).collect();
    let compared = if protocols.len() > NAMED {
        count(protocols.len() as u64, "protocol")
    } else {
        protocols.join(", ")
    };
    let mut warnings: Vec<String> = warning(it).map(|it| format!("Warning: {it}.")).into_iter().collect();
    if it.missing > 0 {
        warnings
            .push(format!("Missing because the comparison was interrupted: {}.", count(it.missing, "run")));
    }
    let body = html! {
        p.prose {
            "Every protocol runs the same application with the same seeds, once without faults and once with those in "
            "the file. Every run is judged by the same checker. Numbers are means over the seeds, with the 95 % confidence "
            "interval of the mean. With fewer than " (FEW) " runs, the tables show their range, and the bars show each run as a "
            "point. The best values come first."
            @if it.rows.iter().any(|row| [true, false].iter().any(|faults| link(&row.protocol, *faults).is_some())) {
                " Bars and verdicts link to the report of the run with the first seed, if it was recorded."
            }
            @if let Some(unprotected) = &it.unprotected {
                " The unprotected application without faults takes "
                (Unit::Seconds.text(unprotected)) ". Every overhead is relative to it, seed by seed."
            }
        }
        @if let Some(it) = trade_off(it) { (it) }
        (Bars::markup(&panels(it, link)))
        (table(it, link))
        (time(it))
        (reasons(&remarks(it)))
        h2 { "Options" }
        ul { @for row in &it.rows { li { code { (row.options) } } } }
        h2 { "Definitions" }
        (explanations())
    };
    Study {
        title: format!("{}: protocols compared", it.name),
        heading: format!("{}: {compared}", it.name),
        meta: html! {
            (it.application) " on " (count(it.ranks.into(), "process")) " in " (count(it.clusters as u64, "cluster"))
            ", " (seeds(it)) ", " (on(it))
        },
        warnings,
        body,
        command: "faultline compare",
        note: html! {
            @if it.backend == BackendKind::Simulate { "Runs with the same seed are bit-identical." }
            @else { "Timing differs from run to run." }
        },
    }
    .page()
}

/// Renders the picture as a separate file.
pub fn file(it: &Comparison) -> String {
    Bars::file(&panels(it, &|_, _| None))
}

/// Returns a panel for each quantity that the picture of a comparison shows, with a bar for each protocol.
fn panels(it: &Comparison, link: &Link<'_>) -> Vec<Bars> {
    let all = Quantity::of_family(it.family);
    let drawn = all.filter(|quantity| quantity.drawn && (it.has_faults || !quantity.faulty));
    let panel = |quantity: &Quantity| {
        let mut rows: Vec<Bar> = it.rows.iter().map(|row| bar(it, row, quantity, link)).collect();
        let sign = if quantity.rises() { -1.0 } else { 1.0 };
        let order = |it: &Bar| it.length.as_ref().map_or(f64::INFINITY, |it| it.mean * sign);
        rows.sort_by(|a, b| order(a).total_cmp(&order(b)));
        let remark = if quantity.faulty { "with faults" } else { "without faults" };
        Bars { title: quantity.title.to_owned(), remark, rows }
    };
    drawn.map(panel).collect()
}

/// Draws the overhead without faults and the lost work with them, if at least two protocols have both.
fn trade_off(it: &Comparison) -> Option<Markup> {
    let cost = |row: &Row| {
        let of = |name| {
            let value = row.values.get(name)?;
            Some((value.mean(), value.half_width.unwrap_or(0.0)))
        };
        // With fewer faults, a protocol loses less.
        let is_alike = it.fewer_faults(row).is_none();
        let at = [of(OVERHEAD)?, of(LOST)?];
        is_alike.then(|| Cost { name: row.protocol.clone(), is_marked: row.protocol == it.own, at })
    };
    let costs: Vec<Cost> = it.rows.iter().filter_map(cost).collect();
    let picture = TradeOff {
        title: "overhead without faults and lost work with faults, by protocol".to_owned(),
        x: "overhead without faults, %".to_owned(),
        y: "lost work per outage, s".to_owned(),
        costs,
    };
    let caption = "What a protocol costs without faults, and what it loses with them. No protocol is better in both than \
                   those on the dotted line.";
    (picture.costs.len() > 1).then(|| figure(&picture.markup(), caption))
}

fn bar(it: &Comparison, row: &Row, quantity: &Quantity, link: &Link<'_>) -> Bar {
    let cannot = row.cannot.is_some() || (quantity.faulty && row.cannot_with_faults.is_some());
    let missing = if cannot { "not run" } else { "none finished" };
    let length = row.values.get(quantity.name).ok_or(missing).map(|value| {
        // With few runs, there is no interval; each run is a point instead.
        let is_spread = value.half_width.unwrap_or(0.0) == 0.0 && value.spread.runs > 1;
        let unlike = it.fewer_faults(row).filter(|_| quantity.faulty);
        let brief = |number| Unit::Count.brief(number);
        Length {
            mean: value.mean(),
            half_width: value.half_width,
            runs: row.points.get(quantity.name).filter(|_| is_spread).cloned().unwrap_or_default(),
            brief: quantity.unit.brief(value.mean()),
            text: quantity.unit.text(value),
            unlike: unlike.map(|(own, most)| format!("only {} of {} faults", brief(own), brief(most))),
        }
    });
    let link = link(&row.protocol, quantity.faulty);
    Bar { name: row.protocol.clone(), is_marked: row.protocol == it.own, length, link }
}

fn table(it: &Comparison, link: &Link<'_>) -> Markup {
    html! {
        div.table { table.comparison {
            thead { tr { th {} @for row in &it.rows {
                th.num { (breakable(&row.protocol)) }
            } } }
            tbody {
                @for (title, faulty) in [("Without faults", false), ("With the faults in the file", true)] {
                    @if it.has_faults || !faulty {
                        tr.group { td colspan=(it.rows.len() + 1) { (title) } }
                        tr { td { "verdicts" } @for row in &it.rows {
                            @let counts = if faulty { &row.faulty } else { &row.calm };
                            td.num { (linked(link(&row.protocol, faulty).as_deref(), html! { (verdicts(counts)) })) }
                        } }
                        tr { td { "finished" } @for row in &it.rows {
                            @let counts = if faulty { &row.faulty } else { &row.calm };
                            td.num { (finished(counts)) }
                        } }
                        @for quantity in Quantity::of_family(it.family).filter(|it| it.faulty == faulty) {
                            tr { td { (quantity.title) } @for row in &it.rows { td.num { (number(row, quantity)) } } }
                        }
                    }
                }
            }
        } }
    }
}

/// Renders a name that may wrap before its capitals, so that a column is no wider than its numbers.
fn breakable(name: &str) -> Markup {
    html! { @for letter in name.chars() { @if letter.is_uppercase() { wbr; } (letter) } }
}

/// Renders a number with its precision below it, so that a table of many protocols remains narrow.
fn number(row: &Row, quantity: &Quantity) -> Markup {
    let text = cell(row, quantity);
    match (text.split_once(' '), row.values.get(quantity.name)) {
        (Some((_, precision)), Some(value)) if precision.starts_with(['±', '[']) => {
            html! { (quantity.unit.brief(value.mean())) small { (precision) } }
        }
        _ => html! { (text) },
    }
}

/// Renders how the processes spent their time, as a bar for each protocol.
fn time(it: &Comparison) -> Markup {
    html! {
        h2 { "Where the time went" @if it.has_faults { ", with faults" } }
        div.spent {
            @for row in it.rows.iter().filter(|it| it.time.total_seconds() > 0.0) {
                b { (row.protocol) }
                div {
                    (faultline_report::page::shares(&row.protocol, &row.time))
                }
            }
        }
        p.hint { "The time of all processes in all runs, each moment counted once. A process that neither computes \
                  nor runs a task is waiting. " (faultline_report::page::UNDONE) }
    }
}

fn explanations() -> Markup {
    html! {
        ul.prose {
            li { b { "overhead over an unprotected run" } ": time until the application finished, relative to the run with the same seed "
                "under " code { "none" } " without faults." }
            li { b { "checkpoints per process" } ": committed checkpoints, excluding the initial one. " b { "Forced" } " checkpoints were caused by "
                "a message or a theft instead of the timer." }
            li { b { "state saved" } ": application state, and the logs that checkpoints contain, passed to storage, including replicas for other nodes." }
            li { b { "messages logged" } ": content of the messages that the protocol logs." }
            li { b { "moved from memory to storage" } ": logged messages that exceeded the limit " code { "logMemory" } "." }
            li { b { "goodput" } ": the time of the unprotected run without faults with the same seed, as a share of the time of this run. A run "
                "that did not finish counts for the share of the work that it did and kept." }
            li { b { "effective training time ratio" } ": the share of the time of all processes, without pauses, in which they did work that was "
                "kept, or waited for messages or tasks (arXiv 2410.21680). Needs no other run: an overhead without faults does not lower it." }
            li { b { "outage" } ": time from a failure until all processes have resumed, including further \
                                 failures in the meantime and the "
                "rollbacks that follow. Only runs that finished count." }
            li { b { "lost work" } ": time for which processes worked after the restored state, summed over all \
                                    processes." }
            li { b { "time to recover" } ": from the first failure of an outage until the last rolled-back process resumes. "
                "Excludes the re-execution of the lost work." }
            li { b { "delayed" } ": how much longer a process worked and waited than in the run of the same protocol and seed without faults: it "
                "waited for others that recovered or were slow. Work that was lost, and the recovery itself, do not count." }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use faultline_api::resource::{Family, ProtocolSpec};
    use faultline_history::TimeByPart;

    use super::super::VerdictCounts;
    use super::super::estimate::Estimate;
    use super::*;

    /// Returns a row in which every quantity has these values.
    fn row(protocol: &str, family: Family, values: &[f64]) -> Row {
        let mut row = Row {
            protocol: protocol.to_owned(),
            options: format!("{protocol}: {{}}"),
            replicas: None,
            cannot: None,
            left_out: Vec::new(),
            cannot_with_faults: None,
            calm: VerdictCounts::default(),
            faulty: VerdictCounts::default(),
            values: BTreeMap::new(),
            points: BTreeMap::new(),
            time: TimeByPart::default(),
            timer_never_fired: None,
        };
        for quantity in Quantity::of_family(family) {
            row.add(quantity, values.to_vec());
        }
        row
    }

    fn comparison(protocols: &[&str], values: &[f64]) -> Comparison {
        let family = Family::Messages;
        Comparison {
            name: "made".to_owned(),
            backend: BackendKind::Simulate,
            application: "heat".to_owned(),
            family,
            ranks: 6,
            clusters: 2,
            has_faults: true,
            own: "hc3i".to_owned(),
            has_expectations: false,
            first_seed: 1,
            seeds: values.len() as u32,
            unprotected: Estimate::of(values.iter().copied()),
            rows: protocols.iter().map(|it| row(it, family, values)).collect(),
            missing: 0,
            out_of_memory: 0,
        }
    }

    /// Returns the positions of the points in each panel of a picture.
    fn points(picture: &str) -> Vec<Vec<&str>> {
        let panels = picture.split("<svg").skip(1);
        panels
            .map(|panel| {
                panel
                    .split("<circle class=\"run\" cx=\"")
                    .skip(1)
                    .filter_map(|it| it.split('"').next())
                    .collect()
            })
            .collect()
    }

    #[test]
    fn with_fewer_than_five_seeds_every_run_is_a_point() {
        let three =
            Bars::markup(&panels(&comparison(&["hc3i"], &[1.0, 2.0, 4.0]), &|_, _| None)).into_string();
        let drawn = points(&three);
        assert!(!drawn.is_empty() && !three.contains("class=\"whisker\""), "{three}");
        for panel in drawn {
            let mut places = panel.clone();
            places.dedup();
            assert_eq!((panel.len(), places.len()), (3, 3), "{panel:?}");
        }
        let five = Bars::markup(&panels(&comparison(&["hc3i"], &[1.0, 2.0, 4.0, 3.0, 2.0]), &|_, _| None))
            .into_string();
        assert!(points(&five).iter().all(Vec::is_empty) && five.contains("class=\"whisker\""), "{five}");
        let one = Bars::markup(&panels(&comparison(&["hc3i"], &[1.0]), &|_, _| None)).into_string();
        assert!(points(&one).iter().all(Vec::is_empty), "the bar shows a single run: {one}");
    }

    #[test]
    fn many_protocols_are_counted_in_the_heading_and_each_has_a_row_and_a_bar() {
        let all: Vec<&str> = ProtocolSpec::compared(Family::Messages).into_iter().take(11).collect();
        assert_eq!(all.len(), 11);
        let it = comparison(&all, &[1.0, 2.0, 4.0]);
        let link = |protocol: &str, has_faults: bool| has_faults.then(|| format!("records/{protocol}.html"));
        let page = render(&it, &link);
        assert!(page.contains("<h1>made: 11 protocols</h1>"), "{page}");
        let bars = page.matches("<rect class=\"bar\"").count();
        assert_eq!(bars, 11 * panels(&it, &|_, _| None).len());
        let faulty = panels(&it, &|_, _| None).iter().filter(|it| it.remark == "with faults").count();
        assert_eq!(page.matches("href=\"records/hc3i.html\"").count(), faulty + 1, "bars, and the verdicts");
        for protocol in all {
            assert!(page.contains(&format!("{protocol}: {{}}")), "{protocol}");
        }
        let few = render(&comparison(&["hc3i", "hydee"], &[1.0]), &|_, _| None);
        assert!(few.contains("<h1>made: hc3i, hydee</h1>"), "{few}");
    }
}
