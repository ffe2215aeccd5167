//! How many messages each process claims to have removed from its log.

use faultline_core::Claim;
use faultline_history::{History, Point};

/// The claims of all processes to have removed messages from their logs.
pub(super) struct Collected {
    /// The point of each claim, the number of messages removed according to the claim, and the total number
    /// removed in the state that follows.
    claims: Vec<(Point, u32, u64)>,
}

impl Collected {
    pub(super) fn of(history: &History<'_>) -> Collected {
        let mut all = Collected { claims: Vec::new() };
        for claimed in &history.claims {
            let Claim::Collected { log, .. } = *claimed.claim else { continue };
            let before = match all.claims.last() {
                Some((at, _, sum)) if at.segment == claimed.at.segment => *sum,
                _ => all.at(history, history.segment(claimed.at.segment).parent),
            };
            all.claims.push((claimed.at, log, before + u64::from(log)));
        }
        all
    }

    /// Iterates over the claims: the point of each, the number of messages removed according to the claim,
    /// and the total number removed in the state that follows.
    pub(super) fn claims(&self) -> impl Iterator<Item = (Point, u32, u64)> + '_ {
        self.claims.iter().copied()
    }

    /// Returns how many messages had been removed at `cut`. A restored log again contains the messages that were
    /// removed after it was saved.
    pub(super) fn at(&self, history: &History<'_>, mut cut: Option<Point>) -> u64 {
        while let Some(point) = cut {
            let after = self.claims.partition_point(|(at, ..)| *at < point);
            match after.checked_sub(1).map(|it| self.claims[it]) {
                Some((at, _, sum)) if at.segment == point.segment => return sum,
                _ => cut = history.segment(point.segment).parent,
            }
        }
        0
    }
}
