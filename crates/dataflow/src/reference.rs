//! Runs a program sequentially, without processes, thefts or failures. Shares no code with the runtime, whose results
//! are compared with those of this module.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faultline_core::{Chunk, Digest, Span, Version};

use crate::program::{Access, Call, Frame, Mode, Program, TaskOutcome};

/// The size of a program, independent of how it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSize {
    /// The number of tasks besides the first.
    pub tasks: u64,
    /// The sum of the times that its tasks take at speed 100 %.
    pub work: Span,
    /// The longest total time of tasks that must run one after another: each task was spawned by the previous one, or
    /// reads a value that the previous one wrote.
    pub path: Span,
}

/// Runs `program` to its end. Returns the digest of its result, and the number of tasks besides the first.
///
/// # Panics
///
/// Panics if the program waits for a value that no task writes.
pub fn reference<G: Program>(program: &G) -> (Digest, u64) {
    let (digest, extent) = run(program);
    (digest, extent.tasks)
}

/// Runs `program` to its end, and returns its size. The tasks of a program with hints depend on the schedule: this is
/// the size of the sequential execution.
///
/// # Panics
///
/// Panics if the program waits for a value that no task writes.
pub fn extent<G: Program>(program: &G) -> ProgramSize {
    run(program).1
}

fn run<G: Program>(program: &G) -> (Digest, ProgramSize) {
    let mut frame = Frame::main();
    let result = program.main(&mut frame);
    let (outcome, result) = frame.finish_main(result);
    let mut run = Run { values: BTreeMap::new(), parked: BTreeMap::new(), open: Vec::new(), hint: u64::MAX };
    run.apply(&[], outcome, Span::ZERO);
    let mut extent = ProgramSize { tasks: 0, work: Span::ZERO, path: Span::ZERO };
    while let Some((spawned, mut call)) = run.open.pop() {
        let missing = call.reads().find(|it| run.values[it].writers > 0);
        if let Some(missing) = missing {
            run.parked.entry(missing).or_default().push((spawned, call));
            continue;
        }
        let start = call.reads().map(|it| run.values[&it].at).fold(spawned, Span::max);
        call.inputs = call.reads().map(|it| run.values[&it].chunk.clone().unwrap_or_else(empty)).collect();
        let mut frame = Frame::of(&call, run.hint);
        program.run(&call, &mut frame);
        let cost = program.cost(&call);
        let end = start + cost;
        extent =
            ProgramSize { tasks: extent.tasks + 1, work: extent.work + cost, path: extent.path.max(end) };
        run.apply(&call.accesses, frame.finish(), end);
    }
    assert!(run.parked.is_empty(), "tasks wait for values that no task writes");
    (program.digest(&run.values[&result].chunk.clone().unwrap_or_else(empty)), extent)
}

struct Run {
    values: BTreeMap<Version, Value>,
    /// Waiting tasks, by a value that they wait for, each with the time at which it was spawned.
    parked: BTreeMap<Version, Vec<(Span, Call)>>,
    /// Tasks that may or may not have to wait; the last one is next.
    open: Vec<(Span, Call)>,
    hint: u64,
}

#[derive(Default)]
struct Value {
    chunk: Option<Chunk>,
    /// The number of tasks with a right to write the value.
    writers: u32,
    /// The earliest time at which the value exists, if no task ever waits for a processor.
    at: Span,
}

impl Run {
    /// Applies the outcome of a task that has these accesses and ended at `end`.
    fn apply(&mut self, accesses: &[Access], outcome: TaskOutcome, end: Span) {
        self.hint = self.hint.min(outcome.told.unwrap_or(u64::MAX));
        for (version, chunk) in outcome.created {
            self.values.insert(version, Value { chunk: Some(chunk), writers: 0, at: end });
        }
        for version in outcome.spawned.iter().flat_map(Call::writes) {
            self.values.entry(version).or_default().writers += 1;
        }
        for (index, chunk) in outcome.written {
            let Access { mode, version } = accesses[index as usize];
            let value = self.values.get_mut(&version).expect("the writers of the value were counted");
            value.chunk = Some(match (mode, value.chunk.take()) {
                (Mode::Gather(op), Some(before)) => op.combine(&before, &chunk),
                _ => chunk,
            });
        }
        self.open.extend(outcome.spawned.into_iter().rev().map(|it| (end, it)));
        for Access { version, .. } in accesses.iter().filter(|it| it.mode != Mode::Read) {
            let value = self.values.get_mut(version).expect("the writers of the value were counted");
            value.writers -= 1;
            value.at = value.at.max(end);
            if value.writers == 0 {
                self.open.extend(self.parked.remove(version).into_iter().flatten());
            }
        }
    }
}

