//! Solves the quadratic assignment problem by branch and bound: assigns facilities to locations such that the total
//! cost of the flows over the distances is minimal.
//!
//! A task is given the locations of the first facilities. If even the best possible completion costs more than the
//! cheapest known assignment, the task ends. Otherwise, it spawns a task for each possible location of the next
//! facility, and one that combines their results. At the configured depth, a task searches without spawning.
//!
//! The lowest cost known is a [hint](Frame::hint). It only decreases; a task with an outdated hint searches more, but
//! finds the same assignments. A task prunes only strictly worse assignments, so every execution finds *all* cheapest
//! assignments.
//!
//! A result consists of four words: the cost, the number of assignments with that cost, the sum of their hashes, and a
//! proof that the search was exhaustive. For the proof, assignments are numbered in the order in which a sequential
//! search would visit them. A task that spawns no others is responsible for an interval of these numbers, pruned or
//! not, and contributes a hash of its end minus a hash of its beginning. If the intervals of all tasks are adjacent,
//! without gaps or overlaps, all hashes cancel except those of the two outer ends; otherwise, other hashes remain.

mod bound;
mod instance;
mod reference;

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Chunk, Span};

use self::bound::Partial;
pub use self::instance::{Instance, MOST, Malformed};
use super::{Invalid, at_most_tasks, in_range, mix};
use crate::program::{Call, Data, Frame, Program, Use, chunk};

/// Searches the completions of a partial assignment. The arguments are the locations of the first facilities.
const NODE: u16 = 0;
/// Combines the results of the tasks for all possible locations of a facility.
const COMBINE: u16 = 1;

/// The greatest [estimated](Qap::estimated_nodes) number of partial assignments that a search examines. On current
/// machines, this takes about an hour.
const MOST_NODES: f64 = 1e9;

/// Parameters of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Qap {
    /// The instance to solve.
    pub instance: Arc<Instance>,
    /// The number of facilities whose locations are chosen by separate tasks. The tasks at this depth choose the
    /// locations of all others.
    pub depth: u32,
    /// The time that a task at this depth takes. Other tasks take no time.
    pub task_time: Span,
    /// The cost of the assignment with which the search starts.
    start: u64,
}

impl Qap {
    /// Creates a search that starts with the assignment found by descent, which exchanges two locations at a time.
    pub fn new(instance: Instance, depth: u32, task_time: Span) -> Qap {
        let start = descent(&instance);
        Qap { instance: Arc::new(instance), depth, task_time, start }
    }

