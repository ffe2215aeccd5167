//! Logs are kept (HydEE section III-E): a sender collects no logged message before a checkpoint of the receiver
//! contains it. This property is judged by counts: a process must not have collected more of its messages to other
//! clusters than committed or restored checkpoints contain. It is judged for protocols that promise to keep logged
//! messages until then.

use std::collections::BTreeMap;

use faultline_core::{FactKind, ProcessId, Promise};

use super::collected::Collected;
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use crate::words::count;
use faultline_history::{Context, History, Point};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    CollectedLog { process: ProcessId, collected: u64, contained: u64 },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::CollectedLog { process: by, collected, contained } = *self;
        format!(
            "{} had collected {}, but checkpoints of the receivers contain only {contained}",
            names.process(by),
            count(collected, "logged message")
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::LogKept, "no logged message was collected too early", check)
        .promised(Promise::LogKept)
        .needs(&[FactKind::Collected]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let held = held_in_checkpoints(history);
    for (at, log, sum) in Collected::of(history).claims() {
        finding.instances += u64::from(log > 0);
        let process = history.process_of(at);
        let held = held.get(&process).copied().unwrap_or(0);
        if log > 0 && sum > held {
            finding.violated(
                [history.source(at)],
                Breach::CollectedLog { process, collected: sum, contained: held },
            );
        }
    }
}

/// Counts, by sender, the messages to other clusters that are contained in a committed or restored
/// checkpoint of their receiver.
fn held_in_checkpoints(history: &History<'_>) -> BTreeMap<ProcessId, u64> {
    let mut held = BTreeMap::new();
    for message in history.messages.iter() {
        let (from, to) = (history.group_of(message.id.from), history.group_of(message.id.to));
        let is_held = |&at: &Point| history.first_line_with(at).is_some();
        if from != to && message.delivered().iter().any(is_held) {
            *held.entry(message.id.from).or_default() += 1;
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone};
    use faultline_core::{Claim, Promise, Sn};

    fn collects(run: &mut Run, process: u32, log: u32) {
        run.claim(process, Claim::Collected { round: 1, below: Sn(1), kept: 1, log });
    }

    /// Returns a run in which p0 sends two messages. A checkpoint of p1 contains the first.
    fn run() -> Run {
        let mut run = Run::repeating(&[Promise::LogKept], &[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let first = run.send(0, 1);
        run.deliver(first);
        run.commit_all(1, &[1]);
        let second = run.send(0, 1);
        run.deliver(second);
        run
    }

    #[test]
    fn a_message_in_a_checkpoint_may_be_collected() {
        let mut run = run();
        collects(&mut run, 0, 1);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "{finding:?}");
    }

    #[test]
    fn a_message_that_was_only_delivered_must_be_kept() {
        let mut run = run();
        collects(&mut run, 0, 2);
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::CollectedLog { contained: 1, .. });
    }

    #[test]
    fn a_message_collected_again_after_a_restore_is_not_counted_twice() {
        let mut run = run();
        collects(&mut run, 0, 1);
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        collects(&mut run, 0, 1);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0), "{finding:?}");
    }

    #[test]
    fn a_protocol_that_keeps_no_log_is_not_judged() {
        let mut run = run();
        collects(&mut run, 0, 2);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
        run.withdraw(Promise::LogKept);
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }
}
