//! A command with the files that it needs, and its executions. An execution is kept for later lives and, on the same
//! thread, for later runs, because starting an interpreter takes much longer than answering an event.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use faultline_core::{BreakageKind, ProcessId};

use crate::contract::{Event, Hello, VERSION, Want, read};
use crate::guard;
use crate::pipe::{self, Failure, Pipe, is_object, quoted};

/// The time in which a program must answer the first event.
const HELLO_WITHIN: Duration = Duration::from_secs(30);
/// The maximum number of executions that a thread keeps.
const MOST_KEPT: usize = 64;

/// What a program is to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its protocol.
    Protocol,
    /// Its application.
    Application,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Protocol => "protocol",
            Kind::Application => "application",
        }
    }
}

/// A command that speaks the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// What the program is.
    pub kind: Kind,
    /// Name of the program in messages.
    pub name: Arc<str>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The content of each file in its working directory, by relative path.
    pub files: Vec<(String, String)>,
    /// Environment variables, in addition to those of Faultline itself.
    pub env: Vec<(String, String)>,
    /// The time in which it must answer an event.
    pub answer_within: Duration,
}

/// The reason why a program cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {what}")]
pub struct StartError {
    /// Name of the program.
    pub name: Arc<str>,
    /// What is wrong, as a predicate.
    pub what: String,
    /// The suggested fix.
    pub help: String,
    pub(crate) kind: BreakageKind,
    pub(crate) log: Arc<[Arc<str>]>,
}

/// One execution of a program, which has agreed on a version of the contract.
#[derive(Debug)]
pub(crate) struct Execution {
    executable: Arc<Executable>,
    pub(crate) pipe: Pipe,
    wants: Vec<Want>,
}

/// The directory for the files of programs, in the program of a single process.
static HOSTED: OnceLock<PathBuf> = OnceLock::new();
/// The directory in which those of programs are created, instead of that of temporary files.
static BASE: OnceLock<PathBuf> = OnceLock::new();
/// The directory that contains those of all programs.
static ROOT: Mutex<Option<PathBuf>> = Mutex::new(None);
/// The directories of programs that were started before.
static DIRECTORIES: Mutex<Vec<(Executable, PathBuf)>> = Mutex::new(Vec::new());
static IS_FRESH: AtomicBool = AtomicBool::new(false);

thread_local! {
    static KEPT: RefCell<Vec<(ProcessId, Execution)>> = const { RefCell::new(Vec::new()) };
    static IS_EXCHANGED: Cell<bool> = const { Cell::new(false) };
}

/// States that this program is a single process of a federation. Its programs then share its process group, so that
/// they end with it, their logs become part of its own, and their files are in `dir`.
pub fn host_in(dir: PathBuf) {
    drop(HOSTED.set(dir));
}

/// Creates the directories of programs in `dir`, where that of temporary files may not be writable.
pub fn store_in(dir: PathBuf) {
    drop(BASE.set(dir));
}

pub(crate) fn is_hosted() -> bool {
    HOSTED.get().is_some()
}

/// Never uses an execution for a second life.
pub fn never_reuse() {
    IS_FRESH.store(true, Ordering::Relaxed);
}

/// Calls `work`, in which this thread prefers to use the executions that served other processes before. A program that
/// remembers an earlier life then acts differently.
pub fn with_exchanged_executions<T>(work: impl FnOnce() -> T) -> T {
    let before = IS_EXCHANGED.replace(true);
    let result = work();
    IS_EXCHANGED.set(before);
    result
}

/// Ends all programs that were started, and removes their files. Must be called before this program exits.
pub fn end_all() {
    pipe::end_all();
    guard::end();
    DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner).clear();
    // Without a guard, nothing else has removed it.
    if let Some(root) = ROOT.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = fs::remove_dir_all(&root);
        // The directory of all processes of a run, once it is empty.
        let _ = root.parent().filter(|_| is_hosted()).map(fs::remove_dir);
    }
}

/// Returns the directory that contains those of all programs of this process, and lets the guard remove it.
fn root() -> io::Result<PathBuf> {
    let mut root = ROOT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(root) = root.as_ref().filter(|it| it.exists()) {
        return Ok(root.clone());
    }
    let dir = match HOSTED.get() {
        Some(dir) => fs::create_dir_all(dir).map(|()| dir.clone())?,
        None => temporary_dir()?,
    };
    // A program states absolute paths in its log.
    let dir = dir.canonicalize()?;
    guard::start(&dir);
    Ok(root.insert(dir).clone())
}

fn temporary_dir() -> io::Result<PathBuf> {
    let base = BASE.get().cloned().unwrap_or_else(std::env::temp_dir);
    let mut number = 0;
    loop {
        let name = format!("faultline-programs-{}-{number}", std::process::id());
        let dir = base.join(name);
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            done => return done.map(|()| dir),
        }
    }
}

impl Executable {
    /// Starts the program, unless this thread has an unused execution, and keeps the execution for the next life.
    ///
    /// # Errors
    ///
    /// Fails if the program cannot be started, or does not speak this version of the contract.
    pub fn prepare(self: &Arc<Self>) -> Result<(), StartError> {
        let execution = Execution::take(ProcessId(0), self)?;
        execution.keep(ProcessId(0));
        Ok(())
    }

