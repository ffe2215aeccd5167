//! The simulator compared with real processes: the same federation runs with the same seeds on both.
//!
//! The caller performs the runs, and passes in the account of each.

use faultline_history::Account;

use crate::measures::Spread;

use super::section::{Cell, Finding, Grade, Section};

/// A small federation of two clusters of two processes each. The first cluster takes one checkpoint per
/// second. The other takes only its initial checkpoint and those that messages from the first cluster force.
pub const FEDERATION: &str = "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata:
  name: reality
spec:
  \
                              clusters: [{ name: a, nodes: 2 }, { name: b, nodes: 2 }]
  links:
    within: \
                              { preset: san }
    between: { latency: 5ms, bandwidth: 100Mbit }
  storage: { \
                              kind: disk }
  protocol:
    hc3i: { checkpointEvery: 1s, checkpointEveryIn: { \
                              b: never }, replicas: 1, replicateTo: sameCluster }
  application:
    \
                              synthetic:
      message: 1kB
      state: 1MB
      traffic:
        exact:
          \
                              duration: 4s
          messages:
            - { from: a, to: a, count: 20 }
            \
                              - { from: a, to: b, count: 10 }
            - { from: b, to: b, count: 15 }
  \
                              failures: { detectAfter: 5s }
  deadline: 60s
";

/// The numbers of messages in [`FEDERATION`], by sending and receiving cluster.
const MESSAGES: [[u64; 2]; 2] = [[20, 10], [0, 15]];

/// The counts and the duration of one run, real or simulated.
#[derive(Clone, Debug)]
pub struct RunCounts {
    /// Messages by sending and receiving cluster.
    messages: Vec<Vec<u64>>,
    /// Unforced checkpoints, by cluster: the initial one, and those that the timer requested.
    unforced: Vec<u64>,
    /// Checkpoints forced by a message, by cluster.
    forced: Vec<u64>,
    rollbacks: usize,
    /// Seconds from the start of the application to the end of the run.
    seconds: f64,
}

impl RunCounts {
    /// Creates the counts from the account of a run, given its duration in seconds.
    pub fn of(account: &Account, seconds: f64) -> RunCounts {
        RunCounts {
            messages: account.messages.clone(),
            unforced: account.groups.iter().map(|it| it.unforced).collect(),
            forced: account.groups.iter().map(|it| it.forced).collect(),
            rollbacks: account.rollbacks.len(),
            seconds,
        }
    }
}

/// A pair of runs with the same seed.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The seed of both runs.
    pub seed: u64,
    /// The run on real processes.
    pub real: RunCounts,
    /// The run in virtual time.
    pub simulated: RunCounts,
}

impl Pair {
    /// Returns whether, in both runs, all counts that the file determines have the expected values.
    pub fn agrees(&self) -> bool {
        [&self.real, &self.simulated].into_iter().all(|told| {
            let checkpoints = (told.forced[0], told.unforced[1]);
            told.messages == MESSAGES && checkpoints == (0, 1) && told.rollbacks == 0
        })
    }
}

/// A number that depends on timing.
struct Timed {
    what: &'static str,
    of: fn(&RunCounts) -> f64,
}

const TIMED: [Timed; 3] = [
    Timed { what: "unforced checkpoints of a", of: |it| it.unforced[0] as f64 },
    Timed { what: "forced checkpoints of b", of: |it| it.forced[1] as f64 },
    Timed { what: "seconds from start to end", of: |it| it.seconds },
];

impl Timed {
    /// Returns the spreads on real processes and in virtual time.
    fn spreads(&self, pairs: &[Pair]) -> [Spread; 2] {
        let real = Spread::of(pairs.iter().map(|it| (self.of)(&it.real)));
        [real, Spread::of(pairs.iter().map(|it| (self.of)(&it.simulated)))]
    }
}

