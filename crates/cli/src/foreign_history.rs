//! `faultline check --history`: judges what clients were told, as another program recorded it.

use std::fmt::Write;
use std::path::Path;

use faultline_consistency::foreign::{self, ForeignError, MOST_BYTES};
use faultline_consistency::{Anomaly, Case, History, Judgement, Limits, Model, Verdict, draw, judge, model};
use faultline_console::arguments::Format;
use faultline_report::table::wrapped;
use faultline_trace::printable;
use miette::miette;
use serde::Serialize;

use crate::arguments::CheckArguments;
use crate::command_error::{CommandError, Exit};
use crate::{events, output};

/// The most cases that are drawn.
const DRAWN: usize = 3;

/// Reads the history in `file`, and judges it.
pub(crate) fn check(file: &Path, arguments: &CheckArguments) -> Result<Exit, CommandError> {
    let model = arguments.model.as_deref().and_then(model);
    let Some(model) = model else { return Err(CommandError::input(miette!("`--model` is missing"))) };
    let level = level(model, arguments.level.as_deref())?;
    let help = "specify a history of Jepsen or JSON lines, or `-` for standard input";
    let bytes = events::read(file, MOST_BYTES, help, "judge a part of the history")?;
    let label = events::label(file);
    let history = foreign::read(&bytes, model).map_err(|error| refused(&label, error))?;
    let judgement = judge(&history, model, level, Limits::default());
    match arguments.output.format {
        Format::Text => output::print(&text(&label, &history, &judgement, arguments.output.quiet))?,
        Format::Json => output::print(&output::json(&summary(&label, &history, &judgement)))?,
    }
    Ok(match judgement.verdict {
        Verdict::Pass => Exit::Pass,
        Verdict::Fail => Exit::Fail,
        Verdict::Unknown => Exit::Unknown,
    })
}

/// Returns the index of a level, or that of the strongest one.
fn level(model: &Model, name: Option<&str>) -> Result<usize, CommandError> {
    let Some(name) = name else { return Ok(0) };
    model.levels.iter().position(|it| *it == name).ok_or_else(|| {
        let levels: Vec<String> = model.levels.iter().map(|it| format!("`{it}`")).collect();
        let help = format!("use one of {}", levels.join(", "));
        CommandError::input(miette!(
            help = help,
            "the model `{}` has no level `{}`",
            model.name,
            printable(name)
        ))
    })
}

fn refused(label: &str, error: ForeignError) -> CommandError {
    let ForeignError { line, what, help } = error;
    let place = line.map(|it| format!(", line {it}")).unwrap_or_default();
    CommandError::input(miette!(help = printable(&help), "{label}{place}: {}", printable(&what)))
}

/// Returns the judgement as text, with drawings unless the output is quiet.
fn text(label: &str, history: &History, judgement: &Judgement, is_quiet: bool) -> String {
    let verdict = judgement.verdict.name().to_uppercase();
    let (count, clients) = (history.operations.len(), history.clients.len());
    let mut text = format!(
        " {verdict}  {label}: {count} operations of {clients} clients, {} {}\n",
        judgement.model, judgement.level
    );
    let mut drawn = 0;
    for it in &judgement.anomalies {
        for case in it.cases.iter().take(if is_quiet { 1 } else { DRAWN }) {
            let is_first = std::ptr::eq(case, &it.cases[0]);
            if !is_first && drawn == DRAWN {
                break;
            }
            let more = if is_first { more(it) } else { String::new() };
            text += &wrapped("  - ", &format!("{}: {}{more}", it.kind, printable(&case.sentence)));
            if !is_quiet && drawn < DRAWN {
                drawn += 1;
                for line in draw(history, case).lines() {
                    let _ = writeln!(text, "{}", printable(line));
                }
            }
        }
        if let Some(help) = it.help {
            text += &wrapped("    help: ", help);
        }
    }
    for it in &judgement.doubts {
        text += &wrapped("  - ", &printable(&it.what));
        text += &wrapped("    help: ", &printable(&it.help));
    }
    if let Some(strongest) = judgement.strongest.filter(|it| *it != judgement.level) {
        let _ = writeln!(text, "the strongest level that the history does not contradict: {strongest}");
    }
    text
}

/// Returns how many cases there are, if there are several.
fn more(anomaly: &Anomaly) -> String {
    if anomaly.count > 1 { format!(" (one of {})", anomaly.count) } else { String::new() }
}

/// The judgement as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    file: &'a str,
    model: &'a str,
    level: &'a str,
    result: &'a str,
    /// The strongest level that the history does not contradict.
    strongest: Option<&'a str>,
    steps: u64,
    clients: usize,
    kinds: Vec<Kind<'a>>,
    anomalies: Vec<Kinds<'a>>,
    unknown: Vec<Doubt<'a>>,
}

#[derive(Serialize)]
struct Kind<'a> {
    kind: &'a str,
    ok: usize,
    failed: usize,
    unknown: usize,
}

#[derive(Serialize)]
struct Kinds<'a> {
    kind: &'a str,
    count: usize,
    sentence: &'a str,
    cases: Vec<Vec<Line>>,
}

/// An operation of a case.
#[derive(Serialize)]
struct Line {
    client: String,
    line: u32,
    call: String,
    /// The place in an order that explains all operations but the impossible one.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<usize>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    impossible: bool,
}

#[derive(Serialize)]
struct Doubt<'a> {
    what: &'a str,
    help: &'a str,
}

fn summary<'a>(label: &'a str, history: &History, judgement: &'a Judgement) -> Summary<'a> {
    let lines = |case: &Case| {
        let each = case.operations.iter().enumerate().map(|(at, it)| Line {
            client: history.clients.get(it.client as usize).to_owned(),
            line: it.line,
            call: history.describe(it),
            order: case.order[at],
            impossible: case.impossible == Some(at),
        });
        each.collect()
    };
    let kinds = judgement.kinds.iter();
    let anomalies = judgement.anomalies.iter();
    Summary {
        file: label,
        model: judgement.model,
        level: judgement.level,
        result: judgement.verdict.name(),
        strongest: judgement.strongest,
        steps: judgement.steps,
        clients: history.clients.len(),
        kinds: kinds
            .map(|it| Kind { kind: it.name, ok: it.ok, failed: it.failed, unknown: it.unknown })
            .collect(),
        anomalies: anomalies
            .map(|it| Kinds {
                kind: it.kind,
                count: it.count,
                sentence: it.cases.first().map_or("", |it| &it.sentence),
                cases: it.cases.iter().map(lines).collect(),
            })
            .collect(),
        unknown: judgement.doubts.iter().map(|it| Doubt { what: &it.what, help: &it.help }).collect(),
    }
}
