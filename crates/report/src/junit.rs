//! Runs as JUnit XML, for continuous integration: a suite for each run, and in it a case for each expectation and for each
//! property that was exercised.
//!
//! A case that could not be judged is an error, not a skipped one: tools show skipped cases as if they were harmless.

use faultline_checker::{Property, Verdict};
use faultline_history::expected::{Assessment, Met};
use faultline_trace::printable;
use maud::{Markup, PreEscaped, html};

use crate::summary::{PropertyResult, PropertySummary, Summary, measured_in_words};

/// One case of a suite.
struct Case {
    /// What was judged.
    class: &'static str,
    name: String,
    verdict: Verdict,
    /// Why the case did not pass. The first reason is its message.
    reasons: Vec<String>,
}

impl Case {
    fn of_expectation(it: &Assessment) -> Case {
        let measured = || format!("expected {}, but measured {}", it.expected, measured_in_words(it));
        let log = it.log.as_ref().map(|it| format!("; see {it}")).unwrap_or_default();
        let (verdict, reasons) = match (it.met, &it.unknown) {
            (Met::Yes, _) => (Verdict::Pass, Vec::new()),
            (Met::No, _) => (Verdict::Fail, [vec![measured() + &log], it.output.clone()].concat()),
            (Met::Unknown, Some(unknown)) => {
                (Verdict::Unknown, vec![format!("{}; {}", unknown.reason, unknown.remedy)])
            }
            (Met::Unknown, None) => (Verdict::Unknown, vec![measured()]),
        };
        Case { class: "expectation", name: it.expected.clone(), verdict, reasons }
    }

    fn of_property(it: &PropertySummary) -> Case {
        let reasons = it.violations.iter().chain(&it.unknown).cloned().collect();
        let name = format!("{}: {}", it.name(), it.statement);
        Case { class: "property", name, verdict: it.verdict, reasons }
    }

    /// Returns the case of the property that expectations are met, without the expectations, which have cases of their own;
    /// `None` if it says nothing else.
    fn of_expected(it: &PropertySummary, expectations: &[Assessment]) -> Option<Case> {
        let is_own = |reason: &&String| {
            !expectations.iter().any(|it| reason.contains(&format!("expected {}, but ", it.expected)))
        };
        let violations: Vec<String> = it.violations.iter().filter(is_own).cloned().collect();
        let unknown = it.unknown.iter().filter(is_own).cloned();
        let verdict = if violations.is_empty() { Verdict::Unknown } else { Verdict::Fail };
        let reasons: Vec<String> = violations.into_iter().chain(unknown).collect();
        let is_covered = reasons.is_empty() && !expectations.is_empty();
        (!is_covered).then(|| match reasons.is_empty() {
            true => Case::of_property(it),
            false => Case { verdict, reasons, ..Case::of_property(it) },
        })
    }

    /// Returns the cases of a run: at least one that does not pass, unless the run passed.
    fn of_run(run: &Summary) -> Vec<Case> {
        let exercised = run.properties.iter().filter(|it| it.found != PropertyResult::NotExercised);
        let expected = run.expectations.iter().map(Case::of_expectation);
        let of_property = |it: &PropertySummary| match it.property {
            Property::Expected => Case::of_expected(it, &run.expectations),
            _ => Some(Case::of_property(it)),
        };
        let mut cases: Vec<Case> = expected.chain(exercised.filter_map(of_property)).collect();
        if cases.iter().all(|it| it.verdict < run.verdict) {
            let (name, reasons) = ("the verdict".to_owned(), run.reasons.clone());
            cases.push(Case { class: "run", name, verdict: run.verdict, reasons });
        }
        cases
    }

    fn xml(&self, suite: &str) -> Markup {
        let message = self.reasons.first().map(|it| text(it)).unwrap_or_default();
        let body = self.reasons.iter().map(|it| text(it)).collect::<Vec<_>>().join("\n");
        html! {
            testcase classname=(format!("{suite}.{}", self.class)) name=(text(&self.name)) {
                @match self.verdict {
                    Verdict::Pass => {}
                    Verdict::Fail => failure message=(message) { (body) }
                    Verdict::Unknown => error message=(message) type="unknown" { (body) }
                }
            }
            "\n"
        }
    }
}

/// Returns a text without characters that XML does not permit.
fn text(text: &str) -> String {
    printable(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

/// Returns the document about these runs.
pub fn junit<'a>(runs: impl IntoIterator<Item = &'a Summary>) -> String {
    let document = html! {
        (PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"))
        testsuites {
            "\n"
            @for run in runs {
                @let cases = Case::of_run(run);
                @let number = |verdict| cases.iter().filter(|it| it.verdict == verdict).count();
                @let suite = text(&run.run.name);
                testsuite
                    name=(format!("{suite} (seed {})", run.run.seed))
                    tests=(cases.len())
                    failures=(number(Verdict::Fail))
                    errors=(number(Verdict::Unknown))
                    skipped="0"
                    time=(format!("{:.3}", run.run.duration_seconds))
                {
                    "\n"
                    @for case in &cases { (case.xml(&suite)) }
                }
                "\n"
            }
        }
        "\n"
    };
    document.into_string()
}
