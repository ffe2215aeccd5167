//! How far a long piece of work is: on a terminal one line that is refreshed in place, elsewhere a line now and then. Goes
//! to the standard error, and says nothing of work that is over at once.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use faultline_report::text::span;

/// Between two refreshes on a terminal.
const REFRESH: Duration = Duration::from_millis(200);
/// Between two lines elsewhere.
const REMIND: Duration = Duration::from_secs(5);

/// The progress of one piece of work.
pub(crate) struct Progress {
    on_screen: bool,
    shown: Instant,
    drawn: bool,
    /// For work that is counted: when it began, how much was done then, how much is done, and how much there is.
    counted: Option<(Instant, u64, u64, u64)>,
}

impl Progress {
    /// Work that begins now.
    pub(crate) fn new() -> Progress {
        Progress { on_screen: io::stderr().is_terminal(), shown: Instant::now(), drawn: false, counted: None }
    }

    /// Work of `total` runs that begins now, of which `done` were done before.
    pub(crate) fn counting(done: u64, total: u64) -> Progress {
        Progress { counted: Some((Instant::now(), done, done, total)), ..Progress::new() }
    }

    /// One more run is done. Shows how many of how many, at what rate, and how long the rest takes at that rate.
    pub(crate) fn advance(&mut self) {
        let Some((begun, before, done, total)) = &mut self.counted else { return };
        *done += 1;
        let (begun, before, done, total) = (*begun, *before, *done, *total);
        self.show(|| {
            let rate = (done - before) as f64 / begun.elapsed().as_secs_f64().max(1e-3);
            let left = span((total - done) as f64 / rate);
            format!("{done} of {total} runs, {rate:.1} per second, about {left} left")
        });
    }

    /// Shows what `line` says, if it is time for that.
    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        let wait = if self.on_screen { REFRESH } else { REMIND };
        if self.shown.elapsed() < wait {
            return;
        }
        self.shown = Instant::now();
        if self.on_screen {
            self.write(&format!("\r\x1b[K{}", line()));
            self.drawn = true;
        } else {
            self.write(&format!("{}\n", line()));
        }
    }

    /// A reader who has gone away does not stop the work.
    fn write(&mut self, text: &str) {
        let mut out = io::stderr().lock();
        let _gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl Drop for Progress {
    /// Leaves the line to what follows.
    fn drop(&mut self) {
        if self.drawn {
            self.write("\r\x1b[K");
        }
    }
}
