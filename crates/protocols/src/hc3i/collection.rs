//! Garbage collection (section 3.5): removing the checkpoints and log entries that no recovery can need.
//!
//! The deciding coordinator knows which checkpoints each cluster stores, and computes the recovery line for a failure
//! of all clusters: the checkpoint that each cluster would restore. If fewer clusters fail, none of them restores an
//! older checkpoint, because the line for several failures is the minimum of the lines for each failure. By default,
//! the coordinator of the first permanent cluster asks all others and decides for them. With
//! [`CollectBy::EveryCluster`], the coordinator of each cluster decides for its own cluster, from the lists that it has
//! received.
//!
//! An outdated list is harmless: checkpoints stored after it was sent only move the line forward, so no recovery
//! crosses a line that was computed from it. But no list may predate a rollback that another list includes, since the
//! line would then rest on undone checkpoints. All lists must therefore agree on the incarnations of all clusters;
//! otherwise nothing is removed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Claim, GroupId, Incarnation, Position, Presence, ProcessId, Span, Time, To, Vectors,
};

use super::config::{CollectBy, Rule};
use super::message::{Collection, Control, Inventory, RestorableCheckpoint};
use super::{Coordination, Hc3i, Phase, ProtocolHost, placement};
use crate::machines::{Checkpoint, recovery_line};

/// The lists that a coordinator has received for a collection.
#[derive(Clone, Debug, Default)]
pub(super) struct Collecting {
    /// Number of collections begun in this life. Without an initiator, corrections of a list count as well.
    round: u32,
    /// Whether the current collection is still undecided. Used only without an initiator.
    due: bool,
    /// The latest list from each cluster; at an initiator, the lists of this round.
    stock: BTreeMap<GroupId, Arc<Inventory>>,
    /// The incarnation and round of the latest list from each cluster. Used only without an initiator.
    latest: BTreeMap<GroupId, (Incarnation, u32)>,
    /// Clusters that have sent a list since the last decision. Used only without an initiator.
    reporting: BTreeSet<GroupId>,
}

impl Hc3i {
    /// Begins a collection if one is due. Has an effect only on the coordinator.
    pub(super) fn maybe_collect(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(coordination) = &mut self.coordination else {
            return;
        };
        if coordination.collect_at.is_none_or(|at| at > now) {
            return;
        }
        // The next collection replaces this one, so leave all clusters enough time to answer first.
        let least = match self.config.collect_by {
            CollectBy::Initiator => self.config.retry_every,
            CollectBy::EveryCluster => Span::ZERO,
        };
        coordination.collect_at = self.config.collect_every.map(|every| now + every.max(least));
        match self.config.collect_by {
            CollectBy::Initiator => self.request_inventories(now, host),
            CollectBy::EveryCluster => self.announce_inventory(now, host),
        }
    }

    /// Returns whether this cluster is the initiator: the first cluster that is present from the start to the end of
    /// the run.
    pub(super) fn is_initiator(&self) -> bool {
        self.clusters().find(|&it| self.presence(it) == Presence::Permanent) == Some(self.cluster)
    }

    /// Asks every cluster which checkpoints it stores. Abandons a collection that is still in progress. Runs on the
    /// initiator.
    fn request_inventories(&mut self, now: Time, host: &mut ProtocolHost) {
        let collecting = &mut self.coordination().collecting;
        collecting.round += 1;
        collecting.stock.clear();
        let round = collecting.round;
        self.send_to_other_coordinators(&Control::Ask { round }, host);
        if let Some(inventory) = self.inventory() {
            self.inventory_received(self.me, round, inventory, now, host);
        }
    }

    /// Sends every other cluster a list of this cluster's stored checkpoints. If the previous collection is still
    /// undecided, first tries to decide it, using the latest list from each cluster. Called only without an initiator.
    fn announce_inventory(&mut self, now: Time, host: &mut ProtocolHost) {
        if self.coordination().collecting.due {
            self.decide_alone(now, host);
        }
        let collecting = &mut self.coordination().collecting;
        collecting.round += 1;
        collecting.due = true;
        let round = collecting.round;
        if let Some(inventory) = self.inventory() {
            self.send_to_other_coordinators(&Control::Stock { round, inventory }, host);
        }
        self.decide_once_all_have_reported(now, host);
    }

    /// Replaces the list that other clusters may still use, since a checkpoint in it was found lost. An initiator asks
    /// for a new list before each decision.
    pub(super) fn correct_inventory(&mut self, host: &mut ProtocolHost) {
        if self.config.collect_by == CollectBy::EveryCluster
            && let Some(inventory) = self.inventory()
            && let Some(coordination) = &mut self.coordination
        {
            coordination.collecting.round += 1;
            let round = coordination.collecting.round;
            self.send_to_other_coordinators(&Control::Stock { round, inventory }, host);
        }
    }

    fn send_to_other_coordinators(&self, message: &Control, host: &mut ProtocolHost) {
        for cluster in self.others() {
            host.control(To::One(self.members_of(cluster)[0]), message.clone());
        }
    }

