//! The interface for writing task-based programs.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::{Chunk, DataId, Digest, Span, TaskId, Version};
use serde::{Deserialize, Serialize};

/// A task-based program.
///
/// Its functions are pure: except for [hints](Frame::hint), the same call with the same inputs has the same
/// outcome in every execution. A program that violates a rule of [`Frame`] panics: that is a bug in the
/// program, not a runtime condition.
pub trait Program: Clone + Debug + Send + Sync + 'static {
    /// Runs the first task, which has neither inputs nor outputs and spawns the others. The result of the program is
    /// the newest version of the returned data.
    fn main(&self, frame: &mut Frame) -> Data;
    /// Runs any other task: reads the inputs of `call`, and writes its outputs or spawns tasks that write
    /// them.
    fn run(&self, call: &Call, frame: &mut Frame);
    /// Returns how long the task takes on a process with a speed of 100 %. The simulator charges this time; a
    /// real process waits for whatever remains of it after the computation.
    fn cost(&self, call: &Call) -> Span;
    /// Returns whether the task only spawns others, which do the work. A program whose tasks spawn others is
    /// [unrolled](crate::unrolled) at such tasks before it is planned. Returns `false` by default.
    fn spawns(&self, _call: &Call) -> bool {
        false
    }
    /// Returns a digest that identifies a result. By default, it covers all bytes of the result.
    fn digest(&self, result: &Chunk) -> Digest {
        digest(result)
    }
    /// Returns the digest of the correct result. By default, this runs the tasks one after another. A program
    /// that can compute its result in another way should override this: the runtime is then compared with an
    /// independent computation. The call may take as long as the program itself, excluding the modelled time.
    fn expected(&self) -> Digest {
        crate::reference(self).0
    }
}

/// A spawned task, with its arguments and inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The name of the task, the same in every execution.
    pub id: TaskId,
    /// The kind of task, a number that the program defines.
    pub kind: u16,
    /// The arguments of the task.
    pub args: Arc<[u64]>,
    /// The values that the task reads and writes, in the order of its [uses](Use).
    pub accesses: Arc<[Access]>,
    /// The values that the task reads, in the order of its accesses. Complete when the task runs.
    pub inputs: Vec<Chunk>,
}

impl Call {
    /// Returns the words of the input with this index.
    pub fn words(&self, input: usize) -> Vec<u64> {
        words(&self.inputs[input])
    }

    /// Returns the versions that the task reads.
    pub fn reads(&self) -> impl Iterator<Item = Version> + '_ {
        self.accesses.iter().filter(|it| it.mode == Mode::Read).map(|it| it.version)
    }

    /// Returns the versions that the task may write, or to which it may contribute.
    pub fn writes(&self) -> impl Iterator<Item = Version> + '_ {
        self.accesses.iter().filter(|it| it.mode != Mode::Read).map(|it| it.version)
    }
}

/// How a task uses a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The task's right to the version.
    pub mode: Mode,
    /// The version used.
    pub version: Version,
}

/// A task's right to use a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Read the version: the task starts once it exists.
    Read,
    /// Assign the version, as the only writer.
    Write,
    /// Contribute to the version, together with other writers.
    Gather(Op),
}

/// The operation that combines contributions to one version. All operations are associative and commutative, so the
/// order of contributions does not matter. Chunks are read as little-endian words of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Adds word by word, wrapping around. A shorter contribution is padded with zeros.
    Sum,
    /// Keeps the smallest contribution, treating the first word as the most significant.
    Least,
    /// Keeps the greatest contribution, treating the first word as the most significant.
    Greatest,
}

impl Op {
    /// Combines two contributions. If either has no bytes, only the lengths are known, and the longer one is kept.
    pub fn combine(self, one: &Chunk, other: &Chunk) -> Chunk {
        if let (Chunk::Virtual(_), _) | (_, Chunk::Virtual(_)) = (one, other) {
            return Chunk::Virtual(one.len().max(other.len()));
        }
        let (mut a, mut b) = (words(one), words(other));
        match self {
            Op::Sum => {
                if a.len() < b.len() {
                    core::mem::swap(&mut a, &mut b);
                }
                a.iter_mut().zip(b).for_each(|(a, b)| *a = a.wrapping_add(b));
                chunk(&a)
            }
            Op::Least => (if a <= b { one } else { other }).clone(),
            Op::Greatest => (if a >= b { one } else { other }).clone(),
        }
    }
}

/// Data that tasks share, as named by a running task. The name has no meaning in another task: see [`Frame::own`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data(DataId);

