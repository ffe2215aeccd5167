//! Describes the events of a run in sentences as they happen, based only on the facts that the supervisor records or
//! receives.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::Change;
use faultline_core::{
    Claim, ClusterId, EndedBy, Fact, FaultNo, Incarnation, Observation, Position, ProcessId,
};
use faultline_history::GroupId;
use faultline_trace::Manifest;
use faultline_trace::describe::{Subject, describe};
use faultline_trace::fault::{describe_change, describe_fault};
use faultline_trace::manifest::LinkEntry;

use crate::explain::count;
use crate::names::{self, DisplayNames, RollbackUnit};

/// A reportable event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedEvent {
    /// The kind of event, in one word.
    pub reason: &'static str,
    /// Whether the event is a warning.
    pub warning: bool,
    /// A description in one sentence.
    pub text: String,
}

/// Derives the events of one run from its facts, and counts checkpoints and rollbacks.
#[derive(Debug)]
pub struct EventReporter {
    names: DisplayNames,
    checkpoints: BTreeMap<ClusterId, Checkpoints>,
    /// Planned faults that are pauses.
    pauses: BTreeSet<FaultNo>,
    /// Units with a reported failure, until their rollback or the takeover of their work is reported. `None` stands for
    /// processes outside all units.
    failing: BTreeSet<Option<RollbackUnit>>,
    /// Groups that have no checkpoint that can be restored.
    unrecoverable: BTreeSet<GroupId>,
    /// Reported rollbacks.
    returns: BTreeSet<(RollbackUnit, Incarnation)>,
    /// Clusters that have not joined yet or have left.
    absent: BTreeSet<ClusterId>,
}

#[derive(Debug, Default)]
struct Checkpoints {
    /// Committed checkpoints, by unit and position.
    positions: BTreeSet<(Option<RollbackUnit>, Position)>,
    forced: usize,
}

impl EventReporter {
    /// Creates a reporter for the run with this manifest. `awaited` contains the clusters that join later.
    pub fn new(manifest: &Manifest, awaited: BTreeSet<ClusterId>) -> EventReporter {
        EventReporter {
            names: DisplayNames::new(manifest),
            checkpoints: BTreeMap::new(),
            pauses: BTreeSet::new(),
            failing: BTreeSet::new(),
            unrecoverable: BTreeSet::new(),
            returns: BTreeSet::new(),
            absent: awaited,
        }
    }

    /// Returns the names of processes and clusters.
    pub fn names(&self) -> &DisplayNames {
        &self.names
    }

