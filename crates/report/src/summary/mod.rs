//! Everything reported about a finished run, as one value: printed as text, serialised as the documented JSON object of
//! `--format json`, and rendered as the tables of the page, so these cannot disagree.

mod derive;
mod sentences;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use faultline_checker::{Judgement, Verdict};
use faultline_core::Position;
use faultline_history::expected::{Assessment, Met};
use faultline_history::{Outage, TimeByPart};
use faultline_trace::duration::{instant, span};
use faultline_trace::manifest::BackendKind;
use faultline_trace::{Manifest, Trace};
use serde::Serialize;

use crate::explain::ExplainedEvent;
use crate::histories::HistorySummary;
use crate::names::checkpoint;
use crate::probes::{ProbeSummary, RecoverySummary};
use crate::text::{ended, word};

/// Everything reported about a run. Times are in seconds since the application started; durations in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// `pass`, `fail` or `unknown`.
    pub verdict: Verdict,
    /// The reasons why the verdict is not a pass.
    pub reasons: Vec<String>,
    /// Limits of what the run shows, which are stated with the verdict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caveats: Vec<String>,
    /// Information that does not affect the verdict.
    pub notes: Vec<String>,
    /// The federation, backend, protocol and seed of the run.
    pub run: Run,
    /// One summary per cluster.
    pub clusters: Vec<ClusterSummary>,
    /// How each process spent its time. Processes whose facts are incomplete are missing.
    pub processes: Vec<ProcessSummary>,
    /// The outages, in the order of their first failures.
    pub outages: Vec<Outage>,
    /// What each process found by running a probe of a user's own system.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeSummary>,
    /// The histories of clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histories: Vec<HistorySummary>,
    /// How each probe recovered after each fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probe_recoveries: Vec<RecoverySummary>,
    /// The lives of the nodes of a user's own system that ended before the run did, in chronological order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<LifeSummary>,
    /// How busy the processors of this machine were; `None` if this was not observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressureSummary>,
    /// What the federation expects, compared with the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expectations: Vec<Assessment>,
    /// One summary per planned fault.
    pub faults: Vec<FaultSummary>,
    /// One summary per link and direction, and one more for each change of a link.
    pub links: Vec<LinkSummary>,
    /// The result of the application, compared with the reference.
    pub result: ResultSummary,
    /// One summary per property.
    pub properties: Vec<PropertySummary>,
    /// The properties about which an imported run contains no evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_judged: Vec<String>,
    /// Whether the run is that of a user's own system, whose messages, checkpoints and results are unknown.
    #[serde(skip)]
    pub(crate) is_system: bool,
    /// The explanation of the run, in sentences.
    pub explanation: Vec<ExplainedEvent>,
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The federation's name.
    pub name: String,
    /// The backend.
    pub backend: BackendKind,
    /// The protocol's name.
    pub protocol: String,
    /// The seed of all random choices.
    pub seed: u64,
    /// How the run ended: `completed`, `deadline`, `interrupted`, `unrecoverable`, `notRepeated`, `outOfMemory`,
    /// `panicked`, `stalled`, or `cutShort`.
    pub outcome: &'static str,
    /// Seconds from the start of the application to the end of the run, limited by the deadline. Wall-clock time, or
    /// virtual time in the simulator.
    pub duration_seconds: f64,
    /// Seconds spent starting processes and measuring links before the application starts.
    pub starting_seconds: f64,
    /// The start of the run, in milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// The directory of the record.
    pub bundle: String,
    /// The version of the program that ran the federation.
    pub tool: String,
    /// The number of facts in the record.
    pub facts: u64,
    /// The file from which the run was imported; `None` if Faultline carried it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<String>,
    /// The effective training time ratio of all processes; `null` if there is no time to divide.
    pub ettr: Option<f64>,
}

/// How a process spent its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessSummary {
    /// The display name of the process.
    pub name: String,
    /// The display name of the process's cluster.
    pub cluster: String,
    /// The parts, which add up to the time from the start of the application, or from the time at which the cluster
    /// joined, to the end of the run, or to the time at which the cluster left.
    pub time: TimeByPart,
}

