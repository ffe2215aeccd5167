//! The sixty graphs of the comparison, some from seeds, others in closed form. They use only integers, so
//! that all machines produce the same graphs.

use std::collections::{BTreeMap, BTreeSet};

use faultline_clustering::CommunicationGraph;
use faultline_clustering::patterns::Pattern;

/// A graph of the comparison.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) graph: CommunicationGraph,
}

/// Returns all sixty graphs.
pub(crate) fn all() -> Vec<Sample> {
    let mut all = Vec::new();
    let mut add = |kind: &str, graph: CommunicationGraph| {
        all.push(Sample { name: format!("{kind}-{}", graph.len()), graph })
    };
    for processes in 5..=16 {
        add("random", random(processes, 100 + processes as u64));
    }
    for (number, processes) in (1..=10).map(|it| (it, 100 * it as usize)) {
        add("power-law", power_law(processes, 2 + number as usize % 3, number));
        add("geometric", geometric(processes, 40 + number));
        add("sparse", sparse(processes, 2 + number as usize % 3, 80 + number));
    }
    for (number, processes) in [100, 200, 300, 500, 700, 1000].into_iter().enumerate() {
        add("hub", hub(processes, 2 + 3 * number, 120 + number as u64));
    }
    for pattern in Pattern::ALL {
        add(pattern.name(), pattern.graph(64));
        add(pattern.name(), pattern.graph(256));
    }
    all
}

/// Iterates over the pairs with traffic, each once, with their bytes.
pub(crate) fn pairs(graph: &CommunicationGraph) -> impl Iterator<Item = (usize, usize, u64)> {
    let of = |from: usize| graph.peers(from).iter().map(move |&(to, bytes)| (from, to as usize, bytes));
    (0..graph.len()).flat_map(of).filter(|it| it.0 < it.1)
}

/// Random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number from `least` to `most`.
    fn between(&mut self, least: usize, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        least + (number % (most - least + 1) as u64) as usize
    }
}

/// The bytes between each pair of processes. The smaller number of each pair comes first.
type Pairs = BTreeMap<(usize, usize), u64>;

fn graph(processes: usize, pairs: &Pairs) -> CommunicationGraph {
    let mut graph = CommunicationGraph::new((0..processes).map(|it| it.to_string()).collect());
    pairs.iter().for_each(|(&(one, other), &bytes)| graph.add(one, other, bytes, 1));
    graph
}

fn add(pairs: &mut Pairs, one: usize, other: usize, bytes: usize) {
    if one != other {
        *pairs.entry((one.min(other), one.max(other))).or_default() += bytes as u64;
    }
}

/// Returns a graph in which half of the pairs communicate; the number of bytes varies widely.
fn random(processes: usize, seed: u64) -> CommunicationGraph {
    let (mut random, mut pairs) = (Random::new(seed), Pairs::new());
    for one in 0..processes {
        for other in 0..one {
            if random.between(0, 1) == 0 {
                add(&mut pairs, one, other, random.between(1, 100));
            }
        }
    }
    graph(processes, &pairs)
}

/// Returns a graph by preferential attachment: each process communicates with `links` earlier ones, drawn in
/// proportion to the number of their links.
fn power_law(processes: usize, links: usize, seed: u64) -> CommunicationGraph {
    let (mut random, mut pairs) = (Random::new(seed), Pairs::new());
    let mut ends: Vec<usize> = (0..=links).collect();
    for one in links + 1..processes {
        let mut chosen = BTreeSet::new();
        while chosen.len() < links {
            chosen.insert(ends[random.between(0, ends.len() - 1)]);
        }
        for other in chosen {
            add(&mut pairs, one, other, random.between(1, 100));
            ends.extend([one, other]);
        }
    }
    graph(processes, &pairs)
}

/// Returns a graph of points on a square of 10,000 by 10,000. The closer two points are, the more they
/// communicate; each has about ten peers.
fn geometric(processes: usize, seed: u64) -> CommunicationGraph {
    let (mut random, mut pairs) = (Random::new(seed), Pairs::new());
    let points: Vec<[usize; 2]> =
        (0..processes).map(|_| [random.between(0, 9_999), random.between(0, 9_999)]).collect();
    // A circle with this squared radius contains ten points on average.
    let reach = 31_800_000 * 10 / processes / 10 * 10;
    for (one, a) in points.iter().enumerate() {
        for (other, b) in points[..one].iter().enumerate() {
            let squared: usize = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b).pow(2)).sum();
            if squared < reach {
                add(&mut pairs, one, other, 1 + 100 * (reach - squared) / reach);
            }
        }
    }
    graph(processes, &pairs)
}

/// Returns a graph with a fixed mean number of random pairs per process. Some processes may have
/// no traffic.
fn sparse(processes: usize, degree: usize, seed: u64) -> CommunicationGraph {
    let (mut random, mut pairs) = (Random::new(seed), Pairs::new());
    for _ in 0..processes * degree / 2 {
        let (one, other) = (random.between(0, processes - 1), random.between(0, processes - 1));
        add(&mut pairs, one, other, random.between(1, 100));
    }
    graph(processes, &pairs)
}

/// Returns a graph in which every process communicates with one or two of a few hubs, and a little with the
/// next process.
fn hub(processes: usize, hubs: usize, seed: u64) -> CommunicationGraph {
    let (mut random, mut pairs) = (Random::new(seed), Pairs::new());
    for one in hubs..processes {
        for _ in 0..random.between(1, 2) {
            add(&mut pairs, one, random.between(0, hubs - 1), random.between(1, 100));
        }
        add(&mut pairs, one, (one + 1) % processes, random.between(1, 10));
    }
    graph(processes, &pairs)
}
