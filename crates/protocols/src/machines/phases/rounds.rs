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
}

impl RoundRules {
    /// All rules are obeyed.
    pub(crate) const ALL: RoundRules = RoundRules {
        waits_for_phase: true,
        failed_answer: true,
        sends_restored_log: true,
        drops_older_sync: true,
        drops_older_levels: true,
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
        let first_orphan = present.sent.max(settled.sent);
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

/// The tests use the messages of full logging: each process is a group of its own.
#[cfg(test)]
mod tests {
    use faultline_core::{Boot, Incarnation, Payload, Position, Role, Scope};

    use super::super::PhaseRules;
    use super::*;
    use crate::full_logging::{Control, FullLogging};
    use crate::machines::group::{GroupParameters, Rules};
    use crate::machines::logs::LogRules;
    use crate::machines::testing::{HostAction, RecordingHost, membership};
    use crate::placement::{Placement, ReplicateTo};

    const ME: ProcessId = ProcessId(0);
    const A: ProcessId = ProcessId(1);
    const B: ProcessId = ProcessId(2);
    const RECOVERY: ProcessId = ProcessId(3);

    type Action = HostAction<Control>;

    struct Process {
        group: Group<FullLogging>,
        logs: Logs<FullLogging>,
        phases: Phases,
        rounds: Rounds,
        host: RecordingHost<FullLogging>,
    }

    /// Returns a group of one process, in a federation whose ranks are in these lives.
    fn group(lives: [u32; 3]) -> Group<FullLogging> {
        let membership = membership(&lives.map(Some), 1);
        let view = View::new(Scope::Process, Some(Role::RECOVERY_PROCESS), membership);
        let placement = Placement { replicas: 1, to: ReplicateTo::OtherCluster };
        let parameters = GroupParameters { me: ME, boot: Boot::Fresh, view, placement, rules: Rules::ALL };
        Group::new(parameters, &mut RecordingHost::default())
    }

    impl Process {
        fn new() -> Process {
            let group = group([1, 1, 1]);
            let rounds = Rounds::new(&group.view, RECOVERY, RoundRules::ALL);
            let logs = Logs::new(None, LogRules::ALL);
            Process { group, logs, phases: Phases::default(), rounds, host: RecordingHost::default() }
        }

        /// Logs a message, and sends it if its phase is admitted.
        fn send(&mut self, to: ProcessId, number: u32, phase: Phase) -> Vec<Action> {
            self.logs.sent(id(ME, to, number), phase, Payload::Virtual(1), true, &mut self.host);
            self.pump(to)
        }

        fn pump(&mut self, to: ProcessId) -> Vec<Action> {
            let admits = |phase| self.rounds.admits(phase);
            self.logs.pump(&mut self.group, to, Position::new(0, 1), admits, &mut self.host);
            self.host.take()
        }

        fn receive(&mut self, from: ProcessId, number: u32, phase: Phase) {
            self.logs.receive(id(from, ME, number));
            self.phases.received(id(from, ME, number), phase, false, PhaseRules::ALL);
        }

        /// Learns of failures, after which the ranks are in these lives.
        fn learn(&mut self, lives: [u32; 3]) {
            self.group.view = group(lives).view;
            self.rounds.await_next();
        }

        fn begin(&mut self, epoch: u64, failed: &[u16]) -> Vec<Action> {
            let failed = failed.iter().copied().map(GroupId).collect();
            let Process { group, logs, phases, rounds, host } = self;
            rounds.begin(epoch, failed, group, logs, phases, host);
            host.take()
        }

        fn synchronise(&mut self) -> Vec<Action> {
            let Process { group, logs, phases, rounds, host } = self;
            rounds.synchronise(group, logs, phases, host);
            host.take()
        }

        /// Handles a peer's report, for this round, of how many messages it has sent and received.
        fn reported(&mut self, peer: ProcessId, epoch: u64, sent: u32, received: u32) -> Vec<Action> {
            let counts = (Covered { sent, received }, Covered::default());
            let Process { group, logs, phases, rounds, host } = self;
            rounds.synchronised(peer, epoch, counts, group, logs, phases, host);
            host.take()
        }
    }

    fn id(from: ProcessId, to: ProcessId, number: u32) -> MessageId {
        MessageId { from, to, incarnation: Incarnation(0), number }
    }

    fn transmit(to: ProcessId, number: u32) -> Action {
        HostAction::Transmit(id(ME, to, number), Position::new(0, 1))
    }

    fn sync(to: ProcessId, epoch: u64, sent: u32, received: u32) -> Action {
        let (present, committed) = (Covered { sent, received }, Covered::default());
        HostAction::Say(To::One(to), RoundMessage::Sync { epoch, present, committed }.into())
    }

    fn report(epoch: u64, orphans: &[Orphan]) -> Action {
        HostAction::Say(To::One(RECOVERY), RoundMessage::Report { epoch, orphans: orphans.into() }.into())
    }

    #[test]
    fn after_a_failure_a_message_waits_for_the_level_of_its_phase() {
        let mut process = Process::new();
        assert_eq!(process.send(B, 0, 5), [transmit(B, 0)]);
        process.learn([1, 2, 1]);
        assert!(!process.rounds.is_open());
        assert_eq!(process.send(B, 1, 2), []);
        assert_eq!(process.send(B, 2, 3), []);
        let Process { group, rounds, .. } = &mut process;
        assert!(!rounds.level(0, None, &group.view), "a level of an older round");
        assert_eq!(process.pump(B), []);
        assert!(process.rounds.level(1, Some(2), &process.group.view));
        assert_eq!(process.pump(B), [transmit(B, 1)]);
        assert!(process.rounds.level(1, None, &process.group.view));
        assert_eq!(process.pump(B), [transmit(B, 2)]);
        assert!(process.rounds.is_open());
    }

    #[test]
    fn the_messages_whose_sends_were_undone_are_reported_and_those_that_were_lost_are_sent_again() {
        let mut process = Process::new();
        (0..3).for_each(|it| process.receive(A, it, 2 + it));
        process.receive(B, 0, 9);
        (0..3).for_each(|it| drop(process.send(A, it, 1 + it)));
        process.learn([1, 2, 1]);
        assert_eq!(process.begin(1, &[1]), [sync(A, 1, 3, 3)], "B's channel has lost nothing");
        let orphans = [(1, 3), (2, 4)].map(|(number, phase)| Orphan { id: id(A, ME, number), phase });
        let claims = orphans
            .map(|Orphan { id, phase }| HostAction::Claim(Claim::Phase(PhaseClaim::Orphaned { id, phase })));
        let expected = [&claims[..], &[report(1, &orphans)]].concat();
        assert_eq!(process.reported(A, 1, 1, 1), expected, "A has restored one send and one delivery");
        assert_eq!(process.reported(A, 1, 1, 1), [], "a report counts once");
        assert_eq!(process.pump(A), [], "before the level");
        assert!(process.rounds.level(1, Some(2), &process.group.view));
        let resent = |number| HostAction::Claim(Claim::Resent { id: id(ME, A, number) });
        assert_eq!(process.pump(A), [resent(1), transmit(A, 1)]);
        assert!(process.rounds.level(1, None, &process.group.view));
        assert_eq!(process.pump(A), [resent(2), transmit(A, 2)]);
    }

    #[test]
    fn a_process_that_has_failed_exchanges_counts_with_all_others_once_it_is_restored() {
        let mut process = Process::new();
        process.send(B, 0, 1);
        let saved = process.logs.channels.clone();
        process.learn([2, 2, 1]);
        process.group.freeze();
        assert_eq!(process.begin(2, &[0, 1]), [], "its counts are not restored yet");
        assert_eq!(process.reported(A, 2, 0, 0), []);
        process.group = group([2, 2, 1]);
        process.logs.restore(&process.group, saved, 0);
        let restored = Covered { sent: 1, received: 0 };
        let to_b = RoundMessage::Sync { epoch: 2, present: restored, committed: restored };
        let expected = [sync(A, 2, 0, 0), HostAction::Say(To::One(B), to_b.into())];
        assert_eq!(process.synchronise(), expected, "A has failed, too");
        assert_eq!(process.synchronise(), [], "once a round");
        assert_eq!(process.reported(B, 2, 0, 0), [report(2, &[])], "A's report arrived before the restore");
        assert!(process.rounds.level(2, None, &process.group.view));
        let resent = HostAction::Claim(Claim::Resent { id: id(ME, B, 0) });
        assert_eq!(
            process.pump(B),
            [resent, transmit(B, 0)],
            "from the restored log, although B has not failed"
        );
    }

    #[test]
    fn another_failure_begins_the_exchange_again() {
        let mut process = Process::new();
        process.receive(A, 0, 2);
        process.learn([1, 2, 1]);
        process.begin(1, &[1]);
        process.learn([1, 2, 2]);
        assert_eq!(process.begin(1, &[1]), [], "an older round");
        assert_eq!(process.begin(2, &[1, 2]), [sync(A, 2, 0, 1), sync(B, 2, 0, 0)]);
        assert_eq!(process.reported(A, 1, 0, 0), [], "the answer to an older round");
        assert_eq!(process.reported(B, 2, 0, 0), [], "A has not answered");
        assert_eq!(process.reported(A, 2, 1, 0), [report(2, &[])], "A has sent the message again by now");
    }

    #[test]
    fn a_message_from_a_process_that_knows_of_more_failures_is_early() {
        let view = group([1, 2, 1]).view;
        let level = |epoch| RoundMessage::Level { epoch, level: None };
        assert!(!Rounds::is_early(&view, &level(1)) && Rounds::is_early(&view, &level(2)));
        let begin = |of: &View| RoundMessage::Begin {
            epoch: 1,
            membership: of.membership.version,
            failed: Arc::from([]),
        };
        assert!(!Rounds::is_early(&view, &begin(&view)));
        assert!(Rounds::is_early(&view, &begin(&group([2, 2, 1]).view)), "it is not known who is up");
    }
}
