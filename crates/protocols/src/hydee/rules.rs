//! The rules of HydEE, and the known defects that tests can enable.

use crate::frame;
use crate::machines::rules;

rules! {
    /// No message that the receiver already has is re-sent, not even the last one (R3).
    SuppressesLast, without
        /// The last message that the receiver already has is re-sent: Algorithm 2, line 14, compares with `<`.
        LastReceivedResent;
    /// The recovery process counts orphans per message (R11).
    CountsMessages, without
        /// The recovery process counts orphans per process instead of per message.
        CountsProcesses;
    /// The recovery process announces a level once all ranks have reported (R11).
    AnnouncesFirst, without
        /// The recovery process announces no level until a count reaches zero.
        NoInitialLevel;
    /// A process that rolled back answers other failed clusters (R9).
    FailedAnswer, without
        /// A process that rolled back does not answer another failed cluster.
        FailedDoNotAnswer;
    /// A restored log is re-sent to all processes that lack its messages (R10).
    SendsRestoredLog, without
        /// A restored log is not re-sent to processes that did not roll back.
        RestoredLogNotSent;
    /// The log is part of the checkpoint (R2).
    SavesLog, without
        /// The log is not part of the checkpoint.
        LogOutsideCheckpoint;
    /// A suppressed message is logged like any other (R3).
    LogsSuppressed, without
        /// A suppressed message is not logged (R3).
        SuppressedNotLogged;
    /// A peer removes from its log only messages that a checkpoint contains (R8).
    CollectsAtCheckpoint, without
        /// Garbage collection uses the current counts instead of those at the checkpoint (R8).
        CollectsAtPresent;
    /// Peers learn which messages a checkpoint contains only once it is committed (R8).
    CollectsAfterCommit, without
        /// Garbage collection is announced before the checkpoint is committed (R8).
        CollectsBeforeCommit;
    /// Messages from older incarnations are dropped (R5).
    DropsOlderLives, without
        /// Messages from older incarnations of a cluster are accepted (R5).
        NoLifeCheck;
    /// A message that has already been received is dropped (R5).
    DropsDuplicates, without
        /// A message that was already received is delivered again (R5).
        NoDuplicateCheck;
    /// A round covers all clusters that have failed since the last round that closed (R1).
    CoversOpenRounds, without
        /// A round covers only the clusters that failed last, not those of rounds that are still open (R1).
        OnlyNewlyFailed;
    /// Answers from older rounds are dropped (R9).
    DropsOlderSync, without
        /// Answers from older rounds are accepted (R9).
        OlderSyncAccepted;
    /// Levels from older rounds are dropped (R9).
    DropsOlderLevels, without
        /// Processes follow levels from older rounds (R9).
        OlderLevelObeyed;
    /// A new life of the recovery process begins a new round (R1).
    ReplacedBeginsRound, without
        /// A new life of the recovery process continues without starting a new round (R1).
        ReplacedWithoutRound;
    /// A level waits for reports from all ranks (R11).
    WaitsForReports, without
        /// The recovery process does not wait for reports from all ranks (R11).
        NoBarrier;
    /// During a round, every message waits for its phase (R3, R4).
    WaitsForPhase, without
        /// No message waits for its phase (R3, R4).
        NoGate;
    /// A message raises its receiver's phase when it is consumed (R6).
    FoldsAtConsumption, without
        /// A message raises its receiver's phase when it arrives, instead of when it is consumed (R6).
        FoldsAtArrival;
    /// A part contains the messages that were in transit inside the cluster (R7).
    Drains, without
        /// A checkpoint does not drain the cluster's channels (R7).
        NoDrain;
    /// A part is written only once all messages in transit have arrived (R7).
    WaitsForLate, without
        /// A part is written as soon as the state has been saved, without messages that arrive later (R7).
        OneRound;
    /// Logged messages are removed from memory only once they are durable (R15).
    SpillsDurable, without
        /// Logged messages are removed from memory before they are durable (R15).
        SpilledBeforeDurable;
    /// A part is written to storage only once the segments of its log are durable there (R15).
    SegmentsFirst, without
        /// A part of a checkpoint is written and replicated without its log segments (R15).
        SegmentsOutsideCheckpoint;
    /// Segments are kept while the current checkpoint refers to them (R15).
    KeepsSegments, without
        /// Log segments are removed together with older checkpoints, although the current one needs them (R15).
        SegmentsCollected;
    /// Messages that are only on stable storage are also sent when a channel resumes (R15).
    SendsSpilled, without
        /// Messages that are only on stable storage are left out when a channel resumes (R15).
        SpilledNotSent;
}

/// Returns the rules of the frame that are obeyed with these defects.
pub(super) fn rules(defects: Defects) -> frame::Rules {
    let obeys = |rule| defects.obeys(rule);
    let mut rules = frame::Rules::ALL;
    rules.group.companions_first = obeys(Rule::SegmentsFirst);
    rules.group.keeps_companions = obeys(Rule::KeepsSegments);
    rules.rank.drops_undone = obeys(Rule::DropsOlderLives);
    rules.rank.drops_lost = obeys(Rule::DropsOlderLives);
    rules.rank.drops_duplicates = obeys(Rule::DropsDuplicates);
    rules.rank.collects_at_checkpoint = obeys(Rule::CollectsAtCheckpoint);
    rules.rank.collects_after_commit = obeys(Rule::CollectsAfterCommit);
    rules.logs.suppresses_last = obeys(Rule::SuppressesLast);
    rules.logs.logs_suppressed = obeys(Rule::LogsSuppressed);
    rules.logs.saves_log = obeys(Rule::SavesLog);
    rules.logs.spills_durable = obeys(Rule::SpillsDurable);
    rules.logs.sends_spilled = obeys(Rule::SendsSpilled);
    rules.draining.drains = obeys(Rule::Drains);
    rules.draining.waits = obeys(Rule::Drains) && obeys(Rule::WaitsForLate);
    rules.phases.at_consumption = obeys(Rule::FoldsAtConsumption);
    rules.rounds.waits_for_phase = obeys(Rule::WaitsForPhase);
    rules.rounds.failed_answer = obeys(Rule::FailedAnswer);
    rules.rounds.sends_restored_log = obeys(Rule::SendsRestoredLog);
    rules.rounds.drops_older_sync = obeys(Rule::DropsOlderSync);
    rules.rounds.drops_older_levels = obeys(Rule::DropsOlderLevels);
    rules.recovery.counts_messages = obeys(Rule::CountsMessages);
    rules.recovery.announces_first = obeys(Rule::AnnouncesFirst);
    rules.recovery.covers_open_rounds = obeys(Rule::CoversOpenRounds);
    rules.recovery.replaced_begins = obeys(Rule::ReplacedBeginsRound);
    rules.recovery.waits_for_reports = obeys(Rule::WaitsForReports);
    rules
}
