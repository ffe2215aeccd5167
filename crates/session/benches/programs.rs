//! Events per second of a protocol that is a program, through the simulator and the checker, compared with a bare loop that
//! sends the same lines to the same program over a pipe.
//!
//! `cargo bench -p faultline-session --bench programs`

#![expect(clippy::disallowed_methods, reason = "a benchmark measures the time of this machine")]

#[path = "../../../benches/common.rs"]
mod bench;

use std::cell::RefCell;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use faultline_api::Federation;
use faultline_session::{Session, Simulator};

/// A bare loop takes at least this share of the time.
const GOAL: f64 = 1.0 / 0.6;

thread_local! {
    /// The events that the program received.
    static EVENTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn main() -> Result<(), Box<dyn Error>> {
    let (steps, turns) = if bench::quick() { (300, 3) } else { (1_500, 7) };
    for (language, command) in [("python", vec!["python3", "again.py"]), ("go", vec!["./again"])] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(language);
        let Some(command) = prepare(&dir, &command)? else {
            eprintln!("SKIPPED: {language}, which is not installed");
            continue;
        };
        let federation = federation(&dir, &command, steps)?;
        faultline_catalog::show_lines(Some(|_, line| {
            if let Some(event) = line.strip_prefix("> ") {
                EVENTS.with_borrow_mut(|events| events.push(format!("{event}\n")));
            }
        }));
        simulate(&federation);
        faultline_catalog::show_lines(None);
        let events = EVENTS.take();
        let (mut simulated, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            simulated.push(simulate(&federation));
            bare.push(pipe(&dir, &command, &events)?);
        }
        let show = |all: &[f64]| format!("{:.0} events/s", events.len() as f64 / bench::median(all));
        let what = format!("a protocol in {language}, simulated and judged");
        let ratio = bench::ratio(&simulated, &bare);
        bench::row(&what, &show(&simulated), &format!("pipe {}", show(&bare)), ratio, Some(GOAL));
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

/// Simulates and judges a run, and returns how many seconds this took.
fn simulate(federation: &Federation) -> f64 {
    let begun = Instant::now();
    let run = Session::new(federation).simulate(&mut Simulator::new(&mut ())).expect("the program starts");
    black_box(run.judge().judgement);
    begun.elapsed().as_secs_f64()
}

/// Sends lines to a new execution of the program, waits for each reply, and returns how many seconds this took.
fn pipe(dir: &Path, command: &[String], lines: &[String]) -> Result<f64, Box<dyn Error>> {
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn()?;
    let (input, output) = (program.stdin.take(), program.stdout.take());
    let (mut input, output) = input.zip(output).ok_or("standard streams are piped")?;
    let mut output = BufReader::new(output);
    let mut reply = String::new();
    let mut begun = Instant::now();
    for (number, line) in lines.iter().enumerate() {
        // The start of the interpreter does not count.
        if number == 1 {
            begun = Instant::now();
        }
        input.write_all(line.as_bytes())?;
        reply.clear();
        output.read_line(&mut reply)?;
        black_box(&reply);
    }
    let seconds = begun.elapsed().as_secs_f64();
    drop(input);
    program.wait()?;
    Ok(seconds)
}
