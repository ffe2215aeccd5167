//! The condition `Accepted`: whether the spec, and the last change to it, can be run.

use faultline_client::status::condition;
use kube::Resource;

use super::Report;
use crate::reconcile::apply::Applied;
use crate::reconcile::dereference::{Observed, Supervision};
use crate::reconcile::follow::Followed;
use crate::reconcile::objects::Obstacle;

/// Reason reported when a change to a federation is refused and the federation continues as before.
pub(super) const CHANGE_REFUSED: &str = "ChangeRefused";

impl Report<'_> {
    /// Reports whether the spec can be run, or whether the last change to it was refused.
    pub(super) fn validity(&mut self, observed: &Observed, applied: &Applied, followed: &Followed) {
        if let Some(Obstacle { reason: reason @ "NameTaken", message }) = &applied.obstacle {
            self.warn(condition::ACCEPTED, "False", reason, message);
        } else if let Some(why) = self.change_refused(observed, followed) {
            self.refused_change(&why);
        } else if !self.awaits_answer(observed) {
            let message = "the federation is valid and can be run";
            self.condition(condition::ACCEPTED, "True", "Valid", message);
        }
    }

    /// Returns the reason why the last change to the spec was refused; `None` if it was not refused. After a refusal,
    /// the run continues as before.
    fn change_refused(&self, observed: &Observed, followed: &Followed) -> Option<String> {
        if followed.refused.is_some() {
            return followed.refused.clone();
        }
        let Supervision::Known(said) = &observed.supervision else { return None };
        let newest = said.amendment.as_ref()?;
        newest.refused.clone().filter(|_| Some(newest.generation) == self.federation.meta().generation)
    }

    /// Returns whether only the supervisor can decide about this generation of the spec, and has not done so: the run has
    /// begun with an earlier generation. If the supervisor once refused this generation and does not repeat its answer,
    /// it may have restarted, or the run may be over.
    fn awaits_answer(&self, observed: &Observed) -> bool {
        let generation = self.federation.meta().generation;
        let Some(accepted) = self.status.condition(condition::ACCEPTED) else { return false };
        let is_decided = accepted.observed_generation == generation && accepted.reason != CHANGE_REFUSED;
        let answered = match &observed.supervision {
            Supervision::Known(said) => said.amendment.as_ref().map(|it| it.generation),
            _ => None,
        };
        // The first generation is not sent to the supervisor.
        self.federation.has_begun() && generation > Some(1) && !is_decided && answered != generation
    }

    /// Reports a refused change, once per change.
    fn refused_change(&mut self, why: &str) {
        let message = format!(
            "the federation keeps running as before, and ignores all changes to its spec until this one is reverted: \
             {why}"
        );
        let generation = self.federation.meta().generation;
        let before = self.status.condition(condition::ACCEPTED).cloned();
        let told =
            before.is_some_and(|it| it.reason == CHANGE_REFUSED && it.observed_generation == generation);
        self.condition(condition::ACCEPTED, "False", CHANGE_REFUSED, &message);
        if !told {
            self.add_warning(&format!("{CHANGE_REFUSED} {generation:?}"), CHANGE_REFUSED, &message);
        }
    }
}
