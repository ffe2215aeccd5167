//! A task-based program on real processes, compared with the same tasks on a rayon pool with as many threads.
//!
//! `cargo bench -p faultline-runtime-tests --bench places`

#[path = "../../../benches/common.rs"]
mod bench;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use faultline_core::{Chunk, Digest, Fact, Life, ProcessId, Span, Time};
use faultline_dataflow::programs::fibonacci::Fibonacci;
use faultline_dataflow::{
    Call, Data, Frame, Program, Stealing, TaskProcess, TaskProcessConfig, TaskProtocol,
};
use faultline_protocols::none::NoProtocol;
use faultline_protocols::placement::ReplicateTo;
use faultline_protocols::theft::{self, StableState, TaskRecovery};
use faultline_runtime::{NodeInput, NodeOptions, Observer, local, node};
use faultline_runtime_tests::undisturbed;
use faultline_supervisor::Status;
use faultline_trace::manifest::LinkEntry;
use faultline_trace::{Bundle, Trace};

/// Number of processes, and of threads in the pool.
const CORES: u32 = 2;
/// Largest index whose Fibonacci number is computed by a single task, without spawning others.
const THRESHOLD: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    if args.first().is_some_and(|it| it == "node") {
        let parameters: Vec<u64> =
            args[1].to_string_lossy().split(',').map(str::parse).collect::<Result<_, _>>()?;
        let program = Busy { fibonacci: fibonacci(parameters[1] as u32), rounds: parameters[2] };
        return serve(parameters[0] == 1, program, &args[2..]);
    }
    let turns = if bench::quick() { 1 } else { 5 };
    let rounds = rounds_of_a_millisecond();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(CORES as usize).build()?;
    // 2,584 leaf tasks that take 1 ms, and 28,657 leaf tasks without work.
    for (what, levels, rounds, goal) in
        [("tasks of 1 ms", 16, rounds, Some(1.1)), ("tasks without work", 21, 0, None)]
    {
        let mut seconds = [const { Vec::new() }; 3];
        for _ in 0..turns {
            let begin = Instant::now();
            pool.install(|| join(THRESHOLD + levels, rounds));
            seconds[0].push(begin.elapsed().as_secs_f64());
            seconds[1].push(federation(false, levels, rounds)?);
            seconds[2].push(federation(true, levels, rounds)?);
        }
        let tasks = fibonacci(levels).tasks() as f64;
        let show = |all: &[f64]| {
            let seconds = bench::median(all);
            format!("{seconds:.3} s, {:.0} ns per task", seconds * 1e9 * f64::from(CORES) / tasks)
        };
        let baseline = format!("rayon {}", show(&seconds[0]));
        for (name, all) in ["none", "TIC, a checkpoint every second"].into_iter().zip(&seconds[1..]) {
            let what = format!("{what} on {CORES} processes under {name}");
            bench::row(&what, &show(all), &baseline, bench::ratio(all, &seconds[0]), goal);
        }
    }
    Ok(())
}

fn fibonacci(levels: u32) -> Fibonacci {
    Fibonacci { n: THRESHOLD + levels, threshold: THRESHOLD, task_time: Span::ZERO }
}

/// Keeps a core busy.
fn work(rounds: u64) -> u64 {
    (0..rounds).fold(1, |sum: u64, it| black_box(sum.rotate_left(5) ^ it))
}

/// Returns the number of rounds of [`work`] that take one millisecond of processor time.
fn rounds_of_a_millisecond() -> u64 {
    const ROUNDS: u64 = 20_000_000;
    let (seconds, _) = bench::busy(|| work(ROUNDS));
    (ROUNDS as f64 * 1e-3 / seconds) as u64
}

/// Runs the same tasks with rayon.
fn join(n: u32, rounds: u64) -> u64 {
    if n <= THRESHOLD {
        return black_box(work(rounds));
    }
    let (one, other) = rayon::join(|| join(n - 1, rounds), || join(n - 2, rounds));
    one.wrapping_add(other)
}

/// [`Fibonacci`] with leaf tasks that keep a core busy.
#[derive(Clone, Debug)]
struct Busy {
    fibonacci: Fibonacci,
    rounds: u64,
}

impl Program for Busy {
    fn main(&self, frame: &mut Frame) -> Data {
        self.fibonacci.main(frame)
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        if call.args.first().is_some_and(|it| *it <= THRESHOLD.into()) {
            black_box(work(self.rounds));
        }
        self.fibonacci.run(call, frame);
    }

    fn cost(&self, call: &Call) -> Span {
        self.fibonacci.cost(call)
    }

    fn digest(&self, result: &Chunk) -> Digest {
        self.fibonacci.digest(result)
    }
}

/// An observer that ignores everything.
struct Nothing;

impl Observer for Nothing {
    fn recorded(&mut self, _: Time, _: ProcessId, _: Life, _: &Fact) {}

    fn status(&mut self, _: Time, _: &Status) {}

    fn measured(&mut self, _: &[LinkEntry]) {}
}

/// Runs the program on real processes. Returns its run time in seconds.
fn federation(tic: bool, levels: u32, rounds: u64) -> Result<f64, Box<dyn Error>> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let bundle = Bundle::create(dir.path().join("run"))?;
    let parameters = format!("{},{levels},{rounds}", u32::from(tic));
    let command = vec![env::current_exe()?.into(), "node".into(), parameters.into()];
    let options = undisturbed(bundle.dir(), &[CORES], Span::from_secs(300));
    let ended = local::run(command, options, &mut Nothing)?;
    if let Some(collapse) = ended.collapsed.first() {
        return Err(format!("a node ended unexpectedly: {collapse:?}").into());
    }
    run_time(&bundle.read_trace()?).ok_or_else(|| "the program did not end".into())
}

/// Runs a single process.
fn serve(tic: bool, program: Busy, args: &[OsString]) -> Result<(), Box<dyn Error>> {
    let options = NodeOptions::parse(args.iter().cloned())?;
    if tic {
        let protocol = theft::Config {
            tau: Span::from_secs(1),
            record: StableState::Graph,
            before_asking: false,
            replicas: 1,
            replicate_to: ReplicateTo::SameCluster,
            defects: theft::Defects::default(),
        };
        run::<TaskRecovery>(options, protocol, program)
    } else {
        run::<NoProtocol>(options, (), program)
    }
}

fn run<P: TaskProtocol + Send + 'static>(
    options: NodeOptions,
    protocol: P::Config,
    program: Busy,
) -> Result<(), Box<dyn Error>>
where
    P::Config: Send + Sync,
{
    let config = TaskProcessConfig {
        protocol: Arc::new(protocol),
        program: Arc::new(program),
        stealing: Stealing { patience: Span::from_millis(1), cluster_first: 80 },
        speeds: vec![100; CORES as usize].into(),
        cores: vec![1; CORES as usize].into(),
    };
    node::run::<TaskProcess<P, Busy>>(options, NodeInput::read()?, Arc::new(config), None)?;
    Ok(())
}

/// Returns the time in seconds from the start of the application until its result is known.
fn run_time(trace: &Trace) -> Option<f64> {
    let finished = trace.streams.values().flatten().filter(|(_, fact)| matches!(fact, Fact::Finished(_)));
    let end = finished.map(|(at, _)| *at).min()?;
    let (begin, _) = trace.supervisor().iter().find(|(_, fact)| *fact == Fact::Begun)?;
    Some(end.since(*begin).as_secs_f64())
}
