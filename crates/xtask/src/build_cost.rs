//! Measures the cost of compiling the default program from scratch, in CPU seconds, by cause. How many seconds the same
//! build takes differs between machines by a factor of two. A limit is therefore a multiple of what [`REFERENCE`] costs
//! in the same build.
//!
//! Cargo runs this program in place of the compiler (`RUSTC_WRAPPER`). If [`RECORD`] names a file, this program runs
//! the compiler, and appends a line to the file with the CPU seconds of the compiler and the linker. Cargo and build
//! scripts account for the rest of the total.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use cargo_metadata::{DependencyKind, PackageId};

use crate::Repository;
use crate::machine_load::of_children;

/// The environment variable that names the file to which the compiler's costs are added.
const RECORD: &str = "FAULTLINE_BUILD_COST";
/// The name of the row for crates that several causes need.
const SHARED: &str = "needed by several";
/// The name of the row for Cargo itself, and for compiling and running build scripts.
const REST: &str = "Cargo and build scripts";
/// Third-party crates whose cost rarely changes, because they are large, and new versions change little of them.
const REFERENCE: [&str; 5] = ["aho_corasick", "clap_builder", "serde_json", "syn", "tokio"];
/// The maximum number of crates that are listed for a cause.
const NAMED: usize = 4;

/// Runs the compiler and records its cost if Cargo calls this program in place of the compiler; returns
/// `None` otherwise.
pub(crate) fn compile() -> Option<Result<ExitCode, Box<dyn Error>>> {
    let record = std::env::var_os(RECORD)?;
    let mut arguments = std::env::args_os().skip(1);
    // The variable may also be set if this program is called by a user, or by a Cargo process that it started for
    // another purpose.
    let compiler = arguments.next().filter(|it| it.to_string_lossy().ends_with("rustc"))?;
    Some(recorded(compiler, arguments.collect(), Path::new(&record)))
}

fn recorded(compiler: OsString, arguments: Vec<OsString>, record: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let name = arguments.windows(2).find(|it| it[0] == "--crate-name").map(|it| it[1].clone());
    let status = Command::new(compiler).args(arguments).status()?;
    if let Some(name) = name {
        let line = format!("{}\t{:.3}\n", name.to_string_lossy(), of_children()?);
        OpenOptions::new().create(true).append(true).open(record)?.write_all(line.as_bytes())?;
    }
    Ok(ExitCode::from(status.code().and_then(|it| u8::try_from(it).ok()).unwrap_or(1)))
}

