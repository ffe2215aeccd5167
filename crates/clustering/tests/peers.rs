//! Compares one run of the search with the best results of METIS, KaHIP and Leiden on sixty graphs: no peer
//! may find a smaller sum.
//!
//! The peers' results are recorded in `peers/sums.csv`. `peers/peers.py` contains the peers' versions and options, and
//! recomputes the results from the graphs that the ignored test writes.

#[path = "peers/graphs.rs"]
mod graphs;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use faultline_clustering::{Constraints, find};
use graphs::Sample;

/// The precision of the recorded sums, which are rounded to six decimal places.
const ROUNDED: f64 = 1e-6;

/// Returns the best recorded sum of each graph, in points.
fn recorded() -> BTreeMap<&'static str, f64> {
    let row = |line: &'static str| {
        let mut cells = line.split(',');
        let name = cells.next().expect("the name of a graph");
        let sums = cells.map(|it| it.parse::<f64>().expect("a sum"));
        (name, sums.fold(f64::INFINITY, f64::min))
    };
    include_str!("peers/sums.csv").lines().skip(1).map(row).collect()
}

/// Asserts that no peer finds a smaller sum on any graph whose number is a multiple of `step`.
fn assert_that_no_peer_is_better(step: usize) {
    let (recorded, graphs) = (recorded(), graphs::all());
    assert_eq!((graphs.len(), recorded.len()), (60, 60));
    let next = AtomicUsize::new(0);
    let complaints = || {
        let mut worse = Vec::new();
        while let Some(sample) = graphs.get(next.fetch_add(step, Ordering::Relaxed)) {
            worse.extend(worse_than(sample, recorded[sample.name.as_str()]));
        }
        worse
    };
    let worse: Vec<String> = thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(complaints));
        threads.into_iter().flat_map(|it| it.join().expect("the thread does not panic")).collect()
    });
    assert!(worse.is_empty(), "{worse:?}");
}

#[test]
fn no_peer_finds_a_smaller_sum_on_ten_graphs() {
    assert_that_no_peer_is_better(6);
}

mod long {
    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn no_peer_finds_a_smaller_sum_on_any_of_sixty_graphs() {
        super::assert_that_no_peer_is_better(1);
    }
}

/// Returns a description of the problem if the peers' best sum is smaller, or if the choice does not match
/// its reason.
fn worse_than(sample: &Sample, peers: f64) -> Option<String> {
    let found = find(&sample.graph, Constraints::default());
    let sum = found.front.iter().map(|it| it.cost()).fold(f64::INFINITY, f64::min);
    // The sum of the chosen division exceeds the smallest sum only if a single cluster is as good.
    let chosen = found.front[found.chosen].cost();
    let is_least = chosen <= sum + ROUNDED || found.reason.starts_with("dividing does not pay off");
    (sum > peers + ROUNDED || !is_least)
        .then(|| format!("{}: {sum:.6}, chosen {chosen:.6}, a peer found {peers:.6}", sample.name))
}

#[test]
#[ignore = "writes the graphs to the directory FAULTLINE_GRAPHS, for peers.py"]
fn write() {
    let directory = env::var("FAULTLINE_GRAPHS").expect("FAULTLINE_GRAPHS must name a directory");
    for it in graphs::all() {
        let mut text = format!("{} {}\n", it.graph.len(), it.graph.total());
        for (one, other, bytes) in graphs::pairs(&it.graph) {
            writeln!(text, "{one} {other} {bytes}").expect("a string accepts every write");
        }
        fs::write(format!("{directory}/{}", it.name), text).expect("the directory exists");
    }
}
