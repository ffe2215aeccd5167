//! Checks that `cargo run` and `cargo test --workspace` compile the packages that they share with the same features, and
//! therefore only once. `crates/features` enables the features that only other programs need.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::process::Command;

use crate::{Problems, Repository};

/// The features of each package, by name and version.
type Features = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let tree = |selection: &[&str]| -> Result<Features, Box<dyn Error>> {
        let mut cargo = Command::new("cargo");
        cargo.args(["tree", "--locked", "--prefix", "none", "--no-dedupe", "--format", "{p}|{f}"]);
        let output = cargo.args(selection).current_dir(&repository.root).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(parse(&String::from_utf8(output.stdout)?))
    };
    let program = tree(&["--package", "faultline-cli", "--edges", "normal,build"])?;
    let workspace = tree(&["--workspace", "--edges", "normal,build,dev"])?;
    Ok(missing(&program, &workspace))
}

/// Parses lines such as `slab v0.4.12|default,std`. A package may be built several times with different features.
fn parse(tree: &str) -> Features {
    let mut packages = Features::new();
    for (package, features) in tree.lines().filter_map(|line| line.split_once('|')) {
        let package = package.split(" (").next().unwrap_or(package);
        let features = features.split(" (").next().unwrap_or(features);
        let features = features.split(',').filter(|it| !it.is_empty()).map(str::to_owned);
        packages.entry(package.to_owned()).or_default().extend(features);
    }
    packages
}

fn missing(program: &Features, workspace: &Features) -> Problems {
    let problem = |(package, enabled): (&String, &BTreeSet<String>)| {
        let missing: Vec<&str> = workspace.get(package)?.difference(enabled).map(String::as_str).collect();
        let named = missing.join(", ");
        (!missing.is_empty()).then(|| format!("add to crates/features/Cargo.toml: {package} with {named}"))
    };
    program.iter().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_only_other_programs_enable_are_named() {
        let program = parse("slab v0.4.12|\nserde v1.0.0|std\nserde v1.0.0|derive (*)\ncli v1 (/work)|\n");
        let workspace =
            parse("slab v0.4.12|default,std (*)\nserde v1.0.0|std,derive\nother v2|std\ncli v1 (/work)|\n");
        assert_eq!(
            missing(&program, &workspace),
            ["add to crates/features/Cargo.toml: slab v0.4.12 with default, std"]
        );
        assert_eq!(missing(&workspace, &program), Problems::new());
    }
}
