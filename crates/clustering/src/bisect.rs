//! Division of a graph into parts of about equal size by repeated bisection.
//!
//! The bisection is multilevel (Karypis and Kumar). It merges the neighbours with the most traffic until few
//! nodes are left, and divides these by growing one half from several starts. On the way back, it refines
//! each level by moving individual nodes, even at a loss, and keeps the best state (Fiduccia and Mattheyses).

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::Chance;
use crate::graph::CommunicationGraph;
use crate::level::Level;

/// The number of nodes at which merging stops.
const COARSEST: usize = 40;
/// The number of starts from which a half is grown.
const STARTS: usize = 12;
/// The largest number of passes over a level.
const PASSES: usize = 8;
/// The number of consecutive moves without a gain after which a pass stops.
const PATIENCE: usize = 120;
/// The number of candidates in each half that are examined for a move that keeps the balance.
const LOOKS: usize = 8;
/// The largest number of parts with which a part exchanges processes. Pairs of parts with more traffic take precedence.
const PARTNERS: usize = 4;
/// The largest number of rounds of exchanges over all parts.
const EXCHANGES: usize = 3;

/// Divides a graph into `parts` parts of about the same size, none with more than `most` processes. Returns the
/// part of each process. `parts` times `most` must be at least the number of processes.
pub(crate) fn into(graph: &CommunicationGraph, parts: usize, most: usize) -> Vec<u32> {
    let mut part_of = vec![0; graph.len()];
    let all: Vec<u32> = (0..graph.len() as u32).collect();
    let mut chance = Chance(parts as u64);
    split(graph, all, 0, parts, most as u64, &mut part_of, &mut chance);
    part_of
}

/// Exchanges processes between pairs of parts to reduce the traffic between them, with no part larger than
/// `most`. If all parts are full, no single process can move, but two processes can swap places.
pub(crate) fn exchange(graph: &CommunicationGraph, part_of: &mut [u32], most: usize) {
    for _ in 0..EXCHANGES {
        let before = graph.between(part_of);
        let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        part_of.iter().zip(0..).for_each(|(&part, it)| members.entry(part).or_default().push(it));
        for (one, other) in partners(graph, part_of) {
            let (left, right) = (&members[&one], &members[&other]);
            let (size, total) = (left.len() as u64, (left.len() + right.len()) as u64);
            let (least, most) = ((total.saturating_sub(most as u64)).max(1), (most as u64).min(total - 1));
            let processes = [left.as_slice(), right].concat();
            let mut is_left: Vec<bool> = (0..processes.len()).map(|it| it < left.len()).collect();
            Level::of(graph, &processes).refine(&mut is_left, Share { size, least, most });
            for (side, part) in [(true, one), (false, other)] {
                let of: Vec<u32> =
                    processes.iter().zip(&is_left).filter(|it| *it.1 == side).map(|it| *it.0).collect();
                of.iter().for_each(|&it| part_of[it as usize] = part);
                members.insert(part, of);
            }
        }
        if graph.between(part_of) >= before {
            return;
        }
    }
}

/// Returns pairs of parts with traffic between them, in descending order of traffic. Each part occurs in only
/// a few pairs.
fn partners(graph: &CommunicationGraph, part_of: &[u32]) -> Vec<(u32, u32)> {
    let mut pairs: Vec<(u64, (u32, u32))> =
        graph.between_each(part_of).into_iter().map(|(pair, bytes)| (bytes, pair)).collect();
    pairs.sort_unstable_by(|a, b| b.cmp(a));
    let mut taken: BTreeMap<u32, usize> = BTreeMap::new();
    pairs.retain(|&(_, (one, other))| {
        let free = [one, other].iter().all(|it| taken.get(it).is_none_or(|it| *it < PARTNERS));
        if free {
            [one, other].iter().for_each(|&it| *taken.entry(it).or_default() += 1);
        }
        free
    });
    pairs.into_iter().map(|it| it.1).collect()
}

/// The requested size of the left half, in processes.
#[derive(Clone, Copy)]
struct Share {
    size: u64,
    /// Limits on the final size. They may be exceeded while nodes represent several processes.
    least: u64,
    most: u64,
}

/// Divides these processes into `parts` parts, numbered `first..first + parts`.
fn split(
    graph: &CommunicationGraph,
    processes: Vec<u32>,
    first: u32,
    parts: usize,
    most: u64,
    part_of: &mut [u32],
    chance: &mut Chance,
) {
    if parts < 2 || processes.len() < 2 {
        processes.iter().for_each(|&it| part_of[it as usize] = first);
        return;
    }
    let left_parts = parts / 2;
    let total = processes.len() as u64;
    let size = total * left_parts as u64 / parts as u64;
    // The share may deviate slightly, as long as the parts of both halves can hold the processes.
    let share = Share {
        size,
        least: (size - size / 50).max(total.saturating_sub((parts - left_parts) as u64 * most)),
        most: (size + size / 50).min(left_parts as u64 * most),
    };
    let level = Level::of(graph, &processes);
    let is_left = level.halve(share, chance);
    let (left, right): (Vec<_>, Vec<_>) = (0..processes.len()).partition(|&it| is_left[it]);
    let named = |places: Vec<usize>| places.into_iter().map(|it| processes[it]).collect();
    split(graph, named(left), first, left_parts, most, part_of, chance);
    split(graph, named(right), first + left_parts as u32, parts - left_parts, most, part_of, chance);
}

