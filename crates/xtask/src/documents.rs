//! Runs the commands that README.md and `docs/` print, so that no document contains a command that fails.
//!
//! Each document has a scratch directory, in which its `sh` blocks run command by command, in order, as printed, with
//! the directory given by `--programs` on the `PATH`. `DIR` represents the newest record in the scratch directory.
//!
//! A `text` block after an `sh` block shows an excerpt of the output of its commands. If all of them ran as printed, each
//! line of the excerpt must be a line of the output, in the same order. Only the width of gaps may differ. An ellipsis
//! stands for the rest of a line or, on a line of its own, for any number of lines. Each cell of a table that follows the
//! words "prints:" or "prints …:" must be a part of the output.
//!
//! Commands that need a Kubernetes cluster run if `FAULTLINE_E2E_KUBECONFIG` selects one. [`EXCEPTIONS`] lists the commands that run in another form or elsewhere. An exception that matches no command is an
//! error.
//!
//! The commands of up to [`PARALLEL`] documents run at the same time.

mod exceptions;

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Instant, SystemTime};

use crate::Repository;
use exceptions::Instead::{After, AsRoot, In, OnCluster, Run, Unknown};
use exceptions::{EXCEPTIONS, Instead, KUBECONFIG, PRINTED};

/// The maximum number of attempts at a command that exits with status 3, because the verdict of a run on a busy machine
/// can be `unknown`. From the second attempt on, no other command runs at the same time.
const ATTEMPTS: usize = 3;
/// A command locks this for reading, or for writing if it must run alone.
static MACHINE: RwLock<()> = RwLock::new(());
const UNKNOWN: i32 = 3;

/// A command as printed in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Printed {
    /// The number of the command's first line, from 1.
    line: usize,
    /// The whole text, with several lines if the command continues.
    text: String,
    /// The number of the `sh` block.
    block: usize,
    /// The excerpts from the output of the block that follow this command, which is its last.
    shown: Vec<Excerpt>,
}

/// An excerpt from the output of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Excerpt {
    /// The number of the first line, from 1.
    line: usize,
    text: String,
    /// Whether the excerpt is a table of values, rather than lines of the output.
    is_table: bool,
}

impl Excerpt {
    /// Returns the number and the text of the first line or cell that is missing in the output.
    fn missing_in(&self, output: &str) -> Option<(usize, String)> {
        let shown = (self.line..).zip(self.text.lines());
        if self.is_table {
            let output = normal(output);
            // The first two rows contain the titles, and a rule below them.
            let cells =
                shown.skip(2).flat_map(|(line, row)| row.split('|').map(move |it| (line, normal(it))));
            return cells.into_iter().find(|(_, cell)| !output.contains(cell.as_str()));
        }
        let mut rest = output.lines().map(normal);
        let mut lines = shown.map(|(line, text)| (line, normal(text)));
        lines.find(|(_, line)| match line.strip_suffix('…') {
            Some("") => false,
            Some(begin) => !rest.any(|it| it.starts_with(begin)),
            None => !line.is_empty() && !rest.any(|it| it == *line),
        })
    }
}

/// Returns a line with single spaces between words.
fn normal(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The number of documents whose commands run at the same time. Many commands only wait for processes or slow links, so
/// this saves time.
const PARALLEL: usize = 2;

/// Runs the commands of all documents, or of those whose names contain one of `only`.
pub(crate) fn run(repository: &Repository, programs: &Path, only: &[String]) -> Result<(), Box<dyn Error>> {
    let programs = programs.canonicalize().map_err(|error| {
        format!("cannot find the programs in {}: {error}; build them first", programs.display())
    })?;
    let mut documents = documents(&repository.root)?;
    documents.retain(|name| only.is_empty() || only.iter().any(|it| name.contains(it.as_str())));
    let pending = Mutex::new(documents.iter());
    let work = || {
        let mut performed = Vec::new();
        loop {
            let next = pending.lock().expect("no thread panics while it takes a document").next();
            let Some(document) = next else { return Ok(performed) };
            performed.push(perform(repository, &programs, document)?);
        }
    };
    let results: Vec<Result<Vec<Performed>, String>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..PARALLEL).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|it| it.join().expect("no thread panics")).collect()
    });
    let mut performed = Vec::new();
    for result in results {
        performed.extend(result?);
    }
    let ran: usize = performed.iter().map(|it| it.ran).sum();
    let elsewhere: usize = performed.iter().map(|it| it.elsewhere).sum();
    let mut failed: Vec<String> = performed.iter().flat_map(|it| it.failed.clone()).collect();
    for (index, (document, begins, _)) in EXCEPTIONS.iter().enumerate() {
        if documents.iter().any(|it| it == document) && !performed.iter().any(|it| it.used.contains(&index)) {
            println!("FAILED    {document} contains no command that begins with `{begins}`");
            failed.push((*document).to_owned());
        }
    }
    println!("commands: {ran} run here, {elsewhere} run elsewhere, {} failed", failed.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}

