//! One schedule for each rule whose omission is rarely or never detected by random schedules. Each schedule
//! runs twice: with the rule, in which case the checker must find no violation, and with the defect that
//! omits the rule, in which case the checker must find the expected violation. The only exception is
//! `CollectsOnUncovered`, which violates no property.
//!
//! `docs/hc3i.md` describes the rules ("Differences from the paper", "Rules added after testing").

use faultline_checker::Property;
use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Packet, Position, Sn, Span};
use faultline_protocols::hc3i::{Config, Control, Defect, Defects, Epoch};

use crate::harness::{Hold, c, p};
use crate::setting::{
    Federation, RETRY, by_every_cluster, config, part_of, part_since, running, says, to, within,
};

/// Asserts that the schedule violates no property by itself, but violates `property` with `defect`.
fn assert_caught(defect: Defect, property: Property, schedule: impl Fn(Defects) -> Federation) {
    {
        let sound = schedule(Defects::default());
        assert_eq!(sound.violations(), [""; 0], "without {defect:?}");
    }
    let broken = schedule(Defects::only(defect));
    assert!(broken.violated().contains(&property), "{defect:?} violates only {:?}", broken.violated());
}

/// Four events: send m1, forced CLC2, deliver m1, fail. The delivery is acknowledged with SN 2, and the alert contains
/// SN 2.
#[test]
fn messages_acknowledged_at_the_restored_sn_are_re_sent() {
    assert_caught(Defect::ResendGreater, Property::NoLoss, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        federation.exchange(p(0), p(1), "m1");
        federation.crash(p(1), Kept);
        federation.retry();
        federation
    });
}

/// A delivery is undone after the sender has taken a checkpoint that contains the acknowledgement. The sender then
/// fails before the re-sent message has arrived.
#[test]
fn restored_acknowledgements_are_checked() {
    assert_caught(Defect::RestoredAcksUnchecked, Property::NoLoss, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        federation.exchange(p(0), p(1), "m");
        federation.take_checkpoint(c(0));
        let sent_again = federation.hold(|flight| flight.contains("m"));
        federation.crash(p(1), Kept);
        federation.retry();
        federation.crash(p(0), Kept);
        federation.release(sent_again);
        federation.retry();
        federation
    });
}

/// p0 receives the alert before the new membership, so it sends to a life without knowing that this life has ended.
#[test]
fn messages_that_the_old_life_did_not_acknowledge_are_re_sent_to_the_new_one() {
    assert_caught(Defect::ResendOnlyOnAlerts, Property::NoLoss, |defects| {
        let mut federation = running(&[1, 2], config(defects));
        federation.withhold_membership(p(0), true);
        federation.crash(p(2), Kept);
        federation.retry();
        federation.exchange(p(0), p(2), "m");
        federation.withhold_membership(p(0), false);
        federation.retry();
        federation
    });
}

/// m2 reaches p2 after p2's cut for the checkpoint that m1 forces.
#[test]
fn a_message_that_arrives_during_a_checkpoint_requests_its_own_checkpoint_afterwards() {
    assert_caught(Defect::ForceNotRepeated, Property::NoLoss, |defects| {
        let mut federation = running(&[1, 2, 1], config(defects));
        let drained = federation.hold(says!(Control::Drained { .. }));
        federation.exchange(p(3), p(1), "m1");
        federation.exchange(p(0), p(2), "m2");
        federation.release(drained);
        federation.retry();
        federation
    });
}

/// The replica of p0's part is still in transit when p0 loses its storage.
#[test]
fn a_commit_waits_for_every_replica() {
    assert_caught(Defect::CommitBeforeCopies, Property::DurableBeforeCommit, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        federation.hold(part_of(p(0)));
        federation.take_checkpoint(c(0));
        federation.crash(p(0), Lost);
        federation.retry();
        federation
    });
}

/// p1 fails before the first checkpoint is committed.
#[test]
fn a_cluster_that_has_not_started_begins_from_its_configuration() {
    assert_caught(Defect::NoStartGate, Property::UnrecoverableJustified, |defects| {
        let mut federation = Federation::new(&[2], within(defects));
        federation.hold(part_of(p(1)));
        federation.hold_storage(p(1), true);
        federation.settle();
        federation.crash(p(1), Kept);
        federation.settle();
        if federation.can_act(p(0)) {
            federation.exchange(p(0), p(1), "m");
        }
        federation
    });
}

