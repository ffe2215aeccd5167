//! The evidence is complete, and belongs to the run that the record names.
//!
//! Reading a record reveals streams that differ from their seals, entries of the manifest that do not follow from the
//! federation, and facts that contradict each other ([`faultline_trace::Flaw`]). None of this is the fault of a
//! protocol, so it is never a violation.

use crate::evidence::contradiction;
use crate::finding::{COMPLETE_RECORD, Findings};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::History;
use faultline_trace::Flaw;

/// The maximum number of flaws that a verdict lists individually.
const NAMED: usize = 4;

pub(super) const RULE: Rule =
    Rule::new(Property::RecordComplete, "the record is complete and unchanged", check);

fn check(history: &History<'_>, finding: &mut Findings) {
    finding.instances = history.trace.streams.len() as u64;
    let unmatched = history.context.unmatched.filter(|it| *it > 0);
    if let Some(lines) = unmatched {
        finding.remark(match lines {
            1 => "1 line of the events matches no rule".to_owned(),
            _ => format!("{lines} lines of the events match no rule"),
        });
    }
    if !history.is_flawed() {
        return;
    }
    let (flaws, contradictions) = (&history.trace.flaws, &history.contradictions);
    let names = history.context;
    let stated = flaws.iter().map(|flaw| flaw.describe(|it| names.process(it)));
    let stated = stated.chain(contradictions.iter().map(|it| contradiction(it, names)));
    let mut reason = stated.take(NAMED).collect::<Vec<_>>().join("; ");
    let more = (flaws.len() + contradictions.len()).saturating_sub(NAMED);
    if more > 0 {
        reason += &format!("; and {more} more of this kind");
    }
    match flaws.iter().take(NAMED).any(Flaw::is_change) {
        _ if names.unmatched.is_some() => {
            finding.unjudged(reason, "complete the events, and import them again")
        }
        true => finding.unjudged(reason, "use an unchanged copy of the record, or repeat the run"),
        false => finding.unjudged(reason, COMPLETE_RECORD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::Life;
    use faultline_trace::FlawKind;

    #[test]
    fn flaws_are_reported_and_never_violations() {
        let mut run = Run::new(&[&[0], &[1]]);
        assert_eq!(check_alone(&RULE, &run).gap(), "");
        run.trace.flaws.push(Flaw { stream: Some((p(1), Life(1))), kind: FlawKind::Absent });
        run.trace.flaws.push(Flaw { stream: None, kind: FlawKind::Contradiction("it was edited".into()) });
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.violation_count(), 0);
        assert_eq!(
            finding.gap(),
            "the facts of p1, life 1 are missing: there is no file; it was edited; restore the files of the record from a \
             complete copy, or repeat the run"
        );
        run.trace.flaws.extend(vec![Flaw { stream: None, kind: FlawKind::NoDigest }; 5]);
        let finding = check_alone(&RULE, &run);
        assert!(finding.gap().contains("; and 3 more of this kind; "), "{finding:?}");
    }
}
