//! Generates mutants of the protocols and of what they run on, and looks for schedules and tests that reveal each.
//!
//! [`operators`] derives every mutant from the source code, [`scratch`] builds a copy that contains all of them, each
//! behind a switch, and this module runs the programs of the copy with one mutant switched on at a time.

mod operators;
mod scratch;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use faultline_api::resource::ProtocolSpec;

use crate::Repository;
use scratch::{Mutant, Programs, Scratch, Test};

/// Mutants that no observation of a run can distinguish from the correct code: the file, the function, the beginning of
/// the code, and the reason.
const EQUIVALENT: &[(&str, &str, &str, &str)] = &[
    (
        "core/src/counters.rs",
        "Counters::maybe_densify",
        "range <= most",
        "both tables contain the same numbers",
    ),
    (
        "core/src/message.rs",
        "Payload::from_slice",
        "bytes.len() <= Short::MOST",
        "both payloads have the same content",
    ),
    (
        "dataflow/src/partition/share.rs",
        "Share::execute",
        "self.executed.before > before",
        "while no further step is complete, the guarded code has no effect",
    ),
    (
        "protocols/src/placement.rs",
        "servers",
        "member.role != Role::RANK",
        "only saves an examination of all ranks",
    ),
];

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Try N mutants, chosen at random.
    #[arg(long, default_value_t = 100, value_name = "N")]
    sample: usize,
    /// Choose the sample that belongs to this number.
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Choose only from mutants whose description, such as `restore.rs Restore::gather: …`, contains this text.
    #[arg(long, default_value = "", value_name = "TEXT")]
    only: String,
    /// Run at most N random schedules of each protocol that reaches a mutant.
    #[arg(long, default_value_t = 400, value_name = "N")]
    random: u64,
    /// Run at most N directed schedules of each protocol that reaches a mutant.
    #[arg(long, default_value_t = 200, value_name = "N")]
    directed: u64,
    /// Try N mutants in parallel.
    #[arg(long, default_value_t = 1, value_name = "N")]
    jobs: usize,
    /// Also run the tests of the mutated crates, and some of other crates, with each mutant that no schedule reveals.
    #[arg(long)]
    tests: bool,
    /// Print the chosen mutants, and run nothing.
    #[arg(long)]
    list: bool,
}

/// The CPU time, in seconds, after which a run of schedules or tests counts as endless.
const LONGEST: &str = "240";
/// The maximum size of the address space of a run, in KiB.
const MEMORY: &str = "6000000";
/// The number of schedules of each protocol that show which mutants the protocol reaches.
const SCOUTS: &str = "400";

/// The mutants that schedules of each protocol reach.
type Reached = BTreeMap<&'static str, BTreeSet<usize>>;

/// What revealed a mutant, if anything.
enum Fate {
    /// Schedules of a protocol, by the violated properties.
    Schedules {
        runs: u64,
        by: Vec<String>,
    },
    /// A test.
    Tests(String),
    Survived {
        runs: u64,
        effect: Effect,
    },
}

/// The effect of a mutant that no property reveals on the facts of the schedules.
#[derive(Clone, Copy)]
enum Effect {
    Unreached,
    /// All facts are the same as without the mutant.
    Nothing,
    Facts,
}

/// What schedules of some protocols printed.
struct Printed {
    runs: u64,
    violated: String,
    /// A hash of all facts, if nothing was violated.
    facts: String,
}

/// Tries a sample of mutants, and prints the share that something revealed, and the survivors.
pub(crate) fn run(repository: &Repository, options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let mut scratch = Scratch::write(repository)?;
    let programs = match options.list {
        true => None,
        false => Some(scratch.build(options.tests)?),
    };
    let mut chosen: Vec<&Mutant> =
        scratch.viable().filter(|it| description(it).contains(&options.only)).collect();
    let all = chosen.len();
    chosen.sort_by_key(|it| mixed(options.seed, &description(it), it.number));
    chosen.truncate(options.sample);
    println!("{} of {all} mutants, chosen with seed {}", chosen.len(), options.seed);
    let Some(programs) = programs else {
        chosen.iter().for_each(|it| println!("{} {}", it.number, description(it)));
        return Ok(ExitCode::SUCCESS);
    };
    for test in &programs.tests {
        if let Some(name) = failed(test, None)? {
            return Err(format!("without a mutant, the test {name} fails").into());
        }
    }
    let reached = reached(&programs, &repository.root.join("target/mutants"))?;
    let fates = search(&chosen, &programs, &reached, options)?;
    Ok(print(&chosen, &fates))
}

