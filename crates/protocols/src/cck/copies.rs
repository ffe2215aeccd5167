//! Images in the storage of a process: of the partitions that it runs, and copies of others'.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{ImageName, Position, ProcessId};
use faultline_dataflow::partition::PartitionHost;

use super::Cck;
use super::message::{Head, ImageOf, Message};

/// What the storage of a process holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    /// The storage has been listed, so that `valid` covers it.
    pub(super) is_listed: bool,
    /// The newest checkpoint that is known to be valid, by anything that was heard or is stored here.
    pub(super) valid: Position,
    names: BTreeSet<ImageName>,
    /// Being written, for the process that asked for it; what was valid then.
    writing: BTreeMap<ImageName, (ProcessId, Position)>,
    /// Being read, for processes that look for it.
    asked: Vec<(ImageName, ProcessId)>,
}

impl Copies {
    pub(super) fn listed(&mut self, images: Vec<(ImageName, Arc<Head>)>) {
        self.is_listed = true;
        for (name, head) in images {
            self.names.insert(name);
            self.valid = self.valid.max(head.valid);
        }
    }

    /// Writes an image for `by`, which is told when it is durable.
    pub(super) fn write(&mut self, image: Arc<ImageOf>, by: ProcessId, host: &mut dyn PartitionHost<Cck>) {
        self.valid = self.valid.max(image.head.valid);
        self.writing.insert(image.name, (by, image.head.valid));
        host.persist(image);
    }

    /// An image is durable: for whom. Of its owner's older images only the valid one is needed.
    pub(super) fn written(
        &mut self,
        name: ImageName,
        is_one_slot: bool,
        host: &mut dyn PartitionHost<Cck>,
    ) -> Option<ProcessId> {
        let (by, valid) = self.writing.remove(&name)?;
        self.names.insert(name);
        let is_older = |it: &ImageName| it.owner == name.owner && it.position() < name.position();
        let is_valid = |it: &ImageName| it.position() == valid && !is_one_slot;
        let unneeded: Vec<ImageName> =
            self.names.iter().copied().filter(|it| is_older(it) && !is_valid(it)).collect();
        for it in unneeded {
            self.names.remove(&it);
            host.delete(it);
        }
        Some(by)
    }

    /// A process looks for an image.
    pub(super) fn fetch(&mut self, name: ImageName, by: ProcessId, host: &mut dyn PartitionHost<Cck>) {
        self.asked.push((name, by));
        host.read(name);
    }

    /// An image was read: those that look for it get it.
    pub(super) fn read(
        &mut self,
        me: ProcessId,
        name: ImageName,
        image: Option<&Arc<ImageOf>>,
        host: &mut dyn PartitionHost<Cck>,
    ) {
        for (_, by) in self.asked.extract_if(.., |it| it.0 == name) {
            match image {
                Some(image) => host.send_image(by, image.clone()),
                None => host.tell(me, by, Message::Absent(name)),
            }
        }
    }
}
