//! A member's side of a recovery: it freezes, reports its parts and tables, prepares the target, and restores it
//! (section 3.4). The coordinator's side is in `round`.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Cause, Claim, GroupId, ImageName, MembershipVersion, Position, ProcessId, Time, Vectors,
};

use super::checkpoint::Part;
use super::config::Rule;
use super::message::{Control, Epoch, Head, Log, RecoveryReport, RollbackTarget};
use super::presence::Leaving;
use super::{Hc3i, Image, Phase, ProtocolHost, Waiter, placement};

/// A member's state during a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    /// The member's own parts that are durable here.
    here: BTreeSet<ImageName>,
    target: Option<Arc<RollbackTarget>>,
    /// Whether the target's tables are durable here.
    recorded: bool,
    /// The member's own parts that must be fetched from holders.
    missing: BTreeSet<ImageName>,
    image: Option<Arc<Image>>,
    /// Holders that have not yet confirmed their replica of the part to restore. A checkpoint in doubt may lack some
    /// replicas, but a restored one must not: other clusters remove the data that it makes obsolete.
    uncovered: BTreeSet<ProcessId>,
    ready: bool,
    /// A checkpoint that the rollback interrupted. Used only by a defect.
    interrupted: Option<Box<Part>>,
}

impl Recovery {
    /// Returns the name of `me`'s part of the target.
    fn target_part(&self, me: ProcessId) -> Option<ImageName> {
        self.target.as_ref()?.checkpoint.as_ref().map(|kept| kept.part(me))
    }
}

impl Hc3i {
    /// Watches the lives of the cluster's members: a failure freezes this member, and once all members are up again,
    /// the coordinator begins a round. The sum of lives never decreases, so an outdated view of a past failure is
    /// harmless.
    pub(super) fn watch_members(&mut self, now: Time, host: &mut ProtocolHost) {
        if self.members.is_empty() {
            return;
        }
        let (mut lives, mut down) = (0, 0);
        for &member in self.members.iter() {
            let member = self.membership.member(member);
            lives += u64::from(member.lives());
            down += u64::from(!member.up);
        }
        if lives + down > self.epoch.lives {
            self.freeze(host);
        }
        if !self.coordinates() || down > 0 {
            return;
        }
        if matches!(self.phase, Phase::Recovering(_)) {
            if lives > self.epoch.lives {
                self.begin_round(Epoch { lives, round: 0 }, Cause::Failure, now, host);
            }
        } else if self.position.sn.0 == 0 {
            self.begin_checkpoint(false, now, host);
        }
    }

    /// Abandons this member's current activity, and waits for a round.
    fn freeze(&mut self, host: &mut ProtocolHost) {
        let mut recovery = Box::<Recovery>::default();
        match core::mem::replace(&mut self.phase, Phase::Serving) {
            Phase::Recovering(already) => {
                self.phase = Phase::Recovering(already);
                return;
            }
            Phase::Checkpointing(part) => {
                host.claim(part.aborted());
                recovery.interrupted = Some(part).filter(|_| !self.obeys(Rule::AbortsCheckpoint));
            }
            Phase::Running | Phase::Serving => {}
        }
        let keeps_gathering = recovery.interrupted.is_some();
        self.phase = Phase::Recovering(recovery);
        self.unsent.clear();
        host.hold();
        if let Some(coordination) = &mut self.coordination {
            coordination.checkpoint_at = None;
            coordination.leaving = Leaving::default();
            if !keeps_gathering {
                coordination.gathering = None;
            }
        }
    }

    /// Enters a round, and reports this member's parts and tables once all writes in progress have completed.
    pub(super) fn prepare(&mut self, epoch: Epoch, membership: MembershipVersion, host: &mut ProtocolHost) {
        if epoch <= self.epoch && self.obeys(Rule::IgnoresOlderEpochs) {
            return;
        }
        if membership > self.membership.version && self.obeys(Rule::KnowsLives) {
            // A message to a life that this process does not know yet would be lost.
            self.prepares = self.prepares.max(Some((epoch, membership)));
            return;
        }
        self.epoch = epoch;
        self.freeze(host);
        self.forget_missing_replicas();
        if let Phase::Recovering(recovery) = &mut self.phase {
            let interrupted = recovery.interrupted.take();
            **recovery = Recovery { interrupted, ..Recovery::default() };
        }
        host.claim(Claim::RecoveryStarted { lives: epoch.lives, round: epoch.round });
        self.copies.list_for_report(epoch, host);
    }

