//! Reconciles a federation. [Freezing](mod@freeze) it comes first: everything else is built from the frozen text. Then
//! six steps, each in its own file:
//!
//! | step | file | |
//! | --- | --- | --- |
//! | existing state | [`mod@dereference`] | reads from the API server, the caches and the supervisor |
//! | desired state | [`mod@build`] | pure |
//! | applying it | [`mod@apply`] | writes |
//! | changes to the resource | [`mod@follow`] | passes them to the supervisor, or refuses them |
//! | the supervisor's requests | [`mod@assist`] | tells it where the pods are, deletes pods and volumes |
//! | reporting | [`mod@update_status`] | writes the report, which [`mod@assess`] derives (pure) |
//!
//! State that is kept between reconciliations can be reconstructed: the operator may stop between any two writes.

mod advice;
pub mod apply;
pub mod assess;
pub mod assist;
pub mod build;
pub mod delete;
pub mod dereference;
pub mod follow;
pub mod freeze;
pub mod keys;
pub mod misplaced;
pub mod objects;
pub mod update_status;
pub mod validate;

use std::time::{Duration, Instant};

use faultline_client::api_error::described;
use faultline_client::object::FederationObject;
use faultline_client::status::{Phase, condition};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use thiserror::Error;
use tokio::time::timeout;

use crate::cached_federation::CachedFederation;
use crate::context::Context;
use crate::naming;
use apply::{Applied, apply};
use assess::{Progress, Situation};
use assist::assist;
use build::build;
use dereference::{DereferenceError, Observed, dereference};
use follow::follow;
use freeze::{FreezeError, Frozen, freeze};
use keys::KeyError;
use objects::ApplyError;
use update_status::update_status;

/// Interval between two requests to a supervisor while its federation runs.
const RUNNING: Duration = Duration::from_millis(500);
/// Interval between two requests to a supervisor once all pods are running. At this stage, only the supervisor knows
/// the progress.
const LINKING: Duration = Duration::from_millis(200);
/// Interval between two reconciliations while a federation starts. A change to its pods triggers a reconciliation
/// immediately.
const STARTING: Duration = Duration::from_secs(1);
/// Interval between two attempts to create objects that the API server refuses. Removing the obstacle may trigger no
/// reconciliation.
const OBSTRUCTED: Duration = Duration::from_secs(5);
/// Delay until objects that are being deleted are checked again.
const SOON: Duration = Duration::from_millis(500);
/// Interval between two checks that the key of a completed federation still exists. Deleting the key triggers no
/// reconciliation, because the operator must not watch secrets.
const KEPT: Duration = Duration::from_secs(60);
/// Time limit for reporting a failed reconciliation.
const REPORT: Duration = Duration::from_secs(5);

