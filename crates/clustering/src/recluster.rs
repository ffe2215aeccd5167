//! Determines whether dividing the processes again at a checkpoint pays off when the traffic has shifted (future work
//! of the HydEE paper).
//!
//! Time is divided into intervals of equal length, each with its own graph. Candidates are the best divisions
//! of each interval, and of all intervals together. Dynamic programming finds the cheapest sequence of them.
//! Consecutive intervals with the same division in that sequence are then searched again as a whole.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use crate::follow::follow;
use crate::{CommunicationGraph, Constraints, Division, find, limits};

/// The difference, in points, below which sums count as equal.
const EQUAL: f64 = 0.01;
/// The maximum number of candidates per graph. The candidates are the divisions with the smallest sums of the two
/// shares.
const CANDIDATES: usize = 16;

/// The best results with and without changes to the clusters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reclustering {
    /// Names of the processes.
    #[serde(skip)]
    pub processes: Vec<String>,
    /// The cheapest sequence. Equal to `one` if no change pays off.
    pub best: DivisionSequence,
    /// The best single division for all intervals, chosen with knowledge of all of them.
    pub one: DivisionSequence,
    /// The division chosen for the first interval, kept in all intervals.
    pub first: DivisionSequence,
    /// The conclusion, in a sentence.
    pub verdict: String,
}

/// A division for each interval, with its costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DivisionSequence {
    /// Intervals in chronological order.
    pub intervals: Vec<Interval>,
    /// The mean percentage of processes that a failure rolls back, over all intervals.
    pub rolled_back_percent: f64,
    /// The percentage of all bytes that are sent between clusters.
    pub logged_percent: f64,
    /// The bytes of the checkpoints for all changes, as a percentage of all bytes.
    pub changes_percent: f64,
}

/// The clusters during one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interval {
    /// The total number of bytes in the interval.
    pub bytes: u64,
    /// The division, with its shares in this interval.
    #[serde(flatten)]
    pub division: Division,
    /// The number of processes that change clusters at the beginning of the interval.
    pub moved: usize,
    /// The number of processes that take a checkpoint for the change: the members of all new clusters.
    pub checkpointed: usize,
    /// The number of each cluster of the division, which identifies the cluster across intervals. Numbers are assigned
    /// so that as few processes as possible change clusters from one interval to the next.
    #[serde(skip)]
    pub numbers: Vec<u32>,
}

impl DivisionSequence {
    /// Returns the value of the criterion: the sum of both shares and the cost of changes.
    pub fn cost(&self) -> f64 {
        self.rolled_back_percent + self.logged_percent + self.changes_percent
    }

    /// Returns the intervals that begin with a change of clusters, counted from 1.
    pub fn changes(&self) -> Vec<usize> {
        (1..).zip(&self.intervals).filter(|(_, it)| it.checkpointed > 0).map(|it| it.0).collect()
    }
}

/// Searches for the cheapest sequence of divisions, one per graph, and compares it with a single division for all
/// graphs.
///
/// Processes are identified by their names; a process that a graph does not name has no traffic in it.
/// `change_percent` is the size of a checkpoint of all processes, as a percentage of the bytes of all graphs.
/// A change costs this value times the share of processes that take a checkpoint for it, and must save at
/// least a hundredth of a point.
///
/// # Panics
///
/// Panics if there is no graph or no process, or if [`find`] panics with these limits.
pub fn recluster(
    graphs: &[CommunicationGraph],
    constraints: Constraints,
    change_percent: f64,
) -> Reclustering {
    let mut search = Search::new(graphs, constraints, change_percent);
    let all = graphs.len();
    let one = search.look(0..all);
    let each: Vec<usize> = (0..all).map(|it| search.look(it..it + 1)).collect();
    let path = loop {
        let path = search.cheapest();
        let unseen: Vec<_> = stretches(&path).into_iter().filter(|it| !search.seen.contains(it)).collect();
        if unseen.is_empty() {
            break path;
        }
        unseen.into_iter().for_each(|it| _ = search.look(it));
    };
    let one = search.unless_beaten(one);
    let path = if stretches(&path).len() == 1 { vec![one; all] } else { path };
    let constant = |it: usize| search.sequence(&vec![it; all]);
    let (best, one, first) = (search.sequence(&path), constant(one), constant(each[0]));
    let verdict = verdict(constraints, &best, &one, &first);
    Reclustering { processes: search.processes, best, one, first, verdict }
}

