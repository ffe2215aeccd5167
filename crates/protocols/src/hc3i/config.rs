//! Parameters of HC3I, and the known defects that tests can switch on.

use alloc::sync::Arc;
use faultline_core::Span;

pub use faultline_core::Scope;
use serde::{Deserialize, Serialize};

use crate::placement::ReplicateTo;

/// Parameters of HC3I, equal for all processes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Delay between unforced checkpoints, by cluster of the federation; `None` is infinite. A forced checkpoint restarts it
    /// (section 5.2). With [`Scope::Federation`] the first entry counts.
    pub checkpoint_every: Arc<[Option<Span>]>,
    /// Delay between garbage collections; `None` is never (section 3.5).
    pub collect_every: Option<Span>,
    /// Who decides what is collected.
    pub collect_by: CollectBy,
    /// Copies of each part beside the owner's own (section 3.1 has one). A storage server counts as one copy.
    pub replicas: u16,
    /// Where the copies are kept.
    pub replicate_to: ReplicateTo,
    /// What counts as a cluster: each by itself, the federation as one (the global coordinated baseline), or each process
    /// by itself.
    pub scope: Scope,
    /// What a message to another cluster carries.
    pub piggyback: Piggyback,
    /// Which messages from another cluster force a checkpoint.
    pub forcing: Forcing,
    /// How a checkpoint keeps messages inside the cluster from crossing its cut.
    pub cut: Cut,
    /// Who passes on what a checkpoint needs to be said, where the federation counts as one cluster.
    pub coordination: Coordinating,
    /// How long an unanswered request between clusters, or a failed write, waits before it is made again.
    pub retry_every: Span,
    /// Known defects, for tests.
    pub defects: Defects,
}

/// Who decides what is collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectBy {
    /// The first cluster asks all others what is stored, and decides for everyone (section 3.5).
    #[default]
    Initiator,
    /// Each cluster tells all others what is stored, and decides for itself by what it has heard (section 7: "the garbage
    /// collector should be more distributed").
    EveryCluster,
}

/// What a message between clusters carries, and so what its receiver learns of dependencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piggyback {
    /// The sender's sequence number (section 3.2).
    #[default]
    Sn,
    /// The sender's whole DDV: a checkpoint forced by one cluster's message also covers what that cluster had received
    /// from others, whose own messages then force none (section 7).
    Ddv,
}

/// Which messages from another cluster force a checkpoint before their delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forcing {
    /// Those that bring news of a checkpoint of the sender's cluster (section 3.2).
    #[default]
    News,
    /// Every one: the baseline of communication-induced checkpointing that section 3.2 improves on.
    EveryMessage,
    /// None: checkpoints are independent of each other, and a rollback may go back as far as the first.
    Never,
}

/// How a checkpoint keeps a message that was sent after its sender's cut from being delivered before its receiver's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cut {
    /// Nobody sends or is delivered anything from the request to the commit (section 3.1).
    #[default]
    Frozen,
    /// Messages carry the interval in which they were sent, and a process that gets one of the next interval takes its own
    /// checkpoint first (Lai and Yang 1987): the non-blocking snapshot of Chandy and Lamport for channels without an order.
    /// There must be one cluster only, whose checkpoints end in a commit or in a rollback.
    Coloured,
}

/// Who says what to whom while a checkpoint of the whole federation is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coordinating {
    /// The coordinator and every process, directly.
    #[default]
    Directly,
    /// The coordinator and the leaders of the federation's clusters, their lowest processes, and these and their own members
    /// (Paul, Gupta and Badrinath 2002).
    ByLeaders,
}

/// The known defects of the non-blocking baseline: those that are only its own, and rules that it has in common with HC3I.
pub const DEFECTS_OF_COLOURS: [Defect; 9] = [
    Defect::NextColourDelivered,
    Defect::SentUncoloured,
    Defect::NextColourCounted,
    Defect::LateOnlyRecorded,
    Defect::NoDrain,
    Defect::OldWithinAccepted,
    Defect::FutureDropped,
    Defect::CommitBeforeCopies,
    Defect::RestartBefore,
];

/// The known defects of the hierarchical baseline: those that are only its own, and rules that it has in common with HC3I.
pub const DEFECTS_OF_LEADERS: [Defect; 7] = [
    Defect::LeaderCountsAlone,
    Defect::LeaderDrainsAlone,
    Defect::SpreadUnaware,
    Defect::NoDrain,
    Defect::OldWithinAccepted,
    Defect::CommitBeforeCopies,
    Defect::RestartBefore,
];

impl Defect {
    /// Whether HC3I has the rule, rather than only one of the coordinated baselines.
    pub fn is_of_hc3i(self) -> bool {
        !matches!(
            self,
            Defect::NextColourDelivered
                | Defect::SentUncoloured
                | Defect::NextColourCounted
                | Defect::LateOnlyRecorded
                | Defect::LeaderCountsAlone
                | Defect::LeaderDrainsAlone
                | Defect::SpreadUnaware
        )
    }
}

