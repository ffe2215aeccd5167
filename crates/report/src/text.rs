//! The summary as plain text for a terminal.

use comfy_table::{Cell, Color, Table};
use faultline_checker::{Property, Verdict};
use faultline_history::expected::Assessment;
use faultline_history::{Outage, TimePart};
pub use faultline_trace::duration::{instant, span};
use faultline_trace::shell_word;

use crate::explain::count;
use crate::histories::HistorySummary;
use crate::probes::{ProbeSummary, RecoverySummary};
use crate::summary::{
    ClusterSummary, FaultSummary, LifeSummary, PropertyResult, PropertySummary, Summary, measured_in_words,
    measured_without_output, met, restored,
};
use crate::table::{lines, split, table, wrapped};

/// The layout of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whether to use colours.
    pub colour: bool,
    /// Whether to print only the verdict and its reasons.
    pub quiet: bool,
    /// Whether to also print how processes spent their time, all faults and links, and all properties.
    pub verbose: bool,
}

/// Formats the summary of a run: the verdict with its reasons, the rollbacks, what was lost, and what else is unusual.
pub fn summary(summary: &Summary, layout: Layout) -> String {
    let writer = Writer { summary, layout };
    let mut parts = vec![writer.verdict()];
    if !layout.quiet {
        if !summary.is_system {
            parts.extend([writer.rollbacks(), writer.clusters()]);
        }
        if layout.verbose && !summary.is_system {
            parts.push(writer.time());
        }
        parts.extend([writer.drawings(), writer.histories()]);
        parts.extend([writer.probe_recoveries(), writer.probes(), writer.lives(), writer.expectations()]);
        parts.extend([writer.findings(), writer.properties(), writer.closing()]);
    }
    parts.retain(|it| !it.is_empty());
    parts.join("\n")
}

/// Formats a share as a percentage; `-` if the whole is zero. Only zero is shown as `0.0 %`.
pub fn percent(part: f64, whole: f64) -> String {
    match 100.0 * part / whole {
        _ if whole <= 0.0 => "-".to_owned(),
        share if share > 0.0 && share < 0.05 => "<0.1 %".to_owned(),
        share => format!("{share:.1} %"),
    }
}

