//! The description of a run apart from its facts: `manifest.json`.
//!
//! Written when the run begins and again when it ends, so that a run that is cut short also has a
//! description.

use std::collections::BTreeMap;

use faultline_core::fault::{Change, FaultAccount, FaultState, LinkProperties, Outcome};
use faultline_core::{
    ClusterId, Digest, Fact, FactKind, FaultNo, Life, PlannedFault, ProcessId, Promises, Role, RunNames,
    Span, Time,
};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::expectation::{Expectation, SystemEntry};
use crate::memory::Trace;
use crate::seal::{Hash, Seal};

/// The version of the bundle format that this program writes and reads.
pub const FORMAT: u32 = 14;

/// The description of a run. Times and spans are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// The format version of the bundle ([`FORMAT`]).
    pub format: u32,
    /// The version of the program that wrote the bundle.
    pub tool: String,
    /// The digest of the program that executed the supervisor and the processes on this machine; `None` on other backends,
    /// and before the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Hash>,
    /// The name of the federation.
    pub name: String,
    /// The backend of the run.
    pub backend: BackendKind,
    /// The seed of all random choices of the run.
    pub seed: u64,
    /// The federation file, with the contents of any other files that it names. Stored in the bundle as
    /// `federation.yaml`, not in the manifest.
    #[serde(skip)]
    pub federation: String,
    /// The name of the protocol, for display only. Checkers and reports read its promises instead.
    pub protocol: String,
    /// The promises of the protocol.
    pub promises: Promises,
    /// Clusters of the federation, indexed by [`ClusterId`].
    pub clusters: Vec<ClusterEntry>,
    /// Clusters that leave before the end (`leavesAfter`), ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<ClusterId>,
    /// Processes of the federation, indexed by [`ProcessId`].
    pub processes: Vec<ProcessEntry>,
    /// Bounds on the work that a rollback may lose, if the protocol has any.
    pub bounds: Option<Bounds>,
    /// The requested replicas of checkpoints; `None` if the protocol takes no checkpoints.
    pub copies: Option<Copies>,
    /// Whether a node's storage is lost with the node's process (`storage: memory`).
    pub volatile_storage: bool,
    /// An upper bound on the time that one task takes on the slowest cluster; `None` if the processes run no tasks, or
    /// if the durations of the tasks are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_task: Option<Span>,
    /// The fault plan, including those that were added during the run.
    pub plan: Vec<PlannedFault>,
    /// The numbers of the faults whose times were drawn (`mtbf`) or taken from a failure trace, ascending. They need not
    /// occur.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drawn: Vec<FaultNo>,
    /// Whether the federation has random faults, of which the seed may draw none before the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_random_faults: bool,
    /// The state of each fault at the end; empty while the run is in progress.
    pub faults: Vec<FaultAccount>,
    /// The times at which faults took effect; empty in virtual time, where a fault takes effect at one instant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectEntry>,
    /// How busy the processors of this machine were; `None` on other backends, and before the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// The variables that the commands of a system inherited; empty on other backends.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The number of spare nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spares: u32,
    /// Failures caused by one fault count as simultaneous if at most this time separates the first from the last.
    #[serde(default = "at_once_within")]
    pub at_once_within: Span,
    /// Links: one entry per ordered pair of clusters, and another for each change during the run.
    pub links: Vec<LinkEntry>,
    /// Results of the same federation without faults, if known.
    pub expected: Option<Expected>,
    /// What the federation expects of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expectations: Vec<Expectation>,
    /// The user's own system; `None` for all other applications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<SystemEntry>,
    /// How the run ended; `None` while it is in progress or if it was cut short.
    pub outcome: Option<Outcome>,
    /// In virtual time, if the deadline was exceeded: the ranks whose application waited for a message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<ProcessId>,
    /// The start of the run in milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// The duration of the run: wall-clock time, or virtual time in the simulator.
    pub duration: Span,
    /// All streams with their seals at the end of the run, so that later changes and losses can be detected; empty
    /// while the run is in progress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<FactsEntry>,
    /// The origin of a run that Faultline did not carry out; `None` for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventsEntry>,
}

