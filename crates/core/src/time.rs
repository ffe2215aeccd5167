//! Time as processes see it: nanoseconds since the start of the driver. Never wall-clock time.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};
use serde::{Deserialize, Serialize};

/// An instant, in nanoseconds since the start of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A duration, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(pub u64);

impl Time {
    /// The start of the driver.
    pub const ZERO: Time = Time(0);
    /// An instant later than any event of a run.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the time elapsed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time since the start in seconds, for display.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Span {
    /// A duration of zero.
    pub const ZERO: Span = Span(0);
    /// A duration longer than any run.
    pub const MAX: Span = Span(u64::MAX);

    /// Creates a span of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Span {
        Span(secs * 1_000_000_000)
    }

    /// Creates a span of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis * 1_000_000)
    }

    /// Creates a span of `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros * 1_000)
    }

    /// Returns the duration in seconds, for display.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Span {
    /// Returns this percentage of the duration.
    pub fn percent(self, percent: u32) -> Span {
        match percent {
            100 => self,
            _ => Span(u64::try_from(u128::from(self.0) * u128::from(percent) / 100).unwrap_or(u64::MAX)),
        }
    }
}

impl From<core::time::Duration> for Span {
    fn from(duration: core::time::Duration) -> Span {
        Span(duration.as_nanos().min(u128::from(u64::MAX)) as u64)
    }
}

impl From<Span> for core::time::Duration {
    fn from(span: Span) -> core::time::Duration {
        core::time::Duration::from_nanos(span.0)
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, times: u64) -> Span {
        Span(self.0.saturating_mul(times))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

impl fmt::Display for Span {
    /// Uses the largest unit that keeps the number at one or more, with at most two decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1e3, "us"),
            1_000_000..1_000_000_000 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        let value = self.0 as f64 / unit;
        if value >= 100.0 {
            write!(f, "{value:.0} {name}")
        } else if value >= 10.0 {
            write!(f, "{value:.1} {name}")
        } else {
            write!(f, "{value:.2} {name}")
        }
    }
}
