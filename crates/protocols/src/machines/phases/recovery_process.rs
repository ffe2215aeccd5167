//! The recovery process (Algorithm 4; R1, R11, R12, R14): it begins rounds, counts orphans, and releases messages phase
//! by phase. It is outside all groups. If it fails, its replacement begins a new round.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Boot, Claim, ClusterId, GroupId, Host, Incarnation, Life, LifeStart, Membership, MessageId, PhaseClaim,
    ProcessId, Protocol, To,
};

use super::{Orphan, Phase, RoundMessage};
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
    /// Begins a life of the recovery process. The view counts the failures of this process if they begin new rounds.
    pub(crate) fn start<P, C>(
        start: &LifeStart<C>,
        view: View,
        rules: RecoveryRules,
        host: &mut dyn Host<P>,
    ) -> RecoveryProcess
    where
        P: Protocol<Control: From<RoundMessage>>,
    {
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
        self.view = self.view.after(membership);
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

/// The tests use the messages of full logging: each process is a group of its own.
#[cfg(test)]
mod tests {
    use faultline_core::{FactKinds, Role, Scope};

    use super::*;
    use crate::full_logging::{Control, FullLogging};
    use crate::machines::testing::{HostAction, RecordingHost, membership};

    const RANKS: [ProcessId; 3] = [ProcessId(0), ProcessId(1), ProcessId(2)];

    struct Process {
        this: RecoveryProcess,
        host: RecordingHost<FullLogging>,
    }

    impl Process {
        /// Begins this life of the recovery process, with ranks in these lives.
        fn start(life: u32, ranks: &[Option<u32>], record: Option<&[u8]>) -> Process {
            let boot = match (life, record) {
                (1, _) => Boot::Fresh,
                (_, Some(_)) => Boot::Restarted,
                (_, None) => Boot::Replaced,
            };
            let view = View::new(Scope::Process, Some(Role::RECOVERY_PROCESS), membership(ranks, life));
            let start = LifeStart {
                me: ProcessId(3),
                life: Life(life),
                boot,
                membership: membership(ranks, life),
                config: Arc::new(()),
                record: record.map(Arc::from),
                seed: 0,
                facts: FactKinds::ALL,
            };
            let mut host = RecordingHost::default();
            let this = RecoveryProcess::start(&start, view, RecoveryRules::ALL, &mut host);
            Process { this, host }
        }

        /// Starts the recovery process, and begins round 1, because rank 1 has failed.
        fn in_round() -> Process {
            let mut process = Process::start(1, &[Some(1); 3], None);
            assert_eq!(process.update(&[Some(1), Some(2), Some(1)]), [Told::Begin(1, Vec::from([1]))]);
            process
        }

        fn update(&mut self, ranks: &[Option<u32>]) -> Vec<Told> {
            self.this.membership_changed(membership(ranks, 1), &mut self.host);
            self.told()
        }

        /// Handles a rank's report of orphans with these numbers and phases.
        fn report(&mut self, from: ProcessId, epoch: u64, orphans: &[(u32, Phase)]) -> Vec<Told> {
            let orphans = orphans.iter().map(|&(number, phase)| orphan(number, phase)).collect();
            self.this.handle_message(from, RoundMessage::Report { epoch, orphans }, &mut self.host);
            self.told()
        }

        fn replay(&mut self, epoch: u64, number: u32, phase: Phase) -> Vec<Told> {
            let message = RoundMessage::Replayed { epoch, orphan: orphan(number, phase) };
            self.this.handle_message(RANKS[1], message, &mut self.host);
            self.told()
        }

        /// Returns what the ranks were told since the last call, and what was recorded.
        fn told(&mut self) -> Vec<Told> {
            let mut told = Vec::new();
            for action in self.host.take() {
                match action {
                    // All ranks are told the same.
                    HostAction::Say(To::Cluster(ClusterId(0)), Control::Resume(message)) => {
                        told.push(match message {
                            RoundMessage::Begin { epoch, failed, .. } => {
                                Told::Begin(epoch, failed.iter().map(|it| it.0).collect())
                            }
                            RoundMessage::Level { epoch, level } => Told::Level(epoch, level),
                            other => panic!("{other:?} is not a message to the ranks"),
                        });
                    }
                    HostAction::Say(To::Cluster(_), _) => {}
                    HostAction::Record(bytes) => told.push(Told::Recorded(bytes)),
                    HostAction::Claim(Claim::Phase(PhaseClaim::NotRepeated {
                        recorded, repeated, ..
                    })) => {
                        told.push(Told::NotRepeated(recorded, repeated));
                    }
                    other => panic!("{other:?} is unexpected"),
                }
            }
            told
        }
    }

    #[derive(Clone, Debug, PartialEq)]
    enum Told {
        /// A round begins for these groups.
        Begin(u64, Vec<u16>),
        Level(u64, Option<Phase>),
        Recorded(Arc<[u8]>),
        /// An orphan was recorded in one phase, and sent again in another.
        NotRepeated(Phase, Phase),
    }

    /// Returns a message from rank 1 to rank 0.
    fn orphan(number: u32, phase: Phase) -> Orphan {
        let id = MessageId { from: RANKS[1], to: RANKS[0], incarnation: Incarnation(0), number };
        Orphan { id, phase }
    }

    /// Asserts that the round is closed, and returns the record.
    fn closed(told: &[Told], epoch: u64) -> Arc<[u8]> {
        let [level, Told::Recorded(record)] = told else { panic!("the round is not closed: {told:?}") };
        assert_eq!(*level, Told::Level(epoch, None));
        record.clone()
    }

    #[test]
    fn a_round_covers_all_failures_since_the_last_round_that_closed() {
        let mut process = Process::start(1, &[Some(1); 3], None);
        assert_eq!(process.told(), [], "no rank has failed");
        assert_eq!(process.update(&[Some(1), None, Some(1)]), [], "a rank is down");
        assert_eq!(process.update(&[Some(1), Some(2), Some(1)]), [Told::Begin(1, Vec::from([1]))]);
        assert_eq!(process.update(&[Some(1), Some(2), Some(1)]), [], "nothing has changed");
        assert_eq!(process.update(&[Some(1), Some(2), Some(2)]), [Told::Begin(2, Vec::from([1, 2]))]);
        let last = RANKS.map(|it| process.report(it, 2, &[]));
        closed(&last[2], 2);
        assert_eq!(process.update(&[Some(2), Some(2), Some(2)]), [Told::Begin(3, Vec::from([0]))]);
    }

    #[test]
    fn a_level_waits_for_all_reports_and_for_each_orphan_of_a_smaller_phase() {
        let mut process = Process::in_round();
        assert_eq!(process.report(RANKS[0], 1, &[(0, 2), (1, 2), (2, 4)]), []);
        assert_eq!(process.report(RANKS[0], 1, &[]), [], "a rank reports once");
        assert_eq!(process.report(RANKS[2], 1, &[]), []);
        assert_eq!(process.report(RANKS[1], 0, &[]), [], "a report of an older round");
        assert_eq!(process.report(RANKS[1], 1, &[]), [Told::Level(1, Some(2))]);
        assert_eq!(process.replay(1, 0, 2), [], "the other orphan of this phase is still missing");
        assert_eq!(process.replay(1, 0, 2), [], "an orphan counts once");
        assert_eq!(process.replay(0, 1, 2), [], "sent in an older round");
        assert_eq!(process.replay(1, 1, 2), [Told::Level(1, Some(4))]);
        closed(&process.replay(1, 2, 4), 1);
        assert_eq!(process.report(RANKS[0], 1, &[(5, 1)]), [], "the round is closed");
    }

    #[test]
    fn an_orphan_that_is_sent_before_all_ranks_have_reported_counts() {
        let mut process = Process::in_round();
        assert_eq!(process.report(RANKS[0], 1, &[(0, 2)]), []);
        assert_eq!(process.replay(1, 0, 2), []);
        assert_eq!(process.report(RANKS[1], 1, &[]), []);
        closed(&process.report(RANKS[2], 1, &[]), 1);
    }

    #[test]
    fn an_orphan_that_is_sent_in_another_phase_stops_the_recovery() {
        let mut process = Process::in_round();
        process.report(RANKS[0], 1, &[(0, 2), (1, 3)]);
        process.report(RANKS[1], 1, &[]);
        assert_eq!(process.report(RANKS[2], 1, &[]), [Told::Level(1, Some(2))]);
        assert_eq!(process.replay(1, 0, 3), [Told::NotRepeated(2, 3)]);
        assert_eq!(process.replay(1, 1, 3), [], "no other message is released");
    }

    #[test]
    fn a_replacement_begins_a_round_for_the_failures_that_are_not_on_record() {
        let mut process = Process::in_round();
        let last = RANKS.map(|it| process.report(it, 1, &[]));
        let record = closed(&last[2], 1);
        let now = [Some(1), Some(2), Some(3)];
        let begun = |record| Process::start(2, &now, record).told();
        assert_eq!(begun(Some(&*record)), [Told::Begin(4, Vec::from([2]))]);
        assert_eq!(begun(None), [Told::Begin(4, Vec::from([1, 2]))], "the record is lost");
        assert_eq!(begun(Some(&[0xff])), [Told::Begin(4, Vec::from([1, 2]))], "the record is damaged");
    }
}
