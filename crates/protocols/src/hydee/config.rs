//! Parameters of HydEE, and the known defects that tests can switch on.

use alloc::sync::Arc;
use faultline_core::Span;

use crate::placement::Placement;

/// Parameters of HydEE, equal for all processes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Delay between checkpoints, by cluster; `None` is infinite.
    pub checkpoint_every: Arc<[Option<Span>]>,
    /// Copies of each part of a checkpoint (the paper's "reliable storage").
    pub placement: Placement,
    /// How long a failed write waits before it is made again.
    pub retry_every: Span,
    /// Known defects, for tests.
    pub defects: Defects,
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
}
