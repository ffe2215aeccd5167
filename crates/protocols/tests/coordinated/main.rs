//! Coordinated checkpoints of the whole federation: blocking ones, taken directly or through leaders, and Chandy
//! and Lamport's snapshots. The K, L and C rules are listed in `docs/baselines.md`. Random schedules are left to the
//! fuzzer.

use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Claim, Position, ProcessId, Protocol, Span};
use faultline_protocols::Options;
use faultline_protocols::chandy_lamport::{self, ChandyLamport};
use faultline_protocols::coordinated::{self, Coordinated, Coordination};
use faultline_protocols::placement::{Placement, ReplicateTo};

use harness::{Entry, Federation, p};

#[allow(dead_code, unused_imports, reason = "each protocol's tests use only part of the harness")]
#[path = "../harness/mod.rs"]
mod harness;

/// A delay so long that checkpoints after the first are taken only on request.
const EVERY: Span = Span::from_secs(3_600);

fn options<D>(defects: D) -> Options<D> {
    Options {
        checkpoint_every: Some(EVERY),
        collect_every: Some(EVERY),
        placement: Placement { replicas: 1, to: ReplicateTo::OtherCluster },
        retry_every: Span::from_secs(1),
        defects,
    }
}

fn stopped(coordination: Coordination, defects: coordinated::Defects) -> coordinated::Config {
    coordinated::Config { options: options(defects), coordination }
}

/// Creates a federation that has taken its first checkpoint.
fn running<P: Protocol>(clusters: &[u32], config: P::Config) -> Federation<P> {
    let mut federation = Federation::new(clusters, config);
    federation.settle();
    federation
}

impl<P: Protocol> Federation<P> {
    /// Begins a checkpoint, and performs all steps except those that wait for a held packet or storage operation.
    fn take_checkpoint(&mut self) {
        self.wake(p(0), EVERY);
        self.settle();
    }

    fn exchange(&mut self, from: ProcessId, to: ProcessId, text: &str) {
        self.send(from, to, text);
        self.settle();
    }

    /// Makes a process fail, and handles everything that follows.
    fn fail(&mut self, process: ProcessId) {
        self.crash(process, Kept);
        self.settle();
    }

    /// Returns the SNs of the checkpoints that a process knows to be committed.
    fn committed(&self, process: ProcessId) -> Vec<u32> {
        let sn = |claim: &Claim| match claim {
            Claim::Committed { position, .. } => Some(position.sn.0),
            _ => None,
        };
        self.claims(process).filter_map(sn).collect()
    }

    /// Returns the SNs of the checkpoints that a process has restored.
    fn restored(&self, process: ProcessId) -> Vec<u32> {
        let sn = |claim: &Claim| match claim {
            Claim::RolledBack { checkpoint, .. } => Some(checkpoint.sn.0),
            _ => None,
        };
        self.claims(process).filter_map(sn).collect()
    }

    /// Returns the violations that the checker finds, as sentences.
    fn violations(&self) -> Vec<String> {
        let findings = self.judge().findings;
        findings.into_iter().flat_map(|it| it.violations).map(|it| it.text).collect()
    }
}

/// K1, K4: a message that is sent during a checkpoint is delivered only after the commit. K5: one failure rolls all
/// processes back.
#[test]
fn the_federation_stops_and_rolls_back_together() {
    for coordination in [Coordination::Direct, Coordination::Hierarchical] {
        let mut federation = running::<Coordinated>(&[2, 2], stopped(coordination, Default::default()));
        federation.exchange(p(0), p(2), "m1");
        let drained = federation.hold(|it| matches!(it.control(), Some(coordinated::Control::Drained(_))));
        federation.take_checkpoint();
        federation.exchange(p(0), p(3), "m2");
        assert_eq!(federation.received(p(3)), [""; 0], "before the commit");
        federation.release(drained);
        federation.settle();
        assert_eq!(federation.received(p(3)), ["m2"]);
        federation.exchange(p(3), p(1), "m3");
        federation.fail(p(2));
        for process in [p(0), p(1), p(2), p(3)] {
            assert_eq!(federation.committed(process), [1, 2]);
            assert_eq!(federation.restored(process), [2]);
        }
        assert_eq!(federation.received(p(2)), ["m1"]);
        assert_eq!((federation.received(p(1)), federation.received(p(3))), (vec![], vec![]));
        assert_eq!(federation.violations(), [""; 0]);
    }
}

