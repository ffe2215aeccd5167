//! Checks that faults can be triggered and that their targets exist.

use std::collections::BTreeSet;

use faultline_core::fault::{FlipTarget, Impairment, StorageFault};
use faultline_core::{FactKind, Fault, Span};

use super::{Check, listed};
use crate::failure_trace::hits;
use crate::plan::times_of;
use crate::quantity::Duration;
use crate::resource::{
    ANY, ActionRef, Family, FaultSpec, Launch, LoseRack, MAX_CUT_OFF, MAX_EXCEPT, MAX_FAULTS, Mtbf,
    NOT_TRIGGERING, Partition, ProtocolSpec, System, TraceTrigger, TriggerRef, Uniform, When,
};

/// Maximum number of faults that all `mtbf` and `trace` entries together cause with the seed of the federation.
const MAX_DRAWN: usize = 10_000;

/// Facts reported without a protocol by processes that exchange messages.
const UNPROTECTED_FACTS: [FactKind; 6] = [
    FactKind::Sent,
    FactKind::Transmitted,
    FactKind::Delivered,
    FactKind::Held,
    FactKind::Computed,
    FactKind::Finished,
];

/// Facts that processes of a task-based program report without a protocol.
const UNPROTECTED_FACTS_OF_TASKS: [FactKind; 10] = [
    FactKind::Ran,
    FactKind::Lent,
    FactKind::Shipped,
    FactKind::Taken,
    FactKind::Done,
    FactKind::Returned,
    FactKind::Merged,
    FactKind::Receipted,
    FactKind::Forgotten,
    FactKind::Finished,
];

/// Facts that processes report under a protocol for task-based programs, in addition to
/// [`UNPROTECTED_FACTS_OF_TASKS`].
const PROTECTED_FACTS_OF_TASKS: [FactKind; 10] = [
    FactKind::Voided,
    FactKind::Absorbed,
    FactKind::Saved,
    FactKind::Durable,
    FactKind::Removed,
    FactKind::Restored,
    FactKind::CheckpointCommitted,
    FactKind::RolledBack,
    FactKind::Protected,
    FactKind::Unrecoverable,
];

/// Facts that processes report only under protocols with checkpoints.
const FACTS_OF_CHECKPOINTS: [FactKind; 5] = [
    FactKind::Saved,
    FactKind::Durable,
    FactKind::Removed,
    FactKind::CheckpointCommitted,
    FactKind::Protected,
];

/// Facts that processes report only if tasks are assigned in advance.
const ONLY_OF_PLANS: [FactKind; 6] = [
    FactKind::Ceded,
    FactKind::Planned,
    FactKind::Rerun,
    FactKind::CheckpointMessage,
    FactKind::RecoveryJoined,
    FactKind::Drained,
];

/// Facts that processes report without a protocol if tasks are assigned in advance.
const UNPROTECTED_FACTS_OF_PLANS: [FactKind; 6] = [
    FactKind::Sent,
    FactKind::Transmitted,
    FactKind::Delivered,
    FactKind::Planned,
    FactKind::Ran,
    FactKind::Finished,
];

/// Facts that processes report under a protocol if tasks are assigned in advance, in addition to
/// [`UNPROTECTED_FACTS_OF_PLANS`].
const PROTECTED_FACTS_OF_PLANS: [FactKind; 18] = [
    FactKind::Ceded,
    FactKind::Released,
    FactKind::Rerun,
    FactKind::CheckpointMessage,
    FactKind::Absorbed,
    FactKind::Saved,
    FactKind::Durable,
    FactKind::Removed,
    FactKind::Restored,
    FactKind::CheckpointRequested,
    FactKind::CheckpointCommitted,
    FactKind::CheckpointAborted,
    FactKind::RecoveryStarted,
    FactKind::RecoveryJoined,
    FactKind::Drained,
    FactKind::RolledBack,
    FactKind::Protected,
    FactKind::Unrecoverable,
];

