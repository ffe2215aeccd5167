//! Recovery: from the news of a failure to the restored line.

use std::sync::Arc;

use faultline::core::{
    Cause, Claim, Host, ImageName, Incarnation, Membership, Position, ProcessId, Scope, Sn, Time, Vectors,
};

use crate::line::{ANY, Line};
use crate::{Bcs, Defect, Message, Part, Phase, Taking, epoch_of};

impl Bcs {
    pub(crate) fn membership(&mut self, membership: Arc<Membership>, host: &mut dyn Host<Bcs>) {
        self.membership = membership;
        let epoch = epoch_of(&self.membership);
        if epoch > self.epoch {
            self.epoch = epoch;
            self.fail(host);
            for (from, message) in std::mem::take(&mut self.early) {
                self.told(from, message, host);
            }
        }
    }

    /// A process has failed. Nothing is sent or delivered until the new line has been restored.
    fn fail(&mut self, host: &mut dyn Host<Bcs>) {
        self.line = Line::default();
        self.waiting
            .retain(|it| it.stamp.epoch >= self.epoch || self.config.defect == Some(Defect::StaleAccepted));
        match &self.phase {
            Phase::Starting | Phase::GivenUp => return,
            // Other processes may have restored the line that this one has only prepared, and act by now.
            Phase::Prepared(_, Some(part)) => self.bound = Some(part.name.sn),
            _ => {}
        }
        host.hold();
        self.phase = Phase::Reporting;
    }

