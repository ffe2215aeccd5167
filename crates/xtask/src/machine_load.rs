//! Measures how busy *other* programs keep the machine, because they slow down benchmarks of real processes and their
//! baselines.

use std::error::Error;
use std::fs;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Ticks per second in `/proc/stat` (`USER_HZ`): the same on all platforms that Faultline supports.
const TICKS: f64 = 100.0;

/// Returns the CPU seconds of all child processes that have exited, including their descendants.
pub(crate) fn of_children() -> Result<f64, Box<dyn Error>> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(microseconds as f64 / 1e6)
}

/// CPU times of the machine and of this program's children, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineLoad {
    /// The total time available on all cores since the machine was started.
    available: f64,
    /// The time during which the cores were busy, summed over cores.
    spent: f64,
    /// The CPU time of this program's children that have exited.
    own: f64,
}

impl MachineLoad {
    /// Reads the current times.
    pub(crate) fn now() -> Result<MachineLoad, Box<dyn Error>> {
        let text = fs::read_to_string("/proc/stat")?;
        let (spent, available) = parse(&text).ok_or("/proc/stat has no line for all cores")?;
        Ok(MachineLoad { available: available / TICKS, spent: spent / TICKS, own: of_children()? })
    }

    /// Returns the percentage of the available CPU time that other programs have used since `before`.
    pub(crate) fn of_others_since(&self, before: &MachineLoad) -> f64 {
        let available = self.available - before.available;
        let others = (self.spent - before.spent) - (self.own - before.own);
        if available > 0.0 { (100.0 * others / available).max(0.0) } else { 0.0 }
    }
}

/// Returns the ticks during which the cores were busy, and the ticks that were available, both summed over cores.
fn parse(stat: &str) -> Option<(f64, f64)> {
    let line = stat.lines().find_map(|it| it.strip_prefix("cpu "))?;
    // user, nice, system, idle, iowait, irq, softirq, steal; the guests that follow are part of user and nice.
    let ticks: Vec<f64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let idle = ticks.get(3)? + ticks.get(4)?;
    let available: f64 = ticks.iter().sum();
    Some((available - idle, available))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_all_cores_is_read_without_guests() {
        let stat = "cpu  100 20 30 800 50 1 2 3 99 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse(stat), Some((156.0, 1006.0)));
        assert_eq!(parse("intr 1 2 3\n"), None);
    }

    #[test]
    fn the_load_of_others_excludes_the_children() {
        let before = MachineLoad { available: 100.0, spent: 50.0, own: 10.0 };
        let after = MachineLoad { available: 120.0, spent: 66.0, own: 22.0 };
        assert_eq!(after.of_others_since(&before), 20.0);
        assert_eq!(before.of_others_since(&before), 0.0);
    }
}
