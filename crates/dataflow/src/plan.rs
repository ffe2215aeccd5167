//! The static schedule of a program: which partition runs each task that the first task spawns, and which values are
//! sent between partitions.
//!
//! Every process plans the program in the same way, so tasks, values and messages have the same names in all processes
//! and executions. Equal steps share one shape, so a loop is stored once.
//!
//! Only the tasks that the first task spawns are planned. In a planned program, they spawn no tasks.

mod urgency;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{Chunk, DataId, Incarnation, MessageId, ProcessId, TaskId, Version};
use serde::{Deserialize, Serialize};

use crate::program::{Access, Call, Frame, Mode, Op, Program};

/// Identifies a task that the program's first task spawns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskNo {
    /// The step of the task.
    pub step: u32,
    /// The position of the task within its step, in the order of spawning.
    pub index: u32,
}

/// A value that one task writes, once, through one of its accesses. A gathered value consists of several such values,
/// one per contributing task; the reader combines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Value {
    /// The task that writes the value.
    pub task: TaskNo,
    /// The index of the access among those that are not reads.
    pub output: u32,
}

/// The schedule of a program. Each partition has the name of the rank to which it belongs.
#[derive(Clone, Debug)]
pub struct Plan {
    partitions: u32,
    steps: Vec<Arc<Step>>,
    /// The number of tasks before each step.
    before: Vec<u32>,
    /// All pairs of a sending and a receiving partition, each with its index among a step's entries in `numbers`.
    channels: BTreeMap<(ProcessId, ProcessId), usize>,
    /// For each step in turn: the first message number of each channel.
    numbers: Vec<u32>,
    result: Value,
    reach: u32,
    /// The slack of each task, by step and index. Empty unless [`Plan::sending_first`] was called.
    slack: Vec<Arc<[u16]>>,
}

/// The tasks of a step. References to tasks of other steps are relative to this step, so that equal steps compare
/// equal.
#[derive(Clone, Debug, Default, PartialEq)]
struct Step {
    tasks: Vec<Planned>,
    /// Tasks by partition.
    tasks_of: Vec<Vec<u32>>,
}

/// A task of a step.
#[derive(Clone, Debug, PartialEq)]
struct Planned {
    partition: ProcessId,
    kind: u16,
    args: Arc<[u64]>,
    /// Accesses with versions counted from the first one that the task uses, so that equal steps of a loop
    /// compare equal.
    accesses: Arc<[Access]>,
    reads: Vec<Gathered>,
    outputs: Vec<Output>,
}

