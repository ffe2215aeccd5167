//! Restoring a checkpoint after a failure, or after another process's rollback undid an interval on which this process
//! depends.
//!
//! Inquire to holders -> Report by all -> record the rollback, fetch what is missing -> Hold to holders -> Noted and
//! Stored by all -> resume. A new life of a holder, or a checkpoint that turns out to be lost, begins another attempt.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Cause, Claim, GroupId, ImageName, Incarnation, Position, ProcessId, Sn, Time, To,
};

use super::message::{Control, Epoch, Head};
use super::rank::{Phase, Rank, vectors};
use super::store::Waiter;
use super::{Image, ProtocolHost, Rule, group_of};
use crate::machines::{Checkpoint, Delivered, GroupHistory, Log, Survey};

/// An attempt to restore a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    cause: Cause,
    /// Processes that have not reported which checkpoints they have.
    awaited: BTreeSet<ProcessId>,
    survey: Survey<Arc<Head>>,
    target: Option<Target>,
}

/// What is restored.
#[derive(Clone, Debug)]
struct Target {
    incarnation: Incarnation,
    /// The checkpoints that can still be restored, ascending. The newest is restored; if there is none, the initial
    /// state.
    kept: Vec<(Checkpoint, Delivered)>,
    /// Checkpoints in `kept` that must be fetched from holders.
    missing: BTreeSet<ImageName>,
    image: Option<Arc<Image>>,
    is_recorded: bool,
    /// Holders that have not recorded the rollback; `None` until they have been told.
    unaware: Option<BTreeSet<ProcessId>>,
}

impl Target {
    fn checkpoint(&self) -> Option<Checkpoint> {
        self.kept.last().map(|&(checkpoint, _)| checkpoint)
    }
}

impl Rank {
    /// Begins a rollback in the current life, or another attempt at the one in progress.
    pub(super) fn recover_again(&mut self, now: Time, host: &mut ProtocolHost) {
        self.recover_because(Cause::Failure, now, host);
    }

    /// Begins a rollback because of `cause`. An attempt in progress is repeated, and keeps its cause.
    pub(super) fn recover_because(&mut self, cause: Cause, now: Time, host: &mut ProtocolHost) {
        let cause = match &self.phase {
            Phase::Recovering(recovery) => recovery.cause,
            _ => cause,
        };
        let epoch = Epoch { attempt: self.epoch.attempt + 1, ..self.epoch };
        self.recover(epoch, cause, now, host);
    }

    /// Pauses the application, and asks what can be restored.
    pub(super) fn recover(&mut self, epoch: Epoch, cause: Cause, now: Time, host: &mut ProtocolHost) {
        self.epoch = epoch;
        self.unconfirmed.clear();
        self.schedule.stop();
        if let Some(aborted) = self.aborted() {
            host.claim(aborted);
        }
        host.hold();
        let awaited = self.holders.iter().copied().chain([self.me]).collect();
        let recovery = Recovery { cause, awaited, survey: Survey::default(), target: None };
        self.phase = Phase::Recovering(Box::new(recovery));
        host.claim(Claim::RecoveryStarted { lives: epoch.life.into(), round: epoch.attempt });
        for &holder in self.holders.iter() {
            host.control(To::One(holder), Control::Inquire(epoch));
        }
        let events = self.store.inquire(self.me, epoch, host);
        self.handle_events(events, now, host);
    }

    /// Collects a report, and chooses a target once all reports have arrived.
    pub(super) fn reported(
        &mut self,
        from: ProcessId,
        epoch: Epoch,
        past: &GroupHistory,
        parts: Vec<(ImageName, Arc<Head>)>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let me = group_of(self.me);
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        if epoch != self.epoch || !recovery.awaited.remove(&from) {
            return;
        }
        self.store.history.extend(me, past);
        for (name, head) in parts {
            self.store.history.extend(me, &head.past);
            recovery.survey.add(from, name, head);
        }
        if recovery.awaited.is_empty() {
            let survey = core::mem::take(&mut recovery.survey);
            self.choose(&survey, now, host);
        }
    }

