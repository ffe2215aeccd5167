//! A comparison as one page that needs nothing else, and its picture: a panel for each quantity, a bar for each protocol.

use faultline_report::explain::count;
use faultline_report::page::document;
use faultline_report::style;
use faultline_trace::manifest::Backend;
use maud::{Markup, PreEscaped, html};

use super::estimate::FEW;
use super::quantity::Quantity;
use super::tell::{cell, finished, on, remarks, seeds, verdicts};
use super::{Comparison, Row};

/// Of the picture, beside the colours of the page.
const STYLE: &str = ".bars text{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif;fill:var(--ink)}\
.bars .title{font-weight:600}.bars .side{fill:var(--faint);font-weight:600;font-size:13px}.bars .faint{fill:var(--faint)}.bars .end{text-anchor:end}\
.bars .bar{fill:var(--c);fill-opacity:.75}.bars .axis{stroke:var(--grid)}.bars .whisker{stroke:var(--ink);stroke-width:1.3;fill:none}.bars .run{fill:var(--ink)}\
.bars{width:100%;height:auto;border:1px solid var(--grid);border-radius:10px;padding:8px;margin:14px 0}.paper{fill:var(--paper)}";
/// Of the page alone.
const TABLE: &str = ".comparison td{white-space:nowrap;padding-right:9px}.comparison td:first-child{white-space:normal;min-width:130px}\
.comparison small{display:block;color:var(--faint);font-size:11.5px}.comparison .group td{padding-top:18px;color:var(--faint);font-weight:600}\
.prose{max-width:86ch}";

const PANEL: f64 = 424.0;
const GAP: f64 = 40.0;
const NAME: f64 = 170.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 26.0;
/// Beside a bar, for its number.
const NUMBER: f64 = 92.0;
/// Protocols that a heading names; more are counted.
const NAMED: usize = 4;

/// The page.
pub fn render(it: &Comparison) -> String {
    let protocols: Vec<&str> = it.rows.iter().map(|row| row.protocol.as_str()).collect();
    let compared = if protocols.len() > NAMED {
        count(protocols.len() as u64, "protocol")
    } else {
        protocols.join(", ")
    };
    let body = html! {
        header { div {
            h1 { (it.name) ": " (compared) }
            p.meta {
                (it.application) " on " (count(it.ranks.into(), "process")) " in " (count(it.clusters as u64, "cluster"))
                ", " (seeds(it)) ", " (on(it))
            }
        } }
        p.prose {
            "Every protocol runs the same application with the same seeds, once without faults and once with those of the "
            "file. Every run is judged by the same checkers. Numbers are means over the seeds, with the interval that covers "
            "the true mean with a confidence of 95 %; of fewer than " (FEW) " runs, with their range."
            @if let Some(unprotected) = &it.unprotected {
                " Unprotected and without faults the application takes "
                (super::quantity::Unit::Seconds.text(unprotected)) "; that is the measure of every overhead, seed by seed."
            }
        }
        (picture(it))
        (table(it))
        (notes(it))
        h2 { "What the numbers are" }
        (explanations())
        footer { "Made by " code { "faultline compare" } ", faultline " (env!("CARGO_PKG_VERSION")) "."
            @if it.backend == Backend::Simulate { " Runs are bit-identical per seed." } @else { " Timing differs from run to run." }
        }
    };
    document(&format!("{}: protocols compared", it.name), &[STYLE, TABLE], body)
}

/// The picture as a file of its own.
pub fn file(it: &Comparison) -> String {
    let (width, height) = size(it);
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) {
            style { (PreEscaped(style::PALETTE)) (PreEscaped(style::CLUSTERS)) (PreEscaped(STYLE)) }
            rect.paper width=(width) height=(height) {}
            (picture(it))
        }
    };
    markup.into_string()
}

/// What stands in the picture of a comparison, in two columns.
fn drawn(it: &Comparison) -> Vec<&'static Quantity> {
    let all = Quantity::of_family(it.family);
    all.filter(|quantity| quantity.drawn && (it.has_faults || !quantity.faulty)).collect()
}

fn panel_height(it: &Comparison) -> f64 {
    HEAD + it.rows.len() as f64 * ROW + 14.0
}

fn size(it: &Comparison) -> (f64, f64) {
    let panels = drawn(it).len().div_ceil(2) as f64;
    (2.0 * PANEL + GAP, panels * panel_height(it))
}

fn picture(it: &Comparison) -> Markup {
    let (width, height) = size(it);
    html! {
        svg.bars xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) } role="img"
            aria-label="Bars for each quantity and protocol; the table below has the same numbers." {
            @for (index, quantity) in drawn(it).into_iter().enumerate() {
                @let x = (index % 2) as f64 * (PANEL + GAP);
                @let y = (index / 2) as f64 * panel_height(it);
                g transform={ "translate(" (x) " " (y) ")" } { (panel(it, quantity)) }
            }
        }
    }
}

