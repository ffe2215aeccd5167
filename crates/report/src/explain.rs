//! Explains in sentences why each cluster rolled back, to which checkpoint, and what it lost, in the order of events.

use std::collections::BTreeSet;

pub use faultline_checker::count;
use faultline_checker::{Context, how_often, violation_at_end};
use faultline_core::fault::{FaultState, Impairment, Outcome};
use faultline_core::{
    Cause, ClusterId, EndedBy, Fault, FaultNo, ImageName, Position, ProcessId, Promise, Span, StorageFate,
    Target, Time,
};
use faultline_history::GroupId;
use faultline_history::expected::Assessment;
use faultline_history::recoveries::RecoveryCost;
use faultline_trace::Manifest;
use faultline_trace::duration::{instant, lasted};
use faultline_trace::fault::{
    describe_applied_change, describe_injected_fault, describe_planned, not_restarted, place, repaired,
};
use faultline_trace::manifest::{BackendKind, Copies, EffectEntry, ReplicaHolders};
use serde::Serialize;

use crate::names::{DisplayNames, RollbackUnit};
use crate::probes::recoveries;
use crate::summary::{measured, met};
use crate::text::percent;
use crate::timeline::{Failure, RestoredMember, Takeover, Tasks, Timeline, TimelineRollback};

/// One event with its explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedEvent {
    /// The start of the event, in seconds since the application started; `None` for an observation about the whole run.
    pub from_seconds: Option<f64>,
    /// The end of the event, in seconds since the application started.
    pub upto_seconds: Option<f64>,
    /// A description in one or more sentences.
    pub text: String,
}

/// Explains a run in sentences, in chronological order.
pub fn explain(timeline: &Timeline, manifest: &Manifest, names: &DisplayNames) -> Vec<ExplainedEvent> {
    let explainer = Explainer { timeline, manifest, names };
    // Sorted by start. If starts are equal, causes come before their effects.
    let mut events: Vec<(Time, u8, Time, String)> = Vec::new();
    for injection in &timeline.injections {
        let text = explainer.injected(injection.no, &injection.fault, injection.at);
        let upto = explainer.killed_by(injection.no).map(|it| it.at).max().unwrap_or(injection.at);
        events.push((injection.at, 0, upto, text));
    }
    for (at, change) in &timeline.changes {
        let text = format!("At {}, {}.", explainer.time(*at), describe_applied_change(change, names.names()));
        events.push((*at, 0, *at, text));
    }
    for &(at, cluster) in &timeline.joined {
        let text = format!("At {}, {} joined.", explainer.time(at), names.cluster(cluster));
        events.push((at, 0, at, text));
    }
    for &(at, cluster) in &timeline.leaving {
        let text = format!(
            "At {}, {} was about to leave. Its partitions first had to move to other processes.",
            explainer.time(at),
            names.cluster(cluster)
        );
        events.push((at, 0, at, text));
    }
    for &(at, cluster) in &timeline.left {
        let text = format!(
            "At {}, {} left, once no recovery could need anything from it. Its processes ended, and its storage was released.",
            explainer.time(at),
            names.cluster(cluster)
        );
        events.push((at, 0, at, text));
    }
    for group in unplanned(timeline) {
        let (first, last) = (group[0].at, group[group.len() - 1].at);
        events.push((first, 0, last, explainer.unplanned(&group)));
    }
    for (place, rollback) in timeline.rollbacks.iter().enumerate() {
        let rank = 1 + u8::from(rollback.because_of.is_some());
        events.push((rollback.began, rank, rollback.ended, explainer.rollback(place, rollback)));
    }
    for (_, it) in timeline.recoveries.iter().filter(|(_, it)| !it.live.is_empty()) {
        events.push((it.began, 3, it.ended, explainer.recovery(it)));
    }
    for &(at, holder, part) in &timeline.damaged {
        // A read causes the rollback to another checkpoint, or the search for another copy.
        events.push((at, 1, at, explainer.damaged(at, holder, part)));
    }
    for it in &timeline.taken_over {
        events.push((it.at, 2, it.at, explainer.taken_over(it)));
    }
    events.sort_by_key(|&(from, rank, upto, _)| (from, rank, upto));
    let mut told: Vec<ExplainedEvent> = events
        .into_iter()
        .map(|(from, _, upto, text)| ExplainedEvent {
            from_seconds: Some(timeline.seconds(from)),
            upto_seconds: Some(timeline.seconds(upto)),
            text,
        })
        .collect();
    let silent = |text: String| ExplainedEvent { from_seconds: None, upto_seconds: None, text };
    told.extend(
        timeline.unrecoverable.iter().map(|(group, missing)| silent(unrecoverable(*group, missing, names))),
    );
    if !timeline.unrecoverable.is_empty() {
        told.push(silent(remedy_of_loss(manifest).to_owned()));
    }
    told.extend(
        manifest.faults.iter().filter_map(|(no, state)| Some(silent(explainer.without_effect(*no, state)?))),
    );
    let lacks_facts = timeline.is_cut_short || !timeline.incomplete.is_empty();
    told.extend(timeline.tasks.map(|it| silent(tasks(it, lacks_facts))));
    let early = ended_early(timeline, manifest, names);
    told.extend(early.clone().map(silent));
    told.extend(never_due(manifest).map(silent));
    told.extend(recoveries(timeline).iter().map(|it| silent(it.sentence())));
    told.extend(timeline.expectations.iter().map(|it| silent(expected(it))));
    if timeline.rollbacks.is_empty() {
        told.push(silent(match (timeline.failures.is_empty(), early.is_some()) {
            (true, _) if lacks_facts => "The record shows no failures and no rollbacks.".to_owned(),
            (false, _) if lacks_facts => "The record shows no rollbacks.".to_owned(),
            (true, false) => "There were no failures and no rollbacks.".to_owned(),
            (true, true) => "Until then, there were no failures and no rollbacks.".to_owned(),
            (false, _) => "No cluster rolled back.".to_owned(),
        }));
    }
    told
}

