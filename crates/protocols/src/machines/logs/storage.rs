//! The inputs that concern a process's storage: its checkpoints, the replicas that it keeps, and segments of its log.

use alloc::collections::BTreeSet;

use faultline_core::{Host, Input, ProcessId, Span, Time};

use super::{LogSegmentNo, Logging, Logs};
use crate::machines::group::{Group, GroupMessage};

/// Consequences of an input that concerns the storage. The protocol must handle them.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Stored {
    /// Peers whose channels can continue, because a segment of the log was read. The protocol then calls
    /// [`Logs::release_segments`].
    pub(crate) peers: BTreeSet<ProcessId>,
    /// Whether a segment that was lost is durable again. A holder's request for it may have been refused, so the part
    /// of the checkpoint in progress must be sent again.
    pub(crate) repeats_part: bool,
}

impl<P: Logging> Logs<P> {
    /// Handles an input that concerns the storage. Ignores other inputs. `retry_every` is the delay before a refused
    /// write is repeated. Afterwards, the group may have [resumed](Group::take_resumed).
    pub(crate) fn storage(
        &mut self,
        group: &mut Group<P>,
        input: Input<P>,
        now: Time,
        retry_every: Span,
        host: &mut dyn Host<P>,
    ) -> Stored {
        let mut stored = Stored::default();
        match input {
            Input::Image { from, image } => match LogSegmentNo::of(image.name) {
                Some(segment) if image.name.owner == group.me => {
                    stored.peers = self.segment_arrived(group, segment, image, host);
                }
                _ => group.image_arrived(from, image, host),
            },
            Input::Persisted(name) => {
                group.persisted(name, host);
                if name.owner == group.me {
                    group.own_part_durable(name, host);
                    stored.repeats_part = self.own_durable(group, name, host);
                }
            }
            Input::PersistFailed(name) => group.write_failed(name, now + retry_every, host),
            Input::Read { name, image } => {
                let is_own = group.read(name, image.as_ref(), host);
                // An image that turns out to be lost while it is read for a holder may also be needed here.
                if is_own || image.is_none() {
                    match LogSegmentNo::of(name) {
                        None => group.own_part_read(name, image, host),
                        Some(segment) if name.owner == group.me => {
                            stored.peers = self.segment_read(group, segment, image, host);
                        }
                        Some(_) => {}
                    }
                }
            }
            Input::Listed(images) => group.listed(images, host),
            Input::Timeout => group.store.writes.retry(now, host),
            _ => {}
        }
        stored
    }

    /// Handles a message of the sub-machine that keeps and restores checkpoints. Afterwards, the group may have
    /// [resumed](Group::take_resumed).
    pub(crate) fn handle_group_message(
        &mut self,
        group: &mut Group<P>,
        from: ProcessId,
        message: GroupMessage,
        host: &mut dyn Host<P>,
    ) {
        match message {
            GroupMessage::Stored(name) => self.confirmed(group, from, name, host),
            GroupMessage::Refused(name) if name.owner == group.me => {
                self.segment_refused(group, from, name, host);
            }
            _ => {}
        }
        group.handle(from, message, host);
    }
}
