//! Events per second of the simulator, compared with a bare loop around a binary heap and a slab, which does nothing
//! but order events.
//!
//! All rows count events, so the ratio of a row to the bare loop shows the cost of everything that the simulator does
//! besides ordering its events. Absolute rates on one machine vary by a factor of 2 to 3; compare only ratios within a
//! run.

#[path = "../../../benches/common.rs"]
mod bench;
#[path = "../tests/common/mod.rs"]
mod common;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::env;
use std::hint::black_box;
use std::sync::Arc;

use faultline_core::application::Job;
use faultline_core::fault::LinkProperties;
use faultline_core::process::{ActionOf, In};
use faultline_core::{
    Action, Claim, ClusterId, Event, Fact, Gauges, LifeStart, Out, Packet, Position, Process, ProcessId,
    Span, Stamp, Time, To,
};
use faultline_sim::{Config, Links};
use faultline_trace::{Record, Recorder, Sink};
use faultline_workloads::Config as Application;
use faultline_workloads::synthetic::{self, Traffic};

/// The allocator of the `faultline` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CLUSTERS: [usize; 2] = [100, 100];
/// Application messages per rank.
const MESSAGES: u64 = 5_000;
/// Number of pending events in the bare loop and in [`PassOn`]: the mean number when simulating [`burst`].
const PENDING: u64 = 1_000;

type Hc3i = <common::Process as Process>::Config;

fn main() {
    if let Some(case) = env::args().nth(1).filter(|it| !it.starts_with('-')) {
        return once(&case);
    }
    bench::pin(1);
    let turns = if bench::quick() { 3 } else { 9 };
    let mut checkpoints = Checkpoints::default();
    let run = faultline_sim::run::<common::Process>(burst(), &mut checkpoints);
    let (events, messages) = (run.stats.events, run.stats.application.packets);
    println!(
        "{messages} messages and {} checkpoints of two clusters in {events} events, median of {turns} turns",
        checkpoints.0.len()
    );

    // Seconds per event, by turn.
    let mut bare = Vec::new();
    let mut passing_on = Vec::new();
    let mut facts_off = Vec::new();
    let mut facts_kept = Vec::new();
    let mut papers_rate = Vec::new();
    for _ in 0..turns {
        bare.push(per_event(|| bare_loop(events)));
        passing_on.push(per_event(|| faultline_sim::run::<PassOn>(passing(), &mut ()).stats.events));
        facts_off.push(per_event(|| simulate(burst(), &mut ())));
        facts_kept.push(per_event(|| simulate(burst(), &mut Recorder::default())));
        papers_rate.push(per_event(|| simulate(paper(), &mut ())));
    }
    let rate = |seconds: &[f64]| format!("{:.1} M events/s", 1e-6 / bench::median(seconds));
    let row = |what: &str, measured: &[f64], goal| {
        let ratio = bench::ratio(measured, &bare);
        bench::row(what, &rate(measured), &format!("bare heap loop {}", rate(&bare)), ratio, goal);
    };
    row("simulator, 2 x 100 nodes, HC3I, facts off", &facts_off, Some(4.0));
    let each = events as f64 / messages as f64;
    println!(
        "note\t{:.2} M application messages/s, {each:.2} events per message, {:.0} messages per checkpoint",
        1e-6 / bench::median(&facts_off) / each,
        messages as f64 / checkpoints.0.len() as f64
    );
    row("simulator, the same, facts kept in memory", &facts_kept, None);
    row("simulator, without protocol and application", &passing_on, None);
    row("simulator, 2 x 100 nodes at the paper's rate", &papers_rate, None);
}

/// Runs one case once, for a profiler.
fn once(case: &str) {
    let events = match case {
        "bare" => bare_loop(1_000_000),
        "passing" => faultline_sim::run::<PassOn>(passing(), &mut ()).stats.events,
        "off" => simulate(burst(), &mut ()),
        "kept" => simulate(burst(), &mut Recorder::default()),
        "paper" => simulate(paper(), &mut ()),
        _ => panic!("unknown case `{case}`; use `bare`, `passing`, `off`, `kept` or `paper`"),
    };
    println!("{case}: {events} events");
}

/// Returns the time per event, in seconds, of a run that returns its number of events.
fn per_event(run: impl FnOnce() -> u64) -> f64 {
    let (seconds, events) = bench::busy(run);
    seconds / events as f64
}

