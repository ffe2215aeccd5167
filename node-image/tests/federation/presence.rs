//! Clusters that join and leave: their agents exist throughout the run, but their processes only for part
//! of it.

use faultline_api::supervision::{ClusterReport, ClusterState, Places, RunPhase, RunStatus};
use faultline_core::{Fact, Life, ProcessId};
use faultline_trace::Bundle;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::common::{Program, Setting};
use super::{child_of, lacks_only_a_fault, passes};

/// Ranks of all federations here, and the process that only CCK needs.
const PROCESSES: [&str; 7] =
    ["paris-0", "delft-0", "rennes-0", "rennes-1", "nancy-0", "nancy-1", "recovery-process"];
const RANKS: &[&str] = PROCESSES.split_at(6).0;

/// A planned task-based program. One cluster joins, and another leaves. The second fault is due before its cluster
/// joins.
const ELASTIC: &str = "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata:
  name: elastic
spec:
  seed: 29
  clusters:
    - { name: paris, nodes: 1 }
    - { name: delft, nodes: 1 }
    - { name: rennes, nodes: 2, leavesAfter: 8s }
    - { name: nancy, nodes: 2, joinsAfter: 4s }
  links:
    within: { preset: san }
    between: { latency: 5ms, bandwidth: 100Mbit }
  protocol:
    cck: { tau: 500ms, replicateTo: otherCluster }
  application:
    jacobi: { rows: 2, columns: 6, size: 8, iterations: 250, taskTime: 20ms }
  schedule: { window: 2 }
  failures: { detectAfter: 20s, restartAfter: 100ms }
  faults:
    - { at: 1500ms, crash: { cluster: paris, node: 0 } }
    - { at: 2s, loseCluster: { cluster: nancy, storage: lost } }
  deadline: 150s
";

/// A cluster joins a federation under HC3I, exchanges messages with another cluster, and leaves.
const GUEST: &str = "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata:
  name: guest
spec:
  seed: 7
  clusters:
    - { name: paris, nodes: 1 }
    - { name: delft, nodes: 1 }
    - { name: rennes, nodes: 2 }
    - { name: nancy, nodes: 2, joinsAfter: 4s, leavesAfter: 5s }
  links:
    within: { preset: san }
    between: { latency: 5ms, bandwidth: 100Mbit }
  storage: { kind: disk }
  protocol:
    hc3i: { checkpointEvery: 500ms, collectEvery: 500ms, replicas: 1, replicateTo: otherCluster }
  application:
    synthetic:
      traffic:
        exact:
          duration: 10s
          messages:
            - { from: paris, to: rennes, count: 20 }
            - { from: rennes, to: paris, count: 4 }
            - { from: paris, to: nancy, count: 10 }
            - { from: nancy, to: paris, count: 4 }
            - { from: nancy, to: nancy, count: 40 }
      message: 1kB
      state: 16kB
  failures: { detectAfter: 20s, restartAfter: 100ms }
  deadline: 60s
";

/// A task-based program under a protocol. A cluster joins late.
fn stealing(protocol: &str) -> String {
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata:
  name: late
spec:
  seed: 5
  clusters:
    - {{ name: paris, nodes: 1 }}
    - {{ name: delft, nodes: 1 }}
    - {{ name: rennes, nodes: 2 }}
    - {{ name: nancy, nodes: 2, joinsAfter: 3s }}
  links:
    within: {{ preset: san }}
    between: {{ latency: 5ms, bandwidth: 100Mbit }}
  protocol:
    {protocol}
  application:
    fibonacci: {{ n: 20, threshold: 6, taskTime: 10ms }}
  failures: {{ detectAfter: 20s, restartAfter: 100ms }}
  deadline: 60s
"
    )
}

fn cluster<'a>(status: &'a RunStatus, name: &str) -> &'a ClusterReport {
    status.clusters.iter().find(|it| it.name == name).expect("the cluster exists")
}

fn is(name: &str, state: ClusterState) -> impl Fn(&RunStatus) -> bool {
    move |it| it.clusters.iter().any(|it| it.name == name && it.state == state)
}

