//! Every link that a federation file may describe can be measured and confirmed.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::common::TestDirectory;

/// Latency in milliseconds, jitter in percent of the latency, loss in percent, and bandwidth.
type Combination = (u64, u64, u32, &'static str);

/// The links of a table, both directions alike. Before, those with a jitter of 40 % or a loss of 30 % or more could not
/// be confirmed.
const COMBINATIONS: [Combination; 21] = [
    (0, 0, 0, "8Mbit"),
    (0, 0, 50, "100Mbit"),
    (1, 0, 0, "1Mbit"),
    (1, 0, 10, "1Gbit"),
    (1, 0, 50, "100Mbit"),
    (1, 40, 0, "10Mbit"),
    (1, 100, 0, "100Mbit"),
    (1, 100, 50, "1Mbit"),
    (5, 0, 1, "100Mbit"),
    (5, 0, 30, "100Mbit"),
    (5, 20, 0, "1Gbit"),
    (5, 40, 10, "100Mbit"),
    (5, 100, 0, "100Mbit"),
    (5, 100, 30, "1Mbit"),
    (20, 0, 0, "100kbit"),
    (20, 0, 50, "100Mbit"),
    (20, 40, 0, "100Mbit"),
    (20, 100, 10, "100Mbit"),
    (50, 40, 2, "1Mbit"),
    (50, 100, 0, "100Mbit"),
    (100, 100, 5, "10Mbit"),
];

/// Returns a federation with a cluster for each letter, and a combination for each pair of clusters.
fn table() -> String {
    let clusters = ["a", "b", "c", "d", "e", "f", "g"];
    let ends = clusters
        .iter()
        .enumerate()
        .flat_map(|(at, from)| clusters[at + 1..].iter().map(move |to| (from, to)));
    let mut pairs = String::new();
    for ((a, b), (latency, jitter, loss, bandwidth)) in ends.zip(COMBINATIONS) {
        let jitter = latency * jitter * 10;
        for (from, to) in [(a, b), (b, a)] {
            writeln!(
                pairs,
                "      - {{ from: {from}, to: {to}, latency: {latency}ms, jitter: {jitter}us, loss: {loss}%, \
                 bandwidth: {bandwidth} }}"
            )
            .unwrap();
        }
    }
    let clusters: Vec<_> = clusters.iter().map(|it| format!("{{ name: {it}, nodes: 1 }}")).collect();
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: table }}
spec:
  seed: 4
  clusters: [{}]
  links:
    pairs:
{pairs}  protocol: {{ none: {{}} }}
  application: {{ heat: {{ steps: 20, stepTime: 10ms, feedbackEvery: 20 }} }}
  deadline: 1m
",
        clusters.join(", ")
    )
}

/// On a busy machine, a link may be slower than requested, so each link must be as requested in one of several runs.
#[test]
fn every_combination_of_properties_is_confirmed() {
    let place = TestDirectory::new();
    let mut confirmed = BTreeSet::new();
    for attempt in 0..5 {
        let (summary, _) = place.run("table.yaml", "local", &table(), &format!("run{attempt}"));
        let links = summary["links"].as_array().unwrap();
        let measured: Vec<_> = links.iter().filter(|it| it["samples"] != 0).collect();
        assert_eq!(measured.len(), 2 * COMBINATIONS.len(), "{summary}");
        confirmed
            .extend(measured.iter().filter(|it| it["asRequested"] == true).map(|it| it["link"].to_string()));
        if confirmed.len() == measured.len() {
            return;
        }
    }
    panic!("only these links were confirmed: {confirmed:?}");
}
