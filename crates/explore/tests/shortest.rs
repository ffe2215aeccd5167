//! Tests that the exploration finds known defects, each with a shortest run.

use faultline_catalog::Defect;
use faultline_checker::Property;
use faultline_explore::{Bounds, Counterexample, Ending, Exploration, Program, Storage, explore, federation};

/// Returns the shortest run that violates a property, the smallest bound on overtakings within which it
/// exists, and the number of states visited.
fn shortest(defect: &str, nodes: u32, program: &str, bounds: Bounds) -> Option<(u32, u64, Counterexample)> {
    let defect: Defect = defect.parse().unwrap();
    let federation = federation(defect.protocol(), 2, nodes).unwrap();
    let program: Program = program.parse().unwrap();
    let mut states = 0;
    for overtakings in 0..=bounds.overtakings.unwrap() {
        let bounds = Bounds { overtakings: Some(overtakings), ..bounds };
        let Exploration { extent, end } =
            explore(&federation, &program, bounds, Some(defect), &mut |_| true).unwrap();
        states += extent.states;
        match end {
            Ending::Found(found) => return Some((overtakings, states, *found)),
            Ending::Exhausted => {}
            _ => return None,
        }
    }
    None
}

/// Messages acknowledged at the restored SN itself must be re-sent, which the paper's rule omits.
#[test]
fn the_printed_rule_for_re_sending_has_a_shortest_run() {
    let bounds = Bounds {
        crashes: 1,
        timers: 1,
        overtakings: Some(1),
        storage: Storage::Kept,
        permanent: false,
        states: 300_000,
    };
    let (overtakings, _, found) = shortest("resend-greater", 1, "0>1", bounds).expect("the defect is found");
    assert!(found.violated().contains(&Property::NoLoss), "{:?}", found.violations());
    println!("{overtakings} overtaken, {:#?}", found.steps);
    assert!(found.steps.len() <= 60, "{:#?}", found.steps);
    let (_, _, again) = shortest("resend-greater", 1, "0>1", bounds).unwrap();
    assert_eq!((again.steps, again.trace), (found.steps, found.trace), "the search is deterministic");
}

/// Prints, for every defect of `SURVEY_PROTOCOL` (default: hc3i), whether it is found with `SURVEY_NODES`
/// nodes per cluster.
#[test]
#[ignore = "takes minutes"]
fn survey() {
    let setting = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let number = |name: &str, default: &str| -> u32 { setting(name, default).parse().unwrap() };
    let nodes = number("SURVEY_NODES", "1");
    let program = setting("SURVEY_PROGRAM", "0>1,1>0");
    let (crashes, timers) = (number("SURVEY_CRASHES", "1"), number("SURVEY_TIMERS", "1"));
    let overtakings = Some(number("SURVEY_OVERTAKINGS", "1"));
    let states = number("SURVEY_STATES", "300000").into();
    let bounds = Bounds { crashes, timers, overtakings, storage: Storage::Any, permanent: false, states };
    let (protocol, mutations) = (setting("SURVEY_PROTOCOL", "hc3i"), setting("SURVEY_MUTATIONS", ""));
    let of = Defect::all().filter(|it| it.protocol() == protocol && mutations.is_empty());
    let listed = mutations.split(',').filter(|it| !it.is_empty()).map(|it| it.parse().unwrap());
    for defect in of.chain(listed) {
        let found = shortest(&defect.to_string(), nodes, &program, bounds);
        match found {
            Some((overtakings, states, it)) => {
                let (steps, violated) = (it.steps.len(), it.violated());
                println!("{defect}: {overtakings} overtaken, {steps} steps, {states} states: {violated:?}");
            }
            None => println!("{defect}: not found"),
        }
    }
}
