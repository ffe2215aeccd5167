//! Known rates at which runs of a protocol end without completing.
//!
//! A run that exceeds its deadline or is unrecoverable does not violate anything by itself, because a schedule may
//! contain too many faults. For each protocol, the share of such runs is known from at least 700 schedules. If the runs
//! of a protocol end in this way more often, the protocol has a defect that no single run shows.

use crate::coverage::Shares;

/// The largest known shares, as percentages of the runs of a protocol.
struct Band {
    protocol: &'static str,
    /// Runs that exceeded the deadline.
    deadline: f64,
    /// Unrecoverable runs, in which all replicas of a part were lost.
    unrecoverable: f64,
    /// Runs in which rollbacks recurred until the deadline, under a protocol that does not promise that they end.
    livelock: f64,
}

/// The shares, measured over 700 to 1000 schedules of each protocol, and rounded up.
const BANDS: [Band; 13] = [
    Band { protocol: "hc3i", deadline: 0.5, unrecoverable: 6.0, livelock: 0.0 },
    Band { protocol: "hydee", deadline: 0.5, unrecoverable: 6.0, livelock: 0.0 },
    Band { protocol: "fullLogging", deadline: 0.5, unrecoverable: 6.0, livelock: 0.0 },
    Band { protocol: "spbc", deadline: 0.5, unrecoverable: 6.0, livelock: 0.0 },
    Band { protocol: "pessimisticLogging", deadline: 0.5, unrecoverable: 6.0, livelock: 0.0 },
    Band { protocol: "independent", deadline: 0.5, unrecoverable: 6.0, livelock: 0.5 },
    Band { protocol: "coordinated", deadline: 0.5, unrecoverable: 6.0, livelock: 0.0 },
    Band { protocol: "chandyLamport", deadline: 0.5, unrecoverable: 6.0, livelock: 0.0 },
    Band { protocol: "hierarchicalCoordinated", deadline: 0.5, unrecoverable: 6.0, livelock: 0.0 },
    // For each of these, none of at least 100,000 schedules exceeded the deadline. Satin stores nothing that could be
    // lost.
    Band { protocol: "tic", deadline: 0.0, unrecoverable: 6.0, livelock: 0.0 },
    Band { protocol: "sel", deadline: 0.0, unrecoverable: 6.0, livelock: 0.0 },
    Band { protocol: "satin", deadline: 0.0, unrecoverable: 0.0, livelock: 0.0 },
    // If a checkpoint takes much longer than `tau`, checkpoints leave little time for tasks.
    Band { protocol: "cck", deadline: 1.0, unrecoverable: 6.0, livelock: 0.0 },
];

impl Shares {
    /// Describes each outcome that a protocol reached more often than the known rate permits. Each description ends
    /// without a full stop. A few runs are not evidence: the excess must also be larger than four standard deviations
    /// plus two runs.
    pub fn unusual(&self) -> Vec<String> {
        let mut unusual = Vec::new();
        for band in &BANDS {
            let Some(outcomes) = self.outcomes.get(band.protocol) else { continue };
            let runs: u64 = outcomes.values().sum();
            let limits = [
                ("deadline", band.deadline),
                ("unrecoverable", band.unrecoverable),
                ("livelock", band.livelock),
            ];
            for (outcome, percent) in limits {
                let found = outcomes.get(outcome).copied().unwrap_or(0);
                if found as f64 > most(runs, percent) {
                    let protocol = band.protocol;
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
    use crate::{Coverage, ProtocolName};
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
    fn every_protocol_has_a_band() {
        let bands: Vec<&str> = BANDS.iter().map(|it| it.protocol).collect();
        for protocol in ProtocolName::all() {
            assert!(bands.contains(&protocol.name()), "{protocol}");
        }
    }
}
