//! Restores a process's state after a failure, and absorbs the states of permanently failed processes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Boot, Claim, ImageName, ProcessId, Role, Theft, To};
use faultline_dataflow::recovery::{LastState, TaskHost, root};
use faultline_dataflow::successor;

use super::copies::{Answer, ImageOf, Request, Search};
use super::holders::{all_holders, holders};
use super::message::Message;
use super::{Rule, TaskRecovery};

impl TaskRecovery {
    /// Handles the listing of the storage. A process restores its newest state, wherever that is stored, not just the
    /// newest state in its own storage: otherwise, a holder would keep an image that the restore has undone, and a
    /// later restore could find it.
    pub(super) fn listed(&mut self, names: Vec<ImageName>, host: &mut dyn TaskHost<Self>) {
        let answers = self.copies.listed(names.into_iter(), host);
        self.answer(answers, host);
        if self.is_rank {
            self.look_for(&[self.me], host);
        } else if self.boot == Boot::Replaced {
            self.refill(host);
        }
    }

    /// Starts searches for the newest states of `owners`: first in this process's own storage, then at all
    /// holders, including those that have failed and will return.
    fn look_for(&mut self, owners: &[ProcessId], host: &mut dyn TaskHost<Self>) {
        for owner in owners {
            let holders = all_holders(&self.config, &self.membership, *owner);
            self.searches.insert(*owner, Search::of(holders.into_iter().chain([self.me]).collect()));
        }
        for owner in owners {
            let request = Request { from: self.me, owner: *owner, beyond: None };
            let answer = self.copies.look_up(request, host);
            self.answer(answer, host);
        }
    }

    /// Answers processes that requested images, including this one.
    pub(super) fn answer(
        &mut self,
        answers: impl IntoIterator<Item = Answer>,
        host: &mut dyn TaskHost<Self>,
    ) {
        for Answer { to, owner, images } in answers {
            let names: Arc<[ImageName]> = images.iter().map(|it| it.name).collect();
            if to != self.me {
                images.into_iter().for_each(|it| host.send_image(to, it));
                host.control(To::One(to), Message::Holds(owner, names));
                continue;
            }
            if let Some(search) = self.searches.get_mut(&owner) {
                images.iter().for_each(|it| search.found(it));
                let others = search.asked.iter().copied().filter(|it| *it != self.me);
                let fetch = Message::Fetch(owner, search.end());
                for it in others.filter(|it| self.membership.member(*it).up) {
                    host.control(To::One(it), fetch.clone());
                }
            }
            self.holds(owner, to, &names, host);
        }
    }

    /// Asks these processes again, now that they are up. Searches no longer wait for permanently failed processes.
    pub(super) fn search_again(&mut self, new: &[ProcessId], host: &mut dyn TaskHost<Self>) {
        for (owner, search) in &mut self.searches {
            search.asked.retain(|it| !self.membership.member(*it).gone);
            // Other processes are asked only after the search in this process's own storage has ended.
            let is_here = !search.asked.contains(&self.me);
            for it in new.iter().copied().filter(|_| is_here) {
                if search.asked.contains(&it) {
                    search.discard_announced(it);
                    host.control(To::One(it), Message::Fetch(*owner, search.end()));
                }
            }
        }
        self.finish(host);
    }

    /// Handles an image of a process whose state is being searched for.
    pub(super) fn found(&mut self, image: &Arc<ImageOf>, host: &mut dyn TaskHost<Self>) {
        if let Some(search) = self.searches.get_mut(&image.name.owner) {
            search.found(image);
            self.finish(host);
        }
    }

    /// Handles an answer that names the images that `from` has of `owner`'s newest state.
    pub(super) fn holds(
        &mut self,
        owner: ProcessId,
        from: ProcessId,
        names: &[ImageName],
        host: &mut dyn TaskHost<Self>,
    ) {
        if let Some(search) = self.searches.get_mut(&owner).filter(|it| it.asked.contains(&from)) {
            search.holds(from, names);
            self.finish(host);
        }
    }

    /// Handles an image that was read from this process's own storage.
    pub(super) fn read(
        &mut self,
        name: ImageName,
        image: Option<&Arc<ImageOf>>,
        host: &mut dyn TaskHost<Self>,
    ) {
        let answers = self.copies.read(name, image, host);
        self.answer(answers, host);
    }

    /// Searches for the states of the permanently failed processes for which this process answers.
    pub(super) fn look_for_last_states(&mut self, host: &mut dyn TaskHost<Self>) {
        let all = (0..self.membership.members.len() as u32).map(ProcessId);
        let left: Vec<ProcessId> = all
            .filter(|it| {
                let member = self.membership.member(*it);
                // The successor is determined last, because this takes longest and few processes have failed
                // permanently.
                member.gone
                    && member.role == Role::RANK
                    && !self.absorbed.contains(it)
                    && successor(&self.membership, *it) == self.me
            })
            .filter(|it| !self.searches.contains_key(it))
            .collect();
        self.look_for(&left, host);
    }

