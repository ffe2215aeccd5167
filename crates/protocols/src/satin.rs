//! Satin's fault tolerance: no checkpoints, but a table of orphaned results.
//!
//! G. Wrzesińska, R. V. van Nieuwpoort, J. Maassen, H. E. Bal: *Fault-Tolerance, Malleability and Migration
//! for Divide-and-Conquer Applications on the Grid* (2005); the baseline of the paper on TIC (section 7,
//! Figure 13).
//!
//! A process that fails loses its graph. Its victims re-execute the tasks that it had stolen. Tasks that others had
//! stolen from it are orphaned: their thieves announce that they are working on these tasks, complete them, and keep
//! the results. Each process keeps a table of these announcements, and looks up every task before starting it; if
//! another process has the task, the process waits for the result. (This is Satin's variant without aborts. In the
//! other variant, unfinished orphans are dropped, except for the finished tasks that descend from them.) If the process
//! that runs the program's first task fails, the program restarts, at that process or, if it failed permanently, at the
//! next one. A failure therefore loses all work of the failed process whose results it has not returned yet. Without
//! failures, nothing is written, and no message waits.
//!
//! The rules cite what the paper on TIC states about Satin (section 7). Rules marked *added* are not in that paper;
//! `docs/tic-sel.md` describes them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::process::Gauges;
use faultline_core::{
    Boot, Cause, Claim, LifeStart, Membership, Position, ProcessId, Promise, Promises, ProtocolTypes, Role,
    Scope, Sn, TaskId, Theft, Time, To, Vectors,
};
use faultline_dataflow::recovery::{LastState, Leg, TaskHost, TaskInput, TaskProtocol, root};
use faultline_dataflow::successor;
use serde::{Deserialize, Serialize};

use crate::machines::rules;

/// Parameters of Satin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// Enabled defects, for tests.
    pub defects: Defects,
}

rules! {
    /// A victim re-executes the tasks that a failed thief had stolen (section 7: the lost work is redone).
    RedoesLoans, without
        /// A victim does not re-execute the tasks that a failed thief had stolen.
        LoanKept;
    /// A task that waits for an orphan's result is re-executed if the holder of the result fails (added).
    RedoesOrphans, without
        /// A task that waits for an orphan's result is not re-executed if the holder of the result fails.
        OrphanKept;
    /// The orphans of failed holders are removed from the table (added).
    ClearsTable, without
        /// The orphans of failed holders stay in the table.
        StaleTable;
    /// If the process that runs the program's first task fails permanently, the next process restarts the program
    /// (added).
    RestartsProgram, without
        /// If the process that runs the program's first task fails permanently, no other process restarts the
        /// program.
        NoNewRoot;
    /// A task starts only after a lookup in the table (section 7: results in the table are reused).
    LooksUp, without
        /// A task starts without a lookup in the table.
        NoLookup;
}

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The sender has the results of these tasks, or is working on them. Each task is listed with the theft by which
    /// the sender obtained it.
    Orphans(Arc<[(TaskId, Theft)]>),
    /// The sender has the task of this orphan, and asks the receiver to send the result once it exists.
    Fetch(Theft),
    /// The sender no longer has the result of this orphan.
    Missing(Theft),
}

/// One process under Satin.
#[derive(Clone, Debug)]
pub struct Satin {
    me: ProcessId,
    is_rank: bool,
    config: Config,
    membership: Arc<Membership>,
    /// Thefts whose tasks this process is still working on although the victims have failed.
    orphaned: BTreeSet<Theft>,
    table: Table,
    /// Processes that wait for the results of orphans on which this process is still working.
    waiting: BTreeMap<Theft, BTreeSet<ProcessId>>,
}

/// The announced orphans of this process and of all others.
#[derive(Clone, Debug, Default)]
struct Table {
    by_task: BTreeMap<TaskId, Theft>,
    by_theft: BTreeMap<Theft, TaskId>,
}

impl Table {
    fn insert(&mut self, task: TaskId, theft: Theft) {
        self.by_task.insert(task, theft);
        let before = self.by_theft.insert(theft, task);
        assert!(before.is_none_or(|it| it == task), "{theft:?} is a theft of {task:?}, and of {before:?}");
    }

    fn remove(&mut self, theft: Theft) {
        if let Some(task) = self.by_theft.remove(&theft)
            && self.by_task.get(&task) == Some(&theft)
        {
            self.by_task.remove(&task);
        }
    }
}

impl ProtocolTypes for Satin {
    type Control = Message;
    type Head = ();
    type Saved = ();
}

