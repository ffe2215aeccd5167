//! Taking checkpoints (section 3.1): the first one, those in doubt, and those that are delayed or prevented.

use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Attempt, Claim, Position, Sn, Span};
use faultline_protocols::hc3i::{Config, Control, Defects, Forcing, Piggyback};

use crate::harness::{c, p};
use crate::setting::{CHECKPOINT_EVERY, Federation, RETRY, config, part_of, running, says, to, within};

#[test]
fn no_process_acts_before_the_first_checkpoint() {
    let mut federation = Federation::new(&[2, 1], within(Defects::default()));
    federation.hold_storage(p(1), true);
    federation.settle();
    assert_eq!([p(0), p(1), p(2)].map(|it| federation.can_act(it)), [false, false, true]);
    federation.exchange(p(2), p(0), "m");
    assert_eq!(federation.received(p(0)), [""; 0], "m waits as well");
    federation.hold_storage(p(1), false);
    federation.settle();
    assert!(federation.can_act(p(0)) && federation.can_act(p(1)));
    assert_eq!(federation.received(p(0)), ["m"]);
    assert_eq!(federation.violations(), [""; 0]);
}

#[test]
fn no_process_acts_before_the_start_is_recorded() {
    let mut federation = Federation::new(&[2], within(Defects::default()));
    federation.withhold_notes(true);
    federation.settle();
    assert!(!federation.can_act(p(0)) && !federation.can_act(p(1)), "although all parts are durable");
    federation.withhold_notes(false);
    federation.settle();
    assert!(federation.can_act(p(0)) && federation.can_act(p(1)));
}

