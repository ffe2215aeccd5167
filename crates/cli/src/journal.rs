//! A journal: a file of results that grows during long-running work, so that the work can be interrupted and resumed.
//! The first line identifies the work; each further line is one result. All lines are JSON objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::iter;
use std::path::{Path, PathBuf};

use faultline_console::campaign::Seal;
use faultline_experiments::Part;
use faultline_report::explain::count;
use miette::miette;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command_error::{CommandError, Exit};
use crate::output::{self, note, read_file, replace};

/// The name of the journal in the directory of `--out`.
pub(crate) const RUNS: &str = "runs.jsonl";

/// The first line of a journal, which identifies the work. Results of other work cannot be added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head<T> {
    /// The version of the program. Another version may compute different results.
    version: String,
    /// The work that produced the results.
    pub(crate) of: T,
    /// Only in parts: the options that determine the runs, as on the command line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, String>,
}

impl<T> Head<T> {
    /// Creates the first line, with the version of this program.
    pub(crate) fn of(of: T) -> Head<T> {
        Head { version: env!("CARGO_PKG_VERSION").to_owned(), of, options: BTreeMap::new() }
    }

    /// Returns the first line of each part of the work that these options request.
    pub(crate) fn of_parts<'a>(&self, options: impl IntoIterator<Item = (&'a str, String)>) -> Head<T>
    where
        T: Clone,
    {
        let options = options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Head { options, ..self.clone() }
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

    /// Ends the journal, and sorts its results: their order depends neither on an interruption nor on the machines that
    /// performed the runs.
    ///
    /// # Errors
    ///
    /// Returns an error if a result could not be written.
    pub(crate) fn finish_sorted<E: RunResult>(self) -> Result<(), CommandError> {
        let path = self.path.clone();
        self.finish(false)?;
        let sorted = || {
            let text = fs::read_to_string(&path)?;
            let mut lines = text.lines();
            let head = lines.next().unwrap_or_default();
            let run = |line: &str| serde_json::from_str(line).map(|it: E| it.run()).ok();
            let mut results: Vec<_> = lines.map(|line| (run(line), line)).collect();
            results.sort_by(|one, other| one.0.cmp(&other.0));
            let lines = iter::once(head).chain(results.into_iter().map(|(_, line)| line));
            replace(&path, &lines.map(|line| line.to_owned() + "\n").collect::<String>())
        };
        sorted().map_err(|error| CommandError::writing("write", &path, &error, "free some space"))
    }
}

/// Prints the results of one part of the work, in the form of a journal with a [`Seal`].
#[derive(Debug)]
pub(crate) struct PartPrinter {
    part: Part,
    results: u64,
    printed: Result<(), CommandError>,
}

impl PartPrinter {
    pub(crate) fn begin<T: Serialize>(part: Part, head: &Head<T>) -> PartPrinter {
        let mut this = PartPrinter { part, results: 0, printed: Ok(()) };
        this.line(head);
        this
    }

    pub(crate) fn add(&mut self, result: &impl Serialize) {
        self.results += 1;
        self.line(result);
    }

    fn line(&mut self, value: &impl Serialize) {
        if self.printed.is_ok() {
            let text = serde_json::to_string(value).expect("a result can be written as JSON") + "\n";
            self.printed = output::print(&text);
        }
    }

    /// Seals the results if they are complete.
    ///
    /// # Errors
    ///
    /// Returns an error if a line could not be printed.
    pub(crate) fn finish(mut self, is_complete: bool) -> Result<Exit, CommandError> {
        if is_complete {
            self.line(&Seal { part: self.part.to_string(), results: self.results });
        }
        self.printed?;
        if !is_complete {
            note(format_args!("part {} is incomplete: run the same command again", self.part));
        }
        Ok(Exit::of_runs(false, is_complete))
    }
}

/// A result of a run that another machine may have performed.
pub(crate) trait RunResult: Clone + Serialize + DeserializeOwned + PartialEq {
    /// Identifies the run.
    type Run: Ord;
    /// Returns the run with this result.
    fn run(&self) -> Self::Run;
    /// Returns whether the run violated a property.
    fn has_failed(&self) -> bool;
    fn seed(&self) -> u64;
    /// Returns whether this machine repeats the run, to compare its result.
    fn is_repeated(&self, is_first_of_part: bool) -> bool {
        is_first_of_part || self.has_failed()
    }
}

/// The results of parts that other machines performed.
#[derive(Debug)]
pub(crate) struct Gathered<E> {
    /// The results that this machine uses.
    results: Vec<E>,
    /// The results of runs that this machine repeats: those that failed, the first of each part, and those whose records it
    /// needs.
    doubted: Vec<E>,
    /// The seed of the first run that had a different result here.
    differs: Option<u64>,
}

impl<E: RunResult> Gathered<E> {
    /// Lets this machine repeat the runs with this seed, because it needs their records.
    pub(crate) fn repeat(&mut self, seed: u64) {
        let (again, results) =
            std::mem::take(&mut self.results).into_iter().partition(|it| it.seed() == seed);
        self.results = results;
        self.doubted.extend::<Vec<E>>(again);
    }

