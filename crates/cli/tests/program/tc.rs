//! Tests links that are emulated with traffic control, as far as this machine supports it, and the findings
//! of `doctor` about traffic control.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::common::{TestDirectory, signal, small};
use predicates::prelude::PredicateBooleanExt;
use serde_json::Value;

/// A crash, and a temporary change of a link.
const FAULTS: &str = "  faults:
    - { at: 400ms, link: { from: lyon, to: nancy, latency: 20ms, bandwidth: 10Mbit, for: 300ms } }
    - { at: 600ms, crash: { cluster: lyon, node: 1 } }
";

#[test]
fn a_run_by_traffic_control_passes_with_its_links_as_requested() {
    let place = TestDirectory::new();
    if !supports_traffic_control(&place) {
        return;
    }
    let before = interfaces();
    place.write("small.yaml", small(FAULTS));
    let run = place.faultline(["run", "small.yaml", "--links", "tc", "--out", "run", "--format", "json"]);
    let output = { run }.output().unwrap();
    let summary = String::from_utf8_lossy(&output.stdout);
    // On a busy machine, links may be slower than requested, which the program reports.
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 3)), "{summary}{}", String::from_utf8_lossy(&output.stderr));
    let manifest: Value =
        serde_json::from_slice(&fs::read(place.path("run/manifest.json")).unwrap()).unwrap();
    let links = manifest["links"].as_array().unwrap();
    let between: Vec<_> = links.iter().filter(|link| link["from"] != link["to"]).collect();
    assert_eq!(between.len(), 2);
    for link in between {
        let measured = link["measured"]["latency"].as_u64().unwrap();
        assert!(measured > 2_900_000, "{link}: nothing is faster than its link");
    }
    place.wait_until_empty();
    assert_eq!(interfaces(), before);
}

#[test]
fn a_missing_permission_is_not_a_missing_feature_of_the_kernel() {
    let place = TestDirectory::new();
    if !supports_traffic_control(&place) {
        return;
    }
    place.write("small.yaml", small(FAULTS));
    let mut limited = Command::new("setpriv");
    limited.current_dir(place.dir()).args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]);
    limited.arg(env!("CARGO_BIN_EXE_faultline")).args(["run", "small.yaml", "--links", "tc", "--out", "run"]);
    let output = limited.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("CAP_NET_ADMIN") && said.contains("run as root"), "{said}");
    assert!(!said.contains("modprobe"), "{said}");
}

#[test]
fn a_user_namespace_replaces_root() {
    let place = TestDirectory::new();
    if !supports_traffic_control(&place) || Command::new("unshare").args(["-U", "true"]).status().is_err() {
        return;
    }
    place.write("small.yaml", small(""));
    fs::copy(env!("CARGO_BIN_EXE_faultline"), place.path("program")).unwrap();
    // A user that needs no account, and owns nothing else.
    for path in [place.dir(), &place.path("small.yaml"), &place.path("program")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let mut run = Command::new("setpriv");
    run.current_dir(place.dir()).args(["--reuid=65534", "--regid=65534", "--clear-groups", "./program"]);
    run.args(["run", "small.yaml", "--links", "tc", "--out", "run", "--format", "json"]);
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot create a user namespace") {
        return eprintln!("!!! SKIPPED: no user namespaces here: {said}");
    }
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(summary["links"][0]["measuredLatencySeconds"].is_number(), "{summary}");
    place.wait_until_empty();
}

#[test]
fn a_run_that_is_killed_leaves_no_process_and_no_interface() {
    let place = TestDirectory::new();
    if !supports_traffic_control(&place) {
        return;
    }
    let before = interfaces();
    place.write("small.yaml", small(""));
    let mut run = Command::new(env!("CARGO_BIN_EXE_faultline"))
        .current_dir(place.dir())
        .args(["run", "small.yaml", "--links", "tc", "--out", "run", "-q"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // One process for the run, and one for each node.
    place.wait_for_processes(5);
    signal(&run, "KILL");
    run.wait().unwrap();
    place.wait_until_empty();
    assert_eq!(interfaces(), before);
}

#[test]
fn links_by_traffic_control_require_real_processes() {
    let place = TestDirectory::new();
    let refused = place.faultline(["run", "--links", "tc", "--backend", "simulate"]).assert().code(2);
    refused.stderr(predicates::str::contains("--backend local"));
}

#[test]
fn doctor_names_a_remedy_for_every_missing_feature() {
    let place = TestDirectory::new();
    let output = place.faultline(["doctor", "--format", "json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["fit"], output.status.success());
    for finding in found["findings"].as_array().unwrap() {
        assert!(finding["state"] == "ok" || finding["remedy"].is_string(), "{finding}");
    }
    let many = place.faultline(["doctor", "--nodes", "4000000000"]).assert().code(1);
    many.stdout(predicates::str::contains("FAIL").and(predicates::str::contains("remedy: ")));
}

/// Returns whether traffic control is possible here. If not, prints that the test is skipped.
pub(crate) fn supports_traffic_control(place: &TestDirectory) -> bool {
    let output = place.faultline(["doctor", "--tc", "--format", "json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_supported = found["trafficControl"] == true;
    if !is_supported {
        eprintln!("!!! SKIPPED: no traffic control here: {found}");
    }
    is_supported
}

/// Returns the interfaces of this machine that have the names of a run's interfaces. Others may appear and disappear
/// at any time.
fn interfaces() -> BTreeSet<String> {
    let of_node =
        |name: &str| name.strip_prefix('n').is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()));
    let of_run =
        |name: &str| name == "faultline" || name == faultline_tc::namespace::INTERFACE || of_node(name);
    let entries = fs::read_dir("/sys/class/net").unwrap();
    let names = entries.map(|it| it.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|it| of_run(it)).collect()
}
