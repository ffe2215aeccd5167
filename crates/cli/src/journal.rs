//! A journal: a file of results that grows during long-running work, so that the work can be interrupted and resumed.
//! The first line identifies the work; each further line is one result. All lines are JSON objects.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use faultline_report::explain::count;
use miette::miette;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command_error::CommandError;
use crate::output::{note, read_file, replace};

/// The name of the journal in the directory of `--out`.
pub(crate) const RUNS: &str = "runs.jsonl";

/// The first line of a journal, which identifies the work. Results of other work cannot be added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head<T> {
    /// The version of the program. Another version may compute different results.
    version: String,
    /// The work that produced the results.
    of: T,
}

impl<T> Head<T> {
    /// Creates the first line, with the version of this program.
    pub(crate) fn of(of: T) -> Head<T> {
        Head { version: env!("CARGO_PKG_VERSION").to_owned(), of }
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct ResultJournal {
    path: PathBuf,
    file: File,
    /// The first error while writing results.
    broken: Option<io::Error>,
}

impl ResultJournal {
    /// Creates a journal or, with `resume`, opens the existing one, if any, and returns its results. `work` is the name
    /// of the work in errors: `sweep`, for example.
    ///
    /// # Errors
    ///
    /// Returns an error if the journal has results and `resume` is false, if the results belong to other
    /// work, or if the file cannot be read or written.
    pub(crate) fn open<T, E>(
        path: &Path,
        work: &str,
        head: &Head<T>,
        resume: bool,
    ) -> Result<(ResultJournal, Vec<E>), CommandError>
    where
        T: Serialize + DeserializeOwned + PartialEq,
        E: DeserializeOwned,
    {
        if resume { resumed(path, work, head) } else { Ok((begun(path, work, head)?, Vec::new())) }
    }

    pub(crate) fn add(&mut self, result: &impl Serialize) {
        let line = serde_json::to_string(result).expect("a result can be written as JSON") + "\n";
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            self.broken.get_or_insert(error);
        }
    }

    /// Ends the journal. If the work `is_complete`, removes the file, so that the work can be repeated.
    ///
    /// # Errors
    ///
    /// Returns an error if a result could not be written, or if the file cannot be removed.
    pub(crate) fn finish(self, is_complete: bool) -> Result<(), CommandError> {
        let ResultJournal { path, broken, .. } = self;
        if let Some(error) = broken {
            return Err(CommandError::writing(
                "write to",
                &path,
                &error,
                "specify a writable directory with `--out`",
            ));
        }
        match is_complete.then(|| fs::remove_file(&path)) {
            Some(Err(error)) => {
                Err(CommandError::machine(format!("cannot remove {}: {error}", path.display())))
            }
            _ => Ok(()),
        }
    }
}

/// Prints how many runs of interrupted work are missing, and how to continue it.
pub(crate) fn print_missing(runs: u64) {
    if runs > 0 {
        note(format_args!(
            "interrupted: {} missing; to continue, run the same command with `--resume`",
            if runs == 1 { "1 run is".to_owned() } else { format!("{runs} runs are") }
        ));
    }
}

/// Prints how many runs reached the memory limit, and how to repeat them.
pub(crate) fn print_out_of_memory(runs: u64) {
    if runs > 0 {
        note(format_args!(
            "out of memory: {} reached the limit; to repeat {}, run the same command with `--resume` and a larger `--memory`",
            count(runs, "run"),
            if runs == 1 { "it" } else { "them" }
        ));
    }
}

/// Creates a journal. Does not overwrite one that has results.
fn begun<T: Serialize>(path: &Path, work: &str, head: &Head<T>) -> Result<ResultJournal, CommandError> {
    let is_free = match lines_of(path) {
        Ok(mut lines) => lines.nth(1).is_none(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    if !is_free {
        return Err(CommandError::input(miette!(
            help = format!(
                "add `--resume` to continue that {work}, specify another directory with `--out`, or delete this file"
            ),
            "{} already contains results",
            path.display()
        )));
    }
    let head = serde_json::to_string(head).expect("the first line can be written as JSON") + "\n";
    let refused = |error: io::Error| {
        CommandError::writing("write", path, &error, "specify a writable directory with `--out`")
    };
    let mut file = File::create(path).map_err(refused)?;
    file.write_all(head.as_bytes()).map_err(refused)?;
    Ok(ResultJournal { path: path.to_owned(), file, broken: None })
}

/// Opens an existing journal, or creates one. Removes an incomplete last line, which a killed program can leave behind.
fn resumed<T, E>(path: &Path, work: &str, head: &Head<T>) -> Result<(ResultJournal, Vec<E>), CommandError>
where
    T: Serialize + DeserializeOwned + PartialEq,
    E: DeserializeOwned,
{
    let unreadable = |why: String| {
        CommandError::path(
            "continue from",
            path,
            why,
            "omit `--resume`, and specify another directory with `--out`",
        )
    };
    let mut lines = match lines_of(path) {
        Ok(lines) => lines,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok((begun(path, work, head)?, Vec::new()));
        }
        Err(error) => return Err(unreadable(error.to_string())),
    };
    let first = lines.next().unwrap_or_default();
    let known: Head<T> =
        serde_json::from_str(&first).map_err(|error| unreadable(format!("line 1: {error}")))?;
    if known != *head {
        return Err(unreadable(format!(
            "it belongs to another {work}: the file, the options or the version of Faultline differs"
        )));
    }
    let (mut results, mut whole) = (Vec::new(), first + "\n");
    let lines: Vec<String> = lines.collect();
    for (index, line) in lines.iter().enumerate() {
        match serde_json::from_str(line) {
            Ok(result) => {
                results.push(result);
                whole += &(line.clone() + "\n");
            }
            Err(_) if index + 1 == lines.len() => {}
            Err(error) => return Err(unreadable(format!("line {}: {error}", index + 2))),
        }
    }
    let file = replace(path, &whole).and_then(|()| OpenOptions::new().append(true).open(path));
    let file = file.map_err(|error| unreadable(error.to_string()))?;
    Ok((ResultJournal { path: path.to_owned(), file, broken: None }, results))
}

/// Returns the lines of a journal.
///
/// # Errors
///
/// Returns an error if it is not a file, which could block forever, is too large, or is not UTF-8 text.
fn lines_of(path: &Path) -> io::Result<impl Iterator<Item = String>> {
    let text = read_file(path)?;
    Ok(text.lines().map(str::to_owned).collect::<Vec<_>>().into_iter())
}
