//! Restoring after a failure, and absorbing what processes leave that are gone for good.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Boot, Claim, ImageName, ProcessId, Role, Theft, To};
use faultline_dataflow::heir;
use faultline_dataflow::recovery::{Estate, Host, Leg, root};

use super::copies::{ImageOf, Search};
use super::holders::{all_holders, holders};
use super::message::Message;
use super::{Defect, TaskRecovery};

impl TaskRecovery {
    /// The storage has been listed. The newest image in a storage that was kept is good enough: what went to others went with
    /// it, or with an older one.
    pub(super) fn listed(&mut self, names: Vec<ImageName>, host: &mut dyn Host<Self>) {
        self.is_listed = true;
        self.copies.listed(names.into_iter(), host);
        if !self.is_rank {
            if self.boot == Boot::Replaced {
                self.refill(host);
            }
            return;
        }
        let own = self.copies.newest(self.me);
        let mut search = Search { reading: own, ..Search::default() };
        if let Some(name) = own {
            host.read(name);
        }
        if own.is_none() || self.boot == Boot::Replaced {
            search.asked = self.ask_holders(self.me, host);
        }
        self.searches.insert(self.me, search);
        self.finish(host);
    }

    /// Asks all processes that may hold images of `owner`, those that are up at once.
    fn ask_holders(&self, owner: ProcessId, host: &mut dyn Host<Self>) -> BTreeSet<ProcessId> {
        let mut all = all_holders(&self.config, &self.membership, owner);
        all.retain(|it| *it != self.me);
        for it in all.iter().filter(|it| self.membership.member(**it).up) {
            host.control(To::One(*it), Message::Fetch(owner));
        }
        all.into_iter().collect()
    }

    /// These processes are up again: they are asked again. Those that are gone do not answer.
    pub(super) fn search_again(&mut self, new: &[ProcessId], host: &mut dyn Host<Self>) {
        for (owner, search) in &mut self.searches {
            search.asked.retain(|it| !self.membership.member(*it).gone);
            for it in new.iter().filter(|it| search.asked.contains(it)) {
                host.control(To::One(*it), Message::Fetch(*owner));
            }
        }
        self.finish(host);
    }

    /// An answer about the newest image of `owner`.
    pub(super) fn found(
        &mut self,
        owner: ProcessId,
        from: ProcessId,
        image: Option<&Arc<ImageOf>>,
        host: &mut dyn Host<Self>,
    ) {
        if let Some(search) = self.searches.get_mut(&owner)
            && search.asked.remove(&from)
        {
            image.into_iter().for_each(|it| search.found(it));
            self.finish(host);
        }
    }

    /// An image in this process's own storage was read.
    pub(super) fn read(&mut self, name: ImageName, image: Option<&Arc<ImageOf>>, host: &mut dyn Host<Self>) {
        self.copies.read(name, image, host);
        let Some(search) = self.searches.get_mut(&name.owner).filter(|it| it.reading == Some(name)) else {
            return;
        };
        search.reading = None;
        match image {
            Some(image) => search.found(image),
            None => {
                // Not intact: an older one, and what others hold.
                let older = self.copies.newest(name.owner);
                search.reading = older;
                older.into_iter().for_each(|it| host.read(it));
                let asked = self.ask_holders(name.owner, host);
                if let Some(search) = self.searches.get_mut(&name.owner) {
                    search.asked = asked;
                }
            }
        }
        self.finish(host);
    }

    /// Looks for what those leave that are gone, and whose heir this process is.
    pub(super) fn look_for_estates(&mut self, host: &mut dyn Host<Self>) {
        let all = (0..self.membership.members.len() as u32).map(ProcessId);
        let left: Vec<ProcessId> = all
            .filter(|it| {
                let member = self.membership.member(*it);
                let is_heir = heir(&self.membership, *it) == self.me;
                member.gone && member.role == Role::RANK && is_heir && !self.absorbed.contains(it)
            })
            .filter(|it| !self.searches.contains_key(it))
            .collect();
        if left.is_empty() {
            return;
        }
        for it in left {
            let reading = self.copies.newest(it);
            reading.into_iter().for_each(|name| host.read(name));
            let asked = self.ask_holders(it, host);
            self.searches.insert(it, Search { best: None, asked, reading });
        }
        self.finish(host);
    }