/// The output of the commands of an `sh` block.
#[derive(Debug, Default)]
struct OutputOfBlock {
    number: usize,
    text: String,
    /// Whether a command ran in another form or elsewhere.
    is_other: bool,
}

/// The results of the commands of a document.
#[derive(Debug, Default)]
struct Performed {
    ran: usize,
    elsewhere: usize,
    /// The document and the line of each command that failed.
    failed: Vec<String>,
    /// The indices of the exceptions that applied.
    used: BTreeSet<usize>,
}

/// Runs the commands of a document, in order.
///
/// # Errors
///
/// Fails if the document cannot be read, if its commands cannot be parsed, or if a command cannot be started. A command
/// that fails is not an error, but part of the result.
#[expect(clippy::disallowed_methods, reason = "shows how long each command took")]
fn perform(repository: &Repository, programs: &Path, document: &str) -> Result<Performed, String> {
    let failure = |error: Box<dyn Error>| format!("{document}: {error}");
    let mut performed = Performed::default();
    let text = fs::read_to_string(repository.root.join(document)).map_err(|error| failure(error.into()))?;
    let commands = printed(&text).map_err(failure)?;
    if commands.is_empty() {
        return Ok(performed);
    }
    let mut scratch = Scratch::new(repository, programs, document).map_err(failure)?;
    if EXCEPTIONS.iter().any(|it| it.0 == document && matches!(it.2, OnCluster(_))) {
        scratch.enter_cluster().map_err(failure)?;
    }
    let mut block = OutputOfBlock::default();
    for command in commands {
        if block.number != command.block {
            block = OutputOfBlock { number: command.block, ..OutputOfBlock::default() };
        }
        let exception = exception(document, &command.text);
        performed.used.extend(exception);
        let instead = exception.map(|index| EXCEPTIONS[index].2);
        let place = format!("{document}:{}", command.line);
        let shown = command.text.lines().next().unwrap_or_default();
        block.is_other |= !matches!(instead, None | Some(After(_) | Unknown));
        if let Some(In(where_it_runs)) = instead {
            println!("elsewhere {place}  {shown}\n          {where_it_runs}");
            performed.elsewhere += 1;
            continue;
        }
        let begun = Instant::now();
        match scratch.perform(&command.text, instead).map_err(failure)? {
            Ok(()) => println!("ok {:>4} s {place}  {shown}", begun.elapsed().as_secs()),
            Err(why) => {
                println!("FAILED    {place}  {shown}\n{why}");
                performed.failed.push(place);
            }
        }
        performed.ran += 1;
        block.text.push_str(&scratch.output().map_err(failure)?);
        for excerpt in command.shown.iter().filter(|_| !block.is_other) {
            match excerpt.missing_in(&block.text) {
                None => println!("equal     {document}:{}", excerpt.line),
                Some((line, missing)) => {
                    println!(
                        "FAILED    {document}:{line}  the output does not contain this line:\n{missing}\n"
                    );
                    println!("{}", block.text);
                    performed.failed.push(format!("{document}:{line}"));
                }
            }
        }
    }
    scratch.leave_cluster().map_err(failure)?;
    Ok(performed)
}

/// Returns the paths of README.md and of every document in `docs/`, relative to the repository's root.
fn documents(root: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = vec!["README.md".to_owned()];
    for directory in ["docs", "docs/tutorial"] {
        for entry in fs::read_dir(root.join(directory))? {
            let name = format!("{directory}/{}", entry?.file_name().to_string_lossy());
            if name.ends_with(".md") {
                names.push(name);
            }
        }
    }
    names.sort();
    Ok(names)
}

/// Returns the index of the exception for a command: the one with the longest match.
fn exception(document: &str, command: &str) -> Option<usize> {
    let matching = EXCEPTIONS
        .iter()
        .enumerate()
        .filter(|(_, (of, begins, _))| *of == document && command.starts_with(begins));
    matching.max_by_key(|(_, (_, begins, _))| begins.len()).map(|(index, _)| index)
}