/// A `Prepare` message is overtaken by everything that follows it, including a whole recovery.
#[test]
fn rounds_of_an_older_epoch_are_void() {
    assert_caught(Defect::OlderEpochsAccepted, Property::NoLoss, |defects| {
        let mut federation = running(&[3], within(defects));
        let first = federation.hold(to(p(1), says!(Control::Prepare { epoch: Epoch { lives: 4, .. }, .. })));
        federation.crash(p(2), Kept);
        federation.settle();
        federation.crash(p(2), Kept);
        federation.settle();
        federation.release(first);
        federation.settle();
        federation.exchange(p(0), p(1), "m");
        federation
    });
}

/// p2 does not know p1's new life yet, and sends to the old one.
#[test]
fn a_round_waits_until_its_members_know_each_others_lives() {
    assert_caught(Defect::RoundWithoutLives, Property::NoLoss, |defects| {
        let mut federation = running(&[3], within(defects));
        federation.kill(p(1), Kept);
        federation.detect(p(1));
        federation.settle();
        federation.withhold_membership(p(2), true);
        federation.restart(p(1));
        federation.settle();
        federation.exchange(p(2), p(1), "to the old life");
        federation.withhold_membership(p(2), false);
        federation.settle();
        federation.exchange(p(2), p(1), "to the new life");
        federation
    });
}

/// The only replica of p0's part is being written at p1 when the round begins.
#[test]
fn a_report_waits_for_the_writes_before_it() {
    assert_caught(Defect::NoWriteBarrier, Property::UnrecoverableJustified, |defects| {
        let mut federation = running(&[2], within(defects));
        let copy = federation.hold(part_of(p(0)));
        federation.crash(p(1), Lost);
        federation.settle();
        federation.hold_storage(p(1), true);
        federation.release(copy);
        federation.settle();
        federation.crash(p(0), Lost);
        federation.settle();
        federation.hold_storage(p(1), false);
        federation.settle();
        federation
    });
}

/// p1 cannot write p0's older parts, because its storage is full. A collection removes them, but the message that tells
/// p1 to do so arrives after the one that begins the next round.
#[test]
fn a_report_does_not_wait_for_a_write_of_a_collected_part() {
    assert_caught(Defect::ForgottenWritesAwaited, Property::NoLoss, |defects| {
        let collect_every = Span::from_secs(10);
        let mut federation =
            running(&[3, 1], Config { collect_every: Some(collect_every), ..within(defects) });
        federation.take_checkpoint(c(0));
        federation.exchange(p(3), p(0), "undone");
        let older = federation.hold(move |flight| part_of(p(0))(flight) && !part_since(3)(flight));
        federation.crash(p(1), Lost);
        federation.retry();
        federation.fail_writes(p(1), true);
        federation.release(older);
        federation.settle();
        let discard = federation.hold(says!(Control::Discard { .. }));
        federation.wake(p(0), collect_every);
        federation.settle();
        assert_eq!(federation.kept(p(0)), [3]);
        federation.crash(p(3), Kept);
        federation.settle();
        federation.release(discard);
        federation.settle();
        federation.repair_storage(p(1));
        federation.retry();
        federation.exchange(p(3), p(0), "late");
        federation
    });
}

/// p3 cannot write a replica for p1, because its storage is full. p0's recovery undoes the replica, but p1's list of the
/// replicas to keep arrives after the message that begins the next round.
#[test]
fn a_report_does_not_wait_for_a_write_of_an_undone_part() {
    assert_caught(Defect::ForgottenWritesAwaited, Property::NoLoss, |defects| {
        let mut federation = running(&[2, 2], config(defects));
        let parts = federation.hold(part_since(2));
        federation.hold_storage(p(0), true);
        federation.take_checkpoint(c(0));
        let note = federation.hold(to(p(3), says!(Control::Note { .. })));
        let offer = federation.hold(to(p(3), says!(Control::Offer { .. })));
        federation.crash(p(0), Kept);
        federation.settle();
        federation.fail_writes(p(3), true);
        federation.release(parts);
        federation.settle();
        federation.release(note);
        federation.settle();
        assert_eq!(federation.protocol(p(1)).position(), Position::new(1, 1));
        federation.crash(p(0), Kept);
        federation.settle();
        federation.release(offer);
        federation.settle();
        federation.repair_storage(p(3));
        federation.retry();
        federation.exchange(p(2), p(1), "late");
        federation
    });
}