fn verdict(
    constraints: Constraints,
    best: &DivisionSequence,
    one: &DivisionSequence,
    first: &DivisionSequence,
) -> String {
    let sum = best.cost();
    let more = |it: &DivisionSequence| match it.cost() - sum {
        more if more < EQUAL => "is as good".to_owned(),
        more => format!("costs {more:.2} points more"),
    };
    let kept = format!("keeping the clusters chosen for the first interval {}", more(first));
    let changes: Vec<String> = best.changes().iter().map(usize::to_string).collect();
    let verdict = match changes.len() {
        0 => format!(
            "changing clusters does not pay off: the best sequence found has one division for all intervals, with a sum of {sum:.2} points; {kept}"
        ),
        count => format!(
            "changing clusters before {} {} pays off: the sum is {sum:.2} points; one division for all intervals {}, and {kept}",
            if count == 1 { "interval" } else { "intervals" },
            changes.join(", "),
            more(one)
        ),
    };
    match limits(constraints) {
        within if !within.is_empty() && !best.intervals.iter().all(|it| constraints.allows(&it.division)) => {
            format!("no division was found{within}; with those that come closest, {verdict}")
        }
        _ => verdict,
    }
}

/// Returns the stretches of consecutive intervals with the same division.
fn stretches(path: &[usize]) -> Vec<Range<usize>> {
    let mut first = 0;
    let stretch = |of: &[usize]| {
        let stretch = first..first + of.len();
        first = stretch.end;
        stretch
    };
    path.chunk_by(|a, b| a == b).map(stretch).collect()
}

/// A division that may be used in any interval.
struct Candidate {
    cluster_of: Vec<u32>,
    /// For each process: the number of the set of processes in its cluster.
    members: Vec<u32>,
    /// For each interval: the contribution to the total sum if this division is used in it.
    costs: Vec<f64>,
}

struct Search {
    processes: Vec<String>,
    graphs: Vec<CommunicationGraph>,
    bytes: u64,
    constraints: Constraints,
    change_percent: f64,
    candidates: Vec<Candidate>,
    /// Ranges of intervals that have already been searched together.
    seen: Vec<Range<usize>>,
    /// Numbers for sets of processes.
    sets: BTreeMap<Vec<u32>, u32>,
}

impl Search {
    fn new(graphs: &[CommunicationGraph], constraints: Constraints, change_percent: f64) -> Search {
        let all = CommunicationGraph::together(graphs);
        let graphs = graphs.iter().map(|it| it.among(all.names())).collect();
        Search {
            processes: all.names().to_vec(),
            graphs,
            bytes: all.total().max(1),
            constraints,
            change_percent,
            candidates: Vec::new(),
            seen: Vec::new(),
            sets: BTreeMap::new(),
        }
    }

    /// Searches these intervals as if they were one. Of the divisions found, those that contribute the least
    /// to the total sum become candidates. Returns the candidate that would be chosen for these intervals
    /// alone.
    fn look(&mut self, intervals: Range<usize>) -> usize {
        let graph = CommunicationGraph::together(&self.graphs[intervals.clone()]);
        let found = find(&graph, self.constraints);
        let mut best: Vec<_> = found.front.iter().filter(|it| self.constraints.allows(it)).collect();
        let cost = |it: &Division| self.parts(&graph, it, intervals.len()).iter().sum::<f64>();
        best.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        best.truncate(CANDIDATES);
        best.into_iter().for_each(|it| _ = self.candidate(&it.cluster_of));
        self.seen.push(intervals);
        self.candidate(&found.front[found.chosen].cluster_of)
    }

