//! Tests of the supervisor against scripted reports.

mod changes;
mod orders;
mod presence;
mod system;

use faultline_core::{ClusterId, Life, Member, NodeId, Role};

/// Returns a rank that has not been launched yet.
fn member(cluster: u16, node: u32) -> Member {
    Member {
        cluster: ClusterId(cluster),
        role: Role::RANK,
        node: NodeId(node),
        life: Life(0),
        up: false,
        started: false,
        gone: false,
        idle_lives: 0,
    }
}
