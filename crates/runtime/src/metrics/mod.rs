//! Metrics of nodes and of runs, and their representation as Prometheus text.
//!
//! Only [`counts`] derives counts and durations from facts, and only [`series`] names the metrics. A node shows its own
//! metrics, and the supervisor shows the sum over all nodes. Every label has a bounded set of values. Metrics cannot
//! affect a run.

pub(crate) mod counts;
pub(crate) mod exposition;
pub(crate) mod page;
mod series;

use std::sync::Arc;

use faultline_core::{ClusterId, Gauges};
use serde::{Deserialize, Serialize};

pub use counts::{Counts, Delays};
use exposition::Exposition;
use page::Values;
pub use page::{PhaseLabel, RunInfo, VerdictLabel};

/// Names of the clusters in labels, indexed by [`ClusterId`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterNames(pub Vec<String>);

impl ClusterNames {
    /// Returns the name of a cluster, or the name for processes outside all clusters.
    pub(crate) fn of(&self, cluster: ClusterId) -> String {
        if cluster == ClusterId::OUTSIDE {
            return "outside".to_owned();
        }
        self.0.get(cluster.index()).cloned().unwrap_or_else(|| cluster.to_string())
    }
}

/// Sum of the metrics of all nodes of a run, kept up to date during the run. Can be used from any thread.
#[derive(Clone, Debug, Default)]
pub struct Sum(pub(crate) Arc<Exposition>);

impl Sum {
    /// Marks the run as ended but not judged yet. Counters and steps keep their values; the gauges of logs and
    /// checkpoints become 0.
    pub fn over(&self) {
        self.0.update(|page| {
            for Values { gauges, .. } in page.values.values_mut() {
                *gauges = Gauges { progress: gauges.progress, ..Gauges::default() };
            }
            page.run().phase = PhaseLabel::Judging;
            page.over = true;
        });
    }

    /// Shows the verdict.
    pub fn judged(&self, verdict: VerdictLabel) {
        self.0.update(|page| (page.run().phase, page.run().verdict) = (PhaseLabel::Completed, Some(verdict)));
    }

    /// Marks the run as failed: it could not be performed.
    pub fn failed(&self) {
        self.0.update(|page| page.run().phase = PhaseLabel::Failed);
    }

    /// Labels every series with the run's federation and protocol, and shows the backend and the seed of the run.
    pub fn describe(&self, info: RunInfo) {
        self.0.update(|page| page.run().info = Some(info));
    }

    /// Returns the metrics as Prometheus text.
    pub fn text(&self) -> String {
        exposition::text(&exposition::registry(self.0.clone(), None))
    }
}
