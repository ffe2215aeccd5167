//! After the last fault, the federation settles and resumes: recoveries and checkpoints in progress end, no group rolls
//! back again, and the application continues until it has finished.
//!
//! Apart from clusters that leave (`departures`), this property is judged for runs that exceeded their deadline, if all
//! processes read the same clock. A run that completed has made progress. The time allowed to settle and resume depends on the federation: ten seconds plus
//! a hundred times the delay of its slowest link, plus the time that its slowest link needs to carry the parts of
//! checkpoints that were saved again after the last fault because their storage was lost. A task-based program counts
//! as stalled only if, in addition, its longest task would have ended. No application counts as stalled before it has
//! paused for ten times its longest earlier pause. Each group is also judged individually, even if others continue
//! (`stalled`).
//!
//! It is judged for protocols that promise it; for others, a violation is only reported as a remark. Independent
//! checkpoints do not promise it, because their groups may make each other roll back for as long as they exchange
//! messages.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::Outcome;
use faultline_core::{Claim, Fact, Life, ProcessId, Promise, Span, Time};

use super::departures;
use super::{completed, stalled};
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use crate::words::how_often;
use faultline_history::{Claimed, Context, Group, GroupId, History};

/// The time that any recovery may take, regardless of the links.
const LEAST: Span = Span::from_secs(10);

/// A round of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Recovery,
    Checkpoint,
}

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    RolledBackLate { group: GroupId, times: usize, bound: Span },
    RoundNotEnded { process: ProcessId, round: Round, bound: Span },
    NoProgress { still: Span },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::RolledBackLate { group: by, times, bound } => {
                let times = how_often(times as u64);
                format!(
                    "more than {bound} after the last fault, {} still rolled back {times}",
                    names.group(by)
                )
            }
            Breach::RoundNotEnded { process: by, round, bound } => {
                let round = match round {
                    Round::Recovery => "recovery",
                    Round::Checkpoint => "checkpoint",
                };
                format!(
                    "a {round} that {} had begun did not end within {bound} of the last fault",
                    names.process(by)
                )
            }
            Breach::NoProgress { still } => {
                format!("the application made no progress for {still} before the deadline")
            }
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::Progress, "after the last fault, every process resumed", check)
        .promised(Promise::Progress)
        .with(&[Aspect::RemarkedIfNotPromised]);

fn check(history: &History<'_>, finding: &mut Findings) {
    departures::check(history, finding);
    settles(history, finding);
}

fn settles(history: &History<'_>, finding: &mut Findings) {
    let context = history.context;
    let is_ended = context.outcome == Some(Outcome::Deadline) && history.supervision.begun.is_some();
    if !context.common_clock || !is_ended {
        return;
    }
    // If a storage has yet to complete a write, a checkpoint or a recovery may wait for it.
    let Some(slowest_write) = history.slowest_write() else { return };
    let calm = history.calm_since();
    let fixed = LEAST + history.longest_delay() + slowest_write * stalled::TIMES;
    let refill = history.transfer_time(refilled_bytes(history, calm));
    if context.end.since(calm) < fixed + refill {
        return;
    }
    let judge = Judge { history, fixed, refill, since: calm, begun: begun(history) };
    // Other processes wait for a failed process that is due to return, so its fault is not over.
    let gone = history.supervision.gone(&context.clusters);
    let is_awaited =
        |&it: &ProcessId| !history.is_present(it) && !gone.contains(&it) && !history.has_left(it);
    if history.groups.iter().flat_map(|group| &group.members).any(is_awaited) {
        return;
    }
    for (number, group) in history.groups.numbered() {
        if group.members.iter().all(|&it| history.is_present(it)) {
            finding.instances += 1;
            judge.rollbacks(number, group, finding);
            judge.rounds(group, finding);
        }
    }
    finding.instances += 1;
    judge.movement(finding);
    stalled::check(history, calm, judge.limit(calm), finding);
}

/// Returns the size in bytes of all parts that processes saved after `since` although they had saved them before: after a
/// loss of storage, a recovery transfers them from their other copies. Each counts once, so that a recovery that never
/// ends does not extend its own limit.
fn refilled_bytes(history: &History<'_>, since: Time) -> u128 {
    let mut saved = BTreeSet::new();
    let mut again = BTreeMap::new();
    for it in history.witnessed.iter().filter(|it| !it.is_restored) {
        let Some(part) = it.part else { continue };
        let stored = (history.segment(it.at.segment).host, part);
        if !saved.insert(stored) && history.time(it.at) >= since {
            again.insert(stored, u128::from(it.bytes));
        }
    }
    again.values().sum()
}

