//! Failure traces: files of recorded failures, in the formats in which they are published, and their statistics.
//!
//! [`read`] parses a file in one pass and keeps only the start, the repair time, the node and the cause of each fault.
//! It refuses what it does not understand. The formats are described in `docs/failures.md`. The crate does no I/O: the
//! caller opens the file.

mod builder;
mod columns;
mod error;
mod infinitehbd;
mod input;
mod json;
mod lanl;
pub mod series;
mod spot;
pub mod statistics;
mod table;
pub mod text;
mod weibull;

use std::fmt;
use std::io::BufRead;

use faultline_core::{Span, Time};
use serde::Serialize;

pub use error::{ReadError, quoted};
pub use statistics::Statistics;

use builder::Builder;
use input::{Input, unrecognised};

/// The format of a failure trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Events of the InfiniteHBD trace, as JSON.
    InfiniteHbd,
    /// Failure records of Los Alamos National Laboratory.
    Lanl,
    /// Numbers of available spot instances, as JSON.
    Spot,
    /// Separated values with the columns `start`, `end`, `node` and `cause`.
    Csv,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 4] = [Format::InfiniteHbd, Format::Lanl, Format::Spot, Format::Csv];

    /// Returns the name of the format, as in `--as`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::InfiniteHbd => "infinitehbd",
            Format::Lanl => "lanl",
            Format::Spot => "spot",
            Format::Csv => "csv",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What to read from a file, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format; recognised by the content if `None`.
    pub format: Option<Format>,
    /// The system to read, for a LANL file with several systems.
    pub system: Option<String>,
    /// The causes to keep; all if empty.
    pub causes: Vec<String>,
    /// The number of observed nodes; those in the file if `None`.
    pub nodes: Option<usize>,
    /// Keeps faults that start at this time or later.
    pub begin: Option<Time>,
    /// Keeps faults that start before this time.
    pub end: Option<Time>,
    /// Joins faults of one node that begin within this time of the previous one.
    pub merge: Option<Span>,
    /// Other names of the columns of a CSV file.
    pub columns: Columns,
    /// Keeps the rows of a CSV file in which these columns have these values.
    pub conditions: Vec<(String, String)>,
}

/// The names of the columns of a CSV file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The column with the start of a fault.
    pub start: String,
    /// The column with the end of a fault.
    pub end: String,
    /// The column with the name of the node.
    pub node: String,
    /// The column with the cause, which may be absent.
    pub cause: String,
}

impl Default for Columns {
    fn default() -> Columns {
        let [start, end, node, cause] = ["start", "end", "node", "cause"].map(str::to_owned);
        Columns { start, end, node, cause }
    }
}

/// One recorded failure of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRecord {
    /// The time since the first fault, with which the trace begins.
    pub start: Time,
    repair: Span,
    /// The index of the node in [`FailureTrace::nodes`].
    pub node: u32,
    /// The index of the cause in [`FailureTrace::causes`].
    pub cause: u32,
}

impl FaultRecord {
    const UNKNOWN: Span = Span::MAX;

    /// Returns how long the node was unavailable, if known.
    pub fn repair(self) -> Option<Span> {
        (self.repair != FaultRecord::UNKNOWN).then_some(self.repair)
    }

    /// Returns when the node was available again, if known.
    pub fn end(self) -> Option<Time> {
        self.repair().map(|it| self.start + it)
    }

    /// Makes the fault last until `end`, if it would end earlier or at an unknown time.
    fn extend_to(&mut self, end: Option<Time>) {
        if let Some(end) = end
            && self.end().is_none_or(|it| it < end)
        {
            self.repair = end.since(self.start);
        }
    }
}

/// A file of recorded failures.
#[derive(Clone, Debug)]
pub struct FailureTrace {
    /// The format of the file.
    pub format: Format,
    /// The faults, at least one, ascending by start. Faults that start at the same time are in the order of the file.
    pub faults: Vec<FaultRecord>,
    /// The names of the nodes, by their first appearance in the file.
    pub nodes: Vec<String>,
    /// The number of observed nodes, some of which may have no fault.
    pub observed: usize,
    /// The names of the causes, by their first appearance in the file.
    pub causes: Vec<String>,
    /// The number of records in the file.
    pub records: u64,
    /// Records that could not be used: at most 1 % of the file.
    pub skipped: Vec<Skipped>,
}

