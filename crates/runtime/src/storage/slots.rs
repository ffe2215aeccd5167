//! Files that images are written into, each of them again and again.
//!
//! | bytes | content, little-endian |
//! | --- | --- |
//! | 8 | length of the content; 0 when there is none |
//! | length | the content |
//! | 4 | CRC32C of length and content |
//! | | what is left of earlier contents |
//!
//! Writing over blocks that a file has already changes nothing that the file system notes in its journal. So it is durable
//! as soon as the disk has it, without a commit for which every writer of that disk waits: a quarter of the time, and less
//! where others write as well. Databases recycle the files of their logs for the same reason. What was removed makes room
//! for what comes, and while nothing else is to be done, files are prepared for the next contents.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::store::{sync_with_dir, write_all_vectored};

const SUFFIX: &str = ".slot";
const LENGTH_BYTES: u64 = 8;
const CHECKSUM_BYTES: u64 = 4;
/// Files are a multiple of a block long.
const BLOCK: u64 = 4096;
/// A file that is prepared is longer than the content that it is prepared after by this part of it: the next one may be.
const ROOM: u64 = 8;
/// So many files are kept ready: one for the next part of this process's own, and one for the next copy.
const READY: usize = 2;
/// Of those that were used, no more than this are kept.
const MOST_FREE: usize = 8;

/// A file with a content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slot {
    number: u32,
    capacity: u64,
}

/// The files of one directory.
#[derive(Debug)]
pub(super) struct Slots {
    dir: PathBuf,
    /// Without content.
    free: Vec<Slot>,
    /// Lengths for which files are to be prepared.
    wanted: VecDeque<u64>,
    next: u32,
}

impl Slots {
    /// The files of a directory in which none is known yet.
    pub(super) fn new(dir: PathBuf) -> Slots {
        Slots { dir, free: Vec::new(), wanted: VecDeque::new(), next: 0 }
    }

    /// The file `name` of the directory, when it is one of these.
    pub(super) fn adopt(&mut self, name: &str) -> io::Result<Option<Slot>> {
        let Some(number) = name.strip_suffix(SUFFIX).and_then(|it| it.parse().ok()) else { return Ok(None) };
        self.next = self.next.max(number + 1);
        let mut slot = Slot { number, capacity: 0 };
        slot.capacity = fs::metadata(self.path(&slot))?.len();
        Ok(Some(slot))
    }

    /// Makes a content durable.
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
            // Whatever is in it now is of no use. That it cannot be removed either is the lesser trouble.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(slot)
    }

    /// The content of a file; `None` when there is none that is intact. With `corrupt`, a bit of it is read wrongly.
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

    /// Removes a content, also for a life that begins after a crash of this process.
    pub(super) fn remove(&mut self, slot: Slot) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path(&slot))?;
        file.write_all_at(&[0; LENGTH_BYTES as usize], 0)?;
        self.free.push(slot);
        if self.free.len() <= MOST_FREE {
            return Ok(());
        }
        let all = self.free.iter().enumerate();
        let (least, _) = all.min_by_key(|(_, it)| it.capacity).expect("there are some");
        let least = self.free.swap_remove(least);
        fs::remove_file(self.path(&least))
    }

    /// Whether there is a file to be prepared.
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

    /// How many free files so long a content fits into.
    fn fitting(&self, needed: u64) -> usize {
        self.free.iter().filter(|it| it.capacity >= needed).count()
    }

    /// A new file's number and length.
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
    fn a_file_is_used_again_for_what_fits_into_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut slots = Slots::new(dir.path().to_owned());
        let long = vec![7; 100_000];
        let first = slots.write(&[&long[..1], &long[1..]]).unwrap();
        assert_eq!(content(&slots, &first), Some(long.clone()));
        slots.remove(first).unwrap();
        let second = slots.write(&[b"short"]).unwrap();
        assert_eq!((files(&slots), content(&slots, &second)), (1, Some(b"short".to_vec())));
        // A little longer than the first content fits, three times as long does not.
        slots.remove(second).unwrap();
        let third = slots.write(&[&[8; 101_000]]).unwrap();
        assert_eq!(files(&slots), 1);
        let fourth = slots.write(&[&long, &long, &long]).unwrap();
        assert_eq!(files(&slots), 2);
        assert_eq!(content(&slots, &third), Some(vec![8; 101_000]));
        assert_eq!(content(&slots, &fourth).map(|it| it.len()), Some(300_000));
    }

    #[test]
    fn files_are_prepared_for_contents_like_those_that_were() {
        let dir = tempfile::tempdir().unwrap();
        let mut slots = Slots::new(dir.path().to_owned());
        let state = vec![7; 50_000];
        let kept: Vec<Slot> = (0..4).map(|_| slots.write(&[&state]).unwrap()).collect();
        while slots.wants_more() {
            slots.prepare().unwrap();
        }
        assert_eq!(files(&slots), kept.len() + READY);
        let next: Vec<Slot> = (0..READY).map(|_| slots.write(&[&state]).unwrap()).collect();
        assert_eq!(files(&slots), kept.len() + READY, "they were ready");
        assert!(next.iter().chain(&kept).all(|it| content(&slots, it) == Some(state.clone())));
    }

    #[test]
    fn not_every_file_that_was_used_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut slots = Slots::new(dir.path().to_owned());
        let all: Vec<Slot> = (0..3 * MOST_FREE).map(|_| slots.write(&[b"state"]).unwrap()).collect();
        all.into_iter().for_each(|it| slots.remove(it).unwrap());
        assert_eq!(files(&slots), MOST_FREE);
    }

    #[test]
    fn files_that_are_too_short_do_not_keep_others_from_being_prepared() {
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
        assert_eq!(files(&slots), before, "one was ready");
        // Where there are too many, the longest are kept.
        slots.remove(next).unwrap();
        slots.remove(kept).unwrap();
        assert!(files(&slots) <= MOST_FREE + READY && slots.fitting(50_000) >= READY);
    }

    #[test]
    fn what_is_not_whole_is_no_content() {
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
