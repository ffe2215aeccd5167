//! Recovery: from the announcement of a failure to the restored line.

use std::sync::Arc;

use faultline::core::{
    Cause, Claim, Host, ImageName, Incarnation, Membership, Position, ProcessId, Scope, Sn, Time, Vectors,
};

use crate::line::{ANY, Line};
use crate::{Bcs, Defect, Message, Part, Phase, epoch_of};

impl Bcs {
    pub(crate) fn membership(&mut self, membership: Arc<Membership>, host: &mut dyn Host<Bcs>) {
        self.membership = membership;
        let epoch = epoch_of(&self.membership);
        if epoch > self.epoch {
            self.epoch = epoch;
            self.fail(host);
            for (from, message) in std::mem::take(&mut self.early) {
                self.handle_message(from, message, host);
            }
        }
    }

    /// Handles the failure of a process: stops all sends and deliveries until the new line has been restored.
    fn fail(&mut self, host: &mut dyn Host<Bcs>) {
        self.line = Line::default();
        self.stable.clear();
        let accepts_stale = self.has(Defect::StaleAccepted);
        self.waiting.retain(|it| it.stamp.epoch >= self.epoch || accepts_stale);
        if !matches!(self.phase, Phase::Starting | Phase::GivenUp) {
            host.hold();
            self.phase = Phase::Reporting;
        }
    }

    pub(crate) fn handle_message(&mut self, from: ProcessId, message: Message, host: &mut dyn Host<Bcs>) {
        let (Message::Report { epoch, .. }
        | Message::Prepared { epoch, .. }
        | Message::Stable { epoch, .. }
        | Message::Settled { epoch, .. }) = message;
        if epoch > self.epoch {
            return self.early.push((from, message));
        }
        match message {
            _ if epoch < self.epoch => {}
            Message::Report { permits, .. } => self.line.report(from, permits),
            Message::Prepared { index, .. } => self.line.prepared(from, index),
            Message::Stable { index, .. } => self.stable(from, index, host),
            Message::Settled { below, .. } => self.log.retain(|it| it.id.to != from || it.id.number >= below),
        }
    }

    /// Handles the listing of the storage at the start of a restarted or replaced life. The storage may still contain
    /// checkpoints that a rollback in an earlier life undid.
    pub(crate) fn listed(
        &mut self,
        images: impl Iterator<Item = ImageName>,
        now: Time,
        host: &mut dyn Host<Bcs>,
    ) {
        let is_undone = |name: &ImageName| {
            self.rollbacks.iter().any(|(epoch, index)| *epoch > name.incarnation.0 && name.sn > *index)
        };
        self.stored = images.filter(|it| !is_undone(it)).map(|it| (it.sn, it)).collect();
        match self.stored.last_key_value() {
            Some((_, newest)) => host.read(*newest),
            // No process has seen any effect of the earlier lives.
            None if !self.is_started() => {
                self.restore_initial(host);
                self.take(Sn(1), false, now, host);
            }
            None => self.give_up(self.name(Sn(1)), host),
        }
    }

    pub(crate) fn read(&mut self, name: ImageName, part: Option<Part>, host: &mut dyn Host<Bcs>) {
        match self.phase {
            Phase::Starting if part.is_some() => {
                (self.index, self.bound) = (name.sn, Some(name.sn));
                if !self.is_started() {
                    host.started();
                }
            }
            Phase::Starting => {
                self.stored.remove(&name.sn);
                match self.stored.last_key_value() {
                    Some((_, newest)) => host.read(*newest),
                    None => self.give_up(name, host),
                }
            }
            Phase::Fetching(index) if self.first_from(index) == Some(name) => match part {
                Some(part) => self.decide(index, Some(part), host),
                None => self.damaged(name, host),
            },
            _ => {} // requested in an earlier epoch
        }
    }

    /// Handles an unreadable checkpoint of the line: this process now permits only older lines.
    fn damaged(&mut self, name: ImageName, host: &mut dyn Host<Bcs>) {
        self.stored.remove(&name.sn);
        let Some((&permits, _)) = self.stored.range(..name.sn).next_back() else {
            return self.give_up(name, host);
        };
        self.bound = Some(permits);
        self.phase = Phase::Reporting;
        self.report(permits, host);
    }

    fn report(&mut self, permits: Sn, host: &mut dyn Host<Bcs>) {
        self.line.report(self.me, permits);
        self.broadcast(&Message::Report { epoch: self.epoch, permits }, host);
    }

    /// Takes the next steps that are possible.
    pub(crate) fn proceed(&mut self, now: Time, host: &mut dyn Host<Bcs>) {
        if matches!(self.phase, Phase::Starting) {
            if !self.has_checkpoint() || !self.is_started() {
                return;
            }
            if self.epoch == 0 {
                return self.run(now, host);
            }
            self.phase = Phase::Reporting;
        }
        if matches!(self.phase, Phase::Running | Phase::GivenUp) {
            return;
        }
        let ranks = self.ranks();
        if ranks.iter().any(|it| !self.membership.member(*it).up) {
            return;
        }
        if !self.line.has_report_of(self.me) {
            self.report(self.bound.unwrap_or(ANY), host);
        }
        let Some(index) = self.line.index(ranks.len()) else { return };
        match self.phase {
            Phase::Fetching(other) | Phase::Recording(other, _) if other == index => return,
            Phase::Prepared(other, _) if other == index => {}
            _ => self.look_for(index, host),
        }
        if let Phase::Prepared(prepared, part) = &self.phase
            && *prepared == index
            && self.line.is_prepared(index, ranks.len())
        {
            if let Some(part) = part.clone() {
                self.restore(&part, host);
                self.schedule(now);
            }
            self.run(now, host);
        }
    }

