//! Garbage collection (section 3.5): it removes exactly what no recovery needs.

use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Claim, ClusterId, ImageName, Packet, ProcessId, Sn, Span};
use faultline_protocols::hc3i::{CollectBy, Config, Control, Defect, Defects, Hc3i, ReplicateTo};

use crate::harness::{Flight, c, p};
use crate::setting::{Federation, by_every_cluster, config, part_since, running, says, to};

const CLUSTERS: [ClusterId; 3] = [ClusterId(0), ClusterId(1), ClusterId(2)];
const OFTEN: Span = Span::from_secs(10);

/// Exchanges messages and takes checkpoints in three clusters, then collects garbage.
fn collected(config: Config) -> Federation {
    let alone = config.collect_by == CollectBy::EveryCluster;
    let mut federation = running(&[1, 2, 1], config);
    for round in 0..4 {
        federation.exchange(p(0), p(1), &format!("a{round}"));
        federation.exchange(p(2), p(3), &format!("b{round}"));
        federation.take_checkpoint(c(round % 3));
        federation.exchange(p(1), p(2), &format!("c{round}"));
    }
    federation.exchange(p(3), p(0), "d");
    if alone {
        federation.announce_inventory(&CLUSTERS);
    } else {
        federation.collect();
    }
    federation
}

fn collections(federation: &Federation) -> usize {
    let all = federation.processes().flat_map(|it| federation.claims(it));
    all.filter(|it| matches!(it, Claim::Collected { .. })).count()
}

#[test]
fn a_collection_removes_checkpoints_replicas_and_log_entries() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    federation.exchange(p(1), p(0), "m");
    federation.take_checkpoint(c(0));
    federation.take_checkpoint(c(0));
    federation.collect();
    assert_eq!(federation.kept(p(0))[0], 2, "p1 could still roll back past the send of m");
    federation.take_checkpoint(c(1));
    assert_eq!((federation.kept(p(0)), federation.kept(p(1))), (vec![2, 3, 4, 5], vec![1, 2]));
    federation.collect();
    // Waking p0 also made its next checkpoint due. That checkpoint was not stored yet when p0 reported its inventory.
    assert_eq!((federation.kept(p(0)), federation.kept(p(1))), (vec![5, 6], vec![2]));
    for storage in [p(0), p(1)] {
        let parts = federation.images(storage).into_iter().filter(|it| it.owner == p(0)).map(|it| it.sn);
        assert_eq!(parts.collect::<Vec<_>>(), [Sn(5), Sn(6)], "in the storage of {storage}");
    }
    let log = federation.claims(p(1)).filter_map(|it| match it {
        Claim::Collected { log, .. } => Some(*log),
        _ => None,
    });
    assert_eq!(log.collect::<Vec<_>>(), [0, 1], "m was delivered before the kept checkpoint");
}

/// A collection that is abandoned because the next one begins has no effect on that one: neither an answer that arrived
/// before, nor an answer that arrives late.
#[test]
fn answers_to_an_abandoned_collection_do_not_count() {
    let mut federation = running(&[1, 1, 1], config(Defects::default()));
    let answers = |from: ProcessId, to: u32| {
        move |flight: &Flight<Hc3i>| {
            flight.from == from
                && matches!(flight.control(), Some(Control::Stock { round, .. }) if *round == to)
        }
    };
    let late = federation.hold(answers(p(1), 1));
    let missing = federation.hold(answers(p(2), 2));
    federation.collect();
    federation.collect();
    assert_eq!(collections(&federation), 0, "p2 has answered only the first time");
    federation.release(late);
    federation.settle();
    assert_eq!(collections(&federation), 0);
    federation.release(missing);
    federation.settle();
    assert_eq!(collections(&federation), 3);
}

