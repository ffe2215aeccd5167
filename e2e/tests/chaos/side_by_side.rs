//! Three federations run at the same time in one namespace, each with its own failures, without affecting each other.
//! One is deleted while the others continue.

use faultline_api::resource::FederationSpec;
use faultline_client::status::Phase;
use faultline_e2e::{Failure, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let small = |spec: &mut FederationSpec| {
        spec.clusters.iter_mut().for_each(|it| it.nodes = 2);
        // Three federations at once are a heavy load for a small machine. This scenario does not test the precision
        // of links.
        let between =
            spec.links.as_mut().and_then(|it| it.between.as_mut()).expect("the sample sets these links");
        between.latency = "50ms".parse().ok();
    };
    for name in ["first", "second", "third"] {
        ns.apply_as(name, small).await?;
    }
    ns.reach("third", Phase::Running).await?;
    ns.delete("third").await?;
    for name in ["first", "second"] {
        let status = ns.passes(name).await?;
        assert_eq!(status.faults_done.as_deref(), Some("2/2"), "{name}");
    }
    Ok(())
}
