//! Times at which faults took effect, as reported by the places of the processes and by the processes
//! themselves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use faultline_core::{ClusterId, EndedBy, Fact, FaultNo, Life, ProcessId, Time};
use faultline_trace::manifest::{Effect, EffectEntry};

use super::places::Seen;

/// What a fault changes until it is reverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Affected {
    /// The properties of a link.
    Link(ClusterId, ClusterId),
    /// A link that the fault cuts.
    Cut(ClusterId, ClusterId),
    /// The node of a process.
    Node(ProcessId),
}

/// Effects of the faults that were injected.
#[derive(Debug, Default)]
pub(super) struct Effects {
    entries: BTreeMap<FaultNo, EffectEntry>,
    /// The fault whose orders follow, and whether it ends lives. A pause does not: if a process is declared
    /// failed because of a pause, the pause has already taken effect.
    injecting: Option<(FaultNo, bool)>,
    /// Faults that ask commands to end. They end lives later than they are injected.
    stops: BTreeSet<FaultNo>,
    /// Lives that a fault ends, until their ends are reported.
    targets: BTreeMap<(ProcessId, Life), FaultNo>,
    /// For each order to pause a life that has not been answered, the fault that pauses the life, if any.
    pauses: BTreeMap<(ProcessId, Life), VecDeque<Option<FaultNo>>>,
    /// The faults that currently change links or nodes. Several faults may cut one link.
    in_force: BTreeSet<(Affected, FaultNo)>,
    /// Faults with effects that the observer does not know yet.
    unobserved: BTreeSet<FaultNo>,
}

impl Effects {
    /// Records a fact reported by the supervisor. The orders of a fault follow the facts about it. `due`
    /// returns the time at which a fault was due.
    pub(super) fn recorded(&mut self, fact: &Fact, due: impl FnOnce(FaultNo) -> Option<Time>) {
        match *fact {
            Fact::Injecting { no, ref fault } => {
                self.injecting = Some((no, fault.kills().is_some()));
                if fault.is_stop() {
                    self.stops.insert(no);
                }
                let due = due(no).unwrap_or_default();
                self.entries.insert(no, EffectEntry { no, due, on: Vec::new(), idle: Vec::new() });
            }
            Fact::Failed { process, life, by: EndedBy::Fault(no), .. }
                if self.injecting == Some((no, true)) =>
            {
                self.targets.insert((process, life), no);
            }
            Fact::Failed { process, life, by: EndedBy::Fault(no), .. } if self.stops.contains(&no) => {
                self.targets.insert((process, life), no);
                self.injecting = None;
            }
            _ => self.injecting = None,
        }
    }

    /// Returns the fault whose orders follow.
    pub(super) fn injecting(&self) -> Option<FaultNo> {
        self.injecting.map(|it| it.0)
    }

    /// Records the order to pause a life.
    pub(super) fn pausing(&mut self, process: ProcessId, life: Life) {
        let fault = self.injecting.filter(|(_, kills)| !kills).map(|it| it.0);
        self.pauses.entry((process, life)).or_default().push_back(fault);
    }

    /// Records the answer to the oldest order to pause a life. Returns the effects of the fault that paused the life,
    /// if there is one.
    pub(super) fn paused(&mut self, seen: Seen) -> Option<&EffectEntry> {
        let Seen { process, life, at, exited, error, is_idle } = seen;
        let no = self.pauses.get_mut(&(process, life))?.pop_front()??;
        self.was_idle(no, process, is_idle);
        self.took_effect(no, Effect { process, life, at, exited, slowed: None, error });
        self.entries.get(&no)
    }

    /// Records lives that a single order ended. Returns the effects of the fault that ended them, if there is one.
    pub(super) fn stopped(&mut self, seen: &[Seen]) -> Option<&EffectEntry> {
        let mut fault = None;
        for &Seen { process, life, at, exited, error, is_idle } in seen {
            let Some(no) = self.targets.remove(&(process, life)) else { continue };
            self.was_idle(no, process, is_idle);
            self.took_effect(no, Effect { process, life, at, exited, slowed: None, error });
            fault = Some(no);
        }
        self.entries.get(&fault?)
    }

    /// Records an order that changes the properties of a link, or impairs a node. `by` are the faults that require the
    /// changes; none if the order restores the target.
    pub(super) fn changing(&mut self, target: Affected, by: impl IntoIterator<Item = FaultNo>) {
        self.in_force.retain(|it| it.0 != target);
        self.in_force.extend(by.into_iter().map(|no| (target, no)));
    }

    /// Records an order that cuts or heals a link.
    pub(super) fn cutting(&mut self, from: ClusterId, to: ClusterId, cut: bool) {
        let target = Affected::Cut(from, to);
        if !cut {
            self.in_force.retain(|it| it.0 != target);
        } else if let Some(no) = self.injecting() {
            self.in_force.insert((target, no));
        }
    }

