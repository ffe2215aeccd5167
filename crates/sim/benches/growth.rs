//! Events per second of the simulator as a federation grows: more nodes with the same traffic per node, then the same
//! number of nodes in more clusters (with one vector entry per cluster), then more nodes with more receivers per node.
//!
//! For the runs with more nodes, the benchmark also shows how much of the slowdown is explained by cold memory alone:
//! it measures the slowdown of a loop that touches the same number of cache lines per event, spread over the same
//! number of processes.
//!
//! `growth once CLUSTERS NODES` runs one case, for a profiler, and prints its number of events. `growth start CLUSTERS
//! NODES` starts the processes, lets each send one message, and prints their number.

#[path = "../../../benches/common.rs"]
mod bench;
#[path = "../tests/common/mod.rs"]
mod common;

use std::env;
use std::hint::black_box;

use faultline_core::Span;
use faultline_sim::Stats;
use faultline_workloads::Config as Application;
use faultline_workloads::synthetic::{self, Traffic};

/// The allocator of the `faultline` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Numbers of clusters and of nodes per cluster: the number of nodes grows from 100 to 100,000.
const NODES: [(usize, usize); 4] = [(2, 50), (10, 100), (100, 100), (100, 1000)];
/// Numbers of clusters and of nodes per cluster: the number of clusters grows, while the number of nodes stays at 2000.
const CLUSTERS: [(usize, usize); 6] = [(2, 1000), (10, 200), (50, 40), (200, 10), (500, 4), (1000, 2)];
/// Small federations are simulated repeatedly until they reach this many messages.
const MESSAGES: u64 = 500_000;
/// Federations with more nodes than this are simulated only in the first turn.
const LARGE: usize = 50_000;
/// Number of cache lines per event that miss in a small cache: read and write misses, counted by callgrind with
/// `--cache-sim=yes --LL=262144,16,64 growth once 10 100`.
const COLD_LINES: usize = 18;
/// Words per process in the memory loop: fewer than a simulated process has, but just as cold.
const PROCESS_WORDS: usize = 1024;
/// Number of events of the memory loop.
const TOUCHES: u64 = 500_000;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    if let [what, clusters, nodes] = &arguments[..] {
        let [clusters, nodes] = [clusters, nodes].map(|it| it.parse().expect("an integer"));
        match what.as_str() {
            "once" => println!("{} events", simulate(clusters, nodes, EACH, Some(RECEIVERS)).0),
            "start" => {
                simulate(clusters, nodes, 1, Some(RECEIVERS));
                println!("{} processes", clusters * nodes);
            }
            _ => panic!("unknown case `{what}`; use `once` or `start`"),
        }
        return;
    }
    bench::pin(1);
    grow("nodes", &NODES, |(clusters, nodes)| clusters * nodes, Some(RECEIVERS), Some(3.0));
    grow("clusters", &CLUSTERS, |(clusters, _)| clusters, Some(RECEIVERS), None);
    grow("nodes and receivers", &[NODES[0], NODES[3]], |(clusters, nodes)| clusters * nodes, None, None);
}

