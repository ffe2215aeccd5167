//! Parameters of HC3I, its rules, and the known defects that tests can enable.
//!
//! A rule cites the section of the paper that it belongs to. Rules marked *corrected* differ from what the paper prints
//! there; rules marked *added* are missing from the paper. `docs/hc3i.md` explains both.

use alloc::sync::Arc;
use faultline_core::Span;
use serde::{Deserialize, Serialize};

use crate::machines::rules;
use crate::placement::ReplicateTo;

/// Parameters of HC3I, the same for all processes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Delay between unforced checkpoints, one entry per cluster of the federation; `None` is infinite. A forced
    /// checkpoint restarts the timer (section 5.2).
    pub checkpoint_every: Arc<[Option<Span>]>,
    /// Delay between garbage collections; `None` disables them (section 3.5).
    pub collect_every: Option<Span>,
    /// Which clusters decide what is collected.
    pub collect_by: CollectBy,
    /// Number of replicas of each part, in addition to the owner's own copy (one in section 3.1). The copy on a storage
    /// server counts as one replica.
    pub replicas: u16,
    /// Where the replicas are kept.
    pub replicate_to: ReplicateTo,
    /// Dependencies that a message to another cluster carries.
    pub piggyback: Piggyback,
    /// Which messages from another cluster force a checkpoint.
    pub forcing: Forcing,
    /// Delay before an unanswered alert, or a failed write, is repeated.
    pub retry_every: Span,
    /// Enabled defects, for tests.
    pub defects: Defects,
}

/// Which clusters decide what is collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectBy {
    /// The first permanent cluster asks all others for lists of their checkpoints, and decides for all (section 3.5).
    #[default]
    Initiator,
    /// Each cluster sends all others a list of its checkpoints, and decides for itself from the lists that it has
    /// received (section 7: "the garbage collector should be more distributed").
    EveryCluster,
}

/// Dependencies that a message between clusters carries. The receiver learns about no other dependencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piggyback {
    /// The sender's sequence number (section 3.2).
    #[default]
    Sn,
    /// The sender's whole DDV. A checkpoint forced by one cluster's message then also covers the positions of other
    /// clusters on which that cluster depends. Messages from those clusters force no further checkpoint unless their
    /// positions are newer (section 7).
    Ddv,
}

/// Which messages from another cluster force a checkpoint before their delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forcing {
    /// Messages that carry a newer position of the sender's cluster than the one on which the receiver depends
    /// (section 3.2).
    #[default]
    News,
    /// All messages: the baseline of communication-induced checkpointing that section 3.2 improves on.
    EveryMessage,
}

