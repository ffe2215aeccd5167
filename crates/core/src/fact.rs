//! Facts: what processes and the supervisor report about a run. Triggers, golden files, the checker and all reports are
//! based on facts; metrics and the live view also show [`Gauges`](crate::Gauges).
//!
//! The composite reports its own observations (sent, delivered, saved, …). A fact that only the protocol can know is a
//! [`Claim`]: self-reported, and never used as evidence. The supervisor reports its own actions on processes.

use alloc::boxed::Box;
use alloc::sync::Arc;
use serde::{Deserialize, Serialize};

use crate::application::Digest;
use crate::claim::Claim;
use crate::fault::{Change, EndedBy, Fault, FlipTarget, StorageFate};
use crate::id::{ClusterId, FactNo, FaultNo, Incarnation, Life, Position, ProcessId, TaskId, Theft};
use crate::image::ImageName;
use crate::membership::Boot;
use crate::message::MessageId;
use crate::observation::{Observation, Source};

/// Evidence of a state's content: a cut in the process's stream of facts, and two multiset hashes. The
/// checker rebuilds both sets from the facts before the cut, and compares the hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// The life to whose stream the cut belongs.
    pub life: Life,
    /// Every fact of that life with a smaller number is part of the state, as is the state that the life restored.
    pub upto: FactNo,
    /// Wrapping sum of [`MessageId::mix`] over all messages sent; in a task-based program, the sum of [`TaskId`] over
    /// the tasks spawned.
    pub sent: u64,
    /// Wrapping sum of [`MessageId::mix`] over all messages delivered; in a task-based program, the sum of [`TaskId`]
    /// over the tasks run.
    pub delivered: u64,
}

/// The steps of a theft. Without failures, all but the last occur in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TheftStep {
    /// The victim reserved a task for the thief.
    Lent,
    /// The victim's protocol handed the task to the network, for the first time or again.
    Shipped,
    /// The thief received the task.
    Taken,
    /// The thief completed everything that it owes the victim for the task.
    Done,
    /// The thief's protocol handed the result to the network, for the first time or again.
    Returned,
    /// The result became part of the victim's state.
    Merged,
    /// The victim's protocol told the thief that it no longer needs the result.
    Receipted,
    /// The thief dropped its obligations for the task, whether or not it had fulfilled them.
    Forgotten,
    /// The victim reclaimed the task, to run it or to lend it again.
    Voided,
}

impl TheftStep {
    /// Returns the kind of fact that reports this step.
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

/// The partition and the dependencies of one execution of a planned task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTask {
    /// Identity of the task.
    pub task: TaskId,
    /// The partition that executes the task.
    pub partition: ProcessId,
    /// The tasks whose values this task reads, ascending.
    pub sources: Arc<[TaskId]>,
}

