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
//! | `balance` | how large a cluster may be |
//! | `bisect` | a graph in two halves, by many levels; exchanges between parts |
//! | `refine` | moves of single processes that pay |
//! | `recluster` | whether it pays to change clusters when the traffic shifts |
//! | `follow` | which cluster is which after a change |
//! | [`patterns`] | the communication of the six NAS kernels that the HydEE paper clusters, in closed form |

mod balance;
mod bisect;
mod chance;
mod follow;
pub mod graph;
pub mod patterns;
pub mod read;
mod recluster;
mod refine;

use std::collections::BTreeMap;

use serde::Serialize;

use balance::Balance;
pub use graph::Graph;
pub use recluster::{Course, Interval, Reclustering, recluster};

/// Sums that differ by less are as good as each other, in points.
const EQUAL: f64 = 0.01;

/// Which divisions are looked for, and which one is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wish {
    /// The greatest share of processes that a failure may take back, in percent. The choice is among these.
    pub max_rollback_percent: Option<f64>,
    /// The largest cluster holds at most so many times the mean of processes; at least 1, which is clusters of equal size.
    /// Others are not looked for.
    pub balance: Option<f64>,
}

impl Wish {
    /// Whether a division may be chosen. The balance was kept when it was looked for.
    fn allows(self, division: &Division) -> bool {
        let most = self.max_rollback_percent.unwrap_or(f64::INFINITY);
        division.clusters > 1 && division.rolled_back_percent <= most + 1e-9
    }
}

/// A division of the processes into clusters, with what it costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Division {
    /// How many clusters.
    pub clusters: usize,
    /// Processes of the largest cluster.
    pub largest: usize,
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
            largest: sizes.iter().max().map_or(0, |it| *it as usize),
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

/// Looks for good divisions of `graph`, and chooses one. All processes in one cluster, and each in its own, are always
/// among them, whatever the balance.
///
/// The criterion is the least sum of both shares; among equals (within a hundredth of a point, as for a pattern in which
/// everybody talks to everybody) the one with the fewest clusters that is more than one.
///
/// # Panics
///
/// When the graph has no process, or the balance is not a number from 1 up.
pub fn find(graph: &Graph, wish: Wish) -> Found {
    let processes = graph.len();
    assert!(processes > 0, "a graph without processes has no clusters");
    assert!(wish.balance.is_none_or(|it| it >= 1.0), "a balance of {:?}", wish.balance);
    let balance = Balance::new(processes, wish.balance);
    let each: Vec<u32> = (0..processes as u32).collect();
    let mut all = vec![Division::new(graph, &vec![0; processes]), Division::new(graph, &each)];
    for parts in sizes(processes, balance) {
        all.extend(divisions(graph, parts, balance));
    }
    // What nobody had to keep in balance may be so all the same.
    if wish.balance.is_some() {
        let free = Balance::new(processes, None);
        all.extend(sizes(processes, free).into_iter().flat_map(|parts| divisions(graph, parts, free)));
    }
    all.retain(|it| it.largest <= balance.most(it.clusters));
    let front = front(all);
    let (chosen, reason) = choose(&front, wish);
    Found { front, chosen, reason }
}

/// Divisions into about `parts` clusters.
fn divisions(graph: &Graph, parts: usize, balance: Balance) -> Vec<Division> {
    let most = balance.most(parts);
    let halved = bisect::into(graph, parts, most);
    let mut variants = refine::variants(graph, &halved, balance);
    if most < graph.len() {
        let mut exchanged = halved;
        bisect::exchange(graph, &mut exchanged, most);
        variants.extend(refine::variants(graph, &exchanged, balance));
    }
    variants.iter().map(|it| Division::new(graph, it)).collect()
}

/// The numbers of clusters that are tried: all small ones, then fewer and fewer. Where there is no division into so many
/// clusters, the next number for which there is one.
fn sizes(processes: usize, balance: Balance) -> Vec<usize> {
    let most = (processes / 2).clamp(1, 256);
    let (mut sizes, mut next) = (Vec::new(), 2);
    while next <= most {
        sizes.push(next);
        next = if next < 16 { next + 1 } else { next + next / 4 };
    }
    let powers = (5..=8).map(|it| 1 << it).filter(|it| *it <= most);
    sizes.extend(powers);
    let possible = |it: usize| (it..processes).find(|it| balance.allows(*it));
    let mut sizes: Vec<usize> = sizes.into_iter().filter_map(possible).collect();
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
    let among: Vec<usize> = (0..front.len()).filter(|&it| wish.allows(&front[it])).collect();
    let within = limits(wish);
    let least = among.iter().map(|&it| front[it].cost()).fold(f64::INFINITY, f64::min);
    let best = among.iter().copied().filter(|&it| front[it].cost() <= least + EQUAL);
    match best.min_by_key(|&it| front[it].clusters) {
        Some(chosen) => {
            let cost = front[chosen].cost();
            let reason = format!("the least sum of both shares{within}: {cost:.2} points");
            (chosen, reason + &remark(&front[chosen], wish))
        }
        None => match (0..front.len()).find(|&it| front[it].clusters > 1) {
            Some(chosen) => (chosen, format!("none was found{within}; this one comes closest")),
            None => (0, "there is nothing to divide".to_owned()),
        },
    }
}

