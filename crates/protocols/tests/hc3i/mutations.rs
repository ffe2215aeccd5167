//! One schedule for each mutation that random schedules miss. Each schedule runs with and without its mutation.

use faultline_core::Claim;
use faultline_core::StorageFate::Kept;
use faultline_protocols::hc3i::{Control, Defect, Defects, Epoch};

use crate::harness::p;
use crate::setting::{Federation, config, running, says, to};

/// Asserts that the schedule is harmless without the mutation, and that the cluster of p1 never resumes if the mutation
/// is switched on.
fn assert_stalls(mutation: Defect, schedule: impl Fn(Defects) -> Federation) {
    let resumes = |federation: &Federation| {
        federation.claims(p(1)).any(|claim| matches!(claim, Claim::RolledBack { .. }))
    };
    let sound = schedule(Defects::default());
    assert_eq!(sound.violations(), [""; 0], "without {mutation:?}");
    assert!(resumes(&sound), "without {mutation:?}");
    assert!(!resumes(&schedule(Defects::only(mutation))), "with {mutation:?}");
}

/// The coordinator p0 begins another round because the holder p2 fails. p1's report for the first round arrives before
/// p1 has entered the second one. If the report counted, p0 would tell p1 what to restore before p1 takes part in the
/// round, and p1 would ignore the message.
#[test]
fn a_report_to_an_older_round_does_not_count() {
    assert_stalls(Defect::OlderReportsCount, |defects| {
        let mut federation = running(&[2, 1], config(defects));
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
        federation
    });
}

/// p1 was ready in the first round. Its `Ready` message arrives in the second one, before p1 has learned what to
/// restore.
#[test]
fn a_member_that_was_ready_for_an_older_round_is_not_ready() {
    assert_stalls(Defect::OlderReadyCounts, |defects| {
        let mut federation = running(&[2, 1], config(defects));
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
        federation
    });
}

/// p0 rolls back and undoes a message that p2 has delivered, but the alert reaches only p1 of the other cluster. If
/// p1's confirmation sufficed, p0 would deliver a message that p2 sent in the meantime, and would have to roll back
/// again together with p2's cluster.
#[test]
fn an_alert_is_confirmed_once_all_members_have_recorded_it() {
    let rollbacks = |defects| {
        let mut federation = running(&[1, 2], config(defects));
        federation.exchange(p(0), p(2), "undone");
        let learn = federation.hold(to(p(2), says!(Control::Learn { .. })));
        federation.crash(p(0), Kept);
        federation.settle();
        federation.exchange(p(2), p(0), "depends on what was undone");
        federation.release(learn);
        federation.retry();
        assert_eq!(federation.violations(), [""; 0]);
        federation.claims(p(0)).filter(|it| matches!(it, Claim::RolledBack { .. })).count()
    };
    assert_eq!(rollbacks(Defects::default()), 1);
    assert_eq!(rollbacks(Defects::only(Defect::OneMemberConfirms)), 2);
}
