//! Recovery of a process that has failed, and what the others contribute.

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline::core::process::To;
use faultline::core::{
    Cause, Claim, Host, Image, ImageName, Incarnation, Position, ProcessId, Scope, Time, Vectors,
};

use crate::{Defect, Logged, Message, Phase, Rsn, Saved, SenderBased};

/// The answers of the other processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replies {
    logs: BTreeMap<ProcessId, Vec<Logged>>,
    /// For each receiver, the number of the first message from this process that it has not delivered.
    next: BTreeMap<ProcessId, u32>,
    /// Whether another process has failed, too, and its log is still incomplete.
    is_incomplete: bool,
}

impl Replies {
    pub(crate) fn insert(&mut self, from: ProcessId, log: Vec<Logged>, is_complete: bool, next: u32) {
        self.logs.insert(from, log);
        self.next.insert(from, next);
        self.is_incomplete |= !is_complete;
    }
}

impl SenderBased {
    /// Begins to restore the newest checkpoint at the start of a restarted or replaced life. Without a checkpoint, the
    /// process restarts if no earlier life has acted, and gives up otherwise.
    pub(crate) fn listed(&mut self, newest: Option<ImageName>, host: &mut dyn Host<SenderBased>) {
        match newest {
            Some(newest) => host.read(newest),
            None if !self.is_started() => {
                host.restore(None, self.incarnation);
                host.request_snapshot();
            }
            None => self.give_up(self.next_name(), host),
        }
    }

    pub(crate) fn read(
        &mut self,
        name: ImageName,
        image: Option<Arc<Image<(), Saved>>>,
        host: &mut dyn Host<SenderBased>,
    ) {
        let Some(image) = image else { return self.give_up(name, host) };
        host.restore(Some(&image), self.incarnation);
        let Saved { log, rsn, next, sent } = (*image.saved).clone();
        (self.log, self.rsn, self.next, self.sent) = (log, rsn, next, sent);
        self.stored = Some(name);
        if !self.is_started() {
            host.started();
        }
    }

    /// Begins the application, or the recovery, once the process has a durable checkpoint and may act. Begins the
    /// replay once all other processes have answered.
    pub(crate) fn proceed(&mut self, now: Time, host: &mut dyn Host<SenderBased>) {
        if matches!(self.phase, Phase::Starting) && self.stored.is_some() && self.is_started() {
            if self.incarnation == Incarnation(0) {
                self.run(host);
            } else {
                // Messages to an earlier life may be lost, even if that life never acted.
                self.phase = Phase::Recovering(Replies::default());
                self.ask(host);
            }
        }
        let others = self.others().len();
        match &mut self.phase {
            Phase::Recovering(replies) if replies.logs.len() == others => {
                let replies = std::mem::take(replies);
                self.recover(replies, now, host);
            }
            _ => {}
        }
    }

    /// Asks the processes that have not answered. Called again after each change to the membership, because a process
    /// that failed in the meantime may have lost the earlier request.
    pub(crate) fn ask(&self, host: &mut dyn Host<SenderBased>) {
        let Phase::Recovering(replies) = &self.phase else { return };
        for other in self.others().into_iter().filter(|it| !replies.logs.contains_key(it)) {
            let below = self.next.get(&other).copied().unwrap_or_default();
            host.control(To::One(other), Message::Recover { below });
        }
    }

    /// Sends a failed process the messages that this process had sent to it.
    pub(crate) fn answer(&mut self, to: ProcessId, below: u32, host: &mut dyn Host<SenderBased>) {
        self.settled(to, below);
        let log = self.log.iter().filter(|it| it.id.to == to && it.is_sent).cloned().collect();
        let is_complete = matches!(self.phase, Phase::Running) && self.owed.is_empty();
        let next = self.next.get(&to).copied().unwrap_or_default();
        host.control(To::One(to), Message::Log { log, is_complete, next });
    }

