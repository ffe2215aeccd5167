//! A process that has lost its storage states in time that the storage is complete again. Until then, one more failure
//! may find too few copies of a checkpoint. Part of `durableBeforeCommit`, for protocols that promise it.

use faultline_core::fault::Outcome;
use faultline_core::{Boot, Claim, Fact, Life, ProcessId, Promise, Span};

use super::line::slack;
use crate::finding::{Findings, Worded};
use faultline_history::{Claimed, Context, History};

/// How many times each process may save a part in the meantime.
const PARTS: u64 = 4;

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    NeverRefilled { process: ProcessId, still: Span },
    NotBelieved { process: ProcessId, stated: Life, life: Life },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::NeverRefilled { process, still } => format!(
                "{} had lost its storage, and did not state in the last {still} of the run that it is complete again",
                names.process(process)
            ),
            Breach::NotBelieved { process, stated, life } => format!(
                "life {} of {} stated that its lost storage is complete again, but life {} started as if it were not",
                stated.0,
                names.process(process),
                life.0
            ),
        }
    }
}

/// Adds the processes without complete storage to the finding of `durableBeforeCommit`.
pub(super) fn check(history: &History<'_>, finding: &mut Findings) {
    let context = history.context;
    if !context.common_clock || !context.promises.include(Promise::Refill) {
        return;
    }
    later_lives(history, finding);
    let Some(bound) = bound(history) else { return };
    let storing = context.clusters.iter().flatten().chain(&context.servers);
    for &process in storing.filter(|it| history.is_present(**it)) {
        let Some(&(_, lost, _)) = history.supervision.storage_losses(process).last() else { continue };
        let still = context.end.since(lost.max(history.calm_since()));
        if still <= bound {
            continue;
        }
        finding.instances += 1;
        if !statements(history).any(|(host, _, claimed)| host == process && claimed.time >= lost) {
            finding.violated([], Breach::NeverRefilled { process, still });
        }
    }
}

/// Returns the claims that lost storage is complete again, each with the process whose storage it is, and its life.
fn statements<'a>(history: &'a History<'_>) -> impl Iterator<Item = (ProcessId, Life, &'a Claimed<'a>)> {
    history.claims.iter().filter(|it| matches!(it.claim, Claim::Protected)).map(|it| {
        let segment = history.segment(it.at.segment);
        (segment.host, segment.life, it)
    })
}

/// Checks that a process that states that its storage is complete also reports this to the supervisor, which then starts
/// its later lives as restarted. A report may be lost if the life ends soon after the statement.
fn later_lives(history: &History<'_>, finding: &mut Findings) {
    for (process, stated, claimed) in statements(history) {
        let is_lost = |before: Life| {
            let losses = history.supervision.storage_losses(process);
            losses.iter().any(|it| stated <= it.0 && it.0 < before)
        };
        let end = history.supervision.end_of(process, stated);
        if end.is_none_or(|it| it.at.since(claimed.time) <= slack(history)) {
            continue;
        }
        let later = history.supervision.starts.iter().filter(|it| it.0 == process && it.1 > stated);
        for &(_, life, fact) in later {
            let Fact::LifeStarted { boot, .. } = history.trace.supervisor()[fact].1 else { continue };
            finding.instances += 1;
            if boot == Boot::Replaced && !is_lost(life) {
                let breach = Breach::NotBelieved { process, stated, life };
                finding.violated([history.source(claimed.at)], breach);
            }
        }
    }
}

/// Returns the time within which a process has all copies again; `None` if it need not, or if this is not judged. Other
/// processes may have to restore their parts first, so all of them must be up.
fn bound(history: &History<'_>) -> Option<Span> {
    let context = history.context;
    let has_ended = matches!(context.outcome, Some(Outcome::Completed | Outcome::Deadline));
    let is_up = |it: &ProcessId| history.is_present(*it) || history.has_left(*it);
    let has_parts = !history.witnessed.is_empty();
    let is_judged = has_ended && has_parts && !history.is_flawed();
    let others = history.supervision.starts.iter().map(|it| &it.0);
    if !is_judged || !context.clusters.iter().flatten().chain(others).all(is_up) {
        return None;
    }
    let part = history.witnessed.iter().map(|it| it.bytes).max().unwrap_or_default();
    let bytes = u128::from(part) * context.clusters.iter().flatten().count() as u128 * u128::from(PARTS);
    let writes = history.slowest_write()? * PARTS;
    Some(slack(history) * 2 + history.transfer_time(bytes) + writes)
}

#[cfg(test)]
mod tests {
    use super::super::durable_before_commit;
    use super::*;
    use crate::testing::{Run, check_alone, collecting};
    use faultline_core::Time;

    /// Returns a run in which p1 loses its storage and returns.
    fn run() -> Run {
        let mut run = collecting(&[&[0], &[1]]);
        run.context.promises = run.context.promises.with(&[Promise::Refill]);
        run.commit_all(0, &[0]);
        run.commit_all(1, &[1]);
        run.kill(1, true);
        run.restore(1, 1, Some((0, 1)));
        run
    }

    fn judged(run: &Run) -> Vec<Breach> {
        check_alone(&durable_before_commit::RULE, run).wrong()
    }

    #[test]
    fn lost_storage_is_complete_again_in_time() {
        let mut run = run();
        run.wait(Span::from_secs(1));
        assert!(matches!(judged(&run)[..], [Breach::NeverRefilled { process: ProcessId(1), .. }]));
        run.claim(1, Claim::Protected);
        assert_eq!(judged(&run), []);
    }

    #[test]
    fn a_claim_before_the_loss_does_not_count() {
        let mut run = run();
        run.claim(1, Claim::Protected);
        run.wait(Span::from_secs(1));
        run.kill(1, true);
        run.restore(1, 2, Some((0, 1)));
        assert!(!judged(&run).is_empty());
    }

    #[test]
    fn a_statement_that_the_supervisor_does_not_know_is_found() {
        let started = |boot: Boot, is_lost_again: bool, waited: Span| {
            let mut run = run();
            run.claim(1, Claim::Protected);
            run.wait(waited);
            run.kill(1, is_lost_again);
            run.restore(1, 2, Some((0, 1)));
            run.claim(1, Claim::Protected);
            let supervisor = run.trace.streams.get_mut(&(ProcessId::SUPERVISOR, Life(0))).unwrap();
            for (_, fact) in supervisor {
                if let Fact::LifeStarted { life: Life(3), boot: it, .. } = fact {
                    *it = boot;
                }
            }
            judged(&run)
        };
        let breach = Breach::NotBelieved { process: ProcessId(1), stated: Life(2), life: Life(3) };
        let later = Span::from_secs(2);
        assert_eq!(started(Boot::Replaced, false, later), [breach]);
        assert_eq!(started(Boot::Replaced, false, Span::ZERO), [], "the report may be lost");
        assert_eq!(started(Boot::Restarted, false, later), []);
        assert_eq!(started(Boot::Replaced, true, later), []);
    }

    #[test]
    fn a_run_that_ends_soon_and_a_protocol_that_promises_nothing_are_not_judged() {
        let mut soon = run();
        soon.context.end = Time::ZERO + Span::from_secs(1);
        assert_eq!(judged(&soon), []);
        let mut other = run();
        other.withdraw(Promise::Refill);
        assert_eq!(judged(&other), []);
    }
}
