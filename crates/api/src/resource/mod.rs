//! The types of the `Federation` resource.
//!
//! This module contains only types. [`crate::validate()`] checks combinations of values. The CEL rules here cover the
//! checks that an API server can run by itself; `faultline-client` tests that they agree with [`crate::validate()`].
//!
//! Rules for these types, most of them enforced by API servers: an enum is externally tagged, with one value in each
//! variant, or consists of plain words; numbers are `u32`, `u64`, `i64` or `f64`; strings, lists and maps are bounded;
//! absent values are not serialised; unknown fields are errors.

mod application;
mod clients;
pub mod custom;
mod expect;
mod fault;
mod federation;
mod known;
mod kubernetes;
mod link;
mod program;
mod protocol;
mod rules;
mod simulator;
mod system;
mod tasks;
mod trigger;

pub use application::*;
pub use clients::Clients;
pub(crate) use clients::MAX_OPERATIONS;
pub use custom::Custom;
pub use expect::*;
pub use fault::*;
pub(crate) use federation::Document;
pub use federation::{Federation, Metadata, to_yaml};
pub use known::{Collection, Demand, Logs, Options, SharedOptions};
pub use kubernetes::*;
pub use link::*;
pub use program::{ApplicationProgram, Launch, Program, ProgramFile, Receives};
pub use protocol::*;
pub(crate) use rules::{CANNOT_CHANGE, CHANGE_HELP, difference_of_fields, stored};
pub use rules::{Rule, naming_rules};
pub use simulator::*;
pub use system::{Attempt, Ends, MAX_SYSTEM_NODES, OnExit, OnNode, Override, Probe, Ready, SetUp, System};
pub(crate) use system::{MAX_TEXT, TEMPLATE, problem_of_words};
pub use tasks::*;
pub use trigger::*;

use faultline_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::quantity::{Bandwidth, Duration};

/// Maximum number of clusters in a federation.
pub const MAX_CLUSTERS: usize = 256;
/// Maximum number of nodes in a cluster.
pub const MAX_NODES_PER_CLUSTER: u32 = 100_000;
/// Maximum number of nodes in a federation.
pub const MAX_NODES: u32 = 1_000_000;
/// Maximum number of nodes in a federation whose processes roll back individually, each as a group of its
/// own.
pub const MAX_NODES_ALONE: u32 = u16::MAX as u32;
/// Maximum number of storage servers.
pub const MAX_SERVERS: u32 = 1024;
/// Maximum number of exceptions in `links.pairs`.
pub const MAX_PAIRS: usize = 512;
/// Maximum number of entries in the `messages` of `exact` traffic.
pub const MAX_COUNTS: usize = 1024;
/// Maximum number of spare nodes.
pub const MAX_SPARES: u32 = 10_000;
/// Maximum number of entries in `faults`.
pub const MAX_FAULTS: usize = 256;
/// Minimum time without a heartbeat after which a process may be declared failed.
pub const MIN_DETECT_AFTER: Span = Span::from_millis(20);
/// Represents a target that is drawn from the seed or, in the trigger `when`, every cluster. Cannot be the name of a
/// cluster.
pub const ANY: &str = "any";