/// The summary of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSummary {
    /// The display name of the cluster.
    pub name: String,
    /// The number of processes in the cluster.
    pub processes: usize,
    /// The number of lives that ended.
    pub failures: u64,
    /// The number of committed checkpoints that were not forced, including the initial one.
    pub unforced: u64,
    /// The number of committed checkpoints that were forced.
    pub forced: u64,
    /// The longest time in seconds for which a checkpoint paused the application of a process.
    pub longest_freeze_seconds: f64,
    /// The cluster's rollbacks.
    pub rollbacks: Vec<RollbackSummary>,
    /// Work that rollbacks undid, or that was lost with processes that never returned, in seconds, summed over all
    /// processes.
    pub lost_work_seconds: f64,
    /// How the cluster's processes spent their time. The parts add up to the total.
    pub time: TimeByPart,
    /// The number of messages that the application sent within the cluster.
    pub sent_within: u64,
    /// The number of messages that the application sent from this cluster to others.
    pub sent_between: u64,
    /// The number of deliveries of messages to the application in this cluster, including repeated deliveries.
    pub delivered: u64,
    /// The number of messages that were re-sent to this cluster's groups from the logs of other groups.
    pub resent: u64,
    /// The number of executions of tasks by the cluster's processes, including re-executions; `None` if processes
    /// exchange messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_run: Option<u64>,
}

/// One rollback of a cluster or, if each process rolls back alone, of one of its processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RollbackSummary {
    /// The display name of what rolled back: the cluster or the process.
    pub of: String,
    /// `failure`, or `alert` if an alert from another group caused the rollback.
    pub cause: &'static str,
    /// The group whose rollback caused or included this one.
    pub because_of: Option<String>,
    /// The numbers of the planned faults that caused the failures handled by this rollback.
    pub faults: Vec<u32>,
    /// The number of failures that this rollback handles and that no planned fault caused.
    pub unplanned: u32,
    /// The time at which the first failure occurred or the alert arrived.
    pub at_seconds: f64,
    /// The checkpoint's number; 0 is the initial state.
    pub checkpoint: u32,
    /// The incarnation in which the checkpoint was taken.
    pub checkpoint_incarnation: u32,
    /// The number of committed checkpoints that the rollback undid.
    pub depth: u64,
    /// Undone work in seconds, summed over all processes: for each process, the time from the restored state until the
    /// process stopped or failed.
    pub lost_work_seconds: f64,
    /// Seconds from `at_seconds` until the last process resumed, excluding periods in which the user paused the
    /// federation.
    pub recovery_seconds: f64,
    /// The number of messages that other groups re-sent to this one.
    pub resent: u64,
}

impl RollbackSummary {
    /// Orders rollbacks by time, with a cause before its effects.
    pub(crate) fn order(&self, other: &RollbackSummary) -> Ordering {
        let caused = |it: &RollbackSummary| it.because_of.is_some();
        self.at_seconds.total_cmp(&other.at_seconds).then(caused(self).cmp(&caused(other)))
    }
}

/// A life of a node of a user's own system that ended before the run did.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LifeSummary {
    /// The display name of the node.
    pub node: String,
    /// The number of the life.
    pub life: u32,
    /// The time at which the life, or its command, ended.
    pub upto_seconds: f64,
    /// How it ended.
    pub ended: String,
    /// Whether a planned fault ended it.
    pub by_fault: bool,
    /// The last line that the command wrote, if it ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// The file with the output of the command, in the directory of the record.
    pub log: String,
}

impl LifeSummary {
    /// The titles of a table of lives.
    pub(crate) const TITLES: [&str; 5] = ["node", "life", "ended at", "how", "last line"];

    /// Returns the cells of a row in a table of lives.
    pub(crate) fn row(&self) -> [String; 5] {
        let said = self.said.clone().unwrap_or_else(|| "-".to_owned());
        [self.node.clone(), self.life.to_string(), instant(self.upto_seconds), self.ended.clone(), said]
    }
}

