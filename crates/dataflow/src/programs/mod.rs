//! Programs to run, each with a sequential reference that uses no tasks.
//!
//! | program | result | shared data |
//! | --- | --- | --- |
//! | [`fibonacci`] | a Fibonacci number | the two numbers that a sum waits for |
//! | [`queens`] | the number of ways to place n queens | one sum, to which all tasks contribute |
//! | [`cloth`] | the particles of a piece of cloth, folded into a hash | edges and corners of blocks |
//! | [`jacobi`] | a field of temperatures, folded into a hash | edges of blocks, and the greatest change |
//! | [`qap`] | the cheapest assignments of facilities to locations | the results of a task's children, and a bound as a hint |
//! | [`graph`] | a number that depends on every task and every value | data of any shape, for finding schedules that fail |
//!
//! A result contains more than the answer: every task leaves a trail in it, so a run that loses a task or counts it
//! twice has a different digest.

mod blocks;
pub mod cloth;
pub mod fibonacci;
pub mod graph;
pub mod jacobi;
pub mod qap;
pub mod queens;
#[cfg(test)]
mod testing;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use faultline_core::{Chunk, Digest, Span};

use crate::Unrolled;
use crate::program::{Call, Data, Frame, Program, digest};

/// The maximum number of tasks of a program. More do not fit in the memory of a process.
pub const MOST_TASKS: u64 = 1 << 24;

/// The least memory, in bytes, that a task of an iterative program needs before it has run. In measurements, whole runs
/// used 1800 to 1950 bytes per task, including the facts about the task.
const BYTES_PER_TASK: u64 = 1 << 10;

/// The program that a run executes.
#[derive(Clone, Debug, PartialEq)]
pub enum Flow {
    /// A tree of calls and sums.
    Fibonacci(fibonacci::Fibonacci),
    /// A count of placements.
    Queens(queens::Queens),
    /// Branch and bound.
    Qap(qap::Qap),
    /// A random program.
    Graph(graph::RandomGraph),
    /// An iterative solver.
    Jacobi(jacobi::Jacobi),
    /// A simulation of particles and springs.
    Cloth(cloth::Cloth),
    /// Another of these programs, unrolled so that it can be planned.
    Unrolled(Arc<Unrolled<Flow>>),
}

/// The reason why parameters are invalid. Fields are named as in the types of the programs.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// A parameter is out of range.
    #[error("`{field}` is {value}, which is out of range")]
    OutOfRange {
        /// The name of the parameter.
        field: &'static str,
        /// The value found.
        value: u64,
        /// The smallest valid value.
        least: u64,
        /// The greatest valid value.
        most: u64,
    },
    /// The program does not fit in memory.
    #[error("the program has up to {tasks} tasks, which do not fit in memory")]
    TooManyTasks {
        /// An upper bound on the number of the program's tasks.
        tasks: u64,
        /// How to make the program smaller.
        remedy: &'static str,
    },
    /// A search would not end in reasonable time.
    #[error("the search would examine about {nodes:.0e} partial assignments")]
    TooLong {
        /// An estimate of the number of partial assignments that the search examines.
        nodes: f64,
        /// The greatest number accepted.
        most: f64,
    },
}

impl Invalid {
    /// Returns the remedy, as an instruction.
    pub fn remedy(&self) -> String {
        match self {
            Invalid::OutOfRange { least, most, .. } => format!("write a number from {least} to {most}"),
            Invalid::TooManyTasks { remedy, .. } => {
                format!("{remedy}: at most {MOST_TASKS} tasks are possible")
            }
            Invalid::TooLong { most, .. } => {
                format!(
                    "write a smaller instance, or one with fewer cheapest assignments: at most {most:.0e}"
                )
            }
        }
    }
}

impl Flow {
    /// Checks the parameters.
    ///
    /// # Errors
    ///
    /// Returns the first parameter that is out of range, or the number of tasks if the program does not fit
    /// in memory.
    pub fn validate(&self) -> Result<(), Invalid> {
        match self {
            Flow::Fibonacci(it) => it.validate(),
            Flow::Queens(it) => it.validate(),
            Flow::Qap(it) => it.validate(),
            Flow::Graph(it) => it.validate(),
            Flow::Jacobi(it) => it.validate(),
            Flow::Cloth(it) => it.validate(),
            Flow::Unrolled(it) => it.program().validate(),
        }
    }

    /// Returns the program in a form that can be planned: a program whose tasks spawn others is unrolled.
    #[must_use]
    pub fn planned(self) -> Flow {
        match self {
            Flow::Fibonacci(_) | Flow::Queens(_) | Flow::Qap(_) | Flow::Graph(_) => {
                Flow::Unrolled(Arc::new(Unrolled::new(self)))
            }
            Flow::Jacobi(_) | Flow::Cloth(_) | Flow::Unrolled(_) => self,
        }
    }

