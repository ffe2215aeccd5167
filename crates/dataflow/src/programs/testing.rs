//! Tests that every program must pass.

extern crate std;

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::Mutex;

use faultline_core::{Chunk, Digest, Span, TaskId};

use super::Flow;
use crate::program::{Call, Data, Frame, Mode, Op, Program, chunk};
use crate::reference;

/// Asserts that the tasks compute the result of the sequential reference. Returns the number of tasks.
pub(super) fn agrees_with_its_reference(program: &Flow) -> u64 {
    let (found, tasks) = reference(program);
    assert_eq!(found, program.reference(), "{program:?}");
    tasks
}

/// Asserts that the result changes if any task is lost, or if any task that spawns no others is counted twice.
pub(super) fn every_task_matters(program: &Flow) {
    let seen = Seen::default();
    let (expected, _) = reference(&Watched { program: program.clone(), seen: seen.clone() });
    assert_eq!(expected, program.reference());
    let seen = seen.0.lock().unwrap().clone();
    assert!(seen.len() > 20, "{} tasks are too few for this test", seen.len());
    for &(task, spawns) in &seen {
        let broken = |wrong| reference(&Broken { program: program.clone(), task, wrong }).0;
        assert_ne!(broken(Wrong::Lost), expected, "task {task} was lost");
        if !spawns {
            assert_ne!(broken(Wrong::Twice), expected, "task {task} counts twice");
        }
    }
}

/// Returns the result of a program whose tasks are all given `hint` or a smaller number.
pub(super) fn with_hint<G: Program>(program: &G, hint: u64) -> Chunk {
    let result = Arc::new(Mutex::new(chunk(&[])));
    reference(&Hinted { program: program.clone(), hint, result: result.clone() });
    Arc::into_inner(result).unwrap().into_inner().unwrap()
}

/// The tasks run so far, and whether each has spawned others.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<(TaskId, bool)>>>);

#[derive(Clone, Debug)]
struct Watched {
    program: Flow,
    seen: Seen,
}

impl Program for Watched {
    fn main(&self, frame: &mut Frame) -> Data {
        self.program.main(frame)
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        let mut apart = Frame::of(call, u64::MAX);
        self.program.run(call, &mut apart);
        self.seen.0.lock().unwrap().push((call.id, !apart.finish().spawned.is_empty()));
        self.program.run(call, frame);
    }

    fn cost(&self, call: &Call) -> Span {
        self.program.cost(call)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Lost,
    Twice,
}

#[derive(Clone, Debug)]
struct Broken {
    program: Flow,
    task: TaskId,
    wrong: Wrong,
}

impl Program for Broken {
    fn main(&self, frame: &mut Frame) -> Data {
        self.program.main(frame)
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        match self.wrong {
            _ if call.id != self.task => self.program.run(call, frame),
            Wrong::Lost => {
                for (index, access) in call.accesses.iter().enumerate() {
                    if access.mode == Mode::Write {
                        frame.put(index, chunk(&[0; 4]));
                    }
                }
            }
            Wrong::Twice => {
                let mut apart = Frame::of(call, frame.hint());
                self.program.run(call, &mut apart);
                for (index, written) in apart.finish().written {
                    frame.put(index as usize, Op::Sum.combine(&written, &written));
                }
            }
        }
    }

    fn cost(&self, call: &Call) -> Span {
        self.program.cost(call)
    }
}

#[derive(Clone, Debug)]
struct Hinted<G> {
    program: G,
    hint: u64,
    result: Arc<Mutex<Chunk>>,
}

impl<G: Program> Program for Hinted<G> {
    fn main(&self, frame: &mut Frame) -> Data {
        frame.publish(self.hint);
        self.program.main(frame)
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        self.program.run(call, frame);
    }

    fn cost(&self, call: &Call) -> Span {
        self.program.cost(call)
    }

    fn digest(&self, result: &Chunk) -> Digest {
        *self.result.lock().unwrap() = result.clone();
        self.program.digest(result)
    }
}
