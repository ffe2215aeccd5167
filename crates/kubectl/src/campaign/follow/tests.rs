use std::fs;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::run::tests::{Answer, serve_uris};

const WHOLE: &str = "{\"of\":1}\n{\"run\":1}\n{\"part\":\"1/1\",\"results\":1}\n";

/// A cluster that performs campaigns.
#[derive(Default)]
struct Fake {
    /// The number of parts; 0 stands for 1.
    parts: u32,
    job: Option<Value>,
    map: Option<Value>,
    /// Changes to the job's status, and its pods.
    conditions: Value,
    pods: Vec<Value>,
    events: Vec<Value>,
    /// The logs of successive pods. The last one remains.
    logs: Vec<&'static str>,
    /// The number of successive jobs whose pods do not end, because their node does not respond.
    stuck: u32,
    /// Methods and kinds of the requests that change something.
    changes: Vec<String>,
}

impl Fake {
    fn answer(&mut self, method: &http::Method, uri: &http::Uri, mut body: Value) -> Answer {
        let words: Vec<&str> = uri.path().split('/').skip_while(|it| *it != "default").skip(1).collect();
        let kind = words[0].to_owned();
        if *method != http::Method::GET {
            self.changes.push(format!("{method} {kind}"));
        }
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" });
        let done = || Answer::Object(status.clone());
        let found = |it: &Option<Value>| it.clone().map_or(Answer::Error(404, "NotFound"), Answer::Object);
        match (method.as_str(), words.as_slice()) {
            ("POST", ["jobs"]) => {
                body["metadata"]["uid"] = "the uid".into();
                body["status"] = match self.stuck {
                    0 => json!({ "conditions": self.conditions }),
                    _ => json!({ "terminating": 1 }),
                };
                self.job = Some(body.clone());
                Answer::Object(body)
            }
            ("POST", ["configmaps"]) => {
                self.map = Some(body.clone());
                Answer::Object(body)
            }
            ("GET", ["jobs", _]) => found(&self.job),
            ("GET", ["configmaps", _]) => found(&self.map),
            ("DELETE", ["jobs", _]) if self.stuck > 0 => done(),
            ("DELETE", ["pods", _]) if self.stuck > 0 => {
                (self.job, self.map, self.stuck) = (None, None, self.stuck - 1);
                self.pods[0]["status"]["phase"] = "Succeeded".into();
                done()
            }
            ("DELETE", ["jobs", _]) => {
                (self.job, self.map) = (None, None);
                done()
            }
            ("DELETE", ["pods", _]) => done(),
            ("GET", ["pods"]) => {
                let fields = uri.query().and_then(|it| it.split_once("fieldSelector=")).map(|it| it.1);
                let is_listed = |it: &&Value| {
                    let phase = it["status"]["phase"].as_str().unwrap_or_default();
                    fields.is_none_or(|it| it.contains("%21") != it.contains(&format!("%3D{phase}")))
                };
                list(self.pods.iter().filter(is_listed).cloned().collect())
            }
            ("GET", ["events"]) => list(self.events.clone()),
            ("GET", ["pods", _, "log"]) if self.logs.len() > 1 => {
                Answer::Text(self.logs.remove(0).to_owned())
            }
            ("GET", ["pods", _, "log"]) => Answer::Text(self.logs[0].to_owned()),
            other => panic!("the program requested {other:?}"),
        }
    }
}

fn list(items: Vec<Value>) -> Answer {
    Answer::Object(json!({ "metadata": {}, "items": items }))
}

fn owner() -> Value {
    json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "", "uid": "the uid" })
}

fn pod(status: &Value) -> Value {
    json!({
        "metadata": {
            "name": "pod",
            "annotations": { "batch.kubernetes.io/job-completion-index": "0" },
            "ownerReferences": [owner()],
        },
        "status": status,
    })
}

