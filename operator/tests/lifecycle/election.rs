//! Operators that compete for the lease.

use std::time::Duration;

use faultline_operator::election::{Election, GRACE, Timing};
use faultline_operator::install::LEASE_RULES;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep, timeout};

use crate::common::ApiServer;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/faultline-operator";
const TIMING: Timing = Timing {
    duration: Duration::from_secs(2),
    renewed_within: Duration::from_millis(1200),
    every: Duration::from_millis(50),
};
/// Time limit for a change of the active operator: long enough for a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// Returns a lease that was just renewed by a machine whose clock is ahead by this amount.
fn lease(holder: &str, ahead: SignedDuration) -> Value {
    let renewed = (Timestamp::now() + ahead).to_string();
    json!({
        "metadata": { "name": "faultline-operator", "resourceVersion": format!("{holder} {renewed}") },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed },
    })
}

fn holder(server: &ApiServer) -> Value {
    server.get(LEASE).expect("a lease")["spec"]["holderIdentity"].clone()
}

async fn becomes(active: &mut Receiver<bool>, wanted: bool) {
    timeout(SOON, active.wait_for(|it| *it == wanted)).await.expect("a change").expect("an election");
}

#[tokio::test]
async fn an_unrenewed_lease_is_taken_over_after_its_duration_whatever_its_timestamps() {
    for ahead in [SignedDuration::from_hours(1), SignedDuration::ZERO, SignedDuration::from_hours(-1)] {
        let server = ApiServer::default();
        server.put(LEASE, lease("gone", ahead));
        let begun = Instant::now();
        let (mut active, ended) = Election::new(server.client(), "next".into(), TIMING).start();
        becomes(&mut active, true).await;
        assert!(begun.elapsed() >= TIMING.duration, "{ahead:?}: taken after {:?}", begun.elapsed());
        assert_eq!(holder(&server), "next");
        drop(active);
        ended.await.expect("it releases the lease");
        assert_eq!(holder(&server), Value::Null);
        let rights = server.used();
        let stated = LEASE_RULES.iter().flat_map(|it| it.verbs);
        assert!(rights.iter().all(|(_, _, verb)| stated.clone().any(|it| it == verb)), "{rights:?}");
    }
}

#[tokio::test]
async fn a_renewed_lease_is_not_taken_over_whatever_its_timestamps() {
    for ahead in [SignedDuration::from_hours(1), SignedDuration::from_hours(-1)] {
        let server = ApiServer::default();
        server.put(LEASE, lease("holder", ahead));
        let (active, _ended) = Election::new(server.client(), "next".into(), TIMING).start();
        let begun = Instant::now();
        while begun.elapsed() < 2 * TIMING.duration {
            sleep(TIMING.every).await;
            server.put(LEASE, lease("holder", ahead));
        }
        assert!(!*active.borrow(), "{ahead:?}");
        assert_eq!(holder(&server), "holder");
    }
}

#[tokio::test]
async fn a_lease_is_lost_in_time_even_between_two_attempts_to_renew_it() {
    let timing = Timing { every: 10 * TIMING.renewed_within, ..TIMING };
    let server = ApiServer::default();
    let (mut active, _ended) = Election::new(server.client(), "frozen".into(), timing).start();
    becomes(&mut active, true).await;
    let begun = Instant::now();
    server.freeze("/leases/");
    becomes(&mut active, false).await;
    assert!(begun.elapsed() < 2 * TIMING.renewed_within, "{:?}", begun.elapsed());

    let Timing { duration, renewed_within, .. } = Timing::default();
    assert!(renewed_within + GRACE <= duration, "an operator stops before another one becomes active");
}

#[tokio::test]
async fn an_operator_is_active_only_while_it_can_renew_the_lease() {
    let server = ApiServer::default();
    let (mut first, ended) = Election::new(server.client(), "first".into(), TIMING).start();
    becomes(&mut first, true).await;
    server.fail_writes_to("leases");
    becomes(&mut first, false).await;
    server.allow();
    becomes(&mut first, true).await;

    server.put(LEASE, lease("thief", SignedDuration::ZERO));
    becomes(&mut first, false).await;
    becomes(&mut first, true).await;

    let (mut second, _ended) = Election::new(server.client(), "second".into(), TIMING).start();
    sleep(2 * TIMING.duration).await;
    assert!(*first.borrow() && !*second.borrow(), "the lease is renewed");
    let begun = Instant::now();
    drop(first);
    ended.await.expect("it releases the lease");
    becomes(&mut second, true).await;
    assert!(
        begun.elapsed() < TIMING.duration,
        "a released lease is taken immediately: {:?}",
        begun.elapsed()
    );
}
