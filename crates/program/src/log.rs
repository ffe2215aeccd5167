//! What programs write to standard error. In virtual time, the lines are kept for the record of the run, with the process
//! and the life that they belong to; elsewhere, they are part of the log of the process.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use faultline_core::{Life, ProcessId};

/// The number of lines that a message about a broken contract quotes, and their maximum length in characters.
const QUOTED_LINES: usize = 10;
const QUOTED: usize = 200;
/// The maximum length of a line, in bytes. The rest of the line is left out.
const LONGEST_LINE: usize = 8 << 10;
/// The maximum size in bytes of the lines that wait for [`Log::pass_on`]. Those that follow are left out.
const MOST_WAITING: usize = 1 << 20;

/// A line that a program wrote to standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLine {
    /// The process to which the program belongs.
    pub process: ProcessId,
    /// The life of the process.
    pub life: Life,
    /// Name of the program.
    pub program: Arc<str>,
    /// The line, without its end.
    pub text: String,
}

thread_local! {
    /// The lines that the programs of this thread have written; `None` if they are not kept.
    static KEPT: RefCell<Option<Vec<LoggedLine>>> = const { RefCell::new(None) };
}

/// Keeps the lines that programs on this thread write to standard error, or no longer keeps them.
pub fn keep_log(keeps: bool) {
    KEPT.set(keeps.then(Vec::new));
}

/// Returns the lines that were kept since the last call.
pub fn take_log() -> Vec<LoggedLine> {
    KEPT.with_borrow_mut(|kept| kept.as_mut().map(std::mem::take).unwrap_or_default())
}

/// The standard error of one execution of a program.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The last lines of the current life.
    last: VecDeque<String>,
    /// The last line, which has no end yet.
    open: Vec<u8>,
    /// The lines that have not been passed on, and their size in bytes.
    waiting: Vec<String>,
    size: usize,
}

impl Log {
    /// Adds what the program wrote. In its lines, `dir` is left out.
    pub(crate) fn add(&mut self, bytes: &[u8], dir: &str) {
        for part in bytes.split_inclusive(|it| *it == b'\n') {
            let room = LONGEST_LINE.saturating_sub(self.open.len());
            self.open.extend(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.end_line(dir);
            }
        }
    }

    fn end_line(&mut self, dir: &str) {
        let line = text(&std::mem::take(&mut self.open), dir);
        self.last.push_back(line.chars().take(QUOTED).collect());
        if self.last.len() > QUOTED_LINES {
            self.last.pop_front();
        }
        if self.size < MOST_WAITING {
            self.size += line.len();
            self.waiting.push(line);
        }
    }

    /// Returns the last lines of the current life.
    pub(crate) fn last(&self, dir: &str) -> Arc<[Arc<str>]> {
        let open = text(&self.open, dir).chars().take(QUOTED).collect();
        let lines = self.last.iter().chain([&open]);
        lines.filter(|it| !it.trim().is_empty()).map(|it| it.as_str().into()).collect()
    }

    /// Returns the lines that were not passed on.
    pub(crate) fn take(&mut self) -> Vec<String> {
        self.size = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Ends the log of a life. The next life begins with an empty one.
    pub(crate) fn end(&mut self, dir: &str) -> Vec<String> {
        if !self.open.is_empty() {
            self.end_line(dir);
        }
        self.last.clear();
        self.take()
    }
}

fn text(bytes: &[u8], dir: &str) -> String {
    String::from_utf8_lossy(bytes).trim_end().replace(dir, "")
}

/// Passes on the lines that a program wrote in a life.
pub(crate) fn pass_on(process: ProcessId, life: Life, program: &Arc<str>, lines: Vec<String>) {
    if lines.is_empty() {
        return;
    }
    KEPT.with_borrow_mut(|kept| {
        let Some(kept) = kept else { return };
        let line = |text| LoggedLine { process, life, program: program.clone(), text };
        kept.extend(lines.into_iter().map(line));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_belong_to_one_life() {
        let mut log = Log::default();
        log.add(b"one\r\ntw", "/d/");
        log.add(b"o in /d/p.py\n", "/d/");
        assert_eq!(log.take(), ["one", "two in p.py"]);
        log.add(b"no end", "/d/");
        assert_eq!(*log.last("/d/"), ["one".into(), "two in p.py".into(), "no end".into()]);
        assert_eq!(log.end("/d/"), ["no end"]);
        assert!(
            log.last("/d/").is_empty() && log.take().is_empty(),
            "the next life begins with an empty log"
        );
    }

    #[test]
    fn a_program_that_writes_without_end_fills_no_memory() {
        let mut log = Log::default();
        (0..100).for_each(|_| log.add(&[b'x'; 100_000], "/d/"));
        assert!(log.open.len() <= LONGEST_LINE);
        (0..10_000).for_each(|_| log.add(&[&[b'x'; 1_000][..], b"\n"].concat(), "/d/"));
        let size: usize = log.take().iter().map(String::len).sum();
        assert!(size <= MOST_WAITING + LONGEST_LINE, "{size}");
    }

    #[test]
    fn only_kept_lines_are_passed_on() {
        let pass = || pass_on(ProcessId(1), Life(2), &"p.py".into(), vec!["text".to_owned()]);
        pass();
        keep_log(true);
        assert_eq!(take_log(), []);
        pass();
        let line =
            LoggedLine { process: ProcessId(1), life: Life(2), program: "p.py".into(), text: "text".into() };
        assert_eq!((take_log(), take_log()), (vec![line], vec![]));
        keep_log(false);
    }
}
