//! Consistency rules between the facts of a whole run, and between the facts and the manifest.
//!
//! Seals reveal changes made after a run. These rules also reveal missing facts in a record that was sealed again:
//! every started life has a stream, every failure is detected, and no process acts before the application begins. They
//! apply to every whole run, whether or not its facts are still in memory, but not to facts assembled by a test.

mod injections;
mod preceding;
mod wording;

pub use wording::contradiction;

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::{Change, FaultState, Outcome};
use faultline_core::{
    Boot, EndedBy, Fact, FactKind, FaultNo, Life, ProcessId, Span, StorageFate, Target, Time, Trigger,
};

use faultline_history::{Context, Contradiction, History};

/// How late the supervisor may act: first in virtual time, then with real processes, whose machine may be busy.
const LATE: (Span, Span) = (Span::from_secs(1), Span::from_secs(30));

/// Adds the contradictions between the facts to the history of a whole run.
#[must_use]
pub fn examined(mut history: History<'_>) -> History<'_> {
    history.contradictions = contradictions(&history);
    history
}

/// Returns the violated rules. A violation is never the fault of a protocol: it shows that facts are missing or were
/// changed.
fn contradictions(history: &History<'_>) -> Vec<Contradiction> {
    let mut found = Vec::new();
    // If facts of the supervisor are missing, nothing follows from their absence.
    if !history.trace.has_gap(ProcessId::SUPERVISOR, Life(0)) {
        if history.trace.supervisor().is_empty() {
            return if is_unread(history) { Vec::new() } else { vec![Contradiction::NoSupervisor] };
        }
        supervised(history, &mut found);
    }
    preceding::writes(history, &mut found);
    preceding::transmissions(history, &mut found);
    preceding::thefts(history, &mut found);
    preceding::executions(history, &mut found);
    found
}

/// Returns whether no facts were read, because there are too many for the memory of this program.
pub(crate) fn is_unread(history: &History<'_>) -> bool {
    history.trace.streams.is_empty() && matches!(history.context.outcome, Some(Outcome::OutOfMemory(_)))
}

/// Checks the rules that relate the supervisor's facts to everything else.
fn supervised(history: &History<'_>, found: &mut Vec<Contradiction>) {
    let demands = Demands::new(history);
    demands.lives(found);
    demands.ends(found);
    demands.boots(found);
    demands.beginning(found);
    demands.completion(found);
    demands.faults(found);
    demands.links(found);
    demands.results(found);
    injections::are_due(history, demands.late, found);
    injections::fates(history, found);
    injections::changes(history, found);
    injections::losses(history, found);
    injections::flips(history, found);
    injections::effects(history, found);
    injections::pauses(history, demands.late, found);
    injections::repairs(history, demands.late, found);
}

/// When a process lost its storage.
#[derive(Clone, Copy, PartialEq)]
enum Loss {
    /// Since its last life started.
    Last,
    /// In an earlier life.
    Earlier,
}

/// Rules that relate the supervisor's facts, the manifest and the streams.
struct Demands<'a> {
    history: &'a History<'a>,
    context: &'a Context,
    facts: &'a [(Time, Fact)],
    is_completed: bool,
    /// Whether the user paused the federation. Times in the plan do not count pauses.
    is_paused: bool,
    late: Span,
}

