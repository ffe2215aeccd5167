//! The cost of a message: measured by ping-pong on real processes, and charged by the simulator. The simulator's
//! predictions for other runs are compared with the same runs on real processes.

use faultline_api::Federation;
use faultline_clustering::patterns::Pattern;

use crate::compare::Costs;
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Finding, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};

use super::ping_pong::{CROWD, HalfRoundTrips, SIZES, Setting, median};
use super::real::{CLUSTER, PROCESSES, RealRuns, head};
use super::{CLOSE, HYDEE_CALM, UNPROTECTED, furthest, parse};

/// The indices of three message lengths in [`SIZES`].
const ONE_BYTE: usize = 0;
const ONE_KIBIBYTE: usize = 3;
const MANY_KIBIBYTES: usize = 6;

/// The time for which a message keeps each of its two processes busy, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct HandlingTime {
    /// The part of the cost that does not depend on the length of the message.
    message: f64,
    /// The additional cost per 1024 bytes.
    kibibyte: f64,
}

/// The cost of messages in each setting of the ping-pong.
#[derive(Clone, Debug, Default)]
pub(super) struct Calibration {
    /// Half round trips in microseconds, by setting and length. Native: the median of all turns. Other settings: the
    /// native median plus the median additional time in the same turn.
    halves: [[f64; SIZES.len()]; Setting::ALL.len()],
    /// How much longer a half round trip takes than in the native setting of the same turn, in nanoseconds, by setting
    /// and length.
    longer: [[Spread; SIZES.len()]; Setting::ALL.len()],
    /// The share of a half round trip that each end of a message accounts for.
    end: f64,
}

impl Calibration {
    /// Calibrates from runs with this many processes. Each turn has one run in each setting.
    pub(super) fn of(played: &[HalfRoundTrips], processes: usize, cores: usize) -> Calibration {
        // Each pair has one message in transit. If pairs share cores, a message waits for the messages of other pairs.
        let pairs = processes / 2;
        let end = 0.5 * (cores.min(pairs) as f64 / pairs as f64);
        let mut calibration = Calibration { end, ..Calibration::default() };
        for size in 0..SIZES.len() {
            let of = |setting| {
                played.iter().filter(move |it| it.setting == setting).map(move |it| it.halves[size])
            };
            let native = median(of(Setting::Native).collect());
            for (place, setting) in Setting::ALL.into_iter().enumerate() {
                let longer: Vec<f64> =
                    of(setting).zip(of(Setting::Native)).map(|(here, native)| here - native).collect();
                calibration.longer[place][size] = Spread::of(longer.iter().map(|it| it * 1e3));
                calibration.halves[place][size] = native + median(longer);
            }
        }
        calibration
    }

    fn effort(&self, setting: Setting) -> HandlingTime {
        let nanos = self.halves[setting as usize].map(|half| 1e3 * half * self.end);
        let message = nanos[ONE_BYTE];
        let kibibytes = f64::from(SIZES[MANY_KIBIBYTES] - SIZES[ONE_BYTE]) / 1024.0;
        let kibibyte = (nanos[MANY_KIBIBYTES] - nanos[ONE_BYTE]) / kibibytes;
        HandlingTime { message, kibibyte: kibibyte.max(0.0) }
    }

    /// Returns the value of `spec.simulator` for a federation file: messages within and between clusters have
    /// the costs of these settings, and all processes share `cores` cores. If `cores` is `None`, each process
    /// has its own core.
    pub(super) fn simulator(&self, (within, between): (Setting, Setting), cores: Option<usize>) -> String {
        let effort = |setting| {
            let HandlingTime { message, kibibyte } = self.effort(setting);
            format!("{{ message: {message:.0}ns, kibibyte: {kibibyte:.0}ns }}")
        };
        let cores = cores.map_or(String::new(), |it| format!(", cores: {it}"));
        format!("{{ handling: {{ within: {}, between: {}{cores} }} }}", effort(within), effort(between))
    }
}

/// A predicted run, in which a kernel exchanges messages without computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Predicted {
    pattern: Pattern,
    protected: bool,
}

impl Predicted {
    /// Returns a number of iterations that takes one or two seconds, so that the cost of the start is negligible.
    fn iterations(self) -> u32 {
        match self.pattern {
            Pattern::Cg => 4000,
            _ => 1000,
        }
    }

    /// All predicted runs. Each run under HydEE follows the same run without a protocol.
    pub(super) const ALL: [Predicted; 4] = [
        Predicted { pattern: Pattern::Cg, protected: false },
        Predicted { pattern: Pattern::Cg, protected: true },
        Predicted { pattern: Pattern::Lu, protected: false },
        Predicted { pattern: Pattern::Lu, protected: true },
    ];

