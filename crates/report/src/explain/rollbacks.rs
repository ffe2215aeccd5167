//! Sentences about rollbacks.

use std::collections::BTreeSet;

use faultline_core::{Cause, ImageName, Position, ProcessId, Promise, Span, Time};
use faultline_history::GroupId;
use faultline_trace::duration::lasted;

use super::{Explainer, MOST_NAMED, count, enumerate, was};
use crate::names::RollbackUnit;
use crate::timeline::{RestoredMember, Timeline, TimelineRollback};

impl Explainer<'_> {
    pub(super) fn rollback(&self, place: usize, rollback: &TimelineRollback) -> String {
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
        text.push_str(&self.spared(place, rollback));
        text
    }

    /// Names the units that did not roll back, if they are few.
    fn spared(&self, place: usize, rollback: &TimelineRollback) -> String {
        let spared: Vec<_> = self
            .names
            .units()
            .into_iter()
            .filter(|&it| it != rollback.unit && !self.rolled_back_with(it, place))
            .filter(|&it| self.was_present(it, rollback.began) && !self.lacks_facts_of(it))
            .map(|it| self.names.unit(it))
            .collect();
        if spared.is_empty() || spared.len() > MOST_NAMED {
            return String::new();
        }
        let spared = enumerate(&spared);
        match self.manifest.promises.include(Promise::Containment) {
            // Other groups may have delivered undone messages. They need not roll back, because the group
            // sends the same messages again.
            true => format!(" {spared} did not roll back."),
            // Missing facts may show that a message was undone.
            false if self.lacks_any_facts() => format!(" {spared} did not roll back."),
            false => format!(" {spared} had not delivered any undone message, and did not roll back."),
        }
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
            (members, 0) => format!("{members} processes lost {all} of work, at most {} each", lasted(most)),
            // What the others lost may exceed every figure.
            (members, _) => {
                format!("at least {} lost at least {all} of work", count(members as u64, "process"))
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

    /// Returns whether a rollback of `unit` caused the rollback at index `place`, was caused by it, or overlapped
    /// it.
    fn rolled_back_with(&self, unit: RollbackUnit, place: usize) -> bool {
        let this = &self.timeline.rollbacks[place];
        self.timeline.rollbacks.iter().enumerate().any(|(other, it)| {
            let related = it.because_of == Some(place) || this.because_of == Some(other);
            it.unit == unit && (related || it.began <= this.ended && this.began <= it.ended)
        })
    }

    /// Describes a stored copy that could not be restored.
    pub(super) fn damaged(&self, at: Time, holder: ProcessId, part: ImageName) -> String {
        format!(
            "At {}, {} found the stored copy of {} damaged or missing, so this copy was not restored.",
            self.time(at),
            self.names.process(holder),
            self.part_of(holder, part)
        )
    }

    /// Names a part that `holder` stores.
    pub(super) fn part_of(&self, holder: ProcessId, part: ImageName) -> String {
        match holder == part.owner {
            true => format!("its own part of {}", checkpoint(part.position())),
            false => self.names.names().part_in_sentence(part),
        }
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
}

/// Describes the state to which a unit rolls back.
fn target(rollback: &TimelineRollback) -> String {
    match rollback.checkpoint {
        Some(position) => format!("its {}", checkpoint(position)),
        None => "its initial state".to_owned(),
    }
}

/// Names a checkpoint without parentheses, because a remark in parentheses may follow.
pub(super) fn checkpoint(position: Position) -> String {
    match position.incarnation.0 {
        0 => format!("checkpoint {}", position.sn.0),
        incarnation => format!("checkpoint {} of incarnation {incarnation}", position.sn.0),
    }
}
