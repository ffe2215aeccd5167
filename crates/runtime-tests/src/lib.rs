//! Code shared by the tests and benchmarks of the real driver, for running a federation with one process per node.

pub mod agents;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use faultline_conformance::{Scenario, membership};
use faultline_core::{ClusterId, Span};
use faultline_runtime::metrics::ClusterNames;
use faultline_runtime::supervise::{ChangeQueue, Names};
use faultline_runtime::{Links, RunOptions, StorageMedium, StorageOptions};
use faultline_supervisor::Config;
use faultline_trace::Bundle;

/// Returns the command that starts a node of `scenario` with the program `probe_node`. Writes the scenario's
/// script to a file in `dir`.
///
/// # Panics
///
/// Panics if the script cannot be written.
pub fn probe_command(scenario: &Scenario, fifo: bool, dir: &Path, probe_node: OsString) -> Vec<OsString> {
    let script = dir.join("script");
    fs::write(&script, postcard::to_stdvec(&scenario.script).expect("a script")).expect("its file");
    vec![probe_node, script.into(), if fifo { "fifo" } else { "any" }.into()]
}

/// Returns the options of a run of `scenario` under `dir`.
///
/// # Panics
///
/// Panics if the bundle cannot be created.
pub fn run_options(scenario: &Scenario, dir: &Path) -> RunOptions {
    let bundle = Bundle::create(dir.join("run")).expect("a bundle");
    let clusters = || (0..scenario.clusters.len()).map(|index| ClusterId(index as u16));
    let mut links = Links::default();
    for from in clusters() {
        links.requested.extend(clusters().map(|to| ((from, to), scenario.link(from, to))));
    }
    let volatile = scenario.supervisor.volatile_storage;
    RunOptions {
        run_dir: bundle.dir().to_owned(),
        description: Arc::default(),
        supervisor: scenario.supervisor.clone(),
        membership: scenario.membership(),
        names: Names {
            processes: scenario.processes().map(|process| process.to_string()).collect(),
            clusters: ClusterNames(clusters().map(|it| format!("cluster-{}", it.0)).collect()),
        },
        info: None,
        seed: scenario.seed,
        links,
        storage: StorageOptions {
            kind: if volatile { StorageMedium::Memory } else { StorageMedium::Disk },
            ..StorageOptions::default()
        },
        measure_again_for: Span::ZERO,
        metrics: None,
        interrupted: Arc::default(),
        memory: None,
        fact_bytes: 0,
        change_queue: ChangeQueue::default(),
    }
}

/// Returns the options of a run for benchmarks: without faults or emulated links, recorded in `run_dir`. `clusters`
/// contains the number of processes in each cluster. The run ends at `deadline` at the latest.
pub fn undisturbed(run_dir: &Path, clusters: &[u32], deadline: Span) -> RunOptions {
    let membership = membership(clusters);
    RunOptions {
        run_dir: run_dir.to_owned(),
        description: Arc::default(),
        supervisor: Config {
            detect_after: Span::from_secs(20),
            restart_after: Span::from_secs(1),
            spares: 0,
            volatile_storage: false,
            deadline,
            start_within: Some(deadline),
            plan: Vec::new(),
            scope: faultline_core::Scope::Cluster,
            joins: Vec::new(),
            leaves: Vec::new(),
            is_planned: false,
            least_work_left_percent: 0,
            system: None,
        },
        names: Names {
            processes: (0..membership.members.len()).map(|index| format!("node-{index}")).collect(),
            clusters: ClusterNames::default(),
        },
        membership,
        info: None,
        seed: 1,
        links: Links::default(),
        storage: StorageOptions::default(),
        measure_again_for: Span::ZERO,
        metrics: None,
        interrupted: Arc::default(),
        memory: None,
        fact_bytes: 0,
        change_queue: ChangeQueue::default(),
    }
}
