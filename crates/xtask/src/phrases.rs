//! Phrases of an older style, which read like a translation, each with a better wording.
//!
//! The check covers README.md, ARCHITECTURE.md, all other Markdown files, and the comments and code of Rust files,
//! above all their string literals.

use std::error::Error;
use std::fs;
use std::path::Path;

use crate::sources::files;
use crate::{Problems, Repository};

/// This file, which must contain the phrases.
const SELF: &str = "crates/xtask/src/phrases.rs";

/// Phrases in lower case, and what to write instead. Matched as whole words, even across the end of a line.
const PHRASES: &[(&str, &str)] = &[
    ("again and again", "repeatedly"),
    ("anybody", "any process, or any user"),
    ("as asked for", "as requested"),
    ("at the most", "at most"),
    ("begin again", "restart"),
    ("begins again", "restarts"),
    ("belong into", "belong in"),
    ("belongs into", "belongs in"),
    ("came of it", "the outcome"),
    ("come out even", "an equal share"),
    ("comes of it", "the outcome"),
    ("dealt out", "assigned in turn"),
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
    ("heir", "successor"),
    ("heirs", "successors"),
    ("how-manieth", "which occurrence, counted from 1"),
    ("in good order", "normally"),
    ("in the mean", "on average"),
    ("is noticed", "is detected"),
    ("nobody", "no process, or no user"),
    ("nothing to judge", "not exercised"),
    ("of one's own", "your own, or user-defined"),
    ("on it that", "that, after a verb such as `assume`"),
    ("own word", "self-reported"),
    ("program of tasks", "task-based program"),
    ("programs of tasks", "task-based programs"),
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
    ("whomever", "any process that"),
];

/// An occurrence of a phrase.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// The line on which the phrase begins, counted from 1.
    line: usize,
    phrase: &'static str,
    instead: &'static str,
}

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let mut texts = Vec::new();
    for file in files(repository)? {
        let is_read = file.extension().is_some_and(|it| it == "rs" || it == "md") && file != Path::new(SELF);
        if let Some(name) = file.to_str().filter(|_| is_read) {
            texts.push((name.to_owned(), fs::read_to_string(repository.root.join(&file))?));
        }
    }
    Ok(judge(&texts))
}

/// Finds phrases in files.
fn judge(texts: &[(String, String)]) -> Problems {
    let mut problems = Vec::new();
    for (name, text) in texts {
        let say =
            |Found { line, phrase, instead }| format!("{name}:{line} says `{phrase}`; write: {instead}");
        problems.extend(find(text, name.ends_with(".rs")).into_iter().map(say));
    }
    problems
}

/// Finds the phrases in a file. In Rust, comments and code are searched separately; Markdown counts as prose.
fn find(text: &str, is_rust: bool) -> Vec<Found> {
    let (mut prose, mut code) = (Joined::default(), Joined::default());
    for (line, number) in text.lines().zip(1..) {
        let (statement, comment) = if is_rust { split(line) } else { ("", line) };
        prose.push(comment, number);
        code.push(statement, number);
    }
    prose.find().chain(code.find()).collect()
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

/// Lines joined by spaces, in lower case, so that phrases are also found across line ends.
#[derive(Default)]
struct Joined {
    text: String,
    /// The offset at which each line starts in `text`, and the line's number.
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

    fn find(&self) -> impl Iterator<Item = Found> + '_ {
        PHRASES.iter().flat_map(move |&(phrase, instead)| {
            let whole = move |&(at, _): &(usize, &str)| {
                let is_part = |it: char| it.is_alphanumeric() || it == '_' || it == '-';
                !self.text[..at].ends_with(is_part) && !self.text[at + phrase.len()..].starts_with(is_part)
            };
            self.text.match_indices(phrase).filter(whole).map(move |(at, _)| {
                let line = self.lines[self.lines.partition_point(|it| it.0 <= at) - 1].1;
                Found { line, phrase, instead }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, is_rust: bool) -> Vec<(usize, &'static str)> {
        find(text, is_rust).into_iter().map(|it| (it.line, it.phrase)).collect()
    }

    #[test]
    fn a_phrase_is_found_across_lines_and_in_any_case() {
        assert_eq!(
            lines("# Title\n\nA process goes\nback. Nobody waits.", false),
            [(3, "goes back"), (4, "nobody")]
        );
        assert_eq!(lines("/// It takes them for\n    /// ever.\nfn f() {}", true), [(1, "for ever")]);
    }

    #[test]
    fn parts_of_words_do_not_match() {
        assert_eq!(lines("for everyone, ergo background, a so-many-sided go backend", false), []);
        assert_eq!(lines("fn nobody_waits() { goes_on(somebody_s) }", true), []);
    }

    #[test]
    fn code_and_comments_are_searched_separately() {
        let text = "let url = \"http://nobody\"; // whoever\nlog(\"// somebody\");\n    // everybody";
        let expected = [(3, "everybody"), (1, "whoever"), (1, "nobody"), (2, "somebody")];
        assert_eq!(lines(text, true), expected);
    }

    #[test]
    fn problems_name_the_file_and_the_line() {
        let texts =
            [("a.rs".to_owned(), "// fine\n// nobody".to_owned()), ("b.md".to_owned(), "fine".to_owned())];
        let problems = judge(&texts);
        assert!(problems.len() == 1 && problems[0].starts_with("a.rs:2 says `nobody`"), "{problems:?}");
    }

    #[test]
    fn phrases_are_in_lower_case_and_in_order() {
        assert!(PHRASES.is_sorted() && PHRASES.iter().all(|(it, _)| it.to_lowercase() == *it));
    }
}
