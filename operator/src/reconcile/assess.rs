//! Derives the status of a federation, and the new events to report, without side effects.

use faultline_api::Federation;
use faultline_api::resource::{
    ClusterStatus, Condition, Emulation, FederationStatus, MAX_MESSAGE, Phase, condition,
};
use faultline_api::supervision::{self, ClusterState, RunEvent, RunStatus, RunVerdict, Shaping};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::advice::refusal;
use super::apply::{Applied, Obstacle, Restored};
use super::build;
use super::build::Drift;
use super::dereference::{LinkSummary, Observed, RECORD_LOST, Supervision, is_known};
use super::has_begun;
use super::misplaced::{Misplaced, Origin};
use super::validate::{Refusal, Validated};
use crate::naming;

/// Number of events, from the start of each run, that become Kubernetes events. If a run has more events, the last
/// [`LAST_EVENTS`] are reported as well.
const MAX_EVENTS: u64 = 300;
/// Number of events reported at the end of each run.
const LAST_EVENTS: u64 = 3;
/// Maximum number of a supervisor's events that are reported in one reconciliation. The rest is reported in the next.
const EVENTS_AT_ONCE: usize = 20;
/// Maximum length of an event's note, in bytes.
const MAX_NOTE: usize = 1024;
/// Maximum length of an event's reason, in bytes.
const MAX_REASON: usize = 128;

/// The situation of a federation.
#[derive(Clone, Debug)]
pub enum Situation {
    /// The federation can be run.
    Accepted {
        /// The validated federation.
        validated: Box<Validated>,
        /// The outcome of applying the desired state.
        applied: Applied,
    },
    /// Any other situation.
    Basic(BasicSituation),
}

/// A situation that is reported from the federation's metadata and last status, so that its spec may be unreadable.
#[derive(Clone, Debug)]
pub enum BasicSituation {
    /// The federation cannot be run.
    Rejected(Refusal),
    /// The reconciliation failed.
    Failed {
        /// Reason in one word.
        reason: &'static str,
        /// Reason in a sentence.
        message: String,
    },
    /// The federation is being deleted.
    Deleting {
        /// Objects that still exist.
        left: Vec<String>,
    },
}

/// Reason reported when a change to a federation is refused and the federation continues as before.
const CHANGE_REFUSED: &str = "ChangeRefused";

/// Time that a pod may take to start or to end before it is reported as an obstacle.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// Reason of the condition `Supervised` while the supervisor responds.
const RESPONDING: &str = "Responding";

/// Message for a run that is ready but paused by the user.
const READY_BUT_PAUSED: &str = "the application starts once spec.pause is removed";

/// An event to be reported once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Unique name of the event, independent of the operator that reports it.
    pub name: String,
    /// Reason in one word.
    pub reason: String,
    /// Description in a sentence.
    pub note: String,
    /// Whether the event is a warning.
    pub warning: bool,
    /// Time at which the event occurred; `None` if it was found only now.
    pub at: Option<Timestamp>,
}

/// Returns the status, and the events to report.
pub fn assess(observed: &Observed, situation: &Situation, now: Time) -> (FederationStatus, Vec<NewEvent>) {
    let Federation { metadata, spec, status } = &*observed.federation;
    let mut report = Report::new(metadata, status.as_ref(), now);
    report.is_to_pause = spec.pause;
    report.status.protocol = Some(spec.protocol.name().to_owned());
    match situation {
        Situation::Accepted { validated, applied } => {
            report.reconciled();
            report.accepted(validated, observed, applied);
        }
        Situation::Basic(situation) => report.basic(situation),
    }
    (report.status, report.new_events)
}

/// Returns the status of a federation whose spec cannot be read, and the events to report. `before` is the federation's
/// last status.
pub fn assess_unreadable(
    metadata: &ObjectMeta,
    before: Option<&FederationStatus>,
    situation: &BasicSituation,
    now: Time,
) -> (FederationStatus, Vec<NewEvent>) {
    let mut report = Report::new(metadata, before, now);
    report.basic(situation);
    (report.status, report.new_events)
}

struct Report<'a> {
    metadata: &'a ObjectMeta,
    /// The last status.
    before: Option<&'a FederationStatus>,
    /// Whether the spec pauses the federation.
    is_to_pause: bool,
    status: FederationStatus,
    new_events: Vec<NewEvent>,
    now: Time,
}