/// Returns the places of the agents. If an agent has been replaced, its successor's place has a different UID.
fn places(setting: &Setting, generation: u64) -> Places {
    let mut places = setting.places(generation);
    places.places.iter_mut().for_each(|it| it.uid.clone_from(&it.address));
    places
}

/// Ends the agent of a process with a signal, and starts another with an empty directory, as if the pod had been
/// replaced.
fn replace_agent(setting: &mut Setting, process: &str, signal: Signal, generation: u64) {
    assert!(setting.status().clusters.iter().all(|it| !process.starts_with(&it.name) || it.up == 0));
    let key = setting.key_of(process);
    let data = setting.dir.path().join(format!("{process}-{generation}"));
    let index = setting.agents.iter().position(|it| it.0 == process).expect("the process has an agent");
    let old = &mut setting.agents[index].1;
    kill(Pid::from_raw(old.child.id() as i32), signal).unwrap();
    old.child.wait().unwrap();
    setting.agents[index].1 = Program::agent(&data, &key);
    assert_eq!(setting.put(&places(setting, generation)), 200);
    setting.wait("the agent is connected", |it| it.missing.is_empty());
}

/// Returns the lives of a process, and how many flaws the record has.
fn recorded(setting: &Setting, process: &str) -> (Vec<Life>, usize) {
    let index = PROCESSES.iter().position(|it| *it == process).expect("the process exists");
    let trace = Bundle::open(setting.dir.path().join("out")).read_trace().unwrap();
    let lives = trace.streams.keys().filter(|it| it.0 == ProcessId(index as u32)).map(|it| it.1);
    (lives.collect(), trace.flaws.len())
}

