//! The journal of the supervisor's input, which is written before the input takes effect. A restarted
//! supervisor obtains the state of its predecessor from it: injected faults, lives, and their places.
//!
//! The file `journal` next to the record contains a sequence of [`JournalEntry`] values, in the same record format as
//! facts. Flushed entries have been handed to the operating system, so they outlive the process. On a persistent
//! volume, they also outlive the pod.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use faultline_core::{ClusterId, FaultNo, Life, ProcessId, Span, Time};
use faultline_supervisor::Report;
use faultline_trace::manifest::{Effect, LinkMeasured, LinkObserved};
use faultline_trace::{Cut, append_record, split_body};
use serde::{Deserialize, Serialize};

use super::RunError;
use super::places::Seen;
use crate::clock::{Clock, Origin};

const FILE: &str = "journal";
/// Number of bytes that are read at a time.
const CHUNK: u64 = 64 << 10;

/// An entry in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum JournalEntry {
    /// The first entry: identifier and clock of the run.
    Run { run: String, origin: Origin },
    /// Reports that the state machine received. The resulting orders were carried out afterwards.
    Heard(Vec<(Time, Report)>),
    /// A process has measured a link.
    Measured { by: ProcessId, to: ProcessId, requested: Span, link: LinkMeasured },
    /// All echoes so far over a link, since its properties were last requested.
    Echoes { from: ClusterId, to: ClusterId, observed: LinkObserved },
    /// A single order killed these lives.
    Stopped(Vec<Seen>),
    /// A life was launched at the place with this UID.
    Launched { process: ProcessId, life: Life, uid: String },
    /// The record contains all facts of a life.
    Complete { process: ProcessId, life: Life },
    /// The note of a change ([`super::ChangeQueue::ask`]).
    Noted(String),
    /// A restarted program resumed the run.
    Resumed(Time),
    /// An order to pause a life was answered.
    Paused(Seen),
    /// A process has applied a fault.
    InForce { no: FaultNo, effect: Effect },
    /// The observer was told the effects of a fault.
    Observed(FaultNo),
}

/// Writes entries, or drops them if no restarted program could read them.
#[derive(Clone, Default)]
pub(crate) struct Journal(Option<Rc<RefCell<Writer>>>);

struct Writer {
    file: File,
    buffer: Vec<u8>,
    /// The error of an earlier write, which [`Journal::flush`] reports.
    failed: Option<io::Error>,
}

/// The content of a journal, from which a run can be resumed. The entries remain in the file, because a long run has
/// more of them than fit into memory.
#[derive(Debug)]
pub struct JournalContents {
    path: PathBuf,
    run: String,
    pub(crate) origin: Origin,
    note: Option<String>,
    /// Time of the last report to a predecessor, or of the last resumption.
    pub(crate) last: Time,
    /// Number of bytes up to the end of the last complete entry.
    len: u64,
}

/// Reads entries one at a time. Ends before an incomplete entry, which had no effect before its writer was killed.
struct JournalEntries<R> {
    file: R,
    /// The bytes that were read, of which the first `parsed` belong to earlier entries.
    buffer: Vec<u8>,
    parsed: usize,
    /// Number of bytes of all entries so far.
    len: u64,
}

impl Journal {
    /// Creates the journal of the run recorded in `dir`.
    pub(crate) fn begin(dir: &Path, run: &str, clock: Clock) -> Result<Journal, RunError> {
        let file = File::create(dir.join(FILE)).map_err(RunError::Record)?;
        let journal = Journal::to(file);
        journal.write(&JournalEntry::Run { run: run.to_owned(), origin: Origin::of(clock) });
        journal.flush()?;
        Ok(journal)
    }

    /// Continues the journal of `past`.
    pub(crate) fn resume(past: &JournalContents) -> Result<Journal, RunError> {
        let open = || {
            let file = OpenOptions::new().append(true).open(&past.path)?;
            file.set_len(past.len).map(|()| file)
        };
        open().map(Journal::to).map_err(RunError::Record)
    }

    fn to(file: File) -> Journal {
        Journal(Some(Rc::new(RefCell::new(Writer { file, buffer: Vec::new(), failed: None }))))
    }

    /// Returns whether a restarted program could resume the run.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Adds an entry, which survives the process once [`Journal::flush`] has returned.
    pub(crate) fn write(&self, entry: &JournalEntry) {
        let Some(writer) = &self.0 else { return };
        let writer = &mut *writer.borrow_mut();
        if let Err(error) = append_record(&mut writer.buffer, entry) {
            writer.failed.get_or_insert(error);
        }
    }

    /// Hands all entries to the operating system.
    pub(crate) fn flush(&self) -> Result<(), RunError> {
        let Some(writer) = &self.0 else { return Ok(()) };
        let writer = &mut *writer.borrow_mut();
        if let Some(error) = writer.failed.take() {
            return Err(RunError::Record(error));
        }
        drain_to(&mut writer.buffer, &mut writer.file).map_err(RunError::Record)
    }
}