/// No process has acted, so nothing is lost: the cluster restarts instead of being declared unrecoverable.
#[test]
fn a_cluster_that_loses_everything_before_its_start_restarts() {
    let mut federation = Federation::new(&[2], within(Defects::default()));
    federation.withhold_notes(true);
    federation.settle();
    federation.lose(&[c(0)], Lost);
    federation.withhold_notes(false);
    federation.settle();
    federation.exchange(p(0), p(1), "m");
    assert_eq!(federation.received(p(1)), ["m"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// Creates a cluster of three processes, one of which has received a message, and requests the cluster's second
/// checkpoint.
fn before_a_commit() -> Federation {
    let mut federation = running(&[3], within(Defects::default()));
    federation.exchange(p(1), p(2), "m");
    federation.request_checkpoint(c(0));
    federation
}

/// Returns the position of the cluster, and the messages that p2 has received, after p0 has failed and restarted.
fn after_the_coordinator_failed(mut federation: Federation) -> (Position, Vec<String>) {
    federation.crash(p(0), Kept);
    federation.retry();
    assert_eq!(federation.violations(), [""; 0]);
    let received = federation.received(p(2)).iter().map(ToString::to_string).collect();
    (federation.protocol(p(0)).position(), received)
}

#[test]
fn a_checkpoint_in_doubt_that_is_complete_is_restored() {
    let mut federation = before_a_commit();
    federation.hold(says!(Control::Drained { .. }));
    federation.settle();
    assert_eq!(after_the_coordinator_failed(federation), (Position::new(1, 2), vec!["m".into()]));
}

#[test]
fn a_checkpoint_that_some_members_have_committed_is_restored() {
    let mut federation = before_a_commit();
    federation.hold(to(p(2), says!(Control::Commit { .. })));
    federation.settle();
    assert_eq!([p(0), p(1), p(2)].map(|it| federation.protocol(it).position().sn.0), [2, 2, 1]);
    federation.send(p(1), p(2), "undone");
    assert_eq!(after_the_coordinator_failed(federation), (Position::new(1, 2), vec!["m".into()]));
}

/// The only replica of p2's part is in transit when p2 loses its own copy.
#[test]
fn a_checkpoint_in_doubt_that_lacks_a_part_is_not_restored() {
    let mut federation = before_a_commit();
    let copy = federation.hold(part_of(p(2)));
    federation.settle();
    federation.crash(p(2), Lost);
    federation.release(copy);
    assert_eq!(after_the_coordinator_failed(federation), (Position::new(2, 1), vec![]));
}

/// A message that was sent before the request and arrives after it is part of the checkpoint.
#[test]
fn messages_in_transit_are_part_of_the_checkpoint() {
    let mut federation = running(&[2], within(Defects::default()));
    let late = federation.hold(|flight| flight.contains("late"));
    federation.send(p(0), p(1), "late");
    federation.take_checkpoint(c(0));
    assert_eq!(federation.protocol(p(0)).position().sn.0, 1, "the checkpoint waits for the message");
    federation.release(late);
    federation.settle();
    assert_eq!(federation.protocol(p(0)).position().sn.0, 2);
    federation.crash(p(0), Kept);
    federation.settle();
    assert_eq!(federation.received(p(1)), ["late"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// "Between the request and the commit messages, application messages are queued."
#[test]
fn messages_sent_during_a_checkpoint_are_transmitted_after_it() {
    let mut federation = running(&[2, 1], within(Defects::default()));
    let held = federation.hold(says!(Control::Drained { .. }));
    federation.take_checkpoint(c(0));
    federation.exchange(p(0), p(1), "within");
    federation.exchange(p(1), p(2), "between");
    assert_eq!(federation.in_transit(|flight| flight.contains("within") || flight.contains("between")), 0);
    federation.release(held);
    federation.settle();
    assert_eq!((federation.received(p(1)), federation.received(p(2))), (vec!["within"], vec!["between"]));
    federation.lose(&[c(0)], Kept);
    federation.retry();
    assert_eq!(federation.received(p(1)), [""; 0], "the message was sent after the checkpoint");
    assert_eq!(federation.violations(), [""; 0]);
}

/// Section 5.2: "the timer is reseted when a forced CLC is established".
#[test]
fn a_forced_checkpoint_restarts_the_timer() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    let half = Span(CHECKPOINT_EVERY.0 / 2);
    federation.pass(half);
    federation.exchange(p(0), p(1), "m");
    assert_eq!(federation.protocol(p(1)).position().sn.0, 2);
    federation.pass(half);
    assert_eq!(federation.protocol(p(0)).position().sn.0, 2, "the timer of p0 has expired");
    assert_eq!(
        federation.protocol(p(1)).position().sn.0,
        2,
        "the forced checkpoint restarted the timer of p1"
    );
    federation.pass(half);
    assert_eq!(federation.protocol(p(1)).position().sn.0, 3);
}

/// A message that arrives before a member's cut raises the DDV of the checkpoint in progress.
#[test]
fn a_message_that_waits_before_the_cut_needs_no_checkpoint_of_its_own() {
    let mut federation = running(&[1, 2], config(Defects::default()));
    let request = federation.hold(says!(Control::Force { .. }));
    federation.exchange(p(0), p(2), "m");
    assert_eq!(federation.received(p(2)), [""; 0]);
    federation.take_checkpoint(c(1));
    assert_eq!(federation.received(p(2)), ["m"], "the unforced checkpoint suffices");
    federation.release(request);
    federation.settle();
    assert_eq!(federation.protocol(p(2)).position().sn.0, 2, "the request for m has become void");
    assert_eq!(federation.violations(), [""; 0]);
}

/// The image that is being saved belongs to a state that the rollback undoes.
#[test]
fn a_rollback_discards_the_checkpoint_in_progress() {
    let mut federation = running(&[1, 2], config(Defects::default()));
    federation.exchange(p(0), p(2), "undone");
    let held = federation.hold(says!(Control::Drained { .. }));
    federation.take_checkpoint(c(1));
    federation.crash(p(0), Kept);
    federation.retry();
    let aborted = Claim::Aborted { position: Position::new(0, 3), attempt: Attempt(3) };
    assert!(
        federation.claims(p(1)).any(|it| *it == aborted) && federation.claims(p(2)).any(|it| *it == aborted)
    );
    assert_eq!(federation.protocol(p(2)).position(), Position::new(1, 2));
    federation.release(held);
    federation.settle();
    assert_eq!(federation.protocol(p(2)).position(), Position::new(1, 2), "late answers are void");
    federation.take_checkpoint(c(1));
    assert_eq!(federation.protocol(p(2)).position(), Position::new(1, 3));
    assert_eq!(federation.violations(), [""; 0]);
}

#[test]
fn full_storage_delays_a_checkpoint_and_loses_nothing() {
    for full in [p(0), p(1)] {
        // p1 is p0's holder: if p1's storage is full, p1 can store neither its own parts nor p0's replicas.
        let mut federation = running(&[2, 1], within(Defects::default()));
        federation.fail_writes(full, true);
        federation.exchange(p(2), p(0), "m");
        federation.pass(RETRY);
        assert_eq!(federation.received(p(0)), [""; 0], "m forces a checkpoint that cannot be written");
        federation.fail_writes(full, false);
        federation.retry();
        assert_eq!(federation.received(p(0)), ["m"]);
        federation.crash(p(1), Kept);
        federation.retry();
        assert_eq!(federation.protocol(p(0)).position(), Position::new(1, 2));
        assert_eq!(federation.received(p(0)), ["m"], "m was re-sent");
        assert_eq!(federation.violations(), [""; 0]);
    }
}

/// Without replicas, a checkpoint is committed once its parts are durable at their owners.
#[test]
fn a_checkpoint_without_replicas_needs_no_holders() {
    let mut federation = running(&[2], Config { replicas: 0, ..within(Defects::default()) });
    federation.exchange(p(0), p(1), "m");
    federation.take_checkpoint(c(0));
    federation.lose(&[c(0)], Kept);
    federation.retry();
    assert_eq!(federation.received(p(1)), ["m"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// With the whole DDV (section 7), a checkpoint forced by a message covers everything that the sending cluster had
/// received from others. Messages that those clusters sent at the same positions then force no checkpoint, although
/// their sends can still be undone.
#[test]
fn the_whole_vector_forces_fewer_checkpoints() {
    for (piggyback, taken) in [(Piggyback::Sn, 3), (Piggyback::Ddv, 2)] {
        let mut federation = running(&[1, 1, 1], Config { piggyback, ..config(Defects::default()) });
        federation.exchange(p(0), p(1), "m1");
        federation.exchange(p(1), p(2), "m2");
        federation.exchange(p(0), p(2), "m3");
        assert_eq!(federation.received(p(2)), ["m2", "m3"]);
        assert_eq!(federation.protocol(p(2)).position().sn, Sn(taken), "{piggyback:?}");
        federation.kill(p(0), Kept);
        federation.detect(p(0));
        federation.restart(p(0));
        federation.retry();
        assert_eq!(federation.received(p(2)), [""; 0], "m3 was undone, and m2 was sent after m1");
        assert_eq!(federation.violations(), [""; 0]);
        federation.exchange(p(0), p(2), "m4");
        assert_eq!(federation.violations(), [""; 0]);
    }
}

/// The baseline forces a checkpoint for every message between clusters, even if its position is known.
#[test]
fn every_message_can_force_a_checkpoint() {
    for (forcing, taken) in [(Forcing::News, 2), (Forcing::EveryMessage, 4)] {
        let mut federation = running(&[1, 1], Config { forcing, ..config(Defects::default()) });
        for text in ["m1", "m2", "m3"] {
            federation.exchange(p(0), p(1), text);
        }
        assert_eq!(federation.received(p(1)), ["m1", "m2", "m3"]);
        assert_eq!(federation.protocol(p(1)).position().sn, Sn(taken), "{forcing:?}");
        federation.crash(p(1), Kept);
        federation.retry();
        assert_eq!(federation.received(p(1)), ["m1", "m2", "m3"], "undone messages were re-sent");
        assert_eq!(federation.violations(), [""; 0]);
    }
}

/// The checkpoint that m forces is discarded because p1 fails.
#[test]
fn a_message_forces_its_checkpoint_again_after_a_rollback() {
    let everything = Config { forcing: Forcing::EveryMessage, ..config(Defects::default()) };
    let mut federation = running(&[2, 1], everything);
    let saved = federation.hold(says!(Control::Saved { .. }));
    federation.exchange(p(2), p(0), "m");
    federation.crash(p(1), Kept);
    federation.release(saved);
    federation.retry();
    assert_eq!(federation.received(p(0)), ["m"]);
    assert_eq!(federation.protocol(p(0)).position(), Position::new(1, 2));
    assert_eq!(federation.violations(), [""; 0]);
}
