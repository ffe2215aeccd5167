//! The curves as one self-contained page: goodput over the parameter, the best protocol of each range, and where the time
//! went.

use faultline_report::chart::{Axis, Chart, Detail, Range, Series, coded};
use maud::{Markup, html};

use super::crossing::best;
use super::text::{best_at, cell, conclusions, remarks, scope};
use super::{Curve, Curves, file};
use crate::compare::estimate::FEW;
use crate::measures::{Spread, short};
use crate::study::{Study, reasons, table};
use crate::sweep::parameter::Numbers;

/// Renders the page.
pub fn render(it: &Curves) -> String {
    let path = &it.plan.parameters[0].path;
    let mut warnings = Vec::new();
    if it.missing > 0 {
        warnings
            .push(format!("Missing runs: {}. Run the same command with `--resume` to add them.", it.missing));
    }
    let body = html! {
        @for sentence in conclusions(it) { p.prose { (coded(&sentence)) } }
        p.prose {
            "Every protocol runs with the same seeds at every value, and every run is judged. Goodput is the time of the unprotected "
            "run without faults with the same seed, as a share of the time of the run. Bands cover the true mean with a confidence "
            "of 95 %. Each point links to the federation file that repeats its runs."
        }
        (chart(it).markup())
        h2 { "Numbers" }
        p.prose {
            "Goodput. With fewer than " (FEW) " runs, brackets show their range. At the best protocol of each value, parentheses name "
            "the protocols from which these seeds cannot distinguish it. A star marks values at which some runs did not complete: "
            "they count for the work that they did and kept."
        }
        (numbers(it))
        (shares(it))
        (reasons(&remarks(it)))
    };
    Study {
        title: format!("{}: goodput over {path}", it.plan.name),
        heading: format!("{}: goodput over {path}", it.plan.name),
        meta: html! { (scope(it)) },
        warnings,
        body,
        command: "faultline compare --sweep",
        note: html! { "Runs with the same seed are bit-identical." },
    }
    .page()
}

/// Renders the picture as a separate file.
pub fn picture(it: &Curves) -> String {
    chart(it).file()
}

/// Returns where each value is on the horizontal axis: in logarithmic distance if all are above zero, or side by side if
/// they are no numbers.
fn places(it: &Curves) -> Vec<f64> {
    let numbers = Numbers::of(&it.plan.parameters[0]);
    let all = numbers.map_or_else(|| (0..it.plan.settings.len()).map(|it| it as f64).collect(), |it| it.all);
    if is_logarithmic(it) { all.into_iter().map(f64::ln).collect() } else { all }
}

fn is_logarithmic(it: &Curves) -> bool {
    Numbers::of(&it.plan.parameters[0]).is_some_and(|it| it.all.iter().all(|it| *it > 0.0))
}

fn chart(it: &Curves) -> Chart {
    let places = places(it);
    let path = &it.plan.parameters[0].path;
    let title = format!("goodput over {path}; the table below has the numbers.");
    let marks = places.iter().copied().zip(it.values().into_iter().map(str::to_owned)).collect();
    let percent = (0..=5).map(|it| (f64::from(it) * 20.0, short(f64::from(it) * 20.0))).collect();
    let series: Vec<Series> = it.curves.iter().map(|curve| series(curve, &places)).collect();
    let details = it.curves.iter().map(|curve| details(it, curve)).collect();
    let mut chart = Chart::new(title, Axis::marked(path, marks), Axis::marked("goodput, %", percent), series);
    chart.details = details;
    chart.ranges = ranges(it, &places);
    chart.marks = marks_of(it);
    chart
}

fn series(curve: &Curve, places: &[f64]) -> Series {
    let points = places.iter().zip(&curve.points).filter_map(|(&place, point)| {
        let estimate = point.estimate()?;
        let half = estimate.half_width.unwrap_or(0.0);
        let band = Spread { least: estimate.mean() - half, most: estimate.mean() + half, ..estimate.spread };
        Some((place, band))
    });
    Series { name: curve.protocol.clone(), points: points.collect() }
}

