//! Clusters in a communication graph: processes that should take checkpoints together, so that few messages are logged
//! and a failure rolls back few processes.
//!
//! The two goals conflict (HydEE, section V-B3): larger clusters roll back more processes per failure, and
//! smaller clusters log more messages. [`find`] searches for divisions that meet both goals well, keeps the
//! Pareto front of these divisions, and chooses one by a fixed criterion. For up to twelve processes, it
//! compares all divisions; beyond that, its front and its choice are the best found. It is deterministic: it
//! reads no clock and no files, and all random choices derive from a fixed seed.
//!
//! | module | content |
//! | --- | --- |
//! | [`graph`] | communication graphs |
//! | [`read`] | graphs from text: edge lists, METIS |
//! | `balance` | upper limit on a cluster's size |
//! | `parts` | division into a given number of parts |
//! | `bisect` | multilevel bisection; exchanges between parts |
//! | `refine` | profitable moves of individual processes, and merges of clusters |
//! | `exhaustive` | all divisions of a few processes |
//! | `level` | a graph whose nodes represent several processes |
//! | `leiden` | minimisation of the cost ([`Division::cost`]) by moving, refining and merging |
//! | `search` | further minimisation of the cost by dividing regions again and combining divisions |
//! | `recluster` | changes of clusters that pay off when the traffic shifts |
//! | `follow` | identity of clusters across a change |
//! | `chance` | random numbers from a fixed seed |
//! | [`patterns`] | the traffic of the six NAS kernels that the HydEE paper divides into clusters, in closed form |

mod balance;
mod bisect;
mod chance;
mod exhaustive;
mod follow;
pub mod graph;
mod leiden;
mod level;
mod parts;
pub mod patterns;
pub mod read;
mod recluster;
mod refine;
mod search;

use std::collections::BTreeMap;

use serde::Serialize;

use balance::Balance;
pub use graph::CommunicationGraph;
pub use parts::parts;
pub use recluster::{DivisionSequence, Interval, Reclustering, recluster};

/// Sums that differ by at most this much, in points, count as equal, because such differences are due to rounding.
const EQUAL: f64 = 1e-6;
/// The largest difference from the best division into several clusters, in points, at which a division counts
/// as equally good. Applies only if a single cluster has the smallest sum.
const INDIFFERENT: f64 = 1.0;

/// Limits on the search and on the choice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Constraints {
    /// The largest mean share of processes that a failure may roll back, in percent. The choice respects it.
    pub max_rollback_percent: Option<f64>,
    /// The largest size of a cluster relative to the mean, at least 1. A value of 1 means clusters of equal size. The
    /// search enforces it.
    pub balance: Option<f64>,
}

impl Constraints {
    /// Returns whether a division may be chosen. The search has already enforced the balance.
    fn allows(self, division: &Division) -> bool {
        let most = self.max_rollback_percent.unwrap_or(f64::INFINITY);
        division.clusters > 1 && division.rolled_back_percent <= most + 1e-9
    }
}

/// A division of the processes into clusters, with its costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Division {
    /// The number of clusters.
    pub clusters: usize,
    /// The number of processes in the largest cluster.
    pub largest: usize,
    /// The mean share of processes that a failure rolls back, in percent, if all processes are equally likely
    /// to fail: the sum of (size / processes)^2 over all clusters.
    pub rolled_back_percent: f64,
    /// The share of bytes between clusters, in percent.
    pub logged_percent: f64,
    /// The cluster of each process. Clusters are numbered in the order of their first processes.
    #[serde(skip)]
    pub cluster_of: Vec<u32>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchResult {
    /// The Pareto front of the divisions found, in ascending order of the share of processes that roll back.
    /// If `exhaustive`, the Pareto front of all divisions within the balance.
    pub front: Vec<Division>,
    /// The index of the chosen division in the front.
    pub chosen: usize,
    /// The reason for the choice, in words.
    pub reason: String,
    /// Whether all divisions were compared. If so, no other division within the limits is better by the criterion of
    /// [`find`].
    pub exhaustive: bool,
}

