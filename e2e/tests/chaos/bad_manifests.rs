//! An invalid federation is refused at admission; what admission cannot detect becomes a condition.

use std::time::Duration;

use faultline_api::Federation;
use faultline_api::resource::{FederationStatus, Phase};
use faultline_e2e::{Failure, QUICK_START, Room};
use kube::api::{Patch, PatchParams};
use serde_json::json;

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    let refused =
        async |what: &str, change: fn(&mut faultline_api::FederationSpec)| match room.apply(change).await {
            Ok(_) => Err(Failure::from(format!("admitted: {what}"))),
            Err(error) if error.to_string().contains(what) => Ok(()),
            Err(error) => Err(format!("refused, but not because `{what}`: {error}").into()),
        };
    refused("Too long", |spec| spec.clusters[0].name = "c".repeat(41)).await?;
    refused("Duplicate value", |spec| spec.clusters[1].name = "paris".into()).await?;
    refused("a cluster that does not exist", |spec| spec.clusters[1].name = "nancy".into()).await?;
    refused("at most 1000000 nodes", |spec| {
        for name in 'a'..='k' {
            spec.clusters.push(faultline_api::resource::Cluster::new(&name.to_string(), 100_000));
        }
    })
    .await?;

    // The operator compares durations, the API server does not.
    room.apply(|spec| spec.deadline = "1ms".parse().ok()).await?;
    let rejected = |it: &FederationStatus| it.phase == Phase::Rejected;
    let status = room.wait(QUICK_START, "it is rejected", Duration::from_secs(30), rejected).await?;
    assert!(status.message.as_ref().is_some_and(|it| it.contains("spec.deadline")), "{status:#?}");
    assert_eq!(room.remains(QUICK_START).await?, [""; 0], "nothing was made");

    let patch = Patch::Merge(json!({ "spec": { "seed": 8 } }));
    match room.api::<Federation>().patch(QUICK_START, &PatchParams::default(), &patch).await {
        Ok(_) => Err("a federation was changed".into()),
        Err(error) if error.to_string().contains("cannot change") => Ok(()),
        Err(error) => Err(error.into()),
    }
}
