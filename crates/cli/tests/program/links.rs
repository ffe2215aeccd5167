//! Every link that a federation file may describe can be measured and confirmed.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

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

/// The links that the kernel emulates, one direction each. Losses of more than 5 % are refused there.
const BY_KERNEL: [Combination; 20] = [
    (100, 0, 0, "100Mbit"),
    (100, 0, 0, "1Mbit"),
    (100, 0, 1, "100Mbit"),
    (100, 0, 5, "100Mbit"),
    (100, 40, 0, "100Mbit"),
    (100, 40, 0, "1Mbit"),
    (100, 40, 1, "100Mbit"),
    (100, 40, 5, "100Mbit"),
    (100, 100, 0, "100Mbit"),
    (100, 100, 0, "1Mbit"),
    (100, 100, 1, "100Mbit"),
    (100, 100, 5, "100Mbit"),
    (200, 0, 0, "100Mbit"),
    (200, 0, 5, "1Mbit"),
    (200, 20, 0, "100Mbit"),
    (200, 60, 0, "100Mbit"),
    (200, 60, 2, "10Mbit"),
    (200, 80, 0, "1Mbit"),
    (200, 100, 0, "100Mbit"),
    (200, 100, 2, "100Mbit"),
];

/// Returns a federation with a cluster of one process for each name, and these links.
fn federation(clusters: &[&str], links: impl IntoIterator<Item = (String, String, Combination)>) -> String {
    let mut pairs = String::new();
    for (from, to, (latency, jitter, loss, bandwidth)) in links {
        let jitter = latency * jitter * 10;
        writeln!(
            pairs,
            "      - {{ from: {from}, to: {to}, latency: {latency}ms, jitter: {jitter}us, loss: {loss}%, \
             bandwidth: {bandwidth} }}"
        )
        .unwrap();
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
  failures: {{ detectAfter: 20s, restartAfter: 100ms }}
  deadline: 1m
",
        clusters.join(", ")
    )
}

/// Runs a federation until each of its links has been as requested in one of a few runs, because on a busy machine, a
/// link may be slower than requested.
fn confirm(place: &TestDirectory, text: &str, emulation: &str, links: usize) {
    place.write("table.yaml", text);
    let mut confirmed = BTreeSet::new();
    for attempt in 0..5 {
        let out = format!("run{}", place.dir().read_dir().unwrap().count());
        let arguments = ["run", "table.yaml", "--links", emulation, "--out", &out, "--format", "json"];
        let output = place.faultline(arguments).output().unwrap();
        let summary: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        let all = summary["links"].as_array().unwrap();
        let measured: Vec<_> = all.iter().filter(|it| it["samples"] != 0).collect();
        assert_eq!(measured.len(), links, "{summary}");
        confirmed
            .extend(measured.iter().filter(|it| it["asRequested"] == true).map(|it| it["link"].to_string()));
        if confirmed.len() == links {
            return;
        }
        eprintln!("attempt {attempt}: {measured:#?}");
    }
    panic!("only these links were confirmed: {confirmed:?}");
}

#[test]
fn every_combination_of_properties_is_confirmed() {
    let clusters = ["a", "b", "c", "d", "e", "f", "g"];
    let pairs =
        clusters.iter().enumerate().flat_map(|(at, a)| clusters[at + 1..].iter().map(move |b| [*a, *b]));
    let links = pairs.zip(COMBINATIONS).flat_map(|([a, b], combination)| {
        [[a, b], [b, a]].map(|[from, to]| (from.to_owned(), to.to_owned(), combination))
    });
    confirm(&TestDirectory::new(), &federation(&clusters, links), "in-node", 2 * COMBINATIONS.len());
}

/// `.ci/run` runs this test under a kernel that has netem.
#[test]
#[ignore = "needs root and a kernel with netem, and takes minutes under an emulated one"]
fn every_combination_is_confirmed_under_traffic_control() {
    let place = TestDirectory::new();
    for links in BY_KERNEL.chunks(2) {
        let links = links.iter().zip([["a", "b"], ["b", "a"]]);
        let links = links.map(|(it, [from, to])| (from.to_owned(), to.to_owned(), *it));
        confirm(&place, &federation(&["a", "b"], links), "tc", 2);
    }
}
