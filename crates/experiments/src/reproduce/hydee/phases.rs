//! Counts the phases between a checkpoint and a failure: the depth of a recovery, which handles one phase after
//! another.
//!
//! Computed from the facts of an execution without failures, by the paper's rule (Algorithm 1): everything that follows
//! a message from another cluster is in a later phase than the message.

use std::collections::HashMap;

use faultline_core::{ClusterId, Fact, MessageId, ProcessId, Span, Time};
use faultline_session::{SimulationObserver, SimulationView};
use faultline_trace::{Manifest, Record};

/// Counts phases during a run.
pub(super) struct Phases {
    /// The times of the checkpoint and of the failure, from the start of the application.
    span: (Span, Span),
    begun: Option<Time>,
    cluster_of: Vec<ClusterId>,
    /// The current phase of each process.
    phases: Vec<u32>,
    /// The phase of each message that has not been consumed yet.
    sent: HashMap<MessageId, u32>,
    /// The phase of each process at the checkpoint.
    saved: Option<Vec<u32>>,
    is_over: bool,
}

impl Phases {
    pub(super) fn new(checkpoint: Span, failure: Span) -> Phases {
        Phases {
            span: (checkpoint, failure),
            begun: None,
            cluster_of: Vec::new(),
            phases: Vec::new(),
            sent: HashMap::new(),
            saved: None,
            is_over: false,
        }
    }

    /// Returns the number of phases between the earliest phase of this cluster's processes at the checkpoint and the
    /// latest phase that any process had reached by the time of the failure.
    pub(super) fn depth(&self, cluster: ClusterId) -> u32 {
        let saved = self.saved.iter().flatten().zip(&self.cluster_of);
        let first = saved.filter(|it| *it.1 == cluster).map(|it| *it.0).min();
        let last = self.phases.iter().copied().max();
        last.unwrap_or_default() - first.unwrap_or_default()
    }

    fn note(&mut self, process: ProcessId, fact: &Fact) {
        match fact {
            Fact::Sent { id, .. } => drop(self.sent.insert(*id, self.phases[process.index()])),
            // From now on, the actions of the process may depend on the message.
            Fact::Consumed(id) => {
                let Some(of_message) = self.sent.remove(id) else { return };
                let is_between = self.cluster_of[id.from.index()] != self.cluster_of[process.index()];
                let phase = &mut self.phases[process.index()];
                *phase = (*phase).max(of_message + u32::from(is_between));
            }
            _ => {}
        }
    }
}

impl SimulationObserver for Phases {
    fn begins(&mut self, manifest: &Manifest) {
        self.cluster_of = manifest.ranks().map(|(_, it)| it.cluster).collect();
        self.phases = vec![1; self.cluster_of.len()];
    }

    fn recorded(&mut self, record: &Record) {
        if record.fact == Fact::Begun {
            self.begun = Some(record.at);
        }
        if let Some(since) = self.begun.map(|it| record.at.since(it)) {
            if since >= self.span.0 && self.saved.is_none() {
                self.saved = Some(self.phases.clone());
            }
            self.is_over |= since >= self.span.1;
        }
        if !self.is_over && record.process.index() < self.phases.len() {
            self.note(record.process, &record.fact);
        }
    }

    fn continues(&mut self, _: SimulationView<'_>) -> bool {
        !self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::Incarnation;

    #[test]
    fn only_messages_between_clusters_start_phases() {
        let mut phases = Phases::new(Span(0), Span(9));
        phases.cluster_of = [0, 0, 1].map(ClusterId).to_vec();
        phases.phases = vec![1; 3];
        phases.saved = Some(vec![1; 3]);
        for (number, (from, to)) in (0..).zip([(0, 1), (1, 2), (2, 0), (0, 1)]) {
            let (from, to) = (ProcessId(from), ProcessId(to));
            let id = MessageId { from, to, incarnation: Incarnation(0), number };
            phases.note(from, &Fact::Sent { id, bytes: 1 });
            phases.note(to, &Fact::Consumed(id));
        }
        assert_eq!((phases.phases.clone(), phases.depth(ClusterId(0))), (vec![3, 3, 2], 2));
    }
}