    /// Reports the stored checkpoints, unless a recovery is about to change them. Runs on the coordinator.
    pub(super) fn inventory_requested(&mut self, from: ProcessId, round: u32, host: &mut ProtocolHost) {
        if let Some(inventory) = self.inventory() {
            host.control(To::One(from), Control::Stock { round, inventory });
        }
    }

    fn inventory(&self) -> Option<Arc<Inventory>> {
        if matches!(self.phase, Phase::Recovering(_)) || self.kept.is_empty() {
            return None;
        }
        // A checkpoint that contains something undone elsewhere will not be restored: this cluster is about to roll
        // back past it.
        let holds_undone = self.kept.iter().any(|kept| self.undone_in(&kept.vectors).is_some());
        if holds_undone && self.obeys(Rule::CollectsOnSound) {
            return None;
        }
        let mut incarnations: Vec<_> = self.clusters().map(|cluster| self.history.known(cluster)).collect();
        incarnations[self.cluster.place()] = self.position.incarnation;
        let covered_only = self.obeys(Rule::CollectsOnCovered);
        let covered = self.kept.iter().filter(|kept| self.is_covered(kept) || !covered_only);
        let checkpoints = covered.map(|kept| (kept.checkpoint(), kept.vectors.clone())).collect();
        Some(Arc::new(Inventory { incarnations, checkpoints }))
    }

    /// Handles a coordinator's list of stored checkpoints.
    pub(super) fn inventory_received(
        &mut self,
        from: ProcessId,
        round: u32,
        inventory: Arc<Inventory>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let cluster = self.cluster_of(from);
        let by_initiator = self.config.collect_by == CollectBy::Initiator;
        let collecting = &mut self.coordination().collecting;
        if by_initiator && collecting.round != round {
            return;
        }
        if !by_initiator {
            // A list may be overtaken by the one that corrects it. A life is followed by a new incarnation.
            let incarnation = inventory.incarnations.get(cluster.place()).copied();
            let number = (incarnation.unwrap_or_default(), round);
            if collecting.latest.get(&cluster).is_some_and(|latest| *latest > number) {
                return;
            }
            collecting.latest.insert(cluster, number);
        }
        collecting.stock.insert(cluster, inventory);
        collecting.reporting.insert(cluster);
        if by_initiator {
            self.decide_for_all(now, host);
        } else {
            self.decide_once_all_have_reported(now, host);
        }
    }

    /// Decides once all clusters have answered. Runs on the initiator.
    fn decide_for_all(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(Coordination { collecting, .. }) = self.coordination.as_deref() else { return };
        let round = collecting.round;
        let Some(stock) = self.complete_inventories(&collecting.stock) else {
            return;
        };
        self.coordination().collecting.stock.clear();
        let Some(collection) = self.decision(&stock) else {
            return;
        };
        self.send_to_other_coordinators(&Control::Collect { round, collection: collection.clone() }, host);
        self.collect(round, &collection, now, host);
    }

    /// Makes one decision per round, once every other cluster has sent a list since the last decision. Called only
    /// without an initiator.
    fn decide_once_all_have_reported(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(Coordination { collecting, .. }) = self.coordination.as_deref() else { return };
        if collecting.due && self.others().all(|it| collecting.reporting.contains(&it)) {
            self.decide_alone(now, host);
        }
    }

    /// Decides for this cluster, from its current list and the latest lists of the others. Called only without an
    /// initiator.
    fn decide_alone(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(own) = self.inventory() else {
            return;
        };
        let me = self.cluster;
        let collecting = &mut self.coordination().collecting;
        collecting.stock.insert(me, own);
        let mut stock = collecting.stock.clone();
        if !self.obeys(Rule::WaitsForSilent) {
            self.add_silent_clusters(&mut stock);
        }
        let Some(collection) = self.complete_inventories(&stock).and_then(|stock| self.decision(&stock))
        else {
            return;
        };
        let collecting = &mut self.coordination().collecting;
        collecting.reporting.clear();
        collecting.due = false;
        let round = collecting.round;
        self.collect(round, &collection, now, host);
    }

    /// Adds the missing lists, as if the clusters that have sent none could never roll back. Used only by the defect
    /// that does not wait for them.
    fn add_silent_clusters(&self, stock: &mut BTreeMap<GroupId, Arc<Inventory>>) {
        let incarnations = stock[&self.cluster].incarnations.clone();
        let never_rolls_back =
            Arc::new(Inventory { incarnations, checkpoints: Vec::from([never_rolling_back()]) });
        for cluster in self.clusters() {
            stock.entry(cluster).or_insert_with(|| never_rolls_back.clone());
        }
    }

