//! The common clock of a run's processes, and an alarm with a precision of about ten microseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use faultline_core::{Span, Time};
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

/// The clock of a run. It shows the nanoseconds since the run's epoch, as measured by a machine's monotonic
/// clock. Valid only on that machine; [`Clock::elsewhere`] returns the clock for another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clock {
    /// Reading of the monotonic clock at the epoch, in nanoseconds. Negative if the machine started after the epoch.
    epoch: i64,
}

impl Clock {
    /// The machine's monotonic clock itself.
    pub(crate) const MACHINE: Clock = Clock { epoch: 0 };

    /// Creates a clock whose epoch is now.
    pub(crate) fn start() -> Clock {
        Clock { epoch: monotonic() as i64 }
    }

    /// Returns the current time of the run.
    pub(crate) fn now(self) -> Time {
        self.at(monotonic())
    }

    /// Returns the time of the run at which the machine's monotonic clock shows `monotonic`; zero before the
    /// epoch.
    pub(crate) fn at(self, monotonic: u64) -> Time {
        Time((monotonic as i64).saturating_sub(self.epoch).max(0) as u64)
    }

    /// Returns the reading of the machine's monotonic clock at which the run's clock shows `time`.
    pub(crate) fn monotonic_at(self, time: Time) -> u64 {
        self.epoch.saturating_add_unsigned(time.0).max(0) as u64
    }

    /// Returns the same clock for a machine whose monotonic clock is `ahead` nanoseconds ahead of this
    /// machine's.
    pub(crate) fn elsewhere(self, ahead: i64) -> Clock {
        Clock { epoch: self.epoch.saturating_add(ahead) }
    }
}

/// Largest assumed drift between the clocks of two machines, in nanoseconds per second.
const DRIFT: u64 = 100_000;

/// A run's clock as an agent reads it, with a bound on its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AgentClock {
    pub(crate) clock: Clock,
    /// The comparison of the clocks that bounds the error; `None` on the supervisor's own machine, where
    /// there is no error.
    reading: Option<Reading>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    error: Span,
    /// Time of the comparison, by this machine's monotonic clock.
    at: u64,
}

impl AgentClock {
    /// Creates the clock of an agent on the supervisor's own machine.
    pub(crate) fn same(clock: Clock) -> AgentClock {
        AgentClock { clock, reading: None }
    }

    /// Creates the clock of an agent whose machine's monotonic clock showed `shown` at some moment between
    /// `asked` and `answered`, both by this machine's monotonic clock. All three are in nanoseconds.
    pub(crate) fn read(clock: Clock, asked: u64, shown: u64, answered: u64) -> AgentClock {
        let took = answered - asked;
        let ahead = shown as i64 - (asked + took / 2) as i64;
        let reading = Reading { error: Span(took / 2), at: answered };
        AgentClock { clock: clock.elsewhere(ahead), reading: Some(reading) }
    }

    /// Returns the largest possible error at present, which grows with the age of the comparison.
    pub(crate) fn error(self) -> Span {
        let error = |it: Reading| {
            let age = monotonic().saturating_sub(it.at);
            Span(it.error.0 + (u128::from(age) * u128::from(DRIFT) / 1_000_000_000) as u64)
        };
        self.reading.map_or(Span::ZERO, error)
    }

    /// Returns the clock with the smaller error.
    pub(crate) fn better(self, other: AgentClock) -> AgentClock {
        if other.error() < self.error() { other } else { self }
    }
}

/// A run's clock in a form that a restarted program can use, even on another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    source: ClockSource,
    clock: Clock,
    /// Epoch of the run, in nanoseconds since the Unix epoch.
    unix: i64,
}

impl Origin {
    /// Records a clock of this machine.
    pub(crate) fn of(clock: Clock) -> Origin {
        Origin {
            source: ClockSource::of_this_process(),
            clock,
            unix: unix().saturating_sub(clock.now().0 as i64),
        }
    }

    /// Returns the recorded clock for this machine. If the machine's monotonic clock is not the recorded one, the
    /// returned clock now shows at least `least`.
    pub(crate) fn clock(&self, least: Time) -> Clock {
        if self.source.is_same(&ClockSource::of_this_process()) {
            return self.clock;
        }
        let shows = unix().saturating_sub(self.unix).max(least.0 as i64);
        Clock { epoch: (monotonic() as i64).saturating_sub(shows) }
    }
}

/// Identifies the monotonic clock that a process reads, by the current boot of its kernel and the offsets of its
/// time namespace. Containers on one machine can have different clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockSource {
    /// The identifier of the current boot; empty if the kernel does not provide it, as in some sandboxes.
    boot: String,
    /// The offsets of the time namespace; empty if the kernel has no time namespaces.
    offsets: String,
}

impl ClockSource {
    /// Returns the clock of this process.
    pub(crate) fn of_this_process() -> ClockSource {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let offsets = read("/proc/self/timens_offsets");
        ClockSource {
            boot: read("/proc/sys/kernel/random/boot_id").trim().to_owned(),
            offsets: offsets.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }

    /// Returns whether two processes certainly read the same clock.
    pub(crate) fn is_same(&self, other: &ClockSource) -> bool {
        !self.boot.is_empty() && self == other
    }
}

/// Returns the nanoseconds since the Unix epoch.
fn unix() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX))
}

/// Sleeps for `span`. Call it only on threads that may block.
pub(crate) fn pause(span: Span) {
    std::thread::sleep(span.into());
}

