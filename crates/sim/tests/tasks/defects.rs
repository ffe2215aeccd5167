//! A bounded number of random or directed schedules reveals each known defect.

use std::panic::{AssertUnwindSafe, catch_unwind};

use faultline_core::fault::StorageFault;
use faultline_core::{Chunk, Digest, FactKind, Fault, ProcessId, Span, StorageFate, Target, Trigger};
use faultline_dataflow::program::{chunk, digest};
use faultline_dataflow::programs::Flow;
use faultline_dataflow::programs::fibonacci::Fibonacci;
use faultline_dataflow::{Call, Data, Frame, Op, Program, Use, reference};
use faultline_protocols::placement::ReplicateTo;
use faultline_protocols::satin;
use faultline_protocols::theft::{Defect, Defects, TaskRecovery};

use crate::evidence::{owned_twice, sent_too_early};
use crate::federation::{Ended, Federation};
use crate::{sel, tic};

/// The effect that reveals a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Panic,
    Stall,
    Result,
    Early,
    Twice,
}

/// Returns the index of the first failing schedule, and how it fails.
fn first(
    schedules: impl Iterator<Item = Federation>,
    run: impl Fn(&Federation) -> Ended,
) -> Option<(usize, Shows)> {
    schedules.enumerate().find_map(|(index, federation)| {
        let Ok(ended) = catch_unwind(AssertUnwindSafe(|| run(&federation))) else {
            return Some((index, Shows::Panic));
        };
        let expected = federation.expected();
        let shows = if ended.digests.iter().any(|it| *it != expected) {
            Shows::Result
        } else if !ended.is_right(expected) {
            Shows::Stall
        } else if !sent_too_early(&ended.facts).is_empty() {
            Shows::Early
        } else if owned_twice(&ended.facts).is_some_and(|it| !it.is_empty()) {
            Shows::Twice
        } else {
            return None;
        };
        Some((index, shows))
    })
}

#[test]
fn without_a_defect_there_is_no_violation() {
    for config in [tic, sel] {
        let clean = |it: &Federation| it.run::<TaskRecovery>(config(it, Defects::default()));
        assert_eq!(first(random().take(300), clean), None);
        assert_eq!(first(successor_restarts(), clean), None);
    }
}

#[test]
fn every_defect_of_tic_and_sel_is_found() {
    let mut unfound = Vec::new();
    // The first of these defects has its own schedules. Only a bound on lost work, which is not judged here, detects
    // the second.
    let others = [Defect::LogOutOfOrder, Defect::StorageUnfenced];
    let of_random = Defect::ALL.iter().filter(|it| !others.contains(it));
    for defect in of_random {
        let defects = Defects::only(*defect);
        let config = if defect.is_of_logs() { sel } else { tic };
        let schedules: Box<dyn Iterator<Item = Federation>> = match defect {
            // This defect requires an order of events that random schedules rarely produce.
            Defect::HereAlone => Box::new(successor_restarts()),
            _ => Box::new(random().take(BOUND)),
        };
        let found = first(schedules, |it| it.run::<TaskRecovery>(config(it, defects)));
        println!("{defect:?}: {found:?}");
        if found.is_none() {
            unfound.push(*defect);
        }
    }
    assert_eq!(unfound, []);
}

#[test]
fn every_defect_of_satin_is_found() {
    // Lookups in the table change no result: see `results_of_orphans_save_work`.
    for defect in satin::Defect::ALL.iter().filter(|it| **it != satin::Defect::NoLookup) {
        let config = satin::Config { defects: satin::Defects::only(*defect) };
        let found = random()
            .take(BOUND)
            .position(|federation| !federation.run::<satin::Satin>(config).is_right(federation.expected()));
        println!("{defect:?}: {found:?}");
        assert!(found.is_some(), "{defect:?}");
    }
}

/// The number of schedules within which a defect must be found.
const BOUND: usize = 3000;

fn random() -> impl Iterator<Item = Federation> {
    (0..).map(|seed| Federation::random(seed, 3))
}

fn three() -> Federation {
    let task_time = Span::from_millis(5);
    Federation::new(1, vec![1, 1, 1], Flow::Fibonacci(Fibonacci { n: 14, threshold: 5, task_time }))
}

fn when(fact: FactKind, process: u32, occurrence: u32) -> Trigger {
    Trigger::When { fact, of: None, cluster: None, process: Some(ProcessId(process)), occurrence }
}

