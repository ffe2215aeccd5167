//! A program whose tasks spawn others, in a form that can be [planned](crate::plan): the tasks near the root are
//! unrolled before the run, and a plan assigns the resulting tasks to partitions.
//!
//! A task is unrolled if it [only spawns others](Program::spawns) and reads nothing that another task computes. Any
//! other task is executed as one unit, together with everything that it spawns.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Chunk, Digest, Span, TaskId, Theft, Version};

use crate::graph::{Graph, StolenTask};
use crate::program::{Access, Call, Data, Frame, Mode, Program};

/// Unrolling stops once the program has this many tasks.
const MOST_TASKS: usize = 1 << 14;

/// A program whose tasks near the root have been unrolled.
#[derive(Clone, Debug, PartialEq)]
pub struct Unrolled<G> {
    program: G,
    /// The tasks of the plan, in the order of the program. A further task, which is not listed, copies the result.
    tasks: Vec<Unit>,
    created: Vec<(Version, Chunk)>,
    result: Version,
}

/// A task of the plan.
#[derive(Clone, Debug, PartialEq)]
struct Unit {
    /// The task of the original program.
    call: Call,
    /// The accesses that the unit uses.
    accesses: Arc<[Access]>,
    /// For an unrolled task, the indices of the accesses through which the task itself writes. The tasks that it spawns
    /// are separate units.
    writes: Option<Vec<u32>>,
}

/// A task found while unrolling.
struct Node {
    unit: Unit,
    children: Vec<usize>,
}

impl<G: Program> Unrolled<G> {
    /// Unrolls a program.
    pub fn new(program: G) -> Unrolled<G> {
        let mut frame = Frame::main();
        let result = program.main(&mut frame);
        let (outcome, result) = frame.finish_main(result);
        let mut created: BTreeMap<Version, Chunk> = outcome.created.into_iter().collect();
        let mut nodes: Vec<Node> = outcome.spawned.into_iter().map(Node::whole).collect();
        let roots: Vec<usize> = (0..nodes.len()).collect();
        let mut open: VecDeque<usize> = roots.iter().copied().collect();
        while let Some(at) = open.pop_front().filter(|_| nodes.len() < MOST_TASKS) {
            let mut call = nodes[at].unit.call.clone();
            let inputs: Option<Vec<Chunk>> = call.reads().map(|it| created.get(&it).cloned()).collect();
            let Some(inputs) = inputs.filter(|_| program.spawns(&call)) else { continue };
            call.inputs = inputs;
            let mut frame = Frame::of(&call, u64::MAX);
            program.run(&call, &mut frame);
            let outcome = frame.finish();
            if outcome.spawned.is_empty() {
                continue;
            }
            created.extend(outcome.created);
            let is_passed_on = |access: &Access| {
                outcome.spawned.iter().flat_map(Call::writes).any(|version| version == access.version)
            };
            let is_written = |(index, access): &(u32, &Access)| {
                outcome.written.iter().any(|it| it.0 == *index)
                    || matches!(access.mode, Mode::Gather(_)) && !is_passed_on(access)
            };
            let writes: Vec<u32> =
                (0..).zip(call.accesses.iter()).filter(is_written).map(|(index, _)| index).collect();
            let accesses = writes.iter().map(|it| call.accesses[*it as usize]).collect();
            nodes[at].unit = Unit { call, accesses, writes: Some(writes) };
            for child in outcome.spawned {
                let place = nodes.len();
                nodes[at].children.push(place);
                open.push_back(place);
                nodes.push(Node::whole(child));
            }
        }
        let tasks = in_order(nodes, roots, |unit| program.cost(&unit.call) > Span::ZERO);
        Unrolled { program, tasks, created: created.into_iter().collect(), result }
    }

    /// Returns the original program.
    pub fn program(&self) -> &G {
        &self.program
    }

    /// Returns the number of tasks of the plan. Each of them is a piece that a plan assigns to a partition.
    pub fn pieces(&self) -> u32 {
        self.tasks.len() as u32 + 1
    }

    /// Returns the unit that a call of the plan represents, and its task with the inputs of the call; `None` for the
    /// task that copies the result.
    fn original(&self, call: &Call) -> Option<(&Unit, Call)> {
        let unit = self.tasks.get(call.args[0] as usize)?;
        let mut original = unit.call.clone();
        if unit.writes.is_none() {
            original.inputs.clone_from(&call.inputs);
        }
        Some((unit, original))
    }

    /// Runs a task and everything that it spawns. Returns the values that the task must write, each with the index of
    /// the access that writes it; the smallest number that any of the tasks published; and the total time that the
    /// tasks take.
    fn run_whole(&self, call: Call, mut hint: u64) -> (Vec<(u32, Chunk)>, Option<u64>, Span) {
        let mut graph = Graph::default();
        graph.take(Theft::NONE, StolenTask { call });
        let (mut told, mut time) = (None, Span::ZERO);
        while let Some((theft, call)) = graph.execute() {
            let mut frame = Frame::of(&call, hint);
            self.program.run(&call, &mut frame);
            time = time + self.program.cost(&call);
            let outcome = frame.finish();
            hint = outcome.told.unwrap_or(hint);
            told = outcome.told.or(told);
            graph.apply(theft, call.id, outcome);
        }
        (graph.payment(Theft::NONE).map(|it| it.written).unwrap_or_default(), told, time)
    }
}

impl Node {
    fn whole(call: Call) -> Node {
        let accesses = call.accesses.clone();
        Node { unit: Unit { call, accesses, writes: None }, children: Vec::new() }
    }
}