fn empty() -> Chunk {
    Chunk::Bytes([].into())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::program::{Data, Op, Use, chunk, digest, words};

    /// A program whose tasks all run this function. Its first task is of kind 0 and writes the result. The first
    /// argument of a task is its duration in milliseconds.
    #[derive(Clone, Debug)]
    struct Script(fn(&Call, &mut Frame));

    impl Program for Script {
        fn main(&self, frame: &mut Frame) -> Data {
            let result = frame.data();
            frame.spawn(0, &[8], &[Use::Write(result)]);
            result
        }

        fn run(&self, call: &Call, frame: &mut Frame) {
            (self.0)(call, frame);
        }

        fn cost(&self, call: &Call) -> Span {
            Span::from_millis(call.args.first().copied().unwrap_or(0))
        }
    }

    fn result(script: fn(&Call, &mut Frame)) -> (Digest, u64) {
        reference(&Script(script))
    }

    #[test]
    fn a_sum_combines_two_calls() {
        let fibonacci = |call: &Call, frame: &mut Frame| match (call.kind, call.args.first()) {
            (0, Some(&n)) if n < 2 => frame.put(0, chunk(&[n])),
            (0, Some(&n)) => {
                let (a, b, sum) = (frame.data(), frame.data(), frame.own(0));
                frame.spawn(0, &[n - 1], &[Use::Write(a)]);
                frame.spawn(0, &[n - 2], &[Use::Write(b)]);
                frame.spawn(1, &[], &[Use::Read(a), Use::Read(b), Use::Write(sum)]);
            }
            _ => frame.put(2, chunk(&[call.words(0)[0] + call.words(1)[0]])),
        };
        assert_eq!(result(fibonacci), (digest(&chunk(&[21])), 67 + 33));
    }

    #[test]
    fn a_chain_of_exclusive_uses_runs_in_program_order() {
        let chain = |call: &Call, frame: &mut Frame| match call.kind {
            0 => {
                let (data, out) = (frame.value(chunk(&[1])), frame.own(0));
                for digit in [2, 3, 4] {
                    frame.spawn(1, &[digit], &[Use::Exclusive(data)]);
                }
                frame.spawn(2, &[], &[Use::Read(data), Use::Write(out)]);
                frame.spawn(1, &[5], &[Use::Exclusive(data)]);
            }
            1 => frame.put(1, chunk(&[call.words(0)[0] * 10 + call.args[0]])),
            _ => frame.put(1, call.inputs[0].clone()),
        };
        assert_eq!(result(chain), (digest(&chunk(&[1234])), 6));
    }

    #[test]
    fn contributions_are_gathered_through_tasks_that_pass_them_on() {
        let gather = |call: &Call, frame: &mut Frame| match call.kind {
            0 => {
                let (sum, out) = (frame.data(), frame.own(0));
                frame.spawn(1, &[4], &[Use::Gather(sum, Op::Sum)]);
                frame.spawn(1, &[3], &[Use::Gather(sum, Op::Sum)]);
                frame.spawn(2, &[], &[Use::Read(sum), Use::Write(out)]);
            }
            1 => {
                let own = frame.own(0);
                for n in 0..call.args[0] {
                    frame.spawn(1, &[n], &[Use::Gather(own, Op::Sum)]);
                }
                if call.args[0] != 1 {
                    frame.put(0, chunk(&[1, call.args[0]]));
                }
            }
            _ => frame.put(1, call.inputs[0].clone()),
        };
        // Trees of 2^4 and 2^3 tasks. Of these, 2^2 and 2^1 tasks have n = 1: one child of each task with a greater n.
        let (digest_found, tasks) = result(gather);
        assert_eq!(tasks, 16 + 8 + 2);
        let (mut count, mut sum) = (0, 0);
        let mut open = vec![4, 3];
        while let Some(n) = open.pop() {
            (count, sum) = if n == 1 { (count, sum) } else { (count + 1, sum + n) };
            open.extend(0..n);
        }
        assert_eq!(digest_found, digest(&chunk(&[count, sum])));
    }

    #[test]
    fn the_longest_path_follows_spawns_and_values() {
        let chain = |call: &Call, frame: &mut Frame| match call.kind {
            0 => {
                let (first, second, out) = (frame.data(), frame.data(), frame.own(0));
                frame.spawn(1, &[5], &[Use::Write(first)]);
                frame.spawn(1, &[30], &[Use::Write(second)]);
                frame.spawn(2, &[2], &[Use::Read(first), Use::Write(out)]);
                frame.spawn(2, &[1], &[Use::Read(second), Use::Write(first)]);
            }
            1 => frame.put(0, chunk(&[call.args[0]])),
            _ => frame.put(1, call.inputs[0].clone()),
        };
        let millis = Span::from_millis;
        // The longest path takes (8 + 30 + 1) ms. The result exists earlier, after (8 + 5 + 2) ms.
        let expected = ProgramSize { tasks: 5, work: millis(8 + 5 + 30 + 2 + 1), path: millis(8 + 30 + 1) };
        assert_eq!(extent(&Script(chain)), expected);
    }

    #[test]
    #[should_panic(expected = "must either put into access 0 or pass it on")]
    fn a_right_to_write_is_not_forgotten() {
        result(|_, _| {});
    }

    #[test]
    #[should_panic(expected = "writer of data that it may not write")]
    fn a_right_to_write_is_passed_on_once() {
        result(|_, frame| {
            let own = frame.own(0);
            frame.spawn(1, &[], &[Use::Write(own)]);
            frame.spawn(1, &[], &[Use::Write(own)]);
        });
    }

    #[test]
    #[should_panic(expected = "data that no task has written")]
    fn no_task_reads_what_was_never_written() {
        result(|_, frame| {
            let data = frame.data();
            frame.spawn(1, &[], &[Use::Read(data)]);
        });
    }

    #[test]
    fn operations_combine_words_in_any_order() {
        let (one, other) = (chunk(&[3, 9]), chunk(&[4]));
        for (op, expected) in
            [(Op::Sum, chunk(&[7, 9])), (Op::Least, one.clone()), (Op::Greatest, other.clone())]
        {
            assert_eq!(op.combine(&one, &other), expected);
            assert_eq!(op.combine(&other, &one), expected);
        }
        assert_eq!(words(&Chunk::Bytes([1, 2].into())), [0x0201]);
    }
}
