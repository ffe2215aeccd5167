//! The checkpoints that a recovery can still need: those on or after the line that all groups would restore if all of
//! them failed at once (HC3I, section 3.5). A failure of only some of the groups never leads further back.

use std::collections::BTreeMap;

use faultline_core::fault::Outcome;
use faultline_core::{Claim, Incarnation, Position, ProcessId, Sn, Span, Time, Vectors};

use faultline_history::{Checkpoint, CheckpointName, Claimed, Group, GroupId, History};

/// The reason why no recovery can need a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Garbage {
    /// A rollback undid the checkpoint.
    Undone,
    /// Every checkpoint that a recovery could restore is newer.
    Older,
}

/// The time that a collection may take, in addition to the delay of the links.
const LEAST: Span = Span::from_secs(1);

/// By group: the part of its history that no rollback has undone, and its checkpoint on the recovery line.
pub(super) struct RecoveryLine(Vec<OfGroup>);

struct OfGroup {
    surviving: Vec<(Incarnation, Sn)>,
    /// `None` is the initial state.
    restored: Option<CheckpointName>,
}

/// Returns the instant for which collection is judged: everything that no recovery could need at that instant must have
/// been removed by the end of the run. The remaining time allows for two collections. Returns `None` if collection is
/// not judged: no delay between collections is specified, the run did not complete in virtual time, clusters joined or
/// left, the record is flawed, or the run ended too soon after the last fault, the last rollback, or the last report of
/// a process that it is protected again.
pub(super) fn due_since(history: &History<'_>) -> Option<Time> {
    let context = history.context;
    let every = context.bounds.as_ref()?.collect_every?;
    let is_dynamic = !history.supervision.joined.is_empty() || !history.supervision.left.is_empty();
    let is_judged = context.common_clock && context.outcome == Some(Outcome::Completed);
    if !is_judged || is_dynamic || history.is_flawed() {
        return None;
    }
    let slack = slack(history);
    let since = Time(context.end.0.checked_sub((every * 2 + slack).0)?);
    let calm = calm_since(history) + slack;
    (since >= calm).then_some(since)
}

/// Returns the time that a collection may take, in addition to the period between two collections.
pub(super) fn slack(history: &History<'_>) -> Span {
    let slowest = history.context.links.iter().map(|it| it.requested.latency + it.requested.jitter).max();
    LEAST + slowest.unwrap_or_default() * 20
}

/// Returns the time by which the last fault and the last rollback were over and the last process that had lost its
/// storage was protected again.
pub(super) fn calm_since(history: &History<'_>) -> Time {
    let restores = history.groups.iter().flat_map(|it| it.rollbacks.values()).flat_map(|it| it.restores());
    let last = restores.map(|it| it.time).chain(protected(history)).max().unwrap_or_default();
    last.max(history.calm_since())
}

/// Iterates over the times at which processes that had lost their storage first claimed that it is complete again.
/// Further claims, and those of processes that lost nothing, delay nothing.
fn protected<'h>(history: &'h History<'_>) -> impl Iterator<Item = Time> + 'h {
    let is_protected = |it: &&Claimed<'_>| matches!(it.claim, Claim::Protected);
    let mut claims: BTreeMap<ProcessId, Vec<Time>> = BTreeMap::new();
    for claimed in history.claims.iter().filter(is_protected) {
        let host = history.segment(claimed.at.segment).host;
        claims.entry(host).or_default().push(claimed.time);
    }
    claims.into_iter().flat_map(|(process, times)| {
        let losses = history.supervision.storage_losses(process).iter().map(|it| it.1);
        losses.filter_map(move |lost| times.iter().copied().filter(|at| *at >= lost).min())
    })
}

