//! The mutated copy of the workspace, in `target/mutants`, and its build.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel};
use cargo_metadata::{Artifact, Message};

use super::operators::{Site, mutate};
use crate::{Repository, sources};

/// The crates whose code is mutated. All of them depend on the first.
const MUTATED: &[&str] = &["core", "dataflow", "protocols", "supervisor"];

/// Tests of other crates that run mutated code and take seconds: the crate, the program, and the modules.
const OTHER_TESTS: &[(&str, &str, &[&str])] = &[
    ("fuzz", "searches", &["found::", "schedules::"]),
    ("session", "sessions", &["flips::", "golden::", "late_checkpoints::", "one_result::"]),
    ("sim", "cck", &["cases::"]),
    ("sim", "conformance", &[]),
    ("sim", "tasks", &["cases::"]),
];

/// Files that only describe values, to people and in reports.
const DESCRIPTIVE: &[&str] =
    &["crates/core/src/footprint.rs", "crates/core/src/names.rs", "crates/core/src/text.rs"];

/// The module that the copy of `faultline-core` contains in addition: it reads which mutant is active from the
/// environment, and records which mutants a program reaches.
const SWITCH: &str = r#"
#![allow(warnings)]
extern crate std;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::{io::Write, string::ToString};

use crate::{id::ProcessId, process::To};

const UNKNOWN: u32 = u32::MAX;
const NONE: u32 = u32::MAX - 1;
const RECORDING: u32 = u32::MAX - 2;

static ACTIVE: AtomicU32 = AtomicU32::new(UNKNOWN);
static REACHED: [AtomicBool; 1 << 14] = [const { AtomicBool::new(false) }; 1 << 14];

#[inline]
pub fn is_active(mutant: u32) -> bool {
    let active = ACTIVE.load(Relaxed);
    active == mutant || (active >= RECORDING && is_first(active, mutant))
}

#[cold]
fn is_first(active: u32, mutant: u32) -> bool {
    let active = if active != UNKNOWN { active } else {
        let number = std::env::var("FAULTLINE_MUTANT").ok().and_then(|it| it.parse().ok());
        let recorded = std::env::var_os("FAULTLINE_REACHED").map_or(NONE, |_| RECORDING);
        ACTIVE.store(number.unwrap_or(recorded), Relaxed);
        number.unwrap_or(recorded)
    };
    if active == RECORDING && !REACHED[mutant as usize].swap(true, Relaxed) {
        let path = std::env::var_os("FAULTLINE_REACHED").unwrap();
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        file.unwrap().write_all((mutant.to_string() + "\n").as_bytes()).unwrap();
    }
    active == mutant
}

pub fn recipient<T: Recipient>(to: T, wrong: bool) -> T {
    if wrong { to.other() } else { to }
}

pub trait Recipient {
    fn other(self) -> Self;
}

impl Recipient for ProcessId {
    fn other(self) -> ProcessId {
        ProcessId(if self.0 == 0 { 1 } else { self.0 - 1 })
    }
}

impl Recipient for To {
    fn other(self) -> To {
        match self {
            To::One(it) => To::One(it.other()),
            cluster => cluster,
        }
    }
}
"#;

/// A mutant: its site, and the file that contains it.
pub(super) struct Mutant {
    pub(super) number: usize,
    /// The path of the file in the repository.
    pub(super) file: String,
    pub(super) site: Site,
}

/// The mutated copy.
pub(super) struct Scratch<'a> {
    repository: &'a Repository,
    root: PathBuf,
    /// The numbers of mutants that do not compile.
    unviable: BTreeSet<usize>,
    mutants: Vec<Mutant>,
}

/// The programs of the mutated copy.
pub(super) struct Programs {
    /// Runs schedules.
    pub(super) schedules: PathBuf,
    pub(super) tests: Vec<Test>,
}

/// A program that runs tests.
pub(super) struct Test {
    pub(super) program: PathBuf,
    /// The directory of the crate, in which the program runs.
    pub(super) directory: PathBuf,
    /// The beginnings of the tests' names; empty for all tests of the program.
    pub(super) modules: &'static [&'static str],
}

