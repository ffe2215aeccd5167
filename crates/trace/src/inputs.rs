//! The file of what one life was given, and what it did: enough to let it live again without its federation.
//!
//! | part | bytes | content |
//! | --- | --- | --- |
//! | header | 8 | `FLINPUT` and the format's version |
//! | | 4 + 4 | process and life, little-endian |
//! | record | 8 + length | as in a file of facts ([`crate::facts`]); the body is postcard of `(Time, Entry)` |
//!
//! The first entry is the birth; after each input stands what the process did. What is in the file of facts is not
//! repeated, nor what a job gives back: the job is computed again.

use std::io::{self, Write};
use std::sync::Arc;

use faultline_core::process::{ActionOf, In, PacketOf};
use faultline_core::{
    Action, Birth, Boot, Event, Image, ImageName, JobNo, Life, Membership, Process, ProcessId, Time, To,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::facts::{Cut, append_record, split_body};

const MAGIC: [u8; 8] = *b"FLINPUT\x03";
const HEADER_LEN: usize = 16;
/// A buffer that has grown to this is written out without being asked.
const FLUSH_AT: usize = 256 * 1024;

/// Takes what processes are given and what they do, from a driver.
pub trait Recorder<P: Process> {
    /// A life begins.
    fn born(&mut self, at: Time, birth: &Birth<P::Config>);
    /// A life is about to be given an event.
    fn given(&mut self, process: ProcessId, life: Life, at: Time, event: &In<P>);
    /// What it did with the last input.
    fn did(&mut self, process: ProcessId, life: Life, at: Time, actions: &[ActionOf<P>]);
}

/// What a file holds one after the other. Like [`Event`], but for what is computed again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Entry<S, M, H, V> {
    /// The life began. Its configuration stands in the bundle.
    Birth {
        /// How.
        boot: Boot,
        /// Who was where.
        membership: Membership,
        /// What the life before had recorded.
        record: Option<Arc<[u8]>>,
        /// Its own source of randomness.
        seed: u64,
    },
    /// See [`Event::Packet`].
    Packet {
        /// Sender.
        from: ProcessId,
        /// Content.
        packet: faultline_core::Packet<S, M, H, V>,
    },
    /// See [`Event::Persisted`].
    Persisted(ImageName),
    /// See [`Event::PersistFailed`].
    PersistFailed(ImageName),
    /// See [`Event::Read`].
    Read {
        /// Which was asked for.
        name: ImageName,
        /// It.
        image: Option<Arc<Image<H, V>>>,
    },
    /// See [`Event::Listed`].
    Listed(Vec<(ImageName, Arc<H>)>),
    /// See [`Event::Recorded`].
    Recorded {
        /// Which.
        version: u64,
    },
    /// See [`Event::Membership`].
    Membership(Arc<Membership>),
    /// See [`Event::Computed`]; the result is what the job gives.
    Computed(JobNo),
    /// See [`Event::Timeout`].
    Timeout,
    /// What the process did with the input before.
    Did(Vec<Deed>),
}

/// The entry type of a process.
pub type EntryOf<P> =
    Entry<<P as Process>::Stamp, <P as Process>::Control, <P as Process>::Head, <P as Process>::Saved>;

/// One action, with a checksum in place of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deed {
    /// See [`Action::Send`].
    Send {
        /// The process, or `None` for a cluster.
        to: Option<ProcessId>,
        /// The cluster, or `None` for a process.
        cluster: Option<faultline_core::ClusterId>,
        /// Of the packet.
        checksum: u32,
    },
    /// See [`Action::Persist`].
    Persist {
        /// Which image.
        name: ImageName,
        /// Of the image.
        checksum: u32,
    },
    /// See [`Action::Read`].
    Read(ImageName),
    /// See [`Action::List`].
    List,
    /// See [`Action::Delete`].
    Delete(ImageName),
    /// See [`Action::Record`].
    Record {
        /// Which.
        version: u64,
        /// Of its bytes.
        checksum: u32,
    },
    /// See [`Action::Started`].
    Started,
    /// See [`Action::Held`].
    Held,
    /// See [`Action::Compute`].
    Compute(JobNo),
    /// See [`Action::Fact`]; the fact itself stands in the file of facts.
    Fact,
}

impl Deed {
    /// What is kept of an action.
    pub fn of<P: Process>(action: &ActionOf<P>) -> Deed {
        match action {
            Action::Send { to, packet } => {
                let (to, cluster) = match to {
                    To::One(process) => (Some(*process), None),
                    To::Cluster(cluster) => (None, Some(*cluster)),
                };
                Deed::Send { to, cluster, checksum: checksum::<PacketOf<P>>(packet) }
            }
            Action::Persist(image) => Deed::Persist { name: image.name, checksum: checksum(&**image) },
            Action::Read(name) => Deed::Read(*name),
            Action::List => Deed::List,
            Action::Delete(name) => Deed::Delete(*name),
            Action::Record { version, bytes } => {
                Deed::Record { version: *version, checksum: crc32c::crc32c(bytes) }
            }
            Action::Started => Deed::Started,
            Action::Held => Deed::Held,
            Action::Compute(no, _) => Deed::Compute(*no),
            Action::Fact(_) => Deed::Fact,
        }
    }
}