    /// Records an order that cuts some nodes of a cluster off from its others, or ends this.
    pub(super) fn splitting(&mut self, of: FaultNo, cluster: ClusterId, cut: bool) {
        let target = (Affected::Cut(cluster, cluster), of);
        if cut {
            self.in_force.insert(target)
        } else {
            self.in_force.remove(&target)
        };
    }

    /// Returns the faults that affect a process of `cluster` from its start, because they are in force. A node that
    /// starts obtains all changes in its setup. The nodes that send packets over a link apply the changes to it.
    pub(super) fn at_start(&self, process: ProcessId, cluster: ClusterId) -> BTreeSet<FaultNo> {
        let is_concerned = |target| match target {
            Affected::Link(from, _) | Affected::Cut(from, _) => from == cluster,
            Affected::Node(of) => of == process,
        };
        self.in_force.iter().filter(|it| is_concerned(it.0)).map(|it| it.1).collect()
    }

    /// Returns whether any process is known to have applied a fault.
    pub(super) fn is_applied(&self, no: FaultNo) -> bool {
        self.entries.get(&no).is_some_and(|it| it.on.iter().any(|it| it.at.is_some()))
    }

    /// Records that a process has applied a fault.
    pub(super) fn applied(&mut self, no: FaultNo, effect: Effect) {
        self.took_effect(no, effect);
        self.unobserved.insert(no);
    }

    /// Returns the faults with effects that the observer does not know yet, and for which `is_complete` returns `true`.
    pub(super) fn unobserved(&self, is_complete: impl Fn(FaultNo) -> bool) -> Vec<FaultNo> {
        self.unobserved.iter().copied().filter(|no| is_complete(*no)).collect()
    }

    /// Returns the effects of a fault, which the observer is told now.
    pub(super) fn observed(&mut self, no: FaultNo) -> Option<&EffectEntry> {
        self.unobserved.remove(&no);
        self.entries.get(&no)
    }

    fn was_idle(&mut self, no: FaultNo, process: ProcessId, is_idle: bool) {
        let Some(entry) = self.entries.get_mut(&no) else { return };
        entry.idle.retain(|it| *it != process);
        entry.idle.extend(is_idle.then_some(process));
    }

    fn took_effect(&mut self, no: FaultNo, effect: Effect) {
        let Some(entry) = self.entries.get_mut(&no) else { return };
        // Replaying the journal repeats earlier reports.
        entry.on.retain(|it| (it.process, it.life) != (effect.process, effect.life));
        entry.on.push(effect);
    }

    /// Returns the effects of all faults that affected at least one process, in the order of the plan.
    pub(super) fn into_entries(self) -> Vec<EffectEntry> {
        let mut entries: Vec<_> = self.entries.into_values().filter(|it| !it.on.is_empty()).collect();
        entries.iter_mut().for_each(|it| it.on.sort_by_key(|it| (it.process, it.life)));
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Fault, Span, StorageFate};

    const DUE: Time = Time(1_000_000);

    fn seen(process: u32, life: u32, micros: u64) -> Seen {
        let at = Some(DUE + Span::from_micros(micros));
        let exited = at.map(|it| it + Span::from_micros(50));
        let (process, life, error) = (ProcessId(process), Life(life), Span::from_micros(10));
        Seen { process, life, at, exited, error, is_idle: false }
    }

    fn injected(no: u32) -> Fact {
        let fault = Fault::crash(ProcessId(0));
        Fact::Injecting { no: FaultNo(no), fault: Box::new(fault) }
    }

    fn failed(process: u32, life: u32, by: EndedBy) -> Fact {
        let (process, life, storage) = (ProcessId(process), Life(life), StorageFate::Kept);
        Fact::Failed { process, life, storage, by }
    }

    #[test]
    fn ends_of_lives_belong_to_the_fault_that_ended_them() {
        let mut effects = Effects::default();
        let due = |_| Some(DUE);
        for fact in [injected(0), failed(0, 1, EndedBy::Fault(FaultNo(0)))] {
            effects.recorded(&fact, due);
        }
        for fact in
            [injected(1), failed(1, 1, EndedBy::Fault(FaultNo(1))), failed(2, 3, EndedBy::Fault(FaultNo(1)))]
        {
            effects.recorded(&fact, due);
        }
        // P3's failure was not caused by a fault, and life 2 of P2 is not the life that the fault ended.
        effects.recorded(&failed(3, 1, EndedBy::Silence), due);
        assert_eq!(effects.stopped(&[seen(3, 1, 5), seen(2, 2, 5)]), None);

        let entry = effects.stopped(&[seen(1, 1, 200), seen(2, 3, 900)]).unwrap();
        assert_eq!((entry.no, entry.on.len()), (FaultNo(1), 2));
        assert_eq!(entry.skew(), Some(Span::from_micros(720)), "including the errors of both clocks");
        assert_eq!(entry.latency(), Some(Span::from_micros(900)));
        assert_eq!(entry.exit(), Some(Span::from_micros(50)));
        let single = effects.stopped(&[seen(0, 1, 100)]).unwrap();
        assert_eq!((single.skew(), single.latency()), (None, Some(Span::from_micros(100))));
        assert_eq!(effects.into_entries().len(), 2);
    }

