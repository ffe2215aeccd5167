//! Parameters of HydEE, and the known defects that tests can enable.

use alloc::sync::Arc;
use faultline_core::{Scope, Span};

use crate::machines::group::Rules;
use crate::placement::Placement;

/// Parameters of HydEE, equal for all processes.
#[derive(Clone, Debug)]
pub struct Config {
    /// The unit that the protocol treats as a cluster. With [`Scope::Process`], this is each rank: every message is
    /// logged, and only the failed process rolls back.
    pub scope: Scope,
    /// How the channels between clusters resume after a failure.
    pub recovery: Recovery,
    /// Delay between checkpoints, one entry per cluster of the federation; `None` is infinite.
    pub checkpoint_every: Arc<[Option<Span>]>,
    /// Placement of the replicas of each part of a checkpoint (the paper's "reliable storage").
    pub placement: Placement,
    /// Payload of logged messages, in bytes, above which a process's log moves to stable storage (R15); `None` keeps
    /// all in memory.
    pub log_memory: Option<u64>,
    /// Delay before a failed write is repeated.
    pub retry_every: Span,
    /// Enabled defects, for tests.
    pub defects: Defects,
}

impl Config {
    /// Returns which processes hold replicas of which parts.
    pub(super) fn copies(&self) -> Placement {
        let Placement { replicas, to } = self.placement;
        let replicas = match replicas {
            _ if self.defects.has(Defect::NoCopies) => 0,
            replicas if self.defects.has(Defect::OneCopyTooFew) => replicas.saturating_sub(1),
            replicas => replicas,
        };
        Placement { replicas, to }
    }

    /// Returns the rules of stored checkpoints that are obeyed.
    pub(super) fn rules(&self) -> Rules {
        let obeys = |defect| !self.defects.has(defect);
        Rules {
            companions_first: obeys(Defect::SegmentsOutsideCheckpoint),
            keeps_companions: obeys(Defect::SegmentsCollected),
            confirms_durable: obeys(Defect::StoredOnArrival),
            repeats_writes: obeys(Defect::FailedWritesForgotten),
            removes_older: obeys(Defect::OlderPartsKept),
            answers_after_writes: obeys(Defect::InquiryAnsweredEarly),
            asks_holders: obeys(Defect::HoldersNotAsked),
            restores_newest: obeys(Defect::OldestRestored),
            copies_first: obeys(Defect::ReadyBeforeCopies),
            resumes_complete: obeys(Defect::ResumesWithoutMembers),
            ignores_older: obeys(Defect::OlderRestoresCount),
        }
    }
}

/// How the channels between clusters resume after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Directed by a recovery process, phase by phase: HydEE, for send-deterministic programs.
    Phases,
    /// Each pair of processes separately: SPBC, for channel-deterministic programs.
    Pairs,
    /// Like [`Recovery::Pairs`], but messages are delivered again in their original order, which an event
    /// logger stores: pessimistic message logging, for programs whose actions follow from the order of their
    /// messages. Each process is a cluster.
    Determinants,
}

/// Known defects of SPBC: its own, and those of rules that it shares with HydEE.
pub const DEFECTS_OF_PAIRS: [Defect; 6] = [
    Defect::SendsBeforeMeeting,
    Defect::OlderMeetingAccepted,
    Defect::LogOutsideCheckpoint,
    Defect::SuppressedNotLogged,
    Defect::CollectsAtPresent,
    Defect::NoLifeCheck,
];

/// Known defects of pessimistic logging: its own, and those of rules that it shares with the other protocols.
pub const DEFECTS_OF_DETERMINANTS: [Defect; 12] = [
    Defect::SendsBeforeStable,
    Defect::AcknowledgesBeforeDurable,
    Defect::ForgetsBeforeCheckpoint,
    Defect::RepeatsAsItComes,
    Defect::RepeatsBeforeSends,
    Defect::RepeatedSentAgain,
    Defect::NotToldAgain,
    Defect::SendsBeforeMeeting,
    Defect::OlderMeetingAccepted,
    Defect::LogOutsideCheckpoint,
    Defect::SuppressedNotLogged,
    Defect::CollectsAtPresent,
];

impl Defect {
    /// Returns whether the rule belongs to HydEE, and not only to SPBC or pessimistic logging.
    pub fn is_of_phases(self) -> bool {
        !matches!(
            self,
            Defect::SendsBeforeMeeting
                | Defect::OlderMeetingAccepted
                | Defect::SendsBeforeStable
                | Defect::AcknowledgesBeforeDurable
                | Defect::ForgetsBeforeCheckpoint
                | Defect::RepeatsAsItComes
                | Defect::RepeatsBeforeSends
                | Defect::RepeatedSentAgain
                | Defect::NotToldAgain
        )
    }
}

