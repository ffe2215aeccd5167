//! CCK: checkpoints of partitioned programs that ask neighbours only, and recoveries that execute again only what is strictly
//! required.
//!
//! A checkpoint drains the channels of each partition by a question to those that ever send to it, so that it takes
//! 2N + 3E messages with N partitions and E channels. After a failure only the failed partitions restore the last valid
//! checkpoint. The others continue. Beside that, they re-execute the tasks whose values were lost with a failed process, back
//! to what the checkpoint contains.
//!
//! | module | holds |
//! | --- | --- |
//! | `config` | parameters, known defects |
//! | `coordinator` | begins checkpoints and recoveries |
//! | `session` | a checkpoint, as a partition takes part in it |
//! | `recovery` | a recovery, as a partition takes part in it |
//! | `copies` | images in the storage of a process |
//! | `holders` | who holds whose copies |
//! | `message` | what processes say to each other |

mod config;
mod coordinator;
mod copies;
mod holders;
mod message;
mod recovery;
mod session;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::process::Gauges;
use faultline_core::{
    Birth, Boot, Incarnation, Membership, Position, ProcessId, Promise, Promises, Role, Scope, Span, Speaks,
    Time,
};
use faultline_dataflow::partition::{Delivery, Executed, PartitionHost, PartitionInput, PartitionProtocol};
use faultline_dataflow::plan::Value;

pub use config::{Config, Coordination, Defect, Defects};
use coordinator::Coordinator;
use copies::Copies;
use message::{Head, ImageOf, Message};
use recovery::Loading;
use session::Session;

use crate::placement::ReplicateTo;

/// CCK, one process.
#[derive(Clone, Debug)]
pub struct Cck {
    me: ProcessId,
    boot: Boot,
    config: Arc<Config>,
    membership: Arc<Membership>,
    /// The process that coordinates.
    director: ProcessId,
    /// If it is this one.
    coordinator: Option<Coordinator>,
    copies: Copies,
    /// A question that waits for the listing of the storage.
    surveyed: Option<(ProcessId, Incarnation)>,
    /// Recoveries that wait until this process knows who lives.
    announced: Vec<(ProcessId, Incarnation, Position)>,
    /// The partitions that run here, or will.
    locals: BTreeMap<ProcessId, Local>,
}

/// A partition that runs here, or will.
#[derive(Clone, Debug, Default)]
struct Local {
    /// Of the last recovery.
    epoch: Incarnation,
    /// Checkpoints that it has taken or restored: the valid one, and the one that is to be. The beginning is not among them.
    slots: BTreeMap<Position, Arc<ImageOf>>,
    session: Option<Session>,
    /// The newest checkpoint that it knew to be valid, and stated; for how long it was held for the one after.
    committed: Position,
    frozen: Span,
    /// Questions, or messages of global coordination, of sessions that have not begun here.
    early: BTreeSet<(Position, ProcessId)>,
    /// What it restores.
    loading: Option<Loading>,
    /// It was restored in the last recovery.
    is_restored: bool,
    /// What senders have executed, as of the newest recovery that they know of.
    flushed: BTreeMap<ProcessId, (Incarnation, Executed)>,
    /// Values that wait: for its state, or until it knows of its sender's recovery.
    arrived: Vec<Delivery>,
    /// Senders that have not said what they executed.
    silent: BTreeSet<ProcessId>,
    /// Values that it has demanded in this recovery, and those of them that are missing.
    demanded: BTreeSet<Value>,
    lost: BTreeSet<Value>,
    /// Values that what it executes again needs, of senders that have not said what they executed.
    wanted: BTreeSet<Value>,
    is_done: bool,
}

impl Speaks for Cck {
    type Control = Message;
    type Head = Head;
    type Saved = ();
}

impl PartitionProtocol for Cck {
    type Config = Config;
    const FIFO: bool = true;

    fn promises(config: &Config) -> Promises {
        let promises = Promises::of_scope(Scope::Process).with(&[
            Promise::Checkpoints,
            Promise::Containment,
            Promise::Repetition,
        ]);
        // What is in memory is not executed again, and no fact says what is.
        let promises = match config.rerun.from_memory {
            true => promises,
            false => promises.with(&[Promise::StrictlyRequired]),
        };
        match config.coordination {
            Coordination::Neighbours => promises.with(&[Promise::NeighboursOnly]),
            Coordination::Global => promises,
        }
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        let servers = match config.replicate_to {
            ReplicateTo::SharedStorage => usize::from(config.servers.max(config.replicas)),
            ReplicateTo::SameCluster | ReplicateTo::OtherCluster => 0,
        };
        core::iter::once(Role::RECOVERY_PROCESS).chain((0..servers).map(|_| Role::STORAGE_SERVER)).collect()
    }

    fn start(birth: Birth<Config>, now: Time, host: &mut dyn PartitionHost<Self>) -> Self {
        let Birth { me, boot, .. } = birth;
        let (config, membership) = (birth.config.clone(), birth.membership.clone());
        let role = membership.member(me).role;
        let director =
            membership.with_role(Role::RECOVERY_PROCESS).next().expect("it is among the extra processes");
        let mut this = Cck {
            me,
            boot,
            director,
            coordinator: None,
            copies: Copies::default(),
            surveyed: None,
            announced: Vec::new(),
            locals: BTreeMap::new(),
            config,
            membership: membership.clone(),
        };
        if role == Role::RECOVERY_PROCESS {
            let mut coordinator = Coordinator::start(birth, now);
            coordinator.meet(membership, now, host);
            this.coordinator = Some(coordinator);
        } else if boot != Boot::Fresh {
            host.list();
        } else {
            this.copies.is_listed = true;
            if role == Role::RANK {
                this.locals.insert(me, Local::default());
                host.release(me);
            }
        }
        this
    }