/// An alarm for a single instant. Tokio's own timers round to a millisecond, which may be the entire latency
/// of a link.
pub(crate) struct Alarm {
    clock: Clock,
    timer: AsyncFd<Timer>,
    set: Option<Time>,
}

impl Alarm {
    /// Creates an alarm that is not set.
    pub(crate) fn new(clock: Clock) -> io::Result<Alarm> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        #[expect(
            deprecated,
            reason = "the alternative is unsafe; a timer owns its descriptor and never changes it"
        )]
        let timer = AsyncFd::new(Timer(timer))?;
        Ok(Alarm { clock, timer, set: None })
    }

    /// Sets the alarm to `at`, which may be in the past. `None` disables it.
    pub(crate) fn set(&mut self, at: Option<Time>) -> io::Result<()> {
        if at == self.set {
            return Ok(());
        }
        self.set = at;
        let timer = &self.timer.get_ref().0;
        match at.and_then(|at| self.clock.epoch.checked_add_unsigned(at.0)) {
            Some(nanos) => {
                // Zero would disable the timer.
                let nanos = nanos.max(1);
                let at = TimeSpec::new(nanos / 1_000_000_000, nanos % 1_000_000_000);
                timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            }
            None => timer.unset()?,
        }
        Ok(())
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.is_some()
    }

    /// Waits until the alarm rings, which disables it.
    pub(crate) async fn elapsed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            match ready.get_inner().0.wait() {
                Ok(()) => {
                    self.set = None;
                    return Ok(());
                }
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Returns the reading of the machine's monotonic clock, in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .expect("every Linux has a monotonic clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Waits until the machine's monotonic clock shows `at`, in nanoseconds.
pub(crate) fn wait_until(at: u64) {
    use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
    let instant = TimeSpec::from_duration(Duration::from_nanos(at));
    // A signal handler may interrupt the wait.
    while monotonic() < at {
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &instant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_remote_clock_grows_with_the_duration_and_age_of_its_reading() {
        let clock = Clock::start();
        let now = monotonic();
        let slow = AgentClock::read(clock, now - 8_000_000, 7_000_000_000_000, now);
        let quick = AgentClock::read(clock, now - 2_000_000, 7_000_000_000_000, now);
        assert!(slow.error() >= Span::from_millis(4) && slow.error() < Span::from_millis(5));
        assert_eq!(slow.better(quick), quick);
        // The other machine's clock is assumed to have been read halfway through the exchange.
        assert_eq!(quick.clock.at(7_000_000_000_000), clock.at(now - 1_000_000));
        assert_eq!(quick.clock.monotonic_at(clock.at(now)), 7_000_001_000_000);
        let old = AgentClock::read(clock, now - 100_000_002_000, 7_000_000_000_000, now - 100_000_000_000);
        assert!(old.error() > Span::from_millis(9), "a clock that was read 100 s ago has drifted");
        assert_eq!(old.better(slow), slow);
        assert_eq!(AgentClock::same(clock).error(), Span::ZERO);
        assert_eq!(AgentClock::same(clock).better(quick), AgentClock::same(clock));
    }

    #[test]
    fn a_resumed_clock_continues_on_any_machine() {
        let clock = Clock { epoch: monotonic() as i64 - 5_000_000_000 };
        let origin = Origin::of(clock);
        assert_eq!(origin.clock(Time::ZERO), clock);
        let source = ClockSource { boot: "another kernel".into(), ..ClockSource::of_this_process() };
        let elsewhere = Origin { source, ..origin };
        let off = elsewhere.clock(Time::ZERO).now().0.abs_diff(clock.now().0);
        assert!(off < 1_000_000_000, "differs by {off} ns");
        let late = Time(60_000_000_000);
        assert!(elsewhere.clock(late).now() >= late, "a clock never decreases");
    }

    #[test]
    fn only_processes_that_certainly_read_the_same_clock_share_it() {
        let source = |boot: &str, offsets: &str| ClockSource { boot: boot.into(), offsets: offsets.into() };
        let (none, ahead) = ("monotonic 0 0 boottime 0 0", "monotonic 86400 0 boottime 0 0");
        assert!(source("a", none).is_same(&source("a", none)));
        assert!(!source("a", none).is_same(&source("b", none)), "another machine");
        assert!(!source("a", none).is_same(&source("a", ahead)), "another time namespace of one machine");
        assert!(!source("", none).is_same(&source("", none)), "two kernels without identifiers");
        let this = ClockSource::of_this_process();
        assert!(!this.boot.is_empty() && this.is_same(&this.clone()));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_alarm_rings_once_and_not_early() {
        let clock = Clock::start();
        let mut alarm = Alarm::new(clock).unwrap();
        for delay in [Span::from_micros(300), Span::from_millis(3), Span::ZERO] {
            let at = clock.now() + delay;
            alarm.set(Some(Time::NEVER)).unwrap();
            alarm.set(Some(at)).unwrap();
            alarm.elapsed().await.unwrap();
            assert!(clock.now() >= at);
        }
        alarm.set(Some(clock.now() + Span::from_micros(100))).unwrap();
        alarm.set(None).unwrap();
        let silence = tokio::time::timeout(std::time::Duration::from_millis(5), alarm.elapsed());
        assert!(silence.await.is_err(), "an alarm rang without being set");
    }
}
