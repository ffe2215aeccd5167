//! Compares the requirements of a run on real processes with the resources of this machine, for `faultline doctor` and
//! `faultline run`. Changes nothing on the machine.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use faultline_api::resource::{ApplicationSpec, FederationSpec};
pub(crate) use faultline_console::examination::{CheckState, Finding};
use faultline_core::Span;
use faultline_report::explain::count;
use faultline_runtime::memory::control_groups;
use miette::miette;
use nix::sys::resource::{Resource, getrlimit};

use crate::command_error::CommandError;

/// File descriptors of a process of the run, in addition to those for connections: files, timers, sockets.
const DESCRIPTORS: u64 = 32;
/// The memory of a node in bytes, without its application's state but with a margin: in a run of 60 nodes,
/// each used 9.3 MB with 1 MiB of state.
const NODE_MEMORY: u64 = 8 << 20;
/// Threads of a node: for the process itself, its heartbeat, its storage, metrics, and computations.
const THREADS: u64 = 6;
/// Ports that other programs may use.
const SPARE_PORTS: u64 = 1000;
/// The longest write time at which the cost of checkpoints can still be measured.
const SLOW_WRITE: Duration = Duration::from_millis(100);
/// The number of test writes. Each of them writes one page.
const WRITES: usize = 16;
const PAGE: [u8; 4096] = [1; 4096];

/// The size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// The number of processes, each of which may communicate with every other.
    pub(crate) nodes: u64,
    /// The size of the application's state in each process, in bytes.
    pub(crate) state: u64,
}

impl Size {
    /// Returns the size of a run of this many nodes, each with 1 MiB of application state.
    pub(crate) fn of_nodes(nodes: u64) -> Size {
        Size { nodes, state: 1 << 20 }
    }

    /// Returns the size of a run of this federation on this many processes.
    pub(crate) fn of_run(nodes: usize, spec: &FederationSpec) -> Size {
        let state = match &spec.application {
            ApplicationSpec::Heat(it) => it.state(),
            ApplicationSpec::Synthetic(it) => it.state(),
            ApplicationSpec::Nas(it) => it.state(),
            ApplicationSpec::Exchange(_)
            | ApplicationSpec::Farm(_)
            | ApplicationSpec::PingPong(_)
            | ApplicationSpec::Salted(_)
            | ApplicationSpec::Fibonacci(_)
            | ApplicationSpec::NQueens(_)
            | ApplicationSpec::Qap(_)
            | ApplicationSpec::TaskGraph(_)
            | ApplicationSpec::Jacobi(_)
            | ApplicationSpec::Cloth(_)
            | ApplicationSpec::Custom(_)
            | ApplicationSpec::Program(_)
            | ApplicationSpec::System(_) => 0,
        };
        Size { nodes: nodes as u64, state }
    }
}

/// Rejects a run that exceeds the limits of this machine, before any part of the run starts.
pub(crate) fn require(size: Size) -> Result<(), CommandError> {
    let findings = findings(size);
    let lacking: Vec<_> = findings.iter().filter(|it| it.state == CheckState::Fail).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let said: Vec<_> = lacking.iter().map(|it| format!("\n  {}: {}", it.name, it.detail)).collect();
    let remedies: Vec<_> = lacking.iter().filter_map(|it| it.remedy.as_deref()).collect();
    Err(CommandError::input(miette!(
        help = format!(
            "add `--backend simulate`, which needs none of this, or use fewer nodes, or apply these remedies:\n{}\nAll limits: `faultline doctor --nodes {}`",
            remedies.join("\n"),
            size.nodes
        ),
        "this machine cannot run {} as processes:{}",
        count(size.nodes, "node"),
        said.concat()
    )))
}

/// What this machine can still give to a run; `None` if the system does not report it.
struct Limits {
    /// Files that one process may open.
    own_files: Option<u64>,
    /// Files that all processes together have open, and how many more they may open.
    open_files: u64,
    free_files: Option<u64>,
    /// Processes of this user.
    processes: Option<u64>,
    /// Threads that exist, and how many more may exist.
    threads: u64,
    free_threads: Option<u64>,
    ports: Option<u64>,
    /// Available memory, in bytes.
    memory: Option<u64>,
    /// Threads and bytes that the control groups of this program still allow.
    group_threads: Option<u64>,
    group_memory: Option<u64>,
}

