//! A process that lost its storage reports that it is protected only when it holds replicas again: one for each owner
//! whose part of a committed checkpoint it held before the loss.
//!
//! An owner that no longer has an intact part cannot send one. The holder then learns that none is left, and
//! states that it is protected. This claim is not judged if the owner's storage was corrupted, or if no other
//! process may still have a part. An owner whose storage was lost as well is no excuse while another holder
//! has a part, because the owner restores that part first.
//!
//! A process that fails permanently or leaves restores no part and sends none, so neither its own parts nor
//! its copies of others' parts are expected. Other processes may replace it as a holder, but do not become
//! holders instead of a process that stays. When a cluster joins, replicas may move to it; afterwards, a
//! holder is expected to have an owner's part again only if it held the newest one that the owner had
//! committed, if this part was saved after the join, and if the owner has no later part whose replicas all
//! became durable at other processes. The last condition is necessary because an owner learns of a join later
//! than the supervisor does, and because its program may move to a process that chooses other holders.
//!
//! This property is judged only if all processes read the same clock.

use std::collections::BTreeSet;

use faultline_core::fault::StorageFault;
use faultline_core::{Claim, Fault, ProcessId, Time};

use crate::finding::{Findings, Worded};
use faultline_history::{Checkpoint, CheckpointName, Context, Group, History, StoredCopy};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    ProtectedWithoutCopy { holder: ProcessId, owner: ProcessId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::ProtectedWithoutCopy { holder, owner } = *self;
        format!(
            "{} claims that its lost storage is complete again, but holds no part of {}",
            names.process(holder),
            names.process(owner)
        )
    }
}

/// Adds the violations to the finding of `durableBeforeCommit`.
pub(super) fn check(history: &History<'_>, finding: &mut Findings) {
    let supervision = &history.supervision;
    if !history.context.common_clock {
        return;
    }
    let departing = supervision.departing(&history.context.clusters);
    let stays = |process: ProcessId| !departing.contains(&process) && !history.has_left(process);
    for claimed in history.claims.iter().filter(|it| matches!(it.claim, Claim::Protected)) {
        let (holder, by) = (history.process_of(claimed.at), claimed.time);
        let losses = supervision.storage_losses(holder).iter().map(|&(_, at, _)| at);
        let Some(lost) = losses.filter(|at| *at <= by).max() else { continue };
        for (_, group) in history.groups.numbered() {
            for (place, &owner) in group.members.iter().enumerate() {
                let is_expected = stays(owner) && held(history, group, place, holder, lost, by);
                if !is_expected || !may_be_sent(history, (group, place), (holder, by), stays) {
                    continue;
                }
                finding.instances += 1;
                let has_copy =
                    copies(group, place).any(|it| it.holder == holder && lost < it.time && it.time <= by);
                if !has_copy && !history.trace.has_gap_of(holder) {
                    let breach = Breach::ProtectedWithoutCopy { holder, owner };
                    finding.violated([history.source(claimed.at)], breach);
                }
            }
        }
    }
}

/// Returns whether `holder` held a part that had been committed before `lost`. If a cluster has joined before `by`,
/// this must be the newest such part, it must have been saved after the join, and no other processes may have replaced
/// the holder since.
fn held(
    history: &History<'_>,
    group: &Group<'_>,
    place: usize,
    holder: ProcessId,
    lost: Time,
    by: Time,
) -> bool {
    let joined = history.supervision.joined.iter().map(|it| it.0).filter(|at| *at <= by).max();
    let is_committed = |it: &Checkpoint<'_>| it.commits.iter().any(|it| it.time < lost);
    let mut all = group.checkpoints.iter().filter(|(_, it)| is_committed(it));
    let has_copy =
        |it: &Checkpoint<'_>| it.parts[place].copies.iter().any(|it| it.holder == holder && it.time < lost);
    match joined {
        None => all.any(|(_, it)| has_copy(it)),
        Some(joined) => all.next_back().is_some_and(|(name, it)| {
            let saved = it.parts[place].witness.map(|(_, at)| history.time(at));
            saved.is_some_and(|at| joined < at)
                && has_copy(it)
                && !is_replaced(history, group, place, holder, *name)
        }),
    }
}

/// Returns whether processes other than `holder` have all copies of some part newer than `name`: the owner's
/// copy and every replica.
fn is_replaced(
    history: &History<'_>,
    group: &Group<'_>,
    place: usize,
    holder: ProcessId,
    name: CheckpointName,
) -> bool {
    let Some(replicas) = history.context.copies.map(|it| it.replicas as usize) else { return false };
    let newer = group.checkpoints.iter().filter(|it| name < *it.0);
    newer.map(|(_, it)| &it.parts[place].copies).any(|copies| {
        let others: BTreeSet<_> = copies.iter().map(|it| it.holder).filter(|it| *it != holder).collect();
        others.len() > replicas
    })
}

