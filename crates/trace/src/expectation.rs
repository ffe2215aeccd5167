//! What a federation expects of a run, and the parts of a user's own system to which facts and expectations refer, as
//! listed in the manifest.

use std::sync::Arc;

use faultline_consistency::Workload;
use faultline_core::{
    CheckNo, ClusterId, HistoryNo, LatencyOf, LinesOf, ProbeNo, ProcessId, RunNames, Span, WatchNo,
};
use serde::{Deserialize, Serialize};

use crate::duration::lasted;
use crate::possible::Extent;

/// One assertion of the federation file about the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Expectation {
    /// No recovery took longer than this, from the first failure until the last process that rolled back had resumed.
    RecoveredWithin(Span),
    /// At most this many rollbacks happened.
    Rollbacks {
        /// The largest permitted number.
        at_most: u64,
    },
    /// At most this much work was lost, summed over all processes.
    LostWork {
        /// The largest permitted sum.
        at_most: Span,
    },
    /// The run completed within this time, counted from the start of the application.
    FinishedWithin(Span),
    /// A probe was up for at least this fraction of the time.
    Availability {
        /// The probe.
        probe: ProbeNo,
        /// The smallest permitted fraction.
        at_least: f64,
    },
    /// The successful samples of a probe took at most this long.
    Latency {
        /// The probe.
        probe: ProbeNo,
        /// The samples that the limit is about.
        of: LatencyOf,
        /// The longest permitted time.
        at_most: Span,
    },
    /// No outage of a probe lasted longer than this.
    LongestOutage {
        /// The probe.
        probe: ProbeNo,
        /// The longest permitted outage.
        at_most: Span,
    },
    /// After each fault, a probe succeeded again within this time.
    ProbeRecovered {
        /// The probe.
        probe: ProbeNo,
        /// The longest permitted time.
        within: Span,
    },
    /// A command succeeds at the end of the run.
    Check {
        /// The number of the check.
        check: CheckNo,
        /// What the command finds if it succeeds.
        text: Arc<str>,
        /// The process whose node runs the command.
        by: ProcessId,
        /// The time limit of the command.
        within: Span,
    },
    /// At most this many commands of a cluster ended by themselves.
    Exits {
        /// The cluster.
        cluster: ClusterId,
        /// The largest permitted number.
        at_most: u64,
    },
    /// At least this many faults took effect.
    Faults {
        /// The smallest permitted number.
        at_least: u64,
    },
    /// The programs logged what they should.
    Lines {
        /// The watch whose lines count.
        watch: WatchNo,
        /// What is asserted of them.
        are: LinesAre,
    },
}

/// An assertion about the lines of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum LinesAre {
    /// After each fault, the next line followed within this time.
    RecoveredWithin {
        /// The longest permitted time.
        within: Span,
        /// The lines that are considered together.
        per: LinesOf,
    },
    /// From the first line to the end, no longer time passed without a line.
    LongestGap {
        /// The longest permitted time.
        at_most: Span,
        /// The lines that are considered together.
        per: LinesOf,
    },
    /// A group had the same value in all lines that have the same value of another group.
    Same {
        /// The group whose values are compared.
        group: Arc<str>,
        /// The group whose values distinguish lines; all lines are compared without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_each: Option<Arc<str>>,
    },
    /// The value of a group was larger in each line than in the one before.
    Increases {
        /// The group.
        group: Arc<str>,
        /// The lines that are considered together.
        per: LinesOf,
    },
    /// There were at most this many lines.
    AtMost(u64),
    /// There were at least this many lines.
    AtLeast(u64),
}

impl LinesAre {
    /// Returns the assertion as a noun phrase.
    fn describe(&self, watch: &str) -> String {
        let at = |per: &LinesOf| match per {
            LinesOf::Life => " in each life",
            LinesOf::Node => " at each node",
            LinesOf::Run => "",
        };
        match self {
            LinesAre::RecoveredWithin { within, per } => {
                format!("a line of {watch}{} within {} of each fault", at(per), lasted(*within))
            }
            LinesAre::LongestGap { at_most, per } => {
                format!("no more than {} between lines of {watch}{}", lasted(*at_most), at(per))
            }
            LinesAre::Same { group, for_each: Some(key) } => {
                format!("the same {group} in all lines of {watch} with the same {key}")
            }
            LinesAre::Same { group, for_each: None } => format!("the same {group} in all lines of {watch}"),
            LinesAre::Increases { group, per } => {
                format!("an increasing {group} in the lines of {watch}{}", at(per))
            }
            LinesAre::AtMost(0) => format!("no line of {watch}"),
            LinesAre::AtMost(1) => format!("at most 1 line of {watch}"),
            LinesAre::AtMost(most) => format!("at most {most} lines of {watch}"),
            LinesAre::AtLeast(1) => format!("at least 1 line of {watch}"),
            LinesAre::AtLeast(least) => format!("at least {least} lines of {watch}"),
        }
    }
}

