//! What every cluster's rollbacks undid: the table (cluster, incarnation, restored SN) of the errata's B4.
//!
//! Durable, never rolled back, and only ever extended.

use alloc::sync::Arc;
use alloc::vec::Vec;
use faultline_core::{ClusterId, Incarnation, Position, Sn};
use serde::{Deserialize, Serialize};

/// The rollbacks of one cluster, ascending by incarnation: what each incarnation began from.
pub(super) type Entries = Arc<[(Incarnation, Sn)]>;

/// The rollbacks of all clusters that are known here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Indexed by cluster; clusters without a rollback may be missing at the end.
    clusters: Vec<Entries>,
}

impl History {
    /// The rollbacks of `cluster`.
    pub fn of(&self, cluster: ClusterId) -> &[(Incarnation, Sn)] {
        self.clusters.get(cluster.index()).map_or(&[], |entries| entries)
    }

    /// The same, shared.
    pub fn shared(&self, cluster: ClusterId) -> Entries {
        self.clusters.get(cluster.index()).cloned().unwrap_or_else(|| Arc::from([]))
    }

    /// The newest incarnation of `cluster` that has been announced.
    pub fn known(&self, cluster: ClusterId) -> Incarnation {
        self.of(cluster).last().map_or(Incarnation(0), |&(incarnation, _)| incarnation)
    }

    /// Whether a rollback undid what happened at `position` of `cluster`, after its checkpoint was taken: a send, or a
    /// delivery.
    pub fn undid_after(&self, cluster: ClusterId, position: Position) -> bool {
        self.later(cluster, position.incarnation).any(|restored| restored <= position.sn)
    }

    /// Whether a rollback undid the checkpoint `position` of `cluster` itself.
    pub fn undid_checkpoint(&self, cluster: ClusterId, position: Position) -> bool {
        self.later(cluster, position.incarnation).any(|restored| restored < position.sn)
    }

    /// Adds the entries that are not known yet; says whether there were any.
    pub fn extend(&mut self, cluster: ClusterId, entries: &[(Incarnation, Sn)]) -> bool {
        let mine = self.of(cluster);
        let fresh = |entry: &&(Incarnation, Sn)| mine.iter().all(|known| known.0 != entry.0);
        if !entries.iter().any(|entry| fresh(&entry)) {
            return false;
        }
        let mut all: Vec<_> = mine.iter().chain(entries.iter().filter(fresh)).copied().collect();
        all.sort_unstable();
        if self.clusters.len() <= cluster.index() {
            self.clusters.resize_with(cluster.index() + 1, || Arc::from([]));
        }
        self.clusters[cluster.index()] = all.into();
        true
    }

    /// Adds everything that `other` knows; returns the clusters about which something was new.
    pub fn merge(&mut self, other: &History) -> Vec<ClusterId> {
        (0..other.clusters.len())
            .map(|index| ClusterId(index as u16))
            .filter(|&cluster| self.extend(cluster, other.of(cluster)))
            .collect()
    }

    fn later(&self, cluster: ClusterId, than: Incarnation) -> impl Iterator<Item = Sn> + '_ {
        self.of(cluster).iter().rev().take_while(move |entry| entry.0 > than).map(|&(_, restored)| restored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: ClusterId = ClusterId(2);

    fn rolled_back_to_3_then_2() -> History {
        let mut history = History::default();
        assert!(history.extend(F, &[(Incarnation(1), Sn(3)), (Incarnation(2), Sn(2))]));
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
}
