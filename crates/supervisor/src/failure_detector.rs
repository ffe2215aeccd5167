//! Detects processes that have been silent for too long. The caller decides on the consequences.

use std::collections::BTreeSet;

use faultline_core::{ProcessId, Span, Time};

/// Watches processes for silence. A heartbeat costs O(1): the queue is corrected when an entry falls due. With the limit
/// [`Span::MAX`], no process is ever silent for too long.
#[derive(Debug)]
pub(crate) struct FailureDetector {
    limit: Span,
    /// Time of each watched process's last heartbeat, indexed by process; `None` for other processes.
    heard: Vec<Option<Time>>,
    /// Contains at least one entry per watched process, due no later than the end of its time limit.
    queue: BTreeSet<(Time, ProcessId)>,
}

impl FailureDetector {
    pub(crate) fn new(limit: Span, processes: usize) -> FailureDetector {
        FailureDetector { limit, heard: vec![None; processes], queue: BTreeSet::new() }
    }

    /// Records a heartbeat of `process`, and starts to watch it if necessary.
    pub(crate) fn heartbeat(&mut self, process: ProcessId, now: Time) {
        if self.limit != Span::MAX && self.heard[process.index()].replace(now).is_none() {
            self.queue.insert((now + self.limit, process));
        }
    }

    /// Starts to watch `process`, unless it is already watched.
    pub(crate) fn watch(&mut self, process: ProcessId, now: Time) {
        if self.heard[process.index()].is_none() {
            self.heartbeat(process, now);
        }
    }

    /// Stops watching `process`.
    pub(crate) fn forget(&mut self, process: ProcessId) {
        self.heard[process.index()] = None;
    }

    /// Restarts the time limit of all watched processes.
    pub(crate) fn heartbeat_from_all(&mut self, now: Time) {
        self.heard.iter_mut().flatten().for_each(|heard| *heard = now);
    }

    /// Returns the time of the next check. It may be earlier than necessary.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.queue.first().map(|&(at, _)| at)
    }

    /// Returns a process that has been silent for too long, and stops watching it.
    pub(crate) fn pop(&mut self, now: Time) -> Option<ProcessId> {
        while let Some(&(at, process)) = self.queue.first().filter(|(at, _)| *at <= now) {
            self.queue.remove(&(at, process));
            if let Some(heard) = self.heard[process.index()] {
                if heard + self.limit <= now {
                    self.heard[process.index()] = None;
                    return Some(process);
                }
                self.queue.insert((heard + self.limit, process));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: ProcessId = ProcessId(0);

    #[test]
    fn silence_is_detected_exactly_at_the_limit() {
        let mut detector = FailureDetector::new(Span(10), 1);
        detector.heartbeat(P, Time(5));
        detector.heartbeat(P, Time(8));
        assert_eq!(detector.pop(Time(17)), None);
        assert_eq!(detector.pop(Time(18)), Some(P));
        assert_eq!(detector.pop(Time(100)), None, "silence is reported once");
    }

    #[test]
    fn without_a_limit_no_process_is_watched() {
        let mut detector = FailureDetector::new(Span::MAX, 1);
        detector.heartbeat(P, Time(5));
        detector.watch(P, Time(5));
        assert_eq!((detector.next_deadline(), detector.pop(Time::NEVER)), (None, None));
    }

    #[test]
    fn a_process_is_watched_from_its_first_heartbeat_until_it_is_forgotten() {
        let mut detector = FailureDetector::new(Span(10), 2);
        detector.heartbeat(P, Time(0));
        detector.forget(P);
        assert_eq!(detector.pop(Time(100)), None);
        detector.heartbeat(P, Time(100));
        detector.watch(P, Time(105));
        assert_eq!(detector.pop(Time(109)), None);
        assert_eq!(detector.pop(Time(110)), Some(P), "watching it again does not extend its limit");
    }
}
