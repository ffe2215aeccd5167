//! Every rollback has a cause: a life of one of the group's processes ended, or the group had delivered a message whose
//! send was undone by a rollback that itself has a cause.
//!
//! The cause that the protocol claims does not count. A rollback is attributed to the end of a life between two
//! restores of the same process, so one end does not justify two rollbacks of the same process. A message counts if the
//! rollback undid its delivery. Chains of undone messages must start with the end of a life: if two groups only make
//! each other roll back, their rollbacks have no cause.
//!
//! A protocol whose checkpoint numbers define the recovery line ([`Affected::Line`]) also rolls back groups that had
//! delivered no undone message: at most once for each life that ended, whichever process it belonged to.
//!
//! No clock orders rollbacks of different groups, so a send that was undone at any time is a cause.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use faultline_core::{Affected, FactKind, Incarnation, Life, ProcessId};

use super::orphan_deliveries::is_undone;
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Context, Group, GroupId, History, Message, Point, RestoredBy, Rollback, SegmentNo};

/// A rollback of a group.
type RollbackOf = (GroupId, Incarnation);

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    WithoutCause { group: GroupId, incarnation: Incarnation, undone_without_cause: bool },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::WithoutCause { group: by, incarnation, undone_without_cause } = *self;

        let messages = match undone_without_cause {
            false => "no message that it had delivered was undone",
            true => "only rollbacks without a cause undid messages that it had delivered",
        };
        format!(
            "{} rolled back ({incarnation}) although none of its processes had failed since its last rollback \
                     and {messages}",
            names.group(by)
        )
    }
}

pub(super) const RULE: Rule = Rule::new(Property::RollbackCaused, "every rollback had a cause", check)
    .needs(&[FactKind::Failed, FactKind::Restored]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let mut caused = Vec::new();
    let mut open = BTreeMap::new();
    let ends = ends(history);
    let ended: usize = ends.values().map(BTreeSet::len).sum();
    let follows_line = history.context.promises.affected == Affected::Line;
    for (number, group) in history.groups.numbered() {
        let failed = after_failures(history, group, &ends);
        let mut rolled_back = 0;
        for (&incarnation, rollback) in &group.rollbacks {
            if rollback.restores().next().is_none() {
                continue;
            }
            finding.instances += 1;
            rolled_back += 1;
            let is_on_line = follows_line && rolled_back <= ended;
            if failed.contains(&incarnation) || is_on_line {
                caused.push((number, incarnation));
            } else {
                open.insert((number, incarnation), Undone::by(history, (number, incarnation), rollback));
            }
        }
    }
    let mut waiting: BTreeMap<RollbackOf, Vec<RollbackOf>> = BTreeMap::new();
    for (&rollback, undone) in &open {
        undone.by.iter().for_each(|&by| waiting.entry(by).or_default().push(rollback));
    }
    caused.extend(open.iter().filter(|(_, undone)| undone.is_unclear).map(|(&it, _)| it));
    while let Some(cause) = caused.pop() {
        open.remove(&cause);
        caused.extend(waiting.remove(&cause).unwrap_or_default());
    }
    for ((number, incarnation), undone) in open {
        let rollback = &history.groups[number].rollbacks[&incarnation];
        let restored = rollback.restores().next().expect("only rollbacks with a restore are examined");
        let undone_without_cause = !undone.by.is_empty();
        finding.violated(
            [history.source(restored.at)],
            Breach::WithoutCause { group: number, incarnation, undone_without_cause },
        );
    }
}

/// Returns the rollbacks of a group that follow the end of a life of one of its processes, by their incarnations.
pub(super) fn after_failures(
    history: &History<'_>,
    group: &Group<'_>,
    ends: &BTreeMap<ProcessId, BTreeSet<Life>>,
) -> BTreeSet<Incarnation> {
    let mut lives: Vec<Life> = vec![Life(1); group.members.len()];
    let restored = group.rollbacks.iter().filter(|(_, it)| it.restores().next().is_some());
    let failed = restored.filter(|(_, it)| is_after_an_end(history, it, &group.members, &mut lives, ends));
    failed.map(|(&incarnation, _)| incarnation).collect()
}

/// Returns the lives that the supervisor ended, or whose end it detected, by process.
pub(super) fn ends(history: &History<'_>) -> BTreeMap<ProcessId, BTreeSet<Life>> {
    let mut ends: BTreeMap<ProcessId, BTreeSet<Life>> = BTreeMap::new();
    for end in &history.supervision.ends {
        ends.entry(end.process).or_default().insert(end.life);
    }
    ends
}

