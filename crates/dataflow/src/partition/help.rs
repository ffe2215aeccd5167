//! Tasks that another process re-executes in place of this one (CCK long paper, section 3.6.3: re-execution may be
//! spread over all live processes).
//!
//! A process asks another one to execute a task, sends its inputs, and applies the outcome. When a process fails, a
//! recovery begins and all re-execution restarts, so earlier requests become void.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use faultline_core::{JobNo, Life, Out, ProcessId, Role};
use serde::{Deserialize, Serialize};

use super::{Executing, Inner, Partition, PartitionMessage, PartitionProtocol};
use crate::program::{Call, Program, TaskOutcome};

/// Maximum number of tasks that one process is asked to execute at a time: one that it executes, and one in transit.
const ASKED_AT_A_TIME: usize = 2;

/// Identifies a task that another process is asked to execute: the requesting life, and a number within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HelpNo(Life, u64);

/// Tasks that other processes execute for this process, and tasks that this process executes for others.
#[derive(Clone, Debug, Default)]
pub(super) struct Help {
    /// The requested tasks, each with the process that was asked.
    asked: BTreeMap<HelpNo, (ProcessId, Executing)>,
    next: u64,
    waiting: VecDeque<(ProcessId, HelpNo, Call)>,
    helping: Vec<Helping>,
}

/// A task that this process executes for another process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Helping {
    job: JobNo,
    pub(super) by: ProcessId,
    pub(super) no: HelpNo,
}

impl Help {
    pub(super) fn executing(&self) -> usize {
        self.helping.len()
    }

    /// Handles another process's request to execute a task.
    pub(super) fn asked(&mut self, by: ProcessId, no: HelpNo, call: Call) {
        // The requester no longer waits for answers to requests from its older lives.
        self.waiting.retain(|(other, it, _)| *other != by || it.0 >= no.0);
        self.waiting.push_back((by, no, call));
    }

    /// Handles the end of a job. Returns the task if the job executed it for another process.
    pub(super) fn done(&mut self, job: JobNo) -> Option<Helping> {
        let index = self.helping.iter().position(|it| it.job == job)?;
        Some(self.helping.swap_remove(index))
    }

    /// Cancels all requests for this partition.
    pub(super) fn forget(&mut self, partition: ProcessId) {
        self.asked.retain(|_, (_, it)| it.partition != partition);
    }

    fn asked_of(&self, process: ProcessId) -> usize {
        self.asked.values().filter(|(it, _)| *it == process).count()
    }
}

impl<P: PartitionProtocol, G: Program> Inner<P, G> {
    pub(super) fn help_others(&mut self, out: &mut Out<Partition<P, G>>) {
        while self.jobs.len() + self.help.executing() < self.cores {
            let Some((by, no, call)) = self.help.waiting.pop_front() else { return };
            let (job, _) = self.begin(call, out);
            self.help.helping.push(Helping { job, by, no });
        }
    }

    /// Asks other processes to re-execute tasks for which this process has no free core.
    pub(super) fn ask_for_help(&mut self, out: &mut Out<Partition<P, G>>) {
        while let Some(helper) = self.helper() {
            let mut spread = self.running.iter_mut().filter(|(_, it)| !it.held);
            let next =
                spread.find_map(|(partition, it)| Some((*partition, it.rerun.as_mut()?.next_to_spread()?)));
            let Some((partition, task)) = next else { return };
            let call = self.call(partition, task, true);
            let (job, cost) = (self.next_job, self.cost(&call));
            self.next_job = job.next();
            let no = HelpNo(self.life, self.help.next);
            self.help.next += 1;
            self.help.asked.insert(no, (helper, Executing { job, partition, task, cost, is_again: true }));
            self.send_control(helper, PartitionMessage::Help(no, call), out);
        }
    }

    /// Returns the process to ask next: the one with the fewest unanswered requests, unless it has reached the limit.
    fn helper(&self) -> Option<ProcessId> {
        if !self.running.values().any(|it| !it.held && it.rerun.as_ref().is_some_and(|it| it.can_spread())) {
            return None;
        }
        let all = self.membership.members.len() as u32;
        let ring = (1..all).map(|step| ProcessId((self.me.0 + step) % all));
        let is_up = |it: &ProcessId| {
            let member = self.membership.member(*it);
            member.role == Role::RANK && member.up
        };
        let (asked, helper) =
            ring.filter(is_up).map(|it| (self.help.asked_of(it), it)).min_by_key(|it| it.0)?;
        (asked < ASKED_AT_A_TIME).then_some(helper)
    }

    /// Handles the outcome of a task that another process has executed for this one.
    pub(super) fn helped(&mut self, no: HelpNo, outcome: TaskOutcome, out: &mut Out<Partition<P, G>>) {
        if let Some((_, executing)) = self.help.asked.remove(&no) {
            self.done(executing, outcome, out);
        }
    }
}