faultline_core::defects! {
    /// The last message that the receiver already has is re-sent: Algorithm 2, line 14, compares with `<` (H1).
    LastReceivedResent,
    /// The recovery process counts orphans per process instead of per message (H3).
    CountsProcesses,
    /// The recovery process announces no level until a count reaches zero (H4).
    NoInitialLevel,
    /// A process that rolled back does not answer another failed cluster (H5).
    FailedDoNotAnswer,
    /// A restored log is not re-sent to processes that did not roll back (H6).
    RestoredLogNotSent,
    /// The log is not part of the checkpoint.
    LogOutsideCheckpoint,
    /// A suppressed message is not logged (R3).
    SuppressedNotLogged,
    /// Each message carries the current counts for garbage collection, instead of those at the checkpoint (H9).
    CollectsAtPresent,
    /// Garbage collection is announced before the checkpoint is committed (R8).
    CollectsBeforeCommit,
    /// Messages from older lives of a cluster are accepted (R5, H10).
    NoLifeCheck,
    /// A message that was already received is delivered again (R5).
    NoDuplicateCheck,
    /// A round covers only the clusters that failed last, not those of rounds that are still open (R1).
    OnlyNewlyFailed,
    /// Answers of older rounds are accepted (R9).
    OlderSyncAccepted,
    /// Processes follow levels of older rounds (R9).
    OlderLevelObeyed,
    /// A new life of the recovery process continues without starting a new round (R1).
    ReplacedWithoutRound,
    /// The recovery process does not wait for the reports of all ranks (R11).
    NoBarrier,
    /// No message waits for its phase (R3, R4).
    NoGate,
    /// A message raises the phase when it arrives, instead of when it is consumed (R6).
    FoldsAtArrival,
    /// A checkpoint does not drain the cluster's channels (R7).
    NoDrain,
    /// A checkpoint is written as soon as the state has been saved, without messages that arrive later (R7).
    OneRound,
    /// Logged messages leave the memory before they are durable (R15).
    SpilledBeforeDurable,
    /// A part of a checkpoint is written and replicated without its log segments (R15).
    SegmentsOutsideCheckpoint,
    /// Log segments are removed together with older checkpoints, although the current one needs them (R15).
    SegmentsCollected,
    /// Messages that are only on stable storage are left out when a channel resumes (R15).
    SpilledNotSent,
    /// SPBC: messages are sent before both ends have reported the state of their channel (S3).
    SendsBeforeMeeting,
    /// SPBC: a peer's report from before a failure is accepted after the failure (S3).
    OlderMeetingAccepted,
    /// Pessimistic logging: a message is sent before the deliveries on which it depends are stable (M2).
    SendsBeforeStable,
    /// Pessimistic logging: the event logger acknowledges deliveries that are not durable yet (M1).
    AcknowledgesBeforeDurable,
    /// Pessimistic logging: the order of deliveries is removed as soon as it is stable (M5).
    ForgetsBeforeCheckpoint,
    /// Pessimistic logging: after a rollback, messages are delivered in the order of their arrival (M4).
    RepeatsAsItComes,
    /// Pessimistic logging: a message is delivered again before its receiver has repeated its earlier sends (M4).
    RepeatsBeforeSends,
    /// Pessimistic logging: messages that a re-execution repeats are sent and delivered again (M4, R5).
    RepeatedSentAgain,
    /// Pessimistic logging: a new life of the event logger is not told what the previous one knew (M6).
    NotToldAgain,
    ; mutations
    /// One replica of each part is omitted.
    OneCopyTooFew,
    /// No part has a replica.
    NoCopies,
    /// A cluster resumes before the holders have confirmed their replicas of what it restored.
    ReadyBeforeCopies,
    /// A part counts as durable before its holders have confirmed it.
    CommitsBeforeCopies,
    /// A part counts as durable before it is durable at its owner.
    CommitsBeforeDurable,
    /// Messages in transit at the cut are not received after the commit.
    LateNotReceived,
    /// Members' answers to an older attempt at a restore count.
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
    /// Older parts are kept.
    OlderPartsKept,
    /// A committed checkpoint is not announced to the peers, so log entries are never collected.
    NeverCollects,
    /// One message more than the receiver's checkpoint contains is removed from the log.
    CollectsOneTooMany,
    /// The first orphan message of a channel is not reported.
    FirstOrphanMissed,
    /// A message from another cluster does not raise the phase of its receiver.
    PhaseOneTooLow,
    /// The checkpoint timer is not restarted after a commit.
    TimerNotRestarted,
    /// A message that arrives during its receiver's restore is dropped.
    ArrivalsDroppedWhileRestoring,
    /// A message that is suppressed is transmitted as well.
    SuppressedAndSent,
}