/// Clusters, the links between them, a protocol, an application, faults and a seed: one experiment.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(inline, extend("x-kubernetes-validations" = [
    rules::stays::<u64>("seed"),
    rules::clusters_stay(),
    rules::stays::<Storage>("storage"),
    rules::stays::<ProtocolSpec>("protocol"),
    rules::stays_required::<ApplicationSpec>("application"),
    rules::stays::<Stealing>("stealing"),
    rules::stays::<Schedule>("schedule"),
    rules::stays::<Failures>("failures"),
    rules::stays::<Duration>("deadline"),
    rules::stays::<Vec<ExpectSpec>>("expect"),
    rules::stays::<Kubernetes>("kubernetes"),
    rules::stays::<Simulator>("simulator"),
    rules::faults_are_added(),
    rules::has_a_protocol(),
    rules::few_nodes(),
    rules::pairs_name_clusters("from"),
    rules::pairs_name_clusters("to"),
    rules::name_clusters(&rules::TARGETS),
    rules::name_clusters(&["link.to", "partition.to"]),
    rules::name_clusters(&["when.cluster"]),
    rules::name_nodes(&rules::WITH_NODES),
    rules::name_nodes(&["when"]),
    rules::trigger_names_a_cluster(),
    rules::jitter_within_latency_of_faults(),
    rules::places_clusters("pools"),
    rules::places_clusters("sites"),
]))]
pub struct FederationSpec {
    /// Seed of all random choices. Default 0. On Kubernetes, at most 9223372036854775807.
    #[schemars(with = "Option<i64>", range(min = 0))]
    pub seed: Option<u64>,
    /// The clusters. Clusters and processes are numbered in this order.
    #[schemars(
        length(min = 1, max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub clusters: Vec<ClusterSpec>,
    /// Properties of the network between processes.
    pub links: Option<Links>,
    /// Properties of the storage of each node.
    pub storage: Option<Storage>,
    /// The protocol that protects the application. Required, except for a system, which runs without one.
    #[serde(default = "ProtocolSpec::absent", skip_serializing_if = "ProtocolSpec::is_absent")]
    pub protocol: ProtocolSpec,
    /// The application that runs under the protocol, or the system.
    pub application: ApplicationSpec,
    /// How idle processes get tasks from others. Only for task-based programs.
    pub stealing: Option<Stealing>,
    /// How the tasks of a program are assigned to processes in advance. Only for task-based programs, under a protocol
    /// that does not let processes steal tasks.
    pub schedule: Option<Schedule>,
    /// How failures are detected and failed processes restarted.
    pub failures: Option<Failures>,
    /// The faults to inject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub faults: Vec<FaultSpec>,
    /// Time limit of the run, counted from the start of the application. A run that exceeds it never has the verdict
    /// `pass`. Default 5m.
    pub deadline: Option<Duration>,
    /// What is expected of the run, in addition to what every run must show. A run that does not meet an expectation
    /// has the verdict `fail`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub expect: Vec<ExpectSpec>,
    /// Properties of the pods. Ignored by the other backends.
    pub kubernetes: Option<Kubernetes>,
    /// Random effects and delays of the simulator. The other backends ignore all of these fields except
    /// `leastWorkLeft`.
    pub simulator: Option<Simulator>,
    /// While true, all processes are paused. A pause counts neither towards the deadline nor towards the times of
    /// faults. If true from the start, the application does not begin until the pause ends. Works only on Kubernetes,
    /// where it may change while the federation runs, like `links` and `faults`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pause: bool,
}

/// A cluster: a failure domain with a fast network inside.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(inline, extend("x-kubernetes-validations" = [rules::is_not_reserved()]))]
pub struct ClusterSpec {
    /// Name of the cluster, and prefix of its processes' names: `paris-0`, `paris-1`, and so on.
    #[schemars(length(min = 1, max = 40), pattern(r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Number of nodes. Each runs one process.
    #[schemars(range(min = 1, max = 100_000))]
    pub nodes: u32,
    /// Time at which the cluster joins, counted from the start of the application. No process sends to it before then.
    /// Under `cck`, other processes run its partitions until then. Default: it is part of the federation from the
    /// start. Requires `hc3i` and `synthetic` traffic with a duration, or a task-based program under `cck`, `tic`,
    /// `sel`, `satin` or `none`. On Kubernetes, the cluster's pods are created at the start, and its processes wait in
    /// them.
    pub joins_after: Option<Duration>,
    /// Computing time after which the cluster leaves. No process sends to it afterwards. Once no recovery can need
    /// anything from it, its processes end and its storage is released. Under `cck`, the time is counted from the start
    /// of the application, and the cluster leaves once its partitions have moved to other processes. On Kubernetes, its
    /// pods stay until the run ends. Default: it stays until the end.
    pub leaves_after: Option<Duration>,
    /// Speed at which the nodes run tasks, in percent. At 200, a task takes half of its modelled time. Default 100.
    /// Only for task-based programs.
    #[schemars(range(min = 1, max = 10_000))]
    pub speed: Option<u32>,
    /// Number of tasks that each node runs in parallel. Default 1. Only for task-based programs.
    #[schemars(range(min = 1, max = 256))]
    pub cores: Option<u32>,
    /// Number of nodes in each rack: with 4, nodes 0 to 3 are rack 0, and so on. The fault `loseRack` ends all processes
    /// of a rack at once. Default: the cluster has no racks.
    #[schemars(range(min = 1, max = 100_000))]
    pub rack: Option<u32>,
}

impl ClusterSpec {
    /// Returns a cluster that stays from the start to the end.
    pub fn new(name: &str, nodes: u32) -> ClusterSpec {
        ClusterSpec {
            name: name.to_owned(),
            nodes,
            joins_after: None,
            leaves_after: None,
            speed: None,
            cores: None,
            rack: None,
        }
    }