    /// Continues once every search has found its state, or has established that it is lost.
    fn finish(&mut self, host: &mut dyn TaskHost<Self>) {
        if self.searches.is_empty() || !self.searches.values().all(Search::is_over) {
            return;
        }
        let searches = core::mem::take(&mut self.searches);
        let mut found: BTreeMap<ProcessId, Vec<Arc<ImageOf>>> =
            searches.iter().map(|(owner, search)| (*owner, search.chain())).collect();
        let own = found.remove(&self.me);
        let restores = own.is_some();
        if let Some(own) = own {
            self.restore(&own, host);
        }
        let mut last_states: Vec<ProcessId> = found.keys().copied().collect();
        let mut new = BTreeSet::new();
        // Graphs that contain others come first, so that no graph is absorbed twice.
        while !last_states.is_empty() {
            let held_by = |one: ProcessId, other: ProcessId| {
                let best = found[&other].first();
                other != one && best.is_some_and(|it| it.head.absorbed.contains(&one))
            };
            let first =
                last_states.iter().position(|it| !last_states.iter().any(|other| held_by(*it, *other)));
            assert!(first.is_some() || !self.config.is_sound(), "no two graphs contain each other");
            let of = last_states.remove(first.unwrap_or(0));
            if self.absorbed.contains(&of) && self.config.obeys(Rule::AbsorbsOnce) {
                continue;
            }
            assert!(
                self.membership.member(of).gone && found[&of].iter().all(|it| it.name.owner == of),
                "{of:?} returns, or its graph belongs to another process"
            );
            let estate = match found[&of].split_first() {
                Some((checkpoint, log)) => LastState::Log(checkpoint, log),
                None if self.membership.member(of).started => LastState::Nothing,
                None => LastState::Beginning,
            };
            host.absorb(of, estate);
            self.absorbed.insert(of);
            new.insert(of);
            let newest = found[&of].first();
            self.absorbed.extend(newest.iter().flat_map(|it| it.head.absorbed.iter().copied()));
        }
        let answers_for_all = !restores || self.config.obeys(Rule::AnswersForAbsorbed);
        self.begin(if answers_for_all { self.absorbed.clone() } else { new }, host);
    }

    fn restore(&mut self, chain: &[Arc<ImageOf>], host: &mut dyn TaskHost<Self>) {
        assert!(!self.is_running, "a process restores its state once, before it runs");
        let name = chain.last().map(|it| it.name);
        if name.is_none() && self.membership.member(self.me).started && root(&self.membership) == self.me {
            return self.give_up(host);
        }
        match chain.split_first() {
            Some((checkpoint, log)) => host.restore_log(checkpoint, log),
            None => host.restore(None),
        }
        self.stable.claim_restored(name, host);
        self.absorbed = chain.first().iter().flat_map(|it| it.head.absorbed.iter().copied()).collect();
        self.is_running = true;
        host.release();
        if self.boot == Boot::Replaced {
            self.refill(host);
        }
    }

    /// Announces that this process answers for itself and for all processes that it absorbed, and then re-sends results
    /// and asks about loans, since messages about them may have been lost.
    fn begin(&mut self, absorbed: BTreeSet<ProcessId>, host: &mut dyn TaskHost<Self>) {
        if !host.is_over() && host.is_mine(root(&self.membership)) && !host.has_root() {
            self.give_up(host);
        }
        if self.is_lost {
            return;
        }
        assert!(!absorbed.contains(&self.me), "a process does not absorb its own graph");
        let mine: Arc<[ProcessId]> = core::iter::once(self.me).chain(absorbed).collect();
        for it in self.membership.with_role(Role::RANK).filter(|it| *it != self.me) {
            if self.membership.member(it).up {
                host.control(To::One(it), Message::Here(mine.clone()));
            }
        }
        for theft in host.loans() {
            self.ask_about(theft, host);
        }
        for (theft, is_done) in host.debts() {
            if is_done && self.config.obeys(Rule::ReturnsAgain) {
                self.resend_result(theft, host);
            }
        }
        self.stable.force_checkpoint();
        self.look_for_last_states(host);
    }

    /// Asks about the state of a loan, unless this process answers for the thief.
    pub(super) fn ask_about(&self, theft: Theft, host: &mut dyn TaskHost<Self>) {
        if !host.is_mine(theft.thief) && self.config.obeys(Rule::AsksAboutLoans) {
            host.control(To::One(successor(&self.membership, theft.thief)), Message::Query(theft));
        }
    }

    /// Asks owners for the images that this process should hold, after its storage was lost.
    fn refill(&mut self, host: &mut dyn TaskHost<Self>) {
        let holds = |owner: &ProcessId| holders(&self.config, &self.membership, *owner).contains(&self.me);
        let stays = |it: &ProcessId| !self.membership.member(*it).gone && *it != self.me;
        self.unfilled = self.membership.with_role(Role::RANK).filter(stays).filter(holds).collect();
        for owner in self.unfilled.iter().filter(|it| self.membership.member(**it).up) {
            host.control(To::One(*owner), Message::Refill);
        }
        if self.is_rank {
            self.unfilled.insert(self.me);
        }
    }

    fn give_up(&mut self, host: &mut dyn TaskHost<Self>) {
        self.is_lost = true;
        host.hold();
        let owner = root(&self.membership);
        let asked = all_holders(&self.config, &self.membership, owner);
        let name = ImageName {
            owner,
            incarnation: self.membership.member(owner).life.incarnation(),
            sn: faultline_core::Sn(1),
            attempt: faultline_core::Attempt(1),
        };
        let group = faultline_core::Scope::Process.group_of(&self.membership, owner);
        host.claim(Claim::Unrecoverable { group, missing: Arc::from([(name, asked)]) });
    }
}