impl Manifest {
    /// Compares the expected results with those of a second computation. If they differ, removes them, because they are not
    /// those of the federation, and returns `true`.
    pub fn compare_expected_with(&mut self, again: Option<Expected>) -> bool {
        let Some(expected) = self.expected.as_mut().filter(|it| again.as_ref() != Some(*it)) else {
            return false;
        };
        expected.digests.clear();
        true
    }

    /// Creates the manifest of a completed simulation that has no federation file: consecutive processes in clusters
    /// of these sizes, and nothing else. For tests and benchmarks of drivers and protocols.
    pub fn bare(promises: Promises, sizes: &[u32]) -> Manifest {
        let clusters = (0..).map(ClusterId).zip(sizes);
        let of_cluster = |(cluster, &nodes)| std::iter::repeat_n(cluster, nodes as usize);
        let processes = (0..).map(ProcessId).zip(clusters.clone().flat_map(of_cluster));
        Manifest {
            format: FORMAT,
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            program: None,
            name: "bare".to_owned(),
            backend: BackendKind::Simulate,
            seed: 0,
            federation: String::new(),
            protocol: "bare".to_owned(),
            promises,
            clusters: clusters
                .clone()
                .map(|(cluster, &nodes)| ClusterEntry { name: cluster.to_string(), nodes })
                .collect(),
            leaving: Vec::new(),
            processes: processes
                .map(|(it, cluster)| ProcessEntry { name: it.to_string(), role: Role::RANK, cluster })
                .collect(),
            bounds: None,
            copies: None,
            volatile_storage: false,
            longest_task: None,
            plan: Vec::new(),
            drawn: Vec::new(),
            has_random_faults: false,
            faults: Vec::new(),
            effects: Vec::new(),
            pressure: None,
            environment: BTreeMap::new(),
            spares: 0,
            at_once_within: at_once_within(),
            links: Vec::new(),
            expected: None,
            expectations: Vec::new(),
            system: None,
            outcome: Some(Outcome::Completed),
            waiting: Vec::new(),
            started_unix_ms: 0,
            duration: Span::ZERO,
            facts: Vec::new(),
            events: None,
        }
    }

    /// Returns the names of the run's processes and clusters, and of what its nodes observe.
    pub fn names(&self) -> RunNames {
        let system = self.system.as_ref();
        let checks = self.expectations.iter().filter_map(|it| match it {
            Expectation::Check { text, .. } => Some(text.to_string()),
            _ => None,
        });
        RunNames {
            processes: self.processes.iter().map(|it| it.name.clone()).collect(),
            clusters: self.clusters.iter().map(|it| it.name.clone()).collect(),
            scope: Some(self.promises.scope),
            probes: system.iter().flat_map(|it| &it.probes).map(|it| it.name.clone()).collect(),
            watches: system.iter().flat_map(|it| &it.watches).cloned().collect(),
            checks: checks.chain(system.map(SystemEntry::final_names).unwrap_or_default()).collect(),
            histories: system.iter().flat_map(|it| &it.histories).map(|it| it.name.clone()).collect(),
            is_system: system.is_some(),
            ..RunNames::default()
        }
    }

    /// Iterates over the ranks in ascending order. Ranks come before all other processes.
    pub fn ranks(&self) -> impl Iterator<Item = (ProcessId, &ProcessEntry)> + Clone {
        (0..).map(ProcessId).zip(&self.processes).filter(|(_, it)| it.role == Role::RANK)
    }

