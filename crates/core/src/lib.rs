//! The kernel of Faultline: the vocabulary that all other crates share.
//!
//! A *process* is a state machine without I/O: it handles events and returns actions, and never reads a clock, a
//! random number or a socket. Drivers (`faultline-sim`, `faultline-runtime`) own time, network, storage and failures.
//! The crate is `no_std`, so that a protocol cannot reach any of them even by mistake.
//!
//! | module | content |
//! | --- | --- |
//! | [`id`], [`time`] | newtypes for everything that is numbered |
//! | [`membership`] | which process runs where, and in which life |
//! | [`message`], [`image`] | application messages, and checkpoints as they reach stable storage |
//! | [`process`] | the one trait that a driver sees, with its events and actions |
//! | [`protocol`], [`application`] | the two state machines that make up a process |
//! | [`promises`] | what a protocol promises beyond the guarantees of every protocol |
//! | [`composite`] | how the operations of a protocol become actions and facts |
//! | [`node`] | the composition of a protocol and an application |
//! | [`counters`] | one number per process, sparse or dense |
//! | [`footprint`] | memory of values that share parts |
//! | [`claim`] | facts that only a protocol can know, in one file for each kind of protocol |
//! | [`names`] | the names of processes, clusters, groups and tasks |
//! | [`text`] | text of any form and length, as it is quoted |
//! | [`fact`] | facts about a run, on which triggers, the checker and all reports are based |
//! | [`observation`] | what a process observes about a user's own command |
//! | [`fault`] | faults, their triggers, and the outcome of a run |
#![no_std]

extern crate alloc;

pub mod application;
pub mod claim;
pub mod composite;
mod content;
pub mod counters;
mod defects;
pub mod fact;
pub mod fault;
pub mod footprint;
pub mod id;
pub mod image;
pub mod membership;
pub mod message;
pub mod names;
pub mod node;
pub mod observation;
pub mod operation;
pub mod process;
pub mod promises;
pub mod protocol;
pub mod text;
pub mod time;

pub use application::{Application, Digest, Job, Outbox, Progress};
pub use claim::{Breakage, BreakageKind, Cause, Claim, PartitionClaim, PhaseClaim, Vectors};
pub use composite::Composite;
pub use counters::Counters;
pub use fact::{Fact, FactKind, FactKinds, PlannedTask, TheftStep, Witness};
pub use fault::{EndedBy, Fault, PlannedFault, StorageFate, Target, Trigger};
pub use footprint::Footprint;
pub use id::{
    Attempt, CheckNo, ClusterId, DataId, FactNo, FaultNo, GroupId, HistoryNo, Incarnation, JobNo, Life,
    MembershipVersion, NodeId, Position, ProbeNo, ProcessId, Role, Sn, TaskId, Theft, Version, WatchNo,
};
pub use image::{Chunk, Image, ImageName, Snapshot};
pub use membership::{Boot, Cluster, LifeStart, Member, Membership, Presence, Scope};
pub use message::{MessageId, Payload, Short};
pub use names::RunNames;
pub use node::{Node, NodeConfig};
pub use observation::{CANNOT_TELL, Ending, LatencyOf, LinesOf, Observation, Source};
pub use process::{Action, Event, Gauges, Out, Packet, Process, To};
pub use promises::{Affected, FaultModel, Promise, Promises};
pub use protocol::{Host, Input, Machine, Protocol, ProtocolTypes, Stamp};
pub use time::{Span, Time};
