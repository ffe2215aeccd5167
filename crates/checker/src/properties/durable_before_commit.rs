//! A checkpoint is committed only after every part is durable at its owner and at every holder. Garbage collection
//! depends on this.
//!
//! The federation specifies how many replicas there are, and which processes may hold them. The assignment of
//! parts to holders is a fixed function that the checker does not know. To the checker, every process that
//! ever reported a part of an owner as durable is one of this owner's holders. Each holder must hold every part, and
//! there must be as many holders as requested. A process reports its actions before others can observe them, so the
//! reports on which a commit depends are in the trace; if all processes read the same clock, they also precede the
//! commit.

use std::collections::BTreeSet;

use faultline_core::{FactKind, Position, ProcessId, Time};

use super::copies::{self, Copies};
use super::{protected, refilled};
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{CheckpointName, Commit, Context, Group, GroupId, History};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    CommittedBeforeDurable {
        group: GroupId,
        position: Position,
        owner: ProcessId,
        holder: ProcessId,
    },
    CommittedWithTooFewCopies {
        group: GroupId,
        position: Position,
        owner: ProcessId,
        found: usize,
        replicas: u32,
    },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::CommittedBeforeDurable { group, position, owner, holder } => format!(
                "checkpoint {position} of {} was committed before the part of {} was durable at {}",
                names.group(group),
                names.process(owner),
                names.process(holder)
            ),
            Breach::CommittedWithTooFewCopies { group, position, owner, found, replicas } => format!(
                "checkpoint {position} of {} was committed with only {found} of {replicas} replicas of the part of {}",
                names.group(group),
                names.process(owner)
            ),
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::DurableBeforeCommit, "checkpoints were durable before they were committed", check)
        .needs(&[FactKind::Durable]);

fn check(history: &History<'_>, finding: &mut Findings) {
    for (number, group) in history.groups.numbered() {
        for place in 0..group.members.len() {
            check_owner(history, number, group, place, finding);
        }
    }
    protected::check(history, finding);
    refilled::check(history, finding);
}

fn check_owner(
    history: &History<'_>,
    number: GroupId,
    group: &Group<'_>,
    place: usize,
    finding: &mut Findings,
) {
    let context = history.context;
    let copies = Copies::of(history, group, place);
    let own = group.members[place];
    let holders: BTreeSet<ProcessId> = copies.held.keys().copied().chain([own]).collect();
    let gone = history.supervision.departing(&context.clusters);
    let joins = history.planned.is_some() && !history.supervision.joined.is_empty();
    let candidates = history.tasks.is_some().then(|| copies::candidates_of_tasks(history, own));
    for ((name, checkpoint), durable) in group.checkpoints.iter().zip(copies.durable.iter().rev()) {
        let Some(first) = checkpoint.commits.iter().min_by_key(|commit| commit.time) else { continue };
        let is_in_time = |at: &Time| !context.common_clock || *at <= first.time;
        if history.planned.is_none() || gone.is_empty() && !joins {
            let in_time = durable.iter().filter(|(_, at)| is_in_time(at)).map(|(holder, _)| *holder);
            check_number(history, (number, place), *name, in_time, candidates.as_deref(), first, finding);
        }
        for &holder in &holders {
            // Other processes replace holders that failed permanently or are about to leave. The replacements do not
            // hold older parts.
            if !gone.is_empty() && !copies.are_around(*name, holder) {
                continue;
            }
            // Once a cluster has joined, partitions and replicas move to its processes, and may move back later.
            if joins && !checkpoint.parts[place].copies.iter().any(|it| it.holder == holder) {
                continue;
            }
            finding.instances += 1;
            if durable.get(&holder).is_some_and(is_in_time) {
                continue;
            }
            if history.trace.has_gap_of(holder) {
                finding.lacks_facts_of(holder, context);
                continue;
            }
            finding.violated(
                [history.source(first.at)],
                Breach::CommittedBeforeDurable { group: number, position: name.position, owner: own, holder },
            );
        }
    }
}

