//! Rollback-recovery protocols as state machines without I/O, one module per protocol.
#![no_std]

extern crate alloc;

pub mod cck;
pub mod chandy_lamport;
pub mod coordinated;
mod frame;
pub mod full_logging;
mod global;
pub mod hc3i;
pub mod hydee;
pub mod independent;
mod machines;
pub mod none;
pub mod pessimistic_logging;
pub mod placement;
pub mod satin;
mod shared_list;
pub mod spbc;
pub mod theft;

pub use frame::{Control, Never};
pub use machines::logs::{
    AppAction, Channel, Content, Covered, Head, Late, LogSegmentNo, LogSize, Logged, Settled,
};
pub use machines::{
    ChannelReport, Checkpoint, Delivered, GroupHistory, History, InTransit, Interval, Log, LogEntry,
    LoggingOptions, Options, Received,
};