fn panel(it: &Comparison, quantity: &Quantity) -> Markup {
    let upper = |row: &Row| {
        row.values
            .get(quantity.name)
            .map_or(0.0, |it| it.spread.most.max(it.mean() + it.half_width.unwrap_or(0.0)))
    };
    let most = it.rows.iter().map(upper).fold(0.0, f64::max);
    let room = PANEL - NAME - NUMBER;
    let scale = |value: f64| if most > 0.0 { n(value.max(0.0) / most * room) } else { 0.0 };
    let bottom = HEAD + it.rows.len() as f64 * ROW;
    html! {
        text.title x="0" y="16" { (quantity.title) }
        text.faint.end x=(PANEL) y="16" { @if quantity.faulty { "with faults" } @else { "without faults" } }
        line.axis x1=(NAME) x2=(NAME) y1=(HEAD) y2=(bottom) {}
        @for (index, row) in it.rows.iter().enumerate() {
            @let y = HEAD + index as f64 * ROW;
            g.c0 {
                text.end x=(NAME - 8.0) y=(y + 15.0) { (row.protocol) }
                @match row.values.get(quantity.name) {
                    Some(value) => {
                        @let half = value.half_width.unwrap_or(0.0);
                        rect.bar x=(NAME) y=(y + 4.0) width=(scale(value.mean())) height=(ROW - 8.0) rx="2" {
                            title { (row.protocol) ": " (quantity.unit.text(value)) }
                        }
                        @if half > 0.0 {
                            @let start = NAME + scale(value.mean() - half);
                            @let end = NAME + scale(value.mean() + half);
                            path.whisker d={ "M" (start) " " (y + 8.0) "v6m0 -3H" (end) "m0 -3v6" } {}
                        } @else if value.spread.runs > 1 && value.spread.runs < FEW {
                            // Of few runs the outermost are drawn instead of an interval.
                            circle.run cx=(NAME + scale(value.spread.least)) cy=(y + 11.0) r="2.4" {}
                            circle.run cx=(NAME + scale(value.spread.most)) cy=(y + 11.0) r="2.4" {}
                        }
                        text.end x=(PANEL) y=(y + 15.0) { (quantity.unit.brief(value.mean())) }
                    }
                    None => text.faint x=(NAME + 6.0) y=(y + 15.0) { @if row.cannot.is_some() || (quantity.faulty && row.cannot_with_faults.is_some()) { "not run" } @else { "none finished" } }
                }
            }
        }
    }
}

fn table(it: &Comparison) -> Markup {
    html! {
        div.table { table.comparison {
            thead { tr { th {} @for row in &it.rows {
                th.num { (breakable(&row.protocol)) }
            } } }
            tbody {
                @for (title, faulty) in [("Without faults", false), ("With the faults of the file", true)] {
                    @if it.has_faults || !faulty {
                        tr.group { td colspan=(it.rows.len() + 1) { (title) } }
                        tr { td { "verdicts" } @for row in &it.rows {
                            @let tally = if faulty { &row.faulty } else { &row.calm };
                            td.num { (verdicts(tally)) }
                        } }
                        tr { td { "finished" } @for row in &it.rows {
                            @let tally = if faulty { &row.faulty } else { &row.calm };
                            td.num { (finished(tally)) }
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

/// A name that may be broken before its capitals, so that a column is no wider than its numbers.
fn breakable(name: &str) -> Markup {
    html! { @for letter in name.chars() { @if letter.is_uppercase() { wbr; } (letter) } }
}

/// A number, with what is known of its precision below it, so that the table of many protocols stays narrow.
fn number(row: &Row, quantity: &Quantity) -> Markup {
    let text = cell(row, quantity);
    match (text.split_once(' '), row.values.get(quantity.name)) {
        (Some((_, precision)), Some(value)) if precision.starts_with(['±', '[']) => {
            html! { (quantity.unit.brief(value.mean())) small { (precision) } }
        }
        _ => html! { (text) },
    }
}

fn notes(it: &Comparison) -> Markup {
    let all: Vec<String> = it.rows.iter().flat_map(|row| remarks(it, row)).collect();
    html! {
        @if !all.is_empty() { ul.reasons { @for note in all { li { (note) } } } }
        h2 { "Options" }
        ul { @for row in &it.rows { li { code { (row.options) } } } }
    }
}

fn explanations() -> Markup {
    html! {
        ul.prose {
            li { b { "longer than unprotected" } ": the time until the application has finished, against the run of the same seed "
                "under " code { "none" } " without faults." }
            li { b { "checkpoints per process" } ": committed ones, without the initial one. " b { "Forced" } " ones were asked for by "
                "a message instead of a timer." }
            li { b { "state saved" } ": application state handed to storages, copies for other nodes included; not the logs." }
            li { b { "messages logged" } ": content of the messages that the protocol copies to a log." }
            li { b { "moved from memory to storage" } ": of the messages logged, what went over the limit " code { "logMemory" } "." }
            li { b { "outage" } ": from a failure until everybody has gone on, with all that fails meanwhile and the rollbacks that "
                "follow. Only runs that finished count." }
            li { b { "work undone" } ": the sum over all processes of the time that they worked since the state to which they went back." }
            li { b { "until all have gone on" } ": from the first failure of an outage until the last process that went back goes on; "
                "what it lost it has yet to do again." }
        }
    }
}

/// A coordinate, to a tenth of a pixel.
fn n(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
