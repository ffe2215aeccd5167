//! The live view of a run on any backend: on a terminal, a few lines that are refreshed in place; otherwise,
//! one line per event, and an occasional status line.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossterm::{cursor, queue, terminal};

use faultline_report::explain::count;
use faultline_report::text;
use faultline_runtime::detached::Detached;
use faultline_trace::printable;

use crate::arguments::{Format, OutputArguments};
use crate::output::supports_escapes;

/// The number of events kept on the screen.
const RECENT: usize = 5;
/// The time between two refreshes of the screen.
const REFRESH: Duration = Duration::from_millis(100);
/// The time between two status lines if the output is not a terminal.
const REMIND: Duration = Duration::from_secs(5);
/// The time after which the progress of a run under `--quiet` is shown on a terminal.
const QUIET: Duration = Duration::from_secs(10);
/// The width of a progress bar in characters.
const BAR: usize = 24;

/// The live view.
pub struct Screen {
    output: Output,
    on_screen: bool,
    title: String,
    recent: VecDeque<String>,
    shown: Instant,
    /// The time until the next refresh.
    wait: Duration,
    /// Whether only one line is shown, without events.
    is_quiet: bool,
}

/// The output of the live view.
enum Output {
    /// The run is not shown, or the output was closed.
    None,
    /// Makes the run wait until the output has been written.
    Direct(Canvas),
    /// Drops what the output has no time for.
    Detached(Detached<Frame>),
}

/// A change of what is shown.
enum Frame {
    /// Adds a line.
    Line(String),
    /// Replaces the lines on the screen.
    Draw(Vec<String>),
}

/// The file to which frames are written.
struct Canvas {
    out: Box<dyn Write + Send>,
    /// The number of lines on the screen.
    drawn: u16,
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
    /// Creates the live view of a run. With `of_many`, it is shown only on a terminal, and never under `--quiet`. A single
    /// run under `--quiet` shows a line on standard error if that is a terminal and the run takes long.
    pub fn new(output: OutputArguments, of_many: bool, title: String) -> Screen {
        let is_quiet = output.quiet;
        let (out, on_screen): (Box<dyn Write + Send>, bool) = match output.format {
            Format::Text if !is_quiet => (Box::new(io::stdout()), supports_escapes(&io::stdout())),
            _ => (Box::new(io::stderr()), supports_escapes(&io::stderr())),
        };
        let is_shown = if is_quiet { on_screen && !of_many } else { on_screen || !of_many };
        let output = if is_shown { Output::Direct(Canvas { out, drawn: 0 }) } else { Output::None };
        Screen::of(output, on_screen, is_quiet, title)
    }

    fn of(output: Output, on_screen: bool, is_quiet: bool, title: String) -> Screen {
        let wait = if is_quiet { QUIET } else { interval(on_screen) };
        let (recent, shown) = (VecDeque::new(), Instant::now());
        Screen { output, on_screen, title, recent, shown, wait, is_quiet }
    }

    /// Detaches the output from the run: if a terminal is stopped, or a reader is slow, the run continues, and what
    /// happens meanwhile is not shown.
    #[must_use]
    pub fn detached(self) -> Screen {
        let Output::Direct(canvas) = self.output else { return self };
        let mut canvas = Some(canvas);
        // A closed output must not end the run.
        let show = move |frame| {
            canvas.take_if(|it| it.show(&frame).is_err());
        };
        let output = Detached::new(show).map_or(Output::None, Output::Detached);
        Screen { output, ..self }
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
            self.write(Frame::Line(line));
        }
    }

    /// Returns whether the next status is due.
    pub fn is_due(&self) -> bool {
        !matches!(self.output, Output::None) && self.shown.elapsed() >= self.wait
    }

    /// Shows the current status. `at` is the time in seconds since the application started; `None` before that.
    pub fn show(&mut self, at: Option<f64>, state: &str, clusters: &[Row]) {
        (self.shown, self.wait) = (Instant::now(), interval(self.on_screen));
        let width = clusters.iter().map(|it| it.name.len()).max().unwrap_or(0);
        let clusters = clusters.iter().map(|it| self.line(it, width));
        if self.on_screen {
            let mut lines = vec![format!("{}  {} ({state})", instant(at).trim_start(), self.title)];
            lines.extend(clusters.map(|it| format!("  {it}")));
            lines.extend(self.recent.iter().cloned());
            lines.truncate(if self.is_quiet { 1 } else { lines.len() });
            self.write(Frame::Draw(lines));
        } else {
            let clusters: Vec<String> = clusters.collect();
            let shown = if clusters.is_empty() { state.to_owned() } else { clusters.join("; ") };
            let line = format!("{}  {shown}", instant(at));
            self.write(Frame::Line(line));
        }
    }

    /// Ends the view, and clears the screen for later output.
    pub fn finish(mut self) {
        if self.on_screen {
            self.write(Frame::Draw(Vec::new()));
        }
        if let Output::Detached(output) = self.output {
            output.finish();
        }
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
        let checkpoints = match row.checkpoints {
            0 => String::new(),
            all => format!("  {} ({} forced)", count(all.into(), "checkpoint"), row.forced),
        };
        let name = printable(&row.name);
        format!("{name:width$}  {}/{} up{checkpoints}{progress}", row.up, row.processes)
    }

    fn write(&mut self, frame: Frame) {
        match &mut self.output {
            Output::None => {}
            // A closed output must not end the run.
            Output::Direct(canvas) => {
                if canvas.show(&frame).is_err() {
                    self.output = Output::None;
                }
            }
            Output::Detached(output) => {
                let dropped = if self.on_screen { 0 } else { output.take_dropped() };
                if dropped > 0 {
                    output.show(Frame::Line(format!(
                        "{}  {} not shown, because the output was stopped",
                        instant(None),
                        count(dropped, "line")
                    )));
                }
                output.show(frame);
            }
        }
    }
}

