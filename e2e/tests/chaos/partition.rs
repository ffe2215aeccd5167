//! For a while, no messages pass between the clusters. Then all delayed messages arrive. Before and after the
//! partition, the properties of a link change temporarily. No process is declared failed.

use faultline_api::resource::{FaultSpec, LinkChange, Partition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        let slower = |span: &str| {
            Some(LinkChange {
                from: "rennes".into(),
                to: "paris".into(),
                preset: None,
                latency: "40ms".parse().ok(),
                jitter: None,
                bandwidth: "10Mbit".parse().ok(),
                loss: None,
                span: span.parse().ok(),
            })
        };
        let partition = Partition::between("paris", "rennes", "2s".parse().ok());
        spec.faults = vec![
            FaultSpec { at: "1s".parse().ok(), link: slower("1s"), ..FaultSpec::default() },
            FaultSpec { at: "3s".parse().ok(), partition: Some(partition), ..FaultSpec::default() },
            FaultSpec { at: "6s".parse().ok(), link: slower("2s"), ..FaultSpec::default() },
        ];
    })
    .await?;
    let status = ns.passes(QUICK_START).await?;
    ns.heartbeats_were_on_time().await?;
    assert_eq!(status.faults_done.as_deref(), Some("3/3"));
    assert_eq!(status.rollbacks, Some(0), "{status:#?}");
    Ok(())
}