/// Moves the bytes in `buffer` to `out`. After an error, `buffer` contains exactly the bytes that `out` did not accept,
/// so that a later call continues at the right position.
fn drain_to(buffer: &mut Vec<u8>, out: &mut impl Write) -> io::Result<()> {
    while !buffer.is_empty() {
        match out.write(buffer) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(accepted) => drop(buffer.drain(..accepted)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl JournalContents {
    /// Reads the past of the run recorded in `dir`; `None` if there is no journal. Ignores an incomplete last entry.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be read.
    pub fn of(dir: &Path) -> io::Result<Option<JournalContents>> {
        let path = dir.join(FILE);
        let mut entries = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => JournalEntries::new(file?),
        };
        let Some(first) = entries.next() else { return Ok(None) };
        let JournalEntry::Run { run, origin } = first? else { return Err(damaged()) };
        let (mut note, mut last) = (None, Time::ZERO);
        for entry in entries.by_ref() {
            match entry? {
                JournalEntry::Noted(text) => note = Some(text),
                JournalEntry::Heard(reports) => last = reports.iter().map(|it| it.0).fold(last, Time::max),
                JournalEntry::Resumed(at) => last = last.max(at),
                _ => {}
            }
        }
        Ok(Some(JournalContents { path, run, origin, note, last, len: entries.len }))
    }

    /// Returns the identifier of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the note of the last change ([`super::ChangeQueue::ask`]).
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Reads all entries, in order. Omits those that were added after this value was created.
    pub(crate) fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<JournalEntry>>> {
        let file = File::open(&self.path)?;
        Ok(JournalEntries::new(file.take(self.len)))
    }
}

impl<R: Read> JournalEntries<R> {
    fn new(file: R) -> JournalEntries<R> {
        JournalEntries { file, buffer: Vec::new(), parsed: 0, len: 0 }
    }
}

impl<R: Read> Iterator for JournalEntries<R> {
    type Item = io::Result<JournalEntry>;

    fn next(&mut self) -> Option<io::Result<JournalEntry>> {
        loop {
            let unparsed = &self.buffer[self.parsed..];
            match split_body(unparsed) {
                Ok((body, rest)) => {
                    let entry = postcard::from_bytes(body).map_err(|_| damaged());
                    let len = unparsed.len() - rest.len();
                    self.parsed += len;
                    self.len += len as u64;
                    return Some(entry);
                }
                Err(Cut::Damaged) => return Some(Err(damaged())),
                Err(Cut::Torn) => {
                    drop(self.buffer.drain(..self.parsed));
                    self.parsed = 0;
                    match self.file.by_ref().take(CHUNK).read_to_end(&mut self.buffer) {
                        Ok(0) => return None,
                        Ok(_) => {}
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        }
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the journal is damaged")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Accepts `capacity` bytes, and then fails.
    struct Full {
        accepted: Vec<u8>,
        capacity: usize,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let left = self.capacity - self.accepted.len();
            if left == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let bytes = &bytes[..bytes.len().min(left)];
            self.accepted.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_write_continues_where_a_failed_one_ended() {
        let (mut buffer, mut out) = (b"entry".to_vec(), Full { accepted: Vec::new(), capacity: 2 });
        assert!(drain_to(&mut buffer, &mut out).is_err());
        buffer.extend(b" next");
        out.capacity = 100;
        drain_to(&mut buffer, &mut out).unwrap();
        assert_eq!((out.accepted.as_slice(), buffer.is_empty()), (&b"entry next"[..], true));
    }

    /// Returns all entries, except the first.
    fn entries(past: &JournalContents) -> Vec<JournalEntry> {
        past.entries().unwrap().skip(1).map(Result::unwrap).collect()
    }

    #[test]
    fn entries_are_read_as_written_except_an_incomplete_one() {
        let dir = tempfile::tempdir().unwrap();
        assert!(JournalContents::of(dir.path()).unwrap().is_none());
        let journal = Journal::begin(dir.path(), "a", Clock::start()).unwrap();
        let first = JournalEntry::Heard(vec![(Time(7), Report::Timeout)]);
        journal.write(&first);
        journal.write(&JournalEntry::Noted("b".into()));
        journal.flush().unwrap();
        let path = dir.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        let noted = JournalContents::of(dir.path()).unwrap().unwrap();
        assert_eq!(noted.note(), Some("b"));
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();

        let past = JournalContents::of(dir.path()).unwrap().unwrap();
        assert_eq!((past.run(), past.note(), past.last), ("a", None, Time(7)));
        assert_eq!(entries(&past), std::slice::from_ref(&first));
        let journal = Journal::resume(&past).unwrap();
        journal.write(&JournalEntry::Resumed(Time(9)));
        journal.flush().unwrap();
        assert_eq!(entries(&past), std::slice::from_ref(&first), "a new entry is not part of the past");
        let past = JournalContents::of(dir.path()).unwrap().unwrap();
        assert_eq!(
            entries(&past),
            [first, JournalEntry::Resumed(Time(9))],
            "the incomplete entry is ignored"
        );
        assert_eq!(past.last, Time(9));

        let mut damaged = whole;
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert!(JournalContents::of(dir.path()).is_err());
    }

    #[test]
    fn a_long_journal_is_read_in_pieces() {
        let long = 3 * CHUNK as usize;
        let mut file = Vec::new();
        let notes = || (0..20_000).map(|it| if it == 9_000 { "x".repeat(long) } else { it.to_string() });
        notes().for_each(|note| append_record(&mut file, &JournalEntry::Noted(note)).unwrap());
        let mut entries = JournalEntries::new(&file[..]);
        let mut most = 0;
        for note in notes() {
            assert_eq!(entries.next().unwrap().unwrap(), JournalEntry::Noted(note));
            most = most.max(entries.buffer.len());
        }
        assert!(entries.next().is_none());
        assert_eq!(entries.len, file.len() as u64);
        assert!(most <= long + 2 * CHUNK as usize, "{most} bytes of {} were in memory", file.len());
    }
}
