//! Another holder takes the operator's lease while a federation runs, and never renews it. Its clock is an hour ahead.
//! The operator stops being active. It takes the lease again once the lease has not changed for 15 s, regardless of the
//! times in the lease. The run is not affected.

use std::time::{Duration, Instant};

use faultline_client::status::Phase;
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::{sleep, timeout};

const LEASE: &str = "faultline-operator";
const THIEF: &str = "thief";
const AHEAD: SignedDuration = SignedDuration::from_hours(1);
/// Time within which an operator must hold the lease again: the lease's duration is 15 s, and the operator restarts.
const RETURNS: Duration = Duration::from_secs(90);
/// Duration of the lease, which no operator may take earlier.
const HELD: Duration = Duration::from_secs(15);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|_| {}).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let leases = Api::<Lease>::all(ns.client.clone()).list(&ListParams::default()).await?;
    let lease = leases.into_iter().find(|it| it.name_any() == LEASE).ok_or("no operator has a lease")?;
    let leases: Api<Lease> = Api::namespaced(ns.client.clone(), &lease.namespace().unwrap_or_default());
    let renewed = MicroTime(Timestamp::now() + AHEAD);
    let stolen = json!({ "spec": { "holderIdentity": THIEF, "acquireTime": renewed, "renewTime": renewed } });
    let begun = Instant::now();
    leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(stolen)).await?;
    let returned = async {
        loop {
            let holder = leases.get(LEASE).await?.spec.and_then(|it| it.holder_identity);
            if holder.is_some_and(|it| it != THIEF) {
                return Ok::<_, Failure>(());
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(RETURNS, returned)
        .await
        .map_err(|_| format!("no operator held the lease within {RETURNS:?}"))??;
    assert!(begun.elapsed() >= HELD, "an operator took the lease after only {:?}", begun.elapsed());
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "faults are neither repeated nor lost");
    ns.delete(QUICK_START).await
}
