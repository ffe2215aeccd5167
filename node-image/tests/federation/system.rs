//! A system whose commands run in executors, as in pods.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command};

use faultline_api::supervision::{RunPhase, RunStatus, RunVerdict};
use faultline_core::{Fact, FactKind, Life, ProcessId, Time};
use faultline_trace::Bundle;

use crate::common::{PROGRAM, Setting};
use crate::passes;

const PROCESSES: [&str; 3] = ["paris-0", "paris-1", "rennes-0"];

/// Returns a system whose commands note their lives in their data, and leave programs behind. `check` is a script.
fn system(faults: &str, check: &str) -> String {
    format!(
        r#"apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata:
  name: noted
spec:
  clusters: [{{ name: paris, nodes: 2 }}, {{ name: rennes, nodes: 1 }}]
  links: {{ within: {{ preset: none }}, between: {{ preset: none }} }}
  application:
    system:
      command:
        - sh
        - -c
        - |
          echo "$FAULTLINE_BOOT $FAULTLINE_HOST" | tee -a "$FAULTLINE_DATA/lives"
          setsid sleep 4242 &
          sleep 4242
      ready: {{ exec: [sh, -c, 'test -s "$FAULTLINE_DATA/lives"'] }}
      watch: {{ began: "^(fresh|restarted|replaced) noted-" }}
      probes:
        noted: {{ by: rennes-0, every: 100ms, exec: [test, -s, "{{{{ data }}}}/lives"] }}
      ends: {{ after: 5s }}
  failures: {{ detectAfter: 1s, restartAfter: 200ms }}
  faults: [{faults}]
  expect:
    - {{ probe: noted, availability: 0.9 }}
    - {{ check: the lives are noted, by: paris-0, exec: [sh, -c, '{check}'] }}
"#
    )
}

/// An executor, and the directory of its socket.
struct Executor(Child);

impl Executor {
    fn start(dir: &Path, name: &str) -> Executor {
        let mut command = Command::new(PROGRAM);
        command.args(["execute", "--namespace", "test", "--address", "127.0.0.1", "--socket"]);
        command.arg(dir.join(format!("{name}.executor"))).arg("--data").arg(dir.join(format!("{name}.data")));
        Executor(command.spawn().expect("the program starts"))
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // The program may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a federation whose agents have executors with sockets in `sockets`.
fn start(text: &str, sockets: &Path) -> Setting {
    Setting::start_with(text, &PROCESSES, |name| {
        let mut command = Command::new("sh");
        let socket = sockets.join(format!("{name}.executor"));
        command.args(["-c", r#"exec "$0" "$@" --executor "$SOCKET""#, PROGRAM]).env("SOCKET", socket);
        command
    })
}

/// Returns the number of programs that the commands of a life have left behind.
fn remaining(executors: &[Executor]) -> usize {
    let children = executors.iter().map(|Executor(it)| {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", it.id())).unwrap();
        children.split_whitespace().count()
    });
    children.sum()
}

fn run(faults: &str, check: &str) -> (RunStatus, Setting, tempfile::TempDir) {
    let sockets = tempfile::tempdir().unwrap();
    let executors = PROCESSES.map(|it| Executor::start(sockets.path(), it));
    let setting = start(&system(faults, check), sockets.path());
    assert_eq!(setting.put(&setting.places(1)), 200);
    let status = setting.judged();
    assert_eq!(remaining(&executors), 0, "{status:#?}");
    (status, setting, sockets)
}

#[test]
fn the_commands_of_a_system_run_in_executors() {
    let faults = "{ at: 500ms, crash: { cluster: paris, node: 0 } },
            { at: 1s, pause: { cluster: paris, node: 1, for: 300ms } },
            { at: 2500ms, loseCluster: { cluster: paris, storage: lost } }";
    let check = r#"test "$(cut -d" " -f1 "$FAULTLINE_DATA/lives")" = replaced"#;
    let (status, setting, _sockets) = run(faults, check);
    passes(&status);
    assert_eq!((status.faults.planned, status.faults.done), (3, 3));
    assert!(status.faults.worst_skew_micros.is_some_and(|skew| skew < 50_000), "{:?}", status.faults);

    let (code, tar) = setting.ask("GET", "/v1/bundle", &[]);
    assert_eq!(code, 200);
    let fetched = setting.dir.path().join("fetched");
    tar::Archive::new(&tar[..]).unpack(&fetched).unwrap();
    let trace = Bundle::open(&fetched).read_trace().unwrap();
    assert_eq!(trace.flaws, []);
    // The order and the number of the commands' own lines are those of the programs.
    let kinds = |of: &[(Time, Fact)]| of.iter().map(|it| it.1.kind()).collect::<Vec<_>>();
    for (life, facts) in trace.streams.iter().filter(|it| it.0.0 != ProcessId::SUPERVISOR) {
        let kinds = kinds(facts);
        assert!(
            [FactKind::Ready, FactKind::Logged].iter().all(|it| kinds.contains(it)),
            "{life:?}: {kinds:?}"
        );
        assert_eq!(
            kinds.contains(&FactKind::Checked),
            *life == (ProcessId(0), Life(3)),
            "{life:?}: {kinds:?}"
        );
    }
    let first = "noted-paris-0.noted-pods.test.svc";
    for (life, boot) in [(1, "fresh"), (2, "restarted"), (3, "replaced")] {
        let log = fs::read_to_string(fetched.join(format!("logs/paris-0-{life}.log"))).unwrap();
        assert!(log.starts_with(&format!("{boot} {first}\n")), "{log}");
    }
}

#[test]
fn a_check_that_does_not_hold_fails_the_run_of_executors() {
    let (status, ..) = run("{ at: 500ms, crash: { cluster: paris, node: 1 } }", "exit 3");
    assert_eq!(status.verdict, Some(RunVerdict::Fail), "{status:#?}");
}

#[test]
fn an_agent_does_not_follow_a_link_in_the_place_of_an_executor() {
    let sockets = tempfile::tempdir().unwrap();
    let real = tempfile::tempdir().unwrap();
    let _executors = PROCESSES.map(|it| {
        let name = format!("{it}.executor");
        symlink(real.path().join(&name), sockets.path().join(&name)).unwrap();
        Executor::start(real.path(), it)
    });
    let setting = start(&system("", "true"), sockets.path());
    assert_eq!(setting.put(&setting.places(1)), 200);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_ne!(setting.status().phase, RunPhase::Running);
}