/// Returns the section of the page.
pub fn section(pairs: &[Pair]) -> Section {
    let agree = pairs.iter().all(Pair::agrees);
    let mut findings = vec![Finding::new(
        "numbers determined by the file",
        String::new(),
        if agree { "equal with every seed" } else { "not equal" },
        measured(agree),
        "Messages by sending and receiving cluster; no forced checkpoints in the cluster that receives no \
         messages; no unforced checkpoint except the first in the cluster without a timer; no rollbacks.",
    )];
    let mut rows = Vec::new();
    for timed in &TIMED {
        let [real, simulated] = timed.spreads(pairs);
        let is_near = are_near(&real, &simulated);
        findings.push(Finding::new(
            timed.what,
            String::new(),
            format!("{} on processes, {} simulated", real.text(), simulated.text()),
            measured(is_near),
            format!(
                "Depends on timing: the means differ by {} than a fifth of the simulated mean.",
                if is_near { "no more" } else { "more" }
            ),
        ));
        rows.push(vec![Cell::from(timed.what), real.into(), simulated.into()]);
    }
    Section::new("reality", "The simulator compared with real processes", "not in the paper")
        .text(format!(
            "Two clusters of two processes run for four seconds with each of {} seeds: once on real \
             processes (TCP, emulated links, files flushed to disk) and once in virtual time, with the same \
             protocol code. A busy machine delays real processes and widens the range of timing-dependent \
             numbers.",
            pairs.len()
        ))
        .findings(findings)
        .table(
            "reality",
            "The same federation and seeds on both",
            vec!["", "real processes", "simulated"],
            rows,
        )
}

/// Returns whether the means differ by at most a fifth of the simulated mean. A check for overlapping ranges would
/// become weaker with every seed.
fn are_near(real: &Spread, simulated: &Spread) -> bool {
    real.is_near(simulated.mean, simulated.mean.abs() / 5.0)
}

fn measured(as_expected: bool) -> Grade {
    if as_expected { Grade::NotStated } else { Grade::Differs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(unforced: u64, forced: u64, messages: [[u64; 2]; 2]) -> RunCounts {
        let messages = messages.iter().map(|it| it.to_vec()).collect();
        RunCounts {
            messages,
            unforced: vec![unforced, 1],
            forced: vec![0, forced],
            rollbacks: 0,
            seconds: 4.0,
        }
    }

    fn pair(real: RunCounts) -> Pair {
        Pair { seed: 1, real, simulated: told(5, 3, MESSAGES) }
    }

    fn grades(pairs: &[Pair]) -> Vec<Grade> {
        section(pairs).findings.iter().map(|it| it.grade).collect()
    }

    #[test]
    fn counts_are_equal_and_means_are_near() {
        let pairs = [pair(told(5, 4, MESSAGES)), pair(told(4, 2, MESSAGES))];
        assert_eq!(grades(&pairs), [Grade::NotStated; 4]);
    }

    #[test]
    fn more_seeds_do_not_bring_means_together() {
        for seeds in [1, 10, 100] {
            let far = |it: u64| pair(told(if it == 0 { 5 } else { 8 }, 3, MESSAGES));
            let pairs: Vec<Pair> = (0..seeds + 2).map(far).collect();
            assert_eq!(grades(&pairs)[1], Grade::Differs, "{seeds}");
        }
    }

    #[test]
    fn a_lost_message_and_different_means_are_reported() {
        let mut lost = MESSAGES;
        lost[0][1] = 9;
        let pairs = [pair(told(6, 3, lost)), pair(told(7, 3, MESSAGES))];
        use Grade::{Differs, NotStated};
        assert_eq!(grades(&pairs), [Differs, Differs, NotStated, NotStated]);
    }

    #[test]
    fn the_federation_is_valid() {
        let federation = faultline_api::parse("reality", FEDERATION.as_bytes()).expect("a valid federation");
        assert_eq!(federation.spec.clusters.len(), MESSAGES.len());
    }
}
