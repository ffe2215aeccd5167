//! Reads the facts of a run in progress from files that are still being written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use faultline_core::{FactNo, Life, ProcessId};

use super::{Bundle, BundleError, life_of};
use crate::facts::{Cut, FactsReadError, HEADER_LEN, split_header, split_record};
use crate::flaw::{Flaw, FlawKind};
use crate::manifest::Manifest;
use crate::memory::Trace;
use crate::possible::Extent;
use crate::seal::{MARK, SEAL_LEN};

/// The number of bytes of one file that are read at a time.
const PIECE: usize = 1 << 20;

/// Reads the facts of a record while they are written. Reads only complete records, and verifies no seal: the run is
/// judged once it has ended.
#[derive(Debug)]
pub struct Follower {
    bundle: Bundle,
    extent: Extent,
    /// The maximum number of facts.
    most: u64,
    facts: u64,
    files: BTreeMap<(ProcessId, Life), Followed>,
    trace: Trace,
}

/// One file.
#[derive(Debug, Default)]
struct Followed {
    /// The length of the header and the records read so far.
    read: u64,
    /// The number of tasks that these facts spawned.
    spawned: u64,
    /// Whether the file ends here: it is sealed, or cannot be read any further.
    has_ended: bool,
}

impl Follower {
    /// Follows the run in a bundle with this manifest. Reads at most `most` facts.
    pub fn new(bundle: Bundle, manifest: &Manifest, most: u64) -> Follower {
        let extent = Extent::new(Some(manifest));
        Follower { bundle, extent, most, facts: 0, files: BTreeMap::new(), trace: Trace::default() }
    }

    /// Returns the facts read so far. The flaws are those of files that cannot be read any further.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns whether the maximum number of facts has been read, so that later facts are missing.
    pub fn is_full(&self) -> bool {
        self.facts >= self.most
    }

    /// Reads what was written since the last call. Returns whether there was anything new.
    ///
    /// # Errors
    ///
    /// Fails if the directory of facts, or a file in it, cannot be read. A file with invalid content is a flaw, not an
    /// error.
    pub fn read(&mut self) -> Result<bool, BundleError> {
        let files = self.bundle.facts_files()?;
        let mut streams: Vec<_> = files.iter().filter_map(|path| life_of(path)).collect();
        streams.retain(|it| self.extent.contains(it.0));
        streams.sort_unstable();
        let (facts, flaws) = (self.facts, self.trace.flaws.len());
        for stream in streams {
            self.read_file(stream)?;
        }
        Ok((facts, flaws) != (self.facts, self.trace.flaws.len()))
    }

