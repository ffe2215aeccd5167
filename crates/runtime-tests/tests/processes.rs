//! Tests of a run from the operating system's point of view: its processes, their open files, and what they
//! leave behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use faultline_conformance::{Act, Script, Step};
use faultline_core::fault::{MemoryContent, Outcome};
use faultline_core::{Fact, Life, ProcessId, Span};
use faultline_runtime::{NodeOptions, RunOptions, Secret, local};
use faultline_runtime_tests::undisturbed;
use faultline_supervisor::MemoryBound;
use faultline_trace::Bundle;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const NODES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// A run by `probe-run`, whose nodes all communicate with each other.
struct Run {
    dir: TempDir,
    supervisor: Child,
}

impl Run {
    /// Starts a run with a detection time so long that nodes stopped by a test are not fenced.
    fn begin() -> Run {
        Run::begin_with_detection(Duration::from_secs(60))
    }

    fn begin_with_detection(after: Duration) -> Run {
        let dir = tempfile::tempdir().unwrap();
        let supervisor = Command::new(env!("CARGO_BIN_EXE_probe-run"))
            .arg(dir.path())
            .arg(env!("CARGO_BIN_EXE_probe-node"))
            .arg(after.as_millis().to_string())
            .spawn()
            .unwrap();
        let run = Run { dir, supervisor };
        wait_until("every node has written an image", || run.is_at_work());
        run
    }

    fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// Returns the port of the supervisor's metrics. The supervisor's other port accepts only nodes.
    fn metrics_port(&self) -> u16 {
        let ports = open_ports(self.supervisor.id() as i32);
        ports.into_iter().find(|&port| page(port).is_some()).expect("the supervisor serves metrics")
    }

    /// Returns whether all nodes have written images, which shows that they have started.
    fn is_at_work(&self) -> bool {
        let stores = (0..NODES).map(|node| self.run_dir().join(format!("nodes/p{node}/store")));
        stores.into_iter().all(|store| fs::read_dir(store).is_ok_and(|files| files.count() > 3))
    }

    /// Returns the process IDs of this run's nodes, by name.
    fn nodes(&self) -> BTreeMap<String, i32> {
        let dir = self.run_dir();
        let dir = dir.to_str().unwrap();
        let mut nodes = BTreeMap::new();
        for entry in fs::read_dir("/proc").unwrap() {
            let path = entry.unwrap().path();
            let pid = path.file_name().unwrap().to_str().unwrap().parse::<i32>();
            let Ok(pid) = pid else { continue };
            let line = fs::read(path.join("cmdline")).unwrap_or_default();
            let args: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            if args.iter().any(|arg| arg == dir) {
                let process = args.iter().position(|arg| arg == "--process").unwrap();
                let earlier = nodes.insert(args[process + 1].to_string(), pid);
                assert_eq!(earlier, None, "two processes belong to one node");
            }
        }
        nodes
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // After a failed test, the supervisor may still be running. If it has exited, the error is
        // irrelevant.
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

#[test]
fn no_node_survives_its_killed_supervisor() {
    let mut run = Run::begin();
    let nodes = run.nodes();
    assert_eq!(nodes.len(), NODES);
    kill(Pid::from_raw(nodes["2"]), Signal::SIGSTOP).unwrap();
    run.supervisor.kill().unwrap();
    run.supervisor.wait().unwrap();
    wait_until("every node has ended", || run.nodes().is_empty());
}

#[test]
fn a_node_whose_parent_has_already_ended_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, postcard::to_stdvec(&Script::default()).unwrap()).unwrap();
    let options = NodeOptions {
        run_dir: dir.path().to_owned(),
        supervisor: (Ipv4Addr::LOCALHOST, 9).into(),
        // Not the ID of this process, which starts the node.
        parent: std::process::id() + 1,
        process: ProcessId(0),
        life: Life(1),
        port: 0,
        own_network: false,
        shaper: None,
        executor: None,
    };
    let mut node = Command::new(env!("CARGO_BIN_EXE_probe-node"));
    node.arg(&script).arg("any").args(options.to_args());
    let mut node = node.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    node.stdin.take().unwrap().write_all(Secret::generate().unwrap().to_line().as_bytes()).unwrap();
    let node = node.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&node.stderr).contains("Orphan"), "{node:?}");
    assert!(!node.status.success());
}

#[test]
fn an_interrupt_ends_a_run_normally() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut run = Run::begin();
        kill(Pid::from_raw(run.supervisor.id() as i32), signal).unwrap();
        let status = run.supervisor.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(run.nodes().is_empty(), "the supervisor ends after all nodes");
    }
}

