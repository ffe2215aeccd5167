//! The breadth-first search, whose first violation has the shortest run.

use std::collections::HashSet;
use std::mem;

use faultline_catalog::Hosted;

use crate::bounds::Bounds;
use crate::key::{Key, Unhashed};
use crate::local::Effects;
use crate::state::{Choice, State};

/// The number of steps between two reports of progress.
const PROGRESS_EVERY: u64 = 10_000;

/// The progress of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchExtent {
    /// The number of distinct states visited.
    pub states: u64,
    /// The number of steps performed.
    pub steps: u64,
    /// The number of steps of the longest run.
    pub depth: u32,
    /// The number of distinct complete runs, all of which were judged.
    pub runs: u64,
    /// The number of these runs that could not be judged completely, for example because all copies of a part were
    /// lost.
    pub unknown: u64,
    /// Whether a run has as many overtakings as the bounds permit, in which case a larger bound may lead to
    /// more states.
    pub is_bounded: bool,
}

/// A step that led to a state, and the state before it.
#[derive(Clone, Copy)]
struct Step {
    from: u32,
    choice: Choice,
}

type Keys = HashSet<Key, Unhashed>;

/// How a search ends.
pub(crate) enum End {
    /// All states have been visited.
    Exhausted,
    /// The bound on states was reached.
    Stopped,
    /// The run that these choices lead to violates a property.
    Found(Vec<Choice>),
    /// The caller ended the search.
    Interrupted,
}

/// The judgement of a complete run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    Sound,
    Unknown,
    Violating,
}

pub(crate) struct Search<'a, N: Hosted> {
    pub(crate) bounds: Bounds,
    pub(crate) effects: Effects<N>,
    /// Judges the run that these choices lead to.
    pub(crate) judge: &'a mut dyn FnMut(&mut Effects<N>, &[Choice]) -> Run,
    /// Called every [`PROGRESS_EVERY`] steps, and after each level. Returns whether to continue.
    pub(crate) progress: &'a mut dyn FnMut(&SearchExtent) -> bool,
}

impl<N: Hosted> Search<'_, N> {
    pub(crate) fn run(&mut self, first: State<N>, extent: &mut SearchExtent) -> End {
        let mut visited = Keys::default();
        let mut judged = Keys::default();
        // The first state has no step.
        let mut steps: Vec<Step> = Vec::new();
        visited.insert(first.key());
        extent.states += 1;
        let mut level = vec![(u32::MAX, first)];
        let mut next = Vec::new();
        let mut choices = Vec::new();
        for depth in 0.. {
            extent.depth = extent.depth.max(depth);
            for (place, state) in level.drain(..) {
                if state.is_quiet() && judged.insert(state.completion()) {
                    extent.runs += 1;
                    let path = path(&steps, place);
                    match (self.judge)(&mut self.effects, &path) {
                        Run::Sound => {}
                        Run::Unknown => extent.unknown += 1,
                        Run::Violating => return End::Found(path),
                    }
                }
                choices.clear();
                state.choices(&self.bounds, &mut choices);
                for &choice in &choices {
                    let following = state.perform(choice, &mut self.effects, &mut ());
                    extent.steps += 1;
                    if extent.steps.is_multiple_of(PROGRESS_EVERY) && !(self.progress)(extent) {
                        return End::Interrupted;
                    }
                    if visited.insert(following.key()) {
                        extent.states += 1;
                        extent.is_bounded |= following.left.is_used_up();
                        steps.push(Step { from: place, choice });
                        next.push((steps.len() as u32 - 1, following));
                    }
                }
                if visited.len() as u64 >= self.bounds.states {
                    return End::Stopped;
                }
            }
            if !(self.progress)(extent) {
                return End::Interrupted;
            }
            if next.is_empty() {
                return End::Exhausted;
            }
            mem::swap(&mut level, &mut next);
        }
        unreachable!("a search has finitely many levels")
    }
}

/// Returns the choices that lead to a state.
fn path(steps: &[Step], mut place: u32) -> Vec<Choice> {
    let mut path = Vec::new();
    while let Some(step) = steps.get(place as usize) {
        path.push(step.choice);
        place = step.from;
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::collections::HashSet;

    use faultline_catalog::{MessagesSetup, MessagesVisitor, Setup, with_valid_messages};
    use faultline_core::{Protocol, Time};
    use faultline_protocols::hc3i::Hc3i;

    use super::*;
    use crate::bounds::Storage;
    use crate::federation::federation;
    use crate::program::{Program, Rank};

    const BOUNDS: Bounds = Bounds {
        crashes: 1,
        timers: 1,
        overtakings: Some(0),
        storage: Storage::Any,
        permanent: false,
        states: 1_000_000,
    };

    struct Runs;

    impl MessagesVisitor for Runs {
        /// The number of runs judged, of quiet states that differ in facts or deadlines, and of those that differ in
        /// facts.
        type Output = (u64, usize, usize);

        fn visit<P>(self, setup: MessagesSetup<P>) -> Self::Output
        where
            P: Protocol + Send + Sync + 'static,
            P::Config: Send + Sync,
        {
            // The search is compiled for this protocol alone.
            let setup: Box<dyn Any> = Box::new(setup);
            let setup = setup.downcast::<MessagesSetup<Hc3i>>().expect("the federation runs HC3I");
            runs(&setup.hosting::<Rank>("0>1,1>0".parse::<Program>().unwrap()))
        }
    }

    fn runs<N: Hosted>(setup: &Setup<N>) -> (u64, usize, usize) {
        let mut effects = Effects::<N>::new(setup.process.clone());
        let first = State::begun(setup.membership.clone(), &BOUNDS, &mut effects, &mut ());
        let (mut stated, mut quiet) = (HashSet::new(), HashSet::new());
        let mut visited = HashSet::from([first.key()]);
        let mut rest = vec![first.clone()];
        while let Some(state) = rest.pop() {
            if state.is_quiet() {
                let deadlines: Vec<Option<Time>> = state.deadlines().collect();
                stated.insert(state.facts_key());
                quiet.insert((state.facts_key(), state.ended.is_none().then_some(deadlines)));
            }
            let mut choices = Vec::new();
            state.choices(&BOUNDS, &mut choices);
            let following = choices.into_iter().map(|it| state.perform(it, &mut effects, &mut ()));
            rest.extend(following.filter(|it| visited.insert(it.key())));
        }
        let mut extent = SearchExtent::default();
        let (judge, progress) = (&mut |_: &mut _, _: &_| Run::Sound, &mut |_: &_| true);
        let mut search = Search { bounds: BOUNDS, effects, judge, progress };
        assert!(matches!(search.run(first, &mut extent), End::Exhausted));
        (extent.runs, quiet.len(), stated.len())
    }

    /// The rest of a run depends on the states of the processes, which may differ although the same facts were
    /// reported.
    #[test]
    fn quiet_states_with_the_same_facts_and_different_deadlines_are_both_judged() {
        let federation = federation("hc3i", 2, 1).unwrap();
        let (judged, quiet, stated) = with_valid_messages(&federation, Some(0), None, Runs).unwrap();
        assert!(quiet > stated, "{quiet} {stated}");
        assert!(judged >= quiet as u64, "{judged} {quiet}");
    }
}
