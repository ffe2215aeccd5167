//! The cost of HC3I for a federation of real processes: the duration of a checkpoint of 2 MB per node, and the time for
//! which it freezes the application, compared with writing, syncing and sending the same bytes without Faultline; the
//! run time, compared with a run without a protocol; and the memory of a node with 100 peers.
//!
//! `cargo bench -p faultline-runtime-tests --bench checkpoints`

#[path = "../../../benches/common.rs"]
mod bench;

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use faultline_core::{Claim, Fact, Life, Node, NodeConfig, ProcessId, Span, Time};
use faultline_protocols::hc3i::{self, Hc3i, ReplicateTo};
use faultline_protocols::none::NoProtocol;
use faultline_runtime::{NodeInput, NodeOptions, Observer, local, node};
use faultline_runtime_tests::undisturbed;
use faultline_supervisor::Status;
use faultline_trace::manifest::LinkEntry;
use faultline_trace::{Bundle, Trace};
use faultline_workloads::synthetic::{self, Traffic};
use faultline_workloads::{Config as Application, Workload, heat};

const STATE: usize = 2_000_000;
/// Nodes per cluster.
const NODES: u32 = 2;
const PEERS: u32 = 100;
const STEP: Span = Span::from_millis(20);
const MEGABYTE: f64 = 1e6;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    if args.first().is_some_and(|it| it == "node") {
        let scenario: Vec<u32> =
            args[1].to_string_lossy().split(',').map(str::parse).collect::<Result<_, _>>()?;
        return serve(scenario[0] == 1, scenario[1], scenario[2], &args[2..]);
    }
    let (turns, steps) = if bench::quick() { (1, 150) } else { (3, 400) };

    let mut measured = Measured::default();
    for _ in 0..turns {
        measured.turn(steps)?;
    }
    measured.print();

    // Almost every message forces a checkpoint, so a few steps suffice.
    let with = run_time(&federation(true, steps / 4, 1, &[NODES, NODES])?.trace)?;
    let without = run_time(&federation(false, steps / 4, 1, &[NODES, NODES])?.trace)?;
    let [shown, beside] = [with, without].map(|it| format!("{it:.2} s"));
    bench::row(
        "run time with HC3I, two-way coupling",
        &shown,
        &format!("none {beside}"),
        with / without,
        None,
    );

    let peak = federation(true, 0, 0, &[PEERS + 1])?.peak_memory;
    assert!(peak > 0.0, "the nodes' memory was sampled");
    bench::row(
        &format!("peak memory of a node process with {PEERS} peers"),
        &format!("{:.1} MB", peak / MEGABYTE),
        "20 MB",
        peak / MEGABYTE / 20.0,
        Some(1.0),
    );
    Ok(())
}

/// Measurements in seconds: one per turn, or one per checkpoint in `timelines`.
#[derive(Default)]
struct Measured {
    commit: Vec<f64>,
    frozen: Vec<f64>,
    fsync: Vec<f64>,
    round_trip_and_fsync: Vec<f64>,
    with: Vec<f64>,
    without: Vec<f64>,
    timelines: Vec<[f64; STAGES.len()]>,
}

/// Stages of a checkpoint. A stage is complete once the last process concerned has reached it.
const STAGES: [&str; 5] =
    ["parts passed to the storage", "parts durable", "replicas arrived", "replicas durable", "committed"];

impl Measured {
    fn turn(&mut self, steps: u32) -> Result<(), Box<dyn Error>> {
        let with = federation(true, steps, 0, &[NODES, NODES])?.trace;
        let mut by_hand = Vec::new();
        for _ in 0..10 {
            by_hand.push(measure_by_hand()?);
        }
        let without = federation(false, steps, 0, &[NODES, NODES])?.trace;
        let fsyncs: Vec<f64> = by_hand.iter().map(|it| it.1).collect();
        let both: Vec<f64> = by_hand.iter().map(|it| it.0 + it.1).collect();
        self.fsync.push(bench::median(&fsyncs));
        self.round_trip_and_fsync.push(bench::median(&both));
        self.timelines.extend(timelines(&with));
        let (commit, frozen) = checkpoints(&with);
        self.commit.push(bench::median(&commit));
        self.frozen.push(bench::median(&frozen));
        self.with.push(run_time(&with)?);
        self.without.push(run_time(&without)?);
        Ok(())
    }