#[test]
fn a_second_signal_of_either_kind_ends_a_program_that_ignores_the_first() {
    let kinds = [Signal::SIGINT, Signal::SIGTERM];
    for (first, second) in kinds.into_iter().flat_map(|first| kinds.map(|second| (first, second))) {
        let mut program = Command::new(env!("CARGO_BIN_EXE_probe-signals"));
        let mut program = program.arg("3").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let id = Pid::from_raw(program.id() as i32);
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        kill(id, first).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "signalled");
        kill(id, second).unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = program.try_wait().unwrap() {
                break Some(status);
            }
            if begun.elapsed() > PATIENCE {
                program.kill().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(status.and_then(|it| it.code()), Some(3), "{first} and {second}");
    }
}

#[test]
fn a_run_ends_before_its_facts_exceed_the_memory_limit() {
    let dir = tempfile::tempdir().unwrap();
    let mut steps = Vec::new();
    for process in [0, 1].map(ProcessId) {
        let mut step = |after, acts| steps.push(Step { process, life: None, after, acts });
        for tick in 1..600 {
            step(Span::from_millis(100) * tick, vec![Act::Send(ProcessId(1 - process.0), 2)]);
        }
        step(Span::from_secs(60), vec![Act::Finish]);
    }
    let script = dir.path().join("script");
    fs::write(&script, postcard::to_stdvec(&Script { steps, ..Script::default() }).unwrap()).unwrap();
    let bundle = Bundle::create(dir.path().join("run")).unwrap();
    // Room for 40 facts. An eighth of it is reserved.
    let options = RunOptions {
        memory: Some(MemoryBound { bytes: 4000, used: || 0 }),
        fact_bytes: 100,
        ..undisturbed(bundle.dir(), &[2], Span::from_secs(60))
    };
    let command = vec![env!("CARGO_BIN_EXE_probe-node").into(), script.into(), "any".into()];
    let ended = local::run(command, options, &mut ()).unwrap();
    let Outcome::OutOfMemory(used) = ended.outcome else { panic!("{:?}", ended.outcome) };
    let facts = used.parts.iter().find(|it| it.content == MemoryContent::JudgedFacts).unwrap();
    assert_eq!((used.bound, facts.bytes), (4000, 100 * facts.count));
    assert!(facts.count >= 35, "{facts:?}");
    assert!(ended.duration < Span::from_secs(30), "{:?}", ended.duration);
    let recorded = bundle.read_trace().unwrap();
    assert!(recorded.flaws.is_empty() && recorded.len() as u64 >= facts.count, "{:?}", recorded.flaws);
}

#[test]
fn a_paused_supervisor_declares_no_process_failed() {
    let detect_after = Duration::from_secs(1);
    let mut run = Run::begin_with_detection(detect_after);
    let supervisor = Pid::from_raw(run.supervisor.id() as i32);
    let port = run.metrics_port();
    let saved = || sum(&metrics(port), "faultline_images_saved_total");
    kill(supervisor, Signal::SIGSTOP).unwrap();
    std::thread::sleep(detect_after * 2);
    kill(supervisor, Signal::SIGCONT).unwrap();
    let before = saved();
    wait_until("the supervisor receives heartbeats again", || saved() > before + NODES as f64);
    kill(supervisor, Signal::SIGINT).unwrap();
    assert!(run.supervisor.wait().unwrap().success());
    let trace = Bundle::open(run.run_dir()).read_trace().unwrap();
    let deaths = trace.supervisor().iter().filter(|(_, fact)| matches!(fact, Fact::Detected { .. }));
    assert_eq!(deaths.count(), 0, "heartbeats arrived during the pause");
}

#[test]
fn a_node_has_one_process_one_listening_socket_and_its_own_directory() {
    let run = Run::begin();
    let nodes = run.nodes();
    assert_eq!(nodes.len(), NODES);
    let listening = sockets(|state| state == LISTENING);
    for (name, pid) in nodes {
        let mut listeners = 0;
        for open in open_files(pid) {
            if let Some(inode) = open.strip_prefix("socket:[").and_then(|it| it.strip_suffix(']')) {
                listeners += usize::from(listening.contains_key(inode));
            } else if open.starts_with('/') && open != "/dev/null" {
                assert!(Path::new(&open).starts_with(run.run_dir()), "p{name} has {open} open");
                let store = run.run_dir().join("nodes");
                let own =
                    [store.join(format!("p{name}")), run.run_dir().join(format!("facts/p{name}-1.facts"))];
                assert!(own.iter().any(|own| Path::new(&open).starts_with(own)), "p{name} has {open} open");
            }
        }
        assert_eq!(listeners, 1, "listening sockets of p{name}");
    }
}

