//! Facts: the only observation channel. Triggers, metrics, golden files, checkers, dashboards and diagrams all speak
//! of these.
//!
//! The composite states what it saw itself (sent, delivered, saved, …). What only the protocol can know is a
//! [`Claim`]: its own word, never taken as evidence. The supervisor states what it did to processes.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::application::Digest;
use crate::fault::{Change, EndedBy, Fault, StorageFate};
use crate::id::{
    Attempt, ClusterId, FactNo, FaultNo, Incarnation, Life, Position, ProcessId, Sn, TaskId, Theft,
};
use crate::image::ImageName;
use crate::membership::Boot;
use crate::message::MessageId;
use crate::time::Span;

/// Evidence of what a state contains: a cut in the process's fact stream and two multiset hashes. The checker rebuilds
/// the sets from the facts before the cut and compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// The life whose stream is cut.
    pub life: Life,
    /// Facts of that life before this number are part of the state (together with what that life had restored).
    pub upto: FactNo,
    /// Wrapping sum of [`MessageId::mix`] over everything sent; in a program of tasks of [`TaskId`] over the tasks spawned.
    pub sent: u64,
    /// Wrapping sum of [`MessageId::mix`] over everything delivered; in a program of tasks of [`TaskId`] over the tasks run.
    pub delivered: u64,
}

/// The vectors of a committed HC3I checkpoint (section 3.2, and finding 5 of the errata: one vector decides forcing, the
/// other rollback).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vectors {
    /// Direct dependencies vector, indexed by cluster.
    pub ddv: Arc<[Position]>,
    /// Greatest position *delivered* from each cluster and incarnation, ascending; absent means none.
    pub delivered: Arc<[(ClusterId, Position)]>,
}

/// Why a cluster rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// One of its own processes failed.
    Failure,
    /// Another cluster's rollback undid a message that this one had delivered.
    Alert {
        /// That cluster.
        from: ClusterId,
        /// What it restored, under its new incarnation.
        position: Position,
    },
}

/// What only a protocol knows: marked as its own word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claim {
    /// The coordinator asks its cluster for checkpoint `position.sn` (the one being taken).
    CheckpointRequested {
        /// Of the checkpoint to be.
        position: Position,
        /// The try.
        attempt: Attempt,
        /// By a message from another cluster, rather than by the timer.
        forced: bool,
    },
    /// This process applied the commit of a checkpoint.
    Committed {
        /// Of the checkpoint.
        position: Position,
        /// The try that succeeded.
        attempt: Attempt,
        /// By a message from another cluster, rather than by the timer.
        forced: bool,
        /// Time during which this process's application was frozen.
        frozen: Span,
        /// The checkpoint's vectors.
        vectors: Arc<Vectors>,
    },
    /// This process gave up a checkpoint that was being taken.
    Aborted {
        /// Of the checkpoint.
        position: Position,
        /// The try.
        attempt: Attempt,
    },
    /// This process takes part in a recovery round.
    RecoveryStarted {
        /// Sum of the lives of the cluster's processes.
        lives: u64,
        /// Counts rounds among the same lives.
        round: u32,
    },
    /// This process goes on from `to`, under incarnation `to.incarnation`.
    RolledBack {
        /// The checkpoint, under the *new* incarnation; SN 0 is the configuration.
        to: Position,
        /// The checkpoint, under the incarnation that took it.
        checkpoint: Position,
        /// Why.
        cause: Cause,
        /// The vectors of the restored checkpoint, which need not have been committed before the failure.
        vectors: Arc<Vectors>,
    },
    /// This process learnt of another cluster's rollback.
    Alerted {
        /// That cluster.
        from: ClusterId,
        /// What it restored, under its new incarnation.
        position: Position,
    },
    /// This process re-sends a logged message.
    Resent {
        /// The message.
        id: MessageId,
    },
    /// A message waits for the checkpoint that it forces.
    Forcing {
        /// The message.
        id: MessageId,
    },
    /// This process removed what no recovery needs any more.
    Collected {
        /// The collection.
        round: u32,
        /// Checkpoints of its cluster with a smaller SN are gone.
        below: Sn,
        /// Checkpoints kept.
        kept: u32,
        /// Log entries removed.
        log: u32,
    },
    /// A re-execution sent a message in another phase than the execution had: the program does not repeat itself, so that
    /// the protocol cannot protect it.
    NotRepeated {
        /// The message.
        id: MessageId,
        /// Its phase as its receiver recorded it.
        recorded: u32,
        /// Its phase in the re-execution.
        repeated: u32,
    },
    /// Everything that this process should hold, it holds again, after its storage was lost.
    Protected,
    /// No checkpoint of the cluster can be restored.
    Unrecoverable {
        /// The cluster.
        cluster: ClusterId,
        /// For each member whose part is missing everywhere: the newest checkpoint that lacks it, and who was asked.
        missing: Arc<[(ImageName, Vec<ProcessId>)]>,
    },
    /// This process has a message whose send a rollback undid, and which will be sent again.
    Orphaned {
        /// The message.
        id: MessageId,
        /// Its phase as recorded when it was received.
        phase: u32,
    },
    /// The coordinator of a cluster that leaves: no recovery can want anything of the cluster any more.
    Released {
        /// The cluster.
        cluster: ClusterId,
    },
    /// Logged messages left this process's memory, because they are durable in its storage and at its holders.
    Spilled {
        /// How many.
        messages: u32,
        /// Their content.
        bytes: u64,
        /// Content of all messages that are still in memory.
        left: u64,
    },
}

