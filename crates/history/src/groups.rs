//! Checkpoints and rollbacks of groups: the processes that take checkpoints together, such as a cluster or
//! the whole federation.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use faultline_core::{
    Attempt, Cause, GroupId, ImageName, Incarnation, Life, Position, ProcessId, Sn, Span, Time, Vectors,
    Witness,
};

use crate::segments::Point;
use crate::supervision::Supervision;

/// The name of one attempt at a checkpoint of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckpointName {
    /// The checkpoint's position.
    pub position: Position,
    /// The attempt at this position.
    pub attempt: Attempt,
}

impl From<ImageName> for CheckpointName {
    fn from(name: ImageName) -> Self {
        CheckpointName { position: name.position(), attempt: name.attempt }
    }
}

/// One member's part of a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The self-reported contents, and the first fact that states them.
    pub witness: Option<(Witness, Point)>,
    /// The cut; `None` if no fact states it, or if facts are missing.
    pub cut: Option<Point>,
    /// The reports that the part is durable at some process.
    pub copies: Vec<StoredCopy>,
}

/// A durable copy of a part.
#[derive(Clone, Copy, Debug)]
pub struct StoredCopy {
    /// The holder of the copy; the owner is one of the holders.
    pub holder: ProcessId,
    /// The life in which the holder reported the copy.
    pub life: Life,
    /// The time of the report, by the holder's clock.
    pub time: Time,
}

impl Part {
    /// Returns whether all copies of the part may have been lost before the supervisor's fact `before`.
    pub fn may_be_lost(&self, supervision: &Supervision<'_>, before: usize) -> bool {
        self.copies.iter().all(|copy| supervision.may_have_lost(copy.holder, copy.life, before))
    }
}

/// A member's commit of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// The member that committed.
    pub process: ProcessId,
    /// The fact that states the commit.
    pub at: Point,
    /// The time of the commit, by the member's clock.
    pub time: Time,
    /// Whether a message or a theft forced the checkpoint.
    pub forced: bool,
    /// How long the application was paused.
    pub frozen: Span,
    /// The checkpoint's vectors.
    pub vectors: &'a Arc<Vectors>,
}

/// One attempt at a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint<'a> {
    /// Parts by the member's index in its group.
    pub parts: Vec<Part>,
    /// The commits, in the order of processes and lives.
    pub commits: Vec<Commit<'a>>,
    /// Whether a rollback restored the checkpoint.
    pub is_restored: bool,
}

/// A member's restore of its state.
#[derive(Clone, Copy, Debug)]
pub struct RestoredBy {
    /// The fact that states the restore.
    pub at: Point,
    /// The time of the restore, by the member's clock.
    pub time: Time,
    /// The restored checkpoint; `None` is the initial state.
    pub checkpoint: Option<CheckpointName>,
    /// The last state before the restore in the same life; `None` if the life started with this restore.
    pub before: Option<Point>,
}

/// A rollback of a group: all restores and claims with one incarnation number.
#[derive(Clone, Debug, Default)]
pub struct Rollback {
    /// The restore of each member, indexed by the member's position in its group; `None` for a member that did not
    /// restore.
    pub restored: Vec<Option<RestoredBy>>,
    /// The cause that the members claim: the first claim, and the fact that records it.
    pub cause: Option<(Cause, Point)>,
    /// The position that each member claims to have restored.
    pub claimed: Vec<(ProcessId, Position, Point)>,
}

impl Rollback {
    /// Iterates over the restores of all members.
    pub fn restores(&self) -> impl Iterator<Item = &RestoredBy> {
        self.restored.iter().flatten()
    }

    /// Returns the checkpoint restored by the first member that restored a state: `None` if no process restored
    /// anything, `Some(None)` for the initial state.
    pub fn target(&self) -> Option<Option<CheckpointName>> {
        self.restores().next().map(|it| it.checkpoint)
    }
}

/// All groups, indexed by [`GroupId`], never by the number of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Groups<'a>(Vec<Group<'a>>);

