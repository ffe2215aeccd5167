//! The summary as plain text for a terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Color, Table};
use faultline_checker::Verdict;
pub use faultline_trace::duration::{instant, span};

use crate::explain::count;
use crate::spent::TimeByActivity;
use crate::summary::{ClusterSummary, PropertyResult, Summary, target};

/// The layout of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whether to use colours.
    pub colour: bool,
    /// Whether to print only the verdict and its reasons.
    pub quiet: bool,
    /// Whether to also print the properties that hold.
    pub verbose: bool,
}

/// Formats the summary of a run.
pub fn summary(summary: &Summary, layout: Layout) -> String {
    let writer = Writer { summary, layout };
    let mut parts = vec![writer.verdict()];
    if !layout.quiet {
        parts.extend([
            writer.clusters(),
            writer.time(),
            writer.rollbacks(),
            writer.faults(),
            writer.links(),
            writer.properties(),
        ]);
        parts.push(writer.closing());
    }
    parts.retain(|it| !it.is_empty());
    parts.join("\n\n") + "\n"
}

/// Formats a share as a percentage; `-` if the whole is zero. Only zero is shown as `0.0 %`.
pub fn percent(part: f64, whole: f64) -> String {
    match 100.0 * part / whole {
        _ if whole <= 0.0 => "-".to_owned(),
        share if share > 0.0 && share < 0.05 => "<0.1 %".to_owned(),
        share => format!("{share:.1} %"),
    }
}

/// Formats a verdict.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Unknown => "unknown",
        Verdict::Fail => "fail",
    }
}

struct Writer<'a> {
    summary: &'a Summary,
    layout: Layout,
}

/// The maximum number of characters in a line of names.
const WIDTH: usize = 100;
const GOOD: Color = Color::Green;
const OPEN: Color = Color::Yellow;
const BAD: Color = Color::Red;

