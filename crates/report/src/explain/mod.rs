//! Explains in sentences why each cluster rolled back, to which checkpoint, and what it lost, in the order of events.

mod faults;
mod rollbacks;
mod tasks;

pub use faultline_checker::count;
use faultline_checker::{Context, violation_at_end};
use faultline_core::fault::{FaultState, Outcome};
use faultline_core::{ClusterId, FaultNo, ImageName, ProcessId, Time};
use faultline_history::GroupId;
use faultline_history::expected::Assessment;
use faultline_trace::Manifest;
use faultline_trace::duration::instant;
use faultline_trace::fault::describe_applied_change;
use faultline_trace::manifest::{Copies, ReplicaHolders};
use serde::Serialize;

use crate::names::{DisplayNames, RollbackUnit};
use crate::probes::{probes, recoveries};
use crate::summary::{measured_in_words, met};
use crate::text::shares;
use crate::timeline::{Failure, Timeline};
pub(crate) use faults::{flips_nothing, unplanned};
use tasks::tasks;

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
    let mut told = explainer.dated_events();
    let undated = |text: String| ExplainedEvent { from_seconds: None, upto_seconds: None, text };
    told.extend(explainer.undated_sentences().into_iter().map(undated));
    told
}

/// Says whether an expectation of the federation is met.
fn expected(it: &Assessment) -> String {
    let measured = measured_in_words(it);
    let measured = if measured.is_empty() { String::new() } else { format!("; measured: {measured}") };
    let reason = it.unknown.as_ref().map(|it| format!(" ({})", it.reason)).unwrap_or_default();
    format!("Expected: {}{measured}; {}{reason}.", it.expected, met(it).0)
}

/// Describes, in one sentence per cluster, how the cluster's processes spent their time, as the summary's
/// table does.
pub fn time_by_part(timeline: &Timeline, names: &DisplayNames) -> Vec<String> {
    let sentence = |cluster: ClusterId| {
        let time = timeline.ledger.cluster(cluster);
        let spent = time.parts().into_iter().zip(shares(&time.parts().map(|it| it.1)));
        let spent = spent.filter(|((_, seconds), _)| *seconds > 0.0);
        let shares: Vec<String> = spent.map(|((kind, _), share)| format!("{share} {kind}")).collect();
        (!shares.is_empty())
            .then(|| format!("Time of the processes of {}: {}.", names.cluster(cluster), shares.join(", ")))
    };
    names.clusters().filter_map(sentence).collect()
}

/// Explains why no checkpoint of a group can be restored: the missing parts, and the processes that were asked for
/// them.
pub fn unrecoverable(
    group: GroupId,
    missing: &[(ImageName, Vec<ProcessId>)],
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
        Some(Outcome::ExitsAgain { process, exits }) => Some(format!(
            "The run ended at {end}: the command of {} exited {exits} times in a row without having been ready.",
            names.process(process)
        )),
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

/// The maximum number of items that are listed by name. If there are more, the rest are counted, or the list is
/// omitted.
const MOST_NAMED: usize = 8;

struct Explainer<'a> {
    timeline: &'a Timeline,
    manifest: &'a Manifest,
    names: &'a DisplayNames,
}

