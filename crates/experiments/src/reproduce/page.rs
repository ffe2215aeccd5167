//! A reproduction as one self-contained page in the style of the other pages, and its summary for a terminal.

use faultline_report::explain::count;
use faultline_report::table::{self as text_table, lines, wrapped};
use maud::{Markup, html};

use crate::measures::short;
use crate::study::{Study, figure, table};

use super::section::{Cell, Finding, Grade, Section, Table};
use super::{Judged, Reproduction};

/// Renders the page.
pub fn render(it: &Reproduction) -> String {
    let body = html! {
        (numbers(it))
        (strip(&it.sections))
        @for text in it.paper.prose { p.prose { (text) } }
        p.prose {
            "No parameter was fitted to the paper's results. Ranges are over all runs: mean [least..greatest]."
        }
        @for section in &it.sections { (show(section)) }
    };
    Study {
        title: it.paper.title.to_owned(),
        heading: it.paper.heading.to_owned(),
        meta: html! {
            (it.paper.meta) ", with " (count(it.seeds.into(), "seed")) " per setting, where the paper has one run"
            @if it.quick { "; fewer settings than the full reproduction" } "."
        },
        warnings: warnings(it),
        body,
        command: &format!("{}{}", it.paper.command, if it.quick { " --quick" } else { "" }),
        note: html! {
            "Tables as CSV and figures as SVG are next to this page. Simulated runs with the same seed are \
             bit-identical."
        },
    }
    .page()
}

/// Returns what limits the findings.
fn warnings(it: &Reproduction) -> Vec<String> {
    let Judged { wrong, missed, .. } = &it.judged;
    let left_out = "Experiments that lack a run are left out.";
    let mut warnings = Vec::new();
    if it.missing > 0 {
        warnings.push(format!("Interrupted: {} missing. {left_out}", count(it.missing, "run")));
    }
    if it.out_of_memory > 0 {
        warnings
            .push(format!("Out of memory: {} reached the limit. {left_out}", count(it.out_of_memory, "run")));
    }
    warnings.extend(wrong.iter().take(20).cloned());
    warnings.extend(missed.iter().map(|it| format!("Goal missed: {it}")));
    warnings
}

fn virtual_hours(hours: f64) -> String {
    if hours >= 1.0 { count(hours.round() as u64, "hour") } else { format!("{} hours", short(hours)) }
}

fn numbers(it: &Reproduction) -> Markup {
    let Judged { runs, hours, events, instances, wrong, .. } = &it.judged;
    html! {
        div.numbers {
            @for (name, found) in counts(it) { div { b { (found) } span { "findings: " (name) } } }
            div { b { (runs) } span { "simulated runs, " (virtual_hours(*hours)) " of virtual time, " (events / 1_000_000) " million events" } }
            div { b { (wrong.len()) } span { "runs that should have passed but did not (" (instances) " instances judged)" } }
        }
    }
}

