//! Checks the repository's own files for problems that the compiler does not detect.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Problems, Repository};

/// Crates that do not use the standard library, and therefore cannot use a clock, a file or a socket.
const NO_STD: &[&str] =
    &["faultline-core", "faultline-dataflow", "faultline-protocols", "faultline-workloads"];

/// Directories with a `clippy.toml` of their own, which permits clocks.
const REAL_TIME: &[&str] = &[
    "crates/callers",
    "crates/cli",
    "crates/client",
    "crates/console",
    "crates/guard",
    "crates/kubectl",
    "crates/program",
    "crates/runtime",
    "crates/runtime-tests",
    "crates/tls",
    "crates/view",
    "e2e",
    "node-image",
    "operator",
];

/// Paths on a developer's machine, and registries other than the public one. Split into parts, so that this file does
/// not contain them itself.
const PLACES: &[&[&str]] = &[
    &["/ho", "me/"],
    &["/ro", "ot/"],
    &["/Us", "ers/"],
    &["/wo", "rk/"],
    &["spar", "se+"],
    &["[sour", "ce."],
];

/// Directories with programs for developers, which may panic if their output is closed.
const MAY_PRINT: &[&str] = &["crates/xtask", "crates/runtime-tests", "examples", "e2e"];
/// The macros that panic if the output cannot be written. They cover those whose names begin with `e`.
const PRINTING: &[&[&str]] = &[&["print", "!("], &["print", "ln!("]];

pub(crate) fn lints(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let mut problems = Vec::new();
    for package in repository.metadata.workspace_packages() {
        if !fs::read_to_string(&package.manifest_path)?.contains("[lints]\nworkspace = true\n") {
            problems.push(format!("{} does not use the workspace's lints", package.name));
        }
    }
    Ok(problems)
}

pub(crate) fn no_std(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let mut problems = Vec::new();
    let files = files(repository)?;
    for package in repository.metadata.workspace_packages() {
        if NO_STD.contains(&package.name.as_str()) {
            let sources = package.manifest_path.with_file_name("src");
            let root = sources.join("lib.rs");
            if !fs::read_to_string(&root)?.contains("\n#![no_std]\n") {
                problems.push(format!("{root} uses the standard library"));
            }
            let is_source = |it: &&PathBuf| {
                it.extension().is_some_and(|it| it == "rs") && repository.root.join(it).starts_with(&sources)
            };
            for file in files.iter().filter(is_source) {
                if takes_std(&fs::read_to_string(repository.root.join(file))?) && !is_for_tests(file) {
                    problems.push(format!("{} uses the standard library", file.display()));
                }
            }
        }
    }
    Ok(problems)
}

/// Returns whether a source text uses the standard library outside the tests at its end.
fn takes_std(text: &str) -> bool {
    text.lines()
        .take_while(|it| *it != "#[cfg(test)]")
        .any(|it| it.trim_start().starts_with("extern crate std"))
}

/// Checks that no code outside the tests uses a macro that prints: such a macro panics if the output cannot be written, for
/// example because the disk is full.
pub(crate) fn prints(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let mut problems = Vec::new();
    for file in files(repository)? {
        let is_source =
            file.extension().is_some_and(|it| it == "rs") && file.iter().any(|part| part == "src");
        if !is_source || is_for_tests(&file) || MAY_PRINT.iter().any(|it| file.starts_with(it)) {
            continue;
        }
        for line in printing_lines(&fs::read_to_string(repository.root.join(&file))?) {
            problems.push(format!(
                "{}:{line} uses a macro that panics if the output cannot be written",
                file.display()
            ));
        }
    }
    Ok(problems)
}

/// Returns the lines outside the tests at the end of a source text that print with a macro.
fn printing_lines(text: &str) -> Vec<usize> {
    let lines = (1..).zip(text.lines().take_while(|it| *it != "#[cfg(test)]"));
    let prints = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        PRINTING.iter().any(|it| code.contains(&it.concat()))
    };
    lines.filter(|(_, line)| prints(line)).map(|(number, _)| number).collect()
}