    fn print(&self) {
        let row = |what: &str, measured: &[f64], name: &str, baseline: &[f64], goal| {
            let show = |values: &[f64]| match bench::median(values) {
                seconds if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
                seconds => format!("{seconds:.3} s"),
            };
            let ratio = bench::ratio(measured, baseline);
            bench::row(what, &show(measured), &format!("{name} {}", show(baseline)), ratio, Some(goal));
        };
        let what = "2 MB checkpoint, from request to commit, with a replica";
        row(what, &self.commit, "slowest of the same number of files, written and synced", &self.fsync, 1.5);
        let name = "replica round trip + slowest fsync";
        row("time frozen by a checkpoint", &self.frozen, name, &self.round_trip_and_fsync, 1.5);
        let stage = |stage: usize| {
            let all: Vec<f64> = self.timelines.iter().map(|it| it[stage] * 1e3).collect();
            format!("{} {:.2} ms", STAGES[stage], bench::median(&all))
        };
        let stages: Vec<String> = (0..STAGES.len()).map(stage).collect();
        eprintln!("a checkpoint, from its request: {}", stages.join(", "));
        row("run time with HC3I, one-way coupling", &self.with, "none", &self.without, 1.02);
    }
}

/// Results of a run.
struct Ended {
    trace: Trace,
    /// Highest peak memory of any node process, in bytes.
    peak_memory: f64,
}

/// Runs the heat program for `steps` steps, or, if `steps` is 0, a program in which all processes exchange
/// messages.
fn federation(hc3i: bool, steps: u32, feedback: u32, clusters: &[u32]) -> Result<Ended, Box<dyn Error>> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let bundle = Bundle::create(dir.path().join("run"))?;
    let scenario = format!("{},{steps},{feedback}", u32::from(hc3i));
    let command = vec![env::current_exe()?.into(), "node".into(), scenario.into()];
    let options = undisturbed(bundle.dir(), clusters, Span::from_secs(300));
    let mut memory = Memory::default();
    let ended = local::run(command, options, &mut memory)?;
    if let Some(collapse) = ended.collapsed.first() {
        return Err(format!("a node ended unexpectedly: {collapse:?}").into());
    }
    Ok(Ended { trace: bundle.read_trace()?, peak_memory: memory.peak as f64 })
}

/// Samples the memory of the nodes ten times per second, because they are killed at the end of a run.
#[derive(Default)]
struct Memory {
    /// Highest peak memory of any node process so far, in bytes.
    peak: u64,
}

impl Observer for Memory {
    fn recorded(&mut self, _: Time, _: ProcessId, _: Life, _: &Fact) {}

    fn status(&mut self, _: Time, _: &Status) {
        let nodes = children().expect("Linux lists the children of a process");
        self.peak = nodes.iter().filter_map(|pid| bench::peak_memory(pid)).fold(self.peak, u64::max);
    }

    fn measured(&mut self, _: &[LinkEntry]) {}
}

/// Returns the process IDs of this process's children.
fn children() -> io::Result<Vec<String>> {
    let mut children = Vec::new();
    for thread in fs::read_dir("/proc/self/task")? {
        let list = fs::read_to_string(thread?.path().join("children"))?;
        children.extend(list.split_whitespace().map(str::to_owned));
    }
    Ok(children)
}

/// Runs one node of the federation.
fn serve(hc3i: bool, steps: u32, feedback_every: u32, args: &[OsString]) -> Result<(), Box<dyn Error>> {
    let options = NodeOptions::parse(args.iter().cloned())?;
    let application = Arc::new(if steps > 0 {
        Application::Heat(heat::Config {
            steps,
            step_cost: STEP,
            feedback_every,
            state_bytes: STATE as u64,
            ..heat::Config::default()
        })
    } else {
        let traffic = Traffic::Burst { messages: 1000, batch: 10, cost: STEP, between: 0.0, receivers: None };
        Application::Synthetic(synthetic::Config {
            traffic,
            message_bytes: 1,
            state_bytes: 0,
            terms: Vec::new(),
        })
    });
    if hc3i {
        // The first cluster's checkpoints force those of the second.
        let protocol = Arc::new(hc3i::Config {
            checkpoint_every: [Some(Span::from_secs(2)), None].into(),
            collect_every: Some(Span::from_secs(5)),
            collect_by: hc3i::CollectBy::Initiator,
            replicas: 1,
            replicate_to: if steps > 0 { ReplicateTo::OtherCluster } else { ReplicateTo::SameCluster },
            piggyback: hc3i::Piggyback::Sn,
            forcing: hc3i::Forcing::News,
            retry_every: Span::from_millis(500),
            defects: hc3i::Defects::default(),
        });
        node::run::<Node<Hc3i, Workload>>(
            options,
            NodeInput::read()?,
            Arc::new(NodeConfig { protocol, application, verify: false }),
            None,
        )?;
    } else {
        let protocol = Arc::new(());
        node::run::<Node<NoProtocol, Workload>>(
            options,
            NodeInput::read()?,
            Arc::new(NodeConfig { protocol, application, verify: false }),
            None,
        )?;
    }
    Ok(())
}

