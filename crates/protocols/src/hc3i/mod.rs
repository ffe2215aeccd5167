//! HC3I: coordinated checkpoints inside a cluster, and communication-induced checkpoints between clusters.
//!
//! Monnet, Morin, Badrinath: *Hybrid Checkpointing for Parallel Applications in Cluster Federations* (2003). The
//! algorithm follows the paper's sections. If a printed rule loses messages, the code contains the corrected rule,
//! and the printed one is a [`Defect`] that tests can enable. `docs/hc3i.md` lists the corrected and the added rules.
//!
//! | file | contents |
//! | --- | --- |
//! | `checkpoint` | taking a checkpoint: request, save, drain, write, commit (3.1) |
//! | `delivery` | sending and receiving, forcing a checkpoint before delivery (3.2, 3.3) |
//! | `alert` | telling other clusters about a rollback, and handling their rollbacks (3.4) |
//! | `round` | agreeing on what to restore: the coordinator's side (3.4) |
//! | `recovery` | restoring it: a member's side (3.4) |
//! | `copies` | replicas of parts at holders, and keeping them complete (3.1) |
//! | `refilling` | when a checkpoint whose replicas were lost counts as complete again (3.1) |
//! | `collection` | removing what no recovery needs (3.5) |
//! | `presence` | clusters that join and leave (7) |
//! | `placement` | which processes hold replicas |
//! | `message` | stamps, protocol messages, and the contents of a part |
//! | `config` | parameters, rules and known defects |
//!
//! The *coordinator* of a cluster is its lowest-numbered process.

mod alert;
mod checkpoint;
mod collection;
mod config;
mod copies;
mod delivery;
mod message;
mod placement;
mod presence;
mod recovery;
mod refilling;
mod round;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{
    Boot, ClusterId, Counters, Footprint, Gauges, GroupId, Host, ImageName, Incarnation, Input, LifeStart,
    Membership, MembershipVersion, MessageId, Payload, Position, ProcessId, Promise, Promises, Protocol,
    ProtocolTypes, Role, Scope, Sn, Time, To, Vectors,
};

pub use crate::machines::{Checkpoint, GroupHistory, History};
use crate::machines::{Received, bytes_of};
pub use crate::placement::ReplicateTo;
pub use config::{CollectBy, Config, Defect, Defects, Forcing, Piggyback, Rule};
pub use message::{Control, Epoch, Saved, Stamp};
pub use placement::holders;

use alert::Alerts;
use checkpoint::{Gathering, Part};
use collection::Collecting;
use copies::Copies;
use delivery::{Arrival, Early};
use message::{Head, Log, RestorableCheckpoint};
use presence::Leaving;
use recovery::Recovery;
use refilling::{Refilling, Unconfirmed};
use round::Round;

/// The host, as this protocol sees it.
type ProtocolHost<'a> = dyn Host<Hc3i> + 'a;
type Image = faultline_core::Image<Head, Saved>;

/// One process under HC3I. Fields are laid out in declaration order: those that every message touches come first and
/// share cache lines.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Hc3i {
    me: ProcessId,
    /// This process's cluster; `OUTSIDE` for a storage server.
    cluster: GroupId,
    /// Whether every other cluster has handled the last rollback of this one. Until then, a message from another
    /// cluster may have been sent from a state that is about to be undone because of the rollback. Delivering it could
    /// make the rollbacks trigger each other endlessly.
    settled: bool,
    /// Position of the cluster, as this process knows it.
    position: Position,
    phase: Phase,
    config: Arc<Config>,
    membership: Arc<Membership>,
    coordination: Option<Box<Coordination>>,
    /// Number of messages received from this process's cluster since the last rollback.
    received_within: u64,
    /// Number of messages sent within this process's cluster since the last rollback, by receiver.
    sent_within: Counters,
    alerts: Alerts,
    copies: Copies,

    members: Arc<[ProcessId]>,
    /// Number of clusters in the federation.
    clusters: u16,
    /// Direct dependencies vector (DDV) of the last checkpoint (section 3.2). Missing entries are zero: before the
    /// first checkpoint, all processes share the empty vector.
    ddv: Arc<[Position]>,
    /// Delivered vector: for each cluster and incarnation, the greatest position of any message delivered here. Sorted
    /// by cluster and incarnation.
    delivered: Arc<[(GroupId, Position)]>,
    history: History,
    log: Arc<Log>,
    received: Arc<Received>,
    /// Checkpoints that can be restored, ascending.
    kept: Vec<RestorableCheckpoint>,
    /// This process's parts of checkpoints that cannot be restored, because other parts are lost.
    incomplete: Vec<ImageName>,
    unconfirmed: Unconfirmed,

    /// Messages from other clusters that cannot be delivered yet.
    waiting: VecDeque<Arrival>,
    /// Input from inside the cluster that arrived before this process reached the sender's position.
    early: Vec<Early>,
    /// Messages that the application sent after its state was saved and before the commit.
    unsent: Vec<(MessageId, Payload)>,
    /// Position of this process when it last requested a forced checkpoint.
    asked_at: Option<Position>,

    epoch: Epoch,
    /// A round that this process will enter once it knows this membership.
    prepares: Option<(Epoch, MembershipVersion)>,
    record: Records,
    /// Whether the application has left the program.
    left: bool,
    /// SN of the first checkpoint of this incarnation in which the application has left the program.
    left_at: Option<Sn>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The application runs, unless the first checkpoint is still missing.
    Running,
    /// A checkpoint is being taken.
    Checkpointing(Box<Part>),
    /// The cluster is agreeing on what to restore.
    Recovering(Box<Recovery>),
    /// This process only keeps replicas for others.
    Serving,
}