/// p0 holds replicas for p1, and has delivered a message that p1's rollback undoes.
#[test]
fn a_target_does_not_mask_the_alert_that_follows() {
    assert_caught(Defect::TargetMasksAlert, Property::NoGhost, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        federation.exchange(p(1), p(0), "m");
        federation.crash(p(1), Kept);
        federation.retry();
        federation
    });
}

/// The holder fails while the replica for which a checkpoint waits is in transit.
#[test]
fn a_new_life_of_a_holder_receives_its_replicas_again() {
    assert_caught(Defect::HolderNotRefilled, Property::NoLoss, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        let copy = federation.hold(part_of(p(0)));
        federation.take_checkpoint(c(0));
        federation.crash(p(1), Kept);
        federation.release(copy);
        federation.retry();
        federation.exchange(p(1), p(0), "m");
        federation
    });
}

/// Cluster 0 rolls back three times without a failure of its own, its holder loses the record of these rollbacks, and
/// then p0 loses its storage.
#[test]
fn a_refilled_holder_learns_of_the_rollbacks_too() {
    assert_caught(Defect::NotesNotRefilled, Property::MembersAgree, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        for text in ["m1", "m2", "m3"] {
            federation.exchange(p(1), p(0), text);
            federation.crash(p(1), Kept);
            federation.retry();
        }
        federation.exchange(p(0), p(1), "m4");
        federation.crash(p(1), Lost);
        federation.retry();
        federation.crash(p(0), Lost);
        federation.retry();
        federation
    });
}

/// p0's storage, which holds p1's parts, is lost. A new part of p1 reaches p0 before p1's history does. Then p1's
/// storage is lost, too. p0's checkpoint contains the acknowledgement of a delivery that p1's rollback undid.
#[test]
fn a_part_contains_the_earlier_rollbacks_of_its_cluster() {
    assert_caught(Defect::PastOutsideCheckpoint, Property::NoLoss, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        federation.exchange(p(0), p(1), "m");
        federation.take_checkpoint(c(0));
        let sent_again = federation.hold(|flight| flight.contains("m"));
        federation.crash(p(1), Kept);
        federation.retry();
        let past = says!(Control::Alert { .. } | Control::AlertRecorded { .. } | Control::Offer { .. });
        let past = federation.hold(past);
        federation.crash(p(0), Lost);
        federation.settle();
        federation.take_checkpoint(c(1));
        federation.crash(p(1), Lost);
        federation.release(past);
        federation.release(sent_again);
        federation.retry();
        federation
    });
}

/// Cluster 1 rolls back without a failure of its own, acts, and then fails: its next incarnation must have a new
/// number.
#[test]
fn the_table_of_rollbacks_is_durable() {
    assert_caught(Defect::TablesVolatile, Property::MembersAgree, |defects| {
        let mut federation = running(&[1, 1], within(defects));
        federation.exchange(p(0), p(1), "m1");
        federation.crash(p(0), Kept);
        federation.retry();
        federation.exchange(p(1), p(0), "m2");
        federation.crash(p(1), Kept);
        federation.retry();
        federation
    });
}

/// The first of two rollbacks undoes m, but its alert is lost. The second rollback restores a later
/// checkpoint.
#[test]
fn an_alert_carries_the_whole_history() {
    assert_caught(Defect::OnlyLastEntry, Property::NoGhost, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        federation.exchange(p(1), p(0), "m");
        let alerts = federation.hold(says!(Control::Alert { .. }));
        federation.crash(p(1), Kept);
        federation.settle();
        federation.take_checkpoint(c(1));
        federation.take_checkpoint(c(1));
        federation.crash(p(1), Kept);
        federation.release(alerts);
        federation.retry();
        federation
    });
}

/// Cluster 0 has rolled back once, without a failure of its own. Its checkpoints since SN 3 contain d, from p4; those
/// since SN 5 also contain c, from p3. p2 has delivered g, which p0 sent after checkpoint 2.
fn rolled_back_to_six(federation: &mut Federation) {
    federation.exchange(p(4), p(0), "d");
    federation.exchange(p(0), p(2), "g");
    federation.take_checkpoint(c(0));
    federation.exchange(p(3), p(0), "c");
    federation.take_checkpoint(c(0));
    federation.exchange(p(5), p(0), "e");
    federation.crash(p(5), Kept);
    federation.retry();
    assert_eq!(federation.protocol(p(0)).position(), Position::new(1, 6));
}