/// Performs a campaign. Returns the outcome, the result of the first part, and the changes on the cluster.
async fn performed(fake: Fake) -> (Result<(), CommandError>, Option<String>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let campaign = campaign(fake.parts.max(1));
    campaign.write(dir.path(), None).unwrap();
    let fake = Arc::new(Mutex::new(fake));
    let served = fake.clone();
    let cluster = serve_uris(move |method, uri, body| served.lock().unwrap().answer(method, uri, body));
    let jobs = Jobs { check_every: Duration::from_millis(1), ..Jobs::on(&cluster) };
    let arguments = PerformArguments {
        dir: dir.path().to_owned(),
        workers: WorkerArguments::default(),
        first_found: true,
        quiet: true,
    };
    let outcome = jobs.perform(&campaign, &arguments).await;
    let changes = fake.lock().unwrap().changes.clone();
    (outcome, fs::read_to_string(Campaign::results(dir.path(), 1)).ok(), changes)
}

/// Kubernetes waits for a node that does not respond, possibly forever.
#[tokio::test]
async fn parts_on_a_node_that_does_not_respond_are_performed_again() {
    let pods = vec![pod(&json!({ "phase": "Running" }))];
    let fake = Fake { stuck: 1, conditions: ended("Complete"), pods, logs: vec![WHOLE], ..Fake::default() };
    let (outcome, result, changes) = performed(fake).await;
    outcome.unwrap();
    assert_eq!(result.as_deref(), Some(WHOLE));
    let stuck = ["POST jobs", "POST configmaps", "DELETE jobs", "DELETE pods"];
    let other = ["POST jobs", "POST configmaps", "DELETE pods", "DELETE jobs", "DELETE jobs"];
    assert_eq!(changes, [&stuck[..], &other].concat());
}

/// The progress counts the runs of unfinished parts, which the pods print.
#[tokio::test]
async fn the_progress_of_an_unfinished_part_is_shown() {
    let pods = vec![pod(&json!({ "phase": "Running" })), pod(&json!({ "phase": "Pending" }))];
    let log =
        "{\"of\":1}\nhc3i: 9 of 30 runs, 1.8 per second\nhc3i: 17 of 30 runs, 1.9 per second\n{\"run\":18}\n";
    let fake = Mutex::new(Fake { pods, logs: vec![log], ..Fake::default() });
    let cluster = serve_uris(move |method, uri, body| fake.lock().unwrap().answer(method, uri, body));
    let (jobs, dir) = (Jobs::on(&cluster), tempfile::tempdir().unwrap());
    let campaign = Campaign { runs: 120, parts: 4, ..campaign(1) };
    let mut performance = Performance {
        campaign: &campaign,
        dir: dir.path(),
        progress: Progress::new().unless_quiet(true),
        done: 2,
        running: BTreeMap::new(),
        unread: 0,
        stuck: 0,
        has_ended: false,
        first_found: false,
        failures: BTreeMap::new(),
        told: String::new(),
    };
    let job = serde_json::from_value(json!({ "metadata": { "name": "job", "uid": "the uid" } })).unwrap();
    jobs.look(&mut performance, &job, &[3, 4]).await.unwrap();
    assert_eq!((performance.runs(), performance.running.keys().copied().collect()), (60 + 17, vec![3]));
    performance.running.insert(3, 31);
    assert_eq!(performance.runs(), 60 + 30, "a part has 30 runs");
    (performance.done, performance.unread) = (0, 3);
    assert_eq!(performance.runs(), 120, "the other parts are assumed to have as many");
}

fn campaign(parts: u32) -> Campaign {
    Campaign {
        version: "0".to_owned(),
        arguments: vec!["sweep".to_owned()],
        identity: "0".to_owned(),
        runs: 1,
        parts,
    }
}

fn ended(name: &str) -> Value {
    json!([{ "type": name, "status": "True", "message": "" }])
}

#[tokio::test]
async fn a_part_whose_log_is_incomplete_is_performed_again() {
    let cut = WHOLE.rsplit_once("{\"part").unwrap().0;
    let pods = vec![pod(&json!({ "phase": "Succeeded" }))];
    let logs = vec![cut, WHOLE];
    let fake = Fake { conditions: ended("Complete"), pods, logs, ..Fake::default() };
    let (outcome, result, changes) = performed(fake).await;
    outcome.unwrap();
    assert_eq!(result.as_deref(), Some(WHOLE));
    let round = ["POST jobs", "POST configmaps", "DELETE pods", "DELETE jobs"];
    assert_eq!(changes, [&round[..], &round, &["DELETE jobs"]].concat());
}