impl Writer<'_> {
    fn verdict(&self) -> String {
        let run = &self.summary.run;
        let colour = colour_of(self.summary.verdict);
        let word = verdict(self.summary.verdict).to_uppercase();
        let mut table = self.bare();
        table.add_row([
            self.cell(word, Some(colour)),
            self.cell(
                format!(
                    "{}: {} on the {} backend, seed {}, {} after {}",
                    run.name,
                    protocol(self.summary),
                    backend(self.summary),
                    run.seed,
                    ended(run.outcome),
                    span(run.duration_seconds)
                ),
                None,
            ),
        ]);
        let mut text = lines(&table);
        for reason in &self.summary.reasons {
            text.push_str(&format!("\n  - {reason}"));
        }
        for note in self.summary.notes.iter().filter(|_| !self.layout.quiet) {
            text.push_str(&format!("\n  note: {note}"));
        }
        text
    }

    fn clusters(&self) -> String {
        let is_of_tasks = self.summary.is_of_tasks();
        let mut titles = vec!["cluster", "nodes", "checkpoints", "rollbacks", "lost work"];
        titles.extend(if is_of_tasks { &["tasks run"][..] } else { &["messages sent", "re-sent to it"] });
        let mut table = self.titled(&titles);
        for it in &self.summary.clusters {
            let mut row = vec![
                it.name.clone(),
                it.processes.to_string(),
                format!("{} unforced, {} forced", it.unforced, it.forced),
                it.rollbacks.len().to_string(),
                if it.rollbacks.is_empty() && it.lost_work_seconds == 0.0 {
                    "-".to_owned()
                } else {
                    lost(it)
                },
            ];
            match it.tasks_run {
                Some(run) => row.push(run.to_string()),
                None => row.extend([
                    format!("{} within, {} to others", it.sent_within, it.sent_between),
                    it.resent.to_string(),
                ]),
            }
            table.add_row(row);
        }
        lines(&table)
    }

    /// Formats a table of how the processes of each cluster spent their time. Omits activities that took no time.
    fn time(&self) -> String {
        let clusters = &self.summary.clusters;
        let kinds: Vec<usize> =
            (0..8).filter(|&kind| clusters.iter().any(|it| it.time.parts()[kind].1 > 0.0)).collect();
        if kinds.is_empty() {
            return String::new();
        }
        let mut table = self.bare();
        let titles = kinds.iter().map(|&kind| TimeByActivity::default().parts()[kind].0);
        table.set_header(std::iter::once("time of").chain(titles));
        for it in clusters {
            let parts = it.time.parts();
            let share = |kind: &usize| percent(parts[*kind].1, it.time.total_seconds());
            table.add_row(std::iter::once(it.name.clone()).chain(kinds.iter().map(share)));
        }
        lines(&table)
    }

    fn rollbacks(&self) -> String {
        let titles = ["rollback of", "at", "cause", "to", "undone", "lost work", "recovered in", "re-sent"];
        // Task-based programs have no messages to re-send.
        let shown = titles.len() - usize::from(self.summary.is_of_tasks());
        let mut table = self.titled(&titles[..shown]);
        let mut all: Vec<_> = self.summary.clusters.iter().flat_map(|it| &it.rollbacks).collect();
        all.sort_by(|a, b| a.order(b));
        for it in &all {
            let row = [
                it.of.clone(),
                instant(it.at_seconds),
                because(it),
                target(it),
                count(it.depth, "checkpoint"),
                span(it.lost_work_seconds),
                span(it.recovery_seconds),
                it.resent.to_string(),
            ];
            table.add_row(row.into_iter().take(shown));
        }
        if all.is_empty() { String::new() } else { lines(&table) }
    }

    fn faults(&self) -> String {
        if self.summary.faults.is_empty() {
            return "No faults were planned.".to_owned();
        }
        let mut table = self.titled(&["fault", "due", "action", "effect"]);
        for it in &self.summary.faults {
            let (effect, colour) = match (it.state, &it.reason, it.injected_seconds) {
                ("effective", _, Some(at)) => {
                    (format!("took effect at {}{}", instant(at), it.measured()), GOOD)
                }
                ("effective", _, None) => ("took effect".to_owned(), GOOD),
                ("pending", ..) => ("not due before the end".to_owned(), OPEN),
                (_, Some(reason), _) => (format!("none: {reason}"), OPEN),
                _ => ("none".to_owned(), OPEN),
            };
            table.add_row([
                self.cell(it.no.to_string(), None),
                self.cell(it.when.clone(), None),
                self.cell(it.what.clone(), None),
                self.cell(effect, Some(colour)),
            ]);
        }
        lines(&table)
    }

    fn links(&self) -> String {
        if self.summary.links.iter().all(|it| it.as_requested.is_none()) {
            return String::new();
        }
        let mut table =
            self.titled(&["link", "requested", "measured delay", "result", "measured jitter (not judged)"]);
        for it in &self.summary.links {
            let latency = it.measured_latency_seconds.map_or_else(|| "not measured".to_owned(), span);
            let jitter = it.measured_jitter_seconds.map_or_else(String::new, span);
            let (mut said, colour) = match it.as_requested {
                Some(true) => (format!("delay: as requested, within {}", span(it.tolerance_seconds)), GOOD),
                Some(false) => (format!("delay: off by more than {}", span(it.tolerance_seconds)), BAD),
                None => (String::new(), OPEN),
            };
            if it.rounds > 1 {
                said += &format!(" (measured {} times)", it.rounds);
            }
            if let (Some(percent @ 1..), Some(mean)) =
                (it.observed_percent_outside, it.observed_latency_seconds)
            {
                said += &format!("; out of tolerance for {percent} % of the run ({} on average)", span(mean));
            }
            table.add_row([
                self.cell(it.link.clone(), None),
                self.cell(it.asked(), None),
                self.cell(latency, None),
                self.cell(said, Some(colour)),
                self.cell(jitter, None),
            ]);
        }
        lines(&table)
    }

    fn properties(&self) -> String {
        let all = &self.summary.properties;
        let (hold, judged) = self.summary.holding();
        let instances: u64 = all.iter().map(|it| it.instances).sum();
        let mut text = format!(
            "{}\n{hold} of {judged} exercised properties hold ({}).",
            self.result(),
            count(instances, "instance"),
        );
        let idle = self.summary.not_exercised();
        if !idle.is_empty() {
            text.push('\n');
            text.push_str(&listed(&format!("Not exercised ({}):", idle.len()), &idle));
        }
        let told: Vec<_> =
            all.iter().filter(|it| self.layout.verbose || it.verdict != Verdict::Pass).collect();
        if told.is_empty() {
            return text;
        }
        let mut table = self.bare();
        for it in told {
            let (found, colour) = match it.found {
                PropertyResult::Holds => ("holds".to_owned(), GOOD),
                PropertyResult::NotExercised => ("not exercised".to_owned(), Color::DarkGrey),
                PropertyResult::Unknown => ("unknown".to_owned(), OPEN),
                PropertyResult::Violated => (count(it.violation_count, "violation"), BAD),
            };
            table.add_row([
                self.cell(found, Some(colour)),
                self.cell(it.name().to_owned(), None),
                self.cell(it.statement.to_owned(), None),
                self.cell(format!("({})", count(it.instances, "instance")), None),
            ]);
        }
        text.push_str("\n\n");
        text.push_str(&lines(&table));
        text
    }

    fn result(&self) -> String {
        let result = &self.summary.result;
        let all: usize = self.summary.clusters.iter().map(|it| it.processes).sum();
        let rank = if result.remaining == all { "rank" } else { "remaining rank" };
        let ranks = count(result.remaining as u64, rank);
        match (&result.compared_with, result.equal) {
            (Some(source), Some(true)) if result.remaining == 1 => {
                format!("The result of the only {rank} equals that of {source}.")
            }
            (Some(source), Some(true)) => {
                let every =
                    if result.remaining == 2 { format!("both {rank}s") } else { format!("all {ranks}") };
                format!("The results of {every} equal those of {source}.")
            }
            (Some(source), _) if result.finished >= result.remaining => {
                format!("The result differs from that of {source}.")
            }
            _ if result.is_incomplete => {
                format!("The record contains the results of {} of {ranks}.", result.finished)
            }
            (Some(_), _) => format!("{} of {ranks} finished.", result.finished),
            (None, _) => format!("{} of {ranks} finished; there is no reference result.", result.finished),
        }
    }

    fn closing(&self) -> String {
        let dir = &self.summary.run.bundle;
        let mut table = self.bare();
        table.add_row([format!("faultline explain {dir}"), "explain what happened".to_owned()]);
        table.add_row([
            format!("faultline report {dir}"),
            "write a page with a space-time diagram".to_owned(),
        ]);
        table.add_row([format!("faultline check {dir}"), "judge the record again".to_owned()]);
        format!("The run is recorded in {dir}; to examine it:\n{}", lines(&table))
    }

    fn bare(&self) -> Table {
        let mut table = Table::new();
        table.load_style(NOTHING);
        if self.layout.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table
    }

    fn titled(&self, titles: &[&str]) -> Table {
        let mut table = self.bare();
        table.set_header(titles.iter().map(|it| self.cell((*it).to_owned(), Some(Color::DarkGrey))));
        table
    }

    fn cell(&self, text: String, colour: Option<Color>) -> Cell {
        let cell = Cell::new(text);
        match colour {
            Some(colour) if self.layout.colour => cell.fg(colour),
            _ => cell,
        }
    }
}