/// What happens in a theft of a task, in this order unless something fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TheftStep {
    /// The victim set a task aside for the thief.
    Lent,
    /// The victim's protocol let the task go to the network, for the first time or again.
    Shipped,
    /// The thief has the task.
    Taken,
    /// The thief has everything that it owes for the task.
    Done,
    /// The thief's protocol let the result go to the network, for the first time or again.
    Returned,
    /// The result became part of the victim's state.
    Merged,
    /// The victim's protocol told the thief that the result is not wanted again.
    Receipted,
    /// The thief dropped what it owed, done or not.
    Forgotten,
    /// The victim took the task back, to run it or lend it again.
    Voided,
}

impl TheftStep {
    /// What a fact of this step is called.
    pub const fn kind(self) -> FactKind {
        match self {
            TheftStep::Lent => FactKind::Lent,
            TheftStep::Shipped => FactKind::Shipped,
            TheftStep::Taken => FactKind::Taken,
            TheftStep::Done => FactKind::Done,
            TheftStep::Returned => FactKind::Returned,
            TheftStep::Merged => FactKind::Merged,
            TheftStep::Receipted => FactKind::Receipted,
            TheftStep::Forgotten => FactKind::Forgotten,
            TheftStep::Voided => FactKind::Voided,
        }
    }
}

