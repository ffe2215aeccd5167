//! Full logging: every sender logs every message, and only the failed process rolls back.
//!
//! This is the limiting case with which Guermouche, Ropars, Snir and Cappello (*HydEE: Failure Containment
//! without Event Logging for Large Scale Send-Deterministic MPI Applications*, 2012) compare their protocol:
//! each process is a cluster. A process takes checkpoints alone, and no order of deliveries is stored. Since
//! the program is send-deterministic, a process that rolls back re-sends the messages that others have
//! received; until it has done so, phases hold back every message that depends on them. The rules that the
//! code cites are listed in `docs/hydee.md`.
//!
//! | part | purpose |
//! | --- | --- |
//! | `rank` | a process that runs the application: sending (R3, R4), receiving (R5, R6), rollbacks (R9) |
//! | [`phases`] | phases (R6), rounds (R9, R10, R13), and the recovery process (R1, R11, R12, R14) |
//! | [`logs`] | the logs of messages (R2), their collection (R8), and moving them to stable storage (R15) |
//! | `solo`, [`group`] | a checkpoint of a process (R7), keeping it, and restoring it |

mod rank;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faultline_core::{
    Footprint, Gauges, Host, Input, LifeStart, Promise, Promises, Protocol, ProtocolTypes, Role, Scope, Time,
};
use serde::{Deserialize, Serialize};

use crate::machines::group;
use crate::machines::logs::{self, Head, Logging, Settled};
use crate::machines::phases::{self, AppAction, Phase, Phases, RecoveryProcess, RecoveryRules};
use crate::machines::{LoggingOptions, rules};
use rank::Rank;

/// Parameters of full logging.
pub type Config = LoggingOptions<Defects>;

rules! {
    ; borrowed
    /// The log is part of the checkpoint (R2).
    SavesLog, without
        /// The log is not part of the checkpoint (R2).
        LogOutsideCheckpoint;
    /// The phase is part of the checkpoint (R2).
    SavesPhase, without
        /// The phase is not part of the checkpoint (R2).
        PhaseOutsideCheckpoint;
    /// Actions of the application that wait for their phase are part of the checkpoint (R2).
    SavesActions, without
        /// Actions of the application that are waiting for their phase are dropped when the application's state is
        /// saved (R2).
        ActionsDropped;
    /// A suppressed message is logged like any other (R3).
    LogsSuppressed, without
        /// A suppressed message is not logged (R3).
        SuppressedNotLogged;
    /// Messages from older incarnations are dropped (R5).
    DropsOlderLives, without
        /// Messages from older lives of their sender are accepted (R5).
        StaleAccepted;
    /// A consumed message raises the phase of its receiver above the message's phase (R6).
    CountsUp, without
        /// A message raises the phase of its receiver only to the message's phase, not above it (R6).
        PhaseOneTooLow;
    /// A checkpoint is durable once its holders have confirmed it (R7).
    CopiesFirst, without
        /// A checkpoint counts as durable before its holders have confirmed it (R7).
        CommitsBeforeCopies;
    /// Peers learn what a committed checkpoint contains, so that they can collect log entries (R8).
    Collects, without
        /// A committed checkpoint is not announced to the peers, so log entries are never collected (R8).
        NeverCollects;
    /// A peer removes from its log only messages that the checkpoint contains (R8).
    CollectsExactly, without
        /// One more message than the receiver's checkpoint contains is removed from the log (R8).
        CollectsOneTooMany;
    /// Answers from older rounds are dropped (R9).
    DropsOlderSync, without
        /// A channel's state from an older round is accepted (R9).
        OlderSyncAccepted;
    /// Levels from older rounds are dropped (R9).
    DropsOlderLevels, without
        /// A level from an older round admits messages (R9).
        OlderLevelObeyed;
    /// All orphans of a channel are reported (R10).
    ReportsAllOrphans, without
        /// The first orphan message of a channel is not reported (R10).
        FirstOrphanMissed;
    /// A level waits for reports from all processes (R11).
    WaitsForReports, without
        /// The recovery process announces a level before all processes have reported their orphan messages (R11).
        NoBarrier;
    ; mutations
    /// One replica of each checkpoint is omitted.
    OneCopyTooFew,
    /// A process resumes before the holders have confirmed their replicas of the restored checkpoint.
    ReadyBeforeCopies,
}