/// Returns the units in the order of the program, without unrolled tasks that neither write nor take time.
fn in_order(nodes: Vec<Node>, roots: Vec<usize>, takes_time: impl Fn(&Unit) -> bool) -> Vec<Unit> {
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    let mut units = Vec::new();
    let mut open: Vec<usize> = roots.into_iter().rev().collect();
    while let Some(at) = open.pop() {
        let Node { unit, children } = nodes[at].take().expect("a task is spawned once");
        open.extend(children.into_iter().rev());
        let is_empty = unit.writes.as_ref().is_some_and(Vec::is_empty);
        if !is_empty || takes_time(&unit) {
            units.push(unit);
        }
    }
    units
}

impl<G: Program> Program for Unrolled<G> {
    fn main(&self, frame: &mut Frame) -> Data {
        let call = |(index, accesses)| Call {
            id: TaskId::MAIN.child(index),
            kind: 0,
            args: Arc::from([u64::from(index)]),
            accesses,
            inputs: Vec::new(),
        };
        let result = Version { data: TaskId::MAIN.data(u32::MAX), n: 1 };
        let copy = [
            Access { mode: Mode::Read, version: self.result },
            Access { mode: Mode::Write, version: result },
        ];
        let accesses = self.tasks.iter().map(|it| it.accesses.clone()).chain([Arc::from(copy)]);
        frame.adopt((0..).zip(accesses).map(call).collect(), self.created.clone(), result)
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        let Some((unit, original)) = self.original(call) else {
            return frame.put(1, call.inputs[0].clone());
        };
        let told = match &unit.writes {
            None => {
                let (written, told, _) = self.run_whole(original, frame.hint());
                written.into_iter().for_each(|(index, chunk)| frame.put(index as usize, chunk));
                told
            }
            Some(writes) => {
                let mut own = Frame::of(&original, u64::MAX);
                self.program.run(&original, &mut own);
                let outcome = own.finish();
                for (index, chunk) in outcome.written {
                    let place = writes.iter().position(|it| *it == index);
                    frame.put(place.expect("every run of a task writes the same values"), chunk);
                }
                outcome.told
            }
        };
        told.into_iter().for_each(|it| frame.publish(it));
    }

    fn cost(&self, call: &Call) -> Span {
        match self.original(call) {
            None => Span::ZERO,
            // The tasks that a unit spawns are known only after the unit has run.
            Some((Unit { writes: None, .. }, original)) if self.program.spawns(&original) => {
                self.run_whole(original, u64::MAX).2
            }
            Some((_, original)) => self.program.cost(&original),
        }
    }

    fn digest(&self, result: &Chunk) -> Digest {
        self.program.digest(result)
    }

    fn expected(&self) -> Digest {
        self.program.expected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, in_blocks};
    use crate::programs::Flow;
    use crate::programs::fibonacci::Fibonacci;
    use crate::programs::graph::RandomGraph;
    use crate::programs::qap::{Instance, Qap};
    use crate::programs::queens::Queens;
    use crate::reference;

    fn programs() -> Vec<Flow> {
        let task_time = Span::from_millis(1);
        let random = (0..200).map(|seed| {
            Flow::Graph(RandomGraph { seed, depth: seed as u32 % 6, width: 1 + seed as u32 % 5, task_time })
        });
        let nug12 = Instance::parse(Qap::shipped("nug12").unwrap()).unwrap();
        let known = [
            Flow::Fibonacci(Fibonacci { n: 14, threshold: 5, task_time }),
            Flow::Fibonacci(Fibonacci { n: 3, threshold: 5, task_time }),
            Flow::Queens(Queens { n: 6, depth: 3, task_time }),
            Flow::Qap(Qap::new(nug12, 2, task_time)),
        ];
        known.into_iter().chain(random).collect()
    }

    #[test]
    fn an_unrolled_program_has_the_result_of_the_original() {
        let mut most = 0;
        for program in programs() {
            let unrolled = Unrolled::new(program.clone());
            let (digest, tasks) = reference(&unrolled);
            assert_eq!(digest, program.reference(), "{program:?}");
            assert_eq!(tasks, unrolled.pieces().into());
            most = most.max(tasks);
        }
        assert!(most > 100, "{most}");
    }

    #[test]
    fn an_unrolled_program_takes_the_time_of_the_original() {
        for program in programs() {
            if matches!(program, Flow::Qap(_)) {
                continue; // the number of tasks depends on hints
            }
            let work = |it| crate::extent(it).work;
            assert_eq!(crate::extent(&Unrolled::new(program.clone())).work, work(&program), "{program:?}");
        }
    }

    #[test]
    fn a_plan_of_an_unrolled_program_sends_few_values() {
        let program = Fibonacci { n: 17, threshold: 5, task_time: Span::ZERO };
        let unrolled = Unrolled::new(program.clone());
        // The leaves, the sums, and the copy of the result.
        assert_eq!(u64::from(unrolled.pieces()), 2 * (program.tasks() + 2) / 3);
        let plan = Plan::new(&unrolled, 4, &in_blocks(unrolled.pieces(), 4));
        let each: Vec<usize> =
            (0..4).map(|it| plan.tasks_of(0, faultline_core::ProcessId(it)).count()).collect();
        assert!(each.iter().all(|it| it.abs_diff(each[0]) <= 1), "{each:?}");
        assert!(plan.channels().count() <= 6, "{:?}", plan.channels().collect::<Vec<_>>());
    }
}
