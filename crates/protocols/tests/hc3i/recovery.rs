//! Rollbacks (section 3.4): repeated failures, lost or corrupt storage, and messages and alerts that arrive during a
//! recovery.

use std::collections::BTreeSet;

use faultline_checker::Verdict;
use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Attempt, Claim, GroupId, ImageName, Incarnation, Position, ProcessId, Sn};
use faultline_protocols::hc3i::{Config, Control, Defects, ReplicateTo};

use crate::harness::{c, p};
use crate::setting::{Federation, config, part_of, running, says, within};

/// Returns each rollback that `process` claims, as the new position and the restored checkpoint.
fn restored(federation: &Federation, process: ProcessId) -> Vec<(Position, Position)> {
    federation
        .claims(process)
        .filter_map(|claim| match claim {
            Claim::RolledBack { to, checkpoint, .. } => Some((*to, *checkpoint)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_failure_during_recovery_begins_another_round() {
    for second in [p(0), p(1), p(2)] {
        for at in [says!(Control::Reported { .. }), says!(Control::Restore { .. })] {
            let mut federation = running(&[3], within(Defects::default()));
            federation.exchange(p(0), p(1), "m");
            federation.take_checkpoint(c(0));
            let late = federation.hold(at);
            federation.crash(p(1), Kept);
            federation.settle();
            federation.crash(second, Kept);
            federation.settle();
            federation.release(late);
            federation.retry();
            assert_eq!(federation.received(p(1)), ["m"], "{second} failed second");
            let went = restored(&federation, p(1));
            assert_eq!(went.last(), Some(&(federation.protocol(p(0)).position(), Position::new(0, 2))));
            assert_eq!(federation.violations(), [""; 0]);
        }
    }
}

/// p0 loses its storage. Its only holder fails before it can answer, and returns with its replicas.
#[test]
fn a_holder_that_fails_during_recovery_is_asked_again() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    federation.exchange(p(0), p(1), "m");
    federation.take_checkpoint(c(0));
    let answer = federation.hold(says!(Control::Reported { .. }));
    federation.crash(p(0), Lost);
    federation.settle();
    federation.kill(p(1), Kept);
    federation.detect(p(1));
    federation.release(answer);
    federation.settle();
    assert_eq!(restored(&federation, p(0)), [], "no other process has p0's part");
    federation.restart(p(1));
    federation.retry();
    assert_eq!(restored(&federation, p(0)).last().map(|it| it.1), Some(Position::new(0, 2)));
    assert_eq!((federation.sent(p(0)), federation.received(p(1))), (vec!["m"], vec!["m"]));
    assert_eq!(federation.violations(), [""; 0]);
}

/// p0's part is requested from p1. While the part is in transit, p1 fails, and it returns without the part.
#[test]
fn a_part_lost_everywhere_makes_the_cluster_unrecoverable() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    federation.hold(part_of(p(0)));
    federation.crash(p(0), Lost);
    federation.settle();
    federation.crash(p(1), Lost);
    federation.retry();
    let Some(Claim::Unrecoverable { group, missing }) = unrecoverable(&federation, p(0)) else {
        panic!("the only replica is lost");
    };
    assert_eq!((group, &missing[..]), (GroupId(0), &[(first_part(p(0)), vec![p(0), p(1)])][..]));
    assert_eq!(federation.violations(), [""; 0], "the checker agrees that the part is lost");
}

fn unrecoverable(federation: &Federation, by: ProcessId) -> Option<Claim> {
    federation.claims(by).find(|it| matches!(it, Claim::Unrecoverable { .. })).cloned()
}

fn first_part(owner: ProcessId) -> ImageName {
    ImageName { owner, incarnation: Incarnation(0), sn: Sn(1), attempt: Attempt(1) }
}

/// Creates two clusters that hold each other's replicas, with messages in both directions.
fn entangled() -> Federation {
    let mut federation = running(&[2, 2], config(Defects::default()));
    federation.exchange(p(0), p(2), "m1");
    federation.exchange(p(3), p(1), "m2");
    federation.take_checkpoint(c(0));
    federation.exchange(p(1), p(3), "m3");
    federation
}

#[test]
fn clusters_that_fail_together_with_their_storage_kept_recover() {
    let mut federation = entangled();
    federation.lose(&[c(0), c(1)], Kept);
    federation.retry();
    assert_eq!(federation.violations(), [""; 0]);
    federation.exchange(p(0), p(3), "m4");
    federation.exchange(p(2), p(1), "m5");
    assert!(federation.received(p(3)).contains(&"m4") && federation.received(p(1)).contains(&"m5"));
    assert_eq!(federation.violations(), [""; 0]);
}

#[test]
fn clusters_that_fail_together_with_lost_storage_report_missing_parts_and_holders() {
    let mut federation = entangled();
    federation.lose(&[c(0), c(1)], Lost);
    federation.retry();
    let expected = |owner: u32, holder: u32| (first_part(p(owner)), vec![p(owner), p(holder)]);
    for (coordinator, group, parts) in
        [(p(0), 0, [expected(0, 2), expected(1, 3)]), (p(2), 1, [expected(2, 0), expected(3, 1)])]
    {
        let claim = Claim::Unrecoverable { group: GroupId(group), missing: parts.into() };
        assert_eq!(unrecoverable(&federation, coordinator), Some(claim));
    }
    let judgement = federation.judge();
    assert_eq!(judgement.verdict, Verdict::Unknown, "unrecoverable by design: {:?}", judgement.reasons);
}

#[test]
fn a_lost_cluster_is_restored_from_the_next_one() {
    let mut federation = entangled();
    federation.lose(&[c(0)], Lost);
    federation.retry();
    assert_eq!(restored(&federation, p(0)).last().map(|it| it.1), Some(Position::new(0, 3)));
    assert_eq!(federation.violations(), [""; 0]);
    for process in [p(0), p(1)] {
        assert!(
            federation.claims(process).any(|it| *it == Claim::Protected),
            "{process} has everything that it should hold"
        );
    }
    // The replicas for the other cluster are restored: that cluster can now be lost.
    federation.lose(&[c(1)], Lost);
    federation.retry();
    assert_eq!(unrecoverable(&federation, p(2)), None);
    assert_eq!(federation.violations(), [""; 0]);
}

#[test]
fn a_corrupt_part_is_fetched_from_its_holder() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    federation.exchange(p(0), p(1), "m");
    federation.take_checkpoint(c(0));
    federation.corrupt(p(0));
    federation.crash(p(0), Kept);
    federation.retry();
    assert_eq!(restored(&federation, p(0)).last().map(|it| it.1), Some(Position::new(0, 2)));
    assert_eq!(federation.sent(p(0)), ["m"]);
    assert_eq!(federation.violations(), [""; 0]);
    // The part was written again, so the next rollback needs no image from another process.
    let images = federation.hold(|flight| flight.image_of().is_some());
    federation.crash(p(0), Kept);
    federation.retry();
    assert_eq!(federation.sent(p(0)), ["m"]);
    federation.release(images);
}

/// All parts of the first two checkpoints are corrupt, at p0 and at its holder. The third checkpoint is intact, and is
/// restored.
#[test]
fn corrupt_replicas_are_skipped() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    federation.take_checkpoint(c(0));
    federation.corrupt(p(0));
    federation.corrupt(p(1));
    federation.take_checkpoint(c(0));
    federation.take_checkpoint(c(1));
    federation.crash(p(0), Kept);
    federation.retry();
    assert_eq!(restored(&federation, p(0)).last().map(|it| it.1), Some(Position::new(0, 3)));
    assert_eq!(federation.violations(), [""; 0]);
}

