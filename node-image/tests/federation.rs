//! Federations of agents and a supervisor, from the announcement of the places to the verdict.

#[path = "federation/clocks.rs"]
mod clocks;
mod common;
#[path = "federation/flood.rs"]
mod flood;
#[path = "federation/presence.rs"]
mod presence;
#[path = "federation/system.rs"]
mod system;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use common::{KEY, Program, Setting, ask};
use faultline_api::supervision::{ClusterState, Place, RunEvent, RunPhase, RunStatus, RunVerdict};
use faultline_client::supervisor::{HttpRequest, SupervisorError};
use faultline_core::{Digest, Fact, Life, ProcessId};
use faultline_session::{Session, Simulator};
use faultline_tls::Connector;
use faultline_trace::{Bundle, Trace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::TcpStream;

const PROCESSES: [&str; 4] = ["paris-0", "paris-1", "rennes-0", "rennes-1"];

/// Returns the file of a federation with these faults: two clusters of two processes each, which compute for a few
/// seconds.
fn federation(faults: &str) -> String {
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata:
  name: pair
spec:
  seed: 7
  clusters:
    - {{ name: paris, nodes: 2 }}
    - {{ name: rennes, nodes: 2 }}
  links:
    within: {{ preset: san }}
    between: {{ latency: 5ms, bandwidth: 100Mbit }}
  storage: {{ kind: disk }}
  protocol:
    hc3i: {{ checkpointEvery: 500ms, replicas: 1, replicateTo: otherCluster }}
  application:
    heat: {{ steps: 150, stepTime: 20ms, feedbackEvery: 30, state: 16KiB }}
  failures: {{ detectAfter: 2s, restartAfter: 100ms }}
{faults}  deadline: 60s
"
    )
}

const FAULTS: &str = "  faults:
    - at: 800ms
      crash: { cluster: rennes, node: 1 }
    - at: 1800ms
      loseCluster: { cluster: paris, storage: lost }
";

#[test]
fn a_federation_at_places_survives_a_crash_and_a_lost_cluster_with_the_result_of_the_simulator() {
    let text = federation(FAULTS);
    let setting = Setting::start(&text, &PROCESSES);
    let status = setting.status();
    assert_eq!((status.phase, status.missing.len()), (RunPhase::Gathering, 4), "{status:#?}");
    assert_eq!(setting.put(&setting.places(3)), 200);
    assert_eq!(setting.put(&setting.places(2)), 409, "an older generation");
    assert_eq!(setting.ask("GET", "/v1/bundle", &[]).0, 409, "the run continues");

    let status = setting.judged();
    passes(&status);
    assert_eq!((status.faults.planned, status.faults.done), (2, 2));
    assert!(status.faults.worst_skew_micros.is_some_and(|skew| skew < 50_000), "{:?}", status.faults);
    assert!(
        status.rollbacks >= 2 && status.links.iter().all(|it| it.measured_micros.is_some()),
        "{status:#?}"
    );
    assert!(status.clusters.iter().all(|it| it.state == ClusterState::Finished), "{:?}", status.clusters);
    let reasons: Vec<&str> = status.events.iter().map(|it| it.reason.as_str()).collect();
    for reason in ["LinksMeasured", "Started", "FaultInjected", "FailureDetected", "RolledBack", "Judged"] {
        assert!(reasons.contains(&reason), "{reason} in {reasons:?}");
    }
    assert!(status.events.iter().map(|it| it.number).eq(1..=reasons.len() as u64));
    assert_eq!(status.newest_event, reasons.len() as u64);

    let (code, tar) = setting.ask("GET", "/v1/bundle", &[]);
    assert_eq!(code, 200);
    let fetched = setting.dir.path().join("fetched");
    tar::Archive::new(&tar[..]).unpack(&fetched).unwrap();
    let trace = Bundle::open(&fetched).read_trace().unwrap();
    assert_eq!(trace.flaws, []);
    assert_eq!(results(&trace), simulated(&text));

    let (code, metrics) = ask(setting.supervisor.address, "GET", "/metrics", None, &[]);
    let metrics = String::from_utf8(metrics).unwrap();
    assert_eq!(code, 200);
    assert!(metrics.contains("faultline_images_durable_total"), "{metrics}");
    let (code, metrics) = ask(setting.agents[0].1.address, "GET", "/metrics", None, &[]);
    let metrics = String::from_utf8(metrics).unwrap();
    assert_eq!(code, 200);
    assert!(metrics.contains("faultline_agent_lives_launched_total 2"), "{metrics}");
    assert_eq!(ask(setting.agents[0].1.address, "GET", "/healthz", None, &[]).0, 200);
}

