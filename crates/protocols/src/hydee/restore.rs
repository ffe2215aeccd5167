//! Restoring a failed cluster. The sub-machine [`Group`](super::Group) agrees with the other members on what to restore
//! and fetches it; this file freezes the process before, and installs the result afterwards (R9). No other cluster
//! takes part, except as a holder of replicas.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Cause, Claim, Position, ProcessId, Sn, Time, Vectors};

use super::channel::LogSize;
use super::config::Defect;
use super::delivery::WireState;
use super::message::{Late, Saved, SegmentNo};
use super::spill::Spill;
use super::{Hydee, Image, ProtocolHost, Rank, RankState};
use crate::machines::Checkpoint;
use crate::machines::group::{Resumed, View};

impl Rank {
    /// Watches this process's cluster: a failure freezes it, and once all members are up again, the coordinator
    /// begins to restore it.
    pub(super) fn watch_members(&mut self, now: Time, host: &mut ProtocolHost) {
        self.start_recorded(now, host);
        if self.group.must_freeze() {
            self.freeze(host);
        }
        self.group.watch_members(host);
        self.maybe_resumed(now, host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    /// Abandons what this process is doing.
    fn freeze(&mut self, host: &mut ProtocolHost) {
        if let RankState::Checkpointing(part) = &self.state {
            host.claim(part.aborted());
        }
        if !matches!(self.state, RankState::Restoring) {
            self.state = RankState::Restoring;
            self.app_actions.clear();
            host.hold();
        }
        self.group.freeze();
        if let Some(lead) = self.lead() {
            lead.gathering = None;
            lead.checkpoint_at = None;
        }
    }

    /// Handles new lives of holders: their storage, and messages in transit to them, may be lost.
    pub(super) fn watch_holders(&mut self, old: &View, host: &mut ProtocolHost) {
        for holder in self.group.reborn_holders(old) {
            self.group.tell_holder(holder, host);
            self.repeat_copy(holder, host);
            self.repeat_segments(holder, host);
        }
        self.group.watch_outside_holders(old, host);
    }

    /// Handles an image from the network: a lost image of this process, or another process's replica.
    pub(super) fn image_arrived(
        &mut self,
        from: ProcessId,
        image: Arc<Image>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        match SegmentNo::of(image.name) {
            Some(segment) if image.name.owner == self.group.me => {
                self.own_segment_arrived(segment, image, host);
            }
            _ => self.group.image_arrived(from, image, host),
        }
        self.maybe_resumed(now, host);
    }

    /// Installs what the cluster has agreed to restore, once all members have it, and resumes (R9).
    pub(super) fn maybe_resumed(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(resumed) = self.group.take_resumed() else {
            return;
        };
        assert!(matches!(self.state, RankState::Restoring), "a cluster resumes only after a failure");
        self.state = RankState::Running;
        let target = resumed.target;
        let late = self.install(resumed, host);
        self.receive_late(late);
        if let Some(Checkpoint { position, .. }) = target {
            host.claim(Claim::Collected { round: position.sn.0, below: position.sn, kept: 1, log: 0 });
        }
        self.group.keep(target, host);
        self.group.store.has_own(host);
        self.group.tell_holders(host);
        if let Some(lead) = self.lead() {
            lead.attempts = 0;
        }
        self.proceed(host);
        self.restart_timer(now);
        self.synchronise(host);
        self.meet_peers(host);
        self.replay(now, host);
        if self.position.sn.0 == 0 {
            self.begin_checkpoint(now, host);
        }
    }

    fn install(&mut self, resumed: Resumed<Hydee>, host: &mut ProtocolHost) -> Vec<Late> {
        let Resumed { incarnation, target, image } = resumed;
        let image = image.as_deref();
        host.restore(image, incarnation);
        let checkpoint = target.map_or(Position::default(), |it| it.position);
        let sn = target.map_or(Sn(0), |it| it.position.sn);
        self.position = Position { incarnation, sn };
        let nothing =
            Saved { phase: 1, channels: BTreeMap::new(), app_actions: Default::default(), late: Vec::new() };
        let Saved { phase, channels, app_actions, late } =
            image.map_or(nothing, |image| Saved::clone(&image.saved));
        (self.phase, self.channels, self.app_actions) = (phase, channels, app_actions);
        let in_pairs = self.recovers_in_pairs();
        let is_outside = |peer: &ProcessId| self.group.view.group_of(*peer) != self.group.number;
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
