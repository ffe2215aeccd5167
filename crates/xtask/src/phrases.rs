//! Phrases of an older style, which read like a translation, each with the wording to use instead.
//!
//! The check covers README.md, ARCHITECTURE.md, the other Markdown files, and the comments and code (above all, the
//! string literals) of Rust files. [`NOT_YET`] lists the places that still contain such phrases. A place without them
//! must be removed from the list, so that the list only shrinks.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;

use crate::sources::files;
use crate::{Problems, Repository};

/// This file, which has to contain the phrases.
const SELF: &str = "crates/xtask/src/phrases.rs";

/// Phrases in lower case, and what to write instead. Matched as whole words, even across the end of a line.
const PHRASES: &[(&str, &str)] = &[
    ("as asked for", "as requested"),
    ("at the most", "at most"),
    ("begin again", "restart"),
    ("begins again", "restarts"),
    ("belong into", "belong in"),
    ("belongs into", "belongs in"),
    ("came of it", "the outcome"),
    ("comes of it", "the outcome"),
    ("everybody", "all ranks, every process, or all users"),
    ("for dead", "declared failed"),
    ("for ever", "permanently"),
    ("for whom it speaks", "of its group"),
    ("from then on", "once, or afterwards"),
    ("go back", "roll back"),
    ("goes back", "rolls back"),
    ("goes on", "continues, or resumes"),
    ("gone back", "rolled back"),
    ("hears of", "learns of"),
    ("how-manieth", "which occurrence, counted from 1"),
    ("in good order", "normally"),
    ("in the mean", "on average"),
    ("is noticed", "is detected"),
    ("nobody", "no process, or no user"),
    ("nothing to judge", "not exercised"),
    ("of one's own", "your own, or user-defined"),
    ("on it that", "that, after a verb such as `assume`"),
    ("own word", "self-reported"),
    ("so many", "the number, or `this many`"),
    ("so much", "the amount, or `this much`"),
    ("somebody", "a process, a user, or another program"),
    ("stand still", "be paused, or be halted"),
    ("stands still", "is paused, or is halted"),
    ("still to come", "pending, or in transit"),
    ("stood still", "was paused, or was halted"),
    ("to be had", "available"),
    ("under way", "in transit (a message), or in progress"),
    ("went back", "rolled back"),
    ("went on", "continued, or resumed"),
    ("who speaks for", "the coordinator, or the leader, of"),
    ("whoever", "a process that, or a user who"),
];

/// What of a place may still contain the phrases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Except {
    /// Everything.
    All,
    /// The code of Rust files, but not their comments.
    Code,
}
use Except::{All, Code};

/// Files and directories that are not clean yet.
const NOT_YET: &[(&str, Except)] = &[
    ("benches", All),
    ("crates/api", Code),
    ("crates/cli", Code),
    ("crates/conformance", Code),
    ("crates/console", Code),
    ("crates/experiments", Code),
    ("crates/fuzz", Code),
    ("crates/kubectl", Code),
    ("crates/protocols/src/hydee", Code),
    ("crates/protocols/tests", Code),
    ("crates/report", Code),
    ("crates/runtime", Code),
    ("crates/runtime-tests", Code),
    ("crates/session", Code),
    ("crates/sim", Code),
    ("crates/supervisor", Code),
    ("crates/tc", Code),
    ("crates/workloads", Code),
    ("crates/xtask", Code),
    ("docs/verdict.md", All),
    ("e2e", Code),
    ("node-image", All),
    ("operator", Code),
];

/// An occurrence of a phrase.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// The line on which the phrase begins, counted from 1.
    line: usize,
    phrase: &'static str,
    instead: &'static str,
    is_code: bool,
}

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let mut texts = Vec::new();
    for file in files(repository)? {
        let is_read = file.extension().is_some_and(|it| it == "rs" || it == "md") && file != Path::new(SELF);
        if let Some(name) = file.to_str().filter(|_| is_read) {
            texts.push((name.to_owned(), fs::read_to_string(repository.root.join(&file))?));
        }
    }
    Ok(judge(&texts, NOT_YET))
}

/// Finds phrases in files that are not excepted, and exceptions that are not needed.
fn judge(texts: &[(String, String)], not_yet: &[(&str, Except)]) -> Problems {
    let (mut problems, mut needed) = (Vec::new(), BTreeSet::new());
    for (name, text) in texts {
        for found in find(text, name.ends_with(".rs")) {
            let covers =
                |it: &&(&str, Except)| Path::new(name).starts_with(it.0) && (it.1 == All || found.is_code);
            let covering: Vec<_> = not_yet.iter().filter(covers).collect();
            if covering.is_empty() {
                let Found { line, phrase, instead, .. } = found;
                problems.push(format!("{name}:{line} says `{phrase}`; write: {instead}"));
            }
            // An exception for everything is needed only for a comment: for code there is a smaller one.
            needed.extend(covering.iter().filter(|it| it.1 == Code || !found.is_code).map(|it| it.0));
        }
    }
    problems.extend(not_yet.iter().filter(|it| !needed.contains(it.0)).map(|(place, except)| match except {
        All => format!(
            "{place} has no old phrases outside code: remove it from the exceptions, or reduce it to code"
        ),
        Code => format!("{place} has no old phrases: remove it from the exceptions"),
    }));
    problems
}

