//! The state of the links: their measurements, and the faults that change or cut them.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, FaultNo, Membership, Presence, ProcessId, Span, Time};
use faultline_trace::manifest::{LinkEntry, LinkMeasured};

use super::RunOptions;
use super::measuring::Measuring;
use super::nodes::Nodes;
use crate::control::{ObservedEcho, ToNode};

/// The links of a run.
pub(super) struct LinkState {
    pub(super) measuring: Measuring,
    /// Whether all links have been measured, so that the application may begin.
    pub(super) begun: bool,
    /// Whether to measure links once all orders have taken effect.
    measures_again: bool,
    /// Time for which the measurement of a link is repeated while its latency is outside the tolerance.
    measure_again_for: Span,
    changed: BTreeMap<(ClusterId, ClusterId), LinkProperties>,
    cut: Vec<(ClusterId, ClusterId)>,
    /// The partitions within clusters: the cluster, and the nodes on one side.
    splits: BTreeMap<FaultNo, (ClusterId, Vec<ProcessId>)>,
}

impl LinkState {
    pub(super) fn new(options: &RunOptions) -> LinkState {
        LinkState {
            measuring: Measuring::new(&options.membership, &options.links),
            begun: false,
            measures_again: false,
            measure_again_for: options.measure_again_for,
            changed: BTreeMap::new(),
            cut: Vec::new(),
            splits: BTreeMap::new(),
        }
    }

    /// Records that a fault changes a link, or that no fault does any more.
    pub(super) fn change(&mut self, from: ClusterId, to: ClusterId, properties: Option<LinkProperties>) {
        match properties {
            Some(properties) => drop(self.changed.insert((from, to), properties)),
            None => drop(self.changed.remove(&(from, to))),
        }
    }

    /// Records whether a partition cuts a link.
    pub(super) fn cut(&mut self, from: ClusterId, to: ClusterId, cut: bool) {
        self.cut.retain(|pair| *pair != (from, to));
        if cut {
            self.cut.push((from, to));
        }
    }

    /// Records whether a partition cuts some nodes of a cluster off from its others.
    pub(super) fn split(&mut self, of: FaultNo, cluster: ClusterId, nodes: &[ProcessId], cut: bool) {
        match cut {
            true => drop(self.splits.insert(of, (cluster, nodes.to_vec()))),
            false => drop(self.splits.remove(&of)),
        }
    }

    /// Returns the partitions within clusters, with the nodes on one side.
    pub(super) fn splits(&self) -> Vec<(FaultNo, Vec<ProcessId>)> {
        self.splits.iter().map(|(of, (_, nodes))| (*of, nodes.clone())).collect()
    }

    /// Returns a predicate for links that a fault has changed or cut.
    fn is_disturbed(&self) -> impl Fn(ClusterId, ClusterId) -> bool + use<> {
        let changed = self.changed.keys().copied();
        let split = self.splits.values().map(|it| (it.0, it.0));
        let all: BTreeSet<_> = changed.chain(self.cut.iter().copied()).chain(split).collect();
        move |from, to| all.contains(&(from, to))
    }

    /// Returns the links that faults change, with their properties, and those that partitions cut.
    #[expect(clippy::type_complexity, reason = "both lists are parts of a message")]
    pub(super) fn faults(
        &self,
    ) -> (Vec<(ClusterId, ClusterId, LinkProperties)>, Vec<(ClusterId, ClusterId)>) {
        let changed = self.changed.iter().map(|(&(from, to), &properties)| (from, to, properties));
        (changed.collect(), self.cut.clone())
    }

    /// Counts a measurement by `by`, unless something may have delayed its echoes since `began`. Returns whether the
    /// measurement counts.
    pub(super) fn counts(
        &mut self,
        (by, to): (ProcessId, ProcessId),
        requested: Span,
        began: Time,
        link: LinkMeasured,
    ) -> bool {
        let is_disturbed = self.is_disturbed();
        let counts = self.measuring.counts((by, to), requested, began, is_disturbed);
        if counts {
            self.measuring.measured((by, to), requested, link);
        } else {
            self.measure_later();
        }
        counts
    }

    /// Counts echoes that a process observed while the application runs. Returns the sums for the link to record.
    pub(super) fn observed(
        &mut self,
        ends: (ProcessId, ProcessId),
        requested: Span,
        echoes: &[ObservedEcho],
    ) -> Option<LinkEntry> {
        let is_disturbed = self.is_disturbed();
        self.measuring.observed(ends, requested, echoes, is_disturbed)
    }

    /// Measures the links once all nodes listen. If a node was restarted in the meantime, requests the missing
    /// measurements again. Returns whether all nodes listen.
    pub(super) fn measure(&self, nodes: &Nodes, membership: &Membership) -> bool {
        let Some(directory) = nodes.directory_of_all(membership).filter(|_| !self.begun) else {
            return false;
        };
        nodes.send_to_all(&ToNode::Directory(directory));
        self.measure_undone(nodes);
        true
    }

    /// Requests missing measurements, except for links that a fault currently affects.
    fn measure_undone(&self, nodes: &Nodes) {
        for (by, links) in self.measuring.undone(self.is_disturbed()) {
            nodes.send_to_process(by, ToNode::Measure(links, self.measure_again_for));
        }
    }

    /// Requests missing measurements once all orders have taken effect.
    pub(super) fn measure_later(&mut self) {
        self.measures_again = !self.measuring.is_done();
    }

    /// Requests the measurements that waited until all orders took effect.
    pub(super) fn orders_in_effect(&mut self, nodes: &Nodes) {
        if std::mem::take(&mut self.measures_again) {
            self.measure_undone(nodes);
        }
    }

    /// Lets the application begin if all links have been measured. Returns whether it begins now.
    pub(super) fn begin(&mut self, nodes: &Nodes) -> bool {
        if self.begun || !self.measuring.is_done() {
            return false;
        }
        self.begun = true;
        self.observe_all(nodes);
        true
    }

    /// Records that a process runs, and so answers echoes, unless its cluster has not joined yet.
    pub(super) fn process_runs(&mut self, process: ProcessId, membership: &Membership, now: Time) {
        let presence = membership.presence(membership.cluster_of(process));
        if !self.begun || presence != Presence::Awaited {
            self.measuring.process_runs(process, now);
        }
    }

    /// Discards echoes to and from clusters that join with the membership `after`, if the echoes were sent before these
    /// clusters joined. If a process of an awaited cluster starts while the application runs, it answers no call before
    /// it knows its peers, so the echoes wait until the cluster joins. Then lets processes observe the links of those
    /// that have failed permanently.
    pub(super) fn members_change(
        &mut self,
        before: &Membership,
        after: &Membership,
        nodes: &Nodes,
        now: Time,
    ) {
        for (process, member) in (0..).map(ProcessId).zip(before.members.iter()) {
            let presence = |it: &Membership| it.presence(member.cluster);
            if presence(before) == Presence::Awaited && presence(after) != Presence::Awaited {
                self.measuring.process_runs(process, now);
            }
        }
        for process in self.measuring.replace_gone(after, now) {
            self.observe(process, nodes);
        }
    }

    /// Orders a process to observe its links while the application runs.
    pub(super) fn observe(&self, process: ProcessId, nodes: &Nodes) {
        let links = self.measuring.observed_by(process);
        if !links.is_empty() {
            nodes.send_to_process(process, ToNode::Observe(links));
        }
    }

    /// Orders every process that observes links to do so.
    pub(super) fn observe_all(&self, nodes: &Nodes) {
        self.measuring.observers().into_iter().for_each(|process| self.observe(process, nodes));
    }
}
