//! The rollbacks of each group: a table of group, incarnation and restored SN. The table shows which positions a
//! rollback undid. It also records the checkpoint before which each group has collected everything, so that no rollback
//! reaches further back.
//!
//! The table is durable, never rolled back, and only ever extended. [`raise`] updates the positions on which a state
//! depends, and [`recovery_line`] computes the states that remain if all groups roll back at once.

use alloc::sync::Arc;
use alloc::vec::Vec;
use faultline_core::{GroupId, Incarnation, Position, Sn};
use serde::{Deserialize, Serialize, Serializer};

use super::Checkpoint;

/// Everything known about the rollbacks and collections of one group. Always sent as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupHistory {
    /// Rollbacks, ascending by incarnation: the SN from which each incarnation resumed.
    pub rollbacks: Vec<(Incarnation, Sn)>,
    /// The oldest checkpoint that a recovery may need or use (section 3.5). Older checkpoints and their log
    /// entries may have been removed.
    pub collected: Checkpoint,
}

impl GroupHistory {
    /// Returns the newest announced incarnation.
    pub fn known(&self) -> Incarnation {
        known(&self.rollbacks)
    }

    /// Returns whether a rollback undid the checkpoint at `position`.
    pub fn undid_checkpoint(&self, position: Position) -> bool {
        undid_checkpoint(&self.rollbacks, position)
    }
}

/// What this process knows about the histories of all groups.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Vec<GroupHistory>")]
pub struct History {
    /// Indexed by group. Trailing groups without rollbacks may be missing, as in all tables below.
    rollbacks: Vec<Vec<(Incarnation, Sn)>>,
    /// Indexed by group. All processes share one table after a collection.
    collected: Arc<Vec<Checkpoint>>,
}

impl History {
    /// Creates histories in which only that of `group` is known.
    pub fn about(group: GroupId, past: &Arc<GroupHistory>) -> History {
        let mut history = History::default();
        history.extend(group, past);
        history
    }

    /// Returns the history of `group`.
    pub fn of(&self, group: GroupId) -> Arc<GroupHistory> {
        Arc::new(GroupHistory { rollbacks: self.rollbacks(group).into(), collected: self.collected(group) })
    }

    /// Returns a copy without the rollbacks of `group` into incarnations newer than `newest`.
    pub fn up_to(&self, group: GroupId, newest: Incarnation) -> History {
        let mut history = self.clone();
        if let Some(rollbacks) = history.rollbacks.get_mut(group.place()) {
            rollbacks.retain(|&(incarnation, _)| incarnation <= newest);
        }
        history
    }

    /// Returns the rollbacks of `group`, ascending by incarnation.
    pub fn rollbacks(&self, group: GroupId) -> &[(Incarnation, Sn)] {
        self.rollbacks.get(group.place()).map_or(&[], Vec::as_slice)
    }

    /// Returns the newest announced incarnation of `group`.
    pub fn known(&self, group: GroupId) -> Incarnation {
        known(self.rollbacks(group))
    }

    /// Returns the checkpoint of `group` before which everything was collected.
    pub fn collected(&self, group: GroupId) -> Checkpoint {
        self.collected.get(group.place()).copied().unwrap_or_default()
    }

    /// Returns whether a rollback undid an event (a send or a delivery) of `group` that followed the checkpoint at
    /// `position`.
    pub fn undid_after(&self, group: GroupId, position: Position) -> bool {
        later(self.rollbacks(group), position.incarnation).any(|restored| restored <= position.sn)
    }

    /// Returns whether a rollback undid the checkpoint of `group` at `position`.
    pub fn undid_checkpoint(&self, group: GroupId, position: Position) -> bool {
        undid_checkpoint(self.rollbacks(group), position)
    }

    /// Returns whether the others may have removed what a recovery from the checkpoint of `group` at `position` needs:
    /// the checkpoint was collected, or followed one that had been collected when it was restored.
    pub fn is_collected(&self, group: GroupId, position: Position) -> bool {
        position.sn < self.collected(group).position.sn || self.is_broken(group)
    }

    /// Returns whether a rollback of `group` undid its checkpoint `collected`, by restoring an older one.
    pub fn is_broken(&self, group: GroupId) -> bool {
        self.undid_checkpoint(group, self.collected(group).position)
    }

    /// Records a rollback of `group`.
    pub fn rolled_back(&mut self, group: GroupId, incarnation: Incarnation, to: Sn) {
        self.add_rollbacks(group, &[(incarnation, to)]);
    }

    /// Records that everything older than `checkpoint` of `group` was collected.
    pub fn collect(&mut self, group: GroupId, checkpoint: Checkpoint) {
        if checkpoint > self.collected(group) {
            *at(Arc::make_mut(&mut self.collected), group) = checkpoint;
        }
    }

