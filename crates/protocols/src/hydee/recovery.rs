//! A rank's side of a recovery round (Algorithms 2 and 3; R9, R10, R13).
//!
//! A process that learns of a failure stops sending. Once the recovery process has begun the round, a process
//! whose own cluster has failed first waits until that cluster is restored. It then exchanges the state of
//! the shared channels with every process of another cluster, if either cluster has failed. As a result, it
//! knows its orphans, reports them, and waits for levels.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Claim, ClusterId, Incarnation, MessageId, ProcessId, Time, To};

use super::config::Defect;
use super::delivery::Gate;
use super::message::{Control, Covered, Orphan, Phase};
use super::{ProtocolHost, Rank, RankState};

/// The round, as this process knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// The failed clusters, once the recovery process has announced them.
    failed: Option<Arc<[ClusterId]>>,
    /// Whether this process has reported the state of its channels.
    is_synchronising: bool,
    /// Processes that have not reported theirs yet.
    awaited: BTreeSet<ProcessId>,
    /// Reports that arrived before this process sent its own.
    early: Vec<(ProcessId, Covered, Covered)>,
    orphans: Vec<Orphan>,
    is_reported: bool,
}

impl Rank {
    /// Stops sending after a failure, until a new round announces what may be sent (R9).
    pub(super) fn await_round(&mut self) {
        self.round = Round::default();
        self.gate = Gate::Closed;
    }

    /// Handles the announcement of a round by the recovery process.
    pub(super) fn round_begins(&mut self, epoch: u64, failed: Arc<[ClusterId]>, host: &mut ProtocolHost) {
        if epoch == self.group.view.epoch {
            self.round.failed = Some(failed);
            self.synchronise(host);
        }
    }

    /// Exchanges the state of the channels, once the round has begun and this process is ready.
    pub(super) fn synchronise(&mut self, host: &mut ProtocolHost) {
        if matches!(self.state, RankState::Restoring) || self.round.is_synchronising {
            return;
        }
        let Some(failed) = self.round.failed.clone() else {
            return;
        };
        self.round.is_synchronising = true;
        let epoch = self.group.view.epoch;
        let have_we = failed.contains(&self.group.number);
        let peers: Vec<ProcessId> = self
            .group
            .view
            .ranks()
            .filter(|&peer| {
                let theirs = self.group.view.group_of(peer);
                theirs != self.group.number && (have_we || failed.contains(&theirs))
            })
            .collect();
        for &peer in &peers {
            let has_failed = failed.contains(&self.group.view.group_of(peer));
            if have_we && has_failed && self.has(Defect::FailedDoNotAnswer) {
                continue;
            }
            let present = self.channels.get(&peer).map_or_else(Covered::default, |it| it.covered());
            let committed = self.committed.get(&peer).copied().unwrap_or_default();
            host.control(To::One(peer), Control::Sync { epoch, present, committed });
        }
        self.round.awaited = peers.into_iter().collect();
        for (peer, present, committed) in core::mem::take(&mut self.round.early) {
            self.synchronised(peer, epoch, present, committed, host);
        }
        self.maybe_report(host);
    }

    /// Handles a peer's report on the shared channels (R10).
    pub(super) fn synchronised(
        &mut self,
        peer: ProcessId,
        epoch: u64,
        present: Covered,
        committed: Covered,
        host: &mut ProtocolHost,
    ) {
        if epoch < self.group.view.epoch && !self.has(Defect::OlderSyncAccepted) {
            return;
        }
        if !self.round.is_synchronising {
            self.round.early.push((peer, present, committed));
            return;
        }
        if !self.round.awaited.remove(&peer) {
            return;
        }
        self.settle(peer, committed);
        let channel = self.channels.entry(peer).or_default();
        let settled = channel.settled;
        let wire = self.wires.entry(peer).or_default();
        wire.next = present.received.max(settled.received);
        wire.fresh = channel.sent;
        let first_orphan =
            present.sent.max(settled.sent) + u32::from(self.config.defects.has(Defect::FirstOrphanMissed));
        let orphan = |(&number, &phase): (&u32, &Phase)| Orphan {
            id: MessageId { from: peer, to: self.group.me, incarnation: Incarnation(0), number },
            phase,
        };
        self.round.orphans.extend(channel.receipts.range(first_orphan..).map(orphan));
        let theirs = self.group.view.group_of(peer);
        let has_failed = self.round.failed.as_ref().is_some_and(|failed| failed.contains(&theirs));
        if self.has(Defect::RestoredLogNotSent) && !has_failed {
            self.wires.entry(peer).or_default().next = self.channels[&peer].sent.max(present.received);
        }
        self.maybe_report(host);
    }

    fn maybe_report(&mut self, host: &mut ProtocolHost) {
        let round = &mut self.round;
        if round.is_synchronising && round.awaited.is_empty() && !round.is_reported {
            round.is_reported = true;
            let orphans: Arc<[Orphan]> = core::mem::take(&mut round.orphans).into();
            for &Orphan { id, phase } in orphans.iter() {
                host.claim(Claim::Orphaned { id, phase });
            }
            self.tell_recovery_process(Control::Report { epoch: self.group.view.epoch, orphans }, host);
        }
    }

    /// Handles a level: messages up to this phase, or all messages, may be sent (R11).
    pub(super) fn level_told(
        &mut self,
        epoch: u64,
        level: Option<Phase>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if epoch < self.group.view.epoch && !self.has(Defect::OlderLevelObeyed) {
            return;
        }
        self.gate = level.map_or(Gate::Open, Gate::UpTo);
        if matches!(self.state, RankState::Restoring) {
            return;
        }
        self.pump_all(host);
        self.proceed(host);
        self.maybe_write(now, host);
    }
}