/// Says whether an expectation of the federation is met.
fn expected(it: &Assessment) -> String {
    let measured = it.measured.as_ref().map(|it| format!("; measured: {it}")).unwrap_or_default();
    let reason = it.unknown.as_ref().map(|it| format!(" ({})", it.reason)).unwrap_or_default();
    format!("Expected: {}{measured}; {}{reason}.", it.expected, met(it).0)
}

/// Describes, in one sentence per cluster, how the cluster's processes spent their time, as the summary's
/// table does.
pub fn time_by_part(timeline: &Timeline, names: &DisplayNames) -> Vec<String> {
    let sentence = |cluster: ClusterId| {
        let time = timeline.ledger.cluster(cluster);
        let spent = time.parts().into_iter().filter(|(_, seconds)| *seconds > 0.0);
        let shares: Vec<String> = spent
            .map(|(kind, seconds)| format!("{} {kind}", percent(seconds, time.total_seconds())))
            .collect();
        (!shares.is_empty())
            .then(|| format!("Time of the processes of {}: {}.", names.cluster(cluster), shares.join(", ")))
    };
    names.clusters().filter_map(sentence).collect()
}

/// Describes how many tasks were run, stolen, and re-executed. If facts are missing, there may have been more.
fn tasks(tasks: Tasks, is_incomplete: bool) -> String {
    let Tasks { tasks, again, rerun, stolen } = tasks;
    let stolen = stolen.map_or_else(String::new, |it| format!("; {} stolen", was(it, "task")));
    let source = if is_incomplete { "According to the facts that remain, " } else { "" };
    let mut text = format!("{source}{} run{stolen}.", was(tasks, "task"));
    if again > 0 {
        let times = how_often(again);
        text.push_str(&format!(" Because of failures, tasks were re-executed {times}"));
        match (again - rerun, rerun) {
            (_, 0) => {}
            (0, _) => text.push_str(", all by processes that kept their states"),
            (restored, kept) => text.push_str(&format!(
                ": {} in restored states, and {} by processes that kept their states",
                how_often(restored),
                how_often(kept)
            )),
        }
        text.push('.');
    }
    text
}

/// Explains why no checkpoint of a group can be restored: the missing parts, and the processes that were asked for
/// them.
pub fn unrecoverable(
    group: GroupId,
    missing: &[(faultline_core::ImageName, Vec<faultline_core::ProcessId>)],
    names: &DisplayNames,
) -> String {
    let mut text = format!("No checkpoint of {} can be restored.", names.group(group));
    for (image, asked) in missing.iter().take(MOST_NAMED) {
        let asked: Vec<_> = asked.iter().map(|it| names.process(*it)).collect();
        let whom = if asked.is_empty() {
            "no process holds it".to_owned()
        } else {
            format!("not found at {}", enumerate(&asked))
        };
        let missing = match names.unit_of(image.owner) {
            Some(_) => names.names().part_in_sentence(*image),
            None => names.names().log_in_sentence(*image),
        };
        text.push_str(&format!(" Missing: {missing} ({whom})."));
    }
    if missing.len() > MOST_NAMED {
        let more = missing.len() - MOST_NAMED;
        let parts = if more == 1 { "part is" } else { "parts are" };
        text.push_str(&format!(" {more} more {parts} missing."));
    }
    text
}