impl SearchResult {
    fn new(front: Vec<Division>, constraints: Constraints, exhaustive: bool) -> SearchResult {
        let (chosen, reason) = choose(&front, constraints, exhaustive);
        SearchResult { front, chosen, reason, exhaustive }
    }
}

impl Division {
    /// Creates a division and computes its costs.
    fn new(graph: &CommunicationGraph, cluster_of: &[u32]) -> Division {
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

    /// Returns the value of the criterion: the sum of both shares.
    pub fn cost(&self) -> f64 {
        self.rolled_back_percent + self.logged_percent
    }
}

/// Searches for good divisions of `graph`, and chooses one. Whatever the balance, the search always includes
/// a single cluster of all processes, and one cluster per process.
///
/// The criterion is the smallest sum of both shares with more than one cluster and, among equal sums, the fewest
/// clusters. If the sum of a single cluster is no greater (as when all processes exchange the same amount),
/// dividing does not pay off. The choice is then the division with the fewest clusters, and then the smallest
/// rollback, among those within one point of the best division into several clusters.
///
/// # Panics
///
/// Panics if the graph has no process, or if the balance is less than 1 or not a number.
pub fn find(graph: &CommunicationGraph, constraints: Constraints) -> SearchResult {
    let processes = graph.len();
    assert!(processes > 0, "a graph without processes has no clusters");
    assert!(constraints.balance.is_none_or(|it| it >= 1.0), "a balance of {:?}", constraints.balance);
    let balance = Balance::new(processes, constraints.balance);
    if processes <= exhaustive::MOST {
        let all = exhaustive::divisions(graph, balance).iter().map(|it| Division::new(graph, it)).collect();
        return SearchResult::new(front(all), constraints, true);
    }
    let each: Vec<u32> = (0..processes as u32).collect();
    let mut all = vec![Division::new(graph, &vec![0; processes]), Division::new(graph, &each)];
    for parts in sizes(processes, balance) {
        all.extend(divisions(graph, parts, balance));
    }
    // Divisions from an unconstrained search may also be in balance.
    if constraints.balance.is_some() {
        let free = Balance::new(processes, None);
        all.extend(sizes(processes, free).into_iter().flat_map(|parts| divisions(graph, parts, free)));
    }
    all.extend(search::from_singles(graph).iter().map(|it| Division::new(graph, it)));
    all.retain(|it| it.largest <= balance.most(it.clusters));
    all.extend(improved(graph, &all, constraints));
    all.retain(|it| it.largest <= balance.most(it.clusters));
    SearchResult::new(front(all), constraints, false)
}

/// Searches for divisions with a smaller sum, starting from the best divisions in `all` that respect the
/// limits.
fn improved(graph: &CommunicationGraph, all: &[Division], constraints: Constraints) -> Vec<Division> {
    let squares = (graph.len() * graph.len()) as f64;
    let limits = search::Limits {
        balance: Balance::new(graph.len(), constraints.balance),
        squares: constraints.max_rollback_percent.map_or(f64::INFINITY, |it| it / 100.0 * squares),
    };
    let mut best: Vec<&Division> = all.iter().filter(|it| constraints.allows(it)).collect();
    best.sort_by(|a, b| a.cost().total_cmp(&b.cost()));
    best.dedup_by(|a, b| a.cost() == b.cost());
    let best = best.iter().map(|it| it.cluster_of.as_slice());
    search::improve(graph, best, limits).iter().map(|it| Division::new(graph, it)).collect()
}

/// Returns divisions into about `parts` clusters.
fn divisions(graph: &CommunicationGraph, parts: usize, balance: Balance) -> Vec<Division> {
    let most = balance.most(parts);
    let halved = bisect::into(graph, parts, most);
    let mut variants = refine::variants(graph, &halved, balance);
    if most < graph.len() {
        let mut exchanged = halved;
        bisect::exchange(graph, &mut exchanged, most);
        variants.extend(refine::variants(graph, &exchanged, balance));
    }
    if most < graph.len() {
        variants.extend(search::in_balance(graph, most));
    }
    variants.iter().map(|it| Division::new(graph, it)).collect()
}

/// Returns the numbers of clusters to try: all small numbers, and larger ones at increasing intervals. If a number has
/// no permitted division, returns the next number that has one instead.
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

/// Returns the Pareto front, in ascending order of the share of processes that roll back.
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

fn choose(front: &[Division], constraints: Constraints, exhaustive: bool) -> (usize, String) {
    let among = || front.iter().enumerate().filter(|it| constraints.allows(it.1));
    let within = limits(constraints);
    let least = among().map(|it| it.1.cost()).fold(f64::INFINITY, f64::min);
    let may_be_one = constraints.max_rollback_percent.is_none_or(|it| it >= 100.0);
    let whole = front.last().filter(|it| may_be_one && it.clusters == 1 && it.cost() <= least + EQUAL);
    let as_good = if whole.is_some() { INDIFFERENT } else { EQUAL };
    let best = among().filter(|it| it.1.cost() <= least + as_good);
    // The front is in ascending order of the share that rolls back, and `min_by_key` returns the first of
    // several minima: the one with the smallest rollback.
    let Some((chosen, division)) = best.min_by_key(|it| it.1.clusters) else {
        return match (0..front.len()).find(|&it| front[it].clusters > 1) {
            Some(chosen) => (chosen, format!("no division was found{within}; this one comes closest")),
            None => (0, "there is only one process".to_owned()),
        };
    };
    let sum = division.cost();
    let reason = match (whole, exhaustive) {
        (Some(whole), _) => format!(
            "dividing does not pay off{within}: the sum of both shares is {:.2} points with one cluster, and {sum:.2} \
             points with these clusters",
            whole.cost()
        ),
        (None, true) => {
            format!("optimal (exhaustive), the smallest sum of both shares{within}: {sum:.2} points")
        }
        (None, false) => {
            format!("best found (not exhaustive): the sum of both shares{within} is {sum:.2} points")
        }
    };
    (chosen, reason + &remark(division, constraints))
}

/// Describes the limits of the search, as the end of a sentence.
fn limits(constraints: Constraints) -> String {
    let rollback = constraints.max_rollback_percent.map(|it| format!("at most {it} % rolled back"));
    let balance = constraints.balance.map(|it| format!("a largest cluster of at most {it} times the mean"));
    match rollback.into_iter().chain(balance).collect::<Vec<_>>() {
        limits if limits.is_empty() => String::new(),
        limits => format!(" with {}", limits.join(" and ")),
    }
}

/// Suggests a remedy if only clusters of one process each are in balance.
fn remark(chosen: &Division, constraints: Constraints) -> String {
    let processes = chosen.cluster_of.len();
    let balance = Balance::new(processes, constraints.balance);
    if chosen.clusters < processes || (2..processes).any(|it| balance.allows(it)) {
        return String::new();
    }
    let least = |it: &usize| balance.least(*it);
    let nearest = (2..processes).min_by(|a, b| least(a).total_cmp(&least(b)));
    nearest.map_or(String::new(), |it| {
        // Rounded up, so that the printed value can be used unchanged.
        let factor = (balance.least(it) * 1000.0 - 1e-9).ceil() / 1000.0;
        format!("; no other number of clusters meets this limit, but {factor} times the mean would allow {it} clusters")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns four groups of four processes that send many bytes within their group and few to the next.
    fn groups() -> CommunicationGraph {
        let mut graph = CommunicationGraph::new((0..16).map(|it| format!("p{it}")).collect());
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
    fn existing_groups_are_found() {
        let found = find(&groups(), Constraints::default());
        let chosen = &found.front[found.chosen];
        assert_eq!(chosen.clusters, 4, "{found:?}");
        assert_eq!(chosen.cluster_of, (0..16).map(|it| it / 4).collect::<Vec<u32>>());
        assert_eq!(chosen.rolled_back_percent, 25.0);
        assert!((chosen.logged_percent - 100.0 * 160.0 / (4800.0 + 160.0)).abs() < 1e-9);
    }

    #[test]
    fn no_division_on_the_front_beats_another() {
        let found = find(&groups(), Constraints::default());
        for pair in found.front.windows(2) {
            assert!(pair[0].rolled_back_percent < pair[1].rolled_back_percent, "{pair:?}");
            assert!(pair[0].logged_percent > pair[1].logged_percent, "{pair:?}");
        }
        let all_in_one = found.front.last().expect("the front is never empty");
        assert_eq!((all_in_one.clusters, all_in_one.logged_percent), (1, 0.0));
    }

    #[test]
    fn a_limit_restricts_the_choice_and_an_impossible_one_is_reported() {
        let found = find(&groups(), Constraints { max_rollback_percent: Some(13.0), balance: None });
        assert!(found.front[found.chosen].rolled_back_percent <= 13.0, "{found:?}");
        let found = find(&groups(), Constraints { max_rollback_percent: Some(1.0), balance: None });
        assert!(
            found.reason.contains("no division was found") && found.front[found.chosen].clusters > 1,
            "{found:?}"
        );
    }

    fn balanced(factor: f64) -> Constraints {
        Constraints { max_rollback_percent: None, balance: Some(factor) }
    }

    /// Returns groups of these sizes whose processes send many bytes within their group and few to the next.
    fn uneven(sizes: &[usize]) -> CommunicationGraph {
        let processes: usize = sizes.iter().sum();
        let mut graph = CommunicationGraph::new((0..processes).map(|it| format!("p{it}")).collect());
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
    fn all_divisions_respect_the_requested_balance() {
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
                assert_eq!(ends, [Some(graph.len()), Some(1)], "single processes, and a single cluster");
            }
        }
    }

    #[test]
    fn the_limit_does_not_prevent_finding_balanced_divisions() {
        for pattern in patterns::Pattern::ALL {
            let graph = pattern.graph(256);
            let free = find(&graph, Constraints::default());
            let chosen = &free.front[free.chosen];
            let factor = (chosen.largest * chosen.clusters) as f64 / 256.0;
            let found = find(&graph, balanced(factor));
            let cost = found.front[found.chosen].cost();
            assert!(cost <= chosen.cost() + 1e-9, "{pattern:?} in {factor}: {cost}, was {}", chosen.cost());
            assert!(found.reason.contains("a largest cluster of at most"), "{}", found.reason);
        }
    }

    #[test]
    fn a_sufficient_factor_is_suggested_if_only_single_processes_are_in_balance() {
        let found = find(&uneven(&[8, 9]), balanced(1.0));
        assert_eq!(found.front[found.chosen].clusters, 17);
        assert!(found.reason.contains("1.059 times the mean would allow 2 clusters"), "{}", found.reason);
        let found = find(&uneven(&[8, 9]), balanced(1.059));
        assert_eq!(found.front[found.chosen].clusters, 2, "{}", found.reason);
    }

    #[test]
    fn contradictory_limits_are_reported_with_the_closest_division() {
        let constraints = Constraints { max_rollback_percent: Some(1.0), balance: Some(1.0) };
        let found = find(&groups(), constraints);
        assert_eq!(
            found.reason,
            "no division was found with at most 1 % rolled back and a largest cluster of at most 1 times the mean; this one \
             comes closest"
        );
        assert_eq!(found.front[found.chosen].clusters, 16);
    }

    #[test]
    fn dividing_does_not_pay_for_all_to_all_communication() {
        let found = find(&patterns::Pattern::Ft.graph(64), Constraints::default());
        let chosen = &found.front[found.chosen];
        assert_eq!((chosen.clusters, chosen.largest), (2, 32), "{}", found.reason);
        assert_eq!(
            found.reason,
            "dividing does not pay off: the sum of both shares is 100.00 points with one cluster, and 100.79 points \
             with these clusters"
        );
        let found = find(
            &patterns::Pattern::Ft.graph(64),
            Constraints { max_rollback_percent: Some(60.0), balance: None },
        );
        assert!(found.reason.starts_with("best found"), "{}", found.reason);
    }

    /// Returns every division of this many processes into clusters.
    fn every(processes: usize) -> Vec<Vec<u32>> {
        let mut all = vec![vec![]];
        for _ in 0..processes {
            let longer = |it: Vec<u32>| {
                let next = it.iter().max().map_or(0, |it| it + 1);
                (0..=next).map(move |cluster| [it.as_slice(), &[cluster]].concat())
            };
            all = all.into_iter().flat_map(longer).collect();
        }
        all
    }

    #[test]
    fn a_chain_with_one_weak_end_is_divided_into_three() {
        let mut graph = CommunicationGraph::new(["a", "b", "c", "d", "e"].map(str::to_owned).into());
        [(0, 1, 100), (2, 3, 100), (3, 4, 1)]
            .into_iter()
            .for_each(|(from, to, bytes)| graph.add(from, to, bytes, 1));
        let found = find(&graph, Constraints::default());
        assert_eq!(found.front[found.chosen].cluster_of, [0, 0, 1, 1, 2]);
        assert_eq!(found.reason, "optimal (exhaustive), the smallest sum of both shares: 36.50 points");
        assert!(found.exhaustive);
    }

    #[test]
    fn the_front_and_the_choice_are_optimal_for_few_processes() {
        let mut chance = chance::Chance(1);
        for number in 0..60 {
            let processes = 3 + number % 6;
            let mut graph = CommunicationGraph::new((0..processes).map(|it| it.to_string()).collect());
            for from in 0..processes {
                let bytes = (0..from).map(|to| (to, (chance.below(3) * chance.below(100)) as u64));
                bytes.collect::<Vec<_>>().into_iter().for_each(|(to, bytes)| graph.add(from, to, bytes, 1));
            }
            let rollback = [None, Some(40.0)][number / 2 % 2];
            let constraints =
                Constraints { balance: [None, Some(1.5)][number % 2], max_rollback_percent: rollback };
            let balance = Balance::new(processes, constraints.balance);
            let all: Vec<Division> = every(processes).iter().map(|it| Division::new(&graph, it)).collect();
            let all: Vec<&Division> =
                all.iter().filter(|it| it.largest <= balance.most(it.clusters)).collect();
            let found = find(&graph, constraints);
            for it in &all {
                let matched = |on: &Division| {
                    on.rolled_back_percent <= it.rolled_back_percent + 1e-9
                        && on.logged_percent <= it.logged_percent + 1e-9
                };
                assert!(found.front.iter().any(matched), "graph {number}: {it:?}");
            }
            let allowed = all.iter().filter(|it| constraints.allows(it));
            let least = allowed.map(|it| it.cost()).fold(f64::INFINITY, f64::min);
            let chosen = &found.front[found.chosen];
            if found.reason.starts_with("optimal") {
                assert!(chosen.cost() <= least + EQUAL, "graph {number}: {chosen:?}, {least}");
            } else if found.reason.starts_with("dividing") {
                assert!(rollback.is_none() && least >= 100.0 - EQUAL, "graph {number}: {least}");
            } else {
                assert!(least.is_infinite(), "graph {number}: {}, {least}", found.reason);
            }
        }
    }

    #[test]
    fn a_division_is_called_optimal_only_after_an_exhaustive_search() {
        let found = find(&groups(), Constraints::default());
        assert!(!found.exhaustive && found.reason.starts_with("best found"), "{}", found.reason);
    }

    #[test]
    fn one_process_is_one_cluster() {
        let found = find(&CommunicationGraph::new(vec!["alone".into()]), Constraints::default());
        assert_eq!((found.front.len(), found.front[found.chosen].clusters), (1, 1));
    }
}
