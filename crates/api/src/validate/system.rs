//! Checks a system, and refuses everything that has no meaning for commands that do not know Faultline.

use std::collections::BTreeSet;

use faultline_core::fault::Impairment;
use faultline_core::{ProcessId, Span};

use super::Check;
use crate::quantity::Duration;
use crate::resource::{ActionRef, MAX_SYSTEM_NODES, System};
use crate::system::{Location, SystemNode};

const PATH: &str = "spec.application.system";
/// The lives in which templates are rendered.
pub(super) const LIVES: [u32; 3] = [1, 2, 3];

impl Check<'_> {
    /// Checks that the federation has a protocol, or is a system.
    pub(super) fn stated_protocol(&mut self) {
        match (self.spec.protocol.is_absent(), self.spec.application.system().is_some()) {
            (true, false) => self.problem(
                "spec",
                "the federation has no protocol",
                "add one, such as `protocol: { hc3i: {} }`; only a system runs without a protocol",
            ),
            (false, true) => self.problem(
                "spec.protocol",
                "a system has no protocol: its programs recover by themselves",
                "omit `protocol`",
            ),
            _ => {}
        }
    }

    pub(super) fn system(&mut self, system: &System) {
        for problem in system.problems() {
            self.custom(PATH, Some(problem));
        }
        if self.total > MAX_SYSTEM_NODES {
            let message = format!("the system has too many nodes ({})", self.total);
            self.problem("spec.clusters", message, format!("reduce the total to at most {MAX_SYSTEM_NODES}"));
            self.sized = false;
        }
        for (cluster, own) in &system.overrides {
            self.cluster(&format!("{PATH}.in.{cluster}"), cluster);
            for (index, other) in own.after.iter().enumerate() {
                self.cluster(&format!("{PATH}.in.{cluster}.after[{index}]"), other);
            }
        }
        self.order_of_start(system);
        for (name, probe) in &system.probes {
            if let Some(by) = &probe.by {
                self.node_or_cluster(&format!("{PATH}.probes.{name}.by"), by);
            }
        }
        self.clients(system);
        if let Some(set_up) = &system.setup {
            self.node(&format!("{PATH}.setup.by"), &set_up.by);
        }
        self.end_of_system(system);
        self.nothing_without_meaning();
        let concerns =
            |path: &str| ["spec.application", "spec.clusters"].iter().any(|it| path.starts_with(it));
        if self.sized && !self.problems.iter().any(|it| concerns(&it.path)) {
            self.templates(system);
        }
    }

    /// Refuses clusters that would wait for each other.
    fn order_of_start(&mut self, system: &System) {
        let after = |cluster: &str| system.overrides.get(cluster).map_or(&[][..], |it| &it.after);
        for cluster in system.overrides.keys() {
            let mut awaited: Vec<&str> = after(cluster).iter().map(String::as_str).collect();
            let mut next = 0;
            while let Some(&other) = awaited.get(next) {
                if other == cluster {
                    let message = format!("the commands of `{cluster}` would wait for themselves");
                    let help = "omit one of the clusters in `after`";
                    return self.problem(format!("{PATH}.in.{cluster}.after"), message, help);
                }
                let more: Vec<&str> = after(other).iter().map(String::as_str).collect();
                awaited.extend(more.into_iter().filter(|it| !awaited.contains(it)).collect::<Vec<_>>());
                next += 1;
            }
        }
    }

    /// Checks the name of a node. Returns whether it exists.
    pub(super) fn node(&mut self, path: &str, name: &str) {
        if self.sized && self.names().process_id(name).is_none() {
            let first = self.spec.clusters.first().map_or("paris", |it| &it.name);
            let help = format!("use the name of a cluster with the number of a node, such as `{first}-0`");
            self.problem(path, format!("there is no node `{name}`"), help);
        }
    }

    pub(super) fn node_or_cluster(&mut self, path: &str, name: &str) {
        if self.sized && !self.nodes.contains_key(name) && self.names().process_id(name).is_none() {
            let first = self.spec.clusters.first().map_or("paris", |it| &it.name);
            let help = format!("use the name of a cluster or of a node, such as `{first}` or `{first}-0`");
            self.problem(path, format!("there is no node or cluster `{name}`"), help);
        }
    }

    fn end_of_system(&mut self, system: &System) {
        let Some(ends) = &system.ends else { return };
        if let Some(cluster) = &ends.exit {
            self.cluster(&format!("{PATH}.ends.exit"), cluster);
        }
        let deadline = self.spec.deadline();
        match ends.after {
            Some(Duration(Span::ZERO)) => {
                self.problem(
                    format!("{PATH}.ends.after"),
                    "the run must not be empty",
                    "write a longer time",
                );
            }
            Some(after) if after.0 >= deadline => self.problem(
                format!("{PATH}.ends.after"),
                format!("the run would end after its deadline ({})", Duration(deadline)),
                "choose an earlier time, or extend `deadline`",
            ),
            _ => {}
        }
    }

    /// Refuses fields and faults that concern protocols, tasks or the storage of checkpoints.
    fn nothing_without_meaning(&mut self) {
        let spec = self.spec;
        let help = "omit it: a system has no protocol, no tasks and no storage of checkpoints";
        let fields = [
            ("storage", spec.storage.is_some()),
            ("stealing", spec.stealing.is_some()),
            ("schedule", spec.schedule.is_some()),
            ("simulator", spec.simulator.is_some()),
        ];
        for (name, _) in fields.into_iter().filter(|it| it.1) {
            self.problem(format!("spec.{name}"), format!("`{name}` has no effect on a system"), help);
        }
        for (index, cluster) in spec.clusters.iter().enumerate() {
            let fields = [
                ("joinsAfter", cluster.joins_after.is_some()),
                ("leavesAfter", cluster.leaves_after.is_some()),
                ("speed", cluster.speed.is_some()),
                ("cores", cluster.cores.is_some()),
            ];
            for (name, _) in fields.into_iter().filter(|it| it.1) {
                let path = format!("spec.clusters[{index}].{name}");
                self.problem(path, format!("`{name}` has no effect on a system"), "omit it");
            }
        }
        for (index, fault) in spec.faults.iter().enumerate() {
            for (name, action) in fault.actions() {
                let path = format!("spec.faults[{index}].{name}");
                match action {
                    ActionRef::Impair(it)
                        if !matches!(it.how, Impairment::Paused | Impairment::Slow { .. }) =>
                    {
                        self.problem(
                            path,
                            format!(
                                "`{name}` does not affect a system, whose programs use the machine as it is"
                            ),
                            "choose `crash`, `stop`, `pause`, `slow`, `loseCluster` or `loseRack`",
                        )
                    }
                    _ => {}
                }
            }
        }
    }

    /// Renders the templates of all nodes in several lives.
    fn templates(&mut self, system: &System) {
        let mut reported = BTreeSet::new();
        let mut restarted = BTreeSet::new();
        let mut first = 0;
        for cluster in &self.spec.clusters {
            let process = ProcessId(first);
            first += cluster.nodes;
            for (entry, words) in self.spec.later_commands(&cluster.name).collect::<Vec<_>>() {
                let rendered = self.system_node_in(system, process, 2).restarted(entry, words);
                if let Some(error) = rendered.err().filter(|it| restarted.insert(it.field.clone())) {
                    self.problem(format!("spec.{}", error.field), error.message, error.help);
                }
            }
        }
        let nodes = self.spec.clusters.iter().map(|it| it.nodes).sum();
        for (process, life) in (0..nodes).flat_map(|it| LIVES.map(|life| (ProcessId(it), life))) {
            for error in self.system_node_in(system, process, life).problems() {
                if reported.insert(error.field.clone()) {
                    self.problem(format!("{PATH}.{}", error.field), error.message, error.help);
                }
            }
        }
    }

    /// Returns a node in one of its lives, with addresses and directories that stand for the real ones.
    pub(super) fn system_node_in(&self, system: &System, process: ProcessId, life: u32) -> SystemNode {
        let names = self.names().clone();
        let hosts = (0..names.ranks()).map(|it| format!("127.0.0.{}", it + 1)).collect();
        let location = Location { hosts, bind: None, data: "/data".to_owned(), dir: "/dir".to_owned() };
        SystemNode::new((self.spec, system, &names), self.spec.seed(), process, life, location)
    }
}