    /// Chooses the newest checkpoint that was neither undone nor collected, and contains nothing that was undone
    /// elsewhere. A checkpoint may be restored whether or not it was committed.
    fn choose(&mut self, survey: &Survey<Arc<Head>>, now: Time, host: &mut ProtocolHost) {
        let me = group_of(self.me);
        let history = &self.store.history;
        let past = history.of(me);
        let may_restore = |&Checkpoint { position, .. }: &Checkpoint| {
            let is_collected = history.is_collected(me, position) && self.obeys(Rule::NeverRestoresCollected);
            !is_collected && !past.undid_checkpoint(position)
        };
        let mut kept: Vec<(Checkpoint, Delivered)> = survey
            .complete(&[self.me])
            .filter(|(checkpoint, _)| may_restore(checkpoint))
            .map(|(checkpoint, parts)| (checkpoint, parts[&self.me].0.delivered.clone()))
            .filter(|(_, delivered)| self.undone_in(delivered).is_none())
            .collect();
        if !self.obeys(Rule::RestoresNewest) && kept.len() > 1 {
            kept.pop();
        }
        if kept.is_empty() && self.has_started() {
            // The oldest checkpoint that was not collected was needed.
            let first = Checkpoint { position: Position::new(0, 1), attempt: Attempt(1) };
            let asked = core::iter::once(self.me).chain(self.holders.iter().copied()).collect();
            let missing = [(past.collected.max(first).part(self.me), asked)];
            host.claim(Claim::Unrecoverable { group: me, missing: missing.into() });
            return;
        }
        // Checkpoints can outlive the tables, and the supervisor counts failures, so no incarnation is used twice even
        // if everything else is lost.
        let of_parts = survey.all().map(|(it, _)| it.position.incarnation).max().unwrap_or_default();
        let of_lives = Incarnation(self.epoch.life - 1);
        let incarnation = past.known().max(of_parts).next().max(of_lives);
        assert!(kept.is_sorted_by(|(older, _), (newer, _)| older < newer), "checkpoints are kept in order");
        let restored = kept.last().map(|&(checkpoint, _)| checkpoint);
        self.store.history.rolled_back(me, incarnation, restored.map_or(Sn(0), |it| it.position.sn));
        self.store.record(Some(Waiter::Rollback(incarnation)), host);
        let sources: Vec<_> = kept.iter().flat_map(|&(it, _)| survey.sources(it)).collect();
        for &(name, source) in &sources {
            host.control(To::One(source), Control::Fetch(name));
        }
        let missing: BTreeSet<_> = sources.into_iter().map(|(name, _)| name).collect();
        if let Some(name) = restored.map(|it| it.part(self.me)).filter(|it| !missing.contains(it)) {
            self.store.read(name, host);
        }
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        let (image, is_recorded, unaware) = (None, false, None);
        recovery.target = Some(Target { incarnation, kept, missing, image, is_recorded, unaware });
        self.advance(now, host);
    }

    fn target(&mut self) -> Option<&mut Target> {
        match &mut self.phase {
            Phase::Recovering(recovery) => recovery.target.as_mut(),
            _ => None,
        }
    }

    /// Returns whether `name` is the checkpoint that is being restored.
    fn restores(&mut self, name: ImageName) -> bool {
        self.target().and_then(|it| it.checkpoint()) == Some(name.into())
    }

    /// Accepts one of this process's own checkpoints from a holder if a recovery is waiting for it.
    pub(super) fn own_arrived(&mut self, image: Arc<Image>, host: &mut ProtocolHost) {
        let is_restored = self.restores(image.name);
        let Some(target) = self.target().filter(|it| it.missing.contains(&image.name)) else { return };
        if is_restored {
            target.image = Some(image.clone());
        }
        self.store.write(image, host);
    }

    /// Handles one of this process's own checkpoints that is now durable here.
    pub(super) fn own_durable(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        if self.target().is_some_and(|it| it.missing.remove(&name)) {
            self.advance(now, host);
        }
    }

    /// Handles a checkpoint that was read, in case it is the one to restore.
    pub(super) fn own_read(&mut self, image: Arc<Image>, now: Time, host: &mut ProtocolHost) {
        if self.restores(image.name)
            && let Some(target) = self.target()
        {
            target.image = Some(image);
            self.advance(now, host);
        }
    }

    /// Begins another attempt if a checkpoint that the recovery keeps turns out to be lost: its holders can then neither
    /// get it from this process nor confirm it.
    pub(super) fn lost(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        let me = self.me;
        if self.target().is_some_and(|it| it.kept.iter().any(|(kept, _)| kept.part(me) == name)) {
            self.recover_again(now, host);
        }
    }

    /// Handles a holder's answer that it has recorded the rollback.
    pub(super) fn noted(
        &mut self,
        from: ProcessId,
        incarnation: Incarnation,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if let Some(Target { unaware: Some(unaware), .. }) =
            self.target().filter(|it| it.incarnation == incarnation)
        {
            unaware.remove(&from);
            self.advance(now, host);
        }
    }

    /// Handles the completion of a write of the tables.
    pub(super) fn recorded(&mut self, waiter: Waiter, now: Time, host: &mut ProtocolHost) {
        match waiter {
            Waiter::Rollback(incarnation) => {
                if let Some(target) = self.target().filter(|it| it.incarnation == incarnation) {
                    target.is_recorded = true;
                    self.advance(now, host);
                }
            }
            Waiter::Alert(from, incarnation) => self.confirm(from, incarnation, host),
            Waiter::Hold(..) => unreachable!("the storage handles these"),
        }
    }

