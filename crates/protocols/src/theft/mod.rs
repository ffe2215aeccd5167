//! TIC: recovery by theft (section 4 of the paper).
//!
//! Only what is stolen crosses between processes, so that only thefts force checkpoints: the victim's before the task is
//! sent, the thief's before the result is. Only processes that failed restore; where one is gone for good, the next one
//! absorbs what its newest checkpoint holds. Everything that may have been lost meanwhile is settled by questions about thefts.
//!
//! | module | holds |
//! | --- | --- |
//! | `config` | parameters, known defects |
//! | `stable` | a process's own checkpoints, and the legs that wait for them |
//! | `copies` | copies of others' checkpoints |
//! | `holders` | who holds whose copies |
//! | `restore` | restoring and absorbing |
//! | `message` | what processes say to each other |

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
use faultline_core::{Birth, Boot, Claim, Membership, ProcessId, Role, Speaks, Theft, Time, To};
use faultline_dataflow::heir;
use faultline_dataflow::recovery::{Host, Input, Leg, Recovery};

pub use config::{Config, Defect, Defects};
use copies::{Copies, Search};
use message::{Head, Message};
use stable::Stable;

use crate::placement::ReplicateTo;

/// TIC, one process.
#[derive(Clone, Debug)]
pub struct TaskRecovery {
    me: ProcessId,
    boot: Boot,
    config: Arc<Config>,
    membership: Arc<Membership>,
    is_rank: bool,
    /// The storage has been listed.
    is_listed: bool,
    /// It has a state, and answers for itself.
    is_running: bool,
    /// No image of the program is left.
    is_lost: bool,
    stable: Stable,
    copies: Copies,
    /// Images that are looked for: its own, or those of processes that are gone.
    searches: BTreeMap<ProcessId, Search>,
    /// Processes whose graphs became part of this one's.
    absorbed: BTreeSet<ProcessId>,
    /// Owners that have not given this process, whose storage was lost, what it should hold.
    unfilled: BTreeSet<ProcessId>,
}

impl Speaks for TaskRecovery {
    type Control = Message;
    type Head = Head;
    type Saved = ();
}

impl Recovery for TaskRecovery {
    type Config = Config;
    const FIFO: bool = false;

    fn extra_processes(config: &Config) -> Vec<Role> {
        match config.replicate_to {
            ReplicateTo::SharedStorage => (0..config.replicas).map(|_| Role::STORAGE_SERVER).collect(),
            ReplicateTo::SameCluster | ReplicateTo::OtherCluster => Vec::new(),
        }
    }

    fn start(birth: Birth<Config>, now: Time, host: &mut dyn Host<Self>) -> Self {
        let Birth { me, life, boot, membership, config, .. } = birth;
        let is_rank = membership.member(me).role == Role::RANK;
        let mut this = TaskRecovery {
            me,
            boot,
            is_rank,
            is_listed: boot == Boot::Fresh,
            is_running: boot == Boot::Fresh && is_rank,
            is_lost: false,
            stable: Stable::new(me, life, now, config.tau),
            copies: Copies::default(),
            searches: BTreeMap::new(),
            absorbed: BTreeSet::new(),
            unfilled: BTreeSet::new(),
            config,
            membership,
        };
        if this.is_running {
            host.release();
            this.look_for_estates(host);
        } else if !this.is_listed {
            host.list();
        }
        this
    }

    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut dyn Host<Self>) {
        match input {
            Input::Due(theft, leg) => self.due(theft, leg, host),
            Input::Unwanted(theft, leg) => self.unwanted(theft, leg, host),
            Input::Control { from, message } => self.told(from, message, host),
            Input::Image { from, image } => {
                if image.name.owner == from {
                    self.copies.hold(image, &self.membership, host);
                } else {
                    self.found(image.name.owner, from, Some(&image), host);
                }
            }
            Input::Persisted(name) => {
                if name.owner == self.me {
                    self.stable.is_here(name);
                } else {
                    self.copies.settle(name, host);
                    host.control(To::One(name.owner), Message::Durable(name));
                    self.filled(name.owner, host);
                }
            }
            Input::Read { name, image } => self.read(name, image.as_ref(), host),
            Input::Listed(images) => self.listed(images.into_iter().map(|(name, _)| name).collect(), host),
            Input::Membership(membership) => self.meet(membership, host),
            Input::Timeout if self.stable.is_writing() => {
                self.stable.due = now + self.config.tau;
                self.stable.again(&self.config, &self.membership, host);
            }
            Input::Did(_) | Input::PersistFailed(_) | Input::Recorded { .. } | Input::Timeout => {}
        }
        if self.is_running && !self.is_lost {
            self.settle(now, host);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        (self.is_running && !self.is_lost).then_some(self.stable.due)
    }

    fn gauges(&self) -> Gauges {
        Gauges { checkpoints: u32::from(self.stable.newest.is_some()), ..Gauges::default() }
    }

    fn control_kind(message: &Message) -> &'static str {
        match message {
            Message::Durable(_) => "durable",
            Message::Fetch(_) | Message::Absent(_) => "fetch",
            Message::Here(_) => "here",
            Message::Query(_) | Message::Want(_) | Message::Never(_) => "query",
            Message::Refill | Message::Nothing => "refill",
        }
    }
}

