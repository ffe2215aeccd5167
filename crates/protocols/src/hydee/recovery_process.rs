//! The recovery process (Algorithm 4; R1, R11, R12): it begins rounds, counts orphans, and releases messages phase by
//! phase. It is outside all clusters. If it fails, its replacement begins a new round.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Birth, Boot, Claim, ClusterId, Incarnation, Input, Life, Membership, MessageId, ProcessId, Time, To,
};

use super::config::{Config, Defect};
use super::message::{Control, Orphan, Phase};
use super::{Hydee, ProtocolHost, view};
use crate::machines::group::View;

#[derive(Clone, Debug)]
pub(super) struct RecoveryProcess {
    config: Arc<Config>,
    view: View,
    /// The newest round that was begun.
    begun: u64,
    /// Number of failures of each cluster when the last round closed. Later failures have not been handled.
    dealt_with: Vec<Incarnation>,
    round: Option<Round>,
    record: u64,
}

#[derive(Clone, Debug)]
struct Round {
    epoch: u64,
    incarnations: Vec<Incarnation>,
    /// Ranks that have not reported yet.
    awaited: BTreeSet<ProcessId>,
    /// Outstanding orphans with their phases.
    orphans: BTreeMap<MessageId, Phase>,
    /// The last announced level.
    level: Option<Option<Phase>>,
    /// Whether a re-execution deviated from the execution, so that recovery cannot continue (R14).
    is_broken: bool,
}

impl RecoveryProcess {
    pub(super) fn start(birth: Birth<Config>, host: &mut ProtocolHost) -> RecoveryProcess {
        let Birth { boot, membership, config, record, life, .. } = birth;
        let view = view(&config, membership);
        // A record that does not decode counts as lost: more clusters than necessary are then treated as failed.
        let recorded = record.and_then(|bytes| postcard::from_bytes(&bytes).ok());
        let nothing = view.incarnations().iter().map(|_| Incarnation(0)).collect();
        let mut this = RecoveryProcess {
            config,
            view,
            begun: 0,
            dealt_with: recorded.unwrap_or(nothing),
            round: None,
            record: 0,
        };
        if boot == Boot::Replaced {
            host.held();
        }
        if life > Life(1) && this.has(Defect::ReplacedWithoutRound) {
            this.begun = this.view.epoch;
        }
        this.maybe_begin(host);
        this
    }

    fn has(&self, defect: Defect) -> bool {
        self.config.defects.has(defect)
    }

    pub(super) fn handle(&mut self, input: Input<Hydee>, _: Time, host: &mut ProtocolHost) {
        match input {
            Input::Membership(membership) => self.membership_changed(membership, host),
            Input::Control { from, message } => self.told(from, message, host),
            _ => {}
        }
    }

    fn membership_changed(&mut self, membership: Arc<Membership>, host: &mut ProtocolHost) {
        self.view = view(&self.config, membership);
        self.maybe_begin(host);
    }

    /// Begins a round if a process has failed since the last one and all ranks are up. A failed rank could not receive
    /// the announcement, and the round would have to wait for it in any case.
    fn maybe_begin(&mut self, host: &mut ProtocolHost) {
        let all_up = self.view.ranks().all(|rank| self.view.is_up(rank));
        let epoch = self.view.epoch;
        if epoch <= self.begun || !all_up {
            return;
        }
        if self.has(Defect::OnlyNewlyFailed)
            && let Some(round) = self.round.take()
        {
            self.dealt_with = round.incarnations;
        }
        let clusters = (0..self.dealt_with.len()).map(|index| ClusterId(index as u16));
        let failed: Arc<[ClusterId]> = clusters
            .filter(|cluster| self.view.incarnation(*cluster) > self.dealt_with[cluster.index()])
            .collect();
        self.begun = epoch;
        self.round = Some(Round {
            epoch,
            incarnations: self.view.incarnations().to_vec(),
            awaited: self.view.ranks().collect(),
            orphans: BTreeMap::new(),
            level: None,
            is_broken: false,
        });
        let membership = self.view.membership.version;
        for index in 0..self.view.membership.clusters.len() {
            let begin = Control::Begin { epoch, membership, failed: failed.clone() };
            host.control(To::Cluster(ClusterId(index as u16)), begin);
        }
    }

    fn told(&mut self, from: ProcessId, message: Control, host: &mut ProtocolHost) {
        let Some(round) = &mut self.round else {
            return;
        };
        match message {
            Control::Report { epoch, orphans } if epoch == round.epoch => {
                round.awaited.remove(&from);
                round.orphans.extend(orphans.iter().map(|it| (it.id, it.phase)));
                self.announce(host);
            }
            Control::Replayed { epoch, orphan } if epoch == round.epoch => {
                self.replayed(orphan, host);
            }
            _ => {}
        }
    }

    /// Handles the re-send of an orphan. It is no longer outstanding, provided that the re-execution matches the
    /// execution (R14).
    fn replayed(&mut self, orphan: Orphan, host: &mut ProtocolHost) {
        let counts_processes = self.has(Defect::CountsProcesses);
        let round = self.round.as_mut().expect("it was asked for");
        let Some(recorded) = round.orphans.remove(&orphan.id) else {
            return;
        };
        if recorded != orphan.phase {
            round.is_broken = true;
            host.claim(Claim::NotRepeated { id: orphan.id, recorded, repeated: orphan.phase });
            return;
        }
        if counts_processes {
            let MessageId { from, to, .. } = orphan.id;
            round.orphans.retain(|id, phase| (id.from, id.to, *phase) != (from, to, recorded));
        }
        self.announce(host);
    }

    /// Announces up to which phase messages may be sent, once all ranks have reported and whenever the level changes
    /// (R11). If all messages may be sent, the round is closed (R12).
    fn announce(&mut self, host: &mut ProtocolHost) {
        let waits = !self.has(Defect::NoBarrier);
        let waits_for_zero = self.has(Defect::NoInitialLevel);
        let round = self.round.as_mut().expect("a round is on");
        if waits && !round.awaited.is_empty() || round.is_broken {
            return;
        }
        let level = round.orphans.values().min().copied();
        if round.level == Some(level) {
            return;
        }
        if waits_for_zero && round.level.is_none() {
            round.level = Some(level);
            return;
        }
        round.level = Some(level);
        let epoch = round.epoch;
        for index in 0..self.view.membership.clusters.len() {
            host.control(To::Cluster(ClusterId(index as u16)), Control::Level { epoch, level });
        }
        let round = self.round.as_ref().expect("a round is on");
        if level.is_none() && round.awaited.is_empty() {
            self.dealt_with.clone_from(&round.incarnations);
            self.round = None;
            self.record += 1;
            let bytes = postcard::to_allocvec(&self.dealt_with).expect("numbers can be encoded");
            host.record(self.record, bytes.into());
        }
    }
}