/// The source of the value that one access reads.
#[derive(Clone, Debug, PartialEq)]
struct Gathered {
    /// How several contributions are combined.
    op: Op,
    from: Vec<Source>,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// A value that the first task created.
    Literal(Chunk),
    /// The output of a task in this step or in a step before it.
    Written { back: u32, index: u32, output: u32 },
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Output {
    /// The tasks that read the value, each as the number of steps from this step to its own, and its index within that
    /// step.
    readers: Vec<(u32, u32)>,
    /// Other partitions that read the value, each with the index of the value among those that the task's partition
    /// sends to it in this step.
    sends: Vec<(ProcessId, u32)>,
}

impl Plan {
    /// Plans `program` for `partitions` partitions. Piece `i` of the program belongs to partition `pieces[i]`; pieces
    /// beyond the list are distributed round-robin. If the program assigns a task to no piece, its index within its
    /// step serves as its piece.
    ///
    /// # Panics
    ///
    /// Panics if there are no partitions, if a piece is assigned to a partition that does not exist, or if the result
    /// of the program is not written by exactly one of the planned tasks.
    pub fn new<G: Program>(program: &G, partitions: u32, pieces: &[u32]) -> Plan {
        assert!(partitions > 0, "a plan has at least one partition");
        assert!(
            pieces.iter().all(|it| *it < partitions),
            "a piece belongs to a partition that does not exist"
        );
        let mut frame = Frame::main();
        let result = program.main(&mut frame);
        let (outcome, result, marks) = frame.finish_planned(result);
        let mut writers: BTreeMap<Version, (Op, Vec<Value>)> = BTreeMap::new();
        let literals: BTreeMap<Version, Chunk> = outcome.created.into_iter().collect();
        let (mut steps, mut before) = (vec![Step::default()], vec![0]);
        let (mut starts, mut places) =
            (marks.steps.into_iter().peekable(), marks.pieces.into_iter().peekable());
        let mut piece = None;
        let mut reach = 0;
        for (ordinal, call) in outcome.spawned.into_iter().enumerate() {
            while starts.next_if(|start| *start <= ordinal).is_some() {
                steps.push(Step::default());
                before.push(ordinal as u32);
            }
            while let Some((_, it)) = places.next_if(|(from, _)| *from <= ordinal) {
                piece = Some(it);
            }
            let step = steps.len() as u32 - 1;
            let no = TaskNo { step, index: steps[step as usize].tasks.len() as u32 };
            let piece = piece.unwrap_or(no.index);
            let partition = pieces.get(piece as usize).copied().unwrap_or(piece % partitions);
            let (mut reads, mut outputs) = (Vec::new(), Vec::new());
            for Access { mode, version } in call.accesses.iter() {
                let op = match mode {
                    Mode::Read => {
                        let from = sources(no, &literals, writers.get(version), *version);
                        for value in from.1 {
                            reach = reach.max(no.step - value.task.step);
                            let of = &mut steps[value.task.step as usize].tasks[value.task.index as usize];
                            let output = &mut of.outputs[value.output as usize];
                            output.readers.push((no.step - value.task.step, no.index));
                        }
                        reads.push(from.0);
                        continue;
                    }
                    Mode::Write => Op::Sum,
                    Mode::Gather(op) => *op,
                };
                let value = Value { task: no, output: outputs.len() as u32 };
                writers.entry(*version).or_insert((op, Vec::new())).1.push(value);
                outputs.push(Output::default());
            }
            let (kind, accesses) = (call.kind, counted_from_first(&call.accesses));
            let planned =
                Planned { partition: ProcessId(partition), kind, args: call.args, accesses, reads, outputs };
            steps[step as usize].tasks.push(planned);
        }
        let result = match writers.get(&result).map(|(_, values)| values.as_slice()) {
            Some([value]) => *value,
            _ => panic!("the result of a planned program must be written by exactly one task"),
        };
        let mut plan = Plan {
            partitions,
            steps: Vec::new(),
            before,
            channels: BTreeMap::new(),
            numbers: Vec::new(),
            result,
            reach,
            slack: Vec::new(),
        };
        plan.find_channels(&mut steps);
        plan.share_shapes(steps);
        plan
    }

    /// Finds the senders and receivers of all values, from the partitions of their readers.
    fn find_channels(&mut self, steps: &mut [Step]) {
        let partitions: Vec<Vec<ProcessId>> =
            steps.iter().map(|step| step.tasks.iter().map(|it| it.partition).collect()).collect();
        let mut counts: Vec<BTreeMap<(ProcessId, ProcessId), u32>> = Vec::new();
        for (no, step) in steps.iter_mut().enumerate() {
            step.tasks_of = vec![Vec::new(); self.partitions as usize];
            let mut count: BTreeMap<(ProcessId, ProcessId), u32> = BTreeMap::new();
            for (index, task) in step.tasks.iter_mut().enumerate() {
                let from = task.partition;
                step.tasks_of[from.index()].push(index as u32);
                for output in &mut task.outputs {
                    let of = |(ahead, index): &(u32, u32)| partitions[no + *ahead as usize][*index as usize];
                    let to: BTreeSet<ProcessId> = output.readers.iter().map(of).collect();
                    for to in to.into_iter().filter(|it| *it != from) {
                        let next = count.entry((from, to)).or_default();
                        output.sends.push((to, *next));
                        *next += 1;
                    }
                }
            }
            counts.push(count);
        }
        let all: BTreeSet<(ProcessId, ProcessId)> = counts.iter().flat_map(|it| it.keys().copied()).collect();
        self.channels = all.into_iter().zip(0..).collect();
        let mut next = vec![0; self.channels.len()];
        for count in counts {
            self.numbers.extend(&next);
            for (channel, count) in count {
                next[self.channels[&channel]] += count;
            }
        }
    }

