//! Events per second of the simulator, beside the bare loop that no simulator can beat: a binary heap and a slab.
//!
//! All are counted in events, so that the ratio of two rows is the cost of everything that the simulator does beyond
//! ordering its events. Absolute rates of one machine vary by 2-3x; compare ratios of one run.

#[path = "../tests/common/mod.rs"]
mod common;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use faultline_core::application::Job;
use faultline_core::fault::LinkProperties;
use faultline_core::process::{ActionOf, In};
use faultline_core::{
    Action, Birth, Event, Gauges, Out, Packet, Position, Process, ProcessId, Span, Stamp, Time, To,
};
use faultline_sim::{Config, Links, Simulation};
use faultline_trace::Trace;
use faultline_workloads::Config as Application;
use faultline_workloads::synthetic::{self, Traffic};

const CLUSTERS: [usize; 2] = [100, 100];
/// Application messages of each rank.
const MESSAGES: u64 = 5_000;
/// Things under way in the mean of this simulation.
const UNDER_WAY: u64 = 1_000;

fn main() {
    divan::main();
}

/// 2 x 100 nodes under HC3I: as many messages as the machine carries, 5 % of them to the other cluster, one way.
fn burst() -> Config<<common::Process as Process>::Config> {
    let application = synthetic::Config {
        traffic: Traffic::Burst { messages: MESSAGES, batch: 10, cost: Span::from_millis(1), between: 0.05 },
        message_bytes: 1000,
        state_bytes: 1 << 20,
    };
    // 200 nodes send 10 messages a millisecond each: 10^5 messages in 50 ms.
    let protocol = common::hc3i(2, Span::from_millis(50));
    common::config(&CLUSTERS, protocol, Application::Synthetic(application), Vec::new(), 1)
}

/// Events of one simulation.
fn events() -> u64 {
    faultline_sim::run::<common::Process>(burst(), &mut ()).stats.events
}

/// What every discrete-event loop does: keys in a heap, and things of a packet's size in a slab.
#[divan::bench]
fn bare_loop(bencher: Bencher) {
    let events = events();
    bencher.counter(ItemsCount::new(events)).bench_local(|| {
        let mut slab: Vec<Option<[u64; 12]>> = (0..UNDER_WAY).map(|it| Some([it; 12])).collect();
        let mut heap: BinaryHeap<_> = (0..UNDER_WAY).map(|it| Reverse((it, it, it as usize))).collect();
        let mut random = 1_u64;
        for sequence in 0..events {
            let Reverse((at, _, slot)) = heap.pop().expect("as many are pushed as are popped");
            let mut thing = black_box(slab[slot].take().expect("a slot in the heap is filled"));
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            thing[0] ^= random;
            slab[slot] = Some(thing);
            heap.push(Reverse((at + (random >> 44), sequence, slot)));
        }
        black_box((heap, slab))
    });
}

/// The simulator without protocol, composite and application: processes that pass packets on.
#[divan::bench]
fn passing_on(bencher: Bencher) {
    let events = faultline_sim::run::<PassOn>(passing(), &mut ()).stats.events;
    bencher
        .counter(ItemsCount::new(events))
        .with_inputs(passing)
        .bench_local_values(|config| faultline_sim::run::<PassOn>(config, &mut ()));
}

#[divan::bench]
fn hc3i_facts_off(bencher: Bencher) {
    let events = events();
    bencher
        .counter(ItemsCount::new(events))
        .with_inputs(burst)
        .bench_local_values(|config| faultline_sim::run::<common::Process>(config, &mut ()));
}

#[divan::bench]
fn hc3i_facts_in_memory(bencher: Bencher) {
    let events = events();
    bencher.counter(ItemsCount::new(events)).with_inputs(burst).bench_local_values(|config| {
        let mut trace = Trace::default();
        let run = Simulation::<common::Process, _>::new(config, &mut trace).run();
        (run, trace)
    });
}

/// Passes each packet on to another process.
#[derive(Debug)]
struct PassOn {
    me: u32,
    processes: u32,
    random: u32,
}

impl PassOn {
    fn next(&mut self) -> ActionOf<PassOn> {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let to = ProcessId((self.me + 1 + (self.random >> 8) % (self.processes - 1)) % self.processes);
        Action::Send { to: To::One(to), packet: Packet::Control([0; 5]) }
    }
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct NoStamp;

impl Stamp for NoStamp {
    fn position(&self) -> Position {
        Position::default()
    }
}

#[derive(Clone, Debug, PartialEq)]
struct NoJob;

impl Job for NoJob {
    type Output = ();
    fn cost(&self) -> Span {
        Span::ZERO
    }
    fn run(self) {}
}

impl Process for PassOn {
    type Stamp = NoStamp;
    /// As long as those of HC3I.
    type Control = [u64; 5];
    type Head = ();
    type Saved = ();
    type Job = NoJob;
    type Config = ();
    const FIFO: bool = false;

    fn start(birth: Birth<()>, _: Time, out: &mut Out<Self>) -> Self {
        let processes = birth.membership.members.len() as u32;
        let mut process = PassOn { me: birth.me.0, processes, random: birth.me.0 };
        out.extend((0..UNDER_WAY / u64::from(processes)).map(|_| process.next()));
        process
    }

    fn handle(&mut self, event: In<Self>, _: Time, out: &mut Out<Self>) {
        if let Event::Packet { .. } = event {
            out.push(self.next());
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

fn passing() -> Config<()> {
    let supervisor = faultline_supervisor::Config {
        detect_after: Span::from_secs(1),
        restart_after: Span::from_secs(1),
        volatile_storage: false,
        // A packet is on its way for about 100 us, so that each is passed on about a thousand times.
        deadline: Span::from_millis(100),
        plan: Vec::new(),
        least_work_left_percent: 0,
    };
    let link =
        LinkProperties { latency: Span::from_micros(80), bandwidth: 10_000_000, ..LinkProperties::default() };
    let membership = common::membership(&CLUSTERS);
    Config::new(Arc::new(()), membership, Links::uniform(2, link, link), supervisor, 1)
}
