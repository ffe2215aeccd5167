//! Clients that Faultline drives: which operations they are asked for, the lines in which they are asked and answer, and
//! what their operations say as a [`History`](crate::History).

mod lines;
mod recorded;
mod workload;

pub use lines::{Reply, line_of, reply_of};
pub use recorded::{Recorded, history_of};
pub use workload::{Memory, Workload};
