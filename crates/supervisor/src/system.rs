//! A system: before the run begins, every node starts its command, in the order that the file states, and one node may set
//! the system up. The run ends at a given time, once commands have exited, or when a command exits that must not. Then,
//! nodes carry out the checks, one after the other.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{
    CheckNo, ClusterId, EndedBy, Ending, Life, Observation, ProcessId, Span, StorageFate, Time, WatchNo,
};
use serde::{Deserialize, Serialize};

use crate::faults::Due;
use crate::interface::{Order, Outcome};
use crate::supervisor::{LifeState, SupervisedProcess, Supervisor};

/// What a run of a system needs besides lives and faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemRun {
    /// The node that sets the system up once all nodes are ready, if any.
    pub set_up_by: Option<ProcessId>,
    /// When the run ends.
    pub ends: SystemEnd,
    /// The checks that nodes carry out before the run ends, in order, and the process of each node.
    pub checks: Vec<(CheckNo, ProcessId)>,
    /// What follows the exit of a command, indexed by [`ClusterId`].
    pub after_exit: Vec<AfterExit>,
    /// The clusters whose nodes must all be ready before the commands of a cluster start for the first time, indexed by
    /// [`ClusterId`].
    pub starts_after: Vec<Vec<ClusterId>>,
}

/// What follows the exit of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AfterExit {
    /// The run ends.
    #[default]
    End,
    /// The node remains without a command.
    Stay,
    /// The node begins its next life.
    Restart,
    /// All nodes of the cluster begin their next lives.
    RestartCluster,
}

/// Time for which a command must have been ready, so that its exit is not one of a series.
const LASTS: Span = Span::from_secs(1);
/// Time for which lines may be left out after a node has begun to. Afterwards, the next line is reported.
const LEFT_OUT_FOR: Span = Span::from_secs(1);
/// The maximum number of lives that are ordered to carry out a check. More than one is if the node fails meanwhile.
const MOST_ATTEMPTS: u32 = 5;
/// The maximum number of times in a row that a command may exit without having been ready for long.
const MOST_EXITS: u32 = 5;

/// When the run of a system ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SystemEnd {
    /// This time after its beginning.
    After(Span),
    /// Once the command of every node of a cluster has exited with status 0, or has exited and is not started again.
    Exit(ClusterId),
}

/// How far the nodes of a system are.
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    stage: Stage,
    /// The nodes that were ordered to start their command in their newest life.
    started: BTreeSet<ProcessId>,
    /// The nodes that have become ready in their newest life, and when.
    ready: BTreeMap<ProcessId, Time>,
    /// The nodes whose newest command has exited for good.
    exited: BTreeSet<ProcessId>,
    /// For each node, how often in a row its command has exited without having been ready for long.
    exits: BTreeMap<ProcessId, u32>,
    /// Whether the run may end once every process is up and all checks have been carried out.
    is_over: bool,
    /// Number of checks that have been carried out, or that no node can carry out.
    checked: u16,
    /// The newest order to carry out a check.
    checking: Option<(CheckNo, Life)>,
    /// The number of lives that were ordered to carry it out.
    attempts: u32,
    /// The node that last logged a line for each watch.
    last_to_log: BTreeMap<u16, ProcessId>,
    /// For each watch of which lines were left out, the time from which the next line is the last one.
    left_out_until: BTreeMap<u16, Time>,
}

