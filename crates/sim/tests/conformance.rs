//! The driver's contract, with the tests that every driver runs.

use std::sync::Arc;

use faultline_conformance::{Driver, Evidence, Probe, Scenario};
use faultline_core::Span;
use faultline_sim::{Chance, Config, InFlight, Links, Run};
use faultline_trace::Trace;

/// Runs a scenario on the simulator, under some chance.
struct Simulator {
    chance: Chance,
    control_jitter: Span,
    seed: u64,
    exit_is_noticed: bool,
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
        exit_is_noticed: true
    });
}

/// Packets overtake each other by more than a restart takes, and memberships come late and out of step.
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
    });
}

/// Deaths are noticed only by silence.
mod silent {
    use super::*;

    faultline_conformance::conformance_tests!(Simulator {
        chance: Chance::default(),
        control_jitter: Span::from_micros(100),
        seed: 5,
        exit_is_noticed: false
    });
}
