//! Failures case by case: one process, several processes, a cluster or the coordinator, at every moment of a
//! checkpoint and of a recovery.

use std::collections::BTreeSet;
use std::fmt::Debug;

use faultline_core::fault::Outcome;
use faultline_core::{ClusterId, Fact, FactKind, Fault, ProcessId, Span, StorageFate, Target, Time, Trigger};
use faultline_dataflow::partition::RerunOptions;
use faultline_dataflow::programs::Flow;
use faultline_dataflow::programs::cloth::Cloth;
use faultline_dataflow::programs::jacobi::Jacobi;
use faultline_protocols::cck::{self, Cck, Coordination};
use faultline_protocols::placement::ReplicateTo;
use faultline_trace::Record;

use crate::coordinated;
use crate::federation::{Ended, Federation};

/// The possible fates of a failed process: the fate of its storage, and whether the process returns.
const FATES: [(StorageFate, bool); 4] = [
    (StorageFate::Kept, true),
    (StorageFate::Lost, true),
    (StorageFate::Kept, false),
    (StorageFate::Lost, false),
];

/// Returns a federation with three clusters of two processes. Each process has two blocks.
fn federation(seed: u64) -> Federation {
    let program = Flow::Jacobi(Jacobi {
        rows: 3,
        columns: 4,
        size: 2,
        iterations: 30,
        test_every: 4,
        tolerance: 0.1,
        task_time: Span::from_millis(4),
    });
    Federation { speeds: Some(vec![100; 6]), ..Federation::new(seed, vec![2, 2, 2], program) }
}

const RANKS: u32 = 6;
const COORDINATOR: ProcessId = ProcessId(RANKS);

fn crash(process: ProcessId, (storage, returns): (StorageFate, bool)) -> Fault {
    // The coordinator always returns: no process replaces it.
    Fault::Kill {
        target: Target::Process(process),
        storage,
        returns: returns || process.0 >= RANKS,
        repair: None,
    }
}

fn lose(cluster: u16, (storage, returns): (StorageFate, bool)) -> Fault {
    Fault::Kill { target: Target::Cluster(ClusterId(cluster)), storage, returns, repair: None }
}

fn when(fact: FactKind, process: ProcessId, occurrence: u32) -> Trigger {
    Trigger::When { fact, of: None, cluster: None, process: Some(process), occurrence }
}

/// Runs the federation, and returns how the run ended. Asserts that all faults were injected and that the
/// result is correct.
#[track_caller]
fn survives(federation: &Federation, config: cck::Config, what: &dyn Debug) -> Ended {
    let ended = federation.run::<Cck>(config);
    let injected: BTreeSet<_> = (ended.facts.iter())
        .filter_map(|it| if let Fact::Injecting { no, .. } = it.fact { Some(no) } else { None })
        .collect();
    assert_eq!(injected.len(), federation.faults.len(), "{what:?}: every fault is injected");
    assert_eq!(ended.outcome, Outcome::Completed, "{what:?}");
    assert!(ended.digests().into_iter().eq([federation.expected()]), "{what:?}");
    ended
}

fn begun(facts: &[Record]) -> Time {
    facts.iter().find(|it| matches!(it.fact, Fact::Begun)).expect("the application begins").at
}

/// Returns the time at which the second checkpoint is requested and the time at which it is known to be valid, both
/// measured from the start of the application.
fn second_checkpoint(plain: &Federation, config: &cck::Config) -> (Span, Span) {
    let facts = plain.run::<Cck>(config.clone()).facts;
    let mut requested = facts.iter().filter(|it| it.fact.kind() == FactKind::CheckpointRequested);
    let requested = requested.nth(1).expect("at least two checkpoints").at;
    let stored = facts.iter().filter(|it| it.fact.kind() == FactKind::Durable && it.at > requested);
    // Each part has two replicas. The acknowledgements after the last write take up to 5 ms.
    let until =
        stored.take(3 * RANKS as usize).last().expect("all parts are stored").at + Span::from_millis(5);
    (requested.since(begun(&facts)), until.since(begun(&facts)))
}

