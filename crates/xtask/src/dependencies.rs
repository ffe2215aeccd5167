//! Checks the licences of external dependencies, and which crates are built in several versions.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use cargo_metadata::{DependencyKind, PackageId};
use spdx::{Expression, ParseMode};

use crate::{Problems, Repository};

/// Licences that permit use in an Apache-2.0 program and require nothing but attribution.
const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that are built in several versions, and the reasons why this repository cannot change that.
const DUPLICATES: &[(&str, &str)] = &[
    ("base64", "k8s-openapi and serde-saphyr need different versions"),
    ("embedded-io", "postcard depends on two versions, both optional"),
    ("getrandom", "kube's ahash still needs version 0.3, and an optional TLS library needs 0.2"),
    ("syn", "derive macros are migrating to version 3"),
    ("unicode-width", "miette still needs version 0.1"),
];

pub(crate) fn licences(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let packages = &repository.metadata.packages;
    let licensed = packages.iter().map(|it| (it.name.as_str(), it.license.as_deref()));
    Ok(licensed.filter_map(|(name, licence)| judge_licence(name, licence)).collect())
}

fn judge_licence(name: &str, licence: Option<&str>) -> Option<String> {
    let Some(licence) = licence else {
        return Some(format!("{name} does not declare a licence"));
    };
    let Ok(expression) = Expression::parse_mode(licence, ParseMode::LAX) else {
        return Some(format!("{name} has a licence that cannot be parsed: {licence}"));
    };
    let permissive =
        expression.evaluate(|it| it.license.id().is_some_and(|id| PERMISSIVE.contains(&id.name)));
    (!permissive).then(|| format!("{name} has the licence {licence}, which is not permissive"))
}

pub(crate) fn duplicates(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let resolve = repository.metadata.resolve.as_ref().ok_or("cargo has not resolved the dependencies")?;
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|it| (&it.id, it)).collect();
    let mut built: BTreeSet<&PackageId> = repository.metadata.workspace_members.iter().collect();
    let mut open: Vec<&PackageId> = built.iter().copied().collect();
    while let Some(id) = open.pop() {
        for dependency in &nodes[id].deps {
            let only_tests = dependency.dep_kinds.iter().all(|it| it.kind == DependencyKind::Development);
            if !only_tests && built.insert(&dependency.pkg) {
                open.push(&dependency.pkg);
            }
        }
    }
    let packages = repository.metadata.packages.iter().filter(|it| built.contains(&it.id));
    Ok(judge_versions(packages.map(|it| (it.name.to_string(), it.version.to_string())), DUPLICATES))
}

fn judge_versions(built: impl Iterator<Item = (String, String)>, known: &[(&str, &str)]) -> Problems {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, version) in built {
        versions.entry(name).or_default().push(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let is_known = |name: &str| known.iter().any(|(it, _)| *it == name);
    let new = versions
        .iter()
        .filter(|(name, _)| !is_known(name))
        .map(|(name, versions)| format!("{name} is built in versions {}", versions.join(" and ")));
    let gone = known
        .iter()
        .filter(|(name, _)| !versions.contains_key(*name))
        .map(|(name, _)| format!("{name} is built in one version: remove it from `DUPLICATES`"));
    new.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissive_licences_pass_and_others_do_not() {
        for fine in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(Apache-2.0 OR MIT) AND BSD-3-Clause"] {
            assert_eq!(judge_licence("it", Some(fine)), None, "{fine}");
        }
        for not in [Some("GPL-3.0-only"), Some("MIT AND MPL-2.0"), Some("my own"), None] {
            assert!(judge_licence("it", not).is_some(), "{not:?}");
        }
    }

    #[test]
    fn new_duplicates_and_outdated_exceptions_are_problems() {
        let built = || [("a", "1"), ("a", "2"), ("b", "1")].map(|(it, version)| (it.into(), version.into()));
        assert_eq!(judge_versions(built().into_iter(), &[("a", "reason")]), [""; 0]);
        assert_eq!(
            judge_versions(built().into_iter(), &[("b", "reason")]),
            ["a is built in versions 1 and 2", "b is built in one version: remove it from `DUPLICATES`"]
        );
    }
}