/// p3 undoes c, so cluster 0 chooses to roll back to checkpoint 4. While no record of this choice is durable, `meanwhile`
/// happens. Then cluster 0 fails, and p4 undoes d: cluster 0 rolls back to checkpoint 2 instead, under the same
/// incarnation.
fn chooses_again(federation: &mut Federation, meanwhile: impl Fn(&mut Federation)) {
    let report = federation.hold(says!(Control::Reported { .. }));
    federation.crash(p(3), Kept);
    federation.settle();
    federation.hold_storage(p(0), true);
    let restore = federation.hold(says!(Control::Restore { .. }));
    federation.release(report);
    federation.settle();
    meanwhile(federation);
    federation.settle();
    for member in [p(0), p(1)] {
        federation.kill(member, Kept);
        federation.detect(member);
    }
    federation.release(restore);
    federation.crash(p(4), Kept);
    let report = federation.hold(says!(Control::Reported { .. }));
    for member in [p(0), p(1)] {
        federation.restart(member);
    }
    federation.retry();
    federation.release(report);
    federation.retry();
    assert_eq!(federation.protocol(p(0)).position(), Position::new(2, 2));
}

/// p2 has not confirmed the alert about cluster 0's earlier rollback, so the alert is repeated.
#[test]
fn an_alert_does_not_announce_a_rollback_before_it_is_durable() {
    assert_caught(Defect::AlertsBeforeDurable, Property::NoGhost, |defects| {
        let mut federation = running(&[2, 1, 1, 1, 1], within(defects));
        let recorded = says!(Control::AlertRecorded { .. });
        let recorded = federation.hold(move |flight| flight.from == p(2) && recorded(flight));
        rolled_back_to_six(&mut federation);
        chooses_again(&mut federation, |federation| federation.wake(p(0), RETRY));
        federation.release(recorded);
        federation.retry();
        federation
    });
}

/// p2 has failed, and cluster 0 confirms p2's alert.
#[test]
fn a_confirmation_does_not_announce_a_rollback_before_it_is_durable() {
    assert_caught(Defect::AlertsBeforeDurable, Property::NoGhost, |defects| {
        let mut federation = running(&[2, 1, 1, 1, 1], within(defects));
        rolled_back_to_six(&mut federation);
        let learnt = federation.hold(to(p(0), says!(Control::Learnt { .. })));
        federation.crash(p(2), Kept);
        federation.settle();
        chooses_again(&mut federation, |federation| {
            assert!(federation.let_through(to(p(0), says!(Control::Learnt { .. }))) > 0);
        });
        federation.release(learnt);
        federation.retry();
        federation
    });
}

/// p1 resumes while cluster 0 is down, so no process of cluster 0 receives cluster 1's alert. When cluster 0 sends its
/// own alert, p2 has not resumed yet, so no answer informs cluster 0 of cluster 1's rollback.
#[test]
fn an_alert_is_sent_until_it_is_confirmed() {
    assert_caught(Defect::AlertsNotRetried, Property::NoLoss, |defects| {
        let mut federation = running(&[1, 2], within(defects));
        let ready = federation.hold(says!(Control::Ready { .. }));
        let resume = federation.hold(says!(Control::Resume { .. }));
        federation.crash(p(2), Kept);
        federation.settle();
        federation.kill(p(0), Kept);
        federation.detect(p(0));
        federation.settle();
        federation.release(ready);
        federation.settle();
        federation.restart(p(0));
        federation.settle();
        federation.release(resume);
        federation.retry();
        federation.exchange(p(1), p(0), "m");
        federation
    });
}

/// Just after its own rollback, each cluster receives a message that the other cluster sent in a state that
/// is about to be undone.
#[test]
fn rollbacks_do_not_trigger_each_other_endlessly() {
    assert_caught(Defect::DeliversUnsettled, Property::RecoveryTerminates, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        federation.exchange(p(0), p(1), "first");
        let alerts = federation.hold(says!(Control::Alert { .. }));
        federation.crash(p(0), Kept);
        federation.settle();
        let (mut back, mut doomed) = (p(0), p(1));
        for number in 0..30 {
            federation.exchange(doomed, back, &format!("m{number}"));
            federation.let_through(to(doomed, says!(Control::Alert { .. })));
            federation.settle();
            (back, doomed) = (doomed, back);
        }
        federation.release(alerts);
        federation.retry();
        federation
    });
}