#[test]
fn a_process_fails_at_any_moment_of_a_checkpoint() {
    for coordination in [Coordination::Neighbours, Coordination::Global] {
        let plain = federation(1);
        let (from, until) = second_checkpoint(&plain, &coordinated(coordination));
        assert!(
            until.0 - from.0 > 10_000_000,
            "the checkpoint takes longer than 5 ms, and its messages 5 ms"
        );
        let step = if coordination == Coordination::Global { 1_000_000 } else { 300_000 };
        let mut runs = 0;
        for at in (from.0..until.0).step_by(step) {
            for process in [ProcessId(0), ProcessId(3), COORDINATOR] {
                for fate in FATES {
                    let mut federation = plain.clone();
                    federation.faults = vec![(Trigger::At(Time(at)), crash(process, fate))];
                    survives(&federation, coordinated(coordination), &(at, process, fate));
                    runs += 1;
                }
            }
        }
        assert!(runs > 50, "{runs}");
    }
}

#[test]
fn processes_fail_at_every_step_of_a_checkpoint() {
    let steps =
        [FactKind::CheckpointRequested, FactKind::Saved, FactKind::Durable, FactKind::CheckpointCommitted];
    for fact in steps {
        let by = if fact == FactKind::CheckpointRequested { COORDINATOR } else { ProcessId(2) };
        for failed in [vec![2], vec![2, 3], vec![1, 4], vec![0, 2, 5]] {
            for fate in FATES {
                let mut federation = federation(2);
                let fault = |it: &u32| (when(fact, by, 2), crash(ProcessId(*it), fate));
                federation.faults = failed.iter().map(fault).collect();
                // If three processes lose their storage, all copies of a part may be lost.
                if fate.0 == StorageFate::Lost && failed.len() > 2 {
                    continue;
                }
                survives(&federation, coordinated(Coordination::Neighbours), &(fact, &failed, fate));
            }
        }
    }
}

#[test]
fn processes_fail_at_every_step_of_a_recovery() {
    let steps = [
        (FactKind::RecoveryStarted, 1),
        (FactKind::Restored, 1),
        (FactKind::RolledBack, 1),
        (FactKind::Delivered, 90),
        (FactKind::Ran, 40),
        (FactKind::Saved, 4),
    ];
    for (fact, occurrence) in steps {
        // The recovering process, a neighbour, another process, and the coordinator.
        for next in [ProcessId(2), ProcessId(3), ProcessId(5), COORDINATOR] {
            for fate in FATES {
                let by = ProcessId(2);
                let mut federation = federation(3);
                federation.faults = vec![
                    (when(FactKind::Ran, by, 30), crash(by, (StorageFate::Kept, true))),
                    (when(fact, by, occurrence), crash(next, fate)),
                ];
                survives(&federation, coordinated(Coordination::Neighbours), &(fact, next, fate));
            }
        }
    }
}

#[test]
fn the_coordinator_fails_repeatedly() {
    let mut federation = federation(4);
    let at = |ms| Trigger::At(Time(Span::from_millis(ms).0));
    federation.faults =
        (0..6).map(|it| (at(20 + 35 * it), crash(COORDINATOR, (StorageFate::Lost, true)))).collect();
    let ended = survives(&federation, coordinated(Coordination::Neighbours), &"the coordinator");
    assert_eq!(ended.count(FactKind::Restored), 0, "no partition rolls back because of it");
}

