//! The checker's output: one finding per property, and the verdict that follows from them.

use faultline_core::fault::{FlipTarget, Outcome};
use faultline_history::{Context, History};
use faultline_trace::Flaw;
use serde::{Deserialize, Serialize};

use crate::evidence::is_unread;
use crate::finding::{Finding, Findings};
use crate::property::Property;

/// What is known about the evidence of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// It is complete and unchanged, as far as the record shows.
    Whole,
    /// Facts may be missing.
    Incomplete,
    /// A process may have continued with a flipped bit, for which no protocol is to blame.
    Corrupted,
    /// The record was changed after the run.
    Changed,
}

impl Evidence {
    /// Returns what is known about the evidence. Facts may be missing while a run is in progress, or if it was cut short:
    /// no seal shows where its streams end. They are also missing if they do not fit in this program's memory.
    pub(crate) fn of(history: &History<'_>) -> Evidence {
        if history.trace.flaws.iter().any(Flaw::is_change) {
            return Evidence::Changed;
        }
        if history.silently_corrupted().is_some() {
            return Evidence::Corrupted;
        }
        let mut flips = history.supervision.injected.iter().filter_map(|it| it.1.flips());
        let may_be_corrupted = flips.clone().next().is_some();
        // A process that cannot handle a flipped bit may panic before it has reported the bit.
        let has_panicked = matches!(history.context.outcome, Some(Outcome::Panicked(_)));
        if has_panicked && flips.any(|it| it.1 != FlipTarget::Copy) {
            return Evidence::Corrupted;
        }
        match history.is_flawed() || history.context.outcome.is_none() || is_unread(history) {
            true if may_be_corrupted => Evidence::Corrupted,
            true => Evidence::Incomplete,
            false => Evidence::Whole,
        }
    }
}

/// The overall verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Everything that should have been judged was judged, and no violation was found.
    Pass,
    /// Something could not be judged, and no violation was found.
    Unknown,
    /// A violation was found.
    Fail,
}

/// The checker's judgement of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The overall verdict.
    pub verdict: Verdict,
    /// The reasons why the verdict is not a pass, as sentences.
    pub reasons: Vec<String>,
    /// One finding per property.
    pub findings: Vec<Finding>,
}

impl Judgement {
    /// Derives the verdict. If silent corruption may have reached the result, the run does not fail. If facts are missing,
    /// a run fails only because of violations that no missing fact can explain. If the record was changed, the run does not
    /// fail at all. In these cases, the corruption, the gap or the change is the reason for the verdict. Whatever follows
    /// from it is stated only with the property that could not be judged, unless there would be no reason otherwise.
    pub(crate) fn new(findings: Vec<Findings>, evidence: Evidence, names: &Context) -> Judgement {
        let (mut wrong, mut open, mut judged) = (Vec::new(), Vec::new(), Vec::new());
        let mut consequence = None;
        for findings in findings {
            for gap in findings.open.iter().chain(&findings.also_open) {
                let text = gap.text.clone();
                match evidence != Evidence::Whole && gap.follows_from_missing_facts {
                    true => consequence = consequence.or(Some(text)),
                    false => open.push(text),
                }
            }
            let texts = findings.first_violations(names);
            let mut finding = findings.into_finding(names);
            finding.is_doubtful = !texts.is_empty()
                && match evidence {
                    Evidence::Whole => false,
                    Evidence::Incomplete => !finding.property.needs_no_other_fact(),
                    Evidence::Corrupted | Evidence::Changed => true,
                };
            if !finding.is_doubtful {
                // What the federation expects of a system, and what its clients were told, say most about it.
                let is_first = names.system.is_some()
                    && matches!(finding.property, Property::Expected | Property::Consistent);
                let place = if is_first { 0 } else { wrong.len() };
                wrong.splice(place..place, texts);
            } else if finding.unknown.is_none() {
                let why = match evidence {
                    Evidence::Changed => "the record was changed",
                    Evidence::Corrupted => "silent corruption may have reached the result",
                    Evidence::Incomplete if names.unmatched.is_some() => "lines may be missing",
                    Evidence::Incomplete | Evidence::Whole => "facts may be missing",
                };
                finding.unknown = texts.first().map(|it| format!("doubtful, because {why}: {it}"));
            }
            judged.push(finding);
        }
        if evidence == Evidence::Corrupted && open.is_empty() {
            let doubtful = judged.iter().find(|it| it.is_doubtful).and_then(|it| it.unknown.clone());
            open.extend(doubtful.or(consequence));
        }
        let verdict = match (wrong.is_empty(), open.is_empty()) {
            (true, true) => Verdict::Pass,
            (true, false) => Verdict::Unknown,
            (false, _) => Verdict::Fail,
        };
        Judgement { verdict, reasons: wrong.into_iter().chain(open).collect(), findings: judged }
    }

    /// Returns the finding for `property`.
    ///
    /// # Panics
    ///
    /// Panics if the judgement lacks the finding. [`crate::judge`] never omits one.
    pub fn of(&self, property: Property) -> &Finding {
        self.findings.iter().find(|finding| finding.property == property).expect("every property is judged")
    }

    /// Returns the properties with violations, including doubtful ones.
    pub fn violated(&self) -> impl Iterator<Item = Property> + Clone + '_ {
        self.findings.iter().filter(|it| it.violation_count() > 0).map(|it| it.property)
    }

    /// Returns the properties that could not be judged, at least in part, although they should have been.
    pub fn unjudged(&self) -> impl Iterator<Item = Property> + '_ {
        self.findings.iter().filter(|it| it.unknown.is_some()).map(|it| it.property)
    }
}
