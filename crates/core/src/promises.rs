//! What a protocol promises. The supervisor, the checker and the reports read promises, and never ask which protocol it is.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::membership::Scope;
use crate::protocol::Protocol;

/// Something that a protocol promises beyond what every protocol owes. The checker judges a promise only under a protocol
/// that makes it; what every protocol owes (exactly once, no loss, no ghost, consistent checkpoints, …) is nobody's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Promise {
    /// The protocol takes checkpoints: a run that completes holds at least one.
    Checkpoints,
    /// The checkpoints of a group are numbered one by one. Without it numbers only grow: an index-based protocol may skip some.
    DenseNumbering,
    /// A rollback restores the newest checkpoint that holds nothing undone, and no group rolls back without need.
    MaximalLine,
    /// A message that brings news of its sender's checkpoints is delivered only after the checkpoint that it forces. The
    /// vectors of a checkpoint say what it knows.
    ForcedBeforeDelivery,
    /// Only a group in which a process failed rolls back, and only as often as its processes failed.
    Containment,
    /// A re-execution sends the messages that the execution sent, under the same identities, so that a delivery stays valid
    /// although its send was undone. Follows from [`Protocol::REPEATS`].
    Repetition,
    /// Until a process that rolled back has sent an orphan message again, it is delivered no message of a later phase.
    OrphansFirst,
    /// The phase that a process reports with an orphan message follows from what the message's sender had consumed.
    Phases,
    /// A process that rolled back is delivered the same messages in the same order again, as far as others depend on it.
    RepeatedOrder,
    /// A sender keeps a logged message until a checkpoint of its receiver holds it.
    LogKept,
}

impl Promise {
    /// Every promise, in the order of declaration.
    pub const ALL: [Promise; 10] = [
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
    ];
}

/// What a protocol promises: which processes roll back together, and a set of [`Promise`]s.
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
    /// Which ranks take checkpoints together, and roll back together.
    pub scope: Scope,
    properties: u32,
}

impl Promises {
    /// Promises nothing beyond what every protocol owes; `scope` rolls back together.
    pub const fn of_scope(scope: Scope) -> Promises {
        Promises { scope, properties: 0 }
    }

    /// What `P` promises with these parameters: what it declares ([`Protocol::promises`]), and what follows from its
    /// constants.
    pub fn of<P: Protocol>(config: &P::Config) -> Promises {
        let declared = P::promises(config);
        if P::REPEATS { declared.with(&[Promise::Repetition]) } else { declared }
    }

    /// The same, and these.
    #[must_use]
    pub const fn with(mut self, promises: &[Promise]) -> Promises {
        let mut index = 0;
        while index < promises.len() {
            self.properties |= 1 << promises[index] as u32;
            index += 1;
        }
        self
    }

    /// The same, but for this one.
    #[must_use]
    pub const fn without(mut self, promise: Promise) -> Promises {
        self.properties &= !(1 << promise as u32);
        self
    }

    /// Whether `promise` is among them.
    pub const fn include(self, promise: Promise) -> bool {
        self.properties & 1 << promise as u32 != 0
    }
}

/// As written in a manifest, where people read it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Listed {
    scope: Scope,
    properties: Vec<Promise>,
}

impl From<Listed> for Promises {
    fn from(listed: Listed) -> Promises {
        Promises::of_scope(listed.scope).with(&listed.properties)
    }
}

impl From<Promises> for Listed {
    fn from(promises: Promises) -> Listed {
        let properties = Promise::ALL.into_iter().filter(|&it| promises.include(it)).collect();
        Listed { scope: promises.scope, properties }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_promise_is_one_of_its_own() {
        let none = Promises::of_scope(Scope::Cluster);
        for (index, &promise) in Promise::ALL.iter().enumerate() {
            assert_eq!(promise as usize, index, "{promise:?} is listed in its place");
            let one = none.with(&[promise]);
            for other in Promise::ALL {
                assert_eq!(one.include(other), other == promise);
            }
            assert_eq!(one.without(promise), none);
        }
    }

    #[test]
    fn promises_survive_the_list_that_people_read() {
        let all = Promises::of_scope(Scope::Process).with(&Promise::ALL);
        assert_eq!(Promises::from(Listed::from(all)), all);
        assert_eq!(Listed::from(all).properties, Promise::ALL);
    }
}
