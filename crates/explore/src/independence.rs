//! Independence of choices: two choices are independent if both orders lead to the same state.
//!
//! A search that explores every order nevertheless performs independent choices in only one of their orders.
//! It is a search with sleep sets (P. Godefroid, "Partial-Order Methods for the Verification of Concurrent
//! Systems", 1996). After a choice that a state offers has been performed, it is put to sleep: it is not performed in
//! the states that follow later choices, until a choice that depends on it has been performed.
//!
//! This omits steps, but no states, and all states are reached by the same runs as in a search that omits nothing. Runs
//! are ordered by length, and runs of the same length by the order in which states offer choices. The search keeps the
//! first run to each state. A run that performs a sleeping choice leads to the same state as the run in which this
//! choice is earlier, which comes first in the order. The first run to a state therefore performs no sleeping choice.

use faultline_core::{ProcessId, StorageFate};

use crate::state::{Choice, Choices, Output, State};
use crate::tables::{Body, Return, Tables};

/// A choice without references to the state that offers it, and the parts of the state that the choice
/// changes. If every order is explored, two pending steps with the same number lead to the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    kind: Kind,
    /// The process whose state changes.
    process: Option<ProcessId>,
    /// Whether the supervisor changes: its membership, or the facts that it has stated.
    is_supervised: bool,
    /// The sender of the packet that arrives.
    from: Option<ProcessId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Step(u32),
    Crash(StorageFate, Output, Return),
    Ring,
}

impl Action {
    /// Returns the action of a choice in a search that explores every order.
    pub(crate) fn new(choice: Choice, state: &State, choices: &Choices, tables: &Tables) -> Action {
        let action = |kind, process| Action { kind, process, is_supervised: false, from: None };
        match choice {
            Choice::Next(place) => {
                let step = state.step(place, choices);
                let kind = Kind::Step(step);
                match &tables.steps.get(step).body {
                    Body::Packet { from, to, .. } => Action { from: Some(*from), ..action(kind, Some(*to)) },
                    Body::Store(process, _)
                    | Body::Compute(process, _)
                    | Body::Tell(process, ..)
                    | Body::Refill(process, _) => action(kind, Some(*process)),
                    Body::Restart(process) => Action { is_supervised: true, ..action(kind, Some(*process)) },
                    Body::Start(..) | Body::Detect(..) => {
                        Action { is_supervised: true, ..action(kind, None) }
                    }
                }
            }
            Choice::Overtaken(_) => unreachable!("without a limit, no step is marked as overtaken"),
            Choice::Ring(process) => action(Kind::Ring, Some(process)),
            Choice::Crash { process, storage, output, returns } => {
                let kind = Kind::Crash(storage, output, returns);
                Action { is_supervised: true, ..action(kind, Some(process)) }
            }
        }
    }

    /// Returns whether two actions that are possible in a state can be performed in either order and lead to
    /// the same state, provided that neither ends the run.
    pub(crate) fn is_independent(self, other: Action) -> bool {
        let is_same_process = self.process.is_some() && self.process == other.process;
        let loses = |it: Action, packet: Action| {
            matches!(it.kind, Kind::Crash(_, Output::Lost, _)) && packet.from == it.process
        };
        // Together, two timers or two failures may exceed the bounds.
        let are_timers = self.kind == Kind::Ring && other.kind == Kind::Ring;
        !(is_same_process
            || self.is_supervised && other.is_supervised
            || are_timers
            || loses(self, other)
            || loses(other, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Bounds, Storage};
    use crate::federation::names;
    use crate::key::Key;
    use crate::subject::Subject;

    const BOUNDS: Bounds = Bounds {
        crashes: 2,
        timers: 1,
        overtakings: None,
        storage: Storage::Any,
        permanent: true,
        states: u64::MAX,
    };
    /// The number of states that are visited in each federation.
    const STATES: usize = 300;

    /// Performs each pair of independent choices in both orders, in states along pseudo-random runs, and asserts that
    /// both orders lead to the same state. Returns the number of independent pairs and the number of all pairs.
    fn pairs(subject: &Subject) -> [usize; 2] {
        let tables = subject.tables();
        let begun = || subject.begun(&BOUNDS, &tables, &mut ());
        let (mut state, mut choices, mut counts) = (begun(), Choices::default(), [0, 0]);
        for number in 0..STATES {
            state.find_choices(&BOUNDS, &tables, &mut choices);
            if choices.all.is_empty() {
                state = begun();
                continue;
            }
            let actions: Vec<Action> =
                choices.all.iter().map(|it| Action::new(*it, &state, &choices, &tables)).collect();
            for (place, &first) in actions.iter().enumerate() {
                for &second in &actions[..place] {
                    counts[1] += 1;
                    if first.is_independent(second) {
                        counts[0] += 1;
                        let both = |order| after(order, &state, &tables);
                        let (one, other) = (both([first, second]), both([second, first]));
                        assert!(one == other || one.is_none() || other.is_none(), "{first:?} {second:?}");
                    }
                }
            }
            let chosen = choices.all[number * 7919 % choices.all.len()];
            state.perform(chosen, &choices, &tables, &mut ());
        }
        counts
    }

    /// Returns the key of the state after some actions; `None` if the run ends before the last one.
    fn after(actions: [Action; 2], state: &State, tables: &Tables) -> Option<Key> {
        let (mut next, mut choices) = (State::default(), Choices::default());
        next.copy_from(state);
        for action in actions {
            if next.has_ended() {
                return None;
            }
            next.find_choices(&BOUNDS, tables, &mut choices);
            let is_it = |it: &&Choice| Action::new(**it, &next, &choices, tables) == action;
            let choice = *choices.all.iter().find(is_it).expect("an independent choice remains possible");
            next.perform(choice, &choices, tables, &mut ());
        }
        Some(next.key(tables, &mut Vec::new()))
    }

    #[test]
    fn both_orders_of_independent_choices_lead_to_the_same_state() {
        for protocol in names() {
            let [independent, all] = pairs(&Subject::small(protocol, 3, "0>1,1>0"));
            assert!(independent * 10 > all, "{protocol}: {independent} of {all}");
        }
    }
}
