//! Clusters that join and leave (section 7).

use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Claim, Presence};
use faultline_protocols::hc3i::{Config, Control, Defects, ReplicateTo};

use crate::harness::{c, p};
use crate::setting::{Federation, by_every_cluster, config, says};

/// Creates three clusters, the last of which is a guest.
fn with_guest(presence: Presence, config: Config) -> Federation {
    let mut federation = Federation::with_presences(&[1, 1, 2], config, &[(c(2), presence)]);
    federation.settle();
    federation
}

fn collections(federation: &Federation) -> usize {
    let all = federation.processes().flat_map(|it| federation.claims(it));
    all.filter(|it| matches!(it, Claim::Collected { .. })).count()
}

/// Takes a checkpoint in every running cluster and then collects garbage. Repeats both once.
fn collect_all(federation: &mut Federation) {
    for _ in 0..2 {
        for cluster in [c(0), c(1), c(2)] {
            if federation.lives(federation.members(cluster)[0]) {
                federation.take_checkpoint(cluster);
            }
        }
        for process in [p(0), p(1), p(2)] {
            if federation.lives(process) {
                federation.wake(process, crate::setting::COLLECT_EVERY);
            }
        }
        federation.settle();
    }
}

#[test]
fn no_cluster_waits_for_one_that_has_not_joined() {
    for config in [config(Defects::default()), by_every_cluster(Defects::default())] {
        let mut federation = with_guest(Presence::Awaited, config);
        federation.exchange(p(0), p(1), "m");
        collect_all(&mut federation);
        assert_eq!(collections(&federation), 4, "two in each of two clusters");
        federation.crash(p(0), Kept);
        federation.retry();
        federation.exchange(p(1), p(0), "n");
        assert_eq!(federation.received(p(0)), ["n"], "cluster 0 has settled");
        assert_eq!(federation.violations(), [""; 0]);
    }
}

#[test]
fn messages_to_a_joining_cluster_arrive_when_it_joins() {
    let mut federation = with_guest(Presence::Awaited, config(Defects::default()));
    federation.exchange(p(0), p(3), "m");
    federation.join(c(2));
    federation.settle();
    assert_eq!(federation.received(p(3)), ["m"]);
    federation.exchange(p(3), p(0), "n");
    assert_eq!(federation.received(p(0)), ["n"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// Returns the number of messages that the guest receives. p0 rolls back before the guest joins, so its message belongs
/// to an incarnation that the guest does not know yet.
fn received_by_newcomer(defects: Defects) -> usize {
    let mut federation = with_guest(Presence::Awaited, config(defects));
    federation.crash(p(0), Kept);
    federation.retry();
    federation.join(c(2));
    federation.retry();
    federation.exchange(p(0), p(2), "m");
    federation.retry();
    federation.received(p(2)).len()
}

#[test]
fn a_joining_cluster_learns_of_earlier_rollbacks() {
    assert_eq!(received_by_newcomer(Defects::default()), 1);
}

#[test]
fn a_cluster_that_is_not_informed_waits_forever() {
    use faultline_protocols::hc3i::Defect;
    assert_eq!(received_by_newcomer(Defects::only(Defect::NewcomersNotTold)), 0);
}

/// Creates a federation whose guest has exchanged messages with the other clusters. The guest's applications
/// have left the program.
fn leaving(config: Config) -> Federation {
    let mut federation = with_guest(Presence::Present, config);
    federation.exchange(p(0), p(2), "a");
    federation.exchange(p(3), p(1), "b");
    federation.exchange(p(3), p(2), "c");
    federation.leave(p(2));
    federation.settle();
    let before = federation.kept(p(2)).len();
    federation.leave(p(3));
    federation.settle();
    assert_eq!(federation.kept(p(2)).len(), before + 1, "the cluster has taken its last checkpoint");
    federation
}

#[test]
fn a_cluster_leaves_once_collections_show_that_no_cluster_needs_it() {
    for config in [config(Defects::default()), by_every_cluster(Defects::default())] {
        let mut federation = leaving(config);
        assert!(!federation.may_leave(c(2)), "nothing was collected");
        collect_all(&mut federation);
        assert!(federation.may_leave(c(2)));
        federation.leave_federation(c(2));
        federation.retry();
        for holder in [p(0), p(1)] {
            let mut images = federation.images(holder).into_iter();
            assert!(
                images.all(|it| it.owner < p(2)),
                "replicas for the cluster that has left are no longer needed"
            );
        }
        federation.lose(&[c(0)], Lost);
        federation.retry();
        federation.exchange(p(1), p(0), "d");
        assert_eq!(
            federation.received(p(0)),
            ["d"],
            "cluster 0 has settled without the cluster that has left"
        );
        let before = collections(&federation);
        collect_all(&mut federation);
        assert_eq!(collections(&federation), before + 4);
        assert_eq!(federation.violations(), [""; 0]);
    }
}

#[test]
fn a_cluster_that_fails_while_it_leaves_recovers_first() {
    let mut federation = leaving(config(Defects::default()));
    federation.crash(p(3), Lost);
    federation.retry();
    assert_eq!(federation.received(p(2)), ["a", "c"]);
    assert!(!federation.may_leave(c(2)));
    collect_all(&mut federation);
    assert!(federation.may_leave(c(2)));
    assert_eq!(federation.violations(), [""; 0]);
}

/// The receiver of the guest's message can still roll back past its delivery.
#[test]
fn a_cluster_stays_as_long_as_its_log_may_be_needed() {
    let mut federation = leaving(config(Defects::default()));
    federation.take_checkpoint(c(0));
    federation.take_checkpoint(c(2));
    federation.collect();
    assert!(!federation.may_leave(c(2)), "p1 has taken no checkpoint since it received b");
    federation.crash(p(1), Kept);
    federation.retry();
    assert_eq!(federation.received(p(1)), ["b"], "b was re-sent");
    assert_eq!(federation.violations(), [""; 0]);
}

/// A holder that is replaced after an owner has left need not wait for that owner.
#[test]
fn holders_keep_replicas_after_a_cluster_has_left() {
    let mut federation =
        leaving(Config { replicate_to: ReplicateTo::SharedStorage, ..config(Defects::default()) });
    collect_all(&mut federation);
    let server = p(4);
    federation.kill(server, Lost);
    federation.detect(server);
    federation.leave_federation(c(2));
    federation.restart(server);
    federation.retry();
    assert!(federation.claims(server).any(|it| *it == Claim::Protected));
    assert_eq!(federation.violations(), [""; 0]);
}

/// The guest cannot leave until all clusters know of its rollback.
#[test]
fn a_cluster_stays_until_its_rollbacks_are_known() {
    let mut federation = leaving(config(Defects::default()));
    let alerts = federation.hold(says!(Control::Alert { .. }));
    federation.crash(p(2), Kept);
    federation.retry();
    collect_all(&mut federation);
    assert!(!federation.may_leave(c(2)));
    federation.release(alerts);
    federation.retry();
    collect_all(&mut federation);
    assert!(federation.may_leave(c(2)));
    assert_eq!(federation.violations(), [""; 0]);
}
