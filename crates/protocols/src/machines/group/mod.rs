//! A group of processes that rolls back together, to its newest complete checkpoint, whenever one of its members
//! fails.
//!
//! The protocol decides when and how a checkpoint is taken, and writes this process's part of it
//! ([`Replication`](super::Replication)). The sub-machine does the rest: it keeps the parts of this process and the
//! replicas for others, removes parts that are no longer needed, and after a failure agrees with the other members on
//! what to restore, fetches it, and determines when to resume.
//!
//! | file | contents |
//! | --- | --- |
//! | `view` | numbers derived from the membership: incarnations and epochs |
//! | `member` | a member: the checkpoint that it keeps, and the inputs that concern its storage |
//! | `store` | this process's storage: its parts, and the replicas that it keeps for others |
//! | `restore` | agreeing on what to restore, and restoring it |
//! | `server` | a process that only keeps replicas |
//! | `message` | the messages that members, holders and servers exchange |
//!
//! Guarantees to the protocol:
//!
//! * After [`Group::must_freeze`] has returned `true`, the protocol discards the checkpoint in progress, holds its
//!   application, and calls [`Group::freeze`]. The group then resumes exactly once, after the last known failure.
//! * [`Group::take_resumed`] returns the target to every member once every member has its part, every holder has its
//!   replica of that part, and no member has failed in the meantime. The target is the newest checkpoint whose parts
//!   are all still available, whether or not it was committed. If there is none and the group had not acted, the target
//!   is the initial state.
//! * A group that has lost every complete checkpoint is declared unrecoverable, with a list of the missing parts.

mod member;
mod message;
mod restore;
mod server;
mod store;
#[cfg(test)]
mod tests;
mod view;

use alloc::vec::Vec;

use faultline_core::{ImageName, ProcessId, ProtocolTypes};

pub(crate) use member::{Group, GroupParameters};
pub use message::{GroupMessage, RestoreNo};
pub(crate) use restore::Resumed;
pub(crate) use server::Server;
pub(crate) use view::View;

/// A protocol whose groups roll back together after a failure.
pub(crate) trait Grouped: ProtocolTypes<Control: From<GroupMessage>, Head: Default> {
    /// Returns the images, other than parts, that must be stored wherever this part of a checkpoint is stored.
    fn companions(_owner: ProcessId, _head: &Self::Head) -> Vec<ImageName> {
        Vec::new()
    }

    /// Returns whether an image of the same incarnation, other than a part, was written before this part. No
    /// process needs such an image any longer, unless it is one of the part's companions.
    fn is_covered(_image: ImageName, _by: &Self::Head) -> bool {
        false
    }
}

/// The rules of the sub-machine. Tests can disable each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A part is written to storage only after its companions are durable there.
    pub(crate) companions_first: bool,
    /// If a part is retained, its companions are retained, too.
    pub(crate) keeps_companions: bool,
    /// The newest complete checkpoint is restored, not the oldest.
    pub(crate) restores_newest: bool,
}

impl Rules {
    /// All rules are obeyed.
    pub(crate) const ALL: Rules =
        Rules { companions_first: true, keeps_companions: true, restores_newest: true };
}
