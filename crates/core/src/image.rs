//! Checkpoints as they reach stable storage: one image is one process's part of one checkpoint.

use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::fact::Witness;
use crate::id::{Attempt, Incarnation, Position, ProcessId, Sn};

/// Names one process's part of one attempt at one checkpoint, or something [else](ImageName::is_part). Unique for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ImageName {
    /// Whose state it is, which need not be who stores it.
    pub owner: ProcessId,
    /// Incarnation of the owner's cluster.
    pub incarnation: Incarnation,
    /// The checkpoint.
    pub sn: Sn,
    /// The try at it.
    pub attempt: Attempt,
}

impl ImageName {
    /// The checkpoint's point in its cluster's history.
    pub const fn position(self) -> Position {
        Position { incarnation: self.incarnation, sn: self.sn }
    }

    /// Whether it is a part of a checkpoint. Checkpoints are numbered from 1; under the number 0 a protocol may put aside
    /// what is no state of an application. No fact is stated of that.
    pub const fn is_part(self) -> bool {
        self.sn.0 > 0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.owner, self.position())?;
        if self.attempt.0 > 1 {
            write!(f, " (attempt {})", self.attempt.0)?;
        }
        Ok(())
    }
}

/// A piece of application state, opaque to protocols. Shared between images that hold the same piece.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chunk {
    /// A length without bytes, for simulations in which only the size counts.
    Virtual(u64),
    /// The bytes.
    Bytes(Arc<[u8]>),
}

impl Chunk {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Chunk::Virtual(len) => *len,
            Chunk::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// What the composite saves around the application: invisible to the protocol, which only carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The evidence of what the state contains.
    pub witness: Witness,
    /// Next message number of each channel, by receiver, ascending.
    pub channels: Arc<[(ProcessId, u32)]>,
    /// The application's state.
    pub application: Arc<[Chunk]>,
}

impl Snapshot {
    /// Bytes of application state.
    pub fn len(&self) -> u64 {
        self.application.iter().map(Chunk::len).sum()
    }

    /// Whether the application has no state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One part of a checkpoint: typed inside the process, bytes at the driver's edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image<H, V> {
    /// Its name.
    pub name: ImageName,
    /// The little that a listing of a storage returns: what recovery needs to choose among images without reading them.
    pub head: Arc<H>,
    /// The rest of the protocol's saved state.
    pub saved: Arc<V>,
    /// The application with its evidence.
    pub snapshot: Snapshot,
}
