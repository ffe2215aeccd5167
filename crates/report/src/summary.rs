//! Everything reported about a finished run, as one value: printed as text, serialised as the documented JSON object of
//! `--format json`, and rendered as the tables of the page, so these cannot disagree.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use faultline_checker::{Context, Finding, Judgement, Property, Verdict};
use faultline_core::fault::{FaultState, FlipTarget, Outcome};
use faultline_core::{
    Cause, ClusterId, Digest, EndedBy, Fact, FaultNo, PlannedFault, Position, ProcessId, Span,
};
use faultline_history::expected::{Assessment, Met};
use faultline_history::{Outage, ProcessTime, TimeByPart};
use faultline_trace::duration::{instant, lasted, span};
use faultline_trace::fault::{
    describe_aimed, describe_link, describe_planned, describe_trigger, entry_of, link,
};
use faultline_trace::manifest::{BackendKind, EffectEntry, LinkEntry};
use faultline_trace::{Manifest, Trace};
use serde::Serialize;

use crate::explain::{ExplainedEvent, count, enumerate, explain};
use crate::names::{DisplayNames, RollbackUnit, checkpoint};
use crate::probes::{self, ProbeSummary, RecoverySummary};
use crate::text::{ended, word};
use crate::timeline::{Timeline, TimelineCheckpoint, TimelineRollback};

