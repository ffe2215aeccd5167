//! Programs of tasks that share data.
//!
//! A program is a first task that spawns others, each of which may spawn more. Tasks share *data*, whose values are assigned
//! once: a task that reads a value begins when the value exists. So there is nothing to lock and nothing to wait for inside
//! a task, and every execution spawns the same tasks under the same names.
//!
//! | module | holds |
//! | --- | --- |
//! | [`program`] | how a program is written |
//! | [`reference`](mod@reference) | what it computes, task after task |
#![no_std]

extern crate alloc;

pub mod program;
pub mod programs;
pub mod reference;

pub use program::{Access, Call, Data, Frame, Mode, Op, Outcome, Program, Use};
pub use reference::reference;
