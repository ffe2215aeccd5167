//! Prints the progress and the result of a search.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use faultline_checker::{Property, Verdict};
use faultline_core::FactKind;
use faultline_fuzz::{Coverage, CoverageName, MomentShares, Shares, State, Trial};
use faultline_report::explain;
use faultline_report::table::{align_right, lines, table, wrapped};

use super::Report;
use super::finding::{Finding, RenderedTrial, violations};
use crate::arguments::FuzzArguments;
use crate::progress::Progress;

/// Prints the progress of the search.
pub(super) struct SearchProgress {
    progress: Progress,
    title: String,
    /// The number of schedules before this search.
    before: u64,
}

impl SearchProgress {
    /// Shows a search that has already run `done` schedules.
    pub(super) fn new(arguments: &FuzzArguments, done: u64, title: &str) -> SearchProgress {
        let progress = match arguments.span {
            Some(span) => Progress::lasting(done, Duration::from_nanos(span.0.0)),
            None => Progress::counting(done, arguments.runs),
        };
        SearchProgress {
            progress: progress.unless_quiet(arguments.quiet),
            title: title.to_owned(),
            before: 0,
        }
    }

    /// Shows the search as a piece of another.
    pub(super) fn within(self, other: Option<(u64, u64)>) -> SearchProgress {
        let Some((before, total)) = other else { return self };
        SearchProgress { progress: self.progress.within(before, total), before, ..self }
    }

    pub(super) fn tick(&mut self, coverage: &Coverage) {
        self.progress.reach(&self.title, self.before + coverage.runs());
    }
}

