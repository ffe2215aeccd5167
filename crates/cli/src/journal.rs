//! A file of results that grows during long work, so that the work can be interrupted and resumed: one JSON object a line,
//! behind a line that says what the results are of.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};

use miette::miette;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command_error::CommandError;

/// The name of a journal in the directory of `--out`.
pub(crate) const RUNS: &str = "runs.jsonl";

/// The first line of a journal. Results of anything else cannot be added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head<T> {
    /// The program's version: another one may compute something else.
    version: String,
    /// What the results are of.
    of: T,
}

impl<T> Head<T> {
    /// Of this version.
    pub(crate) fn of(of: T) -> Head<T> {
        Head { version: env!("CARGO_PKG_VERSION").to_owned(), of }
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Why the last results were not written.
    broken: Option<io::Error>,
}

impl Journal {
    /// Begins a journal, or continues it with `resume`, together with the results in it. What the user calls the work, such
    /// as `sweep`, is for errors.
    ///
    /// # Errors
    ///
    /// Fails if there are results and the user does not want to resume, if they are results of something else, and if the
    /// file cannot be read or written.
    pub(crate) fn open<T, E>(
        path: &Path,
        work: &str,
        head: &Head<T>,
        resume: bool,
    ) -> Result<(Journal, Vec<E>), CommandError>
    where
        T: Serialize + DeserializeOwned + PartialEq,
        E: DeserializeOwned,
    {
        if resume { resumed(path, work, head) } else { Ok((begun(path, work, head)?, Vec::new())) }
    }

    /// Adds a result.
    pub(crate) fn add(&mut self, result: &impl Serialize) {
        let line = serde_json::to_string(result).expect("a result has a JSON form") + "\n";
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            self.broken.get_or_insert(error);
        }
    }

    /// Ends the journal. One of work that `is_complete` is removed, so that the work can be done again.
    ///
    /// # Errors
    ///
    /// Fails if a result could not be written, or the file not be removed.
    pub(crate) fn finish(self, is_complete: bool) -> Result<(), CommandError> {
        let Journal { path, broken, .. } = self;
        if let Some(error) = broken {
            return Err(CommandError::machine(format!("cannot write to {}: {error}", path.display())));
        }
        match is_complete.then(|| fs::remove_file(&path)) {
            Some(Err(error)) => {
                Err(CommandError::machine(format!("cannot remove {}: {error}", path.display())))
            }
            _ => Ok(()),
        }
    }
}

/// Says how work that was interrupted continues.
pub(crate) fn say_missing(runs: u64) {
    if runs > 0 {
        anstream::eprintln!(
            "interrupted: {} missing; the same command with `--resume` continues",
            if runs == 1 { "1 run is".to_owned() } else { format!("{runs} runs are") }
        );
    }
}

/// Begins a journal. One with results is not overwritten.
fn begun<T: Serialize>(path: &Path, work: &str, head: &Head<T>) -> Result<Journal, CommandError> {
    if let Ok(mut lines) = lines_of(path)
        && lines.nth(1).is_some()
    {
        return Err(CommandError::input(miette!(
            help = format!(
                "add `--resume` to continue that {work}, name another directory with `--out`, or delete this file"
            ),
            "{} already has runs",
            path.display()
        )));
    }
    let head = serde_json::to_string(head).expect("what is run has a JSON form") + "\n";
    let refused = |error| CommandError::path("write", path, error, "name a writable directory with `--out`");
    let mut file = File::create(path).map_err(refused)?;
    file.write_all(head.as_bytes()).map_err(refused)?;
    Ok(Journal { path: path.to_owned(), file, broken: None })
}

/// Continues a journal. A line that was cut off, by the end of the program, is removed.
fn resumed<T, E>(path: &Path, work: &str, head: &Head<T>) -> Result<(Journal, Vec<E>), CommandError>
where
    T: Serialize + DeserializeOwned + PartialEq,
    E: DeserializeOwned,
{
    let unreadable = |why: String| {
        CommandError::path("continue", path, why, "omit `--resume`, and name another directory with `--out`")
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
            "it contains another {work}: the file, the values or the version differ"
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
    let rewritten = path.with_extension("part");
    let file = fs::write(&rewritten, whole)
        .and_then(|()| fs::rename(&rewritten, path))
        .and_then(|()| OpenOptions::new().append(true).open(path));
    let file = file.map_err(|error| unreadable(error.to_string()))?;
    Ok((Journal { path: path.to_owned(), file, broken: None }, results))
}

fn lines_of(path: &Path) -> io::Result<impl Iterator<Item = String>> {
    Ok(BufReader::new(File::open(path)?).lines().map_while(Result::ok))
}
