//! Independent checkpoints, step by step. The rules I1 to I8 are listed in `docs/baselines.md`. Random schedules are
//! left to the fuzzer.

use faultline_checker::Property;
use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Claim, Packet, Position, ProcessId, Protocol, Sn, Span};
use faultline_protocols::independent::{Config, Control, Defect, Defects, Independent};
use faultline_protocols::placement::{Placement, ReplicateTo};

use harness::p;

#[allow(dead_code, unused_imports, reason = "each protocol's tests use only part of the harness")]
#[path = "../harness/mod.rs"]
mod harness;

type Federation = harness::Federation<Independent>;

/// A delay so long that collections, and checkpoints after the first, happen only on request.
const EVERY: Span = Span::from_secs(3_600);
const COLLECT_EVERY: Span = Span::from_secs(36_000);
const RETRY: Span = Span::from_secs(1);

/// Creates processes in clusters of their own, each of which has taken its first checkpoint.
fn running(processes: usize) -> Federation {
    running_with(processes, Defects::default())
}

fn running_with(processes: usize, defects: Defects) -> Federation {
    started(processes, config(processes, defects))
}

/// Creates a configuration with one replica of each checkpoint.
fn config(processes: usize, defects: Defects) -> Config {
    Config {
        checkpoint_every: vec![Some(EVERY); processes].into(),
        collect_every: Some(COLLECT_EVERY),
        placement: Placement { replicas: 1, to: ReplicateTo::OtherCluster },
        retry_every: RETRY,
        defects,
    }
}

fn started(processes: usize, config: Config) -> Federation {
    let mut federation = Federation::new(&vec![1; processes], config);
    federation.settle();
    federation
}

impl Federation {
    fn exchange(&mut self, from: ProcessId, to: ProcessId, text: &str) {
        self.send(from, to, text);
        self.settle();
    }

    fn take_checkpoint(&mut self, process: ProcessId) {
        self.wake(process, EVERY);
        self.settle();
    }

    /// Makes a process fail, and handles all consequences, including repeated alerts.
    fn fail(&mut self, process: ProcessId, storage: faultline_core::StorageFate) {
        self.crash(process, storage);
        self.retry();
    }

    /// Handles all consequences, including repeated alerts.
    fn retry(&mut self) {
        for _ in 0..8 {
            self.settle();
            self.pass(RETRY);
        }
    }

    /// Returns each rollback that `process` claims, as the new position and the restored checkpoint.
    fn rollbacks(&self, process: ProcessId) -> Vec<(Position, Position)> {
        let rolled_back = |claim: &Claim| match claim {
            Claim::RolledBack { to, checkpoint, .. } => Some((*to, *checkpoint)),
            _ => None,
        };
        self.claims(process).filter_map(rolled_back).collect()
    }

    fn violations(&self) -> Vec<String> {
        let findings = self.judge().findings;
        findings.into_iter().flat_map(|it| it.violations).map(|it| it.text).collect()
    }
}

/// I2, I6: only processes that depend on an undone interval roll back.
#[test]
fn a_rollback_propagates_to_those_that_depend_on_it() {
    let mut federation = running(3);
    federation.exchange(p(0), p(1), "before");
    federation.take_checkpoint(p(0));
    federation.take_checkpoint(p(1));
    federation.exchange(p(0), p(1), "after");
    federation.exchange(p(2), p(0), "other");
    federation.fail(p(0), Kept);
    let (to, restored) = (Position::new(1, 2), Position::new(0, 2));
    assert_eq!(federation.rollbacks(p(0)), [(to, restored)]);
    assert_eq!(federation.rollbacks(p(1)), [(to, restored)]);
    assert_eq!(federation.rollbacks(p(2)), []);
    assert_eq!(federation.received(p(1)), ["before"], "the send of the other message was undone");
    assert_eq!((federation.received(p(0)), federation.resent()), (vec!["other"], vec!["other"]));
    assert_eq!(federation.violations(), [""; 0]);
}

/// I6: each checkpoint depends on the interval that follows the other process's last checkpoint.
#[test]
fn a_failure_rolls_back_to_the_first_checkpoints_by_the_domino_effect() {
    let mut federation = running(2);
    for text in ["m1", "m2", "m3"] {
        federation.exchange(p(0), p(1), text);
        federation.take_checkpoint(p(1));
        federation.exchange(p(1), p(0), text);
        federation.take_checkpoint(p(0));
    }
    federation.exchange(p(0), p(1), "last");
    federation.exchange(p(1), p(0), "last");
    federation.fail(p(1), Kept);
    for process in [p(0), p(1)] {
        let last = federation.rollbacks(process).last().map(|it| it.1);
        assert_eq!(last, Some(Position::new(0, 1)), "{process}: {:?}", federation.rollbacks(process));
        assert_eq!(federation.received(process), [""; 0]);
    }
    assert_eq!(federation.violations(), [""; 0]);
}

