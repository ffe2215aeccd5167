//! What nodes count, derived from the facts that they state, and its form as Prometheus text.
//!
//! [`Counts`] is the one place that maps facts to numbers, [`exposition`] the one that gives them names. A node shows
//! its own, the supervisor the sum of all. Every label has a bounded set of values. Metrics go one way: nothing here
//! can change a run.

pub(crate) mod counts;
pub(crate) mod exposition;

use std::sync::Arc;

pub use counts::{Counts, Delays};
use exposition::Exposition;

/// What all nodes of a run have counted, together; kept up to date while the run lasts. For any thread.
#[derive(Clone, Debug, Default)]
pub struct Sum(pub(crate) Arc<Exposition>);

impl Sum {
    /// The nodes have ended: what they have counted stays, and nothing is under way any more.
    pub fn over(&self) {
        self.0.clear_gauges();
    }

    /// As Prometheus text.
    pub fn text(&self) -> String {
        exposition::text(&exposition::registry(self.0.clone(), None))
    }
}
