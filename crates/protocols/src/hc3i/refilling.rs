//! Refilling the missing replicas of older checkpoints after a recovery.
//!
//! A recovery creates the missing replicas of the checkpoint to restore before the cluster resumes. Replicas of older
//! checkpoints are offered to their holders afterwards, as are all replicas to a holder that begins a new life. Garbage
//! collection does not rely on these checkpoints until the replicas are confirmed. Each holder confirms its replicas,
//! each owner tells its coordinator once all of its holders have done so, and the coordinator waits for all owners.
//! Without these confirmations, the recovery line might never advance to the older checkpoints.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{ImageName, Membership, ProcessId, Time};

use super::config::Rule;
use super::message::{Control, Epoch, RestorableCheckpoint, RollbackTarget};
use super::{Hc3i, ProtocolHost, placement};
use crate::machines::Checkpoint;

/// The holders that have yet to confirm replicas of this process's parts.
pub(super) type Unconfirmed = BTreeMap<ImageName, Vec<ProcessId>>;
/// The owners whose replicas are incomplete, by checkpoint. Once a checkpoint's set is empty, all its replicas are
/// complete.
pub(super) type Refilling = BTreeMap<Checkpoint, BTreeSet<ProcessId>>;

impl Hc3i {
    /// Learns which replicas the round found missing.
    pub(super) fn expect_replicas(&mut self, target: &RollbackTarget) {
        self.forget_missing_replicas();
        let restored = target.checkpoint.as_ref().map(RestorableCheckpoint::checkpoint);
        for &(part, holder) in target.uncovered.iter().filter(|(part, _)| Some((*part).into()) != restored) {
            if part.owner == self.me {
                self.unconfirmed.entry(part).or_default().push(holder);
            }
            if let Some(coordination) = &mut self.coordination {
                coordination.refilling.entry(part.into()).or_default().insert(part.owner);
            }
        }
    }

    /// Discards the findings of an earlier round, since another round asks all holders again.
    pub(super) fn forget_missing_replicas(&mut self) {
        self.unconfirmed.clear();
        if let Some(coordination) = &mut self.coordination {
            coordination.refilling.clear();
        }
    }

    /// Stops relying on the replicas of outside holders that have begun a new life since `old`, and that may have lost
    /// them, until they have confirmed them again. Runs on every owner, and on the coordinator for all of them.
    pub(super) fn doubt_replicas(&mut self, old: &Membership, host: &mut ProtocolHost) {
        let mut is_list_wrong = false;
        for &owner in &*self.members {
            for holder in placement::holders(&self.config, &self.membership, owner) {
                if !self.began_new_life(holder, old) {
                    continue;
                }
                for kept in &mut self.kept {
                    if owner == self.me {
                        let awaited = self.unconfirmed.entry(kept.part(owner)).or_default();
                        if !awaited.contains(&holder) {
                            awaited.push(holder);
                        }
                    }
                    if let Some(coordination) = &mut self.coordination {
                        kept.covered = false;
                        coordination.refilling.entry(kept.checkpoint()).or_default().insert(owner);
                        is_list_wrong = true;
                    }
                }
            }
        }
        if is_list_wrong {
            self.correct_inventory(host);
        }
    }

    /// Returns the parts that `holder` has yet to confirm.
    pub(super) fn unconfirmed_by(&self, holder: ProcessId) -> Arc<[ImageName]> {
        let awaits = |(_, holders): &(&ImageName, &Vec<ProcessId>)| holders.contains(&holder);
        self.unconfirmed.iter().filter(awaits).map(|(&name, _)| name).collect()
    }

    /// Handles a holder's confirmation of a replica.
    pub(super) fn replica_confirmed(
        &mut self,
        from: ProcessId,
        name: ImageName,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let Some(holders) = self.unconfirmed.get_mut(&name) else {
            return;
        };
        holders.retain(|&it| it != from);
        if holders.is_empty() && self.obeys(Rule::ConfirmsRefills) {
            self.unconfirmed.remove(&name);
            let epoch = self.epoch;
            self.send_to_coordinator(Control::Covered { epoch, name }, now, host);
        }
    }

    /// Records that every holder of an owner's part has its replica again. Runs on the coordinator.
    pub(super) fn owner_covered(&mut self, epoch: Epoch, name: ImageName) {
        if epoch == self.epoch
            && let Some(owners) = self.coordination().refilling.get_mut(&name.into())
        {
            owners.remove(&name.owner);
        }
    }

    /// Returns whether every holder has its replicas of a checkpoint, and no part of it was found lost.
    pub(super) fn is_covered(&self, kept: &RestorableCheckpoint) -> bool {
        let (checkpoint, coordination) = (kept.checkpoint(), self.coordination.as_ref());
        let refilling = coordination.and_then(|it| it.refilling.get(&checkpoint));
        let has_vanished = coordination.is_some_and(|it| it.vanished.contains(&checkpoint));
        (kept.covered || refilling.is_some_and(BTreeSet::is_empty)) && !has_vanished
    }
}
