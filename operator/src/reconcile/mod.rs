//! Reconciles a federation in five steps, each in its own file:
//!
//! | step | file | |
//! | --- | --- | --- |
//! | existing state | [`mod@dereference`] | reads from the API server, the caches and the supervisor |
//! | validity | [`mod@validate`] | pure |
//! | desired state | [`mod@build`] | pure |
//! | applying it | [`mod@apply`] | writes |
//! | reporting | [`mod@update_status`] | writes the report, which [`mod@assess`] derives (pure) |
//!
//! State that is kept between reconciliations can be reconstructed: the operator may stop between any two writes.

mod advice;
pub mod apply;
pub mod assess;
pub mod build;
pub mod dereference;
pub mod keys;
pub mod made;
pub mod misplaced;
pub mod unreadable;
pub mod update_status;
pub mod validate;

use std::sync::Arc;
use std::time::Duration;

use faultline_api::Federation;
use faultline_api::resource::{Phase, condition};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use thiserror::Error;
use tokio::time::timeout;

use crate::controller::Context;
use crate::naming;
use apply::Applied;
use assess::{BasicSituation, Situation};
use validate::{Refusal, Validated};

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
    /// The existing state could not be read.
    #[error("cannot read the current state: {0}")]
    Dereference(#[from] dereference::DereferenceError),
    /// The desired state could not be applied.
    #[error("cannot apply the desired state: {0}")]
    Apply(#[from] apply::ApplyError),
    /// The spec with which the federation was created could not be read.
    #[error(transparent)]
    Made(#[from] made::MadeError),
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
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
pub async fn reconcile(federation: Arc<Federation>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    reconcile_unless_refused(federation, None, &context).await
}

/// Does the same. If `refused` gives the reason for refusing the current spec, `federation` instead has the spec from
/// which its pods were created.
async fn reconcile_unless_refused(
    federation: Arc<Federation>,
    refused: Option<Refusal>,
    context: &Context,
) -> Result<Action, ReconcileError> {
    let steps = timeout(context.deadline, reconcile_steps(Arc::clone(&federation), refused, context)).await;
    let result = steps.unwrap_or(Err(ReconcileError::DeadlineExceeded(context.deadline)));
    if let Err(error) = &result {
        let uid = federation.uid().unwrap_or_default();
        if error.is_lasting() || context.session(&uid, |it| it.failures) > 0 {
            let situation = BasicSituation::Failed { reason: error.reason(), message: error.to_string() };
            let situation = Situation::Basic(situation);
            let observed = dereference::Observed::of(federation);
            match timeout(REPORT, update_status(&observed, &situation, context)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot report a failed reconciliation")
                }
                Err(_) => {
                    tracing::warn!("cannot report a failed reconciliation: the API server does not respond")
                }
            }
        }
    }
    result
}

impl ReconcileError {
    fn key(&self) -> Option<&keys::KeyError> {
        match self {
            ReconcileError::Dereference(dereference::DereferenceError::Key(error))
            | ReconcileError::Apply(apply::ApplyError::Key(error)) => Some(error),
            _ => None,
        }
    }

    /// Returns the reason in one word, for the status.
    fn reason(&self) -> &'static str {
        match (self, self.key()) {
            (_, Some(error)) => error.reason(),
            (ReconcileError::Dereference(_) | ReconcileError::Made(_), _) => "CannotRead",
            (ReconcileError::Apply(apply::ApplyError::ForeignClaim(_)), _) => "NameTaken",
            (ReconcileError::Apply(_), _) => "CannotWrite",
            (ReconcileError::UpdateStatus(_), _) => "CannotReport",
            (ReconcileError::DeadlineExceeded(_), _) => "DeadlineExceeded",
        }
    }

    /// Returns whether only a user can solve the problem.
    fn is_lasting(&self) -> bool {
        matches!(
            self,
            ReconcileError::Apply(apply::ApplyError::ForeignClaim(_))
                | ReconcileError::Made(made::MadeError::Replaced(..))
        ) || self.key().is_some_and(keys::KeyError::is_lasting)
    }
}

async fn reconcile_steps(
    federation: Arc<Federation>,
    refused: Option<Refusal>,
    context: &Context,
) -> Result<Action, ReconcileError> {
    if federation.metadata.deletion_timestamp.is_some() {
        return delete(federation, context).await;
    }
    // The pods were created from `made`, which may differ: a custom resource definition without rules admits any
    // change.
    let (made, changed) = if refused.is_some() {
        (Arc::clone(&federation), refused)
    } else {
        if !federation.finalizers().iter().any(|it| it == naming::FINALIZER) {
            // The finalizer comes first. Writing it triggers the next reconciliation.
            apply::add_finalizer(&federation, context).await?;
            return Ok(Action::await_change());
        }
        made::made(&federation, context).await?
    };
    if let Err(refusal) = validate::fits_any_operator(&made) {
        let observed = dereference::Observed::of(federation);
        return Ok(after(update_status(&observed, &rejected(refusal), context).await?));
    }
    let expiry = expiry(&federation, &made);
    if expiry == Some(Duration::ZERO) {
        apply::delete_federation(&federation, context).await?;
        return Ok(Action::await_change());
    }
    let observed = dereference::dereference(&federation, &made, context).await?;
    let validated = match validate(&observed, &made, changed, context) {
        Ok(validated) => validated,
        Err(refusal) => {
            return Ok(after(update_status(&observed, &rejected(refusal), context).await?));
        }
    };
    let desired = build::build(&validated, &observed, &context.settings, context.client.default_namespace());
    let mut applied = apply::apply(&validated, &observed, desired, context).await?;
    if observed.keeps_record() && !observed.has_lost_kept_record() {
        applied.restored.extend(apply::restore_access(&federation, context).await?);
    }
    let next = next_reconciliation(&observed, &applied);
    let situation = Situation::Accepted { validated: Box::new(validated), applied };
    let unsaid = update_status(&observed, &situation, context).await?;
    Ok(after(next.into_iter().chain(unsaid).chain(expiry).min()))
}

/// Returns the time until a federation whose run has ended is to be deleted; `None` if its run has not ended, or if it is
/// to stay.
fn expiry(federation: &Federation, made: &Federation) -> Option<Duration> {
    let limit = made.spec.kubernetes.as_ref()?.ttl_seconds_after_finished?;
    let status = federation.status.as_ref().filter(|it| it.phase == Phase::Completed)?;
    let ended = status.condition(condition::COMPLETED).filter(|it| it.status == "True")?;
    let since = Timestamp::now().duration_since(ended.last_transition_time.0);
    let left = SignedDuration::from_secs(limit.into()) - since;
    Some(Duration::try_from(left).unwrap_or_default())
}

fn rejected(refusal: Refusal) -> Situation {
    Situation::Basic(BasicSituation::Rejected(refusal))
}

/// Writes the status, and reports events. Returns how long to wait if some of this must be repeated.
async fn update_status(
    observed: &dereference::Observed,
    situation: &Situation,
    context: &Context,
) -> Result<Option<Duration>, ReconcileError> {
    let updated = update_status::update_status(observed, situation, context).await;
    updated.map_err(ReconcileError::UpdateStatus)
}

/// Returns an action that reconciles after this delay, or after a change.
fn after(delay: Option<Duration>) -> Action {
    delay.map_or_else(Action::await_change, Action::requeue)
}

/// Validates a federation, whose pods were or will be created from `made`. `changed` is the reason for refusing a change
/// since then, if any.
///
/// A federation that has begun continues as it was, whatever a change or a stricter operator says. The limit on pods
/// applies only before: the size of a federation cannot change, but the limit of the operator can. Only the status says
/// whether a federation has begun. Its sets do not, because users of its namespace can create sets that it controls.
fn validate(
    observed: &dereference::Observed,
    made: &Federation,
    changed: Option<Refusal>,
    context: &Context,
) -> Result<Validated, Refusal> {
    let has_begun = has_begun(observed.phase());
    let max_pods = context.settings.max_pods;
    if !has_begun {
        // Validating a federation that is far too large would take long.
        validate::fits(validate::ranks(made), max_pods)?;
    }
    let validated = match changed {
        Some(refusal) if has_begun => validate::unchanged(made, refusal),
        // The operator may have stopped before it could report that the federation has begun.
        Some(refusal) if !observed.sets.is_empty() => {
            validate::check(made)?;
            validate::unchanged(made, refusal)
        }
        Some(refusal) => return Err(refusal),
        None => match check(&observed.federation, context) {
            Ok(()) => validate::passed(made),
            Err(refusal) if has_begun => validate::unchanged(made, refusal),
            Err(refusal) => return Err(refusal),
        },
    };
    if !has_begun {
        validate::fits(validated.nodes().into(), max_pods)?;
    }
    Ok(validated)
}

/// Returns whether a federation in this phase has begun.
fn has_begun(phase: Phase) -> bool {
    !matches!(phase, Phase::Pending | Phase::Rejected)
}

/// Checks whether a federation is valid, unless this generation of it has already been checked.
fn check(federation: &Federation, context: &Context) -> Result<(), Refusal> {
    let uid = federation.uid().unwrap_or_default();
    let Some(generation) = federation.metadata.generation else { return validate::check(federation) };
    let known = context.session(&uid, |it| it.checked.clone()).filter(|it| it.0 == generation);
    known.map(|it| it.1).unwrap_or_else(|| {
        let checked = validate::check(federation);
        context.session(&uid, |it| it.checked = Some((generation, checked.clone())));
        checked
    })
}

/// Returns the delay until the next reconciliation; `None` if only a change triggers it.
fn next_reconciliation(observed: &dereference::Observed, applied: &Applied) -> Option<Duration> {
    match observed.phase() {
        Phase::Running | Phase::Paused => Some(RUNNING),
        Phase::Linking => Some(LINKING),
        Phase::Starting if observed.has_all_pods() => Some(LINKING),
        _ if applied.obstacle.is_some() => Some(OBSTRUCTED),
        Phase::Completed => observed.keeps_record().then_some(KEPT),
        _ => Some(STARTING),
    }
}

async fn delete(federation: Arc<Federation>, context: &Context) -> Result<Action, ReconcileError> {
    if !federation.finalizers().iter().any(|it| it == naming::FINALIZER) {
        return Ok(Action::await_change());
    }
    // The pods of a federation that is too large for any operator were never created.
    let fits = validate::fits_any_operator(&federation).is_ok();
    let pods = fits.then(|| build::pod_names(&federation).map(|(_, pod)| pod)).into_iter().flatten();
    let left = apply::delete(&*federation, pods, context).await?;
    if left.is_empty() {
        context.forget(&federation.uid().unwrap_or_default());
        return Ok(Action::await_change());
    }
    let observed = dereference::Observed::of(federation);
    let deleting = Situation::Basic(BasicSituation::Deleting { left });
    update_status(&observed, &deleting, context).await?;
    Ok(Action::requeue(SOON))
}

#[cfg(test)]
mod tests {
    use super::apply::Obstacle;
    use super::build::tests::quickstart;
    use super::*;

    #[test]
    fn refused_objects_are_attempted_less_often_unless_a_supervisor_reports_progress() {
        let delay = |phase, obstacle: Option<Obstacle>| {
            let mut federation = quickstart();
            federation.status =
                Some(faultline_api::resource::FederationStatus { phase, ..Default::default() });
            let observed = dereference::Observed::of(Arc::new(federation));
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
