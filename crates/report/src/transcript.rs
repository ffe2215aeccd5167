//! A run as lines to read from top to bottom, each with a time, a process and an action. Intended for small runs, such
//! as counterexamples.
//!
//! Lines are in the order of the drivers' clocks, which is the order of events only if all processes share one clock,
//! as in the simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use faultline_core::{
    Cause, Claim, Fact, Life, MessageId, PartitionClaim, PhaseClaim, Position, ProcessId, StorageFate,
    TaskId, TheftStep, Time,
};
use faultline_history::GroupId;
use faultline_trace::Trace;
use faultline_trace::fault::{describe_change, describe_fault};

use crate::names::{DisplayNames, checkpoint};
use crate::timeline::Timeline;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptLine {
    /// Microseconds since the application started; negative before it.
    pub micros: i64,
    /// The process or the cluster; empty if the line belongs to neither.
    pub who: String,
    /// The description of the event.
    pub text: String,
}

/// Returns the lines of a run. Messages are named m1, m2, … in the order in which they are sent, and tasks t1, t2, …
/// in the order in which they are first mentioned.
pub fn transcript(trace: &Trace, history: &Timeline, names: &DisplayNames) -> Vec<TranscriptLine> {
    written(trace, history, names).lines
}

/// Returns the names that the run's transcript gives to tasks: t1, t2, … A resolver that has them gives the same names
/// to tasks in other sentences about the run.
pub fn task_names(trace: &Trace, history: &Timeline, names: &DisplayNames) -> BTreeMap<TaskId, String> {
    written(trace, history, names).tasks
}

fn written<'a>(trace: &Trace, history: &Timeline, names: &'a DisplayNames) -> Writer<'a> {
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
        origin: history.origin,
        message_names: BTreeMap::new(),
        tasks: BTreeMap::new(),
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
    origin: Time,
    /// Short names of messages, such as m1.
    message_names: BTreeMap<MessageId, String>,
    /// Short names of tasks, such as t1.
    tasks: BTreeMap<TaskId, String>,
    /// Lines that are shown once for a whole cluster and have already been shown.
    told: BTreeSet<String>,
    lines: Vec<TranscriptLine>,
}

