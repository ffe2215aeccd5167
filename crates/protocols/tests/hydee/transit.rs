//! Messages that are in transit while another cluster fails. Random schedules miss these cases.

use faultline_checker::Strictness;
use faultline_core::StorageFate::Kept;
use faultline_protocols::hydee::{Defects, Hydee};

use crate::config;
use crate::harness::{Federation, Flight, p};

/// p0 re-sends "m" after p1 failed. Before the message arrives, and before p1 has re-sent its orphan message "x", p2
/// fails as well. The second round includes p1, so p0 learns again that p1 lacks "m".
#[test]
fn a_message_in_transit_is_not_sent_again_after_another_failure() {
    let mut federation = Federation::<Hydee>::new(&[1, 1, 1], config(3, 1, Defects::default()));
    federation.settle();
    federation.send(p(0), p(1), "m");
    federation.settle();
    federation.send(p(1), p(0), "x");
    federation.settle();
    let message = |flight: &Flight<Hydee>| flight.to == p(1) && flight.control().is_none();
    let held = federation.hold(message);
    federation.crash(p(1), Kept);
    federation.settle();
    assert_eq!(federation.resent(), ["m"]);
    federation.crash(p(2), Kept);
    federation.settle();
    federation.release(held);
    federation.settle();
    assert_eq!(federation.received(p(1)), ["m"]);
    federation.send(p(1), p(0), "x");
    federation.settle();
    assert_eq!(federation.judge_as(Strictness::Strict).violated().collect::<Vec<_>>(), []);
}
