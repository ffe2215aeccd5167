//! Events per second of a protocol that is a program, through the simulator and the checker, compared with a bare loop that
//! sends the same lines to as many executions of the same program. All of them run on one core, and only CPU time counts.
//!
//! `cargo bench -p faultline-session --bench programs`

#[path = "../../../benches/common.rs"]
mod bench;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use faultline_api::Federation;
use faultline_session::{Session, Simulator};

/// A bare loop takes at least this share of the time.
const GOAL: f64 = 1.0 / 0.6;

/// An event, with the process ID of the execution that received it.
type Line = (u32, String);

thread_local! {
    /// The events that the executions of the program received.
    static EVENTS: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

fn main() -> Result<(), Box<dyn Error>> {
    bench::pin(0);
    let (steps, turns) = if bench::quick() { (300, 3) } else { (1_500, 7) };
    for (language, command) in [("Python", vec!["python3", "again.py"]), ("Go", vec!["./again"])] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(language.to_lowercase());
        let Some(command) = prepare(&dir, &command)? else {
            eprintln!("SKIPPED: {language}, which is not installed");
            continue;
        };
        let federation = federation(&dir, &command, steps)?;
        faultline_catalog::show_lines(Some(|execution, _, line| {
            if let Some(event) = line.strip_prefix("> ") {
                EVENTS.with_borrow_mut(|events| events.push((execution, format!("{event}\n"))));
            }
        }));
        simulate(&federation);
        faultline_catalog::show_lines(None);
        let events = EVENTS.take();
        let executions: BTreeSet<u32> = events.iter().map(|it| it.0).collect();
        let (mut simulated, mut of_program, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..turns {
            // The executions of the first run serve the later ones, too.
            let program = bench::cpu_time(&executions)?;
            let (host, ()) = bench::busy(|| simulate(&federation));
            let program = bench::cpu_time(&executions)? - program;
            simulated.push(host + program);
            of_program.push(program / (host + program));
            bare.push(pipes(&dir, &command, &events)?);
        }
        let show = |all: &[f64]| format!("{:.0} events/s", events.len() as f64 / bench::median(all));
        let share = 100.0 * bench::median(&of_program);
        let what =
            format!("a protocol in {language}, simulated and judged ({share:.0} % of it in the program)");
        let ratio = bench::ratio(&simulated, &bare);
        bench::row(&what, &show(&simulated), &format!("pipes {}", show(&bare)), ratio, Some(GOAL));
    }
    faultline_catalog::end_all();
    Ok(())
}

/// Returns the command, after compiling its program if necessary; `None` if its language is not installed.
fn prepare(dir: &Path, command: &[&str]) -> Result<Option<Vec<String>>, Box<dyn Error>> {
    let words = |first: &Path| {
        let rest = command[1..].iter().map(|&it| it.to_owned());
        [first.display().to_string()].into_iter().chain(rest).collect()
    };
    if command[0] != "./again" {
        let is_installed = Command::new(command[0]).arg("--version").output().is_ok();
        return Ok(is_installed.then(|| words(Path::new(command[0]))));
    }
    let program: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("again");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg("again.go").current_dir(dir);
    match build.status() {
        Err(_) => Ok(None),
        Ok(status) if status.success() => Ok(Some(words(&program))),
        Ok(status) => Err(format!("go build: {status}").into()),
    }
}

fn federation(dir: &Path, command: &[String], steps: u32) -> Result<Federation, Box<dyn Error>> {
    let text = fs::read_to_string(dir.join("again.yaml"))?.replace("steps: 60", &format!("steps: {steps}"));
    let mut federation = faultline_api::parse("again.yaml", text.as_bytes())?;
    if let faultline_api::resource::ProtocolSpec::Program(program) = &mut federation.spec.protocol {
        program.command = command.to_vec();
        for file in program.files.values_mut() {
            file.text = file.file.take().map(|it| fs::read_to_string(dir.join(it))).transpose()?;
        }
    }
    Ok(federation)
}

fn simulate(federation: &Federation) {
    let run = Session::new(federation).simulate(&mut Simulator::new(&mut ())).expect("the program starts");
    black_box(run.judge().judgement);
}

/// Sends the lines to new executions of the program, waits for each reply, and returns how many seconds of CPU time this
/// took.
fn pipes(dir: &Path, command: &[String], lines: &[Line]) -> Result<f64, Box<dyn Error>> {
    let mut programs = BTreeMap::new();
    for (execution, _) in lines {
        if programs.contains_key(execution) {
            continue;
        }
        let mut program = Command::new(&command[0]);
        program.args(&command[1..]).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = program.spawn()?;
        let (input, output) = (program.stdin.take(), program.stdout.take());
        let (input, output) = input.zip(output).ok_or("standard streams are piped")?;
        programs.insert(*execution, (program, input, BufReader::new(output)));
    }
    let executions: BTreeSet<u32> = programs.values().map(|it| it.0.id()).collect();
    let mut reply = String::new();
    let mut send = |(execution, line): &Line| -> Result<(), Box<dyn Error>> {
        let (_, input, output) = programs.get_mut(execution).ok_or("all are started")?;
        input.write_all(line.as_bytes())?;
        reply.clear();
        output.read_line(&mut reply)?;
        black_box(&reply);
        Ok(())
    };
    // The start of the interpreter does not count.
    let (first, others): (Vec<_>, Vec<_>) =
        lines.iter().partition(|it| it.1.starts_with("{\"n\":0,\"event\":\"hello\""));
    first.into_iter().try_for_each(&mut send)?;
    let before = bench::cpu_time(&executions)?;
    let (host, sent) = bench::busy(|| others.into_iter().try_for_each(&mut send));
    sent?;
    let seconds = host + bench::cpu_time(&executions)? - before;
    for (mut program, input, _) in programs.into_values() {
        drop(input);
        program.wait()?;
    }
    Ok(seconds)
}
