//! Images in the storage of a process: those of its own partitions, and replicas from others.
//!
//! Unlike owners in groups, a partition's process does not name what its holders should keep: each image states the
//! newest valid checkpoint, and all other older images of the partition are removed once the image is durable.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{ImageName, Position, ProcessId, Span, Time, To};
use faultline_dataflow::partition::PartitionHost;

use super::Cck;
use super::message::{Head, ImageOf, Message};
use crate::machines::{Reads, Writes};

/// The images in the storage of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredImages {
    /// Whether the storage has been listed. If so, `valid` covers its images.
    pub(super) is_listed: bool,
    /// The newest checkpoint that is known to be valid, according to messages and stored images.
    pub(super) valid: Position,
    names: BTreeSet<ImageName>,
    writes: Writes<Cck>,
    /// The processes that requested the writes in progress.
    writers: BTreeMap<ImageName, ProcessId>,
    /// Reads for other processes.
    reads: Reads<ProcessId>,
}

/// Delay before a process repeats a write that its storage refused.
const RETRY_AFTER: Span = Span::from_millis(50);

impl StoredImages {
    pub(super) fn listed(&mut self, images: Vec<(ImageName, Arc<Head>)>) {
        self.is_listed = true;
        for (name, head) in images {
            self.names.insert(name);
            self.valid = self.valid.max(head.valid);
        }
    }

    /// Writes an image for `by`, which is informed once the image is durable.
    pub(super) fn write(&mut self, image: Arc<ImageOf>, by: ProcessId, host: &mut dyn PartitionHost<Cck>) {
        self.valid = self.valid.max(image.head.valid);
        self.writers.insert(image.name, by);
        self.writes.write(image, host);
    }

    /// Schedules another write of an image that the storage refused.
    pub(super) fn refused(&mut self, name: ImageName, now: Time) {
        self.writes.refused(name, now + RETRY_AFTER);
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.writes.next_deadline()
    }

    /// Repeats the writes that are due.
    pub(super) fn write_again(&mut self, now: Time, host: &mut dyn PartitionHost<Cck>) {
        self.writes.retry(now, host);
    }

    /// Records that an image is durable, and deletes its owner's older images except the valid one, which is kept only
    /// if `keeps_valid` is `true`. Returns the process that requested the write.
    pub(super) fn written(
        &mut self,
        name: ImageName,
        keeps_valid: bool,
        host: &mut dyn PartitionHost<Cck>,
    ) -> Option<ProcessId> {
        let valid = self.writes.finished(name)?.head.valid;
        self.names.insert(name);
        let is_older = |it: &ImageName| it.owner == name.owner && it.position() < name.position();
        let is_valid = |it: &ImageName| it.position() == valid && keeps_valid;
        let unneeded: Vec<ImageName> =
            self.names.iter().copied().filter(|it| is_older(it) && !is_valid(it)).collect();
        for it in unneeded {
            self.names.remove(&it);
            host.delete(it);
        }
        self.writers.remove(&name)
    }

    /// Reads an image for another process.
    pub(super) fn fetch(&mut self, name: ImageName, by: ProcessId, host: &mut dyn PartitionHost<Cck>) {
        self.reads.request(name, by, host);
    }

    /// Handles an image that was read from storage: sends it to the processes that asked for it.
    pub(super) fn read(
        &mut self,
        name: ImageName,
        image: Option<&Arc<ImageOf>>,
        host: &mut dyn PartitionHost<Cck>,
    ) {
        for by in self.reads.finished(name) {
            match image {
                Some(image) => host.send_image(by, image.clone()),
                None => host.control(To::One(by), Message::Absent(name)),
            }
        }
    }
}