    /// Goes on once all that was looked for is found, or known to be lost.
    fn finish(&mut self, host: &mut dyn Host<Self>) {
        if self.searches.is_empty() || !self.searches.values().all(Search::is_over) {
            return;
        }
        let mut found = core::mem::take(&mut self.searches);
        if let Some(own) = found.remove(&self.me) {
            self.restore(own.best, host);
        }
        let mut heritage: Vec<ProcessId> = found.keys().copied().collect();
        // First the graphs that hold others: these must not come twice.
        while !heritage.is_empty() && !self.is_lost {
            let held_by = |one: ProcessId, other: ProcessId| {
                let best = found[&other].best.as_ref();
                other != one && best.is_some_and(|it| it.head.absorbed.contains(&one))
            };
            let first = heritage.iter().position(|it| !heritage.iter().any(|other| held_by(*it, *other)));
            let of = heritage.remove(first.unwrap_or(0));
            if self.absorbed.contains(&of) && !self.config.defects.has(Defect::AbsorbedTwice) {
                continue;
            }
            let best = found[&of].best.clone();
            let estate = match &best {
                Some(image) => Estate::Image(image),
                None if self.membership.member(of).started => Estate::Nothing,
                None => Estate::Beginning,
            };
            host.absorb(of, estate);
            self.absorbed.insert(of);
            self.absorbed.extend(best.iter().flat_map(|it| it.head.absorbed.iter().copied()));
        }
        self.begin(host);
    }

    fn restore(&mut self, best: Option<Arc<ImageOf>>, host: &mut dyn Host<Self>) {
        let name = best.as_ref().map(|it| it.name);
        if name.is_none() && self.membership.member(self.me).started && root(&self.membership) == self.me {
            return self.give_up(host);
        }
        host.restore(best.as_deref());
        self.stable.claim_restored(name, host);
        self.absorbed = best.iter().flat_map(|it| it.head.absorbed.iter().copied()).collect();
        self.is_running = true;
        host.release();
        if self.boot == Boot::Replaced {
            self.refill(host);
        }
    }

    /// Answers for itself and for all whom it absorbed, and settles what may have been lost.
    fn begin(&mut self, host: &mut dyn Host<Self>) {
        if !host.is_over() && host.is_mine(root(&self.membership)) && !host.has_root() {
            self.give_up(host);
        }
        if self.is_lost {
            return;
        }
        let mine: Arc<[ProcessId]> = core::iter::once(self.me).chain(self.absorbed.iter().copied()).collect();
        for it in self.membership.with_role(Role::RANK).filter(|it| *it != self.me) {
            if self.membership.member(it).up {
                host.control(To::One(it), Message::Here(mine.clone()));
            }
        }
        for theft in host.loans() {
            self.ask_about(theft, host);
        }
        for (theft, is_done) in host.debts() {
            if is_done && !self.stable.awaits(theft, Leg::Result) {
                host.pass(theft, Leg::Result);
            }
        }
        self.stable.force();
        self.look_for_estates(host);
    }

    /// Asks what became of a loan, unless its task is yet to be sent.
    pub(super) fn ask_about(&self, theft: Theft, host: &mut dyn Host<Self>) {
        let goes_anyway = host.is_mine(theft.thief) || self.stable.awaits(theft, Leg::Task);
        if !goes_anyway && !self.config.defects.has(Defect::NoQuery) {
            host.control(To::One(heir(&self.membership, theft.thief)), Message::Query(theft));
        }
    }

    /// The storage was lost: asks for what it should hold.
    fn refill(&mut self, host: &mut dyn Host<Self>) {
        let holds = |owner: &ProcessId| holders(&self.config, &self.membership, *owner).contains(&self.me);
        let stays = |it: &ProcessId| !self.membership.member(*it).gone && *it != self.me;
        self.unfilled = self.membership.with_role(Role::RANK).filter(stays).filter(holds).collect();
        for owner in self.unfilled.iter().filter(|it| self.membership.member(**it).up) {
            host.control(To::One(*owner), Message::Refill);
        }
        if self.is_rank {
            self.unfilled.insert(self.me);
        } else if self.unfilled.is_empty() {
            host.held();
        }
    }

    fn give_up(&mut self, host: &mut dyn Host<Self>) {
        self.is_lost = true;
        host.hold();
        let owner = root(&self.membership);
        let asked = all_holders(&self.config, &self.membership, owner);
        let name = ImageName {
            owner,
            incarnation: faultline_core::Incarnation(self.membership.member(owner).life.0),
            sn: faultline_core::Sn(1),
            attempt: faultline_core::Attempt(1),
        };
        let group = faultline_core::Scope::Process.group_of(&self.membership, owner);
        host.claim(Claim::Unrecoverable { cluster: group, missing: Arc::from([(name, asked)]) });
    }
}
