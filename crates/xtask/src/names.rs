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
    ("crates/fuzz/src/mutants.rs", "mutations, whose names begin with the protocol"),
    ("crates/fuzz/src/shrink/", "smaller options"),
    ("crates/cli/src/arguments.rs", "examples in `--help`"),
    ("crates/cli/src/fuzz/errata.rs", "the errata of published protocols"),
    ("crates/cli/src/paper.rs", "the files of a paper's simulator"),
    ("crates/cli/src/processes.rs", "a paper's evaluation on real processes"),
    ("crates/cli/src/reproduce.rs", "the papers that can be reproduced"),
    ("crates/experiments/src/files/", "the files of a paper's simulator"),
    ("crates/experiments/src/reproduce/", "the papers that can be reproduced"),
    ("crates/experiments/src/samples.rs", "the files of a paper's simulator"),
    ("crates/experiments/src/table1.rs", "the papers that can be reproduced"),
    ("crates/xtask/", "documents about individual protocols, and their commands"),
];

/// Protocol names that are also ordinary words. They count only as an identifier that begins with a capital, or as a
/// complete string.
const WORDS: &[&str] = &["coordinated", "independent"];

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let names = forbidden(ProtocolSpec::names().filter(|it| *it != "none"));
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for file in files(repository)?.into_iter().filter(|it| it.extension().is_some_and(|it| it == "rs")) {
        let is_test = file.iter().any(|part| part == "tests" || part == "benches");
        if is_test {
            continue;
        }
        let path = file.display().to_string();
        let found = named(&fs::read_to_string(repository.root.join(&file))?, &names);
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

/// Returns the forms in which source code can contain these names: with an initial capital, and either unchanged or,
/// for an ordinary word, in quotes.
fn forbidden<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    let forms = |name: &str| {
        let capital = name[..1].to_uppercase() + &name[1..];
        let plain = if WORDS.contains(&name) { format!("\"{name}\"") } else { name.to_owned() };
        [capital, plain]
    };
    names.into_iter().flat_map(forms).collect()
}

/// Returns the `names` that a source text contains, with their line numbers. Ignores comments, and the tests at the end
/// of the source.
fn named(text: &str, names: &BTreeSet<String>) -> Vec<(usize, String)> {
    let code = text.lines().zip(1..).take_while(|(line, _)| *line != "#[cfg(test)]");
    let code = code.filter(|(line, _)| !line.trim_start().starts_with("//"));
    code.flat_map(|(line, number)| words(line).filter(|it| names.contains(it)).map(move |it| (number, it)))
        .collect()
}

/// Iterates over the identifiers in a line, both whole and split into parts, and over its string literals, including
/// their quotes.
fn words(line: &str) -> impl Iterator<Item = String> + '_ {
    let whole = line.split(|it: char| !it.is_alphanumeric() && it != '_').map(str::to_owned);
    let parts = line.split(|it: char| !it.is_alphanumeric()).map(str::to_owned);
    let quoted = line.split('"').skip(1).step_by(2).map(|it| format!("\"{it}\""));
    let all: BTreeSet<String> = whole.chain(parts).chain(quoted).filter(|it| !it.is_empty()).collect();
    all.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        named(text, &forbidden(["hc3i", "fullLogging", "coordinated"]))
    }

    #[test]
    fn a_name_is_found_in_identifiers_and_in_strings() {
        let text =
            "let a = 1;\nmatch it { Protocol::Hc3i(_) => 1 }\nfn of_hc3i() {}\nlet b = \"such as hc3i, or\";";
        let names: Vec<usize> = found(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(names, [2, 3, 4]);
        assert_eq!(found("use api::FullLogging;\n\"coordinated\"").len(), 2);
    }

    #[test]
    fn comments_tests_and_ordinary_words_do_not_count() {
        assert_eq!(found("//! HC3I, hc3i\n    /// Coordinated checkpoints\nlet coordinated = 1;\n"), []);
        assert_eq!(found("\"a coordinated one\"\n#[cfg(test)]\nmod tests { use Hc3i; }"), []);
    }
}
