//! Identity of clusters across a change: pairs old and new clusters so that as many processes as possible
//! stay in the same cluster.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::Division;

/// Numbers the clusters of `next` to match those of `last`, so that as few processes as possible change
/// clusters. Returns the numbers, and how many processes change clusters. A cluster without a predecessor
/// receives a new number, from `free` upwards.
pub(crate) fn follow(last: (&Division, &[u32]), next: &Division, free: u32) -> (Vec<u32>, usize) {
    let (last, numbers) = last;
    let mut common: BTreeMap<(u32, u32), i64> = BTreeMap::new();
    for (&new, &old) in next.cluster_of.iter().zip(&last.cluster_of) {
        *common.entry((new, old)).or_default() += 1;
    }
    let pairs = pair(&common);
    let stay: i64 = pairs.iter().map(|(&new, &old)| common[&(new, old)]).sum();
    let mut free = free..;
    let number = |new: u32| match pairs.get(&new) {
        Some(&old) => numbers[old as usize],
        None => free.next().expect("there are fewer clusters than numbers"),
    };
    ((0..next.clusters as u32).map(number).collect(), next.cluster_of.len() - stay as usize)
}

/// Pairs new clusters with old ones to maximise the number of common processes. Adds one pair at a time,
/// along the best augmenting path of reassignments.
fn pair(common: &BTreeMap<(u32, u32), i64>) -> BTreeMap<u32, u32> {
    let mut pairs: BTreeMap<u32, u32> = BTreeMap::new();
    loop {
        // For each old cluster: the gain if a new cluster takes it in exchange for its own old cluster, and the
        // number of that new cluster.
        let mut gains: BTreeMap<u32, (i64, u32)> = BTreeMap::new();
        loop {
            let mut better = false;
            for (&(new, old), processes) in common {
                let before = match pairs.get(&new) {
                    None => Some(0),
                    Some(own) if *own == old => None,
                    Some(own) => gains.get(own).map(|it| it.0 - common[&(new, *own)]),
                };
                let Some(gain) = before.map(|it| it + processes) else { continue };
                if gains.get(&old).is_none_or(|it| it.0 < gain) {
                    gains.insert(old, (gain, new));
                    better = true;
                }
            }
            if !better {
                break;
            }
        }
        let taken: BTreeSet<u32> = pairs.values().copied().collect();
        let free = gains.iter().filter(|it| !taken.contains(it.0) && it.1.0 > 0);
        let Some((&old, _)) = free.max_by_key(|it| (it.1.0, Reverse(it.0))) else { return pairs };
        let mut next = Some(old);
        while let Some(old) = next {
            next = pairs.insert(gains[&old].1, old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CommunicationGraph;

    #[test]
    fn numbers_are_kept_so_that_the_fewest_processes_move() {
        let graph = CommunicationGraph::new((0..8).map(|it| it.to_string()).collect());
        let division = |cluster_of: [u32; 8]| Division::new(&graph, &cluster_of);
        let last = division([0, 0, 0, 1, 1, 1, 2, 2]);
        let before = (&last, &[4, 0, 7][..]);
        // The same clusters in a different order, with one process moved.
        assert_eq!(follow(before, &division([1, 1, 2, 2, 2, 2, 0, 0]), 8), (vec![4, 0, 7], 1));
        // If a cluster is split, the larger part keeps the number. A merged cluster keeps the number of its larger
        // part.
        assert_eq!(follow(before, &division([0, 1, 1, 2, 2, 2, 2, 2]), 8), (vec![8, 4, 0], 3));
    }

    #[test]
    fn a_cluster_gives_up_its_number_if_that_keeps_more_processes() {
        // The best pairing does not contain the largest overlap: 5 + 1 is less than 4 + 4.
        let common = BTreeMap::from([((0, 0), 5), ((0, 1), 4), ((1, 0), 4), ((1, 1), 1)]);
        assert_eq!(pair(&common), BTreeMap::from([(0, 1), (1, 0)]));
        for numbers in 0..4_u64.pow(5) {
            let at = |place: u32| (numbers / 4_u64.pow(place) % 4) as i64;
            let places = [(0, 0), (0, 1), (1, 1), (1, 2), (2, 0)].into_iter().zip(0..);
            let common: BTreeMap<(u32, u32), i64> =
                places.map(|(it, place)| (it, at(place))).filter(|it| it.1 > 0).collect();
            let of = |new, old| common.get(&(new, old)).copied().unwrap_or(0);
            let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
            let best = orders.map(|it| (0..3).zip(it).map(|(new, old)| of(new, old)).sum::<i64>());
            let found = pair(&common);
            let sum: i64 = found.iter().map(|(&new, &old)| of(new, old)).sum();
            assert_eq!(Some(&sum), best.iter().max(), "{common:?} {found:?}");
        }
    }
}
