//! Progress of long operations: on a terminal, one line that is refreshed in place; elsewhere, an occasional
//! line. Written to standard error, and omitted for operations that finish quickly.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use faultline_trace::duration::rough;

use crate::output::supports_escapes;

/// The interval between two refreshes on a terminal.
const REFRESH: Duration = Duration::from_millis(200);
/// The interval between two lines if standard error is not a terminal.
const REMIND: Duration = Duration::from_secs(5);
/// The time after which the progress of an operation under `--quiet` is shown on a terminal.
const QUIET: Duration = Duration::from_secs(3);

/// The progress of one operation.
#[derive(Debug)]
pub struct Progress {
    on_screen: bool,
    shown: Instant,
    /// The time until the next refresh.
    wait: Duration,
    drawn: bool,
    is_hidden: bool,
    count: Count,
}

/// The progress of an operation that consists of runs.
#[derive(Clone, Copy, Debug)]
struct Count {
    begun: Instant,
    /// The number of runs that were done before this operation began, or whose results were already known.
    before: u64,
    done: u64,
    /// The total amount of work, if known.
    total: Option<Total>,
}

/// An amount of work.
#[derive(Clone, Copy, Debug)]
enum Total {
    Runs(u64),
    Time(Duration),
}

impl Progress {
    /// Begins an operation with an unknown amount of work.
    pub fn new() -> Progress {
        let now = Instant::now();
        let count = Count { begun: now, before: 0, done: 0, total: None };
        let on_screen = supports_escapes(&io::stderr());
        Progress { on_screen, shown: now, wait: interval(on_screen), drawn: false, is_hidden: false, count }
    }

    /// Begins an operation of `total` runs, `done` of which are already complete.
    pub fn counting(done: u64, total: u64) -> Progress {
        let progress = Progress::new();
        let count = Count { before: done, done, total: Some(Total::Runs(total)), ..progress.count };
        Progress { count, ..progress }
    }

    /// Shows the operation as a piece of another one, which has `total` runs, `done` of which were complete before.
    #[must_use]
    pub fn within(self, done: u64, total: u64) -> Progress {
        let count = Count { before: done, done, total: Some(Total::Runs(total)), ..self.count };
        Progress { count, ..self }
    }

    /// Begins an operation that takes a fixed time. `done` runs are already complete.
    pub fn lasting(done: u64, time: Duration) -> Progress {
        let progress = Progress::new();
        let count = Count { before: done, done, total: Some(Total::Time(time)), ..progress.count };
        Progress { count, ..progress }
    }

    /// Returns the progress of an operation under `--quiet`, if `quiet` is set: it is shown only if it can be refreshed in
    /// place, and not during the first seconds.
    #[must_use]
    pub fn unless_quiet(self, quiet: bool) -> Progress {
        match quiet {
            false => self,
            true => Progress { wait: QUIET, is_hidden: !self.on_screen, ..self },
        }
    }

    /// Records that another run is done. Shows the number of runs, their rate, and the remaining time at that rate.
    pub fn advance(&mut self) {
        self.reach("", self.count.done + 1);
    }

    /// Works like [`advance`](Progress::advance), but sets the number of completed runs to `done`, and shows
    /// that `what` is in progress.
    pub fn reach(&mut self, what: &str, done: u64) {
        self.count.done = done;
        let count = self.count;
        self.show(|| count.text(what, count.begun.elapsed()));
    }

    /// Shows that `done` of `total` runs are done and that `what` is in progress. If `is_known` is set, the
    /// last run took no time because its result was already known, and does not count towards the rate.
    pub fn step(&mut self, what: &str, (done, total): (u64, u64), is_known: bool) {
        self.count.before += u64::from(is_known);
        self.count.total = Some(Total::Runs(total));
        self.reach(what, done);
    }

    /// Shows `line` if the next refresh is due.
    pub fn show(&mut self, line: impl FnOnce() -> String) {
        if self.is_hidden || self.shown.elapsed() < self.wait {
            return;
        }
        self.shown = Instant::now();
        self.wait = interval(self.on_screen);
        if self.on_screen {
            self.write(&format!("\r\x1b[K{}", line()));
            self.drawn = true;
        } else {
            self.write(&format!("{}\n", line()));
        }
    }

    /// Clears the line to make room for other output.
    pub fn hide(&mut self) {
        if self.drawn {
            self.write("\r\x1b[K");
            self.drawn = false;
        }
    }

