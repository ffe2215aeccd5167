//! Collection is safe: no process rolls back to a checkpoint that it claimed to have collected. If a rollback had to
//! pass over a checkpoint because it was collected, `maximal_line` detects it; if a log entry was collected too early,
//! `no_loss` does.

use faultline_core::{Claim, FactKind, ProcessId, Sn};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Context, History, Point};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    CollectedBeforeRollback { process: ProcessId, below: Sn, to: Sn },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::CollectedBeforeRollback { process: by, below, to } = *self;
        format!(
            "{} rolled back to {to}, although it had collected all checkpoints below {below}",
            names.process(by)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::SafeCollection, "nothing was collected that a rollback needed", check)
        .needs(&[FactKind::Collected]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let collections: Vec<(Point, Sn)> = history
        .claims
        .iter()
        .filter_map(|it| match it.claim {
            Claim::Collected { below, .. } => Some((it.at, *below)),
            _ => None,
        })
        .collect();
    finding.instances = collections.len() as u64;
    if collections.is_empty() {
        return;
    }
    for restored in history.groups.iter().flat_map(|it| it.rollbacks.values()).flat_map(|it| it.restores()) {
        let process = history.process_of(restored.at);
        // The initial state is not a checkpoint and cannot be collected.
        let Some(sn) = restored.checkpoint.map(|name| name.position.sn) else { continue };
        let first = history.processes[process.index()].segments.start;
        let own = collections.partition_point(|(at, _)| at.segment.0 < first);
        let earlier = collections[own..].iter().take_while(|(at, _)| *at < restored.at);
        if let Some(&(at, below)) = earlier.max_by_key(|(_, below)| *below).filter(|(_, below)| sn < *below) {
            finding.violated(
                [history.source(at), history.source(restored.at)],
                Breach::CollectedBeforeRollback { process, below, to: sn },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_core::Fact;

    fn run(below: u32) -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.commit_all(0, &[0]);
        let claim = Claim::Collected { round: 1, below: Sn(below), kept: 1, log: 0 };
        run.state(0, Fact::Claim(Box::new(claim)));
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        run
    }

    #[test]
    fn rolling_back_behind_a_collection_is_found() {
        assert_eq!(check_alone(&RULE, &run(1)).violation_count(), 0);
        assert_eq!(check_alone(&RULE, &run(1)).instances, 1);
        assert_eq!(check_alone(&RULE, &run(2)).violation_count(), 1);
    }

    #[test]
    fn a_collection_by_another_process_does_not_count() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let claim = Claim::Collected { round: 1, below: Sn(9), kept: 1, log: 0 };
        run.state(1, Fact::Claim(Box::new(claim)));
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }
}