/// How busy the processors of this machine were.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PressureSummary {
    /// Whether the machine says how busy its processors are.
    pub is_available: bool,
    /// The time in seconds, since the start of the application, in which some task waited for a processor at least half of
    /// the time.
    pub busy_seconds: f64,
}

impl PressureSummary {
    /// Describes the pressure in a sentence.
    pub(crate) fn sentence(self, duration: f64) -> String {
        match self.is_available {
            false => "This machine does not say how busy its processors were.".to_owned(),
            true if self.busy_seconds == 0.0 => "The processors of this machine were not busy.".to_owned(),
            true => format!(
                "The processors of this machine were busy for {} of {}, so times may be too long.",
                span(self.busy_seconds),
                span(duration)
            ),
        }
    }
}

/// The outcome of a planned fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultSummary {
    /// The number of the fault in the plan.
    pub no: u32,
    /// The time or the fact that triggers the fault.
    pub when: String,
    /// The description of the fault.
    pub what: String,
    /// The cause that a failure trace states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Whether the fault was added during the run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub added: bool,
    /// `effective`, `ineffective`, `pending` if the fault was not due before the end of the run, or `unknown` if the
    /// record ends before it shows what became of the fault.
    pub state: &'static str,
    /// The reason why the fault had no effect.
    pub reason: Option<String>,
    /// Whether no probe, watch or command of a user's own system noticed the fault.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unnoticed: bool,
    /// The time at which the fault was injected.
    pub injected_seconds: Option<f64>,
    /// For each command that the fault stopped, the node, and how the command ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<String>,
    /// For a fault that slowed the commands of a node down, the share of its time in which they were not stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_share: Option<f64>,
    /// For such a fault, the processor time that the commands used, as a share of its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_share: Option<f64>,
    /// An upper bound on the seconds from the fault's first to its last effect; `None` for a single target,
    /// or without measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skew_seconds: Option<f64>,
    /// Seconds between the fault's due time and its last effect; `None` if this was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_seconds: Option<f64>,
    /// The longest time, in seconds, from the stop of a process that the fault killed until the process had exited;
    /// `None` if this was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_seconds: Option<f64>,
}

impl FaultSummary {
    /// Returns whether the fault took effect.
    pub(crate) fn is_effective(&self) -> bool {
        self.state == "effective"
    }

    /// Formats the fault's latency, skew and exits, if measured, or how commands ended, and whether nothing noticed it.
    pub(crate) fn measured(&self) -> String {
        /// The number of commands that are listed.
        const MOST: usize = 4;
        let unnoticed = if self.is_unnoticed { "; noticed by nothing" } else { "" };
        if !self.stopped.is_empty() {
            let listed = self.stopped.iter().take(MOST).cloned().collect::<Vec<_>>().join("; ");
            let more = match self.stopped.len().saturating_sub(MOST) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            return format!(": {listed}{more}{unnoticed}");
        }
        let slowed = slowed(self.ran_share, self.processor_share);
        measured(self.latency_seconds, self.skew_seconds, self.exit_seconds) + &slowed + unnoticed
    }
}

/// Formats the time that commands had while a fault slowed them down, if measured, such as
/// `, ran 25 % of the time, used 24 % of a core`.
pub(crate) fn slowed(ran: Option<f64>, processor: Option<f64>) -> String {
    let percent = |it: f64| format!("{:.0} %", it * 100.0);
    let ran = ran.map(|it| format!(", ran {} of the time", percent(it)));
    let used = processor.map(|it| format!(", used {} of a core", percent(it)));
    ran.into_iter().chain(used).collect()
}

/// Formats the latency, the skew and the exits of a fault, in seconds, if measured, such as
/// `, 2.10 ms late, stopped within 0.30 ms, exited up to 1.70 ms later`.
pub(crate) fn measured(latency: Option<f64>, skew: Option<f64>, exit: Option<f64>) -> String {
    let late = latency.map(|it| format!(", {} late", span(it)));
    // Only processes that are killed exit.
    let stopped = if exit.is_some() { "stopped " } else { "" };
    let within = skew.map(|it| format!(", {stopped}within {}", span(it)));
    let exited = exit.map(|it| format!(", exited up to {} later", span(it)));
    late.into_iter().chain(within).chain(exited).collect()
}

