//! Economy: parts that no recovery can need are removed (HC3I, section 3.5). At the end of a run, no storage
//! holds a part of a checkpoint that became useless at least two collections earlier: a rollback had undone
//! it, or every checkpoint that a recovery could restore was newer.
//!
//! A replica may become durable after its owner has told the holder to remove it, and then stays until the owner offers
//! its parts to the holder again. Up to two such parts of an owner at another process are only reported as a remark,
//! because they do not accumulate.
//!
//! This property is judged by the contents of the storages, not by the collections that the protocol claims.
//! It is judged in virtual time only, where all processes read the same clock.

use std::collections::BTreeMap;

use super::line::{Garbage, RecoveryLine, due_since};
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use faultline_core::{FactKind, ImageName, ProcessId, Time};
use faultline_history::{Context, History};

/// The tolerated number of needless parts of an owner at another process.
const TOLERATED: usize = 2;

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    NotRemoved { holder: ProcessId, part: ImageName, why: Garbage, since: Time },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::NotRemoved { holder, part, why, since } = *self;

        let why = match why {
            Garbage::Undone => "a rollback had undone the checkpoint",
            Garbage::Older => "every checkpoint that a recovery could restore was newer",
        };
        format!(
            "at the end, {} still stored the part of {} in checkpoint {}, although by {:.2} s {why}",
            names.process(holder),
            names.process(part.owner),
            part.position(),
            since.as_secs_f64()
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::PartsCollected, "checkpoints that no recovery can need were removed", check)
        .needs(&[FactKind::Removed])
        .with(&[Aspect::Economy]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(since) = due_since(history) else { return };
    let line = RecoveryLine::at(history, since);
    let mut needless: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (holder, part) in history.stored() {
        let Some((group, place)) = history.member(part.owner) else { continue };
        // A part that was saved after `since` may belong to a checkpoint that was aborted, and is not due for removal
        // yet.
        let saved =
            history.groups[group].checkpoints.get(&part.into()).and_then(|it| it.parts[place].witness);
        let Some((_, at)) = saved.filter(|(_, at)| history.time(*at) <= since) else { continue };
        finding.instances += 1;
        if let Some(why) = line.is_needless(group, part.position()) {
            let wrong = Breach::NotRemoved { holder, part, why, since };
            needless.entry((holder, part.owner)).or_default().push((history.source(at), wrong));
        }
    }
    for ((holder, owner), mut parts) in needless {
        if holder != owner && parts.len() <= TOLERATED {
            let more = parts.len() as u64 - 1;
            if let Some((_, first)) = parts.drain(..).next() {
                finding.wasteful(&first, more, history.context);
            }
        }
        parts.into_iter().for_each(|(source, it)| finding.violated([source], it));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, collecting, finds};
    use faultline_core::{Fact, Span, Time, Witness};

    /// Two checkpoints, and a minute without events.
    fn run() -> Run {
        let mut run = collecting(&[&[0], &[1]]);
        run.commit_with(0, &[0], &[], &[]);
        run.commit_with(0, &[0], &[], &[]);
        run
    }

    #[test]
    fn an_older_checkpoint_must_have_been_removed() {
        let mut run = run();
        finds!(check_alone(&RULE, &run), Breach::NotRemoved { why: Garbage::Older, .. });
        run.state(0, Fact::Removed(run.image(0, 0, 1)));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn an_undone_checkpoint_must_have_been_removed() {
        let mut run = run();
        run.state(0, Fact::Removed(run.image(0, 0, 1)));
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        finds!(check_alone(&RULE, &run), Breach::NotRemoved { why: Garbage::Undone, .. });
    }

    #[test]
    fn a_replica_that_was_left_behind_is_a_remark() {
        let mut run = run();
        run.state(0, Fact::Removed(run.image(0, 0, 1)));
        for sn in [3, 4, 5] {
            let image = run.image(0, 0, sn - 2);
            run.state(1, Fact::Saved(Box::new((image, Witness::default(), 0))));
            run.durable(1, image);
            run.commit_with(0, &[0], &[], &[]);
            run.state(0, Fact::Removed(run.image(0, 0, sn - 1)));
            let finding = check_alone(&RULE, &run);
            let stray = sn - 2;
            assert_eq!(finding.violation_count() > 0, stray > 2, "{stray}: {finding:?}");
            assert_eq!(finding.remarks.len(), usize::from(stray <= 2));
        }
    }

    #[test]
    fn nothing_is_due_before_two_collections_or_without_any() {
        let mut run = run();
        run.context.end = Time::ZERO + Span::from_secs(10);
        assert_eq!(check_alone(&RULE, &run).instances, 0);
        run.context.end = Time::ZERO + Span::from_secs(60);
        run.context.bounds.as_mut().unwrap().collect_every = None;
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }

    #[test]
    fn clocks_of_different_processes_are_not_compared() {
        let mut run = run();
        run.context.common_clock = false;
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }
}
