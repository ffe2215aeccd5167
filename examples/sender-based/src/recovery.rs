//! Recovery of a process that has failed, and what the others contribute.

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline::core::process::To;
use faultline::core::{Cause, Claim, Host, Image, ImageName, Position, ProcessId, Scope, Sn, Time, Vectors};

use crate::{Defect, Logged, Message, Phase, Rsn, Saved, SenderBased};

/// The logs that have arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replies {
    logs: BTreeMap<ProcessId, Vec<Logged>>,
    /// Whether another process is recovering, too.
    is_incomplete: bool,
}

impl Replies {
    pub(crate) fn insert(&mut self, from: ProcessId, log: Vec<Logged>, is_complete: bool) {
        self.logs.insert(from, log);
        self.is_incomplete |= !is_complete;
    }
}

impl SenderBased {
    /// A later life finds its newest checkpoint.
    pub(crate) fn listed(&mut self, newest: Option<ImageName>, host: &mut dyn Host<SenderBased>) {
        match newest {
            Some(newest) => host.read(newest),
            // Nothing has happened in the earlier lives.
            None if !self.is_started() => {
                self.incarnation = faultline::core::Incarnation(0);
                host.request_snapshot();
            }
            None => self.give_up(Sn(1), host),
        }
    }

    pub(crate) fn read(
        &mut self,
        name: ImageName,
        image: Option<Arc<Image<(), Saved>>>,
        host: &mut dyn Host<SenderBased>,
    ) {
        let Some(image) = image else { return self.give_up(name.sn, host) };
        let Saved { log, rsn, next, sent } = (*image.saved).clone();
        host.restore(Some(&image), self.incarnation);
        let (to, checkpoint) = (Position { incarnation: self.incarnation, sn: name.sn }, name.position());
        let (cause, vectors) = (Cause::Failure, Arc::new(Vectors::default()));
        host.claim(Claim::RolledBack { to, checkpoint, cause, vectors });
        (self.log, self.rsn, self.next, self.sent) = (log, rsn, next, sent);
        (self.sn, self.stored) = (name.sn, Some(name));
        self.phase = Phase::Recovering(Replies::default());
        if !self.is_started() {
            host.started();
        }
        self.ask(host);
    }

    /// Asks those that have not answered. A process that failed meanwhile may never have been asked.
    pub(crate) fn ask(&self, host: &mut dyn Host<SenderBased>) {
        let Phase::Recovering(replies) = &self.phase else { return };
        for other in self.others().into_iter().filter(|it| !replies.logs.contains_key(it)) {
            let below = self.next.get(&other).copied().unwrap_or_default();
            host.control(To::One(other), Message::Recover { below });
        }
    }

    /// Gives a process that has failed its messages. The log is complete unless this process, too, has failed, and has not
    /// learned all RSNs again.
    pub(crate) fn answer(&mut self, to: ProcessId, below: u32, host: &mut dyn Host<SenderBased>) {
        self.remove(to, below);
        let log = self.log.iter().filter(|it| it.id.to == to && it.is_sent).cloned().collect();
        let is_complete = matches!(self.phase, Phase::Running) && self.owed.is_empty();
        let numbered = self.numbered.iter().filter(|((from, _), _)| *from == to);
        let numbered = numbered.map(|((_, number), rsn)| (*number, *rsn)).collect();
        let next = self.next.get(&to).copied().unwrap_or_default();
        host.control(To::One(to), Message::Messages { log, is_complete, numbered, next });
    }

    /// Learns what a receiver has of this process's messages.
    pub(crate) fn learn(
        &mut self,
        receiver: ProcessId,
        numbered: Vec<(u32, Rsn)>,
        next: u32,
        host: &mut dyn Host<SenderBased>,
    ) {
        if next > self.sent.get(&receiver).copied().unwrap_or_default() {
            self.owed.insert(receiver, next);
        }
        for (number, rsn) in numbered {
            let is_it = |it: &&mut Logged| it.id.to == receiver && it.id.number == number;
            match self.log.iter_mut().find(is_it) {
                Some(logged) => {
                    logged.rsn = Some(rsn);
                    host.control(To::One(receiver), Message::Entered { rsn });
                }
                None => drop(self.known.insert((receiver, number), rsn)),
            }
        }
    }

    /// Delivers the logged messages again, once all processes have answered.
    pub(crate) fn go_on(&mut self, now: Time, host: &mut dyn Host<SenderBased>) {
        let others = self.others();
        let is_started = self.is_started();
        let Phase::Recovering(replies) = &mut self.phase else { return };
        if replies.logs.len() < others.len() || !is_started {
            return;
        }
        let Replies { logs, is_incomplete } = std::mem::take(replies);
        if is_incomplete {
            return self.give_up(self.sn, host);
        }
        let mut messages: Vec<Logged> = logs.into_values().flatten().collect();
        if !self.has(Defect::OrderIgnored) {
            messages.sort_by_key(|it| it.rsn.unwrap_or(Rsn::MAX));
        }
        // This process has sent nothing that depends on what it delivered after the first message without a number.
        let mut last = self.rsn;
        let (numbered, rest): (Vec<Logged>, Vec<Logged>) = messages.into_iter().partition(|it| {
            let is_next =
                it.rsn.is_some_and(|rsn| rsn == last + 1 || rsn > last && self.has(Defect::OrderIgnored));
            last += u64::from(is_next);
            is_next
        });
        // Those without a number keep the order of their senders, and are delivered as if they had just arrived.
        let arrived = std::mem::take(&mut self.waiting);
        self.waiting = rest.into_iter().map(|it| (it.id, it.payload)).chain(arrived).collect();
        host.release();
        for Logged { id, payload, .. } in numbered {
            self.deliver(id, payload, host);
        }
        // What had no number may have gone astray with the earlier life.
        self.log.iter_mut().for_each(|it| it.is_sent = it.rsn.is_some());
        self.send(host);
        self.run(now, host);
    }

    pub(crate) fn give_up(&mut self, sn: Sn, host: &mut dyn Host<SenderBased>) {
        self.phase = Phase::GivenUp;
        let (owner, incarnation, attempt) = (self.me, self.incarnation, self.attempt());
        let missing = ImageName { owner, incarnation, sn, attempt };
        let cluster = Scope::Process.group_of(&self.membership, self.me);
        host.claim(Claim::Unrecoverable { cluster, missing: Arc::from([(missing, Vec::new())]) });
    }
}
