//! The directory of a recorded run: `manifest.json`, `federation.yaml`, and `facts/` with one file per life.
//! If the inputs of processes were recorded, `inputs/` also contains one file per life.

mod description;
mod evidence;
mod follow;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use faultline_core::{Life, Process, ProcessId};
use thiserror::Error;

use crate::facts::{FactsReadError, FactsWriter, HEADER_LEN, read_facts, seal_of};
use crate::inputs::{InputsFile, InputsReadError, InputsWriter, read_inputs};
use crate::manifest::FORMAT;
use crate::memory::{Stream, Trace};

pub(crate) use description::Unique;
use description::short;
pub use follow::Follower;

const MANIFEST: &str = "manifest.json";
const FEDERATION: &str = "federation.yaml";
const FACTS: &str = "facts";
const FACTS_EXTENSION: &str = "facts";
const INPUTS: &str = "inputs";
/// The events from which the record was imported, and their mapping.
const EVENTS: &str = "events.jsonl";
const MAPPING: &str = "mapping.yaml";

/// The directory of a recorded run.
#[derive(Clone, Debug)]
pub struct Bundle {
    dir: PathBuf,
}

/// An error in an operation on a bundle, with the affected file.
#[derive(Debug, Error)]
pub enum BundleError {
    /// The directory already contains a run.
    #[error("{} already holds the record of a run", .0.display())]
    Occupied(PathBuf),
    /// A directory could not be created.
    #[error("cannot create {}: {source}", path.display())]
    Create {
        /// The path of the directory.
        path: PathBuf,
        /// The cause of the failure.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The cause of the failure.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The cause of the failure.
        source: io::Error,
    },
    /// A file is too large for the program's memory limit, or for what it describes.
    #[error(
        "{} has {} MiB, but this program reads at most {} MiB of it",
        path.display(),
        bytes >> 20,
        most >> 20
    )]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
        /// The length of the file.
        bytes: u64,
        /// The largest number of bytes that is read.
        most: u64,
    },
    /// The facts exceed the program's memory limit.
    #[error(
        "{} has more than {most} facts, which exceed the memory limit of this program",
        path.display()
    )]
    TooManyFacts {
        /// The directory of the bundle.
        path: PathBuf,
        /// The largest number of facts within the limit.
        most: u64,
    },
    /// The manifest is invalid.
    #[error("{} is not a manifest: {}", path.display(), short(&source.to_string()))]
    Manifest {
        /// The path of the manifest.
        path: PathBuf,
        /// The cause of the failure.
        source: serde_json::Error,
    },
    /// The bundle has the format of a different version of the program.
    #[error("{} has format version {found}, but this program reads version {FORMAT}", path.display())]
    Format {
        /// The path of the manifest.
        path: PathBuf,
        /// The format version of the bundle.
        found: u64,
    },
    /// A facts file is invalid.
    #[error("{} is not a facts file: {source}", path.display())]
    Facts {
        /// The path of the file.
        path: PathBuf,
        /// The cause of the failure.
        source: FactsReadError,
    },
    /// An inputs file is invalid.
    #[error("{} is not an inputs file: {source}", path.display())]
    Inputs {
        /// The path of the file.
        path: PathBuf,
        /// The cause of the failure.
        source: InputsReadError,
    },
}

impl Bundle {
    /// The names of the files and directories that make up the record of a run.
    pub const PARTS: [&str; 3] = [MANIFEST, FEDERATION, FACTS];
    /// The directory with the output of the commands of a system and, in virtual time, the log of programs. It is no
    /// evidence.
    pub const LOGS: &str = "logs";