/// The times at which a process started its last recovery and its last checkpoint; `None` for each that is
/// not in progress according to the process's facts.
#[derive(Default)]
struct Rounds {
    recovery: Option<Time>,
    checkpoint: Option<Time>,
}

fn begun(history: &History<'_>) -> BTreeMap<ProcessId, Rounds> {
    let mut all: BTreeMap<ProcessId, Rounds> = BTreeMap::new();
    for (&(process, life), stream) in &history.trace.streams {
        let rounds = all.entry(process).or_default();
        // The rounds of an earlier life ended with that life; a later life has to recover.
        let first = stream.first().map(|(at, _)| *at).filter(|_| life > Life(1));
        *rounds = Rounds { recovery: first, checkpoint: None };
        for (at, fact) in stream {
            match fact {
                Fact::Restored(_) => rounds.recovery = None,
                Fact::Claim(claim) => match **claim {
                    Claim::RecoveryStarted { .. } => {
                        *rounds = Rounds { recovery: Some(*at), checkpoint: None }
                    }
                    Claim::CheckpointRequested { .. } => rounds.checkpoint = Some(*at),
                    Claim::Committed { .. } | Claim::Aborted { .. } => rounds.checkpoint = None,
                    _ => {}
                },
                _ => {}
            }
        }
    }
    // In a planned program, only failed processes restore a state. A checkpoint is requested once all recoveries have
    // ended.
    let is_request = |it: &&Claimed<'_>| matches!(it.claim, Claim::CheckpointRequested { .. });
    let requested = history.claims.iter().filter(is_request).map(|it| it.time).max();
    if let Some(requested) = requested.filter(|_| history.planned.is_some()) {
        all.values_mut().for_each(|it| it.recovery = it.recovery.filter(|begun| requested <= *begun));
    }
    all
}

struct Judge<'a> {
    history: &'a History<'a>,
    /// The part of all limits that does not depend on what is transferred.
    fixed: Span,
    /// The time to transfer the parts that were saved again after the last fault.
    refill: Span,
    /// The time at which the last fault ended.
    since: Time,
    begun: BTreeMap<ProcessId, Rounds>,
}