impl<'a> Report<'a> {
    /// Creates a report without changes to the status `before`.
    fn new(metadata: &'a ObjectMeta, before: Option<&'a FederationStatus>, now: Time) -> Report<'a> {
        let status = before.cloned().unwrap_or_default();
        Report { metadata, before, is_to_pause: false, status, new_events: Vec::new(), now }
    }

    fn basic(&mut self, situation: &BasicSituation) {
        if !matches!(situation, BasicSituation::Failed { .. }) {
            self.reconciled();
        }
        match situation {
            BasicSituation::Failed { reason, message } => self.failed(reason, message),
            BasicSituation::Rejected(refusal) => self.rejected(refusal),
            BasicSituation::Deleting { left } => self.deleting(left),
        }
    }

    /// Reports a failed reconciliation. The rest of the status stays as it was after the last successful
    /// reconciliation.
    fn failed(&mut self, reason: &str, message: &str) {
        self.set_message(message);
        if self.condition(condition::RECONCILED, "False", reason, message) {
            self.add_event(condition::RECONCILED, reason, message, true);
        }
    }

    /// Reports that the status describes the current spec, and that an earlier problem is resolved. If there was none,
    /// adds no condition.
    fn reconciled(&mut self) {
        self.status.observed_generation = self.metadata.generation;
        if self.status.condition(condition::RECONCILED).is_some() {
            self.condition(
                condition::RECONCILED,
                "True",
                "Reconciled",
                "the operator can reconcile the federation",
            );
        }
    }

    fn rejected(&mut self, refusal: &Refusal) {
        self.status.phase = Phase::Rejected;
        self.set_message(&refusal.message);
        if self.condition(condition::ACCEPTED, "False", "Invalid", &refusal.message) {
            self.add_event(condition::ACCEPTED, "Rejected", &refusal.message, true);
        }
    }

    fn deleting(&mut self, left: &[String]) {
        self.status.phase = Phase::Deleting;
        for kind in [condition::PODS_READY, condition::SUPERVISED, condition::RUNNING] {
            if self.status.condition(kind).is_some_and(|it| it.status != "False") {
                self.condition(kind, "False", "Deleting", "the federation is being deleted");
            }
        }
        self.set_message(&match left {
            [] => "waiting for the deletion of all objects".to_owned(),
            [only] => format!("waiting for the deletion of {only}"),
            [first, ..] => format!("waiting for the deletion of {} objects, including {first}", left.len()),
        });
    }

    fn accepted(&mut self, validated: &Validated, observed: &Observed, applied: &Applied) {
        self.repaired(applied);
        // A change to a completed federation has no effect.
        if self.status.phase == Phase::Completed {
            if observed.has_lost_kept_record() {
                self.record_lost();
            }
            return self.over(applied);
        }
        self.validity(validated, observed, applied);
        if observed.has_lost_record() {
            self.status.verdict = Some(word(&RunVerdict::Unknown));
            self.record_lost();
            return self.over(applied);
        }
        self.pods(validated, observed, applied);
        self.supervision(validated, observed);
        if self.status.phase == Phase::Completed {
            self.record_kept(validated, observed);
            self.over(applied);
        }
        self.headline(observed, applied);
    }

    /// Reports whether the spec can be run, or whether the last change to it was refused.
    fn validity(&mut self, validated: &Validated, observed: &Observed, applied: &Applied) {
        if let Some(Obstacle { reason: reason @ "NameTaken", message }) = &applied.obstacle {
            if self.condition(condition::ACCEPTED, "False", reason, message) {
                self.add_event(condition::ACCEPTED, reason, message, true);
            }
        } else if let Some(why) = self.change_refused(validated, observed, applied) {
            self.refused_change(&why);
        } else if !self.awaits_answer(observed) {
            let message = "the federation is valid and can be run";
            self.condition(condition::ACCEPTED, "True", "Valid", message);
        }
    }

    /// Reports that the run is over, and that the state of pods no longer matters unless the supervisor's cannot be
    /// created.
    fn over(&mut self, applied: &Applied) {
        let Some(Obstacle { reason, message }) = &applied.obstacle else {
            let message = "the run has ended; only its record is kept";
            self.condition(condition::PODS_READY, "False", "RunEnded", message);
            return;
        };
        if self.condition(condition::PODS_READY, "False", reason, message) {
            self.add_event(condition::PODS_READY, reason, message, true);
        }
    }

    /// Reports changes by other clients that the operator has reverted.
    fn repaired(&mut self, applied: &Applied) {
        for Drift { set, generation, found, wanted, .. } in &applied.repaired {
            let why = match wanted {
                0 => "the run is over",
                _ => "the size of a federation cannot change while it runs",
            };
            let note = format!(
                "the replicas of {set} were changed to {found}; the operator restored them to {wanted}, because {why}"
            );
            self.new_events.push(NewEvent {
                name: self.event_name(&format!("drift of {set} at {generation}")),
                reason: "DriftRepaired".into(),
                note,
                warning: true,
                at: None,
            });
        }
        for Misplaced { pod, uid, .. } in &applied.removed {
            self.new_events.push(NewEvent {
                name: self.event_name(&format!("{pod} removed as {uid}")),
                reason: "DriftRepaired".into(),
                note: format!(
                    "the labels of the pod {pod} were changed, so its StatefulSet could not replace or keep it; the \
                     operator deleted the pod, and its process begins a new life in another one"
                ),
                warning: true,
                at: None,
            });
        }
        for Restored { object, uid } in &applied.restored {
            self.new_events.push(NewEvent {
                name: self.event_name(&format!("{object} restored as {uid}")),
                reason: "ObjectRestored".into(),
                note: format!("{object} was deleted although pods still need it; the operator restored it"),
                warning: true,
                at: None,
            });
        }
    }

    /// Returns the reason why the last change to the spec was refused; `None` if it was not refused. After a refusal,
    /// the run continues as before.
    fn change_refused(
        &self,
        validated: &Validated,
        observed: &Observed,
        applied: &Applied,
    ) -> Option<String> {
        if let Some(refusal) = &validated.refused {
            return Some(refusal.message.clone());
        }
        if applied.unread_change.is_some() {
            return applied.unread_change.clone();
        }
        let Supervision::Known(said) = &observed.supervision else { return None };
        let newest = said.amendment.as_ref()?;
        newest.refused.clone().filter(|_| Some(newest.generation) == self.metadata.generation)
    }

    /// Returns whether only the supervisor can decide about this generation of the spec, and has not done so: the run has
    /// begun with an earlier generation. If the supervisor once refused this generation and does not repeat its answer,
    /// it may have restarted, or the run may be over.
    fn awaits_answer(&self, observed: &Observed) -> bool {
        let generation = self.metadata.generation;
        let Some(accepted) = self.status.condition(condition::ACCEPTED) else { return false };
        let is_decided = accepted.observed_generation == generation && accepted.reason != CHANGE_REFUSED;
        let answered = match &observed.supervision {
            Supervision::Known(said) => said.amendment.as_ref().map(|it| it.generation),
            _ => None,
        };
        // The first generation is not sent to the supervisor.
        has_begun(observed.phase()) && generation > Some(1) && !is_decided && answered != generation
    }

    /// Reports a refused change, once per change.
    fn refused_change(&mut self, why: &str) {
        let message = format!(
            "the federation keeps running as before, and ignores all changes to its spec until this one is reverted: \
             {why}"
        );
        let generation = self.metadata.generation;
        let before = self.status.condition(condition::ACCEPTED).cloned();
        let told =
            before.is_some_and(|it| it.reason == CHANGE_REFUSED && it.observed_generation == generation);
        self.condition(condition::ACCEPTED, "False", CHANGE_REFUSED, &message);
        if !told {
            self.new_events.push(NewEvent {
                name: self.event_name(&format!("{CHANGE_REFUSED} {generation:?}")),
                reason: CHANGE_REFUSED.into(),
                note: shortened(&message, MAX_NOTE),
                warning: true,
                at: None,
            });
        }
    }

    /// Reports that the run is over and its record is lost. The run has a verdict only if it was judged before.
    fn record_lost(&mut self) {
        let message = "the record of the run was lost when the supervisor's pod was replaced; set \
            spec.kubernetes.results to store records on a volume that outlives the pod";
        self.status.phase = Phase::Completed;
        self.condition(condition::RUNNING, "False", "Ended", "the run has ended");
        self.condition(condition::SUPERVISED, "False", RECORD_LOST, message);
        if self.condition(condition::COMPLETED, "True", RECORD_LOST, message) {
            self.add_event(condition::COMPLETED, RECORD_LOST, message, true);
        }
        self.set_message(message);
    }

    /// Remembers which pod keeps the record, if the record does not outlive the pod.
    fn record_kept(&mut self, validated: &Validated, observed: &Observed) {
        let kubernetes = validated.federation.spec.kubernetes.as_ref();
        let is_on_volume = kubernetes.is_some_and(|it| it.results.is_some());
        self.status.record_in = observed.supervisor().and_then(|it| it.uid()).filter(|_| !is_on_volume);
    }

    /// Reports the state of the pods: how many run, and what prevents the others from running.
    fn pods(&mut self, validated: &Validated, observed: &Observed, applied: &Applied) {
        let hosts = build::hosts(validated, observed);
        let running = |group: &str| {
            let of_group = |pod: &Pod| pod.labels().get(naming::CLUSTER).is_some_and(|it| it == group);
            hosts.iter().filter(|(_, pod)| of_group(pod) && build::is_complete(pod)).count() as u32
        };
        let clusters: Vec<ClusterStatus> = validated
            .groups
            .iter()
            .filter(|it| it.is_cluster)
            .map(|group| {
                let before = self.status.clusters.iter().find(|it| it.name == group.name).cloned();
                ClusterStatus {
                    name: group.name.clone(),
                    nodes: group.nodes,
                    pods: running(&group.name),
                    ..before.unwrap_or_default()
                }
            })
            .collect();
        self.status.clusters = clusters;
        let up: u32 = validated.groups.iter().map(|it| running(&it.name)).sum();
        let supervisor = observed.supervisor();
        let (wanted, up) =
            (validated.nodes() + 1, up + u32::from(supervisor.is_some_and(|it| build::is_complete(it))));
        let refused = observed.refused.as_ref().map(|message| refusal(&observed.federation, message));
        let stuck = || observed.pods.values().find_map(|it| obstacle(it, &self.now));
        let slow = || observed.pods.values().find_map(|it| not_starting(it, &self.now));
        let occupied = || observed.misplaced.found.iter().find_map(occupied);
        let obstacle = applied.obstacle.clone().or_else(occupied).or(refused).or_else(stuck).or_else(slow);
        let obstacle = obstacle.filter(|_| up < wanted);
        match obstacle {
            Some(Obstacle { reason, message }) => {
                let message = format!("{up} of {wanted} pods are running; {message}");
                if self.condition(condition::PODS_READY, "False", reason, &message) {
                    self.add_event(condition::PODS_READY, reason, &message, true);
                }
            }
            None if up < wanted => {
                self.condition(
                    condition::PODS_READY,
                    "False",
                    "Starting",
                    &format!("{up} of {wanted} pods are running"),
                );
            }
            None => {
                let message = format!("all {wanted} pods are running, including the supervisor's");
                if self.condition(condition::PODS_READY, "True", "AllRunning", &message) {
                    self.add_event(condition::PODS_READY, "PodsReady", &message, false);
                }
            }
        }
    }

    fn supervision(&mut self, validated: &Validated, observed: &Observed) {
        match &observed.supervision {
            Supervision::Absent => {
                self.condition(
                    condition::SUPERVISED,
                    "False",
                    "NoPod",
                    "the supervisor's pod is not running",
                );
                self.unsupervised();
                if self.status.phase < Phase::Starting && !observed.sets.is_empty() {
                    self.status.phase = Phase::Starting;
                }
            }
            Supervision::Silent(why) => {
                let answered = self.status.holds(condition::SUPERVISED);
                let message = format!("a request to the supervisor failed: {why}");
                self.condition(condition::SUPERVISED, "False", "Silent", &message);
                if answered {
                    self.add_event(condition::SUPERVISED, "SupervisorSilent", &message, true);
                }
                self.unsupervised();
                self.status.phase = self.status.phase.max(Phase::Starting);
            }
            Supervision::Known(status) => {
                self.responds(validated, status);
                self.supervised(validated, status, &observed.links, observed.event_allowance);
            }
        }
        self.status.phase = match self.status.phase {
            Phase::Rejected if !observed.sets.is_empty() => Phase::Starting,
            Phase::Rejected => Phase::Pending,
            phase => phase,
        };
        let is_in = |cluster: &ClusterStatus, states: [ClusterState; 2]| {
            cluster.state.as_ref().is_some_and(|state| states.iter().any(|it| word(it) == *state))
        };
        let mut present = self.status.clusters.clone();
        present.retain(|it| !is_in(it, [ClusterState::Awaited, ClusterState::Left]));
        let is_ready = |it: &&ClusterStatus| {
            let has_failed = is_in(it, [ClusterState::Failed, ClusterState::Unrecoverable]);
            !has_failed && it.up >= it.nodes && it.pods >= it.nodes
        };
        let ready = present.iter().filter(is_ready).count();
        self.status.clusters_ready = Some(format!("{ready}/{}", present.len()));
    }

    /// Reports that only the supervisor knows whether the application is running.
    fn unsupervised(&mut self) {
        if self.status.condition(condition::RUNNING).is_some_and(|it| it.status == "True") {
            let message = "the application was running when the supervisor last responded";
            self.condition(condition::RUNNING, "Unknown", "NotSupervised", message);
        }
    }

    /// Reports that the supervisor responds, and whether some of its requests are ignored.
    fn responds(&mut self, validated: &Validated, said: &RunStatus) {
        if !build::has_excess_requests(validated, said) {
            self.condition(condition::SUPERVISED, "True", RESPONDING, "the supervisor responds");
            return;
        }
        let reason = "RequestsIgnored";
        let message = "the supervisor responds, but the operator ignores some of its requests, because they concern \
            unknown processes or outnumber the processes; check the image of the supervisor's pod";
        if self.condition(condition::SUPERVISED, "True", reason, message) {
            self.add_event(condition::SUPERVISED, reason, message, true);
        }
    }

    /// Reports the supervisor's status, with up to `allowance` events.
    fn supervised(&mut self, validated: &Validated, said: &RunStatus, links: &LinkSummary, allowance: usize) {
        use supervision::RunPhase;
        let has_backlog = self.report_events(said, allowance);
        // The supervisor of a completed federation is not asked for further events.
        let phase = match said.phase {
            RunPhase::Completed | RunPhase::Failed if has_backlog => RunPhase::Judging,
            phase => phase,
        };
        self.status.phase = match phase {
            RunPhase::Gathering => Phase::Starting,
            RunPhase::Measuring => Phase::Linking,
            RunPhase::Running | RunPhase::Judging => Phase::Running,
            RunPhase::Paused => Phase::Paused,
            RunPhase::Completed | RunPhase::Failed => Phase::Completed,
        };
        for cluster in &mut self.status.clusters {
            let Some(said) = said.clusters.iter().find(|it| it.name == cluster.name) else { continue };
            cluster.state = Some(word(&said.state));
            cluster.up = said.up;
            cluster.checkpoints = said.checkpoints;
            cluster.forced = said.forced;
            cluster.rollbacks = said.rollbacks;
            cluster.progress = (said.steps > 0).then(|| format!("{}/{}", said.steps_done, said.steps));
        }
        let faults = &said.faults;
        let done = faults.done.saturating_add(faults.without_effect);
        self.status.faults_done = Some(format!("{done}/{}", faults.planned));
        let micros = |it: Option<u64>| it.and_then(|it| i64::try_from(it).ok());
        self.status.worst_skew_micros = micros(faults.worst_skew_micros);
        self.status.worst_latency_micros = micros(faults.worst_latency_micros);
        self.status.rollbacks = Some(said.rollbacks);
        self.links(validated, said, links);
        self.run(validated, said, phase);
    }

    fn links(&mut self, validated: &Validated, said: &RunStatus, links: &LinkSummary) {
        use supervision::RunPhase;
        let LinkSummary { measured, as_requested, unmeasured, worst } = links;
        let Emulated { word, reason, sentence } = emulated(said.shaping.as_ref());
        let early = matches!(said.phase, RunPhase::Gathering | RunPhase::Measuring) && *measured == 0;
        // The pods report only at their start what their kernels support.
        let kubernetes = validated.federation.spec.kubernetes.as_ref();
        let is_open = early && kubernetes.is_some_and(|it| it.links == Some(Emulation::Tc));
        self.status.shaping = (!is_open).then(|| word.into());
        let mut message =
            format!("{sentence}; the delay is as requested on {as_requested} of {measured} measured links");
        if let Some((worst, off)) = worst {
            let link = match worst.from == worst.to {
                true => format!("within {}", worst.from),
                false => format!("from {} to {}", worst.from, worst.to),
            };
            message += &format!(
                ", and deviates most on the link {link}, by {off} us from the requested {} us",
                worst.requested_micros
            );
        }
        if *unmeasured > 0 && *measured > 0 {
            message += &format!("; links that changed and have not been measured yet: {unmeasured}");
        }
        let (status, reason) = match () {
            () if *measured == 0 => ("Unknown", "NotMeasured"),
            () if as_requested == measured => ("True", reason),
            () => ("False", "NotAsRequested"),
        };
        if status == "Unknown" {
            message = if early {
                "the links will be measured once all processes are ready"
            } else {
                "no link was measured"
            }
            .into();
            if said.shaping.is_some() {
                message += &format!("; {sentence}");
            }
        }
        if self.condition(condition::LINKED, status, reason, &message) && status == "False" {
            self.add_event(condition::LINKED, "LinksNotAsRequested", &message, true);
        }
    }

    fn run(&mut self, validated: &Validated, said: &RunStatus, phase: supervision::RunPhase) {
        use supervision::RunPhase;
        let waiting = || match said.missing.as_slice() {
            [] => "all processes are ready".to_owned(),
            [one] => format!("waiting for {one}"),
            many => format!(
                "waiting for {} of {} processes, including {}",
                many.len(),
                validated.nodes(),
                many[0]
            ),
        };
        match phase {
            RunPhase::Gathering => {
                self.condition(condition::RUNNING, "False", "Gathering", &waiting());
            }
            RunPhase::Measuring if self.is_to_pause => {
                self.condition(condition::RUNNING, "False", "Paused", READY_BUT_PAUSED);
            }
            RunPhase::Paused => {
                let message = "the federation is paused until spec.pause is removed";
                self.condition(condition::RUNNING, "False", "Paused", message);
            }
            RunPhase::Measuring => {
                self.condition(condition::RUNNING, "False", "Measuring", "the links are being measured");
            }
            RunPhase::Running => {
                self.condition(condition::RUNNING, "True", "Running", "the application is running");
            }
            RunPhase::Judging => {
                self.condition(
                    condition::RUNNING,
                    "False",
                    "Judging",
                    "the run has ended and is being judged",
                );
            }
            RunPhase::Completed | RunPhase::Failed => {
                self.condition(condition::RUNNING, "False", "Ended", "the run has ended");
            }
        }
        if !matches!(phase, RunPhase::Completed | RunPhase::Failed) {
            self.condition(condition::COMPLETED, "False", "NotEnded", "the run has not ended");
            return;
        }
        let verdict = said.verdict.unwrap_or(RunVerdict::Unknown);
        let reason = match (phase, verdict) {
            (RunPhase::Failed, _) => "RunFailed",
            (_, RunVerdict::Pass) => "Pass",
            (_, RunVerdict::Unknown) if said.exceeded_deadline => "DeadlineExceeded",
            (_, RunVerdict::Unknown) => "Unknown",
            (_, RunVerdict::Fail) => "Fail",
        };
        let message = if said.reasons.is_empty() {
            "all required properties were judged, and hold".to_owned()
        } else {
            said.reasons.join("; ")
        };
        self.status.verdict = Some(word(&verdict));
        self.condition(condition::COMPLETED, "True", reason, &message);
    }

    /// Reports the supervisor's events that have not been reported yet, up to [`EVENTS_AT_ONCE`]. Skips those beyond
    /// `allowance`. Returns whether more events remain to be reported, or to be requested from the supervisor.
    fn report_events(&mut self, said: &RunStatus, allowance: usize) -> bool {
        use supervision::RunPhase;
        let same = is_known(self.before, &said.supervisor);
        if !same {
            self.status.last_event = None;
        }
        let told = self.status.last_event.unwrap_or(0).unsigned_abs();
        self.status.supervisor = Some(said.supervisor.clone());
        let Some(last) = said.events.last() else { return false };
        let newest = said.newest_event.max(last.number);
        let over = matches!(said.phase, RunPhase::Completed | RunPhase::Failed);
        let is_last = |number: u64| over && number.saturating_add(LAST_EVENTS) > newest;
        let untold = |it: &&RunEvent| it.number > told && (it.number <= MAX_EVENTS || is_last(it.number));
        let untold: Vec<&RunEvent> = said.events.iter().filter(untold).take(allowance).collect();
        let seen = if untold.len() > EVENTS_AT_ONCE {
            untold[EVENTS_AT_ONCE - 1].number
        } else if last.number < MAX_EVENTS {
            last.number
        } else {
            // The events up to the last ones are not reported.
            last.number.max(newest.saturating_sub(LAST_EVENTS))
        };
        for event in untold.into_iter().take(EVENTS_AT_ONCE) {
            let at = event.at_seconds.map(|it| format!("At {it:.2} s: ")).unwrap_or_default();
            self.new_events.push(NewEvent {
                name: self.event_name(&format!("event {} of {}", event.number, said.supervisor)),
                reason: shortened(&event.reason, MAX_REASON),
                note: shortened(&format!("{at}{}", event.text), MAX_NOTE),
                warning: event.warning,
                at: self.occurred(event),
            });
        }
        self.status.last_event = Some(i64::try_from(seen).unwrap_or(i64::MAX));
        self.set_message(&last.text);
        seen < newest
    }

    /// Returns the time at which a supervisor's event occurred, if the supervisor says so.
    fn occurred(&self, event: &RunEvent) -> Option<Timestamp> {
        let age = SignedDuration::from_micros(i64::try_from(event.age_micros?).ok()?);
        let at = self.now.0.checked_sub(age).ok()?;
        let created = self.metadata.creation_timestamp.as_ref().map(|it| it.0);
        Some(created.map_or(at, |it| at.max(it)))
    }

    /// Sets the status message to what matters most to the user, such as an obstacle or a refused change.
    fn headline(&mut self, observed: &Observed, applied: &Applied) {
        if let Some(obstacle) = &applied.obstacle {
            self.set_message(&obstacle.message);
            return;
        }
        let refused = self.status.condition(condition::ACCEPTED).filter(|it| it.reason == CHANGE_REFUSED);
        if let Some(why) = refused.filter(|_| self.status.phase < Phase::Completed) {
            let why = why.message.clone();
            self.set_message(&why);
            return;
        }
        if self.status.phase == Phase::Linking && self.is_to_pause {
            self.set_message(READY_BUT_PAUSED);
        }
        let lacks_pods = self.status.condition(condition::PODS_READY);
        let lacks_pods = lacks_pods.is_some_and(|it| it.status == "False" && it.reason != "Starting");
        let is_starting = self.status.phase < Phase::Linking;
        let is_unsupervised = !matches!(observed.supervision, Supervision::Known(_));
        if is_starting || is_unsupervised || lacks_pods && self.status.phase < Phase::Completed {
            let kind = match observed.supervision {
                Supervision::Silent(_) => condition::SUPERVISED,
                _ if self.status.holds(condition::PODS_READY) => condition::RUNNING,
                _ => condition::PODS_READY,
            };
            if let Some(it) = self.status.condition(kind) {
                let message = it.message.clone();
                self.set_message(&message);
            }
        }
    }

    fn set_message(&mut self, message: &str) {
        self.status.message = Some(shortened(message, MAX_MESSAGE));
    }

    /// Sets a condition. Returns whether its status or reason has changed.
    fn condition(&mut self, kind: &str, status: &str, reason: &str, message: &str) -> bool {
        let new = Condition {
            kind: kind.into(),
            status: status.into(),
            reason: reason.into(),
            message: shortened(message, MAX_MESSAGE),
            last_transition_time: self.now.clone(),
            observed_generation: self.metadata.generation,
        };
        let Some(old) = self.status.conditions.iter_mut().find(|it| it.kind == kind) else {
            self.status.conditions.push(new);
            return true;
        };
        let changed = (&old.status, &old.reason) != (&new.status, &new.reason);
        let since =
            if old.status == new.status { old.last_transition_time.clone() } else { self.now.clone() };
        *old = Condition { last_transition_time: since, ..new };
        changed
    }

    /// Adds an event about a condition. The same change always gets the same name, so that it is not reported again
    /// if writing the status failed.
    fn add_event(&mut self, kind: &str, reason: &str, note: &str, warning: bool) {
        let before = self.before.and_then(|it| it.condition(kind));
        let since = before.map(|it| format!("{} {} {}", it.status, it.reason, it.last_transition_time.0));
        self.new_events.push(NewEvent {
            name: self.event_name(&format!("{kind} {reason} after {since:?}")),
            reason: reason.into(),
            note: shortened(note, MAX_NOTE),
            warning,
            at: None,
        });
    }

    fn event_name(&self, what: &str) -> String {
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        blake3::hash(format!("{uid} {what}").as_bytes()).to_hex()[..16].to_owned()
    }
}

