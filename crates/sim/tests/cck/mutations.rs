//! Schedules that show a mutation of the coordinator that random schedules do not reach.

use std::panic::{AssertUnwindSafe, catch_unwind};

use faultline_core::fault::Outcome;
use faultline_core::{FactKind, Fault, ProcessId, Span, StorageFate, Trigger};
use faultline_dataflow::programs::Flow;
use faultline_dataflow::programs::jacobi::Jacobi;
use faultline_protocols::cck::{self, Cck, Coordination, Defect, Defects};

use crate::coordinated;
use crate::federation::Federation;

/// Returns whether a run completes with the expected result.
fn is_correct(federation: &Federation, defects: Defects) -> bool {
    let config = cck::Config { defects, ..coordinated(Coordination::Neighbours) };
    catch_unwind(AssertUnwindSafe(|| federation.run::<Cck>(config))).is_ok_and(|ended| {
        ended.outcome == Outcome::Completed && ended.digests().into_iter().eq([federation.expected()])
    })
}

fn crash(process: u32, returns: bool) -> Fault {
    Fault::Crash { process: ProcessId(process), storage: StorageFate::Kept, returns }
}

fn when(fact: FactKind, process: u32, occurrence: u32) -> Trigger {
    Trigger::When { fact, cluster: None, process: Some(ProcessId(process)), occurrence }
}

fn jacobi(rows: u32, columns: u32) -> Flow {
    Flow::Jacobi(Jacobi {
        rows,
        columns,
        size: 2,
        iterations: 30,
        test_every: 4,
        tolerance: 0.1,
        task_time: Span::from_millis(4),
    })
}

/// The partition of process 3 moves to process 4, and then that of process 2 moves to process 5. If both processes
/// failed at once, the partitions would move to the opposite processes. The coordinator then fails at the same time as
/// process 0, whose new life answers last, because it lists its storage first, and knows no map.
#[test]
fn a_restarted_coordinator_uses_the_newest_map() {
    let federations = (0..8).map(|seed| Federation {
        faults: vec![
            (when(FactKind::Ran, 1, 10), crash(3, false)),
            (when(FactKind::Ran, 1, 25), crash(2, false)),
            (when(FactKind::Ran, 1, 45), crash(0, true)),
            (when(FactKind::Ran, 1, 45), crash(6, true)),
        ],
        speeds: Some(vec![100; 6]),
        ..Federation::new(seed, vec![2, 2, 2], jacobi(3, 4))
    });
    let fails = |defects: Defects| federations.clone().filter(|it| !is_correct(it, defects)).count();
    assert_eq!(fails(Defects::default()), 0);
    let failed = fails(Defects::only(Defect::OlderMapUsed));
    println!("{failed}");
    assert!(failed > 0);
}