impl Judge<'_> {
    /// Returns the limit for what began at this time.
    fn limit(&self, since: Time) -> Span {
        self.fixed + self.refill.max(self.history.transit_time(since))
    }

    fn rollbacks(&self, number: GroupId, group: &Group<'_>, finding: &mut Findings) {
        let restores = group.rollbacks.values().filter_map(|it| it.restores().next());
        let bound = self.fixed + self.refill;
        let mut late = restores.filter(|it| it.time > self.since + bound);
        if let Some(first) = late.next() {
            let times = 1 + late.count();
            finding.violated(
                [self.history.source(first.at)],
                Breach::RolledBackLate { group: number, times, bound },
            );
        }
    }

    fn rounds(&self, group: &Group<'_>, finding: &mut Findings) {
        for &member in &group.members {
            let Some(rounds) = self.begun.get(&member) else { continue };
            for (begun, round) in [(rounds.recovery, Round::Recovery), (rounds.checkpoint, Round::Checkpoint)]
            {
                let Some(since) = begun.map(|it| it.max(self.since)) else { continue };
                let bound = self.limit(since);
                if self.history.context.end.since(since) >= bound {
                    finding.violated([], Breach::RoundNotEnded { process: member, round, bound });
                }
            }
        }
    }

    /// Checks that the application makes progress, unless its earlier pauses were also long.
    fn movement(&self, finding: &mut Findings) {
        let mut times = Vec::new();
        for (_, stream) in
            self.history.trace.streams.iter().filter(|((it, _), _)| *it != ProcessId::SUPERVISOR)
        {
            let moves =
                |fact: &Fact| matches!(fact, Fact::Sent { .. } | Fact::Delivered(_) | Fact::Ran { .. });
            times.extend(stream.iter().filter(|(_, fact)| moves(fact)).map(|(at, _)| *at));
        }
        times.sort_unstable();
        let Some(&last) = times.last() else { return };
        let pause = times.windows(2).map(|it| it[1].since(it[0])).max().unwrap_or_default();
        let since = last.max(self.since);
        let still = self.history.context.end.since(since);
        let limit = self.limit(since) + self.history.context.longest_task;
        // Without a rollback, the application does not wait because of the protocol, which has delivered every message.
        let has_rolled_back = self.history.groups.iter().any(|it| !it.rollbacks.is_empty());
        if !has_rolled_back && completed::deadlock(self.history).is_some() {
            return;
        }
        if still >= limit.max(pause * 10) {
            finding.violated([], Breach::NoProgress { still });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned::Partitions;
    use crate::testing::{Run, check_alone};
    use faultline_core::fault::LinkProperties;
    use faultline_core::{ClusterId, Promise, Witness};
    use faultline_trace::manifest::LinkEntry;

    /// A run of two clusters that exceeded its deadline after a minute, and in which p0 failed at the start.
    fn run() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.common_clock = true;
        run.context.outcome = Some(Outcome::Deadline);
        run.context.end = Time::ZERO + Span::from_secs(60);
        run.supervisor(Fact::Begun);
        run.commit_all(0, &[0]);
        run.wait(Span::from_secs(1));
        run.kill(0, false);
        run.claim(0, Claim::RecoveryStarted { lives: 2, round: 0 });
        run
    }

    /// Makes the application progress until the end.
    fn move_on(run: &mut Run, seconds: u64) {
        for _ in 0..seconds {
            run.wait(Span::from_secs(1));
            let id = run.send(0, 1);
            run.deliver(id);
        }
    }

    /// Returns the first violation that `stalled` does not report.
    fn wrong(run: &Run) -> Option<Breach> {
        check_alone(&RULE, run).some_wrong().next()
    }

    #[test]
    fn a_federation_that_resumes_makes_progress() {
        let mut run = run();
        run.restore(0, 1, Some((0, 1)));
        move_on(&mut run, 58);
        assert_eq!((wrong(&run), check_alone(&RULE, &run).instances), (None, 3));
    }

    #[test]
    fn a_recovery_that_does_not_end_is_found() {
        let mut run = run();
        move_on(&mut run, 58);
        assert!(matches!(wrong(&run), Some(Breach::RoundNotEnded { round: Round::Recovery, .. })));
    }

    #[test]
    fn a_process_that_keeps_its_state_has_recovered_once_a_checkpoint_is_requested() {
        let found = |is_requested: bool| {
            let mut run = Partitions::promising(2, &[Promise::Progress]);
            run.0.context.common_clock = true;
            run.0.context.outcome = Some(Outcome::Deadline);
            run.0.context.end = Time::ZERO + Span::from_secs(60);
            run.0.supervisor(Fact::Begun);
            run.0.claim(0, Claim::RecoveryStarted { lives: 2, round: 0 });
            run.0.wait(Span::from_secs(1));
            if is_requested {
                let position = run.0.position(1);
                let attempt = faultline_core::Attempt(1);
                run.0.claim(1, Claim::CheckpointRequested { position, attempt, forced: false });
            }
            let found = check_alone(&RULE, &run.0).wrong::<Breach>();
            found.iter().any(|it| matches!(it, Breach::RoundNotEnded { round: Round::Recovery, .. }))
        };
        assert_eq!((found(false), found(true)), (true, false));
    }

    #[test]
    fn a_checkpoint_that_does_not_end_is_found() {
        let mut run = run();
        run.restore(0, 1, Some((0, 1)));
        let position = run.position(0);
        run.claim(
            0,
            Claim::CheckpointRequested { position, attempt: faultline_core::Attempt(1), forced: false },
        );
        move_on(&mut run, 58);
        assert!(matches!(wrong(&run), Some(Breach::RoundNotEnded { round: Round::Checkpoint, .. })));
    }

    #[test]
    fn a_recovery_may_take_the_time_to_transfer_lost_parts() {
        // `holder` saves a part of p0 `times` times, 20 s after the failure.
        let wrong_with = |holder: u32, bytes: u64, is_new: bool, times: u32| {
            let mut run = run();
            let requested = LinkProperties { bandwidth: 1_000_000, ..LinkProperties::default() };
            let (from, to) = (ClusterId(0), ClusterId(1));
            let (measured, observed, since) = (None, None, None);
            run.context.links = vec![LinkEntry { from, to, requested, measured, observed, since }];
            move_on(&mut run, 20);
            let stream = run.trace.streams[&(ProcessId(0), Life(1))].clone();
            let mut save = stream.into_iter().map(|it| it.1).find(|it| matches!(it, Fact::Saved(_))).unwrap();
            if let Fact::Saved(saved) = &mut save {
                saved.2 = bytes;
                saved.0.sn.0 += u32::from(is_new);
            }
            let Fact::Saved(saved) = &save else { unreachable!("it is one") };
            for _ in 0..times {
                run.state(holder, save.clone());
                run.durable(holder, saved.0);
            }
            run.restore(0, 1, Some((0, 1)));
            move_on(&mut run, 38);
            wrong(&run)
        };
        assert_eq!(wrong_with(0, 15_000_000, false, 1), None);
        let is_late = |it| matches!(it, Some(Breach::RolledBackLate { .. }));
        assert!(is_late(wrong_with(0, 5_000_000, false, 1)), "the transfer takes 5 of the 20 seconds");
        assert!(is_late(wrong_with(0, 5_000_000, false, 9)), "an endless transfer is no excuse");
        assert!(is_late(wrong_with(0, 15_000_000, true, 1)), "a new part is not transferred");
        assert!(is_late(wrong_with(1, 15_000_000, false, 1)), "a first replica does not replace a lost one");
        assert_eq!(wrong_with(1, 15_000_000, false, 2), None, "the holder has lost its replica");
    }

    #[test]
    fn a_recovery_may_wait_for_a_write_to_storage() {
        let mut run = run();
        move_on(&mut run, 58);
        assert!(matches!(wrong(&run), Some(Breach::RoundNotEnded { .. })));
        let part = run.image(0, 0, 9);
        run.state(0, Fact::Saved(Box::new((part, Witness::default(), 1))));
        assert_eq!(wrong(&run), None, "the write has yet to complete");
        run.durable(0, part);
        assert!(matches!(wrong(&run), Some(Breach::RoundNotEnded { .. })));
    }

    #[test]
    fn an_application_may_wait_for_everything_in_transit() {
        // A message has eight bytes; nothing moves during the last 56 s.
        for (bandwidth, messages, is_stalled) in
            [(0, 1, true), (0, 7, true), (1, 1, true), (1, 7, false), (1_000, 7, true)]
        {
            let mut run = run();
            let requested = LinkProperties { bandwidth, ..LinkProperties::default() };
            let (from, to, measured, observed, since) = (ClusterId(0), ClusterId(1), None, None, None);
            run.context.links = vec![LinkEntry { from, to, requested, measured, observed, since }];
            run.restore(0, 1, Some((0, 1)));
            move_on(&mut run, 3);
            for _ in 0..messages {
                run.send(0, 1);
            }
            let found = matches!(wrong(&run), Some(Breach::NoProgress { .. }));
            assert_eq!(found, is_stalled, "{bandwidth} {messages}");
        }
    }

    #[test]
    fn rollbacks_that_recur_are_found() {
        let mut run = run();
        run.restore(0, 1, Some((0, 1)));
        for incarnation in 2..20 {
            move_on(&mut run, 3);
            run.restore(0, incarnation, Some((0, 1)));
        }
        let late = Breach::RolledBackLate { group: GroupId(0), times: 15, bound: Span::from_secs(10) };
        assert_eq!(wrong(&run), Some(late));
    }

    #[test]
    fn a_stalled_application_is_found_unless_it_has_always_been_slow() {
        let mut run = run();
        run.restore(0, 1, Some((0, 1)));
        move_on(&mut run, 3);
        assert!(matches!(wrong(&run), Some(Breach::NoProgress { .. })));
        run.wait(Span::from_secs(10));
        move_on(&mut run, 1);
        assert_eq!(wrong(&run), None, "earlier pauses were as long");
    }

    #[test]
    fn a_program_has_not_stalled_while_its_longest_task_may_run() {
        let mut run = run();
        run.restore(0, 1, Some((0, 1)));
        move_on(&mut run, 3);
        assert!(matches!(wrong(&run), Some(Breach::NoProgress { .. })));
        run.context.longest_task = Span::from_secs(60);
        assert_eq!(wrong(&run), None);
    }

    #[test]
    fn a_protocol_that_promises_nothing_and_a_run_that_completed_are_not_judged() {
        let mut run = run();
        assert!(wrong(&run).is_some());
        run.context.outcome = Some(Outcome::Completed);
        assert_eq!(check_alone(&RULE, &run).instances, 0);
        run.context.outcome = Some(Outcome::Deadline);
        run.withdraw(Promise::Progress);
        let finding = check_alone(&RULE, &run);
        assert_eq!(
            (finding.instances, finding.violation_count(), finding.remarks.len()),
            (0, 0, 1),
            "{finding:?}"
        );
    }
}
