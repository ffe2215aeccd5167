//! One small run of each protocol as a transcript, to be reviewed like a specification. A change in a protocol's
//! behaviour shows up in the protocol's files under `snapshots/`. `INSTA_UPDATE=always cargo test` rewrites the files.

use std::collections::{BTreeMap, BTreeSet};

use faultline_api::Federation;
use faultline_api::resource::{Family, ProtocolSpec};
use faultline_checker::Verdict;
use faultline_report::transcript::{TranscriptLine, text, transcript};
use faultline_report::{DisplayNames, Timeline};
use faultline_session::{Session, Simulator};

/// The clusters exchange messages in both directions. One process fails.
const MESSAGES: &str = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: golden }
spec:
  clusters: [{ name: lyon, nodes: 2 }, { name: nancy, nodes: 1 }]
  links: { within: { latency: 100us }, between: { latency: 1ms } }
  protocol: { hc3i: { checkpointEvery: 30ms, replicateTo: otherCluster } }
  application: { heat: { rows: 6, columns: 6, steps: 6, stepTime: 10ms, feedbackEvery: 2 } }
  failures: { detectAfter: 20ms, restartAfter: 5ms }
  faults: [{ at: 45ms, crash: { cluster: lyon, node: 1 } }]
  deadline: 1s
";

/// One process steals from another and fails.
const TASKS: &str = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: golden }
spec:
  clusters: [{ name: lyon, nodes: 1 }, { name: nancy, nodes: 1 }]
  links: { between: { latency: 1ms } }
  protocol: { tic: { tau: 20ms, replicateTo: otherCluster } }
  application: { fibonacci: { n: 8, threshold: 3, taskTime: 10ms } }
  failures: { detectAfter: 20ms, restartAfter: 5ms }
  faults: [{ at: 35ms, crash: { cluster: nancy, node: 0 } }]
  deadline: 1s
";

/// Three blocks in a row, each computed by one process. One process fails after a checkpoint.
const PLANNED: &str = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: golden }
spec:
  clusters: [{ name: lyon, nodes: 2 }, { name: nancy, nodes: 1 }]
  links: { within: { latency: 100us }, between: { latency: 1ms } }
  protocol: { cck: { tau: 30ms, replicateTo: otherCluster } }
  application: { jacobi: { rows: 1, columns: 3, size: 2, iterations: 7, testEvery: 0, taskTime: 10ms } }
  schedule: { window: 1 }
  failures: { detectAfter: 20ms, restartAfter: 5ms }
  faults: [{ at: 65ms, crash: { cluster: lyon, node: 1 } }]
  deadline: 1s
";

fn golden(family: &str, name: &str, text_of_file: &str) {
    let mut federation: Federation = faultline_api::parse("golden.yaml", text_of_file.as_bytes())
        .unwrap_or_else(|it| panic!("{it}: {:?}", it.errors()));
    federation.spec.protocol = federation.spec.protocol.or_instead(name).expect("the protocol exists");
    let recording = Session::new(&federation).simulate(&mut Simulator::new(&mut ())).unwrap().judge();
    // Without a protocol, the failure ends the run.
    let expected = if name == "none" { Verdict::Unknown } else { Verdict::Pass };
    assert_eq!(recording.judgement.verdict, expected, "{name}: {:?}", recording.judgement.reasons);
    let names = DisplayNames::new(&recording.manifest);
    let history = Timeline::new(&recording.trace, &recording.manifest);
    let lines = transcript(&recording.trace, &history, &names);
    assert_names_are_unique(&lines);
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(format!("{family}-{name}"), text(&lines));
    });
}

/// Panics if messages of different channels have the same short name.
fn assert_names_are_unique(lines: &[TranscriptLine]) {
    let mut channels: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for line in lines {
        let sent = line.text.strip_prefix("sends m").and_then(|it| it.split_once(" to "));
        if let Some((number, to)) = sent {
            channels.entry(number).or_default().insert((&line.who, to));
        }
    }
    let shared: Vec<_> = channels.iter().filter(|(_, it)| it.len() > 1).collect();
    assert!(shared.is_empty(), "{shared:?}");
}

#[test]
fn each_protocol_for_messages_does_what_its_transcript_says() {
    for name in ProtocolSpec::compared(Family::Messages) {
        golden("messages", name, MESSAGES);
    }
}

#[test]
fn each_protocol_for_tasks_does_what_its_transcript_says() {
    let federation = faultline_api::parse("golden.yaml", TASKS.as_bytes()).unwrap();
    for name in ProtocolSpec::compared_on(&federation.spec.application) {
        golden("tasks", name, TASKS);
    }
}

#[test]
fn each_protocol_for_tasks_that_are_assigned_in_advance_does_what_its_transcript_says() {
    for name in ["cck", "cck.coordination=global"] {
        golden("planned", name, PLANNED);
    }
}
