//! Directed graphs of transactions: components, and short cycles of a class.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use crate::hash::Map;

/// The first transaction wrote a version, and the second the next one.
pub(super) const WW: u8 = 1;
/// The second transaction read what the first one wrote.
pub(super) const WR: u8 = 2;
/// The first transaction read the version before the one that the second wrote.
pub(super) const RW: u8 = 4;
/// The first transaction precedes the second in its session.
pub(super) const SESSION: u8 = 8;
/// The first transaction ended before the second began.
pub(super) const TIME: u8 = 16;
/// All edges that data shows.
pub(super) const DATA: u8 = WW | WR | RW;

/// The number of cycles that are compared in each part of the graph, once there is one.
const COMPARED: usize = 500;

/// An edge of one kind.
#[derive(Clone, Copy)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) kind: u8,
}

impl Edge {
    pub(super) const fn new(from: u32, to: u32, kind: u8) -> Edge {
        Edge { from, to, kind }
    }
}

/// The [`RW`] edges of a cycle after the first edge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Anti {
    /// None.
    None,
    /// At least one, and no two in a row around the cycle.
    NotAdjacent,
    /// At least one.
    Several,
}

/// A cycle: its nodes, and the kind of the edge from each to the next.
#[derive(Clone, Debug)]
pub(super) struct Cycle {
    pub(super) nodes: Vec<u32>,
    pub(super) kinds: Vec<u8>,
}

/// A graph with nodes from 0.
pub(super) struct Graph {
    first: Vec<u32>,
    to: Vec<u32>,
    kind: Vec<u8>,
}