/// Returns whether a part of an owner could still be sent to `holder` at time `by`: the owner's storage was never
/// corrupted, and a process other than `holder` that stays has an intact part.
fn may_be_sent(
    history: &History<'_>,
    (group, place): (&Group<'_>, usize),
    (holder, by): (ProcessId, Time),
    stays: impl Fn(ProcessId) -> bool,
) -> bool {
    let owner = group.members[place];
    let corrupts = |fault: &Fault| {
        fault.impairs_storage() == Some((owner, StorageFault::Corrupt)) || fault.flips_copy() == Some(owner)
    };
    let supervision = &history.supervision;
    let is_corrupted = supervision.injected.iter().any(|(_, fault, at, _)| *at <= by && corrupts(fault));
    let before = history.trace.supervisor().partition_point(|(at, _)| *at <= by);
    let is_intact = |it: &StoredCopy| {
        let is_kept = !supervision.may_have_lost(it.holder, it.life, before);
        it.holder != holder && stays(it.holder) && it.time <= by && is_kept
    };
    !is_corrupted && copies(group, place).any(is_intact)
}

/// Iterates over all copies of an owner's parts.
fn copies<'a>(group: &'a Group<'_>, place: usize) -> impl Iterator<Item = &'a StoredCopy> + 'a {
    group.checkpoints.values().flat_map(move |it| &it.parts[place].copies)
}

#[cfg(test)]
mod tests {
    use super::super::durable_before_commit;
    use super::*;
    use crate::testing::{Run, check_alone, finds};
    use faultline_core::{ClusterId, Fact, Span};
    use faultline_trace::manifest::{Copies, ReplicaHolders};

