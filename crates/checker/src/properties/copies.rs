//! Where and when the parts of an owner's checkpoints became durable, and how many replicas a task-based program keeps.
//!
//! In a task-based program, any rank that is present from the start to the end of the run may hold a replica, wherever
//! the federation prefers to keep them. If there are fewer such ranks than requested replicas, each holds one.

use std::collections::BTreeMap;

use faultline_core::{ProcessId, Time};
use faultline_history::{CheckpointName, Group, History};

/// All copies of one owner's parts.
pub(super) struct Copies {
    /// For each checkpoint, from the newest to the oldest: when its part became durable at each holder. In a task-based
    /// program, a newer checkpoint replaces an older one and its log, so this is when the part, or that of any newer
    /// checkpoint, first became durable.
    pub(super) durable: Vec<BTreeMap<ProcessId, Time>>,
    /// By holder: the oldest and the newest checkpoint whose part it held.
    pub(super) held: BTreeMap<ProcessId, (CheckpointName, CheckpointName)>,
}

impl Copies {
    pub(super) fn of(history: &History<'_>, group: &Group<'_>, place: usize) -> Copies {
        let (mut durable, mut held) = (Vec::with_capacity(group.checkpoints.len()), BTreeMap::new());
        let is_of_tasks = history.tasks.is_some();
        let mut newer: BTreeMap<ProcessId, Time> = BTreeMap::new();
        let mut older = group.checkpoints.iter().rev().peekable();
        while let Some((name, checkpoint)) = older.next() {
            // The segments of a log have the position of the checkpoint that they follow. They replace no checkpoint.
            let is_checkpoint =
                !is_of_tasks || older.peek().is_none_or(|(it, _)| it.position < name.position);
            let mut first = newer.clone();
            for copy in &checkpoint.parts[place].copies {
                let at = first.entry(copy.holder).or_insert(copy.time);
                *at = copy.time.min(*at);
                if is_checkpoint {
                    held.entry(copy.holder).or_insert((*name, *name)).0 = *name;
                }
            }
            if is_of_tasks && is_checkpoint {
                newer.clone_from(&first);
            }
            durable.push(first);
        }
        Copies { durable, held }
    }

    /// Returns whether `holder` held a part older than the one for checkpoint `name`, and also that part or a
    /// newer one. A process that replaces a permanently failed holder first receives the newest part, whose checkpoint
    /// has already been committed.
    pub(super) fn are_around(&self, name: CheckpointName, holder: ProcessId) -> bool {
        self.held.get(&holder).is_some_and(|(oldest, newest)| *oldest < name && name <= *newest)
    }
}

/// Returns the processes that can hold replicas of `owner`'s parts in a task-based program throughout the run.
pub(super) fn candidates_of_tasks(history: &History<'_>, owner: ProcessId) -> Vec<ProcessId> {
    let (context, supervision) = (history.context, &history.supervision);
    let (gone, joining) = (supervision.gone(&context.clusters), supervision.joining(&context.clusters));
    // A process whose cluster has yet to join reports no facts.
    let has_joined = |it: &ProcessId| history.trace.lives(*it).any(|(_, stream)| !stream.is_empty());
    let ranks = context.clusters.iter().flatten().copied();
    let permanent = ranks.filter(|it| *it != owner && has_joined(it) && !joining.contains(it));
    permanent.chain(context.servers.iter().copied()).filter(|it| !gone.contains(it)).collect()
}

/// Returns, for each image of the only member of a group in a task-based program, the time from which as many replicas
/// of it were durable as the federation requests; [`Time::NEVER`] if there never were. If the processes read different
/// clocks, or facts of a possible holder are missing, the time is [`Time::ZERO`] for each image that may have had as
/// many replicas.
pub(super) fn replicated(history: &History<'_>, group: &Group<'_>) -> BTreeMap<CheckpointName, Time> {
    let owner = group.members[0];
    let asked = history.context.copies.map_or(0, |it| it.replicas as usize);
    let candidates = candidates_of_tasks(history, owner);
    let replicas = asked.min(candidates.len());
    let may_be_missing = candidates.iter().any(|it| history.trace.has_gap_of(*it));
    let since = |durable: &BTreeMap<ProcessId, Time>| {
        let others = durable.iter().filter(|(holder, _)| **holder != owner);
        let mut times: Vec<Time> = others.map(|(_, at)| *at).collect();
        times.sort_unstable();
        let last = replicas.checked_sub(1).map_or(Some(Time::ZERO), |last| times.get(last).copied());
        match last {
            _ if may_be_missing => Time::ZERO,
            Some(_) if !history.context.common_clock => Time::ZERO,
            last => last.unwrap_or(Time::NEVER),
        }
    };
    let durable = Copies::of(history, group, 0).durable;
    group.checkpoints.keys().copied().zip(durable.iter().rev().map(since)).collect()
}

#[cfg(test)]
mod tests {
    use faultline_core::{Attempt, Fact, ImageName};

    use super::*;
    use crate::testing::p;
    use crate::testing::tasks::TaskRun;

    /// p0 writes two checkpoints, each with a segment of a log. Returns, from the oldest image to the newest, whether
    /// p1 counts as a holder if it stores those whose `sn` and `attempt` are listed.
    fn held(stored: &[(u32, u32)]) -> Vec<bool> {
        let mut run = TaskRun::new(2);
        run.begin(0, 0);
        for (sn, attempt) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let name = ImageName { attempt: Attempt(attempt), ..run.0.image(0, 0, sn) };
            let witness = run.0.witness(0);
            run.state(0, Fact::Saved(Box::new((name, witness, 0))));
            if stored.contains(&(sn, attempt)) {
                run.0.durable(1, name);
            }
        }
        let history = run.0.history();
        let copies = Copies::of(&history, history.groups.iter().next().unwrap(), 0);
        copies.durable.iter().rev().map(|it| it.contains_key(&p(1))).collect()
    }

    #[test]
    fn a_newer_checkpoint_replaces_an_older_one_and_its_log() {
        assert_eq!(held(&[(2, 1)]), [true, true, true, false]);
        assert_eq!(held(&[(1, 1)]), [true, false, false, false]);
    }

    #[test]
    fn a_segment_of_a_log_replaces_no_checkpoint() {
        assert_eq!(held(&[(2, 2)]), [false, false, false, true]);
        assert_eq!(held(&[(1, 2)]), [false, true, false, false]);
    }
}
