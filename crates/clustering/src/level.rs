//! A graph at one of several levels, on which a node may represent several processes.

use crate::graph::CommunicationGraph;

/// A graph whose nodes may represent several processes.
pub(crate) struct Level {
    /// The number of processes that each node represents.
    pub(crate) sizes: Vec<u64>,
    /// For each node: its peers, each with the sum of the bytes in both directions.
    pub(crate) peers: Vec<Vec<(u32, u64)>>,
}

impl Level {
    /// Returns the finest level: these processes, and the bytes between them.
    pub(crate) fn of(graph: &CommunicationGraph, processes: &[u32]) -> Level {
        let mut place = vec![u32::MAX; graph.len()];
        processes.iter().zip(0..).for_each(|(&it, number)| place[it as usize] = number);
        let peers = |&it: &u32| {
            let all = graph.peers(it as usize).iter().map(|&(other, bytes)| (place[other as usize], bytes));
            all.filter(|it| it.0 != u32::MAX).collect()
        };
        Level { sizes: vec![1; processes.len()], peers: processes.iter().map(peers).collect() }
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the next coarser level: all nodes with the same number in `merged_into` become one. The numbers are
    /// below `count`.
    pub(crate) fn merged(&self, merged_into: &[u32], count: usize) -> Level {
        let mut sizes = vec![0; count];
        let mut members = vec![Vec::new(); count];
        for (it, &into) in merged_into.iter().enumerate() {
            sizes[into as usize] += self.sizes[it];
            members[into as usize].push(it);
        }
        let mut sum = vec![0_u64; count];
        let peers = |(own, members): (usize, &Vec<usize>)| {
            let mut met = Vec::new();
            for &(other, bytes) in members.iter().flat_map(|&it| &self.peers[it]) {
                let other = merged_into[other as usize];
                if other as usize == own || bytes == 0 {
                    continue;
                }
                if sum[other as usize] == 0 {
                    met.push(other);
                }
                sum[other as usize] += bytes;
            }
            met.sort_unstable();
            met.into_iter().map(|it| (it, std::mem::take(&mut sum[it as usize]))).collect()
        };
        let peers = members.iter().enumerate().map(peers).collect();
        Level { sizes, peers }
    }
}
