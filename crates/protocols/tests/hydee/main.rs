//! HydEE, rule by rule: the protocol's behaviour, and the consequences of omitting a rule.

#![allow(clippy::unwrap_used, reason = "tests")]

use faultline_core::Span;
use faultline_protocols::hydee::{Config, Defects};
use faultline_protocols::placement::{Placement, ReplicateTo};

mod copies;
mod defects;
mod explore;
#[allow(dead_code, unused_imports, reason = "each protocol's tests use only part of the harness")]
#[path = "../harness/mod.rs"]
mod harness;
mod spill;
mod transit;

/// Longer than any directed schedule: after the first checkpoint, all others are taken on request.
const EVERY: Span = Span::from_secs(3_600);

/// Creates a configuration of HydEE with replicas in other clusters.
fn config(clusters: usize, replicas: u16, defects: Defects) -> Config {
    Config {
        checkpoint_every: vec![Some(EVERY); clusters].into(),
        placement: Placement { replicas, to: ReplicateTo::OtherCluster },
        log_memory: None,
        retry_every: Span::from_secs(1),
        defects,
    }
}
