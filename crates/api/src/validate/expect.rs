//! Checks what the federation expects of the run.

use faultline_core::Span;

use super::Check;
use crate::quantity::Duration;
use crate::resource::{Assertion, MAX_EXPECTATIONS};

impl Check<'_> {
    pub(super) fn expectations(&mut self) {
        let all = &self.spec.expect;
        self.at_most_entries("spec.expect", all.len(), MAX_EXPECTATIONS);
        for (index, entry) in all.iter().enumerate() {
            let path = format!("spec.expect[{index}]");
            match entry.assertions()[..] {
                [] => self.problem(
                    path,
                    "the expectation has no assertion",
                    "add one: `recoveredWithin: 3s`, `rollbacks: { atMost: 4 }`, `lostWork: { atMost: 10s }` or \
                     `finishedWithin: 2m`",
                ),
                [(name, assertion)] => self.assertion(format!("{path}.{name}"), assertion),
                [(first, _), (second, _), ..] => self.problem(
                    format!("{path}.{second}"),
                    format!("the expectation has two assertions, `{first}` and `{second}`"),
                    "split it into two expectations with one assertion each",
                ),
            }
            if all[..index].contains(entry) && self.problems.is_empty() {
                self.problem(
                    format!("spec.expect[{index}]"),
                    "the same expectation is listed twice",
                    "remove one of them",
                );
            }
        }
    }

    fn assertion(&mut self, path: String, assertion: Assertion) {
        let within = match assertion {
            Assertion::RecoveredWithin(within) | Assertion::FinishedWithin(within) => within,
            Assertion::Rollbacks(_) | Assertion::LostWork(_) => return,
        };
        let deadline = self.spec.deadline();
        if within.0 == Span::ZERO {
            self.problem(path, "the time must not be 0", "write a duration above zero");
        } else if within.0 > deadline {
            self.problem(
                path,
                format!("{within} is longer than the deadline of the run, {}", Duration(deadline)),
                "choose a shorter time, or extend `deadline`",
            );
        }
    }
}
