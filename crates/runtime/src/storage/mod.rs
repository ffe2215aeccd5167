//! Stable storage of one node: a worker thread in front of a [`store::Store`].
//!
//! Requests are carried out one after the other, so that a listing sees every earlier write, and completions come back
//! in that order. What a request costs (the requested write bandwidth, an injected slowness) is really waited out.

mod slots;
mod store;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc as queue};
use std::thread;
use std::time::Duration;

use faultline_core::fault::StorageFault;
use faultline_core::process::{ImageOf, In};
use faultline_core::{Event, ImageName, Life, Process, Span};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::clock::{Clock, pause};
pub(crate) use store::{Journal, StoreError};
use store::{Opened, Store};

/// Where a node keeps images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageKind {
    /// In its memory: gone with the process.
    Memory,
    /// In files, with fsync.
    #[default]
    Disk,
}

/// What storage is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageOptions {
    /// Where.
    pub kind: StorageKind,
    /// Bytes per second that writes are slowed down to; 0 is as fast as it goes.
    pub write_bandwidth: u64,
    /// What each write takes at least beside the transfer.
    pub latency: Span,
}

/// After so long without a request the storage gets ready for later ones.
const IDLE: Duration = Duration::from_millis(20);

/// What is asked of the storage.
pub(crate) enum Request<P: Process> {
    Persist(Arc<ImageOf<P>>),
    Read(ImageName),
    List,
    Delete(ImageName),
    Record {
        version: u64,
        bytes: Arc<[u8]>,
    },
    /// The record has been reported durable: older ones are of no more use.
    Reported {
        version: u64,
    },
    Misbehave(Option<StorageFault>),
}

/// The storage as the engine sees it.
pub(crate) struct Storage<P: Process> {
    requests: queue::Sender<Request<P>>,
    /// What has been reported; kept by the engine, which reports.
    pub(crate) journal: Journal,
    /// The record of an earlier life.
    pub(crate) record: Option<Arc<[u8]>>,
}

impl<P: Process + 'static> Storage<P> {
    /// Opens the storage in `dir` for `life`, dropping what no earlier life was told is durable. Completions go to
    /// `done`, and so does the error after which the process cannot go on.
    pub(crate) fn open(
        dir: PathBuf,
        life: Life,
        options: StorageOptions,
        clock: Clock,
        done: impl Fn(Result<In<P>, StoreError>) + Send + 'static,
    ) -> Result<Storage<P>, StoreError> {
        let Opened { store, journal, record } = match options.kind {
            StorageKind::Memory => Store::in_memory(),
            StorageKind::Disk => Store::on_disk(dir, life)?,
        };
        let (requests, inbox) = queue::channel();
        let worker = Worker::<P> { store, clock, options, fault: None, done: Box::new(done) };
        thread::Builder::new()
            .name("storage".into())
            .spawn(move || worker.work(inbox))
            .map_err(StoreError::Thread)?;
        Ok(Storage { requests, journal, record })
    }

    /// Asks for something.
    pub(crate) fn ask(&self, request: Request<P>) {
        if self.requests.send(request).is_err() {
            panic!("the storage worker has ended before the engine");
        }
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

    /// Waits for the next request; gets ready for later ones when there is none for a while. `None` at the end.
    fn next(&mut self, inbox: &queue::Receiver<Request<P>>) -> Option<Request<P>> {
        while self.fault.is_none() && self.store.wants_preparation() {
            match inbox.recv_timeout(IDLE) {
                Ok(request) => return Some(request),
                Err(queue::RecvTimeoutError::Disconnected) => return None,
                Err(queue::RecvTimeoutError::Timeout) => {
                    if let Err(error) = self.store.prepare() {
                        warn!(%error, "later writes take longer");
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
                let bytes = image.snapshot.len();
                Some(match self.write(bytes, |store| store.persist(image)) {
                    Ok(()) => Event::Persisted(name),
                    // Nobody planned that, and it will not pass while the run writes on.
                    Err(error) if self.fault.is_none() && error.is_full_disk() => return Err(error),
                    Err(error) => {
                        warn!(%name, %error, "an image was not written");
                        // Nothing of it is to be there, nor of one that had its name.
                        if let Err(error) = self.store.delete(name) {
                            warn!(%name, %error, "an image was not removed");
                        }
                        Event::PersistFailed(name)
                    }
                })
            }
            Request::Read(name) => {
                let corrupt = self.fault == Some(StorageFault::Corrupt);
                let image = self.store.read(name, corrupt).unwrap_or_else(|error| {
                    warn!(%name, %error, "an image cannot be read back");
                    None
                });
                Some(Event::Read { name, image })
            }
            Request::List => Some(Event::Listed(self.store.list())),
            Request::Delete(name) => {
                if let Err(error) = self.store.delete(name) {
                    warn!(%name, %error, "an image was not removed");
                }
                None
            }
            Request::Record { version, bytes } => {
                // A record is a handful of bytes, for which even a full disk has room: there is no event for its
                // failure, and a process cannot go on without it.
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
                    warn!(%error, "an old record was not removed");
                }
                None
            }
            Request::Misbehave(fault) => {
                self.fault = fault;
                None
            }
        })
    }

    /// Writes, and takes as long as the requested bandwidth and an injected slowness say.
    fn write(
        &mut self,
        bytes: u64,
        write: impl FnOnce(&mut Store<P::Head, P::Saved>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if self.fault == Some(StorageFault::Full) {
            return Err(StoreError::Write {
                what: "storage fault".into(),
                source: io::ErrorKind::StorageFull.into(),
            });
        }
        let begin = self.clock.now();
        write(&mut self.store)?;
        let end = self.clock.now();
        let mut least = self.options.latency;
        if self.options.write_bandwidth > 0 {
            let seconds = bytes as f64 / self.options.write_bandwidth as f64;
            least = least + Duration::from_secs_f64(seconds).into();
        }
        pause((begin + least).since(end));
        if let Some(StorageFault::Slow(more)) = self.fault {
            pause(more);
        }
        Ok(())
    }
}
