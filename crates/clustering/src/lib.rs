//! Clusters from a communication graph: which processes should take checkpoints together, so that a failure takes few
//! of them back and little has to be logged.
//!
//! The two shares pull against each other (HydEE, section V-B3): with larger clusters more processes roll back, with
//! smaller ones more messages go between clusters, and are logged. [`find`] looks for divisions that are good at both,
//! keeps those that no other beats at both (the Pareto front), and chooses one by a fixed criterion. Deterministic: no
//! clock, and chance only from a fixed seed. Reads no files.
//!
//! | module | holds |
//! | --- | --- |
//! | [`graph`] | who sends how much to whom |
//! | [`read`] | graphs from text: edge lists, METIS, GraphML |
//! | `bisect` | a graph in two halves, by many levels |
//! | `refine` | moves of single processes that pay |
//! | [`patterns`] | the communication of the six NAS kernels that the HydEE paper clusters, in closed form |

mod bisect;
mod chance;
pub mod graph;
pub mod patterns;
pub mod read;
mod refine;

use std::collections::BTreeMap;

use serde::Serialize;

pub use graph::Graph;

/// Which division of the front is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wish {
    /// The greatest share of processes that a failure may take back, in percent.
    pub max_rollback_percent: Option<f64>,
}

/// A division of the processes into clusters, with what it costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Division {
    /// How many clusters.
    pub clusters: usize,
    /// The share of processes that one failure takes back, in percent: the mean over the processes that may fail, each as
    /// probable as any other. Sum of (size / processes)^2.
    pub rolled_back_percent: f64,
    /// The share of bytes that go from one cluster to another, in percent.
    pub logged_percent: f64,
    /// By process: its cluster, numbered in the order of their first processes.
    #[serde(skip)]
    pub cluster_of: Vec<u32>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// Divisions that no other one beats at both shares, by ascending number of rolled back processes.
    pub front: Vec<Division>,
    /// The chosen one, as an index into the front.
    pub chosen: usize,
    /// Why.
    pub reason: String,
}

impl Division {
    /// With what it costs.
    fn new(graph: &Graph, cluster_of: &[u32]) -> Division {
        let mut numbers = BTreeMap::new();
        let mut number = |cluster: u32| {
            let next = numbers.len() as u32;
            *numbers.entry(cluster).or_insert(next)
        };
        let cluster_of: Vec<u32> = cluster_of.iter().map(|&it| number(it)).collect();
        let mut sizes = vec![0_u64; numbers.len()];
        cluster_of.iter().for_each(|&it| sizes[it as usize] += 1);
        let processes = cluster_of.len() as f64;
        let squares: f64 = sizes.iter().map(|&it| (it as f64 / processes).powi(2)).sum();
        let logged = graph.between(&cluster_of) as f64;
        let all = graph.total().max(1) as f64;
        Division {
            clusters: sizes.len(),
            rolled_back_percent: 100.0 * squares,
            logged_percent: 100.0 * logged / all,
            cluster_of,
        }
    }

    /// What the criterion counts: both shares alike.
    pub fn cost(&self) -> f64 {
        self.rolled_back_percent + self.logged_percent
    }
}

/// Looks for good divisions of `graph`, and chooses one.
///
/// The criterion is the least sum of both shares; among equals (within a hundredth of a point, as for a pattern in which
/// everybody talks to everybody) the one with the fewest clusters that is more than one.
///
/// # Panics
///
/// When the graph has no process.
pub fn find(graph: &Graph, wish: Wish) -> Found {
    let processes = graph.len();
    assert!(processes > 0, "a graph without processes has no clusters");
    let mut all = vec![Division::new(graph, &vec![0; processes])];
    for parts in sizes(processes) {
        for refined in refine::variants(graph, &bisect::into(graph, parts)) {
            all.push(Division::new(graph, &refined));
        }
    }
    let front = front(all);
    let (chosen, reason) = choose(&front, wish);
    Found { front, chosen, reason }
}