fn details(it: &Curves, curve: &Curve) -> Vec<Detail> {
    let known = curve.points.iter().enumerate().filter(|(_, it)| it.estimate().is_some());
    let detail = |(setting, point)| Detail {
        text: format!("{} at {}: {}", curve.protocol, it.plan.words(setting), cell(point)),
        link: file(setting, &curve.protocol),
        runs: Vec::new(),
    };
    known.map(detail).collect()
}

/// Returns the ranges in which one protocol is the best one. They end at the break-even values.
fn ranges(it: &Curves, places: &[f64]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for (setting, &place) in places.iter().enumerate() {
        let Some(winner) = best(&it.curves, setting) else { continue };
        let known =
            it.crossings.iter().find(|it| it.after + 1 == setting).map(|crossing| placed(it, crossing.value));
        match ranges.last_mut() {
            Some(last) if last.series == winner.curve => last.to = place,
            Some(last) => {
                last.to = known.unwrap_or(f64::midpoint(last.to, place));
                let from = last.to;
                ranges.push(Range { from, to: place, series: winner.curve });
            }
            None => ranges.push(Range { from: place, to: place, series: winner.curve }),
        }
    }
    ranges
}

/// Returns the place of a value on the horizontal axis.
fn placed(it: &Curves, value: f64) -> f64 {
    if is_logarithmic(it) { value.ln() } else { value }
}

/// Returns the break-even values with their intervals, as marks on the horizontal axis.
fn marks_of(it: &Curves) -> Vec<(f64, f64, String)> {
    let Some(numbers) = Numbers::of(&it.plan.parameters[0]) else { return Vec::new() };
    let decided = it.crossings.iter().filter(|it| it.is_decided());
    let mark = |(low, high): (f64, f64), value| (placed(it, low), placed(it, high), numbers.text(value));
    decided.map(|it| mark(it.interval.unwrap_or((it.value, it.value)), it.value)).collect()
}

fn numbers(it: &Curves) -> Markup {
    let path = it.plan.parameters[0].short();
    let protocols = it.curves.iter().map(|curve| (curve.protocol.as_str(), true));
    let columns: Vec<(&str, bool)> =
        [(path, false)].into_iter().chain(protocols).chain([("best", false)]).collect();
    let row = |(setting, value): (usize, &str)| {
        let mut cells = vec![html! { span.fixed { (value) } }];
        cells.extend(it.curves.iter().map(|curve| {
            html! { a href=(file(setting, &curve.protocol)) { (cell(&curve.points[setting])) } }
        }));
        cells.push(html! { (best_at(it, setting)) });
        (None, cells)
    };
    let calm = it.curves.iter().any(|curve| curve.calm.is_some()).then(|| {
        let cells =
            it.curves.iter().map(|it| html! { (it.calm.as_ref().map_or_else(|| "-".to_owned(), cell)) });
        (None, [html! { "no faults" }].into_iter().chain(cells).chain([html! {}]).collect())
    });
    table(&columns, it.values().into_iter().enumerate().map(row).chain(calm))
}

/// Renders how the processes spent their time at the first, the middle and the last value.
fn shares(it: &Curves) -> Markup {
    let last = it.plan.settings.len() - 1;
    let mut shown = vec![0, last / 2, last];
    shown.dedup();
    html! {
        h2 { "Where the time went" }
        @for setting in shown {
            h3 { (it.plan.words(setting)) }
            div.spent {
                @for curve in &it.curves {
                    @let time = &curve.points[setting].time;
                    @if time.total_seconds() > 0.0 {
                        b { (curve.protocol) }
                        div { (faultline_report::page::shares(&curve.protocol, time)) }
                    }
                }
            }
        }
        p.hint { (faultline_report::page::UNDONE) }
    }
}