rules! {
    /// A part contains the messages that were in transit inside the cluster (section 3.1; corrected).
    Drains, without
        /// A checkpoint freezes the cluster without draining it: no part contains the cluster's messages in transit.
        NoDrain;
    /// A rollback discards the checkpoint in progress (section 3.4; added).
    AbortsCheckpoint, without
        /// A rollback does not discard the checkpoint in progress.
        CheckpointNotAborted;
    /// A message from an older incarnation is delivered unless a rollback undid it (section 3.4; corrected).
    KeepsOlderIncarnations, without
        /// Messages from all older incarnations are dropped, including those that no rollback undid.
        OlderIncarnationsDropped;
    /// A message that a rollback undid is dropped (section 3.4; corrected).
    DropsStale, without
        /// Messages that a rollback undid are delivered.
        StaleNotDropped;
    /// The log is part of the checkpoint (section 3.3; corrected).
    SavesLog, without
        /// The log is only in memory, as printed: "logged messages are used only if the sender doesn't rollback".
        LogOutsideCheckpoint;
    /// The set of received messages is part of the checkpoint (section 3.3; added).
    SavesReceived, without
        /// The set of received messages is not part of the checkpoint.
        ReceivedOutsideCheckpoint;
    /// Inside a cluster, a message from a later interval waits until its receiver reaches the interval (section 3.1;
    /// added).
    KeepsFuture, without
        /// Inside a cluster, messages from later intervals are dropped instead of being held back.
        FutureDropped;
    /// A message acknowledged at or after the restored SN is re-sent (section 3.4; corrected).
    ResendsAtRestored, without
        /// An acknowledged message is re-sent only if its acknowledgement has an SN *greater* than the alert's, as
        /// printed.
        ResendGreater;
    /// A restored sender re-sends its unacknowledged messages (section 3.4; added).
    ResendsOwn, without
        /// A restored sender does not re-send its unacknowledged messages.
        NoOwnResend;
    /// Inside a cluster, messages from an older incarnation are dropped (section 3.4; added).
    DropsOldWithin, without
        /// Inside a cluster, messages from an older incarnation are delivered.
        OldWithinAccepted;
    /// Acknowledgements in a restored log are checked against the table of rollbacks (section 3.4; added).
    ChecksRestoredAcks, without
        /// Acknowledgements in a restored log are not checked against the table of rollbacks.
        RestoredAcksUnchecked;
    /// Garbage collection keeps the checkpoint that each cluster would restore if all clusters failed (section 3.5).
    CollectsBelowWorst, without
        /// Garbage collection removes one checkpoint too many (section 3.5).
        CollectsOneTooMany;
    /// A collected checkpoint is never restored, even if its parts survived (section 3.5; added).
    NeverRestoresCollected, without
        /// A collected checkpoint is restored if its parts survived and every kept checkpoint is lost.
        CollectedRestored;
    /// Garbage collection does not rely on checkpoints that a known rollback elsewhere has invalidated (section 3.5;
    /// added).
    CollectsOnSound, without
        /// Garbage collection relies on checkpoints that a known rollback elsewhere has invalidated, although the
        /// cluster is about to roll back past them.
        CollectsOnSpoilt;
    /// Garbage collection relies only on lists that include the same rollbacks (section 3.5; added).
    CollectsOnAgreement, without
        /// Garbage collection combines a list from before a rollback with one from after it.
        CollectsOnMixed;
    /// Garbage collection relies only on checkpoints whose replicas are complete (section 3.5; added).
    CollectsOnCovered, without
        /// Garbage collection relies on checkpoints whose replicas are incomplete.
        CollectsOnUncovered;
    /// A checkpoint counts as complete again once the holders of its replicas have confirmed them (section 3.5; added).
    ConfirmsRefills, without
        /// A checkpoint whose replicas were incomplete during a recovery never counts as complete again.
        RefillsUnconfirmed;
    /// A holder does not store a replica that arrives after its checkpoint was collected or undone (section 3.5;
    /// added).
    RefusesLate, without
        /// A holder stores a replica that arrives after its checkpoint was collected or undone.
        LateReplicasStored;
    /// Without an initiator, a collection waits for a list from every cluster (section 7).
    WaitsForSilent, without
        /// Without an initiator, a cluster that has sent no list yet is ignored, as if it could not roll back.
        CollectsWithoutSilent;
    /// Garbage collection assumes that clusters that have joined or will leave can roll back like others (section 7).
    CountsGuests, without
        /// Garbage collection ignores clusters that have joined or will leave, as if they could not roll back.
        CollectsWithoutGuests;
    /// A cluster leaves only once no rollback can undo its last checkpoint (section 7).
    LeavesPermanently, without
        /// A cluster leaves although a rollback can still undo its last checkpoint.
        LeavesUndoable;
    /// A cluster leaves only once no other cluster can need messages from its log (section 7).
    LeavesUnlogged, without
        /// A cluster leaves although other clusters may still need messages from its log.
        LeavesWithLog;
    /// A cluster that joins learns of earlier rollbacks (section 7).
    TellsNewcomers, without
        /// A cluster that joins does not learn of earlier rollbacks.
        NewcomersNotTold;
    /// Garbage collection keeps log entries acknowledged at the oldest kept checkpoint of the receiver's cluster
    /// (section 3.5).
    KeepsLogAtWorst, without
        /// Garbage collection also removes log entries acknowledged at the oldest kept checkpoint (section 3.5 with
        /// `<=`).
        LogCollectedAtWorst;
    /// A member takes part in a round only once it knows all lives involved (section 3.4; added).
    KnowsLives, without
        /// A member takes part in a round although it does not know all lives involved: its messages to the unknown
        /// lives are lost.
        RoundWithoutLives;
    /// A refilled holder receives the table of rollbacks with the parts (section 3.1; added).
    RefillsNotes, without
        /// A refilled holder receives the parts, but not the table of rollbacks: an incarnation can be used twice.
        NotesNotRefilled;
    /// A part contains its cluster's rollbacks (section 3.1; added).
    SavesPast, without
        /// A part does not contain its cluster's rollbacks: their record can be lost although the part survives.
        PastOutsideCheckpoint;
    /// A member removes log entries only once it knows of every rollback that may have undone their delivery (section
    /// 3.5; added).
    CollectsLogAware, without
        /// A member removes log entries before it knows of a rollback that undid their delivery.
        LogCollectedUnaware;
    /// Members ignore rounds of an older epoch (section 3.4; added).
    IgnoresOlderEpochs, without
        /// Members follow rounds of an older epoch.
        OlderEpochsAccepted;
    /// A message is delivered only after the checkpoint that it forces (section 3.2).
    Forces, without
        /// A message is delivered without the checkpoint that it should force (section 3.2).
        NoForcedCheckpoint;
    /// A cluster restores the newest checkpoint that contains nothing undone (section 3.4; corrected).
    RestoresNewest, without
        /// A cluster restores the checkpoint before the right one.
        RestartBefore;
    /// The delivered vector determines rollbacks (section 3.4; corrected).
    DeliveredDecides, without
        /// As printed, the DDV determines rollbacks instead of the delivered vector.
        PrintedLine;
    /// The DDV that a checkpoint saves covers the queued messages (section 3.2; added).
    MergesRaises, without
        /// The DDV that a checkpoint saves does not cover the queued messages.
        RaisesNotMerged;
    /// A member whose messages are still waiting after a checkpoint requests another one (section 3.2; added).
    RepeatsForce, without
        /// A member whose messages are still waiting after a checkpoint does not request another one.
        ForceNotRepeated;
    /// A message that arrives during a recovery waits (section 3.4; added).
    KeepsArrivals, without
        /// Messages that arrive during a recovery are dropped.
        ArrivalsDroppedWhileRecovering;
    /// A rollback keeps the queues of a surviving process (section 3.4; added).
    KeepsQueues, without
        /// A rollback empties the queues of a surviving process.
        QueuesLostAtRollback;
    /// Messages that were in transit to a life that has ended are re-sent to the next life (section 3.4; added).
    ResendsToNewLives, without
        /// Nothing is re-sent to a new life in another cluster unless an alert asks for it.
        ResendOnlyOnAlerts;
    /// The table of rollbacks survives a crash (section 3.4; corrected).
    TablesDurable, without
        /// The table of rollbacks is lost in a crash.
        TablesVolatile;
    /// A holder that returns with empty storage is refilled (section 3.1; added).
    RefillsHolders, without
        /// A holder that returns with empty storage is not refilled.
        HolderNotRefilled;
    /// The first checkpoint is committed only once the start of the cluster is durably recorded (section 3.1; added).
    StartGate, without
        /// The first checkpoint is committed without waiting for the durable record of the cluster's start.
        NoStartGate;
    /// An alert is repeated until it is confirmed (section 3.4; added).
    RetriesAlerts, without
        /// Alerts are sent only once.
        AlertsNotRetried;
    /// An alert carries the whole history of its cluster (section 3.4; corrected).
    AlertsAll, without
        /// An alert carries only the last entry of its cluster's history.
        OnlyLastEntry;
    /// A cluster announces a rollback only once the record of it is durable (section 3.4; added).
    AnnouncesDurable, without
        /// A cluster announces a rollback before the record of it is durable: another rollback can get the same
        /// incarnation.
        AlertsBeforeDurable;
    /// After a rollback, messages from other clusters wait until all other clusters have handled the alert (section
    /// 3.4; added).
    WaitsForSettled, without
        /// After a rollback, messages from other clusters are delivered before all other clusters have handled the
        /// alert: rollbacks can trigger each other endlessly.
        DeliversUnsettled;
    /// A part counts as saved only once its replicas are durable (section 3.1).
    DurableFirst, without
        /// A part counts as saved before its replicas are durable.
        CommitBeforeCopies;
    /// During a recovery, a process waits for its unfinished writes before it reports what is durable (section 3.4;
    /// added).
    WriteBarrier, without
        /// During a recovery, a process reports what is durable without waiting for its unfinished writes.
        NoWriteBarrier;
    /// During a recovery, a process waits for a failed write only as long as the written part is needed (section 3.4;
    /// added).
    AwaitsNeededWrites, without
        /// During a recovery, a process also waits for failed writes of parts that are no longer needed, and that it
        /// therefore does not repeat.
        ForgottenWritesAwaited;
    /// A holder keeps the history of a target separate from its own table, where the history would mask the alert that
    /// follows (section 3.4; added).
    SeparatesNotes, without
        /// The history of a target is entered into the holder's own table, where it masks the alert that follows.
        TargetMasksAlert;
}
