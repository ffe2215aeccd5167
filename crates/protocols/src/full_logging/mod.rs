//! Full logging: every sender logs every message, and only the failed process rolls back.
//!
//! This is the limiting case with which Guermouche, Ropars, Snir and Cappello (*HydEE: Failure Containment
//! without Event Logging for Large Scale Send-Deterministic MPI Applications*, 2012) compare their protocol:
//! each process is a cluster. A process takes checkpoints alone, and no order of deliveries is stored. Since
//! the program is send-deterministic, a process that rolls back re-sends the messages that others have
//! received; until it has done so, phases hold back every message that depends on them. The rules that the
//! code cites are listed in `docs/hydee.md`.
//!
//! | part | purpose |
//! | --- | --- |
//! | [`frame`] | a process: sending (R3, R4), receiving (R5, R6), its own checkpoints (R7), rollbacks (R9) |
//! | [`phases`](crate::machines::phases) | phases (R6), rounds (R9, R10, R13), and the recovery process (R1, R11, R12, R14) |
//! | [`logs`] | the logs of messages (R2), their collection (R8), and moving them to stable storage (R15) |
//! | [`group`](crate::machines::group) | keeping and restoring the checkpoints of a process |

use faultline_core::{Promise, Scope};

use crate::frame::{self, AsTheyArrive, InPhases, LoggingProtocol, Never, logging_protocol};
use crate::machines::phases::{Phase, Phases, RecoveryProcess, RoundMessage};
use crate::machines::{LoggingOptions, logs};

/// Parameters of full logging.
pub type Config = LoggingOptions<()>;

/// Messages between processes.
pub type Control = frame::Control<RoundMessage>;

/// The stamp of every message: its phase, and the incarnations of both processes (R5).
pub type Stamp = logs::Stamp<Phase>;

logging_protocol! {
    /// One process under full logging.
    FullLogging, Phase, Phases
}

impl LoggingProtocol for FullLogging {
    const SCOPE: Scope = Scope::Process;
    const PROMISES: &'static [Promise] = &[Promise::OrphansFirst, Promise::Phases];
    type Defects = ();
    type Channels = InPhases;
    type Deliveries = AsTheyArrive;
    type OrderMessage = Never;
    type Extra = RecoveryProcess;

    fn rules((): ()) -> frame::Rules {
        frame::Rules::ALL
    }
}
