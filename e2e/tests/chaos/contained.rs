//! The protocols that need a process of their own besides the ranks, as in their samples. Under HydEE a process
//! fails, then a whole cluster, then two clusters together with the recovery process: only what failed rolls back.

use faultline_e2e::{Failure, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    for name in ["hydee", "full-logging", "pessimistic-logging"] {
        let faults = room.apply_over_slow_links(name).await?.spec.faults.len();
        println!("    {name}");
        let status = room.passes(name).await?;
        assert_eq!(status.faults_done, Some(format!("{faults}/{faults}")), "{name}");
        assert!(status.rollbacks.is_some_and(|it| it >= 1), "{name}: {status:#?}");
        room.delete(name).await?;
    }
    Ok(())
}
