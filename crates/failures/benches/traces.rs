//! Time and memory to read and describe a failure trace of a million records, compared with sorting the lines of the
//! file, and with walking through its JSON.
//!
//! `cargo bench -p faultline-failures --bench traces`

#[path = "../../../benches/common.rs"]
mod bench;
#[path = "../tests/generate/mod.rs"]
mod generate;

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use faultline_failures::{Options, Statistics, read, text};
use nix::sys::resource::{UsageWho, getrusage};
use serde::de::IgnoredAny;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The memory that reading may take, in bytes.
const MEMORY: u64 = 300 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    bench::pin(1);
    if let Some(file) = env::args().skip_while(|it| it != "--read").nth(1) {
        return describe(Path::new(&file));
    }
    let (records, turns) = if bench::quick() { (100_000, 1) } else { (1_000_000, 5) };
    let place = env::temp_dir().join(format!("faultline-traces-{}", std::process::id()));
    fs::create_dir_all(&place)?;
    let measured = measure(&place, records, turns);
    fs::remove_dir_all(&place)?;
    measured
}

fn measure(place: &Path, records: u64, turns: usize) -> Result<(), Box<dyn Error>> {
    // The goals hold for a million records.
    let share = records as f64 / 1e6;
    let lanl = file(place, "lanl.csv", |out| generate::lanl(records, out))?;
    compare(&format!("{records} LANL records"), &lanl, ("sort", sort), (turns, 6.0 * share))?;
    let events = file(place, "events.json", |out| generate::infinitehbd(records, out))?;
    compare(
        &format!("{records} InfiniteHBD events"),
        &events,
        ("bare JSON walk", walk),
        (turns, 12.0 * share),
    )
}

fn file(
    place: &Path,
    name: &str,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<PathBuf, Box<dyn Error>> {
    let path = place.join(name);
    let mut out = BufWriter::new(File::create(&path)?);
    write(&mut out)?;
    out.flush()?;
    Ok(path)
}

type Baseline = fn(&Path) -> Result<f64, Box<dyn Error>>;

fn compare(
    what: &str,
    file: &Path,
    (name, baseline): (&str, Baseline),
    (turns, goal): (usize, f64),
) -> Result<(), Box<dyn Error>> {
    let (mut times, mut baselines, mut most) = (Vec::new(), Vec::new(), 0);
    for _ in 0..turns {
        let (seconds, memory) = read_alone(file)?;
        times.push(seconds);
        most = most.max(memory);
        baselines.push(baseline(file)?);
    }
    let (time, other) = (bench::median(&times), bench::median(&baselines));
    let megabytes = fs::metadata(file)?.len() as f64 / 1e6;
    let measured = format!("{time:.2} s");
    bench::row(
        &format!("reading and describing {what} ({megabytes:.0} MB)"),
        &measured,
        &format!("{name} {other:.2} s"),
        bench::ratio(&times, &baselines),
        None,
    );
    bench::row(&format!("the same, {what}"), &measured, &format!("{goal} s"), time / goal, Some(1.0));
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let ratio = most as f64 / MEMORY as f64;
    bench::row(&format!("peak memory, {what}"), &mebibytes(most), &mebibytes(MEMORY), ratio, Some(1.0));
    Ok(())
}

/// Reads a file in a process of its own. Returns the processor time in seconds, and the peak memory in bytes.
fn read_alone(file: &Path) -> Result<(f64, u64), Box<dyn Error>> {
    let output = Command::new(env::current_exe()?).arg("--read").arg(file).output()?;
    let said = String::from_utf8(output.stdout)?;
    let (seconds, memory) = said.trim().split_once(' ').ok_or("the process printed no measurement")?;
    Ok((seconds.parse()?, memory.parse()?))
}

fn describe(file: &Path) -> Result<(), Box<dyn Error>> {
    let reader = BufReader::with_capacity(1 << 16, File::open(file)?);
    let (seconds, shown) = bench::busy(|| {
        let trace = read(reader, &Options::default())?;
        Ok::<_, faultline_failures::ReadError>(text::text("file", &Statistics::of(&trace)))
    });
    shown?;
    println!("{seconds} {}", bench::peak_memory("self").ok_or("the peak memory is unknown")?);
    Ok(())
}

/// Sorts the lines of a file in one thread. Returns the processor time in seconds.
fn sort(file: &Path) -> Result<f64, Box<dyn Error>> {
    let used = || -> Result<f64, nix::Error> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let seconds = |it: nix::sys::time::TimeVal| it.tv_sec() as f64 + it.tv_usec() as f64 / 1e6;
        Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
    };
    let before = used()?;
    let status = Command::new("sort")
        .args(["--parallel=1", "--output=/dev/null"])
        .arg(file)
        .env("LC_ALL", "C")
        .status()?;
    if !status.success() {
        return Err("sort failed".into());
    }
    Ok(used()? - before)
}

/// Parses a JSON file and ignores its content. Returns the processor time in seconds.
fn walk(file: &Path) -> Result<f64, Box<dyn Error>> {
    let reader = BufReader::with_capacity(1 << 16, File::open(file)?);
    let (seconds, walked) = bench::busy(|| serde_json::from_reader::<_, IgnoredAny>(reader));
    walked?;
    Ok(seconds)
}