/// I4: the holder stores the checkpoints, and a record of the rollbacks, of a process that has lost its storage.
#[test]
fn no_incarnation_is_used_twice_although_the_storage_is_lost() {
    let mut federation = running(2);
    federation.exchange(p(0), p(1), "m");
    federation.take_checkpoint(p(0));
    for (failures, storage) in [(1, Kept), (2, Lost), (3, Lost)] {
        federation.fail(p(0), storage);
        let expected = (Position::new(failures, 2), Position::new(0, 2));
        assert_eq!(federation.rollbacks(p(0)).last(), Some(&expected));
    }
    let protected = federation.claims(p(0)).filter(|it| **it == Claim::Protected).count();
    assert_eq!(protected, 2, "the replicas for p1 were refilled after each loss");
    assert_eq!(federation.violations(), [""; 0]);
}

/// I6, I7: p0 alerts p1 while p1 is down, and p1 has to roll back before it can confirm the alert.
#[test]
fn an_alert_is_repeated_until_its_receiver_has_handled_it() {
    let received = |defects: Defects| {
        let mut federation = running_with(3, defects);
        federation.exchange(p(0), p(1), "m");
        federation.take_checkpoint(p(1));
        federation.kill(p(1), Kept);
        federation.detect(p(1));
        federation.fail(p(0), Kept);
        federation.restart(p(1));
        federation.retry();
        federation.exchange(p(2), p(0), "late");
        (federation.received(p(1)).len(), federation.received(p(0)).len())
    };
    assert_eq!(received(Defects::default()), (0, 1));
    assert_eq!(received(Defects::only(Defect::AlertsNotRetried)), (0, 0), "p0 never resumes its channels");
}

/// I6: p0 has rolled back once, without a failure of its own, and p1 has not confirmed the alert. p2 undoes c, so p0
/// chooses to restore checkpoint 3. It alerts p1 again, and fails before any record of this choice is durable. Then p3
/// undoes d, so p0 restores checkpoint 2 instead, under the same incarnation.
#[test]
fn an_alert_does_not_announce_a_rollback_before_it_is_durable() {
    let violations = |defects: Defects| {
        let placement = Placement { replicas: 0, to: ReplicateTo::OtherCluster };
        let mut federation = started(5, Config { placement, ..config(5, defects) });
        federation.take_checkpoint(p(0));
        federation.exchange(p(3), p(0), "d");
        federation.exchange(p(0), p(1), "g");
        federation.take_checkpoint(p(0));
        federation.exchange(p(2), p(0), "c");
        federation.take_checkpoint(p(0));
        federation.exchange(p(4), p(0), "e");
        let confirmed = federation.hold(|flight| {
            flight.from == p(1) && flight.control().is_some_and(|it| matches!(it, Control::Confirm { .. }))
        });
        federation.fail(p(4), Kept);
        federation.hold_storage(p(0), true);
        federation.crash(p(2), Kept);
        federation.settle();
        federation.wake(p(0), RETRY);
        federation.settle();
        federation.kill(p(0), Kept);
        federation.detect(p(0));
        federation.release(confirmed);
        federation.fail(p(3), Kept);
        federation.restart(p(0));
        federation.hold_storage(p(0), true);
        federation.retry();
        federation.hold_storage(p(0), false);
        federation.retry();
        let rollbacks: Vec<Position> = federation.rollbacks(p(0)).iter().map(|it| it.0).collect();
        assert_eq!(rollbacks, [Position::new(1, 4), Position::new(2, 2)]);
        federation.violations()
    };
    assert_eq!(violations(Defects::default()), [""; 0]);
    assert_eq!(violations(Defects::only(Defect::AlertsBeforeDurable)).len(), 1, "p1 keeps g");
}

