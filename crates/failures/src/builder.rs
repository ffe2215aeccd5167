//! Collects the faults of a file, whatever its format: numbers nodes and causes, counts skipped records, and applies
//! the options that do not depend on the format.

use std::collections::HashMap;
use std::rc::Rc;

use faultline_core::{Span, Time};

use crate::error::{QUOTED, ReadError, did_you_mean, quoted, shortened};
use crate::{FailureTrace, FaultRecord, Format, Options, Reason, Skipped};

/// The maximum number of faults, which take 24 bytes of memory each.
const FAULTS: usize = 4_000_000;
/// The maximum length of all names of nodes or causes together, and of one name, in bytes.
const NAMES: usize = 32 << 20;
pub(crate) const NAME: usize = 256;

/// The smallest share of skipped records that is an error is one record in this many.
const TOLERATED: u64 = 100;

/// Faults in the order of the file.
pub(crate) struct Builder {
    format: Format,
    nodes: Names,
    causes: Names,
    faults: Vec<FaultRecord>,
    records: u64,
    skipped: Vec<Skipped>,
    /// The number of observed nodes, if the file states it.
    pub(crate) observed: usize,
}

/// Numbers names by their first appearance.
#[derive(Default)]
pub(crate) struct Names {
    numbers: HashMap<Rc<str>, u32>,
    names: Vec<Rc<str>>,
    bytes: usize,
}

impl Builder {
    pub(crate) fn new(format: Format) -> Builder {
        Builder {
            format,
            nodes: Names::default(),
            causes: Names::default(),
            faults: Vec::new(),
            records: 0,
            skipped: Vec::new(),
            observed: 0,
        }
    }

    /// Returns whether no record has been counted.
    pub(crate) fn is_unused(&self) -> bool {
        self.records == 0
    }

    /// Counts a record, whether it is used or skipped.
    pub(crate) fn count_record(&mut self) {
        self.records += 1;
    }

    /// Skips a record.
    pub(crate) fn skip(&mut self, reason: Reason, line: u64) {
        self.skip_value(reason, line, "");
    }

    /// Skips a record because of a time that cannot be read.
    pub(crate) fn skip_unreadable(&mut self, line: u64, time: &str) {
        self.skip_value(Reason::UnreadableTime, line, time);
    }

    fn skip_value(&mut self, reason: Reason, line: u64, value: &str) {
        match self.skipped.iter_mut().find(|it| it.reason == reason) {
            Some(it) => it.records += 1,
            None => {
                let first_value = shortened(value, QUOTED);
                self.skipped.push(Skipped { reason, records: 1, first_line: line, first_value });
            }
        }
    }

    /// Returns the number of a node. `field` is where the name was found.
    pub(crate) fn node(&mut self, line: u64, field: &str, name: &str) -> Result<u32, ReadError> {
        if name.is_empty() {
            let what = format!("{} is empty", quoted(field));
            return Err(ReadError::at(line, what, "every record needs the name of a node"));
        }
        self.nodes.number(line, field, name)
    }

    /// Returns the number of a cause. An empty name stands for `none`.
    pub(crate) fn cause(&mut self, line: u64, field: &str, name: &str) -> Result<u32, ReadError> {
        self.causes.number(line, field, if name.is_empty() { "none" } else { name })
    }

    /// Adds a fault with times in nanoseconds. Returns its index. Skips a fault that ends before it starts.
    pub(crate) fn add(
        &mut self,
        line: u64,
        (start, end): (i64, Option<i64>),
        (node, cause): (u32, u32),
    ) -> Result<Option<usize>, ReadError> {
        let repair = match end.map(|it| it.checked_sub(start)) {
            None => FaultRecord::UNKNOWN,
            Some(Some(repair @ 0..)) => Span(repair as u64),
            Some(_) => {
                self.skip(Reason::EndBeforeStart, line);
                return Ok(None);
            }
        };
        if self.faults.len() == FAULTS {
            let what = format!("the file has more than {FAULTS} faults");
            return Err(ReadError::at(line, what, "split the file"));
        }
        self.faults.push(FaultRecord { start: Time(biased(start)), repair, node, cause });
        Ok(Some(self.faults.len() - 1))
    }

    /// Sets the end of an earlier fault.
    pub(crate) fn end(&mut self, index: usize, end: i64) {
        let fault = &mut self.faults[index];
        fault.repair = Time(biased(end)).since(fault.start);
    }

    /// Removes all faults, nodes and causes, but not the count of records.
    pub(crate) fn clear(&mut self) {
        *self = Builder { records: self.records, ..Builder::new(self.format) };
    }

    /// Sorts the faults, and applies the options.
    pub(crate) fn finish(self, options: &Options) -> Result<FailureTrace, ReadError> {
        self.check_skipped()?;
        if self.faults.is_empty() {
            return Err(ReadError::new(
                "the file contains no faults",
                "specify a file with recorded failures",
            ));
        }
        let mut faults = self.faults;
        // Equal times keep the order of the file.
        faults.sort_by_key(|it| it.start);
        begin_with_first(&mut faults);
        let causes = self.causes.into_strings();
        let nodes = self.nodes.into_strings();
        let seen = nodes.len().max(self.observed);
        let observed = options.nodes.unwrap_or(seen);
        if observed < nodes.len() {
            return Err(ReadError::new(
                format!("`--nodes` is {observed}, but the file has faults on {} nodes", nodes.len()),
                format!("set `--nodes` to at least {}, or omit it", nodes.len()),
            ));
        }
        let mut trace = FailureTrace {
            format: self.format,
            faults,
            nodes,
            observed,
            causes,
            records: self.records,
            skipped: self.skipped,
        };
        trace.select(options)?;
        Ok(trace)
    }

