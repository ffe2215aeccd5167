//! Passes what happens in a run to the record of the supervisor, to the metrics and to the observer.

use std::fs::File;

use faultline_core::{Fact, Life, Membership, ProcessId, Time};
use faultline_supervisor::Status;
use faultline_trace::FactsWriter;
use faultline_trace::manifest::EffectEntry;

use super::totals::Totals;
use super::{Observer, RunError};

pub(super) struct Recorder<'a> {
    pub(super) observer: &'a mut dyn Observer,
    pub(super) totals: Totals,
    facts: FactsWriter<File>,
    /// Time of the supervisor's last fact.
    recorded_at: Time,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(
        observer: &'a mut dyn Observer,
        totals: Totals,
        facts: FactsWriter<File>,
    ) -> Recorder<'a> {
        Recorder { observer, totals, facts, recorded_at: Time::ZERO }
    }

    /// Passes on a fact that a process has reported.
    pub(super) fn reported(&mut self, at: Time, process: ProcessId, life: Life, fact: &Fact) {
        self.totals.recorded(at, process, life, fact);
        self.observer.recorded(at, process, life, fact);
    }

    /// Passes on a fact of the supervisor that a predecessor has recorded.
    pub(super) fn is_recorded(&mut self, at: Time, fact: &Fact) {
        self.recorded_at = at;
        self.reported(at, ProcessId::SUPERVISOR, Life(0), fact);
    }

    /// Records a fact of the supervisor, with a time no earlier than that of its last fact.
    pub(super) fn record(&mut self, at: Time, fact: &Fact) -> Result<(), RunError> {
        let now = at.max(self.recorded_at);
        self.facts.write(now, fact).and_then(|()| self.facts.flush()).map_err(RunError::Record)?;
        self.is_recorded(now, fact);
        Ok(())
    }

    /// Seals the facts of the supervisor.
    pub(super) fn seal(&mut self) -> Result<(), RunError> {
        self.facts.seal().map_err(RunError::Record)
    }

    /// Passes on when and where a fault took effect, if that is known.
    pub(super) fn took_effect(&mut self, effect: Option<&EffectEntry>) {
        if let Some(effect) = effect {
            self.totals.took_effect(effect);
            self.observer.took_effect(effect);
        }
    }

    /// Publishes the state of the run.
    pub(super) fn status(&mut self, now: Time, status: &Status, membership: &Membership) {
        self.totals.publish(now, status, membership);
        self.observer.status(now, status);
    }
}