    fn handle(&mut self, input: PartitionInput<Self>, now: Time, host: &mut dyn PartitionHost<Self>) {
        match input {
            PartitionInput::Arrived(delivery) => self.arrived(delivery, host),
            PartitionInput::Control { from, to, message } => self.told(from, to, message, now, host),
            PartitionInput::Image { from, image } => {
                // One that was searched for may come from several processes.
                if !self.found(&image, host) && !host.runs(image.name.owner) {
                    self.copies.write(image, from, host);
                }
            }
            PartitionInput::Persisted(name) => {
                let is_one_slot = self.config.defects.has(Defect::OneSlot);
                match self.copies.written(name, is_one_slot, host) {
                    Some(by) if by == self.me => self.stored(name, self.me, now, host),
                    Some(by) => host.tell(self.me, by, Message::Durable(name)),
                    None => {}
                }
            }
            PartitionInput::PersistFailed(name) => self.copies.refused(name, now),
            PartitionInput::Read { name, image } => {
                self.copies.read(self.me, name, image.as_ref(), host);
                self.read(name, image.as_ref(), host);
            }
            PartitionInput::Listed(images) => {
                self.copies.listed(images);
                if let Some((by, epoch)) = self.surveyed.take() {
                    host.tell(self.me, by, Message::Known(epoch, self.copies.valid));
                }
            }
            PartitionInput::Membership(membership) => {
                self.membership = membership.clone();
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.meet(membership, now, host);
                }
                self.begin_announced(host);
            }
            PartitionInput::Timeout => {
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.advance(now, host);
                }
                self.copies.write_again(now, host);
            }
            PartitionInput::Recorded { .. } => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let begins = self.coordinator.as_ref().and_then(Coordinator::next_deadline);
        self.copies.next_deadline().into_iter().chain(begins).min()
    }

    fn gauges(&self) -> Gauges {
        let slots = self.locals.values().map(|it| it.slots.len() as u32).sum();
        Gauges { checkpoints: slots, ..Gauges::default() }
    }

    fn checkpoint_of(message: &Message) -> Option<Position> {
        match message {
            Message::Init(position, _)
            | Message::Ping(position)
            | Message::Pong(position)
            | Message::Continue(position)
            | Message::Ack(position)
            | Message::Stopped(position)
            | Message::Resume(position) => Some(*position),
            _ => None,
        }
    }

    fn control_kind(message: &Message) -> &'static str {
        match message {
            Message::Init(..) => "init",
            Message::Ping(_) => "ping",
            Message::Pong(_) => "pong",
            Message::Continue(_) => "continue",
            Message::Ack(_) => "ack",
            Message::Stopped(_) => "stopped",
            Message::Resume(_) => "resume",
            Message::Survey(_) | Message::Known(..) => "survey",
            Message::Recover(..) => "recover",
            Message::Flush(..) => "flush",
            Message::Demand(..) => "demand",
            Message::Done(_) => "done",
            Message::Durable(_) => "durable",
            Message::Fetch(_) | Message::Absent(_) => "fetch",
        }
    }
}

impl Cck {
    /// For tests: the last recovery of a partition that runs here, the checkpoint from which it executes again, and the values
    /// that it has demanded.
    pub fn recovery(&self, partition: ProcessId) -> Option<(Incarnation, Position, &BTreeSet<Value>)> {
        let local = self.locals.get(&partition).filter(|it| it.loading.is_none())?;
        let slot = local.slots.last_key_value().map(|(position, _)| *position);
        Some((local.epoch, slot.unwrap_or_default(), &local.demanded))
    }

    fn told(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        message: Message,
        now: Time,
        host: &mut dyn PartitionHost<Self>,
    ) {
        if let Some(coordinator) = &mut self.coordinator {
            return coordinator.told(from, message, now, host);
        }
        match message {
            Message::Survey(epoch) if self.copies.is_listed => {
                host.tell(self.me, from, Message::Known(epoch, self.copies.valid));
            }
            Message::Survey(epoch) => self.surveyed = Some((from, epoch)),
            Message::Recover(epoch, valid) => {
                self.announced.push((to, epoch, valid));
                self.begin_announced(host);
            }
            Message::Durable(name) => self.stored(name, from, now, host),
            Message::Fetch(name) => self.copies.fetch(name, from, host),
            Message::Absent(name) => self.absent(name, from, host),
            Message::Flush(epoch, executed) => self.flushed(from, to, epoch, executed, host),
            Message::Demand(epoch, values) => self.demanded(from, to, epoch, &values, host),
            Message::Init(position, valid) => self.begin_session(to, position, valid, now, host),
            Message::Ping(position) | Message::Stopped(position) => self.pinged(from, to, position, host),
            Message::Pong(position) => self.ponged(from, to, position, host),
            Message::Continue(position) => self.continued(from, to, position, now, host),
            Message::Resume(position) => self.resume(to, position, now, host),
            // Only for the coordinator.
            Message::Ack(_) | Message::Known(..) | Message::Done(_) => {}
        }
    }

    /// A checkpoint is valid: those before it are not needed.
    fn note_valid(&mut self, partition: ProcessId, valid: Position) {
        self.copies.valid = self.copies.valid.max(valid);
        if let Some(local) = self.locals.get_mut(&partition) {
            local.slots.retain(|position, _| *position >= valid);
        }
    }
}
