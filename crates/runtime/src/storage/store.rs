//! Images and records in a directory, or in memory.
//!
//! | file | content |
//! | --- | --- |
//! | `5.slot` | an image, which contains its own name, or no content ([`Slots`]) |
//! | `2-7.record` | the record of life 2 with version 7 |
//! | `reported` | images and records that were reported to a process as durable, one per line |
//!
//! Every write is synced before it is reported, and so is the directory of a new file. A crash may leave an
//! image or a record that is incomplete, or complete but not reported. A life therefore begins by removing
//! everything that the journal `reported` does not list. The journal itself is not synced: it protects
//! against crashes of processes, not of the machine.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use faultline_core::application::Wire;
use faultline_core::{Image, ImageName, Life};
use thiserror::Error;

use super::files::{sync_with_dir, write_all_vectored};
use super::slots::{Slot, Slots};
use crate::codec::{CodecError, decode_image, encode_image};

const JOURNAL: &str = "reported";
const DRAFT: &str = "draft";

/// Storage failures.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    #[error("cannot start the storage's thread: {0}")]
    Thread(io::Error),
    #[error("cannot open the storage at {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("the storage at {} was removed while no process used it", path.display())]
    Gone { path: PathBuf },
    #[error("cannot write {what}: {source}")]
    Write { what: String, source: io::Error },
    #[error("cannot read {what}: {source}")]
    Read { what: String, source: io::Error },
    #[error("cannot remove {what}: {source}")]
    Remove { what: String, source: io::Error },
    #[error("{what} fails its checksum")]
    Checksum { what: String },
    #[error("cannot decode {what}: {source}")]
    Codec { what: String, source: CodecError },
}

/// Returns whether a life has opened storage in `dir`.
pub(super) fn exists(dir: &Path) -> bool {
    dir.join(JOURNAL).exists()
}

/// Storage for images and records.
pub(super) enum Store<H, V> {
    Memory(BTreeMap<ImageName, Arc<Image<H, V>>>),
    Disk(Disk<H>),
}

/// Opened storage, in the state in which earlier lives left it.
pub(super) struct Opened<H, V> {
    pub(super) store: Store<H, V>,
    pub(super) journal: DurabilityLog,
    /// The newest record of the earlier lives, if any.
    pub(super) record: Option<Arc<[u8]>>,
}

/// The storage in a node's directory.
pub(super) struct Disk<H> {
    dir: PathBuf,
    life: Life,
    slots: Slots,
    index: BTreeMap<ImageName, (Arc<H>, Slot)>,
    /// Existing records, oldest first.
    records: Vec<(Life, u64)>,
}

/// Lists everything that has been reported durable, in a file for the next life.
pub(crate) struct DurabilityLog {
    life: Life,
    file: Option<File>,
    unwritten: String,
}

impl DurabilityLog {
    /// Adds an image that is about to be reported.
    pub(crate) fn image(&mut self, name: ImageName) {
        self.line(image_line(name));
    }

    /// Adds a record that is about to be reported.
    pub(crate) fn record(&mut self, version: u64) {
        self.line(record_file(self.life, version));
    }

    /// Hands the entries to the operating system.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.as_mut().filter(|_| !self.unwritten.is_empty()) {
            file.write_all(self.unwritten.as_bytes())?;
            self.unwritten.clear();
        }
        Ok(())
    }

    fn line(&mut self, file: String) {
        if self.file.is_some() {
            self.unwritten += &file;
            self.unwritten.push('\n');
        }
    }
}

impl<H: Wire, V: Wire> Store<H, V> {
    /// Creates storage that is lost with its process.
    pub(super) fn in_memory() -> Opened<H, V> {
        let journal = DurabilityLog { life: Life(0), file: None, unwritten: String::new() };
        Opened { store: Store::Memory(BTreeMap::new()), journal, record: None }
    }

    /// Opens the storage in `dir`, in the state that was reported to the lives before `life`, with their newest record.
    pub(super) fn on_disk(dir: PathBuf, life: Life) -> Result<Opened<H, V>, StoreError> {
        let opened = open::<H, V>(&dir, life).map_err(|source| StoreError::Open { path: dir, source })?;
        let (disk, journal) = opened;
        let record = disk.records.last().map(|&(life, version)| {
            let what = record_file(life, version);
            let bytes = read_checked(&disk.dir.join(&what), &what)?;
            Ok(bytes.into())
        });
        Ok(Opened { store: Store::Disk(disk), journal, record: record.transpose()? })
    }

