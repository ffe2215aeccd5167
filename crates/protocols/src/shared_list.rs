//! A list, sorted by a key, whose copies share the items that they have in common.
//!
//! A checkpoint contains the tables of its process, and most of a table is the same in the next checkpoint. A copy of
//! this list needs memory for only one key and one pointer per branch of up to 256 items. A change copies the item's
//! leaf of up to eight items, and the branch of up to 32 leaves that contains it, if another copy of the list still
//! uses them. The memory for a sequence of checkpoints thus grows only with the new items of each checkpoint.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use faultline_core::Footprint;

/// Maximum number of items in a leaf.
const LEAF: usize = 8;
/// Maximum number of leaves in a branch.
const BRANCH: usize = 32;

/// An item of a list.
pub(crate) trait Keyed: Clone {
    /// The key by which the list is sorted. Several items may have the same key.
    type Key: Ord + Copy;
    /// Returns the key, which must never change.
    fn key(&self) -> Self::Key;
}

/// The items of a leaf. Never empty.
type Leaf<T> = Vec<T>;
/// Leaves, each with its first key. Never empty.
type Branch<T> = Vec<(<T as Keyed>::Key, Arc<Leaf<T>>)>;

/// Items in ascending order of their keys. A clone shares everything with its original.
#[derive(Clone)]
pub(crate) struct SharedList<T: Keyed> {
    /// Branches, each with its first key.
    branches: Vec<(T::Key, Arc<Branch<T>>)>,
    len: usize,
}

/// Position of an item in its list. Valid until the list changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemIndex {
    branch: usize,
    leaf: usize,
    item: usize,
}

impl<T: Keyed> Default for SharedList<T> {
    fn default() -> SharedList<T> {
        SharedList { branches: Vec::new(), len: 0 }
    }
}

impl<T: Keyed> SharedList<T> {
    /// Adds the list to a footprint.
    pub(crate) fn add_to(&self, footprint: &mut Footprint) {
        footprint.add_vec(&self.branches);
        for (_, branch) in &self.branches {
            if footprint.add_arc(branch) {
                footprint.add_vec(branch);
                for (_, leaf) in branch.iter() {
                    if footprint.add_arc(leaf) {
                        footprint.add_vec(leaf);
                    }
                }
            }
        }
    }

