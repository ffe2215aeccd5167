//! Minimisation of the sum of both shares by moving, refining and merging (after Traag, Waltman and van Eck,
//! "From Louvain to Leiden", 2019).
//!
//! Up to a constant, the sum of both shares is the quantity that the constant Potts model minimises at
//! resolution 2 W / n², with W bytes among n processes. A pass moves nodes to the most profitable clusters,
//! or to new clusters, until no move reduces the cost. It then divides each cluster into connected
//! sub-clusters, merges each sub-cluster into one node, and continues on that coarser level, where entire
//! sub-clusters move. Passes are repeated until one yields no improvement.

use std::collections::VecDeque;

use crate::chance::Chance;
use crate::level::Level;

/// The smallest significant change in the cost. Smaller changes may be rounding errors.
pub(crate) const ROUNDING: f64 = 1e-7;

/// The price of a byte, and the size limit of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostModel {
    /// The saving per byte inside a cluster, where each pair of processes in one cluster costs 2.
    pub(crate) price: f64,
    /// The size limit of a cluster, in processes.
    pub(crate) most: u64,
}

impl CostModel {
    /// Returns the cost of these clusters: the sum of their squared sizes, less the savings for bytes inside them.
    pub(crate) fn cost(self, level: &Level, cluster_of: &[u32]) -> f64 {
        let mut sizes = vec![0_u64; level.len()];
        cluster_of.iter().zip(&level.sizes).for_each(|(&it, size)| sizes[it as usize] += size);
        let squares: u64 = sizes.iter().map(|it| it * it).sum();
        let inside = |one: usize| {
            let own = cluster_of[one];
            let inside = level.peers[one].iter().filter(move |it| cluster_of[it.0 as usize] == own);
            inside.map(|it| it.1).sum::<u64>()
        };
        // Each pair is counted at both ends.
        let inside = (0..level.len()).map(inside).sum::<u64>() / 2;
        squares as f64 - self.price * inside as f64
    }
}

/// Returns clusters that cost no more than `start`. Cluster numbers in `start` must be smaller than the
/// number of nodes; returned numbers are consecutive, from 0.
pub(crate) fn cluster(level: &Level, start: Vec<u32>, terms: CostModel, chance: &mut Chance) -> Vec<u32> {
    let mut best = start;
    let mut cost = terms.cost(level, &best);
    loop {
        let next = pass(level, best.clone(), terms, chance);
        let next_cost = terms.cost(level, &next);
        if next_cost >= cost - ROUNDING {
            number(&mut best);
            return best;
        }
        (best, cost) = (next, next_cost);
    }
}

/// Renumbers clusters from 0, in the order of their first members. Returns the number of clusters.
pub(crate) fn number(cluster_of: &mut [u32]) -> usize {
    let mut numbers = vec![u32::MAX; cluster_of.iter().max().map_or(0, |it| *it as usize + 1)];
    let mut next = 0;
    for it in cluster_of {
        let number = &mut numbers[*it as usize];
        if *number == u32::MAX {
            *number = next;
            next += 1;
        }
        *it = *number;
    }
    next as usize
}

fn pass(level: &Level, cluster_of: Vec<u32>, terms: CostModel, chance: &mut Chance) -> Vec<u32> {
    let mut moving = Moving::new(level, cluster_of, terms);
    moving.settle(chance);
    let cluster_of = moving.cluster_of;
    let (part_of, parts) = refine(level, &cluster_of, terms, chance);
    if parts == level.len() {
        return cluster_of;
    }
    let coarser = level.merged(&part_of, parts);
    let mut start = vec![0; parts];
    part_of.iter().zip(&cluster_of).for_each(|(&part, &own)| start[part as usize] = own);
    number(&mut start);
    let found = pass(&coarser, start, terms, chance);
    part_of.iter().map(|&it| found[it as usize]).collect()
}

/// The state of a division while nodes move.
struct Moving<'a> {
    level: &'a Level,
    cluster_of: Vec<u32>,
    /// Sizes of the clusters, in processes.
    sizes: Vec<u64>,
    /// Clusters without members, to which a node may move.
    empty: Vec<u32>,
    terms: CostModel,
    /// Bytes between each cluster and the current node; all zero while there is no current node.
    bytes: Vec<u64>,
    met: Vec<u32>,
}

