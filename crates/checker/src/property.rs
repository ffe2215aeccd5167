//! The properties by which a run is judged. Each has a file in [`properties`](crate::properties).

use serde::{Deserialize, Serialize};

/// The properties by which a run is judged, declared in the order in which reports show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Property {
    /// The evidence is complete and unchanged.
    RecordComplete,
    /// The run completed.
    Completed,
    /// The run was as the federation expects.
    Expected,
    /// The answers to clients do not contradict the model of the data.
    Consistent,
    /// If faults were planned, at least one of them took effect.
    FaultsTookEffect,
    /// The processes of a lost cluster failed simultaneously.
    AtOnce,
    /// The emulated links had the requested delays.
    LinksAsRequested,
    /// Every rank's result equals that of a run without faults.
    SameResult,
    /// No state contains a delivery of a message that its sender's state does not contain.
    NoGhost,
    /// Every message whose send was not undone was delivered.
    NoLoss,
    /// No state contains two deliveries of one message, or deliveries of two messages with the same position in their
    /// channel.
    ExactlyOnce,
    /// No message was consumed before its causes.
    CausalOrder,
    /// Every task of a program contributes to the result exactly once.
    TasksOnce,
    /// No process took back a task that its thief had.
    OneOwner,
    /// The self-reported contents of a checkpoint match the facts before it.
    WitnessAgrees,
    /// A message from another cluster was delivered only after the checkpoint that it forced.
    ForcedBeforeDelivery,
    /// Stolen tasks, results and receipts were sent only after a checkpoint that covers them was durable.
    CheckpointedFirst,
    /// Only thefts, recoveries and the end of the program forced checkpoints.
    ForcedPerTheft,
    /// The processes of a cluster agree on its checkpoints and rollbacks.
    MembersAgree,
    /// If a checkpoint contains the delivery of a message sent within its cluster, it also contains the send.
    ConsistentCheckpoint,
    /// A checkpoint of partitions was used as valid only after every partition had saved its part, and was then kept
    /// until a newer one was complete.
    ValidCheckpoints,
    /// A checkpoint of partitions contains the receipt of every message whose send it contains.
    Drained,
    /// A checkpoint of partitions contains no message sent after the sender's part.
    QuietCheckpoints,
    /// Among partitions, only neighbours exchanged messages to coordinate a checkpoint.
    NeighboursOnly,
    /// Every part of a checkpoint was durable at its owner and at all holders before the checkpoint was committed.
    DurableBeforeCommit,
    /// No cluster rolled back further than necessary.
    MaximalLine,
    /// Every part of a restored checkpoint was durable before a process of its group resumed.
    DurableBeforeResume,
    /// Every rollback follows from the end of a life or from an undone message.
    RollbackCaused,
    /// Only failed clusters rolled back.
    Contained,
    /// A recovery re-executed exactly the tasks that were strictly required.
    StrictlyRequired,
    /// No partition re-executed a task that no partition needed.
    DemandedOnly,
    /// Every orphan message was re-sent and then suppressed.
    OrphansReplayed,
    /// Until a process that rolled back had re-sent an orphan message, it delivered no message of a later phase from
    /// another cluster.
    OrphansFirst,
    /// The phases of orphan messages follow from the consumed messages.
    PhasesAgree,
    /// After rolling back, a process delivered the same messages again in the same order, up to the last delivery on
    /// which other processes depend.
    RepeatedOrder,
    /// No failure made a cluster roll back indefinitely.
    RecoveryTerminates,
    /// After the last fault, recoveries ended and the application resumed.
    Progress,
    /// A cluster was declared unrecoverable only if every copy of a part was lost.
    UnrecoverableJustified,
    /// Nothing that was collected was needed later.
    SafeCollection,
    /// No logged message was collected before a checkpoint of its receiver contained its delivery.
    LogKept,
    /// No failure caused the loss of more work than the checkpoint interval allows.
    BoundedLoss,
    /// At most one life of a process acted at a time.
    OneLife,
    /// A partition ran on one process at a time, and moved only if a process had failed permanently, was about to
    /// leave, or had joined.
    OneHost,
    /// No process ended unexpectedly.
    NoUnplannedFailure,
    /// The code of no process panicked.
    NoPanic,
    /// Virtual time advanced until the run ended.
    TimeAdvances,
    /// Economy: every forced checkpoint followed a new dependency.
    ForcedByNews,
    /// Economy: unforced checkpoints were no more frequent than requested.
    CheckpointsSpaced,
    /// Economy: no message was re-sent unnecessarily.
    SentOnce,
    /// Economy: parts of checkpoints that no recovery can need were removed.
    PartsCollected,
    /// Economy: logged messages that no recovery can need were removed.
    LogsCollected,
}
