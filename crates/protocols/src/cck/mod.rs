//! CCK: checkpoints of partitioned programs, coordinated only between neighbours, and recoveries that re-execute only
//! the strictly required tasks.
//!
//! To take a checkpoint, each partition drains its channels: it asks the partitions that send to it to stop. This takes
//! 2N + 3E messages with N partitions and E channels. After a failure, only the failed partitions restore the last
//! valid checkpoint. The others continue, and re-execute the tasks whose values were lost with a failed process,
//! starting from the checkpoint.
//!
//! | module | contents |
//! | --- | --- |
//! | `config` | parameters, rules, known defects |
//! | `coordinator` | begins checkpoints and recoveries |
//! | `checkpoint` | a partition's side of a checkpoint |
//! | `recovery` | a partition's side of a recovery |
//! | `stored` | images in the storage of a process |
//! | `holders` | the choice of holders |
//! | `message` | messages and images |

mod checkpoint;
mod config;
mod coordinator;
mod holders;
mod message;
mod recovery;
mod stored;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::process::Gauges;
use faultline_core::{
    Boot, Incarnation, LifeStart, Membership, Position, ProcessId, Promise, Promises, ProtocolTypes, Role,
    Scope, Span, Time, To,
};
use faultline_dataflow::StorageInput;
use faultline_dataflow::partition::{Delivery, Executed, PartitionHost, PartitionInput, PartitionProtocol};
use faultline_dataflow::plan::Value;

use checkpoint::CheckpointRound;
pub use config::{Config, Coordination, Defect, Defects, Rule};
use coordinator::Coordinator;
use message::{EpochMap, Head, ImageOf, Message};
use recovery::ImageSearch;
use stored::StoredImages;

use crate::placement::ReplicateTo;

/// One process under CCK.
#[derive(Clone, Debug)]
pub struct Cck {
    me: ProcessId,
    boot: Boot,
    config: Arc<Config>,
    membership: Arc<Membership>,
    /// The coordinator's process.
    coordinator_id: ProcessId,
    /// The coordinator's state, if this process is the coordinator.
    coordinator: Option<Coordinator>,
    stored: StoredImages,
    /// A survey that cannot be answered before the storage has been listed.
    surveyed: Option<(ProcessId, Incarnation)>,
    /// The epoch of the newest survey. A restarted coordinator relies on the answers, so this process takes part in no
    /// older recovery.
    promised: Incarnation,
    /// Where partitions have run since the last recovery.
    current_map: EpochMap,
    /// Announced recoveries whose membership has not reached this process yet.
    announced: Vec<Announced>,
    /// The partitions that run here, or are about to run here.
    locals: BTreeMap<ProcessId, LocalPartition>,
}

/// A recovery that a partition of this process must join.
#[derive(Clone, Debug)]
struct Announced {
    partition: ProcessId,
    valid: Position,
    current_map: EpochMap,
}

/// A partition that runs here, or is about to run here.
#[derive(Clone, Debug, Default)]
struct LocalPartition {
    /// The epoch of the last recovery.
    epoch: Incarnation,
    /// Checkpoints that the partition has taken or restored: the valid one, and the one that may become valid. Excludes
    /// the initial state.
    slots: BTreeMap<Position, Arc<ImageOf>>,
    /// The checkpoint that the partition is taking.
    round: Option<CheckpointRound>,
    /// The newest checkpoint that the partition has claimed as committed.
    committed: Position,
    /// How long the partition was paused for the checkpoint that it has saved but not yet claimed.
    frozen: Span,
    /// Checkpoint and sender of each `Ping` or `Stopped` that arrived before the checkpoint began here.
    early: BTreeSet<(Position, ProcessId)>,
    /// The search for the image that the partition restores.
    loading: Option<ImageSearch>,
    /// Whether the partition was restored in the last recovery.
    is_restored: bool,
    /// For each sender, the recovery of its newest `Flush`, and the tasks that it had executed when it joined that
    /// recovery.
    flushed: BTreeMap<ProcessId, (Incarnation, Executed)>,
    /// Values that arrived before the partition's state was restored, or before the partition took part in their
    /// sender's recovery.
    arrived: Vec<Delivery>,
    /// Senders whose `Flush` is missing.
    silent: BTreeSet<ProcessId>,
    /// Lost values that the partition has demanded in this recovery.
    demanded: BTreeSet<Value>,
    /// The lost values that have not arrived yet.
    lost: BTreeSet<Value>,
    /// Values that the partition's re-execution needs from senders whose `Flush` is missing.
    wanted: BTreeSet<Value>,
    is_done: bool,
}

