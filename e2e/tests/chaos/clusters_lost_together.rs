//! All clusters are killed at once. Their storage is kept, and restores them.

use faultline_api::resource::{Fate, Fault, LoseCluster};
use faultline_e2e::{Failure, QUICK_START, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply(|spec| {
        let lose = |cluster: &str| Fault {
            at: "6s".parse().ok(),
            lose_cluster: Some(LoseCluster {
                cluster: cluster.into(),
                storage: Some(Fate::Kept),
                returns: None,
            }),
            ..Fault::default()
        };
        spec.faults = vec![lose("paris"), lose("rennes")];
    })
    .await?;
    let status = room.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    assert!(status.clusters.iter().all(|it| it.rollbacks >= 1), "{status:#?}");
    Ok(())
}
