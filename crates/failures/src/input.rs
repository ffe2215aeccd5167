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
    /// The number of this line.
    pub(crate) head_line: u64,
    bytes: Chain<Cursor<Vec<u8>>, R>,
    meter: Rc<Meter>,
}

/// Counts the lines and the bytes that a parser has read, and checks that they are UTF-8 text.
pub(crate) struct Meter {
    line: Cell<u64>,
    left: Cell<usize>,
    /// The last byte; a line break if there is none.
    last: Cell<u8>,
    /// The beginning of a character whose end has not been read, and its length.
    open: Cell<([u8; 4], usize)>,
    /// The line of the first byte that is not part of UTF-8 text.
    damaged: Cell<Option<u64>>,
}

impl Meter {
    /// Returns the line of the next byte, counted from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line.get()
    }

    /// Returns whether the last line that was read ends with a line break.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.last.get(), b'\n' | b'\r')
    }

    /// Returns the error of a file that is not UTF-8 text, as far as it was read.
    pub(crate) fn damage(&self) -> Option<ReadError> {
        let open = (self.open.get().1 > 0).then(|| self.line.get());
        self.damaged.get().or(open).map(|line| ReadError { line: Some(line), ..not_text("the file") })
    }

    /// Checks the next bytes, which begin in the current line.
    fn check(&self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.last.set(*last);
        let (open, length) = self.open.take();
        let joined: Vec<u8>;
        let text = match length {
            0 => bytes,
            _ => {
                joined = [&open[..length], bytes].concat();
                &joined
            }
        };
        let Err(error) = std::str::from_utf8(text) else { return };
        let (read, rest) = text.split_at(error.valid_up_to());
        match error.error_len() {
            None => {
                let mut open = [0; 4];
                open[..rest.len()].copy_from_slice(rest);
                self.open.set((open, rest.len()));
            }
            Some(_) if self.damaged.get().is_none() => {
                self.damaged.set(Some(self.line.get() + breaks(read)));
            }
            Some(_) => {}
        }
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
        let head_line = 1 + breaks(&start[..head]);
        let head = start[head..].trim_ascii().split(|it| *it == b'\r').next().unwrap_or_default().to_vec();
        let meter = Rc::new(Meter {
            line: Cell::new(1),
            left: Cell::new(RECORD),
            last: Cell::new(b'\n'),
            open: Cell::default(),
            damaged: Cell::default(),
        });
        Ok(Input { head, head_line, bytes: Cursor::new(start).chain(reader), meter })
    }

    pub(crate) fn meter(&self) -> Rc<Meter> {
        Rc::clone(&self.meter)
    }

    /// Returns the first line as text.
    pub(crate) fn header(&self) -> Result<&str, ReadError> {
        std::str::from_utf8(&self.head)
            .map_err(|_| ReadError { line: Some(self.head_line), ..not_text("the header") })
    }
}

/// Returns the number of line breaks: LF, CR or CRLF.
fn breaks(text: &[u8]) -> u64 {
    let ends = |at: usize| match text[at] {
        b'\n' => true,
        b'\r' => text.get(at + 1).is_some_and(|next| *next != b'\n'),
        _ => false,
    };
    (0..text.len()).filter(|at| ends(*at)).count() as u64
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
        self.meter.check(text);
        self.meter.line.set(self.meter.line.get() + breaks(text));
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
        "check that this is a failure trace, and convert it to UTF-8, for example with `iconv -f latin1 -t utf-8`",
    )
}

/// Returns the error of a file whose format is unknown.
pub(crate) fn unrecognised(head: &[u8], line: u64) -> ReadError {
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
            line,
            format!("the format is not recognised (the file begins with {})", quoted(text)),
            "name the format with `--as`; for other separated values, name the columns with `--columns`",
        ),
        Err(_) => ReadError { line: Some(line), ..not_text("the file") },
    }
}
