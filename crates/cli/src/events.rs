//! `faultline check --events`: judges a run that Faultline did not carry out.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use faultline_console::place::{ACTION, create_record};
use faultline_console::recording::LocatedRecording;
use faultline_session::Events;
use faultline_trace::import::{ImportError, MOST_BYTES, Mapping, preview};
use faultline_trace::printable;
use miette::miette;

use crate::arguments::CheckArguments;
use crate::command_error::{CommandError, Exit};
use crate::output;
use crate::recording::strictness;

/// The file name that stands for standard input.
const STDIN: &str = "-";

/// The remedy if the events cannot be read.
const LINES: &str = "specify a file with one JSON object per line, or `-` for standard input";

/// The number of lines that `--dry-run` shows.
const PREVIEWED: usize = 20;

/// Imports the events in `file`, judges them, and records them if the user asked for it.
pub(crate) fn check(file: &Path, arguments: &CheckArguments) -> Result<Exit, CommandError> {
    output::check_junit(arguments.junit.as_deref())?;
    let mapping = arguments.mapping.as_deref().map(mapping).transpose()?;
    let bytes = read(file, MOST_BYTES, LINES, "import a part of the run")?;
    let label = label(file);
    if arguments.dry_run {
        let lines = preview(&bytes, mapping.as_ref(), PREVIEWED).into_iter();
        let text: String = lines.map(|(number, what)| format!("line {number}: {what}\n")).collect();
        output::print(&text)?;
        return Ok(Exit::Pass);
    }
    let events = Events { bytes: &bytes, file: &label, mapping: mapping.as_ref() };
    let run = events.import().map_err(|error| refused(&label, error))?;
    let dir = arguments.out.as_deref().unwrap_or(Path::new(""));
    if arguments.out.is_some() {
        let bundle = create_record(ACTION, dir)?;
        let written = events.write(&run, &bundle);
        written.map_err(|error| {
            CommandError::writing(ACTION, dir, &error, "specify a writable directory with `--out`")
        })?;
    }
    let recording = LocatedRecording::new(dir, run, strictness(arguments.strict));
    recording.print(arguments.output, arguments.junit.as_deref())?;
    Ok(recording.exit())
}

/// Returns the built-in mapping with this name, or reads one from a file.
fn mapping(name: &Path) -> Result<Mapping, CommandError> {
    let text = name.to_string_lossy();
    let label = printable(&text);
    let mapping = match Mapping::built_in(&text) {
        Some(mapping) => mapping,
        None => {
            let known: Vec<_> = Mapping::names().map(|it| format!("`{it}`")).collect();
            let help = format!("specify a file, or one of the built-in mappings: {}", known.join(", "));
            let mut bytes = Vec::new();
            let read = File::open(name).and_then(|it| it.take(MOST_BYTES).read_to_end(&mut bytes));
            read.map_err(|error| CommandError::path("read", name, error, &help))?;
            Mapping::parse(&label, &String::from_utf8_lossy(&bytes))
        }
    };
    mapping.map_err(|error| refused(&label, error))
}

/// Returns the name of a file as in an error.
pub(crate) fn label(file: &Path) -> String {
    let label = if file == Path::new(STDIN) { "standard input".into() } else { file.to_string_lossy() };
    printable(&label)
}

/// Reads a file of any kind, or standard input. If it cannot be read, the remedy is `help`; if it is longer than `most`
/// bytes, `too_long`.
pub(crate) fn read(file: &Path, most: u64, help: &str, too_long: &str) -> Result<Vec<u8>, CommandError> {
    let mut bytes = Vec::new();
    let read = match file == Path::new(STDIN) {
        true => io::stdin().lock().take(most + 1).read_to_end(&mut bytes),
        false => File::open(file).and_then(|it| it.take(most + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|error| CommandError::path("read", file, error, help))?;
    if bytes.len() as u64 > most {
        let why = format!("it is longer than {} MiB", most >> 20);
        return Err(CommandError::path("read", file, why, too_long));
    }
    Ok(bytes)
}

fn refused(label: &str, error: ImportError) -> CommandError {
    let ImportError { line, what, help } = error;
    let place = line.map(|it| format!(", line {it}")).unwrap_or_default();
    CommandError::input(miette!(help = help, "{label}{place}: {what}"))
}
