//! Only thefts, recoveries and the end of the program force checkpoints: in each life, at most one for each task that
//! the process lent, one for each stolen task that it completed, one for the end of the program, and those of its
//! recovery. This property is judged for protocols that promise it.

use std::collections::BTreeSet;

use faultline_core::{Claim, Fact, FactKind, FactNo, Life, ProcessId, Promise, TheftStep};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use crate::words::count;
use faultline_history::{Context, History, Source};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    ForcedTooOften { process: ProcessId, life: Life, forced: u64, allowed: u64 },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::ForcedTooOften { process: by, life, forced, allowed } = *self;
        format!(
            "{life} of {} took {}, but its thefts, its recovery and the end of the program force at most {allowed}",
            names.process(by),
            count(forced, "forced checkpoint")
        )
    }
}

pub(super) const RULE: Rule = Rule::new(
    Property::ForcedPerTheft,
    "only thefts, recoveries and the program's end forced checkpoints",
    check,
)
.promised(Promise::ForcedByThefts)
.needs(&[FactKind::Lent, FactKind::CheckpointCommitted]);

fn check(history: &History<'_>, finding: &mut Findings) {
    if history.tasks.is_none() {
        return;
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
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 0, "one theft, and the end of the program");
        run.commit(0, 4, true);
        let finding = check_alone(&RULE, &run.0);
        finds!(finding, Breach::ForcedTooOften { forced: 3, .. });
        run.0.withdraw(Promise::ForcedByThefts);
        assert_eq!(check_alone(&RULE, &run.0).instances, 0);
    }
}
