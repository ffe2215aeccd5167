//! What the federation expects of the run, compared with what was measured. Each figure is one that reports show.
//!
//! A figure is a number with an uncertainty, and may be a lower bound: further recoveries, rollbacks and lost work may
//! follow if the record is incomplete or the run did not end. Whether an expectation is met is known only if the whole
//! range of the figure is on one side of the limit.
//!
//! A figure that is a time also has a value that excludes what may not be the system's fault: the time in which the
//! machine was busy or, for an availability, the time in which the probe was not observed. If the figure misses its limit
//! only because of this time, nothing is known. If it misses the limit without this time, it is not met.

mod watched;

use std::collections::BTreeSet;

use faultline_core::fault::Outcome;
use faultline_core::{
    CheckNo, ClusterId, EndedBy, Ending, Fact, FactKind, FactNo, Fault, FaultNo, LatencyOf, Life,
    Observation, ProbeNo, ProcessId, Scope, Span, Time,
};
use faultline_trace::expectation::{Expectation, LinesAre};
use faultline_trace::printable;
use serde::Serialize;

use crate::availability::{
    Before, FaultRecovery, Latency, ProbeHistory, ProbeOutage, Sample, probes, said_in_line,
};
use crate::history::History;
use crate::ledger::Ledger;
use crate::lines::Silence;
use crate::lost::Returns;
use crate::outages::{Outage, outages};
use crate::redundant::{self, redundant};
use crate::segments::Source;
use watched::Cited;

/// An expectation with the figure that it is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assessment {
    /// The expectation, as a noun phrase.
    pub expected: String,
    /// What the expectation is about.
    pub about: About,
    /// The figure in words; `None` if there is none.
    pub measured: Option<String>,
    /// The figure: seconds, a number, or a fraction. `None` if there is none.
    pub figure: Option<f64>,
    /// The permitted limit of the figure, in the same unit.
    pub limit: f64,
    /// The largest possible error of the figure.
    pub uncertainty: f64,
    /// What programs wrote that shows it, as one line: what the command of a check wrote last, or the lines because of
    /// which an expectation of a watch is not met. `None` if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// The lines that the command of a check wrote last, unless `said` contains all of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
    /// The file with the output of a check, in the directory of the record; `None` for other expectations, or if the check
    /// did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The lines because of which an expectation of a watch is not met or unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<CitedLine>,
    /// The facts that report these lines.
    #[serde(skip)]
    pub sources: Vec<Source>,
    /// Whether the expectation is met.
    pub met: Met,
    /// The reason why this is unknown, and its remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<Unknown>,
}

/// A line that a program logged.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CitedLine {
    /// The node.
    pub node: String,
    /// The life.
    pub life: u32,
    /// The time in seconds since the start of the application.
    pub at_seconds: f64,
    /// The file with the log of the life, in the directory of the record.
    pub log: String,
    /// The number of the line in this file, from 1; omitted if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_line: Option<u32>,
    /// The line, possibly shortened.
    pub line: String,
}

/// What an expectation is about. What tells most about a loss comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum About {
    /// A check.
    Check,
    /// Commands that ended by themselves.
    Exits,
    /// What programs logged.
    Lines,
    /// The time in which a probe failed, or in which programs logged nothing.
    Outages,
    /// Another time, or the amount of lost work.
    Times,
    /// The number of rollbacks or faults.
    Numbers,
}

impl About {
    fn of(expectation: &Expectation) -> About {
        match expectation {
            Expectation::Check { .. } => About::Check,
            Expectation::Exits { .. } => About::Exits,
            Expectation::Lines { are, .. } => match are {
                LinesAre::RecoveredWithin { .. } | LinesAre::LongestGap { .. } => About::Outages,
                _ => About::Lines,
            },
            Expectation::Availability { .. }
            | Expectation::LongestOutage { .. }
            | Expectation::ProbeRecovered { .. } => About::Outages,
            Expectation::Latency { .. }
            | Expectation::RecoveredWithin(_)
            | Expectation::LostWork { .. }
            | Expectation::FinishedWithin(_) => About::Times,
            Expectation::Rollbacks { .. } | Expectation::Faults { .. } => About::Numbers,
        }
    }

    /// Returns a number that two expectations about this share if their reasons are of the same kind, in the order of kinds.
    /// `index` is that of the expectation: each one of what programs log has a kind of its own.
    pub fn kind(self, index: usize) -> u8 {
        match self {
            About::Check => 0,
            About::Exits => 1,
            About::Lines => 2 + (index % 64) as u8,
            About::Outages => 100,
            About::Times => 101,
            About::Numbers => 102,
        }
    }

    /// Returns whether a busy machine can change the figure.
    pub fn is_time(self) -> bool {
        matches!(self, About::Outages | About::Times)
    }
}

/// Whether an expectation is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Met {
    /// It is met.
    Yes,
    /// It is not met.
    No,
    /// The run does not show whether it is met.
    Unknown,
}

/// Why it is unknown whether an expectation is met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unknown {
    /// The reason.
    pub reason: String,
    /// What the user can do about it.
    pub remedy: &'static str,
    /// Whether missing facts suffice to explain it.
    #[serde(skip)]
    pub lacks_facts: bool,
}

/// A measured figure.
struct Figure {
    value: f64,
    /// The largest possible error of the value.
    error: f64,
    /// The value without the time that may not be the system's fault.
    at_best: f64,
    /// Why the figure may not be the system's fault, if `at_best` differs from the value.
    excuse: Option<Unknown>,
    /// The reason why the figure may be larger than the value by any amount.
    more: Option<Unknown>,
    words: String,
}

