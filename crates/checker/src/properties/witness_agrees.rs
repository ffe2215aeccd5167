//! The self-reported contents of a checkpoint, a restored state or a result match the facts before it: the
//! multisets of sent and delivered messages, rebuilt from the stream, have the hashes of the witness.

use faultline_core::Promise;
use faultline_core::fault::Outcome;

use crate::history::{CheckpointName, History, Sums};
use crate::judgement::{Finding, Property};

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::WitnessAgrees);
    let context = history.context;
    for witnessed in &history.witnessed {
        let stated = &witnessed.witness;
        // The contents of a result are judged as the end of the program.
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
            finding.violated([history.source(at), history.source(witnessed.at)], || {
                format!("two different states were saved as {name}")
            });
            continue;
        }
        let is_initial = *stated == faultline_core::Witness::default();
        let rebuilt = if is_initial {
            Some(Sums::default())
        } else if let Some(tasks) = &history.tasks {
            tasks.contained(witnessed.owner, stated)
        } else if history.planned.is_some() && witnessed.part.is_none() {
            Some(history.sums_of_host(witnessed.at))
        } else {
            let cut = match witnessed.part {
                Some(name) => history.cut_of_part(name, stated),
                None => history.cut_of(witnessed.owner, stated),
            };
            cut.filter(|cut| !history.segment(cut.segment).is_rootless).map(|cut| history.sums_at(cut))
        };
        let owner = || context.process(witnessed.owner);
        let Some(rebuilt) = rebuilt else {
            finding.unjudged(|| {
                format!("facts of {} before {} of {} are missing", owner(), stated.upto, stated.life)
            });
            continue;
        };
        finding.instances += 1;
        if rebuilt != (Sums { sent: stated.sent, delivered: stated.delivered }) {
            finding.violated([history.source(witnessed.at)], || {
                let what = match witnessed.part {
                    Some(name) => format!("checkpoint {}", name.position()),
                    None => "the final state".into(),
                };
                let which = match (rebuilt.sent == stated.sent, rebuilt.delivered == stated.delivered) {
                    (true, _) => "delivered",
                    (_, true) => "sent",
                    _ => "sent and delivered",
                };
                let (things, which) = match (&history.tasks, which) {
                    (None, which) => ("messages", which),
                    (Some(_), "sent") => ("tasks", "spawned"),
                    (Some(_), "delivered") => ("tasks", "run"),
                    (Some(_), _) => ("tasks", "spawned and run"),
                };
                format!("{what} of {} does not match the {things} that it had {which}", owner())
            });
        }
    }
    let takes_checkpoints = context.promises.include(Promise::Checkpoints);
    let has_checkpoints = history.witnessed.iter().any(|it| it.part.is_some());
    if takes_checkpoints && !has_checkpoints && context.outcome == Some(Outcome::Completed) {
        finding.unjudged(|| "no checkpoint was taken".into());
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(finding.unknown, None);
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
        assert!(finding.violations[0].text.contains("it had delivered"), "{:?}", finding.violations);
    }

    #[test]
    fn restoring_another_state_than_was_saved_is_found() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.send(0, 1);
        let witness = run.witness(0);
        run.state(
            0,
            Fact::Restored(Box::new((Some(run.image(0, 0, 1)), faultline_core::Incarnation(1), witness))),
        );
        assert!(check_alone(check, &run).violations[0].text.contains("two different states"));
    }

    #[test]
    fn a_run_without_checkpoints_is_unknown() {
        assert!(check_alone(check, &Run::new(&[&[0]])).unknown.is_some());
    }

    #[test]
    fn missing_facts_are_unknown() {
        let mut run = Run::new(&[&[0]]);
        let witness = Witness { life: Life(1), upto: FactNo(99), sent: 1, delivered: 0 };
        let name = run.image(0, 0, 1);
        run.state(0, Fact::Saved(Box::new((name, witness, 0))));
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (0, 0));
        assert!(finding.unknown.unwrap().contains(&p(0).to_string()));
    }

    #[test]
    fn a_protocol_that_promises_no_checkpoint_need_not_take_one() {
        let mut run = Run::new(&[&[0]]);
        run.withdraw(Promise::Checkpoints);
        assert_eq!(check_alone(check, &run).unknown, None);
    }
}
