//! The time to make a 2 MB image durable, compared with writing and syncing the same bytes to a file: with
//! the same number of parallel processes, on the same file system, in alternating turns.
//!
//! `cargo bench -p faultline-runtime-tests --bench commit`

#[path = "../../../benches/common.rs"]
mod bench;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use faultline_core::application::Job;
use faultline_core::process::{In, Out};
use faultline_core::{
    Action, Attempt, Chunk, Digest, Event, Fact, Gauges, Image, ImageName, Incarnation, LifeStart, Position,
    Process, ProcessId, Sn, Snapshot, Span, Time, Witness,
};
use faultline_runtime::{NodeInput, NodeOptions, local, node};
use faultline_runtime_tests::undisturbed;
use faultline_trace::Bundle;
use serde::{Deserialize, Serialize};

const BYTES: usize = 2_000_000;
const WRITES: u32 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    match args.first().and_then(|it| it.to_str()) {
        Some("node") => {
            let options = NodeOptions::parse(args[2..].iter().cloned())?;
            Ok(node::run::<Writer>(options, NodeInput::read()?, Arc::new(PathBuf::from(&args[1])), None)?)
        }
        Some("plain") => plain(Path::new(&args[1]), Path::new(&args[2])),
        _ => compare(),
    }
}

fn compare() -> Result<(), Box<dyn Error>> {
    let turns = if bench::quick() { 3 } else { 9 };
    for processes in [1, 4] {
        let (mut images, mut files) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            images.push(nodes(processes)?);
            files.push(plain_processes(processes)?);
        }
        bench::row(
            &format!("2 MB image made durable, {processes} at a time"),
            &format!("{:.2} ms", bench::median(&images)),
            &format!("file written and synced {:.2} ms", bench::median(&files)),
            bench::ratio(&images, &files),
            Some(1.5),
        );
    }
    Ok(())
}

/// Runs nodes, each of which writes images one at a time.
fn nodes(count: u32) -> Result<f64, Box<dyn Error>> {
    let dir = tempfile::tempdir_in(".")?;
    let bundle = Bundle::create(dir.path().join("run"))?;
    let results = dir.path().join("results");
    fs::create_dir(&results)?;
    let command = vec![env::current_exe()?.into(), "node".into(), results.clone().into()];
    let options = undisturbed(bundle.dir(), &[count], Span::from_secs(120));
    local::run(command, options, &mut ())?;
    read_results(&results)
}

fn plain_processes(count: u32) -> Result<f64, Box<dyn Error>> {
    let dir = tempfile::tempdir_in(".")?;
    let results = dir.path().join("results");
    fs::create_dir(&results)?;
    let mut children = Vec::new();
    for index in 0..count {
        let store = dir.path().join(index.to_string());
        fs::create_dir(&store)?;
        let result = results.join(index.to_string());
        children.push(Command::new(env::current_exe()?).arg("plain").arg(store).arg(result).spawn()?);
    }
    for mut child in children {
        child.wait()?;
    }
    read_results(&results)
}

fn plain(store: &Path, result: &Path) -> Result<(), Box<dyn Error>> {
    let state = state();
    let mut times = Vec::new();
    for number in 0..WRITES {
        let path = store.join(number.to_string());
        let begin = Instant::now();
        let mut file = File::create(&path)?;
        file.write_all(&state)?;
        file.sync_all()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(fs::write(result, bench::median(&times).to_string())?)
}

fn read_results(dir: &Path) -> Result<f64, Box<dyn Error>> {
    let mut medians = Vec::new();
    for entry in fs::read_dir(dir)? {
        medians.push(fs::read_to_string(entry?.path())?.parse()?);
    }
    Ok(bench::median(&medians))
}

/// A process that writes images one at a time.
struct Writer {
    me: ProcessId,
    results: Arc<PathBuf>,
    state: Arc<[u8]>,
    began: Instant,
    times: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
struct Nothing;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NoStamp;

impl Job for Nothing {
    type Output = ();
    fn cost(&self) -> Span {
        Span::ZERO
    }
    fn run(self) {}
}

impl faultline_core::Stamp for NoStamp {
    fn position(&self) -> Position {
        Position::default()
    }
}

impl Writer {
    fn write(&mut self, out: &mut Out<Self>) {
        let sn = Sn(self.times.len() as u32 + 1);
        let name = ImageName { owner: self.me, incarnation: Incarnation(0), sn, attempt: Attempt(1) };
        let application = [Chunk::Bytes(self.state.clone())].into();
        let snapshot = Snapshot { witness: Witness::default(), channels: [].into(), application };
        self.began = Instant::now();
        out.push(Action::Persist(Arc::new(Image { name, head: ().into(), saved: ().into(), snapshot })));
    }
}

impl Process for Writer {
    type Stamp = NoStamp;
    type Control = ();
    type Head = ();
    type Saved = ();
    type Job = Nothing;
    type Config = PathBuf;
    const FIFO: bool = false;

    fn start(start: LifeStart<PathBuf>, _: Time, out: &mut Out<Self>) -> Self {
        let (me, results, began) = (start.me, start.config, Instant::now());
        let mut writer = Writer { me, results, state: state().into(), began, times: Vec::new() };
        writer.write(out);
        writer
    }

    fn handle(&mut self, event: In<Self>, _: Time, out: &mut Out<Self>) {
        let Event::Persisted(_) = event else { return };
        self.times.push(self.began.elapsed().as_secs_f64() * 1e3);
        if self.times.len() < WRITES as usize {
            return self.write(out);
        }
        let result = bench::median(&self.times).to_string();
        fs::write(self.results.join(self.me.to_string()), result).expect("a file for the result");
        out.push(Action::Fact(Fact::Finished(Box::new((Witness::default(), Digest([0; 16]))))));
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// Returns incompressible bytes.
fn state() -> Vec<u8> {
    let mut seed = 1_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..BYTES).map(|_| next()).collect()
}