    /// Returns the number of pieces that a plan may assign to partitions. Returns 0 for a program whose tasks
    /// spawn others, unless it has been [unrolled](Flow::planned).
    pub fn pieces(&self) -> u32 {
        match self {
            Flow::Fibonacci(_) | Flow::Queens(_) | Flow::Qap(_) | Flow::Graph(_) => 0,
            Flow::Jacobi(it) => it.pieces(),
            Flow::Cloth(it) => it.pieces(),
            Flow::Unrolled(it) => it.pieces(),
        }
    }

    /// Returns an upper bound on the [cost](Program::cost) of one task.
    pub fn longest_task(&self) -> Span {
        match self {
            Flow::Fibonacci(it) => it.task_time,
            Flow::Queens(it) => it.task_time,
            Flow::Qap(it) => it.task_time,
            // Tasks take up to twice the mean.
            Flow::Graph(it) => Span(it.task_time.0.saturating_mul(2)),
            Flow::Jacobi(it) => it.task_time,
            Flow::Cloth(it) => it.task_time,
            Flow::Unrolled(it) => it.program().longest_task(),
        }
    }

    /// Returns a lower bound, in bytes, on the memory that the program needs at once: for the tasks that its
    /// first task spawns, and for two copies of the data that its tasks divide among themselves. A task reads
    /// one copy and writes the other, and so does the [reference](Flow::reference). Returns 0 for a program
    /// whose first task spawns only a few tasks, because its memory grows step by step.
    pub fn least_bytes(&self) -> u64 {
        let (tasks, data) = match self {
            Flow::Fibonacci(_) | Flow::Queens(_) | Flow::Qap(_) | Flow::Graph(_) => return 0,
            Flow::Jacobi(it) => (it.tasks(), it.grid_bytes()),
            Flow::Cloth(it) => (it.tasks(), it.particle_bytes()),
            Flow::Unrolled(it) => return it.program().least_bytes(),
        };
        tasks.saturating_mul(BYTES_PER_TASK).saturating_add(data.saturating_mul(2))
    }

    /// Returns the digest of the result, computed without tasks. Takes as long as the program itself,
    /// excluding the modelled time.
    pub fn reference(&self) -> Digest {
        digest(&match self {
            Flow::Unrolled(it) => return it.program().reference(),
            Flow::Fibonacci(it) => it.reference(),
            Flow::Queens(it) => it.reference(),
            Flow::Qap(it) => it.reference(),
            Flow::Graph(it) => it.reference(),
            Flow::Jacobi(it) => it.reference(),
            Flow::Cloth(it) => it.reference(),
        })
    }
}

impl Program for Flow {
    fn main(&self, frame: &mut Frame) -> Data {
        match self {
            Flow::Fibonacci(it) => it.main(frame),
            Flow::Queens(it) => it.main(frame),
            Flow::Qap(it) => it.main(frame),
            Flow::Graph(it) => it.main(frame),
            Flow::Jacobi(it) => it.main(frame),
            Flow::Cloth(it) => it.main(frame),
            Flow::Unrolled(it) => it.main(frame),
        }
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        match self {
            Flow::Fibonacci(it) => it.run(call, frame),
            Flow::Queens(it) => it.run(call, frame),
            Flow::Qap(it) => it.run(call, frame),
            Flow::Graph(it) => it.run(call, frame),
            Flow::Jacobi(it) => it.run(call, frame),
            Flow::Cloth(it) => it.run(call, frame),
            Flow::Unrolled(it) => it.run(call, frame),
        }
    }

    fn spawns(&self, call: &Call) -> bool {
        match self {
            Flow::Fibonacci(it) => it.spawns(call),
            Flow::Queens(it) => it.spawns(call),
            Flow::Qap(it) => it.spawns(call),
            Flow::Graph(it) => it.spawns(call),
            Flow::Jacobi(_) | Flow::Cloth(_) | Flow::Unrolled(_) => false,
        }
    }

    fn cost(&self, call: &Call) -> Span {
        match self {
            Flow::Fibonacci(it) => it.cost(call),
            Flow::Queens(it) => it.cost(call),
            Flow::Qap(it) => it.cost(call),
            Flow::Graph(it) => it.cost(call),
            Flow::Jacobi(it) => it.cost(call),
            Flow::Cloth(it) => it.cost(call),
            Flow::Unrolled(it) => it.cost(call),
        }
    }

    fn digest(&self, result: &Chunk) -> Digest {
        digest(result)
    }

    fn expected(&self) -> Digest {
        self.reference()
    }
}

fn in_range(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), Invalid> {
    match value {
        value if (least..=most).contains(&value) => Ok(()),
        _ => Err(Invalid::OutOfRange { field, value, least, most }),
    }
}

fn at_most_tasks(tasks: u64, remedy: &'static str) -> Result<(), Invalid> {
    if tasks > MOST_TASKS { Err(Invalid::TooManyTasks { tasks, remedy }) } else { Ok(()) }
}

/// The finaliser of SplitMix64: a bijection in which every input bit affects every output bit.
const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
