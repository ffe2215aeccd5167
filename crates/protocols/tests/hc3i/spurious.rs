//! Unrequested and duplicate input changes nothing, except for duplicate application messages inside a cluster, which
//! no driver delivers.

use faultline_core::StorageFate::Kept;
use faultline_core::{Attempt, Event, ImageName, Incarnation, Packet, Sn};
use faultline_protocols::hc3i::{Control, Defects};

use crate::harness::{Entry, Flight, c, p};
use crate::setting::{Federation, config, running, says};

/// Exchanges messages, takes checkpoints, collects garbage and crashes a process, and calls `disturb` before each step
/// and at the end. Returns the messages that each process has received.
fn run(disturb: impl Fn(&mut Federation)) -> Vec<Vec<String>> {
    let mut federation = running(&[2, 2], config(Defects::default()));
    let steps: [fn(&mut Federation); 8] = [
        |it| it.exchange(p(0), p(2), "m1"),
        |it| it.exchange(p(2), p(3), "m2"),
        |it| it.take_checkpoint(c(0)),
        |it| it.exchange(p(3), p(1), "m3"),
        |it| it.collect(),
        |it| it.crash(p(3), Kept),
        |it| it.retry(),
        |it| it.exchange(p(1), p(2), "m4"),
    ];
    for step in steps {
        disturb(&mut federation);
        step(&mut federation);
    }
    disturb(&mut federation);
    federation.retry();
    assert_eq!(federation.violations(), [""; 0]);
    let received = |it| federation.received(it).iter().map(ToString::to_string).collect();
    federation.processes().map(received).collect()
}

#[test]
fn timeouts_may_come_early_and_repeatedly() {
    let undisturbed = run(|_| ());
    let disturbed = run(|federation| {
        federation.settle();
        let before = federation.log().len();
        for process in federation.processes() {
            (0..3).for_each(|_| federation.feed(process, Event::Timeout));
        }
        assert_eq!(federation.log().len(), before, "no fact is recorded");
        assert!(!federation.step(), "no step is pending");
    });
    assert_eq!(disturbed, undisturbed);
}

#[test]
fn unrequested_completions_are_ignored() {
    let name = |owner| ImageName { owner, incarnation: Incarnation(0), sn: Sn(77), attempt: Attempt(9) };
    let disturbed = run(|federation| {
        federation.settle();
        for process in federation.processes() {
            for owner in federation.processes() {
                federation.feed(process, Event::PersistFailed(name(owner)));
                federation.feed(process, Event::Read { name: name(owner), image: None });
            }
            federation.feed(process, Event::Recorded { version: u64::MAX });
            federation.feed(process, Event::Listed(Vec::new()));
        }
        federation.settle();
    });
    assert_eq!(disturbed, run(|_| ()));
}

#[test]
fn an_old_membership_changes_nothing() {
    let disturbed = run(|federation| {
        federation.settle();
        for process in federation.processes() {
            let membership = federation.view(process);
            let before = federation.log().len();
            federation.feed(process, Event::Membership(membership));
            assert_eq!(federation.log().len(), before, "no fact is recorded");
        }
        assert!(!federation.step(), "no step is pending");
    });
    assert_eq!(disturbed, run(|_| ()));
}

/// Everything that has arrived so far arrives again, except application messages inside a cluster: for these, the
/// protocol relies on the driver not to deliver duplicates.
#[test]
fn every_message_may_be_duplicated_later() {
    let disturbed = run(|federation| {
        federation.settle();
        let arrivals = federation.log().iter().filter_map(|entry| match entry {
            Entry::Arrival(flight) => Some(flight.clone()),
            Entry::Fact { .. } => None,
        });
        for Flight { from, to, packet, .. } in arrivals.collect::<Vec<_>>() {
            let within = federation.cluster_of(from) == federation.cluster_of(to);
            if !(within && matches!(packet, Packet::Application { .. })) {
                federation.feed(to, Event::Packet { from, packet });
            }
        }
        federation.settle();
    });
    assert_eq!(disturbed, run(|_| ()));
}

/// Every answer that its receiver counts arrives twice.
#[test]
fn answers_may_be_duplicated_immediately() {
    use Control::{Drained, Learnt, Ready, Reported, Saved, Stock, Stored};
    let answers = says!(
        Saved { .. }
            | Drained { .. }
            | Reported { .. }
            | Ready { .. }
            | Learnt { .. }
            | Stock { .. }
            | Stored(_)
    );
    let disturbed = run(|federation| federation.duplicate(answers));
    assert_eq!(disturbed, run(|_| ()));
}
