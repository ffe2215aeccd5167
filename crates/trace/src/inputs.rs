//! The file of one life's inputs and actions: sufficient to re-execute the life without its federation.
//!
//! | part | bytes | content |
//! | --- | --- | --- |
//! | header | 8 | `FLINPUT` and the format's version |
//! | | 4 + 4 | process and life, little-endian |
//! | record | 8 + length | as in a facts file ([`crate::facts`]); the body is the postcard encoding of `(Time, InputEntry)` |
//!
//! The first entry is the start of the life. Each input is followed by the process's actions. The file contains no
//! facts, which are in the facts file, and no outputs of jobs, which a re-execution computes again.

use std::io::{self, Write};
use std::sync::Arc;

use faultline_core::fault::Flip;
use faultline_core::process::{ActionOf, In, PacketOf};
use faultline_core::{
    Action, Boot, Event, Image, ImageName, JobNo, Life, LifeStart, Membership, Process, ProcessId, Time, To,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::facts::{Cut, append_record, split_body};

const MAGIC: [u8; 8] = *b"FLINPUT\x03";
const HEADER_LEN: usize = 16;
/// The size in bytes at which the buffer is flushed automatically.
const FLUSH_AT: usize = 256 * 1024;

/// Receives the inputs and actions of processes from a driver.
pub trait InputObserver<P: Process> {
    /// Called at the beginning of a life.
    fn started(&mut self, at: Time, start: &LifeStart<P::Config>);
    /// Called before a life handles an event.
    fn given(&mut self, process: ProcessId, life: Life, at: Time, event: &In<P>);
    /// Called after a life has begun or has handled an event, with the resulting actions.
    fn did(&mut self, process: ProcessId, life: Life, at: Time, actions: &[ActionOf<P>]);
}

/// An entry of the file. Like [`Event`], but without outputs of jobs, which a re-execution computes again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum InputEntry<S, M, H, V> {
    /// The life began. Its configuration is part of the bundle.
    LifeStart {
        /// How the life began.
        boot: Boot,
        /// The membership when the life began.
        membership: Membership,
        /// The last durable record of the previous life.
        record: Option<Arc<[u8]>>,
        /// The seed of the process's own random choices.
        seed: u64,
    },
    /// See [`Event::Packet`].
    Packet {
        /// The sending process.
        from: ProcessId,
        /// The packet itself.
        packet: faultline_core::Packet<S, M, H, V>,
    },
    /// See [`Event::Persisted`].
    Persisted(ImageName),
    /// See [`Event::PersistFailed`].
    PersistFailed(ImageName),
    /// See [`Event::Read`].
    Read {
        /// The name of the requested image.
        name: ImageName,
        /// The image; `None` if it is missing or damaged.
        image: Option<Arc<Image<H, V>>>,
    },
    /// See [`Event::Listed`].
    Listed(Vec<(ImageName, Arc<H>)>),
    /// See [`Event::Recorded`].
    Recorded {
        /// The version of the record.
        version: u64,
    },
    /// See [`Event::Membership`].
    Membership(Arc<Membership>),
    /// See [`Event::Computed`]. The output is not recorded.
    Computed(JobNo),
    /// See [`Event::Timeout`].
    Timeout,
    /// Actions of the process after the previous input.
    Did(Vec<RecordedAction>),
    /// See [`Event::Flip`].
    Flip(Flip),
}

/// The type of input entries for the process type `P`.
pub type InputEntryOf<P> =
    InputEntry<<P as Process>::Stamp, <P as Process>::Control, <P as Process>::Head, <P as Process>::Saved>;

/// One action, with a checksum in place of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordedAction {
    /// See [`Action::Send`].
    Send {
        /// The receiving process; `None` for a cluster.
        to: Option<ProcessId>,
        /// The receiving cluster; `None` for a process.
        cluster: Option<faultline_core::ClusterId>,
        /// The checksum of the packet.
        checksum: u32,
    },
    /// See [`Action::Persist`].
    Persist {
        /// The name of the image.
        name: ImageName,
        /// The checksum of the image.
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
        /// The version of the record.
        version: u64,
        /// The checksum of the record's bytes.
        checksum: u32,
    },
    /// See [`Action::Started`].
    Started,
    /// See [`Action::Held`].
    Held,
    /// See [`Action::Compute`].
    Compute(JobNo),
    /// See [`Action::Fact`]. The fact itself is in the facts file.
    Fact,
}

