//! Random programs, for finding schedules under which a protocol fails.
//!
//! A task either computes, or creates data and spawns tasks that write, change, gather into and read the data in any
//! order, and that may take over the task's right to write. A task writes a hash of its name and of everything that it
//! has read, so every wrong input affects the result. In addition, each task contributes to one sum over the whole
//! program, which reveals a lost or duplicated task even if a gathering operation hides it.

use alloc::vec::Vec;

use faultline_core::{Chunk, Span};

use super::{Invalid, at_most_tasks, in_range, mix};
use crate::program::{Call, Data, Frame, Op, Program, Use, chunk};

/// A random task. Its arguments are its name, its level and its output.
const NODE: u16 = 0;
/// Combines the value and the sum.
const RESULT: u16 = 1;

/// The largest depth. Deeper programs would differ only in size.
const MOST_DEPTH: u32 = 16;
/// The maximum number of tasks that one task may spawn.
const MOST_WIDTH: u32 = 64;
/// The maximum number of values that a task reads besides the one that it changes.
const MOST_READS: usize = 3;

/// Parameters of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RandomGraph {
    /// The seed that determines the tasks, and the data that they read and write.
    pub seed: u64,
    /// The maximum number of levels of tasks below the first level.
    pub depth: u32,
    /// The maximum number of tasks that one task spawns. A task that is not a leaf spawns at least one.
    pub width: u32,
    /// The mean duration of a task that spawns no others. Each such task takes up to twice the mean. Other
    /// tasks take no time.
    pub task_time: Span,
}

impl Default for RandomGraph {
    /// A few hundred tasks.
    fn default() -> Self {
        RandomGraph { seed: 1, depth: 5, width: 5, task_time: Span::from_millis(10) }
    }
}

impl RandomGraph {
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        in_range("depth", self.depth.into(), 0, MOST_DEPTH.into())?;
        in_range("width", self.width.into(), 1, MOST_WIDTH.into())?;
        let levels =
            core::iter::successors(Some(1u64), |level| Some(level.saturating_mul(self.width.into())));
        at_most_tasks(
            levels.take(self.depth as usize + 1).fold(1, u64::saturating_add),
            "lower `depth` or `width`",
        )
    }

    /// Computes the result by executing everything in program order.
    pub(super) fn reference(&self) -> Chunk {
        let mut sum = [0; 2];
        let value = self.compute(&Node::first(self), &[], &mut sum);
        chunk(&[value, sum[0], sum[1]])
    }

    /// Returns the value that the task, together with everything that it spawns, writes or contributes.
    fn compute(&self, node: &Node, inputs: &[u64], sum: &mut [u64; 2]) -> u64 {
        *sum = [sum[0].wrapping_add(mix(node.name)), sum[1] + 1];
        let hash = node.hash(inputs.iter().copied());
        let Some(plan) = node.plan(self) else { return mix(hash) };
        // The value of each piece of data, and the operation with which it is being gathered. The last one is the
        // task's own output.
        let mut data: Vec<(u64, Option<Op>)> = (0..plan.own).map(|it| (initial(hash, it), None)).collect();
        data.push((
            if node.output == Output::Change { inputs[0] } else { mix(hash) },
            node.output.operation(),
        ));
        let mut hands_on = false;
        for Child { node: child, target, reads } in &plan.children {
            let changed = (child.output == Output::Change).then_some(target);
            let mut inputs = Vec::new();
            for &read in changed.into_iter().chain(reads) {
                data[read].1 = None;
                inputs.push(data[read].0);
            }
            let value = self.compute(child, &inputs, sum);
            let operation = child.output.operation();
            data[*target] = match operation {
                Some(op) if data[*target].1 == operation => (combine(op, data[*target].0, value), operation),
                _ => (value, operation),
            };
            hands_on |= *target == plan.own;
        }
        if hands_on || node.output.operation().is_some() { data[plan.own].0 } else { mix(hash) }
    }
}