    /// Creates a bundle in `dir`, which may exist but must not contain a run. If several programs call this function at
    /// the same moment, it succeeds in only one of them.
    ///
    /// # Errors
    ///
    /// Returns [`BundleError::Occupied`] if `dir` contains a run, and [`BundleError::Create`] if it cannot be
    /// created.
    pub fn create(dir: impl Into<PathBuf>) -> Result<Bundle, BundleError> {
        let bundle = Bundle { dir: dir.into() };
        if bundle.holds_a_run() {
            return Err(BundleError::Occupied(bundle.dir));
        }
        let created = |path: PathBuf, result: io::Result<()>| {
            result.map_err(|source| BundleError::Create { path, source })
        };
        created(bundle.dir.clone(), fs::create_dir_all(&bundle.dir))?;
        // The operating system creates this directory for only one program, which thereby claims the bundle.
        match fs::create_dir(bundle.facts_dir()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(BundleError::Occupied(bundle.dir))
            }
            result => created(bundle.facts_dir(), result).map(|()| bundle),
        }
    }

    /// Returns whether the directory contains a run, complete or not.
    pub fn holds_a_run(&self) -> bool {
        self.manifest_path().exists() || self.facts_dir().exists()
    }

    /// Returns whether the directory has been claimed for a run of which nothing has been written yet.
    pub fn is_claimed_only(&self) -> bool {
        let is_empty = |dir: PathBuf| fs::read_dir(dir).is_ok_and(|mut it| it.next().is_none());
        !self.manifest_path().exists() && is_empty(self.facts_dir())
    }

    /// Removes the facts, the inputs, the logs, the federation file and the manifest, but not the directory. If the removal is
    /// cut short, the directory still counts as one that contains a run.
    ///
    /// # Errors
    ///
    /// Fails if a file or directory cannot be removed.
    pub fn clear(&self) -> Result<(), BundleError> {
        let gone = |path: PathBuf, removed: io::Result<()>| match removed {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(BundleError::Write { path, source })
            }
            _ => Ok(()),
        };
        for dir in [self.facts_dir(), self.dir.join(INPUTS), self.dir.join(Bundle::LOGS)] {
            gone(dir.clone(), fs::remove_dir_all(dir))?;
        }
        for file in [FEDERATION, EVENTS, MAPPING] {
            gone(self.dir.join(file), fs::remove_file(self.dir.join(file)))?;
        }
        gone(self.manifest_path(), fs::remove_file(self.manifest_path()))
    }

    /// Returns whether `path` is that of a file of the record, whether or not the file exists.
    pub fn contains(&self, path: &Path) -> bool {
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (Ok(dir), Ok(parent)) = (fs::canonicalize(&self.dir), fs::canonicalize(parent)) else {
            return false;
        };
        let name = path.file_name().unwrap_or_default();
        [FACTS, INPUTS].iter().any(|it| parent.starts_with(dir.join(it)))
            || parent == dir
                && [MANIFEST, FEDERATION, EVENTS, MAPPING, FACTS, INPUTS].iter().any(|it| name == *it)
    }

    /// Opens the bundle in `dir`. The content is checked only when it is read.
    pub fn open(dir: impl Into<PathBuf>) -> Bundle {
        Bundle { dir: dir.into() }
    }

    /// Returns the directory of the bundle.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the time at which a facts file was last written; `None` if there is none.
    pub fn last_written(&self) -> Option<SystemTime> {
        let files = self.facts_files().ok()?;
        files.iter().filter_map(|path| fs::metadata(path).ok()?.modified().ok()).max()
    }

    /// Returns the time at which the manifest was last written; `None` if there is none.
    pub fn described(&self) -> Option<SystemTime> {
        fs::metadata(self.manifest_path()).ok()?.modified().ok()
    }

    /// Returns whether a program of this machine writes to the directory, as far as locks show: programs that record runs
    /// lock it. `None` if the file system supports no locks.
    pub fn is_locked(&self) -> Option<bool> {
        match File::open(&self.dir).ok()?.try_lock_shared() {
            Ok(()) => Some(false),
            Err(TryLockError::WouldBlock) => Some(true),
            Err(TryLockError::Error(_)) => None,
        }
    }

    /// Returns the path of the file for the facts of one life, such as `facts/p3-1.facts` or
    /// `facts/supervisor-0.facts`.
    pub fn facts_path(&self, process: ProcessId, life: Life) -> PathBuf {
        self.facts_dir().join(file_of(process, life))
    }

    /// Creates the file for the facts of one life. The file must not exist yet.
    ///
    /// # Errors
    ///
    /// Fails if the file exists or cannot be created.
    pub fn facts_writer(&self, process: ProcessId, life: Life) -> Result<FactsWriter<File>, BundleError> {
        let path = self.facts_path(process, life);
        let begin = || {
            let mut writer = FactsWriter::new(File::create_new(&path)?, process, life);
            writer.flush()?;
            Ok(writer)
        };
        begin().map_err(|source| BundleError::Write { path: path.clone(), source })
    }

    /// Opens the file for the facts of one life, to append after the last complete record, and returns the
    /// facts so far. Removes the seal, if any.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, truncated or opened, or is not a facts file.
    pub fn facts_appender(
        &self,
        process: ProcessId,
        life: Life,
    ) -> Result<(FactsWriter<File>, Stream), BundleError> {
        let path = self.facts_path(process, life);
        let bytes = read_within(&path, u64::MAX)?;
        let facts = read_facts(&bytes).map_err(|source| BundleError::Facts { path: path.clone(), source })?;
        let open = || {
            let file = OpenOptions::new().append(true).open(&path)?;
            file.set_len(facts.len).map(|()| file)
        };
        let file = open().map_err(|source| BundleError::Write { path: path.clone(), source })?;
        let whole = &bytes[..facts.len as usize];
        Ok((FactsWriter::resume(file, whole, facts.stream.len() as u64), facts.stream))
    }

    /// Writes `piece` at byte `offset` of the file for the facts of one life. Intended for files that are received
    /// piece by piece.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened or written.
    pub fn write_facts_at(
        &self,
        process: ProcessId,
        life: Life,
        offset: u64,
        piece: &[u8],
    ) -> Result<(), BundleError> {
        let path = self.facts_path(process, life);
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(&path);
        file.and_then(|file| file.write_all_at(piece, offset))
            .map_err(|source| BundleError::Write { path, source })
    }

    /// Returns the path, within the bundle, of the output of the commands or programs of one life.
    pub fn log_path(name: &str, life: Life) -> PathBuf {
        Path::new(Bundle::LOGS).join(format!("{name}-{}.log", life.0))
    }

    /// Writes `piece` at byte `offset` of the output of the commands or programs of one life. The first piece replaces the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened or written.
    pub fn write_log_at(&self, name: &str, life: Life, offset: u64, piece: &[u8]) -> Result<(), BundleError> {
        let path = self.dir.join(Bundle::log_path(name, life));
        let write = || {
            fs::create_dir_all(self.dir.join(Bundle::LOGS))?;
            OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(offset == 0)
                .open(&path)?
                .write_all_at(piece, offset)
        };
        write().map_err(|source| BundleError::Write { path: path.clone(), source })
    }

    /// Returns the length of each file of facts in bytes.
    ///
    /// # Errors
    ///
    /// Fails if the directory of facts cannot be read.
    pub fn facts_lengths(&self) -> Result<Vec<(ProcessId, Life, u64)>, BundleError> {
        let files = self.facts_files()?;
        let length = |path: &PathBuf| {
            let (process, life) = life_of(path)?;
            Some((process, life, fs::metadata(path).ok()?.len()))
        };
        let mut lengths: Vec<_> = files.iter().filter_map(length).collect();
        lengths.sort_unstable();
        Ok(lengths)
    }

    /// Reads at most `most` bytes of the file for the facts of one life, from byte `offset` on.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn read_facts_at(
        &self,
        process: ProcessId,
        life: Life,
        offset: u64,
        most: usize,
    ) -> Result<Vec<u8>, BundleError> {
        let path = self.facts_path(process, life);
        let read = || {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut piece = Vec::new();
            file.take(most as u64).read_to_end(&mut piece).map(|_| piece)
        };
        read().map_err(|source| BundleError::Read { path: path.clone(), source })
    }

    /// Seals the facts of a life that has ended, unless they are already sealed. Removes an incomplete record at the
    /// end: the process was killed while writing it, so the fact had no effect yet. `incomplete` means that the life
    /// may have reported facts that are missing from the file.
    ///
    /// If the file is missing or has no valid header, writes one without facts. If the old file was longer than a
    /// header, the seal states that facts may be missing. A shorter file lacks no facts: its process was killed while
    /// it wrote the header.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or written.
    ///
    /// # Panics
    ///
    /// Panics if a stream that was just written to memory cannot be read, which only a bug can cause.
    pub fn seal(&self, process: ProcessId, life: Life, mut incomplete: bool) -> Result<(), BundleError> {
        let path = self.facts_path(process, life);
        let mut bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|source| BundleError::Read { path: path.clone(), source })?,
        };
        let mut kept = bytes.len();
        let file = match read_facts(&bytes) {
            Ok(file) => file,
            Err(_) => {
                incomplete |= bytes.len() > HEADER_LEN;
                kept = 0;
                bytes.clear();
                let mut writer = FactsWriter::new(&mut bytes, process, life);
                writer.flush().expect("memory accepts every write");
                read_facts(&bytes).expect("it was just written")
            }
        };
        let Some(seal) = seal_of(&bytes, &file, incomplete) else { return Ok(()) };
        bytes.truncate(file.len as usize);
        kept = kept.min(bytes.len());
        bytes.extend(seal.to_bytes());
        let write = || {
            let file = OpenOptions::new().create(true).write(true).truncate(false).open(&path)?;
            file.set_len(kept as u64)?;
            file.write_all_at(&bytes[kept..], kept as u64)
        };
        write().map_err(|source| BundleError::Write { path: path.clone(), source })
    }

    /// Enables input recording: this run's drivers record the inputs of every process that starts after this call.
    ///
    /// # Errors
    ///
    /// Fails if the directory of inputs cannot be created.
    pub fn record_inputs(&self) -> Result<(), BundleError> {
        let path = self.dir.join(INPUTS);
        fs::create_dir_all(&path).map_err(|source| BundleError::Create { path, source })
    }

    /// Returns whether the inputs of processes are recorded.
    pub fn records_inputs(&self) -> bool {
        self.dir.join(INPUTS).is_dir()
    }

    /// Returns the path of the file for the inputs of one life, such as `inputs/p3-1.inputs`.
    pub fn inputs_path(&self, process: ProcessId, life: Life) -> PathBuf {
        self.dir.join(INPUTS).join(format!("{process}-{}.{INPUTS}", life.0))
    }

    /// Creates the file for the inputs of one life. The file must not exist yet.
    ///
    /// # Errors
    ///
    /// Fails if the file exists or cannot be created.
    pub fn inputs_writer(&self, process: ProcessId, life: Life) -> Result<InputsWriter<File>, BundleError> {
        let path = self.inputs_path(process, life);
        let file = File::create_new(&path).map_err(|source| BundleError::Write { path, source })?;
        Ok(InputsWriter::new(file, process, life))
    }

    /// Reads the inputs of a life from a file of at most `most` bytes; `None` if the life was killed before anything was
    /// written.
    ///
    /// # Errors
    ///
    /// Fails if the file is larger, cannot be read, or is not an inputs file.
    pub fn read_inputs<P: Process>(
        &self,
        process: ProcessId,
        life: Life,
        most: u64,
    ) -> Result<Option<InputsFile<P>>, BundleError> {
        let path = self.inputs_path(process, life);
        let bytes = read_within(&path, most)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        read_inputs(&bytes).map(Some).map_err(|source| BundleError::Inputs { path, source })
    }

    /// Writes all streams of `trace` to files, and seals them.
    ///
    /// # Errors
    ///
    /// Fails if a file exists or cannot be written.
    pub fn write_trace(&self, trace: &Trace) -> Result<(), BundleError> {
        for (&(process, life), stream) in &trace.streams {
            let mut writer = self.facts_writer(process, life)?;
            let mut write_all = || {
                stream.iter().try_for_each(|(at, fact)| writer.write(*at, fact))?;
                writer.seal()
            };
            write_all()
                .map_err(|source| BundleError::Write { path: self.facts_path(process, life), source })?;
        }
        Ok(())
    }

    /// Writes the events from which the record is imported, and the text of their mapping, if any.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be written.
    pub fn write_events(&self, events: &[u8], mapping: Option<&str>) -> Result<(), BundleError> {
        if let Some(mapping) = mapping {
            replace(&self.dir.join(MAPPING), mapping.as_bytes())?;
        }
        replace(&self.dir.join(EVENTS), events)
    }

    /// Reads the events from which the record was imported, and the text of their mapping, if any.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read, or is too large.
    pub fn read_events(&self) -> Result<(Vec<u8>, Option<String>), BundleError> {
        let events = read_within(&self.dir.join(EVENTS), crate::import::MOST_BYTES)?;
        let mapping = self.dir.join(MAPPING);
        let mapping = if mapping.exists() { Some(read(&mapping)?) } else { None };
        Ok((events, mapping.map(|it| String::from_utf8_lossy(&it).into_owned())))
    }

    /// Returns the paths of all files in the directory of facts.
    fn facts_files(&self) -> Result<Vec<PathBuf>, BundleError> {
        let dir = self.facts_dir();
        let unreadable = |source| BundleError::Read { path: dir.clone(), source };
        let mut files = Vec::new();
        for entry in fs::read_dir(&dir).map_err(unreadable)? {
            files.push(entry.map_err(unreadable)?.path());
        }
        Ok(files)
    }

    fn facts_dir(&self) -> PathBuf {
        self.dir.join(FACTS)
    }

    fn manifest_path(&self) -> PathBuf {
        self.dir.join(MANIFEST)
    }
}