/// The step that failed.
#[derive(Debug, Error)]
pub enum ReconcileError {
    /// The federation could not be frozen, or the frozen text could not be read.
    #[error(transparent)]
    Freeze(#[from] FreezeError),
    /// The existing state could not be read.
    #[error("cannot read the current state: {0}")]
    Dereference(#[from] DereferenceError),
    /// The desired state could not be applied.
    #[error("cannot apply the desired state: {0}")]
    Apply(#[from] ApplyError),
    /// The last status could not be read.
    #[error("cannot read the last status of the federation: {0}")]
    Status(String),
    /// The status could not be written.
    #[error("cannot write the status: {}", described(.0))]
    UpdateStatus(#[source] kube::Error),
    /// The steps took too long.
    #[error(
        "the reconciliation did not finish within {0:?}; the API server or the supervisor responds too slowly"
    )]
    DeadlineExceeded(Duration),
}

/// Reconciles a federation once. Returns the action that triggers the next reconciliation. A permanent or repeated
/// failure is reported in the status, if the status can be written.
///
/// # Errors
///
/// Fails if a step fails. The controller then retries.
pub async fn reconcile(federation: &CachedFederation, context: &Context) -> Result<Action, ReconcileError> {
    let result = timeout(context.deadline, steps(federation, context)).await;
    let result = result.unwrap_or(Err(ReconcileError::DeadlineExceeded(context.deadline)));
    if let Err(error) = &result {
        let is_due = error.is_lasting() || context.cache(federation, |it| it.failures) > 0;
        // A status that cannot be read must stay as it is.
        if is_due && federation.status().is_ok() {
            report_failure(federation, error, context).await;
        }
    }
    result
}

async fn steps(federation: &CachedFederation, context: &Context) -> Result<Action, ReconcileError> {
    if federation.meta().deletion_timestamp.is_some() {
        return delete(federation, context).await;
    }
    if !has_finalizer(federation) {
        // The finalizer comes first. Writing it triggers the next reconciliation.
        delete::add_finalizer(federation, context).await?;
        return Ok(Action::await_change());
    }
    federation.status().map_err(ReconcileError::Status)?;
    let frozen = match freeze(federation, context).await? {
        Ok(frozen) => frozen,
        Err(refusal) => return report(federation, &Situation::Rejected(refusal), context).await.map(after),
    };
    let expiry = expiry(&frozen.federation);
    if expiry == Some(Duration::ZERO) {
        delete::delete_federation(federation, context).await?;
        return Ok(Action::await_change());
    }
    let mut observed = dereference(&frozen, context).await?;
    observed.stuck_for = stuck_for(&frozen, &observed, context);
    let desired = build(&frozen, &observed, &context.settings, context.client.default_namespace());
    let applied = apply(&frozen, &observed, desired, context).await?;
    let followed = follow(federation, &frozen, &observed, context).await.map_err(ApplyError::Key)?;
    assist(&frozen, &observed, context).await?;
    let next = next_reconciliation(&observed, &applied);
    let progress = Progress { frozen, observed, applied, followed };
    let unsaid = report(federation, &Situation::Accepted(Box::new(progress)), context).await?;
    Ok(after(next.into_iter().chain(unsaid).chain(expiry).min()))
}

/// Returns the time for which some pod of a system has been unable to start. An operator that starts again begins at zero.
fn stuck_for(frozen: &Frozen, observed: &Observed, context: &Context) -> Duration {
    let is_stuck = assess::has_stuck_pod(frozen, observed);
    let since = context.cache(&*frozen.federation, |it| {
        it.stuck = is_stuck.then(|| it.stuck.unwrap_or_else(Instant::now));
        it.stuck
    });
    since.map_or(Duration::ZERO, |it| it.elapsed())
}

fn has_finalizer(federation: &CachedFederation) -> bool {
    federation.finalizers().iter().any(|it| it == naming::FINALIZER)
}

async fn delete(federation: &CachedFederation, context: &Context) -> Result<Action, ReconcileError> {
    if !has_finalizer(federation) {
        return Ok(Action::await_change());
    }
    // The pods of a federation that was never frozen were never created.
    let frozen = match freeze::look_up(federation, context).await {
        Err(FreezeError::Replaced(..)) => None,
        found => found?,
    };
    let frozen = frozen.map(|it| Frozen::of(federation.with(it)));
    let pods = frozen.iter().flat_map(Frozen::pod_names).map(|(_, pod)| pod).collect();
    let left = delete::delete(federation, pods, context).await?;
    if left.is_empty() {
        context.forget(&federation.uid().unwrap_or_default());
        return Ok(Action::await_change());
    }
    report(federation, &Situation::Deleting { left }, context).await?;
    Ok(Action::requeue(SOON))
}

/// Writes the status, and reports events. Returns how long to wait if some of this must be repeated.
async fn report(
    federation: &CachedFederation,
    situation: &Situation,
    context: &Context,
) -> Result<Option<Duration>, ReconcileError> {
    update_status(federation, situation, context).await.map_err(ReconcileError::UpdateStatus)
}

async fn report_failure(federation: &CachedFederation, error: &ReconcileError, context: &Context) {
    let situation = Situation::Failed { reason: error.reason(), message: error.to_string() };
    match timeout(REPORT, report(federation, &situation, context)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "cannot report a failed reconciliation"),
        Err(_) => tracing::warn!("cannot report a failed reconciliation: the API server does not respond"),
    }
}

impl ReconcileError {
    fn key(&self) -> Option<&KeyError> {
        match self {
            ReconcileError::Dereference(DereferenceError::Key(error))
            | ReconcileError::Apply(ApplyError::Key(error)) => Some(error),
            _ => None,
        }
    }