/// State that only the coordinator of a cluster has.
#[derive(Clone, Debug, Default)]
struct Coordination {
    /// Number of attempts at a checkpoint in this incarnation.
    attempts: u32,
    gathering: Option<Gathering>,
    checkpoint_at: Option<Time>,
    round: Option<Round>,
    refilling: Refilling,
    /// Checkpoints of which a part was found lost since the last round.
    vanished: BTreeSet<Checkpoint>,
    collecting: Collecting,
    collect_at: Option<Time>,
    leaving: Leaving,
}

/// The small durable record of this process, and the actions that wait until it is durable.
#[derive(Clone, Debug, Default)]
struct Records {
    version: u64,
    waiters: Vec<(u64, Waiter)>,
}

#[derive(Clone, Copy, Debug)]
enum Waiter {
    /// The target of this round.
    Target(Epoch),
    /// A note kept for another cluster, whose coordinator is waiting for the confirmation.
    Note(Epoch, ProcessId),
    /// The history of an owner's cluster.
    Offer(ProcessId),
    /// Tables from an alert. The member that spreads the alert is waiting for the answer.
    Learnt(ProcessId, (ProcessId, Incarnation)),
}

impl ProtocolTypes for Hc3i {
    type Control = Control;
    type Head = Head;
    type Saved = Saved;

    fn add_to(head: &Head, saved: &Saved, footprint: &mut Footprint) {
        footprint.add_arc(&head.vectors.ddv);
        footprint.add_arc(&head.vectors.delivered);
        footprint.add_arc(&head.past);
        if footprint.add_arc(&saved.log) {
            saved.log.add_to(footprint);
        }
        if footprint.add_arc(&saved.received) {
            saved.received.add_to(footprint);
        }
        footprint.add_vec(&saved.late);
    }

    fn saved_len(saved: &Saved) -> u64 {
        saved.log.bytes() + bytes_of(&saved.late)
    }
}

impl Protocol for Hc3i {
    type Config = Config;
    type Stamp = Stamp;
    const FIFO: bool = false;

    fn promises(config: &Config) -> Promises {
        let promises = Promises::of_scope(Scope::Cluster).with(&[
            Promise::Checkpoints,
            Promise::DenseNumbering,
            Promise::MaximalLine,
            Promise::DurableRestore,
            Promise::Refill,
            Promise::ForcedBeforeDelivery,
            Promise::Progress,
        ]);
        match config.forcing {
            Forcing::EveryMessage => promises,
            Forcing::News => promises.with(&[Promise::ForcedByNews]),
        }
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        match config.replicate_to {
            ReplicateTo::SharedStorage if config.replicas > 0 => vec![Role::STORAGE_SERVER],
            _ => Vec::new(),
        }
    }

