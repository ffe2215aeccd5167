//! Who sends how much to whom.

use std::collections::BTreeMap;

/// Processes, and the bytes between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    names: Vec<String>,
    /// By process: bytes to and from each other one, both directions together, ascending.
    peers: Vec<Vec<(u32, u64)>>,
    total: u64,
    messages: u64,
}

impl Graph {
    /// Processes that do not talk yet.
    pub fn new(names: Vec<String>) -> Graph {
        Graph { peers: vec![Vec::new(); names.len()], names, total: 0, messages: 0 }
    }

    /// More bytes and messages from one process to another. What a process sends to itself is never logged, and does not
    /// count.
    ///
    /// # Panics
    ///
    /// When there is no such process.
    pub fn add(&mut self, from: usize, to: usize, bytes: u64, messages: u64) {
        assert!(from.max(to) < self.len(), "there are {} processes", self.len());
        if from == to {
            return;
        }
        for (one, other) in [(from, to), (to, from)] {
            let (peers, other) = (&mut self.peers[one], other as u32);
            match peers.binary_search_by_key(&other, |it| it.0) {
                Ok(place) => peers[place].1 += bytes,
                Err(place) => peers.insert(place, (other, bytes)),
            }
        }
        self.total += bytes;
        self.messages += messages;
    }

    /// How many processes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no process.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// What the processes are called.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// All messages, as far as they were counted.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Pairs of processes that talk.
    pub fn pairs(&self) -> usize {
        self.peers.iter().map(Vec::len).sum::<usize>() / 2
    }

    /// Bytes that go from one cluster to another.
    pub fn between(&self, cluster_of: &[u32]) -> u64 {
        let of = |one: usize| {
            let others = self.peers[one].iter();
            others.filter(move |it| cluster_of[one] != cluster_of[it.0 as usize]).map(|it| it.1).sum::<u64>()
        };
        // Each pair was seen from both ends.
        (0..self.len()).map(of).sum::<u64>() / 2
    }

    /// Bytes between each pair of clusters that talk, the smaller number first.
    pub(crate) fn between_each(&self, cluster_of: &[u32]) -> BTreeMap<(u32, u32), u64> {
        let mut bytes = BTreeMap::new();
        for (one, peers) in self.peers.iter().enumerate() {
            for &(other, count) in peers {
                let (own, other) = (cluster_of[one], cluster_of[other as usize]);
                if own < other {
                    *bytes.entry((own, other)).or_default() += count;
                }
            }
        }
        bytes
    }

    /// Whom a process talks to, and how much, both directions together.
    pub(crate) fn peers(&self, process: usize) -> &[(u32, u64)] {
        &self.peers[process]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_count_and_oneself_does_not() {
        let mut graph = Graph::new(vec!["a".into(), "b".into(), "c".into()]);
        graph.add(0, 1, 5, 1);
        graph.add(1, 0, 7, 2);
        graph.add(1, 2, 1, 1);
        graph.add(2, 2, 100, 9);
        assert_eq!((graph.total(), graph.messages(), graph.pairs()), (13, 4, 2));
        assert_eq!(graph.peers(1), [(0, 12), (2, 1)]);
        assert_eq!(
            [graph.between(&[0, 0, 1]), graph.between(&[0, 1, 0]), graph.between(&[0, 0, 0])],
            [1, 13, 0]
        );
    }
}