    /// Writes `text`. A closed standard error does not stop the operation.
    fn write(&mut self, text: &str) {
        let mut out = io::stderr().lock();
        let _gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// Returns the number of completed runs in the last line about them that an operation has shown in `log`.
pub fn last_shown(log: &str) -> Option<u64> {
    let done = |line: &str| {
        let (before, _) = line.split_once(" runs, ")?;
        before.rsplit(": ").next()?.split_once(" of ")?.0.parse().ok()
    };
    log.lines().rev().filter(|it| !it.starts_with('{')).find_map(done)
}

/// Returns the interval between two refreshes.
fn interval(on_screen: bool) -> Duration {
    if on_screen { REFRESH } else { REMIND }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.hide();
    }
}

impl Count {
    fn text(&self, what: &str, elapsed: Duration) -> String {
        let Count { before, done, total, .. } = *self;
        let rate = done.saturating_sub(before) as f64 / elapsed.as_secs_f64().max(1e-3);
        let (of, left) = match total {
            Some(Total::Runs(total)) => {
                let left = (rate > 0.0).then(|| total.saturating_sub(done) as f64 / rate);
                (format!(" of {total}"), left)
            }
            Some(Total::Time(time)) => (String::new(), Some(time.saturating_sub(elapsed).as_secs_f64())),
            None => (String::new(), None),
        };
        let what = if what.is_empty() { String::new() } else { format!("{what}: ") };
        let left = left.map(f64::round).filter(|it| *it >= 1.0);
        let left = left.map(|it| format!(", about {} left", rough(it))).unwrap_or_default();
        format!("{what}{done}{of} runs, {}{left}", per_time(rate))
    }
}

/// Formats a rate that is given in runs per second. A positive rate below 0.1 is shown per minute or, if it is still
/// below 0.1, per hour.
fn per_time(rate: f64) -> String {
    let (amount, unit) = match rate {
        0.0 | 0.1.. => (rate, "second"),
        _ if rate * 60.0 >= 0.1 => (rate * 60.0, "minute"),
        _ => (rate * 3600.0, "hour"),
    };
    format!("{amount:.1} per {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_operation_is_shown_only_on_a_terminal_and_later() {
        let quiet = |on_screen| Progress { on_screen, ..Progress::new() }.unless_quiet(true);
        assert!(quiet(false).is_hidden);
        assert!(!quiet(true).is_hidden && quiet(true).wait == QUIET);
        assert!(!Progress::new().unless_quiet(false).is_hidden);
    }

    #[test]
    fn a_low_rate_has_a_longer_unit_of_time() {
        let rates = [(12.34, "12.3 per second"), (0.1, "0.1 per second"), (0.09, "5.4 per minute")];
        let low = [(0.01, "0.6 per minute"), (0.001, "3.6 per hour"), (0.0, "0.0 per second")];
        for (rate, text) in rates.into_iter().chain(low) {
            assert_eq!(per_time(rate), text);
        }
    }

    #[test]
    fn the_rate_counts_only_new_runs() {
        let elapsed = Duration::from_secs(10);
        let mut progress = Progress::counting(40, 100);
        progress.count.done = 60;
        assert_eq!(
            progress.count.text("hc3i", elapsed),
            "hc3i: 60 of 100 runs, 2.0 per second, about 20 s left"
        );
        let log = |line: &str| {
            format!("7 of 9 runs, 1.0 per second\n{line}\n{{\"8 of 9 runs, \":1}}\nwarning: 3 of 4\n")
        };
        for what in ["hc3i", ""] {
            assert_eq!(last_shown(&log(&progress.count.text(what, elapsed))), Some(60));
        }
        assert_eq!(last_shown("warning: slow\n"), None);
        let piece = Progress::counting(0, 8).within(20, 50);
        assert_eq!(piece.count.text("", elapsed), "20 of 50 runs, 0.0 per second");
        progress.count.done = 100;
        assert_eq!(progress.count.text("hc3i", elapsed), "hc3i: 100 of 100 runs, 6.0 per second");
        progress.count.done = 40;
        assert_eq!(progress.count.text("", elapsed), "40 of 100 runs, 0.0 per second");
        let mut progress = Progress::lasting(40, Duration::from_secs(25));
        progress.count.done = 45;
        assert_eq!(progress.count.text("", elapsed), "45 runs, 0.5 per second, about 15 s left");
        assert_eq!(Progress::new().count.text("", elapsed), "0 runs, 0.0 per second");
    }
}