/// Everything reported about a run. Times are in seconds since the application started; durations in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// `pass`, `fail` or `unknown`.
    pub verdict: Verdict,
    /// The reasons why the verdict is not a pass.
    pub reasons: Vec<String>,
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
    /// How each probe recovered after each fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probe_recoveries: Vec<RecoverySummary>,
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
    /// The time at which the fault was injected.
    pub injected_seconds: Option<f64>,
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

    /// Formats the fault's latency, skew and exits, if measured.
    pub(crate) fn measured(&self) -> String {
        measured(self.latency_seconds, self.skew_seconds, self.exit_seconds)
    }
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

    /// Returns the names of the properties without instances.
    pub fn not_exercised(&self) -> Vec<String> {
        let idle = self.properties.iter().filter(|it| it.found == PropertyResult::NotExercised);
        idle.map(PropertySummary::name).collect()
    }

    /// Describes what was run, and how it ended.
    pub(crate) fn run_in_words(&self) -> String {
        let run = &self.run;
        match &run.events {
            Some(file) => {
                let processes: usize = self.clusters.iter().map(|it| it.processes).sum();
                format!("{}, events from {file}", count(processes as u64, "process"))
            }
            None => format!(
                "{} on the {} backend, seed {}, {}",
                run.protocol,
                word(&run.backend),
                run.seed,
                run.ended()
            ),
        }
    }

    /// Says how many properties hold, without a full stop.
    pub(crate) fn properties_in_words(&self) -> String {
        let (hold, judged) = self.holding();
        let instances: u64 = self.properties.iter().map(|it| it.instances).sum();
        let idle = match self.not_exercised().len() {
            0 => String::new(),
            1 => "; 1 was not exercised".to_owned(),
            idle => format!("; {idle} were not exercised"),
        };
        format!("{hold} of {judged} exercised properties hold ({}){idle}", count(instances, "instance"))
    }

    /// Says in a phrase how many faults were added during the run; `None` if none were.
    pub(crate) fn added_in_words(&self) -> Option<String> {
        let added = self.faults.iter().filter(|it| it.added).count() as u64;
        (added > 0).then(|| format!("with {} added during the run", count(added, "fault")))
    }

    /// Says in sentences whether the planned faults, and those added during the run, took effect.
    pub(crate) fn faults_in_words(&self) -> String {
        let of = |added| self.faults.iter().filter(move |it| it.added == added);
        let effects = |added| of(added).filter(|it| it.is_effective()).count();
        let of_added = match (of(true).count(), effects(true)) {
            (0, _) => "".to_owned(),
            (1, 1) => " The fault added during the run took effect.".to_owned(),
            (1, _) => " The fault added during the run had no effect.".to_owned(),
            (added, effective) => {
                format!(" {effective} of {added} faults added during the run took effect.")
            }
        };
        let planned = match (of(false).count(), effects(false)) {
            (0, _) => "No faults were planned.".to_owned(),
            (1, 1) => "The planned fault took effect.".to_owned(),
            (1, _) => "The planned fault had no effect.".to_owned(),
            (2, 2) => "Both planned faults took effect.".to_owned(),
            (planned, effective) if planned == effective => {
                format!("All {planned} planned faults took effect.")
            }
            (planned, effective) => format!("{effective} of {planned} planned faults took effect."),
        };
        planned + &of_added
    }

    /// Says in a sentence whether the links had the requested delay; `None` if links were not emulated.
    pub(crate) fn links_in_words(&self) -> Option<String> {
        let emulated = || self.links.iter().filter(|it| it.is_emulated());
        let number = emulated().count();
        let outside = emulated().filter_map(|it| it.observed_percent_outside).max().unwrap_or(0);
        Some(match (number, emulated().filter(|it| it.is_off).count()) {
            (0, _) => return None,
            (1, 0) if outside == 0 => "The link had the requested delay.".to_owned(),
            (_, 0) if outside == 0 => format!("All {number} links had the requested delay."),
            (1, 0) => format!("The link had the requested delay, except for {outside} % of the echoes."),
            (_, 0) => {
                format!(
                    "All {number} links had the requested delay, except for at most {outside} % of the echoes."
                )
            }
            (_, off) => {
                format!("{off} of {} did not have the requested delay.", count(number as u64, "link"))
            }
        })
    }

    /// Summarises a run.
    pub fn new(recorded: RecordedRun<'_>) -> Self {
        let names = DisplayNames::new(recorded.manifest);
        let timeline = Timeline::new(recorded.trace, recorded.manifest);
        Summary::of_timeline(recorded, &names, &timeline)
    }

    /// Summarises a run from its timeline.
    pub fn of_timeline(recorded: RecordedRun<'_>, names: &DisplayNames, timeline: &Timeline) -> Self {
        let RecordedRun { manifest, trace, judgement, .. } = recorded;
        Summary {
            verdict: judgement.verdict,
            reasons: judgement.reasons.clone(),
            notes: notes(timeline, manifest, judgement)
                .into_iter()
                .chain(incomplete(timeline, names))
                .chain(names.clusters().filter_map(|it| idle_timer(it, manifest, names, timeline)))
                .collect(),
            run: Run {
                name: manifest.name.clone(),
                backend: manifest.backend,
                protocol: manifest.protocol.clone(),
                seed: manifest.seed,
                outcome: outcome(manifest.outcome.as_ref()),
                duration_seconds: manifest.duration.as_secs_f64() - timeline.origin.as_secs_f64(),
                starting_seconds: timeline.origin.as_secs_f64(),
                started_unix_ms: manifest.started_unix_ms,
                bundle: recorded.bundle.to_owned(),
                tool: manifest.tool.clone(),
                facts: trace.len() as u64,
                events: manifest.events.as_ref().map(|it| it.file.clone()),
                ettr: timeline.ledger.total().ettr(),
            },
            clusters: names.clusters().map(|it| cluster(it, names, timeline, trace)).collect(),
            processes: timeline.ledger.processes.iter().map(|it| process(it, names)).collect(),
            outages: timeline.outages.clone(),
            probes: probes::probes(timeline, names),
            probe_recoveries: probes::recoveries(timeline),
            expectations: timeline.expectations.clone(),
            faults: faults(manifest, trace, names, timeline),
            links: manifest
                .links
                .iter()
                .filter(|it| it.is_judged(manifest.system.is_some()))
                .map(|it| link_summary(it, names, timeline))
                .collect(),
            result: result(manifest, trace, names, timeline),
            properties: properties(judgement),
            not_judged: not_judged(manifest, judgement),
            is_system: manifest.system.is_some(),
            explanation: explain(timeline, manifest, names),
        }
    }
}

/// Returns the names of the properties about which the run contains no evidence.
fn not_judged(manifest: &Manifest, judgement: &Judgement) -> Vec<String> {
    let context = Context::from_manifest(manifest);
    let all = judgement.findings.iter().map(|it| it.property);
    all.filter(|it| it.lacks_evidence(&context)).map(|it| word(&it)).collect()
}

