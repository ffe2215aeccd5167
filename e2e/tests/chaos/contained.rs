//! The protocols that need a process of their own beside the ranks, as their samples have them. Under HydEE a process dies,
//! then a whole cluster, then two clusters at once, and the recovery process with them: only what failed rolls back.

use faultline_e2e::{Failure, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    for name in ["hydee", "full-logging", "pessimistic-logging"] {
        let sample = faultline_api::samples::sample(name).ok_or("there is no such sample")?;
        let federation = faultline_api::parse(name, sample.text.as_bytes()).map_err(|it| it.to_string())?;
        let faults = federation.spec.faults.len();
        room.apply_as(name, |spec| {
            *spec = federation.spec;
            // How exact the links of a busy machine are is not the question here.
            let between =
                spec.links.as_mut().and_then(|it| it.between.as_mut()).expect("they have a latency");
            between.latency = "50ms".parse().ok();
        })
        .await?;
        let status = room.passes(name).await.map_err(|error| format!("{name}: {error}"))?;
        assert_eq!(status.faults_done, Some(format!("{faults}/{faults}")), "{name}");
        assert!(status.rollbacks.is_some_and(|it| it >= 1), "{name}: {status:#?}");
        room.delete(name).await?;
    }
    Ok(())
}
