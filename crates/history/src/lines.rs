//! Lines that the programs of a user's own system logged, as watches found them.
//!
//! All lines count that a process reported before the run completed, even those from before it began. *Together* are the
//! lines of one life, of one process in all its lives, or of all processes. Those of one process have an order. Lines of
//! different processes have one only if enough time passed between them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_core::{Fact, FactNo, FaultNo, LinesOf, Observation, ProcessId, Span, Time, WatchNo};

use crate::availability::{effects, end, paused};
use crate::expected::{ending_of, log_of};
use crate::history::History;
use crate::lost::Pauses;
use crate::segments::Source;

/// A line that matched a watch.
#[derive(Clone, Copy, Debug)]
pub struct Line<'h> {
    /// The fact that reports it.
    pub source: Source,
    /// The time at which it was read.
    pub at: Time,
    /// The line, possibly shortened.
    pub text: &'h str,
    /// Its number in the log of its life, from 1; 0 if it is unknown.
    pub log_line: u32,
    /// Whether it was written to standard error.
    pub is_error: bool,
    /// What the named groups of the watch matched.
    pub groups: &'h BTreeMap<Arc<str>, Arc<str>>,
}

impl Line<'_> {
    /// Returns the file with the log of the line's life, and its number there.
    pub fn place(&self, history: &History<'_>) -> String {
        let file = log_of(history, self.source.process, self.source.life);
        if self.log_line > 0 { format!("{file}:{}", self.log_line) } else { file }
    }
}

/// The lines of a watch.
#[derive(Debug)]
pub struct Lines<'h> {
    /// All lines, in the order of processes, lives and facts.
    pub all: Vec<Line<'h>>,
    /// When a process began to leave out lines.
    pub left_out: Vec<(ProcessId, Time)>,
}

impl<'h> Lines<'h> {
    /// Finds the lines of a watch.
    pub fn of(history: &'h History<'_>, watch: WatchNo) -> Lines<'h> {
        let completed = history.trace.supervisor().iter().rev().find(|(_, fact)| *fact == Fact::Completed);
        let until = completed.map_or(Time::NEVER, |it| it.0);
        let mut lines = Lines { all: Vec::new(), left_out: Vec::new() };
        for (&(process, life), stream) in &history.trace.streams {
            for (number, (at, fact)) in (0..).map(FactNo).zip(stream).filter(|(_, it)| it.0 <= until) {
                let Fact::Observed(observation) = fact else { continue };
                match &**observation {
                    Observation::Logged { watch: of, line, log_line, is_error, groups } if *of == watch => {
                        let source = Source { process, life, number };
                        let (log_line, is_error) = (*log_line, *is_error);
                        let line = Line { source, at: *at, text: line, log_line, is_error, groups };
                        lines.add(line);
                    }
                    Observation::LeftOut { watch: of } if *of == watch => lines.left_out.push((process, *at)),
                    _ => {}
                }
            }
        }
        lines
    }

    /// Adds a line. It replaces its own beginning, which was reported because the line did not continue for long.
    fn add(&mut self, line: Line<'h>) {
        let is_beginning = |it: &Line<'_>| {
            (it.source.process, it.source.life) == (line.source.process, line.source.life)
                && (it.log_line, it.is_error) == (line.log_line, line.is_error)
                && it.groups.is_empty()
                && line.text.starts_with(it.text)
        };
        let recent = self.all.len().saturating_sub(4);
        if !line.groups.is_empty()
            && line.log_line > 0
            && let Some(place) = self.all[recent..].iter().position(is_beginning)
        {
            self.all.remove(recent + place);
        }
        self.all.push(line);
    }

    /// Divides the lines into those that are considered together, each in the order of time.
    pub fn together(&self, of: LinesOf) -> Vec<Vec<&Line<'h>>> {
        let is_together = |a: &Line<'_>, b: &Line<'_>| match of {
            LinesOf::Life => (a.source.process, a.source.life) == (b.source.process, b.source.life),
            LinesOf::Node => a.source.process == b.source.process,
            LinesOf::Run => true,
        };
        let mut together: Vec<Vec<&Line<'h>>> =
            self.all.chunk_by(is_together).map(|it| it.iter().collect()).collect();
        if of == LinesOf::Run {
            together.iter_mut().for_each(|it| it.sort_by_key(|line| line.at));
        }
        together
    }

    /// Returns when lines followed each other.
    pub fn rhythms(&self, history: &History<'_>, of: LinesOf) -> Vec<Rhythm> {
        let rhythm = |lines: Vec<&Line<'_>>| {
            let process = (of != LinesOf::Run).then(|| lines[0].source.process);
            let left_out = self.left_out.iter().filter(|it| process.is_none_or(|process| it.0 == process));
            let mut times: Vec<Time> = lines.iter().map(|it| it.at).chain(left_out.map(|it| it.1)).collect();
            times.sort_unstable();
            let (down, gone) = match process {
                Some(process) => down(history, process),
                None => (Pauses::of(&history.supervision).stretches().collect(), None),
            };
            Rhythm { process, times, down, gone, window: window(history) }
        };
        self.together(of).into_iter().map(rhythm).collect()
    }
}