    /// Returns the number of a candidate, after adding it if it is new.
    fn candidate(&mut self, cluster_of: &[u32]) -> usize {
        if let Some(known) = self.candidates.iter().position(|it| it.cluster_of == cluster_of) {
            return known;
        }
        let mut clusters: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        cluster_of.iter().zip(0..).for_each(|(&of, it)| clusters.entry(of).or_default().push(it));
        let mut members = vec![0; cluster_of.len()];
        for set in clusters.into_values() {
            let next = self.sets.len() as u32;
            let number = *self.sets.entry(set.clone()).or_insert(next);
            set.into_iter().for_each(|it| members[it as usize] = number);
        }
        let cost =
            |graph: &CommunicationGraph| self.parts(graph, &Division::new(graph, cluster_of), 1).iter().sum();
        let costs = self.graphs.iter().map(cost).collect();
        self.candidates.push(Candidate { cluster_of: cluster_of.to_vec(), members, costs });
        self.candidates.len() - 1
    }

    /// Returns the contribution of `intervals` intervals with this graph to both total shares. All intervals
    /// have the same length, and each logs its own bytes.
    fn parts(&self, graph: &CommunicationGraph, division: &Division, intervals: usize) -> [f64; 2] {
        let time = intervals as f64 / self.graphs.len() as f64;
        let bytes = graph.total() as f64 / self.bytes as f64;
        [division.rolled_back_percent * time, division.logged_percent * bytes]
    }

    /// Returns the number of processes that take a checkpoint when candidate `to` follows candidate `from`.
    fn checkpointed(&self, from: usize, to: usize) -> usize {
        let (from, to) = (&self.candidates[from].members, &self.candidates[to].members);
        from.iter().zip(to).filter(|(from, to)| from != to).count()
    }

    /// Returns the cost of a change for which this many processes take a checkpoint.
    fn change(&self, checkpointed: usize) -> f64 {
        self.change_percent * checkpointed as f64 / self.processes.len() as f64
    }

    /// Returns the cheapest sequence of candidates, one per interval. It changes the candidate only if that reduces the
    /// cost.
    fn cheapest(&self) -> Vec<usize> {
        let change = |from: usize, to: usize| match self.checkpointed(from, to) {
            0 => 0.0,
            some => self.change(some) + EQUAL,
        };
        let all = 0..self.candidates.len();
        let changes: Vec<Vec<f64>> =
            all.clone().map(|to| all.clone().map(|from| change(from, to)).collect()).collect();
        let cost = |interval: usize| self.candidates.iter().map(move |it| it.costs[interval]);
        let mut sums: Vec<f64> = cost(0).collect();
        // For each interval after the first and each candidate: the previous candidate.
        let mut before: Vec<Vec<usize>> = Vec::new();
        for interval in 1..self.graphs.len() {
            let cheapest = |to: usize| {
                let ways = all.clone().map(|from| (sums[from] + changes[to][from], from));
                ways.fold((sums[to], to), |best, it| if it.0 < best.0 - 1e-9 { it } else { best })
            };
            let (least, from): (Vec<f64>, Vec<usize>) = all.clone().map(cheapest).unzip();
            sums = least.into_iter().zip(cost(interval)).map(|(sum, cost)| sum + cost).collect();
            before.push(from);
        }
        let last = all.min_by(|&a, &b| sums[a].total_cmp(&sums[b])).expect("each interval has candidates");
        let mut path = vec![last];
        before.iter().rev().for_each(|from| path.push(from[path[path.len() - 1]]));
        path.reverse();
        path
    }

    /// Returns the best candidate for all intervals: `one`, unless another is better.
    fn unless_beaten(&self, one: usize) -> usize {
        let cost = |it: usize| self.candidates[it].costs.iter().sum::<f64>();
        let best = (0..self.candidates.len()).min_by(|&a, &b| cost(a).total_cmp(&cost(b)));
        best.filter(|&it| cost(it) < cost(one) - EQUAL).unwrap_or(one)
    }

