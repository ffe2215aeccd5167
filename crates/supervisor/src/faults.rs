//! The fault plan: when each is due, whether it can still have an effect, and how it is injected and
//! reverted.

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_core::fault::{Impairment, Impairments, LinkProperties};
use faultline_core::{
    ClusterId, EndedBy, Fact, FactKind, Fault, FaultNo, Life, PlannedFault, Presence, ProcessId, StorageFate,
    Target, Time, Trigger,
};

use crate::interface::{FaultAccount, FaultState, Order};
use crate::nodes::NodeNo;
use crate::stops::Stopping;
use crate::supervisor::Supervisor;

/// An action scheduled for a specific time.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    /// Injects the fault with this index in the plan.
    Inject(usize),
    Launch(ProcessId),
    /// Ends a repair of a node.
    Repaired(NodeNo),
    /// Starts a process that waits for a node on a spare, if one is free.
    Spare,
    Join(ClusterId),
    Leave(ClusterId),
    Resume {
        process: ProcessId,
        life: Life,
    },
    /// Ends a fault of a link. Unless a later fault has changed the link, an earlier one that has not ended is in force
    /// again or, if there is none, the link's own properties are restored.
    RestoreLink {
        from: ClusterId,
        to: ClusterId,
        changed_by: FaultNo,
    },
    Heal {
        from: ClusterId,
        to: ClusterId,
    },
    /// Ends a partition within a cluster.
    Unite {
        of: FaultNo,
        cluster: ClusterId,
        nodes: Vec<ProcessId>,
    },
    /// Ends an impairment of a node. Unless a later one of its kind is in force, an earlier one that has not ended is in
    /// force again.
    RestoreNode {
        process: ProcessId,
        changed_by: FaultNo,
    },
    Deadline,
    /// Ends the run of a system.
    EndSystem,
}

/// The faults of a run, and those that have not ended for each link and node.
#[derive(Debug)]
pub(crate) struct Plan {
    faults: Vec<FaultEntry>,
    links: BTreeMap<(ClusterId, ClusterId), Unended<Option<LinkProperties>>>,
    /// Number of partitions that cut each link.
    cuts: BTreeMap<(ClusterId, ClusterId), u32>,
    nodes: BTreeMap<ProcessId, Vec<(FaultNo, Impairment)>>,
}

/// Faults of the same link, in the order of their injection. The last one is in force.
#[derive(Debug)]
struct Unended<T>(Vec<(FaultNo, T)>);

impl<T> Default for Unended<T> {
    fn default() -> Unended<T> {
        Unended(Vec::new())
    }
}

impl<T: Copy> Unended<T> {
    /// Ends a fault. If it was in force, returns the fault that is in force now, if any, and otherwise `None`.
    fn end(&mut self, no: FaultNo) -> Option<Option<(FaultNo, T)>> {
        let was_in_force = self.0.last().is_some_and(|it| it.0 == no);
        self.0.retain(|it| it.0 != no);
        was_in_force.then(|| self.0.last().copied())
    }
}

#[derive(Debug)]
struct FaultEntry {
    planned: PlannedFault,
    state: FaultState,
    /// Number of occurrences of the trigger's fact.
    seen: u32,
    /// Time at which the fault was due; `None` until it is injected.
    due: Option<Time>,
}