    /// Returns the processes with this role in ascending order.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = ProcessId> {
        let all = (0..).map(ProcessId).zip(&self.processes);
        all.filter(move |(_, it)| it.role == role).map(|(process, _)| process)
    }

    /// Completes the manifest of a run that was cut short. Such a manifest lacks the duration, the faults added during
    /// the run, and the states of all faults. The duration is the time of the last recorded fact of any process; the
    /// rest is derived from the supervisor's facts, up to the last one recorded.
    pub fn fill_in(&mut self, trace: &Trace) {
        if self.outcome.is_some() {
            return;
        }
        let facts = trace.supervisor();
        let added = facts.iter().filter_map(|(_, fact)| match fact {
            Fact::Changed(change) => match &**change {
                Change::Fault(planned) => Some(planned.clone()),
                _ => None,
            },
            _ => None,
        });
        self.plan.extend(added.filter(|it| it.no.0 as usize >= self.plan.len()).collect::<Vec<_>>());
        let last = trace.streams.values().filter_map(|stream| stream.last()).map(|(at, _)| *at).max();
        self.duration = last.unwrap_or_default().since(Time::ZERO);
        let state = |no: FaultNo| {
            let mut newest_first = facts.iter().rev();
            let state = newest_first.find_map(|(_, fact)| match fact {
                Fact::Injecting { no: it, .. } if *it == no => Some(FaultState::Effective),
                Fact::Ineffective { no: it, reason } if *it == no => {
                    Some(FaultState::Ineffective(reason.clone()))
                }
                _ => None,
            });
            state.unwrap_or(FaultState::Pending)
        };
        self.faults = self.plan.iter().map(|planned| (planned.no, state(planned.no))).collect();
    }
}

/// One life's stream of facts, as listed in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FactsEntry {
    /// The process that reported the facts.
    pub process: ProcessId,
    /// The life that reported the facts.
    pub life: Life,
    /// The length of the file in bytes, including its seal.
    pub bytes: u64,
    /// The seal of the stream; `None` if it was not sealed.
    pub seal: Option<Seal>,
}

/// The events from which a record was imported.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventsEntry {
    /// The name of the file with the events. The record contains a copy of it.
    pub file: String,
    /// The digest of that file.
    pub digest: Hash,
    /// The mapping; `None` if the events have the columns of Faultline.
    pub mapping: Option<MappingEntry>,
    /// The kinds of facts that the events contain whenever they happened; `None` for all.
    pub records: Option<Vec<FactKind>>,
    /// The number of lines that no rule of the mapping matches.
    pub unmatched: u64,
}

/// The mapping with which events were imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MappingEntry {
    /// The name of the mapping, or of its file. The record contains a copy of it.
    pub name: String,
    /// The digest of that file.
    pub digest: Hash,
}

/// The kind of environment that executes a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BackendKind {
    /// State machines in virtual time.
    Simulate,
    /// One operating-system process per node, on one machine.
    Local,
    /// One pod per node, on Kubernetes.
    Kubernetes,
    /// None: the record was imported from events of another system.
    Events,
}

/// One cluster of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterEntry {
    /// The name of the cluster in the federation.
    pub name: String,
    /// The number of ranks.
    pub nodes: u32,
}

/// One process of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessEntry {
    /// The name of the process for display, such as `paris-0`.
    pub name: String,
    /// The purpose of the process.
    pub role: Role,
    /// The cluster of the process, or [`ClusterId::OUTSIDE`].
    pub cluster: ClusterId,
}

/// Figures that determine how much work a rollback may lose, and when data must have been collected.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bounds {
    /// The delay between unforced checkpoints, one entry per cluster; `None` is infinite.
    pub checkpoint_every: Vec<Option<Span>>,
    /// The longest time from a failure to its detection.
    pub detect_after: Span,
    /// The longest delay between two garbage collections; zero if every checkpoint triggers one. `None` if the protocol
    /// never collects, or does not say when.
    pub collect_every: Option<Span>,
    /// In virtual time, the longest time that a message takes between a cluster and a process outside the clusters.
    /// `None` if the protocol has no use for it, or if losses or slow processes leave it unbounded.
    pub delivered_within: Option<Span>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Returns the default of `at_once_within` for bundles that lack it.