/// What was asked for, as the end of a sentence.
fn limits(wish: Wish) -> String {
    let rollback = wish.max_rollback_percent.map(|it| format!("at most {it} % rolled back"));
    let balance = wish.balance.map(|it| format!("at most {it} times the mean in the largest cluster"));
    match rollback.into_iter().chain(balance).collect::<Vec<_>>() {
        limits if limits.is_empty() => String::new(),
        limits => format!(" with {}", limits.join(" and ")),
    }
}

/// What to do when nothing but single processes is in balance.
fn remark(chosen: &Division, wish: Wish) -> String {
    let processes = chosen.cluster_of.len();
    let balance = Balance::new(processes, wish.balance);
    if chosen.clusters < processes || (2..processes).any(|it| balance.allows(it)) {
        return String::new();
    }
    let least = |it: &usize| balance.least(*it);
    let nearest = (2..processes).min_by(|a, b| least(a).total_cmp(&least(b)));
    nearest.map_or(String::new(), |it| {
        // Rounded upwards, so that it can be given as it is said.
        let factor = (balance.least(it) * 1000.0 - 1e-9).ceil() / 1000.0;
        format!("; no other number of clusters is in that balance, and {factor} times the mean would allow {it} clusters")
    })
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
        let found = find(&groups(), Wish { max_rollback_percent: Some(13.0), balance: None });
        assert!(found.front[found.chosen].rolled_back_percent <= 13.0, "{found:?}");
        let found = find(&groups(), Wish { max_rollback_percent: Some(1.0), balance: None });
        assert!(
            found.reason.contains("none was found") && found.front[found.chosen].clusters > 1,
            "{found:?}"
        );
    }

    fn balanced(factor: f64) -> Wish {
        Wish { max_rollback_percent: None, balance: Some(factor) }
    }

    /// Groups of these sizes who talk much inside, and little to the next group.
    fn uneven(sizes: &[usize]) -> Graph {
        let processes: usize = sizes.iter().sum();
        let mut graph = Graph::new((0..processes).map(|it| format!("p{it}")).collect());
        let mut first = 0;
        for size in sizes {
            for from in first..first + size {
                (first..first + size).for_each(|to| graph.add(from, to, 100, 1));
            }
            graph.add(first, (first + size) % processes, 10, 1);
            first += size;
        }
        graph
    }

    #[test]
    fn no_division_is_out_of_the_balance_that_was_asked_for() {
        let mut graphs = vec![groups(), uneven(&[3, 9, 17, 30]), uneven(&[5; 13]), uneven(&[40, 1, 1])];
        graphs.extend(patterns::Pattern::ALL.map(|it| it.graph(64)));
        for (number, graph) in graphs.iter().enumerate() {
            for factor in [1.0, 1.05, 1.3, 2.0, 5.0] {
                let found = find(graph, balanced(factor));
                for it in &found.front {
                    let mean = graph.len() as f64 / it.clusters as f64;
                    let sizes =
                        (0..it.clusters).map(|of| it.cluster_of.iter().filter(|x| **x == of as u32).count());
                    assert_eq!(sizes.max(), Some(it.largest));
                    assert!(
                        it.largest as f64 <= factor * mean + 1e-9,
                        "graph {number}, balance {factor}: {} of {mean} in {} clusters",
                        it.largest,
                        it.clusters
                    );
                }
                let ends = [found.front.first(), found.front.last()].map(|it| it.map(|it| it.clusters));
                assert_eq!(ends, [Some(graph.len()), Some(1)], "single processes and all in one");
            }
        }
    }

    #[test]
    fn what_is_in_balance_anyway_is_found_with_the_limit_too() {
        for pattern in patterns::Pattern::ALL {
            let graph = pattern.graph(256);
            let free = find(&graph, Wish::default());
            let chosen = &free.front[free.chosen];
            let factor = (chosen.largest * chosen.clusters) as f64 / 256.0;
            let found = find(&graph, balanced(factor));
            let cost = found.front[found.chosen].cost();
            assert!(cost <= chosen.cost() + 1e-9, "{pattern:?} in {factor}: {cost}, was {}", chosen.cost());
            assert!(found.reason.contains("times the mean in the largest cluster"), "{}", found.reason);
        }
    }

    #[test]
    fn where_only_single_processes_are_in_balance_the_factor_that_would_help_is_said() {
        let found = find(&uneven(&[8, 9]), balanced(1.0));
        assert_eq!(found.front[found.chosen].clusters, 17);
        assert!(found.reason.contains("1.059 times the mean would allow 2 clusters"), "{}", found.reason);
        let found = find(&uneven(&[8, 9]), balanced(1.059));
        assert_eq!(found.front[found.chosen].clusters, 2, "{}", found.reason);
    }

    #[test]
    fn two_limits_that_cannot_both_hold_are_said_with_what_comes_closest() {
        let wish = Wish { max_rollback_percent: Some(1.0), balance: Some(1.0) };
        let found = find(&groups(), wish);
        assert_eq!(
            found.reason,
            "none was found with at most 1 % rolled back and at most 1 times the mean in the largest cluster; this one \
             comes closest"
        );
        assert_eq!(found.front[found.chosen].clusters, 16);
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