/// K2, K3: a message in transit is part of the checkpoint, which waits for it.
#[test]
fn a_stopped_federation_waits_for_messages_in_transit() {
    let mut federation = running::<Coordinated>(&[2, 1], stopped(Coordination::Direct, Default::default()));
    let in_transit = federation.hold(|flight| flight.contains("m"));
    federation.exchange(p(1), p(2), "m");
    federation.take_checkpoint();
    assert_eq!(federation.committed(p(2)), [1]);
    federation.release(in_transit);
    federation.settle();
    assert_eq!(federation.committed(p(2)), [1, 2]);
    assert_eq!(federation.received(p(2)), ["m"]);
    federation.fail(p(0));
    assert_eq!((federation.restored(p(2)), federation.received(p(2))), (vec![2], vec!["m"]));
    assert_eq!(federation.violations(), [""; 0]);
}

/// A commit waits until all parts are durable, so a checkpoint in doubt can be restored like a committed one.
#[test]
fn a_checkpoint_in_doubt_is_restored() {
    let mut federation = running::<Coordinated>(&[2, 1], stopped(Coordination::Direct, Default::default()));
    federation.exchange(p(1), p(2), "m");
    federation.hold(|it| matches!(it.control(), Some(coordinated::Control::Commit { .. })));
    federation.take_checkpoint();
    assert_eq!(federation.committed(p(2)), [1]);
    federation.crash(p(0), Lost);
    federation.settle();
    assert_eq!(federation.restored(p(2)), [2]);
    assert_eq!(federation.received(p(2)), ["m"]);
    assert_eq!(federation.violations(), [""; 0]);
}

/// With leaders, each of the five steps takes one message to or from each cluster other than the coordinator's (L1,
/// L2).
#[test]
fn leaders_represent_their_clusters() {
    for (coordination, expected) in [(Coordination::Direct, 25), (Coordination::Hierarchical, 10)] {
        let mut federation = running::<Coordinated>(&[2, 3, 2], stopped(coordination, Default::default()));
        let before = between_clusters(&federation);
        federation.take_checkpoint();
        assert_eq!(federation.committed(p(6)), [1, 2]);
        // Request, Saved, Drain, Drained, Commit.
        assert_eq!(between_clusters(&federation) - before, expected, "{coordination:?}");
        assert_eq!(federation.violations(), [""; 0]);
    }
}

/// Counts the checkpointing messages that were sent from one cluster to another.
fn between_clusters(federation: &Federation<Coordinated>) -> usize {
    let crosses = |entry: &&Entry<Coordinated>| match entry {
        Entry::Arrival(flight) => {
            federation.cluster_of(flight.from) != federation.cluster_of(flight.to)
                && flight.control().is_some_and(|it| !matches!(it, coordinated::Control::Group(_)))
        }
        Entry::Fact { .. } => false,
    };
    federation.log().iter().filter(crosses).count()
}

/// L2: a leader that reports before its members have answered leaves out the messages that they have sent.
#[test]
fn a_leader_represents_all_its_members() {
    for defect in [None, Some(coordinated::Defect::LeaderCountsAlone)] {
        let defects = defect.map_or_else(Default::default, coordinated::Defects::only);
        let mut federation = running::<Coordinated>(&[1, 2], stopped(Coordination::Hierarchical, defects));
        federation.hold(|it| it.to == p(2) && matches!(it.control(), Some(coordinated::Control::Request(_))));
        federation.take_checkpoint();
        let drains = |it: &&Entry<Coordinated>| match it {
            Entry::Arrival(flight) => matches!(flight.control(), Some(coordinated::Control::Drain { .. })),
            Entry::Fact { .. } => false,
        };
        let has_counted = federation.log().iter().filter(drains).count() > first_drains(&[1, 2]);
        assert_eq!(has_counted, defect.is_some(), "p2 has not been asked");
    }
}

/// Returns the number of `Drain` messages in the first checkpoint: one for each process except the coordinator.
fn first_drains(clusters: &[u32]) -> usize {
    clusters.iter().sum::<u32>() as usize - 1
}