    /// Writes an image durably.
    pub(super) fn persist(&mut self, image: Arc<Image<H, V>>) -> Result<(), StoreError> {
        match self {
            Store::Memory(images) => {
                images.insert(image.name, image);
            }
            Store::Disk(disk) => {
                let body = encode_image(&*image);
                let mut pieces = vec![&body.head[..]];
                pieces.extend(body.tail.iter().map(|piece| &piece[..]));
                let what = || image.name.to_string();
                let slot =
                    disk.slots.write(&pieces).map_err(|source| StoreError::Write { what: what(), source })?;
                if let Some((_, old)) = disk.index.insert(image.name, (image.head.clone(), slot)) {
                    disk.slots.remove(old).map_err(|source| StoreError::Remove { what: what(), source })?;
                }
            }
        }
        Ok(())
    }

    /// Returns an image; `None` if it does not exist. Fails if the image is damaged. With `corrupt`, flips one bit of
    /// the data that was read, so that the image counts as damaged; in memory, the image counts as missing instead.
    pub(super) fn read(
        &self,
        name: ImageName,
        corrupt: bool,
    ) -> Result<Option<Arc<Image<H, V>>>, StoreError> {
        match self {
            Store::Memory(images) => Ok(images.get(&name).filter(|_| !corrupt).cloned()),
            Store::Disk(disk) => {
                let Some((_, slot)) = disk.index.get(&name) else { return Ok(None) };
                let what = name.to_string();
                match disk.slots.read(slot, corrupt) {
                    Ok(Some(body)) => match decode_image(&body) {
                        Ok(image) => Ok(Some(Arc::new(image))),
                        Err(source) => Err(StoreError::Codec { what, source }),
                    },
                    Ok(None) => Err(StoreError::Checksum { what }),
                    Err(source) => Err(StoreError::Read { what, source }),
                }
            }
        }
    }

    /// Returns the names and heads of all images, ascending by name.
    pub(super) fn list(&self) -> Vec<(ImageName, Arc<H>)> {
        match self {
            Store::Memory(images) => images.iter().map(|(&name, image)| (name, image.head.clone())).collect(),
            Store::Disk(disk) => disk.index.iter().map(|(&name, (head, _))| (name, head.clone())).collect(),
        }
    }

    /// Removes an image if it exists.
    pub(super) fn delete(&mut self, name: ImageName) -> Result<(), StoreError> {
        match self {
            Store::Memory(images) => {
                images.remove(&name);
                Ok(())
            }
            Store::Disk(disk) => match disk.index.remove(&name) {
                Some((_, slot)) => disk
                    .slots
                    .remove(slot)
                    .map_err(|source| StoreError::Remove { what: name.to_string(), source }),
                None => Ok(()),
            },
        }
    }

    /// Returns whether there is a file to prepare for a later write.
    pub(super) fn wants_preparation(&self) -> bool {
        matches!(self, Store::Disk(disk) if disk.slots.wants_more())
    }

    /// Prepares a file for a later write.
    pub(super) fn prepare(&mut self) -> Result<(), StoreError> {
        let Store::Disk(disk) = self else { return Ok(()) };
        disk.slots
            .prepare()
            .map_err(|source| StoreError::Write { what: "a preallocated file".into(), source })
    }

    /// Writes a record durably, without removing its predecessor.
    pub(super) fn record(&mut self, version: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if let Store::Disk(disk) = self {
            disk.write(record_file(disk.life, version), bytes)?;
            disk.records.push((disk.life, version));
        }
        Ok(())
    }

    /// Removes the records that precede a reported one.
    pub(super) fn forget_records_before(&mut self, version: u64) -> Result<(), StoreError> {
        let Store::Disk(disk) = self else { return Ok(()) };
        let (old, kept) = disk.records.iter().partition(|&&record| record < (disk.life, version));
        disk.records = kept;
        let old: Vec<_> = old;
        old.into_iter().try_for_each(|(life, version)| disk.remove(record_file(life, version)))
    }
}

impl<H> Disk<H> {
    /// Writes a new file and waits until it is durable.
    fn write(&self, what: String, bytes: &[u8]) -> Result<(), StoreError> {
        let write = || {
            let mut file = File::create(self.dir.join(&what))?;
            let checksum = crc32c::crc32c(bytes).to_le_bytes();
            write_all_vectored(&mut file, &mut [IoSlice::new(bytes), IoSlice::new(&checksum)])?;
            sync_with_dir(&file, &self.dir)
        };
        write().map_err(|source| StoreError::Write { what, source })
    }

    fn remove(&self, what: String) -> Result<(), StoreError> {
        fs::remove_file(self.dir.join(&what)).map_err(|source| StoreError::Remove { what, source })
    }
}

