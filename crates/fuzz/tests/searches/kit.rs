//! Tests the conformance kit with a protocol that needs processes in addition to the ranks: faults also affect them.

use faultline_checker::Property;
use faultline_core::{Life, ProcessId, Span};
use faultline_fuzz::Candidate;
use faultline_protocols::hydee::{Config, Defect, Defects, Hydee};
use faultline_protocols::placement::{Placement, ReplicateTo};

/// Returns HydEE as if it were a user's protocol.
fn candidate(defects: Defects) -> Candidate<Hydee> {
    let config = Config {
        checkpoint_every: vec![Some(Span::from_millis(200)); 4].into(),
        placement: Placement { replicas: 1, to: ReplicateTo::SharedStorage },
        log_memory: None,
        retry_every: Span::from_millis(10),
        defects,
    };
    Candidate::new(config)
}

#[test]
fn processes_besides_the_ranks_fail_and_are_replaced() {
    let mut replaced = 0;
    for seed in 0..300 {
        let tried = candidate(Defects::default()).try_seed(seed).unwrap();
        assert_eq!(tried.failure(), None);
        let ranks: u32 = tried.federation.spec.clusters.iter().map(|it| it.nodes).sum();
        let beside = |it: &&(ProcessId, Life)| it.0.0 >= ranks && it.0 != ProcessId::SUPERVISOR;
        replaced += tried.trace.streams.keys().filter(beside).filter(|it| it.1 > Life(1)).count();
    }
    assert!(replaced > 10, "only {replaced} lives of processes that are not ranks started after a failure");
}

#[test]
fn a_defect_of_their_recovery_is_found() {
    let wrong = candidate(Defects::only(Defect::NoBarrier));
    let tried = wrong.first_failure(0..100).unwrap().expect("it is found");
    assert!(tried.judgement.violated().any(|it| it == Property::NoLoss));
}