pub(crate) fn at_once_within() -> Span {
    Span::from_millis(50)
}

/// The times at which a fault took effect, by the run's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectEntry {
    /// The number of the fault in the plan.
    pub no: FaultNo,
    /// The time at which the fault was due: its time in the plan, or the time at which the supervisor learned of its
    /// trigger.
    pub due: Time,
    /// The effects on individual processes. A cluster loss has an entry for each life that it ended, and none for a
    /// process that was not alive.
    pub on: Vec<Effect>,
    /// In a system, the processes whose command had ended already, so that nothing of theirs was killed or paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<ProcessId>,
}

/// The time at which a fault took effect on one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Effect {
    /// The affected process.
    pub process: ProcessId,
    /// The number of the process's life.
    pub life: Life,
    /// The time after which the process executed no instruction, or at which it applied the change; `None` if
    /// the process's place did not report it.
    pub at: Option<Time>,
    /// The time at which a killed process had exited, by the clock that shows `at`. Until then, the kernel keeps its
    /// connections. `None` if the fault did not kill the process, or if the process's place did not report the time.
    #[serde(default)]
    pub exited: Option<Time>,
    /// The time that the commands of a node had while the fault slowed them down; `None` for other faults, and while the
    /// fault lasts.
    #[serde(default)]
    pub slowed: Option<Slowed>,
    /// The largest possible error of `at` and `exited`, which depends on how precisely the offset of the process's
    /// clock is known.
    pub error: Span,
}

/// The time that the commands of a node had while a fault slowed them down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Slowed {
    /// The time for which the fault lasted in this life.
    pub lasted: Span,
    /// The part of this time in which the commands were not stopped.
    pub ran: Span,
    /// The processor time that their processes used.
    pub used: Span,
}

impl EffectEntry {
    /// Returns the share of its time in which commands were not stopped while the fault slowed them down, in all lives
    /// together; `None` if unknown.
    pub fn ran_share(&self) -> Option<f64> {
        self.share_of_slowed(|it| it.ran)
    }

    /// Returns the processor time that commands used while the fault slowed them down, as a share of its time, in all lives
    /// together; `None` if unknown.
    pub fn processor_share(&self) -> Option<f64> {
        self.share_of_slowed(|it| it.used)
    }

    fn share_of_slowed(&self, part: impl Fn(&Slowed) -> Span) -> Option<f64> {
        let all = || self.on.iter().filter_map(|it| it.slowed.as_ref());
        let lasted: f64 = all().map(|it| it.lasted.as_secs_f64()).sum();
        let part: f64 = all().map(|it| part(it).as_secs_f64()).sum();
        (lasted > 0.0).then(|| part / lasted)
    }

    /// Returns the longest possible time between two effects: each effect may have been earlier or later than its
    /// recorded time by as much as the error of that time. `None` if the time of an effect is unknown, or if there are
    /// fewer than two effects.
    pub fn skew(&self) -> Option<Span> {
        let range = |it: &Effect| {
            let (at, error) = (i128::from(it.at?.0), i128::from(it.error.0));
            Some((at - error, at + error))
        };
        let mut ranges: Vec<(i128, i128)> = self.on.iter().map(range).collect::<Option<_>>()?;
        ranges.sort_unstable();
        let [first, second, ..] = ranges[..] else { return None };
        let latest = ranges[1..].iter().map(|it| it.1).max()?;
        // The first range may also end last.
        let longest = (latest - first.0).max(first.1 - second.0);
        Some(Span(u64::try_from(longest).unwrap_or(u64::MAX)))
    }

    /// Returns the time from the instant at which the fault was due until its last effect. `None` if there is
    /// no effect, or if the time of an effect is unknown.
    pub fn latency(&self) -> Option<Span> {
        let instants: Option<Vec<Time>> = self.on.iter().map(|it| it.at).collect();
        Some(instants?.into_iter().max()?.since(self.due))
    }