    #[test]
    fn the_skew_is_an_upper_bound_for_clocks_of_different_quality() {
        let mut effects = Effects::default();
        let errors = [(0, 100, 1), (1, 101, 10), (2, 105, 1)];
        effects.recorded(&injected(0), |_| Some(DUE));
        for (process, ..) in errors {
            effects.recorded(&failed(process, 1, EndedBy::Fault(FaultNo(0))), |_| None);
        }
        let stopped = errors
            .map(|(process, at, error)| Seen { error: Span::from_micros(error), ..seen(process, 1, at) });
        // The second effect may have been 9 us before the first, and the third may have been at 106 us.
        assert_eq!(effects.stopped(&stopped).unwrap().skew(), Some(Span::from_micros(15)));
    }

    #[test]
    fn a_pause_takes_effect_when_it_begins() {
        let mut effects = Effects::default();
        let no = FaultNo(0);
        let fault = Fault::pause(ProcessId(0), Span::from_secs(3));
        effects.recorded(&Fact::Injecting { no, fault: Box::new(fault) }, |_| Some(DUE));
        effects.pausing(ProcessId(0), Life(1));
        assert!(effects.paused(seen(0, 1, 300)).is_some());
        effects.recorded(&failed(0, 1, EndedBy::Fault(no)), |_| None);
        assert_eq!(effects.stopped(&[seen(0, 1, 2_000_000)]), None);
        assert_eq!(effects.into_entries()[0].latency(), Some(Span::from_micros(300)));
    }

    #[test]
    fn a_process_starts_with_the_faults_that_are_in_force() {
        let mut effects = Effects::default();
        let (here, there) = (ClusterId(0), ClusterId(1));
        for no in 0..2 {
            effects.recorded(&injected(no), |_| Some(DUE));
            effects.cutting(here, there, true);
        }
        effects.changing(Affected::Link(here, there), Some(FaultNo(2)));
        effects.changing(Affected::Link(here, there), Some(FaultNo(3)));
        effects.changing(Affected::Node(ProcessId(1)), [FaultNo(4)]);
        let at_start = |effects: &Effects, process, cluster| {
            effects.at_start(ProcessId(process), cluster).into_iter().map(|it| it.0).collect::<Vec<_>>()
        };
        assert_eq!(at_start(&effects, 0, here), [0, 1, 3], "a change of a link replaces an earlier one");
        assert_eq!(at_start(&effects, 1, there), [4]);
        effects.cutting(here, there, false);
        effects.changing(Affected::Node(ProcessId(1)), None);
        assert_eq!(at_start(&effects, 0, here), [3]);
        assert!(at_start(&effects, 1, there).is_empty());
    }

    #[test]
    fn each_order_to_pause_a_life_has_its_own_answer() {
        let mut effects = Effects::default();
        let (process, life) = (ProcessId(0), Life(1));
        let fault = Box::new(Fault::pause(process, Span::from_secs(3)));
        for no in [0, 1].map(FaultNo) {
            effects.recorded(&Fact::Injecting { no, fault: fault.clone() }, |_| Some(DUE));
            effects.pausing(process, life);
        }
        effects.recorded(&Fact::Begun, |_| None);
        effects.pausing(process, life);
        effects.recorded(&injected(2), |_| Some(DUE));
        effects.recorded(&failed(0, 1, EndedBy::Fault(FaultNo(2))), |_| None);
        let faults = [100, 200, 300].map(|micros| effects.paused(seen(0, 1, micros)).map(|it| it.no.0));
        assert_eq!(faults, [Some(0), Some(1), None], "the user paused it last");
        let crash = effects.stopped(&[seen(0, 1, 400)]).unwrap();
        assert_eq!((crash.no, crash.latency()), (FaultNo(2), Some(Span::from_micros(400))));
    }

    #[test]
    fn an_unobserved_end_leaves_skew_and_latency_unknown() {
        let mut effects = Effects::default();
        effects.recorded(&injected(0), |_| Some(DUE));
        for process in 0..2 {
            effects.recorded(&failed(process, 1, EndedBy::Fault(FaultNo(0))), |_| None);
        }
        let entry =
            effects.stopped(&[seen(0, 1, 1), Seen { at: None, exited: None, ..seen(1, 1, 0) }]).unwrap();
        assert_eq!((entry.skew(), entry.latency(), entry.exit()), (None, None, None));
    }
}
