//! Stable storage of one node: a worker thread in front of a [`store::Store`].
//!
//! Requests are processed in order, so that a listing reflects every earlier write, and completions arrive in the same
//! order. Emulated costs of a request (latency, limited write bandwidth, injected slowness) take real time.

mod files;
mod slots;
mod store;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc as queue};
use std::thread;
use std::time::Duration;

use faultline_core::fault::StorageFault;
use faultline_core::process::{ImageOf, In};
use faultline_core::{Event, ImageName, Life, Process, Span, Time};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::clock::{Clock, pause};
pub(crate) use store::{DurabilityLog, StoreError};
use store::{Opened, Store};

/// The medium on which a node stores images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageMedium {
    /// In memory: lost with the process.
    Memory,
    /// In files, with fsync.
    #[default]
    Disk,
}

/// Options of a node's storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageOptions {
    /// The medium of the storage.
    pub kind: StorageMedium,
    /// Limit on writes, in bytes per second; 0 means unlimited.
    pub write_bandwidth: u64,
    /// Limit on reads, in bytes per second; 0 means unlimited.
    pub read_bandwidth: u64,
    /// Latency of a write or a read, which takes at least this time plus the transfer time at its bandwidth.
    pub latency: Span,
}

/// Time without a request after which the storage prepares files for later writes.
const IDLE: Duration = Duration::from_millis(20);

/// A request to the storage.
pub(crate) enum Request<P: Process> {
    Persist(Arc<ImageOf<P>>),
    Read(ImageName),
    List,
    Delete(ImageName),
    Record {
        version: u64,
        bytes: Arc<[u8]>,
    },
    /// A record has been reported durable, so older records are no longer needed.
    Reported {
        version: u64,
    },
    Misbehave(Option<StorageFault>),
}

/// The storage as the engine sees it.
pub(crate) struct Storage<P: Process> {
    requests: queue::Sender<Request<P>>,
    /// Journal of everything reported durable. Written by the engine, which makes the reports.
    pub(crate) journal: DurabilityLog,
    /// The newest record of the earlier lives, if any.
    pub(crate) record: Option<Arc<[u8]>>,
}

impl<P: Process + 'static> Storage<P> {
    /// Opens the storage in `dir` for `life`, and removes everything that was not reported to an earlier life as
    /// durable. Completions go to `done`, as does an error after which the process cannot continue.
    pub(crate) fn open(
        dir: PathBuf,
        life: Life,
        options: StorageOptions,
        clock: Clock,
        done: impl Fn(Result<In<P>, StoreError>) + Send + 'static,
    ) -> Result<Storage<P>, StoreError> {
        let Opened { store, journal, record } = match options.kind {
            StorageMedium::Memory => Store::in_memory(),
            StorageMedium::Disk => Store::on_disk(dir, life)?,
        };
        let (requests, inbox) = queue::channel();
        let worker = Worker::<P> { store, clock, options, fault: None, done: Box::new(done) };
        thread::Builder::new()
            .name("storage".into())
            .spawn(move || worker.work(inbox))
            .map_err(StoreError::Thread)?;
        Ok(Storage { requests, journal, record })
    }

    /// Submits a request.
    pub(crate) fn ask(&self, request: Request<P>) {
        if self.requests.send(request).is_err() {
            panic!("the storage worker ended before the engine");
        }
    }
}

/// Checks that the storage of an earlier life still exists.
pub(crate) fn require(dir: &Path, options: StorageOptions) -> Result<(), StoreError> {
    match options.kind {
        StorageMedium::Disk if !store::exists(dir) => Err(StoreError::Gone { path: dir.to_owned() }),
        _ => Ok(()),
    }
}

struct Worker<P: Process> {
    store: Store<P::Head, P::Saved>,
    clock: Clock,
    options: StorageOptions,
    fault: Option<StorageFault>,
    done: Box<dyn Fn(Result<In<P>, StoreError>) + Send>,
}

impl<P: Process> Worker<P> {
    fn work(mut self, inbox: queue::Receiver<Request<P>>) {
        while let Some(request) = self.next(&inbox) {
            if let Some(done) = self.perform(request).transpose() {
                (self.done)(done);
            }
        }
    }

    /// Waits for the next request, and prepares files for later writes if none arrives for a while. Returns `None`
    /// once all senders are closed.
    fn next(&mut self, inbox: &queue::Receiver<Request<P>>) -> Option<Request<P>> {
        while self.fault.is_none() && self.store.wants_preparation() {
            match inbox.recv_timeout(IDLE) {
                Ok(request) => return Some(request),
                Err(queue::RecvTimeoutError::Disconnected) => return None,
                Err(queue::RecvTimeoutError::Timeout) => {
                    if let Err(error) = self.store.prepare() {
                        warn!(%error, "cannot prepare for later writes, which will take longer");
                    }
                }
            }
        }
        inbox.recv().ok()
    }