/// One entry of a process's stream of facts. The driver adds process, life, number and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The application sent a message.
    Sent {
        /// Identity of the message.
        id: MessageId,
        /// Length of its payload, in bytes.
        bytes: u32,
    },
    /// The protocol handed a message to the network, for the first time or again.
    Transmitted {
        /// Identity of the message.
        id: MessageId,
        /// Position of the sender, as piggybacked on the message.
        position: Position,
    },
    /// The protocol did not hand a message to the network, because the receiver already has it.
    Suppressed(MessageId),
    /// The application received a message.
    Delivered(MessageId),
    /// The application's later actions may depend on the message. Reported only under protocols that rely on repetition
    /// ([`Protocol::REPEATS`](crate::Protocol::REPEATS)).
    Consumed(MessageId),
    /// The protocol dropped a message that was undone by a rollback of its sender.
    DroppedStale(MessageId),
    /// The process handed an image to its storage. The number is the image's [length](crate::Image::len) in bytes.
    Saved(Box<(ImageName, Witness, u64)>),
    /// The process's storage reported that an image is durable. The image may belong to another process.
    Durable(ImageName),
    /// The protocol stopped the application, because a rollback is to follow
    /// ([`Host::hold`](crate::Host::hold)).
    Held,
    /// Under this incarnation, the application's state was replaced with the state in an image, or with the
    /// initial state if there is no image.
    Restored(Box<(Option<ImageName>, Incarnation, Witness)>),
    /// The application has finished in this state. Reported again if the state changes afterwards.
    Finished(Box<(Witness, Digest)>),
    /// A computation of the application ended ([`Application::computed`](crate::Application::computed)). It started
    /// immediately after this life had reported `since` facts. Not reported for task-based programs, which report
    /// [`Fact::Ran`] instead.
    Computed {
        /// Number of facts that this life had reported before the computation started.
        since: FactNo,
    },
    /// The outcome of a task was applied to the state. The state now contains the tasks that this task spawned: all
    /// children of `task` with an index below `spawned`.
    Ran {
        /// Identity of the task.
        task: TaskId,
        /// Number of tasks that the task spawned.
        spawned: u32,
        /// Duration of the task in microseconds: the program's figure, scaled by the speed of the process.
        cost_us: u32,
    },
    /// Under a plan: the partition and the dependencies of one execution of a task. Reported immediately before the
    /// task's [`Fact::Ran`] or [`Fact::Rerun`].
    Planned(Box<PlannedTask>),
    /// A task whose outcome is already part of the state was re-executed without changing the state, because another
    /// process lost the task's values.
    Rerun {
        /// Identity of the task.
        task: TaskId,
        /// The partition whose demand first required the re-execution.
        by: ProcessId,
        /// The recovery in which the re-execution was demanded.
        epoch: Incarnation,
        /// Duration of the task in microseconds: the program's figure, scaled by the speed of the process.
        cost_us: u32,
    },
    /// The protocol sent a message that coordinates a checkpoint of partitions.
    CheckpointMessage {
        /// The checkpoint.
        position: Position,
        /// The sending partition, or the sending process if it runs no partition.
        from: ProcessId,
        /// The receiving partition, or the receiving process if it runs no partition.
        to: ProcessId,
    },
    /// One step of a theft.
    Theft {
        /// Identity of the theft.
        theft: Theft,
        /// The stolen task.
        task: TaskId,
        /// The step that happened.
        step: TheftStep,
    },
    /// This process took over the state of a process that never returns, or a partition that has moved to this process.
    /// The state is that in an image or, if there is no image, the initial state. The incarnation is that of the
    /// recovery that moved the partition. It is 0 for a partition that this process runs from the start, and in
    /// programs whose processes steal tasks.
    Absorbed(Box<(ProcessId, Option<ImageName>, Witness, Incarnation)>),
    /// The process stopped running a partition, because a recovery moved the partition to another process.
    Ceded {
        /// The partition.
        partition: ProcessId,
        /// The recovery that moved the partition.
        epoch: Incarnation,
    },
    /// A claim of the protocol: self-reported.
    Claim(Box<Claim>),

    /// The supervisor started a life of a process.
    LifeStarted {
        /// The process that starts.
        process: ProcessId,
        /// Number of the new life.
        life: Life,
        /// How the life begins.
        boot: Boot,
    },
    /// The supervisor permitted all ranks to start the application.
    Begun,
    /// The supervisor is about to inject fault `no` of the plan.
    Injecting {
        /// Number of the fault in the plan.
        no: FaultNo,
        /// The fault, with its target resolved.
        fault: Box<Fault>,
    },
    /// The supervisor found that fault `no` had no target left, or was too late to have an effect.
    Ineffective {
        /// Number of the fault in the plan.
        no: FaultNo,
        /// The reason, in words.
        reason: Arc<str>,
    },
    /// A life ends, because of an injected fault or because it cannot continue. The supervisor reports this before it
    /// kills the process.
    Failed {
        /// The process that fails.
        process: ProcessId,
        /// The life that ends.
        life: Life,
        /// Fate of the storage of the process's node.
        storage: StorageFate,
        /// The cause of the failure.
        by: EndedBy,
    },
    /// The supervisor detected the end of a life, and is announcing it.
    Detected {
        /// The process that failed.
        process: ProcessId,
        /// The life that has ended.
        life: Life,
    },
    /// The supervisor found that every rank has finished, and that no message is in transit.
    Completed,
    /// The user changed the running federation. The supervisor reports this before it acts on the change.
    Changed(Box<Change>),
    /// A cluster joins. The supervisor reports this before it announces the cluster's processes.
    Joined(ClusterId),
    /// A cluster is about to leave, but its partitions must first move to other processes. The supervisor reports this
    /// before it announces the departure.
    Leaving(ClusterId),
    /// A cluster leaves. The supervisor reports this before it ends the cluster's processes permanently and releases
    /// their storage.
    Left(ClusterId),
    /// The process told its storage to remove an image. The image may belong to another process, and need not exist.
    Removed(ImageName),
    /// The last of the faults that paused a process ends. The supervisor reports this before it resumes the process.
    Resumed {
        /// The process that resumes.
        process: ProcessId,
        /// The life that was paused.
        life: Life,
    },
    /// The process observed its node's command.
    Observed(Box<Observation>),
    /// A fault flipped a bit.
    Flipped(Flipped),
    /// A read of this process's storage found no intact copy of a part of a checkpoint: the copy is damaged or missing.
    /// The part may belong to another process.
    Damaged(ImageName),
}

