//! Enumeration of all divisions of a small number of processes.

use std::collections::BTreeMap;

use crate::balance::Balance;
use crate::graph::CommunicationGraph;

/// The largest number of processes for which all divisions are compared. Twelve processes can be divided in 4,213,597
/// ways.
pub(crate) const MOST: usize = 12;

/// Returns one division for each share of rolled-back processes that is possible within this balance: the
/// division that logs the fewest bytes. Among equal divisions, it is the one with the fewest clusters. For
/// every other division within the balance, one of the returned divisions is at least as good.
///
/// # Panics
///
/// Panics if there are more than [`MOST`] processes.
pub(crate) fn divisions(graph: &CommunicationGraph, balance: Balance) -> Vec<Vec<u32>> {
    let processes = graph.len();
    assert!(processes <= MOST, "{processes} processes have too many divisions");
    let mut between = vec![[0; MOST]; processes];
    for (one, row) in between.iter_mut().enumerate() {
        graph.peers(one).iter().for_each(|&(other, bytes)| row[other as usize] = bytes);
    }
    let mut search =
        Search { between, balance, cluster_of: Vec::new(), sizes: Vec::new(), best: BTreeMap::new() };
    search.next(0, 0);
    search.best.into_values().map(|it| it.1).collect()
}

struct Search {
    between: Vec<[u64; MOST]>,
    balance: Balance,
    /// The cluster of each process assigned so far.
    cluster_of: Vec<u32>,
    sizes: Vec<usize>,
    /// The best division for each sum of squared sizes: its bytes, its number of clusters, and the division.
    best: BTreeMap<usize, ((u64, usize), Vec<u32>)>,
}

impl Search {
    /// Assigns the next process to each cluster in turn, and to a new one. `squares` and `logged` are the
    /// costs of the processes assigned so far.
    fn next(&mut self, squares: usize, logged: u64) {
        let one = self.cluster_of.len();
        if one == self.between.len() {
            self.complete(squares, logged);
            return;
        }
        let row = self.between[one];
        let all: u64 = row[..one].iter().sum();
        for cluster in 0..=self.sizes.len() {
            if cluster == self.sizes.len() {
                self.sizes.push(0);
            }
            let inside = (0..one).filter(|&it| self.cluster_of[it] == cluster as u32).map(|it| row[it]);
            let more = all - inside.sum::<u64>();
            let wider = 2 * self.sizes[cluster] + 1;
            self.sizes[cluster] += 1;
            self.cluster_of.push(cluster as u32);
            self.next(squares + wider, logged + more);
            self.cluster_of.pop();
            self.sizes[cluster] -= 1;
        }
        self.sizes.pop();
    }

    fn complete(&mut self, squares: usize, logged: u64) {
        let clusters = self.sizes.len();
        let cost = (logged, clusters);
        if self.best.get(&squares).is_some_and(|it| it.0 <= cost) {
            return;
        }
        if self.sizes.iter().all(|it| *it <= self.balance.most(clusters)) {
            self.best.insert(squares, (cost, self.cluster_of.clone()));
        }
    }
}