impl Program for RandomGraph {
    fn main(&self, frame: &mut Frame) -> Data {
        let (value, sum, result) = (frame.data(), frame.data(), frame.data());
        frame.spawn(NODE, &Node::first(self).args(), &[Use::Write(value), Use::Gather(sum, Op::Sum)]);
        frame.spawn(RESULT, &[], &[Use::Read(value), Use::Read(sum), Use::Write(result)]);
        result
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        if call.kind == RESULT {
            let words: Vec<u64> = (0..2).flat_map(|input| call.words(input)).collect();
            frame.put(2, chunk(&words));
            return;
        }
        let node = Node::of(&call.args);
        // Accesses: first the data that the task changes; then its output, the sum, and the data that it reads.
        let output = usize::from(node.output == Output::Change);
        frame.put(output + 1, chunk(&[mix(node.name), 1]));
        let inputs = (0..call.inputs.len()).map(|it| call.words(it).first().copied().unwrap_or(0));
        let hash = node.hash(inputs);
        let Some(plan) = node.plan(self) else {
            frame.put(output, chunk(&[mix(hash)]));
            return;
        };
        let sum = frame.own(output + 1);
        let mut data: Vec<Data> = (0..plan.own).map(|it| frame.value(chunk(&[initial(hash, it)]))).collect();
        data.push(frame.own(output));
        for Child { node: child, target, reads } in &plan.children {
            let target = data[*target];
            let mut uses = Vec::from([
                match child.output {
                    Output::Write => Use::Write(target),
                    Output::Change => Use::Exclusive(target),
                    Output::Gather(op) => Use::Gather(target, op),
                },
                Use::Gather(sum, Op::Sum),
            ]);
            uses.extend(reads.iter().map(|&it| Use::Read(data[it])));
            frame.spawn(NODE, &child.args(), &uses);
        }
        let hands_on = plan.children.iter().any(|it| it.target == plan.own);
        if !hands_on || node.output.operation().is_some() {
            frame.put(output, chunk(&[mix(hash)]));
        }
    }

    fn spawns(&self, call: &Call) -> bool {
        call.kind == NODE && !Node::of(&call.args).is_leaf(self)
    }

    fn cost(&self, call: &Call) -> Span {
        if call.kind == RESULT {
            return Span::ZERO;
        }
        let node = Node::of(&call.args);
        let percent = mix(!node.name) % 201;
        if node.is_leaf(self) { Span(self.task_time.0 / 100 * percent) } else { Span::ZERO }
    }
}

/// How a task uses its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Write,
    /// Reads the previous value, and writes the next one.
    Change,
    Gather(Op),
}

impl Output {
    const ALL: [Output; 5] = [
        Output::Write,
        Output::Change,
        Output::Gather(Op::Sum),
        Output::Gather(Op::Least),
        Output::Gather(Op::Greatest),
    ];

    fn operation(self) -> Option<Op> {
        if let Output::Gather(op) = self { Some(op) } else { None }
    }
}

/// A task, decoded from its arguments.
#[derive(Clone, Copy, Debug)]
struct Node {
    name: u64,
    level: u32,
    output: Output,
}

/// The actions of a task that spawns others.
#[derive(Clone, Debug)]
struct Plan {
    /// The number of pieces of data that the task creates. As an index, this number refers to the task's own output.
    own: usize,
    children: Vec<Child>,
}

#[derive(Clone, Debug)]
struct Child {
    node: Node,
    /// The data that the child writes.
    target: usize,
    /// The other data that the child reads.
    reads: Vec<usize>,
}

impl Node {
    fn first(graph: &RandomGraph) -> Node {
        Node { name: mix(graph.seed), level: 0, output: Output::Write }
    }

    fn args(&self) -> [u64; 3] {
        let output = Output::ALL.iter().position(|it| *it == self.output).expect("`ALL` lists every output");
        [self.name, self.level.into(), output as u64]
    }

    fn of(args: &[u64]) -> Node {
        Node { name: args[0], level: args[1] as u32, output: Output::ALL[args[2] as usize] }
    }