    pub(crate) fn told(&mut self, from: ProcessId, message: Message, host: &mut dyn Host<Bcs>) {
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

    /// A later life has found these checkpoints. Those that an earlier life had undone may still be among them.
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
            // No process has seen anything of the earlier lives.
            None if !self.is_started() => self.take(Sn(1), false, now, host),
            None => self.give_up(host),
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
                    None => self.give_up(host),
                }
            }
            Phase::Reading(index) if self.first_from(index) == Some(name) => match part {
                Some(part) => self.prepare(index, Some(part), host),
                None => self.damaged(name, host),
            },
            _ => {} // asked for in an earlier epoch
        }
    }

    /// A checkpoint that the line needs cannot be read. This process permits only older lines.
    fn damaged(&mut self, name: ImageName, host: &mut dyn Host<Bcs>) {
        self.stored.remove(&name.sn);
        let Some((&permits, _)) = self.stored.range(..name.sn).next_back() else { return self.give_up(host) };
        self.bound = Some(permits);
        self.phase = Phase::Reporting;
        self.report(permits, host);
    }

    fn report(&mut self, permits: Sn, host: &mut dyn Host<Bcs>) {
        self.line.report(self.me, permits);
        self.tell_all(&Message::Report { epoch: self.epoch, permits }, host);
    }

    /// Takes the next steps for which everything is there.
    pub(crate) fn proceed(&mut self, now: Time, host: &mut dyn Host<Bcs>) {
        if matches!(self.phase, Phase::Starting) {
            if !self.stored.contains_key(&self.index) || !self.is_started() {
                return;
            }
            if self.epoch == 0 {
                return self.run(now, host);
            }
            self.phase = Phase::Reporting;
        }
        if matches!(self.phase, Phase::Recording(_) | Phase::Running | Phase::GivenUp) {
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
            Phase::Reading(reading) if reading == index => return,
            Phase::Prepared(prepared, _) if prepared == index => {}
            _ => self.look_for(index, host),
        }
        if let Phase::Prepared(prepared, part) = &self.phase
            && *prepared == index
            && self.line.is_prepared(index, ranks.len())
        {
            // No line is newer from now on.
            self.stable.values_mut().for_each(|it| *it = index.min(*it));
            match part.clone() {
                Some(part) => self.restore(&part, host),
                None => self.run(now, host),
            }
        }
    }

    /// Finds this process's part of the line: its first checkpoint with at least this index.
    fn look_for(&mut self, index: Sn, host: &mut dyn Host<Bcs>) {
        if self.bound.is_none() && self.index < index {
            return self.prepare(index, None, host);
        }
        let Some(name) = self.first_from(index) else { return self.give_up(host) };
        match self.unsaved.iter().find(|it| it.name == name).cloned() {
            Some(part) => self.prepare(index, Some(part), host),
            None => {
                self.phase = Phase::Reading(index);
                host.read(name);
            }
        }
    }

    fn first_from(&self, index: Sn) -> Option<ImageName> {
        let unsaved = self.unsaved.iter().map(|it| it.name);
        let mut all = self.stored.values().copied().chain(unsaved).filter(|it| it.sn >= index);
        if self.has(Defect::NewestRestored) { all.next_back() } else { all.next() }
    }

    fn prepare(&mut self, index: Sn, part: Option<Part>, host: &mut dyn Host<Bcs>) {
        self.phase = Phase::Prepared(index, part);
        self.line.prepared(self.me, index);
        self.tell_all(&Message::Prepared { epoch: self.epoch, index }, host);
    }

    fn restore(&mut self, part: &Part, host: &mut dyn Host<Bcs>) {
        let Position { incarnation, sn: index } = part.name.position();
        if let Some(Taking { index, .. }) = self.taking.take() {
            let position = Position { incarnation: self.incarnation, sn: index };
            host.claim(Claim::Aborted { position, attempt: self.attempt() });
        }
        self.incarnation = Incarnation(self.epoch);
        host.restore(Some(part), self.incarnation);
        (self.index, self.bound) = (index, Some(index));
        (self.log, self.delivered) = (part.saved.log.clone(), part.saved.delivered.clone());
        self.unsaved.retain(|it| it.name.sn <= index);
        self.frozen.retain(|it, _| *it <= index);
        self.contents.retain(|it, _| *it <= index);
        for undone in self.stored.split_off(&Sn(index.0 + 1)).into_values() {
            host.delete(undone);
        }
        let group = |it| Scope::Process.group_of(&self.membership, it);
        let cause = match self.line.lowest() {
            Some(lowest) if self.has_run && lowest != self.me => Cause::Alert {
                from: group(lowest),
                position: Position { incarnation: self.incarnation, sn: index },
            },
            _ => Cause::Failure,
        };
        let (to, checkpoint) =
            (Position { incarnation: self.incarnation, sn: index }, Position { incarnation, sn: index });
        let vectors = Arc::new(Vectors::default());
        self.phase = Phase::Recording(Claim::RolledBack { to, checkpoint, cause, vectors });
        // Before this process acts again, a later life must be able to tell which of its checkpoints are undone.
        self.rollbacks.push((self.epoch, index));
        self.record += 1;
        let bytes = postcard::to_allocvec(&self.rollbacks).expect("numbers can be encoded");
        host.record(self.record, bytes.into());
    }

    pub(crate) fn recorded(&mut self, now: Time, host: &mut dyn Host<Bcs>) {
        if let Phase::Recording(rolled_back) = &self.phase {
            host.claim(rolled_back.clone());
            self.run(now, host);
        }
    }

    /// Lets the application run, and sends again what others may have lost.
    fn run(&mut self, now: Time, host: &mut dyn Host<Bcs>) {
        self.phase = Phase::Running;
        (self.bound, self.has_run) = (None, true);
        self.next_checkpoint = self.config.checkpoint_every.0.map_or(Time::NEVER, |every| now + every);
        for logged in &self.log {
            host.claim(Claim::Resent { id: logged.id });
            host.transmit(logged.id, self.stamp(), logged.payload.clone());
        }
        if self.taking.is_none() {
            host.release();
            self.deliver_waiting(now, host);
        }
    }

    fn give_up(&mut self, host: &mut dyn Host<Bcs>) {
        self.phase = Phase::GivenUp;
        let (owner, incarnation) = (self.me, self.incarnation);
        let missing = ImageName { owner, incarnation, sn: Sn(1), attempt: self.attempt() };
        let cluster = Scope::Process.group_of(&self.membership, self.me);
        host.claim(Claim::Unrecoverable { cluster, missing: Arc::from([(missing, Vec::new())]) });
    }
}
