//! Programs of tasks that share data.
//!
//! A program is a first task that spawns others, each of which may spawn more. Tasks share *data*, whose values are assigned
//! once: a task that reads a value begins when the value exists. So there is nothing to lock and nothing to wait for inside
//! a task, and every execution spawns the same tasks under the same names.
//!
//! | module | holds |
//! | --- | --- |
//! | [`program`] | how a program is written |
//! | [`graph`] | the tasks and values that a place has |
//! | [`place`] | a process that runs tasks, steals and lends them |
//! | [`recovery`] | what protocols see of places |
//! | [`plan`] | the tasks of each partition of an iterative program, and the values that partitions send |
//! | [`partition`] | a process that runs partitions of a plan, and what protocols see of it |
//! | [`reference`](mod@reference) | what it computes, task after task |
#![no_std]

extern crate alloc;

pub mod graph;
pub mod partition;
pub mod place;
pub mod plan;
pub mod program;
pub mod programs;
pub mod recovery;
pub mod reference;

pub use graph::{Graph, GraphEvent};
pub use partition::{Partition, PartitionConfig};
pub use place::{Place, PlaceConfig, Stealing};
pub use plan::Plan;
pub use program::{Access, Call, Data, Frame, Mode, Op, Outcome, Program, Use};
pub use recovery::{Recovery, heir};
pub use reference::reference;