    fn perform(&mut self, request: Request<P>) -> Result<Option<In<P>>, StoreError> {
        Ok(match request {
            Request::Persist(image) => {
                let name = image.name;
                let bytes = image.len(P::saved_len);
                Some(match self.write(bytes, |store| store.persist(image)) {
                    Ok(()) => Event::Persisted(name),
                    // This failure was not injected, and must not pass for one: the process ends with its reason.
                    Err(error) if self.fault.is_none() => return Err(error),
                    // The image was already stored, and is still intact.
                    Err(_) if self.store.read(name, false).is_ok_and(|it| it.is_some()) => {
                        Event::Persisted(name)
                    }
                    Err(error) => {
                        warn!(%name, %error, "cannot write an image");
                        if let Err(error) = self.store.delete(name) {
                            warn!(%name, %error, "cannot remove an image");
                        }
                        Event::PersistFailed(name)
                    }
                })
            }
            Request::Read(name) => {
                let begin = self.clock.now();
                let corrupt = self.fault == Some(StorageFault::Corrupt);
                let image = match self.store.read(name, corrupt) {
                    Ok(image) => image,
                    // The image may be intact. It must not pass for one that is lost.
                    Err(error @ StoreError::Read { .. }) => return Err(error),
                    Err(error) => {
                        warn!(%name, %error, "an image cannot be read back");
                        None
                    }
                };
                let bytes = image.as_ref().map_or(0, |image| image.len(P::saved_len));
                self.last(begin, bytes, self.options.read_bandwidth);
                Some(Event::Read { name, image })
            }
            Request::List => Some(Event::Listed(self.store.list())),
            Request::Delete(name) => {
                if let Err(error) = self.store.delete(name) {
                    warn!(%name, %error, "cannot remove an image");
                }
                None
            }
            Request::Record { version, bytes } => {
                // A record has only a few bytes, and even a full disk has space for them. There is no event
                // that could report a failure, and a process cannot continue without its record.
                let fault = self.fault.take_if(|fault| *fault == StorageFault::Full);
                let written = self.write(bytes.len() as u64, |store| store.record(version, &bytes));
                self.fault = self.fault.take().or(fault);
                match written {
                    Ok(()) => Some(Event::Recorded { version }),
                    Err(error) => return Err(error),
                }
            }
            Request::Reported { version } => {
                if let Err(error) = self.store.forget_records_before(version) {
                    warn!(%error, "cannot remove an old record");
                }
                None
            }
            Request::Misbehave(fault) => {
                self.fault = fault;
                None
            }
        })
    }

    /// Writes, then waits for as long as the latency, the limited bandwidth and any injected slowness require.
    fn write(
        &mut self,
        bytes: u64,
        write: impl FnOnce(&mut Store<P::Head, P::Saved>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if self.fault == Some(StorageFault::Full) {
            return Err(StoreError::Write {
                what: "to storage that a fault has filled".into(),
                source: io::ErrorKind::StorageFull.into(),
            });
        }
        let begin = self.clock.now();
        write(&mut self.store)?;
        self.last(begin, bytes, self.options.write_bandwidth);
        if let Some(StorageFault::Slow(more)) = self.fault {
            pause(more);
        }
        Ok(())
    }

    /// Waits until an operation that began at `begin` has taken as long as the latency and the bandwidth require.
    fn last(&self, begin: Time, bytes: u64, bandwidth: u64) {
        let mut least = self.options.latency;
        if bandwidth > 0 {
            least = least + Duration::from_secs_f64(bytes as f64 / bandwidth as f64).into();
        }
        pause((begin + least).since(self.clock.now()));
    }
}

#[cfg(test)]
mod tests {
    use faultline_conformance::Probe;

    use super::*;

    /// An image of 200 kB, half of it messages, takes 20 ms to write and 40 ms to read.
    #[test]
    fn writes_and_reads_last_as_long_as_their_bandwidths_require() {
        let clock = Clock::start();
        let options = StorageOptions {
            kind: StorageMedium::Memory,
            write_bandwidth: 10_000_000,
            read_bandwidth: 5_000_000,
            latency: Span::ZERO,
        };
        let (done, completed) = queue::channel();
        let done =
            move |it: Result<In<Probe<false>>, StoreError>| done.send((clock.now(), it.is_ok())).unwrap();
        let opened = Storage::<Probe<false>>::open("unused".into(), Life(1), options, clock, done);
        let storage = opened.unwrap();
        let image = Probe::<false>::image_of(100_000, 100_000);
        let name = image.name;
        let begun = clock.now();
        storage.ask(Request::Persist(Arc::new(image)));
        let (written, is_ok) = completed.recv().unwrap();
        assert!(is_ok && written.since(begun) >= Span::from_millis(20), "{}", written.since(begun));
        storage.ask(Request::Read(name));
        let (read, is_ok) = completed.recv().unwrap();
        assert!(is_ok && read.since(written) >= Span::from_millis(40), "{}", read.since(written));
    }
}
