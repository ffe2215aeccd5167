//! The directories in which runs are recorded: their names, and what may be written to them or removed from them.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fs, io};

use faultline_api::Federation;
use faultline_session::UnjudgedRecording;
use faultline_trace::manifest::BackendKind;
use faultline_trace::{Bundle, BundleError};
use serde_json::Value;

use crate::command_error::CommandError;

/// The default directory for records.
pub const RUNS: &str = "faultline-runs";

/// The start of an error about a directory in which a run is to be recorded.
pub const ACTION: &str = "record a run in";
/// The start of an error about a directory to which results are to be written.
pub const RESULTS: &str = "write to";
/// The remedy if a directory cannot be used for a record.
const NEW_OR_EMPTY: &str = "specify a new or empty directory with `--out`";
/// The remedy if a directory cannot be written.
const UNWRITABLE: &str = "specify a writable directory with `--out`";

/// A directory to which no other command writes as long as this value exists. If nothing was written to a new directory,
/// it is then removed.
///
/// The claim is a lock on the directory. It ends with the program, however the program ends, so that it never has to be
/// removed.
#[derive(Debug)]
pub struct Claim {
    dir: PathBuf,
    /// The open directory, which holds the lock; `None` if its file system supports no locks.
    lock: Option<File>,
    is_new: bool,
}

impl Claim {
    /// Claims `dir`, and creates it unless it exists. `action` begins the error message, as [`ACTION`] does.
    ///
    /// # Errors
    ///
    /// Returns an error if another command writes to `dir`, or if `dir` cannot be created.
    pub fn of(action: &str, dir: &Path) -> Result<Claim, CommandError> {
        let refused = |error: io::Error| CommandError::writing(action, dir, &error, UNWRITABLE);
        let created = fs::create_dir(dir).or_else(|error| match (error.kind(), dir.parent()) {
            (ErrorKind::NotFound, Some(parent)) => {
                fs::create_dir_all(parent).and_then(|()| fs::create_dir(dir))
            }
            _ => Err(error),
        });
        let is_new = match created {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(refused(error)),
        };
        if !dir.is_dir() {
            return Err(CommandError::path(action, dir, "it is not a directory", NEW_OR_EMPTY));
        }
        let lock = File::open(dir).map_err(refused)?;
        let lock = match lock.try_lock() {
            Ok(()) => Some(lock),
            Err(TryLockError::WouldBlock) => {
                let help = "wait until that command ends, or specify another directory with `--out`";
                return Err(CommandError::path(action, dir, "another command writes to it", help));
            }
            Err(TryLockError::Error(_)) => None,
        };
        Ok(Claim { dir: dir.to_owned(), lock, is_new })
    }

    /// Creates and claims a new directory for the record of a run: `NAME-SEED`. If `NAME-SEED` exists and its record has
    /// a different federation or backend, the name includes the differences, as in `NAME-SEED-checkpointEvery=2s`. If
    /// there are no differences, or that name also exists, the name ends with a number.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be created.
    pub fn of_run(
        name: &str,
        seed: u64,
        federation: &Federation,
        backend: BackendKind,
    ) -> Result<Claim, CommandError> {
        Claim::of_run_in(Path::new(RUNS), name, seed, federation, backend)
    }

    fn of_run_in(
        runs: &Path,
        name: &str,
        seed: u64,
        federation: &Federation,
        backend: BackendKind,
    ) -> Result<Claim, CommandError> {
        let base = format!("{name}-{seed}");
        let first = runs.join(&base);
        if let Some(claim) = Claim::new_at(runs, &first)? {
            return Ok(claim);
        }
        let differs = recorded(&first).map(|it| differences(&it, (federation, backend)));
        let words: Vec<String> = [base].into_iter().chain(differs.unwrap_or_default()).collect();
        Claim::numbered_in(runs, &words.join("-"))
    }

    /// Creates and claims a new directory in the default directory for records: `base` or, if that exists, `base` with a
    /// number.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be created.
    pub fn numbered(base: &str) -> Result<Claim, CommandError> {
        Claim::numbered_in(Path::new(RUNS), base)
    }

    fn numbered_in(runs: &Path, base: &str) -> Result<Claim, CommandError> {
        let mut names = (1_u64..).map(|number| match number {
            1 => base.to_owned(),
            number => format!("{base}.{number}"),
        });
        let claim = names.find_map(|name| Claim::new_at(runs, &runs.join(name)).transpose());
        claim.expect("names never run out")
    }

