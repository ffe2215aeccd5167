//! One table of all benchmarks: what was measured beside its baseline, and whether the goal is met. A goal that is
//! missed is no failure: time is never a test. `benches/README.md` says how it is measured.

use std::error::Error;
use std::process::{Command, ExitCode, Stdio};

use crate::Repository;

/// How a benchmark says what it found.
enum Speaks {
    /// Rows of the table, tab-separated; and it knows `--quick`.
    Rows,
    /// As [`latency`] reads it.
    Latency,
    /// As [`commit`] reads it.
    Commit,
    /// As [`framing`] reads it.
    Divan,
}

const BENCHES: &[(&str, &str, Speaks)] = &[
    ("faultline-protocols", "step", Speaks::Rows),
    ("faultline-runtime", "framing", Speaks::Divan),
    ("faultline-sim", "throughput", Speaks::Rows),
    ("faultline-sim", "peers", Speaks::Rows),
    ("faultline-sim", "growth", Speaks::Rows),
    ("faultline-sim", "memory", Speaks::Rows),
    ("faultline-runtime-tests", "latency", Speaks::Latency),
    ("faultline-runtime-tests", "commit", Speaks::Commit),
    ("faultline-runtime-tests", "checkpoints", Speaks::Rows),
];

/// One line of the table.
#[derive(Debug, PartialEq)]
struct Row {
    what: String,
    measured: String,
    baseline: String,
    ratio: f64,
    goal: Option<f64>,
}

/// What the benchmarks of the simulator are called together.
const SIMULATOR: &str = "simulator";

