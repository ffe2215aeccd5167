//! One file per fault.
//!
//! ```text
//! FAULTLINE_E2E_KUBECONFIG=FILE cargo test -p faultline-e2e             all scenarios
//! FAULTLINE_E2E_KUBECONFIG=FILE cargo test -p faultline-e2e -- crash    those with `crash` in their name
//! ```

mod bad_manifests;
mod cluster_lost;
mod crash;
mod federation_deleted;
mod operator_killed;
mod pod_deleted;
mod quick_start;
mod refused;

use std::process::ExitCode;

use faultline_e2e::Scenario;

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        &[$(Scenario { name: stringify!($name), run: |room| Box::pin($name::run(room)) }),*]
    };
}

const SCENARIOS: &[Scenario] = scenarios![
    quick_start,
    crash,
    pod_deleted,
    cluster_lost,
    operator_killed,
    federation_deleted,
    bad_manifests,
    refused,
];

fn main() -> ExitCode {
    faultline_e2e::main(SCENARIOS)
}
