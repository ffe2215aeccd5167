//! Counts the outcomes of several runs.

use std::collections::BTreeSet;

use faultline_checker::Verdict;
use serde::Serialize;

/// The maximum number of different reasons that are listed for runs that do not pass.
const REASONS: usize = 3;

/// The outcomes of several runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictCounts {
    /// The number of runs.
    pub runs: usize,
    /// Runs whose application finished.
    pub completed: usize,
    /// Runs that were judged completely and violated nothing.
    pub pass: usize,
    /// Runs that could not be judged completely, but in which no violation was found.
    pub unknown: usize,
    /// Runs whose verdict is unknown only because no random fault took effect. They are not part of `unknown`.
    pub without_fault: usize,
    /// Runs with a violation.
    pub fail: usize,
    /// Some of the different reasons why runs did not pass.
    pub reasons: Vec<String>,
}

/// How one run ended.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) completed: bool,
    pub(crate) verdict: Verdict,
    /// Whether the verdict is unknown only because no random fault took effect.
    pub(crate) without_fault: bool,
}

impl VerdictCounts {
    /// Counts runs, each with its seed and the reasons why it did not pass.
    pub(crate) fn of<'a>(runs: impl IntoIterator<Item = (u64, Ending, &'a [String])>) -> VerdictCounts {
        let (mut counts, mut seen) = (VerdictCounts::default(), BTreeSet::new());
        for (seed, Ending { completed, verdict, without_fault }, reasons) in runs {
            counts.runs += 1;
            counts.completed += usize::from(completed);
            let count = match verdict {
                _ if without_fault => &mut counts.without_fault,
                Verdict::Pass => &mut counts.pass,
                Verdict::Unknown => &mut counts.unknown,
                Verdict::Fail => &mut counts.fail,
            };
            *count += 1;
            for reason in reasons {
                if counts.reasons.len() < REASONS && seen.insert(reason) {
                    counts.reasons.push(format!("seed {seed}: {reason}"));
                }
            }
        }
        counts
    }

    /// Returns a phrase that counts the runs by verdict, such as `1 fail, 5 pass`; `None` if there are no runs.
    pub(crate) fn verdicts(&self) -> Option<String> {
        let all = [
            (self.fail, "fail"),
            (self.unknown, "unknown"),
            (self.without_fault, "without a fault"),
            (self.pass, "pass"),
        ];
        let some: Vec<String> = all
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!some.is_empty()).then(|| some.join(", "))
    }
}