/// Checks that as many replicas as the federation requests were durable before the commit `first`, at `holders`.
/// `candidates` lists the processes that may hold replicas; `None` if [`Context::copies_at`] knows them.
///
/// [`Context::copies_at`]: faultline_history::Context::copies_at
fn check_number(
    history: &History<'_>,
    (number, place): (GroupId, usize),
    name: CheckpointName,
    holders: impl Iterator<Item = ProcessId>,
    candidates: Option<&[ProcessId]>,
    first: &Commit<'_>,
    finding: &mut Findings,
) {
    let context = history.context;
    let owner = history.groups[number].members[place];
    let Some(asked) = context.copies else { return };
    let (found, replicas) = match candidates {
        Some(all) => (holders.filter(|it| *it != owner).count(), asked.replicas.min(all.len() as u32)),
        None => (context.copies_at(owner, holders).unwrap_or_default(), asked.replicas),
    };
    finding.instances += 1;
    if found >= replicas as usize {
        return;
    }
    let may_hold = |process: &ProcessId| match candidates {
        Some(all) => all.contains(process),
        None => context.copies_at(owner, [*process].into_iter()) == Some(1),
    };
    let mut all = (0..history.processes.len() as u32).map(ProcessId).filter(may_hold);
    if let Some(holder) = all.find(|&it| history.trace.has_gap_of(it)) {
        return finding.lacks_facts_of(holder, context);
    }
    finding.violated(
        [history.source(first.at)],
        Breach::CommittedWithTooFewCopies { group: number, position: name.position, owner, found, replicas },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::tasks::TaskRun;
    use crate::testing::{Run, check_alone, p, position};
    use faultline_core::{Attempt, Claim, ClusterId, Fact, GroupId, Life, Span};
    use faultline_trace::manifest::{Copies, ReplicaHolders};

    #[test]
    fn a_process_that_takes_the_place_of_a_holder_gets_what_was_committed_before() {
        let mut run = TaskRun::new(3);
        run.0.context.common_clock = true;
        let commit = |run: &mut TaskRun, sn, holders: &[u32]| {
            let (name, _) = run.save(0, sn);
            holders.iter().for_each(|it| run.0.durable(*it, name));
            let (attempt, frozen, vectors) = (Attempt(1), Span::ZERO, Default::default());
            let position = name.position();
            run.0.claim(0, Claim::Committed { position, attempt, forced: false, frozen, vectors });
            run.0.wait(Span::from_millis(1));
            name
        };
        let first = commit(&mut run, 1, &[1]);
        run.lose_permanently(1);
        run.0.durable(2, first);
        let second = commit(&mut run, 2, &[2]);
        let finding = check_alone(&RULE, &run.0);
        assert!(finding.instances >= 2 && finding.violation_count() == 0, "{finding:?}");
        // From now on, the holder has to hold every part.
        let third = commit(&mut run, 3, &[]);
        run.0.durable(2, third);
        assert!(second < third && check_alone(&RULE, &run.0).violation_count() == 1);
    }

    /// A task-based program whose processes keep one replica. p0 commits a checkpoint; `holders` store replicas of it
    /// beforehand, and `late` ones afterwards.
    fn tasks(processes: u32, holders: &[u32], late: &[u32]) -> TaskRun {
        let mut run = TaskRun::new(processes);
        run.0.context.common_clock = true;
        run.0.context.copies = Some(Copies { replicas: 1, kept_by: ReplicaHolders::OtherCluster });
        (0..processes).for_each(|it| drop(run.begin(it, 0)));
        let (name, _) = run.save(0, 1);
        holders.iter().for_each(|it| run.0.durable(*it, name));
        let (attempt, frozen, vectors) = (Attempt(1), Span::ZERO, Default::default());
        let position = name.position();
        run.0.claim(0, Claim::Committed { position, attempt, forced: false, frozen, vectors });
        run.0.wait(Span::from_millis(1));
        late.iter().for_each(|it| run.0.durable(*it, name));
        run
    }

    #[test]
    fn task_based_programs_keep_as_many_replicas_as_requested() {
        let wrong = |run: &TaskRun| check_alone(&RULE, &run.0).wrong::<Breach>();
        let too_few = |found| Breach::CommittedWithTooFewCopies {
            group: GroupId(0),
            position: position(0, 1),
            owner: p(0),
            found,
            replicas: 1,
        };
        assert_eq!(wrong(&tasks(2, &[1], &[])), []);
        assert_eq!(wrong(&tasks(2, &[], &[])), [too_few(0)]);
        assert!(wrong(&tasks(2, &[], &[1])).contains(&too_few(0)), "the replica became durable too late");
        let mut run = tasks(2, &[], &[1]);
        run.0.context.common_clock = false;
        assert_eq!(wrong(&run), []);
    }

    #[test]
    fn task_based_programs_keep_no_more_replicas_than_processes_can_hold() {
        let found = |happens: fn(&mut TaskRun), processes| {
            let mut run = tasks(processes, &[], &[]);
            happens(&mut run);
            check_alone(&RULE, &run.0).violation_count()
        };
        assert_eq!(found(|_| {}, 1), 0, "there is no other process");
        assert_eq!(found(|run| run.lose_permanently(1), 2), 0);
        assert_eq!(found(|run| run.lose_permanently(1), 3), 1, "p2 could hold the replica");
        assert_eq!(
            found(|run| run.0.supervisor(Fact::Joined(ClusterId(1))), 2),
            0,
            "the cluster joined late"
        );
        assert_eq!(found(|run| run.0.trace.streams.get_mut(&(p(1), Life(1))).unwrap().clear(), 2), 0);
        assert_eq!(
            found(|run| run.0.context.servers = vec![p(7)], 1),
            1,
            "the server could hold the replica"
        );
        assert_eq!(found(|run| run.0.lose_evidence(1), 2), 0, "the facts of p1 are incomplete");
    }

    /// p0's first checkpoint has a replica at p1; the second one receives its replica `after` its commit, or never.
    fn run(after: Option<Span>) -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.durable(1, run.image(0, 0, 1));
        run.commit_all(0, &[0]);
        run.commit_all(0, &[0]);
        if let Some(after) = after {
            run.wait(after);
            run.durable(1, run.image(0, 0, 2));
        }
        run
    }

    #[test]
    fn a_commit_after_all_copies_is_allowed() {
        let finding = check_alone(&RULE, &run(Some(Span::ZERO)));
        assert_eq!((finding.instances, finding.violation_count()), (4, 0));
    }

    #[test]
    fn a_commit_without_a_copy_is_found() {
        let finding = check_alone(&RULE, &run(None));
        finds!(finding, Breach::CommittedBeforeDurable { owner: ProcessId(0), holder: ProcessId(1), .. });
        assert_eq!(finding.violation_count(), 1);
    }

    #[test]
    fn a_late_copy_is_found_by_a_common_clock() {
        let mut run = run(Some(Span(1)));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.context.common_clock = true;
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
    }

    #[test]
    fn fewer_copies_than_requested_are_found() {
        let mut run = run(Some(Span::ZERO));
        let check = |run: &Run| check_alone(&RULE, run).wrong::<Breach>().into_iter().next();
        run.context.copies = Some(Copies { replicas: 1, kept_by: ReplicaHolders::OtherCluster });
        assert_eq!(check(&run), None);
        run.context.copies = Some(Copies { replicas: 2, kept_by: ReplicaHolders::OtherCluster });
        assert!(matches!(check(&run), Some(Breach::CommittedWithTooFewCopies { found: 1, replicas: 2, .. })));
        run.context.copies = Some(Copies { replicas: 1, kept_by: ReplicaHolders::SameCluster });
        let is_none =
            |wrong| matches!(wrong, Some(Breach::CommittedWithTooFewCopies { found: 0, replicas: 1, .. }));
        assert!(is_none(check(&run)), "p1 is in another cluster");
        run.context.copies = Some(Copies { replicas: 1, kept_by: ReplicaHolders::SharedStorage });
        assert!(is_none(check(&run)), "p1 is not a server");
        run.context.servers = vec![p(1)];
        assert_eq!(check(&run), None);
    }

    #[test]
    fn two_copies_in_one_other_cluster_count_once() {
        let mut run = Run::new(&[&[0], &[1, 2], &[3]]);
        run.context.copies = Some(Copies { replicas: 2, kept_by: ReplicaHolders::OtherCluster });
        run.durable(1, run.image(0, 0, 1));
        run.durable(2, run.image(0, 0, 1));
        run.commit_all(0, &[0]);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
        run.durable(3, run.image(0, 0, 1));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }

    #[test]
    fn a_holder_with_missing_facts_makes_it_unknown() {
        let mut run = run(None);
        run.lose_evidence(1);
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.violation_count(), 0);
        assert!(finding.open.is_some());
    }
}