/// The numbers of clusters that are tried: all small ones, then fewer and fewer.
fn sizes(processes: usize) -> Vec<usize> {
    let most = (processes / 2).clamp(1, 256);
    let (mut sizes, mut next) = (Vec::new(), 2);
    while next <= most {
        sizes.push(next);
        next = if next < 16 { next + 1 } else { next + next / 4 };
    }
    let powers = (5..=8).map(|it| 1 << it).filter(|it| *it <= most);
    sizes.extend(powers);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Those that no other beats, by ascending share of rolled back processes.
fn front(mut all: Vec<Division>) -> Vec<Division> {
    let key = |it: &Division| (it.rolled_back_percent, it.logged_percent);
    all.sort_by(|a, b| key(a).partial_cmp(&key(b)).expect("shares are numbers"));
    let mut least = f64::INFINITY;
    all.retain(|it| {
        let beats = it.logged_percent < least - 1e-9;
        least = least.min(it.logged_percent);
        beats
    });
    all
}

fn choose(front: &[Division], wish: Wish) -> (usize, String) {
    const EQUAL: f64 = 0.01;
    let several = || (0..front.len()).filter(|&it| front[it].clusters > 1);
    let allowed =
        |it: usize| wish.max_rollback_percent.is_none_or(|most| front[it].rolled_back_percent <= most + 1e-9);
    let among: Vec<usize> = several().filter(|&it| allowed(it)).collect();
    let within =
        wish.max_rollback_percent.map_or(String::new(), |it| format!(" with at most {it} % rolled back"));
    let least = among.iter().map(|&it| front[it].cost()).fold(f64::INFINITY, f64::min);
    let best = among.iter().copied().filter(|&it| front[it].cost() <= least + EQUAL);
    match best.min_by_key(|&it| front[it].clusters) {
        Some(chosen) => {
            let cost = front[chosen].cost();
            let reason = format!("the least sum of both shares{within}: {cost:.2} points");
            (chosen, reason)
        }
        None if wish.max_rollback_percent.is_some() && several().next().is_some() => {
            let chosen = several().next().expect("there is one");
            (chosen, format!("none was found{within}; this one comes closest"))
        }
        None => (0, "there is nothing to divide".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four groups of four who talk much inside and little to the next group.
    fn groups() -> Graph {
        let mut graph = Graph::new((0..16).map(|it| format!("p{it}")).collect());
        for from in 0..16 {
            for to in 0..16 {
                if from != to && from / 4 == to / 4 {
                    graph.add(from, to, 100, 1);
                }
            }
            graph.add(from, (from + 4) % 16, 10, 1);
        }
        graph
    }

    #[test]
    fn groups_that_are_there_are_found() {
        let found = find(&groups(), Wish::default());
        let chosen = &found.front[found.chosen];
        assert_eq!(chosen.clusters, 4, "{found:?}");
        assert_eq!(chosen.cluster_of, (0..16).map(|it| it / 4).collect::<Vec<u32>>());
        assert_eq!(chosen.rolled_back_percent, 25.0);
        assert!((chosen.logged_percent - 100.0 * 160.0 / (4800.0 + 160.0)).abs() < 1e-9);
    }

    #[test]
    fn the_front_holds_what_nothing_beats() {
        let found = find(&groups(), Wish::default());
        for pair in found.front.windows(2) {
            assert!(pair[0].rolled_back_percent < pair[1].rolled_back_percent, "{pair:?}");
            assert!(pair[0].logged_percent > pair[1].logged_percent, "{pair:?}");
        }
        let all_in_one = found.front.last().expect("it is never empty");
        assert_eq!((all_in_one.clusters, all_in_one.logged_percent), (1, 0.0));
    }

    #[test]
    fn a_wish_limits_the_choice_and_an_impossible_one_is_said() {
        let found = find(&groups(), Wish { max_rollback_percent: Some(13.0) });
        assert!(found.front[found.chosen].rolled_back_percent <= 13.0, "{found:?}");
        let found = find(&groups(), Wish { max_rollback_percent: Some(1.0) });
        assert!(
            found.reason.contains("none was found") && found.front[found.chosen].clusters > 1,
            "{found:?}"
        );
    }

    #[test]
    fn where_everybody_talks_to_everybody_two_clusters_are_as_good_as_any() {
        let found = find(&patterns::Pattern::Ft.graph(64), Wish::default());
        assert_eq!(found.front[found.chosen].clusters, 2, "{}", found.reason);
    }

    #[test]
    fn one_process_is_one_cluster() {
        let found = find(&Graph::new(vec!["alone".into()]), Wish::default());
        assert_eq!((found.front.len(), found.front[found.chosen].clusters), (1, 1));
    }
}
