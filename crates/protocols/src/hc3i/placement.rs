//! Who keeps copies of whose checkpoints, by this protocol's parameters.

use alloc::vec::Vec;
use faultline_core::{Membership, ProcessId};

use super::config::Config;
use crate::placement::Placement;

/// The holders of `owner`'s parts, in the order in which they are asked.
pub fn holders(config: &Config, membership: &Membership, owner: ProcessId) -> Vec<ProcessId> {
    placement(config).holders(membership, owner)
}

/// The processes whose parts `holder` keeps copies of.
pub(super) fn owners(config: &Config, membership: &Membership, holder: ProcessId) -> Vec<ProcessId> {
    placement(config).owners(membership, holder)
}

fn placement(config: &Config) -> Placement {
    Placement { replicas: config.replicas, to: config.replicate_to }
}
