//! Translates a federation into a simulation.

use std::num::NonZero;

use faultline_api::quantity::Bandwidth;
use faultline_api::resource::{HandlingTimeSpec, InFlightSpec, Simulator, Storage, StorageKind};
use faultline_core::Span;
use faultline_sim::{Chance, Config, Control, Handling, HandlingTime, InFlight, Links, StorageCosts};

use crate::{Hosted, Setup};

impl<N: Hosted> Setup<N> {
    /// Returns everything that determines a simulation of this federation.
    pub fn simulation(&self) -> Config<N::Config> {
        let clusters = self.membership.clusters.len();
        let links = Links::new(clusters, |from, to| self.links[&(from, to)]);
        let (process, membership) = (self.process_in_virtual_time(), self.membership.clone());
        let config = Config::new(process, membership, links, self.supervisor.clone(), self.seed);
        Config {
            storage: costs(&self.storage, &self.simulator),
            handling: handling(&self.simulator),
            chance: chance(&self.simulator),
            control: control(&self.simulator),
            ..config
        }
    }
}

/// Returns the storage costs that the federation specifies, or else the simulator's defaults.
fn costs(storage: &Storage, simulator: &Simulator) -> StorageCosts {
    let usual = match storage.kind {
        StorageKind::Disk => StorageCosts::default(),
        StorageKind::Memory => {
            StorageCosts { latency: Span::ZERO, write_bandwidth: 0, read_bandwidth: 0, fsync: Span::ZERO }
        }
    };
    StorageCosts {
        latency: storage.latency.map_or(usual.latency, |it| it.0),
        write_bandwidth: storage.write_bandwidth.map_or(usual.write_bandwidth, Bandwidth::bytes_per_second),
        read_bandwidth: storage.read_bandwidth().map_or(usual.read_bandwidth, Bandwidth::bytes_per_second),
        fsync: simulator.sync.map_or(usual.fsync, |it| it.0),
    }
}

fn handling(simulator: &Simulator) -> Option<Handling> {
    let effort = |it: Option<HandlingTimeSpec>| {
        let HandlingTimeSpec { message, kibibyte } = it.unwrap_or_default();
        HandlingTime { packet: message.0, kibibyte: kibibyte.0 }
    };
    let asked = simulator.handling.as_ref()?;
    Some(Handling {
        within: effort(asked.within),
        between: effort(asked.between),
        cores: asked.cores.and_then(NonZero::new),
    })
}

fn chance(simulator: &Simulator) -> Chance {
    Chance {
        reorder_ppm: simulator.reorder_ppm(),
        reorder_within: simulator.reorder_within(),
        in_flight: match simulator.in_flight() {
            InFlightSpec::Sampled => InFlight::Sampled,
            InFlightSpec::Lost => InFlight::Lost,
            InFlightSpec::Kept => InFlight::Kept,
        },
    }
}

fn control(simulator: &Simulator) -> Control {
    let usual = Control::default();
    Control {
        delay: simulator.control_latency.map_or(usual.delay, |it| it.0),
        jitter: simulator.control_jitter.map_or(usual.jitter, |it| it.0),
        launch: simulator.launch.map_or(usual.launch, |it| it.0),
        exit_notice: simulator.exit_notice.map_or(usual.exit_notice, |it| it.0),
    }
}