/// One fact, as it stands in a process's stream. The driver adds process, life, number and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The application sent a message.
    Sent {
        /// The message.
        id: MessageId,
        /// The length of its content.
        bytes: u32,
    },
    /// The protocol let a message go to the network, for the first time or again.
    Transmitted {
        /// The message.
        id: MessageId,
        /// The sender's position as piggybacked.
        position: Position,
    },
    /// The protocol kept a message from the network, because its receiver has it.
    Suppressed(MessageId),
    /// The application received a message.
    Delivered(MessageId),
    /// The application's actions may depend on a message from here on. Stated under protocols that repeat executions.
    Consumed(MessageId),
    /// The protocol dropped a message that a rollback of its sender had undone.
    DroppedStale(MessageId),
    /// An image was handed to the storage; its application state has this many bytes.
    Saved(Box<(ImageName, Witness, u64)>),
    /// The storage reported an image durable here; the owner may be another process.
    Durable(ImageName),
    /// The application's state was replaced by an image's, under this incarnation; no image means the initial state.
    Restored(Box<(Option<ImageName>, Incarnation, Witness)>),
    /// The application is finished in this state. Stated again when the state changes after that.
    Finished(Box<(Witness, Digest)>),
    /// The outcome of a task was applied to the state, which now has the tasks that it spawned: all children of `task`
    /// with smaller indices than `spawned`.
    Ran {
        /// The task.
        task: TaskId,
        /// How many tasks it spawned.
        spawned: u32,
        /// How long it took, in microseconds: what its program says, by the speed of the place.
        cost_us: u32,
    },
    /// A step of a theft.
    Theft {
        /// The theft.
        theft: Theft,
        /// What is stolen.
        task: TaskId,
        /// What happened.
        step: TheftStep,
    },
    /// The state of a process that is gone for good became part of this one's: that of an image, or (without one) the
    /// state in which the process began.
    Absorbed(Box<(ProcessId, Option<ImageName>, Witness)>),
    /// The protocol's own word.
    Claim(Box<Claim>),

    /// Supervisor: a life of a process was started.
    LifeStarted {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
        /// How it begins.
        boot: Boot,
    },
    /// Supervisor: the application may begin, everywhere.
    Begun,
    /// Supervisor, before it acts: fault `no` of the plan is being injected.
    Injecting {
        /// In the plan.
        no: FaultNo,
        /// What exactly is done.
        fault: Box<Fault>,
    },
    /// Supervisor: fault `no` found nothing to act on, or came too late to matter.
    Ineffective {
        /// In the plan.
        no: FaultNo,
        /// Why.
        reason: Arc<str>,
    },
    /// Supervisor, before the kill: this life ends here, by an injected fault or because it cannot go on.
    Failed {
        /// The process.
        process: ProcessId,
        /// The life that ends.
        life: Life,
        /// What becomes of its node's storage.
        storage: StorageFate,
        /// What ends it.
        by: EndedBy,
    },
    /// Supervisor: the end of a life was noticed and is announced.
    Detected {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
    },
    /// Supervisor: every rank has finished and no message is under way.
    Completed,
    /// Supervisor, before it acts: the user of the federation changed this while it runs.
    Changed(Box<Change>),
    /// Supervisor, before it announces its processes: this cluster joins.
    Joined(ClusterId),
    /// Supervisor, before it ends its processes for good and gives their storage back: this cluster leaves.
    Left(ClusterId),
}

/// The kinds of fact, as users name them in triggers (`checkpointRequested`) and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "each is documented at the fact it names")]
pub enum FactKind {
    Sent,
    Transmitted,
    Suppressed,
    Delivered,
    Consumed,
    DroppedStale,
    Saved,
    Durable,
    Restored,
    Finished,
    Ran,
    Lent,
    Shipped,
    Taken,
    Done,
    Returned,
    Merged,
    Receipted,
    Forgotten,
    Voided,
    Absorbed,
    CheckpointRequested,
    CheckpointCommitted,
    CheckpointAborted,
    RecoveryStarted,
    RolledBack,
    Alerted,
    Resent,
    Forcing,
    Collected,
    NotRepeated,
    Protected,
    Unrecoverable,
    Orphaned,
    Released,
    Spilled,
    LifeStarted,
    Begun,
    Injecting,
    Ineffective,
    Failed,
    Detected,
    Completed,
    Changed,
    Joined,
    Left,
}

impl Fact {
    /// What kind of fact this is.
    #[inline]
    pub fn kind(&self) -> FactKind {
        // By itself, so that the rest is a table.
        if let Fact::Claim(claim) = self {
            return claim.kind();
        }
        match self {
            Fact::Sent { .. } => FactKind::Sent,
            Fact::Transmitted { .. } => FactKind::Transmitted,
            Fact::Suppressed(_) => FactKind::Suppressed,
            Fact::Delivered(_) => FactKind::Delivered,
            Fact::Consumed(_) => FactKind::Consumed,
            Fact::DroppedStale(_) => FactKind::DroppedStale,
            Fact::Saved(_) => FactKind::Saved,
            Fact::Durable(_) => FactKind::Durable,
            Fact::Restored(_) => FactKind::Restored,
            Fact::Finished(_) => FactKind::Finished,
            Fact::Ran { .. } => FactKind::Ran,
            Fact::Theft { step, .. } => step.kind(),
            Fact::Absorbed(_) => FactKind::Absorbed,
            Fact::Claim(_) => unreachable!("dealt with"),
            Fact::LifeStarted { .. } => FactKind::LifeStarted,
            Fact::Begun => FactKind::Begun,
            Fact::Injecting { .. } => FactKind::Injecting,
            Fact::Ineffective { .. } => FactKind::Ineffective,
            Fact::Failed { .. } => FactKind::Failed,
            Fact::Detected { .. } => FactKind::Detected,
            Fact::Joined(_) => FactKind::Joined,
            Fact::Left(_) => FactKind::Left,
            Fact::Completed => FactKind::Completed,
            Fact::Changed(_) => FactKind::Changed,
        }
    }
}

