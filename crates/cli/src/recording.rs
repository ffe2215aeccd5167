//! Reads and judges recorded runs, for the commands that need only a record.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use faultline_checker::Strictness;
use faultline_clustering::CommunicationGraph;
use faultline_consistency::{foreign, model};
pub(crate) use faultline_console::recording::LocatedRecording;
use faultline_console::recording::{HELP, located, open};
use faultline_core::fault::Outcome;
use faultline_core::{Fact, Incarnation, ProcessId};
use faultline_history::{Context, History};
use faultline_report::diagram::svg;
use faultline_report::explain::{explain, time_by_part};
use faultline_report::{DisplayNames, Timeline, page, text};
use faultline_session::{Simulator, UnjudgedRecording};
use faultline_trace::{Bundle, Manifest, Trace, export};
use miette::miette;

use crate::arguments::{CheckArguments, ExplainArguments, ExportArguments, ExportFormat, ReportArguments};
use crate::command_error::{CommandError, Exit};
use crate::output;

/// Executes `faultline check`.
pub(crate) fn check(arguments: &CheckArguments) -> Result<Exit, CommandError> {
    if let Some(file) = &arguments.events {
        return crate::events::check(file, arguments);
    }
    if let Some(file) = &arguments.history {
        return crate::foreign_history::check(file, arguments);
    }
    output::check_junit(arguments.junit.as_deref())?;
    let dir = located(arguments.dir.as_deref())?;
    let mut run = open(&dir)?;
    if arguments.resimulate {
        permit_program(&run.manifest, arguments.run_programs)?;
        let repeated = run.compare_with_repetition(&mut Simulator::new(&mut ()));
        repeated.map_err(|error| CommandError::path("resimulate", &dir, error, "omit `--resimulate`"))?;
    }
    check_expected(&mut run, &dir, arguments.run_programs)?;
    let recording = LocatedRecording::new(&dir, run, strictness(arguments.strict));
    recording.print(arguments.output, arguments.junit.as_deref())?;
    Ok(recording.exit())
}

