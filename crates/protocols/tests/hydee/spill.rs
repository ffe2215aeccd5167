//! The log when it exceeds its limit: which messages are removed from memory, under what condition, and how they are
//! read back (R15).

use faultline_checker::Property;
use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Claim, Fact, ProcessId, Protocol as _};
use faultline_protocols::hydee::{Config, Defect, Defects, Hydee};

use crate::harness::{Entry, Federation, Flight, p};
use crate::{EVERY, config};

/// Creates three processes, each in a cluster of its own, with replicas in the next cluster. The limit of the log
/// is four bytes.
fn running() -> Federation<Hydee> {
    with(Defects::default())
}

fn with(defects: Defects) -> Federation<Hydee> {
    let limited = Config { log_memory: Some(4), ..config(3, 1, defects) };
    let mut federation = Federation::new(&[1, 1, 1], limited);
    federation.settle();
    federation
}

fn exchange(federation: &mut Federation<Hydee>, texts: &[&str]) {
    for text in texts {
        federation.send(p(0), p(1), text);
        federation.settle();
    }
}

/// Returns the size of p0's log in bytes, and how many of these bytes are on stable storage only.
fn log(federation: &Federation<Hydee>) -> (u64, u64) {
    let gauges = federation.protocol(p(0)).gauges();
    (gauges.log_bytes, gauges.log_bytes_spilled)
}

fn violations(federation: &Federation<Hydee>) -> Vec<String> {
    let findings = federation.judge().findings;
    findings.into_iter().flat_map(|it| it.violations).map(|it| it.text).collect()
}

#[test]
fn the_oldest_messages_are_removed_from_memory_once_they_are_durable_everywhere() {
    let mut federation = running();
    let copy = federation.hold(|flight| flight.image_of() == Some(p(0)));
    exchange(&mut federation, &["m1", "m2", "m3"]);
    assert_eq!(log(&federation), (6, 0), "the holder has no replica yet");
    federation.release(copy);
    federation.settle();
    assert_eq!(log(&federation), (6, 4), "half of the limit stays in memory");
    exchange(&mut federation, &["m4", "m5", "m6"]);
    let (all, spilled) = log(&federation);
    assert!(all == 12 && all - spilled <= 4, "{spilled} of {all}");
}

#[test]
fn a_recovery_reads_what_it_needs() {
    for own_is_corrupt in [false, true] {
        let mut federation = running();
        let texts = ["m1", "m2", "m3", "m4", "m5"];
        exchange(&mut federation, &texts);
        if own_is_corrupt {
            federation.corrupt(p(0));
        }
        federation.crash(p(1), Kept);
        federation.settle();
        assert_eq!(federation.received(p(1)), texts, "in their order; own storage corrupt: {own_is_corrupt}");
        assert_eq!(violations(&federation), [""; 0]);
    }
}

/// A checkpoint of p0 refers to segments. p0 loses its storage, and p1 fails, too.
#[test]
fn segments_are_part_of_the_checkpoint_and_of_its_replicas() {
    let mut federation = running();
    let texts = ["m1", "m2", "m3", "m4", "m5"];
    exchange(&mut federation, &texts);
    federation.wake(p(0), EVERY);
    federation.settle();
    federation.crash(p(0), Lost);
    federation.settle();
    assert_eq!(log(&federation).0, 10, "the restored log is the same");
    federation.crash(p(1), Kept);
    federation.settle();
    assert_eq!(federation.received(p(1)), texts);
    assert_eq!(violations(&federation), [""; 0]);
    let protected = |claim: &Claim| matches!(claim, Claim::Protected);
    assert!(federation.claims(p(0)).any(protected), "p0's storage holds everything again");
}

/// The storage of p0 and that of its holder are full. The messages that p1 needs again are still in p0's memory.
#[test]
fn messages_that_are_not_durable_stay_in_memory() {
    let schedule = |defects| {
        let mut federation = with(defects);
        federation.fail_writes(p(0), true);
        federation.fail_writes(p(1), true);
        exchange(&mut federation, &["m1", "m2", "m3"]);
        federation.crash(p(1), Kept);
        federation.settle();
        federation
    };
    let sound = schedule(Defects::default());
    assert_eq!(sound.received(p(1)), ["m1", "m2", "m3"]);
    assert_eq!(violations(&sound), [""; 0]);
    assert_caught(&schedule(Defects::only(Defect::SpilledBeforeDurable)));
}