    /// Returns the number of items.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Iterates over all items.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.branches.iter().flat_map(|(_, branch)| items_of(branch))
    }

    /// Iterates over all items with their places.
    pub(crate) fn places(&self) -> impl Iterator<Item = (ItemIndex, &T)> {
        self.branches.iter().enumerate().flat_map(|(branch, (_, leaves))| {
            leaves.iter().enumerate().flat_map(move |(leaf, (_, items))| {
                items.iter().enumerate().map(move |(item, it)| (ItemIndex { branch, leaf, item }, it))
            })
        })
    }

    /// Iterates over the items up to `place`, inclusive.
    pub(crate) fn up_to(&self, place: ItemIndex) -> impl DoubleEndedIterator<Item = &T> {
        let ItemIndex { branch, leaf, item } = place;
        let leaves = &self.branches[branch].1;
        let before = self.branches[..branch].iter().flat_map(|(_, branch)| items_of(branch));
        before.chain(items_of(&leaves[..leaf])).chain(&leaves[leaf].1[..=item])
    }

    /// Returns the item at `place`.
    #[inline]
    pub(crate) fn at(&self, place: ItemIndex) -> &T {
        &self.branches[place.branch].1[place.leaf].1[place.item]
    }

    /// Returns the item after the one at `place`.
    pub(crate) fn after(&self, place: ItemIndex) -> Option<&T> {
        let branch = &self.branches[place.branch].1;
        let same_leaf = branch[place.leaf].1.get(place.item + 1);
        let next_leaf = || branch.get(place.leaf + 1);
        let next_branch = || self.branches.get(place.branch + 1)?.1.first();
        same_leaf.or_else(|| next_leaf().or_else(next_branch)?.1.first())
    }

    /// Returns the place of the last item whose key is at most `key`.
    #[inline]
    pub(crate) fn last_up_to(&self, key: T::Key) -> Option<ItemIndex> {
        let branch = self.branches.partition_point(|(first, _)| *first <= key).checked_sub(1)?;
        let leaves = &self.branches[branch].1;
        let leaf = leaves.partition_point(|(first, _)| *first <= key) - 1;
        let item = leaves[leaf].1.partition_point(|it| it.key() <= key) - 1;
        Some(ItemIndex { branch, leaf, item })
    }

    /// Returns the item at `place`, to be changed in this copy of the list. Its key must not change.
    #[inline]
    pub(crate) fn at_mut(&mut self, place: ItemIndex) -> &mut T {
        &mut self.leaf_mut(place)[place.item]
    }

    #[inline]
    fn leaf_mut(&mut self, place: ItemIndex) -> &mut Leaf<T> {
        Arc::make_mut(&mut Arc::make_mut(&mut self.branches[place.branch].1)[place.leaf].1)
    }

    /// Inserts an item after all items whose key is at most its own. Invalidates all places.
    pub(crate) fn insert(&mut self, item: T) {
        self.insert_after(self.last_up_to(item.key()), item);
    }

    /// Works like [`SharedList::insert`], but with the result of [`SharedList::last_up_to`] for the item's key.
    pub(crate) fn insert_after(&mut self, place: Option<ItemIndex>, item: T) {
        let key = item.key();
        let (place, index) = match place {
            Some(place) => (place, place.item + 1),
            None if self.len > 0 => (self.begin_with(key), 0),
            None => {
                self.branches.push((key, Arc::new(Vec::from([(key, Arc::new(Vec::from([item])))]))));
                self.len = 1;
                return;
            }
        };
        self.len += 1;
        let leaf = self.leaf_mut(place);
        if leaf.len() < LEAF {
            insert(leaf, index, item);
            return;
        }
        // If the list grows at the end of a full leaf, that leaf stays full.
        let mut next = leaf.split_off(if index == LEAF { LEAF } else { LEAF / 2 });
        let (into, index) = match index.checked_sub(leaf.len()) {
            Some(index) => (&mut next, index),
            None => (leaf, index),
        };
        insert(into, index, item);
        self.insert_leaf(place, (next[0].key(), Arc::new(next)));
    }

    /// Lowers the first key of the list, for an item that will be inserted before all others. Returns the place of the
    /// first item.
    fn begin_with(&mut self, key: T::Key) -> ItemIndex {
        let (first, branch) = &mut self.branches[0];
        *first = key;
        Arc::make_mut(branch)[0].0 = key;
        ItemIndex { branch: 0, leaf: 0, item: 0 }
    }

    /// Inserts a leaf after the leaf that contains `place`.
    fn insert_leaf(&mut self, place: ItemIndex, leaf: (T::Key, Arc<Leaf<T>>)) {
        let branch = Arc::make_mut(&mut self.branches[place.branch].1);
        let index = place.leaf + 1;
        if branch.len() < BRANCH {
            insert(branch, index, leaf);
            return;
        }
        let mut next = branch.split_off(if index == BRANCH { BRANCH } else { BRANCH / 2 });
        let (into, index) = match index.checked_sub(branch.len()) {
            Some(index) => (&mut next, index),
            None => (branch, index),
        };
        insert(into, index, leaf);
        self.branches.insert(place.branch + 1, (next[0].0, Arc::new(next)));
    }

    /// Removes the items for which `is_needed` returns `false`. Leaves that lose no items remain shared,
    /// unless items from the next leaf move into them.
    pub(crate) fn retain(&mut self, mut is_needed: impl FnMut(&T) -> bool) {
        let mut leaves: Branch<T> = Vec::new();
        let mut len = 0;
        for (first, leaf) in self.branches.iter().flat_map(|(_, it)| it.iter()) {
            let mut kept: Leaf<T> = leaf.iter().filter(|it| is_needed(it)).cloned().collect();
            len += kept.len();
            match leaves.last_mut() {
                _ if kept.len() == leaf.len() => leaves.push((*first, leaf.clone())),
                _ if kept.is_empty() => {}
                Some((_, last)) if last.len() + kept.len() <= LEAF => Arc::make_mut(last).append(&mut kept),
                _ => leaves.push((kept[0].key(), Arc::new(kept))),
            }
        }
        if len < self.len {
            self.len = len;
            self.branches = leaves.chunks(BRANCH).map(|it| (it[0].0, Arc::new(it.to_vec()))).collect();
        }
    }
}

fn items_of<K, T>(leaves: &[(K, Arc<Leaf<T>>)]) -> impl DoubleEndedIterator<Item = &T> {
    leaves.iter().flat_map(|(_, leaf)| leaf.iter())
}

/// Inserts into a leaf or a branch. These have few items and are kept in many versions, so unused capacity
/// would cost more than reallocation.
#[inline]
fn insert<T>(items: &mut Vec<T>, index: usize, item: T) {
    if items.len() == items.capacity() {
        items.reserve_exact(2);
    }
    items.insert(index, item);
}