/// Returns whether a life of a member has ended since the member's last restore. `lives` contains the life of each
/// member's last restore, and is updated for this rollback.
fn is_after_an_end(
    history: &History<'_>,
    rollback: &Rollback,
    members: &[ProcessId],
    lives: &mut [Life],
    ends: &BTreeMap<ProcessId, BTreeSet<Life>>,
) -> bool {
    let mut is_after = false;
    for ((member, restored), since) in members.iter().zip(&rollback.restored).zip(lives) {
        let upto = restored.as_ref().map_or(Life(u32::MAX), |it| history.segment(it.at.segment).life);
        // A member that did not restore its state may have failed before it could do so.
        is_after |=
            *since < upto && ends.get(member).is_some_and(|it| it.range(*since..upto).next().is_some());
        if restored.is_some() {
            *since = upto.max(*since);
        }
    }
    is_after
}

/// The causes of the undone messages that a rollback removed from its group's state.
#[derive(Default)]
struct Undone {
    /// Rollbacks that undid a send.
    by: BTreeSet<RollbackOf>,
    /// Whether a send was undone, or may have been, for an unknown reason: the sender did not recover, or facts are
    /// missing.
    is_unclear: bool,
}

impl Undone {
    fn by(history: &History<'_>, (number, incarnation): RollbackOf, rollback: &Rollback) -> Undone {
        let mut undone = Undone::default();
        if history.context.repeats() {
            return undone; // a delivery remains valid although its send was undone
        }
        for (place, restored) in rollback.restored.iter().enumerate() {
            let (before, kept) = match restored {
                Some(restored) => (history.state_before(restored), after(restored)),
                None => (
                    state_until_next(history, (number, incarnation), place),
                    part_of_target(history, number, rollback, place),
                ),
            };
            undone.add(history, before, kept);
        }
        undone
    }

    /// Adds the causes of the undone sends of messages whose delivery the state `before` contains, but the
    /// state `kept` does not.
    fn add(&mut self, history: &History<'_>, mut before: Option<Point>, kept: Option<Point>) {
        while let Some(cut) = before {
            let first = history.between.partition_point(|it| it.at.segment < cut.segment);
            let inside = history.between[first..].iter().take_while(|it| it.at < cut);
            let gone = inside.filter(|it| kept.is_none_or(|kept| !history.contains(kept, it.at)));
            for message in gone.map(|it| history.messages.get(it.message)).filter(|it| is_undone(history, it))
            {
                match undoing(history, message) {
                    Some(rollback) => drop(self.by.insert(rollback)),
                    None => self.is_unclear = true,
                }
            }
            let last = |parent: &Point| Point { fact: parent.fact.saturating_sub(1), ..*parent };
            let is_shared = |parent: &Point| kept.is_some_and(|kept| history.contains(kept, last(parent)));
            before = history.segment(cut.segment).parent.filter(|parent| !is_shared(parent));
        }
    }
}

/// Returns the state at the start of the segment that a restore begins.
fn after(restored: &RestoredBy) -> Option<Point> {
    Some(Point { segment: SegmentNo(restored.at.segment.0 + 1), fact: 0 })
}

/// Returns the last state of a member that did not take part in the rollback: before its next restore or, if there is
/// none, at the end of the run.
fn state_until_next(history: &History<'_>, (number, incarnation): RollbackOf, place: usize) -> Option<Point> {
    let group = &history.groups[number];
    let later = group.rollbacks.range((Excluded(incarnation), Unbounded));
    if let Some(restored) = later.map(|(_, it)| &it.restored[place]).find_map(Option::as_ref) {
        return history.state_before(restored);
    }
    let own = history.processes[group.members[place].index()].segments.clone();
    let last = own.end.checked_sub(1).filter(|last| own.contains(last)).map(SegmentNo)?;
    Some(Point { segment: last, fact: history.segment(last).end })
}

/// Returns the state that a member would have restored if it had taken part in the rollback.
fn part_of_target(
    history: &History<'_>,
    number: GroupId,
    rollback: &Rollback,
    place: usize,
) -> Option<Point> {
    history.groups[number].checkpoints.get(&rollback.target()??)?.parts[place].cut
}

