//! A sweep as one self-contained page: a line for each quantity with one parameter, a heat map with two.

use faultline_report::page::document;
use maud::{Markup, html};

use super::Sweep;
use super::best::best;
use super::text::{cell, conclusions, reasons, scope, verdicts};
use crate::compare::estimate::{Estimate, FEW};
use crate::compare::quantity::Quantity;

const STYLE: &str = ".sweep text{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif;fill:var(--faint)}\
.sweep .title{font-weight:600;fill:var(--ink)}.sweep .ink{fill:var(--ink)}.sweep .middle{text-anchor:middle}.sweep .end{text-anchor:end}\
.sweep .grid{stroke:var(--grid)}.sweep .line{fill:none;stroke:var(--c0);stroke-width:2}.sweep .dot{fill:var(--c0)}\
.sweep .run{fill:var(--c0);fill-opacity:.45}.sweep .whisker{stroke:var(--c0);stroke-width:1.4;fill:none}\
.sweep .cell{fill:var(--c0)}.sweep .least{fill:none;stroke:var(--good);stroke-width:2.5}\
.sweep{width:100%;max-width:760px;height:auto;display:block;border:1px solid var(--grid);border-radius:10px;padding:8px;margin:14px 0}\
.settings th{white-space:normal}.settings td.fixed{white-space:nowrap}.settings .best td{background:var(--good-wash)}.prose{max-width:86ch}";

const WIDTH: f64 = 720.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const HEIGHT: f64 = 250.0;
const BOTTOM: f64 = 40.0;
/// The height of a cell of a heat map.
const ROW: f64 = 30.0;

/// Renders the page. `file` returns the path of a setting's file, relative to the page.
pub fn render(sweep: &Sweep, quantity: &Quantity, file: &dyn Fn(usize) -> String) -> String {
    let name = &sweep.plan.name;
    let body = html! {
        header { div { h1 { (name) ": sweep" } p.meta { (scope(sweep)) } } }
        @if sweep.missing() > 0 {
            p.prose { b { (sweep.missing()) " runs are missing. " } "Run the same command with " code { "--resume" } " to add them." }
        }
        @for sentence in conclusions(sweep, quantity) { p.prose { (sentence) } }
        p.prose {
            "Every setting runs with the same seeds, and every run is judged. Whiskers cover the true mean with a confidence of "
            "95 %; with fewer than " (FEW) " runs, each run is a point instead. Less is better in every picture."
        }
        @for quantity in sweep.varying() {
            @match sweep.plan.parameters.len() {
                1 => { (line(sweep, quantity, file)) }
                2 => { (heat(sweep, quantity, file)) }
                _ => {}
            }
        }
        @if sweep.plan.parameters.len() > 2 {
            p.prose { "Pictures are drawn for one or two parameters. The table and " code { "runs.csv" } " have all of them." }
        }
        h2 { "Settings" }
        p.prose {
            "Each number links to the federation file of its setting. To examine a run, repeat it exactly with "
            code { "faultline run " (file(0)) " --backend simulate --seed " (sweep.seeds.0) } "."
        }
        (table(sweep, quantity, file))
        @let reasons = reasons(sweep);
        @if !reasons.is_empty() { ul.reasons { @for reason in reasons { li { (reason) } } } }
        footer { "Made by " code { "faultline sweep" } ", faultline " (env!("CARGO_PKG_VERSION")) ". Runs with the \
            same seed are bit-identical." }
    };
    document(&format!("{name}: sweep"), &[STYLE], body)
}

fn table(sweep: &Sweep, quantity: &Quantity, file: &dyn Fn(usize) -> String) -> Markup {
    let drawn = sweep.varying();
    let least = best(sweep, quantity).map(|it| it.setting);
    html! {
        div.table { table.settings {
            thead { tr {
                th.num { "setting" }
                @for parameter in &sweep.plan.parameters { th { (parameter.short()) } }
                th { "verdicts" }
                @for quantity in &drawn { th.num { (quantity.title) } }
            } }
            tbody { @for setting in 0..sweep.plan.settings.len() {
                tr.best[least == Some(setting)] {
                    td.num { a href=(file(setting)) { (setting + 1) } }
                    @for value in sweep.plan.values(setting) { td.fixed { (value) } }
                    td { (verdicts(sweep, setting)) }
                    @for quantity in &drawn { td.num { (cell(sweep, setting, quantity)) } }
                }
            } }
        } }
    }
}

