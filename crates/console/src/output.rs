//! Standard output, and files in the directory of `--out`.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use crossterm::terminal;
use serde::Serialize;

use crate::command_error::CommandError;

/// The remedy if results cannot be written.
const HELP: &str = "specify a writable directory with `--out`";

/// Creates the directory of `--out`, unless it exists.
///
/// # Errors
///
/// Fails if the directory cannot be created.
pub fn directory(out: &Path) -> Result<(), CommandError> {
    fs::create_dir_all(out).map_err(|error| CommandError::writing("write to", out, &error, HELP))
}

/// Writes a file to the directory of `--out`, in which it replaces an older file as a whole. Returns the path of the
/// file.
///
/// # Errors
///
/// Fails if the file cannot be written.
pub fn write(out: &Path, name: &str, content: &str) -> Result<PathBuf, CommandError> {
    let path = out.join(name);
    replace(&path, content).map_err(|error| CommandError::writing("write", &path, &error, HELP))?;
    Ok(path)
}

/// Replaces a file as a whole: if the program is killed, or the disk is full, the file keeps its old content. Writes to
/// anything other than a file, such as a pipe, directly.
///
/// # Errors
///
/// Fails if the file cannot be written.
pub fn replace(path: &Path, content: &str) -> io::Result<()> {
    // A link is kept, and the file to which it points is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if path.exists() && !path.is_file() {
        return fs::write(path, content);
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".part");
    let draft = Path::new(&draft);
    fs::write(draft, content).and_then(|()| fs::rename(draft, &path)).inspect_err(|_| {
        // The first error is reported.
        drop(fs::remove_file(draft));
    })
}

/// Prints a line to standard error. A message about the work must not end the work, so an output that cannot be written
/// is not an error.
pub fn note(text: impl Display) {
    drop(writeln!(anstream::stderr().lock(), "{text}"));
}

/// Returns whether to print colours to standard output: only to a terminal that supports them, unless environment
/// variables such as `CLICOLOR_FORCE` override this.
pub fn colours() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Prints text. A closed output is not an error.
///
/// # Errors
///
/// Fails if the text cannot be written.
pub fn print(text: &str) -> Result<(), CommandError> {
    print_if_open(text.as_bytes()).map(|_| ())
}

/// Prints bytes, unless the output is closed. Returns whether it is still open.
///
/// # Errors
///
/// Fails if the bytes cannot be written.
pub fn print_if_open(bytes: &[u8]) -> Result<bool, CommandError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CommandError::machine(format!("cannot write to standard output: {error}"))),
    }
}

/// Wraps text to the width of the terminal, or returns it unchanged if standard output is not a terminal. Each line of
/// `text` is a paragraph.
pub fn filled(text: &str) -> String {
    if !io::stdout().is_terminal() {
        return text.to_owned();
    }
    let columns = terminal::size().map_or(80, |(columns, _)| usize::from(columns).max(40));
    text.lines()
        .map(|it| textwrap::fill(it, textwrap::Options::new(columns).subsequent_indent("  ")) + "\n")
        .collect()
}

/// Returns a value as indented JSON with a final newline.
///
/// # Panics
///
/// Panics if the value has no JSON form.
pub fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("a printed value has a JSON form");
    text.push('\n');
    text
}