impl Level {
    /// Divides the graph into halves. The size of the left half is about `share`. Returns whether each node is in the
    /// left half.
    fn halve(&self, share: Share, chance: &mut Chance) -> Vec<bool> {
        let mut is_left = if self.len() <= COARSEST {
            self.grow(share, chance)
        } else {
            let (coarser, merged_into) = self.merge(chance);
            // If few nodes have a neighbour to merge with, merging makes hardly any progress.
            if coarser.len() * 20 > self.len() * 19 {
                self.grow(share, chance)
            } else {
                let halves = coarser.halve(share, chance);
                merged_into.iter().map(|&it| halves[it as usize]).collect()
            }
        };
        self.refine(&mut is_left, share);
        is_left
    }

    /// Merges nodes in pairs: visits them in random order, and merges each with the unmerged neighbour with which it
    /// has the most traffic, among those that are small enough.
    fn merge(&self, chance: &mut Chance) -> (Level, Vec<u32>) {
        const FREE: u32 = u32::MAX;
        let most = (self.sizes.iter().sum::<u64>() / COARSEST as u64).max(2);
        let mut merged_into = vec![FREE; self.len()];
        let mut count = 0;
        for one in chance.order(self.len()) {
            if merged_into[one as usize] != FREE {
                continue;
            }
            let size = self.sizes[one as usize];
            let fits = |it: &&(u32, u64)| {
                merged_into[it.0 as usize] == FREE && it.0 != one && size + self.sizes[it.0 as usize] <= most
            };
            let partner =
                self.peers[one as usize].iter().filter(fits).max_by_key(|it| (it.1, it.0)).map(|it| it.0);
            merged_into[one as usize] = count;
            if let Some(partner) = partner {
                merged_into[partner as usize] = count;
            }
            count += 1;
        }
        let level = self.merged(&merged_into, count as usize);
        (level, merged_into)
    }

    /// Returns the best of several halves. Each grows from one node: the node with the most traffic to the half is
    /// added repeatedly.
    fn grow(&self, share: Share, chance: &mut Chance) -> Vec<bool> {
        let grown = (0..STARTS).map(|_| {
            let mut is_left = vec![false; self.len()];
            let mut pull = vec![0_u64; self.len()];
            let (mut next, mut size) = (chance.below(self.len()), 0);
            loop {
                is_left[next] = true;
                size += self.sizes[next];
                self.peers[next].iter().for_each(|&(it, bytes)| pull[it as usize] += bytes);
                let fits = |it: &usize| !is_left[*it] && size + self.sizes[*it] <= share.size;
                let Some(best) = (0..self.len()).filter(fits).max_by_key(|&it| (pull[it], self.len() - it))
                else {
                    break;
                };
                next = best;
            }
            self.refine(&mut is_left, share);
            is_left
        });
        grown.min_by_key(|it| self.cut(it)).expect("there are several starts")
    }

    fn cut(&self, is_left: &[bool]) -> u64 {
        let of = |one: usize| {
            let others = self.peers[one].iter();
            others.filter(move |it| is_left[one] != is_left[it.0 as usize]).map(|it| it.1)
        };
        (0..self.len()).flat_map(of).sum()
    }

    /// Reduces the cut by moving nodes, while the left half keeps about its requested size.
    fn refine(&self, is_left: &mut [bool], share: Share) {
        for _ in 0..PASSES {
            if !self.pass(is_left, share) {
                return;
            }
        }
    }

