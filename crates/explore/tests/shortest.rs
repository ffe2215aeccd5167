//! Tests that the exploration finds known defects, each with a shortest run. The tables of `docs/explore.md` are the
//! test data.

use std::num::NonZero;

use faultline_api::Federation;
use faultline_api::resource::{ApplicationSpec, Family};
use faultline_catalog::Defect;
use faultline_checker::Property;
use faultline_explore::{
    Bounds, Counterexample, Ending, Exploration, Program, Storage, explore, federation, names,
};

const PAGE: &str = include_str!("../../../docs/explore.md");

/// A search for a defect, and its result as `docs/explore.md` states it.
struct Row {
    defect: Defect,
    federation: Federation,
    program: Program,
    bounds: Bounds,
    steps: usize,
    states: u64,
    violated: String,
}

/// The maximum number of states that a search in the ordinary tests visits.
const SMALL: u64 = 10_000;

/// Reads the rows of the tables of defects.
fn rows() -> Vec<Row> {
    let is_row = |it: &&str| it.starts_with("| `") && it.split('|').count() == 12;
    let rows: Vec<Row> = PAGE.lines().filter(is_row).map(row).collect();
    assert!(rows.len() > 80, "the page has {} rows", rows.len());
    rows
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.split('|').map(|it| it.trim().trim_matches('`')).collect();
    let [_, defect, clusters, program, crashes, timers, overtakings, storage, steps, states, violated, _] =
        cells[..]
    else {
        panic!("{line}");
    };
    let defect: Defect = defect.parse().unwrap();
    let number = |text: &str| -> u32 { text.replace(',', "").parse().unwrap_or_else(|_| panic!("{line}")) };
    let (clusters, nodes) = clusters.split_once('×').unwrap_or_else(|| panic!("{line}"));
    let mut federation = federation(defect.protocol(), number(clusters), number(nodes)).unwrap();
    let is_tasks = federation.spec.application.family() == Family::Tasks;
    match (&mut federation.spec.application, program.split_once(' ')) {
        (ApplicationSpec::Fibonacci(it), Some(("fibonacci", n))) => it.n = Some(number(n)),
        (ApplicationSpec::Jacobi(it), Some(("testEvery", every))) => it.test_every = Some(number(every)),
        (ApplicationSpec::Jacobi(_), None) => assert_eq!(program, "jacobi", "{line}"),
        (_, None) => assert!(!is_tasks, "{line}"),
        _ => panic!("{line}"),
    }
    let bounds = Bounds {
        crashes: number(crashes),
        timers: number(timers),
        overtakings: Some(number(overtakings)),
        storage: match storage {
            "kept" => Storage::Kept,
            "lost" => Storage::Lost,
            "any" => Storage::Any,
            _ => panic!("{line}"),
        },
        permanent: is_tasks,
        states: 5_000_000,
    };
    let program = if is_tasks { "0>1" } else { program }.parse().unwrap();
    let (steps, states) = (number(steps) as usize, number(states).into());
    Row { defect, federation, program, bounds, steps, states, violated: violated.replace('`', "") }
}

impl Row {
    /// Returns the shortest run that violates a property, the smallest bound on overtakings within which it exists, and
    /// the number of states visited.
    fn shortest(&self, jobs: usize) -> Option<(u32, u64, Counterexample)> {
        let jobs = NonZero::new(jobs).unwrap();
        let mut states = 0;
        for overtakings in 0..=self.bounds.overtakings.unwrap() {
            let bounds = Bounds { overtakings: Some(overtakings), ..self.bounds };
            let Exploration { extent, end } =
                explore(&self.federation, &self.program, bounds, Some(self.defect), jobs, &mut |_| true)
                    .unwrap();
            states += extent.states;
            match end {
                Ending::Found(found) => return Some((overtakings, states, *found)),
                Ending::Exhausted => {}
                _ => return None,
            }
        }
        None
    }

    /// Returns what differs from the page.
    fn difference(&self) -> Option<String> {
        let name = self.defect;
        let Some((overtakings, states, found)) = self.shortest(2) else {
            return Some(format!("{name}: not found"));
        };
        println!("{name}: {states} states");
        let violated: Vec<String> = found.violated().into_iter().map(printed).collect();
        let seen = (Some(overtakings), found.steps.len(), violated.join(", "));
        let stated = (self.bounds.overtakings, self.steps, self.violated.clone());
        let is_close = states.abs_diff(self.states) * 10 <= self.states;
        (seen != stated || !is_close)
            .then(|| format!("{name}: {seen:?} after {states} states, the page states {stated:?}"))
    }
}

/// Returns a property's name in a record.
fn printed(property: Property) -> String {
    let name = format!("{property:?}");
    name[..1].to_lowercase() + &name[1..]
}

fn assert_found(rows: impl Iterator<Item = Row>) {
    let differences: Vec<String> = rows.filter_map(|it| it.difference()).collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn defects_within_small_state_spaces_are_found_as_the_page_states() {
    assert_found(rows().into_iter().filter(|it| it.states <= SMALL));
}

/// `docs/explore.md` lists every known defect of a protocol that can be explored, either as found or as not
/// found.
#[test]
fn every_defect_is_listed_once() {
    let found: Vec<Defect> = rows().iter().map(|it| it.defect).collect();
    for defect in Defect::all().filter(|it| names().any(|name| name == it.protocol())) {
        let name = defect.to_string();
        if name.starts_with("composite-") || name.starts_with("supervisor-") {
            continue;
        }
        let (_, rest) = PAGE.split_once("## Defects that were not found").expect("the section exists");
        let times = found.iter().filter(|it| **it == defect).count();
        let is_listed = rest.contains(&format!("`{name}`"));
        assert!(times == 1 && !is_listed || times == 0 && is_listed, "{name}: {times} {is_listed}");
    }
}

#[test]
fn the_number_of_threads_changes_no_result() {
    for defect in ["restart-before", "hydee-no-gate", "tic-task-before-record", "cck-values-without-version"]
    {
        let row = rows().into_iter().find(|it| it.defect.to_string() == defect).unwrap();
        let (overtakings, states, found) = row.shortest(1).unwrap();
        for jobs in [2, 5] {
            let again = row.shortest(jobs).unwrap();
            assert_eq!((again.0, again.1), (overtakings, states), "{defect} with {jobs} threads");
            assert_eq!((again.2.steps, again.2.trace), (found.steps.clone(), found.trace.clone()));
        }
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn all_other_defects_are_found_as_the_page_states() {
        assert_found(rows().into_iter().filter(|it| it.states > SMALL));
    }
}