    pub(super) fn report(
        &mut self,
        epoch: Epoch,
        parts: Vec<(ImageName, Arc<Head>)>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let Phase::Recovering(recovery) = &mut self.phase else {
            return;
        };
        if epoch == self.epoch {
            let me = self.me;
            recovery.here = parts.iter().map(|&(name, _)| name).filter(|name| name.owner == me).collect();
            let report = Arc::new(RecoveryReport { history: self.history.clone(), parts });
            self.send_to_coordinator(Control::Reported { epoch, report }, now, host);
        }
    }

    /// Finds another cluster whose rollbacks undid messages that these vectors record as delivered, and
    /// returns the last rollback of that cluster; `None` if there is no such cluster.
    pub(super) fn undone_in(&self, vectors: &Vectors) -> Option<(GroupId, Position)> {
        let mut others = vectors.delivered.iter().copied();
        if !self.obeys(Rule::DeliveredDecides) {
            return self
                .clusters()
                .zip(self.whole(&vectors.ddv))
                .find(|&(cluster, position)| cluster != self.cluster && self.is_undone(cluster, position))
                .map(|(cluster, _)| self.last_rollback(cluster));
        }
        others
            .find(|&(cluster, position)| self.is_undone(cluster, position))
            .map(|(it, _)| self.last_rollback(it))
    }

    fn last_rollback(&self, cluster: GroupId) -> (GroupId, Position) {
        let &(incarnation, sn) = self.history.rollbacks(cluster).last().expect("a rollback undid something");
        (cluster, Position { incarnation, sn })
    }

    /// Prepares the target: records its tables, fetches missing parts, and reads the image.
    pub(super) fn restore(
        &mut self,
        epoch: Epoch,
        target: Arc<RollbackTarget>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if epoch != self.epoch {
            return;
        }
        let me = self.me;
        let Phase::Recovering(recovery) = &mut self.phase else {
            return;
        };
        recovery.target = Some(target.clone());
        let lacking: Vec<ImageName> = target
            .kept
            .iter()
            .rev()
            .map(|kept| kept.part(me))
            .filter(|name| !recovery.here.contains(name))
            .collect();
        recovery.missing = lacking.iter().copied().collect();
        let own_part = recovery.target_part(me);
        let own = target.uncovered.iter().filter(|(part, _)| Some(*part) == own_part);
        recovery.uncovered = own.map(|&(_, holder)| holder).collect();
        self.expect_replicas(&target);
        self.history.merge(&target.history);
        self.write_record(Some(Waiter::Target(epoch)), host);
        if let Some(part) = target.checkpoint.as_ref().map(|kept| kept.part(me))
            && !lacking.contains(&part)
        {
            self.copies.read_target(epoch, part, host);
        }
        for name in lacking {
            match target.sources.iter().find(|&&(part, _)| part == name) {
                Some(&(_, source)) => self.send_to(source, Control::Fetch(name), now, host),
                None => self.fetch_failed(name, now, host),
            }
        }
    }

    pub(super) fn target_recorded(&mut self, epoch: Epoch, now: Time, host: &mut ProtocolHost) {
        if let Phase::Recovering(recovery) = &mut self.phase
            && epoch == self.epoch
        {
            recovery.recorded = true;
            self.maybe_ready(now, host);
        }
    }

    pub(super) fn target_read(
        &mut self,
        epoch: Epoch,
        image: Option<Arc<Image>>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let me = self.me;
        let Phase::Recovering(recovery) = &mut self.phase else {
            return;
        };
        if epoch != self.epoch {
        } else if let Some(image) = image {
            recovery.image = Some(image);
            self.copy_to_uncovered(host);
            self.maybe_ready(now, host);
        } else if let Some(name) = recovery.target_part(me) {
            self.send_to_coordinator(Control::Vanished { epoch, name }, now, host);
        }
    }

