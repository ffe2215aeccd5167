//! The real driver: one operating-system process per process of the federation, TCP between all that talk, storage
//! with fsync, and a supervisor that kills for real.
//!
//! | module | holds |
//! | --- | --- |
//! | [`node`] | one process of the federation: hosts a [`faultline_core::Process`] |
//! | [`supervise`] | the supervisor's real side, wherever the processes are |
//! | [`local`] | the processes are children on this machine |
//! | [`remote`] | the processes are with agents, which are reached over TCP |
//! | [`agent`] | what starts and ends the process at such a place |
//! | [`links`] | what the links of a federation are to be like |
//! | [`frame`] | what stands on the wire between two nodes |
//! | [`interrupt`] | what becomes of Ctrl-C |
//! | [`shaper`] | what alone may talk to the kernel about links, for such a process |
//! | [`secret`] | the run's secret, which guards every connection |
//! | [`metrics`] | what a node counts, as Prometheus text |
//!
//! A node and its supervisor talk over one *control* connection ([`control`]); nodes talk to each other over the
//! [`transport`]. Nothing here knows any protocol: everything is generic over `Process`.

pub mod agent;
mod clock;
mod codec;
mod control;
mod engine;
pub mod frame;
pub mod interrupt;
pub mod links;
pub mod local;
pub mod metrics;
pub mod node;
pub mod remote;
pub mod secret;
pub mod shaper;
mod storage;
pub mod supervise;
mod transport;

pub use links::Links;
pub use node::{NodeError, NodeOptions};
pub use secret::{Keys, Secret};
pub use storage::{StorageKind, StorageOptions};
pub use supervise::{Observer, RunError, RunOptions, RunOutcome};
