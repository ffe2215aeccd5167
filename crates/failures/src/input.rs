//! The beginning of a file, by which its format is recognised, and a limit on the length of its records.

use std::cell::Cell;
use std::io::{self, BufRead, Chain, Cursor, Read};
use std::rc::Rc;

use crate::error::{ReadError, quoted};

/// The maximum length of a record, in bytes. Together with the limits of [`crate::builder`], it bounds the memory that
/// a file can occupy.
const RECORD: usize = 1 << 20;
/// The maximum length of the part of a file by which its format is recognised, in bytes.
const HEAD: u64 = 1 << 16;

/// A file, read from its beginning and without a byte order mark.
pub(crate) struct Input<R> {
    /// The first line that is not blank, or the beginning of it.
    pub(crate) head: Vec<u8>,
    bytes: Chain<Cursor<Vec<u8>>, R>,
    meter: Rc<Meter>,
}

/// Counts the lines and the bytes that a parser has read.
pub(crate) struct Meter {
    line: Cell<u64>,
    left: Cell<usize>,
}

impl Meter {
    /// Returns the line of the next byte, counted from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line.get()
    }

    /// Begins a new record.
    pub(crate) fn begin_record(&self) {
        self.left.set(RECORD);
    }

    /// Returns the error of a record that is too long, if that is why reading failed.
    pub(crate) fn too_long(&self, line: u64) -> Option<ReadError> {
        let error = || {
            ReadError::at(
                line,
                "the record is longer than 1 MiB",
                "check that this is a failure trace, and that no quote or bracket is missing",
            )
        };
        (self.left.get() == 0).then(error)
    }
}

impl<R: BufRead> Input<R> {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or contains nothing but white space.
    pub(crate) fn new(mut reader: R) -> Result<Input<R>, ReadError> {
        let mut start = Vec::new();
        let mut head = 0;
        let mut from = reader.by_ref().take(HEAD);
        loop {
            head = if start.len() > head { start.len() } else { head };
            if from.read_until(b'\n', &mut start).map_err(|it| unreadable(&it))? == 0 {
                break;
            }
            if start.starts_with(b"\xEF\xBB\xBF") {
                start.drain(..3);
            }
            if start[head..].iter().any(|it| !it.is_ascii_whitespace()) {
                break;
            }
        }
        if start.iter().all(u8::is_ascii_whitespace) {
            return Err(ReadError::new("the file is empty", "specify a file with recorded failures"));
        }
        // Some programs end lines with CR alone.
        let head = start[head..].trim_ascii().split(|it| *it == b'\r').next().unwrap_or_default().to_vec();
        let meter = Rc::new(Meter { line: Cell::new(1), left: Cell::new(RECORD) });
        Ok(Input { head, bytes: Cursor::new(start).chain(reader), meter })
    }

    pub(crate) fn meter(&self) -> Rc<Meter> {
        Rc::clone(&self.meter)
    }

    /// Returns the first line as text.
    pub(crate) fn header(&self) -> Result<&str, ReadError> {
        std::str::from_utf8(&self.head).map_err(|_| not_text("the first line"))
    }
}

impl<R: BufRead> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.meter.left.get();
        if left == 0 {
            return Err(io::Error::other("the record is too long"));
        }
        let most = buffer.len().min(left);
        let read = self.bytes.read(&mut buffer[..most])?;
        self.meter.left.set(left - read);
        let text = &buffer[..read];
        let ends = |at: usize| match text[at] {
            b'\n' => true,
            b'\r' => text.get(at + 1).is_some_and(|next| *next != b'\n'),
            _ => false,
        };
        let lines = (0..read).filter(|at| ends(*at)).count();
        self.meter.line.set(self.meter.line.get() + lines as u64);
        Ok(read)
    }
}

/// Returns the error of a file that cannot be read.
pub(crate) fn unreadable(error: &io::Error) -> ReadError {
    ReadError::new(format!("the file cannot be read: {error}"), "specify a readable file, or `-`")
}

/// Returns the error of text that is not UTF-8.
pub(crate) fn not_text(what: &str) -> ReadError {
    ReadError::new(
        format!("{what} is not UTF-8 text"),
        "check that this is a failure trace, and convert it to UTF-8",
    )
}

/// Returns the error of a file whose format is unknown.
pub(crate) fn unrecognised(head: &[u8]) -> ReadError {
    const COMPRESSED: [(&[u8], &str); 4] = [
        (b"\x1F\x8B", "gzip -dc FILE | faultline traces -"),
        (b"\x28\xB5\x2F\xFD", "zstd -dc FILE | faultline traces -"),
        (b"\xFD7zXZ", "xz -dc FILE | faultline traces -"),
        (b"PK\x03\x04", "unzip -p FILE | faultline traces -"),
    ];
    if let Some((_, command)) = COMPRESSED.iter().find(|it| head.starts_with(it.0)) {
        return ReadError::new("the file is compressed", format!("decompress it first: `{command}`"));
    }
    match std::str::from_utf8(head) {
        Ok(text) => ReadError::at(
            1,
            format!("the format is not recognised (the file begins with {})", quoted(text)),
            "name the format with `--as`; for other separated values, name the columns with `--columns`",
        ),
        Err(_) => not_text("the file"),
    }
}