/// Returns advice on keeping checkpoints that survive a loss of storage.
fn remedy_of_loss(manifest: &Manifest) -> &'static str {
    match manifest.copies {
        None => {
            "The protocol takes no checkpoints; under one that does, processes can recover from such a loss."
        }
        Some(Copies { replicas: 0, .. }) => {
            "Each part was stored only by its owner; with `replicas: 1` or more, other processes keep copies."
        }
        Some(Copies { kept_by: ReplicaHolders::SameCluster, .. }) => {
            "Replicas were kept within the cluster; with `replicateTo: otherCluster`, they survive the loss of the cluster."
        }
        Some(Copies { kept_by: ReplicaHolders::OtherCluster | ReplicaHolders::SharedStorage, .. }) => {
            "With more `replicas`, a copy survives even if more processes lose their storage."
        }
    }
}

/// Describes why the run ended early: it was interrupted, exceeded its deadline, or reached its memory limit, a
/// process panicked or acted without end, the program that was its protocol broke its contract, its application was not
/// send-deterministic, or its record ends early. Returns `None` for any other outcome.
fn ended_early(timeline: &Timeline, manifest: &Manifest, names: &DisplayNames) -> Option<String> {
    // The run may have ended after its last fact. The end of a run that was cut short is unknown.
    let end = manifest.outcome.as_ref().map_or(timeline.end, |_| Time::ZERO + manifest.duration);
    let end = instant(timeline.seconds(end));
    match manifest.outcome {
        None if timeline.origin == Time::ZERO => {
            Some("The run was cut short: the record ends before the application started.".to_owned())
        }
        None => Some(format!("The run was cut short: the record ends at {end}.")),
        Some(Outcome::Interrupted) => Some(format!("The run was interrupted at {end}.")),
        Some(Outcome::Deadline) => Some(format!("The run exceeded its deadline at {end}.")),
        Some(Outcome::OutOfMemory(_)) => {
            Some(format!("The run ended at {end}, because the program reached its memory limit."))
        }
        Some(Outcome::Panicked(_) | Outcome::Broken(_) | Outcome::Stalled { .. }) => {
            let context = Context::from_manifest(manifest);
            Some(format!("The run ended at {end}: {}.", violation_at_end(&context)?))
        }
        Some(Outcome::NotRepeated { id }) => Some(format!(
            "The run ended at {end}: when {} was re-executed, its message {} to {} was not the same as before, but the \
             protocol requires send determinism.",
            names.process(id.from),
            id.number,
            names.process(id.to)
        )),
        _ => None,
    }
}

/// Describes the faults that were not due before the run ended, or of which the record of a run that was cut short
/// shows nothing; `None` if there are none.
pub fn never_due(manifest: &Manifest) -> Option<String> {
    let pending = manifest.faults.iter().filter(|(_, state)| *state == FaultState::Pending);
    let numbers: Vec<_> = pending.map(|(no, _)| no.0.to_string()).collect();
    let faults = match &numbers[..] {
        [] => return None,
        [only] => format!("fault {only}"),
        many if many.len() <= MOST_NAMED => format!("faults {}", enumerate(many)),
        many => {
            format!("faults {}, and {} more", many[..MOST_NAMED].join(", "), many.len() - MOST_NAMED)
        }
    };
    let were = if numbers.len() == 1 { "was" } else { "were" };
    Some(match manifest.outcome {
        None => format!("The record does not show what became of {faults}."),
        Some(_) => format!("The run ended before {faults} {were} due."),
    })
}

/// Returns the ends of lives that no planned fault caused, grouped if they happened at nearly the same time
/// and for the same reason.
pub(crate) fn unplanned(timeline: &Timeline) -> Vec<Vec<&Failure>> {
    const CLOSE: Span = Span::from_millis(500);
    let mut all: Vec<_> = timeline.failures.iter().filter(|it| it.fault().is_none()).collect();
    all.sort_by_key(|it| it.at);
    let together = |a: &&Failure, b: &&Failure| a.by == b.by && b.at.since(a.at) <= CLOSE;
    all.chunk_by(together).map(<[_]>::to_vec).collect()
}

/// The maximum number of items that are listed by name. If there are more, the rest are counted, or the list is
/// omitted.
const MOST_NAMED: usize = 8;