fn notes(timeline: &Timeline, manifest: &Manifest, judgement: &Judgement) -> Vec<String> {
    const UNPLANNED: [(Option<EndedBy>, &str); 5] = [
        (
            Some(EndedBy::Silence),
            "declared failed and killed without a planned fault: the machine may be too slow for this federation \
             (raise `failures.detectAfter`, or use `--backend simulate`)",
        ),
        (
            Some(EndedBy::PlaceLost),
            "lost together with the place (on Kubernetes, the pod), without a planned fault",
        ),
        (Some(EndedBy::StorageLost), "ended by a move to a new place, without the storage of the old one"),
        (Some(EndedBy::SupervisorRestarted), "ended by a restart of the supervisor"),
        (None, "terminated unexpectedly: see the logs of the nodes"),
    ];
    // The failures of an imported run are those of another system.
    let is_ours = manifest.backend != BackendKind::Events;
    let ended = |by| timeline.failures.iter().filter(|it| is_ours && it.by == by).count();
    let told = UNPLANNED.iter().map(|&(by, what)| (ended(by), what)).filter(|&(count, _)| count > 0);
    let mut notes: Vec<String> = told.map(|(count, what)| format!("{} {what}", lives_were(count))).collect();
    let moved = timeline.failures.iter().filter(|it| it.moved.is_some()).count() as u64;
    if moved > 0 {
        let times = count(moved, "time");
        notes.push(format!("{times}, a process moved to a spare node, because its own was under repair"));
    }
    notes.extend(judgement.findings.iter().flat_map(|it| &it.remarks).cloned());
    notes.extend(timeline.added_faults().map(|(at, planned)| {
        format!(
            "fault {} was added at {}, so the file and the seed alone do not repeat this run; to repeat it, add to `faults`: \
             `{}`",
            planned.no.0,
            instant(timeline.seconds(at)),
            entry_of(planned, &manifest.names())
        )
    }));
    notes
}

/// Returns a note on processes whose facts are incomplete.
fn incomplete(timeline: &Timeline, names: &DisplayNames) -> Option<String> {
    const MOST_NAMED: usize = 8;
    let of: Vec<String> =
        timeline.incomplete.iter().map(|it| names.names().process_in_sentence(*it)).collect();
    let whose = if of.len() > MOST_NAMED { count(of.len() as u64, "process") } else { enumerate(&of) };
    (!of.is_empty()).then(|| {
        format!(
            "facts of {whose} are missing: counts and lost work include only what other facts show, and the shares of \
             time do not cover these processes"
        )
    })
}

/// Returns a note if the checkpoint timer of a cluster never fired, although the run was long enough.
fn idle_timer(
    id: ClusterId,
    manifest: &Manifest,
    names: &DisplayNames,
    timeline: &Timeline,
) -> Option<String> {
    let every = (*manifest.bounds.as_ref()?.checkpoint_every.get(id.index())?)?;
    let of_it = || {
        let own = |((unit, _), _): &(&(RollbackUnit, Position), &TimelineCheckpoint)| {
            names.cluster_of_unit(*unit) == id
        };
        // The first checkpoint is taken before the application starts.
        timeline.checkpoints.iter().filter(own).filter(|((_, position), _)| position.sn.0 > 1)
    };
    let forced = of_it().filter(|(_, it)| it.forced).count() as u64;
    let is_idle =
        forced > 0 && of_it().all(|(_, it)| it.forced) && timeline.end.since(timeline.origin) > every;
    is_idle.then(|| {
        format!(
            "the checkpoint timer of {} (every {}) never fired: {} came first and restarted it",
            names.cluster(id),
            lasted(every),
            count(forced, "forced checkpoint")
        )
    })
}

fn outcome(outcome: Option<&Outcome>) -> &'static str {
    outcome.map_or("cutShort", Outcome::name)
}

fn process(it: &ProcessTime, names: &DisplayNames) -> ProcessSummary {
    ProcessSummary { name: names.process(it.process), cluster: names.cluster(it.cluster), time: it.time }
}

fn cluster(id: ClusterId, names: &DisplayNames, timeline: &Timeline, trace: &Trace) -> ClusterSummary {
    let checkpoints = || {
        timeline.checkpoints.iter().filter(|((of, _), _)| names.cluster_of_unit(*of) == id).map(|(_, it)| it)
    };
    let rollbacks: Vec<_> =
        timeline.rollbacks.iter().filter(|it| names.cluster_of_unit(it.unit) == id).collect();
    let (mut sent_within, mut sent_between, mut delivered) = (0, 0, 0);
    for (message, way) in &timeline.messages {
        let (from, to) = timeline.endpoints(message);
        let (from, to) = (names.cluster_of(from), names.cluster_of(to));
        if from == id && way.sent.is_some() {
            *if from == to { &mut sent_within } else { &mut sent_between } += 1;
        }
        if to == id {
            delivered += way.delivered.len() as u64;
        }
    }
    ClusterSummary {
        name: names.cluster(id),
        processes: names.processes(id).len(),
        failures: timeline.failures.iter().filter(|it| names.cluster_of(it.process) == id).count() as u64,
        unforced: checkpoints().filter(|it| !it.forced).count() as u64,
        forced: checkpoints().filter(|it| it.forced).count() as u64,
        longest_freeze_seconds: checkpoints().map(|it| it.frozen).max().unwrap_or_default().as_secs_f64(),
        lost_work_seconds: rollbacks
            .iter()
            .fold(timeline.lost_permanently(|it| names.cluster_of(it) == id), |sum, it| sum + it.lost())
            .as_secs_f64(),
        time: timeline.ledger.cluster(id),
        sent_within,
        sent_between,
        delivered,
        resent: rollbacks.iter().map(|it| it.resent).sum(),
        tasks_run: timeline.tasks.map(|_| tasks_run(id, names, trace)),
        rollbacks: rollbacks.into_iter().map(|it| rollback(it, names, timeline)).collect(),
    }
}

