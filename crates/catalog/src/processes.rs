//! From a federation to a run on real processes.

use std::path::Path;
use std::sync::Arc;

use faultline_api::quantity::Bandwidth;
use faultline_api::resource::StorageKind as Asked;
use faultline_core::{ClusterId, Protocol, Span};
use faultline_runtime::metrics::ClusterNames;
use faultline_runtime::supervise::{Names, Wishes};
use faultline_runtime::{Links, RunOptions, StorageKind, StorageOptions};

use crate::Setup;

/// A machine may be busy with other things for a moment, and links are not as asked for then.
const MEASURE_AGAIN_FOR: Span = Span::from_secs(5);

impl<P: Protocol> Setup<P> {
    /// Everything that decides a run of this federation on real processes, recorded in `run_dir`. Its metrics are not
    /// served, and nothing interrupts it.
    pub fn run_options(&self, run_dir: &Path) -> RunOptions {
        let clusters = self.names.clusters() as u16;
        RunOptions {
            run_dir: run_dir.to_owned(),
            supervisor: self.supervisor.clone(),
            membership: self.membership.clone(),
            names: Names {
                processes: self.names.processes(),
                clusters: ClusterNames(
                    (0..clusters).map(|it| self.names.cluster(ClusterId(it)).to_owned()).collect(),
                ),
            },
            seed: self.seed,
            links: Links { requested: self.links.clone() },
            storage: StorageOptions {
                kind: match self.storage.kind {
                    Asked::Memory => StorageKind::Memory,
                    Asked::Disk => StorageKind::Disk,
                },
                write_bandwidth: self.storage.write_bandwidth.map_or(0, Bandwidth::bytes_per_second),
                latency: self.storage.latency.map_or(Span::ZERO, |it| it.0),
            },
            measure_again_for: MEASURE_AGAIN_FOR,
            metrics: None,
            interrupted: Arc::default(),
            wishes: Wishes::default(),
        }
    }
}
