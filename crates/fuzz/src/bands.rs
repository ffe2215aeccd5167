//! Known rates at which runs of a protocol end without completing, or have no verdict.
//!
//! A run that exceeds its deadline or is unrecoverable does not violate anything by itself, because a schedule may
//! contain too many faults. For each protocol, the share of such runs is known from at least 700 schedules. If the runs
//! of a protocol end in this way more often, the protocol has a defect that no single run shows.
//!
//! Nothing is known about a protocol from another crate. If most of its runs have no verdict, or if some reach the limit
//! of events, the search says too little about the protocol to pass.

use crate::coverage::{INTERRUPTED, Shares, UNRECOVERABLE};
use crate::scenario::ProtocolName;

/// The largest known shares, as percentages of the runs of a protocol.
struct Band {
    /// Runs that exceeded the deadline.
    deadline: f64,
    /// Unrecoverable runs, in which all replicas of a part were lost.
    unrecoverable: f64,
    /// Runs in which rollbacks recurred until the deadline, under a protocol that does not promise that they end.
    livelock: f64,
    /// Runs whose verdict is unknown, for any reason.
    unknown: f64,
}

/// The shares of a built-in protocol that [`BANDS`] does not list.
const USUAL: Band = Band { deadline: 0.5, unrecoverable: 6.0, livelock: 0.0, unknown: 12.0 };

/// The shares of protocols that differ from the usual, measured over at least 700 schedules of each protocol, and
/// rounded up.
const BANDS: [(&str, Band); 5] = [
    ("independent", Band { livelock: 0.5, ..USUAL }),
    // For each of these, none of at least 100,000 schedules exceeded the deadline. Satin stores nothing that could be
    // lost.
    ("tic", Band { deadline: 0.0, unknown: 8.0, ..USUAL }),
    ("sel", Band { deadline: 0.0, unknown: 6.0, ..USUAL }),
    ("satin", Band { deadline: 0.0, unrecoverable: 0.0, unknown: 1.0, ..USUAL }),
    // If a checkpoint takes much longer than `tau`, checkpoints leave little time for tasks.
    ("cck", Band { deadline: 1.0, unknown: 8.0, ..USUAL }),
];

/// The largest share of runs without a verdict, as a percentage, with which a search says enough about a protocol from
/// another crate.
const MOST_UNKNOWN: f64 = 50.0;

/// Returns the known shares of a protocol; `None` for one from another crate.
fn band(protocol: &str) -> Option<&'static Band> {
    let of_protocol = BANDS.iter().find(|(name, _)| *name == protocol).map(|(_, band)| band);
    let is_built_in = || protocol.parse().is_ok_and(|it: ProtocolName| !it.is_custom());
    of_protocol.or_else(|| is_built_in().then_some(&USUAL))
}

impl Shares {
    /// Describes each outcome that a protocol reached more often than the known rate permits. Each description ends
    /// without a full stop. A few runs are not evidence: the excess must also be larger than four standard deviations
    /// plus two runs.
    pub fn unusual(&self) -> Vec<String> {
        let mut unusual = Vec::new();
        for protocol in self.outcomes.keys() {
            let Some(band) = band(protocol) else { continue };
            let limits = [
                ("deadline", band.deadline),
                (UNRECOVERABLE, band.unrecoverable),
                ("livelock", band.livelock),
                (INTERRUPTED, 0.0),
            ];
            let ended =
                |outcome| move |known: f64| format!("ended as `{outcome}`; the known maximum is {known} %");
            unusual.extend(limits.iter().filter_map(|&(outcome, percent)| {
                self.excess(protocol, self.ended(protocol, outcome), percent, ended(outcome))
            }));
            unusual.extend(self.excess(protocol, self.without_verdict(protocol), band.unknown, |known| {
                format!("have no verdict; the known maximum is {known} %")
            }));
        }
        unusual
    }

    /// Describes why the search says too little about protocols from other crates. Each description ends without a full
    /// stop.
    pub fn inconclusive(&self) -> Vec<String> {
        let mut inconclusive = Vec::new();
        for protocol in self.outcomes.keys().filter(|it| band(it).is_none()) {
            // A property of its own judges whether a run was unrecoverable. A protocol that keeps no replicas has many.
            let unjudged = self.without_verdict(protocol).saturating_sub(self.ended(protocol, UNRECOVERABLE));
            inconclusive.extend(self.excess(protocol, unjudged, MOST_UNKNOWN, |most| {
                format!(
                    "have no verdict although they were recoverable, but at most {most} % may lack one; the coverage \
                     lists the reasons"
                )
            }));
            inconclusive.extend(self.excess(protocol, self.ended(protocol, INTERRUPTED), 0.0, |_| {
                "reached the limit of events before they ended".to_owned()
            }));
        }
        inconclusive
    }