    /// Records, for every group, that everything older than its entry in `checkpoints` was collected. Returns
    /// whether anything was new.
    pub fn collect_all(&mut self, checkpoints: &Arc<Vec<Checkpoint>>) -> bool {
        // The processes of a simulation share what they know.
        if Arc::ptr_eq(checkpoints, &self.collected) {
            return false;
        }
        let groups = || (0..checkpoints.len() as u16).map(GroupId);
        let compared = |group: GroupId| checkpoints[group.place()].cmp(&self.collected(group));
        if !groups().any(|it| compared(it).is_gt()) {
            return false;
        }
        if checkpoints.len() >= self.collected.len() && groups().all(|it| compared(it).is_ge()) {
            self.collected = checkpoints.clone();
        } else {
            groups().for_each(|it| self.collect(it, checkpoints[it.place()]));
        }
        true
    }

    /// Adds all new entries. Returns whether they include a rollback.
    pub fn extend(&mut self, group: GroupId, past: &GroupHistory) -> bool {
        self.collect(group, past.collected);
        self.add_rollbacks(group, &past.rollbacks)
    }

    /// Adds rollbacks. Returns whether any of them was new.
    fn add_rollbacks(&mut self, group: GroupId, others: &[(Incarnation, Sn)]) -> bool {
        let mine = self.rollbacks(group);
        let is_fresh = |entry: &&(Incarnation, Sn)| mine.iter().all(|known| known.0 != entry.0);
        let fresh: Vec<_> = others.iter().filter(is_fresh).copied().collect();
        if fresh.is_empty() {
            return false;
        }
        let rollbacks = at(&mut self.rollbacks, group);
        rollbacks.extend(fresh);
        rollbacks.sort_unstable();
        true
    }

    /// Adds everything that `other` knows. Returns the groups with a new rollback.
    pub fn merge(&mut self, other: &History) -> Vec<GroupId> {
        self.collect_all(&other.collected);
        let news = |&it: &GroupId| self.add_rollbacks(it, other.rollbacks(it));
        other.groups().filter(news).collect()
    }

    /// Iterates over all groups about which something may be known.
    fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.rollbacks.len().max(self.collected.len()) as u16).map(GroupId)
    }

    /// Returns `other` without its rollbacks to checkpoints that are known to have been collected already. A group that
    /// rolled back that far did not know about the collection, and must be told.
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
    /// Compares what is known, ignoring missing trailing groups.
    fn eq(&self, other: &History) -> bool {
        let is_equal =
            |it| self.rollbacks(it) == other.rollbacks(it) && self.collected(it) == other.collected(it);
        self.groups().chain(other.groups()).all(is_equal)
    }
}

impl Eq for History {}

impl Serialize for History {
    /// Serialises a sequence of [`GroupHistory`], without trailing groups about which nothing is known.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_known =
            |it: &GroupId| !self.rollbacks(*it).is_empty() || self.collected(*it) != Checkpoint::default();
        let last = self.groups().filter(is_known).last();
        let known = (0..last.map_or(0, |it| it.0 + 1)).map(GroupId);
        serializer.collect_seq(
            known.map(|it| Known { rollbacks: self.rollbacks(it), collected: self.collected(it) }),
        )
    }
}

/// Serialised form of [`GroupHistory`], by reference.
#[derive(Serialize)]
struct Known<'a> {
    rollbacks: &'a [(Incarnation, Sn)],
    collected: Checkpoint,
}

impl From<Vec<GroupHistory>> for History {
    fn from(pasts: Vec<GroupHistory>) -> History {
        let (rollbacks, collected): (Vec<_>, Vec<_>) =
            pasts.into_iter().map(|it| (it.rollbacks, it.collected)).unzip();
        History { rollbacks, collected: Arc::new(collected) }
    }
}

/// Returns the entry of a group, creating it if necessary.
fn at<T: Default>(all: &mut Vec<T>, group: GroupId) -> &mut T {
    if all.len() <= group.place() {
        all.resize_with(group.place() + 1, T::default);
    }
    &mut all[group.place()]
}

/// The deliveries that a state contains: the greatest position of the messages from each group and incarnation, in
/// ascending order of group and incarnation.
pub type Delivered = Arc<[(GroupId, Position)]>;

/// Records the delivery of a message from `group` with this position: raises the entry for the position's incarnation.
pub(crate) fn raise(delivered: &mut Delivered, group: GroupId, position: Position) {
    let key = (group, position.incarnation);
    match delivered.binary_search_by_key(&key, |&(it, at)| (it, at.incarnation)) {
        Ok(place) if delivered[place].1 >= position => {}
        Ok(place) => {
            let mut raised = delivered.to_vec();
            raised[place].1 = position;
            *delivered = raised.into();
        }
        Err(place) => {
            let mut raised = delivered.to_vec();
            raised.insert(place, (group, position));
            *delivered = raised.into();
        }
    }
}