/// Returns the response to a request for the status, over an encrypted connection.
async fn encrypted(address: SocketAddr, key: &str, token: &str) -> Result<RunStatus, SupervisorError> {
    let stream = TcpStream::connect(address).await.map_err(SupervisorError::Connect)?;
    let stream = Connector::new(key).unwrap().connect(stream).await.map_err(SupervisorError::Tls)?;
    let (host, path) = ("supervisor", "/v1/status");
    let question = HttpRequest { host, token, method: http::Method::GET, path, body: Default::default() };
    Ok(serde_json::from_slice(&question.ask(stream).await?.whole().await?)?)
}

#[test]
fn a_caller_from_another_machine_must_encrypt_and_authenticates_its_supervisor() {
    let setting = Setting::start(&federation(""), &[]);
    let address = setting.supervisor.address;
    let drawn = faultline_api::supervision::token(KEY).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let status = encrypted(address, KEY, &drawn).await.unwrap();
        assert_eq!(status.phase, RunPhase::Gathering);
        let refused = encrypted(address, KEY, "0123").await.unwrap_err();
        assert!(matches!(refused, SupervisorError::Refused(http::StatusCode::UNAUTHORIZED, _)), "{refused}");
        // The caller does not trust this supervisor, and does not send its token.
        let other = encrypted(address, &KEY.replace('0', "f"), &drawn).await.unwrap_err();
        assert!(matches!(other, SupervisorError::Tls(_)), "{other}");
    });
}

#[test]
fn a_client_without_the_key_can_neither_read_nor_change_anything() {
    let mut setting = Setting::start(&federation(""), &PROCESSES[..3]);
    let other_key = setting.dir.path().join("other-key");
    fs::write(&other_key, KEY.replace('0', "f")).unwrap();
    let stranger = Program::agent(&setting.dir.path().join("stranger"), &other_key);
    setting.agents.push((PROCESSES[3].to_owned(), stranger));
    let address = setting.supervisor.address;
    for (method, path) in
        [("GET", "/v1/status"), ("PUT", "/v1/places"), ("GET", "/v1/bundle"), ("POST", "/v1/requests/1/done")]
    {
        for token in [None, Some("0123"), Some(KEY)] {
            assert_eq!(ask(address, method, path, token, b"{}").0, 401, "{method} {path} with {token:?}");
        }
    }
    assert_eq!(ask(address, "GET", "/healthz", None, &[]).0, 200);
    assert_eq!(setting.put(&setting.places(1)), 200);
    let status = setting.wait("three agents have registered", |it| it.missing.len() == 1);
    assert_eq!(status.missing, ["rennes-1"], "an agent with another key is rejected");
    assert_eq!(setting.ask("POST", "/v1/requests/7/done", &[]).0, 404);
    let mut wrong = setting.places(2);
    wrong.places[0].process = "paris-7".to_owned();
    assert_eq!(setting.put(&wrong), 422);
    for (_, program) in &setting.agents {
        for file in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{}/{file}", program.child.id())).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains(KEY), "{file}");
        }
    }
}

