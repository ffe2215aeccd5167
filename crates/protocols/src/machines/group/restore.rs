//! Recovery of a failed group: the members agree on what to restore, and restore it. They choose the newest checkpoint
//! whose parts are all available, whether committed or in doubt. No other group takes part, except as a holder of
//! replicas.
//!
//! Coordinator: Gather to members, Inquire to holders -> Stock from all -> Restore -> Ready from all -> Resume. A
//! failure, a new life of a holder, or a vanished part triggers another attempt.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Cause, Claim, Host, ImageName, Incarnation, Machine, Position, ProcessId, Protocol, To,
};

use super::Grouped;
use super::member::Group;
use super::message::{GroupMessage, RestoreNo};
use super::view::View;
use crate::machines::{Checkpoint, ImageOf, Survey};

/// The result of a recovery, as every member learns it.
#[derive(Clone, Debug)]
pub(crate) struct Resumed<P: Grouped> {
    /// The new incarnation.
    pub(crate) incarnation: Incarnation,
    /// The restored checkpoint; `None` is the initial state.
    pub(crate) target: Option<Checkpoint>,
    /// This process's part of the checkpoint.
    pub(crate) image: Option<Arc<ImageOf<P>>>,
}

impl<P: Grouped> Resumed<P> {
    /// Returns the protocol's own restored state; the default if the initial state is restored.
    pub(crate) fn saved(&self) -> P::Saved
    where
        P::Saved: Default,
    {
        self.image.as_ref().map(|it| P::Saved::clone(&it.saved)).unwrap_or_default()
    }
}

impl<P: Grouped + Protocol> Resumed<P> {
    /// Restores the application's state. Returns the position at which the process resumes, and the claim that it makes
    /// once the protocol has restored its own state.
    pub(crate) fn restore(&self, host: &mut dyn Host<P>) -> (Position, Claim) {
        let Resumed { incarnation, target, image } = self;
        host.restore(image.as_deref(), *incarnation);
        let checkpoint = target.map(|it| it.position).unwrap_or_default();
        let to = Position { incarnation: *incarnation, sn: checkpoint.sn };
        let (cause, vectors) = (Cause::Failure, Arc::default());
        (to, Claim::RolledBack { to, checkpoint, cause, vectors })
    }
}

/// The member's side of an attempt.
#[derive(Clone, Debug)]
pub(super) struct MemberAttempt<P: Grouped> {
    restore: RestoreNo,
    target: Option<Option<Checkpoint>>,
    image: Option<Arc<ImageOf<P>>>,
    /// Holders that have not confirmed their replicas yet.
    awaited: Vec<ProcessId>,
    is_ready: bool,
}

impl<P: Grouped> MemberAttempt<P> {
    fn new(restore: RestoreNo) -> Self {
        MemberAttempt { restore, target: None, image: None, awaited: Vec::new(), is_ready: false }
    }
}

/// The coordinator's side of an attempt.
#[derive(Clone, Debug)]
pub(super) struct Round {
    restore: RestoreNo,
    awaited: BTreeSet<ProcessId>,
    parts: Survey<()>,
    target: Option<Option<Checkpoint>>,
}

impl<P: Grouped> Group<P> {
    /// Returns whether the sender of a message learned of a failure before this process did. The message must then
    /// wait for the next change in the membership.
    pub(crate) fn is_early(&self, message: &GroupMessage) -> bool {
        match message {
            GroupMessage::Gather { membership, .. } => *membership > self.view.membership.version,
            GroupMessage::Inquire { restore, group } => restore.incarnation > self.view.incarnation(*group),
            _ => false,
        }
    }

    /// Handles a message that is not early.
    pub(crate) fn handle(&mut self, from: ProcessId, message: GroupMessage, host: &mut dyn Machine<P>) {
        match message {
            GroupMessage::Gather { restore, .. } => self.gather(from, restore, host),
            GroupMessage::Inquire { restore, group } => {
                let answers = self.store.inquired(from, restore, group, &self.view);
                self.send_answers(answers, host);
            }
            GroupMessage::Stock { restore, parts } => self.stock_reported(from, restore, &parts, host),
            GroupMessage::Restore { restore, target, sources } => {
                self.restore(restore, target, &sources, host)
            }
            GroupMessage::Ready(restore) => self.ready(from, restore, host),
            GroupMessage::Vanished(restore) => self.vanished(restore, host),
            GroupMessage::Resume(restore) => self.resume(restore),
            GroupMessage::Stored(name) => self.copy_stored(from, name, host),
            GroupMessage::Fetch(name) => self.store.read_for(from, name, host),
            GroupMessage::Refused(name) if name.owner == self.me => self.fetch_refused(name, host),
            GroupMessage::Refused(name) => self.store.refused(name, host),
            GroupMessage::Hold { incarnation, name } => self.store.hold(from, incarnation, name, host),
            GroupMessage::Secure(name) => self.store.secure(from, name, host),
        }
    }

