//! Economy: a forced checkpoint has a reason (HC3I, section 3.2). A message forces a checkpoint only if it carries a
//! position that its receiver's dependencies vector does not cover, so a forced checkpoint raises the vector's entry
//! for another cluster. This property is judged for protocols that promise it, from the vectors that the first member
//! of each cluster reports. The other members must report the same vectors (see `members_agree`).
//!
//! A message that forced a checkpoint may be undone before its delivery. Such a checkpoint still had a reason.

use faultline_core::{Claim, FactKind, Position, Promise, Vectors};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use faultline_history::{Context, GroupId, History, Point};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    ForcedWithoutNews { group: GroupId, position: Position },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::ForcedWithoutNews { group, position } = *self;
        format!(
            "checkpoint {position} of {} was forced, although no message carried a new position",
            names.group(group)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::ForcedByNews, "every forced checkpoint followed a new dependency", check)
        .promised(Promise::ForcedByNews)
        .needs(&[FactKind::Transmitted, FactKind::CheckpointCommitted])
        .with(&[Aspect::Economy]);

fn check(history: &History<'_>, finding: &mut Findings) {
    // The vectors in force, and the claim that states them.
    let mut before: Option<(Point, &Vectors)> = None;
    for claimed in &history.claims {
        let process = history.process_of(claimed.at);
        let Some((group, 0)) = history.member(process) else { continue };
        let (forced, position, vectors) = match claimed.claim {
            Claim::Committed { forced, position, vectors, .. } => (*forced, *position, vectors),
            Claim::RolledBack { to, vectors, .. } => (false, *to, vectors),
            _ => continue,
        };
        let life = |at: Point| (history.process_of(at), history.segment(at.segment).life);
        let previous = before.filter(|(at, _)| life(*at) == life(claimed.at));
        if let Some((since, known)) = previous.filter(|_| forced) {
            finding.instances += 1;
            if !raises(vectors, known, group) && !waited_for_undone(history, group, since) {
                finding.violated(
                    [history.source(since), history.source(claimed.at)],
                    Breach::ForcedWithoutNews { group, position },
                );
            }
        }
        before = Some((claimed.at, vectors));
    }
}

/// Returns whether the entry for any group other than `own` is greater than before.
fn raises(vectors: &Vectors, known: &Vectors, own: GroupId) -> bool {
    let entries = (0..).zip(vectors.ddv.iter()).filter(|(group, _)| *group != own.0);
    entries
        .into_iter()
        .any(|(group, &at)| at > known.ddv.get(usize::from(group)).copied().unwrap_or_default())
}

/// Returns whether, since `since`, a member of the group held a message whose send was undone, or may have been.
fn waited_for_undone(history: &History<'_>, group: GroupId, since: Point) -> bool {
    let earliest = history.time(since);
    let mut held = history.held.iter().filter(|(id, at)| {
        let is_recent = !history.context.common_clock || history.time(*at) >= earliest;
        history.group_of(id.to) == Some(group) && is_recent
    });
    held.any(|(id, _)| history.messages.find(*id).is_none_or(|it| history.send_survives(it) != Some(true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, finds, position};
    use faultline_core::{Attempt, Position, Promise, Span};
    use std::sync::Arc;

    fn run() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.promises = run.context.promises.with(&[Promise::ForcedByNews]);
        run.commit_with(0, &[0], &[position(0, 1), position(0, 1)], &[]);
        run
    }

    fn force(run: &mut Run, ddv: [Position; 2]) {
        let vectors = Arc::new(Vectors { ddv: ddv.into(), delivered: [].into() });
        let (attempt, frozen) = (Attempt(1), Span::ZERO);
        run.claim(0, Claim::Committed { position: ddv[0], attempt, forced: true, frozen, vectors });
    }

    #[test]
    fn a_forced_checkpoint_raises_an_entry_of_another_cluster() {
        let mut run = run();
        force(&mut run, [position(0, 2), position(0, 2)]);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
        force(&mut run, [position(0, 3), position(0, 2)]);
        finds!(check_alone(&RULE, &run), Breach::ForcedWithoutNews { .. });
    }

    #[test]
    fn a_message_that_was_undone_is_a_reason() {
        let mut run = run();
        let id = run.message(1, 0, 0, 0);
        run.claim(0, Claim::Forcing { id });
        force(&mut run, [position(0, 2), position(0, 1)]);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn a_protocol_that_does_not_promise_it_is_not_judged() {
        let mut run = run();
        force(&mut run, [position(0, 2), position(0, 1)]);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
        run.withdraw(Promise::ForcedByNews);
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }
}
