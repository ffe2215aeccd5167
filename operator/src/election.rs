//! Elects the active operator with a lease, as Kubernetes components do.
//!
//! The active operator renews the lease. Another one takes it over once the lease has not changed for
//! [`Timing::duration`], as measured by the monotonic clock of the operator that waits. The times in the lease are
//! only informational: the clocks of machines may differ, and may be adjusted while operators run.

use std::time::Duration;

use faultline_client::api_error::described;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::install::LEASE;
use crate::naming;

/// Time that an operator has to finish its reconciliations once it no longer holds the lease. Another operator does not
/// take over the lease earlier, because [`Timing::renewed_within`] and this time add up to [`Timing::duration`].
pub const GRACE: Duration = Duration::from_secs(5);

/// The durations that govern an election, measured by monotonic clocks.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time after which another operator may take a lease that has not changed.
    pub duration: Duration,
    /// Time after which an operator that cannot renew the lease is no longer active; shorter than `duration`.
    pub renewed_within: Duration,
    /// Time between two attempts to take or renew the lease.
    pub every: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            duration: Duration::from_secs(15),
            renewed_within: Duration::from_secs(10),
            every: Duration::from_secs(2),
        }
    }
}

/// An operator that takes part in an election.
pub struct Election {
    leases: Api<Lease>,
    identity: String,
    timing: Timing,
    /// Another operator's lease as last seen, and when it was first seen in that state.
    seen: Option<(LeaseSpec, Instant)>,
}

/// The reason why an attempt to take or renew the lease failed. The holder of the lease is then unknown.
#[derive(Debug, Error)]
enum AttemptError {
    #[error("{}", described(.0))]
    Api(#[from] kube::Error),
    #[error("the API server does not respond")]
    Silent,
    #[error("another client changed the lease at the same time")]
    Conflict,
}

impl Election {
    /// Creates a participant with this identity, for the lease in the client's namespace.
    pub fn new(client: Client, identity: String, timing: Timing) -> Election {
        Election { leases: Api::default_namespaced(client), identity, timing, seen: None }
    }

    /// Starts to participate. The value of the receiver indicates whether this operator is active. Once all receivers
    /// are dropped, the task releases the lease and ends.
    pub fn start(mut self) -> (watch::Receiver<bool>, JoinHandle<()>) {
        let (active, receiver) = watch::channel(false);
        let task = tokio::spawn(async move {
            tokio::select! {
                () = active.closed() => {}
                () = self.participate(&active) => {}
            }
            match timeout(self.timing.renewed_within, self.release()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "cannot release the lease"),
                Err(_) => tracing::warn!("cannot release the lease: the API server does not respond"),
            }
        });
        (receiver, task)
    }

    async fn participate(&mut self, active: &watch::Sender<bool>) {
        let Timing { renewed_within, every, .. } = self.timing;
        let mut renewed: Option<Instant> = None;
        // Publishes whether this operator is active. Returns for how long at least, so that neither an attempt nor a
        // pause delays the loss of the lease.
        let publish = |renewed: Option<Instant>| {
            let left = renewed.map_or(Duration::ZERO, |it| renewed_within.saturating_sub(it.elapsed()));
            let holds = !left.is_zero();
            active.send_if_modified(|it| std::mem::replace(it, holds) != holds);
            if holds { left } else { Duration::MAX }
        };
        loop {
            let begun = Instant::now();
            let limit = publish(renewed).min(renewed_within / 3);
            let attempt = timeout(limit, self.attempt()).await;
            match attempt.unwrap_or(Err(AttemptError::Silent)) {
                Ok(held) => renewed = held.then_some(begun),
                Err(error) => tracing::warn!(%error, "cannot renew the lease or determine its holder"),
            }
            sleep(publish(renewed).min(every)).await;
        }
    }

    /// Takes or renews the lease, unless another operator holds it. Returns whether this operator holds it now.
    async fn attempt(&mut self) -> Result<bool, AttemptError> {
        let now = MicroTime(Timestamp::now());
        let seconds = i32::try_from(self.timing.duration.as_secs()).unwrap_or(i32::MAX);
        let Some(lease) = self.leases.get_opt(LEASE).await? else {
            let taken = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": { "name": LEASE },
                "spec": {
                    "holderIdentity": self.identity, "leaseDurationSeconds": seconds, "acquireTime": now,
                    "renewTime": now, "leaseTransitions": 1,
                },
            });
            let taken = serde_json::from_value(taken).expect("a lease");
            return match self.leases.create(&PostParams::default(), &taken).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.is_already_exists() => Err(AttemptError::Conflict),
                Err(error) => Err(error.into()),
            };
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().filter(|it| !it.is_empty());
        let mut change = json!({ "leaseDurationSeconds": seconds, "renewTime": now });
        if holder != Some(&*self.identity) {
            if holder.is_some() && !self.has_expired(&spec) {
                return Ok(false);
            }
            change["holderIdentity"] = json!(self.identity);
            change["acquireTime"] = json!(now);
            change["leaseTransitions"] = json!(spec.lease_transitions.unwrap_or_default().saturating_add(1));
        }
        self.write(&lease, &change).await?;
        self.seen = None;
        Ok(true)
    }

    /// Returns whether another operator's lease has not changed for [`Timing::duration`].
    fn has_expired(&mut self, spec: &LeaseSpec) -> bool {
        match &self.seen {
            Some((seen, since)) if seen == spec => since.elapsed() >= self.timing.duration,
            _ => {
                self.seen = Some((spec.clone(), Instant::now()));
                false
            }
        }
    }

    /// Lets another operator take the lease immediately, if this one holds it.
    async fn release(&self) -> Result<(), AttemptError> {
        let Some(lease) = self.leases.get_opt(LEASE).await? else { return Ok(()) };
        let holder = lease.spec.as_ref().and_then(|it| it.holder_identity.as_deref());
        if holder != Some(&*self.identity) {
            return Ok(());
        }
        let nothing = json!({
            "holderIdentity": null, "leaseDurationSeconds": null, "acquireTime": null, "renewTime": null,
        });
        self.write(&lease, &nothing).await
    }

    /// Changes the lease, unless it has changed since it was read.
    async fn write(&self, lease: &Lease, spec: &serde_json::Value) -> Result<(), AttemptError> {
        let patch = json!({ "metadata": { "resourceVersion": lease.resource_version() }, "spec": spec });
        let parameters =
            PatchParams { field_manager: Some(naming::FIELD_MANAGER.into()), ..PatchParams::default() };
        match self.leases.patch(LEASE, &parameters, &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(AttemptError::Conflict),
            Err(error) => Err(error.into()),
        }
    }
}
