//! Events per second of the simulator, beside the bare loop that no simulator can beat: a binary heap and a slab.
//!
//! All are counted in events, so that the ratio of two rows is the cost of everything that the simulator does beyond
//! ordering its events. Absolute rates of one machine vary by 2-3x; compare ratios of one run.

#[path = "../tests/common/mod.rs"]
mod common;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use faultline_core::Span;
use faultline_sim::{Config, Simulation};
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
fn burst() -> Config<<common::Process as faultline_core::Process>::Config> {
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
