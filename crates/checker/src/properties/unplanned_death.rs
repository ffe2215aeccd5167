//! No process ended unexpectedly. The protocol recovers such a process like any other, but the run was not
//! the one requested: something broke, or another program killed the process.

use crate::history::History;
use crate::judgement::{Finding, Property};

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::NoUnplannedDeath);
    for end in &history.supervision.ends {
        finding.instances += 1;
        if !end.is_ordered {
            let process = history.context.process(end.process);
            finding.unjudged(|| {
                format!(
                    "{process} ended unexpectedly at {:.2} s, without a planned fault",
                    end.at.as_secs_f64()
                )
            });
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_core::{Fact, Life, ProcessId};

    #[test]
    fn an_end_that_the_supervisor_only_detected_is_unplanned() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.kill(0, false);
        assert_eq!(check_alone(check, &run).unknown, None);
        run.supervisor(Fact::Detected { process: ProcessId(1), life: Life(1) });
        let reason = check_alone(check, &run).unknown.expect("the supervisor did not order it");
        assert!(reason.contains("p1 ended unexpectedly"), "{reason}");
    }
}
