//! Independent checkpoints: each process takes checkpoints on its own, and rollbacks propagate.
//!
//! Uncoordinated checkpointing as in section 3.1 of Elnozahy, Alvisi, Wang, Johnson: *A Survey of Rollback-Recovery
//! Protocols in Message-Passing Systems* (ACM Computing Surveys 2002). Each message carries the checkpoint interval in
//! which it was sent (Bhargava, Lian: *Independent Checkpointing and Concurrent Rollback for Recovery in Distributed
//! Systems*, SRDS 1988), so a process knows the intervals on which each of its checkpoints depends. After a failure, a
//! process restores its newest checkpoint and alerts all others. A process that depends on an undone interval rolls
//! back as well. Senders log their messages, so that no message in transit is lost. The rules I1 to I8 are listed in
//! `docs/baselines.md`.
//!
//! | file | contents |
//! | --- | --- |
//! | `rank` | a process that runs the application: messages (I1, I2, I5), checkpoints (I3) |
//! | `recovery` | choosing the checkpoint to restore, and restoring it (I4) |
//! | `alert` | announcing a rollback, and following those of others (I6, I7) |
//! | `collection` | the recovery line, and removing what precedes it (I8) |
//! | `store` | this process's storage: its checkpoints, the replicas that it keeps for others, and the tables |
//! | `message` | data formats |
//! | [`history`](crate::History) | the table of rollbacks, and the computation of a recovery line |

mod alert;
mod collection;
mod message;
mod rank;
mod recovery;
mod store;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Footprint, Gauges, Host, Input, LifeStart, ProcessId, Promise, Promises, Protocol, ProtocolTypes, Role,
    Scope, Span, Time,
};

use crate::machines::rules;
use crate::placement::Placement;
pub use message::{Control, Epoch, Head, Inventory, Saved, Stamp};
use rank::Rank;
use store::Store;

/// The host, as this protocol sees it.
type ProtocolHost<'a> = dyn Host<Independent> + 'a;
type Image = faultline_core::Image<Head, Saved>;

/// Parameters of the protocol, the same for all processes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Delay between checkpoints of a process, one entry per cluster of the federation; `None` is infinite.
    pub checkpoint_every: Arc<[Option<Span>]>,
    /// Delay between garbage collections; `None` disables them.
    pub collect_every: Option<Span>,
    /// Placement of the replicas of each checkpoint.
    pub placement: Placement,
    /// Delay before an unanswered alert, or a failed write, is repeated.
    pub retry_every: Span,
    /// Enabled defects, for tests.
    pub defects: Defects,
}

rules! {
    /// The log is part of the checkpoint (I1).
    SavesLog, without
        /// The log is only in memory: a rollback loses it (I1).
        LogOutsideCheckpoint;
    /// The set of delivered messages is part of the checkpoint (I1).
    SavesReceived, without
        /// The set of delivered messages is not part of the checkpoint (I1).
        ReceivedOutsideCheckpoint;
    /// A message whose send was undone is dropped (I2).
    DropsStale, without
        /// Messages whose sends were undone are delivered (I2).
        StaleNotDropped;
    /// A message from an older incarnation is delivered unless its send was undone (I2).
    KeepsOlderIncarnations, without
        /// Messages from all older incarnations are dropped, including those whose sends survived (I2).
        OlderIncarnationsDropped;
    /// A checkpoint is committed only once it is durable at its process and at its holders (I3).
    DurableFirst, without
        /// A checkpoint is committed before its replicas are durable (I3).
        CommitBeforeCopies;
    /// The application acts only once the supervisor has recorded that the process may act (I3).
    StartGate, without
        /// The first checkpoint is committed without waiting for the record of the process's start (I3).
        NoStartGate;
    /// A process restores its newest checkpoint that contains nothing undone (I4).
    RestoresNewest, without
        /// A process restores the checkpoint before the right one (I4).
        RestartBefore;
    /// A process restores neither a collected checkpoint, nor one that follows a collected one which it restored (I4).
    NeverRestoresCollected, without
        /// A process restores collected checkpoints, and those that follow them (I4).
        CollectedRestored;
    /// A process resumes only once its holders have the restored checkpoint (I4).
    CopiesFirst, without
        /// A process resumes before its holders have the restored checkpoint (I4).
        ReadyBeforeCopies;
    /// A holder that returns with empty storage is refilled (I4).
    RefillsHolders, without
        /// A holder that returns with empty storage is not refilled (I4).
        HolderNotRefilled;
    /// A restored sender re-sends the messages that their receivers lack (I5).
    ResendsOwn, without
        /// A restored sender does not re-send the messages that their receivers lack (I5).
        NoOwnResend;
    /// A sender re-sends the messages whose deliveries a rollback undid (I5).
    ResendsUndone, without
        /// A sender does not re-send the messages whose deliveries a rollback undid (I5).
        UndoneNotResent;
    /// The acknowledgements in a restored log are compared with the table of rollbacks (I5).
    ChecksRestoredAcks, without
        /// The acknowledgements in a restored log are trusted, although a rollback may have undone the deliveries (I5).
        RestoredAcksUnchecked;
    /// A process that depends on an undone interval rolls back (I6).
    Propagates, without
        /// A process that depends on an undone interval continues (I6).
        RollbackNotPropagated;
    /// An alert is repeated until it is confirmed (I6).
    RetriesAlerts, without
        /// Alerts are sent only once (I6).
        AlertsNotRetried;
    /// A process announces a rollback only once the record of it is durable (I6).
    AnnouncesDurable, without
        /// A process announces a rollback before the record of it is durable: another rollback can get the same
        /// incarnation (I6).
        AlertsBeforeDurable;
    /// A collection keeps the recovery line (I8).
    KeepsLine, without
        /// A collection also removes the checkpoints on the recovery line (I8).
        CollectsOneTooMany;
    /// A collection keeps the messages that were delivered after the checkpoint on the recovery line (I8).
    KeepsLogAtLine, without
        /// A collection also removes messages delivered in the interval that begins on the recovery line (I8).
        LogCollectedAtLine;
}

