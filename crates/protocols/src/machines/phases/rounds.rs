//! A process's side of a round (Algorithms 2 and 3; R3, R9, R10, R13).
//!
//! A process that learns of a failure stops sending. Once the recovery process has begun the round, a process whose own
//! group has failed first waits until that group is restored. It then exchanges the state of the shared channels with
//! every process of another group, if either group has failed. It then knows its orphans, reports them, and waits for
//! levels.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Claim, GroupId, Host, MessageId, PhaseClaim, ProcessId, To};

use super::{Orphan, Phase, Phases, RoundMessage};
use crate::machines::group::{Group, View};
use crate::machines::logs::{Covered, Logging, Logs};

/// Which messages may be sent (R3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// No round is in progress.
    All,
    /// A round is in progress, and no orphan with a smaller phase is outstanding.
    UpTo(Phase),
    /// A round is in progress, and no level has been announced.
    None,
}

/// The round, as this process knows it.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    recovery_process: ProcessId,
    admission: Admission,
    round: Round,
    rules: RoundRules,
}

#[derive(Clone, Debug, Default)]
struct Round {
    /// The failed groups, once the recovery process has announced them.
    failed: Option<Arc<[GroupId]>>,
    /// Whether this process has reported the state of its channels.
    is_synchronising: bool,
    /// Processes that have not reported the state of their channels yet.
    awaited: BTreeSet<ProcessId>,
    /// Reports that arrived before this process sent its own.
    early: Vec<(ProcessId, Covered, Covered)>,
    orphans: Vec<Orphan>,
    is_reported: bool,
}

/// The rules of the sub-machine. Tests can disable each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundRules {
    /// A message waits for its phase (R3, R4).
    pub(crate) waits_for_phase: bool,
    /// Groups that rolled back answer each other (R9).
    pub(crate) failed_answer: bool,
    /// A restored log is also re-sent to groups that did not roll back (R10).
    pub(crate) sends_restored_log: bool,
    /// Answers from older rounds are dropped (R9).
    pub(crate) drops_older_sync: bool,
    /// Levels from older rounds are dropped (R9).
    pub(crate) drops_older_levels: bool,
    /// All orphans of a channel are reported (R10).
    pub(crate) reports_all: bool,
}

impl RoundRules {
    /// All rules are obeyed.
    pub(crate) const ALL: RoundRules = RoundRules {
        waits_for_phase: true,
        failed_answer: true,
        sends_restored_log: true,
        drops_older_sync: true,
        drops_older_levels: true,
        reports_all: true,
    };
}

impl Rounds {
    /// Begins a life. A process that knows of failures waits for the round that handles them.
    pub(crate) fn new(view: &View, recovery_process: ProcessId, rules: RoundRules) -> Rounds {
        let admission = if view.epoch > 0 { Admission::None } else { Admission::All };
        Rounds { recovery_process, admission, round: Round::default(), rules }
    }

    /// Returns whether a message of this phase may be sent (R3, R4).
    #[inline]
    pub(crate) fn admits(&self, phase: Phase) -> bool {
        let is_admitted = match self.admission {
            Admission::All => true,
            Admission::UpTo(level) => phase <= level,
            Admission::None => false,
        };
        is_admitted || !self.rules.waits_for_phase
    }

    /// Returns whether no round is in progress.
    pub(crate) fn is_open(&self) -> bool {
        self.admission == Admission::All
    }

    /// Stops sending after a failure, until a level of a new round allows messages to be sent (R9, R13).
    pub(crate) fn await_next(&mut self) {
        self.round = Round::default();
        self.admission = Admission::None;
    }

    /// Returns whether the sender of a message learned of a failure before this process did.
    pub(crate) fn is_early(view: &View, message: &RoundMessage) -> bool {
        match message {
            RoundMessage::Begin { membership, .. } => *membership > view.membership.version,
            RoundMessage::Sync { epoch, .. } | RoundMessage::Level { epoch, .. } => *epoch > view.epoch,
            RoundMessage::Report { .. } | RoundMessage::Replayed { .. } => false,
        }
    }

    /// Tells the recovery process that the application has repeated a message that the receiver already has (R3).
    pub(crate) fn replayed<P>(&self, view: &View, id: MessageId, phase: Phase, host: &mut dyn Host<P>)
    where
        P: Logging<Tag = Phase, Control: From<RoundMessage>>,
    {
        let message = RoundMessage::Replayed { epoch: view.epoch, orphan: Orphan { id, phase } };
        host.control(To::One(self.recovery_process), message.into());
    }