    /// Hashes the task's name and everything that it has read.
    fn hash(&self, inputs: impl Iterator<Item = u64>) -> u64 {
        inputs.fold(mix(self.name ^ 1), |hash, input| mix(hash ^ input.rotate_left(7)))
    }

    fn is_leaf(&self, graph: &RandomGraph) -> bool {
        self.level >= graph.depth || (self.level > 0 && mix(self.name ^ 2).is_multiple_of(4))
    }

    /// Returns the plan of a task; `None` if it spawns no others.
    fn plan(&self, graph: &RandomGraph) -> Option<Plan> {
        if self.is_leaf(graph) {
            return None;
        }
        let mut state = mix(self.name ^ 3);
        let mut draw = |below: usize| {
            state = mix(state);
            (state % below as u64) as usize
        };
        let own = 1 + draw(3);
        // Whether the task's own output has been passed on, and whether it has a value that can be read.
        let (mut is_given, mut is_readable) = (false, self.output == Output::Change);
        let mut children = Vec::new();
        for index in 0..1 + draw(graph.width as usize) as u64 {
            let (target, output) = match self.output {
                Output::Gather(_) if draw(3) == 0 => (own, self.output),
                Output::Write if !is_given && draw(3) == 0 => (own, Output::Write),
                Output::Change if !is_given && draw(3) == 0 => {
                    (own, [Output::Write, Output::Change][draw(2)])
                }
                _ => (draw(own), Output::ALL[draw(Output::ALL.len())]),
            };
            let readable = own + usize::from(is_readable);
            let reads =
                (0..draw(MOST_READS + 1)).map(|_| draw(readable)).filter(|&it| it != target).collect();
            if target == own && output.operation().is_none() {
                (is_given, is_readable) = (true, true);
            }
            let node = Node { name: mix(self.name ^ mix(index + 4)), level: self.level + 1, output };
            children.push(Child { node, target, reads });
        }
        Some(Plan { own, children })
    }
}

/// Returns the initial value of a piece of data.
fn initial(hash: u64, number: usize) -> u64 {
    mix(hash ^ number as u64)
}

fn combine(op: Op, one: u64, other: u64) -> u64 {
    match op {
        Op::Sum => one.wrapping_add(other),
        Op::Least => one.min(other),
        Op::Greatest => one.max(other),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, testing};
    use super::*;

    fn graph(seed: u64, depth: u32, width: u32) -> RandomGraph {
        RandomGraph { seed, depth, width, task_time: Span::ZERO }
    }

    #[test]
    fn the_task_version_computes_the_sequential_result() {
        let tasks = (0..500).map(|seed| {
            let program = Flow::Graph(graph(seed, seed as u32 % 6, 1 + seed as u32 % 7));
            testing::agrees_with_its_reference(&program)
        });
        assert!(tasks.max() > Some(1000), "some are large");
    }

    #[test]
    fn the_first_task_spawns_others() {
        let is_leaf = |it: &RandomGraph| Node::first(it).is_leaf(it);
        assert!((0..20).all(|seed| !is_leaf(&graph(seed, 1, 1)) && is_leaf(&graph(seed, 0, 1))));
    }

    #[test]
    fn a_task_that_is_lost_or_counted_twice_changes_the_result() {
        for seed in 1..6 {
            let program = (0..).map(|it| graph(seed * 1000 + it, 4, 4));
            let large = |it: &RandomGraph| {
                (30..300).contains(&testing::agrees_with_its_reference(&Flow::Graph(it.clone())))
            };
            testing::every_task_matters(&Flow::Graph(program.into_iter().find(large).unwrap()));
        }
    }

    #[test]
    fn a_program_that_does_not_fit_in_memory_is_refused() {
        assert!(matches!(graph(1, 16, 8).validate(), Err(Invalid::TooManyTasks { .. })));
        assert!(matches!(graph(1, 2, 0).validate(), Err(Invalid::OutOfRange { field: "width", .. })));
        assert_eq!(RandomGraph::default().validate(), Ok(()));
    }
}
