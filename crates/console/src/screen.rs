//! The live view of a run on any backend: on a terminal, a few lines that are refreshed in place; otherwise,
//! one line per event, and an occasional status line.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossterm::{cursor, queue, terminal};

use faultline_report::explain::count;
use faultline_report::text;
use faultline_trace::printable;

use crate::arguments::{Format, OutputArguments};
use crate::output::supports_escapes;

/// The number of events kept on the screen.
const RECENT: usize = 5;
/// The time between two refreshes of the screen.
const REFRESH: Duration = Duration::from_millis(100);
/// The time between two status lines if the output is not a terminal.
const REMIND: Duration = Duration::from_secs(5);
/// The width of a progress bar in characters.
const BAR: usize = 24;

/// The output of the live view.
pub struct Screen {
    out: Option<Box<dyn Write>>,
    on_screen: bool,
    title: String,
    recent: VecDeque<String>,
    drawn: u16,
    shown: Instant,
}

/// The status of a cluster.
pub struct Row {
    /// The name of the cluster.
    pub name: String,
    /// The number of processes.
    pub processes: u32,
    /// The number of processes that are up.
    pub up: u32,
    /// The number of checkpoints taken.
    pub checkpoints: u32,
    /// The number of forced checkpoints among those taken.
    pub forced: u32,
    /// The number of completed steps or tasks.
    pub done: u64,
    /// The total number of steps; 0 if it is unknown, as for a task-based program.
    pub total: u64,
}

impl Screen {
    /// Creates the live view of a run. With `of_many`, it is shown only on a terminal.
    pub fn new(output: OutputArguments, of_many: bool, title: String) -> Screen {
        let (out, on_screen): (Box<dyn Write>, bool) = match output.format {
            Format::Text => (Box::new(io::stdout()), supports_escapes(&io::stdout())),
            Format::Json => (Box::new(io::stderr()), supports_escapes(&io::stderr())),
        };
        Screen {
            out: (!output.quiet && (on_screen || !of_many)).then_some(out),
            on_screen,
            title,
            recent: VecDeque::new(),
            drawn: 0,
            shown: Instant::now(),
        }
    }

    /// Shows an event, which may quote a program. `at` is its time in seconds since the application started; `None`
    /// before that.
    pub fn show_event(&mut self, at: Option<f64>, text: &str) {
        let line = format!("{}  {}", instant(at), printable(text));
        if self.on_screen {
            self.recent.push_back(line);
            while self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        } else {
            self.write(|out| writeln!(out, "{line}"));
        }
    }

    /// Returns whether the next status is due.
    pub fn is_due(&self) -> bool {
        let wait = if self.on_screen { REFRESH } else { REMIND };
        self.out.is_some() && self.shown.elapsed() >= wait
    }

    /// Shows the current status. `at` is the time in seconds since the application started; `None` before that.
    pub fn show(&mut self, at: Option<f64>, state: &str, clusters: &[Row]) {
        self.shown = Instant::now();
        let width = clusters.iter().map(|it| it.name.len()).max().unwrap_or(0);
        let clusters = clusters.iter().map(|it| self.line(it, width));
        if self.on_screen {
            let mut lines = vec![format!("{}  {} ({state})", instant(at).trim_start(), self.title)];
            lines.extend(clusters.map(|it| format!("  {it}")));
            lines.extend(self.recent.iter().cloned());
            self.draw(&lines);
        } else {
            let clusters: Vec<String> = clusters.collect();
            let shown = if clusters.is_empty() { state.to_owned() } else { clusters.join("; ") };
            let line = format!("{}  {shown}", instant(at));
            self.write(|out| writeln!(out, "{line}"));
        }
    }

    /// Ends the view, and clears the screen for later output.
    pub fn finish(mut self) {
        self.draw(&[]);
    }

