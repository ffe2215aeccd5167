//! What nodes count, derived from the facts that they state, and its form as Prometheus text.
//!
//! [`Counts`] is the one place that maps facts to numbers, [`exposition`] the one that gives them names. A node shows
//! its own, the supervisor the sum of all. Every label has a bounded set of values. Metrics go one way: nothing here
//! can change a run.

pub(crate) mod counts;
pub(crate) mod exposition;

pub use counts::{Counts, Delays};