/// Returns the name of the file with the facts of a life.
fn file_of(process: ProcessId, life: Life) -> String {
    match process {
        ProcessId::SUPERVISOR => format!("supervisor-{}.{FACTS_EXTENSION}", life.0),
        _ => format!("{process}-{}.{FACTS_EXTENSION}", life.0),
    }
}

/// Returns the life to which a facts file belongs, according to its name.
fn life_of(path: &Path) -> Option<(ProcessId, Life)> {
    path.extension().filter(|extension| *extension == FACTS_EXTENSION)?;
    let (process, life) = path.file_stem()?.to_str()?.rsplit_once('-')?;
    let process = match process {
        "supervisor" => ProcessId::SUPERVISOR,
        other => ProcessId(other.strip_prefix('p')?.parse().ok()?),
    };
    let life = Life(life.parse().ok()?);
    // Rejects names that `file_of` never produces, such as those with leading zeros.
    (path.file_name()?.to_str()? == file_of(process, life)).then_some((process, life))
}

/// The largest size of a file that describes a run, in bytes.
const LONGEST_DESCRIPTION: u64 = 64 << 20;

/// Reads a file that describes a run.
fn read(path: &Path) -> Result<Vec<u8>, BundleError> {
    read_within(path, LONGEST_DESCRIPTION)
}