    fn start(start: LifeStart<Config>, now: Time, host: &mut ProtocolHost) -> Self {
        let LifeStart { me, boot, membership, config, record, .. } = start;
        let is_rank = membership.member(me).role == Role::RANK;
        let cluster = Scope::Cluster.group_of(&membership, me);
        let members = if is_rank { Scope::Cluster.members(&membership, cluster) } else { Arc::from([]) };
        let clusters = Scope::Cluster.groups(&membership);
        let first_life = boot == Boot::Fresh;
        let coordinates = members.first() == Some(&me);
        let mut this = Hc3i {
            me,
            phase: match (is_rank, first_life) {
                (false, _) => Phase::Serving,
                (true, true) => Phase::Running,
                (true, false) => Phase::Recovering(Box::default()),
            },
            position: Position::default(),
            clusters: clusters as u16,
            ddv: Arc::default(),
            delivered: Arc::default(),
            history: History::default(),
            log: Arc::default(),
            received: Arc::default(),
            kept: Vec::new(),
            incomplete: Vec::new(),
            unconfirmed: Unconfirmed::default(),
            sent_within: Counters::default(),
            received_within: 0,
            waiting: VecDeque::new(),
            early: Vec::new(),
            unsent: Vec::new(),
            settled: true,
            asked_at: None,
            // A greater sum of lives means a failure from which the process must recover.
            epoch: Epoch { lives: members.len() as u64, round: 0 },
            prepares: None,
            record: Records::default(),
            left: false,
            left_at: None,
            alerts: Alerts::default(),
            copies: Copies::new(&config, &membership, me, boot),
            coordination: coordinates.then(Box::default),
            config,
            membership,
            cluster,
            members,
        };
        if this.config.defects.obeys(Rule::TablesDurable) {
            this.read_record(record.as_deref());
        }
        let initiates = this.config.collect_by == CollectBy::EveryCluster || this.is_initiator();
        if let Some(coordination) = this.coordination.as_mut().filter(|_| initiates) {
            coordination.collect_at = this.config.collect_every.map(|every| now + every);
        }
        if boot == Boot::Replaced {
            this.copies.report_if_complete(host);
        }
        this.purge_left(host);
        this.watch_members(now, host);
        this.offer_to_new_lives(host);
        this
    }

    #[inline(always)]
    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut ProtocolHost) {
        match input {
            Input::Sent { id, payload } => self.sent(id, payload, host),
            Input::Consumed(_) | Input::Rested => {}
            Input::Received { id, stamp, payload } => self.arrived(id, stamp, payload, now, host),
            Input::Control { from, message } => self.handle_message(from, message, now, host),
            Input::Image { from, image } => self.image_arrived(from, image, host),
            Input::Left => self.application_left(now, host),
            Input::Snapshot(snapshot) => self.snapshot_taken(snapshot, now, host),
            Input::Persisted(name) => self.persisted(name, now, host),
            Input::PersistFailed(name) => self.copies.writes.refused(name, now + self.config.retry_every),
            Input::Read { name, image } => self.image_read(name, image, now, host),
            Input::Listed(images) => self.listed(images, now, host),
            Input::Recorded { version } => self.recorded(version, now, host),
            Input::Membership(membership) => self.membership_changed(membership, now, host),
            Input::Timeout => self.time_passed(now, host),
        }
    }

    #[inline]
    fn next_deadline(&self) -> Option<Time> {
        // Called after every event. A process that is not a coordinator skips the rest.
        let others = earlier(self.alerts.next_deadline(), self.copies.writes.next_deadline());
        let Some(coordination) = self.coordination.as_deref() else {
            return others;
        };
        let checkpoint = coordination.checkpoint_at.filter(|_| matches!(self.phase, Phase::Running));
        earlier(others, earlier(checkpoint, coordination.collect_at))
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            log_messages: self.log.len(),
            log_bytes: self.log.bytes(),
            checkpoints: self.kept.len() as u32,
            ..Gauges::default()
        }
    }

    fn control_kind(message: &Control) -> &'static str {
        message.kind()
    }
}

