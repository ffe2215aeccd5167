//! Lives and membership: which processes are launched, registered, failed, and announced.
//!
//! The injection of faults is in `faults.rs`, changes by the user in `changes.rs`, the presence of clusters in
//! `presence.rs`, and the completion of the application in `completion.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_core::{
    Boot, Claim, ClusterId, EndedBy, Fact, FactKind, FaultNo, Gauges, Life, Membership, PlannedFault,
    Position, ProcessId, Progress, Role, StorageFate, Time,
};

use crate::completion::Completion;
use crate::failure_detector::FailureDetector;
use crate::faults::{Due, Plan};
use crate::interface::{ClusterStatus, Config, FaultAccount, Order, Outcome, Report, Status};
use crate::nodes::{Nodes, Start};
use crate::presence::Waiting;
use crate::stops::Stopping;
use crate::system::Preparation;

/// The supervisor of one federation.
///
/// The supervisor's clock starts at [`Time::ZERO`] with [`Supervisor::new`]. After the end of the run, the supervisor
/// still accepts reports but issues no orders.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) config: Config,
    /// The membership to announce next.
    pub(crate) membership: Membership,
    /// Whether the membership differs from the one announced last.
    pub(crate) unannounced: bool,
    /// Processes whose failure must be announced, and whose next life must be launched after a delay.
    unannounced_failures: Vec<ProcessId>,
    /// The supervisor's entry for each process, indexed by process.
    pub(crate) entries: Vec<SupervisedProcess>,
    pub(crate) failure_detector: FailureDetector,
    /// Scheduled actions by time. Actions for the same time are performed in the order in which they were scheduled.
    pub(crate) agenda: BTreeMap<(Time, u64), Due>,
    planned: u64,
    pub(crate) plan: Plan,
    pub(crate) nodes: Nodes,
    pub(crate) completion: Completion,
    links_measured: bool,
    pub(crate) begun: Option<Time>,
    /// Reference for the deadline and the times of faults: the start of the application, postponed by the length of
    /// every pause. Before the application starts, the start of the supervisor or the end of the last pause.
    pub(crate) origin: Time,
    /// Time at which the user paused the federation, if it is paused.
    pub(crate) paused: Option<Time>,
    outcome: Option<Outcome>,
    /// Newest position that any process claims to have committed or restored, indexed by cluster.
    committed: Vec<Position>,
    /// Clusters that are due to join or to leave.
    pub(crate) presence: Waiting,
    /// How far the nodes of a system are.
    pub(crate) preparation: Preparation,
    /// The faults that stop commands of a system, until the last command has ended.
    pub(crate) stops: Vec<Stopping>,
    /// Set by [`Supervisor::await_exits`].
    awaits_exits: bool,
    /// Set by [`Supervisor::expect_heartbeats`].
    expects_heartbeats: bool,
}

/// The supervisor's entry for one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SupervisedProcess {
    pub(crate) life: Life,
    pub(crate) state: LifeState,
    /// Whether the process lost its storage and has not yet reported that the storage is complete again.
    pub(crate) replaced: bool,
    /// Fate of the process's storage, in case the kill must be repeated.
    pub(crate) fate: StorageFate,
    /// Time at which the process's pause ends, and the fault that paused the process.
    pub(crate) paused_until: Option<(Time, FaultNo)>,
    /// Whether the process is halted at a fact.
    pub(crate) halted: bool,
    /// Whether the current life of the process is the last one.
    pub(crate) gone: bool,
    /// Whether the lives of the process send heartbeats.
    beats: bool,
    pub(crate) gauges: Gauges,
}

/// State of a process's newest life, from its launch to the detection of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifeState {
    /// Launched, but not registered yet.
    Launched,
    /// Running, or waiting for its first membership.
    Registered,
    /// A kill was ordered, but the end has not been detected yet.
    Killed,
    /// The end has been detected.
    Down,
    /// The process's cluster has left. The process was ended, and will have no further life.
    Left,
}

impl SupervisedProcess {
    /// Records the values that a process reports. Keeps the earlier progress if the process has not restored its state
    /// yet, and therefore does not know its progress.
    fn measured(&mut self, gauges: Gauges) {
        let is_unknown = gauges.progress == Progress::default();
        let progress = if is_unknown { self.gauges.progress } else { gauges.progress };
        self.gauges = Gauges { progress, ..gauges };
    }

    pub(crate) fn lives(&self) -> bool {
        matches!(self.state, LifeState::Launched | LifeState::Registered)
    }
}