impl TaskRecovery {
    /// Completes a write, and begins the next one.
    fn settle(&mut self, now: Time, host: &mut dyn Host<Self>) {
        loop {
            if let Some(name) = self.stable.complete(&self.config, &self.membership, host) {
                self.copies.settle(name, host);
                self.filled(self.me, host);
            }
            self.stable.release(&self.membership, host);
            let absorbed = self.absorbed.iter().copied().collect();
            let was_writing = self.stable.is_writing();
            self.stable.advance(&self.config, &self.membership, now, host, absorbed);
            if was_writing || !self.stable.is_writing() {
                return;
            }
        }
    }

    /// A leg may go as far as the graph is concerned.
    fn due(&mut self, theft: Theft, leg: Leg, host: &mut dyn Host<Self>) {
        if leg == Leg::Ask && !self.config.before_asking {
            return host.pass(theft, leg);
        }
        self.stable.await_next(theft, leg);
        if leg != Leg::Receipt {
            self.stable.force();
        }
    }

    fn unwanted(&mut self, theft: Theft, leg: Leg, host: &mut dyn Host<Self>) {
        match leg {
            Leg::Task if host.is_mine(theft.thief) => {
                let victim = heir(&self.membership, theft.victim);
                host.control(To::One(victim), Message::Never(theft));
            }
            // It was merged before, perhaps in a state that is not durable yet.
            Leg::Result => self.stable.await_next(theft, Leg::Receipt),
            _ => {}
        }
    }

    fn told(&mut self, from: ProcessId, message: Message, host: &mut dyn Host<Self>) {
        match message {
            Message::Durable(name) => self.stable.is_at(name, from),
            Message::Fetch(owner) => self.copies.fetch(from, owner, self.is_listed, host),
            Message::Absent(owner) => self.found(owner, from, None, host),
            Message::Refill => {
                if !self.stable.refill(from, host) {
                    host.control(To::One(from), Message::Nothing);
                }
            }
            Message::Nothing => self.filled(from, host),
            // What a process that restores is asked, it does not know; it will say so itself.
            _ if !self.is_running => {}
            Message::Here(processes) => self.reconcile_with(from, &processes, host),
            Message::Query(theft) => self.asked_about(from, theft, host),
            Message::Want(theft) => {
                if !self.stable.awaits(theft, Leg::Task) {
                    host.pass(theft, Leg::Task);
                }
            }
            Message::Never(theft) => host.void(theft),
        }
    }

    /// `from` answers for these processes from now on: what was sent to them before may be lost.
    fn reconcile_with(&mut self, from: ProcessId, processes: &[ProcessId], host: &mut dyn Host<Self>) {
        let concerns = |process: ProcessId| processes.contains(&process);
        if host.asking().is_some_and(|it| concerns(it.victim)) {
            host.stop_asking();
        }
        let defects = self.config.defects;
        for theft in host.loans().into_iter().filter(|it| concerns(it.thief)) {
            if !self.stable.awaits(theft, Leg::Task) && !defects.has(Defect::NoQuery) {
                host.control(To::One(from), Message::Query(theft));
            }
        }
        for (theft, is_done) in host.debts().into_iter().filter(|(it, _)| concerns(it.victim)) {
            let goes_anyway = self.stable.awaits(theft, Leg::Result);
            if is_done && !goes_anyway {
                host.pass(theft, Leg::Result);
            }
        }
        if self.boot == Boot::Replaced && processes.contains(&from) && self.unfilled.contains(&from) {
            host.control(To::One(from), Message::Refill);
        }
    }

    /// Says what became of a task that was lent to this process, or to one that it answers for.
    fn asked_about(&mut self, from: ProcessId, theft: Theft, host: &mut dyn Host<Self>) {
        if !host.is_mine(theft.thief) {
            return;
        }
        match host.debt(theft) {
            Some(false) => {}
            Some(true) if self.stable.awaits(theft, Leg::Result) => {}
            Some(true) => host.pass(theft, Leg::Result),
            None => {
                let is_wanted = host.asking() == Some(theft);
                let answer = if is_wanted { Message::Want(theft) } else { Message::Never(theft) };
                host.control(To::One(from), answer);
            }
        }
    }

    fn meet(&mut self, membership: Arc<Membership>, host: &mut dyn Host<Self>) {
        let before = core::mem::replace(&mut self.membership, membership);
        let new: Vec<ProcessId> = (0..self.membership.members.len() as u32)
            .map(ProcessId)
            .filter(|it| {
                let (old, new) = (before.member(*it), self.membership.member(*it));
                if old.life != new.life || !new.up {
                    self.stable.failed(*it);
                }
                new.up && (!old.up || old.life != new.life)
            })
            .collect();
        if !new.is_empty()
            || self.membership.members.iter().zip(before.members.iter()).any(|(a, b)| a.gone != b.gone)
        {
            self.stable.again(&self.config, &self.membership, host);
        }
        let gone: Vec<ProcessId> = (0..self.membership.members.len() as u32)
            .map(ProcessId)
            .filter(|it| self.membership.member(*it).gone)
            .collect();
        // What was lent to them may have been lent after their heir has said that it answers for them.
        for theft in host.loans() {
            let is_new = gone.contains(&theft.thief) && !before.member(theft.thief).gone;
            if is_new && self.is_running {
                self.ask_about(theft, host);
            }
        }
        gone.into_iter().for_each(|it| self.filled(it, host));
        self.search_again(&new, host);
        if self.is_running {
            self.look_for_estates(host);
        }
    }

    /// An owner has given this process what it should hold, or has nothing.
    fn filled(&mut self, owner: ProcessId, host: &mut dyn Host<Self>) {
        if self.unfilled.remove(&owner) && self.unfilled.is_empty() {
            host.held();
            host.claim(Claim::Protected);
        }
    }
}