/// Runs every benchmark, or those that are named, and prints the table, as Markdown. Fails when a benchmark did not run.
pub(crate) fn run(
    repository: &Repository,
    names: &[String],
    quick: bool,
) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(name) = names.iter().find(|name| !BENCHES.iter().any(|it| is_named(it, name))) {
        let all: Vec<&str> = BENCHES.iter().map(|it| it.1).collect();
        return Err(format!("there is no benchmark {name}: {}, or {SIMULATOR}", all.join(", ")).into());
    }
    let wanted = |it: &&_| names.is_empty() || names.iter().any(|name| is_named(it, name));
    let (mut rows, mut broken) = (Vec::new(), Vec::new());
    for (package, bench, speaks) in BENCHES.iter().filter(wanted) {
        eprintln!("{package}: {bench}");
        let mut command = Command::new("cargo");
        command.args(["bench", "--quiet", "--package", package, "--bench", bench]);
        if quick && matches!(speaks, Speaks::Rows) {
            command.args(["--", "--quick"]);
        }
        let output = command.current_dir(&repository.root).stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let found = match speaks {
            Speaks::Rows => text.lines().filter_map(tabbed).collect(),
            Speaks::Latency => latency(&text),
            Speaks::Commit => text.lines().filter_map(commit).collect(),
            Speaks::Divan => framing(&text),
        };
        for note in text.lines().filter_map(|it| it.strip_prefix("note\t")) {
            eprintln!("  {note}");
        }
        if !output.status.success() || found.is_empty() {
            broken.push(format!("{package}: {bench}"));
        }
        rows.extend(found);
    }
    println!("| what | measured | baseline | ratio | goal | |\n| --- | --- | --- | --- | --- | --- |");
    for Row { what, measured, baseline, ratio, goal } in rows {
        let (goal, met) = match goal {
            Some(goal) => (format!("<= {goal}"), if ratio <= goal { "met" } else { "missed" }),
            None => ("-".into(), "shown"),
        };
        println!("| {what} | {measured} | {baseline} | {ratio:.2} | {goal} | {met} |");
    }
    for bench in &broken {
        eprintln!("did not run: {bench}");
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn is_named(&(package, bench, _): &(&str, &str, Speaks), name: &str) -> bool {
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

/// `  two nodes   43.1 us   1.20 x tokio`
fn latency(text: &str) -> Vec<Row> {
    let median = |name| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let (Some(nodes), Some(tokio), Some(sockets)) =
        (median("two nodes"), median("tokio echo"), median("blocking sockets"))
    else {
        return Vec::new();
    };
    let row = |name: &str, baseline: f64, goal| Row {
        what: "one byte there and back between two nodes, p50".into(),
        measured: format!("{nodes:.1} us"),
        baseline: format!("{name} {baseline:.1} us"),
        ratio: nodes / baseline,
        goal,
    };
    vec![row("tokio echo", tokio, Some(1.25)), row("blocking sockets", sockets, None)]
}

/// `  4 at a time: image   12.00 ms, file   10.00 ms, ratio 1.20`
fn commit(line: &str) -> Option<Row> {
    let (processes, times) = line.trim().split_once(" at a time: image")?;
    let (image, rest) = times.split_once(", file")?;
    let (file, ratio) = rest.split_once(", ratio")?;
    Some(Row {
        what: format!("2 MB image made durable, {processes} at a time"),
        measured: image.trim().into(),
        baseline: format!("file written and synced {}", file.trim()),
        ratio: ratio.trim().parse().ok()?,
        goal: Some(1.5),
    })
}

/// Divan's tree: a name, then for each length the fastest, the slowest and the median time.
fn framing(text: &str) -> Vec<Row> {
    let mut in_frame = false;
    let mut medians: [Vec<(&str, String, f64)>; 2] = [Vec::new(), Vec::new()];
    for line in text.lines() {
        let line = line.trim_start_matches(['│', '├', '╰', '─', ' ']);
        let cells: Vec<&str> = line.split('│').map(str::trim).collect();
        let name = cells[0].split_whitespace().next().unwrap_or_default();
        match name {
            "frame" => in_frame = true,
            "copy_and_two_checksums" => in_frame = false,
            _ => {}
        }
        if name.parse::<u32>().is_ok()
            && let Some(nanoseconds) = cells.get(2).and_then(|it| nanoseconds(it))
        {
            medians[usize::from(!in_frame)].push((name, cells[2].to_owned(), nanoseconds));
        }
    }
    let [frames, copies] = medians;
    frames
        .into_iter()
        .zip(copies)
        .map(|((len, frame, time), (_, copy, least))| Row {
            what: format!("framing, {len} bytes out and in"),
            measured: frame,
            baseline: format!("copy and two checksums {copy}"),
            ratio: time / least,
            goal: None,
        })
        .collect()
}

/// `12.3 ns`
fn nanoseconds(text: &str) -> Option<f64> {
    let (value, unit) = text.split_once(' ')?;
    let scale = match unit {
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        _ => return None,
    };
    Some(value.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_have_names() {
        let named = |name| BENCHES.iter().filter(|it| is_named(it, name)).map(|it| it.1).collect::<Vec<_>>();
        assert_eq!(named("peers"), ["peers"]);
        assert_eq!(named("simulator"), ["throughput", "peers", "growth", "memory"]);
        assert_eq!(named("speed"), [""; 0]);
    }

    #[test]
    fn rows_of_every_benchmark_are_read() {
        let row = tabbed("row\twhat\t1 s\tnone 1 s\t1.010\t1.02").expect("a row");
        assert_eq!((row.ratio, row.goal), (1.01, Some(1.02)));
        assert_eq!(tabbed("row\twhat\t1 s\tnone 1 s\t1.010\t").expect("a row").goal, None);
        assert_eq!(tabbed("row\ttoo\tfew"), None);

        let text = "  two nodes  50.0 us  1.25 x tokio\n  tokio echo  40.0 us\n  blocking sockets  25.0 us";
        let ratios: Vec<f64> = latency(text).iter().map(|it| it.ratio).collect();
        assert_eq!(ratios, [1.25, 2.0]);

        let row = commit("  4 at a time: image   12.00 ms, file   10.00 ms, ratio 1.20").expect("a row");
        assert_eq!((row.measured.as_str(), row.ratio), ("12.00 ms", 1.2));

        let text = "\
framing                    fastest │ slowest │ median │ mean │ samples │ iters
├─ copy_and_two_checksums          │         │        │      │         │
│  ╰─ 24                   80 ns   │ 99 ns   │ 0.1 µs │ 1 ns │ 100     │ 100
│                          2 GB/s  │ 2 GB/s  │ 2 GB/s │      │         │
╰─ frame                           │         │        │      │         │
   ╰─ 24                   80 ns   │ 99 ns   │ 150 ns │ 1 ns │ 100     │ 100";
        let rows = framing(text);
        assert_eq!((rows.len(), rows[0].ratio), (1, 1.5));
    }
}
