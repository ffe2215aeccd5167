//! The harness for scenarios on a real Kubernetes cluster on which the operator is installed.
//!
//! Every scenario has its own namespace with the `restricted` Pod Security profile, and leaves nothing behind. It waits
//! for conditions; only the durations of faults and observations are fixed. If it fails, the objects in the namespace
//! are printed.

#![allow(clippy::missing_errors_doc, clippy::missing_panics_doc)] // every failure ends the scenario and says why

mod cluster;
mod machine;
mod operators;
mod program;
mod scenario;
mod service_network;

pub use cluster::{KubernetesCluster, QUICK_START, TestNamespace, read_sample};
pub use machine::{Machine, Skipped};
pub use operators::Operators;
pub use program::{Finished, Program, Running};
pub use scenario::{Busy, Failure, KUBECONFIG, Scenario, kubeconfig, main, restorable};
pub use service_network::ServiceNetwork;