impl Expectation {
    /// Returns the expectation as a noun phrase.
    pub fn describe(&self, names: &RunNames) -> String {
        match self {
            Expectation::RecoveredWithin(within) => format!("recovery within {}", lasted(*within)),
            Expectation::Rollbacks { at_most: 0 } => "no rollback".to_owned(),
            Expectation::Rollbacks { at_most: 1 } => "at most 1 rollback".to_owned(),
            Expectation::Rollbacks { at_most } => format!("at most {at_most} rollbacks"),
            Expectation::LostWork { at_most } => format!("at most {} of lost work", lasted(*at_most)),
            Expectation::FinishedWithin(within) => format!("the end within {}", lasted(*within)),
            Expectation::Availability { probe, at_least } => {
                format!("availability of {} of at least {:.1} %", names.probe(*probe), at_least * 100.0)
            }
            Expectation::Latency { probe, of, at_most } => {
                let which = match of {
                    LatencyOf::Max => "the latency",
                    LatencyOf::P50 | LatencyOf::P99 => of.name(),
                };
                format!("{which} of {} within {}", names.probe(*probe), lasted(*at_most))
            }
            Expectation::LongestOutage { probe, at_most } => {
                format!("no outage of {} longer than {}", names.probe(*probe), lasted(*at_most))
            }
            Expectation::ProbeRecovered { probe, within } => {
                format!("recovery of {} within {}", names.probe(*probe), lasted(*within))
            }
            Expectation::Check { text, .. } => format!("success of check \"{text}\""),
            Expectation::Exits { cluster, at_most } => {
                format!("at most {at_most} ended commands in {}", names.cluster(*cluster))
            }
            Expectation::Faults { at_least: 1 } => "at least 1 fault that takes effect".to_owned(),
            Expectation::Faults { at_least } => format!("at least {at_least} faults that take effect"),
            Expectation::Lines { watch, are } => are.describe(&names.watch(*watch)),
        }
    }

    /// Returns whether everything that this expectation names exists.
    pub(crate) fn is_possible(&self, extent: Extent, system: Option<&SystemEntry>) -> bool {
        let exists = |it: ProbeNo| system.is_some_and(|of| it.index() < of.probes.len());
        match *self {
            Expectation::RecoveredWithin(_)
            | Expectation::Rollbacks { .. }
            | Expectation::LostWork { .. }
            | Expectation::FinishedWithin(_)
            | Expectation::Faults { .. } => true,
            Expectation::Availability { probe, .. }
            | Expectation::Latency { probe, .. }
            | Expectation::LongestOutage { probe, .. }
            | Expectation::ProbeRecovered { probe, .. } => exists(probe),
            Expectation::Lines { watch, .. } => system.is_some_and(|of| watch.index() < of.watches.len()),
            Expectation::Check { by, .. } => by.index() < extent.processes,
            Expectation::Exits { cluster, .. } => cluster.index() < extent.clusters,
        }
    }
}

/// The parts of a user's own system to which facts and expectations refer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SystemEntry {
    /// Probes, indexed by [`ProbeNo`].
    pub probes: Vec<ProbeEntry>,
    /// The names of watches, indexed by [`WatchNo`](faultline_core::WatchNo).
    pub watches: Vec<String>,
    /// Histories of clients, indexed by [`HistoryNo`](faultline_core::HistoryNo).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histories: Vec<HistoryEntry>,
    /// Processes whose commands may end by themselves, in any way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_exit: Vec<ProcessId>,
    /// Processes whose commands may end by themselves with exit status 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_finish: Vec<ProcessId>,
}

/// The variables that the commands of a system inherit, if they are set.
pub const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

impl SystemEntry {
    /// Returns whether all processes that the entry names exist.
    pub(crate) fn is_possible(&self, extent: Extent) -> bool {
        let probers = self.probes.iter().flat_map(|it| &it.by).chain(self.histories.iter().map(|it| &it.by));
        probers.chain(&self.may_exit).chain(&self.may_finish).all(|it| it.index() < extent.processes)
    }

    /// Returns the processes whose nodes run clients, ascending. Each carries out a final phase, which is a check without
    /// an expectation: the first of them follows the last check of the federation.
    pub fn final_by(&self) -> Vec<ProcessId> {
        let mut all: Vec<ProcessId> = self.histories.iter().map(|it| it.by).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the names of these checks.
    pub(crate) fn final_names(&self) -> Vec<String> {
        let name = |it: ProcessId| {
            let of = self.histories.iter().filter(|entry| entry.by == it).map(|entry| entry.name.as_str());
            format!("final operations of {}", of.collect::<Vec<_>>().join(" and "))
        };
        self.final_by().into_iter().map(name).collect()
    }

    /// Returns the history and the kind of operation that a probe stands for; `None` if it is a probe of its own.
    pub fn kind_of(&self, probe: ProbeNo) -> Option<(HistoryNo, &'static str)> {
        let (history, kind) = self.probes.get(probe.index())?.name.split_once('.')?;
        let no = self.histories.iter().position(|it| it.name == history)?;
        let kinds = self.histories[no].workload.model()?.kinds;
        Some((HistoryNo(no as u16), kinds.iter().find(|it| **it == kind)?))
    }
}

/// A history of clients: which operations they carry out, and what is judged of the answers. Each kind of its operations
/// is also a probe, which is named like `kv.write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistoryEntry {
    /// The name of the history.
    pub name: String,
    /// The process whose node runs the clients.
    pub by: ProcessId,
    /// The number of clients.
    pub count: u16,
    /// The time for an answer.
    pub timeout: Span,
    /// The level of consistency that the system promises.
    pub level: String,
    /// The operations.
    pub workload: Workload,
}

/// A probe of a system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProbeEntry {
    /// The name of the probe.
    pub name: String,
    /// The processes whose nodes run the probe, ascending.
    pub by: Vec<ProcessId>,
    /// The time from the start of a sample to the start of the next one.
    pub every: Span,
    /// The longest time that a sample may take.
    pub timeout: Span,
}
