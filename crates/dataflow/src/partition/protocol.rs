//! The interface between protocols and partitions.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::process::Gauges;
use faultline_core::{
    Chunk, Image, Incarnation, LifeStart, Machine, Membership, MessageId, Position, ProcessId, Promises,
    ProtocolTypes, Role, Snapshot, Time,
};

use super::share::Executed;
use crate::partition_map::PartitionMap;
use crate::plan::{Plan, Value};
use crate::storage::StorageInput;

/// A protocol for planned programs, one instance per process. Through a [`PartitionHost`], it acts on the partitions
/// that the process runs: its own, and those of processes that failed permanently, or whose cluster leaves or has not
/// joined yet.
pub trait PartitionProtocol: ProtocolTypes {
    /// Parameters, equal for all processes.
    type Config: Clone + Debug;
    /// Whether the protocol requires that packets between two lives arrive in the order in which they were sent.
    const FIFO: bool;

    /// Returns the protocol's promises, beyond the guarantees of every protocol.
    fn promises(config: &Self::Config) -> Promises;
    /// Returns the roles of the processes that the protocol needs besides the ranks. They belong to no cluster and run
    /// no tasks.
    fn extra_processes(config: &Self::Config) -> Vec<Role>;
    /// Starts a life. The first life of a rank runs the partitions that [`PartitionHost::initial_map`] assigns to it,
    /// each of which is held until [`PartitionHost::release`]; later lives run none until [`PartitionHost::restore`].
    fn start(start: LifeStart<Self::Config>, now: Time, host: &mut dyn PartitionHost<Self>) -> Self;
    /// Handles one input.
    fn handle(&mut self, input: PartitionInput<Self>, now: Time, host: &mut dyn PartitionHost<Self>);
    /// Returns the time at which the protocol next requires a [`PartitionInput::Timeout`]; `None` if it
    /// requires none.
    fn next_deadline(&self) -> Option<Time>;
    /// Returns values for a live view, except for the progress, which the process adds.
    fn gauges(&self) -> Gauges;
    /// Returns whether partitions keep recent values in memory for [`RerunOptions::from_memory`].
    fn keeps_recent_values(_config: &Self::Config) -> bool {
        false
    }
    /// Returns the checkpoint that this protocol message coordinates, if any.
    fn checkpoint_of(_message: &Self::Control) -> Option<Position> {
        None
    }
    /// Returns the name under which a protocol message is counted.
    fn control_kind(_message: &Self::Control) -> &'static str {
        "control"
    }
}

/// A value in transit from one partition to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The message identity: the two partitions, and the message's number in the plan.
    pub id: MessageId,
    /// The name of the value that is sent.
    pub value: Value,
    /// The content, if the value's task wrote any.
    pub content: Option<Chunk>,
}

/// An input to a protocol for planned programs.
#[derive(Clone, Debug)]
pub enum PartitionInput<P: PartitionProtocol> {
    /// A value arrived. [`PartitionHost::accept`] passes it to its partition.
    Arrived(Delivery),
    /// A message of the protocol arrived.
    Control {
        /// The sending partition, or the sending process if it runs none.
        from: ProcessId,
        /// The receiving partition, or the receiving process if it runs none.
        to: ProcessId,
        /// The protocol's message.
        message: P::Control,
    },
    /// An image arrived, or an operation of the storage has ended.
    Storage(StorageInput<P>),
    /// The membership changed.
    Membership(Arc<Membership>),
    /// The protocol's deadline has passed.
    Timeout,
}

/// Options of re-execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RerunOptions {
    /// Whether re-execution starts from values that are still in memory, and not only from the checkpoint (CCK long
    /// paper, section 3.7.1): the values that a pending task reads and, beyond the paper, those that were sent or
    /// received in the last steps if [`PartitionProtocol::keeps_recent_values`] returns `true`.
    pub from_memory: bool,
    /// Whether other processes execute tasks for which this one has no free core (section 3.6.3).
    pub spread: bool,
}

/// The partitions of a process as its protocol sees them.
pub trait PartitionHost<P: PartitionProtocol>: Machine<P> {
    /// Returns the program's plan.
    fn plan(&self) -> &Plan;
    /// Sends a message to a partition, or to a process outside the clusters. Between two partitions, it arrives after
    /// all values that were sent before it. [`Machine::control`] sends a message to a process instead.
    fn tell(&mut self, from: ProcessId, to: ProcessId, message: P::Control);
    /// Returns the initial host of each partition.
    fn initial_map(&self) -> &PartitionMap;
    /// Sets the host of each partition. Later messages and values for a partition are sent to its host.
    fn set_map(&mut self, map: PartitionMap);
    /// Returns whether the partition runs here.
    fn runs(&self, partition: ProcessId) -> bool;
    /// Passes a value to its partition, and to the partition's re-execution. Duplicates are dropped.
    fn accept(&mut self, delivery: Delivery);
    /// Returns the tasks that the partition has executed.
    fn executed(&self, partition: ProcessId) -> Executed;
    /// Returns the values that the partition still needs but lacks, although `from` has executed the tasks in
    /// `executed`, and has therefore sent these values.
    fn lacking(&self, partition: ProcessId, from: ProcessId, executed: &Executed) -> Vec<Value>;
    /// Returns the partition's current state. A task that is being executed counts as not started.
    fn snapshot(&mut self, partition: ProcessId) -> Snapshot;
    /// Runs the partition from an image's state, or from its initial state. Its previous state here is discarded. The
    /// partition is held until [`PartitionHost::release`]. `epoch` names the recovery.
    fn restore(&mut self, partition: ProcessId, epoch: Incarnation, from: Option<&Image<P::Head, P::Saved>>);
    /// Returns whether [`PartitionHost::restore`] rolls the partition back after a failure. It does if the partition is
    /// the process's own, and either the partition runs here or this is not the first life. Any other partition has
    /// moved to this process.
    fn is_restored_after_failure(&self, partition: ProcessId) -> bool;
    /// Stops running a partition, because another process runs it from the recovery `epoch` onwards. Its state here is
    /// discarded.
    fn cede(&mut self, partition: ProcessId, epoch: Incarnation);
    /// Starts the re-execution of a partition: values demanded in this recovery are recomputed from this checkpoint, or
    /// from the initial state. Discards an earlier re-execution.
    fn begin_rerun(
        &mut self,
        partition: ProcessId,
        epoch: Incarnation,
        from: Option<&Snapshot>,
        how: RerunOptions,
    );
    /// Sends `values`, which `partition` wrote, to the partition `by`: immediately if they exist, and otherwise once
    /// they have been recomputed. Returns the missing values of other partitions that the recomputation requires.
    fn demand(&mut self, partition: ProcessId, values: &[Value], by: ProcessId) -> Vec<Value>;
    /// Ends the re-execution of a partition.
    fn end_rerun(&mut self, partition: ProcessId);
    /// Holds the partition: none of its jobs starts, no outcome is applied, and values are sent only on
    /// [`PartitionHost::demand`].
    fn hold(&mut self, partition: ProcessId);
    /// Ends [`PartitionHost::hold`].
    fn release(&mut self, partition: ProcessId);
}