impl TaskProtocol for Satin {
    type Config = Config;
    const FIFO: bool = false;

    fn promises(_: &Config) -> Promises {
        Promises::of_scope(Scope::Process).with(&[Promise::Containment])
    }

    fn extra_processes(_: &Config) -> Vec<Role> {
        Vec::new()
    }

    fn start(start: LifeStart<Config>, _: Time, host: &mut dyn TaskHost<Self>) -> Self {
        let LifeStart { me, life, boot, membership, config, .. } = start;
        let is_rank = membership.member(me).role == Role::RANK;
        let (orphaned, table, waiting) = (BTreeSet::new(), Table::default(), BTreeMap::new());
        let this = Satin { me, is_rank, config: *config, membership, orphaned, table, waiting };
        if boot != Boot::Fresh {
            host.restore(None);
            host.claim(Claim::RolledBack {
                to: Position { incarnation: life.incarnation(), sn: Sn(0) },
                checkpoint: Position::default(),
                cause: Cause::Failure,
                vectors: Arc::new(Vectors::default()),
            });
        }
        if boot == Boot::Replaced {
            // Satin stores no images, so the lost storage contained nothing to replace.
            host.held();
        }
        host.release();
        this.restart_program(host);
        this
    }

    fn handle(&mut self, input: TaskInput<Self>, _: Time, host: &mut dyn TaskHost<Self>) {
        match input {
            TaskInput::Due(theft, Leg::Task) => self.lent(theft, host),
            TaskInput::Due(theft, Leg::Result) if self.orphaned.contains(&theft) => self.ended(theft, host),
            // The result of an orphan stays where it is: another process may need it.
            TaskInput::Due(theft, Leg::Receipt) if self.table.by_theft.contains_key(&theft) => {}
            TaskInput::Due(theft, leg) => host.pass(theft, leg),
            TaskInput::Control { from, message } => self.handle_message(from, message, host),
            TaskInput::Membership(membership) => self.membership_changed(membership, host),
            // No process waits for an unwanted result, and nothing is written.
            TaskInput::Unwanted(..) | TaskInput::Changed | TaskInput::Storage(_) | TaskInput::Timeout => {}
        }
    }

    fn orphan(&self, task: TaskId) -> Option<Theft> {
        let found = self.table.by_task.get(&task).copied();
        found.filter(|_| self.obeys(Rule::LooksUp))
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }

    fn control_kind(message: &Message) -> &'static str {
        match message {
            Message::Orphans(_) => "orphans",
            Message::Fetch(_) | Message::Missing(_) => "fetch",
        }
    }
}

impl Satin {
    fn obeys(&self, rule: Rule) -> bool {
        self.config.defects.obeys(rule)
    }

    /// Returns whether the protocol obeys all its rules, and therefore keeps its invariants.
    fn is_sound(&self) -> bool {
        self.config.defects.is_empty()
    }

    /// Returns whether the thief is still in the life in which it stole the task.
    fn is_thief_in_same_life(&self, theft: Theft) -> bool {
        let thief = self.membership.member(theft.thief);
        thief.up && thief.life == theft.life
    }

    /// Handles a task that was lent: to the thief that requested it or, if the task is an orphan, to the
    /// holder of the orphan.
    fn lent(&mut self, theft: Theft, host: &mut dyn TaskHost<Self>) {
        let is_own = theft.thief == self.me;
        let debt = host.debt(theft).filter(|_| is_own);
        let is_lost = !self.is_thief_in_same_life(theft) || is_own && debt.is_none();
        if is_lost && self.obeys(Rule::ClearsTable) {
            self.table.remove(theft);
            host.void(theft);
        } else if !self.table.by_theft.contains_key(&theft) {
            host.pass(theft, Leg::Task);
        } else if debt.is_some() {
            self.fetched(self.me, theft, host);
        } else {
            host.control(To::One(theft.thief), Message::Fetch(theft));
        }
    }

    /// Handles a process's request for the result of an orphan.
    fn fetched(&mut self, by: ProcessId, theft: Theft, host: &mut dyn TaskHost<Self>) {
        match host.debt(theft) {
            Some(true) => self.give(by, theft, host),
            Some(false) => drop(self.waiting.entry(theft).or_default().insert(by)),
            None => host.control(To::One(by), Message::Missing(theft)),
        }
    }

