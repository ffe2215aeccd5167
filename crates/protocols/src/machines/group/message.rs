//! Messages between the processes of a group, and between them and the holders of their parts.

use alloc::sync::Arc;

use faultline_core::{GroupId, ImageName, Incarnation, MembershipVersion, ProcessId};
use serde::{Deserialize, Serialize};

use crate::machines::Checkpoint;

/// A group's attempt to agree on what to restore. Ordered by incarnation, then by attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RestoreNo {
    /// The incarnation that the group is about to begin.
    pub incarnation: Incarnation,
    /// Number of the attempt. A new one begins if a holder outside the group begins a new life, or if a part is
    /// unavailable.
    pub attempt: u32,
}

/// A message of the sub-machine that keeps a group's checkpoints and restores them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GroupMessage {
    // Restoring a group.
    /// From the coordinator to the members: freeze, and report the parts that you have, once you know the given
    /// membership.
    Gather {
        /// The number of the restore attempt.
        restore: RestoreNo,
        /// The membership that the message assumes. A message to a life that its sender does not know is lost.
        membership: MembershipVersion,
    },
    /// From the coordinator to holders: report what you hold for this group.
    Inquire {
        /// The attempt to restore.
        restore: RestoreNo,
        /// The recovering group.
        group: GroupId,
    },
    /// Answers [`GroupMessage::Gather`] and [`GroupMessage::Inquire`]: the group's parts that are durable at the
    /// sender.
    Stock {
        /// The attempt to restore.
        restore: RestoreNo,
        /// Names of the parts.
        parts: Arc<[ImageName]>,
    },
    /// From the coordinator: prepare this target; `None` is the initial state.
    Restore {
        /// The attempt to restore.
        restore: RestoreNo,
        /// The checkpoint to restore.
        target: Option<Checkpoint>,
        /// Where to fetch the parts that their owners lack.
        sources: Arc<[(ImageName, ProcessId)]>,
    },
    /// From a member: its part is durable in its own storage and at its holders.
    Ready(RestoreNo),
    /// From a member: its part is unavailable.
    Vanished(RestoreNo),
    /// From the coordinator: resume.
    Resume(RestoreNo),

    // Replicas.
    /// From a holder: this replica is durable.
    Stored(ImageName),
    /// Requests this image.
    Fetch(ImageName),
    /// The sender does not have this image.
    Refused(ImageName),
    /// From an owner to a holder: the part that the holder should keep for the owner. Nothing older is needed.
    Hold {
        /// Incarnation of the owner's group.
        incarnation: Incarnation,
        /// Name of the part; `None` if there is none yet.
        name: Option<ImageName>,
    },
    /// From an owner to a holder: this part is about to be restored; confirm once you hold it. Older parts must stay
    /// until every part is equally safe, since the group may have to roll back to them.
    Secure(ImageName),
}
