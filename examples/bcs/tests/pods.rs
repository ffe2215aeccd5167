//! Tests the program of the pods: the federation of the example runs on agents, as it does on Kubernetes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const NODE: &str = env!("CARGO_BIN_EXE_faultline-node");
const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// Time limit of the run.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A program that prints its address. It is killed when this value is dropped.
struct Program {
    child: Child,
    address: String,
}

impl Program {
    fn start(place: &Path, arguments: &[&str]) -> Program {
        let mut command = Command::new(NODE);
        command.args(arguments).current_dir(place).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Program { child, address: address.trim().to_owned() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).unwrap();
    }
}

/// Returns what a command prints.
fn output(place: &Path, arguments: &[&str]) -> String {
    let output = Command::new(NODE).args(arguments).current_dir(place).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Sends a request to the supervisor. Returns the body of the response.
fn ask(address: &str, token: &str, request: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head =
        format!("{request} HTTP/1.0\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{request}: {answer}");
    body.to_owned()
}

#[test]
fn it_recovers_in_the_program_of_the_pods() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("federation.yaml"), place.join("federation.yaml"))
        .unwrap();
    fs::write(place.join("key"), KEY).unwrap();
    let supervise = "supervise --federation federation.yaml --key-file key --out results --listen 127.0.0.1:0 \
                     --api 127.0.0.1:0";
    let supervisor = Program::start(place, &supervise.split_whitespace().collect::<Vec<_>>());
    let processes = ["paris-0", "paris-1", "paris-2", "lyon-0", "lyon-1", "lyon-2"];
    let agents = processes.map(|process| {
        let key = format!("key-of-{process}");
        fs::write(place.join(&key), output(place, &["key", "--key-file", "key", process])).unwrap();
        Program::start(place, &["agent", "--listen", "127.0.0.1:0", "--key-file", &key, "--data", process])
    });
    let places: Vec<Value> = processes
        .iter()
        .zip(&agents)
        .map(|(process, agent)| json!({ "process": process, "uid": process, "address": agent.address }))
        .collect();
    let token = output(place, &["token", "--key-file", "key"]);
    let body = json!({ "generation": 1, "places": places }).to_string();
    ask(&supervisor.address, &token, "PUT /v1/places", &body);

    let begun = Instant::now();
    let status = loop {
        let status: Value =
            serde_json::from_str(&ask(&supervisor.address, &token, "GET /v1/status", "")).unwrap();
        if status["verdict"].is_string() {
            break status;
        }
        assert!(begun.elapsed() < TIMEOUT, "{status:#}");
        sleep(Duration::from_millis(100));
    };
    // The verdict is `unknown` if the machine is too busy to emulate the links as requested.
    assert_ne!(status["verdict"], "fail", "{status:#}");
    assert_eq!(status["phase"], "completed", "{status:#}");
    assert!(status["rollbacks"].as_u64().is_some_and(|it| it > 0), "{status:#}");
}
