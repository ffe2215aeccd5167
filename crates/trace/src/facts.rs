//! The file of one life's facts: append-only, written by the process itself, and readable after a kill at any point.
//!
//! A file consists of a header, one record per fact, and a seal:
//!
//! | part | bytes | content |
//! | --- | --- | --- |
//! | header | 8 | `FLFACTS` and the format's version |
//! | | 4 + 4 | process and life, little-endian |
//! | record | 4 | length of the body in the lower three bytes, their check byte in the upper one; little-endian |
//! | | 4 | CRC32C of the body, little-endian |
//! | | length | postcard encoding of `(Time, Fact)` |
//! | seal | 48 | number of facts, and a digest over all of them ([`crate::seal`]) |
//!
//! The length has its own check byte, so that an incomplete record can be distinguished from a damaged one. A
//! killed process leaves no seal: the supervisor removes an incomplete record, whose fact had no effect yet,
//! and seals the rest.

use std::io::{self, Write};

use faultline_core::{Fact, Life, ProcessId, Time};
use serde::Serialize;
use thiserror::Error;

use crate::memory::Stream;
use crate::seal::{MARK, SEAL_LEN, Seal, SealedBy, Sealer};

const MAGIC: [u8; 8] = *b"FLFACTS\x04";
pub(crate) const HEADER_LEN: usize = 16;
const RECORD_HEADER_LEN: usize = 8;
const LONGEST_BODY: usize = 0x00FF_FFFF;
/// The size in bytes at which the buffer is flushed automatically.
const FLUSH_AT: usize = 64 * 1024;
/// The number of written bytes at which the buffer is added to the seal's digest. Adding many short pieces would take
/// several times as long, and a process writes a piece before each message.
const DIGEST_AT: usize = 16 * 1024;

/// Writes the facts of one life. The writer is buffered: a process flushes before any externally visible
/// action, so that a fact with visible effects is never lost with the process.
#[derive(Debug)]
pub struct FactsWriter<W: Write> {
    out: W,
    /// Bytes that are not part of the digest yet.
    buffer: Vec<u8>,
    /// How many of these bytes have been written.
    written: usize,
    facts: u64,
    sealer: Sealer,
}

impl<W: Write> FactsWriter<W> {
    /// Creates a writer, and begins the file with its header.
    pub fn new(out: W, process: ProcessId, life: Life) -> Self {
        let mut buffer = Vec::with_capacity(4096);
        buffer.extend(MAGIC);
        buffer.extend(process.0.to_le_bytes());
        buffer.extend(life.0.to_le_bytes());
        FactsWriter { out, buffer, written: 0, facts: 0, sealer: Sealer::default() }
    }

    /// Continues a file whose content so far, `bytes`, contains `facts` facts. `out` receives everything that
    /// follows.
    pub(crate) fn resume(out: W, bytes: &[u8], facts: u64) -> Self {
        let mut sealer = Sealer::default();
        sealer.update(bytes);
        FactsWriter { out, buffer: Vec::with_capacity(4096), written: 0, facts, sealer }
    }

    /// Appends a fact that was reported at time `at` on its driver's clock.
    ///
    /// # Errors
    ///
    /// Fails if the fact is too long for a record, or if a full buffer could not be written.
    pub fn write(&mut self, at: Time, fact: &Fact) -> io::Result<()> {
        append_record(&mut self.buffer, &(at, fact))?;
        self.facts += 1;
        if self.buffer.len() - self.written >= FLUSH_AT { self.flush() } else { Ok(()) }
    }

    /// Hands everything to the operating system, which keeps it even if the process is killed.
    ///
    /// # Errors
    ///
    /// Fails if the buffer could not be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer[self.written..])?;
        self.written = self.buffer.len();
        if self.written >= DIGEST_AT {
            self.add_to_digest();
        }
        self.out.flush()
    }

    fn add_to_digest(&mut self) {
        self.sealer.update(&self.buffer);
        self.buffer.clear();
        self.written = 0;
    }

    /// Flushes, and ends the stream with its seal. Nothing may be written afterwards.
    ///
    /// # Errors
    ///
    /// Fails if the buffer or the seal could not be written.
    pub fn seal(&mut self) -> io::Result<()> {
        self.flush()?;
        self.add_to_digest();
        self.out.write_all(&self.sealer.seal(SealedBy::Process, self.facts, false).to_bytes())?;
        self.out.flush()
    }
}