#[test]
fn a_reader_can_read_the_status_and_the_record_and_change_nothing() {
    let setting = Setting::start(&federation(""), &[]);
    let address = setting.supervisor.address;
    let reader = faultline_api::supervision::reader_token(KEY).unwrap();
    let asked = |method, path| ask(address, method, path, Some(&reader), b"{}");
    assert_eq!(asked("GET", "/v1/status").0, 200);
    assert_eq!(asked("GET", "/v1/status?after=3").0, 200);
    assert_eq!(asked("GET", "/v1/bundle").0, 409, "allowed, but the record is incomplete");
    assert_eq!(asked("POST", "/v1/facts").0, 400, "allowed, but the body is incomplete");
    // 404 until the record exists.
    let facts = || ask(address, "POST", "/v1/facts", Some(&reader), br#"{"facts":[]}"#);
    let (_, answer) = std::iter::repeat_with(facts).find(|it| it.0 == 200).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("paris-0"));
    for (method, path) in [
        ("PUT", "/v1/places"),
        ("PUT", "/v1/spec"),
        ("POST", "/v1/requests/1/done"),
        ("GET", "/v1/places"),
        ("HEAD", "/v1/bundle"),
        ("PUT", "/v1/facts"),
    ] {
        let (code, why) = asked(method, path);
        let why = String::from_utf8(why).unwrap();
        assert_eq!(code, 403, "{method} {path}: {why}");
        assert!(method == "HEAD" || why.contains("the reader's token allows only"), "{why}");
    }
}

#[test]
fn a_process_can_neither_impersonate_another_nor_control_the_run() {
    let mut setting = Setting::start(&federation(""), &PROCESSES[..3]);
    let of_paris = fs::read_to_string(setting.key_of("paris-0")).unwrap();
    let drawn = faultline_api::supervision::token(&of_paris).unwrap();
    for token in [of_paris.as_str(), &drawn] {
        assert_eq!(ask(setting.supervisor.address, "GET", "/v1/status", Some(token), &[]).0, 401);
    }
    let pretender = Program::agent(&setting.dir.path().join("pretender"), &setting.key_of("paris-0"));
    setting.agents.push((PROCESSES[3].to_owned(), pretender));
    assert_eq!(setting.put(&setting.places(1)), 200);
    let status = setting.wait("three agents have registered", |it| it.missing.len() == 1);
    assert_eq!(status.missing, ["rennes-1"], "an agent with the key of paris-0 is rejected as rennes-1");
}

#[test]
fn an_old_life_that_runs_beside_its_replacement_is_not_accepted() {
    let setting = Setting::start(&federation(""), &PROCESSES);
    setting.put(&setting.places(1));
    setting.wait("steps are done", |it| it.clusters.iter().all(|cluster| cluster.steps_done > 20));
    // The machine of paris-1 is paused: neither its agent nor its process learns of the replacement.
    let replacement = Program::agent(&setting.dir.path().join("replacement"), &setting.key_of("paris-1"));
    let old = &setting.agents[1].1;
    let agent = Pid::from_raw(old.child.id() as i32);
    let process = Pid::from_raw(child_of(agent.as_raw()).expect("the agent has started a process"));
    kill(agent, Signal::SIGSTOP).unwrap();
    kill(process, Signal::SIGSTOP).unwrap();
    let mut places = setting.places(2);
    places.places[1] =
        Place { process: "paris-1".into(), uid: "another".into(), address: replacement.address.to_string() };
    setting.put(&places);
    setting.wait("paris rolls back", |it| it.clusters[0].rollbacks > 0 && it.clusters[0].up == 2);
    kill(process, Signal::SIGCONT).unwrap();
    kill(agent, Signal::SIGCONT).unwrap();
    let status = setting.judged();
    assert_eq!(status.clusters[0].state, ClusterState::Finished);
    assert_ne!(status.verdict, Some(RunVerdict::Fail), "{status:#?}");
    // The storage was lost with the old place: the first life assigned to the new place ends without being launched.
    let trace = Bundle::open(setting.dir.path().join("out")).read_trace().unwrap();
    let lives: Vec<_> = trace.streams.keys().filter(|it| it.0 == ProcessId(1)).map(|it| it.1).collect();
    assert_eq!(lives, [Life(1), Life(2), Life(3)]);
    assert!(trace.streams[&(ProcessId(1), Life(2))].is_empty(), "its stream is sealed and empty");
    assert!(child_of(agent.as_raw()).is_none(), "the old process has ended");
}

