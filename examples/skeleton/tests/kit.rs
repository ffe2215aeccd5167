//! Tests the skeleton with random federations and faults.

use faultline::kit::Candidate;
use skeleton::{Parameters, Skeleton};

#[test]
fn it_is_sound() {
    let candidate = Candidate::<Skeleton>::named(Parameters {});
    let failing = candidate.first_failure(0..300).unwrap();
    assert_eq!(failing.and_then(|it| it.failure()), None);
}

/// Each part exists only in the storage of its process. Most schedules lose one, and show little.
#[test]
fn without_loss_of_storage_nearly_every_schedule_has_a_verdict() {
    let unknown = |candidate: Candidate<Skeleton>| {
        let tried = (0..200).map(|seed| candidate.try_seed(seed).unwrap());
        tried.filter(|it| it.judgement.reasons.iter().any(|reason| reason.contains("unrecoverable"))).count()
    };
    let candidate = || Candidate::<Skeleton>::named(Parameters {});
    assert!(unknown(candidate()) > 20);
    assert_eq!(unknown(candidate().keeping_storage()), 0);
}