impl<'a> Groups<'a> {
    /// Creates groups with these members, without checkpoints or rollbacks.
    ///
    /// # Panics
    ///
    /// Panics if there are more groups than a [`GroupId`] can number.
    pub(crate) fn new(members: Vec<Vec<ProcessId>>) -> Groups<'a> {
        assert!(members.len() <= usize::from(u16::MAX), "{} groups", members.len());
        Groups(members.into_iter().map(Group::new).collect())
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a group; `None` if it does not belong to the run.
    pub fn get(&self, group: GroupId) -> Option<&Group<'a>> {
        self.0.get(usize::from(group.0))
    }

    /// Iterates over all groups, in the order of their numbers.
    pub fn iter(&self) -> std::slice::Iter<'_, Group<'a>> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Group<'a>> {
        self.0.iter_mut()
    }

    /// Iterates over all groups with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (GroupId, &Group<'a>)> {
        (0..).map(GroupId).zip(&self.0)
    }
}

impl<'g, 'a> IntoIterator for &'g Groups<'a> {
    type Item = &'g Group<'a>;
    type IntoIter = std::slice::Iter<'g, Group<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> Index<GroupId> for Groups<'a> {
    type Output = Group<'a>;

    fn index(&self, group: GroupId) -> &Group<'a> {
        &self.0[usize::from(group.0)]
    }
}

impl<'a> IndexMut<GroupId> for Groups<'a> {
    fn index_mut(&mut self, group: GroupId) -> &mut Group<'a> {
        &mut self.0[usize::from(group.0)]
    }
}

/// The processes that take checkpoints together.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The members, ascending.
    pub members: Vec<ProcessId>,
    /// The group's checkpoints.
    pub checkpoints: BTreeMap<CheckpointName, Checkpoint<'a>>,
    /// The rollbacks, keyed by the incarnation that each one started.
    pub rollbacks: BTreeMap<Incarnation, Rollback>,
}

impl<'a> Group<'a> {
    pub(super) fn new(members: Vec<ProcessId>) -> Group<'a> {
        Group { members, checkpoints: BTreeMap::new(), rollbacks: BTreeMap::new() }
    }

    pub(super) fn checkpoint(&mut self, name: CheckpointName) -> &mut Checkpoint<'a> {
        let members = self.members.len();
        self.checkpoints
            .entry(name)
            .or_insert_with(|| Checkpoint { parts: vec![Part::default(); members], ..Checkpoint::default() })
    }

    pub(super) fn rollback(&mut self, incarnation: Incarnation) -> &mut Rollback {
        let members = self.members.len();
        self.rollbacks
            .entry(incarnation)
            .or_insert_with(|| Rollback { restored: vec![None; members], ..Rollback::default() })
    }

    /// Returns the group's line of history just before `incarnation` started, newest first: the incarnations, each with
    /// the last SN whose checkpoint belongs to the line.
    pub fn line_before(&self, incarnation: Incarnation) -> Vec<(Incarnation, Sn)> {
        let began_by = |it: &Incarnation| self.rollbacks.get(it).and_then(Rollback::target);
        let earlier = self.rollbacks.range(..incarnation).rev().map(|(&it, _)| it);
        let mut newest = earlier.into_iter().find(|it| began_by(it).is_some()).unwrap_or_default();
        let mut bound = Sn(u32::MAX);
        let mut line = vec![(newest, bound)];
        while let Some(target) = began_by(&newest) {
            let from = target.map_or(Position::default(), |it| it.position);
            if from.incarnation >= newest {
                break; // invalid; the checker reports it
            }
            (newest, bound) = (from.incarnation, from.sn);
            line.push((newest, bound));
        }
        line
    }

    /// Returns whether a position belongs to a line.
    pub fn is_on(line: &[(Incarnation, Sn)], position: Position) -> bool {
        line.iter().any(|&(incarnation, upto)| incarnation == position.incarnation && position.sn <= upto)
    }

    /// Returns the committed checkpoints of a line that are newer than `position`, newest first.
    pub fn committed_after<'b>(
        &'b self,
        line: &'b [(Incarnation, Sn)],
        position: Position,
    ) -> impl Iterator<Item = (&'b CheckpointName, &'b Checkpoint<'a>)> {
        line.iter().flat_map(move |&(incarnation, bound)| {
            let from = CheckpointName { position: Position { incarnation, sn: Sn(0) }, attempt: Attempt(0) };
            let to =
                CheckpointName { position: Position { incarnation, sn: bound }, attempt: Attempt(u32::MAX) };
            self.checkpoints
                .range(from..=to)
                .rev()
                .filter(move |(name, checkpoint)| name.position > position && !checkpoint.commits.is_empty())
        })
    }
}
