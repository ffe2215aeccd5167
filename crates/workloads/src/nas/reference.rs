//! The sequential reference: computes each round one rank at a time.

use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{Digest, Membership, ProcessId, Role};

use super::shape::{RoundOrder, Shape};
use super::{Config, initial, learn, order, value_for};
use crate::messaging::{digest_of, pack};

/// Returns the result of each process.
pub fn reference(config: &Config, membership: &Membership) -> Vec<(ProcessId, Digest)> {
    let processes: Vec<ProcessId> = membership.with_role(Role::RANK).collect();
    let ranks = processes.len() as u32;
    let shape = Shape { pattern: config.pattern, ranks, bytes: config.message_bytes };
    let mut hashes: Vec<u64> = (0..ranks).map(initial).collect();
    let mut arrived = vec![0_u64; hashes.len()];
    for round in (0..config.iterations).flat_map(|_| 0..shape.rounds()) {
        let before = hashes.clone();
        let whole: Vec<_> = (0..ranks).map(|it| (it, shape.round(it, round))).collect();
        let is_up = whole[0].1.order != RoundOrder::Down;
        for at in 0..whole.len() {
            let (rank, here) = &whole[if is_up { at } else { whole.len() - 1 - at }];
            for &source in &here.sources {
                // In a wavefront, a rank receives before it sends, so its value reflects the messages of the same
                // round.
                let known = if here.order == RoundOrder::SendsFirst { &before } else { &hashes };
                let value = value_for(known[source as usize], *rank);
                hashes[*rank as usize] = learn(hashes[*rank as usize], source, value);
                arrived[*rank as usize] += 1;
            }
        }
    }
    let result = |&rank: &u32| digest_of(&pack(&hashes[rank as usize]), arrived[rank as usize]);
    processes.into_iter().zip(order(config, ranks).iter().map(result)).collect()
}
