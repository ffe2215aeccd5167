//! Tests of the events to report.

use super::*;
use crate::reconcile::assess::events::{EVENTS_AT_ONCE, LAST_EVENTS, MAX_EVENTS};

#[test]
fn an_event_has_the_time_at_which_it_occurred() {
    let events = [Some(2_500_000), None, Some(u64::MAX)];
    let events =
        (1..).zip(events).map(|(number, age_micros)| RunEvent { age_micros, ..event(number, "Crashed") });
    let said = RunStatus { phase: RunPhase::Running, events: events.collect(), ..RunStatus::default() };
    let mut observed = running(said);
    let (_, new_events) = look(&mut observed, &accepted(None), 100);
    let times: Vec<_> = new_events.iter().filter(|it| it.reason == "Crashed").map(|it| it.at).collect();
    let then = Timestamp::UNIX_EPOCH + SignedDuration::from_millis(97_500);
    assert_eq!(times, [Some(then), None, None]);
}

#[test]
fn a_restarted_supervisor_numbers_its_events_anew() {
    let said = |supervisor: &str, phase, events| RunStatus {
        supervisor: supervisor.into(),
        phase,
        events,
        ..RunStatus::default()
    };
    let mut observed =
        running(said("first", RunPhase::Running, vec![event(1, "Started"), event(2, "RolledBack")]));
    let (_, told) = look(&mut observed, &accepted(None), 1);
    // It has no events at first.
    observed.hear(said("second", RunPhase::Judging, vec![]));
    look(&mut observed, &accepted(None), 2);
    observed.hear(said("second", RunPhase::Completed, vec![event(1, "SupervisorRestarted")]));
    let (status, new_events) = look(&mut observed, &accepted(None), 3);
    assert_eq!(reasons(&new_events), ["SupervisorRestarted"]);
    assert_ne!(new_events[0].name, told[0].name, "it is another event 1");
    assert_eq!((status.last_event, status.supervisor.as_deref()), (Some(1), Some("second")));
}

#[test]
fn equal_events_have_equal_names() {
    let situation = rejected("no");
    let first = Observed::of(Arc::new(quickstart()));
    let (_, told) = assessed(&first, &situation, 1);
    let (_, told_again) = assessed(&first, &situation, 2);
    assert_eq!(
        told, told_again,
        "an operator that stopped before writing the status reports the event again under the same name"
    );
    let mut other = quickstart();
    other.metadata.uid = Some("other".into());
    let (_, of_another) = assessed(&Observed::of(Arc::new(other)), &situation, 1);
    assert_ne!(told[0].name, of_another[0].name);
}

#[test]
fn a_long_list_of_events_is_shortened_in_the_middle() {
    let events: Vec<RunEvent> = (1..=1000).map(|it| event(it, "RolledBack")).collect();
    let said = RunStatus { phase: RunPhase::Completed, events, ..RunStatus::default() };
    let mut observed = running(said);
    let mut told: Vec<NewEvent> = Vec::new();
    let last = (MAX_EVENTS + LAST_EVENTS).div_ceil(EVENTS_AT_ONCE as u64) as i64;
    for seconds in 1..=last {
        let (status, new_events) = look(&mut observed, &accepted(None), seconds);
        let new_events = new_events.into_iter().filter(|it| it.reason == "RolledBack");
        let before = told.len();
        told.extend(new_events);
        assert!(told.len() - before <= EVENTS_AT_ONCE, "{seconds}");
        let is_over = told.len() as u64 == MAX_EVENTS + LAST_EVENTS;
        assert_eq!(
            (status.phase == Phase::Completed, seconds == last),
            (is_over, is_over),
            "all events come first"
        );
        assert_eq!(status.last_event, Some(if is_over { 1000 } else { told.len() as i64 }));
    }
    assert!(told.last().is_some_and(|it| it.note.ends_with("event 1000")));
}

/// Asks a supervisor that has this many events, at most `most` of which fit in an answer, until the federation is
/// completed. Returns the events that are reported as `RolledBack`.
fn followed(events: u64, most: usize) -> Vec<NewEvent> {
    let events: Vec<RunEvent> = (1..=events).map(|it| event(it, "RolledBack")).collect();
    let mut observed = running(RunStatus::default());
    let mut told = Vec::new();
    for seconds in 1..100 {
        let after = observed.federation.status.as_ref().and_then(|it| it.last_event).unwrap_or(0);
        let shown = events[usize::try_from(after).unwrap()..].iter().take(most).cloned().collect();
        observed.hear(RunStatus {
            phase: RunPhase::Completed,
            events: shown,
            newest_event: events.len() as u64,
            ..RunStatus::default()
        });
        let (status, new_events) = look(&mut observed, &accepted(None), seconds);
        told.extend(new_events.into_iter().filter(|it| it.reason == "RolledBack"));
        if status.phase == Phase::Completed {
            assert_eq!(status.last_event, Some(events.len() as i64));
            return told;
        }
    }
    panic!("the federation is not completed");
}

#[test]
fn events_that_do_not_fit_in_an_answer_are_requested_before_the_run_is_completed() {
    for (events, most) in [(3, 1000), (303, 50), (1000, 1000), (1001, 1000), (100_000, 1000), (500, 10)] {
        let told = followed(events, most);
        let first = events.min(MAX_EVENTS);
        let last = events.saturating_sub(LAST_EVENTS).max(first) + 1..=events;
        let expected: Vec<String> =
            (1..=first).chain(last).map(|it| format!("At 1.50 s: event {it}")).collect();
        let notes: Vec<&String> = told.iter().map(|it| &it.note).collect();
        assert_eq!(notes, expected.iter().collect::<Vec<_>>(), "{events} events, {most} in an answer");
    }
}

#[test]
fn a_supervisor_that_always_claims_to_be_another_one_reports_a_limited_number_of_events() {
    let events: Vec<RunEvent> = (1..=100).map(|it| event(it, "RolledBack")).collect();
    let said = RunStatus { phase: RunPhase::Completed, events, ..RunStatus::default() };
    for (allowance, expected) in [(30, 20), (7, 7), (0, 0)] {
        let mut observed = running(said.clone());
        observed.event_allowance = allowance;
        let (status, new_events) = look(&mut observed, &accepted(None), 1);
        let reported = new_events.iter().filter(|it| it.reason == "RolledBack").count();
        assert_eq!(reported, expected, "{allowance}");
        // The run ends even if events are skipped.
        assert_eq!(status.phase == Phase::Completed, allowance < EVENTS_AT_ONCE, "{allowance}");
    }
}

#[test]
fn an_event_is_no_longer_than_the_api_server_admits() {
    let event = RunEvent { number: u64::MAX, text: "é".repeat(5000), ..event(1, &"é".repeat(5000)) };
    let said = RunStatus { phase: RunPhase::Completed, events: vec![event], ..RunStatus::default() };
    let (_, new_events) = look(&mut running(said), &accepted(None), 1);
    let it = new_events.last().expect("the event is reported");
    assert!(it.reason.len() <= 128 && it.note.len() <= 1024, "{it:?}");
}

#[test]
fn long_text_is_truncated_between_characters() {
    assert_eq!(shortened("short", 10), "short");
    let cut = shortened(&"é".repeat(600), 1024);
    assert!(cut.len() <= 1024 && cut.ends_with(" …"), "{}", cut.len());
}
