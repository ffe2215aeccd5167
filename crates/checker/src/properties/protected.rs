//! A process that lost its storage reports that it is protected only once it holds replicas again: one for each owner
//! of which it held a part of a committed checkpoint before the loss.
//!
//! An owner that no longer has an intact part cannot send one. The holder then learns that none is left, and states
//! that it is protected: this is not judged if the owner's storage was corrupted, or if no other process may still have
//! a part. An owner whose storage was lost as well is no excuse while another holder has a part, because the owner
//! restores that part first.
//!
//! This property is judged if all processes read one clock, and if no process failed permanently and no cluster joined
//! or left, because other processes then become holders.

use faultline_core::fault::StorageFault;
use faultline_core::{Claim, Fault, ProcessId, Time};

use crate::finding::{Breach, Findings};
use faultline_history::{Group, History, StoredCopy};

/// Adds the violations to the finding of `durableBeforeCommit`.
pub(super) fn check(history: &History<'_>, finding: &mut Findings) {
    let supervision = &history.supervision;
    let is_fixed = supervision.joined.is_empty() && supervision.left.is_empty();
    if !history.context.common_clock || !is_fixed || !supervision.gone(&history.context.clusters).is_empty() {
        return;
    }
    for claimed in history.claims.iter().filter(|it| matches!(it.claim, Claim::Protected)) {
        let (holder, by) = (history.process_of(claimed.at), claimed.time);
        let losses = supervision.ends.iter().filter(|it| it.process == holder && it.is_storage_lost);
        let Some(lost) = losses.map(|it| it.at).filter(|at| *at <= by).max() else { continue };
        for (_, group) in history.groups.numbered() {
            for (place, &owner) in group.members.iter().enumerate() {
                if !held(group, place, holder, lost) || !may_be_sent(history, group, place, holder, by) {
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

/// Returns whether `holder` held a part that had been committed before `lost`.
fn held(group: &Group<'_>, place: usize, holder: ProcessId, lost: Time) -> bool {
    group.checkpoints.values().any(|checkpoint| {
        let is_committed = checkpoint.commits.iter().any(|it| it.time < lost);
        let mut copies = checkpoint.parts[place].copies.iter();
        is_committed && copies.any(|it| it.holder == holder && it.time < lost)
    })
}

/// Returns whether an owner can still send a part to `holder`: its storage was never corrupted, and a process other
/// than
/// `holder` has an intact part.
fn may_be_sent(history: &History<'_>, group: &Group<'_>, place: usize, holder: ProcessId, by: Time) -> bool {
    let owner = group.members[place];
    let corrupts = |fault: &Fault| match fault {
        Fault::Storage { process, how: StorageFault::Corrupt, .. } => *process == owner,
        _ => false,
    };
    let supervision = &history.supervision;
    let is_corrupted = supervision.injected.iter().any(|(_, fault, at, _)| *at <= by && corrupts(fault));
    let before = history.trace.supervisor().partition_point(|(at, _)| *at <= by);
    let is_intact = |it: &StoredCopy| {
        it.holder != holder && it.time <= by && !supervision.may_have_lost(it.holder, it.life, before)
    };
    !is_corrupted && copies(group, place).any(is_intact)
}

/// Iterates over all copies of the parts of an owner.
fn copies<'a>(group: &'a Group<'_>, place: usize) -> impl Iterator<Item = &'a StoredCopy> + 'a {
    group.checkpoints.values().flat_map(move |it| &it.parts[place].copies)
}

#[cfg(test)]
mod tests {
    use super::super::durable_before_commit;
    use super::*;
    use crate::finding::Breach;
    use crate::testing::{Run, check_alone, finds};
    use faultline_core::Span;

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
        let finding = check_alone(durable_before_commit::check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (3, 0));
    }

    #[test]
    fn a_replica_that_becomes_durable_later_is_found() {
        let mut run = run();
        run.claim(1, Claim::Protected);
        run.wait(Span(1));
        run.durable(1, run.image(0, 0, 1));
        let finding = check_alone(durable_before_commit::check, &run);
        finds!(finding, Breach::ProtectedWithoutCopy { holder: ProcessId(1), owner: ProcessId(0) });
        assert_eq!(finding.violation_count(), 1);
    }

    #[test]
    fn no_part_is_expected_if_none_is_left() {
        let found = |happens: fn(&mut Run)| {
            let mut run = run();
            happens(&mut run);
            run.claim(1, Claim::Protected);
            check_alone(durable_before_commit::check, &run).violation_count()
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
            check_alone(durable_before_commit::check, &run).violation_count()
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
        assert_eq!(check_alone(durable_before_commit::check, &run).violation_count(), 0);
    }
}