/// How the facts of a file end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The file ends with a valid seal.
    Sealed(Seal),
    /// The seal does not match the preceding bytes.
    BrokenSeal(Seal),
    /// Additional bytes follow the seal.
    AfterSeal,
    /// The file ends with a complete record. The process is still running or was killed, and its stream has not been
    /// sealed.
    Unsealed,
    /// The file ends in the middle of a record or of the seal. The process was killed while writing it.
    Torn,
    /// The facts end at a damaged record or seal. Facts may be missing.
    Damaged,
}

/// The reason why bytes do not begin with a complete record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The bytes end before the record does.
    Torn,
    /// The record was changed.
    Damaged,
}

/// The content of a facts file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactsFile {
    /// The process that reported the facts.
    pub process: ProcessId,
    /// The life that reported the facts.
    pub life: Life,
    /// The facts, up to the first incomplete or damaged record.
    pub stream: Stream,
    /// The length in bytes of the header and the intact records, without the seal.
    pub len: u64,
    /// How the facts end.
    pub end: StreamEnd,
}

/// The reason why a file is not a facts file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FactsReadError {
    /// The file ends within the header.
    #[error("the header is incomplete")]
    Header,
    /// The file does not begin with the magic bytes of a facts file.
    #[error("the header is invalid")]
    Magic,
    /// The file has another format version.
    #[error("the format version is {0}, but this program reads version {version}", version = MAGIC[7])]
    Version(u8),
}

/// Parses a facts file.
///
/// # Errors
///
/// Fails if the header is missing or wrong. An incomplete or damaged record is not an error; see
/// [`FactsFile::end`].
pub fn read_facts(bytes: &[u8]) -> Result<FactsFile, FactsReadError> {
    let ((process, life), mut rest) = split_header(bytes)?;
    let mut stream = Stream::new();
    let end = loop {
        if rest.is_empty() {
            break StreamEnd::Unsealed;
        }
        if MARK.starts_with(&rest[..rest.len().min(MARK.len())]) {
            break read_seal(bytes, rest, stream.len() as u64);
        }
        match split_record(rest) {
            Ok((record, others)) => {
                stream.push(record);
                rest = others;
            }
            Err(Cut::Torn) => break StreamEnd::Torn,
            Err(Cut::Damaged) => break StreamEnd::Damaged,
        }
    };
    let len = (bytes.len() - rest.len()) as u64;
    Ok(FactsFile { process, life, stream, len, end })
}

/// Splits off the header, which states the life to which the file belongs.
pub(crate) fn split_header(bytes: &[u8]) -> Result<((ProcessId, Life), &[u8]), FactsReadError> {
    let (header, rest) = bytes.split_at_checked(HEADER_LEN).ok_or(FactsReadError::Header)?;
    if header[..7] != MAGIC[..7] {
        return Err(FactsReadError::Magic);
    }
    if header[7] != MAGIC[7] {
        return Err(FactsReadError::Version(header[7]));
    }
    Ok(((ProcessId(number(&header[8..12])), Life(number(&header[12..16]))), rest))
}

/// Parses the seal at the beginning of `rest`, the tail of `bytes`. `facts` is the number of facts before the
/// seal.
fn read_seal(bytes: &[u8], rest: &[u8], facts: u64) -> StreamEnd {
    let Some((seal, after)) = rest.split_first_chunk::<SEAL_LEN>() else { return StreamEnd::Torn };
    let Some(seal) = Seal::from_bytes(seal) else { return StreamEnd::Damaged };
    let mut sealer = Sealer::default();
    sealer.update(&bytes[..bytes.len() - rest.len()]);
    match sealer.seal(seal.by, facts, seal.incomplete) == seal {
        false => StreamEnd::BrokenSeal(seal),
        true if after.is_empty() => StreamEnd::Sealed(seal),
        true => StreamEnd::AfterSeal,
    }
}

/// Returns the seal with which the supervisor closes an unsealed stream after its last complete record; `None` if the
/// stream is already sealed.
pub(crate) fn seal_of(bytes: &[u8], file: &FactsFile, incomplete: bool) -> Option<Seal> {
    let is_damaged = match file.end {
        StreamEnd::Sealed(_) => return None,
        StreamEnd::Unsealed | StreamEnd::Torn => false,
        StreamEnd::Damaged | StreamEnd::BrokenSeal(_) | StreamEnd::AfterSeal => true,
    };
    let mut sealer = Sealer::default();
    sealer.update(&bytes[..file.len as usize]);
    Some(sealer.seal(SealedBy::Supervisor, file.stream.len() as u64, incomplete || is_damaged))
}