/// Cluster 0 takes two more checkpoints, the second after the delivery of a message that p2 can still undo. The
/// recovery line contains the first of them. p0 fails, and its holder p1 loses all replicas at the same time.
fn with_lost_replicas(config: Config) -> Federation {
    let mut federation = running(&[1, 1, 1], config);
    federation.exchange(p(2), p(0), "m");
    federation.take_checkpoint(c(0));
    federation.kill(p(0), Kept);
    federation.kill(p(1), Lost);
    for failed in [p(0), p(1)] {
        federation.detect(failed);
    }
    for failed in [p(0), p(1)] {
        federation.advance_return(failed);
    }
    federation
}

#[test]
fn checkpoints_count_again_once_their_replicas_have_been_refilled() {
    for (defects, kept) in
        [(Defects::default(), vec![2, 3, 4]), (Defects::only(Defect::RefillsUnconfirmed), vec![1, 2, 3, 4])]
    {
        let mut federation = with_lost_replicas(config(defects));
        federation.retry();
        federation.collect();
        assert_eq!(federation.kept(p(0)), kept, "{defects:?}");
        assert_eq!(federation.violations(), [""; 0]);
    }
}

#[test]
fn checkpoints_do_not_count_before_their_replicas_have_been_refilled() {
    let mut federation = with_lost_replicas(config(Defects::default()));
    let late = federation.hold(|flight| matches!(&flight.packet, Packet::Image(it) if it.name.sn == Sn(2)));
    federation.retry();
    federation.collect();
    assert_eq!(federation.kept(p(0))[0], 1, "p1 has no replica of the second checkpoint");
    federation.release(late);
    federation.settle();
    federation.collect();
    assert_eq!(federation.kept(p(0))[0], 2);
    assert_eq!(federation.violations(), [""; 0]);
}

/// Replicas of p1's parts reach p2 after p2 has reported in a recovery, and before p1 learns from the coordinator that
/// they are missing.
#[test]
fn replicas_that_arrive_during_a_recovery_are_confirmed_again() {
    let mut federation = running(&[2, 1, 1], config(Defects::default()));
    federation.exchange(p(3), p(0), "m");
    federation.take_checkpoint(c(0));
    let refill = federation.hold(
        |flight| matches!(&flight.packet, Packet::Image(it) if it.name.owner == p(1) && it.name.sn < Sn(3)),
    );
    federation.crash(p(2), Lost);
    federation.retry();
    let target = federation.hold(to(p(1), says!(Control::Restore { .. })));
    federation.crash(p(0), Kept);
    federation.settle();
    federation.release(refill);
    federation.settle();
    federation.release(target);
    federation.retry();
    federation.collect();
    assert_eq!(federation.kept(p(0))[0], 2);
    assert_eq!(federation.kept(p(1))[0], 2);
    assert_eq!(federation.violations(), [""; 0]);
}

/// p1 has lost its replicas, and receives them again while p0 collects. One of them arrives after the message
/// that declares it unnecessary.
#[test]
fn a_replica_that_arrives_after_its_collection_is_not_stored() {
    for (defects, is_left) in [(Defects::default(), false), (Defects::only(Defect::LateReplicasStored), true)]
    {
        let mut federation = running(&[1, 1], config(defects));
        let of_first = |name: &ImageName| name.owner == p(0) && name.sn == Sn(1);
        let late =
            federation.hold(move |flight| matches!(&flight.packet, Packet::Image(it) if of_first(&it.name)));
        federation.crash(p(1), Lost);
        federation.retry();
        federation.take_checkpoint(c(0));
        federation.collect();
        assert!(federation.kept(p(0))[0] > 1);
        federation.release(late);
        federation.settle();
        assert_eq!(federation.images(p(1)).iter().any(of_first), is_left);
        assert_eq!(federation.violations(), [""; 0]);
    }
}