impl<T: Keyed> FromIterator<T> for SharedList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> SharedList<T> {
        let mut list = SharedList::default();
        items.into_iter().for_each(|it| list.insert(it));
        list
    }
}

impl<T: Keyed + PartialEq> PartialEq for SharedList<T> {
    fn eq(&self, other: &SharedList<T>) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<T: Keyed + Eq> Eq for SharedList<T> {}

impl<T: Keyed + fmt::Debug> fmt::Debug for SharedList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    impl Keyed for u32 {
        type Key = u32;
        fn key(&self) -> u32 {
            *self
        }
    }

    fn list(numbers: impl IntoIterator<Item = u32>) -> SharedList<u32> {
        numbers.into_iter().collect()
    }

    fn bytes<'a>(lists: impl IntoIterator<Item = &'a SharedList<u32>>) -> u64 {
        let mut footprint = Footprint::default();
        lists.into_iter().for_each(|it| it.add_to(&mut footprint));
        footprint.bytes()
    }

    /// Checks the list against a vector of the same items, ascending and distinct.
    fn check(list: &SharedList<u32>, all: &[u32]) {
        assert_eq!(list.iter().copied().collect::<Vec<_>>(), all);
        assert_eq!(list.iter().rev().copied().collect::<Vec<_>>().len(), list.len());
        for (first, branch) in &list.branches {
            assert!((1..=BRANCH).contains(&branch.len()));
            assert_eq!(*first, branch[0].0);
            assert!(branch.iter().all(|(first, leaf)| (1..=LEAF).contains(&leaf.len()) && *first == leaf[0]));
        }
        for (index, (place, &item)) in list.places().enumerate() {
            assert_eq!(list.at(place), &item);
            assert_eq!(list.after(place), all.get(index + 1));
            assert_eq!(list.last_up_to(item), Some(place));
            let before = list.last_up_to(item - 1).map(|it| *list.at(it));
            assert_eq!(before, index.checked_sub(1).map(|it| all[it]));
        }
    }

    #[test]
    fn a_list_contains_the_same_items_as_a_vector() {
        let (mut shared, mut all) = (SharedList::default(), Vec::new());
        let mut random = 1_u32;
        for round in 0..3000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // At the end, at the beginning, then anywhere.
            let item = match round {
                0..700 => 1_000_000 + round,
                700..1000 => 1_000_000 - round,
                _ => 1 + (random >> 8),
            };
            if let Err(index) = all.binary_search(&item) {
                all.insert(index, item);
                shared.insert(item);
            }
            if round % 500 == 0 {
                check(&shared, &all);
            }
        }
        check(&shared, &all);
        let middle = shared.last_up_to(all[1500]).unwrap();
        assert_eq!(shared.up_to(middle).rev().copied().collect::<Vec<_>>(), {
            let mut first = all[..=1500].to_vec();
            first.reverse();
            first
        });
        for part in [7, 3, 2] {
            shared.retain(|it| it % part != 0);
            all.retain(|it| it % part != 0);
            check(&shared, &all);
        }
        shared.retain(|_| false);
        check(&shared, &[]);
        assert_eq!(shared, SharedList::default());
    }

    #[test]
    fn a_change_to_a_copy_does_not_affect_the_original() {
        let original = list(1..1000);
        let mut copy = original.clone();
        copy.insert(1000);
        copy.insert(0);
        // The list does not detect that the key changes, but no key is looked up afterwards.
        *copy.at_mut(copy.last_up_to(500).unwrap()) = 9999;
        copy.retain(|it| *it != 3);
        assert_eq!(original, list(1..1000));
        let expected = (0..1001).filter(|it| *it != 3).map(|it| if it == 500 { 9999 } else { it });
        assert_eq!(copy.iter().copied().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    /// Each version adds an item. Full copies would take 8 MB in total.
    #[test]
    fn versions_use_memory_only_for_what_is_new() {
        let mut versions = vec![SharedList::default()];
        for number in 0..2000_u32 {
            let mut next = versions[versions.len() - 1].clone();
            next.insert(number);
            versions.push(next);
        }
        let all = bytes(&versions);
        assert!(all < 2000 * 600, "{all} bytes");
        assert!(all > bytes(versions.last()), "every version takes some memory");
        // The same items, without a copy in between.
        assert!(bytes([&list(0..2000)]) < 2000 * 14);
    }
}