    /// p1 holds p0's part, and loses its storage.
    fn run() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.common_clock = true;
        run.durable(1, run.image(0, 0, 1));
        run.commit_all(0, &[0]);
        run.wait(Span(1));
        run.kill(1, true);
        run.wait(Span(1));
        run
    }

    #[test]
    fn lost_storage_is_complete_once_it_holds_a_part_of_each_owner_again() {
        let mut run = run();
        run.durable(1, run.image(0, 0, 1));
        run.wait(Span(1));
        run.claim(1, Claim::Protected);
        let finding = check_alone(&durable_before_commit::RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (3, 0));
    }

    #[test]
    fn a_replica_that_becomes_durable_later_is_found() {
        let mut run = run();
        run.claim(1, Claim::Protected);
        run.wait(Span(1));
        run.durable(1, run.image(0, 0, 1));
        let finding = check_alone(&durable_before_commit::RULE, &run);
        finds!(finding, Breach::ProtectedWithoutCopy { holder: ProcessId(1), owner: ProcessId(0) });
        assert_eq!(finding.violation_count(), 1);
    }

    #[test]
    fn no_part_is_expected_if_none_is_left() {
        let found = |happens: fn(&mut Run)| {
            let mut run = run();
            happens(&mut run);
            run.claim(1, Claim::Protected);
            check_alone(&durable_before_commit::RULE, &run).violation_count()
        };
        assert_eq!(found(|run| run.wait(Span(1))), 1);
        assert_eq!(found(|run| run.spoil(0, Span(9))), 0, "the owner's part is corrupt");
        assert_eq!(found(|run| run.kill(0, true)), 0, "the owner's part is lost");
        assert_eq!(found(|run| run.kill(0, false)), 1, "the owner restores its part");
    }

    /// p2 has a part as well, so p0 restores it after a loss.
    #[test]
    fn a_part_at_another_holder_is_restored_first() {
        let found = |is_lost: bool| {
            let mut run = Run::new(&[&[0], &[1], &[2]]);
            run.context.common_clock = true;
            for holder in [1, 2] {
                run.durable(holder, run.image(0, 0, 1));
            }
            run.commit_all(0, &[0]);
            run.wait(Span(1));
            run.kill(1, true);
            run.kill(0, true);
            if is_lost {
                run.kill(2, true);
            }
            run.wait(Span(1));
            run.claim(1, Claim::Protected);
            check_alone(&durable_before_commit::RULE, &run).violation_count()
        };
        assert_eq!((found(false), found(true)), (1, 0));
    }

    #[test]
    fn an_owner_without_a_committed_checkpoint_is_not_awaited() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.common_clock = true;
        run.durable(1, run.image(0, 0, 1));
        run.wait(Span(1));
        run.kill(1, true);
        run.claim(1, Claim::Protected);
        assert_eq!(check_alone(&durable_before_commit::RULE, &run).violation_count(), 0);
    }

    #[test]
    fn a_part_of_a_process_that_departs_is_not_expected() {
        let found = |happens: fn(&mut Run)| {
            let mut run = run();
            happens(&mut run);
            run.wait(Span(1));
            run.claim(1, Claim::Protected);
            check_alone(&durable_before_commit::RULE, &run).violation_count()
        };
        assert_eq!(found(|run| run.lose_permanently(0)), 0, "the owner failed permanently");
        assert_eq!(found(|run| run.supervisor(Fact::Left(ClusterId(0)))), 0, "the owner's cluster left");
    }

    /// p1 holds p0's part, and loses its storage; p2 leaves or fails permanently.
    #[test]
    fn other_departures_do_not_excuse_a_holder() {
        let found = |happens: fn(&mut Run), copy_at_third: bool| {
            let mut run = Run::new(&[&[0], &[1], &[2]]);
            run.context.common_clock = true;
            run.durable(1, run.image(0, 0, 1));
            if copy_at_third {
                run.durable(2, run.image(0, 0, 1));
            }
            run.commit_all(0, &[0]);
            run.wait(Span(1));
            run.kill(1, true);
            happens(&mut run);
            run.wait(Span(1));
            run.claim(1, Claim::Protected);
            check_alone(&durable_before_commit::RULE, &run).violation_count()
        };
        assert_eq!(found(|run| run.lose_permanently(2), false), 1);
        assert_eq!(found(|run| run.supervisor(Fact::Left(ClusterId(2))), false), 1);
        let loses_both: fn(&mut Run) = |run| {
            run.kill(0, true);
            run.lose_permanently(2);
        };
        assert_eq!(found(loses_both, true), 0, "only a process that departed has a copy");
    }

    #[test]
    fn a_join_may_move_replicas_until_the_next_commit() {
        let found = |commits_later: bool, to: Option<u32>| {
            let mut run = Run::new(&[&[0], &[1], &[2]]);
            run.context.common_clock = true;
            run.durable(1, run.image(0, 0, 1));
            run.commit_all(0, &[0]);
            join(&mut run);
            if commits_later {
                to.into_iter().for_each(|it| run.durable(it, run.image(0, 0, 2)));
                run.commit_all(0, &[0]);
                run.wait(Span(1));
            }
            lose_holder(&mut run);
            without_copy(&mut run)
        };
        assert_eq!(found(false, None), 0, "p0 has committed nothing since the join");
        assert_eq!(found(true, Some(2)), 0, "p2 has become the holder");
        assert_eq!(found(true, Some(1)), 1, "p1 is still the holder");
    }

    /// Cluster 2 joins.
    fn join(run: &mut Run) {
        run.wait(Span(1));
        run.supervisor(Fact::Joined(ClusterId(2)));
        run.wait(Span(1));
    }

    /// p1 loses its storage.
    fn lose_holder(run: &mut Run) {
        run.kill(1, true);
        run.wait(Span(1));
    }

    /// Lets p1 claim that it is protected, and returns how many replicas it lacks.
    fn without_copy(run: &mut Run) -> usize {
        run.claim(1, Claim::Protected);
        check_alone(&durable_before_commit::RULE, run).some_wrong::<Breach>().count()
    }

    #[test]
    fn a_part_saved_before_a_join_may_be_committed_after_it() {
        let found = |joins_before: bool| {
            let mut run = Run::new(&[&[0], &[1], &[2]]);
            run.context.common_clock = true;
            if joins_before {
                join(&mut run);
            }
            let (name, witness) = (run.image(0, 0, 1), run.witness(0));
            run.state(0, Fact::Saved(Box::new((name, witness, 0))));
            run.durable(1, name);
            if !joins_before {
                join(&mut run);
            }
            run.commit_all(0, &[0]);
            run.wait(Span(1));
            lose_holder(&mut run);
            without_copy(&mut run)
        };
        assert_eq!((found(true), found(false)), (1, 0));
    }

    /// p0 saves a part at p1 before it learns that cluster 2 has joined.
    #[test]
    fn processes_that_have_replaced_a_holder_must_have_all_replicas() {
        let found = |holders: &[u32]| {
            let mut run = Run::new(&[&[0], &[1], &[2], &[3]]);
            run.context.common_clock = true;
            run.context.copies = Some(Copies { replicas: 2, kept_by: ReplicaHolders::OtherCluster });
            join(&mut run);
            let keep = |run: &mut Run, holders: &[u32], sn| {
                holders.iter().for_each(|it| run.durable(*it, run.image(0, 0, sn)));
                run.commit_all(0, &[0]);
                run.wait(Span(1));
            };
            keep(&mut run, &[1, 3], 1);
            lose_holder(&mut run);
            keep(&mut run, holders, 2);
            without_copy(&mut run)
        };
        assert_eq!(found(&[2, 3]), 0);
        assert_eq!(found(&[3]), 1, "a replica is missing");
    }
}
