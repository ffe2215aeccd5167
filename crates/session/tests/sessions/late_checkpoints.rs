//! The bound on lost work of planned programs, in whole runs: it is met exactly, and a bound that is slightly tighter
//! is violated.

use faultline_checker::{Judgement, Property, Verdict};
use faultline_core::Span;
use faultline_session::{Session, Simulator};

/// A federation in which one process fails and, later, the recovery process, which coordinates the checkpoints.
const TEXT: &str = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: planned }
spec:
  clusters: [{ name: lyon, nodes: 2 }, { name: nancy, nodes: 2 }]
  links: { within: { latency: 50us }, between: { latency: 3ms } }
  protocol: { cck: { tau: 100ms, replicateTo: otherCluster } }
  application: { jacobi: { rows: 2, columns: 2, size: 2, iterations: 120, testEvery: 0, taskTime: 10ms } }
  failures: { detectAfter: 100ms, restartAfter: 50ms }
  faults:
    - { at: 430ms, crash: { cluster: lyon, node: 1 } }
    - { at: 950ms, crash: { process: recovery-process } }
";

/// Judges the run as if `tau` were its configured checkpoint period.
fn judged(tau: Span) -> Judgement {
    let federation = faultline_api::parse("test.yaml", TEXT.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
    let mut recording = Session::new(&federation).seed(3).simulate(&mut Simulator::new(&mut ())).unwrap();
    let bounds = recording.manifest.bounds.as_mut().expect("the protocol takes checkpoints");
    assert_eq!(bounds.checkpoint_every, [Some(Span::from_millis(100)); 2]);
    bounds.checkpoint_every.fill(Some(tau));
    recording.judge().judgement
}

#[test]
fn the_coordinator_of_a_planned_program_requests_checkpoints_in_time() {
    let judgement = judged(Span::from_millis(100));
    assert_eq!(judgement.verdict, Verdict::Pass, "{:?}", judgement.reasons);
    let instances = judgement.of(Property::BoundedLoss).instances;
    assert!(instances >= 6, "{instances}");
    let late = judged(Span::from_micros(99_990));
    assert_eq!(late.verdict, Verdict::Fail);
    assert!(late.of(Property::BoundedLoss).violation_count() >= 4);
}
