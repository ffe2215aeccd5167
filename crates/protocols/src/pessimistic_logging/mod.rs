//! Pessimistic sender-based message logging with an event logger.
//!
//! Bouteiller, Cappello, Herault, Krawezik, Lemarinier, Magniette: *MPICH-V2: a Fault Tolerant MPI for Volatile Nodes
//! based on Pessimistic Sender Based Message Logging* (SC 2003); section 4.2 of Elnozahy, Alvisi, Wang, Johnson: *A
//! Survey of Rollback-Recovery Protocols in Message-Passing Systems* (2002). A process's actions depend only on the
//! order in which messages are delivered to it. The process reports each delivery to an event logger, and sends nothing
//! that depends on a delivery until the logger has confirmed that the delivery is stable. After a failure, the same
//! messages can therefore be delivered in the same order again, up to the last delivery whose consequences any other
//! process has seen. The messages are in their senders' logs. The rules M1 to M6 that the code cites are listed in
//! `docs/baselines.md`.
//!
//! | part | purpose |
//! | --- | --- |
//! | [`frame`] | a process: sending (M2), receiving (M4), its own checkpoints (M5), rollbacks (M3) |
//! | `order` | the order of a process's deliveries, as the process knows it (M1, M4) |
//! | `reporting` | exchanging this order with the event logger (M1 to M3, M5, M6) |
//! | `logger` | the event logger (M1, M3, M5, M6) |
//! | [`logs`] | the logs of messages, and their collection |
//! | [`Pairs`] | resuming channels after a failure |
//! | `group` | keeping and restoring the checkpoints of a process |

mod logger;
mod order;
mod reporting;

use alloc::sync::Arc;

use faultline_core::{ImageName, ProcessId, Promise, Scope};
use serde::{Deserialize, Serialize};

use crate::frame::{self, LoggingProtocol, logging_protocol};
use crate::machines::{ChannelReport, LoggingOptions, Pairs, logs, rules};
use logger::Logger;
use reporting::ReportedOrder;

/// Parameters of pessimistic logging.
pub type Config = LoggingOptions<Defects>;

rules! {
    /// A message is transmitted only once all deliveries before it are stable (M2).
    WaitsForStable, without
        /// A message is sent before the deliveries on which it depends are stable (M2).
        SendsBeforeStable;
    /// The event logger acknowledges a delivery only once it is durable (M1).
    AcknowledgesDurable, without
        /// The event logger acknowledges deliveries that are not durable yet (M1).
        AcknowledgesBeforeDurable;
    /// The order of deliveries is kept until a committed checkpoint contains them (M5).
    KeepsUntilCheckpoint, without
        /// The order of deliveries is removed as soon as it is stable (M5).
        ForgetsBeforeCheckpoint;
    /// After a rollback, messages are delivered in their original order (M4).
    RepeatsInOrder, without
        /// After a rollback, messages are delivered in the order of their arrival (M4).
        ReplaysInArrivalOrder;
    /// A message is delivered again only once its receiver has repeated the sends that preceded the delivery (M4).
    RepeatsAfterSends, without
        /// A message is delivered again before its receiver has repeated the sends that preceded the delivery (M4).
        RepeatsBeforeSends;
    /// A message that its receiver already has is not sent again or, if it is, not delivered again (M4, R5).
    SuppressesRepeated, without
        /// Messages that a re-execution repeats are sent and delivered again (M4, R5).
        RepeatedSentAgain;
    /// A new life of the event logger receives the data of the previous one again (M6).
    TellsNewLogger, without
        /// A new life of the event logger does not receive the data of the previous one (M6).
        NotToldAgain;
    /// Messages are transmitted only after both ends have exchanged the state of their channel (S3).
    MeetsFirst, without
        /// Messages are sent before both ends have reported the state of their channel (S3).
        SendsBeforeMeeting;
    /// A peer's report from before a failure is dropped (S3).
    DropsOlderMeeting, without
        /// A peer's report from before a failure is accepted after the failure (S3).
        OlderMeetingAccepted;
    /// The log is part of the checkpoint (R2).
    SavesLog, without
        /// The log is not part of the checkpoint (R2).
        LogOutsideCheckpoint;
    /// A suppressed message is logged like any other (S4).
    LogsSuppressed, without
        /// A suppressed message is not logged (S4).
        SuppressedNotLogged;
    /// A peer removes from its log only messages that a committed checkpoint contains (R8).
    CollectsAtCheckpoint, without
        /// Garbage collection uses the current counts instead of those at the checkpoint (R8).
        CollectsAtPresent;
}