/// Returns whether a file is compiled only for tests: `testing.rs`, `tests.rs`, or a file below a directory named
/// `testing` or `tests`.
pub(crate) fn is_for_tests(file: &Path) -> bool {
    file.iter().any(|part| ["testing.rs", "tests.rs", "testing", "tests"].iter().any(|it| part == *it))
}

/// Checks that only the listed crates permit clocks: a `clippy.toml`, even an empty one, replaces the one at the root.
pub(crate) fn clocks(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let named = |it: &PathBuf| it.file_name().is_some_and(|it| it == "clippy.toml" || it == ".clippy.toml");
    let found: BTreeSet<String> = files(repository)?
        .into_iter()
        .filter(named)
        .filter_map(|it| it.parent().map(|it| it.display().to_string()))
        .filter(|it| !it.is_empty())
        .collect();
    Ok(judge_clocks(&found))
}

fn judge_clocks(found: &BTreeSet<String>) -> Problems {
    let listed: BTreeSet<String> = REAL_TIME.iter().map(|it| (*it).to_owned()).collect();
    let permits =
        |it: &String| format!("{it}/clippy.toml permits clocks, which only real-time crates may use");
    let missing = |it: &String| format!("{it} has no clippy.toml: remove it from `REAL_TIME` in sources.rs");
    found.difference(&listed).map(permits).chain(listed.difference(found).map(missing)).collect()
}

/// Checks that every module is reachable from a crate root. Otherwise it is never compiled, and its tests never run.
pub(crate) fn reached(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let packages = repository.metadata.workspace_packages();
    let targets = packages.iter().flat_map(|it| &it.targets);
    let mut roots: Vec<PathBuf> = targets.map(|it| it.src_path.clone().into()).collect();
    // The examples have their own workspace.
    let is_root = |it: &PathBuf| {
        let parts: Vec<&str> = it.iter().filter_map(|part| part.to_str()).collect();
        matches!(
            parts[..],
            ["examples", _, "src", "lib.rs" | "main.rs"]
                | ["examples", _, "src", "bin", _]
                | ["examples", _, "tests", _]
        )
    };
    roots.extend(files(repository)?.into_iter().filter(is_root).map(|it| repository.root.join(it)));
    let compiled = reached_from(&roots)?;
    let sources = files(repository)?.into_iter().filter(|it| it.extension().is_some_and(|it| it == "rs"));
    Ok(sources
        .filter(|it| !compiled.contains(&repository.root.join(it)))
        .map(|it| format!("{} is not reachable from any crate root", it.display()))
        .collect())
}

/// Returns the files of the crates with these roots.
fn reached_from(roots: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Box<dyn Error>> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<(PathBuf, bool)> = roots.iter().map(|it| (it.clone(), true)).collect();
    while let Some((file, is_root)) = open.pop() {
        if !reached.insert(file.clone()) {
            continue;
        }
        let beside = is_root || file.file_name().is_some_and(|it| it == "mod.rs");
        let modules = if beside { file.with_file_name("") } else { file.with_extension("") };
        let mut stated = None;
        for line in fs::read_to_string(&file)?.lines() {
            if let Some(module) = declared_module(line) {
                let usual = [modules.join(format!("{module}.rs")), modules.join(module).join("mod.rs")];
                let places =
                    stated.take().map_or(usual.to_vec(), |path| vec![file.with_file_name("").join(path)]);
                open.extend(places.iter().filter_map(|it| Some((it.canonicalize().ok()?, false))));
            }
            stated = line.trim().strip_prefix("#[path = \"").and_then(|it| it.strip_suffix("\"]"));
        }
    }
    Ok(reached)
}