/// Formats the lost work of a cluster, with its share of the time of the cluster's processes.
pub(crate) fn lost(it: &ClusterSummary) -> String {
    let (lost, whole) = (it.lost_work_seconds, it.time.total_seconds());
    if whole > 0.0 { format!("{} ({})", span(lost), percent(lost, whole)) } else { span(lost) }
}

/// Describes the cause of a rollback in a few words.
pub(crate) fn because(it: &crate::summary::RollbackSummary) -> String {
    match &it.because_of {
        Some(cluster) => format!("rollback of {cluster}"),
        None if it.faults.is_empty() && it.unplanned == 0 => "the previous failure".to_owned(),
        None => {
            let unplanned = match it.unplanned {
                0 => None,
                1 => Some("an unplanned failure".to_owned()),
                more => Some(format!("{more} unplanned failures")),
            };
            it.faults.iter().map(|no| format!("fault {no}")).chain(unplanned).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Describes how a run ended.
pub(crate) fn ended(outcome: &str) -> &'static str {
    match outcome {
        "completed" => "completed",
        "deadline" => "deadline exceeded",
        "interrupted" => "interrupted",
        "outOfMemory" => "out of memory",
        "unrecoverable" => "unrecoverable",
        "notRepeated" => "not repeated",
        "panicked" => "panicked",
        "stalled" => "virtual time stopped advancing",
        _ => "cut short",
    }
}

/// Returns the protocol's name as in the federation file.
pub(crate) fn protocol(summary: &Summary) -> String {
    summary.run.protocol.clone()
}

/// Returns the backend's name as written on the command line.
pub(crate) fn backend(summary: &Summary) -> String {
    word(&summary.run.backend)
}

pub(crate) fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
}

fn colour_of(verdict: Verdict) -> Color {
    match verdict {
        Verdict::Pass => GOOD,
        Verdict::Unknown => OPEN,
        Verdict::Fail => BAD,
    }
}

/// Formats names after a heading, in lines of at most [`WIDTH`] characters.
fn listed(beginning: &str, names: &[String]) -> String {
    let mut text = String::new();
    let mut line = beginning.to_owned();
    for (index, name) in names.iter().enumerate() {
        let end = if index + 1 == names.len() { '.' } else { ',' };
        if line.len() + name.len() + 2 > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = " ".to_owned();
        }
        line.push_str(&format!(" {name}{end}"));
    }
    text + &line
}

fn lines(table: &Table) -> String {
    table.lines().map(|it| it.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zero_is_shown_as_zero_percent() {
        let shown = |part| percent(part, 1000.0);
        assert_eq!(
            [0.0, 0.001, 0.49, 0.5, 123.4].map(shown),
            ["0.0 %", "<0.1 %", "<0.1 %", "0.1 %", "12.3 %"]
        );
        assert_eq!(percent(0.0, 0.0), "-");
    }
}