#[test]
fn a_place_that_is_told_to_end_sends_its_remaining_facts_and_the_run_passes() {
    let mut setting = Setting::start(&federation(""), &PROCESSES);
    setting.put(&setting.places(1));
    setting.wait("steps are done", |it| it.clusters.iter().all(|cluster| cluster.steps_done > 20));
    let data = setting.dir.path().join("rennes-0");
    let old = &mut setting.agents[2].1;
    kill(Pid::from_raw(old.child.id() as i32), Signal::SIGTERM).unwrap();
    assert!(old.child.wait().unwrap().success());
    // Another pod with the same volume.
    let replacement = Program::agent(&data, &setting.key_of("rennes-0"));
    setting.agents[2].1 = replacement;
    let mut places = setting.places(2);
    places.places[2].uid = "another".into();
    setting.put(&places);
    let status = setting.judged();
    passes(&status);
    assert!(status.clusters[1].rollbacks > 0);
}

#[test]
fn links_faults_and_the_pause_can_change_during_a_run() {
    let text = federation("");
    let setting = Setting::start(&text, &PROCESSES);
    let mut spec = faultline_api::parse("federation.yaml", text.as_bytes()).unwrap().spec;
    setting.put(&setting.places(1));
    let steps = |status: &RunStatus| status.clusters.iter().map(|it| it.steps_done).sum::<u64>();
    setting.wait("steps are done", |it| it.clusters.iter().all(|cluster| cluster.steps_done > 20));

    // All processes are paused for longer than the time limit of failure detection, and a link changes in the meantime.
    spec.pause = true;
    assert_eq!(setting.amend(2, &spec).0, 200);
    let paused = setting.wait("the run is paused", |it| it.phase == RunPhase::Paused);
    let slower =
        r#"{ "within": { "preset": "san" }, "between": { "latency": "20ms", "bandwidth": "100Mbit" } }"#;
    spec.links = Some(serde_json::from_str(slower).unwrap());
    assert_eq!(setting.amend(3, &spec).0, 200);
    let stood =
        setting.wait("time passes", |it| it.elapsed_seconds > paused.elapsed_seconds.map(|it| it + 3.0));
    assert!(steps(&stood) <= steps(&paused) + 4, "a step may have been in progress: {paused:#?} {stood:#?}");
    let between = |status: &RunStatus| {
        let link = status.links.iter().find(|it| (it.from.as_str(), it.to.as_str()) == ("paris", "rennes"));
        link.map(|it| (it.requested_micros, it.measured_micros)).unwrap()
    };
    assert_eq!(between(&stood), (20_000, None), "a paused federation cannot measure it");
    spec.pause = false;
    assert_eq!(setting.amend(4, &spec).0, 200);
    let measured = setting.wait("the link is measured", |it| between(it).1.is_some());
    assert!(between(&measured).1.is_some_and(|it| it >= 19_000), "{measured:#?}");
    assert!(steps(&setting.wait("the run resumes", |it| it.phase == RunPhase::Running)) >= steps(&stood));

    let crash = r#"{ "at": "1ms", "crash": { "cluster": "rennes", "node": 1 } }"#;
    spec.faults.push(serde_json::from_str(crash).unwrap());
    let crash =
        r#"{ "when": { "fact": "checkpointCommitted" }, "crash": { "cluster": "paris", "node": 1 } }"#;
    spec.faults.push(serde_json::from_str(crash).unwrap());
    assert_eq!(setting.amend(5, &spec).0, 200);
    let dropped = faultline_api::FederationSpec { faults: vec![], ..spec.clone() };
    let (code, why) = setting.amend(6, &dropped);
    assert!(code == 422 && why.contains("spec.faults"), "{code}: {why}");
    assert_eq!(setting.amend(6, &spec).0, 422, "a refused spec stays refused");

    let status = setting.judged();
    lacks_only_a_fault(&status);
    let refused = status.amendment.as_ref().and_then(|it| it.refused.as_ref());
    assert!(refused.is_some_and(|it| it.contains("spec.faults")), "{:?}", status.amendment);
    assert_eq!((status.faults.planned, status.faults.done, status.faults.without_effect), (2, 1, 1));
    let reasons: Vec<&str> = status.events.iter().map(|it| it.reason.as_str()).collect();
    for reason in [
        "Paused",
        "LinkChanged",
        "Resumed",
        "LinksMeasured",
        "FaultAdded",
        "FaultWithoutEffect",
        "RolledBack",
    ] {
        assert!(reasons.contains(&reason), "{reason} in {reasons:?}");
    }
    assert_eq!(reasons.iter().filter(|it| **it == "FailureDetected").count(), 1, "{reasons:?}");

    let bundle = Bundle::open(setting.dir.path().join("out"));
    let manifest = bundle.read_manifest().unwrap();
    assert_eq!(manifest.plan.len(), 2);
    let asked: Vec<_> = manifest.links.iter().filter(|it| it.from.0 == 0 && it.to.0 == 1).collect();
    assert_eq!(asked.iter().map(|it| it.requested.latency.0 / 1_000_000).collect::<Vec<_>>(), [5, 20]);
    assert!(asked[0].since.is_none() && asked[1].since.is_some());
    assert_eq!(results(&bundle.read_trace().unwrap()), simulated(&text));
}

