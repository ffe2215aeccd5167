//! The bounds of an exploration.

use faultline_core::StorageFate;

/// The bounds of an exploration. Within them, the exploration is exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The largest number of process failures in a run.
    pub crashes: u32,
    /// The largest number of deadlines that expire in a run before the federation is quiet.
    pub timers: u32,
    /// The largest number of steps that are overtaken in a run. All other steps happen in the order in which they were
    /// requested. `None` means any number: every order is explored.
    pub overtakings: Option<u32>,
    /// The fate of the storage of a failed process.
    pub storage: Storage,
    /// Whether failures of ranks may also be permanent, in which case other processes take over their work. Only
    /// protocols for task-based programs survive this.
    pub permanent: bool,
    /// The number of distinct states after which the exploration stops.
    pub states: u64,
}

/// The fate of the storage of a failed process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// The next life finds the storage unchanged.
    Kept,
    /// The storage is lost.
    Lost,
    /// Both fates are explored.
    #[default]
    Any,
}

impl Storage {
    pub(crate) fn fates(self) -> &'static [StorageFate] {
        match self {
            Storage::Kept => &[StorageFate::Kept],
            Storage::Lost => &[StorageFate::Lost],
            Storage::Any => &[StorageFate::Kept, StorageFate::Lost],
        }
    }
}
