//! What the tests of the real driver share: how a federation of probes is run with one process for each.

pub mod agents;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use faultline_conformance::Scenario;
use faultline_core::{ClusterId, Span};
use faultline_runtime::{Links, RunOptions, StorageKind, StorageOptions};
use faultline_trace::Bundle;

/// What starts a node of `scenario`; its script is put below `dir`, and `probe_node` is its program.
pub fn probe_command(scenario: &Scenario, fifo: bool, dir: &Path, probe_node: OsString) -> Vec<OsString> {
    let script = dir.join("script");
    fs::write(&script, postcard::to_stdvec(&scenario.script).expect("a script")).expect("its file");
    vec![probe_node, script.into(), if fifo { "fifo" } else { "any" }.into()]
}

/// A run of `scenario` below `dir`.
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
        supervisor: scenario.supervisor.clone(),
        membership: scenario.membership(),
        names: scenario.processes().map(|process| process.to_string()).collect(),
        seed: scenario.seed,
        links,
        storage: StorageOptions {
            kind: if volatile { StorageKind::Memory } else { StorageKind::Disk },
            ..StorageOptions::default()
        },
        measure_again_for: Span::ZERO,
        metrics: None,
        interrupted: Arc::default(),
    }
}
