//! Standard output, and files in the directory of `--out`.

use std::borrow::Cow;
use std::env;
use std::ffi::OsStr;
use std::fmt::{Display, Write as _};
use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use crossterm::terminal;
use faultline_report::{Summary, table};
use faultline_trace::{is_printable, printable};
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

const JUNIT_HELP: &str = "specify a file in an existing, writable directory with `--junit`";

/// Fails if the directory of the file for JUnit XML does not exist, before a run rather than after it.
///
/// # Errors
///
/// Fails with the remedy.
pub fn check_junit(file: Option<&Path>) -> Result<(), CommandError> {
    let Some(file) = file else { return Ok(()) };
    let parent = file.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match parent.is_dir() && !file.is_dir() {
        true => Ok(()),
        false => Err(CommandError::path("write", file, "it cannot be a file there", JUNIT_HELP)),
    }
}

/// Writes runs as JUnit XML.
///
/// # Errors
///
/// Fails if the file cannot be written.
pub fn junit<'a>(file: &Path, runs: impl IntoIterator<Item = &'a Summary>) -> Result<(), CommandError> {
    let written = replace(file, &faultline_report::junit::junit(runs));
    written.map_err(|error| CommandError::writing("write", file, &error, JUNIT_HELP))
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

/// The maximum size in bytes of a file of this program's own that is read as a whole.
const MOST_BYTES: u64 = 256 << 20;

/// Opens a file to read it.
///
/// # Errors
///
/// Fails if the file cannot be opened, or is not a regular file, such as a pipe, which could block forever.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"))
}

/// Reads a file that this program has written, such as a journal.
///
/// # Errors
///
/// Fails if the file cannot be [opened](open_file), is too large, or is not UTF-8 text.
pub fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = open_file(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    match length as u64 > MOST_BYTES {
        true => Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!("it is longer than {} MiB", MOST_BYTES >> 20),
        )),
        false => Ok(text),
    }
}

/// Prints a line to standard error, and wraps it if that is a terminal. A message about the work must not end the work, so an output that cannot be written
/// is not an error.
pub fn note(text: impl Display) {
    let line = format!("{text}\n");
    let line = if io::stderr().is_terminal() { table::filled(&line) } else { line };
    drop(anstream::stderr().lock().write_all(line.as_bytes()));
}

/// Returns whether to print colours to standard output: only to a terminal that supports them, unless environment
/// variables such as `CLICOLOR_FORCE` override this. No variable makes a dumb terminal understand them.
pub fn colours() -> bool {
    let stdout = io::stdout();
    !is_dumb(&stdout) && anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never
}

/// Returns whether the stream is a terminal that does not understand escape sequences.
pub(crate) fn is_dumb(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !supports_escapes(stream)
}

/// Returns whether escape sequences may be written to a stream: only to a terminal that understands them.
pub fn supports_escapes(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && understands_escapes(env::var_os("TERM").as_deref())
}

/// Returns whether a terminal of this type understands escape sequences.
fn understands_escapes(terminal: Option<&OsStr>) -> bool {
    terminal.is_some_and(|it| !it.is_empty() && it != "dumb")
}

/// Prints text. Characters that [may not](is_printable) reach a terminal are replaced, except line breaks, tabs and, if
/// [`colours`] are printed, the escape sequences for these. A closed output is not an error.
///
/// # Errors
///
/// Fails if the text cannot be written.
pub fn print(text: &str) -> Result<(), CommandError> {
    print_if_open(shown(text, colours()).as_bytes()).map(|_| ())
}

/// Returns the text that [`print`] prints, with or without colours.
fn shown(text: &str, colours: bool) -> Cow<'_, str> {
    let is_plain = |it: char| is_printable(it) || matches!(it, '\n' | '\t');
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|it| !is_plain(it)) {
        shown.push_str(&rest[..at]);
        rest = &rest[at..];
        let colour = rest.strip_prefix("\u{1b}[").filter(|_| colours).and_then(|it| {
            let end = it.find(|it: char| !it.is_ascii_digit() && it != ';')?;
            it[end..].starts_with('m').then_some("\u{1b}[".len() + end + 1)
        });
        let length = colour.or_else(|| rest.chars().next().map(char::len_utf8)).unwrap_or(rest.len());
        match colour {
            Some(length) => shown.push_str(&rest[..length]),
            None => shown += &printable(&rest[..length]),
        }
        rest = &rest[length..];
    }
    (shown + rest).into()
}