impl Claim {
    /// What kind of fact this is.
    pub fn kind(&self) -> FactKind {
        match self {
            Claim::CheckpointRequested { .. } => FactKind::CheckpointRequested,
            Claim::Committed { .. } => FactKind::CheckpointCommitted,
            Claim::Aborted { .. } => FactKind::CheckpointAborted,
            Claim::RecoveryStarted { .. } => FactKind::RecoveryStarted,
            Claim::RolledBack { .. } => FactKind::RolledBack,
            Claim::Alerted { .. } => FactKind::Alerted,
            Claim::Resent { .. } => FactKind::Resent,
            Claim::Forcing { .. } => FactKind::Forcing,
            Claim::Collected { .. } => FactKind::Collected,
            Claim::NotRepeated { .. } => FactKind::NotRepeated,
            Claim::Protected => FactKind::Protected,
            Claim::Unrecoverable { .. } => FactKind::Unrecoverable,
            Claim::Orphaned { .. } => FactKind::Orphaned,
            Claim::Released { .. } => FactKind::Released,
            Claim::Spilled { .. } => FactKind::Spilled,
        }
    }
}

impl FactKind {
    /// The kinds that a process states and a trigger may wait for.
    pub const OF_PROCESSES: [FactKind; 36] = [
        FactKind::Sent,
        FactKind::Transmitted,
        FactKind::Suppressed,
        FactKind::Delivered,
        FactKind::Consumed,
        FactKind::DroppedStale,
        FactKind::Saved,
        FactKind::Durable,
        FactKind::Restored,
        FactKind::Finished,
        FactKind::Ran,
        FactKind::Lent,
        FactKind::Shipped,
        FactKind::Taken,
        FactKind::Done,
        FactKind::Returned,
        FactKind::Merged,
        FactKind::Receipted,
        FactKind::Forgotten,
        FactKind::Voided,
        FactKind::Absorbed,
        FactKind::CheckpointRequested,
        FactKind::CheckpointCommitted,
        FactKind::CheckpointAborted,
        FactKind::RecoveryStarted,
        FactKind::RolledBack,
        FactKind::Alerted,
        FactKind::Resent,
        FactKind::Forcing,
        FactKind::Collected,
        FactKind::NotRepeated,
        FactKind::Protected,
        FactKind::Unrecoverable,
        FactKind::Orphaned,
        FactKind::Released,
        FactKind::Spilled,
    ];
}

/// A set of kinds of fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactKinds(u64);

impl FactKinds {
    /// No kind.
    pub const NONE: FactKinds = FactKinds(0);
    /// Every kind.
    pub const ALL: FactKinds = FactKinds(u64::MAX);

    /// Whether `kind` is among them.
    #[inline]
    pub const fn contains(self, kind: FactKind) -> bool {
        self.0 & 1 << kind as u64 != 0
    }

    /// The kinds of both sets.
    pub const fn union(self, other: FactKinds) -> FactKinds {
        FactKinds(self.0 | other.0)
    }
}

impl FromIterator<FactKind> for FactKinds {
    fn from_iter<I: IntoIterator<Item = FactKind>>(kinds: I) -> FactKinds {
        FactKinds(kinds.into_iter().fold(0, |all, kind| all | 1 << kind as u64))
    }
}

const _: () = assert!((FactKind::Left as u32) < u64::BITS, "a set of kinds is 64 bits");
const _: () = assert!(size_of::<Fact>() <= 32, "facts are kept by the million");