    /// Finds this process's part of the line: its first checkpoint whose index is at least `index`.
    fn look_for(&mut self, index: Sn, host: &mut dyn Host<Bcs>) {
        // All checkpoints of a process that has not acted yet contain its current state.
        if self.bound.is_none() && (self.index < index || !self.has_run) {
            return self.decide(index, None, host);
        }
        let Some(name) = self.first_from(index) else { return self.give_up(self.name(index), host) };
        self.phase = Phase::Fetching(index);
        // A checkpoint that is still being written is restored only once it is durable, because this process may fail
        // as well.
        if self.stored.contains_key(&name.sn) {
            host.read(name);
        }
    }

    pub(crate) fn first_from(&self, index: Sn) -> Option<ImageName> {
        let unsaved = self.unsaved.iter().map(|it| it.part.name);
        let mut all = self.stored.values().copied().chain(unsaved).filter(|it| it.sn >= index);
        if self.has(Defect::NewestRestored) { all.next_back() } else { all.next() }
    }

    /// Commits this process to the line with this index. A decision to roll back becomes durable before other
    /// processes learn of it: if this process fails while they restore the line and act, its next life must not
    /// resume from a checkpoint newer than the line.
    pub(crate) fn decide(&mut self, index: Sn, part: Option<Part>, host: &mut dyn Host<Bcs>) {
        let Some(part) = part else { return self.prepared(index, None, host) };
        let kept = part.name.sn;
        self.bound = Some(kept);
        if self.has(Defect::DecisionNotDurable) {
            return self.prepared(index, Some(part), host);
        }
        self.rollbacks.retain(|(_, earlier)| *earlier < kept);
        self.rollbacks.push((self.epoch, kept));
        self.phase = Phase::Recording(index, part);
        self.record += 1;
        let bytes = postcard::to_allocvec(&self.rollbacks).expect("numbers can be encoded");
        host.record(self.record, bytes.into());
    }

    pub(crate) fn recorded(&mut self, host: &mut dyn Host<Bcs>) {
        if let Phase::Recording(index, part) = &self.phase {
            self.prepared(*index, Some(part.clone()), host);
        }
    }

    fn prepared(&mut self, index: Sn, part: Option<Part>, host: &mut dyn Host<Bcs>) {
        self.phase = Phase::Prepared(index, part);
        self.line.prepared(self.me, index);
        self.broadcast(&Message::Prepared { epoch: self.epoch, index }, host);
    }

    /// Restores the initial state under a new incarnation.
    fn restore_initial(&mut self, host: &mut dyn Host<Bcs>) {
        self.incarnation = Incarnation(self.epoch);
        host.restore(None, self.incarnation);
        let to = Position { incarnation: self.incarnation, sn: Sn(0) };
        let (checkpoint, cause) = (Position::default(), Cause::Failure);
        host.claim(Claim::RolledBack { to, checkpoint, cause, vectors: Arc::new(Vectors::default()) });
    }

    fn restore(&mut self, part: &Part, host: &mut dyn Host<Bcs>) {
        let checkpoint = part.name.position();
        let taken = self.taking.take().map(|it| self.name(it.index));
        for undone in self.unsaved.drain(..).map(|it| it.part.name).chain(taken) {
            host.claim(Claim::Aborted { position: undone.position(), attempt: undone.attempt });
        }
        self.write_again = Time::NEVER;
        let to = Position { incarnation: Incarnation(self.epoch), sn: checkpoint.sn };
        host.restore(Some(part), to.incarnation);
        (self.incarnation, self.index) = (to.incarnation, to.sn);
        (self.log, self.delivered) = (part.saved.log.clone(), part.saved.delivered.clone());
        self.contents.retain(|it, _| *it < to.sn);
        self.contents.insert(to.sn, self.delivered.clone());
        for undone in self.stored.split_off(&to.sn.next()).into_values() {
            host.delete(undone);
        }
        let cause = match self.line.lowest() {
            Some(lowest) if self.has_run && lowest != self.me => {
                Cause::Alert { from: Scope::Process.group_of(&self.membership, lowest), position: to }
            }
            _ => Cause::Failure,
        };
        host.claim(Claim::RolledBack { to, checkpoint, cause, vectors: Arc::new(Vectors::default()) });
    }

    /// Starts or resumes the application, and re-sends messages that other processes may have lost.
    fn run(&mut self, now: Time, host: &mut dyn Host<Bcs>) {
        self.phase = Phase::Running;
        (self.bound, self.has_run) = (None, true);
        self.announce_stable(host);
        for logged in &self.log {
            host.claim(Claim::Resent { id: logged.id });
            host.transmit(logged.id, self.stamp(), logged.payload.clone());
        }
        if self.taking.is_none() {
            host.release();
            self.deliver_waiting(now, host);
        }
    }

    /// Reports that this process cannot be restored, because this checkpoint is missing or damaged.
    fn give_up(&mut self, missing: ImageName, host: &mut dyn Host<Bcs>) {
        self.phase = Phase::GivenUp;
        let group = Scope::Process.group_of(&self.membership, self.me);
        host.claim(Claim::Unrecoverable { group, missing: Arc::from([(missing, Vec::new())]) });
    }
}
