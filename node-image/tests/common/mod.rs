//! A federation on this machine that works as it does on Kubernetes: the supervisor and the agents are
//! separate programs, which a test connects over HTTP.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use faultline_api::FederationSpec;
use faultline_api::supervision::{
    Amended, Place, Places, RunPhase, RunStatus, SPEC, STATUS, process_key, token,
};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_faultline-node");
pub(crate) const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// Time limit of each wait in a test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program that prints its address. It is killed when this value is dropped.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl Program {
    fn start(command: &mut Command) -> Program {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).unwrap();
        Program { child, address: line.trim().parse().expect("the program prints its address") }
    }

    pub(crate) fn agent(data: &Path, key: &Path) -> Program {
        Program::agent_with(Command::new(PROGRAM), data, key)
    }

    fn agent_with(mut command: Command, data: &Path, key: &Path) -> Program {
        command.args(["agent", "--listen", "127.0.0.1:0", "--data"]).arg(data).arg("--key-file").arg(key);
        Program::start(&mut command)
    }

    pub(crate) fn supervisor(dir: &Path) -> Program {
        let mut command = Command::new(PROGRAM);
        command.args(["supervise", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"]);
        command.arg("--federation").arg(dir.join("federation.yaml"));
        command.arg("--key-file").arg(dir.join("key")).arg("--out").arg(dir.join("out"));
        Program::start(&mut command)
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All programs of a federation, with a temporary directory for their files.
pub(crate) struct Setting {
    pub(crate) dir: TempDir,
    pub(crate) supervisor: Program,
    pub(crate) agents: Vec<(String, Program)>,
}

impl Setting {
    /// Starts a supervisor for `federation`, and an agent for each of `processes`, without connecting them.
    pub(crate) fn start(federation: &str, processes: &[&str]) -> Setting {
        Setting::start_with(federation, processes, |_| Command::new(PROGRAM))
    }

    /// Like [`start`](Setting::start), but `agent` returns the command that runs the agent of a process.
    pub(crate) fn start_with(
        federation: &str,
        processes: &[&str],
        agent: impl Fn(&str) -> Command,
    ) -> Setting {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("federation.yaml"), federation).unwrap();
        fs::write(dir.path().join("key"), KEY).unwrap();
        let supervisor = Program::supervisor(dir.path());
        let start = |name: &&str| {
            let key = key_of(dir.path(), name);
            ((*name).to_owned(), Program::agent_with(agent(name), &dir.path().join(name), &key))
        };
        let agents = processes.iter().map(start).collect();
        Setting { dir, supervisor, agents }
    }

    /// Writes the key of a process to a file, and returns the path of the file.
    pub(crate) fn key_of(&self, process: &str) -> PathBuf {
        key_of(self.dir.path(), process)
    }

    pub(crate) fn places(&self, generation: u64) -> Places {
        let place = |(process, agent): &(String, Program)| Place {
            process: process.clone(),
            uid: format!("pod-{process}"),
            address: agent.address.to_string(),
        };
        Places { generation, places: self.agents.iter().map(place).collect() }
    }

    /// Sends a request to the supervisor, with its token.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        ask(self.supervisor.address, method, path, Some(&token(KEY).unwrap()), body)
    }

    pub(crate) fn put(&self, places: &Places) -> u16 {
        self.ask("PUT", "/v1/places", &serde_json::to_vec(places).unwrap()).0
    }

    /// Sends a new spec to the supervisor. Returns the HTTP status and the body of the response.
    pub(crate) fn amend(&self, generation: i64, spec: &FederationSpec) -> (u16, String) {
        let amended = Amended { generation, spec: spec.clone() };
        let (code, body) = self.ask("PUT", SPEC, &serde_json::to_vec(&amended).unwrap());
        (code, String::from_utf8(body).unwrap())
    }

    pub(crate) fn status(&self) -> RunStatus {
        let (code, body) = self.ask("GET", STATUS, &[]);
        assert_eq!(code, 200);
        serde_json::from_slice(&body).unwrap()
    }

    /// Waits for a status that satisfies the condition, and returns it.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&RunStatus) -> bool) -> RunStatus {
        let begin = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            assert!(begin.elapsed() < TIMEOUT, "timed out waiting until {what}: {status:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn judged(&self) -> RunStatus {
        self.wait("the run is judged", |it| matches!(it.phase, RunPhase::Completed | RunPhase::Failed))
    }
}

fn key_of(dir: &Path, process: &str) -> PathBuf {
    let file = dir.join(format!("key-of-{process}"));
    fs::write(&file, process_key(KEY, process).unwrap()).unwrap();
    file
}

/// Sends an HTTP request. Returns the status and the body.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &[u8],
) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    let bearer = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
    let length = body.len();
    // With HTTP/1.0, the response is not chunked and ends when the connection closes.
    let head = format!("{method} {path} HTTP/1.0\r\nhost: test\r\n{bearer}content-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    (status, answer[end + 4..].to_vec())
}
