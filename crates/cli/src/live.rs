//! What is shown while a run goes on: on a terminal a few lines that are refreshed in place, elsewhere one line per
//! event. Tells what the supervisor sees; judges nothing.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crossterm::{cursor, queue, terminal};
use faultline_core::{ClusterId, Fact, ProcessId, Time};
use faultline_report::Cast;
use faultline_report::narrate::Narrator;
use faultline_supervisor::Status;
use faultline_trace::manifest::LinkEntry;

use crate::arguments::{Format, OutputArguments};

/// Events kept on the screen.
const RECENT: usize = 5;
/// Between two refreshes of the screen.
const REFRESH: Duration = Duration::from_millis(100);
/// Between two lines about the state of things, where there is no screen.
const REMIND: Duration = Duration::from_secs(5);
/// Width of a progress bar.
const BAR: usize = 24;

/// The live view of a run.
pub(crate) struct Live {
    out: Option<Box<dyn Write>>,
    on_screen: bool,
    narrator: Narrator,
    title: String,
    origin: Option<Time>,
    recent: VecDeque<String>,
    drawn: u16,
    shown: Instant,
}

impl Live {
    /// The view of a run of `cast`, as the user wants it. One of many runs is shown on a terminal only.
    pub(crate) fn new(output: OutputArguments, of_many: bool, title: String, cast: Cast) -> Live {
        let (out, on_screen): (Box<dyn Write>, bool) = match output.format {
            Format::Text => (Box::new(io::stdout()), io::stdout().is_terminal()),
            Format::Json => (Box::new(io::stderr()), io::stderr().is_terminal()),
        };
        Live {
            out: (!output.quiet && (on_screen || !of_many)).then_some(out),
            on_screen,
            narrator: Narrator::new(cast),
            title,
            origin: None,
            recent: VecDeque::new(),
            drawn: 0,
            shown: Instant::now(),
        }
    }

    /// A fact was stated.
    pub(crate) fn stated(&mut self, at: Time, process: ProcessId, fact: &Fact) {
        if *fact == Fact::Begun {
            self.origin = Some(at);
        }
        if let Some(event) = self.narrator.stated(process, fact) {
            self.tell(at, event.text);
        }
    }

    /// The links have been measured.
    pub(crate) fn measured(&mut self, links: &[LinkEntry]) {
        let event = self.narrator.measured(links);
        self.tell(Time::ZERO, event.text);
    }

    /// How things are; may come more often than it is shown.
    pub(crate) fn status(&mut self, now: Time, status: &Status) {
        let wait = if self.on_screen { REFRESH } else { REMIND };
        if self.out.is_none() || self.shown.elapsed() < wait {
            return;
        }
        self.shown = Instant::now();
        if self.on_screen {
            let lines = self.screen(now, status);
            self.draw(&lines);
        } else {
            let line = format!("{}  {}", self.instant(now), self.clusters(status).join("; "));
            self.write(|out| writeln!(out, "{line}"));
        }
    }

    /// The run is over: leaves the screen to what follows.
    pub(crate) fn finish(mut self) {
        self.draw(&[]);
    }

    fn tell(&mut self, at: Time, text: String) {
        let line = format!("{}  {text}", self.instant(at));
        if self.on_screen {
            self.recent.push_back(line);
            while self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        } else {
            self.write(|out| writeln!(out, "{line}"));
        }
    }

    /// An instant since the beginning; blank before it.
    fn instant(&self, at: Time) -> String {
        match self.origin {
            Some(origin) => format!("{:>8.2} s", at.since(origin).as_secs_f64()),
            None => " ".repeat(10),
        }
    }

    fn screen(&self, now: Time, status: &Status) -> Vec<String> {
        let state = if status.begun.is_none() { "starting" } else { "running" };
        let mut lines = vec![format!("{}  {} ({state})", self.instant(now).trim_start(), self.title)];
        lines.extend(self.clusters(status).into_iter().map(|it| format!("  {it}")));
        lines.extend(self.recent.iter().cloned());
        lines
    }

    fn clusters(&self, status: &Status) -> Vec<String> {
        let cast = self.narrator.cast();
        let width = status.clusters.iter().zip(cast.clusters()).map(|(_, it)| cast.cluster(it).len()).max();
        let line = |(it, cluster): (&faultline_supervisor::ClusterStatus, ClusterId)| {
            let name = cast.cluster(cluster);
            let share = it.progress.done as f64 / it.progress.total.max(1) as f64;
            let (taken, forced) = self.narrator.checkpoints(cluster);
            let bar = if self.on_screen { format!("{} ", bar(share)) } else { String::new() };
            format!(
                "{name:width$}  {}/{} up  {taken} checkpoints ({forced} forced)  {bar}{:.0} %",
                it.up,
                it.processes,
                share * 100.0,
                width = width.unwrap_or(0),
            )
        };
        status.clusters.iter().zip(cast.clusters()).map(line).collect()
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

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}
