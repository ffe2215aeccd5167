//! The driver's contract, against real processes.

use std::fs;

use faultline_conformance::{Driver, Evidence, Scenario};
use faultline_core::ClusterId;
use faultline_runtime::{Links, LocalOptions, LocalOutcome, StorageKind, StorageOptions, local};
use faultline_trace::Bundle;

/// Runs a scenario with one process for each probe.
struct Processes;

impl Driver for Processes {
    fn run<const FIFO: bool>(&mut self, scenario: &Scenario) -> Evidence {
        let dir = tempfile::tempdir().expect("a directory for the run");
        let bundle = Bundle::create(dir.path().join("run")).expect("a bundle");
        let script = dir.path().join("script");
        fs::write(&script, postcard::to_stdvec(&scenario.script).expect("a script")).expect("its file");

        let clusters = || (0..scenario.clusters.len()).map(|index| ClusterId(index as u16));
        let mut links = Links::default();
        for from in clusters() {
            links.requested.extend(clusters().map(|to| ((from, to), scenario.link(from, to))));
        }
        let order = if FIFO { "fifo" } else { "any" };
        let volatile = scenario.supervisor.volatile_storage;
        let options = LocalOptions {
            command: vec![env!("CARGO_BIN_EXE_probe-node").into(), script.into(), order.into()],
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
            metrics: None,
        };
        let LocalOutcome { outcome, faults, collapsed, .. } =
            local::run(options, &mut ()).expect("the run is carried out");
        assert_eq!(collapsed, [], "nodes do not end by themselves");
        let trace = bundle.read_trace().expect("the facts can be read");
        Evidence { trace, outcome, faults }
    }
}

faultline_conformance::conformance_tests!(Processes);
