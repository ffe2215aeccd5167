//! Application messages per second under HC3I, compared with the simulators SimGrid (C++) and SimPy, which simulate the
//! same traffic without any protocol. `benches/peers/README.md` lists their requirements. A simulator that is not
//! installed is skipped with a message.

#[path = "../../../benches/common.rs"]
mod bench;
#[path = "../tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use faultline_checker::{Context, Verdict, judge};
use faultline_core::{NodeConfig, Promises, Span, Time};
use faultline_protocols::hc3i::Hc3i;
use faultline_sim::Config;
use faultline_trace::{Manifest, Recorder};
use faultline_workloads::synthetic::{self, Behaviour, Traffic};
use faultline_workloads::{Config as Application, Workload, pingpong};

/// The allocator of the `faultline` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CLUSTERS: &[usize] = &[100, 100];
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/peers");

/// The same traffic for all simulators: a configuration for Faultline, and arguments for the others.
struct Case {
    name: &'static str,
    clusters: &'static [usize],
    application: Application,
    checkpoint_every: Span,
    /// Arguments for SimGrid and SimPy, which are slower and therefore send fewer messages of the same
    /// pattern.
    others: [&'static [&'static str]; 2],
    /// Largest permitted time per message relative to SimGrid's, without and with the checker.
    goals: [Option<f64>; 2],
    /// Largest permitted time per message with the checker, relative to the time without facts.
    judging: Option<f64>,
}

fn cases() -> [Case; 4] {
    let computation = Span::from_micros(100);
    let behaviour = |send: [f64; 2]| Behaviour { mean_computation: computation, send: send.into() };
    let synthetic = |traffic: Traffic, message_bytes: u32| {
        Application::Synthetic(synthetic::Config {
            traffic,
            message_bytes,
            state_bytes: 1 << 20,
            terms: Vec::new(),
        })
    };
    [
        Case {
            name: "5 % between clusters, one way",
            clusters: CLUSTERS,
            application: synthetic(
                Traffic::Burst {
                    messages: 5_000,
                    batch: 10,
                    cost: Span::from_millis(1),
                    between: 0.05,
                    receivers: None,
                },
                1000,
            ),
            checkpoint_every: Span::from_millis(150),
            others: [&["burst", "100", "10", "0.05"], &["burst", "500", "10", "0.05"]],
            goals: [Some(1.0 / 5.0), Some(1.0 / 3.0)],
            judging: Some(2.0),
        },
        Case {
            name: "5 % between clusters, both ways",
            clusters: CLUSTERS,
            application: synthetic(
                Traffic::Random {
                    total: computation * 1_000,
                    clusters: vec![behaviour([0.95, 0.05]), behaviour([0.05, 0.95])],
                },
                1000,
            ),
            checkpoint_every: Span::from_millis(150),
            others: [&["both", "100", "0.05"], &["both", "500", "0.05"]],
            goals: [None, None],
            judging: None,
        },
        Case {
            name: "ten hours at the paper's rate",
            clusters: CLUSTERS,
            application: synthetic(
                Traffic::Exact {
                    total: Span::from_secs(36_000),
                    messages: vec![vec![2920, 145], vec![11, 2497]],
                },
                10_000,
            ),
            checkpoint_every: Span::from_secs(30 * 60),
            others: [&["paper"], &["paper"]],
            goals: [None, None],
            judging: None,
        },
        // Only 100 messages are in transit at any time. The program pairs ranks across clusters, so there is
        // only one cluster: with two, every checkpoint of one cluster would force one in the other, endlessly.
        Case {
            name: "ping-pong of 100 pairs",
            clusters: &[200],
            application: Application::PingPong(pingpong::Config { sizes: vec![1000], rounds: 5_000 }),
            checkpoint_every: Span::from_millis(50),
            others: [&["pingpong", "500"], &["pingpong", "500"]],
            goals: [None, Some(1.0 / 3.0)],
            judging: Some(2.0),
        },
    ]
}

/// Tells the allocator to keep freed memory. Otherwise, the kernel takes it back while the other simulators run, and a
/// virtual machine may then give it to its host, which takes up to 10 us to provide a page again.
const KEEP_MEMORY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "-1");

