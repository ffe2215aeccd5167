//! Separated values with a header.

use std::io::BufRead;
use std::rc::Rc;

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use crate::error::{ReadError, did_you_mean, quoted};
use crate::input::{Input, Meter, not_text, unreadable};

/// A table, read one row at a time.
pub(crate) struct Table<R> {
    reader: Reader<std::io::Chain<Input<R>, &'static [u8]>>,
    meter: Rc<Meter>,
    columns: Vec<String>,
    row: ByteRecord,
    row_was_read: bool,
    /// The line of the current row.
    pub(crate) line: u64,
}

/// A column that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column(usize);

/// Splits a header into the names of columns.
pub(crate) fn split(header: &str, separator: u8) -> Vec<String> {
    let mut reader =
        ReaderBuilder::new().has_headers(false).delimiter(separator).from_reader(header.as_bytes());
    let first = reader.records().next().and_then(Result::ok).unwrap_or_default();
    first.iter().map(|it| it.trim().to_owned()).collect()
}

impl<R: BufRead> Table<R> {
    pub(crate) fn new(input: Input<R>, separator: u8) -> Result<Table<R>, ReadError> {
        let meter = input.meter();
        let columns = split(input.header()?, separator);
        if let Some(twice) = columns.iter().enumerate().find(|(index, it)| columns[..*index].contains(it)) {
            let what = format!("two columns are named {}", quoted(twice.1));
            return Err(ReadError::at(1, what, "give each column a name of its own"));
        }
        // The last row ends with a line break. Only a quote that is never closed can then contain the end of the file.
        let end: &'static [u8] = b"\n";
        let reader = ReaderBuilder::new()
            .delimiter(separator)
            .buffer_capacity(1 << 16)
            .from_reader(std::io::Read::chain(input, end));
        let mut table =
            Table { reader, meter, columns, row: ByteRecord::new(), row_was_read: false, line: 1 };
        table.reader.byte_headers().map_err(|it| explain(&it, &table.meter, 1))?;
        Ok(table)
    }

    /// Returns the column with this name.
    pub(crate) fn column(&self, name: &str) -> Result<Column, ReadError> {
        self.find(name).ok_or_else(|| {
            let known: Vec<&str> = self.columns.iter().map(String::as_str).collect();
            let what = format!("the header has no column {}", quoted(name));
            ReadError::at(1, what, did_you_mean(name, &known))
        })
    }

    /// Returns the column with this name, if there is one.
    pub(crate) fn find(&self, name: &str) -> Option<Column> {
        self.columns.iter().position(|it| it == name).map(Column)
    }

    /// Returns the names of all columns.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(String::as_str)
    }

    /// Reads the next row. Returns `false` at the end of the file.
    pub(crate) fn advance(&mut self) -> Result<bool, ReadError> {
        self.meter.begin_record();
        let line = self.reader.position().line();
        let is_open = self.row.iter().next_back().is_some_and(|it| it.ends_with(b"\n"));
        let is_row = match self.reader.read_byte_record(&mut self.row) {
            Ok(is_row) => is_row,
            Err(error) => {
                let error = explain(&error, &self.meter, line);
                let is_too_long = self.meter.too_long(line).is_some();
                let is_last = || self.reader.read_byte_record(&mut ByteRecord::new()).is_ok_and(|it| !it);
                let is_cut = !is_too_long && { is_last }() && !self.meter.is_whole();
                return Err(match is_cut {
                    true => ReadError {
                        help: "fetch the complete file again: its last line is cut".to_owned(),
                        ..error
                    },
                    false => error,
                });
            }
        };
        if !is_row && is_open {
            let help = "close it, or fetch the complete file again if it was cut";
            return Err(ReadError::at(self.line, "a quote is never closed", help));
        }
        if !is_row && !self.meter.is_whole() && self.row_was_read {
            // A number or a name that was cut is a valid one.
            let what = "the last line has no line break, so it may be cut";
            let help = "fetch the complete file again; if the line is complete, add a line break";
            return Err(ReadError::at(self.line, what, help));
        }
        self.row_was_read |= is_row;
        self.line = self.row.position().map_or(line, csv::Position::line);
        Ok(is_row)
    }

    /// Returns a field of the current row, without surrounding white space.
    pub(crate) fn field(&self, column: Column) -> Result<&str, ReadError> {
        let bytes = self.row.get(column.0).unwrap_or_default();
        std::str::from_utf8(bytes)
            .map(str::trim)
            .map_err(|_| ReadError { line: Some(self.line), ..not_text(&quoted(&self.columns[column.0])) })
    }

    /// Returns the name of a column.
    pub(crate) fn name(&self, column: Column) -> &str {
        &self.columns[column.0]
    }
}

fn explain(error: &csv::Error, meter: &Meter, line: u64) -> ReadError {
    match error.kind() {
        ErrorKind::Io(error) => meter.too_long(line).unwrap_or_else(|| unreadable(error)),
        ErrorKind::UnequalLengths { pos, expected_len, len } => ReadError::at(
            pos.as_ref().map_or(line, csv::Position::line),
            format!("the row has {len} fields, but the header has {expected_len}"),
            "give every row as many fields as the header; quote a field that contains the separator, and close quotes",
        ),
        _ => ReadError::at(line, format!("the row cannot be read: {error}"), "correct or remove the row"),
    }
}
