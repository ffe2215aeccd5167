//! Alerts: telling other clusters about rollbacks, and learning of their rollbacks (section 3.4).

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Cause, Claim, GroupId, Incarnation, Membership, Position, ProcessId, Time, To};

use super::config::Rule;
use super::delivery::Early;
use super::message::Control;
use super::{Hc3i, Phase, ProtocolHost, Waiter};
use crate::machines::{GroupHistory, History};

/// Alerts that this process has sent or is passing on to its cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Alerts {
    outstanding: Vec<Outstanding>,
    spreads: Vec<Spread>,
}

/// An alert that a cluster has not confirmed yet.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    cluster: GroupId,
    tries: usize,
    again_at: Time,
}

/// An alert received for this process's cluster, kept until all members have recorded it.
#[derive(Clone, Debug)]
struct Spread {
    asker: (ProcessId, Incarnation),
    awaited: Vec<ProcessId>,
}

impl Alerts {
    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.outstanding.iter().map(|it| it.again_at).min()
    }
}

impl Hc3i {
    /// Alerts every other cluster after a rollback. Runs on the coordinator.
    pub(super) fn send_alerts(&mut self, now: Time, host: &mut ProtocolHost) {
        self.alerts.outstanding =
            self.others().map(|cluster| Outstanding { cluster, tries: 0, again_at: now }).collect();
        self.retry_alerts(now, host);
        if !self.obeys(Rule::RetriesAlerts) {
            self.alerts.outstanding.clear();
        }
    }

    /// Sends an alert to a cluster that has just joined. Runs on the coordinator.
    pub(super) fn start_alerting(&mut self, cluster: GroupId, now: Time, host: &mut ProtocolHost) {
        self.alerts.outstanding.push(Outstanding { cluster, tries: 0, again_at: now });
        self.retry_alerts(now, host);
    }

    /// Stops waiting for a confirmation from a cluster that has left. Has an effect only on the coordinator.
    pub(super) fn stop_alerting(&mut self, cluster: GroupId, now: Time, host: &mut ProtocolHost) {
        self.alerts.outstanding.retain(|alert| alert.cluster != cluster);
        if self.coordinates() {
            self.maybe_settled(now, host);
            self.maybe_release(host);
        }
    }

    /// Returns whether any cluster has yet to confirm an alert.
    pub(super) fn alerts_are_outstanding(&self) -> bool {
        !self.alerts.outstanding.is_empty()
    }

    /// Sends each due alert to a live member of the cluster that has to confirm it. Each attempt tries the next member.
    pub(super) fn retry_alerts(&mut self, now: Time, host: &mut ProtocolHost) {
        let mut outstanding = core::mem::take(&mut self.alerts.outstanding);
        for alert in outstanding.iter_mut().filter(|alert| alert.again_at <= now) {
            let members = self.members_of(alert.cluster);
            let live: Vec<ProcessId> = members.iter().copied().filter(|&member| self.is_up(member)).collect();
            if let Some(&receiver) = live.get(alert.tries % live.len().max(1)) {
                let (cluster, past) = (self.cluster, self.past_to_announce());
                host.control(To::One(receiver), Control::Alert { cluster, past });
            }
            alert.tries += 1;
            alert.again_at = now + self.config.retry_every;
        }
        self.alerts.outstanding = outstanding;
    }

    /// Returns the history to announce in an alert: all rollbacks of this process's cluster, because a receiver may
    /// have missed earlier alerts.
    fn past_to_announce(&self) -> Arc<GroupHistory> {
        let past = self.history_to_announce().of(self.cluster);
        match past.rollbacks.last() {
            Some(&last) if !self.obeys(Rule::AlertsAll) => {
                Arc::new(GroupHistory { rollbacks: Vec::from([last]), collected: past.collected })
            }
            _ => past,
        }
    }

    /// Returns the tables that other clusters may learn: everything except a rollback of this process's cluster that is
    /// in progress. Its record may not be durable yet, and if the record is lost, another rollback gets its incarnation.
    fn history_to_announce(&self) -> History {
        match self.obeys(Rule::AnnouncesDurable) {
            true => self.history.up_to(self.cluster, self.position.incarnation),
            false => self.history.clone(),
        }
    }

    /// Tells the whole cluster about another cluster's rollback. The alert is confirmed once all members have recorded
    /// the rollback. Runs on any member, in any phase.
    pub(super) fn alerted(
        &mut self,
        from: ProcessId,
        cluster: GroupId,
        past: &Arc<GroupHistory>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let asker = (from, past.known());
        // An alert that a newer one has overtaken contains nothing new, and its confirmation would not count.
        let is_overtaken = |spread: &Spread| spread.asker.0 == from && spread.asker.1 > asker.1;
        if self.alerts.spreads.iter().any(is_overtaken) {
            return;
        }
        self.alerts.spreads.retain(|spread| spread.asker.0 != from);
        self.alerts.spreads.push(Spread { asker, awaited: self.members.iter().copied().collect() });
        self.spread(History::about(cluster, past), Some(asker), now, host);
    }