    /// Returns the text of a built-in instance, or `None` if no instance has this name. The instances are by
    /// C. E. Nugent, T. E. Vollmann and J. Ruml (Operations Research 16, 1968), as collected in QAPLIB (R. E.
    /// Burkard, S. E. Karisch and F. Rendl, Journal of Global Optimization 10, 1997); the optimal costs are
    /// 578, 1014 and 1150.
    pub fn shipped(name: &str) -> Option<&'static str> {
        match name {
            "nug12" => Some(instance::NUG12),
            "nug14" => Some(instance::NUG14),
            "nug15" => Some(instance::NUG15),
            _ => None,
        }
    }

    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let n = self.instance.n as u64;
        in_range("depth", self.depth.into(), 0, n)?;
        let mut level = 1u64;
        let mut tasks = level;
        for placed in 0..u64::from(self.depth) {
            // Each of these tasks adds one task that combines results.
            tasks = tasks.saturating_add(level);
            level = level.saturating_mul(n - placed);
            tasks = tasks.saturating_add(level);
        }
        at_most_tasks(tasks, "lower `depth`")?;
        match self.estimated_nodes() {
            nodes if nodes > MOST_NODES => Err(Invalid::TooLong { nodes, most: MOST_NODES }),
            _ => Ok(()),
        }
    }

    /// Estimates how many partial assignments a search examines that never finds a cheaper assignment than the first:
    /// each of a few random paths through the tree counts as one of many that branch alike (D. E. Knuth, Mathematics of
    /// Computation 29, 1975).
    fn estimated_nodes(&self) -> f64 {
        const PATHS: u64 = 16;
        let of_path = |path: u64| {
            let mut node = Partial::new(&self.instance, &[]);
            let (mut nodes, mut alike) = (1.0, 1.0);
            loop {
                let children = node.free.iter().map(|&location| node.with(location));
                let mut open: Vec<Partial<'_>> = children.filter(|it| it.bound() <= self.start).collect();
                if open.is_empty() {
                    return nodes;
                }
                alike *= open.len() as f64;
                nodes += alike;
                let drawn = mix(path << 32 | open.len() as u64 ^ node.locations.len() as u64) as usize;
                node = open.swap_remove(drawn % open.len());
            }
        };
        (0..PATHS).map(of_path).sum::<f64>() / PATHS as f64
    }

    /// Computes the result in one sequential search.
    pub(super) fn reference(&self) -> Chunk {
        reference::search(&self.instance)
    }

    /// Searches all completions of a partial assignment.
    fn search(&self, node: &Partial<'_>, found: &mut Found) {
        if node.free.is_empty() {
            found.assignment(node);
        } else if node.bound() <= found.cost {
            node.free.iter().for_each(|&location| self.search(&node.with(location), found));
        }
    }

    /// Returns the number of the first completion of a partial assignment and one more than the number of the last, in
    /// the order of a sequential search, modulo 2^64.
    fn interval(&self, locations: &[u64]) -> (u64, u64) {
        let n = self.instance.n as u64;
        let mut free: Vec<u64> = (0..n).collect();
        let mut first = 0u64;
        for location in locations {
            let index = free.iter().position(|it| it == location).expect("a location is chosen once");
            free.remove(index);
            first = first.wrapping_add((index as u64).wrapping_mul(factorial(free.len())));
        }
        (first, first.wrapping_add(factorial(free.len())))
    }
}

impl Program for Qap {
    fn main(&self, frame: &mut Frame) -> Data {
        let result = frame.data();
        frame.spawn(NODE, &[], &[Use::Write(result)]);
        result
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        if call.kind == COMBINE {
            let children = call.inputs.len();
            let found = (0..children).map(|child| Found::read(&call.words(child)));
            frame.put(children, found.fold(Found::nothing(), Found::and).chunk());
            return;
        }
        let locations: Vec<usize> = call.args.iter().map(|&it| it as usize).collect();
        let node = Partial::new(&self.instance, &locations);
        let mut found = Found { cost: self.start.min(frame.hint()), ..Found::nothing() };
        if locations.len() < self.depth as usize && node.bound() <= found.cost {
            let result = frame.own(0);
            let mut uses = Vec::new();
            for &location in &node.free {
                let args: Vec<u64> = call.args.iter().copied().chain([location as u64]).collect();
                let of_child = frame.data();
                frame.spawn(NODE, &args, &[Use::Write(of_child)]);
                uses.push(Use::Read(of_child));
            }
            uses.push(Use::Write(result));
            frame.spawn(COMBINE, &[], &uses);
            return;
        }
        self.search(&node, &mut found);
        if found.assignments == 0 {
            // Another task accounts for the cost.
            found.cost = u64::MAX;
        } else {
            frame.publish(found.cost);
        }
        let (first, end) = self.interval(&call.args);
        found.searched = mix(end).wrapping_sub(mix(first));
        frame.put(0, found.chunk());
    }

    fn spawns(&self, call: &Call) -> bool {
        call.kind == NODE && call.args.len() < self.depth as usize
    }

    fn cost(&self, call: &Call) -> Span {
        let searches = call.kind == NODE && call.args.len() >= self.depth as usize;
        if searches { self.task_time } else { Span::ZERO }
    }
}

/// The result of a part of the search.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The least cost.
    cost: u64,
    /// The number of assignments with this cost.
    assignments: u64,
    /// The sum of the hashes of these assignments.
    hashes: u64,
    /// The proof that the whole part was searched.
    searched: u64,
}