fn tasks_run(id: ClusterId, names: &DisplayNames, trace: &Trace) -> u64 {
    let lives = trace.streams.iter().filter(|((process, _), _)| names.cluster_of(*process) == id);
    let facts = lives.flat_map(|(_, stream)| stream);
    facts.filter(|(_, fact)| matches!(fact, Fact::Ran { .. } | Fact::Rerun { .. })).count() as u64
}

fn rollback(it: &TimelineRollback, names: &DisplayNames, timeline: &Timeline) -> RollbackSummary {
    let mut faults: Vec<u32> = it
        .failures
        .iter()
        .filter_map(|&place| timeline.failures[place].fault())
        .map(|FaultNo(no)| no)
        .collect();
    faults.sort_unstable();
    faults.dedup();
    let (cause, because_of) = match it.cause {
        Some(Cause::Alert { from, .. }) => ("alert", Some(names.group(from))),
        Some(Cause::Failure) | None => {
            ("failure", it.because_of.map(|with| names.unit(timeline.rollbacks[with].unit)))
        }
    };
    RollbackSummary {
        of: names.unit(it.unit),
        cause,
        because_of,
        faults,
        unplanned: it.failures.iter().filter(|&&place| timeline.failures[place].fault().is_none()).count()
            as u32,
        at_seconds: timeline.seconds(it.began),
        checkpoint: it.sn().0,
        checkpoint_incarnation: it.checkpoint.map_or(0, |it| it.incarnation.0),
        depth: timeline.depth(it),
        lost_work_seconds: it.lost().as_secs_f64(),
        recovery_seconds: timeline.lasted(it.began, it.ended).as_secs_f64(),
        resent: it.resent,
    }
}

fn faults(
    manifest: &Manifest,
    trace: &Trace,
    names: &DisplayNames,
    timeline: &Timeline,
) -> Vec<FaultSummary> {
    let flips_nothing = |planned: &PlannedFault| {
        let (process, target) = planned.fault.flips().filter(|_| !timeline.is_cut_short)?;
        let mut facts = trace.lives(process).flat_map(|it| it.1);
        let has_flipped =
            facts.any(|it| matches!(it.1, Fact::Flipped(flipped) if flipped.target() == target));
        (!has_flipped).then_some(match target {
            FlipTarget::Message => "its application received no message with content after it",
            FlipTarget::Copy => "its node stored no state with content after it",
            FlipTarget::State => "its application had no state with content after it",
        })
    };
    let states: BTreeMap<_, _> = manifest.faults.iter().map(|(no, state)| (*no, state)).collect();
    let summary = |planned: &PlannedFault| {
        let (state, reason) = match states.get(&planned.no) {
            Some(FaultState::Effective) => match flips_nothing(planned) {
                Some(reason) => ("ineffective", Some(reason.to_owned())),
                None => ("effective", None),
            },
            Some(FaultState::Ineffective(reason)) => ("ineffective", Some(reason.to_string())),
            Some(FaultState::Pending) | None if timeline.is_cut_short => ("unknown", None),
            Some(FaultState::Pending) | None => ("pending", None),
        };
        let injected = timeline.injections.iter().find(|it| it.no == planned.no);
        let effect = manifest.effects.iter().find(|it| it.no == planned.no);
        FaultSummary {
            no: planned.no.0,
            when: describe_trigger(&planned.trigger, names.names()),
            what: match injected {
                Some(injected) => describe_aimed(planned, &injected.fault, names.names()),
                None => describe_planned(planned, names.names()),
            },
            cause: planned.cause.as_deref().map(str::to_owned),
            added: timeline.added_faults().any(|(_, it)| it.no == planned.no),
            state,
            reason,
            injected_seconds: injected.map(|it| timeline.seconds(it.at)),
            skew_seconds: effect.and_then(EffectEntry::skew).map(Span::as_secs_f64),
            latency_seconds: effect.and_then(EffectEntry::latency).map(Span::as_secs_f64),
            exit_seconds: effect.and_then(EffectEntry::exit).map(Span::as_secs_f64),
        }
    };
    manifest.plan.iter().map(summary).collect()
}

