//! Recovery terminates: one failure makes a cluster roll back at most once for each checkpoint that it could restore,
//! plus a few times for each cluster of the federation.
//!
//! The attribution of rollbacks to a failure is self-reported: each cluster names the rollback that made its own
//! necessary. A cluster that resumes before all others have rolled back may have to follow them again, which can happen
//! a few times. This property requires that the repetition ends. Under protocols that do not promise progress, endless
//! repetition is only reported as a remark.

use faultline_core::{Cause, FactKind, Incarnation, Promise};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use crate::words::how_often;
use faultline_history::{Context, GroupId, History};

/// The number of rollbacks allowed for each cluster of the federation, in addition to one for each checkpoint.
const ROUNDS: usize = 4;

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    RolledBackRepeatedly { group: GroupId, times: usize },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::RolledBackRepeatedly { group: by, times } = *self;

        format!("{} rolled back {} for the same failure", names.group(by), how_often(times as u64))
    }
}

pub(super) const RULE: Rule = Rule::new(Property::RecoveryTerminates, "every recovery terminated", check)
    .promised(Promise::Progress)
    .needs(&[FactKind::RecoveryStarted])
    .with(&[Aspect::RemarkedIfNotPromised]);

fn check(history: &History<'_>, finding: &mut Findings) {
    for (number, group) in history.groups.numbered() {
        // The chains of one cluster's rollbacks usually contain each other, so the first chain that is too long
        // suffices.
        for (&incarnation, rollback) in &group.rollbacks {
            finding.instances += 1;
            let (visits, first) = visits(history, number, incarnation);
            let had = group.checkpoints.iter().filter(|(name, checkpoint)| {
                name.position.incarnation < first && !checkpoint.commits.is_empty()
            });
            let limit = had.count() + ROUNDS * history.groups.len();
            if visits > limit {
                let at = rollback.restores().map(|it| it.at).next().or(rollback.cause.map(|(_, at)| at));
                let evidence = history.source(at.expect("a fact states every rollback"));
                finding.violated([evidence], Breach::RolledBackRepeatedly { group: number, times: visits });
                break;
            }
        }
    }
}

/// Returns how often a group occurs in the chain of causes of one of its rollbacks, and its first occurrence.
fn visits(history: &History<'_>, number: GroupId, incarnation: Incarnation) -> (usize, Incarnation) {
    let (mut visits, mut first) = (0, incarnation);
    let mut at = (number, incarnation);
    // Every cause is older than its effect; the limit guards against claims to the contrary.
    for _ in 0..=history.groups.iter().map(|it| it.rollbacks.len()).sum() {
        if at.0 == number {
            visits += 1;
            first = at.1;
        }
        match history.groups.get(at.0).and_then(|group| group.rollbacks.get(&at.1)?.cause) {
            Some((Cause::Alert { from, position }, _)) => at = (from, position.incarnation),
            _ => break,
        }
    }
    (visits, first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone, position};

    /// Returns a run in which two clusters make each other roll back, each `times` times.
    fn mutual_rollbacks(times: u32) -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.commit_all(1, &[1]);
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        for incarnation in 1..=times {
            let cause =
                |from, incarnation| Cause::Alert { from: GroupId(from), position: position(incarnation, 1) };
            run.restore_because(1, incarnation, Some((0, 1)), cause(0, incarnation));
            run.restore_because(0, incarnation + 1, Some((0, 1)), cause(1, incarnation));
        }
        run
    }

    #[test]
    fn endless_mutual_rollbacks_are_found() {
        let finding = check_alone(&RULE, &mutual_rollbacks(2));
        assert_eq!((finding.instances, finding.violation_count()), (5, 0));
        let finding = check_alone(&RULE, &mutual_rollbacks(10));
        assert_eq!(finding.violation_count(), 2);
        finds!(finding, Breach::RolledBackRepeatedly { .. });
    }

    #[test]
    fn endless_rollbacks_under_a_protocol_that_does_not_promise_progress_are_a_remark() {
        let mut run = mutual_rollbacks(10);
        run.withdraw(faultline_core::Promise::Progress);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count(), finding.remarks.len()), (0, 0, 2));
    }

    #[test]
    fn rollbacks_after_many_failures_are_allowed() {
        let mut run = Run::new(&[&[0]]);
        run.commit_all(0, &[0]);
        (1..20).for_each(|incarnation| run.restore(0, incarnation, Some((0, 1))));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }
}