    /// Accepts an image from the network if this process is waiting for it. Returns whether the image was accepted.
    pub(super) fn take_fetched(&mut self, image: &Arc<Image>) -> bool {
        let me = self.me;
        let Phase::Recovering(recovery) = &mut self.phase else {
            return false;
        };
        if !recovery.missing.contains(&image.name) {
            return false;
        }
        if recovery.target_part(me) == Some(image.name) {
            recovery.image = Some(image.clone());
        }
        true
    }

    /// Sends this process's part of the target to the holders that lack it. The part is already durable here.
    fn copy_to_uncovered(&self, host: &mut ProtocolHost) {
        if let Phase::Recovering(recovery) = &self.phase
            && let Some(image) = &recovery.image
        {
            for &holder in &recovery.uncovered {
                host.send_image(holder, image.clone());
            }
        }
    }

    /// Handles a holder's confirmation of its replica of the part to restore.
    pub(super) fn restored_copy_stored(
        &mut self,
        from: ProcessId,
        name: ImageName,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let me = self.me;
        if let Phase::Recovering(recovery) = &mut self.phase
            && recovery.target_part(me) == Some(name)
            && recovery.uncovered.remove(&from)
        {
            self.maybe_ready(now, host);
        }
    }

    /// Handles a missing part that is now durable: either it was fetched, or an earlier write of it succeeded after
    /// all.
    pub(super) fn missing_part_durable(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        let (me, epoch) = (self.me, self.epoch);
        let Phase::Recovering(recovery) = &mut self.phase else {
            return;
        };
        if recovery.missing.remove(&name) {
            if recovery.target_part(me) == Some(name) {
                match recovery.image {
                    Some(_) => self.copy_to_uncovered(host),
                    None => self.copies.read_target(epoch, name, host),
                }
            }
            self.maybe_ready(now, host);
        }
    }

    /// Handles the failure to fetch a missing part. Another round finds out which checkpoints are still complete.
    pub(super) fn fetch_failed(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        let epoch = self.epoch;
        if let Phase::Recovering(recovery) = &mut self.phase
            && recovery.missing.contains(&name)
        {
            self.send_to_coordinator(Control::Vanished { epoch, name }, now, host);
        }
    }

    fn maybe_ready(&mut self, now: Time, host: &mut ProtocolHost) {
        let epoch = self.epoch;
        let Phase::Recovering(recovery) = &mut self.phase else {
            return;
        };
        let Some(target) = &recovery.target else {
            return;
        };
        let has_image = target.checkpoint.is_none() || recovery.image.is_some();
        let is_covered = recovery.uncovered.is_empty();
        if recovery.recorded && recovery.missing.is_empty() && has_image && is_covered && !recovery.ready {
            recovery.ready = true;
            self.send_to_coordinator(Control::Ready { epoch }, now, host);
        }
    }

    /// Installs the target and resumes.
    pub(super) fn resume(&mut self, epoch: Epoch, now: Time, host: &mut ProtocolHost) {
        if epoch != self.epoch {
            return;
        }
        let recovery = match core::mem::replace(&mut self.phase, Phase::Running) {
            Phase::Recovering(recovery) if recovery.ready => recovery,
            other => {
                self.phase = other;
                return;
            }
        };
        let target = recovery.target.clone().expect("a member that is ready has a target");
        let image = recovery.image.as_ref().map(|it| it.name);
        let is_its_part = image == recovery.target_part(self.me) || !self.is_sound();
        assert!(is_its_part, "a member that is ready has its part of the target, and no other");
        self.install(&target, &recovery, host);
        if self.position.sn.0 > 0 {
            host.release();
            let late = recovery.image.iter().flat_map(|image| image.saved.late.iter());
            for (id, payload) in late {
                host.deliver(*id, payload.clone());
            }
        }
        self.resend_after_restore(host);
        self.roll_back_if_undone(now, host);
        if let Some(coordination) = &mut self.coordination {
            coordination.attempts = 0;
            self.restart_checkpoint_timer(now);
            self.send_alerts(now, host);
            self.maybe_settled(now, host);
        }
        for holder in placement::holders(&self.config, &self.membership, self.me) {
            self.offer(holder, host);
        }
        self.copies.has_own(host);
        self.continue_interrupted(recovery.interrupted);
        self.replay(now, host);
        if self.coordinates() && self.position.sn.0 == 0 {
            self.begin_checkpoint(false, now, host);
        }
    }

