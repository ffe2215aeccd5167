//! Statistics of one or several runs as text, as one JSON object, and as CSV.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::iter;

use faultline_checker::Verdict;
use faultline_report::table::{align_right, lines};
use serde::Serialize;

use crate::measures::{Measure, Spread, measures, spreads};
use crate::statistics::Statistics;

/// Returns the worst verdict of all runs; `unknown` if there are none.
pub fn verdict(runs: &[Statistics]) -> Verdict {
    runs.iter().map(|it| it.verdict).max().unwrap_or(Verdict::Unknown)
}

/// Formats the statistics as text, with the spread of the values if there are several runs.
pub fn text(runs: &[Statistics]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let teller = StatisticsText { first, spreads: spreads(runs) };
    let parts = [
        teller.head(runs),
        teller.clusters(),
        teller.rollbacks(),
        teller.messages(),
        teller.collections(),
        teller.traffic(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|it| !it.is_empty()).collect();
    parts.join("\n")
}

/// Formats the statistics of one run, or those of several runs with the spread of every number, as one JSON object.
///
/// # Panics
///
/// Panics if a number cannot be written as JSON, which would be a bug.
pub fn json(runs: &[Statistics]) -> String {
    #[derive(Serialize)]
    struct One {
        #[serde(flatten)]
        measure: Measure,
        #[serde(flatten)]
        spread: Spread,
    }
    #[derive(Serialize)]
    struct Several<'a> {
        verdict: Verdict,
        spread: Vec<One>,
        runs: &'a [Statistics],
    }
    let text = match runs {
        [only] => serde_json::to_string_pretty(only),
        _ => {
            let spread = spreads(runs).into_iter().map(|(measure, spread)| One { measure, spread }).collect();
            serde_json::to_string_pretty(&Several { verdict: verdict(runs), spread, runs })
        }
    };
    text.expect("numbers and words have a JSON form") + "\n"
}

/// Formats the statistics as CSV: a line of column names, and then one line for each value of each run.
pub fn csv(runs: &[Statistics]) -> String {
    let head = ["seed", "verdict", "statistic", "of", "to", "number", "value"].map(str::to_owned);
    let row = |run: &Statistics, Measure { statistic, of, to, number }: Measure, value: f64| {
        let verdict = faultline_report::text::verdict(run.verdict);
        let number = number.map(|it| it.to_string()).unwrap_or_default();
        [run.seed.to_string(), verdict.to_string(), statistic.to_string(), of, to, number, value.to_string()]
    };
    let rows =
        runs.iter().flat_map(|run| measures(run).into_iter().map(move |(it, value)| row(run, it, value)));
    comma_separated(iter::once(head).chain(rows))
}

/// Formats rows of equal length as CSV, quoted according to RFC 4180 where necessary.
pub(crate) fn comma_separated<R: IntoIterator<Item = String>>(rows: impl IntoIterator<Item = R>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(row).expect("the rows have the same length, and memory accepts every write");
    }
    String::from_utf8(writer.into_inner().expect("memory accepts every write")).expect("the rows are text")
}

/// Formats the statistics of runs as text.
struct StatisticsText<'a> {
    /// The first run. Every run has the same clusters.
    first: &'a Statistics,
    spreads: BTreeMap<Measure, Spread>,
}

