//! Checks clusters that join or leave during the run.

use std::collections::BTreeMap;

use faultline_core::Span;

use super::Check;
use crate::quantity::Duration;
use crate::resource::{ApplicationSpec, ClusterSpec, Family, ProtocolSpec, Traffic};

impl Check<'_> {
    pub(super) fn presence(&mut self) {
        let spec = self.spec;
        let clusters = &spec.clusters;
        let Some(first) = clusters.iter().position(|it| !it.is_permanent()) else { return };
        let field = |index: usize| {
            let name = if clusters[index].joins_after.is_some() { "joinsAfter" } else { "leavesAfter" };
            format!("spec.clusters[{index}].{name}")
        };
        if clusters.iter().all(|it| !it.is_permanent()) {
            self.problem(
                field(first),
                "no cluster is present for the whole run",
                "remove `joinsAfter` and `leavesAfter` from one cluster: garbage collection needs a cluster that is always present",
            );
        }
        match spec.application.family() {
            Family::Messages => {}
            Family::Tasks => return self.presence_at_tasks(),
            // Refused with everything else that has no meaning for a system.
            Family::System => return,
        }
        if !matches!(self.spec.protocol, ProtocolSpec::Hc3i(_)) {
            self.problem(
                field(first),
                format!("`{}` does not support clusters that join or leave", self.spec.protocol.name()),
                "choose the protocol `hc3i`, or remove `joinsAfter` and `leavesAfter`",
            );
        }
        let duration = match &spec.application {
            ApplicationSpec::Synthetic(_) => spec.application.computing_time(),
            _ => None,
        };
        match duration {
            None => self.problem(
                field(first),
                format!("{} does not support clusters that join or leave", self.what_runs()),
                "choose the application `synthetic` with `random` or `exact` traffic",
            ),
            Some(duration) => self.terms(duration),
        }
    }

    /// Checks the clusters of a task-based program. They may join late if processes steal tasks, and may both join and
    /// leave under CCK.
    fn presence_at_tasks(&mut self) {
        let spec = self.spec;
        let moves = matches!(spec.protocol, ProtocolSpec::Cck(_));
        let lends = matches!(
            spec.protocol,
            ProtocolSpec::Tic(_) | ProtocolSpec::Sel(_) | ProtocolSpec::Satin(_) | ProtocolSpec::None(_)
        );
        for (index, cluster) in spec.clusters.iter().enumerate() {
            let path = format!("spec.clusters[{index}]");
            self.is_due_before_the_deadline(&path, cluster);
            if let Some(leaves) = cluster.leaves_after {
                self.leaves_tasks(&path, &cluster.name, leaves.0);
            }
            let Some(joins) = cluster.joins_after else { continue };
            self.leaves_after_it_joins(index);
            if !lends && !moves {
                self.problem(
                    format!("{path}.joinsAfter"),
                    format!("`{}` does not support clusters that join or leave", spec.protocol.name()),
                    "choose the protocol `cck`, `tic`, `sel`, `satin` or `none`, or omit `joinsAfter`",
                );
            } else if lends && spec.is_planned() {
                self.problem(
                    format!("{path}.joinsAfter"),
                    "a cluster that joins late gets no tasks, because tasks are assigned in advance",
                    "choose the protocol `cck`, let processes steal tasks (`stealing: {}` instead of `schedule`), or \
                     omit `joinsAfter`",
                );
            }
            if joins.0 == Span::ZERO {
                self.joins_at_the_start(&path, &cluster.name);
            }
        }
    }

    /// Checks a cluster that leaves while a task-based program runs.
    fn leaves_tasks(&mut self, path: &str, cluster: &str, leaves: Span) {
        let path = format!("{path}.leavesAfter");
        if !matches!(self.spec.protocol, ProtocolSpec::Cck(_)) {
            self.problem(
                path,
                format!("`{}` does not support clusters that leave", self.spec.protocol.name()),
                "choose the protocol `cck`, omit `leavesAfter`, or add a fault `loseCluster` with `returns: false`",
            );
        } else if leaves == Span::ZERO {
            self.problem(
                path,
                format!("cluster `{cluster}` would leave at the start"),
                "write a duration greater than 0, or remove the cluster",
            );
        }
    }

    /// Checks that a cluster joins and leaves a task-based program before the deadline of the run. A run does not
    /// complete before all clusters have joined.
    fn is_due_before_the_deadline(&mut self, path: &str, cluster: &ClusterSpec) {
        let deadline = self.spec.deadline();
        let changes = [("join", cluster.joins_after), ("leave", cluster.leaves_after)];
        for (change, at) in changes {
            if let Some(at) = at.filter(|it| it.0 >= deadline) {
                self.problem(
                    format!("{path}.{change}sAfter"),
                    format!(
                        "cluster `{}` would {change} after {at}, but the deadline of the run is {}",
                        cluster.name,
                        Duration(deadline)
                    ),
                    Check::too_late(at.0),
                );
            }
        }
    }

    /// Checks that a cluster does not leave before it joins.
    fn leaves_after_it_joins(&mut self, index: usize) {
        let cluster = &self.spec.clusters[index];
        let joins = cluster.joins_after.map_or(Span::ZERO, |it| it.0);
        if let Some(leaves) = cluster.leaves_after.filter(|it| it.0 <= joins) {
            self.problem(
                format!("spec.clusters[{index}].leavesAfter"),
                format!(
                    "cluster `{}` must leave after it joins (found `leavesAfter: {leaves}`, `joinsAfter: {}`)",
                    cluster.name,
                    Duration(joins)
                ),
                "choose a later `leavesAfter`; both times are measured from the start of the application",
            );
        }
    }

    fn joins_at_the_start(&mut self, path: &str, cluster: &str) {
        self.problem(
            format!("{path}.joinsAfter"),
            format!("cluster `{cluster}` would join at the start"),
            "omit `joinsAfter`: by default, a cluster is present from the start",
        );
    }

    fn what_runs(&self) -> String {
        match self.spec.application {
            ApplicationSpec::Synthetic(_) => "`burst` traffic".into(),
            _ => format!("the application `{}`", self.spec.application.name()),
        }
    }

    /// Checks that each cluster takes part in a program that computes for `duration`.
    fn terms(&mut self, duration: Span) {
        let spec = self.spec;
        for (index, cluster) in spec.clusters.iter().enumerate() {
            let path = format!("spec.clusters[{index}]");
            let joins = cluster.joins_after.map(|it| it.0);
            let leaves = cluster.leaves_after.map(|it| it.0);
            if joins == Some(Span::ZERO) {
                self.joins_at_the_start(&path, &cluster.name);
            }
            self.leaves_after_it_joins(index);
            for (field, at) in [("joinsAfter", joins), ("leavesAfter", leaves)] {
                if let Some(at) = at.filter(|&it| it >= duration) {
                    self.problem(
                        format!("{path}.{field}"),
                        format!(
                            "the application computes for {}, and would end before `{field}: {}`",
                            Duration(duration),
                            Duration(at)
                        ),
                        format!("choose an earlier time or a longer `duration`, or omit `{field}`"),
                    );
                }
            }
        }
        self.exact_pairs_overlap(duration);
    }

    /// Checks that clusters with an exact number of messages between them are present at the same time.
    fn exact_pairs_overlap(&mut self, duration: Span) {
        let ApplicationSpec::Synthetic(synthetic) = &self.spec.application else { return };
        let Traffic::Exact(exact) = &synthetic.traffic else { return };
        let term = |cluster: &ClusterSpec| {
            let joins = cluster.joins_after.map_or(Span::ZERO, |it| it.0);
            (joins, cluster.leaves_after.map_or(duration, |it| it.0))
        };
        let terms: BTreeMap<&str, _> =
            self.spec.clusters.iter().map(|it| (it.name.as_str(), term(it))).collect();
        let mut apart = Vec::new();
        for (index, count) in exact.messages.iter().enumerate().filter(|(_, it)| it.count > 0) {
            if let (Some(from), Some(to)) = (terms.get(&*count.from), terms.get(&*count.to))
                && from.0.max(to.0) + Span(1) >= from.1.min(to.1)
            {
                apart.push((index, count.from.clone(), count.to.clone()));
            }
        }
        for (index, from, to) in apart {
            self.problem(
                format!("spec.application.synthetic.traffic.exact.messages[{index}]"),
                format!("`{from}` and `{to}` are never present at the same time"),
                "remove the entry, or let one cluster leave after the other has joined",
            );
        }
    }

    /// Checks that enough clusters are present throughout the run to hold the replicas.
    pub(super) fn enough_holders_stay(&mut self, path: String, replicas: u32) {
        let spec = self.spec;
        let clusters = &spec.clusters;
        let permanent = clusters.iter().filter(|it| it.is_permanent()).count();
        let others = |owner: &ClusterSpec| permanent - usize::from(owner.is_permanent());
        let short = clusters.iter().find(|it| others(it) < replicas as usize);
        if permanent < clusters.len()
            && let Some(owner) = short
        {
            let (name, others) = (owner.name.clone(), others(owner));
            let clusters = if replicas == 1 { "cluster that is" } else { "clusters that are" };
            self.problem(
                path,
                format!(
                    "for the checkpoints of `{name}`, `replicas: {replicas}` needs {replicas} other {clusters} present \
                     for the whole run (found {others})"
                ),
                "reduce `replicas`, change `replicateTo`, or remove `joinsAfter` and `leavesAfter` from more clusters",
            );
        }
    }
}