/// Section 3.5, "smaller than": m was delivered after the oldest checkpoint that p1 keeps.
#[test]
fn log_entries_at_the_worst_checkpoint_are_kept() {
    assert_caught(Defect::LogCollectedAtWorst, Property::NoLoss, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        federation.exchange(p(0), p(1), "m");
        federation.collect();
        federation.crash(p(1), Kept);
        federation.retry();
        federation
    });
}

/// Section 3.5: the oldest checkpoint that a cluster may have to restore is kept.
#[test]
fn the_worst_checkpoint_is_kept() {
    assert_caught(Defect::CollectsOneTooMany, Property::UnrecoverableJustified, |defects| {
        let mut federation = running(&[1, 1], config(defects));
        federation.exchange(p(0), p(1), "m");
        federation.collect();
        federation.crash(p(1), Kept);
        federation.retry();
        federation
    });
}

/// p2 has delivered a message that cluster 0 undid, and its whole cluster knows this. But p2 has not rolled back yet,
/// and cluster 0 has taken new checkpoints since.
#[test]
fn a_collection_does_not_rely_on_checkpoints_about_to_be_undone() {
    assert_caught(Defect::CollectsOnSpoilt, Property::UnrecoverableJustified, |defects| {
        let mut federation = running(&[1, 2], config(defects));
        federation.exchange(p(0), p(2), "m");
        federation.take_checkpoint(c(1));
        let asked = federation.hold(says!(Control::RollBack { .. }));
        federation.crash(p(0), Kept);
        federation.settle();
        federation.take_checkpoint(c(0));
        federation.take_checkpoint(c(0));
        federation.collect();
        federation.release(asked);
        federation.retry();
        federation
    });
}

/// p1 has lost its replica of p0's third checkpoint. The fourth contains m, which p2 undoes after p0 has lost
/// its storage, so p0 needs its second checkpoint. No property demands that it still exists, since one
/// replica does not cover two losses.
#[test]
fn a_collection_does_not_rely_on_checkpoints_without_replicas() {
    for defects in [Defects::default(), Defects::only(Defect::CollectsOnUncovered)] {
        let mut federation = running(&[1, 1, 1], config(defects));
        federation.take_checkpoint(c(0));
        federation.exchange(p(2), p(0), "m");
        federation.take_checkpoint(c(0));
        federation.hold(|flight| matches!(&flight.packet, Packet::Image(it) if it.name.sn == Sn(3)));
        federation.crash(p(1), Lost);
        federation.retry();
        federation.crash(p(0), Kept);
        federation.retry();
        federation.collect();
        federation.crash(p(0), Lost);
        federation.retry();
        federation.crash(p(2), Kept);
        federation.retry();
        assert_eq!(federation.is_unrecoverable(), defects != Defects::default());
        assert_eq!(federation.violations(), [""; 0]);
    }
}

/// p1 has taken a checkpoint that contains a message that cluster 0 undid, and has not learned of the rollback. Cluster
/// 0 reports its new checkpoints.
#[test]
fn announcements_before_and_after_a_rollback_are_not_mixed() {
    assert_caught(Defect::CollectsOnMixed, Property::UnrecoverableJustified, |defects| {
        let mut federation = running(&[1, 1], by_every_cluster(defects));
        federation.exchange(p(0), p(1), "m");
        federation.take_checkpoint(c(1));
        let alerts = federation.hold(says!(Control::Alert { .. }));
        federation.crash(p(0), Kept);
        federation.settle();
        federation.take_checkpoint(c(0));
        federation.take_checkpoint(c(0));
        federation.announce_inventory(&[c(0), c(1)]);
        federation.release(alerts);
        federation.retry();
        federation
    });
}

