//! The page of a run, as a browser would request it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::{CRASH, TestDirectory, passes_but_for_links, signal, small};

/// A running `faultline` with a page.
struct Served {
    child: Child,
    /// The host and the paths of its addresses.
    host: String,
    paths: Vec<String>,
}

impl Served {
    /// Starts the program, and waits until it has printed this many addresses.
    fn start(place: &TestDirectory, arguments: &[&str], addresses: usize) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_faultline"));
        command.current_dir(place.dir()).args(arguments).env("NO_COLOR", "1");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (mut host, mut paths) = (String::new(), Vec::new());
        while paths.len() < addresses {
            let line = lines.next().expect("the program prints its addresses").unwrap();
            if let Some((_, address)) = line.split_once("http://") {
                let (authority, path) = address.split_once('/').unwrap();
                host = authority.to_owned();
                paths.push(format!("/{}run/1/", path.trim()));
            }
        }
        thread::spawn(move || lines.for_each(drop));
        Served { child, host, paths }
    }

    fn request(&self, head: &str, content: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let host = &self.host;
        write!(stream, "{head} HTTP/1.1\r\nHost: {host}\r\n").unwrap();
        if !content.is_empty() {
            let length = content.len();
            write!(
                stream,
                "Origin: http://{host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
            )
            .unwrap();
        }
        write!(stream, "\r\n{content}").unwrap();
        stream
    }

    fn answer(&self, head: &str, content: &str) -> String {
        let mut answer = String::new();
        self.request(head, content).read_to_string(&mut answer).unwrap();
        answer
    }

    /// Reads the events of a page until one of them satisfies `is_last`.
    fn events(&self, stage: &str, mut is_last: impl FnMut(&str, &str) -> bool) {
        let stream = self.request(&format!("GET {}events?stage={stage}", self.paths[0]), "");
        let mut name = String::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data:")
                && is_last(&name, data.trim_start())
            {
                return;
            }
        }
        panic!("the events ended");
    }

    /// Interrupts the program, and returns its output and status.
    fn interrupted(self) -> (Vec<u8>, Option<i32>) {
        signal(&self.child, "INT");
        let output = self.child.wait_with_output().unwrap();
        (output.stdout, output.status.code())
    }
}

#[test]
fn a_fault_added_from_the_page_is_in_the_record() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH).replace("steps: 60", "steps: 120"));
    let arguments = ["run", "small.yaml", "--out", "run", "--format", "json", "--view=127.0.0.1:0"];
    let served = Served::start(&place, &arguments, 2);
    let [watch, control] = [&served.paths[0], &served.paths[1]];

    served.events("waiting", |name, _| name == "reload");
    let (mut seen, mut answer) = (Vec::new(), String::new());
    served.events("running", |name, data| {
        seen.push(name.to_owned());
        let now: Value = if name == "now" { serde_json::from_str(data).unwrap() } else { Value::Null };
        if answer.is_empty() && now["phase"] == "running" {
            let fault = r#"{"crash":{"process":"nancy-0"}}"#;
            assert!(served.answer(&format!("POST {watch}faults"), fault).starts_with("HTTP/1.1 404"));
            answer = served.answer(&format!("POST {control}faults"), fault);
            let page = served.answer(&format!("GET {control}"), "");
            assert!(page.contains("add fault") && page.contains("script-src 'self'"), "{page}");
            assert!(!served.answer(&format!("GET {watch}"), "").contains("add fault"));
        }
        name == "reload"
    });
    assert!(answer.starts_with("HTTP/1.1 202") && answer.contains("crash: { process: nancy-0 }"), "{answer}");
    assert!(["now", "diagram", "story"].iter().all(|it| seen.contains(&(*it).to_owned())), "{seen:?}");
    let report = served.answer(&format!("GET {watch}"), "");
    assert!(report.contains("with 1 fault added during the run"), "{report:.3000}");
    assert!(served.answer(&format!("POST {control}faults"), "{}").starts_with("HTTP/1.1 409"));

    let (json, status) = served.interrupted();
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(status, Some(if passes_but_for_links(&json) { 0 } else { 3 }));
    let faults = json["faults"].as_array().unwrap();
    assert_eq!((&faults[0]["added"], &faults[1]["added"]), (&Value::Null, &Value::Bool(true)), "{faults:?}");
    assert_eq!(faults[1]["state"], "effective", "{faults:?}");
    place.faultline(["check", "run", "-q"]).assert().code(status.unwrap());
}