    fn install(&mut self, target: &RollbackTarget, recovery: &Recovery, host: &mut ProtocolHost) {
        let image = recovery.image.as_deref();
        host.restore(image, target.incarnation);
        self.position = Position { incarnation: target.incarnation, sn: target.sn() };
        let vectors = target.checkpoint.as_ref().map(|kept| kept.vectors.clone()).unwrap_or_default();
        let mut ddv = self.whole(&vectors.ddv);
        ddv[self.cluster.place()] = self.position;
        self.ddv = ddv.into();
        self.delivered = image.map_or_else(|| Arc::from([]), |image| image.head.vectors.delivered.clone());
        self.log = match image {
            Some(image) if self.obeys(Rule::SavesLog) => image.saved.log.clone(),
            _ => Arc::new(Log::default()),
        };
        if self.obeys(Rule::SavesReceived) {
            self.received = image.map(|image| image.saved.received.clone()).unwrap_or_default();
        }
        self.kept = target.kept.to_vec();
        self.sent_within.clear();
        self.received_within = 0;
        self.asked_at = None;
        self.left = false;
        self.left_at = None;
        self.remove_log_of_departed();
        self.settled = false;
        if !self.obeys(Rule::KeepsQueues) {
            self.waiting.clear();
        }
        self.classify_parts(&recovery.here, host);
        let (me, incarnation) = (self.me, target.incarnation);
        self.copies.writes.forget(|name| name.owner == me && name.incarnation < incarnation);
        self.copies.list_postponed(host);
        host.claim(Claim::RolledBack {
            to: self.position,
            checkpoint: target.checkpoint.as_ref().map(|kept| kept.position).unwrap_or_default(),
            cause: target.cause,
            vectors,
        });
    }

    /// Removes parts that were undone. Remembers parts of incomplete checkpoints until they are collected, since they
    /// show what is missing.
    fn classify_parts(&mut self, here: &BTreeSet<ImageName>, host: &mut ProtocolHost) {
        let is_undone = |name: &ImageName| self.history.undid_checkpoint(self.cluster, name.position());
        let (undone, others): (Vec<ImageName>, Vec<ImageName>) = here.iter().copied().partition(is_undone);
        undone.into_iter().for_each(|it| host.delete(it));
        let is_kept = |name: &ImageName| self.kept.iter().any(|kept| kept.part(self.me) == *name);
        self.incomplete = others.into_iter().filter(|it| !is_kept(it)).collect();
    }

    fn resend_after_restore(&mut self, host: &mut ProtocolHost) {
        if !self.obeys(Rule::ResendsOwn) {
            return;
        }
        if !self.obeys(Rule::ChecksRestoredAcks) {
            self.resend(|_, entry| entry.acknowledged.is_none(), host);
        } else {
            self.resend(Hc3i::is_owed, host);
        }
    }

    /// Returns whether this process is not recovering, and its state contains nothing that another cluster's rollback
    /// undid.
    pub(super) fn is_clean(&self) -> bool {
        let vectors = Vectors { ddv: self.ddv.clone(), delivered: self.delivered.clone() };
        !matches!(self.phase, Phase::Recovering(_)) && self.undone_in(&vectors).is_none()
    }

    /// Requests a rollback if this process has delivered something that another cluster's rollback undid.
    pub(super) fn roll_back_if_undone(&mut self, now: Time, host: &mut ProtocolHost) {
        let vectors = Vectors { ddv: self.ddv.clone(), delivered: self.delivered.clone() };
        if let Some((from, position)) = self.undone_in(&vectors) {
            let incarnation = self.position.incarnation;
            self.send_to_coordinator(Control::RollBack { incarnation, from, position }, now, host);
        }
    }

    /// Implements the defect `CheckpointNotAborted`: the interrupted checkpoint continues with the data that it had
    /// saved before the rollback.
    fn continue_interrupted(&mut self, interrupted: Option<Box<Part>>) {
        let Some(mut part) = interrupted else {
            return;
        };
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let position = Position { sn: self.position.sn.next(), ..self.position };
        part.move_to(position);
        self.phase = Phase::Checkpointing(part);
        if let Some(gathering) = self.coordination.as_mut().and_then(|it| it.gathering.as_mut()) {
            gathering.move_to(position);
        }
    }
}
