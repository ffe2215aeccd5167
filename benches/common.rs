//! Code that all benchmarks share: rows of the table, CPU time, medians, peak memory, and pinning to a core. Not a
//! crate: each benchmark includes this file.

#![allow(dead_code, reason = "no benchmark needs all of it")]

use std::env;
use std::fs;
use std::io;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// Prints a row of the `cargo xtask bench` table. A ratio above `goal` misses the goal; some rows have no
/// goal.
pub(crate) fn row(what: &str, measured: &str, baseline: &str, ratio: f64, goal: Option<f64>) {
    let goal = goal.map_or(String::new(), |it| it.to_string());
    println!("row\t{what}\t{measured}\t{baseline}\t{ratio:.3}\t{goal}");
}

/// Returns whether to run a shorter benchmark (`--quick`).
pub(crate) fn quick() -> bool {
    env::args().any(|it| it == "--quick")
}

/// Pins this thread, and the threads that it starts later, to one core.
pub(crate) fn pin(core: usize) {
    let mut cores = CpuSet::new();
    let available = std::thread::available_parallelism().map_or(1, |it| it.get());
    let pinned = cores.set(core % available).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores));
    if let Err(error) = pinned {
        eprintln!("not pinned: {error}");
    }
}

/// Runs `work`. Returns the CPU time that it used on this thread, in seconds, and its result. Suitable for work that
/// never waits. Time during which other programs occupy the core does not count.
pub(crate) fn busy<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    let begin = now();
    let done = work();
    (Duration::from(now() - begin).as_secs_f64(), done)
}

/// Returns the CPU time that these processes have used so far, in seconds.
pub(crate) fn cpu_time<'a>(processes: impl IntoIterator<Item = &'a u32>) -> io::Result<f64> {
    let mut nanos = 0;
    for process in processes {
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            nanos += text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(nanos).as_secs_f64())
}

/// Returns the median; for an even number of values, the upper one.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the median of the ratios of values measured in the same turn.
pub(crate) fn ratio(measured: &[f64], baseline: &[f64]) -> f64 {
    median(&measured.iter().zip(baseline).map(|(measured, baseline)| measured / baseline).collect::<Vec<_>>())
}

/// Returns the peak physical memory of a process (`self` or a process ID), in bytes; `None` if the process has ended.
pub(crate) fn peak_memory(process: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kibibytes * 1024)
}
