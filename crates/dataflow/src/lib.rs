//! Task-based programs that share data.
//!
//! A program starts with one task, which spawns others; each of these may spawn more. Tasks share *data*, whose values
//! are assigned once: a task starts only after all values that it reads exist. It therefore never locks or waits, and
//! every execution spawns the same tasks under the same names.
//!
//! | module | contents |
//! | --- | --- |
//! | [`program`] | the interface for writing programs |
//! | [`graph`] | the tasks and values of a process |
//! | [`task_process`] | a process that runs, steals and lends tasks |
//! | [`recovery`] | the interface between processes and protocols |
//! | [`storage`] | the inputs about stored images, for all protocols |
//! | [`plan`] | the tasks of each partition of an iterative program, and the values that partitions send |
//! | [`unrolled`] | a program whose tasks spawn others, in a form that can be planned |
//! | [`partition`] | a process that runs partitions of a plan, and its interface to protocols |
//! | [`partition_map`] | the process that runs each partition |
//! | [`programs`] | the available programs, each with a sequential reference |
//! | [`reference`](mod@reference) | sequential execution, one task after another: the result, and the size of a program |
#![no_std]

extern crate alloc;

pub mod graph;
pub mod partition;
pub mod partition_map;
pub mod plan;
pub mod program;
pub mod programs;
pub mod recovery;
pub mod reference;
pub mod storage;
pub mod task_process;
pub mod unrolled;

pub use graph::{Graph, GraphEvent};
pub use partition::{Partition, PartitionConfig};
pub use partition_map::PartitionMap;
pub use plan::Plan;
pub use program::{Access, Call, Data, Frame, Mode, Op, Program, TaskOutcome, Use};
pub use recovery::{TaskProtocol, successor};
pub use reference::{ProgramSize, extent, reference};
pub use storage::StorageInput;
pub use task_process::{Stealing, TaskProcess, TaskProcessConfig};
pub use unrolled::Unrolled;
