//! The promises of a protocol. The supervisor, the checker and the reports depend on promises, never on the
//! protocol's name.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::membership::Scope;
use crate::protocol::Protocol;

/// A property that a protocol promises beyond the guarantees of every protocol. The checker judges it only under
/// protocols that promise it. The properties that every protocol must have (exactly once, no loss, no ghost,
/// consistent checkpoints, …) are not optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Promise {
    /// The protocol takes checkpoints: a run that completes contains at least one.
    Checkpoints,
    /// The checkpoints of a group are numbered consecutively. Without this promise, the numbers still increase from one
    /// checkpoint to the next, but may have gaps, as in index-based protocols.
    DenseNumbering,
    /// A rollback restores the newest checkpoint that contains no delivery of a message whose send was undone.
    MaximalLine,
    /// A message that carries a newer position than those in the receiver's dependencies is delivered only after
    /// the checkpoint that it forces. The vectors of a checkpoint record its dependencies.
    ForcedBeforeDelivery,
    /// Only a group in which a process failed rolls back, and at most once for each failure of one of its processes.
    Containment,
    /// A re-execution sends the same messages as the original execution, under the same identities, so a delivery stays
    /// valid even if its send was undone. Follows from [`Protocol::REPEATS`].
    Repetition,
    /// A process that rolled back delivers no message of a later phase until it has re-sent its orphan
    /// messages of earlier phases.
    OrphansFirst,
    /// The phase that a process reports with an orphan message follows from the messages that the sender had
    /// consumed before sending it.
    Phases,
    /// A process that rolled back repeats its deliveries: it delivers the same messages in the same order, to
    /// the extent that other processes depend on that order.
    RepeatedOrder,
    /// A sender keeps a logged message until a checkpoint of its receiver contains it.
    LogKept,
    /// In a task-based program, a process sends a stolen task only after a durable checkpoint that contains the theft,
    /// and a result only after one that contains the result. It confirms a result, which the sender may then discard,
    /// only after a durable checkpoint that contains the result.
    CheckpointedFirst,
    /// In a task-based program, only thefts, recoveries and the end of the program force checkpoints. A theft forces
    /// one at the victim, and one at the thief.
    ForcedByThefts,
    /// In a task-based program, a process logs every event of its tasks as soon as earlier writes are complete. A
    /// failure loses no event that is durable.
    EventsLogged,
    /// In a task-based program whose tasks are assigned in advance, only partitions that exchange values coordinate a
    /// checkpoint, which takes two messages for each partition and three for each channel.
    NeighboursOnly,
    /// In a task-based program whose tasks are assigned in advance, a recovery re-executes exactly the tasks whose
    /// values were lost and the tasks on which these depend, back to the valid checkpoint.
    StrictlyRequired,
    /// The checkpoint that a group restores is durable at every holder before any process of the group
    /// resumes.
    DurableRestore,
    /// A process that lost its storage reports in time that the storage is complete again ([`Claim::Protected`]).
    Refill,
    /// After the last fault, every recovery and every checkpoint ends, no group rolls back again, and the
    /// application continues.
    Progress,
    /// Only messages that carry new information about their sender's checkpoints force checkpoints.
    ForcedByNews,
}

impl Promise {
    /// Every promise, in the order of declaration.
    pub const ALL: [Promise; 19] = [
        Promise::Checkpoints,
        Promise::DenseNumbering,
        Promise::MaximalLine,
        Promise::ForcedBeforeDelivery,
        Promise::Containment,
        Promise::Repetition,
        Promise::OrphansFirst,
        Promise::Phases,
        Promise::RepeatedOrder,
        Promise::LogKept,
        Promise::CheckpointedFirst,
        Promise::ForcedByThefts,
        Promise::EventsLogged,
        Promise::NeighboursOnly,
        Promise::StrictlyRequired,
        Promise::DurableRestore,
        Promise::Refill,
        Promise::Progress,
        Promise::ForcedByNews,
    ];
}

/// The groups that a failure rolls back in addition to those in which a process failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Affected {
    /// Groups that had delivered a message whose send was undone.
    #[default]
    Dependents,
    /// Any group: the protocol restores the recovery line that its checkpoint numbers define, as index-based
    /// protocols do. Each failure rolls back a group at most once.
    Line,
}