/// Returns a name from a file for use in a line of text: unchanged if it is a plain word, and otherwise in quotes, with
/// escapes.
///
/// # Panics
///
/// Never panics: every string has a JSON form.
pub fn name(name: &str) -> Cow<'_, str> {
    let is_plain = |it: char| is_printable(it) && !it.is_whitespace() && !"\"'`#,\\".contains(it);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.into(),
        false => escaped(serde_json::to_string(name).expect("a string has a JSON form")).into(),
    }
}

/// Escapes the characters in JSON text that [may not](is_printable) reach a terminal, without a change of meaning: outside
/// of strings, JSON has no such characters except line breaks.
fn escaped(json: String) -> String {
    if json.chars().all(|it| is_printable(it) || it == '\n') {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    for it in json.chars() {
        if is_printable(it) || it == '\n' {
            text.push(it);
        } else {
            let units = it.encode_utf16(&mut [0; 2]).to_vec();
            units
                .iter()
                .for_each(|unit| write!(text, "\\u{unit:04x}").expect("writing to a string never fails"));
        }
    }
    text
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

/// Fits the text that the program prints to the terminal, if standard output is one whose width is known.
pub fn fit_terminal() {
    let columns = io::stdout().is_terminal().then(|| terminal::size().ok()).flatten();
    if let Some((columns, _)) = columns.filter(|it| it.0 > 0) {
        table::fit(columns.into());
    }
}

/// Wraps the lines that do not fit the terminal, or returns the text unchanged if standard output is not a terminal. Each
/// line of `text` is a paragraph, or the row of a table.
pub fn filled(text: String) -> String {
    if io::stdout().is_terminal() { table::filled(&text) } else { text }
}

/// Returns a value as indented JSON with a final newline.
///
/// # Panics
///
/// Panics if the value has no JSON form.
pub fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("a printed value has a JSON form");
    text.push('\n');
    escaped(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_reach_a_terminal() {
        let text = "a\t\u{1b}[1;31mred\u{1b}[0m\u{1b}[2J\u{1b}]0;t\u{7}\u{202e}b\u{200b}\u{9b}2J\n";
        assert_eq!(shown(text, true), "a\t\u{1b}[1;31mred\u{1b}[0m�[2J�]0;t��b��2J\n");
        assert_eq!(shown(text, false), "a\t�[1;31mred�[0m�[2J�]0;t��b��2J\n");
        assert_eq!(shown("\u{1b}[1", true), "�[1");
        assert!(matches!(shown("µ – 的\n", false), Cow::Borrowed("µ – 的\n")));
    }

    #[test]
    fn a_name_that_is_not_a_plain_word_is_quoted() {
        for plain in ["lyon-0", "node/3", "的", "a:b", "=1+1"] {
            assert_eq!(name(plain), plain);
        }
        assert_eq!(name("solver, rank 0"), "\"solver, rank 0\"");
        assert_eq!(name("x\n  - y"), r#""x\n  - y""#);
        assert_eq!(name("n\u{1b}[2J\u{85}"), "\"n\\u001b[2J\\u0085\"");
        assert_eq!(name("say \"hi\""), r#""say \"hi\"""#);
        assert_eq!(name(""), "\"\"");
        for it in ["\u{202e}\u{e0041}\u{7f}\u{feff}", "x\u{2028}y", "\\ \u{0}"] {
            let shown = name(it).into_owned();
            assert!(shown.chars().all(is_printable), "{shown}");
            assert_eq!(serde_json::from_str::<String>(&shown).expect("it is JSON"), it);
        }
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "a\u{202e}": ["\u{9b}2J", "\u{1b}", "\u{e0041}"] });
        let text = json(&value);
        assert!(text.chars().all(|it| is_printable(it) || it == '\n'), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("it is JSON"), value);
    }

    #[test]
    fn a_dumb_terminal_gets_no_escape_sequences() {
        for (terminal, expected) in
            [(None, false), (Some(""), false), (Some("dumb"), false), (Some("xterm"), true)]
        {
            assert_eq!(understands_escapes(terminal.map(OsStr::new)), expected, "{terminal:?}");
        }
    }
}