/// I7: until p2 has confirmed p0's alert, p0 delivers no message, not even one from p1, which has confirmed the alert.
#[test]
fn messages_wait_until_all_others_have_confirmed_the_alert() {
    let mut federation = running(3);
    let alert = federation.hold(|flight| {
        flight.to == p(2) && flight.control().is_some_and(|it| matches!(it, Control::Alert(_)))
    });
    federation.fail(p(0), Kept);
    federation.exchange(p(1), p(0), "m");
    assert_eq!(federation.received(p(0)), [""; 0]);
    federation.release(alert);
    federation.settle();
    assert_eq!(federation.received(p(0)), ["m"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// I8: checkpoints before the recovery line are removed at their owners and holders, and so are logged messages that
/// were delivered before it.
#[test]
fn a_collection_removes_what_precedes_the_recovery_line() {
    let mut federation = running(2);
    federation.exchange(p(0), p(1), "m");
    let logged = |federation: &Federation| federation.protocol(p(0)).gauges().log_messages;
    federation.take_checkpoint(p(0));
    federation.wake(p(0), COLLECT_EVERY);
    federation.settle();
    let sns = |federation: &Federation, process: ProcessId| {
        let owned = federation.images(process).into_iter().filter(|it| it.owner == p(0));
        owned.map(|it| it.sn.0).collect::<Vec<u32>>()
    };
    let (here, replicas) = (sns(&federation, p(0)), sns(&federation, p(1)));
    assert_eq!((here, replicas), (vec![2, 3], vec![2, 3]), "3 was incomplete when the list was sent");
    assert_eq!(logged(&federation), 1, "p1's only checkpoint does not contain the delivery");
    federation.take_checkpoint(p(1));
    federation.wake(p(0), COLLECT_EVERY);
    federation.settle();
    assert_eq!(logged(&federation), 0);
    federation.fail(p(1), Kept);
    assert_eq!((federation.received(p(1)), federation.rollbacks(p(0)).len()), (vec!["m"], 0));
    assert_eq!(federation.violations(), [""; 0]);
}

/// I4: p1 has restored its first checkpoint and continued from it, without knowing of the collection before its second.
/// p0, which knew, has removed m from its log, and no checkpoint that p1 has taken since contains m.
#[test]
fn checkpoints_that_follow_a_collected_one_are_not_restored() {
    let schedule = |defects: Defects| {
        let mut federation = running_with(3, defects);
        federation.exchange(p(0), p(1), "m");
        (0..3).for_each(|it| federation.take_checkpoint(p(it)));
        federation
            .hold(|flight| flight.to != p(0) && matches!(flight.control(), Some(Control::Collect { .. })));
        federation.wake(p(0), COLLECT_EVERY);
        federation.settle();
        assert_eq!(federation.protocol(p(0)).gauges().log_messages, 0);
        let parts =
            federation.hold(|flight| matches!(&flight.packet, Packet::Image(it) if it.name.sn >= Sn(2)));
        federation.crash(p(1), Lost);
        federation.settle();
        federation.crash(p(2), Lost);
        let told = federation
            .hold(|flight| flight.to == p(1) && matches!(flight.control(), Some(Control::Confirm { .. })));
        federation.retry();
        federation.release(parts);
        (0..3).for_each(|_| federation.take_checkpoint(p(1)));
        federation.release(told);
        federation.retry();
        let restored: Vec<Position> = federation.rollbacks(p(1)).iter().map(|it| it.1).collect();
        assert_eq!(restored, [Position::new(0, 1)]);
        let is_unrecoverable = federation.claims(p(1)).any(|it| matches!(it, Claim::Unrecoverable { .. }));
        assert_eq!(is_unrecoverable, defects == Defects::default());
        federation.judge().violated().collect::<Vec<_>>()
    };
    assert_eq!(schedule(Defects::default()), []);
    assert_eq!(schedule(Defects::only(Defect::CollectedRestored)), [Property::NoLoss]);
}

/// I4: p1 postpones its answer to p0's second inquiry, because it is still writing. The first inquiry arrives only then.
#[test]
fn an_older_inquiry_does_not_replace_a_newer_one() {
    let placement = Placement { replicas: 2, to: ReplicateTo::OtherCluster };
    let mut federation = started(3, Config { placement, ..config(3, Defects::default()) });
    federation.hold_storage(p(1), true);
    federation.wake(p(0), EVERY);
    federation.settle();
    let first = federation.hold(|flight| {
        flight.to == p(1) && matches!(flight.control(), Some(Control::Inquire(epoch)) if epoch.attempt == 0)
    });
    federation.crash(p(0), Kept);
    federation.settle();
    federation.crash(p(2), Kept);
    federation.settle();
    assert_eq!(federation.rollbacks(p(0)), []);
    federation.release(first);
    federation.settle();
    federation.hold_storage(p(1), false);
    federation.retry();
    assert_eq!(federation.rollbacks(p(0)).len(), 1);
    assert_eq!(federation.violations(), [""; 0]);
}