/// Records that were skipped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// The reason.
    pub reason: Reason,
    /// The number of records.
    pub records: u64,
    /// The line of the first one, counted from 1.
    pub first_line: u64,
    /// The time in the first one that cannot be read, in a form that may be printed; empty for other reasons.
    #[serde(skip)]
    pub first_value: String,
}

/// Why a record was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// The record has no start.
    NoStart,
    /// The record ends before it starts.
    EndBeforeStart,
    /// A time cannot be read.
    UnreadableTime,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            Reason::NoStart => "without a start",
            Reason::EndBeforeStart => "with an end before the start",
            Reason::UnreadableTime => "with an unreadable time",
        };
        write!(f, "{} {reason}, the first in line {}", self.records, self.first_line)?;
        match self.first_value.as_str() {
            "" => Ok(()),
            value => write!(f, " (found `{value}`)"),
        }
    }
}

impl FailureTrace {
    /// Returns the time of the last start or end of a fault.
    pub fn last_event(&self) -> Time {
        self.faults.iter().map(|it| it.end().unwrap_or(it.start)).max().unwrap_or(Time::ZERO)
    }

    /// Formats the faults in the product's own form: as CSV, with times in seconds.
    ///
    /// # Panics
    ///
    /// Panics if a fault refers to a node or a cause that does not exist.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let written = (|| {
            writer.write_record(["start", "end", "node", "cause"])?;
            for it in &self.faults {
                let end = it.end().map(seconds).unwrap_or_default();
                let (node, cause) = (&self.nodes[it.node as usize], &self.causes[it.cause as usize]);
                writer.write_record([&seconds(it.start), &end, node, cause])?;
            }
            writer.into_inner().map_err(|it| csv::Error::from(it.into_error()))
        })();
        let bytes = written.expect("writing to memory does not fail");
        String::from_utf8(bytes).expect("names and numbers are text")
    }
}

/// Formats a time as decimal seconds, precisely.
fn seconds(time: Time) -> String {
    let text = format!("{}.{:09}", time.0 / 1_000_000_000, time.0 % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Reads a failure trace.
///
/// # Errors
///
/// Returns a [`ReadError`] with the line, if any part of the file cannot be understood. Up to 1 % of the records may
/// lack a usable time; these are skipped and counted.
pub fn read(reader: impl BufRead, options: &Options) -> Result<FailureTrace, ReadError> {
    let input = Input::new(reader)?;
    let format = match options.format {
        Some(format) => format,
        None => recognise(&input.head, options).ok_or_else(|| unrecognised(&input.head, input.head_line))?,
    };
    fits(format, options)?;
    let mut builder = Builder::new(format);
    let meter = input.meter();
    let read = match format {
        Format::InfiniteHbd => infinitehbd::read(input, &mut builder),
        Format::Lanl => lanl::read(input, options.system.as_deref(), &mut builder),
        Format::Spot => spot::read(input, &mut builder),
        Format::Csv => columns::read(input, options, &mut builder),
    };
    // Damaged text may have been taken for something else. Readers are ahead of the record that they refuse.
    match (read, meter.damage()) {
        (Ok(()), Some(damage)) => return Err(damage),
        (Err(error), Some(damage)) if error.line.is_none_or(|it| Some(it) > damage.line) => {
            return Err(damage);
        }
        (read, _) => read?,
    }
    builder.finish(options)
}

/// Recognises a format by the first line that is not blank.
fn recognise(head: &[u8], options: &Options) -> Option<Format> {
    match head.first()? {
        b'[' => Some(Format::InfiniteHbd),
        b'{' => Some(Format::Spot),
        _ => {
            let header = std::str::from_utf8(head).ok()?;
            if lanl::is_header(header) {
                return Some(Format::Lanl);
            }
            // These options name columns, so the file must be a table, even if it does not have these columns.
            let is_table = options.columns != Columns::default() || !options.conditions.is_empty();
            (is_table || columns::separator(header, &options.columns).is_some()).then_some(Format::Csv)
        }
    }
}

/// Refuses options that do not apply to the format.
fn fits(format: Format, options: &Options) -> Result<(), ReadError> {
    let unfit = [
        ("system", options.system.is_some(), Format::Lanl),
        ("columns", options.columns != Columns::default(), Format::Csv),
        ("where", !options.conditions.is_empty(), Format::Csv),
    ];
    match unfit.into_iter().find(|it| it.1 && it.2 != format) {
        Some((option, _, only)) => Err(ReadError::new(
            format!("`--{option}` applies only to the format {only} (found {format})"),
            format!("omit `--{option}`, or name the format with `--as`"),
        )),
        None => Ok(()),
    }
}