    fn spread(
        &mut self,
        history: History,
        asker: Option<(ProcessId, Incarnation)>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let history = Arc::new(history);
        self.broadcast(Control::Learn { history: history.clone(), asker }, host);
        self.learn(self.me, &history, asker, now, host);
    }

    /// Records rollbacks of other clusters in this process's tables, and acts on those that are new.
    pub(super) fn learn(
        &mut self,
        spreader: ProcessId,
        history: &History,
        asker: Option<(ProcessId, Incarnation)>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let before = self.history.clone();
        let news = self.history.merge(&before.believable(history.clone()));
        if self.history != before || asker.is_some() {
            self.write_record(asker.map(|asker| Waiter::Learnt(spreader, asker)), host);
        }
        for alert in self.alerts.outstanding.iter_mut().filter(|alert| news.contains(&alert.cluster)) {
            // The cluster rolled back, most likely because of the alert, and can confirm it now.
            alert.again_at = now;
        }
        for &cluster in &news {
            let &(incarnation, sn) =
                self.history.rollbacks(cluster).last().expect("a listed cluster has a new rollback");
            host.claim(Claim::Alerted { from: cluster, position: Position { incarnation, sn } });
        }
        // Members that are recovering, or have to roll back, consult the tables when they resume.
        if !news.is_empty() && !matches!(self.phase, Phase::Recovering(_) | Phase::Serving) {
            if self.is_clean() {
                let is_news = |this: &Hc3i, receiver| news.contains(&this.cluster_of(receiver));
                self.resend(|this, entry| is_news(this, entry.id.to) && this.is_owed(entry), host);
            }
            self.roll_back_if_undone(now, host);
            self.replay_waiting(now, host);
        }
    }

    /// Confirms an alert that this member spreads, once all members have recorded it. While the cluster still has to
    /// roll back because of the alert, the member does not confirm it, and the alert is repeated.
    pub(super) fn learnt(
        &mut self,
        from: ProcessId,
        asker: (ProcessId, Incarnation),
        clean: bool,
        host: &mut ProtocolHost,
    ) {
        let Some(place) = self.alerts.spreads.iter().position(|spread| spread.asker == asker) else {
            return;
        };
        if !clean && self.obeys(Rule::WaitsForSettled) {
            self.alerts.spreads.swap_remove(place);
            return;
        }
        let spread = &mut self.alerts.spreads[place];
        spread.awaited.retain(|&member| member != from);
        if spread.awaited.is_empty() {
            self.alerts.spreads.swap_remove(place);
            let (receiver, incarnation) = asker;
            let history = Arc::new(self.history_to_announce());
            host.control(
                To::One(receiver),
                Control::AlertRecorded { cluster: self.cluster, incarnation, history },
            );
        }
    }

    /// Handles a cluster's confirmation of the alert. The tables attached to the confirmation count as
    /// alerts. Runs on the coordinator.
    pub(super) fn alert_recorded(
        &mut self,
        cluster: GroupId,
        incarnation: Incarnation,
        history: &History,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let mut all = self.history.clone();
        all.merge(history);
        if all != self.history {
            self.spread(history.clone(), None, now, host);
        }
        if self.history.is_broken(self.cluster) && self.obeys(Rule::NeverRestoresCollected) {
            // The restored checkpoint had been collected, but no process that knew this could report it earlier.
            self.begin_next_round(Cause::Failure, now, host);
        } else if incarnation >= self.position.incarnation {
            self.alerts.outstanding.retain(|alert| alert.cluster != cluster);
            self.maybe_settled(now, host);
            self.maybe_release(host);
        }
    }

    /// Informs the cluster as soon as no alert is outstanding. Runs on the coordinator.
    pub(super) fn maybe_settled(&mut self, now: Time, host: &mut ProtocolHost) {
        if self.alerts.outstanding.is_empty() && !self.settled && !matches!(self.phase, Phase::Recovering(_))
        {
            let incarnation = self.position.incarnation;
            self.broadcast(Control::Settled { incarnation }, host);
            self.settle(incarnation, now, host);
        }
    }

    /// Resumes the delivery of messages from other clusters.
    pub(super) fn settle(&mut self, incarnation: Incarnation, now: Time, host: &mut ProtocolHost) {
        let here = incarnation == self.position.incarnation && !matches!(self.phase, Phase::Recovering(_));
        if here && !self.settled {
            self.settled = true;
            self.replay_waiting(now, host);
        } else if incarnation > self.position.incarnation {
            self.early.push(Early::Settled { incarnation });
        }
    }

    /// Re-sends, to each receiver that began a new life, the messages that were in transit to its previous
    /// life.
    pub(super) fn watch_receivers(&mut self, old: &Membership, host: &mut ProtocolHost) {
        if matches!(self.phase, Phase::Recovering(_) | Phase::Serving) || !self.obeys(Rule::ResendsToNewLives)
        {
            return;
        }
        let reborn: Vec<ProcessId> =
            self.log.receivers().filter(|&receiver| self.began_new_life(receiver, old)).collect();
        if !reborn.is_empty() {
            self.resend(|this, entry| reborn.contains(&entry.id.to) && this.is_owed(entry), host);
        }
    }
}
