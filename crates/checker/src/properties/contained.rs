//! Containment (HydEE section I): only a failed cluster rolls back, and only as often as it failed. This property is
//! judged by restored states, not by claims: a process rolled back if it reported that its state was replaced. It is
//! judged for protocols that promise it.

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use crate::words::how_often;
use faultline_core::{FactKind, Promise};
use faultline_history::{Context, GroupId, History, Rollback};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    RolledBackTooOften { group: GroupId, times: usize, deaths: usize },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::RolledBackTooOften { group: by, times, deaths } = *self;

        let failures = match deaths {
            0 => "none of its processes failed".to_owned(),
            some => format!("its processes failed only {}", how_often(some as u64)),
        };
        format!("{} rolled back {}, but {failures}", names.group(by), how_often(times as u64))
    }
}

pub(super) const RULE: Rule = Rule::new(Property::Contained, "only failed clusters rolled back", check)
    .promised(Promise::Containment)
    .needs(&[FactKind::Failed, FactKind::Restored]);

fn check(history: &History<'_>, finding: &mut Findings) {
    for (number, group) in history.groups.numbered() {
        finding.instances += 1;
        let ends = history.supervision.ends.iter();
        let deaths = ends.filter(|end| history.group_of(end.process) == Some(number)).count();
        let rollbacks: Vec<&Rollback> =
            group.rollbacks.values().filter(|it| it.restores().next().is_some()).collect();
        if let Some(excess) = rollbacks.get(deaths) {
            let restored = excess.restores().next().expect("a process restored a state");
            finding.violated(
                [history.source(restored.at)],
                Breach::RolledBackTooOften { group: number, times: rollbacks.len(), deaths },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone};
    use faultline_core::Promise;

    fn run() -> Run {
        let mut run = Run::repeating(&[Promise::Containment], &[&[0, 1], &[2]]);
        run.commit_all(0, &[0, 1]);
        run.commit_all(1, &[2]);
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        run.restore(1, 1, Some((0, 1)));
        run
    }

    #[test]
    fn a_failed_process_may_roll_back() {
        let finding = check_alone(&RULE, &run());
        assert_eq!((finding.instances, finding.violation_count()), (2, 0));
    }

    #[test]
    fn no_other_process_may_roll_back() {
        let mut run = run();
        run.restore(2, 1, Some((0, 1)));
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::RolledBackTooOften { deaths: 0, .. });
    }

    #[test]
    fn no_process_may_roll_back_twice_for_one_failure() {
        let mut run = run();
        run.restore(0, 2, Some((0, 1)));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
    }

    #[test]
    fn a_protocol_that_promises_nothing_is_not_judged() {
        let mut run = run();
        run.restore(2, 1, Some((0, 1)));
        run.withdraw(Promise::Containment);
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }
}
