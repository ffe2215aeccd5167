//! Every rank's result equals that of a run without faults.

use faultline_core::fault::Outcome;

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use faultline_core::{Digest, FactKind, ProcessId};
use faultline_history::{Context, Ending, History};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    WrongResult { process: ProcessId, found: Digest, expected: Digest },
    NeverFinished { process: ProcessId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::WrongResult { process: of, found, expected } => {
                format!("{} finished with the result {found} instead of {expected}", names.process(of))
            }
            Breach::NeverFinished { process: of } => {
                format!("{} never finished, or a rollback undid its completion", names.process(of))
            }
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::SameResult, "every result equals that of a run without faults", check)
        .needs(&[FactKind::Finished])
        .with(&[Aspect::NeedsNoOtherFact]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let context = history.context;
    let (Some(expected), Some(Outcome::Completed)) = (&context.expected, &context.outcome) else {
        return;
    };
    if expected.is_empty() {
        finding.unjudged(
            "the result differs between two runs of the program without faults",
            "is the program deterministic? Derive random numbers from `seed`, and read no clock",
        );
        return;
    }
    let gone = history.supervision.gone(&context.clusters);
    let unknown = |rank| format!("the final state of {} is unknown", context.process(rank));
    for &(rank, digest) in expected {
        // A permanently failed process has no result; the processes that took over its work do.
        if history.ending(rank) == Ending::Gone || gone.contains(&rank) {
            continue;
        }
        let Ending::Known(end) = history.ending(rank) else {
            finding.lacks_facts(unknown(rank));
            continue;
        };
        // If the partition has moved, the process that runs it has a result of its own.
        if history.segment(end.segment).host != rank {
            continue;
        }
        finding.instances += 1;
        let after = history.results.partition_point(|(at, ..)| *at < end);
        let last = after.checked_sub(1).map(|index| history.results[index]);
        match last.filter(|(at, ..)| at.segment == end.segment) {
            Some((_, _, result)) if result == digest => {}
            Some((at, _, found)) => {
                let expected = digest;
                finding
                    .violated([history.source(at)], Breach::WrongResult { process: rank, found, expected });
            }
            // The missing facts may include the result, or the fact that the process failed permanently.
            None if history.is_flawed() => finding.lacks_facts(unknown(rank)),
            None => finding.violated([], Breach::NeverFinished { process: rank }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::Digest;
    use faultline_trace::{Flaw, FlawKind};

    fn run(results: &[u8]) -> Run {
        let mut run = Run::new(&[&[0]]);
        run.commit_all(0, &[0]);
        results.iter().for_each(|&result| run.finish(0, Digest([result; 16])));
        run.context.expected = Some(vec![(p(0), Digest([1; 16]))]);
        run
    }

    #[test]
    fn the_last_result_counts() {
        let finding = check_alone(&RULE, &run(&[2, 1]));
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
        assert_eq!(check_alone(&RULE, &run(&[1, 2])).violation_count(), 1);
        assert_eq!(check_alone(&RULE, &run(&[])).violation_count(), 1);
    }

    #[test]
    fn results_are_not_compared_if_they_differ_without_faults() {
        let mut run = run(&[2]);
        run.context.expected = Some(Vec::new());
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.violation_count(), 0);
        assert!(finding.open.is_some());
    }

    #[test]
    fn a_missing_result_is_no_violation_if_facts_are_missing() {
        let mut run = run(&[]);
        run.trace.flaws.push(Flaw { stream: None, kind: FlawKind::NoDigest });
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.violation_count(), 0);
        assert!(finding.open.is_some());
    }

    #[test]
    fn a_permanently_failed_process_has_no_result() {
        let mut run = crate::testing::tasks::TaskRun::new(2);
        run.begin(0, 0);
        run.begin(1, 0);
        run.finish(0, 0, 0);
        run.0.context.expected = Some(vec![(p(0), Digest([1; 16])), (p(1), Digest([1; 16]))]);
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 1);
        run.lose_permanently(1);
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 0);
    }

    #[test]
    fn a_result_that_was_undone_does_not_count() {
        let mut run = run(&[1]);
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
    }
}