/// How links are emulated.
struct Emulated {
    /// Name in the status.
    word: &'static str,
    /// Reason in the condition.
    reason: &'static str,
    sentence: String,
}

/// Determines how the links are emulated, from the features that the kernels support.
fn emulated(shaping: Option<&Shaping>) -> Emulated {
    const IN_NODE: &str = "delay lines in the nodes emulate the links";
    let Some(Shaping { places, rates, delays, lacks }) = shaping else {
        return Emulated { word: "inNode", reason: "InNode", sentence: IN_NODE.into() };
    };
    let lacks = lacks.join(", ");
    if *rates == 0 {
        let sentence = format!("{IN_NODE}, because the kernels lack {lacks}");
        Emulated { word: "inNode", reason: "InNode", sentence }
    } else if delays == places {
        let sentence = "traffic control in the pods emulates the links".into();
        Emulated { word: "tc", reason: "TrafficControl", sentence }
    } else {
        let limits = if rates == places {
            "traffic control in the pods limits bandwidth".to_owned()
        } else {
            format!("traffic control limits bandwidth in {rates} of {places} pods")
        };
        let sentence = format!(
            "{limits}, and delay lines in the nodes emulate the rest, because the kernels lack {lacks}"
        );
        Emulated { word: "tc+inNode", reason: "TrafficControlAndInNode", sentence }
    }
}