impl ProtocolTypes for Cck {
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
            Promise::Progress,
        ]);
        // Values in memory need no re-execution, and no fact states which values these are.
        let promises = match config.rerun.from_memory {
            true => promises,
            false => promises.with(&[Promise::StrictlyRequired]),
        };
        match config.coordination {
            Coordination::Neighbours => promises.with(&[Promise::NeighboursOnly]),
            Coordination::Global => promises,
        }
    }

    fn keeps_recent_values(config: &Config) -> bool {
        config.rerun.from_memory
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        let servers = match config.replicate_to {
            ReplicateTo::SharedStorage => usize::from(config.servers.max(config.replicas)),
            ReplicateTo::SameCluster | ReplicateTo::OtherCluster => 0,
        };
        core::iter::once(Role::RECOVERY_PROCESS).chain((0..servers).map(|_| Role::STORAGE_SERVER)).collect()
    }

    fn start(start: LifeStart<Config>, now: Time, host: &mut dyn PartitionHost<Self>) -> Self {
        let LifeStart { me, boot, .. } = start;
        let (config, membership) = (start.config.clone(), start.membership.clone());
        let role = membership.member(me).role;
        let coordinator_id = membership
            .with_role(Role::RECOVERY_PROCESS)
            .next()
            .expect("the extra processes include the recovery process");
        let mut this = Cck {
            me,
            boot,
            coordinator_id,
            coordinator: None,
            stored: StoredImages::default(),
            surveyed: None,
            promised: Incarnation(0),
            current_map: EpochMap { epoch: Incarnation(0), map: host.initial_map().clone() },
            announced: Vec::new(),
            locals: BTreeMap::new(),
            config,
            membership: membership.clone(),
        };
        if role == Role::RECOVERY_PROCESS {
            let mut coordinator = Coordinator::start(start, now, host);
            coordinator.update_membership(membership, now, host);
            this.coordinator = Some(coordinator);
        } else if boot != Boot::Fresh {
            host.list();
        } else {
            this.stored.is_listed = true;
            if !this.config.obeys(Rule::JoinersWait) && role == Role::RANK && !host.runs(me) {
                host.restore(me, Incarnation(0), None);
            }
            for partition in this.membership.with_role(Role::RANK).filter(|it| host.runs(*it)) {
                this.locals.insert(partition, LocalPartition::default());
            }
            this.locals.keys().for_each(|it| host.release(*it));
        }
        this
    }

    fn handle(&mut self, input: PartitionInput<Self>, now: Time, host: &mut dyn PartitionHost<Self>) {
        match input {
            PartitionInput::Arrived(delivery) => self.arrived(delivery, host),
            PartitionInput::Control { from, to, message } => {
                self.handle_message(from, to, message, now, host)
            }
            PartitionInput::Storage(input) => self.handle_storage(input, now, host),
            PartitionInput::Membership(membership) => {
                self.membership = membership.clone();
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.update_membership(membership, now, host);
                }
                self.begin_announced(host);
                self.forget_departed(host);
            }
            PartitionInput::Timeout => {
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.advance(now, host);
                }
                self.stored.write_again(now, host);
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let begins = self.coordinator.as_ref().and_then(Coordinator::next_deadline);
        self.stored.next_deadline().into_iter().chain(begins).min()
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
            Message::Ceded(_) => "ceded",
            Message::Durable(_) => "durable",
            Message::Fetch(_) | Message::Absent(_) => "fetch",
        }
    }
}

