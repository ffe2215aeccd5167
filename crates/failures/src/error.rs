//! The error of a file that is not a usable failure trace.

use std::fmt;

use thiserror::Error;

/// The maximum number of characters of the file that an error quotes.
pub(crate) const QUOTED: usize = 60;

/// The reason why a file cannot be read as a failure trace, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{what}", Place(*.line))]
pub struct ReadError {
    /// The line of the record, counted from 1; `None` if the error concerns the whole file.
    pub line: Option<u64>,
    /// What is wrong, with the value found.
    pub what: String,
    /// What to do about it.
    pub help: String,
}

impl ReadError {
    pub(crate) fn new(what: impl Into<String>, help: impl Into<String>) -> ReadError {
        ReadError { line: None, what: what.into(), help: help.into() }
    }

    pub(crate) fn at(line: u64, what: impl Into<String>, help: impl Into<String>) -> ReadError {
        ReadError { line: Some(line), ..ReadError::new(what, help) }
    }
}

/// The beginning of an error: its line, if known.
struct Place(Option<u64>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, "line {line}: "))
    }
}

/// Quotes text from a file: control characters are escaped, and long text is shortened.
pub fn quoted(text: &str) -> String {
    format!("`{}`", shortened(text, QUOTED))
}

/// Escapes control characters, and replaces everything after `most` characters with an ellipsis.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let mut short = String::new();
    let mut characters = text.chars();
    for it in characters.by_ref().take(most) {
        if it.is_control() { short.extend(it.escape_default()) } else { short.push(it) }
    }
    if characters.next().is_some() {
        short.push('…');
    }
    short
}

/// Returns the remedy for a name that does not exist: the most similar one that does, or all of them.
pub(crate) fn did_you_mean(name: &str, known: &[&str]) -> String {
    let near = |it: &&str| strsim::jaro_winkler(&name.to_lowercase(), &it.to_lowercase());
    let best = known.iter().copied().map(|it| (near(&it), it)).max_by(|one, other| one.0.total_cmp(&other.0));
    match best {
        Some((score, it)) if score > 0.8 => format!("did you mean {}?", quoted(it)),
        _ => {
            let all: Vec<String> = known.iter().take(12).map(|it| quoted(it)).collect();
            let more = if known.len() > 12 { ", …" } else { "" };
            format!("use one of {}{more}", all.join(", "))
        }
    }
}
