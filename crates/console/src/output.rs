//! Standard output, and files in the directory of `--out`.

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
    fs::create_dir_all(out).map_err(|error| CommandError::path("write to", out, error, HELP))
}

/// Writes a file to the directory of `--out`. Returns the path of the file.
///
/// # Errors
///
/// Fails if the file cannot be written.
pub fn write(out: &Path, name: &str, content: &str) -> Result<PathBuf, CommandError> {
    let path = out.join(name);
    fs::write(&path, content).map_err(|error| CommandError::path("write", &path, error, HELP))?;
    Ok(path)
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