    /// Creates and claims `dir` in `runs`; `None` if `dir` exists. If several programs call this function at the same
    /// moment, it succeeds in only one of them.
    fn new_at(runs: &Path, dir: &Path) -> Result<Option<Claim>, CommandError> {
        loop {
            match fs::create_dir_all(runs).and_then(|()| fs::create_dir(dir)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
                // Another program has just removed the empty directory of records.
                Err(error) if error.kind() == ErrorKind::NotFound && !runs.exists() => continue,
                Err(error) => return Err(CommandError::writing(ACTION, dir, &error, UNWRITABLE)),
            }
            let mut claim = Claim::of(ACTION, dir)?;
            claim.is_new = true;
            return Ok(Some(claim));
        }
    }

    /// Returns the claimed directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Both calls fail if the directory contains anything.
        if self.is_new && fs::remove_dir(&self.dir).is_ok() && self.dir.parent() == Some(Path::new(RUNS)) {
            drop(fs::remove_dir(RUNS));
        }
        // Only now may another command claim the directory.
        self.lock = None;
    }
}

/// The maximum number of differences in a name.
const MOST_DIFFERENCES: usize = 3;
/// The maximum length of the differences in a name, in bytes.
const MOST_BYTES: usize = 80;

/// Checks that a record can be written to `dir`, which must be empty if it exists. `action` begins the error message, as
/// [`ACTION`] does.
///
/// # Errors
///
/// Returns an error if `dir` contains anything, or is not a directory.
pub fn check_free(action: &str, dir: &Path) -> Result<(), CommandError> {
    if dir.exists() && !dir.is_dir() {
        return Err(CommandError::path(action, dir, "it is not a directory", NEW_OR_EMPTY));
    }
    if Bundle::open(dir).holds_a_run() {
        return Err(occupied(action, dir));
    }
    if dir.read_dir().is_ok_and(|mut files| files.next().is_some()) {
        return Err(CommandError::path(action, dir, "it contains other files", NEW_OR_EMPTY));
    }
    Ok(())
}

/// Creates a record in `dir`, which must be empty if it exists. `action` begins the error message, as [`ACTION`] does.
///
/// # Errors
///
/// Returns an error if `dir` contains anything, is not a directory, or cannot be written.
pub fn create_record(action: &str, dir: &Path) -> Result<Bundle, CommandError> {
    check_free(action, dir)?;
    Bundle::create(dir).map_err(|error| match error {
        BundleError::Occupied(_) => occupied(action, dir),
        other => not_recorded(action, dir, &other),
    })
}

fn occupied(action: &str, dir: &Path) -> CommandError {
    let error = BundleError::Occupied(dir.to_owned());
    CommandError::path(action, dir, error, "specify another directory with `--out`")
}

fn not_recorded(action: &str, dir: &Path, error: &BundleError) -> CommandError {
    CommandError::writing(action, dir, error, UNWRITABLE)
}

/// Creates a record in `dir`, which must be empty if it exists, and writes a run to it.
///
/// # Errors
///
/// Returns an error if `dir` contains anything, is not a directory, or cannot be written.
pub fn write_record(dir: &Path, run: &UnjudgedRecording) -> Result<(), CommandError> {
    let bundle = create_record(ACTION, dir)?;
    run.write(&bundle).map_err(|error| not_recorded(ACTION, dir, &error))
}

/// Checks that a record can be written to `dir` after [`remove_record`].
///
/// # Errors
///
/// Returns an error if `dir` is neither a record, nor empty, nor free.
pub fn check_replaceable(action: &str, dir: &Path) -> Result<(), CommandError> {
    if Bundle::open(dir).holds_a_run() { Ok(()) } else { check_free(action, dir) }
}

/// Removes `dir` with everything in it if it contains a record. Otherwise, does nothing. If the removal is cut short,
/// the directory still counts as a record.
///
/// # Errors
///
/// Returns an error if the directory cannot be removed.
pub fn remove_record(dir: &Path) -> Result<(), CommandError> {
    let bundle = Bundle::open(dir);
    if !bundle.holds_a_run() {
        return Ok(());
    }
    let remove = || {
        for entry in dir.read_dir()? {
            let entry = entry?;
            if Bundle::PARTS.iter().all(|part| entry.file_name() != *part) {
                let path = entry.path();
                if entry.file_type()?.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
            }
        }
        bundle.clear().map_err(io::Error::other)?;
        fs::remove_dir(dir)
    };
    remove()
        .map_err(|error| CommandError::path("replace", dir, error, "specify another directory with `--out`"))
}

/// Removes what a refused run has written to `dir`, but not the directory. If commands of a system ran, their logs say what
/// was wrong, so everything remains.
pub fn discard_refused(dir: &Path) {
    if !dir.join(Bundle::LOGS).exists() {
        // Otherwise, the refusal is the error that matters.
        let _ = Bundle::open(dir).clear();
    }
}

/// Returns the newest record in the default directory for records.
pub fn newest_record() -> Option<PathBuf> {
    newest_in(Path::new(RUNS))
}

