//! Times at which faults took effect, as reported by the places of the processes and by the processes
//! themselves.

use std::collections::BTreeMap;

use faultline_core::{EndedBy, Fact, Fault, FaultNo, Life, ProcessId, Time};
use faultline_trace::manifest::{Effect, EffectEntry};

use super::places::Seen;

/// Effects of the faults that were injected.
#[derive(Debug, Default)]
pub(super) struct Effects {
    entries: BTreeMap<FaultNo, EffectEntry>,
    /// The fault whose orders follow, and whether it ends lives. A pause does not: if a process is declared
    /// failed because of a pause, the pause has already taken effect.
    injecting: Option<(FaultNo, bool)>,
    /// Lives that a fault ends or pauses, until the effect is reported.
    targets: BTreeMap<(ProcessId, Life), FaultNo>,
}

impl Effects {
    /// Records a fact reported by the supervisor. The orders of a fault follow the facts about it. `due`
    /// returns the time at which a fault was due.
    pub(super) fn recorded(&mut self, fact: &Fact, due: impl FnOnce(FaultNo) -> Option<Time>) {
        match *fact {
            Fact::Injecting { no, ref fault } => {
                let kills = matches!(**fault, Fault::Crash { .. } | Fault::LoseCluster { .. });
                self.injecting = Some((no, kills));
                let due = due(no).unwrap_or_default();
                self.entries.insert(no, EffectEntry { no, due, on: Vec::new() });
            }
            Fact::Failed { process, life, by: EndedBy::Fault(no), .. }
                if self.injecting == Some((no, true)) =>
            {
                self.targets.insert((process, life), no);
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
        if let Some((no, false)) = self.injecting {
            self.targets.insert((process, life), no);
        }
    }

    /// Records lives that a single order stopped. Returns the effects of the fault that stopped them, if
    /// there is one.
    pub(super) fn stopped(&mut self, seen: &[Seen]) -> Option<&EffectEntry> {
        let mut fault = None;
        for &Seen { process, life, at, error } in seen {
            let Some(no) = self.targets.remove(&(process, life)) else { continue };
            self.took_effect(no, Effect { process, life, at, error });
            fault = Some(no);
        }
        self.entries.get(&fault?)
    }

    /// Returns the effects of a fault so far.
    pub(super) fn of(&self, no: FaultNo) -> Option<&EffectEntry> {
        self.entries.get(&no)
    }

    /// Records the effect of a fault on a process.
    pub(super) fn took_effect(&mut self, no: FaultNo, effect: Effect) {
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
    use faultline_core::{Span, StorageFate};

    const DUE: Time = Time(1_000_000);

    fn seen(process: u32, life: u32, micros: u64) -> Seen {
        let at = Some(DUE + Span::from_micros(micros));
        Seen { process: ProcessId(process), life: Life(life), at, error: Span::from_micros(10) }
    }

    fn injected(no: u32) -> Fact {
        let fault = Fault::Crash { process: ProcessId(0), storage: StorageFate::Kept, returns: true };
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
        let fault = Fault::Pause { process: ProcessId(0), span: Span::from_secs(3) };
        effects.recorded(&Fact::Injecting { no, fault: Box::new(fault) }, |_| Some(DUE));
        effects.pausing(ProcessId(0), Life(1));
        assert!(effects.stopped(&[seen(0, 1, 300)]).is_some());
        effects.recorded(&failed(0, 1, EndedBy::Fault(no)), |_| None);
        assert_eq!(effects.stopped(&[seen(0, 1, 2_000_000)]), None);
        assert_eq!(effects.into_entries()[0].latency(), Some(Span::from_micros(300)));
    }

    #[test]
    fn an_unobserved_end_leaves_skew_and_latency_unknown() {
        let mut effects = Effects::default();
        effects.recorded(&injected(0), |_| Some(DUE));
        for process in 0..2 {
            effects.recorded(&failed(process, 1, EndedBy::Fault(FaultNo(0))), |_| None);
        }
        let entry = effects.stopped(&[seen(0, 1, 1), Seen { at: None, ..seen(1, 1, 0) }]).unwrap();
        assert_eq!((entry.skew(), entry.latency()), (None, None));
    }
}
