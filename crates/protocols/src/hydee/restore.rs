//! How a failed cluster agrees on what to restore, and restores it: the newest checkpoint with all parts available,
//! whether committed or in doubt. No other cluster takes part, except as a holder of replicas.
//!
//! Coordinator: Gather to members, Inquire to holders -> Stock from all -> Restore -> Ready from all -> Resume. A
//! failure, a new life of a holder or a vanished part begins another attempt.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Attempt, Cause, Claim, ImageName, Position, ProcessId, Sn, Time, To, Vectors};

use super::channel::LogSize;
use super::config::Defect;
use super::delivery::WireState;
use super::message::{Control, RestoreNo, Saved, SegmentNo};
use super::spill::Spill;
use super::view::View;
use super::{Image, ProtocolHost, Rank, RankState};
use crate::machines::{Checkpoint, Survey};

/// The member's side of an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Restoring {
    restore: RestoreNo,
    target: Option<Option<Checkpoint>>,
    image: Option<Arc<Image>>,
    /// Holders that have not confirmed their replicas yet.
    awaited: Vec<ProcessId>,
    is_ready: bool,
}

/// The coordinator's side of an attempt.
#[derive(Clone, Debug)]
pub(super) struct PartSurvey {
    restore: RestoreNo,
    awaited: BTreeSet<ProcessId>,
    parts: Survey<()>,
    target: Option<Option<Checkpoint>>,
}

impl Rank {
    /// Watches the own cluster: a failure freezes it, and once all members live again, the coordinator begins to
    /// restore it.
    pub(super) fn watch_members(&mut self, now: Time, host: &mut ProtocolHost) {
        self.start_recorded(now, host);
        if self.view.incarnation(self.cluster) > self.position.incarnation {
            self.freeze(host);
        }
        if self.lead.is_none() || !self.all_members_up() {
            return;
        }
        let incarnation = self.view.incarnation(self.cluster);
        match &self.state {
            RankState::Restoring(_) => {
                let part_survey = self.lead().and_then(|it| it.part_survey.as_ref());
                if part_survey.is_none_or(|it| it.restore.incarnation < incarnation) {
                    self.begin_restore(RestoreNo { incarnation, attempt: 1 }, now, host);
                } else {
                    self.maybe_resume(now, host);
                }
            }
            RankState::Running if self.position.sn.0 == 0 => self.begin_checkpoint(now, host),
            _ => {}
        }
    }

    /// Abandons what this process is doing.
    fn freeze(&mut self, host: &mut ProtocolHost) {
        if let RankState::Checkpointing(part) = &self.state {
            host.claim(part.aborted());
        }
        if !matches!(self.state, RankState::Restoring(_)) {
            self.state = RankState::Restoring(Box::default());
            self.app_actions.clear();
            host.hold();
        }
        if let Some(lead) = self.lead() {
            lead.gathering = None;
            lead.checkpoint_at = None;
        }
    }

    /// Handles new lives of holders: their storage, and messages in transit to them, may be lost.
    pub(super) fn watch_holders(&mut self, old: &View, now: Time, host: &mut ProtocolHost) {
        if !matches!(self.state, RankState::Restoring(_)) {
            for index in 0..self.holders.len() {
                let holder = self.holders[index];
                if self.view.began_new_life(holder, old) {
                    self.tell_holder(holder, host);
                    self.repeat_copy(holder, host);
                    self.repeat_segments(holder, host);
                }
            }
        }
        let reborn = self.outside_holders().iter().any(|&holder| self.view.began_new_life(holder, old));
        if let Some(part_survey) = self.lead().and_then(|it| it.part_survey.as_ref())
            && reborn
        {
            let restore = part_survey.restore;
            self.begin_restore(RestoreNo { attempt: restore.attempt + 1, ..restore }, now, host);
        }
    }

    /// Returns the holders of the cluster's parts that are not members.
    fn outside_holders(&self) -> BTreeSet<ProcessId> {
        let placement = self.config.copies();
        let holders = self.members.iter().flat_map(|&it| placement.holders(&self.view.membership, it));
        holders.filter(|&holder| self.view.cluster_of(holder) != self.cluster).collect()
    }