    /// Stores one shape for each kind of step.
    fn share_shapes(&mut self, steps: Vec<Step>) {
        /// A loop has only a few kinds of step; this limits the search in a program without loops.
        const SEARCHED: usize = 8;
        let mut shapes: Vec<Arc<Step>> = Vec::new();
        for step in steps {
            let known = shapes.iter().rev().take(SEARCHED).find(|it| ***it == step).cloned();
            let shape = known.unwrap_or_else(|| {
                shapes.push(Arc::new(step));
                shapes[shapes.len() - 1].clone()
            });
            self.steps.push(shape);
        }
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> u32 {
        self.steps.len() as u32
    }

    /// Returns the number of distinct steps stored.
    pub fn shapes(&self) -> usize {
        let all: BTreeSet<*const Step> = self.steps.iter().map(Arc::as_ptr).collect();
        all.len()
    }

    /// Returns the largest number of steps between the task that writes a value and the last task that reads it.
    pub fn reach(&self) -> u32 {
        self.reach
    }

    /// Returns the value that is the result of the program.
    pub fn result(&self) -> Value {
        self.result
    }

    /// Returns all ordered pairs of partitions in which the first sends at least one value to the second.
    pub fn channels(&self) -> impl Iterator<Item = (ProcessId, ProcessId)> + '_ {
        self.channels.keys().copied()
    }

    /// Returns the partitions that send at least one value to this one.
    pub fn senders_to(&self, partition: ProcessId) -> Vec<ProcessId> {
        self.channels().filter(|(_, to)| *to == partition).map(|(from, _)| from).collect()
    }

    /// Returns the partitions to which this one sends at least one value.
    pub fn receivers_of(&self, partition: ProcessId) -> Vec<ProcessId> {
        self.channels().filter(|(from, _)| *from == partition).map(|(_, to)| to).collect()
    }

    /// Returns the number of values that each channel carries.
    pub fn traffic(&self) -> BTreeMap<(ProcessId, ProcessId), u64> {
        let mut all = BTreeMap::new();
        for (step, shape) in (0..).zip(&self.steps) {
            for index in 0..shape.tasks.len() as u32 {
                for value in self.outputs(TaskNo { step, index }) {
                    for id in self.messages(value) {
                        *all.entry((id.from, id.to)).or_default() += 1;
                    }
                }
            }
        }
        all
    }

    /// Returns the tasks of a partition in a step.
    pub fn tasks_of(&self, step: u32, partition: ProcessId) -> impl Iterator<Item = TaskNo> + '_ {
        let tasks = &self.steps[step as usize].tasks_of[partition.index()];
        tasks.iter().map(move |index| TaskNo { step, index: *index })
    }

    /// Returns the partition of a task.
    pub fn partition_of(&self, task: TaskNo) -> ProcessId {
        self.planned(task).partition
    }

