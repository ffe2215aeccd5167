//! A failure trace as one self-contained page.

use faultline_failures::series::{self, Distribution, Part};
use faultline_failures::text::{duration, rows};
use faultline_failures::{FailureTrace, Statistics};
use faultline_report::chart::{Axis, Chart, Series};
use maud::{Markup, html};

use crate::measures::Spread;
use crate::study::{Study, figure, table};

/// The number of points of a line.
const POINTS: u32 = 60;
const DAY: f64 = 86_400.0;

/// Renders the page. `name` is the name of the file.
pub fn render(name: &str, trace: &FailureTrace, statistics: &Statistics) -> String {
    let body = html! {
        (table(&[("", false); 2], rows(statistics).into_iter().map(|(label, value)| (None, vec![html! { (label) }, html! { (value) }]))))
        h2 { "Faults over time" }
        (figure(&faults_over_time(trace).markup(), "Each point is the number of faults that start in one of 60 equal parts of the trace."))
        h2 { "Time between faults" }
        @match series::gaps(trace, statistics, POINTS) {
            Some(it) => (figure(&gaps(&it).markup(), "Gaps above 0, and the two distributions fitted to them. Bursts appear as many short gaps.")),
            None => p.prose { "Fewer than two gaps above 0 differ." },
        }
        h2 { "Repair times" }
        @let repairs = series::repairs(trace, POINTS);
        @if repairs.is_empty() {
            p.prose { "No repair time above 0 is known." }
        } @else {
            (figure(&repair_times(repairs).markup(), "Known repair times above 0."))
        }
        h2 { "Nodes down over time" }
        (figure(&down_over_time(trace).markup(), "The mean in each of 60 equal parts of the trace, with the range behind it. Faults with an unknown repair time do not count."))
        h2 { "Causes" }
        (causes(statistics))
    };
    Study {
        title: format!("{name}: failure trace"),
        heading: format!("{name}: failure trace"),
        meta: html! {
            (trace.format) ", " (statistics.faults) " faults on " (statistics.nodes_hit) " of " (statistics.nodes)
            " nodes, over " (duration(statistics.span_seconds))
        },
        warnings: Vec::new(),
        body,
        command: "faultline traces",
        note: html! { "The numbers are in " code { "traces.json" } ", the faults in " code { "trace.csv" } "." },
    }
    .page()
}

fn parts(name: &str, parts: &[Part]) -> Series {
    let spread =
        |it: &Part| Spread { runs: 1, mean: it.mean, deviation: 0.0, least: it.least, most: it.most };
    let points = parts.iter().map(|it| (it.middle_seconds / DAY, spread(it)));
    Series { name: name.to_owned(), points: points.collect() }
}

fn distribution(name: &str, points: &Distribution) -> Series {
    let points = points.iter().map(|(seconds, share)| (*seconds, Spread::of([100.0 * share])));
    Series { name: name.to_owned(), points: points.collect() }
}

fn faults_over_time(trace: &FailureTrace) -> Chart {
    let series = parts("faults", &series::faults(trace, POINTS));
    Chart::new("Faults over time", "days since the trace began", "faults per part", vec![series])
}

fn down_over_time(trace: &FailureTrace) -> Chart {
    let series = parts("nodes down", &series::down(trace, POINTS));
    Chart::new("Nodes down over time", "days since the trace began", "nodes down", vec![series])
}

fn gaps(it: &series::GapDistribution) -> Chart {
    let series = [("gaps", &it.measured), ("Weibull", &it.weibull), ("exponential", &it.exponential)];
    let series = series.map(|(name, points)| distribution(name, points));
    Chart::new(
        "Time between faults",
        seconds(),
        "share of gaps of at most this length, in %",
        series.to_vec(),
    )
}

/// Returns an axis of durations.
fn seconds() -> Axis {
    Axis::logarithmic("seconds (10000: 2.78 h; 1000000: 11.6 d)")
}

fn repair_times(points: Distribution) -> Chart {
    let series = distribution("repair times", &points);
    Chart::new("Repair times", seconds(), "share of repairs within this time, in %", vec![series])
}

fn causes(statistics: &Statistics) -> Markup {
    let columns = [("cause", false), ("faults", true), ("share", true), ("median repair", true)];
    let rows = statistics.causes.iter().map(|it| {
        let repair = it.median_repair_seconds.map_or("-".to_owned(), duration);
        let share = format!("{:.1} %", it.percent);
        (None, vec![html! { (it.cause) }, html! { (it.faults) }, html! { (share) }, html! { (repair) }])
    });
    table(&columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_every_distribution_and_escapes_names() {
        let rows = "start,end,node,cause\n0,50,a,<b>\n10,30,b,fan\n400,,c,fan\n9000,9500,a,fan\n";
        let trace =
            faultline_failures::read(rows.as_bytes(), &faultline_failures::Options::default()).unwrap();
        let page = render("<i>", &trace, &Statistics::of(&trace));
        assert_eq!(page.matches("<svg").count(), 4);
        for text in ["&lt;b&gt;", "&lt;i&gt;", ">Weibull<", ">exponential<", "4 faults on 3 of 3 nodes"] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }

    #[test]
    fn a_trace_of_one_fault_has_a_page() {
        let trace =
            faultline_failures::read(&b"start,end,node\n5,,n\n"[..], &faultline_failures::Options::default());
        let trace = trace.unwrap();
        let page = render("one", &trace, &Statistics::of(&trace));
        assert!(page.contains("No repair time above 0 is known."));
        assert!(!page.contains("NaN"), "{page}");
    }
}