impl Limits {
    fn of_this_machine() -> Limits {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let number = |path: &str| read(path).split_whitespace().next().and_then(|it| it.parse::<u64>().ok());
        let own = |resource| getrlimit(resource).ok().map(|(soft, _)| soft);
        let of_group = |limit, used| {
            let free = |group: &Path| {
                let number = |file| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
                Some(number(limit)?.saturating_sub(number(used).unwrap_or(0)))
            };
            control_groups(&read("/proc/self/cgroup")).iter().filter_map(|it| free(it)).min()
        };
        let open_files = number("/proc/sys/fs/file-nr").unwrap_or(0);
        let threads = threads_running(&read("/proc/loadavg")).unwrap_or(0);
        let most_threads = [number("/proc/sys/kernel/threads-max"), number("/proc/sys/kernel/pid_max")];
        Limits {
            own_files: own(Resource::RLIMIT_NOFILE),
            open_files,
            free_files: number("/proc/sys/fs/file-max").map(|it| it.saturating_sub(open_files)),
            processes: own(Resource::RLIMIT_NPROC),
            threads,
            free_threads: most_threads.into_iter().flatten().min().map(|it| it.saturating_sub(threads)),
            ports: ports(&read("/proc/sys/net/ipv4/ip_local_port_range")),
            memory: available_memory(&read("/proc/meminfo")),
            group_threads: of_group("pids.max", "pids.current"),
            group_memory: of_group("memory.max", "memory.current"),
        }
    }
}

/// Compares the requirements of a run of this size with the limits of this machine. Returns one finding for each limit.
pub(crate) fn findings(Size { nodes, state }: Size) -> Vec<Finding> {
    let limits = Limits::of_this_machine();
    // A process needs two descriptors for each other process: while that process restarts, its old and its new
    // connection can both be open.
    let files = DESCRIPTORS + 2 * nodes;
    let all_files = nodes.saturating_mul(nodes + DESCRIPTORS);
    let threads = THREADS * nodes;
    let memory = nodes.saturating_mul(NODE_MEMORY.saturating_add(state.saturating_mul(2)));

    let more_files = format!("`ulimit -n {files}`");
    let more_in_all = format!("`sysctl -w fs.file-max={}`", all_files.saturating_add(limits.open_files));
    let more_processes = format!("`ulimit -u {threads}`");
    let more_threads =
        format!("`sysctl -w kernel.pid_max={0} kernel.threads-max={0}`", threads + limits.threads);
    let more_ports = "`sysctl -w net.ipv4.ip_local_port_range='1024 65535'`".to_owned();
    let more_memory = "add memory, or reduce the application's `state`".to_owned();
    let plain = |it: u64| it.to_string();
    let mut findings = vec![
        enough("open files", limits.own_files, files, plain, more_files),
        enough("all open files", limits.free_files, all_files, plain, more_in_all),
        enough("processes", limits.processes, threads, plain, more_processes),
        enough("threads", limits.free_threads, threads, plain, more_threads),
        enough("local ports", limits.ports, 2 * nodes + SPARE_PORTS, plain, more_ports),
        enough("memory", limits.memory, memory, mebibytes, more_memory),
    ];
    // Most machines limit neither the threads nor the memory of control groups.
    if limits.group_threads.is_some() {
        let remedy = "raise `pids.max` of the control group (in a container: its limit on processes)";
        findings.push(enough("cgroup threads", limits.group_threads, threads, plain, remedy.to_owned()));
    }
    if limits.group_memory.is_some() {
        let remedy = "raise `memory.max` of the control group (in a container: its memory limit)";
        findings.push(enough("cgroup memory", limits.group_memory, memory, mebibytes, remedy.to_owned()));
    }
    findings
}

/// Measures the load of this machine: a process that gets no CPU time looks like a failed one.
pub(crate) fn load() -> Option<Finding> {
    let load = load_average(&fs::read_to_string("/proc/loadavg").ok()?)?;
    let cores = thread::available_parallelism().ok()?;
    let is_busy = load > cores.get() as f64;
    Some(Finding {
        name: "load",
        state: if is_busy { CheckState::Warning } else { CheckState::Ok },
        detail: format!("{load:.1} on {}", count(cores.get() as u64, "core")),
        remedy: is_busy.then(|| "stop other programs, or raise `failures.detectAfter`".to_owned()),
    })
}

/// Measures how long a page takes to reach the device that holds this directory, as the maximum of several
/// tries. A checkpoint waits for such writes.
pub(crate) fn writes(dir: &Path) -> Finding {
    let name = "stable writes";
    match slowest_write(dir) {
        Ok(slowest) => Finding {
            name,
            state: if slowest <= SLOW_WRITE { CheckState::Ok } else { CheckState::Warning },
            detail: format!("writing a page takes up to {}", Span::from_micros(slowest.as_micros() as u64)),
            remedy: (slowest > SLOW_WRITE).then(|| {
                "specify a directory on another disk with `--out`, or use `storage: { kind: memory }` in the federation"
                    .to_owned()
            }),
        },
        Err(error) => Finding {
            name,
            state: CheckState::Missing,
            detail: format!("cannot write in {}: {error}", dir.display()),
            remedy: Some("specify a writable directory with `--out`".to_owned()),
        },
    }
}

