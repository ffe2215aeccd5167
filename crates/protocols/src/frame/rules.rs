//! The rules of logging protocols. Tests can disable each of them.

use crate::machines::group;
use crate::machines::logs::LogRules;
use crate::machines::phases::{PhaseRules, RecoveryRules, RoundRules};
use crate::machines::{DrainRules, PairRules};

/// The rules of the frame and of its sub-machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) group: group::Rules,
    pub(crate) rank: RankRules,
    pub(crate) logs: LogRules,
    pub(crate) draining: DrainRules,
    pub(crate) phases: PhaseRules,
    pub(crate) rounds: RoundRules,
    pub(crate) recovery: RecoveryRules,
    pub(crate) pairs: PairRules,
}

impl Rules {
    /// All rules are obeyed.
    pub(crate) const ALL: Rules = Rules {
        group: group::Rules::ALL,
        rank: RankRules::ALL,
        logs: LogRules::ALL,
        draining: DrainRules::ALL,
        phases: PhaseRules::ALL,
        rounds: RoundRules::ALL,
        recovery: RecoveryRules::ALL,
        pairs: PairRules::ALL,
    };
}

/// The rules of a process that runs the application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankRules {
    /// A message from an older incarnation of its sender's group is dropped (R5).
    pub(crate) drops_undone: bool,
    /// A message to an older incarnation of its receiver's group is dropped (R5).
    pub(crate) drops_lost: bool,
    /// A message that has already been received is dropped (R5).
    pub(crate) drops_duplicates: bool,
    /// A peer removes from its log only messages that a checkpoint contains (R8).
    pub(crate) collects_at_checkpoint: bool,
    /// Peers learn which messages a checkpoint contains only once it is committed (R8).
    pub(crate) collects_after_commit: bool,
}

impl RankRules {
    const ALL: RankRules = RankRules {
        drops_undone: true,
        drops_lost: true,
        drops_duplicates: true,
        collects_at_checkpoint: true,
        collects_after_commit: true,
    };
}
