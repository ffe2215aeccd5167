//! Checks that `cargo run` and `cargo test --workspace` enable the same features for the packages that they share, and
//! therefore compile these packages only once. `crates/features` enables the features that only other programs need.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::process::Command;

use crate::{Problems, Repository};

/// The features of each package, by name and version. Cargo compiles a package separately for build scripts and
/// procedural macros, for which the flag is true.
type Features = BTreeMap<(String, bool), BTreeSet<String>>;

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let tree = |selection: &[&str]| -> Result<Features, Box<dyn Error>> {
        let mut cargo = Command::new("cargo");
        cargo.args(["tree", "--locked", "--charset", "ascii", "--format", "{p}|{f}"]);
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

/// Parses a tree with lines such as ``|   `-- slab v0.4.12|default,std``.
fn parse(tree: &str) -> Features {
    let mut packages = Features::new();
    // For each level of the tree: whether the package there is compiled for build scripts, and whether the lines there
    // are below the heading `[build-dependencies]`.
    let (mut hosts, mut headings) = (Vec::new(), Vec::new());
    for line in tree.lines() {
        let text = line.trim_start_matches(['|', '`', '-', ' ']);
        let level = (line.len() - text.len()) / 4;
        let Some((package, features)) = text.split_once('|') else {
            // A heading is one level above the packages below it.
            headings.resize(level + 1, false);
            headings.push(text == "[build-dependencies]");
            continue;
        };
        headings.resize(level + 1, false);
        hosts.truncate(level);
        let host = hosts.last() == Some(&true) || headings[level] || package.contains("(proc-macro)");
        hosts.push(host);
        let package = package.split(" (").next().unwrap_or(package).to_owned();
        let features = features.split(" (").next().unwrap_or(features);
        let features = features.split(',').filter(|it| !it.is_empty()).map(str::to_owned);
        packages.entry((package, host)).or_default().extend(features);
    }
    packages
}

fn missing(program: &Features, workspace: &Features) -> Problems {
    let problem = |(package, enabled): (&(String, bool), &BTreeSet<String>)| {
        let missing: Vec<&str> = workspace.get(package)?.difference(enabled).map(String::as_str).collect();
        let section = if package.1 { "build-dependencies" } else { "dependencies" };
        let named = missing.join(", ");
        let add = || format!("add to [{section}] of crates/features/Cargo.toml: {} with {named}", package.0);
        (!missing.is_empty()).then(add)
    };
    program.iter().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "cli v1 (/work)|
|-- slab v0.4.12|
|-- serde v1.0.0|std
|   `-- serde_derive v1.0.0 (proc-macro)|
|       `-- slab v0.4.12|default
|   [build-dependencies]
|   `-- cc v1.0.0|
`-- serde v1.0.0|std (*)
";

    #[test]
    fn features_that_only_other_programs_enable_are_named() {
        let workspace = "other v2 (/work)|
|-- cc v1.0.0|parallel
|-- slab v0.4.12|std
[build-dependencies]
|-- slab v0.4.12|default,std
[dev-dependencies]
`-- serde v1.0.0|derive,std (*)
";
        assert_eq!(
            missing(&parse(PROGRAM), &parse(workspace)),
            [
                "add to [dependencies] of crates/features/Cargo.toml: serde v1.0.0 with derive",
                "add to [dependencies] of crates/features/Cargo.toml: slab v0.4.12 with std",
                "add to [build-dependencies] of crates/features/Cargo.toml: slab v0.4.12 with std",
            ]
        );
        assert_eq!(missing(&parse(PROGRAM), &parse(PROGRAM)), Problems::new());
    }
}
