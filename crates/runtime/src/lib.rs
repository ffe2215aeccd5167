//! The real driver: one operating-system process per process of the federation, TCP between those that communicate,
//! storage with fsync, and a supervisor that kills processes.
//!
//! | module | content |
//! | --- | --- |
//! | [`node`] | one process of the federation, which hosts a [`faultline_core::Process`] |
//! | [`supervise`] | the host of the supervisor, wherever the processes run |
//! | [`local`] | processes as children on this machine |
//! | [`remote`] | processes hosted by agents, which are reached over TCP |
//! | [`agent`] | the program that starts and ends the process at a place |
//! | [`links`] | requested properties of the links of a federation |
//! | [`frame`] | the wire format between two nodes |
//! | [`memory`] | memory of this program, and of the machine |
//! | [`detached`] | output that never makes the program wait |
//! | [`interrupt`] | handling of Ctrl-C and termination signals |
//! | [`shaper`] | the program that configures the kernel's traffic control at a place |
//! | [`system`] | the commands of a system, which do not know Faultline |
//! | [`secret`] | the keys of a run, which protect every connection |
//! | [`metrics`] | metrics of nodes and of runs, as Prometheus text |
//!
//! A node and its supervisor communicate over one *control* connection ([`control`]); nodes communicate over the
//! [`transport`]. All of it is generic over `Process` and independent of the protocol.

pub mod agent;
mod clock;
mod codec;
mod control;
pub mod detached;
mod engine;
mod exits;
pub mod frame;
pub mod interrupt;
pub mod links;
pub mod local;
pub mod memory;
pub mod metrics;
pub mod node;
pub mod remote;
pub mod secret;
pub mod shaper;
mod storage;
pub mod supervise;
pub mod system;
mod transport;

pub use links::Links;
pub use node::{NodeError, NodeInput, NodeOptions};
pub use secret::{Keys, Secret};
pub use storage::{StorageMedium, StorageOptions};
pub use supervise::{Observer, RunError, RunOptions, RunOutcome};