#[test]
fn a_storage_server_restores_a_lost_cluster_and_is_refilled_itself() {
    let shared = Config { replicate_to: ReplicateTo::SharedStorage, ..config(Defects::default()) };
    let mut federation = running(&[2, 1], shared);
    let server = p(3);
    federation.exchange(p(0), p(2), "m1");
    federation.take_checkpoint(c(0));
    federation.lose(&[c(0)], Lost);
    federation.retry();
    assert_eq!(federation.sent(p(0)), ["m1"]);
    federation.crash(server, Lost);
    federation.retry();
    assert!(federation.claims(server).any(|it| *it == Claim::Protected));
    let owners: BTreeSet<_> = federation.images(server).into_iter().map(|name| name.owner).collect();
    assert_eq!(owners, BTreeSet::from([p(0), p(1), p(2)]));
    federation.lose(&[c(0), c(1)], Lost);
    federation.retry();
    assert_eq!(federation.sent(p(0)), ["m1"]);
    assert_eq!(federation.received(p(2)), ["m1"]);
    assert_eq!(federation.violations(), [""; 0]);
}

#[test]
fn with_two_replicas_an_owner_and_a_holder_can_be_lost() {
    let mut federation = running(&[1, 1, 1], Config { replicas: 2, ..config(Defects::default()) });
    federation.exchange(p(0), p(1), "m");
    federation.take_checkpoint(c(0));
    federation.take_checkpoint(c(1));
    federation.lose(&[c(0), c(1)], Lost);
    federation.retry();
    assert_eq!((federation.sent(p(0)), federation.received(p(1))), (vec!["m"], vec!["m"]));
    assert_eq!(federation.violations(), [""; 0]);
}