/// One delivery: the message, and its place among the receiver's sends (M1). The number of the delivery follows from
/// the determinant's place in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Determinant {
    /// Sender of the message.
    pub from: ProcessId,
    /// Number of the message on its channel.
    pub number: u32,
    /// Number of messages that the receiver had sent before the delivery.
    pub sent: u64,
}

/// The event logger's answer about the deliveries that a process has to repeat (M3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Recalled {
    /// The deliveries, starting with `first`.
    Order {
        /// Number of the first delivery, as requested.
        first: u64,
        /// The deliveries, in order.
        determinants: Arc<[Determinant]>,
    },
    /// The logger's storage was lost, and the process failed before it could report again.
    Lost,
    /// The deliveries were removed because a committed checkpoint contains them. The process should have restored this
    /// checkpoint.
    Forgotten {
        /// The checkpoint that contains the deliveries.
        by: Option<ImageName>,
    },
}

/// Messages between a process and the event logger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LoggerMessage {
    /// From a process: its new deliveries (M1).
    Log {
        /// Number of the first delivery.
        first: u64,
        /// The deliveries, in order.
        determinants: Arc<[Determinant]>,
    },
    /// From the event logger: all deliveries before `upto` are stable (M1).
    Logged {
        /// The first delivery that is not stable.
        upto: u64,
    },
    /// From a process: all of its deliveries that no checkpoint contains (M6).
    Know {
        /// Number of the first delivery.
        first: u64,
        /// The deliveries, in order.
        determinants: Arc<[Determinant]>,
    },
    /// From a process: a committed checkpoint contains all deliveries before `below` (M5).
    Forget {
        /// The first delivery that the checkpoint does not contain.
        below: u64,
        /// Name of the checkpoint's part.
        by: Option<ImageName>,
    },
    /// From a process, after a rollback: a request for the deliveries to repeat (M3).
    Recall {
        /// Number of the first delivery to repeat.
        first: u64,
    },
    /// From the event logger: the answer to [`LoggerMessage::Recall`].
    Recalled(Recalled),
}

/// Messages between processes.
pub type Control = frame::Control<ChannelReport, LoggerMessage>;

/// The stamp of every message. A message's number within its channel is part of the message's identity.
pub type Stamp = logs::Stamp<()>;

logging_protocol! {
    /// One process under pessimistic logging.
    PessimisticLogging, (), ()
}

impl LoggingProtocol for PessimisticLogging {
    const SCOPE: Scope = Scope::Process;
    const PROMISES: &'static [Promise] = &[Promise::RepeatedOrder];
    type Defects = Defects;
    type Channels = Pairs;
    type Deliveries = ReportedOrder;
    type OrderMessage = LoggerMessage;
    type Extra = Logger;

    fn rules(defects: Defects) -> frame::Rules {
        let obeys = |rule| defects.obeys(rule);
        let mut rules = frame::Rules::ALL;
        rules.rank.drops_duplicates = obeys(Rule::SuppressesRepeated);
        rules.rank.collects_at_checkpoint = obeys(Rule::CollectsAtCheckpoint);
        rules.logs.suppresses = obeys(Rule::SuppressesRepeated);
        rules.logs.saves_log = obeys(Rule::SavesLog);
        rules.logs.logs_suppressed = obeys(Rule::LogsSuppressed);
        rules.pairs.waits = obeys(Rule::MeetsFirst);
        rules.pairs.drops_older = obeys(Rule::DropsOlderMeeting);
        rules
    }
}
