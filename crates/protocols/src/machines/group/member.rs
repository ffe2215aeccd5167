//! A member of a group: the checkpoint that it keeps, and the inputs that concern its storage.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Boot, Claim, ClusterId, GroupId, ImageName, Incarnation, Input, Machine, Position, ProcessId, Protocol,
    Scope, Span, Time, To,
};

use super::message::GroupMessage;
use super::restore::{MemberAttempt, Resumed, Round};
use super::store::{Answers, Store};
use super::view::View;
use super::{Grouped, Rules};
use crate::machines::{Checkpoint, ImageOf};
use crate::placement::Placement;

/// A member of a group, and the group's storage and recovery as this member sees them.
#[derive(Clone, Debug)]
pub(crate) struct Group<P: Grouped> {
    pub(crate) me: ProcessId,
    pub(crate) view: View,
    pub(crate) number: GroupId,
    pub(crate) members: Arc<[ProcessId]>,
    /// Holders of this process's parts.
    pub(crate) holders: Vec<ProcessId>,
    /// Incarnation of this process's current state.
    pub(crate) incarnation: Incarnation,
    /// The checkpoint that would be restored after a failure, as far as this process knows.
    pub(crate) kept: Option<Checkpoint>,
    pub(crate) store: Store<P>,
    pub(super) placement: Placement,
    pub(super) rules: Rules,
    /// The member's side of a recovery; `None` while the group runs.
    pub(super) attempt: Option<MemberAttempt<P>>,
    /// The coordinator's side of a recovery.
    pub(super) round: Option<Round>,
    pub(super) resumed: Option<Resumed<P>>,
}

/// Parameters of a new [`Group`]: the process, its membership, and the placement of replicas.
pub(crate) struct GroupParameters {
    pub(crate) me: ProcessId,
    pub(crate) boot: Boot,
    pub(crate) view: View,
    pub(crate) placement: Placement,
    pub(crate) rules: Rules,
}

impl<P: Grouped> Group<P> {
    /// Begins a life of a member.
    pub(crate) fn new(membership: GroupParameters, host: &mut dyn Machine<P>) -> Group<P> {
        let GroupParameters { me, boot, view, placement, rules } = membership;
        let number = view.group_of(me);
        Group {
            me,
            number,
            members: view.members_of(number),
            holders: placement.holders(&view.membership, me),
            incarnation: Incarnation(0),
            kept: None,
            store: Store::new(placement, rules, &view, me, boot, host),
            view,
            placement,
            rules,
            attempt: None,
            round: None,
            resumed: None,
        }
    }

    /// Returns the process that coordinates the group: its lowest-numbered one.
    pub(crate) fn coordinator(&self) -> ProcessId {
        self.members[0]
    }

    pub(crate) fn coordinates(&self) -> bool {
        self.coordinator() == self.me
    }

    pub(crate) fn all_members_up(&self) -> bool {
        self.members.iter().all(|&member| self.view.is_up(member))
    }

    /// Returns whether the supervisor knows that this group may have acted.
    pub(crate) fn has_started(&self) -> bool {
        self.view.membership.member(self.coordinator()).started
    }

    pub(crate) fn is_recovering(&self) -> bool {
        self.attempt.is_some()
    }

    /// Sends a message to all other members.
    pub(crate) fn broadcast(&self, message: P::Control, host: &mut dyn Machine<P>) {
        match self.view.scope() {
            Scope::Process => {}
            Scope::Cluster => host.control(To::Cluster(ClusterId(self.number.0)), message),
            Scope::Federation => {
                for cluster in (0..self.view.membership.clusters.len()).map(|it| ClusterId(it as u16)) {
                    host.control(To::Cluster(cluster), message.clone());
                }
            }
        }
    }

    /// Sends a message of this sub-machine to any process, which may be this one.
    pub(super) fn send_to(&mut self, receiver: ProcessId, message: GroupMessage, host: &mut dyn Machine<P>) {
        if receiver == self.me {
            self.handle(receiver, message, host);
        } else {
            host.control(To::One(receiver), message.into());
        }
    }

    pub(super) fn send_answers(&mut self, answers: Answers, host: &mut dyn Machine<P>) {
        for (receiver, message) in answers {
            self.send_to(receiver, message, host);
        }
    }