    /// Puts the logged messages in order, and begins to replay them.
    fn recover(&mut self, replies: Replies, now: Time, host: &mut dyn Host<SenderBased>) {
        let Replies { logs, next, is_incomplete } = replies;
        if is_incomplete {
            let needed = self.stored.expect("a recovery begins with a checkpoint");
            return self.give_up(needed, host);
        }
        self.owed = next.into_iter().filter(|&(receiver, next)| self.owes(receiver, next)).collect();
        let mut messages: Vec<Logged> = logs.into_values().flatten().collect();
        if !self.has(Defect::OrderIgnored) {
            messages.sort_by_key(|it| it.rsn.unwrap_or(Rsn::MAX));
        }
        // The messages up to the first missing RSN: nothing that this process has sent depends on later ones.
        let mut last = self.rsn;
        let is_next = |it: &Logged| {
            let ignored = self.has(Defect::OrderIgnored) && it.rsn.is_some_and(|rsn| rsn > last);
            let is_next = ignored || it.rsn == Some(last + 1);
            last += u64::from(is_next);
            is_next
        };
        let (numbered, rest): (Vec<Logged>, Vec<Logged>) = messages.into_iter().partition(is_next);
        // The rest is received as if it had just arrived, in the order of each channel.
        let arrived = std::mem::take(&mut self.waiting);
        self.waiting = rest.into_iter().map(|it| (it.id, it.payload)).chain(arrived).collect();
        // Messages without an RSN may have been lost with the earlier life.
        self.log.iter_mut().for_each(|it| it.is_sent = it.rsn.is_some());
        self.send(host);
        // If no earlier life has acted, this life has taken the first checkpoint.
        let checkpoint = self.stored.map_or(Position::default(), ImageName::position);
        if checkpoint.incarnation < self.incarnation {
            let to = Position { incarnation: self.incarnation, sn: checkpoint.sn };
            let (cause, vectors) = (Cause::Failure, Arc::new(Vectors::default()));
            host.claim(Claim::RolledBack { to, checkpoint, cause, vectors });
        }
        self.schedule(now);
        self.phase = Phase::Replaying(numbered.into());
        host.release();
        host.request_rest();
    }

    /// Delivers the next message again, or ends the recovery.
    pub(crate) fn replay(&mut self, host: &mut dyn Host<SenderBased>) {
        let Phase::Replaying(messages) = &mut self.phase else { return };
        match messages.pop_front() {
            Some(Logged { id, payload, .. }) => {
                self.deliver(id, payload, host);
                match self.has(Defect::RepeatedAtOnce) {
                    true => self.replay(host),
                    false => host.request_rest(),
                }
            }
            None => self.run(host),
        }
    }

    /// Starts or resumes the application.
    pub(crate) fn run(&mut self, host: &mut dyn Host<SenderBased>) {
        self.phase = Phase::Running;
        if self.taking.is_none() {
            host.release();
        }
        for (from, below) in std::mem::take(&mut self.asked) {
            self.answer(from, below, host);
        }
        self.receive_waiting(host);
    }

    /// Returns whether a receiver has delivered messages below `next` whose RSNs this process does not know: messages
    /// that this process has yet to send in its re-execution, or that have no RSN in this process's log.
    fn owes(&self, receiver: ProcessId, next: u32) -> bool {
        let is_unknown = |it: &Logged| it.id.to == receiver && it.id.number + 1 == next && it.rsn.is_none();
        next > self.sent.get(&receiver).copied().unwrap_or_default() || self.log.iter().any(is_unknown)
    }

    /// Records that the RSNs of all messages to `receiver` below this number are known again or no longer needed.
    pub(crate) fn learned(&mut self, receiver: ProcessId, below: u32) {
        self.owed.retain(|to, number| *to != receiver || below < *number);
    }

    /// Reports that this process cannot be recovered from this checkpoint.
    pub(crate) fn give_up(&mut self, missing: ImageName, host: &mut dyn Host<SenderBased>) {
        self.phase = Phase::GivenUp;
        let group = Scope::Process.group_of(&self.membership, self.me);
        host.claim(Claim::Unrecoverable { group, missing: Arc::from([(missing, Vec::new())]) });
    }
}