impl Preparation {
    /// Returns the node that last logged a line for a watch, or the reason why none is known.
    pub(crate) fn last_to_log(&self, watch: WatchNo) -> Result<ProcessId, &'static str> {
        match self.last_to_log.get(&watch.0) {
            _ if self.left_out_until.contains_key(&watch.0) => {
                Err("lines of its watch were left out, so it is not known which node logged the last one")
            }
            Some(process) => Ok(*process),
            None => Err("no node had logged a line for its watch"),
        }
    }

    /// Returns whether a node is ready, and its command has not exited.
    pub(crate) fn is_up(&self, process: ProcessId) -> bool {
        self.ready.contains_key(&process) && !self.exited.contains(&process)
    }

    /// Returns whether the newest command of a node has exited for good.
    pub(crate) fn has_exited(&self, process: ProcessId) -> bool {
        self.exited.contains(&process)
    }

    /// Records that a life of a node has ended.
    pub(crate) fn life_ended(&mut self, process: ProcessId, now: Time) {
        self.started.remove(&process);
        self.exited.remove(&process);
        if self.ready.remove(&process).is_some_and(|since| now.since(since) >= LASTS) {
            self.exits.remove(&process);
        }
    }

    /// Records that a command has exited. Returns how often in a row it has without having been ready for long.
    fn counts_exit(&mut self, process: ProcessId, now: Time) -> u32 {
        // The life ends later, when it may seem to have lasted for longer.
        let has_lasted = self.ready.remove(&process).is_some_and(|since| now.since(since) >= LASTS);
        let exits = self.exits.entry(process).or_default();
        *exits = if has_lasted { 0 } else { *exits + 1 };
        *exits
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
        }
        self.start_commands(out);
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

    /// Lets the nodes start their commands for which no other cluster must be ready first.
    fn start_commands(&mut self, out: &mut Vec<Order>) {
        let Some(system) = &self.config.system else { return };
        let Preparation { ready, started, .. } = &mut self.preparation;
        let is_ready =
            |of: &ClusterId| self.membership.processes_of(*of).iter().all(|it| ready.contains_key(it));
        for (process, entry) in (0..).map(ProcessId).zip(&self.entries) {
            let cluster = self.membership.cluster_of(process);
            let mut awaited = system.starts_after.get(cluster.index()).into_iter().flatten();
            if entry.state == LifeState::Registered && awaited.all(is_ready) && started.insert(process) {
                out.push(Order::Prepare { process, life: entry.life });
            }
        }
    }

    /// Lets a life that has registered while the others start their commands start its own, and set the system up if
    /// the previous life was to do so.
    pub(crate) fn prepare_again(&mut self, process: ProcessId, out: &mut Vec<Order>) {
        if self.begun.is_none() && self.preparation.stage != Stage::Waiting {
            let sets_up = self.config.system.as_ref().and_then(|it| it.set_up_by) == Some(process);
            if sets_up && self.preparation.stage == Stage::SettingUp {
                self.preparation.stage = Stage::Starting;
            }
            self.start_commands(out);
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
        if self.config.system.is_none() {
            return;
        }
        match observation {
            Observation::Ready => {
                self.preparation.ready.insert(process, now);
                self.ready_after_stop(process, out);
                self.try_begin(now, out);
            }
            Observation::Logged { watch, .. } => {
                let Preparation { last_to_log, left_out_until, .. } = &mut self.preparation;
                last_to_log.insert(watch.0, process);
                left_out_until.retain(|of, until| *of != watch.0 || now < *until);
            }
            Observation::LeftOut { watch } => {
                self.preparation.left_out_until.insert(watch.0, now + LEFT_OUT_FOR);
            }
            Observation::Exited { ending, .. } => self.command_exited(process, ending, now, out),
            Observation::Stopped { .. } => self.command_stopped(process, now, out),
            Observation::Checked { check, .. } if self.awaits(*check) => {
                self.preparation.checked += 1;
                self.try_complete(out);
            }
            _ => {}
        }
    }

    /// Handles the exit of a node's command.
    fn command_exited(&mut self, process: ProcessId, ending: &Ending, now: Time, out: &mut Vec<Order>) {
        let Some(system) = &self.config.system else { return };
        let cluster = self.cluster_of(process);
        let has_finished = system.ends == SystemEnd::Exit(cluster) && *ending == Ending::Exit(0);
        let stated = system.after_exit.get(cluster.index()).copied().unwrap_or_default();
        let restarted = match if has_finished { AfterExit::Stay } else { stated } {
            after @ (AfterExit::Stay | AfterExit::End) => {
                self.preparation.exited.insert(process);
                // Until the run begins, the node says that the system cannot be started.
                self.preparation.is_over |= after == AfterExit::End && self.begun.is_some();
                return self.try_complete(out);
            }
            AfterExit::Restart => vec![process],
            AfterExit::RestartCluster => self.processes_of(cluster).to_vec(),
        };
        let exits = self.preparation.counts_exit(process, now);
        if exits > MOST_EXITS {
            return self.end(Outcome::ExitsAgain { process, exits }, out);
        }
        let restarted: Vec<_> = restarted.into_iter().filter(|it| self.entries[it.index()].lives()).collect();
        self.kill(&restarted, StorageFate::Kept, EndedBy::CommandExited, now, out);
    }

    /// Returns whether the run of a system is complete: it is due to end, every process that will return is up, no fault
    /// lasts any longer, and all checks have been carried out. Orders the next check, if there is one.
    pub(crate) fn is_system_complete(&mut self, out: &mut Vec<Order>) -> bool {
        if let Some(SystemEnd::Exit(cluster)) = self.config.system.as_ref().map(|it| it.ends) {
            let has_ended =
                |it: &ProcessId| self.preparation.exited.contains(it) || self.entries[it.index()].gone;
            self.preparation.is_over |= self.processes_of(cluster).iter().all(has_ended);
        }
        let is_settled = |it: &SupervisedProcess| it.gone || it.state == LifeState::Registered;
        self.preparation.is_over
            && self.begun.is_some()
            && self.entries.iter().all(is_settled)
            && !self.has_lasting_fault()
            && self.are_checks_over(out)
    }

    /// Returns whether a check is the next one.
    fn awaits(&self, check: CheckNo) -> bool {
        let system = self.config.system.as_ref();
        let next = system.and_then(|it| it.checks.get(usize::from(self.preparation.checked)));
        next.is_some_and(|it| it.0 == check)
    }

    fn are_checks_over(&mut self, out: &mut Vec<Order>) -> bool {
        let Some(system) = &self.config.system else { return true };
        let Preparation { checked, checking, attempts, .. } = &mut self.preparation;
        while let Some(&(check, process)) = system.checks.get(usize::from(*checked)) {
            let entry = &self.entries[process.index()];
            if checking.is_none_or(|it| it.0 != check) {
                *attempts = 0;
            }
            let order = Some((check, entry.life));
            let is_new = *checking != order;
            if entry.gone || is_new && *attempts == MOST_ATTEMPTS {
                *checked += 1;
                continue;
            }
            if is_new {
                (*checking, *attempts) = (order, *attempts + 1);
                out.push(Order::Check { process, life: entry.life, check });
            }
            return false;
        }
        true
    }
}
