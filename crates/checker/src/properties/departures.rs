//! A cluster that the federation lets leave does leave: once all its processes have finished, no fault disturbs the
//! federation, and collections follow checkpoints that all clusters have taken since. How long this takes depends on the
//! periods of both. Part of `progress`.

use faultline_core::fault::Outcome;
use faultline_core::{ClusterId, ProcessId, Span, Time};

use super::line::{calm_since, slack};
use crate::finding::{Findings, Worded};
use faultline_history::{Context, History};

/// Periods between checkpoints and between collections within which a cluster leaves.
const PERIODS: u64 = 3;
/// How many times each process may save a part in the meantime.
const PARTS: u128 = 4;

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    NeverLeft { cluster: ClusterId, still: Span },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::NeverLeft { cluster, still } = *self;
        format!(
            "{} was to leave and had finished, but did not leave in the last {still} of the run",
            names.cluster(cluster)
        )
    }
}

/// Adds the clusters that did not leave to the finding of `progress`.
pub(super) fn check(history: &History<'_>, finding: &mut Findings) {
    let (context, supervision) = (history.context, &history.supervision);
    let stays = |cluster: &ClusterId| supervision.left.iter().all(|(_, it)| it != cluster);
    for cluster in context.leaving.iter().copied().filter(stays) {
        if context.outcome == Some(Outcome::Completed) {
            finding.remark(format!("{} had not left when the run completed", context.cluster(cluster)));
        }
        let Some(bound) = bound(history) else { continue };
        let Some(finished) = finished(history, cluster) else { continue };
        finding.instances += 1;
        let still = context.end.since(finished.max(calm_since(history)));
        if still > bound {
            finding.violated([], Breach::NeverLeft { cluster, still });
        }
    }
    let left = supervision.left.iter().filter(|(_, it)| context.leaving.contains(it)).count();
    finding.instances += left as u64;
}

/// Returns the time within which a cluster leaves; `None` if it need not leave, or if this is not judged.
fn bound(history: &History<'_>) -> Option<Span> {
    let context = history.context;
    let has_ended = matches!(context.outcome, Some(Outcome::Completed | Outcome::Deadline));
    if !context.common_clock || !has_ended || history.is_flawed() || history.planned.is_some() {
        return None;
    }
    // A cluster waits for processes that are down, and for checkpoints of all clusters.
    let is_up = |process: &ProcessId| {
        let newest = history.supervision.newest_life(*process);
        newest.is_some_and(|life| history.supervision.end_of(*process, life).is_none())
            || history.has_left(*process)
    };
    if !context.clusters.iter().flatten().all(is_up) {
        return None;
    }
    let bounds = context.bounds.as_ref()?;
    let every: Option<Vec<Span>> = bounds.checkpoint_every.iter().copied().collect();
    let period = bounds.collect_every? + every?.into_iter().max()?;
    let part = history.witnessed.iter().map(|it| it.bytes).max().unwrap_or_default();
    let bytes = u128::from(part) * context.clusters.iter().flatten().count() as u128 * PARTS;
    // Writes to a slow storage may still be queued long after the fault.
    let writes = history.slowest_write()? * PARTS as u64;
    Some(period * PERIODS + slack(history) * 2 + history.transfer_time(bytes) + writes)
}

/// Returns when the last process of a cluster finished; `None` if one of them has not finished in its final state.
fn finished(history: &History<'_>, cluster: ClusterId) -> Option<Time> {
    let of = |process: ProcessId| {
        let own = history.results.iter().map(|(at, ..)| *at);
        let mut own = own.filter(|at| history.process_of(*at) == process && history.survives(*at));
        own.next().map(|at| history.time(at))
    };
    let members = history.context.clusters.get(cluster.index())?;
    members.iter().map(|&it| of(it)).try_fold(Time::ZERO, |last, it| Some(last.max(it?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::Property;
    use crate::testing::{Run, collecting, p};
    use faultline_core::{Digest, EndedBy, Fact, Life, StorageFate};

    /// Returns a run that completes a minute after both clusters have finished. The second one is to leave.
    fn run() -> Run {
        let mut run = collecting(&[&[0], &[1]]);
        run.context.leaving = vec![ClusterId(1)];
        run.context.bounds.as_mut().unwrap().checkpoint_every = vec![Some(Span::from_secs(1)); 2];
        run.supervisor(Fact::Begun);
        (0..2).for_each(|rank| run.finish(rank, Digest([0; 16])));
        run
    }

    fn judged(run: &Run) -> Findings {
        let mut finding = Findings::new(Property::Progress);
        check(&run.history(), &mut finding);
        finding
    }

    #[test]
    fn a_cluster_that_finished_and_never_leaves_is_found() {
        let mut run = run();
        let finding = judged(&run);
        assert!(matches!(finding.wrong::<Breach>()[..], [Breach::NeverLeft { cluster: ClusterId(1), .. }]));
        assert_eq!(finding.remarks, ["c1 had not left when the run completed"]);
        run.supervisor(Fact::Left(ClusterId(1)));
        let finding = judged(&run);
        assert_eq!((finding.instances, finding.wrong::<Breach>(), finding.remarks.len()), (1, vec![], 0));
    }

    #[test]
    fn a_cluster_may_stay_as_long_as_it_cannot_leave() {
        let changed = |change: fn(&mut Run)| {
            let mut run = run();
            change(&mut run);
            judged(&run).wrong::<Breach>()
        };
        let bounds = |run: &mut Run| run.context.bounds.as_mut().unwrap().collect_every = None;
        assert_eq!(changed(bounds), [], "nothing is collected");
        assert_eq!(changed(|run| run.context.leaving.clear()), [], "it is not to leave");
        let never = |run: &mut Run| run.context.bounds.as_mut().unwrap().checkpoint_every[0] = None;
        assert_eq!(changed(never), [], "the other cluster takes no checkpoints");
        assert_eq!(
            changed(|run| run.context.end = Time::ZERO + Span::from_secs(10)),
            [],
            "the run ended soon"
        );
        let down = |run: &mut Run| {
            let (process, life, by) = (p(0), Life(1), EndedBy::Silence);
            run.supervisor(Fact::Failed { process, life, storage: StorageFate::Kept, by });
        };
        assert_eq!(changed(down), [], "a process is down");
        let queued = |run: &mut Run| {
            let (name, witness) = (run.image(0, 0, 1), run.witness(0));
            run.state(0, Fact::Saved(Box::new((name, witness, 8))));
            run.wait(Span::from_secs(20));
            run.durable(0, name);
        };
        assert_eq!(changed(queued), [], "a checkpoint of the other cluster waits for its storage");
        let undone = |run: &mut Run| {
            run.kill(1, false);
            run.restore(1, 1, None);
        };
        assert_eq!(changed(undone), [], "it has not finished again");
    }
}