impl RecoveryLine {
    /// Returns the recovery line at `at`: a recovery could still need any checkpoint on or after that line.
    pub(super) fn at(history: &History<'_>, at: Time) -> RecoveryLine {
        let resumed = resumed(history, at);
        let stored: Vec<Vec<(CheckpointName, &Vectors)>> =
            history.groups.numbered().map(|(number, group)| usable(number, group, &resumed, at)).collect();
        let mut line: Vec<usize> = stored.iter().map(Vec::len).collect();
        let name_at = |line: &[usize], group: usize| line[group].checked_sub(1).map(|it| stored[group][it].0);
        let propagates = !history.context.repeats();
        let mut moved = propagates;
        while moved {
            moved = false;
            for group in 0..stored.len() {
                while let Some(place) = line[group].checked_sub(1) {
                    let is_undone = |&(from, sent): &(GroupId, Position)| {
                        let restored = name_at(&line, from.place()).map_or(Sn(0), |it| it.position.sn);
                        from.place() != group && sent.sn >= restored
                    };
                    if !stored[group][place].1.delivered.iter().any(is_undone) {
                        break;
                    }
                    line[group] = place;
                    moved = true;
                }
            }
        }
        let of_group = |(place, (_, group)): (usize, (GroupId, &Group<'_>))| OfGroup {
            surviving: group.line_before(Incarnation(u32::MAX)),
            restored: name_at(&line, place),
        };
        RecoveryLine(history.groups.numbered().enumerate().map(of_group).collect())
    }

    /// Returns the checkpoint of `group` on the line; `None` is its initial state.
    pub(super) fn restored(&self, group: GroupId) -> Option<CheckpointName> {
        self.0[usize::from(group.0)].restored
    }

    /// Returns why no recovery restores the checkpoint of `group` at this position; `None` if a recovery may
    /// restore it.
    pub(super) fn is_needless(&self, group: GroupId, position: Position) -> Option<Garbage> {
        let of = &self.0[usize::from(group.0)];
        let restored = of.restored.map(|it| it.position);
        if !Group::is_on(&of.surviving, position) {
            return Some(Garbage::Undone);
        }
        restored.filter(|it| position < *it).map(|_| Garbage::Older)
    }
}

/// Vectors by group and checkpoint.
type Resumed<'h> = BTreeMap<(GroupId, Position), &'h Vectors>;

/// Returns the checkpoints that rollbacks had restored by `at`. They may never have been committed.
fn resumed<'h>(history: &'h History<'_>, at: Time) -> Resumed<'h> {
    let of = |claimed: &'h Claimed<'_>| match claimed.claim {
        Claim::RolledBack { checkpoint, vectors, .. } if claimed.time <= at => {
            let group = history.group_of(history.process_of(claimed.at))?;
            Some(((group, *checkpoint), &**vectors))
        }
        _ => None,
    };
    history.claims.iter().filter_map(of).collect()
}

/// Returns the surviving checkpoints that a group could restore at `at`, in ascending order, with their
/// vectors.
fn usable<'h>(
    number: GroupId,
    group: &'h Group<'_>,
    resumed: &Resumed<'h>,
    at: Time,
) -> Vec<(CheckpointName, &'h Vectors)> {
    let surviving = group.line_before(Incarnation(u32::MAX));
    let vectors = |name: &CheckpointName, checkpoint: &'h Checkpoint<'_>| {
        let is_committed = checkpoint.commits.len() >= group.members.len()
            && checkpoint.commits.iter().all(|it| it.time <= at);
        let of_commit = checkpoint.commits.first().filter(|_| is_committed).map(|it| &**it.vectors);
        let of_restore = || resumed.get(&(number, name.position)).copied().filter(|_| checkpoint.is_restored);
        of_commit.or_else(of_restore)
    };
    let surviving = group.checkpoints.iter().filter(|(name, _)| Group::is_on(&surviving, name.position));
    surviving.filter_map(|(name, it)| Some((*name, vectors(name, it)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, position};

    /// Returns the positions on the line that the groups would restore at the end of the run.
    fn restored(run: &Run) -> Vec<Position> {
        let history = run.history();
        let line = RecoveryLine::at(&history, Time(u64::MAX));
        let groups = (0..history.groups.len() as u16).map(GroupId);
        groups.map(|it| line.restored(it).map_or(Position::default(), |it| it.position)).collect()
    }

    #[test]
    fn a_checkpoint_with_a_message_that_the_line_undoes_is_not_on_it() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.commit_all(1, &[1]);
        run.commit_with(1, &[1], &[], &[(0, position(0, 1))]);
        assert_eq!(restored(&run), [position(0, 1), position(0, 1)]);
        run.commit_all(0, &[0]);
        assert_eq!(restored(&run), [position(0, 2), position(0, 2)], "the sender has a newer checkpoint");
    }

    #[test]
    fn a_rollback_may_lead_back_step_by_step() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_with(0, &[0], &[], &[]);
        run.commit_with(1, &[1], &[], &[(0, position(0, 1))]);
        run.commit_with(0, &[0], &[], &[(1, position(0, 1))]);
        run.commit_with(1, &[1], &[], &[(0, position(0, 2))]);
        assert_eq!(restored(&run), [position(0, 1), Position::default()], "the domino effect");
        run.context.promises = run.context.promises.with(&[faultline_core::Promise::Repetition]);
        assert_eq!(restored(&run), [position(0, 2), position(0, 2)], "re-execution repeats every send");
    }

    #[test]
    fn undone_and_older_checkpoints_are_needless() {
        let mut run = Run::new(&[&[0], &[1]]);
        (0..3).for_each(|_| run.commit_with(0, &[0], &[], &[]));
        run.kill(0, false);
        run.restore(0, 1, Some((0, 2)));
        let history = run.history();
        let line = RecoveryLine::at(&history, Time(u64::MAX));
        let of = |sn| line.is_needless(GroupId(0), position(0, sn));
        assert_eq!([of(1), of(2), of(3)], [Some(Garbage::Older), None, Some(Garbage::Undone)]);
    }
}
