//! Follows the changes to a federation that is [frozen](super::freeze): passes links, faults and pauses to the
//! supervisor, and refuses all other changes.

use faultline_api::supervision::{Amended, RunPhase};
use faultline_api::{FederationSpec, live};
use http::StatusCode;

use super::dereference::{Observed, Supervision, find_supervisor};
use super::freeze::Frozen;
use super::keys::KeyError;
use super::validate;
use crate::cached_federation::CachedFederation;
use crate::context::Context;
use crate::supervisor::SupervisorError;

/// What became of the changes to a federation since it was frozen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Reason why the last change is refused, unless only the supervisor refuses it.
    pub refused: Option<String>,
    /// Whether the spec pauses the federation.
    pub is_to_pause: bool,
}

/// Sends the changed spec to the supervisor, unless the change is refused or the supervisor knows it. A supervisor that
/// does not respond is no error: the spec is sent again at the next reconciliation.
///
/// # Errors
///
/// Fails if there is no usable key.
pub async fn follow(
    federation: &CachedFederation,
    frozen: &Frozen,
    observed: &Observed,
    context: &Context,
) -> Result<Followed, KeyError> {
    let is_to_pause = match is_to_pause(federation, frozen, context) {
        Ok(is_to_pause) => is_to_pause,
        Err(refusal) => {
            return Ok(Followed { refused: Some(refusal), is_to_pause: frozen.federation.spec.pause });
        }
    };
    let mut followed = Followed { refused: None, is_to_pause };
    let generation = federation.generation();
    if is_unknown(generation, observed)
        && let Ok(spec) = federation.spec()
        && let Some(supervisor) = find_supervisor(observed, context).await?
        && let Err(error) = supervisor.amend(&Amended { generation, spec }).await
    {
        context.warn(federation, "the supervisor did not accept the changed spec", &error);
        // The supervisor reports any other refusal in its next status.
        followed.refused = is_unread(&error).then(|| format!("the supervisor cannot read it: {error}"));
    }
    Ok(followed)
}

/// Returns whether the spec of a federation pauses its run, or the reason why the run does not follow the spec. Remembers
/// either, because validation takes longer than the rest of a reconciliation.
fn is_to_pause(federation: &CachedFederation, frozen: &Frozen, context: &Context) -> Result<bool, String> {
    let generation = federation.generation();
    let known = context.cache(federation, |it| it.followed.clone()).filter(|it| it.0 == generation);
    known.map(|it| it.1).unwrap_or_else(|| {
        let followed = permitted(federation, &frozen.federation.spec).map(|it| it.pause);
        context.cache(federation, |it| it.followed = Some((generation, followed.clone())));
        followed
    })
}

/// Returns the spec of a federation if it differs from the frozen one only in ways that a run can follow.
fn permitted(federation: &CachedFederation, frozen: &FederationSpec) -> Result<FederationSpec, String> {
    let spec = federation.spec()?;
    if spec != *frozen {
        let problems = live::changes_of_fixed_fields(frozen, &spec);
        if !problems.is_empty() {
            return Err(validate::described(&problems));
        }
        validate::check(&federation.with(spec.clone()).to_file())?;
    }
    Ok(spec)
}

/// Returns whether the supervisor does not know the spec of this generation yet, and the run can still be changed.
fn is_unknown(generation: i64, observed: &Observed) -> bool {
    let Supervision::Known(status) = &observed.supervision else { return false };
    let over = matches!(status.phase, RunPhase::Judging | RunPhase::Completed | RunPhase::Failed);
    let known = status.amendment.as_ref().is_some_and(|it| it.generation >= generation);
    // The supervisor started with the first generation of the spec, or a newer one.
    generation > 1 && !over && !known && !observed.has_lost_record()
}

/// Returns whether a supervisor cannot read a spec, as one of another version or with a smaller limit.
fn is_unread(error: &SupervisorError) -> bool {
    use SupervisorError::Refused;
    matches!(
        error,
        Refused(StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::PAYLOAD_TOO_LARGE, _)
    )
}

#[cfg(test)]
mod tests {
    use faultline_api::supervision::{Amendment, RunStatus};
    use serde_json::json;

    use super::*;
    use crate::reconcile::build::tests::{cached, quickstart, running};

    #[test]
    fn only_valid_changes_to_links_faults_and_pauses_are_permitted() {
        let frozen = quickstart().spec;
        let change = |path: &str, value: serde_json::Value| {
            let mut federation = json!(quickstart());
            *federation.pointer_mut(path).expect("the field exists") = value;
            let federation = serde_json::from_value(federation).expect("a federation");
            permitted(&federation, &frozen).map(|it| it != frozen)
        };
        assert_eq!(permitted(&cached(&quickstart()), &frozen), Ok(frozen.clone()));
        assert_eq!(change("/spec/links/between/latency", json!("40ms")), Ok(true));
        for (path, value, refusal) in [
            ("/spec/links/between", json!({ "loss": "60%" }), "`60%` is too large for a loss"),
            ("/spec/deadline", json!("1h"), "`deadline` cannot change"),
            ("/spec/faults", json!([]), "was changed or removed"),
        ] {
            let refused = change(path, value).expect_err("it is refused");
            assert!(refused.contains(refusal), "{refused}");
        }
    }

    #[test]
    fn a_change_is_sent_until_the_supervisor_confirms_it() {
        let is_sent = |generation: i64, status: RunStatus| is_unknown(generation, &running(status));
        let knows = |generation| RunStatus {
            amendment: Some(Amendment { generation, refused: None }),
            ..RunStatus::default()
        };
        assert!(!is_sent(1, RunStatus::default()), "its file contains this spec");
        assert!(is_sent(2, RunStatus::default()));
        assert!(!is_sent(2, knows(2)));
        assert!(is_sent(3, knows(2)));
        let over = RunStatus { phase: RunPhase::Judging, ..RunStatus::default() };
        assert!(!is_sent(2, over), "a run that has ended cannot change");
    }
}
