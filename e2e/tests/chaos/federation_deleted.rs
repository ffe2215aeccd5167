//! A federation is deleted immediately after its creation, while its pods start, while its links are measured, while
//! it runs, and once it is over. Nothing of it remains.

use faultline_api::resource::Phase;
use faultline_e2e::{Failure, QUICK_START, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    for phase in [Phase::Pending, Phase::Starting, Phase::Linking, Phase::Running, Phase::Completed] {
        room.apply(|spec| {
            // A run without failures ends earlier.
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
