//! A sweep as one self-contained page. It shows each quantity as a line if there is one parameter, and as a heat map
//! if there are two.

use faultline_report::chart::{Axis, Chart, Detail, Heat, HeatCell, Series, coded, round_values};
use maud::{Markup, html};

use super::best::best;
use super::text::{self, cell, conclusions, scope, verdicts};
use super::{Parameter, Sweep};
use crate::compare::estimate::FEW;
use crate::compare::quantity::Quantity;
use crate::measures::Spread;
use crate::study::{Study, reasons, table};

/// The files that the page links to, by the setting's index. Paths are relative to the page.
#[derive(Clone, Copy)]
pub struct Links<'a> {
    /// Returns the path of a setting's federation file.
    pub file: &'a dyn Fn(usize) -> String,
    /// Returns the path of the report of a setting's run with the first seed, if that run was recorded.
    pub record: &'a dyn Fn(usize) -> Option<String>,
}

impl Links<'_> {
    /// Returns the path that a point of a setting links to: its report or, without a record, its federation file.
    fn point(self, setting: usize) -> String {
        (self.record)(setting).unwrap_or_else(|| (self.file)(setting))
    }
}

/// Renders the page.
pub fn render(sweep: &Sweep, quantity: &Quantity, links: Links<'_>) -> String {
    let name = &sweep.plan.name;
    let mut warnings = Vec::new();
    if sweep.missing() > 0 {
        warnings.push(format!(
            "Missing runs: {}. Run the same command with `--resume` to add them.",
            sweep.missing()
        ));
    }
    let body = html! {
        @for sentence in conclusions(sweep, quantity) { p.prose { (coded(&sentence)) } }
        p.prose {
            "Every setting runs with the same seeds, and every run is judged. Bands cover the true mean with a confidence of "
            "95 %; with fewer than " (FEW) " runs, each run is a point instead. Lower is better, unless a picture states otherwise."
        }
        div.panels { @for quantity in sweep.varying() {
            @match sweep.plan.parameters.len() {
                1 => { (line(sweep, quantity, links)) }
                2 => { (heat(sweep, quantity, links)) }
                _ => {}
            }
        } }
        @if sweep.plan.parameters.len() > 2 {
            p.prose { "Pictures show sweeps of one or two parameters only. The table and " code { "runs.csv" } " contain all settings." }
        }
        h2 { "Settings" }
        p.prose {
            "Each point and cell links to the report of its setting's run with seed " (sweep.seeds.0) ", which is in the directory of "
            "the run's record. If there is no record, for example because it would be too large, the link leads to the federation file. Each "
            "number links to the federation file of its setting. To examine another run, repeat it exactly with "
            code { "faultline run " ((links.file)(0)) " --backend simulate --seed " (sweep.seeds.0.saturating_add(1)) } "."
        }
        (settings(sweep, quantity, links))
        (reasons(&text::reasons(sweep)))
    };
    Study {
        title: format!("{name}: sweep"),
        heading: format!("{name}: sweep"),
        meta: html! { (scope(sweep)) },
        warnings,
        body,
        command: "faultline sweep",
        note: html! { "Runs with the same seed are bit-identical." },
    }
    .page()
}

fn settings(sweep: &Sweep, quantity: &Quantity, links: Links<'_>) -> Markup {
    let drawn = sweep.varying();
    let least = best(sweep, quantity).map(|it| it.setting);
    let parameters = sweep.plan.parameters.iter().map(|it| (it.short(), false));
    let columns: Vec<(&str, bool)> = [("setting", true), ("record", true)]
        .into_iter()
        .chain(parameters)
        .chain([("verdicts", false)])
        .chain(drawn.iter().map(|it| (it.title, true)))
        .collect();
    let row = |setting: usize| {
        let mut cells = vec![
            html! { a href=((links.file)(setting)) { (setting + 1) } },
            html! { @if let Some(record) = (links.record)(setting) { a href=(record) { "seed " (sweep.seeds.0) } } },
        ];
        cells.extend(sweep.plan.values(setting).into_iter().map(|value| html! { span.fixed { (value) } }));
        cells.push(html! { (verdicts(sweep, setting)) });
        cells.extend(drawn.iter().map(|quantity| html! { (cell(sweep, setting, quantity)) }));
        ((least == Some(setting)).then_some("best"), cells)
    };
    table(&columns, (0..sweep.plan.settings.len()).map(row))
}

/// Returns the title of a quantity's picture.
fn heading(quantity: &Quantity) -> String {
    let better = if quantity.rises() { ", higher is better" } else { "" };
    format!("{}{better}", quantity.title)
}

/// Renders a quantity over the values of the only parameter, evenly spaced.
fn line(sweep: &Sweep, quantity: &Quantity, links: Links<'_>) -> Markup {
    let (mut points, mut details) = (Vec::new(), Vec::new());
    for setting in 0..sweep.plan.settings.len() {
        let Some(value) = sweep.estimate(setting, quantity) else { continue };
        let runs = sweep.of(setting).filter_map(|it| it.values.get(quantity.name).copied());
        let half = value.half_width.unwrap_or(0.0);
        let band = Spread { least: value.mean() - half, most: value.mean() + half, ..value.spread };
        points.push((setting as f64, band));
        details.push(Detail {
            text: format!("{}: {}", sweep.plan.words(setting), quantity.unit.text(&value)),
            link: links.point(setting),
            runs: if value.spread.runs < FEW { runs.collect() } else { Vec::new() },
        });
    }
    let runs = details.iter().flat_map(|it| it.runs.iter().copied());
    let most = points.iter().map(|it| it.1.most).chain(runs).fold(0.0, f64::max);
    let marks = quantity.unit.axis(&round_values(most));
    let names: Vec<&str> =
        (0..sweep.plan.settings.len()).filter_map(|it| sweep.plan.values(it).into_iter().next()).collect();
    let path = &sweep.plan.parameters[0].path;
    let title = format!("{} over {path}; the table below has the numbers.", quantity.title);
    let mut chart = Chart::new(
        title,
        Axis::named(path, &names),
        Axis::marked(&heading(quantity), marks),
        vec![Series { name: quantity.title.to_owned(), points }],
    );
    chart.details = vec![details];
    chart.markup()
}

/// Renders a quantity over the values of two parameters: the first vertically, the second horizontally.
fn heat(sweep: &Sweep, quantity: &Quantity, links: Links<'_>) -> Markup {
    let [down, across] = &sweep.plan.parameters[..] else { return html! {} };
    let of = |setting: usize| {
        let value = sweep.estimate(setting, quantity)?.mean();
        let choice = &sweep.plan.settings[setting].choice;
        Some(HeatCell {
            place: [choice[0], choice[1]],
            value,
            brief: quantity.unit.brief(value),
            text: format!("{}: {}", sweep.plan.words(setting), cell(sweep, setting, quantity)),
            link: links.point(setting),
        })
    };
    let axis = |it: &Parameter| (it.path.clone(), it.values.iter().map(|value| value.0.clone()).collect());
    let heat = Heat {
        title: heading(quantity),
        down: axis(down),
        across: axis(across),
        rises: quantity.rises(),
        cells: (0..sweep.plan.settings.len()).filter_map(of).collect(),
    };
    heat.markup()
}