/// p2 has not reported anything by the time p1 decides. p1 has taken a checkpoint that contains m, which was sent after
/// p2's last checkpoint.
#[test]
fn a_collection_waits_for_clusters_without_an_announcement() {
    assert_caught(Defect::CollectsWithoutSilent, Property::UnrecoverableJustified, |defects| {
        let mut federation = running(&[1, 1, 1], by_every_cluster(defects));
        federation.exchange(p(2), p(1), "m");
        federation.take_checkpoint(c(1));
        federation.announce_inventory(&[c(0)]);
        federation.hold(says!(Control::Stock { .. }));
        federation.announce_inventory(&[c(1)]);
        federation.announce_inventory(&[c(1)]);
        federation.crash(p(2), Kept);
        federation.retry();
        federation
    });
}

/// p2 has sent m to cluster 0, which has rolled back past the delivery of m and is up again in the next
/// incarnation. The collection reaches p2 before the alert.
#[test]
fn a_log_is_not_collected_before_a_rollback_is_known() {
    assert_caught(Defect::LogCollectedUnaware, Property::NoLoss, |defects| {
        let mut federation = running(&[1, 2], config(defects));
        federation.exchange(p(2), p(0), "m");
        let news = federation.hold(to(p(2), says!(Control::Learn { .. } | Control::Alert { .. })));
        federation.crash(p(0), Kept);
        federation.settle();
        let again = federation.hold(|flight| flight.contains("m"));
        federation.take_checkpoint(c(0));
        federation.collect();
        federation.release(news);
        federation.release(again);
        federation.retry();
        federation
    });
}

/// p1 loses all replicas of the checkpoints that p0 keeps, after p0 has lost its own storage. Parts of collected
/// checkpoints still exist. The log entry from which m could be re-sent was removed.
#[test]
fn collected_checkpoints_are_not_restored() {
    assert_caught(Defect::CollectedRestored, Property::NoLoss, |defects| {
        let mut federation = running(&[1, 1, 1], config(defects));
        federation.exchange(p(2), p(0), "m");
        federation.take_checkpoint(c(2));
        federation.take_checkpoint(c(0));
        federation.hold(says!(Control::Discard { .. }));
        federation.collect();
        assert_eq!(federation.kept(p(0)), [3, 4]);
        federation.hold(part_since(3));
        federation.crash(p(0), Lost);
        federation.settle();
        federation.crash(p(1), Lost);
        federation.retry();
        assert_eq!(federation.is_unrecoverable(), defects == Defects::default());
        federation
    });
}

/// Returns a federation in which cluster 1 is restoring a collected checkpoint: no process of cluster 1 was informed of
/// the collection, nor was p2, which holds its replicas. p0 was informed, and has removed m from its log. Also returns
/// the held messages with newer parts.
fn restored_a_collected_checkpoint(defects: Defects) -> (Federation, Hold) {
    let mut federation = running(&[1, 1, 1], config(defects));
    federation.exchange(p(0), p(1), "m");
    federation.take_checkpoint(c(0));
    federation.take_checkpoint(c(1));
    let unheard = says!(Control::Collect { .. });
    federation.hold(move |flight| unheard(flight) && flight.to != p(0));
    federation.collect();
    assert_eq!((federation.kept(p(0)), federation.kept(p(1))), (vec![2, 3], vec![1, 2, 3]));
    let parts = federation.hold(part_since(3));
    federation.crash(p(1), Lost);
    federation.settle();
    federation.crash(p(2), Lost);
    (federation, parts)
}

/// Cluster 1 learns of the collection when it alerts the other clusters.
#[test]
fn a_cluster_that_restored_a_collected_checkpoint_is_informed() {
    assert_caught(Defect::CollectedRestored, Property::NoLoss, |defects| {
        let (mut federation, _) = restored_a_collected_checkpoint(defects);
        federation.retry();
        assert_eq!(federation.is_unrecoverable(), defects == Defects::default());
        federation
    });
}

/// Cluster 1 has restored a collected checkpoint and continued from it. No cluster has been told of this when cluster 1
/// learns of the collection: its new checkpoints contain m no more than the restored one does.
#[test]
fn checkpoints_that_follow_a_collected_one_are_not_restored() {
    assert_caught(Defect::CollectedRestored, Property::NoLoss, |defects| {
        let (mut federation, parts) = restored_a_collected_checkpoint(defects);
        let told = federation.hold(says!(Control::AlertRecorded { .. }));
        federation.retry();
        federation.release(parts);
        for _ in 0..3 {
            federation.take_checkpoint(c(1));
        }
        federation.release(told);
        federation.retry();
        assert_eq!(federation.is_unrecoverable(), defects == Defects::default());
        federation
    });
}