    fn read_file(&mut self, stream: (ProcessId, Life)) -> Result<(), BundleError> {
        let path = self.bundle.facts_path(stream.0, stream.1);
        let followed = self.files.entry(stream).or_default();
        if followed.has_ended || self.facts >= self.most {
            return Ok(());
        }
        let unreadable = |source| BundleError::Read { path: path.clone(), source };
        let metadata = std::fs::metadata(&path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        if metadata.len() == followed.read {
            return Ok(());
        }
        let file = File::open(&path).map_err(unreadable)?;
        if metadata.len() < followed.read {
            self.end_with(stream, |number| FlawKind::Gap(FactNo(number)));
            return Ok(());
        }
        let mut piece = PIECE;
        loop {
            let at = self.files[&stream].read;
            let bytes = read_at(&file, at, piece).map_err(unreadable)?;
            let (read, is_over) = self.take(stream, at, &bytes);
            let followed = self.files.entry(stream).or_default();
            followed.read += read;
            followed.has_ended |= is_over;
            if is_over || self.facts >= self.most || bytes.len() < piece {
                return Ok(());
            }
            // A record may be longer than a piece.
            piece = if read == 0 { piece * 2 } else { PIECE };
        }
    }

    /// Adds the complete records of a piece of a file. Returns their length, and whether the file ends after them.
    fn take(&mut self, stream: (ProcessId, Life), at: u64, bytes: &[u8]) -> (u64, bool) {
        let mut rest = bytes;
        if at == 0 {
            match split_header(bytes) {
                Ok((named, after)) if named == stream => rest = after,
                Err(FactsReadError::Header) => return (0, false),
                Ok(_) => return (0, self.end_with(stream, |_| FlawKind::Absent)),
                Err(error) => {
                    return (0, self.end_with(stream, |_| FlawKind::Unreadable(error.to_string())));
                }
            }
        }
        let facts = self.trace.streams.entry(stream).or_default();
        let known = facts.len();
        let mut has_ended = false;
        let mut is_damaged = false;
        while self.facts + ((facts.len() - known) as u64) < self.most && !rest.is_empty() {
            if MARK.starts_with(&rest[..rest.len().min(MARK.len())]) {
                has_ended = rest.len() >= SEAL_LEN;
                break;
            }
            match split_record(rest) {
                Ok((record, after)) => {
                    facts.push(record);
                    rest = after;
                }
                Err(Cut::Torn) => break,
                Err(Cut::Damaged) => {
                    is_damaged = true;
                    break;
                }
            }
        }
        let spawned = &mut self.files.entry(stream).or_default().spawned;
        let impossible = self.extent.first_impossible_since(stream.0, facts, known, spawned);
        if let Some(number) = impossible {
            facts.truncate(number.index());
        }
        self.facts += (facts.len() - known) as u64;
        if let Some(number) = impossible {
            has_ended = self.end_with(stream, |_| FlawKind::Impossible(number));
        } else if is_damaged {
            has_ended = self.end_with(stream, |number| FlawKind::Gap(FactNo(number)));
        }
        ((bytes.len() - rest.len()) as u64, has_ended)
    }

    /// Notes why a file cannot be read any further, given the number of its facts. Returns `true`.
    fn end_with(&mut self, stream: (ProcessId, Life), kind: impl FnOnce(u64) -> FlawKind) -> bool {
        let facts = self.trace.streams.get(&stream).map_or(0, Vec::len) as u64;
        self.trace.flaws.push(Flaw { stream: Some(stream), kind: kind(facts) });
        self.files.entry(stream).or_default().has_ended = true;
        true
    }
}

/// Reads up to `most` bytes from a position in a file that may be growing.
fn read_at(file: &File, at: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let mut length = 0;
    while length < most {
        match file.read_at(&mut bytes[length..], at + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

const _: () = assert!(PIECE > HEADER_LEN + SEAL_LEN, "a piece contains more than a header or a seal");

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::trace;
    use super::*;
    use crate::manifest::tests::example;

    const FIRST: (ProcessId, Life) = (ProcessId(0), Life(1));

    /// Returns an empty bundle, its follower, and the bytes of the file of the first life with their records' ends.
    fn growing() -> (tempfile::TempDir, Follower, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let full = Bundle::create(dir.path().join("full")).unwrap();
        full.write_trace(&trace()).unwrap();
        let bytes = fs::read(full.facts_path(FIRST.0, FIRST.1)).unwrap();
        let follower =
            Follower::new(Bundle::create(dir.path().join("growing")).unwrap(), &example(), u64::MAX);
        (dir, follower, bytes)
    }

    fn write(follower: &Follower, bytes: &[u8]) {
        fs::write(follower.bundle.facts_path(FIRST.0, FIRST.1), bytes).unwrap();
    }

    #[test]
    fn a_growing_file_is_read_record_by_record() {
        let (_dir, mut follower, bytes) = growing();
        let all = &trace().streams[&FIRST];
        assert!(!follower.read().unwrap(), "there is no file yet");
        let mut before = 0;
        for length in 0..=bytes.len() {
            write(&follower, &bytes[..length]);
            let is_new = follower.read().unwrap();
            let known = follower.trace.streams.get(&FIRST).map_or(&all[..0], Vec::as_slice);
            assert_eq!(known, &all[..known.len()]);
            assert_eq!(is_new, known.len() > before, "after {length} bytes");
            before = known.len();
        }
        assert_eq!((before, follower.trace.flaws.len()), (all.len(), 0));
        assert!(follower.files[&FIRST].has_ended, "it is sealed");
    }

    #[test]
    fn all_files_are_read_like_those_of_a_record() {
        let (dir, ..) = growing();
        let full = Bundle::open(dir.path().join("full"));
        let mut follower = Follower::new(full, &example(), u64::MAX);
        assert!(follower.read().unwrap());
        assert_eq!(*follower.trace(), trace());
        let mut limited = Follower::new(follower.bundle, &example(), 4);
        limited.read().unwrap();
        assert_eq!((limited.trace().len(), limited.is_full()), (4, true));
    }

    #[test]
    fn a_damaged_or_shortened_file_ends_with_a_flaw() {
        let gap = |number| Flaw { stream: Some(FIRST), kind: FlawKind::Gap(FactNo(number)) };
        let (_dir, mut follower, mut bytes) = growing();
        write(&follower, &bytes[..bytes.len() - SEAL_LEN]);
        follower.read().unwrap();
        write(&follower, &bytes[..HEADER_LEN]);
        assert!(follower.read().unwrap());
        assert_eq!(follower.trace.flaws, [gap(3)]);
        write(&follower, &bytes);
        assert!(!follower.read().unwrap(), "it is not read any further");

        let (_dir, mut follower, _) = growing();
        let place = bytes.len() - SEAL_LEN - 1;
        bytes[place] ^= 1;
        write(&follower, &bytes);
        follower.read().unwrap();
        assert_eq!((follower.trace.len(), &follower.trace.flaws[..]), (2, &[gap(2)][..]));

        let (_dir, mut follower, _) = growing();
        write(&follower, b"not facts, but a story");
        follower.read().unwrap();
        assert!(matches!(follower.trace.flaws[0].kind, FlawKind::Unreadable(_)));
    }

    #[test]
    fn facts_that_no_run_can_contain_are_not_read() {
        let (_dir, mut follower, bytes) = growing();
        write(&follower, &bytes);
        follower.extent.processes = 0;
        assert!(!follower.read().unwrap(), "the process does not exist");
    }
}
