//! Garbage collection (section 3.5; rule 21): removing the checkpoints and log entries that no recovery can need.
//!
//! The coordinator of the first cluster asks every other for its stored checkpoints, computes where each cluster would
//! end if all of them failed at once (finding 6: the closure of a union is the minimum of the closures), and tells
//! everyone. A rollback in between changes an incarnation, and the collection comes to nothing.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Claim, ClusterId, Position, ProcessId, Time, To};

use super::config::Defect;
use super::history::Checkpoint;
use super::message::{Collection, Control, Inventory, Kept};
use super::{Desk, Hc3i, Phase, placement};

/// A collection that is under way.
#[derive(Clone, Debug)]
pub(super) struct Collecting {
    round: u32,
    /// By cluster.
    stock: Vec<Option<Arc<Inventory>>>,
}

impl Hc3i {
    /// Initiator: begins a collection when its time has come; one that is still under way is given up.
    pub(super) fn maybe_collect(&mut self, now: Time, host: &mut Desk) {
        let Some(coordination) = &mut self.coordination else {
            return;
        };
        if coordination.collect_at.is_none_or(|at| at > now) {
            return;
        }
        let round = coordination.collecting.as_ref().map_or(0, |it| it.round) + 1;
        coordination.collect_at = self.config.collect_every.map(|every| now + every);
        let stock = core::iter::repeat_n(None, self.clusters.into()).collect();
        self.coordination().collecting = Some(Collecting { round, stock });
        for cluster in self.clusters().filter(|&cluster| cluster != self.cluster) {
            let coordinator = self.members_of(cluster)[0];
            host.control(To::One(coordinator), Control::Ask { round });
        }
        if let Some(inventory) = self.inventory() {
            self.stock_told(self.me, round, inventory, host);
        }
    }

    /// Coordinator of a cluster: says what is stored, unless that is just being settled.
    pub(super) fn asked_for_stock(&mut self, from: ProcessId, round: u32, host: &mut Desk) {
        if let Some(inventory) = self.inventory() {
            host.control(To::One(from), Control::Stock { round, inventory });
        }
    }

    fn inventory(&self) -> Option<Arc<Inventory>> {
        if matches!(self.phase, Phase::Recovering(_)) || self.kept.is_empty() {
            return None;
        }
        // A checkpoint that holds what was undone elsewhere will not be restored: the rollback is on its way.
        let spoilt = self.kept.iter().any(|kept| self.undone_in(&kept.vectors).is_some());
        if spoilt && !self.has(Defect::CollectsOnSpoilt) {
            return None;
        }
        let mut incarnations: Vec<_> = self.clusters().map(|cluster| self.history.known(cluster)).collect();
        incarnations[self.cluster.index()] = self.position.incarnation;
        let covered = self.kept.iter().filter(|kept| kept.covered);
        let checkpoints = covered.map(|kept| (kept.checkpoint(), kept.vectors.clone())).collect();
        Some(Arc::new(Inventory { incarnations, checkpoints }))
    }

    /// Initiator: decides when all have answered and agree on who rolled back how often.
    pub(super) fn stock_told(
        &mut self,
        from: ProcessId,
        round: u32,
        inventory: Arc<Inventory>,
        host: &mut Desk,
    ) {
        let cluster = self.cluster_of(from);
        let Some(collecting) = self.coordination().collecting.as_mut().filter(|it| it.round == round) else {
            return;
        };
        collecting.stock[cluster.index()] = Some(inventory);
        let Some(stock) = collecting.stock.iter().cloned().collect::<Option<Vec<_>>>() else {
            return;
        };
        collecting.stock.fill(None);
        let incarnations = stock[0].incarnations.clone();
        if stock.iter().any(|inventory| inventory.incarnations != incarnations) {
            return;
        }
        let collection = Arc::new(Collection { incarnations, worst: worst_line(&stock) });
        for cluster in self.clusters().filter(|&cluster| cluster != self.cluster) {
            let coordinator = self.members_of(cluster)[0];
            host.control(To::One(coordinator), Control::Collect { round, collection: collection.clone() });
        }
        self.collect(self.me, round, &collection, host);
    }

    /// Removes what is not needed, if nothing rolled back since it was decided.
    pub(super) fn collect(
        &mut self,
        from: ProcessId,
        round: u32,
        collection: &Arc<Collection>,
        host: &mut Desk,
    ) {
        if self.coordinates() && self.cluster_of(from) != self.cluster || from == self.me {
            self.broadcast(Control::Collect { round, collection: collection.clone() }, host);
        }
        let recovering = matches!(self.phase, Phase::Recovering(_) | Phase::Serving);
        if recovering || collection.incarnations[self.cluster.index()] != self.position.incarnation {
            return;
        }
        let before = self.history.clone();
        for (cluster, &worst) in self.clusters().zip(&collection.worst) {
            self.history.collect(cluster, worst);
            self.copies.note_collected(cluster, worst);
        }
        if self.history != before {
            self.write_record(None, host);
        }
        let mut below = collection.worst[self.cluster.index()].position.sn;
        if self.has(Defect::CollectsOneTooMany) {
            below = below.next();
        }
        let gone = self.kept.iter().take_while(|kept| kept.position.sn < below).count();
        let me = self.me;
        let kept = self.kept.drain(..gone).map(|kept: Kept| kept.part(me));
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
    }

    /// Removes messages that were delivered before their receiver's worst checkpoint, unless this process has yet to
    /// learn of a rollback that undid such deliveries.
    fn collect_log(&mut self, collection: &Collection) -> u32 {
        let mut log = core::mem::take(&mut self.log);
        let at_worst = self.has(Defect::LogCollectedAtWorst);
        let removed = Arc::make_mut(&mut log).retain(|entry| {
            let cluster = self.cluster_of(entry.id.to);
            let worst = collection.worst[cluster.index()].position.sn;
            let aware = self.history.known(cluster) >= collection.incarnations[cluster.index()]
                || self.has(Defect::LogCollectedUnaware);
            let settled =
                |at: Position| !self.is_undone(cluster, at) && (at.sn < worst || at_worst && at.sn == worst);
            !(aware && entry.acknowledged.is_some_and(settled))
        });
        self.log = log;
        removed
    }
}

/// The checkpoint that each cluster would restore if all failed at once: each its newest, then back while it holds a
/// message that the line undoes. Behind the oldest that can be counted on there is SN 0, of which nothing is known.
fn worst_line(stock: &[Arc<Inventory>]) -> Vec<Checkpoint> {
    let checkpoint_at =
        |cluster: usize, place: usize| place.checked_sub(1).map(|it| &stock[cluster].checkpoints[it]);
    let line_at =
        |cluster: usize, place: usize| checkpoint_at(cluster, place).map(|it| it.0).unwrap_or_default();
    let mut line: Vec<usize> = stock.iter().map(|inventory| inventory.checkpoints.len()).collect();
    let mut moved = true;
    while moved {
        moved = false;
        for cluster in 0..stock.len() {
            let undone = |&(from, position): &(ClusterId, Position)| {
                from.index() != cluster
                    && position.sn >= line_at(from.index(), line[from.index()]).position.sn
            };
            let clean = |place: &usize| {
                checkpoint_at(cluster, *place)
                    .is_none_or(|(_, vectors)| !vectors.delivered.iter().any(undone))
            };
            let place = (0..=line[cluster]).rev().find(clean).expect("nothing is undone before everything");
            moved |= place != line[cluster];
            line[cluster] = place;
        }
    }
    line.iter().enumerate().map(|(cluster, &place)| line_at(cluster, place)).collect()
}
