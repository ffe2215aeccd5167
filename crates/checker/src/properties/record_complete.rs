//! The evidence is complete, and belongs to the run that the record names.
//!
//! Reading a record reveals which streams differ from their seals, which entries of its manifest do not
//! follow from its federation, and where its facts contradict each other ([`faultline_trace::Flaw`]). None of
//! this speaks against a protocol, so it is never a violation.

use crate::history::History;
use crate::judgement::{Finding, Property};

/// The number of flaws that a verdict names one by one.
const NAMED: usize = 4;

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::RecordComplete);
    finding.instances = history.trace.streams.len() as u64;
    if !history.is_flawed() {
        return finding;
    }
    finding.unjudged(|| {
        let name = |process| history.context.process(process);
        let flaws = history.trace.flaws.iter().map(|flaw| flaw.describe(name));
        let all = flaws.chain(history.contradictions.iter().cloned());
        let named: Vec<String> = all.clone().take(NAMED).collect();
        let more = match all.count() - named.len() {
            0 => String::new(),
            more => format!("; and {more} more of this kind"),
        };
        format!("{}{more}", named.join("; "))
    });
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
        assert_eq!(check_alone(check, &run).unknown, None);
        run.trace.flaws.push(Flaw { stream: Some((p(1), Life(1))), kind: FlawKind::Absent });
        run.trace.flaws.push(Flaw { stream: None, kind: FlawKind::Contradiction("it was edited".into()) });
        let finding = check_alone(check, &run);
        assert_eq!(finding.violation_count(), 0);
        assert_eq!(
            finding.unknown.unwrap(),
            "the facts of p1, life 1 are missing: there is no file; it was edited"
        );
        run.trace.flaws.extend(vec![Flaw { stream: None, kind: FlawKind::NoDigest }; 5]);
        assert!(check_alone(check, &run).unknown.unwrap().ends_with("; and 3 more of this kind"));
    }
}
