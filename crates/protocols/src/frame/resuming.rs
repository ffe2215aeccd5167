//! How the channels of a group that has failed resume: in the order of phases, or pair by pair.

use core::fmt::Debug;

use faultline_core::application::Wire;
use faultline_core::{Host, MessageId, ProcessId, Role};

use super::{LoggingProtocol, Rules};
use crate::machines::group::{Group, View};
use crate::machines::logs::Logs;
use crate::machines::phases::{Phase, PhaseRules, Phases, RoundMessage, Rounds};
use crate::machines::{ChannelReport, Pairs};

/// The state of a process's channels, apart from counts and logs: which messages may be sent after a failure, and
/// when. A method that only one of the two ways needs has a default.
pub(crate) trait Resuming: Sized + Clone + Debug {
    /// The data that a message carries in addition to its number.
    type Tag: Wire + Copy + Default;
    /// The part of this state that belongs to a checkpoint.
    type State: Wire + Default;
    /// Messages with which channels resume.
    type Message: Wire;
    /// Whether it matters when the application consumes a message.
    const COUNTS_CONSUMED: bool;

    /// Returns the role, outside the groups, whose failures begin new rounds.
    fn counted(_rules: &Rules) -> Option<Role> {
        None
    }
    /// Begins a life.
    fn new(view: &View, rules: &Rules) -> Self;

    /// Returns the data for a message that is sent now.
    fn tag(&self) -> Self::Tag;
    /// Returns whether it is known which messages the peer has.
    fn is_decided(&self, _peer: ProcessId) -> bool {
        true
    }
    /// Returns whether a message with this data may be sent to a peer that needs it.
    fn admits(&self, _tag: Self::Tag) -> bool {
        true
    }
    /// Returns whether segments of the log that were read to resume channels are no longer needed.
    fn is_open(&self) -> bool {
        true
    }
    /// Handles a message that its receiver already has, so it is not transmitted.
    fn suppressed<P>(&self, _view: &View, _id: MessageId, _host: &mut dyn Host<P>)
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>,
    {
    }
    /// Handles a message that is being received. `is_inside` indicates whether it is from the process's own group.
    fn received(&mut self, _id: MessageId, _tag: Self::Tag, _is_inside: bool) {}
    /// Handles the consumption of a message.
    fn consumed(&mut self, _id: MessageId) {}
    /// Records that the peer's checkpoint contains its sends below `sent` (R8).
    fn settled(&mut self, _peer: ProcessId, _sent: u32) {}

    /// Returns the part of this state that belongs to a checkpoint.
    fn saved(&self) -> Self::State;
    /// Handles the restoration of a checkpoint with this state and these logs.
    fn restore<P: LoggingProtocol<Channels = Self, Tag = Self::Tag>>(
        &mut self,
        saved: Self::State,
        logs: &Logs<P>,
    );

    /// Handles failures that this process has just learned of.
    fn failed(&mut self) {}
    /// Tells peers the state of the shared channels where a group has failed (R9, S3). Call this after each change in
    /// the membership, and after a rollback.
    fn exchange<P>(&mut self, group: &Group<P>, logs: &mut Logs<P>, host: &mut dyn Host<P>)
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>;
    /// Returns whether the sender learned of a failure before this process did, or is further along in its recovery.
    fn is_early<P>(&self, group: &Group<P>, from: ProcessId, message: &Self::Message) -> bool
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>;
    /// Handles a message that is not early. Returns the channels that can continue.
    fn handle<P>(
        &mut self,
        from: ProcessId,
        message: Self::Message,
        group: &Group<P>,
        logs: &mut Logs<P>,
        host: &mut dyn Host<P>,
    ) -> Released
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>;
}

/// The channels that can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    None,
    /// The channel to the sender of a message.
    One,
    /// All channels, and the application if one of its sends had to wait.
    All,
}

/// Channels resume in the order of phases (R3, R4, R6, R9 to R13).
#[derive(Clone, Debug)]
pub(crate) struct InPhases {
    phases: Phases,
    rounds: Rounds,
    rules: PhaseRules,
}

impl Resuming for InPhases {
    type Tag = Phase;
    type State = Phases;
    type Message = RoundMessage;
    const COUNTS_CONSUMED: bool = true;

    fn counted(rules: &Rules) -> Option<Role> {
        rules.recovery.replaced_begins.then_some(Role::RECOVERY_PROCESS)
    }

