//! What goes to the standard output, and into the directory of `--out`.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use crossterm::terminal;
use serde::Serialize;

use crate::trouble::Trouble;

/// What helps when results cannot be written.
const HELP: &str = "name a directory that can be written with `--out`";

/// Makes the directory of `--out`, unless it is there.
pub fn directory(out: &Path) -> Result<(), Trouble> {
    fs::create_dir_all(out).map_err(|error| Trouble::path("write to", out, error, HELP))
}

/// Writes a file into that directory; its path.
pub fn write(out: &Path, name: &str, content: &str) -> Result<PathBuf, Trouble> {
    let path = out.join(name);
    fs::write(&path, content).map_err(|error| Trouble::path("write", &path, error, HELP))?;
    Ok(path)
}

/// Whether the standard output takes colours: it is a terminal that can show them, and the user did not forbid them.
pub fn colours() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Prints text. A reader who has gone away is not an error.
pub fn print(text: &str) -> Result<(), Trouble> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Trouble::machine(format!("cannot write to the standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Text in lines as wide as the terminal; as it is where there is none. What begins a line is a paragraph.
pub fn filled(text: &str) -> String {
    if !io::stdout().is_terminal() {
        return text.to_owned();
    }
    let columns = terminal::size().map_or(80, |(columns, _)| usize::from(columns).max(40));
    text.lines()
        .map(|it| textwrap::fill(it, textwrap::Options::new(columns).subsequent_indent("  ")) + "\n")
        .collect()
}

/// A value as indented JSON with a line's end.
pub fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("what is printed has a JSON form");
    text.push('\n');
    text
}