/// Returns the time from the beginning of the run until it ended, or its checks began.
fn window(history: &History<'_>) -> (Time, Time) {
    let begun = history.supervision.begun.unwrap_or_default();
    (begun, end(history).max(begun))
}

/// When the lines that are considered together followed each other.
#[derive(Debug)]
pub struct Rhythm {
    /// The process whose lines they are; `None` for those of all processes.
    pub process: Option<ProcessId>,
    /// The times of the lines, ascending.
    times: Vec<Time>,
    /// The periods in which the process was down or paused, ascending.
    down: Vec<(Time, Time)>,
    /// The time from which the process was down for good, because its command may exit, or as planned.
    gone: Option<Time>,
    window: (Time, Time),
}

/// A period without a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Its start: a line, a fault's effect or, for a fault that lasts for a while, its end.
    pub from: Time,
    /// The next line, or the end of what is known.
    pub upto: Time,
    /// The time in it that does not count, because the process was down or paused.
    pub excluded: Span,
    /// Whether it did not end with a line.
    pub is_open: bool,
}

impl Silence {
    /// Creates a period of which all time counts.
    pub fn between(from: Time, upto: Time, is_open: bool) -> Silence {
        Silence { from, upto, excluded: Span::ZERO, is_open }
    }

    /// Returns how long it lasted, at least.
    pub fn lasted(&self) -> Span {
        Span(self.upto.since(self.from).0.saturating_sub(self.excluded.0))
    }
}

/// How the next line followed a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// The fault.
    pub no: FaultNo,
    /// The process; `None` if the lines of all processes are considered together.
    pub process: Option<ProcessId>,
    /// The time without a line after the fault.
    pub silence: Silence,
    /// The time without a line before the fault.
    pub before: Span,
}

impl Rhythm {
    /// Iterates over the periods without a line, from the first line to the end.
    pub fn silences(&self) -> impl Iterator<Item = Silence> {
        let end = self.gone.unwrap_or(Time::NEVER).min(self.window.1);
        let last = self.times.last().map(|last| (*last, end, true));
        let between = self.times.windows(2).map(|it| (it[0], it[1], false));
        let clamped = between.chain(last).map(|(from, upto, is_open)| {
            let from = from.max(self.window.0);
            (from, upto.min(self.window.1).max(from), is_open)
        });
        clamped.map(|(from, upto, is_open)| Silence { from, upto, excluded: self.down(from, upto), is_open })
    }

    /// Returns, for each fault after the first line, the longest time without a line that began with the fault, or up to
    /// `limit` later: a fault may show late.
    pub fn resumptions(&self, history: &History<'_>, limit: Span) -> Vec<Resumption> {
        let effects = effects(history);
        let ends = effects.iter().skip(1).map(|it| it.1).chain([self.window.1]);
        let resumption = |(&(no, effect, at), end): (&(FaultNo, Time, Time), Time)| {
            let place = self.times.partition_point(|it| *it <= effect);
            let last = *self.times[..place].last()?;
            if self.gone.is_some_and(|it| it <= effect) {
                return None;
            }
            let before = Span(effect.since(last).0.saturating_sub(self.down(last, effect).0));
            let end = end.min(self.gone.unwrap_or(Time::NEVER)).max(at);
            Some(Resumption { no, process: self.process, silence: self.after(at, end, limit), before })
        };
        effects.iter().zip(ends).filter_map(resumption).collect()
    }

    /// Returns the longest time without a line that began at `at` or up to `limit` later, and before `end`. If a line
    /// followed, the time from the last line to `end` counts only if it is longer than the limit.
    fn after(&self, at: Time, end: Time, limit: Span) -> Silence {
        let of = |from: Time, upto: Time, is_open| {
            let pauses = if self.process.is_none() { self.down(from, upto) } else { Span::ZERO };
            Silence { from, upto, excluded: pauses, is_open }
        };
        let lines = self.times.iter().copied().filter(|it| *it > at && *it <= end);
        let (mut from, mut longest) = (at, None::<Silence>);
        for line in lines {
            if from > at + limit {
                break;
            }
            let silence = of(from, line, false);
            longest = longest.filter(|it| it.lasted() >= silence.lasted()).or(Some(silence));
            from = line;
        }
        let last = of(from, end, true);
        let is_late = from <= at + limit && last.lasted() > limit;
        match longest {
            Some(longest) if !is_late || longest.lasted() >= last.lasted() => longest,
            _ => last,
        }
    }