/// A program that Cargo has built.
struct Built {
    /// The name of the target.
    name: String,
    path: PathBuf,
    directory: PathBuf,
}

impl<'a> Scratch<'a> {
    /// Writes the copy. Files that have not changed since the last copy keep their times, so that Cargo builds only what
    /// has changed.
    pub(super) fn write(repository: &'a Repository) -> Result<Scratch<'a>, Box<dyn Error>> {
        let root = repository.root.join("target/mutants");
        let kept: BTreeSet<PathBuf> = sources::files(repository)?.into_iter().collect();
        for file in &kept {
            if !is_mutated(file) {
                replace(&root.join(file), &fs::read(repository.root.join(file))?)?;
            }
        }
        let mut scratch = Scratch { repository, root, unviable: BTreeSet::new(), mutants: Vec::new() };
        scratch.mutate()?;
        Ok(scratch)
    }

    /// Returns the mutants that compile.
    pub(super) fn viable(&self) -> impl Iterator<Item = &Mutant> {
        self.mutants.iter().filter(|it| !self.unviable.contains(&it.number))
    }

    fn mutate(&mut self) -> Result<(), Box<dyn Error>> {
        self.mutants.clear();
        for file in sources::files(self.repository)?.iter().filter(|it| is_mutated(it)) {
            let source = fs::read_to_string(self.repository.root.join(file))?;
            let (mut text, sites) = mutate(&source, self.mutants.len(), &self.unviable)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            if file.ends_with("src/lib.rs") {
                text.insert_str(0, "#![allow(warnings)]\n");
            }
            if file == Path::new("crates/core/src/lib.rs") {
                text.push_str("\nextern crate self as faultline_core; pub mod mutants;\n");
            }
            replace(&self.root.join(file), text.as_bytes())?;
            for site in sites {
                let number = self.mutants.len();
                self.mutants.push(Mutant { number, file: file.display().to_string(), site });
            }
        }
        replace(&self.root.join("crates/core/src/mutants.rs"), SWITCH.as_bytes())
    }

    /// Builds the programs, with the tests if they are wanted. Leaves out mutants that do not compile.
    pub(super) fn build(&mut self, wants_tests: bool) -> Result<Programs, Box<dyn Error>> {
        let of = |names: &mut dyn Iterator<Item = &str>| -> Vec<String> {
            names.map(|it| format!("--package=faultline-{it}")).collect()
        };
        let mutated = of(&mut MUTATED.iter().copied());
        self.compile("check", &with(&mutated, &["--lib"]))?;
        let packages = of(&mut ["fuzz", "features"].into_iter());
        let built = self.compile("build", &with(&packages, &["--example=schedules"]))?;
        let schedules = built.into_iter().next().ok_or("Cargo names no program `schedules`")?.path;
        let mut tests = Vec::new();
        if wants_tests {
            tests.extend(self.compile("build", &with(&mutated, &["--tests"]))?);
            let others = OTHER_TESTS.iter().map(|it| it.0).collect::<BTreeSet<_>>();
            let packages = of(&mut others.into_iter().chain(["features"]));
            let targets: Vec<&str> = OTHER_TESTS.iter().flat_map(|it| ["--test", it.1]).collect();
            tests.extend(self.compile("build", &with(&packages, &targets))?);
        }
        let modules = |it: &Built| {
            let listed = OTHER_TESTS.iter().find(|(package, name, _)| {
                it.name == *name && it.directory.ends_with(Path::new("crates").join(package))
            });
            listed.map_or(&[][..], |it| it.2)
        };
        let tests = tests
            .into_iter()
            .map(|it| Test { modules: modules(&it), program: it.path, directory: it.directory })
            .collect();
        Ok(Programs { schedules, tests })
    }

    /// Has Cargo compile until no mutant prevents it, and returns the programs.
    fn compile(&mut self, command: &str, arguments: &[String]) -> Result<Vec<Built>, Box<dyn Error>> {
        loop {
            let (programs, errors) = self.cargo(command, arguments)?;
            if errors.is_empty() {
                return Ok(programs);
            }
            let known = self.unviable.len();
            for error in &errors {
                self.unviable.extend(self.culprits(error)?);
            }
            if self.unviable.len() == known {
                let texts: Vec<&str> = errors.iter().map(|it| it.message.as_str()).collect();
                return Err(format!("the mutated copy does not compile: {}", texts.join("; ")).into());
            }
            eprintln!("{} mutants do not compile", self.unviable.len());
            self.mutate()?;
        }
    }

    fn cargo(
        &self,
        command: &str,
        arguments: &[String],
    ) -> Result<(Vec<Built>, Vec<Diagnostic>), Box<dyn Error>> {
        let mut cargo = Command::new("cargo");
        cargo.arg(command).args(["--quiet", "--keep-going", "--message-format=json"]).args(arguments);
        // In the repository's own target directory, Cargo would take the mutated packages for the repository's.
        cargo.env("CARGO_TARGET_DIR", self.root.join("target")).env("CARGO_INCREMENTAL", "0");
        cargo.current_dir(&self.root).stdout(Stdio::piped());
        let mut child = cargo.spawn()?;
        let output = child.stdout.take().ok_or("Cargo has no output")?;
        let (mut programs, mut errors) = (Vec::new(), Vec::new());
        for message in Message::parse_stream(BufReader::new(output)) {
            match message? {
                Message::CompilerArtifact(it) => programs.extend(built(it)),
                Message::CompilerMessage(it) if it.message.level == DiagnosticLevel::Error => {
                    errors.push(it.message);
                }
                _ => {}
            }
        }
        match (child.wait()?.success(), errors.is_empty()) {
            (false, true) => Err(format!("`cargo {command}` failed in {}", self.root.display()).into()),
            _ => Ok((programs, errors)),
        }
    }

    /// Returns the mutants that are the closest before the places that an error names.
    fn culprits(&self, error: &Diagnostic) -> Result<BTreeSet<usize>, Box<dyn Error>> {
        let mut culprits = BTreeSet::new();
        for span in error.spans.iter().filter(|it| it.is_primary) {
            let text = fs::read_to_string(self.root.join(&span.file_name))?;
            // A place inside the condition of a switch belongs to this switch.
            let end = text.len().min(span.byte_end as usize + "is_active (00000".len());
            let before = text.get(..end).unwrap_or(&text);
            let numbers = before.rsplit_once("is_active (").map(|it| it.1);
            let digits = numbers.map(|it| it.split("u32").next().unwrap_or_default().trim());
            culprits.extend(digits.and_then(|it| it.parse::<usize>().ok()));
        }
        Ok(culprits)
    }
}

fn with(packages: &[String], others: &[&str]) -> Vec<String> {
    packages.iter().cloned().chain(others.iter().map(|&it| it.to_owned())).collect()
}

/// Returns the program that Cargo has built, if the artifact is one.
fn built(artifact: Artifact) -> Option<Built> {
    let path = artifact.executable?.into();
    let directory = artifact.manifest_path.parent()?.into();
    Some(Built { name: artifact.target.name, path, directory })
}

/// Returns whether a file's code is mutated.
fn is_mutated(file: &Path) -> bool {
    let is_source = |name| file.starts_with(Path::new("crates").join(name).join("src"));
    MUTATED.iter().any(is_source)
        && file.extension().is_some_and(|it| it == "rs")
        && !sources::is_for_tests(file)
        && !DESCRIPTIVE.iter().any(|it| file == Path::new(it))
}

/// Writes a file unless it already has this content.
fn replace(path: &Path, content: &[u8]) -> Result<(), Box<dyn Error>> {
    if fs::read(path).is_ok_and(|it| it == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().ok_or("a file has a directory")?)?;
    Ok(fs::write(path, content)?)
}