/// Returns the number of findings with each grade.
fn counts(it: &Reproduction) -> [(&'static str, usize); Grade::NAMES.len()] {
    Grade::NAMES.map(|name| (name, findings(it).filter(|finding| finding.grade.name() == name).count()))
}

fn findings(it: &Reproduction) -> impl Iterator<Item = &Finding> {
    it.sections.iter().flat_map(|section| &section.findings)
}

fn chip(grade: Grade) -> Markup {
    let class = match grade {
        Grade::ValueAgrees => "pass",
        Grade::DirectionAgrees(_) => "direction",
        Grade::Inseparable => "unknown",
        Grade::Differs => "fail",
        Grade::NotStated => "unstated",
    };
    html! { span class={ "chip " (class) } { (grade.text()) } }
}

/// Renders a figure of each section, the paper's next to ours, which links to the section.
fn strip(sections: &[Section]) -> Markup {
    html! {
        nav.strip aria-label="Sections" { @for section in sections {
            a href={ "#" (section.id) } {
                b { (section.title) }
                @if let Some(it) = headline(section) {
                    span { (it.what) }
                    @if !it.published.is_empty() { span.hint { "paper: " (it.published) } }
                    span.hint { "here: " (it.ours) }
                    (chip(it.grade))
                }
            }
        } }
    }
}

/// Returns the finding that stands for a section: one that differs, if any does, and otherwise the briefest one.
fn headline(section: &Section) -> Option<&Finding> {
    section.findings.iter().min_by_key(|it| {
        (it.grade != Grade::Differs, it.published.is_empty(), it.published.len() + it.ours.len())
    })
}

fn show(section: &Section) -> Markup {
    let mut findings: Vec<&Finding> = section.findings.iter().collect();
    findings.sort_by_key(|it| it.grade != Grade::Differs);
    html! {
        section id=(section.id) {
            h2 { (section.title) span.place { (section.place) } }
            @for text in &section.text { p.prose { (text) } }
            div.table { table.findings {
                tbody { @for it in findings { tr {
                    td { (chip(it.grade)) }
                    td { (it.what) }
                    td { @if !it.published.is_empty() { p.hint { "paper" } (it.published) } }
                    td { p.hint { "here" } (it.ours) }
                    td { (it.sentence) }
                } } }
            } }
            div.figures { @for it in &section.figures { (figure(&it.chart.markup(), &it.caption)) } }
            @for it in &section.tables {
                details { summary { (it.caption) } (numbers_of(it)) }
            }
        }
    }
}

fn numbers_of(it: &Table) -> Markup {
    let is_word = |column: usize| it.rows.iter().all(|row| matches!(row.get(column), Some(Cell::Word(_))));
    let columns: Vec<(&str, bool)> = (0..).zip(&it.columns).map(|(at, it)| (*it, !is_word(at))).collect();
    table(
        &columns,
        it.rows.iter().map(|row| (None, row.iter().map(|cell| html! { (cell.text()) }).collect())),
    )
}

/// Formats the findings for a terminal.
pub fn text(it: &Reproduction) -> String {
    let mut table = text_table::table();
    table.set_header(["where", "finding", "paper", "here", ""]);
    for section in &it.sections {
        for Finding { what, published, ours, grade, .. } in &section.findings {
            table.add_row([section.place, what, published, ours, &grade.text()]);
        }
    }
    let lines = lines(&table);
    let Judged { runs, instances, wrong, missed, .. } = &it.judged;
    let mut text = format!(
        "{lines}\n{}, {} judged, {} did not pass\n",
        count(*runs, "run"),
        count(*instances, "instance"),
        count(wrong.len() as u64, "run")
    );
    let counts = counts(it).map(|(name, found)| format!("{found} {name}"));
    text.push_str(&wrapped("findings: ", &counts.join(", ")));
    text.extend(wrong.iter().take(20).map(|it| wrapped("  ", it)));
    text.extend(missed.iter().map(|it| wrapped("goal missed: ", it)));
    if it.missing > 0 {
        text.push_str(&format!(
            "interrupted: {} missing; experiments that lack a run are left out\n",
            count(it.missing, "run")
        ));
    }
    if it.out_of_memory > 0 {
        text.push_str(&format!(
            "out of memory: {} reached the limit; experiments that lack a run are left out\n",
            count(it.out_of_memory, "run")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_that_differ_come_first_and_tables_are_closed() {
        let finding = |what: &str, grade| Finding::new(what, "7", "8", grade, "");
        let all = [finding("alike", Grade::ValueAgrees), finding("unlike", Grade::Differs)];
        let section = Section::new("s", "A section", "5.1").findings(all).table(
            "t",
            "its table",
            vec!["c"],
            vec![vec![Cell::from("x")]],
        );
        let strip = strip(std::slice::from_ref(&section)).into_string();
        assert!(
            strip.contains("href=\"#s\"") && strip.contains("unlike") && !strip.contains("alike<"),
            "{strip}"
        );
        let shown = show(&section).into_string();
        assert!(shown.find(">unlike<") < shown.find(">alike<"), "{shown}");
        assert!(shown.contains("<details><summary>its table"), "{shown}");
    }

    #[test]
    fn one_hour_is_singular() {
        assert_eq!([1.2, 7.6, 0.25].map(virtual_hours), ["1 hour", "8 hours", "0.25 hours"]);
    }
}
