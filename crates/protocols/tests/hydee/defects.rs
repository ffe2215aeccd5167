//! Every defect is detected: most by a random schedule that reveals no problem without the defect, the others by a
//! directed schedule.

use faultline_checker::Property;
use faultline_core::StorageFate::Kept;
use faultline_protocols::hydee::{Control, Defect, Defects, Hydee, RoundMessage};

use crate::config;
use crate::explore::{is_found, run};
use crate::harness::{Federation, p};

/// Seeds with which the schedules of `explore` reveal the defects. If the schedules change, take new seeds
/// from `how_often_each_defect_is_found`.
const REVEALED_BY: &[(Defect, u64)] = &[
    (Defect::LastReceivedResent, 5),
    (Defect::CountsProcesses, 5),
    (Defect::NoInitialLevel, 0),
    (Defect::FailedDoNotAnswer, 1),
    (Defect::RestoredLogNotSent, 665),
    (Defect::LogOutsideCheckpoint, 3),
    (Defect::SuppressedNotLogged, 11),
    (Defect::CollectsAtPresent, 1),
    (Defect::CollectsBeforeCommit, 311),
    (Defect::NoLifeCheck, 18),
    (Defect::OnlyNewlyFailed, 1),
    (Defect::OlderSyncAccepted, 1268),
    (Defect::ReplacedWithoutRound, 5),
    (Defect::NoBarrier, 1),
    (Defect::NoGate, 6),
    (Defect::FoldsAtArrival, 5),
    (Defect::NoDrain, 56),
    (Defect::OneRound, 513),
    (Defect::SegmentsCollected, 13),
    (Defect::SpilledNotSent, 61),
];

/// Defects that a directed schedule reveals, here or in `spill`.
const DIRECTED: &[Defect] = &[
    Defect::OlderLevelObeyed,
    Defect::NoDuplicateCheck,
    Defect::SpilledBeforeDurable,
    Defect::SegmentsOutsideCheckpoint,
];

#[test]
fn random_schedules_reveal_defects() {
    for &(defect, seed) in REVEALED_BY {
        assert_eq!(run(seed, Defects::default()).problems(), [""; 0], "schedule {seed} is sound");
        assert!(is_found(defect, seed), "schedule {seed} does not show {defect:?}");
    }
}

#[test]
fn no_defect_is_forgotten() {
    let shown = |it: &&Defect| REVEALED_BY.iter().any(|(shown, _)| shown == *it) || DIRECTED.contains(it);
    assert_eq!(Defect::ALL.iter().find(|it| !shown(it)), None);
}

/// R9: the last level of a round reaches p1 after p0 has failed again and restarted. With the defect, p1 obeys this
/// level and sends its next message, although p0 needs the earlier messages again.
#[test]
fn levels_from_an_older_round_are_not_obeyed() {
    let schedule = |defects| {
        let mut federation = Federation::<Hydee>::new(&[1, 1], config(2, 1, defects));
        federation.settle();
        let exchange = |federation: &mut Federation<Hydee>, from, to, text| {
            federation.send(p(from), p(to), text);
            federation.settle();
        };
        exchange(&mut federation, 0, 1, "x");
        exchange(&mut federation, 1, 0, "m1");
        let last = |flight: &crate::harness::Flight<Hydee>| {
            flight.to == p(1)
                && matches!(
                    flight.control(),
                    Some(Control::Resume(RoundMessage::Level { epoch: 1, level: None }))
                )
        };
        let level = federation.hold(last);
        federation.crash(p(0), Kept);
        federation.settle();
        exchange(&mut federation, 0, 1, "x");
        assert_eq!(federation.received(p(0)), ["m1"], "m1 was re-sent in its phase");
        let begin = federation.hold(|flight| {
            flight.to == p(0)
                && matches!(flight.control(), Some(Control::Resume(RoundMessage::Begin { epoch: 2, .. })))
        });
        federation.crash(p(0), Kept);
        federation.settle();
        assert_eq!(federation.let_through(last), 1);
        exchange(&mut federation, 1, 0, "m2");
        federation.release(begin);
        federation.release(level);
        federation.settle();
        exchange(&mut federation, 0, 1, "x");
        federation
    };
    let sound = schedule(Defects::default());
    assert_eq!(sound.judge().violated().count(), 0);
    assert_eq!(sound.received(p(0)), ["m1", "m2"]);
    let broken = schedule(Defects::only(Defect::OlderLevelObeyed));
    let violated: Vec<Property> = broken.judge().violated().collect();
    assert!(violated.contains(&Property::NoLoss), "{violated:?}");
}

/// R5: a message arrives twice.
#[test]
fn a_message_that_arrives_twice_is_delivered_once() {
    let schedule = |defects| {
        let mut federation = Federation::<Hydee>::new(&[1, 1], config(2, 1, defects));
        federation.settle();
        federation.duplicate(|flight| flight.to == p(0) && flight.control().is_none());
        federation.send(p(1), p(0), "m");
        federation.settle();
        federation
    };
    let sound = schedule(Defects::default());
    assert_eq!(sound.judge().violated().count(), 0);
    assert_eq!(sound.received(p(0)), ["m"]);
    let broken = schedule(Defects::only(Defect::NoDuplicateCheck));
    let violated: Vec<Property> = broken.judge().violated().collect();
    assert!(violated.contains(&Property::ExactlyOnce), "{violated:?}");
}
