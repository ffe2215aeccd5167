//! Search for the smallest sum of both shares: divides regions repeatedly, and combines divisions.

use std::collections::BTreeMap;
use std::iter;

use crate::balance::Balance;
use crate::chance::Chance;
use crate::graph::CommunicationGraph;
use crate::leiden::{self, CostModel, ROUNDING};
use crate::level::Level;

/// Weights of logging for divisions of the front: the value of one point of logging, in points of rollback.
const WEIGHTS: [f64; 9] = [0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0];
/// The minimum and maximum number of starts at weight 1. Smaller graphs have more starts.
const STARTS: (usize, usize) = (8, 60);
/// The total number of processes in all starts.
const STARTED: usize = 20_000;
/// The number of divisions that are improved.
const IMPROVED: usize = 3;
/// The number of regions that are divided again, per cluster of a division.
const REGIONS: usize = 60;
/// The minimum and maximum number of regions that are divided again to improve one division.
const BOUNDS: (usize, usize) = (1_000, 8_000);
/// The limit on the total number of pairs with traffic in all regions. Dense graphs therefore have fewer
/// regions.
const LOOKED_AT: usize = 1_500_000;
/// The largest number of clusters in a region.
const WIDEST: usize = 5;
/// An upper bound on the loss that a region may cause, in points.
const LOSS: f64 = 0.1;
/// The share of the regions, counted from the last one, that must not cause any loss.
const TAIL: f64 = 0.2;
/// Weights of logging in regions if the share that rolls back is limited.
const TIGHTER: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// Limits on divisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) balance: Balance,
    /// The largest sum of the squared sizes.
    pub(crate) squares: f64,
}

/// Returns divisions found by starting from individual processes: one for each of several weights of logging,
/// and more at weight 1.
pub(crate) fn from_singles(graph: &CommunicationGraph) -> Vec<Vec<u32>> {
    let starts = (STARTED / graph.len()).clamp(STARTS.0, STARTS.1);
    at_weights(graph, WEIGHTS.into_iter().chain(iter::repeat_n(1.0, starts)), graph.len())
}

/// Returns divisions found by starting from individual processes, with at most `most` processes per cluster.
pub(crate) fn in_balance(graph: &CommunicationGraph, most: usize) -> Vec<Vec<u32>> {
    at_weights(graph, [1.0; 2], most)
}

fn at_weights(
    graph: &CommunicationGraph,
    weights: impl IntoIterator<Item = f64>,
    most: usize,
) -> Vec<Vec<u32>> {
    let all: Vec<u32> = (0..graph.len() as u32).collect();
    let level = Level::of(graph, &all);
    let mut chance = Chance(graph.len() as u64);
    let mut found = |weight| {
        let terms = CostModel { price: price(graph, weight), most: most as u64 };
        leiden::cluster(&level, all.clone(), terms, &mut chance)
    };
    weights.into_iter().map(&mut found).collect()
}

/// Returns the saving per byte inside a cluster at this weight of logging, where each pair of processes in
/// one cluster costs 2.
fn price(graph: &CommunicationGraph, weight: f64) -> f64 {
    let processes = graph.len() as f64;
    weight * processes * processes / graph.total().max(1) as f64
}

/// Searches for divisions with a smaller sum of both shares, starting from the first divisions in `best`, and
/// combines the results. Some of the returned divisions may not be better.
pub(crate) fn improve<'a>(
    graph: &CommunicationGraph,
    best: impl Iterator<Item = &'a [u32]>,
    limits: Limits,
) -> Vec<Vec<u32>> {
    let found: Vec<Vec<u32>> =
        (0..).zip(best.take(IMPROVED)).map(|(seed, it)| regions(graph, it, limits, seed)).collect();
    let mut all = found.clone();
    for (place, other) in found.iter().enumerate() {
        all.extend(found[..place].iter().map(|one| combine(graph, one, other, limits)));
    }
    all
}

/// Repeatedly divides regions of `start` again, and returns the best division encountered. A region is a
/// cluster with some of its neighbours. It is divided starting from individual processes, ignoring the rest
/// of the graph. The result replaces the region's clusters if it respects the limits and costs at most
/// slightly more. The permitted loss decreases to zero.
fn regions(graph: &CommunicationGraph, start: &[u32], limits: Limits, seed: u64) -> Vec<u32> {
    let mut cluster_of = start.to_vec();
    let clusters = leiden::number(&mut cluster_of);
    let mut members = vec![Vec::new(); clusters];
    cluster_of.iter().zip(0..).for_each(|(&of, it)| members[of as usize].push(it));
    let (chance, mut best) = (Chance(seed), cluster_of.clone());
    let mut search = Search { graph, limits, cluster_of, members, chance, cost: 0.0, loss: 0.0 };
    let regions =
        (clusters * REGIONS).clamp(BOUNDS.0, BOUNDS.1).min(LOOKED_AT * clusters / graph.pairs().max(1));
    let point = (graph.len() * graph.len()) as f64 / 100.0;
    let mut least = 0.0;
    for region in 0..regions {
        let rest = 1.0 - region as f64 / regions as f64;
        search.loss = LOSS * point * (rest - TAIL).max(0.0);
        search.divide_anew();
        if search.cost < least - ROUNDING {
            least = search.cost;
            best.clone_from(&search.cluster_of);
        }
    }
    best
}

