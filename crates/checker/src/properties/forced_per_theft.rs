//! Only thefts, recoveries and the end of the program force checkpoints: in each life, at most one for each task that
//! the process lent, one for each stolen task that it completed, one for the end of the program, and those of its
//! recovery. This property is judged for protocols that promise it.

use std::collections::BTreeSet;

use faultline_core::{Claim, Fact, FactNo, TheftStep};

use crate::finding::{Breach, Findings};
use crate::judgement::Property;
use faultline_history::{History, Source};

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::ForcedPerTheft);
    if !finding.property.is_judged(history.context) || history.tasks.is_none() {
        return finding;
    }
    for (&(process, life), stream) in &history.trace.streams {
        let mut allowed = 1;
        let mut forced = 0;
        let mut used = BTreeSet::new();
        let mut excess = None;
        for (number, (_, fact)) in (0..).zip(stream) {
            match fact {
                Fact::Theft { theft, step, .. } => match step {
                    TheftStep::Lent | TheftStep::Done => allowed += 1,
                    TheftStep::Merged => drop(used.insert(*theft)),
                    // After an absorption, a result may be used at the process that computed it.
                    TheftStep::Forgotten => allowed += u64::from(used.contains(theft)),
                    _ => {}
                },
                // One for the state, and one for the work that the process resumes.
                Fact::Restored(_) | Fact::Absorbed(_) => allowed += 2,
                Fact::Claim(claim) => {
                    if let Claim::Committed { forced: true, .. } = **claim {
                        forced += 1;
                        if forced > allowed {
                            excess.get_or_insert(number);
                        }
                    }
                }
                _ => {}
            }
        }
        finding.instances += forced;
        if let Some(number) = excess {
            let source = Source { process, life, number: FactNo(number) };
            finding.violated([source], Breach::ForcedTooOften { process, life, forced, allowed });
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use faultline_core::Promise;

    use super::*;
    use crate::testing::check_alone;
    use crate::testing::finds;
    use crate::testing::tasks::{TaskRun, theft};

    #[test]
    fn a_theft_forces_one_checkpoint_at_the_victim() {
        let mut run = TaskRun::promising(2, &[Promise::ForcedByThefts]);
        let tasks = run.begin(0, 2);
        run.lend(0, theft(0, 1), tasks[0]);
        run.commit(0, 1, true);
        run.commit(0, 2, true);
        run.commit(0, 3, false);
        assert_eq!(check_alone(check, &run.0).violation_count(), 0, "one theft, and the end of the program");
        run.commit(0, 4, true);
        let finding = check_alone(check, &run.0);
        finds!(finding, Breach::ForcedTooOften { forced: 3, .. });
        run.0.withdraw(Promise::ForcedByThefts);
        assert_eq!(check_alone(check, &run.0).instances, 0);
    }
}