/// No process is paused while parts are written.
#[test]
fn a_snapshot_stops_no_process() {
    let mut federation = running::<ChandyLamport>(&[2, 1], options(Default::default()));
    let durable = federation.hold(|it| matches!(it.control(), Some(chandy_lamport::Control::Durable(_))));
    federation.take_checkpoint();
    federation.exchange(p(0), p(2), "m");
    assert_eq!((federation.received(p(2)), federation.committed(p(0))), (vec!["m"], vec![1]));
    federation.release(durable);
    federation.settle();
    assert_eq!((federation.received(p(2)), federation.committed(p(0))), (vec!["m"], vec![1, 2]));
    assert_eq!(federation.violations(), [""; 0]);
}

/// C2: the coordinator's marker to p2 is late, so p1's marker makes p2 save its state. The checkpoint does not
/// contain the message that follows p1's marker.
#[test]
fn the_first_marker_makes_a_process_save_its_state() {
    for defect in [None, Some(chandy_lamport::Defect::DeliversBehindMarker)] {
        let defects = defect.map_or_else(Default::default, chandy_lamport::Defects::only);
        let mut federation = running::<ChandyLamport>(&[2, 1], options(defects));
        let late = federation.hold(|it| {
            let is_marker = matches!(it.control(), Some(chandy_lamport::Control::Marker(_)));
            is_marker && it.from == p(0) && it.to == p(2)
        });
        federation.take_checkpoint();
        federation.exchange(p(1), p(2), "m");
        assert_eq!(federation.received(p(2)), ["m"]);
        federation.release(late);
        federation.settle();
        assert_eq!(federation.committed(p(0)), [1, 2]);
        federation.fail(p(1));
        match defect {
            None => assert_eq!((federation.received(p(2)), federation.violations()), (vec![], vec![])),
            Some(_) => assert_ne!(federation.violations(), [""; 0], "a ghost"),
        }
    }
}

/// C3, C5: a message in transit is delivered although a checkpoint is being taken, and again when the
/// checkpoint is restored.
#[test]
fn messages_in_transit_belong_to_the_snapshot() {
    use chandy_lamport::Defect;
    for defect in [None, Some(Defect::NoDrain), Some(Defect::LateOnlyRecorded)] {
        let defects = defect.map_or_else(Default::default, chandy_lamport::Defects::only);
        let mut federation = running::<ChandyLamport>(&[2, 1], options(defects));
        let in_transit = federation.hold(|flight| flight.contains("m"));
        federation.exchange(p(0), p(2), "m");
        federation.take_checkpoint();
        federation.release(in_transit);
        federation.settle();
        let delivered = federation.received(p(2)).len();
        federation.fail(p(1));
        let again = federation.received(p(2)).len();
        match defect {
            None => assert_eq!((delivered, again, federation.violations()), (1, 1, vec![])),
            Some(Defect::NoDrain) => assert_eq!((delivered, again), (1, 0)),
            Some(_) => assert_eq!((delivered, again), (0, 1)),
        }
    }
}

/// C4: a failure before all parts are durable rolls all processes back, including those that have already resumed.
#[test]
fn actions_after_an_interrupted_snapshot_are_undone() {
    let mut federation = running::<ChandyLamport>(&[2, 1], options(Default::default()));
    federation.exchange(p(0), p(1), "before");
    let late = federation.hold(|it| {
        let is_marker = matches!(it.control(), Some(chandy_lamport::Control::Marker(_)));
        is_marker && it.from == p(1) && it.to == p(2)
    });
    federation.take_checkpoint();
    federation.exchange(p(0), p(1), "after the cut");
    assert_eq!(federation.received(p(1)), ["before", "after the cut"]);
    federation.fail(p(2));
    federation.release(late);
    federation.settle();
    assert_eq!(federation.received(p(1)), [""; 0], "only the first checkpoint exists");
    assert_eq!((federation.restored(p(1)), federation.violations()), (vec![1], vec![]));
}