    fn new(view: &View, rules: &Rules) -> InPhases {
        let recovery_process = view.membership.with_role(Role::RECOVERY_PROCESS).next();
        let recovery_process = recovery_process.expect("the federation has a recovery process");
        let rounds = Rounds::new(view, recovery_process, rules.rounds);
        InPhases { phases: Phases::default(), rounds, rules: rules.phases }
    }

    fn tag(&self) -> Phase {
        self.phases.phase()
    }

    fn admits(&self, phase: Phase) -> bool {
        self.rounds.admits(phase)
    }

    fn is_open(&self) -> bool {
        self.rounds.is_open()
    }

    /// Tells the recovery process about the message: it is a re-sent orphan (R3).
    fn suppressed<P>(&self, view: &View, id: MessageId, host: &mut dyn Host<P>)
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>,
    {
        self.rounds.replayed(view, id, self.phases.phase(), host);
    }

    fn received(&mut self, id: MessageId, phase: Phase, is_inside: bool) {
        self.phases.received(id, phase, is_inside, self.rules);
    }

    fn consumed(&mut self, id: MessageId) {
        self.phases.consumed(id);
    }

    fn settled(&mut self, peer: ProcessId, sent: u32) {
        self.phases.settled(peer, sent);
    }

    fn saved(&self) -> Phases {
        self.phases.clone()
    }

    fn restore<P: LoggingProtocol<Channels = Self, Tag = Self::Tag>>(&mut self, saved: Phases, _: &Logs<P>) {
        self.phases = saved;
    }

    fn failed(&mut self) {
        self.rounds.await_next();
    }

    fn exchange<P>(&mut self, group: &Group<P>, logs: &mut Logs<P>, host: &mut dyn Host<P>)
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>,
    {
        self.rounds.synchronise(group, logs, &mut self.phases, host);
    }

    fn is_early<P>(&self, group: &Group<P>, _: ProcessId, message: &RoundMessage) -> bool
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>,
    {
        Rounds::is_early(&group.view, message)
    }

    fn handle<P>(
        &mut self,
        from: ProcessId,
        message: RoundMessage,
        group: &Group<P>,
        logs: &mut Logs<P>,
        host: &mut dyn Host<P>,
    ) -> Released
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>,
    {
        let InPhases { phases, rounds, .. } = self;
        match message {
            RoundMessage::Begin { epoch, failed, .. } => {
                rounds.begin(epoch, failed, group, logs, phases, host);
                Released::None
            }
            RoundMessage::Sync { epoch, present, committed } => {
                rounds.synchronised(from, epoch, (present, committed), group, logs, phases, host);
                Released::None
            }
            RoundMessage::Level { epoch, level } => {
                match rounds.level(epoch, level, &group.view) && !group.is_recovering() {
                    true => Released::All,
                    false => Released::None,
                }
            }
            RoundMessage::Report { .. } | RoundMessage::Replayed { .. } => {
                unreachable!("the recovery process handles these")
            }
        }
    }
}

/// Channels resume pair by pair (S3 to S5). Neither the order of channels nor the time at which a message is consumed
/// matters (S1).
impl Resuming for Pairs {
    type Tag = ();
    type State = ();
    type Message = ChannelReport;
    const COUNTS_CONSUMED: bool = false;

    fn new(_: &View, rules: &Rules) -> Pairs {
        Pairs::new(rules.pairs)
    }

    fn tag(&self) {}

    fn is_decided(&self, peer: ProcessId) -> bool {
        Pairs::is_decided(self, peer)
    }

    fn saved(&self) {}

    fn restore<P: LoggingProtocol<Channels = Self, Tag = Self::Tag>>(&mut self, (): (), logs: &Logs<P>) {
        Pairs::restore(self, logs);
    }

    fn exchange<P>(&mut self, group: &Group<P>, logs: &mut Logs<P>, host: &mut dyn Host<P>)
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>,
    {
        self.report(group, logs, host);
    }

    fn is_early<P>(&self, group: &Group<P>, from: ProcessId, report: &ChannelReport) -> bool
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>,
    {
        Pairs::is_early(self, group, from, report)
    }

    fn handle<P>(
        &mut self,
        from: ProcessId,
        report: ChannelReport,
        group: &Group<P>,
        logs: &mut Logs<P>,
        host: &mut dyn Host<P>,
    ) -> Released
    where
        P: LoggingProtocol<Channels = Self, Tag = Self::Tag>,
    {
        match self.reported(group, logs, from, report, host) {
            true => Released::One,
            false => Released::None,
        }
    }
}
