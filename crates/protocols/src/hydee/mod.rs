//! HydEE: coordinated checkpoints inside a cluster, sender-based logging between clusters, and no event log.
//!
//! Guermouche, Ropars, Snir, Cappello: *HydEE: Failure Containment without Event Logging for Large Scale
//! Send-Deterministic MPI Applications* (2012). Only a failed cluster rolls back. Since the program is
//! send-deterministic, the cluster re-sends the messages that other clusters have received and whose sends were undone.
//! Until then, *phases* hold back all messages that depend on them. The rules R1 to R15 that the code cites are listed
//! in `docs/hydee.md`: the printed algorithms, completed for asynchronous processes. A [`Defect`] disables a rule, or
//! applies it as printed.
//!
//! | part | purpose |
//! | --- | --- |
//! | [`frame`] | a process: sending and receiving (section III-A, Algorithm 1; R3 to R6), checkpoints of the cluster and garbage collection (R7, R8) |
//! | [`phases`](crate::machines::phases) | phases (section III-A, Algorithm 1; R6), rounds (Algorithms 2 and 3; R9, R10, R13), and the recovery process (Algorithm 4; R1, R11, R12, R14) |
//! | [`logs`] | the state of a channel: counts and log (R2), its collection (R8), and moving it to stable storage above a limit (section V, future work; R15) |
//! | `coordinator`, `draining` | both sides of a checkpoint of the cluster (R7) |
//! | [`group`](crate::machines::group) | keeping checkpoints, and restoring the newest complete one of a failed cluster |

mod rules;

use faultline_core::{Promise, Scope};

pub use crate::machines::Checkpoint;
pub use crate::machines::group::{GroupMessage, RestoreNo};
pub use crate::machines::logs::{Channel, Content, Covered, Head, LogSegmentNo, LogSize, Logged, Settled};
pub use crate::machines::phases::{Orphan, Phase, Phases, RoundMessage};
pub use rules::{Defect, Defects, Rule};

use crate::frame::{self, AsTheyArrive, InPhases, LoggingProtocol, Never, logging_protocol};
use crate::machines::phases::RecoveryProcess;
use crate::machines::{LoggingOptions, logs};

/// Parameters of HydEE.
pub type Config = LoggingOptions<Defects>;

/// Messages between processes.
pub type Control = frame::Control<RoundMessage>;

/// The stamp of every message: its phase, and the incarnations of both clusters (R5).
pub type Stamp = logs::Stamp<Phase>;

logging_protocol! {
    /// One process under HydEE.
    Hydee, Phase, Phases
}

impl LoggingProtocol for Hydee {
    const SCOPE: Scope = Scope::Cluster;
    const PROMISES: &'static [Promise] = &[Promise::OrphansFirst, Promise::Phases];
    type Defects = Defects;
    type Channels = InPhases;
    type Deliveries = AsTheyArrive;
    type OrderMessage = Never;
    type Extra = RecoveryProcess;

    fn rules(defects: Defects) -> frame::Rules {
        rules::rules(defects)
    }
}
