//! Parameters of HydEE, and the known defects that tests can switch on.

use alloc::sync::Arc;
use faultline_core::{Scope, Span};

use crate::placement::Placement;

/// Parameters of HydEE, equal for all processes.
#[derive(Clone, Debug)]
pub struct Config {
    /// What counts as a cluster: with [`Scope::Process`] each rank, so that every message is logged, and only the failed
    /// process goes back.
    pub scope: Scope,
    /// How the channels between clusters are taken up again.
    pub recovery: Recovery,
    /// Delay between checkpoints, by cluster of the federation; `None` is infinite.
    pub checkpoint_every: Arc<[Option<Span>]>,
    /// Copies of each part of a checkpoint (the paper's "reliable storage").
    pub placement: Placement,
    /// Content of logged messages, in bytes, past which a process's log moves to stable storage (R15); `None` is never.
    pub log_memory: Option<u64>,
    /// How long a failed write waits before it is made again.
    pub retry_every: Span,
    /// Known defects, for tests.
    pub defects: Defects,
}

/// How the channels between clusters are taken up again after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// By a recovery process, phase by phase: HydEE, for send-deterministic programs.
    Phases,
    /// Each pair of processes by itself: SPBC, for channel-deterministic programs.
    Pairs,
    /// As [`Recovery::Pairs`], and every process is delivered messages in the order in which it was, as an event logger holds
    /// it: pessimistic message logging, for programs whose actions follow from the order of their messages. Each process is a
    /// cluster.
    Determinants,
}

/// The known defects of SPBC: those that are only its own, and rules that it has in common with HydEE.
pub const DEFECTS_OF_PAIRS: [Defect; 6] = [
    Defect::SendsBeforeMeeting,
    Defect::OlderMeetingAccepted,
    Defect::LogOutsideCheckpoint,
    Defect::SuppressedNotLogged,
    Defect::CollectsAtPresent,
    Defect::NoLifeCheck,
];

/// The known defects of pessimistic logging: those that are only its own, and rules that it has in common with the others.
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
    /// Whether HydEE has the rule, rather than only SPBC or pessimistic logging.
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

crate::defects::defects! {
    /// The last message that the receiver had is sent again: Algorithm 2, line 14, compares with `<` (H1).
    LastReceivedResent,
    /// The recovery process counts orphans by process instead of by message (H3).
    CountsProcesses,
    /// The recovery process announces no level before a count reaches zero (H4).
    NoInitialLevel,
    /// A process that rolled back does not answer another failed cluster (H5).
    FailedDoNotAnswer,
    /// A restored log is not sent again to processes that did not roll back (H6).
    RestoredLogNotSent,
    /// The log is not part of the checkpoint.
    LogOutsideCheckpoint,
    /// A message that is kept from the network is not logged (R3).
    SuppressedNotLogged,
    /// Collection is told with each message what was sent and received by then, instead of at the checkpoint (H9).
    CollectsAtPresent,
    /// Collection is told before the checkpoint is committed (R8).
    CollectsBeforeCommit,
    /// Messages of older lives of a cluster are accepted (R5, H10).
    NoLifeCheck,
    /// A message that was received before is delivered again (R5).
    NoDuplicateCheck,
    /// A round is for the clusters that failed last, not also for those of rounds that are not closed (R1).
    OnlyNewlyFailed,
    /// Answers of older rounds are accepted (R9).
    OlderSyncAccepted,
    /// Levels of older rounds are obeyed (R9).
    OlderLevelObeyed,
    /// Another life of the recovery process goes on without a new round (R1).
    ReplacedWithoutRound,
    /// The recovery process does not wait for the reports of all (R11).
    NoBarrier,
    /// Nothing waits for its phase (R3, R4).
    NoGate,
    /// The phase is raised when a message arrives, instead of when it is consumed (R6).
    FoldsAtArrival,
    /// A checkpoint does not drain the cluster's channels (R7).
    NoDrain,
    /// A checkpoint is written as soon as the state is there, without what arrives after it (R7).
    OneRound,
    /// Logged messages leave the memory before they are durable (R15).
    SpilledBeforeDurable,
    /// A part of a checkpoint is written and copied without the segments of the log that belong to it (R15).
    SegmentsOutsideCheckpoint,
    /// Segments of the log go with older checkpoints, although the present one needs them (R15).
    SegmentsCollected,
    /// Messages that are on stable storage only are left out when a channel is taken up again (R15).
    SpilledNotSent,
    /// Of SPBC: messages go before both ends have told each other how their channel stands (S3).
    SendsBeforeMeeting,
    /// Of SPBC: what a peer said before a failure is taken for what it says after it (S3).
    OlderMeetingAccepted,
    /// Of pessimistic logging: a message goes before the deliveries on which it depends are stable (M2).
    SendsBeforeStable,
    /// Of pessimistic logging: the event logger acknowledges what is not yet durable (M1).
    AcknowledgesBeforeDurable,
    /// Of pessimistic logging: the order of deliveries is forgotten as soon as it is stable (M5).
    ForgetsBeforeCheckpoint,
    /// Of pessimistic logging: messages are delivered again as they come (M4).
    RepeatsAsItComes,
    /// Of pessimistic logging: a message is delivered again before its receiver has sent what it had sent before (M4).
    RepeatsBeforeSends,
    /// Of pessimistic logging: what a re-execution repeats goes to its receiver again, and is delivered again (M4, R5).
    RepeatedSentAgain,
    /// Of pessimistic logging: a new life of the event logger is not told what the one before was (M6).
    NotToldAgain,
}
