//! The `simulate` backend: a federation in virtual time, in this process.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultline_api::quantity::Bandwidth;
use faultline_api::resource::{Storage, StorageKind};
use faultline_catalog::Setup;
use faultline_core::{Fact, Node, ProcessId, Protocol, Span, Time};
use faultline_sim::{Config, Links, Simulation, StorageCosts};
use faultline_trace::{Record, Sink, Trace};
use faultline_workloads::Workload;

use crate::live::Live;
use crate::run::Ended;

/// Between two looks at the state of things, in real time.
const LOOK: Duration = Duration::from_millis(100);
/// Events between two looks at the clock.
const EVENTS: u32 = 1000;

/// Simulates a federation to its end, or until somebody interrupts it.
pub(crate) fn run<P>(setup: Setup<P>, interrupted: &AtomicBool, live: Live) -> (Ended, Trace, Live)
where
    P: Protocol + 'static,
{
    let clusters = setup.membership.clusters.len();
    let links = Links::new(clusters, |from, to| setup.links[&(from, to)]);
    let mut config = Config::new(setup.process, setup.membership, links, setup.supervisor, setup.seed);
    config.storage = costs(&setup.storage);
    let live = RefCell::new(live);
    let mut sink = Watched { trace: Trace::default(), live: &live };
    let mut simulation = Simulation::<Node<P, Workload>, _>::new(config, &mut sink);
    let mut looked = Instant::now();
    while (0..EVENTS).all(|_| simulation.step()) {
        if interrupted.load(Ordering::Relaxed) {
            simulation.interrupt();
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            let status = simulation.status();
            live.borrow_mut().status(simulation.now(), &status);
        }
    }
    let run = simulation.run();
    let trace = sink.trace;
    let duration = run.ended.since(Time::ZERO);
    (Ended { outcome: run.outcome, faults: run.faults, links: None, duration }, trace, live.into_inner())
}

/// Keeps every fact, and shows some.
struct Watched<'a> {
    trace: Trace,
    live: &'a RefCell<Live>,
}

impl Sink for Watched<'_> {
    fn record(&mut self, record: Record) {
        if record.process == ProcessId::SUPERVISOR || matches!(record.fact, Fact::Claim(_)) {
            self.live.borrow_mut().stated(record.at, record.process, &record.fact);
        }
        self.trace.record(record);
    }
}

/// What the federation says of its storage; the simulator's own figures where it says nothing.
fn costs(storage: &Storage) -> StorageCosts {
    let usual = match storage.kind {
        StorageKind::Disk => StorageCosts::default(),
        StorageKind::Memory => StorageCosts { latency: Span::ZERO, bandwidth: 0, fsync: Span::ZERO },
    };
    StorageCosts {
        latency: storage.latency.map_or(usual.latency, |it| it.0),
        bandwidth: storage.write_bandwidth.map_or(usual.bandwidth, Bandwidth::bytes_per_second),
        fsync: usual.fsync,
    }
}