/// Combines two divisions: processes that share a cluster in both stay together, and clusters are formed from
/// these parts.
fn combine(graph: &CommunicationGraph, one: &[u32], other: &[u32], limits: Limits) -> Vec<u32> {
    let mut numbers = BTreeMap::new();
    let mut number = |it| {
        let next = numbers.len() as u32;
        *numbers.entry(it).or_insert(next)
    };
    let part_of: Vec<u32> = one.iter().zip(other).map(&mut number).collect();
    let parts = numbers.len();
    let all: Vec<u32> = (0..graph.len() as u32).collect();
    let level = Level::of(graph, &all).merged(&part_of, parts);
    let mut start = vec![0; parts];
    part_of.iter().zip(one).for_each(|(&part, &of)| start[part as usize] = of);
    let clusters = leiden::number(&mut start);
    let terms = CostModel { price: price(graph, 1.0), most: limits.balance.most(clusters) as u64 };
    let found = leiden::cluster(&level, start, terms, &mut Chance(parts as u64));
    part_of.iter().map(|&it| found[it as usize]).collect()
}

struct Search<'a> {
    graph: &'a CommunicationGraph,
    limits: Limits,
    cluster_of: Vec<u32>,
    /// Members of each cluster. No cluster is empty.
    members: Vec<Vec<u32>>,
    chance: Chance,
    /// The cost of the clusters, relative to that of the start.
    cost: f64,
    /// The additional cost that a region may currently cause.
    loss: f64,
}

impl Search<'_> {
    fn divide_anew(&mut self) {
        let mut region = self.region();
        let processes: Vec<u32> = region.iter().flat_map(|&it| &self.members[it as usize]).copied().collect();
        let level = Level::of(self.graph, &processes);
        let mut before: Vec<u32> = processes.iter().map(|&it| self.cluster_of[it as usize]).collect();
        leiden::number(&mut before);
        let singles = (0..processes.len() as u32).collect();
        let terms = self.terms();
        let after = leiden::cluster(&level, singles, terms, &mut self.chance);
        let terms = CostModel { price: price(self.graph, 1.0), ..terms };
        let more = terms.cost(&level, &after) - terms.cost(&level, &before);
        if more > ROUNDING && more > self.loss * self.chance.share() {
            return;
        }
        let mut members = vec![Vec::new(); after.iter().max().map_or(0, |it| *it as usize + 1)];
        processes.iter().zip(after).for_each(|(&it, of)| members[of as usize].push(it));
        if self.keeps_limits(&region, &members) {
            self.replace(&mut region, members);
            self.cost += more;
        }
    }

    /// Returns a cluster and some of its neighbours.
    fn region(&mut self) -> Vec<u32> {
        let mut region = vec![self.cluster_of[self.chance.below(self.graph.len())]];
        for _ in 0..1 + self.chance.below(WIDEST - 1) {
            let within = region[self.chance.below(region.len())];
            let members = &self.members[within as usize];
            let peers = self.graph.peers(members[self.chance.below(members.len())] as usize);
            let mut next =
                peers.iter().map(|it| self.cluster_of[it.0 as usize]).filter(|it| !region.contains(it));
            let count = next.clone().count();
            if count > 0 {
                region.extend(next.nth(self.chance.below(count)));
            }
        }
        region
    }

    /// Returns the price and the size limit for the next region. If the share that rolls back is limited, the price is
    /// drawn from [`TIGHTER`], to favour smaller clusters than those with the smallest sum.
    fn terms(&mut self) -> CostModel {
        let weight = match self.limits.squares {
            it if it.is_finite() => TIGHTER[self.chance.below(TIGHTER.len())],
            _ => 1.0,
        };
        let most = self.limits.balance.most(self.members.len());
        CostModel { price: price(self.graph, weight), most: most as u64 }
    }

    fn keeps_limits(&self, region: &[u32], members: &[Vec<u32>]) -> bool {
        let others = self.members.iter().zip(0..).filter(|it| !region.contains(&it.1)).map(|it| it.0);
        let sizes: Vec<usize> = others.chain(members).map(Vec::len).collect();
        let squares: usize = sizes.iter().map(|it| it * it).sum();
        sizes.iter().max() <= Some(&self.limits.balance.most(sizes.len()))
            && squares as f64 <= self.limits.squares
    }

    fn replace(&mut self, region: &mut [u32], members: Vec<Vec<u32>>) {
        // In descending order, so that a cluster moved into a gap is not in the region.
        region.sort_unstable_by(|a, b| b.cmp(a));
        for &it in &*region {
            self.members.swap_remove(it as usize);
            self.name(it as usize);
        }
        for it in members {
            self.members.push(it);
            self.name(self.members.len() - 1);
        }
    }

    /// Records `cluster` as the cluster of each of its members.
    fn name(&mut self, cluster: usize) {
        let members = self.members.get(cluster).into_iter().flatten();
        members.for_each(|&it| self.cluster_of[it as usize] = cluster as u32);
    }
}
