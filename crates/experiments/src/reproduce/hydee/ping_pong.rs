//! Latency and bandwidth between two real processes: figure 5 of the paper.
//!
//! Nothing here runs processes: who does hands over the record of each run.

use faultline_core::{Fact, ProcessId, Time};
use faultline_trace::Trace;

use crate::measures::{Spread, short};
use crate::reproduce::chart::{Chart, Series};
use crate::reproduce::section::{Agreement, Cell, Figure, Finding, Section, Table};

use super::{HYDEE_CALM, UNPROTECTED};

/// Lengths of messages, in bytes.
pub const SIZES: [u32; 8] = [1, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Round trips that are not counted: the first ones of each length.
const WARM_UP: usize = 5;
/// What "equivalent" means here, in percent of the time.
const EQUIVALENT: f64 = 10.0;

/// What is between the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// No protocol.
    Native,
    /// HydEE, both in one cluster: messages carry the protocol's data.
    Piggyback,
    /// HydEE, each in a cluster of its own: messages are logged, too.
    Logging,
}

impl Setting {
    /// In the order of the page.
    pub const ALL: [Setting; 3] = [Setting::Native, Setting::Piggyback, Setting::Logging];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Native => "native",
            Setting::Piggyback => "HydEE, same cluster",
            Setting::Logging => "HydEE, two clusters",
        }
    }

    /// The federation, as it stands in a file.
    pub fn text(self, rounds: u32) -> String {
        let clusters = match self {
            Setting::Native | Setting::Piggyback => "[{ name: a, nodes: 2 }]",
            Setting::Logging => "[{ name: a, nodes: 1 }, { name: b, nodes: 1 }]",
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
  clusters: {clusters}
  links: {{ within: {{ preset: none }}, between: {{ preset: none }} }}
  storage: {{ kind: memory }}
  protocol: {protocol}
  application: {{ pingPong: {{ sizes: [{sizes}], rounds: {rounds} }} }}
  failures: {{ detectAfter: 10s }}
  deadline: 5m
"
        )
    }
}

/// Half round trips of one run, in microseconds: by length, the median.
#[derive(Clone, Debug)]
pub struct Played {
    pub(super) setting: Setting,
    pub(super) medians: Vec<f64>,
}

impl Played {
    /// What the record of a run says; `None` when it is not one of so many rounds.
    pub fn of(setting: Setting, rounds: u32, trace: &Trace) -> Option<Played> {
        let (_, stream) = trace.lives(ProcessId(0)).next()?;
        let sends: Vec<Time> =
            stream.iter().filter(|it| matches!(it.1, Fact::Sent { .. })).map(|it| it.0).collect();
        let rounds = rounds as usize;
        if sends.len() != SIZES.len() * rounds || rounds < WARM_UP + 2 {
            return None;
        }
        let halves = |sends: &[Time]| {
            let pairs = sends.windows(2).skip(WARM_UP);
            median(pairs.map(|it| it[1].since(it[0]).as_secs_f64() * 5e5).collect())
        };
        Some(Played { setting, medians: sends.chunks(rounds).map(halves).collect() })
    }
}

/// The value in the middle; zero when there is none.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// What came of it, for the page. Every setting must have been played.
pub fn section(played: &[Played]) -> Section {
    // By setting and length, over all runs.
    let spread = |setting, size: usize| {
        Spread::of(played.iter().filter(|it| it.setting == setting).map(|it| it.medians[size]))
    };
    let runs = spread(Setting::Native, 0).runs;
    // What disturbs a run makes it slower, never faster.
    let least = |setting, size| spread(setting, size).least;
    let percent = |setting, from, size| 100.0 * (least(setting, size) / least(from, size) - 1.0);
    let (small, large): (Vec<usize>, Vec<usize>) = (0..SIZES.len()).partition(|it| SIZES[*it] <= 1 << 10);
    let of_all =
        |sizes: &[usize], setting, from| Spread::of(sizes.iter().map(|size| percent(setting, from, *size)));
    let slower_small = of_all(&small, Setting::Piggyback, Setting::Native);
    let slower_large = of_all(&large, Setting::Piggyback, Setting::Native);
    let all: Vec<usize> = (0..SIZES.len()).collect();
    let logging = of_all(&all, Setting::Logging, Setting::Piggyback);
    let findings = vec![
        Finding {
            what: "latency with piggybacked data".into(),
            published: "a small overhead, and only for small messages (figure 5, no numbers)".into(),
            ours: format!("{} % up to 1 KiB, {} % above", slower_small.text(), slower_large.text()),
            agreement: Agreement::of(slower_large.mean <= slower_small.mean.max(EQUIVALENT)),
            sentence: "Both processes in one cluster beside no protocol, the quietest run of each. Here a message goes through \
                       the protocol, the facts and the kernel's TCP; there it went over Myri-10G in 3.3 us."
                .into(),
        },
        Finding {
            what: "with logging beside without".into(),
            published: "equivalent".into(),
            ours: format!("{} %", logging.text()),
            agreement: Agreement::of(logging.mean.abs() <= EQUIVALENT),
            sentence: format!(
                "Mean over all lengths, and the range; called equivalent up to {EQUIVALENT} %. A log entry shares the bytes that \
                 are sent: nothing is copied."
            ),
        },
    ];
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
    Section {
        id: "ping-pong",
        title: "Ping-pong between two real processes".into(),
        place: "V-C, figure 5",
        text: vec![format!(
            "Two processes on this machine send each other messages over TCP, links not emulated, {runs} runs of each setting in \
             turn. A half round trip is half the time from one send of the first process to its next; of each run the median \
             for each length."
        )],
        findings,
        figures: vec![Figure {
            name: "ping-pong",
            caption: "Half round trips; the range is that of the medians of all runs.".into(),
            chart: Chart {
                title: "half a round trip by length of the message".into(),
                x: "length, as a power of two of bytes".into(),
                y: "half a round trip, us".into(),
                series: Setting::ALL.map(line).into(),
                stated: Vec::new(),
            },
        }],
        tables: vec![Table {
            name: "ping-pong",
            caption: "Half round trips in microseconds, and bandwidth in MB/s of the quietest run".into(),
            columns: vec![
                "bytes",
                "native, us",
                "same cluster, us",
                "two clusters, us",
                "native, MB/s",
                "same cluster, MB/s",
                "two clusters, MB/s",
            ],
            rows: (0..SIZES.len()).map(row).collect(),
        }],
    }
}

/// For people, while it goes on.
pub fn progress(played: usize, all: usize) -> String {
    format!("ping-pong on real processes ({} of {} runs done)", short(played as f64), short(all as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(setting: Setting, micros: f64) -> Played {
        Played { setting, medians: SIZES.map(|it| micros + f64::from(it) / 1e3).into() }
    }

    #[test]
    fn what_costs_nothing_agrees_and_what_costs_a_lot_differs() {
        let agreements = |logging: f64| {
            let all = [
                played(Setting::Native, 20.0),
                played(Setting::Piggyback, 21.0),
                played(Setting::Logging, logging),
            ];
            section(&all).findings.iter().map(|it| it.agreement).collect::<Vec<_>>()
        };
        assert_eq!(agreements(21.2), [Agreement::Agrees; 2]);
        assert_eq!(agreements(60.0), [Agreement::Agrees, Agreement::Differs]);
    }

    #[test]
    fn the_federations_are_valid() {
        for setting in Setting::ALL {
            let text = setting.text(100);
            let parsed = faultline_api::parse("ping-pong", text.as_bytes());
            parsed.unwrap_or_else(|it| panic!("{setting:?}: {it}: {:?}", it.complaints()));
        }
    }
}