    /// Returns the longest time from the stop of a killed process until it had exited. `None` if the fault killed no
    /// process, or if one of the times is unknown.
    pub fn exit(&self) -> Option<Span> {
        let exits: Option<Vec<Span>> = self.on.iter().map(|it| Some(it.exited?.since(it.at?))).collect();
        exits?.into_iter().max()
    }
}

/// How busy the processors of the machine were during a run, measured once per second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Pressure {
    /// The machine does not say how busy its processors are.
    Unavailable,
    /// The periods, ascending, in which some task waited for a processor at least half of the time, by the run's clock.
    Busy(Vec<(Time, Time)>),
}

impl Pressure {
    /// Returns for how long the machine was busy in a period.
    pub fn within(&self, from: Time, upto: Time) -> Span {
        let Pressure::Busy(periods) = self else { return Span::ZERO };
        let each = periods.iter().map(|it| (it.0.max(from), it.1.min(upto)));
        each.fold(Span::ZERO, |sum, (begun, ended)| sum + ended.since(begun))
    }
}

/// The number of replicas of each part of a checkpoint, and the processes that hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Copies {
    /// The number of replicas besides the owner's own copy.
    pub replicas: u32,
    /// Processes that may hold the replicas.
    pub kept_by: ReplicaHolders,
}

/// The processes that may hold replicas of a process's checkpoints. Each holds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplicaHolders {
    /// Other processes of the same cluster.
    SameCluster,
    /// Processes of other clusters, one in each.
    OtherCluster,
    /// Storage servers.
    SharedStorage,
}

/// A link in one direction.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LinkEntry {
    /// The sending cluster.
    pub from: ClusterId,
    /// The receiving cluster; the same as `from` for a cluster's internal network.
    pub to: ClusterId,
    /// Requested properties.
    pub requested: LinkProperties,
    /// Properties measured before the application began or, if the entry is for a change, after that change; `None` if
    /// they were not measured (in a simulation, or with a single node).
    #[serialize_always]
    pub measured: Option<LinkMeasured>,
    /// Properties observed while the application ran; `None` if they were not observed.
    pub observed: Option<LinkObserved>,
    /// The time of the request by the run's clock; `None` for the properties at the start of the run. A link that was
    /// changed during the run has a further entry for each change, in order.
    pub since: Option<Time>,
}

/// Properties of a link, measured by echoes between two processes at its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LinkMeasured {
    /// The median one-way delay.
    pub latency: Span,
    /// Half the difference between the greatest and the smallest delay.
    pub jitter: Span,
    /// The number of echoes.
    pub samples: u32,
    /// The number of measurements. A measurement whose latency is out of tolerance is repeated, because a machine may
    /// be temporarily busy. All other fields belong to the last measurement.
    #[serde(default = "once")]
    pub rounds: u32,
    /// The largest deviation of `latency` that can be due to chance: to the jitter that the kernel emulates. Zero if
    /// the node emulates the jitter, and so knows it.
    #[serde(default)]
    pub uncertainty: Span,
}

/// Properties of a link while the application ran, measured by echoes at regular intervals. Excludes echoes
/// that a fault of the link or of a process at either end could have delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LinkObserved {
    /// The number of echoes.
    pub echoes: u32,
    /// The number of echoes whose delay differed from the requested latency by more than
    /// [`LinkEntry::tolerance_observed`].
    pub outside: u32,
    /// The mean one-way delay.
    pub mean: Span,
}

/// Returns the default of `rounds` for bundles that lack it.
fn once() -> u32 {
    1
}

impl LinkEntry {
    /// If the delays of more than this percentage of a link's echoes are out of tolerance while the application runs, the
    /// link was not as requested.
    pub const MOST_PERCENT_OUTSIDE: u32 = 20;