impl Found {
    fn nothing() -> Found {
        Found { cost: u64::MAX, assignments: 0, hashes: 0, searched: 0 }
    }

    /// Records a complete assignment, unless it is worse than those found so far.
    fn assignment(&mut self, node: &Partial<'_>) {
        let hash = node.locations.iter().fold(0, |hash, &location| mix(hash ^ location as u64));
        if node.cost < self.cost {
            *self = Found { cost: node.cost, assignments: 1, hashes: hash, ..*self };
        } else if node.cost == self.cost {
            self.assignments += 1;
            self.hashes = self.hashes.wrapping_add(hash);
        }
    }

    fn and(self, other: Found) -> Found {
        let cost = self.cost.min(other.cost);
        let mut both = Found { cost, ..Found::nothing() };
        for part in [self, other] {
            if part.cost == cost {
                both.assignments = both.assignments.wrapping_add(part.assignments);
                both.hashes = both.hashes.wrapping_add(part.hashes);
            }
            both.searched = both.searched.wrapping_add(part.searched);
        }
        both
    }

    fn read(words: &[u64]) -> Found {
        let word = |index| words.get(index).copied().unwrap_or(0);
        Found { cost: word(0), assignments: word(1), hashes: word(2), searched: word(3) }
    }

    fn chunk(self) -> Chunk {
        chunk(&[self.cost, self.assignments, self.hashes, self.searched])
    }
}

/// Returns the cost of an assignment that no exchange of two locations makes cheaper.
fn descent(instance: &Instance) -> u64 {
    let mut locations: Vec<usize> = (0..instance.n).collect();
    let mut cost = Partial::new(instance, &locations).cost;
    loop {
        let before = cost;
        for one in 0..instance.n {
            for other in 0..one {
                locations.swap(one, other);
                match Partial::new(instance, &locations).cost {
                    cheaper if cheaper < cost => cost = cheaper,
                    _ => locations.swap(one, other),
                }
            }
        }
        if cost == before {
            return cost;
        }
    }
}

