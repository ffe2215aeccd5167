//! Reads the existing objects of a federation, and its supervisor's status. Writes nothing, except to restore a deleted
//! key that this operator still knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use faultline_api::supervision::{LinkReport, Places, RunPhase, RunStatus};
use faultline_client::api_error::described;
use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, Phase, condition};
use faultline_client::supervisor::max_status;
use http::StatusCode;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use thiserror::Error;

use super::freeze::Frozen;
use super::keys::{self, KeyError};
use super::misplaced;
use crate::context::Context;
use crate::federation_cache::KnownKey;
use crate::limits::EventAllowance;
use crate::object_cache::{OwnedObjects, is_controlled};
use crate::pod_state;
use crate::shortened::shortened;
use crate::supervisor::{Supervisor, SupervisorError};
use crate::{naming, pages};

/// Minimum time between two queries for the reason why pods are missing. If many federations are created at once,
/// most pods only wait for their turn.
const ASKED_EVERY: Duration = Duration::from_secs(3);
/// Size of a status, in bytes, from which only one is read at a time.
const LARGE: usize = 2 << 20;
/// Maximum length of a supervisor's identifier, in bytes.
const MAX_IDENTIFIER: usize = 40;
/// Reason of the condition `Completed` if the record of the run is lost.
pub(super) const RECORD_LOST: &str = "RecordLost";

/// The existing state of a federation.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The resource, with the last status that was written.
    pub federation: Arc<FederationObject>,
    /// Stateful sets by name.
    pub sets: BTreeMap<String, Arc<StatefulSet>>,
    /// Pods by name.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// Status of the federation's supervisor.
    pub supervision: Supervision,
    /// The links in that status.
    pub links: LinkSummary,
    /// The places that were last sent to the supervisor, as far as is known.
    pub pushed: Option<Places>,
    /// Reason why a set could not create its pods, in the words of the API server.
    pub refused: Option<String>,
    /// Pods that have the names of missing ones.
    pub misplaced: misplaced::Search,
    /// Number of the supervisor's events that may still become Kubernetes events.
    pub event_allowance: usize,
    /// Time for which some pod of a system has been unable to start.
    pub stuck_for: Duration,
}

/// Status of a supervisor.
#[derive(Clone, Debug, Default)]
pub enum Supervision {
    /// The supervisor's pod is not running, or is no longer needed.
    #[default]
    Absent,
    /// The pod is running, but the supervisor does not respond.
    Silent(String),
    /// The supervisor's status, with the events that have not become Kubernetes events yet, and without its links.
    Known(Box<RunStatus>),
}

/// What the operator reports about the links in a supervisor's status, which may list thousands of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSummary {
    /// Number of measured links of which a latency is requested.
    pub measured: usize,
    /// Number of links on which the measured latency is as requested.
    pub as_requested: usize,
    /// Number of links without a measured latency.
    pub unmeasured: usize,
    /// Number of measured links of which nothing is requested.
    pub not_judged: usize,
    /// The link that deviates most from its requested latency, and the deviation in microseconds.
    pub worst: Option<(LinkReport, u64)>,
}

impl LinkSummary {
    /// Summarises the links.
    pub fn of(links: &[LinkReport]) -> LinkSummary {
        let deviation =
            |it: &LinkReport| it.measured_micros.map(|measured| measured.abs_diff(it.requested_micros));
        let judged = || links.iter().filter(|it| it.as_requested.is_some());
        let worst = judged().max_by_key(|it| deviation(it));
        LinkSummary {
            measured: judged().count(),
            as_requested: judged().filter(|it| it.as_requested == Some(true)).count(),
            unmeasured: links.iter().filter(|it| it.measured_micros.is_none()).count(),
            not_judged: links
                .iter()
                .filter(|it| it.measured_micros.is_some() && it.as_requested.is_none())
                .count(),
            worst: worst.and_then(|it| Some((it.clone(), deviation(it)?))),
        }
    }
}