impl Explainer<'_> {
    /// Describes what happened at known times, sorted by start. If starts are equal, causes come before their effects.
    fn dated_events(&self) -> Vec<ExplainedEvent> {
        let Explainer { timeline, names, .. } = self;
        let mut events: Vec<(Time, u8, Time, String)> = Vec::new();
        for injection in &timeline.injections {
            let text = self.injected(injection.no, &injection.fault, injection.at);
            let upto = self.killed_by(injection.no).map(|it| it.at).max().unwrap_or(injection.at);
            events.push((injection.at, 0, upto, text));
        }
        for (&no, &(at, process, flipped)) in &timeline.flipped {
            events.push((at, 0, at, self.flipped(no, at, process, flipped)));
        }
        for (at, change) in &timeline.changes {
            let text = format!("At {}, {}.", self.time(*at), describe_applied_change(change, names.names()));
            events.push((*at, 0, *at, text));
        }
        let presence = [
            (&timeline.joined, "joined."),
            (&timeline.leaving, "was about to leave. Its partitions first had to move to other processes."),
            (
                &timeline.left,
                "left, once no recovery could need anything from it. Its processes ended, and its storage was released.",
            ),
        ];
        for (moments, what) in presence {
            for &(at, cluster) in moments {
                let text = format!("At {}, {} {what}", self.time(at), names.cluster(cluster));
                events.push((at, 0, at, text));
            }
        }
        for it in &timeline.exits {
            events.push((it.at, 0, it.at, self.exit(it)));
        }
        for it in &timeline.stops {
            events.push((it.at, 0, it.at, self.stop(it)));
        }
        for group in unplanned(timeline) {
            let (first, last) = (group[0].at, group[group.len() - 1].at);
            events.push((first, 0, last, self.unplanned(&group)));
        }
        for (place, rollback) in timeline.rollbacks.iter().enumerate() {
            let rank = 1 + u8::from(rollback.because_of.is_some());
            events.push((rollback.began, rank, rollback.ended, self.rollback(place, rollback)));
        }
        for (_, it) in timeline.recoveries.iter().filter(|(_, it)| !it.live.is_empty()) {
            events.push((it.began, 3, it.ended, self.recovery(it)));
        }
        for &(at, holder, part) in &timeline.damaged {
            // A read causes the rollback to another checkpoint, or the search for another copy.
            events.push((at, 1, at, self.damaged(at, holder, part)));
        }
        for it in &timeline.taken_over {
            events.push((it.at, 2, it.at, self.taken_over(it)));
        }
        events.sort_by_key(|&(from, rank, upto, _)| (from, rank, upto));
        events
            .into_iter()
            .map(|(from, _, upto, text)| ExplainedEvent {
                from_seconds: Some(timeline.seconds(from)),
                upto_seconds: Some(timeline.seconds(upto)),
                text,
            })
            .collect()
    }

    /// Describes what has no time: losses, faults without effect, the end of the run, and its figures.
    fn undated_sentences(&self) -> Vec<String> {
        let Explainer { timeline, manifest, names } = self;
        let lost = timeline.unrecoverable.iter();
        let mut told: Vec<String> =
            lost.map(|(group, missing)| unrecoverable(*group, missing, names)).collect();
        if !timeline.unrecoverable.is_empty() {
            told.push(remedy_of_loss(manifest).to_owned());
        }
        told.extend(manifest.faults.iter().filter_map(|(no, state)| self.without_effect(*no, state)));
        let lacks_facts = timeline.is_cut_short || !timeline.incomplete.is_empty();
        told.extend(timeline.tasks.map(|it| tasks(it, lacks_facts)));
        let early = ended_early(timeline, manifest, names);
        let is_early = early.is_some();
        told.extend(early);
        told.extend(never_due(manifest));
        told.extend(recoveries(timeline, names).iter().map(|it| it.sentence()));
        let reasons =
            probes(timeline, names).into_iter().flat_map(|it| it.last_reasons().collect::<Vec<_>>());
        told.extend(reasons.map(|it| format!("{it}.")));
        told.extend(timeline.expectations.iter().map(expected));
        if timeline.rollbacks.is_empty() && manifest.system.is_none() {
            let summary = match (timeline.failures.is_empty(), is_early) {
                (true, _) if lacks_facts => "The record shows no failures and no rollbacks.",
                (false, _) if lacks_facts => "The record shows no rollbacks.",
                (true, false) => "There were no failures and no rollbacks.",
                (true, true) => "Until then, there were no failures and no rollbacks.",
                (false, _) => "No cluster rolled back.",
            };
            told.push(summary.to_owned());
        }
        told
    }

    fn time(&self, at: Time) -> String {
        instant(self.timeline.seconds(at))
    }

    fn killed_by(&self, no: FaultNo) -> impl Iterator<Item = &Failure> {
        self.timeline.failures.iter().filter(move |it| it.fault() == Some(no))
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
