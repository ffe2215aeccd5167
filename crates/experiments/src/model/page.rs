//! The models as one self-contained page: waste over the interval, and goodput over the time between failures.

use faultline_failures::text::duration;
use faultline_report::chart::{Axis, Chart, Series};
use maud::{Markup, html};

use super::formulas::{Constants, Model};
use super::text::{advice, constants, scope, setting};
use super::validity::why_not;
use super::{Models, REACH};
use crate::compare::quantity::Unit;
use crate::measures::{Spread, short};
use crate::study::{Study, figure, reasons, table};

/// The number of points of a model's line.
const POINTS: i32 = 40;
/// The range of the time between failures, as a factor in both directions.
const FARTHEST: f64 = 16.0;

/// Renders the page.
pub fn render(it: &Models) -> String {
    let body = html! {
        p.prose { (advice(it)) }
        p.prose {
            "Runs of the federation in virtual time measured these constants: " (constants(it)) ". C is the delay of the run per "
            "checkpoint, K its delay per failure, and σ its delay per second of work since the last commit."
        }
        (figure(&waste(it).markup(), "Waste, 100 % minus goodput, over the checkpoint interval."))
        (figure(&over_mtbf(it).markup(), "Goodput with the interval of the file, over the mean time between failures."))
        h2 { "Models" }
        (models(it))
        @if !it.simulated.is_empty() { h2 { "Measurements" } (measured(it)) }
        (reasons(&it.notes))
    };
    Study {
        title: format!("{}: models", it.name),
        heading: format!("{}: models of checkpointing", it.name),
        meta: html! { (scope(it)) },
        warnings: Vec::new(),
        body,
        command: "faultline model",
        note: html! { "The models are explained in docs/failures.md." },
    }
    .page()
}

fn name(it: &Models, model: Model) -> String {
    let mark = if why_not(model, &it.calibration).is_some() { " (out of range)" } else { "" };
    format!("{}{mark}", model.name())
}

/// Returns points at equal ratios around a value.
fn around(value: f64, reach: f64) -> impl Iterator<Item = f64> {
    (0..=POINTS).map(move |step| value * reach.powf(2.0 * f64::from(step) / f64::from(POINTS) - 1.0))
}

/// Returns a logarithmic axis with marks around a value.
fn axis(label: &str, value: f64, reach: f64, more: &[f64]) -> Axis {
    let marks = (-2..=2).map(|it| value * reach.powf(f64::from(it) / 2.0)).chain(more.iter().copied());
    let mut marks: Vec<f64> = marks.collect();
    marks.sort_by(f64::total_cmp);
    Axis::marked(label, marks.into_iter().map(|it| (it.ln(), duration(it))).collect())
}

fn percent_axis(label: &str) -> Axis {
    Axis::marked(label, (0..=5).map(|it| (f64::from(it) * 20.0, short(f64::from(it) * 20.0))).collect())
}

fn lines(it: &Models, xs: &[f64], value: impl Fn(Model, f64) -> f64) -> Vec<Series> {
    let line = |model: Model| {
        let points = xs.iter().map(|&x| (x.ln(), Spread::of([100.0 * value(model, x)])));
        Series { name: name(it, model), points: points.collect() }
    };
    // Young, Daly and Saxena share the formula of first order.
    let mut all: Vec<Series> = Model::ALL[2..].iter().map(|it| line(*it)).collect();
    "first order (Young, Daly, Saxena)".clone_into(&mut all[0].name);
    all
}

fn waste(it: &Models) -> Chart {
    let constants = &it.calibration.constants;
    let (best, file) = (it.advice.best, it.calibration.every);
    let reach = REACH.max(1.05 * (file / best).max(best / file));
    let xs: Vec<f64> = around(best, reach).collect();
    let mut series = lines(it, &xs, |model, every| 1.0 - model.goodput(constants, every));
    if !it.simulated.is_empty() {
        let point = |(every, goodput): &(f64, crate::compare::estimate::Estimate)| {
            let (mean, half) = (100.0 - goodput.mean(), goodput.half_width.unwrap_or(0.0));
            (every.ln(), Spread { mean, least: mean - half, most: mean + half, ..goodput.spread })
        };
        series
            .push(Series { name: "simulated".to_owned(), points: it.simulated.iter().map(point).collect() });
    }
    let mut chart = Chart::new(
        "waste over checkpointEvery; the table below has the numbers.",
        axis("checkpointEvery", best, reach, &[]),
        Axis::from("waste, %"),
        series,
    );
    chart.marks = [(best, "best"), (file, "file")].map(|(x, text)| (x.ln(), x.ln(), text.to_owned())).into();
    chart
}

fn over_mtbf(it: &Models) -> Chart {
    let (constants, file) = (it.calibration.constants, it.calibration.every);
    let xs: Vec<f64> = around(constants.mtbf, FARTHEST).collect();
    let goodput = |model: Model, mtbf| model.goodput(&Constants { mtbf, ..constants }, file);
    let mut chart = Chart::new(
        "goodput over the mean time between failures",
        axis("mean time between failures", constants.mtbf, FARTHEST, &[]),
        percent_axis("goodput, %"),
        lines(it, &xs, goodput),
    );
    chart.marks = vec![(constants.mtbf.ln(), constants.mtbf.ln(), "file".to_owned())];
    chart
}

fn models(it: &Models) -> Markup {
    let constants = &it.calibration.constants;
    let at_file = format!("goodput at {} (the file)", duration(it.calibration.every));
    let columns = [
        ("model", false),
        ("best interval", true),
        ("goodput there", true),
        (at_file.as_str(), true),
        ("validity", false),
    ];
    let percent = |model: Model, every: f64| format!("{:.1} %", 100.0 * model.goodput(constants, every));
    let row = |model: Model| {
        let best = model.best(constants);
        let why = why_not(model, &it.calibration);
        let class = (model == it.advice.model).then_some("best");
        let cells = vec![
            html! { (model.name()) },
            html! { (duration(best)) },
            html! { (percent(model, best)) },
            html! { (percent(model, it.calibration.every)) },
            html! { @match why { Some(why) => span.unstated { "out of range: " (why) }, None => "applies" } },
        ];
        (class, cells)
    };
    html! {
        (table(&columns, Model::ALL.map(row)))
        p.prose { "To try the recommended interval: " code { "faultline sweep FILE --set " (setting(it)) } }
    }
}

fn measured(it: &Models) -> Markup {
    let constants = &it.calibration.constants;
    let shown = &Model::ALL[2..];
    let columns: Vec<(&str, bool)> = [("interval", true), ("simulated goodput", true)]
        .into_iter()
        .chain(shown.iter().map(|it| (it.name(), true)))
        .collect();
    let row = |(every, goodput): &(f64, _)| {
        let mut cells = vec![html! { (every) " s" }, html! { (Unit::Percent.text(goodput)) }];
        cells.extend(
            shown.iter().map(|it| html! { (format!("{:.1} %", 100.0 * it.goodput(constants, *every))) }),
        );
        (None, cells)
    };
    table(&columns, it.simulated.iter().map(row))
}
