//! Scenarios with faults on a cluster, one file per fault.
//!
//! ```text
//! FAULTLINE_E2E_KUBECONFIG=FILE cargo test -p faultline-e2e             all scenarios
//! FAULTLINE_E2E_KUBECONFIG=FILE cargo test -p faultline-e2e -- crash    those with `crash` in their name
//! FAULTLINE_E2E_JOBS=4 FAULTLINE_E2E_ROUNDS=20 …                        four at a time, twenty times
//! ```

mod api_frozen;
mod api_slow;
mod bad_manifests;
mod campaign;
mod cck_cluster_lost;
mod chart_upgraded;
mod cluster_lost;
mod cluster_lost_beyond_recovery;
mod cluster_lost_storage_kept;
mod clusters_join_and_leave;
mod clusters_lost_together;
mod command_line;
mod contained;
mod crash;
mod crash_in_rollback;
mod doctor;
mod federation_deleted;
mod finalizer_stuck;
mod guest_leaves;
mod hostile_neighbour;
mod lease_stolen;
mod link_change_live;
mod masquerading;
mod name_taken;
mod node_stopped;
mod old_process_alive;
mod operator_killed;
mod operator_partitioned;
mod operator_upgraded;
mod partition;
mod pause;
mod paused_federation;
mod pod_deleted;
mod pod_security;
mod pods_moved;
mod program_missing;
mod quick_start;
mod rbac_revoked;
mod record_kept;
mod refused;
mod run_interrupted;
mod shaper_killed;
mod side_by_side;
mod stealing_cluster_lost;
mod supervisor_killed;
mod system;
mod viewed;
mod volume_lost;
mod webhook_broken;

use std::process::ExitCode;

use faultline_e2e::Scenario;

macro_rules! scenarios {
    (shared: [$($shared:ident),* $(,)?], exclusive: [$($exclusive:ident),* $(,)?] $(,)?) => {
        &[
            $(Scenario { name: stringify!($shared), exclusive: false, run: |ns| Box::pin($shared::run(ns)) },)*
            $(Scenario { name: stringify!($exclusive), exclusive: true, run: |ns| Box::pin($exclusive::run(ns)) },)*
        ]
    };
}

const SCENARIOS: &[Scenario] = scenarios! {
    shared: [
        quick_start,
        command_line,
        campaign,
        doctor,
        crash,
        crash_in_rollback,
        pause,
        partition,
        link_change_live,
        paused_federation,
        pod_deleted,
        name_taken,
        volume_lost,
        cluster_lost,
        cluster_lost_storage_kept,
        cluster_lost_beyond_recovery,
        clusters_lost_together,
        contained,
        stealing_cluster_lost,
        cck_cluster_lost,
        clusters_join_and_leave,
        guest_leaves,
        record_kept,
        supervisor_killed,
        viewed,
        federation_deleted,
        finalizer_stuck,
        hostile_neighbour,
        bad_manifests,
        program_missing,
        refused,
        pod_security,
        shaper_killed,
        system,
        run_interrupted,
    ],
    exclusive: [
        operator_killed,
        lease_stolen,
        rbac_revoked,
        operator_partitioned,
        webhook_broken,
        operator_upgraded,
        chart_upgraded,
        side_by_side,
        masquerading,
        old_process_alive,
        node_stopped,
        pods_moved,
        api_frozen,
        api_slow,
    ],
};

fn main() -> ExitCode {
    faultline_e2e::main(SCENARIOS)
}