#[test]
fn collected_checkpoints_are_not_needed_whichever_cluster_fails() {
    for config in [config(Defects::default()), by_every_cluster(Defects::default())] {
        for subset in 1..8u32 {
            let failing: Vec<ClusterId> = CLUSTERS.into_iter().filter(|it| subset & 1 << it.0 != 0).collect();
            let mut federation = collected(config.clone());
            assert_eq!(collections(&federation), 4);
            federation.lose(&failing, Kept);
            federation.retry();
            assert_eq!(federation.violations(), [""; 0], "{failing:?} failed together");
            federation.announce_inventory(&CLUSTERS);
            federation.lose(&failing[..1], Lost);
            federation.retry();
            assert_eq!(
                federation.violations(),
                [""; 0],
                "{failing:?} failed together, then one of them lost its storage"
            );
        }
    }
}

#[test]
fn collecting_alone_keeps_what_an_initiator_would_keep() {
    let kept = |config| {
        let federation = collected(config);
        federation.processes().map(|it| federation.kept(it)[0]).collect::<Vec<_>>()
    };
    assert_eq!(kept(config(Defects::default())), [4, 4, 4, 4]);
    assert_eq!(kept(by_every_cluster(Defects::default())), [4, 4, 4, 4]);
}

/// Each cluster decides once per round of reports from all other clusters.
#[test]
fn a_cluster_decides_alone_once_all_others_have_reported() {
    let mut federation = running(&[1, 2, 1], by_every_cluster(Defects::default()));
    federation.announce_inventory(&CLUSTERS[..2]);
    assert_eq!(collections(&federation), 0, "no cluster has a report from the third cluster");
    federation.announce_inventory(&CLUSTERS[2..]);
    assert_eq!(
        collections(&federation),
        4,
        "the third cluster already had the reports of the others, which now have its report"
    );
    federation.announce_inventory(&CLUSTERS);
    assert_eq!(collections(&federation), 8);
}

/// One cluster is down when it should report its inventory: the others use its last report. With an initiator, nothing
/// is removed.
#[test]
fn a_silent_cluster_delays_no_other() {
    let run = |config| {
        let mut federation = collected(config);
        federation.take_checkpoint(c(2));
        federation.announce_inventory(&CLUSTERS);
        let before = collections(&federation);
        federation.kill(p(3), Kept);
        federation.detect(p(3));
        federation.take_checkpoint(c(0));
        for _ in 0..2 {
            federation.announce_inventory(&CLUSTERS[..2]);
        }
        let kept = federation.kept(p(0)).len();
        federation.advance_return(p(3));
        federation.retry();
        assert_eq!(federation.violations(), [""; 0]);
        (collections(&federation) - before, kept)
    };
    let (central, alone) = (run(config(Defects::default())), run(by_every_cluster(Defects::default())));
    assert_eq!((central.0, alone.0), (0, 3));
    assert!(alone.1 < central.1, "{alone:?} {central:?}");
}

/// p1 and p2 have p0's report when p0 rolls back.
#[test]
fn announcements_before_a_rollback_do_not_count_after_it() {
    let mut federation = running(&[1, 1, 1], by_every_cluster(Defects::default()));
    federation.take_checkpoint(c(0));
    federation.announce_inventory(&[c(0)]);
    federation.crash(p(0), Kept);
    federation.retry();
    federation.announce_inventory(&[c(1), c(2)]);
    assert_eq!(collections(&federation), 0, "all have reported, but p0 did so before its rollback");
    federation.announce_inventory(&CLUSTERS);
    assert_eq!(collections(&federation), 3);
}

#[test]
fn a_rollback_during_a_collection_ends_it() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    federation.take_checkpoint(c(1));
    let stock = federation.hold(says!(Control::Stock { .. }));
    federation.collect();
    federation.crash(p(1), Kept);
    federation.release(stock);
    federation.retry();
    assert_eq!(collections(&federation), 0, "p1's answer was lost with p1");
    federation.collect();
    assert_eq!(collections(&federation), 2, "the next collection succeeds");
    assert_eq!(federation.kept(p(1)), [2]);
}

