//! The real driver: one operating-system process per process of the federation, TCP between all that talk, storage
//! with fsync, and a supervisor that kills for real.
//!
//! | module | holds |
//! | --- | --- |
//! | [`node`] | one process of the federation: hosts a [`faultline_core::Process`] |
//! | [`local`] | the supervisor's real side, with child processes on this machine |
//! | [`links`] | what the links of a federation are to be like |
//! | [`frame`] | what stands on the wire between two nodes |
//! | [`secret`] | the run's secret, which guards every connection |
//! | [`metrics`] | what a node counts, as Prometheus text |
//!
//! A node and its supervisor talk over one *control* connection ([`control`]); nodes talk to each other over the
//! [`transport`]. Nothing here knows any protocol: everything is generic over `Process`.

mod clock;
mod codec;
mod control;
mod engine;
pub mod frame;
pub mod links;
pub mod local;
pub mod metrics;
pub mod node;
pub mod secret;
mod storage;
mod transport;

pub use links::Links;
pub use local::{LocalError, LocalOptions, LocalOutcome, Observer};
pub use node::{NodeError, NodeOptions};
pub use secret::Secret;
pub use storage::{StorageKind, StorageOptions};