impl<'a> Moving<'a> {
    fn new(level: &'a Level, cluster_of: Vec<u32>, terms: CostModel) -> Moving<'a> {
        let mut sizes = vec![0; level.len()];
        cluster_of.iter().zip(&level.sizes).for_each(|(&it, size)| sizes[it as usize] += size);
        let empty = (0..level.len() as u32).rev().filter(|&it| sizes[it as usize] == 0).collect();
        let bytes = vec![0; level.len()];
        Moving { level, cluster_of, sizes, empty, terms, bytes, met: Vec::new() }
    }

    /// Moves nodes until no single move reduces the cost.
    fn settle(&mut self, chance: &mut Chance) {
        let mut queue: VecDeque<u32> = chance.order(self.level.len()).into();
        let mut queued = vec![true; self.level.len()];
        while let Some(one) = queue.pop_front() {
            queued[one as usize] = false;
            let Some(to) = self.best(one as usize) else { continue };
            self.put(one as usize, to);
            for &(other, _) in &self.level.peers[one as usize] {
                if self.cluster_of[other as usize] != to && !queued[other as usize] {
                    queued[other as usize] = true;
                    queue.push_back(other);
                }
            }
        }
    }

    /// Returns the most profitable cluster for this node, possibly an empty one; `None` if the node should stay.
    fn best(&mut self, one: usize) -> Option<u32> {
        let (own, size) = (self.cluster_of[one], self.level.sizes[one]);
        for &(other, bytes) in &self.level.peers[one] {
            let cluster = self.cluster_of[other as usize];
            if self.bytes[cluster as usize] == 0 {
                self.met.push(cluster);
            }
            self.bytes[cluster as usize] += bytes;
        }
        let rest = self.sizes[own as usize] - size;
        let stay = 2.0 * (size * rest) as f64 - self.terms.price * self.bytes[own as usize] as f64;
        let mut best = (stay - ROUNDING, None);
        // A node alone in a cluster adds no cost. This node may already be alone.
        if rest > 0 && best.0 > 0.0 {
            best = (0.0, self.empty.last().copied());
        }
        for cluster in self.met.drain(..) {
            let bytes = std::mem::take(&mut self.bytes[cluster as usize]);
            let joined = self.sizes[cluster as usize];
            if cluster == own || joined + size > self.terms.most {
                continue;
            }
            let cost = 2.0 * (size * joined) as f64 - self.terms.price * bytes as f64;
            if cost < best.0 {
                best = (cost, Some(cluster));
            }
        }
        best.1
    }

    fn put(&mut self, one: usize, to: u32) {
        let (own, size) = (self.cluster_of[one], self.level.sizes[one]);
        if self.sizes[to as usize] == 0 {
            self.empty.pop();
        }
        self.cluster_of[one] = to;
        self.sizes[to as usize] += size;
        self.sizes[own as usize] -= size;
        if self.sizes[own as usize] == 0 {
            self.empty.push(own);
        }
    }
}

/// Divides each cluster into connected parts: nodes that are still alone join a part of their cluster if that
/// reduces the cost. The part is chosen at random, weighted by the saving. Returns the part of each node, and
/// the number of parts.
fn refine(level: &Level, cluster_of: &[u32], terms: CostModel, chance: &mut Chance) -> (Vec<u32>, usize) {
    let mut part_of: Vec<u32> = (0..level.len() as u32).collect();
    let mut sizes = level.sizes.clone();
    let mut is_alone = vec![true; level.len()];
    let mut bytes = vec![0_u64; level.len()];
    let (mut met, mut ways) = (Vec::new(), Vec::new());
    for one in chance.order(level.len()) {
        let (one, size) = (one as usize, level.sizes[one as usize]);
        if !is_alone[one] {
            continue;
        }
        for &(other, count) in &level.peers[one] {
            if cluster_of[other as usize] == cluster_of[one] {
                let part = part_of[other as usize];
                if bytes[part as usize] == 0 {
                    met.push(part);
                }
                bytes[part as usize] += count;
            }
        }
        for part in met.drain(..) {
            let count = std::mem::take(&mut bytes[part as usize]);
            let saved = terms.price * count as f64 - 2.0 * (size * sizes[part as usize]) as f64;
            if saved > ROUNDING {
                ways.push((saved, part));
            }
        }
        let all: f64 = ways.iter().map(|it| it.0).sum();
        let mut rest = chance.share() * all;
        let drawn = ways.iter().find(|it| {
            rest -= it.0;
            rest < 0.0
        });
        if let Some(&(_, part)) = drawn.or(ways.last()) {
            part_of[one] = part;
            sizes[one] = 0;
            sizes[part as usize] += size;
            is_alone[part as usize] = false;
        }
        ways.clear();
    }
    let parts = number(&mut part_of);
    (part_of, parts)
}