    fn begin_restore(&mut self, restore: RestoreNo, now: Time, host: &mut ProtocolHost) {
        let outside = self.outside_holders();
        let asked = if self.has(Defect::HoldersNotAsked) { 0 } else { usize::MAX };
        let awaited = self.members.iter().chain(outside.iter().take(asked)).copied().collect();
        let Some(lead) = self.lead() else { return };
        lead.part_survey = Some(PartSurvey { restore, awaited, parts: Survey::default(), target: None });
        let membership = self.view.membership.version;
        self.broadcast(Control::Gather { restore, membership }, host);
        let cluster = self.cluster;
        for holder in outside {
            host.control(To::One(holder), Control::Inquire { restore, cluster });
        }
        self.gather(self.me, restore, now, host);
    }

    /// Member: reports what it has, once all writes in progress have completed.
    pub(super) fn gather(&mut self, from: ProcessId, restore: RestoreNo, now: Time, host: &mut ProtocolHost) {
        let RankState::Restoring(restoring) = &mut self.state else {
            return;
        };
        if restore.incarnation < self.view.incarnation(self.cluster) || restore <= restoring.restore {
            return;
        }
        **restoring = Restoring { restore, ..Restoring::default() };
        let lives = u64::from(restore.incarnation.0) + self.members.len() as u64;
        host.claim(Claim::RecoveryStarted { lives, round: restore.attempt - 1 });
        let answers = self.store.inquired(from, restore, self.cluster, &self.view);
        self.say(answers, now, host);
    }

    fn part_survey(&mut self, restore: RestoreNo) -> Option<&mut PartSurvey> {
        let older_counts = self.has(Defect::OlderRestoresCount);
        self.lead()?.part_survey.as_mut().filter(|it| it.restore == restore || older_counts)
    }

    /// Coordinator: collects a report, and chooses once all have arrived.
    pub(super) fn stock_told(
        &mut self,
        from: ProcessId,
        restore: RestoreNo,
        parts: Arc<[ImageName]>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let Some(part_survey) = self.part_survey(restore).filter(|it| it.target.is_none()) else {
            return;
        };
        if !part_survey.awaited.remove(&from) {
            return;
        }
        for &part in parts.iter() {
            part_survey.parts.add(from, part, ());
        }
        if part_survey.awaited.is_empty() {
            self.choose(restore, now, host);
        }
    }

    fn choose(&mut self, restore: RestoreNo, now: Time, host: &mut ProtocolHost) {
        let members = self.members.clone();
        let has_started = self.has_started();
        let takes_oldest = self.has(Defect::OldestRestored);
        let Some(part_survey) = self.part_survey(restore) else {
            return;
        };
        let parts = core::mem::take(&mut part_survey.parts);
        let mut complete = parts.complete(&members).map(|(checkpoint, _)| checkpoint);
        let target = if takes_oldest { complete.next() } else { complete.next_back() };
        if target.is_none() && has_started {
            self.give_up(&parts, host);
            return;
        }
        part_survey.target = Some(target);
        part_survey.awaited = members.iter().copied().collect();
        let sources: Arc<[_]> = target.into_iter().flat_map(|it| parts.sources(it)).collect();
        self.broadcast(Control::Restore { restore, target, sources: sources.clone() }, host);
        self.restore(restore, target, &sources, now, host);
    }