    /// Returns whether the measured delay is within [tolerance](LinkEntry::tolerance) of the requested one. `None` if
    /// the delay was not measured.
    pub fn as_requested(&self) -> Option<bool> {
        let measured = self.measured?.latency;
        Some(Span(self.requested.latency.0.abs_diff(measured.0)) <= self.tolerance())
    }

    /// Returns the largest permitted difference between the delay of a single echo and the requested one
    /// while the application runs. This tolerance is wider than [`tolerance`](LinkEntry::tolerance), because
    /// echoes share processors and connections with the packets of the application.
    pub fn tolerance_observed(&self) -> Span {
        Span::from_millis(1).max(Span(self.requested.latency.0 / 10)) + self.requested.jitter
    }

    /// Returns whether the delay of an echo is out of tolerance while the application runs.
    pub fn is_outside(&self, delay: Span) -> bool {
        delay.0.abs_diff(self.requested.latency.0) > self.tolerance_observed().0
    }

    /// Returns whether the numbers measured on the link fit together. Chance does not exceed the requested jitter. No
    /// more echoes can be out of tolerance than were measured, and if none is, their mean is within the tolerance.
    pub fn is_plausible(&self) -> bool {
        let is_possible =
            |it: LinkMeasured| it.samples > 0 && it.rounds > 0 && it.uncertainty <= self.requested.jitter;
        let counts = self.measured.is_none_or(is_possible);
        let observed = self.observed.is_none_or(|it| {
            it.outside <= it.echoes && (it.outside > 0 || it.echoes == 0 || !self.is_outside(it.mean))
        });
        counts && observed
    }

    /// Returns whether anything is requested of the link. Nothing emulates the other links: they are as fast as the network
    /// is.
    pub fn is_judged(&self) -> bool {
        self.requested != LinkProperties::default()
    }

    /// Returns whether the link was not as requested, in which case the run does not show what it was meant to show: the
    /// measured delay was out of tolerance, or those of too many echoes were while the application ran.
    pub fn is_off(&self) -> bool {
        self.as_requested() == Some(false)
            || self.percent_outside().is_some_and(|it| it > Self::MOST_PERCENT_OUTSIDE)
    }

    /// Returns the percentage of echoes whose delay was out of tolerance while the application ran, rounded up: it is
    /// zero only if no delay was, and exceeds a limit whenever the exact percentage does. `None` if there were too few
    /// echoes to determine it.
    pub fn percent_outside(&self) -> Option<u32> {
        const LEAST: u32 = 20;
        let observed = self.observed.filter(|it| it.echoes >= LEAST)?;
        Some((u64::from(observed.outside) * 100).div_ceil(u64::from(observed.echoes)) as u32)
    }

    /// Returns the largest permitted difference between the measured and the requested delay: 5 % or 200 us, whichever
    /// is greater, and what can be due to chance.
    pub fn tolerance(&self) -> Span {
        let uncertainty = self.measured.map_or(Span::ZERO, |it| it.uncertainty);
        Span::from_micros(200).max(Span(self.requested.latency.0 / 20)) + uncertainty
    }
}

/// Expected results, with which the run's results are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expected {
    /// The origin of the results: a sequential reference, or a run without faults.
    pub source: String,
    /// The digest of each rank's result; empty if a program computed other results when they were computed again, so that
    /// they cannot be compared.
    #[serde(with = "hexadecimal")]
    pub digests: Vec<(ProcessId, Digest)>,
}

