//! The recovery process (Algorithm 4; R1, R11, R12, R14): it begins rounds, counts orphans, and releases messages phase
//! by phase. It is outside all groups. If it fails, its replacement begins a new round.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Boot, Claim, ClusterId, GroupId, Host, Incarnation, Life, LifeStart, Membership, MessageId, PhaseClaim,
    ProcessId, Protocol, Scope, To,
};

use super::{Orphan, Phase, RoundMessage, view};
use crate::machines::group::View;

#[derive(Clone, Debug)]
pub(crate) struct RecoveryProcess {
    rules: RecoveryRules,
    view: View,
    /// Number of the newest round that has begun.
    begun: u64,
    /// Number of failures of each group when the last round closed. Later failures have not been handled.
    handled: Vec<Incarnation>,
    round: Option<Round>,
    record: u64,
}

/// The rules of the recovery process. Tests can disable each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoveryRules {
    /// Orphans are counted individually (R11).
    pub(crate) counts_messages: bool,
    /// A level is announced once all ranks have reported, even if no orphan has been re-sent yet (R11).
    pub(crate) announces_first: bool,
    /// A round covers the groups of rounds that are still open (R1).
    pub(crate) covers_open_rounds: bool,
    /// A new life of the recovery process begins a new round (R1).
    pub(crate) replaced_begins: bool,
    /// A level waits for reports from all ranks (R11).
    pub(crate) waits_for_reports: bool,
}

impl RecoveryRules {
    /// All rules are obeyed.
    pub(crate) const ALL: RecoveryRules = RecoveryRules {
        counts_messages: true,
        announces_first: true,
        covers_open_rounds: true,
        replaced_begins: true,
        waits_for_reports: true,
    };
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
    /// Whether a re-execution deviated from the original execution. If so, the recovery cannot continue
    /// (R14).
    is_broken: bool,
}

impl RecoveryProcess {
    /// Begins a life of the recovery process for groups of this scope.
    pub(crate) fn start<P, C>(
        start: &LifeStart<C>,
        scope: Scope,
        rules: RecoveryRules,
        host: &mut dyn Host<P>,
    ) -> RecoveryProcess
    where
        P: Protocol<Control: From<RoundMessage>>,
    {
        let view = view(scope, rules.replaced_begins, start.membership.clone());
        // A record that cannot be decoded counts as lost: more groups than necessary are then treated as failed.
        let recorded = start.record.as_ref().and_then(|bytes| postcard::from_bytes(bytes).ok());
        let nothing = view.incarnations().iter().map(|_| Incarnation(0)).collect();
        let handled = recorded.unwrap_or(nothing);
        let mut this = RecoveryProcess { rules, view, begun: 0, handled, round: None, record: 0 };
        if start.boot == Boot::Replaced {
            host.held();
        }
        if start.life > Life(1) && !rules.replaced_begins {
            this.begun = this.view.epoch;
        }
        this.maybe_begin(host);
        this
    }

    /// Handles a change in the membership.
    pub(crate) fn membership_changed<P>(&mut self, membership: Arc<Membership>, host: &mut dyn Host<P>)
    where
        P: Protocol<Control: From<RoundMessage>>,
    {
        self.view = view(self.view.scope(), self.rules.replaced_begins, membership);
        self.maybe_begin(host);
    }

    /// Begins a round if a process has failed since the last one and all ranks are up. A failed rank could not receive
    /// the announcement, and the round would have to wait for it in any case.
    fn maybe_begin<P>(&mut self, host: &mut dyn Host<P>)
    where
        P: Protocol<Control: From<RoundMessage>>,
    {
        let all_up = self.view.ranks().all(|rank| self.view.is_up(rank));
        let epoch = self.view.epoch;
        if epoch <= self.begun || !all_up {
            return;
        }
        if !self.rules.covers_open_rounds
            && let Some(round) = self.round.take()
        {
            self.handled = round.incarnations;
        }
        let groups = (0..self.handled.len()).map(|index| GroupId(index as u16));
        let failed: Arc<[GroupId]> =
            groups.filter(|group| self.view.incarnation(*group) > self.handled[group.place()]).collect();
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
            let begin = RoundMessage::Begin { epoch, membership, failed: failed.clone() };
            host.control(To::Cluster(ClusterId(index as u16)), begin.into());
        }
    }

    /// Handles a message from a rank.
    pub(crate) fn handle_message<P>(&mut self, from: ProcessId, message: RoundMessage, host: &mut dyn Host<P>)
    where
        P: Protocol<Control: From<RoundMessage>>,
    {
        let Some(round) = &mut self.round else {
            return;
        };
        match message {
            RoundMessage::Report { epoch, orphans } if epoch == round.epoch => {
                round.awaited.remove(&from);
                round.orphans.extend(orphans.iter().map(|it| (it.id, it.phase)));
                self.announce(host);
            }
            RoundMessage::Replayed { epoch, orphan } if epoch == round.epoch => {
                self.replayed(orphan, host);
            }
            _ => {}
        }
    }

    /// Handles the re-send of an orphan, which is then no longer outstanding. If its phase differs from that in the
    /// original execution, the recovery cannot continue (R14).
    fn replayed<P>(&mut self, orphan: Orphan, host: &mut dyn Host<P>)
    where
        P: Protocol<Control: From<RoundMessage>>,
    {
        let round = self.round.as_mut().expect("a round is in progress");
        let Some(recorded) = round.orphans.remove(&orphan.id) else {
            return;
        };
        if recorded != orphan.phase {
            round.is_broken = true;
            host.claim(Claim::Phase(PhaseClaim::NotRepeated {
                id: orphan.id,
                recorded,
                repeated: orphan.phase,
            }));
            return;
        }
        if !self.rules.counts_messages {
            let MessageId { from, to, .. } = orphan.id;
            round.orphans.retain(|id, phase| (id.from, id.to, *phase) != (from, to, recorded));
        }
        self.announce(host);
    }

    /// Announces the phase up to which messages may be sent, once all ranks have reported, and again whenever the level
    /// changes (R11). If all messages may be sent, the round is closed (R12).
    fn announce<P>(&mut self, host: &mut dyn Host<P>)
    where
        P: Protocol<Control: From<RoundMessage>>,
    {
        let RecoveryRules { waits_for_reports, announces_first, .. } = self.rules;
        let round = self.round.as_mut().expect("a round is in progress");
        if waits_for_reports && !round.awaited.is_empty() || round.is_broken {
            return;
        }
        let level = round.orphans.values().min().copied();
        if round.level == Some(level) {
            return;
        }
        if !announces_first && round.level.is_none() {
            round.level = Some(level);
            return;
        }
        round.level = Some(level);
        let epoch = round.epoch;
        for index in 0..self.view.membership.clusters.len() {
            host.control(To::Cluster(ClusterId(index as u16)), RoundMessage::Level { epoch, level }.into());
        }
        let round = self.round.as_ref().expect("a round is in progress");
        if level.is_none() && round.awaited.is_empty() {
            self.handled.clone_from(&round.incarnations);
            self.round = None;
            self.record += 1;
            let bytes = postcard::to_allocvec(&self.handled).expect("numbers can be encoded");
            host.record(self.record, bytes.into());
        }
    }
}
