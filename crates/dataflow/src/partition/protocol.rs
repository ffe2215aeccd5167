//! What protocols see of partitions.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::process::Gauges;
use faultline_core::{
    Birth, Chunk, Image, ImageName, Incarnation, Machine, Membership, MessageId, Position, ProcessId,
    Promises, Role, Snapshot, Speaks, Time,
};

use super::share::Executed;
use crate::plan::{Plan, Value};

/// A protocol for planned programs, one instance per process. It acts on the partitions that the process runs through a
/// [`PartitionHost`]: its own, and those of processes that are gone.
pub trait PartitionProtocol: Speaks {
    /// Parameters, equal for all processes.
    type Config: Clone + Debug;
    /// Whether it needs packets between two lives in the order of sending.
    const FIFO: bool;

    /// What it promises beyond what every protocol owes.
    fn promises(config: &Self::Config) -> Promises;
    /// Processes it needs beside the ranks; they stand outside every cluster and run no tasks.
    fn extra_processes(config: &Self::Config) -> Vec<Role>;
    /// Begins a life. The first life of a rank runs its own partition, which is held until [`PartitionHost::release`];
    /// later lives run none until [`PartitionHost::restore`].
    fn start(birth: Birth<Self::Config>, now: Time, host: &mut dyn PartitionHost<Self>) -> Self;
    /// Handles one input.
    fn handle(&mut self, input: PartitionInput<Self>, now: Time, host: &mut dyn PartitionHost<Self>);
    /// When [`PartitionInput::Timeout`] is wanted.
    fn next_deadline(&self) -> Option<Time>;
    /// Values for a live view; the process fills in the progress.
    fn gauges(&self) -> Gauges;
    /// The checkpoint that a message of the protocol coordinates, if it is one that does.
    fn checkpoint_of(_message: &Self::Control) -> Option<Position> {
        None
    }
    /// What a message of the protocol is called, where messages are counted by kind.
    fn control_kind(_message: &Self::Control) -> &'static str {
        "control"
    }
}

/// A value on its way from one partition to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The communication: the two partitions, and its number in the plan.
    pub id: MessageId,
    /// What is sent.
    pub value: Value,
    /// Its content, if its task wrote any.
    pub content: Option<Chunk>,
}

/// What happens to a protocol for planned programs.
#[derive(Clone, Debug)]
pub enum PartitionInput<P: PartitionProtocol> {
    /// A value arrived: [`PartitionHost::accept`] gives it to its partition.
    Arrived(Delivery),
    /// A message of the protocol arrived.
    Control {
        /// The partition, or the process that runs none, that sent it.
        from: ProcessId,
        /// The partition, or the process that runs none, that it is for.
        to: ProcessId,
        /// Content.
        message: P::Control,
    },
    /// An image arrived.
    Image {
        /// The process that sent it.
        from: ProcessId,
        /// The image.
        image: Arc<Image<P::Head, P::Saved>>,
    },
    /// An image is durable here.
    Persisted(ImageName),
    /// An image could not be written here.
    PersistFailed(ImageName),
    /// Answer to [`Machine::read`].
    Read {
        /// What was asked for.
        name: ImageName,
        /// It, when it is there and intact.
        image: Option<Arc<Image<P::Head, P::Saved>>>,
    },
    /// Answer to [`Machine::list`].
    Listed(Vec<(ImageName, Arc<P::Head>)>),
    /// A record is durable.
    Recorded {
        /// Which.
        version: u64,
    },
    /// The membership changed.
    Membership(Arc<Membership>),
    /// The deadline has passed, perhaps.
    Timeout,
}

/// How tasks are executed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RerunOptions {
    /// Begins at values that are still in memory, because a task that was not executed reads them, and not only at the
    /// checkpoint (CCK long paper, section 3.7.1).
    pub from_memory: bool,
    /// Other processes execute tasks of it that this one has no time for (section 3.6.3).
    pub spread: bool,
}

/// The partitions of a process as its protocol sees them.
pub trait PartitionHost<P: PartitionProtocol>: Machine<P> {
    /// The plan.
    fn plan(&self) -> &Plan;
    /// Sends a message to a partition, or to a process that runs none. Between two partitions it arrives after all values that
    /// were sent before.
    fn tell(&mut self, from: ProcessId, to: ProcessId, message: P::Control);
    /// Whether the partition runs here.
    fn runs(&self, partition: ProcessId) -> bool;
    /// Gives a value to its partition, and to what the partition executes again. A value that is there already is dropped.
    fn accept(&mut self, delivery: Delivery);
    /// The tasks that the partition has executed.
    fn executed(&self, partition: ProcessId) -> Executed;
    /// The values that `from` has sent to the partition, according to what `from` has executed, and that the partition
    /// neither has nor has done with.
    fn lacking(&self, partition: ProcessId, from: ProcessId, executed: &Executed) -> Vec<Value>;
    /// The state now; tasks that execute count as not begun.
    fn snapshot(&mut self, partition: ProcessId) -> Snapshot;
    /// Runs the partition from an image's state, or from its beginning. What it was here is void. It is held until
    /// [`PartitionHost::release`]. `epoch` names the recovery.
    fn restore(&mut self, partition: ProcessId, epoch: Incarnation, from: Option<&Image<P::Head, P::Saved>>);
    /// From now on what others demand in this recovery is executed again from this checkpoint, or from the beginning. What was
    /// executed again before is void.
    fn begin_rerun(
        &mut self,
        partition: ProcessId,
        epoch: Incarnation,
        from: Option<&Snapshot>,
        how: RerunOptions,
    );
    /// Sends values that the partition wrote to the partition `by`: at once if they are there, and else when they have been
    /// written again. Returns the values of other partitions that this needs and that are not there.
    fn demand(&mut self, partition: ProcessId, values: &[Value], by: ProcessId) -> Vec<Value>;
    /// Nothing is executed again any more.
    fn end_rerun(&mut self, partition: ProcessId);
    /// Of the partition no job begins, and no outcome is applied: it sends nothing.
    fn hold(&mut self, partition: ProcessId);
    /// Ends [`PartitionHost::hold`].
    fn release(&mut self, partition: ProcessId);
}