#[test]
fn secrets_are_in_no_argument_and_no_environment() {
    let run = Run::begin();
    for (name, pid) in run.nodes() {
        for file in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{pid}/{file}")).unwrap();
            let longest = text.split(|byte| !byte.is_ascii_hexdigit()).map(<[u8]>::len).max().unwrap();
            assert!(longest < 64, "{file} of p{name} contains a word that could be a key");
        }
    }
}

#[test]
fn an_unknown_caller_is_disconnected_and_changes_nothing() {
    let run = Run::begin();
    let supervisor = open_ports(run.supervisor.id() as i32);
    let ports: Vec<u16> = run.nodes().into_values().flat_map(open_ports).chain(supervisor).collect();
    assert_eq!(ports.len(), NODES + 2, "one port per node, the control port and the metrics port");
    let metrics = run.metrics_port();
    let mut answered = 0;
    let ports = ports.into_iter().filter(|&port| port != metrics);
    // Impersonates process 0, both to the supervisor and to process 1.
    for (port, called) in ports.flat_map(|port| [(port, [0xff; 4]), (port, [1, 0, 0, 0])]) {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&[*b"FLT3", [0; 4], called].concat()).unwrap();
        stream.write_all(&[7; 16]).unwrap();
        // The called process proves that it knows the key; this caller cannot.
        if stream.read_exact(&mut [0; 48]).is_ok() {
            answered += 1;
            stream.write_all(&[9; 32]).unwrap();
            assert_eq!(
                stream.read(&mut [0]).unwrap(),
                0,
                "port {port} does not disconnect an unknown caller"
            );
        }
    }
    assert_eq!(answered, 2, "only the called process answers");
    assert_eq!(run.nodes().len(), NODES);
}

#[test]
fn every_node_and_the_supervisor_serve_metrics() {
    let run = Run::begin();
    for (name, pid) in run.nodes() {
        let [port] = open_ports(pid)[..] else { panic!("p{name} listens on one port") };
        wait_until("the node has saved an image", || {
            let page = metrics(port);
            sum(&page, &format!("faultline_images_saved_total{{process=\"p{name}\"")) > 0.0
        });
        let page = metrics(port);
        let delay = format!(
            "faultline_link_delay_requested_seconds{{process=\"p{name}\",from=\"cluster-0\",to=\"cluster-1\"}}"
        );
        assert_eq!(value(&page, &delay), (name == "0" || name == "1").then_some(0.001), "{page}");
    }
    let port = run.metrics_port();
    const LINK: &str = "{from=\"cluster-0\",to=\"cluster-1\"}";
    wait_until("the supervisor shows a sum", || {
        let page = metrics(port);
        sum(&page, "faultline_images_saved_total") > NODES as f64
            && value(&page, &format!("faultline_link_delay_seconds_total{LINK}"))
                .zip(value(&page, &format!("faultline_link_packets_total{LINK}")))
                .is_some_and(|(delays, packets)| delays / packets > 0.0009)
    });
}

/// Requests a metrics page.
fn metrics(port: u16) -> String {
    page(port).expect("a metrics page")
}

/// Returns the response to a request for a metrics page; `None` if there is none or its status is not 200.
fn page(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    page.starts_with("HTTP/1.1 200").then_some(page)
}

/// Returns the sum of the series whose names begin with `series`.
fn sum(page: &str, series: &str) -> f64 {
    let lines = page.lines().filter(|line| line.starts_with(series));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

const LISTENING: &str = "0A";

/// Returns the ports of all TCP sockets whose state satisfies `of_state`, by inode.
fn sockets(of_state: impl Fn(&str) -> bool) -> BTreeMap<String, u16> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| of_state(row[3]))
        .map(|row| {
            let (_, port) = row[1].split_once(':').unwrap();
            (row[9].to_owned(), u16::from_str_radix(port, 16).unwrap())
        })
        .collect()
}

/// Returns the ports on which a process listens.
fn open_ports(pid: i32) -> Vec<u16> {
    let listening = sockets(|state| state == LISTENING);
    let open: BTreeSet<String> = open_files(pid).into_iter().collect();
    let inode = |open: &String| open.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned);
    open.iter().filter_map(inode).filter_map(|inode| listening.get(&inode).copied()).collect()
}

/// Returns the targets of a process's file descriptors, except those closed in the meantime.
fn open_files(pid: i32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    targets.map(|target| target.to_str().unwrap().to_owned()).collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