/// The protocol's own state in a checkpoint, apart from the channels (R2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProtocolState {
    /// Phases of the process and of the messages that it has received.
    pub phases: Phases,
    /// Actions of the application that waited for a phase.
    pub app_actions: VecDeque<AppAction>,
}

/// Messages between processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    /// The sender's committed checkpoint contains this part of the channels to and from the receiver (R8).
    Settled(Settled),
    /// A message of a recovery round (R1, R9 to R14).
    Round(phases::RoundMessage),
    /// A message of the sub-machine that keeps and restores checkpoints.
    Group(group::GroupMessage),
}

impl From<group::GroupMessage> for Control {
    fn from(message: group::GroupMessage) -> Control {
        Control::Group(message)
    }
}

impl From<Settled> for Control {
    fn from(settled: Settled) -> Control {
        Control::Settled(settled)
    }
}

impl From<phases::RoundMessage> for Control {
    fn from(message: phases::RoundMessage) -> Control {
        Control::Round(message)
    }
}

/// The stamp of every message: its phase, and the incarnations of both processes (R5).
pub type Stamp = logs::Stamp<Phase>;

/// One process under full logging.
#[derive(Clone, Debug)]
pub struct FullLogging(Process);

#[derive(Clone, Debug)]
enum Process {
    Rank(Box<Rank>),
    Recovery(Box<RecoveryProcess>),
    Server(Box<group::Server<FullLogging>>),
}

impl ProtocolTypes for FullLogging {
    type Control = Control;
    type Head = Head;
    type Saved = logs::Saved<Phase, ProtocolState>;

    fn add_to(head: &Head, saved: &Self::Saved, footprint: &mut Footprint) {
        saved.add_to(head, footprint);
    }
}

impl Logging for FullLogging {
    type Tag = Phase;
    type Own = ProtocolState;
}

impl Protocol for FullLogging {
    type Config = Config;
    type Stamp = Stamp;
    const FIFO: bool = true;
    const REPEATS: bool = true;

    fn promises(_: &Config) -> Promises {
        logs::promises(Scope::Process).with(&[Promise::OrphansFirst, Promise::Phases])
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        core::iter::once(Role::RECOVERY_PROCESS).chain(config.placement.server()).collect()
    }

    fn start(start: LifeStart<Config>, now: Time, host: &mut dyn Host<Self>) -> Self {
        let LifeStart { me, boot, config, .. } = &start;
        let role = start.membership.member(*me).role;
        let view = phases::view(Scope::Process, true, start.membership.clone());
        let (mut placement, defects) = (config.placement, config.defects);
        if defects.has(Defect::OneCopyTooFew) {
            placement = placement.one_fewer();
        }
        let copies_first = !defects.has(Defect::ReadyBeforeCopies);
        let rules = group::Rules { copies_first, ..group::Rules::ALL };
        let membership = group::GroupParameters { me: *me, boot: *boot, view, placement, rules };
        FullLogging(match role {
            Role::RECOVERY_PROCESS => {
                let waits_for_reports = defects.obeys(Rule::WaitsForReports);
                let rules = RecoveryRules { waits_for_reports, ..RecoveryRules::ALL };
                Process::Recovery(Box::new(RecoveryProcess::start(&start, Scope::Process, rules, host)))
            }
            Role::STORAGE_SERVER => {
                Process::Server(Box::new(group::Server::new(membership, config.retry_every, host)))
            }
            _ => Process::Rank(Box::new(Rank::start(membership, start.config, now, host))),
        })
    }

    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut dyn Host<Self>) {
        match (&mut self.0, input) {
            (Process::Rank(rank), input) => rank.handle(input, now, host),
            (Process::Recovery(process), Input::Membership(it)) => process.membership_changed(it, host),
            (Process::Recovery(process), Input::Control { from, message: Control::Round(message) }) => {
                process.handle_message(from, message, host);
            }
            (Process::Recovery(_), _) => {}
            (Process::Server(server), Input::Control { from, message: Control::Group(message) }) => {
                server.handle_message(from, message, host);
            }
            (Process::Server(server), other) => server.handle(other, now, host),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        match &self.0 {
            Process::Rank(rank) => rank.next_deadline(),
            Process::Recovery(_) => None,
            Process::Server(server) => server.next_deadline(),
        }
    }

    fn gauges(&self) -> Gauges {
        match &self.0 {
            Process::Rank(rank) => rank.gauges(),
            Process::Recovery(_) | Process::Server(_) => Gauges::default(),
        }
    }
}
