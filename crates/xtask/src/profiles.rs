//! Checks the release profiles: the examples share what was built for the default program only if they are optimised
//! alike, and Cargo strips a program only if its package's own line in the profile repeats `strip`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;

use crate::{Problems, Repository};

const SECTION: &str = "[profile.release.package]";

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let read = |file| fs::read_to_string(repository.root.join(file));
    let (own, examples) = (read("Cargo.toml")?, read("examples/Cargo.toml")?);
    let members = repository.metadata.workspace_packages();
    let programs: Vec<&str> = members
        .iter()
        .filter(|it| it.targets.iter().any(|target| target.is_bin()))
        .map(|it| it.name.as_str())
        .collect();
    let own = overrides(&own);
    Ok(unstripped(&own, &programs).into_iter().chain(different(&own, &overrides(&examples))).collect())
}

/// Returns the packages with settings of their own in the release profile, and the settings as text.
fn overrides(manifest: &str) -> BTreeMap<&str, &str> {
    let section = manifest.lines().skip_while(|line| *line != SECTION).skip(1);
    section.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = ")).collect()
}

fn unstripped(own: &BTreeMap<&str, &str>, programs: &[&str]) -> Problems {
    let lacks = |name: &&&str| own.get(**name).is_some_and(|it| !it.contains("strip = true"));
    let problem =
        |name: &&str| format!("Cargo.toml: {name} builds a program: add `strip = true` to its profile");
    programs.iter().filter(lacks).map(problem).collect()
}

fn different(own: &BTreeMap<&str, &str>, examples: &BTreeMap<&str, &str>) -> Problems {
    let differs = |(name, settings): &(&&str, &&str)| own.get(**name) != Some(*settings);
    let problem =
        |(name, _)| format!("examples/Cargo.toml: the profile of {name} differs from that in Cargo.toml");
    examples.iter().filter(differs).map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "[profile.release]\nstrip = true\n\n[profile.release.package]\na = { opt-level = 0 }\n\
                       b = { opt-level = 1, strip = true }\n\n[profile.dev.package]\nc = { opt-level = 0 }\n";

    #[test]
    fn a_program_with_settings_of_its_own_is_stripped() {
        let own = overrides(OWN);
        assert_eq!(unstripped(&own, &["b", "c"]), Vec::<String>::new());
        assert_eq!(unstripped(&own, &["a", "b"]).len(), 1);
    }

    #[test]
    fn examples_are_optimised_like_the_workspace() {
        let own = overrides(OWN);
        assert_eq!(different(&own, &own), Vec::<String>::new());
        let examples = overrides("[profile.release.package]\na = { opt-level = 1 }\nc = { opt-level = 0 }\n");
        assert_eq!(different(&own, &examples).len(), 2);
    }
}