    fn line(&self, row: &Row, width: usize) -> String {
        let progress = match (row.done, row.total) {
            (0, 0) => String::new(),
            (done, 0) => format!("  {} done", count(done, "task")),
            (done, total) => {
                let share = done as f64 / total as f64;
                let bar = if self.on_screen { format!("{} ", bar(share)) } else { String::new() };
                format!("  {bar}{:.0} %", share * 100.0)
            }
        };
        format!(
            "{:width$}  {}/{} up  {} ({} forced){progress}",
            printable(&row.name),
            row.up,
            row.processes,
            count(row.checkpoints.into(), "checkpoint"),
            row.forced,
        )
    }

    /// Replaces the lines on the screen.
    fn draw(&mut self, lines: &[String]) {
        if !self.on_screen {
            return;
        }
        let (columns, rows) =
            terminal::size().ok().filter(|&(columns, rows)| columns > 0 && rows > 0).unwrap_or((80, 24));
        let room = usize::from(columns).saturating_sub(1);
        let lines = &lines[..lines.len().min(usize::from(rows).saturating_sub(1))];
        let drawn = std::mem::replace(&mut self.drawn, lines.len() as u16);
        self.write(|out| {
            if drawn > 0 {
                queue!(out, cursor::MoveToPreviousLine(drawn))?;
            }
            queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
            for line in lines {
                writeln!(out, "{}", line.chars().take(room).collect::<String>())?;
            }
            out.flush()
        });
    }

    /// Writes to the output. A closed output must not end the run.
    fn write(&mut self, write: impl FnOnce(&mut Box<dyn Write>) -> io::Result<()>) {
        if self.out.as_mut().is_some_and(|out| write(out).is_err()) {
            self.out = None;
        }
    }
}

/// Formats a time since the application started. `None`, which stands for an earlier time, becomes blanks.
fn instant(at: Option<f64>) -> String {
    at.map_or_else(|| " ".repeat(10), |at| format!("{:>10}", text::instant(at)))
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// The supervisor's pod might run another program, and events quote the output of processes.
    #[test]
    fn control_characters_are_not_shown() {
        for on_screen in [true, false] {
            let (mut written, out) = io::pipe().expect("a pipe");
            let mut screen = Screen {
                out: Some(Box::new(out)),
                on_screen,
                title: String::new(),
                recent: VecDeque::new(),
                drawn: 0,
                shown: Instant::now(),
            };
            screen.show_event(None, "paris-0: \u{1b}]0;title\u{7}\n  0.1 s  verdict: pass\u{9b}2J");
            let name = "par\u{1b}c\nis".to_owned();
            screen.show(
                None,
                "running",
                &[Row { name, processes: 3, up: 3, checkpoints: 0, forced: 0, done: 0, total: 0 }],
            );
            drop(screen);
            let mut shown = String::new();
            written.read_to_string(&mut shown).expect("the output is text");
            assert!(
                !["\u{1b}]", "\u{1b}c", "\u{7}", "\u{9b}"].iter().any(|it| shown.contains(it)),
                "{shown:?}"
            );
            assert!(shown.contains("title\u{fffd}\u{fffd}  0.1 s  verdict: pass\u{fffd}2J"), "{shown:?}");
            assert!(shown.contains("par\u{fffd}c\u{fffd}is"), "{shown:?}");
        }
    }

    #[test]
    fn a_program_of_tasks_shows_tasks_instead_of_a_share() {
        let screen = Screen {
            out: None,
            on_screen: false,
            title: String::new(),
            recent: VecDeque::new(),
            drawn: 0,
            shown: Instant::now(),
        };
        let line = |done, total| {
            let name = "paris".to_owned();
            screen.line(&Row { name, processes: 3, up: 2, checkpoints: 1, forced: 0, done, total }, 5)
        };
        assert_eq!(line(5, 20), "paris  2/3 up  1 checkpoint (0 forced)  25 %");
        assert_eq!(line(7, 0), "paris  2/3 up  1 checkpoint (0 forced)  7 tasks done");
        assert_eq!(line(0, 0), "paris  2/3 up  1 checkpoint (0 forced)");
    }
}