impl Plan {
    pub(crate) fn new(faults: Vec<PlannedFault>) -> Plan {
        let entry = |planned| FaultEntry { planned, state: FaultState::Pending, seen: 0, due: None };
        Plan {
            faults: faults.into_iter().map(entry).collect(),
            links: BTreeMap::new(),
            cuts: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// Returns the faults with a fixed time, counted from the start of the application.
    pub(crate) fn scheduled(&self) -> Vec<(Time, Due)> {
        let at = |(index, entry): (usize, &FaultEntry)| match entry.planned.trigger {
            Trigger::At(at) => Some((at, Due::Inject(index))),
            Trigger::When { .. } => None,
        };
        self.faults.iter().enumerate().filter_map(at).collect()
    }

    /// Returns whether any trigger of the plan, resolved or not, refers to facts of this kind.
    pub(crate) fn waits_for(&self, kind: FactKind) -> bool {
        self.faults.iter().any(|entry| entry.planned.trigger.fact() == Some(kind))
    }

    /// Adds a fault to the plan, with the next number. Returns its index.
    pub(crate) fn add(&mut self, planned: PlannedFault) -> usize {
        let index = self.faults.len();
        assert_eq!(planned.no, FaultNo(index as u32), "faults are numbered consecutively");
        self.faults.push(FaultEntry { planned, state: FaultState::Pending, seen: 0, due: None });
        index
    }

    pub(crate) fn planned(&self) -> Vec<PlannedFault> {
        self.faults.iter().map(|entry| entry.planned.clone()).collect()
    }

    pub(crate) fn due(&self, no: FaultNo) -> Option<Time> {
        self.faults.get(no.0 as usize)?.due
    }

    pub(crate) fn account(&self) -> Vec<FaultAccount> {
        self.faults.iter().map(|entry| (entry.planned.no, entry.state.clone())).collect()
    }

    /// Returns the triggers that still wait for a fact.
    fn unresolved(&self) -> Arc<[Trigger]> {
        self.faults
            .iter()
            .filter(|entry| entry.state == FaultState::Pending)
            .map(|entry| &entry.planned.trigger)
            .filter(|trigger| matches!(trigger, Trigger::When { .. }))
            .cloned()
            .collect()
    }

    /// Counts a fact. Returns the indices of the faults that it triggers.
    fn count(&mut self, fact: &Fact, by: ProcessId, of: ClusterId) -> Vec<usize> {
        let mut due = Vec::new();
        for (index, entry) in self.faults.iter_mut().enumerate() {
            let Trigger::When { occurrence, .. } = entry.planned.trigger else { continue };
            if entry.state == FaultState::Pending && entry.planned.trigger.matches(fact, by, of) {
                entry.seen += 1;
                if entry.seen >= occurrence {
                    due.push(index);
                }
            }
        }
        due
    }
}

impl Supervisor {
    /// Performs an action that was due at `at`, which is no later than `now`.
    pub(crate) fn perform(&mut self, due: Due, at: Time, now: Time, out: &mut Vec<Order>) {
        match due {
            Due::Inject(index) => self.inject(index, at, now, out),
            Due::Launch(process) => self.launch(process, now, out),
            Due::Repaired(node) => {
                match self.nodes.repaired(node) {
                    Some(process) => self.launch(process, now, out),
                    // After all repairs that end at the same instant, so that no process leaves a node that is repaired.
                    None => self.plan_at(at, Due::Spare),
                }
            }
            Due::Spare => {
                if let Some(process) = self.nodes.next() {
                    self.launch(process, now, out);
                }
            }
            Due::Join(cluster) => self.joins(cluster, out),
            Due::Leave(cluster) => self.leaves(cluster, out),
            Due::Resume { process, life } => self.resume(process, life, now, out),
            Due::RestoreLink { from, to, changed_by } => {
                let unended = self.plan.links.entry((from, to)).or_default();
                if let Some(earlier) = unended.end(changed_by) {
                    let (of, properties) = earlier.unzip();
                    let properties = properties.flatten();
                    out.push(Order::Link { from, to, properties, of });
                }
            }
            Due::Heal { from, to } => {
                let cuts = self.plan.cuts.get_mut(&(from, to)).expect("only a cut link is healed");
                *cuts -= 1;
                if *cuts == 0 {
                    out.push(Order::Cut { from, to, cut: false });
                }
            }
            Due::Unite { of, cluster, nodes } => out.push(Order::Split { of, cluster, nodes, cut: false }),
            Due::RestoreNode { process, changed_by } => {
                let unended = self.plan.nodes.entry(process).or_default();
                let before = Impairments::in_force(unended);
                unended.retain(|it| it.0 != changed_by);
                let in_force = Impairments::in_force(unended);
                if in_force != before {
                    out.push(Order::Impair { process, in_force, begins: None });
                }
            }
            Due::Deadline => self.end_at_deadline(now, out),
            Due::EndSystem => self.end_system(out),
        }
        if self.config.system.is_some() {
            self.try_complete(out);
        }
    }

    /// Returns whether a fault that lasts for a while has not ended.
    pub(crate) fn has_lasting_fault(&self) -> bool {
        let lasts = |it: &Due| match it {
            Due::Resume { .. } | Due::RestoreLink { .. } | Due::Heal { .. } => true,
            Due::Unite { .. } | Due::RestoreNode { .. } => true,
            Due::Inject(_) | Due::Launch(_) | Due::Repaired(_) | Due::Spare => false,
            Due::Join(_) | Due::Leave(_) | Due::Deadline | Due::EndSystem => false,
        };
        self.is_stopping() || self.agenda.values().any(lasts)
    }

    /// Publishes the triggers that wait for a fact.
    pub(crate) fn watch(&self, out: &mut Vec<Order>) {
        out.push(Order::Watch(self.plan.unresolved()));
    }

    /// Counts a fact at which a process is halted, and injects the faults that it triggers.
    pub(crate) fn count(&mut self, by: ProcessId, fact: &Fact, now: Time, out: &mut Vec<Order>) {
        // The commands of a system run before the application begins.
        if self.begun.is_none() {
            return;
        }
        let due = self.plan.count(fact, by, self.cluster_of(by));
        if due.is_empty() {
            return;
        }
        for index in due {
            self.inject(index, now, now, out);
        }
        self.watch(out);
    }

    fn inject(&mut self, index: usize, at: Time, now: Time, out: &mut Vec<Order>) {
        let planned = self.plan.faults[index].planned.clone();
        let no = planned.no;
        let fault = match planned.reported.map(|watch| self.preparation.last_to_log(watch)) {
            None => planned.fault,
            Some(Ok(process)) => planned.aimed_at(process, self.cluster_of(process)),
            Some(Err(reason)) => return self.mark_ineffective(index, reason.into(), out),
        };
        if let Some(reason) = self.why_ineffective(&fault) {
            return self.mark_ineffective(index, reason, out);
        }
        let entry = &mut self.plan.faults[index];
        (entry.state, entry.due) = (FaultState::Effective, Some(at));
        out.push(Order::Record(Fact::Injecting { no, fault: Box::new(fault.clone()) }));
        match fault {
            Fault::Kill { target, storage, returns, repair } => {
                let all = self.targets_of(target);
                let mut killed = all.to_vec();
                if storage == StorageFate::Kept {
                    killed.retain(|it| self.entries[it.index()].lives());
                }
                if let Some(repair) = repair {
                    self.begin_repairs(&all, now + repair);
                }
                if !killed.is_empty() {
                    self.kill(&killed, storage, EndedBy::Fault(no), now, out);
                }
                if !returns {
                    self.give_up(&all);
                    self.try_complete(out);
                }
            }
            Fault::Stop { target, storage, repair, within, in_turn, command } => {
                let rest = self.targets_of(target).iter().copied().collect();
                let (awaited, told) = (None, Vec::new());
                let stopping = Stopping { no, storage, repair, within, command, rest, awaited, told };
                self.begin_stop(stopping, in_turn, out);
            }
            Fault::Impair { process, how: Impairment::Paused, .. } => {
                self.pause(process, (fault.until(now), no), now, out);
            }
            Fault::Impair { process, how: Impairment::Flip(flip), .. } => {
                out.push(Order::Flip { process, flip, of: no });
            }
            Fault::Impair { process, how, span } => {
                let unended = self.plan.nodes.entry(process).or_default();
                unended.push((no, how));
                let in_force = Impairments::in_force(unended);
                out.push(Order::Impair { process, in_force, begins: Some(no) });
                if let Some(span) = span {
                    self.plan_at(now + span, Due::RestoreNode { process, changed_by: no });
                }
            }
            Fault::Link { from, to, properties, span } => {
                out.push(Order::Link { from, to, properties, of: Some(no) });
                self.plan.links.entry((from, to)).or_default().0.push((no, properties));
                if let Some(span) = span {
                    self.plan_at(now + span, Due::RestoreLink { from, to, changed_by: no });
                }
            }
            Fault::Split { cluster, nodes, span } => {
                self.plan_at(now + span, Due::Unite { of: no, cluster, nodes: nodes.clone() });
                out.push(Order::Split { of: no, cluster, nodes, cut: true });
            }
            Fault::Partition { .. } => {
                for (from, to) in fault.cuts() {
                    self.cut(from, to, fault.until(now), out);
                }
            }
        }
    }

    /// Records that a fault of the plan is not injected, because it would have no effect.
    pub(crate) fn mark_ineffective(&mut self, index: usize, reason: Arc<str>, out: &mut Vec<Order>) {
        let entry = &mut self.plan.faults[index];
        entry.state = FaultState::Ineffective(reason.clone());
        out.push(Order::Record(Fact::Ineffective { no: entry.planned.no, reason }));
    }

    fn cut(&mut self, from: ClusterId, to: ClusterId, until: Time, out: &mut Vec<Order>) {
        *self.plan.cuts.entry((from, to)).or_default() += 1;
        out.push(Order::Cut { from, to, cut: true });
        self.plan_at(until, Due::Heal { from, to });
    }

    /// Makes the nodes of `processes` unavailable: those of processes that run, and those that are under repair already.
    pub(crate) fn begin_repairs(&mut self, processes: &[ProcessId], until: Time) {
        for &process in processes {
            if self.entries[process.index()].lives() || self.nodes.is_failed(process) {
                let node = self.nodes.fail(process);
                self.plan_at(until, Due::Repaired(node));
            }
        }
    }

    fn targets_of(&self, target: Target) -> Arc<[ProcessId]> {
        match target {
            Target::Process(process) => [process].into(),
            Target::Cluster(cluster) => self.processes_of(cluster),
            Target::Rack { cluster, .. } => target.among(&self.processes_of(cluster)).into(),
        }
    }

    /// Returns the reason why `fault` would have no effect now; `None` if it would have an effect.
    fn why_ineffective(&self, fault: &Fault) -> Option<Arc<str>> {
        let affects_lives =
            fault.kills().or(fault.pauses().or(fault.flips().map(|it| it.0)).map(Target::Process)).is_some();
        let target = fault.target().filter(|_| affects_lives);
        let cluster = target.map(|it| it.cluster(|process| self.cluster_of(process)));
        match cluster.map(|cluster| self.membership.presence(cluster)) {
            Some(Presence::Awaited) => return Some("its target had not joined".into()),
            Some(Presence::Left) => return Some("its target had left".into()),
            _ => {}
        }
        let is_affected = |process: &ProcessId| {
            let entry = &self.entries[process.index()];
            match fault {
                _ if fault.is_permanent() => !entry.gone,
                Fault::Stop { .. } => self.runs_command(*process),
                _ => entry.lives(),
            }
        };
        let finds_someone = target.is_none_or(|it| self.targets_of(it).iter().any(is_affected));
        if !finds_someone {
            return Some(match fault.is_stop() {
                true => "no node of its target was running its command".into(),
                false => "no process of its target was alive".into(),
            });
        }
        let (done, total) =
            self.entries.iter().map(|entry| entry.gauges.progress).fold((0, 0), |sum, progress| {
                (sum.0 + u128::from(progress.done.min(progress.total)), sum.1 + u128::from(progress.total))
            });
        let least = u128::from(self.config.least_work_left_percent);
        ((total - done) * 100 < least * total).then(|| {
            let left = (total - done) * 100 / total;
            format!(
                "only {left} % of the application's steps were left, less than the required {least} % \
                 (`simulator.leastWorkLeft`)"
            )
            .into()
        })
    }
}
