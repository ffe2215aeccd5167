//! What is shown while a run goes on: on a terminal a few lines that are refreshed in place, elsewhere one line per
//! event. Knows nothing of where the run is.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crossterm::{cursor, queue, terminal};

use faultline_report::explain::count;

use crate::arguments::{Format, OutputArguments};

/// Events kept on the screen.
const RECENT: usize = 5;
/// Between two refreshes of the screen.
const REFRESH: Duration = Duration::from_millis(100);
/// Between two lines about the state of things, where there is no screen.
const REMIND: Duration = Duration::from_secs(5);
/// Width of a progress bar.
const BAR: usize = 24;

/// Where a run is shown.
pub struct Screen {
    out: Option<Box<dyn Write>>,
    on_screen: bool,
    title: String,
    recent: VecDeque<String>,
    drawn: u16,
    shown: Instant,
}

/// How a cluster fares.
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its processes.
    pub processes: u32,
    /// Of the processes.
    pub up: u32,
    /// Checkpoints that it took.
    pub checkpoints: u32,
    /// Of the checkpoints.
    pub forced: u32,
    /// Steps that are done.
    pub done: u64,
    /// Steps in all.
    pub total: u64,
}

impl Screen {
    /// The screen of a run, as the user wants it. One of many runs is shown on a terminal only.
    pub fn new(output: OutputArguments, of_many: bool, title: String) -> Screen {
        let (out, on_screen): (Box<dyn Write>, bool) = match output.format {
            Format::Text => (Box::new(io::stdout()), io::stdout().is_terminal()),
            Format::Json => (Box::new(io::stderr()), io::stderr().is_terminal()),
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

    /// Something happened, so many seconds after the beginning; before it when there are none.
    pub fn tell(&mut self, at: Option<f64>, text: &str) {
        let line = format!("{}  {text}", instant(at));
        if self.on_screen {
            self.recent.push_back(line);
            while self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        } else {
            self.write(|out| writeln!(out, "{line}"));
        }
    }

    /// Whether it is time to show how things are.
    pub fn is_due(&self) -> bool {
        let wait = if self.on_screen { REFRESH } else { REMIND };
        self.out.is_some() && self.shown.elapsed() >= wait
    }

    /// Shows how things are.
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

    /// The run is over: leaves the screen to what follows.
    pub fn finish(mut self) {
        self.draw(&[]);
    }

    fn line(&self, row: &Row, width: usize) -> String {
        let share = row.done as f64 / row.total.max(1) as f64;
        let bar = if self.on_screen { format!("{} ", bar(share)) } else { String::new() };
        format!(
            "{:width$}  {}/{} up  {} ({} forced)  {bar}{:.0} %",
            row.name,
            row.up,
            row.processes,
            count(row.checkpoints.into(), "checkpoint"),
            row.forced,
            share * 100.0,
        )
    }

    /// Replaces what is on the screen.
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

    /// A view that nobody reads any more must not end the run.
    fn write(&mut self, write: impl FnOnce(&mut Box<dyn Write>) -> io::Result<()>) {
        if self.out.as_mut().is_some_and(|out| write(out).is_err()) {
            self.out = None;
        }
    }
}

/// An instant since the beginning; blank before it.
fn instant(at: Option<f64>) -> String {
    at.map_or_else(|| " ".repeat(10), |at| format!("{at:>8.2} s"))
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}