/// Opens a directory, and removes everything that was never reported.
fn open<H: Wire, V: Wire>(dir: &Path, life: Life) -> io::Result<(Disk<H>, DurabilityLog)> {
    fs::create_dir_all(dir)?;
    let journal = match fs::read_to_string(dir.join(JOURNAL)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    // An incomplete last line was being written when the process failed.
    let reported: Vec<&str> =
        journal.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).collect();
    let slots = Slots::new(dir.to_owned());
    let mut disk = Disk { dir: dir.to_owned(), life, slots, index: BTreeMap::new(), records: Vec::new() };
    let mut kept = String::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let file = entry.file_name();
        let file = file.to_string_lossy();
        if file == JOURNAL {
            continue;
        }
        if let Some(slot) = disk.slots.adopt(&file)? {
            match read_head::<H, V>(&disk.slots, &slot)? {
                Some((name, head))
                    if reported.contains(&&*image_line(name)) && !disk.index.contains_key(&name) =>
                {
                    kept += &image_line(name);
                    kept.push('\n');
                    disk.index.insert(name, (Arc::new(head), slot));
                }
                _ => fs::remove_file(entry.path())?,
            }
        } else if let Some(record) = parse_record(&file).filter(|_| reported.contains(&&*file)) {
            kept += &file;
            kept.push('\n');
            disk.records.push(record);
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    disk.records.sort_unstable();
    let draft = dir.join(DRAFT);
    fs::write(&draft, &kept)?;
    fs::rename(&draft, dir.join(JOURNAL))?;
    let file = OpenOptions::new().append(true).open(dir.join(JOURNAL))?;
    Ok((disk, DurabilityLog { life, file: Some(file), unwritten: String::new() }))
}

/// Returns the name and the head of the image in a file; `None` if the file is empty or damaged.
fn read_head<H: Wire, V: Wire>(slots: &Slots, slot: &Slot) -> io::Result<Option<(ImageName, H)>> {
    let Some(body) = slots.read(slot, false)? else { return Ok(None) };
    match decode_image::<H, V>(&body) {
        Ok(image) => Ok(Some((image.name, (*image.head).clone()))),
        Err(error) => {
            tracing::warn!(%error, "an image cannot be read");
            Ok(None)
        }
    }
}

fn read_checked(path: &Path, what: &str) -> Result<Vec<u8>, StoreError> {
    let mut bytes = fs::read(path).map_err(|source| StoreError::Read { what: what.to_owned(), source })?;
    let body = checked(&bytes).ok_or_else(|| StoreError::Checksum { what: what.to_owned() })?.len();
    bytes.truncate(body);
    Ok(bytes)
}

/// Returns the bytes before the checksum if the checksum matches.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (body, checksum) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(body) == u32::from_le_bytes(*checksum)).then_some(body)
}

/// Returns the journal's line for an image.
fn image_line(name: ImageName) -> String {
    format!("{}-{}-{}-{}.image", name.owner, name.incarnation.0, name.sn.0, name.attempt.0)
}

fn record_file(life: Life, version: u64) -> String {
    format!("{}-{version}.record", life.0)
}

