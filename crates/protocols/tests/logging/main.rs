//! Protocols that log messages between groups, other than HydEE: SPBC, full logging and pessimistic logging. The rules
//! S and M are listed in `docs/baselines.md`, the rules R in `docs/hydee.md`. Random schedules are left to the
//! fuzzer.

use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Claim, Position, ProcessId, Protocol, Span};
use faultline_protocols::full_logging::{self, FullLogging};
use faultline_protocols::pessimistic_logging::{self, PessimisticLogging};
use faultline_protocols::placement::{Placement, ReplicateTo};
use faultline_protocols::spbc::{self, Spbc};

use harness::{Entry, Federation, p};

#[allow(dead_code, unused_imports, reason = "each protocol's tests use only part of the harness")]
#[path = "../harness/mod.rs"]
mod harness;

/// A delay so long that checkpoints after the first are taken only on request.
const EVERY: Span = Span::from_secs(3_600);
const RETRY: Span = Span::from_secs(1);
const PLACEMENT: Placement = Placement { replicas: 1, to: ReplicateTo::OtherCluster };

fn pairs(defects: spbc::Defects) -> spbc::Config {
    let checkpoint_every = vec![Some(EVERY); 3].into();
    spbc::Config { checkpoint_every, placement: PLACEMENT, log_memory: None, retry_every: RETRY, defects }
}

fn in_order(defects: pessimistic_logging::Defects) -> pessimistic_logging::Config {
    pessimistic_logging::Config {
        checkpoint_every: vec![Some(EVERY); 3].into(),
        placement: PLACEMENT,
        log_memory: None,
        retry_every: RETRY,
        defects,
    }
}

fn in_phases() -> full_logging::Config {
    full_logging::Config {
        checkpoint_every: vec![Some(EVERY); 3].into(),
        placement: PLACEMENT,
        log_memory: None,
        retry_every: RETRY,
        defects: (),
    }
}

/// Creates a federation whose groups have taken their first checkpoints.
fn running<P: Protocol>(clusters: &[u32], config: P::Config) -> Federation<P> {
    let mut federation = Federation::new(clusters, config);
    federation.settle();
    federation
}

impl<P: Protocol> Federation<P> {
    fn exchange(&mut self, from: ProcessId, to: ProcessId, text: &str) {
        self.send(from, to, text);
        self.settle();
    }

    fn take_checkpoint(&mut self, coordinator: ProcessId) {
        self.wake(coordinator, EVERY);
        self.settle();
    }

    fn fail(&mut self, process: ProcessId) {
        self.crash(process, Kept);
        self.settle();
    }

    fn committed(&self, process: ProcessId) -> usize {
        self.claims(process).filter(|it| matches!(it, Claim::Committed { .. })).count()
    }

    fn rollbacks(&self, process: ProcessId) -> usize {
        self.claims(process).filter(|it| matches!(it, Claim::RolledBack { .. })).count()
    }

    fn violations(&self) -> Vec<String> {
        let findings = self.judge().findings;
        findings.into_iter().flat_map(|it| it.violations).map(|it| it.text).collect()
    }
}