/// Returns a function to call after each step of shrinking. It prints the size of the smallest scenario so far, and
/// ends the shrinking once the user has interrupted the program.
pub(super) fn shrinking(
    arguments: &FuzzArguments,
    title: &str,
    interrupted: &AtomicBool,
) -> impl FnMut(u64, &Trial) -> ControlFlow<()> {
    let mut progress = Progress::new().unless_quiet(arguments.quiet);
    let title = if title.is_empty() { String::new() } else { format!("{title}: ") };
    move |trials, best| {
        progress.show(|| {
            let spec = &best.scenario.federation.spec;
            let nodes: u32 = spec.clusters.iter().map(|it| it.nodes).sum();
            let (faults, facts) = (spec.faults.len() as u64, best.trace.len() as u64);
            format!(
                "{title}shrinking: {}, {} and {} after {}",
                explain::count(nodes.into(), "process"),
                explain::count(faults, "fault"),
                explain::count(facts, "fact"),
                explain::count(trials, "trial")
            )
        });
        match interrupted.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Formats the result of a search: the coverage if it is requested, then the violation, and the verdict at the end; or only
/// the verdict and its reasons.
pub(super) fn report(report: &Report<'_>, arguments: &FuzzArguments) -> String {
    let Shares { runs, repeated, .. } = &report.coverage;
    let resumed = match report.runs_before {
        0 => String::new(),
        before => format!(" ({} since the search was resumed)", runs - before),
    };
    let mut parts = Vec::new();
    if arguments.verbose {
        parts.push(coverage(&report.coverage));
    }
    parts.extend(report.finding.filter(|_| !arguments.quiet).map(found));
    let verdict = format!(" {}  ", faultline_report::text::verdict(report.verdict).to_uppercase());
    let searched = format!(
        "{} from seed {}{resumed} in {:.1} s ({:.0} per second, {} in parallel); {repeated} repeated with equal traces",
        explain::count(*runs, "run"),
        report.first_seed,
        report.seconds,
        report.runs_per_second,
        report.jobs
    );
    let violation = report.finding.filter(|_| arguments.quiet).map(|it| {
        let all = it.texts.join("; ");
        format!("seed {}, recorded in {}: {all}", it.seed, it.bundle.display())
    });
    let reason = violation.iter().chain(&report.reason).map(|it| wrapped("  - ", it));
    let warning = report.warning.iter().map(|it| wrapped("warning: ", it));
    let exercised = report.lists_exercised.then(|| wrapped("exercised: ", &exercised(&report.coverage)));
    let end = std::iter::once(wrapped(&verdict, &searched)).chain(reason).chain(exercised).chain(warning);
    parts.push(end.collect());
    parts.join("\n")
}

/// Lists the properties that the schedules exercised, with the numbers of schedules.
fn exercised(shares: &Shares) -> String {
    let all = shares.exercised.iter().map(|(property, runs)| format!("{} {runs}", property_name(*property)));
    match all.collect::<Vec<_>>() {
        all if all.is_empty() => "nothing".to_owned(),
        all => format!("{} (schedules in which each property was judged)", all.join(", ")),
    }
}

/// Returns the name of a property, as in docs/verdict.md.
pub(super) fn property_name(property: Property) -> String {
    match serde_json::to_value(property) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a name, not {other:?}"),
    }
}

fn coverage(shares: &Shares) -> String {
    let percent = |share: f64| format!("{share:.1} %");
    let moments = |it: MomentShares| format!("at {} of {} kinds of moments", it.struck, it.seen);
    let counts = |map: &BTreeMap<CoverageName, u64>| {
        map.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let verdicts = shares.verdicts.iter().map(|(verdict, by_outcome)| {
        let verdict = faultline_report::text::verdict(*verdict);
        let runs: u64 = by_outcome.values().sum();
        let share = percent(runs as f64 * 100.0 / shares.runs.max(1) as f64);
        [format!("verdict {verdict}"), format!("{runs}, {share} ({})", counts(by_outcome))]
    });
    let unjudged = shares
        .unjudged
        .iter()
        .map(|(property, runs)| [format!("not judged in {runs}"), property.statement().to_owned()]);
    let exercised = shares
        .exercised
        .iter()
        .map(|(property, runs)| [format!("exercised in {runs}"), property.statement().to_owned()]);
    let shown = [
        ["events per run (median)".to_owned(), shares.median_events.to_string()],
        ["cascading rollbacks".to_owned(), percent(shares.cascading)],
        ["failures during recovery".to_owned(), percent(shares.failed_in_recovery)],
        ["salted application".to_owned(), percent(shares.salted)],
        ["directed schedules".to_owned(), shares.directed.to_string()],
        ["failures before an announcement".to_owned(), moments(shares.writes)],
        ["failures at a step of a recovery".to_owned(), moments(shares.recoveries)],
        ["protocols".to_owned(), counts(&shares.protocols)],
    ];
    let mut searched = table();
    searched.add_rows(shown.into_iter().chain(verdicts).chain(unjudged).chain(exercised));
    let mut text = lines(&searched);
    let states = State::ALL.map(|it| match it {
        State::Starting => "starting",
        State::Working => "working",
        State::Checkpointing => "checkpointing",
        State::Down => "failed",
        State::Recovering => "recovering",
    });
    let mut hits = table();
    hits.set_header(["faults by cluster state"].into_iter().chain(states));
    for (fault, by_state) in &shares.hits {
        let counts = State::ALL.iter().map(|it| by_state.get(it).copied().unwrap_or(0).to_string());
        hits.add_row(std::iter::once(fault.to_string()).chain(counts));
    }
    align_right(&mut hits, 1);
    write!(text, "\n{}\n", lines(&hits)).expect("writing to a string never fails");
    let mut stated = table();
    stated.set_header(["fact", "runs", "total"]);
    for (kind, (runs, times)) in &shares.stated {
        stated.add_row([name(*kind), runs.to_string(), times.to_string()]);
    }
    align_right(&mut stated, 1);
    text + &lines(&stated)
}

/// Returns the name of a kind of fact, as in records and in the triggers of faults.
fn name(kind: FactKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a name, not {other:?}"),
    }
}

fn found(finding: &Finding) -> String {
    let statement = finding.property.map_or("runs with the same seed are identical", |it| it.statement());
    let mut text = format!("Violated with seed {}: {statement}.\n", finding.seed);
    for it in &finding.texts {
        text.push_str(&format!("  - {it}\n"));
    }
    let so_far = if finding.is_interrupted { " before the interruption" } else { "" };
    text.push_str(&format!(
        "\nSmallest run found{so_far} that violates it ({} facts):\n\n{}",
        finding.facts, finding.transcript
    ));
    text.push_str(&format!(
        "\nrecord     {}\npicture    {}\nrun again  {}\n",
        finding.bundle.display(),
        finding.picture.display(),
        finding.reproduce
    ));
    text
}

/// Formats one trial: its transcript and its violations.
pub(super) fn trial(trial: &Trial) -> String {
    let verdict = faultline_report::text::verdict(trial.judgement.verdict).to_uppercase();
    let mut text = RenderedTrial::new(trial).text();
    text.push_str(&format!("\n {verdict}  seed {}\n", trial.scenario.seed));
    if trial.judgement.verdict == Verdict::Unknown {
        text.extend(trial.judgement.reasons.iter().map(|it| format!("  - {it}\n")));
    }
    for finding in trial.judgement.findings.iter().filter(|it| it.violation_count() > 0) {
        text.push_str(&format!(" violated: {}\n", finding.property.statement()));
        for violation in violations(trial, finding.property) {
            text.push_str(&format!("  - {violation}\n"));
        }
    }
    text
}