    /// Returns a sentence if `found` runs of a protocol are more than this percentage explains.
    fn excess(
        &self,
        protocol: &str,
        found: u64,
        percent: f64,
        sentence: impl FnOnce(f64) -> String,
    ) -> Option<String> {
        let runs: u64 = self.outcomes.get(protocol)?.values().sum();
        let is_more = found as f64 > most(runs, percent);
        is_more.then(|| format!("{found} of {runs} runs of {protocol} {}", sentence(percent)))
    }

    fn ended(&self, protocol: &str, outcome: &str) -> u64 {
        self.outcomes.get(protocol).and_then(|it| it.get(outcome)).copied().unwrap_or(0)
    }

    fn without_verdict(&self, protocol: &str) -> u64 {
        self.unknown.get(protocol).copied().unwrap_or(0)
    }
}

/// Returns the largest number of runs that can be explained by chance.
fn most(runs: u64, percent: f64) -> f64 {
    let (runs, share) = (runs as f64, percent / 100.0);
    runs * share + 4.0 * (runs * share * (1.0 - share)).sqrt() + 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Coverage;
    use std::collections::BTreeMap;

    fn shares(protocol: &'static str, outcome: &'static str, found: u64, runs: u64) -> Shares {
        let mut shares = Coverage::default().shares();
        let outcomes = BTreeMap::from([("completed".into(), runs - found), (outcome.into(), found)]);
        shares.outcomes.insert(protocol.into(), outcomes);
        shares
    }

    /// Returns shares in which this many completed runs have no verdict.
    fn unknown(protocol: &'static str, found: u64, runs: u64) -> Shares {
        let mut shares = shares(protocol, "deadline", 0, runs);
        shares.unknown.insert(protocol.into(), found);
        shares
    }

    #[test]
    fn a_share_outside_its_band_is_reported() {
        assert_eq!(shares("hc3i", "deadline", 2, 50).unusual(), [""; 0], "chance");
        let told = shares("hc3i", "deadline", 35, 50).unusual();
        assert!(told.len() == 1 && told[0].contains("35 of 50 runs of hc3i ended as `deadline`"), "{told:?}");
        assert_eq!(shares("hydee", "unrecoverable", 480, 1000).unusual().len(), 1);
        assert_eq!(shares("independent", "livelock", 2, 1000).unusual(), [""; 0], "known");
        assert_eq!(shares("independent", "livelock", 100, 1000).unusual().len(), 1);
    }

    #[test]
    fn no_protocol_may_reach_the_limit_of_events_often() {
        assert_eq!(shares("hc3i", INTERRUPTED, 2, 2000).unusual(), [""; 0], "chance");
        let told = shares("hc3i", INTERRUPTED, 99, 2000).unusual();
        assert!(told.len() == 1 && told[0].contains("99 of 2000 runs of hc3i"), "{told:?}");
        assert_eq!(shares("bcs", INTERRUPTED, 99, 2000).inconclusive().len(), 1);
    }

    #[test]
    fn runs_without_a_verdict_are_bounded_for_every_protocol() {
        assert_eq!(unknown("hc3i", 100, 1000).unusual(), [""; 0], "known");
        let told = unknown("hc3i", 300, 1000).unusual();
        assert!(told.len() == 1 && told[0].contains("300 of 1000 runs of hc3i have no verdict"), "{told:?}");
        assert_eq!(unknown("bcs", 460, 1000).inconclusive(), [""; 0]);
        let told = unknown("bcs", 700, 1000).inconclusive();
        assert!(told.len() == 1 && told[0].contains("700 of 1000 runs of bcs have no verdict"), "{told:?}");
        let mut unrecoverable = shares("bcs", "unrecoverable", 650, 1000);
        unrecoverable.unknown.insert("bcs".into(), 700);
        assert_eq!(unrecoverable.inconclusive(), [""; 0], "a protocol may keep no replicas");
    }

    #[test]
    fn only_built_in_protocols_have_a_band() {
        assert!(BANDS.iter().all(|(name, _)| name.parse::<ProtocolName>().is_ok()));
        assert_eq!(shares("spbc", "deadline", 35, 50).unusual().len(), 1);
        assert_eq!(shares("bcs", "deadline", 35, 50).unusual(), [""; 0], "nothing is known about it");
        assert_eq!(shares("hc3i", "deadline", 35, 50).inconclusive(), [""; 0]);
    }
}
