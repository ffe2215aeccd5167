//! Runs a federation on real processes: translates it into options of the runtime, and the outcome into the end of a
//! session's run.

use std::path::Path;
use std::sync::Arc;

use faultline_api::quantity::Bandwidth;
use faultline_api::resource::StorageKind as Asked;
use faultline_catalog::{Hosted, Setup};
use faultline_core::{ClusterId, Span};
use faultline_runtime::metrics::ClusterNames;
use faultline_runtime::supervise::{Collapse, Names, Wishes};
use faultline_runtime::{Links, RunOptions, RunOutcome, StorageKind, StorageOptions};
use faultline_session::Ended;

/// For this long, links are measured again if they differ from the request, because a machine may be busy for a
/// moment.
const MEASURE_AGAIN_FOR: Span = Span::from_secs(5);

/// Returns everything that determines a run of a federation on real processes, recorded in `run_dir`. Metrics are not
/// served and do not name the run, and the run cannot be interrupted.
pub fn run_options<N: Hosted>(setup: &Setup<N>, run_dir: &Path) -> RunOptions {
    let clusters = setup.names.clusters() as u16;
    RunOptions {
        run_dir: run_dir.to_owned(),
        supervisor: setup.supervisor.clone(),
        membership: setup.membership.clone(),
        names: Names {
            processes: setup.names.processes(),
            clusters: ClusterNames(
                (0..clusters).map(|it| setup.names.cluster(ClusterId(it)).to_owned()).collect(),
            ),
        },
        info: None,
        seed: setup.seed,
        links: Links { requested: setup.links.clone() },
        storage: StorageOptions {
            kind: match setup.storage.kind {
                Asked::Memory => StorageKind::Memory,
                Asked::Disk => StorageKind::Disk,
            },
            write_bandwidth: setup.storage.write_bandwidth.map_or(0, Bandwidth::bytes_per_second),
            latency: setup.storage.latency.map_or(Span::ZERO, |it| it.0),
        },
        measure_again_for: MEASURE_AGAIN_FOR,
        metrics: None,
        interrupted: Arc::default(),
        wishes: Wishes::default(),
    }
}

/// Returns how a run of the runtime ended, and the processes that ended by themselves during it.
pub fn ended(run: RunOutcome) -> (Ended, Vec<Collapse>) {
    let RunOutcome { outcome, added, faults, effects, links, duration, collapsed } = run;
    (Ended { outcome, added, faults, effects, links: Some(links), duration }, collapsed)
}
