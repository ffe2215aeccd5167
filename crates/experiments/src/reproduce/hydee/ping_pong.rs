//! Latency and bandwidth between real processes: figure 5 of the paper, and the same with many processes that share
//! the cores.
//!
//! The caller runs the processes, and passes in the record of each run.

use faultline_core::{Fact, ProcessId, Time};
use faultline_trace::Trace;

use crate::measures::Spread;
use crate::reproduce::section::{Cell, Finding, Grade, Section};
use faultline_report::chart::{Chart, Series};

use super::{HYDEE_CALM, UNPROTECTED};

/// Lengths of messages, in bytes.
pub const SIZES: [u32; 8] = [1, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// The number of processes in figure 5.
pub const PAIR: usize = 2;
/// The number of processes that run ping-pong in pairs at the same time: usually more than there are cores.
pub const CROWD: usize = 16;
/// The number of initial round trips of each length that are not counted.
const WARM_UP: usize = 5;
/// The maximum difference that counts as "equivalent", as a percentage of the time.
const EQUIVALENT: f64 = 10.0;
/// The maximum overhead that counts as "small", as a percentage of the time.
const SMALL: f64 = 25.0;

/// The protocol of the two processes of a pair, and whether they share a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// No protocol.
    Native,
    /// HydEE, with both processes in one cluster: messages carry the protocol's data.
    Piggyback,
    /// HydEE, with each process in its own cluster: messages are also logged.
    Logging,
}

impl Setting {
    /// All settings, in the order of the page.
    pub const ALL: [Setting; 3] = [Setting::Native, Setting::Piggyback, Setting::Logging];

    /// Returns the name that is shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Native => "native",
            Setting::Piggyback => "HydEE, same cluster",
            Setting::Logging => "HydEE, two clusters",
        }
    }

    /// Returns the text of a federation file with this many processes. The setting determines the cluster of
    /// each process's partner.
    pub fn text(self, processes: usize, rounds: u32) -> String {
        let clusters = match self {
            Setting::Native | Setting::Piggyback => format!("[{{ name: a, nodes: {processes} }}]"),
            Setting::Logging => {
                let half = processes / 2;
                format!("[{{ name: a, nodes: {half} }}, {{ name: b, nodes: {half} }}]")
            }
        };
        let protocol = match self {
            Setting::Native => UNPROTECTED,
            Setting::Piggyback | Setting::Logging => HYDEE_CALM,
        };
        let sizes = SIZES.map(|it| format!("{it}B")).join(", ");
        format!(
            "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: ping-pong }}
spec:
  \
             clusters: {clusters}
  links: {{ within: {{ preset: none }}, between: {{ preset: none }} }}
  \
             storage: {{ kind: memory }}
  protocol: {protocol}
  application: {{ pingPong: {{ sizes: \
             [{sizes}], rounds: {rounds} }} }}
  failures: {{ detectAfter: 10s }}
  deadline: 5m
"
        )
    }
}

/// Half round trips of one run, in microseconds.
#[derive(Clone, Debug)]
pub struct HalfRoundTrips {
    pub(super) setting: Setting,
    /// Half round trips by length. For one pair, the median; for many pairs, the mean over all round trips, because
    /// each pair waits while the cores serve the others.
    pub(super) halves: Vec<f64>,
}

impl HalfRoundTrips {
    /// Reads the record of a run. Returns `None` if the run does not have this many processes and rounds, or if
    /// `rounds` is too small.
    pub fn of(setting: Setting, processes: usize, rounds: u32, trace: &Trace) -> Option<HalfRoundTrips> {
        let rounds = rounds as usize;
        let pairs = processes / 2;
        let mut halves = vec![0.0; SIZES.len()];
        for server in (0..pairs).map(|it| ProcessId(it as u32)) {
            let (_, stream) = trace.lives(server).next()?;
            let sends: Vec<Time> =
                stream.iter().filter(|it| matches!(it.1, Fact::Sent { .. })).map(|it| it.0).collect();
            if sends.len() != SIZES.len() * rounds || rounds < WARM_UP + 2 {
                return None;
            }
            for (half, sends) in halves.iter_mut().zip(sends.chunks(rounds)) {
                let trips = sends.windows(2).skip(WARM_UP);
                let trips: Vec<f64> = trips.map(|it| it[1].since(it[0]).as_secs_f64() * 5e5).collect();
                let typical = if pairs == 1 { median(trips) } else { Spread::of(trips).mean };
                *half += typical / pairs as f64;
            }
        }
        Some(HalfRoundTrips { setting, halves })
    }
}