/// Returns the file, the function, the code and the change of a mutant.
fn description(mutant: &Mutant) -> String {
    let operator = serde_json::to_value(mutant.site.operator).unwrap_or_default();
    let file = mutant.file.trim_start_matches("crates/");
    let operator = operator.as_str().unwrap_or_default().replace('-', " ");
    format!("{file} {}: {operator}: `{}`", mutant.site.function, mutant.site.text)
}

/// Returns a pseudo-random number for a mutant, which changes with the seed. It does not depend on other mutants, except
/// that the number distinguishes mutants with equal descriptions.
fn mixed(seed: u64, description: &str, number: usize) -> (u64, usize) {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = seed.to_le_bytes().into_iter().chain(description.bytes()).fold(0xcbf2_9ce4_8422_2325, mix);
    let hash = (hash ^ (hash >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (hash ^ (hash >> 30), number)
}

/// Returns the mutants that schedules of each protocol reach.
fn reached(programs: &Programs, directory: &Path) -> Result<Reached, Box<dyn Error>> {
    let mut reached = Reached::new();
    let path = directory.join("reached");
    for protocol in ProtocolSpec::names() {
        let _ = fs::remove_file(&path);
        let mut command = limited(&programs.schedules);
        command.args([protocol, SCOUTS, SCOUTS]).env("FAULTLINE_REACHED", &path);
        let output = command.output()?;
        // The program refuses protocols that cannot be fuzzed.
        if output.status.code() != Some(1) {
            if let Some(it) = printed(&output).filter(|it| !it.violated.is_empty()) {
                return Err(format!("without a mutant, {protocol} violates {}", it.violated).into());
            }
            let numbers = fs::read_to_string(&path)?;
            reached.insert(protocol, numbers.lines().map(str::parse).collect::<Result<_, _>>()?);
            eprintln!("{protocol}: reaches {} mutants", reached[protocol].len());
        }
    }
    Ok(reached)
}

/// Returns a command that ends if it takes too much time or memory.
fn limited(program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -t {LONGEST}; ulimit -v {MEMORY}; exec \"$0\" \"$@\"")]);
    command.arg(program);
    command
}

/// Returns what revealed each mutant.
fn search(
    chosen: &[&Mutant],
    programs: &Programs,
    reached: &Reached,
    options: &Options,
) -> Result<Vec<Fate>, Box<dyn Error>> {
    let (next, fates) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let (start, mut failures) = (now(), Vec::new());
    thread::scope(|scope| {
        let work = || -> Result<(), String> {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(mutant) = chosen.get(place) else { return Ok(()) };
                let fate = try_mutant(mutant, programs, reached, options).map_err(|it| it.to_string())?;
                let mut fates = fates.lock().map_err(|it| it.to_string())?;
                println!("{}", row(mutant, &fate));
                fates.insert(place, fate);
                let (done, elapsed) = (fates.len(), (now() - start).as_secs());
                let left = elapsed * (chosen.len() - done) as u64 / done as u64;
                eprintln!("{done} of {}, {elapsed} s, about {left} s left", chosen.len());
            }
        };
        let workers: Vec<_> = (0..options.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        failures.extend(workers.into_iter().filter_map(|it| it.join().ok().and_then(Result::err)));
    });
    match failures.pop() {
        Some(failure) => Err(failure.into()),
        None => Ok(fates.into_inner()?.into_values().collect()),
    }
}

#[expect(clippy::disallowed_methods, reason = "shows how long the search will take")]
fn now() -> Instant {
    Instant::now()
}

fn try_mutant(
    mutant: &Mutant,
    programs: &Programs,
    reached: &Reached,
    options: &Options,
) -> Result<Fate, Box<dyn Error>> {
    let by: Vec<&str> = reached.iter().filter(|it| it.1.contains(&mutant.number)).map(|it| *it.0).collect();
    let schedules = || {
        let mut command = limited(&programs.schedules);
        let total = |of_each: u64| (of_each * by.len() as u64).to_string();
        command.args([by.join(","), total(options.random), total(options.directed)]);
        command
    };
    let number = mutant.number.to_string();
    let (mut runs, mut facts) = (0, String::new());
    if !by.is_empty() {
        let Some(found) = printed(&schedules().env("FAULTLINE_MUTANT", &number).output()?) else {
            return Ok(Fate::Schedules { runs, by: vec!["endless, or ended abnormally".into()] });
        };
        if !found.violated.is_empty() {
            let by = found.violated.split(", ").map(str::to_owned).collect();
            return Ok(Fate::Schedules { runs: found.runs, by });
        }
        (runs, facts) = (found.runs, found.facts);
    }
    for test in &programs.tests {
        if let Some(name) = failed(test, Some(&number))? {
            return Ok(Fate::Tests(name));
        }
    }
    let effect = match by.is_empty() {
        true => Effect::Unreached,
        false if printed(&schedules().output()?).is_some_and(|it| it.facts == facts) => Effect::Nothing,
        false => Effect::Facts,
    };
    Ok(Fate::Survived { runs, effect })
}