/// Splits off the first record of `bytes`. Returns it together with the rest.
pub(crate) fn split_record(bytes: &[u8]) -> Result<((Time, Fact), &[u8]), Cut> {
    let (body, rest) = split_body(bytes)?;
    let fact = postcard::from_bytes(body).map_err(|_| Cut::Damaged)?;
    Ok((fact, rest))
}

/// Appends one record.
///
/// # Errors
///
/// Fails if the encoded value exceeds the longest permitted record.
///
/// # Panics
///
/// Panics if the value cannot be encoded.
pub fn append_record(buffer: &mut Vec<u8>, value: &impl Serialize) -> io::Result<()> {
    let start = buffer.len();
    buffer.extend([0; RECORD_HEADER_LEN]);
    *buffer = postcard::to_extend(value, std::mem::take(buffer))
        .expect("a recorded value can be encoded, and memory accepts every write");
    let (header, body) = buffer[start..].split_at_mut(RECORD_HEADER_LEN);
    if body.len() > LONGEST_BODY {
        let error = format!("a record of {} bytes exceeds the limit of {LONGEST_BODY} bytes", body.len());
        buffer.truncate(start);
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    header[..4].copy_from_slice(&checked_length(body.len()));
    header[4..].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    Ok(())
}

/// Splits off the body of the first record of `bytes`. Returns it together with the rest after the record.
///
/// # Errors
///
/// Returns [`Cut::Torn`] if `bytes` is empty or ends before the record does, and [`Cut::Damaged`] if a check byte or
/// checksum does not match.
///
/// # Panics
///
/// Never panics: the length consists of exactly four bytes.
pub fn split_body(bytes: &[u8]) -> Result<(&[u8], &[u8]), Cut> {
    let length: [u8; 4] = bytes.get(..4).ok_or(Cut::Torn)?.try_into().expect("four bytes");
    let body_len = (u32::from_le_bytes(length) as usize) & LONGEST_BODY;
    if checked_length(body_len) != length {
        return Err(Cut::Damaged);
    }
    let (record, rest) = bytes.split_at_checked(RECORD_HEADER_LEN + body_len).ok_or(Cut::Torn)?;
    let body = &record[RECORD_HEADER_LEN..];
    if crc32c::crc32c(body) != number(&record[4..8]) {
        return Err(Cut::Damaged);
    }
    Ok((body, rest))
}

/// Returns a length below 2^24 with a check byte that detects every change of a single bit.
fn checked_length(len: usize) -> [u8; 4] {
    let [a, b, c, _] = (len as u32).to_le_bytes();
    [a, b, c, !(a ^ b.rotate_left(3) ^ c.rotate_left(6))]
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Incarnation, MessageId};

    fn facts() -> Stream {
        (0..5)
            .map(|number| {
                let id =
                    MessageId { from: ProcessId(1), to: ProcessId(2), incarnation: Incarnation(0), number };
                (Time(u64::from(number) * 1_000_000_007), Fact::Sent { id, bytes: 64 })
            })
            .chain([(Time(9), Fact::Begun)])
            .collect()
    }

    fn file(stream: &Stream) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = FactsWriter::new(&mut bytes, ProcessId(7), Life(2));
        stream.iter().for_each(|(at, fact)| writer.write(*at, fact).unwrap());
        writer.seal().unwrap();
        bytes
    }

    /// Returns the content of a file without its seal.
    fn open(stream: &Stream) -> Vec<u8> {
        let whole = file(stream);
        whole[..whole.len() - SEAL_LEN].to_vec()
    }

    #[test]
    fn facts_are_read_as_written() {
        let bytes = file(&facts());
        let read = read_facts(&bytes).unwrap();
        let StreamEnd::Sealed(seal) = read.end else { panic!("{:?}", read.end) };
        assert_eq!((seal.by, seal.facts, seal.incomplete), (SealedBy::Process, 6, false));
        assert_eq!(read.len, (bytes.len() - SEAL_LEN) as u64);
        assert_eq!((read.process, read.life, read.stream), (ProcessId(7), Life(2), facts()));
    }

    #[test]
    fn a_seal_covers_everything_before_and_after_a_flush_or_a_restart() {
        let stream = facts();
        let mut bytes = Vec::new();
        let mut writer = FactsWriter::new(&mut bytes, ProcessId(7), Life(2));
        for (at, fact) in &stream[..3] {
            writer.write(*at, fact).unwrap();
            writer.flush().unwrap();
        }
        let mut rest = Vec::new();
        let mut writer = FactsWriter::resume(&mut rest, &bytes, 3);
        stream[3..].iter().for_each(|(at, fact)| writer.write(*at, fact).unwrap());
        writer.seal().unwrap();
        assert_eq!([bytes, rest].concat(), file(&stream));
    }

    #[test]
    fn a_seal_covers_many_pieces_like_one() {
        let stream: Stream = (0..400).flat_map(|_| facts().to_vec()).collect();
        let whole = file(&stream);
        assert!(whole.len() > 2 * DIGEST_AT);
        let mut pieces = Vec::new();
        let mut writer = FactsWriter::new(&mut pieces, ProcessId(7), Life(2));
        for (at, fact) in &stream {
            writer.write(*at, fact).unwrap();
            writer.flush().unwrap();
        }
        writer.seal().unwrap();
        assert_eq!(pieces, whole);
    }

    #[test]
    fn no_record_begins_like_a_seal() {
        let len = u32::from_le_bytes(MARK[..4].try_into().unwrap()) as usize & LONGEST_BODY;
        assert_ne!(checked_length(len), MARK[..4]);
    }

    #[test]
    fn a_stream_without_a_seal_is_sealed_after_its_last_complete_record() {
        let whole = open(&facts());
        for cut in HEADER_LEN..=whole.len() {
            let bytes = &whole[..cut];
            let read = read_facts(bytes).unwrap();
            let seal = seal_of(bytes, &read, false).unwrap();
            let sealed = [&bytes[..read.len as usize], &seal.to_bytes()].concat();
            let again = read_facts(&sealed).unwrap();
            assert_eq!(again.end, StreamEnd::Sealed(seal));
            assert_eq!((seal.by, seal.incomplete), (SealedBy::Supervisor, false));
            assert_eq!((again.stream, seal.facts), (read.stream.clone(), read.stream.len() as u64));
            assert_eq!(seal_of(&sealed, &read_facts(&sealed).unwrap(), true), None);
        }
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(seal_of(&damaged, &read_facts(&damaged).unwrap(), false).unwrap().incomplete);
    }

    #[test]
    fn data_after_a_seal_is_reported() {
        let mut bytes = file(&facts());
        bytes.push(0);
        assert_eq!(read_facts(&bytes).unwrap().end, StreamEnd::AfterSeal);
    }

    #[test]
    fn a_file_cut_anywhere_keeps_the_facts_before_the_cut() {
        let whole = file(&facts());
        let boundaries: Vec<usize> =
            (0..=facts().len()).map(|n| open(&facts()[..n].to_vec()).len()).collect();
        for cut in HEADER_LEN..whole.len() {
            let read = read_facts(&whole[..cut]).unwrap();
            let kept = boundaries.iter().rposition(|&at| at <= cut).unwrap();
            assert_eq!(read.stream, facts()[..kept], "truncated to {cut} bytes");
            let end = if boundaries.contains(&cut) { StreamEnd::Unsealed } else { StreamEnd::Torn };
            assert_eq!(read.end, end, "truncated to {cut} bytes");
        }
        assert_eq!(read_facts(&whole[..HEADER_LEN - 1]), Err(FactsReadError::Header));
    }

    #[test]
    fn every_changed_bit_is_detected() {
        let whole = file(&facts());
        for bit in HEADER_LEN * 8..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let read = read_facts(&damaged).unwrap();
            let is_told = matches!(read.end, StreamEnd::Damaged | StreamEnd::BrokenSeal(_) | StreamEnd::Torn);
            assert!(is_told, "bit {bit}: {:?}", read.end);
        }
    }

    #[test]
    fn other_files_are_rejected() {
        assert_eq!(read_facts(b"{\"a\": 1, \"bcdefgh\": 2}"), Err(FactsReadError::Magic));
        let mut newer = file(&facts());
        newer[7] = 9;
        assert_eq!(read_facts(&newer), Err(FactsReadError::Version(9)));
    }

    #[test]
    fn nothing_is_written_before_a_flush() {
        let mut bytes = Vec::new();
        let mut writer = FactsWriter::new(&mut bytes, ProcessId(1), Life(1));
        writer.write(Time(1), &Fact::Begun).unwrap();
        drop(writer);
        assert!(bytes.is_empty());
    }
}