impl Canvas {
    fn show(&mut self, frame: &Frame) -> io::Result<()> {
        match frame {
            Frame::Line(line) => writeln!(self.out, "{line}"),
            Frame::Draw(lines) => self.draw(lines),
        }
    }

    /// Replaces the lines on the screen.
    fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let (columns, rows) =
            terminal::size().ok().filter(|&(columns, rows)| columns > 0 && rows > 0).unwrap_or((80, 24));
        let room = usize::from(columns).saturating_sub(1);
        let lines = &lines[..lines.len().min(usize::from(rows).saturating_sub(1))];
        let drawn = std::mem::replace(&mut self.drawn, lines.len() as u16);
        if drawn == 0 && lines.is_empty() {
            return Ok(());
        }
        let out = &mut self.out;
        if drawn > 0 {
            queue!(out, cursor::MoveToPreviousLine(drawn))?;
        }
        queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
        for line in lines {
            writeln!(out, "{}", line.chars().take(room).collect::<String>())?;
        }
        out.flush()
    }
}

/// Returns the interval between two refreshes.
fn interval(on_screen: bool) -> Duration {
    if on_screen { REFRESH } else { REMIND }
}

/// Formats a time since the application started. `None`, which stands for an earlier time, becomes blanks.
pub fn instant(at: Option<f64>) -> String {
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
            let output = Output::Direct(Canvas { out: Box::new(out), drawn: 0 });
            let mut screen = Screen::of(output, on_screen, false, String::new());
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
    fn a_quiet_run_shows_one_line_once_it_takes_long() {
        let (mut written, out) = io::pipe().expect("a pipe");
        let output = Output::Direct(Canvas { out: Box::new(out), drawn: 0 });
        let mut screen = Screen::of(output, true, true, "small: hc3i".to_owned());
        screen.show_event(Some(1.0), "lyon-0 FAILS");
        assert!(!screen.is_due());
        screen.shown = screen.shown.checked_sub(QUIET).expect("the machine has run for long enough");
        assert!(screen.is_due());
        screen.show(Some(11.0), "running", &[]);
        assert!(!screen.is_due());
        screen.shown = screen.shown.checked_sub(REFRESH).expect("the machine has run for long enough");
        assert!(screen.is_due());
        screen.finish();
        let mut shown = String::new();
        written.read_to_string(&mut shown).expect("the output is text");
        assert_eq!(shown, "\u{1b}[J11.00 s  small: hc3i (running)\n\u{1b}[1F\u{1b}[J");
        // A run that is over soon writes nothing.
        let (mut written, out) = io::pipe().expect("a pipe");
        Screen::of(Output::Direct(Canvas { out: Box::new(out), drawn: 0 }), true, true, String::new())
            .finish();
        assert_eq!(written.read_to_string(&mut shown).expect("the output is text"), 0);
    }

    #[test]
    fn a_program_of_tasks_shows_tasks_instead_of_a_share() {
        let screen = Screen::of(Output::None, false, false, String::new());
        let line = |done, total| {
            let name = "paris".to_owned();
            screen.line(&Row { name, processes: 3, up: 2, checkpoints: 1, forced: 0, done, total }, 5)
        };
        assert_eq!(line(5, 20), "paris  2/3 up  1 checkpoint (0 forced)  25 %");
        assert_eq!(line(7, 0), "paris  2/3 up  1 checkpoint (0 forced)  7 tasks done");
        assert_eq!(line(0, 0), "paris  2/3 up  1 checkpoint (0 forced)");
    }
}
