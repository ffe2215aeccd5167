//! What nodes count, derived from the facts that they state, and its form as Prometheus text.
//!
//! [`Counts`] is the one place that maps facts to numbers, [`exposition`] the one that gives them names. A node shows
//! its own, the supervisor the sum of all. Every label has a bounded set of values. Metrics go one way: nothing here
//! can change a run.

pub(crate) mod counts;
pub(crate) mod exposition;

use std::sync::Arc;

use faultline_core::{ClusterId, Gauges};
use serde::{Deserialize, Serialize};

pub use counts::{Counts, Delays};
use exposition::Exposition;

/// What the clusters are called in labels, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterNames(pub Vec<String>);

impl ClusterNames {
    /// Of one of them, or of whoever stands in none.
    pub(crate) fn of(&self, cluster: ClusterId) -> String {
        if cluster == ClusterId::OUTSIDE {
            return "outside".to_owned();
        }
        self.0.get(cluster.index()).cloned().unwrap_or_else(|| cluster.to_string())
    }
}

/// What all nodes of a run have counted, together; kept up to date while the run lasts. For any thread.
#[derive(Clone, Debug, Default)]
pub struct Sum(pub(crate) Arc<Exposition>);

impl Sum {
    /// The nodes have ended: what they have counted stays, and nothing is in transit any more.
    pub fn over(&self) {
        self.0.update(|page| {
            page.gauges = Gauges::default();
            page.over = true;
        });
    }

    /// As Prometheus text.
    pub fn text(&self) -> String {
        exposition::text(&exposition::registry(self.0.clone(), None))
    }
}