/// A link as requested and as measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkSummary {
    /// The ends of the link.
    pub link: String,
    /// The requested properties as text.
    pub requested: String,
    /// The requested one-way delay in seconds.
    pub requested_latency_seconds: f64,
    /// The requested jitter in seconds: half the width of the distribution of the delay.
    pub requested_jitter_seconds: f64,
    /// The measured one-way delay in seconds; `None` if it was not measured.
    pub measured_latency_seconds: Option<f64>,
    /// The measured jitter in seconds: half the difference between the smallest and the greatest delay. Not judged.
    pub measured_jitter_seconds: Option<f64>,
    /// The number of echoes measured.
    pub samples: u32,
    /// The number of measurements, which are repeated while the link differs from the request. The measured values are
    /// those of the last measurement.
    pub rounds: u32,
    /// The largest permitted difference in seconds between the measured and the requested delay.
    pub tolerance_seconds: f64,
    /// Whether the measured delay is within the tolerance. Jitter is not judged.
    pub as_requested: Option<bool>,
    /// The mean one-way delay of echoes, in seconds, while the application ran, excluding periods in which a fault
    /// affected the link; `None` if it was not observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_latency_seconds: Option<f64>,
    /// The percentage of the observed echoes whose delay differed from the requested latency by more than the tolerance
    /// for observed echoes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_percent_outside: Option<u32>,
    /// The time at which these properties were requested, in seconds since the application started; `None` if they were
    /// requested from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_seconds: Option<f64>,
    /// Whether the link was not as requested, which makes the verdict `unknown`.
    #[serde(skip)]
    pub(crate) is_off: bool,
}

impl LinkSummary {
    /// Returns whether the link was emulated, and therefore measured. In virtual time, links are exact.
    pub(crate) fn is_emulated(&self) -> bool {
        self.as_requested.is_some() || self.observed_percent_outside.is_some()
    }

    /// Returns whether the link was as requested: the word for tables, and the effect on the verdict.
    pub(crate) fn result(&self) -> (&'static str, Verdict) {
        if self.is_off { ("off", Verdict::Unknown) } else { ("as requested", Verdict::Pass) }
    }

    /// Describes the mean delay while the application ran, and the share of echoes whose delay was out of tolerance.
    pub(crate) fn observed(&self) -> Option<String> {
        let (mean, outside) = (self.observed_latency_seconds?, self.observed_percent_outside?);
        Some(format!("{}, {outside} % deviate", span(mean)))
    }

    /// Formats the requested properties and, if they were not requested from the start, the time at which they were
    /// requested.
    pub(crate) fn asked(&self) -> String {
        match self.since_seconds {
            Some(since) => format!("{} since {}", self.requested, instant(since)),
            None => self.requested.clone(),
        }
    }
}

/// The result of the application.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultSummary {
    /// The reference for the comparison; `None` if there is none.
    pub compared_with: Option<String>,
    /// The number of ranks that finished.
    pub finished: usize,
    /// The number of ranks, excluding those that failed permanently or left without a result.
    pub remaining: usize,
    /// Whether results may be missing because facts are missing.
    #[serde(skip)]
    pub(crate) is_incomplete: bool,
    /// Whether all remaining ranks finished with the expected digest; `None` without a reference.
    pub equal: Option<bool>,
    /// The digest of each rank that finished, by its name.
    pub digests: BTreeMap<String, String>,
}

/// The result for a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PropertyResult {
    /// All instances satisfy the property.
    Holds,
    /// The run has no instance of the property.
    NotExercised,
    /// Some instances could not be judged.
    Unknown,
    /// At least one instance violates the property.
    Violated,
}

