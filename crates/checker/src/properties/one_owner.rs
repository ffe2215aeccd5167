//! Each task has one owner: a process takes a lent task back only if its thief does not have it, and never will.
//!
//! This property is judged by what survives. If one final state includes taking the task back, and another includes
//! stealing it, the task has run in two places. One such case is correct: the victim had used the result, the thief had
//! dropped it, and a later failure lost every copy of the victim's state.

use faultline_core::{FactKind, ProcessId, TaskId, Theft, TheftStep};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use crate::words::theft_name;
use faultline_history::{Context, History, Step};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    TookBackStolen { victim: ProcessId, thief: ProcessId, task: TaskId, theft: Theft },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::TookBackStolen { victim, thief, task, theft } = *self;

        let (victim, thief) = (names.process(victim), names.process(thief));
        format!(
            "{victim} took back {}, although {thief} had stolen it ({})",
            names.task(task),
            theft_name(theft, names)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::OneOwner, "every task had one owner at a time", check).needs(&[FactKind::Lent]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(tasks) = &history.tasks else { return };
    for (&theft, steps) in &tasks.thefts {
        finding.instances += 1;
        let surviving = |step| move |it: &&Step| it.step == step && history.survives(it.at);
        let Some(voided) = steps.iter().find(surviving(TheftStep::Voided)) else { continue };
        let Some(taken) = steps.iter().find(surviving(TheftStep::Taken)) else { continue };
        let was_used = steps.iter().any(|it| it.step == TheftStep::Merged);
        if was_used && steps.iter().any(|it| surviving(TheftStep::Forgotten)(&it)) {
            continue;
        }
        let (victim, thief) = (history.process_of(voided.at), history.process_of(taken.at));
        finding.violated(
            [history.source(voided.at), history.source(taken.at)],
            Breach::TookBackStolen { victim, thief, task: voided.task, theft },
        );
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::TheftStep::{Forgotten, Merged, Taken, Voided};

    use super::*;
    use crate::testing::check_alone;
    use crate::testing::tasks::{TaskRun, theft};

    /// p0 lends a task to p1, which takes it.
    fn run() -> TaskRun {
        let mut run = TaskRun::new(2);
        let task = run.begin(0, 1)[0];
        run.lend(0, theft(0, 1), task);
        run.step(1, theft(0, 1), task, Taken);
        run
    }

    fn found(mut run: TaskRun, steps: &[(u32, TheftStep)]) -> u64 {
        let task = faultline_core::TaskId::MAIN.child(0);
        steps.iter().for_each(|(process, step)| run.step(*process, theft(0, 1), task, *step));
        check_alone(&RULE, &run.0).violation_count()
    }

    #[test]
    fn a_task_that_its_thief_has_must_not_be_taken_back() {
        assert_eq!(found(run(), &[]), 0);
        assert_eq!(found(run(), &[(0, Voided)]), 1);
        assert_eq!(found(run(), &[(0, Voided), (1, Forgotten)]), 1);
        assert_eq!(found(run(), &[(0, Merged), (1, Forgotten), (0, Voided)]), 0);
    }

    #[test]
    fn a_thief_that_lost_the_task_does_not_have_it() {
        let mut run = run();
        run.0.kill(1, true);
        run.restore(1, None);
        assert_eq!(found(run, &[(0, Voided)]), 0);
    }
}