impl Figure {
    /// Creates a figure that only the system determines.
    fn new(value: f64, more: Option<Unknown>, words: String) -> Figure {
        Figure { value, error: 0.0, at_best: value, excuse: None, more, words }
    }
}

/// Compares what the federation expects with the run.
pub fn assess(history: &History<'_>) -> Vec<Assessment> {
    let is_over = history.context.outcome.is_some() && !history.is_flawed();
    let measuring = Measuring { history, probes: probes(history), is_over };
    history.context.expectations.iter().map(|it| measuring.assess(it)).collect()
}

/// The largest share of the time that may be unobserved.
const MOST_UNOBSERVED: f64 = 0.05;

/// A command that ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit<'h> {
    /// The fact that states the end.
    pub source: Source,
    /// The time of this fact.
    pub at: Time,
    /// How the command ended.
    pub ending: &'h Ending,
    /// What the command wrote last, as one line; `None` if it wrote nothing.
    pub said: Option<String>,
    /// Whether the command may end in this way.
    pub is_permitted: bool,
}

/// Returns the commands that ended by themselves, in the order of processes and lives.
pub fn exits<'h>(history: &'h History<'_>) -> Vec<Exit<'h>> {
    let Some(system) = &history.context.system else { return Vec::new() };
    let is_permitted = |process: &ProcessId, ending: &Ending| {
        system.may_exit.contains(process) || ending.is_success() && system.may_finish.contains(process)
    };
    let mut exits = Vec::new();
    for (&(process, life), stream) in &history.trace.streams {
        for (number, (at, fact)) in (0..).map(FactNo).zip(stream) {
            if let Some((ending, said)) = ending_of(fact) {
                exits.push(Exit {
                    source: Source { process, life, number },
                    at: *at,
                    ending,
                    said: said_in_line(said),
                    is_permitted: is_permitted(&process, ending),
                });
            }
        }
    }
    exits
}

/// The remedy if a command could not be started, which says nothing about the system.
pub const NOT_STARTED: &str =
    "see why the program of the command was missing, or why this machine could not start it";

/// Returns how a command ended by itself, and what it wrote last, if the fact states this.
pub fn ending_of(fact: &Fact) -> Option<(&Ending, &str)> {
    match fact {
        Fact::Observed(it) => match &**it {
            Observation::Exited { ending, said } => Some((ending, said)),
            _ => None,
        },
        _ => None,
    }
}

/// A command that ended because a fault had told it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandStop<'h> {
    /// The process whose command it was.
    pub process: ProcessId,
    /// The life of the process.
    pub life: Life,
    /// The time at which all processes of the command had ended.
    pub at: Time,
    /// How the command ended.
    pub ending: &'h Ending,
    /// The time from SIGTERM until then.
    pub latency: Span,
    /// Whether some of its processes were killed.
    pub killed: bool,
    /// What the command wrote last, as one line; `None` if it wrote nothing.
    pub said: Option<String>,
}

/// Returns the commands that ended because faults had told them to, in the order of processes and lives.
pub fn stops<'h>(history: &'h History<'_>) -> Vec<CommandStop<'h>> {
    let facts =
        history.trace.streams.iter().flat_map(|(life, stream)| stream.iter().map(move |it| (*life, it)));
    let stop = |((process, life), (at, fact)): ((ProcessId, Life), &'h (Time, Fact))| {
        let Fact::Observed(it) = fact else { return None };
        let Observation::Stopped { ending, latency, killed, said } = &**it else { return None };
        let (at, latency, killed, said) = (*at, *latency, *killed, said_in_line(said));
        Some(CommandStop { process, life, at, ending, latency, killed, said })
    };
    facts.filter_map(stop).collect()
}

/// Returns the file with the output of a life of a node's command, in the directory of the record.
pub fn log_of(history: &History<'_>, process: ProcessId, life: Life) -> String {
    format!("logs/{}-{}.log", history.context.names.process(process), life.0)
}

/// Returns the nodes of a system that had been ready, but whose last life was not, although its command ran.
pub fn not_ready_again(history: &History<'_>) -> Vec<(ProcessId, Life)> {
    let is_completed = history.context.outcome == Some(Outcome::Completed);
    if history.context.system.is_none() || !is_completed {
        return Vec::new();
    }
    let has_observed = |stream: &[(Time, Fact)], kind| stream.iter().any(|it| it.1.kind() == kind);
    let last = |process: &ProcessId| {
        let (life, stream) = history.trace.lives(*process).next_back()?;
        let has_ended = history.supervision.ends.iter().any(|it| (it.process, it.life) == (*process, life));
        let is_missing = life > Life(1) && !has_ended;
        let kinds = [FactKind::Ready, FactKind::Exited];
        (is_missing && !kinds.iter().any(|it| has_observed(stream, *it))).then_some((*process, life))
    };
    history.context.clusters.iter().flatten().filter_map(last).collect()
}

struct Measuring<'h, 'a> {
    history: &'h History<'a>,
    probes: Vec<ProbeHistory>,
    /// Whether no further facts can be missing.
    is_over: bool,
}

