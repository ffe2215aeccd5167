//! Refinement of a division by profitable moves of individual processes and merges of clusters, measured by
//! the criterion itself.
//!
//! Bisection aims at equal sizes and a small cut, whereas the criterion weighs the share that rolls back
//! against the share that is logged, and permits unequal sizes. Several weights yield several variants of a
//! division.

use crate::balance::Balance;
use crate::chance::Chance;
use crate::graph::CommunicationGraph;

/// Weights of logging: the value of one point of logging, in points of rollback.
const WEIGHTS: [f64; 3] = [0.5, 1.0, 2.0];
/// The maximum number of passes, each of which tries to move every process once.
const ROUNDS: usize = 20;

/// Returns the division itself, and its refinements with different weights within the balance.
pub(crate) fn variants(graph: &CommunicationGraph, cluster_of: &[u32], balance: Balance) -> Vec<Vec<u32>> {
    let mut all = vec![cluster_of.to_vec()];
    for weight in WEIGHTS {
        let mut state = State::new(graph, cluster_of, weight, balance);
        state.move_processes();
        all.push(state.cluster_of.clone());
        if state.merge_clusters() {
            state.move_processes();
            all.push(state.cluster_of);
        }
    }
    all
}

struct State<'a> {
    graph: &'a CommunicationGraph,
    cluster_of: Vec<u32>,
    /// Sizes of the clusters.
    sizes: Vec<f64>,
    /// The cost of a byte between clusters, where each ordered pair of processes in one cluster costs 1.
    price: f64,
    balance: Balance,
    /// The number of clusters that are not empty.
    clusters: usize,
}

impl<'a> State<'a> {
    fn new(graph: &'a CommunicationGraph, cluster_of: &[u32], weight: f64, balance: Balance) -> State<'a> {
        let clusters = cluster_of.iter().max().map_or(0, |it| *it as usize + 1);
        let mut sizes = vec![0.0; clusters];
        cluster_of.iter().for_each(|&it| sizes[it as usize] += 1.0);
        let processes = cluster_of.len() as f64;
        let price = weight * processes * processes / graph.total().max(1) as f64;
        let clusters = sizes.iter().filter(|it| **it > 0.0).count();
        State { graph, cluster_of: cluster_of.to_vec(), sizes, price, balance, clusters }
    }

    /// Moves processes to clusters of their peers while that reduces the cost.
    fn move_processes(&mut self) {
        let mut chance = Chance(self.sizes.len() as u64);
        let mut bytes = vec![0; self.sizes.len()];
        for _ in 0..ROUNDS {
            let mut moved = false;
            for one in chance.order(self.cluster_of.len()) {
                moved |= self.move_one(one as usize, &mut bytes);
            }
            if !moved {
                return;
            }
        }
    }

    /// Moves a process if that reduces the cost, and returns whether it did. `bytes` has one entry per
    /// cluster; all entries are zero before and after the call.
    fn move_one(&mut self, one: usize, bytes: &mut [u64]) -> bool {
        let own = self.cluster_of[one];
        let peers = self.graph.peers(one);
        let cluster = |it: &(u32, u64)| self.cluster_of[it.0 as usize];
        if peers.iter().all(|it| cluster(it) == own) {
            return false;
        }
        peers.iter().for_each(|it| bytes[cluster(it) as usize] += it.1);
        let here = bytes[own as usize] as f64;
        // Changes in the squared sizes: n² - (n-1)² and (m+1)² - m².
        let size = self.sizes[own as usize];
        let cost = |to: u32| {
            let squares = 2.0 * (self.sizes[to as usize] - size + 1.0);
            (squares + self.price * (here - bytes[to as usize] as f64), to)
        };
        let most = self.balance.most(self.clusters) as f64;
        let has_room = |it: &u32| *it != own && self.sizes[*it as usize] < most;
        let others = peers.iter().map(cluster).filter(has_room).map(cost);
        let best = others.min_by(|a, b| a.partial_cmp(b).expect("costs are numbers"));
        peers.iter().for_each(|it| bytes[cluster(it) as usize] = 0);
        let Some((_, to)) = best.filter(|it| it.0 < -1e-9) else { return false };
        self.cluster_of[one] = to;
        self.sizes[own as usize] -= 1.0;
        self.sizes[to as usize] += 1.0;
        self.clusters -= usize::from(self.sizes[own as usize] == 0.0);
        true
    }

    /// Repeatedly merges the most profitable pair of clusters. Returns whether any were merged.
    fn merge_clusters(&mut self) -> bool {
        let mut bytes = self.graph.between_each(&self.cluster_of);
        let mut merged_into: Vec<u32> = (0..self.sizes.len() as u32).collect();
        let mut any = false;
        loop {
            let most = self.balance.most(self.clusters - 1) as f64;
            let cost = |(&(a, b), &count): (&(u32, u32), &u64)| {
                let (one, other) = (self.sizes[a as usize], self.sizes[b as usize]);
                (one + other <= most).then_some((2.0 * one * other - self.price * count as f64, a, b))
            };
            let best =
                bytes.iter().filter_map(cost).min_by(|a, b| a.partial_cmp(b).expect("costs are numbers"));
            let Some((_, into, gone)) = best.filter(|it| it.0 < -1e-9) else { break };
            any = true;
            self.clusters -= 1;
            merged_into.iter_mut().filter(|it| **it == gone).for_each(|it| *it = into);
            self.sizes[into as usize] += self.sizes[gone as usize];
            self.sizes[gone as usize] = 0.0;
            let mut of_gone = Vec::new();
            bytes.retain(|&pair, &mut count| {
                let stays = pair.0 != gone && pair.1 != gone;
                if !stays {
                    of_gone.push((pair, count));
                }
                stays
            });
            for ((a, b), count) in of_gone {
                let other = if a == gone { b } else { a };
                if other != into {
                    *bytes.entry((other.min(into), other.max(into))).or_default() += count;
                }
            }
        }
        self.cluster_of.iter_mut().for_each(|it| *it = merged_into[*it as usize]);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Division;

    #[test]
    fn a_process_in_the_wrong_cluster_is_moved() {
        let mut graph = CommunicationGraph::new((0..8).map(|it| it.to_string()).collect());
        for from in 0..8 {
            for to in (0..8).filter(|to| *to != from && to / 4 == from / 4) {
                graph.add(from, to, 10, 1);
            }
        }
        let wrong = [0, 0, 0, 1, 1, 1, 1, 0];
        let cost = |it: &Vec<u32>| Division::new(&graph, it).cost();
        let best = variants(&graph, &wrong, Balance::new(8, None))
            .into_iter()
            .min_by(|a, b| cost(a).total_cmp(&cost(b)));
        assert_eq!(best.as_deref(), Some(&[0, 0, 0, 0, 1, 1, 1, 1][..]));
    }

    #[test]
    fn clusters_that_belong_together_are_merged() {
        let mut graph = CommunicationGraph::new((0..4).map(|it| it.to_string()).collect());
        graph.add(0, 1, 1000, 1);
        graph.add(2, 3, 1000, 1);
        graph.add(1, 2, 1, 1);
        let merged = variants(&graph, &[0, 1, 2, 3], Balance::new(4, None));
        assert!(merged.iter().any(|it| Division::new(&graph, it).cluster_of == [0, 0, 1, 1]), "{merged:?}");
    }
}