    /// Performs one pass. Returns whether it improved the halves.
    fn pass(&self, is_left: &mut [bool], share: Share) -> bool {
        // A half may exceed its share by one node during a pass, but only by an insignificant amount at the
        // end of the pass.
        let coarse = self.sizes.iter().max().copied().unwrap_or(1);
        let slack = coarse.max(share.size / 50);
        let (least, most) = match coarse {
            ..=1 => (share.least, share.most),
            _ => (share.size.saturating_sub(slack), share.size + slack),
        };
        let mut gains: Vec<i64> = (0..self.len())
            .map(|one| {
                let signed = |it: &(u32, u64)| {
                    let bytes = it.1 as i64;
                    if is_left[one] == is_left[it.0 as usize] { -bytes } else { bytes }
                };
                self.peers[one].iter().map(signed).sum()
            })
            .collect();
        let mut free: [BTreeSet<(i64, u32)>; 2] = Default::default();
        (0..self.len()).for_each(|it| _ = free[usize::from(is_left[it])].insert((gains[it], it as u32)));
        let mut left: u64 = (0..self.len()).filter(|&it| is_left[it]).map(|it| self.sizes[it]).sum();
        let off = |left: u64| least.saturating_sub(left) + left.saturating_sub(most);
        // The balance is more important than the cut.
        let (mut gained, mut best) = (0_i64, (off(left), 0_i64, left.abs_diff(share.size)));
        let (mut moved, mut kept) = (Vec::new(), 0);
        while moved.len() - kept < PATIENCE {
            let after = |it: u32| {
                let size = self.sizes[it as usize];
                if is_left[it as usize] { left - size } else { left + size }
            };
            let allowed = |it: &&(i64, u32)| off(after(it.1)) <= coarse || off(after(it.1)) < off(left);
            // If a node is too heavy at this point, one of the next few is usually light enough.
            let movable = |side: &BTreeSet<(i64, u32)>| side.iter().rev().take(LOOKS).find(allowed).copied();
            let Some((gain, one)) = free.iter().filter_map(movable).max() else { break };
            free[usize::from(is_left[one as usize])].remove(&(gain, one));
            left = after(one);
            is_left[one as usize] ^= true;
            gained += gain;
            moved.push(one);
            for &(other, bytes) in &self.peers[one as usize] {
                let change =
                    if is_left[one as usize] == is_left[other as usize] { -2 } else { 2 } * bytes as i64;
                let side = &mut free[usize::from(is_left[other as usize])];
                if side.remove(&(gains[other as usize], other)) {
                    side.insert((gains[other as usize] + change, other));
                }
                gains[other as usize] += change;
            }
            let state = (off(left), -gained, left.abs_diff(share.size));
            if state < best {
                (best, kept) = (state, moved.len());
            }
        }
        for &one in &moved[kept..] {
            is_left[one as usize] ^= true;
        }
        kept > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a mesh with this many rows and columns.
    fn mesh(rows: usize, columns: usize) -> CommunicationGraph {
        let mut graph = CommunicationGraph::new((0..rows * columns).map(|it| it.to_string()).collect());
        for it in 0..rows * columns {
            if it % columns + 1 < columns {
                graph.add(it, it + 1, 1, 1);
            }
            if it + columns < rows * columns {
                graph.add(it, it + columns, 1, 1);
            }
        }
        graph
    }

    #[test]
    fn a_mesh_is_cut_straight() {
        let graph = mesh(16, 16);
        let halves = into(&graph, 2, 256);
        assert_eq!(halves.iter().filter(|&&it| it == 0).count(), 128);
        assert!(graph.between(&halves) <= 17, "{}", graph.between(&halves));
        let quarters = into(&graph, 4, 256);
        assert!(graph.between(&quarters) <= 36, "{}", graph.between(&quarters));
    }

    #[test]
    fn parts_have_about_the_same_size_whatever_their_number() {
        let graph = mesh(10, 10);
        for parts in [3, 5, 7] {
            let part_of = into(&graph, parts, 100);
            for part in 0..parts as u32 {
                let size = part_of.iter().filter(|&&it| it == part).count();
                assert!(size.abs_diff(100 / parts) <= 4, "{parts}: {size}");
            }
        }
    }

    #[test]
    fn no_part_exceeds_the_limit() {
        let graph = mesh(10, 10);
        for parts in [2, 3, 5, 7, 30] {
            let most = 100_usize.div_ceil(parts);
            let mut part_of = into(&graph, parts, most);
            let largest = |part_of: &[u32]| {
                (0..parts as u32).map(|part| part_of.iter().filter(|it| **it == part).count()).max()
            };
            assert!(largest(&part_of) <= Some(most), "{parts}: {part_of:?}");
            let before = graph.between(&part_of);
            exchange(&graph, &mut part_of, most);
            assert!(largest(&part_of) <= Some(most), "{parts}, exchanged: {part_of:?}");
            assert!(graph.between(&part_of) <= before, "{parts}");
        }
    }

    #[test]
    fn full_parts_exchange_processes() {
        let mut graph = CommunicationGraph::new((0..8).map(|it| it.to_string()).collect());
        for from in 0..8 {
            (0..8).filter(|to| to / 4 == from / 4).for_each(|to| graph.add(from, to, 1, 1));
        }
        let mut part_of = [0, 0, 0, 1, 1, 1, 1, 0];
        exchange(&graph, &mut part_of, 4);
        assert_eq!(part_of[..4], [part_of[0]; 4]);
        assert_eq!(graph.between(&part_of), 0);
    }

    #[test]
    fn graphs_without_traffic_can_be_divided() {
        let part_of = into(&CommunicationGraph::new((0..200).map(|it| it.to_string()).collect()), 4, 200);
        assert!((0..4).all(|part| part_of.iter().filter(|&&it| it == part).count() == 50), "{part_of:?}");
    }
}
