//! A planned program of tasks runs under CCK. One process fails and returns, then a whole cluster is lost with its
//! storage and replaced. Only the failed processes roll back.

use faultline_e2e::{Failure, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply_over_slow_links("cck").await?;
    let status = room.passes("cck").await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "{status:#?}");
    assert!(status.worst_skew_micros.is_some_and(|it| it < 50_000), "{:?}", status.worst_skew_micros);
    assert!(status.clusters.iter().any(|it| it.name == "rennes" && it.rollbacks >= 1), "{status:#?}");
    room.delete("cck").await
}
