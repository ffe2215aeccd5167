//! The port of the protocol to Python, `examples/python/bcs.py`, acts exactly like this crate: both report the same
//! facts. This checks every event and action of the contract for programs that the protocol uses.
//!
//! `FAULTLINE_PORT_SEEDS` is the number of federations (default: 200).

use bcs::{Bcs, Parameters};
use faultline::core::Span;
use faultline::kit::{Candidate, run_federation};
use faultline::quantity::{Bandwidth, Period};
use faultline::resource::ProtocolSpec;

fn program() -> ProtocolSpec {
    serde_json::from_value(serde_json::json!({ "program": {
        "command": ["python3", "bcs.py"],
        "files": { "bcs.py": { "text": include_str!("../../python/bcs.py") } },
        "parameters": { "checkpointEvery": "100ms" },
        "scope": "process",
        "affected": "line",
        "promises": ["checkpoints", "progress"],
    } }))
    .unwrap()
}

#[test]
fn the_port_reports_the_same_facts() {
    let seeds = std::env::var("FAULTLINE_PORT_SEEDS").map_or(200, |it| it.parse().unwrap());
    let parameters = Parameters { checkpoint_every: Period(Some(Span::from_millis(100))), defect: None };
    let candidate = Candidate::<Bcs>::named(parameters);
    let mut rollbacks = 0;
    for seed in 0..seeds {
        let mut federation = candidate.try_seed(seed).unwrap().federation;
        if let Some(storage) = &mut federation.spec.storage {
            // The durable record has another length in each language, which takes another time to write.
            storage.write_bandwidth = Some(Bandwidth::UNLIMITED);
        }
        let mut ported = federation.clone();
        ported.spec.protocol = program();
        let of_crate = run_federation(federation, seed).unwrap();
        let of_port = run_federation(ported, seed).unwrap();
        assert_eq!(of_crate.manifest.promises, of_port.manifest.promises);
        assert_eq!(of_crate.manifest.outcome, of_port.manifest.outcome, "seed {seed}");
        assert!(of_crate.trace.streams == of_port.trace.streams, "seed {seed}: the facts differ");
        rollbacks += of_crate.transcript().matches("rolls back").count() as u64;
    }
    assert!(rollbacks > seeds, "few of the runs have rollbacks: {rollbacks}");
}