    /// Returns whether a member has failed since this process's current incarnation began.
    pub(crate) fn must_freeze(&self) -> bool {
        self.view.incarnation(self.number) > self.incarnation
    }

    /// Starts waiting for agreement on what to restore.
    pub(crate) fn freeze(&mut self) {
        self.attempt.get_or_insert(MemberAttempt::new(RestoreNo::default()));
    }

    /// Begins a recovery, or ends it, if the membership permits. Has an effect only on the coordinator.
    pub(crate) fn watch_members(&mut self, host: &mut dyn Machine<P>) {
        if !self.is_recovering() || !self.coordinates() || !self.all_members_up() {
            return;
        }
        let incarnation = self.view.incarnation(self.number);
        match &self.round {
            Some(round) if round.restore.incarnation >= incarnation => self.maybe_resume(host),
            _ => self.begin(RestoreNo { incarnation, attempt: 1 }, host),
        }
    }

    /// Begins another attempt if a holder outside the group begins a new life, since its answer may be lost. Has an
    /// effect only on the coordinator.
    pub(crate) fn watch_outside_holders(&mut self, old: &View, host: &mut dyn Machine<P>) {
        let is_reborn = |holder: &ProcessId| self.view.began_new_life(*holder, old);
        if let Some(restore) = self.round.as_ref().map(|it| it.restore)
            && self.outside_holders().iter().any(is_reborn)
        {
            self.begin(RestoreNo { attempt: restore.attempt + 1, ..restore }, host);
        }
    }

    /// Returns the processes outside the group that hold its parts.
    fn outside_holders(&self) -> BTreeSet<ProcessId> {
        let holders = self.members.iter().flat_map(|&it| self.placement.holders(&self.view.membership, it));
        holders.filter(|&holder| self.view.group_of(holder) != self.number).collect()
    }

    fn begin(&mut self, restore: RestoreNo, host: &mut dyn Machine<P>) {
        let outside = self.outside_holders();
        let awaited = self.members.iter().chain(&outside).copied().collect();
        self.round = Some(Round { restore, awaited, parts: Survey::default(), target: None });
        let membership = self.view.membership.version;
        self.broadcast(GroupMessage::Gather { restore, membership }.into(), host);
        let group = self.number;
        for holder in outside {
            host.control(To::One(holder), GroupMessage::Inquire { restore, group }.into());
        }
        self.gather(self.me, restore, host);
    }

    /// Reports this member's parts, once all writes in progress have completed.
    fn gather(&mut self, from: ProcessId, restore: RestoreNo, host: &mut dyn Machine<P>) {
        let Some(attempt) = &mut self.attempt else { return };
        if restore.incarnation < self.view.incarnation(self.number) || restore <= attempt.restore {
            return;
        }
        *attempt = MemberAttempt::new(restore);
        let lives = u64::from(restore.incarnation.0) + self.members.len() as u64;
        host.claim(Claim::RecoveryStarted { lives, round: restore.attempt - 1 });
        let answers = self.store.inquired(from, restore, self.number, &self.view);
        self.send_answers(answers, host);
    }

    fn round(&mut self, restore: RestoreNo) -> Option<&mut Round> {
        self.round.as_mut().filter(|it| it.restore == restore)
    }

    /// Collects a report, and chooses a target once all reports have arrived. Runs on the coordinator.
    fn stock_reported(
        &mut self,
        from: ProcessId,
        restore: RestoreNo,
        parts: &[ImageName],
        host: &mut dyn Machine<P>,
    ) {
        let Some(round) = self.round(restore).filter(|it| it.target.is_none()) else { return };
        if !round.awaited.remove(&from) {
            return;
        }
        for &part in parts {
            round.parts.add(from, part, ());
        }
        if round.awaited.is_empty() {
            self.choose(restore, host);
        }
    }

    fn choose(&mut self, restore: RestoreNo, host: &mut dyn Machine<P>) {
        let members = self.members.clone();
        let has_started = self.has_started();
        let newest = self.rules.restores_newest;
        let Some(round) = self.round(restore) else { return };
        let parts = core::mem::take(&mut round.parts);
        let mut complete = parts.complete(&members).map(|(checkpoint, _)| checkpoint);
        let target = if newest { complete.next_back() } else { complete.next() };
        if target.is_none() && has_started {
            self.give_up(&parts, host);
            return;
        }
        round.target = Some(target);
        round.awaited = members.iter().copied().collect();
        let sources: Arc<[_]> = target.into_iter().flat_map(|it| parts.sources(it)).collect();
        self.broadcast(GroupMessage::Restore { restore, target, sources: sources.clone() }.into(), host);
        self.restore(restore, target, &sources, host);
    }

