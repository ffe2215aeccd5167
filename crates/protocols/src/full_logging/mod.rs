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
//! | [`frame`] | a process: sending (R3, R4), receiving (R5, R6), its own checkpoints (R7), rollbacks (R9) |
//! | [`phases`](crate::machines::phases) | phases (R6), rounds (R9, R10, R13), and the recovery process (R1, R11, R12, R14) |
//! | [`logs`] | the logs of messages (R2), their collection (R8), and moving them to stable storage (R15) |
//! | [`group`](crate::machines::group) | keeping and restoring the checkpoints of a process |

use faultline_core::{Promise, Scope};

use crate::frame::{self, AsTheyArrive, InPhases, LoggingProtocol, Never, logging_protocol};
use crate::machines::phases::{Phase, Phases, RecoveryProcess, RoundMessage};
use crate::machines::{LoggingOptions, logs, rules};

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

/// Messages between processes.
pub type Control = frame::Control<RoundMessage>;

/// The stamp of every message: its phase, and the incarnations of both processes (R5).
pub type Stamp = logs::Stamp<Phase>;

logging_protocol! {
    /// One process under full logging.
    FullLogging, Phase, Phases
}

impl LoggingProtocol for FullLogging {
    const SCOPE: Scope = Scope::Process;
    const PROMISES: &'static [Promise] = &[Promise::OrphansFirst, Promise::Phases];
    type Defects = Defects;
    type Channels = InPhases;
    type Deliveries = AsTheyArrive;
    type OrderMessage = Never;
    type Extra = RecoveryProcess;

    fn rules(defects: Defects) -> frame::Rules {
        let obeys = |rule| defects.obeys(rule);
        let mut rules = frame::Rules::ALL;
        rules.omitted_replicas = u16::from(defects.has(Defect::OneCopyTooFew));
        rules.group.copies_first = !defects.has(Defect::ReadyBeforeCopies);
        rules.rank.drops_undone = obeys(Rule::DropsOlderLives);
        rules.rank.keeps_actions = obeys(Rule::SavesActions);
        rules.logs.saves_log = obeys(Rule::SavesLog);
        rules.logs.logs_suppressed = obeys(Rule::LogsSuppressed);
        rules.logs.collects = obeys(Rule::Collects);
        rules.logs.collects_exactly = obeys(Rule::CollectsExactly);
        rules.draining.requires.replicas = obeys(Rule::CopiesFirst);
        rules.phases.counts_up = obeys(Rule::CountsUp);
        rules.phases.saves_phase = obeys(Rule::SavesPhase);
        rules.rounds.drops_older_sync = obeys(Rule::DropsOlderSync);
        rules.rounds.drops_older_levels = obeys(Rule::DropsOlderLevels);
        rules.rounds.reports_all = obeys(Rule::ReportsAllOrphans);
        rules.recovery.waits_for_reports = obeys(Rule::WaitsForReports);
        rules
    }
}