    /// Handles an orphan whose result is complete.
    fn ended(&mut self, theft: Theft, host: &mut dyn TaskHost<Self>) {
        if !self.table.by_theft.contains_key(&theft) {
            self.announce(&[theft], host);
        }
        assert!(
            host.debt(theft) == Some(true) || !self.is_sound(),
            "an orphan has ended, but its result is not complete"
        );
        let mut waiting = self.waiting.remove(&theft).unwrap_or_default();
        let is_wanted_here = waiting.remove(&self.me);
        // This process comes last, because the result is gone once it is merged here.
        for by in waiting.into_iter().chain(is_wanted_here.then_some(self.me)) {
            self.give(by, theft, host);
        }
    }

    fn give(&mut self, to: ProcessId, theft: Theft, host: &mut dyn TaskHost<Self>) {
        if to == self.me {
            self.table.remove(theft);
        }
        host.pass_orphan(theft, to);
    }

    fn handle_message(&mut self, from: ProcessId, message: Message, host: &mut dyn TaskHost<Self>) {
        match message {
            Message::Orphans(orphans) => {
                for &(task, theft) in orphans.iter() {
                    if self.is_thief_in_same_life(theft) {
                        self.table.insert(task, theft);
                    }
                }
            }
            Message::Fetch(theft) => self.fetched(from, theft, host),
            Message::Missing(theft) => {
                self.table.remove(theft);
                host.void(theft);
            }
        }
    }

    fn membership_changed(&mut self, membership: Arc<Membership>, host: &mut dyn TaskHost<Self>) {
        let before = core::mem::replace(&mut self.membership, membership);
        let all = (0..self.membership.members.len() as u32).map(ProcessId);
        let (mut failed, mut new) = (BTreeSet::new(), Vec::new());
        for it in all {
            let (old, now) = (before.member(it), self.membership.member(it));
            if old.up && (!now.up || now.life != old.life) {
                failed.insert(it);
            }
            if it != self.me && now.role == Role::RANK && now.up && (!old.up || now.life != old.life) {
                new.push(it);
            }
        }
        // Re-execute the tasks that failed processes had stolen.
        for theft in host.loans().into_iter().filter(|it| !self.is_thief_in_same_life(*it)) {
            let is_orphan = self.table.by_theft.contains_key(&theft);
            if self.obeys(if is_orphan { Rule::RedoesOrphans } else { Rule::RedoesLoans }) {
                host.void(theft);
            }
        }
        // Tasks that were stolen from failed processes are orphaned.
        let debts = host.debts().into_iter().map(|it| it.0);
        let orphaned: Vec<Theft> = debts.filter(|it| failed.contains(&it.victim)).collect();
        self.orphaned.extend(&orphaned);
        let lost = self.table.by_theft.keys().copied().filter(|it| !self.is_thief_in_same_life(*it));
        for theft in lost.collect::<Vec<_>>() {
            if self.obeys(Rule::ClearsTable) {
                self.table.remove(theft);
            }
        }
        let own = self.table.by_theft.iter().filter(|(theft, _)| theft.thief == self.me);
        let own: Arc<[(TaskId, Theft)]> = own.map(|(theft, task)| (*task, *theft)).collect();
        for it in new.into_iter().filter(|_| !own.is_empty()) {
            host.control(To::One(it), Message::Orphans(own.clone()));
        }
        // Excludes orphans that only wait here, or that were lent in turn: a process that has such a task
        // might find it in the table and wait for this process, which in turn waits for that process.
        let begun: Vec<Theft> = orphaned.into_iter().filter(|it| host.has_begun(*it)).collect();
        self.announce(&begun, host);
        self.restart_program(host);
    }

    /// Announces to all processes that this process has these orphans.
    fn announce(&mut self, thefts: &[Theft], host: &mut dyn TaskHost<Self>) {
        let named = thefts.iter().filter_map(|it| Some((host.owed(*it)?, *it)));
        let orphans: Arc<[(TaskId, Theft)]> = named.collect();
        if orphans.is_empty() {
            return;
        }
        orphans.iter().for_each(|(task, theft)| self.table.insert(*task, *theft));
        for it in self.membership.with_role(Role::RANK).filter(|it| *it != self.me) {
            if self.membership.member(it).up {
                host.control(To::One(it), Message::Orphans(orphans.clone()));
            }
        }
    }

    /// Restarts the program if the process that ran its first task failed permanently and this process is next.
    fn restart_program(&self, host: &mut dyn TaskHost<Self>) {
        let root = root(&self.membership);
        let is_next = self.membership.member(root).gone && successor(&self.membership, root) == self.me;
        let begins = is_next && self.is_rank && !host.has_root() && !host.is_over();
        if begins && self.obeys(Rule::RestartsProgram) {
            host.absorb(root, LastState::Beginning);
        }
    }
}
