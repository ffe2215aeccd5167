//! Reusable files for images.
//!
//! | bytes | content, little-endian |
//! | --- | --- |
//! | 8 | length of the content; 0 without content |
//! | length | the content |
//! | 4 | CRC32C of length and content |
//! | | remains of earlier content |
//!
//! Overwriting existing blocks of a file adds nothing to the file system's journal. The write is therefore durable once
//! the disk has it, without a journal commit, which would make all writers to that disk wait. Such a write takes a
//! quarter of the time of one that needs a commit, or less if other processes write as well. Databases recycle their
//! log files for the same reason. New images reuse the files of removed ones, and files for further images are prepared
//! during idle time.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files::{sync_with_dir, write_all_vectored};

const SUFFIX: &str = ".slot";
const LENGTH_BYTES: u64 = 8;
const CHECKSUM_BYTES: u64 = 4;
/// Size of a block in bytes. The length of a file is a multiple of it.
const BLOCK: u64 = 4096;
/// A prepared file exceeds the previous content by 1/`ROOM` of its length, because the next content may be
/// longer.
const ROOM: u64 = 8;
/// Number of files kept ready: one for this process's next part, and one for the next replica.
const READY: usize = 2;
/// Largest number of free files that are kept.
const MOST_FREE: usize = 8;

/// A reusable file, with or without content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slot {
    number: u32,
    capacity: u64,
}

/// All files of one directory.
#[derive(Debug)]
pub(super) struct Slots {
    dir: PathBuf,
    /// Files without content.
    free: Vec<Slot>,
    /// Lengths of the contents for which to prepare files, in bytes.
    wanted: VecDeque<u64>,
    next: u32,
}

impl Slots {
    /// Creates the state for a directory, without its existing files.
    pub(super) fn new(dir: PathBuf) -> Slots {
        Slots { dir, free: Vec::new(), wanted: VecDeque::new(), next: 0 }
    }

    /// Returns the slot of the existing file `name`; `None` if the file is not a slot.
    pub(super) fn adopt(&mut self, name: &str) -> io::Result<Option<Slot>> {
        let Some(number) = name.strip_suffix(SUFFIX).and_then(|it| it.parse().ok()) else { return Ok(None) };
        self.next = self.next.max(number + 1);
        let mut slot = Slot { number, capacity: 0 };
        slot.capacity = fs::metadata(self.path(&slot))?.len();
        Ok(Some(slot))
    }

    /// Writes content durably.
    pub(super) fn write(&mut self, pieces: &[&[u8]]) -> io::Result<Slot> {
        let length = pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let needed = LENGTH_BYTES + length + CHECKSUM_BYTES;
        let fitting = self.free.iter().enumerate().filter(|(_, it)| it.capacity >= needed);
        let ready = fitting.min_by_key(|(_, it)| it.capacity).map(|(place, _)| place);
        let ready = ready.map(|place| self.free.swap_remove(place));
        if self.fitting(needed) + self.wanted.len() < READY {
            self.wanted.push_back(length);
        }
        let is_new = ready.is_none();
        let slot = ready.unwrap_or_else(|| self.number(needed));
        let path = self.path(&slot);
        let write = || {
            let mut file = OpenOptions::new().write(true).create(is_new).truncate(is_new).open(&path)?;
            let first = length.to_le_bytes();
            let checksum =
                pieces.iter().fold(crc32c::crc32c(&first), |crc, it| crc32c::crc32c_append(crc, it));
            let checksum = checksum.to_le_bytes();
            let rest = if is_new { vec![0; (slot.capacity - needed) as usize] } else { Vec::new() };
            let mut slices = vec![IoSlice::new(&first)];
            slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
            slices.extend([IoSlice::new(&checksum), IoSlice::new(&rest)]);
            write_all_vectored(&mut file, &mut slices)?;
            if is_new { sync_with_dir(&file, &self.dir) } else { file.sync_data() }
        };
        if let Err(error) = write() {
            // The file is unusable. If it cannot be removed either, the first error is more important.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(slot)
    }

    /// Returns the content of a file; `None` if it is empty or damaged. With `corrupt`, flips one bit of the data that
    /// was read, so that it counts as damaged.
    pub(super) fn read(&self, slot: &Slot, corrupt: bool) -> io::Result<Option<Vec<u8>>> {
        let mut file = File::open(self.path(slot))?;
        let mut first = [0; LENGTH_BYTES as usize];
        let mut content = Vec::new();
        match file.read_exact(&mut first) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let length = u64::from_le_bytes(first);
        let whole = length.checked_add(CHECKSUM_BYTES).filter(|it| *it <= slot.capacity);
        let Some(whole) = whole.filter(|_| length > 0) else { return Ok(None) };
        file.take(whole).read_to_end(&mut content)?;
        let Some((body, checksum)) = content.split_last_chunk_mut::<{ CHECKSUM_BYTES as usize }>() else {
            return Ok(None);
        };
        if let Some(last) = body.last_mut().filter(|_| corrupt) {
            *last ^= 1;
        }
        let intact = crc32c::crc32c_append(crc32c::crc32c(&first), body) == u32::from_le_bytes(*checksum);
        let body = body.len();
        content.truncate(body);
        Ok(intact.then_some(content))
    }

    /// Removes the content of a file. The removal survives a crash of this process.
    pub(super) fn remove(&mut self, slot: Slot) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path(&slot))?;
        file.write_all_at(&[0; LENGTH_BYTES as usize], 0)?;
        self.free.push(slot);
        if self.free.len() <= MOST_FREE {
            return Ok(());
        }
        let all = self.free.iter().enumerate();
        let (least, _) = all.min_by_key(|(_, it)| it.capacity).expect("there is a free file");
        let least = self.free.swap_remove(least);
        fs::remove_file(self.path(&least))
    }

    /// Returns whether there is a file to prepare.
    pub(super) fn wants_more(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Prepares one file.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        let Some(length) = self.wanted.pop_front() else { return Ok(()) };
        let needed = LENGTH_BYTES + length + CHECKSUM_BYTES;
        if self.fitting(needed) >= READY {
            return Ok(());
        }
        let slot = self.number(needed + needed / ROOM);
        let path = self.path(&slot);
        let mut file = File::create(&path)?;
        let write =
            file.write_all(&vec![0; slot.capacity as usize]).and_then(|()| sync_with_dir(&file, &self.dir));
        if let Err(error) = write {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        self.free.push(slot);
        Ok(())
    }

    /// Returns the number of free files that can hold `needed` bytes.
    fn fitting(&self, needed: u64) -> usize {
        self.free.iter().filter(|it| it.capacity >= needed).count()
    }

    /// Creates a slot with a new number for a file of this length.
    fn number(&mut self, length: u64) -> Slot {
        let number = self.next;
        self.next += 1;
        Slot { number, capacity: length.next_multiple_of(BLOCK) }
    }

    fn path(&self, slot: &Slot) -> PathBuf {
        path(&self.dir, slot.number)
    }
}

fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number}{SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(slots: &Slots) -> usize {
        fs::read_dir(&slots.dir).unwrap().count()
    }

    fn content(slots: &Slots, slot: &Slot) -> Option<Vec<u8>> {
        slots.read(slot, false).unwrap()
    }

    #[test]
    fn a_file_is_reused_for_content_that_fits() {
        let dir = tempfile::tempdir().unwrap();
        let mut slots = Slots::new(dir.path().to_owned());
        let long = vec![7; 100_000];
        let first = slots.write(&[&long[..1], &long[1..]]).unwrap();
        assert_eq!(content(&slots, &first), Some(long.clone()));
        slots.remove(first).unwrap();
        let second = slots.write(&[b"short"]).unwrap();
        assert_eq!((files(&slots), content(&slots, &second)), (1, Some(b"short".to_vec())));
        // Content slightly longer than the first fits; content three times as long does not.
        slots.remove(second).unwrap();
        let third = slots.write(&[&[8; 101_000]]).unwrap();
        assert_eq!(files(&slots), 1);
        let fourth = slots.write(&[&long, &long, &long]).unwrap();
        assert_eq!(files(&slots), 2);
        assert_eq!(content(&slots, &third), Some(vec![8; 101_000]));
        assert_eq!(content(&slots, &fourth).map(|it| it.len()), Some(300_000));
    }

    #[test]
    fn files_are_prepared_for_contents_like_previous_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut slots = Slots::new(dir.path().to_owned());
        let state = vec![7; 50_000];
        let kept: Vec<Slot> = (0..4).map(|_| slots.write(&[&state]).unwrap()).collect();
        while slots.wants_more() {
            slots.prepare().unwrap();
        }
        assert_eq!(files(&slots), kept.len() + READY);
        let next: Vec<Slot> = (0..READY).map(|_| slots.write(&[&state]).unwrap()).collect();
        assert_eq!(files(&slots), kept.len() + READY, "the files were ready");
        assert!(next.iter().chain(&kept).all(|it| content(&slots, it) == Some(state.clone())));
    }

    #[test]
    fn the_number_of_free_files_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let mut slots = Slots::new(dir.path().to_owned());
        let all: Vec<Slot> = (0..3 * MOST_FREE).map(|_| slots.write(&[b"state"]).unwrap()).collect();
        all.into_iter().for_each(|it| slots.remove(it).unwrap());
        assert_eq!(files(&slots), MOST_FREE);
    }

    #[test]
    fn short_files_do_not_prevent_the_preparation_of_longer_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut slots = Slots::new(dir.path().to_owned());
        let short: Vec<Slot> = (0..2 * MOST_FREE).map(|_| slots.write(&[b"state"]).unwrap()).collect();
        short.into_iter().for_each(|it| slots.remove(it).unwrap());
        slots.wanted.clear();
        let kept = slots.write(&[&[7; 50_000]]).unwrap();
        while slots.wants_more() {
            slots.prepare().unwrap();
        }
        let before = files(&slots);
        let next = slots.write(&[&[8; 51_000]]).unwrap();
        assert_eq!(files(&slots), before, "a file was ready");
        // If there are too many files, the longest are kept.
        slots.remove(next).unwrap();
        slots.remove(kept).unwrap();
        assert!(files(&slots) <= MOST_FREE + READY && slots.fitting(50_000) >= READY);
    }

    #[test]
    fn incomplete_content_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let mut slots = Slots::new(dir.path().to_owned());
        let slot = slots.write(&[&[7; 9000]]).unwrap();
        assert_eq!(slots.read(&slot, true).unwrap(), None);
        let file = OpenOptions::new().write(true).open(slots.path(&slot)).unwrap();
        for (bytes, at) in [(&[9][..], 5000), (&[0xff; 8], 0), (&[0; 8], 0)] {
            let whole = fs::read(slots.path(&slot)).unwrap();
            file.write_all_at(bytes, at).unwrap();
            assert_eq!(content(&slots, &slot), None, "{bytes:?} at {at}");
            file.write_all_at(&whole, 0).unwrap();
            assert!(content(&slots, &slot).is_some());
        }
        for length in [5000, 3, 0] {
            file.set_len(length).unwrap();
            assert_eq!(content(&slots, &slot), None);
        }
    }
}
