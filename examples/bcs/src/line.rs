//! The recovery line: what the processes report to each other after a failure, and the index that results.
//!
//! All processes know the number of failures so far, which is the *epoch* of a recovery. In each epoch, every process
//! reports which index its state permits, and prepares its checkpoint for the smallest reported index. It restores that
//! checkpoint once all processes have prepared the same index. No process continues earlier: if another one fails in
//! the meantime, a new epoch begins, and the processes that had prepared a checkpoint roll back at least as far.

use std::collections::BTreeMap;

use faultline::core::{ProcessId, Sn};

/// The reports received in one epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// The greatest index that each process permits: [`ANY`] if it can continue from its current state; otherwise that
    /// of the newest checkpoint to which it may roll back.
    reports: BTreeMap<ProcessId, Sn>,
    /// The index that each process has prepared.
    prepared: BTreeMap<ProcessId, Sn>,
}

/// The report of a process that can continue from its current state.
pub(crate) const ANY: Sn = Sn(u32::MAX);

impl Line {
    /// Enters a report. A later report from the same process permits a smaller index, because a checkpoint turned out
    /// to be damaged.
    pub(crate) fn report(&mut self, process: ProcessId, permits: Sn) {
        let entry = self.reports.entry(process).or_insert(ANY);
        *entry = permits.min(*entry);
    }

    pub(crate) fn has_report_of(&self, process: ProcessId) -> bool {
        self.reports.contains_key(&process)
    }

    /// Returns the process that permits the smallest index.
    pub(crate) fn lowest(&self) -> Option<ProcessId> {
        self.reports.iter().min_by_key(|(_, permits)| **permits).map(|(process, _)| *process)
    }

    pub(crate) fn prepared(&mut self, process: ProcessId, index: Sn) {
        self.prepared.insert(process, index);
    }

    /// Returns the index of the line, once all `count` processes have reported.
    pub(crate) fn index(&self, count: usize) -> Option<Sn> {
        (self.reports.len() == count).then(|| self.reports.values().copied().min()).flatten()
    }

    /// Returns whether all `count` processes have prepared the line with this index.
    pub(crate) fn is_prepared(&self, index: Sn, count: usize) -> bool {
        self.prepared.values().filter(|it| **it == index).count() == count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_the_smallest_index_and_may_still_decrease() {
        let mut line = Line::default();
        let (a, b) = (ProcessId(0), ProcessId(1));
        line.report(a, ANY);
        assert_eq!(line.index(2), None);
        line.report(b, Sn(7));
        assert_eq!(line.index(2), Some(Sn(7)));
        line.prepared(a, Sn(7));
        line.report(b, Sn(4));
        line.prepared(b, Sn(4));
        assert_eq!(line.index(2), Some(Sn(4)));
        assert!(!line.is_prepared(Sn(4), 2));
        line.prepared(a, Sn(4));
        assert!(line.is_prepared(Sn(4), 2));
    }
}