#[tokio::test]
async fn logs_that_are_always_incomplete_end_the_campaign() {
    let pods = vec![pod(&json!({ "phase": "Succeeded" }))];
    let fake = Fake { conditions: ended("Complete"), pods, logs: vec![""], ..Fake::default() };
    let (outcome, result, changes) = performed(fake).await;
    assert!(outcome.unwrap_err().report.to_string().contains("lost or incomplete"));
    assert_eq!((result, changes.last().map(String::as_str)), (None, Some("DELETE jobs")));
}

/// Each error names the cause and the remedy, and nothing remains on the cluster.
#[tokio::test]
async fn a_campaign_that_cannot_succeed_is_ended() {
    let terminated = |reason: &str, message: &str| {
        let code = if message.contains("version") { 2 } else { 137 };
        let state = json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } });
        vec![pod(&json!({ "phase": "Failed", "containerStatuses": [container(&state)] }))]
    };
    let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
    let pending = vec![pod(&json!({ "phase": "Pending", "containerStatuses": [container(&waiting)] }))];
    let full = json!({ "metadata": {}, "involvedObject": {}, "message": "exceeded quota: small" });
    let failed = || Fake { conditions: ended("Failed"), ..Fake::default() };
    for (fake, cause, remedy) in [
        (
            Fake { pods: terminated("OOMKilled", ""), ..failed() },
            "part 1/1 failed (OOMKilled)",
            "--worker-memory",
        ),
        (
            Fake { pods: terminated("Error", "a\u{1b}[2Jb"), ..failed() },
            "137); the end of its log:\na\u{fffd}",
            "--part 1/1",
        ),
        (
            Fake { pods: terminated("Error", "the image contains version 0.0.1"), ..failed() },
            "the image contains version 0.0.1",
            "follow the advice in the log",
        ),
        (Fake { pods: pending, conditions: json!([]), ..Fake::default() }, "no such image", "--image"),
        (
            Fake { events: vec![full], conditions: json!([]), ..Fake::default() },
            "exceeded quota",
            "--workers",
        ),
    ] {
        let (outcome, _, changes) = performed(fake).await;
        let report = outcome.unwrap_err().report;
        assert!(report.to_string().contains(cause), "{report}");
        assert!(report.help().unwrap().to_string().contains(remedy), "{cause}");
        assert_eq!(changes.last().map(String::as_str), Some("DELETE jobs"));
    }
}

fn container(state: &Value) -> Value {
    json!({ "name": "faultline", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state })
}

#[tokio::test]
async fn an_existing_job_is_continued() {
    let job = json!({
        "metadata": { "name": "faultline-sweep-0-1", "uid": "the uid" },
        "status": { "conditions": ended("Complete") },
    });
    let map = json!({ "metadata": { "ownerReferences": [owner()] }, "data": { "parts.json": "[1]" } });
    let pods = vec![pod(&json!({ "phase": "Succeeded" }))];
    let fake = Fake { job: Some(job), map: Some(map), pods, logs: vec![WHOLE], ..Fake::default() };
    let (outcome, result, changes) = performed(fake).await;
    outcome.unwrap();
    assert_eq!((result.as_deref(), changes.iter().any(|it| it.starts_with("POST"))), (Some(WHOLE), false));
}

#[tokio::test]
async fn a_violation_ends_the_campaign_early() {
    let log = "{\"of\":1}\n{\"violation\":17}\n{\"part\":\"1/9\",\"results\":1}\n";
    let pods = vec![pod(&json!({ "phase": "Succeeded" }))];
    let fake = Fake { parts: 9, conditions: json!([]), pods, logs: vec![log], ..Fake::default() };
    let (outcome, result, changes) = performed(fake).await;
    outcome.unwrap();
    assert_eq!((result.as_deref(), changes.last().map(String::as_str)), (Some(log), Some("DELETE jobs")));
    assert!(!has_violation("{\"violation\":null}\n"));
}
