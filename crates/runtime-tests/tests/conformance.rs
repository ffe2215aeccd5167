//! The driver's contract, against real processes.

use faultline_conformance::{Driver, Evidence, Scenario};
use faultline_runtime::{LocalOutcome, local};
use faultline_runtime_tests::local_options;
use faultline_trace::Bundle;

/// Runs a scenario with one process for each probe.
struct Processes;

impl Driver for Processes {
    fn run<const FIFO: bool>(&mut self, scenario: &Scenario) -> Evidence {
        let dir = tempfile::tempdir().expect("a directory for the run");
        let options = local_options(scenario, FIFO, dir.path(), env!("CARGO_BIN_EXE_probe-node").into());
        let bundle = Bundle::open(&options.run_dir);
        let LocalOutcome { outcome, faults, collapsed, .. } =
            local::run(options, &mut ()).expect("the run is carried out");
        assert_eq!(collapsed, [], "nodes do not end by themselves");
        let trace = bundle.read_trace().expect("the facts can be read");
        Evidence { trace, outcome, faults }
    }
}

faultline_conformance::conformance_tests!(Processes);