#[test]
fn a_run_continues_when_its_supervisor_is_killed_or_told_to_end() {
    let faults = "  faults:
    - at: 800ms
      crash: { cluster: rennes, node: 1 }
    - when: { fact: checkpointCommitted, cluster: paris, occurrence: 10 }
      loseCluster: { cluster: paris, storage: lost }
";
    let text = federation(faults);
    let mut setting = Setting::start(&text, &PROCESSES);
    setting.wait("the run waits for its processes", |it| {
        it.phase == RunPhase::Gathering && it.clusters.len() == 2
    });
    // The application has not started, so the next supervisor starts from the beginning.
    setting.supervisor.kill();
    setting.supervisor = Program::supervisor(setting.dir.path());
    setting.put(&setting.places(1));
    // The next supervisor cannot know of a crash that no place has confirmed.
    let before = setting.wait("the first fault", |it| it.faults.worst_latency_micros.is_some());
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let dir = setting.dir.path().to_owned();
        let next = std::thread::spawn(move || Program::supervisor(&dir));
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!next.is_finished(), "the next supervisor waits, because this one still writes its journal");
        let old = &mut setting.supervisor.child;
        kill(Pid::from_raw(old.id() as i32), signal).unwrap();
        old.wait().unwrap();
        for (name, agent) in &mut setting.agents {
            let pid = agent.child.id() as i32;
            assert!(agent.child.try_wait().unwrap().is_none(), "the agent of {name} continues");
            let begin = std::time::Instant::now();
            while child_of(pid).is_some() {
                assert!(begin.elapsed().as_secs() < 20, "{name} still runs without its supervisor");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        setting.supervisor = next.join().expect("it starts");
        let status = setting.status();
        assert_eq!(status.phase, RunPhase::Running, "immediately, and as the same run: {status:#?}");
        setting.put(&setting.places(1));
        let has_continued = |it: &RunStatus| it.clusters.iter().all(|it| it.up == 2 && it.rollbacks > 0);
        let status = setting.wait("all clusters have rolled back", has_continued);
        assert_eq!(status.supervisor, before.supervisor);
        let without_ages = |events: &[RunEvent]| -> Vec<RunEvent> {
            events.iter().map(|it| RunEvent { age_micros: None, ..it.clone() }).collect()
        };
        assert_eq!(
            without_ages(&status.events[..before.events.len()]),
            without_ages(&before.events),
            "earlier events are reported unchanged"
        );
    }
    let status = setting.judged();
    passes(&status);
    assert_eq!((status.faults.planned, status.faults.done, status.faults.without_effect), (2, 2, 0));
    assert!(status.events.iter().map(|it| it.number).eq(1..=status.events.len() as u64));
    let restarts = status.events.iter().filter(|it| it.reason == "SupervisorRestarted").count();
    assert_eq!(restarts, 2, "{:#?}", status.events);

    let trace = Bundle::open(setting.dir.path().join("out")).read_trace().unwrap();
    assert_eq!(trace.flaws, [], "agents keep facts until they have arrived");
    let injected = |it: &&(faultline_core::Time, Fact)| matches!(it.1, Fact::Injecting { .. });
    assert_eq!(trace.supervisor().iter().filter(injected).count(), 2, "neither repeated nor forgotten");
    assert_eq!(results(&trace), simulated(&text));

    // A supervisor that starts after the end of the run still serves the record.
    setting.supervisor.kill();
    setting.supervisor = Program::supervisor(setting.dir.path());
    setting.judged();
    assert_eq!(setting.ask("GET", "/v1/bundle", &[]).0, 200);
}

