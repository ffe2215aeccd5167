//! The command under test, and federations with short runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use predicates::Predicate;
use serde_json::Value;
use tempfile::TempDir;

/// The time within which a condition must become true. On a busy machine, this can take several times as long as usual.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns a predicate for text that contains a sentence, which may be wrapped.
pub(crate) fn says(sentence: &'static str) -> impl Predicate<str> {
    predicates::function::function(move |text: &str| {
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains(sentence)
    })
}

/// A directory in which to run `faultline`.
pub(crate) struct TestDirectory {
    dir: TempDir,
}

impl TestDirectory {
    /// Runs a shell command on a terminal of this type, with or without `NO_COLOR`, and returns its output and status.
    pub(crate) fn on_terminal(&self, command: &str, terminal: &str, is_plain: bool) -> Output {
        // `script` runs the command on a terminal. Its input stays open, because at the end of the input, `script` may
        // lose what the command prints.
        let mut script = Program::new("script");
        script.args(["-qec", command, "/dev/null"]).current_dir(self.dir()).env("TERM", terminal);
        script.env_remove("NO_COLOR").env_remove("CLICOLOR");
        if is_plain {
            script.env("NO_COLOR", "1");
        }
        let piped = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("`script` starts");
        let input = child.stdin.take();
        let output = child.wait_with_output().expect("`script` ends");
        drop(input);
        output
    }

    pub(crate) fn new() -> TestDirectory {
        TestDirectory { dir: tempfile::tempdir().unwrap() }
    }

    /// Returns the command, to be run in the directory.
    pub(crate) fn faultline<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_faultline"));
        command.current_dir(self.dir.path()).args(arguments).env("NO_COLOR", "1");
        command
    }

    /// Writes a federation to `file` and runs it. Returns the summary of the run and the exit status.
    pub(crate) fn run(&self, file: &str, backend: &str, text: &str, out: &str) -> (Value, Option<i32>) {
        self.write(file, text);
        let arguments = ["run", file, "--backend", backend, "--out", out, "--format", "json"];
        let output = self.faultline(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}")), output.status.code())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the command lines of the live processes whose working directory is this directory.
    pub(crate) fn processes(&self) -> Vec<String> {
        let process = |entry: fs::DirEntry| {
            let path = entry.path();
            fs::read_link(path.join("cwd")).ok().filter(|it| it.starts_with(self.dir()))?;
            let line = fs::read(path.join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&line).replace('\0', " "))
        };
        fs::read_dir("/proc").unwrap().filter_map(|entry| process(entry.ok()?)).collect()
    }

    /// Waits until at least `count` processes run in this directory.
    pub(crate) fn wait_for_processes(&self, count: usize) {
        wait_until(
            || self.processes().len() >= count,
            || format!("only these processes run: {:?}", self.processes()),
        );
    }

    /// Waits until no process runs in this directory.
    pub(crate) fn wait_until_empty(&self) {
        wait_until(
            || self.processes().is_empty(),
            || format!("these processes remain: {:?}", self.processes()),
        );
    }
}

/// Waits until a condition holds.
///
/// # Panics
///
/// Panics with the text of `otherwise` if the condition does not hold within [`TIMEOUT`].
pub(crate) fn wait_until(condition: impl Fn() -> bool, otherwise: impl Fn() -> String) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < TIMEOUT, "{}", otherwise());
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns whether a run passes. Panics if anything other than its links keeps it from passing: on a busy machine, the
/// links may not have their requested delays, which makes the verdict unknown.
pub(crate) fn passes_but_for_links(summary: &Value) -> bool {
    let properties = summary["properties"].as_array().expect("a summary lists its properties");
    assert!(properties.len() > 1 && properties.iter().all(|it| it["verdict"].is_string()), "{summary}");
    let open: Vec<&Value> = properties.iter().filter(|it| it["verdict"] != "pass").collect();
    let of_links = |it: &&Value| it["property"] == "linksAsRequested" && it["verdict"] == "unknown";
    assert!(open.iter().all(of_links), "{open:#?}");
    let expected = if open.is_empty() { "pass" } else { "unknown" };
    assert_eq!(summary["verdict"], expected, "{summary}");
    open.is_empty()
}

/// Sends a signal to a process. `name` is the signal's name in `kill`, such as `INT`.
pub(crate) fn signal(process: &Child, name: &str) {
    let status = Program::new("kill").args([format!("-{name}"), process.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Returns the file of a federation of two clusters that compute for 1.2 s, with the lines `extra` at the end of the
/// spec.
pub(crate) fn small(extra: &str) -> String {
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata:
  name: small
spec:
  seed: 3
  clusters: [{{ name: lyon, nodes: 2 }}, {{ name: nancy, nodes: 2 }}]
  links:
    between: {{ latency: 3ms, bandwidth: 100Mbit }}
  protocol:
    hc3i: {{ checkpointEvery: 300ms, replicas: 1, replicateTo: otherCluster }}
  application:
    heat: {{ steps: 60, stepTime: 20ms, feedbackEvery: 20, state: 64KiB }}
  failures: {{ detectAfter: 2s, restartAfter: 50ms }}
{extra}"
    )
}

/// A fault for [`small`].
pub(crate) const CRASH: &str = "  faults: [{ at: 600ms, crash: { cluster: lyon, node: 1 } }]\n";