/// S3, S4: a failed cluster receives the same messages again, and the messages that it repeats are suppressed.
#[test]
fn under_spbc_a_channel_resumes_from_the_state_of_both_ends() {
    let mut federation = running::<Spbc>(&[1, 2], pairs(Default::default()));
    federation.exchange(p(0), p(1), "m1");
    federation.exchange(p(1), p(0), "m2");
    federation.fail(p(2));
    assert_eq!([p(0), p(1), p(2)].map(|it| federation.rollbacks(it)), [0, 1, 1], "one cluster rolls back");
    assert_eq!((federation.received(p(1)), federation.resent()), (vec!["m1"], vec!["m1"]));
    federation.exchange(p(1), p(0), "m2");
    assert_eq!(federation.received(p(0)), ["m2"], "once");
    federation.exchange(p(1), p(0), "m3");
    assert_eq!(federation.received(p(0)), ["m2", "m3"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// S3: until the peer has reported the state of the channel, messages are logged but not transmitted.
#[test]
fn under_spbc_a_message_waits_until_both_ends_have_reported() {
    let mut federation = running::<Spbc>(&[1, 1], pairs(Default::default()));
    let is_report = |it: &spbc::Control| matches!(it, spbc::Control::Resume(_));
    let report = federation.hold(move |flight| flight.to == p(0) && flight.control().is_some_and(is_report));
    federation.fail(p(1));
    federation.exchange(p(0), p(1), "m");
    assert_eq!(federation.received(p(1)), [""; 0]);
    federation.release(report);
    federation.settle();
    assert_eq!(federation.received(p(1)), ["m"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// R7: a checkpoint waits for the messages in transit inside its cluster, and contains them.
#[test]
fn under_spbc_a_checkpoint_drains_the_cluster() {
    let mut federation = running::<Spbc>(&[1, 2], pairs(Default::default()));
    let in_transit = federation.hold(|flight| flight.contains("m"));
    federation.exchange(p(1), p(2), "m");
    federation.take_checkpoint(p(1));
    assert_eq!((federation.committed(p(2)), federation.received(p(2))), (1, vec![]));
    federation.release(in_transit);
    federation.settle();
    assert_eq!((federation.committed(p(2)), federation.received(p(2))), (2, vec!["m"]));
    federation.fail(p(1));
    assert_eq!(federation.received(p(2)), ["m"], "m is delivered from the checkpoint");
    assert_eq!(federation.violations(), [""; 0]);
}

/// R8: a committed checkpoint of the receiver empties the sender's log.
#[test]
fn a_checkpoint_of_the_receiver_frees_the_log() {
    let mut federation = running::<FullLogging>(&[1, 1], in_phases());
    federation.exchange(p(0), p(1), "m");
    let logged = |federation: &Federation<FullLogging>| federation.protocol(p(0)).gauges().log_messages;
    assert_eq!(logged(&federation), 1);
    federation.take_checkpoint(p(1));
    assert_eq!((federation.committed(p(1)), logged(&federation)), (2, 0));
    assert_eq!(federation.violations(), [""; 0]);
}

/// R9, R10: only the failed process rolls back, even inside a cluster.
#[test]
fn under_full_logging_only_the_failed_process_rolls_back() {
    let mut federation = running::<FullLogging>(&[2, 1], in_phases());
    federation.exchange(p(0), p(1), "m1");
    federation.exchange(p(2), p(1), "m2");
    federation.fail(p(1));
    assert_eq!([p(0), p(1), p(2)].map(|it| federation.rollbacks(it)), [0, 1, 0]);
    let mut received = federation.received(p(1));
    received.sort_unstable();
    assert_eq!(received, ["m1", "m2"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// M2: a message waits until the deliveries before it are stable.
#[test]
fn under_pessimistic_logging_a_message_waits_for_the_deliveries_before_it() {
    use pessimistic_logging::{Control, LoggerMessage};
    let mut federation = running::<PessimisticLogging>(&[1, 1], in_order(Default::default()));
    let stable = federation
        .hold(|flight| matches!(flight.control(), Some(Control::Order(LoggerMessage::Logged { .. }))));
    federation.exchange(p(0), p(1), "question");
    federation.exchange(p(1), p(0), "answer");
    assert_eq!(federation.received(p(0)), [""; 0]);
    federation.release(stable);
    federation.settle();
    assert_eq!(federation.received(p(0)), ["answer"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// M4: messages are delivered again in their original order, regardless of the order in which they arrive.
#[test]
fn under_pessimistic_logging_the_order_is_repeated() {
    let schedule = |defects| {
        let mut federation = running::<PessimisticLogging>(&[1, 1, 1], in_order(defects));
        federation.exchange(p(0), p(2), "first");
        federation.exchange(p(1), p(2), "second");
        let first = federation.hold(|flight| flight.contains("first"));
        federation.fail(p(2));
        federation.release(first);
        federation.settle();
        federation
    };
    let sound = schedule(Default::default());
    assert_eq!(sound.received(p(2)), ["first", "second"]);
    assert_eq!(sound.violations(), [""; 0]);
    let defects = pessimistic_logging::Defects::only(pessimistic_logging::Defect::ReplaysInArrivalOrder);
    assert_eq!(schedule(defects).received(p(2)), ["second", "first"]);
}

/// M1, M2: the event logger p3 has not made the delivery of "second" durable. If both p2 and p3 failed now, p2 might
/// deliver another message instead of "second", so no process may depend on this delivery.
#[test]
fn under_pessimistic_logging_a_delivery_is_acknowledged_only_once_it_is_durable() {
    let mut federation = running::<PessimisticLogging>(&[1, 1, 1], in_order(Default::default()));
    federation.exchange(p(0), p(2), "first");
    federation.hold_storage(p(3), true);
    federation.exchange(p(1), p(2), "second");
    federation.exchange(p(2), p(0), "answer");
    assert_eq!(federation.received(p(0)), [""; 0]);
    federation.hold_storage(p(3), false);
    federation.settle();
    assert_eq!(federation.received(p(0)), ["answer"]);
}

/// M3: p2 fails, and the event logger p3 tells it which messages to deliver again. p3 answers only once the
/// delivery of "second" is durable.
#[test]
fn under_pessimistic_logging_a_recalled_delivery_is_durable() {
    let mut federation = running::<PessimisticLogging>(&[1, 1, 1], in_order(Default::default()));
    federation.exchange(p(0), p(2), "first");
    federation.hold_storage(p(3), true);
    federation.exchange(p(1), p(2), "second");
    federation.fail(p(2));
    assert_eq!(federation.received(p(2)), [""; 0]);
    federation.hold_storage(p(3), false);
    federation.settle();
    assert_eq!(federation.received(p(2)), ["first", "second"]);
}

/// M5, M6: a committed checkpoint of p1 contains the delivery of "first". The event logger p2 then loses its storage.
#[test]
fn under_pessimistic_logging_deliveries_in_a_checkpoint_are_forgotten() {
    use pessimistic_logging::{Control, LoggerMessage};
    let mut federation = running::<PessimisticLogging>(&[1, 1], in_order(Default::default()));
    federation.exchange(p(0), p(1), "first");
    federation.take_checkpoint(p(1));
    federation.exchange(p(0), p(1), "second");
    federation.crash(p(2), Lost);
    federation.settle();
    let heard = federation.log().iter().filter_map(|entry| match entry {
        Entry::Arrival(flight) if (flight.from, flight.to) == (p(1), p(2)) => flight.control(),
        _ => None,
    });
    let heard: Vec<(u64, usize)> = heard
        .filter_map(|it| match it {
            Control::Order(LoggerMessage::Forget { below, .. }) if *below > 0 => Some((*below, 0)),
            Control::Order(LoggerMessage::Know { first, determinants }) => Some((*first, determinants.len())),
            _ => None,
        })
        .collect();
    assert_eq!(heard[heard.len() - 2..], [(1, 0), (1, 1)], "only the second is still needed");
}

/// R10: p0 learns of p1's failure. Then a report arrives that p1 sent in the previous round, when it still
/// had "m".
#[test]
fn under_full_logging_a_report_of_an_older_round_does_not_count() {
    use faultline_protocols::hydee::RoundMessage as Message;
    use full_logging::Control;
    let mut federation = running::<FullLogging>(&[1, 1], in_phases());
    federation.let_output_survive();
    federation.exchange(p(0), p(1), "m");
    let is_sync = |it: &Control| matches!(it, Control::Resume(Message::Sync { epoch: 1, .. }));
    let sync = federation.hold(move |flight| flight.to == p(0) && flight.control().is_some_and(is_sync));
    federation.fail(p(0));
    federation.kill(p(1), Kept);
    federation.detect(p(1));
    federation.settle();
    federation.release(sync);
    federation.settle();
    federation.restart(p(1));
    federation.settle();
    federation.exchange(p(0), p(1), "m");
    assert_eq!(federation.received(p(1)), ["m"]);
}

/// Before the start is recorded, no process may act. The failure of a process in another cluster does not permit the
/// first commit either, even if all parts are durable.
#[test]
fn no_checkpoint_is_committed_before_the_start_is_recorded() {
    let mut federation = Federation::<Spbc>::new(&[1, 1, 1], pairs(Default::default()));
    federation.withhold_notes(true);
    federation.settle();
    federation.fail(p(2));
    assert_eq!(federation.committed(p(0)), 0, "although its part is durable");
    federation.withhold_notes(false);
    federation.settle();
    assert_eq!([p(0), p(1)].map(|it| federation.committed(it)), [1, 1]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// A process that has lost its storage reports once that everything it stores is durable again. The last process of
/// pessimistic logging is the event logger.
#[test]
fn lost_storage_is_refilled() {
    fn check<P: Protocol>(config: P::Config) {
        let mut federation = running::<P>(&[1, 1, 1], config);
        federation.exchange(p(0), p(1), "m");
        for process in federation.processes() {
            for storage in [Lost, Kept] {
                federation.crash(process, storage);
                federation.settle();
                let reports = federation.claims(process).filter(|it| **it == Claim::Protected).count();
                assert_eq!(reports, 1, "{process}");
            }
        }
        assert_eq!(federation.violations(), [""; 0]);
    }
    check::<Spbc>(pairs(Default::default()));
    check::<PessimisticLogging>(in_order(Default::default()));
}

#[test]
fn a_rollback_discards_the_checkpoint_in_progress() {
    let mut federation = running::<Spbc>(&[2, 1], pairs(Default::default()));
    federation.hold_storage(p(1), true);
    federation.take_checkpoint(p(0));
    federation.fail(p(1));
    federation.hold_storage(p(1), false);
    federation.settle();
    let is_second =
        |it: &Claim| matches!(it, Claim::Aborted { position, .. } if *position == Position::new(0, 2));
    assert!(federation.claims(p(0)).any(is_second));
    federation.take_checkpoint(p(0));
    assert_eq!([p(0), p(1)].map(|it| federation.committed(it)), [2, 2]);
    assert_eq!(federation.violations(), [""; 0]);
}