fn checksum<T: Serialize>(value: &T) -> u32 {
    let bytes = postcard::to_stdvec(value).expect("what leaves a process has a serialised form");
    crc32c::crc32c(&bytes)
}

/// Writes the file of one life. Buffered, like the facts beside it.
#[derive(Debug)]
pub struct InputsWriter<W: Write> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> InputsWriter<W> {
    /// Begins the file of a life.
    pub fn new(out: W, process: ProcessId, life: Life) -> Self {
        let mut buffer = Vec::with_capacity(4096);
        buffer.extend(MAGIC);
        buffer.extend(process.0.to_le_bytes());
        buffer.extend(life.0.to_le_bytes());
        InputsWriter { out, buffer }
    }

    /// The life begins.
    pub fn birth<P: Process>(&mut self, at: Time, birth: &Birth<P::Config>) -> io::Result<()> {
        let Birth { boot, membership, record, seed, .. } = birth;
        let (membership, record) = ((**membership).clone(), record.clone());
        self.write::<P>(at, &Entry::Birth { boot: *boot, membership, record, seed: *seed })
    }

    /// An event is about to be given.
    pub fn event<P: Process>(&mut self, at: Time, event: &In<P>) -> io::Result<()> {
        let entry: EntryOf<P> = match event {
            Event::Packet { from, packet } => Entry::Packet { from: *from, packet: packet.clone() },
            Event::Persisted(name) => Entry::Persisted(*name),
            Event::PersistFailed(name) => Entry::PersistFailed(*name),
            Event::Read { name, image } => Entry::Read { name: *name, image: image.clone() },
            Event::Listed(images) => Entry::Listed(images.clone()),
            Event::Recorded { version } => Entry::Recorded { version: *version },
            Event::Membership(membership) => Entry::Membership(membership.clone()),
            Event::Computed(no, _) => Entry::Computed(*no),
            Event::Timeout => Entry::Timeout,
        };
        self.write::<P>(at, &entry)
    }

    /// What the process did with it.
    pub fn actions<P: Process>(&mut self, at: Time, actions: &[ActionOf<P>]) -> io::Result<()> {
        self.write::<P>(at, &Entry::Did(actions.iter().map(Deed::of::<P>).collect()))
    }

    /// Hands everything to the operating system, which keeps it when the process is killed.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        self.out.flush()
    }

    fn write<P: Process>(&mut self, at: Time, entry: &EntryOf<P>) -> io::Result<()> {
        append_record(&mut self.buffer, &(at, entry))?;
        if self.buffer.len() >= FLUSH_AT { self.flush() } else { Ok(()) }
    }
}

/// What a file of inputs holds.
pub struct InputsFile<P: Process> {
    /// Whose.
    pub process: ProcessId,
    /// Of which life.
    pub life: Life,
    /// One after the other, up to the first that is not whole.
    pub entries: Vec<(Time, EntryOf<P>)>,
    /// Why there are no more; `None` where the file ends with a whole one.
    pub cut: Option<Cut>,
}

/// Why a file is not one of inputs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InputsReadError {
    /// It ends within the header.
    #[error("it ends before its header is complete")]
    Header,
    /// It begins with something else.
    #[error("it does not begin as a file of inputs does")]
    Magic,
    /// It is of another version.
    #[error("it has format version {0}, this program reads version {version}", version = MAGIC[7])]
    Version(u8),
}

/// Reads a file of inputs.
pub fn read_inputs<P: Process>(bytes: &[u8]) -> Result<InputsFile<P>, InputsReadError> {
    let (header, mut rest) = bytes.split_at_checked(HEADER_LEN).ok_or(InputsReadError::Header)?;
    if header[..7] != MAGIC[..7] {
        return Err(InputsReadError::Magic);
    }
    if header[7] != MAGIC[7] {
        return Err(InputsReadError::Version(header[7]));
    }
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let (process, life) = (ProcessId(number(8)), Life(number(12)));
    let mut entries = Vec::new();
    let cut = loop {
        if rest.is_empty() {
            break None;
        }
        match split_body(rest) {
            Ok((body, others)) => match postcard::from_bytes(body) {
                Ok(entry) => {
                    entries.push(entry);
                    rest = others;
                }
                Err(_) => break Some(Cut::Damaged),
            },
            Err(cut) => break Some(cut),
        }
    };
    Ok(InputsFile { process, life, entries, cut })
}