/// Returns `name` for a line such as `pub(crate) mod name;`.
fn declared_module(line: &str) -> Option<&str> {
    let (before, name) = line.trim().strip_suffix(';')?.rsplit_once(' ')?;
    matches!(before, "mod" | "pub mod" | "pub(crate) mod" | "pub(super) mod").then_some(name)
}

pub(crate) fn places(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let mut problems = Vec::new();
    for file in files(repository)? {
        if let Ok(text) = fs::read_to_string(repository.root.join(&file)) {
            problems.extend(
                named_places(&text).map(|(number, it)| format!("{}:{number} names {it}", file.display())),
            );
        }
    }
    Ok(problems)
}

fn named_places(text: &str) -> impl Iterator<Item = (usize, String)> {
    text.lines().zip(1..).flat_map(|(line, number)| {
        let places = PLACES.iter().map(|parts| parts.concat());
        places.filter(|it| line.contains(it)).map(move |it| (number, it))
    })
}

/// Returns all files that are part of the repository, or would be after `git add`.
pub(crate) fn files(repository: &Repository) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&repository.root)
        .output()?;
    if !output.status.success() {
        return Err(format!(
            "cannot list the files with `git ls-files`: {}",
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    let names = String::from_utf8(output.stdout)?;
    let files = names.split('\0').filter(|it| !it.is_empty()).map(PathBuf::from);
    Ok(files.filter(|it| exists(&repository.root, it)).collect())
}

fn exists(root: &Path, file: &Path) -> bool {
    root.join(file).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_library_is_found_in_every_file_but_not_in_tests() {
        assert!(takes_std("//! A module.\n\nextern crate std;\n"));
        assert!(!takes_std("use core::fmt;\n\n#[cfg(test)]\nmod tests {\n    extern crate std;\n}\n"));
        assert!(is_for_tests(Path::new("crates/dataflow/src/programs/testing.rs")));
        assert!(!is_for_tests(Path::new("crates/dataflow/src/programs/queens.rs")));
    }

    #[test]
    fn printing_macros_are_found_outside_tests() {
        let [print, println] = [0, 1].map(|it| PRINTING[it].concat());
        let text =
            format!("// {print}\n    anstream::e{println}\"text\");\n{print}1)\n#[cfg(test)]\n{println}2)\n");
        assert_eq!(printing_lines(&text), [2, 3]);
    }

    #[test]
    fn a_crate_permits_clocks_only_if_it_is_listed() {
        let listed: BTreeSet<String> = REAL_TIME.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(judge_clocks(&listed), [""; 0]);
        let mut found = listed.clone();
        found.insert("crates/sim".to_owned());
        assert!(judge_clocks(&found)[0].starts_with("crates/sim/clippy.toml permits clocks"));
        found = listed;
        found.remove("e2e");
        assert!(judge_clocks(&found)[0].starts_with("e2e has no clippy.toml"));
    }

    #[test]
    fn a_module_without_a_declaration_is_not_reachable() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        let root = write(
            "lib.rs",
            "mod a;\npub(crate) mod b;\n// mod lonely;\n#[path = \"a/../far.rs\"]\nmod near;\n",
        );
        let expected = [
            root.clone(),
            write("a.rs", "mod inner;\n"),
            write("a/inner.rs", ""),
            write("b/mod.rs", "    mod beside;\n"),
            write("b/beside.rs", ""),
            write("far.rs", ""),
        ];
        write("lonely.rs", "");
        write("inner.rs", "");
        assert_eq!(reached_from(&[root]).unwrap(), BTreeSet::from(expected));
    }

    #[test]
    fn a_place_is_found_with_its_line() {
        let text = format!("fine\nsee {}user/notes\n", PLACES[0].concat());
        assert_eq!(named_places(&text).collect::<Vec<_>>(), [(2, PLACES[0].concat())]);
        assert_eq!(named_places("http://127.0.0.1/metrics and ~/.zfunc").count(), 0);
    }
}