/// The factorial modulo 2^64.
fn factorial(n: usize) -> u64 {
    (1..=n as u64).fold(1, u64::wrapping_mul)
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use super::super::{Flow, testing};
    use super::*;
    use crate::program::words;
    use faultline_core::TaskId;

    /// Returns a random asymmetric instance, with flows from facilities to themselves.
    fn random(n: usize, seed: u64) -> Instance {
        let entry = |it: usize| mix(seed * 1000 + it as u64) % 10;
        let entries: String = (0..2 * n * n).map(|it| format!("{} ", entry(it))).collect();
        Instance::parse(&format!("{n}\n{entries}")).unwrap()
    }

    fn qap(instance: Instance, depth: u32) -> Qap {
        Qap::new(instance, depth, Span::ZERO)
    }

    /// Finds the least cost, and the number of assignments with that cost, by trying all assignments and adding up the
    /// costs of all pairs.
    fn by_trying(instance: &Instance, at: &mut Vec<usize>, best: &mut (u64, u64)) {
        let n = instance.n;
        if at.len() < n {
            for location in 0..n {
                if !at.contains(&location) {
                    at.push(location);
                    by_trying(instance, at, best);
                    at.pop();
                }
            }
            return;
        }
        let pairs = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
        let cost = pairs.map(|(i, j)| instance.flows_of(i)[j] * instance.distances_of(at[i])[at[j]]).sum();
        *best = match cost {
            cost if cost < best.0 => (cost, 1),
            cost if cost == best.0 => (cost, best.1 + 1),
            _ => *best,
        };
    }

    #[test]
    fn only_tasks_that_spawn_no_others_take_time() {
        let program = Qap { task_time: Span(7), ..qap(random(3, 1), 1) };
        let cost = |kind, args: &[u64]| {
            program.cost(&Call {
                id: TaskId::MAIN,
                kind,
                args: args.into(),
                accesses: [].into(),
                inputs: Vec::new(),
            })
        };
        let costs = [cost(NODE, &[]), cost(NODE, &[0]), cost(NODE, &[0, 1]), cost(COMBINE, &[0])];
        assert_eq!(costs, [Span::ZERO, Span(7), Span(7), Span::ZERO]);
    }

    #[test]
    fn the_reference_agrees_with_exhaustive_search() {
        for seed in 0..30 {
            let instance = random(2 + seed as usize % 5, seed);
            let mut best = (u64::MAX, 0);
            by_trying(&instance, &mut Vec::new(), &mut best);
            let found = words(&qap(instance, 0).reference());
            assert_eq!((found[0], found[1]), best, "seed {seed}");
        }
    }

    #[test]
    fn the_task_version_computes_the_sequential_result() {
        for seed in 0..30 {
            let n = 2 + seed as u32 % 5;
            for depth in 0..=n {
                testing::agrees_with_its_reference(&Flow::Qap(qap(random(n as usize, seed), depth)));
            }
        }
    }

    #[test]
    fn the_optimum_of_nug12_is_the_published_one() {
        let program = qap(Instance::parse(instance::NUG12).unwrap(), 3);
        assert!(program.start > 578, "the search can improve its start");
        let found = words(&program.reference());
        // The rows and the columns of the 3 x 4 grid can be reflected, which turns one optimal assignment into four.
        assert_eq!((found[0], found[1]), (578, 4));
        testing::agrees_with_its_reference(&Flow::Qap(program));
    }

    #[test]
    #[ignore = "takes a minute: run by the step `instances` of .ci/run"]
    fn the_optima_of_the_other_shipped_instances_are_the_published_ones() {
        for (name, cost) in [("nug14", 1014), ("nug15", 1150)] {
            let program = qap(Instance::parse(Qap::shipped(name).unwrap()).unwrap(), 4);
            assert_eq!(words(&program.reference())[0], cost, "{name}");
            testing::agrees_with_its_reference(&Flow::Qap(program));
        }
    }

    #[test]
    fn hints_change_the_search_but_not_the_result() {
        let program = qap(random(6, 7), 3);
        let expected = program.reference();
        for hint in [words(&expected)[0], program.start, u64::MAX] {
            assert_eq!(testing::with_hint(&program, hint), expected, "hint {hint}");
        }
    }

    #[test]
    fn a_task_that_is_lost_or_counted_twice_changes_the_result() {
        testing::every_task_matters(&Flow::Qap(qap(random(5, 3), 3)));
    }

    #[test]
    fn an_instance_that_would_be_searched_for_ever_is_rejected() {
        for (name, depth) in [("nug12", 3), ("nug14", 4), ("nug15", 4)] {
            let program = qap(Instance::parse(Qap::shipped(name).unwrap()).unwrap(), depth);
            assert_eq!(program.validate(), Ok(()), "{name}: {}", program.estimated_nodes());
        }
        let equal = |n: usize| Instance::parse(&format!("{n} {}", "1 ".repeat(2 * n * n))).unwrap();
        // All assignments are equally cheap, so the estimate is exact: the sum of 8!/k! for k from 0 to 8.
        assert_eq!(qap(equal(8), 1).estimated_nodes(), 109_601.0);
        let refused = qap(equal(15), 1).validate().unwrap_err();
        assert!(matches!(refused, Invalid::TooLong { nodes, .. } if nodes > 1e12), "{refused}");
    }

    #[test]
    fn built_in_instances_can_be_read() {
        for (name, n) in [("nug12", 12), ("nug14", 14), ("nug15", 15)] {
            let instance = Instance::parse(Qap::shipped(name).unwrap()).unwrap();
            assert_eq!(instance.n, n);
            let symmetric = |of: fn(&Instance, usize) -> &[u64]| {
                (0..n).all(|i| (0..n).all(|j| of(&instance, i)[j] == of(&instance, j)[i]))
            };
            assert!(symmetric(Instance::flows_of) && symmetric(Instance::distances_of), "{name}");
        }
        assert_eq!(Qap::shipped("nug13"), None);
    }
}
