//! What is shown while a run goes on: on a terminal a few lines that are refreshed in place, elsewhere one line per
//! event. Tells what the supervisor sees; judges nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crossterm::{cursor, queue, terminal};
use faultline_core::{Claim, ClusterId, Fact, Incarnation, Position, ProcessId, Time};
use faultline_report::Cast;
use faultline_report::explain::count;
use faultline_report::fault::describe_fault;
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
    cast: Cast,
    title: String,
    origin: Option<Time>,
    recent: VecDeque<String>,
    checkpoints: BTreeMap<ClusterId, Checkpoints>,
    /// Clusters of which a failure has been told, but not yet the return.
    failing: BTreeSet<ClusterId>,
    /// Returns that have been told.
    told: BTreeSet<(ClusterId, Incarnation)>,
    drawn: u16,
    shown: Instant,
}

#[derive(Default)]
struct Checkpoints {
    positions: BTreeSet<Position>,
    forced: usize,
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
            cast,
            title,
            origin: None,
            recent: VecDeque::new(),
            checkpoints: BTreeMap::new(),
            failing: BTreeSet::new(),
            told: BTreeSet::new(),
            drawn: 0,
            shown: Instant::now(),
        }
    }

    /// A fact was stated.
    pub(crate) fn stated(&mut self, at: Time, process: ProcessId, fact: &Fact) {
        let cluster = self.cast.cluster_of(process);
        match fact {
            Fact::Begun => {
                self.origin = Some(at);
                self.tell(at, "the application begins".to_owned());
            }
            Fact::Injecting { no, fault } => {
                self.tell(at, format!("fault {}: {}", no.0, describe_fault(fault, &self.cast)));
            }
            Fact::Ineffective { no, reason } => {
                self.tell(at, format!("fault {} has no effect: {reason}", no.0));
            }
            Fact::Detected { process, .. } if self.failing.insert(self.cast.cluster_of(*process)) => {
                self.tell(at, format!("the end of {} is noticed", self.cast.process(*process)));
            }
            Fact::Completed => self.tell(at, "every rank has finished".to_owned()),
            Fact::Claim(claim) => match &**claim {
                Claim::Committed { position, forced, .. } => {
                    let known = self.checkpoints.entry(cluster).or_default();
                    if known.positions.insert(*position) {
                        known.forced += usize::from(*forced);
                    }
                }
                Claim::RolledBack { to, checkpoint, .. } if self.told.insert((cluster, to.incarnation)) => {
                    let target = match checkpoint.sn.0 {
                        0 => "its beginning".to_owned(),
                        _ => format!("checkpoint {}", faultline_report::cast::checkpoint(*checkpoint)),
                    };
                    self.failing.remove(&cluster);
                    self.tell(at, format!("{} goes on from {target}", self.cast.cluster(cluster)));
                }
                Claim::Unrecoverable { cluster, .. }
                    if self.told.insert((*cluster, Incarnation(u32::MAX))) =>
                {
                    self.tell(
                        at,
                        format!("no checkpoint of {} can be restored", self.cast.cluster(*cluster)),
                    );
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// The links have been measured.
    pub(crate) fn measured(&mut self, links: &[LinkEntry]) {
        let off = links.iter().filter(|it| it.as_asked() == Some(false)).count();
        self.tell(
            Time::ZERO,
            match off {
                0 => format!("{} measured, all as asked for", count(links.len() as u64, "link")),
                _ => format!("{off} of {} are not as asked for", count(links.len() as u64, "link")),
            },
        );
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
        let width =
            status.clusters.iter().zip(self.cast.clusters()).map(|(_, it)| self.cast.cluster(it).len()).max();
        let line = |(it, cluster): (&faultline_supervisor::ClusterStatus, ClusterId)| {
            let name = self.cast.cluster(cluster);
            let share = it.progress.done as f64 / it.progress.total.max(1) as f64;
            let (taken, forced) =
                self.checkpoints.get(&cluster).map_or((0, 0), |known| (known.positions.len(), known.forced));
            let bar = if self.on_screen { format!("{} ", bar(share)) } else { String::new() };
            format!(
                "{name:width$}  {}/{} up  {taken} checkpoints ({forced} forced)  {bar}{:.0} %",
                it.up,
                it.processes,
                share * 100.0,
                width = width.unwrap_or(0),
            )
        };
        status.clusters.iter().zip(self.cast.clusters()).map(line).collect()
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
