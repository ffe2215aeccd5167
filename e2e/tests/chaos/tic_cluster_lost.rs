//! A program of tasks runs under TIC. One process fails and returns, then a whole cluster is lost for good with its
//! storage, and the others take over its tasks.

use faultline_e2e::{Failure, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply_over_slow_links("tic").await?;
    let status = room.passes("tic").await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "{status:#?}");
    assert!(status.worst_skew_micros.is_some_and(|it| it < 50_000), "{:?}", status.worst_skew_micros);
    room.delete("tic").await
}