/// How a spawned task uses data. "The newest value" follows the order in which the spawning task declares the
/// uses, not the order in which tasks run.
#[derive(Clone, Copy, Debug)]
pub enum Use {
    /// Reads the newest value.
    Read(Data),
    /// Assigns the next value.
    Write(Data),
    /// Reads the newest value and assigns the next: two accesses, in this order.
    Exclusive(Data),
    /// Contributes to the next value. Consecutive uses with the same operation, without another use of the
    /// data in between, contribute to the same value. A task need not contribute; a value without any
    /// contribution is empty.
    Gather(Data, Op),
}

/// Everything that a task has done, applied in one step once the task ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskOutcome {
    /// The calls, in the order of spawning.
    pub spawned: Vec<Call>,
    /// The values that the task wrote, by the index of the access.
    pub written: Vec<(u32, Chunk)>,
    /// The values that the task created.
    pub created: Vec<(Version, Chunk)>,
    /// The smallest number that the task [published](Frame::publish), or its hint if that is smaller; `None` if the
    /// task published none.
    pub told: Option<u64>,
}

/// Records the actions of a running task, and counts versions in program order.
#[derive(Debug)]
pub struct Frame {
    task: TaskId,
    own: Arc<[Access]>,
    /// How the task has used each of its own accesses.
    fates: Vec<Fate>,
    outcome: TaskOutcome,
    created: u32,
    newest: Vec<(DataId, Newest)>,
    /// The index of each piece of data in `newest`, once there are more than [`FEW`].
    places: BTreeMap<DataId, usize>,
    hint: u64,
    marks: Marks,
    /// The accesses of the task being spawned; empty at other times. Reused to avoid allocations.
    accesses: Vec<Access>,
}

/// Marks that direct the planning of a program's tasks. Work stealing ignores them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// The spawned tasks at which a new piece begins, each with that piece.
    pub(crate) pieces: Vec<(usize, u32)>,
    /// The first task of each step after the first.
    pub(crate) steps: Vec<usize>,
}

/// The number of pieces of data up to which a search through a list is as fast as one through a map. Most tasks use
/// fewer, but the first task of a planned program uses all of the program's data.
const FEW: usize = 16;

/// A running task's knowledge of the versions of one piece of data.
#[derive(Clone, Copy, Debug)]
struct Newest {
    /// The newest version; 0 means none.
    n: u32,
    /// The first version that a spawned task may read.
    least: u32,
    /// The last version that this task may assign, itself or through the tasks that it spawns.
    last: u32,
    /// The operation that a further contribution must use to belong to the newest version; `None` if no further
    /// contribution can.
    gathers: Option<Op>,
    /// Whether tasks unknown to this one may also contribute to version `last`.
    is_partial: bool,
}

/// How a task has used its right to write a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fate {
    put: bool,
    passed_on: bool,
}

impl Frame {
    /// Creates the frame for a run of `call`, where `hint` is the smallest number known to have been published.
    pub fn of(call: &Call, hint: u64) -> Frame {
        Frame::new(call.id, call.accesses.clone(), hint)
    }

    /// Creates the frame of the first task.
    pub fn main() -> Frame {
        Frame::new(TaskId::MAIN, Arc::from([]), u64::MAX)
    }

    fn new(task: TaskId, own: Arc<[Access]>, hint: u64) -> Frame {
        let fates = vec![Fate::default(); own.len()];
        let (outcome, newest, marks) = (TaskOutcome::default(), Vec::new(), Marks::default());
        Frame {
            task,
            own,
            fates,
            outcome,
            created: 0,
            newest,
            places: BTreeMap::new(),
            hint,
            marks,
            accesses: Vec::new(),
        }
    }

    /// Creates data without a value: a task must write it before another may read it.
    pub fn data(&mut self) -> Data {
        let data = self.task.data(self.created);
        self.created += 1;
        self.know(data, Newest { n: 0, least: 1, last: u32::MAX, gathers: None, is_partial: false });
        Data(data)
    }

    /// Creates data with this value.
    pub fn value(&mut self, chunk: Chunk) -> Data {
        let data = self.data();
        let version = self.next(data.0);
        self.outcome.created.push((version, chunk));
        data
    }

