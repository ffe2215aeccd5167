//! Parameters of CCK, its rules, and the known defects that tests can enable.
//!
//! A rule cites the paper that contains it: *short* or *long*. Rules marked *corrected* differ from what the paper
//! prints there; rules marked *added* are missing from both papers. `docs/cck.md` explains both; *recovery 3* and
//! *joining 4* are steps on that page.

use faultline_core::Span;
use faultline_dataflow::partition::RerunOptions;

use crate::machines::{rule_queries, rules};
use crate::placement::ReplicateTo;

/// Parameters of CCK.
#[derive(Clone, Debug)]
pub struct Config {
    /// Time from the start of one checkpoint to the start of the next.
    pub interval: Span,
    /// The partitions that a partition asks to stop before it saves its state.
    pub coordination: Coordination,
    /// Number of replicas of each partition's state, in addition to the copy in the storage of its process.
    pub replicas: u16,
    /// Number of storage servers, if they hold the replicas. Partitions are assigned to them in turn. The federation
    /// has at least as many servers as replicas, even if this number is smaller.
    pub servers: u16,
    /// Where the replicas are stored.
    pub replicate_to: ReplicateTo,
    /// Options for re-execution.
    pub rerun: RerunOptions,
    /// Enabled defects, for tests.
    pub defects: Defects,
}

/// The partitions that a partition asks to stop before it saves its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coordination {
    /// The partitions that send to this partition at any time (long paper).
    #[default]
    Neighbours,
    /// All partitions (short paper): the baseline.
    Global,
}

rules! {
    /// A partition asks all partitions that send to it at any time to stop, not only those from which it awaits a
    /// value (long, figure 4, 2.1; corrected).
    AsksAllSenders, without
        /// A partition asks only those partitions from which it awaits a value, as printed. A sender that is a step
        /// ahead is not drained.
        SendersByNeed;
    /// A partition resumes once every partition to which it sends at any time has sent `Continue` (long, figure 4, 4.2;
    /// corrected).
    AwaitsAllReceivers, without
        /// A partition resumes once every partition that has asked it to stop so far has sent `Continue`, as printed.
        ContinuePerPing;
    /// The previous checkpoint is kept until the next one is valid (long, figure 3, 3.1; corrected).
    KeepsValidSlot, without
        /// A partition deletes the previous checkpoint once the next one is saved, although the next one is not yet
        /// valid.
        OneSlot;
    /// Re-execution begins at the valid checkpoint (long, 3.5; corrected).
    RecordsSinceValid, without
        /// Re-execution begins at the newest checkpoint of the process, valid or not.
        RecordSinceOwnSave;
    /// The senders of the inputs of a re-execution re-execute tasks as well (long, definition 5; missing in short,
    /// figure 4).
    DemandsInputs, without
        /// Only the direct senders to the failed partition re-execute; the senders to those senders do not.
        DirectSendersOnly;
    /// Messages from an earlier recovery are ignored (recovery 1; added).
    IgnoresOlderEpochs, without
        /// Messages from an earlier recovery are accepted in the current one.
        NoRecoveryEpoch;
    /// No checkpoint is taken before all re-execution has ended (recovery 6; added).
    AwaitsRerun, without
        /// A checkpoint is taken while tasks are being re-executed.
        CheckpointDuringRerun;
    /// Values that arrive before their partition is restored, or before it has joined the recovery in which they were
    /// sent, are kept (recovery 3; added).
    KeepsEarlyData, without
        /// Values that arrive before a partition is restored are dropped, even if they were sent in the current
        /// recovery.
        DataNotBuffered;
    /// Every partition demands the values that it lacks, whether or not it has failed (long, definition 3;
    /// corrected).
    DemandsAllLosses, without
        /// Only partitions that were restored in this recovery demand the values that they lost, as printed. If a
        /// second failure interrupts a recovery, values lost in the first failure never arrive.
        LossesOfFailedOnly;
    /// A value is identified by the task that wrote it, not only by its data (added).
    NamesVersions, without
        /// An arriving value is identified by its data alone: whichever version was sent, it counts as the next missing
        /// version.
        ValuesWithoutVersion;
    /// Re-execution keeps its values separate from the partition's state (recovery 5; added).
    RerunsApart, without
        /// Tasks whose values are demanded are re-executed in the partition's own state, which is rolled back to the
        /// checkpoint. Values that have arrived since the checkpoint are lost.
        RerunInPlace;
    /// A process that joins runs no partition before a recovery assigns one to it (joining 4; added).
    JoinersWait, without
        /// A process that joins runs its own partition immediately, although another process still runs it.
        JoinerStartsAtOnce;
    /// A partition that moves home starts from the valid checkpoint (joining 4; added).
    RestoresAtHome, without
        /// A partition that moves home starts from its initial state, and not from the valid checkpoint.
        HomeFromInitialState;
}

rule_queries!(Config);