/// Returns the commands in the `sh` blocks of a document.
fn printed(text: &str) -> Result<Vec<Printed>, Box<dyn Error>> {
    let mut commands = Vec::new();
    let (mut is_inside, mut block) = (false, 0);
    let mut pending: Option<Printed> = None;
    let mut excerpt: Option<Excerpt> = None;
    let mut prints = false;
    for (line, content) in (1..).zip(text.lines()) {
        match content {
            "```sh" => (is_inside, block) = (true, block + 1),
            "```text" => excerpt = Some(Excerpt { line: line + 1, ..Excerpt::default() }),
            _ if !is_inside && prints && content.starts_with('|') => {
                let table =
                    excerpt.get_or_insert_with(|| Excerpt { line, is_table: true, ..Excerpt::default() });
                table.text.push_str(content);
                table.text.push('\n');
            }
            _ if excerpt.as_ref().is_some_and(|it| it.is_table) => {
                prints = false;
                let shown = commands.last_mut().map(|it: &mut Printed| &mut it.shown);
                shown.into_iter().for_each(|it| it.extend(excerpt.take()));
            }
            _ if content.starts_with("```") => {
                is_inside = false;
                // A block before the first command shows something else.
                let shown = commands.last_mut().map(|it| &mut it.shown);
                shown.into_iter().for_each(|it| it.extend(excerpt.take()));
                excerpt = None;
                if let Some(cut) = pending.take() {
                    return Err(format!("line {}: the command `{}` is incomplete", cut.line, cut.text).into());
                }
            }
            _ if is_inside => {
                let command = match pending.take() {
                    Some(begun) => Printed { text: format!("{}\n{content}", begun.text), ..begun },
                    None if content.trim().is_empty() || content.starts_with('#') => continue,
                    None => Printed { line, text: content.to_owned(), block, shown: Vec::new() },
                };
                if is_complete(&command.text)? { commands.push(command) } else { pending = Some(command) }
            }
            _ => match &mut excerpt {
                Some(excerpt) => {
                    excerpt.text.push_str(content);
                    excerpt.text.push('\n');
                }
                None if content.is_empty() => {}
                None => prints = content.contains("prints") && content.ends_with(':'),
            },
        }
    }
    Ok(commands)
}

/// Returns whether a command is complete: a shell would not wait for more lines.
fn is_complete(command: &str) -> Result<bool, Box<dyn Error>> {
    let here_document = command.split("<<'").nth(1).and_then(|it| it.split('\'').next());
    if here_document.is_some_and(|end| command.lines().all(|line| line != end)) || command.ends_with('\\') {
        return Ok(false);
    }
    let parsed = Command::new("bash").args(["-n", "-c", command]).stderr(Stdio::null()).status()?;
    Ok(parsed.success())
}

/// The directory in which the commands of one document run.
struct Scratch {
    directory: PathBuf,
    repository: PathBuf,
    path: String,
    /// The path of a kubeconfig that selects a namespace of the document's own.
    kubeconfig: Option<PathBuf>,
}

impl Scratch {
    fn new(repository: &Repository, programs: &Path, document: &str) -> Result<Scratch, Box<dyn Error>> {
        let target: PathBuf = repository.metadata.target_directory.clone().into();
        let directory = target.join("documents").join(document.replace('/', "-"));
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        Ok(Scratch { directory, repository: repository.root.clone(), path, kubeconfig: None })
    }

    /// Creates a namespace for the document, after deleting what an interrupted run has left, so that documents that run at the same time can use the same names.
    fn enter_cluster(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(source) = std::env::var_os(KUBECONFIG).filter(|it| !it.is_empty()) else { return Ok(()) };
        let own = self.directory.join("kubeconfig");
        fs::copy(&source, &own).map_err(|error| format!("{}: {error}", source.display()))?;
        self.kubeconfig = Some(own);
        let name = self.namespace();
        let enter = format!(
            "kubectl delete namespace {name} --ignore-not-found --timeout=2m && kubectl create namespace {name} && \
             kubectl config set-context --current --namespace {name}"
        );
        self.shell(&enter, 0)?.map_err(Into::into)
    }

    /// Deletes the document's namespace, and waits until it is gone.
    fn leave_cluster(&self) -> Result<(), Box<dyn Error>> {
        if self.kubeconfig.is_none() {
            return Ok(());
        }
        let leave = format!("kubectl delete namespace {} --timeout=2m", self.namespace());
        self.shell(&leave, 0)?.map_err(Into::into)
    }