/// Compares the recorded expected results with those that the run's application computes, if it is a program and the user
/// permits that it is started.
fn check_expected(run: &mut UnjudgedRecording, dir: &Path, is_permitted: bool) -> Result<(), CommandError> {
    let federation = faultline_api::parse("federation.yaml", run.manifest.federation.as_bytes());
    let Ok(federation) = federation else { return Ok(()) };
    match federation.spec.application.program() {
        Some(_) if is_permitted => {
            let compared = run.compare_expected();
            compared.map_err(|error| CommandError::path("check", dir, error, "omit `--run-programs`"))
        }
        Some(program) if run.manifest.expected.is_some() => {
            output::note(format_args!(
                "the expected results are those of the record, because the application is a program, {}; \
                 `--run-programs` computes them again",
                program.name()
            ));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Fails if the protocol or the application of a recorded run is a program, unless the user permits that it is started: a
/// record may come from another user.
pub(crate) fn permit_program(manifest: &Manifest, is_permitted: bool) -> Result<(), CommandError> {
    let federation = faultline_api::parse("federation.yaml", manifest.federation.as_bytes());
    let Ok(federation) = federation else { return Ok(()) };
    let protocol = federation.spec.protocol.program().map(|it| ("protocol", it.name()));
    let application = || federation.spec.application.program().map(|it| ("application", it.name()));
    match protocol.or_else(application) {
        Some((kind, program)) if !is_permitted => Err(CommandError::input(miette!(
            help =
                "read the program in federation.yaml, and add `--run-programs` if it may run on this machine",
            "the {kind} of this run is a program, {program}, which would be started"
        ))),
        _ => Ok(()),
    }
}

/// Returns the strictness of a judgement with or without `--strict`.
pub(crate) fn strictness(strict: bool) -> Strictness {
    if strict { Strictness::Strict } else { Strictness::Lenient }
}

/// Executes `faultline explain`.
pub(crate) fn explain_run(arguments: &ExplainArguments) -> Result<Exit, CommandError> {
    let recording = LocatedRecording::read(&located(arguments.dir.as_deref())?)?;
    recording.warn();
    let names = DisplayNames::new(&recording.run.manifest);
    let history = Timeline::new(&recording.run.trace, &recording.run.manifest);
    let events = explain(&history, &recording.run.manifest, &names);
    // Faultline does not see the work of a system's programs.
    let is_system = recording.run.manifest.system.is_some();
    let times = if is_system { Vec::new() } else { time_by_part(&history, &names) };
    let sentences = events.into_iter().map(|it| it.text).chain(times);
    let text: String = sentences.map(|it| format!("{it}\n")).collect();
    output::print(&output::filled(text))?;
    Ok(Exit::Pass)
}

/// Executes `faultline report`.
pub(crate) fn report(arguments: &ReportArguments) -> Result<Exit, CommandError> {
    let dir = located(arguments.dir.as_deref())?;
    let recording = LocatedRecording::read(&dir)?;
    recording.warn();
    let (to, picture) = match &arguments.to {
        Some(to) => (to.clone(), to.with_extension("svg")),
        None => (dir.join("report.html"), dir.join("diagram.svg")),
    };
    if to == picture {
        return Err(CommandError::input(miette!(
            help = "specify another name, such as `report.html`",
            "`--to` names the page, but {} will contain the diagram",
            picture.display()
        )));
    }
    let (page, drawing) = page::render_with_picture(recording.recorded());
    check_replaceable(&dir, &to, page::is_page)?;
    check_replaceable(&dir, &picture, svg::is_diagram)?;
    write(&to, &page)?;
    write(&picture, &drawing)?;
    output::print(&format!("{}\n{}\n", to.display(), picture.display()))?;
    Ok(Exit::Pass)
}

/// Executes `faultline export`.
pub(crate) fn export(arguments: &ExportArguments) -> Result<Exit, CommandError> {
    let unjudged = open(&located(arguments.dir.as_deref())?)?;
    let flaws = unjudged.flaws();
    let UnjudgedRecording { manifest, trace, .. } = unjudged;
    for flaw in flaws {
        let named = |process: ProcessId| manifest.processes.get(process.index()).map(|it| it.name.clone());
        let flaw = flaw.describe(|process| named(process).unwrap_or_else(|| process.to_string()));
        output::note(format_args!("the record is incomplete: {flaw}"));
    }
    warn_if_incomplete(&manifest);
    if arguments.clients.is_some() && arguments.format != ExportFormat::Jepsen {
        return Err(CommandError::input(miette!(
            help = "add `--format jepsen`, or omit `--clients`",
            "`--clients` works only with `--format jepsen`"
        )));
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let printed = match arguments.format {
        ExportFormat::Jsonl => export::json_lines(&trace, &manifest, out),
        ExportFormat::Csv => export::csv(&trace, &manifest, out),
        ExportFormat::Graph => {
            warn_about_resent(&trace);
            export::graph(&trace, &application(&manifest), out)
        }
        ExportFormat::Events => export::events(&trace, &manifest, out),
        ExportFormat::Jepsen => {
            let text = history_of_clients(&trace, &manifest, arguments.clients.as_deref())?;
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        }
    };
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CommandError::machine(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(Exit::Pass),
    }
}

/// Returns the history of clients with this name, or the only one, in the form of Jepsen.
fn history_of_clients(
    trace: &Trace,
    manifest: &Manifest,
    name: Option<&str>,
) -> Result<String, CommandError> {
    let context = Context::from_manifest(manifest);
    let history = History::new(trace, &context);
    let all = history.clients();
    let names: Vec<String> = all.iter().map(|it| format!("`{}`", it.entry.name)).collect();
    let problem = |what: String, help: String| CommandError::input(miette!(help = help, "{what}"));
    let found = match (name, all) {
        (_, []) => {
            let help = "export a run of a system with `clients` in its file (docs/histories.md)";
            return Err(problem("the run has no clients".to_owned(), help.to_owned()));
        }
        (Some(name), _) => all.iter().find(|it| it.entry.name == name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    let Some(found) = found else {
        let what = match name {
            Some(name) => format!("the run has no clients `{name}`"),
            None => format!("the run has {} histories of clients", all.len()),
        };
        return Err(problem(what, format!("choose one with `--clients`: {}", names.join(", "))));
    };
    let model = model(&found.entry.workload.model).expect("a history has a model");
    let mut text = String::new();
    foreign::write(&found.operations, model, &mut text).expect("a text can be extended");
    Ok(text)
}

/// Returns the communication graphs of the run recorded in `dir`, one for each of `intervals` intervals of equal
/// length.
pub(crate) fn graphs(dir: &Path, intervals: usize) -> Result<Vec<CommunicationGraph>, CommandError> {
    let UnjudgedRecording { manifest, trace, .. } = open(dir)?;
    warn_if_incomplete(&manifest);
    warn_about_resent(&trace);
    let (processes, names): (Vec<_>, Vec<_>) = application(&manifest).into_iter().unzip();
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    if names.is_empty() {
        return Err(CommandError::path("use", dir, "it contains no application processes", HELP));
    }
    let place = |process| processes.binary_search(&process).ok();
    let graph = |channels: export::Channels| {
        let mut graph = CommunicationGraph::new(names.clone());
        for ((from, to), (bytes, messages)) in channels {
            if let (Some(from), Some(to)) = (place(from), place(to)) {
                let added = graph.try_add(from, to, bytes, messages);
                added.map_err(|error| CommandError::path("use", dir, error, HELP))?;
            }
        }
        Ok(graph)
    };
    export::channels(&trace, intervals).into_iter().map(graph).collect()
}

/// Warns if the run did not complete.
fn warn_if_incomplete(manifest: &Manifest) {
    let how = match &manifest.outcome {
        Some(Outcome::Completed) => return,
        Some(Outcome::Interrupted) => "was interrupted",
        Some(Outcome::Deadline) => "exceeded its deadline",
        Some(Outcome::OutOfMemory(_)) => "reached its memory limit",
        Some(_) => "ended before its application finished",
        None => "was cut short",
    };
    output::note(format_args!(
        "this run {how} after {}: later facts and messages are missing",
        text::span(manifest.duration.as_secs_f64())
    ));
}

/// Warns if the graph may count messages twice because a re-execution sent them again with another identity.
fn warn_about_resent(trace: &Trace) {
    let is_of_rerun = |fact: &Fact| matches!(fact, Fact::Sent { id, .. } if id.incarnation > Incarnation(0));
    if trace.streams.values().flatten().any(|(_, fact)| is_of_rerun(fact)) {
        output::note(format_args!(
            "note: this run contains rollbacks, after which processes sent messages again under new identities, and such \
             messages count twice in the graph; to avoid this, run the federation without its `faults`"
        ));
    }
}

/// Returns the processes of the application, with their names.
fn application(manifest: &Manifest) -> Vec<(ProcessId, &str)> {
    manifest.ranks().map(|(process, it)| (process, it.name.as_str())).collect()
}

/// The remedy if a file of a report cannot be written.
const ANOTHER: &str = "specify another file with `--to`";

/// Checks that a file of a report about the record in `dir` can be written to `path`: the file must not exist, or must be
/// of an earlier report (`is_ours`).
fn check_replaceable(dir: &Path, path: &Path, is_ours: fn(&str) -> bool) -> Result<(), CommandError> {
    let refused = |why: &str| Err(CommandError::path("write", path, why, ANOTHER));
    if fs::metadata(path).is_ok_and(|it| it.is_file()) {
        let content = fs::read(path).map_err(|error| CommandError::writing("read", path, &error, ANOTHER))?;
        if !is_ours(&String::from_utf8_lossy(&content)) {
            return refused("this file is not part of a report, and would be overwritten");
        }
    }
    if Bundle::open(dir).contains(path) {
        return refused("this place belongs to the record");
    }
    Ok(())
}

fn write(path: &Path, content: &str) -> Result<(), CommandError> {
    output::replace(path, content).map_err(|error| CommandError::writing("write", path, &error, ANOTHER))
}

#[cfg(test)]
mod tests {
    use faultline_clustering::read::{GraphFormat, read};
    use faultline_core::{FactNo, Life, MessageId, Time};
    use faultline_trace::{Record, Sink};

    use super::*;

    #[test]
    fn an_exported_graph_is_read_back_whatever_the_names() {
        let mut trace = Trace::default();
        let id = MessageId { from: ProcessId(0), to: ProcessId(2), incarnation: Incarnation(0), number: 0 };
        let fact = Fact::Sent { id, bytes: 7 };
        trace.record(Record { process: id.from, life: Life(1), number: FactNo(0), at: Time(1), fact });
        for names in [
            ["lyon-0", "quiet", "lyon-1"],
            ["rank 0", "#1", "say \"hi\", you"],
            ["a;b", "x=y", "line\nbreak"],
            ["a|b", "from", "to"],
            ["from", "bytes", "to"],
        ] {
            let processes: Vec<(ProcessId, &str)> = (0..).map(ProcessId).zip(names).collect();
            for trace in [&trace, &Trace::default()] {
                let mut text = Vec::new();
                export::graph(trace, &processes, &mut text).expect("a vector accepts every write");
                let graph = read(&text, GraphFormat::EdgeList).expect("it is a graph");
                assert_eq!(graph.names(), names);
                let sent = if trace.is_empty() { (0, 0) } else { (7, 1) };
                assert_eq!((graph.total(), graph.messages()), sent, "{names:?}");
            }
        }
    }
}
