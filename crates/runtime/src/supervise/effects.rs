//! When each fault took effect, as the places of the processes and the processes themselves saw it.

use std::collections::BTreeMap;

use faultline_core::{EndedBy, Fact, Fault, FaultNo, Life, ProcessId, Time};
use faultline_trace::manifest::{Effect, EffectEntry};

use super::places::Seen;

/// What is known of the faults that were injected.
#[derive(Debug, Default)]
pub(super) struct Effects {
    entries: BTreeMap<FaultNo, EffectEntry>,
    /// The fault whose orders come now, and whether it ends lives. A pause does not: a process that is declared failed because
    /// of one took its effect before.
    injecting: Option<(FaultNo, bool)>,
    /// Lives that a fault ends or pauses, until that was seen.
    targets: BTreeMap<(ProcessId, Life), FaultNo>,
}

impl Effects {
    /// The supervisor states a fact; the orders of a fault follow the facts about it. `due` is when a fault was to be injected.
    pub(super) fn stated(&mut self, fact: &Fact, due: impl FnOnce(FaultNo) -> Option<Time>) {
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

    /// The fault whose orders come now.
    pub(super) fn injecting(&self) -> Option<FaultNo> {
        self.injecting.map(|it| it.0)
    }

    /// A life is being paused.
    pub(super) fn pausing(&mut self, process: ProcessId, life: Life) {
        if let Some((no, false)) = self.injecting {
            self.targets.insert((process, life), no);
        }
    }

    /// Lives were seen to stop, by one order. What is now known of the fault that stopped them, if one did.
    pub(super) fn stopped(&mut self, seen: &[Seen]) -> Option<&EffectEntry> {
        let mut fault = None;
        for &Seen { process, life, at, error } in seen {
            let Some(no) = self.targets.remove(&(process, life)) else { continue };
            self.took_effect(no, Effect { process, life, at, error });
            fault = Some(no);
        }
        self.entries.get(&fault?)
    }

    /// What is known of a fault.
    pub(super) fn of(&self, no: FaultNo) -> Option<&EffectEntry> {
        self.entries.get(&no)
    }

    /// A process has applied what a fault changes.
    pub(super) fn took_effect(&mut self, no: FaultNo, effect: Effect) {
        let Some(entry) = self.entries.get_mut(&no) else { return };
        // Told again by the journal, or by a process in another life.
        entry.on.retain(|it| (it.process, it.life) != (effect.process, effect.life));
        entry.on.push(effect);
    }

    /// Those that took effect somewhere, in the order of the plan.
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
    fn deaths_belong_to_the_fault_that_ended_these_lives() {
        let mut effects = Effects::default();
        let due = |_| Some(DUE);
        for fact in [injected(0), failed(0, 1, EndedBy::Fault(FaultNo(0)))] {
            effects.stated(&fact, due);
        }
        for fact in
            [injected(1), failed(1, 1, EndedBy::Fault(FaultNo(1))), failed(2, 3, EndedBy::Fault(FaultNo(1)))]
        {
            effects.stated(&fact, due);
        }
        // Neither a fault's, nor of the life that the fault ended.
        effects.stated(&failed(3, 1, EndedBy::Silence), due);
        assert_eq!(effects.stopped(&[seen(3, 1, 5), seen(2, 2, 5)]), None);

        let entry = effects.stopped(&[seen(1, 1, 200), seen(2, 3, 900)]).unwrap();
        assert_eq!((entry.no, entry.on.len()), (FaultNo(1), 2));
        assert_eq!(entry.skew(), Some(Span::from_micros(720)), "with the errors of both clocks");
        assert_eq!(entry.latency(), Some(Span::from_micros(900)));
        let single = effects.stopped(&[seen(0, 1, 100)]).unwrap();
        assert_eq!((single.skew(), single.latency()), (None, Some(Span::from_micros(100))));
        assert_eq!(effects.into_entries().len(), 2);
    }

    #[test]
    fn a_pause_takes_effect_when_it_begins_and_not_when_it_was_too_long() {
        let mut effects = Effects::default();
        let no = FaultNo(0);
        let fault = Fault::Pause { process: ProcessId(0), span: Span::from_secs(3) };
        effects.stated(&Fact::Injecting { no, fault: Box::new(fault) }, |_| Some(DUE));
        effects.pausing(ProcessId(0), Life(1));
        assert!(effects.stopped(&[seen(0, 1, 300)]).is_some());
        effects.stated(&failed(0, 1, EndedBy::Fault(no)), |_| None);
        assert_eq!(effects.stopped(&[seen(0, 1, 2_000_000)]), None);
        assert_eq!(effects.into_entries()[0].latency(), Some(Span::from_micros(300)));
    }

    #[test]
    fn a_death_that_nobody_saw_leaves_both_figures_open() {
        let mut effects = Effects::default();
        effects.stated(&injected(0), |_| Some(DUE));
        for process in 0..2 {
            effects.stated(&failed(process, 1, EndedBy::Fault(FaultNo(0))), |_| None);
        }
        let entry = effects.stopped(&[seen(0, 1, 1), Seen { at: None, ..seen(1, 1, 0) }]).unwrap();
        assert_eq!((entry.skew(), entry.latency()), (None, None));
    }
}
