//! The stable storage of one process.
//!
//! It performs one action at a time, in the order of the requests. An action that is not complete when its process
//! fails has no effect.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use faultline_core::fault::StorageFault;
use faultline_core::process::{ImageOf, In};
use faultline_core::{Event, ImageName, Process, Span, StorageFate, Time};

use crate::config::StorageCosts;

/// A storage operation in progress.
pub(crate) enum Operation<P: Process> {
    Persist(Arc<ImageOf<P>>),
    Read(ImageName),
    List,
    Delete(ImageName),
    Record { version: u64, bytes: Arc<[u8]> },
}

/// The storage of one process.
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

    /// Submits an operation. Returns the time at which it will be complete.
    pub(crate) fn submit(&mut self, operation: Operation<P>, now: Time, costs: &StorageCosts) -> Time {
        let len = |image: &Arc<ImageOf<P>>| image.len(P::saved_len);
        let (write, bytes) = match &operation {
            Operation::Persist(image) => (true, len(image)),
            Operation::Record { bytes, .. } => (true, bytes.len() as u64),
            Operation::Read(name) => (false, self.images.get(name).map_or(0, len)),
            Operation::List => (false, 0),
            Operation::Delete(_) => (false, 0),
        };
        let mut cost = costs.latency;
        let bandwidth = if write { costs.write_bandwidth } else { costs.read_bandwidth };
        if bandwidth > 0 {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth);
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

    /// Completes the oldest operation. Returns the event for its process.
    pub(crate) fn complete(&mut self) -> Option<In<P>> {
        match self.under_way.pop_front().expect("every completion has an operation") {
            // An image that is already stored needs no space.
            Operation::Persist(image)
                if self.fault == Some(StorageFault::Full) && !self.images.contains_key(&image.name) =>
            {
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
            // The record is small and written in place, so it can be replaced even on a full disk.
            Operation::Record { version, bytes } => {
                self.record = Some(bytes);
                Some(Event::Recorded { version })
            }
        }
    }

    /// Discards the operations in progress and, if the storage is lost, its content.
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

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_conformance::Probe;

    const COSTS: StorageCosts = StorageCosts {
        latency: Span(10),
        write_bandwidth: 1_000_000_000,
        read_bandwidth: 500_000_000,
        fsync: Span(100),
    };

    fn record(len: usize) -> Operation<Probe<false>> {
        Operation::Record { version: 1, bytes: vec![0; len].into() }
    }

    #[test]
    fn operations_are_sequential() {
        let mut storage = Storage::new();
        assert_eq!(storage.submit(record(1000), Time(0), &COSTS), Time(1110));
        assert_eq!(storage.submit(Operation::List, Time(5), &COSTS), Time(1120));
        assert_eq!(storage.submit(record(0), Time(2000), &COSTS), Time(2110), "after an idle period");
    }

    #[test]
    fn an_image_costs_the_state_of_the_application_and_the_messages_of_the_protocol() {
        let mut storage = Storage::<Probe<false>>::new();
        let image = Probe::<false>::image_of(1000, 200);
        let name = image.name;
        assert_eq!(storage.submit(Operation::Persist(Arc::new(image)), Time(0), &COSTS), Time(1310));
        storage.complete();
        let read = storage.submit(Operation::Read(name), Time(2000), &COSTS);
        assert_eq!(read, Time(2000 + 10 + 2400), "half as fast as writes");
    }

    #[test]
    fn slow_storage_delays_writes_but_not_reads() {
        let mut storage = Storage::new();
        storage.set_fault(Some(StorageFault::Slow(Span(5000))));
        assert_eq!(storage.submit(record(0), Time(0), &COSTS), Time(5110));
        assert_eq!(storage.submit(Operation::List, Time(0), &COSTS), Time(5120));
    }

    #[test]
    fn operations_in_progress_at_a_crash_have_no_effect() {
        let mut storage = Storage::new();
        storage.submit(record(7), Time(0), &COSTS);
        storage.submit(record(8), Time(0), &COSTS);
        assert_eq!(storage.complete(), Some(Event::Recorded { version: 1 }));
        storage.crash(Time(50), StorageFate::Kept);
        assert_eq!(storage.record().map(|bytes| bytes.len()), Some(7));
        assert_eq!(
            storage.submit(Operation::List, Time(50), &COSTS),
            Time(60),
            "operations of an ended life delay no others"
        );
        assert_eq!(storage.complete(), Some(Event::Listed(vec![])));
        storage.crash(Time(70), StorageFate::Lost);
        assert_eq!(storage.record(), None);
    }
}