impl Writer<'_> {
    fn fact(&mut self, at: Time, process: ProcessId, life: Life, fact: &Fact) {
        let me = self.names.process(process);
        match fact {
            Fact::Sent { id, .. } => {
                let name = format!("m{}", self.message_names.len() + 1);
                self.message_names.insert(*id, name.clone());
                self.line(at, me, format!("sends {name} to {}", self.names.process(id.to)));
            }
            Fact::Transmitted { id, position } => {
                let text = format!("transmits {} with position {}", self.name(*id), stamp(*position));
                self.line(at, me, text);
            }
            Fact::Suppressed(id) => {
                let text = format!("suppresses {}: its receiver already has it", self.name(*id));
                self.line(at, me, text);
            }
            Fact::Delivered(id) => {
                let text = format!("delivers {} from {}", self.name(*id), self.names.process(id.from));
                self.line(at, me, text);
            }
            Fact::Consumed(id) => {
                let text = format!("consumes {}", self.name(*id));
                self.line(at, me, text);
            }
            Fact::DroppedStale(id) => {
                let text = format!("drops {}: a rollback undid its send", self.name(*id));
                self.line(at, me, text);
            }
            Fact::Restored(restored) => {
                let what = match &restored.0 {
                    Some(name) => format!("its part of checkpoint {}", checkpoint(name.position())),
                    None => "its initial state".to_owned(),
                };
                self.line(at, me, format!("restores {what} as incarnation {}", restored.1.0));
            }
            // Their effects are shown instead.
            Fact::Saved(_)
            | Fact::Durable(_)
            | Fact::Removed(_)
            | Fact::Completed
            | Fact::LifeStarted { .. } => {
                if let Fact::LifeStarted { process, life, .. } = fact
                    && life.0 > 1
                {
                    self.line(at, self.names.process(*process), format!("restarts ({life})"));
                }
            }
            Fact::Finished(_) => self.line(at, me, "finishes".to_owned()),
            // A planned task is executed immediately. The effects of a computation and of a checkpoint's messages are
            // shown instead.
            Fact::Computed { .. } | Fact::Planned(_) | Fact::CheckpointMessage { .. } => {}
            Fact::Rerun { task, by, .. } => {
                let (task, by) = (self.task(*task), self.names.process(*by));
                self.line(at, me, format!("re-executes {task}, whose values {by} lost"));
            }
            Fact::Ran { task, spawned, .. } => {
                let spawns = if *spawned > 0 { format!(", which spawns {spawned}") } else { String::new() };
                let text = format!("runs {}{spawns}", self.task(*task));
                self.line(at, me, text);
            }
            Fact::Theft { theft, task, step } => {
                let (task, names) = (self.task(*task), self.names);
                let (victim, thief) = (names.process(theft.victim), names.process(theft.thief));
                let text = match step {
                    TheftStep::Lent => format!("lends {task} to {thief}"),
                    TheftStep::Shipped => format!("sends {task} to {thief}"),
                    TheftStep::Taken => format!("takes {task} from {victim}"),
                    TheftStep::Done => format!("completes {task} for {victim}"),
                    TheftStep::Returned => format!("sends the result of {task} to {victim}"),
                    TheftStep::Merged => format!("merges the result of {task} from {thief}"),
                    TheftStep::Receipted => format!("confirms the result of {task} to {thief}"),
                    TheftStep::Forgotten => format!("drops {task} of {victim}"),
                    TheftStep::Voided => format!("takes {task} back from {thief}"),
                };
                self.line(at, me, text);
            }
            Fact::Absorbed(absorbed) => {
                let from = match &absorbed.1 {
                    Some(name) => format!("checkpoint {}", checkpoint(name.position())),
                    None => "its initial state".to_owned(),
                };
                let of = match absorbed.0 {
                    of if of == process => "its own partition".to_owned(),
                    of => format!("the work of {}", self.names.process(of)),
                };
                self.line(at, me, format!("takes over {of} from {from}"));
            }
            Fact::Ceded { partition, .. } => {
                let of = self.names.process(*partition);
                self.line(at, me, format!("cedes partition {of} to another process"));
            }
            Fact::Claim(claim) => self.claim(at, process, life, claim),
            Fact::Begun => self.line(at, String::new(), "the application starts".to_owned()),
            Fact::Injecting { no, fault } => {
                let text = format!("FAULT {}: {}", no.0, describe_fault(fault, self.names.names()));
                self.line(at, String::new(), text);
            }
            Fact::Changed(change) => {
                self.line(at, String::new(), describe_change(change, self.names.names()))
            }
            Fact::Joined(cluster) => self.line(at, self.names.cluster(*cluster), "joins".to_owned()),
            Fact::Leaving(cluster) => {
                self.line(at, self.names.cluster(*cluster), "is about to leave".to_owned());
            }
            Fact::Left(cluster) => {
                self.line(at, self.names.cluster(*cluster), "leaves and releases its storage".to_owned());
            }
            Fact::Ineffective { no, reason } => {
                self.line(at, String::new(), format!("fault {} has no effect: {reason}", no.0));
            }
            Fact::Failed { process, storage, .. } => {
                let lost = if *storage == StorageFate::Lost { ", and its storage is lost" } else { "" };
                self.line(at, self.names.process(*process), format!("FAILS{lost}"));
            }
            Fact::Detected { process, .. } => {
                self.line(
                    at,
                    String::new(),
                    format!("the failure of {} is announced", self.names.process(*process)),
                );
            }
        }
    }

    fn claim(&mut self, at: Time, process: ProcessId, life: Life, claim: &Claim) {
        let group = self.names.group_of(process);
        let name = match group {
            GroupId::OUTSIDE => self.names.process(process),
            group => self.names.group(group),
        };
        match claim {
            Claim::CheckpointRequested { position, forced, attempt } => {
                let why = if *forced { ", forced by a message" } else { "" };
                let key = format!("request {group} {position} {attempt} {life}");
                self.once(key, at, name, format!("starts checkpoint {}{why}", checkpoint(*position)));
            }
            Claim::Committed { position, .. } => {
                let key = format!("commit {group} {position}");
                self.once(key, at, name, format!("commits checkpoint {}", checkpoint(*position)));
            }
            Claim::Aborted { position, attempt } => {
                let key = format!("abort {group} {position} {attempt}");
                self.once(key, at, name, format!("discards checkpoint {}", checkpoint(*position)));
            }
            Claim::RecoveryStarted { lives, round } => {
                let key = format!("round {group} {lives} {round}");
                self.once(key, at, name, "starts to recover".to_owned());
            }
            Claim::RolledBack { to, checkpoint: from, cause, .. } => {
                let why = match cause {
                    Cause::Failure => "one of its processes failed".to_owned(),
                    Cause::Alert { from, .. } => {
                        format!("{} rolled back", self.names.group(*from))
                    }
                };
                let key = format!("back {group} {to}");
                let text = format!(
                    "rolls back to checkpoint {} as incarnation {}, because {why}",
                    checkpoint(*from),
                    to.incarnation.0
                );
                self.once(key, at, name, text);
            }
            Claim::Alerted { from, position } => {
                let (who, key) = (self.names.group(*from), format!("alert {group} {from} {position}"));
                let text = format!("learns that {who} rolled back to {}", stamp(*position));
                self.once(key, at, name, text);
            }
            Claim::Resent { id } => {
                let text = format!("re-sends {} from its log", self.name(*id));
                self.line(at, self.names.process(process), text);
            }
            Claim::Forcing { id } => {
                let text = format!("holds {} until after the checkpoint that it forces", self.name(*id));
                self.line(at, self.names.process(process), text);
            }
            Claim::Collected { below, kept, log, .. } => {
                let key = format!("collected {group} {below} {kept} {log}");
                let text = format!("collects checkpoints below {below} and {log} log entries");
                self.once(key, at, name, text);
            }
            Claim::Released { .. } => {
                self.line(at, name, "is no longer needed by any recovery".to_owned());
            }
            Claim::Spilled { messages, bytes, left } => {
                let text = format!(
                    "moves {messages} logged messages ({bytes} bytes) to its storage; {left} bytes remain in memory"
                );
                self.line(at, self.names.process(process), text);
            }
            Claim::Partition(PartitionClaim::RecoveryJoined { partition, epoch, .. }) => {
                let whose = self.names.process(*partition);
                let text = format!("takes part in recovery {} with the partition of {whose}", epoch.0);
                self.line(at, self.names.process(process), text);
            }
            // Reported once for each channel. Its effects are shown instead.
            Claim::Partition(PartitionClaim::Drained { .. }) => {}
            Claim::Protected => {
                self.line(at, self.names.process(process), "is protected again".to_owned());
            }
            Claim::Phase(PhaseClaim::Orphaned { id, phase }) => {
                let text = format!("has the orphan {} of phase {phase}", self.name(*id));
                self.line(at, self.names.process(process), text);
            }
            Claim::Phase(PhaseClaim::NotRepeated { id, .. }) => {
                let text = format!("does not repeat {} in its re-execution", self.name(*id));
                self.line(at, self.names.process(process), text);
            }
            Claim::Unrecoverable { group: of, .. } => {
                let group = self.names.group(*of);
                let text = format!("finds no checkpoint of {group} that can be restored");
                self.line(at, self.names.process(process), text);
            }
        }
    }

    /// Shows a line that several processes state. It appears once, at the time of the first statement.
    fn once(&mut self, key: String, at: Time, who: String, text: String) {
        if self.told.insert(key) {
            self.line(at, who, text);
        }
    }

    fn line(&mut self, at: Time, who: String, text: String) {
        let micros = (at.0 as i64 - self.origin.0 as i64) / 1000;
        self.lines.push(TranscriptLine { micros, who, text });
    }

    /// Returns the name of a task: t1, t2, … in the order in which tasks are first mentioned.
    fn task(&mut self, id: TaskId) -> String {
        let next = self.tasks.len() + 1;
        self.tasks.entry(id).or_insert_with(|| format!("t{next}")).clone()
    }

    fn name(&self, id: MessageId) -> String {
        self.message_names.get(&id).cloned().unwrap_or_else(|| self.names.message(id))
    }
}

/// Formats a position as on messages: incarnation and number of the checkpoint, such as `1.2`.
fn stamp(position: Position) -> String {
    format!("{}.{}", position.incarnation.0, position.sn.0)
}
