//! The page of all records and stored pages below a directory.

use faultline_checker::Verdict;
use faultline_trace::Manifest;
use maud::{Markup, PreEscaped, html};

use super::live::LIST_SCRIPT;
use super::{Assets, shell};
use crate::diagram::{Diagram, thumbnail};
use crate::explain::count;
use crate::names::DisplayNames;
use crate::summary::{RecordedRun, Summary};
use crate::text::{span, verdict, word};
use crate::timeline::Timeline;

/// The maximum number of rows. Older ones are left out.
const MOST_ROWS: usize = 2_000;
/// The maximum length of a result, in characters.
const LONGEST: usize = 240;

/// What a row describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A run.
    Run,
    /// A page of a comparison, a sweep or another experiment.
    Page,
}

/// What is known about the verdict of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// The run is in progress.
    Running,
    /// The run has not been judged yet.
    Unjudged,
    /// The verdict.
    Judged(Verdict),
    /// The record or the page cannot be read.
    Unreadable,
    /// There is none: the row describes a page.
    Page,
}

impl RowState {
    /// Returns the state in words.
    pub fn name(self) -> &'static str {
        match self {
            RowState::Running => "running",
            RowState::Unjudged => "not judged",
            RowState::Judged(it) => verdict(it),
            RowState::Unreadable => "unreadable",
            RowState::Page => "page",
        }
    }
}

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The number of the entry, which is part of its address.
    pub number: usize,
    /// What the row describes.
    pub origin: Origin,
    /// Its directory.
    pub name: String,
    /// The verdict.
    pub state: RowState,
    /// The time at which the run began, or at which the page was written, in milliseconds since the Unix epoch; 0 if
    /// unknown.
    pub unix_ms: u64,
    /// What happened, or why the entry cannot be read.
    pub result: String,
    /// The name of the protocol.
    pub protocol: String,
    /// The name of the backend.
    pub backend: String,
    /// The duration of the run, in words.
    pub duration: String,
    /// A small picture of the run, as markup; empty if there is none.
    pub picture: String,
}

impl Row {
    /// Creates the row of a run about which nothing is known.
    pub fn new(name: String, unix_ms: u64) -> Row {
        Row {
            number: 0,
            origin: Origin::Run,
            name,
            state: RowState::Unjudged,
            unix_ms,
            result: String::new(),
            protocol: String::new(),
            backend: String::new(),
            duration: String::new(),
            picture: String::new(),
        }
    }

    /// Adds what the manifest of the run says.
    #[must_use]
    pub fn described(self, manifest: &Manifest, state: RowState) -> Row {
        let duration = manifest.outcome.as_ref().map(|_| span(manifest.duration.as_secs_f64()));
        Row {
            state,
            unix_ms: manifest.started_unix_ms,
            protocol: manifest.protocol.clone(),
            backend: word(&manifest.backend),
            duration: duration.unwrap_or_default(),
            ..self
        }
    }

    /// Adds the verdict on the run.
    #[must_use]
    pub fn judged(self, recorded: RecordedRun<'_>) -> Row {
        let names = DisplayNames::new(recorded.manifest);
        let timeline = Timeline::new(recorded.trace, recorded.manifest);
        let summary = Summary::of_timeline(recorded, &names, &timeline);
        // A run whose facts are missing would look undisturbed.
        let is_incomplete = timeline.is_cut_short || !timeline.incomplete.is_empty();
        let picture = if is_incomplete {
            String::new()
        } else {
            thumbnail::render(&Diagram::new(&timeline, &names)).into_string()
        };
        let rollbacks = summary.clusters.iter().map(|it| it.rollbacks.len() as u64).sum();
        let lost = summary.clusters.iter().map(|it| it.lost_work_seconds).sum();
        let mut result = match (rollbacks, lost > 0.0) {
            (0, false) => String::new(),
            (_, false) => count(rollbacks, "rollback"),
            _ => format!("{}, {} of work lost", count(rollbacks, "rollback"), span(lost)),
        };
        if is_incomplete && !result.is_empty() {
            result.insert_str(0, "at least ");
        }
        if let Some(reason) = summary.reasons.first() {
            result = if result.is_empty() { reason.clone() } else { format!("{reason} ({result})") };
        }
        let duration = span(summary.run.duration_seconds);
        Row { state: RowState::Judged(summary.verdict), result, duration, picture, ..self }
    }

