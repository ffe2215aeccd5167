//! The inputs about stored images, which all protocols for task-based programs handle.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::process::{In, Packet};
use faultline_core::{Composite, Event, Fact, FactKind, Image, ImageName, ProcessId, ProtocolTypes};

/// An input about stored images, or about the record.
#[derive(Clone, Debug)]
pub enum StorageInput<P: ProtocolTypes> {
    /// An image arrived.
    Image {
        /// The process that sent the image.
        from: ProcessId,
        /// The image that arrived.
        image: Arc<Image<P::Head, P::Saved>>,
    },
    /// An image is durable in this process's storage.
    Persisted(ImageName),
    /// An image could not be written to this process's storage.
    PersistFailed(ImageName),
    /// Answers [`Machine::read`](faultline_core::Machine::read).
    Read {
        /// The name of the image that was requested.
        name: ImageName,
        /// The image, if it exists and is intact.
        image: Option<Arc<Image<P::Head, P::Saved>>>,
    },
    /// Answers [`Machine::list`](faultline_core::Machine::list).
    Listed(Vec<(ImageName, Arc<P::Head>)>),
    /// A record is durable.
    Recorded {
        /// The version of the record.
        version: u64,
    },
}

impl<P: ProtocolTypes> StorageInput<P> {
    /// Returns the input that an event leads to, after reporting that a part of a checkpoint is durable or damaged. Returns
    /// `None` if the event does not concern stored images.
    pub(crate) fn of<C: Composite<Protocol = P>>(
        event: In<C::Process>,
        process: &mut C,
    ) -> Option<StorageInput<P>> {
        Some(match event {
            Event::Packet { from, packet: Packet::Image(image) } => StorageInput::Image { from, image },
            Event::Persisted(name) => {
                if name.is_part() {
                    process.fact(FactKind::Durable, || Fact::Durable(name));
                }
                StorageInput::Persisted(name)
            }
            Event::PersistFailed(name) => StorageInput::PersistFailed(name),
            Event::Read { name, image } => {
                if image.is_none() && name.is_part() {
                    process.fact(FactKind::Damaged, || Fact::Damaged(name));
                }
                StorageInput::Read { name, image }
            }
            Event::Listed(images) => StorageInput::Listed(images),
            Event::Recorded { version } => StorageInput::Recorded { version },
            _ => return None,
        })
    }
}