    /// Returns the values that a task reads, except those that the first task created.
    pub fn sources(&self, task: TaskNo) -> impl Iterator<Item = Value> + '_ {
        self.planned(task).reads.iter().flat_map(|read| &read.from).filter_map(move |it| it.value(task))
    }

    /// Returns the values that a task writes.
    pub fn outputs(&self, task: TaskNo) -> impl Iterator<Item = Value> + use<> {
        (0..self.planned(task).outputs.len() as u32).map(move |output| Value { task, output })
    }

    /// Returns the tasks that read a value.
    pub fn readers(&self, value: Value) -> impl Iterator<Item = TaskNo> + '_ {
        let Value { task, output } = value;
        let readers = &self.planned(task).outputs[output as usize].readers;
        readers.iter().map(move |(ahead, index)| TaskNo { step: task.step + ahead, index: *index })
    }

    /// Returns the messages that carry a value.
    pub fn messages(&self, value: Value) -> impl Iterator<Item = MessageId> + '_ {
        let planned = self.planned(value.task);
        let from = planned.partition;
        planned.outputs[value.output as usize].sends.iter().map(move |(to, place)| {
            let channel = self.channels[&(from, *to)];
            let number = self.numbers[value.task.step as usize * self.channels.len() + channel] + place;
            MessageId { from, to: *to, incarnation: Incarnation(0), number }
        })
    }

    /// Returns the name of a task, which is the same as in an execution with work stealing.
    pub fn name(&self, task: TaskNo) -> TaskId {
        TaskId::MAIN.child(self.before[task.step as usize] + task.index)
    }

    /// Returns a task with its inputs. `value` supplies those that tasks wrote.
    pub fn call(&self, task: TaskNo, mut value: impl FnMut(Value) -> Option<Chunk>) -> Call {
        let planned = self.planned(task);
        let mut input = |Gathered { op, from }: &Gathered| {
            let contributions = from.iter().filter_map(|it| match it {
                Source::Literal(chunk) => Some(chunk.clone()),
                Source::Written { .. } => it.value(task).and_then(&mut value),
            });
            contributions.reduce(|all, it| op.combine(&all, &it)).unwrap_or_else(|| Chunk::Bytes([].into()))
        };
        Call {
            id: self.name(task),
            kind: planned.kind,
            args: planned.args.clone(),
            accesses: planned.accesses.clone(),
            inputs: planned.reads.iter().map(&mut input).collect(),
        }
    }

    /// Returns the accesses of a task. Their versions are counted from 1 for each piece of data.
    pub fn accesses(&self, task: TaskNo) -> &[Access] {
        &self.planned(task).accesses
    }

    fn planned(&self, task: TaskNo) -> &Planned {
        &self.steps[task.step as usize].tasks[task.index as usize]
    }
}

impl Source {
    /// Returns the value to which this source refers when `task` reads it.
    fn value(&self, task: TaskNo) -> Option<Value> {
        match *self {
            Source::Literal(_) => None,
            Source::Written { back, index, output } => {
                Some(Value { task: TaskNo { step: task.step - back, index }, output })
            }
        }
    }
}

/// Returns the source from which a task reads a version, and the values that the source combines.
fn sources(
    task: TaskNo,
    literals: &BTreeMap<Version, Chunk>,
    writers: Option<&(Op, Vec<Value>)>,
    version: Version,
) -> (Gathered, Vec<Value>) {
    let Some((op, values)) = writers else {
        let literal = literals.get(&version).expect("a version that is read has already been written");
        return (Gathered { op: Op::Sum, from: vec![Source::Literal(literal.clone())] }, Vec::new());
    };
    let source = |value: &Value| Source::Written {
        back: task.step - value.task.step,
        index: value.task.index,
        output: value.output,
    };
    (Gathered { op: *op, from: values.iter().map(source).collect() }, values.clone())
}

/// Returns the same accesses with versions counted from 1 for each piece of data.
fn counted_from_first(accesses: &[Access]) -> Arc<[Access]> {
    let first = |data: DataId| {
        accesses.iter().filter(|it| it.version.data == data).map(|it| it.version.n).min().unwrap_or(1)
    };
    let counted = |it: &Access| {
        let Version { data, n } = it.version;
        Access { mode: it.mode, version: Version { data, n: n - first(data) + 1 } }
    };
    accesses.iter().map(counted).collect()
}

/// Assigns `pieces` pieces to `partitions` partitions, in blocks of neighbouring pieces. The blocks have nearly equal
/// sizes.
pub fn in_blocks(pieces: u32, partitions: u32) -> Vec<u32> {
    let of = |piece| u64::from(piece) * u64::from(partitions) / u64::from(pieces);
    (0..pieces).map(|piece| of(piece) as u32).collect()
}
