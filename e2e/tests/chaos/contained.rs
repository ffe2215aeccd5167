//! The protocols that need a process of their own beside the ranks, as their samples have them. Under HydEE a process dies,
//! then a whole cluster, then two clusters at once, and the recovery process with them: only what failed rolls back.

use faultline_e2e::{Failure, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    for name in ["hydee", "full-logging", "pessimistic-logging"] {
        let applied = room.apply_sample(name, |federation| {
            // How exact the links of a busy machine are is not the question here.
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
