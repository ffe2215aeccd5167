//! Communication graphs: the traffic between processes.

use std::collections::BTreeMap;

use thiserror::Error;

/// The maximum number of bytes, and of messages, in a graph. Sums of gains and losses then fit in 64 bits with a sign.
pub const MAX_TRAFFIC: u64 = 1 << 60;

/// The traffic of a graph exceeds [`MAX_TRAFFIC`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the traffic exceeds the maximum of 2^60 bytes or messages in total; divide all numbers by the same factor"
)]
pub struct TooMuchTraffic;

/// Processes, and the bytes between each pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommunicationGraph {
    names: Vec<String>,
    /// For each process: its peers in ascending order, each with the sum of the bytes in both directions.
    peers: Vec<Vec<(u32, u64)>>,
    total: u64,
    messages: u64,
}

impl CommunicationGraph {
    /// Creates a graph of processes without traffic.
    pub fn new(names: Vec<String>) -> CommunicationGraph {
        CommunicationGraph { peers: vec![Vec::new(); names.len()], names, total: 0, messages: 0 }
    }

    /// Adds bytes and messages from one process to another. Messages from a process to itself are never logged, and are
    /// ignored.
    ///
    /// # Panics
    ///
    /// Panics if either process does not exist, or if the traffic exceeds [`MAX_TRAFFIC`].
    pub fn add(&mut self, from: usize, to: usize, bytes: u64, messages: u64) {
        self.try_add(from, to, bytes, messages).expect("the traffic is within the limit");
    }

    /// Works like [`CommunicationGraph::add`] for numbers that may be too large.
    ///
    /// # Errors
    ///
    /// Fails if the traffic would exceed [`MAX_TRAFFIC`]; the graph is then unchanged.
    ///
    /// # Panics
    ///
    /// Panics if either process does not exist.
    pub fn try_add(
        &mut self,
        from: usize,
        to: usize,
        bytes: u64,
        messages: u64,
    ) -> Result<(), TooMuchTraffic> {
        assert!(from.max(to) < self.len(), "the graph has only {} processes", self.len());
        if from == to {
            return Ok(());
        }
        let sum =
            |sum: u64, more| sum.checked_add(more).filter(|it| *it <= MAX_TRAFFIC).ok_or(TooMuchTraffic);
        (self.total, self.messages) = (sum(self.total, bytes)?, sum(self.messages, messages)?);
        for (one, other) in [(from, to), (to, from)] {
            let (peers, other) = (&mut self.peers[one], other as u32);
            match peers.binary_search_by_key(&other, |it| it.0) {
                Ok(place) => peers[place].1 += bytes,
                Err(place) => peers.insert(place, (other, bytes)),
            }
        }
        Ok(())
    }

    /// Returns the sum of all graphs. Processes with the same name count as one.
    ///
    /// # Panics
    ///
    /// Panics if the traffic of all graphs exceeds [`MAX_TRAFFIC`].
    pub fn together(graphs: &[CommunicationGraph]) -> CommunicationGraph {
        let mut all = CommunicationGraph::default();
        graphs.iter().for_each(|it| all.merge(it));
        all
    }

    /// Returns the graph with these processes first, in this order.
    pub(crate) fn among(&self, names: &[String]) -> CommunicationGraph {
        let mut all = CommunicationGraph::new(names.to_vec());
        all.merge(self);
        all
    }

    /// Adds the traffic of `other`. New processes come last.
    fn merge(&mut self, other: &CommunicationGraph) {
        let mut places: BTreeMap<String, usize> = self.names.iter().cloned().zip(0..).collect();
        let place = |name: &String| {
            *places.entry(name.clone()).or_insert_with(|| {
                self.names.push(name.clone());
                self.peers.push(Vec::new());
                self.names.len() - 1
            })
        };
        let places: Vec<usize> = other.names.iter().map(place).collect();
        for (from, peers) in other.peers.iter().enumerate() {
            // Each pair appears at both ends.
            let once = peers.iter().filter(|it| from < it.0 as usize);
            once.for_each(|&(to, bytes)| self.add(places[from], places[to as usize], bytes, 0));
        }
        self.messages += other.messages;
    }

    /// Returns the number of processes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there are no processes.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the names of the processes.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the total number of bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the total number of counted messages.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns the number of pairs of processes with traffic.
    pub fn pairs(&self) -> usize {
        self.peers.iter().map(Vec::len).sum::<usize>() / 2
    }

    /// Returns the number of bytes between clusters.
    pub fn between(&self, cluster_of: &[u32]) -> u64 {
        let of = |one: usize| {
            let others = self.peers[one].iter();
            others.filter(move |it| cluster_of[one] != cluster_of[it.0 as usize]).map(|it| it.1).sum::<u64>()
        };
        // Each pair is counted at both ends; twice the maximum still fits.
        (0..self.len()).map(of).sum::<u64>() / 2
    }

    /// Returns the number of bytes between each pair of clusters with traffic. In each pair, the cluster with
    /// the smaller index comes first.
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

    /// Returns the peers of a process in ascending order, each with the sum of the bytes in both directions.
    pub fn peers(&self, process: usize) -> &[(u32, u64)] {
        &self.peers[process]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_added_by_the_names_of_their_processes() {
        let named = |names: [&str; 2]| CommunicationGraph::new(names.map(str::to_owned).into());
        let (mut one, mut other) = (named(["a", "b"]), named(["c", "a"]));
        one.add(0, 1, 5, 1);
        other.add(0, 1, 7, 2);
        other.add(1, 0, 1, 1);
        let all = CommunicationGraph::together(&[one.clone(), other.clone(), one]);
        assert_eq!(all.names(), ["a", "b", "c"]);
        assert_eq!((all.total(), all.messages(), all.peers(0)), (18, 5, &[(1, 10), (2, 8)][..]));
        let other = other.among(all.names());
        assert_eq!((other.names(), other.total(), other.peers(0)), (all.names(), 8, &[(2, 8)][..]));
    }

    #[test]
    fn too_much_traffic_is_refused_and_changes_nothing() {
        let mut graph = CommunicationGraph::new(vec!["a".into(), "b".into()]);
        assert_eq!(graph.try_add(0, 1, MAX_TRAFFIC, 1), Ok(()));
        let before = graph.clone();
        assert_eq!(graph.try_add(0, 1, 1, 0), Err(TooMuchTraffic));
        assert_eq!(graph.try_add(0, 1, u64::MAX, 0), Err(TooMuchTraffic));
        assert_eq!(graph.try_add(1, 0, 0, MAX_TRAFFIC), Err(TooMuchTraffic));
        assert_eq!(graph, before);
        assert_eq!(graph.between(&[0, 1]), MAX_TRAFFIC);
    }

    #[test]
    fn both_directions_count_and_messages_to_oneself_do_not() {
        let mut graph = CommunicationGraph::new(vec!["a".into(), "b".into(), "c".into()]);
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
