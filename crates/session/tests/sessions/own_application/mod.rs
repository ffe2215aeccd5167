//! The worked example of `docs/applications.md`: a user-defined program under three protocols, with faults.

mod sort;

use std::sync::Arc;

use faultline_api::{Federation, parse};
use faultline_catalog::{manifest, messages};
use faultline_checker::{Judgement, Verdict};
use faultline_core::fault::Outcome;
use faultline_core::{Digest, ProcessId};
use faultline_session::{Session, Simulator};
use faultline_workloads::messaging::{Performer, digest_of, pack, sequential};
use sort::Sort;

/// The number of values that each rank sorts.
const EACH: usize = 50;

/// Runs the example in place of the federation's application.
fn run_sort(federation: &Federation, seed: u64) -> (Judgement, usize) {
    let setup = messages(federation, Some(seed)).unwrap().hosting::<Performer<Sort>>(EACH);
    let session = Session::new(federation).seed(seed);
    let expected = || manifest::expected(&setup);
    let run = session.simulate_setup(&setup, expected, &mut Simulator::new(&mut ())).judge();
    assert_eq!(run.manifest.outcome, Some(Outcome::Completed));
    assert!(run.manifest.expected.is_some(), "a program on the messaging interface has a reference");
    (run.judgement, run.manifest.faults.len())
}

fn federation(protocol: &str, faults: &str) -> Federation {
    let text = format!(
        "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: sort }}
spec:
  clusters: [{{ name: a, nodes: 3 }}, {{ name: b, nodes: 3 }}]
  links: {{ between: {{ latency: 5ms, jitter: 4ms }} }}
  protocol: {protocol}
  application: {{ heat: {{}} }} # replaced by the example
  faults: {faults}
  deadline: 60s
"
    );
    parse("sort.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}: {:?}", it.errors()))
}

#[test]
fn the_example_is_judged_under_every_protocol_with_faults() {
    let faults = "[{ at: 120ms, crash: { cluster: b, node: 0 } }, { at: 200ms, loseCluster: { cluster: a, storage: lost } }]";
    let options = "{ checkpointEvery: 100ms, replicas: 1, replicateTo: sharedStorage }";
    for protocol in ["hc3i", "hydee", "coordinated"] {
        let federation = federation(&format!("{{ {protocol}: {options} }}"), faults);
        for seed in 0..10 {
            let (judgement, faults) = run_sort(&federation, seed);
            assert_eq!(faults, 2);
            assert_eq!(judgement.verdict, Verdict::Pass, "{protocol}, seed {seed}: {:?}", judgement.reasons);
        }
    }
}

#[test]
fn the_example_sorts() {
    let mut all: Vec<u64> = (0..6 * EACH as u64).map(|it| it * 7919 % 10_007).collect();
    all.sort_unstable();
    let greatest = *all.last().unwrap() as f64;
    let block = |rank: usize| &all[rank * EACH..(rank + 1) * EACH];
    // In six rounds, each rank receives six blocks from its neighbours, but the ranks at the two ends receive only
    // three. Then the greatest number travels up a tree.
    let expected: Vec<(ProcessId, Digest)> = [(0, 3 + 3), (1, 6), (2, 6 + 1), (3, 6), (4, 6 + 1), (5, 3)]
        .map(|(rank, arrived)| {
            let greatest = if rank == 0 { greatest } else { 0.0 };
            (ProcessId(rank as u32), digest_of(&pack(&(block(rank), greatest)), arrived))
        })
        .into();
    let setup = federation("{ none: {} }", "[]");
    let membership = messages(&setup, None).unwrap().membership;
    let found = sequential::<Sort>(&Arc::new(EACH), &membership).expect("the ranks do not deadlock");
    assert_eq!(found, expected);
}

#[test]
fn the_guide_shows_the_example() {
    let guide = include_str!("../../../../../docs/applications.md");
    let program = include_str!("sort.rs");
    assert!(guide.contains(program), "docs/applications.md has the program of sort.rs in full");
}
