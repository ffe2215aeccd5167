//! The nodes on which processes run: which of them are under repair, which are spare, and which processes wait for one.
//!
//! At first, every process has a node of its own. A process whose node is under repair starts on a spare node, and its
//! old node is a spare once it is repaired. Without a spare, the process waits for its own node or for the first spare,
//! whichever is available first.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::ProcessId;

/// The number of a node: that of the process that ran on it at first or, for a spare, a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeNo(u32);

/// Where a process can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// On its own node.
    Here,
    /// On a spare node, which has none of its data.
    Spare,
    /// Nowhere, until a node is repaired.
    Nowhere,
}

/// All nodes of a federation.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The node of each process, indexed by process.
    of: Vec<NodeNo>,
    /// Nodes under repair, with the number of repairs that have not ended.
    failed: BTreeMap<NodeNo, u32>,
    /// Nodes without a process that are not under repair.
    spare: BTreeSet<NodeNo>,
    /// Processes that wait for a node, in the order in which they began to wait.
    waiting: Vec<ProcessId>,
}

impl Nodes {
    pub(crate) fn new(processes: usize, spares: u32) -> Nodes {
        let own = 0..processes as u32;
        let spare = own.end..own.end + spares;
        Nodes {
            of: own.map(NodeNo).collect(),
            failed: BTreeMap::new(),
            spare: spare.map(NodeNo).collect(),
            waiting: Vec::new(),
        }
    }

    /// Begins a repair of the node of `process`, and returns that node.
    pub(crate) fn fail(&mut self, process: ProcessId) -> NodeNo {
        let node = self.of[process.index()];
        *self.failed.entry(node).or_default() += 1;
        node
    }

    /// Returns whether the node of `process` is under repair.
    pub(crate) fn is_failed(&self, process: ProcessId) -> bool {
        self.failed.contains_key(&self.of[process.index()])
    }

    /// Chooses where `process` starts: on its own node or, while that is under repair, on a spare.
    pub(crate) fn start(&mut self, process: ProcessId) -> Start {
        if !self.is_failed(process) {
            return Start::Here;
        }
        let Some(spare) = self.spare.pop_first() else {
            self.waiting.push(process);
            return Start::Nowhere;
        };
        self.of[process.index()] = spare;
        Start::Spare
    }

    /// Ends a repair. If this was the node's last one, the node is available to its process or, if it has none, a spare.
    /// Returns its process if that waits.
    pub(crate) fn repaired(&mut self, node: NodeNo) -> Option<ProcessId> {
        let repairs = self.failed.get_mut(&node).expect("only a failed node is repaired");
        *repairs -= 1;
        if *repairs > 0 {
            return None;
        }
        self.failed.remove(&node);
        let Some(owner) = self.of.iter().position(|it| *it == node) else {
            self.spare.insert(node);
            return None;
        };
        let place = self.waiting.iter().position(|it| it.index() == owner)?;
        Some(self.waiting.remove(place))
    }

    /// Returns the process that has waited for the longest time, if a spare is free.
    pub(crate) fn next(&mut self) -> Option<ProcessId> {
        (!self.spare.is_empty() && !self.waiting.is_empty()).then(|| self.waiting.remove(0))
    }

    /// Returns the number of free spares.
    pub(crate) fn free(&self) -> u32 {
        self.spare.len() as u32
    }

    /// Makes a process that has no further life wait no longer.
    pub(crate) fn leave(&mut self, process: ProcessId) {
        self.waiting.retain(|it| *it != process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ProcessId = ProcessId(0);
    const B: ProcessId = ProcessId(1);

    #[test]
    fn a_process_moves_to_a_spare_and_its_repaired_node_is_the_next_spare() {
        let mut nodes = Nodes::new(2, 1);
        assert_eq!(nodes.start(A), Start::Here);
        let own = nodes.fail(A);
        assert_eq!((nodes.start(A), nodes.is_failed(A)), (Start::Spare, false));
        let other = nodes.fail(B);
        assert_eq!(nodes.start(B), Start::Nowhere);
        assert_eq!(nodes.next(), None);
        assert_eq!((nodes.repaired(own), nodes.next()), (None, Some(B)));
        assert_eq!(nodes.start(B), Start::Spare);
        assert_eq!(nodes.repaired(other), None);
        nodes.fail(A);
        assert_eq!(nodes.start(A), Start::Spare);
    }

    #[test]
    fn a_process_without_a_spare_waits_for_the_last_repair_of_its_own_node() {
        let mut nodes = Nodes::new(2, 0);
        let (first, other, again) = (nodes.fail(A), nodes.fail(B), nodes.fail(A));
        assert_eq!([nodes.start(B), nodes.start(A)], [Start::Nowhere; 2]);
        assert_eq!(nodes.repaired(first), None);
        assert_eq!(nodes.repaired(again), Some(A));
        nodes.leave(B);
        assert_eq!(nodes.repaired(other), None);
    }
}
