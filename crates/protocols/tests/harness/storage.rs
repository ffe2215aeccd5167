//! The storage of one process: operations complete individually, in the order of the requests, when the test
//! permits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use faultline_core::process::{ImageOf, In};
use faultline_core::{Event, ImageName, Process, StorageFate};

pub(crate) enum Operation<N: Process> {
    Persist(Arc<ImageOf<N>>),
    Read(ImageName),
    List,
    Delete(ImageName),
    Record { version: u64, bytes: Arc<[u8]> },
}

pub(crate) struct Storage<N: Process> {
    pub(crate) images: BTreeMap<ImageName, Arc<ImageOf<N>>>,
    pub(crate) record: Option<Arc<[u8]>>,
    pending: VecDeque<Operation<N>>,
    /// Whether operations are held back instead of completing.
    pub(crate) held: bool,
    /// Whether writes of images fail.
    pub(crate) full: bool,
    /// Images that can no longer be read.
    pub(crate) corrupt: BTreeSet<ImageName>,
}

impl<N: Process> Storage<N> {
    pub(crate) fn new() -> Storage<N> {
        Storage {
            images: BTreeMap::new(),
            record: None,
            pending: VecDeque::new(),
            held: false,
            full: false,
            corrupt: BTreeSet::new(),
        }
    }

    pub(crate) fn submit(&mut self, operation: Operation<N>) {
        self.pending.push_back(operation);
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.held && !self.pending.is_empty()
    }

    /// Completes the oldest operation. Returns the resulting event for the process; `None` after a deletion.
    pub(crate) fn complete(&mut self) -> Option<In<N>> {
        match self.pending.pop_front().expect("a completion belongs to an operation") {
            // An image that is already stored needs no space.
            Operation::Persist(image) if self.full && !self.images.contains_key(&image.name) => {
                Some(Event::PersistFailed(image.name))
            }
            Operation::Persist(image) => {
                let name = image.name;
                self.corrupt.remove(&name);
                self.images.insert(name, image);
                Some(Event::Persisted(name))
            }
            Operation::Read(name) => {
                let image = self.images.get(&name).filter(|_| !self.corrupt.contains(&name));
                Some(Event::Read { name, image: image.cloned() })
            }
            Operation::List => {
                let heads = self.images.iter().map(|(&name, image)| (name, image.head.clone()));
                Some(Event::Listed(heads.collect()))
            }
            Operation::Delete(name) => {
                self.images.remove(&name);
                None
            }
            Operation::Record { version, bytes } => {
                self.record = Some(bytes);
                Some(Event::Recorded { version })
            }
        }
    }

    /// Discards the operations that are incomplete when the process fails and, if `fate` is `Lost`, everything stored.
    pub(crate) fn crash(&mut self, fate: StorageFate) {
        self.pending.clear();
        self.held = false;
        if fate == StorageFate::Lost {
            self.images.clear();
            self.corrupt.clear();
            self.record = None;
        }
    }
}