#[test]
fn the_loss_of_a_place_does_not_count_before_its_cluster_joins_and_after_it_has_left() {
    let mut setting = Setting::start(ELASTIC, &PROCESSES);
    setting.put(&places(&setting, 1));
    let status = setting.wait("nancy is awaited", is("nancy", ClusterState::Awaited));
    assert_eq!((status.phase, cluster(&status, "nancy").up), (RunPhase::Running, 0));
    replace_agent(&mut setting, "nancy-1", Signal::SIGKILL, 2);
    setting.wait("nancy joins", is("nancy", ClusterState::Running));

    setting.wait("rennes has left", is("rennes", ClusterState::Left));
    let begin = std::time::Instant::now();
    let process = setting.agents[2].1.child.id() as i32;
    while child_of(process).is_some() {
        assert!(begin.elapsed().as_secs() < 20, "rennes-0 still runs");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // The last facts of the process may still be in transit.
    replace_agent(&mut setting, "rennes-0", Signal::SIGTERM, 3);
    let mut spec = faultline_api::parse("federation.yaml", ELASTIC.as_bytes()).unwrap().spec;
    let soon = setting.status().elapsed_seconds.expect("the application runs") + 0.5;
    let crash =
        format!(r#"{{ "at": "{:.0}ms", "crash": {{ "cluster": "rennes", "node": 1 }} }}"#, soon * 1000.0);
    spec.faults.push(serde_json::from_str(&crash).unwrap());
    assert_eq!(setting.amend(2, &spec).0, 200);

    let status = setting.judged();
    lacks_only_a_fault(&status);
    assert_eq!((status.faults.done, status.faults.without_effect), (1, 2), "{status:#?}");
    assert_eq!(cluster(&status, "rennes").state, ClusterState::Left);
    assert_eq!((cluster(&status, "rennes").up, cluster(&status, "paris").rollbacks), (0, 1), "{status:#?}");
    assert_eq!(recorded(&setting, "nancy-1"), (vec![Life(1), Life(2)], 0));
    assert_eq!(recorded(&setting, "rennes-0"), (vec![Life(1)], 0));
    let trace = Bundle::open(setting.dir.path().join("out")).read_trace().unwrap();
    let mut stream = trace.streams[&(ProcessId(5), Life(2))].iter().map(|(_, fact)| fact);
    let first = stream.find(|it| matches!(it, Fact::Absorbed(_) | Fact::Restored(_)));
    assert!(
        matches!(first, Some(Fact::Absorbed(_))),
        "its partition moves home, and does not roll back: {first:?}"
    );
    let (_, metrics) = super::ask(setting.supervisor.address, "GET", "/metrics", None, &[]);
    let metrics = String::from_utf8(metrics).unwrap();
    let recovered = metrics.lines().find(|it| it.starts_with("faultline_recovery_seconds_count"));
    assert!(recovered.is_some_and(|it| it.ends_with(" 1")), "only paris recovered: {recovered:?}");
}

#[test]
fn clusters_join_and_leave_though_the_supervisor_restarts_and_the_run_is_paused() {
    let mut setting = Setting::start(ELASTIC, &PROCESSES);
    let mut spec = faultline_api::parse("federation.yaml", ELASTIC.as_bytes()).unwrap().spec;
    setting.put(&setting.places(1));
    setting.wait("nancy is awaited", is("nancy", ClusterState::Awaited));
    spec.pause = true;
    assert_eq!(setting.amend(2, &spec).0, 200);
    let paused = setting.wait("the run is paused", |it| it.phase == RunPhase::Paused);
    let long = |it: &RunStatus| it.elapsed_seconds > paused.elapsed_seconds.map(|it| it + 5.0);
    let status = setting.wait("nancy would have joined", long);
    assert_eq!(cluster(&status, "nancy").state, ClusterState::Awaited, "{status:#?}");

    setting.supervisor.kill();
    setting.supervisor = Program::supervisor(setting.dir.path());
    setting.put(&setting.places(1));
    setting.wait("the run is still paused", |it| it.phase == RunPhase::Paused);
    spec.pause = false;
    assert_eq!(setting.amend(3, &spec).0, 200);
    setting.wait("rennes has left", is("rennes", ClusterState::Left));
    setting.supervisor.kill();
    setting.supervisor = Program::supervisor(setting.dir.path());
    setting.put(&setting.places(1));
    let has_resumed = |it: &RunStatus| cluster(it, "paris").up == 1;
    let status = setting.wait("the run resumes", |it| it.clusters.len() == 4 && has_resumed(it));
    assert_eq!(cluster(&status, "rennes").state, ClusterState::Left);

    let status = setting.judged();
    lacks_only_a_fault(&status);
    assert_eq!(status.faults.without_effect, 1, "{status:#?}");
    // One life before the supervisor restarted, and one that ran until the cluster left.
    assert_eq!(recorded(&setting, "rennes-1"), (vec![Life(1), Life(2)], 0));
}

#[test]
fn a_guest_joins_and_leaves_although_its_place_moves_before_it_joins() {
    let mut setting = Setting::start(GUEST, RANKS);
    setting.put(&places(&setting, 1));
    setting.wait("nancy is awaited", is("nancy", ClusterState::Awaited));
    replace_agent(&mut setting, "nancy-0", Signal::SIGTERM, 2);
    let joined = setting.wait("nancy joins", is("nancy", ClusterState::Running));
    let reasons: Vec<&str> = joined.events.iter().map(|it| it.reason.as_str()).collect();
    assert!(reasons.contains(&"PlaceLost") && reasons.contains(&"Joined"), "{reasons:?}");
    setting.wait("nancy has left", is("nancy", ClusterState::Left));
    let status = setting.judged();
    passes(&status);
    assert_eq!(status.rollbacks, 0, "{:?}", status.clusters);
    assert_eq!(recorded(&setting, "nancy-0"), (vec![Life(1), Life(2)], 0));
}

#[test]
fn under_every_protocol_for_stealing_a_place_lost_before_its_cluster_joins_is_no_failure() {
    for protocol in ["none: {}", "satin: {}", "sel: { tau: 500ms, replicateTo: otherCluster }"] {
        let mut setting = Setting::start(&stealing(protocol), RANKS);
        setting.put(&places(&setting, 1));
        setting.wait("nancy is awaited", is("nancy", ClusterState::Awaited));
        replace_agent(&mut setting, "nancy-1", Signal::SIGKILL, 2);
        let status = setting.judged();
        passes(&status);
        assert_eq!(status.rollbacks, 0, "{protocol}: {:?}", status.clusters);
        assert_eq!(recorded(&setting, "nancy-1"), (vec![Life(1), Life(2)], 0), "{protocol}");
    }
}
