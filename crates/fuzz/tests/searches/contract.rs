//! Tests the contract between HydEE and its programs: programs that honour it, a program that violates it, and how a
//! violation is reported. The master-worker application violates the contract: the first worker to answer gets the next
//! piece of work.

use std::sync::Arc;

use faultline_catalog::messages;
use faultline_checker::{Judgement, Property, Verdict};
use faultline_core::fault::Outcome;
use faultline_core::{Membership, ProcessId, Span};
use faultline_fuzz::{Differs, Scenario, difference, run};
use faultline_session::{Session, Simulator};
use faultline_workloads::{Workload, exchange, farm, heat, salted};

const MASTER: ProcessId = ProcessId(0);

/// Returns a master-worker application, which no file can request under HydEE.
fn farm(pieces: u32) -> faultline_workloads::Config {
    faultline_workloads::Config::Farm(farm::Config { pieces, piece_cost: Span::from_millis(3) })
}

/// Returns three clusters of two nodes under HydEE, with these faults.
fn federation(faults: &str, options: &str) -> faultline_api::Federation {
    let text = format!(
        "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: farm }}
spec:
  clusters: [{{ name: a, nodes: 2 }}, {{ name: b, nodes: 2 }}, {{ name: c, nodes: 2 }}]
  links: {{ between: {{ latency: 5ms, jitter: 4ms }} }}
  protocol: {{ hydee: {{ checkpointEvery: 1h{options} }} }}
  application: {{ heat: {{ steps: 100 }} }}
  faults: {faults}
  deadline: 60s
"
    );
    let federation = faultline_api::parse("farm.yaml", text.as_bytes());
    federation.unwrap_or_else(|it| panic!("{it}: {:?}", it.errors()))
}

/// Runs the master-worker application instead of the federation's own.
fn run_farm(federation: &faultline_api::Federation, seed: u64) -> (Outcome, Judgement) {
    let setup = messages(federation, Some(seed)).unwrap().hosting::<Workload>(farm(200));
    let session = Session::new(federation).seed(seed);
    // The result depends on which worker answers first.
    let run = session.simulate_setup(&setup, || None, &mut Simulator::new(&mut ())).judge();
    (run.manifest.outcome.expect("it has ended"), run.judgement)
}

#[test]
fn master_and_workers_are_refused_once_detected() {
    let calm = federation("[]", "");
    let sound = run_farm(&calm, 1);
    assert_eq!((sound.0, sound.1.verdict), (Outcome::Completed, Verdict::Pass), "{:?}", sound.1.reasons);

    let federation = federation("[{ at: 100ms, crash: { cluster: a, node: 0 } }]", "");
    let mut refused = 0;
    for seed in 0..20 {
        let (outcome, judgement) = run_farm(&federation, seed);
        let Outcome::NotRepeated { id } = outcome else { continue };
        refused += 1;
        assert_eq!(id.from, MASTER);
        assert_eq!(judgement.verdict, Verdict::Fail);
        let told = &judgement.of(Property::Completed).violations[0].text;
        for word in [
            "a-0 did not send message",
            "is not send-deterministic",
            "a protocol that does not require send determinism",
        ] {
            assert!(told.contains(word), "{told}");
        }
    }
    assert!(refused >= 5, "detected in {refused} of 20 runs");
}

fn membership() -> Membership {
    messages(&federation("[]", ""), None).unwrap().membership
}

fn of_workload(config: faultline_workloads::Config) -> Option<faultline_fuzz::Difference> {
    difference::<Workload>(&Arc::new(config), &membership(), |it| it.0.into(), 4)
}

#[test]
fn two_orders_detect_master_and_workers_before_any_failure() {
    let found = of_workload(farm(50)).expect("it differs");
    assert_eq!(found.process, MASTER);
    // The first pieces of work do not depend on any answer.
    assert!(found.send >= 10, "{found:?}");
}

#[test]
fn programs_that_honour_the_contract_send_the_same_messages_in_every_order() {
    for pattern in 0..20 {
        let config = exchange::Config { pattern, exchanges: 100, ..exchange::Config::default() };
        assert_eq!(of_workload(faultline_workloads::Config::Exchange(config)), None);
    }
    let config =
        heat::Config { rows: 2, columns: 4, steps: 30, feedback_every: 3, ..heat::Config::default() };
    assert_eq!(
        of_workload(faultline_workloads::Config::Heat(heat::Config { state_bytes: 8, ..config })),
        None
    );
}

#[test]
fn answers_in_the_order_of_arrival_are_found() {
    let config = salted::Config { reply: 0.5, ..salted::Config::default() };
    let found = of_workload(faultline_workloads::Config::Salted(config)).expect("it differs");
    assert!(matches!(found.what, Differs::Message | Differs::Count | Differs::Consumed), "{found:?}");
}

/// Replicas in the same cluster are lost together with it. The cluster cannot be restored, and the report names the
/// holders that were asked.
#[test]
fn a_cluster_that_is_lost_with_all_copies_is_unrecoverable_by_design() {
    let lost = "[{ at: 1s, loseCluster: { cluster: b, storage: lost } }]";
    let federation = federation(lost, ", replicas: 1, replicateTo: sameCluster");
    let trial = run(Scenario { seed: 1, federation, defect: None }).unwrap();
    assert!(
        matches!(trial.manifest.outcome, Some(Outcome::Unrecoverable { .. })),
        "{:?}",
        trial.manifest.outcome
    );
    assert_eq!(trial.judgement.verdict, Verdict::Unknown);
    assert_eq!(trial.judgement.of(Property::UnrecoverableJustified).violation_count(), 0);
    let told = trial.judgement.of(Property::Completed).unknown.as_deref().unwrap_or_default();
    for word in ["b is unrecoverable by design", "b-0's part of checkpoint", "not found at b-0, b-1"] {
        assert!(told.contains(word), "{told}");
    }
}
