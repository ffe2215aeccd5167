//! A bounded search finds each known defect.

use std::panic::{AssertUnwindSafe, catch_unwind};

use faultline_core::fault::Outcome;
use faultline_core::{ClusterId, FactKind, Fault, ProcessId, Span, StorageFate, Trigger};
use faultline_dataflow::programs::Flow;
use faultline_dataflow::programs::jacobi::Jacobi;
use faultline_protocols::cck::{self, Cck, Coordination, Defect, Defects};

use crate::federation::Federation;
use crate::{coordinated, seeds_or};

/// The effect that reveals a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Panic,
    Stall,
    Result,
    /// No state could be restored although no storage was lost and every process returned.
    Unrecoverable,
}

fn only(defect: Defect) -> cck::Config {
    cck::Config { defects: Defects::only(defect), ..coordinated(Coordination::Neighbours) }
}

/// Returns the effect of a defect on a run, if any.
fn shows(federation: &Federation, config: cck::Config) -> Option<Shows> {
    let Ok(ended) = catch_unwind(AssertUnwindSafe(|| federation.run::<Cck>(config))) else {
        return Some(Shows::Panic);
    };
    let keeps = |fault: &Fault| fault.storage_fate() != Some(StorageFate::Lost) && !fault.is_permanent();
    let is_right = ended.digests().iter().all(|it| *it == federation.expected());
    match ended.outcome {
        _ if !is_right => Some(Shows::Result),
        Outcome::Completed => None,
        Outcome::Unrecoverable { .. } => {
            federation.faults.iter().all(|it| keeps(&it.1)).then_some(Shows::Unrecoverable)
        }
        _ => Some(Shows::Stall),
    }
}

/// Returns the index of the first failing schedule, and how it fails.
fn first(schedules: impl Iterator<Item = Federation>, config: &cck::Config) -> Option<(usize, Shows)> {
    schedules.enumerate().find_map(|(place, it)| Some((place, shows(&it, config.clone())?)))
}

/// Number of schedules within which a defect must be found.
const BOUND: usize = 600;

fn random() -> impl Iterator<Item = Federation> {
    (0..).map(|seed| Federation::wide(seed, 3))
}

fn joining() -> impl Iterator<Item = Federation> {
    Federation::joining(0..)
}

#[test]
fn without_a_defect_there_is_no_violation() {
    let config = coordinated(Coordination::Neighbours);
    assert_eq!(first(random().take(200), &config), None);
    assert_eq!(first(joining().take(200), &config), None);
    assert_eq!(first(late_question(), &config), None);
    assert_eq!(first(second_failure(), &config), None);
}

#[test]
fn every_defect_is_found() {
    let mut unfound = Vec::new();
    for defect in Defect::ALL {
        let schedules: Box<dyn Iterator<Item = Federation>> = match defect {
            // The coordinator must be far from a partition that never sends to some of its senders.
            Defect::ContinuePerPing => Box::new(late_question()),
            Defect::JoinerStartsAtOnce | Defect::HomeFromInitialState => Box::new(joining().take(BOUND)),
            _ => Box::new(random().take(BOUND)),
        };
        let found = first(schedules, &only(*defect));
        println!("{defect:?}: {found:?}");
        if found.is_none() {
            unfound.push(*defect);
        }
    }
    assert_eq!(unfound, []);
}

/// Prints the share of random schedules that each defect breaks. `FAULTLINE_SEEDS=FROM,COUNT` selects the
/// schedules.
#[test]
#[ignore = "takes minutes; docs/cck.md contains its output"]
fn share_of_schedules_that_each_defect_breaks() {
    let (from, count) = seeds_or(0, 1000);
    for defect in Defect::ALL {
        let schedules: Box<dyn Iterator<Item = Federation>> = match defect {
            Defect::JoinerStartsAtOnce | Defect::HomeFromInitialState => {
                Box::new(Federation::joining(from..).take(count as usize))
            }
            _ => Box::new((from..from + count).map(|seed| Federation::wide(seed, 3))),
        };
        let broken = schedules.filter(|it| shows(it, only(*defect)).is_some()).count();
        println!("{defect:?}: {broken} of {count}");
    }
}

/// Returns federations with four blocks in a row. In the convergence test, the last two blocks send to the first, which
/// never sends to them. The first block therefore sends them questions, and they send it none. The coordinator is far
/// from the first block, so the first block asks only after the others have saved their states.
fn late_question() -> impl Iterator<Item = Federation> {
    (0..4).map(|seed| {
        let mut federation = row_of_four(seed);
        federation.far = Some((ClusterId(0), Span::from_millis(30)));
        federation
    })
}

fn row_of_four(seed: u64) -> Federation {
    let program = Flow::Jacobi(Jacobi {
        rows: 4,
        columns: 1,
        size: 2,
        iterations: 20,
        test_every: 1,
        tolerance: 0.1,
        task_time: Span::from_millis(10),
    });
    Federation { speeds: Some(vec![100; 4]), ..Federation::new(seed, vec![1, 3], program) }
}

#[test]
fn a_partition_that_counts_questions_resumes_before_a_late_question() {
    let found = first(late_question(), &only(Defect::ContinuePerPing));
    assert_eq!(found, Some((0, Shows::Stall)));
}

/// Returns federations in which a process fails, and its neighbour fails while the first process is being
/// restored. Both lack the values that the first process lost.
fn second_failure() -> impl Iterator<Item = Federation> {
    let moments = || (5..60).step_by(3).flat_map(|ran| (1..4).map(move |recovery| (ran, recovery)));
    moments().flat_map(|(ran, recovery)| (0..2).map(move |seed| (ran, recovery, seed))).map(
        |(ran, recovery, seed)| {
            let mut federation = row_of_four(seed);
            let fault = |process| Fault::crash(ProcessId(process));
            federation.faults = vec![
                (when(FactKind::Ran, 1, ran), fault(1)),
                (when(FactKind::RecoveryStarted, 2, recovery), fault(2)),
            ];
            federation
        },
    )
}

fn when(fact: FactKind, process: u32, occurrence: u32) -> Trigger {
    Trigger::When { fact, of: None, cluster: None, process: Some(ProcessId(process)), occurrence }
}

#[test]
fn losses_of_a_failure_persist_after_a_second_failure() {
    let found = first(second_failure(), &only(Defect::LossesOfFailedOnly));
    println!("{found:?}");
    assert!(found.is_some_and(|it| it.1 == Shows::Stall), "{found:?}");
}