impl Supervisor {
    /// Creates the supervisor of the processes in `membership`, and launches all of them. In `membership`, no
    /// process may be up, and every life must be 0.
    pub fn new(config: Config, membership: Membership, out: &mut Vec<Order>) -> Supervisor {
        let processes = membership.members.len();
        let ranks = membership.with_role(Role::RANK).count();
        let all = (0..processes).map(|index| ProcessId(index as u32));
        let groups = all.map(|it| config.scope.group_of(&membership, it)).collect::<Vec<_>>().into_iter();
        let entry = SupervisedProcess {
            life: Life(0),
            state: LifeState::Down,
            replaced: false,
            fate: StorageFate::Kept,
            paused_until: None,
            halted: false,
            gone: false,
            beats: false,
            gauges: Gauges::default(),
        };
        let mut supervisor = Supervisor {
            unannounced: false,
            unannounced_failures: Vec::new(),
            entries: vec![entry; processes],
            failure_detector: FailureDetector::new(config.detect_after, processes),
            agenda: BTreeMap::new(),
            planned: 0,
            plan: Plan::new(config.plan.clone()),
            nodes: Nodes::new(processes, config.spares),
            completion: Completion::new(groups, ranks),
            links_measured: false,
            begun: None,
            origin: Time::ZERO,
            paused: None,
            outcome: None,
            committed: vec![Position::default(); membership.clusters.len()],
            presence: Waiting::default(),
            preparation: Preparation::default(),
            stops: Vec::new(),
            awaits_exits: false,
            expects_heartbeats: false,
            config,
            membership,
        };
        supervisor.plan_start(Time::ZERO);
        supervisor.watch(out);
        for index in 0..processes {
            supervisor.launch(ProcessId(index as u32), Time::ZERO, out);
        }
        supervisor
    }

    /// Makes the supervisor wait for the [`Report::Exited`] of a silent process before it announces the failure.
    /// Intended for drivers that need time to perform an [`Order::Kill`] and that report the end of every life. Other
    /// drivers complete each order before the next one.
    pub fn await_exits(&mut self) {
        self.awaits_exits = true;
    }

    /// Watches every life for silence once it has registered. Intended for drivers whose lives can hang before their
    /// first heartbeat.
    pub fn expect_heartbeats(&mut self) {
        self.expects_heartbeats = true;
    }

