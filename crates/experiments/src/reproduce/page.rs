//! A reproduction as one page that needs nothing else, in the style of every other page, and its summary for a terminal.

use comfy_table::Table as TextTable;
use comfy_table::presets::NOTHING;
use faultline_report::explain::count;
use faultline_report::page::document;
use maud::{Markup, html};

use crate::measures::short;

use super::chart;
use super::section::{Agreement, Cell, Finding, Section, Table};
use super::{Judged, Reproduction};

/// What only this page has.
const STYLE: &str = "figure{margin:16px 0;max-width:760px}figcaption{color:var(--faint);font-size:13px}\
figure svg{width:100%;height:auto;border:1px solid var(--grid);border-radius:10px;padding:8px}\
.findings{table-layout:fixed}.findings td:nth-child(1){width:184px}.findings td:nth-child(2){width:210px}\
.findings td:nth-child(3){width:230px}.findings td:nth-child(4){width:200px}.findings td p{margin:0}\
section{scroll-margin-top:12px}.place{color:var(--faint);font-weight:400;font-size:14px;margin-left:10px}\
.overview td:first-child{white-space:nowrap}.overview a{color:inherit}.overview td:nth-child(3),.overview td:nth-child(4){width:27%}\
.prose{max-width:86ch}h3{font-size:14px;margin:22px 0 4px;font-weight:600}.measured{color:var(--c0);background:var(--wash)}\
@media(max-width:800px){.findings,.findings tr,.findings td{display:block;width:auto!important}.findings td{border:0;padding-top:2px}}";

/// The page.
pub fn render(it: &Reproduction) -> String {
    document(it.paper.title, &[chart::STYLE, STYLE], body(it))
}

fn body(it: &Reproduction) -> Markup {
    html! {
        (head(it))
        h2 { "All findings" }
        (overview(&it.sections))
        @for section in &it.sections { (show(section)) }
        footer {
            p {
                "Made by " code { (it.paper.command) @if it.quick { " --quick" } } ", faultline "
                (env!("CARGO_PKG_VERSION")) ". Tables as CSV and figures as SVG lie beside this page. Runs are bit-identical per seed."
            }
        }
    }
}

fn head(it: &Reproduction) -> Markup {
    let found = |agreement| findings(it).filter(|finding| finding.agreement == agreement).count();
    let Judged { runs, hours, events, instances, wrong } = &it.judged;
    html! {
        header { div {
            h1 { (it.paper.heading) }
            p.meta {
                (it.paper.meta) ", with " (count(it.seeds.into(), "seed")) " for each setting where the paper has one run"
                @if it.quick { "; fewer settings than the full reproduction" } "."
            }
        } }
        div.numbers {
            div { b { (found(Agreement::Agrees)) } span { "findings agree with the paper" } }
            div { b { (found(Agreement::Differs)) } span { "differ" } }
            div { b { (found(Agreement::UnderSpecified)) } span { "are under-specified there" } }
            div { b { (runs) } span { "simulated runs, " @if *hours >= 1.0 { (hours.round()) } @else { (short(*hours)) } " hours of virtual time, " (events / 1_000_000) " million events" } }
            div { b { (wrong.len()) } span { "runs with a violation or an open question, in " (instances) " instances judged" } }
        }
        @for text in it.paper.prose { p.prose { (text) } }
        p.prose {
            "No parameter was fitted to a number of the paper. Ranges are those of all runs: mean [least..greatest]."
        }
        @if !wrong.is_empty() {
            ul.reasons { @for it in wrong.iter().take(20) { li { (it) } } }
        }
    }
}

fn findings(it: &Reproduction) -> impl Iterator<Item = &Finding> {
    it.sections.iter().flat_map(|section| &section.findings)
}

fn chip(agreement: Agreement) -> Markup {
    let class = match agreement {
        Agreement::Agrees => "pass",
        Agreement::Differs => "fail",
        Agreement::UnderSpecified => "unknown",
        Agreement::Measured => "measured",
    };
    html! { span class={ "chip " (class) } { (agreement.text()) } }
}

fn overview(sections: &[Section]) -> Markup {
    html! {
        div.table { table.overview {
            thead { tr { th { "where" } th { "finding" } th { "paper" } th { "here" } th {} } }
            tbody { @for section in sections { @for finding in &section.findings { tr {
                td { a href={ "#" (section.id) } { (section.place) } }
                td { (finding.what) } td { (finding.published) } td { (finding.ours) } td { (chip(finding.agreement)) }
            } } } }
        } }
    }
}

fn show(section: &Section) -> Markup {
    html! {
        section id=(section.id) {
            h2 { (section.title) span.place { (section.place) } }
            @for text in &section.text { p.prose { (text) } }
            div.table { table.findings {
                tbody { @for it in &section.findings { tr {
                    td { (chip(it.agreement)) }
                    td { (it.what) }
                    td { @if !it.published.is_empty() { p.hint { "paper" } (it.published) } }
                    td { p.hint { "here" } (it.ours) }
                    td { (it.sentence) }
                } } }
            } }
            @for it in &section.figures {
                figure {
                    (it.chart.markup())
                    figcaption { (it.caption) }
                }
            }
            @for it in &section.tables { (table(it)) }
        }
    }
}

fn table(it: &Table) -> Markup {
    let is_word = |column: usize| it.rows.iter().all(|row| matches!(row.get(column), Some(Cell::Word(_))));
    let words: Vec<bool> = (0..it.columns.len()).map(is_word).collect();
    html! {
        h3 { (it.caption) }
        div.table { table {
            thead { tr { @for (title, word) in it.columns.iter().zip(&words) { th.num[!word] { (title) } } } }
            tbody { @for row in &it.rows { tr {
                @for (cell, word) in row.iter().zip(&words) { td.num[!word] { (cell.text()) } }
            } } }
        } }
    }
}

/// The findings for a terminal.
pub fn text(it: &Reproduction) -> String {
    let mut table = TextTable::new();
    table.load_style(NOTHING).force_no_tty().set_header(["where", "finding", "paper", "here", ""]);
    for section in &it.sections {
        for Finding { what, published, ours, agreement, .. } in &section.findings {
            table.add_row([section.place, what, published, ours, agreement.text()]);
        }
    }
    let lines: String = table.lines().map(|it| format!("{}\n", it.trim_end())).collect();
    let Judged { runs, instances, wrong, .. } = &it.judged;
    let mut text =
        format!("{lines}\n{runs} runs, {instances} instances judged, {} not passed\n", wrong.len());
    wrong.iter().take(20).for_each(|it| text.push_str(&format!("  {it}\n")));
    text
}
