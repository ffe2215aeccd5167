//! Runs the tests of the driver contract, which all drivers share, on the simulator.

use std::sync::Arc;

use faultline_conformance::{Driver, Evidence, Probe, Scenario};
use faultline_core::Span;
use faultline_sim::{Chance, Config, Defect, Defects, InFlight, Links, Run};
use faultline_trace::Trace;

/// The simulator as a driver under test, with some randomness.
struct Simulator {
    chance: Chance,
    control_jitter: Span,
    seed: u64,
    exit_is_noticed: bool,
    defects: Defects,
}

impl Driver for Simulator {
    fn run<const FIFO: bool>(&mut self, scenario: &Scenario) -> Evidence {
        let links = Links::new(scenario.clusters.len(), |from, to| scenario.link(from, to));
        let mut config = Config::new(
            Arc::new(scenario.script.clone()),
            scenario.membership(),
            links,
            scenario.supervisor.clone(),
            scenario.seed ^ self.seed,
        );
        config.chance = self.chance;
        config.paranoid = true;
        config.defects = self.defects;
        config.control.jitter = self.control_jitter;
        if !self.exit_is_noticed {
            config.control.exit_notice = None;
        }
        let mut trace = Trace::default();
        let Run { outcome, faults, .. } = faultline_sim::run::<Probe<FIFO>>(config, &mut trace);
        Evidence { trace, outcome, faults }
    }
}

mod plain {
    use super::*;

    faultline_conformance::conformance_tests!(Simulator {
        chance: Chance::default(),
        control_jitter: Span::from_micros(100),
        seed: 0,
        exit_is_noticed: true,
        defects: Defects::default(),
    });
}

/// Packets overtake each other by more than the duration of a restart, and memberships arrive late and at different
/// times.
mod rough {
    use super::*;

    faultline_conformance::conformance_tests!(Simulator {
        chance: Chance {
            reorder_ppm: 300_000,
            reorder_within: Span::from_millis(250),
            in_flight: InFlight::Kept,
        },
        control_jitter: Span::from_millis(60),
        seed: 77,
        exit_is_noticed: true,
        defects: Defects::default(),
    });
}

/// Only silence reveals failures.
mod silent {
    use super::*;

    faultline_conformance::conformance_tests!(Simulator {
        chance: Chance::default(),
        control_jitter: Span::from_micros(100),
        seed: 5,
        exit_is_noticed: false,
        defects: Defects::default(),
    });
}

/// A driver with a defect violates the contract.
mod wrong {
    use super::*;
    use faultline_conformance::cases;

    fn driver(defect: Defect) -> Simulator {
        Simulator {
            chance: Chance {
                reorder_ppm: 300_000,
                reorder_within: Span::from_millis(250),
                in_flight: InFlight::Kept,
            },
            control_jitter: Span::from_micros(100),
            seed: 77,
            exit_is_noticed: true,
            defects: Defects::only(defect),
        }
    }

    #[test]
    #[should_panic(expected = ": a message from p")]
    fn packets_from_an_ended_life_are_delivered() {
        cases::lives_do_not_mix(&mut driver(Defect::OldSendersHeard));
    }

    #[test]
    #[should_panic(expected = "for another life")]
    fn packets_for_an_ended_life_are_delivered_to_the_next() {
        cases::lives_do_not_mix(&mut driver(Defect::OldReceiversServed));
    }
}
