//! Garbage collection (I8): removing the checkpoints and log entries that precede the recovery line.
//!
//! The initiator asks all processes for lists of their checkpoints, and computes the recovery line for a failure of all
//! processes. If only some of them fail, none of them restores an older checkpoint. An outdated list is harmless,
//! because checkpoints stored after it was sent only move the line forward. But no list may predate a rollback that
//! another list includes, since the line would then rest on undone checkpoints. All lists must therefore agree on the
//! incarnations of all processes; otherwise nothing is removed.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Claim, GroupId, Incarnation, Position, ProcessId, Role, Time, To};

use super::message::{Control, Inventory};
use super::rank::Rank;
use super::{ProtocolHost, Rule, group_of};
use crate::machines::{Checkpoint, Delivered, recovery_line};

/// The initiator's state: the collection in progress, and the time of the next one.
#[derive(Clone, Debug)]
pub(super) struct Collecting {
    /// Time at which the next collection begins.
    pub(super) at: Time,
    /// Number of collections begun in this life.
    round: u32,
    /// The lists of this round, by process.
    stock: BTreeMap<GroupId, Arc<Inventory>>,
}

impl Collecting {
    pub(super) fn new(at: Time) -> Collecting {
        Collecting { at, round: 0, stock: BTreeMap::new() }
    }
}

impl Rank {
    /// Begins a collection if one is due, and abandons the previous one if it is still in progress. Has an effect only
    /// on the initiator.
    pub(super) fn maybe_ask(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(collecting) = self.collecting.as_mut().filter(|it| it.at <= now) else { return };
        // The next collection replaces this one, so leave all processes enough time to answer first.
        let every = self.config.collect_every.unwrap_or_default();
        collecting.at = now + every.max(self.config.retry_every);
        collecting.round += 1;
        collecting.stock.clear();
        let round = collecting.round;
        for other in self.others() {
            host.control(To::One(other), Control::Ask(round));
        }
        if let Some(inventory) = self.inventory() {
            self.stock_arrived(self.me, round, inventory, host);
        }
    }

    /// Answers the initiator.
    pub(super) fn asked(&mut self, from: ProcessId, round: u32, host: &mut ProtocolHost) {
        if let Some(inventory) = self.inventory() {
            host.control(To::One(from), Control::Stock { round, inventory });
        }
    }

    /// Returns the stored checkpoints whose replicas are complete; `None` if a rollback is about to change them.
    fn inventory(&self) -> Option<Arc<Inventory>> {
        let is_undone = |(_, delivered): &(Checkpoint, Delivered)| self.undone_in(delivered).is_some();
        if self.is_recovering() || self.kept.is_empty() || self.kept.iter().any(is_undone) {
            return None;
        }
        let ranks = self.membership.with_role(Role::RANK);
        let incarnations = ranks.map(|rank| self.store.history.known(group_of(rank))).collect();
        let checkpoints = self.kept.iter().filter(|(it, _)| self.is_complete(*it)).cloned().collect();
        Some(Arc::new(Inventory { incarnations, checkpoints }))
    }

    /// Records a process's list, and decides once all processes have answered. Runs on the initiator.
    pub(super) fn stock_arrived(
        &mut self,
        from: ProcessId,
        round: u32,
        inventory: Arc<Inventory>,
        host: &mut ProtocolHost,
    ) {
        let processes = self.membership.with_role(Role::RANK).count();
        let Some(collecting) = self.collecting.as_mut().filter(|it| it.round == round) else { return };
        collecting.stock.insert(group_of(from), inventory);
        if collecting.stock.len() < processes {
            return;
        }
        let stock: Vec<Arc<Inventory>> = core::mem::take(&mut collecting.stock).into_values().collect();
        let incarnations: Arc<[Incarnation]> = stock[0].incarnations.clone().into();
        if stock.iter().any(|it| *it.incarnations != *incarnations) {
            return;
        }
        let stored: Vec<_> = stock.iter().map(|it| &it.checkpoints[..]).collect();
        let line = Arc::new(recovery_line(&stored, |delivered| delivered));
        for other in self.others() {
            let (incarnations, line) = (incarnations.clone(), line.clone());
            host.control(To::One(other), Control::Collect { round, incarnations, line });
        }
        self.collect(round, &incarnations, &line, host);
    }

    /// Removes everything that precedes the line, unless this process is recovering, or has rolled back since it listed
    /// its checkpoints.
    pub(super) fn collect(
        &mut self,
        round: u32,
        incarnations: &[Incarnation],
        line: &Arc<Vec<Checkpoint>>,
        host: &mut ProtocolHost,
    ) {
        let me = group_of(self.me);
        if self.is_recovering() || incarnations[me.place()] != self.position.incarnation {
            return;
        }
        if self.store.history.collect_all(line) {
            self.store.record(None, host);
        }
        let mut below = line[me.place()].position.sn;
        if !self.obeys(Rule::KeepsLine) {
            below = below.next();
        }
        let gone = self.kept.iter().take_while(|(it, _)| it.position.sn < below).count();
        self.unconfirmed.retain(|(it, _)| it.position.sn >= below);
        self.kept.drain(..gone);
        assert!(
            !self.kept.is_empty() || !self.config.defects.is_empty(),
            "a collection keeps the checkpoint on the recovery line"
        );
        let mut past = (*self.store.history.of(me)).clone();
        past.collected.position.sn = below;
        self.store.remove_useless(self.me, &past, host);
        if gone > 0 {
            self.holders.clone().iter().for_each(|&holder| self.send_list(holder, host));
        }
        let log = self.collect_log(incarnations, line);
        host.claim(Claim::Collected { round, below, kept: self.kept.len() as u32, log });
    }

    /// Removes the logged messages that were delivered before their receiver's checkpoint on the line, unless this
    /// process has yet to learn of a rollback that undid such deliveries. Returns the number of removed messages.
    fn collect_log(&mut self, incarnations: &[Incarnation], line: &[Checkpoint]) -> u32 {
        let mut log = core::mem::take(&mut self.log);
        let keeps_at_line = self.obeys(Rule::KeepsLogAtLine);
        let removed = Arc::make_mut(&mut log).retain(|entry| {
            let receiver = group_of(entry.id.to);
            let on_line = line[receiver.place()].position.sn;
            let is_aware = self.store.history.known(receiver) >= incarnations[receiver.place()];
            let is_settled = |at: Position| {
                let is_before = at.sn < on_line || !keeps_at_line && at.sn == on_line;
                is_before && !self.is_undone(entry.id.to, at)
            };
            !(is_aware && entry.acknowledged.is_some_and(is_settled))
        });
        self.log = log;
        removed
    }
}
