//! Turns the facts of a run into one model: lives, messages and their fates, checkpoints, rollbacks with their causes
//! and extents, faults, tasks, and lost work. The checker, the account of a run and all reports are views of it.
//!
//! This crate makes no judgements. From the composite's facts it rebuilds what every process had sent and delivered at
//! every cut ([`History`]). Clocks do not order facts of different processes, so facts are related by streams,
//! restores, message identities and incarnations. A protocol's reports about itself ([`faultline_core::Claim`]) are
//! kept as claims; they never become part of the state.
//!
//! A history is built from all facts, once the run has ended: until then, a rollback can still undo any delivery. It needs
//! 80 to 250 bytes of memory per fact, which the memory limit of every program includes. The page of a run in progress is
//! drawn from a new history of all facts so far.
//!
//! | module | contents |
//! | --- | --- |
//! | [`mod@account`] | the cost of a run |
//! | [`activity`] | when each process worked, was frozen, and finished |
//! | [`availability`] | probes of a user's own system: samples, outages, recoveries after faults |
//! | `build` | one pass over every stream |
//! | `context` | information about a run beyond its facts |
//! | [`clients`] | the operations of clients |
//! | [`expected`] | what the federation expects, compared with the run |
//! | `contradiction` | rules that a record violates |
//! | `groups` | checkpoints and rollbacks of the processes that take checkpoints together |
//! | `segments` | the states of a process |
//! | `history` | the history as a whole |
//! | [`lines`] | the lines that watches found, and when they followed each other |
//! | [`lost`] | the work that the rollbacks of a process undid |
//! | `messages` | every message with its sends, stamps and deliveries |
//! | [`ledger`] | where the time of every process went |
//! | [`outages`] | what failures and the recoveries from them cost |
//! | `planned` | planned programs, whose tasks are assigned to partitions in advance |
//! | [`recoveries`] | the cost of recoveries of planned programs |
//! | `hosting` | the facts of each partition |
//! | `standing` | the states of processes at the end of the facts |
//! | `stored` | the parts that are stored at the end of the run |
//! | `supervision` | the supervisor's actions |
//! | `tasks` | programs whose tasks are stolen |
//! | `transit` | the time that links need for what may still be in transit |
//! | `testing` | small traces for tests (development builds only) |

pub mod account;
pub mod activity;
pub mod availability;
mod build;
pub mod clients;
mod context;
mod contradiction;
pub mod expected;
mod flips;
mod groups;
mod history;
mod hosting;
pub mod ledger;
pub mod lines;
pub mod lost;
mod messages;
pub mod outages;
mod planned;
pub mod recoveries;
pub mod redundant;
mod segments;
mod standing;
mod stored;
mod supervision;
mod tasks;
#[cfg(debug_assertions)]
pub mod testing;
mod transit;

pub use account::{Account, account};
pub use activity::{Activity, Fate};
pub use context::Context;
pub use contradiction::Contradiction;
pub use faultline_core::GroupId;
pub use flips::Corruption;
pub use groups::{Checkpoint, CheckpointName, Commit, Group, Groups, Part, RestoredBy, Rollback, StoredCopy};
pub use history::History;
pub use history::{BetweenDelivery, Claimed};
pub use ledger::{Ledger, ProcessTime, TimeByPart, TimePart};
pub use messages::{Message, MessageNo, Messages, Points};
pub use outages::Outage;
pub use planned::{Ceded, Joined, Planned, Removed, Rerun, Task};
pub use segments::{Ending, Point, ProcessHistory, Segment, SegmentNo, Source, Sums, Witnessed};
pub use standing::Standing;
pub use supervision::{LifeEnd, Supervision};
pub use tasks::{Absorption, End, ImpossibleFact, Step, Tasks};