#[test]
fn changes_during_a_run_survive_a_killed_supervisor() {
    let text = federation("");
    let mut setting = Setting::start(&text, &PROCESSES);
    let mut spec = faultline_api::parse("federation.yaml", text.as_bytes()).unwrap().spec;
    setting.put(&setting.places(1));
    setting.wait("steps are done", |it| it.clusters.iter().all(|cluster| cluster.steps_done > 20));
    spec.pause = true;
    let crash =
        r#"{ "when": { "fact": "checkpointCommitted" }, "crash": { "cluster": "paris", "node": 1 } }"#;
    spec.faults.push(serde_json::from_str(crash).unwrap());
    assert_eq!(setting.amend(2, &spec).0, 200);
    setting.wait("the run is paused", |it| it.phase == RunPhase::Paused);
    setting.supervisor.kill();
    setting.supervisor = Program::supervisor(setting.dir.path());
    setting.put(&setting.places(1));
    let status = setting.wait("the run is paused again", |it| it.phase == RunPhase::Paused);
    assert_eq!(status.amendment.as_ref().map(|it| it.generation), Some(2), "no request has to be repeated");
    assert_eq!(status.faults.planned, 1);
    spec.pause = false;
    assert_eq!(setting.amend(3, &spec).0, 200);
    let status = setting.judged();
    passes(&status);
    assert_eq!((status.faults.planned, status.faults.done), (1, 1));
}

/// Checks that the run passes. Accepts the verdict `unknown` if links are its only reason: on a busy machine, their
/// delays may deviate from the requested latencies.
fn passes(status: &RunStatus) {
    let is_link = |reason: &String| reason.contains("link");
    let is_unknown = status.verdict == Some(RunVerdict::Unknown) && !status.reasons.is_empty();
    let busy = is_unknown && status.reasons.iter().all(is_link);
    assert!(busy || status.verdict == Some(RunVerdict::Pass), "{:?}: {:?}", status.verdict, status.reasons);
}

/// Checks that the verdict is `unknown` only because a fault had no effect. Also accepts links as a reason.
fn lacks_only_a_fault(status: &RunStatus) {
    let is_fault = |reason: &String| reason.contains("had no effect");
    let is_known = |reason: &String| is_fault(reason) || reason.contains("link");
    let are_known = status.reasons.iter().any(is_fault) && status.reasons.iter().all(is_known);
    assert!(
        are_known && status.verdict == Some(RunVerdict::Unknown),
        "{:?}: {:?}",
        status.verdict,
        status.reasons
    );
}

/// Returns a child of an operating-system process.
fn child_of(pid: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Returns the last result of each rank.
fn results(trace: &Trace) -> BTreeMap<ProcessId, Digest> {
    let mut results = BTreeMap::new();
    for ((process, _), stream) in &trace.streams {
        for (_, fact) in stream {
            if let Fact::Finished(it) = fact {
                results.insert(*process, it.1);
            }
        }
    }
    results
}

/// Returns the last result of each rank in a run of this federation in virtual time. A session contains the compiled
/// simulator of each protocol, so this test does not compile it again.
fn simulated(text: &str) -> BTreeMap<ProcessId, Digest> {
    let federation = faultline_api::parse("federation.yaml", text.as_bytes()).unwrap();
    results(&Session::new(&federation).simulate(&mut Simulator::new(&mut ())).unwrap().trace)
}