/// Formats the shares of all parts of a whole as percentages, which add up to 100 %: those that lose the most when they are
/// rounded down are rounded up. Only zero is shown as `0.0 %`.
pub fn shares(parts: &[f64]) -> Vec<String> {
    let whole: f64 = parts.iter().sum();
    if whole <= 0.0 {
        return vec!["-".to_owned(); parts.len()];
    }
    let tenths: Vec<f64> = parts.iter().map(|it| 1000.0 * it / whole).collect();
    let mut rounded: Vec<u32> = tenths.iter().map(|it| it.floor() as u32).collect();
    let missing = 1000_u32.saturating_sub(rounded.iter().sum()) as usize;
    let mut order: Vec<usize> = (0..parts.len()).filter(|it| parts[*it] > 0.0).collect();
    order.sort_by(|a, b| tenths[*b].fract().total_cmp(&tenths[*a].fract()));
    order.into_iter().take(missing).for_each(|it| rounded[it] += 1);
    let text = |(part, tenths): (&f64, u32)| match tenths {
        0 if *part > 0.0 => "<0.1 %".to_owned(),
        tenths => format!("{}.{} %", tenths / 10, tenths % 10),
    };
    parts.iter().zip(rounded).map(text).collect()
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

/// The number of faults that were not due that are listed, unless all details are wanted.
const MOST_PENDING: usize = 5;
const GOOD: Color = Color::Green;
const OPEN: Color = Color::Yellow;
const BAD: Color = Color::Red;

impl Writer<'_> {
    fn verdict(&self) -> String {
        let run = &self.summary.run;
        let added = self.summary.added_in_words().map(|it| format!(", {it}")).unwrap_or_default();
        let mut table = self.bare();
        table.add_row([
            self.cell(verdict(self.summary.verdict).to_uppercase(), Some(colour_of(self.summary.verdict))),
            self.cell(format!("{}: {}{added}", run.name, self.summary.run_in_words()), None),
        ]);
        let reasons = self.summary.reasons.iter().map(|it| self.reason(it));
        let caveats = self.summary.caveats.iter().map(|it| wrapped("  note: ", it));
        std::iter::once(lines(&table)).chain(reasons).chain(caveats).collect()
    }

    /// Formats a reason. If it quotes several lines that a check wrote, these follow as lines.
    fn reason(&self, reason: &str) -> String {
        let quoted = |it: &Assessment| {
            let rest = reason.strip_prefix(it.said.as_deref()?)?.strip_prefix(" (")?.strip_suffix(')')?;
            let lines = it.output.iter().map(|it| format!("      {it}\n"));
            Some(wrapped("  - ", &format!("{rest}:")) + &lines.collect::<String>())
        };
        let mut with_output = self.summary.expectations.iter().filter(|it| !it.output.is_empty());
        with_output.find_map(quoted).unwrap_or_else(|| wrapped("  - ", reason))
    }

    fn rollbacks(&self) -> String {
        let titles =
            ["rollback of", "at", "cause", "to checkpoint", "undone", "lost work", "recovery", "re-sent"];
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
                restored(it),
                it.depth.to_string(),
                span(it.lost_work_seconds),
                span(it.recovery_seconds),
                it.resent.to_string(),
            ];
            table.add_row(row.into_iter().take(shown));
        }
        if all.is_empty() { String::new() } else { lines(&table) }
    }

    fn clusters(&self) -> String {
        let is_of_tasks = self.summary.is_of_tasks();
        let titles = ["cluster", "rollbacks", "lost work", "checkpoints"];
        let mut table =
            self.titled(&[&titles[..], &[if is_of_tasks { "tasks run" } else { "messages sent" }]].concat());
        for it in &self.summary.clusters {
            table.add_row([
                it.name.clone(),
                it.rollbacks.len().to_string(),
                match it.rollbacks.is_empty() && it.lost_work_seconds == 0.0 {
                    true => "none".to_owned(),
                    false => lost(it),
                },
                format!("{} unforced, {} forced", it.unforced, it.forced),
                match it.tasks_run {
                    Some(run) => run.to_string(),
                    None => format!("{} within, {} to others", it.sent_within, it.sent_between),
                },
            ]);
        }
        lines(&table)
    }

    /// Formats a table of how the processes of each cluster spent their time, and a line about the outages. Omits parts
    /// that took no time.
    fn time(&self) -> String {
        let clusters = &self.summary.clusters;
        let kinds: Vec<usize> = (0..TimePart::ALL.len())
            .filter(|&kind| clusters.iter().any(|it| it.time.parts()[kind].1 > 0.0))
            .collect();
        if kinds.is_empty() {
            return String::new();
        }
        let titles = kinds.iter().map(|&kind| TimePart::ALL[kind].name());
        let titles: Vec<&str> = std::iter::once("time of").chain(titles).collect();
        let row = |it: &ClusterSummary| {
            let shares = shares(&it.time.parts().map(|it| it.1));
            std::iter::once(it.name.clone()).chain(kinds.iter().map(|kind| shares[*kind].clone())).collect()
        };
        let rows: Vec<Vec<String>> = clusters.iter().map(row).collect();
        split(1, &titles, &rows) + &wrapped("", &self.outages())
    }

    /// Returns the share of useful time, and how long recoveries took on average.
    fn outages(&self) -> String {
        let ettr = self.summary.run.ettr.map(|it| format!("ETTR {}", percent(it, 1.0)));
        let over: Vec<&Outage> =
            self.summary.outages.iter().filter(|it| it.recovery_seconds.is_some()).collect();
        let mean =
            |of: fn(&Outage) -> f64| span(over.iter().map(|it| of(it)).sum::<f64>() / over.len() as f64);
        let phases = (!over.is_empty()).then(|| {
            format!(
                "recovery took {} on average: detection {}, replacement {}, restore {}, rejoining {}; then {} to \
                 catch up",
                mean(|it| it.recovery_seconds.unwrap_or_default()),
                mean(|it| it.detecting_seconds),
                mean(|it| it.replacing_seconds),
                mean(|it| it.restoring_seconds),
                mean(|it| it.rejoining_seconds),
                mean(|it| it.catch_up_seconds)
            )
        });
        ettr.into_iter().chain(phases).collect::<Vec<_>>().join("; ")
    }

    /// Draws the contradictions between the answers to clients and their model.
    fn drawings(&self) -> String {
        self.summary.histories.iter().map(HistorySummary::drawings).collect()
    }

    fn histories(&self) -> String {
        let rows = self.summary.histories.iter().flat_map(|it| it.rows(&self.summary.probes));
        self.rows(&HistorySummary::TITLES, rows)
    }

    fn probe_recoveries(&self) -> String {
        let rows = self.summary.probe_recoveries.iter().map(RecoverySummary::row);
        self.rows(&RecoverySummary::TITLES, rows)
    }

    fn probes(&self) -> String {
        let own = self.summary.probes.iter().filter(|it| !it.is_of_clients());
        let table = self.rows(&ProbeSummary::TITLES, own.map(ProbeSummary::row));
        let reasons = self.summary.probes.iter().flat_map(ProbeSummary::last_reasons);
        table + &reasons.map(|it| wrapped("", &it)).collect::<String>()
    }

    /// Formats a table of the lives that ended, except, unless all details are wanted, those that a fault ended.
    fn lives(&self) -> String {
        let told = self.summary.lives.iter().filter(|it| self.layout.verbose || !it.by_fault);
        self.rows(&LifeSummary::TITLES, told.map(LifeSummary::row))
    }

    /// Formats a table of these rows; empty if there are none.
    fn rows<const N: usize>(&self, titles: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
        let mut table = self.titled(titles);
        table.add_rows(rows);
        if table.row_count() == 0 { String::new() } else { lines(&table) }
    }

    fn expectations(&self) -> String {
        let mut table = self.titled(&["expected", "measured", "result"]);
        for it in &self.summary.expectations {
            let (result, verdict) = met(it);
            let measured = match it.output.is_empty() || it.measured.is_none() {
                true => measured_in_words(it),
                // The reason of the verdict contains the lines.
                false => measured_without_output(it),
            };
            table.add_row([
                self.cell(it.expected.clone(), None),
                self.cell(measured, None),
                self.cell(result.to_owned(), Some(colour_of(verdict))),
            ]);
        }
        let depends_on_times = self.summary.expectations.iter().any(|it| it.about.is_time());
        let pressure = self.summary.pressure.filter(|_| depends_on_times);
        let pressure = pressure.map(|it| wrapped("", &it.sentence(self.summary.run.duration_seconds)));
        if table.row_count() == 0 { String::new() } else { lines(&table) + &pressure.unwrap_or_default() }
    }

    /// Formats the result, the faults and links, and the notes. Lists only those faults and links that were not as
    /// expected, unless all details are requested.
    fn findings(&self) -> String {
        // The log of another system need not contain results or faults.
        let is_imported = self.summary.run.events.is_some();
        let has_results = !is_imported && !self.summary.is_system || self.summary.result.finished > 0;
        let mut text = if has_results { wrapped("", &self.result()) } else { String::new() };
        let lists_all = self.layout.verbose || self.summary.not_exercised().is_empty();
        let more = if lists_all { "" } else { " (`-v` lists them)" };
        text += &wrapped("", &format!("{}{more}.", self.summary.properties_in_words()));
        if !self.summary.not_judged.is_empty() {
            let names = self.summary.not_judged.join(", ");
            text += &wrapped("not judged: ", &format!("{names} (the events contain no evidence about them)"));
        }
        if is_imported {
            let doubtful = self.summary.properties.iter().filter(|it| it.is_doubtful);
            text.extend(doubtful.filter_map(|it| it.unknown.as_ref()).map(|it| wrapped("not counted: ", it)));
        }
        if self.summary.is_system {
            let what = "messages, checkpoints and states of these programs, which Faultline does not see";
            text += &wrapped("not judged: ", what);
        }
        if !is_imported || !self.summary.faults.is_empty() {
            text += &wrapped("", &self.summary.faults_in_words());
        }
        text += &self.faults();
        text += &self.links();
        text.extend(self.notes().map(|it| wrapped("note: ", it)));
        text
    }

    /// Returns the notes. Omits those that repeat what the other lines say about faults and links.
    fn notes(&self) -> impl Iterator<Item = &String> {
        let repeated = |it: &&PropertySummary| {
            matches!(it.property, Property::AtOnce | Property::LinksAsRequested)
                && it.verdict == Verdict::Pass
                && !self.layout.verbose
        };
        let repeated: Vec<&String> =
            self.summary.properties.iter().filter(repeated).flat_map(|it| &it.remarks).collect();
        self.summary.notes.iter().filter(move |it| !repeated.contains(it))
    }

    fn faults(&self) -> String {
        let mut table = self.titled(&["fault", "due", "action", "effect"]);
        let is_usual = |it: &&FaultSummary| it.is_effective() && !it.is_unnoticed;
        let told = self.summary.faults.iter().filter(|it| self.layout.verbose || !is_usual(it));
        let mut pending = 0;
        for it in told {
            pending += usize::from(it.state == "pending");
            if it.state == "pending" && pending > MOST_PENDING && !self.layout.verbose {
                continue;
            }
            let (effect, colour) = match (it.state, &it.reason, it.injected_seconds) {
                ("effective", _, Some(at)) => {
                    (format!("took effect at {}{}", instant(at), it.measured()), GOOD)
                }
                ("effective", _, None) => ("took effect".to_owned(), GOOD),
                ("pending", ..) => ("not due before the end".to_owned(), OPEN),
                ("unknown", ..) => ("not known: the record ends early".to_owned(), OPEN),
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
        if pending > MOST_PENDING && !self.layout.verbose {
            let more = format!("and {} more", pending - MOST_PENDING);
            let cells = ["", "", &more, "not due before the end"];
            table.add_row(cells.map(|it| self.cell(it.to_owned(), None)));
        }
        if table.row_count() == 0 { String::new() } else { lines(&table) }
    }

    fn links(&self) -> String {
        let mut table = self.titled(&["link", "requested", "before the run", "during the run", "result"]);
        for it in self.summary.links.iter().filter(|it| it.is_emulated()) {
            let (result, verdict) = it.result();
            if verdict == Verdict::Pass && !self.layout.verbose {
                continue;
            }
            let before = it.measured_latency_seconds.map_or_else(|| "not measured".to_owned(), span);
            let jitter = it.measured_jitter_seconds.map(|it| format!(" +-{}", span(it))).unwrap_or_default();
            let often = if it.rounds > 1 { format!(" ({} times)", it.rounds) } else { String::new() };
            table.add_row([
                self.cell(it.link.clone(), None),
                self.cell(it.asked(), None),
                self.cell(before + &jitter + &often, None),
                self.cell(it.observed().unwrap_or_default(), None),
                self.cell(result.to_owned(), Some(colour_of(verdict))),
            ]);
        }
        let told = self.summary.links_in_words().map(|it| wrapped("", &it)).unwrap_or_default();
        if table.row_count() == 0 { told } else { told + &lines(&table) }
    }

    /// Formats a table of the properties that do not hold or, if all details are requested, of all properties.
    fn properties(&self) -> String {
        let all = self.summary.listed();
        let mut table = self.titled(&["result", "instances", "property", "meaning"]);
        for it in all.filter(|it| self.layout.verbose || it.verdict != Verdict::Pass) {
            let (found, colour) = match it.found {
                PropertyResult::Holds => ("holds".to_owned(), GOOD),
                PropertyResult::NotExercised => ("not exercised".to_owned(), Color::DarkGrey),
                PropertyResult::Unknown => ("unknown".to_owned(), OPEN),
                PropertyResult::Violated => (count(it.violation_count, "violation"), BAD),
            };
            table.add_row([
                self.cell(found, Some(colour)),
                self.cell(it.instances.to_string(), None),
                self.cell(it.name(), None),
                self.cell(it.statement.to_owned(), None),
            ]);
        }
        if table.row_count() == 0 { String::new() } else { lines(&table) }
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
        if self.summary.run.bundle.is_empty() {
            return String::new();
        }
        let dir = shell_word(&self.summary.run.bundle);
        let mut table = self.bare();
        table.add_row([format!("faultline explain {dir}"), "explain what happened".to_owned()]);
        table.add_row([
            format!("faultline report {dir}"),
            "write a page with a space-time diagram".to_owned(),
        ]);
        table.add_row([format!("faultline check {dir}"), "judge the record again".to_owned()]);
        wrapped("", &format!("The run is recorded in {dir}; to examine it:")) + &lines(&table)
    }

    fn bare(&self) -> Table {
        let mut table = table();
        if self.layout.colour {
            table.enforce_styling();
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
        "exitsAgain" => "ended by a crash loop",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        assert_eq!(shares(&[1.0, 1.0, 1.0]), ["33.4 %", "33.3 %", "33.3 %"]);
        // Rounded one by one, these would add up to 100.1 %.
        assert_eq!(shares(&[45.08, 15.27, 31.56, 8.09]), ["45.1 %", "15.3 %", "31.5 %", "8.1 %"]);
        assert_eq!(shares(&[0.0, 1.0, 100_000.0]), ["0.0 %", "<0.1 %", "100.0 %"]);
        assert_eq!(shares(&[0.0, 0.0]), ["-", "-"]);
    }

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
