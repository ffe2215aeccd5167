//! The order in which a partition runs its ready tasks: the oldest first or, after [`Plan::sending_first`], starting
//! with those whose values (or values computed from them) are sent soonest (CCK long paper, section 3.7.2: local
//! re-scheduling).

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::{Plan, Planned, TaskNo};

/// The slack of a task if nothing that depends on it is sent.
const NEVER: u16 = u16::MAX;

/// The number of later steps whose tables of slack are compared with a step's own: equal tables are shared.
const SEARCHED: usize = 16;

impl Plan {
    /// Returns the same plan, except that each partition first runs the tasks whose values (or values computed from
    /// them) are sent soonest. By default, the oldest task runs first.
    #[must_use]
    pub fn sending_first(mut self) -> Plan {
        let mut slack: Vec<Arc<[u16]>> = Vec::with_capacity(self.steps.len());
        for step in self.steps.iter().rev() {
            let mut numbers = vec![NEVER; step.tasks.len()];
            for (index, task) in step.tasks.iter().enumerate().rev() {
                numbers[index] = least(task, |ahead, reader| match slack.len().checked_sub(ahead as usize) {
                    Some(later) if ahead > 0 => slack[later][reader as usize],
                    _ => numbers[reader as usize],
                });
            }
            let known = slack.iter().rev().take(SEARCHED).find(|it| ***it == *numbers).cloned();
            slack.push(known.unwrap_or_else(|| numbers.into()));
        }
        slack.reverse();
        self.slack = slack;
        self
    }

    /// Returns the rank of a task. Of two ready tasks, the one with the lower rank runs first; if the ranks
    /// are equal, the older task runs first.
    pub(crate) fn rank(&self, task: TaskNo) -> u32 {
        let slack = self.slack.get(task.step as usize).map(|it| it[task.index as usize]);
        match slack {
            None => 0,
            Some(NEVER) => u32::MAX,
            Some(slack) => task.step + u32::from(slack),
        }
    }
}

/// Returns the number of steps until a value to which this task contributes is sent. `later` returns that
/// number for a later task.
fn least(task: &Planned, later: impl Fn(u32, u32) -> u16) -> u16 {
    if task.outputs.iter().any(|it| !it.sends.is_empty()) {
        return 0;
    }
    let readers = task.outputs.iter().flat_map(|it| &it.readers);
    let each = readers
        .map(|(ahead, reader)| later(*ahead, *reader).saturating_add(u16::try_from(*ahead).unwrap_or(NEVER)));
    each.min().unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::in_blocks;
    use crate::programs::jacobi::Jacobi;
    use faultline_core::Span;

    #[test]
    fn blocks_nearer_to_another_partition_are_more_urgent() {
        // A row of 12 blocks, divided between two partitions.
        let program = Jacobi {
            rows: 1,
            columns: 12,
            size: 1,
            iterations: 20,
            test_every: 0,
            tolerance: 0.0,
            task_time: Span::ZERO,
        };
        let plan = Plan::new(&program, 2, &in_blocks(12, 2));
        let rank = |plan: &Plan, step, index| plan.rank(TaskNo { step, index });
        assert!((0..12).all(|it| rank(&plan, 3, it) == 0), "the oldest first");
        let plan = plan.sending_first();
        let ranks: Vec<u32> = (0..12).map(|it| rank(&plan, 3, it)).collect();
        assert_eq!(ranks, [8, 7, 6, 5, 4, 3, 3, 4, 5, 6, 7, 8]);
        // At the end, each partition but one sends the fold of its blocks.
        assert_eq!(rank(&plan, 20, 11), 21);
        assert_eq!(rank(&plan, 21, 11), u32::MAX, "the result is not sent");
    }
}