fn parse_record(file: &str) -> Option<(Life, u64)> {
    let (life, version) = file.strip_suffix(".record")?.split_once('-')?;
    Some((Life(life.parse().ok()?), version.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Attempt, Chunk, Incarnation, ProcessId, Sn, Snapshot, Witness};
    use tempfile::TempDir;

    type Probe = Store<u32, String>;

    fn image(number: u32) -> Arc<Image<u32, String>> {
        let owner = ProcessId(3);
        let chunks =
            [Chunk::Bytes(vec![number as u8; 5000].into()), Chunk::Virtual(7), Chunk::Bytes([].into())];
        Arc::new(Image {
            name: ImageName { owner, incarnation: Incarnation(1), sn: Sn(number), attempt: Attempt(1) },
            head: Arc::new(number),
            saved: Arc::new(format!("state {number}")),
            snapshot: Snapshot {
                witness: Witness { sent: 5, ..Witness::default() },
                channels: [(ProcessId(1), 9)].into(),
                application: chunks.into(),
            },
        })
    }

    fn open(dir: &TempDir, life: u32) -> Opened<u32, String> {
        Probe::on_disk(dir.path().join("store"), Life(life)).unwrap()
    }

    fn listed(store: &Probe) -> Vec<u32> {
        store.list().into_iter().map(|(_, head)| *head).collect()
    }

    /// Stores images, and adds them to the journal.
    fn report(store: &mut Probe, journal: &mut DurabilityLog, numbers: &[u32]) {
        for &number in numbers {
            store.persist(image(number)).unwrap();
            journal.image(image(number).name);
        }
        journal.flush().unwrap();
    }

    #[test]
    fn the_next_life_finds_exactly_the_reported_images() {
        let dir = tempfile::tempdir().unwrap();
        let Opened { mut store, mut journal, record } = open(&dir, 1);
        assert_eq!(record, None);
        for number in 1..=4 {
            store.persist(image(number)).unwrap();
        }
        assert_eq!(listed(&store), [1, 2, 3, 4]);
        journal.image(image(2).name);
        journal.image(image(4).name);
        journal.flush().unwrap();
        store.delete(image(4).name).unwrap();
        journal.image(image(3).name);
        fs::write(dir.path().join("store").join(DRAFT), "half an image").unwrap();

        let Opened { store, .. } = open(&dir, 2);
        assert_eq!(listed(&store), [2], "1 was not reported, 3 not yet, 4 was removed");
        assert_eq!(store.read(image(2).name, false).unwrap(), Some(image(2)));
        assert_eq!(store.read(image(3).name, false).unwrap(), None);
        let files: Vec<_> =
            fs::read_dir(dir.path().join("store")).unwrap().map(|file| file.unwrap()).collect();
        assert_eq!(files.len(), 2, "{files:?}");
        // The life after that finds the same image.
        assert_eq!(listed(&open(&dir, 3).store), [2]);
    }

    #[test]
    fn an_incomplete_last_line_of_the_journal_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let Opened { mut store, mut journal, .. } = open(&dir, 1);
        report(&mut store, &mut journal, &[1, 2]);
        let path = dir.path().join("store").join(JOURNAL);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 1]).unwrap();
        assert_eq!(listed(&open(&dir, 2).store), [1]);
    }

    #[test]
    fn the_newest_reported_record_counts() {
        let dir = tempfile::tempdir().unwrap();
        let Opened { mut store, mut journal, .. } = open(&dir, 1);
        for version in 1..=3_u8 {
            store.record(version.into(), &[version]).unwrap();
        }
        journal.record(1);
        journal.record(2);
        journal.flush().unwrap();
        store.forget_records_before(2).unwrap();
        let Opened { mut store, mut journal, record } = open(&dir, 2);
        assert_eq!(record.as_deref(), Some(&[2][..]), "3 was written but not reported, 1 was replaced");
        // Each life numbers its versions from 1.
        store.record(1, &[9]).unwrap();
        journal.record(1);
        journal.flush().unwrap();
        assert_eq!(open(&dir, 3).record.as_deref(), Some(&[9][..]));
    }

    #[test]
    fn a_damaged_image_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let Opened { mut store, mut journal, .. } = open(&dir, 1);
        report(&mut store, &mut journal, &[1, 2]);
        assert!(matches!(store.read(image(1).name, true), Err(StoreError::Checksum { .. })));
        // Files are numbered in the order of their first use.
        let path = dir.path().join("store/0.slot");
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 4;
        fs::write(&path, bytes).unwrap();
        assert!(matches!(store.read(image(1).name, false), Err(StoreError::Checksum { .. })));
        assert_eq!(listed(&open(&dir, 2).store), [2]);
    }

    #[test]
    fn removed_content_does_not_reappear() {
        let dir = tempfile::tempdir().unwrap();
        let Opened { mut store, mut journal, .. } = open(&dir, 1);
        report(&mut store, &mut journal, &[1, 2]);
        store.delete(image(1).name).unwrap();
        assert_eq!(listed(&open(&dir, 2).store), [2]);

        let Opened { mut store, .. } = open(&dir, 3);
        store.delete(image(2).name).unwrap();
        store.persist(image(3)).unwrap();
        assert_eq!(listed(&store), [3]);
        assert_eq!(store.read(image(3).name, false).unwrap(), Some(image(3)));
        assert_eq!(listed(&open(&dir, 4).store), [0; 0], "3 was not reported, 2 was removed");
    }

    #[test]
    fn an_image_may_be_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let Opened { mut store, mut journal, .. } = open(&dir, 1);
        report(&mut store, &mut journal, &[1]);
        store.persist(image(1)).unwrap();
        assert_eq!(store.read(image(1).name, false).unwrap(), Some(image(1)));
        assert_eq!(listed(&open(&dir, 2).store), [1]);
    }

    #[test]
    fn memory_keeps_images_unchanged() {
        let Opened { mut store, .. } = Probe::in_memory();
        store.persist(image(1)).unwrap();
        store.persist(image(2)).unwrap();
        store.delete(image(1).name).unwrap();
        assert_eq!(listed(&store), [2]);
        assert_eq!(store.read(image(2).name, false).unwrap(), Some(image(2)));
        assert_eq!(store.read(image(2).name, true).unwrap(), None);
    }
}
