//! A federation is deleted as soon as it exists, while its pods start, while its links are measured, while it runs, and
//! when it is over. Nothing is left of it.

use faultline_api::resource::Phase;
use faultline_e2e::{Failure, QUICK_START, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    for phase in [Phase::Pending, Phase::Starting, Phase::Linking, Phase::Running, Phase::Completed] {
        room.apply(|spec| {
            // A run without failures is over sooner.
            spec.faults.clear();
        })
        .await?;
        if phase > Phase::Pending {
            room.reach(QUICK_START, phase).await?;
        }
        room.delete(QUICK_START).await.map_err(|it| format!("deleted in the phase {phase:?}: {it}"))?;
    }
    Ok(())
}
