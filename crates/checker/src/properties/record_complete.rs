//! The evidence is complete, and belongs to the run that the record names.
//!
//! Reading a record reveals streams that differ from their seals, entries of the manifest that do not follow from the
//! federation, and facts that contradict each other ([`faultline_trace::Flaw`]). None of this is the fault of a
//! protocol, so it is never a violation.

use crate::finding::{Findings, Gap, Remark};
use crate::judgement::Property;
use faultline_history::History;

/// The maximum number of flaws that a verdict lists individually.
const NAMED: usize = 4;

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::RecordComplete);
    finding.instances = history.trace.streams.len() as u64;
    let unmatched = history.context.unmatched.filter(|it| *it > 0);
    finding.remarks.extend(unmatched.map(|lines| Remark::Unmatched { lines }));
    if !history.is_flawed() {
        return finding;
    }
    let (flaws, contradictions) = (&history.trace.flaws, &history.contradictions);
    let named = flaws.iter().take(NAMED).cloned().collect::<Vec<_>>();
    let others = contradictions.iter().take(NAMED - named.len()).cloned().collect::<Vec<_>>();
    let more = flaws.len() + contradictions.len() - named.len() - others.len();
    finding.unjudged(Gap::Flawed { flaws: named, contradictions: others, more });
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::Life;
    use faultline_trace::{Flaw, FlawKind};

    #[test]
    fn flaws_are_reported_and_never_violations() {
        let mut run = Run::new(&[&[0], &[1]]);
        assert_eq!(check_alone(check, &run).open, None);
        run.trace.flaws.push(Flaw { stream: Some((p(1), Life(1))), kind: FlawKind::Absent });
        run.trace.flaws.push(Flaw { stream: None, kind: FlawKind::Contradiction("it was edited".into()) });
        let finding = check_alone(check, &run);
        assert_eq!(finding.violation_count(), 0);
        assert_eq!(
            finding.open.unwrap().sentence(&run.context),
            "the facts of p1, life 1 are missing: there is no file; it was edited; restore the files of the record from a \
             complete copy, or repeat the run"
        );
        run.trace.flaws.extend(vec![Flaw { stream: None, kind: FlawKind::NoDigest }; 5]);
        assert!(matches!(check_alone(check, &run).open, Some(Gap::Flawed { more: 3, .. })));
    }
}
