//! The values on a metrics page.

use std::collections::BTreeMap;

use faultline_core::fault::{FaultState, LinkProperties};
use faultline_core::{ClusterId, Fault, FaultNo, Gauges, Span};
use faultline_trace::Manifest;
use faultline_trace::manifest::BackendKind;

use super::{ClusterNames, Counts, Delays};

/// Current values of a metrics page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) clusters: ClusterNames,
    /// Values of each cluster. A node shows its own cluster only.
    pub(crate) values: BTreeMap<ClusterId, Values>,
    /// Requested properties of the links.
    pub(crate) requested: Vec<((ClusterId, ClusterId), LinkProperties)>,
    /// Observed delays of the links.
    pub(crate) delays: Delays,
    /// Values of the entire run, on the supervisor's page.
    pub(crate) run: Option<RunValues>,
    /// Whether the run has ended. Latencies of links are then omitted.
    pub(crate) over: bool,
}

/// Values of the processes of a cluster, summed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    pub(crate) counts: Counts,
    pub(crate) gauges: Gauges,
}

/// Values of a run that belong to no process.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunValues {
    pub(crate) info: Option<RunInfo>,
    pub(crate) phase: PhaseLabel,
    pub(crate) verdict: Option<VerdictLabel>,
    /// Clusters that are or were part of the federation.
    pub(crate) clusters: BTreeMap<ClusterId, Uptime>,
    pub(crate) faults: BTreeMap<FaultNo, FaultEntry>,
    /// Free spare nodes.
    pub(crate) spares: u32,
    /// Skew and latency of each fault, if known.
    pub(crate) effects: BTreeMap<FaultNo, (Option<Span>, Option<Span>)>,
    /// Time to detect each failure.
    pub(crate) detections: Vec<Span>,
    /// Time from each failure until the failed process had restored its state.
    pub(crate) recoveries: Vec<Span>,
}

/// How many processes a cluster has, how many of them are up, and for how long its processes were up or down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uptime {
    pub(crate) processes: u32,
    pub(crate) up: u32,
    /// Time for which processes have been up since the application began, summed over processes. Pauses of
    /// the federation do not count.
    pub(crate) time_up: Span,
    /// Time for which processes have not been up, measured like `time_up`.
    pub(crate) time_down: Span,
}

/// A fault in the plan, and its state.
#[derive(Clone, Debug)]
pub(crate) struct FaultEntry {
    /// Kind of fault: its name in the federation file.
    pub(crate) kind: &'static str,
    /// Whether the fault kills several processes, which must end at the same time.
    pub(crate) is_at_once: bool,
    pub(crate) is_injected: bool,
    pub(crate) state: FaultState,
}

/// Labels that identify a run in its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// Name of the federation.
    pub federation: String,
    /// Name of the protocol.
    pub protocol: String,
    /// Name of the backend.
    pub backend: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// Largest permitted time between the first and the last end of a process in a cluster loss.
    pub at_once_within: Span,
    /// Names of the probes of a system.
    pub probes: Vec<String>,
    /// Names of the histories of clients of a system.
    pub histories: Vec<String>,
}

impl RunValues {
    /// Returns the number of cluster losses whose effects were further apart than the federation permits.
    pub(crate) fn losses_apart(&self) -> u64 {
        let Some(info) = &self.info else { return 0 };
        let is_apart = |(no, (skew, _)): &(&FaultNo, &(Option<Span>, Option<Span>))| {
            let is_loss = self.faults.get(no).is_some_and(|it| it.is_at_once);
            is_loss && skew.is_some_and(|it| it > info.at_once_within)
        };
        self.effects.iter().filter(is_apart).count() as u64
    }
}

impl RunInfo {
    /// Creates the labels of the run that `manifest` describes.
    pub fn of(manifest: &Manifest) -> RunInfo {
        RunInfo {
            federation: manifest.name.clone(),
            protocol: manifest.protocol.clone(),
            backend: match manifest.backend {
                BackendKind::Simulate => "simulate",
                BackendKind::Local => "local",
                BackendKind::Kubernetes => "kubernetes",
                BackendKind::Events => "events",
            },
            seed: manifest.seed,
            at_once_within: manifest.at_once_within,
            probes: manifest.names().probes.iter().map(ToString::to_string).collect(),
            histories: manifest
                .system
                .iter()
                .flat_map(|it| &it.histories)
                .map(|it| it.name.clone())
                .collect(),
        }
    }
}

/// Phase of a run in its metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PhaseLabel {
    /// Processes are starting, or links are being measured.
    #[default]
    Starting,
    /// The application is running.
    Running,
    /// The user has paused the federation.
    Paused,
    /// The run has ended, and its record is being judged.
    Judging,
    /// The run has been judged.
    Completed,
    /// The run could not be performed.
    Failed,
}

impl PhaseLabel {
    /// All phases, in order.
    pub const ALL: [PhaseLabel; 6] = [
        PhaseLabel::Starting,
        PhaseLabel::Running,
        PhaseLabel::Paused,
        PhaseLabel::Judging,
        PhaseLabel::Completed,
        PhaseLabel::Failed,
    ];
}

/// Verdict of a run in its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictLabel {
    /// All required properties hold.
    Pass,
    /// A required property could not be judged.
    Unknown,
    /// A property is violated.
    Fail,
}

impl VerdictLabel {
    /// All verdicts, from best to worst.
    pub const ALL: [VerdictLabel; 3] = [VerdictLabel::Pass, VerdictLabel::Unknown, VerdictLabel::Fail];

    /// Returns the name of the verdict in labels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            VerdictLabel::Pass => "pass",
            VerdictLabel::Unknown => "unknown",
            VerdictLabel::Fail => "fail",
        }
    }
}

impl FaultEntry {
    /// Creates the entry of a fault that has not been injected.
    pub(crate) fn new(fault: &Fault) -> FaultEntry {
        let is_at_once = fault.kills_at_once().is_some();
        FaultEntry { kind: fault.kind(), is_at_once, is_injected: false, state: FaultState::Pending }
    }
}

impl Page {
    /// Changes the requested properties of a link.
    pub(crate) fn ask(&mut self, from: ClusterId, to: ClusterId, properties: LinkProperties) {
        self.requested.retain(|(pair, _)| *pair != (from, to));
        self.requested.push(((from, to), properties));
        self.requested.sort_by_key(|&(pair, _)| pair);
    }

    /// Returns a mutable reference to the values of the entire run.
    pub(crate) fn run(&mut self) -> &mut RunValues {
        self.run.get_or_insert_default()
    }
}