/// Returns the median; zero if there are no values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Returns the section of the page. `played` must contain runs of every setting.
pub fn section(played: &[HalfRoundTrips]) -> Section {
    // Half round trips by setting and length, over all runs.
    let spread = |setting, size: usize| {
        Spread::of(played.iter().filter(|it| it.setting == setting).map(|it| it.halves[size]))
    };
    let runs = spread(Setting::Native, 0).runs;
    // Disturbances make a run slower, never faster.
    let least = |setting, size| spread(setting, size).least;
    let row = |size: usize| {
        let mut row = vec![Cell::from(f64::from(SIZES[size]))];
        row.extend(Setting::ALL.map(|it| Cell::from(spread(it, size))));
        row.extend(Setting::ALL.map(|it| Cell::from(f64::from(SIZES[size]) / least(it, size))));
        row
    };
    let line = |setting: Setting| Series {
        name: setting.name().to_owned(),
        points: (0..SIZES.len()).map(|it| (f64::from(SIZES[it]).log2(), spread(setting, it))).collect(),
    };
    Section::new("ping-pong", "Ping-pong between two real processes", "V-C, figure 5")
        .text(format!(
            "Two processes on this machine send each other messages over TCP, without emulated links, in \
             {runs} runs of each setting in turn. A half round trip is half the time from one send of the \
             first process to its next. For each run and length, the median is used."
        ))
        .findings(findings(&least))
        .figure(
            "ping-pong",
            "Half round trips; the range is that of the medians of all runs.",
            Chart::new(
                "half round trip by message length",
                "message length in bytes, as a power of two",
                "half round trip, µs",
                Setting::ALL.map(line).into(),
            ),
        )
        .table(
            "ping-pong",
            "Half round trips in microseconds, and bandwidth of the fastest run in MB/s",
            vec![
                "bytes",
                "native, us",
                "same cluster, us",
                "two clusters, us",
                "native, MB/s",
                "same cluster, MB/s",
                "two clusters, MB/s",
            ],
            (0..SIZES.len()).map(row).collect(),
        )
}

/// Judges the half round trips of the fastest runs, by setting and length.
fn findings(least: &dyn Fn(Setting, usize) -> f64) -> Vec<Finding> {
    let percent = |setting, from, size| 100.0 * (least(setting, size) / least(from, size) - 1.0);
    let (small, large): (Vec<usize>, Vec<usize>) = (0..SIZES.len()).partition(|it| SIZES[*it] <= 1 << 10);
    let of_all =
        |sizes: &[usize], setting, from| Spread::of(sizes.iter().map(|size| percent(setting, from, *size)));
    let slower_small = of_all(&small, Setting::Piggyback, Setting::Native);
    let slower_large = of_all(&large, Setting::Piggyback, Setting::Native);
    let all: Vec<usize> = (0..SIZES.len()).collect();
    let logging = of_all(&all, Setting::Logging, Setting::Piggyback);
    vec![
        Finding::new(
            "latency with piggybacked data",
            "a small overhead, and only for small messages (figure 5, no numbers)",
            format!("{} % up to 1 KiB, {} % above", slower_small.text(), slower_large.text()),
            Grade::direction(slower_small.mean <= SMALL && slower_large.mean <= EQUIVALENT),
            format!(
                "Both processes are in one cluster. The fastest run is compared with the fastest run without \
                 a protocol. Up to {SMALL} % is considered small, and up to {EQUIVALENT} % no overhead. \
                 Here, the time includes the protocol, the recording of facts and the kernel's TCP; in the \
                 paper, a message over Myri-10G took 3.3 µs."
            ),
        ),
        Finding::new(
            "latency with logging",
            "equivalent",
            format!("{} %", logging.text()),
            Grade::value(logging.mean.abs() <= EQUIVALENT),
            format!(
                "The mean over all lengths, and the range. Up to {EQUIVALENT} % is considered equivalent. A \
                 log entry shares the bytes that are sent: nothing is copied."
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(setting: Setting, micros: f64) -> HalfRoundTrips {
        HalfRoundTrips { setting, halves: SIZES.map(|it| micros + f64::from(it) / 1e3).into() }
    }

    #[test]
    fn a_negligible_cost_agrees_and_a_large_one_differs() {
        let grades = |logging: f64| {
            let all = [
                played(Setting::Native, 20.0),
                played(Setting::Piggyback, 21.0),
                played(Setting::Logging, logging),
            ];
            section(&all).findings.iter().map(|it| it.grade).collect::<Vec<_>>()
        };
        assert_eq!(grades(21.2), [Grade::DirectionAgrees(None), Grade::ValueAgrees]);
        assert_eq!(grades(60.0), [Grade::DirectionAgrees(None), Grade::Differs]);
    }

    #[test]
    fn overhead_agrees_only_if_it_is_small_and_limited_to_small_messages() {
        let grade = |small: f64, large: f64| {
            let factor = |size: u32| if size <= 1 << 10 { small } else { large };
            let under = |setting, factor: &dyn Fn(u32) -> f64| HalfRoundTrips {
                setting,
                halves: SIZES.map(|it| 20.0 * factor(it)).into(),
            };
            let all = [
                under(Setting::Native, &|_| 1.0),
                under(Setting::Piggyback, &factor),
                under(Setting::Logging, &factor),
            ];
            section(&all).findings[0].grade
        };
        assert_eq!(grade(1.2, 1.02), Grade::DirectionAgrees(None));
        assert_eq!(grade(1.6, 1.02), Grade::Differs);
        assert_eq!(grade(1.2, 1.15), Grade::Differs);
    }

    #[test]
    fn the_federations_are_valid() {
        for (setting, processes) in Setting::ALL.into_iter().flat_map(|it| [(it, PAIR), (it, CROWD)]) {
            let text = setting.text(processes, 100);
            let parsed = faultline_api::parse("ping-pong", text.as_bytes());
            parsed.unwrap_or_else(|it| panic!("{setting:?}: {it}: {:?}", it.errors()));
        }
    }
}