fn link_summary(it: &LinkEntry, names: &DisplayNames, timeline: &Timeline) -> LinkSummary {
    LinkSummary {
        link: link(it.from, it.to, names.names()),
        requested: describe_link(&it.requested),
        requested_latency_seconds: it.requested.latency.as_secs_f64(),
        requested_jitter_seconds: it.requested.jitter.as_secs_f64(),
        measured_latency_seconds: it.measured.map(|it| it.latency.as_secs_f64()),
        measured_jitter_seconds: it.measured.map(|it| it.jitter.as_secs_f64()),
        samples: it.measured.map_or(0, |it| it.samples),
        rounds: it.measured.map_or(0, |it| it.rounds),
        tolerance_seconds: it.tolerance().as_secs_f64(),
        as_requested: it.as_requested(),
        observed_latency_seconds: it.observed.map(|it| it.mean.as_secs_f64()),
        observed_percent_outside: it.percent_outside(),
        since_seconds: it.since.map(|it| timeline.seconds(it)),
        is_off: it.is_off(),
    }
}

fn result(manifest: &Manifest, trace: &Trace, names: &DisplayNames, timeline: &Timeline) -> ResultSummary {
    let digests: BTreeMap<ProcessId, Digest> = names
        .all()
        .filter_map(|process| {
            let (_, stream) = trace.lives(process).next_back()?;
            let finished = stream.iter().rev().find_map(|(_, fact)| match fact {
                Fact::Finished(it) => Some(it.1),
                _ => None,
            })?;
            Some((process, finished))
        })
        .collect();
    let expected = manifest.expected.as_ref();
    let mut gone: BTreeSet<ProcessId> = timeline.permanent_failures(names).into_keys().collect();
    // In a task-based program, the ranks of a cluster that has left have no result: other ranks continue their work.
    let left = timeline.left.iter().flat_map(|(_, cluster)| names.processes(*cluster));
    gone.extend(left.filter(|rank| !digests.contains_key(*rank)).copied());
    ResultSummary {
        compared_with: expected.map(|it| it.source.clone()),
        finished: digests.len(),
        is_incomplete: !timeline.incomplete.is_empty() || timeline.is_cut_short,
        remaining: manifest.ranks().filter(|(rank, _)| !gone.contains(rank)).count(),
        equal: expected
            .map(|it| it.digests.iter().filter(|(process, _)| !gone.contains(process)))
            .map(|mut it| it.all(|(process, digest)| digests.get(process) == Some(digest))),
        digests: digests
            .iter()
            .map(|(process, digest)| (names.process(*process), digest.to_string()))
            .collect(),
    }
}

fn properties(judgement: &Judgement) -> Vec<PropertySummary> {
    let mut findings: Vec<_> = judgement.findings.iter().collect();
    findings.sort_by_key(|it| it.property);
    // A federation that expects nothing in particular is not short of evidence about it.
    findings.retain(|it| it.property != Property::Expected || found(it) != PropertyResult::NotExercised);
    findings
        .into_iter()
        .map(|it| PropertySummary {
            property: it.property,
            statement: it.property.statement(),
            found: found(it),
            verdict: match found(it) {
                PropertyResult::Holds | PropertyResult::NotExercised => Verdict::Pass,
                PropertyResult::Unknown => Verdict::Unknown,
                PropertyResult::Violated => Verdict::Fail,
            },
            instances: it.instances,
            violation_count: if it.is_doubtful { 0 } else { it.violation_count() },
            violations: match it.is_doubtful {
                true => Vec::new(),
                false => it.violations.iter().map(|it| it.text.clone()).collect(),
            },
            unknown: it.unknown.clone(),
            remarks: it.remarks.clone(),
        })
        .collect()
}

fn found(it: &Finding) -> PropertyResult {
    match (it.violation_count(), &it.unknown, it.instances) {
        _ if it.is_doubtful => PropertyResult::Unknown,
        (0, None, 0) => PropertyResult::NotExercised,
        (0, None, _) => PropertyResult::Holds,
        (0, Some(_), _) => PropertyResult::Unknown,
        _ => PropertyResult::Violated,
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

fn lives_were(number: usize) -> String {
    if number == 1 { "1 life was".to_owned() } else { format!("{number} lives were") }
}

/// Formats a restored checkpoint for a column of checkpoints: `initial state`, `3`, or `3 (incarnation 2)`.
pub(crate) fn restored(it: &RollbackSummary) -> String {
    match it.checkpoint {
        0 => "initial state".to_owned(),
        sn => checkpoint(Position::new(it.checkpoint_incarnation, sn)),
    }
}