/// Builds the default program in the release profile from scratch, and prints the cost. Warns if it exceeds
/// `goal` CPU seconds. Fails if it exceeds `at_most` times the cost of [`REFERENCE`], or if the program is larger than
/// `size_at_most` MB.
#[expect(clippy::disallowed_methods, reason = "shows how long the build took")]
pub(crate) fn run(
    repository: &Repository,
    goal: Option<f64>,
    at_most: Option<f64>,
    size_at_most: Option<f64>,
) -> Result<ExitCode, Box<dyn Error>> {
    let target: &Path = repository.metadata.target_directory.as_ref();
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(&repository.root).env("CARGO_INCREMENTAL", "0");
        command
    };
    if !cargo(&["clean", "--quiet", "--profile", "release"]).status()?.success() {
        return Err("cannot remove the files of earlier builds".into());
    }
    fs::create_dir_all(target)?;
    let record = target.join("build-cost.tsv");
    let _ = fs::remove_file(&record);
    let (begun, before) = (Instant::now(), of_children()?);
    let mut build = cargo(&["build", "--release"]);
    build.env("RUSTC_WRAPPER", std::env::current_exe()?).env(RECORD, &record);
    if !build.status()?.success() {
        return Err("the build failed".into());
    }
    let (took, total) = (begun.elapsed().as_secs_f64(), of_children()? - before);
    let units = parse(&fs::read_to_string(&record)?);
    let causes = causes(&units, &edges(repository, &units)?);
    print!("{}", table(causes, total - units.values().sum::<f64>(), total));
    let program = target.join("release/faultline");
    let size = fs::metadata(&program)?.len() as f64 / 1e6;
    let times = total / reference(&units)?;
    println!("\n{total:.0} s of CPU in {took:.0} s; {times:.1} times as much as {}", REFERENCE.join(", "));
    println!("the program is {size:.1} MB in size");
    if let Some(goal) = goal.filter(|it| total > *it) {
        println!("warning: this exceeds the goal of {goal:.0} s of CPU");
    }
    let limits = [("times", times, at_most), ("MB", size, size_at_most)];
    let exceeded: Vec<_> = limits.into_iter().filter_map(exceeded).collect();
    exceeded.iter().for_each(|it| println!("{it}"));
    Ok(if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the cost of [`REFERENCE`] in CPU seconds.
fn reference(units: &BTreeMap<String, f64>) -> Result<f64, String> {
    let cost =
        |name| units.get(name).ok_or_else(|| format!("{name} was not compiled; remove it from REFERENCE"));
    REFERENCE.into_iter().map(cost).sum()
}

/// Returns a message if the measured value exceeds the limit.
fn exceeded((unit, measured, limit): (&str, f64, Option<f64>)) -> Option<String> {
    let limit = limit.filter(|it| measured > *it)?;
    Some(format!("{measured:.2} {unit} exceed the limit of {limit:.2} {unit}"))
}

/// Parses the CPU seconds of each crate.
fn parse(record: &str) -> BTreeMap<String, f64> {
    let mut units = BTreeMap::new();
    for (name, seconds) in record.lines().filter_map(|line| line.split_once('\t')) {
        *units.entry(name.to_owned()).or_default() += seconds.parse().unwrap_or(0.0);
    }
    units
}

/// Dependencies between crates, by the names that the compiler uses.
#[derive(Debug, Default)]
struct Edges {
    /// Crates of the workspace.
    own: BTreeSet<String>,
    needs: BTreeMap<String, BTreeSet<String>>,
}

/// Returns the dependencies between crates that were compiled.
fn edges(repository: &Repository, units: &BTreeMap<String, f64>) -> Result<Edges, Box<dyn Error>> {
    let resolve = repository.metadata.resolve.as_ref().ok_or("cargo has not resolved the dependencies")?;
    let members: BTreeSet<&PackageId> = repository.metadata.workspace_members.iter().collect();
    let mut names: BTreeMap<&PackageId, Vec<String>> = BTreeMap::new();
    for package in &repository.metadata.packages {
        let compiled = package.targets.iter().map(|it| it.name.replace('-', "_"));
        names.insert(&package.id, compiled.filter(|it| units.contains_key(it) && it != BUILD).collect());
    }
    let mut edges = Edges::default();
    for node in &resolve.nodes {
        for name in &names[&node.id] {
            if members.contains(&node.id) {
                edges.own.insert(name.clone());
            }
            let needed = node
                .deps
                .iter()
                .filter(|it| it.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development));
            let needed = needed.flat_map(|it| names[&it.pkg].iter().cloned());
            edges.needs.entry(name.clone()).or_default().extend(needed);
        }
    }
    Ok(edges)
}

/// The crate name that Cargo gives to all build scripts. The record cannot distinguish build scripts, because they
/// share this name.
const BUILD: &str = "build_script_build";

/// For each cause, its crates and their CPU seconds.
type Causes = BTreeMap<String, Vec<(String, f64)>>;

/// Assigns each crate to a cause. Each crate of the workspace is its own cause. Each external crate that one of them
/// needs directly is a cause of itself and of all crates that it needs. A crate with several causes is assigned to
/// [`SHARED`].
fn causes(units: &BTreeMap<String, f64>, edges: &Edges) -> Causes {
    let needs = |name: &str| edges.needs.get(name).into_iter().flatten();
    let direct: BTreeSet<&String> =
        edges.own.iter().flat_map(|it| needs(it)).filter(|it| !edges.own.contains(*it)).collect();
    let mut because: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for cause in direct {
        let mut open = vec![cause.as_str()];
        let mut reached = BTreeSet::new();
        while let Some(name) = open.pop() {
            if reached.insert(name) {
                because.entry(name).or_default().insert(cause);
                open.extend(needs(name).map(String::as_str));
            }
        }
    }
    let mut causes = Causes::new();
    for (name, &seconds) in units {
        let cause = match because.get(name.as_str()) {
            _ if edges.own.contains(name) => name.as_str(),
            Some(causes) if causes.len() == 1 => causes.first().expect("there is one"),
            Some(_) => SHARED,
            None => REST,
        };
        causes.entry(cause.to_owned()).or_default().push((name.clone(), seconds));
    }
    causes
}