/// Measures each size relative to the first, turn by turn. `of` returns the quantity that grows.
fn grow(
    what: &str,
    sizes: &[(usize, usize)],
    of: impl Fn((usize, usize)) -> usize,
    receivers: Option<u32>,
    goal: Option<f64>,
) {
    let sizes = if bench::quick() { &sizes[..sizes.len().min(3)] } else { sizes };
    let turns = if bench::quick() { 1 } else { 3 };
    let mut seconds = vec![Vec::new(); sizes.len()];
    let mut mix = vec![0.0; sizes.len()];
    for turn in 0..turns {
        for (index, &(clusters, nodes)) in sizes.iter().enumerate() {
            if turn > 0 && clusters * nodes > LARGE {
                continue;
            }
            let (busy, stats) = bench::busy(|| {
                let each = || simulate(clusters, nodes, EACH, receivers);
                let times = MESSAGES.div_ceil(messages(clusters * nodes)).max(1);
                (0..times)
                    .map(|_| each())
                    .reduce(|sum, it| (sum.0 + it.0, sum.1 + it.1))
                    .expect("at least one repetition")
            });
            seconds[index].push(busy / stats.0 as f64);
            if receivers.is_some() {
                println!(
                    "point\t{what}\t{}\t{}",
                    of((clusters, nodes)),
                    seconds[index][turn] / seconds[0][turn]
                );
            }
            mix[index] = stats.1 as f64 / stats.0 as f64;
        }
    }
    let rate = |index: usize| format!("{:.2} M events/s", 1e-6 / bench::median(&seconds[index]));
    if what == "nodes" {
        show_cold_memory(sizes, bench::median(&seconds[0]));
    }
    for (index, &(clusters, nodes)) in sizes.iter().enumerate().skip(1) {
        let total = clusters * nodes;
        let (first, goal) = (sizes[0], goal.filter(|_| total == 100_000));
        bench::row(
            &format!(
                "growth with {what}: {clusters} x {nodes} ({:.0} % application messages)",
                100.0 * mix[index]
            ),
            &rate(index),
            &format!("{} x {} ({:.0} %) {}", first.0, first.1, 100.0 * mix[0], rate(0)),
            bench::ratio(&seconds[index], &seconds[0]),
            goal,
        );
    }
}

/// Shows the slowdown of a simulator that loses time only to cold memory, as any program does. This is a lower bound,
/// because no read waits for another here.
fn show_cold_memory(sizes: &[(usize, usize)], smallest: f64) {
    let all: Vec<f64> = sizes.iter().map(|&(clusters, nodes)| touch(clusters * nodes)).collect();
    for (&(clusters, nodes), seconds) in sizes.iter().zip(&all).skip(1) {
        let lost = seconds - all[0];
        bench::row(
            &format!("cold memory alone: {COLD_LINES} lines of {clusters} x {nodes}"),
            &format!("{:.0} ns per event, plus {:.0} ns", smallest * 1e9, lost * 1e9),
            &format!("{:.0} ns per event", smallest * 1e9),
            (smallest + lost) / smallest,
            None,
        );
    }
}

/// Returns the time per event, in seconds, of a loop that only touches the memory of this many processes.
fn touch(processes: usize) -> f64 {
    let mut memory = vec![1_u64; processes * PROCESS_WORDS];
    let mut random = 1_u64;
    let (busy, ()) = bench::busy(|| {
        for _ in 0..TOUCHES {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let process = (random >> 33) as usize % processes * PROCESS_WORDS;
            for line in 0..COLD_LINES {
                // Lines that no prefetcher predicts, the same for all events of a process.
                memory[process + line * line * 61 % PROCESS_WORDS] ^= random;
            }
        }
    });
    black_box(memory);
    busy / TOUCHES as f64
}

const fn messages(nodes: usize) -> u64 {
    nodes as u64 * EACH
}

/// Messages per rank.
const EACH: u64 = 200;
/// Maximum number of receivers of each rank within its cluster, at every size. In the smallest federation, these are
/// all other ranks of the cluster. More receivers would mean more channels, not a larger federation.
const RECEIVERS: u32 = 49;

/// Returns the numbers of events and application messages of a run in which every rank sends this number of messages.
/// [`EACH`] messages take 20 ms, during which every cluster takes about two checkpoints.
fn simulate(clusters: usize, nodes: usize, messages: u64, receivers: Option<u32>) -> (u64, u64) {
    let application = synthetic::Config {
        traffic: Traffic::Burst {
            messages,
            batch: messages.min(10) as u32,
            cost: Span::from_millis(1),
            between: 0.05,
            receivers,
        },
        message_bytes: 1000,
        state_bytes: 1 << 10,
        terms: Vec::new(),
    };
    let protocol = common::hc3i(clusters, Span::from_millis(10));
    let application = Application::Synthetic(application);
    let config = common::config(&vec![nodes; clusters], protocol, application, Vec::new(), 1);
    let Stats { events, application, .. } = faultline_sim::run::<common::Process>(config, &mut ()).stats;
    (events, application.packets)
}