/// The queue of a process that did not fail survives its rollback.
#[test]
fn messages_that_arrive_during_a_recovery_wait() {
    let mut federation = running(&[1, 2], config(Defects::default()));
    federation.kill(p(1), Kept);
    federation.detect(p(1));
    federation.exchange(p(0), p(2), "m");
    federation.restart(p(1));
    federation.retry();
    assert_eq!(federation.received(p(2)), ["m"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// Cluster 1 is recovering from its own failure when the alert arrives.
#[test]
fn an_alert_during_a_recovery_counts() {
    let mut federation = running(&[1, 2], config(Defects::default()));
    federation.exchange(p(0), p(2), "undone");
    federation.take_checkpoint(c(1));
    let held = federation.hold(says!(Control::Restore { .. }));
    federation.crash(p(2), Kept);
    federation.settle();
    federation.crash(p(0), Kept);
    federation.settle();
    federation.release(held);
    federation.retry();
    assert_eq!(federation.received(p(2)), [""; 0]);
    assert_eq!(federation.violations(), [""; 0]);
    federation.exchange(p(0), p(2), "done");
    assert_eq!(federation.received(p(2)), ["done"]);
}

/// A message from an older incarnation is valid unless the rollback undid its send.
#[test]
fn a_message_from_before_the_restored_checkpoint_is_still_delivered() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    federation.let_output_survive();
    let slow = federation.hold(|flight| flight.contains("before") || flight.contains("after"));
    federation.send(p(0), p(1), "before");
    federation.take_checkpoint(c(0));
    federation.send(p(0), p(1), "after");
    federation.withhold_membership(p(1), true);
    federation.crash(p(0), Kept);
    federation.settle();
    federation.release(slow);
    federation.settle();
    federation.withhold_membership(p(1), false);
    federation.retry();
    assert_eq!(federation.received(p(1)), ["before"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// Cluster 0 has rolled back once without a failure of its own. Its holder has lost the record of this rollback, but
/// holds a checkpoint taken since.
#[test]
fn an_incarnation_is_newer_than_every_part() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    federation.exchange(p(1), p(0), "undone");
    federation.crash(p(1), Kept);
    federation.retry();
    federation.hold(says!(Control::Offer { .. }));
    federation.crash(p(1), Lost);
    federation.retry();
    federation.take_checkpoint(c(0));
    federation.exchange(p(0), p(1), "m");
    assert_eq!(federation.protocol(p(0)).position(), Position::new(1, 3));
    federation.crash(p(0), Lost);
    federation.retry();
    assert_eq!(federation.protocol(p(0)).position(), Position::new(2, 3));
    assert_eq!(federation.violations(), [""; 0]);
}

/// The replica of p0's second checkpoint is in transit when p0 fails. p0 resumes only once p1 has a replica of the part
/// that p0 restores.
#[test]
fn a_checkpoint_in_doubt_receives_its_replicas_before_the_cluster_resumes() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    let copies = federation.hold(part_of(p(0)));
    federation.take_checkpoint(c(0));
    federation.crash(p(0), Kept);
    federation.retry();
    assert!(restored(&federation, p(0)).is_empty(), "p0's holder lacks the replica");
    federation.release(copies);
    federation.retry();
    assert_eq!(restored(&federation, p(0)).last().map(|it| it.1), Some(Position::new(0, 2)));
    federation.crash(p(0), Lost);
    federation.retry();
    assert_eq!(restored(&federation, p(0)).last().map(|it| it.1), Some(Position::new(0, 2)));
    assert_eq!(federation.violations(), [""; 0]);
}

/// Same as the previous test, but p1 fails while p0 waits for it: p0 begins another round, and sends the replica again.
#[test]
fn a_holder_that_fails_while_a_recovery_waits_for_its_replica_receives_it_again() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    let copies = federation.hold(part_of(p(0)));
    federation.take_checkpoint(c(0));
    federation.crash(p(0), Kept);
    federation.settle();
    federation.crash(p(1), Kept);
    federation.release(copies);
    federation.retry();
    assert_eq!(restored(&federation, p(0)).last().map(|it| it.1), Some(Position::new(0, 2)));
    assert_eq!(federation.violations(), [""; 0]);
}

/// p2 has confirmed its replica of a part, and loses it before the checkpoint is committed.
#[test]
fn a_replica_lost_during_the_checkpoint_is_replaced() {
    let mut federation = running(&[2, 2], config(Defects::default()));
    federation.hold_storage(p(1), true);
    federation.take_checkpoint(c(0));
    federation.crash(p(2), Lost);
    federation.settle();
    federation.hold_storage(p(1), false);
    federation.retry();
    assert_eq!(federation.protocol(p(0)).position(), Position::new(0, 2));
    federation.crash(p(0), Lost);
    federation.retry();
    assert_eq!(restored(&federation, p(0)).last().map(|it| it.1), Some(Position::new(0, 2)));
    assert_eq!(federation.violations(), [""; 0]);
}

/// p1 does not know yet that the first checkpoint was collected. The missing part belongs to the second one.
#[test]
fn collected_parts_are_not_reported_missing() {
    let mut federation = running(&[2], Config { replicas: 0, ..within(Defects::default()) });
    federation.take_checkpoint(c(0));
    federation.hold(says!(Control::Collect { .. }));
    federation.collect();
    assert_eq!((federation.kept(p(0)), federation.kept(p(1))), (vec![2, 3], vec![1, 2, 3]));
    federation.corrupt(p(1));
    federation.crash(p(1), Kept);
    federation.retry();
    let Some(Claim::Unrecoverable { missing, .. }) = unrecoverable(&federation, p(0)) else {
        panic!("no other process has p1's parts");
    };
    assert_eq!(missing.iter().map(|(name, _)| (name.owner, name.sn)).collect::<Vec<_>>(), [(p(1), Sn(2))]);
    assert_eq!(federation.violations(), [""; 0]);
}
