//! Scenarios against a real Kubernetes cluster on which the operator is installed: the harness.
//!
//! Every scenario has a namespace of its own, under the profile `restricted` of Pod Security, and leaves nothing. It
//! waits for conditions, never for time to pass. When it fails, what there is is printed.

mod cluster;
mod machine;
mod operators;
mod program;
mod scenario;

pub use cluster::{Cluster, QUICK_START, Room};
pub use machine::{Machine, Skipped};
pub use operators::Operators;
pub use program::{Program, Ran, Running};
pub use scenario::{Failure, KUBECONFIG, Scenario, kubeconfig, main};