/// The failures that a protocol survives, provided that every part of its checkpoints has an intact copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultModel {
    /// Any number of failures: everything that a recovery needs is in stable storage.
    #[default]
    Stable,
    /// At most this many processes may have failed or be recovering at the same time. Each of them loses something that
    /// other recoveries need, such as a log in memory. If more processes fail, the protocol may be unable to recover.
    Volatile {
        /// The number of processes.
        failures: u32,
    },
}

/// The promises of a protocol: which processes roll back together, which other groups a failure affects,
/// which failures the protocol survives, and a set of [`Promise`]s.
///
/// ```
/// use faultline_core::{Promise, Promises, Scope};
///
/// let promises = Promises::of_scope(Scope::Process).with(&[Promise::Checkpoints, Promise::MaximalLine]);
/// assert!(promises.include(Promise::MaximalLine));
/// assert!(!promises.include(Promise::DenseNumbering));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Listed", into = "Listed")]
pub struct Promises {
    /// The unit that takes checkpoints and rolls back together.
    pub scope: Scope,
    /// The groups that a failure rolls back in addition to those in which a process failed.
    pub affected: Affected,
    /// The failures that the protocol survives.
    pub survives: FaultModel,
    properties: u32,
}

impl Promises {
    /// Creates promises with groups of this scope, and without any [`Promise`].
    pub const fn of_scope(scope: Scope) -> Promises {
        Promises { scope, affected: Affected::Dependents, survives: FaultModel::Stable, properties: 0 }
    }

    /// Returns the promises of `P` with these parameters: those that it declares ([`Protocol::promises`]) and those
    /// that follow from its constants.
    pub fn of<P: Protocol>(config: &P::Config) -> Promises {
        let declared = P::promises(config);
        if P::repeats(config) { declared.with(&[Promise::Repetition]) } else { declared }
    }

    /// Returns these promises with `promises` added.
    #[must_use]
    pub const fn with(mut self, promises: &[Promise]) -> Promises {
        let mut index = 0;
        while index < promises.len() {
            self.properties |= 1 << promises[index] as u32;
            index += 1;
        }
        self
    }

    /// Returns these promises with `affected` as the additional groups that a failure rolls back.
    #[must_use]
    pub const fn affecting(self, affected: Affected) -> Promises {
        Promises { affected, ..self }
    }

    /// Returns these promises with `survives` as the failures that the protocol survives.
    #[must_use]
    pub const fn surviving(self, survives: FaultModel) -> Promises {
        Promises { survives, ..self }
    }

    /// Returns these promises without `promise`.
    #[must_use]
    pub const fn without(mut self, promise: Promise) -> Promises {
        self.properties &= !(1 << promise as u32);
        self
    }

    /// Returns whether `promise` is included.
    pub const fn include(self, promise: Promise) -> bool {
        self.properties & 1 << promise as u32 != 0
    }
}

/// The form that promises take in a manifest: a list of names instead of bits.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Listed {
    scope: Scope,
    #[serde(default, skip_serializing_if = "is_default")]
    affected: Affected,
    #[serde(default, skip_serializing_if = "is_default")]
    survives: FaultModel,
    properties: Vec<Promise>,
}

fn is_default<T: Default + PartialEq>(it: &T) -> bool {
    *it == T::default()
}

impl From<Listed> for Promises {
    fn from(listed: Listed) -> Promises {
        let Listed { scope, affected, survives, properties } = listed;
        Promises::of_scope(scope).affecting(affected).surviving(survives).with(&properties)
    }
}

impl From<Promises> for Listed {
    fn from(promises: Promises) -> Listed {
        let properties = Promise::ALL.into_iter().filter(|&it| promises.include(it)).collect();
        let Promises { scope, affected, survives, .. } = promises;
        Listed { scope, affected, survives, properties }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_independent_of_each_other() {
        let none = Promises::of_scope(Scope::Cluster);
        for (index, &promise) in Promise::ALL.iter().enumerate() {
            assert_eq!(promise as usize, index, "{promise:?} is listed in order of declaration");
            let one = none.with(&[promise]);
            for other in Promise::ALL {
                assert_eq!(one.include(other), other == promise);
            }
            assert_eq!(one.without(promise), none);
        }
    }

    #[test]
    fn promises_survive_conversion_to_names_and_back() {
        let all = Promises::of_scope(Scope::Process).with(&Promise::ALL).affecting(Affected::Line);
        let all = all.surviving(FaultModel::Volatile { failures: 1 });
        assert_eq!(Promises::from(Listed::from(all)), all);
        assert_eq!(Listed::from(all).properties, Promise::ALL);
    }
}