/// What contained a bit when a fault flipped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flipped {
    /// A message that the application receives. Its delivery is the previous fact.
    Message(MessageId),
    /// The state in a part of a checkpoint on its way to this process's storage.
    Copy {
        /// The part. It may belong to another process.
        name: ImageName,
        /// Whether the part has a digest of the state, so that a read detects the change.
        is_checked: bool,
    },
    /// The state of the application.
    State,
}

impl Flipped {
    /// Returns what contained the bit.
    pub fn target(self) -> FlipTarget {
        match self {
            Flipped::Message(_) => FlipTarget::Message,
            Flipped::Copy { .. } => FlipTarget::Copy,
            Flipped::State => FlipTarget::State,
        }
    }
}

/// Declares [`FactKind`] and [`FactKind::OF_PROCESSES`], so that each kind is listed once.
macro_rules! kinds {
    (processes: $($process:ident)*; supervisor: $($supervisor:ident)*;) => {
        /// The kinds of facts, as users name them in triggers (`checkpointRequested`) and metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        #[expect(missing_docs, reason = "each kind is documented at the fact that it names")]
        pub enum FactKind {
            $($process,)*
            $($supervisor,)*
        }

        impl FactKind {
            /// The kinds that a process reports, and that a trigger can wait for.
            pub const OF_PROCESSES: [FactKind; [$(FactKind::$process),*].len()] = [$(FactKind::$process),*];

            /// Returns whether a process, rather than the supervisor, reports facts of this kind.
            #[inline]
            pub const fn is_of_process(self) -> bool {
                // The kinds that processes report are declared first.
                (self as usize) < FactKind::OF_PROCESSES.len()
            }
        }
    };
}

kinds! {
    processes:
        Sent
        Transmitted
        Suppressed
        Delivered
        Consumed
        DroppedStale
        Saved
        Durable
        Removed
        Held
        Restored
        Finished
        Computed
        Ran
        Planned
        Rerun
        CheckpointMessage
        Lent
        Shipped
        Taken
        Done
        Returned
        Merged
        Receipted
        Forgotten
        Voided
        Absorbed
        Ceded
        Ready
        Logged
        LinesLeftOut
        ProbeSucceeded
        ProbeFailed
        ProbeUnknown
        Exited
        Stopped
        Checked
        Invoked
        Concluded
        CheckpointRequested
        CheckpointCommitted
        CheckpointAborted
        RecoveryStarted
        RolledBack
        Alerted
        Resent
        Forcing
        Collected
        NotRepeated
        Protected
        Unrecoverable
        Orphaned
        Released
        Spilled
        RecoveryJoined
        Drained
        Broke
        Flipped
        Damaged;
    supervisor:
        LifeStarted
        Begun
        Injecting
        Ineffective
        Failed
        Detected
        Completed
        Changed
        Joined
        Leaving
        Left
        Resumed;
}