/// Returns the recovery line: the checkpoint that each group would restore if all groups failed at the same time.
/// Starting from its newest checkpoint, a group moves back as long as its checkpoint contains the delivery of a message
/// whose send the line undoes. SN 0 stands for the state before the oldest usable checkpoint, about which nothing is
/// known. `checkpoints` contains the usable checkpoints of each group, ascending, and `delivered` returns the
/// deliveries that a checkpoint contains.
pub(crate) fn recovery_line<D>(
    checkpoints: &[&[(Checkpoint, D)]],
    delivered: impl Fn(&D) -> &[(GroupId, Position)],
) -> Vec<Checkpoint> {
    let checkpoint_at = |group: usize, place: usize| place.checked_sub(1).map(|it| &checkpoints[group][it]);
    let line_at = |group: usize, place: usize| checkpoint_at(group, place).map(|it| it.0).unwrap_or_default();
    let mut line: Vec<usize> = checkpoints.iter().map(|of| of.len()).collect();
    let mut moved = true;
    while moved {
        moved = false;
        for group in 0..checkpoints.len() {
            let undone = |&(from, position): &(GroupId, Position)| {
                from.place() != group && position.sn >= line_at(from.place(), line[from.place()]).position.sn
            };
            let clean = |place: &usize| {
                checkpoint_at(group, *place).is_none_or(|(_, it)| !delivered(it).iter().any(undone))
            };
            let place =
                (0..=line[group]).rev().find(clean).expect("nothing before the first checkpoint is undone");
            moved |= place != line[group];
            line[group] = place;
        }
    }
    line.iter().enumerate().map(|(group, &place)| line_at(group, place)).collect()
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
    fn a_copy_up_to_an_incarnation_lacks_only_newer_rollbacks_of_one_group() {
        let mut history = rolled_back_to_3_then_2();
        history.rolled_back(GroupId(0), Incarnation(2), Sn(1));
        let copy = history.up_to(F, Incarnation(1));
        assert_eq!(copy.rollbacks(F), [(Incarnation(1), Sn(3))]);
        assert_eq!(copy.rollbacks(GroupId(0)), [(Incarnation(2), Sn(1))]);
        assert_eq!(history.up_to(F, Incarnation(2)), history);
        assert_eq!(history.up_to(GroupId(9), Incarnation(0)), history);
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
        let pasts = postcard::to_allocvec(&[GroupHistory::default()]).unwrap();
        assert_eq!(postcard::from_bytes::<History>(&pasts).unwrap(), History::default());
    }

    #[test]
    fn a_rollback_past_a_collection_is_rejected() {
        let mut mine = History::default();
        mine.collect(F, Checkpoint { position: Position::new(1, 3), attempt: Attempt(1) });
        let believed = mine.believable(rolled_back_to_3_then_2());
        assert_eq!(believed.rollbacks(F), [(Incarnation(1), Sn(3))]);
        assert!(!mine.is_broken(F));
        mine.merge(&rolled_back_to_3_then_2());
        assert!(mine.is_broken(F), "the two facts together show that something is wrong");
    }

    #[test]
    fn the_greatest_position_of_each_incarnation_counts() {
        let mut delivered = Delivered::from([]);
        for position in [(0, 2), (0, 1), (1, 1), (0, 3)] {
            raise(&mut delivered, F, Position::new(position.0, position.1));
        }
        raise(&mut delivered, GroupId(0), Position::new(0, 1));
        let expected =
            [(GroupId(0), Position::new(0, 1)), (F, Position::new(0, 3)), (F, Position::new(1, 1))];
        assert_eq!(*delivered, expected);
    }

    /// A checkpoint, with the positions of other groups on which it depends.
    type Dependent = (Checkpoint, Vec<(GroupId, Position)>);

    #[test]
    fn the_recovery_line_contains_no_message_sent_after_it() {
        let taken = |sn, from: u16, at| {
            let checkpoint = Checkpoint { position: Position::new(0, sn), attempt: Attempt(1) };
            (checkpoint, Vec::from([(GroupId(from), Position::new(0, at))]))
        };
        // The first group's checkpoint 2 contains a message that the second group sent after its
        // checkpoint 1. The second group's checkpoint 2 contains a message that the first group sent after
        // its checkpoint 2.
        let first = [taken(1, 1, 0), taken(2, 1, 1)];
        let second = [taken(1, 0, 0), taken(2, 0, 2)];
        let sns = |checkpoints: &[&[Dependent]]| -> Vec<u32> {
            recovery_line(checkpoints, Vec::as_slice).iter().map(|it| it.position.sn.0).collect()
        };
        assert_eq!(sns(&[&first, &second]), [1, 1], "the domino effect");
        assert_eq!(sns(&[&first, &second[..1]]), [1, 1]);
        let third = [taken(1, 0, 0), taken(2, 0, 1)];
        assert_eq!(sns(&[&first, &third]), [2, 2]);
        assert_eq!(sns(&[&first, &[]]), [0, 0], "nothing is known about a group without checkpoints");
    }

    #[test]
    fn the_newest_collected_checkpoint_counts() {
        let mut mine = rolled_back_to_3_then_2();
        let newer = Checkpoint { position: Position::new(2, 4), attempt: Attempt(1) };
        mine.collect(F, newer);
        mine.collect(F, Checkpoint { position: Position::new(0, 2), attempt: Attempt(3) });
        assert_eq!(mine.collected(F), newer);
        assert!(!mine.is_broken(F), "the rollbacks are older");
    }
}
