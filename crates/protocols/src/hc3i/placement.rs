//! Placement of replicas, according to this protocol's parameters.

use alloc::vec::Vec;
use faultline_core::{Membership, ProcessId};

use super::config::Config;
use crate::placement::Placement;

/// Returns the holders of `owner`'s parts, in the order in which they are chosen.
pub fn holders(config: &Config, membership: &Membership, owner: ProcessId) -> Vec<ProcessId> {
    placement(config).holders(membership, owner)
}

/// Returns the owners whose parts are replicated to `holder`.
pub(super) fn owners(config: &Config, membership: &Membership, holder: ProcessId) -> Vec<ProcessId> {
    placement(config).owners(membership, holder)
}

fn placement(config: &Config) -> Placement {
    Placement { replicas: config.replicas, to: config.replicate_to }
}