/// Reads what schedules printed; `None` if they ended abnormally.
fn printed(output: &Output) -> Option<Printed> {
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut fields = printed.trim_end_matches('\n').split('\t').map(str::to_owned);
    let (runs, _) = (fields.next()?.parse().ok()?, fields.next()?);
    Some(Printed { runs, violated: fields.next()?, facts: fields.next().unwrap_or_default() })
}

/// Returns the name of the first test that fails with this mutant.
fn failed(test: &Test, mutant: Option<&str>) -> Result<Option<String>, Box<dyn Error>> {
    let mut command = limited(&test.program);
    command.arg("--quiet").args(test.modules).current_dir(&test.directory);
    command.env("CARGO_MANIFEST_DIR", &test.directory).env("INSTA_UPDATE", "no");
    command.envs(mutant.map(|it| ("FAULTLINE_MUTANT", it)));
    let output = command.output()?;
    if output.status.success() {
        return Ok(None);
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let name = printed.lines().find_map(|it| it.strip_prefix("---- ")?.split(' ').next());
    Ok(Some(name.unwrap_or("endless, or ended abnormally").to_owned()))
}

fn row(mutant: &Mutant, fate: &Fate) -> String {
    let fate = match fate {
        Fate::Schedules { runs, by } => format!("{} in schedule {runs}", by.join(", ")),
        Fate::Tests(name) => format!("test {name}"),
        Fate::Survived { runs, effect } => match (equivalent(mutant), effect) {
            (Some(why), _) => format!("equivalent: {why}"),
            (None, Effect::Unreached) => "SURVIVED: no schedule reaches it".to_owned(),
            (None, Effect::Nothing) => format!("SURVIVED {runs} schedules, without changing a fact"),
            (None, Effect::Facts) => format!("SURVIVED {runs} schedules"),
        },
    };
    format!("{} {}: {fate}", mutant.number, description(mutant))
}

fn equivalent(mutant: &Mutant) -> Option<&'static str> {
    let is_listed = |(file, function, text, _): &&(&str, &str, &str, &str)| {
        mutant.file.ends_with(file) && mutant.site.function == *function && mutant.site.text.starts_with(text)
    };
    EQUIVALENT.iter().find(is_listed).map(|it| it.3)
}

/// Prints the share of revealed mutants by property and by file, and the survivors.
fn print(chosen: &[&Mutant], fates: &[Fate]) -> ExitCode {
    let mut properties: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut files: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let (mut survivors, mut equivalents, mut by_tests) = (Vec::new(), 0, 0);
    for (mutant, fate) in chosen.iter().zip(fates) {
        let file = files.entry(&mutant.file).or_default();
        file.1 += 1;
        match fate {
            Fate::Schedules { by, .. } => {
                file.0 += 1;
                for property in by {
                    let property = property.split(':').next().unwrap_or_default();
                    let found = properties.entry(property.to_owned()).or_default();
                    found.0 += 1;
                    found.1 += u64::from(by.len() == 1);
                }
            }
            Fate::Tests(_) => (file.0, by_tests) = (file.0 + 1, by_tests + 1),
            Fate::Survived { .. } if equivalent(mutant).is_some() => equivalents += 1,
            Fate::Survived { .. } => survivors.push(row(mutant, fate)),
        }
    }
    println!("\n| property | mutants that it revealed | that only it revealed |\n| --- | ---: | ---: |");
    for (property, (found, alone)) in properties {
        println!("| {property} | {found} | {alone} |");
    }
    println!("\n| file | revealed | mutants |\n| --- | ---: | ---: |");
    for (file, (revealed, tried)) in files {
        println!("| {file} | {revealed} | {tried} |");
    }
    println!();
    survivors.iter().for_each(|it| println!("{it}"));
    let counted = fates.len() - equivalents;
    let revealed = counted - survivors.len();
    println!(
        "revealed: {revealed} of {counted} ({} %), {by_tests} of them only by tests; equivalent: {equivalents}",
        100 * revealed / counted.max(1)
    );
    if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
