//! The `simulate` backend: a federation in virtual time, in this process.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultline_catalog::Setup;
use faultline_core::{Fact, Node, ProcessId, Protocol, Time};
use faultline_sim::Simulation;
use faultline_trace::{Record, Recorder, Sink, Trace};
use faultline_workloads::Workload;

use crate::live::Live;
use crate::replay::Tapes;
use crate::run::Ended;

/// Between two looks at the state of things, in real time.
const LOOK: Duration = Duration::from_millis(100);
/// Events between two looks at the clock.
const EVENTS: u32 = 1000;

/// Simulates a federation to its end, or until somebody interrupts it.
pub(crate) fn run<P>(
    setup: Setup<P>,
    interrupted: &AtomicBool,
    live: Live,
    tapes: Option<&mut Tapes>,
) -> (Ended, Trace, Live)
where
    P: Protocol + 'static,
{
    let config = setup.simulation();
    let live = RefCell::new(live);
    let mut sink = Watched { trace: Recorder::default(), live: &live };
    let mut simulation = Simulation::<Node<P, Workload>, _>::new(config, &mut sink);
    if let Some(tapes) = tapes {
        simulation.record(tapes);
    }
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
    let trace = sink.trace.finish();
    let duration = run.ended.since(Time::ZERO);
    (Ended { outcome: run.outcome, faults: run.faults, links: None, duration }, trace, live.into_inner())
}

/// Keeps every fact, and shows some.
struct Watched<'a> {
    trace: Recorder,
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
