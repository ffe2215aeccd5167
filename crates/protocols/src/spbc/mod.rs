//! SPBC: coordinated checkpoints inside a cluster, sender-based logging between clusters, and recovery by pairs of
//! processes.
//!
//! Ropars, Martsinkevich, Guermouche, Schiper, Cappello: *SPBC: Leveraging the Characteristics of MPI HPC Applications
//! for Scalable Checkpointing* (SC 2013). Only a failed cluster rolls back. Since the program is channel-deterministic,
//! the cluster repeats the messages of each channel, regardless of the order in which messages arrive on other
//! channels. Messages that other clusters already have are suppressed; messages that the failed cluster had received
//! are re-sent from their senders' logs. The rules S1 to S5, R2, R5, R7, R8 and R15 that the code cites are listed in
//! `docs/baselines.md` and `docs/hydee.md`.
//!
//! | part | purpose |
//! | --- | --- |
//! | [`frame`] | a process: sending and receiving (S1, R5), checkpoints of the cluster (R7), rollbacks |
//! | [`logs`] | the logs of the messages to other clusters, and their collection (R8, R15) |
//! | [`Pairs`] | resuming channels after a failure (S3 to S5) |
//! | `coordinator`, `draining` | both sides of a checkpoint of the cluster (R7) |
//! | `group` | keeping checkpoints, and restoring the newest complete one of a failed cluster |

use faultline_core::{Promise, Scope};

use crate::frame::{self, AsTheyArrive, LoggingProtocol, Never, logging_protocol};
use crate::machines::{ChannelReport, LoggingOptions, Pairs, logs, rules};

/// Parameters of SPBC.
pub type Config = LoggingOptions<Defects>;

rules! {
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
    /// Messages from older incarnations of a cluster are dropped (R5).
    DropsOlderLives, without
        /// Messages from older incarnations of a cluster are accepted (R5).
        NoLifeCheck;
}

/// Messages between processes.
pub type Control = frame::Control<ChannelReport>;

/// The stamp of every message. A message's number within its channel is part of the message's identity (S1).
pub type Stamp = logs::Stamp<()>;

logging_protocol! {
    /// One process under SPBC.
    Spbc, (), ()
}

impl LoggingProtocol for Spbc {
    const SCOPE: Scope = Scope::Cluster;
    const PROMISES: &'static [Promise] = &[];
    type Defects = Defects;
    type Channels = Pairs;
    type Deliveries = AsTheyArrive;
    type OrderMessage = Never;
    type Extra = Never;

    fn rules(defects: Defects) -> frame::Rules {
        let obeys = |rule| defects.obeys(rule);
        let mut rules = frame::Rules::ALL;
        rules.rank.drops_undone = obeys(Rule::DropsOlderLives);
        rules.rank.drops_lost = obeys(Rule::DropsOlderLives);
        rules.rank.collects_at_checkpoint = obeys(Rule::CollectsAtCheckpoint);
        rules.logs.saves_log = obeys(Rule::SavesLog);
        rules.logs.logs_suppressed = obeys(Rule::LogsSuppressed);
        rules.pairs.waits = obeys(Rule::MeetsFirst);
        rules.pairs.drops_older = obeys(Rule::DropsOlderMeeting);
        rules
    }
}
