//! The condition `Supervised`, and what the supervisor reports about the clusters.

use faultline_api::supervision::{ClusterState, RunPhase, RunStatus};
use faultline_client::status::{ClusterStatus, Phase, condition};

use super::{Report, word};
use crate::reconcile::assist;
use crate::reconcile::dereference::{Observed, Supervision};
use crate::reconcile::freeze::Frozen;

impl Report<'_> {
    pub(super) fn supervision(&mut self, frozen: &Frozen, observed: &Observed, is_to_pause: bool) {
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
                self.responds(frozen, status);
                self.supervised(frozen, status, observed, is_to_pause);
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
    fn responds(&mut self, frozen: &Frozen, said: &RunStatus) {
        if !assist::has_excess_requests(frozen, said) {
            self.condition(condition::SUPERVISED, "True", "Responding", "the supervisor responds");
            return;
        }
        let reason = "RequestsIgnored";
        let message = "the supervisor responds, but the operator ignores some of its requests, because they concern \
            unknown processes or outnumber the processes; check the image of the supervisor's pod";
        self.warn(condition::SUPERVISED, "True", reason, message);
    }

    /// Reports the supervisor's status.
    fn supervised(&mut self, frozen: &Frozen, said: &RunStatus, observed: &Observed, is_to_pause: bool) {
        let has_backlog = self.report_events(said, observed.event_allowance);
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
        self.links(frozen, said, &observed.links);
        self.run(frozen, said, phase, is_to_pause);
    }
}