/// Checkpoints older than the newest one are removed at the first commit after `collect_every` has elapsed.
#[test]
fn older_checkpoints_are_collected() {
    let mut federation = running::<ChandyLamport>(&[1, 1], options(Default::default()));
    federation.take_checkpoint();
    for process in [p(0), p(1)] {
        let sns: Vec<u32> = federation.images(process).iter().map(|it| it.sn.0).collect();
        assert_eq!(sns, [2, 2], "the process's own part, and the replica that it holds");
    }
    assert_eq!(federation.violations(), [""; 0]);
}

/// The storage server p2 is still writing the parts of the second checkpoint when p0 fails without having written its
/// own. If p2 answered immediately, the federation would restore its first checkpoint, and, after the next failure, the
/// second one, which the first rollback had undone.
#[test]
fn a_server_answers_only_once_its_writes_are_durable() {
    let placement = Placement { replicas: 1, to: ReplicateTo::SharedStorage };
    let options = Options { placement, ..options(Default::default()) };
    let mut federation = running::<ChandyLamport>(&[1, 1], options);
    federation.hold_storage(p(0), true);
    federation.hold_storage(p(2), true);
    federation.take_checkpoint();
    federation.fail(p(0));
    federation.hold_storage(p(2), false);
    federation.settle();
    federation.fail(p(0));
    assert_eq!(federation.judge().violated().collect::<Vec<_>>(), []);
}

/// Returns whether a process reported that it discarded the second checkpoint.
fn discarded<P: Protocol>(federation: &Federation<P>, process: ProcessId) -> bool {
    federation
        .claims(process)
        .any(|it| matches!(it, Claim::Aborted { position, .. } if *position == Position::new(0, 2)))
}

/// Before the start is recorded, no process may act. A change in the membership does not permit the first commit
/// either, even if all parts are durable.
#[test]
fn no_checkpoint_is_committed_before_the_start_is_recorded() {
    fn check<P: Protocol>(config: P::Config) {
        let mut federation = Federation::<P>::new(&[1, 1, 1], config);
        federation.withhold_notes(true);
        federation.settle();
        federation.fail(p(2));
        let steps = |it: &Federation<P>| (it.committed(p(0)), it.restored(p(0)));
        assert_eq!(steps(&federation), (vec![], vec![]), "although all parts are durable");
        federation.withhold_notes(false);
        federation.settle();
        assert_eq!(steps(&federation), (vec![], vec![1]));
        assert_eq!(federation.violations(), [""; 0]);
    }
    check::<Coordinated>(stopped(Coordination::Direct, Default::default()));
    check::<Coordinated>(stopped(Coordination::Hierarchical, Default::default()));
    check::<ChandyLamport>(options(Default::default()));
}

/// A process that has lost its storage reports once that its own part, and the replica that it holds, are durable
/// again.
#[test]
fn lost_storage_is_refilled() {
    fn check<P: Protocol>(config: P::Config) {
        let mut federation = running::<P>(&[1, 1], config);
        for process in [p(0), p(1)] {
            for storage in [Lost, Kept] {
                federation.crash(process, storage);
                federation.settle();
                let reports = federation.claims(process).filter(|it| **it == Claim::Protected).count();
                assert_eq!((reports, federation.images(process).len()), (1, 2), "{process}");
            }
        }
        assert_eq!(federation.violations(), [""; 0]);
    }
    check::<Coordinated>(stopped(Coordination::Direct, Default::default()));
    check::<Coordinated>(stopped(Coordination::Hierarchical, Default::default()));
    check::<ChandyLamport>(options(Default::default()));
}

#[test]
fn a_rollback_discards_the_checkpoint_in_progress() {
    fn check<P: Protocol>(config: P::Config) {
        let mut federation = running::<P>(&[1, 1], config);
        federation.hold_storage(p(1), true);
        federation.take_checkpoint();
        federation.fail(p(1));
        federation.hold_storage(p(1), false);
        federation.settle();
        assert!(discarded(&federation, p(0)));
        assert_eq!(federation.committed(p(0)), [1]);
        assert_eq!(federation.violations(), [""; 0]);
    }
    check::<Coordinated>(stopped(Coordination::Direct, Default::default()));
    check::<Coordinated>(stopped(Coordination::Hierarchical, Default::default()));
    check::<ChandyLamport>(options(Default::default()));
}
