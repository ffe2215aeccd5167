//! Sentences about a run as it happens, from the facts that the supervisor states or receives. Judges
//! nothing, and uses only facts.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::Change;
use faultline_core::{Claim, ClusterId, EndedBy, Fact, Fault, FaultNo, Incarnation, Position, ProcessId};
use faultline_history::GroupId;
use faultline_trace::manifest::LinkEntry;

use crate::cast::{self, Cast};
use crate::explain::count;
use crate::fault::{describe_change, describe_fault};

/// A reportable event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of event, in one word.
    pub reason: &'static str,
    /// Whether it is a warning.
    pub warning: bool,
    /// A description of what happened.
    pub text: String,
}

/// Reports the events of one run, and counts them.
#[derive(Debug)]
pub struct Narrator {
    cast: Cast,
    checkpoints: BTreeMap<ClusterId, Checkpoints>,
    /// Faults that are pauses.
    pauses: BTreeSet<FaultNo>,
    /// Groups of which a failure was reported, but not yet the rollback.
    failing: BTreeSet<GroupId>,
    /// Groups that cannot be restored.
    given_up: BTreeSet<GroupId>,
    /// Rollbacks that were reported.
    returns: BTreeSet<(GroupId, Incarnation)>,
}

#[derive(Debug, Default)]
struct Checkpoints {
    /// Positions by the group that takes the checkpoints.
    positions: BTreeSet<(GroupId, Position)>,
    forced: usize,
}

impl Narrator {
    /// Creates the narrator of a run of `cast`.
    pub fn new(cast: Cast) -> Narrator {
        Narrator {
            cast,
            checkpoints: BTreeMap::new(),
            pauses: BTreeSet::new(),
            failing: BTreeSet::new(),
            given_up: BTreeSet::new(),
            returns: BTreeSet::new(),
        }
    }

    /// Returns the names of processes and clusters.
    pub fn cast(&self) -> &Cast {
        &self.cast
    }

    /// Handles a fact that `process` stated. Returns an event if there is something to report.
    pub fn stated(&mut self, process: ProcessId, fact: &Fact) -> Option<Event> {
        let cluster = self.cast.cluster_of(process);
        let group = self.cast.group_of(process);
        match fact {
            Fact::Begun => tell("Begun", "the application starts".to_owned()),
            Fact::Injecting { no, fault } => {
                if matches!(**fault, Fault::Pause { .. }) {
                    self.pauses.insert(*no);
                }
                warn("FaultInjected", format!("fault {}: {}", no.0, describe_fault(fault, &self.cast)))
            }
            Fact::Ineffective { no, reason } => {
                warn("FaultWithoutEffect", format!("fault {} has no effect: {reason}", no.0))
            }
            Fact::Failed { process, by, .. } => self.ended(*process, *by),
            Fact::Detected { process, .. } if self.failing.insert(self.cast.group_of(*process)) => {
                warn("FailureDetected", format!("the failure of {} is detected", self.cast.process(*process)))
            }
            Fact::Changed(change) => {
                let reason = match &**change {
                    Change::Link { .. } => "LinkChanged",
                    Change::Fault(_) => "FaultAdded",
                    Change::Pause(true) => "Paused",
                    Change::Pause(false) => "Resumed",
                };
                tell(reason, describe_change(change, &self.cast))
            }
            Fact::Joined(cluster) => tell("Joined", format!("{} joins", self.cast.cluster(*cluster))),
            Fact::Left(cluster) => {
                tell("Left", format!("{} leaves; its storage is released", self.cast.cluster(*cluster)))
            }
            Fact::Absorbed(absorbed) => {
                let (by, of) = (self.cast.process(process), self.cast.process(absorbed.0));
                self.failing.remove(&self.cast.group_of(absorbed.0));
                tell("TookOver", format!("{by} takes over the work of {of}"))
            }
            Fact::Completed => tell("Finished", "every rank has finished".to_owned()),
            Fact::Claim(claim) => match &**claim {
                Claim::Committed { position, forced, .. } => {
                    let known = self.checkpoints.entry(cluster).or_default();
                    if known.positions.insert((group, *position)) {
                        known.forced += usize::from(*forced);
                    }
                    None
                }
                Claim::RolledBack { to, checkpoint, .. } if self.returns.insert((group, to.incarnation)) => {
                    let target = match checkpoint.sn.0 {
                        0 => "its initial state".to_owned(),
                        _ => format!("checkpoint {}", cast::checkpoint(*checkpoint)),
                    };
                    self.failing.remove(&group);
                    tell("RolledBack", format!("{} rolls back to {target}", self.cast.group(group)))
                }
                Claim::Unrecoverable { cluster, .. } if self.given_up.insert(GroupId::claimed(*cluster)) => {
                    let group = self.cast.group(GroupId::claimed(*cluster));
                    warn("Unrecoverable", format!("no checkpoint of {group} can be restored"))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns what to report about the end of a life beside its detection, if anything.
    fn ended(&self, process: ProcessId, by: EndedBy) -> Option<Event> {
        let name = self.cast.process(process);
        match by {
            EndedBy::Fault(no) if self.pauses.contains(&no) => warn(
                "TakenForDead",
                format!("{name} is paused for too long (fault {}), and is declared failed and killed", no.0),
            ),
            EndedBy::Silence => warn(
                "TakenForDead",
                format!(
                    "{name} sent no heartbeat for too long, and is declared failed and killed; this is not a planned \
                     fault"
                ),
            ),
            EndedBy::PlaceLost => warn(
                "PlaceLost",
                format!(
                    "{name} is lost together with its place (on Kubernetes, its pod); this is not a planned fault"
                ),
            ),
            EndedBy::StorageLost => {
                warn("StorageLost", format!("{name} has a new place, and lost its storage with the old one"))
            }
            EndedBy::Fault(_) | EndedBy::SupervisorRestarted => None,
        }
    }

    /// Reports that the links have been measured.
    pub fn measured(&self, links: &[LinkEntry]) -> Event {
        let all = count(links.len() as u64, "link");
        let off = links.iter().filter(|it| it.as_asked() == Some(false)).count();
        let (warning, text) = match off {
            0 => (false, format!("{all} measured, each with the requested delay")),
            _ => (true, format!("{off} of {all}: the measured delay differs from the requested one")),
        };
        Event { reason: "LinksMeasured", warning, text }
    }

    /// Returns the number of committed checkpoints of a cluster, and how many of them were forced.
    pub fn checkpoints(&self, cluster: ClusterId) -> (usize, usize) {
        self.checkpoints.get(&cluster).map_or((0, 0), |known| (known.positions.len(), known.forced))
    }

    /// Returns how often a cluster rolled back.
    pub fn rollbacks(&self, cluster: ClusterId) -> usize {
        self.returns.iter().filter(|(it, _)| self.cast.cluster_of_group(*it) == cluster).count()
    }

    /// Returns whether a process of a cluster has failed, and the cluster has not rolled back yet.
    pub fn is_failing(&self, cluster: ClusterId) -> bool {
        self.failing.iter().any(|&it| self.cast.cluster_of_group(it) == cluster)
    }

    /// Returns whether no checkpoint of a cluster can be restored.
    pub fn is_given_up(&self, cluster: ClusterId) -> bool {
        self.given_up.iter().any(|&it| self.cast.cluster_of_group(it) == cluster)
    }
}

fn tell(reason: &'static str, text: String) -> Option<Event> {
    Some(Event { reason, warning: false, text })
}

fn warn(reason: &'static str, text: String) -> Option<Event> {
    Some(Event { reason, warning: true, text })
}
