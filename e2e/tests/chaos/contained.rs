//! The protocols that need a process of their own besides the ranks, as in their samples. Under HydEE a process
//! fails, then a whole cluster, then two clusters together with the recovery process: only what failed rolls back.

use faultline_e2e::{Failure, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    for name in ["hydee", "full-logging", "pessimistic-logging"] {
        let applied = room.apply_sample(name, |federation| {
            // The precision of links on a busy machine is not tested here.
            let links = federation.spec.links.as_mut();
            let between = links.and_then(|it| it.between.as_mut()).expect("they have a latency");
            between.latency = "50ms".parse().ok();
        });
        let faults = applied.await?.spec.faults.len();
        let status = room.passes(name).await.map_err(|error| format!("{name}: {error}"))?;
        assert_eq!(status.faults_done, Some(format!("{faults}/{faults}")), "{name}");
        assert!(status.rollbacks.is_some_and(|it| it >= 1), "{name}: {status:#?}");
        room.delete(name).await?;
    }
    Ok(())
}