/// Returns the record in `runs` that was written last. A report that was added later does not count.
fn newest_in(runs: &Path) -> Option<PathBuf> {
    let written = |dir: &Path| {
        let parts = Bundle::PARTS.iter().filter_map(|part| dir.join(part).metadata().ok()?.modified().ok());
        parts.max()
    };
    let entries = runs.read_dir().ok()?.filter_map(|it| Some(it.ok()?.path()));
    let records = entries.filter(|it| Bundle::open(it).holds_a_run());
    records.filter_map(|dir| Some((written(&dir)?, dir))).max().map(|(_, dir)| dir)
}

/// Returns the federation and the backend of a record.
fn recorded(dir: &Path) -> Option<(Federation, BackendKind)> {
    let manifest = Bundle::open(dir).read_manifest().ok()?;
    let federation = faultline_api::parse("federation.yaml", manifest.federation.as_bytes()).ok()?;
    Some((federation, manifest.backend))
}

/// Returns the differences between two runs with the same seed, as words for a file name. If they do not fit in a name,
/// returns the first one and the number of the others. The result is empty if the runs are equal, or if the first
/// difference is too long.
fn differences(old: &(Federation, BackendKind), new: (&Federation, BackendKind)) -> Vec<String> {
    let spec = |it: &Federation| serde_json::to_value(&it.spec).expect("a federation has a JSON form");
    let (mut before, mut after) = (spec(&old.0), spec(new.0));
    for spec in [&mut before, &mut after] {
        // The seed is in the name.
        spec.as_object_mut().expect("a federation is an object").remove("seed");
    }
    let mut words = Vec::new();
    if old.1 != new.1 {
        let backend = serde_json::to_value(new.1).expect("a backend has a JSON form");
        words.extend(backend.as_str().map(str::to_owned));
    }
    differ(&before, &after, "", &mut words);
    let length: usize = words.iter().map(String::len).sum();
    if words.len() <= MOST_DIFFERENCES && length <= MOST_BYTES {
        return words;
    }
    let more = words.len() - 1;
    match words.into_iter().next().filter(|it| it.len() <= MOST_BYTES) {
        Some(first) if more > 0 => vec![first, format!("and-{more}-more")],
        _ => Vec::new(),
    }
}

/// Adds the differences between the old and the new value of `key` to `words`.
fn differ(old: &Value, new: &Value, key: &str, words: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            // A protocol or an application is an object whose only key is its name.
            if let (1, 1, Some(before), Some(after)) =
                (old.len(), new.len(), old.keys().next(), new.keys().next())
                && before != after
            {
                return words.push(word(key, after));
            }
            for (key, value) in new {
                match old.get(key) {
                    Some(before) => differ(before, value, key, words),
                    None => words.push(word(key, &brief(value))),
                }
            }
            let gone = old.iter().filter(|(key, _)| !new.contains_key(*key));
            words.extend(
                gone.map(|(key, value)| word(key, if value.is_array() { "none" } else { "default" })),
            );
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            old.iter().zip(new).for_each(|(old, new)| differ(old, new, key, words));
        }
        _ if old == new => {}
        _ => words.push(word(key, &brief(new))),
    }
}

/// Returns a value as a word: an array as its number of entries, an object as its first key.
fn brief(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.len().to_string(),
        Value::Object(all) => all.keys().next().cloned().unwrap_or_default(),
        other => other.to_string(),
    }
}

