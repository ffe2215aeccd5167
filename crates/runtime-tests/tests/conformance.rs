//! Runs the tests of the driver contract on real processes: children of the supervisor, and processes hosted
//! by agents.

use faultline_conformance::{Driver, Evidence, Scenario};
use faultline_runtime::{RunOutcome, local, remote};
use faultline_runtime_tests::agents::Agents;
use faultline_runtime_tests::{probe_command, run_options};
use faultline_trace::Bundle;

/// The driver with one child process per probe.
struct Children;

impl Driver for Children {
    fn run<const FIFO: bool>(&mut self, scenario: &Scenario) -> Evidence {
        let dir = tempfile::tempdir().expect("a directory for the run");
        let command = probe_command(scenario, FIFO, dir.path(), env!("CARGO_BIN_EXE_probe-node").into());
        let options = run_options(scenario, dir.path());
        let bundle = Bundle::open(&options.run_dir);
        let outcome = local::run(command, options, &mut ()).expect("the run succeeds");
        evidence(&bundle, outcome)
    }
}

/// The driver with one agent per probe.
struct Remote;

impl Driver for Remote {
    fn run<const FIFO: bool>(&mut self, scenario: &Scenario) -> Evidence {
        let dir = tempfile::tempdir().expect("a directory for the run");
        let command = probe_command(scenario, FIFO, dir.path(), env!("CARGO_BIN_EXE_probe-node").into());
        let options = run_options(scenario, dir.path());
        let bundle = Bundle::open(&options.run_dir);
        let agents = Agents::start(
            dir.path(),
            env!("CARGO_BIN_EXE_probe-agent"),
            &command,
            options.names.processes.len(),
        );
        let place_registry = agents.place_registry();
        let outcome =
            remote::run(agents.options(), options, None, &place_registry, &mut ()).expect("the run succeeds");
        assert_eq!(place_registry.state().requests, [], "every agent has responded");
        evidence(&bundle, outcome)
    }
}

fn evidence(bundle: &Bundle, run: RunOutcome) -> Evidence {
    let RunOutcome { outcome, faults, collapsed, .. } = run;
    assert_eq!(collapsed, [], "no node ends unexpectedly");
    let trace = bundle.read_trace().expect("the facts can be read");
    assert_eq!(trace.flaws, [], "no fact is missing");
    Evidence { trace, outcome, faults }
}

mod children {
    faultline_conformance::conformance_tests!(super::Children);
}

mod remote_places {
    faultline_conformance::conformance_tests!(super::Remote);
}
