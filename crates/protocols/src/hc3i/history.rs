//! What every cluster's rollbacks undid: the table (cluster, incarnation, restored SN) of the errata's B4; and what every
//! cluster has collected, so that no rollback can go behind it.
//!
//! Durable, never rolled back, and only ever extended.

use alloc::sync::Arc;
use alloc::vec::Vec;
use faultline_core::{Attempt, ClusterId, Incarnation, Position, Sn};
use serde::{Deserialize, Serialize};

/// A checkpoint of a cluster; SN 0, which is the default, is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Which.
    pub position: Position,
    /// Which try.
    pub attempt: Attempt,
}

/// What is known of one cluster. It travels whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Its rollbacks, ascending by incarnation: what each incarnation began from.
    pub rollbacks: Vec<(Incarnation, Sn)>,
    /// No recovery needs what is older than this checkpoint (section 3.5), and none may use it: it may have been
    /// removed, and so may have been the log entries that belong to it.
    pub collected: Checkpoint,
}

impl Past {
    /// The newest incarnation that has been announced.
    pub fn known(&self) -> Incarnation {
        self.rollbacks.last().map_or(Incarnation(0), |&(incarnation, _)| incarnation)
    }

    /// Whether some rollback went behind what had been collected.
    pub fn is_broken(&self) -> bool {
        self.undid_checkpoint(self.collected.position)
    }

    fn undid_checkpoint(&self, position: Position) -> bool {
        self.later(position.incarnation).any(|restored| restored < position.sn)
    }

    fn later(&self, than: Incarnation) -> impl Iterator<Item = Sn> + '_ {
        self.rollbacks.iter().rev().take_while(move |entry| entry.0 > than).map(|&(_, restored)| restored)
    }

    fn with(&self, other: &Past) -> Past {
        let fresh = |entry: &&(Incarnation, Sn)| self.rollbacks.iter().all(|known| known.0 != entry.0);
        let mut rollbacks = self.rollbacks.clone();
        rollbacks.extend(other.rollbacks.iter().filter(fresh));
        rollbacks.sort_unstable();
        Past { rollbacks, collected: self.collected.max(other.collected) }
    }
}

/// The pasts of all clusters, as they are known here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Indexed by cluster; clusters of which nothing is known may be missing at the end.
    clusters: Vec<Arc<Past>>,
}

impl History {
    /// What is known of `cluster` alone.
    pub fn about(cluster: ClusterId, past: &Arc<Past>) -> History {
        let mut history = History::default();
        history.extend(cluster, past);
        history
    }

    /// The past of `cluster`.
    pub fn of(&self, cluster: ClusterId) -> Arc<Past> {
        self.clusters.get(cluster.index()).cloned().unwrap_or_default()
    }

    /// The rollbacks of `cluster`, ascending by incarnation.
    pub fn rollbacks(&self, cluster: ClusterId) -> &[(Incarnation, Sn)] {
        self.clusters.get(cluster.index()).map_or(&[], |past| &past.rollbacks)
    }

    /// The newest incarnation of `cluster` that has been announced.
    pub fn known(&self, cluster: ClusterId) -> Incarnation {
        self.clusters.get(cluster.index()).map_or(Incarnation(0), |past| past.known())
    }

    /// The checkpoint of `cluster` before which everything was collected.
    pub fn collected(&self, cluster: ClusterId) -> Checkpoint {
        self.clusters.get(cluster.index()).map_or(Checkpoint::default(), |past| past.collected)
    }

    /// Whether a rollback undid what happened at `position` of `cluster`, after its checkpoint was taken: a send, or a
    /// delivery.
    pub fn undid_after(&self, cluster: ClusterId, position: Position) -> bool {
        let past = self.clusters.get(cluster.index());
        past.is_some_and(|past| past.later(position.incarnation).any(|restored| restored <= position.sn))
    }

    /// Whether a rollback undid the checkpoint `position` of `cluster` itself.
    pub fn undid_checkpoint(&self, cluster: ClusterId, position: Position) -> bool {
        self.clusters.get(cluster.index()).is_some_and(|past| past.undid_checkpoint(position))
    }

    /// Enters a rollback of `cluster`.
    pub fn rolled_back(&mut self, cluster: ClusterId, incarnation: Incarnation, to: Sn) {
        self.extend(cluster, &Past { rollbacks: alloc::vec![(incarnation, to)], ..Past::default() });
    }