#[test]
fn a_record_is_followed_while_another_program_writes_it() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH).replace("steps: 60", "steps: 200"));
    let mut run = Command::new(env!("CARGO_BIN_EXE_faultline"));
    run.current_dir(place.dir()).args(["run", "small.yaml", "--out", "run", "-q"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    place.wait_for_processes(3);
    let follower = Served::start(&place, &["view", "run", "--at", "127.0.0.1:0"], 1);
    let mut stage = "waiting";
    let mut sentences = Vec::new();
    while stage != "over" {
        let mut next = stage;
        follower.events(stage, |name, data| {
            if name == "now" {
                let now: Value = serde_json::from_str(data).unwrap();
                sentences.push(now["sentence"].as_str().unwrap().to_owned());
            }
            let is_over = name == "reload";
            if is_over {
                next = if stage == "waiting" { "running" } else { "over" };
            }
            is_over
        });
        stage = next;
    }
    assert!(sentences.iter().any(|it| it.starts_with("The application runs")), "{sentences:?}");
    let report = follower.answer(&format!("GET {}", follower.paths[0]), "");
    assert!(report.contains("Space-time diagram") && report.contains("Properties"), "{report:.3000}");
    assert_eq!(follower.interrupted().1, Some(0));
    assert!(run.wait().unwrap().code().is_some());
}

#[test]
fn all_records_in_a_directory_are_listed_and_judged() {
    let place = TestDirectory::new();
    place
        .faultline(["run", "--backend", "simulate", "--seed", "8", "--out", "all/run", "-q"])
        .assert()
        .code(0);
    std::fs::create_dir(place.path("all/broken")).unwrap();
    place.write("all/broken/manifest.json", "{");
    let served = Served::start(&place, &["view", "all", "--at", "127.0.0.1:0"], 1);
    let first = served.paths[0].strip_suffix("run/1/").unwrap();
    let page = served.answer(&format!("GET {first}"), "");
    assert!(
        page.contains(">run</a>") && page.contains("broken") && page.contains("data-state=\"unreadable\""),
        "{page}"
    );
    let mut rows = String::new();
    while !rows.contains("data-state=\"pass\"") {
        rows = served.answer(&format!("GET {first}list"), "");
    }
    let (_, version) = rows.split_once("etag: ").unwrap();
    let known = format!("If-None-Match: {}", version.lines().next().unwrap());
    let unchanged = served.answer(&format!("GET {first}list HTTP/1.1\r\n{known}\r\nX:"), "");
    assert!(unchanged.starts_with("HTTP/1.1 304"), "{unchanged}");
    let address = rows.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
    let report = format!("GET {first}{address}");
    while !served.answer(&report, "").contains("Properties") {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(served.answer(&report, "").contains("all records"));
    assert_eq!(served.interrupted().1, Some(0));
}

#[test]
fn a_run_in_virtual_time_shows_its_progress_and_then_its_report() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH).replace("steps: 60", "steps: 4000"));
    let arguments =
        ["run", "small.yaml", "--backend", "simulate", "--out", "run", "-q", "--view=127.0.0.1:0"];
    let served = Served::start(&place, &arguments, 1);
    let page = || served.answer(&format!("GET {}", served.paths[0]), "");
    let mut shown = Vec::new();
    while !shown.last().is_some_and(|it: &String| it.contains("Space-time diagram")) {
        thread::sleep(Duration::from_millis(20));
        shown.push(page());
    }
    let is_progress =
        |it: &String| it.contains("of virtual time have passed. lyon: ") && it.contains("refresh");
    assert!(shown.iter().any(is_progress), "{:.1000}", shown[0]);
    assert!(served.interrupted().1.is_some());
}

#[test]
fn other_machines_cannot_be_served() {
    let place = TestDirectory::new();
    let refused = place.faultline(["run", "--view=0.0.0.0:7380"]).assert().code(2);
    let said = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(said.contains("this machine only") && said.contains("ssh -L 7380:127.0.0.1:7380"), "{said}");
    place.faultline(["view", "nothing"]).assert().code(2);
}
