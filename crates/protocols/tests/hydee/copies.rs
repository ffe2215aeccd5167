//! Replicas of checkpoints: what can be restored after storage is lost.

use faultline_core::Claim;
use faultline_core::StorageFate::{Kept, Lost};
use faultline_protocols::hydee::{Control, Defects, GroupMessage, Hydee};

use crate::harness::{Federation, p};
use crate::{EVERY, config};

/// p2's part of the second checkpoint has no replica when p1 fails and loses its storage, but p2 has the part, so
/// the second checkpoint is to be restored. Before the replica is made, p2 also fails and loses its storage. The
/// first checkpoint still exists.
#[test]
fn an_older_checkpoint_stays_until_every_part_of_a_newer_one_is_safe() {
    let mut federation = Federation::<Hydee>::new(&[1, 2], config(2, 1, Defects::default()));
    federation.settle();
    let copy = federation.hold(|flight| flight.image_of() == Some(p(2)) && flight.to == p(0));
    federation.wake(p(1), EVERY);
    federation.settle();
    federation.crash(p(1), Lost);
    federation.settle();
    federation.crash(p(2), Lost);
    federation.release(copy);
    federation.settle();
    for process in [p(1), p(2)] {
        let given_up = federation.claims(process).any(|it| matches!(it, Claim::Unrecoverable { .. }));
        assert!(!given_up, "{process} declared its cluster unrecoverable");
    }
    let back = |claim: &&Claim| matches!(claim, Claim::RolledBack { checkpoint, .. } if checkpoint.sn.0 == 1);
    assert_eq!(federation.claims(p(2)).filter(back).count(), 1);
    assert_eq!(federation.judge().violated().count(), 0);
}

/// p2 restores its part from p1, and p0 is to receive a replica again. When p2 reads its own image for this
/// replica, the image is corrupt: the part must be fetched again.
#[test]
fn a_part_that_is_lost_while_it_is_replicated_is_fetched_again() {
    let mut federation = Federation::<Hydee>::new(&[1, 1, 1], config(3, 2, Defects::default()));
    let first = federation.hold(|flight| flight.image_of() == Some(p(2)) && flight.to == p(0));
    federation.settle();
    let secure = federation.hold(|flight| {
        let is_secure = |it: &Control| matches!(it, Control::Group(GroupMessage::Secure(_)));
        flight.to == p(0) && flight.control().is_some_and(is_secure)
    });
    federation.corrupt(p(2));
    federation.crash(p(2), Kept);
    federation.settle();
    federation.corrupt(p(2));
    federation.release(secure);
    federation.release(first);
    federation.settle();
    let has_resumed = federation.claims(p(2)).any(|it| matches!(it, Claim::RolledBack { .. }));
    assert!(has_resumed, "p2 waits forever");
}

/// p1 is still writing its replica of p0's part of the second checkpoint when p0 fails without having written the part
/// itself. If p1 answered immediately, p0 would restore its first checkpoint, and after its next failure the second
/// one, which the first rollback has undone.
#[test]
fn a_holder_answers_only_once_its_writes_are_durable() {
    let mut federation = Federation::<Hydee>::new(&[1, 1], config(2, 1, Defects::default()));
    federation.settle();
    federation.hold_storage(p(0), true);
    federation.hold_storage(p(1), true);
    federation.wake(p(0), EVERY);
    federation.settle();
    federation.crash(p(0), Kept);
    federation.settle();
    federation.hold_storage(p(1), false);
    federation.settle();
    federation.crash(p(0), Kept);
    federation.settle();
    let back = federation.claims(p(0)).filter(|it| matches!(it, Claim::RolledBack { .. }));
    assert_eq!(back.count(), 2);
    assert_eq!(federation.judge().violated().collect::<Vec<_>>(), []);
}