impl FactKind {
    /// The kinds that processes report only if their nodes run a user's own system.
    pub const OF_SYSTEMS: [FactKind; 11] = [
        FactKind::Ready,
        FactKind::Logged,
        FactKind::LinesLeftOut,
        FactKind::ProbeSucceeded,
        FactKind::ProbeFailed,
        FactKind::ProbeUnknown,
        FactKind::Exited,
        FactKind::Stopped,
        FactKind::Checked,
        FactKind::Invoked,
        FactKind::Concluded,
    ];
}

impl Fact {
    /// Returns the watch, the probe or the history that this fact is about.
    pub fn source(&self) -> Option<Source> {
        match self {
            Fact::Observed(observation) => observation.source(),
            _ => None,
        }
    }

    /// Returns the kind of this fact.
    #[inline]
    pub fn kind(&self) -> FactKind {
        // Handled before the main `match`, so that the compiler turns the remaining arms into a table.
        match self {
            Fact::Claim(claim) => return claim.kind(),
            Fact::Theft { step, .. } => return step.kind(),
            Fact::Observed(observation) => return observation.kind(),
            _ => {}
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
            Fact::Removed(_) => FactKind::Removed,
            Fact::Flipped(_) => FactKind::Flipped,
            Fact::Damaged(_) => FactKind::Damaged,
            Fact::Held => FactKind::Held,
            Fact::Restored(_) => FactKind::Restored,
            Fact::Finished(_) => FactKind::Finished,
            Fact::Computed { .. } => FactKind::Computed,
            Fact::Ran { .. } => FactKind::Ran,
            Fact::Planned(_) => FactKind::Planned,
            Fact::Rerun { .. } => FactKind::Rerun,
            Fact::CheckpointMessage { .. } => FactKind::CheckpointMessage,
            Fact::Absorbed(_) => FactKind::Absorbed,
            Fact::Ceded { .. } => FactKind::Ceded,
            Fact::Claim(_) | Fact::Theft { .. } | Fact::Observed(_) => unreachable!("handled above"),
            Fact::LifeStarted { .. } => FactKind::LifeStarted,
            Fact::Begun => FactKind::Begun,
            Fact::Injecting { .. } => FactKind::Injecting,
            Fact::Ineffective { .. } => FactKind::Ineffective,
            Fact::Failed { .. } => FactKind::Failed,
            Fact::Detected { .. } => FactKind::Detected,
            Fact::Joined(_) => FactKind::Joined,
            Fact::Leaving(_) => FactKind::Leaving,
            Fact::Left(_) => FactKind::Left,
            Fact::Resumed { .. } => FactKind::Resumed,
            Fact::Completed => FactKind::Completed,
            Fact::Changed(_) => FactKind::Changed,
        }
    }
}

/// A set of kinds of facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactKinds(u128);

impl FactKinds {
    /// The empty set.
    pub const NONE: FactKinds = FactKinds(0);
    /// The set of all kinds.
    pub const ALL: FactKinds = FactKinds(u128::MAX);

    /// Returns whether the set contains `kind`.
    #[inline]
    pub const fn contains(self, kind: FactKind) -> bool {
        self.0 & 1 << kind as u32 != 0
    }

    /// Returns this set without the kinds in `other`.
    pub const fn except(self, other: FactKinds) -> FactKinds {
        FactKinds(self.0 & !other.0)
    }

    /// Returns the union of both sets.
    pub const fn union(self, other: FactKinds) -> FactKinds {
        FactKinds(self.0 | other.0)
    }
}

impl FromIterator<FactKind> for FactKinds {
    fn from_iter<I: IntoIterator<Item = FactKind>>(kinds: I) -> FactKinds {
        FactKinds(kinds.into_iter().fold(0, |all, kind| all | 1 << kind as u32))
    }
}

const _: () = assert!((FactKind::Resumed as u32) < u128::BITS, "a set of kinds has 128 bits");
const _: () = assert!(size_of::<Fact>() <= 32, "runs keep millions of facts");