impl RecordedAction {
    /// Returns the recorded form of an action.
    pub fn of<P: Process>(action: &ActionOf<P>) -> RecordedAction {
        match action {
            Action::Send { to, packet } => {
                let (to, cluster) = match to {
                    To::One(process) => (Some(*process), None),
                    To::Cluster(cluster) => (None, Some(*cluster)),
                };
                RecordedAction::Send { to, cluster, checksum: checksum::<PacketOf<P>>(packet) }
            }
            Action::Persist(image) => {
                RecordedAction::Persist { name: image.name, checksum: checksum(&**image) }
            }
            Action::Read(name) => RecordedAction::Read(*name),
            Action::List => RecordedAction::List,
            Action::Delete(name) => RecordedAction::Delete(*name),
            Action::Record { version, bytes } => {
                RecordedAction::Record { version: *version, checksum: crc32c::crc32c(bytes) }
            }
            Action::Started => RecordedAction::Started,
            Action::Held => RecordedAction::Held,
            Action::Compute(no, _) => RecordedAction::Compute(*no),
            Action::Fact(_) => RecordedAction::Fact,
        }
    }
}

fn checksum<T: Serialize>(value: &T) -> u32 {
    let bytes = postcard::to_stdvec(value).expect("a value that leaves a process can be encoded");
    crc32c::crc32c(&bytes)
}

/// Writes the file of one life. The writer is buffered, like the writer of facts.
#[derive(Debug)]
pub struct InputsWriter<W: Write> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> InputsWriter<W> {
    /// Creates a writer, and begins the file with its header.
    pub fn new(out: W, process: ProcessId, life: Life) -> Self {
        let mut buffer = Vec::with_capacity(4096);
        buffer.extend(MAGIC);
        buffer.extend(process.0.to_le_bytes());
        buffer.extend(life.0.to_le_bytes());
        InputsWriter { out, buffer }
    }

    /// Writes the start of the life.
    ///
    /// # Errors
    ///
    /// Fails if the entry is too long for a record, or if a full buffer could not be written.
    pub fn start<P: Process>(&mut self, at: Time, start: &LifeStart<P::Config>) -> io::Result<()> {
        let LifeStart { boot, membership, record, seed, .. } = start;
        let (membership, record) = ((**membership).clone(), record.clone());
        self.write::<P>(at, &InputEntry::LifeStart { boot: *boot, membership, record, seed: *seed })
    }

    /// Writes an event that is about to be handled.
    ///
    /// # Errors
    ///
    /// Fails if the entry is too long for a record, or if a full buffer could not be written.
    pub fn event<P: Process>(&mut self, at: Time, event: &In<P>) -> io::Result<()> {
        let entry: InputEntryOf<P> = match event {
            Event::Packet { from, packet } => InputEntry::Packet { from: *from, packet: packet.clone() },
            Event::Persisted(name) => InputEntry::Persisted(*name),
            Event::PersistFailed(name) => InputEntry::PersistFailed(*name),
            Event::Read { name, image } => InputEntry::Read { name: *name, image: image.clone() },
            Event::Listed(images) => InputEntry::Listed(images.clone()),
            Event::Recorded { version } => InputEntry::Recorded { version: *version },
            Event::Membership(membership) => InputEntry::Membership(membership.clone()),
            Event::Computed(no, _) => InputEntry::Computed(*no),
            Event::Timeout => InputEntry::Timeout,
            Event::Flip(flip) => InputEntry::Flip(*flip),
        };
        self.write::<P>(at, &entry)
    }

    /// Writes the actions that followed the last event.
    ///
    /// # Errors
    ///
    /// Fails if the entry is too long for a record, or if a full buffer could not be written.
    pub fn actions<P: Process>(&mut self, at: Time, actions: &[ActionOf<P>]) -> io::Result<()> {
        self.write::<P>(at, &InputEntry::Did(actions.iter().map(RecordedAction::of::<P>).collect()))
    }

    /// Hands everything to the operating system, which keeps it even if the process is killed.
    ///
    /// # Errors
    ///
    /// Fails if the buffer could not be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        self.out.flush()
    }

    fn write<P: Process>(&mut self, at: Time, entry: &InputEntryOf<P>) -> io::Result<()> {
        append_record(&mut self.buffer, &(at, entry))?;
        if self.buffer.len() >= FLUSH_AT { self.flush() } else { Ok(()) }
    }
}

/// The content of an inputs file.
pub struct InputsFile<P: Process> {
    /// The process that handled the inputs.
    pub process: ProcessId,
    /// The life that handled the inputs.
    pub life: Life,
    /// The entries in order, up to the first incomplete or damaged one.
    pub entries: Vec<(Time, InputEntryOf<P>)>,
    /// The reason why the entries end before the file does; `None` if the file ends with a complete entry.
    pub cut: Option<Cut>,
}

/// The reason why a file is not an inputs file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InputsReadError {
    /// The file ends within the header.
    #[error("the header is incomplete")]
    Header,
    /// The file does not begin with the magic bytes of an inputs file.
    #[error("the header is invalid")]
    Magic,
    /// The file has another format version.
    #[error("the format version is {0}, but this program reads version {version}", version = MAGIC[7])]
    Version(u8),
}

/// Parses an inputs file.
///
/// # Errors
///
/// Fails if the header is missing or wrong. An incomplete or damaged entry is not an error; see
/// [`InputsFile::cut`].
///
/// # Panics
///
/// Never panics: the length of the header is checked first.
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