/// Finds the phrases in a text. Comments and code of Rust are searched separately; Markdown has no code.
fn find(text: &str, is_rust: bool) -> Vec<Found> {
    let (mut prose, mut code) = (Joined::default(), Joined::default());
    for (line, number) in text.lines().zip(1..) {
        let (statement, comment) = if is_rust { split(line) } else { ("", line) };
        prose.push(comment, number);
        code.push(statement, number);
    }
    prose.find(false).chain(code.find(true)).collect()
}

/// Splits a line of Rust into code and comment.
fn split(line: &str) -> (&str, &str) {
    let begins = line.match_indices("//").map(|(at, _)| at).find(|&at| {
        let before = &line[..at];
        before.trim().is_empty() || before.ends_with(' ') && before.matches('"').count().is_multiple_of(2)
    });
    let (code, comment) = line.split_at(begins.unwrap_or(line.len()));
    (code, comment.trim_start_matches(['/', '!']))
}

/// Lines joined by blanks, in lower case, so that a phrase is found across the end of a line.
#[derive(Default)]
struct Joined {
    text: String,
    /// Where each line begins in the text, and its number.
    lines: Vec<(usize, usize)>,
}

impl Joined {
    fn push(&mut self, line: &str, number: usize) {
        let line = line.trim();
        if !line.is_empty() {
            self.lines.push((self.text.len(), number));
            self.text.push_str(&line.to_ascii_lowercase());
            self.text.push(' ');
        }
    }

    fn find(&self, is_code: bool) -> impl Iterator<Item = Found> + '_ {
        PHRASES.iter().flat_map(move |&(phrase, instead)| {
            let whole = move |&(at, _): &(usize, &str)| {
                let is_part = |it: char| it.is_alphanumeric() || it == '_' || it == '-';
                !self.text[..at].ends_with(is_part) && !self.text[at + phrase.len()..].starts_with(is_part)
            };
            self.text.match_indices(phrase).filter(whole).map(move |(at, _)| {
                let line = self.lines[self.lines.partition_point(|it| it.0 <= at) - 1].1;
                Found { line, phrase, instead, is_code }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, is_rust: bool) -> Vec<(usize, &'static str, bool)> {
        find(text, is_rust).into_iter().map(|it| (it.line, it.phrase, it.is_code)).collect()
    }

    #[test]
    fn a_phrase_is_found_across_lines_and_in_any_case() {
        assert_eq!(
            lines("# Title\n\nA process goes\nback. Nobody waits.", false),
            [(3, "goes back", false), (4, "nobody", false)]
        );
        assert_eq!(lines("/// It takes them for\n    /// ever.\nfn f() {}", true), [(1, "for ever", false)]);
    }

    #[test]
    fn parts_of_words_are_no_phrases() {
        assert_eq!(lines("for everyone, ergo background, a so-many-sided go backend", false), []);
        assert_eq!(lines("fn nobody_waits() { goes_on(somebody_s) }", true), []);
    }

    #[test]
    fn code_and_comments_are_told_apart() {
        let text = "let url = \"http://nobody\"; // whoever\nlog(\"// somebody\");\n    // everybody";
        let expected =
            [(3, "everybody", false), (1, "whoever", false), (1, "nobody", true), (2, "somebody", true)];
        assert_eq!(lines(text, true), expected);
    }

    #[test]
    fn exceptions_hold_for_their_place_and_part_and_must_be_needed() {
        let judged =
            |file: &str, text: &str, not_yet| judge(&[(file.to_owned(), text.to_owned())], not_yet).len();
        let (comment, code) = ("// nobody", "log(\"nobody\");");
        assert_eq!(judged("a/b.rs", comment, &[]), 1);
        assert_eq!(judged("a/b.rs", comment, &[("a", All)]), 0);
        assert_eq!(judged("a/b.rs", code, &[("a", Code)]), 0);
        assert_eq!(judged("a/b.rs", comment, &[("a", Code)]), 2, "the phrase, and an exception without need");
        assert_eq!(
            judged("ab/c.rs", comment, &[("a", All)]),
            2,
            "another place, and an exception without need"
        );
        assert_eq!(judged("a/b.rs", code, &[("a", All)]), 1, "an exception for more than is needed");
        assert_eq!(judged("a/b.rs", "// fine", &[("a", All)]), 1, "an exception without need");
    }

    #[test]
    fn phrases_are_in_lower_case_and_in_order() {
        assert!(PHRASES.is_sorted() && PHRASES.iter().all(|(it, _)| it.to_lowercase() == *it));
    }
}
