//! The run came to its end.

use faultline_core::fault::Outcome;

use crate::history::History;
use crate::judgement::{Finding, Property};

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::Completed);
    let context = history.context;
    finding.instances = 1;
    match &context.outcome {
        Some(Outcome::Completed) => {}
        Some(Outcome::Deadline) => {
            finding.unjudged(|| "the deadline passed before every rank had finished".into());
        }
        Some(Outcome::Interrupted) => finding.unjudged(|| "the run was interrupted".into()),
        Some(Outcome::Unrecoverable { cluster, missing }) => finding.unjudged(|| {
            let parts: Vec<String> = missing
                .iter()
                .map(|(name, asked)| {
                    let asked: Vec<String> = asked.iter().map(|&it| context.process(it)).collect();
                    let part = format!("the part of {}", context.process(name.owner));
                    format!("{part} (checkpoint {}), asked of {}", name.position(), asked.join(", "))
                })
                .collect();
            let missing = if parts.is_empty() { "every checkpoint".into() } else { parts.join("; ") };
            format!("{} is unrecoverable by design: missing is {missing}", context.cluster(*cluster))
        }),
        None => finding.unjudged(|| "the run was cut short".into()),
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::ClusterId;

    #[test]
    fn only_completion_is_completion() {
        let mut run = Run::new(&[&[0]]);
        assert_eq!(check_alone(check, &run).unknown, None);
        for outcome in [Some(Outcome::Deadline), Some(Outcome::Interrupted), None] {
            run.context.outcome = outcome;
            assert!(check_alone(check, &run).unknown.is_some());
        }
    }

    #[test]
    fn the_unrecoverable_names_who_was_asked() {
        let mut run = Run::new(&[&[0], &[1]]);
        let missing = [(run.image(0, 0, 3), vec![p(0), p(1)])].into();
        run.context.outcome = Some(Outcome::Unrecoverable { cluster: ClusterId(0), missing });
        let reason = check_alone(check, &run).unknown.unwrap();
        assert!(reason.contains("the part of p0 (checkpoint 0.3), asked of p0, p1"), "{reason}");
    }
}
