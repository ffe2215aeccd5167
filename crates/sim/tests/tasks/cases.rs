//! The cases of the proof in the paper by Jafar, Krings and Gautier (section 4.2), one by one, and the paper's other
//! claims.

use std::collections::BTreeSet;

use faultline_core::fault::Outcome;
use faultline_core::{
    ClusterId, Fact, FactKind, Fault, Life, ProcessId, Span, StorageFate, Target, Theft, TheftStep, Time,
    Trigger, Witness,
};
use faultline_dataflow::programs::Flow;
use faultline_dataflow::programs::fibonacci::Fibonacci;
use faultline_protocols::placement::ReplicateTo;
use faultline_protocols::satin;
use faultline_trace::Record;

use crate::evidence::{owned_twice, sent_too_early};
use crate::federation::{Ended, Federation};
use crate::{PROTOCOLS, Protocol, TAU};

const TASK: Span = Span::from_millis(5);

/// The possible fates of a failed process: the fate of its storage, and whether the process returns.
const FATES: [(StorageFate, bool); 4] = [
    (StorageFate::Kept, true),
    (StorageFate::Lost, true),
    (StorageFate::Kept, false),
    (StorageFate::Lost, false),
];

fn federation(seed: u64, clusters: &[u32]) -> Federation {
    let program = Flow::Fibonacci(Fibonacci { n: 14, threshold: 5, task_time: TASK });
    let mut federation = Federation::new(seed, clusters.to_vec(), program);
    federation.speeds = Some(vec![100; federation.ranks() as usize]);
    federation
}

fn crash(process: ProcessId, (storage, returns): (StorageFate, bool)) -> Fault {
    Fault::Kill { target: Target::Process(process), storage, returns, repair: None }
}

fn lose(cluster: u16, (storage, returns): (StorageFate, bool)) -> Fault {
    Fault::Kill { target: Target::Cluster(ClusterId(cluster)), storage, returns, repair: None }
}

fn when(fact: FactKind, process: Option<ProcessId>, occurrence: u32) -> Trigger {
    Trigger::When { fact, of: None, cluster: None, process, occurrence }
}

/// Runs a federation, and asserts that every fault is injected and that the result is correct. Returns the
/// ended run.
#[track_caller]
fn survives(federation: &Federation, protocol: Protocol, what: &dyn std::fmt::Debug) -> Ended {
    let ended = protocol.run(federation);
    let injected: BTreeSet<_> = (ended.facts.iter())
        .filter_map(|it| if let Fact::Injecting { no, .. } = it.fact { Some(no) } else { None })
        .collect();
    assert_eq!(injected.len(), federation.faults.len(), "{protocol:?}, {what:?}: every fault is injected");
    assert_eq!(ended.outcome, Outcome::Completed, "{protocol:?}, {what:?}");
    assert!(ended.is_right(federation.expected()), "{protocol:?}, {what:?}: {:?}", ended.digests);
    if protocol != Protocol::Satin {
        assert_eq!(sent_too_early(&ended.facts), [], "{protocol:?}, {what:?}");
        assert_eq!(owned_twice(&ended.facts).unwrap_or_default(), [], "{protocol:?}, {what:?}");
    }
    ended
}

fn begun(facts: &[Record]) -> Time {
    facts.iter().find(|it| matches!(it.fact, Fact::Begun)).expect("the application begins").at
}

/// Returns a trigger for the moment at which the given step of a theft occurs in a run without faults.
fn trigger(facts: &[Record], of: Theft, wanted: TheftStep) -> Trigger {
    let is_it = |record: &Record, of: Option<Theft>| matches!(record.fact, Fact::Theft { theft, step, .. } if step == wanted && of.is_none_or(|it| it == theft));
    let found = facts.iter().find(|it| is_it(it, Some(of))).expect("the theft has every step");
    let before = facts.iter().take_while(|it| !std::ptr::eq(*it, found));
    let occurrence = before.filter(|it| it.process == found.process && is_it(it, None)).count() as u32 + 1;
    when(wanted.kind(), Some(found.process), occurrence)
}

