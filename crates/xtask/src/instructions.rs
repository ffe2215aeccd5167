//! Counts the instructions of a few benchmarks, and compares the counts with each other. Unlike times, they hardly depend
//! on what else the machine does, so a limit can be strict, and every landing checks it.

use std::error::Error;
use std::process::{Command, ExitCode, Stdio};

use cargo_metadata::Message;

use crate::Repository;

/// One run of a benchmark of the simulator: its name, and its arguments.
type Case = (&'static str, &'static [&'static str]);

/// A ratio of two counts, each divided by the number that the benchmark prints last.
struct Ratio {
    what: &'static str,
    measured: Case,
    baseline: Case,
    /// The largest permitted ratio.
    at_most: f64,
}

/// The limits are 5 % above the ratios that were measured when they were set.
const RATIOS: [Ratio; 5] = [
    Ratio {
        what: "instructions to start a process: 100 x 100, beside 10 x 100",
        measured: ("growth", &["start", "100", "100"]),
        baseline: ("growth", &["start", "10", "100"]),
        at_most: 1.35,
    },
    Ratio {
        what: "instructions per event: 30 x 100 under HC3I, facts off, beside 2 x 50",
        measured: ("growth", &["once", "30", "100"]),
        baseline: ("growth", &["once", "2", "50"]),
        at_most: 1.29,
    },
    Ratio {
        what: "instructions per event: 2 x 100 under HC3I, facts off, beside a bare heap loop",
        measured: ("throughput", &["off"]),
        baseline: ("throughput", &["bare"]),
        at_most: 5.09,
    },
    Ratio {
        what: "instructions per event: the same, facts kept, beside facts off",
        measured: ("throughput", &["kept"]),
        baseline: ("throughput", &["off"]),
        at_most: 1.39,
    },
    Ratio {
        what: "instructions per message: 2 x 100 under HC3I, facts kept and judged, beside facts off",
        measured: ("peers", &["judged", "1"]),
        baseline: ("peers", &["off", "1"]),
        at_most: 1.95,
    },
];

/// Prints all ratios as a table. Fails if one exceeds its limit, or if `valgrind` cannot be run.
pub(crate) fn run(repository: &Repository) -> Result<ExitCode, Box<dyn Error>> {
    let programs = build(repository)?;
    let count = |(bench, arguments): Case| {
        let program =
            programs.iter().find(|it| it.0 == bench).ok_or(format!("no benchmark {bench} was built"))?;
        per_unit(&program.1, arguments)
    };
    println!("| measurement | value | baseline | ratio | at most | |\n| --- | --- | --- | --- | --- | --- |");
    let mut code = ExitCode::SUCCESS;
    for Ratio { what, measured, baseline, at_most } in RATIOS {
        let (measured, baseline) = (count(measured)?, count(baseline)?);
        let ratio = measured / baseline;
        let met = if ratio <= at_most { "met" } else { "exceeded" };
        println!("| {what} | {measured:.0} | {baseline:.0} | {ratio:.2} | {at_most} | {met} |");
        if ratio > at_most {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Builds the benchmarks of the simulator. Returns the name and the program of each.
fn build(repository: &Repository) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["bench", "--quiet", "--no-run", "--package", "faultline-sim", "--message-format", "json"]);
    for bench in ["growth", "throughput", "peers"] {
        cargo.args(["--bench", bench]);
    }
    let output = cargo.current_dir(&repository.root).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err("the benchmarks cannot be built".into());
    }
    let mut programs = Vec::new();
    for message in Message::parse_stream(&output.stdout[..]) {
        if let Message::CompilerArtifact(it) = message?
            && let Some(program) = it.executable
        {
            programs.push((it.target.name, program.into_string()));
        }
    }
    Ok(programs)
}

/// Runs a benchmark once, and returns the number of its instructions, divided by the last number that it prints.
fn per_unit(program: &str, arguments: &[&str]) -> Result<f64, Box<dyn Error>> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", program]);
    // The benchmark would otherwise start itself again with this variable.
    valgrind.args(arguments).env("MIMALLOC_PURGE_DELAY", "-1");
    let output = valgrind.output().map_err(|error| format!("cannot run `valgrind`: {error}"))?;
    let [printed, counted] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    if !output.status.success() {
        return Err(format!("{program} {}: {}\n{counted}", arguments.join(" "), output.status).into());
    }
    let units = last_number(&printed).ok_or(format!("{program} prints no number"))?;
    let instructions = counted.lines().find(|it| it.contains("I refs:") || it.contains("I   refs:"));
    let instructions =
        instructions.and_then(last_number).ok_or("valgrind printed no number of instructions")?;
    Ok(instructions / units)
}

/// Returns the last number in a text. It may have commas between thousands.
fn last_number(text: &str) -> Option<f64> {
    let words = text.split(|it: char| !it.is_ascii_digit() && it != ',');
    words.filter_map(|it| it.replace(',', "").parse().ok()).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_with_their_commas() {
        assert_eq!(last_number("==1234== I   refs:      1,234,567"), Some(1_234_567.0));
        assert_eq!(last_number("off: 1000 events"), Some(1000.0));
        assert_eq!(last_number("(3000, 2000)"), Some(2000.0));
        assert_eq!(last_number("none, at all"), None);
    }
}