struct Explainer<'a> {
    timeline: &'a Timeline,
    manifest: &'a Manifest,
    names: &'a DisplayNames,
}

impl Explainer<'_> {
    fn time(&self, at: Time) -> String {
        instant(self.timeline.seconds(at))
    }

    fn killed_by(&self, no: FaultNo) -> impl Iterator<Item = &Failure> {
        self.timeline.failures.iter().filter(move |it| it.fault() == Some(no))
    }

    fn injected(&self, no: FaultNo, fault: &Fault, instant: Time) -> String {
        let killed = self.killed_by(no).count();
        let planned = self.manifest.plan.iter().find(|it| it.no == no);
        let watch = planned.and_then(|it| it.reported).map(|it| self.names.names().watch(it));
        let aim = watch.map(|it| format!(", at the last node to log {it}")).unwrap_or_default();
        let name = format!("fault {}{aim}", no.0);
        let at = self.time(instant);
        let effect = self.manifest.effects.iter().find(|it| it.no == no);
        let skew = effect.and_then(EffectEntry::skew);
        let latency = effect.and_then(EffectEntry::latency).map(Span::as_secs_f64);
        let exit = effect.and_then(EffectEntry::exit).map(Span::as_secs_f64);
        let late = measured(latency, None, exit);
        let lost = |storage: StorageFate| match storage {
            StorageFate::Kept => "",
            StorageFate::Lost => ", storage lost",
        };
        match *fault {
            Fault::Kill { target: Target::Process(process), storage, returns, repair } => format!(
                "At {at}, {} was killed{} ({name}, crash{}{}{late}).{}",
                self.names.process(process),
                not_restarted(returns),
                lost(storage),
                repaired(repair),
                self.moved(no)
            ),
            Fault::Kill {
                target: target @ (Target::Cluster(cluster) | Target::Rack { cluster, .. }),
                storage,
                returns,
                repair,
            } => {
                let members = target.among(self.names.processes(cluster)).len();
                let all = match (killed, members) {
                    (1, 1) => "the only process".to_owned(),
                    (2, 2) => "both processes".to_owned(),
                    (_, all) if killed == all => format!("all {killed} processes"),
                    _ => count(killed as u64, "process"),
                };
                let were = if killed == 1 { "was" } else { "were" };
                // In virtual time, a fault happens at one instant.
                let is_instant = self.manifest.backend == BackendKind::Simulate || killed <= 1;
                let (when, remark) = match skew {
                    Some(skew) => (format!(" and stopped within {skew}"), ""),
                    None if is_instant => (" at once".to_owned(), ""),
                    None => (String::new(), " The times at which they stopped are not all known."),
                };
                format!(
                    "At {at}, {all} of {} {were} killed{when}{} ({name}, {} loss{}{}{late}).{remark}{}",
                    place(target, self.names.names()),
                    not_restarted(returns),
                    if matches!(target, Target::Rack { .. }) { "rack" } else { "cluster" },
                    lost(storage),
                    repaired(repair),
                    self.moved(no)
                )
            }
            Fault::Impair { process, how: Impairment::Paused, span } => {
                let end = match self.killed_by(no).next() {
                    Some(failure) => {
                        format!("; it was declared failed and killed at {}", self.time(failure.at))
                    }
                    None if self.timeline.resumed.iter().any(|it| it.1 == process && it.0 >= instant) => {
                        " and then resumed: a delay, not a failure".to_owned()
                    }
                    None if fault.until(instant) > self.timeline.end => {
                        "; the record ends before it resumed".to_owned()
                    }
                    None => String::new(),
                };
                format!(
                    "At {at}, {} was paused for {} ({name}, pause{late}){end}.",
                    self.names.process(process),
                    lasted(span.unwrap_or(Span::MAX))
                )
            }
            Fault::Link { .. } | Fault::Partition { .. } | Fault::Impair { .. } => {
                let measured = measured(latency, skew.map(Span::as_secs_f64), exit);
                format!("At {at}, {} ({name}{measured}).", describe_injected_fault(fault, self.names.names()))
            }
        }
    }

    /// Says on which nodes the processes that a fault killed started again, and for which they waited, if their nodes were
    /// under repair.
    fn moved(&self, no: FaultNo) -> String {
        let moved = self.killed_by(no).filter_map(|it| it.moved.map(|at| (at, it.process)));
        let moved: Vec<_> = moved.collect();
        let waited = self.killed_by(no).filter(|it| it.moved.is_none());
        let waited =
            waited.filter_map(|it| Some((it.restarted.filter(|at| self.ends_repair(*at))?, it.process)));
        let waited = match waited.max() {
            Some((at, process)) => {
                let process = self.names.process(process);
                format!(" {process} waited until {} for the repair of its node.", self.time(at))
            }
            None => String::new(),
        };
        let Some(&(at, process)) = moved.iter().min() else { return waited };
        let for_it = if self.ends_repair(at) { ", for which it had waited" } else { "" };
        match moved.len() {
            1 => {
                let process = self.names.process(process);
                format!(" At {}, {process} moved to a spare node{for_it}.{waited}", self.time(at))
            }
            all => format!(" From {}, {all} of them moved to spare nodes.{waited}", self.time(at)),
        }
    }

    /// Returns whether the repair of a node ended at about this time.
    fn ends_repair(&self, at: Time) -> bool {
        /// How late the supervisor may be on real processes.
        const LATE: Span = Span::from_millis(500);
        let ends = self.timeline.injections.iter().filter_map(|it| Some(it.at + it.fault.repair()?));
        ends.into_iter().any(|end| end <= at && at <= end + LATE)
    }

    fn unplanned(&self, group: &[&Failure]) -> String {
        let mut names: Vec<_> =
            group.iter().take(MOST_NAMED).map(|it| self.names.process(it.process)).collect();
        if group.len() > MOST_NAMED {
            names.push(format!("{} more", group.len() - MOST_NAMED));
        }
        let (at, names) = (self.time(group[0].at), enumerate(&names));
        let (was, its) = if group.len() == 1 { ("was", "its") } else { ("were", "their") };
        match group[0].by {
            // Another system does not say who ended its processes.
            Some(EndedBy::Silence) if self.manifest.backend == BackendKind::Events => {
                format!("At {at}, {names} failed.")
            }
            Some(EndedBy::StorageLost) if self.manifest.backend == BackendKind::Events => {
                format!("At {at}, {names} failed, and lost {its} storage.")
            }
            Some(EndedBy::PlaceLost) => format!(
                "At {at}, {names} {was} lost together with {its} place (on Kubernetes, the pod), without a planned fault."
            ),
            Some(EndedBy::StorageLost) => {
                format!("At {at}, {names} moved to a new place, and lost {its} storage with the old one.")
            }
            Some(EndedBy::SupervisorRestarted) => format!(
                "At {at}, the supervisor was restarted, and {names}, which had ended with the previous supervisor, {was} restarted, too."
            ),
            Some(EndedBy::Silence | EndedBy::Fault(_) | EndedBy::Moved) => {
                let silent = self.manifest.bounds.as_ref();
                let silent = silent.map(|it| format!(": no heartbeat for {}", lasted(it.detect_after)));
                format!(
                    "At {at}, {names} {was} declared failed and killed, without a planned fault{}.",
                    silent.unwrap_or_default()
                )
            }
            None => format!("At {at}, {names} ended unexpectedly."),
        }
    }

    fn rollback(&self, place: usize, rollback: &TimelineRollback) -> String {
        let cluster = self.names.unit(rollback.unit);
        // Without the supervisor's facts, nothing shows which failure began the recovery, or when.
        let is_of_failure = !matches!(rollback.cause, Some(Cause::Alert { .. }));
        let is_cause_unknown =
            is_of_failure && rollback.failures.is_empty() && self.timeline.lacks_supervisor();
        let mut text = match rollback.cause {
            Some(Cause::Alert { from, .. }) => self.because_of_an_alert(rollback, from),
            Some(Cause::Failure) | None if is_cause_unknown => {
                format!("{cluster} rolled back to {}", target(rollback))
            }
            Some(Cause::Failure) | None if rollback.failures.is_empty() => {
                format!("{cluster} rolled back together with the others, to {}", target(rollback))
            }
            Some(Cause::Failure) | None => {
                let noticed = self.detection(rollback);
                format!("{cluster}{noticed} rolled back to {}", target(rollback))
            }
        };
        // Members continue until they learn of the failure, so a rollback can undo work that was done after the
        // failure.
        let moment = match rollback.cause {
            Some(Cause::Alert { .. }) => "the alert",
            _ if is_cause_unknown => "the rollback",
            _ => "the failure",
        };
        let saved = rollback.members.values().filter_map(|it| it.saved).min();
        let is_of_checkpoint = rollback.checkpoint.is_some();
        let age = match saved.filter(|_| is_of_checkpoint).map(|it| lasted(rollback.began.since(it))) {
            Some(age) if rollback.was_discarded => {
                format!(
                    "saved {age} before {moment} and then discarded, although all its parts were durable; "
                )
            }
            Some(age) => format!("saved {age} before {moment}; "),
            None => String::new(),
        };
        let lacks_facts = self.lacks_facts_of(rollback.unit);
        let resumed = match rollback.complete || !lacks_facts {
            true if is_cause_unknown => String::new(),
            true => {
                format!(" It resumed after {}.", lasted(self.timeline.lasted(rollback.began, rollback.ended)))
            }
            false => " The record does not show that all of its processes resumed.".to_owned(),
        };
        text.push_str(&format!(" ({age}{}).{resumed}", self.lost(rollback, moment)));
        let (tasks, cost) = rollback
            .members
            .values()
            .fold((0, Span::ZERO), |sum, it| (sum.0 + it.tasks.0, sum.1 + it.tasks.1));
        if tasks > 0 {
            let since = count(tasks, "task");
            text.push_str(&format!(
                " {since} that had run since {} had to be re-executed ({} of work).",
                if rollback.checkpoint.is_some() { "that checkpoint" } else { "the start" },
                lasted(cost)
            ));
        }
        if rollback.resent > 0 {
            let least = if self.lacks_any_facts() { "At least " } else { "" };
            text.push_str(&format!(" {least}{} re-sent to it from logs.", was(rollback.resent, "message")));
        }
        if !rollback.complete && !lacks_facts {
            text.push_str(" The recovery did not reach all of its processes.");
        }
        let spared: Vec<_> = self
            .names
            .units()
            .into_iter()
            .filter(|&it| it != rollback.unit && !self.rolled_back_with(it, place))
            .filter(|&it| self.was_present(it, rollback.began) && !self.lacks_facts_of(it))
            .map(|it| self.names.unit(it))
            .collect();
        if !spared.is_empty() && spared.len() <= MOST_NAMED {
            let spared = enumerate(&spared);
            text.push_str(&match self.manifest.promises.include(Promise::Containment) {
                // Other groups may have delivered undone messages. They need not roll back, because the group
                // sends the same messages again.
                true => format!(" {spared} did not roll back."),
                // Missing facts may show that a message was undone.
                false if self.lacks_any_facts() => format!(" {spared} did not roll back."),
                false => format!(" {spared} had not delivered any undone message, and did not roll back."),
            });
        }
        text
    }

    /// Describes how long it took to detect the first failure, and how many more processes failed before the group
    /// resumed.
    fn detection(&self, rollback: &TimelineRollback) -> String {
        let mut failures: Vec<_> = rollback
            .failures
            .iter()
            .map(|&it| &self.timeline.failures[it])
            .filter(|it| it.by.is_some())
            .collect();
        failures.sort_by_key(|it| it.at);
        let Some(first) = failures.first() else { return String::new() };
        // The supervisor ends silent processes, and processes whose place is lost. Detection then precedes the end.
        let mut injections = self.timeline.injections.iter();
        let is_killed = |no| injections.any(|it| it.no == no && it.fault.kills().is_some());
        let was_killed = first.fault().is_some_and(is_killed);
        let Some(noticed) = first.detected.filter(|_| was_killed) else { return String::new() };
        let mut text = format!(", whose failure was detected after {}", lasted(noticed.since(first.at)));
        let later: Vec<_> = failures.iter().filter(|it| it.at > noticed).collect();
        if let Some(next) = later.first() {
            let processes: BTreeSet<_> = later.iter().map(|it| it.process).collect();
            let processes = count(processes.len() as u64, "process");
            let start = if later.len() == 1 { "at" } else { "starting at" };
            text.push_str(&format!(
                " (and {processes} failed before {} resumed, {start} {})",
                self.names.unit(rollback.unit),
                self.time(next.at)
            ));
        }
        text + ","
    }

    /// Describes the tasks that surviving processes re-executed for failed ones.
    fn recovery(&self, it: &RecoveryCost) -> String {
        let (at, live) = (self.time(it.began), it.live.len() as u64);
        let processes = match live {
            1 => "the process that kept its state".to_owned(),
            live => format!("the {live} processes that kept their states"),
        };
        let since = count(it.since, "task");
        if it.again == 0 {
            return format!(
                "At {at}, {processes} did not have to re-execute anything; a global rollback would have undone {since}."
            );
        }
        let idle = it.live.difference(&it.busy).count() as u64;
        let idle = match idle {
            0 => String::new(),
            idle => format!(" {idle} of these processes had nothing to re-execute."),
        };
        format!(
            "From {at}, {processes} re-executed {} that others had lost ({} of work).{idle} A global rollback would \
             have undone {since}.",
            count(it.again, "task"),
            it.cost,
        )
    }

    fn damaged(&self, at: Time, holder: ProcessId, part: ImageName) -> String {
        let whose = match holder == part.owner {
            true => format!("its own part of {}", checkpoint(part.position())),
            false => self.names.names().part_in_sentence(part),
        };
        format!(
            "At {}, {} found the stored copy of {whose} damaged or missing, so this copy was not restored.",
            self.time(at),
            self.names.process(holder)
        )
    }

    /// Describes how another process took over work because a process never returned or a partition moved.
    fn taken_over(&self, it: &Takeover) -> String {
        let (at, by, of) = (self.time(it.at), self.names.process(it.by), self.names.process(it.of));
        let Some(from) = it.from else {
            return format!("From {at}, {by} ran the partition of {of}, which had not joined yet.");
        };
        let (tasks, cost) = it.tasks;
        let unrecoverable = &self.timeline.unrecoverable;
        let lost = || unrecoverable.iter().flat_map(|(group, _)| self.names.units_of(*group));
        if self.names.unit_of(it.of).is_some_and(|of| lost().any(|it| it == of)) {
            return format!(
                "At {at}, {by} could not take over the work of {of}, because no checkpoint of {of} could be \
                 restored: {} that {of} had run {} lost ({} of work).",
                count(tasks, "task"),
                if tasks == 1 { "was" } else { "were" },
                lasted(cost)
            );
        }
        let (earlier, work) = (self.names.process(from), self.work_taken_over(it, from));
        let mut text = match it.checkpoint {
            Some((position, saved)) => {
                // Without the facts of the process, the times of its actions are unknown.
                let age = match self.timeline.incomplete.contains(&from) {
                    true => String::new(),
                    false => format!(" (taken {} earlier)", lasted(it.at.since(saved))),
                };
                format!("At {at}, {by} took over {work}, starting from {of}'s {}{age}.", checkpoint(position))
            }
            None => format!("At {at}, {by} took the place of {of}; no checkpoint of {of} was left."),
        };
        if tasks > 0 {
            let since = if it.checkpoint.is_some() { " since then" } else { "" };
            let consequence = match (unrecoverable.is_empty(), tasks) {
                (true, _) => "had to be re-executed",
                (false, 1) => "was lost",
                (false, _) => "were lost",
            };
            text.push_str(&format!(
                " {} that {earlier} had run{since} {consequence} ({} of work).",
                count(tasks, "task"),
                lasted(cost)
            ));
        }
        text
    }

    /// Names the work that a process took over from another one.
    fn work_taken_over(&self, it: &Takeover, from: ProcessId) -> String {
        let (of, earlier) = (self.names.process(it.of), self.names.process(from));
        match (it.of == from, it.of == it.by) {
            (true, _) => format!("the work of {of}"),
            (false, true) => format!("its own partition from {earlier}"),
            (false, false) => format!("the partition of {of} from {earlier}"),
        }
    }

    fn because_of_an_alert(&self, rollback: &TimelineRollback, from: GroupId) -> String {
        let cluster = self.names.unit(rollback.unit);
        let sender = self.names.group(from);
        let orphans = rollback
            .because_of
            .map(|cause| self.timeline.orphans_at(cause, rollback.unit, self.names))
            .unwrap_or_default();
        let had = match orphans.first() {
            Some(first) => format!(
                "{cluster} had delivered {}{} that the rollback of {sender} undid (first: {})",
                if self.lacks_any_facts() { "at least " } else { "" },
                count(orphans.len() as u64, "message"),
                self.names.names().message(*first)
            ),
            None => format!("{cluster} was alerted by {sender}"),
        };
        format!("{had}, so it rolled back at {} to {}", self.time(rollback.began), target(rollback))
    }

    fn lost(&self, rollback: &TimelineRollback, moment: &str) -> String {
        let members = || rollback.members.values().filter(|it| it.lost > Span::ZERO);
        let unknown: Vec<_> = self.names.members(rollback.unit);
        let unknown = unknown.iter().filter(|it| self.timeline.incomplete.contains(it)).count();
        let Some(most) = members().map(|it| it.lost).max() else {
            return match unknown {
                0 => "no work was lost".to_owned(),
                _ => "the facts that show how much work was lost are missing".to_owned(),
            };
        };
        let all = lasted(rollback.lost());
        let text = match (members().count(), unknown) {
            (1, 0) => format!("1 process lost {all} of work"),
            (count, 0) => format!("{count} processes lost {all} of work, at most {} each", lasted(most)),
            // What the others lost may exceed every figure.
            (count, _) => {
                format!("at least {} lost at least {all} of work", self::count(count as u64, "process"))
            }
        };
        let later = |it: &RestoredMember| {
            it.saved.map_or(0, |saved| it.lost.0.saturating_sub(rollback.began.since(saved).0))
        };
        let later = Span(members().map(later).max().unwrap_or(0));
        // Omitted if it is negligible compared with the other figures.
        if later.0 < most.0 / 100 {
            text
        } else {
            format!("{text}, including up to {} after {moment}", lasted(later))
        }
    }

    /// Returns whether facts of a unit's processes may be missing.
    fn lacks_facts_of(&self, unit: RollbackUnit) -> bool {
        let members = self.names.members(unit);
        self.timeline.is_cut_short || members.iter().any(|it| self.timeline.incomplete.contains(it))
    }

    /// Returns whether facts of any process may be missing.
    fn lacks_any_facts(&self) -> bool {
        self.timeline.is_cut_short || !self.timeline.incomplete.is_empty()
    }

    /// Returns whether a rollback of `unit` caused the rollback at index `place`, was caused by it, or overlapped
    /// it.
    fn rolled_back_with(&self, unit: RollbackUnit, place: usize) -> bool {
        let this = &self.timeline.rollbacks[place];
        self.timeline.rollbacks.iter().enumerate().any(|(other, it)| {
            let related = it.because_of == Some(place) || this.because_of == Some(other);
            it.unit == unit && (related || it.began <= this.ended && this.began <= it.ended)
        })
    }

    /// Returns whether, at this time, the cluster of a unit had joined and not left, and at least one member of the
    /// unit had not failed permanently.
    fn was_present(&self, unit: RollbackUnit, at: Time) -> bool {
        let Timeline { joined, left, .. } = self.timeline;
        let gone = self.timeline.permanent_failures(self.names);
        let is_gone = |it: &ProcessId| gone.get(it).is_some_and(|since| *since <= at);
        if self.names.members(unit).iter().all(is_gone) {
            return false;
        }
        let cluster = self.names.cluster_of_unit(unit);
        !left.iter().any(|it| it.1 == cluster && it.0 <= at)
            && !joined.iter().any(|it| it.1 == cluster && it.0 > at)
    }

    fn without_effect(&self, no: FaultNo, state: &FaultState) -> Option<String> {
        let FaultState::Ineffective(reason) = state else { return None };
        let planned = self.manifest.plan.iter().find(|it| it.no == no)?;
        let what = describe_planned(planned, self.names.names());
        Some(format!("Fault {} ({what}) had no effect: {reason}.", no.0))
    }
}