#[test]
fn thief_victim_or_both_fail_at_each_message_of_a_theft() {
    let mut runs = 0;
    for protocol in PROTOCOLS {
        let plain = federation(1, &[1, 1, 1]);
        let facts = protocol.run(&plain).facts;
        let merged: Vec<Theft> = facts
            .iter()
            .filter_map(|it| match it.fact {
                Fact::Theft { theft, step: TheftStep::Forgotten, .. } => Some(theft),
                _ => None,
            })
            .collect();
        for theft in [merged[1], merged[merged.len() / 2]] {
            let lent = facts.iter().find(
                |it| matches!(it.fact, Fact::Theft { theft: of, step: TheftStep::Lent, .. } if of == theft),
            );
            // At about this moment, the request is halfway between the two clusters.
            let asked = lent.expect("the task was lent").at.since(begun(&facts)).0 - 1_000_000;
            let steps = [
                TheftStep::Lent,
                TheftStep::Shipped,
                TheftStep::Taken,
                TheftStep::Done,
                TheftStep::Returned,
                TheftStep::Merged,
                TheftStep::Receipted,
                TheftStep::Forgotten,
            ];
            let mut moments = vec![Trigger::At(Time(asked))];
            moments.extend(steps.into_iter().map(|step| trigger(&facts, theft, step)));
            for moment in moments {
                for failed in [vec![theft.thief], vec![theft.victim], vec![theft.thief, theft.victim]] {
                    for fate in FATES {
                        let mut federation = plain.clone();
                        let faults = failed.iter().map(|it| (moment.clone(), crash(*it, fate)));
                        federation.faults = faults.collect();
                        survives(&federation, protocol, &(&moment, &failed, fate));
                        runs += 1;
                    }
                }
            }
        }
    }
    assert_eq!(runs, 3 * 2 * 9 * 3 * 4);
}

#[test]
fn a_storage_server_fails_and_then_a_process_that_needs_it() {
    for protocol in [Protocol::Tic, Protocol::Sel] {
        for (fact, occurrence) in [(FactKind::Saved, 3), (FactKind::Durable, 8), (FactKind::Shipped, 4)] {
            for fate in FATES {
                let mut federation = federation(2, &[2, 1]);
                federation.copies = (2, ReplicateTo::SharedStorage);
                let server = ProcessId(federation.ranks());
                federation.faults = vec![
                    (when(fact, None, occurrence), crash(server, fate)),
                    (when(FactKind::Ran, None, 60), crash(ProcessId(0), (StorageFate::Lost, true))),
                    (when(FactKind::Ran, None, 80), crash(ProcessId(2), (StorageFate::Lost, false))),
                ];
                let ended = survives(&federation, protocol, &(fact, fate));
                assert!(ended.absorbed == 1 && ended.restored > 0);
            }
        }
    }
}

#[test]
fn processes_that_join_late_start_without_tasks_and_steal() {
    for protocol in PROTOCOLS {
        let mut federation = federation(3, &[1, 2]);
        federation.joins = vec![(ClusterId(1), Span::from_millis(40))];
        for faults in [
            vec![],
            vec![(
                when(FactKind::Ran, Some(ProcessId(1)), 3),
                crash(ProcessId(1), (StorageFate::Lost, true)),
            )],
            vec![(
                when(FactKind::Ran, Some(ProcessId(2)), 3),
                crash(ProcessId(2), (StorageFate::Kept, false)),
            )],
        ] {
            federation.faults = faults;
            let ended = survives(&federation, protocol, &federation.faults);
            for process in [ProcessId(1), ProcessId(2)] {
                let mut own = ended.facts.iter().filter(|it| it.process == process && it.life == Life(1));
                let ran = own.find(|it| matches!(it.fact, Fact::Ran { .. })).expect("it runs a task");
                assert!(ran.at >= begun(&ended.facts) + Span::from_millis(40));
            }
        }
    }
}

#[test]
fn the_first_process_fails_permanently_before_others_join() {
    for protocol in PROTOCOLS {
        let mut federation = federation(4, &[1, 1, 1]);
        federation.joins = vec![(ClusterId(1), Span::from_millis(150))];
        // The next rank has not joined yet: the rank after it takes over, and keeps what it absorbed.
        let fate = (StorageFate::Lost, false);
        federation.faults = vec![(when(FactKind::Ran, Some(ProcessId(0)), 10), crash(ProcessId(0), fate))];
        let ended = survives(&federation, protocol, &"the root");
        let successors = ended.facts.iter().filter(|it| matches!(it.fact, Fact::Absorbed(_)));
        assert_eq!(successors.map(|it| it.process).collect::<Vec<_>>(), [ProcessId(2)], "{protocol:?}");
    }
}

#[test]
fn survivors_absorb_a_permanently_lost_cluster() {
    for protocol in PROTOCOLS {
        let plain = federation(5, &[2, 2, 2]);
        let half = Time(protocol.run(&plain).ended.0 / 2);
        for cluster in 0..3 {
            let mut federation = plain.clone();
            let lost = (Trigger::At(half), lose(cluster, (StorageFate::Lost, false)));
            federation.faults = vec![lost.clone()];
            let ended = survives(&federation, protocol, &cluster);
            if protocol != Protocol::Satin {
                assert_eq!(ended.absorbed, 2, "{protocol:?}");
            }
            if protocol == Protocol::Satin && cluster != 0 {
                continue;
            }
            // The successor also fails.
            let absorbed = ended.facts.iter().find(|it| matches!(it.fact, Fact::Absorbed(_)));
            let successor = absorbed.expect("a process takes over").process;
            for fate in FATES {
                let again = (when(FactKind::Absorbed, Some(successor), 1), crash(successor, fate));
                federation.faults = vec![lost.clone(), again];
                survives(&federation, protocol, &(cluster, successor, fate));
            }
        }
    }
}

