//! Phases: after a failure, no message is sent before the orphan messages on which it may depend.
//!
//! A group that rolls back undoes sends of messages that other groups have received: *orphans*. In a send-deterministic
//! program, the group sends them again. Until then, phases hold back all messages that depend on them (Guermouche,
//! Ropars, Snir, Cappello: *HydEE: Failure Containment without Event Logging for Large Scale Send-Deterministic MPI
//! Applications*, 2012, section III). The phase of a message is greater than those of all messages between groups on
//! which it depends. A *round* of recovery, directed by a recovery process, sends the messages of the smallest phases
//! first. The rules R1 to R14 are listed in `docs/hydee.md`.
//!
//! | file | contents |
//! | --- | --- |
//! | this file | the phases of a process and of the messages that it has received (Algorithm 1; R6) |
//! | `rounds` | a process's side of a round (Algorithms 2 and 3; R3, R9, R10, R13) |
//! | `recovery_process` | the recovery process (Algorithm 4; R1, R11, R12, R14) |

mod recovery_process;
mod rounds;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use faultline_core::{GroupId, MembershipVersion, MessageId, ProcessId};
use serde::{Deserialize, Serialize};

use super::logs::Covered;
pub(crate) use recovery_process::{RecoveryProcess, RecoveryRules};
pub(crate) use rounds::{RoundRules, Rounds};

/// The phase of a message or of a process.
pub type Phase = u32;

/// A received message whose send was undone by a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// Identity of the message.
    pub id: MessageId,
    /// Phase of the message, as its receiver recorded it.
    pub phase: Phase,
}

/// A message of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RoundMessage {
    /// From the recovery process: a round begins for these groups (R1).
    Begin {
        /// Number of the round.
        epoch: u64,
        /// The membership that the round assumes. A message is lost if its sender does not know the
        /// receiver's life.
        membership: MembershipVersion,
        /// The set F: groups that have failed since the last closed round.
        failed: Arc<[GroupId]>,
    },
    /// From one process to another: the state of the channels between them. Sent if the group of either process has
    /// failed (R9).
    Sync {
        /// Number of the round.
        epoch: u64,
        /// Current counts of the channels.
        present: Covered,
        /// Counts at the sender's last committed checkpoint.
        committed: Covered,
    },
    /// From a process to the recovery process: the sender's orphans (R10).
    Report {
        /// Number of the round.
        epoch: u64,
        /// The sender's orphans with their phases.
        orphans: Arc<[Orphan]>,
    },
    /// From the recovery process: messages up to this phase, or all messages, may be sent (R11).
    Level {
        /// Number of the round.
        epoch: u64,
        /// Smallest phase of an outstanding orphan; `None` if no orphan is left.
        level: Option<Phase>,
    },
    /// From a process to the recovery process: it has re-sent this orphan (R3).
    Replayed {
        /// Number of the round.
        epoch: u64,
        /// The orphan, with its phase in the re-execution.
        orphan: Orphan,
    },
}

/// The phase of a process, and those of the messages that it has received. Part of every checkpoint (R2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    phase: Phase,
    channels: BTreeMap<ProcessId, Received>,
}

/// The phases of the messages from one peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Received {
    /// Phases, by message number, of received messages that may become orphans (the paper's RPP). Empty if
    /// the peer is in the same group.
    receipts: BTreeMap<u32, Phase>,
    /// Phases to which unconsumed messages will raise the process's own phase when they are consumed, by
    /// message number (R6).
    unfolded: BTreeMap<u32, Phase>,
}

/// The rules of phases. Tests can disable each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseRules {
    /// A message raises the phase when it is consumed, not when it arrives.
    pub(crate) at_consumption: bool,
}

impl PhaseRules {
    /// All rules are obeyed.
    pub(crate) const ALL: PhaseRules = PhaseRules { at_consumption: true };
}

impl Default for Phases {
    fn default() -> Self {
        Phases { phase: 1, channels: BTreeMap::new() }
    }
}

impl Phases {
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Records the phase of a message that is being received. `is_inside` indicates whether it is from the process's
    /// own group.
    pub(crate) fn received(&mut self, id: MessageId, phase: Phase, is_inside: bool, rules: PhaseRules) {
        let received = self.channels.entry(id.from).or_default();
        if !is_inside {
            received.receipts.insert(id.number, phase);
        }
        let contribution = if is_inside { phase } else { phase + 1 };
        if rules.at_consumption {
            received.unfolded.insert(id.number, contribution);
        } else {
            self.phase = self.phase.max(contribution);
        }
    }

    /// Raises the phase when the application consumes a message, not when the message arrives (R6).
    pub(crate) fn consumed(&mut self, id: MessageId) {
        let contribution = self.channels.get_mut(&id.from).and_then(|it| it.unfolded.remove(&id.number));
        self.phase = self.phase.max(contribution.unwrap_or(0));
    }

    /// Records that the peer's checkpoint contains its sends below `sent`, which can no longer become orphans (R8).
    pub(crate) fn settled(&mut self, peer: ProcessId, sent: u32) {
        if let Some(received) = self.channels.get_mut(&peer) {
            received.receipts = received.receipts.split_off(&sent);
        }
    }

    /// Returns the peer's messages whose sends were undone: those received and numbered `first` or higher
    /// (R10).
    fn orphans(&self, peer: ProcessId, me: ProcessId, first: u32) -> impl Iterator<Item = Orphan> + '_ {
        let receipts = self.channels.get(&peer).into_iter().flat_map(move |it| it.receipts.range(first..));
        receipts.map(move |(&number, &phase)| {
            let incarnation = faultline_core::Incarnation(0);
            Orphan { id: MessageId { from: peer, to: me, incarnation, number }, phase }
        })
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::Incarnation;

    use super::*;

    fn message(number: u32) -> MessageId {
        MessageId { from: ProcessId(1), to: ProcessId(0), incarnation: Incarnation(0), number }
    }

    #[test]
    fn a_message_raises_the_phase_when_it_is_consumed() {
        let mut phases = Phases::default();
        phases.received(message(0), 4, false, PhaseRules::ALL);
        assert_eq!(phases.phase(), 1);
        phases.consumed(message(0));
        assert_eq!(phases.phase(), 5, "from another group: one more");
        phases.received(message(1), 9, true, PhaseRules::ALL);
        phases.consumed(message(1));
        assert_eq!(phases.phase(), 9, "from its own group: the same");
        phases.consumed(message(1));
        assert_eq!(phases.phase(), 9);
    }

    #[test]
    fn a_message_that_will_not_be_sent_again_is_not_an_orphan() {
        let mut phases = Phases::default();
        (0..3).for_each(|it| phases.received(message(it), it + 1, false, PhaseRules::ALL));
        let orphans = |phases: &Phases, first| {
            phases
                .orphans(ProcessId(1), ProcessId(0), first)
                .map(|it| it.phase)
                .collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(orphans(&phases, 1), [2, 3]);
        phases.settled(ProcessId(1), 2);
        assert_eq!(orphans(&phases, 0), [3]);
    }
}
