//! Checks that only the permitted files name protocols. All other code reads the protocols' promises, so that a
//! protocol can be added or removed without changes elsewhere, and an unknown protocol is treated like the others.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;

use faultline_api::resource::ProtocolSpec;

use crate::sources::files;
use crate::{Problems, Repository};

/// Paths of files that may name protocols, each with the reason.
const PERMITTED: &[(&str, &str)] = &[
    ("crates/protocols/", "the protocols themselves"),
    ("crates/api/", "the resource: an enum, its options and their validation"),
    ("crates/catalog/", "from the resource to values, and the names of defects"),
    ("crates/fuzz/src/bands.rs", "how often the runs of each protocol do not complete"),
    ("crates/fuzz/src/generate/", "the distribution of random federations"),
    ("crates/fuzz/src/shrink/", "smaller options"),
    ("crates/cli/src/arguments/", "examples in `--help`"),
    ("crates/cli/src/fuzz/errata.rs", "the errata of published protocols"),
    ("crates/cli/src/paper.rs", "the files of a paper's simulator"),
    ("crates/cli/src/processes.rs", "a paper's evaluation on real processes"),
    ("crates/cli/src/reproduce.rs", "the papers that can be reproduced"),
    ("crates/experiments/src/files/", "the files of a paper's simulator"),
    ("crates/experiments/src/reproduce/", "the papers that can be reproduced"),
    ("crates/experiments/src/samples.rs", "the files of a paper's simulator"),
    ("crates/experiments/src/table1.rs", "the papers that can be reproduced"),
    ("crates/tc/src/traffic.rs", "the kernel's name for a selector, `SEL`"),
    ("crates/xtask/", "documents about individual protocols, and their commands"),
];

/// Protocol names that are also ordinary words. They count only as an identifier that begins with a capital, or as a
/// complete string.
const WORDS: &[&str] = &["coordinated", "independent"];

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let names = names(ProtocolSpec::names().filter(|it| *it != "none"));
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for file in files(repository)?.into_iter().filter(|it| it.extension().is_some_and(|it| it == "rs")) {
        let is_test = file.iter().any(|part| part == "tests" || part == "benches");
        if is_test {
            continue;
        }
        let path = file.display().to_string();
        let text = fs::read_to_string(repository.root.join(&file))?;
        let found = named(&text, &names);
        match PERMITTED.iter().find(|(path_prefix, _)| path.starts_with(path_prefix)) {
            Some((path_prefix, _)) if !found.is_empty() => drop(used.insert(*path_prefix)),
            Some(_) => {}
            None => problems.extend(
                found.iter().map(|(line, name)| format!("{path}:{line} names the protocol `{name}`")),
            ),
        }
    }
    let unused = PERMITTED.iter().filter(|(path_prefix, _)| !used.contains(path_prefix));
    problems.extend(
        unused.map(|(path_prefix, _)| format!("{path_prefix} names no protocol: remove it from `PERMITTED`")),
    );
    Ok(problems)
}

/// A name, as source code may contain it.
struct Name {
    /// The name in files.
    name: String,
    /// Its words in lower case.
    words: Vec<String>,
    /// The same, in one.
    folded: String,
    is_ordinary: bool,
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Name> {
    let name = |name: &str| Name {
        name: name.to_owned(),
        words: words(name).map(|it| it.to_lowercase()).collect(),
        folded: folded(name),
        is_ordinary: WORDS.contains(&name),
    };
    names.into_iter().map(name).collect()
}

impl Name {
    /// Returns whether a line of source code contains the name: in a string, or as consecutive words of an identifier,
    /// such as `full_logging`, `FULL_LOGGING` or `FullLogging`.
    fn is_in(&self, line: &str) -> bool {
        let mut identifiers = line.split(|it: char| !it.is_alphanumeric() && it != '_');
        if self.is_ordinary {
            let quoted = format!("\"{}\"", self.name);
            let capital = self.name[..1].to_uppercase() + &self.name[1..];
            return line.contains(&quoted) || identifiers.any(|it| it == capital);
        }
        identifiers.any(|it| {
            let words: Vec<String> = words(it).map(|it| it.to_lowercase()).collect();
            words.windows(self.words.len()).any(|it| it == self.words)
        })
    }
}

/// Returns the names that a source text contains, with their line numbers. Ignores comments, and the tests at the end
/// of the source.
fn named<'a>(text: &'a str, names: &'a [Name]) -> Vec<(usize, &'a str)> {
    let code = text.lines().zip(1..).take_while(|(line, _)| *line != "#[cfg(test)]");
    let code = code.filter(|(line, _)| !line.trim_start().starts_with("//"));
    let names_in = |line: &'a str, folded: String| {
        names
            .iter()
            .filter(move |it| folded.contains(&it.folded) && it.is_in(line))
            .map(|it| it.name.as_str())
    };
    code.flat_map(|(line, number)| names_in(line, folded(line)).map(move |it| (number, it))).collect()
}

/// Returns text in lower case without underscores: it contains every name that the text contains.
fn folded(text: &str) -> String {
    text.chars().filter(|it| *it != '_').flat_map(char::to_lowercase).collect()
}

/// Iterates over the words of an identifier in snake case, camel case or capitals. Digits belong to the word before
/// them.
fn words(identifier: &str) -> impl Iterator<Item = &str> {
    identifier.split('_').flat_map(|part| {
        // `HC3I` is one word.
        let is_capitals = !part.contains(char::is_lowercase);
        let starts = part.char_indices().filter(move |(at, it)| *at > 0 && !is_capitals && it.is_uppercase());
        let starts: Vec<usize> = std::iter::once(0).chain(starts.map(|(at, _)| at)).collect();
        let ends = starts.iter().copied().skip(1).chain([part.len()]).collect::<Vec<_>>();
        starts.into_iter().zip(ends).map(|(from, to)| &part[from..to]).filter(|it| !it.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let names = names(["hc3i", "fullLogging", "chandyLamport", "coordinated", "sel"]);
        named(text, &names).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn a_name_is_found_in_identifiers_and_in_strings() {
        let text =
            "let a = 1;\nmatch it { Protocol::Hc3i(_) => 1 }\nfn of_hc3i() {}\nlet b = \"such as hc3i, or\";";
        assert_eq!(found(text), [2, 3, 4]);
        assert_eq!(found("use api::FullLogging;\n\"coordinated\""), [1, 2]);
    }

    #[test]
    fn a_name_is_found_in_every_case() {
        assert_eq!(found("full_logging::Rank\nchandy_lamport\nof_full_logging_only"), [1, 2, 3]);
        assert_eq!(
            found("FULL_LOGGING\nlet isFullLogging = 1;\nFullLoggingOptions\nChandyLamportMarker"),
            [1, 2, 3, 4]
        );
        assert_eq!(found("\"the quick start runs HC3I\"\nHC3I_NAME\n\"TIC and SEL\""), [1, 2, 3]);
    }

    #[test]
    fn comments_tests_and_ordinary_words_do_not_count() {
        assert_eq!(found("//! HC3I, hc3i\n    /// Coordinated checkpoints\nlet coordinated = 1;\n"), [0; 0]);
        assert_eq!(found("\"a coordinated one\"\n#[cfg(test)]\nmod tests { use Hc3i; }"), [0; 0]);
        assert_eq!(found("self.selected\nlet full = logging;\nhc3iSomething\n\"full logging\""), [3]);
    }
}
