//! The rollbacks of each cluster: a table of cluster, incarnation and restored SN. The table shows which positions a
//! rollback undid. It also contains what each cluster has collected, so that no rollback can reach past it.
//!
//! The table is durable, never rolled back, and only ever extended.

use alloc::sync::Arc;
use alloc::vec::Vec;
use faultline_core::{GroupId, Incarnation, Position, Sn};
use serde::{Deserialize, Serialize, Serializer};

use crate::machines::Checkpoint;

/// Everything known about the rollbacks and collections of one cluster. Always sent as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterHistory {
    /// Rollbacks, ascending by incarnation: the SN from which each incarnation resumed.
    pub rollbacks: Vec<(Incarnation, Sn)>,
    /// No recovery needs a checkpoint older than this one (section 3.5), and none may use one: older checkpoints and
    /// their log entries may have been removed.
    pub collected: Checkpoint,
}

impl ClusterHistory {
    /// Returns the newest announced incarnation.
    pub fn known(&self) -> Incarnation {
        known(&self.rollbacks)
    }

    /// Returns whether some rollback restored a checkpoint older than the collected one.
    pub fn is_broken(&self) -> bool {
        undid_checkpoint(&self.rollbacks, self.collected.position)
    }
}

/// The histories of all clusters, as far as this process knows them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Vec<ClusterHistory>")]
pub struct History {
    /// Indexed by cluster. Trailing clusters without rollbacks may be missing, as in all tables below.
    rollbacks: Vec<Vec<(Incarnation, Sn)>>,
    /// Indexed by cluster. All processes share one table after a collection.
    collected: Arc<Vec<Checkpoint>>,
}

impl History {
    /// Creates histories in which only that of `cluster` is known.
    pub fn about(cluster: GroupId, past: &Arc<ClusterHistory>) -> History {
        let mut history = History::default();
        history.extend(cluster, past);
        history
    }

    /// Returns the history of `cluster`.
    pub fn of(&self, cluster: GroupId) -> Arc<ClusterHistory> {
        Arc::new(ClusterHistory {
            rollbacks: self.rollbacks(cluster).into(),
            collected: self.collected(cluster),
        })
    }

    /// Returns the rollbacks of `cluster`, ascending by incarnation.
    pub fn rollbacks(&self, cluster: GroupId) -> &[(Incarnation, Sn)] {
        self.rollbacks.get(cluster.place()).map_or(&[], Vec::as_slice)
    }

    /// Returns the newest announced incarnation of `cluster`.
    pub fn known(&self, cluster: GroupId) -> Incarnation {
        known(self.rollbacks(cluster))
    }

    /// Returns the checkpoint of `cluster` before which everything was collected.
    pub fn collected(&self, cluster: GroupId) -> Checkpoint {
        self.collected.get(cluster.place()).copied().unwrap_or_default()
    }

    /// Returns whether a rollback undid an event (a send or a delivery) at `position` of `cluster`, after the
    /// checkpoint of that position was taken.
    pub fn undid_after(&self, cluster: GroupId, position: Position) -> bool {
        later(self.rollbacks(cluster), position.incarnation).any(|restored| restored <= position.sn)
    }

    /// Returns whether a rollback undid the checkpoint `position` of `cluster` itself.
    pub fn undid_checkpoint(&self, cluster: GroupId, position: Position) -> bool {
        undid_checkpoint(self.rollbacks(cluster), position)
    }

    /// Records a rollback of `cluster`.
    pub fn rolled_back(&mut self, cluster: GroupId, incarnation: Incarnation, to: Sn) {
        self.add_rollbacks(cluster, &[(incarnation, to)]);
    }

    /// Records that everything older than `checkpoint` of `cluster` was collected.
    pub fn collect(&mut self, cluster: GroupId, checkpoint: Checkpoint) {
        if checkpoint > self.collected(cluster) {
            *at(Arc::make_mut(&mut self.collected), cluster) = checkpoint;
        }
    }

