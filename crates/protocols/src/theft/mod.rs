//! Recovery by theft: theft-induced checkpointing (TIC) and systematic event logging (SEL).
//!
//! S. Jafar, A. Krings, T. Gautier: *Flexible Rollback Recovery in Dynamic Heterogeneous Grid Computing*
//! (2009), sections 4 and 5. Processes exchange only stolen tasks and their results. Therefore only thefts
//! wait for stable storage: the task is sent once the victim's record contains the loan, and the result once
//! the thief's record contains the result. Under TIC the record is a checkpoint of the graph, which the theft
//! forces; under SEL it is a log of events, written as they happen. Otherwise the protocols are the same:
//! only failed processes restore their states. If a process has failed permanently, the next one absorbs its
//! state. Queries about thefts then recover all messages that may have been lost.
//!
//! # Differences from a plain reading of the paper
//!
//! | as printed | consequence | this implementation | switch |
//! | --- | --- | --- | --- |
//! | F-G, case 2: a thief that is still executing takes no action | a victim that fails after it has merged the result waits forever | a thief answers queries until it has a receipt | `late-termination` |
//! | results of re-joining nodes are ignored | a restored thief's result is never merged: the run stalls | a theft is identified by the life in which it was requested, whichever life sends the result | `stale-result-refused` |
//! | the final checkpoint may be deleted once the result has arrived (event G) | the result is lost with the victim, and recomputed | the victim sends the receipt once its record of the result is durable | `receipt-at-merge` |
//! | section 5: only the construction of the graph is logged | a rebuilt victim runs tasks that it has lent | a log contains every change of the graph, thefts included | `thefts-not-logged` |
//! | each event is logged individually | a log with a gap cannot be replayed | a segment does not count as durable until all images before it are | `log-out-of-order` |
//! | section 5: equal identifiers prevent duplicates when a task runs again | none, if every record of a task's children is durable before any child is stolen | the outcome of a task is one event, applied and logged as a whole: a log cannot contain a part of it | |
//! | C2: a task always creates the same graph | not true of a program that prunes by a shared bound: when a task runs again, the bound that its lost execution published prunes an equal optimum | a program prunes only strictly worse candidates; an event contains the bound that its task was given | none; the program is at fault |
//! | a thief takes a checkpoint before each request (event CP0) | no harm, except that a theft forces three checkpoints instead of two | optional (`before_asking`) | |
//! | the name server lists terminated processes | its answer is stale after a second failure | a thief, or the process that absorbed it, answers | `here-alone` |
//!
//! | module | contents |
//! | --- | --- |
//! | `config` | parameters, rules, known defects |
//! | `stable` | a process's own record, and the messages of a theft that wait for it |
//! | `copies` | images of this process and of others |
//! | `holders` | the choice of holders |
//! | `restore` | restoring and absorbing |
//! | `message` | the messages of the protocol |

mod config;
mod copies;
mod holders;
mod message;
mod restore;
mod stable;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::process::Gauges;
use faultline_core::{
    Boot, Claim, ImageName, Life, LifeStart, Membership, ProcessId, Promise, Promises, ProtocolTypes, Role,
    Scope, Theft, Time, To,
};
use faultline_dataflow::StorageInput;
use faultline_dataflow::recovery::{Leg, TaskHost, TaskInput, TaskProtocol};
use faultline_dataflow::successor;

pub use config::{Config, Defect, Defects, Rule, StableState};
use copies::{Copies, Request, Search, is_checkpoint};
use message::{Head, Message};
use stable::Stable;

use crate::placement::ReplicateTo;

/// One process under TIC or SEL.
#[derive(Clone, Debug)]
pub struct TaskRecovery {
    me: ProcessId,
    life: Life,
    boot: Boot,
    config: Arc<Config>,
    membership: Arc<Membership>,
    is_rank: bool,
    /// Whether the process has a state and answers for itself.
    is_running: bool,
    /// Whether the program is lost, because no image of its first task is left.
    is_lost: bool,
    stable: Stable,
    copies: Copies,
    /// The searches for images of this process, or of permanently failed processes, by owner.
    searches: BTreeMap<ProcessId, Search>,
    /// Processes whose graphs became part of this process's graph.
    absorbed: BTreeSet<ProcessId>,
    /// Owners that have not yet re-sent the images that this process, whose storage was lost, should hold.
    unfilled: BTreeSet<ProcessId>,
}

