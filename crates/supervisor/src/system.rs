//! A system: before the run begins, every node starts its command, and one node may set the system up. The run ends at a
//! given time, or once commands have exited. Then, nodes carry out the checks, one after the other.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{CheckNo, ClusterId, Ending, Life, Observation, ProcessId, Span, Time, WatchNo};
use serde::{Deserialize, Serialize};

use crate::faults::Due;
use crate::interface::Order;
use crate::supervisor::{LifeState, SupervisedProcess, Supervisor};

/// What a run of a system needs besides lives and faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemRun {
    /// The node that sets the system up once all nodes are ready, if any.
    pub set_up_by: Option<ProcessId>,
    /// When the run ends.
    pub ends: SystemEnd,
    /// The process whose node carries out each check before the run ends, indexed by [`CheckNo`].
    pub checks: Vec<ProcessId>,
}

/// When the run of a system ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SystemEnd {
    /// This time after its beginning.
    After(Span),
    /// Once the command of every node of a cluster has exited.
    Exit {
        /// The cluster.
        cluster: ClusterId,
        /// Whether a command that exits with a status other than 0 is started again, so that its exit does not count.
        restarts: bool,
    },
}

/// How far the nodes of a system are.
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    stage: Stage,
    ready: BTreeSet<ProcessId>,
    /// The nodes whose newest command has exited for good.
    exited: BTreeSet<ProcessId>,
    /// Whether the run may end once every process is up and all checks have been carried out.
    is_over: bool,
    /// Number of checks that have been carried out, or that no node can carry out.
    checked: u16,
    /// The newest order to carry out a check.
    checking: Option<(CheckNo, Life)>,
    /// The node that last logged a line for each watch.
    last_to_log: BTreeMap<u16, ProcessId>,
}

impl Preparation {
    /// Returns the node that last logged a line for a watch.
    pub(crate) fn last_to_log(&self, watch: WatchNo) -> Option<ProcessId> {
        self.last_to_log.get(&watch.0).copied()
    }
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
        let Some(system) = &self.config.system else { return true };
        let set_up_by = system.set_up_by;
        if self.preparation.stage == Stage::Waiting {
            self.preparation.stage = Stage::Starting;
            for process in self.membership.members.iter().enumerate().map(|it| ProcessId(it.0 as u32)) {
                self.prepare(process, out);
            }
        }
        let are_ready = self.preparation.ready.len() == self.entries.len();
        if self.preparation.stage == Stage::Starting && are_ready {
            self.preparation.stage = match set_up_by {
                Some(process) => {
                    out.push(Order::SetUp { process, life: self.entries[process.index()].life });
                    Stage::SettingUp
                }
                None => Stage::Prepared,
            };
        }
        self.preparation.stage == Stage::Prepared && are_ready
    }

    fn prepare(&self, process: ProcessId, out: &mut Vec<Order>) {
        out.push(Order::Prepare { process, life: self.entries[process.index()].life });
    }

    /// Lets a life that has registered while the others start their commands start its own, and set the system up if
    /// the previous life was to do so.
    pub(crate) fn prepare_again(&mut self, process: ProcessId, out: &mut Vec<Order>) {
        if self.begun.is_none() && self.preparation.stage != Stage::Waiting {
            self.preparation.ready.remove(&process);
            let sets_up = self.config.system.as_ref().and_then(|it| it.set_up_by) == Some(process);
            if sets_up && self.preparation.stage == Stage::SettingUp {
                self.preparation.stage = Stage::Starting;
            }
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
        if let Some(SystemEnd::After(span)) = self.config.system.as_ref().map(|it| it.ends) {
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
        let Some(ends) = self.config.system.as_ref().map(|it| it.ends) else { return };
        match (observation, ends) {
            (Observation::Ready, _) => {
                self.preparation.ready.insert(process);
                self.preparation.exited.remove(&process);
                self.try_begin(now, out);
            }
            (Observation::Logged { watch, .. }, _) => {
                self.preparation.last_to_log.insert(watch.0, process);
            }
            (Observation::Exited { ending, .. }, SystemEnd::Exit { restarts, .. })
                if !restarts || *ending == Ending::Exit(0) =>
            {
                self.preparation.exited.insert(process);
                self.try_complete(out);
            }
            (Observation::Checked { check, .. }, _) if check.0 == self.preparation.checked => {
                self.preparation.checked += 1;
                self.try_complete(out);
            }
            _ => {}
        }
    }

    /// Returns whether the run of a system is complete: it is due to end, every process that will return is up, and all
    /// checks have been carried out. Orders the next check, if there is one.
    pub(crate) fn is_system_complete(&mut self, out: &mut Vec<Order>) -> bool {
        if let Some(SystemEnd::Exit { cluster, .. }) = self.config.system.as_ref().map(|it| it.ends) {
            let has_ended =
                |it: &ProcessId| self.preparation.exited.contains(it) || self.entries[it.index()].gone;
            self.preparation.is_over |= self.processes_of(cluster).iter().all(has_ended);
        }
        let is_settled = |it: &SupervisedProcess| it.gone || it.state == LifeState::Registered;
        self.preparation.is_over
            && self.begun.is_some()
            && self.entries.iter().all(is_settled)
            && self.are_checks_over(out)
    }

    fn are_checks_over(&mut self, out: &mut Vec<Order>) -> bool {
        let Some(system) = &self.config.system else { return true };
        let Preparation { checked, checking, .. } = &mut self.preparation;
        while let Some(&process) = system.checks.get(usize::from(*checked)) {
            let entry = &self.entries[process.index()];
            if entry.gone {
                *checked += 1;
                continue;
            }
            let (check, life) = (CheckNo(*checked), entry.life);
            if checking.replace((check, life)) != Some((check, life)) {
                out.push(Order::Check { process, life, check });
            }
            return false;
        }
        true
    }
}
