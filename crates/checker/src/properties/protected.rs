//! A process that lost its storage states that it is protected only once it holds replicas again: one for each owner of
//! which it held a part of a committed checkpoint before the loss.
//!
//! Judged if all processes read one clock, and if no process failed permanently and no cluster joined or left, because
//! other processes then become holders.

use std::collections::BTreeSet;

use faultline_core::{Claim, ProcessId, Time};

use crate::finding::{Breach, Findings};
use faultline_history::{Group, History};

/// Adds what is wrong to the finding of `durableBeforeCommit`.
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
            for place in 0..group.members.len() {
                let owner = group.members[place];
                if !held(group, place, holder, lost) {
                    continue;
                }
                finding.instances += 1;
                let has_copy = copies(group, place, holder).any(|at| lost < at && at <= by);
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

/// Iterates over the times at which parts of an owner became durable at `holder`.
fn copies<'a>(group: &'a Group<'_>, place: usize, holder: ProcessId) -> impl Iterator<Item = Time> + 'a {
    let parts = group.checkpoints.values().map(move |it| &it.parts[place]);
    let times: BTreeSet<Time> =
        parts.flat_map(|it| &it.copies).filter(|it| it.holder == holder).map(|it| it.time).collect();
    times.into_iter()
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