/// Renders a quantity over the values of the only parameter, evenly spaced.
fn line(sweep: &Sweep, quantity: &Quantity, file: &dyn Fn(usize) -> String) -> Markup {
    let settings = 0..sweep.plan.settings.len();
    let runs = |setting: usize| -> Vec<f64> {
        sweep.of(setting).filter_map(|it| it.values.get(quantity.name).copied()).collect()
    };
    let upper = |it: &Estimate| it.mean() + it.half_width.unwrap_or(0.0);
    let highest = |setting: usize| {
        let whisker = sweep.estimate(setting, quantity).map_or(0.0, |it| upper(&it));
        let points = if runs(setting).len() < FEW { runs(setting) } else { Vec::new() };
        points.into_iter().fold(whisker, f64::max)
    };
    let most = settings.clone().map(highest).fold(0.0, f64::max);
    let step = (WIDTH - LEFT - RIGHT) / settings.len() as f64;
    let x = |setting: usize| n(LEFT + step * (setting as f64 + 0.5));
    let room = HEIGHT - TOP - BOTTOM;
    let y = |value: f64| n(HEIGHT - BOTTOM - if most > 0.0 { value.max(0.0) / most * room } else { 0.0 });
    // Labels that would overlap are omitted evenly.
    let every = (settings.len() as f64 * 52.0 / (WIDTH - LEFT - RIGHT)).ceil().max(1.0) as usize;
    let means: Vec<String> = settings
        .clone()
        .filter_map(|it| Some(format!("{},{}", x(it), y(sweep.estimate(it, quantity)?.mean()))))
        .collect();
    html! {
        svg.sweep xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img"
            aria-label={ (quantity.title) " over " (sweep.plan.parameters[0].path) "; the table below has the numbers." } {
            text.title x="8" y="18" { (quantity.title) }
            @for share in [0.0, 0.5, 1.0] {
                line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y(most * share)) y2=(y(most * share)) {}
                text.end x=(LEFT - 8.0) y=(y(most * share) + 4.0) { (quantity.unit.brief(most * share)) }
            }
            polyline.line points=(means.join(" ")) {}
            @for setting in settings {
                @if setting % every == 0 {
                    text.middle x=(x(setting)) y=(HEIGHT - BOTTOM + 18.0) { (sweep.plan.values(setting)[0]) }
                }
                @if let Some(value) = sweep.estimate(setting, quantity) {
                    @if value.spread.runs < FEW {
                        @for run in runs(setting) { circle.run cx=(x(setting)) cy=(y(run)) r="3" {} }
                    } @else if let Some(half) = value.half_width.filter(|it| *it > 0.0) {
                        path.whisker d={ "M" (x(setting)) " " (y(value.mean() - half)) "V" (y(value.mean() + half)) } {}
                    }
                    a href=(file(setting)) {
                        circle.dot cx=(x(setting)) cy=(y(value.mean())) r="4.5" {
                            title { (sweep.plan.words(setting)) ": " (quantity.unit.text(&value)) }
                        }
                    }
                }
            }
            text.middle x=((LEFT + WIDTH - RIGHT) / 2.0) y=(HEIGHT - 4.0) { (sweep.plan.parameters[0].path) }
        }
    }
}

/// Renders a quantity over the values of two parameters: the first vertically, the second horizontally.
fn heat(sweep: &Sweep, quantity: &Quantity, file: &dyn Fn(usize) -> String) -> Markup {
    let [down, across] = &sweep.plan.parameters[..] else { return html! {} };
    let means: Vec<(usize, f64)> = (0..sweep.plan.settings.len())
        .filter_map(|it| Some((it, sweep.estimate(it, quantity)?.mean())))
        .collect();
    let most = means.iter().map(|it| it.1).fold(f64::NEG_INFINITY, f64::max);
    let least = means.iter().map(|it| it.1).fold(f64::INFINITY, f64::min);
    let left = LEFT + 40.0;
    let wide = (WIDTH - left - RIGHT) / across.values.len() as f64;
    let high = TOP + 22.0 + down.values.len() as f64 * ROW;
    let place = |setting: usize| {
        let choice = &sweep.plan.settings[setting].choice;
        (n(left + choice[1] as f64 * wide), n(TOP + 22.0 + choice[0] as f64 * ROW))
    };
    let shade = |mean: f64| if most > least { 0.06 + 0.6 * (mean - least) / (most - least) } else { 0.06 };
    html! {
        svg.sweep xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (high + 30.0) } role="img"
            aria-label={ (quantity.title) " over " (down.path) " and " (across.path) "; the table below has the numbers." } {
            text.title x="8" y="18" { (quantity.title) }
            @for (index, (value, _)) in across.values.iter().enumerate() {
                text.middle x=(n(left + (index as f64 + 0.5) * wide)) y=(TOP + 14.0) { (value) }
            }
            @for (index, (value, _)) in down.values.iter().enumerate() {
                text.end x=(left - 8.0) y=(TOP + 22.0 + index as f64 * ROW + 19.0) { (value) }
            }
            @for &(setting, mean) in &means {
                @let (x, y) = place(setting);
                a href=(file(setting)) {
                    rect.cell x=(x + 1.0) y=(y + 1.0) width=(n(wide - 2.0)) height=(ROW - 2.0) rx="3" fill-opacity=(n2(shade(mean))) {
                        title { (sweep.plan.words(setting)) ": " (cell(sweep, setting, quantity)) }
                    }
                    @if mean == least {
                        rect.least x=(x + 2.0) y=(y + 2.0) width=(n(wide - 4.0)) height=(ROW - 4.0) rx="3" {}
                    }
                    @if wide >= 56.0 {
                        text.middle.ink x=(n(x + wide / 2.0)) y=(y + 19.0) { (quantity.unit.brief(mean)) }
                    }
                }
            }
            text x="8" y=(high + 20.0) { "down: " (down.path) ", across: " (across.path) ", outlined: the least mean" }
        }
    }
}

/// Rounds a coordinate to a tenth of a pixel.
fn n(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Rounds a share to a hundredth.
fn n2(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