impl Hc3i {
    /// Returns the position of the cluster, as this process knows it.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Iterates over the SNs of the checkpoints that this process could restore, in ascending order.
    pub fn kept(&self) -> impl Iterator<Item = Sn> + '_ {
        self.kept.iter().map(|kept| kept.position.sn)
    }

    #[inline]
    fn obeys(&self, rule: Rule) -> bool {
        self.config.defects.obeys(rule)
    }

    /// Returns whether the protocol obeys all rules, and therefore keeps its invariants.
    #[inline]
    fn is_sound(&self) -> bool {
        self.config.defects.is_empty()
    }

    #[inline(never)]
    fn handle_message(&mut self, from: ProcessId, message: Control, now: Time, host: &mut ProtocolHost) {
        match message {
            Control::Request { position, attempt, forced } => {
                self.checkpoint_requested(from, position, attempt, forced, now, host);
            }
            Control::Saved { position, attempt, sent } => {
                self.saved(from, position, attempt, &sent, now, host);
            }
            Control::Drain { position, attempt, expected } => {
                self.drain(position, attempt, &expected, now, host);
            }
            Control::Drained { position, attempt, head } => {
                self.drained(from, position, attempt, &head.vectors, now, host);
            }
            Control::Commit { position, attempt, vectors } => {
                self.commit(position, attempt, vectors, now, host);
            }
            Control::Force { position } => self.checkpoint_forced(from, position, now, host),
            Control::Acknowledge { id, position } => self.acknowledged(id, position),
            Control::Alert { cluster, past } => self.alerted(from, cluster, &past, now, host),
            Control::Settled { incarnation } => self.settle(incarnation, now, host),
            Control::AlertRecorded { cluster, incarnation, history } => {
                self.alert_recorded(cluster, incarnation, &history, now, host);
            }
            Control::Learn { history, asker } => self.learn(from, &history, asker, now, host),
            Control::Learnt { asker, clean } => self.learnt(from, asker, clean, host),
            Control::RollBack { incarnation, from, position } => {
                self.asked_to_roll_back(incarnation, from, position, now, host);
            }
            Control::Prepare { epoch, membership } => self.prepare(epoch, membership, host),
            Control::Inquire { epoch, cluster } => self.copies.list_for_inquiry(from, epoch, cluster, host),
            Control::Reported { epoch, report } => self.reported(from, epoch, report, now, host),
            Control::Restore { epoch, target } => self.restore(epoch, target, now, host),
            Control::Note { epoch, cluster, past } => self.note(from, epoch, cluster, &past, host),
            Control::Ready { epoch } => self.ready(from, epoch, now, host),
            Control::Vanished { epoch, name } => self.vanished(epoch, name, now, host),
            Control::Resume { epoch } => self.resume(epoch, now, host),
            Control::Left { incarnation } => self.member_left(from, incarnation, now, host),
            Control::Unwanted { incarnation } => self.member_unwanted(from, incarnation, host),
            Control::Stored(name) => {
                self.copy_stored(from, name, now, host);
                self.restored_copy_stored(from, name, now, host);
                self.replica_confirmed(from, name, now, host);
            }
            Control::Fetch(name) => self.copies.read_for(from, name, host),
            Control::Refused(name) => self.fetch_refused(name, now, host),
            Control::Offer { past, names, confirm } => self.offered(from, past, names, confirm, host),
            Control::Covered { epoch, name } => self.owner_covered(epoch, name),
            Control::Want { names } => {
                for &name in names.iter() {
                    self.copies.read_for(from, name, host);
                }
            }
            Control::Discard { past, names } => self.discarded(from, &past, &names, host),
            Control::Ask { round } => self.inventory_requested(from, round, host),
            Control::Stock { round, inventory } => self.inventory_received(from, round, inventory, now, host),
            Control::Collect { round, collection } => self.collect(round, &collection, now, host),
        }
    }

    #[inline(never)]
    fn time_passed(&mut self, now: Time, host: &mut ProtocolHost) {
        if matches!(self.phase, Phase::Running)
            && self.coordination.as_ref().is_some_and(|it| it.checkpoint_at.is_some_and(|at| at <= now))
        {
            self.begin_checkpoint(false, now, host);
        }
        self.retry_alerts(now, host);
        self.copies.writes.retry(now, host);
        self.maybe_collect(now, host);
    }

    fn membership_changed(&mut self, membership: Arc<Membership>, now: Time, host: &mut ProtocolHost) {
        let old = core::mem::replace(&mut self.membership, membership);
        self.start_recorded(now, host);
        self.watch_members(now, host);
        if let Some((epoch, membership)) = self.prepares.take() {
            self.prepare(epoch, membership, host);
        }
        self.watch_holders(&old, now, host);
        self.watch_receivers(&old, host);
        self.watch_presence(&old, now, host);
    }

    /// Returns the process that coordinates this cluster: the lowest-numbered one.
    fn coordinator(&self) -> ProcessId {
        self.members[0]
    }

    fn coordinates(&self) -> bool {
        self.coordination.is_some()
    }

    fn coordination(&mut self) -> &mut Coordination {
        self.coordination.as_mut().expect("only the coordinator receives this message")
    }

    /// Sends a message to all other members.
    fn broadcast(&self, message: Control, host: &mut ProtocolHost) {
        host.control(To::Cluster(ClusterId(self.cluster.0)), message);
    }

    /// Sends a message to the coordinator, which may be this process.
    fn send_to_coordinator(&mut self, message: Control, now: Time, host: &mut ProtocolHost) {
        if self.coordinates() {
            self.handle_message(self.me, message, now, host);
        } else {
            host.control(To::One(self.coordinator()), message);
        }
    }

    /// Sends a message to any process, which may be this one.
    fn send_to(&mut self, receiver: ProcessId, message: Control, now: Time, host: &mut ProtocolHost) {
        if receiver == self.me {
            self.handle_message(self.me, message, now, host);
        } else {
            host.control(To::One(receiver), message);
        }
    }

    #[inline]
    fn cluster_of(&self, process: ProcessId) -> GroupId {
        Scope::Cluster.group_of(&self.membership, process)
    }

    fn members_of(&self, cluster: GroupId) -> Arc<[ProcessId]> {
        Scope::Cluster.members(&self.membership, cluster)
    }

    fn clusters(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.clusters).map(GroupId)
    }

    /// Returns the position of another cluster on which this cluster's last checkpoint depends.
    #[inline]
    fn dependency(&self, on: GroupId) -> Position {
        self.ddv.get(on.place()).copied().unwrap_or_default()
    }

    /// Returns a copy of the vector with all entries present.
    fn whole(&self, ddv: &[Position]) -> Vec<Position> {
        let missing = usize::from(self.clusters).saturating_sub(ddv.len());
        ddv.iter().copied().chain(core::iter::repeat_n(Position::default(), missing)).collect()
    }

    fn is_up(&self, process: ProcessId) -> bool {
        self.membership.member(process).up
    }

    fn all_members_up(&self) -> bool {
        self.members.iter().all(|&member| self.is_up(member))
    }

    /// Returns whether a rollback of another cluster undid an event of that cluster at `position`.
    fn is_undone(&self, cluster: GroupId, position: Position) -> bool {
        self.history.undid_after(cluster, position)
    }

    /// Writes the tables, and notifies `waiter` once they are durable.
    fn write_record(&mut self, waiter: Option<Waiter>, host: &mut ProtocolHost) {
        self.record.version += 1;
        self.record.waiters.extend(waiter.map(|waiter| (self.record.version, waiter)));
        let tables = (&self.history, self.copies.notes());
        let bytes = postcard::to_allocvec(&tables).expect("tables of numbers can be encoded");
        host.record(self.record.version, bytes.into());
    }

    fn read_record(&mut self, record: Option<&[u8]>) {
        // A record that cannot be decoded counts as lost: members and holders supply the tables.
        if let Some((history, notes)) = record.and_then(|bytes| postcard::from_bytes(bytes).ok()) {
            self.history = history;
            self.copies.set_notes(notes);
        }
    }

    fn recorded(&mut self, version: u64, now: Time, host: &mut ProtocolHost) {
        let waiters = core::mem::take(&mut self.record.waiters);
        let (due, rest) = waiters.into_iter().partition(|&(wanted, _)| wanted <= version);
        self.record.waiters = rest;
        for (_, waiter) in Vec::from_iter::<Vec<_>>(due) {
            match waiter {
                Waiter::Target(epoch) => self.target_recorded(epoch, now, host),
                Waiter::Note(epoch, coordinator) => {
                    self.send_to(coordinator, Control::Ready { epoch }, now, host);
                }
                Waiter::Offer(owner) => self.copies.offer_handled(owner, host),
                Waiter::Learnt(spreader, asker) => {
                    let clean = self.is_clean();
                    self.send_to(spreader, Control::Learnt { asker, clean }, now, host);
                }
            }
        }
    }
}

/// Returns the earlier of two instants; `None` is later than any instant.
#[inline]
fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, None) => a,
        (None, b) => b,
    }
}

/// Raises `into` to the element-wise maxima of `into` and `other`.
fn merge_vectors(into: &mut Vectors, other: &Vectors) {
    if into.ddv.is_empty() {
        into.ddv = other.ddv.clone();
    } else if !other.ddv.is_empty() && !Arc::ptr_eq(&into.ddv, &other.ddv) && *into.ddv != *other.ddv {
        into.ddv = into.ddv.iter().zip(other.ddv.iter()).map(|(&a, &b)| a.max(b)).collect();
    }
    if into.delivered.is_empty() {
        into.delivered = other.delivered.clone();
    } else if !other.delivered.is_empty() {
        let mut greatest: BTreeMap<(GroupId, Incarnation), Position> = BTreeMap::new();
        for &(cluster, position) in into.delivered.iter().chain(other.delivered.iter()) {
            let entry = greatest.entry((cluster, position.incarnation)).or_insert(position);
            *entry = position.max(*entry);
        }
        into.delivered = greatest.into_iter().map(|((cluster, _), position)| (cluster, position)).collect();
    }
}