    /// Returns [`speed`](field@ClusterSpec::speed), or its default.
    pub fn speed(&self) -> u32 {
        self.speed.unwrap_or(100)
    }

    /// Returns [`cores`](field@ClusterSpec::cores), or its default.
    pub fn cores(&self) -> u32 {
        self.cores.unwrap_or(1)
    }

    /// Returns the number of racks; 0 if the cluster has none.
    pub fn racks(&self) -> u32 {
        self.rack.map_or(0, |it| self.nodes.div_ceil(it.max(1)))
    }

    /// Returns whether the cluster stays from the start to the end.
    pub fn is_permanent(&self) -> bool {
        self.joins_after.is_none() && self.leaves_after.is_none()
    }
}

/// Properties of a node's storage. In the simulator, writes and reads take these times; the other backends slow down
/// real ones to match them.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Storage {
    /// Where checkpoints are stored. Default `disk`.
    #[serde(default)]
    pub kind: StorageKind,
    /// Maximum write bandwidth. Default: that of the disk; the simulator assumes a solid-state disk.
    pub write_bandwidth: Option<Bandwidth>,
    /// Maximum read bandwidth. Default: `writeBandwidth`.
    pub read_bandwidth: Option<Bandwidth>,
    /// Time per write or read in addition to the transfer. Default: that of the disk; the simulator assumes a solid-state disk.
    pub latency: Option<Duration>,
    /// Stores a digest of the state with each part of a checkpoint. If the state that is read back has another digest, the
    /// part counts as damaged. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
}

impl Storage {
    /// Returns the maximum read bandwidth; `None` if it is that of the disk.
    pub fn read_bandwidth(&self) -> Option<Bandwidth> {
        self.read_bandwidth.or(self.write_bandwidth)
    }
}

/// Where checkpoints are stored.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StorageKind {
    /// In memory. Lost with the process, so only replicas on other nodes survive a crash.
    Memory,
    /// In files that are flushed to the device.
    #[default]
    Disk,
}

/// How failures are detected and failed processes restarted.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failures {
    /// A process that sends no heartbeat for this long is declared failed: the supervisor ends it and announces its
    /// failure. Default 500ms, and 30s for a system. On one machine, the nodes of a system never fail in this way.
    pub detect_after: Option<Duration>,
    /// Time from the announcement of a failure to the start of the next life. Default 200ms.
    pub restart_after: Option<Duration>,
    /// Number of spare nodes of the federation, at most 10,000. A process whose node is under repair (`repair` of a fault)
    /// starts again on a spare node, without its data. A node that has been repaired is a spare. Default 0.
    #[schemars(range(min = 0, max = MAX_SPARES))]
    pub spares: Option<u32>,
    /// On Kubernetes: time after which a pod that stays silent is replaced, counted from when its process was declared
    /// failed. Data that is not on a volume is then lost. Default 10s.
    pub replace_after: Option<Duration>,
    /// Maximum time that a cluster loss may take to end all processes. If it takes longer, the verdict is `unknown`.
    /// Default 50ms.
    pub at_once_within: Option<Duration>,
}

impl FederationSpec {
    /// Returns a federation without faults, in which everything else has its default.
    pub fn new(
        clusters: Vec<ClusterSpec>,
        protocol: ProtocolSpec,
        application: ApplicationSpec,
    ) -> FederationSpec {
        FederationSpec {
            seed: None,
            clusters,
            links: None,
            storage: None,
            protocol,
            application,
            stealing: None,
            schedule: None,
            failures: None,
            faults: Vec::new(),
            deadline: None,
            kubernetes: None,
            simulator: None,
            expect: Vec::new(),
            pause: false,
        }
    }

    /// Returns the seed; 0 if none is given.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }

    /// Returns the expectations that are checks, in the order of their numbers.
    pub fn checks(&self) -> impl Iterator<Item = &ExpectSpec> {
        self.expect.iter().filter(|it| it.check.is_some())
    }

    /// Returns whether anything must emulate links: one of them has other properties than the preset `none`, or a fault
    /// changes or cuts links.
    pub fn needs_emulated_links(&self) -> bool {
        let links = self.links().expand(&self.clusters);
        let is_of_links = |name: &str| ["link", "partition"].contains(&name);
        links.values().any(|it| *it != faultline_core::fault::LinkProperties::default())
            || self.faults.iter().any(|it| it.actions().iter().any(|it| is_of_links(it.0)))
    }