/// p0 and then its holder p1 lose their storage. In between, p0 fetches its segments from p1.
#[test]
fn restoring_a_part_restores_its_segments_as_well() {
    let schedule = |defects| {
        let mut federation = with(defects);
        exchange(&mut federation, &["m1", "m2", "m3", "m4", "m5"]);
        federation.wake(p(0), EVERY);
        federation.settle();
        for process in [p(0), p(1)] {
            federation.crash(process, Lost);
            federation.settle();
        }
        federation
    };
    let sound = schedule(Defects::default());
    assert_eq!(sound.received(p(1)), ["m1", "m2", "m3", "m4", "m5"]);
    assert_eq!(violations(&sound), [""; 0]);
    assert_caught(&schedule(Defects::only(Defect::SegmentsOutsideCheckpoint)));
}

/// p0 finds a segment lost when p2 requests it, and asks p1, whose answer is on its way. p2 requests it again.
#[test]
fn a_segment_is_not_given_up_before_its_last_holder_has_answered() {
    let limited = Config { log_memory: Some(4), ..config(3, 2, Defects::default()) };
    let mut federation: Federation<Hydee> = Federation::new(&[1, 1, 1], limited);
    federation.settle();
    let texts = ["m1", "m2", "m3", "m4", "m5"];
    exchange(&mut federation, &texts);
    federation.corrupt(p(0));
    let answer = federation.hold(|flight| flight.from == p(1) && flight.image_of() == Some(p(0)));
    for storage in [Lost, Kept] {
        federation.crash(p(2), storage);
        federation.settle();
    }
    assert!(federation.in_transit(|flight| flight.image_of() == Some(p(0))) > 0, "p1 answers");
    assert!(!federation.claims(p(0)).any(|it| matches!(it, Claim::Unrecoverable { .. })));
    federation.release(answer);
    federation.settle();
    federation.crash(p(1), Kept);
    federation.settle();
    assert_eq!(federation.received(p(1)), texts);
    assert_eq!(violations(&federation), [""; 0]);
}

/// p1 has lost its storage, and p0's next part arrives there. p1 lacks the segments that the part needs, and p0 finds
/// its own lost, so p0 cannot send them before it gets them back from p2. p0 then sends its part to p1 again.
#[test]
fn a_part_is_sent_again_once_its_segments_are_back() {
    let limited = Config { log_memory: Some(4), ..config(3, 2, Defects::default()) };
    let mut federation: Federation<Hydee> = Federation::new(&[1, 1, 1], limited);
    federation.settle();
    exchange(&mut federation, &["m1", "m2", "m3", "m4", "m5"]);
    federation.corrupt(p(0));
    let announced = |flight: &Flight<Hydee>| flight.image_of() == Some(p(0)) && flight.to == p(1);
    let replicas = federation.hold(announced);
    federation.crash(p(1), Lost);
    federation.wake(p(0), EVERY);
    federation.settle();
    federation.release(replicas);
    federation.settle();
    let commits = |claim: &&Claim| matches!(claim, Claim::Committed { .. });
    assert_eq!(federation.claims(p(0)).filter(commits).count(), 2);
    assert_eq!(violations(&federation), [""; 0]);
}

/// Asserts that p1 has not received any of its messages again, and that the checker finds that a cluster was
/// unnecessarily declared unrecoverable.
fn assert_caught(federation: &Federation<Hydee>) {
    assert_eq!(federation.received(p(1)), [""; 0]);
    let violated: Vec<Property> = federation.judge().violated().collect();
    assert!(violated.contains(&Property::UnrecoverableJustified), "{violated:?}");
}

/// The holder loses its storage, and with it segments to which no checkpoint refers yet.
#[test]
fn a_holder_receives_the_segments_again() {
    let mut federation = running();
    let texts = ["m1", "m2", "m3", "m4", "m5"];
    exchange(&mut federation, &texts);
    let before = segments(&federation, p(1));
    federation.crash(p(1), Lost);
    federation.settle();
    assert_eq!((before, segments(&federation, p(1))), (2, 2));
}

#[test]
fn checkpoints_of_the_receiver_and_the_sender_free_the_segments() {
    let mut federation = running();
    exchange(&mut federation, &["m1", "m2", "m3", "m4", "m5"]);
    assert_eq!([p(0), p(1)].map(|it| segments(&federation, it)), [2, 2]);
    federation.wake(p(1), EVERY);
    federation.settle();
    assert_eq!(log(&federation), (0, 0));
    federation.wake(p(0), EVERY);
    federation.settle();
    assert_eq!([p(0), p(1)].map(|it| segments(&federation, it)), [0, 0]);
    assert_eq!(violations(&federation), [""; 0]);
    let facts = federation.log().iter().filter_map(|it| match it {
        Entry::Fact { fact: Fact::Removed(name), .. } => Some(name.is_part()),
        _ => None,
    });
    assert!(facts.min() == Some(true), "no fact is reported about a segment");
}

/// Returns the number of segments of p0 that a process stores.
fn segments(federation: &Federation<Hydee>, at: ProcessId) -> usize {
    federation.images(at).iter().filter(|name| name.owner == p(0) && !name.is_part()).count()
}
