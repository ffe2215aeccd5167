//! The stable storage of one process.
//!
//! It does one thing at a time, in the order asked for. What is not complete when its process dies has not happened.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use faultline_core::fault::StorageFault;
use faultline_core::process::{ImageOf, In};
use faultline_core::{Event, ImageName, Process, Span, StorageFate, Time};

use crate::config::StorageCosts;

/// An action of the storage that is under way.
pub(crate) enum Operation<P: Process> {
    Persist(Arc<ImageOf<P>>),
    Read(ImageName),
    List,
    Delete(ImageName),
    Record { version: u64, bytes: Arc<[u8]> },
}

/// One storage.
pub(crate) struct Storage<P: Process> {
    images: BTreeMap<ImageName, Arc<ImageOf<P>>>,
    record: Option<Arc<[u8]>>,
    busy_until: Time,
    under_way: VecDeque<Operation<P>>,
    fault: Option<StorageFault>,
}

impl<P: Process> Storage<P> {
    pub(crate) fn new() -> Storage<P> {
        Storage {
            images: BTreeMap::new(),
            record: None,
            busy_until: Time::ZERO,
            under_way: VecDeque::new(),
            fault: None,
        }
    }

    /// Takes on an operation; when it will be complete.
    pub(crate) fn submit(&mut self, operation: Operation<P>, now: Time, costs: &StorageCosts) -> Time {
        let (write, bytes) = match &operation {
            Operation::Persist(image) => (true, image.snapshot.len()),
            Operation::Record { bytes, .. } => (true, bytes.len() as u64),
            Operation::Read(name) => (false, self.images.get(name).map_or(0, |image| image.snapshot.len())),
            Operation::List => (false, 0),
            Operation::Delete(_) => (false, 0),
        };
        let mut cost = costs.latency;
        if costs.bandwidth > 0 {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(costs.bandwidth);
            cost = cost + Span(nanos.try_into().unwrap_or(u64::MAX));
        }
        if write {
            cost = cost + costs.fsync;
            if let Some(StorageFault::Slow(more)) = self.fault {
                cost = cost + more;
            }
        }
        self.under_way.push_back(operation);
        self.busy_until = self.busy_until.max(now) + cost;
        self.busy_until
    }

    /// Completes the oldest operation; what its process is told.
    pub(crate) fn complete(&mut self) -> Option<In<P>> {
        match self.under_way.pop_front().expect("a completion belongs to an operation") {
            Operation::Persist(image) if self.fault == Some(StorageFault::Full) => {
                self.images.remove(&image.name);
                Some(Event::PersistFailed(image.name))
            }
            Operation::Persist(image) => {
                let name = image.name;
                self.images.insert(name, image);
                Some(Event::Persisted(name))
            }
            Operation::Read(name) => {
                let intact = self.fault != Some(StorageFault::Corrupt);
                Some(Event::Read { name, image: self.images.get(&name).filter(|_| intact).cloned() })
            }
            Operation::List => {
                let heads = self.images.iter().map(|(&name, image)| (name, image.head.clone()));
                Some(Event::Listed(heads.collect()))
            }
            Operation::Delete(name) => {
                self.images.remove(&name);
                None
            }
            // The record is small and written in place: a full disk does not keep it from being replaced.
            Operation::Record { version, bytes } => {
                self.record = Some(bytes);
                Some(Event::Recorded { version })
            }
        }
    }

    /// The process has died.
    pub(crate) fn crash(&mut self, now: Time, fate: StorageFate) {
        self.under_way.clear();
        self.busy_until = now;
        if fate == StorageFate::Lost {
            self.images.clear();
            self.record = None;
        }
    }

    pub(crate) fn set_fault(&mut self, fault: Option<StorageFault>) {
        self.fault = fault;
    }

    pub(crate) fn record(&self) -> Option<Arc<[u8]>> {
        self.record.clone()
    }

    pub(crate) fn images(&self) -> impl Iterator<Item = &Arc<ImageOf<P>>> {
        self.images.values()
    }
}
