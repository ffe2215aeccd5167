//! Sentences about faults, and about failures that no planned fault caused.

use faultline_core::fact::Flipped;
use faultline_core::fault::{FaultState, FlipTarget, Impairment};
use faultline_core::{
    ClusterId, EndedBy, Fault, FaultNo, ImageName, ProcessId, Span, StorageFate, Target, Time,
};
use faultline_trace::duration::{lasted, span};
use faultline_trace::fault::{describe_injected_fault, describe_planned, not_restarted, place, repaired};
use faultline_trace::manifest::{BackendKind, EffectEntry};

use super::{Explainer, MOST_NAMED, count, enumerate};
use crate::summary::{measured, slowed};
use crate::timeline::{CommandExit, Failure, StoppedCommand, Timeline, UndonePeriod};

/// Returns the ends of lives that no planned fault caused, grouped if they happened at nearly the same time
/// and for the same reason.
pub(crate) fn unplanned(timeline: &Timeline) -> Vec<Vec<&Failure>> {
    const CLOSE: Span = Span::from_millis(500);
    let mut all: Vec<_> = timeline.failures.iter().filter(|it| it.fault().is_none()).collect();
    all.sort_by_key(|it| it.at);
    let together = |a: &&Failure, b: &&Failure| a.by == b.by && b.at.since(a.at) <= CLOSE;
    all.chunk_by(together).map(<[_]>::to_vec).collect()
}

/// Returns why a fault that was to flip a bit had no effect; `None` if it is another fault, had an effect, or may have had
/// one.
pub(crate) fn flips_nothing(timeline: &Timeline, no: FaultNo, fault: &Fault) -> Option<&'static str> {
    let (_, target) =
        fault.flips().filter(|_| !timeline.is_cut_short && !timeline.flipped.contains_key(&no))?;
    Some(match target {
        FlipTarget::Message => "the application received no message with content after it",
        FlipTarget::Copy => "the node stored no state with content after it",
        FlipTarget::State => "the application had no state with content after it",
    })
}

impl Explainer<'_> {
    pub(super) fn injected(&self, no: FaultNo, fault: &Fault, instant: Time) -> String {
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
                let (who, when, remark) =
                    self.killed_together(target, cluster, self.killed_by(no).count(), skew);
                format!(
                    "At {at}, {who} killed{when}{} ({name}, {} loss{}{}{late}).{remark}{}",
                    not_restarted(returns),
                    if matches!(target, Target::Rack { .. }) { "rack" } else { "cluster" },
                    lost(storage),
                    repaired(repair),
                    self.moved(no)
                )
            }
            Fault::Impair { process, how: Impairment::Paused, span } => {
                let end = self.end_of_pause(no, process, fault, instant);
                format!(
                    "At {at}, {} was paused for {} ({name}, pause{late}){end}.",
                    self.names.process(process),
                    lasted(span.unwrap_or(Span::MAX))
                )
            }
            Fault::Stop { .. } => {
                let late = latency.map(|it| format!(", the last command ended after {}", span(it)));
                let late = late.unwrap_or_default();
                format!(
                    "At {at}, {} ({name}, {}{late}).{}",
                    describe_injected_fault(fault, self.names.names()),
                    fault.kind(),
                    self.moved(no)
                )
            }
            Fault::Link { .. } | Fault::Partition { .. } | Fault::Split { .. } | Fault::Impair { .. } => {
                if let Some(reason) = flips_nothing(self.timeline, no, fault) {
                    return format!("At {at}, {name} was to flip a bit, but had no effect: {reason}.");
                }
                let slowed = slowed(
                    effect.and_then(EffectEntry::ran_share),
                    effect.and_then(EffectEntry::processor_share),
                );
                let measured = measured(latency, skew.map(Span::as_secs_f64), exit) + &slowed;
                format!("At {at}, {} ({name}{measured}).", describe_injected_fault(fault, self.names.names()))
            }
        }
    }

    /// Says what contained the bit that a fault flipped, and what became of it.
    pub(super) fn flipped(&self, no: FaultNo, at: Time, process: ProcessId, flipped: Flipped) -> String {
        let timeline = self.timeline;
        let is_undone =
            |it: &&UndonePeriod| it.process == process && it.stretch.began <= at && at <= it.stretch.ended;
        let undone = || match timeline.undone.iter().find(is_undone) {
            Some(it) => format!("the rollback at {} undid this", self.time(timeline.rollbacks[it.by].began)),
            None => "no rollback undid this".to_owned(),
        };
        let (what, fate) = match flipped {
            Flipped::Message(id) => {
                (format!("received {}", self.names.names().message_in_sentence(id)), undone())
            }
            Flipped::State => ("continued".to_owned(), undone()),
            Flipped::Copy { name, is_checked } => {
                let is_found =
                    |it: &&(Time, ProcessId, ImageName)| it.0 >= at && (it.1, it.2) == (process, name);
                let found = timeline.damaged.iter().find(is_found);
                let fate = match (found, is_checked) {
                    (Some((read, ..)), _) => format!("a read at {} revealed it", self.time(*read)),
                    (None, true) => {
                        "its digest would reveal it, but no read of this copy is recorded".to_owned()
                    }
                    (None, false) => "no digest reveals it".to_owned(),
                };
                (format!("stored {}", self.part_of(process, name)), fate)
            }
        };
        format!(
            "At {}, {} {what} with the flipped bit of fault {}; {fate}.",
            self.time(at),
            self.names.process(process),
            no.0
        )
    }

    /// Says which processes of a cluster or a rack were killed, and how close together. Returns also a remark.
    fn killed_together(
        &self,
        target: Target,
        cluster: ClusterId,
        killed: usize,
        skew: Option<Span>,
    ) -> (String, String, &'static str) {
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
        (format!("{all} of {} {were}", place(target, self.names.names())), when, remark)
    }

    /// Says how a pause ended, unless the process simply resumed.
    fn end_of_pause(&self, no: FaultNo, process: ProcessId, fault: &Fault, instant: Time) -> String {
        match self.killed_by(no).next() {
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

    pub(super) fn exit(&self, it: &CommandExit) -> String {
        let said = it.said.as_ref().map(|it| format!("; its last line: {it}")).unwrap_or_default();
        let (at, name) = (self.time(it.at), self.names.process(it.process));
        format!("At {at}, the command of {name} ended by itself: {}{said} ({}).", it.ending, it.log)
    }

    pub(super) fn stop(&self, it: &StoppedCommand) -> String {
        let said = it.said.as_ref().map(|it| format!("; its last line: {it}")).unwrap_or_default();
        let (at, name) = (self.time(it.at), self.names.process(it.process));
        format!("At {at}, the command of {name} {}{said} ({}).", it.how, it.log)
    }

    pub(super) fn unplanned(&self, group: &[&Failure]) -> String {
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
            Some(EndedBy::CommandExited) => format!(
                "At {at}, {names} {was} ended because a command exited that is started again; what it left behind was killed."
            ),
            None => format!("At {at}, {names} ended unexpectedly."),
        }
    }

    pub(super) fn without_effect(&self, no: FaultNo, state: &FaultState) -> Option<String> {
        let FaultState::Ineffective(reason) = state else { return None };
        let planned = self.manifest.plan.iter().find(|it| it.no == no)?;
        let what = describe_planned(planned, self.names.names());
        Some(format!("Fault {} ({what}) had no effect: {reason}.", no.0))
    }
}