impl ProtocolTypes for TaskRecovery {
    type Control = Message;
    type Head = Head;
    type Saved = ();
}

impl TaskProtocol for TaskRecovery {
    type Config = Config;
    const FIFO: bool = false;

    fn promises(config: &Config) -> Promises {
        let promises = [Promise::Containment, Promise::CheckpointedFirst, Promise::Refill];
        let all = Promises::of_scope(Scope::Process).with(&promises);
        match config.record {
            StableState::Events => all.with(&[Promise::EventsLogged]),
            StableState::Graph if !config.before_asking => all.with(&[Promise::ForcedByThefts]),
            StableState::Graph => all,
        }
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        match config.replicate_to {
            ReplicateTo::SharedStorage => (0..config.replicas).map(|_| Role::STORAGE_SERVER).collect(),
            ReplicateTo::SameCluster | ReplicateTo::OtherCluster => Vec::new(),
        }
    }

    fn logs(config: &Config) -> bool {
        config.record == StableState::Events
    }

    fn start(start: LifeStart<Config>, now: Time, host: &mut dyn TaskHost<Self>) -> Self {
        let LifeStart { me, life, boot, membership, config, .. } = start;
        let is_rank = membership.member(me).role == Role::RANK;
        let mut this = TaskRecovery {
            me,
            life,
            boot,
            is_rank,
            is_running: boot == Boot::Fresh && is_rank,
            is_lost: false,
            stable: Stable::new(me, life, now, &config, &membership),
            copies: Copies::new(boot == Boot::Fresh, &membership),
            searches: BTreeMap::new(),
            absorbed: BTreeSet::new(),
            unfilled: BTreeSet::new(),
            config,
            membership,
        };
        if this.is_running {
            host.release();
            this.look_for_last_states(host);
        } else if boot != Boot::Fresh {
            host.list();
        }
        this
    }

    fn handle(&mut self, input: TaskInput<Self>, now: Time, host: &mut dyn TaskHost<Self>) {
        match input {
            TaskInput::Due(theft, leg) => self.due(theft, leg, host),
            TaskInput::Unwanted(theft, leg, from) => self.unwanted(theft, leg, from, host),
            TaskInput::Control { from, message } => self.handle_message(from, message, host),
            TaskInput::Storage(input) => self.handle_storage(input, host),
            TaskInput::Membership(membership) => self.membership_changed(membership, host),
            TaskInput::Timeout => self.stable.timeout(&self.membership, now, host),
            TaskInput::Changed => {}
        }
        if self.is_running && !self.is_lost {
            self.settle(now, host);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        (self.is_running && !self.is_lost).then(|| self.stable.next_deadline(&self.config))
    }

    fn gauges(&self) -> Gauges {
        Gauges { checkpoints: u32::from(self.stable.newest.is_some()), ..Gauges::default() }
    }

    fn control_kind(message: &Message) -> &'static str {
        match message {
            Message::Durable(_) => "durable",
            Message::Fetch(..) | Message::Holds(..) => "fetch",
            Message::Here(_) => "here",
            Message::Query(_) | Message::Want(_) | Message::Never(_) => "query",
            Message::Refill | Message::Nothing => "refill",
        }
    }
}

impl TaskRecovery {
    /// Handles an image that arrived, or the end of an operation of the storage.
    fn handle_storage(&mut self, input: StorageInput<Self>, host: &mut dyn TaskHost<Self>) {
        match input {
            StorageInput::Image { from, image } => {
                if image.name.owner == from {
                    let is_fenced = self.config.obeys(Rule::FencesStorage);
                    self.copies.hold(image, &self.membership, is_fenced, host);
                } else {
                    self.found(&image, host);
                }
            }
            StorageInput::Persisted(name) => self.written(name, true, host),
            StorageInput::PersistFailed(name) => self.written(name, false, host),
            StorageInput::Read { name, image } => self.read(name, image.as_ref(), host),
            StorageInput::Listed(images) => {
                self.listed(images.into_iter().map(|(name, _)| name).collect(), host)
            }
            StorageInput::Recorded { .. } => {}
        }
    }

    /// Completes writes, starts the next one, and sends the messages of thefts that waited for the completed
    /// writes.
    fn settle(&mut self, now: Time, host: &mut dyn TaskHost<Self>) {
        while let Some(name) = self.stable.complete(&self.config, &self.membership, host) {
            self.copies.settle(name, host);
            if is_checkpoint(name) {
                self.filled(self.me, host);
            }
        }
        self.stable.advance(&self.config, &self.membership, now, host, &self.absorbed);
        self.stable.release(&self.membership, host);
    }