fn crash(process: u32, returns: bool) -> Fault {
    Fault::Kill {
        target: Target::Process(ProcessId(process)),
        storage: StorageFate::Kept,
        returns,
        repair: None,
    }
}

#[test]
fn a_segment_counts_as_durable_only_after_all_earlier_ones() {
    let schedules = || {
        let moments = (10..120).step_by(3).flat_map(|saved| (1..12).map(move |shipped| (saved, shipped)));
        moments.map(|(saved, shipped)| {
            let faults = vec![
                // The process's storage is briefly full, so a segment of its log is missing.
                (when(FactKind::Saved, 0, saved), full(0, Span::from_millis(1))),
                (when(FactKind::Shipped, 0, shipped), crash(0, true)),
            ];
            // No holder has the missing segment.
            Federation { faults, copies: (0, ReplicateTo::OtherCluster), ..three() }
        })
    };
    let found = |defects| first(schedules(), |it| it.run::<TaskRecovery>(sel(it, defects)));
    assert_eq!(found(Defects::default()), None);
    let (schedule, shows) = found(Defects::only(Defect::LogOutOfOrder)).expect("a gap breaks the log");
    println!("schedule {schedule}: {shows:?}");
}

/// Returns federations in which a process fails permanently right after it has stolen a task. Its successor fails after
/// one of its writes: in some federations, after the absorbed state has become part of its own durable state, but
/// before it has reported the fate of that task.
fn successor_restarts() -> impl Iterator<Item = Federation> {
    let moments = || (1..8).flat_map(|taken| (1..80).map(move |durable| (taken, durable)));
    (0..6).flat_map(move |more| moments().map(move |(taken, durable)| (more, taken, durable))).map(
        |(more, taken, durable)| {
            let faults = vec![
                (when(FactKind::Taken, 0, taken), crash(0, false)),
                (when(FactKind::Durable, 1, durable), crash(1, true)),
            ];
            Federation { faults, seed: three().seed + more, ..three() }
        },
    )
}

/// Returns federations in which a process fails after it has run some tasks: other processes know the bounds
/// that these tasks published, but the tasks' outcomes are not durable.
fn leaf_lost() -> impl Iterator<Item = Federation> {
    (0..3).flat_map(|process| (4..40).map(move |ran| (process, ran))).map(|(process, ran)| {
        let faults = vec![
            (when(FactKind::Ran, process, ran - 3), full(process, Span::from_millis(100))),
            (when(FactKind::Ran, process, ran), crash(process, true)),
        ];
        Federation { faults, ..three() }
    })
}

fn full(process: u32, span: Span) -> Fault {
    Fault::storage(ProcessId(process), StorageFault::Full, span)
}

/// A search for the smallest of several numbers. It prunes numbers greater than the smallest one known so far. With
/// `prunes_equal`, it also prunes numbers equal to that one, like the algorithm in most papers on branch and bound.
#[derive(Clone, Copy, Debug)]
struct Least {
    numbers: u64,
    prunes_equal: bool,
}

impl Program for Least {
    fn main(&self, frame: &mut Frame) -> Data {
        let least = frame.data();
        for it in 0..self.numbers {
            frame.spawn(0, &[it], &[Use::Gather(least, Op::Least)]);
        }
        least
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        let number = (call.args[0] + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let is_pruned = if self.prunes_equal { number >= frame.hint() } else { number > frame.hint() };
        if !is_pruned {
            frame.publish(number);
            frame.put(0, chunk(&[number]));
        }
    }

    fn cost(&self, _: &Call) -> Span {
        Span::from_millis(5)
    }

    fn digest(&self, result: &Chunk) -> Digest {
        digest(result)
    }
}

#[test]
fn a_search_that_prunes_values_equal_to_the_bound_loses_the_optimum() {
    for config in [tic, sel] {
        let is_right = |federation: &Federation, prunes_equal| {
            let program = Least { numbers: 60, prunes_equal };
            let expected = reference(&program).0;
            let config = config(federation, Defects::default());
            federation.run_program::<TaskRecovery, _>(program, config).is_right(expected)
        };
        assert!(random().take(100).chain(leaf_lost()).all(|it| is_right(&it, false)));
        assert!(
            leaf_lost().any(|it| !is_right(&it, true)),
            "the bound of a lost leaf prunes its re-execution"
        );
    }
}