/// Cluster 2 answers before cluster 1 rolls back; cluster 1 answers after its rollback.
#[test]
fn answers_from_different_incarnations_are_not_mixed() {
    let mut federation = running(&[1, 2, 1], config(Defects::default()));
    let question = federation.hold(to(p(1), says!(Control::Ask { .. })));
    federation.collect();
    federation.crash(p(2), Kept);
    federation.retry();
    federation.release(question);
    federation.settle();
    assert_eq!(collections(&federation), 0);
    federation.collect();
    assert_eq!(collections(&federation), 4);
}

#[test]
fn a_decision_from_before_a_rollback_is_void() {
    let mut federation = running(&[1, 2], config(Defects::default()));
    federation.exchange(p(0), p(1), "m");
    federation.take_checkpoint(c(1));
    let decision = federation.hold(to(p(1), says!(Control::Collect { .. })));
    federation.collect();
    federation.crash(p(2), Kept);
    federation.retry();
    let before = federation.kept(p(1));
    federation.release(decision);
    federation.settle();
    assert_eq!(federation.kept(p(1)), before);
    assert_eq!(federation.claims(p(1)).filter(|it| matches!(it, Claim::Collected { .. })).count(), 0);
    assert_eq!(federation.violations(), [""; 0]);
}

/// Makes the clusters collect more often than they take unforced checkpoints.
fn often(config: Config) -> Config {
    Config { collect_every: Some(OFTEN), ..config }
}

/// Delivers the requests for parts that match `requests` to `process`. Of the reads that follow, only the one after
/// `intact` others finds its part corrupt.
fn corrupt_one_read(
    federation: &mut Federation,
    process: ProcessId,
    requests: impl Fn(&Flight<Hc3i>) -> bool,
    intact: usize,
) {
    federation.hold_storage(process, true);
    assert!(federation.let_through(requests) > 0);
    federation.hold_storage(process, false);
    for _ in 0..intact {
        federation.step();
    }
    federation.corrupt(process);
    federation.step();
    federation.repair_storage(process);
}

/// p1 has lost its replicas, and requests them again. p0 finds that its part of the newer of two checkpoints is corrupt:
/// this part exists nowhere any more.
#[test]
fn a_checkpoint_does_not_count_once_a_part_is_found_lost() {
    let mut federation = running(&[1, 1, 1], often(config(Defects::default())));
    federation.take_checkpoint(c(0));
    let wanted = federation.hold(says!(Control::Want { .. }));
    federation.crash(p(1), Lost);
    federation.retry();
    corrupt_one_read(&mut federation, p(0), to(p(0), says!(Control::Want { .. })), 0);
    federation.release(wanted);
    federation.retry();
    assert!(federation.claims(p(1)).any(|it| *it == Claim::Protected));
    federation.wake(p(0), OFTEN);
    federation.settle();
    assert_eq!(federation.kept(p(0)), [1, 2]);
    federation.crash(p(0), Kept);
    federation.retry();
    assert!(!federation.is_unrecoverable());
    assert_eq!(federation.violations(), [""; 0]);
}

/// p0 has lost its storage. Its holder's replica of the third of four checkpoints turns out to be corrupt when p0 fetches
/// it. The fourth contains m, which p2 undoes after a collection.
#[test]
fn a_recovery_does_not_keep_a_checkpoint_that_cannot_be_fetched() {
    let mut federation = running(&[1, 1, 1], config(Defects::default()));
    federation.take_checkpoint(c(0));
    federation.exchange(p(2), p(0), "m");
    federation.take_checkpoint(c(0));
    let fetched = federation.hold(says!(Control::Fetch(_)));
    federation.crash(p(0), Lost);
    federation.settle();
    corrupt_one_read(&mut federation, p(1), to(p(1), says!(Control::Fetch(_))), 1);
    federation.release(fetched);
    federation.retry();
    assert_eq!(federation.kept(p(0)), [1, 2, 4]);
    federation.collect();
    federation.crash(p(2), Kept);
    federation.retry();
    assert!(!federation.is_unrecoverable());
    assert_eq!(federation.violations(), [""; 0]);
}

