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
    ; mutations
    /// One replica of each part is omitted.
    OneCopyTooFew,
    /// No part has a replica.
    NoCopies,
    /// A cluster resumes before the holders have confirmed their replicas of the restored checkpoint.
    ReadyBeforeCopies,
    /// A part counts as durable before its holders have confirmed it.
    CommitsBeforeCopies,
    /// A part counts as durable before it is durable at its owner.
    CommitsBeforeDurable,
    /// Messages in transit at the cut are not received after the commit.
    LateNotReceived,
    /// Members' answers to an older attempt at a restore are accepted.
    OlderRestoresCount,
    /// A cluster resumes although a member is down.
    ResumesWithoutMembers,
    /// The oldest complete checkpoint is restored instead of the newest.
    OldestRestored,
    /// A restore does not wait for the holders outside the cluster.
    HoldersNotAsked,
    /// A holder answers an inquiry before its writes are durable.
    InquiryAnsweredEarly,
    /// A replica is confirmed on arrival, before it is durable.
    StoredOnArrival,
    /// A failed write is not repeated.
    FailedWritesForgotten,
    /// Parts of older checkpoints are never removed.
    OlderPartsKept,
    /// A committed checkpoint is not announced to the peers, so log entries are never collected.
    NeverCollects,
    /// One more message than the receiver's checkpoint contains is removed from the log.
    CollectsOneTooMany,
    /// The first orphan message of a channel is not reported.
    FirstOrphanMissed,
    /// A message from another cluster raises the phase of its receiver only to the message's phase, not above it.
    PhaseOneTooLow,
    /// The checkpoint timer is not restarted after a commit.
    TimerNotRestarted,
    /// Checkpoints are taken twice as often as requested.
    CheckpointsTwiceAsOften,
    /// A message that arrives during its receiver's restore is dropped.
    ArrivalsDroppedWhileRestoring,
    /// A suppressed message is transmitted anyway.
    SuppressedAndSent,
    /// Messages that are in transit when another cluster fails are sent again.
    InTransitSentAgain,
}

/// Returns the rules of the frame that are obeyed with these defects.
pub(super) fn rules(defects: Defects) -> frame::Rules {
    let obeys = |rule| defects.obeys(rule);
    let is_unchanged = |mutation| !defects.has(mutation);
    let mut rules = frame::Rules::ALL;
    rules.omitted_replicas = match defects.has(Defect::NoCopies) {
        true => u16::MAX,
        false => u16::from(defects.has(Defect::OneCopyTooFew)),
    };
    rules.group.companions_first = obeys(Rule::SegmentsFirst);
    rules.group.keeps_companions = obeys(Rule::KeepsSegments);
    rules.group.confirms_durable = is_unchanged(Defect::StoredOnArrival);
    rules.group.repeats_writes = is_unchanged(Defect::FailedWritesForgotten);
    rules.group.removes_older = is_unchanged(Defect::OlderPartsKept);
    rules.group.answers_after_writes = is_unchanged(Defect::InquiryAnsweredEarly);
    rules.group.asks_holders = is_unchanged(Defect::HoldersNotAsked);
    rules.group.restores_newest = is_unchanged(Defect::OldestRestored);
    rules.group.copies_first = is_unchanged(Defect::ReadyBeforeCopies);
    rules.group.resumes_complete = is_unchanged(Defect::ResumesWithoutMembers);
    rules.group.ignores_older = is_unchanged(Defect::OlderRestoresCount);
    rules.rank.drops_undone = obeys(Rule::DropsOlderLives);
    rules.rank.drops_lost = obeys(Rule::DropsOlderLives);
    rules.rank.drops_duplicates = obeys(Rule::DropsDuplicates);
    rules.rank.keeps_arrivals = is_unchanged(Defect::ArrivalsDroppedWhileRestoring);
    rules.rank.withholds_suppressed = is_unchanged(Defect::SuppressedAndSent);
    rules.rank.collects_at_checkpoint = obeys(Rule::CollectsAtCheckpoint);
    rules.rank.collects_after_commit = obeys(Rule::CollectsAfterCommit);
    rules.rank.restarts_timer = is_unchanged(Defect::TimerNotRestarted);
    rules.rank.spaces_checkpoints = is_unchanged(Defect::CheckpointsTwiceAsOften);
    rules.logs.suppresses_last = obeys(Rule::SuppressesLast);
    rules.logs.logs_suppressed = obeys(Rule::LogsSuppressed);
    rules.logs.saves_log = obeys(Rule::SavesLog);
    rules.logs.collects = is_unchanged(Defect::NeverCollects);
    rules.logs.collects_exactly = is_unchanged(Defect::CollectsOneTooMany);
    rules.logs.spills_durable = obeys(Rule::SpillsDurable);
    rules.logs.sends_spilled = obeys(Rule::SendsSpilled);
    rules.logs.keeps_in_transit = is_unchanged(Defect::InTransitSentAgain);
    rules.draining.drains = obeys(Rule::Drains);
    rules.draining.waits = obeys(Rule::Drains) && obeys(Rule::WaitsForLate);
    rules.draining.receives = is_unchanged(Defect::LateNotReceived);
    rules.draining.requires.own = is_unchanged(Defect::CommitsBeforeDurable);
    rules.draining.requires.replicas = is_unchanged(Defect::CommitsBeforeCopies);
    rules.phases.at_consumption = obeys(Rule::FoldsAtConsumption);
    rules.phases.counts_up = is_unchanged(Defect::PhaseOneTooLow);
    rules.rounds.waits_for_phase = obeys(Rule::WaitsForPhase);
    rules.rounds.failed_answer = obeys(Rule::FailedAnswer);
    rules.rounds.sends_restored_log = obeys(Rule::SendsRestoredLog);
    rules.rounds.drops_older_sync = obeys(Rule::DropsOlderSync);
    rules.rounds.drops_older_levels = obeys(Rule::DropsOlderLevels);
    rules.rounds.reports_all = is_unchanged(Defect::FirstOrphanMissed);
    rules.recovery.counts_messages = obeys(Rule::CountsMessages);
    rules.recovery.announces_first = obeys(Rule::AnnouncesFirst);
    rules.recovery.covers_open_rounds = obeys(Rule::CoversOpenRounds);
    rules.recovery.replaced_begins = obeys(Rule::ReplacedBeginsRound);
    rules.recovery.waits_for_reports = obeys(Rule::WaitsForReports);
    rules
}