    /// Reports, for each member with a missing part, the newest checkpoint that lacks it, and the processes
    /// that were asked. Members may lack parts of different checkpoints: a checkpoint that was never complete
    /// may be newer than one that became incomplete through a loss. Runs on the coordinator.
    fn give_up(&self, parts: &Survey<()>, host: &mut dyn Machine<P>) {
        let asked = |owner: ProcessId| {
            let holders = self.placement.holders(&self.view.membership, owner);
            core::iter::once(owner).chain(holders).collect()
        };
        let first = Checkpoint { position: Position::new(0, 1), attempt: Attempt(1) };
        let newest_without = |owner: &ProcessId| {
            let mut lacking = parts.all().rev().filter(|(_, owners)| !owners.contains_key(owner));
            lacking.next().map(|(checkpoint, _)| checkpoint).or(parts.is_empty().then_some(first))
        };
        let missing = self
            .members
            .iter()
            .filter_map(|owner| Some((newest_without(owner)?.part(*owner), asked(*owner))))
            .collect();
        host.claim(Claim::Unrecoverable { group: self.number, missing });
    }

    /// Prepares this member's part of the target.
    fn restore(
        &mut self,
        restore: RestoreNo,
        target: Option<Checkpoint>,
        sources: &[(ImageName, ProcessId)],
        host: &mut dyn Machine<P>,
    ) {
        let Some(attempt) = self.attempt.as_mut().filter(|it| it.restore == restore) else { return };
        attempt.target = Some(target);
        attempt.awaited.clone_from(&self.holders);
        let Some(checkpoint) = target else {
            self.announce_ready(host);
            return;
        };
        let name = checkpoint.part(self.me);
        match sources.iter().find(|&&(part, _)| part == name) {
            Some(&(_, source)) => self.send_to(source, GroupMessage::Fetch(name), host),
            None => self.store.read_for(self.me, name, host),
        }
    }

    /// Returns the name of this member's part of the target, once a target has been chosen.
    fn awaited_part(&self) -> Option<ImageName> {
        Some(self.attempt.as_ref()?.target??.part(self.me))
    }

    /// Handles an image from the network, other than a companion of this process's own parts: a lost part of this
    /// process, or a replica that this process keeps for another one.
    pub(crate) fn image_arrived(
        &mut self,
        from: ProcessId,
        image: Arc<ImageOf<P>>,
        host: &mut dyn Machine<P>,
    ) {
        if image.name.owner != self.me {
            let answers = self.store.copy_arrived(from, image, &self.view, host);
            self.send_answers(answers, host);
        } else if self.awaited_part() == Some(image.name)
            && let Some(attempt) = &mut self.attempt
            && attempt.image.is_none()
        {
            attempt.image = Some(image.clone());
            self.store.write_whole(from, image, host);
        }
    }

    /// Records that this member's part, which had been lost, is durable in its storage again.
    pub(crate) fn own_part_durable(&mut self, name: ImageName, host: &mut dyn Machine<P>) {
        if self.awaited_part() == Some(name) {
            self.ask_holders(name, host);
        }
    }

    /// Asks the holders to confirm their replicas, because this member's part is available. A checkpoint in doubt may
    /// lack some replicas, but a restored one must not, since other groups remove the data that it makes obsolete.
    fn ask_holders(&mut self, name: ImageName, host: &mut dyn Machine<P>) {
        for &holder in &self.holders {
            host.control(To::One(holder), GroupMessage::Secure(name).into());
        }
        self.announce_ready(host);
    }

    /// Handles a holder's confirmation of its replica of the part to be restored.
    fn copy_stored(&mut self, from: ProcessId, name: ImageName, host: &mut dyn Machine<P>) {
        if self.awaited_part() == Some(name)
            && let Some(attempt) = &mut self.attempt
        {
            attempt.awaited.retain(|&holder| holder != from);
            self.announce_ready(host);
        }
    }

    /// Handles the result of reading this member's part, for itself or for a holder. The part may turn out to be lost.
    pub(crate) fn own_part_read(
        &mut self,
        name: ImageName,
        image: Option<Arc<ImageOf<P>>>,
        host: &mut dyn Machine<P>,
    ) {
        if self.awaited_part() != Some(name) {
            return;
        }
        if image.is_none() {
            self.fetch_refused(name, host);
        } else if let Some(attempt) = &mut self.attempt {
            attempt.image = image;
            self.ask_holders(name, host);
        }
    }

