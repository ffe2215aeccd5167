//! Events per second of the simulator while a federation grows: more nodes with the same traffic each, then more clusters
//! of the same nodes, whose vectors have an entry for each cluster.
//!
//! Beside the growth with nodes stands the part of it that cold memory alone explains: what a loop loses that touches as
//! many lines of memory for each event, when these are spread over as many processes.
//!
//! `growth once CLUSTERS NODES` runs one case, for a profiler.

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

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Clusters, and nodes of each: a hundred nodes and more, then two clusters and more.
const NODES: [(usize, usize); 4] = [(2, 50), (10, 100), (100, 100), (100, 1000)];
const CLUSTERS: [(usize, usize); 6] = [(2, 1000), (10, 200), (50, 40), (200, 10), (500, 4), (1000, 2)];
/// Small federations are simulated again until there are so many messages.
const MESSAGES: u64 = 500_000;
/// Federations with more nodes are simulated in the first turn only.
const LARGE: usize = 50_000;
/// Lines of memory that an event touches beyond a small cache: reads and writes that callgrind counts for each event with
/// `--cache-sim=yes --LL=262144,16,64 growth once 10 100`.
const COLD_LINES: usize = 18;
/// Words of a process in the loop that only touches: fewer than a simulated one has, and as cold.
const PROCESS_WORDS: usize = 1024;
/// Events of that loop.
const TOUCHES: u64 = 500_000;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    if let [_, clusters, nodes] = &arguments[..] {
        let [clusters, nodes] = [clusters, nodes].map(|it| it.parse().expect("a number"));
        println!("{:?}", simulate(clusters, nodes, Some(RECEIVERS)));
        return;
    }
    bench::pin(1);
    grow("nodes", &NODES, |(clusters, nodes)| clusters * nodes, Some(RECEIVERS), Some(3.0));
    grow("clusters", &CLUSTERS, |(clusters, _)| clusters, Some(RECEIVERS), None);
    grow("nodes and receivers", &[NODES[0], NODES[3]], |(clusters, nodes)| clusters * nodes, None, None);
}

/// Measures each size beside the first, turn by turn. `of` is what grows.
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
                let each = || simulate(clusters, nodes, receivers);
                let times = MESSAGES.div_ceil(messages(clusters * nodes)).max(1);
                (0..times)
                    .map(|_| each())
                    .reduce(|sum, it| (sum.0 + it.0, sum.1 + it.1))
                    .expect("one at least")
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

/// The growth of a simulator that loses nothing but what cold memory costs any program. A lower bound: here no read waits
/// for another.
fn show_cold_memory(sizes: &[(usize, usize)], smallest: f64) {
    let all: Vec<f64> = sizes.iter().map(|&(clusters, nodes)| touch(clusters * nodes)).collect();
    for (&(clusters, nodes), seconds) in sizes.iter().zip(&all).skip(1) {
        let lost = seconds - all[0];
        bench::row(
            &format!("of that, cold memory: {COLD_LINES} lines of {clusters} x {nodes}"),
            &format!("{:.0} ns for an event, and {:.0} ns", smallest * 1e9, lost * 1e9),
            &format!("{:.0} ns for an event", smallest * 1e9),
            (smallest + lost) / smallest,
            None,
        );
    }
}

/// Seconds for an event of a loop that only touches what so many processes have.
fn touch(processes: usize) -> f64 {
    let mut memory = vec![1_u64; processes * PROCESS_WORDS];
    let mut random = 1_u64;
    let (busy, ()) = bench::busy(|| {
        for _ in 0..TOUCHES {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let process = (random >> 33) as usize % processes * PROCESS_WORDS;
            for line in 0..COLD_LINES {
                // Lines that no prefetcher expects, the same for every event of a process.
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

/// Messages of each rank.
const EACH: u64 = 200;
/// To how many of a cluster each rank sends at every size: to all in the smallest. The more receivers, the more channels
/// there are to keep in mind, which is no growth of the federation.
const RECEIVERS: u32 = 49;

/// Events, and application messages, of 20 ms in which every cluster takes about two checkpoints.
fn simulate(clusters: usize, nodes: usize, receivers: Option<u32>) -> (u64, u64) {
    let application = synthetic::Config {
        traffic: Traffic::Burst {
            messages: EACH,
            batch: 10,
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
