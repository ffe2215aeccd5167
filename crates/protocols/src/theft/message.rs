//! What processes say to each other.

use alloc::sync::Arc;

use faultline_core::{ImageName, ProcessId, Theft};
use serde::{Deserialize, Serialize};

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// A holder to an owner: this image is durable here, or a newer checkpoint is.
    Durable(ImageName),
    /// A process that restores, or absorbs another one: what is the newest state of this owner?
    Fetch(ProcessId),
    /// These images of this owner make up the newest state here; they are sent, too. None, if there is none.
    Holds(ProcessId, Arc<[ImageName]>),
    /// The sender answers for these processes from now on. What was sent to them before may be lost.
    Here(Arc<[ProcessId]>),
    /// What has become of this loan?
    Query(Theft),
    /// It is still asked for.
    Want(Theft),
    /// The thief neither has it nor will.
    Never(Theft),
    /// A holder whose storage was lost asks an owner for its state.
    Refill,
    /// There is nothing to hold as yet.
    Nothing,
}

/// What a listing says of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The processes that are gone and whose graphs are part of this one.
    pub absorbed: Arc<[ProcessId]>,
}
