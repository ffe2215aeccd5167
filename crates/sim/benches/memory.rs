//! Memory of a simulation: with 10^5 nodes in 100 clusters that keep 2 or 10 checkpoints, and with 10^6
//! nodes.
//!
//! Each measurement runs in a separate process, because peak memory can be measured only for an entire process.

#[path = "../../../benches/common.rs"]
mod bench;
#[path = "../tests/common/mod.rs"]
mod common;

use std::cell::RefCell;
use std::env;
use std::process::Command;

use faultline_core::{Claim, Fact, Span};
use faultline_sim::Simulation;
use faultline_trace::{Record, Sink};
use faultline_workloads::Config as Application;
use faultline_workloads::synthetic::{self, Traffic};

/// The allocator of the `faultline` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut args = env::args().skip(1);
    if args.next().as_deref() == Some("keep") {
        let [kept, clusters, nodes] =
            [(); 3].map(|()| args.next().and_then(|it| it.parse().ok()).expect("three numbers"));
        return simulate(kept, clusters, nodes);
    }
    for (kept, clusters, nodes, gibibytes) in
        [(2, 100, 1000, 2_u64), (10, 100, 1000, 2), (2, 100, 10_000, 12)]
    {
        let nodes = if bench::quick() { nodes / 100 } else { nodes };
        let program = env::current_exe().expect("the path of this program");
        let arguments = [kept, clusters, nodes].map(|it: usize| it.to_string());
        let output = Command::new(program).arg("keep").args(arguments).output();
        let output = output.expect("this program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let mut numbers = text.split_whitespace().map(|it| it.parse::<f64>().expect("a number"));
        let mut next = || numbers.next().expect("two numbers");
        let (peak, mean) = (next(), next());
        bench::row(
            &format!(
                "simulator's memory, {} nodes, {kept} checkpoints kept ({mean:.1} on average)",
                clusters * nodes
            ),
            &format!("{:.0} MiB", peak / 1024.0 / 1024.0),
            &format!("{gibibytes} GiB"),
            peak / (gibibytes << 30) as f64,
            // With fewer nodes, the goal would be meaningless.
            (kept == 2 && !bench::quick()).then_some(1.0),
        );
    }
}

/// Simulates until every cluster keeps this many checkpoints, without garbage collection. Prints the peak memory in
/// bytes, and the mean number of checkpoints per cluster at that point.
fn simulate(kept: usize, clusters: usize, nodes: usize) {
    let second = Span::from_secs(1);
    let application = synthetic::Config {
        traffic: Traffic::Burst {
            messages: 1_000_000,
            batch: 1,
            cost: second,
            between: 0.0001,
            receivers: None,
        },
        message_bytes: 1000,
        state_bytes: 1 << 20,
        terms: Vec::new(),
    };
    let mut protocol = common::hc3i(clusters, second * 2);
    protocol.collect_every = None;
    let application = Application::Synthetic(application);
    let config = common::config(&vec![nodes; clusters], protocol, application, Vec::new(), 1);
    let kept_by = RefCell::new(vec![0; clusters]);
    let mut sink = Kept { nodes, clusters: &kept_by };
    let mut simulation = Simulation::<common::Process, _>::new(config, &mut sink);
    while kept_by.borrow().iter().any(|&it| it < kept) {
        assert!(simulation.step(), "the simulation ended early");
    }
    let peak = bench::peak_memory("self").expect("Linux reports peak memory");
    let total: usize = kept_by.borrow().iter().sum();
    println!("{peak} {}", total as f64 / clusters as f64);
}

/// Counts the checkpoints that the first process of each cluster has committed.
struct Kept<'a> {
    nodes: usize,
    clusters: &'a RefCell<Vec<usize>>,
}

impl Sink for Kept<'_> {
    fn record(&mut self, record: Record) {
        if let Fact::Claim(claim) = &record.fact
            && let Claim::Committed { .. } = **claim
            && record.process.index().is_multiple_of(self.nodes)
        {
            self.clusters.borrow_mut()[record.process.index() / self.nodes] += 1;
        }
    }
}
