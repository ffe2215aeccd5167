//! What processes say to each other, and save.

use alloc::sync::Arc;

use faultline_core::{Image, ImageName, Incarnation, Position};
use faultline_dataflow::partition::Executed;
use faultline_dataflow::plan::Value;
use serde::{Deserialize, Serialize};

/// A message of the protocol. Checkpoints are named by the epoch in which they are taken and a number that grows by one; the
/// epoch is that of the recovery before. [`Position::default`] is the beginning of the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The coordinator to all partitions: take this checkpoint; the other one is valid.
    Init(Position, Position),
    /// To a partition that ever sends here: stop sending.
    Ping(Position),
    /// The answer: nothing of the channel is in transit.
    Pong(Position),
    /// To a partition that ever sends here: this partition's state is saved.
    Continue(Position),
    /// To the coordinator: this partition's state is saved.
    Ack(Position),
    /// Global coordination, to all partitions: nothing more is sent before the checkpoint.
    Stopped(Position),
    /// Global coordination, the coordinator to all: all states are saved.
    Resume(Position),
    /// A coordinator that was started again to all processes: which checkpoint is valid?
    Survey(Incarnation),
    /// The answer: none newer than this is known to be.
    Known(Incarnation, Position),
    /// The coordinator to all partitions: a recovery begins, to this checkpoint for those that have no state.
    Recover(Incarnation, Position),
    /// To a partition that this one ever sends to: what it has executed. What it sends from here on comes after that.
    Flush(Incarnation, Executed),
    /// To a partition that ever sends here: these values were lost, send them again.
    Demand(Incarnation, Arc<[Value]>),
    /// To the coordinator: this partition has everything that was lost.
    Done(Incarnation),
    /// The sender has stored this image durably.
    Durable(ImageName),
    /// The sender looks for this image.
    Fetch(ImageName),
    /// The sender does not have this image.
    Absent(ImageName),
}

/// What a listing says of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The newest checkpoint that was known to be valid when this one was saved.
    pub valid: Position,
}

/// One partition's part of a checkpoint.
pub(super) type ImageOf = Image<Head, ()>;