fn simulate(config: Config<Hc3i>, sink: &mut impl Sink) -> u64 {
    faultline_sim::run::<common::Process>(config, sink).stats.events
}

/// Returns the configuration of 2 x 100 nodes under HC3I with dense traffic, 5 % of which goes to the other
/// cluster, in one direction.
fn burst() -> Config<Hc3i> {
    let application = synthetic::Config {
        traffic: Traffic::Burst {
            messages: MESSAGES,
            batch: 10,
            cost: Span::from_millis(1),
            between: 0.05,
            receivers: None,
        },
        message_bytes: 1000,
        state_bytes: 1 << 20,
        terms: Vec::new(),
    };
    // 200 nodes send 10 messages per millisecond each: 10^5 messages in 50 ms. As in the paper, only the first cluster
    // takes checkpoints on a timer, and each of them forces one in the other cluster. This results in two checkpoints
    // every 150 ms, besides the first checkpoint of each cluster.
    let mut protocol = common::hc3i(2, Span::from_millis(150));
    protocol.checkpoint_every = [Some(Span::from_millis(150)), None].into();
    common::config(&CLUSTERS, protocol, Application::Synthetic(application), Vec::new(), 1)
}

/// Returns the configuration of the HC3I paper's experiment: ten hours, with the numbers of messages in the paper's
/// table 1.
fn paper() -> Config<Hc3i> {
    let application = synthetic::Config {
        traffic: Traffic::Exact {
            total: Span::from_secs(36_000),
            messages: vec![vec![2920, 145], vec![11, 2497]],
        },
        message_bytes: 10_000,
        state_bytes: 10_000_000,
        terms: Vec::new(),
    };
    let mut protocol = common::hc3i(2, Span::from_secs(30 * 60));
    protocol.checkpoint_every = [Some(Span::from_secs(30 * 60)), None].into();
    common::config(&CLUSTERS, protocol, Application::Synthetic(application), Vec::new(), 1)
}

/// Counts committed checkpoints.
#[derive(Default)]
struct Checkpoints(BTreeSet<(ClusterId, Position)>);

impl Sink for Checkpoints {
    fn record(&mut self, record: Record) {
        if let Fact::Claim(claim) = record.fact
            && let Claim::Committed { position, .. } = *claim
        {
            let cluster = record.process.index() / CLUSTERS[0];
            self.0.insert((ClusterId(cluster as u16), position));
        }
    }
}

/// Runs the minimal discrete-event loop: keys in a heap, and packet-sized values in a slab.
fn bare_loop(events: u64) -> u64 {
    let mut slab: Vec<Option<[u64; 12]>> = (0..PENDING).map(|it| Some([it; 12])).collect();
    let mut heap: BinaryHeap<_> = (0..PENDING).map(|it| Reverse((it, it, it as usize))).collect();
    let mut random = 1_u64;
    for sequence in 0..events {
        let Reverse((at, _, slot)) = heap.pop().expect("every pop follows a push");
        let mut thing = black_box(slab[slot].take().expect("a slot in the heap is filled"));
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        thing[0] ^= random;
        slab[slot] = Some(thing);
        heap.push(Reverse((at + (random >> 44), sequence, slot)));
    }
    black_box((heap, slab));
    events
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
    /// The size of HC3I's messages.
    type Control = [u64; 5];
    type Head = ();
    type Saved = ();
    type Job = NoJob;
    type Config = ();
    const FIFO: bool = false;

    fn start(start: LifeStart<()>, _: Time, out: &mut Out<Self>) -> Self {
        let processes = start.membership.members.len() as u32;
        let mut process = PassOn { me: start.me.0, processes, random: start.me.0 };
        out.extend((0..PENDING / u64::from(processes)).map(|_| process.next()));
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
        spares: 0,
        volatile_storage: false,
        // A packet is in transit for about 100 us, so each is passed on about 1500 times.
        deadline: Span::from_millis(150),
        start_within: Some(Span::from_millis(150)),
        plan: Vec::new(),
        scope: faultline_core::Scope::Cluster,
        joins: Vec::new(),
        leaves: Vec::new(),
        is_planned: false,
        least_work_left_percent: 0,
        system: None,
    };
    let link =
        LinkProperties { latency: Span::from_micros(80), bandwidth: 10_000_000, ..LinkProperties::default() };
    let membership = common::membership(&CLUSTERS);
    Config::new(Arc::new(()), membership, Links::uniform(2, link, link), supervisor, 1)
}