    /// Returns the data of this task's access `index`, for use by tasks that it spawns. If this task has the
    /// right to write, the next version is the one that it has to assign, and it may give that right to one
    /// spawned task. It may share a right to gather with any number of spawned tasks. No spawned task may read data to
    /// which this task contributes.
    pub fn own(&mut self, index: usize) -> Data {
        let data = self.own[index].version.data;
        if self.find(data).is_none() {
            let mut newest = Newest { n: 0, least: 0, last: 0, gathers: None, is_partial: false };
            for Access { mode, version } in self.own.iter().filter(|it| it.version.data == data) {
                newest.last = newest.last.max(version.n);
                if *mode == Mode::Read {
                    newest.n = newest.n.max(version.n);
                }
                newest.is_partial |= matches!(mode, Mode::Gather(_));
            }
            // Spawned tasks must not read versions older than one that this task only writes.
            (newest.n, newest.least) = match newest.n {
                0 => (newest.last - 1, newest.last),
                n => (n, n),
            };
            self.know(data, newest);
        }
        Data(data)
    }

    /// Assigns the version of this task's access `index`, or contributes to it. Call at most once for each access.
    ///
    /// # Panics
    ///
    /// Panics if this access is a read, or if the task has already written through it.
    pub fn put(&mut self, index: usize, chunk: Chunk) {
        let (task, access) = (self.task, self.own[index]);
        assert!(access.mode != Mode::Read, "task {task} puts into access {index}, which it may only read");
        let fate = &mut self.fates[index];
        assert!(!fate.put, "task {task} puts into access {index} twice");
        fate.put = true;
        self.outcome.written.push((index as u32, chunk));
    }

    /// Spawns a task of a kind that the program defines. The set of spawned tasks must not depend on a
    /// [hint](Frame::hint), except that a task may spawn none at all.
    pub fn spawn(&mut self, kind: u16, args: &[u64], uses: &[Use]) {
        let id = self.task.child(self.outcome.spawned.len() as u32);
        let mut accesses = core::mem::take(&mut self.accesses);
        for &each in uses {
            match each {
                Use::Read(Data(data)) => accesses.push(self.read(data)),
                Use::Write(Data(data)) => accesses.push(self.assign(data, Mode::Write)),
                Use::Exclusive(Data(data)) => {
                    accesses.push(self.read(data));
                    accesses.push(self.assign(data, Mode::Write));
                }
                Use::Gather(Data(data), op) => accesses.push(self.assign(data, Mode::Gather(op))),
            }
        }
        let call =
            Call { id, kind, args: args.into(), accesses: Arc::from(&accesses[..]), inputs: Vec::new() };
        self.outcome.spawned.push(call);
        accesses.clear();
        self.accesses = accesses;
    }

    /// Assigns the tasks spawned afterwards to this piece of the program's data. A [plan](crate::plan::Plan)
    /// assigns each piece to a partition. Work stealing ignores pieces.
    pub fn at(&mut self, piece: u32) {
        self.marks.pieces.push((self.outcome.spawned.len(), piece));
    }

    /// Assigns the tasks spawned afterwards to the next step, such as an iteration of a loop. A partition never runs a
    /// task that is a whole [window](crate::PartitionConfig::window) of steps or more ahead of its first incomplete
    /// step. Work stealing ignores steps.
    pub fn next_step(&mut self) {
        self.marks.steps.push(self.outcome.spawned.len());
    }

    /// Returns the smallest number that any task is known to have [published](Frame::publish), or [`u64::MAX`] if there
    /// is none. This is a hint for pruning: it depends on the order in which tasks run, and may be lost in a failure,
    /// so the result of the program must not depend on it. A search that prunes only candidates strictly worse than the
    /// hint is safe. A search that also prunes candidates equal to the hint loses the optimum when the task that found
    /// it runs again.
    pub fn hint(&self) -> u64 {
        self.hint
    }

    /// Publishes a number to other tasks, as their [hint](Frame::hint).
    pub fn publish(&mut self, number: u64) {
        self.hint = self.hint.min(number);
        self.outcome.told = Some(self.hint);
    }

    /// Returns everything that the task has done.
    ///
    /// # Panics
    ///
    /// Panics if the task neither used nor passed on a right to write, or did both.
    pub fn finish(self) -> TaskOutcome {
        for (index, (access, fate)) in self.own.iter().zip(&self.fates).enumerate() {
            let is_right = access.mode != Mode::Write || fate.put != fate.passed_on;
            assert!(is_right, "task {} must either put into access {index} or pass it on", self.task);
        }
        self.outcome
    }

    /// Returns everything that the first task has done, and the version that is the result of the program.
    pub(crate) fn finish_main(self, result: Data) -> (TaskOutcome, Version) {
        let n = self.newest(result.0).n;
        assert!(n > 0, "no task writes the result of the program");
        (self.finish(), Version { data: result.0, n })
    }

