//! The rules of logging protocols. Tests can disable each of them.

use crate::machines::group;
use crate::machines::logs::LogRules;
use crate::machines::phases::{PhaseRules, RecoveryRules, RoundRules};
use crate::machines::{DrainRules, PairRules};

/// The rules of the frame and of its sub-machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Number of replicas of each part that are omitted: 0, unless a defect omits some.
    pub(crate) omitted_replicas: u16,
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
        omitted_replicas: 0,
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
    /// A message that arrives during its receiver's restore is received later.
    pub(crate) keeps_arrivals: bool,
    /// A suppressed message is not transmitted (R3).
    pub(crate) withholds_suppressed: bool,
    /// Messages that wait for the end of a checkpoint are then transmitted.
    pub(crate) sends_held: bool,
    /// Actions of the application that have not taken effect are kept while its state is saved (R2).
    pub(crate) keeps_actions: bool,
    /// Actions of the application that have not taken effect are part of the checkpoint (R2).
    pub(crate) saves_actions: bool,
    /// A peer removes from its log only messages that a checkpoint contains (R8).
    pub(crate) collects_at_checkpoint: bool,
    /// Peers learn which messages a checkpoint contains only once it is committed (R8).
    pub(crate) collects_after_commit: bool,
    /// A checkpoint waits for all members of the group (R7).
    pub(crate) awaits_all: bool,
    /// The checkpoint timer is restarted after a commit.
    pub(crate) restarts_timer: bool,
    /// Checkpoints are taken no more often than requested.
    pub(crate) spaces_checkpoints: bool,
}

impl RankRules {
    const ALL: RankRules = RankRules {
        drops_undone: true,
        drops_lost: true,
        drops_duplicates: true,
        keeps_arrivals: true,
        withholds_suppressed: true,
        sends_held: true,
        keeps_actions: true,
        saves_actions: true,
        collects_at_checkpoint: true,
        collects_after_commit: true,
        awaits_all: true,
        restarts_timer: true,
        spaces_checkpoints: true,
    };
}