/// Describes the state to which a unit rolls back.
fn target(rollback: &TimelineRollback) -> String {
    match rollback.checkpoint {
        Some(position) => format!("its {}", checkpoint(position)),
        None => "its initial state".to_owned(),
    }
}

/// Names a checkpoint without parentheses, because a remark in parentheses may follow.
fn checkpoint(position: Position) -> String {
    match position.incarnation.0 {
        0 => format!("checkpoint {}", position.sn.0),
        incarnation => format!("checkpoint {} of incarnation {incarnation}", position.sn.0),
    }
}

/// Joins names: `a`, `a and b`, `a, b, and c`.
pub(crate) fn enumerate(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [one, other] => format!("{one} and {other}"),
        [before @ .., last] => format!("{}, and {last}", before.join(", ")),
    }
}

fn was(number: u64, thing: &str) -> String {
    format!("{} {}", count(number, thing), if number == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn re_executions_in_restored_states_are_counted_separately() {
        let said = |again, rerun| tasks(Tasks { tasks: 9, again, rerun, stolen: None }, false);
        let incomplete = tasks(Tasks { tasks: 9, again: 0, rerun: 0, stolen: Some(2) }, true);
        assert_eq!(incomplete, "According to the facts that remain, 9 tasks were run; 2 tasks were stolen.");
        assert_eq!(said(0, 0), "9 tasks were run.");
        assert_eq!(said(1, 0), "9 tasks were run. Because of failures, tasks were re-executed once.");
        insta::assert_snapshot!(
            said(3, 3),
            @"9 tasks were run. Because of failures, tasks were re-executed 3 times, all by processes that kept their states."
        );
        insta::assert_snapshot!(
            said(213, 154),
            @"9 tasks were run. Because of failures, tasks were re-executed 213 times: 59 times in restored states, and 154 times by processes that kept their states."
        );
    }
}