impl Measuring<'_, '_> {
    fn assess(&self, expectation: &Expectation) -> Assessment {
        let checked = match *expectation {
            Expectation::Check { check, .. } => self.checked(check),
            _ => None,
        };
        let mut cited = Cited::default();
        let (limit, figure) = match *expectation {
            Expectation::Lines { watch, ref are } => self.lines(watch, are, &mut cited),
            Expectation::Availability { probe, at_least } => (at_least, self.availability(probe, at_least)),
            Expectation::Latency { probe, of, at_most } => (at_most.as_secs_f64(), self.latency(probe, of)),
            Expectation::LongestOutage { probe, at_most } => {
                (at_most.as_secs_f64(), self.longest_outage(probe))
            }
            Expectation::ProbeRecovered { probe, within } => {
                let limit = within.as_secs_f64();
                (limit, self.recovery_of(probe, limit))
            }
            Expectation::Check { .. } => (0.0, self.check(checked.as_ref())),
            Expectation::Exits { cluster, at_most } => (at_most as f64, Ok(self.exits(cluster))),
            Expectation::RecoveredWithin(within) => (within.as_secs_f64(), self.recovery()),
            Expectation::Rollbacks { at_most } => (at_most as f64, Ok(self.rollbacks())),
            Expectation::LostWork { at_most } => (at_most.as_secs_f64(), Ok(self.lost_work())),
            Expectation::FinishedWithin(within) => (within.as_secs_f64(), self.duration()),
            Expectation::Faults { at_least } => (at_least as f64, Ok(self.faults())),
        };
        let about = About::of(expectation);
        // An availability and a number of faults or lines may have to be large. No other figure must be too large.
        let sign = match expectation {
            Expectation::Availability { .. }
            | Expectation::Faults { .. }
            | Expectation::Lines { are: LinesAre::AtLeast(_), .. } => -1.0,
            _ => 1.0,
        };
        let (met, unknown) = match &figure {
            Ok(figure) => self.compare(figure, sign, limit, about.is_time()),
            Err(unknown) => (Met::Unknown, Some(unknown.clone())),
        };
        let figure = figure.ok();
        if met == Met::Yes {
            cited = Cited::default();
        }
        Assessment {
            expected: expectation.describe(&self.history.context.names),
            about,
            figure: figure.as_ref().map(|it| it.value),
            uncertainty: figure.as_ref().map_or(0.0, |it| it.error),
            measured: figure.map(|it| it.words),
            limit,
            said: checked.as_ref().and_then(|it| said_in_line(it.said)).or(cited.words),
            output: checked.as_ref().map(|it| lines_of(it.said)).unwrap_or_default(),
            lines: cited.lines,
            sources: cited.sources,
            log: checked.map(|it| log_of(self.history, it.process, it.life)),
            met,
            unknown,
        }
    }

    /// Compares a figure with the largest permitted one, after both have been multiplied by `sign`.
    fn compare(
        &self,
        figure: &Figure,
        sign: f64,
        limit: f64,
        is_affected_by_links: bool,
    ) -> (Met, Option<Unknown>) {
        let unknown = |it| (Met::Unknown, Some(it));
        let misses = |value: f64| value * sign - figure.error > limit * sign;
        if misses(figure.at_best) {
            let context = &self.history.context;
            let is_off = || context.links.iter().any(|it| it.is_judged() && it.is_off());
            return match is_affected_by_links && is_off() {
                true => unknown(Unknown {
                    reason: "the links did not have the requested delays, which may be the reason".into(),
                    remedy: "repeat the run on an idle machine",
                    lacks_facts: false,
                }),
                false => (Met::No, None),
            };
        }
        if let Some(more) = &figure.more {
            return unknown(more.clone());
        }
        if let Some(excuse) = figure.excuse.as_ref().filter(|_| misses(figure.value)) {
            return unknown(excuse.clone());
        }
        if figure.value * sign + figure.error <= limit * sign {
            return (Met::Yes, None);
        }
        unknown(Unknown {
            reason: "the measured time is too uncertain".into(),
            remedy: "repeat the run, sample more often or with a shorter `timeout`, or permit a longer time",
            lacks_facts: false,
        })
    }

    /// Returns for how long the machine was busy in a period.
    fn busy(&self, from: Time, upto: Time) -> Span {
        self.history.context.pressure.as_ref().map_or(Span::ZERO, |it| it.within(from, upto))
    }