impl<'a> Demands<'a> {
    fn new(history: &'a History<'a>) -> Demands<'a> {
        let (context, facts) = (history.context, history.trace.supervisor());
        let pauses = |(_, fact): &(Time, Fact)| match fact {
            Fact::Changed(change) => matches!(**change, Change::Pause(_)),
            _ => false,
        };
        Demands {
            history,
            context,
            facts,
            is_completed: context.outcome == Some(Outcome::Completed),
            is_paused: facts.iter().any(pauses),
            late: if context.common_clock { LATE.0 } else { LATE.1 },
        }
    }

    /// Checks that every process was started, that its lives are numbered consecutively, and that each life has a
    /// stream, which in virtual time does not begin before the life.
    fn lives(&self, found: &mut Vec<Contradiction>) {
        let mut lives: BTreeMap<ProcessId, Vec<Life>> = BTreeMap::new();
        let known = (0..self.context.names.processes.len() as u32).map(ProcessId);
        known.chain(self.context.clusters.iter().flatten().copied()).for_each(|it| {
            lives.entry(it).or_default();
        });
        for &(process, life, number) in &self.history.supervision.starts {
            lives.entry(process).or_default().push(life);
            let stream = (process, life);
            let first = self.history.trace.streams.get(&stream).and_then(|it| it.first());
            let (started, _) = self.facts[number];
            if self.context.common_clock && first.is_some_and(|(at, _)| *at < started) {
                found.push(Contradiction::ReportedTooEarly(process, life));
            }
            if !self.history.trace.streams.contains_key(&stream) && !self.history.trace.has_gap(process, life)
            {
                found.push(Contradiction::NoFacts(process, life));
            }
        }
        for (process, lives) in &lives {
            let expected = (1..).map(Life).take(lives.len().max(1));
            let missing = expected.zip(lives.iter().copied().map(Some).chain([None]));
            if let Some((life, _)) = missing.into_iter().find(|(expected, found)| *found != Some(*expected)) {
                found.push(Contradiction::StartMissing(*process, life));
            }
        }
        let is_started = |(process, life): &(ProcessId, Life)| {
            *process == ProcessId::SUPERVISOR || lives.get(process).is_some_and(|it| it.contains(life))
        };
        for &(process, life) in self.history.trace.streams.keys().filter(|it| !is_started(it)) {
            let missing = Contradiction::StartMissing(process, life);
            if !found.contains(&missing) {
                found.push(missing);
            }
        }
    }

    /// Checks that only the newest life of a process ends, that only a move to a spare node or a fault that destroys its storage fails it
    /// again once it has ended, and that the end of a life is detected at most once, and before the next life starts. A
    /// failure may remain undetected only if the run ended soon after it. If the run completed, the failure of every
    /// rank that may return must have been detected.
    fn ends(&self, found: &mut Vec<Contradiction>) {
        let mut detected = BTreeSet::new();
        let mut failed = BTreeMap::new();
        let mut newest = BTreeMap::new();
        for (at, fact) in self.facts {
            match fact {
                Fact::LifeStarted { process, life, .. } => {
                    newest.insert(*process, *life);
                    let before = Life(life.0.saturating_sub(1));
                    if before > Life(0) && !detected.contains(&(*process, before)) {
                        let (process, life, next) = (*process, before, *life);
                        found.push(Contradiction::StartedTooEarly { process, life, next });
                    }
                }
                Fact::Failed { process, life, .. } | Fact::Detected { process, life }
                    if newest.get(process) != Some(life) =>
                {
                    found.push(Contradiction::NotNewest(*process, *life));
                }
                Fact::Failed { process, life, by, .. } => {
                    let of = (*process, *life);
                    let has_ended = failed.contains_key(&of) || detected.contains(&of);
                    failed.entry(of).or_insert(*at);
                    if has_ended && *by != EndedBy::Moved && !self.destroys_storage(*by) {
                        found.push(Contradiction::FailedAgain(*process, *life));
                    }
                }
                Fact::Detected { process, life } => {
                    let is_first = detected.insert((*process, *life));
                    found.extend((!is_first).then_some(Contradiction::DetectedAgain(*process, *life)));
                }
                _ => {}
            }
        }
        let gone = self.history.supervision.gone(&self.context.clusters);
        let bound = self.context.bounds.as_ref().map(|it| it.detect_after * 2 + self.late);
        for ((process, life), at) in failed {
            if detected.contains(&(process, life)) || newest.get(&process).is_some_and(|it| *it > life) {
                continue;
            }
            let is_overdue = bound.is_some_and(|it| self.context.end.since(at) > it) && !self.is_paused;
            let must_finish = self.history.member(process).is_some() && !gone.contains(&process);
            if is_overdue || self.is_completed && must_finish {
                found.push(Contradiction::NeverDetected(process, life));
            }
        }
    }

    /// Checks that the application begins once: after the start of every process, before any fault or change to the
    /// clusters, and, in virtual time, before any action of the application.
    fn beginning(&self, found: &mut Vec<Contradiction>) {
        let begins = self.facts.iter().filter(|(_, fact)| *fact == Fact::Begun).count();
        let begun = self.facts.iter().position(|(_, fact)| *fact == Fact::Begun);
        let Some(begun) = begun else {
            if self.is_completed || self.history.segments.iter().any(|it| it.is_active) {
                found.push(Contradiction::NeverBegun);
            }
            return;
        };
        if begins > 1 {
            found.push(Contradiction::BegunAgain { times: begins });
        }
        let follows = |fact: &Fact| {
            matches!(
                fact,
                Fact::Injecting { .. }
                    | Fact::Ineffective { .. }
                    | Fact::Joined(_)
                    | Fact::Leaving(_)
                    | Fact::Left(_)
                    | Fact::Completed
            )
        };
        let early = self.facts[..begun].iter().any(|(_, fact)| follows(fact));
        let late = self.facts[begun..]
            .iter()
            .any(|(_, fact)| matches!(fact, Fact::LifeStarted { life: Life(1), .. }));
        if early || late {
            found.push(Contradiction::StartOutOfOrder);
        }
        let (at, _) = self.facts[begun];
        let acts = |(_, fact): &&(Time, Fact)| {
            matches!(fact, Fact::Sent { .. } | Fact::Delivered(_) | Fact::Theft { .. })
        };
        for (&(process, life), stream) in &self.history.trace.streams {
            let first = stream.iter().find(acts).filter(|_| self.context.common_clock);
            if first.is_some_and(|(first, _)| *first < at) {
                found.push(Contradiction::ActedTooEarly(process, life));
            }
        }
    }

    /// Checks that a run counts as completed if and only if the supervisor's last fact says so, and that every rank
    /// of a completed run has reported its result.
    fn completion(&self, found: &mut Vec<Contradiction>) {
        let place = self.facts.iter().position(|(_, fact)| *fact == Fact::Completed);
        let (last, _) = self.facts[self.facts.len() - 1];
        match place {
            None if self.is_completed => found.push(Contradiction::CompletionMissing),
            // The user may interrupt a completed run while its expected results are computed.
            Some(_)
                if self.context.outcome == Some(Outcome::Interrupted) && self.context.expected.is_none() => {}
            Some(_) if !self.is_completed && self.context.outcome.is_some() => {
                found.push(Contradiction::CompletedDespiteManifest);
            }
            Some(place) if place + 1 < self.facts.len() => found.push(Contradiction::ReportedAfterEnd),
            _ => {}
        }
        if self.context.outcome.is_none() {
            return;
        }
        let is_exact = self.is_completed && self.context.common_clock && place.is_some();
        if last > self.context.end || is_exact && last < self.context.end {
            found.push(Contradiction::WrongEnd { end: self.context.end, last });
        }
        if !self.is_completed {
            return;
        }
        if !self.context.recorded.contains(FactKind::Finished) {
            return;
        }
        let gone = self.history.supervision.gone(&self.context.clusters);
        // Partitions move away from a cluster that leaves, so its processes may leave before the program ends.
        let has_moved = |it: &ProcessId| self.history.planned.is_some() && self.history.has_left(*it);
        let ranks = self.context.clusters.iter().flatten();
        for &rank in ranks.filter(|it| !gone.contains(it) && !has_moved(it)) {
            let newest = self.history.supervision.newest_life(rank).unwrap_or(Life(1));
            let stream = self.history.trace.streams.get(&(rank, newest));
            let is_finished = |stream: &Vec<(Time, Fact)>| {
                stream.iter().rev().any(|(_, fact)| matches!(fact, Fact::Finished(_)))
            };
            if !stream.is_some_and(is_finished) && !self.history.trace.has_gap(rank, newest) {
                found.push(Contradiction::NoResult(rank, newest));
            }
        }
    }

    /// Checks that each fault is in the plan and had only one outcome, namely the one that the manifest states, and
    /// that the corresponding facts exist.
    fn faults(&self, found: &mut Vec<Contradiction>) {
        let mut states: BTreeMap<FaultNo, FaultState> = BTreeMap::new();
        let mut ended: BTreeSet<(FaultNo, ProcessId)> = BTreeSet::new();
        let mut lives: BTreeSet<(FaultNo, ProcessId, Life)> = BTreeSet::new();
        for (_, fact) in self.facts {
            match fact {
                Fact::Injecting { no, fault } => {
                    match states.insert(*no, FaultState::Effective) {
                        None => {}
                        Some(FaultState::Effective) => found.push(Contradiction::InjectedAgain(*no)),
                        Some(_) => found.push(Contradiction::TwoOutcomes(*no)),
                    }
                    let planned = self.context.plan.iter().find(|it| it.no == *no);
                    if self.context.faults.is_some() && planned.is_none_or(|it| !it.allows(fault)) {
                        found.push(Contradiction::NotPlanned(*no));
                    }
                }
                Fact::Ineffective { no, reason } => {
                    if states.insert(*no, FaultState::Ineffective(reason.clone())).is_some() {
                        found.push(Contradiction::TwoOutcomes(*no));
                    }
                    let is_planned = self.context.plan.iter().any(|it| it.no == *no);
                    if self.context.faults.is_some() && !is_planned {
                        found.push(Contradiction::NotPlanned(*no));
                    }
                }
                Fact::Failed { process, life, by, .. } => {
                    let Some(no) = by.fault() else { continue };
                    ended.insert((no, *process));
                    if !lives.insert((no, *process, *life)) {
                        let (fault, process, life) = (no, *process, *life);
                        found.push(Contradiction::EndedAgain { fault, process, life });
                    }
                    if !self.is_target(no, *process) {
                        let (fault, process, life) = (no, *process, *life);
                        found.push(Contradiction::NotTarget { fault, process, life });
                    }
                    if states.get(&no) != Some(&FaultState::Effective) {
                        let (fault, process, life) = (no, *process, *life);
                        found.push(Contradiction::NotInjected { fault, process, life });
                    }
                }
                _ => {}
            }
        }
        for &(no, fault, _, _) in &self.history.supervision.injected {
            // For a process that had already failed, a permanent fault only prevents its next life. The run may end, or another
            // fault may end the life, before a command that was told to end has.
            let must_end = fault.kills().is_some() && !fault.is_permanent() && !fault.is_stop();
            if must_end && !ended.iter().any(|(by, _)| *by == no) {
                found.push(Contradiction::EndedNothing(no));
            }
        }
        let Some(account) = self.context.faults.as_ref().filter(|_| self.context.outcome.is_some()) else {
            return;
        };
        let begun = self.history.supervision.begun;
        for planned in &self.context.plan {
            let no = planned.no;
            let state = states.get(&no).unwrap_or(&FaultState::Pending);
            match account.iter().find(|(it, _)| *it == no) {
                Some((_, stated)) if stated == state => {}
                _ => found.push(Contradiction::OtherOutcome(no)),
            }
            let due = match (&planned.trigger, begun) {
                (Trigger::At(at), Some(begun)) => begun + at.since(Time::ZERO) + self.late,
                _ => continue,
            };
            if *state == FaultState::Pending && due < self.context.end && !self.is_paused {
                found.push(Contradiction::NeverDue(no));
            }
        }
        if account.len() != self.context.plan.len() {
            let (outcomes, planned) = (account.len(), self.context.plan.len());
            found.push(Contradiction::OutcomesMissing { outcomes, planned });
        }
    }

    /// Returns whether a life ended because of an injected fault that destroys storage. Such a fault also fails a process
    /// that is already down.
    fn destroys_storage(&self, by: EndedBy) -> bool {
        let lost = Some(StorageFate::Lost);
        let mut injected = self.history.supervision.injected.iter();
        injected.any(|&(no, fault, ..)| by.fault() == Some(no) && fault.storage_fate() == lost)
    }

    /// Returns whether an injected fault can end a life of a process. Returns `true` if the fault was not
    /// injected, because that is reported as a separate contradiction.
    fn is_target(&self, no: FaultNo, process: ProcessId) -> bool {
        let mut injected = self.history.supervision.injected.iter().filter(|(it, ..)| *it == no);
        injected.all(|(_, fault, ..)| {
            let target = fault.kills().or(fault.pauses().map(Target::Process));
            target.is_some_and(|it| it.processes(&self.context.clusters).contains(&process))
        })
    }

    /// Checks that each life started as the facts about its process demand: fresh if no earlier life
    /// reported anything, replaced if the storage was lost with the previous life, and restarted if the
    /// storage was never lost. After a replacement, each life is replaced until the process has recovered its
    /// replicas. The supervisor does not record that recovery, so a later life may be either replaced or
    /// restarted.
    fn boots(&self, found: &mut Vec<Contradiction>) {
        // `LifeEnd` does not suffice: a fault may destroy the storage after the end of the life was detected.
        let mut lost: BTreeMap<ProcessId, Loss> = BTreeMap::new();
        for (_, fact) in self.facts {
            match fact {
                Fact::LifeStarted { process, life, boot } => {
                    let is_right = match (boot, lost.get(process)) {
                        _ if *life == Life(1) => *boot == Boot::Fresh,
                        (Boot::Fresh, _) => {
                            let mut earlier =
                                self.history.trace.lives(*process).take_while(|(it, _)| it < life);
                            earlier.all(|(_, stream)| stream.is_empty())
                        }
                        (Boot::Replaced, loss) => loss.is_some(),
                        (Boot::Restarted, loss) => loss.is_none_or(|it| *it == Loss::Earlier),
                    };
                    if !is_right {
                        found.push(Contradiction::StartedOtherwise(*process, *life));
                    }
                    lost.entry(*process).and_modify(|it| *it = Loss::Earlier);
                }
                Fact::Failed { process, storage, .. }
                    if self.context.volatile_storage || *storage == StorageFate::Lost =>
                {
                    lost.insert(*process, Loss::Last);
                }
                Fact::Detected { process, .. } if self.context.volatile_storage => {
                    lost.insert(*process, Loss::Last);
                }
                _ => {}
            }
        }
    }

    /// Checks that the witness of a result names the position of the result in its stream.
    fn results(&self, found: &mut Vec<Contradiction>) {
        for (&(process, life), stream) in &self.history.trace.streams {
            let is_elsewhere = |(number, (_, fact)): (u64, &(Time, Fact))| match fact {
                Fact::Finished(finished) => (finished.0.life, finished.0.upto.0) != (life, number),
                _ => false,
            };
            if (0..).zip(stream).any(is_elsewhere) && !self.history.trace.has_gap(process, life) {
                found.push(Contradiction::ResultMisplaced(process, life));
            }
        }
    }

    /// Checks that no link was measured in virtual time and, on real processes, that every initial link was measured
    /// if the application began, and that the numbers measured on a link fit together.
    fn links(&self, found: &mut Vec<Contradiction>) {
        if !self.context.measures_links {
            if self.context.links.iter().any(|it| it.measured.is_some()) {
                found.push(Contradiction::LinksMeasured);
            }
            return;
        }
        if self.history.supervision.begun.is_none() {
            return;
        }
        for link in self.context.links.iter().filter(|it| !it.is_plausible()) {
            found.push(Contradiction::LinkMiscounted { from: link.from, to: link.to });
        }
        let mut pairs = BTreeSet::new();
        let first = self.context.links.iter().filter(|it| pairs.insert((it.from, it.to)));
        for link in first.filter(|it| it.measured.is_none()) {
            if self.context.measures_link(link.from, link.to) && self.context.outcome.is_some() {
                found.push(Contradiction::LinkNotMeasured { from: link.from, to: link.to });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, p};
    use faultline_core::fault::LinkProperties;
    use faultline_core::{ClusterId, Digest, Fault, PlannedFault};
    use faultline_trace::manifest::{Bounds, LinkEntry};

    const CRASH: Fault = Fault::crash(ProcessId(0));
    const FAULT: FaultNo = FaultNo(0);

    /// Returns a run that completed after its only planned crash.
    fn good() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.names.processes = vec!["paris-0".into(), "lyon-0".into(), "server".into()];
        let life = Life(1);
        run.supervisor(Fact::LifeStarted { process: p(2), life, boot: Boot::Fresh });
        run.supervisor(Fact::Begun);
        run.supervisor(Fact::Injecting { no: FaultNo(0), fault: Box::new(CRASH) });
        let by = EndedBy::Fault(FaultNo(0));
        run.state(0, Fact::Begun);
        run.supervisor(Fact::Failed { process: p(0), life, storage: StorageFate::Kept, by });
        run.supervisor(Fact::Detected { process: p(0), life });
        run.supervisor(Fact::LifeStarted { process: p(0), life: life.next(), boot: Boot::Restarted });
        run.next_life(0);
        (0..2).for_each(|rank| run.finish(rank, Digest([0; 16])));
        run.trace.streams.insert((p(2), life), Vec::new());
        run.supervisor(Fact::Completed);
        let trigger = Trigger::At(Time(0));
        run.context.plan =
            vec![PlannedFault { no: FaultNo(0), trigger, fault: CRASH, reported: None, cause: None }];
        run.context.faults = Some(vec![(FaultNo(0), FaultState::Effective)]);
        run.context.bounds = Some(Bounds {
            checkpoint_every: vec![],
            detect_after: Span::from_secs(1),
            collect_every: None,
            delivered_within: None,
        });
        run
    }

    /// Returns the contradictions of a run after this change.
    fn contradictions_after(change: impl FnOnce(&mut Run)) -> Vec<Contradiction> {
        let mut run = good();
        change(&mut run);
        contradictions(&run.history())
    }

    fn supervisor(run: &mut Run) -> &mut Vec<(Time, Fact)> {
        run.trace.streams.get_mut(&(ProcessId::SUPERVISOR, Life(0))).unwrap()
    }

    fn remove(run: &mut Run, is_it: impl Fn(&Fact) -> bool) {
        supervisor(run).retain(|(_, fact)| !is_it(fact));
    }

    /// Inserts a fact of the supervisor before its last one.
    fn insert_before_end(run: &mut Run, fact: Fact) {
        let facts = supervisor(run);
        let last = facts.len() - 1;
        facts.insert(last, (facts[last].0, fact));
    }

    #[test]
    fn a_whole_record_has_no_contradictions() {
        assert_eq!(contradictions_after(|_| {}), []);
    }

    #[test]
    fn a_missing_stream_or_start_of_a_life_is_found() {
        let found = contradictions_after(|run| drop(run.trace.streams.remove(&(p(2), Life(1)))));
        assert_eq!(found, [Contradiction::NoFacts(p(2), Life(1))]);
        let found = contradictions_after(|run| {
            remove(run, |fact| matches!(fact, Fact::LifeStarted { process: ProcessId(2), .. }))
        });
        assert_eq!(found, [Contradiction::StartMissing(p(2), Life(1))]);
        let found = contradictions_after(|run| remove(run, |_| true));
        assert_eq!(found, [Contradiction::NoSupervisor]);
    }

    #[test]
    fn an_undetected_end_is_found() {
        let found = contradictions_after(|run| remove(run, |fact| matches!(fact, Fact::Detected { .. })));
        let (process, life, next) = (p(0), Life(1), Life(2));
        assert_eq!(found, [Contradiction::StartedTooEarly { process, life, next }]);
        let fails = |run: &mut Run, wait| {
            let (life, storage, by) = (Life(1), StorageFate::Kept, EndedBy::Silence);
            remove(run, |fact| *fact == Fact::Completed);
            run.context.outcome = Some(Outcome::Deadline);
            run.supervisor(Fact::Failed { process: p(2), life, storage, by });
            run.context.end += wait;
        };
        assert_eq!(contradictions_after(|run| fails(run, Span::from_secs(1))), [], "the run ended before");
        let found = contradictions_after(|run| fails(run, Span::from_secs(60)));
        assert_eq!(found, [Contradiction::NeverDetected(p(2), Life(1))]);
    }

    #[test]
    fn repeated_facts_of_the_supervisor_are_found() {
        let again = |is_it: fn(&Fact) -> bool| {
            contradictions_after(|run| {
                let facts = supervisor(run);
                let at = facts.iter().position(|(_, fact)| is_it(fact)).unwrap();
                facts.insert(at, facts[at].clone());
            })
        };
        let (fault, process, life) = (FAULT, p(0), Life(1));
        let found = again(|fact| matches!(fact, Fact::Injecting { .. }));
        assert_eq!(found, [Contradiction::InjectedAgain(fault)]);
        let found = again(|fact| matches!(fact, Fact::Failed { by: EndedBy::Fault(_), .. }));
        let twice =
            [Contradiction::FailedAgain(process, life), Contradiction::EndedAgain { fault, process, life }];
        assert_eq!(found, twice);
        let found = again(|fact| matches!(fact, Fact::Detected { .. }));
        assert_eq!(found, [Contradiction::DetectedAgain(process, life)]);
    }

    #[test]
    fn the_end_of_a_life_that_is_not_the_newest_is_found() {
        let (process, storage, by) = (p(0), StorageFate::Kept, EndedBy::Silence);
        for life in [0, 1, 9].map(Life) {
            for end in [Fact::Failed { process, life, storage, by }, Fact::Detected { process, life }] {
                let found = contradictions_after(|run| insert_before_end(run, end));
                assert!(found.contains(&Contradiction::NotNewest(process, life)), "{life}: {found:?}");
            }
        }
    }

    #[test]
    fn a_second_failure_of_a_life_that_has_ended_is_found() {
        let (process, life) = (p(2), Life(1));
        let fails = |by: EndedBy, storage| {
            contradictions_after(|run| {
                let by_silence = EndedBy::Silence;
                let kept = StorageFate::Kept;
                insert_before_end(run, Fact::Failed { process, life, storage: kept, by: by_silence });
                insert_before_end(run, Fact::Detected { process, life });
                insert_before_end(run, Fact::Failed { process, life, storage, by });
            })
        };
        for (by, storage) in
            [(EndedBy::Silence, StorageFate::Kept), (EndedBy::StorageLost, StorageFate::Lost)]
        {
            assert_eq!(fails(by, storage), [Contradiction::FailedAgain(process, life)], "{by:?}");
        }
        let again = Contradiction::FailedAgain(process, life);
        let storage = StorageFate::Lost;
        let found = contradictions_after(|run| {
            let (no, by) = (FaultNo(1), EndedBy::Fault(FaultNo(1)));
            let fault = Fault::kill_permanently(process, storage);
            insert_before_end(
                run,
                Fact::Failed { process, life, storage: StorageFate::Kept, by: EndedBy::Silence },
            );
            insert_before_end(run, Fact::Injecting { no, fault: Box::new(fault) });
            insert_before_end(run, Fact::Failed { process, life, storage, by });
        });
        assert!(!found.contains(&again), "{found:?}");
    }

    #[test]
    fn two_outcomes_of_a_fault_are_found() {
        let unknown = FaultNo(77);
        for (no, expected) in
            [(FAULT, Contradiction::TwoOutcomes(FAULT)), (unknown, Contradiction::NotPlanned(unknown))]
        {
            let ineffective = Fact::Ineffective { no, reason: "late".into() };
            let found = contradictions_after(|run| insert_before_end(run, ineffective));
            assert!(found.contains(&expected), "{found:?}");
        }
    }

    #[test]
    fn facts_before_the_start_of_their_life_are_found() {
        let moved = |common_clock: bool| {
            contradictions_after(|run| {
                run.context.common_clock = common_clock;
                let is_it = |fact: &Fact| matches!(fact, Fact::LifeStarted { process: ProcessId(1), .. });
                supervisor(run).iter_mut().find(|(_, fact)| is_it(fact)).unwrap().0 = Time(u64::MAX);
            })
        };
        let early = Contradiction::ReportedTooEarly(p(1), Life(1));
        assert!(moved(true).contains(&early));
        assert!(!moved(false).contains(&early));
    }

    #[test]
    fn missing_and_misplaced_starts_and_completions_are_found() {
        let found = contradictions_after(|run| remove(run, |fact| *fact == Fact::Begun));
        assert_eq!(found, [Contradiction::NeverBegun]);
        let found = contradictions_after(|run| {
            run.supervisor(Fact::Begun);
        });
        assert_eq!(found, [Contradiction::BegunAgain { times: 2 }, Contradiction::ReportedAfterEnd]);
        let found = contradictions_after(|run| remove(run, |fact| *fact == Fact::Completed));
        assert_eq!(found, [Contradiction::CompletionMissing]);
        let found = contradictions_after(|run| run.context.outcome = Some(Outcome::Deadline));
        assert_eq!(found, [Contradiction::CompletedDespiteManifest]);
        let found = contradictions_after(|run| {
            run.trace.streams.get_mut(&(p(1), Life(1))).unwrap().clear();
        });
        assert_eq!(found, [Contradiction::NoResult(p(1), Life(1))]);
    }

    #[test]
    fn a_fact_removed_before_a_result_is_found() {
        let found = contradictions_after(|run| run.state(1, Fact::Begun));
        assert_eq!(found, [], "facts after a result are not covered by its witness");
        let found = contradictions_after(|run| {
            run.state(1, Fact::Begun);
            run.finish(1, Digest([0; 16]));
            run.trace.streams.get_mut(&(p(1), Life(1))).unwrap().remove(1);
        });
        assert_eq!(found, [Contradiction::ResultMisplaced(p(1), Life(1))]);
    }

    #[test]
    fn missing_facts_of_faults_are_found() {
        let (fault, process, life) = (FAULT, p(0), Life(1));
        let found = contradictions_after(|run| remove(run, |fact| matches!(fact, Fact::Injecting { .. })));
        assert!(found.contains(&Contradiction::NotInjected { fault, process, life }), "{found:?}");
        let found = contradictions_after(|run| remove(run, |fact| matches!(fact, Fact::Failed { .. })));
        assert_eq!(found, [Contradiction::EndedNothing(fault)]);
        let found = contradictions_after(|run| run.context.faults = Some(vec![(fault, FaultState::Pending)]));
        assert_eq!(found, [Contradiction::OtherOutcome(fault)]);
        let other = Fault::pause(p(0), Span(1));
        let found = contradictions_after(|run| run.context.plan[0].fault = other);
        assert_eq!(found, [Contradiction::NotPlanned(fault)]);
        let found = contradictions_after(|run| {
            let later = PlannedFault { no: FaultNo(1), ..run.context.plan[0].clone() };
            run.context.plan.push(later);
            run.context.faults.as_mut().unwrap().push((FaultNo(1), FaultState::Pending));
            run.context.end += Span::from_secs(60);
        });
        assert_eq!(found, [Contradiction::NeverDue(FaultNo(1))]);
    }

    #[test]
    fn missing_link_measurements_are_found() {
        let link = |from, to| LinkEntry {
            from: ClusterId(from),
            to: ClusterId(to),
            requested: LinkProperties::default(),
            measured: None,
            observed: None,
            since: None,
        };
        let links = vec![link(0, 0), link(0, 1)];
        assert_eq!(
            contradictions_after(|run| run.context.links = links.clone()),
            [],
            "virtual links have the requested properties"
        );
        let found = contradictions_after(|run| {
            (run.context.links, run.context.measures_links) = (links.clone(), true)
        });
        assert_eq!(
            found,
            [Contradiction::LinkNotMeasured { from: ClusterId(0), to: ClusterId(1) }],
            "a cluster of one process has no inner link"
        );
    }

    #[test]
    fn a_fault_that_ended_a_process_other_than_its_target_is_found() {
        let (fault, process, life) = (FAULT, p(1), Life(1));
        let found = contradictions_after(|run| {
            let (storage, by) = (StorageFate::Kept, EndedBy::Fault(fault));
            run.supervisor(Fact::Failed { process, life, storage, by });
            run.supervisor(Fact::Detected { process, life });
        });
        assert!(found.contains(&Contradiction::NotTarget { fault, process, life }), "{found:?}");
    }

    #[test]
    fn a_life_that_does_not_start_as_its_storage_demands_is_found() {
        let started = |kind: Boot, storage: StorageFate| {
            contradictions_after(|run| {
                for (_, fact) in supervisor(run) {
                    match fact {
                        Fact::LifeStarted { life: Life(2), boot, .. } => *boot = kind,
                        Fact::Failed { storage: it, .. } => *it = storage,
                        _ => {}
                    }
                }
            })
        };
        let wrong = Contradiction::StartedOtherwise(p(0), Life(2));
        assert_eq!(started(Boot::Restarted, StorageFate::Kept), []);
        assert!(started(Boot::Replaced, StorageFate::Kept).contains(&wrong));
        assert!(started(Boot::Fresh, StorageFate::Kept).contains(&wrong));
        assert!(started(Boot::Restarted, StorageFate::Lost).contains(&wrong));
        assert!(!started(Boot::Replaced, StorageFate::Lost).contains(&wrong));
    }
}
