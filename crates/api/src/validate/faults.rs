//! Whether faults can happen: triggers that can be met, and targets that exist.

use faultline_core::{FactKind, Span};

use super::Check;
use crate::names::Names;
use crate::quantity::Duration;
use crate::resource::{ANY, ActionRef, Fault, MAX_FAULTS, Mtbf, Protocol, TriggerRef, When};

/// Most faults that one `mtbf` entry may be expected to draw.
const MAX_DRAWN: u64 = 10_000;

/// What is stated without any protocol.
const UNPROTECTED_FACTS: [FactKind; 4] =
    [FactKind::Sent, FactKind::Transmitted, FactKind::Delivered, FactKind::Finished];

impl Check<'_> {
    pub(super) fn faults(&mut self) {
        self.at_most_entries("spec.faults", self.spec.faults.len(), MAX_FAULTS);
        for (index, fault) in self.spec.faults.iter().enumerate() {
            self.fault(&format!("spec.faults[{index}]"), fault);
        }
    }

    fn fault(&mut self, path: &str, fault: &Fault) {
        match fault.triggers()[..] {
            [] => self.problem(
                path,
                "the fault has no trigger",
                "say when: `at: 4s`, `when: { fact: … }` or `mtbf: { exponential: 30s }`",
            ),
            [(name, trigger)] => self.trigger(&format!("{path}.{name}"), trigger),
            [(first, _), (second, _), ..] => self.problem(
                format!("{path}.{second}"),
                format!("the fault has two triggers, `{first}` and `{second}`"),
                "write two faults, each with one trigger",
            ),
        }
        match fault.actions()[..] {
            [] => self.problem(
                path,
                "the fault does nothing",
                "say what: `crash`, `pause`, `loseCluster`, `link`, `partition`, `slowStorage`, `fullStorage` or \
                 `corruptStorage`",
            ),
            [(name, action)] => self.action(&format!("{path}.{name}"), action),
            [(first, _), (second, _), ..] => self.problem(
                format!("{path}.{second}"),
                format!("the fault has two actions, `{first}` and `{second}`"),
                "write two faults with the same trigger",
            ),
        }
    }

    fn trigger(&mut self, path: &str, trigger: TriggerRef<'_>) {
        match trigger {
            TriggerRef::At(at) if at.0 >= self.spec.deadline() => self.problem(
                path,
                format!("the run has ended by then: its deadline is {}", Duration(self.spec.deadline())),
                "inject the fault earlier, or move `deadline`",
            ),
            TriggerRef::At(_) => {}
            TriggerRef::When(when) => self.when(path, when),
            TriggerRef::Mtbf(mtbf) => self.mtbf(path, mtbf),
        }
    }

    fn when(&mut self, path: &str, when: &When) {
        if !FactKind::OF_PROCESSES.contains(&when.fact) {
            self.problem(
                format!("{path}.fact"),
                "this is stated by the supervisor, and no process can be halted at it",
                "use a fact that a process states, such as `checkpointRequested` or `delivered`",
            );
        } else if matches!(self.spec.protocol, Protocol::None(_)) && !UNPROTECTED_FACTS.contains(&when.fact) {
            self.problem(
                format!("{path}.fact"),
                "nothing states this when the protocol is `none`",
                "use `sent`, `transmitted`, `delivered` or `finished`",
            );
        }
        self.target(path, "cluster", &when.cluster, when.node);
        if when.occurrence == Some(0) {
            self.problem(format!("{path}.occurrence"), "occurrences are counted from 1", "write at least 1");
        }
    }

    fn mtbf(&mut self, path: &str, mtbf: &Mtbf) {
        let (path, scale) = match mtbf {
            Mtbf::Exponential(mean) => (format!("{path}.exponential"), mean.0),
            Mtbf::Weibull(weibull) => {
                if !(0.1..=10.0).contains(&weibull.shape) {
                    self.problem(
                        format!("{path}.weibull.shape"),
                        format!("a shape of {} is out of range", weibull.shape),
                        "write a number between 0.1 and 10; 1 is the exponential distribution",
                    );
                }
                (format!("{path}.weibull.scale"), weibull.scale.0)
            }
        };
        if scale == Span::ZERO {
            self.problem(path, "failures would never cease", "write a duration above zero");
        } else if self.spec.deadline().0 / scale.0 > MAX_DRAWN {
            self.problem(
                path,
                format!("more than {MAX_DRAWN} faults would be drawn before the deadline"),
                "let failures be rarer, or move `deadline`",
            );
        }
    }

    fn action(&mut self, path: &str, action: ActionRef<'_>) {
        match action {
            ActionRef::Crash(it) => self.process(path, &it.process, &it.cluster, it.node),
            ActionRef::Pause(it) => {
                self.process(path, &it.process, &it.cluster, it.node);
                self.lasts(path, Some(it.span));
            }
            ActionRef::LoseCluster(it) => self.target(path, "cluster", &it.cluster, None),
            ActionRef::Link(it) => {
                self.target(path, "from", &it.from, None);
                self.target(path, "to", &it.to, None);
                if it.from == ANY || it.to == ANY {
                    self.two_clusters(path);
                }
                if it.link() == Default::default() {
                    self.problem(
                        path,
                        "the link does not change",
                        "state a latency, jitter, bandwidth, loss or preset",
                    );
                }
                let properties = it.link().over(self.spec.links().properties(&it.from, &it.to));
                self.jitter(path, &it.link(), properties);
                self.lasts(path, it.span);
            }
            ActionRef::Partition(it) => {
                self.target(path, "from", &it.from, None);
                self.target(path, "to", &it.to, None);
                if it.from == ANY || it.to == ANY {
                    self.two_clusters(path);
                } else if it.from == it.to {
                    self.problem(
                        format!("{path}.to"),
                        format!("`{}` cannot be parted from itself", it.to),
                        "name two clusters; to trouble the network inside one, use `link`",
                    );
                }
                self.lasts(path, Some(it.span));
            }
            ActionRef::SlowStorage(it) => {
                self.process(path, &it.process, &it.cluster, it.node);
                self.lasts(path, it.span);
                if it.by.0 == Span::ZERO {
                    self.problem(format!("{path}.by"), "0 is not slower", "write a duration above zero");
                }
            }
            ActionRef::FullStorage(it) | ActionRef::CorruptStorage(it) => {
                self.process(path, &it.process, &it.cluster, it.node);
                self.lasts(path, it.span);
            }
        }
    }

    /// A process by its name, or by cluster and node.
    fn process(&mut self, path: &str, name: &Option<String>, cluster: &str, node: Option<u32>) {
        let Some(name) = name else { return self.target(path, "cluster", cluster, node) };
        if cluster != ANY || node.is_some() {
            self.problem(
                format!("{path}.process"),
                "the process is named twice, by its name and by its place",
                "write `process`, or `cluster` and `node`",
            );
        } else if self.sized {
            let names = Names::of(self.spec);
            let help = match names.extra() {
                [] => "a process is called by its cluster and number, `paris-1`; none stands outside".into(),
                extra => {
                    format!("a process is called by its cluster and number; others: {}", extra.join(", "))
                }
            };
            if names.process_id(name).is_none() {
                self.problem(format!("{path}.process"), format!("there is no process `{name}`"), help);
            }
        }
    }

    /// A cluster or `any`, and a node that is there whichever cluster is meant.
    fn target(&mut self, path: &str, field: &str, cluster: &str, node: Option<u32>) {
        let nodes = if cluster == ANY {
            self.nodes.values().min().copied().unwrap_or(0)
        } else if self.cluster(&format!("{path}.{field}"), cluster) {
            self.nodes[cluster]
        } else {
            return;
        };
        let Some(node) = node.filter(|it| *it >= nodes && nodes > 0) else { return };
        let whose =
            if cluster == ANY { "the smallest cluster".into() } else { format!("cluster `{cluster}`") };
        let help = match nodes {
            1 => "its only node is 0; leave `node` out to have one drawn".into(),
            _ => format!("its nodes are 0 to {}; leave `node` out to have one drawn", nodes - 1),
        };
        self.problem(format!("{path}.node"), format!("{whose} has no node {node}"), help);
    }

    fn two_clusters(&mut self, path: &str) {
        if self.nodes.len() < 2 {
            self.problem(
                path,
                "there are no two clusters to choose from",
                "add a cluster, or name both ends",
            );
        }
    }

    fn lasts(&mut self, path: &str, span: Option<Duration>) {
        if span.is_some_and(|it| it.0 == Span::ZERO) {
            self.problem(
                format!("{path}.for"),
                "a fault that takes no time is none",
                "write a duration above zero",
            );
        }
    }
}
