//! Known rates at which runs of a protocol end without completing.
//!
//! A run that exceeds its deadline or is unrecoverable does not violate anything by itself, because a schedule may
//! contain too many faults. For each protocol, the share of such runs is known from at least 700 schedules. If the runs
//! of a protocol end in this way more often, the protocol has a defect that no single run shows.

use crate::coverage::Shares;
use crate::scenario::ProtocolName;

/// The largest known shares, as percentages of the runs of a protocol.
struct Band {
    /// Runs that exceeded the deadline.
    deadline: f64,
    /// Unrecoverable runs, in which all replicas of a part were lost.
    unrecoverable: f64,
    /// Runs in which rollbacks recurred until the deadline, under a protocol that does not promise that they end.
    livelock: f64,
}

/// The shares of a built-in protocol that [`BANDS`] does not list.
const USUAL: Band = Band { deadline: 0.5, unrecoverable: 6.0, livelock: 0.0 };

/// The shares of protocols that differ from the usual, measured over at least 700 schedules of each protocol, and
/// rounded up.
const BANDS: [(&str, Band); 5] = [
    ("independent", Band { livelock: 0.5, ..USUAL }),
    // For each of these, none of at least 100,000 schedules exceeded the deadline. Satin stores nothing that could be
    // lost.
    ("tic", Band { deadline: 0.0, ..USUAL }),
    ("sel", Band { deadline: 0.0, ..USUAL }),
    ("satin", Band { deadline: 0.0, unrecoverable: 0.0, ..USUAL }),
    // If a checkpoint takes much longer than `tau`, checkpoints leave little time for tasks.
    ("cck", Band { deadline: 1.0, ..USUAL }),
];

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
        for (protocol, outcomes) in &self.outcomes {
            let Some(band) = band(protocol) else { continue };
            let runs: u64 = outcomes.values().sum();
            let limits = [
                ("deadline", band.deadline),
                ("unrecoverable", band.unrecoverable),
                ("livelock", band.livelock),
            ];
            for (outcome, percent) in limits {
                let found = outcomes.get(outcome).copied().unwrap_or(0);
                if found as f64 > most(runs, percent) {
                    unusual.push(format!(
                        "{found} of {runs} runs of {protocol} ended as `{outcome}`; the known maximum is {percent} %"
                    ));
                }
            }
        }
        unusual
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
    fn only_built_in_protocols_have_a_band() {
        assert!(BANDS.iter().all(|(name, _)| name.parse::<ProtocolName>().is_ok()));
        assert_eq!(shares("spbc", "deadline", 35, 50).unusual().len(), 1);
        assert_eq!(shares("bcs", "deadline", 35, 50).unusual(), [""; 0], "nothing is known about it");
    }
}