    /// Records, for every cluster, that everything older than its entry in `checkpoints` was collected. Returns
    /// whether anything was new.
    pub fn collect_all(&mut self, checkpoints: &Arc<Vec<Checkpoint>>) -> bool {
        let clusters = || (0..checkpoints.len() as u16).map(GroupId);
        let compared = |cluster: GroupId| checkpoints[cluster.place()].cmp(&self.collected(cluster));
        if !clusters().any(|it| compared(it).is_gt()) {
            return false;
        }
        if checkpoints.len() >= self.collected.len() && clusters().all(|it| compared(it).is_ge()) {
            self.collected = checkpoints.clone();
        } else {
            clusters().for_each(|it| self.collect(it, checkpoints[it.place()]));
        }
        true
    }

    /// Adds all new entries. Returns whether they include a rollback.
    pub fn extend(&mut self, cluster: GroupId, past: &ClusterHistory) -> bool {
        self.collect(cluster, past.collected);
        self.add_rollbacks(cluster, &past.rollbacks)
    }

    /// Adds rollbacks. Returns whether any of them was new.
    fn add_rollbacks(&mut self, cluster: GroupId, others: &[(Incarnation, Sn)]) -> bool {
        let mine = self.rollbacks(cluster);
        let is_fresh = |entry: &&(Incarnation, Sn)| mine.iter().all(|known| known.0 != entry.0);
        let fresh: Vec<_> = others.iter().filter(is_fresh).copied().collect();
        if fresh.is_empty() {
            return false;
        }
        let rollbacks = at(&mut self.rollbacks, cluster);
        rollbacks.extend(fresh);
        rollbacks.sort_unstable();
        true
    }

    /// Adds everything that `other` knows. Returns the clusters with a new rollback.
    pub fn merge(&mut self, other: &History) -> Vec<GroupId> {
        self.collect_all(&other.collected);
        let news = |&it: &GroupId| self.add_rollbacks(it, other.rollbacks(it));
        other.clusters().filter(news).collect()
    }

    /// Iterates over all clusters about which something may be known.
    fn clusters(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.rollbacks.len().max(self.collected.len()) as u16).map(GroupId)
    }

    /// Returns `other` without the entries that cannot be true: rollbacks past checkpoints that are known to have been
    /// collected. A cluster that rolled back that far did not know about the collection, and must be told.
    pub fn believable(&self, mut other: History) -> History {
        for (index, rollbacks) in other.rollbacks.iter_mut().enumerate() {
            let collected = self.collected(GroupId(index as u16)).position;
            let breaks = |&(incarnation, to): &(Incarnation, Sn)| {
                incarnation > collected.incarnation && to < collected.sn
            };
            rollbacks.retain(|entry| !breaks(entry));
        }
        other
    }
}

impl PartialEq for History {
    /// Compares what is known, ignoring missing trailing clusters.
    fn eq(&self, other: &History) -> bool {
        let is_equal =
            |it| self.rollbacks(it) == other.rollbacks(it) && self.collected(it) == other.collected(it);
        self.clusters().chain(other.clusters()).all(is_equal)
    }
}

impl Eq for History {}

impl Serialize for History {
    /// Serializes a sequence of [`ClusterHistory`], without trailing clusters about which nothing is known.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_known =
            |it: &GroupId| !self.rollbacks(*it).is_empty() || self.collected(*it) != Checkpoint::default();
        let last = self.clusters().filter(is_known).last();
        let known = (0..last.map_or(0, |it| it.0 + 1)).map(GroupId);
        serializer.collect_seq(
            known.map(|it| Known { rollbacks: self.rollbacks(it), collected: self.collected(it) }),
        )
    }
}

/// Serialized form of [`ClusterHistory`], by reference.
#[derive(Serialize)]
struct Known<'a> {
    rollbacks: &'a [(Incarnation, Sn)],
    collected: Checkpoint,
}

