//! A system: before the run begins, every node starts its command, and one node may set the system up. The run ends at a
//! given time, or once commands have exited.

use std::collections::BTreeSet;

use faultline_core::{ClusterId, Ending, Observation, ProcessId, Span, Time};
use serde::{Deserialize, Serialize};

use crate::faults::Due;
use crate::interface::Order;
use crate::supervisor::{LifeState, SupervisedProcess, Supervisor};

/// What a run of a system needs besides lives and faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemRun {
    /// The node that sets the system up once all nodes are ready, if any.
    pub set_up_by: Option<ProcessId>,
    /// When the run ends.
    pub ends: SystemEnd,
}

/// When the run of a system ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SystemEnd {
    /// This time after its beginning.
    After(Span),
    /// Once the command of every node of this cluster has exited with status 0.
    Exit(ClusterId),
}

/// How far the nodes of a system are.
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    stage: Stage,
    ready: BTreeSet<ProcessId>,
    /// The nodes whose newest command has exited with status 0.
    exited: BTreeSet<ProcessId>,
    /// Whether the run may end once every process is up.
    is_over: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Links have not been measured yet.
    #[default]
    Waiting,
    /// Commands start.
    Starting,
    /// All commands are ready, and one node sets the system up.
    SettingUp,
    Prepared,
}

impl Supervisor {
    /// Returns whether the application can begin. For a system, first lets all nodes start their commands.
    pub(crate) fn is_prepared(&mut self, out: &mut Vec<Order>) -> bool {
        let Some(system) = self.config.system else { return true };
        if self.preparation.stage == Stage::Waiting {
            self.preparation.stage = Stage::Starting;
            for process in self.membership.members.iter().enumerate().map(|it| ProcessId(it.0 as u32)) {
                self.prepare(process, out);
            }
        }
        let are_ready = self.preparation.ready.len() == self.entries.len();
        if self.preparation.stage == Stage::Starting && are_ready {
            self.preparation.stage = match system.set_up_by {
                Some(process) => {
                    out.push(Order::SetUp { process, life: self.entries[process.index()].life });
                    Stage::SettingUp
                }
                None => Stage::Prepared,
            };
        }
        self.preparation.stage == Stage::Prepared
    }

    fn prepare(&self, process: ProcessId, out: &mut Vec<Order>) {
        out.push(Order::Prepare { process, life: self.entries[process.index()].life });
    }

    /// Lets a life that has registered while the others start their commands start its own.
    pub(crate) fn prepare_again(&mut self, process: ProcessId, out: &mut Vec<Order>) {
        if self.begun.is_none() && self.preparation.stage != Stage::Waiting {
            self.preparation.ready.remove(&process);
            self.prepare(process, out);
        }
    }

    /// Records that a system has been set up.
    pub(crate) fn is_set_up(&mut self, now: Time, out: &mut Vec<Order>) {
        if self.preparation.stage == Stage::SettingUp {
            self.preparation.stage = Stage::Prepared;
            self.try_begin(now, out);
        }
    }

    /// Schedules the end of a system that ends at a given time.
    pub(crate) fn plan_end(&mut self, now: Time) {
        if let Some(SystemEnd::After(span)) = self.config.system.map(|it| it.ends) {
            self.plan_at(now + span, Due::EndSystem);
        }
    }

    /// Lets the run of a system end once every process is up.
    pub(crate) fn end_system(&mut self, out: &mut Vec<Order>) {
        self.preparation.is_over = true;
        self.try_complete(out);
    }

    /// Handles an observation of a node.
    pub(crate) fn observed(
        &mut self,
        process: ProcessId,
        observation: &Observation,
        now: Time,
        out: &mut Vec<Order>,
    ) {
        let Some(system) = self.config.system else { return };
        match observation {
            Observation::Ready => {
                self.preparation.ready.insert(process);
                self.preparation.exited.remove(&process);
                self.try_begin(now, out);
            }
            Observation::Exited(Ending::Exit(0)) => {
                self.preparation.exited.insert(process);
                if let SystemEnd::Exit(cluster) = system.ends {
                    let all = self.processes_of(cluster);
                    self.preparation.is_over |= all.iter().all(|it| self.preparation.exited.contains(it));
                    self.try_complete(out);
                }
            }
            _ => {}
        }
    }

    /// Returns whether the run of a system is complete: it is due to end, and every process that will return is up.
    pub(crate) fn is_system_complete(&self) -> bool {
        let is_settled = |it: &SupervisedProcess| it.gone || it.state == LifeState::Registered;
        self.preparation.is_over && self.begun.is_some() && self.entries.iter().all(is_settled)
    }
}