/// Returns `key=value`, restricted to characters that need no quoting in a shell.
fn word(key: &str, value: &str) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() || ".=_".contains(it) { it } else { '_' };
    format!("{key}={value}").chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_api::samples::SAMPLES;

    #[test]
    fn only_records_are_replaced_and_nothing_else_is_overwritten() {
        let temporary = tempfile::tempdir().expect("a directory");
        let dir = temporary.path().join("new");
        let error = || create_record(ACTION, &dir).err().map(|it| it.report.to_string());
        assert_eq!(error(), None);
        assert!(error().is_some_and(|it| it.contains("already holds")), "{:?}", error());
        fs::create_dir(dir.join("nodes")).expect("it does not exist");
        fs::write(dir.join("nodes/log"), "text").expect("it can be written");
        fs::write(dir.join("report.html"), "page").expect("it can be written");
        remove_record(&dir).expect("it is a record");
        assert!(!dir.exists());

        fs::create_dir(&dir).expect("it does not exist");
        assert_eq!(error(), None, "an empty directory can be used");
        remove_record(&dir).expect("it is a record");
        fs::create_dir(&dir).expect("it does not exist");
        fs::write(dir.join("federation.yaml"), "mine").expect("it can be written");
        assert!(error().is_some_and(|it| it.contains("other files")), "{:?}", error());
        remove_record(&dir).expect("nothing is to be removed");
        assert_eq!(fs::read_to_string(dir.join("federation.yaml")).expect("it is kept"), "mine");
    }

    #[test]
    fn the_newest_record_is_the_one_that_was_written_last() {
        let temporary = tempfile::tempdir().expect("a directory");
        let runs = temporary.path();
        assert_eq!((newest_in(&runs.join("none")), newest_in(runs)), (None, None));
        let write = |name: &str, part: &str, seconds| {
            let file = runs.join(name).join(part);
            fs::create_dir_all(runs.join(name)).expect("it can be created");
            let written = fs::File::create(file).expect("it can be created");
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            written.set_modified(time).expect("the time can be set");
        };
        for (name, seconds) in [("a", 30), ("b", 50), ("c", 40)] {
            Bundle::PARTS.iter().for_each(|part| write(name, part, seconds));
        }
        write("a", "report.html", 60);
        write("other", "text", 70);
        assert_eq!(newest_in(runs), Some(runs.join("b")));
    }

    #[test]
    fn new_directories_are_claimed_by_one_of_many() {
        let temporary = tempfile::tempdir().expect("a directory");
        let runs = temporary.path().join("runs");
        let base = federation(str::to_owned);
        let claim = || Claim::of_run_in(&runs, "trio", 12, &base, BackendKind::Local).expect("it is free");
        let claims: Vec<Claim> = std::thread::scope(|scope| {
            let claiming: Vec<_> = (0..16).map(|_| scope.spawn(claim)).collect();
            claiming.into_iter().map(|it| it.join().expect("a claim")).collect()
        });
        let mut names: Vec<_> = claims.iter().map(|it| it.dir().to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 16);
        assert!(
            names.contains(&runs.join("trio-12")) && names.contains(&runs.join("trio-12.16")),
            "{names:?}"
        );
        drop(claims);
        assert_eq!(fs::read_dir(&runs).expect("it exists").count(), 0, "unused directories are removed");
    }

    #[test]
    fn a_claimed_directory_is_refused_until_the_claim_ends() {
        let temporary = tempfile::tempdir().expect("a directory");
        let dir = temporary.path().join("results");
        let claim = Claim::of(RESULTS, &dir).expect("it is new");
        let refused = Claim::of(ACTION, &dir).expect_err("it is claimed").report.to_string();
        assert!(refused.ends_with("another command writes to it"), "{refused}");
        fs::write(dir.join("results"), "text").expect("it can be written");
        drop(claim);
        drop(Claim::of(RESULTS, &dir).expect("the claim has ended"));
        assert!(dir.join("results").exists());
        let file = Claim::of(RESULTS, &dir.join("results")).expect_err("it is a file").report.to_string();
        assert!(file.ends_with("it is not a directory"), "{file}");
    }

    fn federation(change: impl Fn(&str) -> String) -> Federation {
        let text = "apiVersion: faultline.dev/v1alpha1\nkind: Federation\nmetadata: { name: trio }\nspec:\n  \
                    seed: 12\n  clusters: [{ name: a, nodes: 2 }, { name: b, nodes: 2 }]\n  \
                    protocol: { hc3i: { checkpointEvery: 1s } }\n  application: { heat: { steps: 9, stepTime: 1ms } }\n";
        faultline_api::parse("trio", change(text).as_bytes()).expect("the file is valid")
    }

    #[test]
    fn a_name_includes_the_differences() {
        let base = federation(str::to_owned);
        let words =
            |new: &Federation, backend| differences(&(base.clone(), BackendKind::Local), (new, backend));
        let changed = |from: &'static str, to: &'static str| federation(move |it| it.replace(from, to));
        let local = |from, to| words(&changed(from, to), BackendKind::Local);
        assert_eq!(local("1s", "2s"), ["checkpointEvery=2s"]);
        assert_eq!(local("seed: 12", "seed: 13"), [""; 0], "the seed is in the name");
        assert_eq!(local("nodes: 2 }]", "nodes: 3 }]"), ["nodes=3"]);
        assert_eq!(
            local("hc3i: { checkpointEvery: 1s }", "hydee: { checkpointEvery: 1s }"),
            ["protocol=hydee"]
        );
        assert_eq!(local("checkpointEvery: 1s", "checkpointEvery: 1s, replicas: 0"), ["replicas=0"]);
        assert_eq!(local("checkpointEvery: 1s", ""), ["checkpointEvery=default"]);
        assert_eq!(words(&base, BackendKind::Simulate), ["simulate"]);
        assert_eq!(words(&base, BackendKind::Local), [""; 0]);
        let other = faultline_api::parse("other", SAMPLES[0].text.as_bytes()).expect("samples are valid");
        let many = words(&other, BackendKind::Local);
        assert!(many.len() == 2 && many[1].starts_with("and-") && many[1].ends_with("-more"), "{many:?}");
        assert_eq!(word("at", "1 s/2"), "at=1_s_2");
    }
}