/// Returns the rollback that undid the send of a message; `None` if no fact states it.
fn undoing(history: &History<'_>, message: &Message) -> Option<RollbackOf> {
    let sent = message.sent().first()?;
    let (group, place) = history.member(message.id.from)?;
    let mut rollbacks = history.groups[group].rollbacks.iter();
    let undoes = |rollback: &Rollback| {
        rollback.restored[place]
            .as_ref()
            .is_some_and(|it| it.at > sent && after(it).is_some_and(|state| !history.contains(state, sent)))
    };
    rollbacks.find(|(_, rollback)| undoes(rollback)).map(|(&incarnation, _)| (group, incarnation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, position};
    use faultline_core::{Cause, Claim, Promise};
    use std::sync::Arc;

    /// Returns a run of two single-process clusters. Both take a checkpoint; p1 then delivers a message that
    /// p0 sent after its checkpoint.
    fn run() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        run
    }

    fn alert(from: u16, incarnation: u32) -> Cause {
        Cause::Alert { from: GroupId(from), position: position(incarnation, 1) }
    }

    fn wrong(run: &Run) -> Vec<Breach> {
        check_alone(&RULE, run).wrong::<Breach>()
    }

    #[test]
    fn a_failure_and_what_it_undid_are_causes() {
        let mut run = run();
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        run.restore_because(1, 1, Some((0, 1)), alert(0, 1));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0), "{:?}", finding.violations);
    }

    #[test]
    fn a_claimed_failure_is_not_a_cause() {
        let mut run = run();
        run.restore(1, 1, Some((0, 1)));
        assert!(matches!(wrong(&run)[..], [Breach::WithoutCause { group: GroupId(1), .. }]));
    }

    #[test]
    fn a_line_by_numbers_rolls_others_back_once_per_failure() {
        let mut run = run();
        run.context.promises = run.context.promises.affecting(Affected::Line);
        run.restore(1, 1, Some((0, 1)));
        assert_eq!(wrong(&run).len(), 1, "nothing had failed");
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(wrong(&run).len(), 0);
        run.restore(1, 2, Some((0, 1)));
        assert_eq!(wrong(&run).len(), 1);
    }

    #[test]
    fn an_end_justifies_only_one_rollback() {
        let mut run = run();
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        run.restore(0, 2, Some((0, 1)));
        assert_eq!(wrong(&run).len(), 1);
        run.kill(0, false);
        run.restore(0, 3, Some((0, 1)));
        assert_eq!(wrong(&run).len(), 1);
    }

    #[test]
    fn the_others_of_a_group_follow_the_one_that_failed() {
        let mut run = Run::new(&[&[0, 1]]);
        run.commit_all(0, &[0, 1]);
        run.kill(0, false);
        run.restore(1, 1, Some((0, 1)));
        assert_eq!(wrong(&run), [], "p0 may yet restore");
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(wrong(&run), []);
        run.restore(1, 2, Some((0, 1)));
        run.restore(0, 2, Some((0, 1)));
        assert_eq!(wrong(&run).len(), 1);
    }

    #[test]
    fn a_message_counts_only_if_the_rollback_undid_its_delivery() {
        let mut run = run();
        run.commit_all(1, &[1]);
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        run.restore_because(1, 1, Some((0, 2)), alert(0, 1));
        assert!(matches!(wrong(&run)[0], Breach::WithoutCause { undone_without_cause: false, .. }));
    }

    /// p1 rolls back because of a message that `receiver` had delivered, and fails before p2 has rolled back. Both then
    /// roll back.
    #[test]
    fn a_message_counts_if_its_receiver_restored_only_in_a_later_rollback() {
        let wrong = |receiver: u32| {
            let mut run = Run::new(&[&[0], &[1, 2]]);
            run.commit_all(0, &[0]);
            run.commit_all(1, &[1, 2]);
            let id = run.send(0, receiver);
            run.deliver(id);
            run.kill(0, false);
            run.restore(0, 1, Some((0, 1)));
            run.restore_because(1, 1, Some((0, 1)), alert(0, 1));
            run.kill(1, false);
            run.restore(1, 2, Some((0, 1)));
            run.restore(2, 2, Some((0, 1)));
            wrong(&run)
        };
        assert_eq!(wrong(2), []);
        assert_eq!(wrong(1), []);
        let mut unasked = Run::new(&[&[0], &[1, 2]]);
        unasked.commit_all(1, &[1, 2]);
        unasked.restore_because(1, 1, Some((0, 1)), alert(0, 1));
        unasked.kill(1, false);
        unasked.restore(1, 2, Some((0, 1)));
        unasked.restore(2, 2, Some((0, 1)));
        assert_eq!(check_alone(&RULE, &unasked).violation_count(), 1);
    }

    #[test]
    fn groups_that_make_each_other_roll_back_have_no_cause() {
        let mut run = run();
        let id = run.send(1, 0);
        run.deliver(id);
        run.restore_because(1, 1, Some((0, 1)), alert(0, 1));
        run.restore_because(0, 1, Some((0, 1)), alert(1, 1));
        let wrong = wrong(&run);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(matches!(wrong[0], Breach::WithoutCause { undone_without_cause: true, .. }));
    }

    #[test]
    fn the_end_of_a_sender_that_did_not_recover_is_a_cause() {
        let mut run = run();
        run.kill(0, true);
        run.restore_because(1, 1, Some((0, 1)), alert(0, 1));
        assert_eq!(wrong(&run), []);
        run.claim(0, Claim::Unrecoverable { group: GroupId(0), missing: Arc::default() });
        assert_eq!(wrong(&run), []);
    }

    #[test]
    fn a_message_is_not_a_cause_if_executions_repeat() {
        let mut run = Run::repeating(&[], &[&[0], &[1]]);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.kill(0, false);
        run.restore(0, 1, None);
        run.restore_because(1, 1, Some((0, 1)), alert(0, 1));
        assert_eq!(wrong(&run).len(), 1);
        run.withdraw(Promise::Containment);
        assert_eq!(wrong(&run).len(), 1, "every protocol must have this property");
    }
}
