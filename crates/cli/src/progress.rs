//! How far a long piece of work is: on a terminal one line that is refreshed in place, elsewhere a line now and then. Goes
//! to the standard error, and says nothing of work that is over at once.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two refreshes on a terminal.
const REFRESH: Duration = Duration::from_millis(200);
/// Between two lines elsewhere.
const REMIND: Duration = Duration::from_secs(5);

/// The progress of one piece of work.
pub(crate) struct Progress {
    on_screen: bool,
    shown: Instant,
    drawn: bool,
}

impl Progress {
    /// Work that begins now.
    pub(crate) fn new() -> Progress {
        Progress { on_screen: io::stderr().is_terminal(), shown: Instant::now(), drawn: false }
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
