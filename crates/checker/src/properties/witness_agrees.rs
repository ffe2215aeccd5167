//! The self-reported contents of a checkpoint, a restored state or a result match the facts before it: the hashes in
//! the witness are those of the sent and delivered messages in the stream or, in a task-based program, those of the
//! spawned and run tasks.

use faultline_core::fault::Outcome;
use faultline_core::{ProcessId, Promise};

use crate::finding::{Breach, Findings, Gap};
use crate::judgement::Property;
use faultline_history::{CheckpointName, History, Sums, Witnessed};

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::WitnessAgrees);
    let context = history.context;
    for witnessed in &history.witnessed {
        let stated = &witnessed.witness;
        // `tasks_once` judges the contents of a result, at the end of the program.
        if history.tasks.is_some() && witnessed.part.is_none() && !witnessed.is_restored {
            continue;
        }
        let first = witnessed.part.and_then(|name| {
            let (group, place) = history.member(name.owner)?;
            history.groups[group].checkpoints.get(&CheckpointName::from(name))?.parts[place].witness
        });
        if let (Some((first, at)), Some(name)) = (first, witnessed.part)
            && (first.sent, first.delivered) != (stated.sent, stated.delivered)
        {
            finding.instances += 1;
            finding.violated(
                [history.source(at), history.source(witnessed.at)],
                Breach::SavedDifferently { part: name },
            );
            continue;
        }
        let Some(rebuilt) = rebuilt(history, witnessed) else {
            finding.unjudged(Gap::FactsMissingBefore {
                process: witnessed.owner,
                life: stated.life,
                upto: stated.upto,
            });
            continue;
        };
        finding.instances += 1;
        if rebuilt != (Sums { sent: stated.sent, delivered: stated.delivered }) {
            finding.violated(
                [history.source(witnessed.at)],
                Breach::WrongContents {
                    owner: witnessed.owner,
                    position: witnessed.part.map(|name| name.position()),
                    tasks: history.tasks.is_some(),
                    sent: rebuilt.sent != stated.sent,
                    delivered: rebuilt.delivered != stated.delivered,
                },
            );
        }
    }
    let takes_checkpoints = context.promises.include(Promise::Checkpoints);
    let has_checkpoints = history.witnessed.iter().any(|it| it.part.is_some());
    if takes_checkpoints && !has_checkpoints && context.outcome == Some(Outcome::Completed) {
        finding.unjudged(Gap::NoCheckpoint);
    }
    finding
}

/// Returns the sums of the state that a witness describes, computed from the facts; `None` if facts are missing.
fn rebuilt(history: &History<'_>, witnessed: &Witnessed) -> Option<Sums> {
    let stated = &witnessed.witness;
    if *stated == faultline_core::Witness::default() {
        return Some(Sums::default());
    }
    if let Some(tasks) = &history.tasks {
        return tasks.contained(witnessed.owner, stated);
    }
    if history.planned.is_some() && witnessed.part.is_none() {
        return Some(history.sums_of_host(witnessed.at));
    }
    let cut = match witnessed.part {
        Some(name) => history.cut_of_part(name, stated),
        None => history.cut_of(witnessed.owner, stated),
    };
    cut.filter(|cut| !history.segment(cut.segment).is_rootless).map(|cut| history.sums_at(cut))
}

/// Returns whether the sends that the witnesses of `process` state differ from those in its facts.
pub(crate) fn contradicts_sends(history: &History<'_>, process: ProcessId) -> bool {
    let mut own = history.witnessed.iter().filter(|it| it.owner == process);
    own.any(|it| rebuilt(history, it).is_none_or(|rebuilt| rebuilt.sent != it.witness.sent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::{Fact, FactNo, Life, Witness};

    #[test]
    fn correct_witnesses_agree_across_restores_and_lives() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.kill(1, false);
        run.restore(1, 1, Some((0, 1)));
        run.deliver(id);
        run.commit_all(1, &[1]);
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (3, 0));
        assert_eq!(finding.open, None);
    }

    #[test]
    fn a_state_without_a_delivered_message_is_found() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        run.deliver(id);
        let mut witness = run.witness(1);
        witness.delivered = 0;
        let name = run.image(1, 0, 1);
        run.state(1, Fact::Saved(Box::new((name, witness, 0))));
        let finding = check_alone(check, &run);
        assert_eq!(finding.violation_count(), 1);
        finds!(finding, Breach::WrongContents { sent: false, delivered: true, .. });
    }

    #[test]
    fn restoring_a_state_other_than_the_saved_one_is_found() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.send(0, 1);
        let witness = run.witness(0);
        run.state(
            0,
            Fact::Restored(Box::new((Some(run.image(0, 0, 1)), faultline_core::Incarnation(1), witness))),
        );
        finds!(check_alone(check, &run), Breach::SavedDifferently { .. });
    }

    #[test]
    fn a_run_without_checkpoints_is_unknown() {
        assert!(check_alone(check, &Run::new(&[&[0]])).open.is_some());
    }

    #[test]
    fn missing_facts_are_unknown() {
        let mut run = Run::new(&[&[0]]);
        let witness = Witness { life: Life(1), upto: FactNo(99), sent: 1, delivered: 0 };
        let name = run.image(0, 0, 1);
        run.state(0, Fact::Saved(Box::new((name, witness, 0))));
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (0, 0));
        assert!(matches!(finding.open, Some(Gap::FactsMissingBefore { process, .. }) if process == p(0)));
    }

    #[test]
    fn a_protocol_that_promises_no_checkpoint_need_not_take_one() {
        let mut run = Run::new(&[&[0]]);
        run.withdraw(Promise::Checkpoints);
        assert_eq!(check_alone(check, &run).open, None);
    }
}