impl Cck {
    /// Handles an image that arrived, or the end of an operation of the storage.
    fn handle_storage(&mut self, input: StorageInput<Self>, now: Time, host: &mut dyn PartitionHost<Self>) {
        match input {
            StorageInput::Image { from, image } => {
                // A fetched image may arrive from several processes. Only other images are replicas to store.
                if !self.found(&image, host) && !host.runs(image.name.owner) {
                    self.stored.write(image, from, host);
                }
            }
            StorageInput::Persisted(name) => {
                let keeps_valid = self.config.obeys(Rule::KeepsValidSlot);
                match self.stored.written(name, keeps_valid, host) {
                    Some(by) if by == self.me => self.stored(name, self.me, now, host),
                    Some(by) => host.control(To::One(by), Message::Durable(name)),
                    None => {}
                }
            }
            StorageInput::PersistFailed(name) => self.stored.refused(name, now),
            StorageInput::Read { name, image } => {
                self.stored.read(name, image.as_ref(), host);
                self.read(name, image.as_ref(), host);
            }
            StorageInput::Listed(images) => {
                self.stored.listed(images);
                if let Some((by, epoch)) = self.surveyed.take() {
                    self.answer_survey(by, epoch, host);
                }
            }
            StorageInput::Recorded { .. } => {}
        }
    }

    /// Returns, for tests, the last recovery of a partition that runs here, the checkpoint from which it re-executes,
    /// and the lost values that it has demanded.
    pub fn recovery(&self, partition: ProcessId) -> Option<(Incarnation, Position, &BTreeSet<Value>)> {
        let local = self.locals.get(&partition)?;
        let slot = local.slots.last_key_value().map(|(position, _)| *position);
        Some((local.epoch, slot.unwrap_or_default(), &local.demanded))
    }

    fn handle_message(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        message: Message,
        now: Time,
        host: &mut dyn PartitionHost<Self>,
    ) {
        if let Some(coordinator) = &mut self.coordinator {
            return coordinator.handle_message(from, message, now, host);
        }
        match message {
            Message::Survey(epoch) if self.stored.is_listed => self.answer_survey(from, epoch, host),
            Message::Survey(epoch) => self.surveyed = Some((from, epoch)),
            Message::Recover(epoch, valid, map) => {
                let current_map = EpochMap { epoch, map };
                self.announced.push(Announced { partition: to, valid, current_map });
                self.begin_announced(host);
            }
            Message::Durable(name) => self.stored(name, from, now, host),
            Message::Fetch(name) => self.stored.fetch(name, from, host),
            Message::Absent(name) => self.absent(name, from, host),
            Message::Flush(epoch, executed) => self.flushed(from, to, epoch, executed, host),
            Message::Demand(epoch, values) => self.demanded(from, to, epoch, &values, host),
            Message::Init(position, valid) => self.begin_checkpoint(to, position, valid, now, host),
            Message::Ping(position) | Message::Stopped(position) => self.pinged(from, to, position, host),
            Message::Pong(position) => self.ponged(from, to, position, host),
            Message::Continue(position) => self.continued(from, to, position, now, host),
            Message::Resume(position) => self.resume(to, position, now, host),
            // Addressed to the coordinator only.
            Message::Ack(_) | Message::Known(..) | Message::Done(_) | Message::Ceded(_) => {}
        }
    }

    fn answer_survey(&mut self, by: ProcessId, epoch: Incarnation, host: &mut dyn PartitionHost<Self>) {
        self.promised = self.promised.max(epoch);
        host.control(To::One(by), Message::Known(epoch, self.stored.valid, self.current_map.clone()));
    }

    /// Records that a checkpoint is valid, which makes older ones unnecessary.
    fn note_valid(&mut self, partition: ProcessId, valid: Position) {
        self.stored.valid = self.stored.valid.max(valid);
        if let Some(local) = self.locals.get_mut(&partition) {
            local.slots.retain(|position, _| *position >= valid);
        }
    }
}