    /// Returns the longest of these periods, and the longest without the time in which the machine was busy. `what` is
    /// what a period is called.
    fn longest<'p>(
        &self,
        periods: impl Iterator<Item = &'p Silence>,
        what: &str,
    ) -> Option<(f64, f64, Option<Unknown>)> {
        let each = periods.map(|it| {
            (it.lasted().as_secs_f64(), self.busy(it.from, it.upto).min(it.lasted()).as_secs_f64())
        });
        let all: Vec<(f64, f64)> = each.collect();
        let (longest, busy) = all.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let at_best = all.iter().map(|(lasted, busy)| lasted - busy).fold(0.0, f64::max);
        Some((longest, at_best, was_busy(busy, what)))
    }

    /// Returns the longest recovery from an outage.
    fn recovery(&self) -> Result<Figure, Unknown> {
        let (history, begun) = (self.history, self.history.supervision.begun.unwrap_or_default());
        let all = outages(history, &Ledger::of(history));
        let ended = history.end().since(begun).as_secs_f64();
        let at = |seconds: f64| begun + Span((seconds.max(0.0) * 1e9) as u64);
        let period = |it: &Outage| {
            let lasted = it.recovery_seconds.unwrap_or(ended - it.at_seconds);
            (lasted, self.busy(at(it.at_seconds), at(it.at_seconds + lasted)).as_secs_f64())
        };
        let periods: Vec<(f64, f64)> = all.iter().map(period).collect();
        let Some(&(value, busy)) = periods.iter().max_by(|a, b| a.0.total_cmp(&b.0)) else {
            return Err(self.lacks_facts().unwrap_or_else(|| Unknown {
                reason: "no process failed".into(),
                remedy: "plan a fault that ends a process, or omit the expectation",
                lacks_facts: false,
            }));
        };
        let at_best = periods.iter().map(|(lasted, busy)| lasted - busy).fold(0.0, f64::max);
        let is_open = all.iter().any(|it| it.recovery_seconds.is_none());
        let error = self.clock_error();
        let words = match all.len() {
            _ if is_open => format!("{} until the end of the run", seconds(value, error)),
            1 => seconds(value, error),
            all => format!("{}, the longest of {all} recoveries", seconds(value, error)),
        };
        let more = self.lacks_facts().or_else(|| {
            is_open.then(|| Unknown {
                reason: "a process had not resumed when the run ended".into(),
                remedy: "let the run last longer, or inject the last fault earlier",
                lacks_facts: false,
            })
        });
        Ok(Figure { value, error, at_best, excuse: was_busy(busy, "this recovery"), more, words })
    }

    /// Returns the number of rollbacks: of clusters or, if each process rolls back alone, of processes.
    fn rollbacks(&self) -> Figure {
        let context = self.history.context;
        let units = match context.promises.scope {
            Scope::Process => context.clusters.iter().flatten().map(|it| vec![*it]).collect(),
            Scope::Cluster | Scope::Federation => context.clusters.clone(),
        };
        let returns = Returns::new(self.history);
        let number: usize = units
            .iter()
            .map(|unit| {
                let all = unit.iter().flat_map(|it| returns.of(*it)).map(|it| it.incarnation);
                all.collect::<BTreeSet<_>>().len()
            })
            .sum();
        Figure::new(number as f64, self.unfinished(), number.to_string())
    }

    /// Returns the number of faults that took effect.
    fn faults(&self) -> Figure {
        let number = took_effect(self.history).len();
        // More faults may have taken effect than the record shows.
        let figure = Figure::new(number as f64, self.lacks_facts(), number.to_string());
        // What a fault that seems to have changed nothing did change is not known.
        let redundant = redundant(self.history);
        match redundant.first_key_value() {
            Some((no, reason)) => Figure {
                at_best: (number + redundant.len()) as f64,
                excuse: Some(Unknown {
                    reason: format!("{no} {reason}"),
                    remedy: redundant::REMEDY,
                    lacks_facts: false,
                }),
                ..figure
            },
            None => figure,
        }
    }

    /// Returns the lost work of all processes.
    fn lost_work(&self) -> Figure {
        let returns = Returns::new(self.history);
        let all = self.history.context.clusters.iter().flatten();
        let undone = all.flat_map(|it| returns.of(*it)).flat_map(|it| it.undone.clone());
        let taken_over = returns.successions();
        let undone = undone.chain(taken_over.iter().flat_map(|it| it.undone.clone()));
        let (mut value, mut busy) = (Span::ZERO, Span::ZERO);
        for it in undone {
            value = value + it.lost();
            busy = busy + self.busy(it.began, it.ended).min(it.lost());
        }
        let (value, busy) = (value.as_secs_f64(), busy.as_secs_f64());
        let error = self.clock_error() * self.history.supervision.ends.len() as f64;
        Figure {
            value,
            error,
            at_best: value - busy,
            excuse: was_busy(busy, "the lost time"),
            more: self.unfinished(),
            words: seconds(value, error),
        }
    }

    /// Returns the time from the start of the application to the end of the run, by the supervisor's clock.
    fn duration(&self) -> Result<Figure, Unknown> {
        let context = self.history.context;
        let Some(begun) = self.history.supervision.begun else {
            return Err(Unknown {
                reason: "the application did not start".into(),
                remedy: "repeat the run; if it does not start again, see its log",
                lacks_facts: true,
            });
        };
        let value = context.end.since(begun).as_secs_f64();
        let words = match context.outcome.as_ref().is_some_and(|it| it.name() == "completed") {
            true => seconds(value, 0.0),
            false => format!("not finished after {}", seconds(value, 0.0)),
        };
        let busy = self.busy(begun, context.end).as_secs_f64();
        let figure = Figure::new(value, self.unfinished(), words);
        Ok(Figure { at_best: value - busy, excuse: was_busy(busy, "the run"), ..figure })
    }

    fn probe(&self, probe: ProbeNo) -> Result<&ProbeHistory, Unknown> {
        let history = self.probes.get(probe.index()).filter(|it| it.samples().1 > 0);
        history.ok_or_else(|| Unknown {
            reason: "the probe did not run".into(),
            remedy: "see the log of its node, or let another cluster run it (`by`)",
            lacks_facts: !self.is_over,
        })
    }

    /// Returns the reason why too little is known about a probe, if it was not observed for too long.
    fn unobserved(&self, probe: &ProbeHistory) -> Option<Unknown> {
        let share = probe.unobserved();
        (share > MOST_UNOBSERVED).then(|| {
            let last = probe.strips.iter().filter_map(|it| it.last_unknown.as_ref()).max_by_key(|it| it.at);
            let said = last.map(|it| format!(" (the last sample that shows nothing: {})", it.text));
            Unknown {
                reason: format!(
                    "the probe was not observed for {:.1} % of the time{}",
                    share * 100.0,
                    said.unwrap_or_default()
                ),
                remedy: "let a cluster of clients run it (`by`), which no fault affects, sample less often, or use an idle \
                         machine",
                lacks_facts: false,
            }
        })
    }

    /// Returns the share of the time in which the probe was up. If it was not observed for too long, there is no such
    /// figure, unless it misses the limit anyway.
    fn availability(&self, probe: ProbeNo, limit: f64) -> Result<Figure, Unknown> {
        let probe = self.probe(probe)?;
        let availability = probe.availability();
        let unobserved = self.unobserved(probe);
        let Some(value) = availability.share() else {
            return Err(unobserved.unwrap_or_else(|| Unknown {
                reason: "the probe was not observed".into(),
                remedy: "let the run last longer",
                lacks_facts: !self.is_over,
            }));
        };
        let busy = probe.outages().map(|it| self.busy(it.from, it.upto));
        let busy = busy.fold(Span::ZERO, |sum, it| sum + it);
        let last_failed = probe.strips.iter().filter_map(|it| it.last_failed.as_ref()).max_by_key(|it| it.at);
        // A probe that never succeeds is probably wrong.
        let said = last_failed.filter(|_| probe.samples().0 == 0);
        let of = match said {
            Some(it) => format!("the time in which no sample succeeded (the last one: {})", it.text),
            None => "the time in which the probe failed".to_owned(),
        };
        let excuse = was_busy(busy.as_secs_f64(), &of).unwrap_or_else(|| Unknown {
            reason: format!(
                "the probe was not observed for {:.1} % of the time, which may be the reason",
                probe.unobserved() * 100.0
            ),
            remedy: "let a cluster of clients run it (`by`), which no fault affects, or use an idle machine",
            lacks_facts: false,
        });
        let words = format!(
            "{:.1} % of {}",
            value * 100.0,
            seconds(availability.whole.as_secs_f64() - availability.unobserved.as_secs_f64(), 0.0)
        );
        let at_best = availability.at_best(busy);
        let more = match unobserved {
            Some(unobserved) if at_best >= limit => return Err(unobserved),
            unobserved => self.unfinished().or(unobserved),
        };
        Ok(Figure { at_best, excuse: Some(excuse), ..Figure::new(value, more, words) })
    }

    /// Returns how long the successful samples of a probe took.
    fn latency(&self, probe: ProbeNo, of: LatencyOf) -> Result<Figure, Unknown> {
        let probe = self.probe(probe)?;
        let successful = || probe.strips.iter().flat_map(|it| &it.samples).filter(|it| it.is_success());
        let figure = |taken: &dyn Fn(&Sample) -> Span| {
            let latency = Latency::of(successful().map(taken), probe.delays())?;
            Some(match of {
                LatencyOf::P50 => latency.p50,
                LatencyOf::P99 => latency.p99,
                LatencyOf::Max => latency.longest,
            })
        };
        let idle = |it: &Sample| Span(it.latency().0.saturating_sub(self.busy(it.from, it.upto).0));
        let (Some(value), Some(at_best)) = (figure(&Sample::latency), figure(&idle)) else {
            return Err(Unknown {
                reason: "no sample succeeded".into(),
                remedy: "see why the probe failed, or assert its availability",
                lacks_facts: !self.is_over,
            });
        };
        let busy = value.as_secs_f64() - at_best.as_secs_f64();
        let words = format!("{} of {} samples", seconds(value.as_secs_f64(), 0.0), successful().count());
        let more = self.unfinished().or_else(|| self.unobserved(probe));
        let figure = Figure::new(value.as_secs_f64(), more, words);
        Ok(Figure { at_best: at_best.as_secs_f64(), excuse: was_busy(busy, "this latency"), ..figure })
    }

    /// Returns the longest outage of a probe.
    fn longest_outage(&self, probe: ProbeNo) -> Result<Figure, Unknown> {
        let probe = self.probe(probe)?;
        let periods: Vec<Silence> =
            probe.outages().map(|it| Silence::between(it.from, it.upto, it.is_open)).collect();
        let (value, at_best, excuse) =
            self.longest(periods.iter(), "this outage").unwrap_or((Span::ZERO.as_secs_f64(), 0.0, None));
        let more = self.unfinished().or_else(|| self.unobserved(probe)).or_else(|| {
            probe.outages().any(|it: &ProbeOutage| it.is_open).then(|| Unknown {
                reason: "an outage had not ended when it was last observed".into(),
                remedy: "let the run last longer, or let a cluster of clients run the probe (`by`)",
                lacks_facts: false,
            })
        });
        Ok(Figure { at_best, excuse, ..Figure::new(value, more, seconds(value, 0.0)) })
    }

    /// Returns the longest recovery of a probe after a fault. A fault is not judged if the next one takes effect before the
    /// probe has recovered and before the limit. If the run ends first, or if the probe was not working when a fault struck,
    /// its recovery from this fault is unknown.
    fn recovery_of(&self, probe: ProbeNo, limit: f64) -> Result<Figure, Unknown> {
        let probe = self.probe(probe)?;
        let error = probe.uncertainty().as_secs_f64() + self.clock_error();
        let recoveries: Vec<FaultRecovery> =
            probe.recoveries.iter().map(|it| probe.up_to(it, Span((limit * 1e9) as u64))).collect();
        let is_judged = |it: &&FaultRecovery| {
            let has_missed = || it.within.as_secs_f64() - error > limit;
            it.before == Before::Working && (it.recovered.is_some() || has_missed())
        };
        let is_cut_short = |it: &&FaultRecovery| {
            let lasts_until_end = it.at + it.within >= probe.window.1;
            it.before == Before::Working && !is_judged(it) && it.failed > Span::ZERO && lasts_until_end
        };
        let cut_short = recoveries.iter().find(is_cut_short).map(|it| Unknown {
            reason: format!(
                "it had not recovered from fault {} when the run ended {} later",
                it.no.0,
                seconds(it.within.as_secs_f64(), 0.0)
            ),
            remedy: "let the run last longer (`ends`)",
            lacks_facts: false,
        });
        let not_working = probe.recoveries.iter().find_map(|it| self.not_working(probe, it));
        let unknown = not_working.or(cut_short);
        let judged: Vec<&FaultRecovery> = recoveries.iter().filter(is_judged).collect();
        let silence = |it: &&FaultRecovery| {
            Silence::between(it.at, it.at + it.recovered.unwrap_or(it.within), it.recovered.is_none())
        };
        let periods: Vec<Silence> = judged.iter().map(silence).collect();
        let mut figure = self.recoveries(&periods, [judged.len(), recoveries.len()], error, unknown)?;
        if judged.iter().all(|it| it.did_not_fail()) {
            figure.words = "did not fail".to_owned();
        }
        figure.more = self.lacks_facts().or_else(|| self.unobserved(probe)).or(figure.more);
        Ok(figure)
    }

    /// Returns the longest of these recoveries. `judged` and `all` are the numbers of faults, and `unknown` is the reason why
    /// another recovery is unknown.
    fn recoveries(
        &self,
        periods: &[Silence],
        [judged, all]: [usize; 2],
        error: f64,
        unknown: Option<Unknown>,
    ) -> Result<Figure, Unknown> {
        let Some((value, at_best, excuse)) = self.longest(periods.iter(), "this recovery") else {
            return Err(unknown.unwrap_or_else(|| Unknown {
                reason: "no fault took effect long enough before the next one or the end".into(),
                remedy: "plan a fault, or leave more time after it",
                lacks_facts: !self.is_over,
            }));
        };
        let time = seconds(value, error);
        let words = match (judged, all) {
            _ if periods.iter().any(|it| it.is_open && it.lasted().as_secs_f64() >= value) => {
                format!("not recovered after {time}")
            }
            (1, 1) => time,
            (1, all) => format!("{time}, after 1 of {all} faults"),
            (judged, all) if judged == all => format!("{time}, the longest after {all} faults"),
            (judged, all) => format!("{time}, the longest after {judged} of {all} faults"),
        };
        Ok(Figure { error, at_best, excuse, ..Figure::new(value, unknown, words) })
    }

    /// Returns why nothing is known about the recovery of a probe from a fault, if it was not working when the fault
    /// struck.
    fn not_working(&self, probe: &ProbeHistory, it: &FaultRecovery) -> Option<Unknown> {
        let (process, what) = match it.before {
            Before::Working => return None,
            Before::Failing(process) => (process, "was failing"),
            Before::Unobserved(process) => (process, "was not observed"),
        };
        Some(Unknown {
            reason: format!(
                "probe {} of {} {what} when fault {} struck, so its recovery is unknown",
                probe.entry.name,
                self.history.context.process(process),
                it.no.0
            ),
            remedy: "see why the probe did not succeed before the fault, or plan the fault for another time",
            lacks_facts: false,
        })
    }

    /// Returns the result of a check; `None` if it did not run.
    fn checked(&self, check: CheckNo) -> Option<Checked<'_>> {
        let streams = self.history.trace.streams.iter();
        let mut facts = streams
            .flat_map(|(&(process, life), stream)| stream.iter().map(move |(_, fact)| (process, life, fact)));
        facts.find_map(|(process, life, fact)| {
            let Fact::Observed(it) = fact else { return None };
            let Observation::Checked { check: of, latency, ending, said } = &**it else { return None };
            (*of == check).then_some(Checked { process, life, latency: *latency, ending, said })
        })
    }

    /// Returns 0 if a check succeeded, and 1 if it failed.
    fn check(&self, checked: Option<&Checked<'_>>) -> Result<Figure, Unknown> {
        match checked {
            // A command that has failed says so with its exit status. Anything else is why it did not run.
            Some(it)
                if matches!(it.ending, Ending::TimedOut | Ending::Failed(_)) || it.ending.is_unknown() =>
            {
                Err(Unknown {
                    reason: quoted_after(it),
                    remedy: match it.ending {
                        Ending::TimedOut => "raise `within`, or correct the command",
                        _ => "see in the log of its node why the check could not tell",
                    },
                    lacks_facts: false,
                })
            }
            Some(it) => {
                let value = if it.ending.is_success() { 0.0 } else { 1.0 };
                Ok(Figure::new(value, None, format!("{} after {}", it.ending, it.latency)))
            }
            None => Err(Unknown {
                reason: "the check did not run".into(),
                remedy: "see whether the run ended early, and whether the node of the check was up",
                lacks_facts: !self.is_over,
            }),
        }
    }

    /// Returns the number of commands of a cluster that ended by themselves.
    fn exits(&self, cluster: ClusterId) -> Figure {
        let members = self.history.context.clusters.get(cluster.index()).into_iter().flatten();
        let streams = members.flat_map(|it| self.history.trace.lives(*it)).flat_map(|(_, stream)| stream);
        let endings: Vec<&Ending> = streams.filter_map(|(_, fact)| ending_of(fact)).map(|it| it.0).collect();
        let is_impossible = |it: &&&Ending| matches!(it, Ending::Impossible(_));
        let number = endings.iter().filter(|it| !is_impossible(it)).count();
        let impossible = endings.iter().find(is_impossible).map(|it| Unknown {
            reason: it.to_string(),
            remedy: NOT_STARTED,
            lacks_facts: false,
        });
        Figure::new(number as f64, self.unfinished().or(impossible), number.to_string())
    }

    /// Returns the largest difference between the clocks of two processes that the record shows.
    fn clock_error(&self) -> f64 {
        let effects = self.history.context.effects.iter().flat_map(|it| &it.on);
        effects.map(|it| it.error).max().unwrap_or_default().as_secs_f64()
    }

    /// Returns the reason why something may have happened that no fact shows.
    fn lacks_facts(&self) -> Option<Unknown> {
        (!self.is_over).then(|| Unknown {
            reason: "facts may be missing".into(),
            remedy: "repeat the run, or restore the files of the record from a complete copy",
            lacks_facts: true,
        })
    }

    /// Returns the reason why something may still have happened after the run.
    fn unfinished(&self) -> Option<Unknown> {
        let is_completed = self.history.context.outcome.as_ref().is_some_and(|it| it.name() == "completed");
        self.lacks_facts().or_else(|| {
            (!is_completed).then(|| Unknown {
                reason: "the run ended before the application had finished".into(),
                remedy: "raise `deadline`, or see why the run ended",
                lacks_facts: false,
            })
        })
    }
}

