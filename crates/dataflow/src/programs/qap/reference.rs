//! A sequential search that uses no tasks, hints or shared data.

use alloc::vec::Vec;

use faultline_core::Chunk;

use super::bound::Partial;
use super::{Instance, factorial};
use crate::program::chunk;
use crate::programs::mix;

/// Returns the least cost, the number of assignments with that cost, the sum of their hashes, and the proof that the
/// search was exhaustive: the hash of the end of the interval of all assignments minus the hash of its beginning.
pub(super) fn search(instance: &Instance) -> Chunk {
    let mut best: (u64, Vec<Vec<usize>>) = (u64::MAX, Vec::new());
    let mut open = Vec::from([Partial::new(instance, &[])]);
    while let Some(node) = open.pop() {
        if node.free.is_empty() {
            if node.cost < best.0 {
                best = (node.cost, Vec::new());
            }
            if node.cost == best.0 {
                best.1.push(node.locations);
            }
            continue;
        }
        // The most promising child is visited first.
        let children = node.free.iter().map(|&location| node.with(location));
        let mut children: Vec<(u64, Partial<'_>)> = children.map(|it| (it.bound(), it)).collect();
        children.retain(|(bound, _)| *bound <= best.0);
        children.sort_by(|(one, _), (other, _)| other.cmp(one));
        open.extend(children.into_iter().map(|(_, child)| child));
    }
    let hash = |locations: &Vec<usize>| locations.iter().fold(0, |hash, &it| mix(hash ^ it as u64));
    let hashes = best.1.iter().map(hash).fold(0u64, u64::wrapping_add);
    let all = mix(factorial(instance.n)).wrapping_sub(mix(0));
    chunk(&[best.0, best.1.len() as u64, hashes, all])
}