    /// Returns how to correct the skipped records.
    fn correction(&self) -> String {
        let has_unreadable = self.skipped.iter().any(|it| it.reason == Reason::UnreadableTime);
        let times = match self.format {
            Format::InfiniteHbd => "a number of days",
            Format::Lanl => "month/day/year hour:minute, such as 6/21/2005 10:54",
            Format::Spot | Format::Csv => {
                "a number of seconds, or a date with its time zone, such as 2024-01-31T10:54:00Z (RFC 3339)"
            }
        };
        match has_unreadable {
            true => format!("write each time as {times}, or remove these records"),
            false => "correct or remove these records".to_owned(),
        }
    }

    fn check_skipped(&self) -> Result<(), ReadError> {
        let skipped: u64 = self.skipped.iter().map(|it| it.records).sum();
        if skipped * TOLERATED <= self.records {
            return Ok(());
        }
        let reasons: Vec<String> = self.skipped.iter().map(ToString::to_string).collect();
        Err(ReadError {
            line: self.skipped.iter().map(|it| it.first_line).min(),
            what: format!("{skipped} of {} records cannot be used: {}", self.records, reasons.join("; ")),
            help: format!("{}; only up to 1 % of a file is skipped", self.correction()),
        })
    }
}

/// Counts the times from the first fault, with which every trace begins: the numbers of a file may count from any instant,
/// such as 1970.
fn begin_with_first(faults: &mut [FaultRecord]) {
    let origin = faults.first().map_or(0, |it| it.start.0);
    faults.iter_mut().for_each(|it| it.start.0 -= origin);
}

impl FailureTrace {
    /// Applies the options that choose faults.
    fn select(&mut self, options: &Options) -> Result<(), ReadError> {
        if !options.causes.is_empty() {
            let known: Vec<&str> = self.causes.iter().map(String::as_str).collect();
            let number = |name: &String| {
                let unknown = || {
                    ReadError::new(
                        format!("no fault has the cause {}", quoted(name)),
                        did_you_mean(name, &known),
                    )
                };
                known.iter().position(|it| it == name).map(|it| it as u32).ok_or_else(unknown)
            };
            let wanted: Vec<u32> = options.causes.iter().map(number).collect::<Result<_, _>>()?;
            self.faults.retain(|it| wanted.contains(&it.cause));
        }
        if let Some(begin) = options.begin
            && begin > self.last_event()
        {
            let lasts = self.last_event().as_secs_f64();
            return Err(ReadError::new(
                format!(
                    "`--begin` is after the end of the trace (found {}; the last event is at {})",
                    crate::text::duration(begin.as_secs_f64()),
                    crate::text::duration(lasts)
                ),
                "write an earlier time, or omit it",
            ));
        }
        let (begin, end) = (options.begin.unwrap_or(Time::ZERO), options.end.unwrap_or(Time::NEVER));
        self.faults.retain(|it| (begin..end).contains(&it.start));
        if let Some(span) = options.merge {
            self.merge(span);
        }
        if self.faults.is_empty() {
            return Err(ReadError::new(
                "no fault is left after the choice of causes and times",
                "choose more causes, or a longer part of the trace",
            ));
        }
        begin_with_first(&mut self.faults);
        Ok(())
    }

    /// Joins faults of one node that begin within `span` of the previous one.
    fn merge(&mut self, span: Span) {
        // For each node, the start of its last fault and the place of the fault that this one was joined to.
        let mut last: Vec<Option<(Time, usize)>> = vec![None; self.nodes.len()];
        let mut kept = 0;
        for index in 0..self.faults.len() {
            let fault = self.faults[index];
            let last = &mut last[fault.node as usize];
            match last {
                Some((start, place)) if fault.start.since(*start) <= span => {
                    *start = fault.start;
                    self.faults[*place].extend_to(fault.end());
                }
                _ => {
                    *last = Some((fault.start, kept));
                    self.faults[kept] = fault;
                    kept += 1;
                }
            }
        }
        self.faults.truncate(kept);
    }
}

impl Names {
    /// Numbers a name, which must be short and printable.
    fn number(&mut self, line: u64, field: &str, name: &str) -> Result<u32, ReadError> {
        if let Some(&number) = self.numbers.get(name) {
            return Ok(number);
        }
        if name.len() > NAME || name.chars().any(char::is_control) {
            return Err(ReadError::at(
                line,
                format!("{} is not a name (found {})", quoted(field), quoted(name)),
                format!("use at most {NAME} bytes, without line breaks and other control characters"),
            ));
        }
        self.intern(line, field, name)
    }

    /// Numbers any text.
    pub(crate) fn intern(&mut self, line: u64, field: &str, text: &str) -> Result<u32, ReadError> {
        if let Some(&number) = self.numbers.get(text) {
            return Ok(number);
        }
        self.bytes += text.len();
        if self.bytes > NAMES {
            return Err(ReadError::at(
                line,
                format!("the names in {} take more than 32 MiB", quoted(field)),
                "check that the right column is used, or split the file",
            ));
        }
        let number = self.names.len() as u32;
        let text: Rc<str> = text.into();
        self.names.push(Rc::clone(&text));
        self.numbers.insert(text, number);
        Ok(number)
    }

    fn into_strings(self) -> Vec<String> {
        drop(self.numbers);
        self.names.iter().map(|it| String::from(&**it)).collect()
    }
}

/// Maps signed nanoseconds to unsigned ones, and keeps their order.
fn biased(time: i64) -> u64 {
    time.cast_unsigned() ^ (1 << 63)
}