    /// Returns the directory with the program's files, after writing them if necessary.
    fn directory(&self) -> io::Result<PathBuf> {
        let mut directories = DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, dir)) = directories.iter().find(|(it, _)| it.files == self.files) {
            return Ok(dir.clone());
        }
        let dir = root()?.join(directories.len().to_string());
        self.write_files(&dir)?;
        directories.push((self.clone(), dir.clone()));
        Ok(dir)
    }

    fn write_files(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        for (name, content) in &self.files {
            let path = dir.join(name);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&path, content)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    fn error(&self, kind: BreakageKind, what: String, help: &str) -> StartError {
        StartError { name: self.name.clone(), what, help: help.to_owned(), kind, log: [].into() }
    }
}

impl Execution {
    /// Returns an execution that no life uses. Prefers one that an earlier life of this process used, or of another
    /// process if executions are exchanged.
    pub(crate) fn take(process: ProcessId, executable: &Arc<Executable>) -> Result<Execution, StartError> {
        if IS_FRESH.load(Ordering::Relaxed) {
            return Execution::start(executable);
        }
        let kept = KEPT.with_borrow_mut(|kept| {
            let fits = |it: &(ProcessId, Execution)| *it.1.executable == **executable;
            let is_exchanged = IS_EXCHANGED.get();
            let preferred = kept.iter().position(|it| (it.0 == process) != is_exchanged && fits(it));
            preferred.or_else(|| kept.iter().position(fits)).map(|at| kept.swap_remove(at).1)
        });
        kept.map_or_else(|| Execution::start(executable), Ok)
    }

    /// Keeps an execution that its life no longer uses.
    pub(crate) fn keep(self, process: ProcessId) {
        if IS_FRESH.load(Ordering::Relaxed) || is_hosted() {
            return;
        }
        // A thread that is ending keeps nothing.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() == MOST_KEPT {
                kept.remove(0);
            }
            kept.push((process, self));
        });
    }

    pub(crate) fn wants(&self, want: Want) -> bool {
        self.wants.contains(&want)
    }

    fn start(executable: &Arc<Executable>) -> Result<Execution, StartError> {
        let command = executable.command.first().map_or("", String::as_str);
        let dir = executable.directory().map_err(|error| {
            let what = format!("cannot be started: its files cannot be written: {error}");
            executable.error(
                BreakageKind::NotStarted,
                what,
                "check the names of `files`, and the free space of the temporary directory",
            )
        })?;
        let pipe = Pipe::start(executable, &dir).map_err(|error| {
            let (why, help) = match error.kind() {
                ErrorKind::NotFound => (
                    format!("`{command}` was not found"),
                    "is it in PATH? `files` are in the working directory",
                ),
                _ => (format!("`{command}`: {error}"), "check that the command is an executable program"),
            };
            executable.error(BreakageKind::NotStarted, format!("cannot be started: {why}"), help)
        })?;
        let mut execution = Execution { executable: executable.clone(), pipe, wants: Vec::new() };
        match execution.greet() {
            Ok(wants) => Ok(Execution { wants, ..execution }),
            Err(Failure { kind, what }) => {
                let log = execution.pipe.log();
                let help = "write one line of JSON for each line that arrives (docs/programs.md)";
                let what = what.replacen("{}", "the first event (`hello`)", 1);
                Err(StartError { log, ..executable.error(kind, what, help) })
            }
        }
    }

    /// Agrees with the program on a version of the contract.
    fn greet(&mut self) -> Result<Vec<Want>, Failure> {
        let hello = Event::untimed(0, "hello").json("contract", &format!("[{VERSION}]"));
        let hello = hello
            .word("kind", self.executable.kind.name())
            .word("faultline", env!("CARGO_PKG_VERSION"))
            .line();
        let within = self.executable.answer_within.max(HELLO_WITHIN);
        let reply = self.pipe.exchange(&hello, Some(within))?;
        let wrong = |what: String| Failure { kind: BreakageKind::Contract, what };
        let hello: Hello = read(reply).map_err(|why| wrong(not_a_reply(reply, &why)))?;
        match hello {
            Hello { n: 0, contract: VERSION, wants } => Ok(wants),
            Hello { n: 0, contract, .. } => Err(wrong(format!(
                "speaks version {contract} of the contract; this Faultline speaks {VERSION}"
            ))),
            Hello { n, .. } => {
                Err(wrong(format!("broke the contract at {{}}: its reply has `n` {n} instead of 0")))
            }
        }
    }
}

/// Returns the first word outside strings with which some languages write a number that is not finite.
fn not_finite(reply: &str) -> Option<&'static str> {
    let mut rest = reply;
    let mut is_text = false;
    while let Some(next) = rest.chars().next() {
        match next {
            '\\' if is_text => rest = rest.get(1..).unwrap_or_default(),
            '"' => is_text = !is_text,
            _ if !is_text => {
                if let Some(word) = ["NaN", "Infinity"].into_iter().find(|it| rest.starts_with(it)) {
                    return Some(word);
                }
            }
            _ => {}
        }
        rest = rest.get(next.len_utf8()..).unwrap_or_default();
    }
    None
}

/// Describes a reply that cannot be read.
pub(crate) fn not_a_reply(reply: &str, why: &str) -> String {
    match is_object(reply.as_bytes()) {
        true => format!("broke the contract at {{}}: {why}"),
        false if let Some(word) = not_finite(reply) => format!(
            "broke the contract at {{}}: its reply contains `{word}`, which is not a number in JSON: `{}`",
            quoted(reply)
        ),
        false => format!("broke the contract at {{}}: its reply is not a JSON object: `{}`", quoted(reply)),
    }
}