#[test]
fn a_lost_cluster_returns_or_is_absorbed() {
    for cluster in 0..3 {
        for (occurrence, fate) in [8, 25, 40].into_iter().flat_map(|it| FATES.map(|fate| (it, fate))) {
            let first = ProcessId(u32::from(cluster) * 2);
            let mut federation = federation(5);
            federation.faults = vec![(when(FactKind::Ran, first, occurrence), lose(cluster, fate))];
            let ended =
                survives(&federation, coordinated(Coordination::Neighbours), &(cluster, occurrence, fate));
            let (restored, absorbed) = (ended.count(FactKind::Restored), ended.count(FactKind::Absorbed));
            assert_eq!([restored, absorbed], if fate.1 { [2, 0] } else { [0, 2] }, "{cluster} {fate:?}");
        }
    }
}

#[test]
fn the_successor_of_a_cluster_fails_in_turn() {
    for (cluster, successor) in [(0, 2), (0, 3), (1, 4), (1, 5), (2, 0), (2, 1)] {
        for fate in FATES {
            let successor = ProcessId(successor);
            let mut federation = federation(6);
            federation.faults = vec![
                (when(FactKind::Ran, successor, 20), lose(cluster, (StorageFate::Kept, false))),
                (when(FactKind::Absorbed, successor, 1), crash(successor, fate)),
            ];
            survives(&federation, coordinated(Coordination::Neighbours), &(cluster, successor, fate));
        }
    }
}

#[test]
fn the_partitions_of_a_lost_cluster_go_to_different_processes() {
    for cluster in 0..3 {
        let first = ProcessId(u32::from(cluster) * 2);
        let mut federation = federation(11);
        federation.faults = vec![(when(FactKind::Ran, first, 25), lose(cluster, (StorageFate::Lost, false)))];
        let ended = survives(&federation, coordinated(Coordination::Neighbours), &cluster);
        let absorbed = ended.facts.iter().filter(|it| matches!(it.fact, Fact::Absorbed(_)));
        let by: BTreeSet<ProcessId> = absorbed.map(|it| it.process).collect();
        assert_eq!(by.len(), 2, "cluster {cluster}: {by:?}");
    }
}

/// The new life of the coordinator knows neither the valid checkpoint nor where partitions run. The other processes
/// tell it.
#[test]
fn the_coordinator_fails_after_partitions_have_moved() {
    for lost in 0..RANKS {
        for next in 0..RANKS {
            let by = ProcessId((lost.max(next) + 1) % RANKS);
            let by = if by.0 == lost.min(next) { ProcessId((by.0 + 1) % RANKS) } else { by };
            let gone = |it| crash(ProcessId(it), (StorageFate::Kept, false));
            let mut federation = federation(12);
            // The coordinator fails while the partition moves, and again after it has moved. Then another process
            // fails.
            federation.faults = vec![
                (when(FactKind::Ran, by, 20), gone(lost)),
                (when(FactKind::RecoveryStarted, by, 1), crash(COORDINATOR, (StorageFate::Lost, true))),
                (when(FactKind::Ran, by, 40), crash(COORDINATOR, (StorageFate::Lost, true))),
                (when(FactKind::Ran, by, 50), gone(next)),
            ];
            if lost == next {
                federation.faults.pop();
            }
            let ended = survives(&federation, coordinated(Coordination::Neighbours), &(lost, next));
            // A partition moves again only if its process fails in turn.
            let absorbed = ended.facts.iter().filter_map(|it| match &it.fact {
                Fact::Absorbed(absorbed) => Some((absorbed.0, it.process)),
                _ => None,
            });
            let absorbed: BTreeSet<_> = absorbed.collect();
            for (partition, process) in &absorbed {
                let moved = absorbed.iter().filter(|it| it.0 == *partition);
                assert!(
                    moved.clone().count() == 1 || moved.clone().any(|it| it.1 == ProcessId(next)),
                    "{partition} at {process}: {absorbed:?}"
                );
            }
        }
    }
}