    /// Handles the end of a write to this process's storage.
    fn written(&mut self, name: ImageName, is_durable: bool, host: &mut dyn TaskHost<Self>) {
        if name.owner == self.me {
            return self.stable.written(name, is_durable);
        }
        let answers = self.copies.written(name, is_durable, host);
        self.answer(answers, host);
        if is_durable {
            host.control(To::One(name.owner), Message::Durable(name));
            if is_checkpoint(name) {
                self.filled(name.owner, host);
            }
        }
    }

    /// Handles a message of a theft that the graph is ready to send.
    fn due(&mut self, theft: Theft, leg: Leg, host: &mut dyn TaskHost<Self>) {
        let Config { before_asking, record, defects, .. } = *self.config;
        let waits = match leg {
            Leg::Ask => before_asking && record == StableState::Graph,
            Leg::Task => defects.obeys(Rule::RecordsTheft),
            Leg::Result => defects.obeys(Rule::RecordsResult),
            Leg::Receipt => defects.obeys(Rule::RecordsMerge),
        };
        if !waits {
            return host.pass(theft, leg);
        }
        if leg == Leg::Result && self.is_stale(theft) {
            return;
        }
        self.stable.await_next(theft, leg);
        if leg != Leg::Receipt {
            self.stable.force();
        }
    }

    fn unwanted(&mut self, theft: Theft, leg: Leg, from: ProcessId, host: &mut dyn TaskHost<Self>) {
        match leg {
            // The sender answers for the victim, even if this process has not yet learned that the victim has failed.
            Leg::Task if self.takes_for_own(theft, host) => {}
            Leg::Task if host.is_mine(theft.thief) => host.control(To::One(from), Message::Never(theft)),
            // The result was merged before, perhaps in a state that is not durable yet.
            Leg::Result => self.stable.await_next(theft, Leg::Receipt),
            _ => {}
        }
    }

    fn handle_message(&mut self, from: ProcessId, message: Message, host: &mut dyn TaskHost<Self>) {
        match message {
            Message::Durable(name) => self.stable.is_at(name, from),
            Message::Fetch(owner, beyond) => {
                let answer = self.copies.look_up(Request { from, owner, beyond }, host);
                self.answer(answer, host);
            }
            Message::Holds(owner, names) => self.holds(owner, from, &names, host),
            // Once this process has restored its state, it takes a checkpoint, which it also sends to the new
            // holder.
            Message::Refill if !self.is_running => {}
            Message::Refill => {
                if !self.stable.refill(from, &self.config, host) {
                    host.control(To::One(from), Message::Nothing);
                }
            }
            Message::Nothing => self.filled(from, host),
            Message::Query(theft) if !self.is_running && !self.config.obeys(Rule::DeniesOnlyRestored) => {
                host.control(To::One(from), Message::Never(theft));
            }
            // A restoring process does not know the answer; it announces its return later.
            _ if !self.is_running => {}
            Message::Here(processes) => self.reconcile_with(from, &processes, host),
            Message::Query(theft) => self.asked_about(from, theft, host),
            Message::Want(theft) => {
                if !self.stable.awaits(theft, Leg::Task) {
                    host.pass(theft, Leg::Task);
                }
            }
            Message::Never(theft) => {
                host.void(theft);
            }
        }
    }

    /// Handles the announcement that `from` now answers for these processes: messages sent to them earlier
    /// may be lost.
    fn reconcile_with(&mut self, from: ProcessId, processes: &[ProcessId], host: &mut dyn TaskHost<Self>) {
        let concerns = |process: ProcessId| processes.contains(&process);
        if host.asking().is_some_and(|it| concerns(it.victim)) {
            host.stop_asking();
        }
        for theft in host.loans().into_iter().filter(|it| concerns(it.thief)) {
            if self.config.obeys(Rule::AsksAboutLoans) {
                host.control(To::One(from), Message::Query(theft));
            }
        }
        let is_repeated = self.config.obeys(Rule::ReturnsAgain);
        let debts = host.debts().into_iter().filter(|(it, is_done)| *is_done && concerns(it.victim));
        for (theft, _) in debts.filter(|_| is_repeated) {
            self.resend_result(theft, host);
        }
        if self.boot == Boot::Replaced && processes.contains(&from) && self.unfilled.contains(&from) {
            host.control(To::One(from), Message::Refill);
        }
    }