/// Returns the obstacle that prevents a pod from running; `None` if the pod only needs time.
fn obstacle(pod: &Pod, now: &Time) -> Option<Obstacle> {
    const NEEDS_ACTION: &[&str] = &[
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    ];
    if build::has_lost_node(pod) {
        let node = pod.spec.as_ref().and_then(|it| it.node_name.as_deref()).unwrap_or("(unknown)");
        let message = format!(
            "{} runs on the Kubernetes node {node}, which does not respond; if this node is gone for good, delete the \
             Node",
            pod.name_any()
        );
        return Some(Obstacle { reason: "NodeNotReady", message });
    }
    // This time includes the grace period.
    if pod.metadata.deletion_timestamp.as_ref().is_some_and(|it| is_long_ago(it, now)) {
        let name = pod.name_any();
        let message = format!(
            "{name} is being deleted, but still exists: its Kubernetes node may not respond, or the pod may have \
             finalizers; if its Kubernetes node is gone for good, delete the Node"
        );
        return Some(Obstacle { reason: "Terminating", message });
    }
    let status = pod.status.as_ref()?;
    if build::lacks_ipv4(pod) {
        let message =
            format!("{} has only IPv6 addresses, but processes communicate over IPv4", pod.name_any());
        return Some(Obstacle { reason: "NoIPv4Address", message });
    }
    let unscheduled = status.conditions.iter().flatten().find(|it| {
        it.type_ == "PodScheduled" && it.status == "False" && it.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(it) = unscheduled {
        let message = it.message.clone().unwrap_or_default();
        return Some(Obstacle { reason: "Unschedulable", message: format!("{}: {message}", pod.name_any()) });
    }
    let waiting =
        status.container_statuses.iter().flatten().find_map(|it| it.state.as_ref()?.waiting.as_ref())?;
    let why = waiting.reason.clone().unwrap_or_default();
    NEEDS_ACTION.iter().find(|it| **it == why).map(|reason| Obstacle {
        reason,
        message: format!("{}: {}", pod.name_any(), waiting.message.clone().unwrap_or(why)),
    })
}

/// Returns the obstacle that a pod of another owner is for the pod of the same name.
fn occupied(misplaced: &Misplaced) -> Option<Obstacle> {
    let Misplaced { pod, origin: Origin::Elsewhere(owner), .. } = misplaced else { return None };
    let owner = owner.as_ref().map_or_else(|| "has no owner".to_owned(), |it| format!("belongs to {it}"));
    let message = format!(
        "the pod {pod} already exists, but does not belong to this federation: it {owner}; delete it, or give the \
         federation another name"
    );
    Some(Obstacle { reason: "NameTaken", message })
}

fn is_long_ago(time: &Time, now: &Time) -> bool {
    now.0.duration_since(time.0) > PATIENCE
}

/// Returns the obstacle for a pod whose containers have not started long after the pod was scheduled.
fn not_starting(pod: &Pod, now: &Time) -> Option<Obstacle> {
    let status = pod.status.as_ref()?;
    let has_started = |it: &ContainerStatus| {
        let mut states = [&it.state, &it.last_state].into_iter().flatten();
        it.restart_count > 0 || states.any(|it| it.running.is_some() || it.terminated.is_some())
    };
    if status.container_statuses.iter().flatten().any(has_started) {
        return None;
    }
    let scheduled = status.conditions.iter().flatten().find(|it| it.type_ == "PodScheduled");
    let scheduled = scheduled.filter(|it| it.status == "True")?.last_transition_time.as_ref();
    scheduled.is_some_and(|it| is_long_ago(it, now)).then(|| Obstacle {
        reason: "NotStarting",
        message: format!(
            "{name} was scheduled more than a minute ago, but its containers have not started; \
             `kubectl describe pod --namespace {namespace} {name}` shows the reason",
            name = pod.name_any(),
            namespace = pod.namespace().unwrap_or_default()
        ),
    })
}

/// Returns the value as it appears in the API.
fn word(it: &impl serde::Serialize) -> String {
    match serde_json::to_value(it) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("a word, not {other:?}"),
    }
}

/// Truncates `text` to at most `most` bytes.
pub(super) fn shortened(text: &str, most: usize) -> String {
    const CUT: &str = " …";
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most - CUT.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT}", &text[..end])
}

#[cfg(test)]
mod tests;