    /// Handles the answer of a process that does not have a requested image.
    fn fetch_refused(&mut self, name: ImageName, host: &mut dyn Machine<P>) {
        let Some(part) = self.awaited_part() else { return };
        if (part == name || self.store.gives_up(part, name))
            && let Some(attempt) = &self.attempt
        {
            let restore = attempt.restore;
            self.send_to(self.coordinator(), GroupMessage::Vanished(restore), host);
        }
    }

    fn announce_ready(&mut self, host: &mut dyn Machine<P>) {
        let Some(attempt) = &mut self.attempt else { return };
        let is_safe = attempt.image.is_some() && attempt.awaited.is_empty();
        if (attempt.target == Some(None) || is_safe) && !core::mem::replace(&mut attempt.is_ready, true) {
            let restore = attempt.restore;
            self.send_to(self.coordinator(), GroupMessage::Ready(restore), host);
        }
    }

    /// Begins another attempt, since a part to be restored has vanished. Runs on the coordinator.
    fn vanished(&mut self, restore: RestoreNo, host: &mut dyn Machine<P>) {
        if self.round(restore).is_some() {
            self.begin(RestoreNo { attempt: restore.attempt + 1, ..restore }, host);
        }
    }

    fn ready(&mut self, from: ProcessId, restore: RestoreNo, host: &mut dyn Machine<P>) {
        if let Some(round) = self.round(restore).filter(|it| it.target.is_some()) {
            round.awaited.remove(&from);
            self.maybe_resume(host);
        }
    }

    /// Resumes the group once all members are ready and none has failed since. If the restored state lets the
    /// application act for the first time, the supervisor must have recorded the start. Runs on the coordinator.
    fn maybe_resume(&mut self, host: &mut dyn Machine<P>) {
        let Some(round) = &self.round else { return };
        let (restore, Some(target), true) = (round.restore, round.target, round.awaited.is_empty()) else {
            return;
        };
        if !self.all_members_up() || restore.incarnation < self.view.incarnation(self.number) {
            return; // Another attempt begins once all members are up.
        }
        if target.is_some() && !self.has_started() {
            host.started();
            return;
        }
        self.round = None;
        self.broadcast(GroupMessage::Resume(restore).into(), host);
        self.resume(restore);
    }

    /// Handles the command to resume. The protocol installs the restored state ([`Group::take_resumed`]).
    fn resume(&mut self, restore: RestoreNo) {
        let is_current = |it: &mut MemberAttempt<P>| {
            it.restore == restore && it.is_ready && restore.incarnation == self.view.incarnation(self.number)
        };
        if let Some(attempt) = self.attempt.take_if(is_current) {
            assert!(self.resumed.is_none(), "a group resumes only once per failure");
            let target = attempt.target.flatten();
            let image = attempt.image;
            assert_eq!(
                image.as_ref().map(|it| it.name),
                target.map(|it| it.part(self.me)),
                "a member that is ready has its part of the target, and no other"
            );
            self.incarnation = restore.incarnation;
            self.kept = target;
            self.resumed = Some(Resumed { incarnation: restore.incarnation, target, image });
        }
    }

    /// Returns the result of a recovery, once. Call this after each of the methods above.
    pub(crate) fn take_resumed(&mut self) -> Option<Resumed<P>> {
        self.resumed.take()
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::{Snapshot, Witness};

    use super::*;
    use crate::machines::logs::tests::{Actions, Talk};

    #[test]
    fn a_process_resumes_at_the_restored_checkpoint_under_the_new_incarnation() {
        let old = Position::new(1, 3);
        let target = Checkpoint { position: old, attempt: Attempt(2) };
        let saved = crate::machines::logs::Saved { collected: 7, ..Default::default() };
        let snapshot =
            Snapshot { witness: Witness::default(), channels: Arc::from([]), application: Arc::from([]) };
        let name = target.part(ProcessId(1));
        let image = ImageOf::<Talk> { name, head: Arc::default(), saved: Arc::new(saved), snapshot };
        let resumed = Resumed::<Talk> {
            incarnation: Incarnation(2),
            target: Some(target),
            image: Some(Arc::new(image)),
        };
        let (position, claim) = resumed.restore(&mut Actions::default());
        assert_eq!(position, Position::new(2, 3));
        assert!(
            matches!(claim, Claim::RolledBack { to, checkpoint, .. } if (to, checkpoint) == (position, old))
        );
        assert_eq!(resumed.saved().collected, 7);
    }

    #[test]
    fn the_initial_state_has_number_0_and_nothing_saved() {
        let resumed = Resumed::<Talk> { incarnation: Incarnation(2), target: None, image: None };
        let (position, claim) = resumed.restore(&mut Actions::default());
        assert_eq!(position, Position::new(2, 0));
        let initial = Position::default();
        assert!(matches!(claim, Claim::RolledBack { checkpoint, .. } if checkpoint == initial));
        assert_eq!(resumed.saved(), Default::default());
    }
}
