//! Alerts: announcing a rollback to all other processes, and following their rollbacks (I6, I7).

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Cause, Claim, Incarnation, Position, ProcessId, Time, To};

use super::message::Control;
use super::rank::Rank;
use super::store::Waiter;
use super::{ProtocolHost, Rule, group_of};
use crate::machines::{GroupHistory, History};

/// Alerts that are not confirmed yet: for each, the receiver and the time at which it is sent again.
#[derive(Clone, Debug, Default)]
pub(super) struct Alerts(Vec<(ProcessId, Option<Time>)>);

impl Alerts {
    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.0.iter().filter_map(|&(_, at)| at).min()
    }
}

impl Rank {
    /// Alerts all other ranks after a rollback.
    pub(super) fn send_alerts(&mut self, now: Time, host: &mut ProtocolHost) {
        self.alerts = Alerts(self.others().map(|other| (other, Some(now))).collect());
        self.send_due_alerts(now, host);
        self.maybe_settle(host);
    }

    /// Sends the alerts that are due, unless their receivers are down. They omit a rollback that is in progress: its
    /// record may not be durable yet, and if the record is lost, another rollback gets its incarnation.
    pub(super) fn send_due_alerts(&mut self, now: Time, host: &mut ProtocolHost) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if !self.alerts.0.iter().any(|&(_, at)| is_due(at)) {
            return;
        }
        let newest = match self.obeys(Rule::AnnouncesDurable) {
            true => self.position.incarnation,
            false => Incarnation(u32::MAX),
        };
        let me = group_of(self.me);
        let past = self.store.history.up_to(me, newest).of(me);
        let again = Some(now + self.config.retry_every).filter(|_| self.obeys(Rule::RetriesAlerts));
        for (receiver, at) in self.alerts.0.iter_mut().filter(|(_, at)| is_due(*at)) {
            if self.membership.member(*receiver).up {
                host.control(To::One(*receiver), Control::Alert(past.clone()));
            }
            *at = again;
        }
    }

    /// Records another process's alert, and confirms the alert once the record is durable.
    pub(super) fn alerted(
        &mut self,
        from: ProcessId,
        past: &Arc<GroupHistory>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let waiter = Waiter::Alert(from, past.known());
        self.learn(History::about(group_of(from), past), Some(waiter), now, host);
    }

    /// Confirms an alert, unless this process still has to roll back because of it. In that case, the sender
    /// repeats the alert.
    pub(super) fn confirm(&mut self, from: ProcessId, incarnation: Incarnation, host: &mut ProtocolHost) {
        let is_clean = !self.is_recovering() && self.undone_in(&self.delivered).is_none();
        if is_clean {
            let history = Arc::new(self.store.history.clone());
            host.control(To::One(from), Control::Confirm { incarnation, history });
        }
    }

    /// Handles the confirmation of an alert. The sender's table counts as an alert from every process in it.
    pub(super) fn confirmed(
        &mut self,
        from: ProcessId,
        incarnation: Incarnation,
        history: &Arc<History>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        self.learn(History::clone(history), None, now, host);
        if self.store.history.is_broken(group_of(self.me)) && self.obeys(Rule::NeverRestoresCollected) {
            // The restored checkpoint had been collected, but no process that knew this could report it earlier.
            if !self.is_recovering() {
                self.recover_again(now, host);
            }
        } else if incarnation >= self.position.incarnation {
            self.alerts.0.retain(|&(other, _)| other != from);
            self.maybe_settle(host);
        }
    }

    /// Resumes the delivery of messages from other processes once all of them have confirmed the alert. Until
    /// then, a message may come from a state that is about to be undone, and delivering it could make
    /// rollbacks trigger each other endlessly.
    fn maybe_settle(&mut self, host: &mut ProtocolHost) {
        if self.alerts.0.is_empty() && !self.is_settled && !self.is_recovering() {
            self.is_settled = true;
            self.replay_waiting(host);
        }
    }

    /// Adds rollbacks to the table, and acts on those that are new: rolls back, or re-sends the messages whose
    /// deliveries they undid.
    fn learn(&mut self, history: History, waiter: Option<Waiter>, now: Time, host: &mut ProtocolHost) {
        let before = self.store.history.clone();
        let news = self.store.history.merge(&before.believable(history));
        if self.store.history != before || waiter.is_some() {
            self.store.record(waiter, host);
        }
        for &group in &news {
            let &(incarnation, sn) =
                self.store.history.rollbacks(group).last().expect("a listed process has a new rollback");
            host.claim(Claim::Alerted { from: group, position: Position { incarnation, sn } });
        }
        // A process that rolled back can most likely confirm an alert now.
        for (other, at) in &mut self.alerts.0 {
            *at = at.map(|at| if news.contains(&group_of(*other)) { now } else { at });
        }
        // A recovering process consults the table before it resumes.
        if news.is_empty() || self.is_recovering() {
            return;
        }
        match self.undone_in(&self.delivered).filter(|_| self.obeys(Rule::Propagates)) {
            Some((from, position)) => self.recover_because(Cause::Alert { from, position }, now, host),
            None => {
                if self.obeys(Rule::ResendsUndone) {
                    self.resend(|this, it| news.contains(&group_of(it.id.to)) && this.is_owed(it), host);
                }
                self.replay_waiting(host);
            }
        }
    }
}