/// Encodes digests as hexadecimal text.
mod hexadecimal {
    use super::{Digest, ProcessId};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        digests: &[(ProcessId, Digest)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(digests.iter().map(|(process, digest)| (process, digest.to_string())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(ProcessId, Digest)>, D::Error> {
        let entries: Vec<(ProcessId, String)> = Vec::deserialize(deserializer)?;
        let parse = |(process, text): (ProcessId, String)| {
            let value = u128::from_str_radix(&text, 16).ok().filter(|_| text.len() == 32)?;
            Some((process, Digest(value.to_be_bytes())))
        };
        entries
            .into_iter()
            .map(|entry| {
                parse(entry).ok_or_else(|| D::Error::custom("a digest must have 32 hexadecimal digits"))
            })
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use faultline_core::fault::FaultState;
    use faultline_core::{FactNo, Fault, FaultNo, Promise, Scope, Time, Trigger};

    pub(crate) fn example() -> Manifest {
        Manifest {
            format: FORMAT,
            tool: "0.1.0".into(),
            program: None,
            name: "quick-start".into(),
            backend: BackendKind::Local,
            seed: 7,
            federation: "kind: Federation\n".into(),
            protocol: "coordinated".into(),
            promises: Promises::of_scope(Scope::Federation).with(&[Promise::Checkpoints]),
            clusters: vec![ClusterEntry { name: "paris".into(), nodes: 1 }],
            leaving: vec![],
            processes: vec![ProcessEntry { name: "paris-0".into(), role: Role::RANK, cluster: ClusterId(0) }],
            bounds: Some(Bounds {
                checkpoint_every: vec![Some(Span::from_secs(2))],
                detect_after: Span::from_millis(500),
                collect_every: None,
                delivered_within: None,
            }),
            copies: Some(Copies { replicas: 1, kept_by: ReplicaHolders::SharedStorage }),
            volatile_storage: false,
            longest_task: Some(Span::from_millis(20)),
            plan: vec![PlannedFault {
                no: FaultNo(0),
                trigger: Trigger::At(Time(4)),
                fault: Fault::crash(ProcessId(0)),
                reported: None,
                cause: None,
            }],
            drawn: vec![],
            has_random_faults: false,
            faults: vec![(FaultNo(0), FaultState::Ineffective("it was late".into()))],
            effects: vec![],
            pressure: None,
            environment: BTreeMap::new(),
            spares: 0,
            at_once_within: Span::from_millis(50),
            links: vec![link(8_000, Some(8_100))],
            expected: Some(Expected {
                source: "a sequential run".into(),
                digests: vec![(ProcessId(0), Digest([1; 16]))],
            }),
            expectations: vec![Expectation::RecoveredWithin(Span::from_secs(3))],
            system: None,
            outcome: Some(Outcome::Completed),
            waiting: Vec::new(),
            started_unix_ms: 1,
            duration: Span::from_secs(9),
            facts: Vec::new(),
            events: None,
        }
    }

    fn link(asked_us: u64, measured_us: Option<u64>) -> LinkEntry {
        LinkEntry {
            from: ClusterId(0),
            to: ClusterId(1),
            requested: LinkProperties { latency: Span::from_micros(asked_us), ..LinkProperties::default() },
            measured: measured_us.map(|us| LinkMeasured {
                latency: Span::from_micros(us),
                jitter: Span::ZERO,
                samples: 9,
                rounds: 2,
                uncertainty: Span::ZERO,
            }),
            observed: None,
            since: None,
        }
    }

    #[test]
    fn a_manifest_round_trips_through_json() {
        let json = serde_json::to_string(&example()).unwrap();
        let read: Manifest = serde_json::from_str(&json).unwrap();
        assert_eq!(read, Manifest { federation: String::new(), ..example() });
        assert!(json.contains("01010101010101010101010101010101"), "{json}");
        let promises = r#""promises":{"scope":"federation","properties":["checkpoints"]}"#;
        assert!(json.contains(promises), "{json}");
        let unknown = json.replace(r#"["checkpoints"]"#, r#"["everything"]"#);
        assert!(serde_json::from_str::<Manifest>(&unknown).is_err());
    }

    #[test]
    fn links_may_differ_by_5_percent_or_200_us() {
        assert_eq!(link(8_000, None).as_requested(), None);
        assert_eq!(link(8_000, Some(8_400)).as_requested(), Some(true));
        assert_eq!(link(8_000, Some(8_401)).as_requested(), Some(false));
        assert_eq!(link(8_000, Some(7_599)).as_requested(), Some(false));
        assert_eq!(link(100, Some(300)).as_requested(), Some(true));
        assert_eq!(link(100, Some(301)).as_requested(), Some(false));
    }

    #[test]
    fn impossible_counts_of_echoes_are_implausible() {
        let seen = |echoes, outside, mean_ms| LinkEntry {
            observed: Some(LinkObserved { echoes, outside, mean: Span::from_millis(mean_ms) }),
            ..link(8_000, Some(8_000))
        };
        assert!(link(8_000, None).is_plausible() && seen(0, 0, 0).is_plausible());
        assert!(seen(50, 0, 9).is_plausible() && seen(50, 1, 14).is_plausible());
        assert!(!seen(50, 0, 10).is_plausible(), "1 ms is tolerated");
        assert!(!seen(50, 51, 14).is_plausible());
    }

    #[test]
    fn a_skew_is_never_too_long_to_be_known() {
        let on = |error| Effect {
            process: ProcessId(0),
            life: Life(1),
            at: Some(Time(5)),
            exited: None,
            slowed: None,
            error: Span(error),
        };
        let effect =
            EffectEntry { no: FaultNo(0), due: Time(0), on: vec![on(0), on(u64::MAX)], idle: Vec::new() };
        assert_eq!(effect.skew(), Some(Span(u64::MAX)));
    }

    #[test]
    fn processes_exit_after_they_stop() {
        let on = |process, at, exited| Effect {
            process: ProcessId(process),
            life: Life(1),
            at,
            exited,
            slowed: None,
            error: Span::ZERO,
        };
        let exit = |on| EffectEntry { no: FaultNo(0), due: Time(0), on, idle: Vec::new() }.exit();
        let [first, second] = [on(0, Some(Time(5)), Some(Time(9))), on(1, Some(Time(7)), Some(Time(10)))];
        assert_eq!(exit(vec![first, second]), Some(Span(4)), "not from the first stop to the last exit");
        assert_eq!(exit(vec![first, on(1, Some(Time(7)), None)]), None, "one time is unknown");
        assert_eq!(exit(vec![]), None);
    }

    #[test]
    fn an_effect_of_an_older_record_has_no_exit() {
        let older = r#"{"process":0,"life":1,"at":5,"error":0}"#;
        let effect: Effect = serde_json::from_str(older).expect("older records are readable");
        assert_eq!(effect.exited, None);
    }

    #[test]
    fn a_run_that_was_cut_short_is_recognized_by_its_facts() {
        let mut trace = Trace::default();
        let added = PlannedFault { no: FaultNo(1), ..example().plan[0].clone() };
        let facts = [
            (Time(1), Fact::Begun),
            (Time(7), Fact::Injecting { no: FaultNo(0), fault: Box::new(example().plan[0].fault.clone()) }),
            (Time(8), Fact::Changed(Box::new(Change::Fault(added.clone())))),
        ];
        trace.streams.insert((ProcessId::SUPERVISOR, Life(0)), facts.into());
        let mut manifest = Manifest { outcome: None, faults: Vec::new(), duration: Span::ZERO, ..example() };
        manifest.fill_in(&trace);
        assert_eq!(manifest.faults, [(FaultNo(0), FaultState::Effective), (FaultNo(1), FaultState::Pending)]);
        assert_eq!(manifest.plan[1..], [added], "faults added during the run belong to the plan");
        assert_eq!(manifest.duration, Span(8));
        trace.streams.insert((ProcessId(0), Life(1)), vec![(Time(30), Fact::Computed { since: FactNo(0) })]);
        manifest.fill_in(&trace);
        assert_eq!(manifest.duration, Span(30), "the supervisor's last fact is older");
        let mut whole = example();
        whole.fill_in(&trace);
        assert_eq!(whole, example());
    }
}