    /// Returns the reason in one word, for the status.
    fn reason(&self) -> &'static str {
        match (self, self.key()) {
            (_, Some(error)) => error.reason(),
            (ReconcileError::Freeze(FreezeError::Unreadable(_)), _) => "Unreadable",
            (ReconcileError::Freeze(FreezeError::ImageNotAllowed(_)), _) => "ImageNotAllowed",
            (ReconcileError::Freeze(FreezeError::Make(_)), _) => "CannotWrite",
            (ReconcileError::Freeze(_) | ReconcileError::Dereference(_) | ReconcileError::Status(_), _) => {
                "CannotRead"
            }
            (ReconcileError::Apply(ApplyError::ForeignClaim(_)), _) => "NameTaken",
            (ReconcileError::Apply(_), _) => "CannotWrite",
            (ReconcileError::UpdateStatus(_), _) => "CannotReport",
            (ReconcileError::DeadlineExceeded(_), _) => "DeadlineExceeded",
        }
    }

    /// Returns whether only a user can solve the problem.
    fn is_lasting(&self) -> bool {
        matches!(
            self,
            ReconcileError::Apply(ApplyError::ForeignClaim(_))
                | ReconcileError::Freeze(
                    FreezeError::Replaced(..) | FreezeError::Unreadable(_) | FreezeError::ImageNotAllowed(_)
                )
        ) || self.key().is_some_and(KeyError::is_lasting)
    }
}

/// Returns the time until a federation whose run has ended is to be deleted; `None` if its run has not ended, or if it is
/// to stay.
fn expiry(federation: &FederationObject) -> Option<Duration> {
    let limit = federation.spec.kubernetes.as_ref()?.ttl_seconds_after_finished?;
    let status = federation.status.as_ref().filter(|it| it.phase == Phase::Completed)?;
    let ended = status.condition(condition::COMPLETED).filter(|it| it.status == "True")?;
    let since = Timestamp::now().duration_since(ended.last_transition_time.0);
    let left = SignedDuration::from_secs(limit.into()) - since;
    Some(Duration::try_from(left).unwrap_or_default())
}

/// Returns an action that reconciles after this delay, or after a change.
fn after(delay: Option<Duration>) -> Action {
    delay.map_or_else(Action::await_change, Action::requeue)
}

/// Returns the delay until the next reconciliation; `None` if only a change triggers it.
fn next_reconciliation(observed: &Observed, applied: &Applied) -> Option<Duration> {
    match observed.phase() {
        Phase::Running | Phase::Paused => Some(RUNNING),
        Phase::Linking => Some(LINKING),
        Phase::Starting if observed.has_all_pods() => Some(LINKING),
        _ if applied.obstacle.is_some() => Some(OBSTRUCTED),
        Phase::Completed => observed.keeps_record().then_some(KEPT),
        _ => Some(STARTING),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::core::Status;

    use super::build::tests::quickstart;
    use super::objects::Obstacle;
    use super::*;

    #[test]
    fn a_failure_quotes_only_the_message_of_the_api_server() {
        let answer = Status::failure("networkpolicies is forbidden", "Forbidden").with_code(403);
        let answer = kube::Error::Api(Box::new(answer));
        let error = ReconcileError::Apply(ApplyError::Make("quickstart-pods".into(), answer));
        assert_eq!(
            error.to_string(),
            "cannot apply the desired state: cannot create or change quickstart-pods: networkpolicies is forbidden"
        );
    }

    #[test]
    fn refused_objects_are_attempted_less_often_unless_a_supervisor_reports_progress() {
        let delay = |phase, obstacle: Option<Obstacle>| {
            let mut federation = quickstart();
            federation.status =
                Some(faultline_client::status::FederationStatus { phase, ..Default::default() });
            let observed = Observed::of(Arc::new(federation));
            next_reconciliation(&observed, &Applied { obstacle, ..Applied::default() })
        };
        let quota = Obstacle { reason: "Quota", message: "exceeded quota: small".into() };
        for phase in [Phase::Pending, Phase::Starting] {
            assert_eq!(delay(phase, None), Some(STARTING), "{phase:?}");
            assert_eq!(delay(phase, Some(quota.clone())), Some(OBSTRUCTED), "{phase:?}");
        }
        assert_eq!(delay(Phase::Completed, Some(quota.clone())), Some(OBSTRUCTED));
        assert_eq!(delay(Phase::Running, Some(quota)), Some(RUNNING));
    }
}
