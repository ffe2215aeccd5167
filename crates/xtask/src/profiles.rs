//! Checks the profiles. The examples share the packages built for the workspace only if both are optimised alike. If a
//! program's package has its own line in the release profile, Cargo strips the program only if that line repeats
//! `strip`. The lock file of the examples must be up to date as well.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;

use cargo_metadata::MetadataCommand;

use crate::{Problems, Repository};

const RELEASE: &str = "[profile.release.package]";
const SECTIONS: [&str; 4] = ["[profile.release]", RELEASE, "[profile.dev]", "[profile.dev.package]"];

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let read = |file| fs::read_to_string(repository.root.join(file));
    let (own, examples, lock) =
        (read("Cargo.toml")?, read("examples/Cargo.toml")?, read("examples/Cargo.lock")?);
    let members = repository.metadata.workspace_packages();
    let programs: Vec<&str> = members
        .iter()
        .filter(|it| it.targets.iter().any(|target| target.is_bin()))
        .map(|it| it.name.as_str())
        .collect();
    let used = packages(&lock);
    let differences = SECTIONS.iter().flat_map(|section| different(section, &own, &examples, &used));
    let problems = unstripped(&settings(&own, RELEASE), &programs).into_iter().chain(differences);
    Ok(problems.chain(outdated_lock(repository)).collect())
}

/// Returns a problem if the lock file of the examples lacks a dependency that a package of the workspace now has.
fn outdated_lock(repository: &Repository) -> Option<String> {
    let examples = repository.root.join("examples/Cargo.toml");
    let mut locked = MetadataCommand::new();
    locked.manifest_path(examples).other_options(["--locked".into()]);
    let error = locked.exec().err()?;
    Some(format!(
        "examples/Cargo.lock: run `cargo update --workspace --manifest-path examples/Cargo.toml` ({error})"
    ))
}

/// Returns the settings of a section of a manifest, with their values as text.
fn settings<'a>(manifest: &'a str, section: &str) -> BTreeMap<&'a str, &'a str> {
    let lines = manifest.lines().skip_while(|line| *line != section).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = ")).collect()
}

/// Returns the names of the packages in a lock file.
fn packages(lock: &str) -> BTreeSet<&str> {
    lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect()
}

fn unstripped(own: &BTreeMap<&str, &str>, programs: &[&str]) -> Problems {
    let lacks = |name: &&&str| own.get(**name).is_some_and(|it| !it.contains("strip = true"));
    let problem =
        |name: &&str| format!("Cargo.toml: {name} builds a program: add `strip = true` to its profile");
    programs.iter().filter(lacks).map(problem).collect()
}

/// Returns a problem for each setting of a section that differs between the workspace and the examples. The examples
/// may omit packages that they do not use, and their panics unwind.
fn different(section: &str, own: &str, examples: &str, used: &BTreeSet<&str>) -> Problems {
    let (own, examples) = (settings(own, section), settings(examples, section));
    let names: BTreeSet<&str> = own.keys().chain(examples.keys()).copied().collect();
    let is_omitted = |name: &str| {
        name == "panic" || section.ends_with(".package]") && !used.contains(name.trim_matches('"'))
    };
    let differs = |name: &&str| match examples.get(*name) {
        None => *name == "\"*\"" || !is_omitted(name),
        here => own.get(*name) != here,
    };
    let problem = |name| format!("examples/Cargo.toml: `{name}` in {section} differs from Cargo.toml");
    names.into_iter().filter(differs).map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "[profile.release]\nstrip = true\n\n[profile.release.package]\na = { opt-level = 0 }\n\
                       b = { opt-level = 1, strip = true }\n\n[profile.dev.package]\nc = { opt-level = 0 }\n";

    #[test]
    fn a_program_with_its_own_settings_is_stripped() {
        let own = settings(OWN, RELEASE);
        assert_eq!(unstripped(&own, &["b", "c"]), Vec::<String>::new());
        assert_eq!(unstripped(&own, &["a", "b"]).len(), 1);
    }

    #[test]
    fn examples_are_optimised_like_the_workspace() {
        let used = packages("[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n");
        assert_eq!(different(RELEASE, OWN, OWN, &used), Vec::<String>::new());
        let examples = "[profile.release.package]\na = { opt-level = 0 }\n";
        assert_eq!(different(RELEASE, OWN, examples, &used), Vec::<String>::new(), "b is not used");
        for examples in ["", "[profile.release.package]\na = { opt-level = 1 }\n"] {
            assert_eq!(different(RELEASE, OWN, examples, &used).len(), 1, "a is used");
        }
        assert_eq!(different("[profile.release]", OWN, "", &used).len(), 1);
    }
}
