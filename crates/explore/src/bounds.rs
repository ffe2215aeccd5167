//! What is explored.

use faultline_core::StorageFate;

/// The bounds of an exploration. Within them, it is exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Failures of processes in a run, at most.
    pub crashes: u32,
    /// Deadlines that come before the federation is quiet, at most.
    pub timers: u32,
    /// Packets, writes and other things that are overtaken in a run, at most. All others happen in the order in which they
    /// were requested. `None` for any number: every order is explored.
    pub overtakings: Option<u32>,
    /// What a failure does to the storage of its process.
    pub storage: Storage,
    /// Distinct states after which the exploration stops.
    pub states: u64,
}

/// What a failure does to the storage of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// The next life finds it unchanged.
    Kept,
    /// It is lost.
    Lost,
    /// Either.
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
