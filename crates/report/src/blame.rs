//! Which fault of the plan ended a life.

use std::collections::BTreeSet;

use faultline_core::{Fault, FaultNo, ProcessId};

use crate::cast::Cast;

/// What was injected so far, and which lives that explains.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    injected: Vec<(FaultNo, Fault)>,
    spent: BTreeSet<(ProcessId, FaultNo)>,
}

impl Blame {
    /// A fault is injected.
    pub(crate) fn injected(&mut self, no: FaultNo, fault: &Fault) {
        self.injected.push((no, fault.clone()));
    }

    /// A life of `process` ends: by the last injected fault that can end a life of it, unless that has ended one before.
    /// What ends the next is not it any more.
    pub(crate) fn ended(&mut self, process: ProcessId, cast: &Cast) -> Option<FaultNo> {
        let hits = |fault: &Fault| match *fault {
            Fault::Crash { process: it, .. } | Fault::Pause { process: it, .. } => it == process,
            Fault::LoseCluster { cluster, .. } => cluster == cast.cluster_of(process),
            Fault::Link { .. } | Fault::Partition { .. } | Fault::Storage { .. } => false,
        };
        let (no, _) = self.injected.iter().rev().find(|(_, fault)| hits(fault))?;
        self.spent.insert((process, *no)).then_some(*no)
    }
}