    /// Coordinator: reports, for each member with a missing part, the newest checkpoint that lacks it, and the
    /// processes that were asked. A checkpoint that was never complete may be newer than one that became incomplete
    /// by a loss; both are reported.
    fn give_up(&self, parts: &Survey<()>, host: &mut ProtocolHost) {
        let asked = |owner: ProcessId| {
            let holders = self.config.copies().holders(&self.view.membership, owner);
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
        host.claim(Claim::Unrecoverable { cluster: self.cluster, missing });
    }

    /// Member: prepares its part of the target.
    pub(super) fn restore(
        &mut self,
        restore: RestoreNo,
        target: Option<Checkpoint>,
        sources: &[(ImageName, ProcessId)],
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let RankState::Restoring(restoring) = &mut self.state else {
            return;
        };
        if restoring.restore != restore {
            return;
        }
        restoring.target = Some(target);
        if !self.config.defects.has(Defect::ReadyBeforeCopies) {
            restoring.awaited.clone_from(&self.holders);
        }
        let Some(checkpoint) = target else {
            self.say_ready(now, host);
            return;
        };
        let name = checkpoint.part(self.me);
        match sources.iter().find(|&&(part, _)| part == name) {
            Some(&(_, source)) => self.tell(source, Control::Fetch(name), now, host),
            None => self.store.read_for(self.me, name, host),
        }
    }

    /// Returns the part to be restored.
    fn awaited_part(&self) -> Option<ImageName> {
        match &self.state {
            RankState::Restoring(restoring) => Some(restoring.target??.part(self.me)),
            _ => None,
        }
    }

    /// Handles an image from the network: a lost part of this process, or another process's replica.
    pub(super) fn image_arrived(
        &mut self,
        from: ProcessId,
        image: Arc<Image>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if image.name.owner != self.me {
            let answers = self.store.copy_arrived(from, image, &self.view, host);
            self.say(answers, now, host);
        } else if let Some(segment) = SegmentNo::of(image.name) {
            self.own_segment_arrived(segment, image, host);
        } else if self.awaited_part() == Some(image.name)
            && let RankState::Restoring(restoring) = &mut self.state
            && restoring.image.is_none()
        {
            restoring.image = Some(image.clone());
            self.store.write_whole(from, image, host);
        }
    }

    /// Member: its own part is in its storage again.
    pub(super) fn own_part_fetched(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        if self.awaited_part() == Some(name) {
            self.ask_holders(name, now, host);
        }
    }

    /// Member: its own part is available. Asks the holders to confirm their replicas: a checkpoint in doubt may lack
    /// some, but a restored one must not, since other clusters remove what it makes obsolete.
    fn ask_holders(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        for &holder in &self.holders {
            host.control(To::One(holder), Control::Secure(name));
        }
        self.say_ready(now, host);
    }

    /// Member: a holder confirms its replica of the part to be restored.
    pub(super) fn restored_copy_stored(
        &mut self,
        from: ProcessId,
        name: ImageName,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if self.awaited_part() == Some(name)
            && let RankState::Restoring(restoring) = &mut self.state
        {
            restoring.awaited.retain(|&holder| holder != from);
            self.say_ready(now, host);
        }
    }

    pub(super) fn own_part_read(
        &mut self,
        name: ImageName,
        image: Option<Arc<Image>>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if self.awaited_part() != Some(name) {
            return;
        }
        match image {
            None => self.fetch_refused(name, now, host),
            Some(_) => {
                if let RankState::Restoring(restoring) = &mut self.state {
                    restoring.image = image;
                }
                self.ask_holders(name, now, host);
            }
        }
    }

    /// Member: the part is not where it was expected.
    pub(super) fn fetch_refused(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        let Some(part) = self.awaited_part() else { return };
        if (part == name || self.store.gives_up(part, name))
            && let RankState::Restoring(restoring) = &self.state
        {
            let restore = restoring.restore;
            self.tell(self.coordinator(), Control::Vanished(restore), now, host);
        }
    }

    fn say_ready(&mut self, now: Time, host: &mut ProtocolHost) {
        let RankState::Restoring(restoring) = &mut self.state else {
            return;
        };
        let is_safe = restoring.image.is_some() && restoring.awaited.is_empty();
        if (restoring.target == Some(None) || is_safe) && !core::mem::replace(&mut restoring.is_ready, true) {
            let restore = restoring.restore;
            self.tell(self.coordinator(), Control::Ready(restore), now, host);
        }
    }

    /// Coordinator: begins another attempt, since a part to be restored has vanished.
    pub(super) fn vanished(&mut self, restore: RestoreNo, now: Time, host: &mut ProtocolHost) {
        if self.part_survey(restore).is_some() {
            self.begin_restore(RestoreNo { attempt: restore.attempt + 1, ..restore }, now, host);
        }
    }

    pub(super) fn ready(&mut self, from: ProcessId, restore: RestoreNo, now: Time, host: &mut ProtocolHost) {
        if let Some(part_survey) = self.part_survey(restore).filter(|it| it.target.is_some()) {
            part_survey.awaited.remove(&from);
            self.maybe_resume(now, host);
        }
    }

    /// Coordinator: once all are ready and no member has failed since, the cluster resumes. If the restored state
    /// lets the application act for the first time, this must be on record first.
    fn maybe_resume(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(part_survey) = self.lead.as_ref().and_then(|it| it.part_survey.as_ref()) else {
            return;
        };
        let (restore, Some(target), true) =
            (part_survey.restore, part_survey.target, part_survey.awaited.is_empty())
        else {
            return;
        };
        let are_up = self.all_members_up() || self.has(Defect::ResumesWithoutMembers);
        if !are_up || restore.incarnation < self.view.incarnation(self.cluster) {
            return; // Another attempt begins once they are.
        }
        if target.is_some() && !self.has_started() {
            host.started();
            return;
        }
        if let Some(lead) = self.lead() {
            lead.part_survey = None;
        }
        self.broadcast(Control::Resume(restore), host);
        self.resume(restore, now, host);
    }

    /// Member: installs the target and resumes (R9).
    pub(super) fn resume(&mut self, restore: RestoreNo, now: Time, host: &mut ProtocolHost) {
        let restoring = match core::mem::replace(&mut self.state, RankState::Running) {
            RankState::Restoring(it)
                if it.restore == restore
                    && it.is_ready
                    && restore.incarnation == self.view.incarnation(self.cluster) =>
            {
                it
            }
            other => {
                self.state = other;
                return;
            }
        };
        let target = restoring.target.flatten();
        let late = self.install(restore, target, restoring.image.as_deref(), host);
        self.receive_late(late);
        let own = target.map(|it| it.part(self.me));
        if let Some(Checkpoint { position, .. }) = target {
            host.claim(Claim::Collected { round: position.sn.0, below: position.sn, kept: 1, log: 0 });
        }
        self.store.remove_older(self.me, self.position.incarnation, own, host);
        self.store.has_own(host);
        self.tell_holders(host);
        if let Some(lead) = self.lead() {
            lead.attempts = 0;
        }
        self.proceed(host);
        self.restart_timer(now);
        self.synchronise(host);
        self.meet_peers(host);
        self.replay(now, host);
        if self.lead.is_some() && self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    fn install(
        &mut self,
        restore: RestoreNo,
        target: Option<Checkpoint>,
        image: Option<&Image>,
        host: &mut ProtocolHost,
    ) -> Vec<super::Late> {
        host.restore(image, restore.incarnation);
        let checkpoint = target.map_or(Position::default(), |it| it.position);
        let sn = target.map_or(Sn(0), |it| it.position.sn);
        self.position = Position { incarnation: restore.incarnation, sn };
        self.kept = target;
        let nothing =
            Saved { phase: 1, channels: BTreeMap::new(), app_actions: Default::default(), late: Vec::new() };
        let Saved { phase, channels, app_actions, late } =
            image.map_or(nothing, |image| Saved::clone(&image.saved));
        (self.phase, self.channels, self.app_actions) = (phase, channels, app_actions);
        let in_pairs = self.recovers_in_pairs();
        let is_outside = |peer: &ProcessId| self.view.cluster_of(*peer) != self.cluster;
        let outside = self.channels.iter_mut().filter(|(peer, _)| is_outside(peer));
        (self.committed, self.wires) = (BTreeMap::new(), BTreeMap::new());
        (self.log, self.collected) = (LogSize::default(), 0);
        self.spill = Spill::default();
        for (&peer, channel) in outside {
            if self.config.defects.has(Defect::LogOutsideCheckpoint) {
                channel.log.clear();
            }
            self.committed.insert(peer, channel.covered());
            let undecided = in_pairs.then_some(channel.sent);
            let wire =
                WireState { next: channel.sent, fresh: channel.sent, undecided, ..WireState::default() };
            self.wires.insert(peer, wire);
            for (&number, entry) in &channel.log {
                self.log.add(entry);
                if entry.content.segment().is_none() && self.config.log_memory.is_some() {
                    self.spill.logged(peer, number);
                }
            }
        }
        self.recall_order(target.is_some(), host);
        host.claim(Claim::RolledBack {
            to: self.position,
            checkpoint,
            cause: Cause::Failure,
            vectors: Arc::new(Vectors::default()),
        });
        late
    }
}