    /// Reports the state of a task that was lent to this process, or to one that it answers for.
    fn asked_about(&mut self, from: ProcessId, theft: Theft, host: &mut dyn TaskHost<Self>) {
        if !host.is_mine(theft.thief) {
            return;
        }
        match host.debt(theft) {
            Some(false) => {}
            Some(true) => self.resend_result(theft, host),
            None => {
                let is_wanted = (host.asking() == Some(theft) || self.takes_for_own(theft, host))
                    && self.config.obeys(Rule::ReportsWant);
                let answer = if is_wanted { Message::Want(theft) } else { Message::Never(theft) };
                host.control(To::One(from), answer);
            }
        }
    }

    /// Returns whether this process mistakes another theft for the one that it has requested. Never happens if the rule
    /// is obeyed.
    fn takes_for_own(&self, theft: Theft, host: &mut dyn TaskHost<Self>) -> bool {
        !self.config.obeys(Rule::NamesLives)
            && host.asking().is_some_and(|it| (it.thief, it.number) == (theft.thief, theft.number))
    }

    /// Sends a result that may have been lost, unless it will be sent anyway.
    fn resend_result(&mut self, theft: Theft, host: &mut dyn TaskHost<Self>) {
        let answers = self.config.obeys(Rule::AnswersUntilReceipt) || theft == Theft::NONE;
        if !self.stable.awaits(theft, Leg::Result) && answers && !self.is_stale(theft) {
            host.pass(theft, Leg::Result);
        }
    }

    /// Returns whether a result would be refused because it does not come from the life that stole the task. Never
    /// happens if the rule is obeyed.
    fn is_stale(&self, theft: Theft) -> bool {
        let is_of_this_life = theft.thief == self.me && theft.life == self.life;
        !self.config.obeys(Rule::AcceptsLaterLives) && theft != Theft::NONE && !is_of_this_life
    }

    fn membership_changed(&mut self, membership: Arc<Membership>, host: &mut dyn TaskHost<Self>) {
        let before = core::mem::replace(&mut self.membership, membership);
        let new: Vec<ProcessId> = (0..self.membership.members.len() as u32)
            .map(ProcessId)
            .filter(|it| {
                let (old, new) = (before.member(*it), self.membership.member(*it));
                if old.life != new.life || !new.up {
                    self.stable.failed(*it);
                    if *it != self.me {
                        self.copies.forget(*it);
                    }
                }
                new.up && (!old.up || old.life != new.life)
            })
            .collect();
        let membership = self.membership.clone();
        let answers = self.copies.membership_changed(&membership, host);
        self.answer(answers, host);
        let members = self.membership.members.iter().zip(before.members.iter());
        let some_are_gone = members.into_iter().any(|(new, old)| new.gone != old.gone);
        if some_are_gone {
            self.stable.holders_changed(&self.config, &self.membership);
        }
        if !new.is_empty() || some_are_gone {
            self.stable.again(&self.membership, host);
        }
        let gone: Vec<ProcessId> = (0..self.membership.members.len() as u32)
            .map(ProcessId)
            .filter(|it| self.membership.member(*it).gone)
            .collect();
        // Another process now answers for some processes. Its announcement may have arrived before this membership.
        // Since then, tasks may have been lent to the predecessor, or results sent to it.
        let now = self.membership.clone();
        let is_new = |it: ProcessId| successor(&now, it) != successor(&before, it);
        if self.is_running {
            for theft in host.loans().into_iter().filter(|it| is_new(it.thief)) {
                self.ask_about(theft, host);
            }
            let is_repeated = self.config.obeys(Rule::ReturnsAgain);
            let done = host.debts().into_iter().filter(|(it, is_done)| *is_done && *it != Theft::NONE);
            for (theft, _) in done.filter(|(it, _)| is_repeated && is_new(it.victim)) {
                self.resend_result(theft, host);
            }
        }
        gone.into_iter().for_each(|it| self.filled(it, host));
        self.search_again(&new, host);
        if self.is_running {
            self.look_for_last_states(host);
        }
    }

    /// Records that an owner has re-sent the images that this process should hold, or has none.
    fn filled(&mut self, owner: ProcessId, host: &mut dyn TaskHost<Self>) {
        if self.unfilled.remove(&owner) && self.unfilled.is_empty() {
            host.held();
            host.claim(Claim::Protected);
        }
    }
}