    /// Returns for how long the process was down or paused in a period.
    fn down(&self, from: Time, upto: Time) -> Span {
        let each = self.down.iter().map(|it| (it.0.max(from), it.1.min(upto)));
        each.filter(|it| it.0 < it.1).fold(Span::ZERO, |sum, it| sum + it.1.since(it.0))
    }
}

/// Returns the periods in which a process was down, its command had exited, or it was paused, and the time from which it was
/// down for good, because its command has done its work or as a fault planned. A command that failed by itself and is not
/// started again should log lines, so this time is not one of them.
fn down(history: &History<'_>, process: ProcessId) -> (Vec<(Time, Time)>, Option<Time>) {
    let supervision = &history.supervision;
    let is_permanent = |no: FaultNo| supervision.injected.iter().any(|it| it.0 == no && it.1.is_permanent());
    let system = history.context.system.as_ref();
    let (mut down, mut gone) = (Vec::new(), None);
    let (mut ended, mut has_failed): (Option<Time>, bool) = (None, false);
    for (life, stream) in history.trace.lives(process) {
        if let (Some(from), Some((upto, _))) = (ended, stream.first()) {
            down.push((from, *upto));
        }
        let exited = stream.iter().find_map(|(at, fact)| Some((*at, ending_of(fact)?.0)));
        let end = supervision.end_of(process, life);
        ended = exited.map(|it| it.0).into_iter().chain(end.map(|it| it.at)).min();
        let may_exit =
            system.is_some_and(|it| it.may_exit.contains(&process) || it.may_finish.contains(&process));
        let has_finished = exited.is_some_and(|it| it.1.is_success()) && may_exit;
        let is_planned = end.and_then(|it| it.by?.fault()).is_some_and(is_permanent);
        gone = ended.filter(|_| has_finished || is_planned);
        has_failed = exited.is_some() && gone.is_none() && end.is_none();
    }
    down.extend(ended.filter(|_| !has_failed).map(|it| (it, Time::NEVER)));
    down.extend(paused(history, process, Time::NEVER));
    (merged(down), gone)
}

/// Merges periods that overlap.
fn merged(mut periods: Vec<(Time, Time)>) -> Vec<(Time, Time)> {
    periods.sort_unstable();
    let mut merged: Vec<(Time, Time)> = Vec::new();
    for (from, upto) in periods {
        match merged.last_mut().filter(|it| from <= it.1) {
            Some(last) => last.1 = last.1.max(upto),
            None => merged.push((from, upto)),
        }
    }
    merged
}

/// The time after which lines of different processes have an order: the next line is read within this time after it was
/// written, unless the machine is busy.
pub const ORDERED_AFTER: Span = Span::from_millis(200);

/// A whole number or a decimal of any length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Number<'a> {
    /// Reads a number; `None` if the text is neither a whole number nor a decimal.
    pub fn read(text: &'a str) -> Option<Number<'a>> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
        let is_digits = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let is_negative = text.starts_with('-') && !(whole.is_empty() && fraction.is_empty());
        Some(Number { is_negative, whole, fraction })
    }

    fn cmp_magnitude(&self, other: &Number<'_>) -> Ordering {
        let of_whole = self.whole.len().cmp(&other.whole.len()).then(self.whole.cmp(other.whole));
        of_whole.then(self.fraction.cmp(other.fraction))
    }
}

impl Ord for Number<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, false) => self.cmp_magnitude(other),
            (true, true) => other.cmp_magnitude(self),
            (is_negative, _) => {
                if is_negative {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
        }
    }
}

impl PartialOrd for Number<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns a text that two values have in common only if they are the same: as numbers if both are numbers, otherwise as
/// texts.
pub fn canonical(value: &str) -> String {
    match Number::read(value) {
        Some(Number { is_negative, whole, fraction }) => {
            format!("{}{whole}.{fraction}", if is_negative { "-" } else { "" })
        }
        None => format!("\"{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_are_compared_as_numbers() {
        let ascending = [
            "-12.5",
            "-12.05",
            "-1",
            "-0.0",
            "0.5",
            "2",
            "10",
            "18446744073709551617",
            "99999999999999999999999.1",
        ];
        for pair in ascending.windows(2) {
            assert!(Number::read(pair[0]) < Number::read(pair[1]), "{pair:?}");
        }
        for (one, other) in [("007", "7"), ("1.50", "+1.5"), ("-0", "0"), ("abc", "abc"), ("0", "0.000")] {
            assert_eq!(canonical(one), canonical(other));
        }
        for (one, other) in [("1e3", "1000"), ("5.", "5"), ("0x1f", "31"), ("", "0"), ("a", "A"), ("-1", "1")]
        {
            assert_ne!(canonical(one), canonical(other));
        }
        for text in ["", "-", ".5", "1.", "1e3", "1_000", "NaN", "--1"] {
            assert_eq!(Number::read(text), None, "{text}");
        }
    }
}
