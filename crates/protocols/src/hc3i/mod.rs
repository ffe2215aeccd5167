//! HC3I: coordinated checkpoints inside a cluster, communication-induced checkpoints between clusters.

mod config;

pub use config::{Config, Defect, Defects, ReplicateTo, Scope};
