//! Recorded runs: reading and judging them, and the commands that only need a record.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use faultline_checker::Property;
use faultline_clustering::Graph;
use faultline_core::{Life, ProcessId};
use faultline_report::diagram::{Diagram, Limits, svg};
use faultline_report::explain::explain;
use faultline_report::text::{self, Layout};
use faultline_report::{Cast, History, Recorded, Summary, page};
use faultline_session::Unjudged;
use faultline_trace::{Bundle, BundleError, Manifest, Trace, export};

use crate::arguments::{
    CheckArguments, ExplainArguments, ExportArguments, ExportFormat, Format, OutputArguments, ReportArguments,
};
use crate::output;
use crate::trouble::{Exit, Trouble};

const HELP: &str = "give the directory that `faultline run` named at its end";

/// A recorded run with its judgement, and where the record is.
pub(crate) struct Recording {
    dir: String,
    pub(crate) run: faultline_session::Recording,
}

impl Recording {
    /// Judges a run.
    pub(crate) fn new(dir: &Path, run: Unjudged) -> Recording {
        Recording { dir: dir.display().to_string(), run: run.judge() }
    }

    /// Reads and judges the record in `dir`.
    pub(crate) fn read(dir: &Path) -> Result<Recording, Trouble> {
        if !dir.is_dir() {
            let why =
                if dir.exists() { "it is not the directory of a run" } else { "there is no such directory" };
            return Err(Trouble::path("read", dir, why, HELP));
        }
        Ok(Recording::new(dir, open(dir)?))
    }

    /// What everything that is said and drawn of it is made from.
    pub(crate) fn recorded(&self) -> Recorded<'_> {
        Recorded {
            bundle: &self.dir,
            manifest: &self.run.manifest,
            trace: &self.run.trace,
            judgement: &self.run.judgement,
        }
    }

    /// Says what is wrong with it, where a command does not print its verdict.
    fn warn(&self) {
        if let Some(reason) = &self.run.judgement.of(Property::RecordComplete).unknown {
            anstream::eprintln!("the record is not complete: {reason}");
        }
    }

    /// How a command about it ends.
    pub(crate) fn exit(&self) -> Exit {
        self.run.judgement.verdict.into()
    }

    /// Prints its summary.
    pub(crate) fn print(&self, output: OutputArguments) -> Result<(), Trouble> {
        let summary = Summary::new(self.recorded());
        output::print(&match output.format {
            Format::Json => output::json(&summary),
            Format::Text => text::summary(
                &summary,
                Layout { colour: output::colours(), quiet: output.quiet, verbose: output.verbose > 0 },
            ),
        })
    }
}

/// `faultline check`
pub(crate) fn check(arguments: &CheckArguments) -> Result<Exit, Trouble> {
    let recording = Recording::read(&arguments.dir)?;
    recording.print(arguments.output)?;
    Ok(recording.exit())
}

/// `faultline explain`
pub(crate) fn tell(arguments: &ExplainArguments) -> Result<Exit, Trouble> {
    let recording = Recording::read(&arguments.dir)?;
    recording.warn();
    let cast = Cast::new(&recording.run.manifest);
    let history = History::new(&recording.run.trace, &cast);
    let chapters = explain(&history, &recording.run.manifest, &cast);
    let text: String = chapters.iter().map(|it| format!("{}\n", it.text)).collect();
    output::print(&output::filled(&text))?;
    Ok(Exit::Pass)
}

/// `faultline report`
pub(crate) fn report(arguments: &ReportArguments) -> Result<Exit, Trouble> {
    let recording = Recording::read(&arguments.dir)?;
    recording.warn();
    let to = arguments.to.clone().unwrap_or_else(|| arguments.dir.join("report.html"));
    let picture = to.with_file_name("diagram.svg");
    let cast = Cast::new(&recording.run.manifest);
    let history = History::new(&recording.run.trace, &cast);
    let diagram = Diagram::new(&history, &cast, Limits::default());
    write(&to, &page::render(recording.recorded()))?;
    write(&picture, &svg::render(&diagram, svg::Options::default()))?;
    output::print(&format!("{}\n{}\n", to.display(), picture.display()))?;
    Ok(Exit::Pass)
}

/// `faultline export`
pub(crate) fn export(arguments: &ExportArguments) -> Result<Exit, Trouble> {
    let Unjudged { manifest, trace } = open(&arguments.dir)?;
    for flaw in &trace.flaws {
        let named = |process: ProcessId| manifest.processes.get(process.index()).map(|it| it.name.clone());
        let flaw = flaw.describe(|process| named(process).unwrap_or_else(|| process.to_string()));
        anstream::eprintln!("the record is not complete: {flaw}");
    }
    let out = io::BufWriter::new(io::stdout().lock());
    let printed = match arguments.format {
        ExportFormat::Jsonl => export::json_lines(&trace, &manifest, out),
        ExportFormat::Csv => export::csv(&trace, &manifest, out),
        ExportFormat::Graph => {
            say_if_some_failed(&trace);
            export::graph(&trace, &application(&manifest), out)
        }
    };
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Trouble::machine(format!("cannot write to the standard output: {error}")))
        }
        _ => Ok(Exit::Pass),
    }
}

/// Who sent how much to whom in the run recorded in `dir`, in so many intervals of the same length.
pub(crate) fn graphs(dir: &Path, intervals: usize) -> Result<Vec<Graph>, Trouble> {
    let Unjudged { manifest, trace } = open(dir)?;
    say_if_some_failed(&trace);
    let (processes, names): (Vec<_>, Vec<_>) = application(&manifest).into_iter().unzip();
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    if names.is_empty() {
        return Err(Trouble::path("use", dir, "it names no process of an application", HELP));
    }
    let place = |process| processes.binary_search(&process).ok();
    let graph = |channels: export::Channels| {
        let mut graph = Graph::new(names.clone());
        for ((from, to), (bytes, messages)) in channels {
            if let (Some(from), Some(to)) = (place(from), place(to)) {
                graph.add(from, to, bytes, messages);
            }
        }
        graph
    };
    Ok(export::channels(&trace, intervals).into_iter().map(graph).collect())
}

/// That a graph counts more than the application has to say.
fn say_if_some_failed(trace: &Trace) {
    if trace.streams.keys().any(|(_, life)| *life > Life(1)) {
        anstream::eprintln!(
            "processes failed in this run: what was sent again counts twice in the graph. Record a run without faults"
        );
    }
}

/// What is recorded in `dir`.
fn open(dir: &Path) -> Result<Unjudged, Trouble> {
    let wrong = |error: BundleError| {
        let help = match error {
            BundleError::Format { .. } => "read it with the version of the program that recorded it",
            _ => HELP,
        };
        Trouble::path("use", dir, error, help)
    };
    Unjudged::read(&Bundle::open(dir)).map_err(wrong)
}

/// The processes of the application, with their names.
fn application(manifest: &Manifest) -> Vec<(ProcessId, &str)> {
    manifest.ranks().map(|(process, it)| (process, it.name.as_str())).collect()
}

fn write(path: &PathBuf, content: &str) -> Result<(), Trouble> {
    fs::write(path, content)
        .map_err(|error| Trouble::path("write", path, error, "name another file with `--to`"))
}
