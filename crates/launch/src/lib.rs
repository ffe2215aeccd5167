//! Runs a federation on real processes: translates the federation into options for the runtime, and the runtime's
//! outcome into the [`RunEnd`] of a session. Each process of the federation runs in [`node()`].

mod missing;
mod node;
mod system;

use std::sync::Arc;

use faultline_api::quantity::Bandwidth;
use faultline_api::resource::StorageKind;
use faultline_catalog::Hosted;
use faultline_core::{ClusterId, Span};
use faultline_runtime::memory;
use faultline_runtime::metrics::ClusterNames;
use faultline_runtime::supervise::{ChangeQueue, Names, UnexpectedEnd};
use faultline_runtime::{Links, RunOptions, RunOutcome, StorageMedium, StorageOptions};
use faultline_session::{BYTES_PER_FACT, MemoryBound, PreparedRun, RunEnd, memory_bound};

pub use missing::missing_commands;
use node::Description;
pub use node::{HostError, execute, node};

/// Time for which a link is measured again while its measurements differ from the requested properties, since a machine
/// may be busy for a moment.
const MEASURE_AGAIN_FOR: Span = Span::from_secs(5);

/// Returns the options for carrying out a run on real processes. The run serves no metrics, has no labels for them, and
/// cannot be interrupted; callers may change this.
pub fn run_options<N: Hosted>(begun: &PreparedRun<'_, N>) -> RunOptions {
    let PreparedRun { setup, manifest, bundle } = begun;
    let clusters = setup.names.clusters() as u16;
    RunOptions {
        run_dir: bundle.dir().to_owned(),
        description: Description::of(manifest).to_bytes(),
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
                StorageKind::Memory => StorageMedium::Memory,
                StorageKind::Disk => StorageMedium::Disk,
            },
            write_bandwidth: setup.storage.write_bandwidth.map_or(0, Bandwidth::bytes_per_second),
            read_bandwidth: setup.storage.read_bandwidth().map_or(0, Bandwidth::bytes_per_second),
            latency: setup.storage.latency.map_or(Span::ZERO, |it| it.0),
        },
        // What does not emulate links does not get closer to them.
        measure_again_for: match setup.supervisor.system {
            None => MEASURE_AGAIN_FOR,
            Some(_) => Span::ZERO,
        },
        metrics: None,
        interrupted: Arc::default(),
        memory: memory_bound().map(|it| MemoryBound { used: memory_of_all, ..it }),
        fact_bytes: BYTES_PER_FACT,
        change_queue: ChangeQueue::default(),
    }
}

/// Returns the memory that this program and its descendants use, in bytes; 0 if it is unknown.
fn memory_of_all() -> u64 {
    memory::used_by_all().unwrap_or(0)
}

/// Converts the runtime's outcome into the end of a session's run, and returns it with the lives that ended
/// unexpectedly.
pub fn ended(run: RunOutcome) -> (RunEnd, Vec<UnexpectedEnd>) {
    let RunOutcome { outcome, added, faults, effects, pressure, links, duration, collapsed } = run;
    let links = Some(links);
    let waiting = Vec::new();
    (RunEnd { outcome, added, faults, effects, pressure, links, duration, waiting, program: None }, collapsed)
}
