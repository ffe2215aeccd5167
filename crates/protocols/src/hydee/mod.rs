//! HydEE: coordinated checkpoints inside a cluster, sender-based logging between clusters, no event log.
//!
//! Guermouche, Ropars, Snir, Cappello: *HydEE: Failure Containment without Event Logging for Large Scale
//! Send-Deterministic MPI Applications* (2012). Only a failed cluster rolls back. Since its program is
//! send-deterministic, it re-sends the messages that other clusters have received and whose sends were undone; until
//! then, *phases* hold back whatever depends on them. The rules R1 to R14 that the files cite are those of
//! `docs/hydee.md`: the printed algorithms, completed for asynchronous processes. Each replaced rule is a [`Defect`]
//! that tests can enable.
//!
//! | file | holds |
//! | --- | --- |
//! | `delivery` | sending, receiving, phases (section III-A, Algorithm 1; R3 to R6) |
//! | `checkpoint` | taking a checkpoint of a cluster, and garbage collection after it (R7, R8) |
//! | `restore` | installing what a failed cluster has agreed to restore ([`group`]) |
//! | `recovery` | a rank's side of a recovery round (Algorithms 2 and 3; R9, R10, R13) |
//! | `pairs` | SPBC, instead of `recovery_process` and `recovery`: each pair of processes recovers separately |
//! | `determinants`, `logger` | pessimistic logging, on top of `pairs`: an event logger stores delivery orders |
//! | `recovery_process` | the recovery process (Algorithm 4; R1, R11, R12, R14) |
//! | `spill` | moving the log to stable storage above a limit (section V, future work; R15) |
//! | `channel` | the state of a channel: counts, log, receipts (R2) |

mod channel;
mod checkpoint;
mod config;
mod delivery;
mod determinants;
mod logger;
mod message;
mod pairs;
mod recovery;
mod recovery_process;
mod restore;
mod spill;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Birth, Footprint, Gauges, Host, ImageName, Input, Membership, Position, ProcessId, Promise, Promises,
    Protocol, Role, Speaks, Time, To,
};

pub use crate::machines::Checkpoint;
pub use crate::machines::group::{Message as GroupMessage, RestoreNo};
pub use channel::{Channel, Content, LogSize, Logged};
pub use config::{Config, DEFECTS_OF_DETERMINANTS, DEFECTS_OF_PAIRS, Defect, Defects, Recovery};
pub use message::{
    AppAction, Control, Covered, Determinant, Head, Late, Orphan, Recalled, Saved, SegmentNo, Stamp,
};

use crate::machines::group::{self, Group, Grouped, View};
use crate::placement::{Placement, ReplicateTo};
use checkpoint::{Gathering, Part};
use delivery::{Arrival, Gate, WireState};
use determinants::DeliveryOrder;
use logger::Logger;
use message::Phase;
use recovery::Round;
use recovery_process::RecoveryProcess;
use spill::Spill;

/// The host, as this protocol sees it.
type ProtocolHost<'a> = dyn Host<Hydee> + 'a;
type Image = faultline_core::Image<Head, Saved>;

/// One process under HydEE.
#[derive(Clone, Debug)]
pub struct Hydee(Process);

#[derive(Clone, Debug)]
enum Process {
    Rank(Box<Rank>),
    Recovery(Box<RecoveryProcess>),
    Logger(Box<Logger>),
    Server(Box<group::Server<Hydee>>),
}

/// A process that runs the application.
#[derive(Clone, Debug)]
struct Rank {
    config: Arc<Config>,
    /// The cluster, the checkpoints that it keeps, and its recovery.
    group: Group<Hydee>,
    /// The recovery process; `None` if pairs of processes recover separately.
    recovery_process: Option<ProcessId>,
    /// The event logger; `None` unless the order of deliveries is logged.
    logger: Option<ProcessId>,
    state: RankState,

    /// Position of the cluster.
    position: Position,
    phase: Phase,
    /// Channels by peer.
    channels: BTreeMap<ProcessId, Channel>,
    /// Actions of the application that have not taken effect: the first waits for its phase, or all wait for the end
    /// of a checkpoint.
    app_actions: VecDeque<AppAction>,
    /// Size of the logs of all channels.
    log: LogSize,
    /// The part of the log that is being moved to stable storage or read back.
    spill: Spill,
    /// Number of log entries collected since the last claim.
    collected: u32,

