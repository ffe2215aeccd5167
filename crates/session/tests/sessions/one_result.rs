//! A task-based program has the same result under every protocol that can run it.

use std::collections::BTreeSet;

use faultline_api::Federation;
use faultline_api::resource::{Family, ProtocolSpec};
use faultline_checker::Verdict;
use faultline_core::Fact;
use faultline_session::{Session, Simulator};

/// Under every protocol but `none`, a process fails and returns.
const TEXT: &str = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: tasks }
spec:
  clusters: [{ name: lyon, nodes: 2 }, { name: nancy, nodes: 2 }]
  links: { between: { latency: 3ms } }
  protocol: PROTOCOL
  application: { jacobi: { rows: 4, columns: 4, size: 4, iterations: 20, taskTime: 10ms } }
  failures: { detectAfter: 100ms, restartAfter: 50ms }
FAULTS";

const CRASH: &str = "  faults: [{ at: 300ms, crash: { cluster: lyon, node: 1 } }]\n";

fn federation(protocol: &str, faults: &str) -> Federation {
    let text = TEXT.replace("PROTOCOL", protocol).replace("FAULTS", faults);
    faultline_api::parse("test.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}"))
}

#[test]
fn every_protocol_computes_the_same_result_from_one_file() {
    let protocols = [
        ("none", "{ none: {} }", ""),
        ("cck", "{ cck: { tau: 100ms, replicateTo: otherCluster } }", CRASH),
        (
            "cck.coordination=global",
            "{ cck: { tau: 100ms, coordination: global, replicateTo: otherCluster } }",
            CRASH,
        ),
        ("tic", "{ tic: { tau: 100ms, replicateTo: otherCluster } }", CRASH),
        ("sel", "{ sel: { tau: 100ms, replicateTo: otherCluster } }", CRASH),
        ("satin", "{ satin: {} }", CRASH),
    ];
    let family: BTreeSet<&str> = ProtocolSpec::compared(Family::Tasks).into_iter().collect();
    assert_eq!(protocols.map(|it| it.0).into_iter().collect::<BTreeSet<_>>(), family);
    let mut results = Vec::new();
    for (_, protocol, faults) in protocols {
        let federation = federation(protocol, faults);
        let recording = Session::new(&federation).seed(3).simulate(&mut Simulator::new(&mut ())).unwrap();
        let recording = recording.judge();
        assert_eq!(
            recording.judgement.verdict,
            Verdict::Pass,
            "{protocol}: {:?}",
            recording.judgement.reasons
        );
        let facts = recording.trace.streams.values().flatten();
        let finished = facts.filter_map(|(_, fact)| match fact {
            Fact::Finished(finished) => Some(finished.1),
            _ => None,
        });
        let before = results.len();
        results.extend(finished);
        assert!(results.len() >= before + 4, "{protocol}: every process reports the result");
    }
    assert!(results.iter().all(|it| *it == results[0]), "{results:?}");
}