impl Graph {
    pub(super) fn new(nodes: usize, edges: &[Edge]) -> Graph {
        let mut first = vec![0; nodes + 1];
        for it in edges {
            first[it.from as usize + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let (mut to, mut kind, mut next) = (vec![0; edges.len()], vec![0; edges.len()], first.clone());
        for it in edges {
            let place = &mut next[it.from as usize];
            (to[*place as usize], kind[*place as usize]) = (it.to, it.kind);
            *place += 1;
        }
        Graph { first, to, kind }
    }

    fn from(&self, node: u32) -> impl Iterator<Item = (u32, u8)> + '_ {
        let places = self.first[node as usize] as usize..self.first[node as usize + 1] as usize;
        places.map(|it| (self.to[it], self.kind[it]))
    }

    /// Returns the strongly connected component of each node, and the size of each, using only some kinds of edges.
    /// This is Tarjan's algorithm with a stack of its own.
    pub(super) fn components(&self, kinds: u8) -> (Vec<u32>, Vec<u32>) {
        let nodes = self.first.len() - 1;
        let (mut index, mut low, mut component) = (vec![0; nodes], vec![0; nodes], vec![u32::MAX; nodes]);
        let (mut stack, mut work, mut sizes): (Vec<u32>, Vec<(u32, u32)>, Vec<u32>) = Default::default();
        let mut next = 1;
        for root in 0..nodes as u32 {
            if index[root as usize] != 0 {
                continue;
            }
            let mut entered = Some(root);
            loop {
                if let Some(node) = entered.take() {
                    (index[node as usize], low[node as usize]) = (next, next);
                    next += 1;
                    stack.push(node);
                    work.push((node, self.first[node as usize]));
                }
                let Some((node, place)) = work.last_mut() else { break };
                let node = *node as usize;
                if *place < self.first[node + 1] {
                    let (to, kind) = (self.to[*place as usize], self.kind[*place as usize]);
                    *place += 1;
                    if kind & kinds == 0 {
                    } else if index[to as usize] == 0 {
                        entered = Some(to);
                    } else if component[to as usize] == u32::MAX {
                        low[node] = low[node].min(index[to as usize]);
                    }
                    continue;
                }
                work.pop();
                if let Some((parent, _)) = work.last() {
                    low[*parent as usize] = low[*parent as usize].min(low[node]);
                }
                if low[node] == index[node] {
                    let number = sizes.len() as u32;
                    sizes.push(0);
                    while let Some(member) = stack.pop() {
                        component[member as usize] = number;
                        sizes[number as usize] += 1;
                        if member as usize == node {
                            break;
                        }
                    }
                }
            }
        }
        (component, sizes)
    }

    /// Returns a short cycle of a class for each part of the graph that contains one, except for explained parts. Each
    /// cycle begins with an edge of the kind `start`. Subtracts the edges that the search follows from `budget`, and stops
    /// once it is 0.
    pub(super) fn cycles(
        &self,
        kinds: u8,
        start: u8,
        anti: Anti,
        part: &[u32],
        explained: &Map<u32, ()>,
        budget: &mut u64,
    ) -> Vec<(u32, Cycle)> {
        let (component, sizes) = self.components(kinds | start);
        let mut places: Map<u32, usize> = Map::default();
        let mut found: Vec<(u32, Option<Cycle>, usize)> = Vec::new();
        for node in 0..part.len() as u32 {
            let it = node as usize;
            if sizes[component[it] as usize] < 2 || explained.contains_key(&part[it]) {
                continue;
            }
            let place = *places.entry(part[it]).or_insert_with(|| {
                found.push((part[it], None, 0));
                found.len() - 1
            });
            for (to, kind) in self.from(node) {
                if kind != start || component[to as usize] != component[it] {
                    continue;
                }
                let (_, best, tried) = &mut found[place];
                *tried += 1;
                if best.is_some() && *tried > COMPARED {
                    break;
                }
                let most = best.as_ref().map_or(usize::MAX, |it| it.nodes.len());
                if let Some(cycle) = self.shortest(node, to, kinds, start, anti, &component, budget, most) {
                    *best = Some(cycle);
                }
                if *budget == 0 {
                    break;
                }
            }
        }
        found.into_iter().filter_map(|(part, cycle, _)| Some((part, cycle?))).collect()
    }

    /// Returns the shortest cycle that begins with the edge from `begin` to `second` and has fewer than `most` nodes.
    #[expect(clippy::too_many_arguments, reason = "the state of one search")]
    fn shortest(
        &self,
        begin: u32,
        second: u32,
        kinds: u8,
        start: u8,
        anti: Anti,
        component: &[u32],
        budget: &mut u64,
        most: usize,
    ) -> Option<Cycle> {
        /// The last edge was an [`RW`].
        const LAST: u8 = 1;
        /// Some edge after the first one was an [`RW`].
        const SOME: u8 = 2;
        let state = if anti == Anti::None { 0 } else { LAST };
        // How each node was reached first, in each state.
        let mut parents: Map<(u32, u8), (u32, u8, u8)> = Map::default();
        let mut queue = VecDeque::from([(second, state, 2)]);
        parents.insert((second, state), (begin, u8::MAX, start));
        while let Some((node, state, length)) = queue.pop_front() {
            if length > most {
                return None;
            }
            let is_end = node == begin
                && match anti {
                    Anti::None => true,
                    Anti::NotAdjacent => state == SOME,
                    Anti::Several => state & SOME != 0,
                };
            if is_end {
                let (mut nodes, mut labels, mut at) = (Vec::new(), Vec::new(), (node, state));
                loop {
                    let (parent, before, kind) = parents[&at];
                    nodes.push(parent);
                    labels.push(kind);
                    if before == u8::MAX {
                        break;
                    }
                    at = (parent, before);
                }
                nodes.reverse();
                labels.reverse();
                return Some(Cycle { nodes, kinds: labels });
            }
            for (to, kind) in self.from(node) {
                *budget = budget.saturating_sub(1);
                if *budget == 0 {
                    return None;
                }
                let is_rw = kind == RW;
                if kind & kinds == 0
                    || component[to as usize] != component[node as usize]
                    || anti == Anti::NotAdjacent && is_rw && state & LAST != 0
                {
                    continue;
                }
                let next = match anti {
                    Anti::None => 0,
                    _ => u8::from(is_rw) | if is_rw { SOME } else { state & SOME },
                };
                if let Entry::Vacant(parent) = parents.entry((to, next)) {
                    parent.insert((node, state, kind));
                    queue.push_back((to, next, length + 1));
                }
            }
        }
        None
    }
}
