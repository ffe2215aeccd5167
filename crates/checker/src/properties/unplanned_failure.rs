//! No process ended unexpectedly. The protocol recovers from an unexpected end as from any other failure, but
//! the run was not the requested one: something broke, or another program killed the process.

use crate::finding::{Findings, Gap};
use crate::judgement::Property;
use faultline_history::History;

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::NoUnplannedFailure);
    for end in &history.supervision.ends {
        finding.instances += 1;
        if !end.is_ordered {
            finding.unjudged(Gap::EndedUnexpectedly { process: end.process, at: end.at });
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_core::{ClusterId, Fact, Life, ProcessId};

    #[test]
    fn an_end_that_the_supervisor_only_detected_is_unplanned() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.kill(0, false);
        assert_eq!(check_alone(check, &run).open, None);
        run.supervisor(Fact::Detected { process: ProcessId(1), life: Life(1) });
        let reason = check_alone(check, &run).open.expect("the supervisor did not order this end");
        assert!(matches!(reason, Gap::EndedUnexpectedly { process: ProcessId(1), .. }), "{reason:?}");
    }

    #[test]
    fn a_process_whose_cluster_has_not_joined_cannot_fail() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.supervisor(Fact::Detected { process: ProcessId(1), life: Life(1) });
        assert!(check_alone(check, &run).open.is_some(), "the cluster may have been there from the start");
        run.supervisor(Fact::Joined(ClusterId(1)));
        assert_eq!((check_alone(check, &run).instances, check_alone(check, &run).open), (0, None));
        run.supervisor(Fact::Detected { process: ProcessId(1), life: Life(2) });
        assert!(check_alone(check, &run).open.is_some(), "the cluster has joined");
    }
}