    fn namespace(&self) -> String {
        let name = self.directory.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        format!("faultline-documents-{name}")
    }

    /// Runs a command, or its replacement. The inner error is the reason why it failed.
    fn perform(&self, printed: &str, instead: Option<Instead>) -> Result<Result<(), String>, Box<dyn Error>> {
        let (command, expected) = match instead {
            None | Some(In(_)) => (printed.to_owned(), 0),
            Some(Unknown) => (printed.to_owned(), UNKNOWN),
            Some(After(first)) => match self.shell(first, 0)? {
                Ok(()) => (printed.to_owned(), 0),
                failed => return Ok(failed),
            },
            Some(Run(command)) => (command.to_owned(), 0),
            Some(OnCluster(command)) if self.kubeconfig.is_some() => {
                (command.replace(PRINTED, without_comment(printed)), 0)
            }
            Some(OnCluster(_)) => {
                println!("SKIPPED   requires a Kubernetes cluster, which {KUBECONFIG} selects");
                return Ok(Ok(()));
            }
            Some(AsRoot(command)) if is_root()? => (command.to_owned(), 0),
            Some(AsRoot(_)) => {
                println!("SKIPPED   requires root");
                return Ok(Ok(()));
            }
        };
        let command = match self.newest_record()? {
            Some(record) => command.replace("DIR", &record.display().to_string()),
            None => command,
        };
        self.shell(&command, expected)
    }

    /// Returns the output of the last command.
    fn output(&self) -> Result<String, Box<dyn Error>> {
        let path = self.directory.join("output.txt");
        // A skipped command has no output.
        Ok(if path.exists() { String::from_utf8_lossy(&fs::read(path)?).into_owned() } else { String::new() })
    }

    fn shell(&self, command: &str, expected: i32) -> Result<Result<(), String>, Box<dyn Error>> {
        let output = self.directory.join("output.txt");
        let before = self.entries()?;
        let mut why = String::new();
        for attempt in 0..ATTEMPTS {
            let is_first = attempt == 0;
            let _shared = is_first.then(|| MACHINE.read().expect("no command panics"));
            let _alone = (!is_first).then(|| MACHINE.write().expect("no command panics"));
            // A command may refuse to replace files that the previous attempt wrote.
            for new in self.entries()?.difference(&before) {
                match new {
                    it if it.is_dir() => fs::remove_dir_all(it)?,
                    it if it.exists() => fs::remove_file(it)?,
                    _ => {} // Its directory has been removed.
                }
            }
            let file = File::create(&output)?;
            let kubeconfig = self.kubeconfig.iter().map(|it| ("KUBECONFIG", it));
            let status = Command::new("bash")
                .args(["-c", command])
                .envs(kubeconfig)
                .current_dir(&self.directory)
                .env("PATH", &self.path)
                .env("REPOSITORY", &self.repository)
                .stdin(Stdio::null())
                .stdout(file.try_clone()?)
                .stderr(file)
                .status()?;
            if status.code() == Some(expected) {
                return Ok(Ok(()));
            }
            let said = String::from_utf8_lossy(&fs::read(&output)?).into_owned();
            let tail: Vec<&str> = said.lines().rev().take(20).collect();
            let tail: String = tail.into_iter().rev().map(|line| format!("          {line}\n")).collect();
            why = format!("          {command}\n          {status}, expected {expected}\n{tail}");
            if status.code() != Some(UNKNOWN) {
                break;
            }
        }
        Ok(Err(why))
    }

    /// Returns the files and directories in the scratch directory, and the records in `faultline-runs`.
    fn entries(&self) -> Result<BTreeSet<PathBuf>, Box<dyn Error>> {
        let mut entries = BTreeSet::new();
        for directory in [self.directory.join("faultline-runs"), self.directory.clone()] {
            if directory.is_dir() {
                for entry in fs::read_dir(&directory)? {
                    entries.insert(entry?.path());
                }
            }
        }
        Ok(entries)
    }

    /// Returns the newest directory in `faultline-runs` that contains a manifest.
    fn newest_record(&self) -> Result<Option<PathBuf>, Box<dyn Error>> {
        let Ok(entries) = fs::read_dir(self.directory.join("faultline-runs")) else { return Ok(None) };
        let mut newest: Option<(SystemTime, PathBuf)> = None;
        for entry in entries {
            let directory = entry?.path();
            let Ok(manifest) = fs::metadata(directory.join("manifest.json")) else { continue };
            let written = manifest.modified()?;
            if newest.as_ref().is_none_or(|(at, _)| *at < written) {
                newest = Some((written, directory));
            }
        }
        Ok(newest.map(|(_, directory)| directory))
    }
}