    /// Handles an input that concerns the storage, for a protocol whose parts have no companions. Ignores other
    /// inputs. `retry_every` is the delay before a refused write is repeated.
    pub(crate) fn storage(&mut self, input: Input<P>, now: Time, retry_every: Span, host: &mut dyn Machine<P>)
    where
        P: Protocol,
    {
        match input {
            Input::Image { from, image } => self.image_arrived(from, image, host),
            Input::Persisted(name) => {
                self.persisted(name, host);
                self.own_part_durable(name, host);
            }
            Input::PersistFailed(name) => self.write_failed(name, now + retry_every, host),
            Input::Read { name, image } => {
                // A part that turns out to be lost while it is read for a holder may also be the one to restore.
                let is_own = self.read(name, image.as_ref(), host);
                if is_own || image.is_none() {
                    self.own_part_read(name, image, host);
                }
            }
            Input::Listed(images) => self.listed(images, host),
            Input::Timeout => self.store.writes.retry(now, host),
            _ => {}
        }
    }

    /// Returns the holders that keep this process's parts and have begun a new life since `old`: their
    /// storage, and messages in transit to them, may be lost. Returns no holders while the group recovers,
    /// since all holders are informed when the group resumes.
    pub(crate) fn restarted_holders(&self, old: &View) -> Vec<ProcessId> {
        let is_reborn = |holder: &ProcessId| self.view.began_new_life(*holder, old);
        let holders = self.holders.iter().copied().filter(|_| !self.is_recovering());
        holders.filter(is_reborn).collect()
    }

    /// Handles an image that is now durable here.
    pub(crate) fn persisted(&mut self, name: ImageName, host: &mut dyn Machine<P>) {
        let answers = self.store.persisted(name, &self.view, host);
        self.send_answers(answers, host);
    }

    /// Handles a write that the storage refused. The write is repeated at `retry_at`.
    pub(crate) fn write_failed(&mut self, name: ImageName, retry_at: Time, host: &mut dyn Machine<P>) {
        let answers = self.store.write_failed(name, retry_at, &self.view);
        self.send_answers(answers, host);
    }

    /// Handles the listing of the storage.
    pub(crate) fn listed(&mut self, images: Vec<(ImageName, Arc<P::Head>)>, host: &mut dyn Machine<P>) {
        let answers = self.store.listed(images, &self.view, host);
        self.send_answers(answers, host);
    }

    /// Handles a completed read. Returns whether this process itself requested the image.
    pub(crate) fn read(
        &mut self,
        name: ImageName,
        image: Option<&Arc<ImageOf<P>>>,
        host: &mut dyn Machine<P>,
    ) -> bool {
        let (own, answers) = self.store.read(name, image, host);
        self.send_answers(answers, host);
        own
    }

    /// Removes, here and at the holders, all checkpoints older than `checkpoint`, which was just committed or restored.
    /// `log` is the number of logged messages that were removed since the last collection.
    pub(crate) fn collect(&mut self, checkpoint: Option<Checkpoint>, log: u32, host: &mut dyn Machine<P>) {
        if let Some(Checkpoint { position: Position { sn, .. }, .. }) = checkpoint {
            host.claim(Claim::Collected { round: sn.0, below: sn, kept: 1, log });
        }
        self.keep(checkpoint, host);
        self.update_holders(host);
    }

    /// Keeps this checkpoint, which was just committed or restored, and removes older ones from this process's storage.
    fn keep(&mut self, checkpoint: Option<Checkpoint>, host: &mut dyn Machine<P>) {
        self.kept = checkpoint;
        let own = checkpoint.map(|it| it.part(self.me));
        self.store.remove_older(self.me, self.incarnation, own, host);
    }

    /// Tells every holder which part it should hold.
    pub(crate) fn update_holders(&self, host: &mut dyn Machine<P>) {
        for &holder in &self.holders {
            self.update_holder(holder, host);
        }
    }

    /// Tells a holder which part it should hold. If the holder has begun a new life, this process first sends it the
    /// part of the checkpoint in progress, which the coordinator may already have committed: once the holder has the
    /// announced part and all parts that arrived before, it reports a storage that it had lost as complete.
    pub(crate) fn update_holder(&self, holder: ProcessId, host: &mut dyn Machine<P>) {
        let name = self.kept.map(|it| it.part(self.me));
        let incarnation = self.incarnation;
        host.control(To::One(holder), GroupMessage::Hold { incarnation, name }.into());
    }

    /// Reports that parts are lost and that none of the processes asked can supply them.
    pub(crate) fn unrecoverable(&self, missing: &[(ImageName, Vec<ProcessId>)], host: &mut dyn Machine<P>) {
        host.claim(Claim::Unrecoverable { group: self.number, missing: missing.into() });
    }
}
