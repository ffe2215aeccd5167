//! A run as text: one line per event, with a time, a process or a cluster, and an action. Intended for small runs, such
//! as counterexamples.
//!
//! Lines are ordered by the times that the drivers recorded. This is the order of the events only if all processes
//! share one clock, as in the simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use faultline_core::{Claim, Fact, Life, PartitionClaim, ProcessId, RunNames, TaskId, Time};
use faultline_trace::Trace;
use faultline_trace::describe::{Subject, describe};

use crate::names::DisplayNames;
use crate::timeline::Timeline;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptLine {
    /// Microseconds since the application started; negative before the start.
    pub micros: i64,
    /// The process or the cluster; empty if the line belongs to neither.
    pub who: String,
    /// The description of the event.
    pub text: String,
}

/// Returns the lines of a run. Messages are named m1, m2, … in the order in which they are first sent, and tasks t1,
/// t2, … in the order in which they are first mentioned.
pub fn transcript(trace: &Trace, timeline: &Timeline, names: &DisplayNames) -> Vec<TranscriptLine> {
    written(trace, timeline, names).lines
}

/// Returns the names that the run's transcript gives to tasks: t1, t2, … Stored in [`RunNames::tasks`], they let other
/// sentences about the run use the same names.
pub fn task_names(trace: &Trace, timeline: &Timeline, names: &DisplayNames) -> BTreeMap<TaskId, String> {
    written(trace, timeline, names).short.tasks
}

fn written<'a>(trace: &Trace, timeline: &Timeline, names: &'a DisplayNames) -> Writer<'a> {
    let mut facts: Vec<(Time, ProcessId, Life, &Fact)> = trace
        .streams
        .iter()
        .flat_map(|(&(process, life), stream)| {
            stream.iter().map(move |(at, fact)| (*at, process, life, fact))
        })
        .collect();
    // If times are equal, the supervisor comes first, because it gives orders before other processes follow them. The
    // order within a life is kept.
    facts.sort_by_key(|&(at, process, ..)| (at, process != ProcessId::SUPERVISOR));
    let mut writer = Writer {
        names,
        short: names.names().clone(),
        origin: timeline.origin,
        told: BTreeSet::new(),
        lines: Vec::new(),
    };
    for (at, process, life, fact) in facts {
        writer.fact(at, process, life, fact);
    }
    writer
}

/// Formats the lines, with times in milliseconds.
pub fn text(lines: &[TranscriptLine]) -> String {
    let width = lines.iter().map(|it| it.who.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for TranscriptLine { micros, who, text: what } in lines {
        let millis = *micros as f64 / 1000.0;
        writeln!(text, "{millis:10.3} ms  {who:width$}  {what}").expect("writing to a string never fails");
    }
    text
}

struct Writer<'a> {
    names: &'a DisplayNames,
    /// The names of the run, with short names of the messages and tasks that have been mentioned.
    short: RunNames,
    origin: Time,
    /// Lines that are shown once for a whole unit and have already been shown.
    told: BTreeSet<String>,
    lines: Vec<TranscriptLine>,
}

impl Writer<'_> {
    fn fact(&mut self, at: Time, process: ProcessId, life: Life, fact: &Fact) {
        match fact {
            // Their effects are shown instead. A planned task is executed immediately.
            Fact::Saved(_)
            | Fact::Durable(_)
            | Fact::Removed(_)
            | Fact::Held
            | Fact::Completed
            | Fact::Computed { .. }
            | Fact::Planned(_)
            | Fact::CheckpointMessage { .. }
            | Fact::LifeStarted { life: Life(..=1), .. } => return,
            Fact::Claim(claim) => return self.claim(at, process, life, fact, claim),
            Fact::Sent { id, .. } => {
                // A re-execution may send the same message again.
                let next = self.short.messages.len() + 1;
                self.short.messages.entry(*id).or_insert_with(|| format!("m{next}"));
            }
            Fact::Ran { task, .. } | Fact::Rerun { task, .. } | Fact::Theft { task, .. } => {
                let next = self.short.tasks.len() + 1;
                self.short.tasks.entry(*task).or_insert_with(|| format!("t{next}"));
            }
            _ => {}
        }
        let sentence = describe(process, fact, &self.short);
        let who = match sentence.subject() {
            Subject::Reporter => self.names.process(process),
            Subject::Process(process) => self.names.process(process),
            Subject::Cluster(cluster) => self.names.cluster(cluster),
            Subject::Included => String::new(),
        };
        self.line(at, who, sentence.predicate().to_string());
    }

    /// Shows a claim. A claim that all processes of a unit make is shown on a single line, with the name of the unit
    /// and the time of the first such claim.
    fn claim(&mut self, at: Time, process: ProcessId, life: Life, fact: &Fact, claim: &Claim) {
        let unit = self.names.unit_of(process);
        let key = match claim {
            // Made once for each channel. Its effects are shown instead.
            Claim::Partition(PartitionClaim::Drained { .. }) => return,
            Claim::CheckpointRequested { position, attempt, .. } => {
                Some(format!("request {unit:?} {position} {attempt} {life}"))
            }
            Claim::Committed { position, .. } => Some(format!("commit {unit:?} {position}")),
            Claim::Aborted { position, attempt } => Some(format!("abort {unit:?} {position} {attempt}")),
            Claim::RecoveryStarted { lives, round } => Some(format!("round {unit:?} {lives} {round}")),
            Claim::RolledBack { to, .. } => Some(format!("back {unit:?} {to}")),
            Claim::Alerted { from, position } => Some(format!("alert {unit:?} {from} {position}")),
            Claim::Collected { below, kept, log, .. } => {
                Some(format!("collected {unit:?} {below} {kept} {log}"))
            }
            _ => None,
        };
        let who = match (&key, unit) {
            (Some(_), Some(unit)) => self.names.unit(unit),
            _ => self.names.process(process),
        };
        if key.is_none_or(|it| self.told.insert(it)) {
            let text = describe(process, fact, &self.short).predicate().to_string();
            self.line(at, who, text);
        }
    }

    fn line(&mut self, at: Time, who: String, text: String) {
        let micros = (at.0 as i64 - self.origin.0 as i64) / 1000;
        self.lines.push(TranscriptLine { micros, who, text });
    }
}