/// A read that failed.
#[derive(Debug, Error)]
pub enum DereferenceError {
    /// The key could not be read or created.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The events of a set that lacks pods could not be read.
    #[error("cannot read the events of {0}: {why}", why = described(.1))]
    Events(String, #[source] kube::Error),
    /// The pods could not be listed.
    #[error("cannot list pods: {}", described(.0))]
    Pods(#[from] kube::Error),
}

impl Observed {
    /// Creates the state of a federation of which only the resource is known.
    pub fn of(federation: Arc<FederationObject>) -> Observed {
        Observed {
            federation,
            sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            supervision: Supervision::Absent,
            links: LinkSummary::default(),
            pushed: None,
            refused: None,
            misplaced: misplaced::Search::default(),
            event_allowance: EventAllowance::default().left(Instant::now()),
            stuck_for: Duration::ZERO,
        }
    }

    /// Stores the status of the supervisor.
    pub fn hear(&mut self, mut status: RunStatus) {
        self.links = LinkSummary::of(&std::mem::take(&mut status.links));
        status.supervisor = shortened(&status.supervisor, MAX_IDENTIFIER);
        self.supervision = Supervision::Known(Box::new(status));
    }

    /// Returns whether the supervisor says that its processes have started. The last status may not say so yet, if the
    /// operator was stopped in the meantime.
    pub fn is_past_gathering(&self) -> bool {
        matches!(&self.supervision, Supervision::Known(said) if said.phase != RunPhase::Gathering)
    }

    /// Returns the phase in the last status.
    pub fn phase(&self) -> Phase {
        self.federation.status.as_ref().map(|it| it.phase).unwrap_or_default()
    }

    /// Returns whether the last status says that all pods are running.
    pub fn has_all_pods(&self) -> bool {
        self.federation.status.as_ref().is_some_and(|it| it.holds(condition::PODS_READY))
    }

    /// Returns whether the last status says that the run is over and its record exists.
    pub fn keeps_record(&self) -> bool {
        let status = self.federation.status.as_ref();
        let completed = status.filter(|it| it.phase == Phase::Completed);
        let completed = completed.and_then(|it| it.condition(condition::COMPLETED));
        completed.is_some_and(|it| ![RECORD_LOST, condition::PODS_NOT_STARTED].contains(&&*it.reason))
    }

    /// Returns whether the last status says that the run never began, because pods could not start.
    pub fn has_never_started(&self) -> bool {
        self.federation.status.as_ref().is_some_and(|it| it.why_not_started().is_some())
    }

    /// Returns whether another pod has replaced the one that kept the record of the completed run.
    pub fn has_lost_kept_record(&self) -> bool {
        let keeper = self.federation.status.as_ref().and_then(|it| it.record_in.as_ref());
        let there = self.supervisor().and_then(|it| it.uid());
        keeper.is_some_and(|keeper| there.is_some_and(|it| it != *keeper))
    }

    /// Returns the supervisor's pod.
    pub fn supervisor(&self) -> Option<&Arc<Pod>> {
        self.pods.get(&naming::supervisor_pod(&*self.federation))
    }

    /// Returns whether the record of the run is lost: the application had started, and a new supervisor without that
    /// record has taken over. The new supervisor would run the federation again.
    pub fn has_lost_record(&self) -> bool {
        let Supervision::Known(said) = &self.supervision else { return false };
        let begins = !matches!(said.phase, RunPhase::Judging | RunPhase::Completed | RunPhase::Failed);
        matches!(self.phase(), Phase::Running | Phase::Paused)
            && begins
            && !is_known(self.federation.status.as_ref(), &said.supervisor)
    }
}

/// Reads the existing state of a federation.
///
/// # Errors
///
/// Fails if a request to the API server fails, or if the federation's key is lost, replaced or invalid.
pub async fn dereference(frozen: &Frozen, context: &Context) -> Result<Observed, DereferenceError> {
    let federation = &frozen.federation;
    let OwnedObjects { sets, pods } =
        OwnedObjects::of(federation, frozen.sets(), &context.sets, &context.pods);
    let mut observed = Observed { sets, pods, ..Observed::of(Arc::clone(federation)) };
    if observed.phase() == Phase::Completed {
        return Ok(observed);
    }
    if let Some(supervisor) = find_supervisor(&observed, context).await? {
        match ask(&supervisor, federation, context).await {
            Ok(status) => observed.hear(status),
            Err(error) => {
                // Either error may mean that the supervisor has another key.
                let is_doubtful = match &error {
                    SupervisorError::Refused(status, _) => *status == StatusCode::UNAUTHORIZED,
                    error => matches!(error, SupervisorError::Tls(_)),
                };
                if is_doubtful {
                    context.cache(&**federation, |it| it.key.iter_mut().for_each(KnownKey::invalidate));
                }
                observed.supervision = Supervision::Silent(error.to_string());
            }
        }
    }
    (observed.pushed, observed.event_allowance) =
        context.cache(&**federation, |it| (it.pushed.clone(), it.events.left(Instant::now())));
    observed.refused = refused(&observed, context).await?;
    observed.misplaced = misplaced::in_place_of_missing(&observed, frozen, context).await?;
    Ok(observed)
}

/// Returns a supervisor's status, with the events that have not been reported yet.
async fn ask(
    supervisor: &Supervisor,
    federation: &FederationObject,
    context: &Context,
) -> Result<RunStatus, SupervisorError> {
    let told = federation.status.as_ref().and_then(|it| it.last_event).unwrap_or(0);
    let clusters = federation.spec.clusters.len();
    let _turn = if max_status(clusters) > LARGE { Some(context.large_status.lock().await) } else { None };
    let status = supervisor.status(told.unsigned_abs(), clusters).await?;
    if told == 0 || is_known(federation.status.as_ref(), &status.supervisor) {
        Ok(status)
    } else {
        supervisor.status(0, clusters).await
    }
}

/// Returns whether the reports in a federation's last status came from this supervisor.
pub(super) fn is_known(status: Option<&FederationStatus>, supervisor: &str) -> bool {
    status.is_some_and(|it| it.supervisor.as_deref() == Some(supervisor))
}

/// Returns a client of a federation's supervisor; `None` if the supervisor's pod is not running.
pub(super) async fn find_supervisor(
    observed: &Observed,
    context: &Context,
) -> Result<Option<Supervisor>, KeyError> {
    let Some(address) = observed.supervisor().and_then(|pod| pod_state::address(pod)) else {
        return Ok(None);
    };
    let federation = &*observed.federation;
    let key = keys::find(federation, true, context).await?;
    let supervisor = Supervisor::new(address, context.settings.supervisor_api_port, &key);
    supervisor.map(Some).map_err(|_| KeyError::Invalid(naming::key(federation)))
}

/// Finds the first set that lacks pods, and returns the reason according to its events. Events outlive their cause: a
/// failure to create a pod no longer counts once the set has created another pod. Kubernetes drops events of a set that
/// creates many pods, so the pods are considered as well.
async fn refused(observed: &Observed, context: &Context) -> Result<Option<String>, DereferenceError> {
    let lacking = observed.sets.values().find(|set| {
        let wanted = set.spec.as_ref().and_then(|it| it.replicas).unwrap_or(1);
        let made = set.status.as_ref().map(|it| it.replicas);
        made.is_some_and(|made| made < wanted)
    });
    let Some(set) = lacking else { return Ok(None) };
    let federation = &*observed.federation;
    let known = context.cache(federation, |it| it.refused.clone());
    if let Some((_, known)) = known.filter(|(asked, _)| asked.elapsed() < ASKED_EVERY) {
        return Ok(known);
    }
    let name = set.name_any();
    let events = context.api::<Event>(&**set);
    let of_set = format!("involvedObject.uid={}", set.uid().unwrap_or_default());
    let at = |it: &Event| it.last_timestamp.as_ref().map(|it| it.0);
    let (mut newest_created, mut newest_failed) = (None, None);
    let newest = |event: Event| {
        let newest = match event.reason.as_deref() {
            Some("SuccessfulCreate") => &mut newest_created,
            Some("FailedCreate") => &mut newest_failed,
            _ => return,
        };
        if newest.as_ref().is_none_or(|it| at(&event) >= at(it)) {
            *newest = Some(event);
        }
    };
    let of_set = ListParams::default().fields(&of_set);
    pages::each(
        of_set,
        |page| {
            let events = &events;
            async move { events.list(&page).await }
        },
        newest,
    )
    .await
    .map_err(|it| DereferenceError::Events(name, it))?;
    // The times are in whole seconds.
    let pods = observed.pods.values().filter(|it| is_controlled(&***it, set.uid().as_deref()));
    let created = pods.filter_map(|it| it.creation_timestamp()).map(|it| it.0).max();
    let created = created.max(newest_created.as_ref().and_then(at));
    let found = newest_failed.filter(|it| at(it) >= created).and_then(|it| it.message);
    context.cache(federation, |it| it.refused = Some((Instant::now(), found.clone())));
    Ok(found)
}