/// Reads a file of the record that has at most this many bytes. Fails for anything other than a file, such as a pipe,
/// which could block forever.
fn read_within(path: &Path, most: u64) -> Result<Vec<u8>, BundleError> {
    let unreadable = |source| BundleError::Read { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    if metadata.len() > most {
        return Err(BundleError::TooLarge { path: path.to_owned(), bytes: metadata.len(), most });
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    // The file may grow while it is read.
    file.take(most).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// Replaces a file atomically: a reader sees either the old or the new content.
fn replace(path: &Path, content: &[u8]) -> Result<(), BundleError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".draft");
    fs::write(&draft, content)
        .and_then(|()| fs::rename(&draft, path))
        .map_err(|source| BundleError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Manifest;
    use crate::manifest::FactsEntry;
    use crate::manifest::tests::example;
    use crate::memory::{Record, Sink};
    use crate::{FlawKind, SealedBy};
    use faultline_core::{Fact, FactNo, Time};

    pub(super) fn trace() -> Trace {
        let mut trace = Trace::default();
        for (process, life) in
            [(ProcessId(0), Life(1)), (ProcessId(0), Life(2)), (ProcessId::SUPERVISOR, Life(0))]
        {
            for number in 0..3 {
                let fact = match process {
                    ProcessId::SUPERVISOR => Fact::Detected { process: ProcessId(0), life: Life(number) },
                    _ => Fact::Computed { since: FactNo((life.0 + number).into()) },
                };
                trace.record(Record {
                    process,
                    life,
                    number: FactNo(number.into()),
                    at: Time(number.into()),
                    fact,
                });
            }
        }
        trace
    }

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Bundle::create(dir.path().join("new/run")).unwrap();
        bundle.write_manifest(&Manifest { outcome: None, ..example() }).unwrap();
        bundle.write_trace(&trace()).unwrap();
        bundle.write_manifest(&example()).unwrap();

        let bundle = Bundle::open(dir.path().join("new/run"));
        let manifest = bundle.read_manifest().unwrap();
        assert_eq!(manifest.facts.len(), trace().streams.len());
        let sealed =
            |entry: &FactsEntry| entry.seal.is_some_and(|it| (it.by, it.facts) == (SealedBy::Process, 3));
        assert!(manifest.facts.iter().all(sealed), "{:?}", manifest.facts);
        assert_eq!(Manifest { facts: Vec::new(), ..manifest }, example());
        assert_eq!(bundle.read_trace().unwrap(), trace());
        assert!(matches!(Bundle::create(bundle.dir()), Err(BundleError::Occupied(_))));
        assert!(bundle.holds_a_run());
        fs::create_dir(bundle.dir().join(INPUTS)).unwrap();
        bundle.clear().unwrap();
        assert!(!bundle.holds_a_run() && !bundle.records_inputs());
        Bundle::create(bundle.dir()).unwrap();
    }

    #[test]
    fn a_bundle_is_created_by_one_of_many() {
        for _ in 0..100 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("run");
            let created: Vec<_> = std::thread::scope(|scope| {
                let creating: Vec<_> = (0..8).map(|_| scope.spawn(|| Bundle::create(&path))).collect();
                creating.into_iter().map(|it| it.join().unwrap()).collect()
            });
            assert_eq!(created.iter().filter(|it| it.is_ok()).count(), 1, "{created:?}");
            assert!(
                created.iter().all(|it| matches!(it, Ok(_) | Err(BundleError::Occupied(_)))),
                "{created:?}"
            );
        }
    }

    #[test]
    fn errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Bundle::open(dir.path());
        assert!(bundle.read_manifest().unwrap_err().to_string().contains("manifest.json"));
        fs::write(dir.path().join("manifest.json"), r#"{"format": 99}"#).unwrap();
        let error = bundle.read_manifest().unwrap_err().to_string();
        assert!(error.contains("manifest.json has format version 99"), "{error}");
        fs::create_dir(dir.path().join("facts")).unwrap();
        fs::write(dir.path().join("facts/p0-1.facts"), "not facts, but a story").unwrap();
        let flaws = bundle.read_trace().unwrap().flaws;
        assert!(matches!(&flaws[0].kind, FlawKind::Unreadable(_)), "{flaws:?}");
    }
}