#[test]
fn processes_fail_permanently_until_one_is_left() {
    let mut federation = federation(7);
    let gone = |it: u32| {
        let fault = crash(ProcessId(it), (StorageFate::Kept, false));
        (when(FactKind::Ran, ProcessId(5), 10 + 9 * it + 2 * it * it), fault)
    };
    federation.faults = (0..5).map(gone).collect();
    // Replicas move with the partitions.
    let ended = survives(&federation, coordinated(Coordination::Neighbours), &"five of six");
    assert!(ended.count(FactKind::Absorbed) >= 5);
}

#[test]
fn a_storage_server_fails_and_then_a_process_that_needs_it() {
    let config =
        cck::Config { replicate_to: ReplicateTo::SharedStorage, ..coordinated(Coordination::Neighbours) };
    for (fact, occurrence) in
        [(FactKind::Saved, 2), (FactKind::Durable, 3), (FactKind::CheckpointCommitted, 1)]
    {
        for storage in [StorageFate::Kept, StorageFate::Lost] {
            let server = ProcessId(RANKS + 1);
            let mut federation = federation(8);
            federation.faults = vec![
                (when(fact, ProcessId(1), occurrence), crash(server, (storage, true))),
                (when(FactKind::Ran, ProcessId(0), 40), crash(ProcessId(0), (StorageFate::Lost, true))),
                (when(FactKind::Ran, ProcessId(5), 45), crash(ProcessId(5), (StorageFate::Lost, false))),
            ];
            survives(&federation, config.clone(), &(fact, storage));
        }
    }
}

#[test]
fn a_storage_server_never_returns() {
    let config =
        cck::Config { replicate_to: ReplicateTo::SharedStorage, ..coordinated(Coordination::Neighbours) };
    for (fact, occurrence) in
        [(FactKind::Saved, 2), (FactKind::Durable, 3), (FactKind::CheckpointCommitted, 1)]
    {
        for servers in [1, 2] {
            let mut federation = federation(8);
            let gone = |it| Fault::kill_permanently(ProcessId(RANKS + 1 + it), StorageFate::Lost);
            let first = when(fact, ProcessId(1), occurrence);
            federation.faults = (0..servers).map(|it| (first.clone(), gone(it))).collect();
            let late =
                (when(FactKind::Ran, ProcessId(0), 55), crash(ProcessId(0), (StorageFate::Lost, true)));
            federation.faults.push(late);
            let config = cck::Config { replicas: 1, ..config.clone() };
            let ended = survives(&federation, config, &(fact, servers));
            // The processes continue to take checkpoints, with replicas on the remaining server or on other ranks.
            let committed =
                ended.facts.iter().rev().find(|it| it.fact.kind() == FactKind::CheckpointCommitted);
            let last = ended.facts.last().expect("there are facts").at;
            assert!(committed.is_some_and(|it| last.since(it.at) < Span::from_millis(200)), "{fact:?}");
        }
    }
}

#[test]
fn cloth_survives_the_same_faults() {
    let task_time = Span::from_millis(2);
    let program = Flow::Cloth(Cloth { rows: 3, columns: 4, size: 3, iterations: 30, task_time });
    let plain = Federation { program, ..federation(9) };
    for fate in FATES {
        for faults in [
            vec![(when(FactKind::Ran, ProcessId(1), 70), crash(ProcessId(1), fate))],
            vec![(when(FactKind::Ran, ProcessId(4), 60), lose(2, fate))],
            vec![
                (when(FactKind::Saved, ProcessId(0), 2), crash(ProcessId(3), fate)),
                (when(FactKind::RecoveryStarted, ProcessId(1), 1), crash(COORDINATOR, fate)),
            ],
        ] {
            let federation = Federation { faults, ..plain.clone() };
            survives(&federation, coordinated(Coordination::Neighbours), &federation.faults);
        }
    }
}