    fn sequence(&self, path: &[usize]) -> DivisionSequence {
        let mut sequence = DivisionSequence {
            intervals: Vec::new(),
            rolled_back_percent: 0.0,
            logged_percent: 0.0,
            changes_percent: 0.0,
        };
        let (mut before, mut used) = (None::<usize>, 0);
        for (graph, &it) in self.graphs.iter().zip(path) {
            let division = Division::new(graph, &self.candidates[it].cluster_of);
            let [rolled_back, logged] = self.parts(graph, &division, 1);
            let (numbers, moved) = match sequence.intervals.last() {
                Some(last) => follow((&last.division, &last.numbers), &division, used),
                None => ((0..division.clusters as u32).collect(), 0),
            };
            used = numbers.iter().map(|it| it + 1).fold(used, u32::max);
            let checkpointed = before.map_or(0, |before| self.checkpointed(before, it));
            sequence.rolled_back_percent += rolled_back;
            sequence.logged_percent += logged;
            sequence.changes_percent += self.change(checkpointed);
            sequence.intervals.push(Interval {
                bytes: graph.total(),
                division,
                moved,
                checkpointed,
                numbers,
            });
            before = Some(it);
        }
        sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the graph of processes arranged in a square with sides of length `side`. Each process sends
    /// `bytes` bytes to each of the others in its row or, if `rows` is `false`, in its column.
    fn square(side: usize, rows: bool, bytes: u64) -> CommunicationGraph {
        let mut graph = CommunicationGraph::new((0..side * side).map(|it| it.to_string()).collect());
        for from in 0..side * side {
            let of = |it: usize| if rows { it / side } else { it % side };
            (0..side * side).filter(|&to| of(to) == of(from)).for_each(|to| graph.add(from, to, bytes, 1));
        }
        graph
    }

    /// Returns the result for intervals with traffic in rows (`r`) or columns (`c`) of a square of four by
    /// four processes.
    fn shifting(letters: &str, change_percent: f64) -> Reclustering {
        let graphs: Vec<CommunicationGraph> = letters.chars().map(|it| square(4, it == 'r', 10)).collect();
        recluster(&graphs, Constraints::default(), change_percent)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn a_change_from_rows_to_columns_saves_the_bytes_logged_without_it() {
        // Without a change, a quarter rolls back, and the entire second half is logged. With it, a quarter
        // rolls back, and the change costs 5 points.
        let found = shifting("rc", 5.0);
        assert!(close(found.one.cost(), 25.0 + 50.0) && close(found.first.cost(), 75.0), "{found:?}");
        assert!(close(found.best.cost(), 25.0 + 5.0), "{found:?}");
        assert_eq!(found.best.changes(), [2]);
        let [_, after] = &found.best.intervals[..] else { panic!("{found:?}") };
        // One process of each row keeps its cluster's number.
        assert_eq!((after.division.clusters, after.moved, after.checkpointed), (4, 12, 16));
        assert_eq!(
            found.verdict,
            "changing clusters before interval 2 pays off: the sum is 30.00 points; one division for all intervals costs 45.00 \
             points more, and keeping the clusters chosen for the first interval costs 45.00 points more"
        );
    }

    #[test]
    fn a_change_is_made_only_if_it_costs_less_than_it_saves() {
        assert_eq!(shifting("rc", 49.9).best.changes(), [2]);
        let found = shifting("rc", 50.1);
        assert_eq!((found.best.changes().len(), &found.best), (0, &found.one));
        // A third of the bytes shifts and shifts back: both changes pay off, or neither does.
        assert_eq!(shifting("rrccrr", 16.0).best.changes(), [3, 5]);
        assert!(shifting("rrccrr", 17.0).best.changes().is_empty());
        assert!(shifting("rc", 1e12).best.changes().is_empty());
    }

    #[test]
    fn one_change_is_made_if_two_are_too_expensive() {
        let found = shifting("rrrccccrc", 20.0);
        assert_eq!(found.best.changes(), [4]);
        let whole = |it: &Interval| it.division.logged_percent;
        assert_eq!(found.best.intervals.iter().map(whole).sum::<f64>(), 100.0);
    }

    #[test]
    fn constant_traffic_keeps_its_clusters_even_if_changes_are_free() {
        for pattern in crate::patterns::Pattern::ALL {
            let graph = pattern.graph(64);
            let found = recluster(&vec![graph.clone(); 3], Constraints::default(), 0.0);
            assert!(found.best.changes().is_empty(), "{pattern:?}");
            assert_eq!((&found.best, &found.one), (&found.one, &found.first), "{pattern:?}");
            let chosen = find(&graph, Constraints::default());
            let chosen = &chosen.front[chosen.chosen];
            assert!(found.one.cost() <= chosen.cost() + 1e-9, "{pattern:?}");
        }
    }

    #[test]
    fn an_equally_good_division_is_no_reason_to_change() {
        // All processes communicate with each other: the sum is the same for all clusters, even if one pair sends
        // slightly more.
        let mut other = crate::patterns::Pattern::Ft.graph(16);
        other.add(0, 9, 1, 1);
        let graphs = [crate::patterns::Pattern::Ft.graph(16), other];
        assert!(recluster(&graphs, Constraints::default(), 0.0).best.changes().is_empty());
    }

    #[test]
    fn logging_everything_pays_in_a_quiet_interval() {
        // One byte in a hundred is logged, and half of the time, 1 of 16 processes rolls back instead of 4.
        let graphs = [square(4, true, 990), square(4, false, 10)];
        let found = recluster(&graphs, Constraints::default(), 9.3);
        assert_eq!(found.best.intervals[1].division.clusters, 16, "{found:?}");
        assert!(close(found.best.cost(), (25.0 + 6.25) / 2.0 + 1.0 + 9.3), "{found:?}");
        assert!(close(found.one.cost(), 25.0 + 1.0), "{found:?}");
        assert!(recluster(&graphs, Constraints::default(), 9.4).best.changes().is_empty());
    }

    #[test]
    fn processes_are_identified_by_name_and_may_have_no_traffic() {
        let mut rows = CommunicationGraph::new(["a", "b", "c", "d"].map(str::to_owned).into());
        rows.add(0, 1, 10, 1);
        rows.add(2, 3, 10, 1);
        let mut later = CommunicationGraph::new(["d", "a"].map(str::to_owned).into());
        later.add(0, 1, 20, 1);
        let found = recluster(&[rows, later], Constraints::default(), 0.0);
        assert_eq!(found.processes, ["a", "b", "c", "d"]);
        let together =
            |it: &Interval, a: usize, b: usize| it.division.cluster_of[a] == it.division.cluster_of[b];
        let [before, after] = &found.best.intervals[..] else { panic!("{found:?}") };
        assert!(together(before, 0, 1) && together(before, 2, 3) && together(after, 0, 3), "{found:?}");
    }

    #[test]
    fn every_interval_respects_the_limits() {
        let constraints = Constraints { max_rollback_percent: Some(13.0), balance: Some(1.0) };
        let found = recluster(&[square(4, true, 1), square(4, false, 1)], constraints, 1.0);
        for it in [&found.best, &found.one, &found.first].iter().flat_map(|it| &it.intervals) {
            assert!(it.division.rolled_back_percent <= 13.0 + 1e-9, "{it:?}");
            assert_eq!(it.division.largest * it.division.clusters, 16);
        }
    }

    #[test]
    fn an_impossible_limit_is_reported() {
        let constraints = Constraints { max_rollback_percent: Some(1.0), balance: None };
        let found = recluster(&[square(4, true, 1), square(4, false, 1)], constraints, 1.0);
        assert_eq!(
            found.verdict,
            "no division was found with at most 1 % rolled back; with those that come closest, changing clusters does not \
             pay off: the best sequence found has one division for all intervals, with a sum of 106.25 points; keeping the clusters \
             chosen for the first interval is as good"
        );
    }

    #[test]
    fn a_single_process_or_no_traffic_leaves_nothing_to_change() {
        for processes in [1, 5] {
            let silent = CommunicationGraph::new((0..processes).map(|it| it.to_string()).collect());
            let found = recluster(&[silent.clone(), silent], Constraints::default(), 0.0);
            assert!(found.best.changes().is_empty() && found.best.cost().is_finite(), "{found:?}");
            assert!(found.verdict.starts_with("changing clusters does not pay off"), "{}", found.verdict);
        }
    }
}
