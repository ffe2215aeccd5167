//! What processes say to each other.

use alloc::sync::Arc;

use faultline_core::{ImageName, ProcessId, Theft};
use serde::{Deserialize, Serialize};

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// A holder to an owner: this image is durable here.
    Durable(ImageName),
    /// A process that restores, or absorbs another one: which is the newest image of this owner?
    Fetch(ProcessId),
    /// There is none of this owner.
    Absent(ProcessId),
    /// The sender answers for these processes from now on. What was sent to them before may be lost.
    Here(Arc<[ProcessId]>),
    /// What has become of this loan?
    Query(Theft),
    /// It is still asked for.
    Want(Theft),
    /// The thief neither has it nor will.
    Never(Theft),
    /// A holder whose storage was lost asks an owner for its image.
    Refill,
    /// There is no image to hold as yet.
    Nothing,
}

/// What a listing says of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The processes that are gone and whose graphs are part of this one.
    pub absorbed: Arc<[ProcessId]>,
}
