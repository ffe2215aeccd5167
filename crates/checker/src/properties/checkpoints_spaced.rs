//! Economy: a protocol takes unforced checkpoints no more often than the federation requests. The requested delay
//! begins when a checkpoint is committed. This property compares the delay with the time that the coordinator waited
//! before it requested the next checkpoint, by its own clock, within one life and without a rollback in between.
//!
//! The delay after a rollback is not judged: the state is installed, and the rollback reported, some time after the
//! delay begins. Once a coordinator has finished, its checkpoints are not judged either: a cluster that leaves takes
//! one more immediately.

use std::collections::BTreeMap;

use faultline_core::{Claim, Fact, Life, Position, ProcessId, Span, Time};
use faultline_trace::manifest::Bounds;

use crate::finding::{Findings, Worded};
use crate::properties::intervals::{SLACK, checkpoint_every};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use faultline_history::{Claimed, Context, GroupId, History, Point};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    CheckpointEarly {
        group: GroupId,
        position: Position,
        waited: Span,
        /// `None` if the cluster should take no unforced checkpoint after the first.
        every: Option<Span>,
    },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::CheckpointEarly { group, position, waited, every: Some(every) } => format!(
                "{} requested its checkpoint {position} {waited} after the previous one was committed, although it \
                 should have waited for {every}",
                names.group(group)
            ),
            Breach::CheckpointEarly { group, position, every: None, .. } => format!(
                "{} requested its checkpoint {position}, although it should take no unforced checkpoint after the first",
                names.group(group)
            ),
        }
    }
}

pub(super) const RULE: Rule = Rule::new(
    Property::CheckpointsSpaced,
    "unforced checkpoints were no more frequent than requested",
    check,
)
.with(&[Aspect::Economy]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(bounds) = &history.context.bounds else { return };
    // A process that is halted at one of its facts reports the following facts late, although its delays have already
    // begun.
    let is_halted = !history.context.halting.is_empty();
    if history.tasks.is_some() || history.planned.is_some() || is_halted {
        return;
    }
    let mut finishes = Finishes::default();
    // The process and the life that reported the last commit, and the time of that commit.
    let mut committed: Option<(ProcessId, Life, Time)> = None;
    for claimed in &history.claims {
        let process = history.process_of(claimed.at);
        let life = history.segment(claimed.at.segment).life;
        match *claimed.claim {
            Claim::Committed { .. } => committed = Some((process, life, claimed.time)),
            Claim::RolledBack { .. } => committed = None,
            Claim::CheckpointRequested { forced, .. } => {
                let since = committed.take().filter(|&(by, of, _)| (by, of) == (process, life) && !forced);
                if let Some((.., since)) = since
                    && !finishes.precede(history, (process, life), claimed.at)
                {
                    judge(history, bounds, claimed, since, finding);
                }
            }
            _ => {}
        }
    }
}

fn judge(history: &History<'_>, bounds: &Bounds, claimed: &Claimed<'_>, since: Time, finding: &mut Findings) {
    let Claim::CheckpointRequested { position, .. } = *claimed.claim else { return };
    let Some((group, _)) = history.member(history.process_of(claimed.at)) else { return };
    let Some(every) = checkpoint_every(history, bounds, &history.groups[group]) else { return };
    // The delay between two facts of a real process may be shorter than the delay between the events that they state.
    let slack = if history.context.common_clock { Span::ZERO } else { SLACK };
    let waited = claimed.time.since(since);
    finding.instances += 1;
    if every.is_none_or(|it| waited + slack < it) {
        let breach = Breach::CheckpointEarly { group, position, waited, every };
        finding.violated([history.source(claimed.at)], breach);
    }
}

/// For each life, the position of its first `finished` fact.
#[derive(Default)]
struct Finishes(BTreeMap<(ProcessId, Life), usize>);

impl Finishes {
    /// Returns whether the life had reported `finished` before the fact at `at`.
    fn precede(&mut self, history: &History<'_>, life: (ProcessId, Life), at: Point) -> bool {
        let first = self.0.entry(life).or_insert_with(|| {
            let stream = history.trace.streams.get(&life);
            let place =
                stream.and_then(|it| it.iter().position(|(_, fact)| matches!(fact, Fact::Finished(_))));
            place.unwrap_or(usize::MAX)
        });
        *first < at.fact as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, collecting, finds, position};
    use faultline_core::{Attempt, Digest};

    /// Returns a run of a cluster that should wait `every` between checkpoints. The cluster requests further
    /// checkpoints after these delays, in milliseconds.
    fn run(every: Option<Span>, delays: &[u64]) -> Run {
        let mut run = collecting(&[&[0]]);
        run.context.bounds.as_mut().unwrap().checkpoint_every = vec![every];
        run.commit_all(0, &[0]);
        for (sn, delay) in (2..).zip(delays) {
            run.wait(Span::from_millis(*delay));
            let (position, attempt) = (position(0, sn), Attempt(1));
            run.claim(0, Claim::CheckpointRequested { position, attempt, forced: false });
            run.commit_all(0, &[0]);
        }
        run
    }

    const SECOND: Option<Span> = Some(Span::from_secs(1));

    #[test]
    fn checkpoints_may_be_as_frequent_as_requested() {
        let finding = check_alone(&RULE, &run(SECOND, &[1_100, 2_000, 1_100]));
        assert_eq!((finding.instances, finding.violation_count()), (3, 0), "{:?}", finding.wrong::<Breach>());
    }

    #[test]
    fn a_checkpoint_before_the_end_of_the_delay_is_found() {
        let found = check_alone(&RULE, &run(SECOND, &[500, 500, 500]));
        assert_eq!(found.violation_count(), 3);
        finds!(found, Breach::CheckpointEarly { every: SECOND, .. });
    }

    /// A cluster that leaves takes one more checkpoint immediately.
    #[test]
    fn a_process_that_has_finished_need_not_wait() {
        let mut run = run(SECOND, &[1_100]);
        run.finish(0, Digest([0; 16]));
        let (position, attempt) = (position(0, 3), Attempt(1));
        run.claim(0, Claim::CheckpointRequested { position, attempt, forced: false });
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }

    #[test]
    fn an_unforced_checkpoint_without_a_delay_is_found() {
        finds!(check_alone(&RULE, &run(None, &[5_000, 5_000])), Breach::CheckpointEarly { every: None, .. });
    }
}