/// Returns a command of one line without the comment at its end.
fn without_comment(printed: &str) -> &str {
    match printed.split_once(" # ") {
        Some((command, _)) if !printed.contains('\n') => command.trim_end(),
        _ => printed,
    }
}

fn is_root() -> Result<bool, Box<dyn Error>> {
    Ok(Command::new("id").arg("-u").output()?.stdout == b"0\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(document: &str) -> Vec<String> {
        printed(document).unwrap().into_iter().map(|it| it.text).collect()
    }

    #[test]
    fn only_commands_in_shell_blocks_are_found() {
        let document =
            "words\n```sh\none # why\n\n# a comment\ntwo\n```\n```yaml\nthree\n```\n```sh\nfour\n```\n";
        assert_eq!(texts(document), ["one # why", "two", "four"]);
        assert_eq!(printed(document).unwrap()[1].line, 6);
    }

    #[test]
    fn an_excerpt_belongs_to_the_block_before_it() {
        let document = "```text\nno output\n```\n```sh\none\ntwo\n```\nwords\n```text\na  b\n…\nc\n```\n";
        let commands = printed(document).unwrap();
        assert_eq!((commands[0].block, commands[1].block), (1, 1));
        assert_eq!(commands[0].shown, []);
        let [excerpt] = &commands[1].shown[..] else { panic!("{commands:?}") };
        assert_eq!(excerpt.missing_in("x\n a b \ny\nc\n"), None);
        assert_eq!(excerpt.missing_in("c\na b\n"), Some((12, "c".to_owned())), "the order differs");
        assert_eq!(excerpt.missing_in("a\nb\nc\n"), Some((10, "a b".to_owned())));
        let cut = Excerpt { text: "begins as …\n".to_owned(), ..Excerpt::default() };
        assert_eq!((cut.missing_in("begins as it should"), cut.missing_in("as").is_some()), (None, true));
    }

    #[test]
    fn the_cells_of_a_table_that_a_command_prints_are_compared() {
        let document =
            "```sh\none\n```\nand prints:\n\n| x | y |\n| --- | --- |\n| 1 s | 2 s |\n\n| no | output |\n";
        let commands = printed(document).unwrap();
        let [table] = &commands[0].shown[..] else { panic!("{commands:?}") };
        assert_eq!(table.missing_in("y  x\n2  s 1 s"), None);
        assert_eq!(table.missing_in("y  x\n2 s 3 s"), Some((8, "1 s".to_owned())));
    }

    #[test]
    fn a_command_continues_until_a_shell_would_run_it() {
        let continued =
            ["a \\\n  b", "a |\n  b", "a '{\n}'", "a <<'END'\nx: y\nEND", "for it in 1; do\necho\ndone"];
        for command in continued {
            assert_eq!(texts(&format!("```sh\n{command}\nnext\n```\n")), [command, "next"]);
        }
        assert!(printed("```sh\na 'b\n```\n").is_err());
    }

    #[test]
    fn the_longest_matching_exception_applies() {
        let of = |command| exception("README.md", command).map(|index| EXCEPTIONS[index].1);
        assert_eq!(
            of("faultline reproduce hc3i --with-processes"),
            Some("faultline reproduce hc3i --with-processes")
        );
        assert_eq!(of("faultline reproduce hc3i   # comment"), Some("faultline reproduce hc3i"));
        assert_eq!(of("faultline explain DIR"), None);
        assert_eq!(exception("docs/hc3i.md", "faultline reproduce hc3i"), None);
    }

    #[test]
    fn a_second_attempt_starts_from_the_state_that_the_first_one_found() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch {
            directory: directory.path().to_owned(),
            repository: PathBuf::new(),
            path: std::env::var("PATH").unwrap(),
            kubeconfig: None,
        };
        fs::write(directory.path().join("kept"), "").unwrap();
        // The first attempt exits with 3. The second one fails if the first one's record still exists.
        let attempt = "test -e kept && mkdir -p faultline-runs && mkdir faultline-runs/a real";
        let counted = format!("{attempt} && echo >> \"$COUNT\" && test $(wc -l < \"$COUNT\") = 2 || exit 3");
        let count = directory.path().with_extension("count");
        let command = format!("COUNT={}; {counted}", count.display());
        let result = scratch.shell(&command, 0).unwrap();
        fs::remove_file(count).unwrap();
        assert_eq!(result, Ok(()));
    }
}
