//! Where a protocol may be named. Everything else reads what it promises, so that a protocol can be added or removed without a
//! change there, and one that nobody here has heard of is treated like the others.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;

use faultline_api::resource::Protocol;

use crate::sources::files;
use crate::{Problems, Repository};

/// The rooms in which protocols are named, with the reason.
const ROOMS: &[(&str, &str)] = &[
    ("crates/protocols/", "the protocols themselves"),
    ("crates/api/", "the resource: an enum, its options and their validation"),
    ("crates/catalog/", "from the resource to values, and the names of defects"),
    ("crates/fuzz/src/generate/", "the distribution of random federations"),
    ("crates/fuzz/src/shrink/", "smaller options"),
    ("crates/cli/src/arguments.rs", "examples in `--help`"),
    ("crates/cli/src/fuzz/errata.rs", "the errata of two papers"),
    ("crates/cli/src/paper.rs", "the files of a paper's simulator"),
    ("crates/cli/src/processes.rs", "a paper's evaluation on real processes"),
    ("crates/cli/src/reproduce.rs", "the papers that can be reproduced"),
    ("crates/experiments/src/files/", "the files of a paper's simulator"),
    ("crates/experiments/src/reproduce/", "the papers that can be reproduced"),
    ("crates/experiments/src/samples.rs", "the files of a paper's simulator"),
    ("crates/experiments/src/table1.rs", "the papers that can be reproduced"),
    ("crates/xtask/", "documents of single protocols, and their commands"),
];

/// Names that are words, too: only as an identifier that begins with a capital, or as a string of their own.
const WORDS: &[&str] = &["coordinated", "independent"];

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let names = forbidden(Protocol::names().filter(|it| *it != "none"));
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for file in files(repository)?.into_iter().filter(|it| it.extension().is_some_and(|it| it == "rs")) {
        let is_test = file.iter().any(|part| part == "tests" || part == "benches");
        if is_test {
            continue;
        }
        let path = file.display().to_string();
        let found = named(&fs::read_to_string(repository.root.join(&file))?, &names);
        match ROOMS.iter().find(|(room, _)| path.starts_with(room)) {
            Some((room, _)) if !found.is_empty() => drop(used.insert(*room)),
            Some(_) => {}
            None => problems.extend(
                found.iter().map(|(line, name)| format!("{path}:{line} names the protocol `{name}`")),
            ),
        }
    }
    let unused = ROOMS.iter().filter(|(room, _)| !used.contains(room));
    problems.extend(unused.map(|(room, _)| format!("{room} names no protocol, and needs no leave to")));
    Ok(problems)
}

/// How source code writes these names: as a string, and as an identifier.
fn forbidden<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    let forms = |name: &str| {
        let capital = name[..1].to_uppercase() + &name[1..];
        let plain = if WORDS.contains(&name) { format!("\"{name}\"") } else { name.to_owned() };
        [capital, plain]
    };
    names.into_iter().flat_map(forms).collect()
}

/// Which of `names` a source names, and in which line. Comments, and the tests at its end, may.
fn named(text: &str, names: &BTreeSet<String>) -> Vec<(usize, String)> {
    let code = text.lines().zip(1..).take_while(|(line, _)| *line != "#[cfg(test)]");
    let code = code.filter(|(line, _)| !line.trim_start().starts_with("//"));
    code.flat_map(|(line, number)| words(line).filter(|it| names.contains(it)).map(move |it| (number, it)))
        .collect()
}

/// The identifiers of a line, whole and in their parts, and the words that stand in quotation marks by themselves.
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
    fn a_name_is_found_as_an_identifier_and_in_a_text() {
        let text =
            "let a = 1;\nmatch it { Protocol::Hc3i(_) => 1 }\nfn of_hc3i() {}\nlet b = \"such as hc3i, or\";";
        let names: Vec<usize> = found(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(names, [2, 3, 4]);
        assert_eq!(found("use api::FullLogging;\n\"coordinated\"").len(), 2);
    }

    #[test]
    fn comments_tests_and_words_are_free() {
        assert_eq!(found("//! HC3I, hc3i\n    /// Coordinated checkpoints\nlet coordinated = 1;\n"), []);
        assert_eq!(found("\"a coordinated one\"\n#[cfg(test)]\nmod tests { use Hc3i; }"), []);
    }
}