    /// State of each channel to another cluster on the network. Not saved.
    wires: BTreeMap<ProcessId, WireState>,
    gate: Gate,
    round: Round,
    /// The order of deliveries, if it is logged.
    order: DeliveryOrder,
    /// Messages that cannot be received yet.
    waiting: VecDeque<Arrival>,
    /// Messages from processes that know of a failure that this process does not know yet, or that are ahead of it.
    early: Vec<(ProcessId, Control)>,

    /// The part of each channel in the checkpoint that a failure would restore.
    committed: BTreeMap<ProcessId, Covered>,
    lead: Option<Box<Lead>>,
}

#[derive(Clone, Debug)]
enum RankState {
    /// The application runs, unless the first checkpoint is missing or a send waits for its phase.
    Running,
    /// A checkpoint is being taken.
    Checkpointing(Box<Part>),
    /// The cluster has failed, and is agreeing on what to restore.
    Restoring,
}

/// State that only the coordinator of a cluster has, its lowest-numbered process.
#[derive(Clone, Debug, Default)]
struct Lead {
    /// Number of attempts at checkpoints in this incarnation.
    attempts: u32,
    gathering: Option<Gathering>,
    checkpoint_at: Option<Time>,
}

impl Speaks for Hydee {
    type Control = Control;
    type Head = Head;
    type Saved = Saved;

    fn add_to(head: &Head, saved: &Saved, footprint: &mut Footprint) {
        footprint.add_arc(&head.segments);
        footprint.add_map(&saved.channels);
        for channel in saved.channels.values() {
            footprint.add_map(&channel.log);
        }
        footprint.add_vec(&saved.late);
    }
}

impl Protocol for Hydee {
    type Config = Config;
    type Stamp = Stamp;
    const FIFO: bool = true;
    const REPEATS: bool = true;

    fn promises(config: &Config) -> Promises {
        let promises = Promises::of_scope(config.scope).with(&[
            Promise::Checkpoints,
            Promise::DenseNumbering,
            Promise::MaximalLine,
            Promise::Containment,
            Promise::LogKept,
            Promise::DurableRestore,
            Promise::Progress,
        ]);
        promises.with(match config.recovery {
            Recovery::Phases => &[Promise::OrphansFirst, Promise::Phases],
            Recovery::Pairs => &[],
            Recovery::Determinants => &[Promise::RepeatedOrder],
        })
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        let Placement { replicas, to } = config.placement;
        let recovery = match config.recovery {
            Recovery::Phases => Some(Role::RECOVERY_PROCESS),
            Recovery::Pairs => None,
            Recovery::Determinants => Some(Role::EVENT_LOGGER),
        };
        let server = (replicas > 0 && to == ReplicateTo::SharedStorage).then_some(Role::STORAGE_SERVER);
        recovery.into_iter().chain(server).collect()
    }

    fn start(birth: Birth<Config>, now: Time, host: &mut ProtocolHost) -> Self {
        Hydee(match birth.membership.member(birth.me).role {
            Role::RECOVERY_PROCESS => Process::Recovery(Box::new(RecoveryProcess::start(birth, host))),
            Role::EVENT_LOGGER => Process::Logger(Box::new(Logger::start(birth, host))),
            Role::STORAGE_SERVER => {
                let retry_every = birth.config.retry_every;
                let server = group::Server::new(membership(&birth), retry_every, host);
                Process::Server(Box::new(server))
            }
            _ => Process::Rank(Box::new(Rank::start(birth, now, host))),
        })
    }

    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut ProtocolHost) {
        match &mut self.0 {
            Process::Rank(rank) => rank.handle(input, now, host),
            Process::Recovery(recovery_process) => recovery_process.handle(input, now, host),
            Process::Logger(logger) => logger.handle(input, host),
            Process::Server(server) => serve(server, input, now, host),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        match &self.0 {
            Process::Rank(rank) => rank.next_deadline(),
            Process::Recovery(_) | Process::Logger(_) => None,
            Process::Server(server) => server.next_deadline(),
        }
    }

    fn gauges(&self) -> Gauges {
        match &self.0 {
            Process::Rank(rank) => Gauges {
                log_messages: rank.log.messages,
                log_bytes: rank.log.bytes,
                log_bytes_spilled: rank.log.spilled,
                checkpoints: u32::from(rank.group.kept.is_some()),
                ..Gauges::default()
            },
            Process::Recovery(_) | Process::Logger(_) | Process::Server(_) => Gauges::default(),
        }
    }
}