    /// Returns the name shown to users, which is also a directory name.
    pub(super) fn name(self) -> String {
        format!("{}-{}", self.pattern.name().to_lowercase(), if self.protected { "hydee" } else { "none" })
    }

    fn costs(self) -> (Setting, Setting) {
        if self.protected {
            (Setting::Piggyback, Setting::Logging)
        } else {
            (Setting::Native, Setting::Native)
        }
    }

    /// Returns the text of the federation file.
    pub(super) fn text(self) -> String {
        format!(
            "{}  protocol: {}
  application: {{ nas: {{ pattern: {}, iterations: {}, stepTime: 0s, message: \
             2KiB, state: 1KiB }} }}
",
            head("memory"),
            if self.protected { HYDEE_CALM } else { UNPROTECTED },
            self.pattern.name().to_lowercase(),
            self.iterations()
        )
    }

    fn simulated(self, calibration: &Calibration, cores: usize) -> Federation {
        parse(&format!("{}  simulator: {}\n", self.text(), calibration.simulator(self.costs(), Some(cores))))
    }
}

/// Returns the number of settings.
pub(super) fn settings() -> usize {
    Predicted::ALL.len()
}

/// Predicts the measured runs, with the message costs of many processes that share the cores.
pub(super) fn section(
    runner: &mut ExperimentRunner<'_, '_>,
    alone: &Calibration,
    crowded: &Calibration,
    real: &RealRuns,
) -> Result<Section, Interrupted> {
    let seconds = |runs: &[Costs]| Spread::of(runs.iter().map(|it| it.seconds));
    let mut predicted = Vec::new();
    for run in Predicted::ALL {
        let runs =
            runner.costs(&format!("{}, predicted", run.name()), &run.simulated(crowded, real.cores))?;
        predicted.push(seconds(&runs));
    }
    let real: Vec<Spread> = real.predicted().map(|it| seconds(&it)).collect();
    let off = |place: usize| 100.0 * (predicted[place].mean / real[place].mean - 1.0);
    let longer =
        |seconds: &[Spread], place: usize| 100.0 * (seconds[place + 1].mean / seconds[place].mean - 1.0);
    let calm = (0..Predicted::ALL.len()).filter(|it| !Predicted::ALL[*it].protected);
    let furthest = furthest((0..Predicted::ALL.len()).map(off));
    let overheads: Vec<String> = calm
        .map(|it| {
            let name = Predicted::ALL[it].pattern.name();
            format!(
                "{name} {} % predicted, {} % real",
                short(longer(&predicted, it)),
                short(longer(&real, it))
            )
        })
        .collect();
    let row = |(place, run): (usize, Predicted)| {
        vec![
            Cell::from(run.pattern.name()),
            Cell::from(if run.protected { "HydEE" } else { "none" }),
            predicted[place].into(),
            real[place].into(),
            off(place).into(),
        ]
    };
    let costs = Setting::ALL.map(|setting| {
        let [alone, crowded] = [alone, crowded].map(|it| it.effort(setting));
        let mut row = vec![Cell::from(setting.name())];
        row.extend([alone.message, alone.kibibyte, crowded.message, crowded.kibibyte].map(Cell::from));
        row
    });
    Ok(Section::new("calibration", "Cost of a message", "V-C, V-D")
        .text(format!(
            "Two kernels exchange their messages, without any computation, on {PROCESSES} processes in \
             clusters of {CLUSTER}: on real processes over TCP on this machine, without emulated links, and \
             in a simulation with the costs that ping-pong measured. If two processes run ping-pong alone, \
             each has a core that is idle while it waits, and waking the core takes longer than the message \
             itself. That cost is charged for the kernels below, where each process has its own core. If \
             {CROWD} processes run in pairs, they keep the cores busy. The cost measured with them is \
             charged here."
        ))
        .findings(findings(alone, furthest, &overheads))
        .table(
            "costs",
            "Costs that the simulator charges at each end of a message",
            vec![
                "setting",
                "message, one core each, ns",
                "per KiB, ns",
                "message, shared cores, ns",
                "per KiB, ns",
            ],
            costs.into(),
        )
        .table(
            "predicted",
            "Seconds, predicted and real",
            vec!["kernel", "protocol", "predicted, s", "real, s", "error, %"],
            Predicted::ALL.into_iter().enumerate().map(row).collect(),
        ))
}

