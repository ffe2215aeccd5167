//! Messages between processes, and images in their storage.

use alloc::sync::Arc;

use faultline_core::{Image, ImageName, Incarnation, Position};
use faultline_dataflow::PartitionMap;
use faultline_dataflow::partition::Executed;
use faultline_dataflow::plan::Value;
use serde::{Deserialize, Serialize};

/// A message of the protocol. A checkpoint is identified by the epoch of the last recovery before it and by a number,
/// which is one greater than that of the previous valid checkpoint. [`Position::default`] is the initial state of the
/// program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// From the coordinator to all partitions: take the first of these checkpoints; the second is the newest valid one.
    Init(Position, Position),
    /// To a partition that sends to this one: stop sending.
    Ping(Position),
    /// Answer to [`Ping`](Message::Ping): nothing on the channel is in transit.
    Pong(Position),
    /// To a partition that sends to this one: this partition's state is saved.
    Continue(Position),
    /// To the coordinator: this partition's state is saved.
    Ack(Position),
    /// With global coordination, to all partitions: this partition has stopped sending.
    Stopped(Position),
    /// With global coordination, from the coordinator to all partitions: all states are saved.
    Resume(Position),
    /// From a restarted coordinator to all processes: which checkpoint is valid, and where does each partition run?
    /// Afterwards, the receiver takes part in no older recovery.
    Survey(Incarnation),
    /// Answer to [`Survey`](Message::Survey): the newest checkpoint that the sender knows to be valid, and the newest
    /// map that it knows.
    Known(Incarnation, Position, EpochMap),
    /// From the coordinator to all partitions, and to processes that run none: a recovery begins. The map assigns each
    /// partition to the process that runs it. Partitions without a state restore this checkpoint.
    Recover(Incarnation, Position, PartitionMap),
    /// To a partition to which this one sends: the tasks that this one has executed. On the channel, this message
    /// precedes all values that this partition sends from now on.
    Flush(Incarnation, Executed),
    /// To a partition that sends to this one: send these values again, because they were lost or a re-execution needs
    /// them.
    Demand(Incarnation, Arc<[Value]>),
    /// To the coordinator: this partition has received everything that was lost.
    Done(Incarnation),
    /// To the coordinator: this process runs no partition in this recovery.
    Ceded(Incarnation),
    /// The sender has stored this image durably.
    Durable(ImageName),
    /// The sender needs this image.
    Fetch(ImageName),
    /// The sender does not have this image.
    Absent(ImageName),
}

/// The map of partitions as of one recovery.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochMap {
    /// The epoch of the recovery.
    pub epoch: Incarnation,
    /// The process that runs each partition.
    pub map: PartitionMap,
}

/// The part of an image that a listing of the storage shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The newest checkpoint that was known to be valid when this image was saved.
    pub valid: Position,
}

/// One partition's part of a checkpoint.
pub(super) type ImageOf = Image<Head, ()>;
