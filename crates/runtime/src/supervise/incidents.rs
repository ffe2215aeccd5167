//! Times until failures are detected, and until processes have recovered.

use std::collections::BTreeMap;

use faultline_core::{EndedBy, Fact, FaultNo, Life, ProcessId, Span, Time};

/// Derives, from the facts of a run, the time taken to detect each failure and the time taken to recover from
/// it. A failure begins with the injection of the fault that caused it, or, if no fault caused it, with the last
/// heartbeat of the failed life.
#[derive(Debug, Default)]
pub(super) struct Incidents {
    injected: BTreeMap<FaultNo, Time>,
    heard: BTreeMap<(ProcessId, Life), Time>,
    /// Processes that have failed and have not restored a state since, with the time of the first failure.
    failed: BTreeMap<ProcessId, Time>,
    /// Lives whose failure has not been announced.
    unannounced: BTreeMap<(ProcessId, Life), Time>,
    /// Time from each failure to its announcement.
    pub(super) detections: Vec<Span>,
    /// Time from each failure until the process had restored its state.
    pub(super) recoveries: Vec<Span>,
}

impl Incidents {
    /// Records a fact reported by the supervisor or by a process.
    pub(super) fn recorded(&mut self, at: Time, process: ProcessId, _: Life, fact: &Fact) {
        match *fact {
            Fact::Injecting { no, .. } => drop(self.injected.insert(no, at)),
            Fact::Failed { process, life, by, .. } if by != EndedBy::Moved => {
                let injected = by.fault().and_then(|no| self.injected.get(&no));
                let since = *injected.or(self.heard.get(&(process, life))).unwrap_or(&at);
                self.failed.entry(process).or_insert(since);
                self.unannounced.insert((process, life), since);
                self.heard.retain(|&(it, _), _| it != process);
            }
            Fact::Detected { process, life } => {
                if let Some(since) = self.unannounced.remove(&(process, life)) {
                    self.detections.push(at.since(since));
                }
            }
            Fact::Restored(_) => {
                if let Some(since) = self.failed.remove(&process) {
                    self.recoveries.push(at.since(since));
                }
            }
            _ => {}
        }
    }

    /// Records that a process joins with its cluster. It had not started before, so it has nothing to recover.
    pub(super) fn joined(&mut self, process: ProcessId) {
        self.failed.remove(&process);
    }

    /// Records a heartbeat of a life.
    pub(super) fn heard(&mut self, at: Time, process: ProcessId, life: Life) {
        self.heard.insert((process, life), at);
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::{EndedBy, Fault, StorageFate};

    use super::*;

    const P: ProcessId = ProcessId(3);

    fn millis(at: u64) -> Time {
        Time::ZERO + Span::from_millis(at)
    }

    fn failed(life: u32, by: EndedBy) -> Fact {
        Fact::Failed { process: P, life: Life(life), storage: StorageFate::Kept, by }
    }

    fn say(incidents: &mut Incidents, at: u64, fact: Fact) {
        incidents.recorded(millis(at), ProcessId::SUPERVISOR, Life(0), &fact);
    }

    fn restored() -> Fact {
        Fact::Restored(Box::default())
    }

    #[test]
    fn a_planned_failure_counts_from_its_fault() {
        let mut incidents = Incidents::default();
        let fault = Fault::crash(P);
        let no = FaultNo(0);
        incidents.recorded(millis(1), P, Life(1), &restored());
        incidents.heard(millis(90), P, Life(1));
        say(&mut incidents, 100, Fact::Injecting { no, fault: Box::new(fault) });
        say(&mut incidents, 100, failed(1, EndedBy::Fault(no)));
        say(&mut incidents, 130, Fact::Detected { process: P, life: Life(1) });
        incidents.recorded(millis(400), P, Life(2), &restored());
        assert_eq!(incidents.detections, [Span::from_millis(30)]);
        assert_eq!(incidents.recoveries, [Span::from_millis(300)]);
    }

    #[test]
    fn an_unplanned_failure_counts_from_the_last_heartbeat() {
        let mut incidents = Incidents::default();
        incidents.heard(millis(1000), P, Life(1));
        say(&mut incidents, 3000, failed(1, EndedBy::Silence));
        say(&mut incidents, 3001, Fact::Detected { process: P, life: Life(1) });
        // The next life also fails, before it has restored a state.
        say(&mut incidents, 3500, failed(2, EndedBy::PlaceLost));
        say(&mut incidents, 3600, Fact::Detected { process: P, life: Life(2) });
        incidents.recorded(millis(5000), P, Life(3), &restored());
        assert_eq!(incidents.detections, [Span::from_millis(2001), Span::from_millis(100)]);
        assert_eq!(incidents.recoveries, [Span::from_millis(4000)]);
    }
}