/// Describes the measured costs and the quality of the predictions: the `furthest` error in percent, and the overheads.
fn findings(alone: &Calibration, furthest: f64, overheads: &[String]) -> Vec<Finding> {
    let more = |setting: Setting, size: usize| alone.longer[setting as usize][size].text();
    let added = |setting| {
        format!("{} ns at 1 B, {} ns at 1 KiB", more(setting, ONE_BYTE), more(setting, ONE_KIBIBYTE))
    };
    vec![
        Finding::new(
            "cost that HydEE adds to a message",
            String::new(),
            format!(
                "within a cluster {}; between clusters, logged, {}",
                added(Setting::Piggyback),
                added(Setting::Logging)
            ),
            Grade::NotStated,
            "Each run of ping-pong is compared with the preceding run without a protocol. The values are the \
             mean and the range.",
        ),
        Finding::new(
            "predicted time of a run that only exchanges messages",
            String::new(),
            format!("at most {} % error", short(f64::abs(furthest))),
            Grade::NotStated,
            format!(
                "The simulator charges the message cost that was measured while {CROWD} processes ran \
                 ping-pong in pairs, and lets all processes share this machine's cores, as those processes \
                 did. The prediction is {}; the limit is {CLOSE} %.",
                if furthest.abs() <= CLOSE { "confirmed" } else { "not confirmed" }
            ),
        ),
        Finding::new(
            "overhead under HydEE",
            String::new(),
            overheads.join("; "),
            Grade::NotStated,
            "These runs only send and receive, so this is an upper bound on the overhead.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::ping_pong::PAIR;
    use super::*;
    use crate::compare::Costs;
    use crate::simulate::{Until, simulate_and};
    use faultline_checker::Verdict;
    use std::sync::atomic::AtomicBool;

    fn played(setting: Setting, micros: f64) -> HalfRoundTrips {
        HalfRoundTrips { setting, halves: SIZES.map(|it| micros + f64::from(it) / 1024.0).into() }
    }

    #[test]
    fn additional_time_is_compared_within_a_turn() {
        // The second turn is disturbed.
        let turns = [10.0, 50.0, 12.0].into_iter().flat_map(|at| {
            [
                played(Setting::Native, at),
                played(Setting::Piggyback, at + 1.0),
                played(Setting::Logging, at + 2.0),
            ]
        });
        let calibration = Calibration::of(&turns.collect::<Vec<_>>(), PAIR, 2);
        let message = Setting::ALL.map(|it| calibration.effort(it).message.round());
        assert_eq!(message, [6_000.0, 6_500.0, 7_000.0]);
        assert!(Setting::ALL.iter().all(|it| calibration.effort(*it).kibibyte.round() == 500.0));
        assert_eq!(calibration.longer[2][ONE_KIBIBYTE].mean, 2_000.0);
    }

    #[test]
    fn the_simulator_reproduces_the_measured_ping_pong() {
        // There are enough rounds to make the cost of the first checkpoint negligible.
        const ROUNDS: u32 = 60;
        for (processes, cores) in [(PAIR, 1), (PAIR, 8), (CROWD, 2), (CROWD, 12)] {
            let turn = Setting::ALL.map(|it| played(it, 20.0 + 3.0 * f64::from(it as u8)));
            let calibration = Calibration::of(&turn, processes, cores);
            for (setting, measured) in Setting::ALL.into_iter().zip(&turn) {
                let simulator = calibration.simulator((setting, setting), Some(cores));
                let text = setting.text(processes, ROUNDS);
                let federation = parse(&format!("{text}  simulator: {simulator}\n"));
                let never = AtomicBool::new(false);
                let run = simulate_and(&federation, 1, &mut Until(&never), Costs::of);
                let (run, costs) = run.expect("the run can be set up");
                assert_eq!(run.verdict, Verdict::Pass, "{:?}", run.reasons);
                let expected: f64 =
                    measured.halves.iter().map(|half| f64::from(ROUNDS) * 2.0 * half / 1e6).sum();
                let seconds = costs.seconds;
                let what = format!("{processes} on {cores}, {setting:?}");
                assert!((seconds / expected - 1.0).abs() < 0.05, "{what}: {seconds} instead of {expected}");
            }
        }
    }

    #[test]
    fn predictions_are_for_the_runs_made_at_the_measured_cost() {
        let turn = Setting::ALL.map(|it| played(it, 20.0));
        let calibration = Calibration::of(&turn, CROWD, 2);
        for run in Predicted::ALL {
            let mut simulated = run.simulated(&calibration, 2);
            let handling = simulated.spec.simulator().handling.expect("the simulator charges for messages");
            assert_eq!((handling.cores, handling.within), (Some(2), handling.between));
            simulated.spec.simulator = None;
            assert_eq!(simulated.spec, parse(&run.text()).spec);
        }
    }
}