impl Check<'_> {
    pub(super) fn faults(&mut self) {
        self.at_most_entries("spec.faults", self.spec.faults.len(), MAX_FAULTS);
        for (index, fault) in self.spec.faults.iter().enumerate() {
            self.fault(&format!("spec.faults[{index}]"), index, fault);
        }
        self.some_fault_of_traces();
    }

    /// Checks that at least one fault occurs before the end of the run, if all of them come from traces.
    fn some_fault_of_traces(&mut self) {
        let traces = self.spec.faults.iter().map(|it| it.trace.as_ref());
        let Some(traces) = traces.collect::<Option<Vec<_>>>().filter(|it| !it.is_empty()) else { return };
        // Files are read later.
        if !self.problems.is_empty() || !self.sized || traces.iter().any(|it| it.data.is_none()) {
            return;
        }
        let (ranks, seed, end) = (self.names().ranks(), self.spec.seed(), self.spec.faults_end());
        if traces.iter().all(|it| hits(it, ranks, seed, end).is_empty()) {
            self.problem(
                "spec.faults",
                format!(
                    "no fault of the trace occurs before the end of the run ({}), so the run would show nothing about \
                     faults",
                    Duration(end)
                ),
                "choose a higher `speed`, another `begin` or more `causes`, or let the run last longer",
            );
        }
    }

    fn fault(&mut self, path: &str, entry: usize, fault: &FaultSpec) {
        match fault.triggers()[..] {
            [] => self.problem(
                path,
                "the fault has no trigger",
                "add one: `at: 4s`, `when: { fact: … }`, `mtbf: { exponential: 30s }` or `trace: { file: … }`",
            ),
            [(name, trigger)] => self.trigger(&format!("{path}.{name}"), entry, trigger),
            [(first, _), (second, _), ..] => self.problem(
                format!("{path}.{second}"),
                format!("the fault has two triggers, `{first}` and `{second}`"),
                "split it into two faults with one trigger each",
            ),
        }
        match fault.actions()[..] {
            [] => self.problem(
                path,
                "the fault has no action",
                format!("add one: {}", Fault::KINDS.map(|it| format!("`{it}`")).join(", ")),
            ),
            [(name, action)] => {
                let path = format!("{path}.{name}");
                self.repair(&path, fault);
                self.reported(&path, fault.reported(), action);
                self.action(&path, action, fault.trace.as_ref());
            }
            [(first, _), (second, _), ..] => self.problem(
                format!("{path}.{second}"),
                format!("the fault has two actions, `{first}` and `{second}`"),
                "split it into two faults with the same trigger",
            ),
        }
    }

    fn trigger(&mut self, path: &str, entry: usize, trigger: TriggerRef<'_>) {
        match trigger {
            TriggerRef::At(at) if at.0 >= self.spec.deadline() => self.problem(
                path,
                format!(
                    "the fault would occur after the deadline of the run ({})",
                    Duration(self.spec.deadline())
                ),
                Check::too_late(at.0),
            ),
            TriggerRef::At(at) => {
                let system = self.spec.application.system();
                let after = system.and_then(|it| it.ends.as_ref()?.after);
                if let Some(after) = after.filter(|it| at.0 >= it.0) {
                    self.problem(
                        path,
                        format!("the fault would occur after the end of the run ({after})"),
                        "choose an earlier time, or extend `ends.after`",
                    );
                }
            }
            TriggerRef::When(when) => self.when(path, when),
            TriggerRef::Mtbf(mtbf) => self.mtbf(path, entry, mtbf),
            TriggerRef::Trace(trace) => self.trace(path, trace),
        }
    }

    fn when(&mut self, path: &str, when: &When) {
        if !FactKind::OF_PROCESSES.contains(&when.fact) {
            self.problem(
                format!("{path}.fact"),
                "the supervisor reports this fact, but only facts of processes can trigger a fault",
                "use a fact that a process reports, such as `checkpointRequested` or `delivered`",
            );
        } else {
            self.reportable(path, when.fact);
        }
        if when.node.is_some() && when.cluster == ANY {
            self.problem(
                format!("{path}.node"),
                "a node requires the name of its cluster",
                "add `cluster`, or omit `node`",
            );
        } else {
            self.target(path, "cluster", &when.cluster, when.node);
        }
        if let Some(of) = &when.of {
            self.source(&format!("{path}.of"), when.fact, of);
        }
        if when.occurrence == Some(0) {
            self.problem(
                format!("{path}.occurrence"),
                "occurrences are counted from 1 (found 0)",
                "write at least 1",
            );
        }
    }

    /// Checks the watch, the probe or the history of the fact that a fault waits for.
    fn source(&mut self, path: &str, fact: FactKind, of: &str) {
        let Some(system) = self.spec.application.system() else {
            let message =
                format!("only facts of a system are about a watch, a probe or a history (found `{of}`)");
            return self.problem(path, message, "omit it");
        };
        if system.source(fact, of).is_some() {
            return;
        }
        match fact {
            FactKind::Logged => self.no_watch(path, of),
            FactKind::ProbeSucceeded | FactKind::ProbeFailed | FactKind::ProbeUnknown => {
                let names: Vec<_> = system.probes.keys().collect();
                self.problem(
                    path,
                    format!("there is no probe `{of}`"),
                    listed_or(&names, "add it to `probes`"),
                );
            }
            FactKind::Invoked | FactKind::Concluded => {
                let names: Vec<_> = system.clients.keys().collect();
                self.problem(
                    path,
                    format!("there is no history `{of}`"),
                    listed_or(&names, "add it to `clients`"),
                );
            }
            _ => self.problem(
                path,
                format!("this fact is about no watch, probe or history (found `{of}`)"),
                "omit it",
            ),
        }
    }

    pub(super) fn no_watch(&mut self, path: &str, name: &str) {
        let names: Vec<_> =
            self.spec.application.system().map(System::watch_names).into_iter().flatten().collect();
        self.problem(path, format!("there is no watch `{name}`"), listed_or(&names, "add it to `watch`"));
    }

    /// Checks the watch whose newest line names the target of a fault.
    fn reported(&mut self, path: &str, reported: Option<&str>, action: ActionRef<'_>) {
        let Some(name) = reported else { return };
        let (process, cluster, node) = match action {
            ActionRef::Crash(it) => (it.process.is_some(), &*it.cluster, it.node),
            ActionRef::Stop(it) => (it.process.is_some(), &*it.cluster, it.node),
            ActionRef::Impair(it) => (it.process.is_some(), it.cluster, it.node),
            ActionRef::LoseCluster(it) => (false, &*it.cluster, None),
            _ => (false, ANY, None),
        };
        let others = [("process", process), ("cluster", cluster != ANY), ("node", node.is_some())];
        let path = format!("{path}.reported");
        let system = self.spec.application.system();
        if system.is_none() {
            let message = format!("only the nodes of a system have watches (found `{name}`)");
            return self.problem(path, message, "name the target with `cluster` and `node`");
        }
        if let Some((other, _)) = others.into_iter().find(|it| it.1) {
            let message = format!("`reported` cannot be combined with `{other}`");
            return self.problem(path, message, format!("omit `reported` or `{other}`"));
        }
        if system.is_some_and(|it| it.watch_no(name).is_none()) {
            self.no_watch(&path, name);
        }
    }

    /// Checks that some process can report this fact.
    fn reportable(&mut self, path: &str, fact: FactKind) {
        let of_systems = FactKind::OF_SYSTEMS.contains(&fact);
        if self.spec.application.family() == Family::System {
            if !of_systems || NOT_TRIGGERING.contains(&fact) {
                self.problem(
                    format!("{path}.fact"),
                    "a fault of a system cannot wait for this fact",
                    "use `logged`, `probeSucceeded`, `probeFailed`, `exited`, `invoked` or `concluded`",
                );
            }
            return;
        }
        if of_systems {
            return self.problem(
                format!("{path}.fact"),
                format!("this fact is never reported by the application `{}`", self.spec.application.name()),
                "use a fact about messages or tasks, such as `delivered` or `ran`",
            );
        }
        if self.spec.is_planned() {
            return self.reportable_by_plans(path, fact);
        }
        let is_protected = !matches!(self.spec.protocol, ProtocolSpec::None(_));
        let has_checkpoints = self.spec.protocol.checkpointing().is_some();
        let is_without = UNPROTECTED_FACTS_OF_TASKS.contains(&fact);
        let is_of_tasks = is_without || PROTECTED_FACTS_OF_TASKS.contains(&fact);
        let only_of_tasks = fact != FactKind::Finished && is_without
            || [FactKind::Voided, FactKind::Absorbed].contains(&fact)
            || ONLY_OF_PLANS.contains(&fact);
        let name = self.spec.application.name();
        let (message, help) = match self.spec.application.family() {
            Family::Tasks if !is_of_tasks => (
                format!("this fact is never reported in a task-based program, such as `{name}`"),
                "use a step of a theft, such as `lent` or `merged`, or `ran`, `saved` or `restored`",
            ),
            Family::Tasks if !is_protected && !is_without => (
                "this fact is never reported under the protocol `none`".into(),
                "use `ran`, `finished`, or a step of a theft, such as `lent` or `merged`",
            ),
            Family::Tasks if !has_checkpoints && FACTS_OF_CHECKPOINTS.contains(&fact) => (
                format!(
                    "this fact is never reported under the protocol `{}`, which takes no checkpoints",
                    self.spec.protocol.name()
                ),
                "use `restored`, `absorbed`, or a step of a theft, such as `lent`",
            ),
            Family::Messages if only_of_tasks => (
                format!("this fact is never reported without tasks, and `{name}` has none"),
                "use a fact about messages, such as `delivered`, or choose a task-based program, such as `fibonacci`",
            ),
            Family::Messages if !is_protected && !UNPROTECTED_FACTS.contains(&fact) => (
                "this fact is never reported under the protocol `none`".into(),
                "use `sent`, `transmitted`, `delivered`, `computed` or `finished`",
            ),
            _ => return,
        };
        self.problem(format!("{path}.fact"), message, help);
    }

    /// Checks that some process can report this fact if tasks are assigned in advance.
    fn reportable_by_plans(&mut self, path: &str, fact: FactKind) {
        let is_protected = !matches!(self.spec.protocol, ProtocolSpec::None(_));
        if UNPROTECTED_FACTS_OF_PLANS.contains(&fact) {
            return;
        }
        let (message, help) = match PROTECTED_FACTS_OF_PLANS.contains(&fact) {
            true if is_protected => return,
            true => (
                "this fact is never reported under the protocol `none`",
                "use `ran`, `sent`, `transmitted`, `delivered` or `finished`",
            ),
            false => (
                "this fact is never reported if tasks are assigned in advance",
                "use a fact about values, such as `delivered`, or `ran`, `saved` or `restored`",
            ),
        };
        self.problem(format!("{path}.fact"), message, help);
    }

    fn mtbf(&mut self, path: &str, entry: usize, mtbf: &Mtbf) {
        let (path, scale) = match mtbf {
            Mtbf::Exponential(mean) => (format!("{path}.exponential"), mean.0),
            Mtbf::Weibull(weibull) => {
                if !(0.1..=10.0).contains(&weibull.shape) {
                    return self.problem(
                        format!("{path}.weibull.shape"),
                        format!("the shape {} is out of range", weibull.shape),
                        "write a number between 0.1 and 10; 1 is the exponential distribution",
                    );
                }
                (format!("{path}.weibull.scale"), weibull.scale.0)
            }
            Mtbf::Uniform(Uniform { least, most }) => {
                if least.0 > most.0 {
                    return self.problem(
                        format!("{path}.uniform.least"),
                        "the shortest time between failures is longer than the longest",
                        "exchange `least` and `most`",
                    );
                }
                (format!("{path}.uniform.most"), most.0)
            }
            Mtbf::PerNode(mean) => (format!("{path}.perNode"), mean.0),
            Mtbf::Preset(rate) => {
                if let Some(speed) = rate.speed.filter(|it| !(0.001..=1e9).contains(it)) {
                    return self.problem(
                        format!("{path}.preset.speed"),
                        format!("the speed {speed} is out of range"),
                        "write a number between 0.001 and 1e9; 1 is the published failure rate",
                    );
                }
                (format!("{path}.preset"), Span::from_secs(1))
            }
        };
        if scale == Span::ZERO {
            return self.problem(
                path,
                "the time between failures must not be 0",
                "write a duration above zero",
            );
        }
        // Once the limit is exceeded, no further times are drawn.
        let left = (MAX_DRAWN + 1).saturating_sub(self.drawn);
        let drawn = times_of(self.spec, self.spec.seed(), entry, mtbf).take(left).count();
        self.draws(path, drawn, "choose longer times between failures");
    }

    /// Counts the faults that an entry causes. `remedy` says how the entry can cause fewer.
    pub(super) fn draws(&mut self, path: impl Into<String>, drawn: usize, remedy: &str) {
        let before = self.drawn;
        self.drawn += drawn;
        if before <= MAX_DRAWN && self.drawn > MAX_DRAWN {
            let (entries, help) = match before {
                0 => ("this entry", format!("{remedy}, or a shorter `deadline`")),
                _ => (
                    "this entry and those before it",
                    format!("{remedy}, fewer entries with `mtbf` or `trace`, or a shorter `deadline`"),
                ),
            };
            self.problem(
                path,
                format!("{entries} would inject more than {MAX_DRAWN} faults before the deadline"),
                help,
            );
        }
    }

    fn action(&mut self, path: &str, action: ActionRef<'_>, trace: Option<&TraceTrigger>) {
        match action {
            ActionRef::Crash(it) => self.process(path, &it.process, &it.cluster, it.node),
            ActionRef::Stop(it) => {
                self.process(path, &it.process, &it.cluster, it.node);
                self.stops(path, it.within);
            }
            ActionRef::Restart(it) => {
                self.target(path, "cluster", &it.cluster, None);
                self.stops(path, it.within);
                if let Some(command) = &it.command {
                    let (env, files) = Default::default();
                    self.custom(path, Launch::of_system(command, &env, &files).problem());
                }
            }
            ActionRef::LoseCluster(it) => self.target(path, "cluster", &it.cluster, None),
            ActionRef::LoseRack(it) => self.rack(path, it),
            ActionRef::Link(it) => {
                self.target(path, "from", &it.from, None);
                self.target(path, "to", &it.to, None);
                if it.from == ANY || it.to == ANY {
                    self.two_clusters(path);
                }
                if it.link() == Default::default() {
                    self.problem(
                        path,
                        "the fault changes no property of the link",
                        "set `latency`, `jitter`, `bandwidth`, `loss` or `preset`",
                    );
                }
                // A drawn link is between two clusters.
                let is_drawn = it.from == ANY || it.to == ANY;
                let links = &self.links;
                let base = if is_drawn { links.between() } else { links.properties(&it.from, &it.to) };
                let properties = it.link().over(base);
                self.jitter(path, &it.link(), properties);
                self.lasts(path, it.span);
            }
            ActionRef::Partition(it) if it.within.is_some() || !it.nodes.is_empty() => {
                self.split(path, it);
                self.lasts(path, it.span);
                self.must_last(path, it.span, trace);
            }
            ActionRef::Partition(it) if it.isolates() || !it.except.is_empty() => {
                self.isolation(path, it);
                self.lasts(path, it.span);
                self.must_last(path, it.span, trace);
            }
            ActionRef::Partition(it) => {
                self.target(path, "from", &it.from, None);
                self.target(path, "to", &it.to, None);
                if it.from == ANY || it.to == ANY {
                    self.two_clusters(path);
                } else if it.from == it.to {
                    self.problem(
                        format!("{path}.to"),
                        format!("a partition needs two clusters (found `{}` twice)", it.to),
                        "specify two clusters; for the network within a cluster, use `link`",
                    );
                }
                self.lasts(path, it.span);
                self.must_last(path, it.span, trace);
            }
            ActionRef::Impair(it) => {
                self.process(path, it.process, it.cluster, it.node);
                self.lasts(path, it.span);
                self.impairment(path, it.how);
                self.factor(path, it.factor);
                if it.how == Impairment::Paused {
                    self.must_last(path, it.span, trace);
                }
            }
        }
    }

    /// Checks the factor by which a node becomes slow, as the file states it.
    fn factor(&mut self, path: &str, factor: Option<f64>) {
        if let Some(factor) = factor.filter(|it| !(1.01..=1000.0).contains(it)) {
            let found = if factor.is_nan() { "no number".to_owned() } else { factor.to_string() };
            self.problem(
                format!("{path}.by"),
                format!("the factor is out of range (found {found})"),
                "write a number between 1.01 and 1000, such as 3",
            );
        }
    }

    fn impairment(&mut self, path: &str, how: Impairment) {
        match how {
            Impairment::Storage(StorageFault::Slow(Span::ZERO)) => self.problem(
                format!("{path}.by"),
                "the additional time must not be 0",
                "write a duration above zero",
            ),
            Impairment::Flip(flip) if !self.spec.application.allows_flip(flip.target) => {
                let application = self.spec.application.name();
                let other = |other| match self.spec.application.allows_flip(FlipTarget::Message) {
                    true => other,
                    false => "",
                };
                let (problem, remedy) = match flip.target {
                    FlipTarget::Copy => (
                        format!(
                            "`flip` needs a state that is data; the state of `{application}` controls its execution"
                        ),
                        format!(
                            "choose the application `heat` or one of your own{}",
                            other(", or use `corruptStorage` or `in: message`")
                        ),
                    ),
                    FlipTarget::State => (
                        format!("the application `{application}` does not support flipped bits in its state"),
                        format!(
                            "choose `heat`, `exchange`, `nas`, `pingPong`, `farm` or an application of your own{}",
                            other(", or use `in: message`")
                        ),
                    ),
                    FlipTarget::Message => (
                        match self.spec.application.program() {
                            Some(_) => {
                                "a program's messages are JSON, which a flipped bit may make invalid".into()
                            }
                            None => format!("the application `{application}` exchanges no messages"),
                        },
                        "choose an application that exchanges messages, such as `heat`".to_owned(),
                    ),
                };
                self.problem(path, problem, remedy);
            }
            _ => {}
        }
    }

    /// Checks the target of a fault: a process by name, or by cluster and node.
    fn process(&mut self, path: &str, name: &Option<String>, cluster: &str, node: Option<u32>) {
        let Some(name) = name else { return self.target(path, "cluster", cluster, node) };
        if cluster != ANY || node.is_some() {
            self.problem(
                format!("{path}.process"),
                "`process` cannot be combined with `cluster` or `node`",
                "use either `process`, or `cluster` and `node`",
            );
        } else if self.sized && self.names().process_id(name).is_none() {
            let help = match self.names().extra() {
                [] => "use the cluster and the number of the node, such as `paris-1`; there are no processes outside the clusters".into(),
                [only] => format!("use the cluster and the number of the node, such as `paris-1`, or `{only}`"),
                extra => {
                    format!("use the cluster and the number of the node, such as `paris-1`, or one of: {}", listed(extra))
                }
            };
            self.problem(format!("{path}.process"), format!("there is no process `{name}`"), help);
        }
    }

    /// Checks the target of a fault: a cluster or `any`, and a node that exists in every cluster that `any` can stand
    /// for.
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
            1 => "its only node is 0; write 0, or omit `node`".into(),
            _ => format!("its nodes are 0 to {}; write one of these numbers, or omit `node`", nodes - 1),
        };
        self.problem(format!("{path}.node"), format!("{whose} has no node {node}"), help);
    }

    /// Checks the fields of a partition that isolates a cluster.
    fn isolation(&mut self, path: &str, it: &Partition) {
        self.at_most_entries(&format!("{path}.except"), it.except.len(), MAX_EXCEPT);
        for (index, other) in it.except.iter().enumerate() {
            let at = format!("{path}.except[{index}]");
            if self.cluster(&at, other) && it.isolate.as_ref() == Some(other) {
                self.problem(at, format!("`{other}` is the isolated cluster"), "omit it from `except`");
            }
        }
        if !it.isolates() {
            let help = "add `isolate: CLUSTER`, or name two clusters with `from` and `to`";
            return self.problem(format!("{path}.except"), "`except` belongs to an isolated cluster", help);
        }
        let what = if it.isolate.is_some() { "isolate" } else { "reported" };
        let others = [
            ("reported", what == "isolate" && it.reported.is_some()),
            ("from", it.from != ANY),
            ("to", it.to != ANY),
            ("oneWay", it.one_way),
        ];
        for (other, _) in others.into_iter().filter(|it| it.1) {
            let message = format!("`{what}` cannot be combined with `{other}`");
            self.problem(format!("{path}.{other}"), message, format!("omit `{what}` or `{other}`"));
        }
        if let Some(cluster) = &it.isolate {
            self.target(path, "isolate", cluster, None);
        }
        let named = it.isolate.as_ref().filter(|it| *it != ANY);
        let possible = self.nodes.keys().filter(|name| !it.except.iter().any(|it| it == *name));
        let is_cut = |name: &&&str| named.is_none_or(|it| it != **name);
        let needed = if named.is_some() { 1 } else { 2 };
        if possible.filter(is_cut).count() < needed {
            let help = "add a cluster, or omit one from `except`";
            self.problem(path, "the isolated cluster would be cut off from no other", help);
        }
    }

    /// Checks the fields of a partition within a cluster.
    fn split(&mut self, path: &str, it: &Partition) {
        self.at_most_entries(&format!("{path}.nodes"), it.nodes.len(), MAX_CUT_OFF);
        let Some(cluster) = &it.within else {
            let help = "add `within: CLUSTER`, or name clusters with `from` and `to`";
            return self.problem(
                format!("{path}.nodes"),
                "`nodes` belongs to a partition `within` a cluster",
                help,
            );
        };
        let others = [
            ("isolate", it.isolate.is_some()),
            ("reported", it.reported.is_some()),
            ("from", it.from != ANY),
            ("to", it.to != ANY),
            ("except", !it.except.is_empty()),
            ("oneWay", it.one_way),
        ];
        for (other, _) in others.into_iter().filter(|it| it.1) {
            let message = format!("`within` cannot be combined with `{other}`");
            self.problem(format!("{path}.{other}"), message, format!("omit `within` or `{other}`"));
        }
        if cluster == ANY {
            let message = "a partition within a cluster needs the name of the cluster (found `any`)";
            return self.problem(format!("{path}.within"), message, "write its name");
        }
        if !self.cluster(&format!("{path}.within"), cluster) {
            return;
        }
        if self.spec.application.system().is_none() {
            let message = "only the nodes of a system can be cut off within their cluster";
            return self.problem(
                format!("{path}.within"),
                message,
                "use `from` and `to`, or `pause` the node",
            );
        }
        let nodes = self.nodes[cluster.as_str()];
        if let Some((place, node)) = it.nodes.iter().enumerate().find(|(_, it)| **it >= nodes) {
            let message = format!("cluster `{cluster}` has no node {node}");
            let help = format!("its nodes are numbered from 0 to {}", nodes - 1);
            return self.problem(format!("{path}.nodes[{place}]"), message, help);
        }
        let cut: BTreeSet<u32> = it.nodes.iter().copied().collect();
        if cut.is_empty() || cut.len() >= nodes as usize || cut.len() < it.nodes.len() {
            let message = format!("the partition needs nodes of `{cluster}` on both sides, each named once");
            let help = "list some of its nodes, but not all, such as `nodes: [0]`";
            self.problem(format!("{path}.nodes"), message, help);
        }
    }

    /// Checks that the cluster of a lost rack has racks, and this one; for `any`, that every cluster does.
    fn rack(&mut self, path: &str, it: &LoseRack) {
        if it.cluster != ANY && !self.cluster(&format!("{path}.cluster"), &it.cluster) {
            return;
        }
        let spec = self.spec;
        for cluster in spec.clusters.iter().filter(|cluster| it.cluster == ANY || cluster.name == it.cluster)
        {
            let name = &cluster.name;
            match (cluster.racks(), it.rack) {
                (0, _) => {
                    let help = "set `rack` of the cluster to the number of nodes in each rack, or choose a cluster \
                                that has racks";
                    return self.problem(path, format!("cluster `{name}` has no racks"), help);
                }
                (racks, Some(rack)) if rack >= racks => {
                    let help = match racks {
                        1 => "its only rack is 0; write 0, or omit `rack`".to_owned(),
                        _ => format!(
                            "its racks are 0 to {}; write one of these numbers, or omit `rack`",
                            racks - 1
                        ),
                    };
                    let path = format!("{path}.rack");
                    return self.problem(path, format!("cluster `{name}` has no rack {rack}"), help);
                }
                _ => {}
            }
        }
    }

    /// Checks the repair of a fault that kills processes.
    fn repair(&mut self, path: &str, fault: &FaultSpec) {
        let Some(repair) = fault.repair() else { return };
        let path = format!("{path}.repair");
        if repair.0 == Span::ZERO {
            self.problem(
                path,
                "the repair must not take 0s",
                "write a duration above zero, or omit `repair`",
            );
        } else if fault.never_returns() {
            self.problem(
                path,
                "`repair` has no effect on processes that never return",
                "omit `repair`, or omit `returns`",
            );
        }
    }

    /// Checks a fault that asks commands to end.
    fn stops(&mut self, path: &str, within: Option<Duration>) {
        if self.spec.application.system().is_none() {
            let application = self.spec.application.name();
            let message = format!("only the commands of a system can be stopped (found `{application}`)");
            return self.problem(path, message, "use `crash` or `loseCluster`");
        }
        if within.is_some_and(|it| it.0 == Span::ZERO) {
            let message = "a command needs time to end";
            let help = "write a duration above zero; use `crash` to kill it at once";
            self.problem(format!("{path}.within"), message, help);
        }
    }

    fn two_clusters(&mut self, path: &str) {
        if self.nodes.len() < 2 {
            self.problem(
                path,
                "the federation has only one cluster to choose from",
                "add a cluster, or specify both ends",
            );
        }
    }

    fn lasts(&mut self, path: &str, span: Option<Duration>) {
        if span.is_some_and(|it| it.0 == Span::ZERO) {
            self.problem(
                format!("{path}.for"),
                "the duration of the fault must not be 0",
                "write a duration above zero",
            );
        }
    }
}

/// Returns a help text that lists the known names or, if there are none, `otherwise`.
fn listed_or<T: AsRef<str>>(names: &[T], otherwise: &str) -> String {
    match names {
        [] => otherwise.to_owned(),
        [only] => format!("use `{}`", only.as_ref()),
        many => format!("use one of: {}", listed(many)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Mtbf;
    use crate::samples::SAMPLES;

    #[test]
    fn the_number_of_draws_is_limited() {
        let sample = SAMPLES[0];
        let mut federation = crate::parse(sample.name, sample.text.as_bytes()).expect("samples are valid");
        let often = FaultSpec {
            mtbf: Some(Mtbf::Exponential(Duration(Span(1)))),
            crash: Some(serde_json::from_value(serde_json::json!({})).expect("a valid crash")),
            ..FaultSpec::default()
        };
        federation.spec.faults = vec![often; MAX_FAULTS];
        let mut check = Check::new(&federation.spec);
        check.everything(&federation);
        assert_eq!((check.problems.len(), check.drawn), (1, MAX_DRAWN + 1));
    }
}