impl From<Vec<ClusterHistory>> for History {
    fn from(pasts: Vec<ClusterHistory>) -> History {
        let (rollbacks, collected): (Vec<_>, Vec<_>) =
            pasts.into_iter().map(|it| (it.rollbacks, it.collected)).unzip();
        History { rollbacks, collected: Arc::new(collected) }
    }
}

/// Returns the entry of a cluster, creating it if necessary.
fn at<T: Default>(all: &mut Vec<T>, cluster: GroupId) -> &mut T {
    if all.len() <= cluster.place() {
        all.resize_with(cluster.place() + 1, T::default);
    }
    &mut all[cluster.place()]
}

fn known(rollbacks: &[(Incarnation, Sn)]) -> Incarnation {
    rollbacks.last().map_or(Incarnation(0), |&(incarnation, _)| incarnation)
}

fn later(rollbacks: &[(Incarnation, Sn)], than: Incarnation) -> impl Iterator<Item = Sn> + '_ {
    rollbacks.iter().rev().take_while(move |entry| entry.0 > than).map(|&(_, restored)| restored)
}

fn undid_checkpoint(rollbacks: &[(Incarnation, Sn)], position: Position) -> bool {
    later(rollbacks, position.incarnation).any(|restored| restored < position.sn)
}

#[cfg(test)]
mod tests {
    use faultline_core::Attempt;

    use super::*;

    const F: GroupId = GroupId(2);

    fn rolled_back_to_3_then_2() -> History {
        let mut history = History::default();
        history.rolled_back(F, Incarnation(1), Sn(3));
        history.rolled_back(F, Incarnation(2), Sn(2));
        history
    }

    #[test]
    fn events_after_the_restored_checkpoint_are_undone() {
        let history = rolled_back_to_3_then_2();
        assert!(!history.undid_after(F, Position::new(0, 1)), "before both restored checkpoints");
        assert!(
            history.undid_after(F, Position::new(0, 2)),
            "after checkpoint 2, undone by the second rollback"
        );
        assert!(history.undid_after(F, Position::new(1, 3)));
        assert!(!history.undid_after(F, Position::new(2, 2)), "the current incarnation");
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
        assert_eq!(mine.known(GroupId(9)), Incarnation(0));
    }

    #[test]
    fn a_history_survives_its_encoding() {
        let mut history = rolled_back_to_3_then_2();
        history.collect(GroupId(0), Checkpoint { position: Position::new(0, 1), attempt: Attempt(1) });
        for known in [History::default(), history] {
            let bytes = postcard::to_allocvec(&known).unwrap();
            assert_eq!(postcard::from_bytes::<History>(&bytes).unwrap(), known);
        }
        let pasts = postcard::to_allocvec(&[ClusterHistory::default()]).unwrap();
        assert_eq!(postcard::from_bytes::<History>(&pasts).unwrap(), History::default());
    }

    #[test]
    fn a_rollback_past_a_collection_is_rejected() {
        let mut mine = History::default();
        mine.collect(F, Checkpoint { position: Position::new(1, 3), attempt: Attempt(1) });
        let believed = mine.believable(rolled_back_to_3_then_2());
        assert_eq!(believed.rollbacks(F), [(Incarnation(1), Sn(3))]);
        assert!(!mine.of(F).is_broken());
        mine.merge(&rolled_back_to_3_then_2());
        assert!(mine.of(F).is_broken(), "the two facts together show that something is wrong");
    }

    #[test]
    fn the_newest_collected_checkpoint_counts() {
        let mut mine = rolled_back_to_3_then_2();
        let newer = Checkpoint { position: Position::new(2, 4), attempt: Attempt(1) };
        mine.collect(F, newer);
        mine.collect(F, Checkpoint { position: Position::new(0, 2), attempt: Attempt(3) });
        assert_eq!(mine.collected(F), newer);
        assert!(!mine.of(F).is_broken(), "the rollbacks are older");
    }
}