/// The result of a check.
struct Checked<'h> {
    process: ProcessId,
    life: Life,
    latency: Span,
    ending: &'h Ending,
    said: &'h str,
}

/// Returns what a command wrote last, line by line; empty if it wrote only one line.
fn lines_of(said: &str) -> Vec<String> {
    let plain = |it: &str| printable(&it.replace('\t', "    ")).trim_end().to_owned();
    let lines: Vec<String> = said.lines().map(plain).filter(|it| !it.is_empty()).collect();
    if lines.len() > 1 { lines } else { Vec::new() }
}

/// Describes the result of a check, with what it wrote last.
fn quoted_after(it: &Checked<'_>) -> String {
    let said = said_in_line(it.said).map(|said| format!(": {said}")).unwrap_or_default();
    format!("{} after {}{said}", it.ending, it.latency)
}

/// Returns the reason why a time may be the machine's fault; `None` if the machine was not busy.
fn was_busy(busy: f64, of: &str) -> Option<Unknown> {
    (busy > 0.0).then(|| Unknown {
        reason: format!("the machine was busy for {} of {of}", seconds(busy, 0.0)),
        remedy: "repeat the run on an idle machine",
        lacks_facts: false,
    })
}

/// Returns the faults that were injected and took effect, as far as the record shows.
///
/// On real processes, the run may end before a process applies an injected fault. The manifest states when processes
/// applied it. A fault that ended no life, because its target was down already, needs no report. In virtual time, a fault is
/// applied when it is injected. Until a run ends, its manifest states no effects, so nothing is known about its faults.
///
/// In a system, a fault that [changed nothing](crate::redundant) took no effect.
pub fn took_effect(history: &History<'_>) -> BTreeSet<FaultNo> {
    let context = history.context;
    let flipped = history.flipped_by();
    let is_reported = |no: FaultNo| {
        let mut effects = context.effects.iter().filter(|it| it.no == no);
        effects.any(|it| it.on.iter().any(|it| it.at.is_some()))
    };
    // The end of a life is detected only once its place has seen it.
    let has_ended = |no| {
        let ends = history.supervision.ends.iter().filter(|it| it.by == Some(EndedBy::Fault(no)));
        let detected: Vec<bool> = ends.map(|it| it.detected.is_some()).collect();
        (detected.is_empty(), detected.contains(&true))
    };
    let is_applied = |no: FaultNo, fault: &Fault| match fault.flips() {
        Some(_) => flipped.contains_key(&no),
        None if !context.measures_links || context.outcome.is_none() => true,
        None if is_reported(no) => true,
        None => match has_ended(no) {
            // A command that was told to end may still have been running.
            (true, _) => fault.kills().is_some() && !fault.is_stop(),
            (_, has_ended) => has_ended,
        },
    };
    let redundant = redundant(history);
    let injected = history.supervision.injected.iter().filter(|it| !redundant.contains_key(&it.0));
    injected.filter(|it| is_applied(it.0, it.1)).map(|it| it.0).collect()
}