/// One process under independent checkpoints.
#[derive(Clone, Debug)]
pub struct Independent(Process);

#[derive(Clone, Debug)]
enum Process {
    Rank(Box<Rank>),
    /// A storage server only keeps replicas.
    Server(Box<Store>, Span),
}

impl ProtocolTypes for Independent {
    type Control = Control;
    type Head = Head;
    type Saved = Saved;

    fn add_to(head: &Head, saved: &Saved, footprint: &mut Footprint) {
        footprint.add_arc(&head.delivered);
        footprint.add_arc(&head.past);
        if footprint.add_arc(&saved.log) {
            saved.log.add_to(footprint);
        }
        if footprint.add_arc(&saved.received) {
            saved.received.add_to(footprint);
        }
    }

    fn saved_len(saved: &Saved) -> u64 {
        saved.log.bytes()
    }
}

impl Protocol for Independent {
    type Config = Config;
    type Stamp = Stamp;
    const FIFO: bool = false;

    /// Progress is not promised: processes that roll back may undo each other's messages endlessly.
    fn promises(_: &Config) -> Promises {
        Promises::of_scope(Scope::Process).with(&[
            Promise::Checkpoints,
            Promise::DenseNumbering,
            Promise::MaximalLine,
            Promise::DurableRestore,
            Promise::Refill,
        ])
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        config.placement.server().into_iter().collect()
    }

    fn start(start: LifeStart<Config>, now: Time, host: &mut dyn Host<Self>) -> Self {
        let store = Store::new(&start, host);
        Independent(match start.membership.member(start.me).role {
            Role::RANK => Process::Rank(Box::new(Rank::start(start, store, now, host))),
            _ => Process::Server(Box::new(store), start.config.retry_every),
        })
    }

    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut dyn Host<Self>) {
        match &mut self.0 {
            Process::Rank(rank) => rank.handle(input, now, host),
            Process::Server(store, retry_every) => {
                let unasked = match input {
                    Input::Control { from, message } => store.handle_message(from, message, host),
                    other => store.handle(other, now + *retry_every, now, host),
                };
                assert!(unasked.is_empty(), "a server stores nothing of its own");
            }
        }
    }

    #[inline]
    fn next_deadline(&self) -> Option<Time> {
        match &self.0 {
            Process::Rank(rank) => rank.next_deadline(),
            Process::Server(store, _) => store.writes.next_deadline(),
        }
    }

    fn gauges(&self) -> Gauges {
        match &self.0 {
            Process::Rank(rank) => rank.gauges(),
            Process::Server(..) => Gauges::default(),
        }
    }

    fn control_kind(message: &Control) -> &'static str {
        message.kind()
    }
}

/// Returns the number of the group that consists of `rank`.
#[inline]
fn group_of(rank: ProcessId) -> faultline_core::GroupId {
    faultline_core::GroupId(u16::try_from(rank.0).expect("ranks fit a `GroupId`"))
}
