//! Messages that belong to an older round, or that only some members have received. Random schedules miss these cases.

use faultline_core::Claim;
use faultline_core::StorageFate::Kept;
use faultline_protocols::hc3i::{Control, Defects, Epoch};

use crate::harness::p;
use crate::setting::{Federation, config, running, says, to};

/// Asserts that nothing is violated, and that the cluster of p1 has resumed.
fn assert_resumed(federation: &Federation) {
    assert_eq!(federation.violations(), [""; 0]);
    assert!(federation.claims(p(1)).any(|claim| matches!(claim, Claim::RolledBack { .. })));
}

/// The coordinator p0 begins another round because the holder p2 fails. p1's report for the first round arrives before
/// p1 has entered the second one. If the report counted, p0 would tell p1 what to restore before p1 takes part in the
/// round, and p1 would ignore the message.
#[test]
fn a_report_to_an_older_round_does_not_count() {
    let mut federation = running(&[2, 1], config(Defects::default()));
    let first = says!(Control::Reported { epoch: Epoch { round: 0, .. }, .. });
    let report = federation.hold(move |flight| flight.from == p(1) && first(flight));
    federation.crash(p(1), Kept);
    federation.settle();
    let second = says!(Control::Prepare { epoch: Epoch { round: 1, .. }, .. });
    let prepare = federation.hold(to(p(1), second));
    federation.crash(p(2), Kept);
    federation.settle();
    federation.release(report);
    federation.settle();
    federation.release(prepare);
    federation.retry();
    assert_resumed(&federation);
}

/// p1 was ready in the first round. Its `Ready` message arrives in the second one, before p1 has learned what to
/// restore.
#[test]
fn a_member_that_was_ready_for_an_older_round_is_not_ready() {
    let mut federation = running(&[2, 1], config(Defects::default()));
    let first = says!(Control::Ready { epoch: Epoch { round: 0, .. } });
    let ready = federation.hold(move |flight| flight.from == p(1) && first(flight));
    federation.crash(p(1), Kept);
    federation.settle();
    let second = says!(Control::Restore { epoch: Epoch { round: 1, .. }, .. });
    let restore = federation.hold(to(p(1), second));
    federation.crash(p(2), Kept);
    federation.settle();
    federation.release(ready);
    federation.settle();
    federation.release(restore);
    federation.retry();
    assert_resumed(&federation);
}

/// p0 rolls back and undoes a message that p2 has delivered, but the alert reaches only p1 of the other cluster. If
/// p1's confirmation sufficed, p0 would deliver a message that p2 sent in the meantime, and would have to roll back
/// again together with p2's cluster.
#[test]
fn an_alert_is_confirmed_once_all_members_have_recorded_it() {
    let mut federation = running(&[1, 2], config(Defects::default()));
    federation.exchange(p(0), p(2), "undone");
    let learn = federation.hold(to(p(2), says!(Control::Learn { .. })));
    federation.crash(p(0), Kept);
    federation.settle();
    federation.exchange(p(2), p(0), "depends on what was undone");
    federation.release(learn);
    federation.retry();
    assert_eq!(federation.violations(), [""; 0]);
    let rollbacks = federation.claims(p(0)).filter(|it| matches!(it, Claim::RolledBack { .. }));
    assert_eq!(rollbacks.count(), 1);
}