fn slowest_write(dir: &Path) -> io::Result<Duration> {
    let mut file = tempfile::tempfile_in(dir)?;
    let mut slowest = Duration::ZERO;
    for _ in 0..WRITES {
        let begun = Instant::now();
        file.write_all(&PAGE)?;
        file.sync_data()?;
        slowest = slowest.max(begun.elapsed());
    }
    Ok(slowest)
}

fn enough(
    name: &'static str,
    have: Option<u64>,
    need: u64,
    show: impl Fn(u64) -> String,
    remedy: String,
) -> Finding {
    let Some(have) = have else {
        let detail = "unknown: the system does not report it".to_owned();
        return Finding { name, state: CheckState::Missing, detail, remedy: None };
    };
    let is_enough = have >= need;
    let have = if have >= u64::MAX / 4 { "no limit".to_owned() } else { format!("{} available", show(have)) };
    Finding {
        name,
        state: if is_enough { CheckState::Ok } else { CheckState::Fail },
        detail: format!("{} needed, {have}", show(need)),
        remedy: (!is_enough).then_some(remedy),
    }
}

/// Returns the number of ports in the range of `ip_local_port_range`. A node listens on one port. Its outgoing
/// connections can share a port, because they go to different nodes.
fn ports(range: &str) -> Option<u64> {
    let mut ends = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    Some((last + 1).saturating_sub(first))
}

/// Returns the bytes available without swapping, from `/proc/meminfo`.
fn available_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Returns the number of processes that run, or wait for a core or the disk, averaged over the last minute, from
/// `/proc/loadavg`.
fn load_average(loadavg: &str) -> Option<f64> {
    loadavg.split_whitespace().next()?.parse().ok()
}

/// Returns the number of existing threads, from `/proc/loadavg` (`0.10 0.20 0.30 2/345 6789`).
fn threads_running(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_fails_with_a_remedy() {
        let low = enough("open files", Some(10), 11, |it| it.to_string(), "more".to_owned());
        assert_eq!((low.state, low.remedy.as_deref()), (CheckState::Fail, Some("more")));
        let high = enough("open files", Some(11), 11, |it| it.to_string(), "more".to_owned());
        assert_eq!((high.state, high.remedy), (CheckState::Ok, None));
        let unknown = enough("open files", None, 11, |it| it.to_string(), "more".to_owned());
        assert_eq!(unknown.state, CheckState::Missing);
    }

    #[test]
    fn kernel_statistics_are_parsed() {
        assert_eq!(ports("32768\t60999\n"), Some(28_232));
        assert_eq!(ports("here"), None);
        assert_eq!(available_memory("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available_memory(""), None);
        assert_eq!(load_average("0.10 0.20 0.30 2/345 6789\n"), Some(0.1));
        assert_eq!(threads_running("0.10 0.20 0.30 2/345 6789\n"), Some(345));
    }

    #[test]
    fn a_directory_is_tested_without_leaving_files() {
        let dir = tempfile::tempdir().unwrap();
        let found = writes(dir.path());
        assert!(found.detail.starts_with("writing a page takes up to "), "{found:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let lacking = writes(&dir.path().join("absent"));
        assert!(lacking.state == CheckState::Missing && lacking.remedy.is_some(), "{lacking:?}");
    }

    #[test]
    fn requirements_grow_with_nodes_and_their_state() {
        let needs = |size| findings(size).into_iter().map(|it| it.detail).collect::<Vec<_>>();
        let memory = |size| needs(size).into_iter().find(|it| it.contains("MiB needed")).unwrap();
        assert!(memory(Size { nodes: 100, state: 1 << 20 }).starts_with("1000 MiB needed"));
        assert!(memory(Size { nodes: 100, state: 6 << 20 }).starts_with("2000 MiB needed"));
        assert!(needs(Size::of_nodes(100)).iter().any(|it| it.starts_with(&format!("{} needed", 100 * 132))));
    }

    #[test]
    fn a_run_that_cannot_fit_is_rejected_with_numbers_and_remedies() {
        require(Size::of_nodes(1)).unwrap();
        let refused = require(Size::of_nodes(100_000_000)).unwrap_err();
        // Remove the line breaks, which depend on the terminal.
        let said = format!("{:?}", refused.report).split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["100000000 nodes", "memory: ", "--backend simulate", "fewer nodes", "ulimit -n"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