/// Formats a time with its uncertainty.
fn seconds(value: f64, error: f64) -> String {
    let time = faultline_trace::duration::span;
    match error > 0.0 {
        true => format!("{} +-{}", time(value), time(error)),
        false => time(value),
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::fault::Outcome;
    use faultline_core::{EndedBy, FaultNo, Life, Time};
    use faultline_trace::manifest::{Effect, EffectEntry, Pressure};

    use super::*;
    use crate::testing::{Run, p};

    const SECOND: Span = Span::from_secs(1);

    /// A run of 12 s. One process fails after 5 s, and both have rolled back 3 s later.
    fn recovered(expectations: &[Expectation]) -> Run {
        let mut run = Run::new(&[&[0, 1]]);
        run.context.expectations = expectations.to_vec();
        run.supervisor(Fact::Begun);
        run.commit_all(0, &[0, 1]);
        for it in [0, 1] {
            run.send(it, 1 - it);
        }
        run.wait(SECOND * 5);
        run.kill(0, false);
        run.wait(SECOND * 2);
        run.restore(0, 1, Some((0, 1)));
        run.wait(SECOND);
        run.restore(1, 1, Some((0, 1)));
        run.wait(SECOND * 4);
        run.supervisor(Fact::Completed);
        run.context.outcome = Some(Outcome::Completed);
        run.context.end = Time::ZERO + SECOND * 12;
        run
    }

    fn met(run: &Run) -> Vec<Met> {
        assess(&run.history()).iter().map(|it| it.met).collect()
    }

    /// Limits that the run above just meets, and limits that it just exceeds.
    fn limits() -> ([Expectation; 4], [Expectation; 4]) {
        let of = |recovery: u64, rollbacks, lost: u64, end: u64| {
            [
                Expectation::RecoveredWithin(Span::from_millis(recovery)),
                Expectation::Rollbacks { at_most: rollbacks },
                Expectation::LostWork { at_most: Span::from_millis(lost) },
                Expectation::FinishedWithin(Span::from_millis(end)),
            ]
        };
        (of(3_000, 1, 13_000, 12_000), of(2_999, 0, 12_999, 11_999))
    }

    #[test]
    fn each_figure_is_compared_with_its_limit() {
        let (just, exceeded) = limits();
        let run = recovered(&just);
        let all = assess(&run.history());
        assert_eq!(all.iter().map(|it| it.figure).collect::<Vec<_>>(), [3.0, 1.0, 13.0, 12.0].map(Some));
        assert!(all.iter().all(|it| it.met == Met::Yes), "{all:?}");
        assert_eq!(met(&recovered(&exceeded)), [Met::No; 4]);
    }

    #[test]
    fn more_may_follow_in_an_unfinished_run_but_a_limit_that_is_exceeded_stays_exceeded() {
        let (just, exceeded) = limits();
        for (outcome, recovery) in [(None, Met::Unknown), (Some(Outcome::Deadline), Met::Yes)] {
            let mut run = recovered(&just);
            run.context.outcome = outcome.clone();
            let all = met(&run);
            assert_eq!(all, [recovery, Met::Unknown, Met::Unknown, Met::Unknown], "{outcome:?}");
            let mut run = recovered(&exceeded);
            run.context.outcome = outcome;
            assert_eq!(met(&run), [Met::No; 4]);
        }
    }

    #[test]
    fn a_recovery_that_does_not_end_and_a_run_without_failures_are_unknown() {
        let expected = |within: u64| [Expectation::RecoveredWithin(SECOND * within)];
        for (within, verdict) in [(6, Met::No), (7, Met::Unknown)] {
            let mut run = Run::new(&[&[0, 1]]);
            run.context.expectations = expected(within).to_vec();
            run.context.outcome = Some(Outcome::Deadline);
            run.supervisor(Fact::Begun);
            run.kill(0, false);
            run.wait(SECOND * 7);
            run.send(1, 0);
            assert_eq!(met(&run), [verdict], "{within}");
        }
        let mut run = Run::new(&[&[0, 1]]);
        run.context.expectations = expected(1).to_vec();
        run.context.outcome = Some(Outcome::Completed);
        run.supervisor(Fact::Begun);
        run.send(1, 0);
        let unknown = assess(&run.history()).remove(0).unknown.expect("nothing was measured");
        assert_eq!(unknown.reason, "no process failed");
    }

    #[test]
    fn a_difference_within_the_uncertainty_of_the_clocks_is_unknown() {
        let (just, _) = limits();
        let mut run = recovered(&just[..1]);
        let at = Some(Time::ZERO);
        let effect = Effect {
            process: p(0),
            life: Life(1),
            at,
            exited: None,
            slowed: None,
            error: Span::from_millis(5),
        };
        run.context.effects =
            vec![EffectEntry { no: FaultNo(0), due: Time::ZERO, on: vec![effect], idle: Vec::new() }];
        let found = assess(&run.history()).remove(0);
        assert_eq!((found.met, found.measured.as_deref()), (Met::Unknown, Some("3.00 s +-5.00 ms")));
        run.context.expectations = vec![Expectation::RecoveredWithin(Span::from_millis(3_005))];
        assert_eq!(met(&run), [Met::Yes]);
        run.context.expectations = vec![Expectation::RecoveredWithin(Span::from_millis(2_994))];
        assert_eq!(met(&run), [Met::No]);
    }

    #[test]
    fn a_time_that_misses_its_limit_only_because_the_machine_was_busy_is_unknown() {
        let seconds = |from: u64, upto: u64| (Time::ZERO + SECOND * from, Time::ZERO + SECOND * upto);
        let expected = [
            Expectation::RecoveredWithin(Span::from_millis(2_500)),
            Expectation::FinishedWithin(Span::from_millis(10_500)),
            Expectation::LostWork { at_most: SECOND * 11 },
            Expectation::Rollbacks { at_most: 0 },
        ];
        // The recovery lasts from 5 s to 8 s.
        for (busy, met) in [
            (vec![], [Met::No; 4]),
            (vec![seconds(0, 1)], [Met::No, Met::No, Met::Unknown, Met::No]),
            (vec![seconds(6, 7), seconds(9, 10)], [Met::Unknown, Met::Unknown, Met::No, Met::No]),
        ] {
            let mut run = recovered(&expected);
            run.context.pressure = Some(Pressure::Busy(busy.clone()));
            let found = assess(&run.history());
            assert_eq!(found.iter().map(|it| it.met).collect::<Vec<_>>(), met, "{busy:?}: {found:?}");
        }
        let mut run = recovered(&expected[..1]);
        run.context.pressure = Some(Pressure::Busy(vec![seconds(6, 7)]));
        let unknown = assess(&run.history()).remove(0).unknown.expect("the recovery may be too long");
        assert_eq!(unknown.reason, "the machine was busy for 1.00 s of this recovery");
        assert_eq!(unknown.remedy, "repeat the run on an idle machine");
    }

    #[test]
    fn the_number_of_faults_that_took_effect_is_compared_with_its_limit() {
        let expected = [1, 2].map(|at_least| Expectation::Faults { at_least });
        let mut run = recovered(&expected);
        run.inject_crash(1);
        assert_eq!(met(&run), [Met::Yes, Met::No]);
        // On real processes, nothing shows that the crash ended the process that it was to end.
        run.context.measures_links = true;
        let (process, life, by) = (p(1), Life(2), EndedBy::Fault(FaultNo(0)));
        run.supervisor(Fact::Failed { process, life, storage: faultline_core::StorageFate::Kept, by });
        assert_eq!(met(&run), [Met::No, Met::No]);
    }

    #[test]
    fn an_unplanned_failure_counts_like_any_other() {
        let (just, _) = limits();
        let mut run = recovered(&just[..1]);
        let (process, by) = (p(1), EndedBy::Silence);
        run.supervisor(Fact::Failed {
            process,
            life: Life(1),
            storage: faultline_core::StorageFate::Kept,
            by,
        });
        run.wait(SECOND * 4);
        run.send(0, 1);
        assert_eq!(met(&run), [Met::No]);
    }
}
