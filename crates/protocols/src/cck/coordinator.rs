//! The coordinator: begins checkpoints and recoveries. It stands outside the clusters, keeps nothing in storage, and may fail.
//!
//! An epoch is the version of a membership: durable, and the same for all, without a word of the coordinator's. Which checkpoint
//! is valid, a coordinator that was started again asks all processes: what none of them knows to be valid none of them has
//! deleted anything for.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Attempt, Birth, Boot, Claim, Incarnation, Membership, Position, ProcessId, Role, Time};
use faultline_dataflow::partition::PartitionHost;

use super::Cck;
use super::config::{Config, Coordination, Defect};
use super::message::Message;

/// The coordinator.
#[derive(Clone, Debug)]
pub(super) struct Coordinator {
    me: ProcessId,
    config: Arc<Config>,
    membership: Arc<Membership>,
    epoch: Incarnation,
    /// The newest valid checkpoint; not known to a coordinator that was started again.
    valid: Option<Position>,
    /// How many lives have begun, and ended for good, as of the last recovery.
    lives: u64,
    state: State,
    /// The application has begun. Before, not every partition can be reached.
    has_begun: bool,
    /// When the next checkpoint begins.
    due: Time,
}

#[derive(Clone, Debug)]
enum State {
    /// Nothing is going on.
    Idle,
    /// A process failed, and not all are up again.
    Waiting,
    /// Some have not said which checkpoint is valid; the newest so far.
    Surveying(BTreeSet<ProcessId>, Position),
    /// Some partitions lack what was lost.
    Recovering(BTreeSet<ProcessId>),
    /// Some partitions have not saved their state.
    Taking(Position, BTreeSet<ProcessId>),
}

impl Coordinator {
    pub(super) fn start(birth: Birth<Config>, now: Time) -> Coordinator {
        let Birth { me, boot, membership, config, .. } = birth;
        let is_first = boot == Boot::Fresh;
        Coordinator {
            me,
            epoch: Incarnation(0),
            valid: is_first.then(Position::default),
            lives: if is_first { membership.members.len() as u64 } else { 0 },
            state: State::Idle,
            has_begun: !is_first,
            due: now + config.interval,
            config,
            membership,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        (self.has_begun && matches!(self.state, State::Idle)).then_some(self.due)
    }

    fn partitions(&self) -> BTreeSet<ProcessId> {
        self.membership.with_role(Role::RANK).collect()
    }

    fn tell_all(&self, message: &Message, host: &mut dyn PartitionHost<Cck>) {
        for it in self.partitions() {
            host.tell(self.me, it, message.clone());
        }
    }

    pub(super) fn meet(&mut self, membership: Arc<Membership>, now: Time, host: &mut dyn PartitionHost<Cck>) {
        self.membership = membership;
        let others = || (0..).map(ProcessId).zip(self.membership.members.iter()).filter(|it| it.0 != self.me);
        let lives = others().map(|(_, it)| u64::from(it.life.0.max(1)) + u64::from(it.gone)).sum::<u64>() + 1;
        if lives != self.lives {
            self.lives = lives;
            self.state = State::Waiting;
        }
        let are_up = others().all(|(_, it)| it.up || it.gone);
        if are_up && !self.has_begun {
            (self.has_begun, self.due) = (true, now + self.config.interval);
        }
        if !matches!(self.state, State::Waiting) || !are_up {
            return;
        }
        self.epoch = Incarnation(u32::try_from(self.membership.version.0).expect("versions are few"));
        if self.valid.is_some() {
            return self.recover(now, host);
        }
        let asked: Vec<ProcessId> = others().filter(|(_, it)| !it.gone).map(|(it, _)| it).collect();
        for it in &asked {
            host.tell(self.me, *it, Message::Survey(self.epoch));
        }
        self.state = State::Surveying(asked.into_iter().collect(), Position::default());
    }

    fn recover(&mut self, now: Time, host: &mut dyn PartitionHost<Cck>) {
        let valid = self.valid.unwrap_or_default();
        self.tell_all(&Message::Recover(self.epoch, valid), host);
        self.state = State::Recovering(self.partitions());
        if self.config.defects.has(Defect::CheckpointDuringRerun) {
            (self.state, self.due) = (State::Idle, now);
        }
    }

    /// Begins a checkpoint, if it is time.
    pub(super) fn advance(&mut self, now: Time, host: &mut dyn PartitionHost<Cck>) {
        let (State::Idle, Some(valid)) = (&self.state, self.valid) else { return };
        if now < self.due || !self.has_begun {
            return;
        }
        self.due = now + self.config.interval;
        let position = Position { incarnation: self.epoch, sn: valid.sn.next() };
        host.claim(Claim::CheckpointRequested { position, attempt: Attempt(1), forced: false });
        self.tell_all(&Message::Init(position, valid), host);
        self.state = State::Taking(position, self.partitions());
    }

    pub(super) fn told(
        &mut self,
        from: ProcessId,
        message: Message,
        now: Time,
        host: &mut dyn PartitionHost<Cck>,
    ) {
        let any_epoch = self.config.defects.has(Defect::NoRecoveryEpoch);
        match (message, &mut self.state) {
            (Message::Known(epoch, known), State::Surveying(missing, newest)) if epoch == self.epoch => {
                *newest = (*newest).max(known);
                missing.remove(&from);
                if missing.is_empty() {
                    self.valid = Some(*newest);
                    self.recover(now, host);
                }
            }
            (Message::Done(epoch), State::Recovering(missing)) if epoch == self.epoch || any_epoch => {
                missing.remove(&from);
                if missing.is_empty() {
                    // What was lost with a storage has copies again as soon as possible.
                    (self.state, self.due) = (State::Idle, now);
                }
            }
            (Message::Ack(acked), State::Taking(position, missing)) if acked == *position => {
                missing.remove(&from);
                if missing.is_empty() {
                    self.valid = Some(acked);
                    self.state = State::Idle;
                    if self.config.coordination == Coordination::Global {
                        self.tell_all(&Message::Resume(acked), host);
                    }
                }
            }
            _ => {}
        }
        self.advance(now, host);
    }
}