/// Returns the time in seconds from the request for each checkpoint to its commit at the coordinator, and how long each
/// process was frozen each time, in seconds. Omits the first checkpoint, which delays nothing.
fn checkpoints(trace: &Trace) -> (Vec<f64>, Vec<f64>) {
    let (mut commits, mut frozens) = (Vec::new(), Vec::new());
    for stream in trace.streams.values() {
        let mut requested = None;
        for (at, fact) in stream {
            let Fact::Claim(claim) = fact else { continue };
            match &**claim {
                Claim::CheckpointRequested { position, .. } => requested = Some((*position, *at)),
                Claim::Committed { position, frozen, .. } if position.sn.0 > 1 => {
                    frozens.push(frozen.as_secs_f64());
                    if let Some((_, begin)) = requested.take_if(|it| it.0 == *position) {
                        commits.push(at.since(begin).as_secs_f64());
                    }
                }
                _ => {}
            }
        }
    }
    (commits, frozens)
}

/// Returns the times in seconds from the request for each checkpoint to each of the [`STAGES`]. Omits the first
/// checkpoint. All processes share this machine's clock.
fn timelines(trace: &Trace) -> Vec<[f64; STAGES.len()]> {
    let mut requested = BTreeMap::new();
    let mut reached: BTreeMap<_, [Time; STAGES.len()]> = BTreeMap::new();
    for (&(process, _), stream) in &trace.streams {
        for (at, fact) in stream {
            let (cluster, position, stage) = match fact {
                Fact::Saved(it) => {
                    (it.0.owner.0 / NODES, it.0.position(), if it.0.owner == process { 0 } else { 2 })
                }
                Fact::Durable(it) => {
                    (it.owner.0 / NODES, it.position(), if it.owner == process { 1 } else { 3 })
                }
                Fact::Claim(claim) => match &**claim {
                    Claim::CheckpointRequested { position, .. } => {
                        requested.insert((process.0 / NODES, *position), *at);
                        continue;
                    }
                    Claim::Committed { position, .. } => (process.0 / NODES, *position, 4),
                    _ => continue,
                },
                _ => continue,
            };
            let times = reached.entry((cluster, position)).or_default();
            times[stage] = times[stage].max(*at);
        }
    }
    requested.retain(|(_, position), _| position.sn.0 > 1);
    let since =
        |(key, begin): (_, Time)| reached.get(&key).map(|it| it.map(|at| at.since(begin).as_secs_f64()));
    requested.into_iter().filter_map(since).collect()
}

/// Returns the run time of the application, in seconds.
fn run_time(trace: &Trace) -> Result<f64, &'static str> {
    let mut end = Time::ZERO;
    for (at, fact) in trace.streams.values().flatten() {
        if let Fact::Finished(_) = fact {
            end = end.max(*at);
        }
    }
    let begun = trace.supervisor().iter().find(|(_, fact)| *fact == Fact::Begun);
    let (begin, _) = begun.ok_or("the application never began")?;
    Ok(end.since(*begin).as_secs_f64())
}

/// Performs the work of a cluster's checkpoint without Faultline. Returns two times in seconds: that of the slowest
/// transfer of a node's state over TCP, including the acknowledgement, and that of the slowest write (of states and
/// replicas, all in parallel).
fn measure_by_hand() -> io::Result<(f64, f64)> {
    let state: Vec<u8> =
        (0..STATE as u64).map(|it| (it.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let round_trip = slowest(NODES, |_| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut sender = TcpStream::connect(listener.local_addr()?)?;
        let (mut receiver, _) = listener.accept()?;
        let mut copy = vec![0; STATE];
        let mut acknowledged = [0];
        thread::scope(|scope| {
            let begin = Instant::now();
            let received =
                scope.spawn(|| receiver.read_exact(&mut copy).and_then(|()| receiver.write_all(&[1])));
            sender.write_all(&state)?;
            sender.read_exact(&mut acknowledged)?;
            let time = begin.elapsed().as_secs_f64();
            received.join().expect("a receiver does not panic")?;
            Ok(time)
        })
    })?;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let fsync = slowest(2 * NODES, |index| {
        let begin = Instant::now();
        let mut file = File::create(dir.path().join(index.to_string()))?;
        file.write_all(&state)?;
        file.sync_all()?;
        Ok(begin.elapsed().as_secs_f64())
    })?;
    Ok((round_trip, fsync))
}

/// Returns the time of the slowest of `count` parallel operations, in seconds.
fn slowest(count: u32, one: impl Fn(u32) -> io::Result<f64> + Sync) -> io::Result<f64> {
    thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..count).map(|index| scope.spawn(move || one(index))).collect();
        all.into_iter().try_fold(0.0, |most, it| Ok(f64::max(most, it.join().expect("no panic")?)))
    })
}
