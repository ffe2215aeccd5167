//! Chooses the process that an idle process asks for work.

use faultline_core::{Life, Membership, ProcessId, Role, Span, Theft, Time};

/// How idle processes steal work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stealing {
    /// How long a process waits after a refusal before it sends another request.
    pub patience: Span,
    /// Percentage of requests whose victim is drawn from the thief's cluster, if another process of that cluster is up.
    /// The victim of any other request is drawn from all processes.
    pub cluster_first: u8,
}

/// The thief's side of stealing.
#[derive(Clone, Debug)]
pub(super) struct Thief {
    stealing: Stealing,
    /// The pending request, and the life of the victim.
    asking: Option<(Theft, Life)>,
    number: u32,
    /// The earliest time of the next request.
    not_before: Time,
    random: u64,
}

impl Thief {
    pub(super) fn new(stealing: Stealing, seed: u64) -> Thief {
        Thief { stealing, asking: None, number: 0, not_before: Time::ZERO, random: seed }
    }

    pub(super) fn asking(&self) -> Option<Theft> {
        self.asking.map(|(theft, _)| theft)
    }

    /// Cancels the pending request. Its answer, if any, is ignored.
    pub(super) fn stop(&mut self) {
        self.asking = None;
    }

    /// Handles a refusal: the victim has no task.
    pub(super) fn refused(&mut self, theft: Theft, now: Time) {
        if self.asking() == Some(theft) {
            self.asking = None;
            self.not_before = now + self.stealing.patience;
        }
    }

    /// Cancels a request to a process that has since failed.
    pub(super) fn membership_changed(&mut self, membership: &Membership) {
        let failed = |(theft, life): (Theft, Life)| {
            let victim = membership.member(theft.victim);
            !victim.up || victim.life != life || victim.gone
        };
        if self.asking.is_some_and(failed) {
            self.asking = None;
        }
    }

    /// Returns the earliest time at which an idle process sends its next request; `None` while a request is
    /// pending.
    pub(super) fn next_request(&self) -> Option<Time> {
        self.asking.is_none().then_some(self.not_before)
    }

    /// Starts a request, and returns its theft, if a request is due and a victim exists.
    pub(super) fn ask(
        &mut self,
        me: ProcessId,
        life: Life,
        membership: &Membership,
        now: Time,
    ) -> Option<Theft> {
        if self.next_request()? > now {
            return None;
        }
        let cluster = membership.cluster_of(me);
        let is_near = |it: &ProcessId| membership.cluster_of(*it) == cluster;
        let all = || {
            let is_up = |it: &ProcessId| {
                let member = membership.member(*it);
                member.up && !member.gone && membership.is_present(*it)
            };
            membership.with_role(Role::RANK).filter(move |it| *it != me && is_up(it))
        };
        let (count, near) = (all().count() as u64, all().filter(is_near).count() as u64);
        let stays = self.draw(100) < u64::from(self.stealing.cluster_first);
        let victim = match (near, count) {
            (_, 0) => {
                // No victim exists: the process tries again after the same wait as after a refusal.
                self.not_before = now + self.stealing.patience;
                return None;
            }
            (1.., _) if stays => all().filter(is_near).nth(self.draw(near) as usize),
            _ => all().nth(self.draw(count) as usize),
        }?;
        self.number += 1;
        let theft = Theft { victim, thief: me, life, number: self.number };
        self.asking = Some((theft, membership.member(victim).life));
        Some(theft)
    }

    /// Returns a random number below `limit`, by SplitMix64.
    fn draw(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.random;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % limit
    }
}
