//! Tasks that another process executes again in place of this one (CCK long paper, section 3.6.3: what is executed again may be
//! spread over all processes that live).
//!
//! A process asks another one to execute a task, with its inputs, and applies what it did. When a process fails, a recovery
//! begins, and everything that is executed again begins anew: what was asked for before is void.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use faultline_core::{JobNo, Life, Out, ProcessId, Role};
use serde::{Deserialize, Serialize};

use super::{Executing, Inner, Partition, PartitionMessage, PartitionProtocol};
use crate::program::{Call, Outcome, Program};

/// How many tasks one process is asked to execute at a time: one that it executes, and one that arrives meanwhile.
const ASKED_AT_A_TIME: usize = 2;

/// A task that another process is asked to execute: the life that asks, and a number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HelpNo(Life, u64);

/// Tasks that other processes execute for this one, and those that it executes for others.
#[derive(Clone, Debug, Default)]
pub(super) struct Help {
    /// What was asked for, and of whom.
    asked: BTreeMap<HelpNo, (ProcessId, Executing)>,
    next: u64,
    waiting: VecDeque<(ProcessId, HelpNo, Call)>,
    helping: Vec<Helping>,
}

/// A task that this process executes for another one.
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

    /// Another process asks this one to execute a task.
    pub(super) fn asked(&mut self, by: ProcessId, no: HelpNo, call: Call) {
        // An older life of that process does not wait for anything.
        self.waiting.retain(|(other, it, _)| *other != by || it.0 >= no.0);
        self.waiting.push_back((by, no, call));
    }

    /// The job that executed a task for another process.
    pub(super) fn done(&mut self, job: JobNo) -> Option<Helping> {
        let index = self.helping.iter().position(|it| it.job == job)?;
        Some(self.helping.swap_remove(index))
    }

    /// What was asked for, for this partition, is void.
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

    /// Asks other processes to execute what is to be executed again, and this one has no time for.
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
            self.say(helper, PartitionMessage::Help(no, call), out);
        }
    }

    /// The process that is asked next: the one that was asked to execute the fewest tasks, if it has time for another.
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

    /// Another process has executed a task for this one.
    pub(super) fn helped(&mut self, no: HelpNo, outcome: Outcome, out: &mut Out<Partition<P, G>>) {
        if let Some((_, executing)) = self.help.asked.remove(&no) {
            self.done(executing, outcome, out);
        }
    }
}