    /// Returns one list per cluster, or `None` if a present cluster has sent none. A cluster that has not joined yet
    /// counts as having stored no checkpoints, which is the safe assumption. A cluster that has left never rolls back.
    fn complete_inventories(
        &self,
        received: &BTreeMap<GroupId, Arc<Inventory>>,
    ) -> Option<Vec<Arc<Inventory>>> {
        let without = |checkpoints| Some(Arc::new(Inventory { incarnations: Vec::new(), checkpoints }));
        let list = |cluster| match self.presence(cluster) {
            Presence::Awaited => without(Vec::new()),
            Presence::Left => without(Vec::from([never_rolling_back()])),
            Presence::Present if cluster != self.cluster && !self.obeys(Rule::CountsGuests) => {
                without(Vec::from([never_rolling_back()]))
            }
            Presence::Permanent | Presence::Present | Presence::Leaving => received.get(&cluster).cloned(),
        };
        self.clusters().map(list).collect()
    }

    /// Returns what can be removed according to these lists (one per cluster), or `None` if some predate a rollback
    /// that others include. Rollbacks of clusters that have left are ignored, since clusters that joined later do not
    /// know about them.
    fn decision(&self, stock: &[Arc<Inventory>]) -> Option<Arc<Collection>> {
        let incarnations = stock[self.cluster.place()].incarnations.clone();
        let counts = |cluster: &GroupId| self.presence(*cluster) != Presence::Left;
        let agree = stock.iter().filter(|told| !told.incarnations.is_empty()).all(|told| {
            let same = |it: GroupId| told.incarnations[it.place()] == incarnations[it.place()];
            self.clusters().filter(counts).all(same)
        });
        let stored: Vec<_> = stock.iter().map(|it| &it.checkpoints[..]).collect();
        let mut worst = recovery_line(&stored, |vectors| &vectors.delivered);
        // Clusters that have left never roll back, and need no entry.
        worst.iter_mut().filter(|it| **it == NEVER_ROLLS_BACK).for_each(|it| *it = Checkpoint::default());
        (agree || !self.obeys(Rule::CollectsOnAgreement))
            .then(|| Arc::new(Collection { incarnations, worst: Arc::new(worst) }))
    }

    /// Removes everything that is not needed, unless this process's cluster is recovering, or has rolled back since the
    /// decision.
    pub(super) fn collect(
        &mut self,
        round: u32,
        collection: &Arc<Collection>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if self.coordinates() {
            self.broadcast(Control::Collect { round, collection: collection.clone() }, host);
        }
        let recovering = matches!(self.phase, Phase::Recovering(_) | Phase::Serving);
        if recovering || collection.incarnations[self.cluster.place()] != self.position.incarnation {
            return;
        }
        self.copies.note_all_collected(&collection.worst);
        if self.history.collect_all(&collection.worst) {
            self.write_record(None, host);
        }
        let mut below = collection.worst[self.cluster.place()].position.sn;
        if !self.obeys(Rule::CollectsBelowWorst) {
            below = below.next();
        }
        let gone = self.kept.iter().take_while(|kept| kept.position.sn < below).count();
        let me = self.me;
        let kept = self.kept.drain(..gone).map(|kept: RestorableCheckpoint| kept.part(me));
        let incomplete = self.incomplete.extract_if(.., |name| name.sn < below);
        let names: Arc<[_]> = kept.chain(incomplete).collect();
        for &name in names.iter() {
            host.delete(name);
        }
        if !names.is_empty() {
            let past = self.history.of(self.cluster);
            for holder in placement::holders(&self.config, &self.membership, self.me) {
                let (past, names) = (past.clone(), names.clone());
                host.control(To::One(holder), Control::Discard { past, names });
            }
        }
        let log = self.collect_log(collection);
        host.claim(Claim::Collected { round, below, kept: self.kept.len() as u32, log });
        self.report_if_unneeded(now, host);
    }

    /// Removes logged messages that were delivered before the oldest checkpoint that their receiver's cluster may have
    /// to restore, unless this process has yet to learn of a rollback that undid such deliveries.
    fn collect_log(&mut self, collection: &Collection) -> u32 {
        let mut log = core::mem::take(&mut self.log);
        let keeps_at_worst = self.obeys(Rule::KeepsLogAtWorst);
        let removed = Arc::make_mut(&mut log).retain(|entry| {
            let cluster = self.cluster_of(entry.id.to);
            let worst = collection.worst[cluster.place()].position.sn;
            let aware = self.history.known(cluster) >= collection.incarnations[cluster.place()]
                || !self.obeys(Rule::CollectsLogAware);
            let settled = |at: Position| {
                !self.is_undone(cluster, at) && (at.sn < worst || !keeps_at_worst && at.sn == worst)
            };
            !(aware && entry.acknowledged.is_some_and(settled))
        });
        self.log = log;
        removed
    }
}

/// The only checkpoint listed for a cluster that never rolls back.
const NEVER_ROLLS_BACK: Checkpoint = Checkpoint { position: Position::new(0, u32::MAX), attempt: Attempt(1) };

/// Returns the list entry of a cluster that never rolls back.
fn never_rolling_back() -> (Checkpoint, Arc<Vectors>) {
    (NEVER_ROLLS_BACK, Arc::default())
}