    /// Works like [`Frame::finish_main`], but also returns the marks for a plan.
    pub(crate) fn finish_planned(mut self, result: Data) -> (TaskOutcome, Version, Marks) {
        let marks = core::mem::take(&mut self.marks);
        let (outcome, result) = self.finish_main(result);
        (outcome, result, marks)
    }

    /// Adds calls and values whose versions are already counted. Returns the data of `result`, which one of the calls
    /// writes.
    pub(crate) fn adopt(
        &mut self,
        calls: Vec<Call>,
        created: Vec<(Version, Chunk)>,
        result: Version,
    ) -> Data {
        self.outcome.spawned.extend(calls);
        self.outcome.created.extend(created);
        let newest = Newest { n: result.n, least: 1, last: u32::MAX, gathers: None, is_partial: false };
        self.know(result.data, newest);
        Data(result.data)
    }

    /// Adds data that is new to the task.
    fn know(&mut self, data: DataId, newest: Newest) {
        self.newest.push((data, newest));
        let place = self.newest.len() - 1;
        match self.newest.len() {
            0..=FEW => {}
            len if len == FEW + 1 => {
                self.places = (0..).zip(&self.newest).map(|(place, it)| (it.0, place)).collect();
            }
            _ => {
                self.places.insert(data, place);
            }
        }
    }

    fn find(&self, data: DataId) -> Option<usize> {
        match self.newest.len() {
            0..=FEW => self.newest.iter().position(|it| it.0 == data),
            _ => self.places.get(&data).copied(),
        }
    }

    fn newest(&self, data: DataId) -> Newest {
        let index = self.find(data);
        self.newest[index.unwrap_or_else(|| panic!("task {} uses data that it does not know", self.task))].1
    }

    fn set(&mut self, data: DataId, newest: Newest) {
        let index = self.find(data).expect("the task knows the data");
        self.newest[index].1 = newest;
    }

    fn read(&mut self, data: DataId) -> Access {
        let newest = self.newest(data);
        assert!(
            newest.n >= newest.least,
            "task {} spawns a reader of data that no task has written",
            self.task
        );
        assert!(
            !newest.is_partial || newest.n < newest.last,
            "task {} spawns a reader of data that it gathers with others",
            self.task
        );
        self.set(data, Newest { gathers: None, ..newest });
        Access { mode: Mode::Read, version: Version { data, n: newest.n } }
    }

    fn assign(&mut self, data: DataId, mode: Mode) -> Access {
        let newest = self.newest(data);
        let version = match mode {
            Mode::Gather(op) if newest.gathers == Some(op) => Version { data, n: newest.n },
            _ => self.next(data),
        };
        let gathers = if let Mode::Gather(op) = mode { Some(op) } else { None };
        self.set(data, Newest { n: version.n, gathers, ..newest });
        let access = Access { mode, version };
        if let Some(index) = self.own.iter().position(|it| it.mode != Mode::Read && it.version == version) {
            assert!(self.own[index] == access, "task {} passes on a right that it does not have", self.task);
            self.fates[index].passed_on = true;
        }
        access
    }

    /// Returns the version after the newest one.
    fn next(&mut self, data: DataId) -> Version {
        let newest = self.newest(data);
        assert!(newest.n < newest.last, "task {} spawns a writer of data that it may not write", self.task);
        let n = newest.n + 1;
        self.set(data, Newest { n, gathers: None, ..newest });
        Version { data, n }
    }
}

/// Returns a chunk that contains these words in little-endian order.
pub fn chunk(words: &[u64]) -> Chunk {
    // An iterator of known length fills the shared bytes without an intermediate copy.
    let mut bytes: Arc<[u8]> = core::iter::repeat_n(0, words.len() * 8).collect();
    let places = Arc::make_mut(&mut bytes).chunks_exact_mut(8);
    places.zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
    Chunk::Bytes(bytes)
}

/// Returns the words of a chunk, the last one padded with zeros; none for a chunk without bytes.
pub fn words(chunk: &Chunk) -> Vec<u64> {
    let Chunk::Bytes(bytes) = chunk else { return Vec::new() };
    let word = |part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

/// Returns a digest of the bytes of a chunk, or of its length if it has none.
pub fn digest(chunk: &Chunk) -> Digest {
    let hash = match chunk {
        Chunk::Virtual(len) => blake3::hash(&len.to_le_bytes()),
        Chunk::Bytes(bytes) => blake3::hash(bytes),
    };
    let mut digest = Digest([0; 16]);
    digest.0.copy_from_slice(&hash.as_bytes()[..16]);
    digest
}