impl Rank {
    fn start(birth: Birth<Config>, now: Time, host: &mut ProtocolHost) -> Rank {
        let group = Group::new(membership(&birth), host);
        let config = birth.config;
        let recovery_process = group.view.membership.with_role(Role::RECOVERY_PROCESS).next();
        let logger = group.view.membership.with_role(Role::EVENT_LOGGER).next();
        let mut this = Rank {
            recovery_process,
            logger,
            state: RankState::Running,
            position: Position::default(),
            phase: 1,
            channels: BTreeMap::new(),
            app_actions: VecDeque::new(),
            log: LogSize::default(),
            spill: Spill::default(),
            collected: 0,
            wires: BTreeMap::new(),
            gate: if group.view.epoch > 0 && recovery_process.is_some() { Gate::Closed } else { Gate::Open },
            round: Round::default(),
            order: DeliveryOrder::default(),
            waiting: VecDeque::new(),
            early: Vec::new(),
            committed: BTreeMap::new(),
            lead: group.coordinates().then(Box::default),
            group,
            config,
        };
        this.watch_members(now, host);
        this.meet_peers(host);
        this.greet_logger(host);
        this
    }

    fn handle(&mut self, input: Input<Hydee>, now: Time, host: &mut ProtocolHost) {
        match input {
            Input::Sent { id, payload } => self.done(AppAction::Sent(id, payload), host),
            Input::Consumed(id) => self.done(AppAction::Consumed(id), host),
            Input::Received { id, stamp, payload } => {
                self.arrived(Arrival { id, stamp, payload }, host);
                self.repeat_waiting(host);
                self.maybe_write(now, host);
            }
            Input::Control { from, message } => self.told(from, message, now, host),
            Input::Image { from, image } => self.image_arrived(from, image, now, host),
            Input::Snapshot(snapshot) => self.snapshot_taken(snapshot, now, host),
            Input::Rested => self.caught_up(now, host),
            Input::Left => {}
            Input::Persisted(name) => {
                self.group.persisted(name, host);
                if name.owner == self.group.me {
                    self.own_part_durable(name, now, host);
                    self.group.own_part_durable(name, host);
                    self.own_segment_durable(name, host);
                }
                self.maybe_resumed(now, host);
            }
            Input::PersistFailed(name) => {
                self.group.write_failed(name, now + self.config.retry_every, host);
                self.maybe_resumed(now, host);
            }
            Input::Read { name, image } => {
                let own = self.group.read(name, image.as_ref(), host);
                // A part that turns out to be lost while it is read for a holder may also be the part to be restored.
                if let Some(segment) = SegmentNo::of(name) {
                    if name.owner == self.group.me && (own || image.is_none()) {
                        self.own_segment_read(segment, image, host);
                    }
                } else if own || image.is_none() {
                    self.group.own_part_read(name, image, host);
                }
                self.maybe_resumed(now, host);
            }
            Input::Listed(images) => {
                self.group.listed(images, host);
                self.maybe_resumed(now, host);
            }
            Input::Recorded { .. } => {}
            Input::Membership(membership) => self.membership_changed(membership, now, host),
            Input::Timeout => {
                if self.lead.as_ref().is_some_and(|it| it.checkpoint_at.is_some_and(|at| at <= now)) {
                    self.begin_checkpoint(now, host);
                }
                self.group.store.writes.retry(now, host);
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let is_running = matches!(self.state, RankState::Running);
        let checkpoint = self.lead.as_ref().and_then(|it| it.checkpoint_at).filter(|_| is_running);
        match (checkpoint, self.group.store.writes.next_deadline()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.config.defects.has(defect)
    }

    fn told(&mut self, from: ProcessId, message: Control, now: Time, host: &mut ProtocolHost) {
        if self.is_early(from, &message) {
            self.early.push((from, message));
            return;
        }
        match message {
            Control::Prepare(checkpoint) => self.prepare(checkpoint, now, host),
            Control::Frozen { checkpoint, sent } => self.frozen(from, checkpoint, &sent, now, host),
            Control::Expect { checkpoint, received } => self.expect(checkpoint, received, now, host),
            Control::Drained(checkpoint) => self.drained(from, checkpoint, now, host),
            Control::Commit(checkpoint) => self.commit(checkpoint, now, host),
            Control::Settled { from: theirs, to, covered } => self.settled(from, theirs, to, covered),
            Control::Group(message) => {
                match message {
                    GroupMessage::Stored(name) => {
                        self.copy_stored(from, name, now, host);
                        self.segment_stored(from, name, host);
                    }
                    GroupMessage::Refused(name) if name.owner == self.group.me => {
                        self.own_segment_refused(from, name, host);
                    }
                    _ => {}
                }
                self.group.handle(from, message, host);
                self.maybe_resumed(now, host);
            }
            Control::Meet { from: theirs, to, present, committed } => {
                self.met(from, theirs, to, (present, committed), host);
            }
            Control::Begin { epoch, failed, .. } => self.round_begins(epoch, failed, host),
            Control::Sync { epoch, present, committed } => {
                self.synchronised(from, epoch, present, committed, host);
            }
            Control::Level { epoch, level } => self.level_told(epoch, level, now, host),
            Control::Logged { upto } => {
                self.logged(upto, host);
                self.maybe_write(now, host);
            }
            Control::Recalled(recalled) => self.recalled(recalled, now, host),
            Control::Report { .. }
            | Control::Replayed { .. }
            | Control::Log { .. }
            | Control::Know { .. }
            | Control::Forget { .. }
            | Control::Recall { .. } => {}
        }
    }

    /// Returns whether the sender knows of a failure that this process does not know yet, or is further along
    /// in its recovery.
    fn is_early(&self, from: ProcessId, message: &Control) -> bool {
        match message {
            // A member that has resumed may send these to one that has not been told to resume yet.
            Control::Prepare(checkpoint)
            | Control::Frozen { checkpoint, .. }
            | Control::Expect { checkpoint, .. }
            | Control::Drained(checkpoint)
            | Control::Commit(checkpoint) => checkpoint.position.incarnation > self.position.incarnation,
            Control::Settled { to, .. } => {
                // A message about the restored state waits until the state is restored (R8).
                *to > self.position.incarnation
            }
            Control::Meet { from: theirs, to, .. } => {
                *theirs > self.group.view.incarnation(self.group.view.group_of(from))
                    || *to > self.position.incarnation
            }
            Control::Group(message) => self.group.is_early(message),
            Control::Begin { membership, .. } => *membership > self.group.view.membership.version,
            Control::Sync { epoch, .. } | Control::Level { epoch, .. } => *epoch > self.group.view.epoch,
            _ => false,
        }
    }

    fn membership_changed(&mut self, membership: Arc<Membership>, now: Time, host: &mut ProtocolHost) {
        let view = view(&self.config, membership);
        let old = core::mem::replace(&mut self.group.view, view);
        if self.group.view.epoch > old.epoch && !self.recovers_in_pairs() {
            self.await_round();
        }
        self.watch_members(now, host);
        self.meet_peers(host);
        self.watch_holders(&old, host);
        self.watch_logger(&old, host);
        self.replay(now, host);
        self.maybe_write(now, host);
    }

    /// Reconsiders everything that waited for this process to catch up.
    fn replay(&mut self, now: Time, host: &mut ProtocolHost) {
        for (from, message) in core::mem::take(&mut self.early) {
            self.told(from, message, now, host);
        }
        self.replay_waiting(host);
    }

    fn lead(&mut self) -> Option<&mut Lead> {
        self.lead.as_deref_mut()
    }

    fn tell_recovery_process(&self, message: Control, host: &mut ProtocolHost) {
        if let Some(recovery_process) = self.recovery_process {
            host.control(To::One(recovery_process), message);
        }
    }

    /// Sends a message to any process, which may be this one.
    fn tell(&mut self, whom: ProcessId, message: Control, now: Time, host: &mut ProtocolHost) {
        if whom == self.group.me {
            self.told(whom, message, now, host);
        } else {
            host.control(To::One(whom), message);
        }
    }
}

/// Returns how this protocol reads a membership. The failures of the recovery process number rounds, too (R1).
fn view(config: &Config, membership: Arc<Membership>) -> View {
    let counted = (!config.defects.has(Defect::ReplacedWithoutRound)).then_some(Role::RECOVERY_PROCESS);
    View::new(config.scope, counted, membership)
}

fn membership(birth: &Birth<Config>) -> group::Membership {
    let Birth { me, boot, membership, config, .. } = birth;
    group::Membership {
        me: *me,
        boot: *boot,
        view: view(config, membership.clone()),
        placement: config.copies(),
        rules: config.rules(),
    }
}

/// Handles an input of a storage server.
fn serve(server: &mut group::Server<Hydee>, input: Input<Hydee>, now: Time, host: &mut ProtocolHost) {
    match input {
        Input::Control { from, message: Control::Group(message) } => server.told(from, message, host),
        other => server.handle(other, now, host),
    }
}

impl Grouped for Hydee {
    /// The segments of the log that the part refers to (R15).
    fn companions(owner: ProcessId, head: &Head) -> Vec<ImageName> {
        head.segments.iter().map(|it| it.image(owner)).collect()
    }

    fn is_covered(image: ImageName, by: &Head) -> bool {
        SegmentNo::of(image).is_some_and(|it| it.number < by.next)
    }
}