#[test]
fn a_process_fails_again_once_it_is_restored() {
    for protocol in PROTOCOLS {
        for process in [ProcessId(0), ProcessId(1)] {
            for fate in FATES {
                let mut federation = federation(6, &[1, 1, 1]);
                federation.faults = vec![
                    (when(FactKind::Ran, Some(process), 10), crash(process, (StorageFate::Lost, true))),
                    (when(FactKind::Restored, Some(process), 1), crash(process, fate)),
                ];
                survives(&federation, protocol, &(process, fate));
            }
        }
    }
}

#[test]
fn a_state_moves_to_a_cluster_with_a_different_speed() {
    for protocol in [Protocol::Tic, Protocol::Sel] {
        let mut federation = federation(7, &[2, 2]);
        federation.speeds = Some(vec![100, 100, 25, 40]);
        federation.faults = vec![(when(FactKind::Ran, None, 150), lose(0, (StorageFate::Lost, false)))];
        let ended = survives(&federation, protocol, &"the fast cluster");
        let moved: Vec<(ProcessId, Witness)> = (ended.facts.iter())
            .filter_map(|it| if let Fact::Absorbed(of) = &it.fact { Some((it.process, of.2)) } else { None })
            .collect();
        assert_eq!(moved.len(), 2);
        assert!(moved.iter().all(|(successor, _)| successor.0 >= 2));
        assert!(moved.iter().any(|(_, witness)| witness.delivered != 0), "tasks had been run there");
    }
}

/// Returns the additional work compared with a run without faults, in nanoseconds.
fn loss(ended: &Ended, plain: &Ended) -> u64 {
    let work = |ended: &Ended| -> u64 {
        let cost = |it: &Record| if let Fact::Ran { cost_us, .. } = it.fact { cost_us.into() } else { 0 };
        ended.facts.iter().map(cost).sum()
    };
    work(ended).saturating_sub(work(plain)) * 1000
}

#[test]
fn lost_work_grows_with_time_under_satin_and_is_bounded_under_tic_and_sel() {
    for protocol in PROTOCOLS {
        let mut plain = federation(8, &[2, 2]);
        plain.program = Flow::Fibonacci(Fibonacci { n: 17, threshold: 5, task_time: TASK });
        let without = protocol.run(&plain);
        let span = without.ended.since(begun(&without.facts)).0;
        let losses = [1, 2, 3].map(|quarter| {
            let mut federation = plain.clone();
            let fault = crash(ProcessId(0), (StorageFate::Lost, true));
            federation.faults = vec![(Trigger::At(Time(span / 4 * quarter)), fault)];
            loss(&survives(&federation, protocol, &quarter), &without)
        });
        // The bound for two cores: under TIC, twice the sum of tau, a task and a write; under SEL, twice the sum of a
        // task and a write of the log.
        let write = Span::from_millis(20).0;
        match protocol {
            Protocol::Tic => {
                assert!(losses.iter().all(|it| *it <= 2 * (TAU.0 + TASK.0 + write)), "{losses:?}")
            }
            Protocol::Sel => assert!(losses.iter().all(|it| *it <= 2 * (TASK.0 + write)), "{losses:?}"),
            Protocol::Satin => {
                assert!(losses[0] < losses[1] && losses[1] < losses[2], "{losses:?}");
                assert!(losses[2] > 10 * (TAU.0 + TASK.0), "{losses:?}");
            }
        }
    }
}

#[test]
fn results_of_orphans_save_work() {
    let defects = satin::Defects::only(satin::Defect::NoLookup);
    let (mut with, mut without) = (0, 0);
    for seed in 0..10 {
        let mut federation = federation(seed, &[2, 2, 2]);
        let fault = crash(ProcessId(0), (StorageFate::Lost, false));
        federation.faults = vec![(when(FactKind::Ran, None, 120), fault)];
        let ran = |ended: Ended| ended.facts.iter().filter(|it| matches!(it.fact, Fact::Ran { .. })).count();
        with += ran(survives(&federation, Protocol::Satin, &seed));
        without += ran(federation.run::<satin::Satin>(satin::Config { defects }));
    }
    assert!(with + 100 < without, "{with} tasks with the table, {without} without");
}