/// Returns the table as Markdown, starting with the most expensive cause.
fn table(causes: Causes, rest: f64, total: f64) -> String {
    let mut causes = causes;
    causes.entry(REST.to_owned()).or_default().push(("run".to_owned(), rest));
    let mut rows: Vec<_> = causes
        .into_iter()
        .map(|(cause, mut crates)| {
            crates.sort_by(|a, b| b.1.total_cmp(&a.1));
            (crates.iter().map(|it| it.1).sum::<f64>(), cause, crates)
        })
        .collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut text = "| cause | CPU seconds | share | crates |\n| --- | --- | --- | --- |\n".to_owned();
    for (seconds, cause, crates) in rows {
        let named: Vec<_> =
            crates.iter().take(NAMED).map(|(name, seconds)| format!("{name} {seconds:.1}")).collect();
        let more =
            if crates.len() > NAMED { format!(", {} more", crates.len() - NAMED) } else { String::new() };
        let share = 100.0 * seconds / total;
        text += &format!("| {cause} | {seconds:.1} | {share:.0} % | {}{more} |\n", named.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn a_crate_is_assigned_to_the_only_dependency_that_needs_it() {
        let units =
            parse("own\t5\nclient\t1\ntls\t7.5\ntls\t0.5\nyaml\t2\nserde\t3\nbuild_script_build\t4\n");
        let needs = [
            ("own", set(&["client", "yaml"])),
            ("client", set(&["tls", "serde"])),
            ("yaml", set(&["serde"])),
        ];
        let needs = needs.map(|(name, needs)| (name.to_owned(), needs)).into();
        let causes = causes(&units, &Edges { own: set(&["own"]), needs });
        let sum = |cause: &str| causes[cause].iter().map(|it| it.1).sum::<f64>();
        assert_eq!(sum("own"), 5.0);
        assert_eq!(sum("client"), 9.0, "including crates that only it needs");
        assert_eq!(sum("yaml"), 2.0);
        assert_eq!(sum(SHARED), 3.0);
        assert_eq!(sum(REST), 4.0);
        let table = table(causes, 6.0, 29.0);
        let rows: Vec<&str> = table.lines().skip(2).map(|it| it.split('|').nth(1).unwrap().trim()).collect();
        assert_eq!(rows, [REST, "client", "own", SHARED, "yaml"], "{table}");
        assert!(table.contains("| client | 9.0 | 31 % | tls 8.0, client 1.0 |"), "{table}");
    }

    #[test]
    fn a_value_above_its_limit_is_reported() {
        assert_eq!([exceeded(("MB", 35.0, Some(35.0))), exceeded(("MB", 1e6, None))], [None, None]);
        let message = "35.01 MB exceed the limit of 35.00 MB";
        assert_eq!(exceeded(("MB", 35.01, Some(35.0))).as_deref(), Some(message));
    }

    #[test]
    fn the_reference_is_the_sum_of_its_crates_and_each_must_be_compiled() {
        let mut units: BTreeMap<String, f64> = REFERENCE.into_iter().map(|it| (it.to_owned(), 2.5)).collect();
        units.insert("own".to_owned(), 100.0);
        assert_eq!(reference(&units), Ok(12.5));
        units.remove("syn");
        assert_eq!(reference(&units), Err("syn was not compiled; remove it from REFERENCE".to_owned()));
    }

    #[test]
    fn the_cost_of_a_compiler_is_recorded_and_its_status_returned() {
        let dir = tempfile::tempdir().unwrap();
        let record = dir.path().join("record");
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 3";
        let arguments = ["-c", spin, "rustc", "--crate-name", "spinning"].map(OsString::from).to_vec();
        let status = recorded("sh".into(), arguments, &record).unwrap();
        assert_eq!(format!("{status:?}"), format!("{:?}", ExitCode::from(3)));
        let units = parse(&fs::read_to_string(record).unwrap());
        assert!(units["spinning"] > 0.01, "{units:?}");
    }
}