    /// Adds these results to those that this machine knows.
    pub(crate) fn join(&mut self, known: &mut Vec<E>) {
        // Several parts may contain the same reference run.
        let mut here: BTreeSet<E::Run> = known.iter().chain(&self.doubted).map(E::run).collect();
        self.results.retain(|it| here.insert(it.run()));
        known.extend_from_slice(&self.results);
    }

    /// Returns the first run that failed.
    pub(crate) fn failed(&self) -> Option<E::Run> {
        self.doubted.iter().filter(|it| it.has_failed()).map(E::run).min()
    }

    /// Compares the result of a run on this machine with that of the machine that performed its part.
    pub(crate) fn compare(&mut self, here: &E) {
        let Some(there) = self.doubted.iter().find(|it| it.run() == here.run()) else { return };
        // A number may change when it is written and read.
        let here = serde_json::to_string(here).and_then(|it| serde_json::from_str::<E>(&it));
        if here.ok().as_ref() != Some(there) {
            self.differs.get_or_insert(there.seed());
        }
    }

    /// Adds the results to the journal, now that runs were repeated here.
    ///
    /// # Errors
    ///
    /// Returns an error, and leaves the journal unchanged, if a run had a different result on this machine.
    pub(crate) fn keep(&self, journal: Option<&mut ResultJournal>) -> Result<(), CommandError> {
        let Some(seed) = self.differs else {
            if let Some(journal) = journal {
                self.results.iter().for_each(|it| journal.add(it));
            }
            return Ok(());
        };
        Err(CommandError::machine(format!(
            "a run with seed {seed} had another result on the machine that performed its part: one of the machines or \
             programs is at fault, so no result of the parts can be trusted"
        )))
    }
}

/// Reads the results of parts of the work that other machines performed.
///
/// # Errors
///
/// Returns an error if a file cannot be read, is not sealed, or contains results of other work, or if two files
/// contain the same part.
pub(crate) fn gather<T, E>(paths: &[PathBuf], work: &str, head: &Head<T>) -> Result<Gathered<E>, CommandError>
where
    T: DeserializeOwned + PartialEq,
    E: RunResult,
{
    let mut parts = BTreeSet::new();
    let (mut results, mut doubted) = (Vec::new(), Vec::new());
    for path in paths {
        let refused = |why: String| {
            let help = "omit this file, so that its runs are performed here, or let its machine run the command again";
            CommandError::path("gather", path, why, help)
        };
        let lines: Vec<String> = lines_of(path).map_err(|error| refused(error.to_string()))?.collect();
        let [first, between @ .., last] = &lines[..] else {
            return Err(refused("it is not a part of a ".to_owned() + work));
        };
        let known: Head<T> = from_line(first, 1).map_err(&refused)?;
        check_head(&known, head, work).map_err(&refused)?;
        let seal: Seal = serde_json::from_str(last)
            .map_err(|_| refused("its last line is missing, so some results may be, too".to_owned()))?;
        if seal.results != between.len() as u64 {
            return Err(refused(format!(
                "it states {}, but contains {}",
                count(seal.results, "result"),
                between.len()
            )));
        }
        if !parts.insert(seal.part.clone()) {
            return Err(refused(format!("part {} is in another file, too", seal.part)));
        }
        for (line, number) in between.iter().zip(2..) {
            let result: E = from_line(line, number).map_err(&refused)?;
            let kept = if result.is_repeated(number == 2) { &mut doubted } else { &mut results };
            kept.push(result);
        }
    }
    Ok(Gathered { results, doubted, differs: None })
}

/// Reads one line of a journal.
fn from_line<T: DeserializeOwned>(line: &str, number: usize) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))
}

/// Checks that results belong to this work.
fn check_head<T: PartialEq>(found: &Head<T>, wanted: &Head<T>, work: &str) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    let option = |name: &String, of: &Head<T>| {
        let value = of.options.get(name);
        value.map_or_else(|| format!("no `{name}`"), |it| format!("`{}`", format!("{name} {it}").trim_end()))
    };
    let mut names = found.options.keys().chain(wanted.options.keys());
    let differs = if found.version != wanted.version {
        format!("version {} of Faultline wrote it, and this is version {}", found.version, wanted.version)
    } else if let Some(name) = names.find(|it| found.options.get(*it) != wanted.options.get(*it)) {
        format!(
            "its runs have {}, and those of this command have {}",
            option(name, found),
            option(name, wanted)
        )
    } else if wanted.options.is_empty() {
        "the file or the options differ".to_owned()
    } else {
        "the file differs".to_owned()
    };
    Err(format!("it belongs to another {work}: {differs}"))
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
    let known: Head<T> = serde_json::from_str(&first)
        .map_err(|_| unreadable(format!("its first line does not say to which {work} the results belong")))?;
    check_head(&known, head, work).map_err(unreadable)?;
    let (mut results, mut whole) = (Vec::new(), first + "\n");
    let lines: Vec<String> = lines.collect();
    for (index, line) in lines.iter().enumerate() {
        match from_line(line, index + 2) {
            Ok(result) => {
                results.push(result);
                whole += &(line.clone() + "\n");
            }
            Err(_) if index + 1 == lines.len() => {}
            Err(error) => return Err(unreadable(error)),
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