    /// Notes that what is older than `checkpoint` of `cluster` was collected.
    pub fn collect(&mut self, cluster: ClusterId, checkpoint: Checkpoint) {
        if checkpoint > self.collected(cluster) {
            Arc::make_mut(self.entry(cluster)).collected = checkpoint;
        }
    }

    fn entry(&mut self, cluster: ClusterId) -> &mut Arc<Past> {
        if self.clusters.len() <= cluster.index() {
            self.clusters.resize_with(cluster.index() + 1, Arc::default);
        }
        &mut self.clusters[cluster.index()]
    }

    /// Adds what is not known yet; says whether there was a rollback among it.
    pub fn extend(&mut self, cluster: ClusterId, past: &Past) -> bool {
        let mine = self.of(cluster);
        let all = mine.with(past);
        if all == *mine {
            return false;
        }
        let is_news = all.rollbacks.len() > mine.rollbacks.len();
        *self.entry(cluster) = Arc::new(all);
        is_news
    }

    /// Adds everything that `other` knows; returns the clusters of which a rollback was new.
    pub fn merge(&mut self, other: &History) -> Vec<ClusterId> {
        (0..other.clusters.len())
            .map(|index| ClusterId(index as u16))
            .filter(|&cluster| self.extend(cluster, &other.clusters[cluster.index()]))
            .collect()
    }

    /// What of `other` can be true: without rollbacks that would go behind what is known to have been collected. A
    /// cluster that did so did not know, and has to be told.
    pub fn believable(&self, mut other: History) -> History {
        for (index, past) in other.clusters.iter_mut().enumerate() {
            let collected = self.collected(ClusterId(index as u16)).position;
            let breaks = |&(incarnation, to): &(Incarnation, Sn)| {
                incarnation > collected.incarnation && to < collected.sn
            };
            if past.rollbacks.iter().any(breaks) {
                Arc::make_mut(past).rollbacks.retain(|entry| !breaks(entry));
            }
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: ClusterId = ClusterId(2);

    fn rolled_back_to_3_then_2() -> History {
        let mut history = History::default();
        history.rolled_back(F, Incarnation(1), Sn(3));
        history.rolled_back(F, Incarnation(2), Sn(2));
        history
    }

    #[test]
    fn what_happened_after_the_restored_checkpoint_is_undone() {
        let history = rolled_back_to_3_then_2();
        assert!(!history.undid_after(F, Position::new(0, 1)), "before both restored checkpoints");
        assert!(
            history.undid_after(F, Position::new(0, 2)),
            "after checkpoint 2, undone by the second rollback"
        );
        assert!(history.undid_after(F, Position::new(1, 3)));
        assert!(!history.undid_after(F, Position::new(2, 2)), "the present incarnation");
    }

    #[test]
    fn the_restored_checkpoint_itself_is_not_undone() {
        let history = rolled_back_to_3_then_2();
        assert!(!history.undid_checkpoint(F, Position::new(0, 2)));
        assert!(
            history.undid_checkpoint(F, Position::new(0, 3)),
            "taken before, undone by the second rollback"
        );
        assert!(!history.undid_checkpoint(F, Position::new(2, 9)));
    }

    #[test]
    fn merging_is_idempotent_and_reports_what_was_new() {
        let mut mine = History::default();
        let other = rolled_back_to_3_then_2();
        assert_eq!(mine.merge(&other), [F]);
        assert_eq!(mine.merge(&other), []);
        assert_eq!(mine, other);
        assert_eq!(mine.known(F), Incarnation(2));
        assert_eq!(mine.known(ClusterId(9)), Incarnation(0));
    }

    #[test]
    fn a_rollback_behind_what_was_collected_is_not_believed() {
        let mut mine = History::default();
        mine.collect(F, Checkpoint { position: Position::new(1, 3), attempt: Attempt(1) });
        let believed = mine.believable(rolled_back_to_3_then_2());
        assert_eq!(believed.rollbacks(F), [(Incarnation(1), Sn(3))]);
        assert!(!mine.of(F).is_broken());
        mine.merge(&rolled_back_to_3_then_2());
        assert!(mine.of(F).is_broken(), "who knows both knows that something is wrong");
    }

    #[test]
    fn the_newest_checkpoint_that_was_collected_before_counts() {
        let mut mine = rolled_back_to_3_then_2();
        let newer = Checkpoint { position: Position::new(2, 4), attempt: Attempt(1) };
        mine.collect(F, newer);
        mine.collect(F, Checkpoint { position: Position::new(0, 2), attempt: Attempt(3) });
        assert_eq!(mine.collected(F), newer);
        assert!(!mine.of(F).is_broken(), "the rollbacks are older");
    }
}