fn main() {
    if std::env::var_os(KEEP_MEMORY.0).is_none() {
        return with_kept_memory();
    }
    if let Some(way) = std::env::args().nth(1).filter(|it| !it.starts_with('-')) {
        return once(&way);
    }
    bench::pin(1);
    let turns = if bench::quick() { 1 } else { 5 };
    let others = [
        ("SimGrid", simgrid().map(Command::new)),
        ("SimPy", simpy().then(|| python(&Path::new(SOURCES).join("simpy_traffic.py")))),
    ];
    for (name, command) in &others {
        if command.is_none() {
            println!("note\tSKIPPED: {name} is not installed; see benches/peers/README.md");
        }
    }
    for case in cases() {
        simulate_and_judge(&case); // fetches the memory that every turn needs
        // Seconds per message, by turn.
        let (mut off, mut judged) = (Vec::new(), Vec::new());
        let mut others_seconds = [Vec::new(), Vec::new()];
        for _ in 0..turns {
            off.push(simulate(&case));
            judged.push(simulate_and_judge(&case));
            for (index, (_, command)) in others.iter().enumerate() {
                if let Some(command) = command {
                    others_seconds[index].push(other(command, case.others[index]));
                }
            }
        }
        let rate = |seconds: &[f64]| format!("{:.3} M messages/s", 1e-6 / bench::median(seconds));
        bench::row(
            &format!("{}: HC3I, facts kept and judged, time per message", case.name),
            &rate(&judged),
            &format!("facts dropped {}", rate(&off)),
            bench::ratio(&judged, &off),
            case.judging,
        );
        for (index, (other, _)) in others.iter().enumerate() {
            let theirs = &others_seconds[index];
            if theirs.is_empty() {
                continue;
            }
            for (way, ours, goal) in
                [("facts off", &off, case.goals[0]), ("facts kept and judged", &judged, case.goals[1])]
            {
                bench::row(
                    &format!("{}: HC3I, {way}, time per message", case.name),
                    &rate(ours),
                    &format!("{other} without a protocol {}", rate(theirs)),
                    bench::ratio(ours, theirs),
                    goal.filter(|_| index == 0),
                );
            }
        }
    }
}

/// Runs this program again, with the allocator's option set: it reads its options when the program starts.
fn with_kept_memory() {
    let program = std::env::current_exe().expect("the running program has a path");
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(KEEP_MEMORY.0, KEEP_MEMORY.1);
    let status = command.status().expect("this program started before");
    assert!(status.success(), "the benchmark failed: {status}");
}

/// Runs one case a few times, for a profiler. `arguments` is `off` or `judged`, followed by a hyphen and the index of
/// the case if that is not 0, as in `judged-3`. The next argument of the program is the number of times.
fn once(arguments: &str) {
    let (way, row) = arguments.split_once('-').unwrap_or((arguments, "0"));
    let run = match way {
        "off" => simulate,
        "judged" => simulate_and_judge,
        _ => panic!("unknown mode `{way}`; use `off` or `judged`"),
    };
    let case = &cases()[row.parse::<usize>().expect("a row is a number")];
    let times = std::env::args().nth(2).map_or(5, |it| it.parse().expect("a number of times"));
    for _ in 0..times {
        println!("{way}: {:.3} M messages/s", 1e-6 / run(case));
    }
    println!("{times} times");
}

fn config(case: &Case) -> Config<NodeConfig<Hc3i, Workload>> {
    let mut protocol = common::hc3i(case.clusters.len(), case.checkpoint_every);
    if case.clusters.len() == 1 {
        protocol.replicas = 0; // there is no other cluster
    }
    protocol.checkpoint_every =
        case.clusters.iter().enumerate().map(|(at, _)| (at == 0).then_some(case.checkpoint_every)).collect();
    common::config(case.clusters, protocol, case.application.clone(), Vec::new(), 1)
}

/// Returns the time per application message, in seconds, including the setup of the federation.
fn simulate(case: &Case) -> f64 {
    let (seconds, run) = bench::busy(|| faultline_sim::run::<common::Process>(config(case), &mut ()));
    seconds / run.stats.application.packets as f64
}

/// Works like `simulate`, but keeps all facts in memory and judges them afterwards.
fn simulate_and_judge(case: &Case) -> f64 {
    let (seconds, messages) = bench::busy(|| {
        let mut recorder = Recorder::default();
        let config = config(case);
        let promises = Promises::of::<Hc3i>(&config.process.protocol);
        let run = faultline_sim::run::<common::Process>(config, &mut recorder);
        let trace = recorder.finish();
        let manifest = Manifest {
            outcome: Some(run.outcome),
            duration: run.ended.since(Time::ZERO),
            ..Manifest::bare(promises, &case.clusters.iter().map(|it| *it as u32).collect::<Vec<_>>())
        };
        let judgement = judge(&trace, &Context::from_manifest(&manifest));
        assert_ne!(judgement.verdict, Verdict::Fail, "{:?}", judgement.reasons);
        assert!(run.ended > Time::ZERO);
        run.stats.application.packets
    });
    seconds / messages as f64
}

/// Runs another simulator, which prints the number of messages and the seconds that they took.
fn other(program: &Command, arguments: &[&str]) -> f64 {
    let mut command = Command::new(program.get_program());
    let output =
        command.args(program.get_args()).args(arguments).output().expect("the program started before");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Option<Vec<f64>> = text.split_whitespace().map(|it| it.parse().ok()).collect();
    match numbers.as_deref() {
        Some([messages, seconds]) if output.status.success() && *messages > 0.0 => seconds / messages,
        _ => panic!("{program:?} printed {text:?}, {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Compiles the program for SimGrid. Returns `None` if that fails.
fn simgrid() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simgrid-traffic");
    let source = Path::new(SOURCES).join("simgrid.cpp");
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-std=c++17", "-o"]).args([&program, &source]).arg("-lsimgrid");
    let compiled = compiler.output().is_ok_and(|output| output.status.success());
    compiled.then_some(program)
}

fn python(script: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg(script);
    command
}

fn simpy() -> bool {
    Command::new("python3").args(["-c", "import simpy"]).output().is_ok_and(|output| output.status.success())
}