crate::defects::defects! {
    /// The checkpoint freezes but does not drain: intra-cluster messages in transit are in no part (B5).
    NoDrain,
    /// A rollback does not abort the checkpoint that is being taken (B8).
    CheckpointNotAborted,
    /// Messages of every older incarnation are dropped, also those that no rollback undid (B4).
    OlderIncarnationsDropped,
    /// Messages that a rollback undid are delivered (B4).
    StaleNotDropped,
    /// The log is volatile only, as printed: "logged messages are used only if the sender doesn't rollback" (finding 3).
    LogOutsideCheckpoint,
    /// The set of received messages is not part of the checkpoint.
    ReceivedOutsideCheckpoint,
    /// Inside a cluster, messages from beyond the next commit are dropped instead of held (rule 8).
    FutureDropped,
    /// Re-send when acknowledged with a *greater* SN than the alert's, as printed (finding 2).
    ResendGreater,
    /// A restored sender does not re-send its unacknowledged messages (B3).
    NoOwnResend,
    /// Inside a cluster, messages of an older incarnation are delivered (B4).
    OldWithinAccepted,
    /// Acknowledgements in a restored log are not checked against the table of rollbacks (B3).
    RestoredAcksUnchecked,
    /// Collection removes one checkpoint too many (section 3.5).
    CollectsOneTooMany,
    /// What was collected is restored when some of it has survived and all that was kept is lost.
    CollectedRestored,
    /// Collection counts on checkpoints that a known rollback elsewhere has spoilt: the cluster is about to roll back
    /// behind them.
    CollectsOnSpoilt,
    /// Collection counts on what one cluster told before a rollback and another one afterwards.
    CollectsOnMixed,
    /// Collection counts on checkpoints whose copies are not complete (any more).
    CollectsOnUncovered,
    /// Without an initiator a cluster that has not told yet what it stores does not count, as if it could not fail.
    CollectsWithoutSilent,
    /// Collection does not count clusters that have joined or will leave, as if they could not go back.
    CollectsWithoutGuests,
    /// A cluster leaves although a rollback can still undo its last checkpoint.
    LeavesUndoable,
    /// A cluster leaves although somebody may still want what it has logged.
    LeavesWithLog,
    /// A cluster that joins is not told of the rollbacks before.
    NewcomersNotTold,
    /// Collection removes log entries acknowledged at the kept checkpoint too (section 3.5 with `<=`).
    LogCollectedAtWorst,
    /// A member takes part in a round although it does not know all lives of it: what it sends to them is lost
    /// (rule 12).
    RoundWithoutLives,
    /// A refilled holder gets the parts, but not the table of rollbacks: an incarnation can be used twice.
    NotesNotRefilled,
    /// A part does not tell its cluster's rollbacks: they can be lost although it is left.
    PastOutsideCheckpoint,
    /// A member collects log entries although it does not know yet of a rollback that undid their delivery.
    LogCollectedUnaware,
    /// Rounds of an older epoch are obeyed (rule 11).
    OlderEpochsAccepted,
    /// A message is delivered without the checkpoint that it should force (section 3.2).
    NoForcedCheckpoint,
    /// A cluster restarts from the checkpoint before the right one (finding 1).
    RestartBefore,
    /// The dependency vector decides rollback, as printed, instead of the delivered vector (finding 5).
    PrintedLine,
    /// Raises by queued messages are not merged into the commit (B6).
    RaisesNotMerged,
    /// A message that arrives during a checkpoint does not ask for its own afterwards (rule 7).
    ForceNotRepeated,
    /// Messages that arrive during a recovery are dropped (rule 10).
    ArrivalsDroppedWhileRecovering,
    /// A rollback empties the queues of a surviving process (rule 10).
    QueuesLostAtRollback,
    /// Nothing is re-sent to a new life outside the cluster unless an alert asks for it (rule 3).
    ResendOnlyOnAlerts,
    /// The table of rollbacks is lost in a crash (B4).
    TablesVolatile,
    /// A holder that came back empty is not refilled (rule 17).
    HolderNotRefilled,
    /// The first checkpoint does not wait for the durable note that the cluster started (rule 18).
    NoStartGate,
    /// Alerts are sent once (rule 19).
    AlertsNotRetried,
    /// An alert carries only the last entry of its cluster's history (rule 19).
    OnlyLastEntry,
    /// Messages of other clusters are delivered after a rollback before those clusters have dealt with its alert:
    /// rollbacks can echo for ever (B7).
    DeliversUnsettled,
    /// A part counts as saved before its copies are durable (finding 6).
    CommitBeforeCopies,
    /// A recovery reports what it remembers instead of waiting for its writes (rule 13).
    NoWriteBarrier,
    /// A target is entered into the holder's own table, where it masks the alert that follows (rule 15).
    TargetMasksAlert,
    /// Of the non-blocking baseline: a message of the next interval is delivered before the receiver's own cut (C2).
    NextColourDelivered,
    /// Of the non-blocking baseline: what is sent after the cut and before the commit is taken for what was sent before (C1).
    SentUncoloured,
    /// Of the non-blocking baseline: messages of the next interval are counted among those that are in transit (C3).
    NextColourCounted,
    /// Of the non-blocking baseline: a message in transit is recorded, and not delivered before somebody goes back (C3).
    LateOnlyRecorded,
    /// Of the hierarchical baseline: a leader tells what its cluster has in transit as soon as one process has saved (L2).
    LeaderCountsAlone,
    /// Of the hierarchical baseline: a leader says that its cluster's parts are durable as soon as one is (L2).
    LeaderDrainsAlone,
    /// Of the hierarchical baseline: a leader passes on to the lives that it knows, which need not be those that are meant
    /// (L1).
    SpreadUnaware,
}
