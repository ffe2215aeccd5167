//! Collectives as stages of sends and of receives from named sources: a binomial tree for broadcasts and reductions,
//! rounds with doubling distances for barriers, and direct messages for all-to-all.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::take;

use serde::{Deserialize, Serialize};

use super::{Message, RankInfo, pack};

/// An operation that combines the numbers of two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Their sum.
    Sum,
    /// The smaller number.
    Least,
    /// The greater number.
    Greatest,
}

/// A collective in progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Collective {
    Barrier { distance: u32 },
    Broadcast { root: u32, content: Option<Vec<u8>>, has_begun: bool },
    Reduce { root: u32, part: Vec<f64>, operation: Operation, has_begun: bool },
    AllToAll { contents: Vec<Vec<u8>>, has_begun: bool },
}

/// Actions of a rank in one stage: it sends, then waits or finishes.
pub(super) struct Stage {
    pub(super) sends: Vec<(u32, Vec<u8>)>,
    pub(super) then: Then,
}

/// Continuation after the sends of a stage.
pub(super) enum Then {
    /// Waits for the next message from each of these ranks.
    Await(Vec<u32>),
    /// Completes the collective with this result.
    Over(Option<Vec<Message>>),
}

impl Stage {
    fn wait(from: Vec<u32>) -> Stage {
        Stage { sends: Vec::new(), then: Then::Await(from) }
    }
}

impl Collective {
    /// Returns the next stage. `received` contains the messages for which the previous stage waited.
    ///
    /// # Errors
    ///
    /// Fails if another rank contributes a message that does not belong to this collective.
    pub(super) fn stage(&mut self, place: RankInfo, received: Vec<Message>) -> Result<Stage, String> {
        let RankInfo { me, ranks } = place;
        Ok(match self {
            Collective::Barrier { distance } if *distance < ranks => {
                let (to, from) = (me + *distance, me + ranks - *distance);
                *distance *= 2;
                let sends = vec![(to % ranks, Vec::new())];
                Stage { sends, then: Then::Await(vec![from % ranks]) }
            }
            Collective::Barrier { .. } => Stage { sends: Vec::new(), then: Then::Over(None) },
            Collective::Broadcast { root, content, has_begun } => {
                let tree = Tree::new(place, *root);
                if let (Some(parent), false) = (tree.parent, *has_begun) {
                    *has_begun = true;
                    return Ok(Stage::wait(vec![parent]));
                }
                let content =
                    received.into_iter().next().map_or_else(|| take(content), |it| Some(it.bytes().into()));
                let content = content.expect("the root has the content, and other ranks have received it");
                let sends = tree.children.iter().map(|&child| (child, content.clone())).collect();
                Stage { sends, then: Then::Over(Some(vec![Message::new(*root, content)])) }
            }
            Collective::Reduce { root, part, operation, has_begun } => {
                let tree = Tree::new(place, *root);
                if !*has_begun {
                    *has_begun = true;
                    return Ok(Stage::wait(tree.children));
                }
                for it in &received {
                    let mismatch = "takes part in a reduction, but rank";
                    let other: Option<Vec<f64>> = it.try_unpack();
                    let other = other.ok_or_else(|| {
                        format!("{mismatch} {} sent it another message at this step", it.from)
                    })?;
                    if other.len() != part.len() {
                        let (own, others) = (part.len(), other.len());
                        return Err(format!(
                            "{mismatch} {} contributes {others} numbers instead of {own}",
                            it.from
                        ));
                    }
                    operation.apply(part, &other);
                }
                let content = pack(part);
                match tree.parent {
                    Some(parent) => Stage { sends: vec![(parent, content)], then: Then::Over(None) },
                    None => {
                        let brought = vec![Message::new(me, content)];
                        Stage { sends: Vec::new(), then: Then::Over(Some(brought)) }
                    }
                }
            }
            Collective::AllToAll { contents, has_begun } => {
                if !*has_begun {
                    *has_begun = true;
                    assert_eq!(contents.len(), ranks as usize, "an all-to-all needs content for every rank");
                    // Each rank starts with a different peer, so that the messages to one rank do not all arrive at
                    // once.
                    let others = (1..ranks).map(|it| (me + it) % ranks);
                    let sends = others.map(|to| (to, take(&mut contents[to as usize]))).collect();
                    let from = (0..ranks).filter(|&it| it != me).collect();
                    return Ok(Stage { sends, then: Then::Await(from) });
                }
                let mut brought = received;
                brought.insert(me as usize, Message::new(me, take(&mut contents[me as usize])));
                Stage { sends: Vec::new(), then: Then::Over(Some(brought)) }
            }
        })
    }
}

impl Operation {
    /// Combines `other` with `part`, and stores the result in `part`. Both have the same length.
    fn apply(self, part: &mut [f64], other: &[f64]) {
        for (one, &other) in part.iter_mut().zip(other) {
            *one = match self {
                Operation::Sum => *one + other,
                Operation::Least => one.min(other),
                Operation::Greatest => one.max(other),
            };
        }
    }
}

/// A rank's position in the binomial tree with a given root. The parent of the rank at distance d from the root is the
/// rank whose distance is d with the lowest set bit cleared.
struct Tree {
    parent: Option<u32>,
    children: Vec<u32>,
}

impl Tree {
    fn new(RankInfo { me, ranks }: RankInfo, root: u32) -> Tree {
        assert!(root < ranks, "there is no rank {root}");
        let distance = (me + ranks - root) % ranks;
        let at = |distance: u32| (root + distance) % ranks;
        let lowest =
            if distance == 0 { ranks.next_power_of_two() } else { distance & distance.wrapping_neg() };
        let powers = (0..lowest.trailing_zeros()).map(|it| 1 << it);
        Tree {
            parent: (distance > 0).then(|| at(distance - lowest)),
            children: powers.map(|it: u32| distance + it).filter(|it| *it < ranks).map(at).collect(),
        }
    }
}
