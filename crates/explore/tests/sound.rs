//! Tests that no protocol violates a property in small, completely explored state spaces.

use std::num::NonZero;

use faultline_api::resource::Family;
use faultline_explore::{Bounds, Ending, Exploration, Program, Storage, explore, federation, names};

const JOBS: NonZero<usize> = NonZero::new(2).unwrap();

fn explored(protocol: &str, (clusters, nodes): (u32, u32), program: &str, bounds: Bounds) -> Exploration {
    let federation = federation(protocol, clusters, nodes).unwrap();
    let program: Program = program.parse().unwrap();
    let exploration = explore(&federation, &program, bounds, None, JOBS, &mut |_| true).unwrap();
    let Exploration { extent, end } = &exploration;
    println!("{protocol}: {extent:?}");
    if let Ending::Found(it) = end {
        panic!("{protocol}: {:#?} {:#?}", it.violations(), it.steps);
    }
    exploration
}

/// Iterates over the protocols for applications of this family.
fn protocols(family: Family) -> impl Iterator<Item = &'static str> {
    let of_family = move |it: &&str| federation(it, 2, 1).unwrap().spec.application.family() == family;
    names().filter(of_family)
}

const ORDERLY: Bounds = Bounds {
    crashes: 1,
    timers: 1,
    overtakings: Some(0),
    storage: Storage::Any,
    permanent: false,
    states: 1_000_000,
};

#[test]
fn failures_at_every_step_of_an_orderly_run_are_survived() {
    for protocol in protocols(Family::Messages) {
        let Exploration { extent, end } = explored(protocol, (2, 1), "0>1,1>0", ORDERLY);
        assert!(matches!(end, Ending::Exhausted), "{end:?}");
        assert!(extent.runs > 50, "{extent:?}");
    }
}

/// Covers ranks that exchange no messages, and clusters with several members.
#[test]
fn orderly_runs_of_clusters_of_two_are_survived() {
    let bounds = Bounds { crashes: 0, timers: 2, ..ORDERLY };
    for protocol in protocols(Family::Messages) {
        let Exploration { extent, end } = explored(protocol, (2, 2), "0>2,2>0", bounds);
        assert!(matches!(end, Ending::Exhausted), "{end:?}");
        assert!(extent.runs > 5, "{extent:?}");
    }
}

/// A failed process returns, or other processes take over its tasks.
#[test]
fn failures_at_every_step_of_a_program_of_tasks_are_survived() {
    let bounds = Bounds { permanent: true, ..ORDERLY };
    for protocol in protocols(Family::Tasks) {
        let Exploration { extent, end } = explored(protocol, (2, 1), "0>1", bounds);
        assert!(matches!(end, Ending::Exhausted), "{end:?}");
        assert!(extent.runs > 50 && extent.runs > extent.unknown, "{extent:?}");
    }
}

/// A protocol, the numbers of clusters and of nodes per cluster, and the messages between them.
type Larger = (&'static str, (u32, u32), &'static str);

fn larger_federations() -> impl Iterator<Item = Larger> {
    names().flat_map(|protocol| [(protocol, (2, 2), "0>2,2>0"), (protocol, (3, 1), "0>1,1>2")])
}

fn takes_long(&(protocol, shape, _): &Larger) -> bool {
    protocol == "cck" || (protocol, shape) == ("hc3i", (2, 2))
}

fn larger_bounds(protocol: &str) -> Bounds {
    let permanent = protocols(Family::Tasks).any(|it| it == protocol);
    Bounds { permanent, states: 2_000_000, ..ORDERLY }
}

/// At least one rank never fails permanently, even if a second failure occurs before the supervisor detects the first.
#[test]
fn not_all_ranks_of_a_program_of_tasks_fail_permanently() {
    let bounds =
        Bounds { crashes: 2, timers: 0, storage: Storage::Kept, permanent: true, states: 20_000, ..ORDERLY };
    let Exploration { extent, .. } = explored("cck", (2, 1), "0>1", bounds);
    assert!(extent.states >= bounds.states, "{extent:?}");
}

/// The only process that knows the result may fail after all its tasks are part of a checkpoint.
#[test]
fn two_failures_of_a_planned_program_are_survived() {
    let bounds = Bounds { crashes: 2, timers: 0, storage: Storage::Kept, permanent: true, ..ORDERLY };
    let Exploration { extent, end } = explored("cck", (2, 1), "0>1", bounds);
    assert!(matches!(end, Ending::Exhausted), "{end:?}");
    assert!(extent.runs > extent.unknown, "{extent:?}");
}

/// Covers all orders of all steps.
#[test]
fn failures_are_survived_in_every_order_of_steps() {
    let bounds = Bounds { overtakings: None, timers: 0, storage: Storage::Kept, ..ORDERLY };
    for protocol in
        ["hydee", "fullLogging", "spbc", "coordinated", "chandyLamport", "hierarchicalCoordinated"]
    {
        let Exploration { extent, end } = explored(protocol, (2, 1), "0>1,1>0", bounds);
        assert!(matches!(end, Ending::Exhausted), "{end:?}");
        assert!(!extent.is_bounded && extent.runs > 10, "{extent:?}");
    }
}

#[test]
#[ignore = "takes minutes: run on request, after a change of the search (docs/explore.md)"]
fn millions_of_states_are_visited() {
    let bounds = Bounds { overtakings: Some(3), states: 100_000_000, ..ORDERLY };
    let Exploration { end, .. } = explored("hydee", (2, 1), "0>1,1>0", bounds);
    assert!(matches!(end, Ending::Exhausted), "{end:?}");
    for (protocol, shape, program) in larger_federations().filter(takes_long) {
        let Exploration { end, .. } = explored(protocol, shape, program, larger_bounds(protocol));
        assert!(matches!(end, Ending::Exhausted), "{end:?}");
    }
}

mod long {
    use super::*;

    /// Covers replicas and alerts among three clusters, and failures of one of several members.
    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn failures_in_larger_federations_are_survived() {
        for (protocol, shape, program) in larger_federations().filter(|it| !takes_long(it)) {
            let Exploration { extent, end } = explored(protocol, shape, program, larger_bounds(protocol));
            assert!(matches!(end, Ending::Exhausted), "{end:?}");
            assert!(extent.runs > 100 && extent.unknown == 0, "{extent:?}");
        }
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn one_overtaken_step_is_survived() {
        let bounds = Bounds { overtakings: Some(1), ..ORDERLY };
        for protocol in ["hydee", "spbc", "coordinated", "chandyLamport", "hierarchicalCoordinated"] {
            let Exploration { end, .. } = explored(protocol, (2, 1), "0>1,1>0", bounds);
            assert!(matches!(end, Ending::Exhausted), "{end:?}");
        }
    }
}
