//! How busy the processors of this machine are during a run, as the kernel states it (`/proc/pressure/cpu`).

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use faultline_core::{Span, Time};
use faultline_trace::manifest::Pressure;
use tokio::time::{MissedTickBehavior, interval};

use crate::clock::Clock;

/// The file in which the kernel states for how long tasks have waited for a processor.
pub(super) const PRESSURE: &str = "/proc/pressure/cpu";
/// Time between two measurements.
const EVERY: Duration = Duration::from_secs(1);

/// Measures for how long tasks wait for a processor.
pub(super) struct PressureMeter {
    path: PathBuf,
    clock: Clock,
    /// The time of the last measurement, and for how long tasks had waited by then; `None` if the kernel did not say.
    last: Option<(Time, Span)>,
    periods: BusyPeriods,
}

/// Periods in which the machine was busy, ascending.
#[derive(Debug, Default)]
struct BusyPeriods(Vec<(Time, Time)>);

impl PressureMeter {
    /// Begins to measure. `path` is that of the kernel's file.
    pub(super) fn new(path: impl AsRef<Path>, clock: Clock) -> PressureMeter {
        let path = path.as_ref().to_owned();
        let last = waited(&path).map(|it| (clock.now(), it));
        PressureMeter { path, clock, last, periods: BusyPeriods::default() }
    }

    /// Measures once per second until `run` has ended, and returns its result.
    pub(super) async fn during<T>(&mut self, run: impl Future<Output = T>) -> T {
        let mut run = pin!(run);
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => self.measure(),
                ended = &mut run => return ended,
            }
        }
    }

    /// Returns how busy the machine was, including the time since the last measurement.
    pub(super) fn finish(mut self) -> Pressure {
        self.measure();
        match self.last {
            Some(_) => Pressure::Busy(self.periods.0),
            None => Pressure::Unavailable,
        }
    }

    fn measure(&mut self) {
        let (now, waited) = (self.clock.now(), waited(&self.path));
        if let (Some((from, before)), Some(waited)) = (self.last, waited) {
            self.periods.add((from, now), Span(waited.0.saturating_sub(before.0)));
        }
        self.last = waited.map(|it| (now, it)).or(self.last);
    }
}

impl BusyPeriods {
    /// Adds a period in which some task waited for a processor for this time. The machine was busy if that is at least half
    /// of the period.
    fn add(&mut self, (from, upto): (Time, Time), waited: Span) {
        if from == upto || waited.0 < upto.since(from).0 / 2 {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.1 == from => last.1 = upto,
            _ => self.0.push((from, upto)),
        }
    }
}

/// Returns for how long some task has waited for a processor since the machine started; `None` if the kernel does not say.
fn waited(path: &Path) -> Option<Span> {
    let text = fs::read_to_string(path).ok()?;
    let some = text.lines().find_map(|it| it.strip_prefix("some "))?;
    let total = some.split(' ').find_map(|it| it.strip_prefix("total="))?;
    Some(Span::from_micros(total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn the_machine_is_busy_if_tasks_wait_at_least_half_of_the_time() {
        let mut periods = BusyPeriods::default();
        for (from, upto, waited) in [
            (0, 1000, 499),
            (1000, 2000, 500),
            (2000, 3100, 900),
            (3100, 4000, 0),
            (4000, 4000, 9),
            (4000, 4500, 400),
        ] {
            periods.add((at(from), at(upto)), Span::from_millis(waited));
        }
        assert_eq!(periods.0, [(at(1000), at(3100)), (at(4000), at(4500))]);
    }

    #[test]
    fn the_kernels_file_is_read_and_its_absence_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu");
        let meter = PressureMeter::new(&path, Clock::start());
        assert_eq!(meter.finish(), Pressure::Unavailable);
        let state = |total: u64| {
            let some = format!("some avg10=1.53 avg60=0.87 avg300=0.20 total={total}\n");
            fs::write(&path, some + "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n").unwrap();
        };
        state(7_000_000);
        assert_eq!(waited(&path), Some(Span::from_secs(7)));
        let meter = PressureMeter::new(&path, Clock::start());
        state(3_600_000_000);
        let Pressure::Busy(periods) = meter.finish() else { panic!("the file exists") };
        assert_eq!(periods.len(), 1, "tasks waited all the time");
    }

    #[test]
    fn measurements_go_on_while_a_run_lasts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu");
        fs::write(&path, "some avg10=0 avg60=0 avg300=0 total=0\n").unwrap();
        let mut meter = PressureMeter::new(&path, Clock::start());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run = async {
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            // From here on, tasks wait: only the time since the last measurement is busy.
            fs::write(&path, "some avg10=0 avg60=0 avg300=0 total=9000000\n").unwrap();
            7
        };
        assert_eq!(runtime.block_on(meter.during(run)), 7);
        let Pressure::Busy(periods) = meter.finish() else { panic!("the file exists") };
        let [(from, _)] = periods[..] else { panic!("{periods:?}") };
        assert!(from >= at(900), "{periods:?}");
    }
}