    fn rendered(&self, now: u64) -> Markup {
        let name = self.state.name();
        let class = match self.state {
            RowState::Judged(it) => verdict(it),
            RowState::Running => "progressing",
            RowState::Unreadable => "fail",
            RowState::Unjudged | RowState::Page => "hint",
        };
        let address = match self.origin {
            Origin::Run => format!("run/{}/", self.number),
            Origin::Page => format!("page/{}/", self.number),
        };
        html! {
            tr id={ "row-" (self.number) } data-state=(name) data-protocol=(self.protocol) {
                td.picture { (PreEscaped(&self.picture)) }
                td data-name="verdict" { span class={ "chip " (class) } { (name) } }
                td data-name="directory" {
                    @if self.state == RowState::Unreadable { (self.name) } @else { a href=(address) { (self.name) } }
                }
                td data-name="protocol" { (self.protocol) }
                td data-name="backend" { (self.backend) }
                td.num data-name="duration" { (self.duration) }
                td data-name="result" { (shortened(&self.result)) }
                td.num data-name="age" { @if self.unix_ms > 0 { (age(now.saturating_sub(self.unix_ms))) } }
            }
        }
    }
}

/// Renders the page around its rows.
pub fn page(dir: &str, rows: &str) -> String {
    let states = ["running", "pass", "fail", "unknown", "not judged", "unreadable", "page"];
    let body = html! {
        main {
            header { div { h1 { (dir) } p.meta #number role="status" {} } }
            p #lost role="status" hidden {}
            div.bar role="group" aria-label="Filters" {
                label { "search " input #search type="search"; }
                label { "verdict " select #state { option value="" { "all" } @for it in states { option { (it) } } } }
                label { "protocol " select #protocol { option value="" { "all" } } }
            }
            div.table.list { table {
                thead { tr {
                    th { "run" } th { "verdict" } th { "directory" } th { "protocol" } th { "backend" } th.num { "duration" } th { "result" }
                    th.num { "age" }
                } }
                tbody #rows { (PreEscaped(rows)) }
            } }
            footer {
                "Records are judged as " code { "faultline check" } " does, the newest first, while this page is open. Nothing is \
                 written."
            }
        }
        script src=(LIST_SCRIPT.path()) {}
    };
    shell(&format!("Records in {dir}"), Assets::Linked, &[], body).into_string()
}

/// Renders the rows, which the page's script replaces later. `searched` is the number of directories that were searched
/// if there are more.
pub fn rows(rows: &[&Row], now_unix_ms: u64, searched: Option<usize>) -> String {
    let shown = rows.iter().take(MOST_ROWS);
    let omitted = rows.len().saturating_sub(MOST_ROWS);
    let markup = html! {
        @for row in shown { (row.rendered(now_unix_ms)) }
        @if omitted > 0 { tr #omitted { td colspan="8" { (omitted) " older entries are not shown." } } }
        @if let Some(searched) = searched {
            tr #partial { td colspan="8" { "Only the first " (searched) " directories were searched." } }
        }
    };
    markup.into_string()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}\u{2026}", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a time span in words.
fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => "now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} ago", count(seconds / 86_400, "day")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_records_are_text() {
        let hostile =
            Row { result: "<script>".to_owned(), ..Row::new("<img src=x onerror=y>/\"".to_owned(), 1) };
        let text = rows(&[&hostile], 61_000, None);
        assert!(!text.contains("<img") && !text.contains("<script"), "{text}");
        assert!(text.contains("1 min ago") && text.contains("run/0/"), "{text}");
        let unreadable = Row { state: RowState::Unreadable, ..hostile };
        assert!(!rows(&[&unreadable], 0, None).contains("href"));
        let undated = Row::new("a".to_owned(), 0);
        assert!(!rows(&[&undated], 61_000, None).contains("ago"), "the time is unknown");
    }

    #[test]
    fn long_lists_and_results_are_shortened() {
        let row = Row { result: "\u{fc}".repeat(300), ..Row::new("a".to_owned(), 1) };
        let text = rows(&vec![&row; MOST_ROWS + 3], 200_000_000, Some(9));
        assert!(text.contains("3 older entries") && text.contains("first 9 directories"));
        assert!(text.contains("\u{fc}\u{2026}") && text.contains("2 days ago"));
        assert_eq!(text.matches("row-0").count(), MOST_ROWS);
    }
}