    /// Tells a holder which checkpoints it should keep. The checkpoints count as incomplete until the holder has
    /// confirmed them.
    pub(super) fn send_list(&mut self, holder: ProcessId, host: &mut ProtocolHost) {
        let kept = match &self.phase {
            Phase::Recovering(recovery) => recovery.target.as_ref().map_or(&self.kept, |it| &it.kept),
            _ => &self.kept,
        };
        self.unconfirmed.extend(kept.iter().map(|&(checkpoint, _)| (checkpoint, holder)));
        let names = kept.iter().rev().map(|(checkpoint, _)| checkpoint.part(self.me)).collect();
        let past = self.store.history.of(group_of(self.me));
        host.control(To::One(holder), Control::Hold { past, names });
    }

    /// Continues a recovery. Call this whenever something that the recovery waits for may have happened.
    pub(super) fn advance(&mut self, now: Time, host: &mut ProtocolHost) {
        let holders = self.holders.clone();
        let Some(target) = self.target() else { return };
        if !target.missing.is_empty() {
            return; // The holders may request checkpoints that are still missing here.
        }
        if target.unaware.is_none() {
            target.unaware = Some(holders.iter().copied().collect());
            holders.iter().for_each(|&holder| self.send_list(holder, host));
        }
        let copies_first = self.obeys(Rule::CopiesFirst);
        let Phase::Recovering(recovery) = &self.phase else { return };
        let Some(target) = &recovery.target else { return };
        let restored = target.kept.last();
        let is_aware = target.unaware.as_ref().is_some_and(BTreeSet::is_empty);
        let has_image = target.image.is_some() || restored.is_none();
        let has_copies = restored.is_none_or(|(it, _)| self.is_complete(*it)) || !copies_first;
        if !target.is_recorded || !is_aware || !has_image || !has_copies {
            return;
        }
        if restored.is_some_and(|(_, delivered)| self.undone_in(delivered).is_some()) {
            self.recover_again(now, host); // An alert has arrived since the target was chosen.
        } else if restored.is_some() && !self.has_started() {
            host.started();
        } else {
            self.resume(now, host);
        }
    }

    /// Returns whether all holders have confirmed their replicas of a checkpoint.
    pub(super) fn is_complete(&self, checkpoint: Checkpoint) -> bool {
        self.unconfirmed.iter().all(|(it, _)| *it != checkpoint)
    }

    /// Installs the target, and resumes.
    fn resume(&mut self, now: Time, host: &mut ProtocolHost) {
        let Phase::Recovering(recovery) = core::mem::replace(&mut self.phase, Phase::Running) else { return };
        let Recovery { cause, target, .. } = *recovery;
        let Target { incarnation, kept, image, .. } = target.expect("a process resumes with a target");
        assert!(incarnation > self.position.incarnation, "a rollback begins a new incarnation");
        assert_eq!(
            image.as_ref().map(|it| it.name),
            kept.last().map(|(it, _)| it.part(self.me)),
            "the newest of the checkpoints that are kept is restored"
        );
        host.restore(image.as_deref(), incarnation);
        let checkpoint = kept.last().map(|(it, _)| it.position).unwrap_or_default();
        self.position = Position { incarnation, sn: checkpoint.sn };
        self.delivered = kept.last().map_or_else(|| Delivered::from([]), |(_, it)| it.clone());
        self.kept = kept;
        self.attempts = 0;
        self.log = match &image {
            Some(image) if self.obeys(Rule::SavesLog) => image.saved.log.clone(),
            _ => Arc::new(Log::default()),
        };
        if self.obeys(Rule::SavesReceived) {
            self.received = image.map(|it| it.saved.received.clone()).unwrap_or_default();
        }
        let me = group_of(self.me);
        let past = self.store.history.of(me);
        self.store.remove_useless(self.me, &past, host);
        let vectors = vectors(self.delivered.clone());
        host.claim(Claim::RolledBack { to: self.position, checkpoint, cause, vectors });
        self.is_settled = false;
        if self.position.sn.0 > 0 {
            host.release();
        }
        if self.obeys(Rule::ResendsOwn) {
            let checks = self.obeys(Rule::ChecksRestoredAcks);
            self.resend(|this, it| if checks { this.is_owed(it) } else { it.acknowledged.is_none() }, host);
        }
        self.store.has_own(host);
        self.schedule.restart(now);
        self.send_alerts(now, host);
        self.replay_waiting(host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    /// Finds another process whose rollbacks undid an interval on which a state depends, and returns the last
    /// rollback of that process; `None` if there is no such process.
    pub(super) fn undone_in(&self, delivered: &[(GroupId, Position)]) -> Option<(GroupId, Position)> {
        let history = &self.store.history;
        let (from, _) = delivered.iter().find(|&&(from, at)| history.undid_after(from, at))?;
        let &(incarnation, sn) = history.rollbacks(*from).last().expect("a rollback undid something");
        Some((*from, Position { incarnation, sn }))
    }
}