/// The finding about a property.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PropertySummary {
    /// The property, as the checker names it.
    pub property: faultline_checker::Property,
    /// The property as a sentence.
    pub statement: &'static str,
    /// The result.
    pub found: PropertyResult,
    /// The effect of the result on the verdict. A property without instances does not prevent a pass.
    pub verdict: Verdict,
    /// The number of instances judged.
    pub instances: u64,
    /// The number of violations found.
    pub violation_count: u64,
    /// The first violations.
    pub violations: Vec<String>,
    /// The reason why the property, or a part of it, could not be judged.
    pub unknown: Option<String>,
    /// Whether `unknown` describes a violation that does not count, because missing facts could explain it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_doubtful: bool,
    /// Information that does not affect the result.
    pub remarks: Vec<String>,
}

/// A recorded run with its judgement, from which everything here is derived.
#[derive(Clone, Copy, Debug)]
pub struct RecordedRun<'a> {
    /// The directory of the record, as a reader would type it.
    pub bundle: &'a str,
    /// The manifest of the run.
    pub manifest: &'a Manifest,
    /// The facts.
    pub trace: &'a Trace,
    /// The checker's judgement.
    pub judgement: &'a Judgement,
}

impl Run {
    /// Describes how the run ended, and when.
    pub(crate) fn ended(&self) -> String {
        let how = ended(self.outcome);
        match self.outcome {
            "cutShort" if self.starting_seconds == 0.0 => format!("{how} before the application started"),
            "cutShort" if self.duration_seconds <= 0.0 => format!("{how} as the application started"),
            _ => format!("{how} after {}", span(self.duration_seconds)),
        }
    }
}

impl PropertySummary {
    /// Returns the property's name, such as `noLoss`, as in `docs/verdict.md` and in JSON.
    pub fn name(&self) -> String {
        word(&self.property)
    }
}

impl Summary {
    /// Returns how many properties hold, and how many were exercised.
    pub fn holding(&self) -> (usize, usize) {
        let number =
            |which: fn(PropertyResult) -> bool| self.properties.iter().filter(|it| which(it.found)).count();
        (number(|it| it == PropertyResult::Holds), number(|it| it != PropertyResult::NotExercised))
    }

    /// Returns whether the processes ran a task-based program instead of exchanging messages.
    pub(crate) fn is_of_tasks(&self) -> bool {
        self.clusters.iter().any(|it| it.tasks_run.is_some())
    }

    /// Returns the properties to list. Those of protocols, which have no instances in the run of a system, are left out for
    /// systems.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &PropertySummary> {
        self.properties.iter().filter(|it| !self.is_system || it.found != PropertyResult::NotExercised)
    }

    /// Returns the names of the [listed](Summary::listed) properties without instances.
    pub fn not_exercised(&self) -> Vec<String> {
        let idle = self.listed().filter(|it| it.found == PropertyResult::NotExercised);
        idle.map(PropertySummary::name).collect()
    }
}

/// Returns whether an expectation is met: the word for tables and sentences, and the effect on the verdict.
pub(crate) fn met(it: &Assessment) -> (&'static str, Verdict) {
    match it.met {
        Met::Yes => ("met", Verdict::Pass),
        Met::No => ("not met", Verdict::Fail),
        Met::Unknown => ("unknown", Verdict::Unknown),
    }
}

/// Returns the measured figure of an expectation in words.
pub(crate) fn measured_without_output(it: &Assessment) -> String {
    it.measured.clone().unwrap_or_default()
}

/// Returns the measured figure of an expectation in words, with what the command of a check wrote last.
pub(crate) fn measured_in_words(it: &Assessment) -> String {
    let words = measured_without_output(it);
    match &it.said {
        Some(said) if words.is_empty() => said.clone(),
        Some(said) => format!("{words}: {said}"),
        None => words,
    }
}

/// Formats a restored checkpoint for a column of checkpoints: `initial state`, `3`, or `3 (incarnation 2)`.
pub(crate) fn restored(it: &RollbackSummary) -> String {
    match it.checkpoint {
        0 => "initial state".to_owned(),
        sn => checkpoint(Position::new(it.checkpoint_incarnation, sn)),
    }
}
