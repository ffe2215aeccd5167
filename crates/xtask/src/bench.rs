//! Prints one table of all benchmarks: each measurement compared with its baseline, and whether it meets its goal. A
//! missed goal is not an error. `benches/README.md` explains the measurements.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::process::{Command, ExitCode, Stdio};

use faultline_experiments::measures::Spread;
use faultline_report::chart::{Axis, Chart, Series};

use crate::Repository;
use crate::machine_load::MachineLoad;

/// The benchmarks, each with its package. A benchmark prints tab-separated rows of the table, and supports `--quick`.
const BENCHES: &[(&str, &str)] = &[
    ("faultline-protocols", "step"),
    ("faultline-runtime", "framing"),
    ("faultline-sim", "throughput"),
    ("faultline-sim", "peers"),
    ("faultline-sim", "growth"),
    ("faultline-sim", "memory"),
    ("faultline-sim", "tasks"),
    ("faultline-session", "programs"),
    ("faultline-failures", "traces"),
    ("faultline-runtime-tests", "latency"),
    ("faultline-runtime-tests", "commit"),
    ("faultline-runtime-tests", "checkpoints"),
    ("faultline-runtime-tests", "places"),
];

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Row {
    what: String,
    measured: String,
    baseline: String,
    ratio: f64,
    goal: Option<f64>,
}

/// The common name of the simulator's benchmarks.
const SIMULATOR: &str = "simulator";

/// Runs all benchmarks or the named ones, and prints the table as Markdown. Fails if a benchmark fails or prints no
/// measurement.
pub(crate) fn run(
    repository: &Repository,
    names: &[String],
    quick: bool,
) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(name) = names.iter().find(|name| !BENCHES.iter().any(|it| is_named(it, name))) {
        let all: Vec<&str> = BENCHES.iter().map(|it| it.1).collect();
        return Err(
            format!("there is no benchmark {name}: use one of {}, or {SIMULATOR}", all.join(", ")).into()
        );
    }
    let wanted = |it: &&_| names.is_empty() || names.iter().any(|name| is_named(it, name));
    let (mut rows, mut points, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    let mut loads = Vec::new();
    for (package, bench) in BENCHES.iter().filter(wanted) {
        eprintln!("{package}: {bench}");
        let mut command = Command::new("cargo");
        command.args(["bench", "--quiet", "--package", package, "--bench", bench]);
        if quick {
            command.args(["--", "--quick"]);
        }
        let before = MachineLoad::now()?;
        let output = command.current_dir(&repository.root).stderr(Stdio::inherit()).output()?;
        loads.push((bench, MachineLoad::now()?.of_others_since(&before)));
        let text = String::from_utf8_lossy(&output.stdout);
        let found: Vec<Row> = text.lines().filter_map(tabbed).collect();
        points.extend(text.lines().filter_map(point));
        for note in text.lines().filter_map(|it| it.strip_prefix("note\t")) {
            eprintln!("  {note}");
        }
        if !output.status.success() || found.is_empty() {
            broken.push(format!("{package}: {bench}"));
        }
        rows.extend(found);
    }
    // Shorter runs would give useless curves.
    if !quick {
        draw(repository, &points)?;
    }
    println!("| measurement | value | baseline | ratio | goal | |\n| --- | --- | --- | --- | --- | --- |");
    for Row { what, measured, baseline, ratio, goal } in rows {
        let (goal, met) = match goal {
            Some(goal) => (
                format!("<= {}", (goal * 100.0).round() / 100.0),
                if ratio <= goal { "met" } else { "missed" },
            ),
            None => ("-".into(), "shown"),
        };
        println!("| {what} | {measured} | {baseline} | {ratio:.2} | {goal} | {met} |");
    }
    println!("\nOther programs used this share of the machine during each benchmark, including its build:");
    for (bench, percent) in loads {
        println!("{bench} {percent:.0} %");
    }
    for bench in &broken {
        eprintln!("failed, or printed no measurement: {bench}");
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn is_named(&(package, bench): &(&str, &str), name: &str) -> bool {
    name == bench || name == SIMULATOR && package == "faultline-sim"
}

fn tabbed(line: &str) -> Option<Row> {
    let fields: Vec<&str> = line.strip_prefix("row\t")?.split('\t').collect();
    let [what, measured, baseline, ratio, goal] = fields[..] else { return None };
    let goal = if goal.is_empty() { None } else { Some(goal.parse().ok()?) };
    Some(Row {
        what: what.into(),
        measured: measured.into(),
        baseline: baseline.into(),
        ratio: ratio.parse().ok()?,
        goal,
    })
}

/// Parses a point of a chart: the name of the quantity that grows, its size, and the time per event relative to that at
/// the smallest size.
fn point(line: &str) -> Option<(String, f64, f64)> {
    let fields: Vec<&str> = line.strip_prefix("point\t")?.split('\t').collect();
    let [figure, x, y] = fields[..] else { return None };
    Some((figure.into(), x.parse().ok()?, y.parse().ok()?))
}

/// Writes `benches/growth-NAME.svg` for each quantity that grows.
fn draw(repository: &Repository, points: &[(String, f64, f64)]) -> Result<(), Box<dyn Error>> {
    let mut figures: BTreeMap<&str, BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
    for (figure, x, y) in points {
        figures.entry(figure).or_default().entry(*x as u64).or_default().push(*y);
    }
    for (what, sizes) in figures {
        let spreads = sizes.into_iter().map(|(x, ratios)| (x as f64, Spread::of(ratios)));
        let series = Series { name: "mean and range of the turns".into(), points: spreads.collect() };
        let chart = Chart::new(
            format!("Time per event of the simulator, by number of {what}"),
            Axis::logarithmic(what),
            "time per event, relative to the smallest size",
            vec![series],
        );
        let path = repository.root.join(format!("benches/growth-{what}.svg"));
        fs::write(&path, chart.file())?;
        eprintln!("{}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_have_names() {
        let named = |name| BENCHES.iter().filter(|it| is_named(it, name)).map(|it| it.1).collect::<Vec<_>>();
        assert_eq!(named("peers"), ["peers"]);
        assert_eq!(named("simulator"), ["throughput", "peers", "growth", "memory", "tasks"]);
        assert_eq!(named("speed"), [""; 0]);
    }

    #[test]
    fn incomplete_points_are_ignored() {
        assert_eq!(point("point\tnodes\t1000\t1.5"), Some(("nodes".to_owned(), 1000.0, 1.5)));
        assert_eq!(point("point\tnodes\t1000"), None);
    }

    #[test]
    fn incomplete_rows_are_ignored() {
        let row = tabbed("row\twhat\t1 s\tnone 1 s\t1.010\t1.02").expect("a row");
        assert_eq!((row.ratio, row.goal), (1.01, Some(1.02)));
        assert_eq!(tabbed("row\twhat\t1 s\tnone 1 s\t1.010\t").expect("a row").goal, None);
        assert_eq!(tabbed("row\ttoo\tfew"), None);
    }
}
