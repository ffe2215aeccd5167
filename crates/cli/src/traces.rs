//! `faultline traces`: statistics of a failure trace.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use faultline_experiments::traces::render;
use faultline_failures::{Columns, FailureTrace, Options, Statistics, read, text};
use faultline_report::table::filled;
use miette::miette;

use crate::arguments::{Format, TracesArguments};
use crate::command_error::{CommandError, Exit};
use crate::output;
use crate::progress::Progress;

/// The size of the buffer for reading, in bytes.
const BUFFER: usize = 1 << 16;

/// Executes `faultline traces`.
pub(crate) fn traces(arguments: &TracesArguments) -> Result<Exit, CommandError> {
    let trace = open(&arguments.file, &options(arguments)?)?;
    let statistics = Statistics::of(&trace);
    let name = label(&arguments.file);
    let json = output::json(&statistics);
    if let Some(out) = &arguments.out {
        output::directory(out)?;
        output::write(out, "index.html", &render(&name, &trace, &statistics))?;
        output::write(out, "traces.json", &json)?;
        output::write(out, "trace.csv", &trace.to_csv())?;
    }
    output::print(&match (arguments.format, &arguments.out) {
        (Format::Json, _) => json,
        (Format::Text, None) => filled(&text::text(&name, &statistics)),
        (Format::Text, Some(out)) => {
            format!("{}\n{}\n", filled(&text::text(&name, &statistics)), out.join("index.html").display())
        }
    })?;
    Ok(Exit::Pass)
}

fn options(arguments: &TracesArguments) -> Result<Options, CommandError> {
    let mut columns = Columns::default();
    for (name, column) in &arguments.columns {
        let field = match name.as_str() {
            "start" => &mut columns.start,
            "end" => &mut columns.end,
            "node" => &mut columns.node,
            "cause" => &mut columns.cause,
            _ => {
                let help = "rename `start`, `end`, `node` or `cause`, for example `start=event_start_time`";
                return Err(CommandError::input(miette!(
                    help = help,
                    "`--columns` cannot rename {}",
                    faultline_failures::quoted(name)
                )));
            }
        };
        field.clone_from(column);
    }
    Ok(Options {
        format: arguments.as_format,
        system: arguments.system.clone(),
        causes: arguments.causes.as_ref().map_or_else(Vec::new, |it| it.0.clone()),
        nodes: arguments.nodes,
        begin: arguments.begin,
        end: arguments.end,
        merge: arguments.merge.map(|it| it.0),
        columns,
        conditions: arguments.conditions.clone(),
    })
}

/// Returns the name of a file in texts about it.
fn label(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Reads a failure trace from a file, or from standard input.
fn open(path: &Path, options: &Options) -> Result<FailureTrace, CommandError> {
    let is_input = path == Path::new("-");
    let (reader, total): (Box<dyn Read>, _) = if is_input {
        (Box::new(io::stdin().lock()), None)
    } else {
        let help = "specify a file with recorded failures; docs/failures.md lists the formats";
        let file = File::open(path).map_err(|error| CommandError::path("read", path, error, help))?;
        let total = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|it| it.len());
        (Box::new(file), total)
    };
    let counted = Counted { reader, done: 0, total, progress: Progress::new() };
    read(BufReader::with_capacity(BUFFER, counted), options).map_err(|error| {
        let place = if is_input { label(path) } else { path.display().to_string() };
        CommandError::input(miette!(help = error.help.clone(), "{place}: {error}"))
    })
}

/// Shows how much of a file has been read.
struct Counted<R> {
    reader: R,
    done: u64,
    total: Option<u64>,
    progress: Progress,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.done += read as u64;
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let (done, total) = (self.done, self.total);
        self.progress.show(|| match total {
            Some(total) => format!("{:.0} of {:.0} MB read", megabytes(done), megabytes(total)),
            None => format!("{:.0} MB read", megabytes(done)),
        });
        Ok(read)
    }
}