    /// Handles a fact reported by `process`. Returns the event to report, if any.
    pub fn observe(&mut self, process: ProcessId, fact: &Fact) -> Option<ReportedEvent> {
        let cluster = self.names.cluster_of(process);
        let unit = self.names.unit_of(process);
        match fact {
            Fact::Begun => {
                // Failures before the start of the application cause no rollback.
                self.failing.clear();
                event("Started", self.sentence(process, fact))
            }
            Fact::Injecting { no, fault } => {
                if fault.pauses().is_some() {
                    self.pauses.insert(*no);
                }
                // The sentence about this fact is in capitals, so that faults stand out in a transcript.
                warn(
                    "FaultInjected",
                    format!("fault {}: {}", no.0, describe_fault(fault, self.names.names())),
                )
            }
            Fact::Ineffective { .. } => warn("FaultWithoutEffect", self.sentence(process, fact)),
            Fact::Failed { process, by, .. } => self.ended(*process, *by),
            Fact::Detected { process: of, .. } if self.absent.contains(&self.names.cluster_of(*of)) => None,
            Fact::Detected { process: of, .. } if self.failing.insert(self.names.unit_of(*of)) => {
                warn("FailureDetected", self.sentence(process, fact))
            }
            // A system recovers by itself, without a rollback.
            Fact::Observed(it) if **it == Observation::Ready && self.failing.remove(&unit) => {
                event("ReadyAgain", self.sentence(process, fact))
            }
            Fact::Changed(change) => {
                let reason = match &**change {
                    Change::Link { .. } => "LinkChanged",
                    Change::Fault(_) => "FaultAdded",
                    Change::Pause(true) => "Paused",
                    Change::Pause(false) => "Resumed",
                };
                event(reason, describe_change(change, self.names.names()))
            }
            Fact::Joined(cluster) => {
                self.absent.remove(cluster);
                event("Joined", self.sentence(process, fact))
            }
            Fact::Leaving(_) => event("Leaving", self.sentence(process, fact)),
            Fact::Left(cluster) => {
                self.absent.insert(*cluster);
                event("Left", self.sentence(process, fact))
            }
            Fact::Absorbed(absorbed) => {
                self.failing.remove(&self.names.unit_of(absorbed.0));
                event("TookOver", self.sentence(process, fact))
            }
            Fact::Completed => event("Finished", self.sentence(process, fact)),
            Fact::Claim(claim) => match &**claim {
                Claim::Committed { position, forced, .. } => {
                    let known = self.checkpoints.entry(cluster).or_default();
                    if known.positions.insert((unit, *position)) {
                        known.forced += usize::from(*forced);
                    }
                    None
                }
                Claim::RolledBack { to, checkpoint, .. } => {
                    let unit = unit.filter(|it| self.returns.insert((*it, to.incarnation)))?;
                    let target = match checkpoint.sn.0 {
                        0 => "its initial state".to_owned(),
                        _ => format!("checkpoint {}", names::checkpoint(*checkpoint)),
                    };
                    self.failing.remove(&Some(unit));
                    event("RolledBack", format!("{} rolls back to {target}", self.names.unit(unit)))
                }
                Claim::Unrecoverable { group: of, .. } if self.unrecoverable.insert(*of) => {
                    let group = self.names.group(*of);
                    warn("Unrecoverable", format!("no checkpoint of {group} can be restored"))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns a complete sentence, including the subject, about a fact that `reporter` reported.
    fn sentence(&self, reporter: ProcessId, fact: &Fact) -> String {
        let sentence = describe(reporter, fact, self.names.names());
        match sentence.subject() {
            Subject::Reporter => format!("{} {sentence}", self.names.process(reporter)),
            Subject::Process(_) | Subject::Cluster(_) | Subject::Included => sentence.to_string(),
        }
    }

    /// Returns the event that explains why a life ended, if an explanation is needed.
    fn ended(&self, process: ProcessId, by: EndedBy) -> Option<ReportedEvent> {
        let name = self.names.process(process);
        match by {
            EndedBy::Fault(no) if self.pauses.contains(&no) => warn(
                "DeclaredFailed",
                format!(
                    "{name} has been paused for too long (fault {}), and is declared failed and killed",
                    no.0
                ),
            ),
            EndedBy::PlaceLost | EndedBy::Silence
                if self.absent.contains(&self.names.cluster_of(process)) =>
            {
                let cluster = self.names.cluster(self.names.cluster_of(process));
                event(
                    "PlaceLost",
                    format!(
                        "{name} is lost while {cluster} does not take part in the run, so nothing has failed"
                    ),
                )
            }
            EndedBy::Silence => warn(
                "DeclaredFailed",
                format!(
                    "{name} sent no heartbeat for too long, and is declared failed and killed, without a planned \
                     fault"
                ),
            ),
            EndedBy::PlaceLost => warn(
                "PlaceLost",
                format!(
                    "{name} is lost together with its place (on Kubernetes, its pod), without a planned fault"
                ),
            ),
            EndedBy::StorageLost => warn(
                "StorageLost",
                format!("{name} moves to a new place, and loses its storage with the old one"),
            ),
            EndedBy::CommandExited => warn(
                "CommandExited",
                format!("{name} begins its next life, because a command exited that is started again"),
            ),
            EndedBy::Moved => event(
                "Moved",
                format!("the node of {name} is under repair, so it moves to a spare node, without its data"),
            ),
            EndedBy::Fault(_) | EndedBy::SupervisorRestarted => None,
        }
    }

    /// Returns the event that reports the measurements of the links.
    pub fn measured(&self, links: &[LinkEntry]) -> ReportedEvent {
        let all = count(links.len() as u64, "link");
        let judged: Vec<&LinkEntry> = links.iter().filter(|it| it.is_judged()).collect();
        let off = judged.iter().filter(|it| it.as_requested() == Some(false)).count();
        let (warning, text) = match off {
            0 if judged.is_empty() => (false, format!("{all} measured; no delay is requested of them")),
            0 => (false, format!("{all} measured, each with the requested delay")),
            _ => (true, format!("{off} of {all}: the measured delay differs from the requested one")),
        };
        ReportedEvent { reason: "LinksMeasured", warning, text }
    }

    /// Returns the number of committed checkpoints of a cluster, and how many of them were forced.
    pub fn checkpoints(&self, cluster: ClusterId) -> (usize, usize) {
        self.checkpoints.get(&cluster).map_or((0, 0), |known| (known.positions.len(), known.forced))
    }

    /// Returns how often the groups of a cluster rolled back.
    pub fn rollbacks(&self, cluster: ClusterId) -> usize {
        self.returns.iter().filter(|(it, _)| self.names.cluster_of_unit(*it) == cluster).count()
    }

    /// Returns whether a failure in the cluster was detected, and neither a rollback nor a takeover of the
    /// failed process's work has followed yet.
    pub fn is_failing(&self, cluster: ClusterId) -> bool {
        self.failing.iter().flatten().any(|&it| self.names.cluster_of_unit(it) == cluster)
    }

    /// Returns whether a group with processes in the cluster has no checkpoint that can be restored.
    pub fn is_unrecoverable(&self, cluster: ClusterId) -> bool {
        self.unrecoverable.iter().any(|&it| self.names.clusters_of(it).contains(&cluster))
    }
}

fn event(reason: &'static str, text: String) -> Option<ReportedEvent> {
    Some(ReportedEvent { reason, warning: false, text })
}

fn warn(reason: &'static str, text: String) -> Option<ReportedEvent> {
    Some(ReportedEvent { reason, warning: true, text })
}
