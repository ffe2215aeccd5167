//! Sentences about tasks: how many ran, and which were re-executed or taken over.

use faultline_checker::how_often;
use faultline_core::ProcessId;
use faultline_history::recoveries::RecoveryCost;
use faultline_trace::duration::lasted;

use super::rollbacks::checkpoint;
use super::{Explainer, count, was};
use crate::timeline::{Takeover, Tasks};

impl Explainer<'_> {
    /// Describes the tasks that surviving processes re-executed for failed ones.
    pub(super) fn recovery(&self, it: &RecoveryCost) -> String {
        let (at, live) = (self.time(it.began), it.live.len() as u64);
        let processes = match live {
            1 => "the process that kept its state".to_owned(),
            live => format!("the {live} processes that kept their states"),
        };
        let since = count(it.since, "task");
        if it.again == 0 {
            return format!(
                "At {at}, {processes} did not have to re-execute anything; a global rollback would have undone {since}."
            );
        }
        let idle = it.live.difference(&it.busy).count() as u64;
        let idle = match idle {
            0 => String::new(),
            idle => format!(" {idle} of these processes had nothing to re-execute."),
        };
        format!(
            "From {at}, {processes} re-executed {} that others had lost ({} of work).{idle} A global rollback would \
             have undone {since}.",
            count(it.again, "task"),
            it.cost,
        )
    }

    /// Describes how another process took over work because a process never returned or a partition moved.
    pub(super) fn taken_over(&self, it: &Takeover) -> String {
        let (at, by, of) = (self.time(it.at), self.names.process(it.by), self.names.process(it.of));
        let Some(from) = it.from else {
            return format!("From {at}, {by} ran the partition of {of}, which had not joined yet.");
        };
        let (tasks, cost) = it.tasks;
        let unrecoverable = &self.timeline.unrecoverable;
        let lost = || unrecoverable.iter().flat_map(|(group, _)| self.names.units_of(*group));
        if self.names.unit_of(it.of).is_some_and(|of| lost().any(|it| it == of)) {
            return format!(
                "At {at}, {by} could not take over the work of {of}, because no checkpoint of {of} could be \
                 restored: {} that {of} had run {} lost ({} of work).",
                count(tasks, "task"),
                if tasks == 1 { "was" } else { "were" },
                lasted(cost)
            );
        }
        let (earlier, work) = (self.names.process(from), self.work_taken_over(it, from));
        let mut text = match it.checkpoint {
            Some((position, saved)) => {
                // Without the facts of the process, the times of its actions are unknown.
                let age = match self.timeline.incomplete.contains(&from) {
                    true => String::new(),
                    false => format!(" (taken {} earlier)", lasted(it.at.since(saved))),
                };
                format!("At {at}, {by} took over {work}, starting from {of}'s {}{age}.", checkpoint(position))
            }
            None => format!("At {at}, {by} took the place of {of}; no checkpoint of {of} was left."),
        };
        if tasks > 0 {
            let since = if it.checkpoint.is_some() { " since then" } else { "" };
            let consequence = match (unrecoverable.is_empty(), tasks) {
                (true, _) => "had to be re-executed",
                (false, 1) => "was lost",
                (false, _) => "were lost",
            };
            text.push_str(&format!(
                " {} that {earlier} had run{since} {consequence} ({} of work).",
                count(tasks, "task"),
                lasted(cost)
            ));
        }
        text
    }

    /// Names the work that a process took over from another one.
    fn work_taken_over(&self, it: &Takeover, from: ProcessId) -> String {
        let (of, earlier) = (self.names.process(it.of), self.names.process(from));
        match (it.of == from, it.of == it.by) {
            (true, _) => format!("the work of {of}"),
            (false, true) => format!("its own partition from {earlier}"),
            (false, false) => format!("the partition of {of} from {earlier}"),
        }
    }
}

/// Describes how many tasks were run, stolen, and re-executed. If facts are missing, there may have been more.
pub(super) fn tasks(tasks: Tasks, is_incomplete: bool) -> String {
    let Tasks { tasks, again, rerun, stolen } = tasks;
    let stolen = stolen.map_or_else(String::new, |it| format!("; {} stolen", was(it, "task")));
    let source = if is_incomplete { "According to the facts that remain, " } else { "" };
    let mut text = format!("{source}{} run{stolen}.", was(tasks, "task"));
    if again > 0 {
        let times = how_often(again);
        text.push_str(&format!(" Because of failures, tasks were re-executed {times}"));
        match (again - rerun, rerun) {
            (_, 0) => {}
            (0, _) => text.push_str(", all by processes that kept their states"),
            (restored, kept) => text.push_str(&format!(
                ": {} in restored states, and {} by processes that kept their states",
                how_often(restored),
                how_often(kept)
            )),
        }
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn re_executions_in_restored_states_are_counted_separately() {
        let said = |again, rerun| tasks(Tasks { tasks: 9, again, rerun, stolen: None }, false);
        let incomplete = tasks(Tasks { tasks: 9, again: 0, rerun: 0, stolen: Some(2) }, true);
        assert_eq!(incomplete, "According to the facts that remain, 9 tasks were run; 2 tasks were stolen.");
        assert_eq!(said(0, 0), "9 tasks were run.");
        assert_eq!(said(1, 0), "9 tasks were run. Because of failures, tasks were re-executed once.");
        insta::assert_snapshot!(
            said(3, 3),
            @"9 tasks were run. Because of failures, tasks were re-executed 3 times, all by processes that kept their states."
        );
        insta::assert_snapshot!(
            said(213, 154),
            @"9 tasks were run. Because of failures, tasks were re-executed 213 times: 59 times in restored states, and 154 times by processes that kept their states."
        );
    }
}