    /// Handles one report, then performs all scheduled actions that are due. [`Report::Gauges`] triggers no action,
    /// and silence is detected only at a [`Report::Timeout`].
    pub fn handle(&mut self, report: Report, now: Time, out: &mut Vec<Order>) {
        if self.outcome.is_some() {
            return;
        }
        // During a pause, time does not advance for scheduled actions.
        let now = match report {
            Report::Changed(_) => now,
            _ => self.paused.filter(|_| self.is_federation_paused()).unwrap_or(now),
        };
        let passive = matches!(report, Report::Gauges { .. });
        let timeout = matches!(report, Report::Timeout);
        self.take(report, now, out);
        if passive {
            return;
        }
        while self.outcome.is_none() && !self.is_federation_paused() {
            let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) else { break };
            let ((at, _), due) = entry.remove_entry();
            self.perform(due, at, now, out);
        }
        // Only at timeouts: other reports may have been delayed together with heartbeats of other processes.
        while timeout && self.outcome.is_none() && !self.is_federation_paused() {
            let Some(process) = self.failure_detector.pop(now) else { break };
            self.fence(process, now, out);
        }
    }

    /// Returns the time at which the supervisor wants a [`Report::Timeout`]. A time in the past means
    /// immediately; `None` means that it needs none, for example after the end of the run.
    pub fn next_deadline(&self) -> Option<Time> {
        if self.outcome.is_some() {
            return None;
        }
        if self.unannounced {
            return Some(Time::ZERO);
        }
        if self.is_federation_paused() {
            return None;
        }
        let agenda = self.agenda.first_key_value().map(|(&(at, _), _)| at);
        agenda.into_iter().chain(self.failure_detector.next_deadline()).min()
    }

    /// Returns whether the driver must report facts of this kind. Drivers ask once, at the start of a run. If a fault
    /// added later waits for another kind of fact, the processes that halt at such a fact report it.
    pub fn follows(&self, kind: FactKind) -> bool {
        matches!(
            kind,
            FactKind::Finished
                | FactKind::Restored
                | FactKind::CheckpointCommitted
                | FactKind::RolledBack
                | FactKind::Unrecoverable
                | FactKind::NotRepeated
                | FactKind::Broke
                | FactKind::Released
        ) || self.config.is_planned && matches!(kind, FactKind::Absorbed | FactKind::Ceded)
            || self.config.system.is_some()
                && matches!(
                    kind,
                    FactKind::Ready
                        | FactKind::Logged
                        | FactKind::LinesLeftOut
                        | FactKind::Exited
                        | FactKind::Stopped
                        | FactKind::Checked
                )
            || self.plan.waits_for(kind)
    }

    /// Returns the current status of the federation, for a live view.
    pub fn status(&self) -> Status {
        let clusters = self.committed.iter().zip(self.membership.clusters.iter());
        let mut clusters: Vec<ClusterStatus> = clusters
            .map(|(&committed, cluster)| ClusterStatus {
                presence: cluster.presence,
                committed,
                ..ClusterStatus::default()
            })
            .collect();
        let members = (0..).map(ProcessId).zip(self.membership.members.iter());
        for ((process, member), entry) in members.zip(&self.entries) {
            if let Some(cluster) = clusters.get_mut(member.cluster.index()) {
                let is_up = match self.config.system {
                    None => member.up,
                    Some(_) => entry.state == LifeState::Registered && self.preparation.is_up(process),
                };
                cluster.processes += 1;
                cluster.up += u32::from(is_up);
                cluster.progress.done += entry.gauges.progress.done;
                cluster.progress.total += entry.gauges.progress.total;
            }
        }
        Status {
            begun: self.begun,
            paused: self.paused.is_some(),
            outcome: self.outcome.clone(),
            clusters,
            faults: self.faults(),
            spares: self.nodes.free(),
        }
    }

    /// Returns the state of each fault of the plan. A fault that is still pending after the end of the run was never
    /// due.
    pub fn faults(&self) -> Vec<FaultAccount> {
        self.plan.account()
    }

    /// Returns the time at which an injected fault was due: its time in the plan, or the arrival of the report that
    /// triggered it. `None` if the fault has not been injected.
    pub fn due(&self, no: FaultNo) -> Option<Time> {
        self.plan.due(no)
    }

    /// Iterates over all processes with their newest lives.
    pub fn newest(&self) -> impl Iterator<Item = (ProcessId, Life)> {
        self.entries.iter().enumerate().map(|(index, entry)| (ProcessId(index as u32), entry.life))
    }

    /// Returns the plan, including faults that were added to it.
    pub fn plan(&self) -> Vec<PlannedFault> {
        self.plan.planned()
    }

    fn take(&mut self, report: Report, now: Time, out: &mut Vec<Order>) {
        match report {
            Report::Registered { process, life } => {
                if self.entry_of(process, life).is_some_and(|entry| entry.state == LifeState::Launched) {
                    self.registered(process, life, now, out);
                }
            }
            Report::LinksMeasured => {
                self.links_measured = true;
                self.try_begin(now, out);
            }
            Report::Heartbeat { process, life, gauges } => {
                if let Some(entry) = self.entry_of(process, life) {
                    entry.measured(gauges);
                    self.heartbeat(process, now);
                }
            }
            Report::Gauges { process, life, gauges } => {
                if let Some(entry) = self.entry_of(process, life) {
                    entry.measured(gauges);
                }
            }
            Report::Fact { process, life, fact, halted } => {
                if self.entry_of(process, life).is_some() {
                    self.stated(process, &fact, halted, now, out);
                }
            }
            Report::Started { process, life } => {
                if self.entry_of(process, life).is_some() {
                    let member = &mut Arc::make_mut(&mut self.membership.members)[process.index()];
                    self.unannounced |= !member.started;
                    member.started = true;
                }
            }
            Report::SetUp { process, life } => {
                if self.entry_of(process, life).is_some() {
                    self.is_set_up(now, out);
                }
            }
            Report::Held { process, life } => {
                if let Some(entry) = self.entry_of(process, life) {
                    entry.replaced = false;
                }
            }
            Report::Exited { process, life } => {
                if self.is_to_be_detected(process, life) {
                    self.detected(process, now, out);
                }
            }
            Report::Lost { process, life, storage, by } => {
                if self.entry_of(process, life).is_some() {
                    self.kill(&[process], storage, by, now, out);
                }
                if self.is_to_be_detected(process, life) {
                    self.detected(process, now, out);
                }
            }
            Report::Changed(change) => self.change(change, now, out),
            Report::Interrupted => self.end(Outcome::Interrupted, out),
            Report::OutOfMemory(used) => self.end(Outcome::OutOfMemory(used), out),
            Report::Ended(outcome) => self.end(outcome, out),
            Report::Timeout => {
                if self.unannounced {
                    self.announce(now, out);
                }
            }
        }
    }

    /// Handles the registration of a life that was launched.
    fn registered(&mut self, process: ProcessId, life: Life, now: Time, out: &mut Vec<Order>) {
        self.entries[process.index()].state = LifeState::Registered;
        if self.expects_heartbeats {
            self.heartbeat(process, now);
        }
        if self.begun.is_some() && !self.is_awaited(process) {
            self.announce_member(process, true);
        }
        if self.is_federation_paused() {
            out.push(Order::Pause { process, life, paused: true });
        }
        self.prepare_again(process, out);
        self.try_begin(now, out);
        self.try_complete(out);
        self.try_join(self.cluster_of(process), out);
    }

    /// Handles a fact of a current life.
    fn stated(&mut self, process: ProcessId, fact: &Fact, halted: bool, now: Time, out: &mut Vec<Order>) {
        self.learn(process, fact, out);
        if let Fact::Observed(observation) = fact {
            self.observed(process, observation, now, out);
        }
        if halted && self.outcome.is_none() {
            self.entries[process.index()].halted = true;
            self.count(process, fact, now, out);
            self.release(process, out);
        }
        self.try_leave(self.cluster_of(process), out);
        self.try_complete(out);
    }

    /// Records that a process is active, and starts to watch it for silence.
    fn heartbeat(&mut self, process: ProcessId, now: Time) {
        self.entries[process.index()].beats = true;
        self.failure_detector.heartbeat(process, now);
    }

    /// Returns the entry of `process` if `life` is its newest life and has neither ended nor been killed.
    fn entry_of(&mut self, process: ProcessId, life: Life) -> Option<&mut SupervisedProcess> {
        Some(&mut self.entries[process.index()]).filter(|entry| entry.life == life && entry.lives())
    }

    /// Returns whether the supervisor has not yet detected the end of this life.
    fn is_to_be_detected(&self, process: ProcessId, life: Life) -> bool {
        let entry = self.entries[process.index()];
        entry.life == life && !matches!(entry.state, LifeState::Down | LifeState::Left)
    }

    pub(crate) fn cluster_of(&self, process: ProcessId) -> ClusterId {
        self.membership.cluster_of(process)
    }

    pub(crate) fn processes_of(&self, cluster: ClusterId) -> Arc<[ProcessId]> {
        self.membership.processes_of(cluster).clone()
    }

    pub(crate) fn plan_at(&mut self, at: Time, due: Due) {
        self.agenda.insert((at, self.planned), due);
        self.planned += 1;
    }

    pub(crate) fn try_begin(&mut self, now: Time, out: &mut Vec<Order>) {
        let ready = self.links_measured
            && self.paused.is_none()
            && self.entries.iter().all(|entry| entry.state == LifeState::Registered);
        if self.begun.is_some() || !ready || !self.is_prepared(out) {
            return;
        }
        self.begun = Some(now);
        self.origin = now;
        for process in (0..self.entries.len()).map(|index| ProcessId(index as u32)) {
            if !self.is_awaited(process) {
                self.announce_member(process, true);
            }
        }
        for (cluster, after) in self.config.joins.clone() {
            self.plan_at(now + after, Due::Join(cluster));
        }
        for (cluster, after) in self.config.leaves.clone() {
            self.plan_at(now + after, Due::Leave(cluster));
        }
        for (at, due) in self.plan.scheduled() {
            self.plan_at(now + at.since(Time::ZERO), due);
        }
        self.plan_at(now + self.config.deadline, Due::Deadline);
        self.plan_end(now);
        out.push(Order::Record(Fact::Begun));
        self.announce(now, out);
    }

    /// Sets the time limit for the start of the application, counted from `now`.
    pub(crate) fn plan_start(&mut self, now: Time) {
        if let Some(limit) = self.config.start_within {
            self.plan_at(now + limit, Due::Deadline);
        }
    }

    /// Ends the run if it has exceeded its time limit, whether or not the application has begun.
    pub(crate) fn end_at_deadline(&mut self, now: Time, out: &mut Vec<Order>) {
        let limit = if self.begun.is_some() { Some(self.config.deadline) } else { self.config.start_within };
        // A run does not time out while the user delays its start with a pause.
        if limit.is_some_and(|it| self.origin + it <= now) && self.paused.is_none() {
            self.end(Outcome::Deadline, out);
        }
    }

    /// Handles a fact that affects the completion of the application or the live view.
    fn learn(&mut self, process: ProcessId, fact: &Fact, out: &mut Vec<Order>) {
        match fact {
            Fact::Finished(state) => self.completion.finished(process, &state.0),
            Fact::Restored(restored) => {
                self.completion.restored(process, restored.1);
                self.presence.runs_own_partition(process);
            }
            // The process reports its completion again, with the partition.
            Fact::Absorbed(absorbed) if self.config.is_planned => {
                self.completion.unfinished(process);
                if absorbed.0 == process {
                    self.presence.runs_own_partition(process);
                }
            }
            // The process reports its completion again, without the partition.
            Fact::Ceded { .. } => self.completion.unfinished(process),
            Fact::Claim(claim) => match &**claim {
                Claim::Committed { position, .. } | Claim::RolledBack { to: position, .. } => {
                    if let Some(newest) = self.committed.get_mut(self.membership.cluster_of(process).index())
                    {
                        *newest = (*newest).max(*position);
                    }
                }
                Claim::Released { cluster } => self.wants_to_leave(*cluster, out),
                claim => {
                    if let Some(outcome) = Outcome::of_claim(claim) {
                        self.end(outcome, out);
                    }
                }
            },
            _ => {}
        }
    }

    pub(crate) fn try_complete(&mut self, out: &mut Vec<Order>) {
        let is_complete = match self.config.system {
            Some(_) => self.is_system_complete(out),
            None => self.completion.is_complete() && !self.are_partitions_moving(),
        };
        if self.outcome.is_none() && is_complete {
            out.push(Order::Record(Fact::Completed));
            self.end(Outcome::Completed, out);
        }
    }

    pub(crate) fn end(&mut self, outcome: Outcome, out: &mut Vec<Order>) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome.clone());
            out.push(Order::End(outcome));
        }
    }

    /// Releases a halted process, unless it is also paused.
    pub(crate) fn release(&mut self, process: ProcessId, out: &mut Vec<Order>) {
        let entry = &mut self.entries[process.index()];
        let is_federation_paused = self.paused.is_some();
        if self.outcome.is_none()
            && entry.lives()
            && entry.halted
            && entry.paused_until.is_none()
            && !is_federation_paused
        {
            entry.halted = false;
            out.push(Order::Go { process, life: entry.life });
        }
    }

    pub(crate) fn pause(
        &mut self,
        process: ProcessId,
        (until, by): (Time, FaultNo),
        now: Time,
        out: &mut Vec<Order>,
    ) {
        let entry = &mut self.entries[process.index()];
        let life = entry.life;
        out.push(Order::Pause { process, life, paused: true });
        if entry.paused_until.is_none_or(|(earlier, _)| earlier < until) {
            entry.paused_until = Some((until, by));
            self.plan_at(until, Due::Resume { process, life });
        }
        self.failure_detector.watch(process, now);
    }

    pub(crate) fn resume(&mut self, process: ProcessId, life: Life, now: Time, out: &mut Vec<Order>) {
        let Some(entry) = self.entry_of(process, life) else { return };
        if entry.paused_until.is_some_and(|(until, _)| until <= now) {
            entry.paused_until = None;
            if !entry.beats {
                self.failure_detector.forget(process);
            }
            out.push(Order::Record(Fact::Resumed { process, life }));
            out.push(Order::Pause { process, life, paused: false });
            self.release(process, out);
        }
    }

    /// Ends the lives of `processes` immediately, and keeps or removes their storage. For a process that has
    /// already failed, only the storage is affected.
    pub(crate) fn kill(
        &mut self,
        processes: &[ProcessId],
        storage: StorageFate,
        by: EndedBy,
        now: Time,
        out: &mut Vec<Order>,
    ) {
        let storage = if self.config.volatile_storage { StorageFate::Lost } else { storage };
        let mut lives = Vec::with_capacity(processes.len());
        for &process in processes {
            let entry = &mut self.entries[process.index()];
            let life = entry.life;
            entry.replaced |= storage == StorageFate::Lost;
            if entry.lives() {
                self.presence.stays(self.membership.cluster_of(process));
                entry.state = LifeState::Killed;
                entry.fate = storage;
                self.completion.unfinished(process);
                self.failure_detector.watch(process, now);
            }
            lives.push((process, life));
            out.push(Order::Record(Fact::Failed { process, life, storage, by }));
        }
        out.push(Order::Kill { lives, storage });
    }

    /// Prevents further lives of these processes. The membership marks them as gone at the end of their last
    /// life, or immediately if that end has already been detected.
    pub(crate) fn give_up(&mut self, processes: &[ProcessId]) {
        for &process in processes {
            let entry = &mut self.entries[process.index()];
            if std::mem::replace(&mut entry.gone, true) {
                continue;
            }
            self.nodes.leave(process);
            if entry.state == LifeState::Down {
                self.announce_member(process, false);
            }
            if self.membership.member(process).role == Role::RANK {
                self.completion.without(process);
            }
        }
    }

    /// Fences a silent process, so that its failure is certain before it is announced.
    fn fence(&mut self, process: ProcessId, now: Time, out: &mut Vec<Order>) {
        let entry = self.entries[process.index()];
        match entry.state {
            LifeState::Launched | LifeState::Registered => {
                let by = entry.paused_until.map_or(EndedBy::Silence, |(_, fault)| EndedBy::Fault(fault));
                self.kill(&[process], StorageFate::Kept, by, now, out);
                if self.awaits_exits {
                    return;
                }
            }
            // The driver will report its exit.
            LifeState::Killed if self.awaits_exits => return,
            LifeState::Killed => {
                out.push(Order::Kill { lives: vec![(process, entry.life)], storage: entry.fate })
            }
            LifeState::Down | LifeState::Left => return,
        }
        self.detected(process, now, out);
    }

    fn detected(&mut self, process: ProcessId, now: Time, out: &mut Vec<Order>) {
        self.failure_detector.forget(process);
        self.completion.unfinished(process);
        self.presence.stays(self.cluster_of(process));
        self.stop_ended(process, out);
        let entry = &mut self.entries[process.index()];
        entry.state = LifeState::Down;
        entry.replaced |= self.config.volatile_storage;
        out.push(Order::Record(Fact::Detected { process, life: entry.life }));
        if self.begun.is_some() && !self.is_awaited(process) {
            self.unannounced_failures.push(process);
            self.announce_member(process, false);
        } else {
            self.plan_at(now + self.config.restart_after, Due::Launch(process));
        }
    }

    /// Starts the next life of a process, on a spare node if its own is under repair. Without a spare, the process waits.
    pub(crate) fn launch(&mut self, process: ProcessId, now: Time, out: &mut Vec<Order>) {
        let is_awaited = self.is_awaited(process);
        let entry = &self.entries[process.index()];
        if entry.state == LifeState::Left || entry.gone {
            return;
        }
        match self.nodes.start(process) {
            Start::Here => {}
            Start::Spare => self.kill(&[process], StorageFate::Lost, EndedBy::Moved, now, out),
            Start::Nowhere => return,
        }
        let entry = &mut self.entries[process.index()];
        // A process whose cluster has not joined has not started, so none of its lives has stored anything.
        entry.replaced &= !is_awaited;
        let boot = match (entry.life == Life(0) || is_awaited, entry.replaced) {
            (true, _) => Boot::Fresh,
            (false, true) => Boot::Replaced,
            (false, false) => Boot::Restarted,
        };
        self.preparation.life_ended(process, now);
        entry.life = entry.life.next();
        entry.state = LifeState::Launched;
        entry.fate = StorageFate::Kept;
        entry.paused_until = None;
        entry.halted = false;
        let life = entry.life;
        out.push(Order::Record(Fact::LifeStarted { process, life, boot }));
        out.push(Order::Launch { process, life, boot });
    }

    /// Updates a process's entry in the membership to announce next.
    pub(crate) fn announce_member(&mut self, process: ProcessId, up: bool) {
        let member = &mut Arc::make_mut(&mut self.membership.members)[process.index()];
        member.life = self.entries[process.index()].life;
        member.up = up;
        member.gone = self.entries[process.index()].gone;
        self.unannounced = true;
    }

    fn announce(&mut self, now: Time, out: &mut Vec<Order>) {
        self.unannounced = false;
        self.membership.version = self.membership.version.next();
        out.push(Order::Announce(Arc::new(self.membership.clone())));
        for process in std::mem::take(&mut self.unannounced_failures) {
            self.plan_at(now + self.config.restart_after, Due::Launch(process));
        }
    }
}
