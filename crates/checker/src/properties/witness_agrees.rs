//! The self-reported contents of a checkpoint, a restored state or a result match the facts before it: the hashes in
//! the witness are those of the sent and delivered messages in the stream or, in a task-based program, those of the
//! spawned and run tasks.

use faultline_core::fault::Outcome;
use faultline_core::{ImageName, Position, ProcessId, Promise};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use faultline_history::{CheckpointName, Context, History, Sums, Witnessed};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    SavedDifferently { part: ImageName },
    WrongContents { owner: ProcessId, position: Option<Position>, tasks: bool, sent: bool, delivered: bool },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::SavedDifferently { part } => {
                format!("two different states were saved as {}", names.names.part(part))
            }
            Breach::WrongContents { owner, position, tasks, sent, delivered } => {
                let what = position.map_or_else(|| "the final state".into(), |it| format!("checkpoint {it}"));
                let contents = match (tasks, sent, delivered) {
                    (false, true, true) => "messages that the process had sent and delivered",
                    (false, true, false) => "messages that the process had sent",
                    (false, false, _) => "messages that the process had delivered",
                    (true, true, true) => "tasks that the process had spawned and run",
                    (true, true, false) => "tasks that the process had spawned",
                    (true, false, _) => "tasks that the process had run",
                };
                format!("{what} of {} does not match the {contents}", names.process(owner))
            }
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::WitnessAgrees, "the content of every checkpoint matches the facts", check)
        .with(&[Aspect::NeverImported]);

fn check(history: &History<'_>, finding: &mut Findings) {
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
            let before = format!("before {} of {}", stated.upto, stated.life);
            finding
                .lacks_facts(format!("facts of {} {before} are missing", context.process(witnessed.owner)));
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
        finding.inconclusive(
            "no checkpoint was taken",
            "set the interval between checkpoints (`checkpointEvery` or `tau`) to less than the duration of the run",
        );
    }
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
    use crate::testing::{Run, check_alone};
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
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (3, 0));
        assert_eq!(finding.gap(), "");
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
        let finding = check_alone(&RULE, &run);
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
        finds!(check_alone(&RULE, &run), Breach::SavedDifferently { .. });
    }

    #[test]
    fn a_run_without_checkpoints_is_unknown() {
        assert!(check_alone(&RULE, &Run::new(&[&[0]])).open.is_some());
    }

    #[test]
    fn missing_facts_are_unknown() {
        let mut run = Run::new(&[&[0]]);
        let witness = Witness { life: Life(1), upto: FactNo(99), sent: 1, delivered: 0 };
        let name = run.image(0, 0, 1);
        run.state(0, Fact::Saved(Box::new((name, witness, 0))));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (0, 0));
        assert!(
            finding.gap().starts_with("facts of p0 before fact 99 of life 1 are missing; "),
            "{finding:?}"
        );
    }

    #[test]
    fn a_protocol_that_promises_no_checkpoint_need_not_take_one() {
        let mut run = Run::new(&[&[0]]);
        run.withdraw(Promise::Checkpoints);
        assert_eq!(check_alone(&RULE, &run).gap(), "");
    }
}
