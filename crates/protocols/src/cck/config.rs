//! Parameters, and what may be switched on that is wrong.

use faultline_core::{Span, defects};
use faultline_dataflow::partition::RerunOptions;

use crate::placement::ReplicateTo;

/// Parameters of CCK.
#[derive(Clone, Debug)]
pub struct Config {
    /// From the beginning of one checkpoint to the next.
    pub interval: Span,
    /// Whom a partition asks before it saves its state.
    pub coordination: Coordination,
    /// Copies of each partition's state beside the one in the storage of its process.
    pub replicas: u16,
    /// Storage servers, if copies are stored there: the partitions are dealt out to them in turn. At least as many as
    /// copies.
    pub servers: u16,
    /// Where they are.
    pub replicate_to: ReplicateTo,
    /// How tasks are executed again.
    pub rerun: RerunOptions,
    /// Rules that are broken on purpose.
    pub defects: Defects,
}

/// Whom a partition asks before it saves its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coordination {
    /// The partitions that ever send to it (the long paper).
    #[default]
    Neighbours,
    /// All partitions (the short paper): the baseline.
    Global,
}

defects! {
    /// A partition asks only those from which it waits for something, as printed. One that is a step ahead is not drained.
    SendersByNeed,
    /// A partition resumes once those have continued that asked it so far, as printed.
    ContinuePerPing,
    /// The checkpoint before is deleted when the next one is saved, and not when that is valid.
    OneSlot,
    /// What is executed again begins at the newest checkpoint of the process, valid or not.
    RecordSinceOwnSave,
    /// Only those execute again that sent to the failed partition, and not those that sent to them.
    DirectSendersOnly,
    /// Messages of an earlier recovery count in the present one.
    NoRecoveryEpoch,
    /// A checkpoint is taken while tasks are executed again.
    CheckpointDuringRerun,
    /// Values that arrive before a partition is restored are dropped, also if they were sent in the present recovery.
    DataNotBuffered,
    /// Only partitions that were restored in this recovery demand what they lost, as printed. What an earlier failure took is
    /// lost for good if a second failure interrupts the recovery.
    LossesOfFailedOnly,
    /// A value is known by the data that it is a version of: one that arrives is taken for the next version that is missing.
    ValuesWithoutVersion,
    /// What is demanded is executed again in the partition's own state, which returns to the checkpoint. What has arrived since
    /// then is lost.
    RerunInPlace,
}
