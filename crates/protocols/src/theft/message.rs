//! The messages of the protocol.

use alloc::sync::Arc;

use faultline_core::{ImageName, ProcessId, Theft};
use serde::{Deserialize, Serialize};

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// From a holder to an owner: this image, or a newer checkpoint, is durable at the holder.
    Durable(ImageName),
    /// From a process that restores or absorbs a state: requests the newest state of this owner. The sender already
    /// has the state up to this image.
    Fetch(ProcessId, Option<ImageName>),
    /// The sender has these images of this owner beyond the one that the request names, and sends them as well. The
    /// list is empty if the sender has none.
    Holds(ProcessId, Arc<[ImageName]>),
    /// The sender now answers for these processes. Messages sent to them earlier may be lost.
    Here(Arc<[ProcessId]>),
    /// Asks about the state of this loan.
    Query(Theft),
    /// The sender still wants the task.
    Want(Theft),
    /// The thief neither has the task nor will have it.
    Never(Theft),
    /// From a holder whose storage was lost: asks an owner for its state.
    Refill,
    /// The owner has no state to store yet.
    Nothing,
}

/// The header of an image, which listings of the storage return.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The permanently failed processes whose graphs are part of the graph in this image.
    pub absorbed: Arc<[ProcessId]>,
}