    /// Handles the announcement of a round by the recovery process.
    pub(crate) fn begin<P>(
        &mut self,
        epoch: u64,
        failed: Arc<[GroupId]>,
        group: &Group<P>,
        logs: &mut Logs<P>,
        phases: &mut Phases,
        host: &mut dyn Host<P>,
    ) where
        P: Logging<Tag = Phase, Control: From<RoundMessage>>,
    {
        if epoch == group.view.epoch {
            self.round.failed = Some(failed);
            self.synchronise(group, logs, phases, host);
        }
    }

    /// Exchanges the state of the channels, once the round has begun and this process's group is restored (R9). Call
    /// this after a rollback.
    pub(crate) fn synchronise<P>(
        &mut self,
        group: &Group<P>,
        logs: &mut Logs<P>,
        phases: &mut Phases,
        host: &mut dyn Host<P>,
    ) where
        P: Logging<Tag = Phase, Control: From<RoundMessage>>,
    {
        if group.is_recovering() || self.round.is_synchronising {
            return;
        }
        let Some(failed) = self.round.failed.clone() else {
            return;
        };
        self.round.is_synchronising = true;
        let epoch = group.view.epoch;
        let have_we = failed.contains(&group.number);
        let is_concerned = |&peer: &ProcessId| {
            let theirs = group.view.group_of(peer);
            theirs != group.number && (have_we || failed.contains(&theirs))
        };
        let peers: Vec<ProcessId> = group.view.ranks().filter(is_concerned).collect();
        for &peer in &peers {
            let has_failed = failed.contains(&group.view.group_of(peer));
            if have_we && has_failed && !self.rules.failed_answer {
                continue;
            }
            let (present, committed) = (logs.present(peer), logs.committed(peer));
            host.control(To::One(peer), RoundMessage::Sync { epoch, present, committed }.into());
        }
        self.round.awaited = peers.into_iter().collect();
        for (peer, present, committed) in core::mem::take(&mut self.round.early) {
            self.synchronised(peer, epoch, (present, committed), group, logs, phases, host);
        }
        self.maybe_report(group, host);
    }

    /// Handles a peer's report on the shared channels: the current counts, and those at the peer's last
    /// checkpoint (R10).
    #[allow(clippy::too_many_arguments, reason = "takes the parts of the process's state separately")]
    pub(crate) fn synchronised<P>(
        &mut self,
        peer: ProcessId,
        epoch: u64,
        (present, committed): (Covered, Covered),
        group: &Group<P>,
        logs: &mut Logs<P>,
        phases: &mut Phases,
        host: &mut dyn Host<P>,
    ) where
        P: Logging<Tag = Phase, Control: From<RoundMessage>>,
    {
        if epoch < group.view.epoch && self.rules.drops_older_sync {
            return;
        }
        if !self.round.is_synchronising {
            self.round.early.push((peer, present, committed));
            return;
        }
        if !self.round.awaited.remove(&peer) {
            return;
        }
        logs.settle(peer, committed);
        let channel = &logs.channels[&peer];
        let (sent, settled) = (channel.sent, channel.settled);
        phases.settled(peer, settled.sent);
        let first_orphan = present.sent.max(settled.sent) + u32::from(!self.rules.reports_all);
        self.round.orphans.extend(phases.orphans(peer, group.me, first_orphan));
        let theirs = group.view.group_of(peer);
        let has_failed = self.round.failed.as_ref().is_some_and(|failed| failed.contains(&theirs));
        let next = match has_failed || self.rules.sends_restored_log {
            true => present.received.max(settled.received),
            false => sent.max(present.received),
        };
        logs.resume(group, peer, next, sent);
        self.maybe_report(group, host);
    }

    /// Reports the orphans once all peers have reported (R10).
    fn maybe_report<P>(&mut self, group: &Group<P>, host: &mut dyn Host<P>)
    where
        P: Logging<Tag = Phase, Control: From<RoundMessage>>,
    {
        let round = &mut self.round;
        if round.is_synchronising && round.awaited.is_empty() && !round.is_reported {
            round.is_reported = true;
            let orphans: Arc<[Orphan]> = core::mem::take(&mut round.orphans).into();
            for &Orphan { id, phase } in orphans.iter() {
                host.claim(Claim::Phase(PhaseClaim::Orphaned { id, phase }));
            }
            let report = RoundMessage::Report { epoch: group.view.epoch, orphans };
            host.control(To::One(self.recovery_process), report.into());
        }
    }

    /// Handles a level: messages up to this phase, or all messages, may be sent (R11). Returns whether it
    /// belongs to the current round.
    pub(crate) fn level(&mut self, epoch: u64, level: Option<Phase>, view: &View) -> bool {
        if epoch < view.epoch && self.rules.drops_older_levels {
            return false;
        }
        self.admission = level.map_or(Admission::All, Admission::UpTo);
        true
    }
}
