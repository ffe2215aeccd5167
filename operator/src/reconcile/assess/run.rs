//! The conditions `Running` and `Completed`.

use faultline_api::supervision::{RunPhase, RunStatus, RunVerdict};
use faultline_client::status::{Phase, condition};
use kube::ResourceExt;

use super::{READY_BUT_PAUSED, Report, word};
use crate::reconcile::dereference::{Observed, RECORD_LOST};
use crate::reconcile::freeze::Frozen;

impl Report<'_> {
    pub(super) fn run(&mut self, frozen: &Frozen, said: &RunStatus, phase: RunPhase, is_to_pause: bool) {
        let waiting = || match said.missing.as_slice() {
            [] => "all processes are ready".to_owned(),
            [one] => format!("waiting for {one}"),
            many => {
                format!("waiting for {} of {} processes, including {}", many.len(), frozen.nodes(), many[0])
            }
        };
        match phase {
            RunPhase::Gathering => {
                self.condition(condition::RUNNING, "False", "Gathering", &waiting());
            }
            RunPhase::Measuring if is_to_pause => {
                self.condition(condition::RUNNING, "False", "Paused", READY_BUT_PAUSED);
            }
            RunPhase::Paused => {
                let message = "the federation is paused until `spec.pause` is false";
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

    /// Reports that the run is over before it began, because a pod could not start.
    pub(super) fn not_started(&mut self, why: &str) {
        self.status.phase = Phase::Completed;
        self.status.verdict = Some(word(&RunVerdict::Unknown));
        self.condition(condition::RUNNING, "False", "Ended", "the run ended before the application started");
        self.warn(condition::COMPLETED, "True", condition::PODS_NOT_STARTED, why);
        self.set_message(why);
    }

    /// Reports that the run is over and its record is lost. The run has a verdict only if it was judged before.
    pub(super) fn record_lost(&mut self) {
        let message = "the record of the run was lost when the supervisor's pod was replaced; set \
            spec.kubernetes.results to store records on a volume that outlives the pod";
        self.status.phase = Phase::Completed;
        self.condition(condition::RUNNING, "False", "Ended", "the run has ended");
        self.condition(condition::SUPERVISED, "False", RECORD_LOST, message);
        self.warn(condition::COMPLETED, "True", RECORD_LOST, message);
        self.set_message(message);
    }

    /// Remembers which pod keeps the record, if the record does not outlive the pod.
    pub(super) fn record_kept(&mut self, frozen: &Frozen, observed: &Observed) {
        let kubernetes = frozen.federation.spec.kubernetes.as_ref();
        let is_on_volume = kubernetes.is_some_and(|it| it.results.is_some());
        self.status.record_in = observed.supervisor().and_then(|it| it.uid()).filter(|_| !is_on_volume);
    }
}