#[test]
fn other_processes_take_part_in_a_re_execution() {
    let task_time = Span::from_millis(1);
    let program = Flow::Cloth(Cloth { rows: 6, columns: 10, size: 2, iterations: 12, task_time });
    let fault = crash(ProcessId(3), (StorageFate::Kept, true));
    let faults = vec![(when(FactKind::Ran, ProcessId(3), 200), fault)];
    let federation = Federation { program, faults, ..federation(10) };
    // Returns the number of tasks that other processes were asked to execute.
    let asked = |spread| {
        let config = coordinated(Coordination::Neighbours);
        let rerun = RerunOptions { spread, ..config.rerun };
        let config = cck::Config { rerun, interval: Span::from_millis(100), ..config };
        survives(&federation, config, &spread).messages.get("help").copied().unwrap_or(0)
    };
    assert_eq!(asked(false), 0);
    assert!(asked(true) > 20);
}

/// Returns a federation in which a cluster joins while the program runs, and a process that hosts a partition of this
/// cluster until the cluster joins.
fn joining(cluster: u16) -> (Federation, ProcessId) {
    let joins = Some((ClusterId(cluster), Span::from_millis(60)));
    let first = (u32::from(cluster) * 2 + 2) % RANKS;
    (Federation { joins, ..federation(13) }, ProcessId(first))
}

#[test]
fn the_partitions_of_a_cluster_that_joins_move_home() {
    for cluster in 0..3 {
        let (federation, _) = joining(cluster);
        let ended = survives(&federation, coordinated(Coordination::Neighbours), &cluster);
        let home = |it: &&Record| matches!(&it.fact, Fact::Absorbed(absorbed) if absorbed.0 == it.process);
        assert_eq!(ended.facts.iter().filter(home).count(), 2, "cluster {cluster}");
        assert_eq!(ended.count(FactKind::Ceded), 2, "cluster {cluster}");
        assert_eq!(ended.count(FactKind::RolledBack), 0, "cluster {cluster}: nothing failed");
    }
}

#[test]
fn processes_fail_while_partitions_move_home() {
    for (cluster, fate) in (0..3).flat_map(|it| FATES.map(|fate| (it, fate))) {
        let (plain, host) = joining(cluster);
        let joiners = [0, 1].map(|it| ProcessId(u32::from(cluster) * 2 + it));
        let moments = [
            when(FactKind::Ceded, host, 1),
            when(FactKind::RecoveryStarted, joiners[1], 1),
            when(FactKind::Absorbed, joiners[0], 1),
            when(FactKind::Saved, joiners[0], 1),
        ];
        for moment in moments {
            for fault in [crash(joiners[0], fate), crash(host, fate), lose(cluster, fate)] {
                for coordinator_fails in [false, true] {
                    let mut federation = plain.clone();
                    federation.faults = vec![(moment.clone(), fault.clone())];
                    if coordinator_fails {
                        federation.faults.push((moment.clone(), crash(COORDINATOR, fate)));
                    }
                    let what = (cluster, &moment, &fault, coordinator_fails);
                    survives(&federation, coordinated(Coordination::Neighbours), &what);
                }
            }
        }
    }
}

/// A cluster takes its storage with it, so no later recovery may need a checkpoint of which the cluster has a part. If
/// the coordinator fails as well, only the remaining processes can know which checkpoint is valid.
#[test]
fn processes_fail_as_soon_as_a_cluster_is_released() {
    for (cluster, failed) in (0..3).flat_map(|cluster| (0..RANKS).map(move |failed| (cluster, failed))) {
        if failed / 2 == u32::from(cluster) {
            continue;
        }
        let leaves = Some((ClusterId(cluster), Span::from_millis(60)));
        let released = when(FactKind::Released, COORDINATOR, 1);
        let processes = [COORDINATOR, ProcessId(failed)];
        let faults = processes.map(|it| (released.clone(), crash(it, (StorageFate::Kept, true)))).to_vec();
        let federation = Federation { leaves, faults, ..federation(14) };
        let config = cck::Config { replicas: 0, ..coordinated(Coordination::Neighbours) };
        let ended = survives(&federation, config, &(cluster, failed));
        assert_eq!(ended.count(FactKind::Left), 1, "cluster {cluster}");
    }
}
