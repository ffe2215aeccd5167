//! A federation is deleted as soon as it exists, while its pods start, and while it runs. Nothing is left of it.

use std::time::Duration;

use faultline_api::Federation;
use faultline_api::resource::{FederationStatus, Phase};
use faultline_e2e::{Failure, Room};
use kube::api::DeleteParams;

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    for phase in [Phase::Pending, Phase::Starting, Phase::Running] {
        room.apply("quickstart", |_| {}).await?;
        let reached = |it: &FederationStatus| it.phase >= phase;
        if phase > Phase::Pending {
            let what = format!("the phase {phase:?}");
            room.wait("quickstart", &what, Duration::from_secs(120), reached).await?;
        }
        room.api::<Federation>().delete("quickstart", &DeleteParams::default()).await?;
        let is_gone = |it: Option<&Federation>| it.is_none();
        room.until::<Federation>("quickstart", "it is gone", Duration::from_secs(60), is_gone).await?;
        // The garbage collector takes the key and the file, which belonged to the federation and to nobody else.
        let begun = std::time::Instant::now();
        loop {
            let left = room.remains().await?;
            if left.is_empty() {
                break;
            }
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(
                    format!("deleted in phase {phase:?}, but there is still {}", left.join(", ")).into()
                );
            }
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}