    /// Returns the commands that nodes of a cluster may run after a restart, with the number of the fault in the list.
    pub fn later_commands(&self, cluster: &str) -> impl Iterator<Item = (usize, &[String])> {
        let restarts =
            self.faults.iter().enumerate().filter_map(|(entry, it)| Some((entry, it.restart.as_ref()?)));
        let concerned = restarts.filter(move |(_, it)| it.cluster == ANY || it.cluster == cluster);
        concerned.filter_map(|(entry, it)| Some((entry, it.command.as_deref()?)))
    }

    /// Returns the links, with defaults if none are given. Nothing is requested of the links of a system whose file says
    /// nothing about them.
    pub fn links(&self) -> Links {
        self.links.clone().unwrap_or_else(|| match self.application.system() {
            Some(_) => Links::not_emulated(),
            None => Links::default(),
        })
    }

    /// Returns the storage, with defaults if none is given.
    pub fn storage(&self) -> Storage {
        self.storage.clone().unwrap_or_default()
    }

    /// Returns the settings for stealing, with defaults if none are given.
    pub fn stealing(&self) -> Stealing {
        self.stealing.clone().unwrap_or_default()
    }

    /// Returns the settings of the schedule, with defaults if none are given.
    pub fn schedule(&self) -> Schedule {
        self.schedule.clone().unwrap_or_default()
    }

    /// Returns whether tasks are assigned to processes in advance, instead of being stolen. Under `none`, this requires
    /// a federation that has no settings for stealing, and that either has a schedule or runs a program whose tasks are
    /// all known in advance.
    pub fn is_planned(&self) -> bool {
        let is_asked = || self.application.is_planned() || self.schedule.is_some();
        self.application.family() == application::Family::Tasks
            && (self.protocol.plans()
                || self.protocol.family().is_none() && self.stealing.is_none() && is_asked())
    }

    /// Returns the settings for failures, with defaults if none are given.
    pub fn failures(&self) -> Failures {
        self.failures.clone().unwrap_or_default()
    }

    /// Returns the time without a heartbeat after which a process is declared failed. The end of a system's command is
    /// observed, so its limit only detects that a pod is gone.
    pub fn detect_after(&self) -> Span {
        let failures = self.failures();
        match failures.detect_after {
            None if self.application.system().is_some() => Span::from_secs(30),
            _ => failures.detect_after(),
        }
    }

    /// Returns the settings of the simulator, with defaults if none are given.
    pub fn simulator(&self) -> Simulator {
        self.simulator.clone().unwrap_or_default()
    }

    /// Returns the deadline, counted from the start of the application.
    pub fn deadline(&self) -> Span {
        self.deadline.map_or(Span::from_secs(300), |it| it.0)
    }

    /// Returns the time until which `mtbf` and `trace` entries cause faults, counted from the start of the application: the
    /// end of a system's run, as far as the file determines it, and otherwise the deadline.
    pub fn faults_end(&self) -> Span {
        let end = self.application.system().and_then(|system| match &system.ends {
            Some(ends) => ends.after.map(|it| it.0),
            None if self.faults.iter().any(|it| it.trace.is_some()) => None,
            None => {
                let last = self.faults.iter().filter_map(|it| Some(it.at?.0)).max();
                Some(last.unwrap_or(Span::ZERO) + System::AFTER_LAST_FAULT)
            }
        });
        end.map_or(self.deadline(), |it| it.min(self.deadline()))
    }
}

impl Failures {
    /// Returns [`detect_after`](field@Failures::detect_after), or its default for a protocol.
    pub fn detect_after(&self) -> Span {
        self.detect_after.map_or(Span::from_millis(500), |it| it.0)
    }

    /// Returns [`restart_after`](field@Failures::restart_after), or its default.
    pub fn restart_after(&self) -> Span {
        self.restart_after.map_or(Span::from_millis(200), |it| it.0)
    }

    /// Returns [`spares`](field@Failures::spares), or its default.
    pub fn spares(&self) -> u32 {
        self.spares.unwrap_or(0)
    }

    /// Returns [`replace_after`](field@Failures::replace_after), or its default.
    pub fn replace_after(&self) -> Span {
        self.replace_after.map_or(Span::from_secs(10), |it| it.0)
    }

    /// Returns [`at_once_within`](field@Failures::at_once_within), or its default.
    pub fn at_once_within(&self) -> Span {
        self.at_once_within.map_or(Span::from_millis(50), |it| it.0)
    }
}
