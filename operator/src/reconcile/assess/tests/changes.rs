//! Tests of what is reported about changes to a federation.

use faultline_api::supervision::Amendment;

use super::*;

/// A change that the operator, or a supervisor that cannot read it, refuses.
fn change_refused(why: &str) -> Told {
    Told::Accepted(Applied::default(), Some(why.to_owned()))
}

#[test]
fn a_refused_change_is_reported_once_and_the_run_continues() {
    let refused = |why: &str| Some(Amendment { generation: 1, refused: Some(why.into()) });
    let said = RunStatus {
        phase: RunPhase::Running,
        amendment: refused("spec.faults: gone"),
        ..RunStatus::default()
    };
    let mut observed = Observed::of(Arc::new(quickstart()));
    observed.hear(said.clone());
    let (status, new_events) = look(&mut observed, &accepted(None), 1);
    let condition = condition_of(&status, condition::ACCEPTED);
    assert_eq!((&*condition.status, &*condition.reason), ("False", "ChangeRefused"));
    assert!(condition.message.contains("spec.faults: gone"), "{}", condition.message);
    assert_eq!((status.phase, &status.message), (Phase::Running, &Some(condition.message.clone())));
    assert_eq!(reasons(&new_events).iter().filter(|it| **it == "ChangeRefused").count(), 1);
    let (_, new_events) = look(&mut observed, &accepted(None), 2);
    assert!(!reasons(&new_events).contains(&"ChangeRefused"), "{new_events:?}");

    // A newer spec that the supervisor has accepted, then an invalid one.
    let mut federation = (*observed.federation).clone();
    federation.metadata.generation = Some(2);
    observed.federation = Arc::new(federation.clone());
    observed.hear(RunStatus { amendment: Some(Amendment { generation: 2, refused: None }), ..said });
    let (status, _) = look(&mut observed, &accepted(None), 3);
    assert_eq!(condition_of(&status, condition::ACCEPTED).status, "True");
    let situation = change_refused("spec.links: nonsense");
    let (status, new_events) = look(&mut observed, &situation, 4);
    assert!(condition_of(&status, condition::ACCEPTED).message.contains("spec.links: nonsense"));
    assert_eq!((status.phase, reasons(&new_events)), (Phase::Running, vec!["ChangeRefused"]));
}

#[test]
fn a_change_is_accepted_only_once_the_supervisor_has_answered() {
    let answer = |phase, generation, refused: Option<&str>| {
        let amendment = Amendment { generation, refused: refused.map(str::to_owned) };
        RunStatus { phase, amendment: Some(amendment), ..RunStatus::default() }
    };
    let mut observed = running(RunStatus { phase: RunPhase::Running, ..RunStatus::default() });
    let is_accepted = |observed: &mut Observed, situation: &Told| {
        let (status, new_events) = look(observed, situation, 1);
        let accepted = condition_of(&status, condition::ACCEPTED);
        let reported = reasons(&new_events).contains(&"ChangeRefused");
        (accepted.status == "True", accepted.observed_generation, reported)
    };
    let change = |observed: &mut Observed, generation| {
        let mut federation = (*observed.federation).clone();
        federation.metadata.generation = Some(generation);
        observed.federation = Arc::new(federation);
    };
    let valid = accepted(None);
    assert_eq!(is_accepted(&mut observed, &valid), (true, Some(1), false));
    change(&mut observed, 2);
    assert_eq!(is_accepted(&mut observed, &valid), (true, Some(1), false), "only the first is");
    observed.hear(answer(RunPhase::Running, 2, None));
    assert_eq!(is_accepted(&mut observed, &valid), (true, Some(2), false));
    observed.hear(RunStatus { phase: RunPhase::Running, ..RunStatus::default() });
    assert_eq!(is_accepted(&mut observed, &valid), (true, Some(2), false), "the supervisor has restarted");

    // The supervisor is older than the field that the change sets.
    change(&mut observed, 3);
    let unread = change_refused("the supervisor cannot read it: unknown field `pace`");
    assert_eq!(is_accepted(&mut observed, &unread), (false, Some(3), true));
    assert_eq!(is_accepted(&mut observed, &unread), (false, Some(3), false), "it is reported once");

    // The run ends before the supervisor learns of a change. Later changes have no effect.
    change(&mut observed, 4);
    observed.hear(RunStatus { phase: RunPhase::Completed, ..RunStatus::default() });
    assert_eq!(is_accepted(&mut observed, &valid), (false, Some(3), false));
    change(&mut observed, 5);
    observed.supervision = Supervision::Absent;
    assert_eq!(is_accepted(&mut observed, &unread), (false, Some(3), false));

    // A federation that has not begun needs no answer.
    let mut federation = quickstart();
    federation.metadata.generation = Some(5);
    let mut observed = Observed::of(Arc::new(federation));
    assert_eq!(is_accepted(&mut observed, &valid), (true, Some(5), false));
}

#[test]
fn a_refusal_stands_until_the_supervisor_answers_again() {
    let answer = |refused: Option<&str>| {
        let amendment = Amendment { generation: 2, refused: refused.map(str::to_owned) };
        RunStatus { phase: RunPhase::Running, amendment: Some(amendment), ..RunStatus::default() }
    };
    let mut observed = running(answer(Some("spec.faults: gone")));
    let mut federation = (*observed.federation).clone();
    federation.metadata.generation = Some(2);
    observed.federation = Arc::new(federation);
    let (status, _) = look(&mut observed, &accepted(None), 1);
    let refused = condition_of(&status, condition::ACCEPTED).clone();
    assert_eq!((&*refused.status, &*refused.reason), ("False", "ChangeRefused"));

    let without_answer = |phase| {
        let mut observed = observed.clone();
        observed.hear(RunStatus { phase, ..RunStatus::default() });
        observed
    };
    let with = |supervision| Observed { supervision, ..observed.clone() };
    for mut observed in [
        with(Supervision::Absent),
        with(Supervision::Silent("no response within 2s".into())),
        without_answer(RunPhase::Running),
        without_answer(RunPhase::Completed),
    ] {
        for seconds in [2, 3] {
            let (status, new_events) = look(&mut observed, &accepted(None), seconds);
            assert_eq!(condition_of(&status, condition::ACCEPTED), &refused, "{:?}", observed.supervision);
            assert!(!reasons(&new_events).contains(&"ChangeRefused"), "{new_events:?}");
        }
    }

    observed.hear(answer(None));
    let (status, _) = look(&mut observed, &accepted(None), 4);
    assert_eq!(
        condition_of(&status, condition::ACCEPTED).status,
        "True",
        "the supervisor has changed its mind"
    );
}