impl StatisticsText<'_> {
    fn cell(&self, measure: &Measure) -> String {
        self.spreads.get(measure).map_or_else(|| "-".to_owned(), Spread::text)
    }

    fn head(&self, runs: &[Statistics]) -> String {
        let instances: u64 = runs.iter().map(|it| it.instances).sum();
        let worst = faultline_report::text::verdict(verdict(runs));
        let (first, last) = (self.first.seed, runs.last().map_or(self.first.seed, |it| it.seed));
        let seeds =
            if runs.len() == 1 { format!("seed {first}") } else { format!("seeds {first} to {last}") };
        let duration = Spread::of(runs.iter().map(|it| it.duration_seconds)).text();
        let events = self.cell(&Measure::of("events", ""));
        let mut text = format!(
            "{} {seeds}: {duration} s of virtual time in {events} events; {instances} instances judged\n",
            worst.to_uppercase(),
        );
        let not_passed = runs.iter().filter(|it| it.verdict != Verdict::Pass);
        for run in not_passed.take(10) {
            for reason in &run.reasons {
                writeln!(text, "  seed {}: {reason}", run.seed).expect("a string accepts every write");
            }
        }
        text
    }

    fn clusters(&self) -> String {
        let titles = [
            "cluster",
            "unforced",
            "forced",
            "stored",
            "most stored",
            "most logged",
            "by one node",
            "longest freeze",
        ];
        let rows = self.first.clusters.iter().map(|cluster| {
            let of = |statistic| self.cell(&Measure::of(statistic, &cluster.name));
            let freeze = self.spreads.get(&Measure::of("longestFreezeSeconds", &cluster.name));
            vec![
                cluster.name.clone(),
                of("unforced"),
                of("forced"),
                of("stored"),
                of("mostStored"),
                of("mostLogged"),
                of("mostLoggedByANode"),
                freeze.map_or_else(String::new, |it| faultline_report::text::span(it.most)),
            ]
        });
        format!("Checkpoints (the initial one is stored, but not counted) and logs\n{}", table(&titles, rows))
    }

    fn rollbacks(&self) -> String {
        let of = |statistic, cluster: &str| self.spreads.get(&Measure::of(statistic, cluster));
        let names = || self.first.clusters.iter().map(|it| it.name.as_str());
        let some = |cluster| {
            ["failures", "rollbacks"].iter().any(|it| of(it, cluster).is_some_and(|it| it.most > 0.0))
        };
        if !names().any(some) {
            return String::new();
        }
        let titles = [
            "cluster",
            "failures",
            "rollbacks",
            "checkpoints undone by the first rollback",
            "lost work",
            "re-sent",
        ];
        let rows = names().map(|cluster| {
            let text = |statistic| of(statistic, cluster).map_or_else(|| "-".to_owned(), Spread::text);
            let depth = Measure { number: Some(1), ..Measure::of("rollbackDepth", cluster) };
            vec![
                cluster.to_owned(),
                text("failures"),
                text("rollbacks"),
                self.cell(&depth),
                format!("{} s", text("lostWorkSeconds")),
                text("resent"),
            ]
        });
        format!("Rollbacks\n{}", table(&titles, rows))
    }

    fn messages(&self) -> String {
        let names: Vec<&str> = self.first.clusters.iter().map(|it| it.name.as_str()).collect();
        let mut titles = vec!["from \\ to"];
        titles.extend(&names);
        let rows = names.iter().map(|&from| {
            let count = |to: &str| self.cell(&Measure { to: to.to_owned(), ..Measure::of("messages", from) });
            std::iter::once(from.to_owned()).chain(names.iter().map(|it| count(it))).collect()
        });
        format!("Application messages\n{}", table(&titles, rows))
    }

    fn collections(&self) -> String {
        let rounds: std::collections::BTreeSet<u32> = self
            .spreads
            .keys()
            .filter(|it| it.statistic == "storedBefore")
            .filter_map(|it| it.number)
            .collect();
        if rounds.is_empty() {
            return String::new();
        }
        let titles = ["collection", "cluster", "stored before", "after", "messages removed from logs"];
        let rows = rounds.into_iter().flat_map(|round| {
            self.first.clusters.iter().map(move |cluster| {
                let of = |statistic| {
                    self.cell(&Measure { number: Some(round), ..Measure::of(statistic, &cluster.name) })
                };
                vec![
                    round.to_string(),
                    cluster.name.clone(),
                    of("storedBefore"),
                    of("storedAfter"),
                    of("logCollected"),
                ]
            })
        });
        format!("Garbage collections\n{}", table(&titles, rows))
    }

    fn traffic(&self) -> String {
        let kinds: std::collections::BTreeSet<&str> = self
            .spreads
            .keys()
            .filter(|it| it.statistic == "messagesWithin")
            .map(|it| it.of.as_str())
            .collect();
        let titles = ["kind", "within clusters", "bytes", "between clusters", "bytes"];
        let rows = kinds.into_iter().map(|kind| {
            let of = |statistic| self.cell(&Measure::of(statistic, kind));
            vec![
                kind.to_owned(),
                of("messagesWithin"),
                of("bytesWithin"),
                of("messagesBetween"),
                of("bytesBetween"),
            ]
        });
        format!("Packets\n{}", table(&titles, rows))
    }
}

fn table(titles: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = faultline_report::table::table();
    table.set_header(titles.iter().copied()).add_rows(rows);
    align_right(&mut table, 1);
    lines(&table)
}