/// The other clusters have a list of p0's five checkpoints when p0 finds that its part of the fourth is corrupt. p2 undoes
/// m, which the fifth contains, so p0 needs its third checkpoint, and the message that p1 logged.
#[test]
fn a_list_that_contains_a_lost_checkpoint_is_replaced() {
    for overtakes in [false, true] {
        replace_a_list(overtakes);
    }
}

/// Replaces a list. If `overtakes` is set, the list arrives only after its replacement.
fn replace_a_list(overtakes: bool) {
    let shared =
        Config { replicate_to: ReplicateTo::SharedStorage, ..often(by_every_cluster(Defects::default())) };
    let mut federation = running(&[1, 1, 1], shared);
    federation.take_checkpoint(c(0));
    federation.exchange(p(1), p(0), "logged");
    federation.take_checkpoint(c(1));
    federation.exchange(p(2), p(0), "m");
    federation.take_checkpoint(c(0));
    let list = overtakes.then(|| {
        federation.hold(|flight| {
            let of_five = |it: &Control| matches!(it, Control::Stock { inventory, .. } if inventory.checkpoints.len() == 5);
            flight.from == p(0) && flight.control().is_some_and(of_five)
        })
    });
    federation.wake(p(0), OFTEN);
    federation.settle();
    let wanted = federation.hold(says!(Control::Want { .. }));
    federation.crash(p(3), Lost);
    federation.retry();
    corrupt_one_read(&mut federation, p(0), to(p(0), says!(Control::Want { .. })), 1);
    federation.release(wanted);
    federation.retry();
    if let Some(list) = list {
        assert_eq!(
            federation.in_transit(|flight| matches!(flight.control(), Some(Control::Stock { .. }))),
            2
        );
        federation.release(list);
        federation.settle();
    }
    for coordinator in [p(1), p(2)] {
        federation.wake(coordinator, OFTEN);
    }
    federation.settle();
    assert_eq!(collections(&federation), 4);
    federation.crash(p(2), Kept);
    federation.retry();
    assert!(!federation.is_unrecoverable());
    assert_eq!(federation.received(p(0)), ["logged"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// p1 has lost its replicas of p0's two checkpoints, and has only the older one again.
#[test]
fn a_collection_does_not_rely_on_a_checkpoint_whose_holder_is_being_refilled() {
    let mut federation = running(&[1, 1, 1], config(Defects::default()));
    federation.take_checkpoint(c(0));
    let replica = federation.hold(to(p(1), part_since(2)));
    federation.crash(p(1), Lost);
    federation.retry();
    federation.collect();
    assert_eq!(federation.kept(p(0)), [1, 2]);
    federation.release(replica);
    federation.retry();
    federation.collect();
    assert_eq!(federation.kept(p(0)), [3, 4], "the replicas are complete");
    assert_eq!(federation.violations(), [""; 0]);
}

/// p1's storage is full when p0 offers both checkpoints again. p0 collects the older one before p1 can store it.
#[test]
fn a_holder_does_not_wait_for_a_replica_that_was_collected_meanwhile() {
    let mut federation = running(&[1, 1, 1], config(Defects::default()));
    federation.take_checkpoint(c(0));
    let replicas = federation.hold(|flight| flight.to == p(1) && flight.image_of() == Some(p(0)));
    federation.crash(p(1), Lost);
    federation.retry();
    federation.fail_writes(p(1), true);
    federation.release(replicas);
    federation.settle();
    federation.collect();
    federation.fail_writes(p(1), false);
    federation.retry();
    assert!(federation.claims(p(1)).any(|it| *it == Claim::Protected));
    assert_eq!(federation.violations(), [""; 0]);
}
