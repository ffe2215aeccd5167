//! Sorting: every rank has a block of numbers. At the end, the first rank has the smallest numbers.

use std::sync::Arc;

use faultline_core::{Progress, Span};
use faultline_workloads::messaging::{Message, Operation, Program, RankInfo, Step, pack};
use serde::{Deserialize, Serialize};

/// One rank. Its fields are constant; `Numbers` is its state.
#[derive(Clone, Debug)]
pub(crate) struct Sort {
    rank: RankInfo,
    each: usize,
}

/// The part of a rank that a checkpoint contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Numbers {
    step: u32,
    sorted: Vec<u64>,
    /// The largest number of all ranks. Only the first rank learns it.
    greatest: f64,
}

impl Program for Sort {
    type Config = usize; // numbers per rank
    type State = Numbers;

    fn new(each: &Arc<usize>, rank: RankInfo) -> Sort {
        Sort { rank, each: **each }
    }

    fn begin(&self) -> Numbers {
        let first = self.rank.me as usize * self.each;
        let mut sorted: Vec<u64> = (first..first + self.each).map(|it| it as u64 * 7919 % 10_007).collect();
        sorted.sort();
        Numbers { step: 0, sorted, greatest: 0.0 }
    }

    // There are as many rounds as ranks. In each, a rank computes, and then exchanges blocks with a neighbour.
    fn next(&self, state: &mut Numbers) -> Step {
        let RankInfo { me, ranks } = self.rank;
        let (round, part) = (state.step / 3, state.step % 3);
        state.step += 1;
        // Even and odd pairs alternate. In every second round, a rank at either end has no partner.
        let partner = if (me + round).is_multiple_of(2) { Some(me + 1) } else { me.checked_sub(1) };
        match (part, partner.filter(|&it| it < ranks)) {
            (0, _) if round == ranks => {
                let part = vec![*state.sorted.last().expect("a block has numbers") as f64];
                Step::Reduce { root: 0, part, operation: Operation::Greatest }
            }
            _ if round == ranks => Step::Finish,
            (0, _) => Step::Compute(Span::from_millis(50)),
            (1, Some(partner)) => Step::send(partner, &state.sorted),
            (_, Some(partner)) => Step::Receive { from: partner },
            (_, None) => self.next(state),
        }
    }

    fn received(&self, state: &mut Numbers, messages: Vec<Message>) {
        let message = &messages[0];
        if message.from == self.rank.me {
            state.greatest = message.unpack::<Vec<f64>>()[0]; // the reduction has reached its root
            return;
        }
        let mut both: Vec<u64> = message.unpack();
        both.extend(&state.sorted);
        both.sort();
        let upper = both.split_off(self.each);
        state.sorted = if self.rank.me < message.from { both } else { upper };
    }

    fn result(&self, state: &Numbers) -> Vec<u8> {
        pack(&(&state.sorted, state.greatest))
    }

    fn progress(&self, state: &Numbers) -> Progress {
        Progress { done: state.step.into(), total: (3 * self.rank.ranks + 2).into() }
    }
}
